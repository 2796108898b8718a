/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_VALIDATE_H
#define MT_SERVE_WEB_VALIDATE_H
/* What a request brings, against the table of calls. Pure: no request, no process, nothing but the
 * text. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/web/route.h"

#define VALIDATE_STRING                                                                            \
	256 /* characters of a string that a field takes, at most, unless the field says otherwise \
	     */

/* Why something is refused. Both are valid UTF-8 without control characters. */
struct complaint {
	char field[80]; /* which one is to blame; "": none, the whole */
	char detail[320];
};

/*
 * The body of a request: JSON text, not terminated. An object of which the fields that are named
 * are as they have to be; numbers that are to be whole are integers in it ("1.0" is one), and what
 * nobody named is left out. NULL: *c says why.
 */
json_t *validate__body(const struct field *fields, const char *text, size_t size,
		       struct complaint *c);
/* The text of a parameter in a path or query, decoded; size bytes, which may hold NUL. 0, or
 * -EINVAL: *c says why. */
int validate__text(const struct field *f, const char *text, size_t size, struct complaint *c);
/* The number that text is, all of it, as validate__text() takes it. */
bool validate__as_number(const char *text, double *ret);
/*
 * Decodes %41 in place; *size becomes what is left, and a NUL is put after it (there has to be
 * room). false: not "%" and two digits, or what comes of it is not UTF-8.
 */
bool validate__unescape(char *text, size_t *size);
/* Is it application/json, or another that is JSON (application/problem+json)? In UTF-8. */
bool validate__is_json_type(const char *content_type);
/* The field by its name; NULL: none. */
const struct field *validate__field(const struct field *fields, const char *name);

#endif
