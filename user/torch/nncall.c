/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Data for the probes on module calls: module types, the code object of a call, and the function to
 * probe. */
#include <errno.h>

#include "python/pymem.h"
#include "python/pyobj.h"
#include "python/python.h"
#include "python/pytype.h"
#include "torch/nnmodule.h"

#define TORCH_MODULE "torch.nn.modules.module"

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

int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n)
{
	uint64_t type, code;
	int err;

	if (!max)
		return -EINVAL;
	err = module_type(py, &type);
	if (!err)
		err = method_code(py, type, "_wrapped_call_impl", &code);
	if (err == -ENOENT && !module_type(py, &type))
		err = method_code(py, type, "_call_impl", &code);
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
