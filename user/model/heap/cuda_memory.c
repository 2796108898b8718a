/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Memory taken from and returned to CUDA, the allocator's tables, and driver-reported use. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/state.h"

#define DEVICES_MAX 256 /* devices searched for an address whose device is not known */

/* Returns the class of memory for enum mem_how of an EVENT_CUDA_ALLOC or _FREE. */
static enum extent_class class_of(uint8_t how)
{
	switch (how) {
	case MEM_PHYSICAL:
		return EXTENT_PHYSICAL;
	case MEM_RESERVED:
		return EXTENT_RESERVED;
	case MEM_HOST:
	case MEM_REGISTERED:
		return EXTENT_HOST;
	default:
		return EXTENT_MEMORY;
	}
}

/* The memory that an event takes or lists, with all that the event says about it. */
static struct extent extent_of(const struct model *m, const struct event *e)
{
	return (struct extent){
		.addr = e->addr,
		.size = e->size,
		.time = e->time,
		.seq = m->seq,
		.cuda_stream = e->cuda_stream,
		.pool = { e->pool[0], e->pool[1] },
		.stack = e->stack,
		.thread = e->thread,
		.how = e->how,
		.flags = e->flags,
		.walk = e->walk,
	};
}

/* Returns the i-th table of extents, or NULL if there are no more. The tables of devices come
 * first, with *dev set; the last one is model.loose, with *dev NULL. */
static struct extents *table_of(struct model *m, uint32_t i, struct dev **dev)
{
	uint32_t n = m->ndevs < DEVICES_MAX ? m->ndevs : DEVICES_MAX;

	*dev = NULL;
	if (i >= n)
		return i == n ? &m->loose : NULL;
	*dev = m->devs[i];
	return &m->devs[i]->extents;
}

/* Sets *ret to the event's device, which is added if needed, or to NULL if the device is not known
 * or is the host. Returns 0 or -ENOMEM. */
static int find_device(struct model *m, const struct event *e, struct dev **ret)
{
	*ret = NULL;
	if (e->device.index == DEVICE_UNKNOWN || device__on_host(e->device))
		return 0;
	return dev__get(m, e->device, ret);
}

/* Updates reserved bytes after segments were added or removed: the allocator reports them only at
 * its next event. before: the segments' sum before the change. */
static void update_reserved(struct model *m, struct dev *dev, uint64_t before, uint64_t time)
{
	uint64_t now = dev->extents.sums[SUM_SEGMENTS];
	uint64_t reserved = dev->pub.reserved + (now - before);

	if (dev->pub.has_totals && now != before)
		dev__set_reserved(m, dev, (int64_t)reserved > 0 ? reserved : 0, time);
}

/* Removes an address range from the extents of a class in all tables. Returns 0 or -ENOMEM. */
static int cut_everywhere(struct model *m, enum extent_class c, uint64_t addr, uint64_t size)
{
	struct extents *table;
	struct dev *dev;

	for (uint32_t i = 0; (table = table_of(m, i, &dev)); i++)
		if (table->count[c] && extents__cut(table, c, addr, size))
			return -ENOMEM;
	return 0;
}

/* Finds the extent, on any device, that contains addr; physical and host memory must start there.
 * Sets *in to its table and *dev as table_of() does. NULL: none. */
static const struct extent *find_extent(struct model *m, enum extent_class c, uint64_t addr,
					struct extents **in, struct dev **dev)
{
	bool starts = c == EXTENT_PHYSICAL || c == EXTENT_HOST;

	for (uint32_t i = 0; (*in = table_of(m, i, dev)); i++) {
		const struct extent *e = NULL;

		if ((*in)->count[c])
			e = starts ? extents__at(*in, c, addr) : extents__over(*in, c, addr);
		if (e)
			return e;
	}
	return NULL;
}

static bool bad_range(const struct event *e)
{
	return !e->size || e->size > UINT64_MAX - e->addr;
}

/* True for mappings by other code than PyTorch's allocator, such as that of a MemPool. */
static bool is_foreign_mapping(const struct event *e)
{
	return e->how == MEM_MAPPED && !(e->flags & MEM_BY_ALLOCATOR) && !bad_range(e);
}

/* Keeps a mapping that other code ends. vLLM's sleep mode unmaps memory below the blocks of a
 * MemPool, which stay allocated, and maps other memory there at the wake-up. Returns 0 or -ENOMEM. */
