/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Holders of probes' descriptors. To close one takes the kernel about 40 ms, because it waits
 * until no CPU runs the programs of the probe. When a process dies, the kernel closes the
 * descriptors of a table one after the other. So each descriptor gets a thread that has its own
 * table: whatever ends this process, the kernel closes all of them at the same time.
 */
#include <stdbool.h>

struct holder;

/*
 * Makes a holder, which owns fd, also on failure. own_table: a thread with its own table of
 * descriptors holds fd; false: this process's table does, for those beyond a reasonable number of
 * threads. The thread has no capabilities and takes no signals. If the kernel refuses it its own
 * table, fd stays in this process's table. NULL: no memory, and fd is closed.
 */
struct holder *holder__new(int fd, bool own_table);
/* Begins to close the descriptor, in another thread. holder__close() must follow. */
void holder__begin_close(struct holder *holder);
/* Closes the descriptor, waits for the kernel, and frees holder. NULL is fine. */
void holder__close(struct holder *holder);
/* Like holder__close(), without waiting for the kernel. Do not call it after
 * holder__begin_close(). */
void holder__drop(struct holder *holder);
