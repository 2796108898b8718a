/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of scopes: named scopes, and the functions that --scope names, with their runs and
 * their memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "record/stream.h"
#include "report/doc.h"
#include "report/recording/scope_lines.h"
#include "report/recording/scope_set.h"
#include "report/text.h"

/* ---- the order: each scope is followed by those inside it ---- */

/* Writes the indexes of the scopes with runs inside `parent` to order, from order[n] on: after each
 * scope those inside it. parent SIZE_MAX: writes all scopes. A parent has a lower index than its
 * children. Only so many scopes are nested as may be open at a time. Returns the new n. */
static size_t order_inside(const struct model *m, size_t parent, size_t *order, size_t n)
{
	struct model_scope s;

	for (size_t i = parent == SIZE_MAX ? 0 : parent + 1; i < model__scopes(m); i++) {
		model__scope(m, i, &s);
		if (s.parent != parent || !s.runs)
			continue;
		order[n++] = i;
		n = order_inside(m, i, order, n);
	}
	return n;
}

/* ---- text ---- */

#define FIGURE 10
#define NAME_WANTED 22
#define NAME_INDENT 2
#define NAME_LEAST 8 /* columns of a name that is cut */
#define INDENT_MOST 40
#define WHERE_MIN 16 /* least columns of a line */
#define LINES 3	     /* lines below a scope */

enum {
	SCOPE_RUNS,
	SCOPE_TIME,
	SCOPE_STEP,
	SCOPE_START,
	SCOPE_PEAK,
	SCOPE_RESERVED,
	SCOPE_CHANGE,
	SCOPE_KEPT,
	SCOPE_HOST,
	SCOPE_NAME
};

/* The table, with a row for each scope, and below it rows for its largest lines. */
struct scope_table {
	FILE *out;
	const struct model *m;
	int device; /* index in the model; -1: none, and no memory is known */
	const struct report_text_opts *o;
	const char *cwd;
	struct grid *grid;
	size_t rows, room;
	char text[REPORT_TEXT + INDENT_MOST];
};

static void put_change(struct grid *t, int64_t change)
{
	uint64_t size = change < 0 ? 0 - (uint64_t)change : (uint64_t)change;
	const char *sign = change > 0 ? "+" : "";
	char bytes[24], text[32];

	if (change < 0)
		sign = "-";
	snprintf(text, sizeof(text), "%s%s", sign, text__bytes(bytes, sizeof(bytes), size));
	grid__put(t, SCOPE_CHANGE, text, NULL);
}

/* Returns the lines below a scope, and the bytes of further ones in *more. */
static size_t lines_of(const struct scope_table *t, size_t scope, const struct row **rows,
		       uint64_t *more)
{
	size_t n = 0;

	if (t->device >= 0)
		n = scope_lines__of(t->o->scope_lines, scope, (size_t)t->device, rows, more);
	for (size_t i = LINES; i < n; i++)
		*more += (*rows)[i].bytes;
	return n < LINES ? n : LINES;
}

static void put_memory(struct scope_table *t, size_t scope)
{
	size_t device = (size_t)t->device;
	struct model_scope_level l;
	struct model_scope_medians medians;
	char text[24];

	if (!model__scope_highest(t->m, scope, device, &l) &&
	    !model__scope_idle(t->m, scope, device, &l))
		return;
	if (l.start_known)
		grid__put(t->grid, SCOPE_START, text__bytes(text, sizeof(text), l.start), NULL);
	grid__put(t->grid, SCOPE_PEAK, text__bytes(text, sizeof(text), l.peak), NULL);
	if (l.peak_reserved)
		grid__put(t->grid, SCOPE_RESERVED, text__bytes(text, sizeof(text), l.peak_reserved),
			  NULL);
	model__scope_medians(t->m, scope, device, &medians);
	if (medians.change_known)
		put_change(t->grid, medians.change);
	if (medians.kept_known)
		grid__put(t->grid, SCOPE_KEPT, text__bytes(text, sizeof(text), medians.kept), NULL);
}

