/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf -p PID: attach, and show what lives and where it came from; at the end the summary. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "follow/capture_args.h"
#include "lib/text.h"
#include "live/args.h"
#include "live/tty_restore.h"
#include "log/log.h"

enum {
	OPT_TOP = 0x4000,
	OPT_COLOR,
	OPT_FORMAT,
	OPT_BY,
	OPT_SORT,
	OPT_FILTER,
	OPT_HIDE,
	OPT_FRAMES
};

static const struct argp_option options[] = {
	{ "interval", 'i', "TIME", 0, "Show it anew every TIME (default 1s on a screen, else 2s)",
	  0 },
	{ "count", 'n', "N", 0, "Stop after so many intervals, in text and json", 0 },
	{ "format", OPT_FORMAT, "FORMAT", 0,
	  "text: blocks, also on a terminal; json: an object a line. Default: the live view on a "
	  "terminal, "
	  "else text",
	  0 },
	{ "by", OPT_BY, "WHAT", 0,
	  "line (default), function, module, layer (module with all inside) or category", 0 },
	{ "sort", OPT_SORT, "KEY", 0,
	  "live (default), peak, growth, churn (bytes per second) or allocs (per second)", 0 },
	{ "top", OPT_TOP, "N", 0, "Rows in text and json, 0: all (default 10)", 0 },
	{ "filter", OPT_FILTER, "EXPR", 0, "Show what matches, as report has it", 0 },
	{ "hide", OPT_HIDE, "PATTERN", 0,
	  "Charge nothing to this file, or to files in this folder; may be given again", 0 },
	{ "frames", OPT_FRAMES, "WHICH", 0,
	  "user (default): charge the innermost line of user code; all: of any code", 0 },
	{ "color", OPT_COLOR, "WHEN", 0,
	  "auto (default: on a terminal, unless NO_COLOR is set), always or never", 0 },
	{ "colour", OPT_COLOR, "WHEN", OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

static void parse_by(struct live_args *a, const char *arg, struct argp_state *state)
{
	for (int by = 0; by < LIVE_BY_NR; by++) {
		if (!strcmp(arg, live_by__name(by))) {
			a->by = by;
			return;
		}
	}
	argp_error(state, "--by: '%s' is none of line, function, module, layer, category", arg);
}

static void parse_sort(struct live_args *a, const char *arg, struct argp_state *state)
{
	for (int sort = 0; sort < SORT_NR; sort++) {
		if (!strcmp(arg, live_sort__name(sort))) {
			a->sort = sort;
			return;
		}
	}
	argp_error(state, "--sort: '%s' is none of live, peak, growth, churn, allocs", arg);
}

/* Options of what is shown. */
static error_t parse_table(int key, char *arg, struct argp_state *state)
{
	struct live_args *a = state->input;
	char why[256];

	switch (key) {
	case OPT_BY:
		parse_by(a, arg, state);
		break;
	case OPT_SORT:
		parse_sort(a, arg, state);
		break;
	case OPT_TOP:
		a->top = capture_args__parse_count(state, "--top", arg, 0);
		break;
	case OPT_FILTER:
		if (report_select__set_filter(&a->select, arg, why, sizeof(why)))
			argp_error(state, "--filter: %s", why);
		break;
	case OPT_HIDE:
		if (report_select__add_hide(&a->select, arg))
			argp_error(state, "--hide: which file or folder?");
		break;
	case OPT_FRAMES:
		a->innermost = !strcmp(arg, "all");
		if (!a->innermost && strcmp(arg, "user") != 0)
			argp_error(state, "--frames: '%s' is none of user, all", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct live_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->capture;
		break;
	case 'i':
		if (text__parse_time(arg, &a->interval) || a->interval < 100000000ULL)
			argp_error(state, "--interval: '%s' is no time of at least 100ms", arg);
		break;
	case 'n':
		a->count = capture_args__parse_count(state, "--count", arg, 1);
		break;
	case OPT_FORMAT:
		a->format = !strcmp(arg, "json") ? LIVE_JSON : LIVE_TEXT;
		if (a->format == LIVE_TEXT && strcmp(arg, "text") != 0)
			argp_error(state, "--format: '%s' is none of text, json", arg);
		break;
	case OPT_COLOR:
		if (report_text__parse_colour(arg, &a->colour))
			argp_error(state, "--color: '%s' is none of auto, always, never", arg);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': which process? -p PID", arg);
		break;
	default:
		return parse_table(key, arg, state);
	}
	return 0;
}

/* On a screen if there is one; the process that was started stays behind to put the terminal right.
 */
static int show(struct live_args *args)
{
	const char *why = NULL;
	struct tty_restore *g = args->format == LIVE_SCREEN && !args->count ? tty_restore__new(&why)
									    : NULL;
	int status;

	if (!args->interval)
		args->interval = g ? UINT64_C(1000000000) : UINT64_C(2000000000);
	if (!g) {
		if (why)
			log_info("no live view: %s; plain text instead", why);
		return live_plain__run(args);
	}
	if (tty_restore__fork(g, &status))
		status = live_view__run(args, g);
	tty_restore__free(g);
	return status;
}

int cmd_live(int argc, char **argv)
{
	static const struct argp_child children[] = { { &capture_argp, 0, "Target and bounds:", 1 },
						      LOG_ARGP_CHILD,
						      { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID | --name PATTERN | --all",
		.doc = "Attach to a running PyTorch process and show what lives and which line it "
		       "came from: on a terminal the live view, "
		       "elsewhere a block of text every interval. q or Ctrl-C detaches and prints "
		       "the summary; so does the "
		       "target's end where there is no screen.",
		.children = children,
	};
	struct live_args args = { .top = 10 };
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	status = show(&args);
	filter__free(args.select.filter);
	return status;
}
