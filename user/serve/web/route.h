/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_ROUTE_H
#define MT_SERVE_WEB_ROUTE_H
/*
 * The one table of calls. Of it come the routing, the check of what a request brings, and the
 * schema that is served: what is not in it is neither taken nor documented.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct request;
struct state;

enum field_type {
	FIELD_INTEGER,
	FIELD_NUMBER,
	FIELD_STRING,
	FIELD_BOOLEAN,
	FIELD_INTEGERS /* an array of them */,
	FIELD_STRINGS
};

/* A member of a body, or a parameter of a path or query. Of a query or path, text that reads as the
 * type. */
struct field {
	const char *name;
	enum field_type type;
	bool required;
	double min, max;	    /* of numbers, and of each in an array; 0 and 0: not bounded */
	size_t shortest, longest;   /* characters of a string, members of an array; 0: not bounded,
				       though strings never go beyond 256 */
	const char *const *choices; /* NULL-terminated; of strings; NULL: any */
	const char *help;	    /* a sentence */
	const char *example;	    /* as JSON; NULL: none */
	const char *pattern;	    /* of a string: an extended regular expression that is one in
				       JavaScript, too, with ^ and $; NULL: any */
};

struct answer {
	int status;
	const char *type;   /* "application/json" */
	const char *schema; /* name of a schema of openapi.c, NULL: any */
	const char *help;
};

enum route_flags {
	ROUTE_OPEN = 1,	     /* needs no token: what tells nobody anything */
	ROUTE_CHANGES = 2,   /* does something: Origin has to be ours */
	ROUTE_COSTLY = 4,    /* makes others work: few at a time, and not often */
	ROUTE_ANY_QUERY = 8, /* a query that the table does not name is passed over; elsewhere it is
				an error, for whoever has mistyped */
};

struct route {
	const char *method; /* "GET"; HEAD comes with it */
	const char *path;   /* "/api/trace/{trace_id}" */
	const char *id;	    /* operationId */
	const char *tag;    /* "traces", "targets", "fleet", "server" */
	const char *summary, *help;
	const struct field *in_path, *in_query,
		*in_body; /* each ends with a name of NULL; NULL: none. in_body: an object in JSON */
	const struct answer *answers; /* ends with status 0; 401, 404, 405, 413, 422, 429 that all
					 can have are added */
	unsigned flags;
	void (*handle)(struct request *r);
	const char *body_extra; /* members of the body's schema besides, as JSON ("{\"oneOf\":
				   ...}"); NULL: none. The handler checks what they say */
};

/* For the tables. */
#define JSON "application/json"
#define ANSWERS(...) ((const struct answer[]){ __VA_ARGS__, { 0 } })
#define PATTERN_AT "^(peak|end|oom|[0-9]{1,9}(\\.[0-9]{1,9})?)$"
#define PATTERN_DEVICE "^(cpu|[a-z]{1,9}:[0-9]{1,3})$"

/* Each file of calls has a table; ends with method NULL. routes.c puts them together. */
extern const struct route trace_routes[], server_routes[], page_routes[], fleet_routes[];
extern const struct route *const route_tables[]; /* NULL-terminated */

/* ---- what a handler has; it answers once, at once or later ---- */

struct state *request__state(struct request *r);
const char *request__path(struct request *r,
			  const char *name); /* checked; NULL: not of this route */
const char *request__query(struct request *r, const char *name); /* checked; NULL: not given */
bool request__number(struct request *r, const char *name,
		     double *ret);	      /* of the query; false: not given */
json_t *request__body(struct request *r);     /* checked, an object; NULL: the route has none */
const char *request__host(struct request *r); /* as the client called us, "127.0.0.1:8000" */
bool request__accepts_gzip(struct request *r);
/* Does Accept name this type itself ("application/openmetrics-text")? */
bool request__accepts(struct request *r, const char *type);
/* What this server has answered so far: metrics.h. */
const struct metrics *request__metrics(struct request *r);
/* May it see what needs a token? Of routes with ROUTE_OPEN, which are called without one, too. */
bool request__authorized(struct request *r);
/* What the handler keeps for itself, freed when the request ends, however it does. */
void request__keep(struct request *r, void *p, void (*release)(void *));
void *request__kept(struct request *r);

/* Answers. doc is taken. */
void request__json(struct request *r, int status, json_t *doc);
/* {"detail": "..."}, with "field" where one is to blame (NULL: none). */
void request__error(struct request *r, int status, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* data, from malloc(), is taken. */
void request__data(struct request *r, int status, const char *type, char *data, size_t size);
/* data stays as it is for as long as the process runs: it is not copied, however many are being
 * sent it. */
void request__constant(struct request *r, int status, const char *type, const void *data,
		       size_t size);
/*
 * A file: fd is taken and sent from its beginning, size bytes. name: what it is to be called when
 * it is saved, NULL: it is shown in place.
 */
void request__file(struct request *r, const char *type, const char *name, int fd, uint64_t size);
/* All of fd, which is taken; with -1, or what is no file, it becomes an error. */
void request__whole(struct request *r, const char *type, const char *name, int fd);
/* A header besides, before the answer; both are copied. */
void request__header(struct request *r, const char *name, const char *value);

/*
 * Asks the broker; msg is taken. then() is called with the answer, an object whose "ok" is true, and
 * its descriptor (-1: none; then() closes it). An answer whose "ok" is false becomes the request's
 * own, with its status and detail, and then() is not called; nor is it when the client has gone.
 */
void request__ask(struct request *r, json_t *msg,
		  void (*then)(struct request *r, json_t *answer, int fd));
/* Waits: again() is called after each message of the broker's, until it has answered. */
void request__wait(struct request *r, void (*again)(struct request *r));
/* While it is held it goes on even if its client closes the connection; else it is ended within
 * about a second. */
void request__hold(struct request *r, bool hold);

/* Server-sent events: from then on the request is a stream. trace NULL: all that is told; else of
 * that trace alone, until it has ended. */
void request__stream(struct request *r, const char *trace);

#endif
