/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/screen/keys.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "live/rows/graph.h"
#include "live/rows/state.h"

const struct live_key_help live_keys__help[] = {
	{ NULL, "Views (what the screen shows: see the end of this list)", NULL },
	{ "Tab, Shift-Tab", "next view, the one before", NULL },
	{ "0", "findings: what is wrong, as `memtrace-bpf diagnose` says", NULL },
	{ "1 2 3", "lines, modules, roles", NULL },
	{ "4 5 6", "tree of modules, CUDA segments, processes", NULL },
	{ "l", "lines or functions", NULL },
	{ "M, P", "modules, processes", NULL },
	{ "g, n", "next device, next process", NULL },
	{ "Enter, s", "a row's stacks, sizes and ages; Esc goes back", NULL },
	{ "+ -", "graph: less time in more detail, or more time", NULL },
	{ NULL, "Table", NULL },
	{ "t", "sort by live memory", NULL },
	{ "p", "sort by memory at the device's peak", NULL },
	{ "d", "sort by growth", NULL },
	{ "c, a", "sort by bytes, by allocations per second", NULL },
	{ "/", "filter: words, or module:blocks.3 role:activation block:>1M; empty: all", NULL },
	{ "r", "measure growth from now on", NULL },
	{ "Space", "pause the table; head, graph and events go on", NULL },
	{ "Up, Down, PgUp, Home", "choose a row, or scroll", NULL },
	{ "Right, Left", "tree: unfold a module, fold it", NULL },
	{ NULL, "Actions", NULL },
	{ "w", "save a recording of the last 5 minutes, at most 64 MiB", NULL },
	{ "e, E", "export it as a page, as a flame graph", NULL },
	{ "m", "write a mark into the recording", NULL },
	{ "L", "messages so far", NULL },
	{ "Ctrl-L", "draw the screen again", NULL },
	{ "?, h, F1", "this list", NULL },
	{ "Mouse", "click a view, a title or a row; wheel: scroll; with Shift: select text", NULL },
	{ "q, F10, Ctrl-C", "detach, quit, and print a summary", NULL },
	{ NULL, "On the screen", NULL },
	{ "live, step peak", "memory at the end of the last step, and the most during it", NULL },
	{ "allocated, reserved", "memory of tensors now; what the allocator took from CUDA", NULL },
	{ "driver, RSS", "the process's GPU memory by the driver; its host memory", NULL },
	{ "\u2588", "graph: memory that stayed allocated all the time", "#" },
	{ "\u2592", "graph: memory that was allocated only at times, such as activations", ":" },
	{ "\u2500", "graph: reserved memory", "-" },
	{ "\u25b2", "graph: a mark, of a person, a script or the sleep of an inference server",
	  "^" },
	{ "AT PEAK", "what the row held when the device had its peak", NULL },
	{ "GROWTH/STEP, /MIN", "growth between ends of steps; per minute in a job without steps",
	  NULL },
	{ "ALLOCS/S, BYTES/S", "allocations per second, also of memory that was freed again",
	  NULL },
	{ "ROLE", "parameter, gradient, optimizer state, activation, input ...", NULL },
	{ "(several)", "the row has memory of several roles or modules", NULL },
	{ "no role found", "no object in the program names this memory, so far", NULL },
	{ "before attach",
	  "memory older than the capture, without a stack; Enter lists what holds it", NULL },
	{ "lost", "events that were not recorded", NULL },
	{ "reduced detail", "--cost left out lines or modules; the summary says which", NULL },
	{ "drift", "largest difference from the allocator's own total", NULL },
	{ "unresolved", "share of stacks that could not be read in full", NULL },
	{ NULL, NULL, NULL },
};

/* True for a byte of a character in UTF-8 that is no control character. */
static bool is_byte_of_text(int key)
{
	return key >= ' ' && key <= 0xff && key != 0x7f;
}

/* The code of Ctrl with a letter. */
#define KEY_CTRL(letter) ((letter) - '@')

/* Handles a key in the prompt for a filter or a mark. Enter takes the text; a filter that is not
 * valid stays in the prompt. */
static enum live_act type_key(struct live_state *s, int key)
{
	size_t len = strlen(s->typed);
	bool offered = s->offered;
	char why[200];

