/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Scopes of record_function and NVTX, from records of probes to events. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/decode/decoder.h"
#include "capture/decode/probed_scopes.h"
#include "capture/probes/session_opts.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "record/dict.h"

#define START UINT64_C(1000)
#define RF MT_SCOPE_RECORD_FUNCTION
#define NVTX MT_SCOPE_NVTX

struct world {
	struct sink sink; /* first */
	struct session_opts opts;
	struct target target;
	struct dict *dict;
	struct facts *facts;
	struct decoder *decoder;
	uint64_t now;
	size_t count;	 /* of events, which text does not get then; SIZE_MAX: it does */
	char text[4096]; /* the events that came: source, "earlier", "begin" or "end", name, "/" tid
			  */
};

static int on_event(struct sink *sink, const struct event *e)
{
	struct world *w = (struct world *)sink;
	size_t len = strlen(w->text);

	if (w->count != SIZE_MAX) {
		w->count++;
		return 0;
	}
	assert_true(e->kind == EVENT_SCOPE && !e->addr && len + 160 < sizeof(w->text));
	snprintf(w->text + len, sizeof(w->text) - len, "%s:%s%s%s%s/%u ",
		 e->how == SCOPE_RECORD_FUNCTION ? "rf" : scope_source__name(e->how),
		 e->flags & SCOPE_EARLIER ? "earlier-" : "", scope_flag__name(e->flags),
		 e->name ? ":" : "", dict__str(w->dict, e->name),
		 dict__get_thread(w->dict, e->thread).tid);
	return 0;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	w->sink.event = on_event;
	w->count = SIZE_MAX;
	w->dict = dict__new();
	w->facts = facts__new();
	w->target.proc = proc__open(getpid());
	w->decoder = decoder__new(&w->opts, &w->target, NULL, w->dict, w->facts);
	assert_non_null(w->decoder);
	w->decoder->next = &w->sink;
	w->decoder->start = START;
	w->now = START;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	decoder__free(w->decoder);
	facts__free(w->facts);
	dict__free(w->dict);
	proc__free(w->target.proc);
	free(w);
	return 0;
}

static void tell(struct world *w, uint32_t tid, uint8_t source, const char *name)
{
	struct mt_rec_scope r = { .h = { .type = MT_REC_SCOPE, .tid = tid, .time = w->now++ },
				  .source = source,
				  .ends = !name };

	memset(r.name, 'z', sizeof(r.name)); /* anything may follow a NUL */
	if (!name)
		*r.name = '\0';
	else
		memcpy(r.name, name, strnlen(name, sizeof(r.name) - 1) + 1);
	assert_int_equal(decoder__record(w->decoder, &r, sizeof(r)), 0);
}

/* A begin of the first pair of USDT probes. name: all bytes of the record; name_at: where it is. */
static void tell_usdt(struct world *w, const char name[MT_SCOPE_NAME], uint64_t name_at)
{
	struct mt_rec_scope r = { .h = { .type = MT_REC_SCOPE, .tid = 1, .time = w->now++ },
				  .source = MT_SCOPE_USDT,
				  .name_at = name_at };

	memcpy(r.name, name, sizeof(r.name));
	assert_int_equal(decoder__record(w->decoder, &r, sizeof(r)), 0);
}

static void leave(struct world *w, uint32_t tid)
{
	assert_int_equal(probed_scopes__exit(w->decoder->probed, tid, w->now++), 0);
}

static void came(struct world *w, const char *text)
{
	assert_string_equal(w->text, text);
	*w->text = '\0';
}

/* Ends are about the innermost scope of their thread and source; those without a begin are dropped.
 */
static void test_nested(void **state)
{
	struct world *w = *state;

	leave(w, 1);
	tell(w, 1, NVTX, NULL);
	tell(w, 1, RF, "a");
	tell(w, 1, NVTX, "b");
	tell(w, 2, RF, "c");
	leave(w, 1);
	leave(w, 1);
	tell(w, 2, NVTX, NULL);
	tell(w, 1, NVTX, NULL);
	leave(w, 2);
	came(w, "rf:begin:a/1 nvtx:begin:b/1 rf:begin:c/2 rf:end/1 nvtx:end/1 rf:end/2 ");
}

