/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Segments, their gaps (free ranges) and the lines that pin them, which are those of their blocks.
 * Computed on request, from the extents and blocks of now or of the mark, in one pass in order of
 * addresses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/state.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "record/dict.h"

#define LARGE_BUFFER (UINT64_C(20) << 20) /* see SMALL_BUFFER */

struct line { /* blocks of one line and phase */
	uint64_t key[3];
	struct row row;
	/* Sums of its blocks in the current segment. mixed: several modules allocated them. */
	uint64_t bytes, count;
	uint32_t module;
	bool here, mixed; /* here: there are such blocks */
};

struct others { /* memory that one line took in one way, by other code than the allocator */
	uint32_t how, line; /* the key: enum mem_how; index in pass.lines */
	uint64_t bytes, count;
};

struct pass { /* state of the pass over extents and blocks */
	const struct model *m;
	const struct dev *dev;
	bool at_mark;
	enum frame_choice which_line;
	struct extent *extents, *reserved, *unmapped;
	size_t nextents, nreserved, nunmapped;
	/* Live blocks, and blocks freed before attach that wait for a stream (with their size). */
	struct block *blocks, *pending;
	size_t nblocks, npending, next_block, next_pending;
	struct line *lines;
	uint32_t nlines;
	size_t caplines;
	struct hash_index line_index;
	uint32_t *line_nos; /* by site; 0: not looked up */
	uint32_t *here;	    /* indexes of the lines with blocks in the current segment */
	uint32_t nhere;
	size_t caphere;
	uint64_t *sizes; /* sizes of the blocks in the current segment */
	struct segment *all;
	uint32_t n;
	size_t cap;
	struct row *pins;
	uint32_t npins;
	size_t cappins;
	struct others *others;
	uint32_t nothers;
	size_t capothers;
	struct hash_index other_index;
	/* Bytes that other code mapped and the allocator uses; those of them whose physical memory
	 * is not found yet. */
	uint64_t mapped_foreign, unfound;
};

static uint64_t block__size(const struct pass *s, const struct block *b)
{
	return s->m->sites.all[b->site].size;
}

/* A pool's id has two halves (c10/cuda/CUDACachingAllocator.cpp): graph captures number their pools
 * in the first one, and MemPool numbers those of programs in the second one. */
int segment__private_pool(const struct segment *s)
{
	if (s->pool[0])
		return PRIVATE_GRAPH;
	return s->pool[1] ? PRIVATE_MEMPOOL : -1;
}

/* --- lines */

/* Finds or adds the line that an origin is charged to. *ret: its index. Returns 0 or -ENOMEM. */
static int find_line(struct pass *s, uint32_t stack, uint32_t node, uint32_t thread, uint8_t walk,
		     uint32_t *ret)
{
	struct attribution *w = s->m->attribution;
	uint32_t charged_stack = s->which_line == FRAMES_USER
					 ? attribution__line_stack(w, stack, node)
					 : stack;
	struct stack_origin origin = attribution__stack(w, charged_stack);
	struct dict_loc loc = dict__get_loc(s->m->dict, attribution__loc(&origin, s->which_line));
	uint64_t phase = PHASE_OTHER;
	/* 0: Python or untraced, 1: native code, 2: before attach. */
	uint64_t kind = !origin.has_line && walk == MT_WALK_NO_THREAD;
	uint64_t charged = attribution__charged(w, stack, node) || charged_stack != stack;
	/* of the line: file and function, line, the other properties in a word */
	uint64_t key[3] = { (uint64_t)loc.file << 32 | loc.func, loc.line };
	int err;

	if (walk == WALK_CENSUS)
		kind = 2;
	else
		phase = attribution__node_phase(w, stack, node, thread, walk);
	key[2] = phase << 5 | charged << 4 | kind << 1 | origin.has_line;
	err = hash_index__entry(&s->line_index, s->m->seed, key, sizeof(key), &s->lines, &s->nlines,
				&s->caplines, sizeof(*s->lines), ret);
	if (err == 1)
		rows__line(s->m, s->which_line, stack, node, thread, walk, &s->lines[*ret].row);
	return err < 0 ? err : 0;
}

