/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bounds the model's memory in programs that run for days. It removes sites, requests and labels
 * that no block uses, now or at the mark. The allocations of removed sites are added up by stack
 * and thread, without sizes, and beyond a limit by device alone. Such a sum is a site with the flag
 * varied.
 */
#include "model/heap/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "model/heap/blocks.h"
#include "model/heap/device.h"
#include "model/heap/growth_watch.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "model/heap/layers.h"
#include "model/heap/scopes.h"
#include "model/heap/steps.h"

#define VARIED_PART 4 /* sums may be a quarter of the sites kept */

/* A flag for each entry in use: by index of the site, by request_no and by label_no. */
struct in_use {
	uint8_t *sites, *requests, *labels;
};

/* Marks what the device's blocks refer to, now and at the noted moments. */
static void mark_used_by_device(const struct dev *dev, const struct in_use *u)
{
	const struct blocks *b = &dev->blocks;
	uint64_t addr, i;
	size_t pos = 0;

	while (map64__next(b->at, &pos, &addr, &i)) {
		u->sites[b->recs[i].site] = 1;
		u->requests[b->recs[i].request_no] = 1;
		u->labels[b->recs[i].label_no] = 1;
	}
	for (int when = 0; when < ROWS_MOMENTS; when++)
		for (uint32_t g = 0; g < b->gone[when].n; g++) {
			const struct block *block = &b->gone[when].all[g];

			u->sites[block->site] = 1;
			u->requests[block->request_no] = 1;
			u->labels[block->label_no] = 1;
		}
	if (dev->peak_site_no)
		u->sites[dev->peak_site_no - 1] = 1;
}

/* Marks what the model's blocks refer to. Returns 0 or -ENOMEM. The caller frees u's arrays in both
 * cases. */
static int mark_used(const struct model *m, struct in_use *u)
{
	u->sites = calloc((size_t)m->sites.n + 1, 1);
	u->requests = calloc((size_t)m->requests.n + 1, 1);
	u->labels = calloc((size_t)m->labels.n + 1, 1);
	if (!u->sites || !u->requests || !u->labels)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->ndevs; i++)
		mark_used_by_device(m->devs[i], u);
	if (m->growth)
		growth__mark_sites(m, u->sites);
	return 0;
}

/* ---- sites ---- */

/* Returns the sum for sites that equal this one except in size. NULL: none yet. */
static struct site *varied_site(const struct model *m, const struct site *like)
{
	uint32_t hash = heap__site_hash(m, like), pos = hash, id;

	while ((id = hash_index__next(&m->sites.index, hash, &pos)) != UINT32_MAX) {
		struct site *site = &m->sites.all[id];

		if (site->varied && site->stack == like->stack && site->thread == like->thread &&
		    site->node == like->node && site->scope_no == like->scope_no &&
		    site->launcher == like->launcher && site->dev == like->dev &&
		    site->walk == like->walk && site->drawn == like->drawn)
			return site;
	}
	return NULL;
}

/* Adds an empty sum for sites that equal this one except in size. NULL if memory is short. */
static struct site *new_varied(struct model *m, const struct site *like)
{
	struct site *sum;
	uint32_t id;

	if (heap__add_site(m, heap__site_hash(m, like), &id))
		return NULL;
	sum = &m->sites.all[id];
	*sum = *like;
	sum->total = sum->size = 0;
	m->sites.varied++;
	return sum;
}

/* Adds what a removed site allocated to its sum; beyond max_sums sums, to that of the device.
 * Returns 0 or -ENOMEM. */
static int keep_sum(struct model *m, struct site gone, uint32_t max_sums)
{
	uint64_t bytes = site__bytes(&gone, gone.total);
	struct site *sum;

	if (!gone.total)
		return 0;
	gone.varied = true;
	sum = varied_site(m, &gone);
	if (!sum && m->sites.varied >= max_sums) {
		gone = (struct site){ .dev = gone.dev,
				      .total = gone.total,
				      .walk = MT_WALK_LOST,
				      .phase = PHASE_OTHER,
				      .varied = true };
		sum = varied_site(m, &gone);
	}
	if (!sum)
		sum = new_varied(m, &gone);
	if (!sum)
		return -ENOMEM;
	sum->size += bytes;
	sum->total += gone.total;
	return 0;
}

/* Rebuilds the index from the sites in use and sums, and frees the other sites. *gone: a copy of
 * the freed ones, which the caller frees; *n: their number. Returns 0 or -ENOMEM. */
static int remove_unused(struct model *m, const uint8_t *used, struct site **gone, uint32_t *n)
{
	*gone = NULL;
	*n = 0;
	free(m->sites.index.slots);
	m->sites.index = (struct hash_index){ 0 };
	memset(m->sites.recent, 0, sizeof(m->sites.recent));
	for (uint32_t i = 0; i < m->sites.n; i++)
		*n += !m->sites.all[i].unused && !m->sites.all[i].varied && !used[i];
	*gone = malloc(((size_t)*n + 1) * sizeof(**gone));
	if (!*gone)
		return -ENOMEM;
	*n = 0;
	for (uint32_t i = 0; i < m->sites.n; i++) {
		struct site *site = &m->sites.all[i];

		if (site->unused)
			continue;
		if (used[i] || site->varied) {
			if (hash_index__add(&m->sites.index, heap__site_hash(m, site), i))
				return -ENOMEM;
			continue;
		}
		(*gone)[(*n)++] = *site;
		*site = (struct site){ .unused = true, .stack = m->sites.free_no };
		m->sites.free_no = i + 1;
		if (m->growth)
			growth__drop_site(m, i);
	}
	return 0;
}

