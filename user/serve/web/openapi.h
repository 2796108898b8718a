/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The OpenAPI 3.1 schema of the API, made from the same table that routes and validates
 * requests. */
#include <jansson.h>
#include <stddef.h>

struct route;

struct openapi_schema {
	const char *name, *text; /* name, and JSON text with ' for " */
};

extern const struct openapi_schema openapi_schemas[]; /* answers; ends with a name of NULL */

/*
 * Returns the schema of the routes in tables, *size bytes of text from malloc(), or NULL if there
 * is no memory. limits: the broker's limits, which narrow the bounds of fields; NULL: not known.
 * cookie: the name of the session cookie; NULL: the server requires no token.
 */
char *openapi__text(const struct route *const *tables, const json_t *limits, const char *cookie,
		    size_t *size);
