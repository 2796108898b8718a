/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/scope_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/analysis.h"
#include "report/recording/row_set.h"

#define SCOPE_PEAKS 256 /* peaks whose lines are found: each needs a pass over all live blocks */

struct peak {
	size_t scope, device;
	char name[16]; /* of the device, whose index changes when others are added */
	struct model_scope_level level;
	struct row rows[SCOPE_LINES];
	size_t n;
	uint64_t more;
};

struct scope_lines {
	struct peak *peaks;
	size_t n, cap;
	struct strings *texts; /* of the rows */
	enum frame_choice which_line;
	/* While the recording is read again: its model, and the next of the peaks, which are in the
	 * order of their events. */
	const struct model *model;
	size_t next;
};

static int by_peak(const void *a, const void *b)
{
	const struct peak *x = a, *y = b;

	return (x->level.peak < y->level.peak) - (x->level.peak > y->level.peak);
}

static int by_event(const void *a, const void *b)
{
	const struct peak *x = a, *y = b;

	return (x->level.peak_event > y->level.peak_event) -
	       (x->level.peak_event < y->level.peak_event);
}

/* Collects the highest peaks of all scopes, in the order of their events. Returns 0 or -ENOMEM. */
static int find_peaks(struct scope_lines *lines, const struct model *m)
{
	struct model_device d;
	struct peak p = { 0 };

	for (p.scope = 0; p.scope < model__scopes(m); p.scope++) {
		for (p.device = 0; p.device < model__devices(m); p.device++) {
			if (!model__scope_highest(m, p.scope, p.device, &p.level))
				continue;
			model__device(m, p.device, &d);
			memcpy(p.name, d.name, sizeof(p.name));
			if (array__grow(&lines->peaks, &lines->cap, lines->n + 1,
					sizeof(*lines->peaks)))
				return -ENOMEM;
			lines->peaks[lines->n++] = p;
		}
	}
	if (!lines->n)
		return 0;
	qsort(lines->peaks, lines->n, sizeof(*lines->peaks), by_peak);
	lines->n = lines->n < SCOPE_PEAKS ? lines->n : SCOPE_PEAKS;
	qsort(lines->peaks, lines->n, sizeof(*lines->peaks), by_event);
	return 0;
}

/* Takes the largest lines that are live now. Returns 0 or -ENOMEM. */
static int take_lines(struct scope_lines *lines, struct peak *p)
{
	const struct row_opts opts = { .by = BY_LINE,
				       .when = ROWS_NOW,
				       .which_line = lines->which_line,
				       .any_module = true,
				       .any_phase = true,
				       .any_category = true };
	int device = model__find_device(lines->model, p->name), err = 0;
	struct row *rows = NULL;
	size_t n = 0;

	if (device >= 0)
		err = model__rows(lines->model, (size_t)device, &opts, &rows, &n);
	for (size_t i = 0; i < n && !err; i++) {
		if (p->n == SCOPE_LINES) {
			p->more += rows[i].bytes;
			continue;
		}
		p->rows[p->n] = rows[i];
		err = row_set__keep(lines->texts, &p->rows[p->n]);
		p->n += !err;
	}
	free(rows);
	return err;
}

/* Takes the lines of the peaks that the last event reached. Returns 0 or -ENOMEM. */
static int take_due(struct scope_lines *lines)
{
	struct model_now now;
	int err = 0;

	model__now(lines->model, 0, &now);
	for (; lines->next < lines->n && !err; lines->next++) {
		struct peak *p = &lines->peaks[lines->next];

		if (p->level.peak_event > now.seq)
			break;
		if (p->level.peak_event == now.seq)
			err = take_lines(lines, p);
	}
	return err;
}

/* Callback for analysis__run(): the model does not have e yet. */
static int before_event(void *ctx, const struct event *e)
{
	(void)e;
	return take_due(ctx);
}

/* Reads the recording again. Without it, the lines are not known. Returns 0 or -ENOMEM. */
static int read_again(struct scope_lines *lines, const char *path)
{
	const struct model_opts opts = { .at = AT_END };
	struct analysis *again;
	int err = 0;

	log__hush(LOG_ERROR);
	if (!analysis__open(path, &opts, &again)) {
		again->doing = "looking for the largest lines in";
		lines->model = again->model;
		if (!analysis__run(again, before_event, lines))
			err = take_due(lines);
		analysis__free(again);
	}
	log__hush(LOG_DEBUG);
	return err;
}

int scope_lines__read(const struct analysis *a, enum frame_choice which_line,
		      struct scope_lines **ret)
{
	struct scope_lines *lines;
	int err;

	*ret = NULL;
	if (!model__scopes(a->model) || !strcmp(a->path, "-"))
		return 0;
	lines = calloc(1, sizeof(*lines));
	if (!lines)
		return -ENOMEM;
	lines->which_line = which_line;
	lines->texts = strings__new();
	err = lines->texts ? find_peaks(lines, a->model) : -ENOMEM;
	if (!err)
		err = read_again(lines, a->path);
	if (err) {
		scope_lines__free(lines);
		return err;
	}
	*ret = lines;
	return 0;
}

size_t scope_lines__of(const struct scope_lines *lines, size_t scope, size_t device,
		       const struct row **rows, uint64_t *more)
{
	for (size_t i = 0; lines && i < lines->n; i++) {
		const struct peak *p = &lines->peaks[i];

		if (p->scope != scope || p->device != device)
			continue;
		*rows = p->rows;
		*more = p->more;
		return p->n;
	}
	return 0;
}

void scope_lines__free(struct scope_lines *lines)
{
	if (!lines)
		return;
	strings__free(lines->texts);
	free(lines->peaks);
	free(lines);
}
