/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_FAILURE_H
#define MT_LIB_FAILURE_H
/* Why a command cannot go on. */
#include "lib/exit.h"

/* For a person and for an exit status: what failed, on what, why, and the next thing to try. */
struct failure {
	int status;	 /* exit code: of lib/exit.h */
	char text[2048]; /* has room for a command that is offered, with its paths */
};

/* Fills *f. err: 0 or -errno; returns it, for the caller to return. */
int failure__set(struct failure *f, int status, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
