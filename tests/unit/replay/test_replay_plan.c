/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Replay plans: the pool of each block, where the cache was emptied, the initial state; and which
 * interpreters are trusted. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "estimate/replay/plan.h"
#include "estimate/replay/trust.h"
#include "estimate/replay/wire.h"
#include "replay_plan_check.h"
#include "unit/scratch.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define BASE 0x7f0000000000ULL

static struct event events[8192];
static size_t n_events;
static uint64_t allocated, reserved;

static int begin(void **state)
{
	n_events = 0;
	allocated = reserved = 0;
	return 0;
}

static struct event *add(uint8_t kind, uint64_t addr, uint64_t size)
{
	struct event *e = &events[n_events++];

	*e = (struct event){ .kind = kind,
			     .device = { DEVICE_CUDA, 0 },
			     .addr = addr,
			     .size = size,
			     .time = n_events };
	return e;
}

static struct event *alloc(uint64_t addr, uint64_t size)
{
	struct event *e = add(EVENT_ALLOC, addr, size);

	allocated += size;
	e->totals = true;
	e->allocated = allocated;
	e->reserved = reserved;
	return e;
}

static void release(uint64_t addr, uint64_t size)
{
	struct event *e = add(EVENT_FREE, addr, size);

	allocated -= size;
	e->totals = true;
	e->allocated = allocated;
	e->reserved = reserved;
}

static void call(uint8_t kind, uint64_t addr, uint64_t size, uint8_t flags)
{
	struct event *e = add(kind, addr, size);

	e->how = MEM_DEVICE;
	e->flags = flags;
	if (flags & MEM_BY_ALLOCATOR)
		reserved += kind == EVENT_CUDA_ALLOC ? size : 0 - size;
}

static void segment(uint64_t addr, uint64_t size, uint64_t stream, uint64_t pool, uint8_t flags)
{
	struct event *e = add(EVENT_SEGMENT, addr, size);

	e->cuda_stream = stream;
	e->pool[0] = pool;
	e->flags = flags;
}

static struct replay_plan_info planned(uint64_t total, const char *expected)
{
	int fd = memfd_create("plan", MFD_CLOEXEC);
	struct replay_plan_maker *p = replay_plan__new(fd, 0, total);
	struct replay_plan_info info;
	char *text;

	assert_non_null(p);
	for (size_t i = 0; i < n_events; i++)
		assert_int_equal(replay_plan__event(p, &events[i], i, 0), 0);
	assert_int_equal(replay_plan__finish(p, &info), 0);
	replay_plan__free(p);
	text = plan_text(fd);
	assert_non_null(text);
	if (expected)
		assert_string_equal(text, expected);
	free(text);
	close(fd);
	return info;
}

static void test_blocks(void **state)
{
	struct replay_plan_info info;

	call(EVENT_CUDA_ALLOC, BASE, 2 * MIB, MEM_BY_ALLOCATOR);
	alloc(BASE, 1024);
	add(EVENT_REQUESTED, BASE, 0)->requested = 1000;
	alloc(BASE + 1024, 512);
	release(BASE, 1024);
	alloc(BASE, 512);
	release(0x1234000, 512); /* a free of an unknown block */
	add(EVENT_ALLOC, BASE + 4096, 512)->device.type = DEVICE_CPU;
	add(EVENT_ALLOC, BASE + 4096, 512)->device.index = 1;
	info = planned(0, "pool 0\nreserved 2097152\nalloc 0 1024 1000 @1\nalloc 1 512 0 @3\nfree "
			  "0 @4\nalloc 0 512 0 @5\n");
	assert_int_equal(info.events, 4);
	assert_int_equal(info.asked, 1);
	assert_int_equal(info.unknown_frees, 1);
	assert_int_equal(info.peak_allocated, 1536);
	assert_int_equal(info.peak_reserved, 2 * MIB);
}

