/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_SESSION_INTERNAL_H
#define MT_CAPTURE_SESSION_INTERNAL_H
/* What the parts of a session share: its life (session.c), its records (decode.c), its facts
 * (session_facts.c). */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "capture/probes.h"
#include "capture/proc_group.h"
#include "capture/ptrace_hold.h"
#include "capture/queue.h"
#include "capture/session.h"
#include "capture/target.h"
#include "torch/cudaalloc.h"

struct autograd;
struct cuda_calls;
struct dict;
struct map64;
struct modules;
struct symbolizer;
struct session_census;
struct session_state;

#define CUDA_PUSHED 4 /* CUDA contexts below a thread's current one that are kept */

/* A thread of the target that has been heard of. */
struct thread {
	uint32_t tid;
	uint32_t number;  /* in the dict */
	uint64_t started; /* proc__thread_started(); 0: it had ended */
	bool gone;	  /* it was not there any more, so its number may be another's by now */
	uint32_t node; /* in the dict: the autograd node that it last began to run, 0: not known */
	uint8_t cuda_device; /* its current one + 1; 0: not known */
	uint8_t n_pushed;
	uint64_t cuda_context; /* its current one where that is none of the primary ones; 0: is;
				  UINT64_MAX: not known */
	struct {
		uint64_t context;
		uint8_t device;
	} pushed[CUDA_PUSHED]; /* the same of those below it, the last one on top */
	uint64_t said; /* address of the New or Delete right before, to tell a report that repeats
			  it */
	int64_t said_size;	 /* bytes, negative for Delete, whose bytes we are not told */
	struct mt_rec_mem first; /* the sleepable programs' record of a hit, while both sets run:
				    see is_twin() */
	bool first_open;
};

/* What is known of a process that PyTorch has not come into yet: session_wait.c. CLOCK_MONOTONIC,
 * ns. */
struct waiting {
	uint64_t since;	  /* of this program's */
	uint64_t pages;	  /* mapped when its map was read last */
	uint64_t changed; /* when that was another number */
	uint64_t next;	  /* look again even where nothing was mapped */
};

struct session {
	struct session_opts opts;
	struct target target;
	struct probes *probes;
	struct cuda_calls *calls;   /* into CUDA: see cuda_calls.h */
	struct autograd *autograd;  /* see autograd.h; NULL: not wanted */
	struct modules *modules;    /* see modules.h; NULL: not wanted */
	struct mt_py_layout layout; /* that the programs were loaded with */
	struct waiting wait;
	struct ptrace_hold hold; /* of a command that is being attached to */
	int nice;		 /* ours before the waiting, while hastened */
	bool hastened;
	struct dict *dict;
	struct facts *facts;
	struct symbolizer *names;
	struct queue queue;
	struct session_state *state;	      /* from the attaching on */
	struct session_census *census;	      /* the same; NULL: not wanted */
	struct map64 *stacks;		      /* stack id -> dict stack | OPTIMIZER_EXIT | WHOLE */
	struct map64 *outer;		      /* stack id -> the outermost module object on it */
	struct map64 *old_stacks, *old_outer; /* the same, of ids from before the others: what is on
						 its way may refer to them */
	struct map64 *roots;		      /* module objects whose calls are reported */
	struct map64 *threads;		      /* tid -> index */
	struct thread *thread;
	size_t n_threads, cap_threads, next_thread; /* next_thread: to be looked at */
	int image; /* proc__image() of the program that is or is to be traced, negative: could not
		      be opened */
	uint64_t start; /* CLOCK_MONOTONIC, ns */
	uint64_t cut;	/* ns since start: the steps asked for were whole, and nothing is handed on
			   after; 0: not yet */
	/* Where the epochs come from, but for our own: records about freed code objects that got
	 * lost. */
	uint64_t gone_lost;
	uint64_t gone_after, read_until; /* in a round: of those seen, those after the epoch at
					    which all had been read */
	uint64_t sure_epoch;		 /* up to which all of them were accounted for */
	uint64_t last_facts, next_look, look_pause; /* ns */
	uint64_t events, steps, lost, lost_said, unknown_stacks, twins;
	bool loss_open; /* there may be records in the ring from before the last loss that was told
			   of */
	uint64_t lost_at; /* what was told of in this round */
	bool lost_steps_said;
	uint64_t counters[MT_CNT_NR]; /* a second old at most; what probes__notices() is about, as
					 of this round */
	uint64_t notices;	      /* probes__notices(), before they were read */
	uint64_t stacks_again; /* records of stacks that were named already: each CPU sends its own */
	uint64_t forgotten;    /* how often the programs have, as far as is known here */
	uint32_t strange_ends; /* of code objects that no stack had, told since the programs forgot
				  which ones stacks have */
	bool attached, tried_sleepable, have_codes;
	bool from_start; /* the probes were in place before any of PyTorch's code could run */
	bool threads_forgotten; /* one that is heard of may have been heard of before */
	bool behind;		/* the ring was not drained to its end */
	uint64_t taken;	   /* what is in the ring up to here has been handed on (probes__taken()) */
	bool forked;	   /* by one that was traced */
	bool joined_early; /* of one that is followed: its hits were recorded before PyTorch was
			      mapped */
	uint64_t unseen;   /* of them (below), see cuda_calls__unseen() */
	uint64_t early_lost; /* never came to a probe; and records of before it was looked at, for
				which there was no room */
	bool blind; /* the end of code objects is not reported any more: none may be read */
	struct sink *const *sinks;
	size_t n_sinks;
};

/* session.c: one with nothing in it. NULL and *f on failure. */
struct session *session__make(const struct session_opts *opts, struct failure *f);
/* session.c: a record of its own, or about a code object that was freed: into the queue. For
 * probes__consume(). */
