/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The sampler of jemalloc (opt.prof), from outside: sampled live blocks by stack. A hash table
 * leads from each stack to its blocks; it is found in the library's data by its structure. Layouts:
 * jemalloc 5.3 on 64-bit machines: ckh_t (jemalloc/ckh), prof_gctx_t and prof_tctx_t
 * (jemalloc/prof_structs).
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"
#include "base/text.h"
#include "inspect/proc.h"

#define DATA_MAX (32u << 20)
#define TABLE_BYTES 48u	   /* sizeof(ckh_t) */
#define BUCKET_CELLS 4u	   /* 1 << LG_CKH_BUCKET_CELLS */
#define LG_BUCKETS_MAX 16u /* 262,144 cells */
#define CELL 16u	   /* sizeof(ckhc_t): key, data */
#define GCTX_TREE 16u	   /* offsets in prof_gctx_t: tctxs, bt, vec */
#define GCTX_STACK 104u
#define GCTX_CALLS 120u
#define TCTX_BYTES 128u /* bytes of prof_tctx_t that are read */
/* Indices of its words: sampled blocks and their bytes, and the bytes that they stand for; the
 * stack; the tree. */
enum {
	TCTX_BLOCKS = 4,
	TCTX_SIZE = 6,
	TCTX_ESTIMATE = 7,
	TCTX_GCTX = 12,
	TCTX_LEFT = 14,
	TCTX_RIGHT
};
/* Offsets in ckh_t. */
#define TABLE_COUNT 8u
#define TABLE_LG 16u /* least and current logarithm of buckets, 4 bytes each */
#define TABLE_HASH 24u
#define TABLE_EQUAL 32u
#define TABLE_CELLS 40u
#define CALLS_MAX 128u /* PROF_BT_MAX */
#define READS_MAX (128u << 10)
#define DEPTH_MAX 64u /* depth of a tree of counters */

struct prof {
	struct host_reading *reading;
	struct host_samples *to;
	size_t reads;
	double lg_period;  /* logarithm to base 2 of the period; from the smallest blocks */
	double least_size; /* bytes of these blocks; 0: none */
};

/* Reads memory of the tables. -ENOENT: it is not there. -E2BIG: too many reads. */
static int read_table(struct prof *prof, uint64_t addr, void *buf, size_t len)
{
	int err;

	if (addr % 8 || !host_places__is_private_memory(&prof->reading->maps, addr, len))
		return -ENOENT;
	if (++prof->reads > READS_MAX)
		return -E2BIG;
	err = host_places__read_resident(prof->reading, addr, buf, len);
	return host_places__is_local(err) ? -ENOENT : err;
}

/* Sums of the counters of one stack. */
struct counts {
	uint64_t blocks, bytes; /* sampled, live */
	uint64_t estimate;	/* all live bytes, by jemalloc itself */
};

/* Adds the counters of one thread, a prof_tctx_t. gctx: the stack that it has to belong to. link:
 * set to the left and right node below it in the tree. */
static int add_counts(struct prof *prof, uint64_t addr, uint64_t gctx, struct counts *counts,
		      uint64_t link[2])
{
	uint64_t tctx[TCTX_BYTES / 8];
	int err = read_table(prof, addr, tctx, sizeof(tctx));

	if (err)
		return err;
	if (tctx[TCTX_GCTX] != gctx || tctx[TCTX_BLOCKS] > tctx[TCTX_SIZE] ||
	    tctx[TCTX_SIZE] > tctx[TCTX_ESTIMATE] || tctx[TCTX_ESTIMATE] >> 46)
		return -ENOENT;
	counts->blocks += tctx[TCTX_BLOCKS];
	counts->bytes += tctx[TCTX_SIZE];
	counts->estimate += tctx[TCTX_ESTIMATE];
	link[0] = tctx[TCTX_LEFT];
	link[1] = tctx[TCTX_RIGHT] & ~UINT64_C(1); /* without the color */
	return 0;
}

/* Adds the counters of all threads that allocated with a stack. */
static int add_tree(struct prof *prof, uint64_t root, uint64_t gctx, struct counts *counts)
{
	uint64_t todo[DEPTH_MAX], link[2]; /* todo: stack of nodes to visit */
	size_t n = 0;
	int err;

	todo[n++] = root;
	while (n) {
		uint64_t addr = todo[--n];

		if (!addr)
			continue;
		if (n + 2 > DEPTH_MAX)
			return -ENOENT;
		err = add_counts(prof, addr, gctx, counts, link);
		if (err)
			return err;
		todo[n++] = link[0];
		todo[n++] = link[1];
	}
	return 0;
}

/* Derives the period from a stack's counters: jemalloc counts blocks of s bytes as s / (1 - exp(-s
 * / period)) bytes. The smallest blocks give it most exactly. counts: of sampled blocks, and the
 * bytes that they stand for. */
static void take_period(struct prof *prof, const struct counts *counts)
{
	double size = (double)counts->bytes / (double)counts->blocks;
	double chosen = (double)counts->bytes / (double)counts->estimate;

	/* Large blocks are nearly all sampled, and say little about the period. */
	if (chosen > 0.9 || (prof->least_size > 0 && size >= prof->least_size))
		return;
	prof->least_size = size;
	prof->lg_period = log2(-size / log1p(-chosen));
}

