/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/mtr_ahead.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define BATCHES 16
#define STACK_BYTES (1u << 20)

struct mtr_ahead {
	pthread_t thread;
	void (*fill)(void *ctx, struct mtr_ahead *a, struct mtr_batch *b);
	void *ctx;
	struct event *events; /* of all batches */
	struct mtr_batch batches[BATCHES];
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t filled, emptied;
	uint64_t written, read; /* numbers of batches filled so far, and no longer in use */
	bool started;		/* the reader has taken a batch */
	bool reader_waits;	/* it uses no batch, and waits for the next one */
	bool stop;
};

/* Waits for an empty batch. The reader wakes the thread only when half of them are empty, so that
 * the two wake each other seldom. NULL: the thread is to stop. */
static struct mtr_batch *next_empty(struct mtr_ahead *a)
{
	struct mtr_batch *b;

	pthread_mutex_lock(&a->lock);
	if (a->written - a->read == BATCHES)
		while (!a->stop && a->written - a->read > BATCHES / 2)
			pthread_cond_wait(&a->emptied, &a->lock);
	b = a->stop ? NULL : &a->batches[a->written % BATCHES];
	pthread_mutex_unlock(&a->lock);
	return b;
}

static void *run(void *ahead)
{
	struct mtr_ahead *a = ahead;
	struct mtr_batch *b;
	bool last = false;

	while (!last && (b = next_empty(a))) {
		*b = (struct mtr_batch){ .events = b->events,
					 .copy = b->copy,
					 .copy_room = b->copy_room };
		a->fill(a->ctx, a, b);
		last = b->last;
		pthread_mutex_lock(&a->lock);
		a->written++;
		if (a->reader_waits)
			pthread_cond_signal(&a->filled);
		pthread_mutex_unlock(&a->lock);
	}
	return NULL;
}

/* Starts the thread. Signals are for the main thread. Returns 0 or -errno. */
static int start(struct mtr_ahead *a)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&a->thread, &attr, run, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static void release(struct mtr_ahead *a)
{
	pthread_cond_destroy(&a->filled);
	pthread_cond_destroy(&a->emptied);
	pthread_mutex_destroy(&a->lock);
	for (size_t i = 0; i < BATCHES; i++)
		free(a->batches[i].copy);
	free(a->events);
	free(a);
}

struct mtr_ahead *mtr_ahead__new(void (*fill)(void *ctx, struct mtr_ahead *a, struct mtr_batch *b),
				 void *ctx)
{
	struct mtr_ahead *a = calloc(1, sizeof(*a));
	int err = -ENOMEM;

	if (!a)
		return NULL;
	a->fill = fill;
	a->ctx = ctx;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->filled, NULL);
	pthread_cond_init(&a->emptied, NULL);
	a->events = malloc(BATCHES * MTR_AHEAD_EVENTS * sizeof(*a->events));
	for (size_t i = 0; i < BATCHES && a->events; i++)
		a->batches[i].events = a->events + i * MTR_AHEAD_EVENTS;
	if (a->events)
		err = start(a);
	if (!err)
		return a;
	release(a);
	errno = -err;
	return NULL;
}

void mtr_ahead__free(struct mtr_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->emptied);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	release(a);
}

const struct mtr_batch *mtr_ahead__take(struct mtr_ahead *a)
{
	const struct mtr_batch *b;

	pthread_mutex_lock(&a->lock);
	/* The batch of the last call is no longer in use. */
	a->read += a->started;
	a->started = true;
	if (a->written - a->read == BATCHES / 2)
		pthread_cond_signal(&a->emptied);
	while (a->written == a->read) {
		a->reader_waits = true;
		pthread_cond_signal(&a->emptied);
		pthread_cond_wait(&a->filled, &a->lock);
	}
	a->reader_waits = false;
	b = &a->batches[a->read % BATCHES];
	pthread_mutex_unlock(&a->lock);
	return b;
}

bool mtr_ahead__settle(struct mtr_ahead *a)
{
	bool go_on;

	pthread_mutex_lock(&a->lock);
	while (!a->stop && !(a->reader_waits && a->written == a->read))
		pthread_cond_wait(&a->emptied, &a->lock);
	go_on = !a->stop;
	pthread_mutex_unlock(&a->lock);
	return go_on;
}
