/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads and writes index.json. It has times in seconds and sizes in bytes, as all machine
 * formats. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/folder_internal.h"
#include "record/json_items.h"
#include "base/array.h"
#include "base/json.h"
#include "base/outfile.h"
#include "base/io.h"

#define INDEX_VERSION 1
#define INDEX_BYTES (256 << 20) /* bytes of the largest accepted index, read by element */

/* ---- writing ---- */

static void put_text(struct json *j, const char *key, const char *s)
{
	if (*s)
		json__string(j, key, s);
}

static void put_known(struct json *j, const char *key, int64_t v)
{
	if (v >= 0)
		json__int(j, key, v);
}

static void put_entry(struct json *j, const struct folder_entry *e)
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
	json__seconds(j, "from", e->from, 9);
	json__seconds(j, "to", e->to, 9);
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

static void put_missing(struct json *j, const struct folder *f)
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

static int put_index(FILE *out, const void *ctx)
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
		put_entry(j, &f->entries[i]);
	json__close_array(j);
	json__open_array(j, "gaps");
	for (size_t i = 0; i < f->n_gaps; i++) {
		json__open_object(j, NULL);
		json__seconds(j, "from", f->gaps[i].from, 9);
		json__seconds(j, "to", f->gaps[i].to, 9);
		json__uint(j, "events", f->gaps[i].events);
		json__uint(j, "bytes", f->gaps[i].bytes);
		put_text(j, "why", f->gaps[i].why);
		json__close_object(j);
	}
	json__close_array(j);
	if (f->n_missing)
		put_missing(j, f);
	json__close_object(j);
	json__free(j);
	return 0;
}

int folder__store(struct folder *f)
{
	return outfile__rewrite(f->path, FOLDER_INDEX, put_index, f);
}

/* ---- reading ---- */

/* Reads a text, "" if the key is missing. False: not a text, or too long. */
static bool get_text(const json_t *o, const char *key, char *buf, size_t size)
{
	const json_t *v = json_object_get(o, key);

	buf[0] = '\0';
	if (!v)
		return true;
	if (!json_is_string(v) || json_string_length(v) >= size ||
	    strlen(json_string_value(v)) != json_string_length(v))
		return false;
	memcpy(buf, json_string_value(v), json_string_length(v) + 1);
	return true;
}

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

static bool get_seconds(const json_t *o, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);
	double s = json_number_value(v);

	if (!json_is_number(v) || !isfinite(s) || s < 0 || s > 1e9)
		return false;
	*ret = (uint64_t)llround(s * 1e9);
	return true;
}

static bool get_devices(const json_t *o, struct folder_entry *e)
{
	const json_t *a = json_object_get(o, "devices"), *d;
	size_t i;

	e->n_devices = json_array_size(a);
	if (!json_is_array(a) || e->n_devices > FOLDER_DEVICES)
		return false;
	json_array_foreach(a, i, d)
	{
		struct folder_device *to = &e->devices[i];

		if (!json_is_object(d) || !get_text(d, "device", to->name, sizeof(to->name)) ||
		    !to->name[0] || !folder__count(d, "peak_allocated", &to->peak_allocated) ||
		    !folder__count(d, "peak_reserved", &to->peak_reserved) ||
		    !folder__count(d, "allocated", &to->allocated) ||
		    !folder__count(d, "reserved", &to->reserved))
			return false;
	}
	return true;
}

