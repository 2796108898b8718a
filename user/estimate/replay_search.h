/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Tries a list of useful settings and recommends one. */
#include "estimate/replay_print.h"

/*
 * Makes all tries. opts: only vram counts. *v belongs to the caller, for free(), and starts with
 * the recording's own settings. Sets v, n, searched, best and verdict of *found. A recommendation
 * must save 1 % and more than the replay's known error. Returns 0, or -errno and *f.
 */
int replay__search(struct replay *r, const struct replay_opts *opts, struct replay_tried **v,
		   struct replay_found *found, struct failure *f);
