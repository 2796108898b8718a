/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/json.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/json_items.h"
#include "record/stream.h"

struct folder {
	char *path;
	int dir;
	struct folder_entry *entries;
	size_t n_entries;
	struct folder_gap *gaps;
	size_t n_gaps;
	struct folder_missing *missing;
	size_t n_missing;
};

#define INDEX_VERSION 1
#define INDEX_BYTES (256 << 20) /* size of the largest index that is read */
#define MOST_SECONDS 1e9	/* longest time that an index may have, about 32 years */
#define LOCK_TRIES 200		/* 10 ms apart: 2 s in all */

/* True if an entry may have this file: a visible one in the folder itself, and not the index. */
static bool is_good_name(const char *file)
{
	size_t len = strlen(file);

	return len && len < sizeof(((struct folder_entry *)0)->file) && file[0] != '.' &&
	       !strchr(file, '/') && strcmp(file, FOLDER_INDEX);
}

/* Comparison for qsort(): by time. All times have the same format, so text order is time order. */
static int by_time(const void *x, const void *y)
{
	const struct folder_entry *a = x, *b = y;
	int order = strcmp(a->begin, b->begin);

	if (!order)
		order = a->from < b->from ? -1 : a->from > b->from;
	return order ? order : strcmp(a->file, b->file);
}

static void sort_entries(struct folder *f)
{
	if (f->n_entries)
		qsort(f->entries, f->n_entries, sizeof(*f->entries), by_time);
}

/* ---- writing index.json: times in seconds and sizes in bytes, as all machine formats ---- */

/* Writes a text; nothing if it is empty (unknown). */
static void put_text(struct json *j, const char *key, const char *s)
{
	if (*s)
		json__string(j, key, s);
}

/* Writes a number, unless it is -1 (unknown). */
static void put_known(struct json *j, const char *key, int64_t v)
{
	if (v >= 0)
		json__int(j, key, v);
}

