/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_INSIDE_MEMORY_H
#define MT_CAPTURE_INSIDE_MEMORY_H
/*
 * What we share with a child of ours that records itself (bpf/inside_shared.h): made before it is,
 * mapped by the library in it. It is there as long as we keep it, whatever becomes of the child.
 *
 * All that the child can write there it may have written: numbers are checked where they are used.
 * So can every process that inherits the memory from it, and these may be other users'. What and
 * where we write is therefore in memory of our own.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "inside_shared.h"

struct user;

struct inside_memory {
	int fd;	  /* of the memory; kept over an exec */
	int wake; /* an eventfd: readable when the child wants to be read */
	struct mt_inside *at;
	uint8_t *variables; /* MT_INSIDE_VARIABLES_MAX bytes */
	size_t ring_bytes;
	uint32_t image; /* of at->image: the program that has been met */
	pid_t pid;	/* whom we write to: what at->pid says the child may have written */
	/* Where we write, of inside_sites.c: nothing of this is ever taken from the shared memory
	 * again. */
	bool other; /* the command is another user's, of these numbers */
	uid_t uid;
	gid_t gid;
	int mem; /* the memory of the program that is recorded, and of none that it runs later; -1:
		    none */
	uint32_t mem_image; /* at->image of that program */
	/* as in struct mt_inside, but checked with the program's maps; 0: none */
	uint64_t returns, linker, slots[2];
	struct mt_inside_site *site; /* MT_INSIDE_SITES: ours; the child has a copy */
	struct inside_waker *waker;
};

/*
 * ring_bytes: 0 or a power of two. user: whose command it is, NULL: ours; borrowed for the call.
 * NULL with errno. Starts a thread, in which all signals are blocked.
 */
struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user);
void inside_memory__free(struct inside_memory *m); /* NULL is fine */

/* Who is to be recorded; before it runs its program. */
void inside_memory__bind(struct inside_memory *m, pid_t pid);
/* A program that has just begun may go on, and will wait when PyTorch is mapped, if that can be
 * done. */
void inside_memory__meet(struct inside_memory *m);
/* It waits, with PyTorch mapped and none of its code run. */
bool inside_memory__arrived(const struct inside_memory *m);
void inside_memory__let_go(struct inside_memory *m);
/* Nothing is read any more: nobody is to wait for that. */
void inside_memory__close(struct inside_memory *m);

#endif
