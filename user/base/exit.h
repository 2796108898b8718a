/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once

/* Exit codes, the same for every command and part of the interface, and the reason for one. */
enum {
	EXIT_OK = 0,		/* success, also if the target ended */
	EXIT_FAILED = 1,	/* I/O, memory, anything else */
	EXIT_UNUSABLE = 2,	/* the target or the file is not usable */
	EXIT_NOT_PERMITTED = 3, /* not permitted, or the kernel lacks what is needed */
	EXIT_HELD = 4,	 /* --fail-if: true; `estimate`: does not fit; `diagnose`: found a fault */
	EXIT_USAGE = 64, /* wrong usage; argp uses it, too */
};

/* The reason why a command cannot continue: a message for the user and an exit code. The message
 * names the failed step, the reason and a remedy. */
struct failure {
	int status;	 /* exit code */
	char text[2048]; /* message; large enough for a suggested command with paths */
};

/* Fills *f. Returns err (0 or -errno), so that the caller can return it. */
int failure__set(struct failure *f, int status, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
