/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/progress.h"
#include "lib/text.h"

#define LOG_MAX_LINE 4096

static enum log_level max_level = LOG_INFO;
static void (*divert)(void *ctx, enum log_level level, const char *text);
static void *divert_ctx;

void log__set_level(enum log_level level)
{
	max_level = level;
}

enum log_level log__level(void)
{
	return max_level;
}

void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx)
{
	divert = to;
	divert_ctx = ctx;
}

/* Whatever name is in it: harmless on a terminal. What the kernel's verifier says has many lines, and tabs. */
static void clean_lines(char *dst, size_t size, const char *src)
{
	size_t at = 0, n;

	for (;; src += n + 1) {
		n = strcspn(src, "\n\t");
		text__clean(dst + at, size - at, src, n);
		at += strlen(dst + at);
		if (!src[n] || at + 2 > size)
			break;
		dst[at++] = src[n];
		dst[at] = '\0';
	}
}

void log__print(enum log_level level, const char *fmt, ...)
{
	char line[LOG_MAX_LINE], text[2 * LOG_MAX_LINE];
	va_list args;
	size_t len;

	if (level > max_level)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	/* One message is one line, whatever libbpf and the like put at the end. */
	len = strlen(line);
	while (len && line[len - 1] == '\n')
		line[--len] = '\0';
	clean_lines(text, sizeof(text), line);
	if (divert) {
		divert(divert_ctx, level, text);
		return;
	}
	progress__clear();
	/* One call, so that lines of several processes on one terminal do not mix. */
	fprintf(stderr, "memtrace-bpf: %s%s\n", level == LOG_WARN ? "warning: " : "", text);
}
