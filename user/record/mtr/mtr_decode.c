/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/mtr_events.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr/mtr_format.h"
#include "record/varint.h"

/* For functions that get_event() calls with a constant kind, so that the compiler specializes them.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct cursor {
	const uint8_t *at, *end;
};

struct mtr_decoder {
	const struct dict *dict;
	/* numbers of entries in dict, which does not grow within a block */
	struct dict_counts counts;
	struct cursor cols[MTR_COLS];
	uint16_t allowed[EVENT_KINDS]; /* by kind: the fields (enum mtr_field) that it may have in a
					  file of this version */
	uint32_t n, left;	       /* numbers of events read and not yet read in this block */
	uint64_t time;		       /* time and thread of the last event */
	uint32_t thread;
	uint32_t node;	    /* node of the last event that had one */
	uint32_t called[2]; /* module of the last EVENT_ENTER and of the last EVENT_LEAVE */
	uint64_t new_addr;  /* last address that was new in the block */
	uint8_t walk;	    /* walk of the last event without a stack */
	struct mtr_touched *touched; /* for each event that had an allocator block: the block's
					state after it */
	uint32_t n_touched;
	uint64_t *sizes; /* the different sizes in this events block, by order of appearance */
	uint32_t n_sizes;
	size_t room_touched, room_sizes;
	struct mtr_device devices[MTR_MAX_BLOCK_DEVICES];
	uint32_t n_devices, device; /* device: index of the last event's device */
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

/* Returns the last event kind that a file of this version may have: see MTR_VERSION. */
static unsigned int last_kind(uint32_t version)
{
	static const uint8_t last[] = { 0,	    EVENT_LOST, EVENT_USED, EVENT_LEAVE,
					EVENT_MARK, EVENT_LEFT, EVENT_HOST };

	return version < sizeof(last) ? last[version] : EVENT_KINDS - 1;
}

/* Returns the fields that events of a kind may have (enum mtr_field); 0: the file's version lacks
 * the kind. */
static uint16_t allowed_fields(uint32_t version, unsigned int kind)
{
	unsigned int allowed = MTR_THREAD | MTR_DEVICE;

	if (kind < EVENT_ALLOC || kind > last_kind(version))
		return 0;
	if (mtr_has_totals(kind))
		allowed |= MTR_TOTALS;
	if (mtr_has_size(kind) || kind == EVENT_REQUESTED)
		allowed |= MTR_SIZE;
	if (mtr_has_block(kind) || kind == EVENT_REQUESTED)
		allowed |= MTR_ADDR;
	if (mtr_has_stack(kind))
		allowed |= MTR_WALK;
	if (mtr_has_how(kind))
		allowed |= MTR_HOW;
	if (mtr_has_requested(kind) && kind != EVENT_REQUESTED)
		allowed |= MTR_REQUESTED;
	if (mtr_has_stream(kind))
		allowed |= MTR_STREAM;
	if (mtr_has_pool(kind))
		allowed |= MTR_POOL;
	if (mtr_has_node(kind))
		allowed |= MTR_NODE;
	if (version < 3)
		allowed &= version == 1 ? MTR_FIELDS_V1 : MTR_FIELDS_V2;
	return (uint16_t)allowed;
}

