/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Blocks that malloc's own sampler chose, added up by their stacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/hostmem/internal.h"
#include "inspect/native/native.h"

#define SAMPLES_MAX (1u << 17) /* 64 GiB live at one block in 512 KiB */

int host_samples__add(struct host_samples *s, uint64_t blocks, uint64_t bytes, const uint64_t *call,
		      size_t calls)
{
	struct host_sample *x;

	if (!calls || calls > HOST_SAMPLE_CALLS)
		return 0;
	if (s->n == SAMPLES_MAX)
		return -E2BIG;
	if (array__grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v)))
		return -ENOMEM;
	x = &s->v[s->n++];
	*x = (struct host_sample){ .calls = calls, .samples = blocks, .bytes = bytes };
	memcpy(x->call, call, calls * sizeof(*call));
	return 0;
}

static int by_stack(const void *a, const void *b)
{
	const struct host_sample *x = a, *y = b;

	if (x->calls != y->calls)
		return x->calls < y->calls ? -1 : 1;
	return memcmp(x->call, y->call, x->calls * sizeof(*x->call));
}

static int by_bytes(const void *a, const void *b)
{
	const struct host_sample *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return by_stack(a, b);
}

void host_samples__merge(struct host_samples *s)
{
	size_t n = 0;

	if (!s->n)
		return;
	qsort(s->v, s->n, sizeof(*s->v), by_stack);
	for (size_t i = 0; i < s->n; i++) {
		s->samples += s->v[i].samples;
		s->bytes += s->v[i].bytes;
		if (n && !by_stack(&s->v[n - 1], &s->v[i])) {
			s->v[n - 1].samples += s->v[i].samples;
			s->v[n - 1].bytes += s->v[i].bytes;
		} else {
			s->v[n++] = s->v[i];
		}
	}
	s->n = n;
	qsort(s->v, s->n, sizeof(*s->v), by_bytes);
}

static void free_frames(struct host_sample *x)
{
	for (size_t i = 0; i < x->frames; i++) {
		free(x->frame[i].function);
		free(x->frame[i].file);
		free(x->frame[i].module);
	}
	free(x->frame);
	x->frame = NULL;
	x->frames = 0;
}

void host_samples__free(struct host_samples *s)
{
	for (size_t i = 0; i < s->n; i++)
		free_frames(&s->v[i]);
	free(s->v);
	*s = (struct host_samples){ 0 };
}

/* ---- names ---- */

/* Whether a frame is malloc's own, which every stack begins with. */
static bool is_malloc(const struct native_frame *f)
{
	static const char *const begin[] = { "tc_",	     "je_",	 "tcmalloc::",
					     "operator new", "malloc",	 "calloc",
					     "realloc",	     "memalign", "posix_memalign" };

	const char *module = map__base_name(f->module);

	if (!strncmp(module, "libtcmalloc", 11) || !strncmp(module, "libjemalloc", 11))
		return true;
	for (size_t i = 0; i < sizeof(begin) / sizeof(*begin); i++)
		if (!strncmp(f->function, begin[i], strlen(begin[i])))
			return true;
	return false;
}

static int add_frame(struct host_sample *x, const struct native_frame *f)
{
	struct host_sample_frame *v = reallocarray(x->frame, x->frames + 1, sizeof(*x->frame));
	struct host_sample_frame *to;

	if (!v)
		return -ENOMEM;
	x->frame = v;
	to = &v[x->frames];
	*to = (struct host_sample_frame){ .function = strdup(f->function),
					  .file = strdup(f->file),
					  .module = strdup(f->module),
					  .line = f->line };
	x->frames++; /* also if a text is missing: free_frames() then frees the others */
	return to->function && to->file && to->module ? 0 : -ENOMEM;
}

/* Adds the frames of one return address: functions that were inlined there, then the function
 * itself. An address that cannot be resolved adds no frame. */
static int name_call(struct native *n, uint64_t call, struct host_sample *x)
{
	struct native_regs regs = { .ip = call - 1 }; /* within the call instruction */
	struct native_frames frames;
	int err = 0;

	if (native__unwind(n, &regs, "", 0, &frames))
		return 0;
	for (size_t i = 0; i < frames.n && !err; i++) {
		if (x->frames || !is_malloc(&frames.v[i]))
			err = add_frame(x, &frames.v[i]);
		if (!frames.v[i].inlined)
			break;
	}
	return err;
}

int host_samples__name(struct host_samples *s, const struct proc *p, size_t most)
{
	struct native *n;
	int err = 0;

	if (!s->n)
		return 0;
	n = native__new(p);
	if (!n)
		return -errno;
	for (size_t i = 0; i < s->n && i < most && !err; i++)
		for (size_t k = 0; k < s->v[i].calls && !err; k++)
			err = name_call(n, s->v[i].call[k], &s->v[i]);
	native__free(n);
	return err;
}
