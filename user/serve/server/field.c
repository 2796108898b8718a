/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/field.h"

#include <math.h>
#include <string.h>

/* True for a number in the bounds of the field; both 0: no bounds. */
static bool in_range(const struct field *f, double v)
{
	if (!f->min && !f->max)
		return isfinite(v);
	return isfinite(v) && v >= f->min && v <= f->max;
}

bool field__is_text(const struct field *f, const json_t *v)
{
	size_t n = json_string_length(v);

	return json_is_string(v) && n >= f->shortest && (!f->longest || n <= f->longest);
}

/* True for a text with a control character. */
static bool has_control(const json_t *v)
{
	const char *s = json_string_value(v);

	for (size_t i = 0; i < json_string_length(v); i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 127)
			return true;
	return false;
}

/* True for one of the texts that the field allows. */
static bool is_choice(const struct field *f, const json_t *v)
{
	if (!f->choices)
		return true;
	for (const char *const *c = f->choices; *c; c++)
		if (!strcmp(*c, json_string_value(v)))
			return true;
	return false;
}

/* Returns whether v is of this type and within the field's bounds. type differs from f->type for
 * the members of an array. */
static bool is_valid(const struct field *f, enum field_type type, const json_t *v)
{
	size_t n = json_array_size(v);

	switch (type) {
	case FIELD_INTEGER:
		return json_is_integer(v) && in_range(f, (double)json_integer_value(v));
	case FIELD_NUMBER:
		return json_is_number(v) && in_range(f, json_number_value(v));
	case FIELD_STRING:
		return field__is_text(f, v) && !has_control(v) && is_choice(f, v);
	case FIELD_RAW:
		return field__is_text(f, v) && is_choice(f, v);
	case FIELD_BOOLEAN:
		return json_is_boolean(v);
	case FIELD_OBJECT:
		return json_is_object(v);
	case FIELD_INTEGERS:
	case FIELD_STRINGS:
	case FIELD_ARRAY:
		break;
	}
	if (!json_is_array(v) || n < f->shortest || (f->longest && n > f->longest))
		return false;
	for (size_t i = 0; type == FIELD_INTEGERS && i < n; i++)
		if (!is_valid(f, FIELD_INTEGER, json_array_get(v, i)))
			return false;
	for (size_t i = 0; type == FIELD_STRINGS && i < n; i++)
		if (!json_is_string(json_array_get(v, i)))
			return false;
	return true;
}

const struct field *field__wrong(const struct field *fields, const json_t *msg)
{
	for (const struct field *f = fields; f->name; f++) {
		const json_t *v = json_object_get(msg, f->name);
		bool missing = !v || (f->nullable && json_is_null(v));

		if (missing ? f->required : !is_valid(f, f->type, v))
			return f;
	}
	return NULL;
}
