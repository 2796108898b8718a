/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings of made-up jobs: each fault is found, and the same job without it has no finding. */
#include "unit/model_world.h"

#include "report/advice.h"
#include "report/findings.h"
#include "report/findings/internal.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct job {
	struct world w;
	struct advisor *advisor;
	struct findings found;
};

static struct job job__new(void)
{
	struct job j = { .w = world__new(AT_PEAK, 0) };

	facts__setf(j.w.f, "device.0.total", "%llu", 80ULL << 30);
	j.advisor = advisor__new(j.w.m, j.w.d, j.w.f);
	assert_non_null(j.advisor);
	return j;
}

static void job__free(struct job *j)
{
	findings__free(&j->found);
	advisor__free(j->advisor);
	world__free(&j->w);
}

static void tell(struct job *j, struct event e)
{
	e.time = j->w.time + MS;
	e.thread = e.thread ? e.thread : j->w.main_thread;
	assert_int_equal(advisor__event(j->advisor, &e), 0);
	feed(&j->w, e);
}

static void take(struct job *j, uint64_t addr, uint64_t size, uint32_t stack)
{
	j->w.allocated[0] += size;
	tell(j, (struct event){ .kind = EVENT_ALLOC,
				.device = CUDA(0),
				.addr = addr,
				.size = size,
				.stack = stack,
				.totals = true,
				.allocated = j->w.allocated[0],
				.reserved = j->w.reserved });
}

static void give(struct job *j, uint64_t addr, uint64_t size)
{
	j->w.allocated[0] -= size;
	tell(j, (struct event){ .kind = EVENT_FREE,
				.device = CUDA(0),
				.addr = addr,
				.size = size,
				.totals = true,
				.allocated = j->w.allocated[0],
				.reserved = j->w.reserved });
}

static void judge(struct job *j)
{
	const struct findings_source source = { .model = j->w.m,
						.dict = j->w.d,
						.facts = j->w.f,
						.advisor = j->advisor,
						.name = "job.mtr",
						.duration = j->w.time,
						.complete = true };

	model__finish(j->w.m, j->w.time);
	assert_int_equal(findings__judge(&source, &j->found), 0);
}

/* Returns the finding with this code, or NULL. */
static const struct finding *get(const struct job *j, enum finding_code code)
{
	for (size_t i = 0; i < j->found.n; i++)
		if (j->found.all[i].code == code)
			return &j->found.all[i];
	return NULL;
}

/* ---- a device that is full ---- */

static void take_segment(struct job *j, uint64_t addr, uint64_t size, uint8_t flags, uint32_t line)
{
	uint32_t stack = simple(&j->w, "/w/train.py", "step", line);

	tell(j, (struct event){ .kind = EVENT_CUDA_ALLOC,
				.how = MEM_DEVICE,
				.device = CUDA(0),
				.addr = addr,
				.size = size,
				.stack = stack,
				.flags = MEM_BY_ALLOCATOR | flags });
	j->w.reserved += size;
	take(j, addr, size, stack);
}

static void driver_says(struct job *j, uint64_t used, uint64_t left)
{
	tell(j, (struct event){ .kind = EVENT_USED, .device = CUDA(0), .size = used });
	tell(j, (struct event){ .kind = EVENT_LEFT, .device = CUDA(0), .size = left });
}

static void test_retries(void **state)
{
	struct job j = job__new();
	const struct finding *f;

	take_segment(&j, GIB, 20 * MIB, 0, 3);
	take_segment(&j, 2 * GIB, 200 * MIB, MEM_RETRIED, 7);
	take_segment(&j, 3 * GIB, 512 * MIB, MEM_RETRIED, 9);
	judge(&j);
	f = get(&j, FINDING_RETRIES);
	assert_non_null(f);
	assert_int_equal(j.found.faults, 1);
	assert_string_equal(f->where, "/w/train.py:9 (step)");
	assert_int_equal(f->bytes, 512 * MIB);
	assert_int_equal(f->whole, 80 * GIB);
	assert_non_null(strstr(f->text, "512.00 MiB"));
	assert_non_null(strstr(f->text, "2 times"));
	job__free(&j);

	j = job__new();
	take_segment(&j, GIB, 20 * MIB, 0, 3);
	judge(&j);
	assert_int_equal(j.found.n, 0);
	job__free(&j);
}