static void put_host(struct scope_table *t, size_t scope)
{
	struct model_scope_host host;
	char text[24] = "unknown";

	if (!model__scope_host(t->m, scope, &host))
		return;
	if (host.readings)
		text__bytes(text, sizeof(text), host.peak.rss);
	grid__put(t->grid, SCOPE_HOST, text, NULL);
}

static void put_scope(struct scope_table *t, size_t scope)
{
	struct model_scope s;
	double runs, time;
	char text[48];

	model__scope(t->m, scope, &s);
	grid__row(t->grid);
	grid__put(t->grid, SCOPE_RUNS, text__count(text, 32, s.runs), NULL);
	grid__put(t->grid, SCOPE_TIME, text__time(text, 24, s.time), NULL);
	if (model__scope_per_step(t->m, scope, &runs, &time))
		grid__put(t->grid, SCOPE_STEP, text__time(text, 24, (uint64_t)time), NULL);
	if (t->device >= 0)
		put_memory(t, scope);
	put_host(t, scope);
}

/* Adds the rows of a scope and of its lines. */
static void put_rows(struct scope_table *t, size_t scope)
{
	const struct row *rows;
	uint64_t more;
	size_t n;
	char text[24];

	put_scope(t, scope);
	n = lines_of(t, scope, &rows, &more);
	for (size_t i = 0; i < n; i++) {
		grid__row(t->grid);
		grid__put(t->grid, SCOPE_PEAK, text__bytes(text, 24, rows[i].bytes), NULL);
	}
	if (!n || !more)
		return;
	grid__row(t->grid);
	grid__put(t->grid, SCOPE_PEAK, text__bytes(text, 24, more), NULL);
}

/* Returns the indent of a scope, or of its lines, that leaves `wanted` columns; 0: there is no
 * room. */
static size_t indent_of(const struct scope_table *t, size_t depth, size_t wanted)
{
	size_t indent = depth < INDENT_MOST / NAME_INDENT ? NAME_INDENT * depth : INDENT_MOST;

	return t->room < indent + wanted ? 0 : indent;
}

/* Writes the name, indented below the scopes around it, with the run that has the peak. */
static const char *say_name(struct scope_table *t, size_t scope)
{
	char run[32] = "", count[32];
	struct model_scope_level l;
	struct model_scope s;
	size_t indent;

	model__scope(t->m, scope, &s);
	if (s.runs > 1 && t->device >= 0 &&
	    model__scope_highest(t->m, scope, (size_t)t->device, &l))
		snprintf(run, sizeof(run), " (peak: #%s)", text__count(count, 32, l.run));
	indent = indent_of(t, s.depth, strlen(run) + NAME_LEAST);
	if (t->room < indent + strlen(run) + NAME_LEAST) /* the name is worth more */
		*run = 0;
	memset(t->text, ' ', indent);
	text__clean(t->text + indent, REPORT_TEXT - sizeof(run), s.name, strlen(s.name));
	words__cut_front(t->text + indent, t->room - indent - strlen(run));
	return strcat(t->text, run);
}

/* Prints a scope, its lines, and what the other lines have at that peak. */
static void print_scope(struct scope_table *t, size_t scope)
{
	char where[REPORT_TEXT];
	const struct row *rows;
	struct model_scope s;
	uint64_t more;
	size_t n, indent;

	grid__print(t->grid, t->out, t->rows++, say_name(t, scope));
	n = lines_of(t, scope, &rows, &more);
	model__scope(t->m, scope, &s);
	indent = indent_of(t, s.depth + 1, WHERE_MIN);
	for (size_t i = 0; i < n; i++) {
		words__location(where, &rows[i], t->cwd, t->room - indent);
		snprintf(t->text, sizeof(t->text), "%*s%s", (int)indent, "", where);
		grid__print(t->grid, t->out, t->rows++, t->text);
	}
	snprintf(t->text, sizeof(t->text), "%*sother lines", (int)indent, "");
	if (n && more)
		grid__print(t->grid, t->out, t->rows++, words__cut(t->text, t->room));
}

static bool has_named(const struct model *m, const char *name)
{
	struct model_scope s;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &s);
		if (s.source && !strcmp(s.name, name))
			return true;
	}
	return false;
}

#define LEVELS                                                                                     \
	"Start, Peak: of the run with the highest peak. Change: from start to end, median. Kept: " \
	"what the run allocated and left, median."

