/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of other processes that never come, as of one that waits for a failed GPU: the facts have
 * none, and no second thread waits for them. NVML and the thread are stand-ins. */
#include "unit/cmocka.h"

#include <errno.h>

#include "base/clock.h"
#include "capture/decode/cuda_calls_internal.h"
#include "capture/decode/decode_ctx.h"
#include "capture/decode/neighbours_stage.h"
#include "capture/probes/session_opts.h"
#include "inspect/gpu_holders.h"
#include "record/oom.h"

#define LONG UINT64_C(10000000000) /* ns: longer than any wait */

static const struct device gpu = { .type = DEVICE_CUDA, .index = 0 };
static unsigned started, left; /* threads for names, and how many of them are no longer needed */
static bool done;
static struct holder_process named = { .state = 'R', .uid = 1000, .command = "other" };

bool nvml__is_dry_run(const struct nvml *s)
{
	(void)s;
	return false;
}

uint64_t nvml__ask_others(struct nvml *s)
{
	(void)s;
	return 1;
}

int nvml__others(struct nvml *s, unsigned device, uint64_t asked, struct nvml_other *v, size_t max,
		 size_t *all, uint64_t *began)
{
	(void)s, (void)device, (void)asked, (void)max;
	v[0] = (struct nvml_other){ .pid = 42, .used = 512 };
	*all = 1;
	*began = 1;
	return 1;
}

struct holder_names *holder_names__new(const pid_t *pid, size_t n)
{
	assert_true(n == 1 && *pid == 42);
	started++;
	return (struct holder_names *)&named;
}

const struct holder_process *holder_names__get(const struct holder_names *h, size_t *n)
{
	(void)h;
	*n = 1;
	return done ? &named : NULL;
}

void holder_names__free(struct holder_names *h)
{
	left += h != NULL;
}

/* An allocation fails at this time, and more than enough time passes. Returns whether its only
 * neighbour has a name. */
static bool has_name(struct decoder *d, uint64_t time)
{
	struct neighbours n;
	bool ret;

	assert_int_equal(neighbours_stage__failed(d, gpu, time), 0);
	for (int i = 0; i < 3; i++) {
		d->start -= LONG;
		assert_int_equal(neighbours_stage__tick(d), 0);
	}
	assert_true(neighbours__read(d->facts, time, gpu, &n));
	assert_int_equal(n.n, 1);
	assert_int_equal(n.v[0].bytes, 512);
	ret = *n.v[0].command != '\0';
	neighbours__free(&n);
	return ret;
}

static void names_that_never_come(void **state)
{
	struct cuda_calls calls = { .smi = (struct nvml *)&named };
	const struct session_opts opts = { .inside = (struct inside_memory *)&named };
	struct decoder d = {
		.calls = &calls, .facts = facts__new(), .opts = &opts, .start = clock__monotonic()
	};

	assert_non_null(d.facts);
	for (uint64_t i = 0; i < 8; i++)
		assert_false(has_name(&d, i));
	assert_int_equal(started, 1);
	assert_int_equal(left, 0);
	/* It goes on when that thread ends. */
	done = true;
	assert_true(has_name(&d, 100));
	assert_int_equal(started, 2);
	neighbours_stage__free(d.neighbours);
	assert_int_equal(left, started);
	facts__free(d.facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_never_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
