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

#define WHY 256
#define OWN "memtrace-serve-"

static int fail(int err, char *why, const char *text)
{
	snprintf(why, WHY, "%s", text);
	return err;
}

static void each_name(int dir, void (*fn)(void *ctx, const char *name), void *ctx)
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

static void unlink_in(void *ctx, const char *name)
{
	unlinkat(*(int *)ctx, name, 0);
}

/* Removes temporary folders whose server was killed, so that none is locked. */
static void remove_stale(const char *in)
{
	DIR *d = opendir(in);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		int fd;

		if (strncmp(e->d_name, OWN, strlen(OWN)) != 0)
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && outfile__is_ours(&st) && !flock(fd, LOCK_EX | LOCK_NB)) {
			each_name(fd, unlink_in, &fd);
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
		}
		close(fd);
	}
	if (d)
		closedir(d);
}

/* ---- */

static int make_own(struct store *s, char *why)
{
	const char *in = getenv("TMPDIR");

	if (!in || *in != '/')
		in = "/var/tmp";
	remove_stale(in);
	if (snprintf(s->path, sizeof(s->path), "%s/" OWN "XXXXXX", in) >= (int)sizeof(s->path))
		return fail(-ENAMETOOLONG, why, "TMPDIR is too long");
	if (!mkdtemp(s->path)) {
		snprintf(why, WHY, "cannot make a folder in %.100s: %s; choose one with -o FOLDER",
			 in, strerror(errno));
		return -errno;
	}
	s->own = true;
	return 0;
}

static int look_at(struct store *s, char *why)
{
	struct stat st;

	s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dir < 0) {
		int err = errno;

		return fail(-err, why,
			    !lstat(s->path, &st) && S_ISLNK(st.st_mode)
				    ? "it is a symbolic link; name the folder itself"
				    : strerror(err));
	}
	if (s->own)
		outfile__give(s->dir);
	if (fstat(s->dir, &st))
		return fail(-errno, why, strerror(errno));
	if (!outfile__is_ours(&st))
		return fail(-EPERM, why, "it belongs to another user");
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return fail(-EPERM, why, "others can write to it; run chmod go-w");
	if (flock(s->dir, LOCK_EX | LOCK_NB))
		return fail(-EBUSY, why, "another server uses it");
	return 0;
}

int store__open(struct store *s, const char *path, char *why)
{
	bool made = false;
	int err;

	*s = (struct store){ .dir = -1 };
	if (!path) {
		err = make_own(s, why);
	} else if (!*path ||
		   snprintf(s->path, sizeof(s->path), "%s", path) >= (int)sizeof(s->path)) {
		err = fail(-EINVAL, why, "it is not a valid folder name");
	} else {
		/* Strip slashes at the end. */
		for (size_t n = strlen(s->path); n > 1 && s->path[n - 1] == '/'; n--)
			s->path[n - 1] = '\0';
		made = !mkdir(s->path, 0700);
		err = made || errno == EEXIST ? 0 : fail(-errno, why, strerror(errno));
	}
	err = err ? err : look_at(s, why);
	if (!err && made)
		outfile__give(s->dir);
	if (err)
		store__close(s);
	return err;
}

void store__close(struct store *s)
{
	if (s->own && s->dir >= 0)
		each_name(s->dir, unlink_in, &s->dir);
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
	each_name(s->dir, fn, ctx);
}

struct sum {
	const struct store *s;
	uint64_t bytes;
};

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
