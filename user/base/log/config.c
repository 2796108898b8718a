/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const char *const level_names[] = {
	[LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"
};

#define N_LEVELS (sizeof(level_names) / sizeof(*level_names))

const char *log_config__level_name(enum log_level level)
{
	return level_names[level];
}

int log_config__level_of(const char *name, size_t len)
{
	for (size_t i = 0; i < N_LEVELS; i++) {
		if (strlen(level_names[i]) == len && !strncmp(level_names[i], name, len))
			return (int)i;
	}
	return -EINVAL;
}

char *log__part(char buf[LOG_PART], const char *file)
{
	const char *at = file, *next;
	size_t len;

	/* The path may begin with any build folder. */
	while ((next = strstr(at, "user/")))
		at = next + strlen("user/");
	len = strcspn(at, "/.");
	if (len >= LOG_PART)
		len = LOG_PART - 1;
	memcpy(buf, at, len);
	buf[len] = '\0';
	return buf;
}

static int refuse(char *why, size_t size, const char *text, size_t len, const char *what)
{
	char clean[64];

	text__clean(clean, sizeof(clean), text, len);
	snprintf(why, size, "'%s' %s", clean, what);
	return -EINVAL;
}

static int set_fd(struct log_config *c, const char *text, size_t len)
{
	char number[12], *end;
	long n;

	if (!len || len >= sizeof(number))
		return -EINVAL;
	snprintf(number, sizeof(number), "%.*s", (int)len, text);
	errno = 0;
	n = strtol(number, &end, 10);
	if (errno || *end || n < 3 || n > INT_MAX)
		return -EINVAL;
	c->fd = (int)n;
	return 0;
}

/* Parses one item of the comma-separated list. */
static int parse_item(struct log_config *c, const char *text, size_t len, bool levels_only,
		      char *why, size_t size)
{
	const char *equals = memchr(text, '=', len), *value = equals ? equals + 1 : text;
	size_t key = equals ? (size_t)(equals - text) : 0, n = len - (size_t)(value - text);
	int level;

	if (!equals || levels_only) {
		level = log_config__level_of(text, len);
		if (level < 0)
			return refuse(why, size, text, len,
				      "is not a level; use error, warn, info or debug");
		c->level = level;
		return 0;
	}
	if (key == 4 && !strncmp(text, "file", 4)) {
		free(c->file);
		c->file = n ? strndup(value, n) : NULL;
		return c->file ? 0 : refuse(why, size, text, len, "names no file");
	}
	if (key == 6 && !strncmp(text, "format", 6)) {
		c->json = n == 4 && !strncmp(value, "json", 4);
		if (c->json || (n == 4 && !strncmp(value, "text", 4)))
			return 0;
		return refuse(why, size, text, len, "is not a format; use text or json");
	}
	if (key == 2 && !strncmp(text, "fd", 2)) {
		if (!set_fd(c, value, n))
			return 0;
		return refuse(why, size, text, len, "names no descriptor");
	}
	return refuse(why, size, text, len,
		      "is no setting of the log; use a level, file=PATH or format=json");
}

int log_config__parse(struct log_config *c, const char *text, bool levels_only, char *why,
		      size_t size)
{
	struct log_config parsed = *c;
	const char *at = text;
	size_t len;
	int err;

	parsed.file = c->file ? strdup(c->file) : NULL;
	for (;; at += len + 1) {
		len = strcspn(at, ",");
		err = len || levels_only ? parse_item(&parsed, at, len, levels_only, why, size) : 0;
		if (err) {
			free(parsed.file);
			return err;
		}
		if (!at[len])
			break;
	}
	free(c->file);
	*c = parsed;
	return 0;
}

bool log_config__text(const struct log_config *c, int fd, char *buf, size_t size)
{
	FILE *out = fmemopen(buf, size, "w");

	if (!out)
		return false;
	fprintf(out, "format=%s", c->json ? "json" : "text");
	if (c->level >= 0)
		fprintf(out, ",%s", level_names[c->level]);
	if (fd >= 0)
		fprintf(out, ",fd=%d", fd);
	return !fclose(out) && strlen(buf) < size - 1;
}
