/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/repeat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"

#define DEVICES 64
#define KEPT (2 * REPEAT_CYCLE)

struct level {
	uint64_t peak_allocated, peak_reserved, allocated, reserved;
};

/* Counts within one step. */
struct number {
	uint64_t allocs, frees;
};

struct step {
	uint64_t stack;
	struct level of[DEVICES];
	struct number number[DEVICES];
};

struct repeat {
	struct device devices[DEVICES];
	struct map64 *blocks[DEVICES]; /* sizes by address, on a device whose allocator reports no
					  totals */
	size_t n;
	struct step now;
	struct step kept[KEPT];	     /* step i is at index i % KEPT, from 0 */
	struct growing {	     /* of step i, at index i % REPEAT_GROWN */
		uint64_t end, above; /* allocated bytes at the end, and of the peak above it */
	} growing[REPEAT_GROWN][DEVICES];
	uint64_t steps;
	bool too_many; /* true if there are too many devices to compare */
};

struct repeat *repeat__new(void)
{
	return calloc(1, sizeof(struct repeat));
}

void repeat__free(struct repeat *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		map64__free(r->blocks[i]);
	free(r);
}

/* Returns the device's index, or -1 if the table is full. */
static int find_device(struct repeat *r, struct device d)
{
	for (size_t i = 0; i < r->n; i++)
		if (device__same(r->devices[i], d))
			return (int)i;
	if (r->n == DEVICES)
		return -1;
	r->devices[r->n] = d;
	return (int)r->n++;
}

static int count_block(struct repeat *r, int i, const struct event *e)
{
	struct level *l = &r->now.of[i];
	uint64_t known;

	if (!r->blocks[i])
		r->blocks[i] = map64__new();
	if (!r->blocks[i])
		return -ENOMEM;
	if (e->kind == EVENT_ALLOC) {
		l->allocated += e->size;
		return map64__set(r->blocks[i], e->addr, e->size);
	}
	if (map64__del(r->blocks[i], e->addr, &known))
		l->allocated -= known;
	return 0;
}

static int on_block(struct repeat *r, const struct event *e)
{
	int i = find_device(r, e->device), err = 0;
	struct level *l = i < 0 ? NULL : &r->now.of[i];

	if (!l) {
		r->too_many = true;
		return 0;
	}
	if (e->totals) {
		l->allocated = e->allocated;
		l->reserved = e->reserved;
	} else {
		err = count_block(r, i, e);
	}
	r->now.number[i].allocs += e->kind == EVENT_ALLOC;
	r->now.number[i].frees += e->kind == EVENT_FREE;
	if (l->allocated > l->peak_allocated)
		l->peak_allocated = l->allocated;
	if (l->reserved > l->peak_reserved)
		l->peak_reserved = l->reserved;
	return err;
}

static void on_step(struct repeat *r, uint32_t stack)
{
	r->now.stack = stack;
	for (size_t i = 0; i < r->n; i++) {
		const struct level *l = &r->now.of[i];

		r->growing[r->steps % REPEAT_GROWN][i] = (struct growing){
			.end = l->allocated, .above = l->peak_allocated - l->allocated
		};
	}
	r->kept[r->steps++ % KEPT] = r->now;
	for (size_t i = 0; i < r->n; i++) {
		r->now.of[i].peak_allocated = r->now.of[i].allocated;
		r->now.of[i].peak_reserved = r->now.of[i].reserved;
		r->now.number[i] = (struct number){ 0 };
	}
}

int repeat__event(struct repeat *r, const struct event *e)
{
	if (e->kind == EVENT_STEP)
		on_step(r, e->stack);
	else if ((e->kind == EVENT_ALLOC || e->kind == EVENT_FREE) && !device__on_host(e->device))
		return on_block(r, e);
	return 0;
}

