/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_PAINT_H
#define MT_LIVE_PAINT_H
/* What the parts of the screen draw with. Text from the target is cleaned and cut by the caller;
 * characters that the terminal cannot show are replaced here. */
#include <stdbool.h>
#include <stddef.h>

struct live_state;

enum ink {
	INK_PLAIN,
	INK_BOLD,
	INK_DIM,
	INK_BAR,    /* top line, titles */
	INK_BAR_ON, /* in them, what is chosen */
	INK_SELECTED,
	INK_ALLOCATED,
	INK_WITHIN, /* between least and most allocated */
	INK_RESERVED,
	INK_PEAK,
	INK_GREW,
	INK_GREW_MOST,
	INK_SHRANK,
	INK_WARN,
	INK_KEY,
	INK_NR,
};

struct paint {
	int rows, columns;
	bool unicode;
	int table_rows; /* for screen__page() */
};

/* At most width columns at y, x; what is wider is cut. Returns the columns used. */
int paint__put(struct paint *p, int y, int x, int width, enum ink ink, const char *text);
/* The same with its end at x + width. */
void paint__right(struct paint *p, int y, int x, int width, enum ink ink, const char *text);
void paint__fill(struct paint *p, int y, int x, int width, enum ink ink);
/* "name value  " with the value in a field of so many columns; returns the x after it. */
int paint__figure(struct paint *p, int y, int x, const char *name, const char *value, int field,
		  enum ink ink);

/* The parts; each is given the rows it may use. */
void draw_head(struct paint *p, const struct live_state *s); /* rows 0 to 2 */
void draw_graph(struct paint *p, const struct live_state *s, int y,
		int rows); /* the last row is the time axis */
void draw_head__tabs(struct paint *p, const struct live_state *s, int y);
void draw_table(struct paint *p, struct live_state *s, int y, int rows); /* with titles */
void draw_more__segments(struct paint *p, struct live_state *s, int y, int rows);
void draw_more__processes(struct paint *p, struct live_state *s, int y, int rows);
void draw_detail(struct paint *p, struct live_state *s, int y, int rows);
void draw_help(struct paint *p, struct live_state *s, int y, int rows);
void draw_help__log(struct paint *p, struct live_state *s, int y, int rows);
void draw_head__foot(struct paint *p, const struct live_state *s); /* the last two rows */

#endif
