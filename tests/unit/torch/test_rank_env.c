/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Ranks by the variables of launchers. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "inspect/proc.h"

static int get(void *ctx, const char *name, char *buf, size_t size)
{
	for (const char *const *v = ctx; *v; v++) {
		size_t len = strlen(name);

		if (!strncmp(*v, name, len) && (*v)[len] == '=')
			return snprintf(buf, size, "%s", *v + len + 1) >= (int)size ? -E2BIG : 0;
	}
	return -ENOENT;
}

/* -1: not known. */
static void check(const char *const *env, int64_t rank, int64_t local, int64_t world,
		  const char *from)
{
	struct rank_env r;

	rank_env__find(get, (void *)env, &r);
	assert_int_equal(r.has_rank ? (int64_t)r.rank : -1, rank);
	assert_int_equal(r.has_local ? (int64_t)r.local : -1, local);
	assert_int_equal(r.has_world ? (int64_t)r.world : -1, world);
	if (from)
		assert_string_equal(r.from, from);
	else
		assert_null(r.from);
}

#define ENV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_launchers(void **state)
{
	(void)state;
	check(ENV("HOME=/"), -1, -1, -1, NULL);
	check(ENV("RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8"), 3, 1, 8, "RANK");
	check(ENV("RANK=0"), 0, -1, -1, "RANK");
	check(ENV("LOCAL_RANK=1", "WORLD_SIZE=8"), -1, 1, 8, NULL);
	/* torchrun's count, also under Slurm, whose tasks are its launchers. */
	check(ENV("SLURM_PROCID=1", "SLURM_NTASKS=2", "RANK=11", "LOCAL_RANK=3", "WORLD_SIZE=16"),
	      11, 3, 16, "RANK");
	check(ENV("SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NTASKS=2"), 1, 0, 2, "SLURM_PROCID");
	/* A batch script without ranks. */
	check(ENV("SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=1"), -1, -1, -1, NULL);
	check(ENV("SLURM_PROCID=0", "SLURM_LOCALID=0"), -1, -1, -1, NULL);
	check(ENV("OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_LOCAL_RANK=1",
		  "OMPI_COMM_WORLD_SIZE=8", "SLURM_PROCID=0", "SLURM_NTASKS=2"),
	      5, 1, 8, "OMPI_COMM_WORLD_RANK");
	check(ENV("PMI_RANK=5", "MPI_LOCALRANKID=1", "PMI_SIZE=8"), 5, 1, 8, "PMI_RANK");
	check(ENV("JOB_COMPLETION_INDEX=4"), 4, -1, -1, "JOB_COMPLETION_INDEX");
}

static void test_nonsense(void **state)
{
	(void)state;
	check(ENV("RANK=", "WORLD_SIZE="), -1, -1, -1, NULL);
	check(ENV("RANK=-1"), -1, -1, -1, NULL);
	check(ENV("RANK= 1"), -1, -1, -1, NULL);
	check(ENV("RANK=1x"), -1, -1, -1, NULL);
	check(ENV("RANK=99999999999999999999"), -1, -1, -1, NULL);
	check(ENV("RANK=111111111111111111111111111111111111111"), -1, -1, -1, NULL);
	check(ENV("RANKS=1"), -1, -1, -1, NULL);
	check(ENV("PMI_RANK=8", "PMI_SIZE=8"), -1, -1, -1, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_launchers),
					    cmocka_unit_test(test_nonsense) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
