/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf -p PID: shows live memory and its origin; prints a summary at the end. */
#include <argp.h>

#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "capture/capture_args.h"
#include "base/text.h"
#include "live/args.h"
#include "base/log.h"

enum { OPT_SORT = OPT_COMMANDS_OWN, OPT_NO_MOUSE };

struct options {
	struct report_args shown;
	struct live_args live;
};

static const struct argp_option options[] = {
	{ "interval", 'i', "TIME", 0, "Refresh every TIME (default 1s; 2s if not on a terminal)",
	  OPTIONS_TIME },
	{ "count", 'n', "N", 0, "Stop after N intervals; needs text or json", OPTIONS_TIME },
	{ "by", OPT_BY, "line|function|module|layer|role", 0,
	  "Group rows (default line); layer: a module with all inside", OPTIONS_SHOW },
	{ "sort", OPT_SORT, "live|peak|growth|churn|allocs", 0,
	  "Sort rows (default live); churn and allocs are per second", OPTIONS_SHOW },
	{ "top", OPT_TOP, "N", 0, "Print N rows in text and json; 0: all (default 10)",
	  OPTIONS_SHOW },
	{ "filter", OPT_FILTER, "EXPR", 0, "Show only matches, as in `memtrace-bpf help report`",
	  OPTIONS_SHOW },
	{ "hide", OPT_HIDE, "PATTERN", OPTION_RARE,
	  "Charge the caller instead of this file or folder; repeatable", OPTIONS_SHOW },
	OPTION_FRAMES,
	{ "format", OPT_FORMAT, "text|json", 0,
	  "Print text or JSON lines (default on a terminal: live view)", OPTIONS_OUTPUT },
	OPTION_COLOR,
	{ "no-mouse", OPT_NO_MOUSE, NULL, OPTION_RARE,
	  "Ignore the mouse, so that the terminal can select text", OPTIONS_OUTPUT },
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
			argp_error(state,
				   "--interval: '%s' is not a time of at least 100ms; try 1s", arg);
		break;
	case 'n':
		a->count = capture_args__parse_count(state, "--count", arg, /*min=*/1);
		break;
	case OPT_SORT:
		a->sort = report_args__choose(state, "--sort", arg, live_sort_names);
		break;
	case OPT_NO_MOUSE:
		a->no_mouse = true;
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg, "choose the process with -p PID");
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

static const struct argp_child children[] = {
	{ &capture_argp, 0, NULL, 0 }, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "-p PID | --name PATTERN | --all",
	.doc = "Attach to a running PyTorch process and show which lines hold its memory. Press q "
	       "to detach and print a summary.",
	.children = children,
};

/* Copies the shared options to those of the live view. */
static int cmd_live(int argc, char **argv)
{
	struct options o = {
		.shown = { .groups = live_by_names,
			   .formats = report_args_formats,
			   .format = -1,
			   .top = 10 },
	};
	int status;

	usage__parse(&command_live, argc, argv, 0, &o);
	o.live.format = LIVE_SCREEN;
	if (o.shown.format >= 0)
		o.live.format = o.shown.format ? LIVE_JSON : LIVE_TEXT;
	o.live.top = o.shown.top;
	o.live.by = o.shown.by;
	o.live.which_line = o.shown.which_line;
	o.live.select = o.shown.select;
	o.live.colour = o.shown.colour;
	status = live__run(&o.live);
	report_select__drop(&o.shown.select);
	return status;
}

const struct command command_live = {
	.name = "live",
	.summary = "watch which lines hold memory now (also: memtrace-bpf -p PID)",
	.group = COMMANDS_LOOK,
	.argp = &argp,
	.shares = &command_record,
	.examples = "sudo memtrace-bpf -p 4242\n"
		    "sudo memtrace-bpf --name train.py\n"
		    "sudo memtrace-bpf -p 4242 -d 30s --format json > live.jsonl",
	.status = STATUS_ATTACH,
	.run = cmd_live,
};
