/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_RELATIVES_H
#define MT_FOLLOW_RELATIVES_H
/*
 * The processes of a capture of several. With --children: those that the first one has started, or starts, and theirs; what
 * concerns the first one is capture_loop.h's. Where they are picked by name and the like (pick.h) there is no first one: all are here, also
 * those that come later. Each that has PyTorch has a session and an output of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/session.h"
#include "record/stream.h"

struct pick;
struct relatives;

/* What becomes of a process's events: the command's. */
struct relatives_output {
	/* A process is traced from now on, for the number-th time (1: the first). What end() gets, and its sink; NULL: out of memory. */
	void *(*begin)(void *ctx, struct session *s, pid_t pid, unsigned int number, struct sink **sink);
	/* After each drain: a static stop reason, or NULL. */
	const char *(*full)(void *output);
	/* The session is over: its facts and counters are final. err: negative, where that was why. Frees what begin() gave. */
	void (*end)(void *output, const char *reason, int err);
};

struct relatives_opts {
	struct session_opts session; /* of each: but for number, started and late, which are set here */
	uint64_t duration;	     /* ns from the first attach on, 0: no bound */
	struct pick *pick;	     /* who is meant, NULL: the first one's descendants; the caller's */
	bool children;		     /* with pick: those that they start, too, whatever that is */
	const struct relatives_output *output;
	void *ctx;
};

/*
 * Follows pid, whose session is to have opts->session.kin, .sets and *number; those that it has started already are found at
 * the next relatives__pump(). pid 0: there is no first one, opts->pick says who is meant, and number is not
 * used. opts is copied. NULL and *f on failure.
 */
struct relatives *relatives__new(pid_t pid, const struct relatives_opts *opts, uint32_t *number, struct failure *f);
void relatives__free(struct relatives *r); /* NULL is fine; nothing is finished */

/* This process from now on, which is meant by its PID. 0, or negative with *f: there is no such one, or it may not be looked at. */
int relatives__take(struct relatives *r, pid_t pid, struct failure *f);

/* After the first relatives__pump(), where nobody is: what comes next to it, to go on a sentence, or "". */
void relatives__nearest(const struct relatives *r, char *buf, size_t size);

/* The first process is attached to. Its session, which those that it forks begin with; NULL from its end on. */
void relatives__first(struct relatives *r, struct session *s);
/* The first process runs another program: from now on it is one like all others. */
void relatives__take_first(struct relatives *r);

/* About a hundred times a second, and every relatives__patience() ms (-1: no hurry). */
void relatives__pump(struct relatives *r);
int relatives__patience(const struct relatives *r);
/* Readable when something is to be looked at without delay, by relatives__hurry(). Owned by r. */
int relatives__wake_fd(const struct relatives *r);
void relatives__hurry(struct relatives *r);

/* Processes that are traced, or are Python and may have PyTorch any moment; with children, whatever they are. */
size_t relatives__hopeful(const struct relatives *r);
/* Processes being traced; ever. */
size_t relatives__traced(const struct relatives *r);
size_t relatives__ever(const struct relatives *r);
/* Of them, since some time (ns since the first was attached to); 0: none is or was. */
uint64_t relatives__now(const struct relatives *r);
/* Detaches from all. */
void relatives__finish(struct relatives *r, const char *reason);

#endif
