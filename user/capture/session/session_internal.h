/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the files of a session. Each file calls only those below it in this list:
 *
 *   session.c         regular work
 *   session_attach.c  beginning, attaching, forked processes and groups
 *   session_host.c    host memory
 *   session_malloc.c  probes on malloc
 *   session_round.c   draining the ring
 *   session_facts.c   facts and answers about a session
 *
 * stages.h shows which stages an event passes.
 */
#include <stdbool.h>
#include <stdint.h>

#include "capture/cost/cost_control.h"
#include "capture/cost/measure.h"
#include "capture/cost/step_cost.h"
#include "capture/decode/queue.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "capture/target.h"
#include "inspect/arrival.h"

struct attach_stage;
struct census_stage;
struct sleep_stage;
struct decoder;
struct dict;

#define DRAINS 64			  /* rounds at most to empty the ring */
#define SESSION_FACTS_EVERY 1000000000ULL /* ns between two updates of counters and facts */

/* For session_attach.c: the wait for PyTorch. Times are CLOCK_MONOTONIC, ns. */
struct waiting {
	uint64_t since;	  /* when the process's present program was seen first; 0: not yet */
	uint64_t pages;	  /* size of the address space when its map was read last */
	uint64_t changed; /* when that size changed last */
	uint64_t jumped;  /* when the size last exceeded .pages by PyTorch's size; 0: not yet */
	uint64_t next;	  /* when to read the map again, even if the size is the same */
	struct ptrace_hold hold; /* the command that we hold while we attach */
	int nice;		 /* our nice value before it was lowered */
	bool hastened;		 /* our nice value is lowered */
	uint64_t cuda_since;	 /* when CUDA was seen first without PyTorch; 0: not yet */
	bool lacks_number;	 /* at the last look, the group had no number left for it */
	bool said_why;		 /* a debug message said why Python cannot be read */
	bool ran;		 /* the command that we started runs its own program */
	bool joined_early;   /* a group's probes recorded the process before it mapped PyTorch */
	uint64_t next_look;  /* time of the next search for torch.nn, ns since start */
	uint64_t look_pause; /* pause after that search, ns */
};

/*
 * For session_round.c: whether all records about freed code objects have come. The epoch counts the
 * ends of code objects that recorded stacks may have; see code_cache.h.
 */
struct code_ends {
	uint64_t lost;	     /* records about ends of code objects that were lost so far */
	uint64_t read_until; /* epoch when this round's reading ended; UINT64_MAX: before that */
	uint64_t after;	     /* records that came in this round, with an epoch after read_until */
	uint64_t sure_epoch; /* all records up to this epoch are accounted for */
	uint64_t forgotten;  /* probes__times_forgotten() as of the last round */
	uint32_t unmarked;   /* ends of code objects on no stack, since session__renew_marks() */
};

/* For session_round.c: records and hits of probes that got lost. */
struct losses {
	uint64_t counters[MT_CNT_NR]; /* the programs' counters, at most a second old */
	uint64_t notices;	      /* probes__notices() before `counters` were read */
	uint64_t early;		      /* sum of losses that are not in counters: before attach,
					 unseen, removed, skipped */
	uint64_t unseen;	      /* reports that no probe saw: cuda_calls__unseen() */
	uint64_t removed;	      /* breakpoints that were set again: probes__renew() */
	/* Hits that the kernel skipped since the first look. With a group, any process's. */
	struct probes_skipped skipped, skipped_before;
	bool skipped_known; /* skipped_before is set */
	/* Hits that no other count has, by enum mt_rec_type: session__account() at the end */
	uint64_t unaccounted[MT_REC_TYPES];
	uint64_t brought_in; /* pages read because walks missed them */
	uint64_t total;	     /* records of all kinds */
	uint64_t reported;   /* records about memory, as of the last EVENT_LOST */
	uint64_t in_round;   /* part of reported that was added in this round */
	uint64_t scopes;     /* records of begins and ends of scopes, as of the last drain */
	bool open;	     /* records older than the last loss may still be in the ring */
	bool steps_warned;   /* the loss of ends of steps was logged */
	bool scopes_warned;  /* the loss of begins and ends of scopes was logged */
};

