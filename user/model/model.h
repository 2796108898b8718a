/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_MODEL_H
#define MT_MODEL_MODEL_H
/*
 * The heap state machine: fed with the events of a stream, it knows the live set exactly, totals
 * and peaks per device, module and phase, steps, and the difference between the allocator's own
 * totals and ours after every event. One pass, O(1) an event, memory bound by live blocks, by what
 * the dict has, and by opts.sites; knows nothing of BPF or of files.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct model;

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER, PHASE_DATA, PHASE_OTHER, PHASE_NR };
const char *phase__name(enum phase p);
const char *category__name(enum category c); /* "optimizer_state" */

/*
 * AT_PEAK: first reached largest total, per device. AT_OOM: the first out-of-memory event, where
 * the trouble starts. AT_TIME: after the last event with time <= at_time.
 */
enum moment { AT_PEAK, AT_END, AT_OOM, AT_TIME };

struct model_opts {
	enum moment at;	  /* the moment whose live set model__rows() can give besides "now" */
	uint64_t at_time; /* ns since the start, for AT_TIME */
	/*
	 * How many distinct (stack, size ...) are kept besides those that live blocks have, now or
	 * at the moment; 0: some 260,000. Of others ROWS_TOTAL has no size, and where they are many
	 * no stack.
	 */
	uint32_t sites;
};

/* d and f must outlive the model; both may still grow. NULL on ENOMEM. */
struct model *model__new(const struct dict *d, const struct facts *f,
			 const struct model_opts *opts);
void model__free(struct model *m);
int model__event(struct model *m, const struct event *e); /* 0 or -ENOMEM */
/* These come next: brings what they need into the processor's caches. Changes nothing else. */
void model__soon(const struct model *m, const struct event *e, size_t n);
/* No more events; now: ns since the start. Closes the step and layer under way. */
void model__finish(struct model *m, uint64_t now);

/* What is known of what a device's allocator held when the capture began. */
enum state {
	STATE_NONE,   /* nothing but the totals of its first event */
	STATE_PARTLY, /* blocks and segments, but they do not add up to its totals */
	STATE_FULL,   /* they do, to the byte */
};
const char *state__name(enum state s); /* "none", "approximate", "exact" */

/*
 * What lost records leave of a figure. A peak of totals that the allocator carries is one that
 * there was, and between two events there may have been a higher one. How much is allocated is
 * exact again with the next total. Without totals nothing is.
 */
enum figure { FIGURE_EXACT, FIGURE_LOWER_BOUND, FIGURE_NOT_EXACT };
const char *figure__name(enum figure f); /* "exact", "lower_bound", "not_exact" */

struct model_device {
	struct device device;
	char name[16];	 /* "cuda:0", "cpu" */
	bool has_totals; /* the allocator carries totals: drift, reserved and before_attach mean
			    something */
	enum state state;
	uint64_t allocated, reserved; /* now; for a device without totals: live bytes known to us */
	uint64_t live;		      /* bytes of blocks known to us, now */
	uint64_t live_blocks;
	uint64_t peak_allocated, peak_reserved;
	uint64_t peak_time;			    /* ns, of peak_allocated */
	uint64_t most_unused, most_unused_reserved; /* reserved and not allocated, at most, and what
						       was reserved then */
	double avg_fragmentation; /* mean of (reserved - allocated) / reserved after each allocation
				     and free; 0 without totals */
	uint64_t peak_step;	  /* 0-based number of the step it fell in */
	enum phase peak_phase;
	uint64_t late; /* without totals: bytes that turned out, after the first event, to have been
			  there all along; in all sums */
	bool before_known; /* before_attach and before_attach_start are all there was: totals say
			      it, or we were there first */
	uint64_t before_attach; /* bytes that were there at the first event and are still there now */
	uint64_t before_attach_start; /* the same at the first event */
	uint64_t total_allocated;     /* sum of all allocations seen */
	uint64_t allocs, frees, ooms;
	uint64_t frees_unknown; /* frees of blocks that were there before attach and that nothing
				   told of */
	uint64_t overwritten; /* allocations at an address that was still live: a free was missed */
	uint64_t drift;	      /* largest |carried total - ours|, bytes */
	uint64_t drift_events; /* events at which it was not 0 */
	bool marked;	       /* the moment asked for came on this device */
	uint64_t mark_time, mark_allocated, mark_reserved, mark_before_attach;
	uint64_t mark_event; /* number of the last event before the moment, from 1 in the order
				given; 0: before all of them */
	enum figure peak_is, allocated_is,
		mark_is; /* of peak_allocated, allocated, mark_allocated */
};
size_t model__devices(const struct model *m); /* CUDA and such by index first, the CPU last */
void model__device(const struct model *m, size_t i, struct model_device *ret);
/* Index of the device a report is about unless told otherwise: the largest peak among non-CPU ones,
 * else the CPU; -1: none. */
