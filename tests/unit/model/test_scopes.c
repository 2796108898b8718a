/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Scopes: which runs the stacks of allocations show, and the memory in them. */
#include "unit/model_world.h"

#define KIB UINT64_C(1024)

/* A stack of these functions of train.py, the outermost first; NULL at the end. */
static uint32_t calls(struct world *w, uint8_t walk, const char *const *functions)
{
	struct dict_frame f[8];
	uint32_t n = 0;

	while (functions[n])
		n++;
	for (uint32_t i = 0; i < n; i++)
		f[n - 1 - i] = (struct dict_frame){ .loc = loc(w, "/job/train.py", functions[i],
							       i + 1) };
	return dict__stack(w->d, f, n, walk);
}
#define STACK(w, ...) calls(w, MT_WALK_OK, (const char *const[]){ __VA_ARGS__, NULL })

static struct world scoped(const char *a, const char *b)
{
	struct world w = world__new(AT_END, 0);

	assert_int_equal(model__add_scope(w.m, a), 0);
	if (b)
		assert_int_equal(model__add_scope(w.m, b), 0);
	return w;
}

static void on_thread(struct world *w, uint32_t thread, uint64_t addr, uint64_t size,
		      uint32_t stack, uint8_t walk)
{
	feed(w, (struct event){ .kind = EVENT_ALLOC,
				.device = CUDA(0),
				.thread = thread,
				.addr = addr,
				.size = size,
				.stack = stack,
				.walk = walk,
				.totals = true,
				.allocated = w->allocated[0] += size });
}

static struct model_scope scope(const struct world *w, size_t i)
{
	struct model_scope s;

	model__scope(w->m, i, &s);
	return s;
}

static struct model_scope_level level(const struct world *w, size_t run)
{
	struct model_scope_level l;

	assert_true(model__scope_run_level(w->m, run, 0, &l));
	return l;
}

static void finish(struct world *w)
{
	model__finish(w->m, w->time);
}

/* A run begins with the first allocation inside and ends before the first one outside. */
static void test_one_run(void **state)
{
	struct world w = scoped("rollout", NULL);
	uint32_t out = STACK(&w, "main"), in = STACK(&w, "main", "Job.rollout");
	struct model_scope_run r;
	bool found;

	(void)state;
	alloc(&w, CUDA(0), 0x1000, 10 * KIB, out);
	alloc(&w, CUDA(0), 0x10000, 5 * KIB, in);  /* 2 ms */
	alloc(&w, CUDA(0), 0x20000, 20 * KIB, in); /* 3 ms: the peak, 35 KiB */
	dealloc(&w, CUDA(0), 0x20000, 20 * KIB);
	alloc(&w, CUDA(0), 0x30000, KIB, in); /* 5 ms */
	dealloc(&w, CUDA(0), 0x1000, 10 * KIB);
	alloc(&w, CUDA(0), 0x40000, 100 * KIB, out);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 1);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 0).open, 0);
	assert_int_equal(scope(&w, 0).time, 3 * MS);
	assert_string_equal(model__scope_function(w.m, 0, &found), "rollout");
	assert_true(found);
	assert_int_equal(level(&w, 0).start, 10 * KIB);
	assert_int_equal(level(&w, 0).peak, 35 * KIB);
	assert_int_equal(level(&w, 0).peak_time, 3 * MS);
	assert_int_equal(level(&w, 0).peak_event, 3);
	assert_int_equal(level(&w, 0).end, 6 * KIB);
	assert_int_equal(level(&w, 0).kept, 6 * KIB);
	model__scope_run(w.m, 0, &r);
	assert_int_equal(r.begin, 2 * MS);
	assert_int_equal(r.end, 5 * MS);
	assert_true(r.ended);
	world__free(&w);
}

/* Two names may mean one function. Then each has its runs. */
static void test_two_names_of_a_function(void **state)
{
	struct world w = scoped("rollout", "train.py:rollout");
	uint32_t out = STACK(&w, "main"), in = STACK(&w, "main", "Job.rollout");
	bool found;

	(void)state;
	for (uint64_t i = 0; i < 2; i++) {
		alloc(&w, CUDA(0), 0x10000 + (i << 24), 5 * KIB, in);
		alloc(&w, CUDA(0), 0x20000 + (i << 24), KIB, out);
	}
	finish(&w);
	assert_int_equal(model__scopes(w.m), 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(scope(&w, i).runs, 2);
		model__scope_function(w.m, i, &found);
		assert_true(found);
	}
	assert_int_equal(level(&w, 0).peak, level(&w, 1).peak);
	world__free(&w);
}

