/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Launchers' command lines parsed for one rank, and lists of ranks. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "estimate/runs/ranks.h"

#define MAX_ARGS 40

/* A command line, split at spaces. */
struct line {
	char text[512];
	char *argv[MAX_ARGS];
};

static char **cut(struct line *l, const char *text)
{
	size_t n = 0;

	snprintf(l->text, sizeof(l->text), "%s", text);
	for (char *s = strtok(l->text, " "); s && n < MAX_ARGS - 1; s = strtok(NULL, " "))
		l->argv[n++] = s;
	l->argv[n] = NULL;
	return l->argv;
}

/* The resulting command, joined. */
static const char *joined(char **argv)
{
	static char text[1024];
	size_t n = 0;

	text[0] = '\0';
	for (; *argv; argv++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "", *argv);
	return text;
}

static void test_launch(void **state)
{
	static const struct {
		const char *line;
		enum launcher launcher;
		unsigned nodes, processes, all;
		const char *command;
	} cases[] = {
		{ "python train.py --nproc-per-node 4", LAUNCHER_NONE, 0, 0, 0, NULL },
		{ "./torchrun.py x", LAUNCHER_NONE, 0, 0, 0, NULL },
		{ "python -m torch.distributed.run --nproc-per-node 8 train.py --a b",
		  LAUNCHER_TORCHRUN, 1, 8, 0, "python -u train.py --a b" },
		{ "python3.12 -X dev -m torch.distributed.run --nproc_per_node=4 --nnodes=2:16 "
		  "--rdzv-backend c10d t.py -m",
		  LAUNCHER_TORCHRUN, 16, 4, 0, "python3.12 -X dev -u t.py -m" },
		{ "python -m torch.distributed.run --standalone --nproc-per 2 -m pkg.train "
		  "--nnodes 9",
		  LAUNCHER_TORCHRUN, 1, 2, 0, "python -u -m pkg.train --nnodes 9" },
		{ "python -m torch.distributed.run --nproc-per-node gpu -r3 -t 3 --no-python "
		  "./run.sh x",
		  LAUNCHER_TORCHRUN, 1, 0, 0, "./run.sh x" },
		{ "python -m torch.distributed.launch --nproc_per_node 4 train.py x",
		  LAUNCHER_LAUNCH, 1, 4, 0, "python -u train.py --local-rank=0 x" },
		{ "python -m torch.distributed.launch --use_env --nproc_per_node 4 train.py x",
		  LAUNCHER_LAUNCH, 1, 4, 0, "python -u train.py x" },
		{ "python -m accelerate.commands.launch --num_processes 16 --num_machines 2 "
		  "--mixed_precision bf16 t.py",
		  LAUNCHER_ACCELERATE, 2, 0, 16, "python -u t.py" },
		{ "deepspeed train.py", LAUNCHER_OTHER, 0, 0, 0, NULL },
		{ "mpirun -n 4 python t.py", LAUNCHER_OTHER, 0, 0, 0, NULL },
		{ "accelerate config", LAUNCHER_NONE, 0, 0, 0, NULL },
		{ "python", LAUNCHER_NONE, 0, 0, 0, NULL },
		{ "python -m", LAUNCHER_NONE, 0, 0, 0, NULL },
	};
	char why[LAUNCH_WHY];
	struct launch l;
	struct line line;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(launch__parse(cut(&line, cases[i].line), &l, why), 0);
		assert_int_equal(l.launcher, cases[i].launcher);
		assert_int_equal(!l.command, !cases[i].command);
		if (l.command) {
			assert_string_equal(joined(l.command), cases[i].command);
			assert_int_equal(l.nodes, cases[i].nodes);
			assert_int_equal(l.processes, cases[i].processes);
			assert_int_equal(l.all, cases[i].all);
		}
		launch__free(&l);
	}
	assert_int_equal(
		launch__parse(
			cut(&line,
			    "python -m torch.distributed.launch --nproc_per_node 4 train.py x"),
			&l, why),
		0);
	assert_int_equal(launch__set_local_rank(&l, 3), 0);
	assert_string_equal(joined(l.command), "python -u train.py --local-rank=3 x");
	launch__free(&l);
}

static void test_not_understood(void **state)
{
	static const struct {
		const char *line, *why;
	} cases[] = {
		{ "torchrun --nproc-per-node 8", "torchrun: no script" },
		{ "torchrun", "torchrun: no script" },
		{ "torchrun --nproc-per-node", "torchrun: no value for --nproc-per-node" },
		{ "torchrun --n 8 t.py", "torchrun: unknown option of the launcher: --n" },
		{ "torchrun --virtual-local-rank t.py", "torchrun: estimate does not support the "
							"launcher's option --virtual-local-rank" },
		{ "accelerate launch --use_fsdp t.py",
		  "accelerate launch: estimate does not support the launcher's option --use_fsdp" },
		{ "torchrun --\033[1m t.py",
		  "torchrun: unknown option of the launcher: --\\x1b[1m" },
	};
	char why[LAUNCH_WHY];
	struct launch l;
	struct line line;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(launch__parse(cut(&line, cases[i].line), &l, why), -EINVAL);
		assert_string_equal(why, cases[i].why);
	}
}

/* torchrun is a Python script: its first line names the interpreter, or its folder if the path is
 * too long for the kernel. */
