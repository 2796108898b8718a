/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints the results of tries as text or JSON. */
#include <stddef.h>
#include <stdio.h>

#include "estimate/replay.h"

struct replay_tried {
	const char *alloc_conf; /* allocator settings; "": PyTorch's defaults */
	bool own;		/* true for the recording's own settings */
	bool failed;		/* true if PyTorch refused the settings; why has the reason */
	char why[256];
	struct replay_result result;
	uint64_t smallest; /* smallest memory that fits; 0: not searched */
	const char *costs; /* drawbacks of the settings, as text; "": none */
};

struct replay_found {
	const struct replay_about *about;
	uint64_t vram;	    /* bytes of the device; 0: no limit */
	bool recorded_vram; /* vram is that of the recording, not of an option */
	const struct replay_tried *v;
	size_t n;
	bool searched;
	/* Recommended try after a search; NULL: no try is better. */
	const struct replay_tried *best;
	char verdict[256]; /* result of the search, as text */
};

void replay_print__text(FILE *out, const struct replay_found *f);
/* Returns 0 or -errno. */
int replay_print__json(FILE *out, const struct replay_found *f);
