/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_SPANS_H
#define MT_EXPORT_SPANS_H
/*
 * When threads enter and leave modules: as the recording has it. In one that does not they are read
 * off the allocations: a thread is inside the modules of the stack of its last allocation. They
 * nest, each thread's balance, and its times do not go back.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/dict.h"
#include "record/stream.h"

struct spans;
/* A thread enters, or leaves, a module; numbers are the dict's. */
typedef void spans_put(void *ctx, uint64_t time, bool enter, uint32_t module, uint32_t thread);

/* calls: it is known that the recording has EVENT_ENTERs. Borrows d. NULL on ENOMEM. */
struct spans *spans__new(const struct dict *d, bool calls, spans_put *put, void *ctx);
void spans__free(struct spans *s);	      /* NULL is fine */
bool spans__has_calls(const struct spans *s); /* as told, or since the first came */
int spans__call(struct spans *s,
		const struct event *e); /* EVENT_ENTER, EVENT_LEAVE. 0 or -ENOMEM */
/* An EVENT_ALLOC: leaves and enters what it shows to have been left and entered since the thread's
 * last one. 0 or -ENOMEM. */
int spans__alloc(struct spans *s, const struct event *e);
void spans__close(struct spans *s, uint64_t time); /* every thread leaves what it is in */

/* The module's dotted name, of the outermost one its class; NULL: no module. */
const char *spans__name(const struct dict *d, uint32_t module);

#endif