static void test_interpreter(void **state)
{
	char folder[] = "/tmp/memtrace-launch-XXXXXX", path[64], python[64], want[160],
	     why[LAUNCH_WHY];
	char *argv[] = { path, (char *)"--nproc-per-node=2", (char *)"t.py", NULL };
	struct launch l;
	FILE *f;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/torchrun", folder);
	snprintf(python, sizeof(python), "%s/python", folder);
	for (int shell = 0; shell < 2; shell++) {
		f = fopen(python, "w");
		fclose(f);
		chmod(python, 0755);
		f = fopen(path, "w");
		fprintf(f,
			shell ? "#!/bin/sh\n'''exec' python \"$0\" \"$@\"\n" : "#!%s\nimport sys\n",
			python);
		fclose(f);
		chmod(path, 0755);
		assert_int_equal(launch__parse(argv, &l, why), 0);
		snprintf(want, sizeof(want), "%s -u t.py", python);
		assert_string_equal(joined(l.command), want);
		launch__free(&l);
	}
	unlink(path);
	unlink(python);
	rmdir(folder);
}

static const char *value(const struct estimate_ranks *r, const char *name)
{
	const char *const *env = (const char *const *)r->env;
	size_t n = strlen(name);

	for (; *env; env++) {
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	}
	return NULL;
}

static void test_one(void **state)
{
	struct line line;
	struct estimate_ranks_args a = {
		.rank = 13,
		.command = cut(
			&line,
			"python -m torch.distributed.run --nnodes 4 --nproc-per-node 8 t.py")
	};
	struct estimate_ranks *r;
	int status;

	assert_true(estimate_ranks__wanted(&a));
	r = estimate_ranks__new(&a, NULL, &status);
	assert_non_null(r);
	assert_int_equal(r->world_size, 32);
	assert_int_equal(r->local_world_size, 8);
	assert_string_equal(joined(r->command), "python -u t.py");
	assert_string_equal(value(r, "RANK"), "13");
	assert_string_equal(value(r, "WORLD_SIZE"), "32");
	assert_string_equal(value(r, "LOCAL_RANK"), "5");
	assert_string_equal(value(r, "GROUP_RANK"), "1");
	assert_string_equal(value(r, "GROUP_WORLD_SIZE"), "4");
	assert_string_equal(value(r, "MASTER_ADDR"), "127.0.0.1");
	assert_string_equal(value(r, "TORCHELASTIC_USE_AGENT_STORE"), "True");
	assert_true(atoi(value(r, "MASTER_PORT")) > 0);
	assert_null(estimate_ranks__end(r));
	estimate_ranks__free(r);

	a = (struct estimate_ranks_args){ .command = cut(&line, "python t.py") };
	assert_false(estimate_ranks__wanted(&a));
	a.world_size = 12; /* 12 is not a multiple of 8 */
	assert_true(estimate_ranks__wanted(&a));
	a.rank = 11;
	r = estimate_ranks__new(&a, NULL, &status);
	assert_int_equal(r->local_world_size, 6);
	assert_ptr_equal(r->command, a.command);
	estimate_ranks__free(r);
}

static void test_cannot_be(void **state)
{
	static const struct {
		struct estimate_ranks_args args;
		const char *line;
	} cases[] = {
		{ { .world_size = 8, .rank = 8 }, "python t.py" },
		{ { .world_size = 8, .local_world_size = 3 }, "python t.py" },
		{ { .world_size = 8, .local_world_size = 16 }, "python t.py" },
		{ { .rank = 1 }, "python t.py" },
		{ { .rank = 0 }, "python -m torch.distributed.run --nproc-per-node gpu t.py" },
		{ { .rank = 0 }, "python -m accelerate.commands.launch t.py" },
		{ { .world_size = 4 }, "deepspeed t.py" },
	};
	struct line line;
	int status;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct estimate_ranks_args a = cases[i].args;

		a.command = cut(&line, cases[i].line);
		assert_null(estimate_ranks__new(&a, NULL, &status));
		assert_int_equal(status, EXIT_USAGE);
	}
}

static void test_lists(void **state)
{
	static const struct {
		const char *text;
		int err;
		size_t n;
		unsigned first, last;
	} cases[] = {
		{ "0", 0, 1, 0, 0 },	      { "63,0,1", 0, 3, 0, 63 },
		{ "0-3,2,7", 0, 5, 0, 7 },    { "all", 0, 64, 0, 63 },
		{ "", -EINVAL, 0, 0, 0 },     { "64", -ERANGE, 0, 0, 0 },
		{ "1,", -EINVAL, 0, 0, 0 },   { "3-1", -EINVAL, 0, 0, 0 },
		{ "1 2", -EINVAL, 0, 0, 0 },  { "-1", -EINVAL, 0, 0, 0 },
		{ "0-64", -ERANGE, 0, 0, 0 }, { "99999999999999999999", -ERANGE, 0, 0, 0 },
	};
	unsigned *ranks;
	size_t n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(estimate_ranks__parse(cases[i].text, 64, &ranks, &n),
				 cases[i].err);
		if (cases[i].err)
			continue;
		assert_int_equal(n, cases[i].n);
		assert_int_equal(ranks[0], cases[i].first);
		assert_int_equal(ranks[n - 1], cases[i].last);
		free(ranks);
	}
	assert_int_equal(estimate_ranks__parse("all", 100000, &ranks, &n), -E2BIG);
	assert_int_equal(estimate_ranks__parse("0-2000", 100000, &ranks, &n), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_launch),	    cmocka_unit_test(test_not_understood),
		cmocka_unit_test(test_interpreter), cmocka_unit_test(test_one),
		cmocka_unit_test(test_cannot_be),   cmocka_unit_test(test_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
