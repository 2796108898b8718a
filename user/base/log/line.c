/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log/internal.h"
#include "base/text.h"

/* Format: "2026-01-02T03:04:05.678901Z". */
static void write_time(char *buf, size_t size, const struct timespec *t)
{
	struct tm tm;
	size_t n;

	if (!gmtime_r(&t->tv_sec, &tm))
		memset(&tm, 0, sizeof(tm));
	n = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, size - n, ".%06ldZ", t->tv_nsec / 1000);
}

static void field(struct json *j, const struct log_field *f)
{
	char text[LOG_MAX_STRING];

	switch (f->kind) {
	case LOG_KIND_STRING:
		if (f->string)
			text__clean(text, sizeof(text), f->string, strlen(f->string));
		json__string(j, f->key, f->string ? text : NULL);
		break;
	case LOG_KIND_UINT:
		json__uint(j, f->key, f->uint);
		break;
	case LOG_KIND_INT:
		json__int(j, f->key, f->sint);
		break;
	case LOG_KIND_DOUBLE:
		json__double(j, f->key, f->real, 6);
		break;
	case LOG_KIND_BOOL:
		json__bool(j, f->key, f->yes);
		break;
	}
}

void log_line__object(const struct log_line *l, struct json *j, const char *key)
{
	char time[40];

	write_time(time, sizeof(time), &l->time);
	json__open_object(j, key);
	json__string(j, "time", time);
	json__string(j, "level", log_config__level_name(l->level));
	json__string(j, "command", l->command);
	if (l->process)
		json__string(j, "process", l->process);
	json__int(j, "pid", l->pid);
	json__string(j, "part", l->part);
	if (l->event)
		json__string(j, "event", l->event);
	json__string(j, "message", l->text);
	for (const struct log_field *f = l->fields; f && f->key; f++)
		field(j, f);
	json__close_object(j);
}

/* Indents further lines of a message, so that they do not look like messages. */
static void plain(const struct log_line *l, FILE *out)
{
	char time[40];

	write_time(time, sizeof(time), &l->time);
	fprintf(out, "%s %-5s %s", time, log_config__level_name(l->level), l->command);
	if (l->process)
		fprintf(out, "/%s", l->process);
	fprintf(out, "[%d] %s: ", (int)l->pid, l->part);
	for (const char *c = l->text; *c; c++) {
		fputc(*c, out);
		if (*c == '\n')
			fputs("    ", out);
	}
	fputc('\n', out);
}

char *log_line__write(const struct log_line *l, bool json, size_t *len)
{
	char *line = NULL;
	FILE *out = open_memstream(&line, len);
	struct json *j;

	if (!out)
		return NULL;
	if (!json) {
		plain(l, out);
	} else {
		j = json__new(out, false);
		if (j)
			log_line__object(l, j, NULL);
		json__free(j);
	}
	if (fclose(out) || !*len) {
		free(line);
		return NULL;
	}
	return line;
}
