/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_KEYS_H
#define MT_LIVE_KEYS_H
/* What keys do to a live view. */
#include <stddef.h>

struct live_state;

enum live_key { /* beside the characters */
		KEY_LIVE_UP = 0x110000,
		KEY_LIVE_DOWN,
		KEY_LIVE_LEFT,
		KEY_LIVE_RIGHT,
		KEY_LIVE_PAGE_UP,
		KEY_LIVE_PAGE_DOWN,
		KEY_LIVE_HOME,
		KEY_LIVE_END,
		KEY_LIVE_ENTER,
		KEY_LIVE_ESCAPE,
		KEY_LIVE_BACKSPACE,
		KEY_LIVE_BACKTAB,
};

enum live_act {
	ACT_NONE,
	ACT_DRAW,    /* what is shown has changed */
	ACT_REFRESH, /* and needs figures that are not there */
	ACT_RESET,   /* growth begins anew */
	ACT_REDRAW,  /* the terminal may show anything */
	ACT_QUIT,
	ACT_SAVE,
	ACT_EXPORT,
	ACT_MARK, /* of the name in typed */
	ACT_FLAME,
};

/* page: rows of the table on the screen. */
enum live_act live_keys__press(struct live_state *s, int key, size_t page);

struct live_key_help {
	const char *keys, *does;
};
/* All of them, for people; ends with NULL. An entry without keys is a title. */
extern const struct live_key_help live_keys__help[];

#endif
