/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Steps that take longer, and the leaks that a recording with a limit names. Jobs are simulated. */
#include "unit/cmocka.h"

#include <math.h>

#include "capture/cost/step_cost.h"
#include "model/growth_summary.h"
#include "record/detail.h"
#include "unit/model_world.h"

#define SECOND UINT64_C(1000000000)
#define LATENCY (20 * MS) /* until the programs do what was decided */
#define LOOK (500 * MS)

/* ---- a job under a limit ---- */

struct job {
	double step;	      /* duration of a step without a recorder, ns */
	double noise;	      /* its standard deviation, as a share */
	double traps, detail; /* share of the target's time that the recorder takes */
	bool hidden;	      /* the GPU is the bottleneck: a step takes no longer */
	struct step_cost cost;
	uint64_t now, next_look, decided;
	uint64_t seed;
};

static double draw(struct job *j)
{
	j->seed = j->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (double)(j->seed >> 11) / (double)(1ULL << 53);
}

/* Nearly normal, with mean 0 and standard deviation 1. */
static double normal(struct job *j)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += draw(j);
	return sum;
}

/* Makes the programs do what was decided, as the session does. */
static void pump(struct job *j)
{
	struct step_cost *c = &j->cost;

	if (j->now >= j->next_look) {
		j->next_look = j->now + LOOK;
		step_cost__look(c, j->now, j->traps + (c->on ? j->detail : 0));
	}
	if (c->wanted == c->on)
		j->decided = 0;
	else if (!j->decided)
		j->decided = j->now;
	else if (j->now >= j->decided + LATENCY)
		step_cost__switched(c, j->now);
	if (c->spent[0])
		c->shares[0] = j->traps;
	c->shares[1] = j->traps + j->detail;
}

/* Runs one step. Returns true if it was recorded with all detail. */
static bool run_step(struct job *j)
{
	bool detailed = j->cost.detailed;
	double took = j->step * fmax(0.2, 1 + j->noise * normal(j));
	const int parts = 16;

	for (int i = 0; i < parts; i++) {
		double added = j->hidden ? 0 : j->traps + (j->cost.on ? j->detail : 0);

		j->now += (uint64_t)(took / parts * (1 + added));
		pump(j);
		detailed &= j->cost.on;
	}
	step_cost__ended(&j->cost, j->now);
	return detailed;
}

static struct job new_job(double step, double noise, double traps, double detail)
{
	struct job j = { .step = step, .noise = noise, .traps = traps, .detail = detail, .seed = 1 };

	step_cost__init(&j.cost, 0.01);
	return j;
}

static void run_until(struct job *j, uint64_t end)
{
	while (j->now < end)
		run_step(j);
}

static double longer(const struct job *j)
{
	struct step_longer l;

	assert_true(step_cost__longer(&j->cost, j->now, &l));
	assert_true(l.low <= l.longer && l.longer <= l.high);
	return l.longer;
}

static void test_cheap(void **state)
{
	struct job j = new_job(20 * MS, 0.02, 0.002, 0.007);
	struct step_longer l;

	run_until(&j, 60 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_ALL);
	assert_int_equal(j.cost.whole, j.cost.all);
	assert_false(step_cost__longer(&j.cost, j.now, &l));
}

/* The GPU is the bottleneck: a short measurement, and then all is recorded. */
static void test_hidden(void **state)
{
	struct job j = new_job(50 * MS, 0.005, 0.02, 0.10);

	j.hidden = true;
	run_until(&j, 300 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_KEEP);
	assert_true(longer(&j) < 0.01);
	assert_true(j.cost.whole > j.cost.all * 95 / 100);
}

/* Durations vary so much that the interval stays wide. What is most likely decides: of jobs whose
 * steps are no longer, most keep all detail; of those whose steps take 5 % longer, hardly any. */
static void test_undecided(void **state)
{
	unsigned kept[2] = { 0 };

	for (uint64_t i = 0; i < 200; i++) {
		struct job j = new_job(50 * MS, 0.08, 0.01, 0.04);

		j.seed = i / 2;
		j.hidden = i % 2;
		run_until(&j, 40 * SECOND);
		kept[j.hidden] += j.cost.mode == STEP_COST_KEEP;
	}
	assert_true(kept[true] > 60);
	assert_true(kept[false] < 10);
}

