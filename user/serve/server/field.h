/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The members of JSON objects, as tables: of request bodies and parameters (serve/web/validate.h),
 * and of messages between the server's processes. A table ends with a name of NULL.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum field_type {
	FIELD_INTEGER,
	FIELD_NUMBER,
	FIELD_STRING, /* without control characters */
	FIELD_BOOLEAN,
	FIELD_INTEGERS /* an array of integers */,
	FIELD_STRINGS,
	/* In messages only: a string of any characters, and arrays and objects with any members. */
	FIELD_RAW,
	FIELD_ARRAY,
	FIELD_OBJECT,
};

#define FIELD_COUNT_MAX 9223372036854775807.0 /* .max of a count without a smaller bound */

struct field {
	const char *name;
	enum field_type type;
	bool required;
	double min, max; /* bounds of a number or of each number in an array; both 0: no limit */
	/* Characters of a string (in messages: bytes) or members of an array; 0: no limit, except
	 * 256 for strings of requests. */
	size_t shortest, longest;
	const char *const *choices; /* allowed strings, NULL-terminated; NULL: any */
	const char *help;	    /* description, one sentence */
	const char *example;	    /* example value as JSON; NULL: none */
	/* Extended regular expression for a string (base/grammar.h), with ^ and $; NULL: any. help
	 * then names the allowed strings. Requests only. */
	const char *pattern;
	bool nullable; /* messages only: null is as if the member were missing */
};

/* A row of a table: FIELD("why", RAW, .longest = 1023, .nullable = true). */
#define FIELD(key, kind, ...)                                                                      \
	{                                                                                          \
		.name = (key), .type = FIELD_##kind, __VA_ARGS__                                   \
	}

/* Checks a message. Returns the first field of the table whose member is missing or has a value
 * that the field does not allow; NULL: the message is valid. Ignores members that have no field. */
const struct field *field__wrong(const struct field *fields, const json_t *msg);
/* Returns whether v is a string whose length is within the field's bounds. */
bool field__is_text(const struct field *f, const json_t *v);
