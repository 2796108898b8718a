/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/usage.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "model/analysis.h"
#include "watch/ps.h"

#define AFTER "Try `" /* begins the two lines that argp writes after an error */

static struct {
	const struct command *command;
	struct options_list options;
	const struct command *const *commands; /* of usage__know(); NULL: not known */
	size_t ncommands;
	bool over;	    /* argp's own lines have begun */
	bool wants_process; /* the error message tells the user to choose a process */
} at;

#define NAMED 5 /* most processes that a message names */

static bool says_pid(const char *line, size_t len)
{
	return memmem(line, len, "-p PID", 6) || memmem(line, len, "--pid=PID", 9);
}

/* Writes a line with the processes that the user could choose. */
static void name_processes(void)
{
	struct ps *s = ps__new();
	const struct ps_process *const *v;
	size_t n;

	if (!s)
		return;
	log__set_level(LOG_ERROR);
	ps__find(s);
	v = ps__list(s, &n);
	for (size_t i = 0; i < n && i < NAMED; i++)
		fprintf(stderr, "%s%d %.*s", i ? ", " : "Processes with PyTorch: ", (int)v[i]->pid,
			(int)strcspn(v[i]->command, " "), v[i]->command);
	if (n > NAMED)
		fprintf(stderr, " and %zu more, see `memtrace-bpf ps`", n - NAMED);
	if (n)
		fputc('\n', stderr);
	ps__free(s);
}

/* Writes argp's messages to standard error, with our last line instead of its two. A function of
 * cookie_io_functions_t. */
static ssize_t put_message(void *cookie, const char *s, size_t n)
{
	const char *end = s + n;

	(void)cookie;
	while (s < end && !at.over) {
		const char *newline = memchr(s, '\n', (size_t)(end - s)),
			   *next = newline ? newline + 1 : end;

		at.over = (size_t)(next - s) > strlen(AFTER) && !strncmp(s, AFTER, strlen(AFTER));
		at.wants_process |= says_pid(s, (size_t)(next - s));
		if (at.over && at.wants_process)
			name_processes();
		if (at.over)
			fprintf(stderr, "See `memtrace-bpf help %s`.\n", at.command->name);
		else
			fwrite(s, 1, (size_t)(next - s), stderr);
		s = next;
	}
	return (ssize_t)n;
}

static void try_options(struct nearest *n, const struct options_list *options)
{
	for (size_t i = 0; i < options->n; i++)
		if (options_list__shows(options->v[i]))
			nearest__try(n, options->v[i]->name);
}

/* Adds the commands that have this option, three at most. */
static void add_commands(char *buf, size_t size, const char *option)
{
	size_t used = 0, shown = 0, more = 0;
	struct options_list theirs = { .n = 0 };

	for (size_t i = 0; i < at.ncommands; i++) {
		theirs.n = 0;
		options_list__fill(&theirs, at.commands[i]->argp);
		if (!options_list__named(&theirs, option, strlen(option)))
			continue;
		if (shown < 3 && used < size)
			used += (size_t)snprintf(buf + used, size - used, "%s%s", shown ? ", " : "",
						 at.commands[i]->name);
		more += shown++ >= 3;
	}
	if (more && used < size)
		snprintf(buf + used, size - used, " and %zu more", more);
}

/* Calls argp_error() for an option that only other commands have. word: as typed; name: the other
 * commands' option, equal or near to it. */
static void refuse_others_option(struct argp_state *state, const char *word, const char *name)
{
	char commands[128] = "", own[128] = "";
	size_t len = strlen(name), n;

	add_commands(commands, sizeof(commands), name);
	for (size_t i = 0; i < at.options.n && !*own; i++) {
		if (!options_list__shows(at.options.v[i]))
			continue;
		n = strlen(at.options.v[i]->name);
		if (n > len && at.options.v[i]->name[n - len - 1] == '-' &&
		    !strcmp(at.options.v[i]->name + n - len, name))
			snprintf(own, sizeof(own), "; %s has --%s", at.command->name,
				 at.options.v[i]->name);
	}
	if (strcmp(word, name) != 0)
		argp_error(state, "unknown option '--%s'; did you mean --%s? It is for %s%s", word,
			   name, commands, own);
	else
		argp_error(state, "unknown option '--%s': it is for %s%s", word, commands, own);
}

