/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Blocks that malloc's own sampler chose, added up by their stacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/native/native.h"

#define SAMPLES_MAX (1u << 17) /* 64 GiB live at one block in 512 KiB */

int host_samples__add(struct host_samples *samples, uint64_t blocks, uint64_t bytes,
		      const uint64_t *call, size_t calls)
{
	struct host_sample *sample;

	if (!calls || calls > HOST_SAMPLE_CALLS)
		return 0;
	if (samples->n == SAMPLES_MAX)
		return -E2BIG;
	if (array__grow(&samples->v, &samples->cap, samples->n + 1, sizeof(*samples->v)))
		return -ENOMEM;
	sample = &samples->v[samples->n++];
	*sample = (struct host_sample){ .calls = calls, .samples = blocks, .bytes = bytes };
	memcpy(sample->call, call, calls * sizeof(*call));
	return 0;
}

static int by_stack(const void *a, const void *b)
{
	const struct host_sample *sample = a, *y = b;

	if (sample->calls != y->calls)
		return sample->calls < y->calls ? -1 : 1;
	return memcmp(sample->call, y->call, sample->calls * sizeof(*sample->call));
}

static int by_bytes(const void *a, const void *b)
{
	const struct host_sample *sample = a, *y = b;

	if (sample->bytes != y->bytes)
		return sample->bytes > y->bytes ? -1 : 1;
	return by_stack(a, b);
}

void host_samples__merge(struct host_samples *samples)
{
	size_t n = 0;

	if (!samples->n)
		return;
	qsort(samples->v, samples->n, sizeof(*samples->v), by_stack);
	for (size_t i = 0; i < samples->n; i++) {
		samples->samples += samples->v[i].samples;
		samples->bytes += samples->v[i].bytes;
		if (n && !by_stack(&samples->v[n - 1], &samples->v[i])) {
			samples->v[n - 1].samples += samples->v[i].samples;
			samples->v[n - 1].bytes += samples->v[i].bytes;
		} else {
			samples->v[n++] = samples->v[i];
		}
	}
	samples->n = n;
	qsort(samples->v, samples->n, sizeof(*samples->v), by_bytes);
}

static void free_frames(struct host_sample *sample)
{
	for (size_t i = 0; i < sample->frames; i++) {
		free(sample->frame[i].function);
		free(sample->frame[i].file);
		free(sample->frame[i].module);
	}
	free(sample->frame);
	sample->frame = NULL;
	sample->frames = 0;
}

void host_samples__free(struct host_samples *samples)
{
	for (size_t i = 0; i < samples->n; i++)
		free_frames(&samples->v[i]);
	free(samples->v);
	*samples = (struct host_samples){ 0 };
}

/* ---- names ---- */

/* True if a frame is malloc's own, which every stack begins with. */
static bool is_malloc(const struct native_frame *frame)
{
	static const char *const begin[] = { "tc_",	     "je_",	 "tcmalloc::",
					     "operator new", "malloc",	 "calloc",
					     "realloc",	     "memalign", "posix_memalign" };

	const char *module = map__base_name(frame->module);

	if (text__starts(module, "libtcmalloc") || text__starts(module, "libjemalloc"))
		return true;
	for (size_t i = 0; i < sizeof(begin) / sizeof(*begin); i++)
		if (!strncmp(frame->function, begin[i], strlen(begin[i])))
			return true;
	return false;
}

/* Appends a copy of the frame. 0 or -ENOMEM. */
static int add_frame(struct host_sample *sample, const struct native_frame *frame)
{
	struct host_sample_frame *v = reallocarray(sample->frame, sample->frames + 1,
						   sizeof(*sample->frame));
	struct host_sample_frame *to;

	if (!v)
		return -ENOMEM;
	sample->frame = v;
	to = &v[sample->frames];
	*to = (struct host_sample_frame){ .function = strdup(frame->function),
					  .file = strdup(frame->file),
					  .module = strdup(frame->module),
					  .line = frame->line };
	sample->frames++; /* also if a text is missing: free_frames() then frees the others */
	return to->function && to->file && to->module ? 0 : -ENOMEM;
}

/* Adds the frames of one return address: functions that were inlined there, then the function
 * itself. An address that cannot be resolved adds no frame. */
static int name_call(struct native *native, uint64_t call, struct host_sample *sample)
{
	struct native_regs regs = { .ip = call - 1 }; /* within the call instruction */
	struct native_frames frames;
	int err = 0;

	if (native__unwind(native, &regs, "", 0, &frames))
		return 0;
	for (size_t i = 0; i < frames.n && !err; i++) {
		if (sample->frames || !is_malloc(&frames.v[i]))
			err = add_frame(sample, &frames.v[i]);
		if (!frames.v[i].inlined)
			break;
	}
	return err;
}

int host_samples__name(struct host_samples *samples, const struct proc *proc, size_t most)
{
	struct native *native;
	int err = 0;

	if (!samples->n)
		return 0;
	native = native__new(proc);
	if (!native)
		return -errno;
	for (size_t i = 0; i < samples->n && i < most && !err; i++)
		for (size_t k = 0; k < samples->v[i].calls && !err; k++)
			err = name_call(native, samples->v[i].call[k], &samples->v[i]);
	native__free(native);
	return err;
}
