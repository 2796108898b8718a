/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf check: prints whether this host and a process can be traced, and what that depends
 * on. Attaches nothing. */
#include <argp.h>
#include <stdlib.h>

#include "base/exit.h"
#include "base/failure.h"
#include "base/log.h"
#include "capture/capture_args.h"
#include "capture/option_groups.h"
#include "cmd/check_lines.h"
#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "cmd/usage.h"

struct check_args {
	pid_t pid;
	bool explain, verbose;
};

enum { OPT_EXPLAIN = 0x3000 };

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Also check this process", OPTIONS_PROCESS },
	{ "explain", OPT_EXPLAIN, NULL, 0,
	  "With -p: print the file, offset and instruction of each probe", OPTIONS_OUTPUT },
	{ "verbose", 'v', NULL, 0, "Also print details and the kernel's messages", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check_args *a = state->input;

	switch (key) {
	case 'p':
		capture_args__parse_only_pid(state, arg, "", &a->pid);
		break;
	case OPT_EXPLAIN:
		a->explain = true;
		break;
	case 'v':
		a->verbose = true;
		log__set_level(LOG_DEBUG);
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg, "to check a process: -p PID");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void host_verdict(const struct check_lines *l)
{
	if (l->status)
		printf("This host cannot trace: %s.\n", l->why);
	else
		fputs("This host can trace.", stdout);
}

/* Prints the verdict on a process, and adds its lines. Returns the exit code. */
static int check_target(struct check_lines *l, pid_t pid)
{
	struct failure f;
	struct target t;

	if (target__open(pid, &t, &f)) {
		printf(" PID %d cannot be attached.\n", (int)pid);
		log_err("%s", f.text);
		return f.status;
	}
	if (target__look(&t, &f)) {
		target__close(&t);
		printf(" PID %d cannot be attached.\n", (int)pid);
		log_err("%s", f.text);
		return f.status;
	}
	check_lines__process(l, &t);
	if (l->status)
		printf(" PID %d cannot be attached: %s.\n", (int)pid, l->why);
	else if (!t.torch.found)
		printf(" PID %d can be attached when it has imported PyTorch.\n", (int)pid);
	else
		printf(" PID %d can be attached.\n", (int)pid);
	target__close(&t);
	return l->status;
}

static int cmd_check(int argc, char **argv)
{
	struct check_args a = { 0 };
	struct check_lines l = { 0 };
	char *text = NULL;
	size_t size;
	int status;

	usage__parse(&command_check, argc, argv, 0, &a);
	l.details = a.verbose;
	l.explain = a.explain;
	l.out = open_memstream(&text, &size);
	if (!l.out) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	check_lines__host(&l);
	host_verdict(&l);
	status = l.status;
	if (a.pid) {
		struct check_lines of_process = { .out = l.out,
						  .details = l.details,
						  .explain = l.explain };

		status = check_target(&of_process, a.pid) ?: status;
	} else if (!l.status) {
		putchar('\n');
	}
	fclose(l.out);
	printf("\n%s", text);
	free(text);
	return status;
}

static const struct argp_child children[] = { LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[-p PID]",
	.doc = "Print whether this host and a process can be traced, and name missing parts. "
	       "Attaches nothing.",
	.children = children,
};

const struct command command_check = {
	.name = "check",
	.summary = "print whether this host and a process can be traced",
	.argp = &argp,
	.examples = "sudo memtrace-bpf check\n"
		    "sudo memtrace-bpf check -p 4242",
	.status = "0 it works, 2 process not usable, 3 not permitted or old kernel",
	.run = cmd_check,
};