/* Steps are too long with detail: some whole steps have it, and the average keeps the limit. */
static void test_dear(void **state)
{
	struct job j = new_job(20 * MS, 0.02, 0.004, 0.10);
	struct step_longer all;
	uint64_t before;
	double took;

	run_until(&j, 60 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_SAMPLE);
	assert_true(step_cost__longer_with_all(&j.cost, &all));
	assert_true(all.low < 0.104 && 0.104 < all.high && all.high - all.low < 0.03);
	before = j.cost.all;
	took = (double)j.now;
	run_until(&j, 900 * SECOND);
	took = ((double)j.now - took) / (double)(j.cost.all - before);
	assert_in_range(took, 1.006 * j.step, 1.0125 * j.step);
	assert_true(j.cost.whole > j.cost.all / 40);
}

/* Without detail it is too dear, too: one step in a hundred has all detail. */
static void test_traps(void **state)
{
	struct job j = new_job(20 * MS, 0.02, 0.05, 0.10);

	run_until(&j, 900 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_SAMPLE);
	assert_in_range(j.cost.whole, j.cost.all / 130, j.cost.all / 70);
	assert_true(fabs(longer(&j) - 0.053) < 0.02);
}

/* Leaving out detail would save less than a quarter of the excess: detail stays. */
static void test_saves_little(void **state)
{
	struct job j = new_job(20 * MS, 0.005, 0.10, 0.02);

	run_until(&j, 120 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_KEEP);
	assert_true(j.cost.whole > j.cost.all * 8 / 10);
}

/* The job becomes launch-bound later. */
static void test_changes(void **state)
{
	struct job j = new_job(20 * MS, 0.01, 0.002, 0.05);

	j.hidden = true;
	run_until(&j, 100 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_KEEP);
	j.hidden = false;
	j.step /= 4;
	j.detail *= 4;
	run_until(&j, 160 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_SAMPLE);
}

/* Steps that end no more decide nothing, and all is recorded again. */
static void test_no_steps(void **state)
{
	struct job j = new_job(20 * MS, 0.02, 0.02, 0.10);

	assert_true(step_cost__look(&j.cost, 9 * SECOND, 0.1));
	assert_false(step_cost__look(&j.cost, 11 * SECOND, 0.1));
	run_until(&j, 60 * SECOND);
	assert_int_equal(j.cost.mode, STEP_COST_SAMPLE);
	assert_false(step_cost__look(&j.cost, j.now + 6 * SECOND, 0.1));
	assert_true(j.cost.wanted);
	assert_int_equal(j.cost.mode, STEP_COST_ALL);
}

/* ---- random jobs: is the leak still named? ---- */

#define JOBS 100
#define RECORDED (120 * SECOND)
#define LEAKY_LINE 39

/* A line that allocates a block each `every` steps and keeps the last `keeps` of them; 0: all. */
struct line {
	uint64_t size;
	unsigned every, keeps;
	uint64_t made;
};

struct leaky_job {
	struct job job;
	struct world world;
	uint32_t rest; /* stack of blocks in other steps */
	struct line lines[6];
};

static void run_lines(struct leaky_job *l, uint64_t step, bool detailed)
{
	struct world *w = &l->world;

	for (unsigned i = 0; i < 6; i++) {
		struct line *line = &l->lines[i];
		uint64_t base = 0x100000000 * (i + 1);
		struct event e = { .kind = EVENT_ALLOC, .device = CUDA(0), .size = line->size };

		if (!line->size || step % line->every)
			continue;
		if (line->keeps && line->made >= line->keeps)
			feed(w, (struct event){ .kind = EVENT_FREE,
						.device = CUDA(0),
						.size = line->size,
						.addr = base + line->made - line->keeps });
		e.addr = base + line->made++;
		e.stack = detailed ? simple(w, "/home/u/train.py", "step", i ? i : LEAKY_LINE)
				   : l->rest;
		e.walk = e.stack == l->rest ? MT_WALK_OFF : MT_WALK_OK;
		feed(w, e);
	}
}

