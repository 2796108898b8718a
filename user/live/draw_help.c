/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The pages with the keys and with the messages. */
#include "live/paint.h"

#include <stdio.h>
#include <string.h>

#include "lib/text.h"
#include "live/keys.h"
#include "live/state.h"
#include "live/words.h"

void draw_help(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = 0, first;

	while (live_keys__help[n].does)
		n++;
	first = n > (size_t)rows && s->help_first > n - (size_t)rows ? n - (size_t)rows
		: n > (size_t)rows				     ? s->help_first
								     : 0;
	s->help_first = first;
	p->table_rows = rows;
	for (size_t i = first; i < n && rows > 0; i++, rows--, y++) {
		const struct live_key_help *h = &live_keys__help[i];

		if (h->keys)
			paint__right(p, y, 0, 32, INK_KEY, h->keys);
		paint__put(p, y, h->keys ? 34 : 0, p->columns - 34, h->keys ? INK_PLAIN : INK_BAR,
			   h->does);
	}
}

/* Draws a message, wrapped to the width. Returns the number of rows used. */
static int draw_message(struct paint *p, const struct live_message *m, int y, int rows)
{
	enum ink ink = m->level <= LOG_WARN ? INK_WARN : INK_PLAIN;
	int width = p->columns - 13, n = 0;
	const char *from = m->text;
	char part[sizeof(m->text)], clock[24];

	paint__put(p, y, 0, 12, INK_DIM, live__clock(clock, m->time));
	while (*from && n < rows) {
		size_t len = strlen(from), end;

		/* Cut the line at the width, at a space if there is one. */
		snprintf(part, sizeof(part), "%s", from);
		while ((int)text__width(part) > width) {
			for (end = strlen(part) - 1; end && (part[end] & 0xc0) == 0x80; end--)
				;
			part[end] = '\0';
			len = end;
		}
		if (from[len]) {
			char *space = strrchr(part, ' ');

			if (space && space > part) {
				*space = '\0';
				len = (size_t)(space - part) + 1;
			}
		}
		paint__put(p, y + n++, 13, width, ink, part);
		if (!len)
			break;
		from += len;
	}
	return n ? n : 1;
}

void draw_help__log(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = s->nmessages < LIVE_MESSAGES ? s->nmessages : LIVE_MESSAGES;

	if (!n)
		paint__put(p, y, 0, p->columns, INK_DIM, "no messages so far");
	s->help_first = s->help_first < n ? s->help_first : n ? n - 1 : 0;
	p->table_rows = rows;
	for (size_t i = s->help_first; i < n && rows > 0 && p->columns > 20; i++) {
		int used = draw_message(p, live_state__message(s, i), y, rows);

		rows -= used;
		y += used;
	}
}
