/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * speedscope's own file format (https://www.speedscope.app/file-format-schema.json): one sampled profile
 * for each device and view, whose samples are stacks (outermost frame first) and whose weights are bytes.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "export/frames.h"
#include "lib/json.h"

struct profile {
	char *name;
	bool counts; /* weights are numbers of allocations, not bytes */
	struct row *rows;
	size_t n;
};

struct profiles {
	struct profile *all;
	size_t n;
};

static void profiles__free(struct profiles *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->all[i].name);
		free(p->all[i].rows);
	}
	free(p->all);
}

/* Adds one view of a device, if there is anything in it. -ENOENT: the moment never came on this device. */
static int add_profile(struct export_ctx *c, struct profiles *p, size_t device, enum row_when when, const char *view,
		       bool counts)
{
	const struct row_opts opts = { .by = BY_STACK, .when = when };
	struct profile profile = { .counts = counts };
	struct model_device d;
	struct profile *all;
	int err = model__rows(c->model, device, &opts, &profile.rows, &profile.n);

	if (err)
		return err;
	if (!profile.n) {
		free(profile.rows);
		return 0;
	}
	model__device(c->model, device, &d);
	all = reallocarray(p->all, p->n + 1, sizeof(*all));
	if (all)
		p->all = all;
	if (!all || asprintf(&profile.name, "%s %s", d.name, view) < 0) {
		free(profile.rows);
		return -ENOMEM;
	}
	p->all[p->n++] = profile;
	return 0;
}

static int add_device(struct export_ctx *c, struct profiles *p, size_t device, bool *marked)
{
	int err = add_profile(c, p, device, ROWS_AT_MARK, c->moment, false);

	if (err && err != -ENOENT)
		return err;
	*marked |= !err;
	err = 0;
	if (strcmp(c->moment, "end"))
		err = add_profile(c, p, device, ROWS_NOW, "end", false);
	if (!err)
		err = add_profile(c, p, device, ROWS_TOTAL, "total", false);
	if (!err)
		err = add_profile(c, p, device, ROWS_TOTAL, "allocations", true);
	return err;
}

static int collect(struct export_ctx *c, struct profiles *p)
{
	size_t n = model__devices(c->model);
	bool marked = false;
	int err = n ? 0 : -ENODATA;

	for (size_t i = 0; i < n && !err; i++)
		if (c->device < 0 || (size_t)c->device == i)
			err = add_device(c, p, i, &marked);
	return err ? err : marked ? 0 : -ENOENT;
}

/* The profile to show first: the marked moment of the device that a report would be about. */
static size_t first_profile(struct export_ctx *c, const struct profiles *p)
{
	int main_device = model__main_device(c->model);
	struct model_device d;

	if (main_device < 0)
		return 0;
	model__device(c->model, main_device, &d);
	for (size_t i = 0; i < p->n; i++)
		if (!strncmp(p->all[i].name, d.name, strlen(d.name)) && p->all[i].name[strlen(d.name)] == ' ')
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

/* The frames come before the profiles that point to them, so every stack is looked at twice. */
static int put_frames(struct json *j, struct frames *frames, const struct profiles *p)
{
	const uint32_t *ids;
	uint32_t n;
	int err = 0;

	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < p->all[i].n && !err; k++)
			err = frames__of_row(frames, &p->all[i].rows[k], &ids, &n);
	if (err)
		return err;
	json__open_object(j, "shared");
	json__open_array(j, "frames");
	for (size_t i = 0; i < frames__count(frames); i++)
		put_frame(j, frames__at(frames, i));
	json__close_array(j);
	json__close_object(j);
	return 0;
}

static uint64_t weight(const struct profile *p, size_t row)
{
	return p->counts ? p->rows[row].count : p->rows[row].bytes;
}

static int put_profile(struct json *j, struct frames *frames, const struct profile *p)
{
	uint64_t sum = 0;
	const uint32_t *ids;
	uint32_t n;
	int err = 0;

	for (size_t i = 0; i < p->n; i++)
		sum += weight(p, i);
	json__open_object(j, NULL);
	json__string(j, "type", "sampled");
	json__string(j, "name", p->name);
	json__string(j, "unit", p->counts ? "none" : "bytes");
	json__uint(j, "startValue", 0);
	json__uint(j, "endValue", sum);
	json__open_array(j, "samples");
	for (size_t i = 0; i < p->n && !err; i++) {
		if (!weight(p, i))
			continue;
		err = frames__of_row(frames, &p->rows[i], &ids, &n);
		json__open_array(j, NULL);
		for (uint32_t k = 0; k < n && !err; k++)
			json__uint(j, NULL, ids[k]);
		json__close_array(j);
	}
	json__close_array(j);
	json__open_array(j, "weights");
	for (size_t i = 0; i < p->n; i++)
		if (weight(p, i))
			json__uint(j, NULL, weight(p, i));
	json__close_array(j);
	json__close_object(j);
	return err;
}

static int put_document(struct export_ctx *c, struct json *j, struct frames *frames, const struct profiles *p)
{
	char exporter[64];
	int err;

	snprintf(exporter, sizeof(exporter), "memtrace-bpf@%s", facts__get(c->facts, "version") ?: "unknown");
	json__open_object(j, NULL);
	json__string(j, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json__string(j, "name", c->name);
	json__string(j, "exporter", exporter);
	json__uint(j, "activeProfileIndex", first_profile(c, p));
	err = put_frames(j, frames, p);
	if (err)
		return err;
	json__open_array(j, "profiles");
	for (size_t i = 0; i < p->n && !err; i++)
		err = put_profile(j, frames, &p->all[i]);
	json__close_array(j);
	json__close_object(j);
	return err;
}

static int speedscope_end(struct export_ctx *c, void *state)
{
	struct profiles profiles = { 0 };
	struct frames *frames = frames__new(c->dict);
	struct json *j = json__new(c->out, false);
	int err = -ENOMEM;

	(void)state;
	if (frames && j)
		err = collect(c, &profiles);
	if (!err && !profiles.n)
		err = -ENODATA;
	if (!err)
		err = put_document(c, j, frames, &profiles);
	json__free(j);
	frames__free(frames);
	profiles__free(&profiles);
	return err;
}

const struct export_format export_speedscope = {
	.name = "speedscope",
	.suffix = ".speedscope.json",
	.help = "one profile for each device and view (peak, end, total): speedscope",
	.next = "https://www.speedscope.app opens it, and keeps it on your machine",
	.end = speedscope_end,
};
