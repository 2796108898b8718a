/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Advice on a simulated training job that runs twice: wasteful, and with the remedy. The predicted
 * peak must equal the second run's peak, to the byte where advice claims that. Then invalid
 * recordings.
 */
#include "unit/model_world.h"

#include "record/host.h"
#include "report/advice/internal.h"

#define LAYERS 6
#define CASTS 5
#define STEPS 3
#define LEAKY_STEPS 40
#define STATE (32 * 1024)
#define MASK 3000
#define LOGITS 9000

struct job {
	bool plain;	   /* without checkpointing */
	bool late, zeroed; /* gradients: freed after forward; never freed */
	bool held;	   /* logits are held until the next ones exist */
	bool masks;	   /* one mask per block */
	bool foreach;
	bool eval;	/* a forward without backward in between, with its own peak */
	bool attached;	/* the recording begins with parameters and gradients in place */
	bool on_cpu;	/* attached, on the CPU: the allocator tells no totals */
	bool read_late; /* on_cpu, and the objects are read in the middle of the second step */
	bool cut; /* the recording ends in one more step, with the highest peak before backward */
	uint64_t grad;
	int casts;	    /* casts of the parameter in each call of its module */
	uint8_t item;	    /* bytes per element of Adam's moments; 0: no state */
	bool small;	    /* the moments have 8 bits */
	uint64_t leak;	    /* bytes kept in each step, in a job of LEAKY_STEPS */
	unsigned most;	    /* longest step that is replayed; 0: the default */
	unsigned look;	    /* asks for advice after each so many events; 0: only at the end */
	const char *models; /* the recording says this of the models of the program */
};

struct play {
	struct world w;
	struct analysis a;
	struct advisor *v;
	struct job job;
	uint32_t blocks[LAYERS], inner[LAYERS], head;
	uint32_t fwd[LAYERS], deep[LAYERS], logits, loss, other, init, opt, engine[LAYERS];
	uint32_t node[LAYERS];
	uint64_t next, peak;
	uint64_t sizes[4096];
	unsigned events;
};

static struct device device_of(const struct play *p)
{
	return p->job.on_cpu ? CPU : CUDA(0);
}

static void tell(struct play *p, struct event e)
{
	p->w.time += MS;
	e.time = p->w.time;
	e.thread = e.thread ? e.thread : p->w.main_thread;
	assert_int_equal(advisor__event(p->v, &e), 0);
	assert_int_equal(model__event(p->w.m, &e), 0);
	if (p->job.look && ++p->events % p->job.look == 0) {
		struct advice_list list;

		assert_int_equal(advisor__advise(p->v, 0, p->w.time, &list), 0);
		advice__free_list(&list);
	}
}

static uint64_t take(struct play *p, uint64_t size, uint32_t stack, uint32_t node)
{
	uint64_t addr = p->next++;

	assert_true(addr < 4096);
	p->sizes[addr] = size;
	p->w.allocated[0] += size;
	p->peak = p->w.allocated[0] > p->peak ? p->w.allocated[0] : p->peak;
	tell(p, (struct event){ .kind = EVENT_ALLOC,
				.device = device_of(p),
				.addr = addr << 12,
				.size = size,
				.stack = stack,
				.node = node,
				.walk = node ? MT_WALK_NO_FRAME : MT_WALK_OK,
				.thread = node ? p->w.autograd_thread : 0,
				.totals = !p->job.on_cpu,
				.allocated = p->w.allocated[0],
				.reserved = 1 << 20 });
	return addr;
}

static void give(struct play *p, uint64_t addr)
{
	p->w.allocated[0] -= p->sizes[addr];
	tell(p, (struct event){ .kind = EVENT_FREE,
				.device = device_of(p),
				.addr = addr << 12,
				.size = p->sizes[addr],
				.totals = !p->job.on_cpu,
				.allocated = p->w.allocated[0],
				.reserved = 1 << 20 });
}

static void name(struct play *p, uint64_t addr, enum category c, const char *text, uint32_t mod,
		 uint8_t item)
{
	tell(p, (struct event){ .kind = EVENT_TENSOR,
				.device = device_of(p),
				.addr = addr << 12,
				.size = p->sizes[addr],
				.category = c,
				.name = str(&p->w, text),
				.module = mod,
				.flags = item ? (uint8_t)(1 + __builtin_ctz(item)) : 0 });
}

