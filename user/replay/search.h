/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_SEARCH_H
#define MT_REPLAY_SEARCH_H
/* The settings that make sense, each tried, and which to recommend. */
#include "replay/print.h"

/*
 * Tries all; *v, for free(), begins with the recording's own. opts: of vram alone. found->v and the
 * like are set; none is recommended that gains less than the replay itself is known to be wrong by,
 * or less than a hundredth. 0 or -errno and *f.
 */
int replay__search(struct replay *r, const struct replay_opts *opts, struct replay_tried **v,
		   struct replay_found *found, struct failure *f);

#endif
