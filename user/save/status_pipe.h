/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_STATUS_PIPE_H
#define MT_SAVE_STATUS_PIPE_H
/*
 * What a capture tells the program that started it (--tell, which `serve` gives): lines of JSON
 * into a pipe, which nobody waits for.
 * {"state": "opened"|"capturing"|"ended", "pid", "seconds", "events", "lost", "steps", "dropped",
 * "bytes", "reason" (ended alone)}
 */
struct recording;

void status_pipe__opened(struct recording *r);
void status_pipe__attached(struct recording *r);
void status_pipe__drained(struct recording *r); /* tells twice a second at most */
void status_pipe__ended(struct recording *r);

#endif
