/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Questions of scans: a process that never answers costs a bounded time, and others are answered. */
#include "unit/cmocka.h"

#include <string.h>
#include <unistd.h>

#include "capture/pick.h"

/* Processes that are not there, beyond the largest PID. */
enum { WITH = 1 << 23, WITHOUT, SLOW, STUCK, CRASHES };

static bool look(pid_t pid)
{
	switch (pid) {
	case SLOW:
		usleep(250000); /* longer than an owner may take in a scan */
		break;
	case STUCK:
		for (;;)
			pause();
	case CRASHES:
		_exit(1);
	}
	return pid == WITH;
}

static enum torch_scan_is ask(struct torch_scan *s, pid_t pid, uid_t user)
{
	const struct pick_process q = { .pid = pid, .uid = user, .real_uid = user };

	return torch_scan__ask(s, &q);
}

/* In a new scan, for which the owner has its time again: a busy machine takes long. */
static enum torch_scan_is ask_anew(struct torch_scan *s, pid_t pid)
{
	torch_scan__begin(s);
	return ask(s, pid, 1000);
}

static void test_answers(void **state)
{
	struct torch_scan *s = torch_scan__new(look);

	assert_int_equal(ask_anew(s, WITH), TORCH_YES);
	assert_int_equal(ask_anew(s, WITHOUT), TORCH_NO);
	assert_int_equal(ask_anew(s, CRASHES), TORCH_LATER);
	assert_int_equal(ask_anew(s, WITH), TORCH_YES); /* with a new helper */
	torch_scan__free(s);
	torch_scan__free(NULL);
}

static void test_a_process_that_never_answers(void **state)
{
	struct torch_scan *s = torch_scan__new(look);

	assert_int_equal(ask(s, STUCK, 1000), TORCH_LATER);
	assert_int_equal(ask(s, WITH, 1001), TORCH_YES);
	torch_scan__begin(s);
	assert_int_equal(ask(s, STUCK, 1000), TORCH_LATER); /* at once */
	assert_int_equal(ask(s, WITH, 1000), TORCH_YES);    /* which left the owner time */
	torch_scan__free(s);
}

static void test_an_owner_has_a_time(void **state)
{
	struct torch_scan *s = torch_scan__new(look);

	assert_int_equal(ask(s, SLOW, 1000), TORCH_NO);
	assert_int_equal(ask(s, WITH, 1000), TORCH_LATER);
	assert_int_equal(ask(s, WITH, 1001), TORCH_YES);
	torch_scan__begin(s);
	assert_int_equal(ask(s, WITH, 1000), TORCH_YES);
	torch_scan__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_a_process_that_never_answers),
		cmocka_unit_test(test_an_owner_has_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