static int note_unmapped(struct dev *dev, const struct extent *old, const struct event *e)
{
	uint64_t end = old->addr + old->size;
	struct extent gone = {
		.addr = e->addr > old->addr ? e->addr : old->addr,
		.time = e->time,
		.seq = old->seq,
		.cuda_stream = old->cuda_stream,
		.pool = { old->pool[0], old->pool[1] },
		.flags = old->flags,
	};

	end = end < e->addr + e->size ? end : e->addr + e->size;
	gone.size = end - gone.addr;
	return extents__put(&dev->extents, EXTENT_UNMAPPED, &gone, /*later=*/true);
}

/* Copies what the allocator's tables said about the segment at these addresses. */
static void keep_details(struct extent *e, const struct extent *old, uint32_t listed)
{
	e->listed = listed;
	e->cuda_stream = old->cuda_stream;
	memcpy(e->pool, old->pool, sizeof(e->pool));
	e->flags |= old->flags;
}

/* Handles EVENT_CUDA_ALLOC. Returns 0 or -ENOMEM. */
static int take_memory(struct model *m, const struct event *e)
{
	enum extent_class class = class_of(e->how);
	/* two of these cannot overlap, so older ones at the addresses have ended */
	bool by_address = class == EXTENT_MEMORY || class == EXTENT_RESERVED;
	struct extent taken = extent_of(m, e);
	const struct extent *old;
	struct extents *in;
	struct dev *dev = NULL, *other;
	uint64_t before;
	bool wakes; /* the memory of a segment that sleeps comes back */

	if (!e->how || e->how >= MEM_HOW_NR || bad_range(e))
		return 0;
	if (class != EXTENT_HOST && find_device(m, e, &dev))
		return -ENOMEM;
	if (dev && dev__is_new(dev, e))
		dev__begin(m, dev, e);
	if (dev && e->flags & MEM_RETRIED) {
		dev->pub.retries++;
		dev->pub.retry_size = e->size;
		dev->pub.retry_stack = e->stack;
	}
	/* The allocator's tables may have listed the segment before the call returned. */
	old = find_extent(m, class, e->addr, &in, &other);
	if (old && old->listed && old->addr == e->addr && old->size == e->size && other == dev)
		keep_details(&taken, old, old->listed);
	/* Memory is mapped again below a segment that other code unmapped, as at the wake-up of
	 * vLLM's sleep mode. PyTorch counted the segment all the time. */
	old = NULL;
	if (dev && is_foreign_mapping(e))
		old = extents__at(&dev->extents, EXTENT_UNMAPPED, e->addr);
	wakes = old && old->size == e->size && (old->pool[0] || old->pool[1]);
	if (wakes)
		keep_details(&taken, old, dev->round);
	before = dev ? dev->extents.sums[SUM_SEGMENTS] : 0;
	if (by_address && (cut_everywhere(m, class, e->addr, e->size) ||
			   cut_everywhere(m, EXTENT_UNMAPPED, e->addr, e->size)))
		return -ENOMEM;
	if (extents__put(dev ? &dev->extents : &m->loose, class, &taken, /*later=*/true))
		return -ENOMEM;
	if (dev && !wakes)
		update_reserved(m, dev, before, e->time);
	return 0;
}

/* Handles EVENT_CUDA_FREE. Returns 0 or -ENOMEM. */
static int return_memory(struct model *m, const struct event *e)
{
	enum extent_class class = class_of(e->how);
	const struct extent *old;
	struct extents *in;
	struct dev *dev;
	uint64_t before;
	bool foreign; /* other code unmaps a part of PyTorch's segment */
	int err = 0;

	if (!e->how || e->how >= MEM_HOW_NR)
		return 0;
	/* Forget unmapped ranges at addresses that are given up: none can be mapped there again. */
	if (e->how == MEM_RESERVED && !bad_range(e) &&
	    cut_everywhere(m, EXTENT_UNMAPPED, e->addr, e->size))
		return -ENOMEM;
	old = find_extent(m, class, e->addr, &in, &dev);
	if (!old)
		return 0; /* taken before attach */
	before = in->sums[SUM_SEGMENTS];
	foreign = dev && is_foreign_mapping(e) && !(old->flags & MEM_BY_ALLOCATOR);
	if (foreign)
		err = note_unmapped(dev, old, e);
	else if (e->how == MEM_RESERVED)
		err = cut_everywhere(m, EXTENT_UNMAPPED, old->addr, old->size);
	if (err)
		return err;
	old = find_extent(m, class, e->addr, &in, &dev); /* the changes may have moved it */
	/* Part of a mapping can be unmapped, and a listed segment may be many mappings. Other
	 * memory is returned as a whole. */
	if (e->how == MEM_MAPPED && !bad_range(e))
		err = extents__cut(in, class, e->addr, e->size);
	else if (old->addr == e->addr)
		err = extents__del(in, class, e->addr, /*later=*/true);
	if (err)
		return err;
	/* PyTorch still counts a segment whose memory other code unmapped. */
	if (dev && !foreign)
		update_reserved(m, dev, before, e->time);
	return 0;
}