/* An allocation at a live block's address: that block's free was missed. */
static void test_missed_free(void **state)
{
	alloc(BASE, 512);
	add(EVENT_LOST, 0, 3);
	alloc(BASE, 1024);
	assert_int_equal(
		planned(0, "pool 0\nreserved 0\nalloc 0 512 0 @0\nfree 0 @2\nalloc 0 1024 0 @2\n")
			.mended,
		1);
}

/* Segments recorded after blocks in them. */
static void test_pools(void **state)
{
	struct replay_plan_info info;

	for (uint64_t i = 0; i < 5; i++) {
		call(EVENT_CUDA_ALLOC, BASE + i * 32 * MIB, 20 * MIB, MEM_BY_ALLOCATOR);
		alloc(BASE + i * 32 * MIB, 4 * MIB);
	}
	segment(BASE + 32 * MIB, 20 * MIB, 0x5000, 0, 0);
	segment(BASE + 64 * MIB, 20 * MIB, 0x5000, 7, 0);
	segment(BASE, 20 * MIB, 0, 0, 0);
	/* The second stream by the name in allocations, once known and once unknown. */
	alloc(BASE + 40 * MIB, MIB);
	add(EVENT_REQUESTED, BASE + 40 * MIB, 0)->cuda_stream = 3;
	alloc(BASE + 104 * MIB, MIB);
	add(EVENT_REQUESTED, BASE + 104 * MIB, 0)->cuda_stream = 3;
	info = planned(0, "pool 0\nreserved 20971520\nalloc 0 4194304 0 @1\npool 1\nreserved "
			  "41943040\nalloc 1 4194304 0 @3\n"
			  "pool 2\nreserved 62914560\nalloc 2 4194304 0 @5\npool 1\nreserved "
			  "83886080\nalloc 3 4194304 0 @7\n"
			  "pool 0\nreserved 104857600\nalloc 4 4194304 0 @9\npool 1\nalloc 5 "
			  "1048576 0 @13\npool 1\nalloc 6 1048576 0 @15\n");
	assert_int_equal(info.pools, 3);
	assert_int_equal(info.pools_unknown, 1);
}

/* More private pools than a plan has: the other segments count as unknown. */
static void test_too_many_pools(void **state)
{
	struct replay_plan_info info;

	for (uint64_t i = 0; i < REPLAY_MAX_POOLS + 4; i++)
		segment(BASE + i * 32 * MIB, 20 * MIB, 0, 1 + i, 0);
	add(EVENT_STATE, 0, 0);
	/* An allocation names the stream of one of them. */
	alloc(BASE + (REPLAY_MAX_POOLS + 1) * 32 * MIB, MIB);
	add(EVENT_REQUESTED, BASE + (REPLAY_MAX_POOLS + 1) * 32 * MIB, 0)->cuda_stream = 3;
	info = planned(0, NULL);
	assert_int_equal(info.pools, REPLAY_MAX_POOLS);
	assert_int_equal(info.pools_unknown, 5); /* pool 0 is no private one */
}

static void range(uint64_t addr)
{
	struct event *e = add(EVENT_CUDA_ALLOC, addr, 64 * GIB);

	e->how = MEM_RESERVED;
	e->flags = MEM_BY_ALLOCATOR;
	e->device.index = DEVICE_UNKNOWN;
}

/* Expandable segments that were not recorded: two with blocks of the same size belong to two
 * pools. */
static void test_ranges(void **state)
{
	struct replay_plan_info info;

	for (uint64_t i = 0; i < 4; i++) {
		range(BASE + i * 64 * GIB);
		alloc(BASE + i * 64 * GIB, i & 1 ? 4 * MIB : 512);
	}
	info = planned(0, "pool 0\nreserved 0\nalloc 0 512 0 @1\npool 0\nalloc 1 4194304 0 "
			  "@3\npool 1\nalloc 2 512 0 @5\npool 1\nalloc 3 4194304 0 @7\n");
	assert_int_equal(info.pools, 2);
	assert_int_equal(info.pools_unknown, 0);
}

