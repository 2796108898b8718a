/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads one process that holds a GPU, in parts. */
#include <stdbool.h>

#include "inspect/gpu_holders.h"

#define NVIDIA_MAJOR 195 /* major number of /dev/nvidia<minor> */

struct holder_sleep;

/* Marks the device nodes that the process p->pid has open. */
void holder_process__read_nodes(struct holder_process *p);
/* Reads what the kernel answers at once: all that does not come from the memory or the files of the
 * process. False: it ended. */
bool holder_process__read_kernel(struct holder_process *p, struct holder_sleep *sleep);
/* Then reads the rest except the user's name: arguments, environment, container. This may never
 * return. */
void holder_process__read_own(struct holder_process *p);
