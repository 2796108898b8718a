/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The words of /proc/PID/pagemap, and the figures of smaps worked out of them: smaps itself keeps
 * the lock of the address space for a whole mapping. How many processes share a page is in
 * /proc/kpagecount, which takes no lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "inspect/hostmem/resident.h"

/* Documentation/admin-guide/mm/pagemap.rst: a word for each page. */
#define WORD_PRESENT (UINT64_C(1) << 63)
#define WORD_SWAPPED (UINT64_C(1) << 62)
#define WORD_FILE (UINT64_C(1) << 61)	   /* of a file, or shared memory */
#define WORD_EXCLUSIVE (UINT64_C(1) << 56) /* mapped once */
#define WORD_FRAME ((UINT64_C(1) << 55) - 1)

#define COUNTS 512u	   /* of kpagecount, read at once */
#define GAP 64u		   /* pages without memory that are read rather than left out */
#define SMALL (256u << 10) /* bytes: a scan before the words takes longer than it saves */
#define SHARE_SCALE UINT64_C(4096)

int host_pages__each(struct host_resident *r, uint64_t start, uint64_t end,
		     int (*fn)(void *ctx, uint64_t start, const uint64_t *words, size_t n),
		     void *ctx)
{
	int err = 0;

	while (start < end && !err) {
		uint64_t pages = (end - start) / r->page,
			 most = r->words_step < RESIDENT_WORDS ? r->words_step : RESIDENT_WORDS,
			 began = clock__monotonic();
		size_t n = pages < most ? pages : most;
		ssize_t got = io__pread(r->fd, r->words, n * sizeof(uint64_t),
					start / r->page * sizeof(uint64_t));

		if (got < 0)
			return (int)got;
		if (!got)
			return 0; /* beyond the end of the address space */
		err = host_resident__pace(r, &r->words_step, clock__monotonic() - began, n == most);
		if (!err)
			err = fn(ctx, start, r->words, (size_t)got / sizeof(uint64_t));
		start += (uint64_t)got / sizeof(uint64_t) * r->page;
	}
	return err;
}

bool host_pages__resident(const struct host_resident *r, uint64_t word)
{
	return (word & WORD_PRESENT) && !(r->zero && (word & WORD_FRAME) == r->zero);
}

uint64_t host_pages__zero_frame(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	volatile const char *m = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t word = 0;

	if (m != MAP_FAILED) {
		(void)*m;
		if (fd < 0 || io__pread(fd, &word, sizeof(word), (uintptr_t)m / page * 8) != 8)
			word = 0;
		munmap((void *)m, page);
	}
	if (fd >= 0)
		close(fd);
	return word & WORD_PRESENT ? word & WORD_FRAME : 0;
}

/* ---- figures ---- */

struct adding {
	struct host_resident *r;
	struct smaps_figures *f;
	bool shares;	     /* PSS, too */
	uint64_t pss;	     /* 1/SHARE_SCALE bytes */
	uint64_t start, end; /* resident addresses whose words are not read yet */
};

static void add_page(struct adding *a, bool file, uint64_t count)
{
	uint64_t page = a->r->page;

	a->f->rss += page;
	a->f->anonymous += file ? 0 : page;
	a->f->own += count == 1 ? page : 0;
	a->pss += page * SHARE_SCALE / count;
}

/* The number of the frames from the i-th on that one read of kpagecount covers, and its length. */
static size_t window(const uint64_t *frames, size_t i, size_t n, size_t *len)
{
	uint64_t first = frames[i] >> 1;
	size_t k = i;

	*len = 1;
	for (; k < n && frames[k] >> 1 >= first && (frames[k] >> 1) - first < COUNTS; k++)
		if ((frames[k] >> 1) - first >= *len)
			*len = (frames[k] >> 1) - first + 1;
	return k - i;
}

/* Adds n pages of a->r->frames: the frame, and in the lowest bit whether it is a file's. Pages that
 * no process maps as memory count 0: the page of zeros, and memory of devices. */
static int add_counted(struct adding *a, size_t n)
{
	const uint64_t *frames = a->r->frames;
	uint64_t counts[COUNTS];
	size_t len, these;

	for (size_t i = 0; i < n; i += these) {
		ssize_t got;

		these = window(frames, i, n, &len);
		got = io__pread(a->r->counts, counts, len * sizeof(*counts),
				(frames[i] >> 1) * sizeof(*counts));
		if (got < 0)
			return (int)got;
		for (size_t k = i; k < i + these; k++) {
			size_t at = (frames[k] >> 1) - (frames[i] >> 1);
			bool known = at < (size_t)got / sizeof(*counts) && counts[at];

			if (known)
				add_page(a, frames[k] & 1, counts[at]);
		}
	}
	return 0;
}

/* A page that more than one process may share is looked up if its share is wanted, or if it may be
 * no memory: then the kernel marks it neither as a file's nor as mapped once. */
static int add_words(void *ctx, uint64_t start, const uint64_t *words, size_t n)
{
	struct adding *a = ctx;
	size_t open = 0;

	(void)start;
	for (size_t i = 0; i < n; i++) {
		uint64_t w = words[i];
		bool file = w & WORD_FILE;

		if (!(w & WORD_PRESENT) && (w & WORD_SWAPPED))
			a->f->swap += a->r->page;
		if (!host_pages__resident(a->r, w))
			continue;
		if (w & WORD_EXCLUSIVE)
			add_page(a, file, 1);
		else if (a->r->counts >= 0 && (a->shares || !file))
			a->r->frames[open++] = (w & WORD_FRAME) << 1 | file;
		else
			add_page(a, file, 2);
	}
	return add_counted(a, open);
}

static int flush(struct adding *a)
{
	return a->end ? host_pages__each(a->r, a->start, a->end, add_words, a) : 0;
}

/* A range that PAGEMAP_SCAN found. */
static int add_scanned(void *ctx, uint64_t start, uint64_t end)
{
	struct adding *a = ctx;
	/* A gap may have pages of zeros, which only frames tell. */
	uint64_t gap = a->r->zero ? GAP * a->r->page : 0;
	int err = 0;

	if (a->end && start - a->end <= gap) {
		a->end = end;
		return 0;
	}
	err = flush(a);
	a->start = start;
	a->end = end;
	return err;
}

int host_resident__figures(struct host_resident *r, uint64_t start, uint64_t end, bool shares,
			   struct smaps_figures *ret)
{
	struct adding a = { .r = r, .f = ret, .shares = shares };
	int err;

	*ret = (struct smaps_figures){ 0 };
	if (r->no_scan || (r->zero && end - start <= SMALL))
		err = host_pages__each(r, start, end, add_words, &a);
	else
		err = host_resident__scan(r, start, end, add_scanned, &a) ?: flush(&a);
	ret->pss = a.pss / SHARE_SCALE;
	return err;
}
