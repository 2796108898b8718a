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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "inspect/hostmem/host_smaps.h"

/* Documentation/admin-guide/mm/pagemap.rst: a word for each page. */
#define WORD_PRESENT (UINT64_C(1) << 63)
#define WORD_SWAPPED (UINT64_C(1) << 62)
#define WORD_FILE (UINT64_C(1) << 61)	   /* a page of a file or of shared memory */
#define WORD_EXCLUSIVE (UINT64_C(1) << 56) /* mapped once */
#define WORD_FRAME ((UINT64_C(1) << 55) - 1)

#define COUNTS 512u	   /* words of kpagecount that are read at once */
#define GAP 64u		   /* words of absent pages that are read along, to save a system call */
#define SMALL (256u << 10) /* bytes of a mapping for which a scan before the words does not pay */
#define SHARE_SCALE UINT64_C(4096)

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

/* Pace of the calls that take the address space's lock: ns of one call at most, ns of all calls
 * between two pauses; pages of the first call, of any call at least and at most. */
#define CALL_MOST 100000u
#define PAUSE_AFTER 60000u
#define STEP_FIRST 512u
#define STEP_LEAST 64u
#define STEP_MOST 16384u
/* Empty entries of page tables in one call, at most: each takes the kernel 2 to 4 ns, so 2 ms. */
#define EMPTY_MOST (UINT64_C(512) << 10)

/* ---- opening ---- */

/* True if the kernel has no PAGEMAP_SCAN (before Linux 6.7), or if MEMTRACE_BENCH=no-scan asks not
 * to use it, for measurements (docs/internals/OVERHEAD.md). */
static bool lacks_scan(const struct host_resident *resident)
{
	struct scan_arg a = { .size = sizeof(a),
			      .end = resident->page,
			      .return_mask = SCAN_PRESENT };
	const char *bench = getenv("MEMTRACE_BENCH");

	a.vec = (uintptr_t)resident->regions;
	a.vec_len = 1;
	a.category_mask = SCAN_PRESENT;
	return (bench && strstr(bench, "no-scan")) || ioctl(resident->fd, SCAN_IOCTL, &a) < 0;
}

/* Reads the figures of /proc/PID/status. Those that cannot be read stay 0. */
static void read_status(struct host_resident *resident)
{
	struct host_status *status = &resident->status;
	const char *threads;
	size_t len;
	char *text;

	if (proc__text(resident->proc, "status", 64 << 10, &text, &len))
		return;
	memory__field(text, "\nVmRSS:", &status->rss);
	memory__field(text, "\nRssAnon:", &status->anon);
	memory__field(text, "\nVmSwap:", &status->swap);
	status->page_tables_known = memory__field(text, "\nVmPTE:", &status->page_tables);
	memory__field(text, "\nHugetlbPages:", &status->hugetlb);
	threads = strstr(text, "\nThreads:");
	status->threads = threads ? strtoull(threads + strlen("\
Threads:"),
					     NULL, 10)
				  : 1;
	free(text);
}

/*
 * Returns host_resident.reach. A scan skips addresses without page tables at no cost. But it walks
 * empty entries of page tables, which max_pages does not limit. If the process may have many of
 * these, the reach must be short. Only anonymous and swapped pages prove that entries are in use:
 * shared memory and files may be mapped by huge pages, which need no entries.
 */
static uint64_t reach_of(const struct host_resident *resident)
{
	const struct host_status *status = &resident->status;
	uint64_t entries = status->page_tables / sizeof(uint64_t),
		 used = (status->anon + status->swap) / resident->page;

	if (status->page_tables_known && entries < used + EMPTY_MOST)
		return UINT64_MAX;
	return EMPTY_MOST * resident->page;
}

struct host_resident *host_resident__open(const struct proc *proc)
{
	struct host_resident *resident = calloc(1, sizeof(*resident));

	if (!resident)
		return NULL;
	resident->proc = proc;
	resident->page = (uint64_t)sysconf(_SC_PAGESIZE);
	resident->scan_step = resident->words_step = STEP_FIRST;
	resident->fd = proc__open_own(proc, "pagemap");
	if (resident->fd < 0) {
		errno = -resident->fd;
		free(resident);
		return NULL;
	}
	resident->no_scan = lacks_scan(resident);
	resident->zero = host_resident__zero_frame();
	resident->counts = resident->zero ? open("/proc/kpagecount", O_RDONLY | O_CLOEXEC) : -1;
	read_status(resident);
	resident->reach = reach_of(resident);
	return resident;
}

void host_resident__close(struct host_resident *resident)
{
	if (!resident)
		return;
	close(resident->fd);
	if (resident->counts >= 0)
		close(resident->counts);
	free(resident->v);
	free(resident);
}