int model__main_device(const struct model *m);
bool model__reserves(
	const struct model *m); /* the allocator of that device says what it reserves */
/* All devices but the CPU together. */
struct model_all {
	uint32_t devices;
	uint64_t allocated, reserved;		      /* now */
	uint64_t peak_allocated, peak_allocated_time; /* of the sum, not the sum of the peaks */
	uint64_t peak_reserved, peak_reserved_time;
};
void model__all(const struct model *m, struct model_all *ret);
int model__find_device(const struct model *m,
		       const char *name); /* "cuda:0", "cuda" (= cuda:0), "cpu"; -1 */

enum group { BY_LINE, BY_STACK, BY_MODULE, BY_LAYER, BY_PHASE, BY_THREAD, BY_CATEGORY, BY_NR };
/*
 * Of the fields of a row, those that its group does not speak of are those of its largest part, and
 * file, func, module and thread are NULL or "" unless the group is of them (BY_STACK: all of them).
 * BY_MODULE: exact module (dotted name); BY_LAYER: the module and everything inside it, rows
 * overlap and do not add up, so never shown as a sum. BY_LINE splits by phase, module and category
 * as the text report's columns do, and what was there before attach by name too.
 */

struct row_frame {
	const char *func, *file; /* owned by the dict */
	uint32_t line;
};

struct row {
	uint64_t bytes, count; /* count 0: not known (before attach) */
	uint64_t anonymous; /* before attach: bytes in blocks of which nothing is known; they are in
			       bytes, not in count */
	uint64_t median; /* of the sizes of the blocks in the row, of two in the middle the larger;
			    0: not known */
	uint64_t cumulative;	 /* running sum of bytes in the order given */
	uint64_t requested;	 /* 0: not known of all of the row's blocks */
	const char *file, *func; /* the line it is charged to; NULL: no Python line */
	uint32_t line;
	uint32_t stack; /* dict stack, for BY_STACK and for details: the largest one of the row */
	const char *module,
		*module_class;	 /* "" at top level; with any_module and several, "blocks.*.mlp" */
	uint32_t modules;	 /* distinct ones in the row */
	const char *module_root; /* class of the outermost module: tells two models apart */
	enum phase phase;
	const char *category; /* "unknown" as far as nothing tells; NULL: of several */
	const char *name;   /* of the one tensor that it is, as the program's objects have it; NULL:
			       not one, or not known */
	const char *source; /* "frame" | "autograd" (a line of forward, by the node) | "native" |
			       "untraced" | "hidden" | "census" (before attach) */
	const char *node_class; /* of the autograd node that ran, of the largest part; NULL: none */
	bool charged;		/* source is "autograd": the stack is that of the forward call */
	const char *thread;
	uint32_t tid;
	bool before_attach; /* there before the first event; file is NULL. What nothing names is one
			       row */
	bool filtered;	    /* of blocks that the caller did not choose */
};

/* Does node_class go below the stack as the innermost frame? Where Python ran in the node, that is
 * what is below. */
