/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf run: starts a command and records it from its first instruction. The command
 * runs to its end or to --max-time, and memtrace-bpf exits with its status. */
#include <argp.h>
#include <stdlib.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/preload.h"
#include "capture/run_command.h"
#include "cmd/commands.h"
#include "cmd/usage.h"
#include "live/step_figures.h"

enum {
	OPT_DRY_RUN = 0x5000,
	OPT_VRAM,
	OPT_DEVICES,
	OPT_NO_TRACE,
	OPT_USER,
	OPT_INSIDE,
	OPT_COMMAND_ENV,
	OPT_MAX_TIME
};

static const struct argp_option options[] = {
	{ "inside", OPT_INSIDE, NULL, 0, "Record without root: a library in the command records",
	  OPTIONS_COMMAND },
	{ "no-trace", OPT_NO_TRACE, NULL, 0, "Run the command without recording", OPTIONS_COMMAND },
	{ "dry-run-cuda", OPT_DRY_RUN, NULL, 0,
	  "Simulate CUDA: no GPU needed, PyTorch's own allocator", OPTIONS_COMMAND },
	{ "vram", OPT_VRAM, "SIZE", 0, "Memory of each simulated device (default 80G)",
	  OPTIONS_COMMAND },
	{ "devices", OPT_DEVICES, "N", OPTION_RARE,
	  "With --dry-run-cuda: number of devices (default 1)", OPTIONS_COMMAND },
	{ "max-time", OPT_MAX_TIME, "TIME", OPTION_RARE,
	  "End the command after TIME: SIGTERM, and SIGKILL 5 s later", OPTIONS_COMMAND },
	{ "user", OPT_USER, "USER", OPTION_RARE,
	  "As root: run the command as USER (default: the user behind sudo)", OPTIONS_COMMAND },
	{ "command-env", OPT_COMMAND_ENV, "NAME,...", OPTION_RARE,
	  "Pass only these variables to the command, besides PATH, LANG, TZ and similar ones; "
	  "\"*\": all (default: all; none with --user)",
	  OPTIONS_COMMAND },
	{ 0 },
};

/* Takes the rest of the command line as the command. */
static void take_command(struct run_command_args *a, struct argp_state *state)
{
	a->command = state->argv + state->next - 1;
	state->next = state->argc;
}

/* True if an option is given that says what is captured. */
static bool limits_capture(const struct run_command_args *a)
{
	return a->capture.duration || a->capture.session.steps || a->capture.children;
}

