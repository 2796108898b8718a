/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/validate.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* 2^53: a double represents every integer up to this */
#define EXACT_MAX 9007199254740992.0

/* Sets *c to the error of a field ("": of the whole request). Returns -EINVAL. */
__attribute__((format(printf, 3, 4))) static int complain(struct complaint *c, const char *field,
							  const char *fmt, ...)
{
	char raw[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	text__clean(c->detail, sizeof(c->detail), raw, strlen(raw));
	text__clean(c->field, sizeof(c->field), field, strlen(field));
	return -EINVAL;
}

const struct field *validate__field(const struct field *fields, const char *name)
{
	for (const struct field *f = fields; f && f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

/* Checks a number. what: how the error names the value, such as "steps" or "input_shape[2]"; also
 * below. 0, or complain()'s result. */
static int check_range(const struct field *f, const char *what, double v, struct complaint *c)
{
	if (!isfinite(v))
		return complain(c, f->name, "%s: must be a finite number", what);
	if (!f->min && !f->max)
		return 0;
	if (v < f->min)
		return complain(c, f->name, "%s: must be at least %.15g, not %.15g", what, f->min,
				v);
	if (v > f->max)
		return complain(c, f->name, "%s: must be at most %.15g, not %.15g", what, f->max,
				v);
	return 0;
}

/* Counts the characters of UTF-8, as the lengths in JSON Schema do. */
static size_t count_characters(const char *s, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < size; i++)
		n += ((unsigned char)s[i] & 0xc0) != 0x80;
	return n;
}

/* True for a text with a control character. */
static bool has_control(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			return true;
	return false;
}

/* Checks a text of size bytes. what: its name for the complaint. 0, or complain()'s result. */
static int check_string(const struct field *f, const char *what, const char *s, size_t size,
			struct complaint *c)
{
	size_t longest = f->longest && f->type == FIELD_STRING ? f->longest : VALIDATE_STRING;
	size_t shortest = f->type == FIELD_STRING ? f->shortest : 0;
	size_t length = count_characters(s, size);

	if (memchr(s, '\0', size))
		return complain(c, f->name, "%s: holds a NUL character", what);
	if (length < shortest)
		return complain(c, f->name,
				length ? "%s: must be at least %zu characters long"
				       : "%s: is empty, but must be at least %zu characters long",
				what, shortest);
	if (length > longest)
		return complain(c, f->name, "%s: must be at most %zu characters long, but has %zu",
				what, longest, length);
	if (!f->pattern && !f->choices && has_control(s))
		return complain(c, f->name, "%s: holds a control character", what);
	if (f->pattern && !text__matches(s, f->pattern))
		return complain(c, f->name, "%s: \"%.40s\" is not a valid value. %s", what, s,
				f->help);
	if (!f->choices)
		return 0;
	char all[256] = "";
	size_t n = 0;

	for (const char *const *o = f->choices; *o; o++) {
		if (!strcmp(*o, s))
			return 0;
		if (n < sizeof(all))
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s",
					      o == f->choices ? "" : ", ", *o);
	}
	return complain(c, f->name, "%s: must be one of %s, not \"%.40s\"", what, all, s);
}

/* True for integers and for reals such as "1.0", as in JSON Schema. */
static bool is_whole(const json_t *v)
{
	double d = json_number_value(v);

	return json_is_integer(v) || (json_is_real(v) && isfinite(d) && d == trunc(d));
}

/* The type of a value, for an error. */
static const char *type_word(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	default:
		return "null";
	}
}

/* Checks a value, or a member of an array, against the field. type: of the value. *ret gets a new
 * reference to the value, converted to that type. Returns 0 or -EINVAL. */