/* Adds what a listing says to a segment whose memory other code has unmapped: the allocator goes on
 * to list it. *found is false if there is none. Returns 0 or -ENOMEM. */
static int list_unmapped(struct dev *dev, const struct extent *listing, bool *found)
{
	const struct extent *old = extents__at(&dev->extents, EXTENT_UNMAPPED, listing->addr);
	struct extent unmapped;

	*found = old && old->size == listing->size;
	if (!*found)
		return 0;
	unmapped = *old;
	keep_details(&unmapped, listing, listing->listed);
	return extents__put(&dev->extents, EXTENT_UNMAPPED, &unmapped, /*later=*/false);
}

/* Handles EVENT_SEGMENT, an entry of the allocator's tables. The first one begins a reading.
 * Returns 0 or -ENOMEM. */
static int list_segment(struct model *m, const struct event *e)
{
	struct extent segment = extent_of(m, e);
	const struct extent *old;
	struct extents *in;
	struct dev *dev, *other;
	bool only_details; /* calls gave the segment already: the listing adds its stream and pool */
	bool unmapped;
	int err;

	if (bad_range(e))
		return 0;
	if (find_device(m, e, &dev))
		return -ENOMEM;
	if (!dev)
		return 0;
	if (!dev->listing) {
		dev->listing = true;
		dev->round_seq = m->seq;
		if (!++dev->round)
			dev->round = 1;
	}
	segment.listed = dev->round;
	segment.how = 0;
	err = list_unmapped(dev, &segment, &unmapped);
	if (err || unmapped)
		return err;
	/* Keep the caller if the segment's allocation was seen. */
	old = find_extent(m, EXTENT_MEMORY, e->addr, &in, &other);
	if (old) {
		segment.how = old->how;
		segment.time = old->time;
		segment.stack = old->stack;
		segment.thread = old->thread;
		segment.walk = old->walk;
		segment.flags |= old->flags & MEM_BY_ALLOCATOR;
	}
	/* They do not change, so they held at the mark, too: no note. A segment that was listed
	 * before is noted again, since only its last listing tells whether it is still there. */
	only_details = old && other == dev && !old->listed && old->addr == e->addr &&
		       old->size == e->size && extent__sum(old) == extent__sum(&segment);
	if (!only_details && cut_everywhere(m, EXTENT_MEMORY, e->addr, e->size))
		return -ENOMEM;
	return extents__put(&dev->extents, EXTENT_MEMORY, &segment, !only_details);
}

/* Removes segments that a complete round of EVENT_SEGMENTs did not list and that are older than the
 * round. Returns 0 or -ENOMEM. */
static int drop_unlisted(struct dev *dev)
{
	struct extent *all;
	size_t n;
	int err = extents__list(&dev->extents, EXTENT_MEMORY, /*at_mark=*/false, &all, &n);

	if (err)
		return err;
	for (size_t i = 0; i < n && !err; i++)
		if (extent__sum(&all[i]) == SUM_SEGMENTS && all[i].listed != dev->round &&
		    all[i].seq < dev->round_seq)
			err = extents__del(&dev->extents, EXTENT_MEMORY, all[i].addr,
					   /*later=*/true);
	free(all);
	return err;
}

