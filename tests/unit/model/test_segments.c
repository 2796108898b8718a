/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Segments: sequences with known results, and random ones compared with a map of pages. */
#include "unit/model_world.h"

#define KB UINT64_C(1024)
#define MB (KB * KB)

static void below(struct world *w, uint8_t kind, uint8_t how, struct device d, uint64_t addr,
		  uint64_t size, uint32_t stack, uint8_t flags)
{
	feed(w, (struct event){ .kind = kind,
				.how = how,
				.device = d,
				.addr = addr,
				.size = size,
				.stack = stack,
				.flags = flags });
}

static void take(struct world *w, struct device d, uint64_t addr, uint64_t size, uint32_t stack)
{
	w->reserved += size;
	below(w, EVENT_CUDA_ALLOC, MEM_DEVICE, d, addr, size, stack, MEM_BY_ALLOCATOR);
}

static struct model_segments segments(struct world *w, const char *name, enum row_when when)
{
	struct model_segments s;

	assert_int_equal(model__segments(w->m, model__find_device(w->m, name), when, false, &s), 0);
	return s;
}

static const struct segment *at(const struct model_segments *s, uint64_t addr)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->all[i].addr == addr)
			return &s->all[i];
	fail_msg("no segment at %#lx", (unsigned long)addr);
	return NULL;
}

static void test_gaps_and_pins(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1), b = simple(&w, "/u/b.py", "g", 2),
		 c = simple(&w, "/u/c.py", "take", 3);
	const struct segment *s;
	struct model_segments all;

	take(&w, CUDA(0), 100 * MB, 20 * MB, c);
	alloc(&w, CUDA(0), 100 * MB, 4 * MB, a);
	alloc(&w, CUDA(0), 106 * MB, 1 * MB, b);
	alloc(&w, CUDA(0), 107 * MB, 1 * MB, b);
	take(&w, CUDA(0), 200 * MB, 2 * MB, c);
	alloc(&w, CUDA(0), 200 * MB, 512, a);
	dealloc(&w, CUDA(0), 200 * MB, 512);
	take(&w, CUDA(0), 300 * MB, 30 * MB, c);
	alloc(&w, CUDA(0), 300 * MB, 30 * MB, a); /* the peak: the second segment is empty */
	dealloc(&w, CUDA(0), 106 * MB, 1 * MB);
	w.reserved -= 2 * MB;
	below(&w, EVENT_CUDA_FREE, MEM_DEVICE, CUDA(0), 200 * MB, 0, 0, MEM_BY_ALLOCATOR);
	/* known before the allocator reports it */
	assert_int_equal(device(&w, "cuda").reserved, 50 * MB);
	model__finish(w.m, w.time);

	all = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(all.n, 3);
	assert_int_equal(all.known, 52 * MB);
	assert_int_equal(all.reserved, 52 * MB);
	assert_int_equal(all.inside, 36 * MB);
	assert_int_equal(all.outside, 0);
	assert_int_equal(all.empty, 2 * MB);
	assert_int_equal(all.empties, 1);
	assert_int_equal(all.stuck, 14 * MB);
	assert_int_equal(all.largest_gap, 12 * MB);
	s = &all.all[0]; /* the segment that wastes most comes first */
	assert_int_equal(s->addr, 100 * MB);
	assert_int_equal(s->allocated, 6 * MB);
	assert_int_equal(s->blocks, 3);
	assert_int_equal(s->median, 1 * MB);
	assert_int_equal(s->free, 14 * MB);
	assert_int_equal(s->gaps, 2);
	assert_int_equal(s->largest_gap, 12 * MB);
	assert_int_equal(s->stuck, 14 * MB);
	assert_int_equal(s->kind, SEGMENT_OF_LARGE);
	assert_true(s->seen);
	assert_int_equal(s->taken.line, 3);
	assert_int_equal(s->time, 1 * MS);
	assert_false(s->stream_known);
	assert_int_equal(s->npins, 2);
	assert_int_equal(s->pins[0].line, 1);
	assert_int_equal(s->pins[0].bytes, 4 * MB);
	assert_int_equal(s->pins[1].line, 2);
	assert_int_equal(s->pins[1].count, 2);
	s = at(&all, 200 * MB);
	assert_int_equal(s->kind, SEGMENT_OF_SMALL);
	assert_int_equal(s->stuck, 0);
	assert_int_equal(s->npins, 0);
	assert_int_equal(s->largest_gap, 2 * MB);
	model__free_segments(&all);

	all = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(all.n, 2);
	assert_int_equal(all.known, all.reserved);
	assert_int_equal(all.all[0].gaps, 2);
	assert_int_equal(all.all[0].free, 15 * MB);
	model__free_segments(&all);
	world__free(&w);
}

static void test_no_segments(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	w.reserved = 20 * MB;
	w.allocated[0] = 3 * MB;
	alloc(&w, CUDA(0), 1 * MB, 1 * MB, a);
	alloc(&w, CPU, 1 * MB, 1 * MB, a);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.n, 0);
	assert_int_equal(s.known, 0);
	assert_int_equal(s.reserved, 20 * MB);
	assert_int_equal(s.outside, 1 * MB);
	assert_int_equal(s.outside_blocks, 1);
	assert_int_equal(s.allocated, 4 * MB);
	model__free_segments(&s);
	assert_int_equal(model__segments(w.m, model__find_device(w.m, "cpu"), ROWS_NOW, false, &s),
			 -EINVAL);
	assert_int_equal(model__segments(w.m, 99, ROWS_NOW, false, &s), -ENOENT);
	world__free(&w);
}

