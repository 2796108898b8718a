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

void csv__put(FILE *out, const char *s)
{
	size_t size;
	char *clean;

	if (!s || is_plain(s)) {
		fputs(s ? s : "", out);
		return;
	}
	size = 4 * strlen(s) + 1;
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