int session__enqueue(void *session, const void *rec, size_t len);
/* What has been read is of a time before these: ends that were told of before anything could be
 * made of them. 0 or -ENOMEM. */
int session__catch_up(struct session *s);
/* session.c: a hook that is worth having and not worth failing for. */
void session__attach_optional(struct session *s, enum hook_id id);

/*
 * session_wait.c: 0 when PyTorch is in the process and has been looked at; -EAGAIN not yet; else
 * negative with *f. What can be done beforehand is done.
 */
int session__await(struct session *s, struct failure *f);
/* What was held runs on, and unless it is waited for again we are in no hurry any more. */
void session__let_go(struct session *s, bool again);
/* The BPF programs for the interpreter as it is known now, unless they are loaded. 0 or negative
 * with *f. */
int session__load(struct session *s, struct failure *f);
/* Once attached: has more been mapped, of PyTorch too? Then its map and facts are new. */
void session__renew(struct session *s);
/* With the probes in place: is it sure that none of PyTorch's code had run before? */
bool session__before_torch(const struct session *s);

/*
 * session_group.c: of a session that follows children, nothing else does anything here. join: its
 * hits are recorded by s->probes from now on, under its number; leave: no more. fit: that they are
 * attached where this process has its code, others where not. 0 or negative with *f.
 */
bool session__take_number(struct session *s); /* false: none is left, or the process has ended */
void session__join(struct session *s, uint64_t type_cell);
void session__leave(struct session *s);
int session__fit(struct session *s, struct failure *f);

/* session.c: drains the ring once and hands on what was in it. 0 or negative, as session__pump(). */
int session__round(struct session *s);

/* decode.c: an event of the stream: to the sinks, or where it has to wait first. 0 or the error of
 * one. */
int session__emit(struct session *s, const struct event *e);
/* The thread of a record; NULL: no memory. Valid until the next call. */
struct thread *session__thread(struct session *s, uint32_t tid);
/* Now and then: which of them have ended? Looks at some. */
void session__look_at_threads(struct session *s);
/* A record's stack id as the dict's number; takes the walk's outcome along where the frames never
 * came. */
uint32_t session__stack(struct session *s, uint64_t id, uint8_t *walk);
/* It has come in before, and all of it could be named: it need not be again. */
bool session__knows_stack(const struct session *s, uint64_t id);
/* A record's time as an event has it. */
uint64_t session__since(const struct session *s, uint64_t time);
/* Straight to the sinks. */
int session__dispatch(struct session *s, const struct event *e);
/* Turns one record of the kernel side into what it means. 0, -ENOMEM, -EBADMSG (no such record), a
 * sink's error. */
int session__record(struct session *s, const void *rec, size_t len);
/* Modules are other ones: all stacks are named, and their roots reported, anew. */
void session__forget_roots(struct session *s);

/*
 * session_attach_state.c: the CUDA allocator's own tables. Open it before the probes come; begin
 * when they are there; then all events go through it, since those that come before all is known of
 * what was there before have to wait. pump: now and then; last: before the probes go; finish: after
 * the last event is in. 0, -ENOMEM or the error of a sink.
 */
int session__open_state(struct session *s);
int session__before_state(
	struct session *s); /* before the probes are attached: 0 or -ENOMEM, as the next */
int session__begin_state(struct session *s);
/*
 * The same for a forked process. If its parent has used CUDA, its tables are a copy, and the memory
 * is the parent's: none of it counts here, nor does what it frees of that (counter.cuda_copies).
 * CUDA is of no use to such a process.
 */
int session__begin_forked_state(struct session *s, const struct session *parent);
int session__through_state(struct session *s, const struct event *e);
int session__pump_state(struct session *s, uint64_t now);
/* What PyTorch's CUDA allocator is now, and the fact "allocator" with it. ALLOC_NONE: there is
 * none, or it cannot be found. */
enum alloc_backend session__backend(struct session *s);
int session__cuda_devices(
	struct session *s); /* that the process's allocator counts; <= 0: not known */
int session__last_segments(struct session *s);
int session__finish_state(struct session *s);
void session__close_state(struct session *s);

/*
 * session_census.c: what blocks are for. Open it once attached; pump: now and then, once the
 * allocator's state is known; last: before the probes go. 0, -ENOMEM or the error of a sink.
 */
int session__open_census(struct session *s);
int session__pump_census(struct session *s, uint64_t now);
int session__last_census(struct session *s);
void session__close_census(struct session *s);
/* Every event, as it is handed on: what is freed is no parameter's any more. 0 or -ENOMEM. */
int session__census_sees(struct session *s, const struct event *e);
/* Name and module, in the dict, of the parameter whose TensorImpl is there, as of the last reading.
 * False: not known. */
bool session__parameter(void *session, uint64_t tensor, uint32_t *name, uint32_t *module);
/* session_attach_state.c: what was there before is known, or is not to be had. */
bool session__state_known(const struct session *s);

/* session_facts.c: the facts about target and capture, once all is known. 0 or -ENOMEM. */
int session__set_facts(struct session *s);
/* Facts "rank", "local_rank" and "world_size", unless they are there. */
void session__set_rank(struct session *s);
/* When the stream begins: now. 0 or -ENOMEM. */
int session__set_start(struct session *s);
/* Those about PyTorch, which is looked at again when more of it has been mapped. 0 or -ENOMEM. */
int session__set_torch_facts(struct session *s);
/* The kernel side's counters and ours, as facts. */
void session__set_counters(struct session *s, const uint64_t c[MT_CNT_NR]);

#endif
