/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A heap profile in Go's pprof format (github.com/google/pprof, proto/profile.proto) with its
 * sample types, so that its tools accept it. It has all allocations and the memory in use at the
 * marked moment. Each frame is a location and a function of its own, because some readers keep only
 * one line per function.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "export/export.h"
#include "export/formats/frames.h"
#include "export/formats/gzip.h"
#include "export/formats/pb.h"
#include "model/holders.h"
#include "record/detail.h"
#include "record/dict.h"

/* Field numbers of profile.proto. */
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { LABEL_KEY = 1, LABEL_STR, LABEL_NUM };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LINE_FUNCTION = 1, LINE_LINE };
enum { LOCATION_ID = 1, LOCATION_LINE = 4 };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE };
enum {
	PROFILE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION,
	PROFILE_STRING,
	PROFILE_TIME = 9,
	PROFILE_DURATION,
	PROFILE_COMMENT = 13,
	PROFILE_DEFAULT_TYPE,
};

#define TYPES 4 /* sample values: two for all allocations, two for memory in use */

struct pprof {
	struct gzip *z;
	struct frames *frames;
	/* String table: a dict used only for strings, whose string 0 is "" as required. */
	struct dict *strings;
	struct pb part;	  /* a message of the profile */
	struct pb inner;  /* the field of the profile that has the message */
	struct pb inmost; /* a message within the message */
	int err;	  /* first error, -errno */
};

/* Returns the number of a string in the profile's string table, which it adds on demand. */
static uint32_t string_number(struct pprof *p, const char *s)
{
	uint32_t id = dict__string(p->strings, s, strlen(s));

	if (id == UINT32_MAX) {
		p->err = -errno;
		return 0;
	}
	return id;
}

/* Writes p->part as a field of the profile. */
static void put_part(struct pprof *p, uint32_t field)
{
	if (p->part.failed) {
		p->err = -ENOMEM;
		return;
	}
	pb__clear(&p->inner);
	pb__message(&p->inner, field, &p->part);
	gzip__write(p->z, p->inner.data, p->inner.len);
	if (p->inner.failed)
		p->err = -ENOMEM;
}

/* Writes a number as a field of the profile. */
static void put_number(struct pprof *p, uint32_t field, uint64_t v)
{
	pb__clear(&p->inner);
	pb__uint(&p->inner, field, v);
	gzip__write(p->z, p->inner.data, p->inner.len);
}

/* Writes what the values of a sample are. Memory in use is shown first. */
static void put_types(struct pprof *p)
{
	static const char *const types[TYPES][2] = {
		{ "alloc_objects", "count" },
		{ "alloc_space", "bytes" },
		{ "inuse_objects", "count" },
		{ "inuse_space", "bytes" },
	};

	for (int i = 0; i < TYPES; i++) {
		pb__clear(&p->part);
		pb__uint(&p->part, TYPE_TYPE, string_number(p, types[i][0]));
		pb__uint(&p->part, TYPE_UNIT, string_number(p, types[i][1]));
		put_part(p, PROFILE_TYPE);
	}
	put_number(p, PROFILE_DEFAULT_TYPE, string_number(p, types[TYPES - 1][0]));
}

/* Adds a label to the sample in p->part; none for an empty value. */
static void add_label(struct pprof *p, const char *key, const char *value)
{
	if (!value || !*value)
		return;
	pb__clear(&p->inmost);
	pb__uint(&p->inmost, LABEL_KEY, string_number(p, key));
	pb__uint(&p->inmost, LABEL_STR, string_number(p, value));
	pb__message(&p->part, SAMPLE_LABEL, &p->inmost);
}

static void add_number_label(struct pprof *p, const char *key, uint64_t value)
{
	pb__clear(&p->inmost);
	pb__uint(&p->inmost, LABEL_KEY, string_number(p, key));
	pb__uint(&p->inmost, LABEL_NUM, value);
	pb__message(&p->part, SAMPLE_LABEL, &p->inmost);
}

/* Adds what is known about a row to the sample in p->part. total: the row counts all allocations. */
static void add_labels(struct pprof *p, const char *device, const struct row *row, bool total)
{
	add_label(p, "device", device);
	add_label(p, "module", row->module);
	add_label(p, "module_class", row->module_class);
	if (!total) /* the category is known only for live blocks, not for all allocations */
		add_label(p, "category", row->category);
	if (row->before_attach)
		return;
	add_label(p, "phase", phase__name(row->phase));
	add_label(p, "thread", row->thread);
	if (row->tid)
		add_number_label(p, "tid", row->tid);
}

/* Writes a sample. total: the row counts all allocations, so the values for memory in use are 0;
 * otherwise the reverse. Returns 0 or -errno. */
static int put_sample(struct pprof *p, const char *device, const struct row *row, bool total)
{
	const uint32_t *frames;
	uint32_t n;
	int err = frames__of_row(p->frames, row, &frames, &n);

	if (err)
		return err;
	pb__clear(&p->part);
	while (n--) /* innermost first */
		pb__uint(&p->part, SAMPLE_LOCATION, (uint64_t)frames[n] + 1);
	pb__uint(&p->part, SAMPLE_VALUE, total ? row->count : 0);
	pb__uint(&p->part, SAMPLE_VALUE, total ? row->bytes : 0);
	pb__uint(&p->part, SAMPLE_VALUE, total ? 0 : row->count);
	pb__uint(&p->part, SAMPLE_VALUE, total ? 0 : row->bytes);
	add_labels(p, device, row, total);
	put_part(p, PROFILE_SAMPLE);
	return p->err;
}

/* Writes the samples of a device at the marked moment or for all allocations (when). Returns 0,
 * -ENOENT if it lacks the moment, or -errno. */
