/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The functions of malloc in a process's files, and where to probe them. Each file counts that
 * defines malloc and free: a C library, an allocator in its place, or the executable of a static
 * program. C++'s operators new and delete are not among them, since an exception must not pass a
 * return probe: those of libstdc++ and libc++ call malloc, those of jemalloc, tcmalloc and mimalloc
 * do not, and their blocks are not seen.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct elf;
struct map;
struct maps;
struct proc;

#define MALLOCS_SITES_MAX 16

struct malloc_site {
	const char *name; /* static text */
	uint64_t offset;  /* file offset of the probed instruction */
	uint32_t how;	  /* enum mt_malloc_how; 0: the function frees its first argument */
	bool stepped;	  /* the kernel single-steps the instruction */
};

/* malloc's functions in a mapped file. */
struct malloc_file {
	struct elf *elf; /* the file, owned by the caller; NULL: it has no malloc */
	size_t n;
	struct malloc_site site[MALLOCS_SITES_MAX];
	/* Addresses of their code in the process: a call from there belongs to another call. */
	uint64_t own[MALLOCS_SITES_MAX][2];
	size_t n_own;
	/* Name of a function that no probe is possible on; NULL: none. One that ends blocks, free
	 * or realloc, comes before others. */
	const char *refused;
	bool misses_ends; /* it is one of these: blocks would seem to live on */
	bool has_new;	  /* the file has operators new of its own */
};

/*
 * Finds malloc's functions in a mapped file. map: an executable mapping of it. 0 also if there are
 * none; -errno if the file cannot be read, and *ret is unchanged.
 */
int mallocs__look(const struct proc *p, const struct maps *m, const struct map *map,
		  struct malloc_file *ret);
