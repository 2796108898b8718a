/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The way of events from the decoder through the stages to the capture's sink. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "capture/decode/decoder.h"
#include "capture/probes/session_opts.h"
#include "capture/session/stages.h"
#include "capture/target.h"
#include "record/dict.h"

struct taker {
	struct sink sink; /* first */
	struct event got[8];
	size_t n;
	int ret;
};

/* A capture of a process that has not used CUDA. */
struct world {
	struct session_opts opts;
	struct target target;
	struct dict *dict;
	struct facts *facts;
	struct decoder *decoder;
	struct attach_stage *attach;
	struct census_stage *census;
	struct taker taker;
};

static int on_event(struct sink *sink, const struct event *e)
{
	struct taker *t = (struct taker *)sink;

	assert_true(t->n < sizeof(t->got) / sizeof(*t->got));
	t->got[t->n++] = *e;
	return t->ret;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	*state = w;
	assert_non_null(w);
	w->taker.sink.event = on_event;
	w->dict = dict__new();
	w->facts = facts__new();
	assert_true(w->dict && w->facts);
	w->decoder = decoder__new(&w->opts, &w->target, NULL, w->dict, w->facts);
	w->attach = attach_stage__new(&w->target, w->facts, true);
	assert_true(w->decoder && w->attach);
	w->census = census_stage__new(w->decoder, attach_stage__sink(w->attach));
	assert_non_null(w->census);
	w->decoder->next = census_stage__sink(w->census);
	assert_int_equal(attach_stage__begin(w->attach), 0);
	attach_stage__send_to(w->attach, &w->taker.sink);
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	census_stage__free(w->census);
	attach_stage__free(w->attach);
	decoder__free(w->decoder);
	facts__free(w->facts);
	dict__free(w->dict);
	free(w);
	return 0;
}

static struct event event_on(unsigned int device, uint64_t size, uint64_t allocated)
{
	return (struct event){ .kind = EVENT_ALLOC,
			       .device = { DEVICE_CUDA, (uint8_t)device },
			       .addr = 0x1000,
			       .size = size,
			       .totals = true,
			       .allocated = allocated,
			       .reserved = allocated };
}

/* A device's state comes before its first event, and says that the device was empty: but only if
 * that event's total agrees. */
static void test_unused_devices(void **state)
{
	struct world *w = *state;
	struct event first = event_on(0, 512, 512), second = event_on(0, 512, 1024),
		     other = event_on(1, 512, 4096);

	assert_true(attach_stage__settled(w->attach));
	assert_int_equal(decoder__emit(w->decoder, &first), 0);
	assert_int_equal(decoder__emit(w->decoder, &second), 0);
	assert_int_equal(decoder__emit(w->decoder, &other), 0);
	assert_int_equal(w->taker.n, 4);
	assert_int_equal(w->taker.got[0].kind, EVENT_STATE);
	assert_int_equal(w->taker.got[0].flags, STATE_EXACT | STATE_SEGMENTS_EXACT);
	assert_int_equal(w->taker.got[0].allocated, 0);
	assert_memory_equal(&w->taker.got[1], &first, sizeof(first));
	assert_memory_equal(&w->taker.got[2], &second, sizeof(second));
	assert_memory_equal(&w->taker.got[3], &other, sizeof(other));
	assert_int_equal(attach_stage__events(w->attach), 4);
}

/* An error of the sink ends the capture, so it must come back through all stages. */
static void test_errors(void **state)
{
	struct world *w = *state;
	struct event e = { .kind = EVENT_STEP };

	w->taker.ret = -ENOSPC;
	assert_int_equal(decoder__emit(w->decoder, &e), -ENOSPC);
}

/* Without a sink events are counted; after the requested steps they are not even that. */
static void test_dropped(void **state)
{
	struct world *w = *state;
	struct event e = { .kind = EVENT_STEP };

	attach_stage__send_to(w->attach, NULL);
	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	attach_stage__send_to(w->attach, &w->taker.sink);
	assert_int_equal(attach_stage__events(w->attach), 1);
	w->decoder->cut = 1;
	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	assert_int_equal(attach_stage__events(w->attach), 1);
	assert_int_equal(w->taker.n, 0);
}

/* After the requested steps, a block stayed if no event was about its address since; with a loss,
 * none is known to have stayed. */
static void test_stayed(void **state)
{
	struct world *w = *state;
	struct event e = { .kind = EVENT_FREE, .addr = 0x1000 };

	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	assert_true(decoder__knows_stayed(w->decoder));
	assert_true(decoder__stayed(w->decoder, 0x1000));
	w->decoder->cut = 1;
	w->decoder->changed = map64__new();
	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	e = (struct event){ .kind = EVENT_ALLOC, .addr = 0x2000 };
	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	assert_true(decoder__knows_stayed(w->decoder));
	assert_false(decoder__stayed(w->decoder, 0x1000));
	assert_false(decoder__stayed(w->decoder, 0x2000));
	assert_true(decoder__stayed(w->decoder, 0x3000));
	e.kind = EVENT_LOST;
	assert_int_equal(decoder__emit(w->decoder, &e), 0);
	assert_false(decoder__knows_stayed(w->decoder));
	assert_false(decoder__stayed(w->decoder, 0x3000));
}

/* A long capture goes on without new names. */
static void test_full_dictionary(void **state)
{
	struct world *w = *state;
	uint32_t known = decoder__string(w->decoder, "known");
	char text[DICT_MAX_STRING + 1];

	memset(text, 'x', DICT_MAX_STRING);
	for (uint32_t i = 0; dict__string(w->dict, text, DICT_MAX_STRING) != UINT32_MAX; i++)
		memcpy(text,
		       &(char[4]){ (char)('a' + i % 16), (char)('a' + i / 16 % 16),
				   (char)('a' + i / 256 % 16), (char)('a' + i / 4096) },
		       4);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(decoder__string(w->decoder, text), 0);
	assert_int_equal(decoder__string(w->decoder, "known"), known);
	assert_int_equal(decoder__string(w->decoder, ""), 0);
}

/* No tables and no Python: nothing is read, and nothing waits. */
static void test_nothing_to_read(void **state)
{
	struct world *w = *state;

	assert_int_equal(attach_stage__read_last(w->attach, 1), 0);
	census_stage__begin(w->census, 1);
	assert_false(census_stage__reads(w->census));
	assert_int_equal(census_stage__end(w->census), 0);
	assert_int_equal(attach_stage__finish(w->attach), 0);
	assert_string_equal(facts__get(w->facts, "allocator"), "cpu");
	assert_null(facts__get(w->facts, "state"));
}

/* Readings of objects come less often while the lasting tensors stay, and take a small share. */
static void test_pause(void **state)
{
	const uint64_t second = 1000000000, short_reading = second / 10;

	(void)state;
	assert_int_equal(census_stage__pause(0, short_reading), 10 * second);
	assert_int_equal(census_stage__pause(1, short_reading), 20 * second);
	assert_int_equal(census_stage__pause(3, short_reading), 80 * second);
	assert_int_equal(census_stage__pause(1000, short_reading), 80 * second);
	assert_int_equal(census_stage__pause(0, second), 50 * second);
	assert_int_equal(census_stage__pause(3, 2 * second), 100 * second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_unused_devices, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_dropped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stayed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_full_dictionary, set_up, tear_down),
		cmocka_unit_test(test_pause),
		cmocka_unit_test_setup_teardown(test_nothing_to_read, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
