/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the parts of the jobs: jobs_ask.c makes them of requests, jobs.c runs them. */
#include "serve/broker/jobs.h"
#include "serve/broker/spawn.h"

struct export_format;
struct trace_export;

enum job_kind { JOB_REPORT /* for a trace that ends */, JOB_DOCUMENT, JOB_EXPORT, JOB_DUMP };

struct job {
	struct job *next;
	enum job_kind kind;
	struct peer *peer; /* client; NULL: it has gone, or the job is for a trace */
	json_int_t id;
	struct trace *traces[SPAWN_FILES];
	size_t n_traces;
	char *argv[SPAWN_ARGS + 1];
	size_t n_argv;
	bool lacks_argument; /* there was no memory for one */
	bool running;
	struct spawned run;
	uint64_t deadline;
	int out;	     /* file for the output; not open in the worker */
	int from;	     /* pipe from the worker's standard output; -1: closed */
	uint64_t size, most; /* bytes of output: read so far, and the limit */
	uid_t uid;
	gid_t gid;
	int write_err; /* error that ended reading: -EFBIG or that of write(); 0: none */
	bool late;     /* it has exceeded its time limit */
	/* For an export. Its file names are chosen when it starts. */
	const struct export_format *format;
	bool plain; /* with the default moment and device */
	char key[600], file[200], part[256];
};

/* A job without arguments, for a request (p NULL: none). NULL: no memory. */
struct job *job__new(enum job_kind kind, struct peer *p, json_int_t id);
void job__free(struct job *j);
/* Adds an argument of the command. Without memory for it, the job does not start: its answer would
 * be another one. */
void job__put(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds the job to the end of the list. */
void job__append(struct broker *b, struct job *j);
/* Number of requests that wait for a worker. */
size_t jobs__waiting(const struct broker *b);
/* The exported file for these options, now marked as most recently used. NULL: none. */
const struct trace_export *job__use_export(struct trace *t, const char *key);
/* Answers a request with an exported file. */
void job__answer_export(struct peer *p, json_int_t id, const struct trace_export *e);
