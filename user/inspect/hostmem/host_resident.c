/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which pages are resident: the ioctl PAGEMAP_SCAN of Linux 6.7 and later, otherwise the words of
 * /proc/PID/pagemap. Both take the lock of the address space for reading. The kernel holds it for
 * one PAGEMAP_SCAN, and for 2 MiB of words; a thread that maps or unmaps waits meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/memory.h"
#include "inspect/hostmem/resident.h"

/* include/uapi/linux/fs.h: struct pm_scan_arg and PAGE_IS_*. */
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
		category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)
#define SCAN_FILE (1u << 2)
#define SCAN_PRESENT (1u << 3)
#define SCAN_SWAPPED (1u << 4)
#define SCAN_PFNZERO (1u << 5)

#define CALL_MOST 100000u  /* ns of one call that takes the lock */
#define PAUSE_AFTER 60000u /* ns of such calls */
#define STEP_FIRST 512u	   /* pages */
#define STEP_LEAST 64u
#define STEP_MOST 16384u
/* An entry of a page table that is empty takes 2 to 4 ns: a call with this many takes 2 ms. */
#define EMPTY_MOST (UINT64_C(512) << 10)

/* ---- opening ---- */

/* MEMTRACE_BENCH: docs/internals/OVERHEAD.md */
static bool lacks_scan(const struct host_resident *r)
{
	struct scan_arg a = { .size = sizeof(a), .end = r->page, .return_mask = SCAN_PRESENT };
	const char *words = getenv("MEMTRACE_BENCH");

	a.vec = (uintptr_t)r->regions;
	a.vec_len = 1;
	a.category_mask = SCAN_PRESENT;
	return (words && strstr(words, "no-scan")) || ioctl(r->fd, SCAN_IOCTL, &a) < 0;
}

static void read_status(struct host_resident *r)
{
	struct host_status *s = &r->status;
	const char *threads;
	size_t len;
	char *text;

	if (proc__text(r->proc, "status", 64 << 10, &text, &len))
		return;
	memory__field(text, "\nVmRSS:", &s->rss);
	memory__field(text, "\nRssAnon:", &s->anon);
	memory__field(text, "\nVmSwap:", &s->swap);
	s->page_tables_known = memory__field(text, "\nVmPTE:", &s->page_tables);
	memory__field(text, "\nHugetlbPages:", &s->hugetlb);
	threads = strstr(text, "\nThreads:");
	s->threads = threads ? strtoull(threads + 9, NULL, 10) : 1;
	free(text);
}

/*
 * Addresses without page tables cost nothing. Page tables without pages do, and they are not
 * counted in max_pages. If the process may have many of these, a call must not reach far. Only
 * anonymous pages explain page tables: huge pages of shared memory and of files have none.
 */
static uint64_t reach_of(const struct host_resident *r)
{
	const struct host_status *s = &r->status;
	uint64_t entries = s->page_tables / sizeof(uint64_t), used = (s->anon + s->swap) / r->page;

	if (s->page_tables_known && entries < used + EMPTY_MOST)
		return UINT64_MAX;
	return EMPTY_MOST * r->page;
}

struct host_resident *host_resident__open(const struct proc *p)
{
	struct host_resident *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->proc = p;
	r->page = (uint64_t)sysconf(_SC_PAGESIZE);
	r->scan_step = r->words_step = STEP_FIRST;
	r->fd = proc__open_own(p, "pagemap");
	if (r->fd < 0) {
		errno = -r->fd;
		free(r);
		return NULL;
	}
	r->no_scan = lacks_scan(r);
	r->zero = host_pages__zero_frame();
	r->counts = r->zero ? open("/proc/kpagecount", O_RDONLY | O_CLOEXEC) : -1;
	read_status(r);
	r->reach = reach_of(r);
	return r;
}

void host_resident__close(struct host_resident *r)
{
	if (!r)
		return;
	close(r->fd);
	if (r->counts >= 0)
		close(r->counts);
	free(r->v);
	free(r);
}

void host_resident__cancel_by(struct host_resident *r, bool (*cancelled)(void *ctx), void *ctx)
{
	r->cancelled = cancelled;
	r->ctx = ctx;
}

const struct host_status *host_resident__status(const struct host_resident *r)
{
	return &r->status;
}

bool host_resident__is_old(const struct host_resident *r)
{
	return r->no_scan;
}

bool host_resident__knows_shares(const struct host_resident *r)
{
	return r->counts >= 0;
}

int host_resident__pace(struct host_resident *r, uint64_t *step, uint64_t took, bool full)
{
	static const struct timespec pause = { .tv_nsec = 100000 };

	if (full && took > CALL_MOST && *step > STEP_LEAST)
		*step /= 2;
	else if (full && took < CALL_MOST / 4 && *step < STEP_MOST)
		*step *= 2;
	r->held += took;
	if (r->held > PAUSE_AFTER) {
		r->held = 0;
		nanosleep(&pause, NULL);
	}
	return r->cancelled && r->cancelled(r->ctx) ? -ECANCELED : 0;
}

