// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "stream.h"
#include "clock.h"
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define DEFAULT_STREAMS 2 /* handles 1 and 2: the device's, the thread's; 0 is the same as 1 */
#define STREAM_NON_BLOCKING 1u
#define EVENT_NO_TIMING 2u
#define WATCHDOG_PAUSE_NS (110 * 1000000l)
#define NODES_A_GRAPH (1u << 20)
#define PACE_NS 3000000l /* ns that a paced kernel takes */

struct capture {
	struct capture *next; /* list of all captures */
	uint64_t id;
	int device;
	bool invalidated;
	unsigned int refs; /* streams and events in the capture */
	bool ended;
	struct graph *graph;
	void *last; /* node that the next node depends on */
};

struct stream {
	int device, priority;
	unsigned int flags;
	struct capture *capture;
	bool origin; /* stream that began the capture and must end it */
	bool of_collectives;
	struct clock_line *line;
};

struct event {
	unsigned int flags;
	bool recorded;
	uint64_t at_ns; /* CLOCK_MONOTONIC */
	struct capture *capture;
};

struct kept {
	struct kept *next;
	struct user_object *object;
	unsigned int count;
};

struct graph {
	unsigned int refs;
	size_t n_nodes;
	uint64_t ns;
	struct kept *kept;
};

struct user_object {
	unsigned int refs;
	void *what;
	void (*destroy)(void *);
};

/* Captures and references to them. Streams that do not capture take no lock. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id;
static struct capture *captures; /* number of captures; mostly 0 */
static bool collective;

static void lock(void)
{
	pthread_mutex_lock(&mutex);
	clock__lock();
}

static void unlock(void)
{
	clock__unlock();
	pthread_mutex_unlock(&mutex);
}

__attribute__((constructor)) static void begin(void)
{
	core__hold_at_fork(lock, unlock);
}

static struct stream *real(void *stream)
{
	return (uintptr_t)stream <= DEFAULT_STREAMS ? NULL : stream;
}

void dryrun__collective_enqueued(void *stream)
{
	if (real(stream))
		__atomic_store_n(&real(stream)->of_collectives, true, __ATOMIC_RELAXED);
	__atomic_store_n(&collective, true, __ATOMIC_RELAXED);
}

static void put_capture(struct capture **at)
{
	struct capture *c = *at;

	*at = NULL;
	if (c && !--c->refs) {
		struct capture **link = &captures;

		while (*link != c)
			link = &(*link)->next;
		__atomic_store_n(link, c->next, __ATOMIC_RELAXED);
		graph__put(c->graph);
		free(c);
	}
}

static bool none_captures(void)
{
	return !__atomic_load_n(&captures, __ATOMIC_RELAXED);
}

/* The active capture of a stream; drops a reference to an ended one. Mutex held. */
static struct capture *capture_of(struct stream *s)
{
	if (s && s->capture && s->capture->ended)
		put_capture(&s->capture);
	return s ? s->capture : NULL;
}

/* ---- streams ---- */

int stream__new(unsigned int flags, int priority, void **stream)
{
	int device = dryrun__device(), err = dryrun__use(device);
	struct stream *s;

	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return CUDA_OUT_OF_MEMORY;
	s->device = device;
	s->flags = flags;
	s->line = clock__line_new(device, !(flags & STREAM_NON_BLOCKING));
	s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	*stream = s;
	return CUDA_OK;
}

int stream__destroy(void *stream)
{
	struct stream *s = real(stream);

	if (!s)
		return CUDA_INVALID_HANDLE;
	pthread_mutex_lock(&mutex);
	put_capture(&s->capture);
	pthread_mutex_unlock(&mutex);
	clock__line_free(s->line);
	free(s);
	return CUDA_OK;
}

int stream__priority(void *stream)
{
	return real(stream) ? real(stream)->priority : 0;
}

unsigned int stream__flags(void *stream)
{
	return real(stream) ? real(stream)->flags : 0;
}

int stream__device(void *stream)
{
	return real(stream) ? real(stream)->device : dryrun__device();
}