/* Removes the sites that are not in use, and keeps sums of them. Returns 0 or -ENOMEM. */
static int sweep_sites(struct model *m, const uint8_t *used)
{
	uint32_t max_sums = m->sites.max / VARIED_PART, n;
	struct site *gone;
	int err = remove_unused(m, used, &gone, &n);

	for (uint32_t i = 0; i < n && !err; i++)
		err = keep_sum(m, gone[i], max_sums);
	free(gone);
	return err;
}

/* ---- requests and labels ---- */

/* Moves the entries in use to the front of an array of n, and returns their number. used[NAME_no]:
 * the entry is in use. Sets new_no[NAME_no] to its new NAME_no. */
static uint32_t pack_used(void *array, size_t size, uint32_t n, const uint8_t *used,
			  uint32_t *new_no)
{
	uint32_t kept = 0;
	char *entries = array;

	new_no[0] = 0; /* 0 is "none" and stays so */
	for (uint32_t i = 0; i < n; i++) {
		if (!used[i + 1])
			continue;
		if (i != kept)
			memcpy(entries + kept * size, entries + i * size, size);
		new_no[i + 1] = ++kept;
	}
	return kept;
}

/* Replaces each request_no by requests[request_no], and each label_no likewise. */
static void renumber(const struct model *m, const uint32_t *requests, const uint32_t *labels)
{
	for (uint32_t d = 0; d < m->ndevs; d++) {
		struct blocks *b = &m->devs[d]->blocks;
		uint64_t addr, i;
		size_t pos = 0;

		while (map64__next(b->at, &pos, &addr, &i)) {
			struct rec *r = &b->recs[i];

			r->request_no = requests[r->request_no];
			r->label_no = labels[r->label_no];
		}
		for (int when = 0; when < ROWS_MOMENTS; when++)
			for (uint32_t g = 0; g < b->gone[when].n; g++) {
				struct block *r = &b->gone[when].all[g];

				r->request_no = requests[r->request_no];
				r->label_no = labels[r->label_no];
			}
	}
}

/* Rebuilds the index of n entries of size bytes. Returns 0 or -ENOMEM. */
static int rebuild_index(const struct model *m, struct hash_index *h, const void *all, uint32_t n,
			 size_t size)
{
	free(h->slots);
	*h = (struct hash_index){ 0 };
	for (uint32_t i = 0; i < n; i++)
		if (hash_index__add(h, hash__bytes(m->seed, (const char *)all + i * size, size), i))
			return -ENOMEM;
	return 0;
}

/* Removes the requests and labels that are not in use. Returns 0 or -ENOMEM. */
static int sweep_requests_and_labels(struct model *m, const struct in_use *u)
{
	uint32_t *requests = malloc(((size_t)m->requests.n + 1) * sizeof(*requests));
	uint32_t *labels = malloc(((size_t)m->labels.n + 1) * sizeof(*labels));
	int err = -ENOMEM;

	if (!requests || !labels)
		goto out;
	m->requests.n = pack_used(m->requests.all, sizeof(*m->requests.all), m->requests.n,
				  u->requests, requests);
	m->labels.n = pack_used(m->labels.all, sizeof(*m->labels.all), m->labels.n, u->labels,
				labels);
	renumber(m, requests, labels);
	if (rebuild_index(m, &m->requests.index, m->requests.all, m->requests.n,
			  sizeof(*m->requests.all)) ||
	    rebuild_index(m, &m->labels.index, m->labels.all, m->labels.n, sizeof(*m->labels.all)))
		goto out;
	err = 0;
out:
	free(requests);
	free(labels);
	return err;
}

/* ---- sweeps ---- */

int gc__all(struct model *m)
{
	struct in_use in_use = { 0 };
	uint32_t most = 0; /* entries of the largest table after the sweep */
	int err;

	/* An export of the whole history needs all entries to the end. */
	if (m->watch.on_block) {
		m->sites.sweep_at = UINT32_MAX;
		return 0;
	}
	err = mark_used(m, &in_use);
	if (err)
		goto out;
	err = sweep_sites(m, in_use.sites);
	if (err)
		goto out;
	err = sweep_requests_and_labels(m, &in_use);
out:
	free(in_use.sites);
	free(in_use.requests);
	free(in_use.labels);
	/* If most entries are in use, wait for twice as many before the next sweep. */
	for (int i = 0; i < 3; i++) { /* the tables in n */
		uint32_t n[] = { m->requests.n, m->labels.n, m->sites.index.n };

		most = n[i] > most ? n[i] : most;
	}
	m->sites.sweep_at = m->sites.max;
	if (most > m->sites.max / 2)
		m->sites.sweep_at = most < UINT32_MAX / 4 ? most * 2 : UINT32_MAX / 2;
	return err;
}

/* Treats threads without events since the last sweep as ended. Their layers and calls end with
 * their last event. */
int gc__threads(struct model *m)
{
	uint32_t kept = 0;
	int err = 0;

	for (uint32_t i = 0; i < m->threads.n && !err; i++) {
		struct thread_state *t = m->threads.all[i];

		if (!t)
			continue;
		if (t->seen >= m->threads.swept) {
			kept++;
			continue;
		}
		layers__close(m, t);
		layers__leave_all(m, t, i, t->last);
		if (m->steps.caller == t)
			err = steps__close_call(m);
		if (!err)
			err = scopes__end_thread(m, i);
		free(t->entered);
		free(t);
		m->threads.all[i] = NULL;
	}
	m->threads.swept = m->seq;
	m->threads.states = kept;
	m->threads.sweep_at = kept > THREADS_KEPT / 2 ? kept * 2 : THREADS_KEPT;
	return err;
}
