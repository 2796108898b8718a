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
struct probed_scopes;

/* Borrows decoder. NULL: out of memory. */
struct probed_scopes *probed_scopes__new(struct decoder *decoder);
void probed_scopes__free(struct probed_scopes *probed); /* NULL is fine */
/* The dictionary's number of a scope's name. After 4,096 different names in a recording, further
 * ones are "(further names)". UINT32_MAX: out of memory. */
uint32_t probed_scopes__name(struct probed_scopes *probed, const char *name);
/* Handles a begin, or an end that is not record_function's. Returns 0, -ENOMEM or the sink's error,
 * as the functions below. */
int probed_scopes__record(struct probed_scopes *probed, const struct mt_rec_scope *record);
/* Ends the innermost record_function scope of a thread. time: ns since start. */
int probed_scopes__exit(struct probed_scopes *probed, uint32_t tid, uint64_t time);
/* Some thread's begin or end was lost: ends all open scopes, because it is not known which are
 * open. */
int probed_scopes__end_all(struct probed_scopes *probed);
/* Whether the capture drops scopes for now, to cost less. Ends all open ones if it does. */
int probed_scopes__set_off(struct probed_scopes *probed, bool off);
/* Ends the scopes of threads that have ended, by decoder__check_threads(). */
int probed_scopes__end_gone(struct probed_scopes *probed);
