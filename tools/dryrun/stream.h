/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Streams, events and graphs. All work is done by the time its call returns, so a stream is never
 * busy and an event is done once it is recorded. A capture counts what is put on its streams; a
 * replay does nothing more than any other kernel. What waits for a captured stream invalidates the
 * capture, in whichever mode: its streams then refuse all work until it is ended. Calls that are
 * unsafe in some modes only (cudaMalloc) are not refused.
 */
#include "dryrun.h"

struct stream;
struct event;
struct graph;

/* For a fork. */
void stream__lock(void);
void stream__unlock(void);

int stream__new(unsigned int flags, int priority, void **stream);
int stream__destroy(void *stream);
int stream__priority(void *stream);
unsigned int stream__flags(void *stream);
/* Of the calling thread where it is one of the default streams. */
int stream__device(void *stream);

int event__new(unsigned int flags, void **event);
int event__destroy(void *event);
int event__record(void *event, void *stream);
int event__elapsed(float *ms, void *start, void *end);
/* The host waits for an event. CUDA_CAPTURED_EVENT, and the capture invalidated, where it was
 * recorded in a capture. */
int event__wait(void *event);
int stream__wait_event(void *stream, void *event);
/* Calls it before it returns; on a stream that is being captured it becomes a node, and is not
 * called. */
int stream__host_func(void *stream, void (*call)(void *), void *what);

enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };

/* graph: to capture into, or NULL for a new one. */
int capture__begin(void *stream, struct graph *graph);
int capture__end(void *stream, struct graph **graph);
/* All outputs may be NULL. deps: the node that a next one would wait for, good until then. */
int capture__info(void *stream, int *status, uint64_t *id, void **graph, const void *const **deps,
		  size_t *n_deps);

struct graph *graph__new(void);
struct graph *graph__get(struct graph *g);
void graph__put(struct graph *g);
size_t graph__n_nodes(const struct graph *g);
void *graph__node(struct graph *g, size_t index);
void graph__add(struct graph *g);

struct user_object;
struct user_object *user_object__new(void *what, void (*destroy)(void *), unsigned int count);
void user_object__put(struct user_object *o, unsigned int count);
void user_object__get(struct user_object *o, unsigned int count);
/* The graph takes count references over and drops them at its end. */
int graph__keep(struct graph *g, struct user_object *o, unsigned int count);
