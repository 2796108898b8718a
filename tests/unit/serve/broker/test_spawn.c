/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The output of a started program, and the part that is reported. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka needs the headers above */

#include "serve/broker/spawn.h"

static const char *words_of(const char *text)
{
	static char buf[128];
	struct spawned s = { .err_fd = -1 };
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	s.err_fd = fds[0];
	for (size_t len = strlen(text), at = 0; at < len;) {
		ssize_t n = write(fds[1], text + at, len - at);

		at += n > 0 ? (size_t)n : 0;
		spawned__read(&s);
	}
	close(fds[1]);
	spawned__read(&s);
	assert_int_equal(s.err_fd, -1);
	spawned__last_message(&s, buf, sizeof(buf));
	spawned__close(&s);
	return buf;
}

static void test_words(void **state)
{
	assert_string_equal(words_of(""), "");
	assert_string_equal(words_of("\n\n"), "");
	assert_string_equal(words_of("plain"), "plain");
	assert_string_equal(words_of("one\ntwo\n"), "two");
	/* The last of our own messages takes precedence. */
	assert_string_equal(words_of("memtrace-bpf: it is full\nother\n"), "it is full");
	assert_string_equal(words_of("memtrace-bpf: warning: first\nx\nmemtrace-bpf: second\ny\n"),
			    "second");
	assert_string_equal(words_of("memtrace-bpf: warning: first\n"), "first");
	/* A usage error, with its hint for a terminal. */
	assert_string_equal(words_of("memtrace-bpf report: --by: 'x' is none of those\nSee "
				     "`memtrace-bpf help report`.\n"),
			    "--by: 'x' is none of those");
	/* Control characters are escaped, for terminals and JSON. */
	assert_string_equal(words_of("\033[31mred\xff\n"), "\\x1b[31mred\\xff");
}

/* The end of endless output is kept. */
static void test_long(void **state)
{
	static char text[3 * SPAWN_LAST];

	memset(text, 'x', sizeof(text) - 6);
	memcpy(text + sizeof(text) - 6, "\nlast", 6);
	assert_string_equal(words_of(text), "last");
	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(strspn(words_of(text), "y"), 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