int mtr_decoder__begin(struct mtr_decoder *dec, uint32_t version, const uint8_t *data, size_t len,
		       uint64_t first, const char **why)
{
	const uint8_t *p = data, *end = data + len;
	uint64_t lens[MTR_COLS], claimed;
	uint32_t n;

	*why = "an events block with a bad head";
	dec->left = 0;
	if (!varint__get(&p, end, &claimed) || !varint__get32(&p, end, &n) ||
	    !varint__get(&p, end, &dec->time))
		return -EBADMSG;
	for (int i = 0; i < MTR_COLS; i++) {
		if (!varint__get(&p, end, &lens[i]))
			return -EBADMSG;
	}
	if (claimed != first) {
		*why = "an events block that does not follow on the one before";
		return -EBADMSG;
	}
	/* An event takes at least one byte of tag and one of time. */
	if (n > MTR_MAX_BLOCK_EVENTS || n > lens[MTR_COL_TAG] || n > lens[MTR_COL_TIME])
		return -EBADMSG;
	for (int i = 0; i < MTR_COLS; i++) {
		if (lens[i] > (uint64_t)(end - p))
			return -EBADMSG;
		dec->cols[i] = (struct cursor){ p, p + lens[i] };
		p += lens[i];
	}
	if (p != end)
		return -EBADMSG;
	if (!n && p != dec->cols[0].at) /* bytes, but no events */
		return -EBADMSG;
	for (unsigned int kind = 0; kind < EVENT_KINDS; kind++)
		dec->allowed[kind] = allowed_fields(version, kind);
	dec->counts = dict__counts(dec->dict);
	dec->n = 0;
	dec->thread = 0;
	dec->node = 0;
	dec->called[0] = dec->called[1] = 0;
	dec->new_addr = 0;
	dec->walk = MT_WALK_OK;
	dec->n_touched = 0;
	dec->n_sizes = 0;
	dec->n_devices = 0;
	if (array__grow(&dec->touched, &dec->room_touched, n, sizeof(*dec->touched)) ||
	    array__grow(&dec->sizes, &dec->room_sizes, n, sizeof(*dec->sizes)))
		return -ENOMEM;
	dec->left = n;
	return 0;
}

/* The get_ functions read a value from its column (mtr_encode.c writes it), or predict it if
 * `fields` lacks its flag. They return false if the value is missing or out of range. */
static bool get_number(struct mtr_decoder *dec, enum mtr_column col, uint64_t *v)
{
	return varint__get(&dec->cols[col].at, dec->cols[col].end, v);
}

static bool get_thread(struct mtr_decoder *dec)
{
	uint64_t v;

	if (!get_number(dec, MTR_COL_REST, &v) || v >= dec->counts.threads)
		return false;
	dec->thread = (uint32_t)v;
	return true;
}

static bool get_device(struct mtr_decoder *dec)
{
	struct cursor *rest = &dec->cols[MTR_COL_REST];
	uint64_t v;

	if (!get_number(dec, MTR_COL_REST, &v) || v > dec->n_devices)
		return false;
	if (v == dec->n_devices) {
		if (v == MTR_MAX_BLOCK_DEVICES || rest->end - rest->at < 2)
			return false;
		dec->devices[v] = (struct mtr_device){ .device = { rest->at[0], rest->at[1] } };
		rest->at += 2;
		dec->n_devices++;
	}
	dec->device = (uint32_t)v;
	return true;
}

static bool get_size(struct mtr_decoder *dec, uint64_t *size)
{
	uint64_t number;

	if (!get_number(dec, MTR_COL_SIZE, &number) || number > dec->n_sizes)
		return false;
	if (number == dec->n_sizes) { /* has room: at most one new size per event */
		if (!get_number(dec, MTR_COL_SIZE, &dec->sizes[number]))
			return false;
		dec->n_sizes++;
	}
	*size = dec->sizes[number];
	return true;
}

/* The stored fields of the last event of a kind on the present device. */
static struct mtr_last *last_event(struct mtr_decoder *dec, unsigned int kind)
{
	return &dec->devices[dec->device].last[kind];
}

/* Returns the entry of dec->touched that is `back` places before the latest one; NULL: there is
 * none. */
static struct mtr_touched *touched_before(struct mtr_decoder *dec, uint64_t back)
{
	return back < dec->n_touched ? &dec->touched[dec->n_touched - 1 - back] : NULL;
}

static bool get_new_addr(struct mtr_decoder *dec, struct event *e)
{
	uint64_t v;

	if (!get_number(dec, MTR_COL_ADDR, &v))
		return false;
	e->addr = dec->new_addr += unzigzag(v);
	return true;
}

