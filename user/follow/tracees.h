/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_TRACEES_H
#define MT_FOLLOW_TRACEES_H
/*
 * The processes of a capture of several. With --children: those that the first one has started, or
 * starts, and theirs; what concerns the first one is capture_loop.h's. Where they are picked by
 * name and the like (pick.h) there is no first one: all are here, also those that come later. Each
 * that has PyTorch has a session and an output of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/session.h"
#include "record/stream.h"

struct pick;
struct tracees;

/* What becomes of a process's events: the command's. */
struct tracees_output {
	/* A process is traced from now on, for the number-th time (1: the first). What end() gets,
	 * and its sink; NULL: out of memory. */
	void *(*begin)(void *ctx, struct session *s, pid_t pid, unsigned int number,
		       struct sink **sink);
	/* After each drain: a static stop reason, or NULL. */
	const char *(*full)(void *output);
	/* The session is over: its facts and counters are final. err: negative, where that was why.
	 * Frees what begin() gave. */
	void (*end)(void *output, const char *reason, int err);
};

struct tracees_opts {
	struct session_opts
		session;   /* of each: but for number, started and late, which are set here */
	uint64_t duration; /* ns from the first attach on, 0: no bound */
	struct pick *pick; /* who is meant, NULL: the first one's descendants; the caller's */
	bool children;	   /* with pick: those that they start, too, whatever that is */
	const struct tracees_output *output;
	void *ctx;
};

/*
 * Follows pid, whose session is to have opts->session.group, .sets and *number; those that it has
 * started already are found at the next tracees__pump(). pid 0: there is no first one, opts->pick
 * says who is meant, and number is not used. opts is copied. NULL and *f on failure.
 */
struct tracees *tracees__new(pid_t pid, const struct tracees_opts *opts, uint32_t *number,
			     struct failure *f);
void tracees__free(struct tracees *r); /* NULL is fine; nothing is finished */

/* This process from now on, which is meant by its PID. 0, or negative with *f: there is no such
 * one, or it may not be looked at. */
int tracees__take(struct tracees *r, pid_t pid, struct failure *f);

/* After the first tracees__pump(), where nobody is: what comes next to it, to go on a sentence, or
 * "". */
void tracees__nearest(const struct tracees *r, char *buf, size_t size);

/* The first process is attached to. Its session, which those that it forks begin with; NULL from
 * its end on. */
void tracees__first(struct tracees *r, struct session *s);
/* The first process runs another program: from now on it is one like all others. */
void tracees__take_first(struct tracees *r);

/* About a hundred times a second, and every tracees__poll_ms() ms (-1: no hurry). */
void tracees__pump(struct tracees *r);
int tracees__poll_ms(const struct tracees *r);
/* Readable when something is to be looked at without delay, by tracees__drain_new(). Owned by r. */
int tracees__wake_fd(const struct tracees *r);
void tracees__drain_new(struct tracees *r);

/* Processes that are traced, or are Python and may have PyTorch any moment; with children, whatever
 * they are. */
size_t tracees__hopeful(const struct tracees *r);
/* Processes being traced; ever. */
size_t tracees__traced(const struct tracees *r);
size_t tracees__ever(const struct tracees *r);
/* Of them, since some time (ns since the first was attached to); 0: none is or was. */
uint64_t tracees__now(const struct tracees *r);
/* Detaches from all. */
void tracees__finish(struct tracees *r, const char *reason);

#endif
