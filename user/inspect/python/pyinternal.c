/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of an open interpreter, and its exported symbols. */
#include "inspect/python/pyinternal.h"

#include <stdarg.h>
#include <stdio.h>

int python__refuse(const char **why, int err, const char *fmt, ...)
{
	static _Thread_local char text[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	*why = text;
	return err;
}

const struct proc *python__proc(const struct python *py)
{
	return py->proc;
}

const struct pylayout *python__layout(const struct python *py)
{
	return &py->layout;
}

void python__version(const struct python *py, int *major, int *minor, int *micro)
{
	*major = py->major;
	*minor = py->minor;
	*micro = py->micro;
}

const char *python__version_text(const struct python *py, char *buf, size_t size)
{
	const char *t = py->layout.free_threaded ? "t" : "";

	if (py->micro < 0)
		snprintf(buf, size, "%d.%d%s", py->major, py->minor, t);
	else
		snprintf(buf, size, "%d.%d.%d%s", py->major, py->minor, py->micro, t);
	return buf;
}

const char *python__file(const struct python *py)
{
	return py->file[0].path;
}

uint64_t python__symbol(const struct python *py, const char *name)
{
	struct elf_sym sym;

	for (size_t i = 0; i < py->nr_files; i++) {
		if (!elf__dynsym(py->file[i].elf, name, &sym))
			return sym.value + py->file[i].bias;
	}
	return 0;
}

uint64_t python__modules(const struct python *py)
{
	uint64_t interp, modules;

	if (proc__read_u64(py->proc, py->runtime + py->layout.rt_interp_main, &interp) || !interp)
		return 0;
	if (proc__read_u64(py->proc, interp + py->layout.is_modules, &modules))
		return 0;
	return modules;
}
