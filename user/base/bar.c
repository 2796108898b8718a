/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/bar.h"

#include <langinfo.h>
#include <string.h>

bool bar__unicode(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

char *bar__draw(char *buf, uint64_t part, uint64_t whole, unsigned columns, bool unicode, bool fill)
{
	/* U+2588 is a full block, the seven after it one eighth less each. */
	const unsigned steps = unicode ? 8 : 1;
	unsigned all, full;
	char *p = buf;

	columns = columns < BAR_MAX ? columns : BAR_MAX;
	all = columns * steps;
	part = part < whole ? part : whole;
	full = whole ? (unsigned)((unsigned __int128)part * all / whole) : 0;
	if (part && !full)
		full = 1;
	for (unsigned c = 0; c < columns; c++) {
		unsigned here = full > c * steps ? full - c * steps : 0;

		here = here < steps ? here : steps;
		if (here && unicode) {
			memcpy(p, "\xe2\x96", 2);
			p[2] = (char)(0x90 - here);
			p += 3;
		} else if (here || fill) {
			*p++ = here ? '#' : ' ';
		}
	}
	*p = '\0';
	return buf;
}
