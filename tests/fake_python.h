/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Builds an interpreter in this process's memory: a mapped file that exports symbols, its data,
 * three threads and a stack. For inclusion in one test program, after cmocka.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "elf_image.h"
#include "inspect/proc.h"
#include "inspect/python.h"

/* Offsets in the world; its first page is the file's. */
#define RUNTIME 0x1000
#define CODE_TYPE 0x2000
#define TYPE_TYPE 0x2400
#define VERSION 0x2800
#define MEMBERS 0x3000
#define NAMES 0x3800
#define INTERP 0x4000
#define TSTATE(i) (0x8000 + 0x400 * (i))
#define CFRAME(i) (0x9c00 + 0x40 * (i))
#define PTHREAD(i) (0xa000 + 0x1000 * (i))
#define KEYS(i) (0xd000 + 0x400 * (i)) /* second-level key blocks of glibc, or musl's arrays */
#define FRAME(i) (0xe000 + 0x200 * (i))
#define OUTERMOST FRAME(NR_FRAMES)
#define CODE 0xf000
#define SIZE 0x10000
#define GUARD 0x1000 /* unmapped page after the world */

#define COPIES (CODE + 0x400) /* array of the bytecode's copies, in free-threaded builds */
#define COPY (CODE + 0x600)

#define NR_THREADS 3
#define NR_FRAMES 3
#define FINAL 0xf0

static const struct build {
	int minor;
	bool free_threaded;
} builds[] = {
	{ 8, false },  { 9, false },  { 10, false }, { 11, false }, { 12, false }, { 13, false },
	{ 14, false }, { 15, false }, { 13, true },  { 14, true },  { 15, true },
};
#define NR_BUILDS (sizeof(builds) / sizeof(builds[0]))

struct world {
	char path[64], path2[64];
	uint8_t *m;
	struct pylayout l;
	struct proc *proc;
	struct python *py;
	const char *why;
};

static uint64_t addr(const struct world *w, size_t at)
{
	return (uint64_t)(uintptr_t)w->m + at;
}

static void put(struct world *w, size_t at, uint64_t v)
{
	memcpy(w->m + at, &v, sizeof(v));
}

static void put32(struct world *w, size_t at, uint32_t v)
{
	memcpy(w->m + at, &v, sizeof(v));
}

static const struct symbol {
	const char *name;
	size_t at;
} symbols[] = {
	{ "_PyRuntime", RUNTIME },
	{ "PyCode_Type", CODE_TYPE },
	{ "PyType_Type", TYPE_TYPE },
	{ "Py_Version", VERSION },
};

/* Maps a file that exports n of the symbols; its code is one page at `to`. */
static void map_file(char *path, const char *name, uint8_t *to, const uint8_t *world, size_t first,
		     size_t n)
{
	struct image_func f[4] = { { 0 } };
	static const uint8_t nothing[1] = { 0xc3 };
	struct image im;
	int fd;

	for (size_t i = 0; i < n; i++)
		f[i] = (struct image_func){ symbols[first + i].name, nothing, 1 };
	image_build(&im, f, (uint32_t)n, IMAGE_SYSV_HASH);
	for (size_t i = 0; i < n; i++) {
		Elf64_Sym sym;
		uint8_t *p = im.bytes + im.symtab + (i + 1) * sizeof(sym);

		memcpy(&sym, p, sizeof(sym));
		sym.st_value = IMAGE_CODE_VADDR + symbols[first + i].at - (size_t)(to - world);
		memcpy(p, &sym, sizeof(sym));
	}
	snprintf(path, 64, "/tmp/memtrace-%d-%s", (int)getpid(), name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, im.bytes, sizeof(im.bytes)), sizeof(im.bytes));
	assert_ptr_equal(mmap(to, 0x1000, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
			      IMAGE_CODE_OFF),
			 to);
	close(fd);
}

