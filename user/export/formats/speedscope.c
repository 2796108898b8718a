/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The speedscope file format (https://www.speedscope.app/file-format-schema.json): a sampled
 * profile per device and view. Samples are stacks, outermost frame first; weights are bytes.
 * Samples are sorted by frames, so that speedscope's "time order" view shows a tree.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "export/export.h"
#include "export/formats/frames.h"
#include "model/holders.h"
#include "record/detail.h"

struct sample {
	uint32_t *frames, n;
	uint64_t weight; /* bytes or, if profile.counts is set, number of allocations; above 0 */
};

struct profile {
	char *name;
	bool counts; /* weights count allocations instead of bytes */
	struct sample *samples;
	size_t n;
};

struct profiles {
	struct profile *all;
	size_t n, room;
	struct frames *frames;
};

static void profile__free(struct profile *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->samples[i].frames);
	free(p->samples);
	free(p->name);
}

static void profiles__free(struct profiles *p)
{
	for (size_t i = 0; i < p->n; i++)
		profile__free(&p->all[i]);
	free(p->all);
	frames__free(p->frames);
}

/* Comparison for qsort(): frames from the outermost; a stack comes before those that it begins. */
static int by_frames(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	for (uint32_t i = 0; i < x->n && i < y->n; i++)
		if (x->frames[i] != y->frames[i])
			return x->frames[i] < y->frames[i] ? -1 : 1;
	return (x->n > y->n) - (x->n < y->n);
}

/* Adds a row as a sample; none for a row without weight. Returns 0 or -ENOMEM. */
static int add_sample(struct profiles *p, struct profile *profile, const struct row *row)
{
	uint64_t weight = profile->counts ? row->count : row->bytes;
	const uint32_t *frames;
	struct sample s = { .weight = weight };
	int err;

	if (!weight)
		return 0;
	err = frames__of_row(p->frames, row, &frames, &s.n);
	if (err)
		return err;
	s.frames = reallocarray(NULL, s.n, sizeof(*s.frames));
	if (!s.frames)
		return -ENOMEM;
	memcpy(s.frames, frames, s.n * sizeof(*s.frames));
	profile->samples[profile->n++] = s;
	return 0;
}

/* Sets the name and the samples of a profile. On failure, profile__free() must still be called.
 * Returns 0 or -ENOMEM. */
static int fill_profile(struct profiles *p, struct profile *profile, const char *device,
			const char *view, const struct row *rows, size_t n)
{
	int err = 0;

	profile->samples = calloc(n, sizeof(*profile->samples));
	if (!profile->samples || asprintf(&profile->name, "%s %s", device, view) < 0) {
		profile->name = NULL;
		return -ENOMEM;
	}
	for (size_t i = 0; i < n && !err; i++)
		err = add_sample(p, profile, &rows[i]);
	qsort(profile->samples, profile->n, sizeof(*profile->samples), by_frames);
	return err;
}

/* Adds a profile for a view of a device, unless it is empty. Returns 0, -ENOMEM, or -ENOENT if the
 * device does not have the moment. */
static int add_profile(struct export_ctx *c, struct profiles *p, size_t device, enum row_when when,
		       const char *view, bool counts)
{
	const struct row_opts opts = { .by = BY_STACK, .when = when };
	struct profile profile = { .counts = counts };
	struct model_device d;
	struct holder_rows rows;
	int err = frames__rows(c->model, device, &opts, &rows);

	if (err)
		return err;
	model__device(c->model, device, &d);
	if (rows.n)
		err = fill_profile(p, &profile, d.name, view, rows.all, rows.n);
	holder_rows__free(&rows);
	if (err || !profile.n) {
		profile__free(&profile);
		return err;
	}
	if (array__grow(&p->all, &p->room, p->n + 1, sizeof(*p->all))) {
		profile__free(&profile);
		return -ENOMEM;
	}
	p->all[p->n++] = profile;
	return 0;
}

/* Adds the profiles of a device. Sets *marked if it has the marked moment. Returns 0 or -ENOMEM. */
static int add_device(struct export_ctx *c, struct profiles *p, size_t device, bool *marked)
{
	int err = add_profile(c, p, device, ROWS_AT_MARK, c->moment, /*counts=*/false);

	if (err && err != -ENOENT)
		return err;
	*marked |= !err;
	err = 0;
	if (strcmp(c->moment, "end"))
		err = add_profile(c, p, device, ROWS_NOW, "end", /*counts=*/false);
	if (!err)
		err = add_profile(c, p, device, ROWS_TOTAL, "total", /*counts=*/false);
	return err ?: add_profile(c, p, device, ROWS_TOTAL, "allocations", /*counts=*/true);
}

