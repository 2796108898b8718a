/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/words.h"

#include <inttypes.h>
#include <stdio.h>

#define SIZE 24

char *live__bytes(char *buf, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double v = (double)bytes;
	int unit = -1;

	if (bytes < 1024) {
		snprintf(buf, SIZE, "%" PRIu64 " B", bytes);
		return buf;
	}
	/* Use the next unit if rounding would print 1024.0. */
	while (unit < 5 && (unit < 0 || v >= 1023.95)) {
		v /= 1024;
		unit++;
	}
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
	int unit = -1;

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

char *live__span(char *buf, uint64_t ns)
{
	double s = (double)ns / 1e9;

	if (s >= 2 * 86400)
		snprintf(buf, SIZE, "%.3g d", s / 86400);
	else if (s >= 2 * 3600)
		snprintf(buf, SIZE, "%.3g h", s / 3600);
	else if (s >= 120)
		snprintf(buf, SIZE, "%.3g min", s / 60);
	else
		snprintf(buf, SIZE, "%.3g s", s);
	return buf;
}
