/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/route.h"

#include <stdio.h>
#include <string.h>

#include "serve/web/web.h"

const struct route *routes__at(const struct route *const *tables, size_t i)
{
	for (size_t t = 0; tables[t]; t++)
		for (const struct route *r = tables[t]; r->method; r++)
			if (!i--)
				return r;
	return NULL;
}

/* Returns -1 if path does not match pattern, otherwise the number of literal characters. The
 * highest number wins: "/api/trace/list" before "/api/trace/{trace_id}". */
static int match_path(const char *pattern, const char *path)
{
	int n_literal = 0;

	while (*pattern) {
		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return -1;
			n_literal++;
			continue;
		}
		size_t len = strcspn(path, "/");

		if (!len)
			return -1;
		path += len;
		pattern += strcspn(pattern, "}") + 1;
	}
	return *path ? -1 : n_literal;
}

/* Sets values to the parameters in path, which matches pattern, and ends each with a NUL. Returns
 * their number. */
static size_t cut_values(const char *pattern, char *path, char *values[4])
{
	size_t n = 0;

	while (*pattern) {
		if (*pattern != '{') {
			pattern++;
			path++;
			continue;
		}
		pattern += strcspn(pattern, "}") + 1;
		if (n < 4)
			values[n++] = path;
		path += strcspn(path, "/");
		if (*path && *pattern == '/') {
			*path++ = '\0';
			pattern++;
		}
	}
	return n;
}

/* Writes text at buf + at as far as there is room. Returns the end of the text, which may be past
 * the buffer. */
static size_t append_text(char *buf, size_t size, size_t at, const char *text)
{
	return at + (size_t)snprintf(buf + at, at < size ? size - at : 0, "%s", text);
}

const struct route *routes__find(const struct route *const *tables, const char *method, char *path,
				 char *values[4], size_t *n, char *allow, size_t size)
{
	const struct route *best = NULL, *found = NULL;
	const struct route *r;
	int most_literal = -1;
	size_t allow_len = 0;

	for (size_t i = 0; (r = routes__at(tables, i)); i++) {
		int n_literal = match_path(r->path, path);

		if (n_literal > most_literal) {
			most_literal = n_literal;
			best = r;
		}
	}
	/* Several routes, one for each method, have the pattern that matches best. */
	*allow = '\0';
	*n = 0;
	if (!best)
		return NULL;
	for (size_t i = 0; (r = routes__at(tables, i)); i++) {
		if (strcmp(r->path, best->path))
			continue;
		bool get = !strcmp(r->method, "GET");

		if (!strcmp(r->method, method) || (get && !strcmp(method, "HEAD")))
			found = r;
		allow_len = append_text(allow, size, allow_len, r->method);
		allow_len = append_text(allow, size, allow_len, get ? ", HEAD, " : ", ");
	}
	append_text(allow, size, allow_len, "OPTIONS");
	if (found)
		*n = cut_values(found->path, path, values);
	return found;
}
