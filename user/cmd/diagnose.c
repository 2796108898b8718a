/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf diagnose: what is wrong with the memory of a running process or of a recording, in
 * at most 20 lines. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/recording.h"
#include "cmd/commands.h"
#include "cmd/live_model.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "model/analysis.h"
#include "model/inputs.h"
#include "record/dict.h"
#include "record/folder.h"
#include "report/advice.h"
#include "report/findings.h"
#include "report/text.h"

/* A diagnosis with -p ends after MOST_STEPS, but not before LEAST_NS, so that objects can be read
 * for names, and not while host memory rises, which is measured only a few times a second. Calls of
 * the model count as steps only after LEAST_CALLS_NS without an optimizer's step. MOST_NS is the
 * default of --duration. */
#define MOST_STEPS 60
#define LEAST_NS 5000000000ull
#define LEAST_CALLS_NS 10000000000ull
#define MOST_NS 60000000000ull

struct diagnose_args {
	struct report_args shown;
	struct capture_args capture;
	struct report_text_opts text; /* only for the width of the output */
	bool json;
	const char *output; /* NULL: the capture is not kept */
	bool force;
	char **files;
	size_t n;
	size_t faults; /* number of faults that were found */
};

enum { OPT_STEPS = OPT_COMMANDS_OWN };

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Attach to this process instead of reading a recording",
	  OPTIONS_PROCESS },
	{ "duration", 'd', "TIME", 0, "With -p: look for at most TIME (default 60s)",
	  OPTIONS_TIME },
	{ "steps", OPT_STEPS, "N", 0, "With -p: end after N steps (default 60 steps and 5 s)",
	  OPTIONS_TIME },
	{ "output", 'o', "FILE", 0, "With -p: also keep the recording in FILE", OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	{ 0 },
};

