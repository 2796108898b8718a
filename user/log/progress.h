/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LOG_PROGRESS_H
#define MT_LOG_PROGRESS_H
/*
 * How far something is that takes its time, in one line on standard error: a bar, per cent and the
 *time left; a count where nobody knows how much there is. Only on a terminal, only once a second
 *has passed, and gone without a trace at the end. Messages of log.h go in front of it. One at a
 *time, in one thread.
 *
 *	struct progress p = progress__begin("reading run.mtr", size, "events");
 *	while (...)
 *		progress__at(&p, bytes, events);
 *	progress__end(&p);
 */
#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on;       /* someone can see it */
	bool shown;    /* it stands in the terminal now */
	char what[96]; /* cleaned */
	const char *noun;
	uint64_t total;
	uint64_t start, next; /* ns of the monotonic clock; next: when to write it again */
	uint64_t done, count; /* as last said */
};

/*
 * what: "reading run.mtr", may be a target's text. total: what done will be at the end, 0: not
 * known. noun: what the count is of, static. Begins nothing where standard error is no terminal,
 * and where another one is under way.
 */
struct progress progress__begin(const char *what, uint64_t total, const char *noun);
/* So far: done of total, and the count. Cheap enough to be called for every few events. */
void progress__at(struct progress *p, uint64_t done, uint64_t count);
/* Takes it off the terminal. */
void progress__end(struct progress *p);
/* Takes the line that stands, if one does, off the terminal: before something else is written
 * there. It comes again. */
void progress__clear(void);
/* Is standard error a terminal that can go back to the start of a line? */
bool progress__visible(void);

#endif
