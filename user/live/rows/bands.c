/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/bands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_PART 8 /* less than this part of a column does not show */

struct column_scope {
	size_t scope;
	uint64_t ns; /* time of the scope in the column */
};

/* Adds a run to the columns, the first of which begins at `begin`. */
static void add_run(struct column_scope *c, size_t columns, uint64_t begin, uint64_t width,
		    const struct model_scope_run *r)
{
	size_t first = r->begin > begin ? (r->begin - begin) / width : 0;

	for (size_t i = first; i < columns && begin + i * width < r->end; i++) {
		uint64_t from = begin + i * width, to = from + width, took;

		from = r->begin > from ? r->begin : from;
		to = r->end < to ? r->end : to;
		took = to > from ? to - from : 0;
		if (c[i].ns && c[i].scope == r->scope)
			c[i].ns += took;
		else if (took > c[i].ns)
			c[i] = (struct column_scope){ r->scope, took };
	}
}

bool live_bands__read(const struct model *m, uint64_t now, uint64_t width, size_t *scope,
		      size_t columns)
{
	struct column_scope *c = calloc(columns + 1, sizeof(*c));
	/* The graph may begin before the capture: count from a multiple of the width before 0. */
	uint64_t shift = columns * width,
		 begin = shift + now / width * width - (columns - 1) * width;
	uint64_t known_from = 0;
	struct model_scope_run r;
	struct model_scope s;
	bool any = false;

	for (size_t i = 0; c && model__scope_late(m, i, &r, &known_from); i++) {
		model__scope(m, r.scope, &s);
		r.begin += shift;
		r.end = r.end < now ? r.end + shift : now + shift;
		if (!s.depth && r.end > begin)
			add_run(c, columns, begin, width, &r);
	}
	for (size_t i = 0; i < columns; i++) {
		bool known = !known_from || begin + (i + 1) * width > known_from + shift;

		scope[i] = known ? BAND_NONE : BAND_UNKNOWN;
		if (c && c[i].ns > width / SMALL_PART)
			scope[i] = c[i].scope;
		any |= scope[i] < BAND_UNKNOWN;
	}
	free(c);
	return any;
}

/* True if the name has a further part after this many bytes. */
static bool is_part_at(const char *name, size_t len)
{
	return name[len] &&
	       (strchr(" /.:_-#>", name[len - 1]) ||
		(isdigit((unsigned char)name[len]) && !isdigit((unsigned char)name[len - 1])));
}

static const char *name_of(const struct model *m, size_t scope)
{
	struct model_scope s;

	model__scope(m, scope, &s);
	return s.name;
}

/* Returns the bytes that all names begin with; 0 if there is one scope. */
static size_t count_same(const struct model *m, const size_t *scope, size_t columns)
{
	size_t first = BAND_NONE, len = 0, same;
	bool several = false;

	for (size_t i = 0; i < columns; i++) {
		if (scope[i] >= BAND_UNKNOWN)
			continue;
		if (first == BAND_NONE) {
			first = scope[i];
			len = strlen(name_of(m, first));
		}
		several |= scope[i] != first;
		for (same = 0; same < len && name_of(m, scope[i])[same] == name_of(m, first)[same];)
			same++;
		len = same;
	}
	return several ? len : 0;
}

static bool all_have_part_at(const struct model *m, const size_t *scope, size_t columns, size_t len)
{
	for (size_t i = 0; i < columns; i++)
		if (scope[i] < BAND_UNKNOWN && !is_part_at(name_of(m, scope[i]), len))
			return false;
	return true;
}

size_t live_bands__prefix(const struct model *m, const size_t *scope, size_t columns)
{
	size_t len = count_same(m, scope, columns);

	while (len && !all_have_part_at(m, scope, columns, len))
		len--;
	return len;
}
