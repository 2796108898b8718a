/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define REGULAR_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Reads n bytes, or fewer at the end of the file: from `offset` if has_offset, otherwise from the
 * current position. Returns their number or -errno. */
static ssize_t read_all(int fd, char *buf, size_t n, bool has_offset, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = has_offset ? pread(fd, buf + done, n - done, (off_t)(offset + done))
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
	return read_all(fd, buf, n, /*has_offset=*/false, 0);
}

ssize_t io__pread(int fd, void *buf, size_t n, uint64_t offset)
{
	return read_all(fd, buf, n, /*has_offset=*/true, offset);
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
	ssize_t got = fd < 0 ? -errno : io__read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return got;
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

void io__unescape_path(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* ---- files that other people name ---- */

/* Opens a file as io__open_regular() follows links. Returns a descriptor or -errno. */
static int open_with_links(int dir, const char *path, enum io_links links, int flags)
{
	struct open_how how = { .flags = (uint64_t)flags,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int fd;

	if (links == LINKS_IN_ROOT)
		fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	else
		fd = openat(dir, path, flags | (links == LINKS_NONE ? O_NOFOLLOW : 0));
	return fd < 0 ? -errno : fd;
}

/* True if the file is of a file system of the kernel (/proc, /sys ...). Such files are regular ones
 * by their mode. */
static bool is_of_kernel(int fd)
{
	static const uint32_t types[] = {
		PROC_SUPER_MAGIC,    SYSFS_MAGIC,	   DEBUGFS_MAGIC, TRACEFS_MAGIC,
		SECURITYFS_MAGIC,    CGROUP_SUPER_MAGIC,   BPF_FS_MAGIC,  PSTOREFS_MAGIC,
		CGROUP2_SUPER_MAGIC, EFIVARFS_MAGIC,	   SELINUX_MAGIC, SMACK_MAGIC,
		BINFMTFS_MAGIC,	     RDTGROUP_SUPER_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if ((uint32_t)fs.f_type == types[i])
			return true;
	return false;
}

bool io__is_program(const char *path)
{
	struct stat st;

	return !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode);
}

/* Sets *st to the fstat() of an open file. Returns 0 for a regular file that is not the kernel's,
 * otherwise -errno. */
static int check_regular(int fd, struct stat *st)
{
	if (fstat(fd, st))
		return -errno;
	if (S_ISLNK(st->st_mode))
		return -ELOOP;
	return S_ISREG(st->st_mode) && !is_of_kernel(fd) ? 0 : -EINVAL;
}

/* Opens a checked file by its name, where there is no /proc to open it by its handle (in a chroot).
 * Returns a descriptor or -errno; -ESTALE: it is not the file *expected, which was checked. */
static int open_again(int dir, const char *path, enum io_links links, const struct stat *expected)
{
	int fd = open_with_links(dir, path, links, REGULAR_FLAGS), err;
	struct stat st;

	if (fd < 0)
		return fd;
	err = check_regular(fd, &st);
	if (!err && st.st_dev == expected->st_dev && st.st_ino == expected->st_ino)
		return fd;
	close(fd);
	return err ? err : -ESTALE;
}

int io__open_regular(int dir, const char *path, enum io_links links, struct stat *st)
{
	int handle = open_with_links(dir, path, links, O_PATH | O_CLOEXEC), ret;
	struct stat own;
	char name[48];

	if (handle < 0)
		return handle;
	st = st ?: &own;
	ret = check_regular(handle, st);
	if (!ret) {
		/* A thread may have its own table of descriptors, so /proc/self would be wrong. */
		snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", handle);
		ret = open(name, REGULAR_FLAGS);
		if (ret < 0)
			ret = -errno;
	}
	close(handle);
	/* LINKS_IN_ROOT is for files of a target, which needs /proc anyway. */
	if (ret != -ENOENT || links == LINKS_IN_ROOT)
		return ret;
	return open_again(dir, path, links, st);
}

void io__raise_limit(uint64_t wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	setrlimit(RLIMIT_NOFILE, &limit);
}
