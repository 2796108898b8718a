/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr_decode.h"

#include <errno.h>
#include <stdlib.h>
#include <linux/types.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr_format.h"
#include "record/varint.h"

struct device_state {
	struct device device;
	bool totals;
	uint64_t allocated, reserved;
};

struct touched {
	uint64_t addr, size;
};

struct cursor {
	const uint8_t *at, *end;
};

struct mtr_decoder {
	const struct dict *dict;
	struct dict_counts counts; /* of dict, which does not grow within a block */
	struct cursor cols[MTR_COLS];
	uint32_t n, left;
	uint64_t time;
	uint32_t thread;
	uint64_t new_addr;
	uint8_t walk;
	struct touched *touched; /* by each event with an address, in order */
	uint32_t n_touched;
	uint64_t *sizes; /* by number */
	uint32_t n_sizes;
	size_t room; /* of touched and sizes: events */
	struct device_state devices[MTR_MAX_BLOCK_DEVICES];
	uint32_t n_devices, device;
};

struct mtr_decoder *mtr_decoder__new(const struct dict *d)
{
	struct mtr_decoder *dec = calloc(1, sizeof(*dec));

	if (dec)
		dec->dict = d;
	return dec;
}

void mtr_decoder__free(struct mtr_decoder *dec)
{
	if (!dec)
		return;
	free(dec->touched);
	free(dec->sizes);
	free(dec);
}

static int make_room(struct mtr_decoder *dec, size_t events)
{
	struct touched *touched;
	uint64_t *sizes;

	if (events <= dec->room)
		return 0;
	touched = realloc(dec->touched, events * sizeof(*touched));
	if (!touched)
		return -ENOMEM;
	dec->touched = touched;
	sizes = realloc(dec->sizes, events * sizeof(*sizes));
	if (!sizes)
		return -ENOMEM;
	dec->sizes = sizes;
	dec->room = events;
	return 0;
}

int mtr_decoder__begin(struct mtr_decoder *dec, const uint8_t *data, size_t len, uint64_t first, const char **why)
{
	const uint8_t *p = data, *end = data + len;
	uint64_t lens[MTR_COLS], claimed;
	uint32_t n;

	*why = "an events block with a bad head";
	dec->left = 0;
	if (!varint__get(&p, end, &claimed) || !varint__get32(&p, end, &n) || !varint__get(&p, end, &dec->time))
		return -EBADMSG;
	for (int i = 0; i < MTR_COLS; i++) {
		if (!varint__get(&p, end, &lens[i]))
			return -EBADMSG;
	}
	if (claimed != first) {
		*why = "an events block that does not follow on the one before";
		return -EBADMSG;
	}
	/* An event takes a byte of tag and one of time at least. */
	if (n > MTR_MAX_BLOCK_EVENTS || n > lens[MTR_COL_TAG] || n > lens[MTR_COL_TIME])
		return -EBADMSG;
	for (int i = 0; i < MTR_COLS; i++) {
		if (lens[i] > (uint64_t)(end - p))
			return -EBADMSG;
		dec->cols[i] = (struct cursor){ p, p + lens[i] };
		p += lens[i];
	}
	if (p != end || (!n && p != dec->cols[0].at))
		return -EBADMSG;
	dec->counts = dict__counts(dec->dict);
	dec->n = 0;
	dec->thread = 0;
	dec->new_addr = 0;
	dec->walk = MT_WALK_OK;
	dec->n_touched = 0;
	dec->n_sizes = 0;
	dec->n_devices = 0;
	if (make_room(dec, n))
		return -ENOMEM;
	dec->left = n;
	return 0;
}

static bool get(struct mtr_decoder *dec, enum mtr_column col, uint64_t *v)
{
	return varint__get(&dec->cols[col].at, dec->cols[col].end, v);
}

static bool get_thread(struct mtr_decoder *dec)
{
	uint64_t v;

	if (!get(dec, MTR_COL_REST, &v) || v >= dec->counts.threads)
		return false;
	dec->thread = (uint32_t)v;
	return true;
}

static bool get_device(struct mtr_decoder *dec)
{
	struct cursor *rest = &dec->cols[MTR_COL_REST];
	uint64_t v;

	if (!get(dec, MTR_COL_REST, &v) || v > dec->n_devices)
		return false;
	if (v == dec->n_devices) {
		if (v == MTR_MAX_BLOCK_DEVICES || rest->end - rest->at < 2)
			return false;
		dec->devices[v] = (struct device_state){ .device = { rest->at[0], rest->at[1] } };
		rest->at += 2;
		dec->n_devices++;
	}
	dec->device = (uint32_t)v;
	return true;
}

static bool get_size(struct mtr_decoder *dec, uint64_t *size)
{
	uint64_t number;

	if (!get(dec, MTR_COL_SIZE, &number) || number > dec->n_sizes)
		return false;
	if (number == dec->n_sizes) { /* at most one an event: there is room */
		if (!get(dec, MTR_COL_SIZE, &dec->sizes[number]))
			return false;
		dec->n_sizes++;
	}
	*size = dec->sizes[number];
	return true;
}

