/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A round of profiles with a simulated broker: its questions, their order, and failures. */
#include "unit/cmocka.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/push/push.h"

#define SECOND 1000000000ULL

struct world {
	struct link *ours, *brokers;
	struct state state;
	struct sender *sender;
	struct profiles *profiles;
	uint64_t last_id;
	json_t *asked; /* last question; NULL: none */
};

static void keep(void *ctx, json_t *msg, int fd)
{
	struct world *w = ctx;

	assert_int_equal(fd, -1);
	assert_null(w->asked);
	w->asked = json_incref(msg);
}

/* Expects this question; returns its id. */
static json_int_t expect(struct world *w, const char *what)
{
	json_int_t id;

	assert_int_equal(link__pump(w->brokers, keep, w), 0);
	if (!what) {
		assert_null(w->asked);
		return 0;
	}
	assert_non_null(w->asked);
	assert_string_equal(json_string_value(json_object_get(w->asked, "do")), what);
	id = json_integer_value(json_object_get(w->asked, "id"));
	assert_true(id > 0);
	return id;
}

static void forget(struct world *w)
{
	json_decref(w->asked);
	w->asked = NULL;
}

/* A member of the question, text or number. */
static const json_t *of_question(struct world *w, const char *key)
{
	return json_object_get(w->asked, key);
}

static void tell(struct world *w, json_t *event)
{
	struct state_trace *t;

	assert_non_null(event);
	assert_int_equal(serve_state__take(&w->state, event, -1, &t), 0);
	json_decref(event);
}

static void answer(struct world *w, json_int_t id, json_t *doc, int fd, uint64_t now)
{
	forget(w);
	assert_non_null(doc);
	json_object_set_new(doc, "id", json_integer(id));
	assert_true(profiles__answered(w->profiles, doc, fd, now));
	json_decref(doc);
}

static json_t *trace(const char *state)
{
	return json_pack("{s:s, s:s, s:s, s:f}", "trace_id", "trace_1", "model_name", "", "state",
			 state, "begun", 1700000000.0);
}

static void tell_trace(struct world *w, const char *state, uint64_t now)
{
	tell(w, json_pack("{s:s, s:o}", "event", "trace", "trace", trace(state)));
	profiles__step(w->profiles, now);
}

static void tell_process(struct world *w, int pid, bool gone)
{
	tell(w,
	     json_pack("{s:s, s:i, s:f, s:s, s:s, s:b}", "event", "process", "pid", pid, "started",
		       1700000000.0 + pid, "target", "train", "name", "python", "gone", gone));
}

static void begin_for(struct world *w, int processes, const char *otlp)
{
	const struct sender_opts so = { .timeout = 5, .backoff = 10, .attempts = 2 };
	struct profiles_opts po = {
		.pyroscope = "http://127.0.0.1:9", .otlp = otlp, .host = "node", .seconds = 2
	};
	int fds[2];

	memset(w, 0, sizeof(*w));
	serve_state__init(&w->state);
	assert_int_equal(link__pair(fds), 0);
	w->ours = link__new(fds[0]);
	w->brokers = link__new(fds[1]);
	w->sender = sender__new(&so);
	assert_true(w->ours && w->brokers && w->sender);
	po.link = w->ours;
	po.state = &w->state;
	po.sender = w->sender;
	po.last_id = &w->last_id;
	w->profiles = profiles__new(&po);
	assert_non_null(w->profiles);
	for (int i = 0; i < processes; i++)
		tell_process(w, 101 + i, false);
	profiles__begin(w->profiles);
	profiles__step(w->profiles, 0);
}

static void begin(struct world *w, int processes)
{
	begin_for(w, processes, NULL);
}

static void end(struct world *w)
{
	expect(w, NULL);
	profiles__free(w->profiles);
	sender__free(w->sender);
	link__free(w->ours);
	link__free(w->brokers);
	serve_state__release(&w->state);
}

