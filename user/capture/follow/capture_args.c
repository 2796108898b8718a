/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/capture_args.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf.h"
#include "inspect/site.h"

#define SWITCH_KEY(field, name, help) OPT_##field,
#define SWITCH_OPTION(field, name, help)                                                           \
	{ name, OPT_##field, NULL, OPTION_RARE, help, OPTIONS_RECORD },
#define SWITCH_CASE(field, name, help)                                                             \
	case OPT_##field:                                                                          \
		args->session.field = true;                                                        \
		break;

#define COST_MIN 0.01 /* bounds of --cost, in percent */
#define COST_MAX 100.0

enum {
	OPT_STEPS = 0x1000,
	OPT_RING,
	OPT_SCOPE,
	OPT_COST,
	OPT_CLOCK,
	OPT_CHILDREN,
	OPT_WAIT_FOR,
	OPT_NAME,
	OPT_ALL,
	OPT_FOLLOW,
	OPT_CONTAINER,
	OPT_POD,
	SESSION_SWITCHES(SWITCH_KEY)
};

static const struct argp_option pid_options[] = {
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
	{ "follow", OPT_FOLLOW, NULL, 0, "When a process ends, trace the one that replaces it",
	  OPTIONS_PROCESS },
	{ 0 },
};

static const struct argp_option options[] = {
	{ "children", OPT_CHILDREN, NULL, 0, "Also trace child processes", OPTIONS_PROCESS },
	{ "wait-for", OPT_WAIT_FOR, "torch", OPTION_RARE,
	  "Begin when the process has imported PyTorch. Without this, host memory is recorded of a "
	  "process without PyTorch",
	  OPTIONS_PROCESS },
	{ "duration", 'd', "TIME", 0, "Stop after TIME, such as 5m (default: at its end)",
	  OPTIONS_TIME },
	{ "steps", OPT_STEPS, "N", 0, "Stop after N whole optimizer steps", OPTIONS_TIME },
	{ "clock-offset", OPT_CLOCK, "OFFSET,ERROR", OPTION_HIDDEN, NULL, 0 }, /* for serve */
	{ "ring-size", OPT_RING, "SIZE", OPTION_RARE,
	  "Buffer between the kernel and memtrace-bpf: a power of two (default 16M)",
	  OPTIONS_RECORD },
	{ "cost", OPT_COST, "PERCENT", 0, "Record less detail while tracing adds more time: 1%",
	  OPTIONS_RECORD },
	{ "scope", OPT_SCOPE, "FUNCTION", OPTION_RARE,
	  "Let reports show runs, time and peak of a Python function, such as rollout, "
	  "Trainer.evaluate or train.py:rollout; or record scopes between two USDT probes: "
	  "usdt:PROVIDER:BEGIN,END; repeatable",
	  OPTIONS_RECORD },
	SESSION_SWITCHES(SWITCH_OPTION){ 0 },
};

uint64_t capture_args__parse_count(struct argp_state *state, const char *option, const char *arg,
				   uint64_t min)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(arg, &end, 10);
	if (errno || end == arg || *end || *arg == '-' || n < min)
		argp_error(state, "%s: '%s' is not a whole number of at least %llu", option, arg,
			   (unsigned long long)min);
	return n;
}

pid_t capture_args__parse_pid(struct argp_state *state, const char *arg)
{
	uint64_t n = capture_args__parse_count(state, "--pid", arg, /*min=*/1);

	if (n > INT32_MAX)
		argp_error(state, "--pid: '%s' is not a PID", arg);
	return n;
}

void capture_args__parse_only_pid(struct argp_state *state, const char *arg, const char *more,
				  pid_t *pid)
{
	pid_t other = *pid;

	*pid = capture_args__parse_pid(state, arg);
	if (other && other != *pid)
		argp_error(state, "-p %d and -p %d cannot be combined; give one process%s", other,
			   *pid, more);
}

double capture_args__parse_cost(struct argp_state *state, const char *arg)
{
	char *end;
	double v = strtod(arg, &end);

	if (!strcmp(arg, "off"))
		return 0;
	if (end == arg || (*end && strcmp(end, "%") != 0) || !(v >= COST_MIN && v <= COST_MAX))
		argp_error(state,
			   "--cost: '%s' is not a share of time between %g%% and %g%%; try 1%%, "
			   "or off",
			   arg, COST_MIN, COST_MAX);
	return v / 100;
}

