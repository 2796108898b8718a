/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define JSON_MAX_DEPTH 64

struct level {
	bool array;
	bool filled; /* has a value, so that the next one needs a comma */
};

struct json {
	FILE *out;
	bool pretty;
	unsigned int depth;
	bool done; /* the top-level value has been started */
	struct level levels[JSON_MAX_DEPTH];
};

struct json *json__new(FILE *out, bool pretty)
{
	struct json *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->out = out;
	j->pretty = pretty;
	return j;
}

void json__free(struct json *j)
{
	if (!j)
		return;
	if (j->done && !j->depth)
		fputc('\n', j->out);
	free(j);
}

/* Ends the line and indents the next one, if the output is pretty. */
static void start_line(struct json *j)
{
	if (!j->pretty)
		return;
	fputc('\n', j->out);
	for (unsigned int i = 0; i < j->depth; i++)
		fputc(' ', j->out);
}

/* Writes a character of a string, escaped if needed. bytes: its n bytes; prev, next: the bytes
 * around it. */
static void put_char(FILE *out, uint32_t code, const char *bytes, size_t n, char prev, char next)
{
	static const char *const shorts[] = {
		['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n",	 ['\f'] = "\\f",
		['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\",
	};

	if (code < sizeof(shorts) / sizeof(shorts[0]) && shorts[code])
		fputs(shorts[code], out);
	else if (text__acts(code) || (code == '<' && next == '!'))
		/* Terminals show JSON, too. U+2028 ends a line in older JavaScript. "<!--" changes
		 * how HTML parses a script. */
		fprintf(out, "\\u%04x", code);
	else if (code == '/' && prev == '<')
		fputs("\\/", out);
	else
		fwrite(bytes, 1, n, out);
}

/* Returns the number of bytes at the beginning of s that need no escapes. */
static size_t plain_length(const char *s)
{
	size_t n = 0;

	while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\' && s[n] != '<')
		n++;
	return n;
}

static void put_string(FILE *out, const char *s)
{
	size_t len = strlen(s), n, at;

	at = plain_length(s);
	fputc('"', out);
	fwrite(s, 1, at, out);
	for (; at < len; at += n) {
		uint32_t code;

		n = utf8__decode(s + at, len - at, &code);
		if (!n) { /* U+FFFD for an invalid byte */
			fputs("\xef\xbf\xbd", out);
			n = 1;
			continue;
		}
		put_char(out, code, s + at, n, at ? s[at - 1] : '\0', s[at + n]);
	}
	fputc('"', out);
}

/* Writes the comma, line end and key before a value. */
static void begin_value(struct json *j, const char *key)
{
	struct level *level;

	if (!j->depth) {
		if (j->done || key)
			abort();
		j->done = true;
		return;
	}
	level = &j->levels[j->depth - 1];
	if (level->array != !key)
		abort();
	if (level->filled)
		fputc(',', j->out);
	level->filled = true;
	start_line(j);
	if (key) {
		put_string(j->out, key);
		fputs(j->pretty ? ": " : ":", j->out);
	}
}

static void open_level(struct json *j, const char *key, bool array)
{
	begin_value(j, key);
	if (j->depth == JSON_MAX_DEPTH)
		abort();
	j->levels[j->depth++] = (struct level){ .array = array };
	fputc(array ? '[' : '{', j->out);
}

static void close_level(struct json *j, bool array)
{
	bool filled;

	if (!j->depth || j->levels[j->depth - 1].array != array)
		abort();
	filled = j->levels[--j->depth].filled;
	if (filled)
		start_line(j);
	fputc(array ? ']' : '}', j->out);
}

void json__open_object(struct json *j, const char *key)
{
	open_level(j, key, /*array=*/false);
}

void json__close_object(struct json *j)
{
	close_level(j, /*array=*/false);
}

void json__open_array(struct json *j, const char *key)
{
	open_level(j, key, /*array=*/true);
}

void json__close_array(struct json *j)
{
	close_level(j, /*array=*/true);
}

void json__string(struct json *j, const char *key, const char *value)
{
	begin_value(j, key);
	if (value)
		put_string(j->out, value);
	else
		fputs("null", j->out);
}

void json__uint(struct json *j, const char *key, uint64_t value)
{
	begin_value(j, key);
	fprintf(j->out, "%llu", (unsigned long long)value);
}

void json__raw(struct json *j, const char *value)
{
	begin_value(j, NULL);
	fputs(value, j->out);
}

void json__int(struct json *j, const char *key, int64_t value)
{
	begin_value(j, key);
	fprintf(j->out, "%lld", (long long)value);
}

void json__double(struct json *j, const char *key, double value, int decimals)
{
	char text[400]; /* the largest double has 309 digits before the point */
	bool point = false;

	if (!isfinite(value)) {
		json__null(j, key);
		return;
	}
	begin_value(j, key);
	if (decimals < 0)
		decimals = 0;
	if (decimals > 17)
		decimals = 17;
	snprintf(text, sizeof(text), "%.*f", decimals, value);
	for (const char *p = text; *p; p++) {
		if ((*p >= '0' && *p <= '9') || *p == '-') {
			fputc(*p, j->out);
		} else if (!point) { /* the locale's decimal point, of any length */
			fputc('.', j->out);
			point = true;
		}
	}
}

void json__seconds(struct json *j, const char *key, uint64_t ns, int decimals)
{
	json__double(j, key, (double)ns / 1e9, decimals);
}

void json__bool(struct json *j, const char *key, bool value)
{
	begin_value(j, key);
	fputs(value ? "true" : "false", j->out);
}

void json__null(struct json *j, const char *key)
{
	begin_value(j, key);
	fputs("null", j->out);
}

void json__uint_or_null(struct json *j, const char *key, bool known, uint64_t value)
{
	if (known)
		json__uint(j, key, value);
	else
		json__null(j, key);
}

/* Bounds the memory by the characters that make values: a number takes two bytes of text and 40 of
 * memory, an empty object three and 300. */
uint64_t json__memory_of(const char *text, size_t size)
{
	static const uint16_t bytes_for[UINT8_MAX + 1] = { [','] = 48, ['['] = 160, ['{'] = 320 };
	uint64_t bytes = size;

	for (size_t i = 0; i < size; i++)
		bytes += bytes_for[(unsigned char)text[i]];
	return bytes;
}
