/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The capture of one running process into a model, without a file, for commands that judge it. */
#include <stdbool.h>
#include <stdint.h>

#include "capture/capture_args.h"
#include "model/model.h"
#include "record/stream.h"

struct dict;
struct facts;

struct live_model {
	struct model *model;
	/* Until the capture ends they are the session's; then owned. */
	struct dict *dict;
	struct facts *facts;
	uint64_t duration; /* to the end of the last step, ns; 0: nothing was captured */
};

struct live_model_opts {
	const struct capture_args *args; /* one process */
	/* The model is new, before its first event. Returns 0 or a negative errno. */
	int (*begin)(void *ctx, struct live_model *l);
	/* Takes an event before the model does; NULL: not wanted. Returns 0 or a negative errno. */
	int (*event)(void *ctx, const struct event *e);
	/* Asked once a second; true ends the capture. NULL: never. */
	bool (*enough)(void *ctx, const struct live_model *l, uint64_t now);
	void *ctx;
};

/* Captures to the end that args name. Returns 0 and *ret, or an exit code, logged. Free *ret in
 * both cases. */
int live_model__capture(const struct live_model_opts *o, struct live_model *ret);
void live_model__free(struct live_model *l);
