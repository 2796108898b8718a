/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Messages of a running capture: which processes it waits for, when it ends, that no event arrives.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct capture_loop;

/* The messages logged so far, so that none is logged twice. */
struct capture_remarks {
	char until[96];
	bool silent, stepless; /* warned of no event, of no step */
	bool busy;	       /* some process was traced at the last look */
	uint64_t last_line;    /* time of the last progress line, ns since the attach */
	uint64_t next_call;    /* time of the next call of loop_command.waiting() */
	/* Looks for child processes that are not traced. */
	uint64_t next_look, pause;
	size_t untraced; /* most of them so far */
	bool suggested;	 /* named the child process of one that waits for PyTorch */
};

/* Returns when the capture ends: "10.0 s have passed", "60 steps have passed". */
const char *capture_remarks__until(struct capture_loop *loop);
/* Logs which processes the capture begins with. Returns 0, or an exit code, logged: there is no
 * such process. */
int capture_remarks__begin(struct capture_loop *loop);
/* Logs the messages that are due, and redraws the progress line on a terminal. */
void capture_remarks__update(struct capture_loop *loop);
/* Removes the progress line. Call it before other output on a terminal than messages. */
void capture_remarks__clear(void);
/* Returns 0, or an exit code, logged: all processes ended without PyTorch. */
int capture_remarks__end(const struct capture_loop *loop);
