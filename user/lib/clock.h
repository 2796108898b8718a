/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_CLOCK_H
#define MT_LIB_CLOCK_H
#include <stdint.h>
#include <time.h>

/*
 * The time that BPF programs and tracepoints give, ns: CLOCK_MONOTONIC of the first time namespace,
 * whichever one we are in. Thread-safe after the first call.
 */
uint64_t clock__kernel(void);
uint64_t clock__read(clockid_t clock); /* ns */
uint64_t clock__monotonic(void);       /* CLOCK_MONOTONIC as this process has it, ns */
/* What /proc/self/timens_offsets says of CLOCK_MONOTONIC, ns; 0: nothing. Exported for tests. */
int64_t clock__parse_offset(const char *text);

#endif
