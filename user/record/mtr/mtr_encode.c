/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/mtr_events.h"

#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/varint.h"

#define FULL_BYTES (64u << 10) /* a block with so many bytes or events is full */
#define FULL_EVENTS (32u << 10)
#define EVENT_MAX 192 /* an event takes at most so many bytes in all columns together */

struct mtr_encoder {
	const struct dict *dict;
	uint8_t *cols[MTR_COLS]; /* start of each column */
	uint8_t *ends[MTR_COLS]; /* end of what each column has */
	uint8_t head[VARINT_MAX * (3 + MTR_COLS)];
	uint32_t n;		   /* number of events in the block */
	uint64_t first_time, time; /* times of the block's first event and of the last one */
	uint32_t thread;	   /* thread of the last event */
	uint32_t node;		   /* node of the last event that had one */
	uint32_t called[2];	   /* module of the last EVENT_ENTER and of the last EVENT_LEAVE */
	uint64_t new_addr;	   /* last address that was new in the block */
	uint8_t walk;		   /* walk of the last event without a stack */
	struct map64 *addrs;	   /* address -> index of its last entry in touched */
	struct mtr_touched *touched; /* for each event that had an allocator block: the block's
					state after it */
	uint32_t n_touched;
	struct map64 *size_numbers; /* size -> number, in order of appearance */
	struct mtr_device devices[MTR_MAX_BLOCK_DEVICES];
	uint32_t n_devices, device; /* device: index of the last event's device */
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
	ok &= !!(enc->touched = malloc(FULL_EVENTS * sizeof(*enc->touched)));
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
	free(enc->touched);
	map64__free(enc->addrs);
	map64__free(enc->size_numbers);
	free(enc);
}

void mtr_encoder__reset(struct mtr_encoder *enc)
{
	for (int i = 0; i < MTR_COLS; i++)
		enc->ends[i] = enc->cols[i];
	enc->n = 0;
	enc->n_touched = 0;
	enc->thread = 0;
	enc->node = 0;
	enc->called[0] = enc->called[1] = 0;
	enc->new_addr = 0;
	enc->walk = 0;
	enc->n_devices = 0;
	map64__clear(enc->addrs);
	map64__clear(enc->size_numbers);
}

/* Appends a number to a column, which has room: mtr_encoder__full(). */
static void put_number(struct mtr_encoder *enc, enum mtr_column col, uint64_t v)
{
	enc->ends[col] = varint__put(enc->ends[col], v);
}

/* The functions below append a value to its column, unless the decoder predicts it. They return or
 * set the field's flag (enum mtr_field) if they stored the value. */
static unsigned int put_thread(struct mtr_encoder *enc, uint32_t thread)
{
	if (enc->n && thread == enc->thread)
		return 0;
	enc->thread = thread;
	put_number(enc, MTR_COL_REST, thread);
	return MTR_THREAD;
}

static unsigned int put_device(struct mtr_encoder *enc, struct device device)
{
	uint32_t i = 0;

	if (enc->n && !memcmp(&enc->devices[enc->device].device, &device, sizeof(device)))
		return 0;
	while (i < enc->n_devices && memcmp(&enc->devices[i].device, &device, sizeof(device)))
		i++;
	put_number(enc, MTR_COL_REST, i);
	if (i == enc->n_devices) { /* has room: mtr_encoder__full() reserves one device */
		enc->devices[enc->n_devices++] = (struct mtr_device){ .device = device };
		*enc->ends[MTR_COL_REST]++ = device.type;
		*enc->ends[MTR_COL_REST]++ = device.index;
	}
	enc->device = i;
	return MTR_DEVICE;
}

/* Stores a size as its number in the block. A new size gets the next number and follows it. */
static int put_explicit_size(struct mtr_encoder *enc, uint64_t size)
{
	uint64_t number;
	int err;

	if (map64__get(enc->size_numbers, size, &number)) {
		put_number(enc, MTR_COL_SIZE, number);
		return 0;
	}
	number = map64__count(enc->size_numbers);
	err = map64__set(enc->size_numbers, size, number);
	if (err)
		return err;
	put_number(enc, MTR_COL_SIZE, number);
	put_number(enc, MTR_COL_SIZE, size);
	return 0;
}

