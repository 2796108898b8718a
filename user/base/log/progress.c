/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

#define SECOND UINT64_C(1000000000)
#define EVERY (SECOND / 10) /* ns between two updates */
#define BAR_MOST 30	    /* columns of the bar, at most */

static struct progress *current; /* the progress on the terminal */
static bool under_way;		 /* a progress has begun and not ended */

bool progress__visible(void)
{
	const char *term = getenv("TERM");

	return !log__json_on_terminal() && isatty(STDERR_FILENO) && term && *term &&
	       strcmp(term, "dumb") != 0;
}

/* Removes the line of the progress from the terminal, if it is shown, before other output. The
 * next update shows it again. */
static void clear_line(void)
{
	if (!current)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	current->shown = false;
	current = NULL;
}

struct progress progress__begin(const char *what, uint64_t total, const char *noun)
{
	struct progress p = { .on = !under_way && progress__visible(),
			      .noun = noun,
			      .total = total };

	if (!p.on)
		return p;
	under_way = true;
	log__before_line(clear_line);
	text__clean(p.what, sizeof(p.what), what, strlen(what));
	p.start = clock__monotonic();
	p.next = p.start + SECOND;
	return p;
}

/* Returns the width of the terminal. */
static unsigned columns(void)
{
	struct winsize ws;

	return !ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) && ws.ws_col ? ws.ws_col : 80;
}

/* Writes "  47 %  12 s left"; without a time if the estimate is unreliable. */
static void write_percent(char *buf, size_t size, const struct progress *p, uint64_t passed)
{
	uint64_t done = p->done < p->total ? p->done : p->total;
	double left = done ? (double)passed * (double)(p->total - done) / (double)done : 0;
	int len = snprintf(buf, size, "  %3u %%",
			   (unsigned)((unsigned __int128)done * 100 / p->total));
	unsigned long seconds = (unsigned long)(left / 1e9 + 0.5);

	if (!done || left > 360000e9) /* 100 hours */
		return;
	if (seconds < 60)
		snprintf(buf + len, size - len, "  %lu s left", seconds);
	else if (seconds < 3600)
		snprintf(buf + len, size - len, "  %lu min %02lu s left", seconds / 60,
			 seconds % 60);
	else
		snprintf(buf + len, size - len, "  %lu h %02lu min left", seconds / 3600,
			 seconds / 60 % 60);
}

/* Shows the progress in place of the line on the terminal. passed: ns since the start. */
static void show_progress(struct progress *p, uint64_t passed)
{
	char words[64], bar[TEXT_BAR], count[32], time[24], what[sizeof(p->what)];
	/* some terminals wrap after the last column */
	unsigned width = columns() - 1, used, room;

	if (p->total)
		write_percent(words, sizeof(words), p, passed);
	else
		snprintf(words, sizeof(words), "  %s %s  %s",
			 text__count(count, sizeof(count), p->count), p->noun,
			 text__time(time, sizeof(time), passed));
	used = text__width(words);
	if (used >= width)
		return;
	strcpy(what, p->what);
	while (text__width(what) > width - used) { /* remove a whole character */
		size_t len = strlen(what);

		while (len && (what[--len] & 0xc0) == 0x80)
			;
		what[len] = '\0';
	}
	room = width - used - text__width(what);
	fprintf(stderr, "\r\033[K%s", what);
	if (p->total && room > 8)
		fprintf(stderr, "  %s",
			text__bar(bar, p->done, p->total, room - 2 < BAR_MOST ? room - 2 : BAR_MOST,
				  text__unicode(), /*fill=*/true));
	fputs(words, stderr);
	fflush(stderr);
	p->shown = true;
	current = p;
}

void progress__at(struct progress *p, uint64_t done, uint64_t count)
{
	uint64_t now;

	if (!p->on)
		return;
	p->done = done;
	p->count = count;
	now = clock__monotonic();
	if (now < p->next)
		return;
	p->next = now + EVERY;
	show_progress(p, now - p->start);
}

void progress__end(struct progress *p)
{
	if (!p->on)
		return;
	if (p->shown)
		clear_line();
	p->on = false;
	under_way = false;
}
