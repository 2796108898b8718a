/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr_encode.h"

#include <stdlib.h>
#include <string.h>

#include "lib/map64.h"
#include "record/dict.h"
#include "record/varint.h"

#define FULL_BYTES (64u << 10)
#define FULL_EVENTS (32u << 10)
#define EVENT_MAX 128 /* bytes that one event can take, all columns together */

struct device_state {
	struct device device;
	bool totals;
	uint64_t allocated, reserved;
};

struct mtr_encoder {
	const struct dict *dict;
	uint8_t *cols[MTR_COLS]; /* where each begins, and where to go on */
	uint8_t *ends[MTR_COLS];
	uint8_t head[VARINT_MAX * (3 + MTR_COLS)];
	uint32_t n;
	uint64_t first_time, time;
	uint32_t thread;
	uint64_t new_addr; /* the last one */
	uint8_t walk;	   /* of the last event without a stack */
	struct map64 *addrs; /* address -> its last place in sizes */
	uint64_t *sizes;     /* of each event with an address, in order */
	uint32_t n_addrs;
	struct map64 *size_numbers; /* size -> number, in order of appearance */
	struct device_state devices[MTR_MAX_BLOCK_DEVICES];
	uint32_t n_devices, device;
};

struct mtr_encoder *mtr_encoder__new(const struct dict *d)
{
	struct mtr_encoder *enc = calloc(1, sizeof(*enc));
	bool ok = enc;

	if (!enc)
		return NULL;
	enc->dict = d;
	for (int i = 0; i < MTR_COLS; i++)
		ok &= !!(enc->cols[i] = malloc(FULL_BYTES + EVENT_MAX));
	ok &= !!(enc->sizes = malloc(FULL_EVENTS * sizeof(*enc->sizes)));
	ok &= !!(enc->addrs = map64__new());
	ok &= !!(enc->size_numbers = map64__new());
	if (!ok) {
		mtr_encoder__free(enc);
		return NULL;
	}
	mtr_encoder__reset(enc);
	return enc;
}

void mtr_encoder__free(struct mtr_encoder *enc)
{
	if (!enc)
		return;
	for (int i = 0; i < MTR_COLS; i++)
		free(enc->cols[i]);
	free(enc->sizes);
	map64__free(enc->addrs);
	map64__free(enc->size_numbers);
	free(enc);
}

void mtr_encoder__reset(struct mtr_encoder *enc)
{
	for (int i = 0; i < MTR_COLS; i++)
		enc->ends[i] = enc->cols[i];
	enc->n = 0;
	enc->n_addrs = 0;
	enc->thread = 0;
	enc->new_addr = 0;
	enc->walk = 0;
	enc->n_devices = 0;
	map64__clear(enc->addrs);
	map64__clear(enc->size_numbers);
}

static void put(struct mtr_encoder *enc, enum mtr_column col, uint64_t v)
{
	enc->ends[col] = varint__put(enc->ends[col], v);
}

static unsigned int put_thread(struct mtr_encoder *enc, uint32_t thread)
{
	if (enc->n && thread == enc->thread)
		return 0;
	enc->thread = thread;
	put(enc, MTR_COL_REST, thread);
	return MTR_TAG_THREAD;
}

static unsigned int put_device(struct mtr_encoder *enc, struct device device)
{
	uint32_t i = 0;

	if (enc->n && !memcmp(&enc->devices[enc->device].device, &device, sizeof(device)))
		return 0;
	while (i < enc->n_devices && memcmp(&enc->devices[i].device, &device, sizeof(device)))
		i++;
	put(enc, MTR_COL_REST, i);
	if (i == enc->n_devices) { /* mtr_encoder__full() keeps room for one */
		enc->devices[enc->n_devices++] = (struct device_state){ .device = device };
		*enc->ends[MTR_COL_REST]++ = device.type;
		*enc->ends[MTR_COL_REST]++ = device.index;
	}
	enc->device = i;
	return MTR_TAG_DEVICE;
}

static int put_explicit_size(struct mtr_encoder *enc, uint64_t size)
{
	uint64_t number;
	int err;

	if (map64__get(enc->size_numbers, size, &number)) {
		put(enc, MTR_COL_SIZE, number);
		return 0;
	}
	number = map64__count(enc->size_numbers);
	err = map64__set(enc->size_numbers, size, number);
	if (err)
		return err;
	put(enc, MTR_COL_SIZE, number);
	put(enc, MTR_COL_SIZE, size);
	return 0;
}

