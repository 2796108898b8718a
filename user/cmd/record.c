/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf record: captures a running process into a .mtr file. */
#include <argp.h>
#include <stdlib.h>

#include "cmd/commands.h"
#include "cmd/usage.h"
#include "capture/capture_args.h"
#include "capture/capture_loop.h"
#include "capture/recording.h"
#include "base/exit.h"
#include "base/log.h"
#include "live/step_figures.h"

struct record_args {
	struct capture_args capture;
	struct recording_args recording;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct record_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->capture;
		state->child_inputs[1] = &a->recording;
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg,
				  "choose the process with -p PID and the file with -o FILE");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = {
	{ &capture_argp, 0, NULL, 0 }, { &recording_argp, 0, NULL, 0 }, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.parser = parse,
	.args_doc = "-p PID | --name PATTERN | --all",
	.doc = "Record the memory events of a running PyTorch process into a file for report, "
	       "leaks, export and others.",
	.children = children,
};

static int cmd_record(int argc, char **argv)
{
	struct record_args args = { 0 };
	struct recording r = { 0 };
	struct step_figures *figures;
	int status;

	usage__parse(&command_record, argc, argv, 0, &args);
	figures = step_figures__new();
	if (!figures) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	r.args = args.recording;
	r.loop.args = args.capture;
	r.figures = step_figures__calls(figures);
	status = recording__run(&r);
	capture_loop__close(&r.loop);
	step_figures__free(figures);
	free(r.args.windows.growth);
	return status;
}

const struct command command_record = {
	.name = "record",
	.summary = "record a running process into a file",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.examples = "sudo memtrace-bpf record -p 4242 -d 1m -o run.mtr\n"
		    "sudo memtrace-bpf record --name train.py --follow -o runs/\n"
		    "sudo memtrace-bpf record -p 4242 --on-oom --on-kill\n"
		    "sudo memtrace-bpf record -p 4242 --rolling 10G -o history/",
	.status = STATUS_ATTACH,
	.run = cmd_record,
};
