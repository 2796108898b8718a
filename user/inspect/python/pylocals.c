/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* PyCodeObject has a tuple of all variable names. From 3.11 on it is right before the bytes of
 * variable kinds and co_filename. To 3.10 the tuples of free and cell variables are in between. */
#include "inspect/python/pylocals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python/pydict.h"
#include "inspect/python/pystr.h"
#include "record/files.h"

#define MAX_FRAMES 512
#define MAX_VARIABLES 1024u
#define MAX_LOCALS (1u << 16)
#define MAX_THREADS 4096u
#define KIND_LOCAL 0x20	 /* CO_FAST_LOCAL */
#define KIND_FREE 0x80	 /* CO_FAST_FREE */
#define KIND_SHARED 0xc0 /* CO_FAST_CELL, CO_FAST_FREE: with inner or outer functions */

struct locals {
	struct pylocal *v;
	size_t n, cap;
};

static bool is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM || err == -ENOMEM;
}

/* Finds the tuple of variable names and reads their number and kinds (KIND_*). */
static int read_names(struct pymem *mem, uint64_t code, uint64_t *tuple, uint64_t *n,
		      uint8_t *kinds)
{
	unsigned at = mem->layout->co_filename - (mem->layout->minor >= 11 ? 16u : 32u);
	uint64_t bytes, len;
	int err;

	err = pydict__sequence(mem, code + at, PYTYPE_TUPLE, tuple, n);
	if (err)
		return err;
	if (*n > MAX_VARIABLES)
		return -E2BIG;
	memset(kinds, KIND_LOCAL, *n);
	if (mem->layout->minor < 11)
		return 0;
	err = pydict__sequence(mem, code + at + 8, PYTYPE_BYTES, &bytes, &len);
	if (err)
		return err;
	if (len != *n)
		return -EBADMSG;
	return pymem__read(mem, bytes + mem->layout->bytes_val, kinds, *n);
}

/* Reads the i-th text of a tuple of names. */
static int read_name(struct pymem *mem, uint64_t tuple, uint64_t i, char *buf, size_t size)
{
	uint64_t str;
	int err = pymem__u64(mem, tuple + mem->layout->tuple_item + 8 * i, &str)
			  ?: pystr__read(mem, str, buf, size, /*cut=*/NULL);

	return err < 0 ? err : 0; /* pystr__read() returns a length */
}

/* Appends a variable; drops it above MAX_LOCALS. */
static int add_local(struct locals *locals, const struct pylocal *x)
{
	int err;

	if (locals->n >= MAX_LOCALS)
		return 0;
	err = array__grow(&locals->v, &locals->cap, locals->n + 1, sizeof(*locals->v));
	if (!err)
		locals->v[locals->n++] = *x;
	return err;
}

/* Adds a frame's variables that wanted() accepts, except those of the kinds `excluded`. Unreadable
 * ones are left out: only fatal errors are returned. */
static int read_frame(struct pymem *mem, const struct pythread *thread, const struct pyframe *frame,
		      uint8_t excluded, struct locals *locals,
		      bool (*wanted)(void *ctx, uint64_t obj), void *ctx)
{
	uint64_t slots[MAX_VARIABLES], tuple, n, obj;
	uint8_t kinds[MAX_VARIABLES];
	int err;

	err = read_names(mem, frame->code, &tuple, &n, kinds);
	if (!err && n)
		err = proc__read(mem->proc, frame->addr + mem->layout->fr_local0, slots,
				 n * sizeof(slots[0]));
	for (uint64_t i = 0; !err && i < n; i++) {
		obj = slots[i] & mem->layout->tag_mask;
		if (!obj || !(kinds[i] & (KIND_LOCAL | KIND_SHARED)) || (kinds[i] & excluded) ||
		    !wanted(ctx, obj))
			continue;
		err = add_local(locals, &(struct pylocal){
						.obj = obj,
						.slot = frame->addr + mem->layout->fr_local0 +
							i * sizeof(slots[0]),
						.frame = frame->addr,
						.code = frame->code,
						.thread = *thread,
						.number = (uint32_t)i,
					});
	}
	return is_fatal(err) ? err : 0;
}

int pylocals__read(struct pymem *mem, bool (*wanted)(void *ctx, uint64_t obj), void *ctx,
		   struct pylocal **ret, size_t *n)
{
	struct pyframe *frames = calloc(MAX_FRAMES, sizeof(*frames));
	struct locals locals = { 0 };
	struct pythread *threads = NULL;
	size_t n_threads = 0;
	int err = frames ? python__threads(mem->py, &threads, &n_threads) : -ENOMEM;

	if (err && !is_fatal(err))
		n_threads = err = 0;
	for (size_t i = 0; !err && i < n_threads && i < MAX_THREADS; i++) {
		int depth = python__stack(mem->py, &threads[i], frames, MAX_FRAMES);

		err = is_fatal(depth) ? depth : 0;
		while (!err && depth-- > 0)
			err = read_frame(mem, &threads[i], &frames[depth], KIND_SHARED, &locals,
					 wanted, ctx);
	}
	free(frames);
	free(threads);
	if (err) {
		free(locals.v);
		return err;
	}
	*ret = locals.v;
	*n = locals.n;
	return 0;
}