/* A function inside two others has its runs numbered over both. */
static void test_numbers_of_runs(void **state)
{
	struct world w = scoped("a", "loss");
	uint32_t inside = STACK(&w, "main", "a", "loss"), alone = STACK(&w, "main", "loss"),
		 out = STACK(&w, "main");
	struct model_scope_run run;
	uint64_t seen = 0;

	(void)state;
	for (uint64_t i = 0; i < 2; i++) {
		alloc(&w, CUDA(0), 0x10000 + (i << 24), KIB, inside);
		alloc(&w, CUDA(0), 0x20000 + (i << 24), KIB, out);
		alloc(&w, CUDA(0), 0x30000 + (i << 24), KIB, alone);
		alloc(&w, CUDA(0), 0x40000 + (i << 24), KIB, out);
	}
	finish(&w);
	for (size_t i = 0; i < model__scope_runs(w.m); i++) {
		model__scope_run(w.m, i, &run);
		if (!strcmp(scope(&w, run.scope).name, "loss"))
			assert_int_equal(run.number, ++seen);
	}
	assert_int_equal(seen, 4);
	world__free(&w);
}

/* The peak of a scope inside another counts for both; a recursive call is part of the outer one. */
static void test_nested(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t train = STACK(&w, "main", "train"), loss = STACK(&w, "main", "train", "loss"),
		 again = STACK(&w, "main", "train", "loss", "loss"), out = STACK(&w, "main");

	(void)state;
	alloc(&w, CUDA(0), 0x1000, KIB, train);
	alloc(&w, CUDA(0), 0x2000, 50 * KIB, loss);
	alloc(&w, CUDA(0), 0x3000, KIB, again);
	dealloc(&w, CUDA(0), 0x2000, 50 * KIB);
	alloc(&w, CUDA(0), 0x4000, KIB, train);
	alloc(&w, CUDA(0), 0x5000, KIB, loss);
	alloc(&w, CUDA(0), 0x6000, KIB, out);
	/* The same function outside of the other is another path. */
	alloc(&w, CUDA(0), 0x7000, KIB, STACK(&w, "main", "loss"));
	finish(&w);
	assert_int_equal(model__scopes(w.m), 3);
	assert_string_equal(scope(&w, 1).name, "loss");
	assert_int_equal(scope(&w, 1).parent, 0);
	assert_int_equal(scope(&w, 1).depth, 1);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 1).runs, 2);
	assert_int_equal(scope(&w, 2).parent, SIZE_MAX);
	assert_int_equal(scope(&w, 2).open, 1);
	assert_int_equal(level(&w, 0).peak, 52 * KIB); /* train */
	assert_int_equal(level(&w, 1).peak, 52 * KIB); /* the first loss */
	assert_int_equal(level(&w, 2).peak, 4 * KIB);  /* the second one */
	world__free(&w);
}

/* Memory of other threads counts for the peak, but only until the thread is known to be inside;
 * what a run keeps is its own thread's. */
static void test_threads(void **state)
{
	struct world w = scoped("rollout", NULL);
	uint32_t in = STACK(&w, "worker", "rollout"), out = STACK(&w, "main");
	uint32_t worker = dict__thread(w.d, (struct dict_thread){ .tid = 7 });

	(void)state;
	on_thread(&w, worker, 0x1000, KIB, in, MT_WALK_OK);
	on_thread(&w, w.autograd_thread, 0x2000, 30 * KIB, 0, MT_WALK_NO_THREAD);
	dealloc(&w, CUDA(0), 0x2000, 30 * KIB);
	on_thread(&w, worker, 0x3000, KIB, in, MT_WALK_OK);
	on_thread(&w, w.main_thread, 0x4000, 500 * KIB, out, MT_WALK_OK);
	finish(&w);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 0).open, 1); /* the worker allocated nothing afterwards */
	assert_int_equal(level(&w, 0).peak, 31 * KIB);
	assert_int_equal(level(&w, 0).end, 2 * KIB);
	assert_int_equal(level(&w, 0).kept, 2 * KIB);
	world__free(&w);
}

