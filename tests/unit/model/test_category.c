/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Categories of blocks, from the census or from lifetimes; compared with a naive model that keeps
 * everything. */
#include "unit/model_world.h"

#include "record/detail.h"

enum { FORWARD, BACKWARD, OPTIMIZER, OTHER, DATA, KINDS };

static uint32_t stack_in(struct world *w, int kind, uint32_t mod, int nr)
{
	char file[32];
	struct frame_spec f[3] = { { .file = "/u/train.py", .func = "main" } };

	snprintf(file, sizeof(file), "/u/%d.py", nr);
	f[2] = (struct frame_spec){ .file = file, .func = "f" };
	f[1] = (struct frame_spec){ .file = SP "nn/modules/module.py",
				    .func = "_call_impl",
				    .module = mod };
	if (kind == BACKWARD)
		f[1] = (struct frame_spec){ .file = SP "autograd/graph.py",
					    .func = "_engine_run_backward" };
	else if (kind == OPTIMIZER)
		f[1] = (struct frame_spec){ .file = SP "optim/adam.py", .func = "step" };
	else if (kind == DATA)
		f[1] = (struct frame_spec){ .file = SP "utils/data/dataloader.py",
					    .func = "__next__" };
	else if (kind == OTHER)
		f[1] = (struct frame_spec){ .file = "/u/other.py", .func = "g" };
	return stack_of(w, f, 3, MT_WALK_OK);
}

static void step_ends(struct world *w)
{
	feed(w, (struct event){ .kind = EVENT_STEP });
}

static void tensor(struct world *w, struct device d, uint64_t addr, uint64_t size, enum category c,
		   const char *name, uint32_t mod, uint8_t flags)
{
	feed(w, (struct event){ .kind = EVENT_TENSOR,
				.device = d,
				.addr = addr,
				.size = size,
				.category = c,
				.name = name ? str(w, name) : 0,
				.module = mod,
				.flags = flags });
}

static struct row *split(struct world *w, const char *dev, enum row_when when, unsigned by,
			 size_t *n)
{
	struct row_opts o = { .when = when, .split = by };
	struct row *r;

	assert_int_equal(model__rows(w->m, model__find_device(w->m, dev), &o, &r, n), 0);
	return r;
}

static uint64_t bytes_of(struct world *w, const char *dev, enum row_when when, enum category c)
{
	size_t n;
	struct row *r = split(w, dev, when, 1U << BY_CATEGORY, &n);
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		if (!strcmp(r[i].category, category__name(c)))
			bytes += r[i].bytes;
	free(r);
	return bytes;
}

#define AT(c) bytes_of(&w, "cuda:0", ROWS_AT_MARK, CATEGORY_##c)
#define NOW(c) bytes_of(&w, "cuda:0", ROWS_NOW, CATEGORY_##c)

/* In a step whose stacks were not recorded, a block that is freed at once may be an activation. */
static void test_without_stacks(void **state)
{
	struct frame_spec frames[] = { { .file = DETAIL_FILE, .func = DETAIL_BETWEEN },
				       { .file = DETAIL_FILE, .func = DETAIL_FUNCTION } };

	for (uint32_t i = 0; i < 2; i++) {
		struct world w = world__new(AT_PEAK, 0);

		alloc(&w, CUDA(0), 0x1000, 100, stack_of(&w, &frames[i], 1, MT_WALK_OFF));
		dealloc(&w, CUDA(0), 0x1000, 100);
		assert_int_equal(AT(TEMPORARY), i ? 100 : 0);
		assert_int_equal(AT(UNKNOWN), i ? 0 : 100);
		world__free(&w);
	}
}

/* Two steps of training from the start. The peak is in the first; later events show what its blocks
 * were. */
