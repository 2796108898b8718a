/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LAUNCH_INSIDE_H
#define MT_LAUNCH_INSIDE_H
/*
 * A command that records itself: its environment, with the library that runs our programs in it
 * preloaded, and the memory that it shares with us. For users without privileges: docs/ESTIMATE.md,
 * "Without privileges". Speaks to the person on standard error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct inside;
struct inside_memory;
struct user;

/* Is the library there, and can this machine do it? 0, or -errno, and why, in words, in buf. */
int inside__can(char *buf, size_t size);
/*
 * env: what else the command's environment gets, as child__new() takes it, or NULL; borrowed until
 * inside__free(). LD_PRELOAD may be in it. ring_bytes: 0 or a power of two. user: who runs the
 * command, NULL: we. NULL, and *status and the words logged.
 */
struct inside *inside__new(const char *const *env, size_t ring_bytes, const struct user *user,
			   int *status);
/* For child__new(): env, and what we need. Owned by i. */
const char *const *inside__env(const struct inside *i);
/* For struct session_opts; owned by i, which has to be there as long as the session. */
struct inside_memory *inside__memory(const struct inside *i);
void inside__free(struct inside *i); /* NULL is fine */

#endif
