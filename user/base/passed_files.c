/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

bool passed_files__good_name(const char *name)
{
	size_t len = strlen(name);

	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-+", *p))
			return false;
	return len && len <= 200 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       strcmp(name, "-") != 0;
}

/* Returns the descriptor that HANDED gives for the file; -1: the file was not passed. */
static int find_passed(const char *path)
{
	const char *entry = getenv(HANDED);
	size_t path_len = strlen(path);

	if (!entry || !passed_files__good_name(path))
		return -1;
	while (*entry) {
		size_t len = strcspn(entry, ",");
		char *colon;
		long fd = strtol(entry, &colon, 10);

		if (isdigit((unsigned char)*entry) && *colon == ':' && fd > 2 && fd < 65536 &&
		    len == (size_t)(colon + 1 - entry) + path_len &&
		    !strncmp(colon + 1, path, path_len))
			return (int)fd;
		entry += len;
		entry += *entry == ',';
	}
	return -1;
}

bool passed_files__in_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t folder_len = slash ? (size_t)(slash + 1 - path) : 0;
	char index[PATH_MAX];
	struct stat st;

	if (folder_len + sizeof(FOLDER_INDEX) > sizeof(index))
		return true;
	memcpy(index, path, folder_len);
	memcpy(index + folder_len, FOLDER_INDEX, sizeof(FOLDER_INDEX));
	return !lstat(index, &st);
}

/* Opens a file that was not passed. Returns a descriptor, or -1 with errno. */
static int open_named(const char *path)
{
	int fd = passed_files__in_folder(path) ? io__open_regular(AT_FDCWD, path, LINKS_NONE, NULL)
					       : open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= -1)
		return fd;
	errno = -fd;
	return -1;
}

int passed_files__open(const char *path)
{
	int fd = find_passed(path);

#ifndef __SANITIZE_ADDRESS__ /* its leak check must trace this process */
	/* Other processes of the same user must not take the passed files. If the program was
	 * started from a memfd, it is not dumpable anyway. */
	if (fd >= 0)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
	return fd < 0 ? open_named(path) : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int passed_files__stat(const char *path, struct stat *st)
{
	int fd = find_passed(path);

	return fd < 0 ? stat(path, st) : fstat(fd, st);
}
