/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Requests of web and push. Both talk to other machines, so each value is checked. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "serve/server/field.h"

struct peer;

/* Handles a request of the web process or of push: calls the function of its action ("do"), or
 * refuses an unknown action. A request about an unknown process waits for a search. Sets
 * p->broken, which ends the peer, if the message is no request. verbs.c. */
void ask__handle(struct peer *p, json_t *msg);
/* Refuses a request with an HTTP status. field: the member at fault; NULL: none. */
void ask__refuse(struct peer *p, json_int_t id, int status, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Answers a request with the members of doc (NULL: none) and a descriptor (-1: none). Takes over
 * both. */
void ask__answer(struct peer *p, json_int_t id, json_t *doc, int fd);

/* The id of a request; 0: it has none. */
json_int_t ask__id(const json_t *msg);
/* Checks the members of a request. False: one is wrong, and the request has been refused. A member
 * that is null counts as missing. */
bool ask__fits(struct peer *p, const json_t *msg, const struct field *fields);
/* The value of a checked member. NULL: it is missing. */
const char *ask__text(const json_t *msg, const char *key);
/* The value of a checked whole number, or `otherwise` if it is missing. */
uint64_t ask__count(const json_t *msg, const char *key, uint64_t otherwise);

#define ASK_TEXT_MOST 1024 /* bytes; 256 UTF-8 characters, the limit of the web process */

/* Rows of tables for ask__fits(): a text of 1 to ASK_TEXT_MOST bytes without control characters, a
 * whole number, a number, a boolean. */
#define ASK_TEXT(key) FIELD(key, STRING, .shortest = 1, .longest = ASK_TEXT_MOST, .nullable = true)
#define ASK_COUNT(key, least, most)                                                                \
	FIELD(key, INTEGER, .min = (least), .max = (most), .nullable = true)
#define ASK_NUMBER(key, least, most)                                                               \
	FIELD(key, NUMBER, .min = (least), .max = (most), .nullable = true)
#define ASK_FLAG(key) FIELD(key, BOOLEAN, .nullable = true)
