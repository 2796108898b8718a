/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf report: what held the memory, from a recording. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "advice/advice.h"
#include "archive/analysis.h"
#include "archive/inputs.h"
#include "archive/rolling_view.h"
#include "cmd/commands.h"
#include "cmd/csv_args.h"
#include "cmd/log_args.h"
#include "cmd/memory_args.h"
#include "follow/capture_args.h"
#include "labels/words.h"
#include "lib/json.h"
#include "lib/text.h"
#include "log/log.h"
#include "report/doc.h"
#include "report/fail.h"
#include "report/filter.h"
#include "report/ranks.h"
#include "report/text.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV };
enum together {
	TOGETHER_AUTO,
	TOGETHER_YES,
	TOGETHER_NO
}; /* AUTO: in text, if they are ranks of one job */

#define DEFAULT_TOP 20 /* of text; programs get all rows */

struct report_args {
	struct model_opts at;
	enum group by;
	unsigned split; /* --by several */
	bool tree;
	const char *device;
	bool top_given;
	size_t top;
	bool innermost, segments;
	struct report_select select;
	enum report_choice bars, colour;
	bool no_overview, side, advice;
	enum together together;
	struct report_fail *fail; /* NULL: no --fail-if */
	enum format format;
	char **files;
	size_t n;
};

enum {
	OPT_AT = 0x3000,
	OPT_BY,
	OPT_TREE,
	OPT_DEVICE,
	OPT_TOP,
	OPT_FRAMES,
	OPT_FORMAT,
	OPT_FILTER,
	OPT_HIDE,
	OPT_BARS,
	OPT_NO_BARS,
	OPT_COLOR,
	OPT_NO_OVERVIEW,
	OPT_TOGETHER,
	OPT_APART,
	OPT_SIDE,
	OPT_FAIL,
	OPT_ADVICE
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "MOMENT", 0,
	  "peak (default), end, oom (the first out of memory) or seconds since the start", 0 },
	{ "by", OPT_BY, "WHAT", 0,
	  "line (default), stack, module, layer (module with all inside), phase, category, thread "
	  "or segment; or some of "
	  "line, module, phase, category, thread: --by category,module",
	  0 },
	{ "tree", OPT_TREE, NULL, 0,
	  "Modules under those that they are in, with what each holds itself and with all inside",
	  0 },
	{ "device", OPT_DEVICE, "NAME", 0,
	  "cuda:0, cpu ... (default: the one with the largest peak, CUDA first)", 0 },
	{ "top", OPT_TOP, "N", 0,
	  "Rows, the rest in one; 0: all (default 20 in text, all in json and csv)", 0 },
	{ "frames", OPT_FRAMES, "WHICH", 0,
	  "user (default): charge the innermost line of user code; all: of any code", 0 },
	{ "filter", OPT_FILTER, "EXPR", 0,
	  "Show what matches: words, or fields as in 'category:activation module:blocks.3 "
	  "line:model.py phase:backward size:>1M'; "
	  "the rest is one row. docs/REPORT.md has all of it",
	  0 },
	{ "hide", OPT_HIDE, "PATTERN", 0,
	  "Charge nothing to this file, or to files in this folder: the next frame out is charged; "
	  "may be given again",
	  0 },
	{ "together", OPT_TOGETHER, NULL, 0,
	  "Several FILEs as one report, with what each has of a row and which ones differ (default "
	  "in text for ranks of one job)",
	  0 },
	{ "apart", OPT_APART, NULL, 0, "Several FILEs one after the other", 0 },
	{ "side-by-side", OPT_SIDE, NULL, 0,
	  "Together, in text, with a column for each FILE, as many as fit", 0 },
	{ "fail-if", OPT_FAIL, "CONDITION", 0,
	  "Exit with 4 and say which line is to blame if this holds: 'peak>16G', 'reserved>=80%', "
	  "'growth>1G/100steps', 'ooms>0', "
	  "'fragmentation>20% and unused>2G' ...; may be given again. docs/WATCH.md has all of it",
	  0 },
	{ "advice", OPT_ADVICE, NULL, 0,
	  "What would make the peak smaller, and by how much: see docs/ESTIMATE.md", 0 },
	{ "bars", OPT_BARS, NULL, 0,
	  "Bars in table and tree (default: on a terminal with room for them)", 0 },
	{ "no-bars", OPT_NO_BARS, NULL, 0, "No bars in table and tree", 0 },
	{ "no-overview", OPT_NO_OVERVIEW, NULL, 0,
	  "Not the lists of categories and modules in front of the table of lines", 0 },
	{ "color", OPT_COLOR, "WHEN", 0,
	  "auto (default: on a terminal, unless NO_COLOR is set), always or never", 0 },
	{ "colour", OPT_COLOR, "WHEN", OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
	{ "format", OPT_FORMAT, "FORMAT", 0, "text (default), json or csv", 0 },
	{ 0 },
};

