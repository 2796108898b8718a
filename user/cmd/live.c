/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf -p PID: shows live memory and its origin; prints a summary at the end. */
#include <argp.h>

#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "cmd/report_args.h"
#include "follow/capture_args.h"
#include "lib/text.h"
#include "live/args.h"
#include "live/tty_restore.h"
#include "log/log.h"

enum { OPT_SORT = OPT_COMMANDS_OWN };

struct options {
	struct report_args shown;
	struct live_args live;
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
	OPTION_FRAMES,
	OPTION_COLOR(0),
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct live_args *a = &o->live;

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
	case OPT_SORT:
		a->sort = report_args__choose(state, "--sort", arg, live_sort_names);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': which process? -p PID", arg);
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

/* Shows the live view on a terminal, otherwise text. The parent process stays to restore the
 * terminal. */
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
	struct options o = {
		.shown = { .groups = live_by_names,
			   .formats = report_args_formats,
			   .format = -1,
			   .top = 10 },
	};
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	o.live.format = o.shown.format < 0 ? LIVE_SCREEN : o.shown.format ? LIVE_JSON : LIVE_TEXT;
	o.live.top = o.shown.top;
	o.live.by = o.shown.by;
	o.live.innermost = o.shown.innermost;
	o.live.select = o.shown.select;
	o.live.colour = o.shown.colour;
	status = show(&o.live);
	report_select__drop(&o.shown.select);
	return status;
}