static void test_training(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t lin = module(&w, "lin", "Linear", "Net"), s[KINDS];

	for (int i = 0; i < KINDS; i++)
		s[i] = stack_in(&w, i, lin, i);
	alloc(&w, CUDA(0), 0x1000, 1000, s[OTHER]); /* a parameter */
	alloc(&w, CUDA(0), 0x2000, 10, s[OTHER]);   /* the first batch */
	alloc(&w, CUDA(0), 0x3000, 100, s[FORWARD]);
	alloc(&w, CUDA(0), 0x3100, 7, s[FORWARD]);
	dealloc(&w, CUDA(0), 0x3100, 7);
	alloc(&w, CUDA(0), 0x3200, 5000, s[FORWARD]); /* a library's workspace, never freed */
	alloc(&w, CUDA(0), 0x3300, 3, s[OTHER]);      /* the loss */
	alloc(&w, CUDA(0), 0x4000, 90, s[BACKWARD]);  /* a gradient */
	alloc(&w, CUDA(0), 0x4100, 50, s[BACKWARD]);  /* a temporary at the peak */
	assert_int_equal(AT(UNKNOWN), 1000 + 10 + 90 + 50 + 3);
	assert_int_equal(AT(ACTIVATION), 5100);
	dealloc(&w, CUDA(0), 0x3000, 100);
	dealloc(&w, CUDA(0), 0x3300, 3); /* kept for the backward */
	dealloc(&w, CUDA(0), 0x4100, 50);
	assert_int_equal(AT(TEMPORARY), 50);
	assert_int_equal(AT(ACTIVATION), 5103);
	alloc(&w, CUDA(0), 0x5000, 40, s[OPTIMIZER]);
	step_ends(&w);
	assert_int_equal(AT(GRADIENT), 90);
	dealloc(&w, CUDA(0), 0x4000, 90);
	dealloc(&w, CUDA(0), 0x2000, 10);
	assert_int_equal(AT(INPUT), 0); /* a forward began in its life */
	alloc(&w, CUDA(0), 0x2100, 10, s[OTHER]);
	assert_int_equal(AT(INPUT), 10); /* allocated like the first batch */
	alloc(&w, CUDA(0), 0x3000, 100, s[FORWARD]);
	assert_int_equal(NOW(INPUT), 10);
	tensor(&w, CUDA(0), 0x1000, 1000, CATEGORY_PARAMETER, "lin.weight", lin, 0);
	alloc(&w, CUDA(0), 0x4000, 60, s[BACKWARD]);
	alloc(&w, CUDA(0), 0x5100, 1, s[OPTIMIZER]);
	assert_int_equal(NOW(OPTIMIZER_STATE), 0);
	dealloc(&w, CUDA(0), 0x5100, 1);
	step_ends(&w);
	assert_int_equal(NOW(OPTIMIZER_STATE), 40);
	step_ends(&w);
	model__finish(w.m, w.time);
	assert_int_equal(AT(PARAMETER), 1000);
	assert_int_equal(AT(GRADIENT), 90);
	assert_int_equal(AT(ACTIVATION), 103);
	assert_int_equal(AT(TEMPORARY), 50);
	assert_int_equal(AT(UNKNOWN), 5000); /* bytes of the workspace */
	world__free(&w);
}

static void in_backward(struct world *w, enum event_kind kind, uint64_t addr, uint64_t size,
			uint32_t thread)
{
	uint32_t node = dict__node(w->d,
				   (struct dict_node){ .cls = str(w, "AddmmBackward0"),
						       .stack = simple(w, "/u/train.py", "f", 1) });

	w->allocated[0] += kind == EVENT_ALLOC ? size : -size;
	feed(w, (struct event){ .kind = kind,
				.device = CUDA(0),
				.addr = addr,
				.size = size,
				.thread = thread,
				.node = kind == EVENT_ALLOC ? node : 0,
				.walk = MT_WALK_NO_FRAME,
				.totals = true,
				.allocated = w->allocated[0] });
}

/* A loop that takes gradients and has no optimizer: gradients live when the next phase begins, or
 * another thread than that of backward frees them. */