static bool find_group(const char *arg, size_t len, enum group *ret)
{
	for (int by = 0; by < BY_NR; by++) {
		const char *name = words__group(by);

		if (strlen(name) == len && !strncmp(arg, name, len)) {
			*ret = by;
			return true;
		}
	}
	return false;
}

static void parse_by(struct report_args *a, char *arg, struct argp_state *state)
{
	const unsigned single = 1U << BY_STACK | 1U << BY_LAYER;
	unsigned split = 0, n = 0;

	a->split = 0;
	a->segments = !strcmp(arg, "segment");
	if (a->segments)
		return;
	for (const char *p = arg;; p++) {
		size_t len = strcspn(p, ",");

		if (!find_group(p, len, &a->by)) {
			argp_error(state,
				   "--by: '%.*s' is none of line, stack, module, layer, phase, "
				   "category, thread, segment",
				   (int)len, p);
			return;
		}
		n += !(split & 1U << a->by);
		split |= 1U << a->by;
		p += len;
		if (!*p)
			break;
	}
	if (n > 1 && (split & single))
		argp_error(state, "--by: stack and layer go with nothing else");
	a->split = n > 1 ? split : 0;
}

static void parse_format(struct report_args *a, const char *arg, struct argp_state *state)
{
	static const char *const names[] = {
		[FORMAT_TEXT] = "text", [FORMAT_JSON] = "json", [FORMAT_CSV] = "csv"
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(arg, names[i])) {
			a->format = i;
			return;
		}
	argp_error(state, "--format: '%s' is none of text, json, csv", arg);
}

static void parse_frames(struct report_args *a, const char *arg, struct argp_state *state)
{
	a->innermost = !strcmp(arg, "all");
	if (!a->innermost && strcmp(arg, "user") != 0)
		argp_error(state, "--frames: '%s' is none of user, all", arg);
}

static void parse_filter(struct report_args *a, const char *arg, struct argp_state *state)
{
	char why[256];

	if (report_select__set_filter(&a->select, arg, why, sizeof(why)))
		argp_error(state, "--filter: %s", why);
}

static void parse_hide(struct report_args *a, const char *arg, struct argp_state *state)
{
	int err = report_select__add_hide(&a->select, arg);

	if (err == -EINVAL)
		argp_error(state, "--hide: which file or folder?");
	else if (err)
		argp_failure(state, EXIT_FAILED, 0, "out of memory");
}

static void parse_fail(struct report_args *a, const char *arg, struct argp_state *state)
{
	char *why = NULL;
	int err;

	if (!a->fail)
		a->fail = report_fail__new();
	err = a->fail ? report_fail__add(a->fail, arg, &why) : -ENOMEM;
	if (err == -EINVAL)
		argp_error(state, "--fail-if: %s", why);
	else if (err)
		argp_failure(state, EXIT_FAILED, 0, "out of memory");
	free(why);
}

/* Is the table not asked for by lines with nothing else? */
static bool other_than_lines(const struct report_args *a)
{
	return a->segments || a->split || a->by != BY_LINE;
}

static bool can_be_together(const struct report_args *a)
{
	return !a->tree && !a->segments && !a->advice && (a->split || a->by != BY_STACK);
}

