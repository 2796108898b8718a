/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The contents of a PyTorch memory snapshot (torch.cuda.memory._snapshot()), as compact records. A
 * reader gives each finished dict and list, innermost first, and gets a value that stands for it.
 * So a snapshot of 1 GB never exists as a tree of objects.
 * The keys are those of torch/csrc/cuda/Module.cpp and memory_snapshot.cpp, PyTorch 2.0 to 2.15.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dict;

/* A value is a kind in the low bits and a number. Numbers of consecutive records are consecutive. */
typedef uint64_t value;
enum value_kind {
	VALUE_NONE,
	VALUE_BOOL,
	VALUE_INT, /* from -2^58 to 2^58 - 1 */
	VALUE_BIG, /* an integer of 64 bits: number in records.bigs */
	VALUE_TEXT,
	VALUE_OTHER, /* recordings have no use for it */
	VALUE_OPEN,  /* a container under construction: nested.h */
	VALUE_EMPTY, /* an empty list, tuple or dict */
	VALUE_PAIR,  /* a tuple of two integers: number in records.pairs */
	VALUE_FRAME, /* number in records.frames; 0: a frame that is left out */
	VALUE_STACK, /* number of a stack in the dict */
	VALUE_ENTRY,
	VALUE_BLOCK,
	VALUE_SEGMENT,
	VALUE_HISTORY,
	VALUE_NOTE,
	VALUE_LIST,
	VALUE_SETTINGS, /* allocator_settings; the values are in records.settings */
	VALUE_DIVISIONS,
	VALUE_SNAPSHOT, /* the outermost dict; the values are in records.top */
};
#define VALUE_BITS 5

static inline value value__of(enum value_kind kind, uint64_t number)
{
	return number << VALUE_BITS | kind;
}

static inline enum value_kind value__kind(value v)
{
	return (enum value_kind)(v & ((1u << VALUE_BITS) - 1));
}

static inline uint64_t value__number(value v)
{
	return v >> VALUE_BITS;
}

/* Items of a list. */
struct value_list {
	value *items; /* NULL: first, and the n - 1 values with the following numbers */
	value first;
	size_t n;
};
value value_list__at(const struct value_list *l, size_t i);

enum snapshot_action {
	ACTION_ALLOC = 1,
	ACTION_FREE_REQUESTED,
	ACTION_FREE_COMPLETED,
	ACTION_SEGMENT_ALLOC,
	ACTION_SEGMENT_FREE,
	ACTION_SEGMENT_MAP,
	ACTION_SEGMENT_UNMAP,
	ACTION_SNAPSHOT,
	ACTION_OOM,
	ACTION_ANNOTATE,
	ACTION_OTHER,
};

/* One entry of a trace. */
struct snapshot_entry {
	uint64_t addr; /* an OOM has the free bytes of the device here */
	uint64_t size; /* bytes; of a block: requested */
	uint64_t stream;
	uint64_t time;	/* us */
	uint64_t block; /* bytes of the block, where the end's blocks tell it; 0: not known */
	uint32_t stack; /* in the dict; 0: none */
	uint32_t pool_no;
	uint8_t action; /* enum snapshot_action */
	bool no_frames; /* the stack was read and has no frame */
	/* String number in the dict: the text that the program set for the allocations of a thread
	 * or, in an annotation, for the block; what the allocator itself says of the entry; the
	 * compiled region. 0: none. */
	uint32_t metadata;
	uint32_t node; /* autograd node in the dict, in our own exports; 0: none */
};

enum snapshot_state { BLOCK_FREE, BLOCK_LIVE, BLOCK_WAITS };

struct snapshot_block {
	uint64_t size, requested;
	uint32_t stack;
	uint8_t state;		 /* enum snapshot_state */
	uint32_t metadata, node; /* as above */
	uint8_t role;		 /* enum category, in our own exports */
	bool inferred;		 /* the role follows from frames and lifetimes */
};

struct snapshot_segment {
	uint64_t addr, size, stream;
	struct value_list blocks;
	uint32_t stack, pool_no;
	uint32_t device;
	bool small, expandable;
	bool listed; /* in the snapshot's list of segments */
};

/* An annotation of torch.profiler.record_function(). */
struct snapshot_note {
	uint64_t time; /* us */
	uint32_t name; /* string number in the dict */
	uint32_t device;
	bool ends;
};

struct snapshot_settings {
	bool expandable;
	uint64_t max_split_size; /* bytes; 0: not known */
	uint32_t divisions[16];	 /* roundup_power2_divisions from 1 MiB on */
	uint32_t conf_no;	 /* text number + 1 of PYTORCH_CUDA_ALLOC_CONF; 0: none */
};

struct records {
	struct dict *dict;
	struct snapshot_entry *entries;
	struct snapshot_block *blocks;
	struct snapshot_segment *segments;
	struct snapshot_note *notes;
	struct {
		uint32_t stack;
		uint64_t size;
	} * history;
	struct {
		uint64_t a, b;
	} * pairs;
	uint64_t *bigs;
	struct value_list *lists;
	size_t n_entries, n_blocks, n_segments, n_notes, n_history, n_pairs, n_bigs, n_lists;
	size_t cap_entries, cap_blocks, cap_segments, cap_notes, cap_history, cap_pairs, cap_bigs,
		cap_lists;
	struct snapshot_settings settings;
	/* The outermost dict. VALUE_NONE: it has no such key. */
	struct {
		value segments, traces, host_segments, host_traces;
	} top;
	struct texts *texts;
	struct frame_record *frames;
	size_t n_frames, cap_frames;
	struct map64 *frame_at; /* hash of file, function and line -> number of the frame */
	uint32_t *nodes;	/* by stack number: autograd node in the dict */
	size_t n_nodes;
	uint8_t *optimizer; /* by stack number: a frame is in torch/optim */
	size_t n_optimizer;
};

/* d must outlive r. Returns 0 or -ENOMEM. */
int records__init(struct records *r, struct dict *d);
void records__free(struct records *r);

/* The functions from here on return a value, or UINT64_MAX with errno: ENOMEM, ENOSPC at a bound. */

value records__text(struct records *r, const void *bytes, size_t len);
value records__int(struct records *r, int64_t i);
value records__unsigned(struct records *r, uint64_t i);
/* n values: a key and its value, one after the other. */
value records__dict(struct records *r, const value *items, size_t n);
/* Takes over l->items. */
value records__list(struct records *r, struct value_list *l);
value records__pair(struct records *r, value a, value b);

/* Returns the value as a number, or 0. */
uint64_t records__number(const struct records *r, value v);
/* Returns a text, owned by r, or "". */
const char *records__string(const struct records *r, value v);
/* Joins two strings of the dict, given by their numbers. Returns the number of "a, b"; of the other
 * one if one is 0; b if the result were too long for a name; UINT32_MAX with errno if either is
 * UINT32_MAX or the dict has no room. */
uint32_t records__join(struct records *r, uint32_t a, uint32_t b);
