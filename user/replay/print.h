/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_PRINT_H
#define MT_REPLAY_PRINT_H
/* What came of tries, for people and for programs. */
#include <stddef.h>
#include <stdio.h>

#include "replay/replay.h"

struct replay_tried {
	const char *alloc_conf; /* "": PyTorch's defaults */
	bool own;		/* the recording's own settings */
	bool failed;		/* PyTorch refused them: why */
	char why[256];
	struct replay_result result;
	uint64_t smallest; /* the least memory that it fits; 0: not looked for */
	const char *costs; /* what these settings cost, or need; "" */
};

struct replay_found {
	const struct replay_about *about;
	uint64_t vram; /* 0: no limit */
	const struct replay_tried *v;
	size_t n;
	bool searched;
	const struct replay_tried *best; /* after a search; NULL: none gains anything */
	char verdict[256];		 /* of a search, in words */
};

void replay_print__text(FILE *out, const struct replay_found *f);
/* 0 or -errno. */
int replay_print__json(FILE *out, const struct replay_found *f);

#endif
