/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of host memory: of ranges of this process, by the objects that lie in them. */
#include "unit/cmocka.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "inspect/hostmem.h"
#include "inspect/proc.h"
#include "record/stream.h"

#define MIB (1UL << 20)
#define MOST 64

static struct {
	uint64_t now;
	struct event named[MOST];
	uint64_t of_stack[MOST]; /* bytes that came */
	size_t n;
} got;

static uint64_t now(void *ctx)
{
	return got.now;
}

static uint64_t since(void *ctx, uint64_t time)
{
	return time;
}

static int emit(void *ctx, const struct event *e)
{
	if (e->kind == EVENT_TENSOR && got.n < MOST)
		got.named[got.n++] = *e;
	if (e->kind == EVENT_ALLOC && e->stack < MOST)
		got.of_stack[e->stack] += e->size;
	return 0;
}

static uint32_t thread(void *ctx, uint32_t tid)
{
	return 1;
}

static uint32_t stack(void *ctx, uint64_t id, uint8_t *walk)
{
	return (uint32_t)id;
}

static int native(void *ctx, const struct mt_rec_host *r, uint32_t *ret, uint8_t *walk)
{
	return 0;
}

static uint32_t named(void *ctx, const char *file, const char *function)
{
	return 99;
}

static void tell_of(struct host_memory *h, const uint8_t *area, size_t size, uint64_t id)
{
	struct mt_rec_host r = { .call = MT_HOST_MMAP,
				 .stack = id,
				 .addr = (uintptr_t)area,
				 .len = size,
				 .to = PROT_READ | PROT_WRITE };

	assert_int_equal(host_memory__record(h, &r), 0);
}

/* Maps and touches an area, and tells of it. */
static uint8_t *map(struct host_memory *h, size_t size, uint64_t id)
{
	uint8_t *area = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);

	assert_ptr_not_equal(area, MAP_FAILED);
	/* so that no other mapping joins it */
	assert_int_equal(mprotect(area + size, 4096, PROT_NONE), 0);
	memset(area, 1, size);
	if (id)
		tell_of(h, area, size, id);
	return area;
}

static void read_once(struct host_memory *h)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };

	got.now += 10000000000;
	host_memory__begin(h, false);
	while (host_memory__is_reading(h))
		nanosleep(&pause, NULL);
	assert_int_equal(host_memory__join_reading(h), 1);
	assert_int_equal(host_memory__take(h, true), 0);
}

static uint64_t bytes_named(const void *area, uint32_t name)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < got.n; i++)
		if (got.named[i].addr >= (uintptr_t)area &&
		    got.named[i].addr < (uintptr_t)area + 4 * MIB && got.named[i].name == name)
			sum += got.named[i].size;
	return sum;
}

/* The capture's side of a reading of this process. The caller frees .proc. */
static struct host_capture of_this_process(void)
{
	return (struct host_capture){ .proc = proc__open(getpid()),
				      .now = now,
				      .since = since,
				      .emit = emit,
				      .thread = thread,
				      .stack = stack,
				      .native = native,
				      .named = named };
}

static void test_names(void **state)
{
	struct host_capture c = of_this_process();
	struct host_memory *h = host_memory__new(&c, false);
	uint8_t *most, *little, *two, *late;
	struct host_held *v = calloc(8, sizeof(*v));

	assert_non_null(c.proc);
	assert_true(h && v);
	most = map(h, 4 * MIB, 1);
	little = map(h, 4 * MIB, 2);
	two = map(h, 4 * MIB, 3);
	read_once(h);
	host_memory__begin_held(h);
	late = map(h, 4 * MIB, 4);
	v[0] = (struct host_held){ (uintptr_t)most + 3 * MIB, MIB, 5 };
	v[1] = (struct host_held){ (uintptr_t)most, 2 * MIB, 5 };
	v[2] = (struct host_held){ (uintptr_t)most + 2 * MIB, MIB, 6 };
	/* the same memory twice counts once */
	v[3] = (struct host_held){ (uintptr_t)little, MIB + MIB / 2, 5 };
	v[4] = (struct host_held){ (uintptr_t)little + 4096, MIB, 5 };
	/* begins below and ends above */
	v[5] = (struct host_held){ (uintptr_t)two - 4096, 4 * MIB + 8192, 7 };
	v[6] = (struct host_held){ UINT64_MAX - 10, 100, 5 };
	v[7] = (struct host_held){ (uintptr_t)late, 4 * MIB, 5 };
	host_memory__set_held(h, v, 8);
	assert_int_equal(got.n, 0);
	read_once(h);
	assert_int_equal(bytes_named(most, 5), 4 * MIB);
	assert_int_equal(bytes_named(little, 5), 0);
	assert_int_equal(bytes_named(two, 7), 4 * MIB);
	assert_int_equal(bytes_named(late, 5), 0);
	assert_int_equal(got.named[0].device.type, DEVICE_HOST);
	got.n = 0;
	late[0] = 2;
	map(h, MIB, 5);
	read_once(h); /* the objects were used up */
	assert_int_equal(got.n, 0);
	host_memory__free(h);
	proc__free((struct proc *)c.proc);
}

