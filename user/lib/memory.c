/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/io.h"

/* Reads a file of a control group. Returns buf, or NULL. */
static char *slurp_of(const char *group, const char *name, char *buf, size_t size)
{
	char path[4096];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, name);
	return io__text(path, buf, size) < 0 ? NULL : buf;
}

static bool number_after(const char *text, const char *name, uint64_t *n)
{
	const char *at = strstr(text, name);

	return at && sscanf(at + strlen(name), "%" SCNu64, n) == 1;
}

bool memory__field(const char *text, const char *name, uint64_t *bytes)
{
	if (!number_after(text, name, bytes))
		return false;
	*bytes *= 1024;
	return true;
}

uint64_t memory__group_left(const char *max, const char *current, const char *stat)
{
	uint64_t most, now, cached = 0, bytes;

	if (sscanf(max, "%" SCNu64, &most) != 1 || sscanf(current, "%" SCNu64, &now) != 1)
		return UINT64_MAX;
	if (stat && number_after(stat, "\ninactive_file", &bytes))
		cached += bytes;
	if (stat && number_after(stat, "\nactive_file", &bytes))
		cached += bytes;
	now -= cached < now ? cached : now;
	return most > now ? most - now : 0;
}

/* The least available memory of free_bytes, our control group and its ancestors. */
static uint64_t of_cgroups(uint64_t free_bytes)
{
	char group[3072], max[64], current[64], stat[8192], *end, *at;

	if (io__text("/proc/self/cgroup", group, sizeof(group)) < 0)
		return free_bytes;
	at = strstr(group, "0::/");
	if (!at)
		return free_bytes;
	at += 3;
	at[strcspn(at, "\n")] = '\0';
	while ((end = strrchr(at, '/'))) {
		if (slurp_of(at, "memory.max", max, sizeof(max)) &&
		    slurp_of(at, "memory.current", current, sizeof(current))) {
			uint64_t left = memory__group_left(
				max, current, slurp_of(at, "memory.stat", stat, sizeof(stat)));

			free_bytes = left < free_bytes ? left : free_bytes;
		}
		*end = '\0';
	}
	return free_bytes;
}

uint64_t memory__available(void)
{
	char buf[4096];
	uint64_t bytes;

	if (io__text("/proc/meminfo", buf, sizeof(buf)) < 0 ||
	    !memory__field(buf, "\nMemAvailable:", &bytes))
		return 0;
	return of_cgroups(bytes);
}

uint64_t memory__own(void)
{
	char buf[128];
	uint64_t pages, of_files;

	if (io__text("/proc/self/statm", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%*u %" SCNu64 " %" SCNu64, &pages, &of_files) != 2 || of_files > pages)
		return 0;
	return (pages - of_files) * (uint64_t)sysconf(_SC_PAGESIZE);
}
