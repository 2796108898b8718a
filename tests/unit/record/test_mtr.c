/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Recordings read back equal what was written; limits and errors of the writer. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "mtr_util.h"
#include "record/host.h"
#include "record/mtr/mtr_format.h"

static void assert_dicts(const struct dict *got, const struct dict *want)
{
	struct dict_counts a = dict__counts(got), b = dict__counts(want);

	assert_memory_equal(&a, &b, sizeof(a));
	for (uint32_t i = 0; i < a.strings; i++)
		assert_string_equal(dict__str(got, i), dict__str(want, i));
	for (uint32_t i = 0; i < a.locs; i++) {
		struct dict_loc x = dict__get_loc(got, i), y = dict__get_loc(want, i);

		assert_memory_equal(&x, &y, sizeof(x));
	}
	for (uint32_t i = 0; i < a.modules; i++) {
		struct dict_module x = dict__get_module(got, i), y = dict__get_module(want, i);

		assert_memory_equal(&x, &y, sizeof(x));
	}
	for (uint32_t i = 0; i < a.stacks; i++) {
		struct dict_stack x = dict__get_stack(got, i), y = dict__get_stack(want, i);

		assert_int_equal(x.n, y.n);
		assert_int_equal(x.walk, y.walk);
		if (x.n)
			assert_memory_equal(x.frames, y.frames, x.n * sizeof(*x.frames));
	}
	for (uint32_t i = 0; i < a.nodes; i++) {
		struct dict_node x = dict__get_node(got, i), y = dict__get_node(want, i);

		assert_memory_equal(&x, &y, sizeof(x));
	}
	for (uint32_t i = 0; i < a.threads; i++) {
		struct dict_thread x = dict__get_thread(got, i), y = dict__get_thread(want, i);

		assert_memory_equal(&x, &y, sizeof(x));
	}
}

static void check_round_trip(struct world *w, const struct events *l, size_t flush_every)
{
	int fd = memory_file();
	struct events got = { 0 };
	struct mtr_reader *r;
	struct stat st;
	uint64_t offset;
	const char *why;

	write_events(w, fd, l, flush_every);
	r = read_all(fd, &got);
	assert_int_equal(got.n, l->n);
	for (size_t i = 0; i < l->n; i++)
		assert_event(&got.e[i], &l->e[i]);
	assert_int_equal(mtr_reader__end(r, &offset, &why), MTR_COMPLETE);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(offset == (uint64_t)st.st_size);
	assert_true(mtr_reader__size(r) == (uint64_t)st.st_size);
	assert_true(mtr_reader__position(r) == (uint64_t)st.st_size);
	assert_int_equal(mtr_reader__version(r), MTR_VERSION);
	if (l->n) /* a recording without events needs no dictionary */
		assert_dicts(mtr_reader__dict(r), w->d);
	assert_string_equal(facts__get(mtr_reader__facts(r), "comm"), "python");
	assert_string_equal(facts__get(mtr_reader__facts(r), "dropped_events"), "0");
	mtr_reader__free(r);
	events__free(&got);
	close(fd);
}

