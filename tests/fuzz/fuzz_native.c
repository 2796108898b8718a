/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: stacks of compiled code. The first byte chooses what the others are: an answer
 * of the helper, the name of a function, or a mapped file with a stack. libdw parses the file in
 * the helper, which may crash or take too long: then the stack has no frames.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inspect/native/go_table.h"
#include "inspect/native/wire.h"
#include "inspect/native/native.h"
#include "inspect/proc.h"

#define MODULES 3
#define BASE 0x7f0000000000ULL /* where the file is mapped */
#define STACK_AT 0x7ffc00000000ULL

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the process ---- */

static const uint8_t *file;
static size_t file_size;

int __wrap_proc__maps(const struct proc *p, struct maps *ret);
int __wrap_proc__pages(const struct proc *p, uint64_t *ret);
int __wrap_proc__open_map(const struct proc *p, const struct map *m);
int __wrap_proc__pin_map(const struct proc *p, const struct map *m);
int __wrap_proc__open_file(const struct proc *p, const char *path);

int __wrap_proc__maps(const struct proc *p, struct maps *ret)
{
	static const char text[] = "7f0000000000-7f0000001000 r--p 00000000 00:01 7 /lib/any.so\n"
				   "7f0000001000-7f0000100000 r-xp 00001000 00:01 7 /lib/any.so\n";

	return maps__parse(text, strlen(text), ret);
}

int __wrap_proc__pages(const struct proc *p, uint64_t *ret)
{
	*ret = 1;
	return 0;
}

static int open_bytes(void)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, file, file_size) != (ssize_t)file_size)
		abort();
	return fd;
}

int __wrap_proc__open_map(const struct proc *p, const struct map *m)
{
	return open_bytes();
}

int __wrap_proc__pin_map(const struct proc *p, const struct map *m)
{
	(void)p, (void)m;
	return -ENOENT;
}

/* The file with debug information is the same. */
int __wrap_proc__open_file(const struct proc *p, const char *path)
{
	if (*path != '/' || strlen(path) > 4095 || strstr(path, "/../"))
		abort();
	return open_bytes();
}

/* ---- what must hold ---- */

static void check_text(const char *s, size_t max)
{
	if (strlen(s) > max)
		abort();
}

static void check_frames(const struct native_frames *f)
{
	if (f->n > NATIVE_FRAMES_MAX)
		abort();
	for (size_t i = 0; i < f->n; i++) {
		check_text(f->v[i].module, 4096);
		check_text(f->v[i].build_id, WIRE_TEXT_MAX);
		check_text(f->v[i].function, WIRE_TEXT_MAX);
		check_text(f->v[i].file, WIRE_TEXT_MAX);
	}
}

static const char *path_of(const void *ctx, uint32_t module)
{
	if (module >= MODULES)
		abort();
	return ctx;
}

static void read_answer(const uint8_t *data, size_t size)
{
	static const struct answer_modules modules = { path_of, "any.so", MODULES };
	static struct native_frames frames;
	struct wire_frames *answer;

	if (size > sizeof(*answer))
		return;
	/* exactly as long as the answer, to find reads after its end */
	answer = malloc(size + !size);
	if (!answer)
		abort();
	if (size)
		memcpy(answer, data, size);
	if (wire__read_answer(answer, size, &modules, &frames))
		check_frames(&frames);
	free(answer);
}

static void read_name(const uint8_t *data, size_t size)
{
	char *symbol = strndup((const char *)data, size), small[16], large[1024];

	if (!symbol)
		abort();
	check_text(helper__demangle(symbol, small, sizeof(small)), sizeof(small) - 1);
	check_text(helper__demangle(symbol, large, sizeof(large)), sizeof(large) - 1);
	free(symbol);
}

/* A table of Go, and addresses around its code. */
static void read_go(const uint8_t *data, size_t size)
{
	struct go_place place;
	struct go_table t;
	uint8_t *copy = malloc(size + !size);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	if (go_table__read(copy, size, BASE, &t)) {
		for (uint64_t at = 0; at < 4096; at += 7)
			if (go_table__find(&t, t.text - 64 + at, &place)) {
				check_text(place.function, size);
				check_text(place.file ? place.file : "", size);
			}
	}
	free(copy);
}

static void read_stack(const uint8_t *data, size_t size)
{
	static struct native_frames frames;
	struct native_regs r = { .sp = STACK_AT, .fp = STACK_AT + 16 };
	uint16_t at, stack;
	struct native *n;
	int err;

	if (size < 4)
		return;
	memcpy(&at, data, sizeof(at));
	memcpy(&stack, data + 2, sizeof(stack));
	file = data + 4;
	file_size = size - 4;
	if (stack > file_size)
		return;
	r.ip = BASE + at;
	n = native__new(NULL);
	if (!n)
		abort();
	/* the stack is the end of the file */
	err = native__unwind(n, &r, file + file_size - stack, stack, &frames);
	if (err && err != -EPROTO && err != -ETIMEDOUT)
		abort();
	if (!err)
		check_frames(&frames);
	native__free(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] % 16 == 0)
		read_stack(data + 1, size - 1);
	else if (data[0] % 16 == 2)
		read_go(data + 1, size - 1);
	else if (data[0] % 2)
		read_answer(data + 1, size - 1);
	else
		read_name(data + 1, size - 1);
	return 0;
}