static inline bool row__has_leaf(const struct row *r)
{
	return r->node_class && (r->charged || !r->stack);
}

/* For qsort(): what --filter left out last, largest first; then by words, so that two captures of
 * one program come out alike. */
int row__compare(const void *a, const void *b);
/*
 * Makes pattern, a module's name or what several have in common, cover name too: components that
 * differ become "*"; names of different depth keep what they begin with. It gets longer by two
 * bytes at most.
 */
void pattern__cover(char *pattern, const char *name);

enum row_when {
	/* Moments: blocks that were live then, each by what is known of it now. BASE, STEP: those
	   that model__note() set. */
	ROWS_AT_MARK,
	ROWS_AT_BASE,
	ROWS_AT_STEP,
	ROWS_NOW,
	ROWS_TOTAL, /* everything ever allocated, of unknown category; median 0 where sizes were not
		       kept */
};
#define ROWS_MOMENTS ROWS_NOW

struct row_opts {
	enum group by;
	enum row_when when;
	bool innermost; /* --frames all: charge the innermost frame of all, not of user code */
	bool any_module, any_phase, any_category; /* BY_LINE: not split by them */
	/*
	 * Not 0: split by exactly these, by does not matter; bits 1 << BY_*, of line, stack,
	 * module, phase, thread and category. Where line is one and module is not, module says what
	 * the row's modules have in common.
	 */
	unsigned split;
	/*
	 * Files that are not charged, by path: the innermost line that remains is, of user code if
	 * there is some. Where none remains, file is NULL and source "hidden". NULL: all are.
	 */
	bool (*hide)(void *ctx, const char *file);
	/*
	 * Which blocks to show; NULL: all. r has all words of some blocks that are alike: their sum
	 * in bytes, their size in median, 0 where it is not known (and then count is). What is
	 * refused has rows of its own, filtered, behind the others.
	 */
	bool (*keep)(void *ctx, const struct row *r);
	void *ctx;
};
/*
 * The rows of a device, largest first; they add up to the device's live bytes at that moment
 * (BY_LAYER excepted), the row before_attach included. *ret is for free(). 0 or -ENOMEM, -ENOENT:
 * the moment never came.
 */
int model__rows(const struct model *m, size_t device, const struct row_opts *opts, struct row **ret,
		size_t *n);

/*
 * Two more moments to compare, for growth: after the last event given. when: ROWS_AT_BASE or
 * ROWS_AT_STEP; time: ns since the start. Keeps a few bytes for each block that was live then, even
 * after it is freed.
 */
void model__note(struct model *m, enum row_when when, uint64_t time);
void model__forget(struct model *m, enum row_when when);
/* False: not noted. time may be NULL. */
bool model__noted(const struct model *m, enum row_when when, uint64_t *time);
/* Bytes allocated on the device at a noted moment. Memory found later to have been there before the
 * first event is included. */
uint64_t model__noted_allocated(const struct model *m, size_t device, enum row_when when);

/* What --by stack says of memory of this stack; what is to be charged elsewhere has been. bytes and
 * count are not set. */
void model__stack_row(const struct model *m, uint32_t stack, uint32_t node, uint32_t thread,
		      uint8_t walk, struct row *ret);

struct live_block {
	uint64_t addr, size;
	uint64_t requested; /* 0: not known */
	uint64_t time;	    /* ns, when it came; 0 of those of the marked moment */
	bool stream_known;
	uint64_t cuda_stream;
	uint32_t stack, node, thread; /* what it is charged to */
	uint8_t walk;
	bool before_attach; /* there before the first event, and nobody knows where from */
	enum category category;
	const char *name; /* as the program's objects have it; NULL: not known */
	uint32_t module;
};
/* The live block at addr, as if it went now: its category is that of a whole life. False: none is
 * known there. */
bool model__live_block(const struct model *m, struct device device, uint64_t addr,
		       struct live_block *ret);
