/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Huge pages of hugetlbfs. The kernel neither counts them in RSS nor marks them in /proc/PID/maps:
 * the device of the file tells. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inspect/hostmem/host_smaps.h"

#define MOUNTS_MAX (4u << 20) /* text of 20,000 mounts */
#define SIZE_LEAST 14	      /* log2 of the smallest and largest huge page of any machine */
#define SIZE_MOST 34
#define SIZE_SHIFT 26 /* include/uapi/linux/memfd.h: MFD_HUGE_SHIFT */

static void add(struct host_huge *h, uint32_t major, uint32_t minor)
{
	uint64_t dev = (uint64_t)major << 32 | minor;

	for (size_t i = 0; i < h->n; i++)
		if (h->v[i] == dev)
			return;
	if (h->n < HOST_HUGE_MAX)
		h->v[h->n++] = dev;
}

bool host_huge__has(const struct host_huge *h, const struct map *m)
{
	uint64_t dev = (uint64_t)m->dev_major << 32 | m->dev_minor;

	for (size_t i = 0; i < h->n && m->inode; i++)
		if (h->v[i] == dev)
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
			add(ret, major, minor);
	}
}

/* The kernel has a mount of its own for each size of pages. A file in it takes no memory. */
static void find_own(struct host_huge *ret)
{
	for (unsigned size = SIZE_LEAST; size <= SIZE_MOST; size++) {
		int fd = memfd_create("", MFD_CLOEXEC | MFD_HUGETLB | size << SIZE_SHIFT);
		struct stat st;

		if (fd < 0)
			continue; /* not a size of this machine */
		if (!fstat(fd, &st))
			add(ret, major(st.st_dev), minor(st.st_dev));
		close(fd);
	}
}

void host_huge__find(const struct proc *p, struct host_huge *ret)
{
	size_t len;
	char *text;

	*ret = (struct host_huge){ 0 };
	find_own(ret);
	if (proc__text(p, "mountinfo", MOUNTS_MAX, &text, &len))
		return;
	host_huge__parse(text, ret);
	free(text);
}
