/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Runs one rank of a job alone, with the environment that torchrun would give it. A process of our
 * own serves the store through which the ranks would meet (tcp_store.h). A launcher (torchrun,
 * python -m torch.distributed.run or .launch, accelerate launch) does not run, only its script. The
 * dry run's library answers NCCL's collectives: docs/internals/ESTIMATE.md, "One rank of many".
 */
#include <stdbool.h>
#include <stddef.h>

struct user;
struct estimate_ranks;

#define ESTIMATE_WORLD_MAX (1u << 20)

struct estimate_ranks_args {
	unsigned world_size; /* ranks of the job; 0: from the launcher's command line, otherwise 1 */
	unsigned rank;	     /* rank, from 0 */
	/* Ranks per machine; 0: from the launcher, otherwise the world size, but at most 8. */
	unsigned local_world_size;
	char **command; /* NULL-terminated; must stay valid */
};

/* True if args ask for a world or the command is a launcher. Otherwise the command runs unchanged,
 * and the functions below are not needed. */
bool estimate_ranks__wanted(const struct estimate_ranks_args *args);

/*
 * Starts the process of the store as this user (NULL: the present one). It ends with this process
 * in any case. On an error returns NULL, logs it and sets *status to an exit code; EXIT_USAGE: bad
 * command line or numbers.
 */
struct estimate_ranks *estimate_ranks__new(const struct estimate_ranks_args *args,
					   const struct user *user, int *status);

/* Command to run, NULL-terminated, and its environment for child_opts.env; r owns both. */
char **estimate_ranks__command(const struct estimate_ranks *r);
const char *const *estimate_ranks__env(const struct estimate_ranks *r);

unsigned estimate_ranks__rank(const struct estimate_ranks *r);
unsigned estimate_ranks__world_size(const struct estimate_ranks *r);
/* Ranks per machine. The dry run must have as many devices, so that the script can choose
 * its own. */
unsigned estimate_ranks__local_world_size(const struct estimate_ranks *r);

/* Ends the process of the store after the script ended. Returns the key that the script expected
 * from another rank without success, or NULL. r owns the text. */
const char *estimate_ranks__end(struct estimate_ranks *r);

/* Frees r and ends the process if it still runs. NULL is fine. */
void estimate_ranks__free(struct estimate_ranks *r);

/*
 * Parses a list of ranks: "0", "0,1,63", "0-3,7" or "all". *ranks is ascending without duplicates,
 * has *n entries, and belongs to the caller. Returns 0; -EINVAL; -ERANGE: a rank is not below
 * world_size; -E2BIG: more than 1024 ranks; -ENOMEM.
 */
int estimate_ranks__parse(const char *text, unsigned world_size, unsigned **ranks, size_t *n);

/* Finds world size and ranks per machine, both at least 1, from args and the launcher. Returns 0,
 * or -EINVAL, logged. */
int estimate_ranks__size(const struct estimate_ranks_args *args, unsigned *world_size,
			 unsigned *local_world_size);
