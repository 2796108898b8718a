/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <argp.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "cmd/commands.h"
#include "cmd/complete.h"
#include "cmd/help.h"
#include "cmd/usage.h"
#include "in_this_build.h"
#include "record/mtr.h"

/* In the order of the list that help prints, by group. */
static const struct command *const commands[] = {
	&command_diagnose, &command_live,     &command_leaks,  &command_dump,	 &command_ps,
	&command_record,   &command_run,      &command_watch,
#if MEMTRACE_SERVE
	&command_serve,	   &command_fetch,
#endif
	&command_ctl,	   &command_report,   &command_diff,   &command_compare, &command_export,
	&command_import,   &command_estimate, &command_replay, &command_check,	 &command_mcp,
};

/* Not in the help: for completion scripts, and for the build. */
#define COMPLETE "--complete"
#define MANUAL "--manual"

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void version(FILE *out, struct argp_state *state)
{
	const char *serve = "without serve";

	(void)state;
	if (MEMTRACE_SERVE)
		serve = MEMTRACE_HTTPS ? "with serve" : "with serve, without HTTPS";
	fprintf(out, "memtrace-bpf " MEMTRACE_VERSION " (" MEMTRACE_BUILD ")\n");
	fprintf(out, "recordings (.mtr): writes version %d, reads 1 to %d\n", MTR_VERSION,
		MTR_VERSION);
	fprintf(out, "libbpf %s; %s%s\n", libbpf_version_string() + 1, serve,
		MEMTRACE_STATIC ? "; static" : "");
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
	int err = outfile__flush(stdout);

	if (!err)
		return status;
	log_err("standard output: cannot write: %s", outfile__why(err));
	return status ? status : EXIT_FAILED;
}

/* Sets argv[0] to "memtrace-bpf record", the start of messages about the command line. */
static int run(const struct command *c, int argc, char **argv)
{
	char name[64] = "memtrace-bpf";

	if (c != &command_live)
		snprintf(name, sizeof(name), "memtrace-bpf %s", c->name);
	argv[0] = name;
	log__set_command(c->name);
	return closed(c->run(argc, argv));
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(name, commands[i]->name))
			return commands[i];
	return NULL;
}

static bool is_recording(const char *word)
{
	static const char *const ends[] = { ".mtr", ".pickle", ".pickle.gz", ".pickle.zst" };
	size_t len = strlen(word);

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t n = strlen(ends[i]);

		if (len > n && !strcmp(word + len - n, ends[i]))
			return true;
	}
	return false;
}

static int no_command(int argc, char *const *argv)
{
	usage__unknown_command(argc, argv);
	return EXIT_USAGE;
}

static bool is_any(const char *word, const char *a, const char *b, const char *c)
{
	return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

/* help [COMMAND] [--all] */
static int help_of(int argc, char **argv)
{
	const struct command *c = NULL;
	bool all = false;

	for (int i = 0; i < argc; i++) {
		if (is_any(argv[i], "--help", "-h", "help"))
			continue;
		if (!strcmp(argv[i], "--all"))
			all = true;
		else if (!c && !(c = find(argv[i])))
			return no_command(argc - i, argv + i);
	}
	if (c)
		help__print(stdout, c, all);
	else
		help__print_list(stdout, commands, N_COMMANDS, all);
	return closed(EXIT_OK);
}

/* "memtrace-bpf run.mtr" is short for "memtrace-bpf report run.mtr": reading is harmless. */
static int report(int argc, char **argv)
{
	char *with_word[argc + 2];

	memcpy(with_word + 1, argv, ((size_t)argc + 1) * sizeof(*argv));
	return run(&command_report, argc + 1, with_word);
}

int main(int argc, char **argv)
{
	const struct command *c;
	int log;

	if (!hold_standard_files())
		return EXIT_FAILED;
	/* Messages of the C library stay English, as ours are. */
	setlocale(LC_CTYPE, "");
	argp_program_version_hook = version;
	usage__know(commands, N_COMMANDS);
	outlive_file_limit();
	log__from_environment();
	log = usage__take_common_options(argc - 1, argv + 1);
	if (log < 0)
		return EXIT_USAGE;
	argv[log] = argv[0];
	argv += log;
	argc -= log;
	if (argc < 2) {
		help__print_list(stderr, commands, N_COMMANDS, /*all=*/false);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], COMPLETE)) {
		complete__print(commands, N_COMMANDS, argc - 2, argv + 2);
		return closed(EXIT_OK);
	}
	if (!strcmp(argv[1], MANUAL) && argc == 3 && find(argv[2])) {
		help__manual(stdout, find(argv[2]), stdin);
		return closed(EXIT_OK);
	}
	if (is_any(argv[1], "help", "--help", "-h"))
		return help_of(argc - 2, argv + 2);
	if (is_any(argv[1], "version", "--version", "-V")) {
		version(stdout, NULL);
		return closed(EXIT_OK);
	}
	c = find(argv[1]);
	if (c)
		return run(c, argc - 1, argv + 1);
	if (argv[1][0] == '-')
		return run(&command_live, argc, argv);
	if (is_recording(argv[1]) && !access(argv[1], R_OK))
		return report(argc - 1, argv + 1);
	return no_command(argc - 1, argv + 1);
}
