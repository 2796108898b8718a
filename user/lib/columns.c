/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/text.h"

#define GAP 2

struct columns {
	const struct column *c;
	size_t n, rows, room;
	size_t *width;
	bool *hidden;
	char **cells; /* n a row */
};

struct columns *columns__new(const struct column *c, size_t n)
{
	struct columns *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->c = c;
	t->n = n;
	t->width = calloc(n + 1, sizeof(*t->width));
	t->hidden = calloc(n + 1, sizeof(*t->hidden));
	if (!t->width || !t->hidden) {
		columns__free(t);
		errno = ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		t->width[i] = text__width(c[i].title);
	return t;
}

void columns__free(struct columns *t)
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

void columns__hide(struct columns *t, size_t column)
{
	t->hidden[column] = true;
}

bool columns__shown(const struct columns *t, size_t column)
{
	return !t->hidden[column];
}

int columns__add(struct columns *t, const char *const *cells)
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

static size_t used(const struct columns *t)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->n; i++)
		sum += t->hidden[i] ? 0 : t->width[i] + GAP;
	return sum;
}

size_t columns__fit(struct columns *t, size_t width, size_t wanted)
{
	for (int next = 1; used(t) + wanted > width && next <= (int)t->n; next++)
		for (size_t i = 0; i < t->n; i++)
			if (t->c[i].goes == next)
				t->hidden[i] = true;
	return used(t) < width ? width - used(t) : 0;
}

static void cell(const struct columns *t, FILE *out, size_t i, const char *text, const char *colour)
{
	size_t width = text__width(text);
	int pad = t->width[i] > width ? (int)(t->width[i] - width) : 0;

	if (t->hidden[i])
		return;
	fprintf(out, "%*s%s%s%s%*s", t->c[i].right ? pad : 0, "", colour ? colour : "", text, colour ? "\033[0m" : "",
		GAP + (t->c[i].right ? 0 : pad), "");
}

void columns__print(const struct columns *t, FILE *out, size_t row, const char *colour, const char *last)
{
	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->cells[row * t->n + i], i ? NULL : colour);
	fprintf(out, "%s\n", last);
}

void columns__print_titles(const struct columns *t, FILE *out, bool bold, const char *last)
{
	if (bold)
		fputs("\033[1m", out);
	for (size_t i = 0; i < t->n; i++)
		cell(t, out, i, t->c[i].title, NULL);
	fprintf(out, "%s%s\n", last, bold ? "\033[0m" : "");
}