/* Finds or adds the line that a site's blocks are charged to, and remembers it. *ret: its index.
 * Returns 0 or -ENOMEM. */
static int line_of_site(struct pass *s, uint32_t site, uint32_t *ret)
{
	const struct site *origin = &s->m->sites.all[site];
	int err;

	if (s->line_nos[site]) {
		*ret = s->line_nos[site] - 1;
		return 0;
	}
	err = find_line(s, origin->stack, origin->node, origin->thread, origin->walk, ret);
	if (err)
		return err;
	s->line_nos[site] = *ret + 1;
	return 0;
}

/* Counts a block of the current segment for its line. Returns 0 or -ENOMEM. */
static int pin_block(struct pass *s, const struct block *b)
{
	uint32_t site = b->site, module = s->m->sites.all[site].module, id;
	int err = line_of_site(s, site, &id);
	struct line *line;

	if (err)
		return err;
	line = &s->lines[id];
	if (!line->here) {
		err = array__grow_zero(&s->here, &s->caphere, (size_t)s->nhere + 1,
				       sizeof(*s->here));
		if (err)
			return err;
		s->here[s->nhere++] = id;
		line->here = true;
		line->mixed = false;
		line->bytes = line->count = 0;
		line->module = module;
	}
	line->mixed |= line->module != module;
	line->bytes += block__size(s, b);
	line->count++;
	return 0;
}

static int cmp_pin(const void *a, const void *b, void *ctx)
{
	const struct pass *s = ctx;
	const struct line *x = &s->lines[*(const uint32_t *)a],
			  *y = &s->lines[*(const uint32_t *)b];

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Adds the lines of the current segment as its pins, largest first. Returns 0 or -ENOMEM. */
static int put_pins(struct pass *s, struct segment *seg)
{
	struct dict_module names;

	if (s->nhere)
		qsort_r(s->here, s->nhere, sizeof(*s->here), cmp_pin, s);
	seg->npins = s->nhere < SEGMENT_PINS ? s->nhere : SEGMENT_PINS;
	if (array__grow_zero(&s->pins, &s->cappins, (size_t)s->npins + seg->npins,
			     sizeof(*s->pins)))
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nhere; i++) {
		struct line *line = &s->lines[s->here[i]];
		struct row *pin;

		line->here = false;
		if (i >= seg->npins) {
			seg->more_pins++;
			seg->more_pinned += line->bytes;
			continue;
		}
		pin = &s->pins[s->npins++];
		*pin = line->row;
		pin->bytes = line->bytes;
		pin->count = line->count;
		names = dict__get_module(s->m->dict, line->mixed ? 0 : line->module);
		pin->module = line->mixed ? "*" : dict__str(s->m->dict, names.name);
		pin->module_class = dict__str(s->m->dict, names.cls);
		pin->module_root = dict__str(s->m->dict, names.root);
		pin->modules = line->mixed ? 2 : line->module != 0;
	}
	s->nhere = 0;
	return 0;
}

/* --- segments */

static uint64_t end_of(const struct segment *seg)
{
	return seg->addr + seg->size;
}

/* Returns the bytes of whole mappings within [from, to), which the allocator can return to CUDA.
 * *i: index of an extent at or before `from`; it moves to the one that contains `to`. `last`: index
 * after the segment's extents. */
static uint64_t whole_mappings(const struct pass *s, size_t *i, size_t last, uint64_t from,
			       uint64_t to)
{
	uint64_t sum = 0;

	for (;; (*i)++) {
		const struct extent *e = &s->extents[*i];
		uint64_t end = e->addr + e->size, piece = e->size;
		uint64_t low,
			high; /* from the first whole piece to the last one, from e->addr on */

		if (e->listed) /* a listed segment is a run of mappings of this size */
			piece = (e->flags & SEGMENT_SMALL) || e->size % LARGE_BUFFER ? SMALL_BUFFER
										     : LARGE_BUFFER;
		if (from < end && to > e->addr) {
			low = from > e->addr ? (from - e->addr + piece - 1) / piece * piece : 0;
			high = (to < end ? to - e->addr : e->size) / piece * piece;
			sum += high > low ? high - low : 0;
		}
		if (to <= end || *i + 1 >= last)
			return sum;
	}
}

