/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/clock.h"
#include "base/text.h"

static void check_clean(const char *src, size_t len, size_t size, const char *want)
{
	char *buf = malloc(size); /* exact size, so that sanitizers find writes beyond it */

	assert_ptr_equal(text__clean(buf, size, src, len), buf);
	assert_string_equal(buf, want);
	free(buf);
}

#define CLEAN(src, want) check_clean(src, sizeof(src) - 1, 100, want)

static void test_clean(void **state)
{
	CLEAN("", "");
	CLEAN("plain text", "plain text");
	CLEAN("a\033[31mred\n", "a\\x1b[31mred\\x0a");
	CLEAN("nul\0inside", "nul\\x00inside");
	CLEAN("\x7f", "\\x7f");
	CLEAN("Stra\xc3\x9f"
	      "e \xe6\xbc\xa2 \xf0\x9f\x98\x80",
	      "Stra\xc3\x9f"
	      "e \xe6\xbc\xa2 \xf0\x9f\x98\x80");
	CLEAN("\xc2\x9b"
	      "31m",
	      "\\xc2\\x9b31m"); /* C1: CSI */
	CLEAN("\xe2\x80\xae"
	      "abc",
	      "\\xe2\\x80\\xae"
	      "abc"); /* right-to-left override */
	CLEAN("\xe2\x81\xa6", "\\xe2\\x81\\xa6");
	CLEAN("\xff\xfe", "\\xff\\xfe");
	CLEAN("\xc0\xaf", "\\xc0\\xaf");	  /* overlong */
	CLEAN("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* surrogate */
	CLEAN("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	CLEAN("cut\xe6\xbc", "cut\\xe6\\xbc");
	/* Shortened at whole characters and whole escapes. */
	check_clean("abcdef", 6, 4, "abc");
	check_clean("ab\xe6\xbc\xa2", 5, 5, "ab");
	check_clean("ab\xe6\xbc\xa2", 5, 6, "ab\xe6\xbc\xa2");
	check_clean("ab\n", 3, 6, "ab");
	check_clean("ab\n", 3, 7, "ab\\x0a");
	check_clean("abc", 3, 1, "");
}

static void check_utf8(const char *src, size_t len, size_t size, const char *want)
{
	char *buf = malloc(size ? size : 1);

	assert_int_equal(text__utf8(buf, size, src, len), strlen(want));
	assert_memory_equal(buf, want, strlen(want));
	free(buf);
}

static void test_utf8(void **state)
{
	check_utf8("ok\n\t", 4, 10, "ok\n\t");
	check_utf8("a\xff"
		   "b",
		   3, 10,
		   "a\xef\xbf\xbd"
		   "b");
	check_utf8("a\xff"
		   "b",
		   3, 3, "a");
	check_utf8("\xe6\xbc\xa2", 3, 2, "");
	check_utf8("\xe6\xbc\xa2", 3, 3, "\xe6\xbc\xa2");
	check_utf8("\xe6\xbc", 2, 9, "\xef\xbf\xbd\xef\xbf\xbd");
	check_utf8("x", 1, 0, "");
}

static void test_width(void **state)
{
	assert_int_equal(text__width(""), 0);
	assert_int_equal(text__width("abc"), 3);
	assert_int_equal(text__width("Stra\xc3\x9f"
				     "e"),
			 6);
	assert_int_equal(text__width("\xe6\xbc\xa2\xe5\xad\x97"), 4);
	assert_int_equal(text__width("e\xcc\x81"), 1); /* combining acute */
	assert_int_equal(text__width("\xf0\x9f\x98\x80"), 2);
	assert_int_equal(text__width("\xff"), 1);
	assert_int_equal(text__width("\xe2\x94\x80\xe2\x94\x82"), 2); /* box drawing */
}

static void check_bytes(uint64_t n, const char *want)
{
	char buf[24];

	assert_ptr_equal(text__bytes(buf, sizeof(buf), n), buf);
	assert_string_equal(buf, want);
	assert_true(strlen(buf) <= 10);
}

static void test_bytes(void **state)
{
	char buf[24];

	check_bytes(0, "0 B");
	check_bytes(512, "512 B");
	check_bytes(1023, "1023 B");
	check_bytes(1024, "1.0 KiB");
	check_bytes(5120, "5.0 KiB");
	check_bytes(1048524, "1023.9 KiB");
	check_bytes(1048525, "1.00 MiB"); /* 1023.95 KiB */
	check_bytes(1 << 20, "1.00 MiB");
	check_bytes(100000 << 10, "97.66 MiB");
	check_bytes((UINT64_C(1000) << 20) - 1, "1000.0 MiB");
	check_bytes((UINT64_C(1024) << 20) - 1, "1.00 GiB");
	check_bytes(UINT64_C(1010) << 20, "1010.0 MiB");
	check_bytes(UINT64_C(14538464821), "13.54 GiB");
	check_bytes(UINT64_C(15) << 30, "15.00 GiB");
	check_bytes(UINT64_C(2) << 30, "2.00 GiB");
	check_bytes(UINT64_C(80) << 40, "80.00 TiB");
	check_bytes(UINT64_MAX, "16.00 EiB");
	for (uint64_t n = 1; n; n *= 2) { /* never wider than a column */
		for (int64_t d = -3; d <= 3; d++)
			assert_true(strlen(text__bytes(buf, sizeof(buf), n + (uint64_t)d)) <= 10);
		for (uint64_t k = 1; k < 1024; k += 37)
			assert_true(strlen(text__bytes(buf, sizeof(buf), n / 1024 * k)) <= 10);
	}
}

static void check_count(uint64_t n, const char *want)
{
	char buf[32];

	assert_string_equal(text__count(buf, sizeof(buf), n), want);
}

static void test_count(void **state)
{
	check_count(0, "0");
	check_count(999, "999");
	check_count(1000, "1,000");
	check_count(1204332, "1,204,332");
	check_count(UINT64_MAX, "18,446,744,073,709,551,615");
}

static void test_counted(void **state)
{
	char buf[32];

	assert_string_equal(text__counted(buf, sizeof(buf), 0, "event"), "0 events");
	assert_string_equal(text__counted(buf, sizeof(buf), 1, "event"), "1 event");
	assert_string_equal(text__counted(buf, sizeof(buf), 4371, "event"), "4,371 events");
}

/* COLUMNS that is no number is ignored. */
static void test_columns(void **state)
{
	static const char *const bad[] = { "-5", "", "wide", "60x", " 60", "0" };
	FILE *out = tmpfile();

	assert_non_null(out);
	setenv("COLUMNS", "60", 1);
	assert_int_equal(text__columns(out), 60);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		setenv("COLUMNS", bad[i], 1);
		assert_int_equal(text__columns(out), TEXT_NO_LIMIT);
	}
	unsetenv("COLUMNS");
	fclose(out);
}

static void check_percent(uint64_t part, uint64_t whole, const char *want)
{
	char buf[8];

	assert_string_equal(text__percent(buf, part, whole), want);
}

static void test_percent(void **state)
{
	check_percent(0, 100, "0");
	check_percent(0, 0, "0");
	check_percent(5, 0, "0");
	check_percent(1, 200, "<1");
	check_percent(1, 100, "1");
	check_percent(265, 1000, "27");
	check_percent(994, 1000, "99");
	check_percent(999, 1000, ">99");
	check_percent(UINT64_MAX - 1, UINT64_MAX, ">99");
	check_percent(7, 7, "100");
	check_percent(15, 10, "150");
	check_percent(UINT64_MAX, 1, "999999");
}

static void check_time(uint64_t ns, const char *want)
{
	char buf[24];

	assert_string_equal(text__time(buf, sizeof(buf), ns), want);
}

static void test_time(void **state)
{
	check_time(0, "0 ns");
	check_time(999, "999 ns");
	check_time(1000, "1.0 us");
	check_time(999949, "999.9 us");
	if (setlocale(LC_CTYPE, "C.UTF-8")) {
		check_time(999949, "999.9 \xc2\xb5s");
		setlocale(LC_CTYPE, "C");
	}
	check_time(999950, "1.0 ms");
	check_time(2300000, "2.3 ms");
	check_time(99949999, "99.9 ms");
	check_time(99950000, "0.10 s");
	check_time(184700000, "0.18 s");
	check_time(999999999, "1.00 s");
	check_time(9994999999, "9.99 s");
	check_time(9995000000, "10.0 s");
	check_time(31400000000, "31.4 s");
	check_time(59949999999, "59.9 s");
	check_time(59950000000, "1m 00s");
	check_time(UINT64_C(121400000000), "2m 01s");
	check_time(UINT64_C(185000000000), "3m 05s");
	check_time(UINT64_C(3599600000000), "1h 00m");
	check_time(UINT64_C(3725000000000), "1h 02m");
	check_time(UINT64_MAX, "5124095h 34m");
}

static void check_size(const char *s, int err, uint64_t want)
{
	uint64_t got = 4711;

	assert_int_equal(text__parse_size(s, &got), err);
	assert_true(got == (err ? 4711 : want));
}

static void test_parse_size(void **state)
{
	check_size("7", 0, 7);
	check_size("0", 0, 0);
	check_size("64K", 0, 65536);
	check_size("64k", 0, 65536);
	check_size("64KiB", 0, 65536);
	check_size("1.5G", 0, UINT64_C(3) << 29);
	check_size(".5M", 0, 512 << 10);
	check_size("1.M", 0, 1 << 20);
	check_size("16777215T", 0, UINT64_C(16777215) << 40);
	check_size("18446744073709551615", 0, UINT64_MAX);
	check_size("18446744073709551616", -ERANGE, 0);
	check_size("16E", -ERANGE, 0);
	check_size("15.9E", 0, UINT64_C(18331451923248866918));
	check_size("", -EINVAL, 0);
	check_size("K", -EINVAL, 0);
	check_size(".", -EINVAL, 0);
	check_size("-1", -EINVAL, 0);
	check_size(" 1", -EINVAL, 0);
	check_size("1 K", -EINVAL, 0);
	check_size("1KB", -EINVAL, 0); /* ambiguous: 1000 or 1024 */
	check_size("1.5.5", -EINVAL, 0);
	check_size("0x10", -EINVAL, 0);
	check_size("1e3", -EINVAL, 0);
}

static void check_parse_time(const char *s, int err, uint64_t want)
{
	uint64_t got = 4711;

	assert_int_equal(text__parse_time(s, &got), err);
	assert_true(got == (err ? 4711 : want));
}

static void test_parse_time(void **state)
{
	check_parse_time("250ms", 0, 250000000);
	check_parse_time("30s", 0, UINT64_C(30000000000));
	check_parse_time("5m", 0, UINT64_C(300000000000));
	check_parse_time("2h", 0, UINT64_C(7200000000000));
	check_parse_time("10", 0, UINT64_C(10000000000));
	check_parse_time("0.1", 0, 100000000);
	check_parse_time("12.8", 0, UINT64_C(12800000000));
	check_parse_time("200000000d", -ERANGE, 0);
	check_parse_time("5x", -EINVAL, 0);
	check_parse_time("", -EINVAL, 0);
}

/* The text that log__print() writes to standard error. */
static void test_log(void **state)
{
	char got[512] = "";
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	assert_int_equal(log__level(), LOG_INFO);
	log_err("bad %d", 1);
	log_warn("odd\n");
	log_info("good");
	log_debug("unseen");
	log__set_level(LOG_WARN);
	log_info("unseen");
	log__set_level(LOG_DEBUG);
	log_debug("detail\n\n");
	/* names from targets, and the verifier's log */
	log_debug("%s", "a\x1b[31m\xc2\x9b\r\n\tb \xe2\x80\xae\xff \xc3\xa9");
	log__set_level(LOG_INFO);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	n = read(fds[0], got, sizeof(got) - 1);
	close(fds[0]);
	assert_true(n > 0);
	assert_string_equal(
		got,
		"memtrace-bpf: bad 1\nmemtrace-bpf: warning: odd\nmemtrace-bpf: good\n"
		"memtrace-bpf: detail\n"
		"memtrace-bpf: a\\x1b[31m\\xc2\\x9b\\x0d\n\tb \\xe2\\x80\\xae\\xff \xc3\xa9\n");
}

static void test_date(void **state)
{
	uint64_t ns;
	char buf[40];

	assert_string_equal(text__date(buf, sizeof(buf), UINT64_C(1767323045678999999)),
			    "2026-01-02T03:04:05.678Z");
	assert_int_equal(text__parse_date(buf, &ns), 0);
	assert_true(ns == UINT64_C(1767323045678000000));
	assert_string_equal(text__date(buf, sizeof(buf), 0), "1970-01-01T00:00:00.000Z");
}

static void test_clock_offset(void **state)
{
	assert_int_equal(
		clock__parse_offset(
			"monotonic           0         0\nboottime            0         0\n"),
		0);
	assert_true(clock__parse_offset("monotonic      -86400 500000000\nboottime  7 0\n") ==
		    INT64_C(-86399500000000));
	assert_true(clock__parse_offset("monotonic      100000         5\n") ==
		    INT64_C(100000000000005));
	assert_int_equal(clock__parse_offset(""), 0);
	assert_int_equal(clock__parse_offset("monotonic soon\n"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_date),	   cmocka_unit_test(test_clock_offset),
		cmocka_unit_test(test_clean),	   cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_width),	   cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_count),	   cmocka_unit_test(test_time),
		cmocka_unit_test(test_counted),	   cmocka_unit_test(test_columns),
		cmocka_unit_test(test_percent),	   cmocka_unit_test(test_parse_size),
		cmocka_unit_test(test_parse_time), cmocka_unit_test(test_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