/*
 * The blocks of a device by address, those of which the address is known; *ret is for free(). 0 or
 * -ENOMEM, -ENOENT: the moment never came.
 */
int model__live_blocks(const struct model *m, size_t device, enum row_when when,
		       struct live_block **ret, size_t *n);

/*
 * A stretch of memory that the allocator took from CUDA and hands out in blocks; mappings side by
 * side in one reserved range are one. It can be given back to CUDA only as a whole, when no block
 * is left in it, or mapping by mapping.
 */
enum segment_size {
	SEGMENT_ANY,
	SEGMENT_OF_SMALL,
	SEGMENT_OF_LARGE
}; /* not known; for small, for large blocks */
#define SEGMENT_PINS 8
struct segment {
	uint64_t addr, size;
	uint64_t allocated, blocks, median; /* of the blocks in it */
	uint64_t requested;		    /* of them all; 0: not known */
	uint64_t pending; /* bytes that were freed before we came and waited for a stream; neither
			     allocated nor free */
	uint64_t free, gaps, largest_gap;
	uint64_t releasable; /* free, and can go back to CUDA: all of a segment without blocks,
				whole mappings of others */
	uint64_t stuck;	     /* free, and cannot */
	bool stream_known, pool_known;
	uint64_t cuda_stream, pool[2];
	enum segment_size kind;
	bool expandable;
	bool foreign; /* taken by other code than the allocator, which has put blocks into it */
	bool seen;    /* we saw it taken: at time, by what taken says */
	uint64_t time;
	struct row taken; /* as --by line has them; bytes and count are not set */
	struct row *pins; /* the lines that hold its blocks, largest first, at most SEGMENT_PINS */
	size_t npins;	  /* of them */
	uint64_t more_pins, more_pinned; /* lines beyond, and their bytes */
};

struct taken { /* device or managed memory taken by others than the allocator, by how and line */
	uint8_t how;	/* enum mem_how */
	struct row row; /* bytes, count, and the words of --by line */
};

/* The line, module and phase of the allocation that made the peak; no sums. False: it was there at
 * the first event, or nothing was. */
bool model__peak_line(const struct model *m, size_t device, bool innermost, struct row *ret);

struct model_segments {
	struct segment *all; /* what hurts most first: by stuck, then by size */
	size_t n;
	bool has_totals;
	uint64_t reserved, allocated; /* what the allocator says */
	uint64_t known;	 /* sum of the segments' sizes: equal to reserved if all are known */
	uint64_t inside; /* sum of their blocks */
	uint64_t outside, outside_blocks; /* blocks that lie in no known segment */
	uint64_t requested;		  /* of all blocks; 0: not known */
	uint64_t pending;
	bool pending_known; /* false: what was freed since may wait for a stream too, and counts as
			       free */
	uint64_t empty, empties; /* bytes in, number of segments without a block */
	uint64_t releasable;	 /* free bytes that can go back to CUDA, those of empty segments
				    included */
	uint64_t stuck;		 /* free bytes that cannot */
	uint64_t largest_gap;	 /* in any segment */
	struct taken *others;	 /* largest first */
	size_t nothers;
	uint64_t others_bytes, managed; /* device memory taken by others; managed memory, which may
					   be on the host */
	uint64_t host, registered;	/* pinned, of the whole process */
	uint64_t unknown_device; /* device memory taken where the current device was not known, of
				    the whole process */
	/*
	 * The driver's last figure before the moment, or the first after it where as much was taken
	 * as at the moment; and what was taken at its time: reserved and by others.
	 */
	bool used_known;
	uint64_t used, used_time, used_below, used_others;
	void *pool;
};
/* For ROWS_AT_MARK and ROWS_NOW, not for the CPU. 0, -ENOMEM, -ENOENT (as model__rows()), -EINVAL. */
int model__segments(const struct model *m, size_t device, enum row_when when, bool innermost,
		    struct model_segments *ret);
