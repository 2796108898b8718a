/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/clock.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

int64_t clock__parse_offset(const char *text)
{
	const char *at = strstr(text, "monotonic");
	int64_t seconds, ns;

	return at && sscanf(at + 9, "%" SCNd64 " %" SCNd64, &seconds, &ns) == 2
		       ? seconds * 1000000000 + ns
		       : 0;
}

/* Returns the offset of CLOCK_MONOTONIC in our time namespace, in ns. The file describes the
 * namespace of child processes, which is ours unless somebody has called unshare() for them. */
static int64_t monotonic_offset(void)
{
	static int64_t known;
	static bool read_before;
	char text[256];

	if (read_before)
		return known;
	io__text("/proc/self/timens_offsets", text, sizeof(text));
	known = clock__parse_offset(text);
	read_before = true;
	return known;
}

uint64_t clock__read(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t clock__monotonic(void)
{
	return clock__read(CLOCK_MONOTONIC);
}

double clock__date(void)
{
	return (double)clock__read(CLOCK_REALTIME) / 1e9;
}

uint64_t clock__kernel(void)
{
	return clock__monotonic() - (uint64_t)monotonic_offset();
}

uint64_t clock__wall(uint64_t *kernel)
{
	uint64_t best = UINT64_MAX, ret = 0;

	/* Keep the pair of clocks that was read fastest, in ns. */
	for (int i = 0; i < 8 && best > 2000; i++) {
		uint64_t before = clock__kernel();
		uint64_t wall = clock__read(CLOCK_REALTIME);
		uint64_t took = clock__kernel() - before;

		if (took >= best)
			continue;
		best = took;
		ret = wall;
		*kernel = before + took / 2;
	}
	return ret;
}
