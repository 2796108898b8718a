/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memcg.h"

bool memory__field(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);

	if (!at || sscanf(at + strlen(name), "%" SCNu64, bytes) != 1)
		return false;
	*bytes *= 1024;
	return true;
}

/* Lowers *bytes to the least available memory of our control group and those above it. Returns 0 or
 * -ENOMEM. */
static int bound_by_cgroups(uint64_t *bytes)
{
	struct memcg_figures f;
	struct memcg m;
	int err = memcg__find(getpid(), &m);

	if (err)
		return err == -ENOMEM ? err : 0;
	do {
		memcg__read(&m, &f);
		if (memcg__left(&f) < *bytes)
			*bytes = memcg__left(&f);
	} while (memcg__climb(&m));
	return 0;
}

int memory__available(uint64_t *bytes)
{
	char buf[4096];

	if (io__text("/proc/meminfo", buf, sizeof(buf)) < 0 ||
	    !memory__field(buf, "\nMemAvailable:", bytes)) {
		*bytes = 0;
		return 0;
	}
	return bound_by_cgroups(bytes);
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
