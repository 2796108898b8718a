/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The output of torch.cuda.memory._snapshot() as torch.cuda.memory._dump_snapshot() writes it, for
 * PyTorch's viewer and similar tools. It has the segments and blocks at the marked moment and the
 * last events before it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "export/export.h"
#include "export/formats/frames.h"
#include "export/formats/pickle.h"
#include "model/model.h"
#include "model/words.h"
#include "record/detail.h"

/* ---- segments, blocks and stacks ---- */

/* Memory of which the written segments lack something. */
struct snapshot_sums {
	uint64_t without_address; /* bytes from before attach at unknown addresses */
	uint64_t outside;	  /* bytes of blocks outside known segments */
	uint64_t made_up; /* bytes of segments that were invented for the blocks outside known
			     segments */
	/* Bytes of blocks beyond their segment's end or in the next block, as damaged recordings
	 * have them. */
	uint64_t cut;
	uint64_t unasked; /* number of blocks whose requested size is unknown; their own size is
			     written */
};
struct snapshot_range {
	uint64_t addr, end;
};
/* Address ranges of the blocks and segments that the written events have. */
struct snapshot_past {
	struct snapshot_range *blocks, *segments;
	size_t nblocks, nsegments;
};

/* --- stacks */

/* A list of frames that the file has. */
struct list {
	uint32_t first, n; /* range in stacks.pool */
	uint32_t kept;	   /* its number from pickle__keep() */
	uint32_t next_no;  /* index of the next list with the same hash, + 1; 0: none */
};

struct stacks {
	struct pickle *p;
	struct frames *frames;
	struct hash_seed seed;
	uint32_t *kept_no; /* by frame: its number from pickle__keep() + 1; 0: not written yet */
	size_t nkept;
	uint32_t *pool;
	size_t npool, cappool;
	struct list *lists;
	size_t nlists, caplists;
	struct map64 *by_hash; /* hash -> index in lists of the first list with it */
};

static void free_stacks(struct stacks *s)
{
	if (!s)
		return;
	frames__free(s->frames);
	map64__free(s->by_hash);
	free(s->kept_no);
	free(s->pool);
	free(s->lists);
	free(s);
}

static struct stacks *new_stacks(const struct export_ctx *c, struct pickle *p)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->p = p;
	s->seed = hash__seed();
	s->frames = frames__new(c->dict, c->facts, FRAMES_CALLS);
	s->by_hash = map64__new();
	if (!s->frames || !s->by_hash) {
		free_stacks(s);
		return NULL;
	}
	return s;
}

/* Writes a frame, or a reference to it if the file has it already. Returns 0 or -ENOMEM. */
static int put_frame(struct stacks *s, uint32_t i)
{
	const struct frame *f;
	const char *file;

	if (array__grow_zero(&s->kept_no, &s->nkept, (size_t)i + 1, sizeof(*s->kept_no)))
		return -ENOMEM;
	if (s->kept_no[i]) {
		pickle__again(s->p, s->kept_no[i] - 1);
		return 0;
	}
	f = frames__at(s->frames, i);
	/* The viewer needs a file; PyTorch writes "??" for an unknown one, too. */
	file = f->kind == FRAME_MODULE ? "nn.Module" : "??";
	if (f->kind == FRAME_TORCH && !f->file) /* an autograd node */
		file = "autograd";
	pickle__open_dict(s->p);
	pickle__key(s->p, "filename");
	pickle__string(s->p, f->file ? f->file : file);
	pickle__key(s->p, "line");
	pickle__uint(s->p, f->line);
	pickle__key(s->p, "name");
	pickle__string(s->p, f->name);
	pickle__close_dict(s->p);
	s->kept_no[i] = pickle__keep(s->p) + 1;
	return 0;
}

/* Returns the index of the first list with this hash, + 1; 0: none. */
static uint32_t first_list_no(const struct stacks *s, uint64_t hash)
{
	uint64_t first;

	return map64__get(s->by_hash, hash, &first) ? (uint32_t)first + 1 : 0;
}

/* Returns the list with these frames that the file has, or NULL. */
static const struct list *find_list(const struct stacks *s, uint64_t hash, const uint32_t *frames,
				    uint32_t n)
{
	for (uint32_t no = first_list_no(s, hash); no; no = s->lists[no - 1].next_no) {
		const struct list *l = &s->lists[no - 1];

		if (l->n == n && !memcmp(s->pool + l->first, frames, n * sizeof(*frames)))
			return l;
	}
	return NULL;
}

/* Remembers the list of frames that was just written. Returns 0 or -ENOMEM. */
static int remember_list(struct stacks *s, uint64_t hash, const uint32_t *frames, uint32_t n)
{
	uint32_t next_no = first_list_no(s, hash);
	int err;

	/* Both are counted in 32 bits; next_no is an index + 1. */
	if (s->npool > UINT32_MAX - n || s->nlists == UINT32_MAX - 1)
		return -ENOMEM;
	if (array__grow(&s->pool, &s->cappool, s->npool + n, sizeof(*s->pool)))
		return -ENOMEM;
	err = array__grow(&s->lists, &s->caplists, s->nlists + 1, sizeof(*s->lists))
		      ?: map64__set(s->by_hash, hash, s->nlists);
	if (err)
		return err;
	memcpy(s->pool + s->npool, frames, n * sizeof(*frames));
	s->lists[s->nlists++] = (struct list){
		.first = (uint32_t)s->npool, .n = n, .kept = pickle__keep(s->p), .next_no = next_no
	};
	s->npool += n;
	return 0;
}

