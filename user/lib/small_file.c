/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

ssize_t small_file__read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : 0, got = 0;

	while (fd >= 0 && n < (ssize_t)size - 1 &&
	       (got = read(fd, buf + n, size - 1 - (size_t)n)) > 0)
		n += got;
	if (got < 0)
		n = -errno;
	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

ssize_t small_file__of_process(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return small_file__read(path, buf, size);
}
