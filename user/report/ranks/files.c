/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/analysis.h"
#include "model/growth.h"
#include "model/inputs.h"
#include "report/advice.h"
#include "report/doc.h"
#include "report/filter.h"
#include "report/ranks/shared_gpus.h"
#include "report/ranks/ranks.h"
#include "report/recording/scope_lines.h"

#define MOST_TEXTS 32 /* texts that are kept in memory until it is clear that they are needed */

bool report_files__can_be_together(const struct report_files *args)
{
	return !args->tree && !args->segments && !args->advice &&
	       (args->split || args->by != BY_STACK);
}

/* Options of the text. Width and colour are those of standard output, even if the text goes to a
 * buffer first. */
static struct report_text_opts text_opts(const struct report_files *args)
{
	struct report_text_opts opts = {
		.by = args->by,
		.split = args->split,
		.tree = args->tree,
		.when = ROWS_AT_MARK,
		.at = args->at.at,
		.at_time = args->at.at_time,
		.which_line = args->which_line,
		.segments = args->segments,
		.scopes = args->scopes,
		.select = args->select,
		.bars = args->bars,
		.colour = args->colour,
		.overview = args->overview,
		.columns = args->columns,
		.top = args->top,
	};

	if (*args->at.at_mark)
		opts.at_name = "mark";
	else if (*args->at.at_scope)
		opts.at_name = "scope";
	opts.width = report_text__width(stdout, &opts);
	opts.colour = report_text__colour(stdout, &opts) ? REPORT_ALWAYS : REPORT_NEVER;
	return opts;
}

static bool is_host(const struct report_files *args)
{
	return args->device && !strcmp(args->device, "host");
}

/* Prints a recording's report as text. first: it is the first one. Returns 0 or -ENOMEM. */
static int print_text(const struct analysis *a, const struct report_files *args, int device,
		      const struct scope_lines *lines, bool first, FILE *out)
{
	struct report_text_opts opts = text_opts(args);

	opts.duration = a->duration;
	opts.at = model__opts(a->model).at;
	opts.at_time = model__opts(a->model).at_time;
	opts.host = is_host(args);
	opts.cut = a->complete ? NULL : a->end_why;
	opts.scope_lines = lines;
	if (!first)
		fputc('\n', out);
	if (args->n > 1) {
		char name[4096];

		fprintf(out, "== %s\n", text__clean(name, sizeof(name), a->path, strlen(a->path)));
	}
	return report_text__summary(out, a->model, device, a->dict, a->facts, &opts);
}

/* State of a run. Text and CSV go to out, JSON goes to j. ranks collects the recordings for one
 * report of all; NULL: none is wanted. */
struct reports {
	const struct report_files *args;
	FILE *out;
	struct json *j;
	struct ranks *ranks;
	struct shared_gpus *gpus; /* collects the GPUs of all recordings; NULL: not wanted */
	size_t path;		  /* index of the current path */
	size_t fail_from;	  /* results of --fail-if before the current recording */
	/* folder that the current recording is a part of; NULL: none */
	const struct rolling_view *rolling;
	const char *host; /* host of the current recording, as in struct analysis */
	bool apart;	  /* true if each recording gets a report of its own */
	bool first;	  /* no recording was read so far */
};

/* Prints the report of one recording. lines: of --scopes, or NULL. Returns 0 or a negative errno. */
static int print_recording(const struct analysis *a, struct reports *s, int device,
			   const struct advice_list *advice, const struct scope_lines *lines)
{
	const struct report_files *args = s->args;
	struct report_doc doc = report_doc__of(a, device);
	int err;

	doc.at = model__opts(a->model).at;
	doc.at_time = model__opts(a->model).at_time;
	doc.by = args->by;
	doc.split = args->split;
	doc.which_line = args->which_line;
	doc.segments = args->segments;
	doc.select = args->select;
	doc.top = args->top;
	doc.fields = args->fields;
	doc.fail = args->fail;
	doc.fail_from = s->fail_from;
	doc.rolling = s->rolling;
	doc.advice = advice;
	doc.scope_lines = lines;

	switch (args->format) {
	case REPORT_AS_JSON:
		return report_json__document(s->j, NULL, &doc);
	case REPORT_AS_CSV:
		return report_csv__rows(s->out, &doc);
	case REPORT_AS_HTML: /* a page of all recordings only: print_together() */
		return -EINVAL;
	case REPORT_AS_TEXT:
		break;
	}
	if (s->rolling)
		rolling_view__print(s->rolling, s->out);
	err = print_text(a, args, device, lines, s->first, s->out);
	if (!err && advice) {
		fputc('\n', s->out);
		advice__text(s->out, advice, args->top, text_opts(args).width);
	}
	return err;
}

