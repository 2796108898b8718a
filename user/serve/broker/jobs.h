/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Workers: processes without rights that read recordings; and `dump` and `ps`, which read
 * processes. */
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

/* Handles the requests compare, devices, diagnose, diff, dump, export, leaks, ranks and report. */
void jobs__asked(struct peer *p, json_t *msg);
/* Queues a worker that makes the trace's recording from a snapshot, a file of the folder, which it
 * takes over and removes. trace__finish() or trace__fail() follows. Returns 0 or -errno. */
int jobs__import(struct broker *b, struct trace *t, const char *file);
/* Starts waiting jobs and reads running ones. now: monotonic, ns. */
void jobs__pump(struct broker *b, uint64_t now);
/* Fills in at most room descriptors to wait for; returns their number. */
size_t jobs__poll(const struct broker *b, struct pollfd *fds, size_t room);
/* Ends the jobs of a peer, without answers. */
void jobs__forget_peer(struct broker *b, const struct peer *p);
/* Ends the jobs that use a trace, and refuses their requests. */
void jobs__forget_trace(struct broker *b, const struct trace *t);
/* Ends the job of the peer's request with this id, without an answer. A running export goes on, and
 * its file is kept. */
void jobs__cancel(struct broker *b, const struct peer *p, json_int_t id);
void jobs__free(struct broker *b);
/* Bytes of the folder that running exports may still take. */
uint64_t jobs__reserved(const struct broker *b);

/* The array of all export formats for the message `hello`. */
json_t *jobs__formats(void);
/* The content type of a file by the ending of its name, a static text. */
const char *jobs__content_type(const char *file);

struct export_format;

enum job_kind {
	JOB_REPORT, /* for a trace that ends */
	JOB_IMPORT, /* makes the recording of an uploaded snapshot */
	JOB_DOCUMENT,
	JOB_EXPORT,
	JOB_DUMP,
	/* `ps --device`. One runs at a time, next to the workers, and its output answers all
	 * requests that have come by its end. It reads all processes of the machine, and one of
	 * them may keep it from ending. */
	JOB_DEVICES
};

struct job {
	struct job *next;
	enum job_kind kind;
	struct peer *peer; /* process that sent the request; NULL: none, for JOB_REPORT and
			      JOB_IMPORT, and a JOB_DEVICES that nobody waits for any more */
	json_int_t id;	   /* of the request */
	struct trace *traces[SPAWN_FILES];
	size_t n_traces;
	char *argv[SPAWN_ARGS + 1];
	size_t n_argv;
	bool lacks_argument; /* there was no memory for an argument: the job cannot run */
	bool running;
	struct spawned run;
	uint64_t deadline; /* monotonic, ns */
	int out;	   /* file for the worker's output, not open in the worker */
	int from;	   /* pipe from the worker's standard output; -1: closed */
	uint64_t size;	   /* bytes of output read so far */
	uint64_t max_size; /* limit of `size` */
	uid_t uid;	   /* user and group of the worker */
	gid_t gid;
	int write_err; /* error that ended reading: -EFBIG or that of write(); 0: none */
	bool late;     /* the worker was killed because it took too long */
	bool answered; /* its request has an answer, by another JOB_DEVICES */
	/* The following fields are for an export. */
	const struct export_format *format;
	bool plain;	/* the moment and the device are the default ones */
	char key[600];	/* trace_export.key: format, moment, device */
	char file[200]; /* name of the file; set when the export starts */
	char part[256]; /* name of the file while it is written; of an import, too */
	/* Of an import: the snapshot's names in the folder ("": none) and in the worker. */
	char source[128], imported[128];
};
