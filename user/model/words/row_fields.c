/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/fields.h"

#include <stddef.h>
#include <string.h>

#define OF_LINE (1U << BY_LINE)
#define OF_MODULE (1U << BY_LINE | 1U << BY_MODULE | 1U << BY_LAYER)
#define OF_PHASE (1U << BY_PHASE)

enum type { U64, U32, TEXT, PHASE };

static const struct {
	const char *name;
	enum type type;
	size_t at;
	unsigned of;   /* rows that describe one of these properties have the field; 0: all have */
	bool optional; /* JSON leaves the field out if it is 0 or NULL */
} fields[ROW_FIELDS] = {
	[ROW_BYTES] = { "bytes", U64, offsetof(struct row, bytes), 0, false },
	[ROW_COUNT] = { "count", U64, offsetof(struct row, count), 0, false },
	[ROW_MEDIAN] = { "median", U64, offsetof(struct row, median), 0, false },
	[ROW_CUMULATIVE] = { "cumulative", U64, offsetof(struct row, cumulative), 0, false },
	[ROW_REQUESTED] = { "requested", U64, offsetof(struct row, requested), 0, true },
	[ROW_FILE] = { "file", TEXT, offsetof(struct row, file), OF_LINE, false },
	[ROW_LINE] = { "line", U32, offsetof(struct row, line), OF_LINE, false },
	[ROW_FUNCTION] = { "function", TEXT, offsetof(struct row, func), OF_LINE, false },
	[ROW_MODULE] = { "module", TEXT, offsetof(struct row, module), OF_MODULE, false },
	[ROW_MODULE_CLASS] = { "module_class", TEXT, offsetof(struct row, module_class), OF_MODULE,
			       false },
	[ROW_MODULE_ROOT] = { "module_root", TEXT, offsetof(struct row, module_root), OF_MODULE,
			      false },
	[ROW_PHASE] = { "phase", PHASE, offsetof(struct row, phase), OF_PHASE, true },
	[ROW_THREAD] = { "thread", TEXT, offsetof(struct row, thread), 0, true },
	[ROW_TID] = { "tid", U32, offsetof(struct row, tid), 0, true },
	[ROW_CATEGORY] = { "category", TEXT, offsetof(struct row, category), 0, false },
	[ROW_NAME] = { "name", TEXT, offsetof(struct row, name), 0, true },
	[ROW_SOURCE] = { "source", TEXT, offsetof(struct row, source), 0, false },
	[ROW_NODE_CLASS] = { "node_class", TEXT, offsetof(struct row, node_class), OF_LINE, true },
};

const char *row_field__name(enum row_field f)
{
	return fields[f].name;
}

enum row_field row_field__of(const char *name)
{
	enum row_field f = 0;

	while (f < ROW_FIELDS && strcmp(fields[f].name, name) != 0)
		f++;
	return f;
}

struct row_value row_field__get(enum row_field f, const struct row *r, unsigned properties)
{
	const void *at = (const char *)r + fields[f].at;
	struct row_value value = { .applies = !fields[f].of || (properties & fields[f].of),
				   .optional = fields[f].optional };

	switch (fields[f].type) {
	case U64:
		value.number = *(const uint64_t *)at;
		break;
	case U32:
		value.number = *(const uint32_t *)at;
		break;
	case TEXT:
		value.text = *(const char *const *)at;
		break;
	case PHASE:
		value.text = r->before_attach ? NULL : phase__name(r->phase);
		break;
	}
	/* Lines count from 1. 0 of another number is a value, unless the field is optional. */
	if (fields[f].type == U64 || fields[f].type == U32)
		value.known = value.number || (!value.optional && f != ROW_LINE);
	else
		value.known = value.text;
	return value;
}