/* Counts the free bytes [from, to) of a segment. *i: index of an extent at or before `from`; it may
 * move on. last: index after the segment's extents. */
static void add_gap(const struct pass *s, struct segment *seg, size_t *i, size_t last,
		    uint64_t from, uint64_t to)
{
	if (to <= from)
		return;
	if (seg->expandable)
		seg->releasable += whole_mappings(s, i, last, from, to);
	seg->free += to - from;
	seg->gaps++;
	if (to - from > seg->largest_gap)
		seg->largest_gap = to - from;
}

/* Sets the median of the sizes in s->sizes. */
static void set_median(struct pass *s, struct segment *seg)
{
	if (!seg->blocks)
		return;
	qsort(s->sizes, seg->blocks, sizeof(*s->sizes), array__compare_u64);
	seg->median = s->sizes[seg->blocks / 2];
}

/* Returns the next block of the pass by address; NULL: none is left. *is_pending: it is one of
 * s->pending, not of s->blocks. */
static const struct block *next_in_order(const struct pass *s, bool *is_pending)
{
	const struct block *live = NULL, *pending = NULL;

	if (s->next_block < s->nblocks)
		live = &s->blocks[s->next_block];
	if (s->next_pending < s->npending)
		pending = &s->pending[s->next_pending];
	*is_pending = pending && (!live || pending->addr < live->addr);
	return *is_pending ? pending : live;
}

/* Counts a live block of the segment, and its request. *n_requested: blocks so far whose requested
 * size is known. Returns 0 or -ENOMEM. */
static int count_block(struct pass *s, struct segment *seg, const struct block *block,
		       uint64_t *n_requested)
{
	const struct request_info *r;

	if (pin_block(s, block))
		return -ENOMEM;
	s->sizes[seg->blocks++] = block__size(s, block);
	seg->allocated += block__size(s, block);
	if (!block->request_no)
		return 0;
	r = &s->m->requests.all[block->request_no - 1];
	++*n_requested;
	seg->requested += r->requested;
	/* Odd values are PyTorch's own stream numbers, not handles. */
	if (!seg->stream_known && !(r->cuda_stream & 1)) {
		seg->stream_known = true;
		seg->cuda_stream = r->cuda_stream;
	}
	return 0;
}

/* Sets a segment's blocks, gaps and pins. s->next_block is its first block. e: index of its first
 * extent, which add_gap() advances; last: index after its last one. Returns 0 or -ENOMEM. */
static int fill_segment(struct pass *s, struct segment *seg, size_t e, size_t last)
{
	/* cursor: end of the blocks so far. n_requested: blocks whose requested size is known. */
	uint64_t cursor = seg->addr, n_requested = 0;
	const struct block *block;
	bool is_pending;

	while (s->next_pending < s->npending && s->pending[s->next_pending].addr < seg->addr)
		s->next_pending++;
	while ((block = next_in_order(s, &is_pending)) && block->addr < end_of(seg)) {
		uint64_t size = is_pending ? block->size : block__size(s, block);
		uint64_t end;

		/* A block may reach beyond the segment: count the part inside. */
		size = size < end_of(seg) - block->addr ? size : end_of(seg) - block->addr;
		add_gap(s, seg, &e, last, cursor, block->addr);
		end = block->addr + size;
		cursor = end > cursor ? end : cursor;
		if (is_pending) {
			seg->pending += size;
			s->next_pending++;
			continue;
		}
		if (count_block(s, seg, block, &n_requested))
			return -ENOMEM;
		s->next_block++;
	}
	add_gap(s, seg, &e, last, cursor, end_of(seg));
	if (n_requested < seg->blocks)
		seg->requested = 0;
	if (!seg->expandable && seg->free == seg->size)
		seg->releasable = seg->size;
	seg->stuck = seg->free - seg->releasable;
	set_median(s, seg);
	return put_pins(s, seg);
}

