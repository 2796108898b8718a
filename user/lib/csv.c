/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/csv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"

static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e || *s == ',' || *s == '"')
			return false;
	return true;
}

static void put_quoted(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static bool raw;

void csv__set_raw(bool set)
{
	raw = set;
}

/* Also as full-width characters, which some spreadsheets take for the same. */
static bool is_formula(const char *s)
{
	static const char *const wide[] = { "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0" };

	if (*s && strchr("=+-@", *s))
		return true;
	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
		if (!strncmp(s, wide[i], strlen(wide[i])))
			return true;
	}
	return false;
}

void csv__put(FILE *out, const char *s)
{
	size_t size, mark = s && !raw && is_formula(s);
	char *clean;

	if (mark && is_plain(s))
		fputc('\'', out);
	if (!s || is_plain(s)) {
		fputs(s ? s : "", out);
		return;
	}
	size = 4 * strlen(s) + 2;
	clean = malloc(size);
	if (!clean)
		return;
	clean[0] = '\'';
	text__clean(clean + mark, size - mark, s, strlen(s));
	if (strpbrk(clean, ",\""))
		put_quoted(out, clean);
	else
		fputs(clean, out);
	free(clean);
}
