/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/rolling_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/open/rolling_view_internal.h"
#include "record/folder.h"
#include "record/mtr.h"
#include "record/mtr_rolling.h"

#define TOTALS_BYTES (INT64_C(64) << 20) /* bytes of the largest totals.json that is written */

/* ---- totals.json ---- */

static bool get_device(const json_t *o, struct ring_device *d)
{
	const json_t *name = json_object_get(o, "device");

	if (!json_is_string(name) || !json_string_length(name))
		return false;
	/* Reject a name that cleaning changes, because the writer only writes clean names. */
	text__clean(d->name, sizeof(d->name), json_string_value(name), json_string_length(name));
	if (strcmp(d->name, json_string_value(name)) != 0)
		return false;
	return folder__count(o, "allocated", &d->allocated) &&
	       folder__count(o, "reserved", &d->reserved) &&
	       folder__count(o, "peak_allocated", &d->peak_allocated) &&
	       folder__count(o, "peak_time_ns", &d->peak_time) &&
	       folder__count(o, "peak_step", &d->peak_step) &&
	       folder__count(o, "peak_reserved", &d->peak_reserved) &&
	       folder__count(o, "allocs", &d->allocs) && folder__count(o, "frees", &d->frees) &&
	       folder__count(o, "total_allocated", &d->total_allocated) &&
	       folder__count(o, "ooms", &d->ooms);
}

static bool get_whole(struct rolling_view *v)
{
	const json_t *whole = json_object_get(v->totals, "whole"),
		     *devices = json_object_get(whole, "devices"), *d;
	size_t i;

	if (!json_is_object(whole) || !folder__count(whole, "events", &v->events) ||
	    !folder__count(whole, "lost", &v->lost) || !folder__count(whole, "steps", &v->steps) ||
	    !folder__count(whole, "last_ns", &v->last) || !json_is_array(devices) ||
	    json_array_size(devices) > RING_DEVICES)
		return false;
	json_array_foreach(devices, i, d)
	{
		if (!get_device(d, &v->devices[i]))
			return false;
		v->n_devices = i + 1;
	}
	return true;
}

/* Reads an open file of a bounded size. NULL with *why, which buf may have. */
static json_t *parse_totals(int fd, char buf[256], const char **why)
{
	size_t size;
	char *text = io__load(fd, TOTALS_BYTES, &size);
	json_t *ret = NULL;
	int err;

	if (!text)
		return NULL;
	*why = TOTALS_FILE " makes no sense";
	err = room__check_more(json__memory_of(text, size));
	if (err)
		*why = room__why(buf, 256, err);
	else
		ret = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	free(text);
	return ret;
}

/* Reads totals.json: a regular file of bounded size, not a link. NULL with *why, which buf may
 * have. */
static json_t *read_totals(const char *folder, char buf[256], const char **why)
{
	json_t *ret;
	char *path;
	int fd;

	*why = TOTALS_FILE " cannot be read";
	if (asprintf(&path, "%s/%s", folder, TOTALS_FILE) < 0)
		return NULL;
	fd = io__open_regular(AT_FDCWD, path, LINKS_NONE, NULL);
	free(path);
	if (fd == -EINVAL)
		return NULL;
	if (fd < 0) {
		*why = "it has no " TOTALS_FILE;
		return NULL;
	}
	ret = parse_totals(fd, buf, why);
	close(fd);
	if (ret && json_integer_value(json_object_get(ret, "memtrace_totals")) > TOTALS_VERSION)
		*why = TOTALS_FILE
			" was made by a newer memtrace-bpf; use that version or a later one";
	else if (json_is_object(ret))
		return ret;
	json_decref(ret);
	return NULL;
}

/* ---- the folder ---- */

bool rolling_view__is(const char *path)
{
	struct stat st;
	char *totals;
	bool is;

	if (!folder__is(path) || asprintf(&totals, "%s/%s", path, TOTALS_FILE) < 0)
		return false;
	is = !lstat(totals, &st) && S_ISREG(st.st_mode);
	free(totals);
	return is;
}

void rolling_view__free(struct rolling_view *v)
{
	if (!v)
		return;
	json_decref(v->totals);
	folder__free(v->folder);
	free(v->segment);
	free(v);
}

int rolling_view__open(const char *path, struct rolling_view **ret)
{
	struct rolling_view *v = calloc(1, sizeof(*v));
	const char *why = NULL;
	char name[512], reason[256];
	int err;

	if (!v) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	text__clean(name, sizeof(name), path, strlen(path));
	err = folder__read(path, &v->folder, &why);
	if (!err) {
		v->entries = folder__entries(v->folder, &v->n);
		v->totals = read_totals(path, reason, &why);
	} else if (!why) {
		why = folder__why(err);
	}
	if (!err && v->totals && !get_whole(v))
		err = -EBADMSG;
	if (!err && v->totals && !v->n) {
		err = -ENOENT;
		why = "it has no part";
	}
	if (err || !v->totals) {
		log_err("%s: %s", name, why);
		rolling_view__free(v);
		return EXIT_UNUSABLE;
	}
	*ret = v;
	return EXIT_OK;
}

