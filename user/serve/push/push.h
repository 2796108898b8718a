/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Parts of the push process: documents of metrics (otlp.c), profiles from the broker
 * (profiles.c), sending (send.c). The event loop in push.c calls them. No function blocks except
 * sender__turn().
 */
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/serve.h"
#include "serve/server/link.h"
#include "serve/server/state.h"

/* ---- documents: no side effects ---- */

/*
 * The figures of all processes as OTLP's ExportMetricsServiceRequest in JSON. now: ns since 1970;
 * host: NULL: not known. A collector that exports to Prometheus turns the names and units into the
 * names of /metrics. NULL: no memory, or no figures.
 */
json_t *otlp__metrics(const struct state *s, const char *host, uint64_t now);
/* The URL to post to: base, with the path of the signal appended if missing. From malloc(); NULL:
 * no memory. */
#define OTLP_METRICS "/v1/metrics"
#define OTLP_PROFILES "/v1development/profiles"
char *otlp__url(const char *base, const char *path);

/* Which process a profile is of, and when it was captured. */
struct profile_of {
	const struct state_process *process;
	const char *host;     /* host name; NULL: not known */
	uint64_t from, until; /* captured interval, ns since 1970 */
};
/* The URL for posting a profile to the server base ("http://pyroscope:4040"), and the body with
 * the gzip'd pprof profile. Both from malloc(). Return 0 or -ENOMEM. */
int profiles__url(const char *base, const struct profile_of *of, char **url);
int profiles__body(const void *profile, size_t size, char **body, size_t *body_size);
/* The body of a post of an exported profile (export/formats/otlp.c): with the resource of its
 * process, as the metrics have it. From malloc(). Returns 0, -ENOMEM, or -EBADMSG: it is no such
 * profile. */
int otlp__profile(const void *profile, size_t size, const struct profile_of *of, char **body,
		  size_t *body_size);
/* Content-Type of the body. */
extern const char pyroscope_type[];

/* ---- sending ---- */

enum push_to { PUSH_PYROSCOPE, PUSH_OTLP, PUSH_OTLP_PROFILES, PUSH_NR };

/* Numbers of posts. sent: accepted by the server; failed: given up after errors; dropped: removed
 * from the full queue before the server accepted them. */
struct push_counts {
	uint64_t sent, failed, dropped;
};

struct sender;

struct sender_opts {
	const char *token; /* bearer token; NULL: none */
	const char *ca;	   /* PEM; NULL: the system's certificates */
	unsigned timeout;  /* time limit of a post, in s */
	unsigned backoff;  /* delay before the second attempt, in ms; doubles with each attempt */
	unsigned attempts; /* most attempts to send a post */
};

/* NULL with errno on failure. */
struct sender *sender__new(const struct sender_opts *o);
void sender__free(struct sender *s); /* NULL is fine */
/*
 * Queues body, which it takes over, for sending. Repeats failed attempts with growing delays if the
 * error may be temporary. When the queue is full, drops the oldest post. Copies url but keeps a
 * pointer to type, the Content-Type.
 */
void sender__post(struct sender *s, enum push_to to, const char *url, const char *type, char *body,
		  size_t size);
/* How long the event loop may wait until a post is due, in ms. now: ns, monotonic. */
int sender__sleep(struct sender *s, uint64_t now);
/* Sends queued posts and handles answers. Waits up to ms milliseconds for the network or an
 * event in fds (4 at most). */
void sender__turn(struct sender *s, struct pollfd *fds, size_t n, int ms);
struct push_counts sender__counts(const struct sender *s, enum push_to to);
/* Number of queued posts, including those being sent. */
size_t sender__waiting(const struct sender *s);

/* ---- profiles ---- */

struct profiles;

struct profiles_opts {
	const char *pyroscope, *otlp; /* URLs of Pyroscope, and to post OTLP to; NULL: none */
	const char *host;	      /* host name; NULL: not known */
	double seconds;		      /* length of a capture */
	struct link *link;	      /* link, state, sender and last_id are borrowed */
	struct state *state;
	struct sender *sender;
	/* ID of the last request to the broker, shared by all senders of requests */
	uint64_t *last_id;
};

struct profiles *profiles__new(const struct profiles_opts *o); /* NULL: no memory */
void profiles__free(struct profiles *p);		       /* NULL is fine */
/* Starts a round through all processes, one capture at a time. Does nothing if a round is
 * running. */
void profiles__begin(struct profiles *p);
/* Continues the round, if one is running. Call after each message of the broker, and regularly for
 * timeouts. now: ns, monotonic. */
void profiles__step(struct profiles *p, uint64_t now);
/* Handles an answer from the broker. False: the answer is not for this round. On true, fd (-1:
 * none) is closed. */
bool profiles__answered(struct profiles *p, const json_t *msg, int fd, uint64_t now);
/* Number of profiles that could not be made. */
uint64_t profiles__failed(const struct profiles *p);
