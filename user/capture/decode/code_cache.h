/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Code objects of the target by address. CPython reuses addresses, so an entry is valid for some
 * stacks only.
 *
 * The BPF programs count the code objects that are freed: the epoch. The record about a freed
 * object has its number, and a stack has the epoch at which its walk began. The object at address A
 * on a stack of epoch E is the one that lived between the two ends of A next to E. A reading of A
 * is valid for that stack if no end of A lies between E and the reading. Each reading is kept with
 * the epochs for which it is valid. A frame without a valid reading stays unnamed: nothing is
 * guessed.
 *
 * A round calls code_cache__gone() for the records that came in, code_cache__need() for the stacks,
 * and code_cache__read_until(). Once all records up to that epoch are in, it calls
 * code_cache__confirm(), otherwise code_cache__drop_new(). It decodes the records with
 * code_cache__find() and code_cache__passed().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct code_cache;
struct dict;
struct python;

struct code {
	uint32_t file, func; /* the dictionary's strings; 0, 0: unreadable */
	uint32_t firstlineno;
	uint8_t *linetable;
	size_t linetable_len;
	/* Private: */
	uint64_t from, until; /* epochs for which the reading is valid: [from, until) */
	uint64_t read_at;     /* CLOCK_MONOTONIC, ns */
	struct code *older;   /* the reading before this one at the address */
	bool fresh;	      /* read in this round */
};

struct code_cache *code_cache__new(struct dict *dict,
				   const struct python *py); /* borrows both. NULL on ENOMEM */
void code_cache__free(struct code_cache *cache);	     /* NULL is fine */

/* Copies the readings of the parent process from before it forked this one, at `forked`
 * (CLOCK_MONOTONIC, ns). They are valid in the child for the same epochs, since both get the
 * records of all ends. 0 or -ENOMEM. */
int code_cache__inherit(struct code_cache *cache, const struct code_cache *from, uint64_t forked);
/* Notes that the object at this address was freed, and that the epoch became this number by it. 0
 * or -ENOMEM. */
int code_cache__gone(struct code_cache *cache, uint64_t addr, uint64_t epoch);
/* True if a code object at this address was read, for any stack. */
bool code_cache__known(const struct code_cache *cache, uint64_t addr);
/* Reads the object at this address for a stack of this epoch, unless it is known or already freed.
 * 0 or -ENOMEM. */
int code_cache__need(struct code_cache *cache, uint64_t addr, uint64_t epoch);
/* Sets the epoch at the end of this round's readings. */
void code_cache__read_until(struct code_cache *cache, uint64_t epoch);
/* Keeps this round's readings: code_cache__gone() was called for all ends up to that epoch. */
void code_cache__confirm(struct code_cache *cache);
/* Drops this round's readings. */
void code_cache__drop_new(struct code_cache *cache);
/* Notes that records of ends up to this epoch were dropped, when no code object had been read. A
 * later reading is not valid for stacks from before that epoch. */
void code_cache__floor(struct code_cache *cache, uint64_t epoch);
/* Notes that records of ends after epoch `sure`, up to `now`, are lost: no reading is valid for
 * stacks from that time. */
void code_cache__lost(struct code_cache *cache, uint64_t sure, uint64_t now);

/* The code object that was at the address for a stack of this epoch. NULL: unknown. */
const struct code *code_cache__find(const struct code_cache *cache, uint64_t addr, uint64_t epoch);
/* All stacks from before this end are decoded: frees the readings that were kept for them. */
void code_cache__passed(struct code_cache *cache, uint64_t addr, uint64_t epoch);

uint64_t code_cache__reads(const struct code_cache *cache); /* objects read so far */
