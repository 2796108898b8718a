/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Stacks of compiled code for rare events, such as calls into CUDA that PyTorch's allocator did not
 * make. A struct mt_rec_native comes before the event's own record, and is unwound when that record
 * turns out to need it.
 */
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct dict;
struct facts;
struct native_stacks;
struct proc;

/* Stacks that the programs copy in a second. */
#define NATIVE_STACKS_A_SECOND 1000
#define NATIVE_STACKS_OF_HOST 64 /* with --host alone */
/* Bytes of an allocation of PyTorch whose stack is copied with --native: its buckets of DDP and
 * workspaces of cuBLAS are larger, and most tensors are smaller. */
#define NATIVE_STACKS_FROM (1 << 20)

/* Borrows all of them. NULL with errno. */
struct native_stacks *native_stacks__new(const struct proc *p, struct dict *d, struct facts *f);
void native_stacks__free(struct native_stacks *s); /* NULL is fine */
/* Reads which files are mapped, after more were. */
void native_stacks__refresh(struct native_stacks *s);

/* Keeps a copied stack until its event comes. 0, -ENOMEM or -EBADMSG. */
int native_stacks__record(struct native_stacks *s, const struct mt_rec_native *r, size_t len);

/*
 * The stack of an event of that thread at that time (CLOCK_MONOTONIC, ns): native frames, then the
 * Python frames of *stack, a number of the dictionary. Native frames of the interpreter and of what
 * called it are left out if there are Python frames. Sets *stack and *walk;
 * without a copied stack both stay. 0; -ENOMEM; or as native__unwind(), with both as they were.
 */
int native_stacks__join(struct native_stacks *s, uint32_t tid, uint64_t time, uint32_t *stack,
			uint8_t *walk);
/* Drops what is kept for an event that needs no native frames. */
void native_stacks__drop(struct native_stacks *s, uint32_t tid);

/* Sets the counters and build IDs as facts. */
void native_stacks__set_facts(const struct native_stacks *s, const uint64_t c[MT_CNT_NR]);
