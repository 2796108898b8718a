/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/outfile.h"

#define WHY_SIZE 256
#define TEMPORARY "memtrace-serve-" /* begin of the names of temporary folders */

/* Sets why to a text. Returns err. */
static int set_error(int err, char *why, const char *text)
{
	snprintf(why, WHY_SIZE, "%s", text);
	return err;
}

/* Calls fn for each file in a folder. */
static void call_each(int dir, void (*fn)(void *ctx, const char *name), void *ctx)
{
	int fd = dup(dir);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	rewinddir(d);
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			fn(ctx, e->d_name);
	closedir(d);
}

/* ---- folders of killed servers ---- */

/* For call_each(): removes a file. ctx: the folder's descriptor. */
static void unlink_in(void *ctx, const char *name)
{
	unlinkat(*(int *)ctx, name, 0);
}

/* Removes temporary folders in a folder whose servers were killed: they are not locked. */
static void remove_stale(const char *parent)
{
	DIR *d = opendir(parent);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		int fd;

		if (strncmp(e->d_name, TEMPORARY, strlen(TEMPORARY)) != 0)
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && outfile__is_ours(&st) && !flock(fd, LOCK_EX | LOCK_NB)) {
			call_each(fd, unlink_in, &fd);
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
		}
		close(fd);
	}
	if (d)
		closedir(d);
}

/* ---- the folder ---- */

/* Makes a folder that ends with the server. Returns 0, or -errno with why. */
static int make_temporary(struct store *s, char *why)
{
	const char *parent = getenv("TMPDIR");

	if (!parent || *parent != '/')
		parent = "/var/tmp";
	remove_stale(parent);
	if (snprintf(s->path, sizeof(s->path), "%s/" TEMPORARY "XXXXXX", parent) >=
	    (int)sizeof(s->path))
		return set_error(-ENAMETOOLONG, why, "TMPDIR is too long");
	if (!mkdtemp(s->path)) {
		snprintf(why, WHY_SIZE,
			 "cannot make a folder in %.100s: %s; choose one with -o FOLDER", parent,
			 strerror(errno));
		return -errno;
	}
	s->own = true;
	return 0;
}

/* Opens the folder, checks its owner and mode, and locks it. Returns 0, or -errno with why. */
static int open_and_lock(struct store *s, char *why)
{
	struct stat st;

	s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dir < 0) {
		int err = errno;

		return set_error(-err, why,
				 !lstat(s->path, &st) && S_ISLNK(st.st_mode)
					 ? "it is a symbolic link; name the folder itself"
					 : strerror(err));
	}
	if (s->own)
		outfile__give(s->dir);
	if (fstat(s->dir, &st))
		return set_error(-errno, why, strerror(errno));
	if (!outfile__is_ours(&st))
		return set_error(-EPERM, why, "it belongs to another user");
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return set_error(-EPERM, why, "others can write to it; run chmod go-w");
	if (flock(s->dir, LOCK_EX | LOCK_NB))
		return set_error(-EBUSY, why, "another server uses it");
	return 0;
}

int store__open(struct store *s, const char *path, char *why)
{
	bool made = false;
	int err;

	*s = (struct store){ .dir = -1 };
	if (!path) {
		err = make_temporary(s, why);
	} else if (!*path ||
		   snprintf(s->path, sizeof(s->path), "%s", path) >= (int)sizeof(s->path)) {
		err = set_error(-EINVAL, why, "it is not a valid folder name");
	} else {
		/* Strip slashes at the end. */
		for (size_t n = strlen(s->path); n > 1 && s->path[n - 1] == '/'; n--)
			s->path[n - 1] = '\0';
		made = !mkdir(s->path, 0700);
		err = made || errno == EEXIST ? 0 : set_error(-errno, why, strerror(errno));
	}
	err = err ? err : open_and_lock(s, why);
	if (!err && made)
		outfile__give(s->dir);
	if (err)
		store__close(s);
	return err;
}

void store__close(struct store *s)
{
	if (s->own && s->dir >= 0)
		call_each(s->dir, unlink_in, &s->dir);
	if (s->own)
		rmdir(s->path);
	if (s->dir >= 0)
		close(s->dir);
	*s = (struct store){ .dir = -1 };
}

int store__create(const struct store *s, const char *name)
{
	int fd = openat(s->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY,
			0600);

	if (fd < 0)
		return -errno;
	outfile__give(fd);
	return fd;
}

int store__open_file(const struct store *s, const char *name, uint64_t *size)
{
	int fd = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -errno;
	/* A file with two names may be root's file, linked into the folder by another user. */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1) {
		close(fd);
		return -EINVAL;
	}
	*size = (uint64_t)st.st_size;
	return fd;
}

/* link() and unlink() replace no file either, but the file has both names for a moment. */
int store__rename(const struct store *s, const char *from, const char *to)
{
	if (!renameat2(s->dir, from, s->dir, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* The file system does not have RENAME_NOREPLACE. */
	if (linkat(s->dir, from, s->dir, to, 0))
		return -errno;
	unlinkat(s->dir, from, 0);
	return 0;
}

void store__remove(const struct store *s, const char *name)
{
	unlinkat(s->dir, name, 0);
}

bool store__has(const struct store *s, const char *name)
{
	struct stat st;

	return !fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

void store__each(const struct store *s, void (*fn)(void *ctx, const char *name), void *ctx)
{
	call_each(s->dir, fn, ctx);
}

struct sum {
	const struct store *s;
	uint64_t bytes;
};

/* For store__each(): adds the bytes of a file. */
static void add_size(void *ctx, const char *name)
{
	struct sum *sum = ctx;
	struct stat st;

	if (!fstatat(sum->s->dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
		sum->bytes += (uint64_t)st.st_size;
}

uint64_t store__used(const struct store *s)
{
	struct sum sum = { .s = s };

	store__each(s, add_size, &sum);
	return sum.bytes;
}