/* Gives an observer time between short steps. */
static void pace(void)
{
	static const struct timespec pause = { .tv_nsec = PACE_NS };
	static atomic_int n;

	if (atomic_load_explicit(&n, memory_order_relaxed) >= dryrun__config()->paced)
		return;
	atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);
	nanosleep(&pause, NULL);
}

/* NULL: the clock is off. */
static struct clock_line *line_of(void *stream)
{
	return real(stream)   ? real(stream)->line
	       : !clock__on() ? NULL
			      : clock__line_default(dryrun__device(),
						    (uintptr_t)stream == DEFAULT_STREAMS);
}

int dryrun__stream_run(void *stream, uint64_t ns)
{
	int err = CUDA_OK;
	struct capture *c = NULL;

	pace();
	if (!none_captures() && real(stream)) {
		pthread_mutex_lock(&mutex);
		c = capture_of(stream);
		if (c && c->invalidated) {
			err = CUDA_CAPTURE_INVALIDATED;
		} else if (c) {
			graph__add(c->graph);
			c->graph->ns += ns;
			c->last = graph__node(c->graph, c->graph->n_nodes - 1);
		}
		pthread_mutex_unlock(&mutex);
	}
	if (!c && ns)
		clock__run(line_of(stream), ns);
	return err;
}

int dryrun__stream_work(void *stream)
{
	return dryrun__stream_run(stream, 0);
}

void stream__reach(void *stream)
{
	clock__wait(clock__end(line_of(stream)));
}

int stream__copy(void *stream, const void *to, const void *from, size_t size)
{
	int err = dryrun__stream_run(stream, clock__copy_ns(to, from, size));

	if (!err && clock__copy_waits(to, from, size))
		stream__reach(stream);
	return err;
}

void stream__copy_now(const void *to, const void *from, size_t size)
{
	if (!clock__on())
		return;
	clock__run(line_of(NULL), from ? clock__copy_ns(to, from, size) : clock__fill_ns(size));
	if (from && (!dryrun__is_device(to) || !dryrun__is_device(from)))
		stream__reach(NULL);
}

/* Invalidates a capture because the host waits for it. Returns the error. Mutex held. */
static int invalidate(struct capture *c, int why)
{
	if (c->invalidated)
		return CUDA_CAPTURE_INVALIDATED;
	c->invalidated = true;
	return why;
}

/* Can the host wait for a stream? */
static int waitable(void *stream)
{
	int err = CUDA_OK;
	struct capture *c;

	if (none_captures() || !real(stream))
		return CUDA_OK;
	pthread_mutex_lock(&mutex);
	c = capture_of(stream);
	if (c)
		err = invalidate(c, CUDA_CAPTURE_UNSUPPORTED);
	pthread_mutex_unlock(&mutex);
	return err;
}

int dryrun__stream_wait(void *stream)
{
	int err = waitable(stream);

	if (!err)
		stream__reach(stream);
	return err;
}

int stream__query(void *stream)
{
	int err = waitable(stream);

	return !err && clock__end(line_of(stream)) > clock__now() ? CUDA_NOT_READY : err;
}

int dryrun__device_wait(int device)
{
	int err = CUDA_OK;

	if (!none_captures()) {
		pthread_mutex_lock(&mutex);
		for (struct capture *c = captures; c; c = c->next) {
			if (c->device == device && !c->ended)
				err = invalidate(c, CUDA_CAPTURE_UNSUPPORTED);
		}
		pthread_mutex_unlock(&mutex);
	}
	if (!err)
		clock__wait(clock__device_end(device));
	return err;
}

/* ---- events ---- */

int event__new(unsigned int flags, void **event)
{
	int err = dryrun__use(dryrun__device());
	struct event *e;

	if (err)
		return err;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_OUT_OF_MEMORY;
	e->flags = flags;
	*event = e;
	return CUDA_OK;
}

int event__destroy(void *event)
{
	struct event *e = event;

	if (!e)
		return CUDA_INVALID_HANDLE;
	pthread_mutex_lock(&mutex);
	put_capture(&e->capture);
	pthread_mutex_unlock(&mutex);
	free(e);
	return CUDA_OK;
}