/* For session.c: the time that the capture adds to the target, and the detail that it leaves out. */
struct spending {
	struct cost_control control;
	struct step_cost steps; /* decides where steps are known, otherwise .control does */
	struct measure measure;
	unsigned level;		  /* enum cost_level that the programs have */
	enum step_cost_mode said; /* the mode that was logged last */
	struct cost_detail noted; /* the detail recorded last in the fact cost.changes */
	uint64_t next;		  /* time of the next measurement of the cost, ns since start */
	double last;		  /* share of the target's time, at the last measurement */
};

/* For session_malloc.c: the probes on malloc. */
struct session_malloc {
	struct measure measure;
	double limit;	  /* share of a core that they may take */
	uint64_t took;	  /* ns that were measured */
	uint64_t every;	  /* one byte in so many is in the sample */
	uint64_t samples; /* blocks chosen until the last look */
	uint64_t looked;  /* time of the last look at their cost, ns since start; 0: none */
	uint64_t next;	  /* time of the next one */
	unsigned dear;	  /* looks in a row above the limit */
	bool on;	  /* they are in place and choose blocks */
	char files[256];  /* names of the files whose malloc is probed, with commas */
};

struct session {
	struct session_opts opts;
	struct target target;
	struct probes *probes;
	struct mt_py_layout layout; /* the interpreter that the programs were loaded for */
	struct waiting wait;
	struct dict *dict;
	struct facts *facts;
	struct queue queue;	     /* records between ring and decoder */
	struct decoder *decoder;     /* NULL before attach, as the stages */
	struct census_stage *census; /* NULL with no_census, too */
	struct attach_stage *attach;
	struct sleep_stage *sleep;
	struct sink *sink; /* sink of the last pump, borrowed; NULL: none */
	struct code_ends ends;
	struct losses losses;
	struct spending cost;
	struct session_malloc malloc;
	int image;	     /* proc__image() of the program to be traced; negative: unknown */
	uint64_t last_facts; /* time of the last update of facts, ns since start */
	uint64_t taken;	     /* all records up to this place in the ring are decoded */
	uint64_t written;    /* probes__written() at the last pump */
	uint64_t begins;     /* ns since start: the last search for a part of PyTorch; 0: none */
	uint64_t busy;	     /* ns since start: the last time with a new stack, a page that was
			absent or much to drain */
	bool attached;
	bool forked; /* from session__new_forked() */
	/* There is no PyTorch: calls into CUDA and host memory are recorded, until PyTorch comes. */
	bool no_torch;
	bool torch_refused;   /* with no_torch: PyTorch came, and its tensors cannot be recorded */
	bool behind;	      /* the ring was not drained to its end */
	bool stopped;	      /* the programs record and count no more */
	bool blind;	      /* the probes are removed: code objects must not be read any more */
	bool tried_sleepable; /* the sleepable programs were attached or refused */
	bool have_codes;      /* the programs know which frames are calls of modules */
};

/* ---- session_attach.c ---- */

/* Reads the map and PyTorch's facts again if more was mapped. */
void session__renew(struct session *session);
/* In a session that began without PyTorch: attaches to it when it comes. 0, -ENOMEM or a sink's
 * error. */
int session__meet_torch(struct session *session);
/* Attaches the hooks of modules and steps once torch.nn is imported; now: ns since start. */
void session__look_into_torch(struct session *session, uint64_t now);

/* ---- session_host.c ---- */

/* Begins to record host memory, if wanted. inherited: the process was forked. 0 or -ENOMEM. */
int session__begin_host(struct session *session, bool inherited);
/* Takes a reading that has ended, and begins one if it is time to. 0, -ENOMEM or a sink's error. */
int session__pump_host(struct session *session);
/* The last reading, before the probes are removed. 0, -ENOMEM or a sink's error. */
int session__last_host(struct session *session);