/* A stack that lacks its outermost frames, or that could not be read, ends no run. */
static void test_unknown_stacks(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t in = STACK(&w, "main", "train", "loss");
	uint32_t part = calls(&w, MT_WALK_TRUNCATED, (const char *const[]){ "deep", NULL });
	uint32_t loss = calls(&w, MT_WALK_TRUNCATED, (const char *const[]){ "loss", "deep", NULL });

	(void)state;
	on_thread(&w, 0, 0x1000, KIB, in, MT_WALK_OK);
	on_thread(&w, 0, 0x2000, KIB, part, MT_WALK_TRUNCATED);
	on_thread(&w, 0, 0x3000, KIB, loss, MT_WALK_TRUNCATED);
	on_thread(&w, 0, 0x4000, KIB, 0, MT_WALK_OFF);
	on_thread(&w, 0, 0x5000, KIB, in, MT_WALK_OK);
	on_thread(&w, 0, 0x6000, KIB, 0, MT_WALK_NO_FRAME); /* the thread runs no Python code */
	finish(&w);
	assert_int_equal(model__scopes(w.m), 2);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 1).runs, 1);
	assert_int_equal(scope(&w, 0).open, 0);
	assert_int_equal(level(&w, 1).peak, 5 * KIB);
	world__free(&w);
}

/* The walk was whole, but the dict cut the stack, as in snapshots of PyTorch: no run ends. */
static void test_cut_in_dict(void **state)
{
	struct world w = scoped("train", NULL);
	uint32_t in = STACK(&w, "main", "train");
	uint32_t cut = calls(&w, MT_WALK_TRUNCATED, (const char *const[]){ "deep", NULL });

	(void)state;
	on_thread(&w, 0, 0x1000, KIB, in, MT_WALK_OK);
	on_thread(&w, 0, 0x2000, KIB, cut, MT_WALK_OK);
	on_thread(&w, 0, 0x3000, KIB, in, MT_WALK_OK);
	finish(&w);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 0).open, 1);
	world__free(&w);
}

/* A recursive call whose outer one is among the missing frames begins no run in its own run. */
static void test_recursion_cut(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t in = STACK(&w, "main", "train", "loss");
	uint32_t cut = calls(&w, MT_WALK_TRUNCATED,
			     (const char *const[]){ "loss", "train", "loss", NULL });

	(void)state;
	on_thread(&w, 0, 0x1000, KIB, in, MT_WALK_OK);
	for (uint64_t i = 2; i < 20; i++)
		on_thread(&w, 0, i << 12, KIB, cut, MT_WALK_TRUNCATED);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 2);
	assert_int_equal(scope(&w, 0).runs, 1);
	assert_int_equal(scope(&w, 1).runs, 1);
	world__free(&w);
}

/* A generator's frame is on the stack only while it runs: each of its stretches is a run. */
static void test_generator(void **state)
{
	struct world w = scoped("train.py:batches", NULL);
	uint32_t in = STACK(&w, "main", "batches"), out = STACK(&w, "main");

	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		alloc(&w, CUDA(0), i << 20, KIB, in);
		alloc(&w, CUDA(0), i << 30, KIB, out);
	}
	finish(&w);
	assert_int_equal(scope(&w, 0).runs, 3);
	assert_int_equal(level(&w, 2).run, 3);
	world__free(&w);
}

