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

/* Copies a text; "" and NULL become NULL. Returns 0 or -ENOMEM. */
static int copy_text(char **ret, const char *s)
{
	*ret = s && *s ? strdup(s) : NULL;
	return s && *s && !*ret ? -ENOMEM : 0;
}

/* Computes the median time of the steps that o chooses among those that the model keeps. The first
 * step does not count if it began before the recording. Returns 0 or -ENOMEM. */
static int measure_steps(struct compared *c, const struct model *m, const struct compare_opts *o)
{
	struct model_step step;
	uint64_t *times = NULL, first_kept, partial = !model__first_step_whole(m), n = 0;
	size_t room = 0, kept = 0;

	c->steps = model__whole_steps(m);
	while (model__step(m, kept, &step))
		kept++;
	first_kept = model__steps(m) - kept;
	for (size_t i = 0; i < kept; i++) {
		uint64_t number = first_kept + i;  /* among all steps */
		uint64_t whole = number - partial; /* among those that are whole */

		if (number < partial || whole < o->skip ||
		    (o->steps && whole - o->skip >= o->steps))
			continue;
		model__step(m, i, &step);
		if (array__grow(&times, &room, n + 1, sizeof(*times))) {
			free(times);
			return -ENOMEM;
		}
		times[n++] = step.end - step.start;
	}
	if (n) {
		qsort(times, n, sizeof(*times), array__compare_u64);
		/* Same rule as in model__step_time(). */
		c->step_time = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
		c->timed = n;
	}
	free(times);
	return 0;
}

static enum recorded how_recorded(const struct analysis *a)
{
	const char *attached = facts__get(a->facts, "attached_at");

	if (model__is_snapshot(a->model))
		return RECORDED_BY_TORCH;
	return !attached || !strcmp(attached, "live") ? RECORDED_LIVE : RECORDED_WHOLE;
}

/* Copies the figures of a recording, so that the recording itself can be freed. Returns 0 or
 * -ENOMEM. */
static int copy_figures(struct compared *c, const struct analysis *a, size_t device,
			const struct compare_opts *o)
{
	const char *name;
	char detail[DETAIL_TEXT];
	struct row peak_line = { 0 };

	model__device(a->model, device, &c->device);
	name = words__device_fact(a->facts, &c->device, "name");
	c->detail = strdup(detail__reduced(detail, sizeof(detail), a->facts));
	if (!c->detail || copy_text(&c->torch, facts__get(a->facts, "torch")) ||
	    copy_text(&c->cwd, facts__get(a->facts, "cwd")) || copy_text(&c->device_name, name))
		return -ENOMEM;
	words__program(c->program, sizeof(c->program), a->facts);
	c->dry_run = facts__get(a->facts, "dry_run");
	c->complete = a->complete;
	c->recorded = how_recorded(a);
	c->duration = a->duration;
	c->is_window = model__window(a->model, &c->window_start);
	c->events = model__events(a->model);
	c->lost = words__lost(a->model, a->facts);
	if (model__peak_line(a->model, device, false, &peak_line) &&
	    (copy_text(&c->file, peak_line.file) || copy_text(&c->func, peak_line.func) ||
	     copy_text(&c->module, peak_line.module)))
		return -ENOMEM;
	c->line = peak_line.line;
	return measure_steps(c, a->model, o);
}

