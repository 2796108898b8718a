/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The writer of the ring, in the layout of the kernel's ring (user/capture/kernel/bpf_ring.c reads
 * both). Each record has a word of length and flags before it. The writer sets it to busy under a
 * lock before the record is visible. A writer waits while the ring is full, because records from
 * the recorder's own child must not be lost. It stops waiting when the recorder ends.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "library.h"
#include "machine.h"

#define WAIT 2000000	/* ns per wait for the reader */
#define RECORD_MAX 4096 /* bytes of the longest record */

static __u64 *consumer, *producer;
static __u8 *data;
static __u64 mask;
static __u32 lock;
static bool gone; /* the recorder has ended */
static __thread __u64 discarded[RECORD_MAX / sizeof(__u64)]
	__attribute__((tls_model("initial-exec")));

int ring__map(int fd, __u64 bytes)
{
	__u8 *p = mmap(NULL, 2 * MT_INSIDE_PAGE + 2 * bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (mmap(p, 2 * MT_INSIDE_PAGE + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 MT_INSIDE_RING) == MAP_FAILED ||
	    mmap(p + 2 * MT_INSIDE_PAGE + bytes, bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, MT_INSIDE_RING + 2 * MT_INSIDE_PAGE) == MAP_FAILED)
		return -errno;
	consumer = (__u64 *)p;
	producer = (__u64 *)(p + MT_INSIDE_PAGE);
	data = p + 2 * MT_INSIDE_PAGE;
	mask = bytes - 1;
	return 0;
}

static long futex(__u32 *word, int op, __u32 value, const struct timespec *wait)
{
	return syscall(SYS_futex, word, op, value, wait, NULL, 0);
}

void ring__wake(void)
{
	__atomic_add_fetch(&shared->wake, 1, __ATOMIC_SEQ_CST);
	futex(&shared->wake, FUTEX_WAKE, 1, NULL);
}

bool recorder_is_there(void)
{
	/* Such a child has another parent, and `gone` is the recorded process's. */
	if (process__shares_memory())
		return false;
	if (!gone && getppid() != (pid_t)shared->recorder)
		gone = true;
	return !gone && __atomic_load_n(&shared->reads, __ATOMIC_RELAXED);
}

/* Waits until the reader has read, at most WAIT. */
static void wait_for_read(__u32 taken)
{
	const struct timespec ts = { .tv_nsec = WAIT };

	__atomic_add_fetch(&shared->waiting, 1, __ATOMIC_SEQ_CST);
	futex(&shared->taken, FUTEX_WAIT, taken, &ts);
	__atomic_sub_fetch(&shared->waiting, 1, __ATOMIC_SEQ_CST);
}

static __u64 record_bytes(__u64 size)
{
	return (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ULL;
}

static void take_lock(void)
{
	unsigned int tries = 0;

	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
		if (++tries % 64)
			machine__pause();
		else
			sched_yield();
	}
}

/* NULL: no space. */
static void *try_reserve(__u64 size)
{
	__u64 at, len = record_bytes(size);
	__u32 *head = NULL;

	take_lock();
	at = *producer;
	if (at + len - __atomic_load_n(consumer, __ATOMIC_ACQUIRE) <= mask) {
		head = (__u32 *)(data + (at & mask));
		head[1] = 0;
		__atomic_store_n(head, (__u32)size | BPF_RINGBUF_BUSY_BIT, __ATOMIC_RELAXED);
		__atomic_store_n(producer, at + len, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
	return head ? head + 2 : NULL;
}

void *ring__reserve(__u64 size)
{
	__u32 taken;
	void *rec;

	if (size > sizeof(discarded))
		return NULL;
	for (;;) {
		if (gone)
			return discarded;
		taken = __atomic_load_n(&shared->taken, __ATOMIC_SEQ_CST);
		rec = try_reserve(size);
		if (rec)
			return rec;
		if (!recorder_is_there())
			return discarded;
		ring__wake();
		wait_for_read(taken);
	}
}

static void count_discarded(void)
{
	const struct mt_hdr *h = (const struct mt_hdr *)discarded;

	__atomic_add_fetch(&shared->counters[MT_CNT_RING_LOST + h->type % MT_REC_TYPES], 1,
			   __ATOMIC_RELAXED);
}

void ring__commit(void *rec, bool discard)
{
	__u32 *head = (__u32 *)rec - 2, size;

	if (rec == discarded) {
		if (!discard)
			count_discarded();
		return;
	}
	size = *head & ~BPF_RINGBUF_BUSY_BIT;
	__atomic_store_n(head, discard ? size | BPF_RINGBUF_DISCARD_BIT : size, __ATOMIC_RELEASE);
}

void ring__wait_for_reader(unsigned int ms)
{
	const struct timespec ts = { .tv_nsec = 1000000 };
	__u64 until = __atomic_load_n(producer, __ATOMIC_ACQUIRE);

	while (ms-- && recorder_is_there() &&
	       (__s64)(__atomic_load_n(consumer, __ATOMIC_ACQUIRE) - until) < 0) {
		ring__wake();
		nanosleep(&ts, NULL);
	}
}

void ring__abandon(void)
{
	__u64 at = __atomic_load_n(consumer, __ATOMIC_ACQUIRE),
	      end = __atomic_load_n(producer, __ATOMIC_ACQUIRE);

	while (at < end) {
		__u32 *head = (__u32 *)(data + (at & mask)),
		      size = *head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (*head & BPF_RINGBUF_BUSY_BIT)
			__atomic_store_n(head, size | BPF_RINGBUF_DISCARD_BIT, __ATOMIC_RELEASE);
		at += record_bytes(size);
	}
}
