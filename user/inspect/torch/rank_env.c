/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/environ.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

/* The variables of torchrun: https://pytorch.org/docs/stable/elastic/run.html; Open MPI:
 * "Environment variables set for each process" of mpirun's manual; MPICH and Intel MPI: the Hydra
 * launcher; Slurm: "OUTPUT ENVIRONMENT VARIABLES" of srun's manual; Kubernetes: "Indexed Job". */
static const struct launcher {
	const char *rank, *local, *world;
	bool batch; /* set for programs without ranks, too */
} launchers[] = {
	{ "RANK", "LOCAL_RANK", "WORLD_SIZE", false },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", true },
	{ "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", true },
	{ "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", true },
	{ "JOB_COMPLETION_INDEX", NULL, NULL, false },
};

static bool number(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
		   const char *name, uint64_t *ret)
{
	char value[24], *end;

	if (!name || get(ctx, name, value, sizeof(value)) || !isdigit((unsigned char)*value))
		return false;
	errno = 0;
	*ret = strtoull(value, &end, 10);
	return !errno && !*end && *ret <= INT64_MAX;
}

void rank_env__find(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
		    struct rank_env *ret)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
		const struct launcher *l = &launchers[i];

		*ret = (struct rank_env){ 0 };
		ret->has_rank = number(get, ctx, l->rank, &ret->rank);
		if (!ret->has_rank && l->batch)
			continue;
		ret->has_world = number(get, ctx, l->world, &ret->world);
		if (l->batch && (!ret->has_world || ret->world < 2 || ret->rank >= ret->world))
			continue;
		ret->has_local = number(get, ctx, l->local, &ret->local);
		if (!ret->has_rank && !ret->has_local && !ret->has_world)
			continue;
		ret->from = ret->has_rank ? l->rank : NULL;
		return;
	}
	*ret = (struct rank_env){ 0 };
}