/* Adjacent mappings are one segment, except across two reserved ranges. */
static void test_expandable(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	below(&w, EVENT_CUDA_ALLOC, MEM_RESERVED, CUDA(0), 1000 * MB, 100 * MB, 0,
	      MEM_BY_ALLOCATOR);
	below(&w, EVENT_CUDA_ALLOC, MEM_RESERVED, CUDA(0), 1100 * MB, 100 * MB, 0,
	      MEM_BY_ALLOCATOR);
	for (uint64_t i = 0; i < 5; i++) { /* 1080 .. 1180 */
		below(&w, EVENT_CUDA_ALLOC, MEM_PHYSICAL, CUDA(0), 7 + i, 20 * MB, a,
		      MEM_BY_ALLOCATOR);
		below(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, CUDA(0), (1080 + 20 * i) * MB, 20 * MB, a,
		      MEM_BY_ALLOCATOR);
		w.reserved += 20 * MB;
	}
	alloc(&w, CUDA(0), 1110 * MB, 25 * MB, a); /* crosses a mapping's end */
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.known, 100 * MB);
	assert_int_equal(s.known, s.reserved);
	assert_int_equal(s.others_bytes, 0);
	assert_true(s.all[0].expandable);
	assert_int_equal(at(&s, 1100 * MB)->size, 80 * MB);
	assert_int_equal(at(&s, 1100 * MB)->largest_gap, 45 * MB);
	/* whole mappings of the 10 and 45 MiB next to the block */
	assert_int_equal(at(&s, 1100 * MB)->releasable, 40 * MB);
	assert_int_equal(at(&s, 1100 * MB)->stuck, 15 * MB);
	assert_int_equal(at(&s, 1080 * MB)->releasable, 20 * MB);
	assert_int_equal(at(&s, 1080 * MB)->size, 20 * MB);
	model__free_segments(&s);
	/* unmaps a hole */
	below(&w, EVENT_CUDA_FREE, MEM_MAPPED, CUDA(0), 1140 * MB, 20 * MB, 0, MEM_BY_ALLOCATOR);
	w.reserved -= 20 * MB;
	assert_int_equal(device(&w, "cuda").reserved, 80 * MB);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 3);
	assert_int_equal(at(&s, 1100 * MB)->size, 40 * MB);
	assert_int_equal(at(&s, 1160 * MB)->size, 20 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* The allocator's tables at attach; unmapping removes parts of recorded segments. */
static void test_tables(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct event e = { .device = CUDA(0) };
	struct model_segments s;
	struct model_device d;
	struct row *r;
	size_t n;

	e.kind = EVENT_SEGMENT, e.addr = 100 * MB, e.size = 60 * MB, e.cuda_stream = 0x77,
	e.pool[1] = 3, e.flags = SEGMENT_EXPANDABLE;
	feed(&w, e);
	e.addr = 200 * MB, e.size = 2 * MB, e.cuda_stream = 0, e.pool[1] = 0,
	e.flags = SEGMENT_SMALL;
	feed(&w, e);
	e = (struct event){ .kind = EVENT_BLOCK,
			    .device = CUDA(0),
			    .addr = 100 * MB,
			    .size = 8 * MB,
			    .requested = 8 * MB - 5 };
	feed(&w, e);
	e.addr = 110 * MB, e.size = 2 * MB, e.requested = 2 * MB;
	feed(&w, e);
	/* as in a flight recorder's window */
	e.addr = 112 * MB, e.size = 1 * MB, e.requested = 1 * MB, e.stack = a;
	feed(&w, e);
	e = (struct event){ .kind = EVENT_BLOCK,
			    .device = CUDA(0),
			    .addr = 200 * MB,
			    .size = 512,
			    .flags = BLOCK_PENDING };
	feed(&w, e);
	feed(&w, (struct event){ .kind = EVENT_STATE,
				 .device = CUDA(0),
				 .totals = true,
				 .allocated = 11 * MB,
				 .reserved = 62 * MB,
				 .flags = STATE_EXACT });
	w.allocated[0] = 11 * MB;
	w.reserved = 62 * MB;
	d = device(&w, "cuda");
	assert_int_equal(d.state, STATE_FULL);
	assert_int_equal(d.allocated, 11 * MB);
	assert_int_equal(d.before_attach_start, 10 * MB);
	assert_int_equal(d.peak_allocated, 11 * MB);
	assert_int_equal(d.total_allocated, 0);
	r = rows(&w, "cuda", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 2);
	assert_true(r[0].before_attach);
	assert_int_equal(r[0].count, 2);
	assert_int_equal(r[0].median, 8 * MB);
	assert_int_equal(r[0].anonymous, 0);
	assert_int_equal(r[0].requested, 10 * MB - 5);
	assert_string_equal(r[0].source, "census");
	assert_int_equal(r[1].bytes, 1 * MB);
	assert_int_equal(r[1].requested, 1 * MB);
	assert_int_equal(r[1].line, 1);
	free(r);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.known, s.reserved);
	assert_int_equal(s.inside, s.allocated);
	assert_int_equal(s.requested, 11 * MB - 5);
	assert_int_equal(s.pending, 512);
	assert_true(s.pending_known);
	assert_int_equal(s.empties, 0);
	/* one of three mappings has blocks */
	assert_int_equal(at(&s, 100 * MB)->releasable, 40 * MB);
	assert_int_equal(at(&s, 100 * MB)->cuda_stream, 0x77);
	assert_true(at(&s, 100 * MB)->pool_known);
	assert_int_equal(at(&s, 100 * MB)->pool[1], 3);
	assert_false(at(&s, 100 * MB)->seen);
	assert_true(at(&s, 100 * MB)->taken.before_attach);
	assert_true(at(&s, 100 * MB)->pins[0].before_attach);
	assert_int_equal(at(&s, 200 * MB)->kind, SEGMENT_OF_SMALL);
	assert_int_equal(at(&s, 200 * MB)->free, 2 * MB - 512);
	assert_int_equal(at(&s, 200 * MB)->stuck, 2 * MB - 512);
	model__free_segments(&s);

	dealloc(&w, CUDA(0), 110 * MB, 2 * MB); /* frees a block that the tables listed */
	below(&w, EVENT_CUDA_FREE, MEM_MAPPED, CUDA(0), 140 * MB, 20 * MB, 0, MEM_BY_ALLOCATOR);
	w.reserved -= 20 * MB;
	alloc(&w, CUDA(0), 200 * MB, 512, a); /* replaces the pending block */
	d = device(&w, "cuda");
	assert_int_equal(d.frees_unknown, 0);
	assert_int_equal(d.drift, 0);
	assert_int_equal(d.before_attach, 8 * MB);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.known, 42 * MB);
	assert_int_equal(s.known, s.reserved);
	assert_int_equal(s.pending, 0);
	/* freed above: whether a stream uses it is unknown */
	assert_false(s.pending_known);
	assert_int_equal(at(&s, 100 * MB)->size, 40 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* Values missing in the tables stay unknown. */
static void test_incomplete_tables(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	struct event e = {
		.kind = EVENT_BLOCK, .device = CUDA(0), .addr = 100 * MB, .size = 3 * MB
	};
	struct row *r;
	size_t n;

	feed(&w, e);
	feed(&w, (struct event){ .kind = EVENT_STATE,
				 .device = CUDA(0),
				 .totals = true,
				 .allocated = 10 * MB,
				 .reserved = 62 * MB });
	assert_int_equal(device(&w, "cuda").state, STATE_PARTLY);
	r = rows(&w, "cuda", BY_MODULE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].bytes, 10 * MB);
	assert_int_equal(r[0].anonymous, 7 * MB);
	assert_int_equal(r[0].count, 1);
	free(r);
	w.allocated[0] = 10 * MB;
	dealloc(&w, CUDA(0), 500 * MB, 1 * MB);
	dealloc(&w, CUDA(0), 100 * MB, 3 * MB);
	assert_int_equal(device(&w, "cuda").before_attach, 6 * MB);
	assert_int_equal(device(&w, "cuda").frees_unknown, 1);
	assert_int_equal(device(&w, "cuda").drift, 0);
	r = rows(&w, "cuda", BY_MODULE, ROWS_NOW, &n);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].bytes, 6 * MB);
	assert_int_equal(r[0].count, 0);
	free(r);
	world__free(&w);
}