void host_resident__cancel_by(struct host_resident *resident, bool (*cancelled)(void *ctx),
			      void *ctx)
{
	resident->cancelled = cancelled;
	resident->ctx = ctx;
}

/*
 * Call it after each call that held the address space's lock for `took` ns. Makes a pause if one is
 * due, so that a thread that waits for the lock gets it. Adapts *step, the pages of a call, if the
 * call was full. 0, or -ECANCELED.
 */
static int pace_calls(struct host_resident *resident, uint64_t *step, uint64_t took, bool full)
{
	static const struct timespec pause = { .tv_nsec = 100000 };

	if (full && took > CALL_MOST && *step > STEP_LEAST)
		*step /= 2;
	else if (full && took < CALL_MOST / 4 && *step < STEP_MOST)
		*step *= 2;
	resident->held += took;
	if (resident->held > PAUSE_AFTER) {
		resident->held = 0;
		nanosleep(&pause, NULL);
	}
	return resident->cancelled && resident->cancelled(resident->ctx) ? -ECANCELED : 0;
}

/* ---- the words of /proc/PID/pagemap ---- */

/* Calls fn for the words of [start, end) in /proc/PID/pagemap, piece by piece. fn returns 0 or an
 * error, which ends the walk. 0 or -errno. */
static int each_words(struct host_resident *resident, uint64_t start, uint64_t end,
		      int (*fn)(void *ctx, uint64_t start, const uint64_t *words, size_t n),
		      void *ctx)
{
	int err = 0;

	while (start < end && !err) {
		uint64_t pages = (end - start) / resident->page,
			 most = resident->words_step < RESIDENT_WORDS ? resident->words_step
								      : RESIDENT_WORDS,
			 began = clock__monotonic();
		size_t n = pages < most ? pages : most;
		ssize_t got = io__pread(resident->fd, resident->words, n * sizeof(uint64_t),
					start / resident->page * sizeof(uint64_t));

		if (got < 0)
			return (int)got;
		if (!got)
			return 0; /* beyond the end of the address space */
		err = pace_calls(resident, &resident->words_step, clock__monotonic() - began,
				 n == most);
		if (!err)
			err = fn(ctx, start, resident->words, (size_t)got / sizeof(uint64_t));
		start += (uint64_t)got / sizeof(uint64_t) * resident->page;
	}
	return err;
}

/* True if a word of pagemap is of a resident page other than the page of zeros. */
static bool is_resident(const struct host_resident *resident, uint64_t word)
{
	return (word & WORD_PRESENT) && !(resident->zero && (word & WORD_FRAME) == resident->zero);
}

uint64_t host_resident__zero_frame(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	volatile const char *m = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t word = 0;

	if (m != MAP_FAILED) {
		(void)*m; /* reading it maps the page of zeros */
		if (fd < 0 || io__pread(fd, &word, sizeof(word), (uintptr_t)m / page * 8) != 8)
			word = 0;
		munmap((void *)m, page);
	}
	if (fd >= 0)
		close(fd);
	return word & WORD_PRESENT ? word & WORD_FRAME : 0;
}

/* ---- walks ---- */

struct walk {
	resident_fn fn;
	void *ctx;
	struct host_resident *resident;
	bool files;   /* only pages of files */
	bool swapped; /* swapped pages, too */
};

/* Calls PAGEMAP_SCAN once. The scan stops after scan_step pages that are in memory or swapped out,
 * because these take the time. *at: where it stopped. *n: number of resident->regions. 0, -EIO for
 * a result that the kernel excludes, or another error. */
static int scan_pages(const struct walk *walk, uint64_t start, uint64_t end, uint64_t *at,
		      size_t *n)
{
	struct host_resident *resident = walk->resident;
	uint64_t wanted = SCAN_PRESENT | SCAN_PFNZERO | (walk->files ? SCAN_FILE : 0);
	struct scan_arg a = { .size = sizeof(a),
			      .start = start,
			      .end = end - start > resident->reach ? start + resident->reach : end,
			      .vec = (uintptr_t)resident->regions,
			      .vec_len = RESIDENT_REGIONS,
			      .max_pages = resident->scan_step,
			      .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
			      .return_mask = wanted };
	uint64_t began = clock__monotonic();
	int got;

	if (walk->swapped)
		a.return_mask |= SCAN_SWAPPED;
	got = ioctl(resident->fd, SCAN_IOCTL, &a);
	if (got < 0)
		return -errno;
	if (got > (int)RESIDENT_REGIONS || a.walk_end <= start || a.walk_end > end)
		return -EIO;
	*n = (size_t)got;
	*at = a.walk_end;
	return pace_calls(resident, &resident->scan_step, clock__monotonic() - began,
			  a.walk_end < a.end);
}

