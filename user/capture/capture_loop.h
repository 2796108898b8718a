/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The loop of all capturing commands: waits for PyTorch, attaches, drains on a timer, and detaches
 * at the duration, the steps, a signal, the processes' end or the caller's request. Logs to
 * standard error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/capture_args.h"
#include "capture/follow/capture_remarks.h"
#include "capture/tracees.h"

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
	struct inside_memory *inside; /* its memory, if it records itself; NULL: the kernel does */
	int signals;		      /* signalfd of the caller */
	/* Called when signals is readable. False: what came was not for the command. */
	bool (*signalled)(void *ctx);
	/* Lets the process run. Returns 0 or an exit code, logged. */
	int (*ready)(void *ctx);
	/* Called once a second until PyTorch is there, and when no event comes. */
	void (*waiting)(void *ctx);
};

/* Whether the facts of a process say how it ended. */
enum loop_endings {
	LOOP_ENDINGS_NO,
	LOOP_ENDINGS_IF_POSSIBLE,
	LOOP_ENDINGS_NEEDED, /* otherwise capture_loop__open() fails */
};

struct capture_loop {
	/* args.pid: the capture is of this process alone, or with --children of its children, too;
	 * 0: of all that args.pick chooses. */
	struct capture_args args;
	const struct tracees_output *output;
	void *ctx;			    /* passed to all callbacks except those of sources */
	const struct loop_command *command; /* how args.pid was started; NULL: it was there */
	const char *until; /* the end of the capture in words, for messages; NULL: from args */
	struct loop_source sources[LOOP_SOURCES]; /* may change at any time */
	size_t n_sources;
	bool quit;	   /* set by callbacks to stop with the reason "signal" */
	bool prints;	   /* standard output has text: no progress line */
	bool writes_later; /* keeps the capability to make files later */
	enum loop_endings endings;
	/* Set by the loop. */
	const char *stop_reason; /* static */
	struct tracees *tracees;
	struct pick *pick;
	/* Private. */
	uint64_t began; /* CLOCK_MONOTONIC, ns */
	struct ending_hooks *hooks;
	struct proc_group *group;
	struct probes_sets *sets;
	struct capture_remarks remarks;
};

/* Opens the processes that are given by PIDs, so that errors are known before a file is made.
 * Returns 0 or an exit code, logged. */
int capture_loop__open(struct capture_loop *loop);
/* Runs to the end. Returns 0 or an exit code, logged. */
int capture_loop__run(struct capture_loop *loop);
void capture_loop__close(struct capture_loop *loop);
