/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The pages with the keys and with the messages. */
#include "live/screen/paint.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "live/screen/keys.h"

struct region { /* a part of the screen that shows some lines of a longer text */
	struct paint *p;
	int y, end;  /* next row, and the one after the last */
	size_t skip; /* lines above the region that are still to come */
};

/* Draws text from column x on, wrapped at spaces if possible, with its label left of the first
 * line. Returns the number of lines, drawn or not. */
static size_t wrap(struct region *g, const char *label, int x, enum ink ink, const char *text)
{
	int width = g->p->columns - x;
	char part[sizeof(((struct live_message *)0)->text)];
	size_t n = 0;

	if (width < 8)
		return 0;
	do {
		size_t len = strlen(text);

		/* part: as many whole characters as fit; len: their bytes, and a space after them */
		snprintf(part, sizeof(part), "%s", text);
		while ((int)text__width(part) > width) {
			for (len = strlen(part) - 1; len && (part[len] & 0xc0) == 0x80; len--)
				;
			part[len] = '\0';
		}
		if (text[len]) {
			char *space = strrchr(part, ' ');

			if (space && space > part) {
				*space = '\0';
				len = (size_t)(space - part) + 1;
			}
		}
		if (g->skip) {
			g->skip--;
		} else if (g->y < g->end) {
			if (label && !n)
				paint__right(g->p, g->y, 0, x - 2, INK_KEY, label);
			paint__put(g->p, g->y++, x, width, ink, part);
		}
		n++;
		text += len;
	} while (*text);
	return n;
}

/* Draws the help from line `first`. Returns the number of its lines. */
static size_t help_lines(struct paint *p, size_t first, int y, int rows)
{
	struct region g = { .p = p, .y = y, .end = y + rows, .skip = first };
	size_t n = 0;

	for (const struct live_key_help *h = live_keys__help; h->does; h++)
		if (!h->keys)
			n += wrap(&g, /*label=*/NULL, 0, INK_BAR, h->does);
		else
			n += wrap(&g, !p->unicode && h->ascii ? h->ascii : h->keys,
				  LIVE_KEYS_WIDTH + 2, INK_PLAIN, h->does);
	return n;
}

void draw_help(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = help_lines(p, 0, y, 0), page = rows > 0 ? (size_t)rows : 0;
	size_t last = n > page ? n - page : 0;

	if (s->help_first > last)
		s->help_first = last;
	p->table_rows = rows;
	help_lines(p, s->help_first, y, rows);
}

void draw_help__log(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = s->nmessages < LIVE_MESSAGES ? s->nmessages : LIVE_MESSAGES;
	char clock[24];

	if (!n)
		paint__put(p, y, 0, p->columns, INK_DIM, "no messages so far");
	if (s->help_first >= n)
		s->help_first = n ? n - 1 : 0;
	p->table_rows = rows;
	for (size_t i = s->help_first; i < n && rows > 0 && p->columns > 20; i++) {
		const struct live_message *m = live_state__message(s, i);
		struct region g = { .p = p, .y = y, .end = y + rows };

		paint__put(p, y, 0, /*width=*/12, INK_DIM, live__clock(clock, m->time));
		wrap(&g, /*label=*/NULL, /*x=*/13, m->level <= LOG_WARN ? INK_WARN : INK_PLAIN,
		     m->text);
		rows -= g.y - y;
		y = g.y;
	}
}