int event__record(void *event, void *stream)
{
	struct event *e = event;
	int err = CUDA_OK;

	if (!e)
		return CUDA_INVALID_HANDLE;
	e->at_ns = clock__end(line_of(stream)) ?: clock__now();
	e->recorded = true;
	if (!none_captures() || e->capture) {
		struct capture *c;

		pthread_mutex_lock(&mutex);
		put_capture(&e->capture);
		c = capture_of(real(stream));
		if (c && c->invalidated) {
			err = CUDA_CAPTURE_INVALIDATED;
		} else if (c) {
			c->refs++;
			e->capture = c;
		}
		pthread_mutex_unlock(&mutex);
	}
	return err;
}

static int waitable_event(struct event *e)
{
	int err = CUDA_OK;

	if (!e)
		return CUDA_INVALID_HANDLE;
	if (none_captures())
		return CUDA_OK;
	pthread_mutex_lock(&mutex);
	if (e->capture && e->capture->ended)
		put_capture(&e->capture);
	if (e->capture)
		err = invalidate(e->capture, CUDA_CAPTURED_EVENT);
	pthread_mutex_unlock(&mutex);
	return err;
}

/* Has the device reached a recorded event? Always, without the clock. */
static bool reached(const struct event *e)
{
	return !clock__on() || !e->recorded || e->at_ns <= clock__now();
}

int event__wait(void *event)
{
	struct event *e = event;
	int err = waitable_event(e);

	if (!err && e->recorded)
		clock__wait(e->at_ns);
	return err;
}

int event__query(void *event)
{
	int err = waitable_event(event);

	return !err && !reached(event) ? CUDA_NOT_READY : err;
}

int event__elapsed(float *ms, void *start, void *end)
{
	struct event *from = start, *to = end;

	if (!from || !to || !from->recorded || !to->recorded ||
	    (from->flags | to->flags) & EVENT_NO_TIMING)
		return CUDA_INVALID_HANDLE;
	if (!reached(from) || !reached(to))
		return CUDA_NOT_READY;
	*ms = (float)((double)(int64_t)(to->at_ns - from->at_ns) / 1e6);
	return CUDA_OK;
}

int stream__wait_event(void *stream, void *event)
{
	struct stream *s = real(stream);
	struct event *e = event;
	int err = CUDA_OK;

	if (!e)
		return CUDA_INVALID_HANDLE;
	/* Skip waits of collectives for computation: only waits for collectives matter. */
	if (!(s && __atomic_load_n(&s->of_collectives, __ATOMIC_RELAXED)) &&
	    __atomic_exchange_n(&collective, false, __ATOMIC_RELAXED))
		nanosleep(&(struct timespec){ .tv_nsec = WATCHDOG_PAUSE_NS }, NULL);
	if (e->recorded && !e->capture)
		clock__after(line_of(stream), e->at_ns);
	if (none_captures() || !s)
		return CUDA_OK;
	pthread_mutex_lock(&mutex);
	if (e->capture && e->capture->ended)
		put_capture(&e->capture);
	if ((e->capture && e->capture->invalidated) || (capture_of(s) && s->capture->invalidated)) {
		err = CUDA_CAPTURE_INVALIDATED;
	} else if (e->capture && !s->capture) {
		/* the stream joins the capture */
		e->capture->refs++;
		s->capture = e->capture;
		s->origin = false;
	}
	pthread_mutex_unlock(&mutex);
	return err;
}

int stream__host_func(void *stream, void (*call)(void *), void *what)
{
	int status, err = dryrun__stream_work(stream);

	capture__info(stream, &status, NULL, NULL, NULL, NULL);
	/* Events of a capture belong to replays, which do nothing here. */
	if (!err && status == CAPTURE_NONE) {
		stream__reach(stream);
		call(what);
	}
	return err;
}

/* ---- captures ---- */

