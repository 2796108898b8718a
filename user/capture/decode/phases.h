/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Scopes that the program itself writes: memtrace_bpf.phase() and its C header. The program writes
 * into shared memory that docs/reference/phases.md specifies. This reads it from outside at each
 * drain of the ring, and emits an EVENT_SCOPE for each record, in its place between the records of
 * the ring. Everything in that memory is hostile. See session__drain_ring() for the calls' order.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct decoder;
struct facts;
struct mt_hdr;
struct phases;
struct queue;

/* Borrows decoder. NULL: out of memory. */
struct phases *phases__new(struct decoder *decoder);
void phases__free(struct phases *phases); /* NULL is fine */
/* Call it before the ring is drained: all records of the ring from before now will be in. */
void phases__before_drain(struct phases *phases);
/* Call it when the ring was drained into the queue. Reads what the program wrote, and finds its
 * place among the records up to `end`. Returns 0 or -ENOMEM. */
int phases__read(struct phases *phases, const struct queue *queue, size_t end);
/* Emits what comes before the record at position pos of the queue. The record need not be whole.
 * Returns 0, -ENOMEM or the sink's error. */
int phases__before_record(struct phases *phases, size_t pos, const struct mt_hdr *record);
/* Emits what came before phases__before_drain(), once the queue is decoded. whole: the ring was
 * drained to its end. Returns as phases__before_record(). */
int phases__after_drain(struct phases *phases, bool whole);
/* What the program writes from now on is not emitted. */
void phases__stop(struct phases *phases);
/* Sets the facts "counter.phases.*". Returns 0 or -ENOMEM. */
int phases__set_facts(const struct phases *phases, struct facts *facts);

/* ---- the shared memory; for phases.c, tests and the fuzzer ---- */

#define PHASE_NAME 80

struct phase_record {
	uint64_t number; /* from 1; 0: none. The last word repeats it */
	uint64_t time;	 /* CLOCK_MONOTONIC of the process, ns */
	uint64_t other;	 /* number of the scope's first record; in that: of the scope around it, 0:
			    none */
	uint32_t tid;	 /* as the process sees it */
	uint16_t what;	 /* SCOPE_BEGIN to SCOPE_RESUME */
	uint16_t unused;
	char name[PHASE_NAME]; /* a shorter one ends with a NUL */
	uint64_t unused_too;
	uint64_t again;
};
_Static_assert(sizeof(struct phase_record) == 128, "as in docs/reference/phases.md");

/* One area of shared memory. Set it to 0 before phase_page__open(). */
struct phase_page {
	int fd;		/* owned */
	uint32_t n;	/* records that it has room for */
	uint32_t pid;	/* of the process that writes it, as that process sees it */
	uint64_t next;	/* number of records that were read or are lost */
	uint64_t stuck; /* time at which the next record was late first, ns; 0: it is not */
	uint64_t lost;	/* records that were overwritten before they were read */
};

/* Takes the descriptor, and closes it on failure. Begins with the oldest record that is there.
 * Returns 0; -EINVAL: it is no such memory. */
int phase_page__open(struct phase_page *page, int fd);
/* Reads the next records, at most `most`, in their order. now: ns, any clock. Returns their number,
 * or -EINVAL if the memory is no longer readable. */
int phase_page__read(struct phase_page *page, uint64_t now, struct phase_record *ret, int most);