static void write_entry(struct json *j, const struct folder_entry *e)
{
	json__open_object(j, NULL);
	json__string(j, "file", e->file);
	json__string(j, "kind", e->kind);
	put_text(j, "name", e->name);
	put_known(j, "pid", e->pid);
	put_known(j, "rank", e->rank);
	put_text(j, "comm", e->comm);
	put_text(j, "container", e->container);
	put_text(j, "pod", e->pod);
	put_text(j, "host", e->host);
	put_text(j, "begin", e->begin);
	put_text(j, "end", e->end);
	json__seconds(j, "from", e->from, /*decimals=*/9);
	json__seconds(j, "to", e->to, /*decimals=*/9);
	put_known(j, "first_step", e->first_step);
	put_known(j, "last_step", e->last_step);
	put_text(j, "began", e->began);
	put_text(j, "ended", e->ended);
	json__uint(j, "events", e->events);
	json__uint(j, "lost", e->lost);
	json__uint(j, "bytes", e->bytes);
	json__open_array(j, "devices");
	for (size_t i = 0; i < e->n_devices; i++) {
		json__open_object(j, NULL);
		json__string(j, "device", e->devices[i].name);
		json__uint(j, "peak_allocated", e->devices[i].peak_allocated);
		json__uint(j, "peak_reserved", e->devices[i].peak_reserved);
		json__uint(j, "allocated", e->devices[i].allocated);
		json__uint(j, "reserved", e->devices[i].reserved);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static void write_missing(struct json *j, const struct folder *f)
{
	json__open_array(j, "missing");
	for (size_t i = 0; i < f->n_missing; i++) {
		json__open_object(j, NULL);
		put_text(j, "host", f->missing[i].host);
		put_known(j, "pid", f->missing[i].pid);
		put_known(j, "rank", f->missing[i].rank);
		put_text(j, "why", f->missing[i].why);
		json__close_object(j);
	}
	json__close_array(j);
}

/* For outfile__rewrite(): writes the index. Returns 0 or -ENOMEM. */
static int write_index(FILE *out, const void *ctx)
{
	const struct folder *f = ctx;
	struct json *j = json__new(out, true);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__int(j, "memtrace_folder", INDEX_VERSION);
	json__string(j, "version", MEMTRACE_VERSION);
	json__open_array(j, "recordings");
	for (size_t i = 0; i < f->n_entries; i++)
		write_entry(j, &f->entries[i]);
	json__close_array(j);
	json__open_array(j, "gaps");
	for (size_t i = 0; i < f->n_gaps; i++) {
		json__open_object(j, NULL);
		json__seconds(j, "from", f->gaps[i].from, /*decimals=*/9);
		json__seconds(j, "to", f->gaps[i].to, /*decimals=*/9);
		json__uint(j, "events", f->gaps[i].events);
		json__uint(j, "bytes", f->gaps[i].bytes);
		put_text(j, "why", f->gaps[i].why);
		json__close_object(j);
	}
	json__close_array(j);
	if (f->n_missing)
		write_missing(j, f);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* Writes the index file. Returns 0 or -errno. */
static int store_index(struct folder *f)
{
	return outfile__rewrite(f->path, FOLDER_INDEX, write_index, f);
}

/* ---- reading index.json ---- */
/* Reads a text; "" if the key is missing. Returns false if it is not a text, is too long, or has a
 * NUL. */
static bool get_text(const json_t *o, const char *key, char *buf, size_t size)
{
	const json_t *v = json_object_get(o, key);

	buf[0] = '\0';
	if (!v)
		return true;
	if (!json_is_string(v) || json_string_length(v) >= size)
		return false;
	if (strlen(json_string_value(v)) != json_string_length(v))
		return false;
	memcpy(buf, json_string_value(v), json_string_length(v) + 1);
	return true;
}

/* Reads a whole number from 0 on; -1 if the key is missing. False: it is something else. */
static bool get_known(const json_t *o, const char *key, int64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = -1;
	if (!v)
		return true;
	*ret = json_integer_value(v);
	return json_is_integer(v) && *ret >= 0;
}

bool folder__count(const json_t *o, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = (uint64_t)json_integer_value(v);
	return json_is_integer(v) && json_integer_value(v) >= 0;
}

/* Reads a time in seconds as *ret in ns. False: it is missing, or makes no sense. */
static bool get_seconds(const json_t *o, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);
	double s = json_number_value(v);

	if (!json_is_number(v) || !isfinite(s) || s < 0 || s > MOST_SECONDS)
		return false;
	*ret = (uint64_t)llround(s * 1e9);
	return true;
}

/* Reads the devices of an entry. False: they are missing or invalid. */
static bool get_devices(const json_t *o, struct folder_entry *e)
{
	const json_t *a = json_object_get(o, "devices"), *d;
	size_t i;

	e->n_devices = json_array_size(a);
	if (!json_is_array(a) || e->n_devices > FOLDER_DEVICES)
		return false;
	json_array_foreach(a, i, d) {
		struct folder_device *dev = &e->devices[i];

		if (!json_is_object(d) || !get_text(d, "device", dev->name, sizeof(dev->name)))
			return false;
		if (!dev->name[0])
			return false;
		if (!folder__count(d, "peak_allocated", &dev->peak_allocated) ||
		    !folder__count(d, "peak_reserved", &dev->peak_reserved) ||
		    !folder__count(d, "allocated", &dev->allocated) ||
		    !folder__count(d, "reserved", &dev->reserved))
			return false;
	}
	return true;
}

/* Reads a recording of the index. False: something is missing or invalid. */
static bool get_entry(const json_t *o, struct folder_entry *e)
{
	memset(e, 0, sizeof(*e));
	return json_is_object(o) && get_text(o, "file", e->file, sizeof(e->file)) &&
	       is_good_name(e->file) && get_text(o, "kind", e->kind, sizeof(e->kind)) &&
	       get_text(o, "name", e->name, sizeof(e->name)) &&
	       get_text(o, "comm", e->comm, sizeof(e->comm)) &&
	       get_text(o, "container", e->container, sizeof(e->container)) &&
	       get_text(o, "pod", e->pod, sizeof(e->pod)) &&
	       get_text(o, "host", e->host, sizeof(e->host)) &&
	       get_text(o, "begin", e->begin, sizeof(e->begin)) &&
	       get_text(o, "end", e->end, sizeof(e->end)) &&
	       get_text(o, "began", e->began, sizeof(e->began)) &&
	       get_text(o, "ended", e->ended, sizeof(e->ended)) && get_known(o, "pid", &e->pid) &&
	       get_known(o, "rank", &e->rank) && get_known(o, "first_step", &e->first_step) &&
	       get_known(o, "last_step", &e->last_step) && get_seconds(o, "from", &e->from) &&
	       get_seconds(o, "to", &e->to) && folder__count(o, "events", &e->events) &&
	       folder__count(o, "lost", &e->lost) && folder__count(o, "bytes", &e->bytes) &&
	       get_devices(o, e);
}

/* Reads a gap of the index. False: something is missing or invalid. */
static bool get_gap(const json_t *o, struct folder_gap *g)
{
	memset(g, 0, sizeof(*g));
	return json_is_object(o) && get_seconds(o, "from", &g->from) &&
	       get_seconds(o, "to", &g->to) && folder__count(o, "events", &g->events) &&
	       folder__count(o, "bytes", &g->bytes) && get_text(o, "why", g->why, sizeof(g->why));
}

/* Reads a missing recording of the index. False: something is missing or invalid. */
static bool get_missing(const json_t *o, struct folder_missing *m)
{
	memset(m, 0, sizeof(*m));
	return json_is_object(o) && get_text(o, "host", m->host, sizeof(m->host)) &&
	       get_known(o, "pid", &m->pid) && get_known(o, "rank", &m->rank) &&
	       get_text(o, "why", m->why, sizeof(m->why));
}

/* Data while an index is read. */
struct reading {
	struct folder read;
	size_t room[3];	 /* entries that fit each array; index: enum index_array */
	bool seen[3];	 /* the index has had this array; index: enum index_array */
	int64_t version; /* version of the index; 0: not read yet */
	const char *why; /* what is wrong with the index if the next step fails */
};

enum index_array { INDEX_RECORDINGS, INDEX_GAPS, INDEX_MISSING };
static const char *const index_arrays[] = { "recordings", "gaps", "missing", NULL };

/* The array with this name, which is one of index_arrays. */
static enum index_array array_of(const char *name)
{
	int i = 0;

	while (strcmp(index_arrays[i], name))
		i++;
	return i;
}

/* Called by json_items: an array begins (o is NULL), or has an element. */
static int take_item(void *ctx, const char *array, json_t *o)
{
	enum index_array which = array_of(array);
	struct reading *r = ctx;
	struct folder *f = &r->read;
	static const size_t sizes[] = { sizeof(*f->entries), sizeof(*f->gaps),
					sizeof(*f->missing) };
	void *const arrays[] = { &f->entries, &f->gaps, &f->missing };
	size_t *const counts[] = { &f->n_entries, &f->n_gaps, &f->n_missing };
	size_t n = *counts[which];
	bool good;

	if (!o) { /* the array begins */
		if (r->seen[which])
			return -EBADMSG;
		r->seen[which] = true;
		return 0;
	}
	r->why = "it has too many recordings";
	if (n >= FOLDER_MAX)
		return -EBADMSG;
	r->why = "it has an invalid entry";
	if (array__grow(arrays[which], &r->room[which], n + 1, sizes[which]))
		return -ENOMEM;
	++*counts[which];
	if (which == INDEX_RECORDINGS)
		good = get_entry(o, &f->entries[n]);
	else if (which == INDEX_GAPS)
		good = get_gap(o, &f->gaps[n]);
	else
		good = get_missing(o, &f->missing[n]);
	if (!good)
		return -EBADMSG;
	r->why = "it is not JSON";
	return 0;
}

/* Called by json_items for the other members: reads the version, which must be there once.
 * -EBADMSG: no index, as r->why says. -EPROTONOSUPPORT: a newer version. */
static int take_member(void *ctx, const char *key, const json_t *value)
{
	struct reading *r = ctx;

	r->why = "it is not an index of recordings";
	if (strcmp(key, "memtrace_folder") != 0)
		return 0;
	if (r->version) /* a second one */
		return -EBADMSG;
	if (!json_is_integer(value) || json_integer_value(value) < INDEX_VERSION)
		return -EBADMSG;
	r->version = json_integer_value(value);
	if (r->version > INDEX_VERSION) {
		r->why = NULL; /* the error says it */
		return -EPROTONOSUPPORT;
	}
	return 0;
}

/* Takes over the entries of an index that was valid to its end. */
static void replace_entries(struct folder *f, const struct folder *from)
{
	free(f->entries);
	free(f->gaps);
	free(f->missing);
	f->entries = from->entries;
	f->n_entries = from->n_entries;
	f->gaps = from->gaps;
	f->n_gaps = from->n_gaps;
	f->missing = from->missing;
	f->n_missing = from->n_missing;
	sort_entries(f);
}

/* Reads the index and replaces the entries in memory. Returns 0, or -errno and changes nothing;
 * -ENOENT: there is no index; -EBADMSG: *why, if why is not NULL, is the reason. */
static int load_index(struct folder *f, const char **why)
{
	struct reading r = { .why = "it is not JSON" };
	const char *ignored;
	struct stat st;
	int fd, err;

	why = why ? why : &ignored;
	*why = "it cannot be opened";
	fd = io__open_regular(f->dir, FOLDER_INDEX, LINKS_NONE, &st);
	if (fd < 0 && fd != -EINVAL)
		return fd;
	if (fd < 0 || st.st_size > INDEX_BYTES) {
		*why = fd < 0 ? "it is not a file" : "it is too large";
		if (fd >= 0)
			close(fd);
		return -EBADMSG;
	}
	err = json_items__read_fd(fd, &(struct json_items){ .arrays = index_arrays,
							    .item = take_item,
							    .member = take_member,
							    .ctx = &r,
							    .strict = true });
	if (!err && r.version && r.seen[INDEX_RECORDINGS]) {
		replace_entries(f, &r.read);
		return 0;
	}
	switch (err) {
	case 0:
		r.why = "it is not an index of recordings";
		err = -EBADMSG;
		break;
	case -EMSGSIZE:
		r.why = "it has an invalid entry";
		err = -EBADMSG;
		break;
	}
	*why = r.why;
	free(r.read.entries);
	free(r.read.gaps);
	free(r.read.missing);
	return err;
}

/* ---- the folder ---- */

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

/* True if the path ends in "/", so that it names a folder. */
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
	bool exists;

	if (!*path || asprintf(&index, "%s/%s", path, FOLDER_INDEX) < 0)
		return false;
	exists = !lstat(index, &st) && S_ISREG(st.st_mode);
	free(index);
	return exists;
}

/* ---- opening ---- */

/* Opens the folder, and does not read its index. Follows a link only if the user chose the path: in
 * a folder of recordings, another process may have put the link there. Returns 0 and *ret, which
 * the caller frees with folder__free(), or -errno. */
static int open_folder(const char *path, struct folder **ret)
{
	struct folder *f = calloc(1, sizeof(*f));
	size_t len = strlen(path);
	int err = -ENOMEM, follow;

	if (!f)
		return -ENOMEM;
	while (len > 1 && path[len - 1] == '/')
		len--;
	f->dir = -1;
	f->path = strndup(path, len);
	if (f->path) {
		follow = passed_files__in_folder(f->path) ? O_NOFOLLOW : 0;
		f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
		err = f->dir < 0 ? -errno : 0;
	}
	if (err)
		folder__free(f);
	else
		*ret = f;
	return err;
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

/* True if the folder has no files; false also if it cannot be read. */
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

/* Takes the lock (on) or releases it. Gives up after 2 s, so that another lock holder cannot block
 * a capture. */
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
	bool created = !mkdir(path, 0700);
	struct folder *f;
	int err = created ? 0 : -errno;

	if (err == -EEXIST)
		err = check_folder(path);
	if (err)
		return err;
	err = open_folder(path, &f);
	if (err)
		return err;
	if (created)
		outfile__give(f->dir);
	err = load_index(f, NULL);
	if (err ==
	    -ENOENT) { /* another program may create the index now: look again with the lock */
		err = lock_index(f, true);
		err = err ? err : load_index(f, NULL);
		if (err == -ENOENT)
			err = force || is_empty(f->dir) ? store_index(f) : -ENOTEMPTY;
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
	int err = open_folder(path, &f);

	if (err)
		return err;
	err = load_index(f, why);
	if (err) {
		folder__free(f);
		return err;
	}
	*ret = f;
	return 0;
}

int folder__read_again(struct folder *f)
{
	return load_index(f, NULL);
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

/* True if the folder has a file of this name, be it a link that leads nowhere. */
static bool exists(const struct folder *f, const char *name)
{
	struct stat st;

	return !fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

/* Copies a fact as UTF-8, cut to size; "" if it is missing. */
static void copy_fact(char *to, size_t size, const struct facts *f, const char *key)
{
	const char *value = facts__get(f, key);
	size_t len = 0;

	if (value)
		len = text__utf8(to, size - 1, value, strlen(value));
	to[len] = '\0';
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

/* True if a file's name may have the character c, which takes len bytes at s. len is 0 if the bytes
 * are not UTF-8. */
static bool is_good_char(const char *s, size_t len, uint32_t c, bool first)
{
	if (len > 1)
		return !text__acts(c);
	if (!len || (first && *s == '.'))
		return false;
	return isalnum((unsigned char)*s) || strchr("-_+=,.", *s);
}

char *folder__new_path(const struct folder *f, const char *stem, const char *suffix)
{
	char safe[200], name[240], *path;
	size_t n = 0, len;

	for (; *stem; stem += len ? len : 1) {
		size_t keep = 1;
		uint32_t c;
		bool good;

		/* A file's name must be UTF-8, because the index is JSON. */
		len = utf8__decode(stem, strlen(stem), &c);
		good = is_good_char(stem, len, c, !n);
		if (good)
			keep = len;
		if (n + keep >= sizeof(safe))
			break;
		memcpy(safe + n, good ? stem : "_", keep);
		n += keep;
	}
	safe[n] = '\0';
	if (!n)
		strcpy(safe, "recording");
	snprintf(name, sizeof(name), "%s%s", safe, suffix);
	for (unsigned int i = 2; exists(f, name) && i < FOLDER_MAX; i++)
		snprintf(name, sizeof(name), "%s-%u%s", safe, i, suffix);
	return asprintf(&path, "%s/%s", f->path, name) < 0 ? NULL : path;
}

/* Returns the index of the file's entry, or the number of entries if it has none. */
static size_t find_entry(const struct folder *f, const char *file)
{
	size_t i = 0;

	while (i < f->n_entries && strcmp(f->entries[i].file, file))
		i++;
	return i;
}

/* Adds an entry to those in memory, or replaces that of the same file. Returns 0 or -errno. */
static int put_entry(struct folder *f, const struct folder_entry *e)
{
	size_t i = find_entry(f, e->file);
	struct folder_entry *bigger;

	if (!is_good_name(e->file) || e->n_devices > FOLDER_DEVICES)
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

/* Adds a gap to those in memory; one that goes on with the last one makes that longer. Returns 0 or
 * -errno. */
static int put_gap(struct folder *f, const struct folder_gap *g)
{
	struct folder_gap *last = f->n_gaps ? &f->gaps[f->n_gaps - 1] : NULL, *bigger;

	bool goes_on = last && g->from <= last->to && g->to >= last->to;

	if (goes_on && !strcmp(last->why, g->why)) {
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

/* Adds missing recordings to those in memory. Returns 0 or -errno. */
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

/* What change_index() changes: entries to add, an entry to remove, a gap and missing recordings to
 * add. */
struct change {
	const struct folder_entry *add;
	size_t n_add;
	const char *drop; /* file of the entry to remove; NULL: none */
	const struct folder_gap *gap;
	const struct folder_missing *missing;
	size_t n_missing;
};

/* Reads the index again, because another program may have changed it, changes it and writes it, all
 * under the lock. Returns 0 or -errno. */
static int change_index(struct folder *f, const struct change *c)
{
	int err = lock_index(f, true);
	size_t i;

	if (err)
		return err;
	err = load_index(f, NULL);
	/* -ENOENT: the index was removed; keep the entries in memory. */
	if (err && err != -ENOENT)
		goto out;
	err = 0;
	i = c->drop ? find_entry(f, c->drop) : f->n_entries;
	if (i < f->n_entries) {
		memmove(&f->entries[i], &f->entries[i + 1],
			(f->n_entries - i - 1) * sizeof(*f->entries));
		f->n_entries--;
	}
	for (i = 0; i < c->n_add; i++)
		err = err ?: put_entry(f, &c->add[i]);
	if (c->gap)
		err = err ?: put_gap(f, c->gap);
	err = err ?: put_missing(f, c->missing, c->n_missing);
	if (err)
		goto out;
	sort_entries(f);
	err = store_index(f);
out:
	lock_index(f, false);
	return err;
}

int folder__add(struct folder *f, const struct folder_entry *e)
{
	return change_index(f, &(struct change){ .add = e, .n_add = 1 });
}

int folder__add_all(struct folder *f, const struct folder_entry *e, size_t n,
		    const struct folder_missing *missing, size_t n_missing)
{
	return change_index(
		f, &(struct change){
			   .add = e, .n_add = n, .missing = missing, .n_missing = n_missing });
}

int folder__drop(struct folder *f, const char *file, const struct folder_gap *gap)
{
	int err;

	if (!is_good_name(file))
		return -EINVAL;
	err = change_index(f, &(struct change){ .drop = file, .gap = gap });
	/* The file is removed after its entry, so that the index never names a missing file. */
	if (!err && unlinkat(f->dir, file, 0) && errno != ENOENT)
		err = -errno;
	return err;
}