/* ---- choosing the part ---- */

const struct folder_device *rolling_view__device_of(const struct folder_entry *e, const char *name)
{
	for (size_t i = 0; i < e->n_devices; i++)
		if (!strcmp(e->devices[i].name, name))
			return &e->devices[i];
	return NULL;
}

static const struct ring_device *main_device(const struct rolling_view *v, const char *name)
{
	const struct ring_device *best = NULL;

	for (size_t i = 0; i < v->n_devices; i++) {
		const struct ring_device *d = &v->devices[i];

		if (name && (!strcmp(name, d->name) ||
			     (!strcmp(name, "cuda") && !strcmp(d->name, "cuda:0"))))
			return d;
		/* CPU last, as in a report. */
		if (!best || (!strcmp(best->name, "cpu") && strcmp(d->name, "cpu")) ||
		    (strcmp(d->name, "cpu") && d->peak_allocated > best->peak_allocated))
			best = d;
	}
	return name ? NULL : best;
}

/* Returns the part with the device's largest peak. The totals may lack what a killed recorder wrote
 * last. */
static size_t highest_peak(const struct rolling_view *v, const char *device, uint64_t *peak)
{
	size_t best = 0;

	*peak = 0;
	for (size_t i = 0; i < v->n; i++) {
		const struct folder_device *d = rolling_view__device_of(&v->entries[i], device);

		if (d && d->peak_allocated > *peak) {
			*peak = d->peak_allocated;
			best = i;
		}
	}
	return best;
}

static bool has_oom(const char *path)
{
	struct mtr_reader *r = mtr_reader__open(path, NULL);
	struct event e;
	bool found = false;

	while (r && !found && mtr_reader__next(r, &e) > 0)
		found = e.kind == EVENT_OOM;
	mtr_reader__free(r);
	return found;
}

static int set_segment(struct rolling_view *v, size_t i)
{
	free(v->segment);
	v->picked = i;
	if (asprintf(&v->segment, "%s/%s", folder__path(v->folder), v->entries[i].file) >= 0)
		return EXIT_OK;
	v->segment = NULL;
	log_err("out of memory");
	return EXIT_FAILED;
}

/* Chooses the first part that has an out-of-memory event. */
static int pick_oom(struct rolling_view *v)
{
	bool any = false;
	char name[512];

	for (size_t i = 0; i < v->n_devices; i++)
		any |= v->devices[i].ooms != 0;
	for (size_t i = 0; i < v->n; i++) {
		int status = set_segment(v, i);

		if (status)
			return status;
		if (has_oom(v->segment))
			return EXIT_OK;
	}
	log_err("%s: %s; try --at peak",
		text__clean(name, sizeof(name), folder__path(v->folder),
			    strlen(folder__path(v->folder))),
		any ? "the part with the out-of-memory error was dropped"
		    : "nothing ran out of memory in it");
	return EXIT_UNUSABLE;
}

static int pick_time(struct rolling_view *v, uint64_t time)
{
	char name[512], at[24], from[24];
	size_t i = v->n - 1, gaps;

	while (i && v->entries[i].from > time)
		i--;
	folder__gaps(v->folder, &gaps);
	if (v->entries[i].from <= time || !gaps)
		return set_segment(v, i);
	log_err("%s: the part at %s was dropped; the recording now starts at %s",
		text__clean(name, sizeof(name), folder__path(v->folder),
			    strlen(folder__path(v->folder))),
		text__time(at, sizeof(at), time),
		text__time(from, sizeof(from), v->entries[0].from));
	return EXIT_UNUSABLE;
}

static int pick_peak(struct rolling_view *v)
{
	uint64_t there;
	size_t i;

	if (!v->device)
		return set_segment(v, v->n - 1);
	i = highest_peak(v, v->device->name, &there);
	v->peak_gone = there < v->device->peak_allocated;
	return set_segment(v, i);
}

/* The index of a folder has no marks. */
static int no_marks(const struct rolling_view *v)
{
	char name[512];

	text__clean(name, sizeof(name), folder__path(v->folder), strlen(folder__path(v->folder)));
	log_err("%s: --at mark:NAME is for one part: %s#12", name, name);
	return EXIT_UNUSABLE;
}

int rolling_view__segment(struct rolling_view *v, const struct model_opts *at, const char *device,
			  const char **ret)
{
	int status;

	v->at = at->at;
	v->device = main_device(v, device);
	switch (at->at) {
	case AT_PEAK:
		status = pick_peak(v);
		break;
	case AT_OOM:
		status = pick_oom(v);
		break;
	case AT_TIME:
		if (*at->at_mark)
			return no_marks(v);
		status = pick_time(v, at->at_time);
		break;
	default:
		status = set_segment(v, v->n - 1);
	}
	*ret = v->segment;
	return status;
}
