/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What the decoders of records share (decoder.c, modules.c, autograd.c, cuda_calls.c): the state of
 * one process's decoder, its clock, threads, stacks and names, and where events go.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "capture/decode/step_clock.h"
#include "capture/probes/session_opts.h"
#include "inspect/torch.h"
#include "memtrace.h"
#include "record/stream.h"

struct autograd;
struct cuda_calls;
struct dict;
struct host_memory;
struct map64;
struct modules;
struct native_stacks;
struct probes;
struct symbolizer;
struct target;

#define CUDA_PUSHED 4 /* CUDA contexts kept below a thread's current context */

/* What is known of a stack, above its number in the dictionary. */
#define STACK_OPTIMIZER_EXIT (1ULL << 32)
#define STACK_WHOLE (1ULL << 33)  /* all its frames and modules are named */
#define STACK_BEGINS (1ULL << 34) /* it ends where the call of its only module begins */

/* A thread of the process that has sent a record. */
struct thread {
	uint32_t tid;
	uint32_t number;  /* in the dictionary */
	uint64_t started; /* proc__thread_started(); 0: it had ended */
	bool gone;	  /* it has ended, and another thread may have its tid */
	uint64_t seen;	  /* time of its last record, CLOCK_MONOTONIC, ns */
	uint32_t node; /* dictionary number of the autograd node it runs or ran last; 0: unknown */
	bool accumulates;	/* that node is an AccumulateGrad */
	uint64_t node_began;	/* when it began, CLOCK_MONOTONIC, ns */
	uint8_t cuda_device_no; /* current device + 1; 0: unknown */
	uint8_t n_pushed;
	uint64_t cuda_context; /* current context; 0: a device's primary one; UINT64_MAX: unknown */
	struct {
		uint64_t context;
		uint8_t device;
	} pushed[CUDA_PUSHED];	 /* contexts below the current one, the top one last */
	uint64_t cpu_addr;	 /* address of the New or Delete that was the thread's last record,
				    to drop PyTorch's second report of it; 0: none */
	int64_t cpu_size;	 /* its bytes; negative for Delete, which does not pass the size */
	struct mt_rec_mem first; /* the sleepable programs' record of a hit while both sets run;
				    see is_twin() */
	bool first_open;
};

struct decoder {
	const struct session_opts *opts; /* borrowed, as all members up to facts */
	struct target *target;
	struct probes *probes;
	struct dict *dict;
	struct facts *facts;
	struct symbolizer *names;
	struct cuda_calls *calls;     /* NULL: calls into CUDA are not recorded */
	struct autograd *autograd;    /* NULL: backward is not joined to forward */
	struct modules *modules;      /* NULL: calls of modules are not recorded */
	struct native_stacks *native; /* NULL: native stacks are not recorded */
	bool warned_native;	      /* the warning that one could not be read was given */
	struct host_memory *host;     /* NULL: host memory is not recorded */
	uint64_t same_until; /* of its records: until then the process ran the same program */
	struct sink *next;   /* gets every event; borrowed */
	/* Called at the end of each step, also of those after the requested ones; NULL: none. time:
	 * ns since start. */
	void (*on_step)(void *ctx, uint64_t time);
	void *on_step_ctx;
	uint64_t start;	       /* CLOCK_MONOTONIC, ns; 0: events have not begun */
	uint64_t record_time;  /* of the last record, CLOCK_MONOTONIC, ns */
	uint64_t cut;	       /* ns since start: the requested steps are complete, later events are
				  dropped; 0: not yet */
	bool has_memory;       /* a record of the allocation probes has come */
	struct map64 *changed; /* addresses allocated or freed after the cut; NULL: not known */
	bool from_start;       /* the probes were in place before PyTorch's code could run */
	bool cuda_only;	       /* calls into CUDA are the blocks: there is no PyTorch */
	bool forked;	       /* the process was forked by a traced one */
	struct map64 *stacks;  /* stack id -> dictionary stack | STACK_... */
	struct map64 *outer;   /* stack id -> outermost module object on that stack */
	struct map64 *old_stacks, *old_outer; /* ids of earlier epochs: records still in the ring
						 may refer to them */
	/* Module objects whose calls are reported -> enum root_kind; before the last time that
	 * all were forgotten. */
	struct map64 *roots, *old_roots;
	struct map64 *root_names; /* numbers of their modules in the dictionary */
	bool tensor_root;	  /* one of them has tensors */
	struct map64 *threads;	  /* tid -> index in thread */
	struct thread *thread;
	size_t n_threads, cap_threads, next_thread; /* next_thread: the next to be checked */
	bool threads_forgotten; /* the table was cleared: a new entry may be an old thread */
	uint64_t steps, unknown_stacks, twins; /* events and records so far */
	struct step_clock clock;	       /* what --steps counts */
	uint32_t not_sampled;  /* the dictionary's stack of allocations that were not drawn for a
				  walk; 0: none so far */
	uint64_t stacks_again; /* records of stacks that were known */
};

