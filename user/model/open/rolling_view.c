/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/inputs.h"

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
#include "record/folder.h"
#include "record/mtr.h"
#include "record/mtr_rolling.h"

#define RING_DEVICES 64 /* maximum number of devices in totals.json */

/* Totals of a device over the whole run. */
struct ring_device {
	char name[16];
	uint64_t allocated, reserved, peak_allocated, peak_time, peak_step, peak_reserved;
	uint64_t allocs, frees, total_allocated, ooms;
};

struct rolling_view {
	struct folder *folder;
	const struct folder_entry *entries;
	size_t n;
	json_t *totals;
	uint64_t events, lost, steps, last; /* last: time of the last event, ns */
	struct ring_device devices[RING_DEVICES];
	size_t n_devices;
	/* The chosen moment, device and part. */
	const struct ring_device *device; /* chosen device; NULL: none */
	enum moment at;
	size_t picked;	/* index of the part in entries */
	char *segment;	/* its path */
	bool peak_gone; /* the part with the device's peak was deleted */
};

#define TOTALS_BYTES (INT64_C(64) << 20) /* maximum size of totals.json, as its writer has it */

static const char *clean(char *buf, size_t size, const char *s)
{
	return text__clean(buf, size, s, strlen(s));
}

/* ---- totals.json ---- */

/* Reads the totals of a device. False: they make no sense. */
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

/* Reads the totals of the whole run. False: they are missing or make no sense. */
static bool get_whole(struct rolling_view *v)
{
	const json_t *whole = json_object_get(v->totals, "whole"), *d;
	const json_t *devices = json_object_get(whole, "devices");
	size_t i;

	if (!json_is_object(whole) || !folder__count(whole, "events", &v->events) ||
	    !folder__count(whole, "lost", &v->lost) || !folder__count(whole, "steps", &v->steps) ||
	    !folder__count(whole, "last_ns", &v->last) || !json_is_array(devices) ||
	    json_array_size(devices) > RING_DEVICES)
		return false;
	json_array_foreach(devices, i, d) {
		if (!get_device(d, &v->devices[i]))
			return false;
		v->n_devices = i + 1;
	}
	return true;
}

/* Parses totals.json, at most TOTALS_BYTES long. Returns NULL, and *why, static or in buf, if it
 * fails. */
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

/* Reads totals.json, which must be a regular file and not a link. Returns NULL, and *why, static or
 * in buf, if it fails. */
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
	bool exists;

	if (!folder__is(path) || asprintf(&totals, "%s/%s", path, TOTALS_FILE) < 0)
		return false;
	exists = !lstat(totals, &st) && S_ISREG(st.st_mode);
	free(totals);
	return exists;
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
	struct rolling_view *view = calloc(1, sizeof(*view));
	const char *why = NULL;
	char name[512], reason[256];
	int err;

	if (!view) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	clean(name, sizeof(name), path);
	err = folder__read(path, &view->folder, &why);
	if (err) {
		why = why ?: folder__why(err);
		goto unusable;
	}
	view->entries = folder__entries(view->folder, &view->n);
	view->totals = read_totals(path, reason, &why);
	if (!view->totals || !get_whole(view))
		goto unusable;
	if (!view->n) {
		why = "it has no part";
		goto unusable;
	}
	*ret = view;
	return EXIT_OK;
unusable:
	log_err("%s: %s", name, why);
	rolling_view__free(view);
	return EXIT_UNUSABLE;
}

/* ---- choosing the part ---- */

/* Returns the part's figures of the device of this name; NULL: none. */
static const struct folder_device *device_of(const struct folder_entry *e, const char *name)
{
	for (size_t i = 0; i < e->n_devices; i++)
		if (!strcmp(e->devices[i].name, name))
			return &e->devices[i];
	return NULL;
}

/* Returns the device with this name; with name NULL, the one that a report shows. NULL: none. */
static const struct ring_device *choose_device(const struct rolling_view *v, const char *name)
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

/* Returns the index of the part with the device's largest peak, and *peak. The totals do not say
 * it: a recorder that was killed may not have updated them. */
static size_t highest_peak(const struct rolling_view *v, const char *device, uint64_t *peak)
{
	size_t best = 0;

	*peak = 0;
	for (size_t i = 0; i < v->n; i++) {
		const struct folder_device *d = device_of(&v->entries[i], device);

		if (d && d->peak_allocated > *peak) {
			*peak = d->peak_allocated;
			best = i;
		}
	}
	return best;
}