static void test_every_kind(void **state)
{
	struct world w = world__new();
	struct events l = { 0 };
	const struct device cpu = { DEVICE_CPU, 0 }, gpu = { DEVICE_CUDA, 0 }, other = { 255, 255 },
			    host = { DEVICE_HOST, 0 };
	const struct event list[] = {
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .thread = w.thread,
		  .stack = w.stack,
		  .time = 1000,
		  .addr = 0x7f0000000000,
		  .size = 512,
		  .totals = true,
		  .allocated = 512,
		  .reserved = 2 << 20 },
		{ .kind = EVENT_FREE,
		  .device = gpu,
		  .thread = w.thread,
		  .time = 900,
		  .addr = 0x7f0000000000,
		  .size = 512,
		  .totals = true,
		  .reserved = 2 << 20 },
		/* totals that differ from the prediction, and wrap */
		{ .kind = EVENT_FREE,
		  .device = gpu,
		  .time = 901,
		  .addr = 0x7f0000000000,
		  .size = 1024,
		  .totals = true,
		  .allocated = UINT64_MAX,
		  .reserved = 1 },
		{ .kind = EVENT_ALLOC,
		  .device = cpu,
		  .time = 902,
		  .addr = 0,
		  .walk = MT_WALK_NO_THREAD },
		{ .kind = EVENT_ALLOC,
		  .device = cpu,
		  .time = UINT64_MAX,
		  .addr = UINT64_MAX,
		  .size = UINT64_MAX,
		  .walk = MT_WALK_NO_THREAD,
		  .thread = w.thread },
		{ .kind = EVENT_FREE, .device = cpu, .time = 0, .addr = UINT64_MAX },
		{ .kind = EVENT_ALLOC,
		  .device = cpu,
		  .addr = UINT64_MAX,
		  .size = UINT64_MAX,
		  .stack = w.cut_stack,
		  .walk = MT_WALK_FAULT_FRAME },
		{ .kind = EVENT_ALLOC,
		  .device = cpu,
		  .addr = 1,
		  .size = 1,
		  .stack = w.cut_stack,
		  .walk = MT_WALK_OK },
		{ .kind = EVENT_OOM,
		  .device = gpu,
		  .size = 1ull << 40,
		  .stack = w.stack,
		  .totals = true,
		  .allocated = 5,
		  .reserved = 6 },
		/* a device with totals, then without, then with the old ones */
		{ .kind = EVENT_FREE, .device = gpu, .addr = 9 },
		{ .kind = EVENT_OOM,
		  .device = gpu,
		  .size = 3,
		  .totals = true,
		  .allocated = 5,
		  .reserved = 6,
		  .walk = MT_WALK_BUSY },
		{ .kind = EVENT_STEP, .device = cpu, .stack = w.stack, .thread = w.thread },
		{ .kind = EVENT_CALL, .device = cpu, .module = w.module },
		{ .kind = EVENT_CALL,
		  .device = other,
		  .stack = w.stack,
		  .walk = MT_WALK_FAULT_SELF },
		{ .kind = EVENT_LOST, .device = cpu, .size = 1234567 },
		{ .kind = EVENT_LOST, .device = cpu, .size = 0 },
		/* blocks from before attach: adjacent, after a gap, repeated */
		{ .kind = EVENT_SEGMENT,
		  .device = gpu,
		  .addr = 0x7f0000000000,
		  .size = 2 << 20,
		  .flags = SEGMENT_SMALL },
		{ .kind = EVENT_SEGMENT,
		  .device = gpu,
		  .addr = 0x7f0000200000,
		  .size = 20 << 20,
		  .cuda_stream = 0x55aa,
		  .pool = { 0, 7 } },
		{ .kind = EVENT_SEGMENT,
		  .device = gpu,
		  .addr = 0x7f0000200000,
		  .size = 22 << 20,
		  .cuda_stream = 0x55aa,
		  .pool = { 0, 7 },
		  .flags = SEGMENT_EXPANDABLE },
		{ .kind = EVENT_BLOCK,
		  .device = gpu,
		  .addr = 0x7f0000000000,
		  .size = 512,
		  .requested = 4 },
		{ .kind = EVENT_BLOCK,
		  .device = gpu,
		  .addr = 0x7f0000000200,
		  .size = 1024,
		  .requested = 1024,
		  .flags = BLOCK_PENDING,
		  .stack = w.stack },
		{ .kind = EVENT_BLOCK,
		  .device = gpu,
		  .addr = 0x7f0000200000,
		  .size = 1024,
		  .cuda_stream = 0x55aa },
		{ .kind = EVENT_BLOCK,
		  .device = gpu,
		  .addr = 0,
		  .size = 0,
		  .requested = UINT64_MAX,
		  .cuda_stream = UINT64_MAX,
		  .walk = MT_WALK_NO_FRAME },
		{ .kind = EVENT_STATE,
		  .device = gpu,
		  .totals = true,
		  .allocated = 2560,
		  .reserved = 24 << 20,
		  .flags = STATE_EXACT | STATE_SEGMENTS_EXACT },
		{ .kind = EVENT_FREE,
		  .device = gpu,
		  .addr = 0x7f0000000200,
		  .size = 1024,
		  .totals = true,
		  .allocated = 1536,
		  .reserved = 24 << 20 },
		/* requested: as predicted; not the last block; less; equal; of an unknown block;
		 * unknown */
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000001000,
		  .size = 1024,
		  .totals = true,
		  .allocated = 2560,
		  .reserved = 24 << 20 },
		{ .kind = EVENT_REQUESTED,
		  .device = gpu,
		  .addr = 0x7f0000001000,
		  .requested = 1024 },
		{ .kind = EVENT_REQUESTED,
		  .device = gpu,
		  .addr = 0x7f0000000000,
		  .requested = 8,
		  .thread = w.thread },
		{ .kind = EVENT_REQUESTED,
		  .device = gpu,
		  .addr = 0x7f0000001000,
		  .requested = 1000 },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000001000,
		  .size = 1024,
		  .how = MEM_ASYNC },
		{ .kind = EVENT_REQUESTED,
		  .device = gpu,
		  .addr = 0x7f0000001000,
		  .requested = 1000,
		  .cuda_stream = 3 },
		{ .kind = EVENT_REQUESTED,
		  .device = gpu,
		  .addr = 0x7fffffffffff,
		  .requested = UINT64_MAX,
		  .cuda_stream = 3 },
		{ .kind = EVENT_REQUESTED, .device = gpu, .addr = 0x7f0000001000 },
		{ .kind = EVENT_REQUESTED, .device = cpu, .addr = 0 },
		/* memory below the blocks */
		{ .kind = EVENT_CUDA_ALLOC,
		  .device = gpu,
		  .how = MEM_DEVICE,
		  .addr = 0x7f1000000000,
		  .size = 2 << 20,
		  .flags = MEM_BY_ALLOCATOR,
		  .stack = w.stack,
		  .thread = w.thread },
		{ .kind = EVENT_CUDA_ALLOC,
		  .device = { DEVICE_CUDA, DEVICE_UNKNOWN },
		  .how = MEM_PHYSICAL,
		  .addr = 1,
		  .size = UINT64_MAX,
		  .walk = MT_WALK_NO_THREAD },
		{ .kind = EVENT_CUDA_FREE,
		  .device = gpu,
		  .how = MEM_DEVICE,
		  .addr = 0x7f1000000000,
		  .flags = MEM_BY_ALLOCATOR },
		{ .kind = EVENT_CUDA_FREE,
		  .device = gpu,
		  .how = MEM_MAPPED,
		  .addr = 0x7f2000000000,
		  .size = 2 << 20 },
		{ .kind = EVENT_USED, .device = gpu, .size = 1ull << 34 },
		{ .kind = EVENT_USED, .device = gpu, .size = 1ull << 34 },
		{ .kind = EVENT_USED, .device = gpu, .size = 0 },
		{ .kind = EVENT_LEFT, .device = gpu, .size = 1ull << 33 },
		{ .kind = EVENT_LEFT, .device = gpu, .size = 0 },
		/* autograd nodes: one, the same, another, none, another device, without memory */
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000003000,
		  .size = 512,
		  .node = 2,
		  .stack = w.stack },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000004000,
		  .size = 512,
		  .node = 2 },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000005000,
		  .size = 512,
		  .node = 1 },
		{ .kind = EVENT_ALLOC, .device = gpu, .addr = 0x7f0000006000, .size = 512 },
		{ .kind = EVENT_OOM, .device = cpu, .size = 512, .node = 1 },
		{ .kind = EVENT_BLOCK,
		  .device = gpu,
		  .addr = 0x7f0000007000,
		  .size = 512,
		  .node = 2 },
		/* names of blocks */
		{ .kind = EVENT_TENSOR,
		  .device = gpu,
		  .addr = 0x7f0000003000,
		  .size = 512,
		  .name = w.name,
		  .module = w.module,
		  .category = CATEGORY_PARAMETER,
		  .flags = CENSUS_FIRST },
		{ .kind = EVENT_TENSOR,
		  .device = gpu,
		  .addr = 0x7f0000003000,
		  .size = 512,
		  .name = w.name,
		  .category = CATEGORY_GRADIENT,
		  .flags = CENSUS_FIRST },
		{ .kind = EVENT_TENSOR,
		  .device = cpu,
		  .addr = UINT64_MAX,
		  .size = UINT64_MAX,
		  .module = w.module },
		{ .kind = EVENT_TENSOR,
		  .device = gpu,
		  .addr = 0,
		  .size = 0,
		  .category = CATEGORY_TEMPORARY },
		{ .kind = EVENT_CENSUS,
		  .device = gpu,
		  .size = 1024,
		  .flags = CENSUS_FIRST | CENSUS_TORN },
		{ .kind = EVENT_CENSUS, .device = gpu, .size = 1024, .flags = CENSUS_FIRST },
		{ .kind = EVENT_CENSUS, .device = cpu, .size = 0 },
		/* module calls without a device: the next event's device is as before */
		{ .kind = EVENT_ALLOC, .device = gpu, .addr = 0x7f0000008000, .size = 512 },
		{ .kind = EVENT_ENTER, .module = w.module, .thread = w.thread },
		{ .kind = EVENT_ENTER, .node = 2 },
		{ .kind = EVENT_LEAVE, .thread = w.thread },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f0000009000,
		  .size = 512,
		  .thread = w.thread },
		{ .kind = EVENT_LEAVE, .module = w.module },
		/* marks, also without a device */
		{ .kind = EVENT_MARK, .name = w.name, .thread = w.thread },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f000000a000,
		  .size = 512,
		  .thread = w.thread },
		{ .kind = EVENT_MARK },
		/* scopes, also without a device */
		{ .kind = EVENT_SCOPE,
		  .name = w.name,
		  .thread = w.thread,
		  .how = SCOPE_PHASE,
		  .flags = SCOPE_BEGIN,
		  .addr = UINT64_MAX,
		  .size = 7 },
		{ .kind = EVENT_ALLOC,
		  .device = gpu,
		  .addr = 0x7f000000b000,
		  .size = 512,
		  .thread = w.thread },
		{ .kind = EVENT_SCOPE, .how = 255, .flags = 255 },
		/* parts of host memory: any number of a part, with and without a second figure */
		{ .kind = EVENT_HOST,
		  .device = host,
		  .how = HOST_MALLOC,
		  .size = 9000,
		  .addr = 500,
		  .flags = HOST_SECOND },
		{ .kind = EVENT_HOST, .device = host, .how = 255, .size = 1, .flags = 255 },
		{ .kind = EVENT_HOST, .device = host, .how = HOST_TOTAL, .size = UINT64_MAX },
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		events__add(&l, &list[i]);
	check_round_trip(&w, &l, 0);
	check_round_trip(&w, &l, 1);
	check_round_trip(&w, &l, 3);
	l.n = 0;
	check_round_trip(&w, &l, 0);
	events__free(&l);
	world__free(&w);
}

