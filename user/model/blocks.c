/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The blocks of a device by address, now and at the mark, and what was asked for. */
#include "model/internal.h"

#include <errno.h>
#include <stdlib.h>

#define NOTES_MIN 65536

/* Of each address only the first note counts. */
static int blocks__compact(struct block_notes *notes)
{
	struct map64 *seen = map64__new();
	uint32_t n = 0;
	uint64_t one;
	int err = seen ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < notes->n && !err; i++) {
		if (map64__get(seen, notes->all[i].addr, &one))
			continue;
		err = map64__set(seen, notes->all[i].addr, 1);
		if (!err)
			notes->all[n++] = notes->all[i];
	}
	map64__free(seen);
	if (err)
		return err; /* some notes are twice there: no harm */
	notes->n = n;
	notes->limit = n > NOTES_MIN / 2 ? 2 * n : NOTES_MIN;
	return 0;
}

int blocks__note(struct dev *dev, uint64_t addr, uint64_t before)
{
	struct block_notes *notes = &dev->notes;
	int err = 0;

	if (!dev->pub.marked || dev->pub.device.type == DEVICE_CPU)
		return 0;
	if (notes->n >= (notes->limit ? notes->limit : NOTES_MIN))
		err = blocks__compact(notes);
	if (!err)
		err = array__reserve(&notes->all, &notes->cap, sizeof(*notes->all), (uint64_t)notes->n + 1);
	if (!err)
		notes->all[notes->n++] = (struct block){ .addr = addr, .value = before };
	return err;
}

static int cmp_block(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

int blocks__list(const struct dev *dev, bool at_mark, struct block **ret, size_t *n)
{
	const struct block_notes *notes = &dev->notes;
	struct block *all = malloc((map64__count(dev->blocks) + notes->n + 1) * sizeof(*all));
	struct map64 *noted = at_mark ? map64__new() : NULL;
	uint64_t addr, value, one;
	size_t pos = 0, k = 0;
	int err = all && (noted || !at_mark) ? 0 : -ENOMEM;

	for (uint32_t i = 0; at_mark && i < notes->n && !err; i++) {
		if (map64__get(noted, notes->all[i].addr, &one))
			continue;
		err = map64__set(noted, notes->all[i].addr, 1);
		if (notes->all[i].value != BLOCK_NONE)
			all[k++] = notes->all[i];
	}
	while (!err && map64__next(dev->blocks, &pos, &addr, &value))
		if (!at_mark || !map64__get(noted, addr, &one))
			all[k++] = (struct block){ .addr = addr, .value = value };
	map64__free(noted);
	if (err) {
		free(all);
		return err;
	}
	qsort(all, k, sizeof(*all), cmp_block);
	*ret = all;
	*n = k;
	return 0;
}

int blocks__ask(struct model *m, struct ask ask, uint32_t *ret1)
{
	uint64_t key[2] = { ask.requested, ask.cuda_stream };
	uint32_t hash = hash__bytes(m->seed, key, sizeof(key)), pos = hash, id;
	int err;

	while ((id = hidx__next(&m->ask_index, hash, &pos)) != UINT32_MAX) {
		if (m->asks[id].requested == ask.requested && m->asks[id].cuda_stream == ask.cuda_stream) {
			*ret1 = id + 1;
			return 0;
		}
	}
	if (m->nasks == UINT32_MAX - 1)
		return -ENOMEM;
	err = array__reserve(&m->asks, &m->capasks, sizeof(*m->asks), (uint64_t)m->nasks + 1);
	if (!err)
		err = hidx__add(&m->ask_index, hash, m->nasks);
	if (err)
		return err;
	m->asks[m->nasks++] = ask;
	*ret1 = m->nasks;
	return 0;
}
