/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names of processes, read by a thread of their own: the kernel answers about a process's command
 * line with its memory map locked, and a process that waits for a failed GPU may hold that lock.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "inspect/gpu_holders.h"

struct holder_names {
	atomic_bool done;
	atomic_uint users; /* the caller and the thread; the last one frees it */
	size_t n;
	struct holder_process v[];
};

static void leave(struct holder_names *h)
{
	if (atomic_fetch_sub(&h->users, 1) == 1)
		free(h);
}

static void *read_names(void *names)
{
	struct holder_names *h = names;

	for (size_t i = 0; i < h->n; i++)
		holder_process__read_name(&h->v[i], h->v[i].pid);
	atomic_store(&h->done, true);
	leave(h);
	return NULL;
}

struct holder_names *holder_names__new(const pid_t *pid, size_t n)
{
	struct holder_names *h = calloc(1, sizeof(*h) + n * sizeof(h->v[0]));
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!h)
		return NULL;
	h->n = n;
	atomic_init(&h->users, 2);
	for (size_t i = 0; i < n; i++)
		h->v[i].pid = pid[i];
	/* Signals are for the main thread. */
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, read_names, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!err)
		return h;
	free(h);
	errno = err;
	return NULL;
}

const struct holder_process *holder_names__get(const struct holder_names *h, size_t *n)
{
	if (!atomic_load(&h->done))
		return NULL;
	*n = h->n;
	return h->v;
}

void holder_names__free(struct holder_names *h)
{
	if (h)
		leave(h);
}
