/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pyprocess.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "inspect/pyobj.h"

int pyprocess__name(const struct python *py, char *buf, size_t size)
{
	uint64_t module, process, name;
	int err;

	/* A spawned process sets the name of its first object before it has one of its own. */
	err = pyobj__module(py, "multiprocessing.process", &module);
	if (!err)
		err = pyobj__module_attr(py, module, "_current_process", &process);
	if (!err)
		err = pyobj__attr(py, process, "_name", &name);
	if (!err)
		err = pyobj__str(py, name, buf, size);
	return !err && (!*buf || !strcmp(buf, "MainProcess")) ? -ENOENT : err;
}
