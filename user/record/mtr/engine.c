/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/engine.h"

#include <string.h>

static bool path_ends_with(const char *path, const char *name)
{
	size_t len = strlen(path), n = strlen(name);

	return len >= n && !strcmp(path + len - n, name) && (len == n || path[len - n - 1] == '/');
}

bool engine__is_file(const char *path)
{
	return path_ends_with(path, "torch/autograd/graph.py") ||
	       path_ends_with(path, "torch/autograd/__init__.py") ||
	       path_ends_with(path, "torch/_tensor.py");
}

bool engine__starts(const char *path, const char *func)
{
	const char *dot = strrchr(func, '.');

	if (!engine__is_file(path))
		return false;
	if (dot)
		func = dot + 1;
	if (path_ends_with(path, "torch/autograd/graph.py"))
		return !strcmp(func, "_engine_run_backward");
	if (!strcmp(func, "backward"))
		return true;
	return !strcmp(func, "grad") && path_ends_with(path, "torch/autograd/__init__.py");
}