/* A range from before attach grows: memory is mapped after it. */
static void test_range_grows(void **state)
{
	struct event *e;

	segment(BASE, 20 * MIB, 0x5000, 0, SEGMENT_EXPANDABLE);
	add(EVENT_STATE, 0, 0);
	e = add(EVENT_CUDA_ALLOC, BASE + 20 * MIB, 20 * MIB);
	e->how = MEM_MAPPED;
	e->flags = MEM_BY_ALLOCATOR;
	alloc(BASE + 30 * MIB, 4 * MIB);
	alloc(BASE + 40 * MIB, 4 * MIB); /* after it */
	planned(0, "segment 20971520:\nstate\npool 1\nreserved 0\nalloc 0 4194304 0 @3\npool "
		   "0\nalloc 1 4194304 0 @4\n");
}

static void full(uint64_t device)
{
	struct replay_plan_info info;

	call(EVENT_CUDA_ALLOC, BASE, 20 * MIB, MEM_BY_ALLOCATOR);
	alloc(BASE, 4 * MIB);
	call(EVENT_CUDA_ALLOC, BASE + GIB, GIB, MEM_BY_ALLOCATOR);
	alloc(BASE + GIB, GIB);
	add(EVENT_USED, 0, reserved + 100 * MIB);
	release(BASE + GIB, GIB);
	call(EVENT_CUDA_FREE, BASE + GIB, GIB, MEM_BY_ALLOCATOR);
	call(EVENT_CUDA_ALLOC, BASE + GIB, GIB + 512 * MIB, MEM_BY_ALLOCATOR);
	alloc(BASE + GIB, GIB + 512 * MIB);
	info = planned(device, NULL);
	assert_true(info.context_known);
	assert_int_equal(info.context, 100 * MIB);
	assert_int_equal(info.retries, device == 2 * GIB);
	assert_int_equal(info.empties, device != 2 * GIB);
}

/* Memory returned to CUDA before an allocation: because memory was short, or because the program
 * emptied the cache. */
static void test_full_or_emptied(void **state)
{
	full(2 * GIB);
	begin(state);
	full(80 * GIB);
	begin(state);
	full(0);
}

static void test_emptied(void **state)
{
	struct replay_plan_info info;

	call(EVENT_CUDA_ALLOC, BASE, 20 * MIB, MEM_BY_ALLOCATOR);
	alloc(BASE, 4 * MIB);
	release(BASE, 4 * MIB);
	call(EVENT_CUDA_FREE, BASE, 20 * MIB, MEM_BY_ALLOCATOR);
	call(EVENT_CUDA_ALLOC, BASE, 2 * MIB, MEM_BY_ALLOCATOR);
	alloc(BASE, 512);
	reserved = 0; /* totals fall without a recorded call */
	release(BASE, 512);
	info = planned(80 * GIB, "pool 0\nreserved 20971520\nalloc 0 4194304 0 @1\nfree 0 "
				 "@2\nempty\npool 0\nreserved 2097152\nalloc 0 512 0 @5\n"
				 "empty\nreserved 0\nfree 0 @6\n");
	assert_int_equal(info.empties, 2);
}

static void test_others(void **state)
{
	struct replay_plan_info info;

	call(EVENT_CUDA_ALLOC, BASE, 32 * MIB, 0);
	alloc(BASE + GIB, 512);
	call(EVENT_CUDA_FREE, BASE, 0, 0);
	call(EVENT_CUDA_FREE, BASE, 0, 0);
	call(EVENT_CUDA_ALLOC, BASE, 64 * MIB, 0);
	alloc(BASE + GIB + 512, 512);
	info = planned(0, "take 33554432\npool 0\nreserved 0\nalloc 0 512 0 @1\ngive\ntake "
			  "67108864\nalloc 1 512 0 @5\n");
	assert_false(info.context_known);
}

