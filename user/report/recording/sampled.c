/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Text report: how far the rows of a sample may be off. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/model.h"
#include "model/words.h"
#include "record/detail.h"
#include "report/text.h"

#define SAMPLED_SHOWN 3 /* rows */

/* Orders rows by what may be missing, most first. */
static int cmp_missing(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	uint64_t p = x->sampled.high - x->bytes, q = y->sampled.high - y->bytes;

	if (p != q)
		return p > q ? -1 : 1;
	return row__compare(a, b);
}

/* Says how much the largest rows may hold of the blocks whose stacks were not drawn. */
static int stacks_words(FILE *out, const struct model *m, size_t device, const struct facts *f,
			const struct report_text_opts *o)
{
	struct row_opts opts = {
		.by = BY_LINE, .when = o->when, .any_module = true, .any_category = true
	};
	char bytes[24], low[24], high[24], share[8], where[REPORT_TEXT], *text = NULL;
	uint64_t rest = 0, all = 0;
	struct row *rows;
	size_t n, size, shown = 0;
	FILE *list;
	int err = model__rows(m, device, &opts, &rows, &n);

	if (err)
		return err;
	list = open_memstream(&text, &size);
	qsort(rows, n, sizeof(*rows), cmp_missing);
	for (size_t i = 0; list && i < n; i++) {
		const struct row *r = &rows[i];

		all += r->bytes;
		if (r->file && !strcmp(r->file, DETAIL_FILE))
			rest += r->bytes;
		else if (r->file && r->sampled.high - r->bytes > r->bytes / 100 &&
			 shown++ < SAMPLED_SHOWN)
			fprintf(list, "%s%s %s to %s", shown > 1 ? "; " : "",
				words__location(where, r, facts__get(f, "cwd"), 60),
				text__bytes(low, sizeof(low), r->sampled.low),
				text__bytes(high, sizeof(high), r->sampled.high));
	}
	free(rows);
	if (!list || fclose(list)) {
		free(text);
		return -ENOMEM;
	}
	if (rest)
		text__paragraph(out, text__prose(report_text__width(out, o)), "\n", "  ",
				"%s (%s %%) is in blocks whose stacks were not sampled%s%s%s",
				text__bytes(bytes, sizeof(bytes), rest),
				text__percent(share, rest, all),
				shown ? ". With their share of it, 95 % sure: " : "", text,
				shown > SAMPLED_SHOWN ? "; ..." : "");
	free(text);
	return 0;
}

/* Orders rows by the width of their interval, widest first. */
static int cmp_unsure(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	uint64_t p = x->sampled.high - x->sampled.low, q = y->sampled.high - y->sampled.low;

	if (p != q)
		return p > q ? -1 : 1;
	return row__compare(a, b);
}

/* Says how far small objects on the host may be charged to other lines than theirs. */
static int pieces_words(FILE *out, const struct model *m, size_t device, const struct facts *f,
			const struct report_text_opts *o)
{
	struct row_opts opts = {
		.by = BY_LINE, .when = o->when, .any_module = true, .any_category = true
	};
	char low[24], high[24], where[REPORT_TEXT], *text = NULL;
	struct row *rows;
	size_t n, size, shown = 0;
	FILE *list;
	int err = model__rows(m, device, &opts, &rows, &n);

	if (err)
		return err;
	list = open_memstream(&text, &size);
	if (n)
		qsort(rows, n, sizeof(*rows), cmp_unsure);
	for (size_t i = 0; list && i < n; i++) {
		const struct sampled *s = &rows[i].sampled;

		if (s->high - s->low > rows[i].bytes / 100 && shown++ < SAMPLED_SHOWN)
			fprintf(list, "%s%s %s to %s", shown > 1 ? "; " : "",
				words__location(where, &rows[i], facts__get(f, "cwd"), 60),
				text__bytes(low, sizeof(low), s->low),
				text__bytes(high, sizeof(high), s->high));
	}
	free(rows);
	if (!list || fclose(list)) {
		free(text);
		return -ENOMEM;
	}
	if (shown)
		text__paragraph(out, text__prose(report_text__width(out, o)), "\n", "  ",
				"Lines of small objects are a sample: an allocator takes memory in "
				"pieces, and the line that needed one has all of it. With their "
				"share of all pieces, 95 %% sure: %s%s",
				text, shown > SAMPLED_SHOWN ? "; ..." : "");
	free(text);
	return 0;
}

int report_text__sampled(FILE *out, const struct model *m, size_t device, const struct facts *f,
			 const struct report_text_opts *o)
{
	struct model_device d;

	model__device(m, device, &d);
	if (d.device.type == DEVICE_HOST)
		return pieces_words(out, m, device, f, o);
	return facts__get(f, "cost.changes") ? stacks_words(out, m, device, f, o) : 0;
}
