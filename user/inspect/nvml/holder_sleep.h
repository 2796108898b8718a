/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* How long no thread of a process has run. A process without a running thread gives the GPU no new
 * work. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct holder_sleep;

struct holder_sleep *holder_sleep__new(void); /* NULL: no memory */
/* Restores the thread's CPU affinity. NULL is fine. */
void holder_sleep__free(struct holder_sleep *s);
/* Sets *ns to the time since a thread of the process ran last, as precise as a kernel tick. Moves
 * the calling thread to the CPUs that these threads ran on. False: not known: the kernel does not
 * tell, a CPU is not allowed to us, or there are too many threads. */
bool holder_sleep__of(struct holder_sleep *s, pid_t pid, uint64_t *ns);
