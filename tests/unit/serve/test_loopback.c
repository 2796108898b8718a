/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where a token may go unencrypted: to this machine, and to no URL that only looks like it. */
#include "unit/cmocka.h"

#include "serve/secret.h"

static void test_this_machine(void **state)
{
	static const char *const urls[] = {
		"http://localhost",	   "http://localhost:8080", "http://127.0.0.1:9/path",
		"http://127.255.0.1?x=@y", "http://[::1]",	    "http://[::1]:4318/v1",
	};

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++)
		if (!loopback__is(urls[i]))
			fail_msg("%s is this machine", urls[i]);
}

static void test_other_machines(void **state)
{
	static const char *const urls[] = {
		"http://[::1]:9@example.org/",
		"http://[::1]@example.org/",
		"http://[::1].example.org/",
		"http://[::1]:80:80@example.org",
		"http://[::1]:user@example.org",
		"http://localhost@example.org/",
		"http://localhost:1@example.org/",
		"http://localhost.example.org",
		"http://127.0.0.1.example.org",
		"http://127.0.0.1:80@example.org",
		"http://[::2]:80",
		"http://[::1",
		"http://::1",
		"http://128.0.0.1",
		"http://",
		"http://:80",
		"http://[]:80",
		"http://localhost\\@example.org",
		"http://localhost\\.example.org",
		"http://user@localhost",
	};

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++)
		if (loopback__is(urls[i]))
			fail_msg("%s is another machine", urls[i]);
}

static void test_no_proxy_gets_a_token(void **state)
{
	assert_true(loopback__direct("http://127.0.0.1:80", false));
	assert_true(loopback__direct("https://[::1]:443/x", false));
	assert_true(loopback__direct("http://example.org", true));
	assert_false(loopback__direct("http://example.org", false));
	assert_false(loopback__direct("https://example.org", true));
	assert_false(loopback__direct("https://localhost.example.org", true));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_this_machine),
		cmocka_unit_test(test_other_machines),
		cmocka_unit_test(test_no_proxy_gets_a_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