/* Writes the list of frames of a stack, innermost first, or a reference to it if the file has it
 * already. Returns 0 or -ENOMEM. */
static int put_stack(struct stacks *s, const struct row *row)
{
	const uint32_t *frames;
	const struct list *l;
	uint64_t hash;
	uint32_t n;
	int err = frames__of_row(s->frames, row, &frames, &n);

	if (err)
		return err;
	hash = hash__bytes(s->seed, frames, n * sizeof(*frames));
	l = find_list(s, hash, frames, n);
	if (l) {
		pickle__again(s->p, l->kept);
		return 0;
	}
	pickle__open_list(s->p);
	for (uint32_t i = n; i > 0 && !err; i--)
		err = put_frame(s, frames[i - 1]);
	pickle__close_list(s->p);
	return err ? err : remember_list(s, hash, frames, n);
}

/* Writes the stack of a block or an entry, and what our own reader needs for its phase and role
 * (record/snapshot): the autograd node, and whether the frames are those of the forward call that
 * made it. Returns 0 or -ENOMEM. */
static int put_origin(struct stacks *s, const struct row *row)
{
	pickle__key(s->p, "frames");
	if (put_stack(s, row))
		return -ENOMEM;
	if (!row->node_class || row->before_attach)
		return 0;
	pickle__key(s->p, "autograd_node");
	pickle__string(s->p, row->node_class);
	pickle__key(s->p, "autograd_forward");
	pickle__bool(s->p, row->charged);
	return 0;
}

/* --- segments */

/* The blocks of a device, which its segments are tiled with. */
struct tiles {
	struct export_ctx *c;
	struct pickle *p;
	struct stacks *stacks;
	struct snapshot_sums *sums;
	struct live_block *blocks; /* by address */
	size_t n;
	size_t next;	    /* the first block that no written segment has */
	unsigned int index; /* device index */
};

/* Writes the members that all blocks have. state: "active_allocated" or "inactive". */
static void put_size(struct pickle *p, uint64_t addr, uint64_t size, uint64_t requested,
		     const char *state)
{
	pickle__key(p, "address");
	pickle__uint(p, addr);
	pickle__key(p, "size");
	pickle__uint(p, size);
	pickle__key(p, "requested_size");
	pickle__uint(p, requested);
	pickle__key(p, "state");
	pickle__key(p, state);
}

/* Writes the free memory between two addresses as an inactive block. */
static void put_gap(struct pickle *p, uint64_t from, uint64_t to)
{
	if (to <= from)
		return;
	pickle__open_dict(p);
	put_size(p, from, to - from, 0, "inactive");
	pickle__key(p, "frames");
	pickle__open_list(p);
	pickle__close_list(p);
	pickle__close_dict(p);
}

/* Returns the size of block i in a segment that ends at `end`. A block of a damaged recording that
 * reaches into the next one ends there. */
static uint64_t size_of(const struct tiles *t, size_t i, uint64_t end)
{
	const struct live_block *b = &t->blocks[i];
	uint64_t room = (i + 1 < t->n && t->blocks[i + 1].addr < end ? t->blocks[i + 1].addr
								     : end) -
			b->addr;

	return b->size < room ? b->size : room;
}

/* Returns the requested size of block i, at most `size`; that size if it is unknown. */
static uint64_t requested_of(const struct tiles *t, size_t i, uint64_t size)
{
	uint64_t requested = t->blocks[i].requested;

	return requested && requested < size ? requested : size;
}

/* Writes the role and the name of a block, for our own reader. */
static void put_role(struct pickle *p, const struct live_block *b)
{
	switch (b->category) {
	case CATEGORY_PARAMETER:
	case CATEGORY_BUFFER:
	case CATEGORY_GRADIENT:
	case CATEGORY_OPTIMIZER_STATE:
	case CATEGORY_KV_CACHE:
		pickle__key(p, "role");
		pickle__key(p, category__name(b->category));
		pickle__key(p, "role_inferred");
		pickle__bool(p, b->inferred);
		break;
	default:
		break;
	}
	if (!b->name)
		return;
	pickle__key(p, "user_metadata");
	pickle__string(p, b->name);
}

/* Writes the scope of a block or an entry, if it has one. shown: also as the text that PyTorch's
 * viewer shows; our own reader knows by the other key that it is no name. */
static void put_scope(struct pickle *p, const char *scope, bool shown)
{
	if (!scope)
		return;
	pickle__key(p, "scope");
	pickle__key(p, scope);
	if (!shown)
		return;
	pickle__key(p, "user_metadata");
	pickle__key(p, scope);
}