/* Adds the state of the allocator block after this event. Returns 0 or -ENOMEM. */
static int touch_block(struct mtr_encoder *enc, const struct event *e,
		       const struct mtr_touched *before)
{
	int err = map64__set(enc->addrs, e->addr, enc->n_touched);

	if (!err)
		enc->touched[enc->n_touched++] = mtr_touch(e, before);
	return err;
}

/* Stores an address that is new in the block as its distance from the last new one. */
static void put_new_addr(struct mtr_encoder *enc, uint64_t addr)
{
	put_number(enc, MTR_COL_ADDR, zigzag(addr - enc->new_addr));
	enc->new_addr = addr;
}

/* Stores the size if it differs from its prediction, and then sets MTR_SIZE in *fields. Returns 0
 * or -ENOMEM. */
static int put_size(struct mtr_encoder *enc, uint64_t size, uint64_t predicted,
		    unsigned int *fields)
{
	if (size == predicted)
		return 0;
	*fields |= MTR_SIZE;
	return put_explicit_size(enc, size);
}

/* Stores address and size of an EVENT_ALLOC or EVENT_FREE. A known address is stored as the number
 * of entries in touched since its last one. Returns 0 or -ENOMEM. *fields: gets the bits of the
 * fields that were stored, here and below. */
static int put_block(struct mtr_encoder *enc, const struct event *e, unsigned int *fields)
{
	struct mtr_touched before = { 0 };
	uint64_t place;
	int err;

	if (map64__get(enc->addrs, e->addr, &place)) {
		put_number(enc, MTR_COL_ADDR, enc->n_touched - 1 - place);
		before = enc->touched[place];
	} else {
		*fields |= MTR_ADDR;
		put_new_addr(enc, e->addr);
	}
	err = touch_block(enc, e, &before);
	return err ?: put_size(enc, e->size, before.size, fields);
}

/* Stores address and size of a kind of mtr_has_range(). Returns 0 or -ENOMEM. */
static int put_range(struct mtr_encoder *enc, const struct event *e, unsigned int *fields)
{
	const struct mtr_last *last = &enc->devices[enc->device].last[e->kind];
	int err = 0;

	put_number(enc, MTR_COL_ADDR, zigzag(e->addr - last->end));
	if (e->kind == EVENT_BLOCK)
		err = touch_block(enc, e, &(struct mtr_touched){ 0 });
	return err ?: put_size(enc, e->size, last->size, fields);
}

/* Stores the address of an EVENT_REQUESTED. Returns its allocator block, or NULL if no earlier
 * event of this events block has that. */
static struct mtr_touched *put_requested_block(struct mtr_encoder *enc, const struct event *e,
					       unsigned int *fields)
{
	uint64_t place, back;
	bool known = map64__get(enc->addrs, e->addr, &place);

	if (!known) {
		*fields |= MTR_ADDR;
		put_number(enc, MTR_COL_ADDR, 0);
		put_new_addr(enc, e->addr);
		return NULL;
	}
	back = enc->n_touched - 1 - place;
	if (back) {
		*fields |= MTR_ADDR;
		put_number(enc, MTR_COL_ADDR, back);
	}
	return &enc->touched[place];
}

/* Stores the requested bytes if they differ from their prediction. t: the allocator block of the
 * event. */
static void put_requested(struct mtr_encoder *enc, const struct event *e,
			  const struct mtr_touched *t, unsigned int *fields)
{
	if (e->requested == mtr_predict_requested(e, t, &enc->devices[enc->device].last[e->kind]))
		return;
	*fields |= e->kind == EVENT_REQUESTED ? MTR_SIZE : MTR_REQUESTED;
	put_number(enc, MTR_COL_SIZE, zigzag(mtr_requested_base(e, t) - e->requested));
}

/* Stores all that the event says about its memory. Returns 0 or -ENOMEM. */
static int put_memory(struct mtr_encoder *enc, const struct event *e, unsigned int *fields)
{
	const struct mtr_touched none = { 0 };
	struct mtr_touched *t = NULL;
	int err = 0;

	if (mtr_has_block(e->kind))
		err = put_block(enc, e, fields);
	else if (mtr_has_range(e->kind))
		err = put_range(enc, e, fields);
	else if (e->kind == EVENT_REQUESTED)
		t = put_requested_block(enc, e, fields);
	else if (mtr_repeats_size(e->kind))
		err = put_size(enc, e->size, enc->devices[enc->device].last[e->kind].size, fields);
	else if (mtr_has_size(e->kind))
		err = put_size(enc, e->size, 0, fields);
	if (!err && mtr_has_requested(e->kind))
		put_requested(enc, e, t ? t : &none, fields);
	if (t && e->requested)
		t->requested = e->requested;
	return err;
}

