/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The figures of several recordings, a row for each, as text, Markdown and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/stream.h"
#include "report/diff.h"

static char *copy(const char *s)
{
	return s && *s ? strdup(s) : NULL;
}

/* Computes the median step time. The first step does not count if its start is missing. The model
 * keeps only the last steps of very many. */
static int measure_steps(struct compared *c, const struct model *m, const struct compare_opts *o)
{
	struct model_step s;
	uint64_t *times = NULL, first, number, n = 0, partly = !model__first_step_whole(m);
	size_t room = 0, kept = 0;
	int err = 0;

	c->steps = model__whole_steps(m);
	while (model__step(m, kept, &s))
		kept++;
	first = model__steps(m) - kept;
	for (size_t i = 0; i < kept && !err; i++) {
		number = first + i; /* number among all steps */
		if (number < partly || number - partly < o->skip ||
		    (o->steps && number - partly - o->skip >= o->steps))
			continue;
		model__step(m, i, &s);
		err = array__grow(&times, &room, n + 1, sizeof(*times));
		if (!err)
			times[n++] = s.end - s.start;
	}
	if (n && !err) {
		qsort(times, n, sizeof(*times), array__compare_u64);
		/* Same rule as in model__step_time(). */
		c->step_time = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
		c->timed = n;
	}
	free(times);
	return err;
}

static bool copy_failed(const char *s, const char *made)
{
	return s && *s && !made;
}

/* Copies the figures of a recording, so that the recording itself can be freed. */
static int copy_figures(struct compared *c, const struct analysis *a, size_t device,
			const struct compare_opts *o)
{
	const char *attached = facts__get(a->facts, "attached_at"), *name;
	char detail[DETAIL_TEXT];
	struct row r = { 0 };

	model__device(a->model, device, &c->device);
	name = words__device_fact(a->facts, &c->device, "name");
	c->torch = copy(facts__get(a->facts, "torch"));
	c->cwd = copy(facts__get(a->facts, "cwd"));
	c->device_name = copy(name);
	c->detail = strdup(detail__sentence(detail, sizeof(detail), a->facts));
	if (!c->detail || copy_failed(facts__get(a->facts, "torch"), c->torch) ||
	    copy_failed(facts__get(a->facts, "cwd"), c->cwd) || copy_failed(name, c->device_name))
		return -ENOMEM;
	words__program(c->program, sizeof(c->program), a->facts);
	c->dry_run = facts__get(a->facts, "dry_run");
	c->complete = a->complete;
	c->live = !attached || !strcmp(attached, "live");
	c->duration = a->duration;
	c->is_window = model__window(a->model, &c->window_start);
	c->events = model__events(a->model);
	c->lost = words__lost(a->model, a->facts);
	if (model__peak_line(a->model, device, false, &r)) {
		c->file = copy(r.file);
		c->func = copy(r.func);
		c->module = copy(r.module);
		c->line = r.line;
		if (copy_failed(r.file, c->file) || copy_failed(r.func, c->func) ||
		    copy_failed(r.module, c->module))
			return -ENOMEM;
	}
	return measure_steps(c, a->model, o);
}

int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret)
{
	struct model_opts peak = { .at = AT_PEAK };
	struct compared c = { 0 };
	struct analysis *a = NULL;
	size_t device;
	int err = 0, status = analysis__open(path, &peak, &a);

	if (!status)
		status = analysis__run(a, NULL, NULL);
	if (!status)
		status = analysis__device(a, o->device, &device);
	if (!status) {
		c.name = strdup(name ? name : a->name);
		c.recording = strdup(a->name);
		err = c.name && c.recording ? copy_figures(&c, a, device, o) : -ENOMEM;
	}
	analysis__free(a);
	if (err) {
		log_err("out of memory");
		status = EXIT_FAILED;
	}
	if (status)
		compare__drop(&c);
	else
		*ret = c;
	return status;
}

void compare__drop(struct compared *c)
{
	free(c->name);
	free(c->recording);
	free(c->torch);
	free(c->device_name);
	free(c->cwd);
	free(c->detail);
	free(c->file);
	free(c->func);
	free(c->module);
	memset(c, 0, sizeof(*c));
}

/* Fragmentation when the most bytes were reserved but not allocated. */
static double most_fragmentation(const struct model_device *d)
{
	return d->most_unused_reserved ? (double)d->most_unused / (double)d->most_unused_reserved
				       : 0;
}

