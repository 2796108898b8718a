/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/kineto.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/json_items.h"
#include "record/stream.h"

struct merge {
	struct json *j;
	bool has_base;
	int64_t base;  /* the trace's time 0, ns since 1970 */
	int64_t shift; /* ns to add to its times */
	uint64_t events;
};

static int take_member(void *ctx, const char *key, const json_t *value)
{
	struct merge *m = ctx;

	if (!strcmp(key, "baseTimeNanoseconds") && json_is_integer(value)) {
		m->base = json_integer_value(value);
		m->has_base = true;
	}
	return 0;
}

static int put_event(void *ctx, const char *array, json_t *event)
{
	struct merge *m = ctx;
	const json_t *ts = json_object_get(event, "ts");
	double at;
	char *text;

	(void)array;
	if (!json_is_object(event))
		return 0;
	if (ts) {
		/* Times since the base have 13 digits, so a double keeps nanoseconds. */
		at = json_number_value(ts) + (double)(m->shift / 1000) +
		     (double)(m->shift % 1000) / 1e3;
		if (!json_is_number(ts) || !isfinite(at) ||
		    json_object_set_new(event, "ts", json_real(at)))
			return 0;
	}
	text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
	if (!text)
		return -ENOMEM;
	json__raw(m->j, text);
	free(text);
	m->events++;
	return 0;
}

/* The recording's time 0, ns since 1970. False: not known. */
static bool zero_of(const struct facts *f, int64_t *ret)
{
	const char *start = facts__get(f, "start");
	uint64_t ns;

	if (facts__number(f, "clock_zero_ns", &ns)) {
		*ret = (int64_t)ns;
		return true;
	}
	/* Older recordings have milliseconds only. */
	if (!start || text__parse_date(start, &ns) || ns > INT64_MAX)
		return false;
	*ret = (int64_t)ns;
	return true;
}

int kineto__merge(struct json *j, const char *path, const struct facts *f)
{
	static const char *const arrays[] = { "traceEvents", NULL };
	struct merge m = { .j = j };
	int64_t zero;
	int err;

	if (!zero_of(f, &zero))
		return -ESTALE;
	err = json_items__read(
		path, &(struct json_items){ .arrays = arrays, .member = take_member, .ctx = &m });
	if (!err && (!m.has_base || __builtin_sub_overflow(m.base, zero, &m.shift)))
		err = -EBADMSG;
	if (!err)
		err = json_items__read(path, &(struct json_items){ .arrays = arrays,
								   .item = put_event,
								   .ctx = &m });
	return err ? err : m.events ? 0 : -EBADMSG;
}
