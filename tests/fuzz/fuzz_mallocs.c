/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the readers of mimalloc's and musl's tables on damaged memory. A process is
 * built here: a segment of mimalloc 2, or an arena of mimalloc 3 with the library's list of arenas;
 * and musl's context with a page of tables and two groups. The input: flags, then steps of 8 bytes
 * that overwrite a word: piece, offset, value. Without damage both readers must know all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claims.h"
#include "fake_process.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int __wrap_host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			       const struct resident_range **v, size_t *n);
int __wrap_host_resident__walk(struct host_resident *r, uint64_t start, uint64_t end,
			       resident_fn fn, void *ctx);
int __wrap_host_resident__count(struct host_resident *r, uint64_t start, uint64_t end, bool device,
				uint64_t *ret);
char *__wrap_proc__exe(const struct proc *p, char *buf, size_t size);

#define KIB 1024u
#define SLICE (64 * KIB)
#define MAX_STEPS 64

enum { LIBRARY, MUSL, HEAP, GROUP, ARENA, SEGMENT, PIECES };

/* Pieces of memory, in order of their addresses. The rest of a mapping is not resident. */
static struct piece {
	const char *path;
	uint64_t addr, mapped;
	size_t size;
	uint8_t *v; /* its memory */
} pieces[PIECES] = {
	[LIBRARY] = { "/usr/lib/libmimalloc.so.3", 0x7f0000000000, 4 * KIB, 4 * KIB, NULL },
	[MUSL] = { "/lib/ld-musl-x86_64.so.1", 0x7f1000000000, 4 * KIB, 4 * KIB, NULL },
	[HEAP] = { "[heap]", 0x7f2000000000, 4 * KIB, 4 * KIB, NULL },
	[GROUP] = { "", 0x7f3000000000, SLICE, SLICE, NULL },
	[ARENA] = { "", 0x7f4000000000, 512 * SLICE, 8 * SLICE, NULL },
	[SEGMENT] = { "", 0x7f5000000000, 512 * SLICE, 8 * SLICE, NULL },
};
static struct {
	uint8_t *at;
	uint64_t was;
	size_t len;
} undo[MAX_STEPS];
static size_t n_undo;
static struct map maps[PIECES];
static struct smaps_figures figures[PIECES];
static struct proc *self;

/* ---- the process ---- */

static struct piece *piece_at(uint64_t addr)
{
	for (size_t i = 0; i < PIECES; i++)
		if (addr >= pieces[i].addr && addr < pieces[i].addr + pieces[i].size)
			return &pieces[i];
	return NULL;
}

static size_t fake_memory(void *dst, size_t size, uint64_t addr)
{
	struct piece *p = piece_at(addr);
	size_t left = p ? p->addr + p->size - addr : 0;

	if (size > left)
		size = left;
	if (p)
		memcpy(dst, p->v + (addr - p->addr), size);
	return size;
}

/* The resident range in [start, end); the pieces are far from each other. */
static bool resident_in(uint64_t start, uint64_t end, struct resident_range *ret)
{
	for (size_t i = 0; i < PIECES; i++) {
		uint64_t last = pieces[i].addr + pieces[i].size;

		ret->start = start > pieces[i].addr ? start : pieces[i].addr;
		ret->end = end < last ? end : last;
		if (ret->start < ret->end)
			return true;
	}
	return false;
}

int __wrap_host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			       const struct resident_range **v, size_t *n)
{
	static struct resident_range range;

	if (end < start || end - start > RESIDENT_SLICE)
		abort();
	*n = resident_in(start, end, &range);
	*v = &range;
	return 0;
}

int __wrap_host_resident__walk(struct host_resident *r, uint64_t start, uint64_t end,
			       resident_fn fn, void *ctx)
{
	struct resident_range range;

	return resident_in(start, end, &range) ? fn(ctx, range.start, range.end) : 0;
}

int __wrap_host_resident__count(struct host_resident *r, uint64_t start, uint64_t end, bool device,
				uint64_t *ret)
{
	struct resident_range range;

	*ret = resident_in(start, end, &range) ? range.end - range.start : 0;
	return 0;
}

char *__wrap_proc__exe(const struct proc *p, char *buf, size_t size)
{
	snprintf(buf, size, "/bin/program");
	return buf;
}

