/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/text.h"
#include "inspect/machine.h"

#define SMALL_TEXT (64u << 10) /* bytes of meminfo, vmstat and buddyinfo */
#define ZONES_TEXT (4u << 20)  /* bytes of zoneinfo, which has lines for each CPU */
#define ZRAMS 64
#define MOST                                                                                       \
	(UINT64_C(1) << 56) /* bytes that a machine has at most; sums of them fit into 64 bits */

#define FIELD(title, member)                                                                       \
	{                                                                                          \
		"\n" title ":", offsetof(struct machine_readings, member)                          \
	}

static const struct {
	const char *title;
	size_t at;
} fields[] = {
	FIELD("MemTotal", total),
	FIELD("MemFree", free),
	FIELD("MemAvailable", available),
	FIELD("Buffers", buffers),
	FIELD("Cached", cached),
	FIELD("SwapCached", swap_cached),
	FIELD("Active(anon)", active_anon),
	FIELD("Inactive(anon)", inactive_anon),
	FIELD("Dirty", dirty),
	FIELD("Writeback", writeback),
	FIELD("AnonPages", anon),
	FIELD("Mapped", mapped),
	FIELD("Shmem", shmem),
	FIELD("KReclaimable", reclaimable),
	FIELD("SReclaimable", slab_reclaimable),
	FIELD("SUnreclaim", slab_unreclaimable),
	FIELD("KernelStack", kernel_stack),
	FIELD("PageTables", page_tables),
	FIELD("SecPageTables", secondary_tables),
	FIELD("Bounce", bounce),
	FIELD("WritebackTmp", writeback_tmp),
	FIELD("VmallocUsed", vmalloc),
	FIELD("Percpu", percpu),
	FIELD("AnonHugePages", anon_huge),
	FIELD("Hugetlb", hugetlb),
	FIELD("Hugepagesize", huge_size),
	FIELD("SwapTotal", swap_total),
	FIELD("SwapFree", swap_free),
	FIELD("Zswap", zswap),
	FIELD("Balloon", balloon),
	FIELD("GPUActive", gpu_active),
	FIELD("GPUReclaim", gpu_reclaim),
	/* numbers of pages */
	FIELD("HugePages_Total", huge_total),
	FIELD("HugePages_Free", huge_free),
	FIELD("HugePages_Rsvd", huge_reserved),
};

void machine_readings__init(struct machine_readings *readings)
{
	memset(readings, 0xff, sizeof(*readings)); /* MACHINE_NONE */
	memset(readings->blocks, 0, sizeof(readings->blocks));
	readings->blocks_known = false;
	readings->page = (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The number of huge pages, which memory__field() took for kB, as bytes. */
static void pages_to_bytes(const struct machine_readings *readings, uint64_t *pages)
{
	if (*pages == MACHINE_NONE)
		return;
	if (readings->huge_size == MACHINE_NONE ||
	    __builtin_mul_overflow(*pages / 1024, readings->huge_size, pages) || *pages >= MOST)
		*pages = MACHINE_NONE;
}

void machine_readings__parse_meminfo(struct machine_readings *readings, const char *text)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		/* the first line has no line end before it */
		const char *title = fields[i].title + !strncmp(text, fields[i].title + 1,
							       strlen(fields[i].title + 1));

		uint64_t bytes;

		if (memory__field(text, title, &bytes) && bytes < MOST)
			memcpy((char *)readings + fields[i].at, &bytes, sizeof(bytes));
	}
	pages_to_bytes(readings, &readings->huge_total);
	pages_to_bytes(readings, &readings->huge_free);
	pages_to_bytes(readings, &readings->huge_reserved);
}

void machine_readings__parse_vmstat(struct machine_readings *readings, const char *text)
{
	static const char name[] = "\nnr_zspages ";
	const char *at = strstr(text, name);
	uint64_t pages;

	if (at && sscanf(at + sizeof(name) - 1, "%" SCNu64, &pages) == 1 &&
	    pages < MOST / readings->page)
		readings->compressed = pages * readings->page;
}

