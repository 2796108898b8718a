/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/io.h"
#include "lib/memcg.h"

bool memory__field(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);

	if (!at || sscanf(at + strlen(name), "%" SCNu64, bytes) != 1)
		return false;
	*bytes *= 1024;
	return true;
}

/* The least available memory of free_bytes, our control group and those above it. */
static uint64_t of_cgroups(uint64_t free_bytes)
{
	struct memcg_figures f;
	struct memcg m;

	if (memcg__find(getpid(), &m))
		return free_bytes;
	do {
		memcg__read(&m, &f);
		if (memcg__left(&f) < free_bytes)
			free_bytes = memcg__left(&f);
	} while (memcg__climb(&m));
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
