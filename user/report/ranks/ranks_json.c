/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Several recordings as one JSON document, or one CSV table. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "assets/ranks.html.h"
#include "base/json.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/folder.h"
#include "report/doc.h"
#include "report/files.h"
#include "report/ranks/shared_gpus.h"
#include "report/ranks/ranks.h"

/* Writes a rank that has memory on the device, with its largest row there. */
static void put_use(struct json *j, const struct device_use *u)
{
	const struct row *row = &u->device->most;

	json__open_object(j, NULL);
	json__uint(j, "recording", u->recording);
	json__uint(j, "allocated", u->device->bytes);
	json__string(j, "own", u->own->name);
	json__string(j, "file", row->file);
	json__uint_or_null(j, "line", row->file && row->line, row->line);
	json__string(j, "name", row->name);
	json__close_object(j);
}

/* Writes the array of devices that have memory of several ranks. */
static void put_shared_devices(struct json *j, const struct ranks *r)
{
	const struct shared_devices *s = &r->shared;

	json__open_array(j, "shared_devices");
	for (size_t i = 0; i < s->n; i++) {
		const struct device_use *u = &s->uses[s->all[i].first];

		json__open_object(j, NULL);
		json__string(j, "device", u->device->name);
		json__string(j, "host", r->all[u->recording].host);
		json__open_array(j, "ranks");
		for (uint32_t k = 0; k < s->all[i].n; k++)
			put_use(j, &u[k]);
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
}

void ranks_json__who(struct json *j, const struct rank *k)
{
	json__string(j, "recording", k->name);
	json__uint_or_null(j, "rank", k->has_number, k->number);
	json__uint_or_null(j, "local_rank", k->has_local, k->local);
	json__uint_or_null(j, "world_size", k->has_world, k->world);
	json__string(j, "host", k->host);
	json__uint(j, "pid", k->pid);
	json__uint_or_null(j, "parent", k->parent, k->parent);
	json__bool(j, "worker", k->worker);
	json__string(j, "command", k->command);
}

/* Writes a recording. group: its group, or RANK_GROUPS_NONE. */
static void put_recording(struct json *j, const struct rank *k, uint32_t group)
{
	json__open_object(j, NULL);
	ranks_json__who(j, k);
	json__string(j, "devices", k->devices);
	json__uint(j, "allocated", k->allocated);
	json__string(j, "allocated_is", figure__name(k->is));
	json__uint_or_null(j, "reserved", k->has_totals, k->reserved);
	json__seconds(j, "time", k->time, /*decimals=*/9);
	json__uint(j, "peak_allocated", k->peak);
	json__uint(j, "total_allocated", k->total_allocated);
	json__uint_or_null(j, "before_attach", !k->before_unknown, k->before_attach);
	json__uint(j, "rows_bytes", k->rows);
	json__uint(j, "events", k->events);
	json__uint(j, "lost", k->lost);
	json__string(j, "detail", *k->detail ? k->detail : NULL);
	json__uint_or_null(j, "drift", k->has_totals, k->drift);
	json__uint(j, "steps", k->steps);
	if (k->step_time)
		json__seconds(j, "step_time", k->step_time, /*decimals=*/9);
	else
		json__null(j, "step_time");
	json__uint_or_null(j, "first_job_step", k->spans.n, k->first_job_step);
	json__uint_or_null(j, "group", group != RANK_GROUPS_NONE, group);
	if (k->clock.known) {
		json__int(j, "begin_ns", k->clock.begin);
		json__int(j, "clock_offset_ns", k->clock.offset);
		json__uint(j, "clock_offset_error_ns", k->clock.error);
	}
	json__uint(j, "shared", k->shared);
	json__bool(j, "complete", k->complete);
	json__open_array(j, "growth");
	for (size_t i = 0; i < k->ngrowth; i++) {
		json__open_object(j, NULL);
		json__string(j, "device", k->growth[i]->device);
		growth_summary__json_keys(j, k->growth[i]);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Writes the texts that tell a row from others. */
static void put_words(struct json *j, const struct ranks_opts *o, const struct row *r)
{
	unsigned groups = o->words && !o->split ? 1U << o->by
						: words__row_properties(o->by, o->split);

	if (groups & 1U << BY_LINE) {
		json__string(j, "file", r->file);
		json__uint_or_null(j, "line", r->file && r->line, r->line);
		json__string(j, "function", r->func);
	}
	if (groups & (1U << BY_MODULE | 1U << BY_LAYER)) {
		json__string(j, "module", r->module);
		json__string(j, "module_class", r->module_class);
		json__string(j, "module_root", r->module_root);
	}
	if ((groups & 1U << BY_PHASE) && !r->before_attach)
		json__string(j, "phase", phase__name(r->phase));
	if (r->thread)
		json__string(j, "thread", r->thread);
	if (groups & 1U << BY_SCOPE)
		json__string(j, "scope", r->scope);
	if (groups & 1U << BY_CATEGORY)
		json__string(j, "category", r->category);
	if (r->name)
		json__string(j, "name", r->name);
	json__string(j, "source", r->source);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
}

/* Writes the line's bytes in each recording. With opts->outliers, writes instead the index that the
 * line would have in a document with all rows. */
static void put_cells(struct json *j, const struct ranks *r, size_t line)
{
	if (r->opts->outliers) {
		json__uint(j, "index", line);
		return;
	}
	json__open_array(j, "recordings");
	for (size_t i = 0; i < r->n; i++)
		json__uint(j, NULL, ranks__bytes(r, &r->lines[line], i));
	json__close_array(j);
}

static void put_line(struct json *j, const struct ranks *r, size_t line)
{
	const struct rank_line *l = &r->lines[line];

	json__open_object(j, NULL);
	json__uint(j, "bytes", l->row.bytes);
	json__uint(j, "count", l->row.count);
	json__uint(j, "cumulative", l->row.cumulative);
	json__uint(j, "min", l->min);
	json__uint(j, "median", l->median);
	json__uint(j, "max", l->max);
	put_cells(j, r, line);
	put_words(j, r->opts, &l->row);
	json__close_object(j);
}

/* Writes the number and the sum of the lines from index from to to - 1, without those that wanted
 * marks; wanted NULL: all of them. Writes nothing if there are none. */
static void put_left_out(struct json *j, const struct ranks *r, const char *key, size_t from,
			 size_t to, const bool *wanted)
{
	const struct ranks_opts *opts = r->opts;
	uint64_t sum = 0;
	size_t n = 0;

	for (size_t i = from; i < to; i++) {
		if (wanted && wanted[i])
			continue;
		sum += r->lines[i].row.bytes;
		n++;
	}
	if (!n)
		return;
	json__open_object(j, key);
	json__uint(j, "rows", n);
	if (opts->split || opts->by != BY_LAYER)
		json__uint(j, "bytes", sum);
	json__close_object(j);
}

/* Writes "outliers". Their "row" is an index in "rows" that counts rows that --top leaves out. */
static void put_outliers(struct json *j, const struct ranks *r)
{
	const struct outlier *all = r->outliers.all;

	json__open_object(j, "outlier_limits");
	json__uint(j, "percent", OUTLIER_PERCENT);
	json__uint(j, "bytes", OUTLIER_BYTES);
	json__close_object(j);
	json__open_array(j, "outliers");
	for (size_t i = 0; i < r->outliers.n; i++) {
		json__open_object(j, NULL);
		json__uint(j, "recording", all[i].recording);
		json__uint_or_null(j, "row", all[i].line_no, all[i].line_no - 1);
		json__uint(j, "bytes", all[i].bytes);
		json__uint(j, "others_median", all[i].others);
		json__int(j, "difference", (int64_t)(all[i].bytes - all[i].others));
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes minimum, median and maximum of a group's members: of their step times if steps is true,
 * otherwise of their bytes. */
static void put_spread(struct json *j, const char *key, const struct ranks *r,
		       const struct rank_group *g, bool steps)
{
	static const char *const names[] = { "min", "median", "max" };
	uint64_t *values = calloc(g->n + 1, sizeof(*values)), figures[3];
	size_t n = 0;

	for (uint32_t i = 0; i < g->n && values; i++) {
		const struct rank *rank = &r->all[r->groups.members[g->first + i]];

		values[n] = steps ? rank->step_time : rank->allocated;
		n += values[n] || !steps;
	}
	if (!n) {
		free(values);
		json__null(j, key);
		return;
	}
	outliers__sort(values, n);
	figures[0] = values[0];
	figures[1] = outliers__median(values, n);
	figures[2] = values[n - 1];
	free(values);
	json__open_object(j, key);
	for (int i = 0; i < 3; i++)
		if (steps)
			json__seconds(j, names[i], figures[i], /*decimals=*/9);
		else
			json__uint(j, names[i], figures[i]);
	json__close_object(j);
}

/* Writes the groups of recordings that were compared: members, the group with which this one was
 * compared, and the spread of both figures. */
static void put_groups(struct json *j, const struct ranks *r)
{
	const struct rank_groups *g = &r->groups;

	json__open_array(j, "groups");
	for (uint32_t i = 0; i < g->n; i++) {
		json__open_object(j, NULL);
		json__open_array(j, "recordings");
		for (uint32_t k = 0; k < g->all[i].n; k++)
			json__uint(j, NULL, g->members[g->all[i].first + k]);
		json__close_array(j);
		json__uint_or_null(j, "compared_with", g->all[i].family != i, g->all[i].family);
		put_spread(j, "allocated", r, &g->all[i], /*steps=*/false);
		put_spread(j, "step_time", r, &g->all[i], /*steps=*/true);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes the ranks with slow steps: there, bytes and others are ns. */
static void put_slow(struct json *j, const struct ranks *r)
{
	const struct outlier *all = r->slow.all;

	json__open_array(j, "step_outliers");
	for (size_t i = 0; i < r->slow.n; i++) {
		json__open_object(j, NULL);
		json__uint(j, "recording", all[i].recording);
		json__seconds(j, "step_time", all[i].bytes, /*decimals=*/9);
		json__seconds(j, "others_median", all[i].others, /*decimals=*/9);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_match(struct json *j, const struct step_match *m)
{
	if (m->by == STEPS_NOT_MATCHED) {
		json__null(j, "step_match");
		return;
	}
	json__open_object(j, "step_match");
	json__string(j, "by", m->by == STEPS_BY_OPTIMIZER ? "optimizer" : "time");
	if (m->by == STEPS_BY_OPTIMIZER) {
		json__uint(j, "first", m->first);
		json__uint(j, "last", m->last);
	} else {
		json__string(j, "why", m->why);
	}
	json__close_object(j);
}

static void put_missing(struct json *j, const struct ranks_opts *o)
{
	json__open_array(j, "missing");
	for (size_t i = 0; i < o->n_missing; i++) {
		const struct folder_missing *missing = &o->missing[i];

		json__open_object(j, NULL);
		json__string(j, "host", *missing->host ? missing->host : NULL);
		json__uint_or_null(j, "pid", missing->pid >= 0, (uint64_t)missing->pid);
		json__uint_or_null(j, "rank", missing->rank >= 0, (uint64_t)missing->rank);
		json__string(j, "why", missing->why);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Marks the lines below n with an outlier. NULL: out of memory. */
static bool *mark_outliers(const struct ranks *r, size_t n)
{
	bool *ret = calloc(n + 1, sizeof(*ret));

	for (size_t i = 0; i < r->outliers.n && ret; i++) {
		uint32_t line_no = r->outliers.all[i].line_no;

		if (line_no && line_no <= n)
			ret[line_no - 1] = true;
	}
	return ret;
}

/* Writes the rows: those of --top, or with opts->outliers those that differ. Returns 0 or -ENOMEM.
 * */
static int put_lines(struct json *j, const struct ranks *r, size_t top)
{
	size_t kept = r->kept, shown = top && top < kept ? top : kept;
	bool *wanted = r->opts->outliers ? mark_outliers(r, kept) : NULL;

	if (r->opts->outliers && !wanted)
		return -ENOMEM;
	json__open_array(j, "rows");
	for (size_t i = 0; i < (wanted ? kept : shown); i++)
		if (!wanted || wanted[i])
			put_line(j, r, i);
	json__close_array(j);
	put_left_out(j, r, "rows_left_out", wanted ? 0 : shown, kept, wanted);
	put_left_out(j, r, "rows_filtered_out", kept, r->nlines, /*wanted=*/NULL);
	free(wanted);
	return 0;
}

/* Writes the scopes, each in all recordings; nothing if there are none. */
static void put_scopes(struct json *j, const struct ranks *r)
{
	if (!r->scopes.n)
		return;
	json__open_array(j, "scopes");
	for (size_t i = 0; i < r->scopes.n; i++) {
		const struct scope_entry *e = &r->scopes.all[i];

		json__open_object(j, NULL);
		json__string(j, "scope", e->name);
		json__string(j, "source", scope_source__name(e->source));
		json__open_array(j, "recordings");
		for (size_t k = 0; k < r->n; k++) {
			struct scope_cell cell = scope_entry__cell(e, r->all[k].added);

			scope_cell__json(j, NULL, &cell);
		}
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
}

int ranks__json(struct json *j, const struct ranks *r, size_t top)
{
	const struct ranks_opts *opts = r->opts;
	uint64_t allocated = 0;
	char by[64];
	int err;

	json__open_object(j, NULL);
	json__bool(j, "together", true);
	json__bool(j, "one_job", ranks__one_job(r));
	json__bool(j, "one_tree", ranks__one_tree(r));
	json__open_array(j, "recordings");
	for (size_t i = 0; i < r->n; i++) {
		put_recording(j, &r->all[i], r->groups.of[i]);
		allocated += r->all[i].allocated;
	}
	json__close_array(j);
	json__uint(j, "recordings_without_events", r->empty);
	process_tree__json(j, &r->tree);
	json__string(j, "at", moment_names[opts->at]);
	json__string(j, "by", words__groups(by, opts->by, opts->split));
	report_json__select(j, opts->select);
	json__uint(j, "allocated", allocated);
	err = put_lines(j, r, top);
	put_outliers(j, r);
	put_shared_devices(j, r);
	if (opts->gpus)
		shared_gpus__json(j, opts->gpus, r);
	put_groups(j, r);
	put_match(j, &r->match);
	put_slow(j, r);
	put_scopes(j, r);
	put_missing(j, opts);
	if (opts->fail)
		report_fail__json(j, opts->fail, 0);
	json__close_object(j);
	return err;
}

/* Writes a row as a line of CSV. */
static void put_row(FILE *out, const struct ranks *r, const struct rank_line *l)
{
	unsigned groups = words__row_properties(r->opts->by, r->opts->split);
	const struct row *row = &l->row;
	char line[16] = "";

	if (row->file && row->line)
		snprintf(line, sizeof(line), "%u", row->line);
	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
		row->bytes, row->count, row->cumulative, l->min, l->median, l->max);
	report_csv__field(out, row->file);
	report_csv__field(out, line);
	report_csv__field(out, row->func);
	report_csv__field(out, row->module);
	report_csv__field(out, row->module_class);
	report_csv__field(out, !row->before_attach && (groups & 1U << BY_PHASE)
				       ? phase__name(row->phase)
				       : NULL);
	report_csv__field(out, row->category);
	report_csv__field(out, row->source);
	report_csv__field(out, row->thread);
	report_csv__field(out, row->name);
	report_csv__field(out, row->scope);
	for (size_t i = 0; i < r->n; i++)
		fprintf(out, ",%" PRIu64, ranks__bytes(r, l, i));
	fputs("\r\n", out);
}

/* Writes one row for all lines that the filter refused. */
static void put_filtered(FILE *out, const struct ranks *r)
{
	uint64_t bytes = 0, count = 0, in_recording;

	for (size_t i = r->kept; i < r->nlines; i++) {
		bytes += r->lines[i].row.bytes;
		count += r->lines[i].row.count;
	}
	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",,,,,,,,,,,filtered,,,", bytes, count,
		r->lines[r->nlines - 1].row.cumulative);
	for (size_t i = 0; i < r->n; i++) {
		in_recording = 0;
		for (size_t k = r->kept; k < r->nlines; k++)
			in_recording += ranks__bytes(r, &r->lines[k], i);
		fprintf(out, ",%" PRIu64, in_recording);
	}
	fputs("\r\n", out);
}

void ranks__csv(FILE *out, const struct ranks *r, size_t top)
{
	const struct ranks_opts *o = r->opts;
	size_t shown = top && top < r->kept ? top : r->kept;

	fputs("bytes,count,cumulative,min,median,max,file,line,function,module,module_class,phase,"
	      "category,source,thread,name,scope",
	      out);
	for (size_t i = 0; i < r->n; i++)
		report_csv__field(out, r->all[i].has_number ? r->all[i].label : r->all[i].name);
	fputs("\r\n", out);
	for (size_t i = 0; i < shown; i++)
		put_row(out, r, &r->lines[i]);
	if (r->kept < r->nlines && (o->split || o->by != BY_LAYER))
		put_filtered(out, r);
}

/* ---- a page ---- */

#define HOLE "<!--HEAD-->" /* place of the document in the page */

int ranks__html(FILE *out, const struct ranks *r)
{
	const char *html = packed__unpack(&asset_ranks_html), *hole;
	struct json *j = json__new(out, false);
	int err;

	if (!html || !j) {
		json__free(j);
		return -ENOMEM;
	}
	hole = memmem(html, asset_ranks_html.full, HOLE, strlen(HOLE));
	if (!hole)
		abort(); /* impossible: the template is built in */
	fwrite(html, 1, (size_t)(hole - html), out);
	err = ranks__json(j, r, 0);
	json__free(j);
	hole += strlen(HOLE);
	fwrite(hole, 1, asset_ranks_html.full - (size_t)(hole - html), out);
	return err;
}
