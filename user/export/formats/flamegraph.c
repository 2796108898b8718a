/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flame graph: a self-contained HTML page. Its data is JSON in a script element: one tree of
 * frames shared by all devices and views (flametree.h), and bytes and blocks of each view's stacks.
 * assets/flamegraph.js draws it.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "export/export.h"
#include "export/formats/flametree.h"
#include "export/formats/frames.h"
#include "model/holders.h"
#include "model/words.h"
#include "record/detail.h"

struct view {
	const char *id, *label;
	bool there; /* the device has this moment */
	struct holder_rows rows;
	size_t smaller; /* number of rows that did not fit the tree and share one frame */
};

enum {
	VIEW_MARK,  /* memory at the marked moment */
	VIEW_END,   /* memory at the end; missing if that is the marked moment */
	VIEW_TOTAL, /* all allocations */
	VIEW_NR
};

struct page_device {
	struct model_device info;
	bool main; /* this is the recording's main device, which the page shows first */
	struct view views[VIEW_NR];
};

struct page {
	struct export_ctx *c;
	struct frames *frames;
	struct json *j;
	struct page_device *devices;
	size_t ndevices;
	struct flametree *tree;
	uint32_t smaller; /* node for rows that do not fit into the tree */
};

/* Sets *ret to the node of a row, or to p->smaller if the tree is full. Returns 0 or -ENOMEM. */
static int node_of_row(struct page *p, struct view *v, const struct row *row, uint32_t *ret)
{
	const uint32_t *frames;
	uint32_t n;
	int err = frames__of_row(p->frames, row, &frames, &n);

	if (!err)
		err = flametree__find(p->tree, frames, n, ret);
	if (err != -ENOENT)
		return err;
	v->smaller++;
	*ret = p->smaller;
	return 0;
}

/* Gets the rows of a view. A device that lacks the moment leaves v->there false, which is no error.
 * Returns 0 or -errno. */
static int get_rows(struct page *p, size_t device, enum row_when when, struct view *v)
{
	const struct row_opts opts = { .by = BY_STACK, .when = when };
	int err = frames__rows(p->c->model, device, &opts, &v->rows);

	v->there = !err;
	return err == -ENOENT ? 0 : err;
}

/* Returns the label of the button for a moment. Other moments than these are shown as the user
 * named them. */
static const char *moment_label(const char *moment)
{
	if (!strcmp(moment, "peak"))
		return "Peak";
	if (!strcmp(moment, "oom"))
		return "Out of memory";
	return !strcmp(moment, "end") ? "End" : moment;
}

/* Adds device i of the model to the page, with its views. Returns 0 or -errno. */
static int add_device(struct page *p, size_t i)
{
	struct page_device *d = &p->devices[p->ndevices];
	bool mark_is_end = !strcmp(p->c->moment, "end");
	int err;

	p->ndevices++;
	model__device(p->c->model, i, &d->info);
	d->main = model__main_device(p->c->model) == (int)i;
	d->views[VIEW_MARK] = (struct view){ .id = p->c->moment,
					     .label = moment_label(p->c->moment) };
	d->views[VIEW_END] = (struct view){ .id = "end", .label = "End" };
	d->views[VIEW_TOTAL] = (struct view){ .id = "total", .label = "Total allocated" };
	err = get_rows(p, i, ROWS_AT_MARK, &d->views[VIEW_MARK]);
	if (!err && !mark_is_end)
		err = get_rows(p, i, ROWS_NOW, &d->views[VIEW_END]);
	return err ?: get_rows(p, i, ROWS_TOTAL, &d->views[VIEW_TOTAL]);
}

/* Collects the chosen device, or all. Returns 0, -ENODATA (no devices), -ENOENT (no device has the
 * marked moment) or -ENOMEM. */
static int collect(struct page *p)
{
	size_t n = model__devices(p->c->model);
	bool marked = false;
	int err = 0;

	if (!n)
		return -ENODATA;
	p->devices = calloc(n, sizeof(*p->devices));
	if (!p->devices)
		return -ENOMEM;
	for (size_t i = 0; i < n && !err; i++)
		if (p->c->device < 0 || (size_t)p->c->device == i)
			err = add_device(p, i);
	for (size_t i = 0; i < p->ndevices; i++)
		marked |= p->devices[i].views[VIEW_MARK].there;
	if (!err && !marked)
		err = -ENOENT;
	return err;
}

/* Writes a view of device d. at_mark: it shows the marked moment, whose time and reserved memory
 * are in d. Returns 0 or -ENOMEM. */
