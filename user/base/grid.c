/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/grid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

#define GAP 2 /* spaces between two columns */

struct grid {
	/* n entries each, without the last column */
	const struct column *columns;
	size_t *width;
	bool *hidden;
	size_t n, rows, room; /* room: cells that have memory */
	struct cell {
		char *text; /* NULL: empty */
		const char *colour;
	} * cells;     /* rows of n cells */
	int last_goes; /* when grid__fit() leaves the last column out: as column.goes */
	bool last_hidden;
	int err; /* -ENOMEM of an earlier call; 0: none */
};

struct grid *grid__new(const struct column *columns, size_t n)
{
	struct grid *grid = calloc(1, sizeof(*grid));

	if (!grid)
		return NULL;
	grid->columns = columns;
	grid->n = n;
	grid->width = calloc(n + 1, sizeof(*grid->width));
	grid->hidden = calloc(n + 1, sizeof(*grid->hidden));
	if (!grid->width || !grid->hidden) {
		grid__free(grid);
		errno = ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		grid->width[i] = text__width(columns[i].title);
		if (grid->width[i] < columns[i].least)
			grid->width[i] = columns[i].least;
	}
	return grid;
}

void grid__free(struct grid *grid)
{
	if (!grid)
		return;
	for (size_t i = 0; i < grid->rows * grid->n; i++)
		free(grid->cells[i].text);
	free(grid->cells);
	free(grid->width);
	free(grid->hidden);
	free(grid);
}

void grid__show(struct grid *grid, size_t column, bool on)
{
	grid->hidden[column] = !on;
}

bool grid__shown(const struct grid *grid, size_t column)
{
	return !grid->hidden[column];
}

void grid__row(struct grid *grid)
{
	size_t first = grid->rows * grid->n;

	if (!grid->err)
		grid->err = array__grow(&grid->cells, &grid->room, first + grid->n,
					sizeof(*grid->cells));
	if (grid->err)
		return;
	memset(grid->cells + first, 0, grid->n * sizeof(*grid->cells));
	grid->rows++;
}

void grid__put(struct grid *grid, size_t column, const char *text, const char *colour)
{
	size_t width = text__width(text);
	struct cell *cell;

	if (grid->err)
		return;
	cell = &grid->cells[(grid->rows - 1) * grid->n + column];
	cell->colour = colour;
	free(cell->text);
	cell->text = strdup(text);
	if (!cell->text)
		grid->err = -ENOMEM;
	if (grid->width[column] < width)
		grid->width[column] = width;
}

int grid__error(const struct grid *grid)
{
	return grid->err;
}

/* Returns the width of the shown columns without the last one, each with its gap. */
static size_t used_width(const struct grid *grid)
{
	size_t sum = 0;

	for (size_t i = 0; i < grid->n; i++)
		sum += grid->hidden[i] ? 0 : grid->width[i] + GAP;
	return sum;
}

void grid__last_goes(struct grid *grid, int goes)
{
	grid->last_goes = goes;
}

size_t grid__fit(struct grid *grid, size_t width, size_t wanted, int goes)
{
	for (int next = 1; used_width(grid) + wanted > width && next <= goes; next++) {
		for (size_t i = 0; i < grid->n; i++)
			if (grid->columns[i].goes == next)
				grid->hidden[i] = true;
		if (grid->last_goes == next) {
			grid->last_hidden = true;
			wanted = 0;
			width += GAP; /* no gap after the last remaining column */
		}
	}
	return used_width(grid) < width && !grid->last_hidden ? width - used_width(grid) : 0;
}

/* Prints a cell of a column. *gap: spaces to print before the next cell that has text; they are not
 * printed at the end of a line. */
static void print_cell(const struct grid *grid, FILE *out, size_t column, const struct cell *cell,
		       int *gap)
{
	const char *text = cell->text ? cell->text : "";
	size_t width = text__width(text);
	int pad = grid->width[column] > width ? (int)(grid->width[column] - width) : 0;

	if (grid->hidden[column])
		return;
	if (!*text) {
		*gap += (int)grid->width[column] + GAP;
		return;
	}
	fprintf(out, "%*s", *gap + (grid->columns[column].right ? pad : 0), "");
	if (cell->colour)
		fprintf(out, "%s%s\033[0m", cell->colour, text);
	else
		fputs(text, out);
	*gap = GAP + (grid->columns[column].right ? 0 : pad);
}

static void print_last(const struct grid *grid, FILE *out, const char *last, int gap)
{
	if (!grid->last_hidden)
		fprintf(out, "%*s%s", gap, "", last);
}

void grid__print(const struct grid *grid, FILE *out, size_t row, const char *last)
{
	int gap = 0;

	for (size_t i = 0; i < grid->n; i++)
		print_cell(grid, out, i, &grid->cells[row * grid->n + i], &gap);
	print_last(grid, out, last, gap);
	fputc('\n', out);
}

void grid__print_titles(const struct grid *grid, FILE *out, bool bold, const char *last)
{
	int gap = 0;

	if (bold)
		fputs("\033[1m", out);
	for (size_t i = 0; i < grid->n; i++)
		print_cell(grid, out, i, &(struct cell){ .text = (char *)grid->columns[i].title },
			   &gap);
	print_last(grid, out, last, gap);
	fputs(bold ? "\033[0m\n" : "\n", out);
}
