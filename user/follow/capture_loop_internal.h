/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_CAPTURE_LOOP_INTERNAL_H
#define MT_FOLLOW_CAPTURE_LOOP_INTERNAL_H
/* Shared by capture_loop.c (the loop, the first process) and capture_many.c (all other processes). */
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "follow/capture_loop.h"

enum { FD_SIGNAL, FD_TARGET, FD_TRACEES, FD_TIMER, FD_WAKE, FD_NR };

/* Gives up all capabilities except those in keep (capture/caps.h). */
void capture_loop__limit_caps(unsigned int keep);
/* Handles a signal. True: it stops the capture; false: the caller's signalled() took it for the
 * command. */
bool capture_loop__signalled(struct capture_loop *loop);
/* Calls poll() on the first n descriptors and on the sources, and calls ready() of the sources. */
void capture_loop__wait_for(struct capture_loop *loop, struct pollfd *fds, size_t n, int ms);
/* Returns ms, or less if a process needs it; -1: no timeout. */
int capture_loop__poll_ms(const struct capture_loop *loop, int ms);
void capture_loop__pump_tracees(struct capture_loop *loop, const struct pollfd *fds);
/* True if the duration has passed since the first attach to one of tracees. */
bool capture_loop__time_is_over(const struct capture_loop *loop);
/* Writes when the capture ends: "10.0 s have passed", "60 steps have passed". Returns buf or static
 * text. */
const char *capture_loop__say_until(char *buf, size_t size, const struct capture_loop *loop);

/* capture_many.c */
/* Looks for the picked processes. Returns 0 or an exit code, logged. */
int capture_many__begin(struct capture_loop *loop);
/* Captures all processes of loop->tracees until *reason, which is static. Returns 0 or a negative
 * error. */
int capture_many__drain(struct capture_loop *loop, struct pollfd *fds, const char **reason);
/* Checks that some process was recorded. Returns 0 or an exit code, logged. */
int capture_many__end(const struct capture_loop *loop);

#endif