/* Adds a stack: a prof_gctx_t with its key in the hash table. -ENOENT: gctx is no stack. */
static int add_stack(struct prof *prof, uint64_t key, uint64_t gctx)
{
	uint64_t gctx_words[GCTX_CALLS / 8], call[HOST_SAMPLE_CALLS] = { 0 };
	uint32_t calls;
	struct counts counts = { 0 };
	int err;

	if (key != gctx + GCTX_STACK)
		return -ENOENT;
	err = read_table(prof, gctx, gctx_words, sizeof(gctx_words));
	if (err)
		return err;
	calls = (uint32_t)gctx_words[GCTX_STACK / 8 + 1];
	if (gctx_words[GCTX_STACK / 8] != gctx + GCTX_CALLS || !calls || calls > CALLS_MAX)
		return -ENOENT;
	calls = calls < HOST_SAMPLE_CALLS ? calls : HOST_SAMPLE_CALLS;
	err = read_table(prof, gctx + GCTX_CALLS, call, calls * sizeof(*call));
	err = err ?: add_tree(prof, gctx_words[GCTX_TREE / 8], gctx, &counts);
	if (err || !counts.blocks || !counts.estimate)
		return err;
	take_period(prof, &counts);
	return host_samples__add(prof->to, counts.blocks, counts.estimate, call, calls);
}

/* Adds all stacks of the hash table whose cells are at addr. A stack that changes meanwhile is left
 * out. -ENOENT: no cell has a stack. */
static int add_stacks(struct prof *prof, uint64_t addr, size_t cells)
{
	uint64_t *table = malloc(cells * CELL);
	size_t found = 0;
	int err;

	if (!table)
		return -ENOMEM;
	err = read_table(prof, addr, table, cells * CELL);
	for (size_t i = 0; i < cells && !err; i++) {
		if (!table[2 * i]) /* an empty cell */
			continue;
		err = add_stack(prof, table[2 * i], table[2 * i + 1]);
		if (err == -ENOENT && found)
			err = 0;
		found += !err;
	}
	free(table);
	if (!err && !found)
		err = -ENOENT;
	return err;
}

/* True if words may be the hash table of stacks, a ckh_t. */
static bool may_be_table(const struct host_reading *reading, const uint8_t *words)
{
	uint64_t count = proc__word(words + TABLE_COUNT);
	uint64_t lg = proc__word(words + TABLE_LG);
	uint32_t least = (uint32_t)lg, now = (uint32_t)(lg >> 32);

	return count && now && least <= now && now <= LG_BUCKETS_MAX &&
	       count <= (uint64_t)BUCKET_CELLS << now &&
	       host_places__is_code(&reading->maps, proc__word(words + TABLE_HASH)) &&
	       host_places__is_code(&reading->maps, proc__word(words + TABLE_EQUAL));
}

/* Finds the table in a file's data and adds its stacks. -ENOENT: not there. */
static int search_data(struct prof *prof, const struct host_data *data)
{
	for (size_t at = 0; at + TABLE_BYTES <= data->len; at += 8) {
		const uint8_t *words = data->v + at;
		size_t cells;
		int err;

		if (!may_be_table(prof->reading, words))
			continue;
		cells = (size_t)BUCKET_CELLS << (proc__word(words + TABLE_LG) >> 32);
		err = add_stacks(prof, proc__word(words + TABLE_CELLS), cells);
		if (err != -ENOENT)
			return err;
		prof->to->n = 0;
	}
	return -ENOENT;
}

/* True if the mapping is the writable data of jemalloc's library or of the program. */
static bool may_have_jemalloc(const struct map *map, const char *exe)
{
	if (!map->w || map->shared || !map->inode)
		return false;
	return text__starts(map__base_name(map->path), "libjemalloc") || !strcmp(map->path, exe);
}

int host_jeprof__read(struct host_reading *reading)
{
	struct prof prof = { .reading = reading, .to = reading->opts->samples };
	int err = -ENOENT;
	char exe[4096];

	if (!prof.to || prof.to->sampler)
		return 0;
	proc__exe(reading->proc, exe, sizeof(exe));
	for (size_t i = 0; i < reading->maps.maps.n && err == -ENOENT; i++) {
		struct host_data data;

		if (!may_have_jemalloc(&reading->maps.maps.v[i], exe))
			continue;
		err = host_places__read_data(reading, i, DATA_MAX, &data);
		if (err) {
			err = host_places__is_local(err) ? -ENOENT : err;
			continue;
		}
		err = search_data(&prof, &data);
		free(data.v);
	}
	if (err) {
		prof.to->n = 0;
		return err == -ENOENT || err == -E2BIG ? 0 : err;
	}
	prof.to->sampler = "jemalloc";
	if (prof.least_size > 0 && prof.lg_period > 0 && prof.lg_period < 48)
		prof.to->period = UINT64_C(1) << lround(prof.lg_period); /* lg_prof_sample */
	return 0;
}