/* True if an option is given that says what is written, and when. */
static bool describes_recording(const struct recording_args *r)
{
	bool bounded = r->bounds.max_size || r->bounds.max_events || r->rolling.size;
	bool waits = r->oom.on || r->oom.kill || r->windows.given;

	return r->output || bounded || waits;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run_command_args *a = state->input;
	const char *other = NULL; /* a given option that --inside excludes */

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->capture;
		state->child_inputs[1] = &a->recording;
		break;
	case OPT_DRY_RUN:
		a->dryrun.wanted = true;
		break;
	case OPT_VRAM:
		if (text__parse_size(arg, &a->dryrun.vram) || a->dryrun.vram < DRYRUN_VRAM_MIN ||
		    a->dryrun.vram > DRYRUN_VRAM_MAX)
			argp_error(state, "--vram: '%s' is not a size between 16M and 4T; try 80G",
				   arg);
		break;
	case OPT_DEVICES:
		a->dryrun.devices = capture_args__parse_count(state, "--devices", arg, /*min=*/1);
		if (a->dryrun.devices > DRYRUN_DEVICES_MAX)
			argp_error(state, "--devices: at most %d", DRYRUN_DEVICES_MAX);
		break;
	case OPT_MAX_TIME:
		if (text__parse_time(arg, &a->max_time) || !a->max_time)
			argp_error(state, "--max-time: '%s' is not a time; try 90s or 30m", arg);
		break;
	case OPT_NO_TRACE:
		a->no_trace = true;
		break;
	case OPT_INSIDE:
		a->inside = true;
		break;
	case OPT_USER:
		a->user = arg;
		break;
	case OPT_COMMAND_ENV:
		a->command_env = arg;
		break;
	case ARGP_KEY_ARG:
		take_command(a, state);
		break;
	case ARGP_KEY_END:
		if (!a->command)
			argp_error(state, "no command given: memtrace-bpf run [OPTION...] -- "
					  "COMMAND [ARGUMENT...]");
		if (!a->dryrun.wanted && (a->dryrun.vram || a->dryrun.devices))
			argp_error(state, "--vram and --devices need --dry-run-cuda");
		if (a->dryrun.vram && a->dryrun.vram <= DRYRUN_CONTEXT_DEFAULT &&
		    !getenv("MEMTRACE_DRYRUN_CONTEXT"))
			argp_error(
				state,
				"--vram: the CUDA context alone takes 512.00 MiB of each device; "
				"give more, or set the context's size by "
				"MEMTRACE_DRYRUN_CONTEXT=SIZE in the environment");
		if (a->no_trace && (limits_capture(a) || describes_recording(&a->recording)))
			argp_error(state, "--no-trace records nothing; it cannot be combined with "
					  "-o or options about the recording");
		if (a->no_trace)
			other = "--no-trace";
		else if (a->capture.children)
			other = "--children";
		else if (a->capture.session.cost > 0)
			other = "--cost";
		else if (a->capture.session.malloc_probes)
			other = "--malloc-probes";
		if (a->capture.session.malloc_probes && a->capture.children)
			argp_error(state, "--malloc-probes takes one process: leave out "
					  "--children");
		if (a->inside && other)
			argp_error(state, "--inside cannot be combined with %s", other);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

#define SIGNALLED 128 /* a command that a signal ended has a higher exit code */

/* For the sink of the recording: notes that memory ran out. Keeps every event. */
static bool note_event(void *ctx, const struct event *e)
{
	struct run_command *r = ctx;

	r->ran_out |= e->kind == EVENT_OOM;
	return true;
}

/* Explains the failure of a command in a dry run: it may have read a value that no kernel
 * computed. */
static void explain_failure(const struct run_command *r, int status)
{
	bool has_reason = r->ran_out || r->args.recording.oom.on;

	if (r->args.dryrun.wanted && status && status < SIGNALLED && !has_reason)
		log_info("the command failed with exit code %d. A dry run computes nothing: masks "
			 "and counts read as zeros, and other ranks send nothing. If it fails only "
			 "here, `memtrace-bpf estimate -- COMMAND` names the values that it read",
			 status);
}

/* Records the command and waits for its end. Returns its exit code, or ours if it did not start. */
static int run(struct run_command *r)
{
	const char *hint = "";
	int status;
	bool ended, any;

	r->recording.calls.keep = note_event;
	status = run_command__record(r);
	if (!run_command__started(r))
		return status;
	ended = run_command__has_ended(r);
	if (status && !ended)
		log_warn("the command continues without a recording");
	any = session_opts__any_process(&r->args.capture.session);
	if (!r->warned_of_child && !r->args.inside)
		hint = "; --children also records the processes that it starts";
	if (status == EXIT_UNUSABLE && ended && !r->was_attached)
		log_info("PID %d ended %s: nothing to record%s", (int)child__pid(r->child),
			 any ? "before its memory was read" : "without importing PyTorch", hint);
	status = run_command__wait(r);
	explain_failure(r, status);
	return status;
}

static const struct argp_child children[] = {
	{ &capture_bounds_argp, 0, NULL, 0 }, { &recording_argp, 0, NULL, 0 }, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[--] COMMAND [ARGUMENT...]",
	.doc = "Start a command and record it from its first allocation.",
	.children = children,
};

static int cmd_run(int argc, char **argv)
{
	struct run_command r = { 0 };
	struct step_figures *figures;
	int status;

	usage__parse(&command_run, argc, argv, ARGP_IN_ORDER, &r.args);
	status = run_command__open(&r);
	if (status)
		return status;
	figures = step_figures__new();
	if (figures) {
		r.recording.figures = step_figures__calls(figures);
		status = run(&r);
	} else {
		log_err("out of memory");
		status = EXIT_FAILED;
	}
	step_figures__free(figures);
	run_command__close(&r);
	return status;
}

const struct command command_run = {
	.name = "run",
	.summary = "start a command and record it from its first allocation",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.shares = &command_record,
	.examples = "sudo memtrace-bpf run -o run.mtr -- python train.py\n"
		    "memtrace-bpf run --inside -o run.mtr -- python train.py   # without root\n"
		    "memtrace-bpf run --dry-run-cuda --vram 24G --inside -- python train.py",
	.status = "that of the command; 3 if it cannot be recorded, 64 usage",
	.run = cmd_run,
};