/* Adds the profiles of the chosen device, or of all. Returns 0, -ENODATA (no devices), -ENOENT (no
 * device has the marked moment) or -ENOMEM. */
static int collect(struct export_ctx *c, struct profiles *p)
{
	size_t n = model__devices(c->model);
	bool marked = false;
	int err = n ? 0 : -ENODATA;

	for (size_t i = 0; i < n && !err; i++)
		if (c->device < 0 || (size_t)c->device == i)
			err = add_device(c, p, i, &marked);
	if (!err && !marked)
		err = -ENOENT;
	return err;
}

/* Returns the index of the profile that speedscope shows first: the marked moment of the main
 * device. */
static size_t first_profile(struct export_ctx *c, const struct profiles *p)
{
	int main_device = model__main_device(c->model);
	struct model_device d;

	if (main_device < 0)
		return 0;
	model__device(c->model, main_device, &d);
	/* Names begin with the device, and the marked moment is its first profile. */
	for (size_t i = 0; i < p->n; i++)
		if (!strncmp(p->all[i].name, d.name, strlen(d.name)) &&
		    p->all[i].name[strlen(d.name)] == ' ')
			return i;
	return 0;
}

static void put_frame(struct json *j, const struct frame *f)
{
	json__open_object(j, NULL);
	json__string(j, "name", f->name);
	if (f->file)
		json__string(j, "file", f->file);
	if (f->file && f->line)
		json__uint(j, "line", f->line);
	json__close_object(j);
}

/* Writes a profile; its values run from 0 to the sum of the weights. */
static void put_profile(struct json *j, const struct profile *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->n; i++)
		sum += p->samples[i].weight;
	json__open_object(j, NULL);
	json__string(j, "type", "sampled");
	json__string(j, "name", p->name);
	json__string(j, "unit", p->counts ? "none" : "bytes");
	json__uint(j, "startValue", 0);
	json__uint(j, "endValue", sum);
	json__open_array(j, "samples");
	for (size_t i = 0; i < p->n; i++) {
		json__open_array(j, NULL);
		for (uint32_t k = 0; k < p->samples[i].n; k++)
			json__uint(j, NULL, p->samples[i].frames[k]);
		json__close_array(j);
	}
	json__close_array(j);
	json__open_array(j, "weights");
	for (size_t i = 0; i < p->n; i++)
		json__uint(j, NULL, p->samples[i].weight);
	json__close_array(j);
	json__close_object(j);
}

/* Writes the file: frames, which all profiles share, and profiles. */
static void put_document(struct export_ctx *c, struct json *j, const struct profiles *p)
{
	char exporter[64], detail[DETAIL_TEXT], name[DETAIL_TEXT + 256];
	bool reduced = *detail__reduced(detail, sizeof(detail), c->facts);

	snprintf(name, sizeof(name), "%.200s (reduced detail: %s)", c->name, detail);
	snprintf(exporter, sizeof(exporter), "memtrace-bpf@%s",
		 facts__get(c->facts, "version") ?: "unknown");
	json__open_object(j, NULL);
	json__string(j, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json__string(j, "name", reduced ? name : c->name);
	json__string(j, "exporter", exporter);
	json__uint(j, "activeProfileIndex", first_profile(c, p));
	json__open_object(j, "shared");
	json__open_array(j, "frames");
	for (size_t i = 0; i < frames__count(p->frames); i++)
		put_frame(j, frames__at(p->frames, i));
	json__close_array(j);
	json__close_object(j);
	json__open_array(j, "profiles");
	for (size_t i = 0; i < p->n; i++)
		put_profile(j, &p->all[i]);
	json__close_array(j);
	json__close_object(j);
}

static int speedscope_end(struct export_ctx *c, void *state)
{
	struct profiles profiles = { .frames = frames__new(c->dict, c->facts, FRAMES_HOLDERS) };
	struct json *j = json__new(c->out, false);
	int err = -ENOMEM;

	(void)state;
	if (!profiles.frames || !j)
		goto out;
	err = collect(c, &profiles);
	if (err)
		goto out;
	if (profiles.n)
		put_document(c, j, &profiles);
	else
		err = -ENODATA;
out:
	json__free(j);
	profiles__free(&profiles);
	return err;
}

const struct export_format export_speedscope = {
	.name = "speedscope",
	.suffix = ".speedscope.json",
	.help = "a profile for each device and view (peak, end, total), for speedscope",
	.next = "https://www.speedscope.app opens it, and keeps it on your machine",
	.end = speedscope_end,
};