#define COMPARE_TEXT 560 /* size of a reason */

static bool differ(const char *a, const char *b)
{
	return a && b && strcmp(a, b) != 0;
}

enum {
	W_OOM,
	W_LOST,
	W_CUT,
	W_DETAIL,
	W_DRIFT,
	W_BEFORE,
	W_PROGRAM,
	W_DEVICE,
	W_MODEL_OF_DEVICE,
	W_DRY,
	W_TORCH,
	W_STEPS,
	W_ATTACHED,
	W_NR
};

/* Writes one reason. False: it does not apply. */
static bool warn(const struct compared *first, const struct compared *c, int what, char *buf)
{
	char a[100], b[100];
	bool same = c == first;

	switch (what) {
	case W_OOM:
		snprintf(buf, COMPARE_TEXT, "it ran out of memory, %s time%s",
			 text__count(a, 32, c->device.ooms), c->device.ooms == 1 ? "" : "s");
		return c->device.ooms;
	case W_LOST:
		snprintf(buf, COMPARE_TEXT, "%s lost, so its figures are lower bounds",
			 text__counted(a, 32, c->lost, "event"));
		return c->lost;
	case W_CUT:
		snprintf(buf, COMPARE_TEXT, "the recording is not complete");
		return !c->complete;
	case W_DETAIL:
		snprintf(buf, COMPARE_TEXT, "it has reduced detail: %s", c->detail);
		return *c->detail;
	case W_DRIFT:
		snprintf(buf, COMPARE_TEXT, "blocks and the allocator's totals differ by up to %s",
			 text__bytes(a, 24, c->device.drift));
		return c->device.has_totals && c->device.drift;
	case W_BEFORE:
		snprintf(buf, COMPARE_TEXT, "%s were there before attach",
			 text__bytes(a, 24, c->device.before_attach_start));
		return c->device.has_totals && c->device.before_attach_start;
	case W_PROGRAM:
		snprintf(buf, COMPARE_TEXT, "it ran %s, the first ran %s", c->program,
			 first->program);
		return !same && *c->program && *first->program &&
		       strcmp(c->program, first->program) != 0;
	case W_DEVICE:
		snprintf(buf, COMPARE_TEXT, "its device is %s, that of the first %s",
			 c->device.name, first->device.name);
		return !same && differ(c->device.name, first->device.name);
	case W_MODEL_OF_DEVICE:
		if (same || !differ(c->device_name, first->device_name))
			return false;
		snprintf(buf, COMPARE_TEXT, "it ran on another device (%s, the first on %s)",
			 text__clean(a, sizeof(a), c->device_name, strlen(c->device_name)),
			 text__clean(b, sizeof(b), first->device_name, strlen(first->device_name)));
		return true;
	case W_DRY:
		snprintf(buf, COMPARE_TEXT, "it is %sa dry run, unlike the first",
			 c->dry_run ? "" : "not ");
		return !same && c->dry_run != first->dry_run;
	case W_TORCH:
		if (same || !differ(c->torch, first->torch))
			return false;
		snprintf(buf, COMPARE_TEXT, "its PyTorch is %s, that of the first %s",
			 text__clean(a, sizeof(a), c->torch, strlen(c->torch)),
			 text__clean(b, sizeof(b), first->torch, strlen(first->torch)));
		return true;
	case W_STEPS:
		snprintf(buf, COMPARE_TEXT, "it has %s, the first has %s",
			 text__counted(a, 32, c->steps, "step"), text__count(b, 32, first->steps));
		return !same && c->steps != first->steps;
	case W_ATTACHED:
		snprintf(buf, COMPARE_TEXT, "it was recorded %s, the first %s",
			 c->live ? "while it ran" : "from its start",
			 first->live ? "while it ran" : "from its start");
		return !same && c->live != first->live;
	}
	return false;
}

/* Writes the i-th reason (from 0) why a capture is not comparable with the first one or not
 * reliable. False: no more reasons. */
static bool warning(const struct compared *all, size_t which, size_t i, char buf[COMPARE_TEXT])
{
	for (int what = 0; what < W_NR; what++)
		if (warn(&all[0], &all[which], what, buf) && !i--)
			return true;
	return false;
}

/* ---- printing ---- */