	s->offered = false;
	switch (key) {
	case KEY_LIVE_ESCAPE:
		s->typing = TYPING_NOTHING;
		return ACT_DRAW;
	case KEY_LIVE_ENTER:
		if (s->typing == TYPING_MARK) {
			s->typing = TYPING_NOTHING;
			return ACT_MARK;
		}
		if (live_state__set_filter(s, s->typed, why, sizeof(why))) {
			live_state__say(s, LOG_WARN, /*own=*/true, "%s", why);
			s->refused = s->nmessages;
			return ACT_DRAW;
		}
		/* This filter is valid: remove the message that refused the one before. */
		if (s->refused && s->refused == s->nmessages)
			s->nmessages--;
		s->refused = 0;
		s->typing = TYPING_NOTHING;
		return ACT_REFRESH;
	case KEY_LIVE_BACKSPACE:
		/* remove all bytes of the character */
		while (len && (s->typed[len - 1] & 0xc0) == 0x80)
			len--;
		if (len)
			len--;
		s->typed[len] = '\0';
		return ACT_DRAW;
	case KEY_CTRL('U'):
		s->typed[0] = '\0';
		return ACT_DRAW;
	default:
		if (!is_byte_of_text(key) || len + 1 >= sizeof(s->typed))
			return ACT_NONE;
		/* The first key replaces a name that was offered. */
		len = offered ? 0 : len;
		s->typed[len] = (char)key;
		s->typed[len + 1] = '\0';
		return ACT_DRAW;
	}
}

/* Selects a row, or the last one if there are fewer. */
static enum live_act select_row(struct live_state *s, size_t to)
{
	size_t n = live_state__rows(s), last = n ? n - 1 : 0;
	const struct live_row *row;

	s->selected = to < last ? to : last;
	row = live_state__row(s);
	s->moved = s->selected != 0;
	s->selected_key = row ? row->key : 0;
	return ACT_DRAW;
}

static size_t minus_or_0(size_t n, size_t by)
{
	return n > by ? n - by : 0;
}

/* Scrolls a page that has no selected row. *first: its first line; page: lines on the screen. */
static enum live_act scroll_page(size_t *first, int key, size_t page)
{
	switch (key) {
	case KEY_LIVE_UP:
		*first = minus_or_0(*first, 1);
		return ACT_DRAW;
	case KEY_LIVE_DOWN:
		++*first;
		return ACT_DRAW;
	case KEY_LIVE_PAGE_UP:
		*first = minus_or_0(*first, page);
		return ACT_DRAW;
	case KEY_LIVE_PAGE_DOWN:
		*first += page;
		return ACT_DRAW;
	case KEY_LIVE_HOME:
		*first = 0;
		return ACT_DRAW;
	case KEY_LIVE_END: /* drawing limits it */
		*first = SIZE_MAX / 2;
		return ACT_DRAW;
	default:
		return ACT_NONE;
	}
}

/* Moves the selection. page: rows on the screen. */
static enum live_act move_selection(struct live_state *s, int key, size_t page)
{
	switch (key) {
	case KEY_LIVE_UP:
		return select_row(s, minus_or_0(s->selected, 1));
	case KEY_LIVE_DOWN:
		return select_row(s, s->selected + 1);
	case KEY_LIVE_PAGE_UP:
		return select_row(s, minus_or_0(s->selected, page));
	case KEY_LIVE_PAGE_DOWN:
		return select_row(s, s->selected + page);
	case KEY_LIVE_HOME:
		return select_row(s, 0);
	case KEY_LIVE_END:
		return select_row(s, SIZE_MAX);
	default:
		return ACT_NONE;
	}
}

/* Shows why a key has no effect now. */
static enum live_act refuse(struct live_state *s, const char *why)
{
	live_state__say(s, LOG_INFO, /*own=*/true, "%s", why);
	return ACT_DRAW;
}

#define SECOND UINT64_C(1000000000)

/* Selects the next shorter or longer span. 0 (the whole history) is the longest. */
static enum live_act zoom_graph(struct live_state *s, bool in)
{
	static const uint64_t spans[] = { 30, 120, 600, 3600, 14400, 86400 }; /* seconds */
	const size_t n = sizeof(spans) / sizeof(*spans);
	const struct live_proc *p = live_state__proc(s);
	uint64_t all = p ? p->now : 0, old_span = s->span;
	uint64_t shown = old_span ? old_span : all;
	size_t i = 0;

	/* in: the longest span below the shown one; i is SIZE_MAX if there is none. out: the
	 * shortest above it; i is n if there is none. */
	if (in) {
		for (i = n; i-- > 0 && spans[i] * SECOND >= shown;)
			;
		s->span = i < n ? spans[i] * SECOND : s->span;
	} else {
		while (i < n && spans[i] * SECOND <= shown)
			i++;
		s->span = i < n && spans[i] * SECOND < all ? spans[i] * SECOND : 0;
	}
	if (s->span == old_span)
		return refuse(s, in ? "the graph shows the shortest time"
				    : "the graph shows all of the time");
	return ACT_DRAW;
}

