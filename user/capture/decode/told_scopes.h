/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Scopes that the program names itself and probes see: record_function, NVTX ranges, and pairs of
 * USDT probes, each pair with a source of its own. They nest on each thread: an end is about the
 * thread's innermost open scope of its source. Ends of scopes that began before the recording are
 * dropped. Names come from the target and are hostile.
 */
#include <stdbool.h>
#include <stdint.h>

struct decoder;
struct mt_rec_scope;
struct told_scopes;

/* Borrows decoder. NULL: out of memory. */
struct told_scopes *told_scopes__new(struct decoder *decoder);
void told_scopes__free(struct told_scopes *told); /* NULL is fine */
/* The dictionary's number of a scope's name. After 4,096 different names in a recording, further
 * ones are "(further names)". UINT32_MAX: out of memory. */
uint32_t told_scopes__name(struct told_scopes *told, const char *name);
/* Handles a begin, or an end that is not record_function's. Returns 0, -ENOMEM or the sink's error,
 * as the functions below. */
int told_scopes__record(struct told_scopes *told, const struct mt_rec_scope *record);
/* Ends the innermost record_function scope of a thread. time: ns since start. */
int told_scopes__exit(struct told_scopes *told, uint32_t tid, uint64_t time);
/* Some thread's begin or end was lost: ends all open scopes, because it is not known which are
 * open. */
int told_scopes__end_all(struct told_scopes *told);
/* Whether the capture drops scopes for now, to cost less. Ends all open ones if it does. */
int told_scopes__set_off(struct told_scopes *told, bool off);
/* Ends the scopes of threads that have ended, by decoder__check_threads(). */
int told_scopes__end_gone(struct told_scopes *told);
