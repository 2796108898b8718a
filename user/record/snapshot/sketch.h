/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A sample of a snapshot's entries and segments. It shows that two snapshots are of one process:
 * the fact `sketch` (docs/reference/mtr.md). */
#include <stdint.h>

struct facts;
struct records;

/* Sets the fact. first, last: times of the first and of the last entry, us; 0 and 0: not known.
 * Returns 0 or -ENOMEM. */
int sketch__set(const struct records *r, uint64_t first, uint64_t last, struct facts *f);
