/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/usage.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
} at; /* the command line that is parsed; argp hands over nothing of it to put_message() */

#define NAMED 5 /* most processes that a message names */

/* True if a line of a message tells the user to give a PID. */
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

/* Compares the word with the options that are suggested. */
static void try_options(struct nearest *n, const struct options_list *options)
{
	for (size_t i = 0; i < options->n; i++)
		if (options_list__suggests(options->v[i]))
			nearest__try(n, options->v[i]->name);
}

#define COMMANDS_NAMED 3 /* commands that a message names, at most */

/* Writes the commands that have this option: "record, run, live and 2 more". */
static void add_commands(char *buf, size_t size, const char *option)
{
	size_t used = 0, shown = 0, more = 0;
	struct options_list theirs = { .n = 0 };

	for (size_t i = 0; i < at.ncommands; i++) {
		theirs.n = 0;
		options_list__fill(&theirs, at.commands[i]->argp);
		if (!options_list__named(&theirs, option, strlen(option)))
			continue;
		if (shown < COMMANDS_NAMED && used < size)
			used += (size_t)snprintf(buf + used, size - used, "%s%s", shown ? ", " : "",
						 at.commands[i]->name);
		more += shown++ >= COMMANDS_NAMED;
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
		if (!options_list__suggests(at.options.v[i]))
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

/* Calls argp_error() if word is the beginning of options, and names them. */
static void refuse_abbreviation(struct argp_state *state, const char *word)
{
	char names[256] = "";
	size_t used = 0, found = 0;

	for (size_t i = 0; i < at.options.n; i++) {
		const struct argp_option *o = at.options.v[i];

		if (!options_list__suggests(o) || strncmp(o->name, word, strlen(word)) != 0)
			continue;
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s",
						 found ? ", " : "", o->name);
		found++;
	}
	if (found == 1)
		argp_error(state, "unknown option '--%s'; did you mean %s?", word, names);
	else if (found)
		argp_error(state, "unknown option '--%s'; write the whole name: %s", word, names);
}

/* Calls argp_error() for an unknown option of len bytes, with the nearest one of this command or,
 * if that is nearer, of another one. */
static void refuse_unknown_option(struct argp_state *state, const char *name, size_t len)
{
	struct options_list theirs = { .n = 0 };
	char word[64];
	struct nearest n = { .word = word }, of_others;

	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	if (*word)
		refuse_abbreviation(state, word);
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

/* Commands of py-spy, memray and nsys, and what does the same here. */
static const struct {
	const char *word, *command, *argument;
} elsewhere[] = {
	{ "top", "-p", "PID" },
	{ "attach", "-p", "PID" },
	{ "profile", "record -p", "PID" },
	{ "table", "report", "FILE" },
	{ "summary", "report", "FILE" },
	{ "stats", "report", "FILE" },
	{ "tree", "report --by stack", "FILE" },
	{ "parse", "export ndjson", "FILE" },
};

static bool is_number(const char *word)
{
	return *word && !word[strspn(word, "0123456789")];
}

/* Prints "; use memtrace-bpf COMMAND NEXT". next: the argument that was given, NULL: none;
 * argument: what the command takes, "": nothing. A PID can only be a number. */
static void print_use(const char *command, const char *next, const char *argument)
{
	char quoted[PATH_MAX];
	const char *given = NULL;

	if (next && *next != '-' && (strcmp(argument, "PID") != 0 || is_number(next)))
		given = text__shell(quoted, sizeof(quoted), next);
	given = given ?: argument;
	fprintf(stderr, "; use memtrace-bpf %s%s%s\n", command, *given ? " " : "", given);
}

/* Prints a hint if the word is the first argument of one of our commands, such as a format of
 * export. */
static bool hint_of_word(const struct command *c, const char *word, const char *next)
{
	char command[64];

	for (size_t i = 0; c->word && c->word(i).name; i++) {
		if (strcmp(word, c->word(i).name) != 0)
			continue;
		snprintf(command, sizeof(command), "%s %s", c->name, word);
		if (strstr(c->argp->args_doc, "FILE"))
			print_use(command, next, "FILE");
		else if (text__starts(c->word(i).help, "NAME: "))
			print_use(command, next, "NAME");
		else if (next && is_number(next))
			print_use(strcat(command, " -p"), next, "PID");
		else
			print_use(command, /*next=*/NULL, "");
		return true;
	}
	return false;
}

/* Prints a hint if the word is a command of another tool, or belongs to one of our commands. */
static bool hint_of_other_command(const char *word, const char *next)
{
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); i++)
		if (!strcmp(word, elsewhere[i].word)) {
			print_use(elsewhere[i].command, next, elsewhere[i].argument);
			return true;
		}
	for (size_t i = 0; i < at.ncommands; i++)
		if (hint_of_word(at.commands[i], word, next))
			return true;
	return false;
}

/* True if the word has this extension, and a name before it. */
static bool ends_with(const char *word, const char *end)
{
	const char *dot = strrchr(word, '.');

	return dot && dot != word && !strcmp(dot, end);
}