/* ---- session_malloc.c ---- */

/* Probes malloc, if wanted, and counts its calls. 0; negative with *failure: not possible, or it
 * would cost more than the limit. */
int session__attach_malloc(struct session *session, struct failure *failure);
/* From now on the probes choose blocks. 0 or -ENOMEM. */
int session__begin_malloc(struct session *session);
/* Removes the probes when they have cost too much for two seconds. now: ns since start. 0 or
 * -ENOMEM. */
int session__pump_malloc(struct session *session, uint64_t now);

/* ---- session_round.c ---- */

/* Bytes of the ring that the programs write to. */
size_t session__ring_size(const struct session *session);
/* For probes__consume(): puts a record of the process into the queue. 0, -ENOMEM, or -EAGAIN: the
 * record is in the queue, but the queue is full now. */
int session__enqueue(void *session, const void *rec, size_t len);
/* Call it when the decoder is opened: tells it of the code objects that were freed before. 0 or
 * -ENOMEM. */
int session__catch_up(struct session *session);
/* Drains the ring once, decodes what was in it, and asks for the driver's figure. 0, -ENOMEM or the
 * sink's error. */
int session__round(struct session *session);
/* session__round() without cuda_calls__before_drain(): drains the ring to the queue, reads new
 * names, and decodes the queue. only_names: the ring is drained for the names of a new stack, so
 * look for losses only if it is half full. 0, -errno or the sink's error. */
int session__drain_ring(struct session *session, bool only_names);
/* Emits the event that ends a loss, once all records from before the loss are decoded. 0 or the
 * sink's error. */
int session__end_losses(struct session *session, uint64_t now);
/*
 * Once the programs are stopped: drains the ring and checks that for each type of record
 * hits = records + filtered + lost. Waits for programs that still run. Hits that are in no count
 * after that count as lost, which the next round emits, and a warning says so. Two types are left
 * out:
 *   - MT_REC_STACK, which is part of other hits,
 *   - MT_REC_CODE_GONE of a process in a group, whose programs go on. Code objects have epochs.
 * With a group, call it before the group forgets the process: programs look up the process's number
 * again for each count and record. Otherwise call it when the probes are removed, since stopped
 * programs go on counting MT_REC_CODE_GONE. 0, -ENOMEM or the sink's error.
 */
int session__account(struct session *session);
/* True if hits and records of a type (enum mt_rec_type) are counted for this session: a stack has
 * no probe of its own, and programs of a process group count code objects for all of it. */
static inline bool session__has_hits(const struct session *session, unsigned int type)
{
	return type != MT_REC_STACK && (type != MT_REC_CODE_GONE || !session->opts.group);
}
/*
 * Makes the programs forget which code objects stacks have, once many others were freed. They mark
 * objects by hash: with too many marks nearly every end makes all stacks be sent again.
 */
void session__renew_marks(struct session *session);

/* ---- session_facts.c ---- */

/* Sets the facts "pid", "comm" and "cmdline", for a process that ends before the attach. 0 or
 * -ENOMEM. */
int session__set_who(struct session *session);
/* Sets the facts about target and capture, once the target is known. 0 or -ENOMEM. */
int session__set_facts(struct session *session);
/* Sets the facts "rank", "local_rank" and "world_size", unless they are set. */
void session__set_rank(struct session *session);
/* Sets the fact "start" to now, and, once events have a time, the facts about the host's clock. 0
 * or -ENOMEM. */
int session__set_start(struct session *session);
/* Sets the fact "clock_moved_ns". Call it at the end. */
void session__set_clock_end(struct session *session);
/* Sets the facts about PyTorch. Call it again when more of it was mapped. 0 or -ENOMEM. */
int session__set_torch_facts(struct session *session);
/* Sets the facts "counter.*". counters: of the BPF programs; the others are in session. */
void session__set_counters(struct session *session, const uint64_t counters[MT_CNT_NR]);