/* Writes the name of a device whose allocator has segments; "": none. */
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

/* Checks that --by segment has rows. Returns 0, or an exit code, logged. */
static int check_segments(const struct analysis *a, const struct report_files *args, size_t device,
			  const struct model_device *d)
{
	struct model_segments segments;
	int err = model__segments(a->model, device, ROWS_AT_MARK, args->which_line, &segments);
	bool cpu = device__on_host(d->device);
	char path[512], other[64];

	if (err == -ENOMEM) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (!err) {
		bool none = !segments.n && (segments.reserved || !segments.has_totals);

		model__free_segments(&segments);
		if (!none)
			return 0;
	}
	text__clean(path, sizeof(path), a->path, strlen(a->path));
	find_segments(a, other, sizeof(other));
	if (cpu && *other)
		log_err("%s: no segments of %s in it, the CPU allocator has none; try --device %s",
			path, d->name, other);
	else
		log_err("%s: no segments of %s in it, %s; try --by line", path, d->name,
			cpu ? "the CPU allocator has none" : "the allocator's blocks only");
	return EXIT_UNUSABLE;
}

/* Chooses the device. *ret: its index; -1: the recording has no device and --device was not given,
 * or the report has no rows. Returns 0, or an exit code, logged. */
static int choose_device(const struct analysis *a, const struct report_files *args, int *ret)
{
	struct model_device dev;
	char path[512];
	size_t device;
	int status;

	*ret = -1;
	if (!model__devices(a->model) && !args->device)
		return 0;
	if (is_host(args) && model__host(a->model) && model__find_device(a->model, "host") < 0)
		return 0; /* the report has the parts of host memory, and no rows */
	status = analysis__device(a, args->device, &device);
	if (status)
		return status;
	model__device(a->model, device, &dev);
	if (!dev.marked) {
		text__clean(path, sizeof(path), a->path, strlen(a->path));
		log_err("%s: no out-of-memory event of %s in it; try --at peak", path, dev.name);
		return EXIT_UNUSABLE;
	}
	*ret = device;
	return args->segments ? check_segments(a, args, device, &dev) : 0;
}

/* The callbacks that get each event before the model does; NULL: not wanted. */
struct receivers {
	struct report_fail *fail;
	struct advisor *advisor;
};

/* Callback for analysis__run(), with struct receivers as ctx. */
static int pass_event(void *ctx, const struct event *e)
{
	const struct receivers *receivers = ctx;
	int err = receivers->fail ? report_fail__event(receivers->fail, e) : 0;

	if (err || !receivers->advisor)
		return err;
	return advisor__event(receivers->advisor, e);
}

/* Runs the recording, with its events to --fail-if and to the advisor (NULL: none). Returns an exit
 * code, logged. */
static int run_analysis(struct analysis *a, struct reports *s, struct advisor *advisor)
{
	struct report_fail *fail = s->args->fail;
	struct receivers receivers = { fail, advisor };
	int err;

	if (!fail && !advisor)
		return analysis__run(a, NULL, NULL);
	if (fail)
		s->fail_from = report_fail__count(fail);
	err = fail ? report_fail__begin(fail, a) : 0;
	if (err == -E2BIG) {
		log_err("--scope, --at and --fail-if name more than %d functions", STREAM_SCOPES);
		return EXIT_USAGE;
	}
	if (err) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	return analysis__run(a, pass_event, &receivers);
}

/* Warns if the filter matches memory of the recording, but none at the moment. Returns whether it
 * did. */