static void test_no_optimizer(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t lin = module(&w, "lin", "Linear", "Net"), s[KINDS];

	for (int i = 0; i < KINDS; i++)
		s[i] = stack_in(&w, i, lin, i);
	alloc(&w, CUDA(0), 0x3000, 100, s[FORWARD]);
	in_backward(&w, EVENT_ALLOC, 0x4000, 90, w.autograd_thread);
	in_backward(&w, EVENT_ALLOC, 0x4100, 50, w.autograd_thread);
	in_backward(&w, EVENT_ALLOC, 0x4200, 7, w.autograd_thread);
	in_backward(&w, EVENT_FREE, 0x4100, 50, w.autograd_thread);
	assert_int_equal(AT(TEMPORARY), 50);
	in_backward(&w, EVENT_FREE, 0x4000, 90, w.main_thread);
	assert_int_equal(AT(GRADIENT), 90);
	dealloc(&w, CUDA(0), 0x3000, 100);
	alloc(&w, CUDA(0), 0x2000, 10, s[OTHER]);
	assert_int_equal(AT(GRADIENT), 97);
	assert_int_equal(NOW(GRADIENT), 7);
	world__free(&w);
}

/* Without backward and optimizer, the model's calls are the steps. */
static void test_inference(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t lin = module(&w, "", "Net", "Net"), forward = stack_in(&w, FORWARD, lin, 1),
		 model = stack_in(&w, OTHER, 0, 2);
	uint32_t data = stack_in(&w, OTHER, 0, 3), kept = stack_in(&w, OTHER, 0, 4);

	alloc(&w, CUDA(0), 0x1000, 1000, model);
	for (int i = 0; i < 5; i++) {
		alloc(&w, CUDA(0), 0x2000 + i, 20, data);
		if (i)
			dealloc(&w, CUDA(0), 0x2000 + i - 1, 20);
		if (i == 1)
			alloc(&w, CUDA(0), 0x3000, 300, kept);
		feed(&w, (struct event){ .kind = EVENT_CALL, .module = lin });
		alloc(&w, CUDA(0), 0x4000, 40, forward);
		assert_int_equal(NOW(INPUT), i == 0 ? 0 : i < 4 ? 320 : 20);
		alloc(&w, CUDA(0), 0x5000, 50, forward);
		dealloc(&w, CUDA(0), 0x4000, 40);
		dealloc(&w, CUDA(0), 0x5000, 50);
	}
	/* The first batch was freed before the second showed its category; the model's blocks end
	 * likewise. */
	dealloc(&w, CUDA(0), 0x1000, 1000);
	model__finish(w.m, w.time);
	assert_int_equal(AT(INPUT), 20);
	assert_int_equal(AT(UNKNOWN), 300);
	world__free(&w);
}

/* Blocks from before attach: named ones have their own rows, others share one, and the rows
 * add up. */