static void test_random_events(void **state)
{
	struct world w = world__new();
	struct events l = { 0 };
	struct gen g = { .rng = 88172645463325252ull };

	for (int i = 0; i < 150000; i++)
		add_random(&w, &g, &l);
	check_round_trip(&w, &l, 0);
	check_round_trip(&w, &l, 997);
	events__free(&l);
	world__free(&w);
}

/* No recording that this writer makes is refused as a bomb: equal readings at one moment compress
 * most, by 860:1. */
static void test_most_regular(void **state)
{
	struct world w = world__new();
	struct events l = { 0 };

	for (int i = 0; i < 1000000; i++)
		events__add(&l,
			    &(struct event){ .kind = EVENT_STATE, .device = { DEVICE_CUDA, 0 } });
	check_round_trip(&w, &l, 0);
	events__free(&l);
	world__free(&w);
}

struct into {
	struct mtr_writer *w;
	struct events *l;
	uint64_t last;
};

static int emit(void *arg, const struct event *e)
{
	struct into *i = arg;

	if (i->l)
		events__add(i->l, e);
	if (e->time - i->last > 1000000000) { /* flush once per second, as a capture does */
		int err = mtr_writer__flush(i->w);

		if (err)
			return err;
		i->last = e->time;
	}
	return mtr_writer__event(i->w, e);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_training_loop(void **state)
{
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	struct gen *g = malloc(sizeof(*g));
	struct events want = { 0 }, got = { 0 };
	struct into into = { .l = &want };
	int fd = memory_file();
	struct mtr_reader *r;
	struct event e;
	uint64_t n = 0;
	double start, each;

	into.w = mtr_writer__new(fd, d, f, NULL);
	assert_non_null(into.w);
	gen__init(g, d, 1, emit, &into);
	for (int i = 0; i < 100; i++)
		gen__step(g);
	assert_int_equal(g->err, 0);
	assert_int_equal(mtr_writer__close(into.w), 0);
	r = read_all(fd, &got);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_int_equal(got.n, want.n);
	for (size_t i = 0; i < got.n; i++)
		assert_event(&got.e[i], &want.e[i]);
	assert_dicts(mtr_reader__dict(r), d);
	each = (double)mtr_reader__size(r) / (double)got.n;
	mtr_reader__free(r);

	start = seconds();
	r = open_fd(fd, NULL);
	while (mtr_reader__next(r, &e) == 1)
		n++;
	print_message("%zu events, %.2f bytes each, read at %.1f M/s\n", got.n, each,
		      (double)n / (seconds() - start) / 1e6);
	assert_true(each <= 6);
	mtr_reader__free(r);
	events__free(&want);
	events__free(&got);
	free(g);
	dict__free(d);
	facts__free(f);
	close(fd);
}

/* Fields that a kind does not have are not written and do not change predictions. */
static void test_other_fields(void **state)
{
	struct world w = world__new();
	struct events l = { 0 }, want = { 0 }, got = { 0 };
	int fd = memory_file();

	for (unsigned int i = 0; i < 4 * EVENT_KINDS; i++) {
		struct event e = { .kind = (uint8_t)(1 + i % (EVENT_KINDS - 1)),
				   .walk = 1,
				   .how = 2,
				   .flags = 3,
				   .totals = true,
				   .device = { DEVICE_CUDA, 1 },
				   .thread = w.thread,
				   .stack = w.stack,
				   .module = w.module,
				   .time = i,
				   .addr = i % 5,
				   .size = 6 + i % 3,
				   .allocated = 7,
				   .reserved = 8,
				   .requested = 9,
				   .cuda_stream = 10,
				   .pool = { 11, 12 },
				   .node = w.node,
				   .name = w.name,
				   .category = 4 };
		uint16_t has = kind_has[e.kind];

		events__add(&l, &e);
		if (has & HAS_NO_DEVICE)
			e.device = (struct device){ 0 };
		if (!(has & HAS_TOTALS))
			e.totals = false, e.allocated = e.reserved = 0;
		if (!(has & HAS_ADDR))
			e.addr = 0;
		if (!(has & HAS_SIZE))
			e.size = 0;
		if (!(has & HAS_STACK))
			e.stack = e.walk = 0;
		if (!(has & HAS_HOW))
			e.how = e.flags = 0;
		if (!(has & HAS_REQUESTED))
			e.requested = 0;
		if (!(has & HAS_STREAM))
			e.cuda_stream = 0;
		if (!(has & HAS_POOL))
			e.pool[0] = e.pool[1] = 0;
		if (!(has & HAS_MODULE))
			e.module = 0;
		if (!(has & HAS_NODE))
			e.node = 0;
		if (!(has & HAS_NAME))
			e.name = 0;
		if (!(has & HAS_CATEGORY))
			e.category = 0;
		events__add(&want, &e);
	}
	write_events(&w, fd, &l, 0);
	mtr_reader__free(read_all(fd, &got));
	assert_int_equal(got.n, want.n);
	for (size_t i = 0; i < got.n; i++)
		assert_event(&got.e[i], &want.e[i]);
	events__free(&l);
	events__free(&want);
	events__free(&got);
	close(fd);
	world__free(&w);
}

/* Bytes in the file per event of l. */
static double bytes_each(struct world *w, const struct events *l)
{
	int fd = memory_file();
	struct stat st;

	write_events(w, fd, l, 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return (double)st.st_size / (double)l->n;
}

/* The state of a large model at attach, from the allocator's tables, must be small in the file. */
static void test_state_is_small(void **state)
{
	struct world w = world__new();
	struct gen g = { .rng = 7 };
	struct events l = { 0 };
	struct event block = { .kind = EVENT_BLOCK,
			       .device = { DEVICE_CUDA, 0 },
			       .walk = MT_WALK_OFF };
	struct event segment = { .kind = EVENT_SEGMENT,
				 .device = { DEVICE_CUDA, 0 },
				 .addr = 0x7f0000000000 };
	double each;

	for (int i = 0; i < 1000; i++) {
		segment.size = i % 7 ? 20 << 20 : (2 + gen__random(&g) % 500 * 2) << 20;
		segment.flags = i % 5 ? 0 : SEGMENT_SMALL;
		events__add(&l, &segment);
		block.addr = segment.addr;
		for (int k = 0; k < 30; k++) {
			block.requested = gen__random(&g) % (k % 3 ? 64 : 65536) * 4 + 4;
			block.size = (block.requested + 511) & ~UINT64_C(511);
			events__add(&l, &block);
			block.addr += block.size;
			if (gen__random(&g) % 4 == 0) /* leave a gap for a free block */
				block.addr += (1 + gen__random(&g) % 100) * 512;
		}
		segment.addr += segment.size + (gen__random(&g) % 3 << 21);
	}
	each = bytes_each(&w, &l);
	print_message("%zu events of a state, %.2f bytes each\n", l.n, each);
	assert_true(each <= 5);
	events__free(&l);
	world__free(&w);
}

static int emit_asked(void *arg, const struct event *e)
{
	struct events *l = arg;
	struct event asked = { .kind = EVENT_REQUESTED,
			       .thread = e->thread,
			       .device = e->device,
			       .time = e->time + 700,
			       .addr = e->addr };

	events__add(l, e);
	if (e->kind != EVENT_ALLOC || e->device.type != DEVICE_CUDA)
		return 0;
	asked.time += (e->time ^ e->addr >> 9) % 256;
	asked.requested = e->size - (e->size / 512 * 2654435761u >> 7) % 4 * 100;
	events__add(l, &asked);
	return 0;
}

/* Allocations followed by their requested size, as in every CUDA job. */
static void test_asked_is_small(void **state)
{
	struct world w = world__new();
	struct gen *g = malloc(sizeof(*g));
	struct events l = { 0 }, without = { 0 };
	double with, alone;

	assert_non_null(g);
	gen__init(g, w.d, 1, emit_asked, &l);
	for (int i = 0; i < 50; i++)
		gen__step(g);
	for (size_t i = 0; i < l.n; i++) {
		if (l.e[i].kind != EVENT_REQUESTED)
			events__add(&without, &l.e[i]);
	}
	with = bytes_each(&w, &l) * (double)l.n;
	alone = bytes_each(&w, &without) * (double)without.n;
	with = (with - alone) / (double)(l.n - without.n);
	print_message("%zu asked, %.2f bytes each\n", l.n - without.n, with);
	assert_true(with <= 2.5);
	check_round_trip(&w, &l, 5000);
	events__free(&l);
	events__free(&without);
	free(g);
	world__free(&w);
}

struct nodes {
	struct events *l;
	uint32_t of[4 * GEN_STACKS]; /* node by stack, 0: none */
};

static int emit_with_node(void *arg, const struct event *e)
{
	struct nodes *n = arg;
	struct event with = *e;

	if (e->kind == EVENT_ALLOC)
		with.node = n->of[e->stack];
	events__add(n->l, &with);
	return 0;
}

/* Two nodes for three stacks: each allocates in backward, from the last layer to the first. */
static void test_node_is_small(void **state)
{
	struct world w = world__new();
	struct gen *g = malloc(sizeof(*g));
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	struct events l = { 0 }, without = { 0 };
	size_t with_node = 0;
	double with, alone;

	assert_non_null(g);
	assert_non_null(nodes);
	nodes->l = &l;
	gen__init(g, w.d, 1, emit_with_node, nodes);
	for (uint32_t i = GEN_STACKS / 3; i-- > 0;) {
		assert_true(g->stacks[GEN_STACKS / 3 + i] < 4 * GEN_STACKS);
		nodes->of[g->stacks[GEN_STACKS / 3 + i]] = dict__node(
			w.d, (struct dict_node){ w.name, g->stacks[i], 0, i % 2 });
	}
	for (int i = 0; i < 50; i++)
		gen__step(g);
	for (size_t i = 0; i < l.n; i++) {
		struct event e = l.e[i];

		with_node += e.node != 0;
		e.node = 0;
		events__add(&without, &e);
	}
	with = bytes_each(&w, &l) * (double)l.n;
	alone = bytes_each(&w, &without) * (double)without.n;
	print_message("%zu of %zu with a node, %.2f bytes each for that\n", with_node, l.n,
		      (with - alone) / (double)with_node);
	assert_true(with_node > l.n / 20);
	assert_true((with - alone) / (double)with_node <= 1.0);
	check_round_trip(&w, &l, 5000);
	events__free(&l);
	events__free(&without);
	free(nodes);
	free(g);
	world__free(&w);
}

/* The dictionary may exceed a block between two flushes. */
static void test_large_dictionary(void **state)
{
	struct world w = world__new();
	struct events l = { 0 };
	struct dict_frame frames[256];
	char text[DICT_MAX_STRING + 1];
	struct event e = { .kind = EVENT_ALLOC, .addr = 1, .size = 1 };

	for (uint32_t i = 0; i < 3000; i++) {
		memset(text, 'a' + (int)(i % 26), DICT_MAX_STRING);
		snprintf(text, 16, "%u", i);
		text[strlen(text)] = '!';
		assert_int_not_equal(dict__string(w.d, text, DICT_MAX_STRING - i % 7), UINT32_MAX);
		for (uint32_t k = 0; k < 256; k++)
			frames[k] = (struct dict_frame){ (i + k) % 2, w.module };
		frames[i % 256].loc = 2;
		frames[i / 256].module = 0;
		e.stack = dict__stack(w.d, frames, 256, 0);
	}
	events__add(&l, &e);
	check_round_trip(&w, &l, 0);
	events__free(&l);
	world__free(&w);
}

static void test_facts_follow(void **state)
{
	struct world w = world__new();
	struct event e = { .kind = EVENT_STEP };
	int fd = memory_file();
	struct mtr_writer *wr = mtr_writer__new(fd, w.d, w.f, NULL);
	struct mtr_reader *r;
	uint64_t before;

	assert_non_null(wr);
	assert_int_equal(mtr_writer__event(wr, &e), 0);
	facts__set(w.f, "duration_ns", "1");
	assert_int_equal(mtr_writer__flush(wr), 0);
	/* A flush without changes writes nothing. */
	before = mtr_writer__bytes(wr);
	assert_int_equal(mtr_writer__flush(wr), 0);
	assert_true(mtr_writer__bytes(wr) == before);
	facts__set(w.f, "duration_ns", "2");
	facts__set(w.f, "torch",
		   "\xff"
		   "2.11\n");
	assert_int_equal(mtr_writer__flush(wr), 0);
	/* If the writer ends here, all flushed data is readable. */
	r = read_all(fd, NULL);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_TRUNCATED);
	assert_string_equal(facts__get(mtr_reader__facts(r), "duration_ns"), "2");
	assert_string_equal(facts__get(mtr_reader__facts(r), "torch"), "\xef\xbf\xbd"
								       "2.11\n");
	assert_null(facts__get(mtr_reader__facts(r), "dropped_events"));
	mtr_reader__free(r);
	facts__set(w.f, "stop_reason", "signal");
	assert_int_equal(mtr_writer__close(wr), 0);
	r = read_all(fd, NULL);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_string_equal(facts__get(mtr_reader__facts(r), "stop_reason"), "signal");
	mtr_reader__free(r);
	close(fd);
	world__free(&w);
}

/* Dictionary and facts grow between blocks of events. */
static void test_growing_dictionary(void **state)
{
	struct world w = world__new();
	struct gen g = { .rng = 7 };
	struct events l = { 0 };
	int fd = memory_file();
	struct mtr_writer *wr = mtr_writer__new(fd, w.d, w.f, NULL);
	struct mtr_reader *r;
	const struct event *e;

	assert_non_null(wr);
	for (uint32_t i = 0; i < 60000; i++) {
		struct event mark = { .kind = EVENT_MARK, .time = i };

		if (i % 5000 == 0)
			mark.name = gen__str(w.d, "mark %u", i);
		if (i % 7000 == 0)
			facts__setf(w.f, "duration_ns", "%u", i);
		if (i % 11000 == 0)
			facts__setf(w.f, "models", "%0*u", 100000 - (int)i, i);
		add_random(&w, &g, &l);
		if (mark.name)
			events__add(&l, &mark);
		for (size_t k = l.n - 1 - !!mark.name; k < l.n; k++)
			assert_int_equal(mtr_writer__event(wr, &l.e[k]), 0);
		if (i % 1000 == 0)
			assert_int_equal(mtr_writer__flush(wr), 0);
	}
	assert_int_equal(mtr_writer__close(wr), 0);
	r = read_all(fd, NULL);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	mtr_reader__free(r);
	/* A reader that stops in the middle ends the thread. */
	for (int most = 1; most < 3000; most += 500) {
		r = open_fd(fd, NULL);
		mtr_reader__read_ahead(r, /*least=*/0);
		for (int got = 0; got < most;)
			got += mtr_reader__view(r, 24, &e);
		mtr_reader__free(r);
	}
	r = open_fd(fd, NULL);
	mtr_reader__read_ahead(r, /*least=*/0);
	mtr_reader__free(r);
	events__free(&l);
	world__free(&w);
	close(fd);
}

static void test_unfit_events(void **state)
{
	struct world w = world__new();
	struct dict_counts n = dict__counts(w.d);
	const struct event bad[] = {
		{ .kind = 0 },
		{ .kind = EVENT_KINDS },
		{ .kind = EVENT_CUDA_ALLOC, .how = MEM_HOW_NR },
		{ .kind = EVENT_ALLOC, .walk = MT_WALK_NR },
		{ .kind = EVENT_ALLOC, .stack = n.stacks },
		{ .kind = EVENT_ALLOC, .thread = n.threads },
		{ .kind = EVENT_CALL, .module = n.modules },
		{ .kind = EVENT_ALLOC, .node = n.nodes },
		{ .kind = EVENT_TENSOR, .name = n.strings },
		{ .kind = EVENT_TENSOR, .module = n.modules },
		{ .kind = EVENT_ENTER, .module = n.modules },
		{ .kind = EVENT_TENSOR, .category = CATEGORY_NR },
	};
	int fd = memory_file();
	struct mtr_writer *wr = mtr_writer__new(fd, w.d, w.f, NULL);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mtr_writer__event(wr, &bad[i]), -EINVAL);
	assert_int_equal(mtr_writer__close(wr), 0);
	close(fd);
	world__free(&w);
}