void model__free_segments(struct model_segments *s);

struct model_oom {
	uint64_t number; /* from 0, on this device */
	uint64_t time, size;
	bool has_totals;
	uint64_t allocated, reserved;
	bool gap_known; /* all segments are: the largest free piece of them that there was */
	uint64_t largest_gap;
	bool used_known; /* the driver's last figure before */
	uint64_t used;
	bool left_known; /* what it had left for all processes: its last figure before, and what
			    this one took and gave since */
	uint64_t left;
	uint32_t thread, stack, node;
	uint8_t walk;
	enum phase phase;
};
/* The first and the last 8 of a device are kept: i counts those. False: no more. */
bool model__oom(const struct model *m, size_t device, size_t i, struct model_oom *ret);

/*
 * A step ends at an EVENT_STEP. In a recording without any, it ends where the call of an outermost
 * module does: at the last event of the calling thread that was seen inside it, noticed when an
 * allocation of that thread has the module no longer in its stack, at the next EVENT_CALL, or at
 * the end. A step begins where the one before ended, the first one at the capture's start or the
 * first EVENT_CALL.
 */
struct model_step {
	uint64_t start, end;	/* ns */
	uint64_t peak;		/* allocated on the main device within the step */
	uint64_t end_allocated; /* when the end was noticed */
};
size_t model__steps(const struct model *m); /* steps that ended */
/* Of them those that the recording has from their beginning on: the first one was under way at
 * attach, unless it began with it. */
size_t model__whole_steps(const struct model *m);
/* No step of an optimizer was seen: steps are calls of outermost modules. */
bool model__steps_are_calls(const struct model *m);
/* The last steps are kept (at most 4096): i counts from the first kept. false: out of range. */
bool model__step(const struct model *m, size_t i, struct model_step *ret);
bool model__first_step_whole(
	const struct model *m); /* the recording begins with it; else it was under way */
/* Median duration of the steps kept, but of the very first where it was under way, ns; 0: no such
 * step. */
uint64_t model__step_time(const struct model *m);

struct model_layer_sums {
	uint64_t peak_allocated; /* bytes allocated within it and alive, at most */
	uint64_t peak_reserved;	 /* the device's reserved total, at most, while inside it; 0 without
				    totals */
	uint64_t allocs, frees;	 /* frees of blocks allocated within it */
	double avg_fragmentation; /* mean of (reserved - allocated) / reserved at its events */
	/*
	 * ns. Where the recording says when modules are entered and left (model__sees_calls()): in
	 * it or in a module below it, summed over threads; of backward, what allocations in it
	 * show. Else: between its first and last allocation of each call.
	 */
	uint64_t duration;
	uint64_t calls; /* of this module itself; a wrapper and what it wraps are one. 0 where calls
			   are not seen */
};

struct model_layer { /* a module and everything inside it, on all devices */
	const char *name, *cls;
	const char *root; /* class of the outermost module: tells two models apart */
	struct model_layer_sums all;
	struct model_layer_sums forward, backward; /* of what was allocated in that phase */
	bool calls_known;			   /* model__sees_calls() */
};
size_t model__layers(const struct model *m);
/* The recording says when modules are entered and left: it has EVENT_ENTER. */
bool model__sees_calls(const struct model *m);
void model__layer(const struct model *m, size_t i, struct model_layer *ret);

/*
 * A stretch: allocations in a row in one phase, from the first of them to the last event before one
 * in another phase.
 */
struct model_phase {
	uint64_t peak_allocated; /* the device's total at most during the phase (main device) ... */
	uint64_t peak_time;	 /* ... and when it first was that */
	uint64_t peak_reserved;	 /* 0 without totals */
	int64_t allocated_delta; /* sum over its stretches of end minus begin */
	uint64_t duration, count; /* ns, number of stretches */
};
void model__phase(const struct model *m, enum phase p, struct model_phase *ret);

