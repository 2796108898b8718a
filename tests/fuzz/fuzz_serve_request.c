/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: a request to the route table: a path, a NUL, query values, a NUL, a body.
 * Accepted values must match the table, by checks independent of the validator. Rejections must
 * have safe text.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/web/validate.h"
#include "serve/web/web.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const methods[] = { "GET", "POST", "DELETE", "HEAD", "PUT" };

/* The next piece, up to a NUL or the end, in memory of its exact size, so that sanitizers find
 * reads beyond it. */
static char *next(const uint8_t **data, size_t *left, size_t *len)
{
	char *piece;

	*len = strnlen((const char *)*data, *left);
	piece = malloc(*len + 1);
	if (!piece)
		abort();
	memcpy(piece, *data, *len);
	piece[*len] = '\0';
	*data += *len < *left ? *len + 1 : *len;
	*left -= *len < *left ? *len + 1 : *len;
	return piece;
}

static void check_complaint(const struct complaint *c)
{
	if (!*c->detail || !terminal__harmless(c->detail, strlen(c->detail)) ||
	    !terminal__harmless(c->field, strlen(c->field)))
		abort();
}

static bool in_range(const struct field *f, double v)
{
	return isfinite(v) && ((!f->min && !f->max) || (v >= f->min && v <= f->max));
}

static bool is_choice(const struct field *f, const char *s)
{
	for (const char *const *o = f->choices; o && *o; o++) {
		if (!strcmp(*o, s))
			return true;
	}
	return !f->choices;
}

/* Length in characters, as in JSON Schema. */
static size_t characters(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static bool fits(const struct field *f, enum field_type type, const json_t *v)
{
	switch (type) {
	case FIELD_INTEGER:
		return json_is_integer(v) && in_range(f, (double)json_integer_value(v));
	case FIELD_NUMBER:
		return json_is_number(v) && in_range(f, json_number_value(v));
	case FIELD_BOOLEAN:
		return json_is_boolean(v);
	default:
		return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v) &&
		       characters(json_string_value(v)) <= (f->type == FIELD_STRING && f->longest
								    ? f->longest
								    : VALIDATE_STRING) &&
		       (f->type != FIELD_STRING ||
			characters(json_string_value(v)) >= f->shortest) &&
		       is_choice(f, json_string_value(v));
	}
}

static void check_body(const struct field *fields, const json_t *doc)
{
	const char *name;
	json_t *v, *member;
	size_t i, named = 0;

	for (const struct field *f = fields; f && f->name; f++) {
		v = json_object_get(doc, f->name);
		named += v != NULL;
		if (!v) {
			if (f->required)
				abort();
			continue;
		}
		if (f->type != FIELD_INTEGERS && f->type != FIELD_STRINGS) {
			if (!fits(f, f->type, v))
				abort();
			continue;
		}
		if (!json_is_array(v) || json_array_size(v) < f->shortest ||
		    (f->longest && json_array_size(v) > f->longest))
			abort();
		json_array_foreach(v, i, member)
			if (!fits(f, f->type == FIELD_INTEGERS ? FIELD_INTEGER : FIELD_STRING,
				  member))
				abort();
	}
	json_object_foreach((json_t *)doc, name, v)
		named--;
	if (named)
		abort();
}

/* Checks that accepted text matches its type. */
static void check_text(const struct field *f, const char *text, size_t len)
{
	double number;

	if (strlen(text) != len)
		abort();
	if ((f->type == FIELD_INTEGER || f->type == FIELD_NUMBER) &&
	    (!validate__as_number(text, &number) || !in_range(f, number) ||
	     (f->type == FIELD_INTEGER && number != trunc(number))))
		abort();
	if (f->type == FIELD_STRING &&
	    (characters(text) < f->shortest ||
	     characters(text) > (f->longest ? f->longest : VALIDATE_STRING) || !is_choice(f, text)))
		abort();
}

static void try_text(const struct field *f, char *text, size_t len)
{
	struct complaint c = { .field = "" };

	if (!validate__unescape(text, &len))
		return;
	if (text[len] || !terminal__utf8(text, len))
		abort();
	if (validate__text(f, text, len, &c))
		check_complaint(&c);
	else
		check_text(f, text, len);
}

static void try_path(char *path)
{
	char *values[4], allow[128];
	size_t n = 0, len = strlen(path);
	const struct route *r;

	if (*path != '/')
		return;
	r = routes__find(route_tables, methods[len % (sizeof(methods) / sizeof(*methods))], path,
			 values, &n, allow, sizeof(allow));
	if (n > 4 || strnlen(allow, sizeof(allow)) == sizeof(allow))
		abort();
	for (size_t i = 0; r && i < n; i++) {
		if (values[i] < path || values[i] + strlen(values[i]) > path + len ||
		    !r->in_path[i].name)
			abort();
		try_text(&r->in_path[i], values[i], strlen(values[i]));
	}
}

static const struct route *pick(size_t n)
{
	size_t routes = 0;

	while (routes__at(route_tables, routes))
		routes++;
	return routes__at(route_tables, n % routes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct complaint c = { .field = "" };
	const struct route *r;
	char *piece;
	size_t len;
	json_t *doc;

	if (!size)
		return 0;
	r = pick(*data++);
	size--;
	piece = next(&data, &size, &len);
	validate__is_json_type(piece);
	try_path(piece);
	free(piece);
	for (const struct field *f = r->in_query; f && f->name; f++) {
		piece = next(&data, &size, &len);
		try_text(f, piece, len);
		free(piece);
	}
	piece = malloc(size + 1);
	if (!piece)
		abort();
	if (size)
		memcpy(piece, data, size);
	doc = validate__body(r->in_body, piece, size, &c);
	if (doc)
		check_body(r->in_body, doc);
	else
		check_complaint(&c);
	json_decref(doc);
	free(piece);
	return 0;
}
