/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem/host_smaps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/text.h"

/* ---- huge pages of hugetlbfs ----
 *
 * The kernel neither counts them in RSS nor marks their mappings in /proc/PID/maps. A mapping is
 * recognized by the device of its file. */

#define MOUNTS_MAX (4u << 20) /* text of 20,000 mounts */
#define SIZE_LEAST 14	      /* log2 of the smallest huge page of any machine */
#define SIZE_MOST 34	      /* log2 of the largest one */
#define SIZE_SHIFT 26	      /* include/uapi/linux/memfd.h: MFD_HUGE_SHIFT */

/* Adds a device whose files have huge pages. */
static void add_device(struct host_huge *huge, uint32_t major, uint32_t minor)
{
	uint64_t dev = (uint64_t)major << 32 | minor;

	for (size_t i = 0; i < huge->n; i++)
		if (huge->v[i] == dev)
			return;
	if (huge->n < HOST_HUGE_MAX)
		huge->v[huge->n++] = dev;
}

bool host_huge__has(const struct host_huge *huge, const struct map *map)
{
	uint64_t dev = (uint64_t)map->dev_major << 32 | map->dev_minor;

	for (size_t i = 0; i < huge->n && map->inode; i++)
		if (huge->v[i] == dev)
			return true;
	return false;
}

void host_huge__parse(const char *mountinfo, struct host_huge *ret)
{
	/* "36 35 0:29 / /dev/hugepages rw,relatime shared:1 - hugetlbfs none rw" */
	for (const char *line = mountinfo, *eol; *line; line = *eol ? eol + 1 : eol) {
		uint32_t major, minor;
		const char *kind;

		eol = strchrnul(line, '\n');
		kind = memmem(line, (size_t)(eol - line), " - hugetlbfs ", 13);
		if (kind && sscanf(line, "%*u %*u %" SCNu32 ":%" SCNu32, &major, &minor) == 2)
			add_device(ret, major, minor);
	}
}

/* Adds the devices of the kernel's own mounts, one for each size of huge pages. The file that this
 * function makes in each mount takes no memory. */
static void find_own(struct host_huge *ret)
{
	for (unsigned size = SIZE_LEAST; size <= SIZE_MOST; size++) {
		int fd = memfd_create("", MFD_CLOEXEC | MFD_HUGETLB | size << SIZE_SHIFT);
		struct stat st;

		if (fd < 0)
			continue; /* not a size of this machine */
		if (!fstat(fd, &st))
			add_device(ret, major(st.st_dev), minor(st.st_dev));
		close(fd);
	}
}

void host_huge__find(const struct proc *proc, struct host_huge *ret)
{
	size_t len;
	char *text;

	*ret = (struct host_huge){ 0 };
	find_own(ret);
	if (proc__text(proc, "mountinfo", MOUNTS_MAX, &text, &len))
		return;
	host_huge__parse(text, ret);
	free(text);
}

/* ---- figures of mappings ---- */

#define SMAPS_MAX (256u << 20)	       /* text of 350,000 mappings */
#define BRIEF_FROM (UINT64_C(1) << 30) /* bytes of RSS from which a reading is brief */
/* For kernels without PAGEMAP_SCAN: */
#define LARGE (UINT64_C(1) << 30)   /* bytes of a mapping that is read after the others */
#define SPARSE (UINT64_C(64) << 30) /* bytes of a mapping that is read only if memory is missing */
#define IN_VAIN                                                                                    \
	(UINT64_C(256) << 30) /* bytes without memory that are read in all mappings, at most */
/* Pages by which RSS may be wrong. RSS is a sum of the kernel's counters. In older kernels each
 * thread may hold back some pages (TASK_RSS_EVENTS_THRESH). */
#define THREAD_PAGES 64u
#define MORE_PAGES 256u

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{ "Rss:", offsetof(struct smaps_figures, rss) },
	{ "Pss:", offsetof(struct smaps_figures, pss) },
	{ "Private_Clean:", offsetof(struct smaps_figures, own) },
	{ "Private_Dirty:", offsetof(struct smaps_figures, own) },
	{ "Anonymous:", offsetof(struct smaps_figures, anonymous) },
	{ "Swap:", offsetof(struct smaps_figures, swap) },
	{ "Shared_Hugetlb:", offsetof(struct smaps_figures, hugetlb) },
	{ "Private_Hugetlb:", offsetof(struct smaps_figures, hugetlb) },
};

/* Adds a line "Rss:   12 kB" to the figures. Other lines are ignored. 0 or -EIO. */
static int add_field(const char *line, struct smaps_figures *figures)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		size_t len = strlen(fields[i].name);
		uint64_t kb, *to = (uint64_t *)((char *)figures + fields[i].at);

		if (strncmp(line, fields[i].name, len))
			continue;
		if (sscanf(line + len, "%" SCNu64, &kb) != 1 ||
		    kb > UINT64_MAX >> 12 /* cannot be true */)
			return -EIO;
		*to += kb * 1024;
	}
	return 0;
}

