/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* State of the HTTP process: its connections and requests. Single-threaded: only the event loop
 * uses it. */
#include <jansson.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/serve.h"
#include "serve/server/link.h"
#include "serve/server/state.h"
#include "serve/web/auth.h"
#include "serve/web/metrics.h"
#include "serve/web/route.h"

#define WEB_BODY 65536	    /* largest accepted body, in bytes */
#define WEB_DRAIN (1 << 20) /* largest body read and discarded so that the client gets the error */
#define WEB_READ_NS 10000000000ull /* time limit for receiving a request */
#define WEB_IDLE_S 60		   /* time limit for an idle connection */
#define WEB_ASK_NS 300000000000ull /* time limit for the broker's answer */
#define WEB_PARAMS 16		   /* most parameters of a query */
#define WEB_HEADERS 8		   /* headers that a handler may add */
#define WEB_UPLOADS 8		   /* files that arrive at the same time */
#define WEB_PACE 65536		   /* bytes of a file that must arrive in each WEB_READ_NS */

struct stream;

struct conn {
	struct web *web;
	struct auth_peer peer;
	struct request *request; /* the current request; NULL: none */
	int fd;
	bool refused;	   /* the connection is closing and no longer counted */
	bool known;	   /* the client has sent a valid token or session */
	uint64_t began;	   /* when a part of a request was first seen, in ns; 0: none has arrived */
	uint64_t since;	   /* when the connection was opened or its last request ended, in ns */
	uint64_t received; /* bytes received when the last request ended; 0 for a Unix socket */
	struct conn *next, *prev;
};

struct param {
	const struct field *field;
	char *value; /* points into the request's url or query_text */
};

struct request {
	struct web *web;
	struct conn *conn;
	struct MHD_Connection *mhd;
	const struct route *route; /* matched route; NULL: none */
	char method[12];
	char *url; /* path; cut and decoded in place at its parameters */
	struct param path[4], query[WEB_PARAMS];
	size_t n_path, n_query;
	char *query_text[WEB_PARAMS]; /* owns the values of `query` */
	size_t n_query_text;
	char *body;
	size_t body_size, body_room;
	size_t drained; /* bytes of the body that were discarded */
	struct {
		enum upload_state { UPLOAD_NONE, UPLOAD_ASKED, UPLOAD_OPEN } state;
		int to;		/* the broker's pipe for the file; -1: none */
		uint64_t paced; /* bytes that have arrived since conn.began */
	} upload;
	json_t *doc; /* validated body of the request */
	/* Client and headers. The strings belong to the library and live as long as the request. */
	struct guard_request who;
	struct guard_verdict verdict;
	char host[264];
	bool known; /* the client may see data that needs a token */

	int status;
	struct MHD_Response *response; /* answer; NULL: not made yet, or already sent */
	bool answered;		       /* has its answer, or ends without one */
	bool read;		       /* the whole request has arrived */
	bool suspended;		       /* the library waits for request__resume() */
	/* The request continues after its client disconnects. Otherwise it ends about a second
	 * after that. */
	bool held;
	struct {
		char *name, *value;
	} headers[WEB_HEADERS];
	size_t n_headers;

	void *kept; /* data of the handler, which release() frees */
	void (*release)(void *);
	uint64_t asked;	   /* ID of the pending question to the broker; 0: none */
	uint64_t asked_at; /* when the question was sent, in ns */
	/* Takes the broker's answer. */
	void (*then)(struct request *r, json_t *answer, int fd);
	void (*again)(struct request *r); /* called after each event of the broker; NULL: none */
	struct stream *stream; /* stream of server-sent events; NULL: an ordinary request */
	uint64_t sent;	       /* when the answer was handed to the library, in ns; 0: not yet */
	struct request *next, *prev;
};

