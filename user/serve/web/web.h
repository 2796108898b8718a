/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_WEB_H
#define MT_SERVE_WEB_WEB_H
/* What the files of the HTTP process share: the process, its connections, its requests. One thread;
 * all is touched from its loop alone. */
#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/link.h"
#include "serve/serve.h"
#include "serve/state.h"
#include "serve/web/auth.h"
#include "serve/web/metrics.h"
#include "serve/web/route.h"

#define WEB_BODY 65536	    /* bytes of a body that is taken */
#define WEB_DRAIN (1 << 20) /* of one that is read for the answer that it is too long to arrive */
#define WEB_READ_NS 10000000000ull /* that a request may take to arrive, from its first byte on */
#define WEB_IDLE_S 60		   /* that a connection may be idle */
#define WEB_ASK_NS 300000000000ull /* that the broker may take for an answer */
#define WEB_PARAMS 16		   /* of a query, and of a path */
#define WEB_HEADERS 8		   /* that a handler adds */

struct stream;

struct conn {
	struct web *web;
	struct MHD_Connection *mhd;
	struct auth_peer peer;
	struct request *request; /* that is being read or answered; NULL: between two */
	int fd;
	bool refused;	/* it ends, and is not counted */
	bool known;	/* a token or a session has come over it */
	uint64_t began; /* when the first byte of the request was seen that has not been read yet;
			   0: none */
	uint64_t since; /* when it came, or its last request ended */
	uint64_t received; /* bytes, when the last request ended */
	struct conn *next, *prev;
};

struct param {
	const struct field *field;
	char *value; /* into request.url or query texts */
};

struct request {
	struct web *web;
	struct conn *conn;
	struct MHD_Connection *mhd;
	const struct route *route; /* NULL: none, and refused */
	char method[12];
	char *url; /* path, cut and decoded where the parameters are */
	struct param path[4], query[WEB_PARAMS];
	size_t n_path, n_query;
	char *query_text[WEB_PARAMS];
	size_t n_query_text;
	char *body;
	size_t body_size, body_room, drained;
	json_t *doc;		  /* the checked body */
	struct guard_request who; /* strings: the library's, as long as the request lives */
	struct guard_verdict verdict;
	char host[264];
	bool known; /* has shown that it may see all */

	int status;
	struct MHD_Response *response; /* NULL: not answered yet, or already sent */
	bool answered, read, suspended, held;
	struct {
		char *name, *value;
	} headers[WEB_HEADERS];
	size_t n_headers;

	void *kept;
	void (*release)(void *);
	uint64_t asked; /* the id of what the broker is to answer; 0: nothing */
	uint64_t asked_at;
	void (*then)(struct request *r, json_t *answer, int fd);
	void (*again)(struct request *r);
	struct stream *stream;
	uint64_t sent; /* when the answer was handed to the library; 0: not yet */
	struct request *next, *prev;
};

struct web {
	const struct serve_args *args;
	struct link *link;
	struct state state;
	struct auth *guard;
	struct MHD_Daemon *daemons[SERVE_LISTEN];
	size_t n_daemons;
	struct conn *conns;
	struct request *requests;
	uint64_t last_id;
	uint64_t now; /* ns, monotonic, of this turn of the loop */
	char *openapi;
	size_t openapi_size;
	bool broker_gone;
	size_t n_streams;
	uint64_t stream_events;
	struct metrics metrics;
};

/* ---- routes.c ---- */
/*
 * The route for a path and method; *path_matches: there is one for another method, and allow (128
 * bytes) has those there are. values: where the parameters of the path are, cut out of it in place.
 */
const struct route *routes__find(const char *method, char *path, char *values[4], size_t *n,
				 char *allow, size_t size);
/* The i'th of all; NULL: there are no more. */
const struct route *routes__at(size_t i);

/* ---- request.c ---- */
enum MHD_Result request__access(void *web, struct MHD_Connection *mhd, const char *url,
				const char *method, const char *version, const char *data,
				size_t *size, void **kept);
void request__completed(void *web, struct MHD_Connection *mhd, void **kept,
			enum MHD_RequestTerminationCode why);
/* A message of the broker's that is an answer. */
void request__answered(struct web *web, json_t *msg, int fd);
/* After each other message: whoever waits looks again. */
void request__look_again(struct web *web);
/* Ends those that wait too long for the broker, and those whose client has closed the connection,
 * which the library does not notice while they wait. */
void request__sweep(struct web *web);
bool request__client_gone(const struct request *r);
/* Takes up again what is suspended, for the end of the process. */
void request__abandon(struct web *web);
/* The response is taken; the usual headers are added. */
void request__respond(struct request *r, int status, struct MHD_Response *response,
		      const char *type);
void request__resume(struct request *r);

/* ---- sse.c ---- */
/* Tells all streams what state has just taken. trace: as of serve_state__take(). */
void sse__told(struct web *web, json_t *msg, struct state_trace *trace);
void sse__sweep(struct web *web); /* heartbeats; clients that have gone */
void sse__release(struct stream *s);

/* ---- routes_trace.c ---- */
/* What is told of a trace wherever it is listed. A new reference. */
json_t *routes_trace__public(const struct state_trace *t);

/* ---- routes_server.c ---- */
/* Likewise of a process, without its figures, as the broker tells it. */
json_t *routes_server__public_process(const struct state_process *p);

#endif