static void test_other_processes(void **state)
{
	static const struct {
		uint64_t used, left;
		bool found;
	} cases[] = {
		{ 46 * GIB, 2 * GIB, true },   /* others: 32 GiB, and the device is full */
		{ 8 * GIB, 40 * GIB, false },  /* others: 32 GiB, and there is room */
		{ 76 * GIB, 1 * GIB, false },  /* others: 3 GiB */
		{ 80 * GIB, 0, false },	       /* none */
		{ 80 * GIB, 80 * GIB, false }, /* figures that cannot be */
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct job j = job__new();
		const struct finding *f;

		take_segment(&j, GIB, 512 * MIB, 0, 3);
		driver_says(&j, cases[i].used, cases[i].left);
		judge(&j);
		f = get(&j, FINDING_OTHER_PROCESSES);
		assert_int_equal(f != NULL, cases[i].found);
		if (f) {
			assert_int_equal(f->bytes, 32 * GIB);
			assert_non_null(strstr(
				f->text,
				"other processes have 32.00 GiB, this process has 46.00 GiB"));
		}
		assert_int_equal(j.found.n, cases[i].found);
		job__free(&j);
	}
}

/* An allocation failed, although the device has room at the end. */
static void test_others_at_oom(void **state)
{
	struct job j = job__new();

	take_segment(&j, GIB, 512 * MIB, 0, 3);
	driver_says(&j, 8 * GIB, 40 * GIB);
	tell(&j, (struct event){ .kind = EVENT_OOM,
				 .device = CUDA(0),
				 .size = 60 * GIB,
				 .totals = true,
				 .allocated = j.w.allocated[0],
				 .reserved = j.w.reserved });
	judge(&j);
	assert_int_equal(j.found.faults, 2);
	assert_int_equal(j.found.all[0].code, FINDING_OUT_OF_MEMORY);
	assert_int_equal(j.found.all[1].code, FINDING_OTHER_PROCESSES);
	job__free(&j);
}

/* Memory runs out because of a leak: that is what to mend, and not the cache. */
static void test_leak_at_oom(void **state)
{
	struct job j = job__new();
	uint32_t stack = simple(&j.w, "/w/train.py", "step", 3);

	for (uint64_t i = 0; i < 60; i++) {
		take(&j, GIB + (i << 20), MIB, stack);
		tell(&j, (struct event){ .kind = EVENT_STEP });
	}
	tell(&j, (struct event){ .kind = EVENT_OOM,
				 .device = CUDA(0),
				 .size = MIB,
				 .totals = true,
				 .allocated = j.w.allocated[0],
				 .reserved = j.w.allocated[0] + 8 * MIB });
	judge(&j);
	assert_true(j.found.faults >= 2);
	assert_int_equal(j.found.all[0].code, FINDING_OUT_OF_MEMORY);
	assert_int_equal(j.found.all[1].code, FINDING_LEAK);
	assert_non_null(strstr(j.found.all[0].remedy, "stop the growth"));
	job__free(&j);
}

/* ---- calls without backward ---- */

#define LAYERS 6
#define ACTIVATION (4 * MIB)

/* CALL_HEAD: forward frees all of its blocks but a small one, which backward needs. */
enum call_kind { CALL_EVALUATED, CALL_TRAINED, CALL_HEAD, CALL_WITHOUT_GRAD, CALL_KEPT };

