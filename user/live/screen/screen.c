/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The terminal: setup and restoration, keys and drawing functions. */
#include "live/screen/screen.h"

#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"
#include "live/rows/state.h"
#include "live/screen/keys.h"
#include "live/screen/paint.h"
#include "live/screen/terminal.h"
#include "live/screen/tty.h"

#define ESCAPE_DELAY 40 /* ms after Esc during which further bytes belong to a key sequence */

struct screen {
	struct tty *tty;
	FILE *in;
	SCREEN *term;
	struct paint paint;
	bool suspended;
};

/* ---- drawing ---- */

/* Height of the graph: a third of the free rows, 4 to 16; 0 on small screens. It is even, so that
 * half of the scale is the edge of a row. */
static int graph_rows(int rows)
{
	int n = (rows - 6) / 6 * 2;

	if (rows < 14)
		return 0;
	if (n < 4)
		return 4;
	return n > 16 ? 16 : n;
}

/* Draws what is below the tabs: details, or the view. */
static void draw_body(struct paint *p, struct live_state *s, int y, int rows)
{
	if (s->detail)
		draw_detail(p, s, y, rows);
	else if (s->view == VIEW_FINDINGS)
		draw_findings(p, s, y, rows);
	else if (s->view == VIEW_SEGMENTS)
		draw_table__segments(p, s, y, rows);
	else if (s->view == VIEW_PROCESSES)
		draw_table__processes(p, s, y, rows);
	else
		draw_table(p, s, y, rows);
}

void screen__draw(struct screen *s, struct live_state *state)
{
	struct paint *p = &s->paint;
	int y = 3, graph;

	if (s->suspended)
		return;
	getmaxyx(stdscr, p->rows, p->columns);
	erase();
	p->nhits = 0;
	p->rows_n = 0;
	graph = graph_rows(p->rows);
	draw_head(p, state);
	if (state->help || state->log) {
		(state->help ? draw_help : draw_help__log)(p, state, y, p->rows - 2 - y);
	} else {
		if (graph)
			draw_graph(p, state, y, graph + 1);
		y += graph ? graph + 1 : 0;
		draw_head__tabs(p, state, y++);
		draw_body(p, state, y, p->rows - 2 - y);
	}
	draw_head__foot(p, state);
	attrset(A_NORMAL);
	refresh();
}

/* ---- the terminal ---- */

/* Never runs: see take_over(). */
static void on_stop(int sig)
{
	(void)sig;
}

/*
 * Starts curses but keeps our signal handlers.
 *
 * SIGTSTP gets a handler of ours, which never runs: the signal is blocked and read from a signalfd.
 * Without a handler, curses ignores the signal while it draws. Then the kernel discards a SIGTSTP
 * that was not read yet, and Ctrl-Z does nothing.
 */
static struct screen *take_over(struct screen *s)
{
	static const int all[] = { SIGINT, SIGTERM, SIGTSTP, SIGWINCH }; /* curses replaces these */
	struct sigaction old[sizeof(all) / sizeof(*all)];

	sigaction(SIGTSTP, &(struct sigaction){ .sa_handler = on_stop }, NULL);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		sigaction(all[i], NULL, &old[i]);
	s->term = terminal__open(stdout, s->in);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		sigaction(all[i], &old[i], NULL);
	return s->term ? s : NULL;
}

/* Reports presses of the left button, and the wheel. With Shift, terminals select text as usual. */
static void take_mouse(void)
{
	mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
	mouseinterval(0);
}

struct screen *screen__open(struct tty *t, bool colour, bool mouse)
{
	struct screen *s = calloc(1, sizeof(*s));
	int fd = s ? dup(tty__input(t)) : -1;

	if (fd >= 0)
		s->in = fdopen(fd, "r");
	if (!s || !s->in) {
		if (fd >= 0)
			close(fd);
		free(s);
		return NULL;
	}
	s->tty = t;
	tty__screen(t, /*up=*/true);
	if (!take_over(s)) {
		tty__screen(t, /*up=*/false);
		fclose(s->in);
		free(s);
		return NULL;
	}
	set_escdelay(ESCAPE_DELAY);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	if (mouse)
		take_mouse();
	colour = colour && has_colors() && start_color() == OK;
	if (colour)
		use_default_colors();
	paint__set_inks(colour);
	s->paint.unicode = text__unicode();
	return s;
}

