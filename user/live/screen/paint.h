/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Drawing functions for the parts of the screen. The caller cleans and cuts text from the
 * target. Characters that the terminal cannot show are replaced here. */
#include <stdbool.h>
#include <stddef.h>

struct live_state;

enum ink {
	INK_PLAIN,
	INK_BOLD,
	INK_DIM,
	INK_BAR,    /* top line and titles */
	INK_BAR_ON, /* selected item in the top line or titles */
	INK_SELECTED,
	INK_ALLOCATED,
	INK_WITHIN, /* between lowest and highest allocated bytes */
	INK_RESERVED,
	INK_PEAK,
	INK_GREW,
	INK_GREW_MOST,
	INK_SHRANK,
	INK_WARN,
	INK_KEY,
	INK_NR,
};

#define PAINT_HITS 48 /* maximum number of hits on the screen */

struct hit { /* a place where a click acts as a key */
	int y, x, width, key;
};

struct paint {
	int rows, columns;
	bool unicode;
	int table_rows; /* rows that fit into the table, for screen__page() */
	struct hit hits[PAINT_HITS];
	size_t nhits;
	/* Screen row of the first table row, and the number of drawn rows; 0: none. */
	int rows_y, rows_n;
};

/* Makes a place act as a key of live_keys__press(). Places beyond PAINT_HITS
 * are ignored. */
void paint__hit(struct paint *p, int y, int x, int width, int key);
/* The key of a click at (y, x); 0: none. */
int paint__clicked(const struct paint *p, int y, int x);

/* Sets the attributes of all inks. Call it once, after curses was started. */
void paint__set_inks(bool colour);
/* Draws text at (y, x), cut to width columns. Returns the columns used. */
int paint__put(struct paint *p, int y, int x, int width, enum ink ink, const char *text);
/* Draws text right-aligned, ending at x + width. */
void paint__right(struct paint *p, int y, int x, int width, enum ink ink, const char *text);
void paint__fill(struct paint *p, int y, enum ink ink); /* fills row y */

/* The functions from here on draw parts of the screen. y: first row; rows: number of rows. */
void draw_head(struct paint *p, const struct live_state *s); /* rows 0 to 2 */
/* Draws the memory graph; its last row is the time axis. */
void draw_graph(struct paint *p, const struct live_state *s, int y, int rows);
void draw_head__tabs(struct paint *p, const struct live_state *s, int y);
/* Draws what is wrong with the process, or that nothing is. */
void draw_findings(struct paint *p, struct live_state *s, int y, int rows);
/* Draws the table of rows; its first row has the titles. */
void draw_table(struct paint *p, struct live_state *s, int y, int rows);
void draw_table__segments(struct paint *p, struct live_state *s, int y, int rows);
void draw_table__processes(struct paint *p, struct live_state *s, int y, int rows);
void draw_detail(struct paint *p, struct live_state *s, int y, int rows);
void draw_help(struct paint *p, struct live_state *s, int y, int rows);
void draw_help__log(struct paint *p, struct live_state *s, int y, int rows);
void draw_head__foot(struct paint *p, const struct live_state *s); /* the last two rows */
