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

/* Parses the command line of a launcher: torchrun, python -m torch.distributed.run or .launch,
 * accelerate launch. Finds the command of one process and the number of processes. */

enum launcher {
	LAUNCHER_NONE, /* plain command without a launcher */
	LAUNCHER_TORCHRUN,
	LAUNCHER_LAUNCH, /* torch.distributed.launch; passes the local rank as an argument */
	LAUNCHER_ACCELERATE,
	LAUNCHER_OTHER, /* launcher whose arguments are not parsed, such as mpirun */
};

#define LAUNCH_WHY 320

struct launch {
	enum launcher launcher;
	const char *name; /* the launcher's name, such as "torchrun" */
	/* Largest number of machines, and processes per machine; 0: not given, or a word such as
	 * "gpu". */
	unsigned nodes, processes;
	unsigned all; /* accelerate: processes on all machines; 0: not given */
	const char *role, *run_id;
	const char *mixed_precision, *accumulation; /* accelerate's options; NULL: not given */
	char **command; /* NULL-terminated command; NULL for LAUNCHER_NONE and LAUNCHER_OTHER */
	size_t local_rank_at; /* LAUNCHER_LAUNCH: index of "--local-rank=N" in command; 0: none */
	char *interpreter;    /* text in command that this struct owns */
	char *local_rank;     /* likewise */
};

/* Parses argv, NULL-terminated, which must stay valid. Returns 0; -ENOMEM; or -EINVAL if a
 * launcher's command line is invalid, with the reason in why (LAUNCH_WHY bytes). */
int launch__parse(char **argv, struct launch *l, char *why);
/* Sets the local rank in the command, if the launcher passes it there. Returns 0 or -ENOMEM. */
int launch__set_local_rank(struct launch *l, unsigned local_rank);
void launch__free(struct launch *l);

struct user;
struct tcp_store_server;

#define ESTIMATE_WORLD_MAX (1u << 20)
#define RANKS_ENV 40

/* A rank that runs alone; read only. */
struct estimate_ranks {
	/* local_world_size: ranks per machine. The dry run must have as many devices, so that the
	 * script can choose its own. */
	unsigned rank, world_size, local_world_size;
	struct launch launch;
	char **command; /* to run, NULL-terminated */
	struct tcp_store_server *server;
	char *env[RANKS_ENV + 1]; /* its environment, for child_opts.env */
	size_t n_env;
};

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
