/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "in_this_build.h"
#include "lib/exit.h"
#include "lib/log_config.h"
#include "log_args.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "record", cmd_record, "record the memory events of a running process into a file" },
	{ "run", cmd_run, "start a command and record its memory events from the first one on" },
	{ "estimate", cmd_estimate, "what memory a training script needs, and whether it fits, before there is a GPU" },
	{ "report", cmd_report, "which line, module and phase holds how many bytes, from a recording" },
	{ "compare", cmd_compare, "captures beside each other: peak, reserved, fragmentation, step time" },
	{ "diff", cmd_diff, "what changed between two recordings, by line, stack, module or phase" },
	{ "replay", cmd_replay, "a recording through PyTorch's real allocator under other settings, or with less memory" },
	{ "export", cmd_export, "a page to look at, flame graph, speedscope, perfetto, pprof, snapshot ... from a recording" },
	{ "leaks", cmd_leaks, "what grows from step to step, and how sure that is; from a recording or a process" },
	{ "watch", cmd_watch, "look at processes in production from outside, and capture when a rule holds" },
#if MEMTRACE_SERVE
	{ "serve", cmd_serve, "HTTP: traces of live processes and of recordings, a page to look at them, metrics" },
#endif
	{ "dump", cmd_dump, "what tensors a process holds right now, with their names; attaches nothing" },
	{ "ctl", cmd_ctl, "tell a capture that runs: begin or end a window, note a mark, save, status" },
	{ "check", cmd_check, "what will work here and what will not, and why" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *out)
{
	size_t i;

	fprintf(out, "Which Python line, module and phase holds a PyTorch process's memory, by attaching to it.\n\n"
		     "Usage: sudo memtrace-bpf -p PID [OPTION...]   attach now and show what lives: the live view\n"
		     "       memtrace-bpf [--log-...] COMMAND [OPTION...]\n\nCommands:\n");
	for (i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
	fprintf(out, "\n  `memtrace-bpf COMMAND --help` lists a command's options, `memtrace-bpf -p PID --help` those of\n"
		     "  attaching; --version says what this is built of.\n");
}

static void version(void)
{
	printf("memtrace-bpf %s (libbpf %s, %s serve)\n", MEMTRACE_VERSION, libbpf_version_string(), MEMTRACE_SERVE ? "with" : "without");
}

/*
 * Started with one of them closed, a file that is opened would get its number, and our messages would end up in it. What
 * takes the place can be neither read from nor written to, so that this still fails as it should.
 */
static bool hold_standard_files(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return false;
	}
	return true;
}

/* The last word of the program: output that a full disk swallowed is no success. */
static int closed(int status)
{
	if (fflush(stdout) || ferror(stdout)) {
		perror("memtrace-bpf: cannot write to standard output");
		return status ? status : EXIT_FAILED;
	}
	return status;
}

/* argp takes the program's name from here: "memtrace-bpf record". */
static int run(const struct command *c, int argc, char **argv)
{
	char name[64];

	snprintf(name, sizeof(name), "memtrace-bpf %s", c->name);
	argv[0] = name;
	log__set_command(c->name);
	return closed(c->run(argc, argv));
}

int main(int argc, char **argv)
{
	size_t i;
	int log;

	if (!hold_standard_files())
		return EXIT_FAILED;
	setlocale(LC_ALL, "");
	log__from_environment();
	log = log_args__take(argc - 1, argv + 1);
	if (log < 0)
		return EXIT_USAGE;
	argv[log] = argv[0];
	argv += log;
	argc -= log;
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help(stdout);
		return closed(EXIT_OK);
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		version();
		return closed(EXIT_OK);
	}
	for (i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(argv[1], commands[i].name))
			return run(&commands[i], argc - 1, argv + 1);
	}
	if (argv[1][0] == '-') {
		log__set_command("live");
		return closed(cmd_live(argc, argv));
	}
	fprintf(stderr, "memtrace-bpf: no command '%s'; `memtrace-bpf --help` lists them\n", argv[1]);
	return EXIT_USAGE;
}