/* Writes block i with the size that it has in its segment. Returns 0 or -ENOMEM. */
static int put_block(struct tiles *t, size_t i, uint64_t size)
{
	const struct live_block *b = &t->blocks[i];
	struct row row;
	int err;

	model__stack_row(t->c->model, b->stack, b->node, b->thread, b->walk, &row);
	row.before_attach = b->before_attach;
	pickle__open_dict(t->p);
	put_size(t->p, b->addr, size, requested_of(t, i, size), "active_allocated");
	err = put_origin(t->stacks, &row);
	put_role(t->p, b);
	put_scope(t->p, b->scope, !b->name);
	pickle__close_dict(t->p);
	t->sums->unasked += !b->requested;
	t->sums->cut += b->size - size;
	return err;
}

/* Skips blocks before addr that lie in no segment, as only damaged recordings have them. */
static void skip_blocks(struct tiles *t, uint64_t addr)
{
	for (; t->next < t->n && t->blocks[t->next].addr < addr; t->next++)
		t->sums->cut += t->blocks[t->next].size;
}

/* Writes a segment from addr up to `end` and its blocks, the first of which is t->next. seg: NULL
 * for an invented segment. Returns 0 or -ENOMEM. */
static int put_segment(struct tiles *t, uint64_t addr, uint64_t end, const struct segment *seg)
{
	static const char *const kinds[] = {
		[SEGMENT_ANY] = "unknown", [SEGMENT_OF_SMALL] = "small", [SEGMENT_OF_LARGE] = "large"
	};
	uint64_t allocated = 0, requested = 0, at = addr;
	size_t first = t->next, last = first;
	int err = 0;

	for (; last < t->n && t->blocks[last].addr < end; last++) {
		allocated += size_of(t, last, end);
		requested += requested_of(t, last, size_of(t, last, end));
	}
	pickle__open_dict(t->p);
	pickle__key(t->p, "device");
	pickle__uint(t->p, t->index);
	pickle__key(t->p, "address");
	pickle__uint(t->p, addr);
	pickle__key(t->p, "total_size");
	pickle__uint(t->p, end - addr);
	pickle__key(t->p, "allocated_size");
	pickle__uint(t->p, allocated);
	pickle__key(t->p, "active_size");
	pickle__uint(t->p, allocated);
	pickle__key(t->p, "requested_size");
	pickle__uint(t->p, requested);
	pickle__key(t->p, "stream");
	pickle__uint(t->p, seg && seg->stream_known ? seg->cuda_stream : 0);
	pickle__key(t->p, "segment_type");
	pickle__key(t->p, kinds[seg ? seg->kind : SEGMENT_ANY]);
	pickle__key(t->p, "segment_pool_id");
	if (seg)
		pickle__pair(t->p, seg->pool[0], seg->pool[1]);
	else
		pickle__pair(t->p, 0, 0);
	pickle__key(t->p, "is_expandable");
	pickle__bool(t->p, seg && seg->expandable);
	pickle__key(t->p, "frames");
	if (seg) {
		err = put_stack(t->stacks, &seg->taken);
	} else {
		pickle__open_list(t->p);
		pickle__close_list(t->p);
	}
	pickle__key(t->p, "blocks");
	pickle__open_list(t->p);
	for (size_t i = first; i < last && !err; i++) {
		uint64_t size = size_of(t, i, end);

		put_gap(t->p, at, t->blocks[i].addr);
		at = t->blocks[i].addr + size;
		if (size)
			err = put_block(t, i, size);
		else
			t->sums->cut += t->blocks[i].size;
	}
	put_gap(t->p, at, end);
	pickle__close_list(t->p);
	pickle__close_dict(t->p);
	t->next = last;
	return err;
}

/* --- blocks outside known segments */

ARRAY_COMPARE(by_start, struct snapshot_range, addr)

/* Sorts the ranges and merges overlapping or adjacent ones. Returns their number. */
static size_t merge_ranges(struct snapshot_range *r, size_t n)
{
	size_t k = 0;

	if (n)
		qsort(r, n, sizeof(*r), by_start);
	for (size_t i = 0; i < n; i++) {
		if (k && r[i].addr <= r[k - 1].end)
			r[k - 1].end = r[i].end > r[k - 1].end ? r[i].end : r[k - 1].end;
		else
			r[k++] = r[i];
	}
	return k;
}

ARRAY_UP_TO(ranges_up_to, struct snapshot_range, addr)

/* True if one of the ranges, which are sorted and apart, has the address. */
static bool holds(const struct snapshot_range *r, size_t n, uint64_t addr)
{
	size_t k = ranges_up_to(r, n, addr);

	return k && addr < r[k - 1].end;
}

/* Finds the address ranges of blocks, from the events and from the moment, that no segment of
 * the events or of the moment contains. The caller frees *ret. Returns 0 or -ENOMEM. *n: their
 * number. */
static int find_outside(const struct tiles *t, const struct model_segments *segs,
			struct snapshot_past *past, struct snapshot_range **ret, size_t *n)
{
	size_t nknown = past->nsegments + segs->n;
	size_t k = 0; /* number of ranges in `all` */
	struct snapshot_range *known = calloc(nknown + 1, sizeof(*known));
	struct snapshot_range *all = calloc(past->nblocks + t->n + 1, sizeof(*all));

