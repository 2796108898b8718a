/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/window_args.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "capture/capture_args.h"
#include "record/cond.h"

enum { OPT_ON_OOM = 0x3000, OPT_ON_KILL, OPT_WINDOW, OPT_OOM_FILES };
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
	OPT_WHEN,
	OPT_LABEL
};

static const struct argp_option oom_options[] = {
	{ "on-oom", OPT_ON_OOM, NULL, 0, "Write only what led up to an out-of-memory error",
	  OPTIONS_RECORD },
	{ "on-kill", OPT_ON_KILL, NULL, 0, "Write only what led up to a kill or a failure",
	  OPTIONS_RECORD },
	{ "window", OPT_WINDOW, "TIME", OPTION_RARE,
	  "With --on-oom or --on-kill: write this much before it (default 30s, with --on-kill 5m)",
	  OPTIONS_RECORD },
	{ "oom-files", OPT_OOM_FILES, "N", OPTION_RARE,
	  "With --on-oom: stop after N files (default 3): FILE, FILE-2, ...", OPTIONS_RECORD },
	{ 0 },
};

static const struct argp_option options[] = {
	{ "skip", OPT_SKIP, "N", 0, "Start after N whole steps", OPTIONS_TIME },
	{ "on", OPT_ON, "CONDITION", 0, "Write a window when this is true, such as 'allocated>70G'",
	  OPTIONS_PARTS },
	/* short for --on 'growth>SIZE/SPAN' */
	{ "on-growth", OPT_ON_GROWTH, "SIZE/SPAN", OPTION_HIDDEN, NULL, 0 },
	{ "until", OPT_UNTIL, "CONDITION", 0, "End the window when this is true", OPTIONS_PARTS },
	{ "from-mark", OPT_FROM_MARK, "NAME", OPTION_RARE,
	  "Start a window at each mark NAME (`memtrace-bpf ctl mark NAME`; also a pattern)",
	  OPTIONS_PARTS },
	{ "to-mark", OPT_TO_MARK, "NAME", OPTION_RARE, "End the window at a mark NAME",
	  OPTIONS_PARTS },
	{ "wait", OPT_WAIT, NULL, OPTION_RARE,
	  "Start a window on SIGUSR1 or `memtrace-bpf ctl start`, end it on SIGUSR2 or "
	  "`memtrace-bpf ctl stop`",
	  OPTIONS_PARTS },
	{ "at", OPT_WHEN, "/TIME|DATE", OPTION_RARE,
	  "Start at the next multiple of TIME by the host's clock, as in /10s, or at DATE, as in "
	  "2026-01-02T03:04:05.000Z",
	  OPTIONS_PARTS },
	{ "every", OPT_EVERY, "TIME", 0, "Write a window every TIME, as long as -d or --steps say",
	  OPTIONS_PARTS },
	{ "keep", OPT_KEEP, "N", OPTION_RARE, "Keep the newest N windows and remove older ones",
	  OPTIONS_PARTS },
	{ "windows", OPT_WINDOWS, "N", OPTION_RARE, "Stop after N windows", OPTIONS_PARTS },
	{ "before", OPT_BEFORE, "TIME", 0, "Include the last TIME before the window's start",
	  OPTIONS_PARTS },
	{ "label", OPT_LABEL, "NAME", OPTION_RARE, "Name of the windows in their folder",
	  OPTIONS_PARTS },
	{ 0 },
};

static uint64_t parse_span(struct argp_state *state, const char *option, const char *arg)
{
	uint64_t ns = 0;

	if (text__parse_time(arg, &ns) || !ns)
		argp_error(state, "%s: '%s' is not a time; try 30s or 10m", option, arg);
	return ns;
}

/* Parses "/10s" into align, or a date in UTC into at. */
static void parse_at(struct argp_state *state, struct window_args *args, const char *arg)
{
	args->at = args->align = 0;
	if (*arg == '/' ? text__parse_time(arg + 1, &args->align) || !args->align
			: text__parse_date(arg, &args->at) || !args->at)
		argp_error(state,
			   "--at: '%s' is neither /TIME, as in /10s, nor a date in UTC, as in "
			   "2026-01-02T03:04:05.000Z",
			   arg);
}

/* Parses a count, at most a million. */
static unsigned int parse_number(struct argp_state *state, const char *option, const char *arg)
{
	uint64_t n = capture_args__parse_count(state, option, arg, /*min=*/1);

	return n > 1000000 ? 1000000 : (unsigned int)n;
}

/* Refuses conditions that cannot be parsed, or whose figures are unknown during a recording.
 * Returns arg. */
static const char *check_condition(struct argp_state *state, const char *option, const char *arg)
{
	static const enum cond_figure not_here[] = { COND_FREE,
						     COND_RSS,
						     COND_RSS_GROWTH,
						     COND_HOST_LIVE_GROWTH,
						     COND_MALLOC_FREE_GROWTH,
						     COND_LEAKS,
						     COND_RETRIES,
						     COND_MACHINE_FREE,
						     COND_MACHINE_AVAILABLE,
						     COND_MACHINE_CACHE };
	struct cond *c;
	char *why;

	if (cond__parse(arg, &c, &why))
		argp_error(state, "%s: %s", option, why ? why : "out of memory");
	for (size_t i = 0; i < sizeof(not_here) / sizeof(not_here[0]); i++) {
		if (cond__needs(c, not_here[i]))
			argp_error(state,
				   "%s: %s is not available during a recording; see man "
				   "memtrace-bpf-conditions",
				   option, cond__figure_name(not_here[i]));
	}
	cond__free(c);
	return arg;
}

