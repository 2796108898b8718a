/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Copies of tensors whose out of memory never comes: they are dropped in the end, and counted. */
#include "unit/cmocka.h"

#include "capture/decode/decode_ctx.h"
#include "capture/decode/oom_tensors.h"
#include "capture/target.h"

static void no_event_comes(void **state)
{
	struct target target = { .proc = NULL };
	struct decoder d = { .target = &target };
	struct mt_rec_tensor record = { .h.type = MT_REC_TENSOR };
	uint64_t sent = 0;

	assert_int_equal(oom_tensors__no_room(&d), 0);
	for (; sent < 4096 && !oom_tensors__no_room(&d); sent++) {
		record.h.tid = (uint32_t)(sent / MT_LOCAL_TENSORS);
		assert_int_equal(oom_tensors__record(&d, &record), 0);
	}
	/* Four threads can wait at least. All but the one that found no room are dropped. */
	assert_true(sent > 4 * MT_LOCAL_TENSORS);
	assert_int_equal(oom_tensors__no_room(&d), sent - 1);
	oom_tensors__free(d.oom);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_event_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