/* Each pair of USDT probes has its own scopes. Bytes that are no text name no scope. */
static void test_usdt(void **state)
{
	struct world *w = *state;
	char cut[MT_SCOPE_NAME + 1] = "", none[MT_SCOPE_NAME] = "", writable[] = "stack";

	strcpy(w->opts.usdt[0].provider, "job");
	strcpy(w->opts.usdt[0].begin, "step");
	strcpy(w->opts.usdt[1].provider, "job");
	strcpy(w->opts.usdt[1].begin, "save");
	tell(w, 1, MT_SCOPE_USDT, "rollout");
	tell(w, 1, MT_SCOPE_USDT + 1, "");
	tell(w, 1, MT_SCOPE_USDT, NULL);
	tell(w, 1, MT_SCOPE_USDT, NULL);
	tell(w, 1, MT_SCOPE_USDT + 1, NULL);
	came(w, "usdt:begin:rollout/1 usdt:begin:job:save/1 usdt:end/1 usdt:end/1 ");
	tell(w, 1, MT_SCOPE_USDT, "\x01\x7f");
	tell(w, 1, MT_SCOPE_USDT, "\xff\xfe");
	tell(w, 1, MT_SCOPE_USDT, "\u00e9t\u00e9");
	came(w, "usdt:begin:job:step/1 usdt:begin:job:step/1 usdt:begin:\u00e9t\u00e9/1 ");
	/* the limit cuts the last character in two: the name stays */
	memset(cut, 'x', MT_SCOPE_NAME);
	cut[MT_SCOPE_NAME - 1] = '\xc3';
	tell_usdt(w, cut, 0);
	assert_non_null(strstr(w->text, "usdt:begin:xxxx"));
	*w->text = '\0';
	/* the page was absent: text of a file is read later, memory that may change is not */
	tell_usdt(w, none, (uintptr_t) "in a library");
	tell_usdt(w, none, (uintptr_t)writable);
	tell_usdt(w, none, 8);
	came(w, "usdt:begin:in a library/1 usdt:begin:job:step/1 usdt:begin:job:step/1 ");
	tell(w, 1, MT_SCOPE_USDT + MT_SCOPE_PAIRS, ""); /* a hostile record: no such pair */
	came(w, "usdt:begin:(no name)/1 ");
}

static void test_names(void **state)
{
	struct world *w = *state;
	char name[100];

	memset(name, 'x', sizeof(name));
	tell(w, 1, RF, "");
	tell(w, 1, RF, "ProfilerStep#17");
	tell(w, 1, RF, "ProfilerStep#x");
	tell(w, 1, NVTX, "ProfilerStep#17x");
	came(w, "rf:begin:(no name)/1 rf:begin:ProfilerStep/1 rf:begin:ProfilerStep#x/1 "
		"nvtx:begin:ProfilerStep/1 ");
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		tell(w, 1, NVTX, name);
		tell(w, 1, NVTX, NULL);
		if (i < 4999)
			*w->text = '\0';
	}
	came(w, "nvtx:begin:(further names)/1 nvtx:end/1 ");
}

/* A name of full length has no NUL. */
static void test_long_name(void **state)
{
	struct mt_rec_scope r = { .h = { .type = MT_REC_SCOPE, .tid = 1, .time = START },
				  .source = NVTX };
	struct world *w = *state;
	char want[128];

	memset(r.name, 'x', sizeof(r.name));
	assert_int_equal(decoder__record(w->decoder, &r, sizeof(r)), 0);
	snprintf(want, sizeof(want), "nvtx:begin:%.*s/1 ", MT_SCOPE_NAME, r.name);
	came(w, want);
}

