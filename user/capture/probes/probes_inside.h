/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Memory shared with a child of ours that records itself (bpf/inside_shared.h). It is made before
 * the child; the library maps it there. It stays as long as we keep it.
 *
 * The child may have written anything there, and so may every process that inherits the memory,
 * even another user's: check each number where it is used. Private memory
 * decides where we write and which bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "inside_shared.h"

struct user;

struct inside_memory {
	int fd;	  /* the memory; stays open over an exec */
	int wake; /* an eventfd: readable when the child has new stacks */
	struct mt_inside *at;
	uint8_t *variables; /* MT_INSIDE_VARIABLES_MAX bytes */
	size_t ring_bytes;
	uint32_t image; /* at->image of the program that inside_memory__meet() saw */
	pid_t pid;	/* the child; at->pid is not trusted */
	/* Where we write. Never read from the shared memory again. */
	bool other; /* the command runs as another user: */
	uid_t uid;
	gid_t gid;
	int mem;	    /* memory of the recorded program, and of no later one; -1: none */
	uint32_t mem_image; /* at->image of that program */
	/* as in struct mt_inside, checked against the program's maps; 0: none */
	uint64_t returns, linker, slots[2];
	struct mt_inside_site *site; /* MT_INSIDE_SITES of them; the child has a copy */
	struct inside_waker *waker;
};

/* ring_bytes: 0 or a power of two. user: who the command runs as, NULL: we; borrowed for the call.
 * Starts a thread that blocks all signals. NULL with errno. */
struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user);
void inside_memory__free(struct inside_memory *m); /* NULL is fine */

/* Sets the process to be recorded, before it runs its program. */
void inside_memory__bind(struct inside_memory *m, pid_t pid);
/* Lets a new program run on; it waits again when PyTorch is mapped, if possible. */
void inside_memory__meet(struct inside_memory *m);
/* True if it waits, with PyTorch mapped and none of its code run. */
bool inside_memory__arrived(const struct inside_memory *m);
void inside_memory__let_go(struct inside_memory *m);
/* Lets the process go on without us: nothing is read any more. */
void inside_memory__close(struct inside_memory *m);