static void test_others(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1), b = simple(&w, "/u/b.py", "g", 2);
	struct model_segments s;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 100 * MB, 1 * MB, a);
	below(&w, EVENT_CUDA_ALLOC, MEM_DEVICE, CUDA(0), 500 * MB, 6 * MB, b, 0);
	below(&w, EVENT_CUDA_ALLOC, MEM_DEVICE, CUDA(0), 510 * MB, 6 * MB, b, 0);
	below(&w, EVENT_CUDA_ALLOC, MEM_ASYNC, CUDA(0), 600 * MB, 5 * MB, a, 0);
	below(&w, EVENT_CUDA_ALLOC, MEM_MANAGED, CUDA(0), 700 * MB, 4 * MB, a, 0);
	below(&w, EVENT_CUDA_ALLOC, MEM_HOST,
	      (struct device){ .type = DEVICE_CUDA, .index = DEVICE_UNKNOWN }, 800 * MB, 9 * MB, a,
	      0);
	below(&w, EVENT_CUDA_ALLOC, MEM_REGISTERED,
	      (struct device){ .type = DEVICE_CUDA, .index = DEVICE_UNKNOWN }, 900 * MB, 3 * MB, a,
	      0);
	feed(&w, (struct event){ .kind = EVENT_USED, .device = CUDA(0), .size = 100 * MB });
	below(&w, EVENT_CUDA_FREE, MEM_ASYNC, CUDA(0), 600 * MB, 0, 0, 0);
	below(&w, EVENT_CUDA_FREE, MEM_REGISTERED, CUDA(0), 900 * MB, 0, 0, 0);
	below(&w, EVENT_CUDA_FREE, MEM_DEVICE, CUDA(0), 1, 0, 0, 0); /* allocated before attach */
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.nothers, 2);
	assert_int_equal(s.others[0].how, MEM_DEVICE);
	assert_int_equal(s.others[0].row.bytes, 12 * MB);
	assert_int_equal(s.others[0].row.count, 2);
	assert_int_equal(s.others[0].row.line, 2);
	assert_int_equal(s.others_bytes, 12 * MB);
	assert_int_equal(s.managed, 4 * MB);
	assert_int_equal(s.host, 9 * MB);
	assert_int_equal(s.registered, 0);
	assert_true(s.used_known);
	assert_int_equal(s.used, 100 * MB);
	assert_int_equal(s.used_below, 20 * MB);
	assert_int_equal(s.used_others, 17 * MB);
	model__free_segments(&s);
	/* Other memory that the allocator places a block in is a segment. Once mapped, its handle
	 * no longer counts. */
	alloc(&w, CUDA(0), 505 * MB, 512 * KB, a);
	below(&w, EVENT_CUDA_ALLOC, MEM_PHYSICAL, CUDA(0), 77, 8 * MB, b, 0);
	below(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, CUDA(0), 2000 * MB, 8 * MB, b, 0);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.others_bytes, 14 * MB);
	model__free_segments(&s);
	alloc(&w, CUDA(0), 2001 * MB, 512 * KB, a);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 3);
	assert_true(at(&s, 500 * MB)->foreign);
	assert_int_equal(at(&s, 500 * MB)->kind, SEGMENT_ANY);
	assert_true(at(&s, 2000 * MB)->foreign);
	assert_int_equal(s.others_bytes, 6 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* Memory of an unknown device: the first block in it determines the device, from its
 * allocation on. */
static void test_unknown_device(void **state)
{
	struct device unknown = { .type = DEVICE_CUDA, .index = DEVICE_UNKNOWN };
	struct world w = world__new(AT_TIME, 4 * MS);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	w.reserved = 20 * MB;
	alloc(&w, CUDA(1), 100 * MB, 1 * MB, a); /* 1 */
	/* 2 */
	below(&w, EVENT_CUDA_ALLOC, MEM_DEVICE, unknown, 300 * MB, 10 * MB, a, MEM_BY_ALLOCATOR);
	/* 3 */
	below(&w, EVENT_CUDA_ALLOC, MEM_DEVICE, unknown, 400 * MB, 10 * MB, a, MEM_BY_ALLOCATOR);
	/* 4, the mark */
	alloc(&w, CUDA(1), 101 * MB, 1 * MB, a);
	/* 5 */
	below(&w, EVENT_CUDA_ALLOC, MEM_DEVICE, unknown, 500 * MB, 10 * MB, a, MEM_BY_ALLOCATOR);
	alloc(&w, CUDA(1), 301 * MB, 1 * MB, a);
	alloc(&w, CUDA(1), 501 * MB, 1 * MB, a);
	model__finish(w.m, w.time);
	s = segments(&w, "cuda:1", ROWS_AT_MARK);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.all[0].addr, 300 * MB);
	assert_int_equal(s.all[0].allocated, 0);
	model__free_segments(&s);
	s = segments(&w, "cuda:1", ROWS_NOW);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.unknown_device, 10 * MB);
	assert_int_equal(at(&s, 500 * MB)->allocated, 1 * MB);
	model__free_segments(&s);
	assert_int_equal(model__find_device(w.m, "cuda:?"), -1);
	world__free(&w);
}