/* Prints a hint if the words are a script or start Python: "; use memtrace-bpf run -- python ...". */
static bool hint_of_script(int argc, char *const *argv)
{
	bool script = ends_with(argv[0], ".py");
	char quoted[PATH_MAX];

	if (!script && !text__starts(argv[0], "python") && strcmp(argv[0], "torchrun") != 0)
		return false;
	fprintf(stderr, "; use memtrace-bpf run --%s", script ? " python" : "");
	for (int i = 0; i < argc; i++)
		fprintf(stderr, " %s", text__shell(quoted, sizeof(quoted), argv[i]) ?: "...");
	fputc('\n', stderr);
	return true;
}

void usage__unknown_command(int argc, char *const *argv)
{
	const char *word = argv[0];
	struct nearest n = { .word = word };
	char shown[256], quoted[PATH_MAX];

	for (size_t i = 0; i < at.ncommands; i++)
		nearest__try(&n, at.commands[i]->name);
	nearest__try(&n, "help");
	nearest__try(&n, "version");
	fprintf(stderr, "memtrace-bpf: unknown command '%s'",
		text__clean(shown, sizeof(shown), word, strlen(word)));
	if (hint_of_other_command(word, argc > 1 ? argv[1] : NULL) || hint_of_script(argc, argv))
		return;
	if (n.best)
		fprintf(stderr, "; did you mean %s?\n", n.best);
	else if (is_number(word))
		fprintf(stderr,
			"; what is wrong with that process: memtrace-bpf diagnose -p %s; the live "
			"view: memtrace-bpf -p %s\n",
			word, word);
	else if (ends_with(word, ".mtr") || !access(word, F_OK))
		fprintf(stderr, "; to read that recording: memtrace-bpf report %s\n",
			text__shell(quoted, sizeof(quoted), word) ?: word);
	else
		fputs("\nSee `memtrace-bpf help`.\n", stderr);
}

void usage__unexpected(struct argp_state *state, const char *argument, const char *next)
{
	if (is_number(argument))
		argp_error(state, "unexpected argument '%s'; did you mean -p %s?", argument,
			   argument);
	else
		argp_error(state, "unexpected argument '%s'; %s", argument, next);
}

/* Checks an argument of short options. last: no argument follows. True if the next argument is the
 * value of its last letter. Ends the program with a message if an option is wrong. */
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

/* Checks a long option. last: no argument follows. True if the next argument is its value. Ends the
 * program with a message if the option is wrong. */
static bool check_long(struct argp_state *state, const char *argument, bool last)
{
	const char *name = argument + 2;
	size_t len = strcspn(name, "=");
	const struct argp_option *o = options_list__named(&at.options, name, len);
	bool takes_next;

	if (!o)
		refuse_unknown_option(state, name, len);	/* does not return */
	takes_next = !name[len] && options_list__takes_next(o); /* no "=VALUE", but needs one */
	if (takes_next && last)
		argp_error(state, "--%s needs a value: --%s=%s", o->name, o->name, o->arg);
	return takes_next;
}

/* True if the command has --json, which means --format json. */
static bool takes_json(void)
{
	return options_list__named(&at.options, "json", strlen("json"));
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

/* Begins to parse: takes over argp's messages, and checks the options before argp does. */
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
	{ "verbose", 'v', NULL, OPTION_COMMON,
	  "Also print what memtrace-bpf does, and the kernel's messages", OPTIONS_MESSAGES },
	{ "quiet", 'q', NULL, OPTION_COMMON, "Print only warnings and errors", OPTIONS_MESSAGES },
	{ "log-level", OPT_LOG_LEVEL, "LEVEL", OPTION_COMMON,
	  "Lowest level: error, warn, info (default) or debug", OPTIONS_MESSAGES },
	{ "log-file", OPT_LOG_FILE, "FILE", OPTION_COMMON,
	  "Also append messages, with the time, to FILE", OPTIONS_MESSAGES },
	{ "log-format", OPT_LOG_FORMAT, "text|json", OPTION_COMMON,
	  "Format of messages (default text); json: one object per line", OPTIONS_MESSAGES },
	{ "help", 'h', "all", OPTION_ARG_OPTIONAL | OPTION_HIDDEN, NULL, 0 },
	{ NULL, '?', NULL, OPTION_HIDDEN, NULL, 0 },
	{ "version", 'V', NULL, OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

/* The options about logs, which are taken before and after the name of a command. */
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
	case 'v':
	case 'q':
		log__set_level(key == 'v' ? LOG_DEBUG : LOG_WARN);
		break;
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

/* True for -v, -q and their long names, which it applies. */
static bool take_level(const char *argument)
{
	bool verbose = !strcmp(argument, "-v") || !strcmp(argument, "--verbose");
	bool quiet = !strcmp(argument, "-q") || !strcmp(argument, "--quiet");

	if (verbose || quiet)
		log__set_level(verbose ? LOG_DEBUG : LOG_WARN);
	return verbose || quiet;
}

/* Takes -v, -q, --log-...=VALUE and --log-... VALUE, up to the first other argument. */
int usage__take_common_options(int argc, char **argv)
{
	char why[128] = "it needs a value";
	int i = 0;

	for (; i < argc; i++) {
		const struct option_of *o = NULL;
		const char *value = NULL;

		if (take_level(argv[i]))
			continue;
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
