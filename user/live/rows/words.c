/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/words.h"

#include <inttypes.h>
#include <stdio.h>

#define SIZE 24 /* bytes of all buffers */

char *live__bytes(char *buf, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double v = (double)bytes;
	int unit = -1; /* index in units; -1: bytes */

	if (bytes < 1024) {
		snprintf(buf, SIZE, "%" PRIu64 " B", bytes);
		return buf;
	}
	/* Use the next unit if rounding would print 1024.0. */
	while (unit < 5 && (unit < 0 || v >= 1023.95)) {
		v /= 1024;
		unit++;
	}
	/* No digit after the point where rounding would print 1000.0. */
	snprintf(buf, SIZE, v >= 999.95 ? "%.0f %ciB" : "%.1f %ciB", v, units[unit]);
	return buf;
}

char *live__change(char *buf, int64_t bytes)
{
	char text[SIZE];

	if (!bytes) {
		snprintf(buf, SIZE, "0");
		return buf;
	}
	live__bytes(text, bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes);
	snprintf(buf, SIZE, "%c%.20s", bytes < 0 ? '-' : '+', text);
	return buf;
}

char *live__rate(char *buf, double v)
{
	static const char units[] = "kMGT";
	int unit = -1; /* index in units; -1: none */

	/* Use the next unit if rounding would print 1000. */
	while (unit < 3 && v >= (unit < 0 ? 999.5 : 999.95)) {
		v /= 1000;
		unit++;
	}
	if (unit >= 0)
		snprintf(buf, SIZE, "%.1f%c", v, units[unit]);
	else if (v > 0 && v < 0.1)
		snprintf(buf, SIZE, "<0.1");
	else
		snprintf(buf, SIZE, v > 0 && v < 10 ? "%.1f" : "%.0f", v);
	return buf;
}

char *live__share(char *buf, uint64_t part, uint64_t whole)
{
	double p = whole ? 100.0 * (double)part / (double)whole : 0;

	if (!part)
		snprintf(buf, SIZE, "0");
	else if (!whole)
		snprintf(buf, SIZE, "-");
	else if (p < 0.1)
		snprintf(buf, SIZE, "<0.1%%");
	else if (part >= whole)
		snprintf(buf, SIZE, "100%%");
	else
		snprintf(buf, SIZE, "%.1f%%", p > 99.9 ? 99.9 : p);
	return buf;
}

char *live__clock(char *buf, uint64_t ns)
{
	uint64_t s = ns / UINT64_C(1000000000);

	if (s >= 86400)
		snprintf(buf, SIZE, "%" PRIu64 "d %02u:%02u", s / 86400, (unsigned)(s / 3600 % 24),
			 (unsigned)(s / 60 % 60));
	else
		snprintf(buf, SIZE, "%02u:%02u:%02u", (unsigned)(s / 3600), (unsigned)(s / 60 % 60),
			 (unsigned)(s % 60));
	return buf;
}

char *live__ago(char *buf, uint64_t ns)
{
	uint64_t s = ns / UINT64_C(1000000000), m = s / 60, h = m / 60;

	if (s < 60)
		snprintf(buf, SIZE, "%" PRIu64 "s ago", s);
	else if (m < 60)
		snprintf(buf, SIZE, "%" PRIu64 "m %02us ago", m, (unsigned)(s % 60));
	else if (h < 24)
		snprintf(buf, SIZE, "%" PRIu64 "h %02um ago", h, (unsigned)(m % 60));
	else
		snprintf(buf, SIZE, "%" PRIu64 "d %02uh ago", h / 24, (unsigned)(h % 24));
	return buf;
}

/* base: the largest power of 2 up to v, at least 1 KiB. The result is base, 5/4, 6/4 or 7/4 of it,
 * or twice base. */
uint64_t live__scale(uint64_t v)
{
	uint64_t base = 1024, unit;

	while (base * 2 <= v && base < UINT64_C(1) << 62)
		base *= 2;
	if (v <= base)
		return base;
	for (unit = 1024; unit * 1024 <= base && unit < UINT64_C(1) << 60;)
		unit *= 1024;
	/* Half of 5/4 or 7/4 has too many digits below 4 units. */
	for (unsigned eighths = 10; eighths < 16; eighths += 2)
		if ((eighths == 12 || base >= unit * 4) && base / 8 * eighths >= v)
			return base / 8 * eighths;
	return base * 2;
}
