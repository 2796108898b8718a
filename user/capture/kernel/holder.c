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

static void free_holder(struct holder *holder)
{
	sem_destroy(&holder->ready);
	sem_destroy(&holder->end);
	free(holder);
}

/* The thread with its own table: keeps the descriptor until it is to be closed. */
static void *hold(void *arg)
{
	struct holder *holder = arg;

	holder->alone = !leave_table(holder->fd);
	drop_capabilities();
	sem_post(&holder->ready);
	await(&holder->end);
	close(holder->fd);
	if (holder->dropped)
		free_holder(holder);
	return NULL;
}

/* The thread that closes a descriptor of the process's table, since that takes a while. */
static void *close_shared(void *arg)
{
	struct holder *holder = arg;

	close(holder->fd);
	if (holder->dropped)
		free_holder(holder);
	return NULL;
}

/* Starts a thread that takes no signals. 0 or a positive errno. thread NULL: the thread is
 * detached, and may free holder at once. */
static int start_thread(struct holder *holder, void *(*run)(void *), pthread_t *thread)
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
	err = pthread_create(thread ?: &unused, &attr, run, holder);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

/* The thread gets its own copy of fd with its table, so ours is closed then. */
struct holder *holder__new(int fd, bool own_table)
{
	struct holder *holder = calloc(1, sizeof(*holder));

	if (!holder) {
		close(fd);
		return NULL;
	}
	holder->fd = fd;
	sem_init(&holder->ready, 0, 0);
	sem_init(&holder->end, 0, 0);
	holder->runs = own_table && !start_thread(holder, hold, &holder->thread);
	if (holder->runs) {
		await(&holder->ready);
		if (holder->alone)
			close(fd);
	}
	return holder;
}

/* With a table of its own, the thread that holds the descriptor closes it; otherwise a new thread
 * does. Without a thread, closes it at once. */
void holder__begin_close(struct holder *holder)
{
	if (holder->closing)
		return;
	holder->closing = true;
	if (holder->runs) {
		sem_post(&holder->end);
		return;
	}
	holder->runs = !start_thread(holder, close_shared, &holder->thread);
	if (!holder->runs)
		close(holder->fd);
}

void holder__close(struct holder *holder)
{
	if (!holder)
		return;
	holder__begin_close(holder);
	if (holder->runs)
		pthread_join(holder->thread, NULL);
	free_holder(holder);
}

void holder__drop(struct holder *holder)
{
	if (!holder)
		return;
	holder->dropped = true;
	if (holder->runs) {
		pthread_detach(holder->thread);
		sem_post(&holder->end);
	} else if (start_thread(holder, close_shared, NULL)) {
		close(holder->fd);
		free_holder(holder);
	}
}
