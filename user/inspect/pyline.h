/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* CPython's three line table formats: co_lnotab (to 3.9), co_linetable (3.10), location table (3.11
 * on). */
#include <stddef.h>
#include <stdint.h>

/* Line of the instruction at byte offset at; for at < 0, firstlineno. table: hostile bytes, [0,
 * len) is read. 0: the table has no line, or ends before at. */
uint32_t pyline__find(int minor, const uint8_t *table, size_t len, uint32_t firstlineno,
		      int32_t at);
