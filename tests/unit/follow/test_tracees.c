/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How recordings of several processes end. Sessions are made up: TRACEES_WRAPS in tests/build.mk. */
#include "unit/cmocka.h"

#include <string.h>

#include "base/exit.h"
#include "capture/follow/tracees.c" /* its functions are static */

#define WRAPPED(name) __typeof__(name) __wrap_##name
WRAPPED(session__finish);
WRAPPED(session__new_forked);
WRAPPED(session__set_process);
WRAPPED(session__free);
WRAPPED(session__events);
WRAPPED(session__lost);
WRAPPED(session__steps);
WRAPPED(session__found_torch);
WRAPPED(proc_group__give_back);

#define NO_PROCESS 10000000 /* above the kernel's PIDs: it has no ancestors */

static struct tracees *r;
static struct tracee *parent, *child;
static char parents, childs, out; /* stand for sessions and an output */
static char calls[128];

static struct tracee *add(pid_t pid, uint32_t number, const char *owner)
{
	return add_tracee(r, pid, 1, number, owners__named(&r->owners, owner));
}

static void fork_child(void)
{
	child = add(NO_PROCESS, 0, "user 1");
	child->state = FORKED;
	child->forked_by = parent->session;
}

/* The last drain has the child's first events, and its fork if that was not known. */
int __wrap_session__finish(struct session *s, struct sink *sink, const char *reason)
{
	if (s != (struct session *)&parents)
		return 0;
	if (!child)
		fork_child();
	child->has_events = true;
	return 0;
}

struct session *__wrap_session__new_forked(struct session *from, pid_t pid, uint32_t number,
					   uint64_t time, uint64_t diverged, struct queue *early,
					   struct failure *f)
{
	return (struct session *)&childs;
}

void __wrap_session__set_process(struct session *s)
{
}

void __wrap_session__free(struct session *s)
{
}

uint64_t __wrap_session__events(const struct session *s)
{
	return 0;
}

uint64_t __wrap_session__lost(const struct session *s)
{
	return 0;
}

uint64_t __wrap_session__steps(const struct session *s)
{
	return 0;
}

bool __wrap_session__found_torch(const struct session *s)
{
	return true;
}

void __wrap_proc_group__give_back(struct proc_group *k, pid_t pid, uint32_t number)
{
}

static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	strcat(calls, s == (struct session *)&childs ? "child begins; " : "parent begins; ");
	return &out;
}

static int end(void *output, const char *reason, int err)
{
	strcat(calls, "one ends; ");
	return EXIT_OK;
}

static void ends_both(bool known)
{
	static const struct tracees_output output = { .begin = begin, .end = end };
	struct pick *chosen = pick__new(&(struct pick_args){ 0 });
	struct tracee *first;

	r = tracees__new(&(struct tracees_opts){ .pick = chosen, .output = &output });
	*calls = '\0';
	child = NULL;
	/* The child gets the place of an earlier process, before its parent's. */
	first = add(41, 0, "user 1");
	parent = add(42, 0, "user 1");
	parent->state = TRACED;
	parent->session = (struct session *)&parents;
	r->traced = 1;
	assert_int_equal(begin_output(parent), EXIT_OK);
	if (known) {
		remove_tracee(first, "");
		fork_child();
		assert_true(child->slot < parent->slot);
	}
	assert_int_equal(tracees__finish(r, "signal"), EXIT_OK);
	assert_string_equal(calls, "parent begins; child begins; one ends; one ends; ");
	assert_int_equal(r->top, 0);
	tracees__free(r);
	pick__free(chosen);
}

static void test_a_child_that_the_last_drain_brings(void **state)
{
	ends_both(false);
}

static void test_a_child_whose_first_events_the_last_drain_brings(void **state)
{
	ends_both(true);
}

/* The process of another user takes a number from the largest owner, but not from one of -p. */
static void test_a_given_process_keeps_its_recording(void **state)
{
	struct pick *chosen = pick__new(&(struct pick_args){ .all = true });
	struct tracee *of[MT_MEMBERS], *waits;

	r = tracees__new(&(struct tracees_opts){ .pick = chosen });
	for (uint32_t i = 1; i < MT_MEMBERS; i++) {
		of[i] = add(100 + (pid_t)i, i, "user 1");
		of[i]->state = TRACED;
		of[i]->session = (struct session *)&childs;
	}
	r->traced = MT_MEMBERS - 1;
	of[MT_MEMBERS - 1]->given = true; /* the youngest */
	waits = add(42, 0, "user 2");
	waits->state = WAITING;
	waits->session = (struct session *)&childs;
	free_a_number(waits);
	assert_int_equal(of[MT_MEMBERS - 1]->state, TRACED);
	assert_int_equal(of[MT_MEMBERS - 2]->state, OVER);
	assert_ptr_equal(r->heir[MT_MEMBERS - 2], waits);
	tracees__free(r);
	pick__free(chosen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_child_that_the_last_drain_brings),
		cmocka_unit_test(test_a_child_whose_first_events_the_last_drain_brings),
		cmocka_unit_test(test_a_given_process_keeps_its_recording),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
