/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A capture with its recording and exported files, called a trace in HTTP. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "record/host.h"
#include "serve/broker/spawn.h"
#include "serve/server/link.h"

#define TRACES 1024    /* most traces */
#define TRACE_SHAPE 16 /* members of input_shape */
#define TRACE_EXPORTS                                                                              \
	32 /* exported files that are kept; a new one replaces the least recently used */

struct broker;
struct peer;

enum trace_state { TRACE_STARTING, TRACE_CAPTURING, TRACE_FINISHING, TRACE_DONE, TRACE_FAILED };

struct trace_export {
	char key[600]; /* format, moment, device */
	char file[200];
	uint64_t size;
	const char *type; /* content type, static */
};

/* A file that a client sends: upload.c. */
struct trace_upload {
	int from; /* read end of the web process's pipe; -1: none */
	int out;  /* the file; -1: none */
	uint64_t size, got;
	char part[128]; /* name of the file while it arrives */
};

struct trace {
	char id[LINK_ID];
	enum trace_state state;
	char model[64], name[96], file[96], stop_reason[64], error[512];
	int given;	 /* descriptor of a recording from the command line; -1: none */
	char folder[64]; /* for such a recording: the name of its folder; "" */
	int status;   /* HTTP status of a failed trace; 0: the trace is complete, also if it has an
			 error */
	pid_t pid;    /* captured process; 0: not yet known */
	double begun; /* s since 1970 */
	double seconds;
	/* dropped: events that are not in the file; bytes: its size */
	uint64_t events, lost, steps, dropped, bytes, max_events;
	bool fragmentation;
	bool host;     /* also records host memory by line */
	bool uploaded; /* a client sent the recording, or the snapshot that it was made from */
	/* Requested limits and facts; 0: not requested. */
	double duration_s, start_at, align_s;
	uint64_t steps_wanted, batch_size;
	int64_t shape[TRACE_SHAPE];
	size_t n_shape;
	/* For a command that the server runs. */
	bool is_command;
	int exit_status;	     /* -1: not known */
	char *log;		     /* the end of the command's output; NULL: none */
	struct trace_upload *upload; /* NULL: none */
	/* The running capture. */
	struct peer *asker; /* the trace is deleted when this peer ends; NULL: it stays */
	struct spawned run;
	int tell; /* socket with the recorder's status and figures; -1: none */
	int64_t host_part[HOST_PARTS_END]; /* resident bytes of host memory; -1: not known */
	int64_t host_live, host_free;	   /* resident bytes in use, and free; -1: not known */
	bool opened;			   /* the recorder has sent its status */
	bool attached;			   /* the recorder's probes are in the process */
	bool stopping;			   /* capture__stop() was called */
	bool dropping;			   /* to be deleted when the capture has ended */
	unsigned urged;			   /* number of signals sent to end the capture */
	uint64_t deadline;		   /* monotonic, ns; UINT64_MAX: none */
	uint64_t reserved;		   /* bytes of the folder that the capture may still take */
	int report;			   /* descriptor of the report; -1: none yet */
	struct trace_export *exports;	   /* least recently used first */
	size_t n_exports;
	unsigned named; /* last number in the name of an exported file */
};

struct traces {
	struct trace *v[TRACES]; /* oldest first */
	size_t n;
	int64_t last_id; /* ms since 1970, of the youngest trace */
};

/* A new trace in the table. NULL: out of memory, or the table is full. */
struct trace *trace__new(struct broker *b, const char *id);
struct trace *trace__find(const struct broker *b, const char *id);
/* The trace whose recording has this file name; NULL: none. */
struct trace *trace__of_recording(const struct broker *b, const char *file);
/* The trace whose ID is in the member `key` of a request. NULL: there is none, and the request has
 * been refused. */
struct trace *trace__asked(struct peer *p, json_t *msg, const char *key);
/* True while the recorder's process runs. */
bool trace__runs(const struct trace *t);
/* Number of running captures, and bytes of the folder that they and uploads may still take. */
size_t traces__running(const struct broker *b);
uint64_t traces__reserved(const struct broker *b);
/* Frees the struct alone; the files stay. */
void trace__free(struct trace *t);
json_t *trace__facts(const struct trace *t);
/* Sends the facts to web and push, and the report of a finished trace. soft: see peers__tell(). */
void trace__tell(struct broker *b, const struct trace *t, bool soft);
/* Sends the facts, and the report of a finished trace, to one peer. */
void trace__tell_one(struct peer *p, const struct trace *t);
/* Saves the trace's facts, some of which are not in the recording, for the next start of the server.
 */
void trace__note(const struct broker *b, const struct trace *t);
/* Reads the facts of an earlier server from that file. False: the trace was made for a profile, and
 * is to be deleted. */
bool trace__read_note(const struct broker *b, struct trace *t);
/* Removes the file with the facts. */
void trace__forget_note(const struct broker *b, const struct trace *t);
/* Ends the trace's upload, if it has one. remove: with the file that has arrived. */
void trace__end_upload(const struct broker *b, struct trace *t, bool remove);
/* Ends a complete trace. Takes over report, a descriptor; -1: none. */
void trace__done(struct broker *b, struct trace *t, int report);
/* Ends a failed trace with an HTTP status and the reason. */
void trace__fail(struct broker *b, struct trace *t, int status, const char *text);
/* Opens the recording for reading. *size: in bytes. Returns a descriptor or -errno. */
int trace__open(const struct broker *b, const struct trace *t, uint64_t *size);

/* capture.c */
/* False: there are --max-traces traces, none of them failed, and the request has been refused.
 * Failed ones are deleted to make room. */
bool trace__has_room(struct peer *p, json_int_t id);
/* Makes an unused trace ID from the milliseconds since 1970. */
void trace__make_id(struct broker *b, char *buf, size_t size);
/* Deletes a trace with its files. If the capture runs, stops it; its end deletes the trace. */
void trace__delete(struct broker *b, struct trace *t);

/* jobs.c */
/* Queues the report of a complete recording. trace__done() or trace__fail() follows. */
void trace__finish(struct broker *b, struct trace *t);
