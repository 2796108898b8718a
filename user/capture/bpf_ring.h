/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_BPF_RING_H
#define MT_CAPTURE_BPF_RING_H
/*
 * The reading end of a BPF ring buffer. As libbpf's, but its memory is mapped once: the kernel
 * shows it twice in a row, so that no record is in two pieces, and both count as memory of ours. Of
 * the second only as much is mapped as the longest record needs.
 */
#include <stddef.h>
#include <stdint.h>

#define RING_RECORD_MAX                                                                            \
	(64u << 10) /* bytes; a longer one, or one longer than the ring, ends the reading with     \
		       -EMSGSIZE */

struct bpf_ring;

/* fd: of a map of type BPF_MAP_TYPE_RINGBUF with so many bytes, borrowed. NULL with errno. */
struct bpf_ring *bpf_ring__new(int fd, size_t bytes);
/*
 * The same layout in a file, at a multiple of the page size; the data is there once. Others can
 * write to it: a record is handed on as a copy. fd is borrowed. NULL with errno.
 */
struct bpf_ring *bpf_ring__new_in_file(int fd, size_t at, size_t bytes);
/* What is there is not wanted. */
void bpf_ring__skip(struct bpf_ring *r);
void bpf_ring__free(struct bpf_ring *r); /* NULL is fine */
/*
 * Hands on what is there, until fn returns something negative, which is returned then; that record
 * is taken, too. The record is fn's until it returns, aligned to 8. -EBADMSG: the writers' position
 * is none. Else how many there were.
 */
int bpf_ring__consume(struct bpf_ring *r, int (*fn)(void *ctx, const void *rec, size_t len),
		      void *ctx);
/*
 * Bytes since the beginning, up to which records have been begun by the writers, and handed on
 * here. A writer that is held up within a record keeps all from being handed on that come after it.
 */
uint64_t bpf_ring__written(const struct bpf_ring *r);
uint64_t bpf_ring__taken(const struct bpf_ring *r);

#endif
