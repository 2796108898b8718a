/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Rows of recordings whose small blocks have stacks at random: what they may lack. */
#include "unit/model_world.h"

#include "record/detail.h"

#define RECORDINGS 2000
#define LINES 4
#define BLOCKS 300 /* of a line */

static uint64_t random_state;

static uint32_t draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

/* Sizes of a line's blocks: tiny ones, some of all sizes, few, nearly all at the bound. */
static uint64_t size_of(unsigned line, unsigned block)
{
	switch (line) {
	case 0:
		return 512;
	case 1:
		return 512ULL << draw() % 10;
	case 2:
		return block < 5 ? 20000 : 0;
	default:
		return 60000;
	}
}

static void allocate(struct world *w, uint64_t addr, uint64_t size, uint64_t bound, uint32_t stack,
		     uint32_t not_sampled)
{
	bool drawn = size >= bound || ((uint64_t)draw() * bound) >> 32 < size;
	struct event e = { .kind = EVENT_ALLOC, .addr = addr, .size = size };

	e.stack = drawn ? stack : not_sampled;
	e.walk = drawn ? MT_WALK_OK : MT_WALK_OFF;
	feed(w, e);
}

static void mark(struct world *w, uint32_t off, uint64_t below)
{
	char name[128];

	feed(w, (struct event){ .kind = EVENT_MARK,
				.name = str(w, detail__mark(name, sizeof(name), off, below)) });
}

struct line {
	uint64_t truth;
	double estimates;
	unsigned right;
};

static const struct row *row_of(const struct row *rows, size_t n, unsigned line)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(rows[i].file, "train.py") && rows[i].line == line)
			return &rows[i];
	}
	return NULL;
}

static void record(struct line lines[LINES])
{
	static const uint64_t bounds[] = { 0, 65536, 262144 };
	struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW, .any_phase = true };
	struct world w = world__new(AT_PEAK, 0);
	struct dict_frame f = { .loc = loc(&w, DETAIL_FILE, DETAIL_FUNCTION, 0) };
	uint32_t rest = dict__stack(w.d, &f, 1, MT_WALK_OFF);
	uint64_t addr = 0x1000, all = 0, sum = 0;
	struct row *rows;
	size_t n;

	for (unsigned i = 0; i < LINES; i++)
		lines[i].truth = 0;
	for (unsigned b = 0; b < BLOCKS; b++) {
		if (b % 100 == 0 && b)
			mark(&w, 3, bounds[b / 100]);
		for (unsigned i = 0; i < LINES; i++) {
			uint64_t size = size_of(i, b % 100);

			if (!size)
				continue;
			allocate(&w, addr, size, bounds[b / 100],
				 simple(&w, "train.py", "step", i + 1), rest);
			addr += 1 << 20;
			lines[i].truth += size;
			all += size;
		}
	}
	assert_int_equal(model__rows(w.m, 0, &o, &rows, &n), 0);
	for (size_t i = 0; i < n; i++) {
		assert_true(rows[i].sampled.low >= rows[i].bytes);
		assert_true(rows[i].sampled.low <= rows[i].sampled.bytes);
		assert_true(rows[i].sampled.bytes <= rows[i].sampled.high);
		if (!strcmp(rows[i].file, DETAIL_FILE)) {
			assert_int_equal(rows[i].sampled.high, rows[i].bytes);
			assert_string_equal(rows[i].source, "untraced");
		}
		sum += rows[i].bytes;
	}
	assert_int_equal(sum, all); /* every byte is in a row */
	for (unsigned i = 0; i < LINES; i++) {
		const struct row *r = row_of(rows, n, i + 1);

		lines[i].right += r && r->sampled.low <= lines[i].truth &&
				  lines[i].truth <= r->sampled.high;
		lines[i].estimates += r ? (double)r->sampled.bytes / (double)lines[i].truth : 0;
	}
	free(rows);
	world__free(&w);
}

