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
#include "process/ptrace_hold.h"
#include "capture/queue.h"
#include "capture/session.h"
#include "capture/target.h"
#include "torch/cudaalloc.h"

struct decoder;
struct dict;
struct attach_stage;
struct census_stage;

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
	struct decoder *decoder;     /* from the attaching on */
	struct census_stage *census; /* likewise; NULL: not wanted */
	struct attach_stage *attach; /* likewise */
	struct dict *dict;
	struct facts *facts;
	struct queue queue;
	int image; /* proc__image() of the program that is or is to be traced, negative: could not
		      be opened */
	/* Where the epochs come from, but for our own: records about freed code objects that got
	 * lost. */
	uint64_t gone_lost;
	uint64_t gone_after, read_until; /* in a round: of those seen, those after the epoch at
					    which all had been read */
	uint64_t sure_epoch;		 /* up to which all of them were accounted for */
	uint64_t last_facts, next_look, look_pause; /* ns */
	uint64_t lost, lost_said;
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
	bool blind;	   /* the end of code objects is not reported any more: none may be read */
	struct sink *sink; /* of the last pump */
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

/* session.c: the stages that events pass (stages.h), each once those after it are there; the
 * decoder once probes are loaded. 0 or -ENOMEM. */
int session__open_decoder(struct session *s);
int session__open_attach_stage(struct session *s);
int session__open_census_stage(struct session *s);

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
