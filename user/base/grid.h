/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A table for a terminal. Each column is as wide as its widest cell. A narrow terminal gets fewer
 * columns. The last column takes the rest of the line; its text is passed to grid__print(). Cells
 * are printed unchanged, so clean the text first. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct grid;

struct column {
	const char *title;
	bool right;   /* aligned to the right, as numbers are */
	int goes;     /* when grid__fit() leaves the column out: 1 goes first; 0: the column always
			 stays */
	size_t least; /* least width, in characters */
};

/* columns: the n columns before the last one; borrowed for the life of the grid. NULL on ENOMEM. */
struct grid *grid__new(const struct column *columns, size_t n);
void grid__free(struct grid *grid); /* NULL is fine */
/* Shows or hides a column; at first all are shown. */
void grid__show(struct grid *grid, size_t column, bool on);
bool grid__shown(const struct grid *grid, size_t column);
/* Begins a row of empty cells. */
void grid__row(struct grid *grid);
/* Copies text to a cell of the last row, in place of what the cell had. colour: an escape sequence
 * as static text; NULL: none. */
void grid__put(struct grid *grid, size_t column, const char *text, const char *colour);
/* 0, or -ENOMEM of an earlier grid__row() or grid__put(). */
int grid__error(const struct grid *grid);
/* Lets grid__fit() leave out the last column, too. goes: as column.goes. */
void grid__last_goes(struct grid *grid, int goes);
/*
 * Makes room for the last column on a line of `width` characters: leaves out columns, those with
 * column.goes 1 first, up to `goes`, until the last one has `wanted` characters. Returns the
 * characters that the last one has; 0: none, or it is left out.
 */
size_t grid__fit(struct grid *grid, size_t width, size_t wanted, int goes);
/* Prints a row, or the titles, with the last column's text and a line end. */
void grid__print(const struct grid *grid, FILE *out, size_t row, const char *last);
void grid__print_titles(const struct grid *grid, FILE *out, bool bold, const char *last);