ARRAY_UP_TO(extents_up_to, struct extent, addr)
ARRAY_UP_TO(blocks_up_to, struct block, addr)

/* Returns the extent that contains addr, among extents in order of addresses; NULL: none. */
static struct extent *extent_at(struct extent *all, size_t n, uint64_t addr)
{
	size_t i = extents_up_to(all, n, addr);

	return i && addr - all[i - 1].addr < all[i - 1].size ? &all[i - 1] : NULL;
}

/* Returns the reserved range that contains addr; NULL: not known. */
static const struct extent *range_of(const struct pass *s, uint64_t addr)
{
	return extent_at(s->reserved, s->nreserved, addr);
}

/* True if b, which follows a, belongs to the same segment. */
static bool same_segment(const struct pass *s, const struct extent *a, const struct extent *b)
{
	if (!extent__is_expandable(a) || !extent__is_expandable(b) ||
	    a->addr + a->size != b->addr || range_of(s, a->addr) != range_of(s, b->addr))
		return false;
	return !(a->listed && b->listed) ||
	       (a->cuda_stream == b->cuda_stream && !memcmp(a->pool, b->pool, sizeof(a->pool)));
}

/* Sets the segment's kind, and its stream and pool if the allocator's tables listed the extent. */
static void set_kind(struct segment *seg, const struct extent *e)
{
	if (e->listed) {
		seg->stream_known = seg->pool_known = true;
		seg->cuda_stream = e->cuda_stream;
		memcpy(seg->pool, e->pool, sizeof(seg->pool));
	}
	if (extent__kind(e) != SEGMENT_ANY)
		seg->kind = extent__kind(e);
}

/* Makes a segment from one or more extents, from *i on; *i moves past them. Returns 0 or -ENOMEM. */
static int add_segment(struct pass *s, size_t *i)
{
	const struct extent *extent = &s->extents[*i];
	struct segment seg = {
		.addr = extent->addr,
		.size = extent->size,
		.expandable = extent__is_expandable(extent),
		.foreign = extent__sum(extent) != SUM_SEGMENTS ||
			   (extent->how && !(extent->flags & MEM_BY_ALLOCATOR)),
		.seen = extent->how != 0,
		.time = extent->time,
	};
	size_t first = *i;

	rows__line(s->m, s->which_line, extent->stack, 0, extent->thread,
		   extent->how ? extent->walk : WALK_CENSUS, &seg.taken);
	set_kind(&seg, extent);
	for ((*i)++; *i < s->nextents && same_segment(s, &s->extents[*i - 1], &s->extents[*i]);
	     (*i)++) {
		seg.size += s->extents[*i].size;
		if (!seg.pool_known && s->extents[*i].listed)
			set_kind(&seg, &s->extents[*i]);
	}
	if (seg.foreign && extent->how == MEM_MAPPED)
		s->mapped_foreign += seg.size;
	if (fill_segment(s, &seg, first, *i) ||
	    array__grow_zero(&s->all, &s->cap, (size_t)s->n + 1, sizeof(*s->all)))
		return -ENOMEM;
	s->all[s->n++] = seg;
	return 0;
}

/* --- memory taken by other code */

/* Counts memory that other code took. Returns 0 or -ENOMEM. */
static int add_other(struct pass *s, uint8_t how, const struct extent *e)
{
	uint32_t key[2] = { how }, id;
	int err = find_line(s, e->stack, 0, e->thread, e->walk, &key[1]);

	if (err)
		return err;
	err = hash_index__entry(&s->other_index, s->m->seed, key, sizeof(key), &s->others,
				&s->nothers, &s->capothers, sizeof(*s->others), &id);
	if (err < 0)
		return err;
	s->others[id].bytes += e->size;
	s->others[id].count++;
	return 0;
}

/* Counts physical memory that other code took. As many bytes as other code mapped for the allocator
 * are left out, because segments have them. Returns 0 or -ENOMEM. */
