/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_WATCH_SPAWN_H
#define MT_WATCH_SPAWN_H
/* Programs that watching starts beside itself. */
#include <sys/types.h>

/*
 * This program once more, with these arguments. out: its standard output, -1: our standard error,
 * which is not for data. nice_by: as nice(2). Its PID, or -1 with errno. It gets SIGINT when we die.
 */
pid_t watch_spawn__self(const char *const *argv, int out, int nice_by);

#endif
