/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/log_args.h"

#include <stdio.h>
#include <string.h>

#include "cmd/usage.h"
#include "log/config.h"

enum { OPT_LOG_LEVEL = 0x8100, OPT_LOG_FILE, OPT_LOG_FORMAT };

static const struct argp_option options[] = {
	{ "log-level", OPT_LOG_LEVEL, "LEVEL", 0,
	  "error, warn, info (default) or debug; PART=LEVEL, after a comma, of one part of the "
	  "program: info,capture=debug",
	  0 },
	{ "log-file", OPT_LOG_FILE, "FILE", 0,
	  "Also write messages to the end of this file, with the time", 0 },
	{ "log-format", OPT_LOG_FORMAT, "FORMAT", 0,
	  "text (default) or json: an object a line, in the file, or on standard error where there "
	  "is none",
	  0 },
	{ NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 },
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
		argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
		break;
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
			value = argv[at][len]	? argv[at] + len + 1
				: at + 1 < argc ? argv[++at]
						: NULL;
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