static bool get_entry(const json_t *o, struct folder_entry *e)
{
	memset(e, 0, sizeof(*e));
	return json_is_object(o) && get_text(o, "file", e->file, sizeof(e->file)) &&
	       folder__good_name(e->file) && get_text(o, "kind", e->kind, sizeof(e->kind)) &&
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

static bool get_gap(const json_t *o, struct folder_gap *g)
{
	memset(g, 0, sizeof(*g));
	return json_is_object(o) && get_seconds(o, "from", &g->from) &&
	       get_seconds(o, "to", &g->to) && folder__count(o, "events", &g->events) &&
	       folder__count(o, "bytes", &g->bytes) && get_text(o, "why", g->why, sizeof(g->why));
}

static bool get_missing(const json_t *o, struct folder_missing *m)
{
	memset(m, 0, sizeof(*m));
	return json_is_object(o) && get_text(o, "host", m->host, sizeof(m->host)) &&
	       get_known(o, "pid", &m->pid) && get_known(o, "rank", &m->rank) &&
	       get_text(o, "why", m->why, sizeof(m->why));
}

/* An index while it is read. */
struct reading {
	struct folder new;
	size_t room, gaps_room, missing_room;
	bool seen[3]; /* of each array */
	int64_t version;
	const char *why;
};

enum index_array { INDEX_RECORDINGS, INDEX_GAPS, INDEX_MISSING };
static const char *const index_arrays[] = { "recordings", "gaps", "missing", NULL };

static enum index_array array_of(const char *name)
{
	int i = 0;

	while (strcmp(index_arrays[i], name))
		i++;
	return i;
}

static int begin_array(struct reading *r, enum index_array which)
{
	if (r->seen[which])
		return -EBADMSG;
	r->seen[which] = true;
	return 0;
}

static int take_item(void *ctx, const char *array, json_t *o)
{
	enum index_array which = array_of(array);
	struct reading *r = ctx;
	struct folder *f = &r->new;
	size_t n = which == INDEX_RECORDINGS ? f->n_entries
		   : which == INDEX_GAPS     ? f->n_gaps
					     : f->n_missing;
	bool good;

	if (!o)
		return begin_array(r, which);
	r->why = "it has too many recordings";
	if (n >= FOLDER_MAX)
		return -EBADMSG;
	r->why = "it has an invalid entry";
	if (which == INDEX_RECORDINGS) {
		if (array__grow(&f->entries, &r->room, n + 1, sizeof(*f->entries)))
			return -ENOMEM;
		good = get_entry(o, &f->entries[f->n_entries++]);
	} else if (which == INDEX_GAPS) {
		if (array__grow(&f->gaps, &r->gaps_room, n + 1, sizeof(*f->gaps)))
			return -ENOMEM;
		good = get_gap(o, &f->gaps[f->n_gaps++]);
	} else {
		if (array__grow(&f->missing, &r->missing_room, n + 1, sizeof(*f->missing)))
			return -ENOMEM;
		good = get_missing(o, &f->missing[f->n_missing++]);
	}
	if (!good)
		return -EBADMSG;
	r->why = "it is not JSON";
	return 0;
}

static int take_member(void *ctx, const char *key, const json_t *value)
{
	struct reading *r = ctx;

	r->why = "it is not an index of recordings";
	if (strcmp(key, "memtrace_folder") != 0)
		return 0;
	if (r->version || !json_is_integer(value) || json_integer_value(value) < INDEX_VERSION)
		return -EBADMSG;
	r->version = json_integer_value(value);
	if (r->version == INDEX_VERSION)
		return 0;
	r->why = NULL;
	return -EPROTONOSUPPORT;
}

/* Replaces the entries, after all of the document was valid. */
static void replace(struct folder *f, const struct folder *new)
{
	free(f->entries);
	free(f->gaps);
	free(f->missing);
	f->entries = new->entries;
	f->n_entries = new->n_entries;
	f->gaps = new->gaps;
	f->n_gaps = new->n_gaps;
	f->missing = new->missing;
	f->n_missing = new->n_missing;
	folder__sort(f);
}

int folder__load(struct folder *f, const char **why)
{
	struct reading r = { .new = { .path = f->path }, .why = "it is not JSON" };
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
	if (!err && (!r.version || !r.seen[INDEX_RECORDINGS])) {
		r.why = "it is not an index of recordings";
		err = -EBADMSG;
	}
	if (!err) {
		replace(f, &r.new);
		return 0;
	}
	*why = err == -EMSGSIZE ? "it has an invalid entry" : r.why;
	free(r.new.entries);
	free(r.new.gaps);
	free(r.new.missing);
	return err == -EMSGSIZE ? -EBADMSG : err;
}
