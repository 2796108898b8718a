/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Drawing of text and figures on the screen with ncurses. */
#include "live/screen/paint.h"

#include <curses.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "live/screen/keys.h"
#include "model/words.h"

static attr_t inks[INK_NR];

void paint__set_inks(bool colour)
{
	static const struct {
		attr_t attr;
		short colour; /* foreground colour; -1: none */
	} all[INK_NR] = {
		[INK_PLAIN] = { A_NORMAL, -1 },
		[INK_BOLD] = { A_BOLD, -1 },
		[INK_DIM] = { A_DIM, -1 },
		[INK_BAR] = { A_REVERSE, -1 },
		[INK_BAR_ON] = { A_REVERSE | A_BOLD | A_UNDERLINE, -1 },
		[INK_SELECTED] = { A_REVERSE, COLOR_BLACK }, /* with colours black on cyan */
		[INK_ALLOCATED] = { A_NORMAL, COLOR_GREEN },
		[INK_WITHIN] = { A_DIM, COLOR_GREEN },
		[INK_RESERVED] = { A_NORMAL, COLOR_CYAN },
		[INK_PEAK] = { A_BOLD, COLOR_MAGENTA },
		[INK_GREW] = { A_NORMAL, COLOR_RED },
		[INK_GREW_MOST] = { A_BOLD, COLOR_RED },
		[INK_SHRANK] = { A_NORMAL, COLOR_GREEN },
		[INK_WARN] = { A_BOLD, COLOR_RED },
		[INK_KEY] = { A_BOLD, -1 },
	};

	for (short i = 0; i < INK_NR; i++) {
		bool on_cyan = i == INK_SELECTED;

		inks[i] = all[i].attr;
		if (!colour || all[i].colour < 0)
			continue;
		init_pair((short)(i + 1), all[i].colour, on_cyan ? COLOR_CYAN : -1);
		inks[i] = COLOR_PAIR(i + 1) | (on_cyan ? A_NORMAL : all[i].attr);
	}
}

/* Replaces each character that is not ASCII with "?". In an ASCII locale, curses would draw it
 * wider. */
static void to_ascii(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (!(*s & 0x80))
			*to++ = *s;
		else if ((*s & 0xc0) != 0x80)
			*to++ = '?';
	}
	*to = '\0';
}

int paint__put(struct paint *p, int y, int x, int width, enum ink ink, const char *text)
{
	char buf[1024];
	int used;

	if (y < 0 || y >= p->rows || x >= p->columns || width <= 0)
		return 0;
	if (width > p->columns - x)
		width = p->columns - x;
	snprintf(buf, sizeof(buf), "%s", text);
	if (!p->unicode)
		to_ascii(buf);
	words__cut(buf, (size_t)width);
	used = (int)text__width(buf);
	attrset(inks[ink]);
	mvaddstr(y, x, buf);
	return used;
}

void paint__right(struct paint *p, int y, int x, int width, enum ink ink, const char *text)
{
	int used = (int)text__width(text);

	paint__put(p, y, used < width ? x + width - used : x, width, ink, text);
}

void paint__fill(struct paint *p, int y, enum ink ink)
{
	if (y < 0 || y >= p->rows || p->columns <= 0)
		return;
	attrset(inks[ink]);
	mvhline(y, 0, ' ', p->columns);
}

void paint__hit(struct paint *p, int y, int x, int width, int key)
{
	if (p->nhits < PAINT_HITS)
		p->hits[p->nhits++] = (struct hit){ y, x, width, key };
}

int paint__clicked(const struct paint *p, int y, int x)
{
	for (size_t i = 0; i < p->nhits; i++) {
		const struct hit *h = &p->hits[i];

		if (h->y == y && x >= h->x && x < h->x + h->width)
			return h->key;
	}
	if (y >= p->rows_y && y < p->rows_y + p->rows_n)
		return KEY_LIVE_ROW + (y - p->rows_y);
	return 0;
}