static void test_names(void **state)
{
	static const char *const good[] = { "f", "A.f", "train.py:f", "a/train.py:A.f",
					    "<lambda>" };
	static const char *const bad[] = { "", "train.py:", ":f", "A.", "a\nb" };
	struct world w = scoped("job/train.py:A.f", "B.f");
	char longest[STREAM_SCOPE + 1];
	bool found;

	(void)state;
	memset(longest, 'x', STREAM_SCOPE);
	longest[STREAM_SCOPE] = '\0';
	assert_false(facts__is_scope(longest));
	assert_true(facts__is_scope(longest + 1));
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_true(facts__is_scope(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(model__add_scope(w.m, bad[i]), -EINVAL);
	/* Whole components only: neither AA.f nor my_job/train.py is asked for. */
	alloc(&w, CUDA(0), 0x1000, KIB, STACK(&w, "AA.f"));
	alloc(&w, CUDA(0), 0x2000, KIB, simple(&w, "/my_job/train.py", "A.f", 1));
	assert_int_equal(model__scopes(w.m), 0);
	alloc(&w, CUDA(0), 0x3000, KIB, STACK(&w, "A.f"));
	assert_int_equal(model__scopes(w.m), 1);
	model__scope_function(w.m, 1, &found);
	assert_false(found);
	assert_int_equal(model__add_scope(w.m, "B.f"), 0); /* there already */
	for (size_t i = 2; i < STREAM_SCOPES; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%zu", i);
		assert_int_equal(model__add_scope(w.m, name), 0);
	}
	assert_int_equal(model__add_scope(w.m, "one_more"), -E2BIG);
	world__free(&w);
}

/* The recording names functions, too; what is no name there is left out. */
static void test_fact(void **state)
{
	struct world w = world__new(AT_END, 0);
	bool found;

	(void)state;
	facts__set(w.f, "scopes", "[\"rollout\", 3, \"\", \"A.\", \"train\"]");
	alloc(&w, CUDA(0), 0x1000, KIB, STACK(&w, "train"));
	assert_string_equal(model__scope_function(w.m, 0, &found), "rollout");
	assert_string_equal(model__scope_function(w.m, 1, &found), "train");
	assert_null(model__scope_function(w.m, 2, &found));
	assert_string_equal(scope(&w, 0).name, "train");
	world__free(&w);

	w = world__new(AT_END, 0);
	facts__set(w.f, "scopes", "{\"a\": [");
	alloc(&w, CUDA(0), 0x1000, KIB, STACK(&w, "train"));
	assert_null(model__scope_function(w.m, 0, &found));
	world__free(&w);
}

/* More threads inside at a time than a model follows: the others are counted. */
static void test_bound(void **state)
{
	struct world w = scoped("rollout", NULL);
	uint32_t in = STACK(&w, "rollout");

	(void)state;
	for (uint32_t i = 0; i < 300; i++)
		on_thread(&w, dict__thread(w.d, (struct dict_thread){ .tid = 1000 + i }),
			  0x1000 * (i + 1), KIB, in, MT_WALK_OK);
	finish(&w);
	assert_int_equal(scope(&w, 0).runs + model__scopes_left_out(w.m), 300);
	assert_int_equal(scope(&w, 0).runs, 256);
	world__free(&w);
}

/* Bytes that are live now in a scope; NULL: outside of scopes. */
static uint64_t bytes_in(struct world *w, const char *dev, const char *scope)
{
	uint64_t bytes = 0;
	struct row *r;
	size_t n;

	r = rows(w, dev, BY_SCOPE, ROWS_NOW, &n);
	for (size_t i = 0; i < n; i++)
		if (scope ? r[i].scope && !strcmp(r[i].scope, scope) : !r[i].scope)
			bytes += r[i].bytes;
	free(r);
	return bytes;
}

/* Rows by scope: the innermost function, whoever calls it. */
static void test_rows_by_scope(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t out = STACK(&w, "main"), train = STACK(&w, "main", "train"),
		 inside = STACK(&w, "main", "train", "loss"), alone = STACK(&w, "main", "loss");

	(void)state;
	alloc(&w, CUDA(0), 0x1000, KIB, out);
	alloc(&w, CUDA(0), 0x2000, 2 * KIB, train);
	alloc(&w, CUDA(0), 0x3000, 4 * KIB, inside);
	alloc(&w, CUDA(0), 0x4000, 8 * KIB, train);
	alloc(&w, CUDA(0), 0x6000, 16 * KIB, alone);
	alloc(&w, CUDA(0), 0xa000, 32 * KIB, out);
	assert_int_equal(bytes_in(&w, "cuda:0", NULL), 33 * KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "train"), 10 * KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "train > loss"), 4 * KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "loss"), 16 * KIB);
	dealloc(&w, CUDA(0), 0x2000, 2 * KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "train"), 8 * KIB);
	world__free(&w);
}

/* Backward runs on a thread of autograd, without frames. Its memory belongs to the function that
 * waits for it, on the thread that called backward last, not to the forward call. */
