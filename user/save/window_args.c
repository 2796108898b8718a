/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/window_args.h"

#include <stdio.h>
#include <string.h>

#include "cond/cond.h"
#include "follow/capture_args.h"
#include "lib/text.h"

enum { OPT_ON_OOM = 0x3000, OPT_WINDOW, OPT_OOM_FILES };
enum {
	OPT_SKIP = 0x6000,
	OPT_ON,
	OPT_ON_GROWTH,
	OPT_UNTIL,
	OPT_FROM_MARK,
	OPT_TO_MARK,
	OPT_WAIT,
	OPT_EVERY,
	OPT_BEFORE,
	OPT_KEEP,
	OPT_WINDOWS,
	OPT_LABEL
};

static const struct argp_option oom_options[] = {
	{ "on-oom", OPT_ON_OOM, NULL, 0,
	  "Write nothing until the target runs out of memory, then what led up to it; --max-size "
	  "and --max-events bound "
	  "what is kept in memory (default 64M)",
	  1 },
	{ "window", OPT_WINDOW, "TIME", 0, "With --on-oom: how much before it (default 30s)", 1 },
	{ "oom-files", OPT_OOM_FILES, "N", 0,
	  "With --on-oom: stop after N files (default 3): FILE, FILE-2, ...", 1 },
	{ 0 },
};

static const struct argp_option options[] = {
	{ "skip", OPT_SKIP, "N", 0, "Begin after N whole steps; --steps and -d count from there",
	  2 },
	{ "on", OPT_ON, "CONDITION", 0,
	  "Begin whenever it comes to hold: 'allocated>70G', 'ooms>0 or fragmentation>30%'", 2 },
	{ "on-growth", OPT_ON_GROWTH, "SIZE/SPAN", 0,
	  "The same as --on 'growth>SIZE/SPAN': 1G/100steps, 500M/10m", 2 },
	{ "until", OPT_UNTIL, "CONDITION", 0, "End when it holds", 2 },
	{ "from-mark", OPT_FROM_MARK, "NAME", 0,
	  "Begin at a mark of that name (memtrace-bpf ctl mark NAME)", 2 },
	{ "to-mark", OPT_TO_MARK, "NAME", 0, "End at one", 2 },
	{ "wait", OPT_WAIT, NULL, 0,
	  "Begin with SIGUSR1 or `memtrace-bpf ctl start`, end with SIGUSR2 or `ctl stop`", 2 },
	{ "every", OPT_EVERY, "TIME", 0,
	  "A window every TIME, each as long as -d, --steps or --until say", 2 },
	{ "keep", OPT_KEEP, "N", 0, "Keep the newest N windows, remove older ones", 2 },
	{ "windows", OPT_WINDOWS, "N", 0, "Stop after N windows", 2 },
	{ "before", OPT_BEFORE, "TIME", 0,
	  "Windows begin TIME before what they begin with: so much is kept in memory", 2 },
	{ "label", OPT_LABEL, "NAME", 0, "What the windows are called in a folder", 2 },
	{ 0 },
};

static uint64_t parse_span(struct argp_state *state, const char *option, const char *arg)
{
	uint64_t ns = 0;

	if (text__parse_time(arg, &ns) || !ns)
		argp_error(state, "%s: '%s' is no time; try 30s or 10m", option, arg);
	return ns;
}

static unsigned int parse_number(struct argp_state *state, const char *option, const char *arg)
{
	uint64_t n = capture_args__parse_count(state, option, arg, 1);

	return n > 1000000 ? 1000000 : (unsigned int)n;
}

/* Refuses conditions that are unknown while a process is recorded. */
static const char *check_condition(struct argp_state *state, const char *option, const char *arg)
{
	static const enum cond_figure not_here[] = { COND_RSS, COND_RSS_GROWTH, COND_LEAKS,
						     COND_RETRIES };
	struct cond *c;
	char *why;

	if (cond__parse(arg, &c, &why))
		argp_error(state, "%s: %s", option, why ? why : "out of memory");
	for (size_t i = 0; i < sizeof(not_here) / sizeof(not_here[0]); i++) {
		if (cond__needs(c, not_here[i]))
			argp_error(state, "%s: %s is not known while it is recorded", option,
				   cond__figure_name(not_here[i]));
	}
	cond__free(c);
	return arg;
}

