/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay/places.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "estimate/replay/trust.h"

#define LINES_MAX 1000 /* of the list */

/* Not all of /usr and /usr/local: people clone into /usr/src, /usr/local/src and /usr/local/NAME. */
static const char *const built_in[] = {
	"/bin",	      "/lib",		"/lib64",	  "/usr/bin",	      "/usr/lib",
	"/usr/lib64", "/usr/local/bin", "/usr/local/lib", "/usr/local/lib64",
};

/* True if path is below the folder, or below the folder that its name leads to. */
static bool is_below(const char *path, const char *folder)
{
	char real[PATH_MAX];
	const char *names[] = { folder, realpath(folder, real) };

	for (size_t i = 0; i < 2; i++) {
		size_t n = names[i] ? strlen(names[i]) : 0;

		if (n > 1 && !strncmp(path, names[i], n) && path[n] == '/')
			return true;
	}
	return false;
}

static bool is_built_in(const char *path)
{
	for (size_t i = 0; i < sizeof(built_in) / sizeof(*built_in); i++)
		if (is_below(path, built_in[i]))
			return true;
	return false;
}

static FILE *open_list(const char *list)
{
	int checked = replay_trust__open(list), fd;
	char again[32];

	if (checked < 0)
		return NULL;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", checked);
	fd = io__open_regular(AT_FDCWD, again, LINKS_FOLLOW, NULL);
	close(checked);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

/* Removes a final newline, spaces and slashes. */
static void trim(char *line)
{
	size_t n = strlen(line);

	while (n && strchr("\n\r\t /", line[n - 1]))
		line[--n] = '\0';
}

static bool is_listed(const char *path, const char *list)
{
	char line[PATH_MAX];
	FILE *f = open_list(list);
	bool found = false;

	for (size_t n = 0; f && !found && n < LINES_MAX && fgets(line, sizeof(line), f); n++) {
		trim(line);
		found = line[0] == '/' && is_below(path, line);
	}
	if (f)
		fclose(f);
	return found;
}

/* True if a part of the path is "..", after which its beginning says nothing. */
static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

bool replay_places__has(const char *name, int fd, const char *list)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || goes_up(name))
		return false;
	path[n] = '\0';
	return (is_built_in(name) || is_listed(name, list)) &&
	       (is_built_in(path) || is_listed(path, list));
}
