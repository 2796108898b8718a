/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Marks at the beginning and end of a server's sleep: one for each transition. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "capture/decode/decoder.h"
#include "capture/probes/session_opts.h"
#include "capture/session/stages.h"
#include "capture/target.h"
#include "record/dict.h"

#define MB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)
#define PLACE(i) (UINT64_C(0x100000000) + (uint64_t)(i)*64 * MB) /* of the i-th allocation */

struct world {
	struct sink sink; /* first */
	struct session_opts opts;
	struct target target;
	struct dict *dict;
	struct facts *facts;
	struct decoder *decoder;
	struct sleep_stage *stage;
	uint64_t now; /* ns */
	struct event last;
	struct event mark[8];
	size_t marks, others; /* events that came through */
	int ret;
};

static int on_event(struct sink *sink, const struct event *e)
{
	struct world *w = (struct world *)sink;

	assert_true(e->time >= w->last.time); /* in the order of time */
	w->last = *e;
	if (e->kind != EVENT_MARK) {
		w->others++;
		return w->ret;
	}
	assert_true(w->marks < sizeof(w->mark) / sizeof(*w->mark));
	w->mark[w->marks++] = *e;
	return w->ret;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	*state = w;
	assert_non_null(w);
	w->sink.event = on_event;
	w->dict = dict__new();
	w->facts = facts__new();
	assert_true(w->dict && w->facts);
	w->decoder = decoder__new(&w->opts, &w->target, NULL, w->dict, w->facts);
	assert_non_null(w->decoder);
	w->stage = sleep_stage__new(w->decoder);
	assert_non_null(w->stage);
	sleep_stage__send_to(w->stage, &w->sink);
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	sleep_stage__free(w->stage);
	decoder__free(w->decoder);
	facts__free(w->facts);
	dict__free(w->dict);
	free(w);
	return 0;
}

static int send(struct world *w, struct event e)
{
	e.device = (struct device){ DEVICE_CUDA, 0 };
	e.time = w->now;
	return sleep_stage__sink(w->stage)->event(sleep_stage__sink(w->stage), &e);
}

static void call(struct world *w, uint8_t kind, uint8_t how, uint8_t flags, uint64_t addr,
		 uint64_t size)
{
	assert_int_equal(send(w, (struct event){ .kind = kind,
						 .how = how,
						 .flags = flags,
						 .addr = addr,
						 .size = size }),
			 0);
}

static void map(struct world *w, int i, uint64_t size)
{
	call(w, EVENT_CUDA_ALLOC, MEM_PHYSICAL, 0, 77 + i, size);
	call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, 0, PLACE(i), size);
}

static void unmap(struct world *w, int i, uint64_t size)
{
	call(w, EVENT_CUDA_FREE, MEM_MAPPED, 0, PLACE(i), size);
	call(w, EVENT_CUDA_FREE, MEM_PHYSICAL, 0, 77 + i, size);
}

static void block(struct world *w, uint8_t kind, uint64_t addr)
{
	call(w, kind, 0, 0, addr, MB);
}

/* Memory of a MemPool with a tensor in it. */
static void tensor(struct world *w, int i, uint64_t size)
{
	call(w, EVENT_CUDA_ALLOC, MEM_RESERVED, 0, PLACE(i), size);
	map(w, i, size);
	block(w, EVENT_ALLOC, PLACE(i));
}

/* Time passes without events. */
static void wait(struct world *w, uint64_t ms)
{
	w->now += ms * MS;
	assert_int_equal(sleep_stage__pump(w->stage, w->now), 0);
}

static void check_mark(const struct world *w, size_t i, uint64_t time, const char *name)
{
	assert_true(i < w->marks);
	assert_string_equal(dict__str(w->dict, w->mark[i].name), name);
	assert_int_equal(w->mark[i].time, time);
}

