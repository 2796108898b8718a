/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes the comparison as JSON and CSV. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/stream.h"
#include "report/diff.h"
#include "report/doc.h"

/* Returns the change, limited to 63 bits. Only a damaged recording exceeds them. */
static int64_t change(uint64_t from, uint64_t to)
{
	uint64_t by = from > to ? from - to : to - from;
	int64_t most = by > INT64_MAX ? INT64_MAX : (int64_t)by;

	return from > to ? -most : most;
}

static uint64_t count_of(const struct row *r)
{
	return r ? r->count : 0;
}

static void put_side(struct json *j, const struct diff *d, enum match_side side)
{
	const struct diff_side *diff_side = &d->side[side];
	const struct model_opts *at = &d->opts.at[side];
	const struct facts *facts = diff_side->a->facts;

	json__open_object(j, side == MATCH_OLD ? "old" : "new");
	json__string(j, "recording", diff_side->a->name);
	json__string(j, "cwd", facts__get(facts, "cwd"));
	json__string(j, "torch", facts__get(facts, "torch"));
	json__string(j, "python", facts__get(facts, "python"));
	json__string(j, "attached_at", facts__get(facts, "attached_at"));
	json__seconds(j, "duration", diff_side->a->duration, /*decimals=*/9);
	words__put_window(j, diff_side->a->model);
	json__uint(j, "events", model__events(diff_side->a->model));
	json__uint(j, "lost", words__lost(diff_side->a->model, facts));
	json__uint(j, "steps", model__whole_steps(diff_side->a->model));
	json__bool(j, "complete", diff_side->a->complete);
	detail__put(j, facts);
	json__string(j, "device", diff_side->device.name);
	json__string(j, "at", moment_names[at->at]);
	json__seconds(j, "time", at->at == AT_TIME ? at->at_time : diff_side->device.mark_time,
		      /*decimals=*/9);
	json__uint(j, "allocated", diff_side->device.mark_allocated);
	json__string(j, "allocated_is", figure__name(diff_side->device.mark_is));
	json__uint(j, "peak_allocated", diff_side->device.peak_allocated);
	json__uint(j, "rows", diff_side->n);
	json__uint(j, "rows_bytes", diff_side->sum);
	json__close_object(j);
}

static void put_sums(struct json *j, const struct diff *d)
{
	json__int(j, "change",
		  change(d->side[MATCH_OLD].device.mark_allocated,
			 d->side[MATCH_NEW].device.mark_allocated));
	if (!d->overlap) {
		json__bool(j, "adds_up", d->adds_up);
		json__int(j, "missing", d->missing);
	}
	json__open_object(j, "summary");
	for (int i = 0; i < DIFF_NR; i++) {
		json__open_object(j, diff__status(i));
		json__uint(j, "rows", d->sums[i].rows);
		if (!d->overlap)
			json__uint(j, "bytes", d->sums[i].bytes);
		json__close_object(j);
	}
	json__close_object(j);
}

