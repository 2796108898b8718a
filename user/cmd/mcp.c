/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf mcp: answers questions of agents about recordings. */
#include "serve/mcp.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/commands.h"
#include "cmd/usage.h"

/* --max-answer, in bytes */
#define ANSWER_DEFAULT (64 << 10)
#define ANSWER_LEAST 1024
#define ANSWER_MOST (16 << 20)

struct mcp_args {
	const char *folder;
	struct mcp_opts o;
};

enum { OPT_FOLDER = 0x8600, OPT_ALLOW_ATTACH, OPT_ALLOW_RUN, OPT_MAX_ANSWER };

static const struct argp_option options[] = {
	{ "folder", OPT_FOLDER, "FOLDER", 0,
	  "Offer the recordings below FOLDER (default: the current folder)", OPTIONS_SHOW },
	{ "allow-attach", OPT_ALLOW_ATTACH, NULL, 0,
	  "Also offer to record a running process into FOLDER", OPTIONS_PROCESS },
	{ "allow-run", OPT_ALLOW_RUN, NULL, 0,
	  "Also offer `estimate` of scripts below FOLDER, which runs them", OPTIONS_PROCESS },
	{ "max-answer", OPT_MAX_ANSWER, "SIZE", 0, "Cut answers that are longer (default 64K)",
	  OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct mcp_args *a = state->input;
	uint64_t size;

	switch (key) {
	case OPT_FOLDER:
		a->folder = arg;
		break;
	case OPT_ALLOW_ATTACH:
		a->o.allow_attach = true;
		break;
	case OPT_ALLOW_RUN:
		a->o.allow_run = true;
		break;
	case OPT_MAX_ANSWER:
		if (text__parse_size(arg, &size) || size < ANSWER_LEAST || size > ANSWER_MOST)
			argp_error(state, "--max-answer: '%s' is not a size from 1K to 16M", arg);
		a->o.max_answer = size;
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'; name the folder with --folder", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = { LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "",
	.doc = "Serve questions about recordings to an agent, over standard input and output in "
	       "the Model Context Protocol.",
	.children = children,
};

static int cmd_mcp(int argc, char **argv)
{
	struct mcp_args a = { .folder = ".", .o = { .max_answer = ANSWER_DEFAULT } };
	int err;

	usage__parse(&command_mcp, argc, argv, 0, &a);
	a.o.folder = open(a.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a.o.folder < 0) {
		log_err("%s: cannot open: %s", a.folder, strerror(errno));
		return EXIT_UNUSABLE;
	}
	signal(SIGPIPE, SIG_IGN); /* a client that has ended is no error */
	err = mcp__serve(&a.o, STDIN_FILENO, STDOUT_FILENO);
	close(a.o.folder);
	if (err)
		log_err("standard output: cannot write: %s", strerror(-err));
	return err ? EXIT_FAILED : EXIT_OK;
}

const struct command command_mcp = {
	.name = "mcp",
	.summary = "answer questions of an agent about recordings (MCP)",
	.group = COMMANDS_MORE,
	.argp = &argp,
	.examples = "memtrace-bpf mcp --folder runs/\n"
		    "sudo memtrace-bpf mcp --folder runs/ --allow-attach",
	.status = "0 end of the input, 1 failed, 2 no folder, 64 usage",
	.run = cmd_mcp,
};
