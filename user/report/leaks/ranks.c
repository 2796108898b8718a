/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/analysis.h"
#include "model/words.h"
#include "record/dict.h"
#include "report/leaks/internal.h"

struct leaks_ranks *leaks_ranks__new(const struct leaks_opts *o)
{
	struct leaks_ranks *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->opts = o;
	r->rank_opts = (struct ranks_opts){ .by = BY_PHASE, .words = true, .at = AT_END };
	r->ranks = ranks__new(&r->rank_opts);
	if (!row_set__init(&r->set) && r->ranks)
		return r;
	leaks_ranks__free(r);
	return NULL;
}

void leaks_ranks__free(struct leaks_ranks *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->nlines; i++)
		free(r->lines[i].stack);
	for (size_t i = 0; i < r->ncells; i++)
		free((uint64_t *)r->cells[i].at.values);
	ranks__free(r->ranks);
	row_set__drop(&r->set);
	free(r->lines);
	free(r->cells);
	free(r->devices);
	free(r);
}

/* ---- adding a recording ---- */

/* Replaces the line's texts with copies in r->set. Returns 0 or -ENOMEM. */
static int keep_texts(struct leaks_ranks *r, struct growth_line *l)
{
	if (row_set__keep(r->set.texts, &l->row))
		return -ENOMEM;
	for (size_t i = 0; i < l->nnames; i++)
		if (strings__keep(r->set.texts, &l->names[i].text))
			return -ENOMEM;
	return 0;
}

/* Returns the frames as text, root first, NULL-terminated, for free(); *stack_text: the same as
 * one string. NULL if memory is short. */
static const char **keep_stack(struct leaks_ranks *r, const struct dict *d, const struct row *row,
			       const char **stack_text)
{
	struct dict_stack stack = dict__get_stack(d, row->stack);
	const char **frames = calloc((size_t)stack.n + 2, sizeof(*frames));
	char *buf = malloc(REPORT_TEXT), *joined = NULL;
	size_t n = 0, size;
	FILE *stream = open_memstream(&joined, &size);
	bool kept = false;

	if (!frames || !buf || !stream)
		goto out;
	for (uint32_t i = stack.n; i-- > 0;) {
		frames[n] = words__frame(buf, d, stack.frames[i]);
		if (strings__keep(r->set.texts, &frames[n++]))
			goto out;
	}
	if (row__has_leaf(row))
		frames[n++] = row->node_class;
	for (size_t i = 0; i < n; i++)
		fprintf(stream, "%zu:%s", strlen(frames[i]), frames[i]);
	if (fflush(stream) || ferror(stream))
		goto out;
	*stack_text = joined;
	kept = !strings__keep(r->set.texts, stack_text);
out:
	if (stream)
		fclose(stream);
	free(joined);
	free(buf);
	if (kept)
		return frames;
	free(frames);
	return NULL;
}

/* Finds or adds a line: by kind of device, and by the texts of its row that --by selects. stack and
 * frames: from keep_stack(), for --by stack. A new line takes over *frames, which is NULL then.
 * *ret: index of the line. Returns 0 or -ENOMEM. */
static int find_line(struct leaks_ranks *r, const char *kind, const struct row *row,
		     const char *stack, const char ***frames, uint32_t *ret)
{
	struct row identity = { 0 };

	if (r->opts->by == BY_MODULE) {
		identity.module = row->module;
		identity.module_root = row->module_root;
	} else if (r->opts->by == BY_CATEGORY) {
		identity.category = row->category;
	} else {
		identity.file = row->file;
		identity.func = row->func;
		identity.line = row->line;
		identity.source = row->file ? NULL : row->source;
		identity.node_class = row->file ? NULL : row->node_class;
	}
	if (array__grow(&r->lines, &r->room_lines, r->nlines + 1, sizeof(*r->lines)) ||
	    row_set__number(&r->set, &identity, kind, stack, ret))
		return -ENOMEM;
	if (*ret < r->nlines)
		return 0;
	r->lines[r->nlines++] = (struct leaks_line){ .kind = kind, .stack = *frames };
	*frames = NULL;
	return 0;
}