/* Prints what limits the figures of scopes: how long a function lasts, and runs that are not
 * whole. memory: the table has figures of memory. */
static void say_limits(FILE *out, const struct model *m, bool memory, const struct facts *f,
		       const struct report_text_opts *o)
{
	uint64_t lost = words__fact_number(f, "counter.phases.lost");
	uint64_t records = words__fact_number(f, "counter.lost.scope");
	unsigned width = report_text__width(out, o);
	char clean[REPORT_TEXT], count[48];
	bool found, functions = false;
	uint64_t earlier = 0;
	struct model_scope s;
	const char *name;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &s);
		functions |= !s.source;
		earlier += s.earlier;
	}
	for (size_t i = 0; (name = model__scope_function(m, i, &found)); i++)
		if (!found && !has_named(m, name))
			text__paragraph(out, width, "", "  ",
					"%s: no allocation has this function on its stack",
					text__clean(clean, sizeof(clean), name, strlen(name)));
	if (lost)
		text__paragraph(out, width, "", "",
				"%s about phases overwritten before memtrace-bpf read them: some "
				"runs are missing, or have no end",
				text__counted(count, sizeof(count), lost, "record"));
	if (records)
		text__paragraph(out, width, "", "",
				"%s about record_function, NVTX or USDT probes lost: some runs are "
				"missing, or end too early",
				text__counted(count, sizeof(count), records, "record"));
	if (!model__scopes(m))
		return;
	if (functions)
		text__paragraph(out, width, "", "",
				"A function lasts from the first to the last allocation of a "
				"thread in it: calls without an allocation between them are one "
				"run.%s",
				memory ? " " LEVELS : "");
	else if (memory)
		text__paragraph(out, width, "", "", LEVELS);
	if (o->scopes && !model__devices(m))
		text__paragraph(out, width, "", "",
				"No memory event was seen: only runs and times are known.");
	if (earlier && !memory)
		text__paragraph(out, width, "", "", "%s began before the recording",
				text__counted(count, sizeof(count), earlier, "run"));
	else if (earlier)
		text__paragraph(out, width, "", "",
				"%s began before the recording: Start is not known, and Peak is "
				"that of the rest",
				text__counted(count, sizeof(count), earlier, "run"));
	if (model__scopes_left_out(m))
		text__paragraph(out, width, "", "",
				"%s left out: too many are open at a time, or their begin was not "
				"recorded",
				text__counted(count, sizeof(count), model__scopes_left_out(m),
					      "run"));
}

/* True if a scope has figures for each step. */
static bool has_steps(const struct model *m)
{
	double runs, time;

	for (size_t i = 0; i < model__scopes(m); i++)
		if (model__scope_per_step(m, i, &runs, &time))
			return true;
	return false;
}

/* True if a run of some scope has a reading of host memory. */
static bool has_host(const struct model *m)
{
	struct model_scope_host host;

	for (size_t i = 0; i < model__scopes(m); i++)
		if (model__scope_host(m, i, &host) && host.readings)
			return true;
	return false;
}

/* Says of which readings the column RSS is, or that there are none in a run. */
static void say_host(FILE *out, const struct model *m, unsigned width)
{
	const struct model_host *host = model__host(m);
	char count[48];

	if (!host || !model__scopes(m))
		return;
	text__counted(count, sizeof(count), host->readings, "reading");
	if (has_host(m))
		text__paragraph(out, width, "", "",
				"RSS: the highest of the readings of host memory in a run, of %s "
				"in all.",
				count);
	else
		text__paragraph(out, width, "", "",
				"Host memory in scopes is unknown: none of the %s of it was in a "
				"run.",
				count);
}

/* Shows the columns that have a figure in some scope. */
static void choose_columns(struct scope_table *t)
{
	struct model_device d;

	for (int i = SCOPE_START; t->device < 0 && i <= SCOPE_KEPT; i++)
		grid__show(t->grid, i, false);
	grid__show(t->grid, SCOPE_HOST, has_host(t->m));
	if (t->device >= 0) {
		model__device(t->m, (size_t)t->device, &d);
		grid__show(t->grid, SCOPE_RESERVED, d.has_totals);
	}
	grid__show(t->grid, SCOPE_STEP, has_steps(t->m));
	t->room = grid__fit(t->grid, report_text__width(t->out, t->o), NAME_WANTED, SCOPE_NAME);
	t->room = t->room ?: 8; /* of a name, however narrow the page is */
}

