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

size_t grid__fit(struct grid *t, size_t width, size_t wanted)
{
	for (int next = 1; used(t) + wanted > width && next <= (int)t->n; next++)
		for (size_t i = 0; i < t->n; i++)
			if (t->c[i].goes == next)
				t->hidden[i] = true;
	return used(t) < width ? width - used(t) : 0;
}

static void cell(const struct grid *t, FILE *out, size_t i, const char *text, const char *colour)
{
	size_t width = text__width(text);
	int pad = t->width[i] > width ? (int)(t->width[i] - width) : 0;

	if (t->hidden[i])
		return;
	fprintf(out, "%*s%s%s%s%*s", t->c[i].right ? pad : 0, "", colour ? colour : "", text, colour ? "\033[0m" : "",
		GAP + (t->c[i].right ? 0 : pad), "");
}

void grid__print(const struct grid *t, FILE *out, size_t row, const char *colour, const char *last)
{
	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->cells[row * t->n + i], i ? NULL : colour);
	fprintf(out, "%s\n", last);
}

void grid__print_titles(const struct grid *t, FILE *out, bool bold, const char *last)
{
	if (bold)
		fputs("\033[1m", out);
	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->c[i].title, NULL);
	fprintf(out, "%s%s\n", last, bold ? "\033[0m" : "");
}
