/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory cgroup of a process, from texts and in a folder that looks like a hierarchy. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "unit/scratch.h"

#define V1 "36 32 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2 "37 32 0:32 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
#define POD "50 40 0:28 /kubepods/pod1 /sys/fs/cgroup ro,nosuid master:11 - cgroup2 cgroup rw\n"

static void test_find(void **state)
{
	static const struct {
		const char *cgroups, *mounts, *dir, *path;
	} cases[] = {
		{ "9:name=systemd:/a\n4:memory:/job/x\n0::/\n", V2 V1,
		  "/sys/fs/cgroup/memory/job/x", "/job/x" },
		{ "4:cpu,memory:/\n", V1, "/sys/fs/cgroup/memory", "/" },
		/* v2 alone, and v2 for a process without the memory controller in v1 */
		{ "0::/job\n", V1 V2, "/sys/fs/cgroup/unified/job", "/job" },
		/* a path with a colon, and one in a part of the hierarchy */
		{ "0::/a:b\n", V2, "/sys/fs/cgroup/unified/a:b", "/a:b" },
		{ "0::/kubepods/pod1/c2\n", POD, "/sys/fs/cgroup/c2", "/c2" },
		{ "0::/kubepods/pod1\n", POD, "/sys/fs/cgroup", "/" },
		/* mount points with a space */
		{ "0::/x\n", "1 2 0:3 / /m\\040n rw - cgroup2 none rw\n", "/m n/x", "/x" },
		/* not visible: outside the mounted part, or above our namespace */
		{ "0::/kubepods/pod10\n", POD, NULL, NULL },
		{ "0::/../other\n", V2, NULL, NULL },
		{ "5:memoryx:/a\n6:xmemory:/b\n", V1, NULL, NULL },
		{ "4:memory:/a\n", V2, NULL, NULL },
		{ "4:memory:/a\n", "x\n - cgroup\n1 2 - cgroup a memory\n", NULL, NULL },
		{ "", V1, NULL, NULL },
		{ "4:memory\n::\n", V1, NULL, NULL },
	};
	struct memcg m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int err = memcg__parse(cases[i].cgroups, cases[i].mounts, &m);

		assert_int_equal(err, cases[i].dir ? 0 : -ENOENT);
		if (err)
			continue;
		assert_string_equal(m.dir, cases[i].dir);
		assert_string_equal(memcg__path(&m), cases[i].path);
	}
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void test_figures(void **state)
{
	char dir[] = "/tmp/memtrace-test-XXXXXX", sub[64];
	struct memcg m = { .v2 = true }, at;
	struct memcg_figures f;
	struct stat st;
	pid_t pids[4];

	assert_non_null(mkdtemp(dir));
	snprintf(sub, sizeof(sub), "%s/job", dir);
	assert_int_equal(mkdir(sub, 0700), 0);
	m.top = strlen(dir);
	snprintf(m.dir, sizeof(m.dir), "%s", sub);
	put(dir, "memory.max", "4096000\n");
	put(sub, "memory.max", "max\n");
	put(sub, "memory.current", "1000\n");
	put(sub, "memory.events", "low 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 7\n");
	put(sub, "memory.stat",
	    "anon 600\nfile 300\nkernel 100\nkernel_stack 16\npagetables 32\n"
	    "sock 5\nslab 48\nfile_mapped 9\ninactive_file 150\nactive_file 90\n");
	put(sub, "memory.swap.current", "77\n");
	put(dir, "cgroup.procs", "5\n");
	put(sub, "cgroup.procs", "6\n7\n");

	memcg__read(&m, &f);
	assert_int_equal(f.limit, MEMCG_NONE);
	assert_int_equal(f.usage, 1000);
	assert_int_equal(f.peak, MEMCG_NONE);
	assert_int_equal(f.oom_kills, 1);
	assert_int_equal(f.anon, 600);
	assert_int_equal(f.file, 300);
	assert_int_equal(f.kernel, 100);
	assert_int_equal(f.sock, 5);
	assert_int_equal(f.swap, 77);
	assert_int_equal(f.cache, 240);
	assert_true(memcg__left(&f) == MEMCG_NONE);
	assert_true(f.kernel_stack == 16 && f.page_tables == 32 && f.slab == 48);

	/* the ancestor has the limit, and the processes of both */
	assert_true(memcg__limiting(&m, &at));
	assert_string_equal(at.dir, dir);
	assert_int_equal(memcg__pids(&at, pids, 4), 3);
	assert_int_equal(pids[0], 5);
	assert_int_equal(memcg__pids(&at, pids, 2), 2);
	put(sub, "memory.max", "4095999\n");
	assert_true(memcg__limiting(&m, &at));
	assert_string_equal(at.dir, sub);

	at = m;
	assert_true(memcg__climb(&at));
	assert_string_equal(at.dir, dir);
	assert_false(memcg__climb(&at));

	assert_int_equal(stat(dir, &st), 0);
	assert_true(memcg__with_inode(&m, st.st_ino, &at));
	assert_string_equal(at.dir, dir);
	assert_false(memcg__with_inode(&m, 1, &at));
	assert_true(memcg__with_path(&m, "/outer/job", &at));
	assert_string_equal(at.dir, sub);
	assert_int_equal(scratch__remove(dir), 0);

	/* a cgroup that is gone */
	memcg__read(&m, &f);
	assert_int_equal(f.usage, MEMCG_NONE);
	assert_false(memcg__limiting(&m, &at));
	assert_int_equal(memcg__pids(&m, pids, 4), 0);
}

static void test_left(void **state)
{
	static const struct {
		uint64_t limit, usage, cache, left;
	} cases[] = {
		{ MEMCG_NONE, 900, 240, MEMCG_NONE },
		{ 1000, 900, MEMCG_NONE, 100 },
		/* the kernel can reclaim its cache of files */
		{ 1000, 1000, 240, 240 },
		/* use above the limit, and less than its cache: values read at different times */
		{ 1000, 1900, 240, 0 },
		{ 1000, 200, 240, 1000 },
		{ 1000, MEMCG_NONE, 240, MEMCG_NONE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct memcg_figures f = { .limit = cases[i].limit,
					   .usage = cases[i].usage,
					   .cache = cases[i].cache };

		assert_true(memcg__left(&f) == cases[i].left);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_find),
					    cmocka_unit_test(test_figures),
					    cmocka_unit_test(test_left) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
