/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sums of counters over all CPUs: user/capture/probes.h. */
#include "unit/cmocka.h"

#include <errno.h>
#include <string.h>

#include "capture/probes/probes_internal.h"

static unsigned int sums;
static uint64_t lost;

static int counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR])
{
	sums++;
	memset(c, 0, MT_CNT_NR * sizeof(*c));
	if (number == 3)
		c[MT_CNT_RING_LOST + MT_REC_CODE_GONE] = lost;
	return 0;
}

static void zero_counters(struct probes *p, uint32_t number)
{
	if (number == 3)
		lost = 0;
}

/* Lost ends are summed over all members once per loss, however often they are requested. */
static void test_lost_ends(void **state)
{
	static const struct probes_place place = { .counters = counters,
						   .zero_counters = zero_counters };
	static struct probes p = { .in = &place, .group_id = 1 };
	uint64_t notices = 7, n = 99;
	int i;

	p.vars.notices = &notices;
	for (i = 0; i < 1000; i++)
		assert_true(!probes__lost_ends(&p, &n) && !n);
	assert_int_equal(sums, MT_MEMBERS);
	lost = 5;
	notices++;
	for (i = 0; i < 1000; i++)
		assert_true(!probes__lost_ends(&p, &n) && n == 5);
	assert_int_equal(sums, 2 * MT_MEMBERS);
	/* Reusing a number for another process keeps earlier counts. */
	probes__reset_counters(&p, 3);
	assert_true(!probes__lost_ends(&p, &n) && n == 5);
	lost = 1;
	notices++;
	assert_true(!probes__lost_ends(&p, &n) && n == 6);
}

static bool for_all, for_one;

static bool attached(const struct probes *p, pid_t pid, enum hook_id id)
{
	return id == HOOK_REPORT && (pid == PROBES_ONE ? for_one : for_all);
}

/* Links for all and links for single processes are never in one set: a hook would seem to be
 * attached for a process that its links do not reach. */
static void test_which_processes_share_programs(void **state)
{
	static const struct probes_place place = { .attached = attached };
	static struct probes p = { .in = &place, .group_id = 1 };
	struct hook hooks[HOOK_NR] = { 0 }, *h = &hooks[HOOK_REPORT];

	for (int i = 0; i < HOOK_NR; i++)
		hooks[i].id = i;
	*h = (struct hook){ .id = HOOK_REPORT, .found = true, .inode = 7, .offset = 64 };
	p.at_place[HOOK_REPORT] = (struct place){ { 7, 0, 0 }, 64 };
	for (int i = 0; i < 2; i++) {
		h->fixed = i;
		for_all = for_one = false;
		assert_null(probes__misfit(&p, hooks));
		for_all = true;
		assert_null(probes__misfit(&p, hooks));
		h->offset = 65;
		assert_ptr_equal(probes__misfit(&p, hooks), h);
		h->offset = 64;
	}
	for_all = false;
	for_one = true;
	assert_ptr_equal(probes__misfit(&p, hooks), h);
	h->fixed = false;
	assert_null(probes__misfit(&p, hooks));
}

static unsigned int went;

static int go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks)
{
	(void)p, (void)pid, (void)hooks;
	went++;
	return 0;
}

/* Links that serve all processes are renewed by a process that has the function at their place, and
 * cannot choose the place. */
static void test_which_processes_go_sleepable(void **state)
{
	static const struct probes_place place = { .attached = attached,
						   .go_sleepable = go_sleepable };
	static struct probes p = { .in = &place, .group_id = 1 };
	struct hook hooks[HOOK_NR] = { 0 }, *h = &hooks[HOOK_REPORT];

	for (int i = 0; i < HOOK_NR; i++)
		hooks[i].id = i;
	h->found = for_all = true;
	assert_int_equal(probes__go_sleepable(&p, 1, hooks), -EOPNOTSUPP);
	h->fixed = true;
	h->offset = 64;
	assert_int_equal(probes__go_sleepable(&p, 1, hooks), -EOPNOTSUPP);
	assert_int_equal(went, 0);
	p.at_place[HOOK_REPORT].offset = 64;
	assert_int_equal(probes__go_sleepable(&p, 1, hooks), 0);
	assert_int_equal(went, 1);
	/* Links of the process alone may be where it says. */
	h->fixed = false;
	p.group_id = 0;
	assert_int_equal(probes__go_sleepable(&p, 1, hooks), 0);
	assert_int_equal(went, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_ends),
		cmocka_unit_test(test_which_processes_share_programs),
		cmocka_unit_test(test_which_processes_go_sleepable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