static void test_before_attach(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t lin = module(&w, "lin", "Linear", "Net"), fc = module(&w, "fc", "Linear", "Net"),
		 a = simple(&w, "/u/a.py", "f", 9);
	struct row_opts o = { .by = BY_LINE, .when = ROWS_AT_MARK };
	struct row *r;
	size_t n, named = 0;

	for (int i = 0; i < 4; i++)
		feed(&w, (struct event){ .kind = EVENT_BLOCK,
					 .device = CUDA(0),
					 .addr = 0x1000 + i * 0x1000,
					 .size = 512 });
	/* 300 bytes in unknown blocks, 1000 in a block that a tensor names */
	w.allocated[0] = 4 * 512 + 300 + 1000;
	alloc(&w, CUDA(0), 0x9000, 64, a); /* the peak, before the names are known */
	dealloc(&w, CUDA(0), 0x9000, 64);
	tensor(&w, CUDA(0), 0x1000, 400, CATEGORY_PARAMETER, "lin.weight", lin, CENSUS_FIRST);
	tensor(&w, CUDA(0), 0x2000, 400, CATEGORY_PARAMETER, "fc.weight", fc, CENSUS_FIRST);
	tensor(&w, CUDA(0), 0x3000, 400, CATEGORY_OPTIMIZER_STATE, "AdamW exp_avg of fc.weight", fc,
	       CENSUS_FIRST);
	tensor(&w, CUDA(0), 0x20000, 1000, CATEGORY_BUFFER, "fc.running_mean", fc, CENSUS_FIRST);
	tensor(&w, CUDA(0), 0x30000, 100000, CATEGORY_BUFFER, "no room for it", fc, CENSUS_FIRST);
	tensor(&w, CUDA(0), 0x4000, 513, CATEGORY_PARAMETER, "larger than its block", lin,
	       CENSUS_FIRST);
	feed(&w, (struct event){ .kind = EVENT_CENSUS, .device = CUDA(0), .flags = CENSUS_FIRST });
	tensor(&w, CUDA(0), 0x40000, 10, CATEGORY_BUFFER, "too late for it", fc, CENSUS_FIRST);
	assert_int_equal(AT(PARAMETER), 1024);
	assert_int_equal(AT(OPTIMIZER_STATE), 512);
	assert_int_equal(AT(BUFFER), 1000);
	assert_int_equal(model__rows(w.m, 0, &o, &r, &n), 0);
	assert_int_equal(rows_sum(r, n), 4 * 512 + 1300 + 64);
	for (size_t i = 0; i < n; i++) {
		if (!r[i].before_attach)
			continue;
		assert_string_equal(r[i].source, "census");
		named += r[i].name != NULL;
		assert_true(r[i].name ||
			    (r[i].bytes == 812 && r[i].anonymous == 300 && r[i].count == 1));
		if (r[i].name && !strcmp(r[i].name, "AdamW exp_avg of fc.weight")) {
			assert_string_equal(r[i].module, "fc");
			assert_string_equal(r[i].category, "optimizer_state");
		}
	}
	assert_int_equal(named, 4);
	free(r);
	r = split(&w, "cuda:0", ROWS_AT_MARK, 1U << BY_MODULE | 1U << BY_CATEGORY, &n);
	assert_int_equal(n, 6); /* lin and fc parameters, state, buffer, line 9, unknown */
	assert_int_equal(rows_sum(r, n), 4 * 512 + 1300 + 64);
	free(r);
	/* The tensor's block was larger than the tensor: freeing it removes all of it. */
	dealloc(&w, CUDA(0), 0x20000, 1024);
	assert_int_equal(device(&w, "cuda").drift, 0);
	assert_int_equal(device(&w, "cuda").before_attach, 4 * 512 + 300 - 24);
	assert_int_equal(AT(BUFFER), 1000);
	assert_int_equal(NOW(BUFFER), 0);
	world__free(&w);
}

/* An allocator without totals or tables: blocks found by the first census count as allocated
 * before. */
static void test_no_totals(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 9);
	struct model_step s;
	size_t n;
	struct row *r;

	alloc(&w, CPU, 0x10, 100, a);
	dealloc(&w, CPU, 0x999, 0); /* from before attach, freed when the names arrive */
	step_ends(&w);
	dealloc(&w, CPU, 0x10, 0);
	alloc(&w, CPU, 0x20, 30, a);
	tensor(&w, CPU, 0x999, 50, CATEGORY_PARAMETER, "gone", 0, CENSUS_FIRST);
	tensor(&w, CPU, 0x500, 1000, CATEGORY_PARAMETER, "w", 0, CENSUS_FIRST);
	tensor(&w, CPU, 0x500, 1000, CATEGORY_PARAMETER, "w again", 0, CENSUS_FIRST);
	tensor(&w, CPU, 0x600, 1, CATEGORY_PARAMETER, "not of the first reading", 0, 0);
	assert_int_equal(device(&w, "cpu").allocated, 1030);
	assert_int_equal(device(&w, "cpu").peak_allocated, 1100);
	assert_int_equal(device(&w, "cpu").mark_allocated, 1100);
	r = split(&w, "cpu", ROWS_AT_MARK, 1U << BY_CATEGORY, &n);
	assert_int_equal(rows_sum(r, n), 1100);
	assert_string_equal(r[0].category, "parameter");
	assert_string_equal(r[0].name, "w again");
	free(r);
	step_ends(&w);
	dealloc(&w, CPU, 0x500, 0);
	assert_int_equal(device(&w, "cpu").allocated, 30);
	assert_true(model__step(w.m, 0, &s));
	assert_int_equal(s.peak, 1100);
	assert_int_equal(s.end_allocated, 1100);
	assert_true(model__step(w.m, 1, &s));
	assert_int_equal(s.peak, 1100);
	assert_int_equal(s.end_allocated, 1030);
	alloc(&w, CPU, 0x30, 1070, a); /* as high as the peak, so no new peak */
	assert_int_equal(device(&w, "cpu").peak_time, 1 * MS);
	world__free(&w);
}

