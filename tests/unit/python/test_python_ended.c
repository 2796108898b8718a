/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A Python that ends during a read, in every interpreter of $MEMTRACE_PYTHONS (default: python3).
 * The error must not be "unknown version" or "PyTorch is not imported yet".
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <time.h>

#include "inspect/census.h"
#include "inspect/proc.h"
#include "inspect/python.h"
#include "inspect/python/pygc.h"
#include "live.h"

struct ending {
	struct live live;
	struct proc *proc;
	struct python *py;
};

static void start(struct ending *e, const char *python)
{
	char *f[LIVE_FIELDS];
	struct maps maps;
	const char *why;

	live__start(&e->live, python, "tests/workloads/finalized.py");
	assert_true(live__next(&e->live, f) == 1 && !strcmp(f[0], "ready"));
	e->proc = proc__open(e->live.pid);
	assert_non_null(e->proc);
	assert_int_equal(proc__maps(e->proc, &maps), 0);
	e->py = python__open(e->proc, &maps, &why);
	if (!e->py)
		fail_msg("%s: %s", python, why);
	maps__free(&maps);
	assert_false(python__ended(e->py));
}

static void ended(const struct ending *e)
{
	struct pygc gc;
	const char *why;

	assert_true(python__ended(e->py));
	errno = 0;
	assert_null(census__open(e->py, true, 0, &why));
	assert_int_equal(errno, ESRCH);
	assert_non_null(strstr(why, "has ended"));
	/* 3.8 keeps its lists in the runtime, which stays */
	if (python__layout(e->py)->minor > 8)
		assert_int_equal(pygc__find(e->py, 0, &gc), -ESRCH);
}

static void stop(struct ending *e)
{
	kill(e->live.pid, SIGKILL);
	live__stop(&e->live);
	python__free(e->py);
	proc__free(e->proc);
}

static void each(void (*fn)(struct ending *e))
{
	const char *env = getenv("MEMTRACE_PYTHONS");
	char *list = strdup(env && *env ? env : "python3"), *save = NULL;

	for (char *p = strtok_r(list, ":", &save); p; p = strtok_r(NULL, ":", &save)) {
		struct ending e = { 0 };

		start(&e, p);
		fn(&e);
		ended(&e);
		stop(&e);
	}
	free(list);
}

static void finalize(struct ending *e)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };

	live__tell(&e->live, "");
	for (int i = 0; i < 4000 && !python__ended(e->py); i++)
		nanosleep(&pause, NULL);
	assert_true(proc__alive(e->proc));
}

static void test_finalized(void **state)
{
	each(finalize);
}

static void killed(struct ending *e)
{
	siginfo_t info;

	kill(e->live.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)e->live.pid, &info, WEXITED | WNOWAIT), 0);
}

static void test_killed(void **state)
{
	each(killed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finalized),
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