static void test_state(void **state)
{
	struct replay_plan_info info;
	struct event *e;

	segment(BASE + 2 * MIB, 20 * MIB, 0x5000, 0, 0);
	segment(BASE, 2 * MIB, 0, 0, SEGMENT_SMALL);
	segment(BASE + MIB, 4 * MIB, 0, 0, 0);	   /* overlaps the others: invalid */
	segment(BASE + GIB + 5, 2 * MIB, 0, 0, 0); /* an invalid address */
	add(EVENT_BLOCK, BASE + 512, 1024);
	add(EVENT_BLOCK, BASE + 1024, 512); /* inside the previous one */
	add(EVENT_BLOCK, BASE + 4 * MIB, 2 * MIB)->flags = BLOCK_PENDING;
	add(EVENT_BLOCK, BASE + 2 * MIB, MIB);
	add(EVENT_BLOCK, BASE + 3 * GIB, MIB); /* a block outside of all segments */
	e = add(EVENT_STATE, 0, 0);
	e->totals = true;
	e->flags = STATE_EXACT;
	allocated = 3 * MIB;
	reserved = 22 * MIB;
	release(BASE + 512, 1024);
	alloc(BASE + 8 * MIB, 512);
	info = planned(0, "segment small 2097152: 512+1024\nsegment 20971520: 0+1048576 "
			  "2097152+2097152 waits\nblock\nstate\n"
			  "reserved 23068672\nfree 0 @10\npool 1\nalloc 0 512 0 @11\n");
	assert_true(info.before_known);
	assert_int_equal(info.before, 1024 + 2 * MIB);
	assert_false(info.before_exact); /* because of the block without a segment */
}