/* Handles EVENT_STATE, which ends a reading of the allocator's tables. Returns 0 or -ENOMEM. */
static int end_reading(struct model *m, const struct event *e)
{
	bool exact = e->flags & STATE_EXACT, listing; /* listing: segments were listed before */
	struct dev *dev;
	int err = find_device(m, e, &dev);

	if (err || !dev)
		return err;
	if (dev->pending && dev->pending_over)
		map64__clear(dev->pending);
	dev->pending_over = attribution__is_snapshot(m->attribution);
	listing = dev->listing;
	dev->listing = false;
	if (listing && (e->flags & (STATE_EXACT | STATE_SEGMENTS_EXACT)) && drop_unlisted(dev))
		return -ENOMEM;
	/* Only the first EVENT_STATE is the state at attach. A later one has no known place among
	 * the events. Of a snapshot, a later one says whether its trace was followed exactly. */
	if (dev__is_new(dev, e) || !dev->pub.has_totals) {
		if (dev__is_new(dev, e))
			dev__begin(m, dev, e);
		dev__set_totals(m, dev, e, /*phase=*/-1);
		dev->pub.state = exact ? STATE_FULL : STATE_PARTLY;
	} else if (dev->pub.state == STATE_NONE ||
		   (!exact && attribution__is_snapshot(m->attribution))) {
		dev->pub.state = STATE_PARTLY;
	}
	return 0;
}

/* True if the model's sums at the driver's figure equal those at the mark. */
static bool has_sums_of_mark(const struct dev *dev, const struct used *u)
{
	return u->below + u->others == dev->mark_below + dev->mark_others;
}

/* Returns the figure that e reports, with the memory known at that moment. */
static struct used used_by(const struct dev *dev, const struct event *e)
{
	return (struct used){
		.known = true,
		.time = e->time,
		.bytes = e->size,
		.below = dev__reserved(dev),
		.others = dev->extents.sums[SUM_OTHERS],
	};
}

/* Handles EVENT_USED, the driver's figure of the process's use. Returns 0 or -ENOMEM. */
static int note_used(struct model *m, const struct event *e)
{
	struct dev *dev;
	int err;

	/* Ignore a use of 0 on a device without other events. */
	if (!e->size && !dev__known(m, e->device))
		return 0;
	err = find_device(m, e, &dev);
	if (err || !dev)
		return err;
	if (!dev->any)
		dev__begin(m, dev, e);
	dev->used = used_by(dev, e);
	/* The driver's figure comes after the event that is the mark. The first one after it is
	 * taken for the mark. A later one replaces it if the model's sums are again those of the
	 * mark, and were not at the first one. */
	if (dev->pub.marked && (!dev->mark_used.known || (has_sums_of_mark(dev, &dev->used) &&
							  !has_sums_of_mark(dev, &dev->mark_used))))
		dev->mark_used = dev->used;
	return 0;
}

/* Handles EVENT_LEFT, what the driver has available. Returns 0 or -ENOMEM. */
static int note_left(struct model *m, const struct event *e)
{
	struct dev *dev;
	int err = find_device(m, e, &dev);

	if (err || !dev)
		return err;
	dev->left = used_by(dev, e);
	return 0;
}

bool cuda_memory__available(const struct dev *dev, uint64_t *ret)
{
	uint64_t then = dev->left.below + dev->left.others,
		 now = dev__reserved(dev) + dev->extents.sums[SUM_OTHERS], taken;

	*ret = 0;
	if (!dev->left.known)
		return false;
	taken = now > then ? now - then : 0;
	*ret = dev->left.bytes > taken ? dev->left.bytes - taken : 0;
	*ret += now < then ? then - now : 0;
	return true;
}

int cuda_memory__note_block(struct model *m, struct dev *dev, uint64_t addr)
{
	const struct extent *loose = extents__over(&m->loose, EXTENT_MEMORY, addr);
	struct extent moved;

	if (!loose || dev->pub.device.index == DEVICE_UNKNOWN || device__on_host(dev->pub.device))
		return 0;
	moved = *loose;
	(void)extents__del(&m->loose, EXTENT_MEMORY, moved.addr,
			   /*later=*/false); /* without a note, it cannot fail */
	/* The memory was on this device since it was taken. If that was before the mark, the mark
	 * includes it. */
	return extents__put(&dev->extents, EXTENT_MEMORY, &moved, moved.seq > dev->mark_seq);
}

int cuda_memory__event(struct model *m, const struct event *e)
{
	switch (e->kind) {
	case EVENT_CUDA_ALLOC:
		return take_memory(m, e);
	case EVENT_CUDA_FREE:
		return return_memory(m, e);
	case EVENT_SEGMENT:
		return list_segment(m, e);
	case EVENT_STATE:
		return end_reading(m, e);
	case EVENT_USED:
		return note_used(m, e);
	case EVENT_LEFT:
		return note_left(m, e);
	}
	return 0;
}
