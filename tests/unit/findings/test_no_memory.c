/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings without memory: each allocation fails once. */
#include "unit/no_memory.h"

#include "model/heap/state.h"
#include "report/advice.h"
#include "report/findings.h"
#include "unit/model_world.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void tell(struct world *w, struct event e)
{
	e.time = w->time + MS;
	e.thread = w->main_thread;
	e.device = CUDA(0);
	e.totals = e.kind != EVENT_CUDA_ALLOC;
	e.allocated = w->allocated[0];
	e.reserved = w->reserved;
	feed(w, e);
}

/* Blocks with free pieces between them, and a request that none of the pieces has room for. */
static void make_fragments(struct world *w)
{
	uint32_t line = simple(w, "/w/train.py", "keep", 33);

	tell(w, (struct event){ .kind = EVENT_CUDA_ALLOC,
				.how = MEM_DEVICE,
				.addr = GIB,
				.size = 100 * MIB,
				.flags = MEM_BY_ALLOCATOR });
	w->reserved = 100 * MIB;
	for (uint64_t i = 0; i < 5; i++) {
		w->allocated[0] += 5 * MIB;
		tell(w, (struct event){ .kind = EVENT_ALLOC,
					.addr = GIB + i * 20 * MIB,
					.size = 5 * MIB,
					.stack = line });
	}
	tell(w, (struct event){ .kind = EVENT_OOM, .size = 64 * MIB });
	model__finish(w->m, w->time);
}

/* Judges, and checks that a judgement that succeeds lacks nothing. */
static int judge(void *ctx)
{
	const struct findings_source *source = ctx;
	struct findings found;
	bool whole = false;
	int err = findings__judge(source, &found);

	rows__forget(source->model); /* the model keeps classes of blocks: they are no leak */
	if (err)
		return err;
	for (size_t i = 0; i < found.n; i++)
		whole |= found.all[i].code == FINDING_FRAGMENTATION &&
			 !strcmp(found.all[i].where, "/w/train.py:33 (keep)");
	assert_true(whole);
	findings__free(&found);
	return 0;
}

static void test_fragments(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	struct findings_source source = { .model = w.m,
					  .dict = w.d,
					  .facts = w.f,
					  .advisor = advisor__new(w.m, w.d, w.f),
					  .name = "job.mtr",
					  .complete = true };

	assert_non_null(source.advisor);
	make_fragments(&w);
	source.duration = w.time;
	no_memory.caches = true;
	assert_true(no_memory__try(judge, &source) > 10);
	advisor__free(source.advisor);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fragments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
