/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Workers: processes without rights that read recordings; and `dump`, which reads a process. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/poll.h>
#include <sys/types.h>

#include "serve/broker/spawn.h"

struct broker;
struct peer;
struct trace;

/* Handles the requests compare, diff, dump, export, leaks, ranks and report. */
void jobs__asked(struct peer *p, json_t *msg);
/* Makes the report for trace__done(). 0 or -errno. */
int jobs__report(struct broker *b, struct trace *t);
/* Starts waiting jobs and reads running ones. now: monotonic, ns. */
void jobs__pump(struct broker *b, uint64_t now);
/* Fills in at most room descriptors to wait for; returns their number. */
size_t jobs__poll(const struct broker *b, struct pollfd *fds, size_t room);
/* Ends the jobs of a peer (NULL: none) or of a trace (NULL: none). */
void jobs__forget(struct broker *b, const struct peer *p, const struct trace *t);
/* Ends the job of the peer's request with this id, without an answer. A running export goes on, and
 * its file is kept. */
void jobs__cancel(struct broker *b, const struct peer *p, json_int_t id);
void jobs__free(struct broker *b);
/* Bytes of the folder that running exports may still take. */
uint64_t jobs__reserved(const struct broker *b);

/* All export formats, for the message `hello`. */
json_t *jobs__formats(void);
/* The content type by the ending of a file name, static. */
const char *jobs__content_type(const char *file);

struct export_format;

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