/* Thousands of calls, with pauses while weights are copied, are one mark each way. */
static void test_bursts(void **state)
{
	struct world *w = *state;
	uint64_t over;

	for (int i = 0; i < 3000; i++)
		tensor(w, i, 4 * MB);
	tensor(w, 3000, 2 * MB);
	/* NCCL's own mapping stays through the sleep. The mark does not wait for it. */
	map(w, 3001, 32 * MB);
	wait(w, 5000);
	assert_int_equal(w->marks, 0);
	for (int i = 0; i <= 3000; i++) {
		wait(w, i % 1000 ? 0 : 700);
		unmap(w, i, i < 3000 ? 4 * MB : 2 * MB);
	}
	wait(w, 99);
	assert_int_equal(w->marks, 0); /* addresses may be given back */
	wait(w, 1);
	over = w->now;
	assert_int_equal(w->marks, 1);
	wait(w, 5000);
	for (int i = 0; i <= 3000; i++) {
		wait(w, i % 1000 ? 0 : 700);
		map(w, i, i < 3000 ? 4 * MB : 2 * MB);
	}
	wait(w, 100);
	check_mark(w, 0, over, "memory unmapped: 11.72 GiB (sleep)");
	check_mark(w, 1, w->now, "memory mapped again: 11.72 GiB (wake-up)");
	wait(w, 5000);
	assert_int_equal(sleep_stage__finish(w->stage), 0);
	assert_int_equal(w->marks, 2);
}

/* wake_up(tags=["weights"]), and later the rest. */
static void test_tags(void **state)
{
	struct world *w = *state;
	uint64_t over;

	tensor(w, 0, 16 * MB);
	tensor(w, 1, 48 * MB);
	unmap(w, 0, 16 * MB);
	unmap(w, 1, 48 * MB);
	wait(w, 2000);
	map(w, 0, 16 * MB);
	wait(w, 999);
	assert_int_equal(w->marks, 1); /* the rest may follow */
	wait(w, 1);
	over = w->now;
	wait(w, 3000);
	map(w, 1, 48 * MB);
	wait(w, 100);
	check_mark(w, 0, 2000 * MS, "memory unmapped: 64.00 MiB (sleep)");
	check_mark(w, 1, over, "memory mapped again: 16.00 MiB of 64.00 MiB (wake-up)");
	check_mark(w, 2, w->now, "memory mapped again: 48.00 MiB (wake-up)");
	assert_int_equal(w->marks, 3);

	/* Only the cache sleeps: weights stay. */
	unmap(w, 1, 48 * MB);
	wait(w, 999);
	assert_int_equal(w->marks, 3);
	wait(w, 1);
	check_mark(w, 3, w->now, "memory unmapped: 48.00 MiB (sleep)");
}

/* The next event shows that time has passed, and the mark comes before it. */
static void test_place(void **state)
{
	struct world *w = *state;

	tensor(w, 0, 16 * MB);
	unmap(w, 0, 16 * MB);
	w->now += 150 * MS;
	block(w, EVENT_ALLOC, PLACE(9));
	check_mark(w, 0, w->now, "memory unmapped: 16.00 MiB (sleep)");
	assert_int_equal(w->last.kind, EVENT_ALLOC);

	/* The wake-up follows at once. */
	map(w, 0, 16 * MB);
	unmap(w, 0, 16 * MB);
	check_mark(w, 1, w->now, "memory mapped again: 16.00 MiB (wake-up)");
	assert_int_equal(w->marks, 2);

	/* The capture ends before the transition is over. */
	assert_int_equal(sleep_stage__finish(w->stage), 0);
	check_mark(w, 2, w->now, "memory unmapped: 16.00 MiB (sleep)");
	assert_int_equal(sleep_stage__finish(w->stage), 0);
	assert_int_equal(w->marks, 3);
	assert_null(facts__get(w->facts, "counter.sleep_forgotten"));
}

/* PyTorch maps and unmaps its own expandable segments: that is no sleep. */
static void test_expandable(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 10; i++)
		call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, MEM_BY_ALLOCATOR, PLACE(i), 64 * MB);
	block(w, EVENT_ALLOC, PLACE(0));
	call(w, EVENT_SEGMENT, 0, SEGMENT_EXPANDABLE, PLACE(0), 640 * MB);
	for (int i = 1; i < 10; i++)
		call(w, EVENT_CUDA_FREE, MEM_MAPPED, MEM_BY_ALLOCATOR, PLACE(i), 64 * MB);
	wait(w, 2000);
	call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, MEM_BY_ALLOCATOR, PLACE(1), 64 * MB);
	wait(w, 2000);
	assert_int_equal(sleep_stage__finish(w->stage), 0);
	assert_int_equal(w->marks, 0);
	assert_int_equal(w->others, 22); /* all of them */
}