/* A mapping's first line begins with its address, in lower case; lines of figures with a name. */
static bool is_header(const char *line)
{
	return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
}

/* Moves the mappings' first lines to the front of the text, and adds the other lines to v, the
 * figures of n mappings. Returns the length of the first lines. *err: 0 or -EIO. */
static size_t gather_headers(char *text, size_t len, struct smaps_figures *v, size_t n, int *err)
{
	char *end = text + len, *eol, *to = text;
	size_t i = 0;

	for (char *p = text; p < end && !*err; p = eol + 1) {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (!eol)
			eol = end;
		if (!is_header(p)) {
			*eol = '\0'; /* text[len] is a NUL already */
			*err = i ? add_field(p, &v[i - 1]) : -EIO;
			continue;
		}
		if (i++ == n) {
			*err = -EIO;
			break;
		}
		memmove(to, p, (size_t)(eol - p));
		to += eol - p;
		*to++ = '\n';
	}
	return (size_t)(to - text);
}

/* Counts the mappings. */
static size_t count_headers(const char *text, size_t len)
{
	const char *end = text + len;
	size_t n = 0;

	for (const char *p = text; p && p < end; p = memchr(p, '\n', (size_t)(end - p))) {
		p += p > text;
		n += p < end && is_header(p);
	}
	return n;
}

int host_smaps__parse(char *text, size_t len, struct host_smaps *ret)
{
	struct host_smaps smaps = { .pss_known = true };
	size_t n = count_headers(text, len);
	int err = 0;

	if (memchr(text, '\0', len))
		return -EIO;
	smaps.v = calloc(n + 1, sizeof(*smaps.v));
	if (!smaps.v)
		return -ENOMEM;
	len = gather_headers(text, len, smaps.v, n, &err);
	if (!err && (maps__parse(text, len, &smaps.maps) || smaps.maps.n != n))
		err = -EIO;
	for (size_t i = 1; i < n && !err; i++)
		if (smaps.maps.v[i].start < smaps.maps.v[i - 1].end)
			err = -EIO;
	if (err) {
		host_smaps__free(&smaps);
		return err;
	}
	*ret = smaps;
	return 0;
}

/* Reads all mappings from the file "smaps". */
static int read_text(const struct proc *proc, struct host_smaps *ret)
{
	size_t len;
	char *text;
	int err = proc__text(proc, "smaps", SMAPS_MAX, &text, &len);

	if (err)
		return err;
	err = host_smaps__parse(text, len, ret);
	free(text);
	return err;
}

/* ---- figures from the page map ---- */

struct reading {
	struct host_resident *resident;
	struct host_smaps *smaps;
	struct host_huge huge;
	bool shares;
	size_t *large; /* indexes of mappings that are read after the others */
	size_t n_large;
	uint64_t found; /* sum of rss so far, bytes */
};

/* True if a mapping is memory of the kernel or of a driver, which belongs to no process. */
static bool is_foreign(const struct map *map)
{
	return map->start >> 63 || text__starts(map->path, "[vvar") ||
	       text__starts(map->path, "/dev/nvidia");
}

/* True if a mapping is of a device file. Some of its pages may be memory of the process. */
static bool is_device(const struct map *map)
{
	return text__starts(map->path, "/dev/") && !text__starts(map->path, "/dev/shm/") &&
	       strcmp(map->path, "/dev/zero");
}

/* Sets the figures of mapping i from its pages below `end`. 0 or -errno. */
static int read_figures(struct reading *reading, size_t i, uint64_t end)
{
	const struct map *map = &reading->smaps->maps.v[i];
	struct smaps_figures *figures = &reading->smaps->v[i];
	int err;

	/* A brief reading needs RSS only, which PAGEMAP_SCAN counts. Without PAGEMAP_SCAN, each
	 * page's word is read in any case, and has all figures. */
	if (reading->smaps->brief && !host_resident__lacks_scan(reading->resident))
		err = host_resident__count(reading->resident, map->start, end, is_device(map),
					   &figures->rss);
	else
		err = host_resident__figures(reading->resident, map->start, end, reading->shares,
					     figures);
	reading->found += figures->rss;
	return err;
}

/* Reads mapping i, except memory of drivers and of the kernel. Huge pages count apart from RSS.
 * Puts a large mapping off if the kernel cannot skip addresses without memory. */
static int read_first(struct reading *reading, size_t i)
{
	const struct map *map = &reading->smaps->maps.v[i];

	if (is_foreign(map))
		return 0;
	if (host_huge__has(&reading->huge, map))
		return host_resident__count(reading->resident, map->start, map->end,
					    /*device=*/false, &reading->smaps->v[i].hugetlb);
	if (host_resident__lacks_scan(reading->resident) && map->end - map->start > LARGE) {
		reading->large[reading->n_large++] = i;
		return 0;
	}
	return read_figures(reading, i, map->end);
}