static int file_of(const char *text)
{
	int fd = memfd_create("profile", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static int a_file(void)
{
	return file_of("\x1f\x8bprofile");
}

static json_t *ok(void)
{
	return json_pack("{s:b}", "ok", 1);
}

/* Continues up to the running capture. */
static void capture(struct world *w, int pid)
{
	json_int_t id = expect(w, "capture");

	assert_int_equal(json_integer_value(of_question(w, "pid")), pid);
	assert_true(json_number_value(of_question(w, "duration_s")) == 2);
	assert_true(json_is_false(of_question(w, "keep")));
	answer(w, id, json_pack("{s:b, s:o}", "ok", 1, "trace", trace("starting")), -1, 0);
	tell_trace(w, "capturing", 0);
	expect(w, NULL);
}

static void whole(struct world *w, int pid)
{
	json_int_t id;

	capture(w, pid);
	tell_trace(w, "done", 0);
	id = expect(w, "export");
	assert_string_equal(json_string_value(of_question(w, "format")), "pprof");
	assert_string_equal(json_string_value(of_question(w, "trace_id")), "trace_1");
	answer(w, id, json_pack("{s:b, s:s}", "ok", 1, "file", "trace_1.pb.gz"), -1, 0);
	id = expect(w, "open");
	assert_string_equal(json_string_value(of_question(w, "file")), "trace_1.pb.gz");
	answer(w, id, ok(), a_file(), 0);
	id = expect(w, "delete");
	tell(w, json_pack("{s:s, s:s}", "event", "gone", "trace_id", "trace_1"));
	answer(w, id, ok(), -1, 0);
}

static void test_round(void **unused)
{
	struct world w;

	begin(&w, 2);
	/* One capture at a time, and no second round during the first. */
	profiles__begin(w.profiles);
	whole(&w, 101);
	assert_int_equal(sender__waiting(w.sender), 1);
	whole(&w, 102);
	assert_int_equal(sender__waiting(w.sender), 2);
	assert_int_equal(profiles__failed(w.profiles), 0);
	expect(&w, NULL);
	profiles__begin(w.profiles);
	profiles__step(w.profiles, 0);
	whole(&w, 101);
	whole(&w, 102);
	end(&w);
}

/* One capture serves both servers. An export that is damaged counts as failed. */
static void test_two_servers(void **unused)
{
	struct world w;
	json_int_t id;

	for (int damaged = 0; damaged < 2; damaged++) {
		begin_for(&w, 1, "http://127.0.0.1:9/v1development/profiles");
		capture(&w, 101);
		tell_trace(&w, "done", 0);
		for (int i = 0; i < 2; i++) {
			id = expect(&w, "export");
			assert_string_equal(json_string_value(of_question(&w, "format")),
					    i ? "otlp" : "pprof");
			answer(&w, id, json_pack("{s:b, s:s}", "ok", 1, "file", "f"), -1, 0);
			id = expect(&w, "open");
			answer(&w, id, ok(),
			       file_of(i && !damaged ? "\x0a\x05\x0a\x03old\x12\x01z" : "\x1f"), 0);
		}
		id = expect(&w, "delete");
		answer(&w, id, ok(), -1, 0);
		assert_int_equal(sender__waiting(w.sender), 2 - damaged);
		assert_int_equal(profiles__failed(w.profiles), damaged);
		end(&w);
	}
}

static void test_refused(void **unused)
{
	struct world w;
	json_int_t id;

	begin(&w, 2);
	id = expect(&w, "capture");
	answer(&w, id,
	       json_pack("{s:b, s:i, s:s}", "ok", 0, "status", 503, "detail",
			 "not \033[31mpermitted"),
	       -1, 0);
	assert_int_equal(profiles__failed(w.profiles), 1);
	whole(&w, 102);
	assert_int_equal(sender__waiting(w.sender), 1);
	end(&w);
}

/* A failure after a capture began: the capture is deleted and the next process follows. */
static void test_deleted_when_it_fails(void **unused)
{
	struct world w;
	json_int_t id;

	for (int at = 0; at < 4; at++) {
		begin(&w, 2);
		capture(&w, 101);
		tell_trace(&w, at ? "done" : "failed", 0);
		if (at >= 1) {
			id = expect(&w, "export");
			answer(&w, id,
			       at == 1 ? json_pack("{s:b}", "ok", 0)
				       : json_pack("{s:b, s:s}", "ok", 1, "file", "f"),
			       -1, 0);
		}
		if (at >= 2) {
			id = expect(&w, "open");
			if (at == 3)
				tell_process(&w, 101, true);
			/* No descriptor; or one, but the process has ended. */
			answer(&w, id, ok(), at == 3 ? a_file() : -1, 0);
		}
		id = expect(&w, "delete");
		assert_int_equal(profiles__failed(w.profiles), at < 3);
		assert_int_equal(sender__waiting(w.sender), 0);
		answer(&w, id, ok(), -1, 0);
		expect(&w, "capture");
		assert_int_equal(json_integer_value(of_question(&w, "pid")), 102);
		forget(&w);
		end(&w);
	}
}

static void test_too_long(void **unused)
{
	struct world w;

	begin(&w, 1);
	capture(&w, 101);
	profiles__step(w.profiles, 60 * SECOND);
	expect(&w, NULL);
	profiles__step(w.profiles, 200 * SECOND);
	expect(&w, "delete");
	forget(&w);
	assert_int_equal(profiles__failed(w.profiles), 1);
	/* The wait for the deletion is limited, too. */
	profiles__step(w.profiles, 400 * SECOND);
	profiles__begin(w.profiles);
	profiles__step(w.profiles, 400 * SECOND);
	expect(&w, "capture");
	forget(&w);
	end(&w);
}

/* A PID that another process has by now is not captured. */
static void test_other_process(void **unused)
{
	struct world w;
	json_int_t id;

	begin(&w, 3);
	id = expect(&w, "capture");
	tell_process(&w, 102, true);
	answer(&w, id, json_pack("{s:b}", "ok", 0), -1, 0);
	expect(&w, "capture");
	assert_int_equal(json_integer_value(of_question(&w, "pid")), 103);
	forget(&w);
	end(&w);
}

/* Answers without a question are ignored. */
static void test_stray_answers(void **unused)
{
	json_t *stray = json_pack("{s:i, s:b}", "id", 999, "ok", 1);
	struct world w;

	begin(&w, 1);
	expect(&w, "capture");
	assert_false(profiles__answered(w.profiles, stray, -1, 0));
	forget(&w);
	json_decref(stray);
	end(&w);
}

static int first(void **unused)
{
	log__set_level(LOG_ERROR);
	return curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int last(void **unused)
{
	curl_global_cleanup();
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),	      cmocka_unit_test(test_two_servers),
		cmocka_unit_test(test_refused),	      cmocka_unit_test(test_deleted_when_it_fails),
		cmocka_unit_test(test_too_long),      cmocka_unit_test(test_other_process),
		cmocka_unit_test(test_stray_answers),
	};

	return cmocka_run_group_tests(tests, first, last);
}