/* Copies the line's values if --steps needs them; otherwise there are none. Returns 0 or -ENOMEM. */
static int keep_values(const struct leaks_opts *o, struct growth_line *l)
{
	uint64_t *copy = NULL;

	if (o->figures && l->trend.values) {
		copy = calloc(l->trend.values, sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, l->values, l->trend.values * sizeof(*copy));
	}
	l->values = copy;
	return 0;
}

/* Adds the cell of a line on a device. device: index in r. Returns 0 or -ENOMEM. */
static int add_line(struct leaks_ranks *r, const struct dict *d, uint32_t device, const char *kind,
		    const struct growth_line *line)
{
	struct leaks_cell cell = { .device = device,
				   .counts = trend__counts(&line->trend, r->opts->min_confidence),
				   .at = *line };
	const char **stack = NULL, *joined = NULL;
	int err;

	if (keep_texts(r, &cell.at))
		return -ENOMEM;
	if (r->opts->by == BY_STACK) {
		stack = keep_stack(r, d, &cell.at.row, &joined);
		if (!stack)
			return -ENOMEM;
	}
	err = find_line(r, kind, &cell.at.row, joined, &stack, &cell.line);
	free(stack);
	if (err)
		return err;
	if (array__grow(&r->cells, &r->room_cells, r->ncells + 1, sizeof(*r->cells)) ||
	    keep_values(r->opts, &cell.at))
		return -ENOMEM;
	r->cells[r->ncells++] = cell;
	return 0;
}

/* Adds a device with its growth and its lines, unless the recording does not use it. device: index
 * in the model. Returns 0 or -ENOMEM. */
static int add_device(struct leaks_ranks *r, const struct analysis *a, size_t device)
{
	struct leaks_device added = { .recording = r->taken,
				      .duration = model__length(a->model, a->duration),
				      .no_holder = leaks__no_holder(a->facts) };
	struct model_device dev;
	const char *kind = added.kind;
	struct growth growth;
	int err;

	model__device(a->model, device, &dev);
	if (!rank__uses(&dev))
		return 0;
	err = growth__judge(a->model, device, r->opts->min_growth, &growth);
	if (err)
		return err;
	snprintf(added.name, sizeof(added.name), "%s", dev.name);
	snprintf(added.kind, sizeof(added.kind), "%.*s", (int)strcspn(added.name, ":"), added.name);
	added.growth = growth;
	added.growth.lines = NULL;
	added.growth.pool = NULL;
	added.growth.n = 0;
	added.growth.allocated.values = added.growth.reserved.values = added.growth.others
									       .values = NULL;
	added.pool = growth__pool_grows(&growth, r->opts->min_confidence);
	added.others = growth__others_grow(&growth, r->opts->min_confidence);
	if (!strcmp(dev.name, "host"))
		leaks_host__judge(a->model, r->opts, &added.host);
	added.counted = growth__count(&growth, r->opts->min_confidence);
	err = strings__keep(r->set.texts, &kind);
	if (err)
		goto out;
	err = array__grow(&r->devices, &r->room_devices, r->ndevices + 1, sizeof(*r->devices));
	if (err)
		goto out;
	r->devices[r->ndevices++] = added;
	for (size_t i = 0; i < growth.n && !err; i++)
		err = add_line(r, a->dict, (uint32_t)r->ndevices - 1, kind, &growth.lines[i]);
out:
	growth__free(&growth);
	return err;
}

int leaks_ranks__add(struct leaks_ranks *r, const struct analysis *a)
{
	int err = ranks__add(r->ranks, a, /*device=*/-1);

	if (err)
		return err;
	for (size_t i = 0; i < model__devices(a->model); i++) {
		if (!leaks__wants(r->opts, a->model, i))
			continue;
		err = add_device(r, a, i);
		if (err)
			return err;
	}
	r->taken++;
	return 0;
}

/* ---- finishing ---- */