static void test_backward(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t other = dict__thread(w.d, (struct dict_thread){ .tid = 300 });
	uint32_t forward = STACK(&w, "main", "train", "loss"), call;
	struct dict_frame f[] = {
		{ .loc = loc(&w, SP "autograd/__init__.py", "_make_grads", 1) },
		{ .loc = loc(&w, SP "autograd/__init__.py", "backward", 2) },
		{ .loc = loc(&w, "/job/train.py", "train", 3) },
	};
	struct event e = { .kind = EVENT_ALLOC,
			   .device = CUDA(0),
			   .addr = 0x9000,
			   .size = 4 * KIB,
			   .walk = MT_WALK_NO_FRAME,
			   .thread = w.autograd_thread,
			   .node = dict__node(w.d,
					      (struct dict_node){ .cls = str(&w, "MulBackward0"),
								  .stack = forward }) };

	(void)state;
	call = dict__stack(w.d, f, N(f), MT_WALK_OK);
	alloc(&w, CUDA(0), 0x1000, KIB, forward);
	alloc(&w, CUDA(0), 0x2000, 2 * KIB, call);
	on_thread(&w, other, 0x3000, 8 * KIB, STACK(&w, "main", "loss"), MT_WALK_OK);
	e.totals = true;
	e.allocated = w.allocated[0] += e.size;
	feed(&w, e);
	assert_int_equal(bytes_in(&w, "cuda:0", "train"), 6 * KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "train > loss"), KIB);
	assert_int_equal(bytes_in(&w, "cuda:0", "loss"), 8 * KIB);
	/* It is the run's own memory, and its peak is in it. */
	finish(&w);
	assert_string_equal(scope(&w, 0).name, "train");
	assert_int_equal(level(&w, 0).kept, 7 * KIB);
	assert_int_equal(level(&w, 0).peak, 15 * KIB);
	/* After train, backward is outside. */
	alloc(&w, CUDA(0), 0x4000, KIB, STACK(&w, "main"));
	e.addr = 0xb000;
	e.allocated = w.allocated[0] += e.size;
	feed(&w, e);
	assert_int_equal(bytes_in(&w, "cuda:0", NULL), 5 * KIB);
	world__free(&w);
}

/* Small objects on the host are found after they are made, so they begin and end no run: the
 * functions on their stack are their scope. */
static void test_rows_of_objects(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t out = STACK(&w, "main"), inside = STACK(&w, "main", "train", "loss");
	const struct device host = { .type = DEVICE_HOST };

	(void)state;
	alloc(&w, CUDA(0), 0x1000, KIB, out);
	alloc(&w, host, 0x2000, 2 * KIB, inside);
	alloc(&w, host, 0x3000, 4 * KIB, out);
	assert_int_equal(bytes_in(&w, "host", "train > loss"), 2 * KIB);
	assert_int_equal(bytes_in(&w, "host", NULL), 4 * KIB);
	finish(&w);
	assert_int_equal(model__scope_runs(w.m), 0);
	world__free(&w);
}

/* ---- named scopes ---- */

static void tell(struct world *w, uint32_t thread, uint8_t flags, const char *name, uint64_t number,
		 uint64_t around)
{
	feed(w, (struct event){ .kind = EVENT_SCOPE,
				.thread = thread,
				.how = number ? SCOPE_PHASE : SCOPE_NVTX,
				.flags = flags,
				.name = name ? str(w, name) : 0,
				.addr = number,
				.size = around });
}

static void take(struct world *w, uint32_t thread, uint64_t addr, uint64_t size)
{
	on_thread(w, thread, addr, size, STACK(w, "main"), MT_WALK_OK);
}

static struct world named(void)
{
	return world__new(AT_END, 0);
}

/* Start, peak and end are those at the events, also if other threads allocate meanwhile. */
static void test_named(void **state)
{
	struct world w = named();
	uint32_t other = w.autograd_thread;
	struct model_scope_run r;

	(void)state;
	take(&w, w.main_thread, 0x1000, 10 * KIB);	       /* 1 ms */
	tell(&w, w.main_thread, SCOPE_BEGIN, "rollout", 1, 0); /* 2 ms */
	take(&w, other, 0x10000, 5 * KIB);		       /* 3 ms */
	take(&w, w.main_thread, 0x20000, 20 * KIB);	       /* 4 ms: the peak, 35 KiB */
	dealloc(&w, CUDA(0), 0x20000, 20 * KIB);	       /* 5 ms */
	take(&w, w.main_thread, 0x30000, KIB);		       /* 6 ms */
	dealloc(&w, CUDA(0), 0x1000, 10 * KIB);		       /* 7 ms: part of the run */
	tell(&w, w.main_thread, SCOPE_END, "rollout", 1, 0);   /* 8 ms */
	take(&w, w.main_thread, 0x40000, 100 * KIB);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 1);
	assert_string_equal(scope(&w, 0).name, "rollout");
	assert_int_equal(scope(&w, 0).source, SCOPE_PHASE);
	assert_int_equal(scope(&w, 0).time, 6 * MS);
	assert_int_equal(level(&w, 0).start, 10 * KIB);
	assert_int_equal(level(&w, 0).peak, 35 * KIB);
	assert_int_equal(level(&w, 0).peak_event, 4);
	assert_int_equal(level(&w, 0).end, 6 * KIB);
	assert_int_equal(level(&w, 0).kept, KIB);
	assert_true(level(&w, 0).start_known && level(&w, 0).kept_known);
	model__scope_run(w.m, 0, &r);
	assert_int_equal(r.begin, 2 * MS);
	assert_int_equal(r.end, 8 * MS);
	assert_true(r.ended && !r.earlier);
	world__free(&w);
}

