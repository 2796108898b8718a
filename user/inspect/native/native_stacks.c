/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native_stacks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map64.h"
#include "inspect/native/native.h"
#include "inspect/proc.h"
#include "record/dict.h"
#include "record/stream.h"

#define KEPT_MAX 256   /* threads whose stack waits for its event */
#define BUILDS_MAX 512 /* files whose build ID becomes a fact */

struct native_stacks {
	struct native *native;
	struct dict *dict;
	struct facts *facts;
	struct map64 *kept;   /* tid -> struct mt_rec_native */
	struct map64 *builds; /* hash of a build ID -> 1 */
	uint64_t forgotten;
};

struct native_stacks *native_stacks__new(const struct proc *p, struct dict *d, struct facts *f)
{
	struct native_stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->dict = d;
	s->facts = f;
	s->kept = map64__new();
	s->builds = map64__new();
	s->native = s->kept && s->builds ? native__new(p) : NULL;
	if (s->native)
		return s;
	native_stacks__free(s);
	errno = errno ?: ENOMEM;
	return NULL;
}

static void forget_all(struct native_stacks *s)
{
	uint64_t tid, kept;
	size_t pos = 0;

	while (map64__next(s->kept, &pos, &tid, &kept))
		free((void *)(uintptr_t)kept);
	map64__clear(s->kept);
}

void native_stacks__free(struct native_stacks *s)
{
	if (!s)
		return;
	if (s->kept)
		forget_all(s);
	map64__free(s->kept);
	map64__free(s->builds);
	native__free(s->native);
	free(s);
}

void native_stacks__refresh(struct native_stacks *s)
{
	native__refresh(s->native);
}

int native_stacks__record(struct native_stacks *s, const struct mt_rec_native *r, size_t len)
{
	struct mt_rec_native *copy;
	uint64_t old;
	bool had;

	if (r->size > MT_NATIVE_STACK || len < sizeof(*r) + r->size)
		return -EBADMSG;
	if (map64__count(s->kept) >= KEPT_MAX) {
		s->forgotten += map64__count(s->kept);
		forget_all(s);
	}
	copy = malloc(sizeof(*r) + r->size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, r, sizeof(*r) + r->size);
	if (map64__swap(s->kept, r->h.tid, (uintptr_t)copy, &had, &old)) {
		free(copy);
		return -ENOMEM;
	}
	if (had)
		free((void *)(uintptr_t)old);
	return 0;
}

/* The copied stack of an event, for the caller to free. NULL: not found. */
static struct mt_rec_native *take(struct native_stacks *s, uint32_t tid, uint64_t time)
{
	struct mt_rec_native *r;
	uint64_t kept;

	if (!map64__del(s->kept, tid, &kept))
		return NULL;
	r = (struct mt_rec_native *)(uintptr_t)kept;
	if (r->h.time == time)
		return r;
	free(r);
	return NULL;
}

void native_stacks__drop(struct native_stacks *s, uint32_t tid)
{
	free(take(s, tid, 0));
}

/* A number that the dictionary returned. 0: it is full; UINT32_MAX: out of memory. */
static uint32_t number(uint32_t n)
{
	return n == UINT32_MAX && errno == ENOSPC ? 0 : n;
}

static uint32_t string(struct native_stacks *s, const char *text)
{
	return *text ? number(dict__string(s->dict, text, strlen(text))) : 0;
}

/* Sets the fact that names the build of a file, so that its frames can be named elsewhere. */
static int note_build(struct native_stacks *s, const struct native_frame *f)
{
	uint64_t build = hash__bytes(hash__seed(), f->build_id, strlen(f->build_id)), v;
	char key[64];

	if (!*f->build_id || map64__get(s->builds, build, &v) ||
	    map64__count(s->builds) >= BUILDS_MAX)
		return 0;
	snprintf(key, sizeof(key), "native.build.%zu", map64__count(s->builds) + 1);
	if (facts__setf(s->facts, key, "%s %s", f->build_id, f->module) == -ENOMEM)
		return -ENOMEM;
	return map64__set(s->builds, build, 1);
}

/* Writes a frame's source file. A relative path gets the name of the library before it:
 * "libc.so.6/malloc/malloc.c". */
static void file_of(const struct native_frame *f, char *buf, size_t size)
{
	const char *file = f->file;

	while (!strncmp(file, "./", 2) || !strncmp(file, "../", 3))
		file = strchr(file, '/') + 1;
	if (*file == '/')
		snprintf(buf, size, "%s", file);
	else
		snprintf(buf, size, "%s%s%s", map__base_name(f->module), *file ? "/" : "", file);
}