static enum live_act show_view(struct live_state *s, enum live_view v)
{
	live_state__choose_view(s, v);
	return ACT_REFRESH;
}

/* Sorts the table and goes to its first row. */
static enum live_act sort_rows(struct live_state *s, enum live_sort by)
{
	if (s->view == VIEW_FINDINGS || s->view == VIEW_SEGMENTS || s->view == VIEW_PROCESSES)
		return refuse(s, "this view has one order: 1 to 4 can be sorted");
	s->sort = by;
	s->moved = false;
	s->selected = s->first = 0;
	live_state__settle(s);
	return ACT_DRAW;
}

/* Shows the selected row's details, or hides them. A process becomes the chosen one. */
static enum live_act open_row(struct live_state *s)
{
	if (s->view == VIEW_PROCESSES) {
		live_state__choose_proc(s, s->selected);
		return show_view(s, VIEW_LINES);
	}
	if (!live_state__rows(s))
		return refuse(s, "there is no row to look at");
	select_row(s, s->selected);
	s->detail = !s->detail;
	s->detail_first = 0;
	return ACT_REFRESH;
}

#define ONE_PROCESS "this is the only process: --children follows those that it starts"

static enum live_act next_proc(struct live_state *s)
{
	if (s->nprocs < 2)
		return refuse(s, ONE_PROCESS);
	live_state__choose_proc(s, (s->chosen + 1) % s->nprocs);
	return ACT_REFRESH;
}

static enum live_act go_back(struct live_state *s)
{
	if (!s->detail)
		return refuse(s, "there is nothing to go back from: q detaches and quits");
	s->detail = false;
	return ACT_DRAW;
}

static enum live_act next_device(struct live_state *s)
{
	const struct live_proc *p = live_state__proc(s);

	if (!p || model__devices(p->model) < 2)
		return refuse(s, "this is the only device with tensors so far");
	live_state__next_device(s);
	return ACT_REFRESH;
}

/* Shows the next view that exists now; with `back`, the one before. */
static enum live_act turn_view(struct live_state *s, bool back)
{
	unsigned v = s->view;

	do
		v = (v + (back ? VIEW_NR - 1 : 1)) % VIEW_NR;
	while (!live_state__offers(s, v));
	return show_view(s, v);
}

/* Shows a view, unless there is nothing to show in it. */
static enum live_act choose_view(struct live_state *s, enum live_view v)
{
	const struct live_proc *p = live_state__proc(s);

	if (live_state__offers(s, v))
		return show_view(s, v);
	if (v == VIEW_PROCESSES)
		return refuse(s, ONE_PROCESS);
	return refuse(s, p && model__devices(p->model) > 1
				 ? "the CPU allocator has no segments: g chooses another device"
				 : "the CPU allocator has no segments");
}

/* Handles the keys that choose what is shown. ACT_NONE: it is another key. */
static enum live_act press_view(struct live_state *s, int key)
{
	switch (key) {
	case '\t':
		return turn_view(s, /*back=*/false);
	case KEY_LIVE_BACKTAB:
		return turn_view(s, /*back=*/true);
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
		return choose_view(s, key - '0');
	case 'l':
		s->by_function = s->view == VIEW_LINES ? !s->by_function : s->by_function;
		return show_view(s, VIEW_LINES);
	case 'M':
		return show_view(s, VIEW_MODULES);
	case 'P':
		return choose_view(s, VIEW_PROCESSES);
	case 'g':
		return next_device(s);
	case 'n':
		return next_proc(s);
	case 's':
	case KEY_LIVE_ENTER:
		return open_row(s);
	case '+':
	case '=':
		return zoom_graph(s, /*in=*/true);
	case '-':
		return zoom_graph(s, /*in=*/false);
	default:
		return ACT_NONE;
	}
}

/* Right (open) unfolds the module in the tree. Left folds it, or if it is folded selects its
 * parent. */
static enum live_act unfold_row(struct live_state *s, bool open)
{
	const struct live_row *row = live_state__row(s);
	size_t i = s->selected;

	if (s->view != VIEW_TREE || s->detail)
		return refuse(s, "Left and Right fold modules in the tree: press 4");
	if (!row)
		return ACT_NONE;
	if (row->has_inside && row->open != open) {
		select_row(s, s->selected);
		s->moved = true; /* also the first row stays selected when rows move */
		live_state__fold(s, s->selected_key);
		return ACT_DRAW;
	}
	while (!open && i && live_state__table(s)->all[i].depth >= row->depth)
		i--;
	return open ? ACT_NONE : select_row(s, i);
}

