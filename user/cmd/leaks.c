/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf leaks: lines that grow over steps, with a confidence, from recordings or a
 * running process. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/analysis.h"
#include "capture/capture_args.h"
#include "cmd/commands.h"
#include "cmd/live_model.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "report/leaks.h"
#include "model/inputs.h"
#include "base/grammar.h"
#include "base/json.h"
#include "base/log.h"
#include "record/files.h"
#include "record/dict.h"
#include "base/text.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"

#define TOP 10 /* rows of text without --top */

struct leaks_args {
	struct report_args shown;
	struct leaks_opts o;
	struct capture_args capture;
	bool json, fail;
	bool found;	/* something grows */
	char *per_file; /* --per, owned; NULL: not given */
	uint32_t per_line;
	char **files;
	char **hosts; /* as in struct inputs */
	size_t n;
};

enum { OPT_CONFIDENCE = OPT_COMMANDS_OWN, OPT_GROWTH, OPT_STEPS, OPT_FAIL, OPT_PER };

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Attach to this process instead of reading a recording",
	  OPTIONS_PROCESS },
	{ "duration", 'd', "TIME", 0,
	  "With -p: stop after TIME (default: at the end of the process or Ctrl-C)", OPTIONS_TIME },
	{ "steps", OPT_STEPS, "N", OPTION_ARG_OPTIONAL,
	  "With -p and N: stop after N steps. Otherwise: list the figures of each step",
	  OPTIONS_TIME },
	{ "by", OPT_BY, "line|stack|module|role", 0, "Group rows (default line)", OPTIONS_SHOW },
	{ "per", OPT_PER, "FILE:LINE", 0, "Rates by request: each block of this line begins one",
	  OPTIONS_SHOW },
	{ "device", OPT_DEVICE, "DEVICE", 0, "Device: cuda:0, cpu, ... (default: all)",
	  OPTIONS_SHOW },
	{ "top", OPT_TOP, "N", 0, "Print N rows; 0: all (default 10 in text, all in json)",
	  OPTIONS_SHOW },
	{ "min-confidence", OPT_CONFIDENCE, "low|medium|high", 0,
	  "Lowest confidence to report (default medium)", OPTIONS_SHOW },
	{ "min-growth", OPT_GROWTH, "SIZE", 0,
	  "Ignore rows that grew by less than SIZE (default 1K)", OPTIONS_SHOW },
	{ "fail", OPT_FAIL, NULL, 0, "Exit with 1 if something grows", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	OPTION_OUTPUT,
	{ 0 },
};

/* Parses FILE:LINE of --per. */
static void parse_per(struct leaks_args *a, char *arg, struct argp_state *state)
{
	char *colon = strrchr(arg, ':'), *end;
	unsigned long line = 0;

	if (colon && colon != arg && colon[1] >= '1' && colon[1] <= '9') {
		line = strtoul(colon + 1, &end, 10);
		line = *end || line > INT32_MAX ? 0 : line;
	}
	if (!line)
		argp_error(state, "--per: '%s' is not FILE:LINE; try serve.py:41", arg);
	if (a->per_file)
		argp_error(state, "--per: given twice; give it once");
	a->per_file = strndup(arg, line ? (size_t)(colon - arg) : 0);
	if (!a->per_file)
		argp_failure(state, EXIT_FAILED, ENOMEM, "--per");
	a->per_line = (uint32_t)line;
}

/* Calls argp_error() for options that need a process, or a recording, that is not given. A capture
 * without --steps may be of host memory alone. */
