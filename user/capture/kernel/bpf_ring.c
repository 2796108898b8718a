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
static void *map_data(const struct bpf_ring *ring, int fd, size_t at, size_t bytes, bool twice)
{
	uint8_t *start = mmap(NULL, ring->mapped, PROT_READ, MAP_SHARED, fd, (off_t)at);

	if (start == MAP_FAILED || twice)
		return start;
	/* Maps the beginning of the data again behind its end, in place of the rest of the file. */
	if (mmap(start + ring->page + bytes, wrapped_bytes(bytes), PROT_READ,
		 MAP_SHARED | MAP_FIXED, fd, (off_t)(at + ring->page)) != MAP_FAILED)
		return start;
	munmap(start, ring->mapped);
	return MAP_FAILED;
}

/* Maps a ring: the consumer's page, and behind it the rest. at: offset in the file; page: size of a
 * page, in bytes; bytes: size of the data; twice: as for map_data(). Both kinds of file map the
 * same length. NULL with errno. */
static struct bpf_ring *map_ring(int fd, size_t at, size_t page, size_t bytes, bool twice)
{
	struct bpf_ring *ring = calloc(1, sizeof(*ring));
	void *start;

	if (!ring)
		return NULL;
	ring->page = page;
	ring->mask = bytes - 1;
	ring->mapped = ring->page + bytes + wrapped_bytes(bytes);
	start = mmap(NULL, ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
	if (start != MAP_FAILED) {
		ring->consumer = start;
		start = map_data(ring, fd, at + ring->page, bytes, twice);
	}
	if (start == MAP_FAILED) {
		int err = errno;

		bpf_ring__free(ring);
		errno = err;
		return NULL;
	}
	ring->producer = start;
	ring->data = (const uint8_t *)start + ring->page;
	ring->at = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE) & ~(uint64_t)7;
	return ring;
}

struct bpf_ring *bpf_ring__new(int fd, size_t bytes)
{
	return map_ring(fd, 0, (size_t)sysconf(_SC_PAGESIZE), bytes, /*twice=*/true);
}

struct bpf_ring *bpf_ring__new_in_file(int fd, size_t at, size_t page, size_t bytes)
{
	struct bpf_ring *ring = map_ring(fd, at, page, bytes, /*twice=*/false);

	if (ring)
		ring->copy = aligned_alloc(8, RING_RECORD_MAX);
	if (ring && !ring->copy) {
		bpf_ring__free(ring);
		errno = ENOMEM;
		return NULL;
	}
	return ring;
}

void bpf_ring__skip(struct bpf_ring *ring)
{
	ring->at = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) & ~(uint64_t)7;
	__atomic_store_n(ring->consumer, ring->at, __ATOMIC_RELEASE);
}

void bpf_ring__free(struct bpf_ring *ring)
{
	if (!ring)
		return;
	if (ring->consumer)
		munmap(ring->consumer, ring->page);
	if (ring->producer)
		munmap((void *)ring->producer, ring->mapped);
	free(ring->copy);
	free(ring);
}

int bpf_ring__consume(struct bpf_ring *ring, int (*fn)(void *ctx, const void *rec, size_t len),
		      void *ctx)
{
	uint64_t at = ring->at, end;
	int n_records = 0, err = 0;

	while (!err && at < (end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE))) {
		if (end - at > ring->mask + 1)
			return -EBADMSG;
		while (!err && at < end) {
			const uint8_t *rec = ring->data + (at & ring->mask);
			uint32_t head = __atomic_load_n((const uint32_t *)rec, __ATOMIC_ACQUIRE);
			size_t len = head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

			/* A record that is being written holds up all later ones. */
			if (head & BPF_RINGBUF_BUSY_BIT)
				return n_records;
			if (len + BPF_RINGBUF_HDR_SZ > wrapped_bytes(ring->mask + 1))
				return -EMSGSIZE;
			if (!(head & BPF_RINGBUF_DISCARD_BIT)) {
				const void *record = rec + BPF_RINGBUF_HDR_SZ;
				int ret;

				if (ring->copy)
					record = memcpy(ring->copy, record, len);
				ret = fn(ctx, record, len);
				err = ret < 0 ? ret : 0;
				n_records += n_records < INT_MAX;
			}
			at += (len + BPF_RINGBUF_HDR_SZ + 7) & ~(size_t)7;
			ring->at = at;
			__atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
		}
	}
	return err ?: n_records;
}

uint64_t bpf_ring__written(const struct bpf_ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
}

uint64_t bpf_ring__taken(const struct bpf_ring *ring)
{
	return ring->at;
}
