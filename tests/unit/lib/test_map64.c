/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/map64.h"

static void test_any_key(void **state)
{
	static const uint64_t keys[] = { 0, 1, UINT64_MAX, UINT64_MAX - 1, 1ull << 63 };
	struct map64 *m = map64__new();
	uint64_t v = 77;

	for (size_t i = 0; i < 5; i++) {
		assert_false(map64__get(m, keys[i], &v));
		assert_true(v == 77); /* unchanged */
		assert_false(map64__del(m, keys[i], &v));
		assert_true(v == 77);
		assert_int_equal(map64__set(m, keys[i], keys[i] ^ 5), 0);
		assert_int_equal(map64__count(m), i + 1);
	}
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(map64__set(m, keys[i], i), 0); /* replaces the value */
		assert_true(map64__get(m, keys[i], &v));
		assert_true(v == i);
	}
	assert_int_equal(map64__count(m), 5);
	assert_true(map64__del(m, 0, &v));
	assert_true(v == 0);
	assert_true(map64__del(m, UINT64_MAX, NULL));
	assert_false(map64__get(m, 0, &v));
	assert_int_equal(map64__count(m), 3);
	map64__clear(m);
	assert_int_equal(map64__count(m), 0);
	assert_false(map64__get(m, 1, &v));
	map64__free(m);
	map64__free(NULL);
}

#define KEYS 3000

/* Compared with a plain array, with keys like real addresses: deletion must keep all other keys. */
static void test_against_array(void **state)
{
	static uint64_t values[KEYS];
	static bool there[KEYS];
	struct map64 *m = map64__new();
	uint64_t rng = 12345;
	size_t count = 0;

	for (int round = 0; round < 400000; round++) {
		size_t i;
		uint64_t key, v = 0;

		rng ^= rng << 13;
		rng ^= rng >> 7;
		rng ^= rng << 17;
		i = rng % KEYS;
		key = i % 3 ? i * 512 + 0x7f0000000000 : i; /* also small keys and 0 */
		if (rng >> 40 & 1) {
			count += !there[i];
			there[i] = true;
			values[i] = rng;
			assert_int_equal(map64__set(m, key, rng), 0);
		} else {
			assert_int_equal(map64__del(m, key, &v), there[i]);
			if (there[i])
				assert_true(v == values[i]);
			count -= there[i];
			there[i] = false;
		}
		assert_int_equal(map64__count(m), count);
		i = rng >> 20 & 2047;
		key = i % 3 ? i * 512 + 0x7f0000000000 : i;
		assert_int_equal(map64__get(m, key, &v), there[i]);
		if (there[i])
			assert_true(v == values[i]);
	}
	map64__free(m);
}

static void test_iteration(void **state)
{
	struct map64 *m = map64__new();
	uint64_t key, value, keys = 0, values = 0;
	size_t pos = 0, n = 0;

	assert_false(map64__next(m, &pos, &key, &value));
	assert_false(map64__next(m, &pos, &key, &value));
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(map64__set(m, i, i * 3), 0);
	pos = 0;
	while (map64__next(m, &pos, &key, &value)) {
		assert_true(value == key * 3);
		keys += key;
		values += value;
		n++;
	}
	assert_int_equal(n, 1000);
	assert_int_equal(keys, 499500);
	assert_int_equal(values, 3 * 499500);
	map64__free(m);
}

/* SipHash-1-3's published vector: key 00 01 .. 0f, empty message. */
static void test_hash(void **state)
{
	struct hash_seed seed = { { 0x0706050403020100, 0x0f0e0d0c0b0a0908 } };
	unsigned char message[64];
	uint64_t all = 0;

	for (size_t i = 0; i < sizeof(message); i++)
		message[i] = (unsigned char)i;
	assert_true(hash__bytes(seed, message, 0) == UINT64_C(0xabac0158050fc4dc));
	for (size_t i = 0; i < sizeof(message); i++)
		all |= hash__bytes(seed, message, i) ^ hash__bytes(seed, message, i + 1);
	assert_true(all == UINT64_MAX);
	assert_true(hash__seed().key[0] == hash__seed().key[0]);
	assert_true(hash__seed().key[0] || hash__seed().key[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_key),
		cmocka_unit_test(test_against_array),
		cmocka_unit_test(test_iteration),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
