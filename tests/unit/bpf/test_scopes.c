/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Scopes that PyTorch and NVTX name: what the programs read of their names. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define PAGE 0x1000
#define TEXT 0x7f0000000000ULL /* one page; the next one is absent */

static uint8_t page[PAGE];

static int setup(void **state)
{
	host_reset();
	memset(page, 0x5a, sizeof(page));
	host_add(TEXT, PAGE, page);
	return 0;
}

static uint64_t host_counter(uint32_t which)
{
	__u32 zero = 0;
	const struct counters *c = bpf_map_lookup_elem(&counters, &zero);

	return c->c[which];
}

static const struct mt_rec_scope *last(size_t records)
{
	const struct mt_rec_scope *r = (const void *)host.record[host.records - 1].data;

	assert_int_equal(host.records, records);
	assert_int_equal(host.record[records - 1].len, sizeof(*r));
	assert_int_equal(r->h.type, MT_REC_SCOPE);
	return r;
}

/* A call of record_function_enter_new() with a std::string that has its text at `text`. */
static void enter(uint64_t text)
{
	struct pt_regs regs = { .si = TEXT + 8 };

	memcpy(page + 8, &text, sizeof(text));
	host_run(scope_begin, &regs);
}

static void push(uint64_t text)
{
	struct pt_regs regs = { .di = text };

	host_run(range_push, &regs);
}

static void test_names(void **state)
{
	struct pt_regs none = { 0 };

	strcpy((char *)page + 100, "forward");
	enter(TEXT + 100);
	assert_string_equal(last(1)->name, "forward");
	assert_true(last(1)->source == MT_SCOPE_RECORD_FUNCTION && !last(1)->ends);
	push(TEXT + 100);
	assert_string_equal(last(2)->name, "forward");
	assert_true(last(2)->source == MT_SCOPE_NVTX && !last(2)->ends);
	host_run(range_pop, &none);
	assert_string_equal(last(3)->name, "");
	assert_true(last(3)->source == MT_SCOPE_NVTX && last(3)->ends);
}

/* A hit of a USDT probe with this cookie. */
static void usdt(uint64_t cookie, const struct pt_regs *at)
{
	struct pt_regs regs = *at;

	host.cookie = cookie;
	host_run(usdt_scope, &regs);
}

#define BEGIN(flags, member, disp)                                                                 \
	MT_SCOPE_COOKIE(MT_SCOPE_USDT + 3, flags, offsetof(struct pt_regs, member), disp)

/* The cookie says where the name of a USDT scope is: in a register, in memory, or nowhere. */
static void test_usdt(void **state)
{
	const struct pt_regs regs = { .r12 = TEXT + 100, .bp = TEXT + 64, .ax = TEXT + PAGE - 8 };
	const uint64_t address = TEXT + 100;

	strcpy((char *)page + 100, "rollout");
	memcpy(page + 8, &address, sizeof(address));
	usdt(BEGIN(MT_SCOPE_NAMED, r12, 0), &regs);
	assert_string_equal(last(1)->name, "rollout");
	assert_true(last(1)->source == MT_SCOPE_USDT + 3 && !last(1)->ends);
	assert_int_equal(last(1)->name_at, address);
	usdt(BEGIN(MT_SCOPE_NAMED | MT_SCOPE_MEMORY, bp, -56), &regs);
	assert_string_equal(last(2)->name, "rollout");
	assert_int_equal(last(2)->name_at, address);
	usdt(BEGIN(MT_SCOPE_NAMED | MT_SCOPE_MEMORY, ax, 8), &regs); /* absent */
	assert_true(!*last(3)->name && !last(3)->name_at);
	usdt(BEGIN(MT_SCOPE_NAMED, cs, 1), &regs); /* probes name no such register */
	assert_true(!*last(4)->name && !last(4)->name_at);
	usdt(BEGIN(0, r12, 0), &regs);
	assert_true(!*last(5)->name && !last(5)->name_at);
	usdt(BEGIN(MT_SCOPE_ENDS, r15, 0), &regs);
	assert_true(!*last(6)->name && last(6)->ends && last(6)->source == MT_SCOPE_USDT + 3);
}

/* A name that is too long is cut, and one before an absent page is read up to there. */
static void test_bounds(void **state)
{
	memset(page + 200, 'x', 300);
	push(TEXT + 200);
	for (size_t i = 0; i < MT_SCOPE_NAME; i++)
		assert_int_equal(last(1)->name[i], 'x');
	strcpy((char *)page + PAGE - 4, "end");
	push(TEXT + PAGE - 4);
	assert_string_equal(last(2)->name, "end");
}

static void test_unreadable(void **state)
{
	struct pt_regs regs = { .si = 0x1234 };

	push(0);
	assert_string_equal(last(1)->name, "");
	push(TEXT + PAGE);
	assert_string_equal(last(2)->name, "");
	enter(TEXT + PAGE + 5);
	assert_string_equal(last(3)->name, "");
	host_run(scope_begin, &regs); /* not even the std::string is readable */
	assert_string_equal(last(4)->name, "");
}

static void test_off(void **state)
{
	struct pt_regs none = { 0 };

	detail.off = MT_OFF_SCOPES;
	enter(TEXT);
	push(TEXT);
	host_run(range_pop, &none);
	usdt(BEGIN(0, r12, 0), &none);
	detail.off = 0;
	assert_int_equal(host.records, 0);
	assert_int_equal(host_counter(MT_CNT_HIT + MT_REC_SCOPE), 4);
	assert_int_equal(host_counter(MT_CNT_FILTERED + MT_REC_SCOPE), 4);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_names, setup),
		cmocka_unit_test_setup(test_usdt, setup),
		cmocka_unit_test_setup(test_bounds, setup),
		cmocka_unit_test_setup(test_unreadable, setup),
		cmocka_unit_test_setup(test_off, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
