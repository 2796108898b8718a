/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_CAPTURE_LOOP_INTERNAL_H
#define MT_FOLLOW_CAPTURE_LOOP_INTERNAL_H
/* What the loop around one first process (capture_loop.c) and that of several that are picked
 * (capture_many.c) have in common. */
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "follow/capture_loop.h"

enum { FD_SIGNAL, FD_TARGET, FD_RELATIVES, FD_TIMER, FD_HURRY, FD_NR };

/* Gives up all capabilities but keep, of enum in capture/caps.h. */
void capture_loop__limit_caps(unsigned int keep);
/* A signal came. True: it is for us; false: the caller's signalled() was called for it. */
bool capture_loop__signalled(struct capture_loop *loop);
/* As poll() of the first n, and of the sources, which are told. */
void capture_loop__wait_for(struct capture_loop *loop, struct pollfd *fds, size_t n, int ms);
/* ms, or less where one of the others wants it, -1: no hurry. */
int capture_loop__poll_ms(const struct capture_loop *loop, int ms);
void capture_loop__pump_relatives(struct capture_loop *loop, const struct pollfd *fds);
/* There is no first process, or it has not come to anything: theirs is the time that passes, and it
 * is over. */
bool capture_loop__is_enough(const struct capture_loop *loop);
/* "10.0 s have passed", "60 steps have passed", "the target's end". Returns buf or static text. */
const char *capture_loop__say_until(char *buf, size_t size, const struct capture_loop *loop);

/* capture_many.c */
/* Looks for the processes that are picked. 0 or an exit code, logged. */
int capture_many__begin(struct capture_loop *loop);
/* Captures all processes of loop->tracees until *reason, static. 0 or negative. */
int capture_many__drain(struct capture_loop *loop, struct pollfd *fds, const char **reason);
/* Were there processes to record? 0 or an exit code, logged. */
int capture_many__end(const struct capture_loop *loop);

#endif
