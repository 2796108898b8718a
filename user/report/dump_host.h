/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads and prints the host memory of a process, or of a process and its children. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "inspect/hostmem.h"

struct map64;
struct maps;
struct proc;
struct python;

struct dump_host_process {
	pid_t pid;
	char comm[64]; /* hostile */
	struct host_ledger ledger;
	uint64_t tensors; /* bytes of CPU storages that the census found, resident or not */
	char why[160];	  /* why tensors are not known; "": they are */
};

/* Files of shared memory that processes map, each once. Pages that none of them has touched are in
 * no RSS. */
struct dump_shared {
	uint64_t files, bytes; /* bytes: of the largest mapping of each file */
	struct map64 *seen;    /* private: number of the file -> its bytes */
};

/* Adds the files of one process's mappings. 0 or -ENOMEM. */
int dump_shared__add(struct dump_shared *s, const struct maps *m);

struct dump_host {
	struct dump_host_process *v; /* the process, then its children */
	size_t n, skipped;	     /* skipped: children that ended or cannot be read */
	struct host_ledger sum;	     /* of the tree, with children; otherwise of the process */
	struct dump_shared shared;
	bool tree;
};

/*
 * Reads a process. The interpreter and tensors are optional. proportional: see struct host_opts. 0
 * or -errno, as hostmem__read().
 */
int dump_host__read(const struct proc *p, const struct python *py, bool proportional,
		    struct dump_host_process *ret);
/* Reads a process and, with tree, its children. 0 or -errno. */
int dump_host__read_all(const struct proc *p, const struct python *py, bool tree,
			struct dump_host *ret);
void dump_host__free(struct dump_host *d); /* frees its contents */

/* command: the process's command line, clean. 0 or -ENOMEM. */
int dump_host__text(FILE *out, const struct dump_host *d, const char *command);
/* 0 or -ENOMEM; the caller checks out for errors. */
int dump_host__json(FILE *out, const struct dump_host *d);
