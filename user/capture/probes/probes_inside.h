/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Memory shared with a child of ours that records itself (bpf/inside_shared.h). It is made before
 * the child, whose recording library maps it. It stays as long as we keep it.
 *
 * The child may have written anything there, and so may every process that inherits the memory,
 * even another user's: check each number where it is used. Only our private memory decides where
 * we write into the child, and which bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "inside_shared.h"

struct user;

struct inside_memory {
	int fd;	  /* descriptor of the shared memory; stays open over an exec */
	int wake; /* an eventfd: readable when the child has new stacks */
	struct mt_inside *at;
	uint8_t *variables; /* MT_INSIDE_VARIABLES_MAX bytes */
	size_t ring_bytes;
	uint32_t image; /* at->image of the last program that inside_memory__meet() let run */
	pid_t pid;	/* the child's PID; at->pid is not trusted */
	/* For writes into the child. These fields are never read from the shared memory again. */
	bool other; /* the command runs as another user, .uid and .gid */
	uid_t uid;
	gid_t gid;
	int mem; /* descriptor of the memory of the recorded program, and of no later one; -1: none */
	uint32_t mem_image; /* at->image of that program */
	/* addresses as in struct mt_inside, checked against the program's maps; 0: none */
	uint64_t returns, linker, slots[2];
	struct mt_inside_site *site; /* MT_INSIDE_SITES probed addresses; the child has a copy */
	struct inside_waker *waker;
};

/* ring_bytes: a power of two, or 0 for the default. user: the user that the command runs as; NULL:
 * ours; borrowed for the call. Starts a thread that blocks all signals. NULL with errno. */
struct inside_memory *inside_memory__new(size_t ring_bytes, const struct user *user);
void inside_memory__free(struct inside_memory *memory); /* NULL is fine */

/* Sets the process to be recorded, before it runs its program. */
void inside_memory__bind(struct inside_memory *memory, pid_t pid);
/* Call it often. If the process has begun a new program and its library waits, lets the program
 * run on. It waits again when PyTorch is mapped, if a breakpoint in the dynamic linker is
 * possible. */
void inside_memory__meet(struct inside_memory *memory);
/* True if the process waits, with PyTorch mapped and none of PyTorch's code run. */
bool inside_memory__arrived(const struct inside_memory *memory);
/* Lets a process that waits run on. */
void inside_memory__let_go(struct inside_memory *memory);
/* Tells the process that nobody reads its records any more, and lets it run on. */
void inside_memory__close(struct inside_memory *memory);
