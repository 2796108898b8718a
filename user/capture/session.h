/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_SESSION_H
#define MT_CAPTURE_SESSION_H
/*
 * One capture of one process: finds what is in it, attaches, and turns the kernel side's records
 * into a record stream (dict, facts, events), until it is closed. Single-threaded: the owner calls
 * session__pump() from its own loop, about a hundred times a second, and session__drain_new() in
 * between.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/session_opts.h"
#include "lib/exit.h"
#include "record/stream.h"

struct failure; /* lib/failure.h */
struct queue;
struct session;
struct proc;

/*
 * Opens the process and looks whether it can be traced, without attaching. NULL and *f on failure
 * (no such process, not permitted, neither Python nor PyTorch in it; the last does not count where
 * the process was started).
 */
struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *f);
/*
 * A process that one whose session this is has forked, at this time (CLOCK_MONOTONIC, ns), or one
 * in between, and then diverged is when that was forked: it is attached to already, with its
 * parent's programs. early: records of its that have come in so far, in the form of
 * capture/queue.h; taken over. The process may have ended. NULL and *f on failure.
 */
struct session *session__new_forked(struct session *parent, pid_t pid, uint32_t number,
				    uint64_t time, uint64_t diverged, struct queue *early,
				    struct failure *f);
void session__free(struct session *s); /* detaches; NULL is fine */

/*
 * Attaches. 0; -EAGAIN: PyTorch is not imported yet (call again after session__poll_ms() ms); else
 * negative and *f. The stream's time begins when the last probe is in place. The fact attached_at
 * is "start" where that was before any of PyTorch's code could run, so that nothing was missed.
 * session__proc() may be another one after each call.
 */
int session__attach(struct session *s, struct failure *f);
int session__poll_ms(const struct session *s);
bool session__attached(const struct session *s);
/*
 * Its number among those that are followed: session_opts.number, or one that session__attach() took
 * when it could be recorded, which is the caller's to give back once the session is freed. 0: none;
 * attaching waits for one (-EAGAIN).
 */
uint32_t session__number(const struct session *s);
/* As far as has been looked: there is an interpreter in it, understood or not, or PyTorch. */
bool session__has_python(const struct session *s);
/* Once attached: the kernel has uprobe.multi. */
bool session__has_multi(const struct session *s);

/*
 * Brings in what has been recorded and hands it to the sink in order (NULL: drops it). 0 or the
 * negative error of the sink or of memory.
 */
int session__pump(struct session *s, struct sink *sink);
/*
 * While attached: a descriptor that is readable when the target is where it has not been before.
 * What it runs there may be gone with it any moment, so session__drain_new() is to be called at
 * once. Owned by s.
 */
int session__wake_fd(const struct session *s);
/* Brings in what has been recorded, and nothing else that a pump does. Returns as that. */
int session__drain_new(struct session *s, struct sink *sink);
/* Brings in all that has been recorded by now, to the sink of the last pump; before the first one
 * nothing happens. Returns as that. */
int session__drain(struct session *s);
/*
 * An EVENT_MARK of that name, behind all that has been recorded by now, to the sink of the last
 * pump; before the first one nothing happens. Returns as that.
 */
int session__mark(struct session *s, const char *name);
/*
 * Detaches, then brings in all the rest. The counters are final after this. stop_reason: for the
 * fact.
 */
int session__finish(struct session *s, struct sink *sink, const char *stop_reason);

/* Who started the process, for the facts; and its rank, where its environment tells. */
void session__set_parent(struct session *s, pid_t parent);
/* The programs that its records come from; NULL: none so far. With those of a whole group. */
struct probes *session__probes(const struct session *s);
struct dict *session__dict(struct session *s);
struct facts *session__facts(struct session *s);
/* Once the session is over: both are the caller's from now on, for who shows what it has longer
 * than the session stays. */
void session__give_words(struct session *s, struct dict **dict, struct facts **facts);
const struct proc *session__proc(const struct session *s);
uint64_t session__now(const struct session *s); /* ns since the start; 0 before attaching */
uint64_t session__events(const struct session *s);
uint64_t session__lost(const struct session *s);
/* Optimizer steps that are in the stream from their beginning on, and ended: not the one that was
 * under way at attach. */
uint64_t session__steps(const struct session *s);
/* The process runs another program by now: what was attached to is gone. */
bool session__replaced(const struct session *s);
/* Why there may be no Python lines: static text, NULL when there are. */
const char *session__python_problem(const struct session *s);

#endif
