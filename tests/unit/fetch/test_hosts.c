/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Addresses and names of the servers that a fetch asks. */
#include "unit/cmocka.h"

#include <errno.h>

#include "serve/fetch.h"

static void check(const char *server, const char *given, const char *url, const char *name)
{
	struct hosts h = { 0 };
	const char *why;

	assert_int_equal(hosts__add(&h, server, given, &why), url ? 0 : -EINVAL);
	if (url) {
		assert_string_equal(h.all[0].url, url);
		assert_string_equal(h.all[0].name, name);
		/* The same server again. */
		assert_int_equal(hosts__add(&h, server, "again", &why), -EINVAL);
		assert_string_equal(why, "it is given twice");
	} else {
		assert_non_null(why);
	}
	hosts__free(&h);
}

static void test_words(void **state)
{
	(void)state;
	check("node1", NULL, "https://node1:8000", "node1");
	check("node1:9", NULL, "https://node1:9", "node1");
	check("10.0.0.1", "a", "https://10.0.0.1:8000", "a");
	check("[2001:db8::1]", NULL, "https://[2001:db8::1]:8000", "[2001:db8::1]");
	check("[2001:db8::1]:7", NULL, "https://[2001:db8::1]:7", "[2001:db8::1]");
	check("http://node1", NULL, "http://node1", "node1");
	check("http://node1:80/", NULL, "http://node1:80", "node1");
	check("https://node1//", "x\x1b[31m", "https://node1", "x\\x1b[31m");
	check("", NULL, NULL, NULL);
	check("http://", NULL, NULL, NULL);
	check("node1/path", NULL, NULL, NULL);
	check("user@node1", NULL, NULL, NULL);
	check("http://user:word@node1", NULL, NULL, NULL);
	check("node1?query", NULL, NULL, NULL);
	check("node 1", NULL, NULL, NULL);
	check("file:///etc/passwd", NULL, NULL, NULL);
	check("ftp://node1", NULL, NULL, NULL);
}

static void test_names(void **state)
{
	struct hosts h = { .http = true };
	const char *why;

	(void)state;
	assert_int_equal(hosts__add(&h, "a:1", NULL, &why), 0);
	assert_int_equal(hosts__add(&h, "a:2", NULL, &why), 0);
	assert_int_equal(hosts__add(&h, "b", "a:2", &why), -EINVAL);
	assert_string_equal(h.all[0].name, "a");
	assert_string_equal(h.all[1].name, "a:2");
	assert_string_equal(h.all[1].url, "http://a:2");
	hosts__free(&h);
}

static void test_unencrypted(void **state)
{
	struct hosts h = { 0 };
	const char *why;

	(void)state;
	assert_int_equal(hosts__add(&h, "node1", NULL, &why), 0);
	assert_int_equal(hosts__add(&h, "http://127.0.0.1:8000", NULL, &why), 0);
	assert_int_equal(hosts__add(&h, "http://[::1]:8000", NULL, &why), 0);
	assert_null(hosts__unencrypted(&h));
	assert_int_equal(hosts__add(&h, "http://node2", NULL, &why), 0);
	assert_string_equal(hosts__unencrypted(&h), "http://node2");
	hosts__free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_words),
					    cmocka_unit_test(test_names),
					    cmocka_unit_test(test_unencrypted) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
