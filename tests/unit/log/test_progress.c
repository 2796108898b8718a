/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Terminal output of long operations; progress bars. */
#include "unit/cmocka.h"

#include <locale.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

static uint64_t elapsed; /* ns */

/* Instead of the C library's: time passes only when do_work() says so. */
int clock_gettime(clockid_t clock, struct timespec *ts)
{
	(void)clock;
	ts->tv_sec = 1 + (time_t)(elapsed / 1000000000);
	ts->tv_nsec = (long)(elapsed % 1000000000);
	return 0;
}

struct work {
	const char *what;
	uint64_t total;
	unsigned ms; /* duration */
	bool message;
	bool second;  /* a second operation starts meanwhile */
	bool at_once; /* true: show at once; false: after a second */
};

static void do_work(const struct work *w)
{
	struct progress p = progress__begin(w->what, w->total, "events"), q = { 0 };

	if (w->at_once)
		p.next = p.start;
	for (unsigned i = 0; i <= w->ms / 20; i++) {
		uint64_t done = w->total * i / (w->ms / 20 + 1);

		progress__at(&p, done, 1000 * i);
		if (w->second && !i)
			q = progress__begin("within", 10, "events");
		progress__at(&q, 5, 5);
		if (w->message && i * 20 == 1200)
			log_warn("a message");
		elapsed += 20000000;
	}
	progress__end(&q);
	progress__end(&p);
}

/* Output at the other end of a terminal with this many columns. */
static char *on_terminal(const struct work *w, unsigned short columns, const char *term,
			 const char *locale)
{
	static char buf[65536];
	struct winsize ws = { .ws_row = 24, .ws_col = columns };
	size_t len = 0;
	int master, status;
	ssize_t n;
	pid_t pid = forkpty(&master, NULL, NULL, &ws);

	assert_true(pid >= 0);
	if (!pid) {
		setenv("TERM", term, 1);
		_exit(setlocale(LC_ALL, locale) ? (do_work(w), 0) : 9);
	}
	while (len < sizeof(buf) - 1 && (n = read(master, buf + len, sizeof(buf) - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	close(master);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return buf;
}

/* Text that remains on the terminal after erased lines. */
static char *left(char *s)
{
	static char out[65536];
	size_t len = 0, line = 0;

	for (; *s; s++) {
		if (!strncmp(s, "\r\033[K", 4)) {
			len = line;
			s += 3;
		} else if (*s != '\r') {
			out[len++] = *s;
			line = *s == '\n' ? len : line;
		}
	}
	out[len] = '\0';
	return out;
}

static void widths(const char *s, unsigned columns)
{
	char line[1024];

	for (const char *p = s; (p = strstr(p, "\r\033[K"));) {
		const char *end;

		p += 4;
		end = strpbrk(p, "\r\n");
		assert_true((end ? (size_t)(end - p) : strlen(p)) < sizeof(line));
		snprintf(line, sizeof(line), "%.*s", (int)(end ? end - p : (long)strlen(p)), p);
		if (text__width(line) >= columns)
			fail_msg("%zu columns of %u: '%s'", text__width(line), columns, line);
	}
}

static void test_nothing_in_a_second(void **state)
{
	struct work w = { .what = "reading x", .total = 100, .ms = 500 };

	assert_string_equal(on_terminal(&w, 80, "xterm", "C.UTF-8"), "");
}

static void test_bar(void **state)
{
	struct work w = { .what = "reading run\033[2J\xe2\x80\xae.mtr",
			  .total = 1000,
			  .ms = 1600,
			  .message = true,
			  .second = true };
	char *s = on_terminal(&w, 80, "xterm", "C.UTF-8");

	assert_non_null(strstr(s, "reading run\\x1b[2J\\xe2\\x80\\xae.mtr  \xe2\x96\x88"));
	assert_non_null(strstr(s, " %  1 s left"));
	assert_null(strstr(s, "within"));
	widths(s, 80);
	assert_string_equal(left(s), "memtrace-bpf: warning: a message\n");
}

static void test_count(void **state)
{
	struct work w = { .what = "reading stdin", .ms = 1200 };
	char *s = on_terminal(&w, 80, "xterm", "C");

	assert_non_null(strstr(s, "reading stdin  "));
	/* 50 events per ms, shown after more than a second */
	assert_non_null(strstr(s, ",000 events  1."));
	assert_null(strchr(s, '%'));
	assert_string_equal(left(s), "");
}

static void test_narrow(void **state)
{
	struct work w = { .what = "reading "
				  "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5"
				  "\xad\x97.mtr",
			  .total = 1000,
			  .ms = 300,
			  .at_once = true };
	char *s;

	for (unsigned short columns = 10; columns <= 50; columns += 20) {
		s = on_terminal(&w, columns, "xterm", "C");
		widths(s, columns);
		assert_string_equal(left(s), "");
		s = on_terminal(&w, columns, "xterm", "C");
		assert_non_null(strstr(s, " %"));
		for (; *s; s++)
			/* block characters only if the locale has them */
			assert_true(strncmp(s, "\xe2\x96", 2) != 0);
	}
}

static void test_no_terminal(void **state)
{
	struct work w = { .what = "reading x", .total = 100, .ms = 200, .at_once = true };
	FILE *err = tmpfile();
	pid_t pid;
	int status;

	assert_string_equal(on_terminal(&w, 80, "dumb", "C"), "");
	pid = fork();
	if (!pid) {
		setenv("TERM", "xterm", 1);
		dup2(fileno(err), STDERR_FILENO);
		do_work(&w);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	fseek(err, 0, SEEK_END);
	assert_int_equal(ftell(err), 0);
	fclose(err);
}

static void test_draw(void **state)
{
	char buf[TEXT_BAR];

	assert_string_equal(text__bar(buf, 0, 10, 4, false, false), "");
	assert_string_equal(text__bar(buf, 1, 1000000, 4, false, true), "#   ");
	assert_string_equal(text__bar(buf, 999999, 1000000, 4, false, true), "### ");
	assert_string_equal(text__bar(buf, 10, 10, 4, false, true), "####");
	assert_string_equal(text__bar(buf, 11, 10, 4, false, true), "####");
	assert_string_equal(text__bar(buf, 5, 0, 4, false, true), "    ");
	assert_string_equal(text__bar(buf, UINT64_MAX / 2, UINT64_MAX, 4, true, true),
			    "\xe2\x96\x88\xe2\x96\x89  ");
	assert_string_equal(text__bar(buf, 1, 1000, 3, true, false), "\xe2\x96\x8f");
	assert_string_equal(text__bar(buf, 1, 2, 3, true, false), "\xe2\x96\x88\xe2\x96\x8c");
	for (unsigned columns = 0; columns < 200; columns += 7) {
		text__bar(buf, 123, 456, columns, true, true);
		assert_int_equal(text__width(buf), columns < TEXT_BAR_MAX ? columns : TEXT_BAR_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_draw),   cmocka_unit_test(test_nothing_in_a_second),
		cmocka_unit_test(test_bar),    cmocka_unit_test(test_count),
		cmocka_unit_test(test_narrow), cmocka_unit_test(test_no_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
