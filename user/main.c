/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <argp.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "in_this_build.h"
#include "lib/exit.h"
#include "lib/nearest.h"
#include "lib/outfile.h"
#include "log/config.h"
#include "log/log.h"
#include "nvml/gpus.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "record", cmd_record, "record the memory events of a running process into a file" },
	{ "run", cmd_run, "start a command and record its memory events from the first one on" },
	{ "estimate", cmd_estimate,
	  "what memory a training script needs, and whether it fits, before there is a GPU" },
	{ "report", cmd_report,
	  "which line, module and phase holds how many bytes, from a recording" },
	{ "compare", cmd_compare,
	  "captures beside each other: peak, reserved, fragmentation, step time" },
	{ "diff", cmd_diff,
	  "what changed between two recordings, by line, stack, module or phase" },
	{ "replay", cmd_replay,
	  "a recording through PyTorch's real allocator under other settings, or with less "
	  "memory" },
	{ "export", cmd_export,
	  "a page to look at, flame graph, speedscope, perfetto, pprof, snapshot ... from a "
	  "recording" },
	{ "leaks", cmd_leaks,
	  "what grows from step to step, and how sure that is; from a recording or a process" },
	{ "watch", cmd_watch,
	  "look at processes in production from outside, and capture when a rule holds" },
#if MEMTRACE_SERVE
	{ "serve", cmd_serve,
	  "HTTP: traces of live processes and of recordings, a page to look at them, metrics" },
#endif
	{ "dump", cmd_dump,
	  "what tensors a process holds right now, with their names; attaches nothing" },
	{ "ctl", cmd_ctl,
	  "tell a capture that runs: begin or end a window, note a mark, save, status" },
	{ "check", cmd_check, "what will work here and what will not, and why" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *out)
{
	size_t i;

	fprintf(out, "Which Python line, module and phase holds a PyTorch process's memory, by "
		     "attaching to it.\n\n"
		     "Usage: sudo memtrace-bpf -p PID [OPTION...]   attach now and show what "
		     "lives: the live view\n"
		     "       memtrace-bpf [--log-...] COMMAND [OPTION...]\n\nCommands:\n");
	for (i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
	fprintf(out, "\n  `memtrace-bpf help COMMAND` lists a command's options, `memtrace-bpf "
		     "help live` the live view's;\n"
		     "  `memtrace-bpf version` prints the version and what it is built with.\n");
}

static void version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "memtrace-bpf %s (libbpf %s, %s serve)\n", MEMTRACE_VERSION,
		libbpf_version_string(), MEMTRACE_SERVE ? "with" : "without");
}

/*
 * Opens a placeholder for each standard file that the caller closed. Otherwise a file that we open
 * would get its number, and our messages would end up in that file. Reading from the placeholder
 * and writing to it fails.
 */
static bool hold_standard_files(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return false;
	}
	return true;
}

static void nothing(int number)
{
	(void)number;
}

/*
 * Makes a file over RLIMIT_FSIZE an error of write(), like a full disk, instead of a signal that
 * ends the program. Programs that we start get the default action again, because this is a handler
 * and not SIG_IGN.
 */
static void outlive_file_limit(void)
{
	struct sigaction sa = { .sa_handler = nothing, .sa_flags = SA_RESTART };

	sigaction(SIGXFSZ, &sa, NULL);
}

/* The exit status. If standard output could not be written, it is not success. */
static int closed(int status)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		log_err("standard output: cannot write: %s", outfile__why(errno ? -errno : -EIO));
		return status ? status : EXIT_FAILED;
	}
	return status;
}

/* Sets argv[0] to "memtrace-bpf record": argp prints it as the program's name. */
static int run(const struct command *c, int argc, char **argv)
{
	char name[64];

	snprintf(name, sizeof(name), "memtrace-bpf %s", c->name);
	argv[0] = name;
	log__set_command(c->name);
	return closed(c->run(argc, argv));
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

static int live(int argc, char **argv)
{
	argv[0] = "memtrace-bpf";
	log__set_command("live");
	return closed(cmd_live(argc, argv));
}

/* Says what to type if the command is a PID, a recording or a misspelled word. */
static int no_command(const char *word)
{
	struct nearest n = { .word = word };
	size_t len = strlen(word);

	for (size_t i = 0; i < N_COMMANDS; i++)
		nearest__try(&n, commands[i].name);
	nearest__try(&n, "help");
	nearest__try(&n, "version");
	fprintf(stderr, "memtrace-bpf: no command '%s'; ", word);
	if (n.best)
		fprintf(stderr, "did you mean %s?", n.best);
	else if (!word[strspn(word, "0123456789")])
		fprintf(stderr, "to attach to that process: memtrace-bpf -p %s", word);
	else if (!access(word, F_OK) || (len > 4 && !strcmp(word + len - 4, ".mtr")))
		fprintf(stderr, "to read that recording: memtrace-bpf report %s", word);
	else
		fputs("`memtrace-bpf help` lists them", stderr);
	fputc('\n', stderr);
	return EXIT_USAGE;
}

static int help_of(const char *name)
{
	const struct command *c = find(name);
	char *argv[] = { NULL, "--help", NULL };

	if (c)
		return run(c, 2, argv);
	return !strcmp(name, "live") ? live(2, argv) : no_command(name);
}

int main(int argc, char **argv)
{
	const struct command *c;
	int log;

	if (!hold_standard_files())
		return EXIT_FAILED;
	if (argc == 3 && !strcmp(argv[1], GPUS_HELPER))
		return gpus_helper__main(atoi(argv[2]));
	setlocale(LC_ALL, "");
	argp_program_version_hook = version;
	outlive_file_limit();
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
	if (!strcmp(argv[1], "help") && argc > 2)
		return help_of(argv[2]);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help(stdout);
		return closed(EXIT_OK);
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") ||
	    !strcmp(argv[1], "version")) {
		version(stdout, NULL);
		return closed(EXIT_OK);
	}
	c = find(argv[1]);
	if (c)
		return run(c, argc - 1, argv + 1);
	return argv[1][0] == '-' ? live(argc, argv) : no_command(argv[1]);
}
