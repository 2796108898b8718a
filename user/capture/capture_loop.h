/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Captures of processes: the loop of all capturing commands, and the processes that it follows
 * (tracees).
 *
 * The loop waits for PyTorch, attaches, drains on a timer, and detaches
 * at the duration, the steps, a signal, the processes' end or the caller's request. Logs to
 * standard error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/capture_args.h"
#include "capture/session.h"
#include "record/stream.h"

struct ending_hooks;
struct inside_memory;
struct proc_group;
struct probes_sets;

/* A further descriptor to poll while the loop runs: a keyboard, a socket, a signalfd. */
struct loop_source {
	int fd;
	void (*ready)(void *ctx); /* called when fd is readable */
	void *ctx;
};
#define LOOP_SOURCES 8

/* A process that we started and that waits to run its program. It has the terminal and gets Ctrl-C,
 * and fewer messages are logged. */
struct loop_command {
	struct inside_memory *inside; /* memory of a command that records itself; NULL: the kernel
					 records it */
	int signals;		      /* signalfd of the caller */
	/* Called when signals is readable. Returns false if no signal concerned the command. */
	bool (*signalled)(void *ctx);
	/* Lets the process run. Returns 0 or an exit code, logged. */
	int (*ready)(void *ctx);
	/* Called once a second until PyTorch is mapped, and later while no event comes. */
	void (*waiting)(void *ctx);
};

/* Whether the facts of a process say how it ended. */
enum loop_endings {
	LOOP_ENDINGS_NO,
	LOOP_ENDINGS_IF_POSSIBLE,
	LOOP_ENDINGS_NEEDED, /* otherwise capture_loop__open() fails */
};

/* The messages logged so far, so that none is logged twice. */
struct capture_remarks {
	char until[96];		   /* text of capture_loop__until() */
	bool silent;		   /* a warning was logged that no event came */
	bool stepless;		   /* a warning was logged that no step came */
	bool busy;		   /* some process was traced at the last look */
	uint64_t last_line;	   /* time of the last progress line, ns since the attach */
	uint64_t next_call;	   /* time of the next call of loop_command.waiting() */
	uint64_t next_look, pause; /* for the search for child processes that are not traced, ns */
	size_t untraced;	   /* largest number of such child processes so far */
	bool suggested; /* a message named a child process to capture instead of its parent */
};

struct capture_loop {
	/* args.pid: the capture is of this process alone, or with --children of its children, too;
	 * 0: of all that args.pick chooses. */
	struct capture_args args;
	const struct tracees_output *output;
	void *ctx;			    /* passed to all callbacks except those of sources */
	const struct loop_command *command; /* set if we started args.pid; NULL: it ran before */
	const char *until; /* the end of the capture in words, for messages; NULL: from args */
	struct loop_source sources[LOOP_SOURCES]; /* may change at any time */
	size_t n_sources;
	bool quit;	   /* set by callbacks to stop with the reason "signal" */
	bool prints;	   /* the command prints to standard output: no progress lines */
	bool writes_later; /* callbacks make files later: keep the capability for that */
	enum loop_endings endings;
	/* Set by the loop. */
	const char *stop_reason; /* why the capture ended: the fact stop_reason; static */
	struct tracees *tracees;
	struct pick *pick;
	/* Private. */
	uint64_t began; /* when capture_loop__run() began, CLOCK_MONOTONIC, ns */
	struct ending_hooks *hooks;
	struct proc_group *group;
	struct probes_sets *sets;
	struct capture_remarks remarks;
};

/* True if there may be more processes than args.pid. */
static inline bool capture_loop__of_several(const struct capture_loop *loop)
{
	return !loop->args.pid || loop->args.children;
}

/* Opens the processes that are given by PIDs, so that errors are known before a file is made.
 * Returns 0 or an exit code, logged. */
int capture_loop__open(struct capture_loop *loop);
/* When the capture ends, for messages: "10.0 s have passed", "60 steps have passed". */
const char *capture_loop__until(struct capture_loop *loop);
/* Runs to the end. Returns 0 or an exit code, logged. */
int capture_loop__run(struct capture_loop *loop);
void capture_loop__close(struct capture_loop *loop);

/*
 * The processes of a capture: one, its child processes (--children), or all that are picked
 * (pick.h). Each process with PyTorch gets a session and an output.
 */

