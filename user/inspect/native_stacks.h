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

/* Maximum number of stacks that the BPF programs copy in a second. */
#define NATIVE_STACKS_A_SECOND 1000
#define NATIVE_STACKS_OF_HOST 64 /* the same, if only --host needs stacks */
/* Least bytes of a PyTorch allocation whose stack --native copies. Buckets of DDP and workspaces of
 * cuBLAS are larger, most tensors are smaller. */
#define NATIVE_STACKS_FROM (1 << 20)

/* Borrows proc, dict and facts. NULL with errno. */
struct native_stacks *native_stacks__new(const struct proc *proc, struct dict *dict,
					 struct facts *facts);
void native_stacks__free(struct native_stacks *stacks); /* NULL is fine */
/* Reads which files are mapped, if the process's map has changed. Call it after the process has
 * mapped files. */
void native_stacks__refresh(struct native_stacks *stacks);

/* Keeps a copied stack until its event comes. 0, -ENOMEM or -EBADMSG. */
int native_stacks__record(struct native_stacks *stacks, const struct mt_rec_native *record,
			  size_t len);

/*
 * Puts native frames before the Python frames of an event of thread tid at `time` (CLOCK_MONOTONIC,
 * ns). *stack: the dictionary's number of the event's stack. If it has Python frames, native frames
 * of the interpreter and of its callers are left out. Sets *stack and *walk to those of the joined
 * stack, and leaves both if no stack was copied. 0; -ENOMEM; or an error of native__unwind(), which
 * leaves both, too.
 */
int native_stacks__join(struct native_stacks *stacks, uint32_t tid, uint64_t time, uint32_t *stack,
			uint8_t *walk);
/* Drops the thread's copied stack, because its event needs no native frames. */
void native_stacks__drop(struct native_stacks *stacks, uint32_t tid);

/* Sets counters of stacks as facts. counters: of the BPF programs. */
void native_stacks__set_facts(const struct native_stacks *stacks,
			      const uint64_t counters[MT_CNT_NR]);