static void test_asked(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;
	struct row *r;
	size_t n;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 100 * MB, 1024, a);
	feed(&w, (struct event){ .kind = EVENT_REQUESTED,
				 .device = CUDA(0),
				 .addr = 100 * MB,
				 .requested = 1000,
				 .cuda_stream = 0x90 });
	alloc(&w, CUDA(0), 101 * MB, 512, a); /* the peak; the requested size arrives later */
	feed(&w, (struct event){ .kind = EVENT_REQUESTED,
				 .device = CUDA(0),
				 .addr = 101 * MB,
				 .requested = 4,
				 .cuda_stream = 0x90 });
	dealloc(&w, CUDA(0), 100 * MB, 1024);
	r = rows(&w, "cuda", BY_LINE, ROWS_AT_MARK, &n);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].requested, 1004);
	free(r);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.requested, 1004);
	assert_true(s.all[0].stream_known);
	assert_int_equal(s.all[0].cuda_stream, 0x90);
	model__free_segments(&s);
	dealloc(&w, CUDA(0), 101 * MB, 512);
	alloc(&w, CUDA(0), 101 * MB, 512, a);
	feed(&w, (struct event){ .kind = EVENT_REQUESTED,
				 .device = CUDA(0),
				 .addr = 101 * MB,
				 .requested = 4,
				 .cuda_stream = 3 });
	s = segments(&w, "cuda", ROWS_NOW);
	assert_false(s.all[0].stream_known); /* PyTorch's number, not a handle */
	model__free_segments(&s);
	alloc(&w, CUDA(0), 102 * MB, 512, a); /* a block that the tables do not list */
	r = rows(&w, "cuda", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(r[0].requested, 0);
	free(r);
	world__free(&w);
}

/* The driver's figure arrives slightly after its event. */
static void test_used_of_the_peak(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct event used = { .kind = EVENT_USED, .device = CUDA(0) };
	struct model_segments s;
	uint64_t time;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	used.size = 520 * MB;
	feed(&w, used);
	alloc(&w, CUDA(0), 100 * MB, 1 * MB, a);
	take(&w, CUDA(0), 200 * MB, 20 * MB, a);
	/* the peak: at the mark the last figure is old */
	alloc(&w, CUDA(0), 200 * MB, 10 * MB, a);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.used, 520 * MB);
	model__free_segments(&s);
	/* as much memory as at the mark; 1 MB more than before is from an unseen allocation */
	used.size = 541 * MB;
	feed(&w, used);
	time = w.time;
	used.size = 542 * MB;
	feed(&w, used); /* another figure is nearer now */
	dealloc(&w, CUDA(0), 200 * MB, 10 * MB);
	w.reserved -= 20 * MB;
	below(&w, EVENT_CUDA_FREE, MEM_DEVICE, CUDA(0), 200 * MB, 0, 0, MEM_BY_ALLOCATOR);
	used.size = 521 * MB;
	feed(&w, used);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.used, 541 * MB);
	assert_int_equal(s.used_below + s.used_others, 40 * MB);
	assert_int_equal(s.reserved, 40 * MB);
	assert_int_equal(s.used_time, time);
	model__free_segments(&s);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.used, 521 * MB);
	assert_int_equal(s.used_below + s.used_others, 20 * MB);
	model__free_segments(&s);
	/* Another peak between two figures. */
	take(&w, CUDA(0), 300 * MB, 50 * MB, a);
	alloc(&w, CUDA(0), 300 * MB, 50 * MB, a);
	dealloc(&w, CUDA(0), 300 * MB, 50 * MB);
	w.reserved -= 50 * MB;
	below(&w, EVENT_CUDA_FREE, MEM_DEVICE, CUDA(0), 300 * MB, 0, 0, MEM_BY_ALLOCATOR);
	feed(&w, used);
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.used, 521 * MB);
	assert_int_equal(s.used_below + s.used_others, 20 * MB); /* at the figure's own time */
	model__free_segments(&s);
	world__free(&w);
}

static void test_ooms(void **state)
{
	struct world w = world__new(AT_OOM, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_oom o;
	size_t n = 0;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 105 * MB, 1 * MB, a);
	feed(&w, (struct event){ .kind = EVENT_USED, .device = CUDA(0), .size = 33 * MB });
	for (uint64_t i = 0; i < 1000; i++)
		oom(&w, CUDA(0), 50 * MB + i);
	assert_int_equal(device(&w, "cuda").ooms, 1000);
	for (; model__oom(w.m, 0, n, &o); n++) {
		assert_int_equal(o.number, n < 8 ? n : 984 + n);
		assert_int_equal(o.size, 50 * MB + o.number);
		assert_int_equal(o.allocated, 1 * MB);
		assert_int_equal(o.reserved, 20 * MB);
		assert_true(o.gap_known);
		assert_int_equal(o.largest_gap, 14 * MB);
		assert_int_equal(o.used, 33 * MB);
		assert_false(o.left_known);
	}
	assert_int_equal(n, 16);
	assert_false(model__oom(w.m, 5, 0, &o));
	world__free(&w);
}

/* Other processes hold memory, too: the remaining memory is the driver's figure, updated by this
 * process's allocations. */