static uint32_t in_module(struct play *p, const char *file, uint32_t mod)
{
	struct frame_spec f[] = {
		{ .file = "/u/train.py", .func = "main" },
		{ .file = SP "nn/modules/module.py", .func = "_call_impl", .module = mod },
		{ .file = file, .func = "Block.forward" }
	};

	return stack_of(&p->w, f, N(f), MT_WALK_OK);
}

static void make_stacks(struct play *p)
{
	struct frame_spec opt[] = { { .file = "/u/train.py", .func = "main" },
				    { .file = SP "optim/adam.py", .func = "AdamW.step" },
				    { .file = SP "optim/adam.py", .func = "_multi_tensor_adam" } };
	struct frame_spec loss[] = { { .file = "/u/train.py", .func = "main" },
				     { .file = SP "nn/functional.py", .func = "cross_entropy" } };

	for (int i = 0; i < LAYERS; i++) {
		char text[32];
		struct frame_spec f[] = {
			{ .file = "/u/train.py", .func = "main" },
			{ .file = SP "autograd/graph.py", .func = "_engine_run_backward" },
			{ .file = SP "nn/modules/module.py", .func = "_call_impl" },
			{ .file = "/u/model.py", .func = "Block.forward" }
		};

		snprintf(text, sizeof(text), "blocks.%d", i);
		p->blocks[i] = module(&p->w, text, "Block", "Net");
		snprintf(text, sizeof(text), "blocks.%d.mlp.0", i);
		p->inner[i] = module(&p->w, text, "Linear", "Net");
		p->fwd[i] = in_module(p, "/u/model.py", p->blocks[i]);
		p->deep[i] = in_module(p, "/u/model.py", p->inner[i]);
		f[2].module = p->blocks[i];
		p->engine[i] = stack_of(&p->w, f, N(f), MT_WALK_OK);
		p->node[i] = dict__node(p->w.d,
					(struct dict_node){ .cls = str(&p->w, "AddmmBackward0"),
							    .stack = p->deep[i] });
	}
	p->head = module(&p->w, "head", "Linear", "Net");
	p->logits = in_module(p, "/u/model.py", p->head);
	p->loss = stack_of(&p->w, loss, N(loss), MT_WALK_OK);
	p->opt = stack_of(&p->w, opt, N(opt), MT_WALK_OK);
	opt[2].func = "Adam._init_group";
	p->init = stack_of(&p->w, opt, N(opt), MT_WALK_OK);
	p->other = simple(&p->w, "/u/train.py", "main", 1);
}

/* A block that was there when the capture began. */
static uint64_t older(struct play *p, uint64_t size)
{
	uint64_t addr = p->next++;

	p->sizes[addr] = size;
	p->w.allocated[0] += size;
	if (p->job.on_cpu)
		return addr;
	tell(p, (struct event){ .kind = EVENT_BLOCK,
				.device = device_of(p),
				.addr = addr << 12,
				.size = size });
	return addr;
}

struct kept {
	uint64_t kept[LAYERS][3], cast[LAYERS][CASTS], out[LAYERS], grad[LAYERS], logits,
		old_logits;
	bool graded, held;
};

/* Allocates what a block keeps, and a temporary before the last tensor. */
static void forward_block(struct play *p, struct kept *k, int i, bool again, bool keeps)
{
	uint32_t deep = again ? p->engine[i] : p->deep[i];
	uint64_t way;

	k->kept[i][0] = take(p, 1000, deep, 0);
	way = take(p, 700, deep, 0);
	k->kept[i][1] = take(p, 400, deep, 0);
	give(p, way);
	k->kept[i][2] = take(p, 50, deep, 0);
	for (int n = 0; n < p->job.casts && !again; n++)
		k->cast[i][n] = take(p, p->job.grad / 2, deep, 0);
	if (!again)
		k->out[i] = take(p, 100, p->fwd[i], 0);
	for (int n = 0; n < 3 && !keeps; n++)
		give(p, k->kept[i][n]);
}

static void evaluate(struct play *p)
{
	uint64_t all[LAYERS];

	for (int i = 0; i < LAYERS; i++)
		all[i] = take(p, 900, p->fwd[i], 0);
	for (int i = 0; i < LAYERS; i++)
		give(p, all[i]);
}

