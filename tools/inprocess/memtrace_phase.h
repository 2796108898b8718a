/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MEMTRACE_PHASE_H
#define MEMTRACE_PHASE_H
/*
 * Names the phases of a program in C or C++ for memtrace-bpf: who records it sees the memory of
 * each.
 *
 *	#include "memtrace_phase.h"
 *
 *	struct memtrace_phase p = memtrace_phase_begin("rollout");
 *	...
 *	memtrace_phase_end(&p);
 *
 * Phases nest on each thread. A phase may end on another thread than it began on. This file is all
 * that is needed, for GCC and Clang on Linux. It writes 128 bytes for a begin and for an end into
 * memory that a recorder reads from outside, recorded or not; docs/reference/phases.md describes
 * it. Names are cut to 80 bytes. All functions are thread-safe, and may be called after fork(), but
 * not in a signal handler. They keep errno, and do nothing if there is no memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct memtrace_phase {
	uint64_t scope, outer; /* 0: it was not written */
	uint32_t pid;
	char name[80];
};

#define MEMTRACE_PHASE_WEAK __attribute__((weak))
#define MEMTRACE_PHASE_ROOM 1024
#define MEMTRACE_PHASE_FIRST_FD 1000
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct memtrace_phase_record {
	uint64_t number, time, other;
	uint32_t tid;
	uint16_t what, unused;
	char name[80];
	uint64_t unused_too, again;
};

struct memtrace_phase_area {
	char magic[8];
	uint32_t version, record_size, room, pid;
	char unused[104];
	struct memtrace_phase_record records[MEMTRACE_PHASE_ROOM];
};

/* The kernel clears this in a forked process, which makes an area of its own. */
struct memtrace_phase_state {
	int state; /* 0: none; 1: a thread makes it; 2: ready; 3: it could not be made */
	struct memtrace_phase_area *area;
	uint64_t numbers;
};

struct memtrace_phase_thread {
	uint64_t innermost;
	uint32_t pid, tid; /* 0: not known; pid is another one after fork() */
};

/* Weak, so that all files of a program share them. */
MEMTRACE_PHASE_WEAK struct memtrace_phase_state *memtrace_phase_state_;
MEMTRACE_PHASE_WEAK __thread struct memtrace_phase_thread memtrace_phase_thread_;
MEMTRACE_PHASE_WEAK struct memtrace_phase_area *memtrace_phase_old_; /* the parent's, after fork() */
MEMTRACE_PHASE_WEAK int memtrace_phase_fd_;
MEMTRACE_PHASE_WEAK ino_t memtrace_phase_inode_;

static inline struct memtrace_phase_area *memtrace_phase_make_(void)
{
	int fd = (int)syscall(SYS_memfd_create, "memtrace-phase", 1U /* MFD_CLOEXEC */), first;
	struct memtrace_phase_area *area;
	struct rlimit most;
	struct stat st;
	void *map;

	if (memtrace_phase_old_) {
		munmap(memtrace_phase_old_, sizeof(*area));
		if (!fstat(memtrace_phase_fd_, &st) && st.st_ino == memtrace_phase_inode_)
			close(memtrace_phase_fd_);
		memtrace_phase_old_ = NULL;
	}
	if (fd < 0)
		return NULL;
	map = ftruncate(fd, sizeof(*area))
		      ? MAP_FAILED
		      : mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	area = (struct memtrace_phase_area *)map;
	area->version = 1;
	area->record_size = sizeof(struct memtrace_phase_record);
	area->room = MEMTRACE_PHASE_ROOM;
	area->pid = (uint32_t)getpid();
	memcpy(area->magic, "MTPHASE", 8);
	first = MEMTRACE_PHASE_FIRST_FD;
	if (!getrlimit(RLIMIT_NOFILE, &most) && most.rlim_cur <= MEMTRACE_PHASE_FIRST_FD)
		first = (int)(most.rlim_cur / 2);
	memtrace_phase_fd_ = fcntl(fd, F_DUPFD_CLOEXEC, first);
	if (!fstat(fd, &st))
		memtrace_phase_inode_ = st.st_ino;
	close(fd);
	memtrace_phase_old_ = area;
	return area;
}