static void check_args(struct leaks_args *a, struct argp_state *state)
{
	if (!a->capture.pid && !a->n)
		argp_error(state, "no recording given: memtrace-bpf leaks FILE, or -p PID for a "
				  "running process");
	if (a->capture.pid && a->n)
		argp_error(state, "'%s' and -p cannot be combined; give a recording or a process",
			   a->files[0]);
	if (!a->capture.pid && a->capture.session.steps)
		argp_error(state, "a number of steps needs a running process, -p PID; for a "
				  "recording, --steps alone lists each step");
	if (!a->capture.pid && a->capture.duration)
		argp_error(state, "--duration needs a running process, -p PID");
	a->capture.session.host_alone = !a->capture.session.steps;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const char *const levels[] = { "low", "medium", "high",
					      NULL }; /* from TREND_LOW on */
	struct leaks_args *a = state->input;

	switch (key) {
	case OPT_STEPS:
		if (arg)
			a->capture.session.steps = capture_args__parse_count(state, "--steps", arg,
									     /*min=*/1);
		else
			a->o.figures = true;
		break;
	case OPT_CONFIDENCE:
		a->o.min_confidence = TREND_LOW +
				      report_args__choose(state, "--min-confidence", arg, levels);
		break;
	case OPT_GROWTH:
		if (text__parse_size(arg, &a->o.min_growth))
			argp_error(state, "--min-growth: '%s' is not a size; try 64K or 1M", arg);
		break;
	case OPT_PER:
		parse_per(a, arg, state);
		break;
	case OPT_FAIL:
		a->fail = true;
		break;
	case 'p':
		capture_args__parse_only_pid(state, arg, "", &a->capture.pid);
		break;
	case 'd':
		if (text__parse_time(arg, &a->capture.duration) || !a->capture.duration)
			argp_error(state, "--duration: '%s' is not a time; try 10s, 5m or 500ms",
				   arg);
		break;
	case ARGP_KEY_ARGS:
		a->files = state->argv + state->next;
		a->n = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_END:
		check_args(a, state);
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* Ends printing. err: its result, negative or 0; name: the recording; found: something grows. Logs
 * an error. Returns the exit code. */
static int finish_output(struct leaks_args *a, int err, const char *name, bool found)
{
	char path[512], wanted[64];

	if (err == -ENOENT) {
		log_err("%s: no device '%s' in this recording",
			text__clean(path, sizeof(path), name, strlen(name)),
			text__clean(wanted, sizeof(wanted), a->o.device, strlen(a->o.device)));
		return EXIT_UNUSABLE;
	}
	if (err) {
		log_err("%s", strerror(-err));
		return EXIT_FAILED;
	}
	a->found = found;
	return EXIT_OK;
}

/* Prints what grows. Returns 0, or an exit code after a message. */
static int print(const struct leaks_doc *doc, struct leaks_args *a)
{
	struct json *j = a->json ? json__new(stdout, true) : NULL;
	bool found = false;
	int err;

	if (a->json)
		err = j ? leaks__json(j, doc, &a->o, &found) : -ENOMEM;
	else
		err = leaks__text(stdout, doc, &a->o, &found);
	json__free(j);
	return finish_output(a, err, doc->name, found);
}

/* Makes the model watch growth, by requests if --per is given. 0 or -ENOMEM. */
static int watch_growth(struct model *m, const struct leaks_args *args)
{
	int err = growth__watch(m, args->o.by);

	if (err || !args->per_file)
		return err;
	return growth__use_requests_at(m, args->per_file, args->per_line);
}

/* True if the line of --per allocated something, so that requests are known, or if there is no
 * --per. Otherwise logs an error with the nearest lines that did. */
static bool has_requests(const struct leaks_args *a, const struct model *m, const struct dict *d)
{
	uint32_t line_before = 0, line_after = 0, n = dict__counts(d).stacks;
	struct row_frame f;
	char file[512], near[96] = "";

	if (!a->per_file || growth__requests(m))
		return true;
	for (uint32_t i = 1; i < n; i++) {
		if (!model__stack_line(m, i, FRAMES_USER, &f) || !f.line ||
		    !files__is(f.file, a->per_file))
			continue;
		if (f.line < a->per_line && f.line > line_before)
			line_before = f.line;
		if (f.line > a->per_line && (!line_after || f.line < line_after))
			line_after = f.line;
	}
	if (line_before && line_after)
		snprintf(near, sizeof(near),
			 ": the nearest lines that do are %" PRIu32 " and %" PRIu32, line_before,
			 line_after);
	else if (line_before || line_after)
		snprintf(near, sizeof(near), ": the nearest line that does is %" PRIu32,
			 line_before ? line_before : line_after);
	else
		snprintf(near, sizeof(near), ", and no line of this file did");
	log_err("--per: %s:%" PRIu32 " allocated nothing in the time%s",
		text__clean(file, sizeof(file), a->per_file, strlen(a->per_file)), a->per_line,
		near);
	return false;
}

/* Reads a recording into a model that watches growth. Returns 0 and *ret, or an exit code after a
 * message. */
static int read_growth(const struct leaks_args *args, const char *path, struct analysis **ret)
{
	const struct model_opts mo = { .at = AT_END };
	struct analysis *a;
	int status = analysis__open(path, &mo, &a);

	if (status)
		return status;
	if (watch_growth(a->model, args)) {
		log_err("out of memory");
		status = EXIT_FAILED;
	} else {
		status = analysis__run(a, NULL, NULL);
	}
	if (!status && !has_requests(args, a->model, a->dict))
		status = EXIT_UNUSABLE;
	if (status)
		analysis__free(a);
	else
		*ret = a;
	return status;
}

/* Judges a recording. Returns the exit code. */
static int from_file(struct leaks_args *args)
{
	struct analysis *a;
	int status = read_growth(args, args->files[0], &a);
	size_t device;

	if (status)
		return status;
	if (args->o.device) /* reports which devices there are */
		status = analysis__device(a, args->o.device, &device);
	if (!status)
		status = print(&(struct leaks_doc){ .model = a->model,
						    .dict = a->dict,
						    .facts = a->facts,
						    .name = a->name,
						    .format = mtr_reader__version(a->reader),
						    .duration = a->duration,
						    .complete = a->complete },
			       args);
	analysis__free(a);
	return status;
}

/* Judges the recordings that were added and prints the result. Returns the exit code. */
static int print_ranks(struct leaks_args *args, struct leaks_ranks *r)
{
	int err = leaks_ranks__finish(r);
	struct json *j;

	if (!err && args->json) {
		j = json__new(stdout, true);
		if (j)
			leaks_ranks__json(j, r);
		else
			err = -ENOMEM;
		json__free(j);
	} else if (!err) {
		err = leaks_ranks__text(stdout, r);
	}
	return finish_output(args, err, "all recordings", !err && leaks_ranks__found(r));
}

/* Judges the ranks of a job together. Returns the exit code. */
static int from_files(struct leaks_args *args)
{
	struct leaks_ranks *r = leaks_ranks__new(&args->o);
	int status = EXIT_OK, err = r ? 0 : -ENOMEM;
	struct analysis *a;

	for (size_t i = 0; i < args->n && !status && !err; i++) {
		status = read_growth(args, args->files[i], &a);
		if (status)
			break;
		a->host = args->hosts[i];
		err = leaks_ranks__add(r, a);
		err = err == -ENODATA ? 0 : err;
		analysis__free(a);
	}
	if (err) {
		log_err("%s", strerror(-err));
		status = EXIT_FAILED;
	}
	if (!status)
		status = print_ranks(args, r);
	leaks_ranks__free(r);
	return status;
}

/* ---- a running process ---- */

/* For live_model_opts.begin, with the struct leaks_args. Returns 0 or -ENOMEM. */
static int begin(void *ctx, struct live_model *l)
{
	return watch_growth(l->model, ctx);
}

/* Captures a process and prints what grows in it. Returns the exit code. */
static int from_process(struct leaks_args *args)
{
	const struct live_model_opts o = { .args = &args->capture,
					   .writes_file = args->shown.output,
					   .begin = begin,
					   .ctx = args };
	struct live_model live;
	char name[32];
	int status = live_model__capture(&o, &live);

	if (!status && live.duration) {
		struct leaks_doc doc = {
			.model = live.model,
			.dict = live.dict,
			.facts = live.facts,
			.name = name,
			.duration = live.duration,
			.complete = true,
		};

		snprintf(name, sizeof(name), "PID %d", (int)args->capture.pid);
		status = has_requests(args, live.model, live.dict) ? print(&doc, args)
								   : EXIT_UNUSABLE;
	}
	live_model__free(&live);
	return status;
}

static bool is_number(const char *word)
{
	return *word && !word[strspn(word, "0123456789")];
}

/* True if "--steps" takes this word as its number. With a recording it may be a file. */
static bool is_number_of_steps(const char *word, bool has_pid)
{
	return is_number(word) && (has_pid || access(word, F_OK));
}

/* Joins "--steps" and "60" to "--steps=60", which goes to *joined: argp takes optional arguments
 * only after "=". With a recording, the next word is a file if such a file exists. Returns a new
 * argv and its *argc; NULL: out of memory. The caller frees both. */
static char **join_steps(int *argc, char **argv, char **joined)
{
	char **v = calloc((size_t)*argc + 1, sizeof(*v));
	bool has_pid = false;
	int n = 0;

	for (int i = 1; i < *argc; i++)
		has_pid |= text__starts(argv[i], "-p") || text__starts(argv[i], "--pid");
	for (int i = 0; v && i < *argc; i++) {
		bool steps = i + 1 < *argc && !strcmp(argv[i], "--steps");

		if (!*joined && steps && is_number_of_steps(argv[i + 1], has_pid)) {
			if (asprintf(joined, "--steps=%s", argv[++i]) < 0) {
				*joined = NULL;
				free(v);
				return NULL;
			}
			v[n++] = *joined;
		} else {
			v[n++] = argv[i];
		}
	}
	*argc = n;
	return v;
}

/* Judges the recordings, or the process. Returns the exit code. */
static int judge(struct leaks_args *args)
{
	struct inputs in;
	int status = inputs__expand(args->files, args->n, INPUTS_PROCESSES, &in);

	args->files = in.paths;
	args->hosts = in.hosts;
	args->n = in.n;
	if (!status && args->n > 1)
		status = from_files(args);
	else if (!status)
		status = args->n ? from_file(args) : from_process(args);
	inputs__free(&in);
	return status;
}

static const struct argp_child children[] = {
	MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE...\n-p PID",
	.doc = "Show which lines grow from step to step, what holds their memory, and how certain "
	       "that is. With the ranks of a job: which rank grows.",
	.children = children,
};

static int cmd_leaks(int argc, char **argv)
{
	static const char *const groups[] = { WORD_ARRAY(LEAK_GROUP_WORDS) NULL };
	static const enum group by[] = { BY_LINE, BY_STACK, BY_MODULE, BY_CATEGORY };
	struct leaks_args args = {
		.shown = { .groups = groups, .formats = report_args_formats },
		.o = { .min_confidence = GROWTH_SUMMARY_CONFIDENCE,
		       .min_growth = GROWTH_SUMMARY_LEAST },
	};
	char *joined = NULL, **v = join_steps(&argc, argv, &joined);
	struct report_output output;
	int status;

	if (!v) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	usage__parse(&command_leaks, argc, v, 0, &args);
	args.json = args.shown.format;
	args.o.by = by[args.shown.by];
	args.o.device = args.shown.device;
	args.o.top = args.shown.top_given || args.json ? args.shown.top : TOP;
	status = report_output__begin(&output, &args.shown, args.capture.pid);
	if (!status)
		status = report_output__end(&output, judge(&args));
	if (!status && args.found && args.fail)
		status = EXIT_FAILED;
	free(args.per_file);
	free(joined);
	free(v);
	return status;
}

const struct command command_leaks = {
	.name = "leaks",
	.summary = "show which lines grow from step to step",
	.group = COMMANDS_LOOK,
	.argp = &argp,
	.examples = "memtrace-bpf leaks run.mtr\n"
		    "sudo memtrace-bpf leaks -p 4242 --steps 60\n"
		    "sudo memtrace-bpf leaks -p 4242 -d 5m --per serve.py:41\n"
		    "memtrace-bpf leaks --fail --min-confidence high run.mtr",
	.status = "0 done, 1 failed or growth (--fail), 2 not usable, 3 not permitted",
	.run = cmd_leaks,
};