/* Smallest width of names; wider if names cut to it are equal. */
#define NAME_WIDTH 24
#define REST_WIDTH 96 /* width of all other columns */
#define NAMES_COMPARED 256
#define WHERE_WANTED 20

enum {
	COL_NAME,
	COL_PEAK,
	COL_PERCENT,
	COL_RESERVED,
	COL_CACHED,
	COL_MOST,
	COL_STEP,
	COL_STEP_PERCENT,
	COL_STEPS,
	COL_NR
};

static const struct column columns[COL_NR] = {
	[COL_NAME] = { "Configuration", false, 0 },
	[COL_PEAK] = { "Peak", true, 0 },
	[COL_PERCENT] = { "", true, 0 },
	[COL_RESERVED] = { "Reserved", true, 6 },
	[COL_CACHED] = { "Cached", true, 7 },
	[COL_MOST] = { "Most cached", true, 1 },
	[COL_STEP] = { "Step", true, 0 },
	[COL_STEP_PERCENT] = { "", true, 0 },
	[COL_STEPS] = { "Steps", true, 2 },
};

struct cells {
	char name[REPORT_TEXT], peak[40], percent[24], reserved[24], cached[16], most[16], step[24],
		step_percent[24], steps[32];
	char where[REPORT_TEXT];
};

/* Writes "net/model.py:36 (forward), backward", or less of it if there is no room. */
static void where(struct cells *s, const struct compared *c, size_t columns_)
{
	const char *phase = c->device.peak_allocated ? words__phase(c->device.peak_phase) : "",
		   *slash = c->file ? strrchr(c->file, '/') : NULL,
		   *file = slash ? slash + 1 : c->file;
	struct row r = { .file = c->file,
			 .func = c->func ? c->func : "",
			 .line = c->line,
			 .source = "frame",
			 .module = "" };
	char place[REPORT_TEXT], clean[REPORT_TEXT / 2];
	size_t rest = strlen(phase) + 2, room = columns_ > rest ? columns_ - rest : 0;

	snprintf(s->where, sizeof(s->where), "%s", phase);
	if (!c->file || columns_ < 8)
		return;
	words__location(place, &r, c->cwd, room);
	if (!strstr(place, ")")) {
		snprintf(place, sizeof(place), "%s:%u",
			 text__clean(clean, sizeof(clean), file, strlen(file)), c->line);
		/* Keep the end, which has the line number. */
		words__cut_front(place, columns_);
	}
	snprintf(s->where, sizeof(s->where), "%.*s%s%s", (int)sizeof(s->where) - 32, place,
		 *phase && text__width(place) <= room ? ", " : "",
		 text__width(place) <= room ? phase : "");
}

static const char *cut_name(char buf[REPORT_TEXT], const struct compared *c, size_t columns_)
{
	return words__cut_middle(text__clean(buf, REPORT_TEXT, c->name, strlen(c->name)), columns_);
}

static bool any_alike(const struct compared *all, size_t n, size_t columns_)
{
	char a[REPORT_TEXT], b[REPORT_TEXT];

	for (size_t i = 0; i < n; i++) {
		cut_name(a, &all[i], columns_);
		for (size_t k = 0; k < i; k++)
			if (strcmp(all[i].name, all[k].name) != 0 &&
			    !strcmp(a, cut_name(b, &all[k], columns_)))
				return true;
	}
	return false;
}

/* Chooses a width that fits and keeps the names distinct. */
static size_t name_width(const struct compared *all, size_t n, size_t width)
{
	size_t ret = width > NAME_WIDTH + REST_WIDTH ? width - REST_WIDTH : NAME_WIDTH;

	while (ret < width && n <= NAMES_COMPARED && any_alike(all, n, ret))
		ret += 4;
	return ret;
}

