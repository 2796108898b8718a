/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Descriptors of probes. Closing one takes the kernel about 40 ms, because it waits until no CPU
 * runs the programs of the probe. When a process dies, the kernel closes the descriptors of a table
 * one after the other. So each descriptor gets a thread that has a table of its own: whatever ends
 * this process, the kernel closes all of them at the same time.
 */
#include <stdbool.h>

struct holder;

/*
 * Takes over fd, also on failure. own_table: in a thread; otherwise in this process's table, for
 * those beyond a reasonable number of threads. The thread has no capabilities and takes no signals.
 * Keeps fd in this process's table if the kernel refuses a table of its own. NULL: no memory, and
 * fd is closed.
 */
struct holder *holder__new(int fd, bool own_table);
/* Begins to close the descriptor in another thread. holder__close() must follow. */
void holder__begin_close(struct holder *h);
/* Closes the descriptor, waits for the kernel, and frees h. NULL is fine. */
void holder__close(struct holder *h);
/* The same without waiting for the kernel. Not after holder__begin_close(). */
void holder__drop(struct holder *h);
