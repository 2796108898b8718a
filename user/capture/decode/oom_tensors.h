/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The tensors in the variables of a failed allocation's frames, from the BPF programs' copies to
 * the facts of record/oom.h. */
#include <stdint.h>

#include "memtrace.h"

struct decoder;
struct oom_copies;

void oom_tensors__free(struct oom_copies *copies); /* NULL is fine */
/* Keeps a copy for the out of memory that follows on its thread. 0 or -ENOMEM. */
int oom_tensors__record(struct decoder *decoder, const struct mt_rec_tensor *record);
/* Returns the number of copies that were dropped because too many waited for their event. */
uint64_t oom_tensors__no_room(const struct decoder *decoder);
/* An allocation failed: names the copies and sets the fact. time: ns since start. Tensors whose
 * copy or name is not certain are left out. 0 or -ENOMEM. */
int oom_tensors__failed(struct decoder *decoder, const struct mt_hdr *header, uint64_t time);
