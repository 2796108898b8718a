/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_all(int fd, char *buf, size_t n, bool at, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = at ? pread(fd, buf + done, n - done, (off_t)(offset + done))
				 : read(fd, buf + done, n - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

ssize_t io__read(int fd, void *buf, size_t n)
{
	return read_all(fd, buf, n, false, 0);
}

ssize_t io__pread(int fd, void *buf, size_t n, uint64_t offset)
{
	return read_all(fd, buf, n, true, offset);
}

int io__write(int fd, const void *buf, size_t n)
{
	const char *at = buf;

	while (n) {
		ssize_t done = write(fd, at, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -ENOSPC;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

char *io__load(int fd, size_t most, size_t *size)
{
	struct stat st;
	char *data;

	if (fstat(fd, &st))
		return NULL;
	if (st.st_size <= 0 || (uint64_t)st.st_size > most) {
		errno = st.st_size > 0 ? EFBIG : EPROTO;
		return NULL;
	}
	*size = (size_t)st.st_size;
	data = malloc(*size);
	if (data && io__pread(fd, data, *size, 0) != (ssize_t)*size) {
		free(data);
		errno = EPROTO;
		return NULL;
	}
	return data;
}

ssize_t io__text_at(int folder, const char *name, char *buf, size_t size)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = fd < 0 ? -errno : io__read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

ssize_t io__text(const char *path, char *buf, size_t size)
{
	return io__text_at(AT_FDCWD, path, buf, size);
}

ssize_t io__text_of_process(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return io__text(path, buf, size);
}
