/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/probes/inside_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/user.h"
#include "capture/probes/inside_sites.h"
#include "inspect/site.h"

#define RING_DEFAULT (16u << 20) /* bytes; the BPF programs' default, too */
#define FD_FIRST 200 /* a descriptor that programs do not use by number, as shells use small ones */

/* Turns a futex into a readable descriptor. A futex cannot be polled, and the child could close a
 * descriptor of its own and open another file under its number. */
struct inside_waker {
	pthread_t thread;
	struct inside_memory *m;
	bool over;
};

static void *wait_for_wakes(void *arg)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct inside_waker *w = arg;
	const uint64_t one = 1;
	uint32_t seen = 0, now;

	syscall(SYS_capset, &h, none); /* the thread needs no capability */
	while (!__atomic_load_n(&w->over, __ATOMIC_SEQ_CST)) {
		now = __atomic_load_n(&w->m->at->wake, __ATOMIC_SEQ_CST);
		if (now == seen) {
			syscall(SYS_futex, &w->m->at->wake, FUTEX_WAIT, now, NULL, NULL, 0);
			continue;
		}
		seen = now;
		while (write(w->m->wake, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

static int start_waker(struct inside_memory *m)
{
	struct inside_waker *w = calloc(1, sizeof(*w));
	sigset_t all, before;
	int err;

	if (!w)
		return -ENOMEM;
	w->m = m;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&w->thread, NULL, wait_for_wakes, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		free(w);
		return -err;
	}
	m->waker = w;
	return 0;
}

static void end_waker(struct inside_memory *m)
{
	if (!m->waker)
		return;
	__atomic_store_n(&m->waker->over, true, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&m->at->wake, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	pthread_join(m->waker->thread, NULL);
	free(m->waker);
	m->waker = NULL;
}

static int open_memory(struct inside_memory *m)
{
	int fd = memfd_create("memtrace-inside", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	m->fd = fcntl(fd, F_DUPFD, FD_FIRST);
	if (m->fd < 0)
		m->fd = fcntl(fd, F_DUPFD, 10);
	close(fd);
	if (m->fd < 0 ||
	    ftruncate(m->fd, (off_t)(MT_INSIDE_RING + 2 * MT_INSIDE_PAGE + m->ring_bytes)))
		return -errno;
	/* Reading beyond the end of a file that the child made shorter would kill us. */
	if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	m->at = mmap(NULL, MT_INSIDE_RING, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->at == MAP_FAILED) {
		m->at = NULL;
		return -errno;
	}
	m->variables = (uint8_t *)m->at + MT_INSIDE_VARIABLES;
	m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return m->wake < 0 ? -errno : 0;
}

struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user)
{
	struct inside_memory *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return NULL;
	m->fd = m->wake = m->mem = -1;
	m->other = user && user->uid != geteuid();
	if (m->other) {
		m->uid = user->uid;
		m->gid = user->gid;
	}
	m->ring_bytes = ring_bytes ? ring_bytes : RING_DEFAULT;
	m->site = calloc(MT_INSIDE_SITES, sizeof(*m->site));
	err = m->site ? open_memory(m) : -ENOMEM;
	if (!err) {
		m->at->magic = MT_INSIDE_MAGIC;
		m->at->ring_bytes = m->ring_bytes;
		m->at->recorder = (uint32_t)getpid();
		m->at->reads = 1;
		err = start_waker(m);
	}
	if (!err)
		return m;
	inside_memory__free(m);
	errno = -err;
	return NULL;
}

void inside_memory__free(struct inside_memory *m)
{
	if (!m)
		return;
	if (m->at) {
		inside_memory__close(m);
		end_waker(m);
		munmap(m->at, MT_INSIDE_RING);
	}
	if (m->fd >= 0)
		close(m->fd);
	if (m->wake >= 0)
		close(m->wake);
	if (m->mem >= 0)
		close(m->mem);
	free(m->site);
	free(m);
}

void inside_memory__bind(struct inside_memory *m, pid_t pid)
{
	m->pid = pid;
	__atomic_store_n(&m->at->pid, (uint32_t)pid, __ATOMIC_SEQ_CST);
}

void inside_memory__meet(struct inside_memory *m)
{
	uint32_t image = __atomic_load_n(&m->at->image, __ATOMIC_SEQ_CST);
	int err;

	if (image == m->image)
		return;
	/* While the process waits it cannot exec: m->mem is of the program that waits. */
	err = inside_sites__open(m);
	if (__atomic_load_n(&m->at->waits, __ATOMIC_SEQ_CST) != MT_INSIDE_STARTS)
		return;
	m->image = image;
	err = err
		      ?: inside_sites__add(m, m->linker, (struct site_second){ 0 },
					   MT_INSIDE_LINKER, 0);
	if (err)
		log_debug("the dynamic linker's place for debuggers cannot be used: %s",
			  strerror(-err));
	inside_memory__let_go(m);
}

bool inside_memory__arrived(const struct inside_memory *m)
{
	return __atomic_load_n(&m->at->waits, __ATOMIC_SEQ_CST) == MT_INSIDE_ARRIVED;
}

void inside_memory__let_go(struct inside_memory *m)
{
	__atomic_add_fetch(&m->at->go, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void inside_memory__close(struct inside_memory *m)
{
	__atomic_store_n(&m->at->reads, 0, __ATOMIC_SEQ_CST);
	inside_memory__let_go(m);
	__atomic_add_fetch(&m->at->taken, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &m->at->taken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
