/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Command lines: the fact `cmdline`, a JSON array of strings, and arguments as /proc has them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/words.h"

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

/* Cuts what a process title leaves of the old command line: blanks and empty arguments at the end. */
static void cut_end(char **argv, size_t n)
{
	size_t len;

	for (; n && argv[n - 1]; n--) {
		len = strlen(argv[n - 1]);
		while (len && argv[n - 1][len - 1] == ' ')
			argv[n - 1][--len] = '\0';
		if (len || n == 1)
			return;
		free(argv[n - 1]);
		argv[n - 1] = NULL;
	}
}

char **words__cmdline(const struct facts *f)
{
	const char *fact = facts__get(f, "cmdline");
	json_t *args = fact ? json_loads(fact, 0, NULL) : NULL;
	char **argv = json_array_size(args) ? copy_args(args) : NULL;

	if (argv)
		cut_end(argv, json_array_size(args));
	json_decref(args);
	return argv;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

char *words__program(char *buf, size_t size, const struct facts *f)
{
	char **argv = words__cmdline(f);
	const char *name = argv ? base_of(argv[0]) : "", *module = NULL;

	for (size_t i = 1; argv && argv[i] && !strncmp(name, "python", 6); i++) {
		if (!strcmp(argv[i], "-m"))
			module = argv[i + 1];
		if (*argv[i] == '-' && !module)
			continue;
		name = module ? module : base_of(argv[i]);
		break;
	}
	text__clean(buf, size, name, strlen(name));
	words__free_cmdline(argv);
	return buf;
}

char *words__arguments(char *buf, size_t size, const char *cmdline, size_t len)
{
	const char *end, *slash;
	size_t used = 0, n;

	/* A process title leaves blanks and zeros in the room of the old command line. */
	while (len && (!cmdline[len - 1] || cmdline[len - 1] == ' '))
		len--;
	end = cmdline + len;
	buf[0] = '\0';
	for (const char *a = cmdline; a < end && used + 2 < size; a += n + 1) {
		n = strnlen(a, (size_t)(end - a));
		slash = a == cmdline ? memrchr(a, '/', n) : NULL;
		if (used)
			buf[used++] = ' ';
		if (slash)
			text__clean(buf, size, slash + 1, n - (size_t)(slash + 1 - a));
		else
			text__clean(buf + used, size - used, a, n);
		used += strlen(buf + used);
	}
	return buf;
}

void words__free_cmdline(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