static int add_physical(struct pass *s)
{
	struct extent *all;
	size_t n;
	int err = extents__list(&s->dev->extents, EXTENT_PHYSICAL, s->at_mark, &all, &n);

	if (err)
		return err;
	s->unfound = s->mapped_foreign;
	for (size_t i = 0; i < n && !err; i++) {
		if (extent__sum(&all[i]) != SUM_OTHERS)
			continue;
		if (all[i].size <= s->unfound)
			s->unfound -= all[i].size;
		else
			err = add_other(s, MEM_PHYSICAL, &all[i]);
	}
	free(all);
	return err;
}

/* --- the pass over extents and blocks */

/* Counts a block that is in no segment. */
static void add_outside(struct pass *s, const struct block *b, struct model_segments *ret)
{
	struct extent *e = extent_at(s->unmapped, s->nunmapped, b->addr);

	if (!e) {
		ret->outside += block__size(s, b);
		ret->outside_blocks++;
		return;
	}
	ret->unmapped_inside += block__size(s, b);
	ret->unmapped_blocks++;
	ret->unmapped += e->counted ? 0 : e->size;
	e->counted = true;
	if (e->time > ret->unmapped_time)
		ret->unmapped_time = e->time;
}

/* Makes the segments, and counts the memory of other code and the blocks outside. An extent of
 * other code with a block in it is a segment, too. Returns 0 or -ENOMEM. */
static int walk_extents(struct pass *s, struct model_segments *ret)
{
	int err = 0;

	for (size_t i = 0; i < s->nextents && !err;) {
		const struct extent *e = &s->extents[i];
		enum extent_sum sum = extent__sum(e);
		uint64_t first;

		while (s->next_block < s->nblocks && s->blocks[s->next_block].addr < e->addr)
			add_outside(s, &s->blocks[s->next_block++], ret);
		first = s->next_block < s->nblocks ? s->blocks[s->next_block].addr : UINT64_MAX;
		if (sum == SUM_SEGMENTS || first - e->addr < e->size) {
			err = add_segment(s, &i);
			continue;
		}
		if (sum == SUM_OTHERS || sum == SUM_MANAGED)
			err = add_other(s, e->how, e);
		i++;
	}
	for (; s->next_block < s->nblocks; s->next_block++)
		add_outside(s, &s->blocks[s->next_block], ret);
	return err ? err : add_physical(s);
}

