/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/usage.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/nearest.h"

#define AFTER "Try `" /* start of argp's own last lines */

static struct {
	const char *command; /* command, such as "report" */
	bool over;	     /* true for argp's own lines */
} at;

/* Writes messages to standard error, with our last line instead of argp's two. */
static ssize_t put(void *cookie, const char *s, size_t n)
{
	const char *end = s + n;

	(void)cookie;
	while (s < end && !at.over) {
		const char *newline = memchr(s, '\n', (size_t)(end - s)),
			   *next = newline ? newline + 1 : end;

		at.over = (size_t)(next - s) > strlen(AFTER) && !strncmp(s, AFTER, strlen(AFTER));
		if (at.over)
			fprintf(stderr, "See `memtrace-bpf help %s`.\n", at.command);
		else
			fwrite(s, 1, (size_t)(next - s), stderr);
		s = next;
	}
	return (ssize_t)n;
}

static bool is_named(const struct argp_option *o)
{
	return o->name && o->name[0];
}

/* Finds an option by name. getopt accepts unique abbreviations. */
static const struct argp_option *find(const struct argp *argp, const char *name, size_t len,
				      int key)
{
	const struct argp_option *found = NULL;

	for (const struct argp_option *o = argp->options;
	     o && (is_named(o) || o->key || o->doc) && !found; o++)
		if (name ? is_named(o) && !strncmp(o->name, name, len) : o->key == key)
			found = o;
	for (const struct argp_child *c = argp->children; c && c->argp && !found; c++)
		found = find(c->argp, name, len, key);
	return found;
}

static void try_all(struct nearest *n, const struct argp *argp)
{
	for (const struct argp_option *o = argp->options; o && (is_named(o) || o->key || o->doc);
	     o++)
		if (is_named(o) && !(o->flags & OPTION_HIDDEN))
			nearest__try(n, o->name);
	for (const struct argp_child *c = argp->children; c && c->argp; c++)
		try_all(n, c->argp);
}

static bool takes_value(const struct argp_option *o)
{
	return o && o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}

static void unknown(struct argp_state *state, const char *name, size_t len)
{
	char word[64];
	struct nearest n = { .word = word };

	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	try_all(&n, state->root_argp);
	if (n.best)
		argp_error(state, "unknown option '--%s'; did you mean --%s?", word, n.best);
	else
		argp_error(state, "unknown option '--%s'", word);
}

/* Returns whether the next argument is the value of this one ("-x..."). */
static bool short_takes_next(const struct argp *argp, const char *argument)
{
	for (const char *c = argument + 1; *c; c++)
		if (takes_value(find(argp, NULL, 0, *c)))
			return !c[1];
	return false;
}

/* Checks names of options in getopt's order. getopt reports other errors itself. */
static void check_options(struct argp_state *state)
{
	for (int i = 1; i < state->argc && strcmp(state->argv[i], "--") != 0; i++) {
		const char *argument = state->argv[i], *name = argument + 2;
		size_t len = strcspn(argument, "=");
		const struct argp_option *o;

		if (argument[0] != '-' || !argument[1]) {
			if (state->flags & ARGP_IN_ORDER)
				return;
			continue;
		}
		if (argument[1] != '-') {
			i += short_takes_next(state->root_argp, argument);
			continue;
		}
		len -= 2;
		o = find(state->root_argp, name, len, 0);
		if (!o)
			unknown(state, name, len);
		i += takes_value(o) && !name[len];
	}
}

void usage__begin(struct argp_state *state)
{
	const cookie_io_functions_t io = { .write = put };
	FILE *complaints = fopencookie(NULL, "w", io);
	const char *command = strchr(state->argv[0], ' ');

	state->name = state->argv[0]; /* argp sets the same value later */
	at.command = command ? command + 1 : "live";
	if (complaints)
		state->err_stream = complaints;
	check_options(state);
}
