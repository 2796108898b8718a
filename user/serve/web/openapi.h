/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_OPENAPI_H
#define MT_SERVE_WEB_OPENAPI_H
/* The schema of all calls (OpenAPI 3.1), made of the table that also routes and validates. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct openapi_schema {
	const char *name, *text; /* JSON, with ' for " */
};

extern const struct openapi_schema openapi_schemas[]; /* ends with a name of NULL */

/*
 * As text, size bytes from malloc(); NULL: no memory. limits: the broker's, of which the bounds of
 * fields are taken where they are narrower (NULL: not known). cookie: of a server that wants a
 * token, the name of the one that stands for it; else NULL.
 */
char *openapi__text(const json_t *limits, const char *cookie, size_t *size);

#endif