void screen__close(struct screen *s)
{
	if (!s)
		return;
	endwin();
	delscreen(s->term);
	fclose(s->in);
	tty__screen(s->tty, /*up=*/false);
	free(s);
}

void screen__suspend(struct screen *s)
{
	def_prog_mode();
	endwin();
	s->suspended = true;
}

void screen__resume(struct screen *s)
{
	s->suspended = false;
	reset_prog_mode();
	screen__resized(s);
	screen__redraw(s);
}

void screen__redraw(struct screen *s)
{
	(void)s;
	clearok(curscr, TRUE);
}

void screen__resized(struct screen *s)
{
	struct winsize ws;

	(void)s;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_row && ws.ws_col)
		resizeterm(ws.ws_row, ws.ws_col);
}

size_t screen__page(const struct screen *s)
{
	return s->paint.table_rows > 1 ? (size_t)s->paint.table_rows : 1;
}

/* The key for what the mouse did; 0: none. */
static int mouse_key(const struct screen *s)
{
	MEVENT e;

	if (getmouse(&e) != OK)
		return 0;
	if (e.bstate & BUTTON4_PRESSED)
		return KEY_LIVE_WHEEL_UP;
	if (e.bstate & BUTTON5_PRESSED)
		return KEY_LIVE_WHEEL_DOWN;
	return e.bstate & BUTTON1_PRESSED ? paint__clicked(&s->paint, e.y, e.x) : 0;
}

#define ESCAPE 27	 /* code of the key Esc */
#define SEQUENCE_MOST 32 /* bytes of an escape sequence */

/* True for the last byte of an escape sequence (ECMA-48). */
static bool ends_sequence(int byte)
{
	return byte >= 0x40 && byte <= 0x7e;
}

/* Returns the key for Esc and the bytes that follow it at once. Arrows have two forms, and curses
 * knows one of them; this is the other. 0: Alt with a key, or an unknown sequence. Bytes that come
 * later are separate keys.
 */
static int escape_key(void)
{
	static const struct {
		int last, key;
	} keys[] = { { 'A', KEY_LIVE_UP },     { 'B', KEY_LIVE_DOWN }, { 'C', KEY_LIVE_RIGHT },
		     { 'D', KEY_LIVE_LEFT },   { 'H', KEY_LIVE_HOME }, { 'F', KEY_LIVE_END },
		     { 'Z', KEY_LIVE_BACKTAB } };
	int next = getch(), last = 0, n = 0;

	if (next == ERR)
		return KEY_LIVE_ESCAPE;
	if (next != '[' && next != 'O')
		return 0;
	while (n++ < SEQUENCE_MOST && (last = getch()) != ERR && !ends_sequence(last))
		;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && n == 1; i++)
		if (last == keys[i].last)
			return keys[i].key;
	return 0;
}

int screen__key(struct screen *s)
{
	static const struct {
		int curses, ours;
	} keys[] = {
		{ KEY_UP, KEY_LIVE_UP },	 { KEY_DOWN, KEY_LIVE_DOWN },
		{ KEY_LEFT, KEY_LIVE_LEFT },	 { KEY_RIGHT, KEY_LIVE_RIGHT },
		{ KEY_PPAGE, KEY_LIVE_PAGE_UP }, { KEY_NPAGE, KEY_LIVE_PAGE_DOWN },
		{ KEY_HOME, KEY_LIVE_HOME },	 { KEY_END, KEY_LIVE_END },
		{ KEY_ENTER, KEY_LIVE_ENTER },	 { '\r', KEY_LIVE_ENTER },
		{ '\n', KEY_LIVE_ENTER },	 { KEY_BACKSPACE, KEY_LIVE_BACKSPACE },
		{ 127, KEY_LIVE_BACKSPACE },	 { '\b', KEY_LIVE_BACKSPACE },
		{ KEY_BTAB, KEY_LIVE_BACKTAB },	 { KEY_F(1), KEY_LIVE_HELP },
		{ KEY_F(10), KEY_LIVE_QUIT },
	};
	int key;

	if (s->suspended)
		return -1;
	key = getch();
	if (key == ERR) /* no key is pressed, or the terminal is gone */
		return isatty(fileno(s->in)) ? -1 : -2;
	if (key == KEY_MOUSE)
		return mouse_key(s);
	if (key == ESCAPE)
		return escape_key();
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (key == keys[i].curses)
			return keys[i].ours;
	return key < KEY_MIN ? key : 0;
}