/* A name belongs to the block that was live when the census began. */
static void test_not_for_a_later_block(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 9);

	alloc(&w, CUDA(0), 0x10, 512, a);
	assert_int_equal(model__event(w.m, &(struct event){ .kind = EVENT_TENSOR,
							    .device = CUDA(0),
							    .addr = 0x10,
							    .size = 9,
							    .category = CATEGORY_BUFFER,
							    .time = MS - 1 }),
			 0);
	assert_int_equal(NOW(BUFFER), 0);
	assert_int_equal(model__event(w.m, &(struct event){ .kind = EVENT_TENSOR,
							    .device = CUDA(0),
							    .addr = 0x10,
							    .size = 9,
							    .category = CATEGORY_BUFFER,
							    .time = MS }),
			 0);
	assert_int_equal(NOW(BUFFER), 512);
	tensor(&w, CUDA(0), 0x10, 9, CATEGORY_GRADIENT, "g", 0, 0);
	assert_int_equal(NOW(BUFFER), 0);
	assert_int_equal(NOW(GRADIENT), 512);
	dealloc(&w, CUDA(0), 0x10, 512);
	alloc(&w, CUDA(0), 0x10, 512, a);
	assert_int_equal(NOW(UNKNOWN), 512);
	tensor(&w, CUDA(0), 0x10, 9, 200, "w", UINT32_MAX, 255);
	assert_int_equal(NOW(UNKNOWN), 512);
	world__free(&w);
}

static void module_is(struct world *w, const char *expected)
{
	size_t n;
	struct row *r = split(w, "cuda:0", ROWS_NOW, 1U << BY_MODULE, &n);

	assert_int_equal(n, 1);
	assert_string_equal(r[0].module, expected);
	free(r);
}

/* A program that ends takes its modules apart before its optimizer: the last reading finds the
 * state of parameters that no module has any more. */
static void test_module_of_an_earlier_reading(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t lin = module(&w, "lin", "Linear", "Net");

	alloc(&w, CUDA(0), 0x10, 512, simple(&w, "/u/a.py", "f", 9));
	tensor(&w, CUDA(0), 0x10, 9, CATEGORY_OPTIMIZER_STATE, "s", lin, 0);
	tensor(&w, CUDA(0), 0x10, 9, CATEGORY_OPTIMIZER_STATE, "s", 0, 0);
	module_is(&w, "lin");
	/* In another role, it has the module of that role only. */
	tensor(&w, CUDA(0), 0x10, 9, CATEGORY_BUFFER, "b", 0, 0);
	module_is(&w, "");
	world__free(&w);
}

/* --- random streams, compared with a model that keeps and searches everything */

#define MOMENTS 700
#define BLOCKS 900
struct memory {
	struct stretch {
		int kind;	/* -1: end of a step */
	} history[2 * MOMENTS]; /* an entry per change of phase and end of step */
	size_t n;
	struct life {
		uint64_t addr, size;
		int kind;	   /* -1: named by a census */
		size_t born, died; /* indexes of entries; died: SIZE_MAX while live */
		enum category label;
		bool at_mark;
	} all[BLOCKS];
	size_t nall;
	uint64_t total, peak;
};

static void memory__happens(struct memory *v, int kind)
{
	if (!v->n || kind < 0 || v->history[v->n - 1].kind != kind)
		v->history[v->n++].kind = kind;
}

/* Number of phases of a kind (or ends of steps) that began in the entries from `from` to `end`. */
static size_t count(const struct memory *v, int kind, size_t from, size_t end)
{
	size_t n = 0;

	for (size_t i = from; i < end; i++)
		n += v->history[i].kind == kind;
	return n;
}

