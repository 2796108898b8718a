/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The reason why a command cannot continue. */
#include "base/exit.h"

/* A message for the user and an exit code. The message names the failed step, the reason and a
 * remedy. */
struct failure {
	int status;	 /* exit code of base/exit.h */
	char text[2048]; /* message; large enough for a suggested command with paths */
};

/* Fills *f. Returns err (0 or -errno), so that the caller can return it. */
int failure__set(struct failure *f, int status, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