	if (!known || !all) {
		free(known);
		free(all);
		return -ENOMEM;
	}
	if (past->nsegments)
		memcpy(known, past->segments, past->nsegments * sizeof(*known));
	for (size_t i = 0; i < segs->n; i++)
		known[past->nsegments + i] = (struct snapshot_range){
			segs->all[i].addr, segs->all[i].addr + segs->all[i].size
		};
	nknown = merge_ranges(known, nknown);
	for (size_t i = 0; i < past->nblocks; i++)
		if (!holds(known, nknown, past->blocks[i].addr))
			all[k++] = past->blocks[i];
	/* A block in a segment that only the events have is left out: PyTorch has no such blocks. */
	for (size_t i = 0; i < t->n; i++) {
		const struct live_block *b = &t->blocks[i];
		bool wraps = b->size > UINT64_MAX - b->addr; /* only in a damaged recording */

		if (!wraps && !holds(known, nknown, b->addr))
			all[k++] = (struct snapshot_range){ b->addr, b->addr + b->size };
	}
	free(known);
	*n = merge_ranges(all, k);
	*ret = all;
	return 0;
}

/* Writes an invented segment for each range from *next on that begins before `until`. It ends at
 * `until` at the latest. Returns 0 or -ENOMEM. */
static int put_outside(struct tiles *t, const struct snapshot_range *r, size_t n, size_t *next,
		       uint64_t until)
{
	int err = 0;

	for (; *next < n && r[*next].addr < until && !err; ++*next) {
		uint64_t end = r[*next].end < until ? r[*next].end : until;

		skip_blocks(t, r[*next].addr);
		for (size_t i = t->next; i < t->n && t->blocks[i].addr < end; i++)
			t->sums->outside += size_of(t, i, end);
		if (end <= r[*next].addr)
			continue;
		t->sums->made_up += end - r[*next].addr;
		err = put_segment(t, r[*next].addr, end, /*seg=*/NULL);
	}
	return err;
}

ARRAY_COMPARE(by_address, struct segment, addr)

/* Writes the known segments, and in between the invented ones, by address. Returns 0 or -ENOMEM. */
static int put_all(struct tiles *t, struct model_segments *segs, struct snapshot_past *past)
{
	struct snapshot_range *outside;
	size_t n, next = 0;
	int err = find_outside(t, segs, past, &outside, &n);

	if (err)
		return err;
	if (segs->n)
		qsort(segs->all, segs->n, sizeof(*segs->all), by_address);
	for (size_t i = 0; i < segs->n && !err; i++) {
		const struct segment *seg = &segs->all[i];

		err = put_outside(t, outside, n, &next, seg->addr);
		skip_blocks(t, seg->addr);
		if (!err)
			err = put_segment(t, seg->addr, seg->addr + seg->size, seg);
	}
	err = err ?: put_outside(t, outside, n, &next, UINT64_MAX);
	skip_blocks(t, UINT64_MAX);
	free(outside);
	return err;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Appends the device's segments at the marked moment to the open list. Readers need a segment below
 * every block of the events, so blocks outside known segments get invented ones. Returns 0,
 * -ENOMEM, or -ENOENT if the moment does not exist.
 */
static int put_device_segments(struct export_ctx *c, struct pickle *p, struct stacks *s,
			       size_t device, struct snapshot_past *past,
			       struct snapshot_sums *sums)
{
	struct tiles t = { .c = c, .p = p, .stacks = s, .sums = sums };
	struct model_segments segs = { 0 };
	struct model_device d;
	int err = model__live_blocks(c->model, device, ROWS_AT_MARK, &t.blocks, &t.n);

	if (err)
		return err;
	model__device(c->model, device, &d);
	t.index = d.device.index;
	sums->without_address += d.mark_allocated;
	for (size_t i = 0; i < t.n; i++)
		sums->without_address -= min64(t.blocks[i].size, sums->without_address);
	err = model__segments(c->model, device, ROWS_AT_MARK, false, &segs);
	if (!err)
		err = put_all(&t, &segs, past);
	model__free_segments(&segs);
	free(t.blocks);
	return err;
}

/* ---- events, and the document ---- */

#define TRACE_MAX 500000 /* most events in the file; older ones are dropped, as in PyTorch */
#define RECENT 65536	 /* slots of snapshot.recent */
/* Values of snapshot.segments: the size in the low bits, the device in the others. */
#define SIZE_BITS 56
#define SIZE_MASK ((UINT64_C(1) << SIZE_BITS) - 1)
#define BLOCK_SHIFT 9 /* PyTorch aligns blocks to 512 bytes */

enum action { ALLOC, FREE, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM };

struct entry {
	uint64_t number; /* event number, from 1 */
	uint64_t time, addr, size;
	uint64_t cuda_stream;
	uint32_t stack, node, thread;
	uint8_t action, walk, device;
	bool before_attach;
	const char *scope; /* as in struct live_block */
};

struct snapshot {
	struct entry *ring;
	size_t n, cap, first; /* first: index of the oldest entry when the ring is full */
	uint64_t number;      /* number of the latest event */
	uint64_t added;	      /* number of entries added, dropped ones included */
	bool alloc_last;      /* the last entry is an allocation that the model did not have yet */
	uint64_t recent[RECENT]; /* by hash of an address: value of `added` after its allocation */
	/* Address -> size and device of memory that the allocator took. The event that gives it
	 * back may have neither. */
	struct map64 *segments;
	struct map64 *pinned; /* address -> size of pinned host memory */
	/* Free bytes on the device according to the driver, and the reserved bytes at that time. */
	struct left {
		bool known;
		uint64_t bytes, reserved;
	} left[256]; /* by device */
};

static bool is_of_gpu(const struct event *e)
{
	return !device__on_host(e->device) && e->device.index != DEVICE_UNKNOWN;
}

static struct entry *entry_at(struct snapshot *s, size_t i)
{
	return &s->ring[(s->first + i) % s->n];
}

/* The slot of an address. Addresses that share one displace each other. */
static uint64_t *recent_of(struct snapshot *s, uint64_t addr)
{
	uint64_t block = addr >> BLOCK_SHIFT;

	return &s->recent[(block ^ block / RECENT) % RECENT];
}

/* Adds an entry, in place of the oldest one if there are TRACE_MAX. Returns 0 or -ENOMEM. */
static int add_entry(struct snapshot *s, const struct entry *entry)
{
	if (s->n == TRACE_MAX) {
		s->ring[s->first] = *entry;
		s->first = (s->first + 1) % TRACE_MAX;
	} else {
		if (array__grow(&s->ring, &s->cap, s->n + 1, sizeof(*s->ring)))
			return -ENOMEM;
		s->ring[s->n++] = *entry;
	}
	s->added++;
	s->alloc_last = entry->action == ALLOC;
	if (entry->action == ALLOC)
		*recent_of(s, entry->addr) = s->added;
	return 0;
}

/* True if the latest event is after the moment that the file shows of this device. False also if
 * the moment is not known in advance. */
static bool is_after_moment(const struct export_ctx *c, const struct snapshot *s,
			    struct device device)
{
	struct model_device d;

	for (size_t i = 0; c->ahead && i < model__devices(c->ahead); i++) {
		model__device(c->ahead, i, &d);
		if (device__same(d.device, device))
			return d.marked && s->number > d.mark_event;
	}
	return false;
}

/* Returns the model's index of the GPU with this device index; -1: none. */
static int device_of(const struct export_ctx *c, unsigned int index)
{
	struct model_device d;

	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		if (!device__on_host(d.device) && d.device.index == index &&
		    d.device.index != DEVICE_UNKNOWN)
			return (int)i;
	}
	return -1;
}