static int last_of(const struct memory *v, size_t end)
{
	while (end--)
		if (v->history[end].kind >= FORWARD && v->history[end].kind <= OPTIMIZER)
			return v->history[end].kind;
	return -1;
}

static enum category memory__category(const struct memory *v, const struct life *b, size_t n)
{
	bool dead = b->died != SIZE_MAX, steps_seen;
	size_t end = dead ? b->died : n, after, steps;
	int before;

	if (b->label)
		return b->label;
	if (b->kind < 0)
		return CATEGORY_UNKNOWN;
	after = b->born + 1; /* entries after its allocation */
	if (end == after)
		return dead ? CATEGORY_TEMPORARY : CATEGORY_UNKNOWN;
	steps_seen = count(v, -1, 0, end);
	steps = count(v, steps_seen ? -1 : OPTIMIZER, after, end);
	before = last_of(v, b->born);
	switch (b->kind) {
	case FORWARD:
		return count(v, BACKWARD, after, end) && steps < 3 ? CATEGORY_ACTIVATION
								   : CATEGORY_UNKNOWN;
	case BACKWARD:
		if (!steps_seen && !count(v, OPTIMIZER, 0, end))
			return CATEGORY_GRADIENT;
		return steps && steps < 3 ? CATEGORY_GRADIENT : CATEGORY_UNKNOWN;
	case OPTIMIZER:
		return steps >= 2 ? CATEGORY_OPTIMIZER_STATE : CATEGORY_UNKNOWN;
	}
	if (before == FORWARD && count(v, BACKWARD, 0, end)) {
		bool gone_in_it = dead && v->history[end - 1].kind == BACKWARD;

		return gone_in_it && count(v, BACKWARD, after, end) == 1 && !steps
			       ? CATEGORY_ACTIVATION
			       : CATEGORY_UNKNOWN;
	}
	if (!count(v, FORWARD, after, end) || steps >= 3)
		return CATEGORY_UNKNOWN;
	if (before >= 0)
		return CATEGORY_INPUT;
	for (size_t i = 0; i < v->nall; i++) /* a similar block, later? */
		if (v->all[i].kind == b->kind && v->all[i].size == b->size &&
		    last_of(v, v->all[i].born) >= 0)
			return CATEGORY_INPUT;
	return CATEGORY_UNKNOWN;
}

static void memory__compare(struct world *w, const struct memory *v, enum row_when when)
{
	for (int c = 0; c < CATEGORY_NR; c++) {
		uint64_t bytes = 0;

		for (size_t i = 0; i < v->nall; i++) {
			const struct life *b = &v->all[i];

			if ((when == ROWS_NOW ? b->died == SIZE_MAX : b->at_mark) &&
			    memory__category(v, b, v->n) == (enum category)c)
				bytes += b->size;
		}
		assert_int_equal(bytes_of(w, "cuda:0", when, c), bytes);
	}
}

static void memory__mark(struct memory *v)
{
	if (v->total <= v->peak)
		return;
	v->peak = v->total;
	for (size_t i = 0; i < v->nall; i++)
		v->all[i].at_mark = v->all[i].died == SIZE_MAX;
}

static struct life *any_alive(struct memory *v)
{
	for (int tries = 0; tries < 40 && v->nall; tries++) {
		struct life *b = &v->all[rand() % v->nall];

		if (b->died == SIZE_MAX)
			return b;
	}
	return NULL;
}