/* A call of a model of six layers, and what follows it. */
static void call_model(struct job *j, enum call_kind kind, uint64_t base)
{
	uint32_t root = module(&j->w, "", "Net", "Net"),
		 layer = module(&j->w, "0", "Linear", "Net");
	struct frame_spec path[] = {
		{ "/w/eval.py", "<module>", 0 },
		{ "/w/eval.py", "validate", 0 },
		{ SP "nn/modules/module.py", "Module._wrapped_call_impl", root },
		{ "/w/net.py", "Net.forward", 0 },
		{ SP "nn/modules/module.py", "Module._wrapped_call_impl", layer },
		{ SP "nn/modules/linear.py", "Linear.forward", 0 }
	};
	uint32_t forward = stack_of(&j->w, path, N(path), MT_WALK_OK);

	tell(j, (struct event){ .kind = EVENT_CALL, .module = root });
	for (uint64_t i = 0; i < LAYERS; i++) {
		take(j, base + i * ACTIVATION, ACTIVATION, forward);
		if (kind == CALL_WITHOUT_GRAD && i)
			give(j, base + (i - 1) * ACTIVATION, ACTIVATION);
	}
	if (kind == CALL_HEAD) {
		take(j, base + GIB / 4, MIB, forward);
		for (uint64_t i = 0; i < LAYERS; i++)
			give(j, base + i * ACTIVATION, ACTIVATION);
	}
	if (kind == CALL_TRAINED || kind == CALL_HEAD) {
		tell(j, (struct event){
				.kind = EVENT_ALLOC,
				.device = CUDA(0),
				.addr = base + GIB / 2,
				.size = MIB,
				.node = dict__node(j->w.d,
						   (struct dict_node){
							   .cls = str(&j->w, "MseLossBackward0") }),
				.walk = MT_WALK_NO_FRAME,
				.thread = j->w.autograd_thread,
				.totals = true,
				.allocated = j->w.allocated[0] += MIB,
				.reserved = j->w.reserved });
		give(j, base + GIB / 2, MIB);
	}
	if (kind == CALL_HEAD)
		give(j, base + GIB / 4, MIB);
	if (kind == CALL_EVALUATED || kind == CALL_TRAINED)
		for (uint64_t i = 0; i < LAYERS; i++)
			give(j, base + i * ACTIVATION, ACTIVATION);
	if (kind == CALL_WITHOUT_GRAD)
		give(j, base + (LAYERS - 1) * ACTIVATION, ACTIVATION);
}

/* A job with calls of a kind. graphless: the recorder's count of calls without a node of autograd;
 * or NULL. */
static struct job evaluate(enum call_kind kind, int calls, const char *graphless)
{
	struct job j = job__new();

	for (int i = 0; i < calls; i++)
		call_model(&j, kind, (uint64_t)(i + 1) * GIB);
	if (graphless)
		facts__set(j.w.f, "counter.autograd.graphless", graphless);
	judge(&j);
	return j;
}

static void test_no_grad(void **state)
{
	static const struct {
		enum call_kind kind;
		int calls;
		const char *graphless;
		bool found;
	} cases[] = {
		{ CALL_EVALUATED, 20, "0", true },
		{ CALL_EVALUATED, 20, "20", false }, /* all intermediate results are outputs */
		{ CALL_EVALUATED, 20, NULL, false }, /* a recording of an earlier version */
		{ CALL_EVALUATED, 5, "0", false },
		{ CALL_TRAINED, 20, "0", false },
		{ CALL_HEAD, 20, "0", false },
		{ CALL_WITHOUT_GRAD, 20, "20", false },
		{ CALL_WITHOUT_GRAD, 20, "0", false },
		{ CALL_KEPT, 20, "0", false },
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct job j = evaluate(cases[i].kind, cases[i].calls, cases[i].graphless);
		const struct finding *f = get(&j, FINDING_NO_GRAD);

		if ((f != NULL) != cases[i].found)
			fail_msg("case %zu: %s", i, f ? f->text : "not found");
		if (f) {
			assert_string_equal(f->where, "/w/eval.py:2 (validate)");
			assert_int_equal(f->bytes, LAYERS * ACTIVATION);
			assert_non_null(strstr(f->text, "20 calls"));
		}
		job__free(&j);
	}
}

/* ---- an allocation that no free piece was large enough for ---- */

static void test_fragmentation(void **state)
{
	for (int pieces = 0; pieces < 2; pieces++) {
		struct job j = job__new();
		uint32_t line = simple(&j.w, "/w/train.py", "keep", 33);
		const struct finding *f;

		tell(&j, (struct event){ .kind = EVENT_CUDA_ALLOC,
					 .how = MEM_DEVICE,
					 .device = CUDA(0),
					 .addr = GIB,
					 .size = 100 * MIB,
					 .flags = MEM_BY_ALLOCATOR });
		j.w.reserved = 100 * MIB;
		for (uint64_t i = 0; i < 5; i++)
			take(&j, GIB + i * (pieces ? 20 : 5) * MIB, 5 * MIB, line);
		tell(&j, (struct event){ .kind = EVENT_OOM,
					 .device = CUDA(0),
					 .size = 64 * MIB,
					 .totals = true,
					 .allocated = j.w.allocated[0],
					 .reserved = j.w.reserved });
		judge(&j);
		f = get(&j, FINDING_FRAGMENTATION);
		assert_int_equal(f != NULL, pieces);
		if (f) {
			assert_string_equal(f->where, "/w/train.py:33 (keep)");
			assert_int_equal(f->bytes, 75 * MIB);
			assert_non_null(strstr(f->text, "at most 15.00 MiB; at the peak, most of "
							"the free pieces were between blocks of "
							"/w/train.py:33"));
		}
		job__free(&j);
	}
}