static void describe(struct world *w, uint32_t hexversion)
{
	char path[64], name[32];
	unsigned pos, size;
	FILE *f;

	snprintf(path, sizeof(path), "tests/data/debugoffsets-3.%d.txt", w->l.minor);
	f = fopen(path, "r");
	assert_non_null(f);
	memcpy(w->m + RUNTIME, "xdebugpy", 8);
	put(w, RUNTIME + 8, hexversion);
	put(w, RUNTIME + 16, w->l.free_threaded);
	while (fscanf(f, "%31s %u %u", name, &pos, &size) == 3) {
#define V(field)                                                                                   \
	if (!strcmp(name, #field))                                                                 \
	put(w, RUNTIME + pos, w->l.field), put(w, RUNTIME + size, 0x3000)
		V(rt_interp_head);
		V(is_next);
		V(is_threads);
		V(is_modules);
		V(ts_next);
		V(ts_interp);
		V(ts_frame);
		V(ts_thread_id);
		V(ts_native_id);
		V(fr_prev);
		V(fr_code);
		V(fr_instr);
		V(fr_local0);
		V(fr_owner);
		V(co_filename);
		V(co_name);
		V(co_qualname);
		V(co_linetable);
		V(co_firstlineno);
		V(co_argcount);
		V(co_code_adaptive);
		V(ob_type);
		V(tp_name);
		V(tp_flags);
		V(tuple_item);
		V(ma_keys);
		V(ma_values);
		V(bytes_val);
		V(str_state);
		V(str_length);
		V(str_ascii_size);
#undef V
	}
	fclose(f);
}

static void put_member(struct world *w, size_t i, const char *name, uint64_t offset)
{
	memcpy(w->m + NAMES + 32 * i, name, strlen(name) + 1);
	put(w, MEMBERS + 40 * i, addr(w, NAMES + 32 * i));
	put(w, MEMBERS + 40 * i + 16, offset);
}

static void put_types(struct world *w)
{
	const struct pylayout *l = &w->l;
	size_t n = 0;

	put(w, CODE_TYPE + l->ob_type, addr(w, TYPE_TYPE));
	put(w, CODE_TYPE + l->tp_basicsize, l->minor >= 11 ? l->co_code_adaptive : 144);
	put(w, CODE_TYPE + l->tp_members, addr(w, MEMBERS));
	put_member(w, n++, "co_argcount", l->co_argcount);
	put_member(w, n++, "co_posonlyargcount", 3);
	put_member(w, n++, "co_flags", l->co_flags);
	put_member(w, n++, "co_firstlineno", l->co_firstlineno);
	put_member(w, n++, "co_filename", l->co_filename);
	put_member(w, n++, "co_name", l->co_name);
	put_member(w, n++, l->minor <= 9 ? "co_lnotab" : "co_linetable", l->co_linetable);
	if (l->minor >= 11)
		put_member(w, n++, "co_qualname", l->co_qualname);
}

/* Thread i: a glibc pthread and its thread state. The interpreter's list has the last thread
 * first. */
static void put_thread(struct world *w, size_t i)
{
	const struct pylayout *l = &w->l;

	put(w, PTHREAD(i), addr(w, PTHREAD(i)));
	put(w, PTHREAD(i) + 16, addr(w, PTHREAD(i)));
	put32(w, PTHREAD(i) + 720, 1000 + (uint32_t)i);
	put(w, PTHREAD(i) + 1296, addr(w, PTHREAD(i) + 784));
	put(w, TSTATE(i) + l->ts_next, i ? addr(w, TSTATE(i - 1)) : 0);
	put(w, TSTATE(i) + l->ts_interp, addr(w, INTERP));
	put(w, TSTATE(i) + l->ts_thread_id, addr(w, PTHREAD(i)));
	if (l->ts_native_id != PYLAYOUT_NONE)
		put(w, TSTATE(i) + l->ts_native_id, 1000 + i);
}

static uint64_t key_slot(size_t thread, size_t key)
{
	return PTHREAD(thread) + 784 + 16 * key + 8;
}

/* From 3.15 on: _Py_tss_gilstate, where the C library's keys are not used. */
#define LOCAL_AT (-40)

static size_t state_slot(const struct world *w, size_t thread)
{
	return w->l.rt_tss_key == PYLAYOUT_NONE ? PTHREAD(thread) + LOCAL_AT : key_slot(thread, 3);
}

/* Thread 0 runs frame 0, called by frame 1 (a shim in versions with shims), called by frame 2,
 * which is the first one or, in versions with shims, called by the shim OUTERMOST. */
static void put_frames(struct world *w)
{
	const struct pylayout *l = &w->l;
	uint64_t first = addr(w, FRAME(0));

	put(w, CODE + l->ob_type, addr(w, CODE_TYPE));
	if (l->fr_tlbc != PYLAYOUT_NONE) {
		put(w, CODE + l->co_tlbc, addr(w, COPIES));
		put(w, COPIES, 2);
		put(w, COPIES + 8, addr(w, CODE) + l->co_code_adaptive);
		put(w, COPIES + 16, addr(w, COPY));
		put32(w, FRAME(2) + l->fr_tlbc, 1);
	}
	if (l->cframe_current != PYLAYOUT_NONE) {
		put(w, CFRAME(0) + l->cframe_current, first);
		first = addr(w, CFRAME(0));
	}
	put(w, TSTATE(0) + l->ts_frame, first);
	if (l->shim_owner)
		w->m[OUTERMOST + l->fr_owner] = l->shim_owner;
	for (size_t i = 0; i < NR_FRAMES; i++) {
		if (l->fr_owner == PYLAYOUT_NONE)
			put(w, FRAME(i), 1); /* ob_refcnt */
		put(w, FRAME(i) + l->fr_code, addr(w, CODE) | (l->minor >= 14 && i));
		if (l->lasti_scale)
			put32(w, FRAME(i) + l->fr_instr, 10 * (uint32_t)i - 1);
		else
			put(w, FRAME(i) + l->fr_instr,
			    (i == 2 && l->fr_tlbc != PYLAYOUT_NONE
				     ? addr(w, COPY)
				     : addr(w, CODE) + l->co_code_adaptive) +
				    20 * i - 2);
		if (l->fr_owner != PYLAYOUT_NONE)
			w->m[FRAME(i) + l->fr_owner] = l->minor >= 12 && i == 1 ? 3 : 0;
		put(w, FRAME(i) + l->fr_prev,
		    i + 1 < NR_FRAMES ? addr(w, FRAME(i + 1))
		    : l->shim_owner   ? addr(w, OUTERMOST)
				      : 0);
		put(w, FRAME(i) + l->fr_local0, (0xabc0 + 16 * i) | (l->minor >= 14));
	}
}

/* A valid world; the thread state is under key 3, from 3.15 on at LOCAL_AT. */
static struct world make_build(int minor, bool free_threaded)
{
	struct world w = { .l = *pylayout__find(3, minor, free_threaded) };
	uint32_t hex = 0x03000000u | (uint32_t)minor << 16 | 7 << 8 | FINAL;
	char name[32];

	w.m = mmap(NULL, SIZE + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(w.m != MAP_FAILED);
	assert_int_equal(mprotect(w.m + SIZE, GUARD, PROT_NONE), 0);
	snprintf(name, sizeof(name), "libpython3.%d.so", minor);
	map_file(w.path, name, w.m, w.m, 0, minor >= 11 ? 4 : 3);
	if (minor >= 13)
		describe(&w, hex);
	put(&w, VERSION, hex);
	put(&w, RUNTIME + w.l.rt_interp_head, addr(&w, INTERP));
	put(&w, RUNTIME + w.l.rt_interp_main, addr(&w, INTERP));
	if (w.l.rt_tss_key != PYLAYOUT_NONE) {
		put32(&w, RUNTIME + w.l.rt_tss_key, 1);
		put32(&w, RUNTIME + w.l.rt_tss_key + 4, 3);
	}
	put(&w, INTERP + w.l.is_threads, addr(&w, TSTATE(NR_THREADS - 1)));
	put_types(&w);
	for (size_t i = 0; i < NR_THREADS; i++) {
		put_thread(&w, i);
		put(&w, state_slot(&w, i), addr(&w, TSTATE(i)));
	}
	put_frames(&w);
	return w;
}

static inline struct world make(int minor)
{
	return make_build(minor, false);
}

/* Opens the interpreter. 0 or the errno; w->why has the reason. */
static int look(struct world *w)
{
	struct maps maps;
	int err;

	python__free(w->py);
	proc__free(w->proc);
	w->proc = proc__open(getpid());
	assert_non_null(w->proc);
	assert_int_equal(proc__maps(w->proc, &maps), 0);
	w->why = "";
	w->py = python__open(w->proc, &maps, &w->why);
	err = w->py ? 0 : errno;
	maps__free(&maps);
	return err;
}

static void drop(struct world *w)
{
	python__free(w->py);
	proc__free(w->proc);
	munmap(w->m, SIZE + GUARD);
	unlink(w->path);
	if (w->path2[0])
		unlink(w->path2);
}
