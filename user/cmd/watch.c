/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf watch: watches processes in production from outside, and captures one when a rule
 * matches. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "capture/capture_args.h"
#include "base/text.h"
#include "base/log.h"
#include "watch/watch.h"

/* Defaults of the options; times in ns. */
#define EVERY UINT64_C(1000000000)
#define CAPTURE UINT64_C(30000000000)
#define COOLDOWN UINT64_C(600000000000)
#define MAX_CAPTURES 10
#define MAX_BYTES (UINT64_C(2) << 30)

/* Default rules: for the most common problems, with few false alarms (docs/guide/conditions.md). */
static const char *const defaults[] = { "ooms>0", "retries>0", "growth>1G/10m",
					"rss_growth>4G/10m" };

enum {
	OPT_RULE = OPT_COMMANDS_OWN,
	OPT_EVERY,
	OPT_CAPTURE,
	OPT_COST,
	OPT_COOLDOWN,
	OPT_MAX_CAPTURES,
	OPT_MAX_BYTES,
	OPT_ON_KILL,
	OPT_EXEC,
	OPT_METRICS,
	OPT_NAME,
	OPT_ALL,
	OPT_CONTAINER,
	OPT_POD,
	OPT_FOLLOW,
	OPT_MACHINE
};

struct options {
	struct watch_args args;
	const char *capture_option; /* a given option that only captures use; NULL: none was given */
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "This process; repeatable", OPTIONS_PROCESS },
	{ "name", OPT_NAME, "PATTERN", 0, "Processes whose command line matches, also new ones",
	  OPTIONS_PROCESS },
	{ "all", OPT_ALL, NULL, 0, "All processes that use PyTorch, also new ones",
	  OPTIONS_PROCESS },
	{ "container", OPT_CONTAINER, "NAME|ID", OPTION_RARE,
	  "With --name or --all: only processes in this container (name, or start of its ID)",
	  OPTIONS_PROCESS },
	{ "pod", OPT_POD, "NAME|UID", OPTION_RARE,
	  "With --name or --all: only processes in this Kubernetes pod (name, or start of its UID)",
	  OPTIONS_PROCESS },
	{ "follow", OPT_FOLLOW, NULL, OPTION_RARE,
	  "With -p: after the end of a process, watch the one that replaces it", OPTIONS_PROCESS },
	{ "machine", OPT_MACHINE, NULL, 0, "No process: record the machine's memory, for -o",
	  OPTIONS_PROCESS },
	{ NULL, 0, NULL, 0, "Rules", OPTIONS_RECORD },
	{ "rule", OPT_RULE, "CONDITION", 0,
	  "Capture when CONDITION becomes true; repeatable (default: ooms>0, retries>0, "
	  "growth>1G/10m, rss_growth>4G/10m)",
	  OPTIONS_RECORD },
	{ "every", OPT_EVERY, "TIME", 0, "Polling interval (default 1s)", OPTIONS_RECORD },
	{ "duration", 'd', "TIME", 0, "Stop watching after TIME", OPTIONS_RECORD },
	{ NULL, 0, NULL, 0, "Captures", OPTIONS_PARTS },
	{ "output", 'o', "FOLDER", 0,
	  "Write captures and an index into FOLDER (default: capture nothing)", OPTIONS_PARTS },
	{ "on-kill", OPT_ON_KILL, NULL, 0,
	  "Also record all the time in memory, and write what led up to a kill or a failure",
	  OPTIONS_PARTS },
	{ "capture", OPT_CAPTURE, "TIME|Nsteps", 0, "Length of a capture (default 30s)",
	  OPTIONS_PARTS },
	{ "cost", OPT_COST, "PERCENT", OPTION_RARE,
	  "Record less detail while a capture adds more time (default 1%); off: all detail",
	  OPTIONS_PARTS },
	{ "cooldown", OPT_COOLDOWN, "TIME", 0,
	  "Time before the same process is captured again (default 10m)", OPTIONS_PARTS },
	{ "max-captures", OPT_MAX_CAPTURES, "N", 0,
	  "Keep N captures; removes the oldest (default 10)", OPTIONS_PARTS },
	{ "max-size", OPT_MAX_BYTES, "SIZE", 0, "Size of all captures together (default 2G)",
	  OPTIONS_PARTS },
	{ "exec", OPT_EXEC, "COMMAND", 0,
	  "Shell command to run when a rule fires and when its capture is finished; details are in "
	  "MEMTRACE_* variables",
	  OPTIONS_OUTPUT },
	{ "metrics", OPT_METRICS, "FILE", 0,
	  "Write the latest figures to FILE, for Prometheus' textfile collector", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text); json: one object per line",
	  OPTIONS_OUTPUT },
	{ 0 },
};

