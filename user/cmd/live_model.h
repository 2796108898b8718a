/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Captures one running process into a model, without a file, for commands that judge it. */
#include <stdbool.h>
#include <stdint.h>

#include "capture/capture_args.h"
#include "model/model.h"
#include "record/stream.h"

struct dict;
struct facts;

struct live_model {
	struct model *model;
	/* Owned by the session until the capture ends, then by this struct. */
	struct dict *dict;
	struct facts *facts;
	uint64_t duration; /* length of the capture, to the end of the last step, ns; 0: nothing was
			      captured */
};

struct live_model_opts {
	const struct capture_args *args; /* must name one process */
	const char *until; /* the end of the capture in words, for messages; NULL: from args */
	bool writes_file;  /* a file in another user's folder may have to be removed at the end */
	/* Called when the model exists, before its first event. Returns 0 or a negative errno. */
	int (*begin)(void *ctx, struct live_model *l);
	/* Called with each event, before the model takes it; NULL: not wanted. Returns 0 or a
	 * negative errno. */
	int (*event)(void *ctx, const struct event *e);
	/* Called once a second; true ends the capture. now: ns since its start. NULL: it does not
	 * end early. */
	bool (*enough)(void *ctx, const struct live_model *l, uint64_t now);
	void *ctx;
};

/* Captures until the end that o->args ask for. Returns 0 and *ret, or an exit code after a
 * message. Call live_model__free() in both cases. */
int live_model__capture(const struct live_model_opts *o, struct live_model *ret);
void live_model__free(struct live_model *l);
