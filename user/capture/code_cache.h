/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_CODE_CACHE_H
#define MT_CAPTURE_CODE_CACHE_H
/*
 * What is known of the target's code objects, by address, although addresses come to mean other
 * code.
 *
 * The kernel side counts the code objects that are freed: the epoch. Every freed one has a number,
 * which the record about it carries; a stack carries the epoch that its walk began under. So the
 * object at address A on a stack of epoch E is the one that lived there between the two ends of A
 * with the numbers next to E, and something read from A stands for it if and only if no end of A
 * lies between E and the moment of reading. Each reading is kept with the epochs that it stands
 * for; what cannot be told that way is not known, never guessed.
 *
 * A round: code_cache__gone() for the records that came in, code_cache__need() for the stacks,
 * code_cache__read_until(), then, with records up to that epoch in, code_cache__confirm() or
 * code_cache__drop_new(); code_cache__find() and code_cache__passed() as the records are handed on.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct code_cache;
struct dict;
struct python;

struct code {
	uint32_t file, func; /* dict strings; 0, 0 where the object could not be read */
	uint32_t firstlineno;
	uint8_t *linetable;
	size_t linetable_len;
	/* For the cache alone. */
	uint64_t from, until; /* epochs that it stands for: [from, until) */
	uint64_t read_at;     /* CLOCK_MONOTONIC, ns */
	struct code *older;   /* what was at the address before */
	bool fresh;	      /* read in this round */
};

struct code_cache *code_cache__new(struct dict *d,
				   const struct python *py); /* borrows both. NULL on ENOMEM */
void code_cache__free(struct code_cache *c);		     /* NULL is fine */

/*
 * What has been read of a process before it forked (CLOCK_MONOTONIC, ns) is the child's too: for
 * the same epochs, as all ends are told to both. 0 or -ENOMEM.
 */
int code_cache__inherit(struct code_cache *c, const struct code_cache *from, uint64_t forked);
/* A record has come in: the object at this address is the epoch's freed one. 0 or -ENOMEM. */
int code_cache__gone(struct code_cache *c, uint64_t addr, uint64_t epoch);
/* Has an object at this address been read, since a stack had it? */
bool code_cache__known(const struct code_cache *c, uint64_t addr);
/* A stack of this epoch has the object at this address on it: reads it, unless it is known or too
 * late. 0 or -ENOMEM. */
int code_cache__need(struct code_cache *c, uint64_t addr, uint64_t epoch);
/* The epoch was this one after everything in this round had been read. */
void code_cache__read_until(struct code_cache *c, uint64_t epoch);
/* All ends up to code_cache__read_until() have been told by code_cache__gone(): what was read in
 * this round stands. */
void code_cache__confirm(struct code_cache *c);
/* They have not: what was read in this round is thrown away. */
void code_cache__drop_new(struct code_cache *c);
/*
 * Ends up to this epoch were not told, and all readings are known to be closed by them where they
 * had to be: what is read from now on stands for no stack from before it.
 */
void code_cache__floor(struct code_cache *c, uint64_t epoch);
/* Records about ends later than `sure`, up to `now`, are lost: nothing that is known stands for
 * stacks in between. */
void code_cache__lost(struct code_cache *c, uint64_t sure, uint64_t now);

/* What stood at the address for a stack of that epoch. NULL: nobody knows any more. */
const struct code *code_cache__find(const struct code_cache *c, uint64_t addr, uint64_t epoch);
/* All stacks from before this end have been dealt with. */
void code_cache__passed(struct code_cache *c, uint64_t addr, uint64_t epoch);

uint64_t code_cache__reads(const struct code_cache *c); /* objects read so far */

#endif
