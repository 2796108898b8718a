/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * HTTP calls to many servers, a number of them at the same time, each repeated until it succeeds or
 * its time is over. Answers are hostile: each has a bound, redirects are not followed, and
 * certificates are always checked. One thread; needs libcurl.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_WHY 256
#define HTTP_LEAST_SPEED (10 << 10) /* bytes per second of a file */
#define HTTP_OF_HOST 2 /* calls to a server at the same time: few connections, which are kept */

struct http;

struct http_opts {
	const char *token; /* sent as "Authorization: Bearer"; NULL: none */
	const char *ca;	   /* file of trusted authorities (PEM); NULL: the system's */
	unsigned parallel; /* calls at the same time, at least 1 */
	/* ns without a byte, or with less than HTTP_LEAST_SPEED, after which an attempt has failed.
	 * A file may also take 1 s for each MiB. */
	uint64_t patience;
};

struct http_answer {
	int status; /* 200 to 299: as asked. 0: no answer */
	bool sent;  /* the server may have received the call, though it has not answered */
	/* The body: of at most call.most bytes, with a NUL after it; "" if it went to a file. */
	const char *data;
	size_t size;
	/* CLOCK_REALTIME before the request was sent, and after the first byte of the answer, ns. */
	uint64_t asked, answered;
	char why[HTTP_WHY]; /* why it is not as asked, for people, cleaned */
};

struct http_call {
	const char *method;    /* static */
	const char *url;       /* copied */
	const char *body;      /* JSON, copied; NULL: none */
	size_t most;	       /* bound on the body of the answer, bytes */
	int fd;		       /* regular file for the body; -1: memory. Cut for each attempt */
	uint64_t after, until; /* earliest begin, and end of the attempts; ns, clock__monotonic() */
	unsigned *attempts;    /* counts the attempts in progress at this server; 0 at first */
	bool once;	       /* no second attempt after one that the server may have received */
	/* Takes the answer, which is valid during the call. It may make further calls. */
	void (*done)(void *ctx, const struct http_answer *a);
	void *ctx;
};

/* Borrows the texts of o. NULL with errno. */
struct http *http__new(const struct http_opts *o);
void http__free(struct http *h); /* drops calls without an answer; NULL is fine */
/* Queues a call. Returns 0 or -ENOMEM: then done() is not called. */
int http__call(struct http *h, const struct http_call *c);
/* Ends the present wait of http__run(), from any thread. */
void http__wake(struct http *h);
/* Works until no call is left and tick() returns 0: nothing more to do. A negative value ends it at
 * once and drops the calls. tick is called at least every 0.2 s and may be NULL. */
void http__run(struct http *h, int (*tick)(void *ctx), void *ctx);
