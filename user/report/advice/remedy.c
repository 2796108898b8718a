/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the kinds of advice share: texts, entries of the list, and remedies. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "model/words.h"
#include "report/advice/internal.h"

char *advice__format(const char *fmt, ...)
{
	char *raw = NULL, *clean;
	size_t len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&raw, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	len = strlen(raw);
	clean = malloc(4 * len + 1); /* room for \xNN per byte */
	if (clean)
		text__clean(clean, 4 * len + 1, raw, len);
	free(raw);
	return clean;
}

char *advice__line(const struct advising *a, uint32_t stack)
{
	struct row_frame f;
	struct row r = { .source = "frame" };
	char *buf, *ret;

	if (!model__stack_line(a->m, stack, false, &f))
		return strdup("");
	r.file = f.file;
	r.func = f.func;
	r.line = f.line;
	buf = malloc(REPORT_TEXT);
	ret = buf ? strdup(words__location(buf, &r, facts__get(a->f, "cwd"), 60)) : NULL;
	free(buf);
	return ret;
}

const char *advice__bytes(char buf[24], uint64_t bytes)
{
	return text__bytes(buf, 24, bytes);
}

int remedy__peak(const struct advising *a, struct remedy *r, uint64_t *after, bool *sure)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < a->t->nkept; i++) {
		uint64_t peak;

		if (r->c[i].err)
			return r->c[i].err;
		peak = window__peak(&a->t->kept[i], &r->c[i]);
		most = peak > most ? peak : most;
	}
	*sure = a->t->others <= most;
	*after = most < a->peak ? most : a->peak;
	return 0;
}

void remedy__free(struct remedy *r)
{
	for (uint32_t i = 0; i < WINDOWS_KEPT; i++)
		free(r->c[i].all);
}

void advice__free_texts(const struct advice *a)
{
	free(a->text);
	free(a->where);
	free(a->basis);
	free(a->costs);
}

int advising__add(struct advising *a, const struct advice *of)
{
	struct advice_list *l = a->list;

	if (!of->text || !of->where || !of->basis ||
	    array__grow(&l->all, &a->cap, l->n + 1, sizeof(*l->all))) {
		advice__free_texts(of);
		return -ENOMEM;
	}
	l->all[l->n++] = *of;
	return 0;
}

int remedy__advise(struct advising *a, struct remedy *r, struct advice *of)
{
	bool sure = true;
	int err = remedy__peak(a, r, &of->after, &sure);

	of->saves = a->peak - of->after;
	if (!sure && of->figure == ADVICE_EXACT)
		of->figure = ADVICE_UP_TO;
	if (err || of->saves < a->peak / 100 * ADVICE_LEAST_PERCENT || !of->saves) {
		advice__free_texts(of);
		return err;
	}
	return advising__add(a, of);
}
