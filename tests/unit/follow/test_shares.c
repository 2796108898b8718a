/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Owners of processes, and places in a full table. */
#include "unit/cmocka.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/pick.h"

static struct owners owners;

static const char *owner_of(const char *cgroup, uid_t uid)
{
	static char owner[OWNER_NAME];
	struct pick_process p = { .pid = getpid(), .uid = 0, .real_uid = uid };
	struct owner *w;

	cgroup__parse(cgroup, strlen(cgroup), &p.cgroup);
	w = owners__of(&owners, &p);
	assert_non_null(w);
	strcpy(owner, w->name);
	owner__drop(w);
	return owner;
}

#define ID_A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID_B "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

/* Users can create control groups of any name in their own tree, and so can containers in theirs:
 * these do not count as owners. */
static void test_control_groups_of_users_make_no_owners(void **state)
{
	assert_string_equal(owner_of("0::/\n", 1000), "user 1000");
	assert_string_equal(owner_of("0::/system.slice/docker-" ID_A ".scope\n", 1000),
			    "container " ID_A);
	assert_string_equal(
		owner_of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" ID_A
			 ".scope\n",
			 101000),
		"user 1000");
	assert_string_equal(
		owner_of("0::/user.slice/user-1000.slice/user@1000.service/lxc.payload.a\n", 1000),
		"user 1000");
	assert_string_equal(owner_of("0::/../../user.slice/user-7.slice/user@7.service/libpod-" ID_A
				     ".scope/container\n",
				     1000),
			    "user 7");
	assert_string_equal(owner_of("0::/docker/" ID_A "/user.slice/user-1000.slice/x.scope\n",
				     1000),
			    "container " ID_A);
	assert_string_equal(
		owner_of("0::/system.slice/docker-" ID_A ".scope/docker-" ID_B ".scope\n", 1000),
		"container " ID_A);
	assert_string_equal(owner_of("0::/lxc.payload.one/lxc.payload.two\n", 1000),
			    "container one");
	owners__free(&owners);
}

/* A user with subordinate IDs is one owner, whatever IDs the processes in its user namespace have. */
static void test_a_users_namespace_is_the_users(void **state)
{
	struct pick_process p = { .real_uid = 100000 };
	int ready[2], end[2];
	struct owner *w;
	char c = 1;

	if (geteuid())
		skip();
	assert_int_equal(pipe(ready) | pipe(end), 0);
	p.pid = fork();
	if (!p.pid) {
		c = !setresuid(65534, 65534, 65534) && !unshare(CLONE_NEWUSER);
		_exit(write(ready[1], &c, 1) != 1 || (close(end[1]), read(end[0], &c, 1)));
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	w = owners__of(&owners, &p);
	if (c)
		assert_string_equal(w->name, "user 65534");
	close(end[1]);
	assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	owner__drop(w);
	owners__free(&owners);
	close(ready[0]);
	close(ready[1]);
	close(end[0]);
	if (!c)
		skip(); /* users may make none here */
}

static void test_owners_are_counted_by_name(void **state)
{
	struct owner *a = owners__named(&owners, "a"), *b = owners__named(&owners, "b");

	assert_ptr_equal(owners__named(&owners, "a"), a);
	assert_ptr_not_equal(a, b);
	owner__drop(a);
	assert_ptr_equal(owners__named(&owners, "a"), a);
	owner__drop(b);
	assert_ptr_equal(owners__named(&owners, "c"), b); /* its entry was free */
	assert_int_equal(owners.n, 2);
	owner__drop(NULL);
	assert_null(owner__share(NULL));
	owners__free(&owners);
}

enum { OTHER, LIKELY };

static void test_shares(void **state)
{
	struct owner a = { .uses = 1 }, b = { .uses = 1 }, c = { .uses = 1 };
	struct place v[5] = { { &a, OTHER, 1 },
			      { &a, OTHER, 5 },
			      { &b, OTHER, 9 },
			      { &a, OTHER, 3 },
			      { &b, LIKELY, 2 } };

	/* The youngest of the owner with the most. */
	assert_int_equal(shares__choose(v, 5, &c, OTHER), 1);
	assert_int_equal(shares__choose(v, 5, &b, OTHER), 1);
	assert_int_equal(shares__choose(v, 5, &a, OTHER), SHARES_NONE);
	/* With as many as the other then has: none, so that two do not take it from each other. */
	assert_int_equal(shares__choose(v + 1, 3, &b, OTHER), SHARES_NONE);
	/* A lower rank makes room for anybody, its own owner too. */
	assert_int_equal(shares__choose(v, 5, &a, LIKELY), 1);
	assert_int_equal(shares__choose(v + 2, 1, &b, LIKELY), 0);
	assert_int_equal(shares__choose(v + 4, 1, &a, LIKELY), SHARES_NONE);
	assert_int_equal(shares__choose(v, 0, &a, LIKELY), SHARES_NONE);
	assert_int_equal(shares__count(v, 5, &b), 2);
	assert_ptr_equal(shares__largest(v, 5), &a);
	assert_null(shares__largest(v, 0));
}

/* Processes that come again and again end at equal shares and stay there. */
static void test_shares_settle(void **state)
{
	struct owner w[3] = { { .uses = 1 }, { .uses = 1 }, { .uses = 1 } };
	struct place v[99];
	size_t i, taken = 0;

	for (i = 0; i < 99; i++)
		v[i] = (struct place){ &w[0], 0, i };
	for (int round = 0; round < 1000; round++) {
		i = shares__choose(v, 99, &w[round % 3], 0);
		if (i == SHARES_NONE)
			continue;
		v[i] = (struct place){ &w[round % 3], 0, 100 + round };
		taken++;
	}
	assert_int_equal(taken, 66);
	for (i = 0; i < 3; i++)
		assert_int_equal(shares__count(v, 99, &w[i]), 33);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_control_groups_of_users_make_no_owners),
		cmocka_unit_test(test_a_users_namespace_is_the_users),
		cmocka_unit_test(test_owners_are_counted_by_name),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_shares_settle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