static void fill(struct cells *s, const struct compared *all, size_t i, size_t name_columns,
		 size_t columns_)
{
	const struct compared *c = &all[i], *first = &all[0];
	char bytes[24];

	cut_name(s->name, c, name_columns);
	snprintf(s->peak, sizeof(s->peak), "%s%s",
		 c->device.peak_is <= FIGURE_SINCE_ATTACH  ? ""
		 : c->device.peak_is == FIGURE_LOWER_BOUND ? ">= "
							   : "~ ",
		 text__bytes(bytes, sizeof(bytes), c->device.peak_allocated));
	diff__percent(s->percent, sizeof(s->percent), i ? first->device.peak_allocated : 0,
		      c->device.peak_allocated);
	strcpy(s->reserved, "-");
	strcpy(s->cached, "-");
	strcpy(s->most, "-");
	if (c->device.has_totals) {
		text__bytes(s->reserved, sizeof(s->reserved), c->device.peak_reserved);
		snprintf(s->cached, sizeof(s->cached), "%.1f %%",
			 100 * words__fragmentation(c->device.mark_allocated,
						    c->device.mark_reserved));
		snprintf(s->most, sizeof(s->most), "%.1f %%", 100 * most_fragmentation(&c->device));
	}
	strcpy(s->step, "-");
	if (c->timed)
		text__time(s->step, sizeof(s->step), c->step_time);
	diff__percent(s->step_percent, sizeof(s->step_percent),
		      i && c->timed ? first->step_time : 0, c->step_time);
	text__count(s->steps, sizeof(s->steps), c->steps);
	where(s, c, columns_);
}

static bool any_dry_run(const struct compared *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].dry_run)
			return true;
	return false;
}

static bool any_totals(const struct compared *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].device.has_totals)
			return true;
	return false;
}

static void put_cells(const struct cells *s, const char *cells[COL_NR])
{
	const char *all[COL_NR] = {
		[COL_NAME] = s->name,	    [COL_PEAK] = s->peak,
		[COL_PERCENT] = s->percent, [COL_RESERVED] = s->reserved,
		[COL_CACHED] = s->cached,   [COL_MOST] = s->most,
		[COL_STEP] = s->step,	    [COL_STEP_PERCENT] = s->step_percent,
		[COL_STEPS] = s->steps,
	};

	memcpy(cells, all, sizeof(all));
}

/* Escapes characters with a meaning in Markdown. */
static void put_markdown(FILE *out, const char *s)
{
	for (; *s; s++) {
		if (strchr("\\|`*_<>[]#~&", *s))
			fputc('\\', out);
		fputc(*s, out);
	}
}

/* Prints the reasons against a comparison; in Markdown as a list. */
static void print_notes(FILE *out, const struct compared *all, size_t n, bool markdown)
{
	char text[COMPARE_TEXT], name[REPORT_TEXT], line[COMPARE_TEXT + REPORT_TEXT];
	bool any = false;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; warning(all, i, k, text); k++) {
			snprintf(line, sizeof(line), "%s: %s",
				 text__clean(name, sizeof(name), all[i].name, strlen(all[i].name)),
				 text);
			fputs(any ? "" : "\n", out);
			if (markdown) {
				fputs("* ", out);
				put_markdown(out, line);
			} else {
				fputs(line, out);
			}
			fputc('\n', out);
			any = true;
		}
	if (any_dry_run(all, n))
		fprintf(out,
			"%s%sDry run: memory is what PyTorch's allocator does, to the byte; "
			"kernels computed\n"
			"%snothing, so that the time of a step is the host's alone.\n",
			any ? "" : "\n", markdown ? "* " : "", markdown ? "  " : "");
}

int compare_text__print(FILE *out, const struct compared *all, size_t n,
			const struct report_text_opts *o)
{
	struct grid *t = grid__new(columns, COL_NR);
	struct cells *s = calloc(1, sizeof(*s));
	const char *cells[COL_NR];
	int err = t && s ? 0 : -ENOMEM;
	size_t width = report_text__width(out, o), names = name_width(all, n, width), room;

	for (size_t i = 0; i < n && !err; i++) {
		fill(s, all, i, names, 0);
		put_cells(s, cells);
		grid__row(t);
		for (size_t c = 0; c < COL_NR; c++)
			grid__put(t, c, cells[c], NULL);
		err = grid__error(t);
	}
	if (!err) {
		if (!any_totals(all, n)) { /* as on the CPU */
			grid__show(t, COL_RESERVED, false);
			grid__show(t, COL_CACHED, false);
			grid__show(t, COL_MOST, false);
		}
		/* A short path is useless, so it goes last. */
		grid__last_goes(t, 5);
		room = grid__fit(t, width, WHERE_WANTED, COL_NR);
		grid__print_titles(t, out, report_text__colour(out, o),
				   room > WHERE_WANTED ? "Where it peaks" : "Peaks in");
		for (size_t i = 0; i < n; i++) {
			fill(s, all, i, names, room);
			grid__print(t, out, i, words__cut(s->where, room));
		}
		print_notes(out, all, n, false);
	}
	grid__free(t);
	free(s);
	return err;
}