static void test_memory_left_at_oom(void **state)
{
	struct world w = world__new(AT_OOM, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_oom o;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 105 * MB, 1 * MB, a);
	feed(&w, (struct event){ .kind = EVENT_LEFT, .device = CUDA(0), .size = 40 * MB });
	oom(&w, CUDA(0), 50 * MB);
	assert_true(model__oom(w.m, 0, 0, &o));
	assert_true(o.left_known && !o.used_known);
	assert_int_equal(o.left, 40 * MB);
	feed(&w, (struct event){ .kind = EVENT_CUDA_ALLOC,
				 .how = MEM_DEVICE,
				 .device = CUDA(0),
				 .addr = 200 * MB,
				 .size = 15 * MB,
				 .stack = a });
	oom(&w, CUDA(0), 50 * MB);
	assert_true(model__oom(w.m, 0, 1, &o));
	assert_int_equal(o.left, 25 * MB);
	feed(&w, (struct event){ .kind = EVENT_CUDA_FREE, .how = MEM_DEVICE, .addr = 200 * MB });
	oom(&w, CUDA(0), 50 * MB);
	assert_true(model__oom(w.m, 0, 2, &o));
	assert_int_equal(o.left, 40 * MB);
	feed(&w, (struct event){ .kind = EVENT_LEFT, .device = CUDA(0), .size = 1 * MB });
	feed(&w, (struct event){ .kind = EVENT_CUDA_ALLOC,
				 .how = MEM_DEVICE,
				 .device = CUDA(0),
				 .addr = 200 * MB,
				 .size = 15 * MB,
				 .stack = a });
	oom(&w, CUDA(0), 50 * MB);
	assert_true(model__oom(w.m, 0, 3, &o));
	assert_int_equal(o.left, 0); /* another process freed memory: the figure is old */
	world__free(&w);
}

static void test_all_devices(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_all all;

	alloc(&w, CUDA(0), 1, 100, a);
	alloc(&w, CUDA(1), 1, 50, a);
	alloc(&w, CPU, 1, 5000, a);
	dealloc(&w, CUDA(0), 1, 100);
	/* peaks at different times: 100 and 110; together 150 */
	alloc(&w, CUDA(1), 2, 60, a);
	model__all(w.m, &all);
	assert_int_equal(all.devices, 2);
	assert_int_equal(all.allocated, 110);
	assert_int_equal(all.peak_allocated, 150);
	assert_int_equal(all.peak_allocated_time, 2 * MS);
	world__free(&w);
}

/* A call of other code for a MemPool at 1 GB. */
static void foreign(struct world *w, uint8_t kind, uint8_t how, uint32_t stack)
{
	below(w, kind, how, CUDA(0), how == MEM_PHYSICAL ? 77 : 1000 * MB, 64 * MB, stack, 0);
}

/* vLLM's sleep mode: other code unmaps the memory of a MemPool below live blocks. */
static void test_sleep(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	foreign(&w, EVENT_CUDA_ALLOC, MEM_RESERVED, a);
	foreign(&w, EVENT_CUDA_ALLOC, MEM_PHYSICAL, a);
	foreign(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, a);
	w.reserved += 64 * MB;
	alloc(&w, CUDA(0), 1000 * MB, 60 * MB, a);
	alloc(&w, CUDA(0), 100 * MB, 20 * MB, a);
	feed(&w, (struct event){ .kind = EVENT_SEGMENT,
				 .device = CUDA(0),
				 .addr = 1000 * MB,
				 .size = 64 * MB,
				 .pool = { 0, 1 } });
	s = segments(&w, "cuda", ROWS_NOW);
	assert_true(at(&s, 1000 * MB)->foreign);
	assert_int_equal(s.others_bytes, 0); /* counted as the segment only */
	assert_int_equal(s.unmapped, 0);
	model__free_segments(&s);

	foreign(&w, EVENT_CUDA_FREE, MEM_MAPPED, 0);
	foreign(&w, EVENT_CUDA_FREE, MEM_PHYSICAL, 0);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.reserved, 84 * MB); /* PyTorch goes on to count it */
	assert_int_equal(s.unmapped, 64 * MB);
	assert_int_equal(s.unmapped_inside, 60 * MB);
	assert_int_equal(s.unmapped_blocks, 1);
	assert_int_equal(s.outside, 0);
	model__free_segments(&s);

	foreign(&w, EVENT_CUDA_ALLOC, MEM_PHYSICAL, a);
	foreign(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, a);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.unmapped, 0);
	assert_int_equal(s.reserved, 84 * MB);
	assert_int_equal(s.known, 84 * MB);
	assert_int_equal(s.others_bytes, 0);
	assert_true(at(&s, 1000 * MB)->pool_known);
	assert_int_equal(at(&s, 1000 * MB)->pool[1], 1);
	model__free_segments(&s);

	/* Without blocks it is memory that was returned, also when the addresses are. */
	foreign(&w, EVENT_CUDA_FREE, MEM_MAPPED, 0);
	dealloc(&w, CUDA(0), 1000 * MB, 60 * MB);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.unmapped, 0);
	model__free_segments(&s);
	foreign(&w, EVENT_CUDA_FREE, MEM_RESERVED, 0);
	alloc(&w, CUDA(0), 1000 * MB, 60 * MB, a);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.unmapped, 0);
	assert_int_equal(s.outside, 60 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* The first reading of the tables that lists a MemPool's segment comes after other code unmapped
 * the segment: it stays unmapped, and the wake-up finds its pool. */
static void test_listed_asleep(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	foreign(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, a);
	w.reserved += 64 * MB;
	alloc(&w, CUDA(0), 1000 * MB, 60 * MB, a);
	foreign(&w, EVENT_CUDA_FREE, MEM_MAPPED, 0);
	feed(&w, (struct event){ .kind = EVENT_SEGMENT,
				 .device = CUDA(0),
				 .addr = 1000 * MB,
				 .size = 64 * MB,
				 .pool = { 0, 1 } });
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 0);
	assert_int_equal(s.unmapped, 64 * MB);
	assert_int_equal(s.unmapped_inside, 60 * MB);
	model__free_segments(&s);

	foreign(&w, EVENT_CUDA_ALLOC, MEM_MAPPED, a);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.unmapped, 0);
	assert_int_equal(s.reserved, 64 * MB);
	assert_int_equal(s.known, 64 * MB);
	assert_int_equal(at(&s, 1000 * MB)->pool[1], 1);
	model__free_segments(&s);
	world__free(&w);
}

