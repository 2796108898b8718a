/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An open replay. */
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

/* Converts the recording of opts->path to a plan. Sets reader, resolver, spool, plan, info, and the
 * fields of about that follow from them. */
int replay_read__plan(struct replay *r, const struct replay_opts *opts, struct failure *f);
