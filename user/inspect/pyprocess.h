/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The name that a program gives to a process that it starts with multiprocessing. */
#include <stddef.h>

struct python;

/*
 * Reads the name of the target in its module multiprocessing.process: "EngineCore", or
 * "SpawnProcess-1" without a name of its own. The text is hostile and cut to size. Returns 0;
 * -ENOENT: the process was not started by multiprocessing; -EFAULT, -EBADMSG: it cannot be read.
 */
int pyprocess__name(const struct python *py, char *buf, size_t size);
