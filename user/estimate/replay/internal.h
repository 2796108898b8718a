/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An open replay, and one run of the replayer. */
#include <limits.h>

#include "estimate/replay.h"
#include "estimate/replay/abi.h"
#include "estimate/replay/plan.h"
#include "estimate/replay/wire.h"

struct mtr_reader;
struct model;

struct replay {
	struct mtr_reader *reader; /* reader of the recording; its dictionary has the names */
	struct model *resolver;	   /* model without events, which resolves stacks */
	int spool;		   /* copy of a recording that came through a pipe; -1: none */
	int plan;
	struct replay_plan_info info;
	struct replay_torch torch;
	bool own; /* as in replay_opts */
	const struct user *user;
	struct replay_about about;
	/* True if something other than the device's size caused the out-of-memory errors: the size
	 * is unknown, or a lower limit was set. */
	bool refuse;
	/* True if set_per_process_memory_fraction() was probably called in the recorded program. */
	bool fraction;
	char replayer[PATH_MAX], dryrun[PATH_MAX];
};

struct replay_run_opts {
	const char *alloc_conf;
	uint64_t vram;	/* bytes of the device; 0: no limit */
	unsigned flags; /* enum replay_flag */
	int (*curve)(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		     uint64_t reserved);
	void *ctx;
};

/* Runs the replayer to its end. Returns 0, or -errno and its message in *f. */
int replay_run__try(const struct replay *r, const struct replay_run_opts *opts,
		    struct replay_answer *ret, struct failure *f);
/* Finds the replayer and sets r->replayer. Returns 0, or -errno and *f. */
int replay_run__find(struct replay *r, struct failure *f);
/* Bytes of the device that CUDA and other code take before PyTorch allocates. */
uint64_t replay__context(const struct replay *r);

/* Converts the recording of opts->path to a plan. Sets reader, resolver, spool, plan, info, and the
 * fields of about that follow from them. */
int replay_read__plan(struct replay *r, const struct replay_opts *opts, struct failure *f);