static bool warn_of_moment(const struct analysis *a, const struct report_select *select,
			   size_t device)
{
	struct row_opts opts = { .by = BY_LINE, .when = ROWS_TOTAL };
	uint64_t bytes, count;
	char path[512], expr[256];
	struct row *rows;
	size_t n, kept;

	report_select__apply(select, &opts);
	if (model__rows(a->model, device, &opts, &rows, &n))
		return false;
	kept = report_select__kept(rows, n, &bytes, &count);
	free(rows);
	if (kept)
		log_warn("%s: --filter: what '%s' matches holds no memory at this moment; try "
			 "another one (--at)",
			 text__clean(path, sizeof(path), a->path, strlen(a->path)),
			 text__clean(expr, sizeof(expr), select->expr, strlen(select->expr)));
	return kept;
}

/* Warns if the filter keeps no row: a mistyped filter looks like a job without memory. */
static void warn_of_nothing(const struct analysis *a, const struct report_select *select,
			    size_t device)
{
	struct row_opts opts = { .by = BY_LINE, .when = ROWS_AT_MARK };
	char path[512], expr[256], instead[1024];
	uint64_t bytes, count;
	struct row *rows;
	size_t n, kept;

	report_select__apply(select, &opts);
	if (model__rows(a->model, device, &opts, &rows, &n))
		return;
	kept = report_select__kept(rows, n, &bytes, &count);
	free(rows);
	opts.keep = NULL;
	if (kept || warn_of_moment(a, select, device) ||
	    model__rows(a->model, device, &opts, &rows, &n))
		return;
	report_select__instead(select, rows, n, instead, sizeof(instead));
	log_warn("%s: --filter: nothing matches '%s'; %s",
		 text__clean(path, sizeof(path), a->path, strlen(a->path)),
		 text__clean(expr, sizeof(expr), select->expr, strlen(select->expr)),
		 *instead ? instead : "--by module, category or thread lists the names");
	free(rows);
}

/* Prints a recording's report, with the advice of --advice (advisor; NULL: none) and the lines of
 * --scopes. Returns 0 or a negative errno. */
static int print_advised(const struct analysis *a, struct reports *s, int device,
			 struct advisor *advisor)
{
	bool advised = advisor && device >= 0;
	struct scope_lines *lines = NULL;
	struct advice_list list = { 0 };
	int err = 0;

	if (s->args->scopes)
		err = scope_lines__read(a, s->args->which_line, &lines);
	if (err)
		return err;
	if (advised)
		err = advisor__advise(advisor, (size_t)device, a->duration, &list);
	if (!err)
		err = print_recording(a, s, device, advised ? &list : NULL, lines);
	advice__free_list(&list);
	scope_lines__free(lines);
	return err;
}

/* Adds a recording to the report of all, and prints its own, as far as each is wanted. Returns 0 or
 * a negative errno. */
static int report_figures(struct analysis *a, struct reports *s, int device,
			  struct advisor *advisor)
{
	const struct report_files *args = s->args;
	int err = 0;

	if (s->ranks)
		err = ranks__add(s->ranks, a, args->device ? device : -1);
	if (!err && s->gpus)
		err = shared_gpus__add(s->gpus, a, (uint32_t)s->path,
				       s->ranks ? (uint32_t)s->ranks->n - 1 : RECORDING_NONE);
	if (err == -ENODATA)
		err = 0;
	if (s->apart && device >= 0 && args->select->filter)
		warn_of_nothing(a, args->select, (size_t)device);
	if (err || !s->apart)
		return err;
	return print_advised(a, s, device, advisor);
}

/* Reads a recording and reports it. Returns an exit code. */
static int read_recording(const char *path, struct reports *s)
{
	const struct report_files *args = s->args;
	struct advisor *advisor = NULL;
	struct analysis *analysis;
	int status, device, err = 0;

	status = analysis__open(path, &args->at, &analysis);
	if (status)
		return status;
	analysis->host = s->host;
	if (args->advice)
		advisor = advisor__new(analysis->model, analysis->dict, analysis->facts);
	if ((args->advice && !advisor) || growth__watch(analysis->model, BY_LINE)) {
		err = -ENOMEM;
		goto out;
	}
	status = run_analysis(analysis, s, advisor);
	if (status)
		goto out;
	status = choose_device(analysis, args, &device);
	if (status)
		goto out;
	if (args->fail && report_fail__judge(args->fail, analysis, args->device ? device : -1,
					     &args->at, args->which_line)) {
		err = -ENOMEM;
		goto out;
	}
	err = report_figures(analysis, s, device, advisor);
	s->first = false;
out:
	if (err) {
		log_err("%s", err == -ENOMEM ? "out of memory" : strerror(-err));
		status = EXIT_FAILED;
	}
	advisor__free(advisor);
	analysis__free(analysis);
	return status;
}