/* The allocator's tables are read after the peak: a segment's pool was the same before. */
static void test_pool_at_mark(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 100 * MB, 4 * MB, a); /* the peak */
	dealloc(&w, CUDA(0), 100 * MB, 4 * MB);
	take(&w, CUDA(0), 200 * MB, 20 * MB, a);
	for (uint64_t i = 1; i <= 2; i++)
		feed(&w, (struct event){ .kind = EVENT_SEGMENT,
					 .device = CUDA(0),
					 .addr = i * 100 * MB,
					 .size = 20 * MB,
					 .pool = { 0, i } });
	s = segments(&w, "cuda", ROWS_AT_MARK);
	assert_int_equal(s.n, 1);
	assert_true(at(&s, 100 * MB)->pool_known);
	assert_int_equal(at(&s, 100 * MB)->pool[1], 1);
	assert_int_equal(s.known, 20 * MB);
	model__free_segments(&s);
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(at(&s, 200 * MB)->pool[1], 2);
	assert_int_equal(s.known, 40 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* Free memory in private pools is only for their owners: it can be neither returned nor used by
 * others. */
static void test_private_pools(void **state)
{
	static const struct {
		uint64_t addr, size, graph, pool;
	} listed[] = {
		{ 100 * MB, 20 * MB, 0, 0 }, { 200 * MB, 2 * MB, 0, 0 },
		{ 300 * MB, 20 * MB, 7, 0 }, { 400 * MB, 2 * MB, 7, 0 },
		{ 500 * MB, 30 * MB, 0, 2 },
	};
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;
	struct row *r;
	size_t n;

	for (size_t i = 0; i < N(listed); i++)
		take(&w, CUDA(0), listed[i].addr, listed[i].size, a);
	w.reserved = 74 * MB;
	alloc(&w, CUDA(0), 105 * MB, 4 * MB, a);
	alloc(&w, CUDA(0), 300 * MB, 5 * MB, a);
	for (size_t i = 0; i < N(listed); i++)
		feed(&w, (struct event){ .kind = EVENT_SEGMENT,
					 .device = CUDA(0),
					 .addr = listed[i].addr,
					 .size = listed[i].size,
					 .pool = { listed[i].graph, listed[i].pool } });
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.known, 74 * MB);
	assert_int_equal(s.private[PRIVATE_GRAPH].free, 17 * MB);
	assert_int_equal(s.private[PRIVATE_GRAPH].empty, 2 * MB);
	assert_int_equal(s.private[PRIVATE_GRAPH].empties, 1);
	assert_int_equal(s.private[PRIVATE_MEMPOOL].free, 30 * MB);
	assert_int_equal(s.private[PRIVATE_MEMPOOL].empty, 30 * MB);
	assert_int_equal(s.private[PRIVATE_MEMPOOL].empties, 1);
	assert_int_equal(s.releasable, 2 * MB);
	assert_int_equal(s.stuck, 16 * MB);
	assert_int_equal(s.empty, 2 * MB);
	assert_int_equal(s.empties, 1);
	assert_int_equal(s.largest_gap, 11 * MB);
	model__free_segments(&s);
	r = rows(&w, "cuda", BY_CATEGORY, ROWS_NOW, &n);
	assert_int_equal(n, 2);
	assert_string_equal(r[0].category, "private_pool");
	assert_int_equal(r[0].bytes, 5 * MB);
	assert_string_equal(r[1].category, "unknown");
	free(r);
	world__free(&w);
}

static void test_second_reading(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_segments s;

	take(&w, CUDA(0), 100 * MB, 20 * MB, a);
	take(&w, CUDA(0), 200 * MB, 20 * MB, a);
	alloc(&w, CUDA(0), 100 * MB, 1 * MB, a);
	feed(&w, (struct event){ .kind = EVENT_SEGMENT,
				 .device = CUDA(0),
				 .addr = 100 * MB,
				 .size = 20 * MB,
				 .cuda_stream = 4 });
	take(&w, CUDA(0), 300 * MB, 20 * MB, a);
	feed(&w, (struct event){
			 .kind = EVENT_STATE, .device = CUDA(0), .flags = STATE_SEGMENTS_EXACT });
	s = segments(&w, "cuda", ROWS_NOW);
	assert_int_equal(s.n, 2);
	assert_int_equal(at(&s, 100 * MB)->cuda_stream, 4);
	assert_true(at(&s, 100 * MB)->seen);
	assert_int_equal(at(&s, 100 * MB)->taken.line, 1);
	at(&s, 300 * MB);
	model__free_segments(&s);
	world__free(&w);
}

/* --- at random */

#define PAGE 512
#define PAGES 2048
#define RANGE 512 /* pages per reserved range; ranges 0 and 1 have mappings */
#define CHUNK 16  /* pages per mapping */
#define BLOCKS 400

struct page {
	uint32_t extent; /* number of the allocation, 0: none */
	uint32_t block;	 /* number of the block, 0: none */
};

struct naive_block {
	uint64_t first, n;
	uint32_t id, stack;
};

struct naive {
	struct page now[PAGES], mark[PAGES];
	struct naive_block blocks[BLOCKS], mark_blocks[BLOCKS];
	size_t nblocks, mark_nblocks;
	uint64_t total, reserved, peak;
	uint32_t ids;
	bool marked;
};

static uint64_t base_of(int d)
{
	return (uint64_t)(d + 1) << 40;
}

static void naive__mark(struct naive *v)
{
	memcpy(v->mark, v->now, sizeof(v->now));
	memcpy(v->mark_blocks, v->blocks, sizeof(v->blocks));
	v->mark_nblocks = v->nblocks;
	v->marked = true;
}

