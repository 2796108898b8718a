/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Actions of the keys in a live view. */
#include <stddef.h>

struct live_state;

enum live_key { /* keys that are not characters */
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
		KEY_LIVE_HELP,
		KEY_LIVE_QUIT,
		KEY_LIVE_WHEEL_UP,
		KEY_LIVE_WHEEL_DOWN,
		/* A click on the i-th row of the table on the screen is KEY_LIVE_ROW + i. */
		KEY_LIVE_ROW = 0x120000,
};

enum live_act {
	ACT_NONE,
	ACT_DRAW,    /* redraw the screen from known figures */
	ACT_REFRESH, /* read new figures, then redraw */
	ACT_RESET,   /* restart the measuring of growth */
	ACT_REDRAW,  /* redraw everything: the terminal's content may be damaged */
	ACT_QUIT,
	ACT_SAVE,   /* save a recording */
	ACT_EXPORT, /* export it as a page */
	ACT_MARK,   /* write a mark with the name in live_state.typed */
	ACT_FLAME,  /* export a flame graph */
};

/* Handles a key. page: table rows on the screen. */
enum live_act live_keys__press(struct live_state *s, int key, size_t page);

struct live_key_help {
	const char *keys, *does;
	const char *ascii; /* keys for a terminal without UTF-8; NULL: the same */
};
#define LIVE_KEYS_WIDTH 20 /* columns of the longest keys */
/* Descriptions of all keys, then a legend of the screen. An entry without keys is a title. The last
 * entry is all NULL. */
extern const struct live_key_help live_keys__help[];