static void zero_grad(struct play *p, struct kept *k)
{
	for (int i = 0; i < LAYERS && k->graded && !p->job.zeroed; i++)
		give(p, k->grad[i]);
	k->graded &= p->job.zeroed;
}

static void backward(struct play *p, struct kept *k)
{
	uint64_t way;

	for (int i = LAYERS - 1; i >= 0; i--) {
		if (!p->job.plain)
			forward_block(p, k, i, true, true);
		way = take(p, 300, 0, p->node[i]);
		for (int n = 0; n < 3; n++)
			give(p, k->kept[i][n]);
		for (int n = 0; n < p->job.casts; n++)
			give(p, k->cast[i][n]);
		if (k->graded) {
			give(p, take(p, p->job.grad, 0, p->node[i]));
		} else {
			k->grad[i] = take(p, p->job.grad, 0, p->node[i]);
		}
		give(p, way);
		give(p, k->out[i]);
	}
	k->graded = true;
}

static void optimize(struct play *p, int step)
{
	uint64_t way[LAYERS];

	for (int i = 0; i < 2 * LAYERS && !step && p->job.item; i++) {
		uint64_t n = STATE / p->job.item;

		if (p->job.small) {
			take(p, n, p->other, 0);
			take(p, (n / 256 * 4 + 511) / 512 * 512, p->other, 0);
			continue;
		}
		name(p, take(p, STATE, p->init, 0), CATEGORY_OPTIMIZER_STATE,
		     i % 2 ? "AdamW exp_avg_sq of w" : "AdamW exp_avg of w", p->blocks[i / 2],
		     p->job.item);
	}
	for (int i = 0; i < LAYERS; i++)
		way[i] = p->job.foreach ? take(p, 8000, p->opt, 0) : 0;
	for (int i = 0; i < LAYERS && p->job.foreach; i++)
		give(p, way[i]);
	if (p->job.leak)
		take(p, p->job.leak, p->other, 0);
	tell(p, (struct event){ .kind = EVENT_STEP });
}

/* The first reading of the program's objects: parameters, which are the oldest blocks, and
 * gradients. */
static void read_objects(struct play *p, const struct kept *k)
{
	for (int i = 0; i < 2 * LAYERS; i++) {
		bool grad = i % 2;
		uint64_t addr = grad ? k->grad[i / 2] : (uint64_t)i + 1;

		tell(p, (struct event){ .kind = EVENT_TENSOR,
					.device = device_of(p),
					.addr = addr << 12,
					.size = p->sizes[addr],
					.category = grad ? CATEGORY_GRADIENT : CATEGORY_PARAMETER,
					.name = str(&p->w, grad ? "w.grad" : "w"),
					.module = p->inner[i / 2],
					.flags = CENSUS_FIRST | 3 });
	}
}

static void step(struct play *p, struct kept *k, int n)
{
	uint64_t loss;

	if (!p->job.late)
		zero_grad(p, k);
	if (p->job.eval)
		evaluate(p);
	for (int i = 0; i < LAYERS; i++)
		forward_block(p, k, i, false, p->job.plain);
	if (n == 1 && p->job.read_late)
		read_objects(p, k);
	k->old_logits = k->logits;
	k->logits = take(p, LOGITS, p->logits, 0);
	if (k->held)
		give(p, k->old_logits);
	loss = take(p, 16, p->other, 0);
	k->held = p->job.held;
	if (p->job.late)
		zero_grad(p, k);
	if (!k->held)
		give(p, k->logits);
	if (n == STEPS && p->job.cut)
		give(p, take(p, 10 * LOGITS, p->other, 0));
	backward(p, k);
	if (n == STEPS && p->job.cut)
		return;
	give(p, loss);
	optimize(p, n);
}

static struct advice_list play(struct job job, uint64_t *peak)
{
	struct play p = { .w = world__new(AT_PEAK, 0), .job = job, .next = 1 };
	struct advice_list list;
	struct kept k = { 0 };