/* Address and size of an EVENT_ALLOC or EVENT_FREE. */
ALWAYS_INLINE bool get_block(struct mtr_decoder *dec, unsigned int fields, struct event *e)
{
	const struct mtr_touched *t;
	struct mtr_touched before = { 0 };
	uint64_t v;

	if (fields & MTR_ADDR) {
		if (!get_new_addr(dec, e))
			return false;
	} else {
		t = get_number(dec, MTR_COL_ADDR, &v) ? touched_before(dec, v) : NULL;
		if (!t)
			return false;
		before = *t;
		e->addr = before.addr;
	}
	e->size = before.size;
	if ((fields & MTR_SIZE) && !get_size(dec, &e->size))
		return false;
	/* Has room: at most one entry per event. */
	dec->touched[dec->n_touched++] = mtr_touch(e, &before);
	return true;
}

/* Reads e's address, which is relative to the end of the last event of this kind, and its size,
 * which is the last one's unless fields has MTR_SIZE. For a kind of mtr_has_range(). False:
 * damaged. */
static bool get_range(struct mtr_decoder *dec, unsigned int fields, struct event *e)
{
	const struct mtr_last *last = last_event(dec, e->kind);
	uint64_t v;

	if (!get_number(dec, MTR_COL_ADDR, &v))
		return false;
	e->addr = last->end + unzigzag(v);
	e->size = last->size;
	return !(fields & MTR_SIZE) || get_size(dec, &e->size);
}

/* Reads the address of an EVENT_REQUESTED. Sets *t to its allocator block, or leaves *t if no
 * earlier event of this events block has that. */
static bool get_requested_block(struct mtr_decoder *dec, unsigned int fields, struct event *e,
				struct mtr_touched **t)
{
	uint64_t back = 0;

	if (fields & MTR_ADDR) {
		if (!get_number(dec, MTR_COL_ADDR, &back))
			return false;
		if (!back)
			return get_new_addr(dec, e);
	}
	*t = touched_before(dec, back);
	if (!*t)
		return false;
	e->addr = (*t)->addr;
	return true;
}

/* The requested bytes. t: the allocator block of the event. */
static bool get_requested(struct mtr_decoder *dec, unsigned int fields, struct event *e,
			  const struct mtr_touched *t)
{
	uint64_t v;

	e->requested = mtr_predict_requested(e, t, last_event(dec, e->kind));
	if (!(fields & (e->kind == EVENT_REQUESTED ? MTR_SIZE : MTR_REQUESTED)))
		return true;
	if (!get_number(dec, MTR_COL_SIZE, &v))
		return false;
	e->requested = mtr_requested_base(e, t) - unzigzag(v);
	return true;
}

/* All that the event says about its memory. */
ALWAYS_INLINE bool get_memory(struct mtr_decoder *dec, unsigned int kind, unsigned int fields,
			      struct event *e)
{
	const struct mtr_touched none = { 0 };
	struct mtr_touched *t = NULL;
	bool good = true;

	if (mtr_has_block(kind)) {
		good = get_block(dec, fields, e);
	} else if (mtr_has_range(kind)) {
		good = get_range(dec, fields, e);
	} else if (kind == EVENT_REQUESTED) {
		good = get_requested_block(dec, fields, e, &t);
	} else if (mtr_has_size(kind)) {
		e->size = mtr_repeats_size(kind) ? last_event(dec, kind)->size : 0;
		if (fields & MTR_SIZE)
			good = get_size(dec, &e->size);
	}
	if (good && mtr_has_requested(kind))
		good = get_requested(dec, fields, e, t ? t : &none);
	if (!good)
		return false;
	if (t && e->requested)
		t->requested = e->requested;
	if (kind == EVENT_BLOCK)
		dec->touched[dec->n_touched++] = mtr_touch(e, &none);
	return true;
}

