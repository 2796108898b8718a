/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The dictionary of a recording. Events refer by number to its strings, code locations, modules,
 * stacks, threads and autograd nodes. Entries are only added, and equal entries share a number. So
 * a number keeps its meaning, and two captures of one program give the same rows. A live capture
 * fills a dict as it resolves names; a reader fills one from a file. Number 0 is "" for strings and
 * "none" for all other kinds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dict;

struct dict_loc {
	uint32_t file; /* string number of the path, as in the code object; untrusted text */
	uint32_t func; /* string number of the qualified name, or of the plain name if that is all */
	uint32_t line; /* line number, below 2^31; 0: unknown */
};

struct dict_module {
	/* string number of the dotted name from named_modules(); "" for the root module itself */
	uint32_t name;
	uint32_t cls;  /* string number of the class name, such as "Linear" */
	uint32_t root; /* string number of the outermost module's class name */
};

struct dict_frame {
	uint32_t loc;	 /* number of the code location; 0: not resolved */
	uint32_t module; /* number of the module that this frame entered (_wrapped_call_impl); 0:
			    none */
};

struct dict_stack {
	const struct dict_frame *frames; /* frames, innermost first */
	uint32_t n;
	uint8_t walk; /* enum mt_walk of bpf/memtrace.h: MT_WALK_OK, or why the stack is incomplete */
};

struct dict_thread {
	uint32_t tid;
	uint32_t name; /* string number of the thread's name */
};

/* The autograd node that ran during an allocation. All nodes of one class that one line of forward
 * created share an entry. */
struct dict_node {
	uint32_t cls;	/* string number of the class, such as "AddmmBackward0" */
	uint32_t stack; /* stack number of the forward call that created the node; 0: not seen */
	uint32_t name;	/* string number of the parameter whose gradient the node accumulates; 0:
			   none */
	/* Number of the module of the parameter or of a saved tensor; used if the stack names no
	 * module. 0: none. */
	uint32_t module;
};

#define DICT_MAX_STRING 4096 /* bytes; longer strings are cut and end in "..." */

struct dict *dict__new(void);	 /* NULL if memory is short */
void dict__free(struct dict *d); /* NULL is fine */

/* Each of these functions adds an entry, unless the dict has it, and returns the entry's number. On
 * an error it returns UINT32_MAX and sets errno: ENOMEM, or ENOSPC at a bound of
 * record/stream/limits.h. The dict converts text to valid UTF-8 without NUL. It cuts a stack of
 * more than 1024 frames to the innermost ones and marks it MT_WALK_TRUNCATED. It leaves out frames
 * "__init__" of the file "__init__" without a line, which CPython 3.13 and newer put around a
 * class's __init__ and hide in tracebacks.
 */
uint32_t dict__string(struct dict *d, const char *s, size_t len);
uint32_t dict__loc(struct dict *d, struct dict_loc loc); /* line: below 2^31 */
/* Adds the location of a frame of compiled code. Without debug information, file is the library's
 * name, and func is a symbol with an offset, "ncclCommInitRank+0x1c", or the offset in the file,
 * "+0x4f20". */
uint32_t dict__native_loc(struct dict *d, struct dict_loc loc);
uint32_t dict__module(struct dict *d, struct dict_module m);
uint32_t dict__stack(struct dict *d, const struct dict_frame *frames, uint32_t n, uint8_t walk);
/* As dict__stack(), for a reader of recordings. Recorded stacks keep their numbers: two that differ
 * only in frames that the dict leaves out still get two numbers. */
uint32_t dict__recorded_stack(struct dict *d, const struct dict_frame *frames, uint32_t n,
			      uint8_t walk);
/* A thread that changes its name gets a new number. */
uint32_t dict__thread(struct dict *d, struct dict_thread t);
uint32_t dict__node(struct dict *d, struct dict_node n);

/* Look-ups. A number out of range gives entry 0. Returned pointers stay valid while the
 * dict grows. */
const char *dict__str(const struct dict *d, uint32_t id); /* NUL-terminated, owned by d */
struct dict_loc dict__get_loc(const struct dict *d, uint32_t id);
/* True if the location with this number was added by dict__native_loc(). */
bool dict__is_native(const struct dict *d, uint32_t id);
struct dict_module dict__get_module(const struct dict *d, uint32_t id);
struct dict_stack dict__get_stack(const struct dict *d, uint32_t id);
struct dict_thread dict__get_thread(const struct dict *d, uint32_t id);
struct dict_node dict__get_node(const struct dict *d, uint32_t id);

/* Number of entries of each kind, entry 0 included. A writer compares it with the counts it has
 * already written. */
struct dict_counts {
	uint32_t strings, locs, modules, stacks, threads, nodes;
};
struct dict_counts dict__counts(const struct dict *d);
