/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Requests of web and push. Both talk to other machines, so each value is checked. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct peer;

/* Handles a request; verbs.c. */
void ask__handle(struct peer *p, json_t *msg);
/* Refuses a request with an HTTP status. field: the member at fault; NULL: none. */
void ask__refuse(struct peer *p, json_int_t id, int status, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Answers a request with the members of doc (NULL: none) and a descriptor (-1: none). Takes over
 * both. */
void ask__answer(struct peer *p, json_int_t id, json_t *doc, int fd);

/* The id of a request; 0: it has none. */
json_int_t ask__id(const json_t *msg);
/* These read a member of a request. False: the request has been refused. A missing member leaves
 * *ret unchanged. */
bool ask__number(struct peer *p, json_t *msg, const char *key, double min, double max, double *ret);
bool ask__count(struct peer *p, json_t *msg, const char *key, uint64_t min, uint64_t max,
		uint64_t *ret);
/* At most 1024 bytes without control characters, owned by msg. */
bool ask__text(struct peer *p, json_t *msg, const char *key, const char **ret);
