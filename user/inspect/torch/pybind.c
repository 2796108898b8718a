/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/torch/pybind.h"

#include <errno.h>
#include <string.h>

#include "inspect/python.h"
#include "inspect/pyobj.h"

/* M_SELF: PyCFunctionObject.m_self (Include/cpython/methodobject.h), all versions, from the
 * object's type on. It is an object of pybind11: a PyCapsule, from version 3 on another type. Both
 * have the address of a function_record RECORD bytes behind the type. The record begins with the
 * address of the name. */
#define M_SELF 16
#define RECORD 8
#define NAME_MAX 32

int pybind__word(const struct python *py, uint64_t object, const char *name, enum pybind_word which,
		 uint64_t *ret)
{
	const struct pylayout *layout = python__layout(py);
	uint64_t function, self, record, text;
	char found[NAME_MAX] = "";
	struct pymem mem;
	int err;

	if (strlen(name) >= sizeof(found))
		return -EINVAL;
	pymem__init(&mem, py, false);
	err = pyobj__module_attr(py, object, name, &function);
	if (err)
		return err;
	err = pymem__u64(&mem, function + layout->ob_type + M_SELF, &self)
		      ?: pymem__u64(&mem, self + layout->ob_type + RECORD, &record);
	if (err)
		return err;
	err = pymem__u64(&mem, record, &text) ?: pymem__read(&mem, text, found, strlen(name) + 1);
	if (err)
		return err;
	return strcmp(found, name) != 0 ? -EBADMSG : pymem__u64(&mem, record + which, ret);
}
