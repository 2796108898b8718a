/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Available memory of this machine, and memory use of this process. */
#include <stdbool.h>
#include <stdint.h>

/* Available memory in bytes, by the kernel's figure and the limits of our control groups. 0: not
 * known. */
uint64_t memory__available(void);
/* Available memory in a control group, in bytes. The arguments are the contents of memory.max,
 * memory.current and memory.stat (NULL: unreadable). Page cache counts as available, as in
 * MemAvailable. UINT64_MAX: the group has no limit. */
uint64_t memory__group_left(const char *max, const char *current, const char *stat);
/* Resident memory of this process without file pages, in bytes. 0: not known. */
uint64_t memory__own(void);

/* Reads a line "Name: 123 kB"; name: "\nName:". False: no such line. */
bool memory__field(const char *text, const char *name, uint64_t *bytes);
