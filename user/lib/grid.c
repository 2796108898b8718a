/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/grid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/text.h"

#define GAP 2

struct grid {
	const struct column *c;
	size_t n, rows, room;
	size_t *width;
	bool *hidden;
	char **cells; /* n a row */
	int last_goes;
	bool last_hidden;
};

struct grid *grid__new(const struct column *c, size_t n)
{
	struct grid *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->c = c;
	t->n = n;
	t->width = calloc(n + 1, sizeof(*t->width));
	t->hidden = calloc(n + 1, sizeof(*t->hidden));
	if (!t->width || !t->hidden) {
		grid__free(t);
		errno = ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		t->width[i] = text__width(c[i].title);
	return t;
}

void grid__free(struct grid *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t->width);
	free(t->hidden);
	free(t);
}

void grid__hide(struct grid *t, size_t column)
{
	t->hidden[column] = true;
}

bool grid__shown(const struct grid *t, size_t column)
{
	return !t->hidden[column];
}

int grid__add(struct grid *t, const char *const *cells)
{
	size_t first = t->rows * t->n;
	int err = array__grow(&t->cells, &t->room, first + t->n, sizeof(*t->cells));

	if (err)
		return err;
	memset(t->cells + first, 0, t->n * sizeof(*t->cells));
	t->rows++;
	for (size_t i = 0; i < t->n; i++) {
		size_t width = text__width(cells[i]);

		t->cells[first + i] = strdup(cells[i]);
		if (!t->cells[first + i])
			return -ENOMEM;
		t->width[i] = width > t->width[i] ? width : t->width[i];
	}
	return 0;
}

static size_t used(const struct grid *t)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->n; i++)
		sum += t->hidden[i] ? 0 : t->width[i] + GAP;
	return sum;
}

void grid__last_goes(struct grid *t, int goes)
{
	t->last_goes = goes;
}

size_t grid__fit(struct grid *t, size_t width, size_t wanted)
{
	for (int next = 1; used(t) + wanted > width && next <= (int)t->n + 1; next++) {
		for (size_t i = 0; i < t->n; i++)
			if (t->c[i].goes == next)
				t->hidden[i] = true;
		if (t->last_goes == next) {
			t->last_hidden = true;
			wanted = 0;
			width += GAP; /* nothing stands behind the last one that is left */
		}
	}
	return used(t) < width && !t->last_hidden ? width - used(t) : 0;
}

/* What has to stand in front of the next cell, in columns, is added up in gap. */
static void cell(const struct grid *t, FILE *out, size_t i, const char *text, const char *colour,
		 int *gap)
{
	size_t width = text__width(text);
	int pad = t->width[i] > width ? (int)(t->width[i] - width) : 0;

	if (t->hidden[i])
		return;
	if (!*text) {
		*gap += (int)t->width[i] + GAP;
		return;
	}
	fprintf(out, "%*s%s%s%s", *gap + (t->c[i].right ? pad : 0), "", colour ? colour : "", text,
		colour ? "\033[0m" : "");
	*gap = GAP + (t->c[i].right ? 0 : pad);
}

static void last_cell(const struct grid *t, FILE *out, const char *last, int gap)
{
	if (!t->last_hidden)
		fprintf(out, "%*s%s", gap, "", last);
}

void grid__print(const struct grid *t, FILE *out, size_t row, const char *colour, const char *last)
{
	int gap = 0;

	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->cells[row * t->n + i], i ? NULL : colour, &gap);
	last_cell(t, out, last, gap);
	fputc('\n', out);
}

void grid__print_titles(const struct grid *t, FILE *out, bool bold, const char *last)
{
	int gap = 0;

	if (bold)
		fputs("\033[1m", out);
	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->c[i].title, NULL, &gap);
	last_cell(t, out, last, gap);
	fputs(bold ? "\033[0m\n" : "\n", out);
}