/* ---- memory that is there twice ---- */

static void name_block(struct job *j, uint64_t addr, uint64_t size, enum category role,
		       const char *name)
{
	take(j, addr, size, simple(&j->w, "/w/train.py", "main", 3));
	tell(j, (struct event){ .kind = EVENT_TENSOR,
				.device = CUDA(0),
				.addr = addr,
				.size = size,
				.category = role,
				.name = str(&j->w, name) });
}

/* A model of four weights, and its optimizer's state. */
static struct job with_model(void)
{
	struct job j = job__new();

	for (uint64_t i = 0; i < 4; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%d.weight", (int)i);
		name_block(&j, GIB + i * 16 * MIB, (4 + i) * MIB, CATEGORY_PARAMETER, name);
		snprintf(name, sizeof(name), "AdamW exp_avg of %d.weight", (int)i);
		name_block(&j, 2 * GIB + i * 16 * MIB, (4 + i) * MIB, CATEGORY_OPTIMIZER_STATE,
			   name);
	}
	return j;
}

static void test_state_held(void **state)
{
	static const char *const keys[] = { "global kept[0]['optimizer']['state']",
					    "local last['state']", "global kept[0]['state']",
					    "global averages" };
	static const char *const last[] = { "['exp_avg']", "['exp_avg'] in main (train.py:4)",
					    "['exp']", "" };
	static const char *const holders[] = { "global kept[0]", "local last", NULL, NULL };

	for (int n = 0; n < 4; n++) {
		struct job j = with_model();
		const struct finding *f;

		for (uint64_t i = 0; i < 4; i++) {
			char name[96];

			snprintf(name, sizeof(name), "%s[%d]%s", keys[n], (int)i, last[n]);
			name_block(&j, 3 * GIB + i * 16 * MIB, (4 + i) * MIB, CATEGORY_UNKNOWN,
				   name);
		}
		judge(&j);
		f = get(&j, FINDING_STATE_HELD);
		assert_int_equal(f != NULL, holders[n] != NULL);
		if (f) {
			assert_string_equal(f->held_by, holders[n]);
			assert_int_equal(f->bytes, 22 * MIB);
		}
		assert_int_equal(j.found.faults, 0);
		job__free(&j);
	}
}

static void test_weights_held(void **state)
{
	static const char *const keys[] = { "global checkpoint['model']['0.weight']",
					    "global checkpoint['model']['1.weight']",
					    "global checkpoint['model']['2.weight']",
					    "global checkpoint['model']['module.3.weight']" };
	struct job j = with_model();
	const struct finding *f;

	for (uint64_t i = 0; i < 4; i++)
		name_block(&j, 3 * GIB + i * 16 * MIB, (4 + i) * MIB, CATEGORY_UNKNOWN, keys[i]);
	judge(&j);
	f = get(&j, FINDING_WEIGHTS_HELD);
	assert_non_null(f);
	assert_int_equal(j.found.faults, 0);
	assert_string_equal(f->held_by, "global checkpoint['model']");
	assert_int_equal(f->bytes, 22 * MIB);
	job__free(&j);

	/* Several tensors with the name and the size of one weight are one copy of it. */
	j = with_model();
	for (uint64_t i = 0; i < 3; i++) {
		char key[64];

		snprintf(key, sizeof(key), "global averages['%c.3.weight']", (char)('a' + i));
		name_block(&j, 3 * GIB + i * 16 * MIB, 7 * MIB, CATEGORY_UNKNOWN, key);
	}
	judge(&j);
	assert_null(get(&j, FINDING_WEIGHTS_HELD));
	job__free(&j);

	/* A large dictionary, whose keys have no names; and a list of as many batches of one size. */
	for (int copy = 0; copy < 2; copy++) {
		j = with_model();
		for (uint64_t i = 0; i < 4; i++)
			name_block(&j, 3 * GIB + i * 16 * MIB, (copy ? 4 + i : 4) * MIB,
				   CATEGORY_UNKNOWN, "global kept[*]");
		judge(&j);
		assert_int_equal(j.found.faults, 0);
		assert_int_equal(get(&j, FINDING_WEIGHTS_HELD) != NULL, copy);
		job__free(&j);
	}

	/* Gradients of torch.autograd.grad() have the sizes of the parameters, too. */
	j = with_model();
	for (uint64_t i = 0; i < 4; i++)
		name_block(&j, 3 * GIB + i * 16 * MIB, (4 + i) * MIB, CATEGORY_GRADIENT,
			   "local grads[*] in step");
	judge(&j);
	assert_null(get(&j, FINDING_WEIGHTS_HELD));
	job__free(&j);
}

