/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* True if the text needs neither cleaning nor quotes. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s > '~' || *s == ',' || *s == '"')
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

static bool raw; /* see csv__set_raw() */

void csv__set_raw(bool set)
{
	raw = set;
}

/* True if a spreadsheet would take the text for a formula. Some do so for full-width characters,
 * too. */
static bool is_formula(const char *s)
{
	static const char *const wide[] = { "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d",
					    "\xef\xbc\xa0" };

	if (*s && strchr("=+-@", *s))
		return true;
	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
		if (!strncmp(s, wide[i], strlen(wide[i])))
			return true;
	}
	return false;
}

/* True if a spreadsheet may begin a cell here: at the start of the field, or after a semicolon,
 * which separates columns in some countries. */
static bool begins_cell(const char *field, const char *at)
{
	return at == field || at[-1] == ';';
}

/* Writes the text cleaned, in quotes if needed. */
static void put_clean(FILE *out, const char *s)
{
	size_t size = 4 * strlen(s) + 1;
	char *clean;

	if (is_plain(s)) {
		fputs(s, out);
		return;
	}
	clean = malloc(size);
	if (!clean)
		return;
	text__clean(clean, size, s, strlen(s));
	if (strpbrk(clean, ",\""))
		put_quoted(out, clean);
	else
		fputs(clean, out);
	free(clean);
}

/* Writes an apostrophe before each formula. */
void csv__put(FILE *out, const char *s)
{
	size_t apostrophes = 0, n = 0;
	char *safe;

	for (const char *at = s; s && !raw && *at; at++)
		apostrophes += begins_cell(s, at) && is_formula(at);
	if (!apostrophes) {
		put_clean(out, s ? s : "");
		return;
	}
	safe = malloc(strlen(s) + apostrophes + 1);
	if (!safe)
		return;
	for (const char *at = s; *at; at++) {
		if (begins_cell(s, at) && is_formula(at))
			safe[n++] = '\'';
		safe[n++] = *at;
	}
	safe[n] = '\0';
	put_clean(out, safe);
	free(safe);
}
