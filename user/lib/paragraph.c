/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/paragraph.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "lib/text.h"

void paragraph__print(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		      ...)
{
	char text[PARAGRAPH_TEXT];
	bool begun = false;
	size_t at = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	at = (size_t)fprintf(out, "%s", first);
	for (char *word = text, *next; word; word = next) {
		next = strchr(word, ' ');
		/* A number stays with its unit. */
		while (next && next > word && next[-1] >= '0' && next[-1] <= '9')
			next = strchr(next + 1, ' ');
		if (next)
			*next++ = '\0';
		if (begun && at + 1 + text__width(word) > width)
			at = fprintf(out, "\n%s", rest) - 1;
		else if (begun)
			at += fprintf(out, " ");
		fputs(word, out);
		at += text__width(word);
		begun = true;
	}
	fputc('\n', out);
}