static void test_optimizer_twice(void **state)
{
	/* The same parameters; two models of equal names, each with its optimizer. */
	for (int models = 1; models <= 2; models++) {
		struct job j = with_model();
		const struct finding *f;

		for (uint64_t i = 0; i < 4; i++) {
			char name[64];

			snprintf(name, sizeof(name), "AdamW exp_avg of %d.weight", (int)i);
			name_block(&j, 3 * GIB + i * 16 * MIB, (4 + i) * MIB,
				   CATEGORY_OPTIMIZER_STATE, name);
			snprintf(name, sizeof(name), "%d.weight", (int)i);
			if (models == 2)
				name_block(&j, 4 * GIB + i * 16 * MIB, (4 + i) * MIB,
					   CATEGORY_PARAMETER, name);
		}
		judge(&j);
		f = get(&j, FINDING_OPTIMIZERS);
		assert_int_equal(f != NULL, models == 1);
		if (f) {
			assert_int_equal(f->bytes, 22 * MIB);
			assert_non_null(strstr(f->text, "AdamW"));
		}
		job__free(&j);
	}
}

static void test_tracing(void **state)
{
	static const char *const shares[] = { "0.02", "0.2" };

	for (int much = 0; much < 2; much++) {
		struct job j = job__new();
		const struct finding *f;

		take_segment(&j, GIB, 20 * MIB, 0, 3);
		facts__set(j.w.f, "cost.limit", "0.01");
		facts__set(j.w.f, "cost.share", shares[much]);
		judge(&j);
		f = get(&j, FINDING_TRACING);
		assert_int_equal(f != NULL, much);
		assert_int_equal(j.found.faults, 0);
		if (f)
			assert_non_null(strstr(f->text, "20 %"));
		job__free(&j);
	}
}

/* 120 steps, each of which keeps a tensor on the CPU. Host memory grows by an arena of malloc now
 * and then, at another line. array: bytes that one more line keeps in each step. */
static struct job grow_on_cpu(uint64_t tensor, uint64_t array)
{
	struct job j = job__new();
	uint32_t step = simple(&j.w, "/w/train.py", "step", 3);
	uint32_t other = simple(&j.w, "/w/train.py", "other", 9);
	uint32_t frames = simple(&j.w, "/w/train.py", "frames", 12);
	const struct device cpu = { .type = DEVICE_CPU }, host = { .type = DEVICE_HOST };

	for (uint64_t i = 0; i < 120; i++) {
		if (tensor)
			tell(&j, (struct event){ .kind = EVENT_ALLOC,
						 .device = cpu,
						 .addr = GIB + (i << 20),
						 .size = tensor,
						 .stack = step });
		tell(&j, (struct event){ .kind = EVENT_ALLOC,
					 .device = host,
					 .addr = 8 * GIB + (i << 20),
					 .size = 3 * tensor / 2 + (tensor ? 0 : MIB),
					 .stack = other });
		if (array)
			tell(&j, (struct event){ .kind = EVENT_ALLOC,
						 .device = host,
						 .addr = 16 * GIB + (i << 20),
						 .size = array,
						 .stack = frames });
		tell(&j, (struct event){ .kind = EVENT_STEP });
	}
	judge(&j);
	return j;
}

