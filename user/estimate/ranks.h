/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_RANKS_H
#define MT_ESTIMATE_RANKS_H
/*
 * One rank of many, by itself: the environment that torchrun would give it, and in the place of its
 * peers a process of ours that serves the store through which they would meet (tcp_store.h). A
 * launcher's own command line (torchrun, python -m torch.distributed.run, ...launch, accelerate
 * launch) is taken apart: the script is what runs, as one rank. NCCL's collectives are answered by
 * the dry run's library: docs/ESTIMATE.md, "One rank of many".
 */
#include <stdbool.h>
#include <stddef.h>

struct user;
struct estimate_ranks;

#define ESTIMATE_WORLD_MAX (1u << 20)

struct estimate_ranks_args {
	unsigned world_size;	   /* 0: as the launcher's command line says; without one: 1 */
	unsigned rank;		   /* from 0 */
	unsigned local_world_size; /* ranks a machine; 0: as the launcher says, else the world's,
				      but no more than 8 */
	char **command;		   /* NULL-terminated; must stay */
};

/*
 * Whether there is anything to do: a world was asked for, or the command is a launcher's. Where
 * not, the command runs as it is, and none of the rest is needed.
 */
bool estimate_ranks__wanted(const struct estimate_ranks_args *args);

/*
 * Starts the store's process, as that user (NULL: as we are); it ends with us whatever happens.
 * NULL, with the words logged and *status an exit code: EXIT_USAGE where the command line or the
 * numbers cannot be.
 */
struct estimate_ranks *estimate_ranks__new(const struct estimate_ranks_args *args,
					   const struct user *user, int *status);

/* What to run, NULL-terminated, and its environment for child_opts.env; owned by r. */
char **estimate_ranks__command(const struct estimate_ranks *r);
const char *const *estimate_ranks__env(const struct estimate_ranks *r);

unsigned estimate_ranks__rank(const struct estimate_ranks *r);
unsigned estimate_ranks__world_size(const struct estimate_ranks *r);
/* Ranks a machine: the dry run must have as many devices, or the script cannot choose its own. It
 * uses one of them. */
unsigned estimate_ranks__local_world_size(const struct estimate_ranks *r);
/* The device that the rank is expected to use: its number on its machine. */
unsigned estimate_ranks__device(const struct estimate_ranks *r);

/*
 * The script is at its end, or was stopped: ends the store's process. Then, if the script waited
 * for something that only another rank would have told it, and that was given up: its name, else
 * NULL. Owned by r.
 */
const char *estimate_ranks__end(struct estimate_ranks *r);

/* Ends what has not ended. NULL is fine. */
void estimate_ranks__free(struct estimate_ranks *r);

/*
 * Ranks as people write them: "0", "0,1,63", "0-3,7", "all". Ascending, each once, *n of them, to
 * be freed. 0; -EINVAL; -ERANGE: one is not below world_size; -E2BIG: more than 1024; -ENOMEM.
 */
int estimate_ranks__parse(const char *text, unsigned world_size, unsigned **ranks, size_t *n);

/* The world's size and the ranks a machine as the launcher and args say, both at least 1. 0, or
 * -EINVAL, logged. */
int estimate_ranks__size(const struct estimate_ranks_args *args, unsigned *world_size,
			 unsigned *local_world_size);

#endif
