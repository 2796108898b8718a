/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/library_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "model/model.h"
#include "model/words.h"

#define SHOWN 5

struct lines {
	struct row *all; /* file, func, line and bytes */
	size_t n, cap;
};

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_line(const struct row *a, const struct row *b)
{
	return a->line == b->line && same_text(a->file, b->file) && same_text(a->func, b->func);
}

static int add(struct lines *l, const struct row *r)
{
	int err;

	for (size_t i = 0; i < l->n; i++) {
		if (same_line(&l->all[i], r)) {
			l->all[i].bytes += r->bytes;
			return 0;
		}
	}
	err = array__grow(&l->all, &l->cap, l->n + 1, sizeof(*l->all));
	if (!err)
		l->all[l->n++] = *r;
	return err;
}

/* The innermost lines of the stacks whose blocks are those of the row. */
static int collect(const struct model *m, size_t device, const struct row_opts *of_rows,
		   const struct row *of, struct lines *l)
{
	struct row_opts opts = { .when = of_rows->when,
				 .split = 1u << BY_LINE | 1u << BY_STACK | 1u << BY_PHASE |
					  1u << BY_CATEGORY };
	struct row *rows = NULL, r;
	struct row_frame f;
	size_t n = 0;
	int err = model__rows(m, device, &opts, &rows, &n);

	for (size_t i = 0; !err && i < n; i++) {
		if (rows[i].before_attach || !same_line(&rows[i], of) ||
		    (!of_rows->any_phase && rows[i].phase != of->phase) ||
		    (!of_rows->any_category && !same_text(rows[i].category, of->category)) ||
		    !model__stack_line(m, rows[i].stack, FRAMES_ALL, &f))
			continue;
		r = (struct row){
			.bytes = rows[i].bytes, .file = f.file, .func = f.func, .line = f.line
		};
		err = add(l, &r);
	}
	free(rows);
	return err;
}

static int by_bytes(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

int library_lines__print(FILE *out, const struct model *m, size_t device,
			 const struct row_opts *of_rows, const struct row *of, const char *cwd,
			 size_t columns)
{
	char at[REPORT_TEXT], bytes[24];
	struct lines l = { 0 };
	int err = collect(m, device, of_rows, of, &l);

	if (!err && l.n && !(l.n == 1 && same_line(&l.all[0], of))) {
		qsort(l.all, l.n, sizeof(*l.all), by_bytes);
		for (size_t i = 0; i < l.n && i < SHOWN; i++)
			fprintf(out, "%12s%10s  in %s\n", "",
				text__bytes(bytes, sizeof(bytes), l.all[i].bytes),
				words__location(at, &l.all[i], cwd,
						columns > 47 ? columns - 27 : 20));
		if (l.n > SHOWN)
			fprintf(out, "%24s+ %zu more lines (--frames all)\n", "", l.n - SHOWN);
	}
	free(l.all);
	return err;
}
