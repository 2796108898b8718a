/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/host.h"

#include <stddef.h>

#include "record/stream.h"

const char *host_part__name(unsigned part)
{
	static const char *const names[HOST_PART_NR] = {
		[HOST_TOTAL] = "rss",
		[HOST_PINNED] = "pinned",
		[HOST_SHARED_LOADER] = "shared_loader",
		[HOST_SHARED_NCCL] = "shared_nccl",
		[HOST_SHARED] = "shared",
		[HOST_LIBRARIES] = "libraries",
		[HOST_FILES] = "files",
		[HOST_TENSORS] = "tensors",
		[HOST_PYTHON] = "python",
		[HOST_STACKS] = "stacks",
		[HOST_MALLOC] = "malloc",
		[HOST_UNKNOWN] = "unknown",
		[HOST_PSS] = "pss",
		[HOST_USS] = "uss",
		[HOST_SWAP] = "swap",
		[HOST_HUGETLB] = "hugetlb",
		[HOST_PAGE_TABLES] = "page_tables",
		[HOST_GROUP] = "cgroup",
		[HOST_GROUP_KERNEL] = "cgroup_kernel",
		[HOST_PINNED_REQUESTED] = "pinned_requested",
		[HOST_PINNED_ROUNDING] = "pinned_rounding",
		[HOST_PINNED_CACHED] = "pinned_cached",
		[HOST_PINNED_OTHER] = "pinned_other",
		[HOST_MALLOC_TRIM] = "malloc_trim",
		[HOST_MALLOC_ARENAS] = "malloc_arenas",
		[HOST_MALLOC_ENDS] = "malloc_ends",
		[HOST_JEMALLOC] = "jemalloc",
		[HOST_MIMALLOC] = "mimalloc",
		[HOST_TCMALLOC] = "tcmalloc",
	};

	return part < HOST_PART_NR ? names[part] : NULL;
}

void host_sheet__use(const struct host_sheet *s, struct host_use *ret)
{
	/* The second figures of these parts are bytes that are free inside. */
	static const enum host_part allocators[] = { HOST_PINNED, HOST_PYTHON, HOST_MALLOC };
	const struct host_figure *malloc = &s->part[HOST_MALLOC];

	*ret = (struct host_use){ .malloc_known = malloc->known && malloc->has_second,
				  .malloc = malloc->bytes,
				  .malloc_free = malloc->second,
				  .unexplained = s->part[HOST_UNKNOWN].bytes };
	ret->known = ret->malloc_known;
	for (unsigned k = 0; k < HOST_PARTS_END; k++)
		ret->rss += host_part__adds_up(k) ? s->part[k].bytes : 0;
	for (size_t i = 0; i < sizeof(allocators) / sizeof(*allocators); i++) {
		const struct host_figure *f = &s->part[allocators[i]];

		ret->known &= f->has_second || !f->known || !f->bytes;
		ret->free += f->known && f->has_second ? f->second : 0;
	}
	/* The second figures were read a moment after the first. */
	ret->free = ret->free < ret->rss ? ret->free : ret->rss;
	ret->live = ret->rss - ret->free;
}

/* Emits the event of a part. time: ns. Returns the result of fn(). */
static int emit_part(const struct host_sheet *s, unsigned part, uint64_t time,
		     int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	const struct host_figure *f = &s->part[part];
	struct event e = { .kind = EVENT_HOST,
			   .device = { DEVICE_HOST, 0 },
			   .time = time,
			   .how = (uint8_t)part,
			   .size = f->bytes,
			   .flags = f->known ? 0 : HOST_NOT_KNOWN };

	if (f->has_second) {
		e.addr = f->second;
		e.flags |= HOST_SECOND;
	}
	return fn(ctx, &e);
}

int host_sheet__emit(const struct host_sheet *s, uint64_t time,
		     int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	int err = 0;

	for (unsigned i = HOST_TOTAL + 1; i < HOST_PART_NR && !err; i++)
		if (host_part__name(i) && (host_part__adds_up(i) || s->part[i].known))
			err = emit_part(s, i, time, fn, ctx);
	return err ?: emit_part(s, HOST_TOTAL, time, fn, ctx);
}

bool host_sheet__take(struct host_sheet *s, const struct event *e)
{
	if (e->how >= HOST_PART_NR)
		return false;
	s->part[e->how] = (struct host_figure){ .bytes = e->size,
						.second = e->flags & HOST_SECOND ? e->addr : 0,
						.known = !(e->flags & HOST_NOT_KNOWN),
						.has_second = e->flags & HOST_SECOND,
						.seen = true };
	if (e->how != HOST_TOTAL)
		return false;
	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		s->part[i].known |= !s->part[i].seen; /* a part without an event is known to be 0 */
	return true;
}
