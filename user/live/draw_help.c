/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Keys, and messages so far. */
#include "live/paint.h"

#include <stdio.h>
#include <string.h>

#include "live/keys.h"
#include "live/state.h"
#include "live/words.h"

void draw_help(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = 0, first;

	while (live_keys__help[n].does)
		n++;
	first = n > (size_t)rows && s->help_first > n - (size_t)rows ? n - (size_t)rows : n > (size_t)rows ? s->help_first : 0;
	s->help_first = first;
	p->table_rows = rows;
	for (size_t i = first; i < n && rows > 0; i++, rows--, y++) {
		const struct live_key_help *h = &live_keys__help[i];

		if (h->keys)
			paint__right(p, y, 0, 32, INK_KEY, h->keys);
		paint__put(p, y, h->keys ? 34 : 0, p->columns - 34, h->keys ? INK_PLAIN : INK_BAR, h->does);
	}
}

void draw_log(struct paint *p, struct live_state *s, int y, int rows)
{
	size_t n = s->nmessages < LIVE_MESSAGES ? s->nmessages : LIVE_MESSAGES;
	char clock[24];

	if (!n)
		paint__put(p, y, 0, p->columns, INK_DIM, "no messages so far");
	s->help_first = s->help_first < n ? s->help_first : n ? n - 1 : 0;
	p->table_rows = rows;
	for (size_t i = s->help_first; i < n && rows > 0; i++, rows--, y++) {
		const struct live_message *m = live_state__message(s, i);

		paint__put(p, y, 0, 12, INK_DIM, live__clock(clock, m->time));
		paint__put(p, y, 13, p->columns - 13, m->level <= LOG_WARN ? INK_WARN : INK_PLAIN, m->text);
	}
}
