/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the readers of malloc's and CPython's tables on damaged memory. A process is
 * built here: libc's data with main_arena and mp_, a heap with free chunks, the heap of a second
 * arena, a chunk with its own mapping, and two arenas of CPython. The input: see pieces.h. Without
 * damage both readers must know all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"
#include "inspect/python/pyinternal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
enum { LIBC, INTERPRETER, HEAP, THREAD_HEAP, OF_PYTHON, MAPPED, PIECES };

#include "pieces.h"

static struct piece pieces[PIECES] = {
	[LIBC] = { "/usr/lib/libc.so.6", 0x7f0000000000, 16 * KIB, false, NULL },
	[INTERPRETER] = { "/usr/bin/python3", 0x400000, 4 * KIB, false, NULL },
	[HEAP] = { "[heap]", 0x555500000000, 64 * KIB, false, NULL },
	[THREAD_HEAP] = { "", 0x7e0000000000, 64 * KIB, false, NULL },
	[OF_PYTHON] = { "", 0x7e8000000000, 512 * KIB, false, NULL },
	[MAPPED] = { "", 0x7e9000000000, 64 * KIB, false, NULL },
};

/* ---- the process ---- */

/* struct malloc_state of glibc 2.27 and later. top and next: addresses. */
static void put_state(int which, uint64_t at, uint64_t top, uint64_t next, uint64_t system_mem)
{
	uint64_t bins = at + 112, self_addr = pieces[which].addr + bins;

	put(which, at + 96, top);
	for (unsigned i = 0; i < 127; i++) {
		put(which, bins + 16 * i, self_addr + 16 * i - 16);
		put(which, bins + 16 * i + 8, self_addr + 16 * i - 16);
	}
	put(which, bins + 127 * 16 + 16, next);
	put(which, bins + 127 * 16 + 40, system_mem);
	put(which, bins + 127 * 16 + 48, system_mem);
}

#define STATE 0x800u	   /* main_arena in libc's data */
#define TOP_AT 0xc000u	   /* in the heap */
#define STATE_OF_THREAD 32 /* after its heap_info */

static void put_chunk(int which, uint64_t at, uint64_t size, uint64_t fd, uint64_t bk)
{
	put(which, at + 8, size | 1);
	put(which, at + 16, fd);
	put(which, at + 24, bk);
}

static void put_malloc(void)
{
	uint64_t heap = pieces[HEAP].addr, thread = pieces[THREAD_HEAP].addr,
		 state = pieces[LIBC].addr + STATE, bin = state + 112 + 16 * 5, head = bin - 16;

	put_state(LIBC, STATE, heap + TOP_AT, thread + STATE_OF_THREAD, pieces[HEAP].size);
	/* a bin with two chunks, and a fastbin with one */
	put(LIBC, STATE + 112 + 16 * 5, heap + 0x1000);
	put(LIBC, STATE + 112 + 16 * 5 + 8, heap + 0x2000);
	put_chunk(HEAP, 0x1000, 0x400, heap + 0x2000, head);
	put_chunk(HEAP, 0x2000, 0x800, head, heap + 0x1000);
	put(LIBC, STATE + 16, heap + 0x3000);
	put_chunk(HEAP, 0x3000, 0x20, (heap + 0x3010) >> 12, 0);
	put_chunk(HEAP, TOP_AT, pieces[HEAP].size - TOP_AT, 0, 0);
	/* heap_info: arena, previous heap, size */
	put(THREAD_HEAP, 0, thread + STATE_OF_THREAD);
	put(THREAD_HEAP, 16, pieces[THREAD_HEAP].size);
	put_state(THREAD_HEAP, STATE_OF_THREAD, thread + 0x8000, state, pieces[THREAD_HEAP].size);
	put_chunk(THREAD_HEAP, 0x8000, 0x8000, 0, 0);
	/* mp_: n_mmaps, n_mmaps_max, max_n_mmaps; mmapped_mem and its maximum */
	put4(LIBC, 0x100, 1);
	put4(LIBC, 0x104, 65536);
	put4(LIBC, 0x108, 1);
	put(LIBC, 0x110, pieces[MAPPED].size);
	put(LIBC, 0x118, pieces[MAPPED].size);
	put(MAPPED, 8, pieces[MAPPED].size | 2);
}

#define ARRAY 0x6000u /* of arena objects, in the heap */
#define POOL 4096u    /* before 3.10 */

