/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf watch: watches processes in production from outside, and captures one when a rule
 * matches. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "cmd/report_args.h"
#include "follow/capture_args.h"
#include "lib/text.h"
#include "log/log.h"
#include "watch/watch.h"

#define EVERY UINT64_C(1000000000)
#define CAPTURE UINT64_C(30000000000)
#define COOLDOWN UINT64_C(600000000000)
#define MAX_CAPTURES 10
#define MAX_BYTES (UINT64_C(2) << 30)

/* Rules for the most common problems, with few false alarms: docs/guide/watch.md. */
static const char *const defaults[] = { "ooms>0", "retries>0", "growth>1G/10m",
					"rss_growth>4G/10m" };

enum {
	OPT_RULE = OPT_COMMANDS_OWN,
	OPT_EVERY,
	OPT_CAPTURE,
	OPT_COOLDOWN,
	OPT_MAX_CAPTURES,
	OPT_MAX_BYTES,
	OPT_EXEC,
	OPT_METRICS,
	OPT_NAME,
	OPT_ALL,
	OPT_CONTAINER,
	OPT_POD,
	OPT_FOLLOW
};

static const struct argp_option options[] = {
	{ "rule", OPT_RULE, "CONDITION", 0,
	  "What is worth a capture: 'growth>1G/10m', 'reserved>=95%', 'step_time>2s' ...; may be "
	  "given again. Default: ooms>0, retries>0, "
	  "growth>1G/10m, rss_growth>4G/10m",
	  0 },
	{ "every", OPT_EVERY, "TIME", 0, "How often is looked (default 1s)", 0 },
	{ "output", 'o', "FOLDER", 0,
	  "Where captures go, with an index; without, nothing is captured", 0 },
	{ "capture", OPT_CAPTURE, "TIME|Nsteps", 0,
	  "How much is recorded when a rule begins to hold (default 30s)", 0 },
	{ "cooldown", OPT_COOLDOWN, "TIME", 0,
	  "Not captured again for so long, each process (default 10m)", 0 },
	{ "max-captures", OPT_MAX_CAPTURES, "N", 0, "Keep so many, the oldest go (default 10)", 0 },
	{ "max-size", OPT_MAX_BYTES, "SIZE", 0, "Of all that are kept, and of each (default 2G)",
	  0 },
	{ "exec", OPT_EXEC, "COMMAND", 0,
	  "For sh, when a rule fires and when a capture is there; MEMTRACE_* say what it is about",
	  0 },
	{ "metrics", OPT_METRICS, "FILE", 0,
	  "Keep the last figures in it, for Prometheus' textfile collector", 0 },
	{ "format", OPT_FORMAT, "FORMAT", 0, "text (default) or json: a line for all that happens",
	  0 },
	{ "duration", 'd', "TIME", 0, "End after TIME", 0 },
	{ "quiet", 'q', NULL, 0, "Say nothing but errors and warnings on standard error", 0 },
	{ "verbose", 'v', NULL, 0, "Say what is being done", 0 },
	{ NULL, 0, NULL, 0, "Whom:", 1 },
	{ "pid", 'p', "PID", 0, "This process; may be given again", 1 },
	{ "name", OPT_NAME, "PATTERN", 0,
	  "Those whose command line matches the extended regular expression, also those that come "
	  "later",
	  1 },
	{ "all", OPT_ALL, NULL, 0, "All that have PyTorch, also those that come later", 1 },
	{ "container", OPT_CONTAINER, "NAME|ID", 0, "Those in this container", 1 },
	{ "pod", OPT_POD, "NAME|UID", 0, "Those in this pod", 1 },
	{ "follow", OPT_FOLLOW, NULL, 0,
	  "With -p: also what comes in the place of one that has ended", 1 },
	{ 0 },
};