/* Orders by kind of device, the CPU last, then by recording. */
static int cmp_device(const void *a, const void *b, void *ctx)
{
	const struct leaks_device *all = ctx, *x = &all[*(const uint32_t *)a],
				  *y = &all[*(const uint32_t *)b];
	bool on_cpu = !strcmp(x->kind, "cpu");

	if (on_cpu != !strcmp(y->kind, "cpu"))
		return on_cpu ? 1 : -1;
	if (strcmp(x->kind, y->kind) != 0)
		return strcmp(x->kind, y->kind);
	if (x->recording != y->recording)
		return x->recording < y->recording ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Renumbers recordings from order of arrival to order of ranks, then sorts the devices. Returns 0
 * or -ENOMEM. */
static int sort_devices(struct leaks_ranks *r)
{
	size_t n = r->ranks->n;
	uint32_t *rank_of = calloc(n + 1, sizeof(*rank_of));
	uint32_t *old_index = calloc(r->ndevices + 1, sizeof(*old_index));
	uint32_t *new_index = calloc(r->ndevices + 1, sizeof(*new_index));
	struct leaks_device *copy = calloc(r->ndevices + 1, sizeof(*copy));
	int err = -ENOMEM;

	if (!rank_of || !old_index || !new_index || !copy)
		goto out;
	err = 0;
	for (size_t i = 0; i < n; i++)
		rank_of[r->ranks->all[i].added] = (uint32_t)i;
	for (size_t i = 0; i < r->ndevices; i++) {
		copy[i] = r->devices[i];
		copy[i].recording = rank_of[copy[i].recording];
		old_index[i] = (uint32_t)i;
	}
	qsort_r(old_index, r->ndevices, sizeof(*old_index), cmp_device, copy);
	for (size_t i = 0; i < r->ndevices; i++) {
		r->devices[i] = copy[old_index[i]];
		new_index[old_index[i]] = (uint32_t)i;
	}
	for (size_t i = 0; i < r->ncells; i++)
		r->cells[i].device = new_index[r->cells[i].device];
out:
	free(rank_of);
	free(old_index);
	free(new_index);
	free(copy);
	return err;
}

static int cmp_cell(const void *a, const void *b)
{
	const struct leaks_cell *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->device < y->device ? -1 : x->device > y->device;
}

/* True if a grows more than b; a line that counts grows more than one that does not. */
static bool grows_more(const struct leaks_cell *a, const struct leaks_cell *b)
{
	return a->counts != b->counts ? a->counts : a->at.per_step > b->at.per_step;
}

/* Orders by kind of device, then lines that count first, then by growth. */
static int cmp_line(const void *a, const void *b, void *ctx)
{
	const struct leaks_line *x = a, *y = b;
	const struct leaks_ranks *r = ctx;
	const struct leaks_cell *cell_x = &r->cells[x->most], *cell_y = &r->cells[y->most];

	if (x->kind != y->kind)
		return cell_x->device < cell_y->device ? -1 : 1;
	if (grows_more(cell_x, cell_y) != grows_more(cell_y, cell_x))
		return grows_more(cell_x, cell_y) ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

int leaks_ranks__finish(struct leaks_ranks *r)
{
	int err = ranks__finish(r->ranks);

	if (err)
		return err;
	err = sort_devices(r);
	if (err)
		return err;
	if (r->opts->device && !r->ndevices && r->taken)
		return -ENOENT;
	if (r->ncells)
		qsort(r->cells, r->ncells, sizeof(*r->cells), cmp_cell);
	for (size_t i = 0; i < r->ncells; i++) {
		struct leaks_line *line = &r->lines[r->cells[i].line];

		if (!line->n++)
			line->first = line->most = (uint32_t)i;
		else if (grows_more(&r->cells[i], &r->cells[line->most]))
			line->most = (uint32_t)i;
		line->counted += r->cells[i].counts;
	}
	if (r->nlines) /* from here on a line finds its cells by first and n */
		qsort_r(r->lines, r->nlines, sizeof(*r->lines), cmp_line, r);
	return 0;
}

bool leaks_ranks__found(const struct leaks_ranks *r)
{
	for (size_t i = 0; i < r->ndevices; i++)
		if (r->devices[i].counted || r->devices[i].pool || r->devices[i].others ||
		    r->devices[i].host.copies || r->devices[i].host.pinned)
			return true;
	return false;
}