static int check_value(const struct field *f, enum field_type type, const char *what, json_t *v,
		       json_t **ret, struct complaint *c)
{
	int err;

	switch (type) {
	case FIELD_INTEGER:
		if (!is_whole(v))
			return complain(c, f->name,
					json_is_real(v) ? "%s: must be a whole number"
							: "%s: must be a whole number, not %s",
					what, type_word(v));
		err = check_range(f, what, json_number_value(v), c);
		if (err)
			return err;
		if (json_is_real(v) && fabs(json_real_value(v)) > EXACT_MAX)
			return complain(c, f->name, "%s: is too large", what);
		*ret = json_integer(json_is_integer(v) ? json_integer_value(v)
						       : (json_int_t)json_real_value(v));
		break;
	case FIELD_NUMBER:
		if (!json_is_number(v))
			return complain(c, f->name, "%s: must be a number, not %s", what,
					type_word(v));
		err = check_range(f, what, json_number_value(v), c);
		if (!err)
			*ret = json_incref(v);
		break;
	case FIELD_BOOLEAN:
		if (!json_is_boolean(v))
			return complain(c, f->name, "%s: must be true or false, not %s", what,
					type_word(v));
		err = 0;
		*ret = json_incref(v);
		break;
	default:
		if (!json_is_string(v))
			return complain(c, f->name, "%s: must be a string, not %s", what,
					type_word(v));
		err = check_string(f, what, json_string_value(v), json_string_length(v), c);
		if (!err)
			*ret = json_incref(v);
	}
	return err;
}

/* Checks the number of members of an array. 0, or complain()'s result. */
static int check_length(const struct field *f, size_t n, struct complaint *c)
{
	if (n < f->shortest)
		return complain(c, f->name, "%s: must have at least %zu members, but has %zu",
				f->name, f->shortest, n);
	if (f->longest && n > f->longest)
		return complain(c, f->name, "%s: must have at most %zu members, but has %zu",
				f->name, f->longest, n);
	return 0;
}

/* Checks an array and its members. *ret gets a new reference to a copy with members of the field's
 * type. 0, or complain()'s result. */
static int check_array(const struct field *f, json_t *v, json_t **ret, struct complaint *c)
{
	enum field_type member_type = f->type == FIELD_INTEGERS ? FIELD_INTEGER : FIELD_STRING;
	size_t i, n = json_array_size(v);
	json_t *member, *all;

	if (!json_is_array(v))
		return complain(c, f->name, "%s: must be an array, not %s", f->name, type_word(v));
	if (check_length(f, n, c))
		return -EINVAL;
	all = json_array();
	json_array_foreach(v, i, member) {
		json_t *checked = NULL;
		char what[64];

		snprintf(what, sizeof(what), "%s[%zu]", f->name, i);
		if (check_value(f, member_type, what, member, &checked, c)) {
			json_decref(all);
			return -EINVAL;
		}
		json_array_append_new(all, checked);
	}
	*ret = all;
	return 0;
}

#define NUL_ESCAPE "\\u0000"

/* Replaces escaped NULs, which jansson rejects in member names, by another control character. No
 * known field accepts either. From malloc(). */
static char *replace_nuls(const char *text, size_t size)
{
	char *copy = malloc(size + 1);

	if (!copy)
		return NULL;
	memcpy(copy, text, size);
	copy[size] = '\0';
	for (size_t i = 0; i + 1 < size; i++) {
		if (copy[i] != '\\')
			continue;
		if (size - i >= strlen(NUL_ESCAPE) &&
		    !memcmp(copy + i, NUL_ESCAPE, strlen(NUL_ESCAPE)))
			copy[i + strlen(NUL_ESCAPE) - 1] = '1';
		i++; /* what the backslash escapes */
	}
	return copy;
}

/* Parses JSON. An integer too long for jansson becomes a real: known fields report it as out of
 * range, unknown fields are ignored. */
static json_t *parse_json(const char *text, size_t size, struct complaint *c)
{
	json_error_t e;
	size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
	json_t *doc = json_loadb(text, size, flags, &e);
	char *copy = NULL;

	/* Retry once for each of the two errors that have a remedy. */
	for (int i = 0; !doc && i < 2; i++) {
		if (json_error_code(&e) == json_error_numeric_overflow)
			flags |= JSON_DECODE_INT_AS_REAL;
		else if (json_error_code(&e) == json_error_null_byte_in_key && !copy)
			copy = replace_nuls(text, size);
		doc = json_loadb(copy ? copy : text, size, flags, &e);
	}
	free(copy);
	if (!doc && json_error_code(&e) == json_error_duplicate_key)
		complain(c, "", "the body contains a member twice (line %d)", e.line);
	else if (!doc)
		complain(c, "", "the body is not JSON: %.160s (line %d, column %d)", e.text, e.line,
			 e.column);
	return doc;
}

json_t *validate__body(const struct field *fields, const char *text, size_t size,
		       struct complaint *c)
{
	json_t *doc, *ret;

