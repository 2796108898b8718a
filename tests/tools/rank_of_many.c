/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Runs one rank of a job in the dry run without recording: rank_of_many WORLD_SIZE RANK
 * LOCAL_WORLD_SIZE COMMAND [ARGUMENT...]. 0: take the value from the launcher's command line. The
 * exit status is the command's. Standard error names what the rank waited for at a timeout.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/exit.h"
#include "capture/launch/child.h"
#include "estimate/runs/ranks.h"

static int run(const struct estimate_ranks *r)
{
	const char *const *own = (const char *const *)r->env;
	const char *env[128];
	char preload[4096], devices[64];
	struct child_opts co = { .argv = r->command, .env = env };
	struct child *c;
	sigset_t none;
	size_t n = 0;
	int status;

	for (; own[n] && n < 125; n++)
		env[n] = own[n];
	/* Only the job gets the dry run's libraries. */
	if (getenv("DRYRUN_PRELOAD")) {
		snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", getenv("DRYRUN_PRELOAD"));
		snprintf(devices, sizeof(devices), "MEMTRACE_DRYRUN_DEVICES=%u",
			 r->local_world_size);
		env[n++] = preload;
		env[n++] = devices;
	}
	env[n] = NULL;
	sigemptyset(&none);
	co.mask = &none;
	c = child__new(&co);
	if (!c || child__release(c)) {
		fprintf(stderr, "cannot run it\n");
		child__free(c);
		return EXIT_FAILED;
	}
	status = child__wait(c);
	child__free(c);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	struct estimate_ranks_args args;
	struct estimate_ranks *r;
	const char *missing;
	int status;

	if (argc < 5)
		return EXIT_USAGE;
	args = (struct estimate_ranks_args){ .world_size = (unsigned)atoi(argv[1]),
					     .rank = (unsigned)atoi(argv[2]),
					     .local_world_size = (unsigned)atoi(argv[3]),
					     .command = argv + 4 };
	r = estimate_ranks__new(&args, NULL, &status);
	if (!r)
		return status;
	status = run(r);
	missing = estimate_ranks__end(r);
	if (missing)
		fprintf(stderr, "waited without result for %s\n", missing);
	estimate_ranks__free(r);
	return status;
}