int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret, struct scope_set *scopes, size_t i)
{
	struct compared compared = { 0 };
	struct analysis *analysis = NULL;
	size_t device;
	bool found;
	int status = analysis__open(path, &o->moment, &analysis);

	if (status)
		goto out;
	status = analysis__run(analysis, NULL, NULL);
	if (status)
		goto out;
	status = analysis__device(analysis, o->device, &device);
	if (status)
		goto out;
	compared.name = strdup(name ? name : analysis->name);
	compared.recording = strdup(analysis->name);
	compared.names_functions = model__scope_function(analysis->model, 0, &found);
	if (compared.name && compared.recording && !copy_figures(&compared, analysis, device, o) &&
	    !scope_set__add(scopes, i, analysis->model, device)) {
		*ret = compared;
		goto out;
	}
	log_err("out of memory");
	compare__drop(&compared);
	status = EXIT_FAILED;
out:
	analysis__free(analysis);
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

/* Returns the fragmentation at the moment when most reserved bytes were not allocated. */
static double most_fragmentation(const struct model_device *d)
{
	if (!d->most_unused_reserved)
		return 0;
	return (double)d->most_unused / (double)d->most_unused_reserved;
}

#define COMPARE_TEXT 560 /* size of a warning's text */

/* True if two facts are both known and differ. */
static bool differ(const char *a, const char *b)
{
	return a && b && strcmp(a, b) != 0;
}

/* Warnings: why a recording is not reliable, or not comparable with the first one. */
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

/* Writes a warning W_* about c. Returns whether it applies; if not, buf may have any text. */
static bool warn(const struct compared *first, const struct compared *c, int what, char *buf)
{
	static const char *const recorded[] = { [RECORDED_WHOLE] = "from its start",
						[RECORDED_LIVE] = "while it ran",
						[RECORDED_BY_TORCH] = "by PyTorch itself" };
	char text[100], first_text[100];
	bool same = c == first;

	switch (what) {
	case W_OOM:
		snprintf(buf, COMPARE_TEXT, "it ran out of memory, %s time%s",
			 text__count(text, 32, c->device.ooms), c->device.ooms == 1 ? "" : "s");
		return c->device.ooms;
	case W_LOST:
		snprintf(buf, COMPARE_TEXT, "%s lost, so its figures are lower bounds",
			 text__counted(text, 32, c->lost, "event"));
		return c->lost;
	case W_CUT:
		snprintf(buf, COMPARE_TEXT, "the recording is not complete");
		return !c->complete;
	case W_DETAIL:
		snprintf(buf, COMPARE_TEXT, "it has reduced detail: %s", c->detail);
		return *c->detail;
	case W_DRIFT:
		snprintf(buf, COMPARE_TEXT, "blocks and the allocator's totals differ by up to %s",
			 text__bytes(text, 24, c->device.drift));
		return c->device.has_totals && c->device.drift;
	case W_BEFORE:
		snprintf(buf, COMPARE_TEXT, "%s were there %s",
			 text__bytes(text, 24, c->device.before_attach_start),
			 words__before(c->recorded == RECORDED_BY_TORCH));
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
			 text__clean(text, sizeof(text), c->device_name, strlen(c->device_name)),
			 text__clean(first_text, sizeof(first_text), first->device_name,
				     strlen(first->device_name)));
		return true;
	case W_DRY:
		snprintf(buf, COMPARE_TEXT, "it is %sa dry run, unlike the first",
			 c->dry_run ? "" : "not ");
		return !same && c->dry_run != first->dry_run;
	case W_TORCH:
		if (same || !differ(c->torch, first->torch))
			return false;
		snprintf(buf, COMPARE_TEXT, "its PyTorch is %s, that of the first %s",
			 text__clean(text, sizeof(text), c->torch, strlen(c->torch)),
			 text__clean(first_text, sizeof(first_text), first->torch,
				     strlen(first->torch)));
		return true;
	case W_STEPS:
		snprintf(buf, COMPARE_TEXT, "it has %s, the first has %s",
			 text__counted(text, 32, c->steps, "step"),
			 text__count(first_text, 32, first->steps));
		return !same && c->steps != first->steps;
	case W_ATTACHED:
		snprintf(buf, COMPARE_TEXT, "it was recorded %s, the first %s",
			 recorded[c->recorded], recorded[first->recorded]);
		return !same && c->recorded != first->recorded;
	}
	return false;
}