/* No mark for memory that PyTorch has returned, or whose addresses are given back. */
static void test_freed(void **state)
{
	struct world *w = *state;

	tensor(w, 0, 16 * MB);
	tensor(w, 1, 16 * MB);
	tensor(w, 2, 16 * MB);
	map(w, 3, 16 * MB); /* never had a tensor */
	block(w, EVENT_FREE, PLACE(0));
	unmap(w, 0, 16 * MB); /* the allocator keeps the addresses */
	unmap(w, 3, 16 * MB);
	unmap(w, 1, 16 * MB);
	wait(w, 50);
	call(w, EVENT_CUDA_FREE, MEM_RESERVED, 0, PLACE(1), 16 * MB);
	wait(w, 2000);
	assert_int_equal(w->marks, 0);

	/* Two are unmapped; the first keeps its addresses. */
	tensor(w, 1, 32 * MB);
	unmap(w, 1, 32 * MB);
	unmap(w, 2, 16 * MB);
	call(w, EVENT_CUDA_FREE, MEM_RESERVED, 0, PLACE(2), 16 * MB);
	wait(w, 100);
	check_mark(w, 0, w->now, "memory unmapped: 32.00 MiB (sleep)");
	/* Other memory at addresses that were used before is no wake-up. */
	call(w, EVENT_CUDA_FREE, MEM_RESERVED, 0, PLACE(1), 32 * MB);
	call(w, EVENT_CUDA_ALLOC, MEM_RESERVED, 0, PLACE(1), 32 * MB);
	map(w, 1, 32 * MB);
	wait(w, 2000);
	assert_int_equal(w->marks, 1);
}

/* Attached to a running server: only the allocator's tables tell what is mapped. */
static void test_attached(void **state)
{
	struct world *w = *state;
	uint64_t over;

	block(w, EVENT_BLOCK, PLACE(0));
	assert_int_equal(send(w, (struct event){ .kind = EVENT_SEGMENT,
						 .addr = PLACE(0),
						 .size = 64 * MB,
						 .pool = { 0, 1 } }),
			 0);
	call(w, EVENT_SEGMENT, 0, 0, PLACE(2), 20 * MB); /* PyTorch's own: stays */
	/* In chunks, the last one after a pause. */
	for (int i = 0; i < 4; i++) {
		wait(w, i < 3 ? 0 : 900);
		call(w, EVENT_CUDA_FREE, MEM_MAPPED, 0, PLACE(0) + (uint64_t)i * 16 * MB, 16 * MB);
	}
	wait(w, 100);
	over = w->now;
	call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, 0, PLACE(0), 64 * MB);
	wait(w, 100);
	check_mark(w, 0, over, "memory unmapped: 64.00 MiB (sleep)");
	check_mark(w, 1, w->now, "memory mapped again: 64.00 MiB (wake-up)");
	assert_int_equal(w->marks, 2);
}

/* Less than 1 % of what PyTorch reserves is no mark. */
static void test_share(void **state)
{
	struct world *w = *state;

	tensor(w, 0, 16 * MB);
	assert_int_equal(send(w, (struct event){ .kind = EVENT_ALLOC,
						 .addr = PLACE(9),
						 .size = MB,
						 .totals = true,
						 .allocated = MB,
						 .reserved = 1600 * MB }),
			 0);
	unmap(w, 0, 16 * MB);
	wait(w, 2000);
	assert_int_equal(w->marks, 1);
	assert_int_equal(send(w, (struct event){ .kind = EVENT_FREE,
						 .addr = PLACE(9),
						 .size = MB,
						 .totals = true,
						 .reserved = 1700 * MB }),
			 0);
	map(w, 0, 16 * MB);
	wait(w, 2000);
	assert_int_equal(w->marks, 1);
}