/* True if the recording has an out-of-memory event. */
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

/* Chooses part i. Returns an exit code, logged. */
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

/* Chooses the first part that has an out-of-memory event. Returns an exit code, logged. */
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
	log_err("%s: %s; try --at peak", clean(name, sizeof(name), folder__path(v->folder)),
		any ? "the part with the out-of-memory error was dropped"
		    : "nothing ran out of memory in it");
	return EXIT_UNUSABLE;
}

/* Chooses the part at a time, ns. A time before the first part is an error if parts were deleted.
 * Returns an exit code, logged. */
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
		clean(name, sizeof(name), folder__path(v->folder)),
		text__time(at, sizeof(at), time),
		text__time(from, sizeof(from), v->entries[0].from));
	return EXIT_UNUSABLE;
}

/* Chooses the part with the highest peak of the chosen device that is left, or the last part if no
 * device is chosen. Sets v->peak_gone if a deleted part had a higher one. Returns an exit code,
 * logged. */
static int pick_peak(struct rolling_view *v)
{
	uint64_t highest;
	size_t i;

	if (!v->device)
		return set_segment(v, v->n - 1);
	i = highest_peak(v, v->device->name, &highest);
	v->peak_gone = highest < v->device->peak_allocated;
	return set_segment(v, i);
}

/* Logs that --at mark:NAME needs a part: the index of a folder does not have the marks. */
static int log_one_part(const struct rolling_view *v, const char *moment)
{
	char name[512];

	clean(name, sizeof(name), folder__path(v->folder));
	log_err("%s: --at %s is for one part: %s#12", name, moment, name);
	return EXIT_UNUSABLE;
}

int rolling_view__segment(struct rolling_view *v, const struct model_opts *at, const char *device,
			  const char **ret)
{
	int status;

	v->at = at->at;
	v->device = choose_device(v, device);
	switch (at->at) {
	case AT_PEAK:
		status = pick_peak(v);
		break;
	case AT_OOM:
		status = pick_oom(v);
		break;
	case AT_TIME:
		if (*at->at_mark)
			return log_one_part(v, "mark:NAME");
		if (*at->at_scope)
			return log_one_part(v, "scope:NAME");
		status = pick_time(v, at->at_time);
		break;
	default:
		status = set_segment(v, v->n - 1);
	}
	*ret = v->segment;
	return status;
}

/* ---- printing ---- */

#define LINES 12 /* lines in the table of memory over time */
#define SECOND UINT64_C(1000000000)

/* Returns the end of the last deleted part, ns, or 0 if none was. *events: events of all deleted
 * parts. */
static uint64_t removed_until(const struct rolling_view *v, uint64_t *events)
{
	const struct folder_gap *gaps;
	uint64_t to = 0;
	size_t n;

	*events = 0;
	gaps = folder__gaps(v->folder, &n);
	for (size_t i = 0; i < n; i++) {
		to = gaps[i].to > to ? gaps[i].to : to;
		*events += gaps[i].events;
	}
	return to;
}

/* Prints the folder, its parts and what they have, and what was dropped before them. */
static void print_head(const struct rolling_view *v, FILE *out)
{
	char name[256], count[32], lost[32], steps[32], when[24];
	uint64_t events, gone = removed_until(v, &events);

	fprintf(out, "%s: %zu segment%s%s%s%s%s, %s lost",
		clean(name, sizeof(name), folder__path(v->folder)), v->n, v->n == 1 ? "" : "s",
		text__dot(), text__time(when, sizeof(when), v->last), text__dot(),
		text__counted(count, sizeof(count), v->events, "event"),
		text__count(lost, sizeof(lost), v->lost));
	if (v->steps)
		fprintf(out, "%s%s", text__dot(),
			text__counted(steps, sizeof(steps), v->steps, "step"));
	fprintf(out, "\n");
	if (gone)
		fprintf(out, "The first %s, %s, are dropped: of them there are totals alone.\n",
			text__time(when, sizeof(when), gone),
			text__counted(count, sizeof(count), events, "event"));
}