/* Passes an event to the next sink, unless the requested steps are complete. 0 or its error. */
int decoder__emit(struct decoder *d, const struct event *e);

bool decoder__is_probed(const struct decoder *d, enum hook_id id);

/* True if, after the requested steps, it is known which blocks stayed; before, always. */
static inline bool decoder__knows_stayed(const struct decoder *d)
{
	return !d->cut || d->changed;
}

/* True if nothing was allocated or freed at addr since the requested steps were complete. */
bool decoder__stayed(const struct decoder *d, uint64_t addr);

/* The thread with this tid, created if new. NULL: out of memory. Valid until the next call. */
struct thread *decoder__thread(struct decoder *d, uint32_t tid);
/* Checks a few threads for having ended. Call it about once a second. */
void decoder__check_threads(struct decoder *d);
/* The dictionary's stack for a stack id; 0: none. If the stack's record never came, *walk becomes
 * MT_WALK_LOST. */
uint32_t decoder__stack(struct decoder *d, uint64_t id, uint8_t *walk);
/* decoder__stack(), which also tells whether the stack is the exit of an optimizer's step, if
 * optimizer_exit is not NULL. */
uint32_t decoder__mark_stack(struct decoder *d, uint64_t id, uint8_t *walk, bool *optimizer_exit);
/* Adds native frames to the stack of a thread's event at that time (CLOCK_MONOTONIC, ns), if they
 * were recorded: native_stacks__join(). Warns if they cannot be read. 0 or -ENOMEM. */
int decoder__join_native(struct decoder *d, uint32_t tid, uint64_t time, uint32_t *stack,
			 uint8_t *walk);
/* True if a record with this stack came before and all its frames were named. */
bool decoder__knows_stack(const struct decoder *d, uint64_t id);
/* The dictionary's stack of one frame without a line, with the walk MT_WALK_OFF. 0: the dictionary
 * is full. UINT32_MAX: out of memory. */
uint32_t decoder__named_stack(struct decoder *d, const char *file, const char *function);
/* The outermost module object on a stack; 0: none. */
uint64_t decoder__outer_module(const struct decoder *d, uint64_t id);
/* The dictionary's number of a string; 0 for "" and when the dictionary is full; UINT32_MAX: out of
 * memory. */
uint32_t decoder__string(struct decoder *d, const char *text);

/* CLOCK_MONOTONIC of records, ns: ours for a process that records itself, otherwise the kernel's. */
static inline uint64_t decoder__clock(const struct decoder *d)
{
	return d->opts->inside ? clock__monotonic() : clock__kernel();
}

/* ns since start; 0 before it */
static inline uint64_t decoder__now(const struct decoder *d)
{
	return d->start ? decoder__clock(d) - d->start : 0;
}

/* A record's time as ns since start. */
static inline uint64_t decoder__since(const struct decoder *d, uint64_t time)
{
	return time > d->start ? time - d->start : 0;
}

/* Steps whose beginning and end are both in the stream: an optimizer's, or calls of the model
 * (clock.by_calls). */
uint64_t decoder__steps(const struct decoder *d);