	if (!size) {
		complain(c, "", "the body is empty; send a JSON object");
		return NULL;
	}
	doc = parse_json(text, size, c);
	if (!doc)
		return NULL;
	ret = json_object();
	if (!json_is_object(doc)) {
		complain(c, "", "the body must be a JSON object, not %s", type_word(doc));
		goto refused;
	}
	for (const struct field *f = fields; f && f->name; f++) {
		json_t *v = json_object_get(doc, f->name), *checked = NULL;
		int err;

		if (!v) {
			if (!f->required)
				continue;
			complain(c, f->name, "%s: must be given", f->name);
			goto refused;
		}
		if (f->type == FIELD_INTEGERS || f->type == FIELD_STRINGS)
			err = check_array(f, v, &checked, c);
		else
			err = check_value(f, f->type, f->name, v, &checked, c);
		if (err)
			goto refused;
		json_object_set_new(ret, f->name, checked);
	}
	json_decref(doc);
	return ret;
refused:
	json_decref(doc);
	json_decref(ret);
	return NULL;
}

bool validate__as_number(const char *text, double *ret)
{
	char *end;
	double v;

	/* Same rules as JSON: no "0x10", no "inf", no blanks. */
	if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
		return false;
	v = strtod(text, &end);
	if (*end || end == text)
		return false;
	*ret = v;
	return true;
}

/* Checks a parameter whose value is a comma-separated list. 0, or complain()'s result. */
static int check_list(const struct field *f, const char *text, struct complaint *c)
{
	size_t n = 0;

	for (;; text++) {
		size_t len = strcspn(text, ",");

		n++;
		if (!len || count_characters(text, len) > VALIDATE_STRING)
			return complain(c, f->name,
					len ? "%s: a member is too long" : "%s: a member is empty",
					f->name);
		text += len;
		if (!*text)
			break;
	}
	return check_length(f, n, c);
}

int validate__text(const struct field *f, const char *text, size_t size, struct complaint *c)
{
	double v;
	bool good;

	if (memchr(text, '\0', size))
		return complain(c, f->name, "%s: holds a NUL character", f->name);
	switch (f->type) {
	case FIELD_INTEGER:
	case FIELD_NUMBER:
		good = validate__as_number(text, &v);
		if (good && f->type == FIELD_INTEGER)
			good = v == trunc(v) && fabs(v) <= EXACT_MAX;
		if (!good)
			return complain(c, f->name, "%s: must be a %snumber, not \"%.40s\"",
					f->name, f->type == FIELD_INTEGER ? "whole " : "", text);
		return check_range(f, f->name, v, c);
	case FIELD_BOOLEAN:
		if (strcmp(text, "true") && strcmp(text, "false") && strcmp(text, "1") &&
		    strcmp(text, "0"))
			return complain(c, f->name, "%s: must be true or false, not \"%.40s\"",
					f->name, text);
		return 0;
	case FIELD_STRINGS:
		return check_list(f, text, c);
	default:
		return check_string(f, f->name, text, size, c);
	}
}

/* The value of a hexadecimal digit; -1: c is no such digit. */
static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* True for valid UTF-8. */
static bool is_utf8(const char *text, size_t size)
{
	uint32_t c;

	for (size_t i = 0, n; i < size; i += n)
		if (!(n = utf8__decode(text + i, size - i, &c)))
			return false;
	return true;
}

/* The decoded text is never longer, so it overwrites the escaped one. */
bool validate__unescape(char *text, size_t *size)
{
	size_t out = 0;

	for (size_t i = 0; i < *size; i++, out++) {
		text[out] = text[i];
		if (text[i] != '%')
			continue;
		if (*size - i < 3 || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0)
			return false;
		text[out] = (char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
		i += 2;
	}
	*size = out;
	text[out] = '\0';
	return is_utf8(text, out);
}

/* True if the text begins with `begin`, in any case. */
static bool starts(const char *text, const char *begin)
{
	return !strncasecmp(text, begin, strlen(begin));
}

/* A type is "application/json" or "application/NAME+json", with an optional charset after it. */
bool validate__is_json_type(const char *type)
{
	size_t len = strcspn(type, "; \t");
	const char *more = type + len, *charset = strcasestr(more, "charset=");

	if (charset && !starts(charset, "charset=utf-8") && !starts(charset, "charset=\"utf-8\""))
		return false;
	if (len == strlen("application/json") && starts(type, "application/json"))
		return true;
	return len > strlen("application/+json") && starts(type, "application/") &&
	       starts(type + len - strlen("+json"), "+json");
}