uint64_t repeat__steps(const struct repeat *r)
{
	return r->steps;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/*
 * Compares two levels. A cached block may be up to 1 MiB larger than requested and counts in full.
 * Which one is used depends on the history, so allocated bytes differ even between identical steps.
 */
static bool levels_are_close(const struct level *a, const struct level *b, uint64_t *spread)
{
	uint64_t peak = difference(a->peak_allocated, b->peak_allocated);
	uint64_t end = difference(a->allocated, b->allocated);

	if (peak > *spread)
		*spread = peak;
	return a->peak_reserved == b->peak_reserved && a->reserved == b->reserved &&
	       peak <= a->peak_allocated / REPEAT_CLOSE && end <= a->allocated / REPEAT_CLOSE;
}

static bool steps_are_close(const struct repeat *r, const struct step *a, const struct step *b,
			    uint64_t *spread)
{
	if (a->stack != b->stack || memcmp(a->number, b->number, sizeof(a->number)) != 0)
		return false;
	for (size_t i = 0; i < r->n; i++)
		if (!levels_are_close(&a->of[i], &b->of[i], spread))
			return false;
	return true;
}

/* True if the last n steps did not change the number of blocks. This detects growth too small for
 * the bytes to show. */
static bool blocks_are_constant(const struct repeat *r, unsigned n)
{
	uint64_t more[DEVICES] = { 0 }; /* modulo 2^64 */

	for (unsigned i = 0; i < n; i++)
		for (size_t d = 0; d < r->n; d++) {
			const struct number *of = &r->kept[(r->steps - 1 - i) % KEPT].number[d];

			more[d] += of->allocs - of->frees;
		}
	for (size_t d = 0; d < r->n; d++)
		if (more[d])
			return false;
	return true;
}

/* True if each of the last n steps equals the step `cycle` before it. */
static bool repeats(const struct repeat *r, unsigned cycle, unsigned n, uint64_t *spread)
{
	bool equal = true, near = true;

	*spread = 0;
	if (r->steps < n + cycle)
		return false;
	for (unsigned i = 0; i < n; i++) {
		const struct step *a = &r->kept[(r->steps - 1 - i) % KEPT],
				  *b = &r->kept[(r->steps - 1 - i - cycle) % KEPT];

		equal = equal && a->stack == b->stack && !memcmp(a->of, b->of, sizeof(a->of));
		near = near && steps_are_close(r, a, b, spread);
	}
	return equal || (near && blocks_are_constant(r, n));
}

bool repeat__found(const struct repeat *r, struct repeat_found *ret)
{
	uint64_t spread;

	if (r->too_many || !r->n)
		return false;
	for (unsigned cycle = 1; cycle <= REPEAT_CYCLE; cycle++) {
		unsigned n = cycle == 1 ? REPEAT_EQUAL - 1 : cycle;

		if (!repeats(r, cycle, n, &spread))
			continue;
		*ret = (struct repeat_found){ .first = r->steps - n - cycle + 1,
					      .last = r->steps,
					      .cycle = cycle,
					      .spread = spread };
		return true;
	}
	return false;
}

enum manner { STEADY, GROWS, OTHERWISE };

/* How the ends and peaks of a device's last steps go on. */
static enum manner manner_of(const struct repeat *r, size_t device)
{
	const struct growing *last = &r->growing[(r->steps - 1) % REPEAT_GROWN][device];
	uint64_t quarter[4] = { 0 }, most = 0, all = 0;

	for (uint64_t k = 1; k < REPEAT_GROWN; k++) {
		const struct growing *a = &r->growing[(r->steps + k - 1) % REPEAT_GROWN][device],
				     *b = &r->growing[(r->steps + k) % REPEAT_GROWN][device];
		uint64_t grown = b->end - a->end;

		if (b->end < a->end)
			return OTHERWISE;
		most = grown > most ? grown : most;
		quarter[(k - 1) * 4 / (REPEAT_GROWN - 1)] += grown;
		all += grown;
	}
	for (size_t k = 0; k < REPEAT_GROWN; k++)
		if (difference(r->growing[k][device].above, last->above) >
		    last->above / REPEAT_CLOSE + most)
			return OTHERWISE;
	for (int q = 0; q < 4; q++)
		if (quarter[q] < all / 8 || quarter[q] > all / 2)
			return OTHERWISE;
	return all ? GROWS : STEADY;
}

bool repeat__grows(const struct repeat *r)
{
	bool grows = false;

	if (r->too_many || r->steps < REPEAT_GROWS)
		return false;
	for (size_t i = 0; i < r->n; i++) {
		enum manner m = manner_of(r, i);

		if (m == OTHERWISE)
			return false;
		grows |= m == GROWS;
	}
	return grows;
}
