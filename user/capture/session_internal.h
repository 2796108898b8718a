/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_SESSION_INTERNAL_H
#define MT_CAPTURE_SESSION_INTERNAL_H
/* What the parts of a session share: its life (session.c), its facts
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

struct decoder;
struct dict;
struct session_census;
struct session_state;

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
	struct mt_py_layout layout; /* that the programs were loaded with */
	struct waiting wait;
	struct ptrace_hold hold; /* of a command that is being attached to */
	int nice;		 /* ours before the waiting, while hastened */
	bool hastened;
	struct decoder *decoder; /* from the attaching on */
	struct sink head;	 /* the decoder's */
	struct dict *dict;
	struct facts *facts;
	struct queue queue;
	struct session_state *state;   /* from the attaching on */
	struct session_census *census; /* the same; NULL: not wanted */
	int image; /* proc__image() of the program that is or is to be traced, negative: could not
		      be opened */
	/* Where the epochs come from, but for our own: records about freed code objects that got
	 * lost. */
	uint64_t gone_lost;
	uint64_t gone_after, read_until; /* in a round: of those seen, those after the epoch at
					    which all had been read */
	uint64_t sure_epoch;		 /* up to which all of them were accounted for */
	uint64_t last_facts, next_look, look_pause; /* ns */
	uint64_t events, lost, lost_said;
	bool loss_open; /* there may be records in the ring from before the last loss that was told
			   of */
	uint64_t lost_at; /* what was told of in this round */
	bool lost_steps_said;
	uint64_t counters[MT_CNT_NR]; /* a second old at most; what probes__notices() is about, as
					 of this round */
	uint64_t notices;	      /* probes__notices(), before they were read */
	uint64_t forgotten;	      /* how often the programs have, as far as is known here */
	uint32_t strange_ends; /* of code objects that no stack had, told since the programs forgot
				  which ones stacks have */
	bool attached, tried_sleepable, have_codes;
	bool behind;	   /* the ring was not drained to its end */
	uint64_t taken;	   /* what is in the ring up to here has been handed on (probes__taken()) */
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

/* Straight to the sinks. */
int session__dispatch(struct session *s, const struct event *e);
/* Once probes are loaded and the target is known. 0 or -ENOMEM. */
int session__open_decoder(struct session *s);

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