ALWAYS_INLINE bool get_how_stream_pool(struct mtr_decoder *dec, unsigned int kind,
				       unsigned int fields, struct event *e)
{
	const struct mtr_last *last = last_event(dec, kind);
	uint64_t how, flags;

	e->how = last->how;
	e->flags = last->flags;
	if (fields & MTR_HOW) {
		if (!get_number(dec, MTR_COL_REST, &how) ||
		    !get_number(dec, MTR_COL_REST, &flags) || how >= event__how_end(e->kind) ||
		    flags > UINT8_MAX)
			return false;
		e->how = (uint8_t)how;
		e->flags = (uint8_t)flags;
	}
	if (!mtr_has_stream(kind))
		return true;
	e->cuda_stream = last->cuda_stream;
	e->pool[0] = last->pool[0];
	e->pool[1] = last->pool[1];
	if ((fields & MTR_STREAM) && !get_number(dec, MTR_COL_REST, &e->cuda_stream))
		return false;
	return !(fields & MTR_POOL) || (get_number(dec, MTR_COL_REST, &e->pool[0]) &&
					get_number(dec, MTR_COL_REST, &e->pool[1]));
}

ALWAYS_INLINE bool get_stack(struct mtr_decoder *dec, unsigned int fields, struct event *e)
{
	uint64_t v;

	if (!get_number(dec, MTR_COL_STACK, &v) || v >= dec->counts.stacks)
		return false;
	e->stack = (uint32_t)v;
	if (fields & MTR_WALK) {
		if (!get_number(dec, MTR_COL_REST, &v) || v >= MT_WALK_NR)
			return false;
		e->walk = (uint8_t)v;
	} else {
		e->walk = e->stack ? dict__get_stack(dec->dict, e->stack).walk : dec->walk;
	}
	if (!e->stack)
		dec->walk = e->walk;
	return true;
}

ALWAYS_INLINE bool get_totals(struct mtr_decoder *dec, unsigned int kind, unsigned int fields,
			      struct event *e)
{
	struct mtr_device *d = &dec->devices[dec->device];
	uint64_t allocated = d->allocated, reserved = d->reserved, v;

