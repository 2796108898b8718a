/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* All of a row: its stacks, sizes and ages. */
#include "live/paint.h"

#include "live/state.h"

void draw_detail(struct paint *p, struct live_state *s, int y, int rows)
{
	draw_table(p, s, y, rows);
}