	p.a = (struct analysis){ .model = p.w.m, .dict = p.w.d, .facts = p.w.f };
	p.v = advisor__new(p.a.model, p.a.dict, p.a.facts);
	assert_non_null(p.v);
	if (job.most)
		advisor__limit_steps(p.v, job.most);
	if (job.models)
		facts__set(p.w.f, "models", job.models);
	make_stacks(&p);
	for (int i = 0; i < LAYERS && job.attached; i++) {
		uint64_t parameter = older(&p, job.grad);

		if (!job.on_cpu)
			name(&p, parameter, CATEGORY_PARAMETER, "w", p.inner[i], 4);
		k.grad[i] = older(&p, job.grad);
		k.graded = true;
	}
	if (job.on_cpu && !job.read_late)
		read_objects(&p, &k);
	for (int i = 0; i < LAYERS && !job.attached; i++) {
		uint64_t mask = job.masks || !i ? take(&p, MASK, p.other, 0) : 0;

		name(&p, take(&p, job.grad, p.other, 0), CATEGORY_PARAMETER, "w", p.inner[i], 4);
		if (mask)
			name(&p, mask, CATEGORY_BUFFER, "blocks.0.mask", p.blocks[i], 4);
	}
	for (int n = 0; n < (job.leak ? LEAKY_STEPS : STEPS) + job.cut; n++)
		step(&p, &k, n);
	model__finish(p.w.m, p.w.time);
	assert_int_equal(advisor__advise(p.v, 0, p.a.duration, &list), 0);
	assert_int_equal(list.peak, p.peak);
	*peak = p.peak;
	advisor__free(p.v);
	world__free(&p.w);
	return list;
}

static const struct advice *of_kind(const struct advice_list *list, enum advice_kind kind)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->all[i].kind == kind)
			return &list->all[i];
	return NULL;
}

/* The bad job must get this advice with the good job's peak as the prediction. The good job must
 * not get it. */
static void compare(struct job bad, struct job good, enum advice_kind kind,
		    enum advice_figure figure)
{
	uint64_t bad_peak, good_peak;
	struct advice_list b = play(bad, &bad_peak), g = play(good, &good_peak);
	const struct advice *a = of_kind(&b, kind);

	assert_non_null(a);
	assert_int_equal(a->figure, figure);
	assert_int_equal(a->after, good_peak);
	assert_int_equal(a->saves, bad_peak - good_peak);
	assert_null(of_kind(&g, kind));
	for (size_t i = 0; i < b.n; i++) {
		assert_true(b.all[i].saves + b.all[i].after ==
			    (b.all[i].of_reserved ? b.reserved : bad_peak));
		assert_true(*b.all[i].text && *b.all[i].basis);
	}
	advice__free_list(&b);
	advice__free_list(&g);
}

static void test_checkpoint(void **state)
{
	compare((struct job){ .plain = true, .grad = 64 }, (struct job){ .grad = 64 },
		ADVICE_CHECKPOINT, ADVICE_ESTIMATE);
	/* The remedy moves the peak to a place that it does not affect. */
	compare((struct job){ .plain = true, .grad = 64, .eval = true },
		(struct job){ .grad = 64, .eval = true }, ADVICE_CHECKPOINT, ADVICE_ESTIMATE);
}

static void test_gradients(void **state)
{
	compare((struct job){ .late = true, .grad = 5000 }, (struct job){ .grad = 5000 },
		ADVICE_GRADIENTS_LATE, ADVICE_EXACT);
	compare((struct job){ .zeroed = true, .grad = 5000 }, (struct job){ .grad = 5000 },
		ADVICE_GRADIENTS_LATE, ADVICE_ESTIMATE);
}

/* A capture that begins within a step does not know that older blocks are gradients, but the peak
 * of later steps is as high. */
static void test_gradients_of_an_attached_job(void **state)
{
	uint64_t peak;
	struct advice_list list = play((struct job){ .attached = true, .late = true, .grad = 5000 },
				       &peak);
	const struct advice *a = of_kind(&list, ADVICE_GRADIENTS_LATE);

	assert_non_null(a);
	assert_int_equal(a->saves + a->after, peak);
	assert_in_range(a->saves, 1, LAYERS * 5000);
	advice__free_list(&list);
}

/* The last step is cut off: its window has the frees of the gradients of the step before. */
static void test_gradients_of_a_cut_step(void **state)
{
	uint64_t peak;
	struct advice_list list = play((struct job){ .cut = true, .grad = 5000 }, &peak);

	assert_null(of_kind(&list, ADVICE_GRADIENTS_LATE));
	advice__free_list(&list);
}

