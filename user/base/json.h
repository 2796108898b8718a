/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A streaming JSON writer. It writes commas and line ends, and its output is always valid: control
 * and bidirectional characters are escaped, invalid UTF-8 is repaired. "</" becomes "<\/", so that
 * the output may stand in an HTML script element. Wrong nesting aborts. The caller checks the
 * stream with ferror().
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json;

struct json *json__new(FILE *out, bool pretty); /* NULL on ENOMEM; borrows out */
/*
 * The most bytes of memory that a JSON text takes after jansson has parsed it: up to a hundred
 * times its own. Check it before you parse text from others.
 */
uint64_t json__memory_of(const char *text, size_t size);
void json__free(struct json *j); /* writes a newline after the document; NULL is fine */

/* Each writes one value. key: the name of a member of the open object; NULL in an array and at the
 * top level. */
void json__open_object(struct json *j, const char *key);
void json__close_object(struct json *j);
void json__open_array(struct json *j, const char *key);
void json__close_array(struct json *j);
void json__string(struct json *j, const char *key, const char *value); /* NULL value: null */
void json__uint(struct json *j, const char *key, uint64_t value);
void json__int(struct json *j, const char *key, int64_t value);
void json__double(struct json *j, const char *key, double value,
		  int decimals); /* a value that is not finite becomes null */
/* Writes nanoseconds as seconds. */
void json__seconds(struct json *j, const char *key, uint64_t ns, int decimals);
void json__bool(struct json *j, const char *key, bool value);
void json__null(struct json *j, const char *key);
/* Writes a value that is JSON already, as an element of the open array. */
void json__raw(struct json *j, const char *value);
/* Writes null if the value is not known. */
void json__uint_or_null(struct json *j, const char *key, bool known, uint64_t value);