int capture__begin(void *stream, struct graph *graph)
{
	struct stream *s = real(stream);
	struct capture *c;

	if (!s)
		return CUDA_CAPTURE_UNSUPPORTED;
	c = calloc(1, sizeof(*c));
	if (!c)
		return CUDA_OUT_OF_MEMORY;
	c->refs = 1;
	c->graph = graph ? graph__get(graph) : graph__new();
	pthread_mutex_lock(&mutex);
	if (!c->graph || capture_of(s)) {
		int err = c->graph ? CUDA_INVALID_VALUE : CUDA_OUT_OF_MEMORY;

		pthread_mutex_unlock(&mutex);
		if (c->graph)
			graph__put(c->graph);
		free(c);
		return err;
	}
	c->id = ++last_id;
	c->device = s->device;
	c->next = captures;
	s->capture = c;
	s->origin = true;
	__atomic_store_n(&captures, c, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&mutex);
	return CUDA_OK;
}

int capture__end(void *stream, struct graph **graph)
{
	struct stream *s = real(stream);
	int err = CUDA_OK;
	struct capture *c;

	*graph = NULL;
	pthread_mutex_lock(&mutex);
	c = capture_of(s);
	if (!c) {
		err = CUDA_INVALID_VALUE;
	} else if (!s->origin) {
		err = CUDA_CAPTURE_UNMATCHED;
	} else {
		if (c->invalidated)
			err = CUDA_CAPTURE_INVALIDATED;
		else
			*graph = graph__get(c->graph);
		c->ended = true;
		put_capture(&s->capture);
	}
	pthread_mutex_unlock(&mutex);
	return err;
}

int capture__info(void *stream, int *status, uint64_t *id, void **graph, const void *const **deps,
		  size_t *n_deps)
{
	bool look = !none_captures() && real(stream);
	struct capture *c = NULL;

	if (look) {
		pthread_mutex_lock(&mutex);
		c = capture_of(stream);
	}
	if (status)
		*status = !c ? CAPTURE_NONE : c->invalidated ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
	if (id)
		*id = c ? c->id : 0;
	if (graph)
		*graph = c ? c->graph : NULL;
	if (deps)
		*deps = c && c->last ? (const void *const *)&c->last : NULL;
	if (n_deps)
		*n_deps = c && c->last ? 1 : 0;
	if (look)
		pthread_mutex_unlock(&mutex);
	return CUDA_OK;
}

/* ---- graphs ---- */

struct graph *graph__new(void)
{
	struct graph *g = calloc(1, sizeof(*g));

	if (g)
		g->refs = 1;
	return g;
}

struct graph *graph__get(struct graph *g)
{
	__atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
	return g;
}

void graph__put(struct graph *g)
{
	if (!g || __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL))
		return;
	while (g->kept) {
		struct kept *k = g->kept;

		g->kept = k->next;
		user_object__put(k->object, k->count);
		free(k);
	}
	free(g);
}

size_t graph__n_nodes(const struct graph *g)
{
	return g->n_nodes;
}

/* Nodes are only distinguished: a handle is the graph's address plus the node's number. */
void *graph__node(struct graph *g, size_t index)
{
	return (void *)(((uintptr_t)g << 16) + index + 1);
}

uint64_t graph__ns(const struct graph *g)
{
	return g->ns;
}

void graph__add(struct graph *g)
{
	if (g->n_nodes < NODES_A_GRAPH)
		g->n_nodes++;
}

struct user_object *user_object__new(void *what, void (*destroy)(void *), unsigned int count)
{
	struct user_object *o = calloc(1, sizeof(*o));

	if (o)
		*o = (struct user_object){ .refs = count, .what = what, .destroy = destroy };
	return o;
}

void user_object__get(struct user_object *o, unsigned int count)
{
	__atomic_add_fetch(&o->refs, count, __ATOMIC_RELAXED);
}

void user_object__put(struct user_object *o, unsigned int count)
{
	if (__atomic_sub_fetch(&o->refs, count, __ATOMIC_ACQ_REL))
		return;
	if (o->destroy)
		o->destroy(o->what);
	free(o);
}

int graph__keep(struct graph *g, struct user_object *o, unsigned int count)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k)
		return CUDA_OUT_OF_MEMORY;
	*k = (struct kept){ .next = g->kept, .object = o, .count = count };
	g->kept = k;
	return CUDA_OK;
}
