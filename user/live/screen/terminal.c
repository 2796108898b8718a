/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/screen/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

#include "built_in_terminal.h"

/* Beginnings of the values of TERM whose terminals take the sequences of xterm. */
static const char *const like_xterm[] = { "xterm", "screen",  "tmux",	 "rxvt",    "linux",
					  "vte",   "gnome",   "konsole", "putty",   "alacritty",
					  "foot",  "ghostty", "kitty",	 "wezterm", "st-" };

/* True if the built-in description suits this value of TERM. NULL is fine. */
static bool is_like_xterm(const char *term)
{
	for (size_t i = 0; term && i < sizeof(like_xterm) / sizeof(*like_xterm); i++)
		if (!strncmp(term, like_xterm[i], strlen(like_xterm[i])))
			return true;
	return false;
}

/* Calls f while TERMINFO has the built-in description. Restores TERMINFO, because commands that are
 * started later must get the user's. Returns false if f was not called or returned false. */
static bool with_built_in(bool (*f)(void *ctx), void *ctx)
{
	const char *users = getenv("TERMINFO");
	char *copy = users ? strdup(users) : NULL;
	bool done = (!users || copy) && !setenv("TERMINFO", BUILT_IN_TERMINAL, 1) && f(ctx);

	if (copy)
		setenv("TERMINFO", copy, 1);
	else if (!users)
		unsetenv("TERMINFO");
	free(copy);
	return done;
}

/* For with_built_in(): loads the description. False on failure. */
static bool load_built_in(void *ctx)
{
	int err;

	(void)ctx;
	return setupterm(BUILT_IN_TERMINAL_NAME, STDOUT_FILENO, &err) == OK;
}

bool terminal__load(void)
{
	int err;

	if (setupterm(NULL, STDOUT_FILENO, &err) == OK)
		return true;
	return is_like_xterm(getenv("TERM")) && with_built_in(load_built_in, NULL);
}

struct files {
	FILE *out, *in;
	SCREEN *screen;
};

/* For with_built_in(): opens a screen with the description. False on failure. */
static bool open_built_in(void *ctx)
{
	struct files *f = ctx;

	f->screen = newterm(BUILT_IN_TERMINAL_NAME, f->out, f->in);
	return f->screen;
}

SCREEN *terminal__open(FILE *out, FILE *in)
{
	struct files f = { out, in, newterm(NULL, out, in) };

	if (!f.screen && is_like_xterm(getenv("TERM")))
		with_built_in(open_built_in, &f);
	return f.screen;
}
