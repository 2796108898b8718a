/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pyobj.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "inspect/python/pylong.h"

int pynames__process(const struct python *py, char *buf, size_t size)
{
	uint64_t module, process, name;
	int err;

	/* multiprocessing's object for this process. A spawned process replaces it by another one
	 * with the same name. */
	err = pyobj__module(py, "multiprocessing.process", &module)
		      ?: pyobj__module_attr(py, module, "_current_process", &process);
	if (err)
		return err;
	err = pyobj__attr(py, process, "_name", &name) ?: pyobj__str(py, name, buf, size);
	if (err)
		return err;
	return !*buf || !strcmp(buf, "MainProcess") ? -ENOENT : 0;
}

int pynames__cell(const struct python *py, const char *file, uint64_t *ret)
{
	struct pymem mem;
	uint64_t at; /* the object that the path has reached */
	int err;

	err = pyobj__module(py, "IPython.core.interactiveshell", &at)
		      ?: pyobj__module_attr(py, at, "InteractiveShell", &at);
	if (err)
		return err;
	err = pyobj__type_attr(py, at, "_instance", &at) ?: pyobj__attr(py, at, "compile", &at);
	if (err)
		return err;
	err = pyobj__attr(py, at, "_filename_map", &at) ?: pyobj__dict_get(py, at, file, &at);
	if (err)
		return err;
	pymem__init(&mem, py, false);
	err = pylong__read(&mem, at, ret);
	pymem__fini(&mem);
	return err;
}