static const char *parse_name(struct argp_state *state, const char *option, const char *arg)
{
	char clean[256];

	if (!*arg || strlen(arg) >= 128 ||
	    strcmp(text__clean(clean, sizeof(clean), arg, strlen(arg)), arg))
		argp_error(state, "%s wants a name of 1 to 127 bytes", option);
	return arg;
}

static void parse_growth(struct argp_state *state, struct window_args *a, const char *arg)
{
	if (a->on)
		argp_error(state,
			   "--on-growth: there is a condition already; --on 'A or B' has two");
	if (asprintf(&a->growth, "growth>%s", arg) < 0)
		argp_failure(state, 1, 0, "out of memory");
	a->on = check_condition(state, "--on-growth", a->growth);
}

static void check(const struct window_args *a, struct argp_state *state)
{
	if (a->every && (a->on || a->from_mark || a->wait))
		argp_error(state, "--every begins by the clock: not with %s",
			   a->on     ? "--on"
			   : a->wait ? "--wait"
				     : "--from-mark");
	if (a->skip && (a->on || a->from_mark || a->wait))
		argp_error(state, "--skip says when the first one begins: not with %s",
			   a->on     ? "--on"
			   : a->wait ? "--wait"
				     : "--from-mark");
	if (a->wait && (a->on || a->from_mark))
		argp_error(state, "--wait begins nothing by itself: not with %s",
			   a->on ? "--on" : "--from-mark");
	if (a->before && !(a->on || a->from_mark || a->wait))
		argp_error(state, "--before looks back from what begins a window: --on, "
				  "--on-growth, --from-mark or --wait");
	if (a->keep && !window_args__repeat(a))
		argp_error(state, "--keep is for several windows: --every, --on, --on-growth, "
				  "--from-mark or --wait");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct window_args *a = state->input;

	a->given |= key >= OPT_SKIP && key <= OPT_LABEL;
	switch (key) {
	case OPT_SKIP:
		a->skip = capture_args__parse_count(state, "--skip", arg, 0);
		break;
	case OPT_ON:
		if (a->on)
			argp_error(state, "--on: there is a condition already; 'A or B' has two");
		a->on = check_condition(state, "--on", arg);
		break;
	case OPT_ON_GROWTH:
		parse_growth(state, a, arg);
		break;
	case OPT_UNTIL:
		a->until = check_condition(state, "--until", arg);
		break;
	case OPT_FROM_MARK:
		a->from_mark = parse_name(state, "--from-mark", arg);
		break;
	case OPT_TO_MARK:
		a->to_mark = parse_name(state, "--to-mark", arg);
		break;
	case OPT_WAIT:
		a->wait = true;
		break;
	case OPT_EVERY:
		a->every = parse_span(state, "--every", arg);
		break;
	case OPT_BEFORE:
		a->before = parse_span(state, "--before", arg);
		break;
	case OPT_KEEP:
		a->keep = parse_number(state, "--keep", arg);
		break;
	case OPT_WINDOWS:
		a->count = parse_number(state, "--windows", arg);
		break;
	case OPT_LABEL:
		a->label = parse_name(state, "--label", arg);
		break;
	case ARGP_KEY_END:
		check(a, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse_oom(int key, char *arg, struct argp_state *state)
{
	struct oom_args *a = state->input;
	uint64_t n;

	switch (key) {
	case OPT_ON_OOM:
		a->on = true;
		break;
	case OPT_WINDOW:
		if (text__parse_time(arg, &a->window) || !a->window)
			argp_error(state, "--window: '%s' is no time; try 30s or 5m", arg);
		break;
	case OPT_OOM_FILES:
		n = capture_args__parse_count(state, "--oom-files", arg, 1);
		a->files = n > 1000 ? 1000 : (unsigned int)n;
		break;
	case ARGP_KEY_END:
		if (!a->on && (a->window || a->files))
			argp_error(state, "--%s goes with --on-oom",
				   a->window ? "window" : "oom-files");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp oom_argp = { .options = oom_options, .parser = parse_oom };
const struct argp window_argp = { .options = options, .parser = parse };

bool window_args__repeat(const struct window_args *a)
{
	return a->count != 1 && (a->every || a->on || a->from_mark || a->wait);
}
