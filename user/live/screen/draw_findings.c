/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The findings of a process: what is wrong with its memory. */
#include "live/screen/paint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/state.h"

/* True for the first line of a fault: " 1. Leak on cuda:0: ...". */
static bool begins_fault(const char *line)
{
	return line[0] && line[1] >= '0' && line[1] <= '9' && line[2] == '.';
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* Draws the lines of text from s->first on. Does not scroll past the last one. */
static void draw_lines(struct paint *p, struct live_state *s, char *text, int y, int rows)
{
	size_t n = count_lines(text), page = rows > 0 ? (size_t)rows : 0;
	size_t most = n > page ? n - page : 0; /* largest s->first */
	char *line = text, *end;

	if (s->first > most)
		s->first = most;
	for (size_t i = 0; i < s->first + page && (end = strchr(line, '\n')); i++) {
		*end = '\0';
		/* The first line is a fault's, or says that there is none. */
		if (i >= s->first)
			paint__put(p, y++, 0, p->columns,
				   !i || begins_fault(line) ? INK_BOLD : INK_PLAIN, line);
		line = end + 1;
	}
}

void draw_findings(struct paint *p, struct live_state *s, int y, int rows)
{
	const struct live_proc *proc = live_state__proc(s);
	char *text = NULL, rss[LIVE_RSS_TEXT];
	size_t size;
	FILE *mem;

	p->table_rows = rows;
	if (!proc || !proc->findings_known) {
		paint__put(p, y, 0, p->columns, INK_DIM, "nothing is known so far");
		return;
	}
	mem = open_memstream(&text, &size);
	if (!mem)
		return;
	findings__list(mem, &proc->findings, (size_t)p->columns);
	if (*live_proc__say_rss(proc, rss))
		text__paragraph(mem, (size_t)p->columns, "", "  ", "%s", rss);
	if (!fclose(mem) && text)
		draw_lines(p, s, text, y, rows);
	free(text);
}
