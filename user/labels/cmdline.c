/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parses the fact `cmdline`, a JSON array of strings, into an argv. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "labels/words.h"

/* Copies the strings of args. NULL: an element is no string, or memory is short. */
static char **copy_args(const json_t *args)
{
	size_t n = json_array_size(args);
	char **argv = calloc(n + 1, sizeof(*argv));

	for (size_t i = 0; argv && i < n; i++) {
		const char *arg = json_string_value(json_array_get(args, i));

		argv[i] = arg ? strdup(arg) : NULL;
		if (!argv[i]) {
			words__free_cmdline(argv);
			argv = NULL;
		}
	}
	return argv;
}

char **words__cmdline(const struct facts *f)
{
	const char *fact = facts__get(f, "cmdline");
	json_t *args = fact ? json_loads(fact, 0, NULL) : NULL;
	char **argv = json_array_size(args) ? copy_args(args) : NULL;

	json_decref(args);
	return argv;
}

void words__free_cmdline(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
