/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_CAPTURE_LOOP_H
#define MT_FOLLOW_CAPTURE_LOOP_H
/*
 * The life of a capture, the same for every capturing command: wait for PyTorch if need be, attach,
 * drain on a timer, stop at the duration, the steps, a signal, the target's end or the caller's
 * wish, detach, bring in the rest. Speaks to the person on standard error.
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

/* Something else to wait for while it runs, and while PyTorch is not there yet: a keyboard, a
 * socket, a signalfd. */
struct loop_source {
	int fd;
	void (*ready)(void *ctx); /* there is something to be read from fd */
	void *ctx;
};
#define LOOP_SOURCES 8

struct capture_loop {
	struct capture_args args;
	struct session *session; /* NULL: there is no first process, and all that is traced comes to
				    output (capture_loop__many()) */
	struct sink *sink;
	/* Called when attached (the stream's facts are known). 0 or an exit code, logged. May be
	 * NULL. */
	int (*attached)(void *ctx);
	/* Called after each drain; returns a static stop reason ("max-size"), or NULL to go on. May
	 * be NULL. */
	const char *(*drained)(void *ctx);
	uint64_t drained_steps; /* it ends the capture after so many steps: for what is said at the
				   beginning; 0: it does not */
	const char *until; /* likewise: when it ends, in words, where args do not say it; NULL: they
			      do */
	void *ctx;
	struct loop_source sources[LOOP_SOURCES]; /* may be added and removed at any time */
	size_t n_sources;
	bool quit;   /* set from within: ends as a signal does, "signal" is the reason */
	bool prints; /* text comes on standard output while it runs: no line that changes, which
			would be in its middle */
	bool writes_later; /* files are made while it runs: keep the right to */
	/*
	 * A process that we started: the terminal is its own, so that less is said and Ctrl-C is
	 * for it. signals: the caller's signalfd; signalled is called when there is something to be
	 * read from it. ready is called when all stands ready, to let the process run: 0 or an exit
	 * code, logged. waiting is called every second while PyTorch is not there, and when nothing
	 * comes from it. All must be set.
	 */
	bool started;
	struct inside_memory *inside; /* it records itself; NULL: the kernel does */
	int signals;
	void (*signalled)(void *ctx);
	int (*ready)(void *ctx);
	void (*waiting)(void *ctx);
	/* What the command does with the events of all but the first process: with --children, and
	 * where there is no first one. */
	const struct tracees_output *output;
	struct warn_children untraced;
	struct tracees *tracees;
	struct proc_group *group;
	struct probes_sets *sets;
	struct pick *pick;
	/* Set by the loop. */
	const char *stop_reason;
	int err; /* negative: of a sink or of memory; the run ended with it, and the caller has the
		    words */
};

/*
 * Is it of several processes that are picked (several PIDs, --name, --all, --follow and so on)?
 * Then session stays NULL; sink, attached, drained and drained_steps are not used.
 */
bool capture_loop__many(const struct capture_loop *loop);
/*
 * Opens the process into loop->session, so that a target that cannot be traced is known before
 * anything is written. 0 or an exit code, logged.
 */
int capture_loop__open(struct capture_loop *loop);
/* Runs to the end. 0 or an exit code, logged unless err is set. The session is still there
 * afterwards (for its dict and facts). */
int capture_loop__run(struct capture_loop *loop);
void capture_loop__close(struct capture_loop *loop);

#endif
