/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_CAPTURE_LOOP_H
#define MT_FOLLOW_CAPTURE_LOOP_H
/*
 * The loop of all capturing commands: waits for PyTorch, attaches, drains on a timer, and detaches
 * at the duration, the steps, a signal, the process's end or the caller's request. Logs to standard
 * error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "follow/capture_args.h"
#include "follow/warn_children.h"
#include "record/stream.h"

struct inside_memory;
struct proc_group;
struct pick;
struct probes_sets;
struct tracees;
struct tracees_output;
struct session;

/* A further descriptor to poll while the loop runs: a keyboard, a socket, a signalfd. */
struct loop_source {
	int fd;
	void (*ready)(void *ctx); /* called when fd is readable */
	void *ctx;
};
#define LOOP_SOURCES 8

struct capture_loop {
	struct capture_args args;
	struct session *session; /* first process; NULL: all processes go to output
				    (capture_loop__many()) */
	struct sink *sink;
	/* Called after attaching, when the facts are known. Returns 0 or an exit code, logged. May
	 * be NULL. */
	int (*attached)(void *ctx);
	/* Called after each drain. Returns a static stop reason ("max-size"), or NULL to go on. May
	 * be NULL. */
	const char *(*drained)(void *ctx);
	uint64_t drained_steps; /* steps after which drained ends the capture, for messages; 0:
				   unknown */
	const char *until;	/* the end of the capture in words, for messages; NULL: from args */
	void *ctx;
	struct loop_source sources[LOOP_SOURCES]; /* may change at any time */
	size_t n_sources;
	bool quit;	   /* set by callbacks to stop with the reason "signal" */
	bool prints;	   /* standard output has text: no progress line */
	bool writes_later; /* keeps the capability to make files later */
	/*
	 * For a process that we started. It has the terminal and gets Ctrl-C, and fewer messages
	 * are logged. signals: the caller's signalfd; signalled() is called when it is readable.
	 * ready() lets the process run. Returns 0 or an exit code, logged. waiting() is called once
	 * a second until PyTorch is there, and when no event comes. All must be set.
	 */
	bool started;
	struct inside_memory
		*inside; /* memory of a process that records itself; NULL: the kernel records */
	int signals;
	void (*signalled)(void *ctx);
	int (*ready)(void *ctx);
	void (*waiting)(void *ctx);
	/* Outputs of all processes but the first. */
	const struct tracees_output *output;
	struct warn_children untraced;
	struct tracees *tracees;
	struct proc_group *group;
	struct probes_sets *sets;
	struct pick *pick;
	/* Set by the loop. */
	const char *stop_reason;
	int err; /* negative error of a sink or of memory that ended the run; the caller logs it */
};

/*
 * True if args pick processes (several PIDs, --name, --all, --follow and so on). The capture has no
 * first process then: session stays NULL, and sink, attached, drained and drained_steps are unused.
 */
bool capture_loop__many(const struct capture_loop *loop);
/*
 * Opens the first process, so that errors are known before a file is made. Returns 0 or an exit
 * code, logged.
 */
int capture_loop__open(struct capture_loop *loop);
/* Runs to the end. Returns 0 or an exit code, logged unless err is set. The session stays open for
 * its dict and facts. */
int capture_loop__run(struct capture_loop *loop);
void capture_loop__close(struct capture_loop *loop);

#endif
