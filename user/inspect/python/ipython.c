/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/ipython.h"

#include "inspect/pymem.h"
#include "inspect/pyobj.h"
#include "inspect/python/pylong.h"

int ipython__cell(const struct python *py, const char *file, uint64_t *ret)
{
	struct pymem m;
	uint64_t at;
	int err = pyobj__module(py, "IPython.core.interactiveshell", &at)
			  ?: pyobj__module_attr(py, at, "InteractiveShell", &at)
			  ?: pyobj__type_attr(py, at, "_instance", &at)
			  ?: pyobj__attr(py, at, "compile", &at)
			  ?: pyobj__attr(py, at, "_filename_map", &at)
			  ?: pyobj__dict_get(py, at, file, &at);

	if (err)
		return err;
	pymem__init(&m, py, false);
	err = pylong__read(&m, at, ret);
	pymem__fini(&m);
	return err;
}