static uint64_t size_of(const struct reading *reading, size_t i)
{
	return reading->smaps->maps.v[i].end - reading->smaps->maps.v[i].start;
}

static bool is_reserved(const struct map *map)
{
	return !map->r && !map->w && !map->x;
}

/* Mappings that can be accessed come before those that are reserved, small ones before large. */
static int compare_large(const void *a, const void *b, void *ctx)
{
	const struct reading *reading = ctx;
	size_t i = *(const size_t *)a, k = *(const size_t *)b;
	bool reserved = is_reserved(&reading->smaps->maps.v[i]);

	if (reserved != is_reserved(&reading->smaps->maps.v[k]))
		return reserved ? 1 : -1;
	return size_of(reading, i) < size_of(reading, k)
		       ? -1
		       : size_of(reading, i) > size_of(reading, k);
}

/* Bytes of RSS that no mapping explains so far, beyond the error of the kernel's counters. */
static uint64_t unexplained(const struct reading *reading)
{
	const struct host_status *st = host_resident__status(reading->resident);
	uint64_t error = (st->threads * THREAD_PAGES + MORE_PAGES) *
			 (uint64_t)sysconf(_SC_PAGESIZE);

	return st->rss > reading->found + error ? st->rss - reading->found : 0;
}

/* Reads a large mapping until *in_vain bytes of it were without memory, and reduces *in_vain. */
static int read_one_large(struct reading *reading, size_t i, uint64_t *in_vain)
{
	const uint64_t size = size_of(reading, i);
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t left = unexplained(reading), found_before = reading->found;
	uint64_t part, resident; /* bytes of the part that is read, and how many are resident */
	int err;

	if (!left && (is_reserved(&reading->smaps->maps.v[i]) || size > SPARSE))
		return 0;
	part = host_smaps__min(size, (*in_vain + left) / page * page);
	err = read_figures(reading, i, reading->smaps->maps.v[i].start + part);
	resident = reading->found - found_before;
	*in_vain -= host_smaps__min(*in_vain, part > resident ? part - resident : 0);
	if (part < size && !err) {
		/* The rest of the process's RSS may be anywhere in this mapping. */
		left = host_smaps__min(unexplained(reading), size - part) / page * page;
		reading->smaps->v[i].rss += left;
		reading->found += left;
	}
	return err;
}

/* Reads the large mappings of a kernel that cannot skip addresses without memory. */
static int read_large(struct reading *reading)
{
	uint64_t in_vain = IN_VAIN;
	int err = 0;

	qsort_r(reading->large, reading->n_large, sizeof(*reading->large), compare_large, reading);
	for (size_t k = 0; k < reading->n_large && !err; k++)
		err = read_one_large(reading, reading->large[k], &in_vain);
	return err;
}

/* Reads all mappings, large ones last. */
static int read_all(struct reading *reading)
{
	int err = 0;

	reading->smaps->v = calloc(reading->smaps->maps.n + 1, sizeof(*reading->smaps->v));
	reading->large = calloc(reading->smaps->maps.n + 1, sizeof(*reading->large));
	if (!reading->smaps->v || !reading->large)
		return -ENOMEM;
	for (size_t i = 0; i < reading->smaps->maps.n && !err; i++)
		err = read_first(reading, i);
	return err ?: read_large(reading);
}

/* Reads all mappings from pagemap. shares: also PSS if the kernel tells how often pages are mapped,
 * and never a brief reading. *ret is set on success only; -ESRCH: the process is ending. */
static int read_pages(const struct proc *proc, struct host_resident *resident, bool shares,
		      struct host_smaps *ret)
{
	const struct host_status *st = host_resident__status(resident);
	struct host_smaps smaps = { .brief = !shares && st->rss >= BRIEF_FROM };
	struct reading reading = { .resident = resident, .smaps = &smaps };
	int err = proc__maps(proc, &smaps.maps);
	uint64_t rss;

	if (err)
		return err;
	if (st->hugetlb)
		host_huge__find(proc, &reading.huge);
	smaps.pss_known = !smaps.brief && host_resident__knows_shares(resident);
	reading.shares = smaps.pss_known;
	err = read_all(&reading);
	free(reading.large);
	/* A process that is ending releases its pages, so the figures are incomplete. */
	if (!err && (proc__resident(proc, &rss) || !rss))
		err = -ESRCH;
	if (err) {
		host_smaps__free(&smaps);
		return err;
	}
	*ret = smaps;
	return 0;
}

int host_smaps__read(const struct proc *proc, struct host_resident *resident, bool shares,
		     struct host_smaps *ret)
{
	if (shares && !host_resident__knows_shares(resident))
		return read_text(proc, ret);
	return read_pages(proc, resident, shares, ret);
}

void host_smaps__free(struct host_smaps *smaps)
{
	maps__free(&smaps->maps);
	free(smaps->v);
	*smaps = (struct host_smaps){ 0 };
}