/* True if page p continues the segment of page p - 1. */
static bool same(const struct page *pages, uint64_t p)
{
	if (!pages[p - 1].extent || !pages[p].extent)
		return false;
	return p < 2 * RANGE ? p != RANGE : pages[p - 1].extent == pages[p].extent;
}

static void naive__check_one(const struct naive *v, const struct page *pages, uint64_t first,
			     uint64_t end, const struct segment *s, bool told)
{
	uint64_t used = 0, gap = 0, gaps = 0, largest = 0, whole = 0, pinned[16] = { 0 };
	uint64_t count = 0, lines = 0;

	for (uint64_t p = first; p < end; p++) {
		used += pages[p].block != 0;
		gap = pages[p].block ? 0 : gap + 1;
		gaps += gap == 1;
		largest = gap > largest ? gap : largest;
	}
	for (size_t i = 0; i < v->mark_nblocks; i++)
		if (v->mark_blocks[i].first >= first && v->mark_blocks[i].first < end) {
			pinned[v->mark_blocks[i].stack] += v->mark_blocks[i].n * PAGE;
			count++;
		}
	assert_int_equal(s->size, (end - first) * PAGE);
	assert_int_equal(s->allocated, used * PAGE);
	assert_int_equal(s->free, (end - first - used) * PAGE);
	assert_int_equal(s->gaps, gaps);
	assert_int_equal(s->largest_gap, largest * PAGE);
	/* mappings are freed one by one */
	for (uint64_t p = first; p < end && first < 2 * RANGE; p += CHUNK) {
		bool empty = true;

		for (uint64_t q = p; q < p + CHUNK; q++)
			empty &= !pages[q].block;
		whole += empty ? CHUNK : 0;
	}
	if (first >= 2 * RANGE && !used)
		whole = end - first;
	assert_int_equal(s->releasable, told && first < 2 * RANGE ? s->releasable : whole * PAGE);
	assert_int_equal(s->stuck, s->free - s->releasable);
	assert_int_equal(s->blocks, count);
	for (size_t i = 0; i < 16; i++)
		lines += pinned[i] != 0;
	assert_int_equal(s->npins + s->more_pins, lines);
	for (size_t i = 0; i < s->npins; i++) {
		uint32_t line = s->pins[i].before_attach ? 0 : s->pins[i].line;

		assert_true(line < 16);
		assert_int_equal(s->pins[i].bytes, pinned[line]);
		if (i)
			assert_true(s->pins[i - 1].bytes >= s->pins[i].bytes);
	}
}

static void naive__check(struct world *w, const struct naive *v, int d, bool told)
{
	struct model_segments s = segments(w, d ? "cuda:1" : "cuda:0", ROWS_AT_MARK);
	size_t n = 0;

	for (uint64_t p = 0; p < PAGES;) {
		uint64_t end = p + 1;

		if (!v->mark[p].extent) {
			p++;
			continue;
		}
		while (end < PAGES && same(v->mark, end))
			end++;
		naive__check_one(v, v->mark, p, end, at(&s, base_of(d) + p * PAGE), told);
		p = end;
		n++;
	}
	assert_int_equal(s.n, n);
	assert_int_equal(s.known, s.reserved);
	assert_int_equal(s.inside, s.allocated);
	assert_int_equal(s.outside, 0);
	for (size_t i = 1; i < s.n; i++)
		assert_true(s.all[i - 1].stuck >= s.all[i].stuck);
	model__free_segments(&s);
}

struct run {
	struct world w;
	struct naive v[2];
	uint32_t stacks[16];
	enum moment at;
	uint64_t at_time;
	bool passed, oomed[2];
};

/* Call before each event: the moment may be between the last event and this one. */
static void before_event(struct run *r)
{
	if (r->at == AT_TIME && !r->passed && r->w.time + MS > r->at_time) {
		naive__mark(&r->v[0]);
		naive__mark(&r->v[1]);
		r->passed = true;
	}
}

static void after_blocks(struct run *r, int d)
{
	struct naive *v = &r->v[d];

	if (r->at == AT_PEAK && v->total > v->peak)
		naive__mark(v);
	v->peak = v->total > v->peak ? v->total : v->peak;
}

static bool is_free(const struct naive *v, uint64_t first, uint64_t n)
{
	for (uint64_t p = first; p < first + n; p++)
		if (p >= PAGES || v->now[p].extent)
			return false;
	return true;
}

static void random_take(struct run *r, int d, uint8_t kind)
{
	bool map = rand() % 2;
	uint64_t first = map ? rand() % (2 * RANGE / CHUNK) * CHUNK
			     : 2 * RANGE + rand() % RANGE * 2;
	uint64_t n = map ? CHUNK : 4 + rand() % 60;
	struct naive *v = &r->v[d];

	if (!is_free(v, first, n))
		return;
	before_event(r);
	v->ids++;
	for (uint64_t p = first; p < first + n; p++)
		v->now[p] = (struct page){ .extent = v->ids };
	v->reserved += n * PAGE;
	if (kind == EVENT_SEGMENT)
		below(&r->w, kind, 0, CUDA(d), base_of(d) + first * PAGE, n * PAGE, 0,
		      map ? SEGMENT_EXPANDABLE : 0);
	else
		below(&r->w, kind, map ? MEM_MAPPED : MEM_DEVICE, CUDA(d),
		      base_of(d) + first * PAGE, n * PAGE, r->stacks[1], MEM_BY_ALLOCATOR);
}

static void random_give(struct run *r, int d)
{
	struct naive *v = &r->v[d];
	uint64_t first = rand() % PAGES, n = 1;

	if (!v->now[first].extent)
		return;
	if (first < 2 * RANGE) {
		first -= first % CHUNK;
		n = CHUNK;
	} else {
		while (v->now[first - 1].extent == v->now[first].extent)
			first--;
		while (first + n < PAGES && v->now[first + n].extent == v->now[first].extent)
			n++;
	}
	for (uint64_t p = first; p < first + n; p++)
		if (v->now[p].block)
			return;
	before_event(r);
	below(&r->w, EVENT_CUDA_FREE, first < 2 * RANGE ? MEM_MAPPED : MEM_DEVICE, CUDA(d),
	      base_of(d) + first * PAGE, first < 2 * RANGE ? n * PAGE : 0, 0, MEM_BY_ALLOCATOR);
	memset(&v->now[first], 0, n * sizeof(v->now[0]));
	v->reserved -= n * PAGE;
}

