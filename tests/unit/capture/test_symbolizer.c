/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/queue.h"
#include "capture/decode/symbolizer.h"
#include "record/dict.h"
#include "record/stream/limits.h"

/* With more threads than a recording can hold, the capture continues and counts those without a
 * number. */
static void test_full_dict(void **state)
{
	struct dict *d = dict__new();
	struct symbolizer *n = symbolizer__new(d, NULL);
	uint32_t i;

	assert_non_null(n);
	log__set_level(LOG_ERROR);
	for (i = 1; i < DICT_MAX_THREADS; i++)
		if (symbolizer__number(n, dict__thread(d, (struct dict_thread){ .tid = i })) != i)
			fail();
	assert_int_equal(symbolizer__stats(n).no_room, 0);
	assert_int_equal(symbolizer__number(n, dict__thread(d, (struct dict_thread){ .tid = i })),
			 0);
	assert_int_equal(
		symbolizer__number(n, dict__thread(d, (struct dict_thread){ .tid = i + 1 })), 0);
	assert_int_equal(symbolizer__stats(n).no_room, 2);
	/* Known threads keep their number. */
	assert_int_equal(symbolizer__number(n, dict__thread(d, (struct dict_thread){ .tid = 7 })),
			 7);
	symbolizer__free(n);
	dict__free(d);
}

static void test_no_memory_is_an_error(void **state)
{
	struct dict *d = dict__new();
	struct symbolizer *n = symbolizer__new(d, NULL);

	assert_non_null(n);
	errno = ENOMEM;
	assert_int_equal(symbolizer__number(n, UINT32_MAX), UINT32_MAX);
	assert_int_equal(symbolizer__stats(n).no_room, 0);
	symbolizer__free(n);
	dict__free(d);
}

static void push(struct queue *q, unsigned int type, uint64_t epoch, size_t max)
{
	const struct mt_rec_gone r = { .h = { .type = type },
				       .code = 0x1000 + epoch,
				       .epoch = epoch };

	assert_int_equal(queue__push_early(q, &r, sizeof(r), max), 0);
}

/* A waiting process uses no memory while others create and free code. */
static void test_waiting_keeps_no_ends(void **state)
{
	struct queue q = { 0 };
	size_t full, i;

	for (i = 1; i <= 1000000; i++)
		push(&q, MT_REC_CODE_GONE, i, 4096);
	assert_int_equal(q.cap, 0);
	assert_int_equal(q.floor, 1000000);
	/* Ends count from the process's first record on. */
	push(&q, MT_REC_CPU_DELETE, 0, 4096);
	push(&q, MT_REC_CODE_GONE, 1000001, 4096);
	assert_int_equal(q.floor, 1000000);
	while (q.len <= 4096)
		push(&q, MT_REC_CPU_DELETE, 0, 4096);
	full = q.len;
	push(&q, MT_REC_CODE_GONE, 1000002, 4096);
	assert_int_equal(q.len, full);
	assert_int_equal(q.floor, 1000002);
	free(q.buf);
}

/* After dropped ends, names read later are not used for earlier stacks; names read before stay
 * valid. */
static void test_floor(void **state)
{
	struct dict *d = dict__new();
	struct code_cache *c = code_cache__new(d, NULL);

	assert_int_equal(code_cache__need(c, 0x1000, 5), 0);
	code_cache__confirm(c);
	code_cache__floor(c, 100);
	code_cache__floor(c, 90);
	assert_non_null(code_cache__find(c, 0x1000, 7));
	assert_int_equal(code_cache__need(c, 0x2000, 99), 0);
	assert_int_equal(code_cache__reads(c), 1);
	assert_int_equal(code_cache__need(c, 0x2000, 100), 0);
	assert_int_equal(code_cache__reads(c), 2);
	assert_null(code_cache__find(c, 0x2000, 99));
	assert_non_null(code_cache__find(c, 0x2000, 100));
	code_cache__free(c);
	dict__free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_dict),
		cmocka_unit_test(test_no_memory_is_an_error),
		cmocka_unit_test(test_waiting_keeps_no_ends),
		cmocka_unit_test(test_floor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