static void test_held(void **state)
{
	compare((struct job){ .plain = true, .held = true, .grad = 64 },
		(struct job){ .plain = true, .grad = 64 }, ADVICE_OUTPUTS_HELD, ADVICE_UP_TO);
}

static void test_buffers(void **state)
{
	compare((struct job){ .masks = true, .grad = 64 }, (struct job){ .grad = 64 },
		ADVICE_BUFFERS, ADVICE_UP_TO);
}

/* Each call casts the parameter of its module again. */
static void test_casts(void **state)
{
	compare((struct job){ .plain = true, .grad = 4000, .casts = CASTS },
		(struct job){ .plain = true, .grad = 4000, .casts = 1 }, ADVICE_CASTS,
		ADVICE_UP_TO);
	/* The remedy moves the peak behind the frees of the casts. */
	compare((struct job){ .plain = true, .grad = 4000, .casts = CASTS, .foreach = true },
		(struct job){ .plain = true, .grad = 4000, .casts = 1, .foreach = true },
		ADVICE_CASTS, ADVICE_UP_TO);
}

static void test_foreach(void **state)
{
	compare((struct job){ .foreach = true, .grad = 64 }, (struct job){ .grad = 64 },
		ADVICE_OPTIMIZER_FOREACH, ADVICE_EXACT);
}

static void test_state(void **state)
{
	for (uint8_t item = 2; item <= 4; item += 2)
		compare((struct job){ .item = item, .grad = 64 },
			(struct job){ .item = item, .small = true, .grad = 64 },
			ADVICE_OPTIMIZER_8BIT, ADVICE_ESTIMATE);
}

/* A leak is the first advice, also where other advice saves more. */
static void test_growth(void **state)
{
	struct job job = { .plain = true, .late = true, .grad = 5000, .leak = 100 };
	uint64_t peak;
	struct advice_list list = play(job, &peak);
	const struct advice *a = list.all;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_true(list.n > 1);
	assert_int_equal(a->kind, ADVICE_GROWTH);
	assert_string_equal(advice__kind(a->kind), "growth");
	assert_int_equal(a->figure, ADVICE_UP_TO);
	assert_string_equal(a->where, "/u/train.py:1 (main)");
	assert_in_range(a->saves, 100 * (LEAKY_STEPS - 9), 100 * LEAKY_STEPS);
	assert_int_equal(a->saves + a->after, peak);
	assert_true(a[1].saves > a->saves);
	assert_non_null(strstr(a->basis, "+100 B/step"));
	advice__text(out, &list, 1, 120);
	fclose(out);
	assert_non_null(strstr(text, "keep one copy of the model"));
	assert_non_null(strstr(text, " more (--top 0 shows all)\n"));
	assert_non_null(strstr(text, "at /u/train.py:1 (main)"));
	free(text);
	advice__free_list(&list);
	list = play((struct job){ .plain = true, .grad = 64 }, &peak);
	assert_null(of_kind(&list, ADVICE_GROWTH));
	advice__free_list(&list);
}

/* Models that grow are copies, or garbage in reference cycles. */
static void test_cycles(void **state)
{
	struct job job = { .plain = true, .late = true, .grad = 5000, .leak = 100 };
	uint64_t peak;
	struct advice_list list;

	job.models = "73 models of class Net, 16.00 MiB each: no variable leads to them; reference "
		     "cycles stay, because the garbage collector is off";
	list = play(job, &peak);
	assert_int_equal(list.all->kind, ADVICE_GROWTH);
	assert_non_null(strstr(list.all->text, "gc.collect()"));
	assert_null(strstr(list.all->text, "keep one copy"));
	advice__free_list(&list);
	job.models = "73 models of class Net, 16.00 MiB each: held by global best[*]";
	list = play(job, &peak);
	assert_non_null(strstr(list.all->text, "keep one copy"));
	advice__free_list(&list);
}

/* Memory that is found in the middle of a step was there when the step began. */
static void test_read_late(void **state)
{
	struct job job = {
		.plain = true, .late = true, .grad = 5000, .attached = true, .on_cpu = true
	};
	uint64_t peak, late_peak;
	struct advice_list first = play(job, &peak), late;

	job.read_late = true;
	late = play(job, &late_peak);
	assert_int_equal(late_peak, peak);
	assert_true(first.n > 0);
	assert_int_equal(late.n, first.n);
	for (size_t i = 0; i < first.n; i++) {
		assert_int_equal(late.all[i].kind, first.all[i].kind);
		assert_int_equal(late.all[i].saves, first.all[i].saves);
		assert_int_equal(late.all[i].after, first.all[i].after);
	}
	advice__free_list(&first);
	advice__free_list(&late);
}

