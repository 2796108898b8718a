/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads JSON front to back, without a tree of its values: for snapshots that were written with
 * Python's json.dump(). */
struct inflow;
struct nested;

/* As unpickle__run(). */
int unjson__run(struct inflow *in, struct nested *v, int (*each)(void *ctx), void *ctx);