/* Parses "OFFSET,ERROR", in ns. */
static void parse_clock(struct argp_state *state, const char *arg, struct clock_offset *ret)
{
	char *end;

	errno = 0;
	ret->offset = strtoll(arg, &end, 10);
	ret->known = *end == ',' && isdigit((unsigned char)end[1]);
	if (ret->known)
		ret->error = strtoull(end + 1, &end, 10);
	if (errno || !ret->known || *end)
		argp_error(state, "--clock-offset: '%s' is not OFFSET,ERROR in nanoseconds", arg);
}

#define USDT "usdt:"

/* Copies the text before the separator at *arg, and moves *arg past that. NUL: all of the rest.
 * False: it is empty, or too long. */
static bool take_word(const char **arg, char separator, char word[], size_t size)
{
	const char *end = strchr(*arg, separator);
	size_t len = end ? (size_t)(end - *arg) : 0;

	if (!len || len >= size)
		return false;
	memcpy(word, *arg, len);
	word[len] = '\0';
	*arg = end + (separator != '\0');
	return true;
}

/* Adds the scope of "usdt:PROVIDER:BEGIN,END". */
static void add_usdt(struct argp_state *state, struct usdt_scope all[MT_SCOPE_PAIRS],
		     const char *arg)
{
	const char *at = arg + strlen(USDT);
	struct usdt_scope scope = { 0 };
	size_t n = 0;

	if (!site__is_native(ELF_X86_64))
		argp_error(state, "--scope: '%s': USDT probes are recorded on x86-64 only", arg);
	if (!take_word(&at, ':', scope.provider, sizeof(scope.provider)) ||
	    !take_word(&at, ',', scope.begin, sizeof(scope.begin)) ||
	    !take_word(&at, '\0', scope.end, sizeof(scope.end)) ||
	    strpbrk(arg + strlen(USDT), " \n\r\t") || strpbrk(scope.begin, ":") ||
	    strpbrk(scope.end, ":,") || !strcmp(scope.begin, scope.end))
		argp_error(state,
			   "--scope: '%s' is not usdt:PROVIDER:BEGIN,END with the names of two "
			   "USDT probes, such as usdt:trainer:step__begin,step__end",
			   arg);
	while (n < MT_SCOPE_PAIRS && all[n].provider[0] &&
	       memcmp(&all[n], &scope, sizeof(scope)) != 0)
		n++;
	if (n == MT_SCOPE_PAIRS)
		argp_error(state, "--scope: more than %d pairs of USDT probes", MT_SCOPE_PAIRS);
	all[n] = scope;
}