/* Adds to *tag what is stored. 0 or -ENOMEM. */
static int put_addr_and_size(struct mtr_encoder *enc, const struct event *e, unsigned int *tag)
{
	uint64_t predicted = 0, place;
	int err;

	if (mtr_has_addr(e->kind)) {
		if (map64__get(enc->addrs, e->addr, &place)) {
			put(enc, MTR_COL_ADDR, enc->n_addrs - 1 - place);
			predicted = enc->sizes[place];
		} else {
			*tag |= MTR_TAG_ADDR;
			put(enc, MTR_COL_ADDR, zigzag(e->addr - enc->new_addr));
			enc->new_addr = e->addr;
		}
		err = map64__set(enc->addrs, e->addr, enc->n_addrs);
		if (err)
			return err;
		/* A free that does not say its size leaves what the allocation said. */
		enc->sizes[enc->n_addrs++] = e->size ? e->size : predicted;
	}
	if (e->size == predicted)
		return 0;
	*tag |= MTR_TAG_SIZE;
	return put_explicit_size(enc, e->size);
}

static unsigned int put_stack(struct mtr_encoder *enc, const struct event *e)
{
	uint8_t predicted = enc->walk;

	put(enc, MTR_COL_STACK, e->stack);
	if (e->stack)
		predicted = dict__get_stack(enc->dict, e->stack).walk;
	else
		enc->walk = e->walk;
	if (e->walk == predicted)
		return 0;
	put(enc, MTR_COL_REST, e->walk);
	return MTR_TAG_WALK;
}

static unsigned int put_totals(struct mtr_encoder *enc, const struct event *e)
{
	struct device_state *d = &enc->devices[enc->device];
	uint64_t allocated = d->allocated, reserved = d->reserved;
	bool as_predicted = e->totals == d->totals;

	if (e->kind == EVENT_ALLOC)
		allocated += e->size;
	else if (e->kind == EVENT_FREE)
		allocated -= e->size;
	if (e->totals) {
		as_predicted &= e->allocated == allocated && e->reserved == reserved;
		d->allocated = e->allocated;
		d->reserved = e->reserved;
	}
	d->totals = e->totals;
	if (as_predicted)
		return 0;
	put(enc, MTR_COL_REST, e->totals);
	if (e->totals) {
		put(enc, MTR_COL_REST, zigzag(e->allocated - allocated));
		put(enc, MTR_COL_REST, zigzag(e->reserved - reserved));
	}
	return MTR_TAG_TOTALS;
}

int mtr_encoder__add(struct mtr_encoder *enc, const struct event *e)
{
	unsigned int tag = e->kind;
	int err;

	if (!enc->n)
		enc->first_time = enc->time = e->time;
	put(enc, MTR_COL_TIME, zigzag(e->time - enc->time));
	enc->time = e->time;
	/* The order in which the rest column is read. */
	tag |= put_thread(enc, e->thread);
	tag |= put_device(enc, e->device);
	if (mtr_has_size(e->kind)) {
		err = put_addr_and_size(enc, e, &tag);
		if (err)
			return err;
	}
	if (mtr_has_stack(e->kind))
		tag |= put_stack(enc, e);
	tag |= put_totals(enc, e);
	if (e->kind == EVENT_CALL)
		put(enc, MTR_COL_REST, e->module);
	put(enc, MTR_COL_TAG, tag);
	enc->n++;
	return 0;
}

bool mtr_encoder__full(const struct mtr_encoder *enc)
{
	size_t bytes = 0;

	for (int i = 0; i < MTR_COLS; i++)
		bytes += (size_t)(enc->ends[i] - enc->cols[i]);
	return bytes >= FULL_BYTES || enc->n == FULL_EVENTS || enc->n_devices == MTR_MAX_BLOCK_DEVICES;
}

uint32_t mtr_encoder__count(const struct mtr_encoder *enc)
{
	return enc->n;
}

void mtr_encoder__parts(struct mtr_encoder *enc, uint64_t first, struct mtr_part parts[MTR_PARTS])
{
	uint8_t *p = enc->head;

	p = varint__put(p, first);
	p = varint__put(p, enc->n);
	p = varint__put(p, enc->first_time);
	for (int i = 0; i < MTR_COLS; i++) {
		size_t len = (size_t)(enc->ends[i] - enc->cols[i]);

		p = varint__put(p, len);
		parts[i + 1] = (struct mtr_part){ enc->cols[i], len };
	}
	parts[0] = (struct mtr_part){ enc->head, (size_t)(p - enc->head) };
}