static uint64_t time_of(struct argp_state *state, const char *option, const char *arg, uint64_t min)
{
	uint64_t ns = 0;

	if (text__parse_time(arg, &ns) || ns < min)
		argp_error(state, "%s: '%s' is no time%s; try 1s, 30s or 10m", option, arg,
			   min > 1 ? " of at least 100ms" : "");
	return ns;
}

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

static void add(struct argp_state *state, const char *option, const char **list, size_t *n,
		size_t max, const char *arg)
{
	if (!*arg)
		argp_error(state, "%s wants a text", option);
	if (*n == max)
		argp_error(state, "%s: no more than %zu", option, max);
	list[(*n)++] = arg;
}

static error_t parse_processes(int key, char *arg, struct argp_state *state)
{
	struct watch_args *a = state->input;
	struct pick_args *p = &a->pick;
	const char *why;

	switch (key) {
	case 'p':
		if (p->n_pids == PICK_MAX)
			argp_error(state, "--pid: no more than %d", PICK_MAX);
		p->pids[p->n_pids++] = capture_args__parse_pid(state, arg);
		break;
	case OPT_NAME:
		add(state, "--name", p->names, &p->n_names, PICK_MAX, arg);
		why = pick__bad_pattern(arg);
		if (why)
			argp_error(state, "--name: '%s' is no extended regular expression: %s", arg,
				   why);
		break;
	case OPT_CONTAINER:
		add(state, "--container", p->containers, &p->n_containers, PICK_MAX, arg);
		break;
	case OPT_POD:
		add(state, "--pod", p->pods, &p->n_pods, PICK_MAX, arg);
		break;
	case OPT_ALL:
		p->all = true;
		break;
	case OPT_FOLLOW:
		p->follow = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void check_args(struct argp_state *state, struct watch_args *a)
{
	capture_args__check_pick(state, &a->pick);
	for (size_t i = 0; !a->n_rules && i < sizeof(defaults) / sizeof(*defaults); i++)
		a->rules[i] = defaults[i];
	if (!a->n_rules)
		a->n_rules = sizeof(defaults) / sizeof(*defaults);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct watch_args *a = state->input;

	switch (key) {
	case OPT_RULE:
		add(state, "--rule", a->rules, &a->n_rules, WATCH_RULES, arg);
		break;
	case OPT_EVERY:
		a->every = time_of(state, "--every", arg, 100000000);
		break;
	case 'o':
		a->output = arg;
		break;
	case OPT_CAPTURE:
		parse_capture(state, a, arg);
		break;
	case OPT_COOLDOWN:
		a->cooldown = time_of(state, "--cooldown", arg, 0);
		break;
	case OPT_MAX_CAPTURES:
		a->max_captures = (unsigned)capture_args__parse_count(state, "--max-captures", arg,
								      1);
		break;
	case OPT_MAX_BYTES:
		if (text__parse_size(arg, &a->max_bytes) || a->max_bytes < 65536)
			argp_error(state, "--max-size: '%s' is no size of at least 64K", arg);
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
		a->duration = time_of(state, "--duration", arg, 1);
		break;
	case 'q':
		log__set_level(LOG_WARN);
		break;
	case 'v':
		log__set_level(LOG_DEBUG);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': watch looks at processes, -p PID", arg);
		break;
	case ARGP_KEY_END:
		check_args(state, a);
		break;
	default:
		return parse_processes(key, arg, state);
	}
	return 0;
}

int cmd_watch(int argc, char **argv)
{
	static const struct argp_child children[] = { LOG_ARGP_CHILD, { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID | --name PATTERN | --all",
		.doc = "Watches running PyTorch processes from outside, with no probe on their "
		       "allocations, until a rule holds; then writes down "
		       "what is live, records everything for a while, and watches on.",
		.children = children,
	};
	struct watch_args args = {
		.every = EVERY,
		.capture = CAPTURE,
		.cooldown = COOLDOWN,
		.max_captures = MAX_CAPTURES,
		.max_bytes = MAX_BYTES,
	};

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	return watch__run(&args);
}
