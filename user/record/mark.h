/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Names of marks (EVENT_MARK), as options such as --from-mark and --at choose them. */
#include <stdbool.h>

/* Whether a mark's name is the one asked for, or matches it as a pattern: * is any text, ? any
 * character, [abc] one of these. */
bool mark__is(const char *name, const char *asked);