/* Returns the free bytes on the device: the driver's latest figure, if the reserved bytes have not
 * changed since. -1: unknown. */
static int64_t known_free_bytes(const struct snapshot *s, const struct event *e)
{
	const struct left *l = &s->left[e->device.index];

	if (l->bytes > INT64_MAX || !l->known || !e->totals || l->reserved != e->reserved)
		return -1;
	return (int64_t)l->bytes;
}

/* Adds an allocation or an out-of-memory event with the stack that it is charged to. Returns 0 or
 * -ENOMEM. */
static int add_alloc(const struct export_ctx *c, struct snapshot *s, const struct event *e,
		     struct entry entry)
{
	struct event charged = *e;

	model__charge(c->model, &charged);
	entry.action = e->kind == EVENT_OOM ? OOM : ALLOC;
	entry.stack = charged.stack;
	entry.walk = charged.walk;
	entry.cuda_stream = e->cuda_stream;
	if (e->kind == EVENT_OOM)
		entry.addr = (uint64_t)known_free_bytes(s, e);
	else if (e->requested && e->requested < e->size)
		entry.size = e->requested;
	return add_entry(s, &entry);
}

/* Sets the scope of the last entry, if it is an allocation, which the model has by now. */
static void settle_scope(const struct export_ctx *c, struct snapshot *s)
{
	struct device device = { .type = DEVICE_CUDA };
	struct live_block b;
	struct entry *entry;

	if (!s->alloc_last || !model__scopes(c->model))
		return;
	s->alloc_last = false;
	entry = entry_at(s, s->n - 1);
	device.index = entry->device;
	if (model__live_block(c->model, device, entry->addr, &b))
		entry->scope = b.scope;
}

/* Adds a free with the stack of the allocation, as PyTorch does by default. Returns 0 or -ENOMEM. */
static int add_free(const struct export_ctx *c, struct snapshot *s, const struct event *e,
		    struct entry entry)
{
	struct live_block b;

	entry.action = FREE;
	entry.before_attach = true;
	if (model__live_block(c->model, e->device, e->addr, &b)) {
		entry.size = b.requested && b.requested < b.size ? b.requested : b.size;
		entry.stack = b.stack;
		entry.node = b.node;
		entry.thread = b.thread;
		entry.walk = b.walk;
		entry.cuda_stream = b.cuda_stream;
		entry.before_attach = b.before_attach;
		entry.scope = b.scope;
	}
	return add_entry(s, &entry);
}

/* Remembers size and device of a segment for the event that gives it back. Returns 0 or -ENOMEM. */
static int remember_segment(struct snapshot *s, const struct event *e)
{
	return map64__set(s->segments, e->addr,
			  (uint64_t)e->device.index << SIZE_BITS | (e->size & SIZE_MASK));
}

/* True for memory that PyTorch lists as a segment: plain (cudaMalloc) or a mapped part of an
 * expandable one. */
