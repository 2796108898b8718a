/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/torchpy.h"

#include <errno.h>
#include <string.h>

#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"

/* PyMethodDescrObject.d_method and PyMethodDef.ml_meth (Include/cpython/descrobject.h,
 * methodobject.h), all versions; the first is that far behind the object's type. */
#define D_METHOD 32
#define ML_METH 8

int torchpy__scope_exit(const struct python *py, uint64_t *addr)
{
	const struct proc *p = python__proc(py);
	uint64_t module, type, descr, descr_type, def, meth;
	char name[64];
	int err;

	err = pyobj__module(py, "torch._C", &module);
	if (!err)
		err = pyobj__module_attr(py, module, "DisableTorchFunctionSubclass", &type);
	if (!err)
		err = pyobj__type_attr(py, type, "__exit__", &descr);
	if (!err)
		err = pyobj__type(py, descr, &descr_type);
	if (!err)
		err = pyobj__type_name(py, descr_type, name, sizeof(name));
	if (!err && strcmp(name, "method_descriptor"))
		err = -EBADMSG;
	if (!err)
		err = proc__read_u64(p, descr + python__layout(py)->ob_type + D_METHOD, &def);
	if (!err)
		err = proc__read_u64(p, def + ML_METH, &meth);
	if (!err)
		*addr = meth;
	return err;
}
