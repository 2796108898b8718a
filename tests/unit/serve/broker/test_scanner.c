/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which processes get a place in the table when it is full. */
/* cmocka needs the headers above */

#define scanner__run look__run_of_test /* the other functions are static */
#include "unit/cmocka.h"
#include "serve/broker/scanner.c"

static struct serve_args args = {
	.targets = { { .name = "job", .kind = TARGET_PATTERN, .text = "x" },
		     { .kind = TARGET_ALL, .text = "" } },
	.n_targets = 2,
};
static struct look l;
static int other;

static int begin(void **state)
{
	int fds[2];

	if (link__pair(fds))
		return -1;
	l = (struct look){ .args = &args, .link = link__new(fds[0]) };
	other = fds[1];
	return l.link ? 0 : -1;
}

static int end(void **state)
{
	while (l.n)
		watch_target__free(l.seen[--l.n].t);
	owners__free(&l.owners);
	link__free(l.link);
	close(other);
	return 0;
}

#define JOB 1u
#define ALL 2u

static pid_t next_pid = 1000000;

static void put(const char *owner, uint64_t targets, size_t n)
{
	for (; n && l.n < BROKER_PROCESSES; n--) {
		struct seen *s = &l.seen[l.n++];

		*s = (struct seen){ .t = calloc(1, sizeof(*s->t)),
				    .targets = targets,
				    .came = ++l.came };
		assert_non_null(s->t);
		s->t->pid = next_pid++;
		s->t->image = s->t->statm = -1;
		s->owner = owners__named(&l.owners, owner);
	}
}

static bool room(const char *owner, uint64_t target)
{
	struct owner *w = owners__named(&l.owners, owner);
	bool ret;

	l.target_index = target == JOB ? 0 : 1;
	ret = make_room(&l, w);
	owner__drop(w);
	return ret;
}

static size_t places_of(const char *owner)
{
	size_t n = 0;

	for (size_t i = 0; i < l.n; i++)
		n += !strcmp(l.seen[i].owner->name, owner);
	return n;
}

static void test_one_owner_does_not_fill_it(void **state)
{
	put("65534", ALL, 256);
	assert_false(room("65534", ALL));
	/* Every other owner gets as many places as the first, and no more. */
	for (int i = 0; i < 128; i++) {
		assert_true(room("1000", ALL));
		put("1000", ALL, 1);
	}
	assert_false(room("1000", ALL));
	assert_false(room("65534", ALL));
	assert_int_equal(places_of("65534"), 128);
	assert_true(room("in 0123", ALL));
}

static void test_the_last_that_came_makes_room(void **state)
{
	pid_t last = next_pid + 254; /* the next one is another owner's */

	put("65534", ALL, 255);
	put("1000", ALL, 1);
	assert_true(room("1001", ALL));
	assert_int_equal(l.n_evicted, 1);
	assert_int_equal(l.evicted[0], last);
	assert_int_equal(l.left_out[0], last);
	assert_int_equal(l.n, 255);
}

static void test_targets_go_before_all(void **state)
{
	put("65534", ALL, 128);
	put("1000", ALL, 128);
	/* One owner may use all places while there is no other. */
	for (int i = 0; i < 256; i++) {
		assert_true(room("65534", JOB));
		put("65534", JOB, 1);
	}
	assert_false(room("1000", ALL));
	assert_false(room("65534", JOB));
	/* Owners share the places of targets, too. */
	assert_true(room("1000", JOB));
}

static void test_left_out_are_counted_while_they_live(void **state)
{
	leave_out(&l, getpid());
	leave_out(&l, getpid());
	leave_out(&l, 0x3ffffff0); /* no process has this number */
	assert_int_equal(l.n_left_out, 2);
	assert_true(l.changed);
	forget_left_out(&l, 0);
	assert_int_equal(l.n_left_out, 1);
	assert_int_equal(l.left_out[0], getpid());
	for (int i = 0; i < LEFT_OUT + 10; i++)
		leave_out(&l, 0x3f000000 + i);
	assert_int_equal(l.n_left_out, LEFT_OUT);
}

static void count_lines(void *ctx, enum log_level level, const char *text)
{
	++*(int *)ctx;
}

/* Only a full table gets the message. A process that cannot be read may be left out of one with
 * room. */
static void test_one_message_for_a_full_table(void **state)
{
	int lines = 0;

	log__divert(count_lines, &lines);
	leave_out(&l, getpid());
	assert_int_equal(lines, 0);
	put("1000", ALL, 256);
	leave_out(&l, 1);
	leave_out(&l, getppid());
	assert_int_equal(lines, 1);
	log__divert(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_owner_does_not_fill_it, begin, end),
		cmocka_unit_test_setup_teardown(test_the_last_that_came_makes_room, begin, end),
		cmocka_unit_test_setup_teardown(test_targets_go_before_all, begin, end),
		cmocka_unit_test_setup_teardown(test_left_out_are_counted_while_they_live, begin,
						end),
		cmocka_unit_test_setup_teardown(test_one_message_for_a_full_table, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
