/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the reader of jemalloc's sampler on damaged memory. A process is built here:
 * the library's data with the hash table of stacks, and memory with its cells, two stacks and the
 * counters of three threads. The input: see pieces.h. Without damage the reader must know all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { LIBRARY, CODE, TABLES, PIECES };

#include "pieces.h"

#define LIBRARY_PATH "/usr/lib/libjemalloc.so.2"

static struct piece pieces[PIECES] = {
	[LIBRARY] = { LIBRARY_PATH, 0x7f0000000000, 4 * KIB, false, NULL },
	[CODE] = { LIBRARY_PATH, 0x7f0000100000, 4 * KIB, true, NULL },
	[TABLES] = { "", 0x7e0000000000, 8 * KIB, false, NULL },
};

/* ---- the process ---- */

#define TABLE 0x100u /* ckh_t in LIBRARY; its cells are at the start of TABLES */
#define STACKS 0x400u
#define STACK_BYTES 0x200u
#define COUNTERS 0x1000u
#define COUNTERS_BYTES 0x100u

/* A prof_gctx_t with two calls; counters: offset of the root of its tree. */
static void put_stack(unsigned i, unsigned cell, uint64_t counters)
{
	uint64_t at = STACKS + STACK_BYTES * i, addr = pieces[TABLES].addr + at;

	put(TABLES, 16 * cell, addr + 104);
	put(TABLES, 16 * cell + 8, addr);
	put(TABLES, at + 16, pieces[TABLES].addr + counters);
	put(TABLES, at + 104, addr + 120);
	put4(TABLES, at + 112, 2);
	put(TABLES, at + 120, pieces[CODE].addr + 0x10 + i);
	put(TABLES, at + 128, pieces[CODE].addr + 0x20 + i);
}

/* A prof_tctx_t: `blocks` blocks of 1 KiB, one in 256 KiB. left, right: offsets, 0 for none. */
static void put_counters(unsigned i, unsigned stack, uint64_t blocks, uint64_t left, uint64_t right)
{
	uint64_t at = COUNTERS + COUNTERS_BYTES * i, tables = pieces[TABLES].addr;

	put(TABLES, at + 32, blocks);
	put(TABLES, at + 40, blocks * 256);
	put(TABLES, at + 48, blocks * 1024);
	put(TABLES, at + 56, blocks * 256 * 1024);
	put(TABLES, at + 96, tables + STACKS + STACK_BYTES * stack);
	put(TABLES, at + 112, left ? tables + left : 0);
	put(TABLES, at + 120, (right ? tables + right : 0) | 1);
}

static void put_tables(void)
{
	put(LIBRARY, TABLE, 12345);
	put(LIBRARY, TABLE + 8, 2);
	put4(LIBRARY, TABLE + 16, 1);
	put4(LIBRARY, TABLE + 20, 1);
	put(LIBRARY, TABLE + 24, pieces[CODE].addr + 0x100);
	put(LIBRARY, TABLE + 32, pieces[CODE].addr + 0x200);
	put(LIBRARY, TABLE + 40, pieces[TABLES].addr);
	put_stack(0, 1, COUNTERS);
	put_stack(1, 6, COUNTERS + 2 * COUNTERS_BYTES);
	put_counters(0, 0, 3, COUNTERS + COUNTERS_BYTES, 0);
	put_counters(1, 0, 4, 0, 0);
	put_counters(2, 1, 5, 0, 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const uint8_t flags;

	make_pieces(-1);
	put_tables();
	return LLVMFuzzerTestOneInput(&flags, 0);
}

/* ---- a run ---- */

/* Checks the samples of any process. */
static void check(const struct host_samples *s)
{
	if (s->n && !s->sampler)
		abort();
	for (size_t i = 0; i < s->n; i++)
		if (!s->v[i].samples || s->v[i].bytes < s->v[i].samples || !s->v[i].calls ||
		    s->v[i].calls > HOST_SAMPLE_CALLS)
			abort();
}

/* Checks the samples without damage. */
static void check_whole(const struct host_samples *s)
{
	if (s->n != 2 || s->samples != 12 || s->bytes != 12 * 256 * 1024 ||
	    s->period != 256 * 1024 || s->v[0].samples != 7 || s->v[0].calls != 2 ||
	    s->v[1].call[0] != pieces[CODE].addr + 0x11)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int order[] = { TABLES, LIBRARY, CODE };
	struct host_samples samples = { 0 };
	struct host_opts o = { .samples = &samples };
	struct host_reading r = { .proc = self, .opts = &o };

	set_maps(&r, order);
	for (size_t k = 1; k + 8 <= size; k += 8)
		damage(data + k);
	if (host_jeprof__read(&r))
		abort(); /* no error of a process that lives */
	host_samples__merge(&samples);
	check(&samples);
	if (size <= 8)
		check_whole(&samples);
	host_samples__free(&samples);
	undo_damage();
	return 0;
}
