/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Runs all readers of Python objects on one interpreter. One tool saves what they read, a fuzzer
 * lets them read a damaged copy. For inclusion in one file.
 */
#include <stdlib.h>
#include <string.h>

#include "inspect/process/memcache.h"
#include "inspect/python.h"
#include "inspect/pyobj.h"
#include "inspect/python/pygc.h"
#include "inspect/python/pyinternal.h"
#include "inspect/python/pylocals.h"
#include "inspect/torch/nntree.h"
#include "inspect/torch.h"

enum root_kind {
	ROOT_STR,
	ROOT_TYPE,
	ROOT_CODE,
	ROOT_FUNC,
	ROOT_DICT,
	ROOT_OBJECT,
	ROOT_TREE,
	ROOT_KINDS
};

static const char *const root_names[ROOT_KINDS] = { "str",  "type",   "code", "func",
						    "dict", "object", "tree" };

#define SYMBOLS 4
static const char *const symbol_names[SYMBOLS] = { "PyCode_Type", "PyType_Type", "PyCell_Type",
						   "Py_Version" };

#define ROOTS_MAX 32

/* Head of a saved interpreter's file; its memory follows (image_memory.h). */
struct object_head {
	uint8_t minor, n_roots, pad[6];
	uint64_t runtime;
	uint64_t symbol[SYMBOLS];
	struct {
		uint64_t kind, addr;
	} root[ROOTS_MAX];
};

static void ended(const char *buf, size_t size)
{
	if (!memchr(buf, '\0', size))
		abort();
}

static int on_item(uint64_t key, uint64_t value, void *ctx)
{
	const struct python *py = ctx;
	char buf[64];

	if (!pyobj__str(py, key, buf, sizeof(buf)))
		ended(buf, sizeof(buf));
	return 0;
}

static void read_code(const struct python *py, uint64_t addr)
{
	struct pycode c;

	if (pyobj__code(py, addr, &c))
		return;
	ended(c.name, sizeof(c.name));
	ended(c.file, sizeof(c.file));
	for (int32_t at = -1; at < 200; at += 3)
		(void)pyline__find(py->minor, c.linetable, c.linetable_len, c.firstlineno, at);
	pycode__free(&c);
}

static void read_tree(const struct python *py, uint64_t addr)
{
	char name[NN_MAX_NAME + 1];
	struct nnmodules *n;
	struct nnmodule out;
	struct nntree *t;
	struct pymem m;
	size_t i;

	pymem__init(&m, py, true);
	if (!nntree__read(&m, addr, &t)) {
		for (i = 0; i < t->n && i < 64; i++) {
			ended(nntree__name(t, i, name), sizeof(name));
			if (strlen(nntree__class(t, i)) > NN_MAX_CLASS)
				abort();
		}
		if (!nntree__find(t, addr, nntree__type(t, 0), &i) || i)
			abort();
		nntree__free(t);
	}
	pymem__fini(&m);
	n = nnmodules__new(py);
	if (!n)
		return;
	if (!nnmodules__name(n, addr, addr, 0, &out) && strlen(out.name) > NN_MAX_NAME)
		abort();
	(void)nnmodules__model(n, addr);
	(void)nnmodules__recheck(n, NULL);
	nnmodules__free(n);
}

static void read_object(const struct python *py, enum root_kind kind, uint64_t addr)
{
	char buf[256];
	uint64_t v;

	if (!pyobj__type(py, addr, &v) && !pyobj__type_name(py, v, buf, sizeof(buf)))
		ended(buf, sizeof(buf));
	switch (kind) {
	case ROOT_STR:
		if (!pyobj__str(py, addr, buf, sizeof(buf)))
			ended(buf, sizeof(buf));
		break;
	case ROOT_TYPE:
		if (!pyobj__type_name(py, addr, buf, sizeof(buf)))
			ended(buf, sizeof(buf));
		(void)pyobj__is_a(py, addr, "Module", "torch.nn.modules.module");
		(void)pyobj__type_attr(py, addr, "_wrapped_call_impl", &v);
		break;
	case ROOT_CODE:
		read_code(py, addr);
		break;
	case ROOT_FUNC:
		if (!pyobj__func_code(py, addr, &v))
			read_code(py, v);
		break;
	case ROOT_DICT:
		(void)pyobj__dict_each(py, addr, on_item, (void *)py);
		(void)pyobj__dict_get(py, addr, "a", &v);
		break;
	case ROOT_OBJECT:
		(void)pyobj__attr(py, addr, "extra", &v);
		(void)pyobj__attr(py, addr, "_modules", &v);
		break;
	case ROOT_TREE:
		read_tree(py, addr);
		break;
	default:
		abort();
	}
}

static bool wanted(void *ctx, uint64_t obj)
{
	return obj != 0;
}

static void read_locals(const struct python *py)
{
	struct pylocal *v = NULL;
	char buf[256];
	struct pymem m;
	bool *holds;
	size_t n = 0;

	pymem__init(&m, py, true);
	if (!pylocals__read(&m, wanted, NULL, &v, &n)) {
		for (size_t i = 0; i < n && i < 32; i++) {
			if (!pylocal__text(&m, &v[i], buf, sizeof(buf)))
				ended(buf, sizeof(buf));
		}
		holds = calloc(n + 1, sizeof(*holds));
		if (holds)
			(void)pylocals__check(&m, v, n, holds);
		free(holds);
		free(v);
	}
	pymem__fini(&m);
}

/* Runs the readers that need the interpreter alone. */
static void read_interpreter(const struct python *py)
{
	struct pyframe frames[64];
	struct pythread *threads;
	struct pyslot slot;
	uint64_t v, codes[4];
	size_t n;

	(void)python__slot(py, &slot, NULL);
	if (!python__threads(py, &threads, &n)) {
		for (size_t i = 0; i < n && i < 4; i++) {
			int depth = python__stack(py, &threads[i], frames, 64);

			if (depth > 64)
				abort();
			for (int k = 0; k < depth; k++)
				read_code(py, frames[k].code);
		}
		free(threads);
	}
	(void)nnmodules__call_codes(py, codes, 4, &n);
	(void)nnmodules__slot_call(py, &v);
	(void)torch__scope_exit(py, &v);
}
