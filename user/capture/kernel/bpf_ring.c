/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The layout, and the order of accesses, are those of kernel/bpf/ringbuf.c and of the kernel's
 * Documentation/bpf/ringbuf.rst. */
#include "capture/kernel/bpf_ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct bpf_ring {
	uint64_t *consumer;	  /* the reader's position, in a writable page */
	const uint64_t *producer; /* the writers' position, in the page before the data */
	const uint8_t *data;
	size_t mask;   /* size of the data - 1, in bytes */
	size_t page;   /* size of a page, in bytes */
	size_t mapped; /* bytes mapped from .producer on */
	uint64_t at;   /* position after the last consumed record; others may change *consumer */
	uint8_t *copy; /* RING_RECORD_MAX bytes for a copy, if writers could change a record during
			  fn; otherwise NULL */
};

/* Bytes to map behind the end of the data, where its beginning comes again, so that each record is
 * in one piece. */
static size_t wrapped_bytes(size_t bytes)
{
	return bytes < RING_RECORD_MAX ? bytes : RING_RECORD_MAX;
}

/*
 * Maps the producer's page and the data, from offset `at` of the file on. twice: the file has the
 * data twice, as a BPF map has. MAP_FAILED with errno.
 */
static void *map_data(const struct bpf_ring *r, int fd, size_t at, size_t bytes, bool twice)
{
	uint8_t *p = mmap(NULL, r->mapped, PROT_READ, MAP_SHARED, fd, (off_t)at);

	if (p == MAP_FAILED || twice)
		return p;
	/* Maps the beginning of the data again behind its end, in place of the rest of the file. */
	if (mmap(p + r->page + bytes, wrapped_bytes(bytes), PROT_READ, MAP_SHARED | MAP_FIXED, fd,
		 (off_t)(at + r->page)) != MAP_FAILED)
		return p;
	munmap(p, r->mapped);
	return MAP_FAILED;
}

/* Maps a ring: the consumer's page, and behind it the rest. NULL with errno. */
static struct bpf_ring *map_ring(int fd, size_t at, size_t page, size_t bytes, bool twice)
{
	struct bpf_ring *r = calloc(1, sizeof(*r));
	void *p;

	if (!r)
		return NULL;
	r->page = page;
	r->mask = bytes - 1;
	r->mapped = r->page + bytes + wrapped_bytes(bytes);
	p = mmap(NULL, r->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
	if (p != MAP_FAILED) {
		r->consumer = p;
		p = map_data(r, fd, at + r->page, bytes, twice);
	}
	if (p == MAP_FAILED) {
		int err = errno;

		bpf_ring__free(r);
		errno = err;
		return NULL;
	}
	r->producer = p;
	r->data = (const uint8_t *)p + r->page;
	r->at = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE) & ~(uint64_t)7;
	return r;
}

struct bpf_ring *bpf_ring__new(int fd, size_t bytes)
{
	return map_ring(fd, 0, (size_t)sysconf(_SC_PAGESIZE), bytes, true);
}

struct bpf_ring *bpf_ring__new_in_file(int fd, size_t at, size_t page, size_t bytes)
{
	struct bpf_ring *r = map_ring(fd, at, page, bytes, false);

	if (r)
		r->copy = aligned_alloc(8, RING_RECORD_MAX);
	if (r && !r->copy) {
		bpf_ring__free(r);
		errno = ENOMEM;
		return NULL;
	}
	return r;
}

void bpf_ring__skip(struct bpf_ring *r)
{
	r->at = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE) & ~(uint64_t)7;
	__atomic_store_n(r->consumer, r->at, __ATOMIC_RELEASE);
}

void bpf_ring__free(struct bpf_ring *r)
{
	if (!r)
		return;
	if (r->consumer)
		munmap(r->consumer, r->page);
	if (r->producer)
		munmap((void *)r->producer, r->mapped);
	free(r->copy);
	free(r);
}

int bpf_ring__consume(struct bpf_ring *r, int (*fn)(void *ctx, const void *rec, size_t len),
		      void *ctx)
{
	uint64_t at = r->at, end;
	int n_records = 0, err = 0;

	while (!err && at < (end = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE))) {
		if (end - at > r->mask + 1)
			return -EBADMSG;
		while (!err && at < end) {
			const uint8_t *rec = r->data + (at & r->mask);
			uint32_t head = __atomic_load_n((const uint32_t *)rec, __ATOMIC_ACQUIRE);
			size_t len = head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

			/* A record that is being written holds up all later ones. */
			if (head & BPF_RINGBUF_BUSY_BIT)
				return n_records;
			if (len + BPF_RINGBUF_HDR_SZ > wrapped_bytes(r->mask + 1))
				return -EMSGSIZE;
			if (!(head & BPF_RINGBUF_DISCARD_BIT)) {
				const void *record = rec + BPF_RINGBUF_HDR_SZ;
				int ret;

				if (r->copy)
					record = memcpy(r->copy, record, len);
				ret = fn(ctx, record, len);
				err = ret < 0 ? ret : 0;
				n_records += n_records < INT_MAX;
			}
			at += (len + BPF_RINGBUF_HDR_SZ + 7) & ~(size_t)7;
			r->at = at;
			__atomic_store_n(r->consumer, at, __ATOMIC_RELEASE);
		}
	}
	return err ?: n_records;
}

uint64_t bpf_ring__written(const struct bpf_ring *r)
{
	return __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
}

uint64_t bpf_ring__taken(const struct bpf_ring *r)
{
	return r->at;
}
