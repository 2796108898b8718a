/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>

#include "record/folder_internal.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/stream.h"
#include "base/utf8.h"

#define LOCK_TRIES 200 /* tries of 10 ms each */

const char *folder__why(int err)
{
	switch (-err) {
	case ENOTEMPTY:
		return "it has files of other programs and no " FOLDER_INDEX
		       "; use it anyway with -f";
	case EBADMSG:
		return "its " FOLDER_INDEX " makes no sense";
	case EPROTONOSUPPORT:
		return "its " FOLDER_INDEX
		       " was made by a newer memtrace-bpf; use that version or a later one";
	case ENOTDIR:
		return "it is a file, and this writes a folder; name one: -o FOLDER/";
	case ENOENT:
		return "no such folder, or it has no " FOLDER_INDEX;
	case EAGAIN:
		return "another program holds its lock";
	case E2BIG:
		return "it has too many recordings";
	case ELOOP:
		return "it is a symbolic link; to follow it, end the name with /";
	case EPERM:
		return "it belongs to another user; to use it anyway, end the name with /";
	default:
		return outfile__why(err);
	}
}

static bool is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool ends_in_slash(const char *path)
{
	size_t len = strlen(path);

	return len && path[len - 1] == '/';
}

/* Returns 0 if the path may name an output folder, otherwise -errno. Without a "/" at the end it
 * must not be a link or another user's folder, because an attacker may have put it there. */
static int check_folder(const char *path)
{
	struct stat st;

	if (ends_in_slash(path))
		return 0;
	if (lstat(path, &st))
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return outfile__is_ours(&st) ? 0 : -EPERM;
}

bool folder__wanted(const char *path)
{
	return ends_in_slash(path) || !check_folder(path);
}

bool folder__is(const char *path)
{
	struct stat st;
	char *index;
	bool is;

	if (!is_folder(path) || asprintf(&index, "%s/%s", path, FOLDER_INDEX) < 0)
		return false;
	is = !lstat(index, &st) && S_ISREG(st.st_mode);
	free(index);
	return is;
}

bool folder__good_name(const char *file)
{
	size_t len = strlen(file);

	return len && len < sizeof(((struct folder_entry *)0)->file) && file[0] != '.' &&
	       !strchr(file, '/') && strcmp(file, FOLDER_INDEX);
}

/* ---- opening ---- */

static int open_dir(const char *path, int *ret)
{
	int follow = passed_files__in_folder(path) ? O_NOFOLLOW : 0;

	*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
	return *ret < 0 ? -errno : 0;
}

static struct folder *new_folder(const char *path, int *err)
{
	struct folder *f = calloc(1, sizeof(*f));
	size_t len = strlen(path);

	*err = -ENOMEM;
	if (!f)
		return NULL;
	while (len > 1 && path[len - 1] == '/')
		len--;
	f->dir = -1;
	f->path = strndup(path, len);
	if (f->path)
		*err = open_dir(f->path, &f->dir);
	if (!*err)
		return f;
	folder__free(f);
	return NULL;
}

void folder__free(struct folder *f)
{
	if (!f)
		return;
	if (f->dir >= 0)
		close(f->dir);
	free(f->path);
	free(f->entries);
	free(f->gaps);
	free(f->missing);
	free(f);
}

static bool is_empty(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	bool empty = true;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (empty && (e = readdir(d)))
		empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return empty;
}

/* Gives up after 2 s, so that another lock holder cannot block a capture. */
static int lock_index(struct folder *f, bool on)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		const struct timespec ts = { .tv_nsec = 10000000 };

		if (!flock(f->dir, on ? LOCK_EX | LOCK_NB : LOCK_UN))
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		nanosleep(&ts, NULL);
	}
	return -EAGAIN;
}

int folder__create(const char *path, bool force, struct folder **ret)
{
	bool made = !mkdir(path, 0700);
	struct folder *f;
	int err = made ? 0 : -errno;

	if (err == -EEXIST)
		err = check_folder(path);
	if (err)
		return err;
	f = new_folder(path, &err);
	if (!f)
		return err;
	if (made)
		outfile__give(f->dir);
	err = folder__load(f, NULL);
	if (err == -ENOENT) { /* create the index at once */
		err = lock_index(f, true);
		err = err ? err : folder__load(f, NULL);
		if (err == -ENOENT)
			err = force || is_empty(f->dir) ? folder__store(f) : -ENOTEMPTY;
		lock_index(f, false);
	}
	if (err) {
		folder__free(f);
		return err;
	}
	*ret = f;
	return 0;
}