/* A scope without allocations has the memory that is there. */
static void test_named_without_allocation(void **state)
{
	struct world w = named();

	(void)state;
	take(&w, w.main_thread, 0x1000, 10 * KIB);
	tell(&w, w.main_thread, SCOPE_BEGIN, "idle", 1, 0);
	dealloc(&w, CUDA(0), 0x1000, 10 * KIB);
	tell(&w, w.main_thread, SCOPE_END, "idle", 1, 0);
	finish(&w);
	assert_int_equal(level(&w, 0).start, 10 * KIB);
	assert_int_equal(level(&w, 0).peak, 10 * KIB);
	assert_int_equal(level(&w, 0).end, 0);
	world__free(&w);
}

static void read_host(struct world *w, uint64_t rss)
{
	feed(w, (struct event){ .kind = EVENT_HOST,
				.device = { .type = DEVICE_HOST },
				.how = HOST_TOTAL,
				.size = rss });
}

/* Host memory: the run with the highest reading counts. */
static void test_host_readings(void **state)
{
	struct world w = named();
	struct model_scope_host h;

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "load", 1, 0);
	assert_false(model__scope_host(w.m, 0, &h));
	tell(&w, w.main_thread, SCOPE_END, "load", 1, 0);
	read_host(&w, 10 * KIB); /* 3 ms */
	tell(&w, w.main_thread, SCOPE_BEGIN, "step", 2, 0);
	read_host(&w, 50 * KIB); /* 5 ms */
	read_host(&w, 40 * KIB); /* 6 ms */
	tell(&w, w.main_thread, SCOPE_SUSPEND, "step", 2, 0);
	read_host(&w, 90 * KIB); /* another task's */
	tell(&w, w.main_thread, SCOPE_RESUME, "step", 2, 0);
	tell(&w, w.main_thread, SCOPE_END, "step", 2, 0);
	tell(&w, w.main_thread, SCOPE_BEGIN, "step", 3, 0);
	read_host(&w, 45 * KIB);
	tell(&w, w.main_thread, SCOPE_END, "step", 3, 0);
	finish(&w);
	assert_true(model__scope_host(w.m, 0, &h) && !h.readings && !h.peak.known);
	assert_true(model__scope_host(w.m, 1, &h));
	assert_true(h.readings == 3 && h.run == 1);
	assert_true(h.start.known && h.start.time == 3 * MS && h.start.rss == 10 * KIB);
	assert_true(h.peak.known && h.peak.time == 5 * MS && h.peak.rss == 50 * KIB);
	assert_true(h.end.known && h.end.time == 6 * MS && h.end.rss == 40 * KIB);
	world__free(&w);
}

/* A reading after a function's last allocation is not known to be part of it. */
static void test_host_readings_of_function(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t out = STACK(&w, "main"), in = STACK(&w, "main", "train");
	struct model_scope_host h;

	(void)state;
	alloc(&w, CUDA(0), 0x1000, KIB, in);
	read_host(&w, 20 * KIB);
	alloc(&w, CUDA(0), 0x2000, KIB, in);
	read_host(&w, 30 * KIB);
	alloc(&w, CUDA(0), 0x3000, KIB, out);
	finish(&w);
	assert_true(model__scope_host(w.m, 0, &h));
	assert_true(h.readings == 1 && !h.start.known && h.peak.rss == 20 * KIB);
	world__free(&w);
}

/* Named scopes and functions are inside each other; a function's end leaves a named scope open. */
static void test_named_and_functions(void **state)
{
	struct world w = scoped("train", "loss");
	uint32_t out = STACK(&w, "main"), in = STACK(&w, "main", "train"),
		 inner = STACK(&w, "main", "train", "loss");

	(void)state;
	alloc(&w, CUDA(0), 0x1000, KIB, in);
	tell(&w, w.main_thread, SCOPE_BEGIN, "step", 1, 0);
	alloc(&w, CUDA(0), 0x2000, KIB, inner);
	alloc(&w, CUDA(0), 0x3000, KIB, out);
	tell(&w, w.main_thread, SCOPE_END, "step", 1, 0);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 3);
	assert_string_equal(scope(&w, 1).name, "step");
	assert_int_equal(scope(&w, 1).parent, 0);
	assert_string_equal(scope(&w, 2).name, "loss");
	assert_int_equal(scope(&w, 2).parent, 1);
	assert_int_equal(scope(&w, 2).depth, 2);
	assert_int_equal(level(&w, 1).end, 3 * KIB);
	world__free(&w);
}

