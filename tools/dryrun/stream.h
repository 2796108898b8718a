/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Streams, events and graphs. Work completes before its call returns, so streams are never busy and
 * a recorded event is done. With the virtual clock (clock.h) work occupies its stream, and the host
 * waits for it. A capture counts the work on its streams; a replay does nothing, like any kernel.
 * Waiting for a captured stream invalidates the capture in every mode: its streams then reject work
 * until it ends. Calls that are unsafe in some modes only (cudaMalloc) are allowed.
 */
#include "dryrun.h"

struct stream;
struct event;
struct graph;

int stream__new(unsigned int flags, int priority, void **stream);
int stream__destroy(void *stream);
int stream__priority(void *stream);
unsigned int stream__flags(void *stream);
/* The calling thread's device for a default stream. */
int stream__device(void *stream);

int event__new(unsigned int flags, void **event);
int event__destroy(void *event);
int event__record(void *event, void *stream);
/* CUDA_NOT_READY: with the virtual clock, the later event has not been reached. */
int event__elapsed(float *ms, void *start, void *end);
/* The host waits for an event. Recorded in a capture: CUDA_CAPTURED_EVENT, and the capture becomes
 * invalid. */
int event__wait(void *event);
/* The same without waiting: CUDA_NOT_READY with the virtual clock. */
int event__query(void *event);
int stream__wait_event(void *stream, void *event);
/* CUDA_OK or, with the virtual clock, CUDA_NOT_READY; errors as for dryrun__stream_wait(). */
int stream__query(void *stream);
/* With the virtual clock, waits until the stream's work is done. */
void stream__reach(void *stream);
/* A copy that was enqueued on a stream: its virtual time, and the host's wait for pageable memory.
 * Errors as for dryrun__stream_run(). */
int stream__copy(void *stream, const void *to, const void *from, size_t size);
/* A copy, or a fill (from is NULL), of a call that is not asynchronous: its virtual time on the
 * default stream. The host waits for copies from and to its memory. */
void stream__copy_now(const void *to, const void *from, size_t size);
/* Calls the function before returning. During a capture, adds a node and does not call it. */
int stream__host_func(void *stream, void (*call)(void *), void *what);

enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };

/* Begins a capture into `graph`; NULL: into a new graph. */
int capture__begin(void *stream, struct graph *graph);
int capture__end(void *stream, struct graph **graph);
/* Outputs may be NULL. deps: the node that the next node will depend on, valid until that is
 * added. */
int capture__info(void *stream, int *status, uint64_t *id, void **graph, const void *const **deps,
		  size_t *n_deps);

struct graph *graph__new(void);
struct graph *graph__get(struct graph *g);
void graph__put(struct graph *g);
size_t graph__n_nodes(const struct graph *g);
void *graph__node(struct graph *g, size_t index);
void graph__add(struct graph *g);
/* Virtual time of all work in the graph, one after the other. */
uint64_t graph__ns(const struct graph *g);

struct user_object;
struct user_object *user_object__new(void *what, void (*destroy)(void *), unsigned int count);
void user_object__put(struct user_object *o, unsigned int count);
void user_object__get(struct user_object *o, unsigned int count);
/* The graph takes over `count` references and drops them when it is destroyed. */
int graph__keep(struct graph *g, struct user_object *o, unsigned int count);
