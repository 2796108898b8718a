/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reports of the OOM killer, as Linux 5.10 and 6.18 write them. */
#include "unit/cmocka.h"

#include <stddef.h>
#include <string.h>

#include "capture/ending/hooks.h"

static pid_t feed(struct oom_report *r, const char *const *lines)
{
	pid_t pid = 0;

	for (; *lines; lines++)
		pid = oom_report__parse_line(*lines, r);
	return pid;
}

static void test_cgroup(void **state)
{
	struct oom_report r = { .constraint = "old" };

	assert_int_equal(
		feed(&r,
		     (const char *const[]){
			     "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
			     "memory: usage 512000kB, limit 512000kB, failcnt 181",
			     "memory+swap: usage 512004kB, limit 9007199254740988kB, failcnt 0",
			     "Memory cgroup stats for /job:",
			     "[  13259]     0 13259  1119959   233513   4423680   204000 0 ,pid=7",
			     "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
			     "mems_allowed=0,oom_memcg=/a,b/job,task_memcg=/a,b/job/x,"
			     "task=p,pid=1,pid=13259,uid=0",
			     NULL }),
		13259);
	assert_string_equal(r.constraint, "cgroup");
	assert_string_equal(r.cgroup, "/a,b/job");
	assert_int_equal(r.usage, 512000 * 1024);
	assert_int_equal(r.limit, 512000 * 1024);
	assert_int_equal(r.swap_usage, 512004 * 1024);
	assert_int_equal(r.swap_limit, UINT64_MAX);
}

static void test_machine(void **state)
{
	struct oom_report r = { .usage = 5 };

	assert_int_equal(
		feed(&r,
		     (const char *const[]){
			     "sh invoked oom-killer: gfp_mask=0x100cca, order=0",
			     "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,"
			     "mems_allowed=0,global_oom,task_memcg=/,task=python,pid=42,uid=0",
			     NULL }),
		42);
	assert_string_equal(r.constraint, "machine");
	assert_string_equal(r.cgroup, "");
	assert_int_equal(r.usage, UINT64_MAX);
}

static void test_hostile(void **state)
{
	struct oom_report r = { .usage = 5 };
	char line[3000] = "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=";

	memset(line + strlen(line), 'a', 2500);
	strcat(line, ",task_memcg=/,task=x,pid=9,uid=0");
	assert_int_equal(oom_report__parse_line(line, &r), 9);
	assert_string_equal(r.cgroup, "");
	assert_int_equal(oom_report__parse_line("oom-kill:constraint=CONSTRAINT_MEMCG", &r), 0);
	assert_int_equal(oom_report__parse_line("oom-kill:constraint=,pid=", &r), 0);
	assert_int_equal(oom_report__parse_line("memory: usage kB, limit", &r), 0);
	assert_int_equal(oom_report__parse_line("", &r), 0);
	assert_int_equal(r.usage, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cgroup),
					    cmocka_unit_test(test_machine),
					    cmocka_unit_test(test_hostile) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
