/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Data for the probes on module calls: module types, the code object of a call, and the function to
 * probe. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "inspect/nnmodule.h"
#include "inspect/pymem.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/pytype.h"

#define TORCH_MODULE "torch.nn.modules.module"
#define LOOKS 5
#define LOOK_PAUSE 2000000 /* ns */
/* What Module._call_impl calls first: the one, or the other by 2.15. */
#define TRACING_STATE "_get_tracing_state"
#define IS_TRACING "_is_tracing"

/* PyCFunctionObject.m_self (Include/cpython/methodobject.h), all versions, from the object's type
 * on. pybind11 puts the address of a function_record into a PyCapsule there, from version 3 on into
 * an object of its own; both have it right behind the type. */
#define M_SELF 16
#define RECORD 8
/* pybind11::detail::function_record: name first; impl, in pybind11 2.2 to 3.0 */
#define RECORD_IMPL 48

int nnmodules__is_type(struct pymem *m, uint64_t type)
{
	return pytype__is_a(m, type, "Module", TORCH_MODULE);
}

static int module_type(const struct python *py, uint64_t *type)
{
	uint64_t module;
	int err;

	err = pyobj__module(py, TORCH_MODULE, &module);
	if (!err)
		err = pyobj__module_attr(py, module, "Module", type);
	if (!err && !pyobj__is_a(py, *type, "Module", TORCH_MODULE))
		err = -EBADMSG;
	return err;
}

/* Code object of a method that keeps self in local 0, so not in a closure cell. -ENOENT: no such
 * method. */
static int method_code(const struct python *py, uint64_t type, const char *name, uint64_t *code)
{
	const struct pylayout *l = python__layout(py);
	uint64_t func, c;
	struct pymem m;
	uint32_t argc;
	int err;

	err = pyobj__type_attr(py, type, name, &func);
	if (!err)
		err = pyobj__func_code(py, func, &c);
	if (err)
		return err;
	pymem__init(&m, py, false);
	err = pymem__read(&m, c + l->co_argcount, &argc, sizeof(argc));
	if (err)
		return err;
	if (!argc)
		return -ENOENT;
	*code = c;
	return 0;
}

/*
 * The code of a call's outermost frame. In PyTorch 1 it is _call_impl's, which is __call__, too.
 * While the program changes the class, a look can miss the other method, so it is repeated.
 */
static int outermost_code(const struct python *py, uint64_t type, uint64_t *code)
{
	static const struct timespec pause = { .tv_nsec = LOOK_PAUSE };
	uint64_t called;
	int err;

	for (int i = 0;; i++) {
		err = method_code(py, type, "_wrapped_call_impl", code);
		if (err != -ENOENT)
			return err;
		err = method_code(py, type, "_call_impl", code);
		if (err || i == LOOKS ||
		    (!method_code(py, type, "__call__", &called) && called == *code))
			return err;
		nanosleep(&pause, NULL);
	}
}

int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n)
{
	uint64_t type, code;
	int err;

	if (!max)
		return -EINVAL;
	err = module_type(py, &type);
	if (!err)
		err = outermost_code(py, type, &code);
	if (err)
		return err;
	codes[0] = code;
	*n = 1;
	return 0;
}

int nnmodules__slot_call(const struct python *py, uint64_t *addr)
{
	const struct pylayout *l = python__layout(py);
	uint64_t type, call;
	struct pymem m;
	int err;

	err = module_type(py, &type);
	if (err)
		return err;
	pymem__init(&m, py, false);
	err = pymem__u64(&m, type + l->tp_call, &call);
	if (err)
		return err;
	if (!call)
		return -ENOENT;
	*addr = call;
	return 0;
}

#define CODE_WORDS 16 /* words of a code object that are searched for its tuple of names */
#define NAMES 64

static bool has_name(const struct python *py, struct pymem *m, uint64_t tuple, const char *name)
{
	const struct pylayout *l = python__layout(py);
	uint64_t n, item;
	char text[64];

	if (pymem__u64(m, tuple + l->tuple_item - 8, &n))
		return false;
	for (uint64_t i = 0; i < n && i < NAMES; i++) {
		if (pymem__u64(m, tuple + l->tuple_item + 8 * i, &item) ||
		    pyobj__str(py, item, text, sizeof(text)) < 0)
			continue;
		if (!strcmp(text, name))
			return true;
	}
	return false;
}

/* Whether a code object uses a name. */
static bool uses(const struct python *py, struct pymem *m, uint64_t code, const char *name)
{
	uint64_t words[CODE_WORDS], type;
	char is[16];

	if (pymem__read(m, code, words, sizeof(words)))
		return false;
	for (size_t i = 0; i < CODE_WORDS; i++) {
		if (words[i] % 8 || pyobj__type(py, words[i], &type) ||
		    pyobj__type_name(py, type, is, sizeof(is)) || strcmp(is, "tuple"))
			continue;
		if (has_name(py, m, words[i], name))
			return true;
	}
	return false;
}

/* The function that Module._call_impl calls first. */
static const char *first_called(const struct python *py, struct pymem *m)
{
	uint64_t type, code;

	if (!module_type(py, &type) && !method_code(py, type, "_call_impl", &code) &&
	    uses(py, m, code, IS_TRACING))
		return IS_TRACING;
	return TRACING_STATE;
}

int nnmodules__first_called(const struct python *py, uint64_t *addr, const char **name)
{
	const struct pylayout *l = python__layout(py);
	uint64_t module, function, self, record, text, impl;
	char is[32] = "";
	struct pymem m;
	int err;

	pymem__init(&m, py, false);
	*name = first_called(py, &m);
	err = pyobj__module(py, "torch._C", &module);
	if (!err)
		err = pyobj__module_attr(py, module, *name, &function);
	if (!err)
		err = pymem__u64(&m, function + l->ob_type + M_SELF, &self);
	if (!err)
		err = pymem__u64(&m, self + l->ob_type + RECORD, &record);
	if (!err)
		err = pymem__u64(&m, record, &text);
	if (!err)
		err = pymem__read(&m, text, is, strlen(*name) + 1);
	if (!err && strcmp(is, *name))
		err = -EBADMSG;
	if (!err)
		err = pymem__u64(&m, record + RECORD_IMPL, &impl);
	if (!err)
		*addr = impl;
	return err;
}
