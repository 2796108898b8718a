/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/log_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "capture/capture_args.h"
#include "cmd/help.h"
#include "cmd/usage.h"
#include "model/analysis.h"

enum { OPT_LOG_LEVEL = 0x8100, OPT_LOG_FILE, OPT_LOG_FORMAT };

static const struct argp_option options[] = {
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

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const struct option_of *o;
	char why[128];

	switch (key) {
	case ARGP_KEY_INIT:
		usage__begin(state);
		break;
	case 'h':
	case '?':
		help__print(stdout, usage__command(), arg && !strcmp(arg, "all"));
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

const struct argp log_argp = { .options = options, .parser = parse };

int log_args__take(int argc, char **argv)
{
	char why[128] = "it needs a value";
	int at = 0;

	while (at < argc) {
		const struct option_of *o = NULL;
		const char *value = NULL;

		for (size_t i = 0; i < sizeof(takers) / sizeof(*takers); i++) {
			size_t len = strlen(takers[i].name);

			if (strncmp(argv[at], takers[i].name, len) != 0 ||
			    (argv[at][len] && argv[at][len] != '='))
				continue;
			o = &takers[i];
			if (argv[at][len])
				value = argv[at] + len + 1;
			else if (at + 1 < argc)
				value = argv[++at];
		}
		if (!o)
			break;
		if (!value || o->take(value, why, sizeof(why))) {
			fprintf(stderr, "memtrace-bpf: %s: %s\n", o->name, why);
			return -1;
		}
		at++;
	}
	return at;
}
