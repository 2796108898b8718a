/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Rows of a report. */
#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

/* Sets what --by line shows for this stack: file, func, line, module, phase, source. */
void rows__line(const struct model *m, enum frame_choice which_line, uint32_t stack, uint32_t node,
		uint32_t thread, uint8_t walk, struct row *r);

/* ---- hide.c: the line that a row is charged to when row_opts.hide is set ---- */

struct hide {
	struct model *m;
	const struct row_opts *opts;
	uint8_t *files; /* flags by dict string */
	size_t nfiles;
	uint32_t *locs; /* 1 + location by stack, 0: not looked up yet */
	size_t nlocs;
};
/* Dict location that a stack is charged to; 0: no line, or all are hidden. */
uint32_t hide__loc(struct hide *s, uint32_t stack);
void hide__free(struct hide *s);