static void check_options(struct report_args *a, struct argp_state *state)
{
	if (a->tree && (a->segments || a->split || (a->by != BY_LINE && a->by != BY_MODULE) ||
			a->format != FORMAT_TEXT))
		argp_error(state,
			   "--tree is a text by module, no other --by or --format; see --by layer");
	if (a->segments && (a->select.filter || a->select.nhide))
		argp_error(state,
			   "--by segment: --filter and --hide are of lines, not of segments");
	if (a->together == TOGETHER_YES && !can_be_together(a))
		argp_error(state,
			   "--together: not with --tree, --advice, --by stack and --by segment");
	if (a->advice && a->format == FORMAT_CSV)
		argp_error(state, "--advice is text or json");
	if (a->side && a->format != FORMAT_TEXT)
		argp_error(state, "--side-by-side is of text; --together has what each holds in "
				  "json and csv");
	if (a->tree)
		a->by = BY_MODULE;
}

/* Options of how it looks, and of what stands together. */
static error_t parse_look(int key, const char *arg, struct argp_state *state)
{
	struct report_args *a = state->input;

	switch (key) {
	case OPT_BARS:
	case OPT_NO_BARS:
		a->bars = key == OPT_BARS ? REPORT_ALWAYS : REPORT_NEVER;
		break;
	case OPT_NO_OVERVIEW:
		a->no_overview = true;
		break;
	case OPT_ADVICE:
		a->advice = true;
		break;
	case OPT_SIDE:
		a->side = true;
		/* fall through */
	case OPT_TOGETHER:
		a->together = TOGETHER_YES;
		break;
	case OPT_APART:
		a->together = TOGETHER_NO;
		a->side = false;
		break;
	case OPT_COLOR:
		if (report_text__parse_colour(arg, &a->colour))
			argp_error(state, "--color: '%s' is none of auto, always, never", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct report_args *a = state->input;

	switch (key) {
	case OPT_AT:
		if (analysis__parse_at(arg, &a->at))
			argp_error(state,
				   "--at: '%s' is none of peak, end, oom and no time in seconds",
				   arg);
		break;
	case OPT_BY:
		parse_by(a, arg, state);
		break;
	case OPT_TREE:
		a->tree = true;
		break;
	case OPT_DEVICE:
		a->device = arg;
		break;
	case OPT_TOP:
		a->top = capture_args__parse_count(state, "--top", arg, 0);
		a->top_given = true;
		break;
	case OPT_FRAMES:
		parse_frames(a, arg, state);
		break;
	case OPT_FORMAT:
		parse_format(a, arg, state);
		break;
	case OPT_FILTER:
		parse_filter(a, arg, state);
		break;
	case OPT_HIDE:
		parse_hide(a, arg, state);
		break;
	case OPT_FAIL:
		parse_fail(a, arg, state);
		break;
	case ARGP_KEY_ARGS:
		a->files = state->argv + state->next;
		a->n = state->argc - state->next;
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which recording? memtrace-bpf report FILE");
		break;
	case ARGP_KEY_END:
		check_options(a, state);
		break;
	default:
		return parse_look(key, arg, state);
	}
	return 0;
}

/* What goes to another stream first looks as it will on standard output. */
static struct report_text_opts text_opts(const struct report_args *args)
{
	struct report_text_opts o = {
		.by = args->by,
		.split = args->split,
		.tree = args->tree,
		.when = ROWS_AT_MARK,
		.at = args->at.at,
		.at_time = args->at.at_time,
		.innermost = args->innermost,
		.segments = args->segments,
		.select = &args->select,
		.bars = args->bars,
		.colour = args->colour,
		.overview = !args->no_overview && !args->tree && !other_than_lines(args),
		.top = args->top_given ? args->top : DEFAULT_TOP,
	};

	o.width = report_text__width(stdout, &o);
	o.colour = report_text__colour(stdout, &o) ? REPORT_ALWAYS : REPORT_NEVER;
	return o;
}

static int print_text(const struct analysis *a, const struct report_args *args, int device,
		      bool first, FILE *out)
{
	struct report_text_opts o = text_opts(args);

	o.duration = a->duration;
	o.at_time = model__opts(a->model).at_time;
	o.cut = a->complete ? NULL : a->end_why;
	if (!first)
		fputc('\n', out);
	if (args->n > 1) {
		char name[4096];

		fprintf(out, "== %s\n", text__clean(name, sizeof(name), a->path, strlen(a->path)));
	}
	return report_text__summary(out, a->model, device, a->dict, a->facts, &o);
}

/* Where reports go: out, as text and CSV, or j; and into ranks, if they may be one. */
struct reports {
	const struct report_args *args;
	FILE *out;
	struct json *j;
	struct ranks *ranks;
	size_t fail_from; /* what --fail-if has found of the recording under way */
	const struct rolling_view *rolling; /* that the recording under way is a segment of */
	bool apart;			    /* each has a report of its own */
	bool first;
};

static int print(const struct analysis *a, struct reports *s, int device,
		 const struct advice_list *advice)
{
	const struct report_args *args = s->args;
	struct report_doc doc = report_doc__of(a, device);
	int err;

	doc.at = args->at.at;
	doc.at_time = model__opts(a->model).at_time;
	doc.by = args->by;
	doc.split = args->split;
	doc.innermost = args->innermost;
	doc.segments = args->segments;
	doc.select = &args->select;
	doc.top = args->top;
	doc.fail = args->fail;
	doc.fail_from = s->fail_from;
	doc.rolling = s->rolling;
	doc.advice = advice;

	switch (args->format) {
	case FORMAT_JSON:
		return report_json__document(s->j, NULL, &doc);
	case FORMAT_CSV:
		return report_csv__rows(s->out, &doc);
	case FORMAT_TEXT:
		break;
	}
	if (s->rolling)
		rolling_view__print(s->rolling, s->out);
	err = print_text(a, args, device, s->first, s->out);
	if (!err && advice) {
		fputc('\n', s->out);
		advice__text(s->out, advice, text_opts(args).width);
	}
	return err;
}

/* A device whose allocator has segments; "" if none has. */
static void find_segments(const struct analysis *a, char *buf, size_t size)
{
	struct model_device d;

	*buf = '\0';
	for (size_t i = 0; i < model__devices(a->model) && !*buf; i++) {
		model__device(a->model, i, &d);
		if (d.has_totals)
			snprintf(buf, size, "%s", d.name);
	}
}

static int check_segments(const struct analysis *a, const struct report_args *args, size_t device,
			  const struct model_device *d)
{
	struct model_segments s;
	int err = model__segments(a->model, device, ROWS_AT_MARK, args->innermost, &s);
	bool none = !err && !s.n && (s.reserved || !s.has_totals);
	char path[512], other[64];

	if (!err)
		model__free_segments(&s);
	if (err == -ENOMEM) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (!err && !none)
		return 0;
	find_segments(a, other, sizeof(other));
	log_err("%s: no segments of %s in it, %s; try %s%s",
		text__clean(path, sizeof(path), a->path, strlen(a->path)), d->name,
		d->device.type == DEVICE_CPU ? "the CPU's allocator has none"
					     : "the allocator's blocks only",
		d->device.type == DEVICE_CPU && *other ? "--device " : "--by line",
		d->device.type == DEVICE_CPU ? other : "");
	return EXIT_UNUSABLE;
}

/* The device to report on; -1 where the recording has none and none was asked for. */
static int choose_device(const struct analysis *a, const struct report_args *args, int *ret)
{
	struct model_device d;
	char path[512];
	size_t device;
	int status;

	*ret = -1;
	if (!model__devices(a->model) && !args->device)
		return 0;
	status = analysis__device(a, args->device, &device);
	if (status)
		return status;
	model__device(a->model, device, &d);
	if (!d.marked) {
		text__clean(path, sizeof(path), a->path, strlen(a->path));
		log_err("%s: no out-of-memory event of %s in it; try --at peak", path, d.name);
		return EXIT_UNUSABLE;
	}
	*ret = device;
	return args->segments ? check_segments(a, args, device, &d) : 0;
}

/* Who sees the events besides the model. */
struct onlookers {
	struct report_fail *fail;
	struct advisor *advisor;
};

static int look(void *ctx, const struct event *e)
{
	const struct onlookers *o = ctx;
	int err = o->fail ? report_fail__event(o->fail, e) : 0;

	return err || !o->advisor ? err : advisor__event(o->advisor, e);
}

static int run(struct analysis *a, struct reports *s, struct advisor *advisor)
{
	struct report_fail *fail = s->args->fail;
	struct onlookers o = { fail, advisor };

	if (!fail && !advisor)
		return analysis__run(a, NULL, NULL);
	if (fail)
		s->fail_from = report_fail__count(fail);
	if (fail && report_fail__begin(fail, a)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	return analysis__run(a, look, &o);
}

/* A filter with a slip of the pen keeps nothing, which looks like a job that has nothing. */
static void warn_of_nothing(const struct analysis *a, const struct report_select *select,
			    size_t device)
{
	struct row_opts o = { .by = BY_LINE, .when = ROWS_AT_MARK };
	char path[512], expr[256], instead[1024];
	uint64_t bytes, count;
	struct row *rows;
	size_t n, kept;

	report_select__apply(select, &o);
	if (model__rows(a->model, device, &o, &rows, &n))
		return;
	kept = report_select__kept(rows, n, &bytes, &count);
	free(rows);
	o.keep = NULL;
	if (kept || model__rows(a->model, device, &o, &rows, &n))
		return;
	report_select__instead(select, rows, n, instead, sizeof(instead));
	log_warn("%s: --filter: nothing matches '%s'; %s",
		 text__clean(path, sizeof(path), a->path, strlen(a->path)),
		 text__clean(expr, sizeof(expr), select->expr, strlen(select->expr)),
		 *instead ? instead : "--by module, category or thread shows what there is");
	free(rows);
}

/* With the advice that was asked for. */
static int print_advised(const struct analysis *a, struct reports *s, int device,
			 struct advisor *advisor)
{
	struct advice_list list = { 0 };
	int err;

	if (!advisor || device < 0)
		return print(a, s, device, NULL);
	err = advisor__finish(advisor, (size_t)device, &list);
	if (err)
		return err;
	err = print(a, s, device, &list);
	advice__free_list(&list);
	return err;
}

static int report_recording(const char *path, struct reports *s)
{
	const struct report_args *args = s->args;
	struct advisor *advisor = NULL;
	struct analysis *a;
	int status, device, err = 0;

	status = analysis__open(path, &args->at, &a);
	if (status)
		return status;
	if (args->advice) {
		advisor = advisor__new(a);
		if (!advisor) {
			log_err("out of memory");
			analysis__free(a);
			return EXIT_FAILED;
		}
	}
	status = run(a, s, advisor);
	if (!status)
		status = choose_device(a, args, &device);
	if (!status && args->fail &&
	    report_fail__judge(args->fail, a, args->device ? device : -1, &args->at,
			       args->innermost)) {
		log_err("out of memory");
		status = EXIT_FAILED;
	}
	if (!status) {
		if (s->ranks)
			err = ranks__add(s->ranks, a, args->device ? device : -1);
		if (err == -ENODATA)
			err = 0;
		if (s->apart && device >= 0 && args->select.filter)
			warn_of_nothing(a, &args->select, (size_t)device);
		if (!err && s->apart)
			err = print_advised(a, s, device, advisor);
		s->first = false;
		if (err) {
			log_err("%s", strerror(-err));
			status = EXIT_FAILED;
		}
	}
	advisor__free(advisor);
	analysis__free(a);
	return status;
}

/* A recording, or of a folder that --rolling wrote the segment that the moment is in. */
static int report_file(const char *path, struct reports *s)
{
	struct rolling_view *v;
	const char *segment;
	int status;

	if (!rolling_view__is(path))
		return report_recording(path, s);
	status = rolling_view__open(path, &v);
	if (status)
		return status;
	status = rolling_view__segment(v, &s->args->at, s->args->device, &segment);
	s->rolling = v;
	if (!status)
		status = report_recording(segment, s);
	s->rolling = NULL;
	rolling_view__free(v);
	return status;
}

static int print_together(struct reports *s)
{
	struct report_text_opts o = text_opts(s->args);

	switch (s->args->format) {
	case FORMAT_JSON:
		return ranks__json(s->j, s->ranks, s->args->top);
	case FORMAT_CSV:
		ranks__csv(s->out, s->ranks, s->args->top);
		return 0;
	case FORMAT_TEXT:
		break;
	}
	return ranks__text(s->out, s->ranks, &o, s->args->side);
}

static int report_together(struct reports *s)
{
	int worst = EXIT_OK, err = 0;

	for (size_t i = 0; i < s->args->n; i++) {
		int status = report_file(s->args->files[i], s);

		worst = status > worst ? status : worst;
	}
	/* Where none could be read there is nothing to say. */
	if (worst == EXIT_OK || ranks__count(s->ranks)) {
		err = ranks__finish(s->ranks);
		if (!err)
			err = print_together(s);
	}
	if (err) {
		log_err("%s", strerror(-err));
		return EXIT_FAILED;
	}
	return worst;
}

static int report_apart(struct reports *s)
{
	const struct report_args *args = s->args;
	int worst = EXIT_OK;

	if (s->j && args->n > 1)
		json__open_array(s->j, NULL);
	if (args->format == FORMAT_CSV)
		report_csv__header(stdout, args->segments);
	for (size_t i = 0; i < args->n; i++) {
		int status = report_file(args->files[i], s);

		worst = status > worst ? status : worst;
	}
	if (s->j && args->n > 1)
		json__close_array(s->j);
	return worst;
}

/* Whether they are ranks of one job shows when all were read: until then what each by itself would
 * say is kept. */
static int report_either(struct reports *s)
{
	const struct report_args *args = s->args;
	int worst = EXIT_OK, err = 0;
	char *text = NULL;
	size_t size, i;

	s->out = open_memstream(&text, &size);
	if (!s->out)
		return EXIT_FAILED;
	for (i = 0; i < args->n; i++) {
		int status = report_file(args->files[i], s);

		worst = status > worst ? status : worst;
		if (ranks__count(s->ranks) &&
		    !ranks__at(s->ranks, ranks__count(s->ranks) - 1)->has_number)
			break; /* no rank: that is settled */
	}
	if (fclose(s->out))
		err = -ENOMEM;
	s->out = stdout;
	if (!err && i >= args->n && ranks__one_job(s->ranks)) {
		err = ranks__finish(s->ranks);
		if (!err)
			err = print_together(s);
	} else if (!err) {
		fputs(text, stdout);
		ranks__free(s->ranks);
		s->ranks = NULL;
	}
	free(text);
	for (i++; i < args->n && !err; i++) {
		int status = report_file(args->files[i], s);

		worst = status > worst ? status : worst;
	}
	if (!err)
		return worst;
	log_err("%s", strerror(-err));
	return EXIT_FAILED;
}

static int report_files(const struct report_args *args)
{
	const struct ranks_opts ro = {
		.by = args->by,
		.split = args->split,
		.words = args->format == FORMAT_TEXT,
		.innermost = args->innermost,
		.at = args->at.at,
		.at_time = args->at.at_time,
		.select = &args->select,
		.fail = args->fail,
	};
	bool together = args->together == TOGETHER_YES;
	bool either = args->together == TOGETHER_AUTO && args->n > 1 &&
		      args->format == FORMAT_TEXT && can_be_together(args);
	struct reports s = { .args = args, .out = stdout, .apart = !together, .first = true };
	int status = EXIT_FAILED;

	s.j = args->format == FORMAT_JSON ? json__new(stdout, true) : NULL;
	s.ranks = together || either ? ranks__new(&ro) : NULL;
	if ((args->format == FORMAT_JSON && !s.j) || ((together || either) && !s.ranks))
		log_err("out of memory");
	else
		status = together ? report_together(&s)
			 : either ? report_either(&s)
				  : report_apart(&s);
	ranks__free(s.ranks);
	json__free(s.j);
	return status;
}

int cmd_report(int argc, char **argv)
{
	static const struct argp_child children[] = {
		CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE ...",
		.doc = "Which line, module and phase held how many bytes, and what for, at the "
		       "peak or another moment, from recordings.",
		.children = children,
	};
	struct report_args args = { 0 };
	int status;

	struct inputs in;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	status = inputs__expand(args.files, args.n, INPUTS_REPORT, &in);
	args.files = in.paths;
	args.n = in.n;
	if (!status)
		status = report_files(&args);
	inputs__free(&in);
	if (args.fail)
		status = report_fail__say(args.fail, status);
	report_fail__free(args.fail);
	filter__free(args.select.filter);
	for (size_t i = 0; i < args.select.nhide; i++)
		free(args.select.hide[i]);
	free(args.select.hide);
	if (analysis__check_output(stdout, "standard output"))
		return EXIT_FAILED;
	return status;
}
