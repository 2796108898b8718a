/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/kept_error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/model.h"

#define TRACEBACK "'s traceback"
#define LEAST_PART 50 /* of the allocated memory: less is not worth a line */

struct keeper {
	const char *name; /* borrowed; up to TRACEBACK */
	size_t len;
	uint64_t bytes;
};

/* Takes the traceback that holds most. Sees each set of equal blocks. */
static bool look(void *ctx, const struct row *r)
{
	const char *end = r->name ? strstr(r->name, TRACEBACK) : NULL, *graph;
	struct keeper *k = ctx;

	if (!end || r->bytes <= k->bytes)
		return true;
	graph = strstr(r->name, ", graph of ");
	k->name = graph && graph < end ? graph + strlen(", graph of ") : r->name;
	k->len = end - k->name;
	k->bytes = r->bytes;
	return true;
}

/* Finds the exception, if a reading named one: "global last_error". */
static void find_keeper(const struct model *m, size_t device, struct keeper *ret)
{
	struct row_opts o = { .by = BY_CATEGORY, .keep = look, .ctx = ret };
	static const enum row_when when[] = { ROWS_NOW, ROWS_AT_MARK };
	struct row *rows;
	size_t n;

	*ret = (struct keeper){ 0 };
	for (size_t i = 0; i < sizeof(when) / sizeof(*when) && !ret->len; i++) {
		o.when = when[i];
		if (!model__rows(m, device, &o, &rows, &n))
			free(rows);
	}
}

const char *kept_error__say(const struct model *m, size_t device, char *buf, size_t size)
{
	struct model_oom o = { 0 };
	char bytes[24], time[24], name[256] = "";
	struct keeper k;

	*buf = '\0';
	for (size_t i = 0; model__oom(m, device, i, &o); i++)
		;
	if (!o.kept || o.kept < o.allocated / LEAST_PART)
		return buf;
	find_keeper(m, device, &k);
	if (k.len)
		text__clean(name, sizeof(name), k.name, k.len);
	snprintf(buf, size,
		 "%s of it are of %s at %s: as long as something keeps %s exception%s%s%s, the "
		 "variables of its functions stay. Retry after the except block, and keep the "
		 "exception's text only.",
		 text__bytes(bytes, sizeof(bytes), o.kept),
		 o.number > 1 ? "calls that failed, the last" : "the call that failed",
		 text__time(time, sizeof(time), o.kept_time), o.number > 1 ? "an" : "its",
		 *name ? " (here " : "", name, *name ? ")" : "");
	return buf;
}