/* ---- bounds ---- */

static void run_bounded(struct mtr_writer_opts opts, const char *reason)
{
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	struct gen *g = malloc(sizeof(*g));
	struct into into = { 0 };
	struct events got = { 0 };
	int fd = memory_file();
	struct mtr_reader *r;
	uint64_t dropped;
	const char *full = NULL;

	facts__setf(f, "cmdline", "[\"%04000d\"]", 0);
	into.w = mtr_writer__new(fd, d, f, &opts);
	assert_non_null(into.w);
	assert_false(mtr_writer__full(into.w, &full));
	assert_null(full);
	gen__init(g, d, 3, emit, &into);
	for (int i = 0; i < 40; i++) {
		gen__step(g);
		facts__setf(f, "duration_ns", "%" PRIu64, g->time);
	}
	assert_int_equal(g->err, 0);
	assert_true(mtr_writer__full(into.w, &full));
	assert_string_equal(full, reason);
	dropped = mtr_writer__dropped(into.w);
	facts__setf(f, "last", "%01000d", 1);
	assert_int_equal(mtr_writer__close(into.w), 0);
	r = read_all(fd, &got);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_true(got.n + dropped == g->events);
	assert_true(got.n > 0);
	if (opts.max_size)
		assert_true(mtr_reader__size(r) <= opts.max_size);
	if (opts.max_events)
		assert_true(got.n <= opts.max_events);
	assert_true(strtoull(facts__get(mtr_reader__facts(r), "dropped_events"), NULL, 10) ==
		    dropped);
	assert_true(strtoull(facts__get(mtr_reader__facts(r), "duration_ns"), NULL, 10) == g->time);
	assert_int_equal(strlen(facts__get(mtr_reader__facts(r), "last")), 1000);
	mtr_reader__free(r);
	events__free(&got);
	free(g);
	dict__free(d);
	facts__free(f);
	close(fd);
}

