/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdint.h>
#include <time.h>

/* The clock of BPF programs and tracepoints, ns: CLOCK_MONOTONIC of the initial time namespace.
 * Thread-safe after the first call. */
uint64_t clock__kernel(void);
uint64_t clock__read(clockid_t clock); /* time of this clock, ns */
uint64_t clock__monotonic(void);       /* CLOCK_MONOTONIC of this process, ns */
double clock__date(void);	       /* CLOCK_REALTIME, s since 1970 */
/* Returns CLOCK_REALTIME, ns since 1970, and sets *kernel to clock__kernel() at the same moment:
 * within some microseconds, unless the thread is interrupted at each of several tries. */
uint64_t clock__wall(uint64_t *kernel);
/* Parses the offset of CLOCK_MONOTONIC from /proc/self/timens_offsets, ns; 0: none. Exported for
 * tests. */
int64_t clock__parse_offset(const char *text);
