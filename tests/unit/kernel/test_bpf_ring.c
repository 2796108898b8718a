/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The reader of a BPF ring buffer, on a ring in a file: complete, unfinished and discarded
 * records. */
#include "unit/cmocka.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/kernel/bpf_ring.h"
#include "capture/decode/decoder.h"
#include "capture/session/session_internal.h"

#define BYTES 4096u /* bytes of data: a page */

struct writer {
	int fd;
	uint8_t *map; /* the consumer's page, the producer's page, the data */
	uint64_t *producer;
	struct bpf_ring *ring;
	uint64_t sum; /* sum of the records' values */
	int err;
};

static void open_writer(struct writer *w)
{
	*w = (struct writer){ .fd = memfd_create("ring", MFD_CLOEXEC) };
	assert_true(w->fd >= 0);
	assert_int_equal(ftruncate(w->fd, 3 * BYTES), 0);
	w->map = mmap(NULL, 3 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
	assert_true(w->map != MAP_FAILED);
	w->producer = (uint64_t *)(w->map + BYTES);
	w->ring = bpf_ring__new_in_file(w->fd, 0, BYTES, BYTES);
	assert_non_null(w->ring);
}

static void close_writer(struct writer *w)
{
	bpf_ring__free(w->ring);
	munmap(w->map, 3 * BYTES);
	close(w->fd);
}

/* Writes a record of 8 bytes. Returns the address of its header. */
static uint32_t *put(struct writer *w, uint64_t v, uint32_t flags)
{
	uint8_t *at = w->map + 2 * (size_t)BYTES + *w->producer % BYTES;

	*(uint32_t *)at = 8 | flags;
	*(uint64_t *)(at + BPF_RINGBUF_HDR_SZ) = v;
	*w->producer += BPF_RINGBUF_HDR_SZ + 8;
	return (uint32_t *)at;
}

static int on_record(void *ctx, const void *rec, size_t len)
{
	struct writer *w = ctx;

	assert_int_equal(len, 8);
	w->sum = w->sum * 10 + *(const uint64_t *)rec;
	return w->err;
}

static void test_in_order(void **state)
{
	struct writer w;

	open_writer(&w);
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 0);
	/* Several times around the ring. */
	for (int i = 0; i < 1000; i++) {
		put(&w, 1, 0);
		put(&w, 2, BPF_RINGBUF_DISCARD_BIT);
		put(&w, 3, 0);
		w.sum = 0;
		assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 2);
		assert_int_equal(w.sum, 13);
		assert_int_equal(bpf_ring__taken(w.ring), bpf_ring__written(w.ring));
	}
	close_writer(&w);
}

static void test_one_that_is_being_written(void **state)
{
	struct writer w;
	uint32_t *head;
	uint64_t written;

	open_writer(&w);
	put(&w, 1, 0);
	head = put(&w, 2, BPF_RINGBUF_BUSY_BIT);
	put(&w, 3, 0);
	written = bpf_ring__written(w.ring);
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 1);
	assert_int_equal(w.sum, 1);
	assert_true(bpf_ring__taken(w.ring) < written);
	*head &= ~BPF_RINGBUF_BUSY_BIT;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 2);
	assert_int_equal(w.sum, 123);
	assert_int_equal(bpf_ring__taken(w.ring), written);
	close_writer(&w);
}

static void test_stopped(void **state)
{
	struct writer w;

	open_writer(&w);
	put(&w, 1, 0);
	put(&w, 2, 0);
	w.err = -EAGAIN;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), -EAGAIN);
	assert_int_equal(w.sum, 1);
	assert_true(bpf_ring__taken(w.ring) < bpf_ring__written(w.ring));
	bpf_ring__skip(w.ring);
	assert_int_equal(bpf_ring__taken(w.ring), bpf_ring__written(w.ring));
	w.err = 0;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 0);
	close_writer(&w);
}

static void test_too_long(void **state)
{
	struct writer w;

	open_writer(&w);
	*put(&w, 1, 0) = RING_RECORD_MAX;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), -EMSGSIZE);
	close_writer(&w);
}

/* Other writers of the file control only how far the reader reads, not its position. */
static void test_positions_of_others(void **state)
{
	struct writer w;

	open_writer(&w);
	put(&w, 1, 0);
	put(&w, 2, 0);
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 2);
	/* The consumer position in the file is ignored. */
	*(uint64_t *)w.map = 0;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 0);
	put(&w, 3, 0);
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 1);
	assert_int_equal(w.sum, 123);
	/* More data than the ring holds; a position before the reader's. */
	*w.producer += BYTES;
	*w.producer += 8;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), -EBADMSG);
	*w.producer = 0;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), 0);
	*w.producer = UINT64_MAX;
	assert_int_equal(bpf_ring__consume(w.ring, on_record, &w), -EBADMSG);
	close_writer(&w);
}

/* Records shorter than their type, or than the frames that they say they have, are rejected before
 * anything reads them. */
static void test_short_records(void **state)
{
	union {
		struct mt_hdr h;
		struct mt_rec_stack stack;
		uint8_t bytes[512];
	} r = { 0 };
	/* Before the attach, and after it. The decoder is not used. */
	struct session early = { 0 }, s = { .decoder = (void *)&early };

	for (unsigned type = 0; type < 256; type++) {
		r.h.type = (uint8_t)type;
		for (size_t len = 0; len <= sizeof(struct mt_hdr); len++)
			assert_int_equal(decoder__record(NULL, &r, len), -EBADMSG);
	}
	r.h.type = MT_REC_STACK;
	r.stack.n = 3;
	for (size_t len = 0; len < sizeof(r.stack) + 3 * sizeof(struct mt_frame); len++) {
		assert_int_equal(decoder__record(NULL, &r, len), -EBADMSG);
		assert_int_equal(session__enqueue(&early, &r, len), -EBADMSG);
		assert_int_equal(session__enqueue(&s, &r, len), -EBADMSG);
	}
	assert_int_equal(session__enqueue(&s, &r, sizeof(r.stack) + 3 * sizeof(struct mt_frame)),
			 0);
	r.stack.n = MT_MAX_ENTRIES + 1;
	assert_int_equal(session__enqueue(&s, &r, sizeof(r)), -EBADMSG);
	free(s.queue.buf);
	r.h.type = MT_REC_REPORT;
	assert_int_equal(decoder__record(NULL, &r, sizeof(struct mt_rec_mem) - 1), -EBADMSG);
	r.h.type = MT_REC_CUDA_CALL;
	assert_int_equal(decoder__record(NULL, &r, sizeof(struct mt_rec_call) - 1), -EBADMSG);
	r.h.type = MT_REC_REQUESTED;
	assert_int_equal(decoder__record(NULL, &r, sizeof(struct mt_rec_asked) - 1), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_one_that_is_being_written),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_positions_of_others),
		cmocka_unit_test(test_short_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
