/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * State that the decoders of records share (decoder.c, modules.c, autograd.c, cuda_calls.c): the
 * clock, threads, stacks and names of one process, and where events go.
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
struct neighbours_stage;
struct oom_copies;
struct phases;
struct probes;
struct step_cost;
struct symbolizer;
struct target;
struct probed_scopes;

#define CUDA_PUSHED 4 /* size of thread.pushed: CUDA contexts kept below a thread's current one */

/* Flags of an entry of decoder.stacks. The lower 32 bits are the stack's dictionary number. */
#define STACK_OPTIMIZER_EXIT (1ULL << 32) /* the stack is of the exit of an optimizer's step */
#define STACK_SCOPE_EXIT (1ULL << 35)	  /* the stack is of the exit of a record_function */
#define STACK_WHOLE (1ULL << 33)	  /* all frames and modules of the stack have names */
#define STACK_BEGINS (1ULL << 34) /* the stack ends where the call of its only module begins */

/* A thread of the process that has sent a record. */
struct thread {
	uint32_t tid;
	uint32_t number;  /* the dictionary's number of the thread */
	uint64_t started; /* from proc__thread_started(); 0: the thread had ended */
	bool gone;	  /* the thread has ended, and another one may have its tid */
	uint64_t seen;	  /* time of the thread's last record, CLOCK_MONOTONIC, ns */
	uint32_t node; /* dictionary number of the autograd node that the thread runs or ran last;
			  0: unknown */
	bool accumulates;	/* .node is an AccumulateGrad node */
	uint64_t node_began;	/* when .node began to run, CLOCK_MONOTONIC, ns */
	uint8_t cuda_device_no; /* CUDA's current device of the thread, plus 1; 0: unknown */
	uint8_t n_pushed;	/* entries of .pushed */
	uint64_t cuda_context;	/* handle of the current CUDA context; 0: the primary one of the
				   device; UINT64_MAX: unknown */
	struct {
		uint64_t context;
		uint8_t device;
	} pushed[CUDA_PUSHED]; /* contexts below the current one, the top one last */
	/* Bytes of device memory that CUDA refused PyTorch's allocator in its last such call; 0:
	 * it did not refuse them. */
	uint64_t refused;
	uint64_t called_root; /* the root module that the thread called last, until forward makes a
				 node of autograd in that call; 0: none */
	/* The thread's last record, if that was a New or Delete of CPU memory, to drop PyTorch's
	 * second report of the same. */
	uint64_t cpu_addr; /* address; 0: the last record was another */
	int64_t cpu_size;  /* bytes of a New; negative: a Delete, which does not pass the size */
	struct mt_rec_mem first_twin; /* the sleepable programs' record of a hit while both sets
				    run; see is_twin() */
	bool expects_twin;	      /* the other programs' record of .first_twin has not come */
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
	bool warned_native;	/* the warning that a native stack could not be read was given */
	struct oom_copies *oom; /* NULL: no allocation with tensors in its frames failed */
	struct neighbours_stage *neighbours; /* NULL: nothing failed on a device */
	struct host_memory *host;	     /* NULL: host memory is not recorded */
	struct phases *phases;		     /* scopes that the program writes */
	struct probed_scopes *probed;	     /* scopes that probes see */
	uint64_t same_until; /* ns since start; later records of host memory are dropped: the
				process may have become another program (exec) */
	struct sink *next;   /* gets every event; borrowed */
	/* Called at the end of each step, also of those after the requested ones; NULL: none. time:
	 * ns since start. */
	void (*on_step)(void *ctx, uint64_t time);
	void *on_step_ctx;
	/* Decides in which steps allocations have stacks; NULL: in all. */
	struct step_cost *step_cost;
	uint64_t start;	       /* CLOCK_MONOTONIC, ns; 0: events have not begun */
	uint64_t record_time;  /* time of the last record, CLOCK_MONOTONIC, ns */
	uint64_t cut;	       /* ns since start: the requested steps are complete, later events are
				  dropped; 0: not yet */
	bool has_memory;       /* a record of a probe on allocations has come */
	struct map64 *changed; /* set of addresses that were allocated or freed after .cut; NULL:
				  there is no cut, or the set would lack some */
	bool from_start;       /* the probes were in place before PyTorch's code could run */
	bool no_torch;	       /* calls into CUDA are the blocks: there is no PyTorch */
	bool forked;	       /* the process was forked by a traced one */
	struct map64 *stacks;  /* stack id -> dictionary stack | STACK_... */
	struct map64 *outer;   /* stack id -> outermost module object on that stack */
	/* .stacks and .outer of earlier epochs, for records that are still in the ring. */
	struct map64 *old_stacks, *old_outer;
	/* Root modules, by address: the programs report their calls -> enum root_kind. old_roots:
	 * those before decoder__forget_roots() was called last. */
	struct map64 *roots, *old_roots;
	struct map64 *root_names; /* set of the dictionary's numbers of root modules so far */
	bool tensor_root;	  /* a root module has tensors */
	struct map64 *threads;	  /* tid -> index in thread */
	struct thread *thread;
	size_t n_threads, cap_threads;
	size_t next_thread;	 /* the next one that decoder__check_threads() checks */
	bool threads_forgotten;	 /* the table was cleared: a new entry may be an old thread */
	uint64_t steps;		 /* EVENT_STEP so far */
	uint64_t unknown_stacks; /* records so far whose stack never came */
	uint64_t twins;		 /* records dropped by is_twin() */
	struct step_clock clock; /* what --steps counts */
	/* Dictionary numbers of the stacks for allocations that were not drawn for a walk, and for
	 * those in steps without detail; 0: none so far. */
	uint32_t not_sampled, between_steps;
	uint64_t stacks_again; /* stacks that were sent again although they were known */
};

