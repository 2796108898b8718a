/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages of step figures: their order, who gets them, and both bounds. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "live/view/step_messages.h"

enum { ALICE = 4000001, BOB };

static void add(struct step_messages *m, uid_t uid, const char *text)
{
	step_messages__add_user(m, uid);
	step_messages__add(m, uid, strdup(text));
}

static void check_next(struct step_messages *m, uid_t uid, uint64_t *at, const char *want)
{
	const char *got = step_messages__next(m, uid, at);

	if (want)
		assert_string_equal(got, want);
	else
		assert_null(got);
}

static void test_users(void **state)
{
	struct step_messages *m = step_messages__new();
	uint64_t alice = 0, bob = 0, root = 0, own = 0;
	const uid_t *users;

	assert_non_null(m);
	assert_int_equal(step_messages__users(m, &users), 0);
	check_next(m, ALICE, &alice, NULL);
	add(m, ALICE, "a1");
	add(m, BOB, "b1");
	add(m, ALICE, "a2");
	assert_int_equal(step_messages__users(m, &users), 2);
	assert_true(users[0] == ALICE && users[1] == BOB);
	check_next(m, ALICE, &alice, "a1");
	check_next(m, ALICE, &alice, "a2");
	check_next(m, ALICE, &alice, NULL);
	check_next(m, BOB, &bob, "b1");
	check_next(m, BOB, &bob, NULL);
	for (int i = 0; i < 3; i++) {
		static const char *const all[] = { "a1", "b1", "a2" };

		check_next(m, 0, &root, all[i]);
		check_next(m, geteuid(), &own, all[i]);
	}
	add(m, BOB, "b2");
	check_next(m, ALICE, &alice, NULL);
	check_next(m, BOB, &bob, "b2");
	check_next(m, 0, &root, "b2");
	step_messages__free(m);
	step_messages__free(NULL);
}

/* A reader that is too late goes on with the oldest message that is kept. */
static void test_bounds(void **state)
{
	struct step_messages *m = step_messages__new();
	uint64_t late = 0;
	char text[32], *large;

	for (int i = 0; i < STEP_MESSAGES_KEPT + 10; i++) {
		snprintf(text, sizeof(text), "%d", i);
		add(m, ALICE, text);
	}
	check_next(m, ALICE, &late, "10");
	large = malloc(STEP_MESSAGES_BYTES / 2 + 1);
	memset(large, 'x', STEP_MESSAGES_BYTES / 2);
	large[STEP_MESSAGES_BYTES / 2] = '\0';
	for (int i = 0; i < 3; i++)
		add(m, ALICE, large);
	late = 0;
	for (int i = 0; i < 2; i++)
		check_next(m, ALICE, &late, large);
	check_next(m, ALICE, &late, NULL);
	free(large);
	large = malloc(STEP_MESSAGES_BYTES + 2);
	memset(large, 'y', STEP_MESSAGES_BYTES + 1);
	large[STEP_MESSAGES_BYTES + 1] = '\0';
	add(m, ALICE, large); /* alone larger than the bound: it stays until the next one */
	check_next(m, ALICE, &late, large);
	add(m, ALICE, "after");
	check_next(m, ALICE, &late, "after");
	late = 0;
	check_next(m, ALICE, &late, "after");
	free(large);
	step_messages__free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