/* Returns the area, which it makes at the first call. NULL on failure. */
static inline struct memtrace_phase_area *memtrace_phase_area_(void)
{
	struct memtrace_phase_state *s = __atomic_load_n(&memtrace_phase_state_, __ATOMIC_ACQUIRE);
	struct memtrace_phase_state *none = NULL;
	int state;
	void *map;

	if (!s) {
		map = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
		if (map == MAP_FAILED)
			return NULL;
		madvise(map, sizeof(*s), MADV_WIPEONFORK);
		s = (struct memtrace_phase_state *)map;
		if (!__atomic_compare_exchange_n(&memtrace_phase_state_, &none, s, 0,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			munmap(map, sizeof(*s));
			s = none;
		}
	}
	while ((state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE)) < 2) {
		int expected = 0;

		if (state || !__atomic_compare_exchange_n(&s->state, &expected, 1, 0,
							  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			sched_yield();
			continue;
		}
		s->area = memtrace_phase_make_();
		__atomic_store_n(&s->state, s->area ? 2 : 3, __ATOMIC_RELEASE);
	}
	return s->area;
}

/* Returns the record's number. */
static inline uint64_t memtrace_phase_write_(struct memtrace_phase_area *area,
					     const struct memtrace_phase *p, uint64_t other,
					     uint16_t what)
{
	uint64_t number = __atomic_add_fetch(&memtrace_phase_state_->numbers, 1, __ATOMIC_RELAXED);
	struct memtrace_phase_record *r = &area->records[number % MEMTRACE_PHASE_ROOM];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	__atomic_store_n(&r->number, number, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	r->time = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
	r->other = other;
	r->tid = memtrace_phase_thread_.tid;
	r->what = what;
	memcpy(r->name, p->name, sizeof(r->name));
	__atomic_store_n(&r->again, number, __ATOMIC_RELEASE);
	return number;
}

static inline struct memtrace_phase_area *memtrace_phase_enter_(void)
{
	struct memtrace_phase_area *area = memtrace_phase_area_();

	if (area && memtrace_phase_thread_.pid != area->pid) {
		memtrace_phase_thread_.pid = area->pid;
		memtrace_phase_thread_.innermost = 0;
		memtrace_phase_thread_.tid = (uint32_t)syscall(SYS_gettid);
	}
	return area;
}

/* Begins a phase. Copies the name. */
static inline struct memtrace_phase memtrace_phase_begin(const char *name)
{
	struct memtrace_phase_area *area;
	struct memtrace_phase p;
	int err = errno;
	size_t n = strnlen(name, sizeof(p.name));

	memset(&p, 0, sizeof(p));
	memcpy(p.name, name, n);
	if (n == sizeof(p.name)) /* cut, but not within a character */
		while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
			p.name[--n] = '\0';
	area = memtrace_phase_enter_();
	if (area) {
		p.pid = area->pid;
		p.outer = memtrace_phase_thread_.innermost;
		p.scope = memtrace_phase_write_(area, &p, p.outer, 1);
		memtrace_phase_thread_.innermost = p.scope;
	}
	errno = err;
	return p;
}

/* Ends a phase. Does nothing if it has ended, or began before fork(). */
static inline void memtrace_phase_end(struct memtrace_phase *p)
{
	int err = errno;
	struct memtrace_phase_area *area = p->scope ? memtrace_phase_enter_() : NULL;

	if (area && p->pid == area->pid) {
		memtrace_phase_write_(area, p, p->scope, 2);
		if (memtrace_phase_thread_.innermost == p->scope)
			memtrace_phase_thread_.innermost = p->outer;
	}
	p->scope = 0;
	errno = err;
}

#ifdef __cplusplus
}
#endif
#endif