/* True if the walk asks for ranges of these categories. */
static bool is_wanted(const struct walk *walk, uint64_t categories)
{
	if (categories & SCAN_SWAPPED)
		return walk->swapped;
	return (categories & SCAN_PRESENT) && !(categories & SCAN_PFNZERO) &&
	       (!walk->files || (categories & SCAN_FILE));
}

/* Calls the walk's fn for the resident ranges of [start, end), as PAGEMAP_SCAN finds them. */
static int walk_by_scan(const struct walk *walk, uint64_t start, uint64_t end)
{
	struct host_resident *resident = walk->resident;
	size_t n = 0;
	int err = 0;

	while (start < end && !err) {
		err = scan_pages(walk, start, end, &start, &n);
		for (size_t i = 0; i < n && !err; i++)
			if (is_wanted(walk, resident->regions[i].categories))
				err = walk->fn(walk->ctx, resident->regions[i].start,
					       resident->regions[i].end);
	}
	return err;
}

/* Calls the walk's fn for each run of resident pages. words: words of /proc/PID/pagemap for n pages
 * from start on. */
static int take_words(void *ctx, uint64_t start, const uint64_t *words, size_t n)
{
	const struct walk *walk = ctx;
	int err = 0;

	for (size_t i = 0, to; i < n && !err; i = to) {
		bool resident = is_resident(walk->resident, words[i]);

		for (to = i + 1; to < n && is_resident(walk->resident, words[to]) == resident;)
			to++;
		if (resident)
			err = walk->fn(walk->ctx, start + i * walk->resident->page,
				       start + to * walk->resident->page);
	}
	return err;
}

/* Calls the walk's fn for the resident ranges of the pages that [start, end) touches. */
static int walk(struct walk *w, uint64_t start, uint64_t end)
{
	uint64_t page = w->resident->page;

	start -= start % page;
	end += (page - end % page) % page;
	if (end <= start)
		return end < start ? -EINVAL : 0;
	return w->resident->no_scan ? each_words(w->resident, start, end, take_words, w)
				    : walk_by_scan(w, start, end);
}

int host_resident__walk(struct host_resident *resident, uint64_t start, uint64_t end,
			resident_fn fn, void *ctx)
{
	struct walk w = { .fn = fn, .ctx = ctx, .resident = resident };

	return walk(&w, start, end);
}

/* As host_resident__walk(), for pages that are in memory or swapped out, by PAGEMAP_SCAN. Both
 * addresses are multiples of the page size. */
static int scan_each(struct host_resident *resident, uint64_t start, uint64_t end, resident_fn fn,
		     void *ctx)
{
	struct walk walk = { .fn = fn, .ctx = ctx, .resident = resident, .swapped = true };

	return walk_by_scan(&walk, start, end);
}

/* Appends a range to resident->v, or extends the last one. */
static int add_range(void *ctx, uint64_t start, uint64_t end)
{
	struct host_resident *resident = ctx;

	if (resident->n && resident->v[resident->n - 1].end == start) {
		resident->v[resident->n - 1].end = end;
		return 0;
	}
	if (array__grow(&resident->v, &resident->cap, resident->n + 1, sizeof(*resident->v)))
		return -ENOMEM;
	resident->v[resident->n++] = (struct resident_range){ start, end };
	return 0;
}

int host_resident__read(struct host_resident *resident, uint64_t start, uint64_t end,
			const struct resident_range **v, size_t *n)
{
	int err;

	if (end < start || end - start > RESIDENT_SLICE)
		return -EINVAL;
	resident->n = 0;
	err = host_resident__walk(resident, start, end, add_range, resident);
	*v = resident->v;
	*n = resident->n;
	return err;
}

static int add_up(void *ctx, uint64_t start, uint64_t end)
{
	uint64_t *sum = ctx;

	*sum += end - start;
	return 0;
}

int host_resident__count(struct host_resident *resident, uint64_t start, uint64_t end, bool device,
			 uint64_t *ret)
{
	struct walk w = { .fn = add_up, .ctx = ret, .resident = resident, .files = device };

	*ret = 0;
	return walk(&w, start, end);
}

/*
 * ---- figures of smaps, from the words ----
 *
 * smaps itself keeps the lock of the address space for a whole mapping. How many processes share a
 * page is in /proc/kpagecount, which takes no lock.
 */

struct adding {
	struct host_resident *resident;
	struct smaps_figures *figures;
	bool shares;	     /* PSS, too */
	uint64_t pss;	     /* 1/SHARE_SCALE bytes */
	uint64_t start, end; /* resident addresses whose words are not read yet */
};