static int cmp_segment(const void *a, const void *b)
{
	const struct segment *x = a, *y = b;

	if (x->stuck != y->stuck)
		return x->stuck > y->stuck ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int cmp_taken(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	if (x->row.bytes != y->row.bytes)
		return x->row.bytes > y->row.bytes ? -1 : 1;
	return (int)x->how - (int)y->how;
}

ARRAY_COMPARE(cmp_block, struct block, addr)

/* Lists pending blocks. An address that holds a live block is no longer pending. Returns 0 or
 * -ENOMEM. */
static int list_pending(struct pass *s)
{
	uint64_t addr, size;
	size_t pos = 0, n = 0;

	if (!s->dev->pending)
		return 0;
	s->pending = malloc((map64__count(s->dev->pending) + 1) * sizeof(*s->pending));
	if (!s->pending)
		return -ENOMEM;
	while (map64__next(s->dev->pending, &pos, &addr, &size)) {
		size_t next = blocks_up_to(s->blocks, s->nblocks, addr);

		if (next && addr - s->blocks[next - 1].addr < block__size(s, &s->blocks[next - 1]))
			continue;
		if (next < s->nblocks && s->blocks[next].addr - addr < size)
			continue;
		s->pending[n++] = (struct block){ .addr = addr, .size = size };
	}
	qsort(s->pending, n, sizeof(*s->pending), cmp_block);
	s->npending = n;
	return 0;
}

/* Lists the extents and blocks of the pass, in order of addresses. Returns 0 or -ENOMEM. */
static int list_all(struct pass *s)
{
	const struct extents *x = &s->dev->extents;

	if (blocks__list(s->m, s->dev, s->at_mark ? ROWS_AT_MARK : ROWS_NOW, &s->blocks,
			 &s->nblocks) ||
	    extents__list(x, EXTENT_MEMORY, s->at_mark, &s->extents, &s->nextents) ||
	    extents__list(x, EXTENT_RESERVED, s->at_mark, &s->reserved, &s->nreserved) ||
	    extents__list(x, EXTENT_UNMAPPED, s->at_mark, &s->unmapped, &s->nunmapped) ||
	    list_pending(s))
		return -ENOMEM;
	s->line_nos = calloc((size_t)s->m->sites.n + 1, sizeof(*s->line_nos));
	s->sizes = malloc((s->nblocks + 1) * sizeof(*s->sizes));
	return s->line_nos && s->sizes ? 0 : -ENOMEM;
}

/* Sums up the requested bytes; 0 if those of some blocks are not known. */
static void sum_requested(const struct pass *s, struct model_segments *ret)
{
	for (size_t i = 0; i < s->nblocks; i++) {
		uint32_t request_no = s->blocks[i].request_no;

		if (!request_no) {
			ret->requested = 0;
			return;
		}
		ret->requested += s->m->requests.all[request_no - 1].requested;
	}
	if (ret->inside + ret->outside + ret->unmapped_inside != ret->allocated)
		ret->requested = 0; /* some blocks are not known */
}

static uint64_t difference_or_0(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Adds a segment's free memory to the sums; private pools have their own. */
static void sum_free(const struct segment *seg, struct model_segments *ret)
{
	bool empty = !seg->blocks && !seg->pending;
	int private = segment__private_pool(seg);

	if (private >= 0) {
		ret->private[private].free += seg->free;
		ret->private[private].empty += empty ? seg->size : 0;
		ret->private[private].empties += empty;
		return;
	}
	ret->stuck += seg->stuck;
	ret->releasable += seg->releasable;
	ret->empty += empty ? seg->size : 0;
	ret->empties += empty;
	if (seg->largest_gap > ret->largest_gap)
		ret->largest_gap = seg->largest_gap;
}

/* Sets all sums of a device's segments and other memory, of now or of the mark. */
static void sum_up(const struct pass *s, struct model_segments *ret)
{
	const struct dev *dev = s->dev;
	const uint64_t *loose = s->at_mark ? dev->mark_loose : s->m->loose.sums;
	const struct used *used = s->at_mark ? &dev->mark_used : &dev->used;

	for (size_t i = 0; i < ret->n; i++) {
		const struct segment *seg = &ret->all[i];

		ret->known += seg->size;
		ret->inside += seg->allocated;
		ret->pending += seg->pending;
		sum_free(seg, ret);
	}
	for (size_t i = 0; i < ret->nothers; i++) {
		if (ret->others[i].how == MEM_MANAGED)
			ret->managed += ret->others[i].row.bytes;
		else
			ret->others_bytes += ret->others[i].row.bytes;
	}
	/* PyTorch reports a free when the program frees, and not when the streams are done. */
	ret->pending_known = !dev->pub.frees || facts__get(s->m->attribution->facts, "pending");
	ret->has_totals = dev->pub.has_totals;
	ret->allocated = s->at_mark ? dev->pub.mark_allocated : dev->pub.allocated;
	ret->reserved = s->at_mark ? dev->pub.mark_reserved : dev->pub.reserved;
	ret->host = loose[SUM_HOST];
	ret->registered = loose[SUM_REGISTERED];
	ret->unknown_device = loose[SUM_SEGMENTS] + loose[SUM_OTHERS];
	ret->used_known = used->known;
	ret->used = used->bytes;
	ret->used_time = used->time;
	ret->used_below = difference_or_0(used->below, ret->unmapped);
	ret->used_others = difference_or_0(used->others, s->mapped_foreign - s->unfound);
	sum_requested(s, ret);
}

/* Moves the results to the caller. Pins become pointers, since their array moved while it grew.
 * Returns 0 or -ENOMEM. */
static int move_results(struct pass *s, struct model_segments *ret)
{
	struct row *pin = s->pins;

	ret->all = s->all;
	ret->n = s->n;
	ret->pool = s->pins;
	s->all = NULL;
	s->pins = NULL;
	ret->others = calloc((size_t)s->nothers + 1, sizeof(*ret->others));
	for (size_t i = 0; i < ret->n; i++) {
		ret->all[i].pins = pin;
		if (pin) /* NULL: no segment has pins */
			pin += ret->all[i].npins;
	}
	if (!ret->others)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nothers; i++) {
		struct taken *taken = &ret->others[ret->nothers++];

		taken->how = s->others[i].how;
		taken->row = s->lines[s->others[i].line].row;
		taken->row.bytes = s->others[i].bytes;
		taken->row.count = s->others[i].count;
	}
	qsort(ret->others, ret->nothers, sizeof(*ret->others), cmp_taken);
	if (ret->n)
		qsort(ret->all, ret->n, sizeof(*ret->all), cmp_segment);
	return 0;
}

int model__segments(const struct model *m, size_t device, enum row_when when,
		    enum frame_choice which_line, struct model_segments *ret)
{
	struct pass pass = { .m = m, .at_mark = when == ROWS_AT_MARK, .which_line = which_line };
	struct model_segments all = { 0 };
	int err;

	if (device >= m->ndevs)
		return -ENOENT;
	pass.dev = m->devs[m->order[device]];
	if (device__on_host(pass.dev->pub.device) || (when != ROWS_AT_MARK && when != ROWS_NOW))
		return -EINVAL;
	if (pass.at_mark && !pass.dev->pub.marked)
		return -ENOENT;
	err = list_all(&pass);
	if (err)
		goto out;
	err = walk_extents(&pass, &all);
	if (err)
		goto out;
	err = move_results(&pass, &all);
	if (err) {
		model__free_segments(&all);
		goto out;
	}
	sum_up(&pass, &all);
	*ret = all;
out:
	free(pass.extents);
	free(pass.reserved);
	free(pass.unmapped);
	free(pass.blocks);
	free(pass.pending);
	free(pass.lines);
	free(pass.line_index.slots);
	free(pass.line_nos);
	free(pass.here);
	free(pass.sizes);
	free(pass.all);
	free(pass.pins);
	free(pass.others);
	free(pass.other_index.slots);
	return err;
}

bool model_segments__graphs_keep(const struct model_segments *s)
{
	uint64_t others = s->stuck + s->releasable + s->private[PRIVATE_MEMPOOL].free;

	return s->private[PRIVATE_GRAPH].free > others;
}

/* Counts pinned memory in the part of the time [from, until) in which it was taken. Memory that was
 * taken later counts in the last part. */
static void count_pinned(const struct extent *e, uint64_t from, uint64_t until,
			 struct model_pinned *ret)
{
	uint64_t length = (until - from) / PINNED_SPANS + 1; /* of a part, rounded up */
	uint64_t span = (e->time - from) / length;

	if (span >= PINNED_SPANS)
		span = PINNED_SPANS - 1;
	ret->bytes += e->size;
	ret->count++;
	ret->spans[span] += e->size;
}

int model__pinned(const struct model *m, uint64_t from, uint64_t until, struct model_pinned *ret)
{
	struct pass pass = { .m = m, .which_line = FRAMES_USER };
	const struct others *most = NULL;
	struct extent *all;
	size_t n;
	int err = extents__list(&m->loose, EXTENT_HOST, /*at_mark=*/false, &all, &n);

	*ret = (struct model_pinned){ .bytes = 0 };
	if (err)
		return err;
	for (size_t i = 0; i < n && !err; i++) {
		if (all[i].how != MEM_HOST || all[i].time <= from || all[i].time > until)
			continue;
		count_pinned(&all[i], from, until, ret);
		err = add_other(&pass, MEM_HOST, &all[i]);
	}
	for (uint32_t i = 0; i < pass.nothers; i++)
		if (!most || pass.others[i].bytes > most->bytes)
			most = &pass.others[i];
	if (most)
		ret->line = pass.lines[most->line].row;
	free(all);
	free(pass.lines);
	free(pass.line_index.slots);
	free(pass.others);
	free(pass.other_index.slots);
	return err;
}

void model__free_segments(struct model_segments *s)
{
	free(s->all);
	free(s->pool);
	free(s->others);
	*s = (struct model_segments){ 0 };
}