static bool is_segment(const struct event *e)
{
	return e->how == MEM_DEVICE || e->how == MEM_MAPPED;
}

/* Adds memory that the allocator took. Leaves out memory of others, and calls that give no address.
 * Returns 0 or -ENOMEM. */
static int add_segment_alloc(struct snapshot *s, const struct event *e, struct entry entry)
{
	if (!(e->flags & MEM_BY_ALLOCATOR) || !is_segment(e))
		return 0;
	entry.action = e->how == MEM_MAPPED ? SEGMENT_MAP : SEGMENT_ALLOC;
	return add_entry(s, &entry) || remember_segment(s, e) ? -ENOMEM : 0;
}

/* Adds memory that the allocator gave back, if it is known that the allocator took it. Returns 0 or
 * -ENOMEM. */
static int add_segment_free(const struct export_ctx *c, struct snapshot *s, const struct event *e,
			    struct entry entry)
{
	struct device device = { .type = DEVICE_CUDA };
	uint64_t old;

	if (!is_segment(e) || !map64__del(s->segments, e->addr, &old))
		return 0;
	entry.action = e->how == MEM_MAPPED ? SEGMENT_UNMAP : SEGMENT_FREE;
	entry.device = device.index = old >> SIZE_BITS;
	if (!entry.size)
		entry.size = old & SIZE_MASK;
	if (is_of_gpu(e))
		device = e->device;
	return is_after_moment(c, s, device) ? 0 : add_entry(s, &entry);
}

/* Adds pinned host memory that was taken or given back. Its entries have no device. Returns 0 or
 * -ENOMEM. */
static int add_pinned(struct snapshot *s, const struct event *e, struct entry entry)
{
	entry.device = DEVICE_UNKNOWN;
	entry.action = SEGMENT_ALLOC;
	if (e->kind == EVENT_CUDA_ALLOC)
		return map64__set(s->pinned, e->addr, e->size) ?: add_entry(s, &entry);
	if (!map64__del(s->pinned, e->addr, &entry.size))
		return 0;
	entry.action = SEGMENT_FREE;
	return add_entry(s, &entry);
}

/* Sets the requested size in the entry of the allocation that an EVENT_REQUESTED describes, if it
 * is still known. */
static void set_requested(struct snapshot *s, const struct event *e)
{
	uint64_t added = *recent_of(s, e->addr);
	struct entry *entry;

	if (!added || s->added - added >= s->n)
		return; /* none, or dropped */
	entry = entry_at(s, s->n - 1 - (s->added - added));
	if (entry->action != ALLOC)
		return;
	if (entry->addr != e->addr || entry->device != e->device.index)
		return; /* another block with this slot */
	if (e->requested && e->requested < entry->size)
		entry->size = e->requested;
	entry->cuda_stream = e->cuda_stream;
}

/* Keeps what the file needs of an event, unless that is after its moment. Returns 0 or -ENOMEM. */
static int snapshot_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct snapshot *s = state;
	struct entry entry = {
		.number = ++s->number,
		.time = e->time,
		.addr = e->addr,
		.size = e->size,
		.stack = e->stack,
		.node = e->node,
		.thread = e->thread,
		.walk = e->walk,
		.device = e->device.index,
	};

	settle_scope(c, s);
	if (e->how == MEM_HOST && (e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE))
		return add_pinned(s, e, entry);
	if (e->kind == EVENT_CUDA_FREE) /* the event may lack a device */
		return add_segment_free(c, s, e, entry);
	if (!is_of_gpu(e))
		return 0;
	if (e->kind == EVENT_LEFT) {
		struct model_device d;
		int i = device_of(c, e->device.index);

		/* SIZE_MAX sets all to 0. */
		model__device(c->model, i < 0 ? SIZE_MAX : (size_t)i, &d);
		s->left[e->device.index] = (struct left){ .known = i >= 0,
							  .bytes = e->size,
							  .reserved = d.reserved };
	}
	if (e->kind == EVENT_SEGMENT)
		return remember_segment(s, e);
	if (is_after_moment(c, s, e->device)) {
		/* Only what its EVENT_CUDA_FREE needs, which may lack the device. */
		if (e->kind == EVENT_CUDA_ALLOC && e->flags & MEM_BY_ALLOCATOR)
			return remember_segment(s, e);
		return 0;
	}
	switch (e->kind) {
	case EVENT_ALLOC:
	case EVENT_OOM:
		return add_alloc(c, s, e, entry);
	case EVENT_FREE:
		return add_free(c, s, e, entry);
	case EVENT_CUDA_ALLOC:
		return add_segment_alloc(s, e, entry);
	case EVENT_REQUESTED:
		set_requested(s, e);
		break;
	}
	return 0;
}

static void snapshot_release(void *state)
{
	struct snapshot *s = state;

	if (!s)
		return;
	map64__free(s->segments);
	map64__free(s->pinned);
	free(s->ring);
	free(s);
}

static int snapshot_begin(struct export_ctx *c, void **state)
{
	struct snapshot *s = calloc(1, sizeof(*s));

	(void)c;
	if (!s)
		return -ENOMEM;
	s->segments = map64__new();
	s->pinned = map64__new();
	if (!s->segments || !s->pinned) {
		snapshot_release(s);
		return -ENOMEM;
	}
	*state = s;
	return 0;
}

