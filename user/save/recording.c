/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "follow/capture_args.h"
#include "follow/option_groups.h"
#include "follow/tracees.h"
#include "lib/exit.h"
#include "lib/text.h"
#include "log/log.h"
#include "save/output_windows.h"
#include "save/recording_control.h"
#include "save/status_pipe.h"

enum { OPT_MAX_SIZE = 0x2000, OPT_MAX_EVENTS, OPT_TELL };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Write to FILE (default memtrace-PID-TIME.mtr; \"-\": stdout)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ "max-size", OPT_MAX_SIZE, "SIZE", 0, "Stop when FILE reaches SIZE, such as 2G",
	  OPTIONS_TIME },
	{ "max-events", OPT_MAX_EVENTS, "N", OPTION_RARE, "Stop after N events", OPTIONS_TIME },
	{ "tell", OPT_TELL, "FD", OPTION_HIDDEN, NULL, 0 }, /* for serve: status_pipe.h */
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recording_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->oom;
		state->child_inputs[1] = &a->rolling;
		state->child_inputs[2] = &a->windows;
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_MAX_SIZE:
		if (text__parse_size(arg, &a->bounds.max_size) || a->bounds.max_size < 65536)
			argp_error(state, "--max-size: '%s' is no size of at least 64K", arg);
		break;
	case OPT_MAX_EVENTS:
		a->bounds.max_events = capture_args__parse_count(state, "--max-events", arg, 1);
		break;
	case OPT_TELL:
		a->tell = (int)capture_args__parse_count(state, "--tell", arg, 3);
		/* The command of `run` must not inherit the pipe: serve believes what comes from
		 * it. */
		if (fcntl(a->tell, F_SETFD, FD_CLOEXEC))
			argp_error(state, "--tell: %s: %s", arg, strerror(errno));
		break;
	case ARGP_KEY_END:
		if (a->rolling.size && (a->oom.on || a->bounds.max_size || a->bounds.max_events))
			argp_error(state, "--rolling goes on for ever: not with %s",
				   a->oom.on		? "--on-oom"
				   : a->bounds.max_size ? "--max-size"
							: "--max-events");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = { { &oom_argp, 0, NULL, 0 },
					      { &rolling_argp, 0, NULL, 0 },
					      { &window_argp, 0, NULL, 0 },
					      { 0 } };
const struct argp recording_argp = { .options = options, .parser = parse, .children = children };

bool recording__of_several(const struct recording *r)
{
	return r->loop.args.children || capture_loop__many(&r->loop);
}

/* Refuses options that contradict each other. Returns 0 or an exit code, logged. */
static int check(const struct recording *r)
{
	bool to_stdout = r->args.output && !strcmp(r->args.output, "-");

	if (recording__of_several(r) && to_stdout)
		log_err("%s a file for each process: not with -o -",
			capture_loop__many(&r->loop) ? "several processes write"
						     : "--children writes");
	else if (r->args.rolling.size && to_stdout)
		log_err("--rolling writes a folder: not with -o -");
	else if (r->args.rolling.size && r->args.windows.given)
		log_err("--rolling keeps all of the last time: not with windows");
	else if (r->args.oom.on && r->args.windows.given)
		log_err("--on-oom has windows of its own: not with others; --on 'ooms>0' --before "
			"30s goes with them");
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

/* Opens the processes, the folder and the first process's output. Returns 0 or an exit code,
 * logged. */
static int open_all(struct recording *r)
{
	int status = check(r);

	r->kind = output__kind(r);
	r->loop.writes_later = r->kind != OUTPUT_FILE;
	if (!status && r->kind == OUTPUT_WINDOWS)
		status = output_windows__prepare(r);
	if (!status)
		status = capture_loop__open(&r->loop);
	if (!status)
		status = output__open_folder(r);
	if (!status && r->loop.session) {
		r->first = output__new(r, r->loop.session, r->loop.args.pid, 0);
		status = r->first ? EXIT_OK : EXIT_FAILED;
	}
	return status;
}

static int capture(struct recording *r)
{
	int status;

	if (r->first) {
		r->loop.sink = &r->first->sink;
		status_pipe__opened(r);
	}
	recording_control__open(r);
	status = capture_loop__run(&r->loop);
	recording_control__close(r);
	if (!r->first && r->loop.err)
		log_err("the capture broke off: %s", strerror(-r->loop.err));
	return status;
}

int recording__run(struct recording *r)
{
	int status = open_all(r);

	if (!status)
		status = capture(r);
	status_pipe__ended(r);
	if (r->first)
		r->failed |= output__end(r->first, r->loop.stop_reason, r->loop.err) != EXIT_OK;
	r->first = NULL;
	if (!status && r->failed)
		status = EXIT_FAILED;
	output__close_folder(r, status);
	return status;
}

/* ---- calls of the loop ---- */

static int on_attached(void *ctx)
{
	struct recording *r = ctx;

	status_pipe__attached(r);
	return r->first->attached ? r->first->attached(r->first) : EXIT_OK;
}

static const char *on_drained(void *ctx)
{
	struct recording *r = ctx;

	status_pipe__drained(r);
	return r->first->full ? r->first->full(r->first) : NULL;
}

static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	struct output *o = output__new(ctx, s, pid, times);

	if (o)
		*sink = &o->sink;
	return o;
}

static const char *is_full(void *output)
{
	struct output *o = output;

	return o->full ? o->full(o) : NULL;
}

static void end(void *output, const char *reason, int err)
{
	struct recording *r = ((struct output *)output)->r;

	r->failed |= output__end(output, reason, err) != EXIT_OK;
}

static const struct tracees_output other_outputs = { begin, is_full, end };

void recording__init(struct recording *r)
{
	r->loop.attached = on_attached;
	r->loop.drained = on_drained;
	r->loop.output = &other_outputs;
	r->loop.ctx = r;
}