static void random_alloc(struct run *r, int d, uint8_t kind)
{
	struct naive *v = &r->v[d];
	struct naive_block b = { .first = rand() % PAGES,
				 .n = 1,
				 .stack = kind == EVENT_BLOCK ? 0 : 1 + rand() % 12 };
	uint64_t wanted = 1 + rand() % 12;

	if (v->nblocks == BLOCKS || !v->now[b.first].extent || v->now[b.first].block)
		return;
	while (b.n < wanted && b.first + b.n < PAGES && same(v->now, b.first + b.n) &&
	       !v->now[b.first + b.n].block)
		b.n++;
	before_event(r);
	b.id = ++v->ids;
	for (uint64_t p = b.first; p < b.first + b.n; p++)
		v->now[p].block = b.id;
	v->blocks[v->nblocks++] = b;
	v->total += b.n * PAGE;
	if (kind == EVENT_BLOCK) {
		below(&r->w, kind, 0, CUDA(d), base_of(d) + b.first * PAGE, b.n * PAGE, 0, 0);
		r->w.allocated[d] = v->total;
		return;
	}
	r->w.reserved = v->reserved;
	alloc(&r->w, CUDA(d), base_of(d) + b.first * PAGE, b.n * PAGE, r->stacks[b.stack]);
	after_blocks(r, d);
}

static void random_free(struct run *r, int d)
{
	struct naive *v = &r->v[d];
	struct naive_block b;
	size_t i;

	if (!v->nblocks)
		return;
	i = rand() % v->nblocks;
	b = v->blocks[i];
	before_event(r);
	v->blocks[i] = v->blocks[--v->nblocks];
	for (uint64_t p = b.first; p < b.first + b.n; p++)
		v->now[p].block = 0;
	v->total -= b.n * PAGE;
	r->w.reserved = v->reserved;
	dealloc(&r->w, CUDA(d), base_of(d) + b.first * PAGE, b.n * PAGE);
}

static void random_begin(struct run *r, int d, bool told)
{
	struct naive *v = &r->v[d];

	for (int i = 0; i < 30; i++)
		random_take(r, d, told ? EVENT_SEGMENT : EVENT_CUDA_ALLOC);
	for (int i = 0; i < 60; i++)
		random_alloc(r, d, told ? EVENT_BLOCK : EVENT_ALLOC);
	if (!told)
		return;
	before_event(r);
	feed(&r->w, (struct event){ .kind = EVENT_STATE,
				    .device = CUDA(d),
				    .totals = true,
				    .allocated = v->total,
				    .reserved = v->reserved,
				    .flags = STATE_EXACT });
	after_blocks(r, d);
}

static void random_run(unsigned seed, enum moment at)
{
	static struct run r;
	char file[16];

	r = (struct run){ .at = at, .at_time = (400 + seed * 37 % 2500) * MS };
	r.w = world__new(at, r.at_time);
	srand(seed);
	for (uint32_t i = 1; i < 16; i++) {
		snprintf(file, sizeof(file), "/u/%u.py", i);
		r.stacks[i] = simple(&r.w, file, "f", i);
	}
	for (int d = 0; d < 2; d++) {
		for (uint64_t i = 0; i < 2; i++) {
			before_event(&r);
			below(&r.w, EVENT_CUDA_ALLOC, MEM_RESERVED, CUDA(d),
			      base_of(d) + i * RANGE * PAGE, RANGE * PAGE, 0, MEM_BY_ALLOCATOR);
		}
		random_begin(&r, d, seed % 2);
	}
	for (int i = 0; i < 3000; i++) {
		int d = rand() % 2, what = rand() % 100;

		if (what < 15)
			random_take(&r, d, EVENT_CUDA_ALLOC);
		else if (what < 25)
			random_give(&r, d);
		else if (what < 65)
			random_alloc(&r, d, EVENT_ALLOC);
		else if (what < 97)
			random_free(&r, d);
		else {
			before_event(&r);
			r.w.reserved = r.v[d].reserved;
			oom(&r.w, CUDA(d), 1);
			if (at == AT_OOM && !r.oomed[d])
				naive__mark(&r.v[d]);
			r.oomed[d] = true;
		}
	}
	before_event(&r);
	model__finish(r.w.m, r.w.time);
	for (int d = 0; d < 2; d++) {
		struct model_device dev = device(&r.w, d ? "cuda:1" : "cuda:0");

		if (at == AT_END || (at == AT_TIME && !r.passed))
			naive__mark(&r.v[d]);
		assert_int_equal(dev.drift, 0);
		assert_int_equal(dev.allocated, r.v[d].total);
		assert_int_equal(dev.reserved, r.v[d].reserved);
		assert_int_equal(dev.frees_unknown, 0);
		assert_int_equal(dev.marked, r.v[d].marked);
		if (dev.marked)
			naive__check(&r.w, &r.v[d], d, seed % 2);
	}
	world__free(&r.w);
}

static void test_random(void **state)
{
	for (unsigned seed = 1; seed <= 40; seed++)
		for (int at = AT_PEAK; at <= AT_TIME; at++)
			random_run(seed, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gaps_and_pins),	   cmocka_unit_test(test_no_segments),
		cmocka_unit_test(test_expandable),	   cmocka_unit_test(test_tables),
		cmocka_unit_test(test_incomplete_tables),  cmocka_unit_test(test_others),
		cmocka_unit_test(test_unknown_device),	   cmocka_unit_test(test_asked),
		cmocka_unit_test(test_used_of_the_peak),   cmocka_unit_test(test_ooms),
		cmocka_unit_test(test_memory_left_at_oom), cmocka_unit_test(test_all_devices),
		cmocka_unit_test(test_second_reading),	   cmocka_unit_test(test_pool_at_mark),
		cmocka_unit_test(test_private_pools),	   cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_listed_asleep),	   cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
