/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How a process ended, in one sentence. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <string.h>

#include "record/ending.h"
#include "record/stream.h"

#define MEMORY                                                                                     \
	"end_time=12300000000\nend_rss=2115263365\nend_rss_anon=2040109465\n"                      \
	"end_memory_time=12299000000\nend_memory_from=kernel\n"

static struct facts *make(const char *text)
{
	struct facts *f = facts__new();
	char copy[2048], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');

		*value = '\0';
		assert_int_equal(facts__set(f, line, value + 1), 0);
	}
	return f;
}

static void test_sentence(void **state)
{
	static const struct {
		enum ending_reason reason;
		const char *facts, *text;
	} cases[] = {
		{ ENDING_UNKNOWN, "pid=1\n", "" },
		{ ENDING_UNKNOWN, "end_reason=later\n", "" },
		{ ENDING_GOOD, "end_reason=exit\nend_status=0\n", "" },
		{ ENDING_EXIT, "end_reason=exit\nend_status=3\n" MEMORY,
		  "exited with status 3 at 12.3 s: the process had 1.97 GiB (anonymous 1.90 GiB)" },
		{ ENDING_OOM,
		  "end_reason=oom killer\nend_signal=9\noom_constraint=cgroup\n"
		  "oom_cgroup_limit=2147483648\n" MEMORY,
		  "killed by the kernel's OOM killer at 12.3 s: cgroup limit 2.00 GiB, the process "
		  "had 1.97 GiB (anonymous 1.90 GiB)" },
		{ ENDING_OOM,
		  "end_reason=oom killer\nend_signal=9\noom_constraint=machine\nend_swap=1048576\n"
		  "end_rss_shmem=1048576\n" MEMORY,
		  "killed by the kernel's OOM killer at 12.3 s: the machine had no memory left, "
		  "the process had 1.97 GiB (anonymous 1.90 GiB, shared 1.00 MiB) and 1.00 MiB in "
		  "swap" },
		{ ENDING_SIGNAL,
		  "end_reason=signal\nend_signal=9\nend_signal_name=SIGKILL\n"
		  "end_signal_from=77\nend_signal_from_name=kube\x1b[2J\n" MEMORY,
		  "killed by SIGKILL at 12.3 s, sent by kube\\x1b[2J (PID 77): the process had "
		  "1.97 "
		  "GiB (anonymous 1.90 GiB)" },
		{ ENDING_SIGNAL,
		  "end_reason=signal\nend_signal=11\nend_signal_name=SIGSEGV\n"
		  "end_signal_from=kernel\nend_signal_addr=0x0\nend_time=12300000000\n",
		  "killed by SIGSEGV at 12.3 s, for an access to address 0x0: the memory of the "
		  "process was not read" },
		{ ENDING_SIGNAL, "end_reason=signal\nend_signal=35\nend_time=1000000000\n",
		  "killed by signal 35 at 1.00 s: the memory of the process was not read" },
		{ ENDING_EXIT,
		  "end_reason=exit\nend_status=1\nend_time=2000000000\nend_memory_time=1200000000\n"
		  "end_memory_from=status\nend_rss=1048576\nend_rss_anon=1048576\n",
		  "exited with status 1 at 2.00 s: the process had 1.00 MiB (anonymous 1.00 MiB), "
		  "read 0.80 s before the end" },
	};
	char text[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct facts *f = make(cases[i].facts);

		assert_int_equal(ending__reason(f), cases[i].reason);
		assert_string_equal(ending__text(text, sizeof(text), f), cases[i].text);
		assert_int_equal(ending__killed(f),
				 cases[i].reason == ENDING_OOM || cases[i].reason == ENDING_SIGNAL);
		facts__free(f);
	}
}

static void test_others(void **state)
{
	struct facts *f = make(
		"cgroup_memory=/job\ncgroup_limit=2147483648\ncgroup_usage=1073741824\n"
		"end_processes_of=cgroup\nend_processes_all=4\nend_process.1=7:1048576:a b\n"
		"end_process.2=8:1024:c:d\nend_process.3=9\n");
	char text[1024];

	assert_string_equal(ending__others(text, sizeof(text), f),
			    "cgroup /job: 1.00 GiB used of 2.00 GiB; most memory in it: a b (PID "
			    "7) 1.00 MiB, c:d (PID 8) 1.0 KiB, and 2 more");
	facts__free(f);
	f = make("end_processes_of=machine\nend_processes_all=1\nend_process.1=7:1048576:x\n");
	assert_string_equal(ending__others(text, sizeof(text), f),
			    "most memory on this machine: x (PID 7) 1.00 MiB");
	facts__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sentence),
					    cmocka_unit_test(test_others) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