/* A scope of this name wins over a function of this name. */
static void test_name_of_both(void **state)
{
	struct world w = scoped("train", NULL);
	struct model_scope s;

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "train", 1, 0);
	alloc(&w, CUDA(0), 0x1000, KIB, STACK(&w, "main", "train"));
	tell(&w, w.main_thread, SCOPE_END, "train", 1, 0);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 2);
	s = scope(&w, 0);
	assert_true(s.source == SCOPE_PHASE && model__scope_is(w.m, &s, "train"));
	s = scope(&w, 1);
	assert_true(!s.source && !model__scope_is(w.m, &s, "train"));
	world__free(&w);
}

/* Without numbers scopes nest on their threads. An end without a name is of the innermost one. */
static void test_without_numbers(void **state)
{
	struct world w = named();
	uint32_t other = w.autograd_thread;

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "a", 0, 0);
	tell(&w, w.main_thread, SCOPE_BEGIN, "b", 0, 0);
	tell(&w, other, SCOPE_END, NULL, 0, 0); /* begun before the recording: left out */
	take(&w, w.main_thread, 0x1000, KIB);
	tell(&w, w.main_thread, SCOPE_END, NULL, 0, 0);
	take(&w, w.main_thread, 0x2000, KIB);
	tell(&w, w.main_thread, SCOPE_END, NULL, 0, 0);
	finish(&w);
	assert_int_equal(model__scopes_left_out(w.m), 1);
	assert_int_equal(model__scopes(w.m), 2);
	assert_int_equal(scope(&w, 1).parent, 0);
	assert_int_equal(level(&w, 0).end, 2 * KIB);
	assert_int_equal(level(&w, 1).end, KIB);
	world__free(&w);
}

/* Two tasks of an event loop on one thread: the second is inside of nothing, and what runs while
 * the first is suspended is not part of it. */
static void test_tasks(void **state)
{
	struct world w = named();

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "generate", 1, 0);
	take(&w, w.main_thread, 0x1000, KIB);
	tell(&w, w.main_thread, SCOPE_SUSPEND, "generate", 1, 0); /* 3 ms */
	tell(&w, w.main_thread, SCOPE_BEGIN, "score", 2, 0);
	take(&w, w.main_thread, 0x10000, 100 * KIB);
	dealloc(&w, CUDA(0), 0x10000, 100 * KIB);
	tell(&w, w.main_thread, SCOPE_RESUME, "generate", 1, 0); /* 7 ms */
	take(&w, w.main_thread, 0x2000, KIB);
	tell(&w, w.main_thread, SCOPE_END, "generate", 1, 0); /* 9 ms */
	tell(&w, w.main_thread, SCOPE_END, "score", 2, 0);
	finish(&w);
	assert_int_equal(model__scopes(w.m), 2);
	assert_int_equal(scope(&w, 1).parent, SIZE_MAX);
	assert_int_equal(level(&w, 0).peak, 2 * KIB);
	assert_int_equal(level(&w, 0).end, 2 * KIB);
	assert_false(level(&w, 0).kept_known);
	assert_int_equal(scope(&w, 0).time, 4 * MS); /* 8 ms without 4 */
	assert_int_equal(level(&w, 1).peak, 101 * KIB);
	world__free(&w);
}

/* A scope that is around another by its number, in spite of a third one that began between. */
static void test_around(void **state)
{
	struct world w = named();

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "a", 1, 0);
	tell(&w, w.main_thread, SCOPE_BEGIN, "b", 2, 0);
	tell(&w, w.main_thread, SCOPE_BEGIN, "c", 3, 1);
	tell(&w, w.main_thread, SCOPE_END, "a", 1, 0);
	tell(&w, w.main_thread, SCOPE_END, "c", 3, 1);
	finish(&w);
	assert_int_equal(scope(&w, 1).parent, SIZE_MAX);
	assert_int_equal(scope(&w, 2).parent, 0);
	assert_int_equal(scope(&w, 1).open, 1);
	world__free(&w);
}