static int put_view(struct page *p, struct view *v, const struct model_device *d, bool at_mark)
{
	uint32_t node;
	int err = 0;

	json__open_object(p->j, NULL);
	json__string(p->j, "id", v->id);
	json__string(p->j, "label", v->label);
	if (at_mark) {
		json__uint(p->j, "reserved", d->has_totals ? d->mark_reserved : 0);
		json__seconds(p->j, "time", d->mark_time, /*decimals=*/3);
	}
	if (at_mark && !strcmp(v->id, "peak")) {
		if (model__steps(p->c->model))
			json__uint(p->j, "step", d->peak_step);
		json__string(p->j, "phase", phase__name(d->peak_phase));
	}
	json__open_array(p->j, "node");
	for (size_t i = 0; i < v->rows.n && !err; i++) {
		err = node_of_row(p, v, &v->rows.all[i], &node);
		json__uint(p->j, NULL, err ? 0 : node);
	}
	json__close_array(p->j);
	json__open_array(p->j, "bytes");
	for (size_t i = 0; i < v->rows.n; i++)
		json__uint(p->j, NULL, v->rows.all[i].bytes);
	json__close_array(p->j);
	json__open_array(p->j, "count");
	for (size_t i = 0; i < v->rows.n; i++)
		json__uint(p->j, NULL, v->rows.all[i].count);
	json__close_array(p->j);
	json__uint(p->j, "smaller", v->smaller);
	json__close_object(p->j);
	return err;
}

/* Writes the devices with their views. Adds their frames and nodes, so these must be written later.
 * Returns 0 or -ENOMEM. */
static int put_devices(struct page *p)
{
	uint32_t smaller;
	int err = frames__smaller(p->frames, &smaller);

	if (!err)
		err = flametree__find(p->tree, &smaller, 1, &p->smaller);

	json__open_array(p->j, "devices");
	for (size_t i = 0; i < p->ndevices && !err; i++) {
		struct page_device *d = &p->devices[i];

		json__open_object(p->j, NULL);
		json__string(p->j, "name", d->info.name);
		json__bool(p->j, "main", d->main);
		json__open_array(p->j, "views");
		for (int k = 0; k < VIEW_NR && !err; k++)
			if (d->views[k].there)
				err = put_view(p, &d->views[k], &d->info, k == VIEW_MARK);
		json__close_array(p->j);
		json__close_object(p->j);
	}
	json__close_array(p->j);
	return err;
}

static const struct frame *frame_at(const void *ctx, uint32_t i)
{
	return frames__at(ctx, i);
}

/* For flametree__put_page(): writes the data of the page. Returns 0 or -ENOMEM. */
static int put_data(void *ctx)
{
	static const char *const facts[] = { "pid",    "comm",	       "cmdline",    "python",
					     "torch",  "cuda_runtime", "version",    "start",
					     "events", "lost",	       "attached_at" };
	struct page *p = ctx;
	char detail[DETAIL_TEXT];
	int err;

	json__open_object(p->j, NULL);
	json__string(p->j, "name", p->c->name);
	json__seconds(p->j, "duration", p->c->duration, /*decimals=*/3);
	words__put_window(p->j, p->c->model);
	json__uint(p->j, "events", model__events(p->c->model));
	json__uint(p->j, "lost", words__lost(p->c->model, p->c->facts));
	json__string(p->j, "detail", detail__reduced(detail, sizeof(detail), p->c->facts));
	json__open_object(p->j, "facts");
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (facts__get(p->c->facts, facts[i]))
			json__string(p->j, facts[i], facts__get(p->c->facts, facts[i]));
	json__close_object(p->j);
	err = put_devices(p);
	if (err)
		return err;
	flametree__put_nodes(p->tree, p->j);
	err = flametree__put_frames(p->j, frames__count(p->frames), frame_at, p->frames);
	json__close_object(p->j);
	return err;
}

/* Writes the whole page, since only the end of the recording shows what was live when. */
static int flamegraph_end(struct export_ctx *c, void *state)
{
	struct page p = { .c = c };
	int err = -ENOMEM;

	(void)state;
	p.frames = frames__new(c->dict, c->facts, FRAMES_HOLDERS);
	p.tree = flametree__new();
	p.j = json__new(c->out, false);
	if (!p.frames || !p.tree || !p.j)
		goto out;
	err = collect(&p);
	if (!err)
		err = flametree__put_page(c->out, put_data, &p);
out:
	for (size_t i = 0; i < p.ndevices; i++)
		for (int k = 0; k < VIEW_NR; k++)
			holder_rows__free(&p.devices[i].views[k].rows);
	free(p.devices);
	json__free(p.j);
	flametree__free(p.tree);
	frames__free(p.frames);
	return err;
}

const struct export_format export_flamegraph = {
	.name = "flamegraph",
	.suffix = ".html",
	.help = "one page with zoom and search, for any browser, offline",
	.next = "any browser opens it, without a network",
	.end = flamegraph_end,
};
