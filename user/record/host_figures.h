/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The figures host_tensors, host_malloc ... of conditions, from a reading of host memory. */
#include <stdbool.h>
#include <stdint.h>

#include "record/cond.h"
#include "record/host.h"

/*
 * Sets these figures. s NULL: there is no reading, and why, which v borrows, says so. ram: memory
 * of the machine, which is 100% of all but host_cgroup, in bytes; 0: not known.
 */
void host_figures__put(struct cond_values *v, const struct host_sheet *s, uint64_t ram,
		       const char *why);
/* Sets host_cgroup alone. limit: UINT64_MAX without one. */
void host_figures__put_group(struct cond_values *v, uint64_t use, uint64_t limit);
/* True for one of these figures but host_cgroup, which needs no reading of the process. */
bool host_figures__is_part(enum cond_figure f);
