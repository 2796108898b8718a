/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_DICT_H
#define MT_RECORD_DICT_H
/*
 * What events refer to by number: strings, code locations, modules, stacks, threads, autograd nodes.
 * Append-only and interned by content, so that a number, once handed out, means the same thing for
 * ever and two captures of one program give the same rows. A live capture fills a dict while it
 * resolves; a reader fills one from a file. Number 0 of strings is "", of all others "none".
 */
#include <stddef.h>
#include <stdint.h>

struct dict;

struct dict_loc {
	uint32_t file; /* string: path as the code object has it, hostile text */
	uint32_t func; /* string: qualified name where there is one, else the name */
	uint32_t line; /* 0: unknown */
};

struct dict_module {
	uint32_t name; /* string: dotted name as named_modules() gives it; "" for the root itself */
	uint32_t cls;  /* string: class name, "Linear" */
	uint32_t root; /* string: class name of the outermost module */
};

struct dict_frame {
	uint32_t loc;	 /* location, 0: could not be resolved */
	uint32_t module; /* module entered by this frame (_wrapped_call_impl), else 0 */
};

struct dict_stack {
	const struct dict_frame *frames; /* innermost first */
	uint32_t n;
	uint8_t walk; /* enum mt_walk of bpf/memtrace.h: MT_WALK_OK, or why it is not whole */
};

struct dict_thread {
	uint32_t tid;
	uint32_t name; /* string */
};

/*
 * What an autograd node is, for allocations made while it runs: the same for all nodes of a class
 * that one line of forward made.
 */
struct dict_node {
	uint32_t cls;	 /* string: "AddmmBackward0" */
	uint32_t stack;	 /* of the forward call that made it; 0: not seen */
	uint32_t name;	 /* string: of the parameter whose gradient it accumulates, else 0 */
	uint32_t module; /* where the stack does not tell: the module that the parameter, or a saved
			    one, belongs to; 0: none */
};

#define DICT_MAX_STRING 4096 /* longer ones are cut, with "..." at the end */

struct dict *dict__new(void);	 /* NULL on ENOMEM */
void dict__free(struct dict *d); /* NULL is fine */

/*
 * Each returns the number, or UINT32_MAX with errno: ENOMEM, ENOSPC (record/limits.h; some millions
 * of entries). Text is made valid UTF-8 without NUL on the way in. A stack of more than 1024 frames
 * keeps the innermost ones, as MT_WALK_TRUNCATED.
 */
uint32_t dict__string(struct dict *d, const char *s, size_t len);
uint32_t dict__loc(struct dict *d, struct dict_loc loc);
uint32_t dict__module(struct dict *d, struct dict_module m);
uint32_t dict__stack(struct dict *d, const struct dict_frame *frames, uint32_t n, uint8_t walk);
uint32_t dict__thread(struct dict *d,
		      struct dict_thread t); /* a later name for a tid is a new number */
uint32_t dict__node(struct dict *d, struct dict_node n);

/*
 * Look-ups; a number out of range gives the entry 0 ("" / none), never a crash. What they return
 * stays where it is while the dict grows.
 */
const char *dict__str(const struct dict *d, uint32_t id); /* NUL-terminated, owned by d */
struct dict_loc dict__get_loc(const struct dict *d, uint32_t id);
struct dict_module dict__get_module(const struct dict *d, uint32_t id);
struct dict_stack dict__get_stack(const struct dict *d, uint32_t id);
struct dict_thread dict__get_thread(const struct dict *d, uint32_t id);
struct dict_node dict__get_node(const struct dict *d, uint32_t id);

/* Entries so far (number 0 included): what a writer has still to write is [last, now). */
struct dict_counts {
	uint32_t strings, locs, modules, stacks, threads, nodes;
};
struct dict_counts dict__counts(const struct dict *d);

#endif
