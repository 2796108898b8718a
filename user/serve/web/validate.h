/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Validation of request bodies and parameters against the table of calls. Depends on the text
 * alone. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/web/route.h"

#define VALIDATE_STRING 256 /* default limit of a string's length, in characters */

/* A validation error. Both strings are valid UTF-8 without control characters. */
struct complaint {
	char field[80]; /* name of the wrong field; "": the whole request */
	char detail[320];
};

/*
 * Parses and checks a request body: JSON text of size bytes, not NUL-terminated. Returns an object
 * with the known fields; unknown fields are dropped. Integer fields become JSON integers (also
 * "1.0"). NULL: *c has the reason.
 */
json_t *validate__body(const struct field *fields, const char *text, size_t size,
		       struct complaint *c);
/* Checks a decoded parameter of a path or query. text has size bytes and may contain NUL.
 * Returns 0, or -EINVAL with the reason in *c. */
int validate__text(const struct field *f, const char *text, size_t size, struct complaint *c);
/* Parses a whole text as a number, with the same rules as validate__text(). */
bool validate__as_number(const char *text, double *ret);
/* Decodes percent-encoding in place. Sets *size to the new length and appends a NUL, for which
 * the buffer needs room. False: a malformed escape, or the result is not valid UTF-8. */
bool validate__unescape(char *text, size_t *size);
/* True for application/json and other JSON types (application/problem+json), in UTF-8. */
bool validate__is_json_type(const char *content_type);
/* The field with this name, or NULL. */
const struct field *validate__field(const struct field *fields, const char *name);