/* Calls argp_error() for an unknown option of len bytes, with the nearest one of this command or,
 * if that is nearer, of another one. */
static void refuse_unknown_option(struct argp_state *state, const char *name, size_t len)
{
	struct options_list theirs = { .n = 0 };
	char word[64];
	struct nearest n = { .word = word }, of_others;

	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	try_options(&n, &at.options);
	of_others = n;
	for (size_t i = 0; i < at.ncommands; i++) {
		theirs.n = 0;
		options_list__fill(&theirs, at.commands[i]->argp);
		try_options(&of_others, &theirs);
	}
	if (of_others.best && (!n.best || of_others.distance < n.distance))
		refuse_others_option(state, word, of_others.best);
	else if (n.best)
		argp_error(state, "unknown option '--%s'; did you mean --%s?", word, n.best);
	else
		argp_error(state, "unknown option '--%s'", word);
}

void usage__unknown(struct argp_state *state, const char *what, const char *word,
		    const char *const *words)
{
	struct nearest n = { .word = word };
	char all[512] = "";
	size_t used = 0;

	for (int i = 0; words[i]; i++) {
		const char *between = words[i + 1] ? ", " : " or ";

		nearest__try(&n, words[i]);
		if (used < sizeof(all))
			used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s",
						 i ? between : "", words[i]);
	}
	if (n.best)
		argp_error(state, "%s '%s'; did you mean %s?", what, word, n.best);
	else
		argp_error(state, "%s '%s'; use %s", what, word, all);
}

void usage__unexpected(struct argp_state *state, const char *argument, const char *next)
{
	if (*argument && !argument[strspn(argument, "0123456789")])
		argp_error(state, "unexpected argument '%s'; did you mean -p %s?", argument,
			   argument);
	else
		argp_error(state, "unexpected argument '%s'; %s", argument, next);
}

/* Checks an argument of short options. last: no argument follows. True if the next argument is the
 * value of its last letter. */
static bool check_short(struct argp_state *state, const char *argument, bool last)
{
	for (const char *c = argument + 1; *c; c++) {
		const struct argp_option *o = options_list__short(&at.options, *c);

		if (!o)
			argp_error(state, "unknown option '-%c'", *c);
		if (last && !c[1] && options_list__takes_next(o))
			argp_error(state, "-%c needs a value: -%c %s", *c, *c, o->arg);
		if (options_list__takes_next(o))
			return !c[1];
	}
	return false;
}

/* Checks a long option. last: no argument follows. True if the next argument is its value. */
static bool check_long(struct argp_state *state, const char *argument, bool last)
{
	const char *name = argument + 2;
	size_t len = strcspn(name, "=");
	const struct argp_option *o = options_list__named(&at.options, name, len);

	if (!o)
		refuse_unknown_option(state, name, len);
	if (last && !name[len] && options_list__takes_next(o))
		argp_error(state, "--%s needs a value: --%s=%s", o->name, o->name, o->arg);
	return !name[len] && options_list__takes_next(o);
}

/* True if the command has --format json: then --json means that. getopt would take it as a short
 * form of --json-schema. */
static bool takes_json(void)
{
	const struct argp_option *o = options_list__named(&at.options, "format", strlen("format"));

	return o && !strcmp(o->name, "format") && o->arg && strstr(o->arg, "json");
}

/* Checks options in getopt's order, with better messages than its own. */
static void check_options(struct argp_state *state)
{
	for (int i = 1; i < state->argc && strcmp(state->argv[i], "--") != 0; i++) {
		const char *argument = state->argv[i];

		if (!strcmp(argument, "--json") && takes_json())
			state->argv[i] = (char *)(uintptr_t) "--format=json";
		else if (argument[0] == '-' && argument[1] == '-')
			i += check_long(state, argument, i + 1 == state->argc);
		else if (argument[0] == '-' && argument[1])
			i += check_short(state, argument, i + 1 == state->argc);
		else if (state->flags & ARGP_IN_ORDER)
			return;
	}
}