static void put(int which, uint64_t at, uint64_t value)
{
	memcpy(pieces[which].v + at, &value, sizeof(value));
}

static void put4(int which, uint64_t at, uint32_t value)
{
	memcpy(pieces[which].v + at, &value, sizeof(value));
}

static void put2(int which, uint64_t at, uint16_t value)
{
	memcpy(pieces[which].v + at, &value, sizeof(value));
}

/* Puts two blocks of a list at the offset `at` of a piece. Returns the address of the first. */
static uint64_t put_list(int which, uint64_t at)
{
	put(which, at, pieces[which].addr + at + 128);
	put(which, at + 128, 0);
	return pieces[which].addr + at;
}

/* A segment of mimalloc 2.1.8 and later: its description, a page of one slice with 600 blocks of 64
 * bytes in use, 2 of which another thread freed, and a free span. */
static void put_segment(void)
{
	const uint64_t slices = 288;

	put(SEGMENT, 216, 1); /* pages in use */
	put(SEGMENT, slices - 40, 512);
	put(SEGMENT, slices - 32, 1);
	put(SEGMENT, slices - 16, 512);
	put4(SEGMENT, slices, 1);
	put4(SEGMENT, slices + 96, 1);
	put2(SEGMENT, slices + 96 + 10, 1000);
	put2(SEGMENT, slices + 96 + 12, 1023);
	put2(SEGMENT, slices + 96 + 32, 600);
	put(SEGMENT, slices + 96 + 40, 64);
	put(SEGMENT, slices + 96 + 56, put_list(SEGMENT, SLICE + 640));
	put4(SEGMENT, slices + 2 * 96, 510);
}

#define SUBPROC 0x100u
#define FREE 0x1000u /* bitmap of free slices in the arena */
#define META 0x4000u /* array of pages */

/* An arena of mimalloc 3.4: two slices of tables, a page of one slice as in the segment, and the
 * rest free. */
static void put_arena(void)
{
	uint64_t addr = pieces[ARENA].addr, page = META + 2 * 112;

	put(LIBRARY, SUBPROC + 32, addr);
	put(ARENA, 24, pieces[LIBRARY].addr + SUBPROC);
	put(ARENA, 40, 512);
	put(ARENA, 48, 2);
	put(ARENA, 104, addr + FREE);
	put(ARENA, 112, addr + FREE + 448 + 64);
	put(ARENA, 136, addr + META);
	put(ARENA, FREE, 1); /* chunks */
	memset(pieces[ARENA].v + FREE + 448, 0xff, 64);
	pieces[ARENA].v[FREE + 448] = 0xf8;
	put2(ARENA, page + 16, 600);
	put2(ARENA, page + 18, 1000);
	put2(ARENA, page + 20, 1024);
	put(ARENA, page + 32, put_list(ARENA, 2 * SLICE + 640) | 1);
	put(ARENA, page + 40, 64);
	put(ARENA, page + 88, addr);
	put4(ARENA, page + 96, 2);
	put4(ARENA, page + 100, 1);
	put4(ARENA, page + 104, 7);
}

#define CONTEXT 0x200u
#define SECRET 0x1234567890abcdefu

/* musl: a group of 9 slots of 6544 bytes, 2 of them free, and in one of the others a group of 20
 * slots of 288 bytes, 4 of them free. */
static void put_musl(void)
{
	const uint64_t meta = 24;

	put(MUSL, CONTEXT, SECRET);
	put4(MUSL, CONTEXT + 8, 1);
	put(MUSL, CONTEXT + 56, pieces[HEAP].addr);
	put(MUSL, CONTEXT + 64, pieces[HEAP].addr);
	put(HEAP, 0, SECRET);
	put4(HEAP, 16, 101);
	put(HEAP, meta + 16, pieces[GROUP].addr);
	put4(HEAP, meta + 24, 0x3);
	put(HEAP, meta + 32, 8 | 32 | 30 << 6 | 16 << 12);
	put(HEAP, meta + 40 + 16, pieces[GROUP].addr + 16 + 3 * 6544);
	put4(HEAP, meta + 40 + 28, 0xf);
	put(HEAP, meta + 40 + 32, 19 | 32 | 12 << 6);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const uint8_t flags[] = { 0, 1 };

	self = proc__open(getpid());
	if (!self)
		exit(1);
	for (size_t i = 0; i < PIECES; i++) {
		pieces[i].v = calloc(1, pieces[i].size);
		if (!pieces[i].v)
			exit(1);
	}
	put_segment();
	put_arena();
	put_musl();
	for (size_t i = 0; i < sizeof(flags); i++)
		LLVMFuzzerTestOneInput(&flags[i], 1);
	return 0;
}

