/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/fields.h"

#include <stddef.h>
#include <string.h>

#define OF_LINE (1U << BY_LINE)
#define OF_MODULE (1U << BY_LINE | 1U << BY_MODULE | 1U << BY_LAYER)
#define OF_PHASE (1U << BY_PHASE)
#define OF_SCOPE (1U << BY_SCOPE)

enum type { U64, U32, TEXT, PHASE };

#define ROW_FIELD(id, name, type, member, groups, optional)                                        \
	{ name, type, offsetof(struct row, member), groups, optional },

static const struct {
	const char *name;
	enum type type;
	size_t at;
	unsigned of;
	bool optional;
} fields[ROW_FIELDS] = { ROW_FIELD_LIST(ROW_FIELD) };

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