/* The questions for metrics about the machine's GPUs: devices.c. Times in ns, monotonic. */
struct web_devices {
	uint64_t asked;	   /* ID of the question to the broker without an answer; 0: none */
	uint64_t asked_at; /* when it was sent */
	uint64_t next;	   /* no further question before */
	uint64_t pause;	   /* from the last look to `next` */
	uint64_t taken;	   /* when state.gpus came */
};

struct web {
	const struct serve_args *args;
	const struct route *const *routes; /* all tables, NULL-terminated */
	struct link *link;
	struct state state;
	struct auth *guard;
	struct MHD_Daemon *daemons[SERVE_LISTEN];
	size_t n_daemons;
	struct conn *conns;
	struct request *requests;
	uint64_t last_id; /* ID of the last question to the broker */
	uint64_t now;	  /* current time, ns, monotonic; updated once per loop iteration */
	char *openapi;	  /* text of the API's schema; NULL: not made yet */
	size_t openapi_size;
	size_t n_streams;
	uint64_t stream_events; /* ID of the last server-sent event */
	struct metrics metrics;
	struct web_devices devices;
};

/* ---- routes.c ---- */
/* Finds the route for a method and path. Cuts the path in place; values point to its parameters.
 * allow (size bytes) gets the methods of the path, "" if no route has the path. */
const struct route *routes__find(const struct route *const *tables, const char *method, char *path,
				 char *values[4], size_t *n, char *allow, size_t size);
/* The i-th route of the tables; NULL: past the end. */
const struct route *routes__at(const struct route *const *tables, size_t i);

/* ---- routes_trace.c ---- */
/*
 * The IDs of a job's finished traces, oldest first. job: the name of a target, or of a folder of
 * recordings on the command line; NULL: all jobs. Leaves out a trace that ended before a later
 * trace of the same rank and job began, and traces that were made for a profile. Returns NULL if
 * there is no memory.
 */
json_t *routes_trace__last_of_job(const struct state *s, const char *job);

/* Waits for the end of the trace with this ID, and answers with its result or error. */
void routes_trace__answer_at_end(struct request *r, const char *id);
/* Adds the trace of the broker's answer to the state. The trace's event may arrive before or after
 * the answer. NULL: it is not valid, or already gone. */
struct state_trace *routes_trace__take(struct request *r, json_t *answer);

/* ---- request.c ---- */
/* True if the client of a suspended request has disconnected. */
bool request__client_gone(const struct request *r);
/* Sends response and takes it over. Adds the usual headers. */
void request__respond(struct request *r, int status, struct MHD_Response *response,
		      const char *type);
void request__resume(struct request *r); /* lets the library go on with a suspended request */

/* ---- devices.c ---- */
/* Asks the broker for a look at the machine's GPUs, which replaces state.gpus when it comes. Does
 * nothing if there was a question a moment ago. */
void web_devices__renew(struct web *web);
/* Takes the broker's answer to that question, with its descriptor (-1: none). False: it answers
 * another one, and the caller keeps the descriptor. */
bool web_devices__take(struct web *web, const json_t *answer, int fd);

/* ---- receive.c ---- */
/* Asks the broker for a pipe for the request's file, of size bytes. The request is suspended until
 * the answer. */
void receive__begin(struct request *r, uint64_t size);
/* Passes on a piece of the file. Returns the number of bytes that are left: the request is then
 * suspended until the pipe takes more. */
size_t receive__take(struct request *r, const char *data, size_t size);
/* Fills fds with the pipes that suspended requests wait for; returns their number. */
size_t receive__poll(const struct web *web, struct pollfd fds[WEB_UPLOADS]);
/* Resumes the requests whose pipes are ready. */
void receive__resume(struct web *web, const struct pollfd *fds, size_t n);

/* ---- sse.c ---- */
/* Sends a broker message to all streams, after serve_state__take(). trace: as set by that call. */
void sse__publish(struct web *web, json_t *msg, struct state_trace *trace);
void sse__sweep(struct web *web); /* sends heartbeats and ends streams of disconnected clients */