/* ---- walks ---- */

struct walk {
	resident_fn fn;
	void *ctx;
	struct host_resident *r;
	bool files;   /* only pages of files */
	bool swapped; /* swapped pages, too */
};

/* One PAGEMAP_SCAN. It stops after scan_step pages that are in memory or swapped out, as these take
 * the time. *n regions; -EIO: not what the kernel promises. */
static int scan(const struct walk *w, uint64_t start, uint64_t end, uint64_t *at, size_t *n)
{
	struct host_resident *r = w->r;
	struct scan_arg a = { .size = sizeof(a),
			      .start = start,
			      .end = end - start > r->reach ? start + r->reach : end,
			      .vec = (uintptr_t)r->regions,
			      .vec_len = RESIDENT_REGIONS,
			      .max_pages = r->scan_step,
			      .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
			      .return_mask = SCAN_PRESENT | SCAN_PFNZERO |
					     (w->files ? SCAN_FILE : 0) |
					     (w->swapped ? SCAN_SWAPPED : 0) };
	uint64_t began = clock__monotonic();
	int got;

	got = ioctl(r->fd, SCAN_IOCTL, &a);
	if (got < 0)
		return -errno;
	if (got > (int)RESIDENT_REGIONS || a.walk_end <= start || a.walk_end > end)
		return -EIO;
	*n = (size_t)got;
	*at = a.walk_end;
	return host_resident__pace(r, &r->scan_step, clock__monotonic() - began,
				   a.walk_end < a.end);
}

static bool is_wanted(const struct walk *w, uint64_t categories)
{
	if (categories & SCAN_SWAPPED)
		return w->swapped;
	return (categories & SCAN_PRESENT) && !(categories & SCAN_PFNZERO) &&
	       (!w->files || (categories & SCAN_FILE));
}

static int by_scan(const struct walk *w, uint64_t start, uint64_t end)
{
	struct host_resident *r = w->r;
	size_t n = 0;
	int err = 0;

	while (start < end && !err) {
		err = scan(w, start, end, &start, &n);
		for (size_t i = 0; i < n && !err; i++)
			if (is_wanted(w, r->regions[i].categories))
				err = w->fn(w->ctx, r->regions[i].start, r->regions[i].end);
	}
	return err;
}

/* A piece of words: calls the walk's fn for each run of resident pages. */
static int take_words(void *ctx, uint64_t start, const uint64_t *words, size_t n)
{
	const struct walk *w = ctx;
	int err = 0;

	for (size_t i = 0, to; i < n && !err; i = to) {
		bool resident = host_pages__resident(w->r, words[i]);

		for (to = i + 1; to < n && host_pages__resident(w->r, words[to]) == resident;)
			to++;
		if (resident)
			err = w->fn(w->ctx, start + i * w->r->page, start + to * w->r->page);
	}
	return err;
}

static int walk(struct walk *w, uint64_t start, uint64_t end)
{
	uint64_t page = w->r->page;

	start -= start % page;
	end += (page - end % page) % page;
	if (end <= start)
		return end < start ? -EINVAL : 0;
	return w->r->no_scan ? host_pages__each(w->r, start, end, take_words, w)
			     : by_scan(w, start, end);
}

int host_resident__walk(struct host_resident *r, uint64_t start, uint64_t end, resident_fn fn,
			void *ctx)
{
	struct walk w = { .fn = fn, .ctx = ctx, .r = r };

	return walk(&w, start, end);
}

int host_resident__scan(struct host_resident *r, uint64_t start, uint64_t end, resident_fn fn,
			void *ctx)
{
	struct walk w = { .fn = fn, .ctx = ctx, .r = r, .swapped = true };

	return by_scan(&w, start, end);
}

static int add_range(void *ctx, uint64_t start, uint64_t end)
{
	struct host_resident *r = ctx;

	if (r->n && r->v[r->n - 1].end == start) {
		r->v[r->n - 1].end = end;
		return 0;
	}
	if (array__grow(&r->v, &r->cap, r->n + 1, sizeof(*r->v)))
		return -ENOMEM;
	r->v[r->n++] = (struct resident_range){ start, end };
	return 0;
}

int host_resident__read(struct host_resident *r, uint64_t start, uint64_t end,
			const struct resident_range **v, size_t *n)
{
	int err;

	if (end < start || end - start > RESIDENT_SLICE)
		return -EINVAL;
	r->n = 0;
	err = host_resident__walk(r, start, end, add_range, r);
	*v = r->v;
	*n = r->n;
	return err;
}

static int add_up(void *ctx, uint64_t start, uint64_t end)
{
	uint64_t *sum = ctx;

	*sum += end - start;
	return 0;
}

int host_resident__count(struct host_resident *r, uint64_t start, uint64_t end, bool device,
			 uint64_t *ret)
{
	struct walk w = { .fn = add_up, .ctx = ret, .r = r, .files = device };

	*ret = 0;
	return walk(&w, start, end);
}
