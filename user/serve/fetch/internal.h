/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The state of a fetch, shared by its files: fetch.c asks hosts for their clock and processes and
 * prints the result, take.c captures, downloads and checks. */
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/progress.h"
#include "record/folder.h"
#include "serve/fetch.h"
#include "serve/fetch/http.h"

#define FETCH_SECOND UINT64_C(1000000000)
#define FETCH_MS UINT64_C(1000000)
#define FETCH_ANSWER (1UL << 20)  /* bytes of a JSON answer */
#define FETCH_LIST (4UL << 20)	  /* bytes of a list of traces; a server has 1,024 */
#define FETCH_PARSED (64UL << 20) /* bytes of an answer in memory */
#define FETCH_CHECKS 4		  /* recordings that are read at the same time */
#define FETCH_PROCESSES 1024	  /* processes of a host */
#define FETCH_EXCHANGES 8	  /* readings of a host's clock */

struct fetch;
struct outfile;

enum fetch_state {
	FETCH_WANTED,	/* not asked yet */
	FETCH_STARTED,	/* a request for its capture was sent */
	FETCH_CAPTURED, /* the recording is complete on its host */
	FETCH_ARRIVED,	/* it is here, and not read yet */
	FETCH_KEPT,	/* it is in the folder */
	FETCH_MISSING
};

struct fetch_process {
	struct fetch_host *host;
	int64_t pid, rank; /* rank -1: not known */
	char stem[160];	   /* name in the folder */
	enum fetch_state state;
	char trace[32];	  /* its trace on the host; "": not known */
	unsigned absent;  /* number of lists in a row that lack it */
	uint64_t known;	  /* when the trace became known, clock__monotonic() */
	double start_at;  /* begin of its capture, on the host's clock, s */
	unsigned started; /* number of requests for its capture */
	struct outfile *file;
	struct folder_entry entry; /* of a kept recording */
	bool complete;		   /* the kept recording has its end */
	char why[HTTP_WHY];	   /* why it is missing */
};

struct fetch_host {
	struct fetch *f;
	const struct hosts_one *is;
	bool answered; /* it has told its processes */
	char why[HTTP_WHY];
	unsigned exchanges;
	unsigned busy;	 /* calls in progress */
	int64_t offset;	 /* its clock minus ours, ns */
	uint64_t error;	 /* largest error of the offset, ns; UINT64_MAX: not known */
	bool polling;	 /* a list of its traces is on the way */
	uint64_t looked; /* when we last asked for that list, ns */
	struct fetch_process *processes;
	size_t n;
};

/* A thread that reads a recording. */
struct fetch_check {
	pthread_t thread;
	struct fetch_process *p; /* NULL: no thread */
	bool good;
	atomic_bool done;
};

struct fetch {
	const struct fetch_opts *o;
	struct http *http;
	struct folder *folder;
	struct fetch_host *hosts;
	size_t n, processes;
	uint64_t begin; /* moment of the window, our CLOCK_REALTIME, ns */
	uint64_t begin_monotonic;
	uint64_t until; /* end of the present phase, clock__monotonic() */
	struct progress progress;
	sigset_t signals; /* blocked; looked at now and then */
	bool interrupted, no_memory;
	struct fetch_check checks[FETCH_CHECKS];
	size_t arrived;	  /* recordings in this state */
	atomic_bool stop; /* threads are to end */
	uint64_t indexed; /* when the index was last written, clock__monotonic() */
	size_t n_indexed; /* kept recordings in it */
};

/* state.c */
/* Makes a call to a host, with answers in memory. path: begins with "/". Returns false without
 * memory, which is noted. */
bool fetch__call(struct fetch_host *h, const char *method, const char *path, const char *body,
		 uint64_t after, void (*done)(void *ctx, const struct http_answer *a), void *ctx);
void fetch__miss(struct fetch_process *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Whether a signal asks us to end. */
bool fetch__interrupted(struct fetch *f);
size_t fetch__count(const struct fetch *f, enum fetch_state state);
/* Parses an answer. NULL: it is no JSON, or takes more than FETCH_PARSED. */
json_t *fetch__parse(const struct http_answer *a);

/* take.c: asks for all captures, waits for them, and keeps the recordings. */
void fetch_take__all(struct fetch *f);
/* Writes the index, with the missing recordings. Returns 0 or -errno, logged. */
int fetch_take__index(struct fetch *f);