/* Random events: advice must end, and no figure may exceed the total. */
static int tell_host(void *ctx, const struct event *e)
{
	tell(ctx, *e);
	return 0;
}

/* Advice about host memory follows from the reading with the highest RSS, with its bytes. */
static void test_host(void **state)
{
	const uint64_t mib = 1 << 20;
	struct play p = { .w = world__new(AT_PEAK, 0), .job = { .grad = 64 }, .next = 1 };
	struct host_sheet low = { 0 }, high = { 0 };
	struct advice_list list;
	const struct advice *a;

	p.a = (struct analysis){ .model = p.w.m, .dict = p.w.d, .facts = p.w.f };
	p.v = advisor__new(p.a.model, p.a.dict, p.a.facts);
	make_stacks(&p);
	take(&p, 4096, p.other, 0);
	high.part[HOST_TOTAL] = (struct host_figure){ .bytes = 1000 * mib, .known = true };
	high.part[HOST_MALLOC] = (struct host_figure){ 400 * mib, 150 * mib, true, true, false };
	high.part[HOST_PINNED] = (struct host_figure){ 64 * mib, 9 * mib, true, true, false };
	high.part[HOST_PINNED_REQUESTED] = (struct host_figure){ .bytes = 35 * mib, .known = true };
	high.part[HOST_PINNED_ROUNDING] = (struct host_figure){ .bytes = 20 * mib, .known = true };
	low.part[HOST_TOTAL] = (struct host_figure){ .bytes = 900 * mib, .known = true };
	low.part[HOST_MALLOC] = (struct host_figure){ 800 * mib, 700 * mib, true, true, false };
	host_sheet__emit(&high, 0, tell_host, &p);
	host_sheet__emit(&low, 0, tell_host, &p);
	model__finish(p.w.m, p.w.time);
	assert_int_equal(advisor__advise(p.v, 0, p.a.duration, &list), 0);
	a = of_kind(&list, ADVICE_MALLOC_FREE);
	assert_true(a && a->of_host && a->saves == 150 * mib && a->after == 850 * mib);
	assert_int_equal(a->figure, ADVICE_UP_TO);
	/* tensors have 35 MiB of the 55 MiB in use */
	a = of_kind(&list, ADVICE_PINNED_ROUNDING);
	assert_true(a && a->saves == 20 * mib && a->after == 980 * mib);
	assert_null(of_kind(&list, ADVICE_PINNED_CACHED)); /* less than 1 % of RSS */
	advice__free_list(&list);

	facts__set(p.w.f, "dry_run", "1");
	assert_int_equal(advisor__advise(p.v, 0, p.a.duration, &list), 0);
	assert_null(of_kind(&list, ADVICE_MALLOC_FREE));
	assert_non_null(of_kind(&list, ADVICE_PINNED_ROUNDING));
	advice__free_list(&list);
	advisor__free(p.v);
	world__free(&p.w);
}

/* Memory that each step takes from malloc and frees again is free between steps, and no waste. */
static void test_malloc_between_steps(void **state)
{
	const uint64_t mib = 1 << 20, taken[] = { 60 * mib, 100 * mib };
	const uint64_t saves[] = { 90 * mib, 0 }; /* 0: no advice */

	for (int i = 0; i < 2; i++) {
		struct play p = { .w = world__new(AT_PEAK, 0),
				  .job = { .on_cpu = true },
				  .next = 1 };
		struct host_sheet sheet = { 0 };
		struct advice_list list;
		const struct advice *a;

		p.a = (struct analysis){ .model = p.w.m, .dict = p.w.d, .facts = p.w.f };
		p.v = advisor__new(p.a.model, p.a.dict, p.a.facts);
		make_stacks(&p);
		for (int n = 0; n < STEPS; n++) {
			give(&p, take(&p, taken[i], p.other, 0));
			tell(&p, (struct event){ .kind = EVENT_STEP });
		}
		sheet.part[HOST_TOTAL] = (struct host_figure){ .bytes = 1000 * mib, .known = true };
		sheet.part[HOST_MALLOC] = (struct host_figure){ 400 * mib, 150 * mib, true, true,
								false };
		host_sheet__emit(&sheet, 0, tell_host, &p);
		model__finish(p.w.m, p.w.time);
		assert_int_equal(advisor__advise(p.v, 0, p.a.duration, &list), 0);
		a = of_kind(&list, ADVICE_MALLOC_FREE);
		assert_int_equal(a ? a->saves : 0, saves[i]);
		advice__free_list(&list);
		advisor__free(p.v);
		world__free(&p.w);
	}
}