int report_text__scopes(FILE *out, const struct model *m, int device, const struct facts *f,
			const struct report_text_opts *o)
{
	static const struct column columns[] = {
		[SCOPE_RUNS] = { "Runs", true, 0, 4 },
		[SCOPE_TIME] = { "Time", true, 6, 7 },
		[SCOPE_STEP] = { "Time/step", true, 1, 7 },
		[SCOPE_START] = { "Start", true, 5, FIGURE },
		[SCOPE_PEAK] = { "Peak", true, 0, FIGURE },
		[SCOPE_RESERVED] = { "Reserved", true, 3, FIGURE },
		[SCOPE_CHANGE] = { "Change", true, 7, FIGURE },
		[SCOPE_KEPT] = { "Kept", true, 4, FIGURE },
		[SCOPE_HOST] = { "RSS", true, 2, FIGURE },
	};
	struct scope_table t = {
		.out = out, .m = m, .device = device, .o = o, .cwd = facts__get(f, "cwd")
	};
	size_t *order = calloc(model__scopes(m) + 1, sizeof(*order)), n;
	int err = -ENOMEM;
	bool found;

	t.grid = grid__new(columns, SCOPE_NAME);
	if (!order || !t.grid)
		goto out;
	n = order_inside(m, /*parent=*/SIZE_MAX, order, 0);
	for (size_t i = 0; i < n; i++)
		put_rows(&t, order[i]);
	err = grid__error(t.grid);
	if (err)
		goto out;
	choose_columns(&t);
	fputc('\n', out);
	if (!n && !model__scope_function(m, 0, &found))
		text__paragraph(out, report_text__width(out, o), "", "",
				"No scopes: name a Python function of the job with --scope, or let "
				"the job name its phases with memtrace_bpf.phase(\"rollout\")");
	if (n)
		grid__print_titles(t.grid, out, report_text__colour(out, o), "Scope");
	for (size_t i = 0; i < n; i++)
		print_scope(&t, order[i]);
	if (o->scopes)
		say_host(out, m, report_text__width(out, o));
	say_limits(out, m, device >= 0, f, o);
out:
	grid__free(t.grid);
	free(order);
	return err;
}

/* ---- JSON ---- */

static void put_level(struct json *j, const struct model_device *d,
		      const struct model_scope_level *l)
{
	json__string(j, "device", d->name);
	json__uint(j, "run", l->run);
	json__uint_or_null(j, "start", l->start_known, l->start);
	json__uint(j, "peak_allocated", l->peak);
	json__seconds(j, "peak_time", l->peak_time, /*decimals=*/9);
	json__uint_or_null(j, "peak_reserved", d->has_totals, l->peak_reserved);
	json__uint(j, "end", l->end);
	json__uint_or_null(j, "kept", l->kept_known, l->kept);
}

/* Writes the largest lines at the peak of a scope, if they were looked for. */
static void put_lines(struct json *j, const struct scope_lines *lines, size_t scope, size_t device)
{
	const struct row *rows;
	uint64_t more;
	size_t n = scope_lines__of(lines, scope, device, &rows, &more);

	if (!n)
		return;
	json__open_array(j, "lines");
	for (size_t i = 0; i < n; i++) {
		json__open_object(j, NULL);
		json__uint(j, "bytes", rows[i].bytes);
		json__uint(j, "count", rows[i].count);
		report_json__line(j, &rows[i]);
		json__close_object(j);
	}
	json__close_array(j);
	json__uint(j, "other_lines", more);
}