/* Handles the keys of a table. ACT_NONE: it is another key. */
static enum live_act press_table(struct live_state *s, int key)
{
	switch (key) {
	case 't':
		return sort_rows(s, SORT_LIVE);
	case 'p':
		return sort_rows(s, SORT_PEAK);
	case 'd':
		return sort_rows(s, SORT_GROWTH);
	case 'c':
		return sort_rows(s, SORT_CHURN);
	case 'a':
		return sort_rows(s, SORT_ALLOCS);
	case KEY_LIVE_RIGHT:
		return unfold_row(s, /*open=*/true);
	case KEY_LIVE_LEFT:
		return unfold_row(s, /*open=*/false);
	case '/':
		memcpy(s->typed, s->filter, sizeof(s->typed));
		s->typing = TYPING_FILTER;
		return ACT_DRAW;
	case 'r':
		return ACT_RESET;
	case ' ':
		s->paused = !s->paused;
		return s->paused ? ACT_DRAW : ACT_REFRESH;
	default:
		return ACT_NONE;
	}
}

/* Handles a key while the help or the list of messages is shown. */
static enum live_act press_overlay(struct live_state *s, int key, size_t page)
{
	bool help = key == '?' || key == 'h' || key == KEY_LIVE_HELP;

	if (key == KEY_LIVE_ESCAPE || key == 'q' || key == KEY_LIVE_QUIT || (s->help && help) ||
	    (s->log && key == 'L')) {
		s->help = s->log = false;
		return ACT_DRAW;
	}
	if (help || key == 'L') {
		s->help = help;
		s->log = !s->help;
		s->help_first = 0;
		return ACT_DRAW;
	}
	return scroll_page(&s->help_first, key, page);
}

#define WHEEL 3 /* rows by which the wheel scrolls */

/* Acts as WHEEL presses of an arrow key. */
static enum live_act turn_wheel(struct live_state *s, bool up, size_t page)
{
	enum live_act act = ACT_NONE;

	for (int i = 0; i < WHEEL; i++)
		act = live_keys__press(s, up ? KEY_LIVE_UP : KEY_LIVE_DOWN, page);
	return act;
}

/* A click selects a row; on the selected row it acts as Enter. */
static enum live_act click_row(struct live_state *s, size_t row)
{
	if (s->typing || s->help || s->log || s->detail || row >= live_state__rows(s))
		return ACT_NONE;
	return row == s->selected ? open_row(s) : select_row(s, row);
}

enum live_act live_keys__press(struct live_state *s, int key, size_t page)
{
	enum live_act act;

	if (key == KEY_LIVE_WHEEL_UP || key == KEY_LIVE_WHEEL_DOWN)
		return turn_wheel(s, key == KEY_LIVE_WHEEL_UP, page);
	if (key >= KEY_LIVE_ROW)
		return click_row(s, s->first + (size_t)(key - KEY_LIVE_ROW));

	if (key == KEY_CTRL('L'))
		return ACT_REDRAW;
	if (s->typing)
		return type_key(s, key);
	if (s->help || s->log)
		return press_overlay(s, key, page);
	switch (key) {
	case 'q':
	case 'Q':
	case KEY_LIVE_QUIT:
		return ACT_QUIT;
	case KEY_LIVE_ESCAPE:
		return go_back(s);
	case '?':
	case 'h':
	case KEY_LIVE_HELP:
	case 'L':
		s->help = key != 'L';
		s->log = !s->help;
		s->help_first = 0;
		return ACT_DRAW;
	case 'w':
		return ACT_SAVE;
	case 'e':
		return ACT_EXPORT;
	case 'E':
		return ACT_FLAME;
	case 'm':
		snprintf(s->typed, sizeof(s->typed), "mark %u", s->marks + 1);
		s->typing = TYPING_MARK;
		s->offered = true;
		return ACT_DRAW;
	}
	if (s->detail)
		act = scroll_page(&s->detail_first, key, page);
	else if (s->view == VIEW_FINDINGS)
		act = scroll_page(&s->first, key, page);
	else
		act = move_selection(s, key, page);
	if (act == ACT_NONE)
		act = press_view(s, key);
	if (act == ACT_NONE)
		act = press_table(s, key);
	if (act == ACT_NONE && key > ' ' && key < 0x7f)
		return refuse(s, "this key does nothing: ? lists all keys");
	return act;
}