struct writer {
	struct export_ctx *c;
	struct snapshot *s;
	struct pickle *p;
	struct stacks *stacks;
	uint64_t start; /* start of the capture, ns since 1970; 0: not known */
	struct snapshot_sums sums;
};

/* Writes an entry under the name of its action. Returns 0 or -ENOMEM. */
static int put_entry(struct writer *w, const struct entry *e, const char *action)
{
	struct row row;
	int err;

	model__stack_row(w->c->model, e->stack, e->node, e->thread, e->walk, &row);
	row.before_attach = e->before_attach;
	pickle__open_dict(w->p);
	pickle__key(w->p, "action");
	pickle__key(w->p, action);
	if (e->action == OOM) {
		pickle__key(w->p, "device_free");
		/* add_alloc() stores the free bytes of the device in addr */
		pickle__int(w->p, (int64_t)e->addr);
	} else {
		pickle__key(w->p, "addr");
		pickle__uint(w->p, e->addr);
	}
	pickle__key(w->p, "size");
	pickle__uint(w->p, e->size);
	pickle__key(w->p, "stream");
	pickle__uint(w->p, e->cuda_stream);
	pickle__key(w->p, "time_us");
	pickle__uint(w->p, (w->start + e->time) / 1000);
	err = put_origin(w->stacks, &row);
	put_scope(w->p, e->scope, !e->before_attach);
	pickle__close_dict(w->p);
	return err;
}

/* Writes the entries of a device up to event number `last`; 0: none. device: its device index, or
 * DEVICE_UNKNOWN for pinned host memory. Returns 0 or -ENOMEM. */
static int put_trace(struct writer *w, unsigned int device, uint64_t last)
{
	static const char *const names[] = {
		[ALLOC] = "alloc",
		[FREE] = "free_requested",
		[SEGMENT_ALLOC] = "segment_alloc",
		[SEGMENT_FREE] = "segment_free",
		[SEGMENT_MAP] = "segment_map",
		[SEGMENT_UNMAP] = "segment_unmap",
		[OOM] = "oom",
	};
	int err = 0;

	pickle__open_list(w->p);
	for (size_t i = 0; i < w->s->n && !err; i++) {
		const struct entry *e = entry_at(w->s, i);

		if (e->device != device || e->number > last)
			continue;
		err = put_entry(w, e, names[e->action]);
		if (!err && e->action == FREE)
			err = put_entry(w, e, "free_completed");
	}
	pickle__close_list(w->p);
	return err;
}

/* As device_of(), but returns -1 also for devices that --device excludes. */
static int shown_device(const struct writer *w, unsigned int index)
{
	int i = device_of(w->c, index);

	return w->c->device < 0 || w->c->device == i ? i : -1;
}

/* Writes one list per device index, also for missing devices, because readers use it as an index.
 * devices: the number of lists. Returns 0 or -ENOMEM. */
static int put_traces(struct writer *w, unsigned int devices)
{
	struct model_device d;
	int err = 0, i;

	pickle__key(w->p, "device_traces");
	pickle__open_list(w->p);
	for (unsigned int index = 0; index < devices && !err; index++) {
		i = shown_device(w, index);
		if (i >= 0)
			model__device(w->c->model, i, &d);
		err = put_trace(w, index, i >= 0 && d.marked ? d.mark_event : 0);
	}
	pickle__close_list(w->p);
	return err;
}

/* Writes "host_traces", the entries of pinned host memory, whose device is DEVICE_UNKNOWN. Writes
 * nothing if there are none. The list ends at the latest mark of the devices
 * (model_device.mark_event). It is empty if no device has a mark. Returns 0 or -ENOMEM. */
static int put_host_trace(struct writer *w)
{
	uint64_t last = 0; /* events are numbered from 1 */
	bool any = false;

	for (size_t i = 0; i < model__devices(w->c->model); i++) {
		struct model_device d;

		model__device(w->c->model, i, &d);
		if (d.marked && d.mark_event > last)
			last = d.mark_event;
	}
	for (size_t i = 0; i < w->s->n && !any; i++)
		any = entry_at(w->s, i)->device == DEVICE_UNKNOWN;
	if (!any)
		return 0;
	pickle__key(w->p, "host_traces");
	return put_trace(w, DEVICE_UNKNOWN, last);
}

/* Collects address ranges of the device's blocks and segments from the events up to number `last`.
 * The caller frees past->blocks, which holds both arrays. Returns 0 or -ENOMEM. */
static int collect_ranges(const struct writer *w, unsigned int device, uint64_t last,
			  struct snapshot_past *past)
{
	struct snapshot_range *all = calloc(2 * w->s->n + 1, sizeof(*all)), range;

	if (!all)
		return -ENOMEM;
	*past = (struct snapshot_past){ .blocks = all, .segments = all + w->s->n };
	for (size_t i = 0; i < w->s->n; i++) {
		const struct entry *e = entry_at(w->s, i);

		if (e->device != device || e->number > last)
			continue;
		if (e->action == OOM || e->size > UINT64_MAX - e->addr)
			continue; /* no range */
		range = (struct snapshot_range){ e->addr, e->addr + e->size };
		if (e->action == ALLOC || e->action == FREE)
			past->blocks[past->nblocks++] = range;
		else
			past->segments[past->nsegments++] = range;
	}
	return 0;
}

