/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_TRACEES_H
#define MT_FOLLOW_TRACEES_H
/*
 * The processes of a capture besides the first: its child processes (--children), or all processes
 * that are picked (pick.h). Each process with PyTorch gets a session and an output.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/session.h"
#include "record/stream.h"

struct pick;
struct tracees;

/* The outputs of the processes, from the command. */
struct tracees_output {
	/* A process is traced now, for the number-th time, from 1 on. Returns the output, for
	 * full() and end(), and sets *sink; NULL: failed. */
	void *(*begin)(void *ctx, struct session *s, pid_t pid, unsigned int number,
		       struct sink **sink);
	/* Called after each drain. Returns a static stop reason or NULL. */
	const char *(*full)(void *output);
	/* The session is over, with final facts and counters. err: the negative error that ended
	 * it, or 0. Frees output. */
	void (*end)(void *output, const char *reason, int err);
};

struct tracees_opts {
	struct session_opts
		session;   /* options of each session; number, started and late are set here */
	struct pick *pick; /* choice of processes, borrowed; NULL: child processes of the first */
	bool children;	   /* follow child processes, also with pick */
	const struct tracees_output *output;
	void *ctx;
};

/*
 * Follows pid, the first process, and its children. The first process's session must have
 * opts->session.group, .sets and *number. pid 0: opts->pick chooses the processes, and number is
 * unused. Copies opts. NULL and *f on errors.
 */
struct tracees *tracees__new(pid_t pid, const struct tracees_opts *opts, uint32_t *number,
			     struct failure *f);
void tracees__free(struct tracees *r); /* r may be NULL; sessions are not finished */

/* Adds a process that was given by its PID. Returns 0, or negative with *f: no such process, or not
 * permitted. */
int tracees__take(struct tracees *r, pid_t pid, struct failure *f);

/* Describes processes that nearly match, to continue a sentence; "": none. After the first
 * tracees__pump(). */
void tracees__nearest(const struct tracees *r, char *buf, size_t size);

/* Sets the first process's session after attaching; NULL at its end. Forked children begin with its
 * state. */
void tracees__first(struct tracees *r, struct session *s);
/* Treats the first process like all others, after an exec. */
void tracees__take_first(struct tracees *r);

/* Call about a hundred times a second, and after tracees__poll_ms() ms (-1: no timeout). */
void tracees__pump(struct tracees *r);
int tracees__poll_ms(const struct tracees *r);
/* A descriptor, owned by r: when it is readable, call tracees__drain_new() at once. */
int tracees__wake_fd(const struct tracees *r);
void tracees__drain_new(struct tracees *r);

/* Returns the number of processes that are traced or may still import PyTorch. */
size_t tracees__hopeful(const struct tracees *r);
/* Return the number of processes traced now, and so far. */
size_t tracees__traced(const struct tracees *r);
size_t tracees__ever(const struct tracees *r);
/* Returns the time since the first attach, ns; 0: no attach so far. */
uint64_t tracees__now(const struct tracees *r);
/* Detaches from all processes and ends their outputs. */
void tracees__finish(struct tracees *r, const char *reason);

#endif