/* Advice while the job runs changes nothing about later advice. */
static void test_repeated(void **state)
{
	struct job job = { .plain = true, .late = true, .held = true, .grad = 64, .casts = CASTS };
	struct job looked_at = job;
	struct advice_list once, often;
	uint64_t peak;

	looked_at.look = 7;
	once = play(job, &peak);
	often = play(looked_at, &peak);
	assert_true(once.n > 2);
	assert_int_equal(once.n, often.n);
	assert_int_equal(once.steps, often.steps);
	for (size_t i = 0; i < once.n; i++) {
		assert_int_equal(once.all[i].kind, often.all[i].kind);
		assert_int_equal(once.all[i].saves, often.all[i].saves);
		assert_string_equal(once.all[i].text, often.all[i].text);
		assert_string_equal(once.all[i].basis, often.all[i].basis);
	}
	advice__free_list(&once);
	advice__free_list(&often);
}

/* Steps that are longer than the limit get no advice. */
static void test_limit(void **state)
{
	struct job job = { .plain = true, .grad = 64 };
	struct advice_list list;
	uint64_t peak;

	list = play(job, &peak);
	assert_non_null(of_kind(&list, ADVICE_CHECKPOINT));
	advice__free_list(&list);
	job.most = 20;
	list = play(job, &peak);
	assert_true(list.peak_too_long);
	assert_null(of_kind(&list, ADVICE_CHECKPOINT));
	advice__free_list(&list);
}

static void test_nonsense(void **state)
{
	uint64_t seed = 88172645463325252;

	for (int round = 0; round < 200; round++) {
		struct play p = { .w = world__new(AT_PEAK, 0), .next = 1 };
		struct advice_list list;

		p.a = (struct analysis){ .model = p.w.m, .dict = p.w.d, .facts = p.w.f };
		p.v = advisor__new(p.a.model, p.a.dict, p.a.facts);
		make_stacks(&p);
		for (int n = 0; n < 300; n++) {
			struct event e = { .totals = round % 2 };
			const uint32_t *stacks = p.fwd;

			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			e.kind = 1 + seed % (EVENT_KINDS - 1);
			e.kind = seed >> 60 ? (seed >> 8 & 1 ? EVENT_ALLOC : EVENT_FREE) : e.kind;
			e.device = seed >> 9 & 7 ? CUDA(seed >> 12 & 1) : CPU;
			e.addr = seed >> 16 & 31;
			e.size = seed >> 24 & 7 ? seed >> 32 & 0xffff : seed >> 3;
			e.stack = seed >> 21 & 1 ? stacks[seed >> 40 & 31] : seed >> 40;
			e.node = seed >> 22 & 3 ? 0 : p.node[seed >> 45 & 3];
			e.category = seed >> 50 & 7;
			e.name = seed >> 53 & 31;
			e.module = seed >> 48 & 31;
			e.flags = seed >> 55;
			e.allocated = seed >> 7;
			e.reserved = seed >> 5;
			tell(&p, e);
		}
		model__finish(p.w.m, p.w.time);
		for (size_t i = 0; i < model__devices(p.w.m) && i < 1; i++) {
			FILE *null = fopen("/dev/null", "w");

			assert_int_equal(advisor__advise(p.v, i, p.a.duration, &list), 0);
			advice__text(null, &list, 0, 80);
			fclose(null);
			advice__free_list(&list);
		}
		advisor__free(p.v);
		world__free(&p.w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checkpoint),
		cmocka_unit_test(test_gradients),
		cmocka_unit_test(test_gradients_of_an_attached_job),
		cmocka_unit_test(test_gradients_of_a_cut_step),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_casts),
		cmocka_unit_test(test_foreach),
		cmocka_unit_test(test_state),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_malloc_between_steps),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_cycles),
		cmocka_unit_test(test_read_late),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