/* Writes the segments of a device as they were at its mark. device: the model's index. Returns 0,
 * -ENOENT if the device has no mark, or -ENOMEM. */
static int put_device(struct writer *w, size_t device)
{
	struct snapshot_past past = { 0 };
	struct model_device d;
	int err;

	model__device(w->c->model, device, &d);
	if (!d.marked)
		return -ENOENT;
	err = collect_ranges(w, d.device.index, d.mark_event, &past);
	if (!err)
		err = put_device_segments(w->c, w->p, w->stacks, device, &past, &w->sums);
	free(past.blocks);
	return err;
}

/* Writes the segments of the devices with the indices below `devices`. Returns 0, -ENOENT if none
 * has a mark, or -ENOMEM. */
static int put_segments(struct writer *w, unsigned int devices)
{
	bool marked = false;
	int err = 0, i;

	pickle__key(w->p, "segments");
	pickle__open_list(w->p);
	for (unsigned int index = 0; index < devices && !err; index++) {
		i = shown_device(w, index);
		if (i < 0)
			continue;
		err = put_device(w, (size_t)i);
		marked |= !err;
		err = err == -ENOENT ? 0 : err;
	}
	pickle__close_list(w->p);
	if (!err && !marked)
		err = -ENOENT;
	return err;
}

/* Adds a "memtrace_bpf" entry with information that PyTorch's format does not have. */
static void put_notes(const struct writer *w)
{
	const char *version = facts__get(w->c->facts, "version");
	char detail[DETAIL_TEXT];

	pickle__key(w->p, "memtrace_bpf");
	pickle__open_dict(w->p);
	pickle__key(w->p, "version");
	pickle__string(w->p, version ? version : "unknown");
	pickle__key(w->p, "moment");
	pickle__string(w->p, w->c->moment);
	pickle__key(w->p, "bytes_without_address");
	pickle__uint(w->p, w->sums.without_address);
	pickle__key(w->p, "bytes_outside_segments");
	pickle__uint(w->p, w->sums.outside);
	pickle__key(w->p, "bytes_of_unknown_segments");
	pickle__uint(w->p, w->sums.made_up);
	pickle__key(w->p, "bytes_cut");
	pickle__uint(w->p, w->sums.cut);
	pickle__key(w->p, "blocks_of_unknown_request");
	pickle__uint(w->p, w->sums.unasked);
	pickle__key(w->p, "events_left_out");
	pickle__uint(w->p, w->s->added - w->s->n);
	pickle__key(w->p, "events_lost");
	pickle__uint(w->p, words__lost(w->c->model, w->c->facts));
	if (*detail__reduced(detail, sizeof(detail), w->c->facts)) {
		pickle__key(w->p, "reduced_detail");
		pickle__string(w->p, detail);
	}
	pickle__close_dict(w->p);
}

/* Writes the file. Returns 0, -ENODATA (no devices), -ENODEV (no GPU, or --device names the host),
 * -ENOENT (no device has the moment) or -ENOMEM. */
static int put_document(struct writer *w)
{
	unsigned int devices = 0; /* the highest index of a GPU + 1 */

	struct model_device d;
	int err;

	if (w->c->device >= 0) {
		model__device(w->c->model, (size_t)w->c->device, &d);
		if (device__on_host(d.device))
			return -ENODEV;
	}
	for (size_t i = 0; i < model__devices(w->c->model); i++) {
		model__device(w->c->model, i, &d);
		if (device__on_host(d.device) || d.device.index == DEVICE_UNKNOWN)
			continue;
		if (d.device.index >= devices)
			devices = d.device.index + 1U;
	}
	if (!devices)
		return model__devices(w->c->model) ? -ENODEV : -ENODATA;
	pickle__open_dict(w->p);
	err = put_segments(w, devices);
	if (!err)
		err = put_traces(w, devices) ?: put_host_trace(w);
	if (err)
		return err;
	pickle__key(w->p, "external_annotations");
	pickle__open_list(w->p);
	pickle__close_list(w->p);
	put_notes(w);
	pickle__close_dict(w->p);
	return 0;
}

static int snapshot_end(struct export_ctx *c, void *state)
{
	const char *start = facts__get(c->facts, "start");
	struct writer w = { .c = c, .s = state, .p = pickle__new(c->out) };
	int err = -ENOMEM;

	settle_scope(c, state);
	if (start && text__parse_date(start, &w.start))
		w.start = 0;
	w.stacks = w.p ? new_stacks(c, w.p) : NULL;
	if (w.stacks)
		err = put_document(&w);
	free_stacks(w.stacks);
	pickle__end(w.p);
	return err;
}

const struct export_format export_snapshot = {
	.name = "snapshot",
	.suffix = ".pickle",
	.of_end = true,
	.help = "PyTorch's memory snapshot, for pytorch.org/memory_viz, _memory_viz.py and Mosaic",
	.next = "https://pytorch.org/memory_viz shows it, and keeps it on your machine",
	.begin = snapshot_begin,
	.event = snapshot_event,
	.end = snapshot_end,
	.release = snapshot_release,
};