/* Calls argp_error() for options that need a process, or a recording, that is not given. */
static void check_args(const struct diagnose_args *a, struct argp_state *state)
{
	if (!a->capture.pid && !a->n)
		argp_error(state, "nothing to look at: memtrace-bpf diagnose FILE, or -p PID for a "
				  "running process");
	if (a->capture.pid && a->n)
		argp_error(state, "'%s' and -p cannot be combined; give a recording or a process",
			   a->files[0]);
	if (!a->capture.pid && a->output)
		argp_error(state, "--output needs a running process, -p PID; a recording is kept "
				  "anyway");
	if (a->force && !a->output)
		argp_error(state, "--force is for the file of --output");
	if (a->output && (!strcmp(a->output, "-") || folder__wanted(a->output)))
		argp_error(state, "--output: '%s' is not a file; try run.mtr", a->output);
	if (!a->capture.pid && (a->capture.session.steps || a->capture.duration))
		argp_error(state, "%s needs a running process, -p PID",
			   a->capture.session.steps ? "--steps" : "--duration");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct diagnose_args *a = state->input;

	switch (key) {
	case OPT_STEPS:
		a->capture.session.steps = capture_args__parse_count(state, "--steps", arg,
								     /*min=*/1);
		break;
	case 'p':
		capture_args__parse_only_pid(state, arg, "", &a->capture.pid);
		break;
	case 'd':
		if (text__parse_time(arg, &a->capture.duration) || !a->capture.duration)
			argp_error(state, "--duration: '%s' is not a time; try 10s, 5m or 500ms",
				   arg);
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
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

/* Finds what is wrong and prints it. Returns 0, or an exit code after a message. */
static int print(struct diagnose_args *args, const struct findings_source *of)
{
	struct findings found;
	struct json *j = NULL;
	int err = findings__judge(of, &found);

	if (!err && args->json && !(j = json__new(stdout, true)))
		err = -ENOMEM;
	if (err) {
		log_err("%s", strerror(-err));
		findings__free(&found);
		return EXIT_FAILED;
	}
	if (j) {
		findings__json(j, of, &found);
		json__free(j);
	} else {
		err = findings__text(stdout, of, &found, report_text__width(stdout, &args->text));
	}
	args->faults += found.faults;
	findings__free(&found);
	if (err) {
		log_err("%s", strerror(-err));
		return EXIT_FAILED;
	}
	return analysis__check_output(stdout, "standard output") ? EXIT_FAILED : EXIT_OK;
}

/* ---- recordings ---- */

/* Reads a recording and prints the findings. With a job, adds the recording to it instead of
 * printing. Returns 0, or an exit code after a message. */
static int from_file(struct diagnose_args *args, const char *path, const char *host,
		     struct findings_job *job)
{
	const struct model_opts mo = { .at = AT_PEAK };
	struct advisor *advisor;
	struct analysis *a;
	int status = analysis__open(path, &mo, &a);

	if (status)
		return status;
	a->host = host;
	advisor = advisor__new(a->model, a->dict, a->facts);
	if (!advisor) {
		log_err("out of memory");
		analysis__free(a);
		return EXIT_FAILED;
	}
	status = analysis__run(a, advisor__event, advisor);
	if (!status) {
		const struct findings_source of = {
			.model = a->model,
			.dict = a->dict,
			.facts = a->facts,
			.advisor = advisor,
			.name = path,
			.format = mtr_reader__version(a->reader),
			.duration = a->duration,
			.complete = a->complete,
		};

		if (!job) {
			status = print(args, &of);
		} else if (findings_job__add(job, a, &of)) {
			log_err("out of memory");
			status = EXIT_FAILED;
		}
	}
	advisor__free(advisor);
	analysis__free(a);
	return status;
}

/* Prints the findings of several recordings. Returns 0 or -ENOMEM. */
static int print_together(const struct diagnose_args *args, const struct findings_job *job)
{
	struct json *j;

	if (!args->json)
		return findings_job__text(stdout, job, report_text__width(stdout, &args->text));
	j = json__new(stdout, true);
	if (!j)
		return -ENOMEM;
	findings_job__json(j, job);
	json__free(j);
	return 0;
}

/* Judges the recordings that were added and prints the findings. Returns 0, or an exit code after a
 * message. */
static int judge_job(struct diagnose_args *args, struct findings_job *job)
{
	if (findings_job__finish(job) || print_together(args, job)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	args->faults = findings_job__faults(job);
	return analysis__check_output(stdout, "standard output") ? EXIT_FAILED : EXIT_OK;
}

/* Prints the findings of one recording, or of several as one job. Returns the exit code. */
static int from_files(struct diagnose_args *args)
{
	struct findings_job *job = NULL;
	struct inputs in;
	int status = inputs__expand(args->files, args->n, INPUTS_PROCESSES, &in);

	if (!status && in.n > 1) {
		job = findings_job__new();
		if (!job) {
			log_err("out of memory");
			status = EXIT_FAILED;
		}
	}
	for (size_t i = 0; i < in.n && !status; i++)
		status = from_file(args, in.paths[i], in.hosts[i], job);
	if (!status && job)
		status = judge_job(args, job);
	findings_job__free(job);
	inputs__free(&in);
	return status;
}

/* ---- a running process ---- */

struct look {
	struct advisor *advisor; /* owned */
	bool counts_steps;	 /* the capture itself ends after --steps */
};

/* For live_model_opts.begin: makes the advisor, which the findings need. Returns 0 or -ENOMEM. */
static int begin(void *ctx, struct live_model *l)
{
	struct look *look = ctx;

	look->advisor = advisor__new(l->model, l->dict, l->facts);
	return look->advisor ? 0 : -ENOMEM;
}

/* For live_model_opts.event: hands the event to the advisor. Returns 0 or a negative error. */
static int take(void *ctx, const struct event *e)
{
	return advisor__event(((struct look *)ctx)->advisor, e);
}

/* Ends the capture after enough steps, or when a finding is sure. */
static bool enough(void *ctx, const struct live_model *l, uint64_t now)
{
	const struct look *look = ctx;
	uint64_t least = model__steps_are_calls(l->model) ? LEAST_CALLS_NS : LEAST_NS;
	bool has_steps = !look->counts_steps && model__whole_steps(l->model) >= MOST_STEPS;

	if (has_steps && now >= least && !findings__host_may_grow(l->model, l->facts, now))
		return true;
	return findings__are_sure(l->model, l->facts, now);
}

/* Captures into the file of --output, and judges that recording. Returns the exit code. */
static int from_kept_file(struct diagnose_args *args)
{
	struct recording r = { .args.output = args->output,
			       .args.force = args->force,
			       .loop.args = args->capture };
	int status = recording__run(&r);

	capture_loop__close(&r.loop);
	return status ? status : from_file(args, args->output, /*host=*/NULL, /*job=*/NULL);
}

/* Captures a process and prints the findings. Returns the exit code. */
static int from_process(struct diagnose_args *args)
{
	char until[80], time[24], name[32];
	struct look look = { .counts_steps = args->capture.session.steps };
	const struct live_model_opts o = { .args = &args->capture,
					   .until = look.counts_steps ? NULL : until,
					   .begin = begin,
					   .event = take,
					   .enough = enough,
					   .ctx = &look };
	struct live_model live;
	int status;

	args->capture.session.host = true;
	if (!args->capture.duration)
		args->capture.duration = MOST_NS;
	if (args->output && !args->capture.session.steps)
		args->capture.session.steps = MOST_STEPS;
	if (args->output)
		return from_kept_file(args);
	snprintf(until, sizeof(until), "%d steps or %s have passed", MOST_STEPS,
		 text__time(time, sizeof(time), args->capture.duration));
	status = live_model__capture(&o, &live);
	snprintf(name, sizeof(name), "PID %d", (int)args->capture.pid);
	if (!status && !live.duration) {
		log_err("%s: nothing was recorded, so nothing is known of its memory", name);
		status = EXIT_UNUSABLE;
	} else if (!status) {
		const struct findings_source of = {
			.model = live.model,
			.dict = live.dict,
			.facts = live.facts,
			.advisor = look.advisor,
			.name = name,
			.pid = args->capture.pid,
			.duration = live.duration,
			.complete = true,
		};

		status = print(args, &of);
	}
	advisor__free(look.advisor);
	live_model__free(&live);
	return status;
}

static const struct argp_child children[] = {
	MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE...\n-p PID",
	.doc = "Say what is wrong with the memory of a job: leaks, growing peaks, out of memory, "
	       "memory that nothing needs. A running process is watched for 60 steps, at least "
	       "5 s and at most 60 s, less if memory surely grows, and longer while host memory "
	       "rises.",
	.children = children,
};

static int cmd_diagnose(int argc, char **argv)
{
	struct diagnose_args args = { .shown = { .formats = report_args_formats } };
	int status;

	usage__parse(&command_diagnose, argc, argv, 0, &args);
	args.json = args.shown.format;
	status = args.n ? from_files(&args) : from_process(&args);
	return !status && args.faults ? EXIT_HELD : status;
}

const struct command command_diagnose = {
	.name = "diagnose",
	.summary = "say what is wrong with a job's memory",
	.group = COMMANDS_LOOK,
	.argp = &argp,
	.examples = "sudo memtrace-bpf diagnose -p 4242\n"
		    "memtrace-bpf diagnose run.mtr\n"
		    "memtrace-bpf diagnose --format json run.mtr",
	.status = "0 no fault, 4 a fault, 1 failed, 2 not usable, 3 not permitted",
	.run = cmd_diagnose,
};