int pylocals__of_frame(struct pymem *mem, uint64_t frame, uint64_t code,
		       bool (*wanted)(void *ctx, uint64_t obj), void *ctx, struct pylocal **ret,
		       size_t *n)
{
	struct pyframe f = { .addr = frame, .code = code };
	struct locals locals = { 0 };
	int err = read_frame(mem, &(struct pythread){ 0 }, &f, 0, &locals, wanted, ctx);

	if (err)
		free(locals.v);
	*ret = err ? NULL : locals.v;
	*n = err ? 0 : locals.n;
	return err;
}

/* True if the variable's call is among a thread's current frames: a call that ended leaves its
 * variables in memory. */
static bool is_running(const struct pyframe *frames, int depth, const struct pylocal *x)
{
	for (int i = 0; i < depth; i++)
		if (frames[i].addr == x->frame)
			return frames[i].code == x->code;
	return false;
}

/* Variables of one thread follow one another in local, so its frames are walked once for all of
 * them. */
int pylocals__check(struct pymem *mem, const struct pylocal *local, size_t n, bool *holds)
{
	struct pyframe *frames = calloc(MAX_FRAMES, sizeof(*frames));
	uint64_t word;
	int depth = 0, err = frames ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < n; i++) {
		if (!i || local[i].thread.tstate != local[i - 1].thread.tstate)
			depth = python__stack(mem->py, &local[i].thread, frames, MAX_FRAMES);
		err = is_fatal(depth) ? depth : 0;
		holds[i] = !err && is_running(frames, depth, &local[i]);
		if (!holds[i])
			continue;
		err = proc__read_u64(mem->proc, local[i].slot, &word);
		holds[i] = !err && (word & mem->layout->tag_mask) == local[i].obj;
		err = is_fatal(err) ? err : 0;
	}
	free(frames);
	return err;
}

/* Writes "train.py:31"; "cell 7, line 2" in IPython's shell, and in a notebook whose kernel knows
 * the cell. */
static void write_place(struct pymem *mem, const struct pycode *code, char *buf, size_t size)
{
	const char *file = strrchr(code->file, '/');
	const char *typed = NULL;
	uint64_t cell;
	size_t len = 0;

	if (*code->file == '<')
		typed = files__cell(code->file, &len);
	if (typed)
		snprintf(buf, size, "cell %.*s, line %u", (int)len, typed, code->firstlineno);
	else if (strstr(code->file, "/ipykernel_") && !pynames__cell(mem->py, code->file, &cell))
		snprintf(buf, size, "cell %" PRIu64 ", line %u", cell, code->firstlineno);
	else
		snprintf(buf, size, "%s:%u", file ? file + 1 : code->file, code->firstlineno);
}

int pylocals__name(const struct python *py, uint64_t code, uint32_t number, char *buf, size_t size)
{
	uint8_t kinds[MAX_VARIABLES];
	uint64_t tuple, n;
	struct pymem mem;
	int err;

	pymem__init(&mem, py, false);
	err = read_names(&mem, code, &tuple, &n, kinds);
	if (!err)
		err = number < n ? read_name(&mem, tuple, number, buf, size) : -EBADMSG;
	pymem__fini(&mem);
	return err;
}

int pylocal__text(struct pymem *mem, const struct pylocal *local, char *buf, size_t size)
{
	uint64_t tuple, n;
	uint8_t kinds[MAX_VARIABLES];
	struct pycode code;
	char name[256], place[sizeof(code.file) + 16];
	int err;

	err = read_names(mem, local->code, &tuple, &n, kinds);
	if (err)
		return err;
	if (local->number >= n)
		return -EBADMSG;
	err = read_name(mem, tuple, local->number, name, sizeof(name))
		      ?: pyobj__code(mem->py, local->code, &code);
	if (err)
		return err;
	write_place(mem, &code, place, sizeof(place));
	snprintf(buf, size, "%s in %s (%s)", name, code.name, place);
	pycode__free(&code);
	/* The argument of "<listcomp>" and names made by tools are no variables of the program. */
	return name[0] == '.' || !name[0] ? -EBADMSG : 0;
}

/* Sets *at to the index of the i-th free variable in *tuple: the tuple of names, to 3.10 the
 * separate tuple of free variables. */
static int find_free(struct pymem *mem, uint64_t code, uint64_t i, uint64_t *tuple, uint64_t *at)
{
	uint8_t kinds[MAX_VARIABLES];
	uint64_t n;
	int err;

	if (mem->layout->minor < 11) {
		*at = i;
		err = pydict__sequence(mem, code + mem->layout->co_filename - 24, PYTYPE_TUPLE,
				       tuple, &n);
		if (err)
			return err;
		return i < n ? 0 : -ENOENT;
	}
	err = read_names(mem, code, tuple, &n, kinds);
	for (*at = 0; !err && *at < n; ++*at)
		if ((kinds[*at] & KIND_FREE) && !i--)
			return 0;
	return err ?: -ENOENT;
}

int pylocals__free_name(struct pymem *mem, uint64_t code, uint64_t i, char *buf, size_t size)
{
	uint64_t tuple, at;

	return find_free(mem, code, i, &tuple, &at) ?: read_name(mem, tuple, at, buf, size);
}
