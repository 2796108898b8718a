/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf record: captures a running process into a .mtr file. */
#include <argp.h>
#include <stdlib.h>

#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "follow/capture_args.h"
#include "follow/capture_loop.h"
#include "save/recording.h"

struct record_args {
	struct capture_args capture;
	struct recording_args recording;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct record_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->recording;
		state->child_inputs[1] = &a->capture;
		break;
	case ARGP_KEY_ARG:
		argp_error(
			state,
			"'%s': record attaches to a process, -p PID; the file to write is -o FILE",
			arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int cmd_record(int argc, char **argv)
{
	static const struct argp_child children[] = { { &recording_argp, 0, NULL, 0 },
						      { &capture_argp, 0, "Target and bounds:", 1 },
						      LOG_ARGP_CHILD,
						      { 0 } };
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "-p PID | --name PATTERN | --all",
		.doc = "Record the memory events of a running PyTorch process into a file for "
		       "report and export.",
		.children = children,
	};
	struct record_args args = { 0 };
	struct recording r = { 0 };
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	r.args = args.recording;
	r.loop.args = args.capture;
	recording__init(&r);
	status = recording__run(&r);
	capture_loop__close(&r.loop);
	free(r.args.windows.growth);
	return status;
}
