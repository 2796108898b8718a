/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/sketch.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "base/hash.h"
#include "record/mtr.h"
#include "record/snapshot/records.h"

#define KEPT 64
#define RUN 4 /* entries that a hash is of */

/* The hashes that end with so many zero bits that at most KEPT are left. Two samples of sets that
 * overlap have hashes in common, as each keeps the same ones. */
struct sample {
	uint64_t all[KEPT];
	size_t n;
	unsigned zeros;
};

static bool is_kept(const struct sample *s, uint64_t hash)
{
	return !(hash & ((UINT64_C(1) << s->zeros) - 1));
}

static void drop_half(struct sample *s)
{
	size_t n = 0;

	s->zeros++;
	for (size_t i = 0; i < s->n; i++)
		if (is_kept(s, s->all[i]))
			s->all[n++] = s->all[i];
	s->n = n;
}

static void sample__add(struct sample *s, uint64_t hash)
{
	while (s->n == KEPT && s->zeros < 63)
		drop_half(s);
	if (s->n < KEPT && is_kept(s, hash))
		s->all[s->n++] = hash;
}

static void sample__print(const struct sample *s, FILE *out)
{
	for (size_t i = 0; i < s->n; i++)
		fprintf(out, " %" PRIx64, s->all[i]);
}

/* The hash of the entries up to `last`. Ranks may have an entry of the same time and address: those
 * that run in step do it in the same microsecond. RUN such entries in a row are of one process. */
static uint64_t hash_run(const struct snapshot_entry *last)
{
	uint64_t hash = 0;

	for (const struct snapshot_entry *e = last - (RUN - 1); e <= last; e++)
		hash = hash__mix(
			hash ^ hash__mix(hash__mix(e->time) ^ e->addr ^ (uint64_t)e->action << 56));
	return hash;
}

int sketch__set(const struct records *r, uint64_t first, uint64_t last, struct facts *f)
{
	struct sample entries = { .n = 0 }, segments = { .n = 0 };
	char text[(2 * KEPT + 4) * 20];
	FILE *out = fmemopen(text, sizeof(text), "w");

	if (!out)
		return -ENOMEM;
	for (size_t i = RUN - 1; i < r->n_entries && last; i++)
		sample__add(&entries, hash_run(&r->entries[i]));
	for (size_t i = 0; i < r->n_segments; i++)
		sample__add(&segments,
			    hash__mix(r->segments[i].addr ^ hash__mix(r->segments[i].device + 1)));
	fprintf(out, "%" PRIu64 " %" PRIu64, first, last);
	sample__print(&entries, out);
	fputs(" /", out);
	sample__print(&segments, out);
	fclose(out);
	return facts__set(f, "sketch", text);
}