/* PyTorch's own scopes are not events, and do not disturb those around and inside. */
static void test_hidden(void **state)
{
	struct world *w = *state;

	tell(w, 1, RF, "a");
	tell(w, 1, RF, "Optimizer.step#AdamW.step");
	tell(w, 1, RF, "b");
	leave(w, 1);
	leave(w, 1);
	tell(w, 1, RF, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
	leave(w, 1);
	tell(w, 1, RF, "Optimizer.zero_grad#SGD.zero_grad");
	leave(w, 1);
	leave(w, 1);
	came(w, "rf:begin:a/1 rf:begin:b/1 rf:end/1 rf:end/1 ");
	tell(w, 1, NVTX, "Optimizer.step#mine");
	came(w, "nvtx:begin:Optimizer.step#mine/1 ");
}

static void test_deep(void **state)
{
	struct world *w = *state;
	size_t begins = 0, ends = 0;

	for (int i = 0; i < 1000; i++)
		tell(w, 1, RF, "d");
	for (int i = 0; i < 1000; i++)
		leave(w, 1);
	for (const char *at = w->text; (at = strstr(at, "rf:begin:d/1 ")); at++)
		begins++;
	for (const char *at = w->text; (at = strstr(at, "rf:end/1 ")); at++)
		ends++;
	assert_true(begins == 48 && ends == 48);
	*w->text = '\0';
	leave(w, 1);
	tell(w, 1, RF, "after");
	came(w, "rf:begin:after/1 ");
}

/* After a loss, and while the capture drops scopes, no scope stays open. */
static void test_unknown(void **state)
{
	struct world *w = *state;
	struct probed_scopes *probed = w->decoder->probed;

	tell(w, 1, RF, "a");
	tell(w, 1, RF, "Optimizer.step#x");
	tell(w, 1, NVTX, "b");
	*w->text = '\0';
	assert_int_equal(probed_scopes__end_all(probed), 0);
	assert_true(!strcmp(w->text, "rf:end/1 nvtx:end/1 ") ||
		    !strcmp(w->text, "nvtx:end/1 rf:end/1 "));
	*w->text = '\0';
	leave(w, 1);
	tell(w, 1, NVTX, NULL);
	came(w, "");
	tell(w, 1, NVTX, "c");
	assert_int_equal(probed_scopes__set_off(probed, true), 0);
	tell(w, 1, NVTX, "d");
	came(w, "nvtx:begin:c/1 nvtx:end/1 ");
	assert_int_equal(probed_scopes__set_off(probed, false), 0);
	tell(w, 1, NVTX, NULL);
	tell(w, 1, NVTX, "e");
	came(w, "nvtx:begin:e/1 ");
}

static void test_gone(void **state)
{
	struct world *w = *state;
	uint32_t tid = (uint32_t)gettid();
	char want[64];

	tell(w, tid, RF, "mine");
	tell(w, 99999999, NVTX, "other");
	*w->text = '\0';
	decoder__check_threads(w->decoder);
	assert_int_equal(probed_scopes__end_gone(w->decoder->probed), 0);
	came(w, "nvtx:end/99999999 ");
	leave(w, tid);
	snprintf(want, sizeof(want), "rf:end/%u ", tid);
	came(w, want);
}

/* Each of many open scopes ends once. */
static void test_many_threads(void **state)
{
	struct world *w = *state;
	const uint32_t threads = 5000, first = 90000000;

	w->count = 0;
	for (uint32_t i = 0; i < threads; i++) {
		tell(w, first + i, NVTX, "a");
		tell(w, first + i, NVTX, "b");
	}
	for (uint32_t i = 0; i < threads; i++) /* each call checks some threads */
		decoder__check_threads(w->decoder);
	tell(w, first, NVTX, NULL);
	w->count = 0;
	assert_int_equal(probed_scopes__end_gone(w->decoder->probed), 0);
	assert_int_equal(w->count, 2 * threads - 1);
	assert_int_equal(probed_scopes__end_gone(w->decoder->probed), 0);
	for (uint32_t i = 0; i < threads; i++)
		tell(w, first + i, RF, "c");
	w->count = 0;
	assert_int_equal(probed_scopes__end_all(w->decoder->probed), 0);
	assert_int_equal(probed_scopes__end_all(w->decoder->probed), 0);
	assert_int_equal(w->count, threads);
}

/* The first call of the old library of NVTX comes twice; a range of the same name inside does not. */
static void test_first_call(void **state)
{
	struct world *w = *state;

	snprintf(w->target.hooks[HOOK_RANGE_PUSH].file, sizeof(w->target.hooks[0].file),
		 "/nvidia/nvtx/lib/libnvToolsExt.so.1");
	tell(w, 1, NVTX, "a");
	tell(w, 1, NVTX, "a");
	tell(w, 1, NVTX, "a");
	tell(w, 1, NVTX, NULL);
	tell(w, 1, NVTX, NULL);
	tell(w, 1, NVTX, NULL);
	came(w, "nvtx:begin:a/1 nvtx:begin:a/1 nvtx:end/1 nvtx:end/1 ");
}

static void test_no_first_call(void **state)
{
	struct world *w = *state;

	tell(w, 1, NVTX, "a"); /* NVTX 3 */
	tell(w, 1, NVTX, "a");
	came(w, "nvtx:begin:a/1 nvtx:begin:a/1 ");
}

static void test_earlier(void **state)
{
	struct world *w = *state;

	w->now = START - 5;
	tell(w, 1, RF, "a");
	came(w, "rf:earlier-begin:a/1 ");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nested, setup, teardown),
		cmocka_unit_test_setup_teardown(test_usdt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hidden, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_first_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_earlier, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