	if (kind == EVENT_ALLOC)
		allocated += e->size;
	else if (kind == EVENT_FREE)
		allocated -= e->size;
	if (fields & MTR_TOTALS) {
		if (!get_number(dec, MTR_COL_REST, &v) || v > 1)
			return false;
		d->totals = v;
		if (v) {
			if (!get_number(dec, MTR_COL_REST, &v))
				return false;
			allocated += unzigzag(v);
			if (!get_number(dec, MTR_COL_REST, &v))
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

static bool get_node(struct mtr_decoder *dec, struct event *e)
{
	uint64_t v;

	if (!get_number(dec, MTR_COL_REST, &v))
		return false;
	v = dec->node + unzigzag(v);
	if (!v || v >= dec->counts.nodes)
		return false;
	e->node = dec->node = (uint32_t)v;
	return true;
}

static bool get_tensor(struct mtr_decoder *dec, struct event *e)
{
	const struct mtr_last *last = last_event(dec, e->kind);
	uint64_t name, module, category;

	if (!get_number(dec, MTR_COL_REST, &name) || !get_number(dec, MTR_COL_REST, &module) ||
	    !get_number(dec, MTR_COL_REST, &category))
		return false;
	name = last->name + unzigzag(name);
	module = last->module + unzigzag(module);
	if (name >= dec->counts.strings || module >= dec->counts.modules ||
	    category >= CATEGORY_OF_EVENTS)
		return false;
	e->name = (uint32_t)name;
	e->module = (uint32_t)module;
	e->category = (uint8_t)category;
	return true;
}

/* The module of an EVENT_ENTER or EVENT_LEAVE. */
static bool get_called(struct mtr_decoder *dec, struct event *e)
{
	uint32_t *last = &dec->called[e->kind == EVENT_LEAVE];
	uint64_t module;

	if (!get_number(dec, MTR_COL_REST, &module))
		return false;
	module = *last + unzigzag(module);
	if (module >= dec->counts.modules)
		return false;
	e->module = *last = (uint32_t)module;
	return true;
}

/* True if the file's version has the kind, the kind may have these fields, and the block's first
 * event has the fields that it needs. */
static bool good_tag(const struct mtr_decoder *dec, unsigned int kind, uint64_t fields)
{
	if (kind >= EVENT_KINDS || !dec->allowed[kind] || (fields & ~(uint64_t)dec->allowed[kind]))
		return false;
	/* The first event must have thread and device, because nothing precedes it. */
	return dec->n || (fields & MTR_THREAD && fields & MTR_DEVICE);
}

static bool columns_are_used_up(const struct mtr_decoder *dec)
{
	for (int i = 0; i < MTR_COLS; i++) {
		if (dec->cols[i].at != dec->cols[i].end)
			return false;
	}
	return true;
}

/* Reads the fields of an event, after its tag and its time. */
ALWAYS_INLINE bool get_fields(struct mtr_decoder *dec, unsigned int kind, unsigned int fields,
			      struct event *e)
{
	uint64_t v;

	if ((fields & MTR_THREAD) && !get_thread(dec))
		return false;
	if ((fields & MTR_DEVICE) && !get_device(dec))
		return false;
	e->thread = dec->thread;
	if (mtr_has_device(kind))
		e->device = dec->devices[dec->device].device;
	if (!get_memory(dec, kind, fields, e))
		return false;
	if (mtr_has_stack(kind) && !get_stack(dec, fields, e))
		return false;
	if (mtr_has_totals(kind) && !get_totals(dec, kind, fields, e))
		return false;
	if (kind == EVENT_CALL) {
		if (!get_number(dec, MTR_COL_REST, &v) || v >= dec->counts.modules)
			return false;
		e->module = (uint32_t)v;
	}
	if (!get_how_stream_pool(dec, kind, fields, e))
		return false;
	if (kind == EVENT_TENSOR ? !get_tensor(dec, e) : fields & MTR_NODE && !get_node(dec, e))
		return false;
	if (mtr_is_call(kind) && !get_called(dec, e))
		return false;
	if (kind == EVENT_MARK || kind == EVENT_SCOPE) {
		if (!get_number(dec, MTR_COL_REST, &v) || v >= dec->counts.strings)
			return false;
		e->name = (uint32_t)v;
	}
	if (kind == EVENT_SCOPE &&
	    (!get_number(dec, MTR_COL_REST, &e->addr) || !get_number(dec, MTR_COL_REST, &e->size)))
		return false;
	mtr_remember(last_event(dec, kind), kind, e);
	return true;
}

/* Reads the next event. Returns false if it makes no sense. */
static bool get_event(struct mtr_decoder *dec, struct event *e)
{
	static const struct event blank;
	unsigned int kind, fields;
	uint64_t v, tag, bits;

	if (!get_number(dec, MTR_COL_TAG, &tag))
		return false;
	kind = mtr_tag_kind(tag, &bits);
	if (!good_tag(dec, kind, bits) || !get_number(dec, MTR_COL_TIME, &v))
		return false;
	fields = (unsigned int)bits;
	dec->time += unzigzag(v);
	/* Copying zeroes is faster: compilers clear a structure of this size with a slow string
	 * instruction. */
	*e = blank;
	e->kind = (uint8_t)kind;
	e->time = dec->time;
	/* Nearly all events are of two kinds. For a constant kind the compiler drops the code for
	 * fields that the kind does not have. */
	switch (kind) {
	case EVENT_ALLOC:
		return get_fields(dec, EVENT_ALLOC, fields, e);
	case EVENT_FREE:
		return get_fields(dec, EVENT_FREE, fields, e);
	default:
		return get_fields(dec, kind, fields, e);
	}
}

int mtr_decoder__some(struct mtr_decoder *dec, struct event *e, int most, const char **why)
{
	int n = 0;

	*why = NULL;
	while (n < most && dec->left) {
		/* The last event must use up every column. */
		if (!get_event(dec, &e[n]) || (dec->left == 1 && !columns_are_used_up(dec))) {
			dec->left = 0;
			*why = "an event that makes no sense";
			return n;
		}
		dec->n++;
		dec->left--;
		n++;
	}
	return n;
}
