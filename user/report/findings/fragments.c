/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the line whose blocks lie between the free pieces of cached memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "record/dict.h"
#include "report/findings/internal.h"

#define LINES 64 /* lines that are compared; segments come by free bytes, the most first */

/* A line, and the free bytes of segments whose blocks are mostly the line's. */
struct pinning {
	const struct row *line;
	uint64_t free;
};

static bool is_same_line(const struct row *a, const struct row *b)
{
	return a->line == b->line && a->file && b->file && !strcmp(a->file, b->file);
}

/* Charges the free bytes of a segment to the line that has most of its blocks. */
static void charge_segment(struct pinning lines[LINES], size_t *n, const struct segment *s)
{
	size_t i = 0;

	if (!s->stuck || !s->npins)
		return;
	while (i < *n && !is_same_line(lines[i].line, &s->pins[0]))
		i++;
	if (i == LINES)
		return;
	if (i == *n)
		lines[(*n)++] = (struct pinning){ .line = &s->pins[0] };
	lines[i].free += s->stuck;
}

int fragments__find(const struct findings_source *source, size_t device, struct fragments *ret)
{
	struct pinning lines[LINES], most = { .line = NULL };
	struct model_segments segments;
	size_t n = 0;
	int err;

	*ret = (struct fragments){ .stuck = 0 };
	err = model__segments(source->model, device, ROWS_AT_MARK, FRAMES_USER, &segments);
	if (err)
		return err == -ENOMEM ? err : 0;
	ret->stuck = segments.stuck;
	for (size_t i = 0; i < segments.n; i++)
		charge_segment(lines, &n, &segments.all[i]);
	for (size_t i = 0; i < n; i++)
		if (lines[i].free > most.free)
			most = lines[i];
	if (most.line && most.line->file)
		words__location(ret->where, most.line, facts__get(source->facts, "cwd"),
				/*columns=*/60);
	ret->of_line = most.free;
	model__free_segments(&segments);
	return 0;
}