static int opened(const char *path)
{
	int fd = replay_trust__open(path);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static void test_paths_of_others(void **state)
{
	char dir[] = "/tmp/memtrace-trust-XXXXXX", path[64], link[64];

	assert_int_equal(opened("/usr/bin/env"), 0);
	assert_int_equal(opened("/usr/bin/../bin//env"), 0);
	assert_int_equal(opened("/"), 0);
	assert_int_equal(opened("python"), -EINVAL);
	assert_int_equal(opened(""), -EINVAL);
	assert_int_equal(opened("/usr/bin/memtrace-trust-none"), -ENOENT);
	assert_int_equal(opened("/usr/bin/env/none"), -ENOTDIR);
	/* A different file for each process, whoever owns it. */
	assert_int_equal(opened("/proc/self/exe"), -EXDEV);
	assert_int_equal(opened("/dev/fd/0"), -EXDEV);
	assert_int_equal(opened("/sys/kernel"), -EXDEV);
	/* Everyone can write to /tmp, so links in it are not trusted, even root's. */
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/python", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
	assert_int_equal(symlink("/usr/bin/env", link), 0);
	assert_int_equal(opened(path), -EPERM);
	assert_int_equal(opened(link), -EPERM);
	unlink(link);
	unlink(path);
	rmdir(dir);
}

static void test_paths_of_root(void **state)
{
	char dir[] = "/run/memtrace-trust-XXXXXX", path[64], link[64], theirs[64], in_theirs[80];
	int fd;

	if (geteuid() || opened("/run") || !mkdtemp(dir))
		skip();
	snprintf(path, sizeof(path), "%s/python", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	snprintf(theirs, sizeof(theirs), "%s/theirs", dir);
	snprintf(in_theirs, sizeof(in_theirs), "%s/link", theirs);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	assert_true(fd >= 0);
	assert_int_equal(symlink("python", link), 0);
	assert_int_equal(mkdir(theirs, 0755), 0);
	assert_int_equal(symlink("../python", in_theirs), 0);
	assert_int_equal(opened(path), 0);
	assert_int_equal(opened(link), 0);
	assert_int_equal(opened(in_theirs), 0);
	/* Root's link to root's file, in a folder whose owner can replace the link at any time. */
	assert_int_equal(chown(theirs, 12345, 12345), 0);
	assert_int_equal(opened(in_theirs), -EPERM);
	assert_int_equal(chown(theirs, 0, 0), 0);
	assert_int_equal(lchown(link, 12345, 12345), 0);
	assert_int_equal(opened(link), -EPERM);
	assert_int_equal(lchown(link, 0, 0), 0);
	assert_int_equal(fchmod(fd, 0757), 0);
	assert_int_equal(opened(path), -EPERM);
	assert_int_equal(opened(link), -EPERM);
	assert_int_equal(fchmod(fd, 0775), 0);
	assert_int_equal(opened(path), -EPERM);
	assert_int_equal(fchmod(fd, 0755), 0);
	assert_int_equal(chmod(dir, 01777), 0);
	assert_int_equal(opened(path), -EPERM);
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(fchown(fd, 12345, 12345), 0);
	assert_int_equal(opened(path), -EPERM);
	close(fd);
	/* A cycle of links. */
	unlink(link);
	assert_int_equal(symlink("link", link), 0);
	assert_int_equal(opened(link), -ELOOP);
	unlink(in_theirs);
	rmdir(theirs);
	unlink(link);
	unlink(path);
	rmdir(dir);
}

static bool has(const char *path, const char *list)
{
	int fd = replay_trust__open(path);
	bool ret = fd >= 0 && replay_trust__has_place(path, fd, list);

	if (fd >= 0)
		close(fd);
	return ret;
}

/* That root owns a file is no consent to run it. */
static void test_places_of_packages(void **state)
{
	char dir[] = "/run/memtrace-places-XXXXXX", python[64], link[64], list[64], text[256];

	if (geteuid() || opened("/run") || !mkdtemp(dir))
		skip();
	snprintf(python, sizeof(python), "%s/python3", dir);
	snprintf(link, sizeof(link), "%s/python", dir);
	snprintf(list, sizeof(list), "%s/list", dir);
	scratch__write(python, "");
	assert_int_equal(symlink("/usr/bin/env", link), 0);
	assert_true(has("/usr/bin/env", list));
	assert_true(has("/bin/../usr/bin/env", list) == false); /* its beginning says nothing */
	assert_int_equal(opened(python), 0);
	assert_false(has(python, list));
	assert_false(has(link, list)); /* Python looks for packages next to the link */
	/* A list, of names before and after links. */
	snprintf(text, sizeof(text), "# comment\n\nrun\n/\n/run/memtrace-places\n%s/ \n", dir);
	scratch__write(list, text);
	assert_true(has(python, list));
	assert_true(has(link, list));
	scratch__write(list, "# comment\n\nrun\n/\n/run/memtrace-places\n");
	assert_false(has(python, list));
	/* A list that others can change does not count. */
	scratch__write(list, text);
	assert_int_equal(chown(list, 12345, 0), 0);
	assert_false(has(python, list));
	assert_int_equal(chown(list, 0, 0), 0);
	assert_int_equal(chmod(list, 0666), 0);
	assert_false(has(python, list));
	unlink(list);
	unlink(link);
	unlink(python);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_blocks, begin),
		cmocka_unit_test_setup(test_missed_free, begin),
		cmocka_unit_test_setup(test_pools, begin),
		cmocka_unit_test_setup(test_too_many_pools, begin),
		cmocka_unit_test_setup(test_full_or_emptied, begin),
		cmocka_unit_test_setup(test_emptied, begin),
		cmocka_unit_test_setup(test_others, begin),
		cmocka_unit_test_setup(test_ranges, begin),
		cmocka_unit_test_setup(test_range_grows, begin),
		cmocka_unit_test_setup(test_state, begin),
		cmocka_unit_test(test_paths_of_others),
		cmocka_unit_test(test_paths_of_root),
		cmocka_unit_test(test_places_of_packages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