/* Writes the devices of a scope: its run with the highest peak, and medians. */
static void put_highest(struct json *j, const struct model *m, const struct scope_lines *lines,
			size_t scope)
{
	struct model_scope_level l;
	struct model_scope_medians medians;
	struct model_device d;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(m); i++) {
		if (!model__scope_highest(m, scope, i, &l))
			continue;
		model__device(m, i, &d);
		json__open_object(j, NULL);
		put_level(j, &d, &l);
		model__scope_medians(m, scope, i, &medians);
		if (medians.change_known)
			json__int(j, "median_change", medians.change);
		else
			json__null(j, "median_change");
		json__uint_or_null(j, "median_kept", medians.kept_known, medians.kept);
		put_lines(j, lines, scope, i);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_reading(struct json *j, const char *key, const struct model_reading *reading)
{
	if (!reading->known) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	json__seconds(j, "time", reading->time, /*decimals=*/9);
	json__uint(j, "rss", reading->rss);
	json__close_object(j);
}

/* Writes the resident memory in the run with the highest reading; null: there are no readings. */
static void put_host_json(struct json *j, const struct model *m, size_t scope)
{
	struct model_scope_host host;

	if (!model__scope_host(m, scope, &host)) {
		json__null(j, "host");
		return;
	}
	json__open_object(j, "host");
	json__uint(j, "readings", host.readings);
	json__uint_or_null(j, "run", host.readings, host.run);
	put_reading(j, "start", &host.start);
	put_reading(j, "peak", &host.peak);
	put_reading(j, "end", &host.end);
	json__close_object(j);
}

static void put_run(struct json *j, const struct model *m, size_t run)
{
	struct model_scope_level l;
	struct model_scope_run r;
	struct model_device d;

	model__scope_run(m, run, &r);
	json__open_object(j, NULL);
	json__uint(j, "scope", r.scope);
	json__uint(j, "number", r.number);
	json__seconds(j, "begin", r.begin, /*decimals=*/9);
	json__seconds(j, "end", r.end, /*decimals=*/9);
	json__bool(j, "ended", r.ended);
	json__bool(j, "began_before", r.earlier);
	json__uint(j, "step", r.step);
	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(m); i++) {
		if (!model__scope_run_level(m, run, i, &l))
			continue;
		model__device(m, i, &d);
		json__open_object(j, NULL);
		put_level(j, &d, &l);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static void put_path(struct json *j, const struct model *m, const struct scope_lines *lines,
		     size_t scope)
{
	struct model_scope s;
	double runs, time;

	model__scope(m, scope, &s);
	json__open_object(j, NULL);
	json__string(j, "name", s.name);
	json__string(j, "path", s.path);
	json__string(j, "source", scope_source__name(s.source));
	json__uint_or_null(j, "inside", s.parent != SIZE_MAX, s.parent);
	json__uint(j, "runs", s.runs);
	json__uint(j, "open_at_end", s.open);
	json__uint(j, "began_before", s.earlier);
	json__seconds(j, "time", s.time, /*decimals=*/9);
	json__seconds(j, "median_time", model__scope_median_time(m, scope), /*decimals=*/9);
	json__seconds(j, "longest_time", s.longest, /*decimals=*/9);
	if (model__scope_per_step(m, scope, &runs, &time)) {
		json__open_object(j, "per_step");
		json__double(j, "runs", runs, /*decimals=*/6);
		json__seconds(j, "time", (uint64_t)time, /*decimals=*/9);
		json__close_object(j);
	} else {
		json__null(j, "per_step");
	}
	put_highest(j, m, lines, scope);
	put_host_json(j, m, scope);
	json__close_object(j);
}

void report_scopes__json(struct json *j, const struct report_doc *doc)
{
	const struct model *m = doc->model;
	const char *name;
	bool found;

	if (!model__scope_function(m, 0, &found) && !model__scopes(m) && !model__scopes_left_out(m))
		return;
	json__open_object(j, "scopes");
	json__open_array(j, "functions");
	for (size_t i = 0; (name = model__scope_function(m, i, &found)); i++) {
		json__open_object(j, NULL);
		json__string(j, "name", name);
		json__bool(j, "found", found);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "scopes");
	for (size_t i = 0; i < model__scopes(m); i++)
		put_path(j, m, doc->scope_lines, i);
	json__close_array(j);
	json__uint(j, "runs_left_out", model__scopes_left_out(m));
	json__open_array(j, "runs");
	for (size_t i = 0; i < model__scope_runs(m); i++)
		put_run(j, m, i);
	json__close_array(j);
	json__close_object(j);
}