static void test_bounds(void **state)
{
	struct world w = world__new();
	int fd = memory_file();

	run_bounded((struct mtr_writer_opts){ .max_events = 1 }, "max-events");
	run_bounded((struct mtr_writer_opts){ .max_events = 12345 }, "max-events");
	for (uint64_t max = 128 << 10; max < 400 << 10; max += 30011)
		run_bounded((struct mtr_writer_opts){ .max_size = max }, "max-size");
	/* The size limit is below the size of the facts. */
	errno = 0;
	assert_null(mtr_writer__new(fd, w.d, w.f, &(struct mtr_writer_opts){ .max_size = 1000 }));
	assert_int_equal(errno, EFBIG);
	close(fd);
	world__free(&w);
}

/* ---- errors ---- */

static void test_full_disk(void **state)
{
	struct world w = world__new();
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	errno = 0;
	assert_null(mtr_writer__new(fd, w.d, w.f, NULL));
	assert_int_equal(errno, ENOSPC);
	assert_null(mtr_writer__new(-1, w.d, w.f, NULL));
	assert_int_equal(errno, EBADF);
	close(fd);
	world__free(&w);
}

/* The disk fills within a block: nothing follows the torn block, and everything before it is
 * readable. */
static void test_disk_fills_up(void **state)
{
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	struct gen *g = malloc(sizeof(*g));
	struct events want = { 0 }, got = { 0 };
	struct into into = { .l = &want };
	struct rlimit old, limit;
	int fd = memory_file();
	struct mtr_reader *r;
	struct stat st;
	struct event e = { .kind = EVENT_STEP };

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 150001;
	into.w = mtr_writer__new(fd, d, f, NULL);
	gen__init(g, d, 5, emit, &into);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 40; i++)
		gen__step(g);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(g->err, -EFBIG);
	/* There is room again, but the file must have no holes. */
	assert_int_equal(mtr_writer__event(into.w, &e), -EFBIG);
	assert_int_equal(mtr_writer__flush(into.w), -EFBIG);
	assert_int_equal(mtr_writer__close(into.w), -EFBIG);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 150001);
	r = read_all(fd, &got);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_TRUNCATED);
	assert_true(got.n > 10000);
	for (size_t i = 0; i < got.n; i++)
		assert_event(&got.e[i], &want.e[i]);
	mtr_reader__free(r);
	events__free(&want);
	events__free(&got);
	free(g);
	dict__free(d);
	facts__free(f);
	close(fd);
}