static void begin_usage(struct argp_state *state)
{
	const cookie_io_functions_t io = { .write = put_message };
	FILE *complaints = fopencookie(NULL, "w", io);

	state->name = state->argv[0]; /* argp sets the same value later */
	if (complaints)
		state->err_stream = complaints;
	check_options(state);
}

/* ---- the options that all commands have ---- */

enum { OPT_LOG_LEVEL = 0x8100, OPT_LOG_FILE, OPT_LOG_FORMAT };

static const struct argp_option common_options[] = {
	{ "log-level", OPT_LOG_LEVEL, "LEVEL", OPTION_RARE,
	  "Lowest level: error, warn, info (default) or debug", OPTIONS_MESSAGES },
	{ "log-file", OPT_LOG_FILE, "FILE", OPTION_RARE,
	  "Also append messages, with the time, to FILE", OPTIONS_MESSAGES },
	{ "log-format", OPT_LOG_FORMAT, "text|json", OPTION_RARE,
	  "Format of messages (default text); json: one object per line", OPTIONS_MESSAGES },
	{ "help", 'h', "all", OPTION_ARG_OPTIONAL | OPTION_HIDDEN, NULL, 0 },
	{ NULL, '?', NULL, OPTION_HIDDEN, NULL, 0 },
	{ "version", 'V', NULL, OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

static const struct option_of {
	const char *name;
	int (*take)(const char *arg, char *why, size_t size);
} takers[] = {
	[OPT_LOG_LEVEL - OPT_LOG_LEVEL] = { "--log-level", log__option_level },
	[OPT_LOG_FILE - OPT_LOG_LEVEL] = { "--log-file", log__option_file },
	[OPT_LOG_FORMAT - OPT_LOG_LEVEL] = { "--log-format", log__option_format },
};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	const struct option_of *o;
	char why[128];

	switch (key) {
	case ARGP_KEY_INIT:
		begin_usage(state);
		break;
	case 'h':
	case '?':
		help__print(stdout, at.command, arg && !strcmp(arg, "all"));
		exit(analysis__check_output(stdout, "standard output"));
	case 'V':
		argp_program_version_hook(stdout, state);
		exit(analysis__check_output(stdout, "standard output"));
	case OPT_LOG_LEVEL:
	case OPT_LOG_FILE:
	case OPT_LOG_FORMAT:
		o = &takers[key - OPT_LOG_LEVEL];
		if (o->take(arg, why, sizeof(why)))
			argp_error(state, "%s: %s", o->name, why);
		break;
	case ARGP_KEY_SUCCESS:
		log__open();
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp log_argp = { .options = common_options, .parser = parse_common };

/* Takes --log-...=VALUE and --log-... VALUE, up to the first other argument. */
int usage__take_log_options(int argc, char **argv)
{
	char why[128] = "it needs a value";
	int i = 0;

	while (i < argc) {
		const struct option_of *o = NULL;
		const char *value = NULL;

		for (size_t k = 0; k < sizeof(takers) / sizeof(*takers); k++) {
			size_t len = strlen(takers[k].name);

			if (strncmp(argv[i], takers[k].name, len) != 0 ||
			    (argv[i][len] && argv[i][len] != '='))
				continue;
			o = &takers[k];
			if (argv[i][len])
				value = argv[i] + len + 1;
			else if (i + 1 < argc)
				value = argv[++i];
		}
		if (!o)
			break;
		if (!value || o->take(value, why, sizeof(why))) {
			fprintf(stderr, "memtrace-bpf: %s: %s\n", o->name, why);
			return -1;
		}
		i++;
	}
	return i;
}

/* ---- the command line ---- */

void usage__know(const struct command *const *commands, size_t n)
{
	at.commands = commands;
	at.ncommands = n;
}

void usage__parse(const struct command *command, int argc, char **argv, unsigned flags, void *input)
{
	at.command = command;
	at.options.n = 0;
	options_list__fill(&at.options, command->argp);
	argp_parse(command->argp, argc, argv, flags | ARGP_NO_HELP, NULL, input);
}

const struct command *usage__command(void)
{
	return at.command;
}