static void test_host_of_cpu(void **state)
{
	struct job j = grow_on_cpu(MIB / 2, 0);

	assert_int_equal(j.found.faults, 1);
	assert_string_equal(j.found.all->device, "cpu");
	job__free(&j);
	j = grow_on_cpu(0, 0);
	assert_true(j.found.faults > 0);
	assert_string_equal(j.found.all->device, "host");
	job__free(&j);
}

static void test_host_beside_cpu(void **state)
{
	struct job j = grow_on_cpu(MIB / 2, MIB);

	assert_int_equal(j.found.faults, 2);
	assert_string_equal(j.found.all[0].device, "cpu");
	assert_string_equal(j.found.all[0].where, "/w/train.py:3 (step)");
	assert_string_equal(j.found.all[1].device, "host");
	assert_string_equal(j.found.all[1].where, "/w/train.py:12 (frames)");
	job__free(&j);
}

/* No row calls tensors right that were not recorded. */
static void test_torch_came_late(void **state)
{
	struct job j = job__new();
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	struct findings_source source = {
		.model = j.w.m, .facts = j.w.f, .name = "x", .duration = 120000 * MS
	};

	for (int i = 0; i < 120; i++) {
		tell(&j, (struct event){
				 .kind = EVENT_ALLOC, .device = CPU, .addr = 0x1000, .size = MIB });
		tell(&j, (struct event){
				 .kind = EVENT_FREE, .device = CPU, .addr = 0x1000, .size = MIB });
		tell(&j, (struct event){ .kind = EVENT_STEP });
	}
	facts__set(j.w.f, "torch_came", "1");
	judge(&j);
	assert_false(j.found.judged);
	assert_int_equal(findings__text(out, &source, &j.found, 200), 0);
	fclose(out);
	assert_non_null(
		strstr(text, "Nothing wrong was seen: PyTorch was imported after the attach"));
	assert_null(strstr(text, "cpu "));
	free(text);
	job__free(&j);
}

/* The nodes of a graph that is kept are host memory, so the graph comes first. */
static void test_host_after_a_graph(void **state)
{
	struct finding host = { .code = FINDING_LEAK, .device = "host" };
	struct finding cuda = { .code = FINDING_LEAK, .device = "cuda:0" };
	struct finding graph = { .code = FINDING_GRAPH_KEPT, .device = "cuda:0" };
	struct finding calls = { .code = FINDING_CALLS_KEEP, .device = "cuda:0" };

	assert_true(findings__compare(&cuda, &graph) < 0);
	assert_true(findings__compare(&graph, &host) < 0);
	assert_true(findings__compare(&host, &calls) < 0);
}

/* A cache of functools that is never hit. */
static void test_cache(void **state)
{
	struct job j = job__new();
	uint32_t stack = simple(&j.w, "/w/train.py", "table", 3);

	for (uint64_t i = 0; i < 60; i++) {
		take(&j, GIB + (i << 20), MIB, stack);
		tell(&j, (struct event){ .kind = EVENT_STEP });
	}
	for (uint64_t i = 0; i < 60; i++)
		tell(&j, (struct event){ .kind = EVENT_TENSOR,
					 .device = CUDA(0),
					 .addr = GIB + (i << 20),
					 .size = MIB,
					 .name = str(&j.w, "global table's cache[*]") });
	tell(&j, (struct event){ .kind = EVENT_CENSUS });
	judge(&j);
	assert_true(j.found.n > 0);
	assert_int_equal(j.found.all->code, FINDING_LEAK);
	assert_non_null(strstr(j.found.all->remedy, "lru_cache(maxsize=N)"));
	job__free(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_retries),		cmocka_unit_test(test_other_processes),
		cmocka_unit_test(test_others_at_oom),	cmocka_unit_test(test_no_grad),
		cmocka_unit_test(test_fragmentation),	cmocka_unit_test(test_weights_held),
		cmocka_unit_test(test_state_held),	cmocka_unit_test(test_optimizer_twice),
		cmocka_unit_test(test_tracing),		cmocka_unit_test(test_host_of_cpu),
		cmocka_unit_test(test_host_beside_cpu), cmocka_unit_test(test_leak_at_oom),
		cmocka_unit_test(test_torch_came_late), cmocka_unit_test(test_host_after_a_graph),
		cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
