/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * One capture of one process: looks into it, attaches, and makes a record stream (dict, facts,
 * events) of the BPF programs' records. Single-threaded: the owner calls session__pump() from its
 * own loop about every 10 ms, and session__drain_new() when session__wake_fd() is readable.
 * The captures of `serve` share no programs, although that would save 0.1 s of each: the broker,
 * which parses nothing of a target, would hold maps with the target's data, or a recorder would get
 * maps that an earlier one could have prepared.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/exit.h"
#include "capture/probes/session_opts.h"
#include "record/stream.h"

struct failure; /* base/exit.h */
struct queue;
struct session;
struct proc;

/*
 * Opens the process and looks whether it can be traced, without attaching. NULL and *failure on
 * failure: no such process, not permitted, or neither Python nor PyTorch in it. A process that we
 * started may get these later.
 */
struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *failure);
/*
 * A session for a process that was forked from parent's process, directly or through others. It
 * runs under the parent's probes. time: when pid was forked. diverged: when parent's process forked
 * pid or the ancestor of pid (both CLOCK_MONOTONIC, ns). early: its records received so far, in the
 * form of capture/decode/queue.h; takes ownership. The process may have ended. NULL and *failure on
 * failure. The fact attached_at is "fork", or "live" if session__misses_forks(parent).
 */
struct session *session__new_forked(struct session *parent, pid_t pid, uint32_t number,
				    uint64_t time, uint64_t diverged, struct queue *early,
				    struct failure *failure);
/* True if probes are for this PID alone, because a file could not be opened. A forked process then
 * lacks them until session__new_forked(). */
bool session__misses_forks(const struct session *session);
bool session__is_forked(const struct session *session); /* from session__new_forked() */
void session__free(struct session *session);		/* detaches; NULL is fine */

/*
 * Attaches. 0; -EAGAIN: PyTorch is not imported yet, call again after session__poll_ms() ms; other
 * negative with *failure. The stream's time begins when the last probe is in place. The fact
 * attached_at is "start" if none of PyTorch's code ran before. session__proc() may change with each
 * call.
 */
int session__attach(struct session *session, struct failure *failure);
int session__poll_ms(const struct session *session);
bool session__attached(const struct session *session);
/* The process's number in its group: session_opts.number, or the one that session__attach() took.
 * The caller gives that back after session__free(). 0: none; attaching waits for one (-EAGAIN). */
uint32_t session__number(const struct session *session);
/* True if attaching waits for a number: all are taken. */
bool session__lacks_number(const struct session *session);
/* Gives the process a number that the group has for it (proc_group__hand_over()). */
void session__give_number(struct session *session, uint32_t number);
/* True if PyTorch, or CUDA without it, was found, so that the process is about to be attached to. */
bool session__found_torch(const struct session *session);
/* True while there is no PyTorch, and host memory and calls into CUDA are recorded without it. */
bool session__no_torch(const struct session *session);
bool session__uses_cuda(const struct session *session);
/* True if an interpreter was found, readable or not. */
bool session__has_interpreter(const struct session *session);
/* True if an interpreter, readable or not, PyTorch or CUDA was found so far. */
bool session__has_python(const struct session *session);

/* Drains the ring, passes its events to the sink (NULL: drops them), and does all regular work. 0,
 * or the negative error of the sink or of memory. */
int session__pump(struct session *session, struct sink *sink);
/* True if for half a second there was no new stack and little else, and nothing is under way: the
 * ring has room for several times the usual pause between two pumps. */
bool session__quiet(const struct session *session);
/* A descriptor that is readable when the ring has a new stack: call session__drain_new() at once,
 * since its code objects may end soon. Only while attached; owned by session. */
int session__wake_fd(const struct session *session);
/*
 * Drains the ring and passes its events on, without the regular work. Returns as session__pump().
 */
int session__drain_new(struct session *session, struct sink *sink);
/* Drains all that is recorded by now, to the sink of the last pump; before the first pump it does
 * nothing. Returns as session__pump(). */
int session__drain(struct session *session);
/* Emits EVENT_MARK with that name after all that is recorded by now, to the sink of the last pump.
 * Before the first pump it does nothing. Returns as session__pump(). */
int session__mark(struct session *session, const char *name);
/* Detaches, and drains the rest. Then the counters are final. stop_reason: value of that fact.
 * Returns as session__pump(). */
int session__finish(struct session *session, struct sink *sink, const char *stop_reason);

/* Sets the fact "parent". */
void session__set_parent(struct session *session, pid_t parent);
/* Sets the facts about the process itself: its start, and its name if multiprocessing started it. */
void session__set_process(struct session *session);
/* The programs that record the process, with all of its group; NULL: none so far. */
struct probes *session__probes(const struct session *session);
struct dict *session__dict(struct session *session);
struct facts *session__facts(struct session *session);
/*
 * Passes ownership of dict and facts to the caller, to outlive the session. Only when it is over.
 */
void session__give_words(struct session *session, struct dict **dict, struct facts **facts);
const struct proc *session__proc(const struct session *session);
uint64_t session__now(const struct session *session); /* ns since start; 0 before attach */
/* clock__kernel() at the start; 0 before attach. */
uint64_t session__start(const struct session *session);
uint64_t session__events(const struct session *session); /* number of events passed to the sink */
uint64_t session__lost(const struct session *session);	 /* number of lost records */
/* The part of session__lost() that was lost although the ring had room, such as reports of PyTorch
 * that no probe saw. */
uint64_t session__lost_with_room(const struct session *session);
/* Optimizer steps whose beginning and end are both in the stream. */
uint64_t session__steps(const struct session *session);
/* True if the process has called exec and runs another program now. */
bool session__replaced(const struct session *session);
/* Why stacks have no Python lines; owned by session. NULL: they have some, or need none. */
const char *session__python_problem(const struct session *session);