/* Writes the stack, and how its read ended (MT_WALK_*) only if that is not what the reader expects:
 * the stack's own, or without a stack that of the last event without one. Returns MTR_WALK if it is
 * written, otherwise 0. */
static unsigned int put_stack(struct mtr_encoder *enc, const struct event *e)
{
	uint8_t expected = enc->walk;

	put_number(enc, MTR_COL_STACK, e->stack);
	if (e->stack)
		expected = dict__get_stack(enc->dict, e->stack).walk;
	else
		enc->walk = e->walk;
	if (e->walk == expected)
		return 0;
	put_number(enc, MTR_COL_REST, e->walk);
	return MTR_WALK;
}

static unsigned int put_totals(struct mtr_encoder *enc, const struct event *e)
{
	struct mtr_device *d = &enc->devices[enc->device];
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
	put_number(enc, MTR_COL_REST, e->totals);
	if (e->totals) {
		put_number(enc, MTR_COL_REST, zigzag(e->allocated - allocated));
		put_number(enc, MTR_COL_REST, zigzag(e->reserved - reserved));
	}
	return MTR_TOTALS;
}

static unsigned int put_how_stream_pool(struct mtr_encoder *enc, const struct event *e)
{
	const struct mtr_last *last = &enc->devices[enc->device].last[e->kind];
	unsigned int fields = 0;

	if (e->how != last->how || e->flags != last->flags) {
		fields |= MTR_HOW;
		put_number(enc, MTR_COL_REST, e->how);
		put_number(enc, MTR_COL_REST, e->flags);
	}
	if (e->cuda_stream != last->cuda_stream) {
		fields |= MTR_STREAM;
		put_number(enc, MTR_COL_REST, e->cuda_stream);
	}
	if (e->pool[0] != last->pool[0] || e->pool[1] != last->pool[1]) {
		fields |= MTR_POOL;
		put_number(enc, MTR_COL_REST, e->pool[0]);
		put_number(enc, MTR_COL_REST, e->pool[1]);
	}
	return fields;
}

static unsigned int put_node(struct mtr_encoder *enc, uint32_t node)
{
	if (!node)
		return 0;
	put_number(enc, MTR_COL_REST, zigzag((uint64_t)node - enc->node));
	enc->node = node;
	return MTR_NODE;
}

static void put_tensor(struct mtr_encoder *enc, const struct event *e)
{
	const struct mtr_last *last = &enc->devices[enc->device].last[e->kind];

	put_number(enc, MTR_COL_REST, zigzag((uint64_t)e->name - last->name));
	put_number(enc, MTR_COL_REST, zigzag((uint64_t)e->module - last->module));
	put_number(enc, MTR_COL_REST, e->category);
}

/* Stores the module of an EVENT_ENTER or EVENT_LEAVE. */
static void put_called(struct mtr_encoder *enc, const struct event *e)
{
	uint32_t *last = &enc->called[e->kind == EVENT_LEAVE];

	put_number(enc, MTR_COL_REST, zigzag((uint64_t)e->module - *last));
	*last = e->module;
}

/* Copies only the fields that the kind stores, so that encoder and decoder predict from the same
 * values. */
static struct event stored_fields(const struct event *e)
{
	struct event r = { .kind = e->kind, .thread = e->thread, .time = e->time };