/*
 * Makes of an event what it is charged to: what an autograd node allocated has the stack of the
 * forward call that made the node, unless Python ran in it. Its phase is backward: node is not 0.
 */
void model__charge(const struct model *m, struct event *e);
/* The stack of an allocation in words. */
enum phase model__stack_phase(const struct model *m, uint32_t stack, uint32_t thread, uint8_t walk);
/* The module an allocation is charged to (innermost), 0: none. */
uint32_t model__stack_module(const struct model *m, uint32_t stack);
/* The same, where an autograd node ran: the one that the node belongs to, if no other is known. */
uint32_t model__module(const struct model *m, uint32_t stack, uint32_t node, uint8_t walk);
/* The line an allocation is charged to: see interface.md section 5. False: no Python line. */
bool model__stack_line(const struct model *m, uint32_t stack, bool innermost,
		       struct row_frame *ret);

/*
 * --- For an export of the whole history: what each block turned out to be, and what there was
 * after each event. Devices are by number here, which stays: model__number() of the i-th of
 * model__devices(), once the stream is over.
 */
struct model_block {
	uint32_t device, kin; /* kin: model__block_class() */
	uint64_t addr, size;
	uint64_t born; /* number of the event that brought it, from 1; 0: it was there before the
			  first */
	uint64_t gone; /* of the event that took it; 0: it is there at the end */
};
struct model_extent { /* a piece of what the allocator took from CUDA: a segment, or a mapping
			 within one */
	uint32_t device;
	uint64_t addr, size;
	uint64_t range; /* where the addresses begin that it was mapped into, 0: not known */
	uint64_t cuda_stream, pool[2];
	bool told; /* the allocator's tables spoke of it: stream and pool are known */
	bool expandable;
	enum segment_size kind;
	bool there; /* false: it goes now */
};
/* Each returns 0, or an error that ends the run: model__event() returns it, of model__finish()
 * model__watched(). */
struct model_watch {
	int (*went)(void *ctx,
		    const struct model_block *b); /* when a block goes, and at model__finish() for
						     all that are left */
	int (*segment)(void *ctx, const struct model_extent *e); /* NULL: not asked for */
	void *ctx;
};
/* Before the first event. Costs a branch per free where nobody asks. */
void model__watch(struct model *m, const struct model_watch *w);
int model__watched(const struct model *m);
/* What blocks of a kin are: alike in all that a row may say, and in size. Kins are numbered as they
 * come. */
uint32_t model__kins(const struct model *m);
/*
 * All fields of a row by line, stack and thread together, charged to user code; category and name
 * are the kin's own. What the category is may change until model__finish(). Returns the size of
 * such a block.
 */
uint64_t model__block_class(const struct model *m, uint32_t kin, struct row *ret);

struct model_now {
	uint64_t seq; /* number of the last event, from 1 */
	uint64_t allocated, reserved;
	uint64_t unknown; /* bytes of allocated in no block that we know; 0 without totals */
	/*
	 * Sums so far of what turned out late to have been there all along, for who adds it to what
	 * came before: allocated and unknown by late; told is what of unknown became a block.
	 */
	uint64_t late, told;
	uint64_t peak, peak_seq; /* the event it came with, 0: it was there before the first */
	int phase;		 /* of the stretch of allocations under way, -1: none */
};
uint32_t model__number(const struct model *m, size_t i);
uint32_t model__number_of(const struct model *m,
			  struct device d); /* UINT32_MAX: there is none such */
bool model__now(const struct model *m, uint32_t number,
		struct model_now *ret); /* false: no event of it yet, seq is valid */
/* Just before its first event: allocated, reserved, unknown. */
void model__first(const struct model *m, uint32_t number, struct model_now *ret);
struct model_opts model__opts(const struct model *m);

/* Walks by outcome over all allocations seen, by enum mt_walk. */
uint64_t model__walks(const struct model *m, unsigned walk);
uint64_t model__events(const struct model *m);
uint64_t model__lost(const struct model *m);

#endif
