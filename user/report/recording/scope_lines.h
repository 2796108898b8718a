/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The largest lines at the peak of each scope's highest run, from another reading of the recording:
 * the peaks are known only when it has been read. */
#include <stddef.h>

#include "model/model.h"

struct analysis;
struct scope_lines;

#define SCOPE_LINES 5 /* most lines of a peak */

/* Reads the recording again, for the highest peaks (SCOPE_PEAKS). Logs nothing that the first run
 * logged. *ret NULL: it cannot be read again, as with standard input, or has no scopes. Returns 0
 * or -ENOMEM. */
int scope_lines__read(const struct analysis *a, enum frame_choice which_line,
		      struct scope_lines **ret);
/* Sets *rows to the lines of a scope's peak on a device, largest first, and returns their number;
 * 0: they are not known. *more: bytes of the peak in further lines. lines: NULL is fine. */
size_t scope_lines__of(const struct scope_lines *lines, size_t scope, size_t device,
		       const struct row **rows, uint64_t *more);
void scope_lines__free(struct scope_lines *lines); /* NULL is fine */