struct pick;
struct tracees;

/* The outputs of the processes, from the command. */
struct tracees_output {
	/* A process is about to be traced. times: number of this output of the process, from 1; 0
	 * for the process of tracees_opts.only, whose output begins before the attach, so that a
	 * full disk is known then. Returns the output, for the calls below, and sets *sink; NULL:
	 * failed, logged. */
	void *(*begin)(void *ctx, struct session *s, pid_t pid, unsigned int times,
		       struct sink **sink);
	/* The process is attached to, and its facts are known. Returns 0 or an exit code, logged.
	 * May be NULL. */
	int (*attached)(void *output);
	/* Called after each drain. Returns a static stop reason or NULL. NULL: never full. */
	const char *(*full)(void *output);
	/* The session is over, with final facts and counters. err: the negative error that ended
	 * it, or 0. Frees output. Returns 0 or an exit code, logged. */
	int (*end)(void *output, const char *reason, int err);
};

struct tracees_opts {
	/* Options of each session. tracees.c sets number and late; started is for the process
	 * `only`. Without a group, only that process is captured. */
	struct session_opts session;
	struct pick *pick; /* choice of processes, borrowed */
	pid_t only;	   /* capture this process, which must be traceable, and with `children`
			      those that it starts; 0: capture all that pick chooses */
	bool children;	   /* follow child processes */
	struct ending_hooks *endings; /* how processes end, borrowed; NULL: not wanted */
	unsigned int caps;	      /* capabilities to keep besides (capture/kernel.h) */
	const char *until;	      /* when the capture ends, for messages */
	const struct tracees_output *output;
	void *ctx;
};

struct tracees *tracees__new(const struct tracees_opts *opts); /* NULL: out of memory */
void tracees__free(struct tracees *tracees); /* NULL is fine; sessions are not finished */

/* Adds a process that was given by its PID, with its children. Returns 0, or negative with
 * *failure: there is no such process, access is denied, or opts.only cannot be traced. */
int tracees__take(struct tracees *tracees, pid_t pid, struct failure *failure);
/* Begins the output of opts.only, if there is such a process. Returns 0 or an exit code, logged. */
int tracees__begin_output(struct tracees *tracees);
/* True if the processes have made few events for a while: tracees__pump() can wait a little longer.
 */
bool tracees__quiet(const struct tracees *tracees);
/* Gives this thread the highest priority of ordinary threads, so that it can drain the ring next to
 * many runnable threads. Gives up all capabilities that tracing needs no longer. tracees.c calls it
 * once opts.only is attached to; the owner may call it earlier. */
void tracees__limit_caps(struct tracees *tracees);

/* Describes processes that nearly match, to continue a sentence; "": none. After the first
 * tracees__pump(). */
void tracees__nearest(struct tracees *tracees, char *buf, size_t size);

/* Call about a hundred times a second, and after tracees__poll_ms() ms (-1: no timeout). */
void tracees__pump(struct tracees *tracees);
int tracees__poll_ms(const struct tracees *tracees);
/* A descriptor, owned by tracees: when it is readable, call tracees__drain_new() at once. */
int tracees__wake_fd(const struct tracees *tracees);
void tracees__drain_new(struct tracees *tracees);

/* Returns the session of opts.only, attached or waiting for PyTorch; NULL: it is over. */
struct session *tracees__only(const struct tracees *tracees);
/* Returns the number of processes that are traced or may still import PyTorch: the capture lasts
 * until it is 0. With opts.only, child processes count once they are traced. */
size_t tracees__hopeful(const struct tracees *tracees);
/* Return the number of processes that are traced now, and that were ever traced. */
size_t tracees__traced(const struct tracees *tracees);
size_t tracees__ever(const struct tracees *tracees);
/* Finds the captured process that has started the most processes with PyTorch that are not
 * captured. Returns their number. Unless it is 0, stores that process and the first of those that
 * it started. */
size_t tracees__left_out(const struct tracees *tracees, pid_t *parent, pid_t *first);
/* Returns the time since the first attach, ns; 0: no attach so far. */
uint64_t tracees__now(const struct tracees *tracees);
/* Detaches from all processes and ends their outputs. Returns 0, or the exit code of the first
 * failure so far: opts.only could not be traced, or the output of a process failed. */
int tracees__finish(struct tracees *tracees, const char *reason);
