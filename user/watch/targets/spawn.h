/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Programs that `watch` starts. */
#include <jansson.h>

#include "base/subprocess.h"

/*
 * Starts this program again with the arguments argv. out: its standard output; -1: our standard
 * error, for programs that print no data. err: its standard error; 0: nowhere. nice_by: as for
 * nice(2). The program gets SIGINT when this process dies. Returns 0 or -errno.
 */
int watch_spawn__self(const char *const *argv, int out, int err, int nice_by,
		      struct subprocess *ret);
/* Reads the JSON that a program has written to a memfd. The caller frees it; NULL: none. */
json_t *watch_spawn__document(int fd);
/* The result of a program, by its status of waitpid(): "exit code 1", "signal 9". Returns buf. */
const char *watch_spawn__result(int status, char buf[24]);
