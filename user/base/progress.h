/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A progress line on standard error with a bar, percentage and remaining time, or a count if the
 * total is not known. Shown only on a terminal and after one second; removed at the end. Messages
 * of log.h appear above it. Only one progress at a time, in one thread.
 *
 *  struct progress p = progress__begin("reading run.mtr", size, "events");
 *  while (...)
 *    progress__at(&p, bytes, events);
 *  progress__end(&p);
 */
#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on;       /* progress is shown on this terminal */
	bool shown;    /* the line is on the terminal now */
	char what[96]; /* description, cleaned */
	const char *noun;
	uint64_t total;
	uint64_t start, next; /* ns of the monotonic clock; next: next update */
	uint64_t done, count; /* values of the last progress__at() */
};

/*
 * what: "reading run.mtr"; may be untrusted text. total: value of `done` at the end; 0: not known.
 * noun: unit of the count, static. Does nothing if standard error is not a terminal or another
 * progress is running.
 */
struct progress progress__begin(const char *what, uint64_t total, const char *noun);
/* Updates done (of total) and the count. Cheap enough for every few events. */
void progress__at(struct progress *p, uint64_t done, uint64_t count);
/* Removes the line. */
void progress__end(struct progress *p);
/* True if standard error is a terminal that can rewrite a line. */
bool progress__visible(void);
