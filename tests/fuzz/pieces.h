/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A process of a few pieces of memory, for libFuzzer targets that read allocators' tables. The
 * input of such a target: flags, then steps of 8 bytes that overwrite a word: piece, offset, value.
 * For inclusion in one file of a program linked with
 * --wrap=process_vm_readv,--wrap=poll,--wrap=host_resident__read. The file defines `pieces`.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claims.h"
#include "fake_process.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int __wrap_host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			       const struct resident_range **v, size_t *n);

#define KIB 1024u
#define MAX_STEPS 64

struct piece {
	const char *path;
	uint64_t addr;
	size_t size;
	bool code;
	uint8_t *v; /* its memory; NULL: it is not resident */
};

static struct piece pieces[PIECES];
static struct {
	uint8_t *at;
	uint64_t was;
	size_t len;
} undo[MAX_STEPS];
static size_t n_undo;
static struct proc *self; /* the process that is read: this one */

/* Makes the memory of all pieces but `unread`; -1: of all. */
static void make_pieces(int unread)
{
	self = proc__open(getpid());
	if (!self)
		exit(1);
	for (int i = 0; i < PIECES; i++) {
		if (i == unread)
			continue;
		pieces[i].v = calloc(1, pieces[i].size);
		if (!pieces[i].v)
			exit(1);
	}
}

static struct piece *piece_at(uint64_t addr)
{
	for (size_t i = 0; i < PIECES; i++)
		if (pieces[i].v && addr >= pieces[i].addr && addr < pieces[i].addr + pieces[i].size)
			return &pieces[i];
	return NULL;
}

static size_t fake_memory(void *dst, size_t size, uint64_t addr)
{
	size_t done = 0;

	for (const struct piece *p; done < size && (p = piece_at(addr + done));) {
		size_t left = p->addr + p->size - addr - done;

		left = left < size - done ? left : size - done;
		memcpy((uint8_t *)dst + done, p->v + (addr + done - p->addr), left);
		done += left;
	}
	return done;
}

/* All pages of pieces with memory are resident. */
int __wrap_host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			       const struct resident_range **v, size_t *n)
{
	static struct resident_range all;
	uint64_t last = start;

	for (const struct piece *p; last < end && (p = piece_at(last));)
		last = p->addr + p->size;
	all = (struct resident_range){ start, end < last ? end : last };
	*v = &all;
	*n = last > start;
	return 0;
}

static void put(int which, uint64_t at, uint64_t value)
{
	memcpy(pieces[which].v + at, &value, sizeof(value));
}

static void put4(int which, uint64_t at, uint32_t value)
{
	memcpy(pieces[which].v + at, &value, sizeof(value));
}

/* Overwrites a word as the 8 bytes d say. */
static void damage(const uint8_t *d)
{
	const struct piece *p = &pieces[d[0] % PIECES], *to = &pieces[d[4] % PIECES];
	uint64_t at = (d[1] | (uint64_t)d[2] << 8 | (uint64_t)(d[3] & 7) << 16) % p->size / 4 * 4;
	uint64_t small = d[5] | (uint64_t)d[6] << 8, v = small << (d[7] & 0x3f);

	if (!p->v || n_undo == MAX_STEPS)
		return;
	if (d[7] & 0x80) /* a pointer */
		v = to->addr + small * 8 % to->size;
	undo[n_undo].at = p->v + at;
	undo[n_undo].len = at + 8 <= p->size && !(d[3] & 0x80) ? 8 : 4;
	memcpy(&undo[n_undo].was, p->v + at, undo[n_undo].len);
	memcpy(p->v + at, &v, undo[n_undo++].len);
}

static void undo_damage(void)
{
	while (n_undo) {
		n_undo--;
		memcpy(undo[n_undo].at, &undo[n_undo].was, undo[n_undo].len);
	}
}

/* Sets the mappings of the process: the pieces in this order, which is by address. */
static void set_maps(struct host_reading *r, const int *order)
{
	static struct map maps[PIECES];
	static struct smaps_figures figures[PIECES];

	for (size_t i = 0; i < PIECES; i++) {
		const struct piece *p = &pieces[order[i]];
		bool file = *p->path == '/';

		maps[i] = (struct map){ .start = p->addr,
					.end = p->addr + p->size,
					.r = true,
					.w = !p->code,
					.x = p->code,
					.inode = file ? (uint64_t)order[i] + 1 : 0,
					.path = p->path };
		figures[i] = (struct smaps_figures){ .rss = p->v ? p->size : 0 };
	}
	r->maps.maps.v = maps;
	r->maps.maps.n = PIECES;
	r->maps.v = figures;
}
