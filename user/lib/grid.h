/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_GRID_H
#define MT_LIB_GRID_H
/*
 * A table on a terminal: columns as wide as what is in them, fewer of them where there is no room,
 * and a last one that takes what is left. Text is shown as it is: clean it first.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct grid;

struct column {
	const char *title;
	bool right; /* numbers */
	int goes;   /* which goes first where there is no room: 1, 2 ...; 0: none does */
};

struct grid *grid__new(const struct column *c,
		       size_t n); /* n without the last one. Borrows c. NULL on ENOMEM */
void grid__free(struct grid *t);  /* NULL is fine */
void grid__hide(struct grid *t, size_t column); /* not shown at all */
/* The cells of one row, from the first to the last but one. Copies. 0 or -ENOMEM. */
int grid__add(struct grid *t, const char *const *cells);
/* When the last column goes, as column.goes; 0, as it is at first: never. */
void grid__last_goes(struct grid *t, int goes);
/* Leaves out columns until there is room for so many in the last one; the room that there is, 0
 * where the last one has gone. */
size_t grid__fit(struct grid *t, size_t width, size_t wanted);
bool grid__shown(const struct grid *t, size_t column);
/* A row, or the titles, with the last cell and a line end; colour (NULL: none) is of the first
 * cell. */
void grid__print(const struct grid *t, FILE *out, size_t row, const char *colour, const char *last);
void grid__print_titles(const struct grid *t, FILE *out, bool bold, const char *last);

#endif