static int put_view(struct export_ctx *c, struct pprof *p, size_t device, enum row_when when)
{
	const struct row_opts opts = {
		.split = 1 << BY_STACK | 1 << BY_MODULE | 1 << BY_PHASE | 1 << BY_THREAD |
			 1 << BY_CATEGORY,
		.when = when,
	};
	struct model_device d;
	struct holder_rows rows;
	int err = frames__rows(c->model, device, &opts, &rows);

	if (err)
		return err;
	model__device(c->model, device, &d);
	for (size_t i = 0; i < rows.n && !err; i++)
		if (rows.all[i].bytes || rows.all[i].count)
			err = put_sample(p, d.name, &rows.all[i], when == ROWS_TOTAL);
	holder_rows__free(&rows);
	return err;
}

/* Writes the samples of the chosen device, or of all. Returns 0, -ENODATA (no devices), -ENOENT (no
 * device has the moment) or -errno. */
static int put_samples(struct export_ctx *c, struct pprof *p)
{
	size_t n = model__devices(c->model);
	bool marked = false;
	int err = n ? 0 : -ENODATA;

	for (size_t i = 0; i < n && !err; i++) {
		if (c->device >= 0 && (size_t)c->device != i)
			continue;
		err = put_view(c, p, i, ROWS_AT_MARK);
		marked |= !err;
		if (err && err != -ENOENT)
			break;
		err = put_view(c, p, i, ROWS_TOTAL);
	}
	if (!err && !marked)
		err = -ENOENT;
	return err;
}

/* Writes frame i as a function and a location, both with the ID i + 1, since 0 is not allowed.
 * Returns 0 or -errno. */
static int put_frame(struct pprof *p, uint32_t i)
{
	const struct frame *f = frames__at(p->frames, i);
	char *name = NULL;

	if (f->line && asprintf(&name, "%s:%" PRIu32, f->name, f->line) < 0)
		return -ENOMEM;
	pb__clear(&p->part);
	pb__uint(&p->part, FUNCTION_ID, (uint64_t)i + 1);
	pb__uint(&p->part, FUNCTION_NAME, string_number(p, name ? name : f->name));
	pb__uint(&p->part, FUNCTION_SYSTEM_NAME, string_number(p, f->name));
	if (f->file)
		pb__uint(&p->part, FUNCTION_FILE, string_number(p, f->file));
	put_part(p, PROFILE_FUNCTION);
	free(name);
	pb__clear(&p->inmost);
	pb__uint(&p->inmost, LINE_FUNCTION, (uint64_t)i + 1);
	if (f->line)
		pb__uint(&p->inmost, LINE_LINE, f->line);
	pb__clear(&p->part);
	pb__uint(&p->part, LOCATION_ID, (uint64_t)i + 1);
	pb__message(&p->part, LOCATION_LINE, &p->inmost);
	put_part(p, PROFILE_LOCATION);
	return p->err;
}

/* Writes the start, the duration, and what else is known as comments. */
static void put_facts(struct export_ctx *c, struct pprof *p)
{
	const char *start = facts__get(c->facts, "start");
	const char *version = facts__get(c->facts, "version") ?: "unknown";
	char comment[DETAIL_TEXT + 32], detail[DETAIL_TEXT], name[128];
	uint64_t time;

	if (start && !text__parse_date(start, &time))
		put_number(p, PROFILE_TIME, time);
	put_number(p, PROFILE_DURATION, c->duration);
	text__clean(name, sizeof(name), c->name, strlen(c->name));
	snprintf(comment, sizeof(comment), "%s; in use: at %s; memtrace-bpf %s", name, c->moment,
		 version);
	put_number(p, PROFILE_COMMENT, string_number(p, comment));
	if (!*detail__reduced(detail, sizeof(detail), c->facts))
		return;
	snprintf(comment, sizeof(comment), "reduced detail: %s", detail);
	put_number(p, PROFILE_COMMENT, string_number(p, comment));
}

/* Writes the string table. Call it last, because the other parts add to it. */
static void put_strings(struct pprof *p)
{
	uint32_t n = dict__counts(p->strings).strings;

	for (uint32_t i = 0; i < n; i++) {
		pb__clear(&p->inner);
		pb__string(&p->inner, PROFILE_STRING, dict__str(p->strings, i));
		gzip__write(p->z, p->inner.data, p->inner.len);
		if (p->inner.failed)
			p->err = -ENOMEM;
	}
}

/* Writes the whole profile. Returns 0 or -errno. */
static int put_profile(struct export_ctx *c, struct pprof *p)
{
	int err;

	put_types(p);
	put_facts(c, p);
	err = put_samples(c, p);
	for (size_t i = 0; i < frames__count(p->frames) && !err; i++)
		err = put_frame(p, i);
	put_strings(p);
	return err ? err : p->err;
}

static int pprof_end(struct export_ctx *c, void *state)
{
	struct pprof p = {
		.z = gzip__new(c->out),
		.frames = frames__new(c->dict, c->facts, FRAMES_HOLDERS),
		.strings = dict__new(),
	};
	int err = -ENOMEM;

	(void)state;
	if (p.z && p.frames && p.strings)
		err = put_profile(c, &p);
	gzip__end(p.z);
	frames__free(p.frames);
	dict__free(p.strings);
	pb__free(&p.part);
	pb__free(&p.inner);
	pb__free(&p.inmost);
	return err;
}

const struct export_format export_pprof = {
	.name = "pprof",
	.suffix = ".pb.gz",
	.help = "a heap profile, for pprof, Pyroscope and Parca",
	.next = "\"go tool pprof -http=:\" or \"pprof -http=:\" and its name open it; inuse_space "
		"is the moment, alloc_space all",
	.end = pprof_end,
};
