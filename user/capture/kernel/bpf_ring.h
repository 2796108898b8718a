/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The reading end of a BPF ring buffer. The kernel maps the data twice in a row. Unlike libbpf, we
 * map only the beginning of the second image, as much as the longest record needs: the kernel
 * counts both images as our memory. */
#include <stddef.h>
#include <stdint.h>

#define RING_RECORD_MAX (64u << 10) /* bytes; a longer record ends the reading with -EMSGSIZE */

struct bpf_ring;

/* fd: a BPF_MAP_TYPE_RINGBUF map with `bytes` of data, borrowed. NULL with errno. */
struct bpf_ring *bpf_ring__new(int fd, size_t bytes);
/* Opens a ring in a file, from offset `at` on: a page of size `page` for the consumer, one for the
 * producer, then the data, once. at and page are multiples of the page size. Others can write to
 * the file, so fn gets copies of records. fd is borrowed. NULL with errno. */
struct bpf_ring *bpf_ring__new_in_file(int fd, size_t at, size_t page, size_t bytes);
/* Skips all records that have been written. */
void bpf_ring__skip(struct bpf_ring *ring);
void bpf_ring__free(struct bpf_ring *ring); /* NULL is fine */
/*
 * Calls fn for each record. If fn returns a negative value, stops and returns that value. fn's
 * record is aligned to 8 bytes and valid until fn returns. Otherwise returns the number of
 * records, -EMSGSIZE (see RING_RECORD_MAX), or -EBADMSG: the writers' position is not valid.
 */
int bpf_ring__consume(struct bpf_ring *ring, int (*fn)(void *ctx, const void *rec, size_t len),
		      void *ctx);
/* Bytes written and bytes consumed since the beginning. A writer that is interrupted within a
 * record keeps all later records from being consumed. */
uint64_t bpf_ring__written(const struct bpf_ring *ring);
uint64_t bpf_ring__taken(const struct bpf_ring *ring);
