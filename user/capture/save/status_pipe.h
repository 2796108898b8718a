/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The status of a capture, as JSON lines in a pipe to the program that started it (--tell, from
 * `serve`). Writing never blocks.
 * {"state": "opened"|"capturing"|"ended", "pid", "seconds", "events", "lost", "steps", "dropped",
 * "bytes", "host" (once read: resident bytes of each known part), "reason" (ended alone)}
 */
struct event;
struct output;
struct recording;

/* Writes a line. o: the output of the process of loop.args.pid; NULL: there is none. After "ended"
 * nothing is written. */
void status_pipe__tell(struct recording *r, const struct output *o, const char *state,
		       const char *reason);
/* Keeps the last reading of host memory for the next line. e: an event of that process. */
void status_pipe__event(struct recording *r, const struct event *e);
/* Writes a line "capturing", at most two a second. */
void status_pipe__drained(struct recording *r, const struct output *o);
