/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_PUSH_PUSH_H
#define MT_SERVE_PUSH_PUSH_H
/*
 * Shared by the files of the process that pushes. It writes documents (otlp.c, pyroscope.c), gets
 * profiles from the broker (profiles.c) and sends both (send.c). One loop (push.c) calls all of it,
 * and nothing in it blocks.
 */
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/link.h"
#include "serve/serve.h"
#include "serve/state.h"

/* ---- documents: pure ---- */

/*
 * The figures of all processes as OTLP's ExportMetricsServiceRequest in its JSON form. now: ns
 * since 1970; host: NULL: not known. Names and units are such that a collector that hands them on
 * to Prometheus comes to the names of /metrics. NULL: no memory, or there is no figure.
 */
json_t *otlp__metrics(const struct state *s, const char *host, uint64_t now);
/* Where to post it: base with "/v1/metrics" behind it, if it is not there already. From malloc();
 * NULL: no memory. */
char *otlp__url(const char *base);

/* What a profile is of. */
struct profile_of {
	const struct state_process *process;
	const char *host;     /* NULL: not known */
	uint64_t from, until; /* ns since 1970 */
};
/* The address to post it to at the server base ("http://pyroscope:4040"), and a body with the
 * profile (gzip'd pprof) in it; both from malloc(). 0 or -ENOMEM. */
int pyroscope__url(const char *base, const struct profile_of *of, char **url);
int pyroscope__body(const void *profile, size_t size, char **body, size_t *body_size);
/* The type of such a body. */
extern const char pyroscope_type[];

/* ---- sending ---- */

enum push_to { PUSH_PYROSCOPE, PUSH_OTLP, PUSH_NR };

/* sent: taken by the server; failed: given up; dropped: never tried, since too much waited. */
struct push_counts {
	uint64_t sent, failed, dropped;
};

struct sender;

struct sender_opts {
	const char *token; /* NULL: none */
	const char *ca;	   /* PEM; NULL: what the system trusts */
	unsigned timeout;  /* s, of a post */
	unsigned backoff;  /* ms before the second attempt; twice as long before each other */
	unsigned attempts;
};

/* NULL with errno. */
struct sender *sender__new(const struct sender_opts *o);
void sender__free(struct sender *s); /* NULL is fine */
/*
 * Sends body, which is taken, as soon as it can be: again where the server or the network may have
 * failed for a while, later and later. When more waits than is allowed the oldest is dropped. url
 * is copied, type (as Content-Type) kept.
 */
void sender__post(struct sender *s, enum push_to to, const char *url, const char *type, char *body,
		  size_t size);
/* How long the loop may sleep, ms; now: ns, monotonic. */
int sender__sleep(struct sender *s, uint64_t now);
/* Waits for that long, or until something can be sent or is at fds (4 at most); does what there is
 * to do. */
void sender__turn(struct sender *s, struct pollfd *fds, size_t n, int ms);
struct push_counts sender__counts(const struct sender *s, enum push_to to);
/* How many wait, those under way included. */
size_t sender__waiting(const struct sender *s);

/* ---- profiles ---- */

struct profiles;

struct profiles_opts {
	const char *url;   /* of the server */
	const char *host;  /* NULL: not known */
	double seconds;	   /* that a capture takes */
	struct link *link; /* all borrowed */
	struct state *state;
	struct sender *sender;
	uint64_t *last_id; /* of what the broker was asked; one counter for all who ask */
};

struct profiles *profiles__new(const struct profiles_opts *o); /* NULL: no memory */
void profiles__free(struct profiles *p);		       /* NULL is fine */
/* Another round through all processes, one capture at a time; nothing where one is under way. */
void profiles__begin(struct profiles *p);
/* Goes on where it can; to be called after each message of the broker's, and now and then. now: ns,
 * monotonic. */
void profiles__step(struct profiles *p, uint64_t now);
/* An answer of the broker's; false: not ours. fd (-1: none) is taken where it is. */
bool profiles__answered(struct profiles *p, const json_t *msg, int fd, uint64_t now);
/* Profiles that could not be made. */
uint64_t profiles__failed(const struct profiles *p);

#endif
