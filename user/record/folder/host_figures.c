/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/cond.h"

#include <stddef.h>

/* A figure is the sum of the parts (enum host_part) from first to last. */
static const struct {
	enum cond_figure figure;
	uint8_t first, last;
} parts[] = {
	{ COND_HOST_TENSORS, HOST_TENSORS, HOST_TENSORS },
	{ COND_HOST_MALLOC, HOST_MALLOC, HOST_MALLOC },
	{ COND_HOST_PYTHON, HOST_PYTHON, HOST_PYTHON },
	{ COND_HOST_PINNED, HOST_PINNED, HOST_PINNED },
	{ COND_HOST_SHARED, HOST_SHARED_LOADER, HOST_SHARED },
	{ COND_HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN },
};
#define N_PARTS (sizeof(parts) / sizeof(*parts))

void host_figures__put_group(struct cond_values *v, uint64_t use, uint64_t limit)
{
	v->v[COND_HOST_CGROUP] = (struct cond_value){ .known = true,
						      .value = use,
						      .whole = limit == UINT64_MAX ? 0 : limit };
}

/* Sets the figures of live and of free memory. ram: bytes of the machine; 0: unknown. */
static void put_use(struct cond_values *v, const struct host_sheet *s, uint64_t ram)
{
	struct host_use use;

	host_sheet__use(s, &use);
	v->v[COND_HOST_LIVE] = (struct cond_value){ use.known, use.live, ram };
	v->v[COND_MALLOC_FREE] = (struct cond_value){ use.malloc_known, use.malloc_free,
						      use.malloc };
}

void host_figures__put(struct cond_values *v, const struct host_sheet *s, uint64_t ram,
		       const char *why)
{
	const struct host_figure *group = s ? &s->part[HOST_GROUP] : NULL;

	for (size_t i = 0; i < N_PARTS; i++) {
		struct cond_value sum = { .known = s, .whole = ram };

		for (uint8_t k = parts[i].first; s && k <= parts[i].last; k++) {
			sum.value += s->part[k].bytes;
			sum.known &= s->part[k].known;
		}
		v->v[parts[i].figure] = sum;
		v->why[parts[i].figure] = s ? "the tables that it comes from could not be read"
					    : why;
	}
	v->v[COND_HOST_LIVE] = v->v[COND_MALLOC_FREE] = (struct cond_value){ 0 };
	v->why[COND_HOST_LIVE] = v->why[COND_MALLOC_FREE] =
		s ? "malloc's lists of free memory could not be read" : why;
	if (s)
		put_use(v, s, ram);
	v->v[COND_HOST_CGROUP] = (struct cond_value){ 0 };
	v->why[COND_HOST_CGROUP] = s ? "the process has no memory control group" : why;
	if (s && group->known)
		host_figures__put_group(v, group->bytes,
					group->has_second ? group->second : UINT64_MAX);
}