/* The dictionary's location of a frame. 0: the dictionary is full; UINT32_MAX: out of memory. */
static uint32_t location(struct native_stacks *s, const struct native_frame *f)
{
	struct dict_loc loc = { .line = f->line & INT32_MAX };
	char function[1200], file[DICT_MAX_STRING];

	if (*f->function && (f->line || f->inlined))
		snprintf(function, sizeof(function), "%s", f->function);
	else
		snprintf(function, sizeof(function), "%s+0x%" PRIx64, f->function,
			 *f->function ? f->offset : f->at);
	if (note_build(s, f))
		return UINT32_MAX;
	file_of(f, file, sizeof(file));
	loc.file = string(s, file);
	loc.func = string(s, function);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX)
		return UINT32_MAX;
	return number(dict__native_loc(s->dict, loc));
}

/* How many frames are outside of the interpreter, from the innermost on. */
static size_t outside_python(const struct native_frames *f)
{
	const char *interpreter = NULL;
	size_t i;

	for (i = 0; i < f->n && !interpreter; i++)
		if (!strcmp(f->v[i].function, "_PyEval_EvalFrameDefault"))
			interpreter = f->v[i].module;
	for (i = 0; i < f->n && interpreter; i++)
		if (!strcmp(f->v[i].module, interpreter))
			return i;
	return f->n;
}

/* Code of PyTorch's allocator, which is the same in each stack of its allocations. */
static bool is_of_allocator(const struct native_frame *f)
{
	return !strncmp(map__base_name(f->module), "libc10", strlen("libc10"));
}

/* PyTorch's glue between an operator and its kernel. It has names of a thousand characters. */
static bool is_dispatch(const struct native_frame *f)
{
	static const char glue[] = "c10::impl::wrap_kernel_functor_";

	return !strncmp(f->function, glue, sizeof(glue) - 1);
}

static int join(struct native_stacks *s, const struct native_frames *f, uint32_t *stack,
		uint8_t *walk)
{
	struct dict_stack python = dict__get_stack(s->dict, *stack);
	struct dict_frame out[NATIVE_FRAMES_MAX + MT_MAX_ENTRIES];
	size_t end = python.n ? outside_python(f) : f->n, i = 0, n = 0;

	/* The event has the called function. */
	while (i < end && f->v[i].at == f->v[0].at && !strcmp(f->v[i].module, f->v[0].module))
		i++;
	while (i < end && is_of_allocator(&f->v[i]))
		i++;
	if (i == end)
		return 0;
	for (; i < end; i++) {
		if (is_dispatch(&f->v[i]))
			continue;
		out[n].module = 0;
		out[n].loc = location(s, &f->v[i]);
		if (out[n++].loc == UINT32_MAX)
			return -ENOMEM;
	}
	for (i = 0; i < python.n && i < MT_MAX_ENTRIES; i++)
		out[n++] = python.frames[i];
	if (!python.n)
		*walk = f->whole ? MT_WALK_OK : MT_WALK_TRUNCATED;
	*stack = number(dict__stack(s->dict, out, (uint32_t)n, *walk));
	return *stack == UINT32_MAX ? -ENOMEM : 0;
}

int native_stacks__join(struct native_stacks *s, uint32_t tid, uint64_t time, uint32_t *stack,
			uint8_t *walk)
{
	struct mt_rec_native *r = take(s, tid, time);
	struct native_frames frames;
	struct native_regs regs;
	int err;

	if (!r)
		return 0;
	regs = (struct native_regs){ r->ip, r->sp, r->fp, r->lr };
	err = native__unwind(s->native, &regs, r + 1, r->size, &frames);
	free(r);
	return err ?: join(s, &frames, stack, walk);
}

static void set_counter(const struct native_stacks *s, const char *what, uint64_t n)
{
	char key[64];

	snprintf(key, sizeof(key), "counter.native.%s", what);
	if (n)
		facts__setf(s->facts, key, "%" PRIu64, n);
}

void native_stacks__set_facts(const struct native_stacks *s, const uint64_t c[MT_CNT_NR])
{
	struct native_stats stats = native__stats(s->native);

	set_counter(s, "stacks", stats.stacks);
	set_counter(s, "failed", stats.failed);
	set_counter(s, "helpers_killed", stats.killed);
	set_counter(s, "forgotten", s->forgotten);
	set_counter(s, "not_copied", c[MT_CNT_NATIVE_OVER]);
}