/* Writes the i-th warning (from 0) about recording `which`. Returns false if it has no more. */
static bool nth_warning(const struct compared *all, size_t which, size_t i, char buf[COMPARE_TEXT])
{
	for (int what = 0; what < W_NR; what++)
		if (warn(&all[0], &all[which], what, buf) && !i--)
			return true;
	return false;
}

/* ---- printing ---- */

#define NAME_WIDTH 24	   /* least columns of names; more if names cut to it are equal */
#define REST_WIDTH 96	   /* width of all other columns */
#define NAMES_COMPARED 256 /* with more recordings, equal cut names are accepted */
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

/* The texts of a recording's row. */
struct cells {
	char text[COL_NR][40]; /* without the name */
	char name[REPORT_TEXT], where[REPORT_TEXT];
};

/* Writes "net/model.py:36 (forward), backward", or less of it if there is no room. */
static void say_where(struct cells *s, const struct compared *c, size_t room)
{
	const char *phase = c->device.peak_allocated ? words__phase(c->device.peak_phase) : "";
	struct row row = { .file = c->file,
			   .func = c->func ? c->func : "",
			   .line = c->line,
			   .source = "frame",
			   .module = "" };
	char place[REPORT_TEXT], clean[REPORT_TEXT / 2];
	size_t rest = strlen(phase) + 2, of_place = room > rest ? room - rest : 0;
	const char *file;

	snprintf(s->where, sizeof(s->where), "%s", phase);
	if (!c->file || room < 8)
		return;
	words__location(place, &row, c->cwd, of_place);
	if (!strstr(place, ")")) {
		file = strrchr(c->file, '/') ? strrchr(c->file, '/') + 1 : c->file;
		text__clean(clean, sizeof(clean), file, strlen(file));
		snprintf(place, sizeof(place), "%s:%u", clean, c->line);
		/* Keep the end, which has the line number. */
		words__cut_front(place, room);
	}
	if (text__width(place) > of_place)
		phase = "";
	snprintf(s->where, sizeof(s->where), "%.*s%s%s", (int)sizeof(s->where) - 32, place,
		 *phase ? ", " : "", phase);
}

static const char *cut_name(char buf[REPORT_TEXT], const struct compared *c, size_t room)
{
	return words__cut_middle(text__clean(buf, REPORT_TEXT, c->name, strlen(c->name)), room);
}

/* True if two different names are equal when cut to this width. */
static bool any_alike(const struct compared *all, size_t n, size_t room)
{
	char a[REPORT_TEXT], b[REPORT_TEXT];

	for (size_t i = 0; i < n; i++) {
		cut_name(a, &all[i], room);
		for (size_t k = 0; k < i; k++)
			if (strcmp(all[i].name, all[k].name) != 0 &&
			    !strcmp(a, cut_name(b, &all[k], room)))
				return true;
	}
	return false;
}

/* Returns the columns for names: as few as keep the names distinct. */
static size_t name_width(const struct compared *all, size_t n, size_t width)
{
	size_t ret = width > NAME_WIDTH + REST_WIDTH ? width - REST_WIDTH : NAME_WIDTH;

	while (ret < width && n <= NAMES_COMPARED && any_alike(all, n, ret))
		ret += 4;
	return ret;
}

/* Fills the cells of a recording's row. first: the recording to compare with; NULL: c is the
 * first. */
