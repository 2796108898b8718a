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

#define HTTP_WHY 256		    /* size of an error message, in bytes, with the NUL */
#define HTTP_LEAST_SPEED (10 << 10) /* slowest accepted download of a file, in bytes/s */
#define HTTP_OF_HOST                                                                               \
	2 /* most calls to a server at the same time: few connections, which are kept */

struct http;

struct http_opts {
	const char *token; /* sent as "Authorization: Bearer"; NULL: none */
	const char *ca;	   /* file of trusted authorities (PEM); NULL: the system's */
	unsigned parallel; /* calls at the same time, at least 1 */
	/* Time limit in ns: an attempt fails after this time without a byte, or with less than
	 * HTTP_LEAST_SPEED. A whole file may take this time and 1 s for each MiB. */
	uint64_t patience;
};

struct http_answer {
	int status; /* HTTP status: 200 to 299 for success; 0: no answer */
	bool sent;  /* the server may have received the call, even if there is no answer */
	/* The body of the answer, with a NUL after it; "" if the body went to a file. */
	const char *data;
	size_t size;
	/* CLOCK_REALTIME before the request was sent, and after the first byte of the answer, ns. */
	uint64_t asked, answered;
	char why[HTTP_WHY]; /* why the call failed, cleaned; "" on success */
};

struct http_call {
	const char *method; /* static */
	const char *url;    /* copied */
	const char *body;   /* JSON, copied; NULL: none */
	size_t most;	    /* bound on the body of the answer, bytes */
	/* Regular file for the body, truncated for each attempt; -1: the body stays in memory. */
	int fd;
	uint64_t after;	    /* earliest start of the first attempt; clock__monotonic(), ns */
	uint64_t until;	    /* no further attempt starts later */
	unsigned *attempts; /* counts the attempts in progress at this server; 0 at first */
	bool once;	    /* no second attempt if the server may have received the first one */
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
/* Makes the queued calls. Calls tick() (NULL: none) at least every 0.2 s. Returns when no call is
 * left and tick() returns 0, which means that there is nothing more to do. If tick() returns a
 * negative value, returns at once and drops the calls. */
void http__run(struct http *h, int (*tick)(void *ctx), void *ctx);