/* Refuses names of windows and marks that are empty, too long or not text. Returns arg. */
static const char *parse_name(struct argp_state *state, const char *option, const char *arg)
{
	char clean[256];

	if (!*arg || strlen(arg) >= 128 ||
	    strcmp(text__clean(clean, sizeof(clean), arg, strlen(arg)), arg))
		argp_error(state, "%s needs a name of 1 to 127 bytes", option);
	return arg;
}

/* Parses --on-growth into the condition of --on. */
static void parse_growth(struct argp_state *state, struct window_args *args, const char *arg)
{
	if (args->on)
		argp_error(state, "--on-growth: only one condition is possible; use --on 'A or B'");
	if (asprintf(&args->growth, "growth>%s", arg) < 0)
		argp_failure(state, 1, 0, "out of memory");
	args->on = check_condition(state, "--on-growth", args->growth);
}

/* The option that starts a window when something happens; NULL: none is given. */
static const char *start_option(const struct window_args *args)
{
	if (args->on)
		return "--on";
	if (args->wait)
		return "--wait";
	return args->from_mark ? "--from-mark" : NULL;
}

/* Refuses options that contradict each other. */
static void check(const struct window_args *args, struct argp_state *state)
{
	const char *start = start_option(args);

	if (args->every && start)
		argp_error(state,
			   "--every starts windows by the clock; it cannot be combined with %s",
			   start);
	if (args->skip && start)
		argp_error(
			state,
			"--skip sets when the first window starts; it cannot be combined with %s",
			start);
	if (args->wait && (args->on || args->from_mark))
		argp_error(state,
			   "--wait starts windows on request only; it cannot be combined with %s",
			   args->on ? "--on" : "--from-mark");
	if ((args->at || args->align) && (start || args->skip))
		argp_error(state,
			   "--at sets when the first window starts; it cannot be combined with %s",
			   start ? start : "--skip");
	if (args->before && !start)
		argp_error(state, "--before needs --on, --from-mark or --wait");
	if (args->keep && !window_args__repeat(args))
		argp_error(state, "--keep needs several windows: --every, --on, --from-mark "
				  "or --wait");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct window_args *args = state->input;

	args->given |= key >= OPT_SKIP && key <= OPT_LABEL;
	args->chosen |= key >= OPT_SKIP && key <= OPT_LABEL && key != OPT_LABEL;
	switch (key) {
	case OPT_SKIP:
		args->skip = capture_args__parse_count(state, "--skip", arg, 0);
		break;
	case OPT_ON:
		if (args->on)
			argp_error(state, "--on: only one condition is possible; use 'A or B'");
		args->on = check_condition(state, "--on", arg);
		break;
	case OPT_ON_GROWTH:
		parse_growth(state, args, arg);
		break;
	case OPT_UNTIL:
		args->until = check_condition(state, "--until", arg);
		break;
	case OPT_FROM_MARK:
		args->from_mark = parse_name(state, "--from-mark", arg);
		break;
	case OPT_TO_MARK:
		args->to_mark = parse_name(state, "--to-mark", arg);
		break;
	case OPT_WAIT:
		args->wait = true;
		break;
	case OPT_EVERY:
		args->every = parse_span(state, "--every", arg);
		break;
	case OPT_WHEN:
		parse_at(state, args, arg);
		break;
	case OPT_BEFORE:
		args->before = parse_span(state, "--before", arg);
		break;
	case OPT_KEEP:
		args->keep = parse_number(state, "--keep", arg);
		break;
	case OPT_WINDOWS:
		args->count = parse_number(state, "--windows", arg);
		break;
	case OPT_LABEL:
		args->label = parse_name(state, "--label", arg);
		break;
	case ARGP_KEY_END:
		check(args, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse_oom(int key, char *arg, struct argp_state *state)
{
	struct oom_args *args = state->input;
	uint64_t n;

	switch (key) {
	case OPT_ON_OOM:
		args->on = true;
		break;
	case OPT_ON_KILL:
		args->kill = true;
		break;
	case OPT_WINDOW:
		if (text__parse_time(arg, &args->window) || !args->window)
			argp_error(state, "--window: '%s' is not a time; try 30s or 5m", arg);
		break;
	case OPT_OOM_FILES:
		n = capture_args__parse_count(state, "--oom-files", arg, /*min=*/1);
		args->files = n > 1000 ? 1000 : (unsigned int)n;
		break;
	case ARGP_KEY_END:
		if (!args->on && !args->kill && args->window)
			argp_error(state, "--window needs --on-oom or --on-kill");
		if (!args->on && args->files)
			argp_error(state, "--oom-files needs --on-oom");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp oom_argp = { .options = oom_options, .parser = parse_oom };
const struct argp window_argp = { .options = options, .parser = parse };
