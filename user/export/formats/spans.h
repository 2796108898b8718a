/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Gives the module calls of each thread as enters and leaves. If the recording has no events of
 * calls, they are inferred: a thread is inside the modules that are on the stack of its last
 * allocation. Calls nest, every enter has a leave, and the times of a thread never decrease.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/dict.h"
#include "record/stream.h"

struct spans;
/* Receives an enter or leave. module and thread are numbers of the dict. */
typedef void spans_put(void *ctx, uint64_t time, bool enter, uint32_t module, uint32_t thread);

/* calls: the recording has EVENT_ENTER events, as far as known. Borrows d. Returns NULL if memory
 * is short. */
struct spans *spans__new(const struct dict *d, bool calls, spans_put *put, void *ctx);
void spans__free(struct spans *s); /* NULL is fine */
/* Handles EVENT_ENTER and EVENT_LEAVE. Returns 0 or -ENOMEM. */
int spans__call(struct spans *s, const struct event *e);
/* Handles EVENT_ALLOC, if calls are inferred: passes on the calls that the thread entered and left
 * since its last allocation. Returns 0 or -ENOMEM. */
int spans__alloc(struct spans *s, const struct event *e);
void spans__close(struct spans *s, uint64_t time); /* leaves all modules of all threads */

/* Returns the module's dotted name, or the class of a root module. NULL: module is 0. */
const char *spans__name(const struct dict *d, uint32_t module);
