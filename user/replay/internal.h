/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_INTERNAL_H
#define MT_REPLAY_INTERNAL_H
/* An open replay, and one run of the replayer. */
#include <limits.h>

#include "replay/abi.h"
#include "replay/plan.h"
#include "replay/replay.h"
#include "replay/wire.h"

struct mtr_reader;
struct model;

struct replay {
	struct mtr_reader *reader; /* its dictionary has the names */
	struct model *words;	   /* empty: for what stacks mean */
	int spool;		   /* the recording, where it came through a pipe; -1 */
	int plan;
	struct replay_plan_info info;
	struct replay_torch torch;
	bool own; /* as in replay_opts */
	const struct user *user;
	struct replay_about about;
	bool refuse;   /* what ran out of memory did not do so because of the device's size: that is
			  not known, or there was a lower limit */
	bool fraction; /* under its own settings: set_per_process_memory_fraction() seems to have
			  been called */
	char replayer[PATH_MAX], dryrun[PATH_MAX];
};

struct replay_run_opts {
	const char *alloc_conf;
	uint64_t vram;	/* 0: no limit */
	unsigned flags; /* enum replay_flag */
	int (*curve)(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		     uint64_t reserved);
	void *ctx;
};

/* Starts the replayer and waits for its end. 0, or -errno and *f: what it said. */
int replay_run__try(const struct replay *r, const struct replay_run_opts *opts,
		    struct replay_answer *ret, struct failure *f);
/* Where it is, in r->replayer. 0, or -errno and *f. */
int replay_run__find(struct replay *r, struct failure *f);
/* What is not PyTorch's on the device, before anybody else takes any. */
uint64_t replay__context(const struct replay *r);

/* Reads the recording of opts->path into a plan: sets reader, words, spool, plan, info, and what of
 * about is known by that. */
int replay_read__plan(struct replay *r, const struct replay_opts *opts, struct failure *f);

#endif
