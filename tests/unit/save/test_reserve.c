/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Room on the disk for the last file. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "capture/save/reserve.h"
#include "unit/scratch.h"

#define MIB (UINT64_C(1) << 20)

static void test_room(void **state)
{
	char dir[] = "/tmp/memtrace-test-XXXXXX", path[64];
	struct reserve *r;
	struct stat st;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/run.mtr", dir);
	r = reserve__new(path, 4 * MIB);
	if (!r && errno == EOPNOTSUPP)
		skip();
	assert_non_null(r);
	assert_int_equal(lstat(path, &st), -1); /* without a name */
	reserve__release(r);
	reserve__release(r);
	reserve__renew(r);
	reserve__free(r);
	r = reserve__new(dir, MIB); /* a folder */
	assert_non_null(r);
	reserve__free(r);

	/* Larger than a file can be. A size between that and the free space takes all of it for a
	 * moment, also from the tests next to this one. */
	r = reserve__new(path, UINT64_C(1) << 62);
	assert_null(r);
	assert_true(errno == ENOSPC || errno == EFBIG);
	snprintf(path, sizeof(path), "%s/no/run.mtr", dir);
	assert_null(reserve__new(path, MIB));
	assert_int_equal(errno, ENOENT);
	reserve__free(NULL);
	assert_int_equal(scratch__remove(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_room) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
