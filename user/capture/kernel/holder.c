/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel/holder.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.9; younger than some C libraries' headers. The values are the kernel's,
 * include/uapi/linux/close_range.h and arch/.../unistd_64.h. */
#define CLOSE_RANGE 436
#define UNSHARE 2

#define STACK (128 << 10) /* bytes of a thread's stack */

struct holder {
	int fd;
	bool runs;    /* the thread exists, or did until holder__close() */
	bool alone;   /* the thread has its own table of descriptors */
	bool closing; /* holder__begin_close() was called */
	bool dropped; /* nobody joins the thread: it frees this struct */
	pthread_t thread;
	sem_t ready, end; /* the thread is ready; the thread is to close the descriptor */
};

/* Gives this thread its own table of descriptors, which has only fd. 0, or -errno: it shares the
 * table of the process as before. */
static int leave_table(int fd)
{
	if (syscall(CLOSE_RANGE, fd + 1U, ~0U, UNSHARE))
		return -errno;
	if (fd)
		syscall(CLOSE_RANGE, 0U, fd - 1U, 0);
	return 0;
}

/* Drops all capabilities of this thread. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	syscall(SYS_capset, &h, none);
}

static void await(sem_t *s)
{
	while (sem_wait(s) && errno == EINTR)
		;
}

static void free_holder(struct holder *h)
{
	sem_destroy(&h->ready);
	sem_destroy(&h->end);
	free(h);
}

/* The thread with its own table: keeps the descriptor until it is to be closed. */
static void *hold(void *arg)
{
	struct holder *h = arg;

	h->alone = !leave_table(h->fd);
	drop_capabilities();
	sem_post(&h->ready);
	await(&h->end);
	close(h->fd);
	if (h->dropped)
		free_holder(h);
	return NULL;
}

/* The thread that closes a descriptor of the process's table, since that takes a while. */
static void *close_shared(void *arg)
{
	struct holder *h = arg;

	close(h->fd);
	if (h->dropped)
		free_holder(h);
	return NULL;
}

/* Starts a thread that takes no signals. 0 or a positive errno. thread NULL: the thread is
 * detached, and may free h at once. */
static int start_thread(struct holder *h, void *(*run)(void *), pthread_t *thread)
{
	pthread_attr_t attr;
	pthread_t unused;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return err;
	pthread_attr_setstacksize(&attr, STACK);
	if (!thread)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread ?: &unused, &attr, run, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

/* The thread gets its own copy of fd with its table, so ours is closed then. */
struct holder *holder__new(int fd, bool own_table)
{
	struct holder *h = calloc(1, sizeof(*h));

	if (!h) {
		close(fd);
		return NULL;
	}
	h->fd = fd;
	sem_init(&h->ready, 0, 0);
	sem_init(&h->end, 0, 0);
	h->runs = own_table && !start_thread(h, hold, &h->thread);
	if (h->runs) {
		await(&h->ready);
		if (h->alone)
			close(fd);
	}
	return h;
}

/* With a table of its own, the thread that holds the descriptor closes it; otherwise a new thread
 * does. Without a thread, closes it at once. */
void holder__begin_close(struct holder *h)
{
	if (h->closing)
		return;
	h->closing = true;
	if (h->runs) {
		sem_post(&h->end);
		return;
	}
	h->runs = !start_thread(h, close_shared, &h->thread);
	if (!h->runs)
		close(h->fd);
}

void holder__close(struct holder *h)
{
	if (!h)
		return;
	holder__begin_close(h);
	if (h->runs)
		pthread_join(h->thread, NULL);
	free_holder(h);
}

void holder__drop(struct holder *h)
{
	if (!h)
		return;
	h->dropped = true;
	if (h->runs) {
		pthread_detach(h->thread);
		sem_post(&h->end);
	} else if (start_thread(h, close_shared, NULL)) {
		close(h->fd);
		free_holder(h);
	}
}
