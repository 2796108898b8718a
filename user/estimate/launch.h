/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_LAUNCH_H
#define MT_ESTIMATE_LAUNCH_H
/*
 * A launcher's command line taken apart: torchrun, python -m torch.distributed.run or .launch,
 * accelerate launch. What it would start as one of its processes, and how many of these there would
 * be.
 */
#include <stdbool.h>
#include <stddef.h>

enum launcher {
	LAUNCHER_NONE, /* a command that runs as it is */
	LAUNCHER_TORCHRUN,
	LAUNCHER_LAUNCH, /* torch.distributed.launch: tells the script its local rank as an argument
			  */
	LAUNCHER_ACCELERATE,
	LAUNCHER_OTHER, /* one that is not taken apart: name says which */
};

#define LAUNCH_WHY 320

struct launch {
	enum launcher launcher;
	const char *name;	   /* "torchrun" */
	unsigned nodes, processes; /* at most nodes machines of so many processes each; 0: not said,
				      or "gpu" and the like */
	unsigned all;		   /* accelerate's: so many in all; 0: not said */
	const char *role, *run_id;
	const char *mixed_precision, *accumulation; /* accelerate's, NULL: not said */
	char **command;	      /* NULL-terminated; NULL: LAUNCHER_NONE and _OTHER */
	size_t local_rank_at; /* LAUNCHER_LAUNCH: command[] that is to say "--local-rank=N"; 0: none
			       */
	char *interpreter;    /* what is not the caller's in command */
	char *local_rank;
};

/*
 * argv: NULL-terminated, and must stay. 0; -EINVAL: a launcher's, but it cannot be understood: why
 * (LAUNCH_WHY bytes) says what of it; -ENOMEM.
 */
int launch__parse(char **argv, struct launch *l, char *why);
/* Puts the local rank where the script is told it. 0 or -ENOMEM. */
int launch__set_local_rank(struct launch *l, unsigned local_rank);
void launch__free(struct launch *l);

#endif