/* Damaged or strange events change nothing, and an error of the sink comes back. */
static void test_errors(void **state)
{
	struct world *w = *state;

	call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, 0, UINT64_MAX - 5, 10);
	call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, 0, PLACE(0), 0);
	call(w, EVENT_CUDA_FREE, MEM_MAPPED, 0, UINT64_MAX, 0);
	call(w, EVENT_CUDA_FREE, MEM_DEVICE, 0, PLACE(0), 0);
	call(w, EVENT_SEGMENT, 0, 0, UINT64_MAX - 5, 10);
	assert_int_equal(w->others, 5);
	tensor(w, 0, 16 * MB);
	unmap(w, 0, 16 * MB);
	w->ret = -ENOSPC;
	assert_int_equal(sleep_stage__pump(w->stage, w->now + 200 * MS), -ENOSPC);
	sleep_stage__send_to(w->stage, NULL);
	assert_int_equal(send(w, (struct event){ .kind = EVENT_STEP }), 0);
}

/* More mappings than the stage keeps: it says so. */
static void test_many(void **state)
{
	struct world *w = *state;

	for (uint64_t i = 0; i < 65537; i++)
		call(w, EVENT_CUDA_ALLOC, MEM_MAPPED, 0, i * 4 * MB, 2 * MB);
	assert_int_equal(sleep_stage__finish(w->stage), 0);
	assert_string_equal(facts__get(w->facts, "counter.sleep_forgotten"), "1");
}

#define CHUNKS 48

struct chunk {
	bool there, listed, asleep;
};

/* Changes chunks [from, to) in the simplest way. Returns the chunks whose memory went or came. */
static uint64_t naive(struct chunk *c, int op, int from, int to)
{
	uint64_t n = 0;

	for (int i = from; i < to; i++) {
		bool maps = op == 2, changes = c[i].there && c[i].asleep == maps;

		if (op == 0 && !c[i].there)
			c[i] = (struct chunk){ .there = true, .listed = true };
		if (op == 1 || op == 2) {
			n += changes && c[i].listed;
			c[i].there |= maps;
			c[i].asleep = c[i].there && !maps;
		}
		if (op == 3)
			c[i] = (struct chunk){ 0 };
	}
	return n;
}

/* Calls on parts of ranges, in any order: each mark has the bytes that a table of chunks has. */
static void test_random(void **state)
{
	static const struct {
		uint8_t kind, how;
	} ops[] = {
		{ EVENT_SEGMENT, 0 },
		{ EVENT_CUDA_FREE, MEM_MAPPED },
		{ EVENT_CUDA_ALLOC, MEM_MAPPED },
		{ EVENT_CUDA_FREE, MEM_RESERVED },
	};
	struct chunk chunks[CHUNKS] = { 0 };
	struct world *w = *state;
	unsigned seed = 7, marks = 0;

	for (int turn = 0; turn < 4000; turn++) {
		int op = rand_r(&seed) % 4, from = rand_r(&seed) % CHUNKS;
		int to = from + 1 + rand_r(&seed) % (CHUNKS - from);
		char name[96], a[24], b[24];
		uint64_t n, rest = 0;

		if (op == 3 && to > from + 3)
			to = from + 3;
		n = naive(chunks, op, from, to);
		for (int i = 0; i < CHUNKS; i++)
			rest += chunks[i].asleep && chunks[i].listed;
		w->marks = 0;
		call(w, ops[op].kind, ops[op].how, 0, (uint64_t)from * MB,
		     (uint64_t)(to - from) * MB);
		wait(w, 1000);
		assert_int_equal(w->marks, n != 0);
		if (!n)
			continue;
		text__bytes(a, sizeof(a), n * MB);
		text__bytes(b, sizeof(b), (n + rest) * MB);
		if (op == 1)
			snprintf(name, sizeof(name), "memory unmapped: %s (sleep)", a);
		else
			snprintf(name, sizeof(name), "memory mapped again: %s%s%s (wake-up)", a,
				 rest ? " of " : "", rest ? b : "");
		check_mark(w, 0, w->now, name);
		marks++;
	}
	assert_true(marks > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bursts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_tags, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_place, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_expandable, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_freed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_attached, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_share, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_random, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
