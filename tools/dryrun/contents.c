// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Known bytes of device memory, written by small copies. A hash table of pages limits the memory,
 * and device addresses need no memory behind them. In a page, each byte is known, zero because
 * never written, or a guess (a sum over absent ranks).
 */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAGES 16384u /* 64 MiB */
#define BUCKETS 4096u

struct page {
	struct page *next;
	uint64_t number;
	uint64_t known[DRYRUN_PAGE / 64]; /* a bit per byte */
	unsigned char bytes[DRYRUN_PAGE];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct page *buckets[BUCKETS];
static unsigned int n_pages; /* read without the lock, because 0 is common */

void contents__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void contents__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

static bool empty(void)
{
	return !__atomic_load_n(&n_pages, __ATOMIC_ACQUIRE);
}

static struct page **slot(uint64_t number)
{
	struct page **at = &buckets[(number * 0x9e3779b97f4a7c15ull) >> 52];

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

static void drop(struct page **at)
{
	struct page *page = *at;

	*at = page->next;
	free(page);
	__atomic_store_n(&n_pages, n_pages - 1, __ATOMIC_RELEASE);
}

/* NULL: too many pages, or no host memory; the bytes will read as zeros. */
static struct page *make(uint64_t number)
{
	struct page **at = slot(number);

	if (*at)
		return *at;
	if (n_pages == MAX_PAGES) {
		dryrun__unmodelled("more than 64 MiB of small contents in device memory");
		return NULL;
	}
	*at = calloc(1, sizeof(**at));
	if (!*at)
		return NULL;
	(*at)->number = number;
	__atomic_store_n(&n_pages, n_pages + 1, __ATOMIC_RELEASE);
	return *at;
}

static size_t piece(uint64_t addr, uint64_t size)
{
	uint64_t left = DRYRUN_PAGE - addr % DRYRUN_PAGE;

	return (size_t)(size < left ? size : left);
}

/* Bits [from, to) of a page within its word i. */
static uint64_t bits(unsigned int i, unsigned int from, unsigned int to)
{
	unsigned int low = from > 64 * i ? from - 64 * i : 0,
		     high = to < 64 * (i + 1) ? to - 64 * i : 64;

	return (high == 64 ? 0 : 1ull << high) - (1ull << low);
}

static void set_known(struct page *page, unsigned int from, unsigned int to, bool known)
{
	for (unsigned int i = from / 64; 64 * i < to; i++) {
		if (known)
			page->known[i] |= bits(i, from, to);
		else
			page->known[i] &= ~bits(i, from, to);
	}
}

static bool is_known(const struct page *page, unsigned int from, unsigned int to)
{
	for (unsigned int i = from / 64; 64 * i < to; i++)
		if (~page->known[i] & bits(i, from, to))
			return false;
	return true;
}

/* from NULL: fill with `byte`. */
static void put(uint64_t addr, const void *from, int byte, size_t size)
{
	contents__lock();
	for (size_t done = 0, n; done < size; done += n) {
		struct page *page = make((addr + done) / DRYRUN_PAGE);
		unsigned int at = (addr + done) % DRYRUN_PAGE;

		n = piece(addr + done, size - done);
		if (!page)
			continue;
		if (from)
			memcpy(page->bytes + at, (const char *)from + done, n);
		else
			memset(page->bytes + at, byte, n);
		set_known(page, at, at + (unsigned int)n, true);
	}
	contents__unlock();
}

void contents__write(uint64_t addr, const void *from, size_t size)
{
	put(addr, from, 0, size);
}

void contents__fill(uint64_t addr, int byte, size_t size)
{
	put(addr, NULL, byte, size);
}

enum contents contents__state(uint64_t addr, size_t size)
{
	bool known = true, any = false;

	if (empty())
		return CONTENTS_NONE;
	contents__lock();
	for (size_t done = 0, n; done < size && (known || !any); done += n) {
		const struct page *page = *slot((addr + done) / DRYRUN_PAGE);
		unsigned int at = (addr + done) % DRYRUN_PAGE;

		n = piece(addr + done, size - done);
		known &= page && is_known(page, at, at + (unsigned int)n);
		any |= page != NULL;
		if (done >= DRYRUN_SMALL_COPY && !known)
			break; /* large ranges only need to be unknown */
	}
	contents__unlock();
	return known ? CONTENTS_KNOWN : any ? CONTENTS_IN_PART : CONTENTS_NONE;
}

void contents__doubt(uint64_t addr, size_t size)
{
	if (empty())
		return;
	contents__lock();
	for (size_t done = 0, n; done < size; done += n) {
		struct page *page = *slot((addr + done) / DRYRUN_PAGE);
		unsigned int at = (addr + done) % DRYRUN_PAGE;

		n = piece(addr + done, size - done);
		if (page)
			set_known(page, at, at + (unsigned int)n, false);
	}
	contents__unlock();
}

/* Intersects the page with the range. False: empty. */
static bool overlap(const struct page *page, uint64_t addr, uint64_t size, uint64_t *from,
		    uint64_t *to)
{
	uint64_t begin = page->number * DRYRUN_PAGE, end = begin + DRYRUN_PAGE;

	*from = addr > begin ? addr : begin;
	*to = addr + size < end ? addr + size : end;
	return *from < *to;
}

static void read_page(const struct page *page, uint64_t addr, void *out, uint64_t size)
{
	uint64_t from, to;

	if (overlap(page, addr, size, &from, &to))
		memcpy((char *)out + (from - addr), page->bytes + from % DRYRUN_PAGE, to - from);
}

void contents__read(uint64_t addr, void *to, size_t size)
{
	uint64_t first = addr / DRYRUN_PAGE, last = (addr + size - 1) / DRYRUN_PAGE;

	/* The caller has filled larger destinations without touching pages: see write_zeros(). */
	if (size <= DRYRUN_SMALL_COPY)
		memset(to, 0, size);
	if (!size || empty())
		return;
	contents__lock();
	if (last - first > n_pages) {
		for (unsigned int b = 0; b < BUCKETS; b++)
			for (struct page *page = buckets[b]; page; page = page->next)
				read_page(page, addr, to, size);
	} else {
		for (uint64_t number = first; number <= last; number++) {
			struct page *page = *slot(number);

			if (page)
				read_page(page, addr, to, size);
		}
	}
	contents__unlock();
}

static void clear_page(struct page **at, uint64_t addr, uint64_t size)
{
	uint64_t from, to;

	if (!overlap(*at, addr, size, &from, &to))
		return;
	if (to - from == DRYRUN_PAGE) {
		drop(at);
		return;
	}
	memset((*at)->bytes + from % DRYRUN_PAGE, 0, to - from);
	set_known(*at, from % DRYRUN_PAGE, (unsigned int)(from % DRYRUN_PAGE + (to - from)), false);
}

void contents__clear(uint64_t addr, uint64_t size)
{
	uint64_t first = addr / DRYRUN_PAGE, last = (addr + size - 1) / DRYRUN_PAGE;

	if (!size || empty())
		return;
	contents__lock();
	if (last - first > n_pages) {
		for (unsigned int b = 0; b < BUCKETS; b++) {
			struct page **at = &buckets[b];

			while (*at) {
				struct page *page = *at;

				clear_page(at, addr, size);
				if (*at == page)
					at = &page->next;
			}
		}
	} else {
		for (uint64_t number = first; number <= last; number++) {
			struct page **at = slot(number);

			if (*at)
				clear_page(at, addr, size);
		}
	}
	contents__unlock();
}