static uint64_t between(struct job *j, double low, double high)
{
	return (uint64_t)(low * pow(high / low, draw(j)));
}

static struct leaky_job draw_job(uint64_t seed, bool leaks)
{
	struct leaky_job l = { .world = world__new(AT_END, 0) };
	struct dict_frame frame = { .loc = loc(&l.world, DETAIL_FILE, DETAIL_BETWEEN, 0) };
	struct job *j = &l.job;

	*j = new_job(0, 0, 0, 0);
	j->seed = seed * 1000003 + leaks;
	draw(j);
	j->step = (double)between(j, 20 * MS, 1000 * MS);
	j->noise = 0.01 + 0.19 * draw(j);
	j->traps = (double)between(j, 1000, 60000) / 1e6;
	j->detail = (double)between(j, 5000, 300000) / 1e6;
	j->hidden = draw(j) < 0.3;
	l.rest = dict__stack(l.world.d, &frame, 1, MT_WALK_OFF);
	assert_int_equal(growth__watch(l.world.m, BY_LINE), 0);
	facts__set(l.world.f, "attached_at", "start");
	if (leaks)
		l.lines[0] = (struct line){ .size = between(j, 512, 1 << 20) & ~511ULL,
					    .every = 1 };
	/* Activations, a loss that a later step replaces, and histories that are full after an
	 * eighth of the recording. */
	for (unsigned i = 1; i < 5; i++) {
		unsigned every = 1 + (unsigned)(draw(j) * draw(j) * 6);
		double most = (double)RECORDED / j->step / 8 / every;

		l.lines[i] = (struct line){ .size = between(j, 512, 64 << 20) & ~511ULL,
					    .every = every,
					    .keeps = (unsigned)between(j, 1, i < 3 ? 3 : most) };
	}
	return l;
}

/* True if the growing line is the leaky one, with its rate. *wrong: another line or rate. */
static bool names_leak(struct leaky_job *l, bool *wrong)
{
	struct world *w = &l->world;
	struct growth_summary s;
	bool named;

	model__finish(w->m, w->time);
	assert_int_equal(growth_summary__of(w->m, w->f, 0, w->time, &s), 0);
	named = s.verdict == GROWTH_VERDICT_GROWS && s.line && s.line->row.line == LEAKY_LINE &&
		fabs(s.per_step / (double)l->lines[0].size - 1) < 0.1;
	if (named) {
		double truth = (double)l->lines[0].size * (double)l->lines[0].made;
		uint64_t all = growth__in_all_steps(&s.growth, s.line, s.line->row.bytes);

		assert_true(fabs((double)all / truth - 1) < 0.05);
	}
	*wrong = s.verdict == GROWTH_VERDICT_GROWS && !named;
	growth_summary__free(&s);
	return named;
}

static void record_job(struct leaky_job *l)
{
	struct job *j = &l->job;
	struct world *w = &l->world;

	for (uint64_t step = 0; j->now < RECORDED; step++) {
		/* Whether the whole step has detail is known when it ends, so it runs first. */
		struct job was = *j;
		bool detailed = run_step(j);

		w->time = was.now + MS;
		run_lines(l, step, detailed);
		w->time = j->now - MS;
		feed(w, (struct event){ .kind = EVENT_STEP });
	}
}

static void test_random_jobs(void **state)
{
	unsigned named = 0, wrong = 0, false_leaks = 0;

	for (uint64_t i = 0; i < 2 * JOBS; i++) {
		struct leaky_job l = draw_job(i / 2, i % 2);
		bool other;

		record_job(&l);
		named += names_leak(&l, &other);
		*(i % 2 ? &wrong : &false_leaks) += other;
		world__free(&l.world);
	}
	print_message("named %u of %u leaks, %u wrongly; %u false ones\n", named, JOBS, wrong,
		      false_leaks);
	assert_true(named >= 95);
	assert_true(wrong <= 2);
	assert_true(false_leaks <= 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cheap),	     cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_dear),	     cmocka_unit_test(test_traps),
		cmocka_unit_test(test_saves_little), cmocka_unit_test(test_changes),
		cmocka_unit_test(test_no_steps),     cmocka_unit_test(test_random_jobs),
		cmocka_unit_test(test_undecided),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