static void random_run(unsigned seed)
{
	struct world w = world__new(AT_PEAK, 0);
	static struct memory v;
	uint32_t lin = module(&w, "lin", "Linear", "Net"), s[KINDS], free_places = 0;
	int kind = OTHER;
	bool steps = seed % 3;

	memset(&v, 0, sizeof(v));
	srand(seed);
	for (int i = 0; i < KINDS; i++)
		s[i] = stack_in(&w, i, lin, i);
	for (int i = 0; i < 5; i++) {
		v.all[v.nall++] = (struct life){
			.addr = 0x100 + i, .size = 100, .kind = -1, .died = SIZE_MAX
		};
		feed(&w, (struct event){ .kind = EVENT_BLOCK,
					 .device = CUDA(0),
					 .addr = 0x100 + i,
					 .size = 100 });
	}
	v.total = w.allocated[0] = 500;
	for (int moment = 0; moment < MOMENTS; moment++) {
		int what = moment ? rand() % 100 : 0;
		struct life *b;

		if (rand() % 6 == 0) /* mostly in the order of a training job */
			kind = rand() % 4 ? (kind == OPTIMIZER ? OTHER
					     : kind == OTHER   ? FORWARD
					     : kind == DATA    ? FORWARD
							       : kind + 1)
					  : rand() % KINDS;
		if (what < 50) {
			memory__happens(&v, kind);
			v.all[v.nall] = (struct life){ .addr = 0x1000 + moment,
						       .size = 1 + rand() % 50,
						       .kind = kind,
						       .born = v.n - 1,
						       .died = SIZE_MAX };
			b = &v.all[v.nall++];
			v.total += b->size;
			alloc(&w, CUDA(0), b->addr, b->size, s[kind]);
			memory__mark(&v);
		} else if (what < 94) {
			b = any_alive(&v);
			if (!b)
				continue;
			b->died = v.n;
			v.total -= b->size;
			dealloc(&w, CUDA(0), b->addr, b->size);
			free_places++;
		} else if (what < 96 && steps) {
			memory__happens(&v, -1);
			step_ends(&w);
		} else if (what < 98) {
			b = any_alive(&v);
			if (!b)
				continue;
			b->label = CATEGORY_PARAMETER + rand() % 4;
			tensor(&w, CUDA(0), b->addr, b->size, b->label, "t", lin, 0);
		}
		if (moment % 16 == 0) {
			memory__compare(&w, &v, ROWS_NOW);
			memory__compare(&w, &v, ROWS_AT_MARK);
		}
	}
	model__finish(w.m, w.time);
	assert_true(free_places > 100);
	assert_int_equal(device(&w, "cuda:0").peak_allocated, v.peak);
	memory__compare(&w, &v, ROWS_AT_MARK);
	world__free(&w);
}

#define PY(f, name)                                                                                \
	{                                                                                          \
		.file = (f), .func = (name)                                                        \
	}
#define TORCH(name)                                                                                \
	{                                                                                          \
		.file = "libtorch_cuda.so", .func = name "+0x10"                                   \
	}

/* Functions of compiled code give workspaces and buckets their role. Backward on autograd's
 * thread has no Python frame. */