void machine_readings__parse_zoneinfo(struct machine_readings *readings, const char *text)
{
	uint64_t pages = 0, n;

	/* "              count:    123" in the part "pagesets" of each zone, for each CPU */
	for (const char *at = text; (at = strstr(at, " count:")); at++)
		if (sscanf(at, " count: %" SCNu64, &n) == 1 && n < MOST / readings->page)
			pages += n;
	if (strstr(text, "pagesets") && pages < MOST / readings->page)
		readings->cpu_lists = pages * readings->page;
}

void machine_readings__parse_buddyinfo(struct machine_readings *readings, const char *text)
{
	static const char zone[] = ", zone";

	for (const char *at = text; (at = strstr(at, zone));) {
		char *end;

		at += sizeof(zone) - 1;
		at += strspn(at, " ");
		at += strcspn(at, " \n"); /* "Normal" */
		for (size_t i = 0; i < MACHINE_ORDERS && *at == ' '; i++) {
			uint64_t n = strtoull(at, &end, 10);

			if (end == at || strcspn(at, "\n") < (size_t)(end - at))
				break;
			readings->blocks[i] += n < MOST / readings->page >> i ? n : 0;
			readings->blocks_known = true;
			at = end;
		}
	}
}

/* Reads a file of /proc and passes its text to parse(). 0 or -errno. */
static int read_file(struct machine_readings *readings, const char *path, size_t most,
		     void (*parse)(struct machine_readings *readings, const char *text))
{
	char *text = malloc(most);
	ssize_t n = text ? io__text(path, text, most) : -ENOMEM;

	if (n > 0)
		parse(readings, text);
	free(text);
	return n < 0 ? (int)n : 0;
}

/* System V shared memory: the column "rss" of each segment. */
static void parse_sysv(struct machine_readings *readings, const char *text)
{
	uint64_t rss;

	readings->sysv = 0;
	for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
		if (sscanf(line + 1,
			   "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
			   &rss) == 1 &&
		    rss < MOST)
			readings->sysv += rss;
}

/* Adds the figures of all zram devices. */
static void read_zrams(struct machine_readings *readings)
{
	char path[64], text[256];
	uint64_t data, used;
	int missing = 0; /* in a row: devices have numbers without large gaps */

	for (int i = 0; i < ZRAMS && missing < 4; i++) {
		snprintf(path, sizeof(path), "/sys/block/zram%d/mm_stat", i);
		missing++;
		if (io__text(path, text, sizeof(text)) <= 0)
			continue;
		missing = 0;
		if (sscanf(text, "%" SCNu64 " %*u %" SCNu64, &data, &used) != 2)
			continue;
		readings->zram_data = readings->zram_data == MACHINE_NONE
					      ? data
					      : readings->zram_data + data;
		readings->zram_used = readings->zram_used == MACHINE_NONE
					      ? used
					      : readings->zram_used + used;
	}
}

int machine_readings__read(struct machine_readings *readings)
{
	int err;

	machine_readings__init(readings);
	/* These two change together: a page leaves the free ones for a list of a CPU. */
	read_file(readings, "/proc/zoneinfo", ZONES_TEXT, machine_readings__parse_zoneinfo);
	err = read_file(readings, "/proc/meminfo", SMALL_TEXT, machine_readings__parse_meminfo);
	if (err)
		return err;
	if (readings->total == MACHINE_NONE || readings->free == MACHINE_NONE)
		return -ENODATA;
	read_file(readings, "/proc/vmstat", SMALL_TEXT, machine_readings__parse_vmstat);
	read_file(readings, "/proc/buddyinfo", SMALL_TEXT, machine_readings__parse_buddyinfo);
	read_file(readings, "/proc/sysvipc/shm", SMALL_TEXT, parse_sysv);
	read_zrams(readings);
	return 0;
}
