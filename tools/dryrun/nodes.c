// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * NVIDIA's device files, for programs that look whether they are there before they load CUDA, such
 * as JAX: the functions that ask for a file's state answer for the dry run's devices. Nothing is
 * made in the file system, and the files cannot be opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dryrun.h"

#define NVIDIA_MAJOR 195 /* Documentation/admin-guide/devices.txt of Linux */
#define CONTROL_MINOR 255

/* The minor number of a device file of the dry run; -1: another file. */
static int minor_of(const char *path)
{
	static const char prefix[] = "/dev/nvidia";
	const char *rest = path ? path + sizeof(prefix) - 1 : NULL;
	unsigned long n;
	char *end;

	if (!path || strncmp(path, prefix, sizeof(prefix) - 1))
		return -1;
	if (!strcmp(rest, "ctl"))
		return CONTROL_MINOR;
	if (*rest < '0' || *rest > '9')
		return -1;
	n = strtoul(rest, &end, 10);
	return *end || n >= (unsigned long)dryrun__config()->n_devices ? -1 : (int)n;
}

static int state_of(const char *path, struct stat *st)
{
	int minor = minor_of(path);

	/* The kernel's struct stat is glibc's on x86-64 and AArch64. */
	if (minor < 0)
		return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
	if (!st) {
		errno = EFAULT;
		return -1;
	}
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFCHR | 0666;
	st->st_nlink = 1;
	st->st_rdev = makedev(NVIDIA_MAJOR, (unsigned)minor);
	return 0;
}

API(int, stat, const char *path, struct stat *st)
{
	return state_of(path, st);
}

_Static_assert(sizeof(struct stat64) == sizeof(struct stat), "64-bit hosts have one form");

API(int, stat64, const char *path, struct stat64 *st)
{
	return state_of(path, (struct stat *)st);
}

/* Of programs linked with glibc before 2.33. version: of struct stat, which has one form. */
API(int, __xstat, int version, const char *path, struct stat *st)
{
	return state_of(path, st);
}

API(int, __xstat64, int version, const char *path, struct stat64 *st)
{
	return state_of(path, (struct stat *)st);
}

API(int, access, const char *path, int mode)
{
	return minor_of(path) >= 0 ? 0 : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