static void test_compiled_code(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	const struct frame_spec first[] = { PY("/u/train.py", "main"), TORCH("at::native::linear"),
					    TORCH("at::cuda::getCurrentCUDABlasHandle"),
					    TORCH("at::cuda::setWorkspaceForHandle") };
	const struct frame_spec output[] = { PY("/u/train.py", "main"), TORCH("at::native::linear"),
					     TORCH("at::native::empty_cuda"),
					     TORCH("at::detail::empty_generic") };
	const struct frame_spec second[] = { TORCH("torch::autograd::Engine::thread_main"),
					     TORCH("at::native::mm"),
					     TORCH("at::cuda::getCUDABlasLtWorkspace") };
	const struct frame_spec grad[] = { TORCH("torch::autograd::Engine::thread_main"),
					   TORCH("at::native::mm") };
	const struct frame_spec bucket[] = { PY(SP "nn/parallel/distributed.py", "_pre_forward"),
					     TORCH("c10d::Reducer::initialize_buckets"),
					     TORCH("at::native::empty_cuda") };
	struct dict_node n = { .cls = str(&w, "MmBackward0"),
			       .stack = stack_of(&w, output, 1, MT_WALK_OK) };
	struct event e = { .kind = EVENT_ALLOC, .node = dict__node(w.d, n), .device = CUDA(0) };
	struct row_opts by_native = { .when = ROWS_NOW, .which_line = FRAMES_NATIVE };
	struct row *r;
	size_t rows;

	alloc(&w, CUDA(0), 0x1000, 1, stack_of(&w, first, N(first), MT_WALK_OK));
	alloc(&w, CUDA(0), 0x2000, 20, stack_of(&w, output, N(output), MT_WALK_OK));
	alloc(&w, CUDA(0), 0x3000, 300, stack_of(&w, bucket, N(bucket), MT_WALK_OK));
	e.addr = 0x4000, e.size = 4000;
	e.stack = stack_of(&w, second, N(second), MT_WALK_OK);
	feed(&w, e);
	e.addr = 0x8000, e.size = 50000;
	e.stack = stack_of(&w, grad, N(grad), MT_WALK_OK);
	feed(&w, e);
	e.addr = 0x20000, e.size = 600000;
	e.stack = stack_of(&w, &grad[1], 1,
			   MT_WALK_TRUNCATED); /* the copy ended before the engine */
	feed(&w, e);
	assert_int_equal(NOW(WORKSPACE), 4001);
	assert_int_equal(NOW(BUCKET), 300);
	assert_int_equal(NOW(UNKNOWN), 650020);

	/* A gradient belongs to its line in forward, a workspace to no node. */
	r = split(&w, "cuda:0", ROWS_NOW, 1U << BY_PHASE | 1U << BY_LINE, &rows);
	for (size_t i = 0; i < rows; i++) {
		bool workspace = r[i].bytes == 4000;

		if (r[i].phase != PHASE_BACKWARD)
			continue;
		assert_int_equal(workspace ? 4000 : 650000, r[i].bytes);
		assert_string_equal(r[i].file, workspace ? "libtorch_cuda.so" : "/u/train.py");
	}
	free(r);
	assert_int_equal(model__rows(w.m, model__find_device(w.m, "cuda:0"), &by_native, &r, &rows),
			 0);
	for (size_t i = 0; i < rows; i++)
		if (r[i].bytes == 20)
			assert_string_equal(r[i].func, "at::native::linear+0x10");
	free(r);
	world__free(&w);
}

/* A call runs out of memory, and the next one, too: what the first allocated in forward stays.
 * Outputs, weights and what the call under way has do not count. */
static void test_kept_by_an_error(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t net = module(&w, "", "Net", "Net"), forward = stack_in(&w, FORWARD, net, 1),
		 other = stack_in(&w, OTHER, 0, 2);
	struct model_oom o;

	alloc(&w, CUDA(0), 0x1000, 1000, other);
	for (int i = 0; i < 3; i++) {
		if (i == 2) { /* the next exception replaced the first */
			dealloc(&w, CUDA(0), 0x4000, 400);
			dealloc(&w, CUDA(0), 0x5000, 50);
		}
		alloc(&w, CUDA(0), 0x2000 + i, 20, other); /* an input */
		/* The first call of a module is not known as one. */
		feed(&w, (struct event){ .kind = i ? EVENT_CALL : EVENT_ENTER, .module = net });
		alloc(&w, CUDA(0), 0x4000 + i, 400, forward);
		alloc(&w, CUDA(0), 0x5000 + i, 50, forward);
		oom(&w, CUDA(0), 1 << 20);
		/* Without room for all of it, the call tries again with less. */
		if (!i)
			oom(&w, CUDA(0), 1 << 10);
		else
			dealloc(&w, CUDA(0), 0x5000 + i, 50);
	}
	model__finish(w.m, w.time);
	for (int i = 0; i < 4; i++) {
		static const uint64_t kept[] = { 0, 0, 450, 400 };

		assert_true(model__oom(w.m, 0, i, &o));
		assert_int_equal(o.kept, kept[i]);
	}
	world__free(&w);
}

static void test_random(void **state)
{
	for (unsigned seed = 1; seed <= 60; seed++)
		random_run(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_stacks),
		cmocka_unit_test(test_training),
		cmocka_unit_test(test_no_optimizer),
		cmocka_unit_test(test_inference),
		cmocka_unit_test(test_before_attach),
		cmocka_unit_test(test_no_totals),
		cmocka_unit_test(test_not_for_a_later_block),
		cmocka_unit_test(test_module_of_an_earlier_reading),
		cmocka_unit_test(test_compiled_code),
		cmocka_unit_test(test_kept_by_an_error),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