static void put_files(struct json *j, const struct diff *d)
{
	const struct match_files *f;
	size_t n = match__renamed(d->match, &f);

	json__open_array(j, "renamed_files");
	for (size_t i = 0; i < n; i++) {
		json__open_object(j, NULL);
		json__string(j, "old", f[i].path[MATCH_OLD]);
		json__string(j, "new", f[i].path[MATCH_NEW]);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes the place of one side's row; null: this side does not have it. stack: with its stack. */
static void put_place(struct json *j, const char *key, const struct dict *dict, const struct row *r,
		      bool stack)
{
	char buf[REPORT_TEXT];
	struct dict_stack frames;

	if (!r) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	json__string(j, "file", r->file);
	json__uint_or_null(j, "line", r->file && r->line, r->line);
	json__string(j, "function", r->func);
	if (stack) {
		frames = dict__get_stack(dict, r->before_attach ? 0 : r->stack);
		json__open_array(j, "stack");
		for (uint32_t i = frames.n; i-- > 0;)
			json__string(j, NULL, words__frame(buf, dict, frames.frames[i]));
		if (row__has_leaf(r))
			json__string(j, NULL, r->node_class);
		json__close_array(j);
	}
	json__close_object(j);
}

/* Writes the properties of a row; if both sides have it, the new side's. */
static void put_words(struct json *j, const struct diff *d, const struct row *r)
{
	unsigned groups = words__row_properties(d->opts.by, 0);

	if (groups & (1U << BY_LINE | 1U << BY_MODULE | 1U << BY_LAYER)) {
		json__string(j, "module", r->module);
		json__string(j, "module_class", r->module_class);
		json__string(j, "module_root", r->module_root);
	}
	if ((groups & 1U << BY_PHASE) && !r->before_attach)
		json__string(j, "phase", phase__name(r->phase));
	if (r->thread && d->opts.by == BY_THREAD)
		json__string(j, "thread", r->thread);
	if (groups & 1U << BY_SCOPE)
		json__string(j, "scope", r->scope);
	json__string(j, "category", r->category);
	if (r->name)
		json__string(j, "name", r->name);
	json__string(j, "source", r->source);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
}

static void put_row(struct json *j, const struct diff *d, const struct diff_row *r)
{
	const struct row *old_row = r->row[MATCH_OLD], *new_row = r->row[MATCH_NEW];
	bool stack = d->opts.by == BY_STACK;

	json__open_object(j, NULL);
	json__string(j, "status", diff__status(r->status));
	json__int(j, "change", change(diff__bytes(r, MATCH_OLD), diff__bytes(r, MATCH_NEW)));
	json__uint(j, "old_bytes", diff__bytes(r, MATCH_OLD));
	json__uint(j, "new_bytes", diff__bytes(r, MATCH_NEW));
	json__uint(j, "old_count", count_of(old_row));
	json__uint(j, "new_count", count_of(new_row));
	if (stack || d->opts.by == BY_LINE) {
		put_place(j, "old", d->side[MATCH_OLD].a->dict, old_row, stack);
		put_place(j, "new", d->side[MATCH_NEW].a->dict, new_row, stack);
		json__bool(j, "moved", r->moved);
	}
	put_words(j, d, diff__shown(r));
	if (old_row && new_row && old_row->category && new_row->category &&
	    strcmp(old_row->category, new_row->category) != 0)
		json__string(j, "old_category", old_row->category);
	json__close_object(j);
}

static void put_rows(struct json *j, const struct diff *d, size_t top)
{
	size_t shown = top && top < d->n ? top : d->n;

	json__open_array(j, "rows");
	for (size_t i = 0; i < shown; i++)
		put_row(j, d, &d->rows[i]);
	json__close_array(j);
	if (shown < d->n)
		json__uint(j, "rows_left_out", d->n - shown);
}

static void put_scopes(struct json *j, const struct diff *d)
{
	if (!d->scopes.n)
		return;
	json__open_array(j, "scopes");
	for (size_t i = 0; i < d->scopes.n; i++) {
		const struct scope_entry *e = &d->scopes.all[i];
		struct scope_cell old_cell = scope_entry__cell(e, MATCH_OLD);
		struct scope_cell new_cell = scope_entry__cell(e, MATCH_NEW);

		json__open_object(j, NULL);
		json__string(j, "scope", e->name);
		json__string(j, "source", scope_source__name(e->source));
		scope_cell__json(j, "old", &old_cell);
		scope_cell__json(j, "new", &new_cell);
		json__close_object(j);
	}
	json__close_array(j);
}

int diff_json__print(FILE *out, const struct diff *d, size_t top)
{
	struct json *j = json__new(out, true);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	put_side(j, d, MATCH_OLD);
	put_side(j, d, MATCH_NEW);
	json__string(j, "device", d->side[MATCH_NEW].device.name);
	json__string(j, "by", group_names[d->opts.by]);
	put_sums(j, d);
	put_files(j, d);
	put_rows(j, d, top);
	put_scopes(j, d);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* Writes a line. Returns 0 or -ENOMEM. */
static int put_csv_row(FILE *out, const struct diff *d, const struct diff_row *dr)
{
	const struct row *old_row = dr->row[MATCH_OLD], *new_row = dr->row[MATCH_NEW],
			 *r = diff__shown(dr);
	const struct dict *dict = d->side[diff__shown_side(dr)].a->dict;
	unsigned groups = words__row_properties(d->opts.by, 0);
	int err = 0;
	bool line = groups & 1U << BY_LINE, phase = !r->before_attach && (groups & 1U << BY_PHASE);

	fprintf(out, "%s,%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
		diff__status(dr->status),
		change(diff__bytes(dr, MATCH_OLD), diff__bytes(dr, MATCH_NEW)),
		diff__bytes(dr, MATCH_OLD), diff__bytes(dr, MATCH_NEW), count_of(old_row),
		count_of(new_row));
	report_csv__field(out, d->side[MATCH_NEW].device.name);
	report_csv__place(out, line ? old_row : NULL);
	report_csv__place(out, line ? new_row : NULL);
	report_csv__field(out, r->module);
	report_csv__field(out, r->module_class);
	report_csv__field(out, phase ? phase__name(r->phase) : NULL);
	report_csv__field(out, r->category);
	report_csv__field(out, r->source);
	report_csv__field(out, d->opts.by == BY_THREAD ? r->thread : NULL);
	report_csv__field(out, r->name);
	if (d->opts.by == BY_STACK && !r->before_attach)
		err = report_csv__stack(out, dict, r);
	else
		report_csv__field(out, NULL);
	if (err)
		return err;
	report_csv__field(out, r->scope);
	fputs("\r\n", out);
	return 0;
}

int diff_csv__print(FILE *out, const struct diff *d, size_t top)
{
	int err = 0;

	fputs("status,change,old_bytes,new_bytes,old_count,new_count,device,old_file,old_line,old_"
	      "function,new_file,new_line,"
	      "new_function,module,module_class,phase,category,source,thread,name,stack,scope\r\n",
	      out);
	for (size_t i = 0; i < d->n && !err && (!top || i < top); i++)
		err = put_csv_row(out, d, &d->rows[i]);
	return err;
}
