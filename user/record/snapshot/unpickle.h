/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Reads a pickle of protocol 0 to 5 that has only data: lists, dicts, tuples, numbers, texts,
 * bytes. A pickle is a program; the operations that import or call something (GLOBAL, STACK_GLOBAL,
 * REDUCE, INST, OBJ, BUILD, NEWOBJ, EXT, PERSID) are refused and not performed. The operations are
 * those of CPython's Lib/pickletools.py.
 */
struct inflow;
struct nested;

/* Reads up to the end of the pickle. each: called about every 64 KiB of operations; it may return
 * an error, which ends the reading. Returns 0, -ENOMEM, -ENOSPC, an error of the input or of each,
 * or -EBADMSG with the reason in nested->why or in->why. */
int unpickle__run(struct inflow *in, struct nested *v, int (*each)(void *ctx), void *ctx);
