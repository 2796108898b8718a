/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parses the command line of a launcher: torchrun, python -m torch.distributed.run or .launch,
 * accelerate launch. Finds the command of one process and the number of processes. */
#include <stddef.h>

enum launcher {
	LAUNCHER_NONE, /* plain command without a launcher */
	LAUNCHER_TORCHRUN,
	LAUNCHER_LAUNCH, /* torch.distributed.launch; passes the local rank as an argument */
	LAUNCHER_ACCELERATE,
	LAUNCHER_OTHER, /* launcher that is not parsed; name has its name */
};

#define LAUNCH_WHY 320

struct launch {
	enum launcher launcher;
	const char *name; /* the launcher's name, such as "torchrun" */
	/* Most machines, and processes per machine; 0: not given, or a word such as "gpu". */
	unsigned nodes, processes;
	unsigned all; /* accelerate: processes on all machines; 0: not given */
	const char *role, *run_id;
	const char *mixed_precision, *accumulation; /* accelerate's options; NULL: not given */
	char **command; /* NULL-terminated command; NULL for LAUNCHER_NONE and LAUNCHER_OTHER */
	size_t local_rank_at; /* LAUNCHER_LAUNCH: index of "--local-rank=N" in command; 0: none */
	char *interpreter;    /* strings of command that this struct owns */
	char *local_rank;
};

/* Parses argv, NULL-terminated, which must stay valid. Returns 0; -ENOMEM; or -EINVAL if a
 * launcher's command line is invalid, with the reason in why (LAUNCH_WHY bytes). */
int launch__parse(char **argv, struct launch *l, char *why);
/* Sets the local rank in the command, if the launcher passes it there. Returns 0 or -ENOMEM. */
int launch__set_local_rank(struct launch *l, unsigned local_rank);
void launch__free(struct launch *l);