static void put_python(void)
{
	uint64_t array = pieces[HEAP].addr + ARRAY;

	put(INTERPRETER, 0x200, array);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t arena = i * (uint64_t)(64 * POOL), at = ARRAY + 48 * i;

		put(HEAP, at, pieces[OF_PYTHON].addr + arena);
		put(HEAP, at + 8, pieces[OF_PYTHON].addr + arena + 40 * POOL); /* never used */
		put4(HEAP, at + 16, 24);
		put4(HEAP, at + 20, 64);
		for (uint32_t k = 0; k < 40; k++) {
			uint64_t pool = arena + k * (uint64_t)POOL;

			put4(OF_PYTHON, pool, k);
			put4(OF_PYTHON, pool + 32, i);
			put4(OF_PYTHON, pool + 36, 3);
			put4(OF_PYTHON, pool + 44, POOL - 64);
		}
	}
	for (unsigned i = 2; i < 15; i++) /* a list of objects without an arena */
		put(HEAP, ARRAY + 48 * i + 32, array + 48 * (i + 1));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const uint8_t flags;

	make_pieces(-1);
	put_malloc();
	put_python();
	return LLVMFuzzerTestOneInput(&flags, 0);
}

/* ---- a run ---- */

/* Checks the claims and figures of any process. */
static void check(const struct host_reading *r)
{
	const struct host_ledger *l = r->ledger;

	check_claims(r, HOST_PYTHON);
	if (l->malloc.free_known && (!l->malloc.known || l->malloc.free > l->malloc.arena))
		abort();
	if (l->python.used_known && (!l->python.known || l->python.used > l->python.arena))
		abort();
}

/* Checks the process without damage. */
static void check_whole(const struct host_ledger *l)
{
	const struct host_malloc *m = &l->malloc;

	if (!m->known || !m->free_known || !m->mapped_known || m->arenas != 2 ||
	    m->arena != pieces[HEAP].size + pieces[THREAD_HEAP].size ||
	    m->free != 0x400 + 0x800 + 0x20 + 0x4000 + 0x8000 || m->mapped != m->mapped_found ||
	    m->mapped != pieces[MAPPED].size)
		abort();
	if (!l->python.known || !l->python.used_known || l->python.arenas != 2 ||
	    l->python.blocks != 2 * 39 * 40 / 2 || l->python.used != l->python.blocks * 64)
		abort();
}

/* malloc_trim() returns free memory only, in ranges without common bytes. */
static void check_trimmed(const struct host_reading *r)
{
	uint64_t end = 0;

	for (size_t i = 0; i < r->trimmed.n; i++) {
		const struct span *s = &r->trimmed.v[i];
		size_t k = host_spans__after(&r->free_chunks, s->start);
		uint64_t at = s->start;

		if (at < end)
			abort();
		for (; k < r->free_chunks.n && r->free_chunks.v[k].start <= at; k++)
			at = r->free_chunks.v[k].end;
		if (at < s->end)
			abort();
		end = s->end;
	}
}

static void read_twice(struct host_reading *r, const uint8_t *data, size_t size, bool late)
{
	struct host_places places = { 0 };
	struct host_ledger l;

	r->places = &places;
	r->ledger = &l;
	for (int i = 0; i < 2; i++) { /* the second time the places are known */
		memset(&l, 0, sizeof(l));
		for (size_t k = 1; k + 8 <= size && i == late; k += 8)
			damage(data + k);
		if (host_pymalloc__read(r) || host_glibc__read(r) || host_glibc__find_mapped(r))
			abort(); /* no error of a process that lives */
		if (host_spans__resolve(&r->claims) || host_spans__resolve(&r->second))
			abort();
		check(r);
		if (size <= 8)
			check_whole(&l);
		check_trimmed(r);
		r->claims.n = r->second.n = r->free_chunks.n = r->trimmed.n = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int order[] = { INTERPRETER, HEAP, THREAD_HEAP, OF_PYTHON, MAPPED, LIBC };
	struct python py = { .proc = self,
			     .major = 3,
			     .minor = 9,
			     .nr_files = 1,
			     .file = { { .path = (char *)"/usr/bin/python3" } } };
	struct host_opts o = { .brief = size && data[0] & 2 };
	struct host_reading r = { .proc = self, .python = &py, .opts = &o };

	py.layout = *pylayout__find(3, 9, false);
	if (size <= 8)
		o.brief = false;
	set_maps(&r, order);
	read_twice(&r, data, size, size && data[0] & 1);
	host_spans__free(&r.claims);
	host_spans__free(&r.second);
	host_spans__free(&r.free_chunks);
	host_spans__free(&r.trimmed);
	undo_damage();
	return 0;
}