/* Parses a time of at least min ns: 100 ms, 1 or 0. Calls argp_error() for anything else. */
static uint64_t parse_time(struct argp_state *state, const char *option, const char *arg,
			   uint64_t min)
{
	uint64_t ns = 0;

	if (text__parse_time(arg, &ns) || ns < min)
		argp_error(state, "%s: '%s' is not a time%s; try 1s, 30s or 10m", option, arg,
			   min > 1 ? " of at least 100ms" : "");
	return ns;
}

/* Parses --capture: "30s" or "20steps". */
static void parse_capture(struct argp_state *state, struct watch_args *a, const char *arg)
{
	size_t digits = strspn(arg, "0123456789");

	a->capture = a->capture_steps = 0;
	if (digits && (!strcmp(arg + digits, "steps") || !strcmp(arg + digits, "step")))
		a->capture_steps = strtoull(arg, NULL, 10);
	else if (text__parse_time(arg, &a->capture))
		a->capture = 0;
	if (!a->capture && !a->capture_steps)
		argp_error(state,
			   "--capture: '%s' is neither a time nor a number of steps; try 30s or "
			   "20steps",
			   arg);
}

/* Adds the value of an option that may be given `max` times. Calls argp_error() for one more, or an
 * empty one. */
static void add_argument(struct argp_state *state, const char *option, const char **list, size_t *n,
			 size_t max, const char *arg)
{
	if (!*arg)
		argp_error(state, "%s needs a value", option);
	if (*n == max)
		argp_error(state, "%s: at most %zu", option, max);
	list[(*n)++] = arg;
}

