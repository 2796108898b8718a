/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hits for which the kernel ran no program, by what the kernel says of its programs. */
#include "unit/cmocka.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <string.h>

#include "capture/kernel/programs.h"

/* A kernel with two programs, 5 and 7, that have skipped hits. */
static int kernel(int fd, void *info, uint32_t *len)
{
	const struct bpf_prog_info says = { .recursion_misses = fd == 5 ? 40 : 2 };

	if (fd != 5 && fd != 7)
		return -EBADF;
	assert_true(*len >= sizeof(says));
	memcpy(info, &says, sizeof(says));
	return 0;
}

/* A kernel before 5.12 fills less. */
static int old_kernel(int fd, void *info, uint32_t *len)
{
	const size_t known = offsetof(struct bpf_prog_info, recursion_misses);
	const struct bpf_prog_info says = { .id = (uint32_t)fd, .recursion_misses = 99 };

	memcpy(info, &says, known);
	*len = (uint32_t)known;
	return 0;
}

static void test_skipped_hits_are_counted(void **state)
{
	const int fds[] = { 5, -ENOENT, 7, 8 };

	(void)state;
	assert_int_equal(programs__skipped_of(fds, 4, kernel), 42);
	assert_int_equal(programs__skipped_of(fds + 1, 1, kernel), 0);
	assert_int_equal(programs__skipped_of(fds, 0, kernel), 0);
	assert_int_equal(programs__skipped_of(fds, 4, old_kernel), 0);
	assert_int_equal(programs__skipped(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skipped_hits_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