int folder__read(const char *path, struct folder **ret, const char **why)
{
	struct folder *f;
	int err;

	f = new_folder(path, &err);
	if (!f)
		return err;
	err = folder__load(f, why);
	if (err) {
		folder__free(f);
		return err;
	}
	*ret = f;
	return 0;
}

int folder__read_again(struct folder *f)
{
	return folder__load(f, NULL);
}

const struct folder_entry *folder__entries(const struct folder *f, size_t *n)
{
	*n = f->n_entries;
	return f->entries;
}

const struct folder_gap *folder__gaps(const struct folder *f, size_t *n)
{
	*n = f->n_gaps;
	return f->gaps;
}

const struct folder_missing *folder__missing(const struct folder *f, size_t *n)
{
	*n = f->n_missing;
	return f->missing;
}

const char *folder__path(const struct folder *f)
{
	return f->path;
}

/* ---- changes ---- */

static bool exists(const struct folder *f, const char *name)
{
	struct stat st;

	return !fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

static void copy_fact(char *to, size_t size, const struct facts *f, const char *key)
{
	const char *value = facts__get(f, key);

	to[value ? text__utf8(to, size - 1, value, strlen(value)) : 0] = '\0';
}

void folder_entry__describe(struct folder_entry *e, const struct facts *f)
{
	uint64_t rank;

	e->rank = facts__number(f, "rank", &rank) ? (int64_t)rank : -1;
	copy_fact(e->comm, sizeof(e->comm), f, "comm");
	copy_fact(e->container, sizeof(e->container), f, "container");
	copy_fact(e->pod, sizeof(e->pod), f, "pod");
}

/* Only CUDA allocators report totals. */
void folder_entry__event(struct folder_entry *f, const struct event *e)
{
	struct folder_device *d = NULL;
	char name[16];
	size_t i;

	if (!e->totals)
		return;
	device__name(e->device, name, sizeof(name));
	for (i = 0; i < f->n_devices && !d; i++)
		d = strcmp(f->devices[i].name, name) ? NULL : &f->devices[i];
	if (!d && f->n_devices == FOLDER_DEVICES)
		return;
	if (!d) {
		d = &f->devices[f->n_devices++];
		memcpy(d->name, name, sizeof(d->name));
	}
	d->allocated = e->allocated;
	d->reserved = e->reserved;
	d->peak_allocated = e->allocated > d->peak_allocated ? e->allocated : d->peak_allocated;
	d->peak_reserved = e->reserved > d->peak_reserved ? e->reserved : d->peak_reserved;
}

char *folder__new_path(const struct folder *f, const char *stem, const char *suffix)
{
	char safe[200], name[240], *path;
	size_t n = 0, len;

	for (; *stem; stem += len ? len : 1) {
		uint32_t c;
		bool good;

		/* The index is JSON, so a file name must be UTF-8 to be the same in it. */
		len = utf8__decode(stem, strlen(stem), &c);
		good = len > 1 ? !text__acts(c)
			       : len &&
					 (isalnum((unsigned char)*stem) ||
					  strchr("-_+=,.", *stem)) &&
					 (n || *stem != '.');
		if (n + (good ? len : 1) >= sizeof(safe))
			break;
		memcpy(safe + n, good ? stem : "_", good ? len : 1);
		n += good ? len : 1;
	}
	safe[n] = '\0';
	if (!n)
		strcpy(safe, "recording");
	snprintf(name, sizeof(name), "%s%s", safe, suffix);
	for (unsigned int i = 2; exists(f, name) && i < FOLDER_MAX; i++)
		snprintf(name, sizeof(name), "%s-%u%s", safe, i, suffix);
	return asprintf(&path, "%s/%s", f->path, name) < 0 ? NULL : path;
}

/* Orders by time. All times have the same format, so text order is time order. */
static int by_time(const void *x, const void *y)
{
	const struct folder_entry *a = x, *b = y;
	int order = strcmp(a->begin, b->begin);

	if (!order)
		order = a->from < b->from ? -1 : a->from > b->from;
	return order ? order : strcmp(a->file, b->file);
}

void folder__sort(struct folder *f)
{
	if (f->n_entries)
		qsort(f->entries, f->n_entries, sizeof(*f->entries), by_time);
}

static size_t find(const struct folder *f, const char *file)
{
	size_t i = 0;

	while (i < f->n_entries && strcmp(f->entries[i].file, file))
		i++;
	return i;
}

static int put_entry(struct folder *f, const struct folder_entry *e)
{
	size_t i = find(f, e->file);
	struct folder_entry *bigger;

	if (!folder__good_name(e->file) || e->n_devices > FOLDER_DEVICES)
		return -EINVAL;
	if (i == f->n_entries) {
		if (i >= FOLDER_MAX)
			return -E2BIG;
		bigger = reallocarray(f->entries, i + 1, sizeof(*e));
		if (!bigger)
			return -ENOMEM;
		f->entries = bigger;
		f->n_entries++;
	}
	f->entries[i] = *e;
	return 0;
}

static int put_gap(struct folder *f, const struct folder_gap *g)
{
	struct folder_gap *last = f->n_gaps ? &f->gaps[f->n_gaps - 1] : NULL, *bigger;

	if (last && g->from <= last->to && g->to >= last->to && !strcmp(last->why, g->why)) {
		last->to = g->to;
		last->events += g->events;
		last->bytes += g->bytes;
		return 0;
	}
	if (f->n_gaps >= FOLDER_MAX)
		return -E2BIG;
	bigger = reallocarray(f->gaps, f->n_gaps + 1, sizeof(*g));
	if (!bigger)
		return -ENOMEM;
	f->gaps = bigger;
	f->gaps[f->n_gaps++] = *g;
	return 0;
}

/* Adds missing recordings to those of the index. */
static int put_missing(struct folder *f, const struct folder_missing *m, size_t n)
{
	struct folder_missing *bigger;

	if (!n)
		return 0;
	if (n > FOLDER_MAX - f->n_missing)
		return -E2BIG;
	bigger = reallocarray(f->missing, f->n_missing + n, sizeof(*m));
	if (!bigger)
		return -ENOMEM;
	memcpy(bigger + f->n_missing, m, n * sizeof(*m));
	f->missing = bigger;
	f->n_missing += n;
	return 0;
}

/* Applies a change to the present index, which another program may have changed. */
struct change {
	const struct folder_entry *add;
	size_t n_add;
	const char *drop; /* file; NULL: none */
	const struct folder_gap *gap;
	const struct folder_missing *missing;
	size_t n_missing;
};

static int change(struct folder *f, const struct change *c)
{
	int err = lock_index(f, true);
	size_t i;

	if (err)
		return err;
	err = folder__load(f, NULL);
	if (err == -ENOENT) /* the index was removed; keep the entries in memory */
		err = 0;
	if (!err && c->drop && (i = find(f, c->drop)) < f->n_entries) {
		memmove(&f->entries[i], &f->entries[i + 1],
			(f->n_entries - i - 1) * sizeof(*f->entries));
		f->n_entries--;
	}
	for (i = 0; i < c->n_add && !err; i++)
		err = put_entry(f, &c->add[i]);
	if (!err && c->gap)
		err = put_gap(f, c->gap);
	if (!err)
		err = put_missing(f, c->missing, c->n_missing);
	if (!err) {
		folder__sort(f);
		err = folder__store(f);
	}
	lock_index(f, false);
	return err;
}

int folder__add(struct folder *f, const struct folder_entry *e)
{
	return change(f, &(struct change){ .add = e, .n_add = 1 });
}

int folder__add_all(struct folder *f, const struct folder_entry *e, size_t n,
		    const struct folder_missing *missing, size_t n_missing)
{
	return change(f,
		      &(struct change){
			      .add = e, .n_add = n, .missing = missing, .n_missing = n_missing });
}

int folder__drop(struct folder *f, const char *file, const struct folder_gap *gap)
{
	int err;

	if (!folder__good_name(file))
		return -EINVAL;
	err = change(f, &(struct change){ .drop = file, .gap = gap });
	/* Change the index first: it must not name a missing file. */
	if (!err && unlinkat(f->dir, file, 0) && errno != ENOENT)
		err = -errno;
	return err;
}