/* Prints the device's figures of the whole capture, also of dropped parts. */
static void print_device(const struct ring_device *d, FILE *out)
{
	char peak[24], when[24], reserved[24], allocs[32], total[24], ooms[32], step[40];

	fprintf(out, "%s  peak %s allocated", d->name,
		text__bytes(peak, sizeof(peak), d->peak_allocated));
	if (d->peak_reserved)
		fprintf(out, ", %s reserved,",
			text__bytes(reserved, sizeof(reserved), d->peak_reserved));
	fprintf(out, " at %s", text__time(when, sizeof(when), d->peak_time));
	if (d->peak_step)
		fprintf(out, " (%s)", text__step(step, d->peak_step));
	fprintf(out, "%s%s allocations of %s", text__dot(),
		text__count(allocs, sizeof(allocs), d->allocs),
		text__bytes(total, sizeof(total), d->total_allocated));
	if (d->ooms)
		fprintf(out, "%sout of memory %s times", text__dot(),
			text__count(ooms, sizeof(ooms), d->ooms));
	fprintf(out, "\n");
}

/* ---- memory over time ---- */

/* A line of the table of memory over time. */
struct piece {
	uint64_t from;	    /* s since the start */
	uint64_t max, last; /* largest and last allocated bytes */
	uint64_t reserved;  /* largest reserved bytes */
	bool any;	    /* there are values */
};

/* Returns the device's history in totals.json, from the finest resolution to the coarsest; NULL:
 * none. */
static const json_t *levels_of(const struct rolling_view *v, const char *device)
{
	const json_t *series = json_object_get(v->totals, "series"), *s;
	size_t i;

	json_array_foreach(series, i, s) {
		const json_t *of = json_object_get(s, "of");

		if (json_is_string(of) && !strcmp(json_string_value(of), device))
			return json_object_get(s, "levels");
	}
	return NULL;
}

/* Returns the index of the column with this name in the device's history; SIZE_MAX: none. */
static size_t column_of(const struct rolling_view *v, const char *device, const char *name)
{
	const json_t *series = json_object_get(v->totals, "series"), *s, *c;
	size_t i, k;

	json_array_foreach(series, i, s) {
		const json_t *of = json_object_get(s, "of");

		if (!json_is_string(of) || strcmp(json_string_value(of), device))
			continue;
		json_array_foreach(json_object_get(s, "columns"), k, c)
			if (json_is_string(c) && !strcmp(json_string_value(c), name))
				return k;
	}
	return SIZE_MAX;
}

/* Returns the row's value; 0: it is missing or negative. */
static uint64_t value_of(const json_t *row, size_t column)
{
	json_int_t value = json_integer_value(json_array_get(row, column));

	return value > 0 ? (uint64_t)value : 0;
}

/* Returns the finest resolution of a history that reaches back to its start. */
static const json_t *level_from_begin(const json_t *levels)
{
	const json_t *level,
		*coarsest = json_array_get(
			levels, json_array_size(levels) ? json_array_size(levels) - 1 : 0);
	uint64_t begin = value_of(json_array_get(json_object_get(coarsest, "rows"), 0), 0);
	size_t i;

	json_array_foreach(levels, i, level) {
		const json_t *rows = json_object_get(level, "rows");
		uint64_t from = value_of(json_array_get(rows, 0), 0);

		/* Levels begin at multiples of their own step, so a finer one may begin later,
		 * within the coarsest level's first step. */
		if (json_array_size(rows) &&
		    from < begin + (uint64_t)json_integer_value(json_object_get(coarsest, "step")))
			return level;
	}
	return coarsest;
}

/* Divides a level's rows into LINES pieces of equal time. Returns the number of pieces with values.
 */
static size_t fill_pieces(const struct rolling_view *v, const json_t *level, struct piece *pieces)
{
	size_t max_column = column_of(v, v->device->name, "allocated_max");
	size_t last_column = column_of(v, v->device->name, "allocated");
	size_t reserved_column = column_of(v, v->device->name, "reserved_max"), i, n = 0;
	const json_t *rows = json_object_get(level, "rows"), *row;
	uint64_t begin = value_of(json_array_get(rows, 0), 0), end = v->last / SECOND + 1;
	uint64_t span = end > begin ? end - begin : 1;

	json_array_foreach(rows, i, row) {
		uint64_t time = value_of(row, 0); /* column 0 is the time, s */
		uint64_t max = value_of(row, max_column);
		uint64_t reserved = value_of(row, reserved_column);
		size_t place = time < begin ? 0 : (size_t)((time - begin) * LINES / span);
		struct piece *piece;

		if (!json_is_array(row) || place >= LINES)
			continue;
		piece = &pieces[place];
		if (!piece->any)
			piece->from = time;
		piece->any = true;
		piece->last = value_of(row, last_column);
		piece->max = max > piece->max ? max : piece->max;
		piece->reserved = reserved > piece->reserved ? reserved : piece->reserved;
	}
	for (size_t k = 0; k < LINES; k++)
		n += pieces[k].any;
	return n;
}