	if (mtr_has_device(e->kind))
		r.device = e->device;
	if (mtr_has_block(e->kind) || mtr_has_range(e->kind) || e->kind == EVENT_REQUESTED)
		r.addr = e->addr;
	if (mtr_has_size(e->kind))
		r.size = e->size;
	if (mtr_has_stack(e->kind)) {
		r.stack = e->stack;
		r.walk = e->walk;
	}
	if (mtr_has_totals(e->kind) && e->totals) {
		r.totals = true;
		r.allocated = e->allocated;
		r.reserved = e->reserved;
	}
	if (mtr_has_how(e->kind)) {
		r.how = e->how;
		r.flags = e->flags;
	}
	if (mtr_has_requested(e->kind))
		r.requested = e->requested;
	if (mtr_has_stream(e->kind))
		r.cuda_stream = e->cuda_stream;
	if (mtr_has_pool(e->kind)) {
		r.pool[0] = e->pool[0];
		r.pool[1] = e->pool[1];
	}
	if (e->kind == EVENT_CALL || e->kind == EVENT_TENSOR || mtr_is_call(e->kind))
		r.module = e->module;
	if (mtr_has_node(e->kind))
		r.node = e->node;
	if (e->kind == EVENT_TENSOR || e->kind == EVENT_MARK || e->kind == EVENT_SCOPE)
		r.name = e->name;
	if (e->kind == EVENT_SCOPE) {
		r.addr = e->addr;
		r.size = e->size;
	}
	if (e->kind == EVENT_TENSOR)
		r.category = e->category;
	return r;
}

bool mtr_encoder__takes(const struct mtr_encoder *enc, const struct event *e)
{
	struct dict_counts have = dict__counts(enc->dict);

	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS)
		return false;
	if (e->walk >= MT_WALK_NR || e->how >= event__how_end(e->kind))
		return false;
	if (e->category >= CATEGORY_OF_EVENTS)
		return false;
	return e->thread < have.threads && e->stack < have.stacks && e->module < have.modules &&
	       e->node < have.nodes && e->name < have.strings;
}

int mtr_encoder__add(struct mtr_encoder *enc, const struct event *event)
{
	const struct event ev = stored_fields(event), *e = &ev;
	unsigned int fields = 0;
	int err;

	if (!enc->n)
		enc->first_time = enc->time = e->time;
	put_number(enc, MTR_COL_TIME, zigzag(e->time - enc->time));
	enc->time = e->time;
	/* The decoder reads the rest column in this order. */
	fields |= put_thread(enc, e->thread);
	if (!enc->n || mtr_has_device(e->kind))
		fields |= put_device(enc, e->device);
	err = put_memory(enc, e, &fields);
	if (err)
		return err;
	if (mtr_has_stack(e->kind))
		fields |= put_stack(enc, e);
	if (mtr_has_totals(e->kind))
		fields |= put_totals(enc, e);
	if (e->kind == EVENT_CALL)
		put_number(enc, MTR_COL_REST, e->module);
	fields |= put_how_stream_pool(enc, e);
	fields |= put_node(enc, e->node);
	if (e->kind == EVENT_TENSOR)
		put_tensor(enc, e);
	else if (mtr_is_call(e->kind))
		put_called(enc, e);
	else if (e->kind == EVENT_MARK || e->kind == EVENT_SCOPE)
		put_number(enc, MTR_COL_REST, e->name);
	if (e->kind == EVENT_SCOPE) {
		put_number(enc, MTR_COL_REST, e->addr);
		put_number(enc, MTR_COL_REST, e->size);
	}
	mtr_remember(&enc->devices[enc->device].last[e->kind], e->kind, e);
	put_number(enc, MTR_COL_TAG, mtr_tag(e->kind, fields));
	enc->n++;
	return 0;
}

bool mtr_encoder__full(const struct mtr_encoder *enc)
{
	size_t bytes = 0;

	for (int i = 0; i < MTR_COLS; i++)
		bytes += (size_t)(enc->ends[i] - enc->cols[i]);
	return bytes >= FULL_BYTES || enc->n == FULL_EVENTS ||
	       enc->n_devices == MTR_MAX_BLOCK_DEVICES;
}

uint32_t mtr_encoder__count(const struct mtr_encoder *enc)
{
	return enc->n;
}

void mtr_encoder__parts(struct mtr_encoder *enc, uint64_t first_event,
			struct mtr_part parts[MTR_PARTS])
{
	uint8_t *p = enc->head;

	/* parts[0] is the head, which also has the length of each column. */
	p = varint__put(p, first_event);
	p = varint__put(p, enc->n);
	p = varint__put(p, enc->first_time);
	for (int i = 0; i < MTR_COLS; i++) {
		size_t len = (size_t)(enc->ends[i] - enc->cols[i]);

		p = varint__put(p, len);
		parts[i + 1] = (struct mtr_part){ enc->cols[i], len };
	}
	parts[0] = (struct mtr_part){ enc->head, (size_t)(p - enc->head) };
}
