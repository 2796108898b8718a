/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_WATCH_SPAWN_H
#define MT_WATCH_SPAWN_H
/* Programs that watching starts beside itself. */
#include "lib/subprocess.h"

/*
 * This program once more, with these arguments. out: its standard output, -1: our standard error,
 * which is not for data. nice_by: as for nice(2). It gets SIGINT when we die. 0 or -errno.
 */
int watch_spawn__self(const char *const *argv, int out, int nice_by, struct subprocess *ret);

#endif