/* Returns whether recordings may lack the report's moment. */
static bool may_lack_moment(const struct model_opts *at)
{
	return at->at == AT_OOM || *at->at_mark || *at->at_scope;
}

/* Reports a recording. One that lacks the moment is still a process on its GPU. Returns an exit
 * code. */
static int report_recording(const char *path, struct reports *s)
{
	int status = read_recording(path, s);

	if (status != EXIT_UNUSABLE || !s->gpus || !may_lack_moment(&s->args->at) ||
	    !shared_gpus__add_unmarked(s->gpus, path, s->host, (uint32_t)s->path))
		return status;
	log_err("out of memory");
	return EXIT_FAILED;
}

/* Reports path i: a recording, or in a folder of --rolling the part with the moment. Returns an
 * exit code. */
static int report_file(size_t i, struct reports *s)
{
	const char *path = s->args->paths[i];
	struct rolling_view *view;
	const char *segment;
	int status;

	s->path = i;
	s->host = s->args->hosts ? s->args->hosts[i] : NULL;
	if (!rolling_view__is(path))
		return report_recording(path, s);
	status = rolling_view__open(path, &view);
	if (status)
		return status;
	status = rolling_view__segment(view, &s->args->at, s->args->device, &segment);
	s->rolling = view;
	if (!status)
		status = report_recording(segment, s);
	s->rolling = NULL;
	rolling_view__free(view);
	return status;
}

/* Prints the report of all recordings. Returns 0 or a negative errno. */
static int print_together(struct reports *s)
{
	struct report_text_opts opts = text_opts(s->args);

	switch (s->args->format) {
	case REPORT_AS_JSON:
		return ranks__json(s->j, s->ranks, s->args->top);
	case REPORT_AS_HTML:
		return ranks__html(s->out, s->ranks);
	case REPORT_AS_CSV:
		ranks__csv(s->out, s->ranks, s->args->top);
		return 0;
	case REPORT_AS_TEXT:
		break;
	}
	return ranks__text(s->out, s->ranks, &opts, s->args->side);
}

/* Returns 0 or -ENOMEM. */
static int finish_reading(struct reports *s)
{
	int err = ranks__finish(s->ranks);

	if (err || !s->gpus)
		return err;
	return shared_gpus__finish(s->gpus, s->args->paths, s->args->device);
}

/* Finishes the report of all recordings and prints it. Returns an exit code, logged. */
static int finish_together(struct reports *s)
{
	int err;

	if (s->args->columns) {
		log_err("--columns: the report of all recordings of a job has no choice of "
			"columns; for a report of each, add --apart");
		return EXIT_USAGE;
	}
	err = finish_reading(s);
	if (!err)
		err = print_together(s);
	if (err)
		log_err("%s", strerror(-err));
	return err ? EXIT_FAILED : EXIT_OK;
}

/* Prints the GPUs with several processes after the reports of each recording. status: exit code of
 * these. Returns the larger exit code. */
static int print_gpus(struct reports *s, int status)
{
	struct report_text_opts opts = text_opts(s->args);
	int err;

	if (!s->gpus || s->args->format != REPORT_AS_TEXT)
		return status;
	err = shared_gpus__finish(s->gpus, s->args->paths, s->args->device);
	if (!err)
		err = shared_gpus__text(s->out, s->gpus, &opts);
	if (err)
		log_err("%s", strerror(-err));
	return err && status < EXIT_FAILED ? EXIT_FAILED : status;
}

/* Reports all recordings as one. Returns the largest exit code. */
static int report_together(struct reports *s)
{
	int worst = EXIT_OK, status;

	for (size_t i = 0; i < s->args->n; i++) {
		status = report_file(i, s);
		worst = status > worst ? status : worst;
	}
	if (worst != EXIT_OK && !s->ranks->n) /* no recording could be read */
		return worst;
	if (ranks__of_one_process(s->ranks)) {
		log_err("their memory cannot be added; choose one, or compare two: "
			"memtrace-bpf diff");
		return EXIT_USAGE;
	}
	status = finish_together(s);
	return status ? status : worst;
}