/* Passes an event to d->next, or drops it if the requested steps are complete. 0, -ENOMEM or the
 * sink's error. */
int decoder__emit(struct decoder *decoder, const struct event *event);

/* True if the hook is attached for the process. */
bool decoder__is_probed(const struct decoder *decoder, enum hook_id id);

/* False if decoder__stayed() cannot tell any more: the requested steps are complete, and a loss or
 * too many events came after them. */
static inline bool decoder__knows_stayed(const struct decoder *decoder)
{
	return !decoder->cut || decoder->changed;
}

/* True if nothing was allocated or freed at addr since the requested steps were complete, or if
 * they are not complete. */
bool decoder__stayed(const struct decoder *decoder, uint64_t addr);

/* The thread with this tid, created if new. NULL: out of memory. Valid until the next call. */
struct thread *decoder__thread(struct decoder *decoder, uint32_t tid);
/* Finds out which of up to 64 threads have ended, others with each call. Call it about once a
 * second. */
void decoder__check_threads(struct decoder *decoder);
/* The dictionary's stack for a stack id; 0: none. If the stack's record never came, *walk becomes
 * MT_WALK_LOST. */
uint32_t decoder__stack(struct decoder *decoder, uint64_t id, uint8_t *walk);
/* Like decoder__stack(). Also sets *flags, STACK_...; 0 for no stack. flags may be NULL. */
uint32_t decoder__mark_stack(struct decoder *decoder, uint64_t id, uint8_t *walk, uint64_t *flags);
/* Adds the native frames that were recorded for a thread's event at this time (CLOCK_MONOTONIC,
 * ns) to its *stack and *walk: see native_stacks__join(). Warns once if they cannot be read. 0 or
 * -ENOMEM. */
int decoder__join_native(struct decoder *decoder, uint32_t tid, uint64_t time, uint32_t *stack,
			 uint8_t *walk);
/* True if the stack with this id was decoded and all its frames and modules have names. */
bool decoder__knows_stack(const struct decoder *decoder, uint64_t id);
/* The dictionary's number of a stack of one frame without a line, whose walk is MT_WALK_OFF. 0:
 * the dictionary is full. UINT32_MAX: out of memory. */
uint32_t decoder__named_stack(struct decoder *decoder, const char *file, const char *function);
/* Address of the outermost module object on the stack with this id; 0: none. */
uint64_t decoder__outer_module(const struct decoder *decoder, uint64_t id);
/* The dictionary's number of a string; 0 for "" and when the dictionary is full; UINT32_MAX: out of
 * memory. */
uint32_t decoder__string(struct decoder *decoder, const char *text);

/* Now on the clock of the records' times, ns: CLOCK_MONOTONIC of this process for one that records
 * itself, otherwise the kernel's. */
static inline uint64_t decoder__clock(const struct decoder *decoder)
{
	return decoder->opts->inside ? clock__monotonic() : clock__kernel();
}

/* ns since start; 0 before it */
static inline uint64_t decoder__now(const struct decoder *decoder)
{
	return decoder->start ? decoder__clock(decoder) - decoder->start : 0;
}

/* A record's time as ns since start. */
static inline uint64_t decoder__since(const struct decoder *decoder, uint64_t time)
{
	return time > decoder->start ? time - decoder->start : 0;
}

/* Number of steps whose beginning and end are both in the stream: an optimizer's, or calls of the
 * model (clock.by_calls). */
uint64_t decoder__steps(const struct decoder *decoder);