static void test_interval_holds(void **state)
{
	struct line lines[LINES] = { 0 };

	for (unsigned i = 1; i <= RECORDINGS; i++) {
		random_state = i * 0x9e3779b97f4a7c15;
		record(lines);
	}
	for (unsigned i = 0; i < LINES; i++) {
		assert_true(lines[i].right >= RECORDINGS * 95 / 100);
		/* The standard deviation of the mean is 0.02 for the first line, the least sure. */
		assert_true(lines[i].estimates > 0.9 * RECORDINGS &&
			    lines[i].estimates < 1.1 * RECORDINGS);
	}
}

/* The interval says something: 100 drawn blocks are about 100 times the bound. */
static void test_interval_is_narrow(void **state)
{
	struct drawn d[SAMPLING_BOUNDS] = { { 100, 100 * 30000, 1 << 30 } };
	struct sampled s = sampling__estimate(100 * 30000, d);

	assert_int_equal(s.bytes, 100 * 65536);
	assert_in_range(s.low, 81 * 65536, 82 * 65536); /* Poisson: 81.4 to 121.6 */
	assert_in_range(s.high, 121 * 65536, 122 * 65536);
	/* Never more than there is without a stack, and never less than what was drawn. */
	d[0].others = 1000;
	s = sampling__estimate(100 * 30000, d);
	assert_int_equal(s.low, 100 * 30000);
	assert_int_equal(s.high, 100 * 30000 + 1000);
	/* Nothing drawn: at most 3.69 bounds, at 97.5 %. */
	d[0] = (struct drawn){ 0, 0, 1 << 30 };
	s = sampling__estimate(0, d);
	assert_int_equal(s.bytes, 0);
	assert_in_range(s.high, 65536 * 3.68, 65536 * 3.70);
}

static void test_all_walked(void **state)
{
	struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW };
	struct world w = world__new(AT_PEAK, 0);
	struct row *rows;
	size_t n;

	facts__set(w.f, "cost.limit", "0.01");
	mark(&w, MT_OFF_NODES, 0);
	alloc(&w, CPU, 0x1000, 64, simple(&w, "train.py", "step", 1));
	assert_int_equal(model__rows(w.m, 0, &o, &rows, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(rows->sampled.low, 64);
	assert_int_equal(rows->sampled.high, 64);
	free(rows);
	world__free(&w);
}

/* A part of a rolling recording begins after the change: only its facts know the bound. */
static void test_bound_from_facts(void **state)
{
	struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW };
	struct world w = world__new(AT_PEAK, 0);
	struct row *rows;
	size_t n;

	facts__set(w.f, "cost.limit", "0.01");
	facts__set(w.f, "cost.changes", "1:3:65536:50000");
	random_state = 1;
	allocate(&w, 0x1000, 512, 0, simple(&w, "train.py", "step", 1), 0);
	allocate(&w, 0x100000, 64000, 1ULL << 40, 0, simple(&w, DETAIL_FILE, DETAIL_FUNCTION, 0));
	assert_int_equal(model__rows(w.m, 0, &o, &rows, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(rows[1].bytes, 512);
	assert_int_equal(rows[1].sampled.high, 64512);
	free(rows);
	world__free(&w);
}

#define HOST ((struct device){ .type = DEVICE_HOST })
#define PAGE 4096ULL
#define PAD (128ULL << 10) /* malloc adds this to each piece */

/* The piece of memory that malloc takes for a line's object. */
static uint64_t piece(struct world *w, uint64_t addr, uint64_t need, unsigned line)
{
	uint64_t size = (need + PAD + PAGE - 1) / PAGE * PAGE, left = 4 * (PAD + 2 * PAGE);
	struct event e = { .kind = EVENT_ALLOC,
			   .device = HOST,
			   .addr = addr,
			   .size = size,
			   .stack = simple(w, "train.py", "step", line) };

	feed(w, e);
	e.kind = EVENT_REQUESTED;
	e.size = e.stack = 0;
	e.requested = left < size ? left * left / size : size;
	feed(w, e);
	return size;
}

/* The lines of a host whose objects, at random, use up the pieces that each needs. The last line
 * maps its memory itself. */
static void record_host(struct line lines[LINES])
{
	static const unsigned share[] = { 0, 0, 0, 0, 0, 1, 1, 1, 2, 2 };
	struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW };
	struct world w = world__new(AT_PEAK, 0);
	uint64_t left = draw() % PAD, addr = 0x10000000, alone = 5 << 20, end;
	struct row *rows;
	size_t n;

	for (unsigned i = 0; i < LINES; i++)
		lines[i].truth = 0;
	for (unsigned b = 0; b < 3000; b++) {
		unsigned line = share[draw() % 10];
		uint64_t size = 100 + draw() % (line == 2 ? 4000 : 16000);

		if (size > left) {
			end = addr + piece(&w, addr, size - left, line + 1);
			left += end - addr;
			addr = end;
		}
		left -= size;
		lines[line].truth += size;
	}
	lines[3].truth = alone;
	feed(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = HOST,
				 .addr = 0x1000,
				 .size = alone,
				 .stack = simple(&w, "train.py", "step", 4) });
	assert_int_equal(model__rows(w.m, 0, &o, &rows, &n), 0);
	for (unsigned i = 0; i < LINES; i++) {
		const struct row *r = row_of(rows, n, i + 1);

		assert_non_null(r);
		assert_int_equal(r->requested, 0);
		assert_true(r->sampled.low <= r->bytes && r->bytes <= r->sampled.high);
		assert_true(i > 1 || r->sampled.high - r->sampled.low < r->bytes);
		lines[i].right += r->sampled.low <= lines[i].truth &&
				  lines[i].truth <= r->sampled.high;
		lines[i].estimates += (double)r->bytes / (double)lines[i].truth;
	}
	assert_int_equal(row_of(rows, n, 4)->sampled.low, alone);
	assert_int_equal(row_of(rows, n, 4)->sampled.high, alone);
	free(rows);
	world__free(&w);
}