/* Reports each recording by itself. Returns the largest exit code. */
static int report_apart(struct reports *s)
{
	const struct report_files *args = s->args;
	int worst = EXIT_OK;

	if (s->j && args->n > 1)
		json__open_array(s->j, NULL);
	if (args->format == REPORT_AS_CSV)
		report_csv__header(stdout, args->segments, args->fields);
	for (size_t i = 0; i < args->n; i++) {
		int status = report_file(i, s);

		worst = status > worst ? status : worst;
	}
	if (s->j && args->n > 1)
		json__close_array(s->j);
	return print_gpus(s, worst);
}

/* True if recordings can be read again. Conditions are judged once. */
static bool can_read_again(const struct report_files *args)
{
	for (size_t i = 0; i < args->n; i++)
		if (!strcmp(args->paths[i], "-"))
			return false;
	return !args->fail;
}

/* Prints one report of all if they are of one job or one process tree, which only all recordings
 * together show; otherwise one of each. Until then, keeps the texts of the first MOST_TEXTS
 * recordings in memory. If they are needed, reads the other recordings again. Returns the largest
 * exit code. */
static int report_either(struct reports *s)
{
	const struct report_files *args = s->args;
	size_t n_ranks, size, i, texts = can_read_again(args) ? MOST_TEXTS : SIZE_MAX;
	int worst = EXIT_OK, status;
	char *text = NULL;

	s->out = open_memstream(&text, &size);
	if (!s->out)
		return EXIT_FAILED;
	for (i = 0; i < args->n; i++) {
		s->apart = i < texts;
		status = report_file(i, s);
		worst = status > worst ? status : worst;
		n_ranks = s->ranks->n;
		if (n_ranks && !s->ranks->all[n_ranks - 1].has_number &&
		    s->ranks->tree.recordings != n_ranks)
			break; /* each recording gets its own report */
	}
	if (fclose(s->out)) {
		free(text);
		log_err("out of memory");
		return EXIT_FAILED;
	}
	s->out = stdout;
	if (i >= args->n && (ranks__one_job(s->ranks) || ranks__one_tree(s->ranks))) {
		free(text);
		status = finish_together(s);
		return status ? status : worst;
	}
	fputs(text, stdout);
	free(text);
	ranks__free(s->ranks);
	s->ranks = NULL;
	s->apart = true;
	for (i = i < texts ? i + 1 : texts; i < args->n; i++) {
		status = report_file(i, s);
		worst = status > worst ? status : worst;
	}
	return print_gpus(s, worst);
}

int report_files__print(const struct report_files *args)
{
	bool bars = args->format == REPORT_AS_TEXT || args->format == REPORT_AS_JSON ||
		    args->format == REPORT_AS_HTML;
	struct shared_gpus gpus = { 0 };
	const struct ranks_opts ro = {
		.by = args->by,
		.split = args->split,
		.words = args->format == REPORT_AS_TEXT || args->format == REPORT_AS_HTML,
		.which_line = args->which_line,
		.at = args->at.at,
		.select = args->select,
		.fail = args->fail,
		.missing = args->missing,
		.n_missing = args->n_missing,
		.outliers = args->outliers,
		.gpus = &gpus,
	};
	bool together = args->together == TOGETHER_YES;
	bool undecided = args->together == TOGETHER_AUTO && args->n > 1 &&
			 args->format == REPORT_AS_TEXT && report_files__can_be_together(args);
	struct reports s = {
		.args = args,
		.out = stdout,
		.apart = !together,
		.first = true,
		.gpus = args->n > 1 && bars ? &gpus : NULL,
	};
	int status = EXIT_FAILED;

	s.j = args->format == REPORT_AS_JSON ? json__new(stdout, true) : NULL;
	s.ranks = together || undecided ? ranks__new(&ro) : NULL;
	if ((args->format == REPORT_AS_JSON && !s.j) || ((together || undecided) && !s.ranks))
		log_err("out of memory");
	else if (together)
		status = report_together(&s);
	else
		status = undecided ? report_either(&s) : report_apart(&s);
	ranks__free(s.ranks);
	shared_gpus__free(&gpus);
	json__free(s.j);
	return status;
}
