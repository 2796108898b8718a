/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/assets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *docs__path(const char *name)
{
	static const char *const places[] = { "../share/doc/memtrace-bpf", "../docs" };
	static char path[PATH_MAX];
	char exe[PATH_MAX], at[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	size_t i;

	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	if (slash)
		*slash = '\0';
	for (i = 0; i < 2 && slash; i++) {
		if ((size_t)snprintf(at, sizeof(at), "%s/%s/%s", exe, places[i], name) <
			    sizeof(at) &&
		    realpath(at, path))
			return path;
	}
	/* Not installed: the place in the source tree. */
	snprintf(path, sizeof(path), "docs/%s", name);
	return path;
}