/* Parses the options that choose processes. ARGP_ERR_UNKNOWN: key is another option. */
static error_t parse_processes(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct pick_args *p = &o->args.pick;
	const char *why;

	switch (key) {
	case 'p':
		if (p->n_pids == PICK_MAX)
			argp_error(state, "--pid: at most %d", PICK_MAX);
		p->pids[p->n_pids++] = capture_args__parse_pid(state, arg);
		break;
	case OPT_NAME:
		add_argument(state, "--name", p->names, &p->n_names, PICK_MAX, arg);
		why = pick__bad_pattern(arg);
		if (why)
			argp_error(state, "--name: '%s' is not a valid regular expression: %s", arg,
				   why);
		break;
	case OPT_CONTAINER:
		add_argument(state, "--container", p->containers, &p->n_containers, PICK_MAX, arg);
		break;
	case OPT_POD:
		add_argument(state, "--pod", p->pods, &p->n_pods, PICK_MAX, arg);
		break;
	case OPT_ALL:
		p->all = true;
		break;
	case OPT_FOLLOW:
		p->follow = true;
		break;
	case OPT_MACHINE:
		o->args.machine = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Calls argp_error() for options that --machine does not have. */
static void check_machine(struct argp_state *state, const struct options *o)
{
	const struct watch_args *a = &o->args;

	if (a->pick.all || a->pick.n_pids || a->pick.n_names || a->pick.follow)
		argp_error(state, "--machine watches no process: leave out -p, --name and --all");
	if (a->on_kill || a->metrics)
		argp_error(state, "--on-kill and --metrics are for processes, not for --machine");
	if (o->capture_option && strcmp(o->capture_option, "--max-size") != 0)
		argp_error(state, "%s is for captures, and --machine makes none",
			   o->capture_option);
	if (!a->output && !a->n_rules)
		argp_error(state, "--machine needs a folder, -o FOLDER, or rules, --rule");
}

/* Calls argp_error() for options that need another one. Sets the default rules. */
static void check_args(struct argp_state *state, struct options *o)
{
	struct watch_args *a = &o->args;

	if (a->machine) {
		check_machine(state, o);
		return;
	}
	capture_args__check_pick(state, &a->pick);
	if (o->capture_option && !a->output)
		argp_error(state,
			   "%s needs a folder for captures: -o FOLDER; without it nothing is "
			   "captured",
			   o->capture_option);
	if (a->on_kill && !a->output)
		argp_error(state, "--on-kill needs a folder for its recordings: -o FOLDER");
	for (size_t i = 0; !a->n_rules && i < sizeof(defaults) / sizeof(*defaults); i++)
		a->rules[i] = defaults[i];
	if (!a->n_rules)
		a->n_rules = sizeof(defaults) / sizeof(*defaults);
}

/* Parses the options about captures, and those of parse_processes(). */
static error_t parse_captures(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct watch_args *a = &o->args;

	switch (key) {
	case OPT_CAPTURE:
		o->capture_option = "--capture";
		parse_capture(state, a, arg);
		break;
	case OPT_COST:
		o->capture_option = "--cost";
		(void)capture_args__parse_cost(state, arg);
		a->cost = arg;
		break;
	case OPT_COOLDOWN:
		o->capture_option = "--cooldown";
		a->cooldown = parse_time(state, "--cooldown", arg, 0);
		break;
	case OPT_MAX_CAPTURES:
		o->capture_option = "--max-captures";
		a->max_captures = (unsigned)capture_args__parse_count(state, "--max-captures", arg,
								      /*min=*/1);
		break;
	case OPT_MAX_BYTES:
		o->capture_option = "--max-size";
		if (text__parse_size(arg, &a->max_bytes) || a->max_bytes < 65536)
			argp_error(state, "--max-size: '%s' is not a size of at least 64K; try 2G",
				   arg);
		break;
	default:
		return parse_processes(key, arg, state);
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct watch_args *a = &o->args;

	switch (key) {
	case OPT_RULE:
		add_argument(state, "--rule", a->rules, &a->n_rules, WATCH_RULES, arg);
		break;
	case OPT_EVERY:
		a->every = parse_time(state, "--every", arg, /*min=*/100000000);
		break;
	case 'o':
		a->output = arg;
		break;
	case OPT_ON_KILL:
		a->on_kill = true;
		break;
	case OPT_EXEC:
		a->exec = arg;
		break;
	case OPT_METRICS:
		a->metrics = arg;
		break;
	case OPT_FORMAT:
		a->json = report_args__choose(state, "--format", arg, report_args_formats);
		break;
	case 'd':
		a->duration = parse_time(state, "--duration", arg, /*min=*/1);
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg,
				  "choose processes with -p PID, --name PATTERN or --all");
		break;
	case ARGP_KEY_END:
		check_args(state, o);
		break;
	default:
		return parse_captures(key, arg, state);
	}
	return 0;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "-p PID | --name PATTERN | --all\n--machine -o FOLDER",
	.doc = "Watch running PyTorch processes from outside, without probes, and capture one when "
	       "a rule becomes true.",
	.children = children,
};

static int cmd_watch(int argc, char **argv)
{
	struct options o = {
		.args = {
			.every = EVERY,
			.capture = CAPTURE,
			.cost = CAPTURE_COST,
			.cooldown = COOLDOWN,
			.max_captures = MAX_CAPTURES,
			.max_bytes = MAX_BYTES,
		},
	};

	usage__parse(&command_watch, argc, argv, 0, &o);
	return o.args.machine ? watch_machine__run(&o.args) : watch__run(&o.args);
}

const struct command command_watch = {
	.name = "watch",
	.summary = "watch processes and capture one when a rule becomes true",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.examples = "sudo memtrace-bpf watch --all -o captures/\n"
		    "sudo memtrace-bpf watch --name train.py --rule 'growth>1G/10m' -o captures/\n"
		    "sudo memtrace-bpf watch --all --rule 'reserved>=95%' --exec ./notify.sh",
	.status = STATUS_ATTACH,
	.run = cmd_watch,
};