static void fill_cells(struct cells *s, const struct compared *c, const struct compared *first,
		       size_t name_columns, size_t room)
{
	const struct model_device *device = &c->device;
	const char *about = "";
	char bytes[24];

	if (device->peak_is == FIGURE_LOWER_BOUND)
		about = ">= ";
	else if (device->peak_is > FIGURE_SINCE_ATTACH)
		about = "~ ";
	for (int col = 0; col < COL_NR; col++)
		strcpy(s->text[col], "-");
	cut_name(s->name, c, name_columns);
	snprintf(s->text[COL_PEAK], sizeof(s->text[0]), "%s%s", about,
		 text__bytes(bytes, sizeof(bytes), device->peak_allocated));
	diff__percent(s->text[COL_PERCENT], sizeof(s->text[0]),
		      first ? first->device.peak_allocated : 0, device->peak_allocated);
	if (device->has_totals) {
		text__bytes(s->text[COL_RESERVED], sizeof(s->text[0]), device->peak_reserved);
		snprintf(s->text[COL_CACHED], sizeof(s->text[0]), "%.1f %%",
			 100 * words__fragmentation(device->mark_allocated, device->mark_reserved));
		snprintf(s->text[COL_MOST], sizeof(s->text[0]), "%.1f %%",
			 100 * most_fragmentation(device));
	}
	if (c->timed)
		text__time(s->text[COL_STEP], sizeof(s->text[0]), c->step_time);
	diff__percent(s->text[COL_STEP_PERCENT], sizeof(s->text[0]),
		      first && c->timed ? first->step_time : 0, c->step_time);
	text__count(s->text[COL_STEPS], sizeof(s->text[0]), c->steps);
	say_where(s, c, room);
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

/* Escapes characters with a meaning in Markdown. */
static void put_markdown(FILE *out, const char *s)
{
	for (; *s; s++) {
		if (strchr("\\|`*_<>[]#~&", *s))
			fputc('\\', out);
		fputc(*s, out);
	}
}

/* Prints the warnings of all recordings; in Markdown as a list. */
static void print_notes(FILE *out, const struct compared *all, size_t n, bool markdown)
{
	char text[COMPARE_TEXT], name[REPORT_TEXT], line[COMPARE_TEXT + REPORT_TEXT];
	const char *item = markdown ? "* " : "";
	const char *indent = markdown ? "  " : "";
	bool any = false;

	for (size_t i = 0; i < n; i++)
		for (size_t nth = 0; nth_warning(all, i, nth, text); nth++) {
			snprintf(line, sizeof(line), "%s: %s",
				 text__clean(name, sizeof(name), all[i].name, strlen(all[i].name)),
				 text);
			fprintf(out, "%s%s", any ? "" : "\n", item);
			if (markdown)
				put_markdown(out, line);
			else
				fputs(line, out);
			fputc('\n', out);
			any = true;
		}
	if (any_dry_run(all, n))
		fprintf(out,
			"%s%sDry run: memory is what PyTorch's allocator does, to the byte; "
			"kernels computed\n"
			"%snothing, so that the time of a step is the host's alone.\n",
			any ? "" : "\n", item, indent);
}

/* ---- scopes ---- */

#define SCOPES_MOST 20 /* scopes of text and Markdown */

enum {
	SCOPE_NAME,
	SCOPE_PEAK,
	SCOPE_PERCENT,
	SCOPE_RESERVED,
	SCOPE_KEPT,
	SCOPE_TIME,
	SCOPE_TIME_PERCENT,
	SCOPE_RUNS,
	SCOPE_NR
};

static const struct column scope_columns[SCOPE_NR] = {
	[SCOPE_NAME] = { "Configuration", false, 0 },
	[SCOPE_PEAK] = { "Peak", true, 0 },
	[SCOPE_PERCENT] = { "", true, 0 },
	[SCOPE_RESERVED] = { "Reserved", true, 2 },
	[SCOPE_KEPT] = { "Kept", true, 3 },
	[SCOPE_TIME] = { "Time of one", true, 4 },
	[SCOPE_TIME_PERCENT] = { "", true, 4 },
	[SCOPE_RUNS] = { "Runs", true, 1 },
};

/* The texts of a scope in a recording. */
struct scope_cells {
	char text[SCOPE_NR][40]; /* without the name */
	char name[REPORT_TEXT];
};

/* Fills the cells of a scope in recording i, against the first recording. */
static void fill_scope(struct scope_cells *s, const struct compared *all, size_t i,
		       const struct scope_entry *e, size_t name_columns)
{
	const struct scope_cell one = scope_entry__cell(e, 0);
	const struct scope_cell cell = scope_entry__cell(e, i);
	const struct scope_cell *first = &one, *c = &cell;
	bool against = i && first->runs && c->runs;

	for (int col = 0; col < SCOPE_NR; col++)
		strcpy(s->text[col], "-");
	cut_name(s->name, &all[i], name_columns);
	*s->text[SCOPE_PERCENT] = *s->text[SCOPE_TIME_PERCENT] = '\0';
	if (!c->runs)
		return;
	if (c->level_known) {
		text__bytes(s->text[SCOPE_PEAK], 24, c->peak);
		diff__percent(s->text[SCOPE_PERCENT], 24,
			      against && first->level_known ? first->peak : 0, c->peak);
	}
	if (c->reserved)
		text__bytes(s->text[SCOPE_RESERVED], 24, c->reserved);
	if (c->kept_known)
		text__bytes(s->text[SCOPE_KEPT], 24, c->kept);
	text__time(s->text[SCOPE_TIME], 24, c->median_time);
	diff__percent(s->text[SCOPE_TIME_PERCENT], 24, against ? first->median_time : 0,
		      c->median_time);
	text__count(s->text[SCOPE_RUNS], 32, c->runs);
}

static size_t scopes_shown(const struct scope_set *set)
{
	return set->n < SCOPES_MOST ? set->n : SCOPES_MOST;
}

static bool any_reserved(const struct scope_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		for (size_t k = 0; k < set->all[i].ncells; k++)
			if (set->all[i].cells[k].reserved)
				return true;
	return false;
}

/* Prints a row for each scope in each recording. Returns 0 or -ENOMEM. */
static int print_scopes(FILE *out, const struct compared *all, size_t n,
			const struct scope_set *set, const struct report_text_opts *o)
{
	size_t width = report_text__width(out, o), room;
	size_t names = name_width(all, n, width);
	struct grid *grid = grid__new(scope_columns, SCOPE_NR);
	struct scope_cells *cells = calloc(1, sizeof(*cells));
	char more[48];
	int err = -ENOMEM;

	if (!grid || !cells)
		goto out;
	for (size_t i = 0; i < scopes_shown(set) * n; i++) {
		fill_scope(cells, all, i % n, &set->all[i / n], names);
		grid__row(grid);
		for (int col = 0; col < SCOPE_NR; col++)
			grid__put(grid, col, col == SCOPE_NAME ? cells->name : cells->text[col],
				  NULL);
	}
	err = grid__error(grid);
	if (err)
		goto out;
	grid__show(grid, SCOPE_RESERVED, any_reserved(set));
	room = grid__fit(grid, width, WHERE_WANTED, SCOPE_NR);
	fputc('\n', out);
	grid__print_titles(grid, out, report_text__colour(out, o), "Scope");
	for (size_t i = 0; i < scopes_shown(set) * n; i++) {
		const char *name = i % n ? "" : set->all[i / n].name;

		text__clean(cells->name, sizeof(cells->name), name, strlen(name));
		grid__print(grid, out, i, words__cut_front(cells->name, room));
	}
	if (set->n > SCOPES_MOST)
		fprintf(out, "+ %s (--format json)\n",
			text__counted(more, sizeof(more), set->n - SCOPES_MOST, "more scope"));
out:
	grid__free(grid);
	free(cells);
	return err;
}

/* Prints the table, the warnings, and a hint. */
int compare_text__print(FILE *out, const struct compared *all, size_t n,
			const struct scope_set *scopes, const struct report_text_opts *o)
{
	struct grid *grid = grid__new(columns, COL_NR);
	struct cells *cells = calloc(1, sizeof(*cells));
	size_t width = report_text__width(out, o), room;
	size_t names = name_width(all, n, width);
	int err = -ENOMEM;

	if (!grid || !cells)
		goto out;
	for (size_t i = 0; i < n; i++) {
		fill_cells(cells, &all[i], i ? &all[0] : NULL, names, 0);
		grid__row(grid);
		for (size_t col = 0; col < COL_NR; col++)
			grid__put(grid, col, col == COL_NAME ? cells->name : cells->text[col],
				  NULL);
	}
	err = grid__error(grid);
	if (err)
		goto out;
	if (!any_totals(all, n)) { /* as on the CPU */
		grid__show(grid, COL_RESERVED, false);
		grid__show(grid, COL_CACHED, false);
		grid__show(grid, COL_MOST, false);
	}
	/* A short path is useless, so it goes last. */
	grid__last_goes(grid, /*goes=*/5);
	room = grid__fit(grid, width, WHERE_WANTED, COL_NR);
	grid__print_titles(grid, out, report_text__colour(out, o),
			   room > WHERE_WANTED ? "Where it peaks" : "Peaks in");
	for (size_t i = 0; i < n; i++) {
		say_where(cells, &all[i], room);
		grid__print(grid, out, i, words__cut(cells->where, room));
	}
	err = scopes->n ? print_scopes(out, all, n, scopes, o) : 0;
	if (err)
		goto out;
	print_notes(out, all, n, /*markdown=*/false);
	if (n > 1) {
		fputc('\n', out);
		text__paragraph(out, width, "Lines that changed: ", "  ",
				"memtrace-bpf diff OLD NEW");
	}
out:
	grid__free(grid);
	free(cells);
	return err;
}

static void put_cell(FILE *out, const char *s)
{
	fputc(' ', out);
	put_markdown(out, s);
	fputs(" |", out);
}

/* Prints the scopes in each recording. Returns 0 or -ENOMEM. */
static int put_markdown_scopes(FILE *out, const struct compared *all, size_t n,
			       const struct scope_set *set)
{
	struct scope_cells *cells = calloc(1, sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	fputs("\n| Scope | Configuration | Peak | | Reserved | Kept | Time of one | | Runs |\n"
	      "|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
	      out);
	for (size_t i = 0; i < scopes_shown(set) * n; i++) {
		const char *name = set->all[i / n].name;

		fputc('|', out);
		put_cell(out, text__clean(cells->name, sizeof(cells->name), name, strlen(name)));
		fill_scope(cells, all, i % n, &set->all[i / n], REPORT_TEXT);
		for (int col = 0; col < SCOPE_NR; col++)
			put_cell(out, col == SCOPE_NAME ? cells->name : cells->text[col]);
		fputc('\n', out);
	}
	free(cells);
	return 0;
}

int compare_markdown__print(FILE *out, const struct compared *all, size_t n,
			    const struct scope_set *scopes)
{
	struct cells *cells = calloc(1, sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	fputs("| Configuration | Peak memory | | Reserved | Cached | Most cached | Step time | | "
	      "Steps | Where it peaks |\n"
	      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
	      out);
	for (size_t i = 0; i < n; i++) {
		fill_cells(cells, &all[i], i ? &all[0] : NULL, REPORT_TEXT, /*room=*/60);
		fputc('|', out);
		for (int col = 0; col < COL_NR; col++)
			put_cell(out, col == COL_NAME ? cells->name : cells->text[col]);
		put_cell(out, cells->where);
		fputc('\n', out);
	}
	free(cells);
	if (scopes->n && put_markdown_scopes(out, all, n, scopes))
		return -ENOMEM;
	print_notes(out, all, n, /*markdown=*/true);
	return 0;
}

/* Writes how many times the first recording's value this value is; null if that is 0. */
static void put_times(struct json *j, const char *key, uint64_t first, uint64_t value)
{
	if (first)
		json__double(j, key, (double)value / (double)first, /*decimals=*/6);
	else
		json__null(j, key);
}

static void put_device(struct json *j, const struct model_device *d)
{
	json__string(j, "device", d->name);
	json__uint(j, "peak_allocated", d->peak_allocated);
	json__string(j, "peak_is", figure__name(d->peak_is));
	json__seconds(j, "peak_time", d->peak_time, /*decimals=*/9);
	json__uint(j, "peak_step", d->peak_step);
	json__uint(j, "peak_step_number", d->peak_step + 1);
	json__string(j, "peak_phase", phase__name(d->peak_phase));
	if (d->has_totals) {
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "reserved_at_peak", d->mark_reserved);
		json__double(j, "fragmentation_at_peak",
			     words__fragmentation(d->mark_allocated, d->mark_reserved),
			     /*decimals=*/6);
		json__double(j, "fragmentation_at_most", most_fragmentation(d), /*decimals=*/6);
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

/* Writes the scopes that recording i has; nothing if no recording has one. */
static void put_scopes(struct json *j, const struct scope_set *set, size_t i)
{
	if (!set->n)
		return;
	json__open_array(j, "scopes");
	for (size_t k = 0; k < set->n; k++) {
		const struct scope_entry *e = &set->all[k];
		const struct scope_cell one = scope_entry__cell(e, 0);
		const struct scope_cell cell = scope_entry__cell(e, i);
		const struct scope_cell *first = &one, *c = &cell;
		bool against = first->runs && c->runs;

		if (!c->runs)
			continue;
		json__open_object(j, NULL);
		json__string(j, "scope", e->name);
		json__string(j, "source", scope_source__name(e->source));
		scope_cell__put(j, c);
		json__open_object(j, "against_first");
		put_times(j, "peak_allocated", against && c->level_known ? first->peak : 0,
			  c->peak);
		put_times(j, "median_time", against ? first->median_time : 0, c->median_time);
		json__close_object(j);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes recording i with its figures, those against the first one, and its warnings. */
static void put_capture(struct json *j, const struct compared *all, size_t i,
			const struct scope_set *scopes)
{
	const struct compared *compared = &all[i];
	char text[COMPARE_TEXT];

	json__open_object(j, NULL);
	json__string(j, "name", compared->name);
	json__string(j, "recording", compared->recording);
	put_device(j, &compared->device);
	json__string(j, "peak_file", compared->file);
	json__uint_or_null(j, "peak_line", compared->file && compared->line, compared->line);
	json__string(j, "peak_function", compared->func);
	json__string(j, "peak_module", compared->module);
	json__uint(j, "steps", compared->steps);
	json__uint(j, "steps_timed", compared->timed);
	if (compared->timed)
		json__seconds(j, "step_time", compared->step_time, /*decimals=*/9);
	else
		json__null(j, "step_time");
	json__seconds(j, "duration", compared->duration, /*decimals=*/9);
	if (compared->is_window)
		json__seconds(j, "window_start", compared->window_start, /*decimals=*/9);
	json__uint(j, "events", compared->events);
	json__uint(j, "lost", compared->lost);
	json__bool(j, "complete", compared->complete);
	json__bool(j, "dry_run", compared->dry_run);
	json__string(j, "torch", compared->torch);
	json__string(j, "device_name", compared->device_name);
	json__open_object(j, "against_first");
	put_times(j, "peak_allocated", all[0].device.peak_allocated,
		  compared->device.peak_allocated);
	put_times(j, "peak_reserved", compared->device.has_totals ? all[0].device.peak_reserved : 0,
		  compared->device.peak_reserved);
	put_times(j, "step_time", compared->timed ? all[0].step_time : 0, compared->step_time);
	json__close_object(j);
	put_scopes(j, scopes, i);
	json__open_array(j, "warnings");
	for (size_t k = 0; nth_warning(all, i, k, text); k++)
		json__string(j, NULL, text);
	json__close_array(j);
	json__close_object(j);
}

int compare_json__print(FILE *out, const struct compared *all, size_t n,
			const struct scope_set *scopes)
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
		put_capture(j, all, i, scopes);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return 0;
}
