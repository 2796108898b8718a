/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Preloaded: the wall clock of a program is wrong by CLOCK_SKEW_NS nanoseconds. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	static long long skew;
	static int known;
	long long ns;

	if (!known) {
		const char *s = getenv("CLOCK_SKEW_NS");

		skew = s ? atoll(s) : 0;
		known = 1;
	}
	if (syscall(SYS_clock_gettime, clock, ts))
		return -1;
	if (clock != CLOCK_REALTIME)
		return 0;
	ns = ts->tv_sec * 1000000000LL + ts->tv_nsec + skew;
	ts->tv_sec = ns / 1000000000;
	ts->tv_nsec = ns % 1000000000;
	return 0;
}