static void put_cell(FILE *out, const char *s)
{
	fputc(' ', out);
	put_markdown(out, s);
	fputs(" |", out);
}

int compare_markdown__print(FILE *out, const struct compared *all, size_t n)
{
	struct cells *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	fputs("| Configuration | Peak memory | | Reserved | Cached | Most cached | Step time | | "
	      "Steps | Where it peaks |\n"
	      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
	      out);
	for (size_t i = 0; i < n; i++) {
		const char *cells[COL_NR];

		fill(s, all, i, REPORT_TEXT, 60);
		put_cells(s, cells);
		fputc('|', out);
		for (int k = 0; k < COL_NR; k++)
			put_cell(out, cells[k]);
		put_cell(out, s->where);
		fputc('\n', out);
	}
	print_notes(out, all, n, true);
	free(s);
	return 0;
}

static void put_times(struct json *j, const char *key, uint64_t old, uint64_t new)
{
	if (old)
		json__double(j, key, (double)new / (double)old, 6);
	else
		json__null(j, key);
}

static void put_device(struct json *j, const struct model_device *d)
{
	json__string(j, "device", d->name);
	json__uint(j, "peak_allocated", d->peak_allocated);
	json__string(j, "peak_is", figure__name(d->peak_is));
	json__seconds(j, "peak_time", d->peak_time, 9);
	json__uint(j, "peak_step", d->peak_step);
	json__string(j, "peak_phase", phase__name(d->peak_phase));
	if (d->has_totals) {
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "reserved_at_peak", d->mark_reserved);
		json__double(j, "fragmentation_at_peak",
			     words__fragmentation(d->mark_allocated, d->mark_reserved), 6);
		json__double(j, "fragmentation_at_most", most_fragmentation(d), 6);
		json__uint(j, "most_unused", d->most_unused);
		json__uint(j, "most_unused_reserved", d->most_unused_reserved);
		json__uint(j, "before_attach", d->before_attach_start);
		json__uint(j, "drift", d->drift);
	} else {
		json__null(j, "peak_reserved");
		json__null(j, "before_attach");
	}
	json__uint(j, "total_allocated", d->total_allocated);
	json__uint(j, "ooms", d->ooms);
}

static void put_capture(struct json *j, const struct compared *all, size_t i)
{
	const struct compared *c = &all[i];
	char text[COMPARE_TEXT];

	json__open_object(j, NULL);
	json__string(j, "name", c->name);
	json__string(j, "recording", c->recording);
	put_device(j, &c->device);
	json__string(j, "peak_file", c->file);
	json__uint_or_null(j, "peak_line", c->file && c->line, c->line);
	json__string(j, "peak_function", c->func);
	json__string(j, "peak_module", c->module);
	json__uint(j, "steps", c->steps);
	json__uint(j, "steps_timed", c->timed);
	if (c->timed)
		json__seconds(j, "step_time", c->step_time, 9);
	else
		json__null(j, "step_time");
	json__seconds(j, "duration", c->duration, 9);
	if (c->is_window)
		json__seconds(j, "window_start", c->window_start, 9);
	json__uint(j, "events", c->events);
	json__uint(j, "lost", c->lost);
	json__bool(j, "complete", c->complete);
	json__bool(j, "dry_run", c->dry_run);
	json__string(j, "torch", c->torch);
	json__string(j, "device_name", c->device_name);
	json__open_object(j, "against_first");
	put_times(j, "peak_allocated", all[0].device.peak_allocated, c->device.peak_allocated);
	put_times(j, "peak_reserved", c->device.has_totals ? all[0].device.peak_reserved : 0,
		  c->device.peak_reserved);
	put_times(j, "step_time", c->timed ? all[0].step_time : 0, c->step_time);
	json__close_object(j);
	json__open_array(j, "warnings");
	for (size_t k = 0; warning(all, i, k, text); k++)
		json__string(j, NULL, text);
	json__close_array(j);
	json__close_object(j);
}

int compare_json__print(FILE *out, const struct compared *all, size_t n)
{
	struct json *j = json__new(out, true);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__open_array(j, "captures");
	for (size_t i = 0; i < n; i++)
		put_capture(j, all, i);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return 0;
}