void capture_args__add_scope(struct argp_state *state, const char *scopes[STREAM_SCOPES],
			     const char *arg)
{
	size_t n = 0;

	while (n < STREAM_SCOPES && scopes[n] && strcmp(scopes[n], arg) != 0)
		n++;
	if (text__starts(arg, USDT))
		argp_error(state,
			   "--scope: '%s': scopes of USDT probes are recorded when they run; give "
			   "this option to record, run or live",
			   arg);
	if (!facts__is_scope(arg))
		argp_error(state,
			   "--scope: '%s' is not the name of a Python function; try rollout, "
			   "Trainer.evaluate or train.py:rollout",
			   arg);
	if (n == STREAM_SCOPES)
		argp_error(state, "--scope: more than %d functions", STREAM_SCOPES);
	scopes[n] = arg;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct capture_args *args = state->input;
	uint64_t n = 0;

	switch (key) {
	case 'd':
		if (text__parse_time(arg, &args->duration) || !args->duration)
			argp_error(state, "--duration: '%s' is not a time; try 10s, 5m or 500ms",
				   arg);
		break;
	case OPT_STEPS:
		args->session.steps = capture_args__parse_count(state, "--steps", arg, /*min=*/1);
		break;
	case OPT_RING:
		if (text__parse_size(arg, &n) || n < 65536 || n > (1u << 30) || (n & (n - 1)))
			argp_error(state,
				   "--ring-size: '%s' is not a power of two between 64K and 1G",
				   arg);
		args->session.ring_bytes = n;
		break;
	case OPT_SCOPE:
		if (text__starts(arg, USDT))
			add_usdt(state, args->session.usdt, arg);
		else
			capture_args__add_scope(state, args->session.scopes, arg);
		break;
	case OPT_CLOCK:
		parse_clock(state, arg, &args->session.clock_offset);
		break;
	case OPT_COST:
		args->session.cost = capture_args__parse_cost(state, arg);
		args->chose_cost = true;
		break;
	case OPT_CHILDREN:
		args->children = true;
		break;
	case OPT_WAIT_FOR:
		if (strcmp(arg, "torch") != 0)
			argp_error(state, "--wait-for: '%s' is not known; it can wait for torch",
				   arg);
		args->session.wait_for_torch = true;
		break;
		SESSION_SWITCHES(SWITCH_CASE)
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Adds the value of an option that may be given several times. */
static void add_text(struct argp_state *state, const char *option, const char **list, size_t *n,
		     const char *arg)
{
	if (!*arg)
		argp_error(state, "%s needs a value", option);
	if (*n == PICK_MAX)
		argp_error(state, "%s: at most %d", option, PICK_MAX);
	list[(*n)++] = arg;
}

/* Adds a process of -p, unless it was given already. */
static void add_pid(struct argp_state *state, struct capture_args *args, const char *arg)
{
	pid_t pid = capture_args__parse_pid(state, arg);
	size_t i;

	for (i = 0; i < args->pick.n_pids; i++) {
		if (args->pick.pids[i] == pid)
			return;
	}
	if (args->pick.n_pids == PICK_MAX)
		argp_error(state, "--pid: at most %d", PICK_MAX);
	args->pick.pids[args->pick.n_pids++] = pid;
}

void capture_args__check_pick(struct argp_state *state, const struct pick_args *args)
{
	const char *where = args->n_containers ? "--container" : "--pod";

	if (!args->n_pids && !args->n_names && !args->n_containers && !args->n_pods && !args->all)
		argp_error(state,
			   "no process given; choose it with -p PID, --name PATTERN or --all");
	if (args->n_pids && !args->n_names && !args->all && (args->n_containers || args->n_pods))
		argp_error(state, "-p and %s cannot be combined; %s limits --name or --all", where,
			   where);
}

/* A single -p captures that one process; all other choices pick processes. */
static void check_target(struct argp_state *state, struct capture_args *args)
{
	const struct pick_args *pick = &args->pick;

	capture_args__check_pick(state, pick);
	/* --all picks only processes with PyTorch, also with --host. */
	args->session.wait_for_torch |= pick->all;
	if (args->session.malloc_probes && (pick_args__many(pick) || args->children))
		argp_error(state, "--malloc-probes takes one process: give -p PID once, without "
				  "--children");
	if (pick_args__many(pick))
		return;
	args->pid = pick->pids[0];
	args->session.host_alone = !args->children && !args->session.steps;
}

static error_t parse_target(int key, char *arg, struct argp_state *state)
{
	struct capture_args *args = state->input;
	struct pick_args *p = &args->pick;
	const char *why;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = args;
		break;
	case 'p':
		add_pid(state, args, arg);
		break;
	case OPT_NAME:
		add_text(state, "--name", p->names, &p->n_names, arg);
		why = pick__bad_pattern(arg);
		if (why)
			argp_error(state, "--name: '%s' is not a valid regular expression: %s", arg,
				   why);
		break;
	case OPT_CONTAINER:
		add_text(state, "--container", p->containers, &p->n_containers, arg);
		break;
	case OPT_POD:
		add_text(state, "--pod", p->pods, &p->n_pods, arg);
		break;
	case OPT_ALL:
		p->all = true;
		break;
	case OPT_FOLLOW:
		p->follow = true;
		break;
	case ARGP_KEY_END:
		check_target(state, args);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp capture_bounds_argp = { .options = options, .parser = parse };

static const struct argp_child bounds[] = { { &capture_bounds_argp, 0, NULL, 0 }, { 0 } };

const struct argp capture_argp = { .options = pid_options,
				   .parser = parse_target,
				   .children = bounds };
