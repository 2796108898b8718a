/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/check_lines.h"

#include <string.h>

#include "base/text.h"

void check_lines__add(struct check_lines *l, bool ok, const char *what, const char *text,
		      int status)
{
	char clean[1024], first[64];

	text__clean(clean, sizeof(clean), text, strlen(text));
	snprintf(first, sizeof(first), "%-4s %-16s ", ok ? "ok" : status ? "NO" : "-", what);
	text__paragraph(l->out, text__one_line(text__columns(stdout)), first,
			"                      ", "%s", clean);
	if (ok || !status || l->status)
		return;
	l->status = status;
	snprintf(l->why, sizeof(l->why), "%s: %.900s", what, clean);
}