static void test_earlier(void **state)
{
	struct world w = named();
	struct model_scope_medians medians;

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN | SCOPE_EARLIER, "train", 1, 0);
	take(&w, w.main_thread, 0x1000, 3 * KIB);
	tell(&w, w.main_thread, SCOPE_END, "train", 1, 0);
	finish(&w);
	assert_int_equal(scope(&w, 0).earlier, 1);
	assert_false(level(&w, 0).start_known || level(&w, 0).kept_known);
	assert_int_equal(level(&w, 0).peak, 3 * KIB);
	model__scope_medians(w.m, 0, 0, &medians);
	assert_false(medians.change_known || medians.kept_known);
	world__free(&w);
}

/* Rows of memory that was allocated while a named scope was open. */
static bool keep_in(void *name, const struct row *row)
{
	struct scope_cache cache = { 0 };
	bool found = model__row_in_scope(row, name, &cache);

	/* The cache changes nothing. */
	assert_int_equal(model__row_in_scope(row, name, &cache), found);
	free(cache.locs);
	return found;
}

static uint64_t bytes_kept(const struct world *w, char *name)
{
	struct row_opts opts = { .by = BY_LINE, .when = ROWS_NOW, .keep = keep_in, .ctx = name };
	struct row *rows;
	uint64_t bytes = 0;
	size_t n;

	assert_int_equal(model__rows(w->m, 0, &opts, &rows, &n), 0);
	for (size_t i = 0; i < n; i++)
		bytes += rows[i].filtered ? 0 : rows[i].bytes;
	free(rows);
	return bytes;
}

static void test_rows_of_named(void **state)
{
	struct world w = named();

	(void)state;
	tell(&w, w.main_thread, SCOPE_BEGIN, "a", 1, 0);
	take(&w, w.main_thread, 0x1000, KIB);
	tell(&w, w.main_thread, SCOPE_BEGIN, "b", 2, 1);
	take(&w, w.main_thread, 0x2000, 2 * KIB);
	tell(&w, w.main_thread, SCOPE_END, "b", 2, 1);
	tell(&w, w.main_thread, SCOPE_END, "a", 1, 0);
	take(&w, w.main_thread, 0x3000, 4 * KIB);
	assert_int_equal(bytes_kept(&w, "a"), 3 * KIB);
	assert_int_equal(bytes_kept(&w, "b"), 2 * KIB);
	assert_int_equal(bytes_kept(&w, "c"), 0);
	world__free(&w);
}

/* Bounds: runs that are open at a time, and names. */
static void test_bounds_of_named(void **state)
{
	struct world w = named();
	char name[16];

	(void)state;
	for (uint64_t i = 1; i <= 300; i++)
		tell(&w, w.main_thread, SCOPE_BEGIN, "deep", i, i - 1);
	assert_int_equal(model__scopes_left_out(w.m), 44);
	for (uint64_t i = 1; i <= 300; i++)
		tell(&w, w.main_thread, SCOPE_END, "deep", i, 0);
	assert_int_equal(model__scopes_left_out(w.m), 88);
	for (uint64_t i = 1; i <= 5000; i++) {
		snprintf(name, sizeof(name), "n%d", (int)i);
		tell(&w, w.main_thread, SCOPE_BEGIN, name, 1000 + i, 0);
		tell(&w, w.main_thread, SCOPE_END, name, 1000 + i, 0);
	}
	finish(&w);
	assert_in_range(model__scopes(w.m), 4000, 4096);
	assert_true(model__scopes_left_out(w.m) > 88 + 900);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_names_of_a_function),
		cmocka_unit_test(test_numbers_of_runs),
		cmocka_unit_test(test_one_run),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_unknown_stacks),
		cmocka_unit_test(test_cut_in_dict),
		cmocka_unit_test(test_recursion_cut),
		cmocka_unit_test(test_generator),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_fact),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_rows_by_scope),
		cmocka_unit_test(test_backward),
		cmocka_unit_test(test_rows_of_objects),
		cmocka_unit_test(test_bounds_of_named),
		cmocka_unit_test(test_rows_of_named),
		cmocka_unit_test(test_earlier),
		cmocka_unit_test(test_around),
		cmocka_unit_test(test_tasks),
		cmocka_unit_test(test_without_numbers),
		cmocka_unit_test(test_name_of_both),
		cmocka_unit_test(test_named_and_functions),
		cmocka_unit_test(test_named_without_allocation),
		cmocka_unit_test(test_host_readings),
		cmocka_unit_test(test_host_readings_of_function),
		cmocka_unit_test(test_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