static void write_to_pipe(int fd)
{
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	struct gen *g = malloc(sizeof(*g));
	struct into into = { 0 };

	/* Nonblocking descriptor: the writer waits and handles partial writes. */
	fcntl(fd, F_SETFL, O_NONBLOCK);
	into.w = mtr_writer__new(fd, d, f, NULL);
	gen__init(g, d, 9, emit, &into);
	for (int i = 0; i < 60; i++)
		gen__step(g);
	_exit(g->err || mtr_writer__close(into.w) ? 1 : 0);
}

static void test_pipe(void **state)
{
	int fds[2], saved = dup(STDIN_FILENO), status;
	struct mtr_reader *r;
	struct event e;
	uint64_t n = 0;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(fds[0]);
		write_to_pipe(fds[1]);
	}
	close(fds[1]);
	assert_true(dup2(fds[0], STDIN_FILENO) == STDIN_FILENO);
	close(fds[0]);
	r = mtr_reader__open("-", NULL);
	assert_non_null(r);
	assert_true(mtr_reader__size(r) == 0);
	while (mtr_reader__next(r, &e) == 1)
		n++;
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_true(n > 200000);
	mtr_reader__free(r);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	if (saved >= 0) {
		dup2(saved, STDIN_FILENO);
		close(saved);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind),
		cmocka_unit_test(test_random_events),
		cmocka_unit_test(test_most_regular),
		cmocka_unit_test(test_other_fields),
		cmocka_unit_test(test_state_is_small),
		cmocka_unit_test(test_training_loop),
		cmocka_unit_test(test_asked_is_small),
		cmocka_unit_test(test_node_is_small),
		cmocka_unit_test(test_large_dictionary),
		cmocka_unit_test(test_facts_follow),
		cmocka_unit_test(test_growing_dictionary),
		cmocka_unit_test(test_unfit_events),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_disk_fills_up),
		cmocka_unit_test(test_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
