/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The rank of a process in its job, from the variables that launchers set: torchrun, Open MPI,
 * MPICH and Intel MPI, Slurm, and Kubernetes for indexed jobs, in this order. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
