/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An input of a fuzzer as a file in memory, for readers that take a path. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns the path of a file with these bytes, which the next call replaces. */
static inline const char *memory_file__of(const uint8_t *data, size_t size)
{
	static char path[32];
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", 0);
	if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}
