/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Available memory of this machine, and memory use of this process. */
#include <stdbool.h>
#include <stdint.h>

/* Finds the available memory in bytes, by the kernel's figure and the limits of our control groups.
 * *bytes 0: not known. Returns 0 or -ENOMEM. */
int memory__available(uint64_t *bytes);
/* Resident memory of this process without file pages, in bytes. 0: not known. */
uint64_t memory__own(void);

/* Reads a line "Name: 123 kB"; name: "\nName:". False: no such line. */
bool memory__field(const char *text, const char *name, uint64_t *bytes);
