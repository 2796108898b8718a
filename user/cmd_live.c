/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf -p PID: attach, and show what lives and where it came from; at the end the summary. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "capture_args.h"
#include "commands.h"
#include "lib/log.h"
#include "lib/text.h"
#include "live/args.h"
#include "live/guard.h"

enum { OPT_TOP = 0x4000, OPT_COLOR, OPT_FORMAT };

static const struct argp_option options[] = {
	{ "interval", 'i', "TIME", 0, "Show it anew every TIME (default 1s on a screen, 2s as text)", 0 },
	{ "top", OPT_TOP, "N", 0, "Lines per block of text (default 10)", 0 },
	{ "format", OPT_FORMAT, "FORMAT", 0, "text: blocks of text on a terminal, too", 0 },
	{ "color", OPT_COLOR, "WHEN", 0, "auto (default: on a terminal, unless NO_COLOR is set), always or never", 0 },
	{ "colour", OPT_COLOR, "WHEN", OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

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
		a->interval_given = true;
		break;
	case OPT_TOP:
		a->top = parse_count(state, "--top", arg, 1);
		break;
	case OPT_FORMAT:
		if (strcmp(arg, "text") != 0)
			argp_error(state, "--format: '%s' is not text", arg);
		a->plain = true;
		break;
	case OPT_COLOR:
		if (report_text__parse_colour(arg, &a->colour))
			argp_error(state, "--color: '%s' is none of auto, always, never", arg);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': which process? -p PID", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* On a screen if there is one; the process that was started stays behind to put the terminal right. */
static int show(const struct live_args *args)
{
	const char *why = NULL;
	struct guard *g = args->plain ? NULL : guard__new(&why);
	int status;

	if (!g) {
		if (why)
			log_info("no live view: %s; plain text instead", why);
		return live_plain__run(args);
	}
	if (guard__fork(g, &status))
		status = live_view__run(args, g);
	guard__free(g);
	return status;
}

int cmd_live(int argc, char **argv)
{
	static const struct argp_child children[] = { { &capture_argp, 0, "Target and bounds:", 1 }, { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID | --name PATTERN | --all",
		.doc = "Attach to a running PyTorch process and show what lives and which line it came from: on a terminal the live view, "
		       "elsewhere a block of text every interval. q or Ctrl-C detaches and prints the summary; so does the "
		       "target's end where there is no screen.",
		.children = children,
	};
	struct live_args args = { .interval = 2000000000ULL, .top = 10 };

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	return show(&args);
}
