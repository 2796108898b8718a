/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The first stage of a capture: turns the BPF programs' records into events, and passes each event
 * to one sink. Its dictionary grows with the names that events refer to. cuda_calls.h, autograd.h
 * and modules.h decode their own records with the decoder's threads, stacks and names.
 */
#include <stdbool.h>
#include <stddef.h>

#include "capture/decode/decode_ctx.h"

/*
 * A decoder for one process. All arguments are borrowed and must outlive it. The caller sets start,
 * from_start and next before the first record. NULL: out of memory.
 */
struct decoder *decoder__new(const struct session_opts *opts, struct target *target,
			     struct probes *probes, struct dict *dict, struct facts *facts);
/* Also frees d->calls, autograd, modules, native, host. */
void decoder__free(struct decoder *decoder);

/* Whether the len bytes at rec are a whole record of a known type. Check each record: without
 * privileges, the target itself writes into the ring. */
bool decoder__is_record(const void *rec, size_t len);
/*
 * Decodes one record: passes its events on, or keeps what later events need. 0, -ENOMEM, -EBADMSG
 * (not a valid record), or the sink's error.
 */
int decoder__record(struct decoder *decoder, const void *rec, size_t len);
/* Forgets the root modules, and makes the BPF programs send all stacks again. Call it when modules
 * may have other names than before. */
void decoder__forget_roots(struct decoder *decoder);
