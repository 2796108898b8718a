/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The table of all API calls. Routing, validation and the served schema are made from it. A call
 * that is not in the table is rejected. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/server/field.h"

struct request;
struct state;

/* Version of the API. Additions keep it. It grows when a client that follows docs/reference/http.md
 * could fail. */
#define HTTP_API_VERSION 1

struct answer {
	int status;
	const char *type;   /* MIME type, "application/json" */
	const char *schema; /* name of a schema in openapi.c; NULL: any */
	const char *help;
};

enum route_flags {
	ROUTE_OPEN = 1,	   /* needs no token: the answer is public */
	ROUTE_CHANGES = 2, /* changes something: Origin must be ours */
	ROUTE_COSTLY = 4,  /* needs much work: fewer at a time and per minute are allowed */
	/* Unknown query parameters are ignored. Without this flag they are errors, so that
	 * typing mistakes are found. */
	ROUTE_ANY_QUERY = 8,
	/* The body is a file of any size, which goes to the broker as it arrives. receive.c */
	ROUTE_UPLOAD = 16,
};

struct route {
	const char *method; /* HTTP method, "GET"; GET includes HEAD */
	const char *path;   /* pattern, "/api/trace/{trace_id}" */
	const char *id;	    /* operationId of OpenAPI */
	const char *tag;    /* group: "traces", "targets", "fleet", "server" */
	const char *summary, *help;
	/* Parameters of the path and query, and members of the body, a JSON object. Each list ends
	 * with a name of NULL; the list NULL has none. */
	const struct field *in_path, *in_query, *in_body;
	/* Ends with status 0. Common errors (401, 404, 405, 413, 422, 429) are added. */
	const struct answer *answers;
	unsigned flags;
	void (*handle)(struct request *r);
	/* Further members of the body's schema as JSON, such as {"oneOf": ...}; NULL: none. The
	 * handler checks the body against them. */
	const char *body_extra;
};

/* How a file's body arrives: its Content-Type. */
#define ROUTE_FILE_TYPE "application/octet-stream"
/* Shorthands for the tables. */
#define JSON "application/json"
#define ANSWERS(...) ((const struct answer[]){ __VA_ARGS__, { 0 } })

/* The calls, grouped by file. Each table ends with a method of NULL. */
extern const struct route trace_routes[], server_routes[], page_routes[], fleet_routes[];
extern const struct route *const route_tables[]; /* all tables, NULL-terminated */

/* ---- for handlers: each handler answers its request exactly once, now or later ---- */

struct state *request__state(struct request *r);
/* The validated value of a path parameter; NULL: not in this route. */
const char *request__path(struct request *r, const char *name);
/* The validated value of a query parameter; NULL: not given. */
const char *request__query(struct request *r, const char *name);
/* A numeric query parameter. False: not given. */
bool request__number(struct request *r, const char *name, double *ret);
/* The validated body, an object owned by the request; NULL: the route has no body. */
json_t *request__body(struct request *r);
/* Stores a handler's data. release(p) is called when the request ends, in any way. */
void request__keep(struct request *r, void *p, void (*release)(void *));
void *request__kept(struct request *r);

/* Sends a JSON answer. Takes over doc. */
void request__json(struct request *r, int status, json_t *doc);
/* Sends {"detail": "..."}. field: added as "field" if a parameter is wrong; NULL: none. */
void request__error(struct request *r, int status, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Sends data from malloc() and takes it over. */
void request__data(struct request *r, int status, const char *type, char *data, size_t size);
/* Sends a file, or the range of it that the client wants. name: as which the browser saves the file;
 * NULL: the browser shows it. Takes over fd. If fd is -1 or not a regular file, sends an error. */
void request__whole(struct request *r, const char *type, const char *name, int fd);
/* Adds a header. Call before the answer. Copies both strings. */
void request__header(struct request *r, const char *name, const char *value);

/*
 * Sends msg to the broker; takes over msg. On success calls then() with the broker's answer and its
 * descriptor (-1: none), which then() must close. If the broker reports an error ("ok" is false),
 * sends that error to the client instead. If the client has disconnected, then() is not called.
 */
void request__ask(struct request *r, json_t *msg,
		  void (*then)(struct request *r, json_t *answer, int fd));
/* Calls again() after each event from the broker until the request is answered. NULL: stops the
 * calls. */
void request__wait(struct request *r, void (*again)(struct request *r));
/* Turns the request into a stream of server-sent events. trace: only events of this trace, until
 * the trace ends; NULL: all events. */
void request__stream(struct request *r, const char *trace);