/* Between readings, memory that was mapped since the last one has the growth of RSS. */
static void test_looks(void **state)
{
	struct host_capture c = of_this_process();
	struct host_memory *h = host_memory__new(&c, false);
	struct facts *f = facts__new();

	assert_non_null(c.proc);
	assert_true(h && f);
	assert_int_equal(host_memory__charge_growth(h, 1000 * MIB),
			 0); /* before the first reading */
	read_once(h);
	map(h, 8 * MIB, 50);
	assert_int_equal(host_memory__check_growth(h), 0); /* RSS of now counts at the next look */
	assert_int_equal(got.of_stack[50], 0);
	got.now += 300000000;
	assert_int_equal(host_memory__check_growth(h), 0);
	assert_in_range(got.of_stack[50], 6 * MIB, 8 * MIB);
	/* The end of a process: the kernel's figure, of which no more can be explained. */
	map(h, 4 * MIB, 51);
	assert_int_equal(host_memory__charge_growth(h, UINT64_MAX), 0);
	assert_int_equal(got.of_stack[50] + got.of_stack[51], 12 * MIB);
	host_memory__set_facts(h, f);
	assert_int_equal(strtoull(facts__get(f, "host_worked_out"), NULL, 10), 12 * MIB);
	/* A reading has the last word. */
	read_once(h);
	host_memory__set_facts(h, f);
	assert_string_equal(facts__get(f, "host_worked_out"), "0");
	facts__free(f);
	host_memory__free(h);
	proc__free((struct proc *)c.proc);
}

/* The reading begins before the record of a call came in, and is taken after it. */
static void test_late_records(void **state)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	struct host_capture c = of_this_process();
	struct host_memory *h = host_memory__new(&c, false);
	uint8_t *two, *heap;

	assert_non_null(c.proc);
	assert_non_null(h);
	heap = map(h, MIB, 0);
	tell_of(h, heap, MIB / 2, 40);
	read_once(h);
	two = map(h, 8 * MIB, 0);
	memset(got.of_stack, 0, sizeof(got.of_stack));
	got.now += 10000000000;
	host_memory__begin(h, false);
	while (host_memory__is_reading(h))
		nanosleep(&pause, NULL);
	tell_of(h, two, 3 * MIB, 41);
	tell_of(h, two + 3 * MIB, 5 * MIB, 42);
	assert_int_equal(host_memory__join_reading(h), 1);
	assert_int_equal(host_memory__take(h, true), 0);
	assert_int_equal(got.of_stack[41], 3 * MIB);
	assert_int_equal(got.of_stack[42], 5 * MIB);
	host_memory__free(h);
	proc__free((struct proc *)c.proc);
}

/* Sets the size of new threads' stacks. A thread with too large a stack cannot start. */
static void set_stack_size(size_t size)
{
	pthread_attr_t attr;

	assert_int_equal(pthread_getattr_default_np(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, size), 0);
	assert_int_equal(pthread_setattr_default_np(&attr), 0);
	pthread_attr_destroy(&attr);
}

/* A reading whose thread cannot start is due again, although memory does not change. */
static void test_thread_fails(void **state)
{
	struct host_capture c = of_this_process();
	struct host_memory *h = host_memory__new(&c, false);
	uint8_t *area;

	assert_non_null(c.proc);
	assert_non_null(h);
	area = map(h, MIB, 43);
	read_once(h);
	tell_of(h, area, MIB, 44);
	set_stack_size(1UL << 50);
	for (int i = 0; i < 3; i++) { /* the first one may grow the heap */
		got.now += 10000000000;
		host_memory__begin(h, false);
		assert_false(host_memory__is_reading(h));
		assert_int_equal(host_memory__join_reading(h), 0);
	}
	set_stack_size(1UL << 20);
	read_once(h);
	host_memory__free(h);
	proc__free((struct proc *)c.proc);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names),
					    cmocka_unit_test(test_looks),
					    cmocka_unit_test(test_thread_fails),
					    cmocka_unit_test(test_late_records) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
