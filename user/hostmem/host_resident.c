/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which pages are resident: the ioctl PAGEMAP_SCAN of Linux 6.7 and later, otherwise the words of
 * /proc/PID/pagemap. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "hostmem/host_smaps.h"
#include "lib/array.h"
#include "lib/io.h"

/* include/uapi/linux/fs.h: struct pm_scan_arg, struct page_region and PAGE_IS_*, which older
 * headers lack. */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
		category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)
#define SCAN_PRESENT (1u << 3)
#define SCAN_PFNZERO (1u << 5)
#define REGIONS 1024u

/* Documentation/admin-guide/mm/pagemap.rst: a word for each page, bit 63: page present. */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define WORDS 4096u

struct host_resident {
	int fd;
	bool no_scan; /* the kernel lacks PAGEMAP_SCAN */
	uint64_t page;
	struct resident_range *v;
	size_t n, cap;
	union {
		struct scan_region regions[REGIONS];
		uint64_t words[WORDS];
	};
};

struct host_resident *host_resident__open(const struct proc *p)
{
	struct host_resident *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->page = (uint64_t)sysconf(_SC_PAGESIZE);
	r->fd = proc__open_own(p, "pagemap");
	if (r->fd < 0) {
		errno = -r->fd;
		free(r);
		return NULL;
	}
	return r;
}

void host_resident__close(struct host_resident *r)
{
	if (!r)
		return;
	close(r->fd);
	free(r->v);
	free(r);
}

static int add(struct host_resident *r, uint64_t start, uint64_t end)
{
	if (r->n && r->v[r->n - 1].end == start) {
		r->v[r->n - 1].end = end;
		return 0;
	}
	if (array__grow(&r->v, &r->cap, r->n + 1, sizeof(*r->v)))
		return -ENOMEM;
	r->v[r->n++] = (struct resident_range){ start, end };
	return 0;
}

static int by_scan(struct host_resident *r, uint64_t start, uint64_t end)
{
	while (start < end) {
		struct scan_arg a = { .size = sizeof(a),
				      .start = start,
				      .end = end,
				      .vec = (uintptr_t)r->regions,
				      .vec_len = REGIONS,
				      .category_inverted = SCAN_PFNZERO,
				      .category_mask = SCAN_PRESENT | SCAN_PFNZERO,
				      .return_mask = SCAN_PRESENT };
		int n = ioctl(r->fd, SCAN_IOCTL, &a), err = 0;

		if (n < 0)
			return -errno;
		if (n > (int)REGIONS || a.walk_end <= start || a.walk_end > end)
			return -EIO;
		for (int i = 0; i < n && !err; i++)
			err = add(r, r->regions[i].start, r->regions[i].end);
		if (err)
			return err;
		start = a.walk_end;
	}
	return 0;
}

static int by_words(struct host_resident *r, uint64_t start, uint64_t end)
{
	while (start < end) {
		uint64_t pages = (end - start) / r->page;
		size_t want = (pages < WORDS ? pages : WORDS) * sizeof(uint64_t);
		ssize_t got = io__pread(r->fd, r->words, want, start / r->page * sizeof(uint64_t));
		int err = 0;

		if (got < 0)
			return (int)got;
		got /= (ssize_t)sizeof(uint64_t);
		if (!got)
			return 0; /* beyond the end of the address space */
		for (ssize_t i = 0; i < got && !err; i++, start += r->page)
			if (r->words[i] & PAGEMAP_PRESENT)
				err = add(r, start, start + r->page);
		if (err)
			return err;
	}
	return 0;
}

int host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			const struct resident_range **v, size_t *n)
{
	int err = -ENOTTY;

	start -= start % r->page;
	end += (r->page - end % r->page) % r->page;
	if (end < start || end - start > RESIDENT_SLICE + 2 * r->page)
		return -EINVAL;
	r->n = 0;
	if (!r->no_scan)
		err = by_scan(r, start, end);
	if (err == -ENOTTY || err == -EINVAL) {
		r->no_scan = true;
		r->n = 0;
		err = by_words(r, start, end);
	}
	*v = r->v;
	*n = r->n;
	return err;
}

/* Lets a thread of the process that waits for the lock have it. */
static void give_way(void)
{
	static const struct timespec pause = { .tv_nsec = 50000 };

	nanosleep(&pause, NULL);
}

int host_resident__count(struct host_resident *r, uint64_t start, uint64_t end, uint64_t *ret)
{
	const struct resident_range *v;
	size_t n;
	int err = 0;

	*ret = 0;
	for (uint64_t at = start, to; at < end && !err; at = to) {
		to = end - at > RESIDENT_SLICE ? at + RESIDENT_SLICE : end;
		err = host_resident__read(r, at, to, &v, &n);
		for (size_t i = 0; i < n && !err; i++)
			*ret += v[i].end - v[i].start;
		if (to < end)
			give_way();
	}
	return err;
}

bool host_resident__is_old(const struct host_resident *r)
{
	return r->no_scan;
}
