/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYLINE_H
#define MT_PYTHON_PYLINE_H
/* CPython's three line table formats: co_lnotab (to 3.9), co_linetable of 3.10, location table
 * (3.11 on). */
#include <stddef.h>
#include <stdint.h>

/*
 * Line of the instruction at byte offset `at`. table: hostile bytes, read within [0, len). Returns
 * 0 where the table says "no line" or ends before `at`; at < 0 gives firstlineno.
 */
uint32_t pyline__find(int minor, const uint8_t *table, size_t len, uint32_t firstlineno,
		      int32_t at);

#endif