/* Prints the chosen device's memory in pieces of equal time; nothing for fewer than two. */
static void print_memory_over_time(const struct rolling_view *v, FILE *out)
{
	const json_t *levels = v->device ? levels_of(v, v->device->name) : NULL;
	struct piece pieces[LINES] = { 0 };
	char when[24], max[24], last[24], reserved[24];

	if (!json_is_array(levels) || !json_array_size(levels) ||
	    fill_pieces(v, level_from_begin(levels), pieces) < 2)
		return;
	fprintf(out, "\n%14s %12s %12s %12s  %s\n", "from", "at most", "in the end", "reserved",
		v->device->name);
	for (size_t i = 0; i < LINES; i++) {
		const struct piece *p = &pieces[i];

		if (p->any)
			fprintf(out, "%14s %12s %12s %12s\n",
				text__time(when, sizeof(when), p->from * SECOND),
				text__bytes(max, sizeof(max), p->max),
				text__bytes(last, sizeof(last), p->last),
				p->reserved ? text__bytes(reserved, sizeof(reserved), p->reserved)
					    : "-");
	}
}

/* ---- output ---- */

void rolling_view__print(const struct rolling_view *v, FILE *out)
{
	const struct folder_entry *entry = &v->entries[v->picked];
	const struct folder_device *there = v->device ? device_of(entry, v->device->name) : NULL;
	char file[256], from[24], to[24], peak[24];

	print_head(v, out);
	for (size_t i = 0; i < v->n_devices; i++)
		print_device(&v->devices[i], out);
	print_memory_over_time(v, out);
	fprintf(out, "\n");
	if (v->at == AT_PEAK && v->peak_gone)
		fprintf(out,
			"The segment of that peak is dropped: below is the highest that is there, "
			"%s.\n",
			there ? text__bytes(peak, sizeof(peak), there->peak_allocated) : "0 B");
	fprintf(out, "From here on of %s, %s to %s:\n\n", clean(file, sizeof(file), entry->file),
		text__time(from, sizeof(from), entry->from), text__time(to, sizeof(to), entry->to));
}

void rolling_view__json(const struct rolling_view *v, struct json *j)
{
	uint64_t gone_events, gone = removed_until(v, &gone_events);

	json__open_object(j, "rolling");
	json__string(j, "folder", folder__path(v->folder));
	json__string(j, "segment", v->entries[v->picked].file);
	json__seconds(j, "segment_from", v->entries[v->picked].from, /*decimals=*/9);
	json__seconds(j, "segment_to", v->entries[v->picked].to, /*decimals=*/9);
	json__uint(j, "segments", v->n);
	json__bool(j, "peak_dropped", v->at == AT_PEAK && v->peak_gone);
	json__seconds(j, "duration", v->last, /*decimals=*/9);
	json__uint(j, "events", v->events);
	json__uint(j, "lost", v->lost);
	json__uint(j, "steps", v->steps);
	json__seconds(j, "dropped_until", gone, /*decimals=*/9);
	json__uint(j, "dropped_events", gone_events);
	json__open_array(j, "devices");
	for (size_t i = 0; i < v->n_devices; i++) {
		const struct ring_device *d = &v->devices[i];

		json__open_object(j, NULL);
		json__string(j, "device", d->name);
		json__uint(j, "allocated", d->allocated);
		json__uint(j, "reserved", d->reserved);
		json__uint(j, "peak_allocated", d->peak_allocated);
		json__seconds(j, "peak_time", d->peak_time, /*decimals=*/9);
		json__uint(j, "peak_step", d->peak_step);
		json__uint(j, "peak_step_number", d->peak_step + 1);
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "total_allocated", d->total_allocated);
		json__uint(j, "allocs", d->allocs);
		json__uint(j, "frees", d->frees);
		json__uint(j, "ooms", d->ooms);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}
