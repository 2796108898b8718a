/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: an allocator built in this process; the input overwrites words in it, before
 * its layout is searched or between that and a pass. Each damage has 8 bytes: piece of memory,
 * word, value.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The readers check the header of glibc's malloc; the sanitizer's malloc has another one. */
#define HEAD 16

static void *with_head(size_t size)
{
	uint64_t *p = calloc(1, HEAD + size);

	if (!p)
		abort();
	p[1] = (size + 8 + 15) / 16 * 16 | 1;
	return p + HEAD / 8;
}

#define FAKE_CALLOC(size) with_head(size)
#define FAKE_FREE(p) free((uint8_t *)(p)-HEAD)

#include "fake_cudaalloc.h"
#include "inspect/cudaalloc.h"
#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE UINT64_C(0x7f4000000000)
#define MIB (UINT64_C(1) << 20)

static const struct fake_block mixed[] = {
	{ 512, 4, FAKE_LIVE },
	{ 1024, 1000, FAKE_LIVE },
	{ 512, 512, FAKE_CACHED },
	{ 4096, 3000, FAKE_LIVE },
	{ 2048, 1500, FAKE_PENDING },
	{ 512, 500, FAKE_LIVE },
	{ 2 * MIB - 8704, 0, FAKE_CACHED },
};
static const struct fake_block holes[] = {
	{ 2 * MIB, 2 * MIB - 1, FAKE_LIVE },
	{ 40 * MIB, 0, FAKE_UNMAPPED },
	{ 6 * MIB, 6 * MIB, FAKE_LIVE },
};
static const struct fake_segment segments[] = {
	{ .addr = BASE, .small = true, .private = -1, .blocks = mixed, .n = 7 },
	{ .addr = BASE + 2 * MIB,
	  .small = true,
	  .private = -1,
	  .blocks = mixed,
	  .n = 7,
	  .stream = 0x1230 },
	{ .addr = BASE + 64 * MIB, .expandable = true, .private = -1, .blocks = holes, .n = 3 },
	{ .addr = BASE + 4 * MIB, .device = 1, .small = true, .private = 0, .blocks = mixed, .n = 7 },
};

/* Checks what cudaalloc.h promises of every state. */
static void check(const struct cudaalloc_state *s)
{
	uint64_t end = 0;

	for (size_t i = 0; i < s->nsegments; i++) {
		const struct cuda_segment *g = &s->segments[i];

		if (g->addr < end || (size_t)g->first + g->nblocks > s->nblocks ||
		    g->device >= s->ndevices)
			abort();
		end = g->addr + g->size;
		for (size_t b = g->first; b < (size_t)g->first + g->nblocks; b++) {
			const struct cuda_block *k = &s->blocks[b];

			if (k->segment != i || k->addr < g->addr || k->addr + k->size > end ||
			    !k->size || k->requested > k->size || k->device != g->device ||
			    (b > g->first && k->addr < k[-1].addr + k[-1].size))
				abort();
		}
	}
	for (size_t i = 0; i < s->ndevices; i++) {
		if (s->devices[i].consistent != !s->devices[i].why[0])
			abort();
	}
}

static void damage(struct fake_world *w, const uint8_t *d)
{
	uint16_t piece = (uint16_t)(d[0] | (d[1] & 0x7f) << 8), word = (uint16_t)(d[2] | d[3] << 8);
	uint8_t *at = w->mem[piece % w->nmem];
	size_t size = at == w->object ? FAKE_OBJECT : 40; /* smallest piece: a tree node */
	uint64_t value;

	for (size_t i = 0; i < w->ndevices; i++)
		size = at == w->devices[i] ? w->l->device_size : size;
	if (d[1] & 0x80) /* write a pointer to another piece */
		value = (uintptr_t)w->mem[(size_t)(d[4] | d[5] << 8) % w->nmem] + (d[6] & 0x78);
	else
		value = (uint64_t)(d[4] | d[5] << 8 | d[6] << 16) << (d[7] & 0x3f);
	fake_put(at + word % (size / 8) * 8, value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cudaalloc a = { .active_bytes = -1, .requested_bytes = -1 };
	struct proc *self = proc__open(getpid());
	struct cudaalloc_state s;
	struct fake_world *w;

	if (!self || size < 1)
		goto out;
	w = fake_world__new(&fake_layouts[data[0] % 3], 2);
	for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++)
		fake_world__add(w, &segments[i]);
	a.proc = self;
	a.slot = (uintptr_t)&w->slot;
	if ((data[0] & 0x80) && cudaalloc__calibrate(&a) && (write(2, a.why, strlen(a.why)) || 1))
		abort();
	for (size_t i = 1; i + 8 <= size; i += 8)
		damage(w, data + i);
	if (!(data[0] & 0x80))
		cudaalloc__calibrate(&a);
	if (!cudaalloc__read(&a, &s)) {
		check(&s);
		cudaalloc_state__free(&s);
	}
	fake_world__free(w);
out:
	proc__free(self);
	return 0;
}
