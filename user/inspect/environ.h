/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process's current environment, from its memory, and the rank that it tells. /proc/PID/environ
 * has the initial environment, which programs may change. It counts until the program has set up
 * its own. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct maps;
struct proc;

/* Value of a variable. 0; -ENOENT: not set; -E2BIG: does not fit; other -errno: the environment is
 * not readable. buf is hostile text, undefined on failure. */
int environ__get(const struct proc *p, const struct maps *m, const char *name, char *buf,
		 size_t size);

/* The rank of a process in its job, from the variables that launchers set: torchrun, Open MPI,
 * MPICH and Intel MPI, Slurm, and Kubernetes for indexed jobs, in this order. */

struct rank_env {
	uint64_t rank, local, world; /* local: rank on its host; world: number of ranks */
	bool has_rank, has_local, has_world;
	const char *from; /* variable with the rank, static; NULL: none */
};

/* Finds the rank. get() writes the value of a variable, hostile text, to buf and returns 0, or
 * returns another value if it is not set or not known. Variables of batch systems count only if
 * there are several ranks: a script without ranks has them, too. */
void rank_env__find(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
		    struct rank_env *ret);