static void test_interval_of_pieces_holds(void **state)
{
	struct line lines[LINES] = { 0 };

	for (unsigned i = 1; i <= RECORDINGS; i++) {
		random_state = i * 0x9e3779b97f4a7c15;
		record_host(lines);
	}
	for (unsigned i = 0; i < LINES; i++) {
		assert_true(lines[i].right >= RECORDINGS * 95 / 100);
		assert_true(lines[i].right >= RECORDINGS * 95 / 100);
		assert_true(lines[i].estimates > 0.95 * RECORDINGS &&
			    lines[i].estimates < 1.05 * RECORDINGS);
	}
}

static void test_interval_of_few_pieces(void **state)
{
	uint64_t size = 1 << 20;
	struct pieces p = { 0, 0, 100 * size };
	struct sampled s = sampling__pieces(size, &p);

	/* All is exact. */
	assert_int_equal(s.low, size);
	assert_int_equal(s.high, size);
	/* One piece, and exact memory: Poisson 0.0253 to 5.572. */
	p.bytes = size;
	p.squares = (double)size * (double)size;
	s = sampling__pieces(3 * size, &p);
	assert_in_range(s.low, 2.025 * size, 2.026 * size);
	assert_in_range(s.high, 7.57 * size, 7.58 * size);
	/* At most all pieces. */
	p.others = 1000;
	assert_int_equal(sampling__pieces(size, &p).high, size + 1000);
	/* One resident page of a piece counts as the whole piece. */
	p = (struct pieces){ 4096, 4096 * (double)size, 100 * size };
	s = sampling__pieces(4096, &p);
	assert_in_range(s.low, 1, 4096);
	assert_in_range(s.high, 5.57 * size, 5.58 * size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interval_holds),
		cmocka_unit_test(test_interval_is_narrow),
		cmocka_unit_test(test_all_walked),
		cmocka_unit_test(test_bound_from_facts),
		cmocka_unit_test(test_interval_of_pieces_holds),
		cmocka_unit_test(test_interval_of_few_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