static bool get_addr_and_size(struct mtr_decoder *dec, unsigned int tag, struct event *e)
{
	uint64_t predicted = 0, v;

	if (mtr_has_addr(e->kind)) {
		if (!get(dec, MTR_COL_ADDR, &v))
			return false;
		if (tag & MTR_TAG_ADDR) {
			e->addr = dec->new_addr += unzigzag(v);
		} else {
			if (v >= dec->n_touched)
				return false;
			e->addr = dec->touched[dec->n_touched - 1 - v].addr;
			predicted = dec->touched[dec->n_touched - 1 - v].size;
		}
	}
	e->size = predicted;
	if ((tag & MTR_TAG_SIZE) && !get_size(dec, &e->size))
		return false;
	if (mtr_has_addr(e->kind))
		dec->touched[dec->n_touched++] =
			(struct touched){ e->addr, e->size ? e->size : predicted };
	return true;
}

static bool get_stack(struct mtr_decoder *dec, unsigned int tag, struct event *e)
{
	uint64_t v;

	if (!get(dec, MTR_COL_STACK, &v) || v >= dec->counts.stacks)
		return false;
	e->stack = (uint32_t)v;
	if (tag & MTR_TAG_WALK) {
		if (!get(dec, MTR_COL_REST, &v) || v >= MT_WALK_NR)
			return false;
		e->walk = (uint8_t)v;
	} else {
		e->walk = e->stack ? dict__get_stack(dec->dict, e->stack).walk : dec->walk;
	}
	if (!e->stack)
		dec->walk = e->walk;
	return true;
}

static bool get_totals(struct mtr_decoder *dec, unsigned int tag, struct event *e)
{
	struct device_state *d = &dec->devices[dec->device];
	uint64_t allocated = d->allocated, reserved = d->reserved, v;

	if (e->kind == EVENT_ALLOC)
		allocated += e->size;
	else if (e->kind == EVENT_FREE)
		allocated -= e->size;
	if (tag & MTR_TAG_TOTALS) {
		if (!get(dec, MTR_COL_REST, &v) || v > 1)
			return false;
		d->totals = v;
		if (v) {
			if (!get(dec, MTR_COL_REST, &v))
				return false;
			allocated += unzigzag(v);
			if (!get(dec, MTR_COL_REST, &v))
				return false;
			reserved += unzigzag(v);
		}
	}
	if (!d->totals)
		return true;
	e->totals = true;
	e->allocated = d->allocated = allocated;
	e->reserved = d->reserved = reserved;
	return true;
}

/* The tag has only bits that its kind and place allow. */
static bool good_tag(const struct mtr_decoder *dec, uint64_t tag)
{
	unsigned int kind = tag & MTR_TAG_KIND;

	if (tag > MTR_TAG_ALL || kind < EVENT_ALLOC || kind > EVENT_LOST)
		return false;
	if ((tag & MTR_TAG_SIZE) && !mtr_has_size(kind))
		return false;
	if ((tag & MTR_TAG_ADDR) && !mtr_has_addr(kind))
		return false;
	if ((tag & MTR_TAG_WALK) && !mtr_has_stack(kind))
		return false;
	/* The first event says thread and device: there is nothing before it to be as. */
	return dec->n || (~tag & (MTR_TAG_THREAD | MTR_TAG_DEVICE)) == 0;
}

static bool at_ends(const struct mtr_decoder *dec)
{
	for (int i = 0; i < MTR_COLS; i++) {
		if (dec->cols[i].at != dec->cols[i].end)
			return false;
	}
	return true;
}

static bool get_event(struct mtr_decoder *dec, struct event *e)
{
	uint64_t v, tag;

	if (!get(dec, MTR_COL_TAG, &tag) || !good_tag(dec, tag) || !get(dec, MTR_COL_TIME, &v))
		return false;
	dec->time += unzigzag(v);
	*e = (struct event){ .kind = tag & MTR_TAG_KIND, .time = dec->time };
	if ((tag & MTR_TAG_THREAD) && !get_thread(dec))
		return false;
	if ((tag & MTR_TAG_DEVICE) && !get_device(dec))
		return false;
	e->thread = dec->thread;
	e->device = dec->devices[dec->device].device;
	if (mtr_has_size(e->kind) && !get_addr_and_size(dec, (unsigned int)tag, e))
		return false;
	if (mtr_has_stack(e->kind) && !get_stack(dec, (unsigned int)tag, e))
		return false;
	if (!get_totals(dec, (unsigned int)tag, e))
		return false;
	if (e->kind == EVENT_CALL) {
		if (!get(dec, MTR_COL_REST, &v) || v >= dec->counts.modules)
			return false;
		e->module = (uint32_t)v;
	}
	return true;
}

int mtr_decoder__next(struct mtr_decoder *dec, struct event *e, const char **why)
{
	struct event got;

	if (!dec->left)
		return 0;
	/* With the last event every column must be used up. */
	if (!get_event(dec, &got) || (dec->left == 1 && !at_ends(dec))) {
		dec->left = 0;
		*why = "an event that makes no sense";
		return -EBADMSG;
	}
	dec->n++;
	dec->left--;
	*e = got;
	return 1;
}