/* ---- a run ---- */

/* old: the process has mimalloc 2, otherwise 3. */
static void set_maps(struct host_reading *r, bool old)
{
	r->maps.maps.n = 0;
	for (size_t i = 0; i < PIECES; i++) {
		const struct piece *p = &pieces[i];
		size_t n = r->maps.maps.n;

		if (i == (old ? ARENA : SEGMENT))
			continue;
		maps[n] = (struct map){ .start = p->addr,
					.end = p->addr + p->mapped,
					.r = true,
					.w = true,
					.inode = *p->path == '/' ? i + 1 : 0,
					.path = p->path };
		figures[n] = (struct smaps_figures){ .rss = p->size };
		r->maps.maps.n++;
	}
	r->maps.maps.v = maps;
	r->maps.v = figures;
}

static void damage(const uint8_t *d)
{
	const struct piece *p = &pieces[d[0] % PIECES], *to = &pieces[d[4] % PIECES];
	uint64_t at = (d[1] | (uint64_t)d[2] << 8 | (uint64_t)(d[3] & 7) << 16) % p->size / 2 * 2;
	uint64_t small = d[5] | (uint64_t)d[6] << 8, v = small << (d[7] & 0x3f);

	if (d[7] & 0x80) /* a pointer */
		v = to->addr + small * 8 % to->size;
	undo[n_undo].at = p->v + at;
	undo[n_undo].len = at + 8 <= p->size && !(d[3] & 0x80) ? 8 : 2;
	memcpy(&undo[n_undo].was, p->v + at, undo[n_undo].len);
	memcpy(p->v + at, &v, undo[n_undo++].len);
}

/* Checks the claims and figures of any process. */
static void check(const struct host_reading *r)
{
	check_claims(r, HOST_MALLOC);
	for (size_t i = 0; i < r->ledger->allocators; i++) {
		const struct host_allocator *a = &r->ledger->allocator[i];

		if (a->free_known && (!a->known || a->live > UINT64_C(1) << 60 ||
				      a->free_blocks > UINT64_C(1) << 60))
			abort();
	}
}

/* Checks the process without damage. */
static void check_whole(const struct host_ledger *l)
{
	const struct host_allocator *mimalloc = &l->allocator[0], *musl = &l->allocator[1];

	if (l->allocators != 2 || !mimalloc->free_known || !musl->free_known ||
	    strcmp(mimalloc->name, "mimalloc") != 0 || strcmp(musl->name, "musl") != 0)
		abort();
	if (mimalloc->arenas != 1 || mimalloc->live != 598 * 64 ||
	    mimalloc->free_blocks != SLICE - 598 * 64)
		abort();
	if (musl->arenas != 1 || musl->live != 6 * 6544 + 16 * 288 ||
	    musl->free_blocks != 2 * 6544 + 4 * 288)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct host_opts o = { .brief = size > 8 && data[0] & 4 };
	struct host_places places = { 0 };
	struct host_ledger l = { 0 };
	struct host_reading r = { .proc = self, .opts = &o, .places = &places, .ledger = &l };

	set_maps(&r, size && data[0] & 1);
	for (size_t k = 1; k + 8 <= size && n_undo < MAX_STEPS; k += 8)
		damage(data + k);
	if (host_mimalloc__read(&r) || host_musl__read(&r))
		abort(); /* no error of a process that lives */
	if (host_spans__resolve(&r.claims) || host_spans__resolve(&r.second))
		abort();
	check(&r);
	if (size <= 8)
		check_whole(&l);
	host_spans__free(&r.claims);
	host_spans__free(&r.second);
	while (n_undo) {
		n_undo--;
		memcpy(undo[n_undo].at, &undo[n_undo].was, undo[n_undo].len);
	}
	return 0;
}
