/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The recordings next to a recording of the processes that its process started. `--children -o
 * run.mtr` names them run.PID.mtr. Old files of such names do not count: each recording names the
 * ancestors of its process.
 */
#include <stdbool.h>
#include <stddef.h>

struct started {
	char **paths; /* by name */
	size_t n;
	bool launcher; /* the process itself had no memory of PyTorch or CUDA */
};

/* Finds them. Files that cannot be read are left out. Returns 0 and *ret, for started__free(), or
 * -ENOMEM. */
int started__find(const char *path, struct started *ret);
void started__free(struct started *s);