/* Adds a page that `count` processes map. */
static void add_page(struct adding *adding, bool file, uint64_t count)
{
	uint64_t page = adding->resident->page;

	adding->figures->rss += page;
	adding->figures->anonymous += file ? 0 : page;
	adding->figures->own += count == 1 ? page : 0;
	adding->pss += page * SHARE_SCALE / count;
}

/* Returns how many frames, from the i-th on, one read of kpagecount covers. *len: words to read,
 * from the i-th frame's on. */
static size_t count_window(const uint64_t *frames, size_t i, size_t n, size_t *len)
{
	uint64_t first = frames[i] >> 1;
	size_t k = i;

	*len = 1;
	for (; k < n && frames[k] >> 1 >= first && (frames[k] >> 1) - first < COUNTS; k++)
		if ((frames[k] >> 1) - first >= *len)
			*len = (frames[k] >> 1) - first + 1;
	return k - i;
}

/* Adds n pages of adding->resident->frames by the number of processes that map them. An entry is a
 * frame's number << 1, plus 1 for a page of a file. Pages with 0 processes are no memory: the page
 * of zeros, and memory of devices. */
static int add_counted(struct adding *adding, size_t n)
{
	const uint64_t *frames = adding->resident->frames;
	uint64_t counts[COUNTS];
	size_t len, these;

	for (size_t i = 0; i < n; i += these) {
		ssize_t got;

		these = count_window(frames, i, n, &len); /* frames that one read covers */
		got = io__pread(adding->resident->counts, counts, len * sizeof(*counts),
				(frames[i] >> 1) * sizeof(*counts));
		if (got < 0)
			return (int)got;
		for (size_t k = i; k < i + these; k++) {
			size_t at = (frames[k] >> 1) - (frames[i] >> 1);
			bool known = at < (size_t)got / sizeof(*counts) && counts[at];

			if (known)
				add_page(adding, frames[k] & 1, counts[at]);
		}
	}
	return 0;
}

/* Adds the pages of a piece of words. A page that several processes may share is looked up in
 * kpagecount if shares are wanted. So is a page that is neither a file's nor mapped once, because
 * it may be no memory. words: of /proc/PID/pagemap. */
static int add_words(void *ctx, uint64_t start, const uint64_t *words, size_t n)
{
	struct adding *adding = ctx;
	size_t open = 0;

	(void)start;
	for (size_t i = 0; i < n; i++) {
		uint64_t word = words[i];
		bool file = word & WORD_FILE;

		if (!(word & WORD_PRESENT) && (word & WORD_SWAPPED))
			adding->figures->swap += adding->resident->page;
		if (!is_resident(adding->resident, word))
			continue;
		if (word & WORD_EXCLUSIVE)
			add_page(adding, file, /*count=*/1);
		else if (adding->resident->counts >= 0 && (adding->shares || !file))
			adding->resident->frames[open++] = (word & WORD_FRAME) << 1 | file;
		else /* shared; its exact share is not wanted or not known */
			add_page(adding, file, /*count=*/2);
	}
	return add_counted(adding, open);
}

/* Reads the words of the addresses that were collected. */
static int flush_range(struct adding *adding)
{
	return adding->end
		       ? each_words(adding->resident, adding->start, adding->end, add_words, adding)
		       : 0;
}

/* Collects a range that PAGEMAP_SCAN found. Reads the words of the range before it, unless the gap
 * is small. */
static int add_scanned(void *ctx, uint64_t start, uint64_t end)
{
	struct adding *adding = ctx;
	/* A gap may have pages of zeros. The words show these only if frames can be seen. */
	uint64_t gap = adding->resident->zero ? GAP * adding->resident->page : 0;
	int err = 0;

	if (adding->end && start - adding->end <= gap) {
		adding->end = end;
		return 0;
	}
	err = flush_range(adding);
	adding->start = start;
	adding->end = end;
	return err;
}

/* Reads the words of all pages, or only of the ranges that PAGEMAP_SCAN finds. */
int host_resident__figures(struct host_resident *resident, uint64_t start, uint64_t end,
			   bool shares, struct smaps_figures *ret)
{
	struct adding adding = { .resident = resident, .figures = ret, .shares = shares };
	int err;

	*ret = (struct smaps_figures){ 0 };
	if (resident->no_scan || (resident->zero && end - start <= SMALL))
		err = each_words(resident, start, end, add_words, &adding);
	else
		err = scan_each(resident, start, end, add_scanned, &adding) ?: flush_range(&adding);
	ret->pss = adding.pss / SHARE_SCALE;
	return err;
}
