/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_STATUS_PIPE_H
#define MT_SAVE_STATUS_PIPE_H
/*
 * The status of a capture, as JSON lines in a pipe to the program that started it (--tell, from
 * `serve`). Writing never blocks.
 * {"state": "opened"|"capturing"|"ended", "pid", "seconds", "events", "lost", "steps", "dropped",
 * "bytes", "reason" (ended alone)}
 */
struct recording;

void status_pipe__opened(struct recording *r);
void status_pipe__attached(struct recording *r);
void status_pipe__drained(struct recording *r); /* at most two lines a second */
void status_pipe__ended(struct recording *r);

#endif
