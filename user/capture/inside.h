/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Environment of a command that records itself: preloads a library that runs our programs, and
 * shares memory with us. For users without privileges; see docs/internals/ESTIMATE.md, "Without
 * privileges". Prints errors on standard error.
 */
#include <stddef.h>
#include <sys/types.h>

struct inside;
struct inside_memory;
struct user;

/* Checks that the library exists and the machine supports it. Returns 0, or -errno with the
 * reason in buf. */
int inside__can(char *buf, size_t size);
/*
 * env: further variables as for child__new(), may contain LD_PRELOAD; NULL: none; borrowed until
 * inside__free(). ring_bytes: 0 or a power of two. user: the command's user; NULL: the current one.
 * NULL: error logged and *status set.
 */
struct inside *inside__new(const char *const *env, size_t ring_bytes, const struct user *user,
			   int *status);
/* Environment for child__new(): env and our variables. Owned by i. */
const char *const *inside__env(const struct inside *i);
/* Memory for struct session_opts; owned by i, which must outlive the session. */
struct inside_memory *inside__memory(const struct inside *i);
void inside__free(struct inside *i); /* NULL is fine */
