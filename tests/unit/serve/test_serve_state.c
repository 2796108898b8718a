/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages from the broker, accepted and rejected. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve/server/state.h"
#include "serve/server/summary.h"

static struct state s;

static int begin(void **state)
{
	serve_state__init(&s);
	return 0;
}

static int end(void **state)
{
	serve_state__release(&s);
	return 0;
}

static int file_of(const char *text)
{
	int fd = memfd_create("report", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static struct state_trace *last;

__attribute__((format(printf, 2, 3))) static int tell(int fd, const char *fmt, ...)
{
	char text[8192];
	json_error_t e;
	json_t *msg;
	va_list ap;
	int err;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	msg = json_loads(text, 0, &e);
	if (!msg)
		fail_msg("%s: %s", text, e.text);
	err = serve_state__take(&s, msg, fd, &last);
	json_decref(msg);
	return err;
}

static void process(int pid, double started, const char *target)
{
	assert_int_equal(tell(-1,
			      "{'event': 'process', 'pid': %d, 'started': %f, 'target': '%s', "
			      "'name': 'python x'}",
			      pid, started, target),
			 0);
}

static void test_hello(void **state)
{
	assert_int_equal(tell(-1, "{'event': 'hello', 'version': '1', 'can_trace': true, 'limits': "
				  "{}, 'formats': []}"),
			 0);
	assert_non_null(s.hello);
	assert_true(tell(-1, "{'event': 'hello', 'version': 1, 'can_trace': true, 'limits': {}, "
			     "'formats': []}") < 0);
	assert_string_equal(json_string_value(json_object_get(s.hello, "version")), "1");
	assert_true(tell(-1, "{'event': 'goodbye'}") < 0);
	assert_true(tell(-1, "{}") < 0);
	assert_int_equal(tell(-1, "{'event': 'targets', 'targets': [{'name': 'a', 'kind': 'pid', "
				  "'pids': [3]}]}"),
			 0);
	assert_true(tell(-1, "{'event': 'targets', 'targets': [{'name': 'a', 'kind': 'pid', "
			     "'pids': ['3']}]}") < 0);
	assert_int_equal(json_array_size(s.targets), 1);
	assert_int_equal(s.messages, 2);
}

static void test_processes(void **state)
{
	process(10, 1.5, "job");
	process(11, 2.5, "job");
	process(12, 2.5, "other");
	assert_int_equal(serve_state__process(&s, 10)->slot, 0);
	assert_int_equal(serve_state__process(&s, 11)->slot, 1);
	assert_int_equal(serve_state__process(&s, 12)->slot, 0);
	assert_int_equal(serve_state__process(&s, 10)->rank, -1);
	/* The PID is reused by another process. */
	assert_int_equal(tell(-1, "{'event': 'process', 'pid': 10, 'gone': true}"), 0);
	assert_null(serve_state__process(&s, 10));
	process(13, 9, "job");
	assert_int_equal(serve_state__process(&s, 13)->slot, 0);
	assert_int_equal(serve_state__process(&s, 11)->slot, 1);
	/* A repeated event is the same process; another start time is another process. */
	assert_int_equal(
		tell(-1, "{'event': 'sample', 'pid': 13, 'time': 10, 'rss': 5, 'devices': []}"), 0);
	process(13, 9, "job");
	assert_int_equal(serve_state__process(&s, 13)->n_history, 1);
	process(13, 20, "job");
	assert_int_equal(serve_state__process(&s, 13)->n_history, 0);
	assert_true(tell(-1, "{'event': 'process', 'pid': -1, 'started': 1, 'name': 'x'}") < 0);
	assert_true(tell(-1, "{'event': 'process', 'pid': 5, 'started': 'x', 'name': 'x'}") < 0);
	assert_true(
		tell(-1, "{'event': 'process', 'pid': 5, 'started': 1, 'name': 'x', 'rank': -4}") <
		0);
	assert_true(tell(-1, "{'event': 'process', 'pid': 5, 'started': 1}") < 0);
	assert_null(serve_state__process(&s, 5));
	assert_int_equal(s.n_processes, 3);
	assert_int_equal(tell(-1, "{'event': 'process', 'pid': 5, 'started': 1, 'name': "
				  "'a\\u001b[2Jb\\n', 'target': ''}"),
			 0);
	assert_null(strchr(serve_state__process(&s, 5)->name, 0x1b));
}

static void test_too_many_processes(void **state)
{
	for (int i = 1; i < STATE_PROCESSES + 50; i++)
		process(i, 1, "job");
	assert_int_equal(s.n_processes, STATE_PROCESSES);
	assert_int_equal(tell(-1, "{'event': 'process', 'pid': 3, 'gone': true}"), 0);
	process(4000, 1, "job");
	assert_int_equal(serve_state__process(&s, 4000)->slot, 2);
}

/* Steps are for clients alone, but their members are checked. */
static void test_steps(void **state)
{
	(void)state;
	assert_int_equal(tell(-1, "{'event': 'step', 'trace_id': 't', 'pid': 1, 'devices': []}"),
			 0);
	assert_true(tell(-1, "{'event': 'step', 'pid': 1, 'devices': []}") < 0);
	assert_true(tell(-1, "{'event': 'scope', 'trace_id': 't', 'pid': 0, 'devices': []}") < 0);
	assert_true(tell(-1, "{'event': 'scope', 'trace_id': 't', 'pid': 1, 'devices': 1}") < 0);
}

static void test_samples(void **state)
{
	struct state_process *p;

	process(10, 1, "job");
	p = serve_state__process(&s, 10);
	for (int i = 0; i < STATE_HISTORY + 10; i++)
		assert_int_equal(tell(-1,
				      "{'event': 'sample', 'pid': 10, 'time': %d, 'rss': 7, "
				      "'devices': [{'device': 'cuda:0', 'allocated': %d}]}",
				      1000 + i, i),
				 0);
	assert_int_equal(p->n_history, STATE_HISTORY);
	assert_string_equal(
		p->history[p->history_first],
		"{\"time\":1010,\"rss\":7,\"devices\":[{\"device\":\"cuda:0\",\"allocated\":10}]}");
	assert_int_equal(p->devices[0].has, 1 << FIG_ALLOCATED);
	assert_int_equal(p->devices[0].figures[FIG_ALLOCATED], STATE_HISTORY + 9);
	assert_true(tell(-1, "{'event': 'sample', 'pid': 10, 'time': 5000, 'devices': [{'device': "
			     "'cuda:0', 'allocated': -1}]}") < 0);
	assert_true(tell(-1, "{'event': 'sample', 'pid': 10, 'time': 5000, 'devices': [{'device': "
			     "'a name that is too long', 'allocated': 1}]}") < 0);
	assert_true(tell(-1, "{'event': 'sample', 'pid': 10, 'time': -5, 'devices': []}") < 0);
	assert_true(p->time < 5000);
	assert_true(p->has_rss);
	/* An unknown figure replaces a known one. */
	assert_int_equal(tell(-1, "{'event': 'sample', 'pid': 10, 'time': 6000, 'why': 'no CUDA', "
				  "'devices': []}"),
			 0);
	assert_false(p->has_rss);
	assert_int_equal(p->n_devices, 0);
	assert_string_equal(p->why, "no CUDA");
	assert_int_equal(tell(-1, "{'event': 'sample', 'pid': 99, 'time': 6000, 'devices': []}"),
			 0);
}

#define TRACE                                                                                      \
	"{'event': 'trace', 'trace': {'trace_id': '%s', 'model_name': 'm', 'state': '%s', "        \
	"'begun': %d, 'events': 5, 'lost': 1%s}}"
#define REPORT                                                                                     \
	"{\"capture\": {\"events\": 12, \"lost\": 0, \"duration\": 2.5, \"steps\": 3, "            \
	"\"complete\": true}, \"device\": \"cuda:0\", "                                            \
	"\"devices\": [{\"device\": \"cpu\", \"peak_allocated\": 1}, {\"device\": \"cuda:0\", "    \
	"\"peak_allocated\": 2097152, "                                                            \
	"\"peak_reserved\": 4194304, \"avg_fragmentation\": 0.25}], \"rows\": [{\"bytes\": 1}], "  \
	"\"layers\": {\"a.b\": {\"layer_name\": \"a.b\", \"peak_allocated\": 7, "                  \
	"\"avg_fragmentation\": 0.5, \"forward\": {}}}}"

static void test_traces(void **state)
{
	char id[STATE_ID + 1] = "";

	assert_int_equal(tell(-1, TRACE, "t2", "capturing", 20, ""), 0);
	assert_string_equal(last->id, "t2");
	assert_int_equal(tell(-1, TRACE, "t1", "starting", 10, ""), 0);
	assert_string_equal(s.traces[0]->id, "t1");
	assert_int_equal(tell(-1, TRACE, "t1", "failed", 10, ", 'error': 'why', 'status': 503"), 0);
	assert_int_equal(s.captures_failed, 1);
	assert_true(serve_state__trace_ended(last));
	assert_true(tell(-1, TRACE, "t3", "sleeping", 10, "") < 0);
	assert_true(tell(-1, TRACE, "", "done", 10, "") < 0);
	for (size_t n = 0; n < STATE_ID; n++)
		strcat(id, "x");
	assert_true(tell(-1, TRACE, id, "done", 10, "") < 0);
	assert_true(tell(-1, TRACE, "t2", "done", 20, ", 'status': 200") < 0);
	assert_true(tell(-1, TRACE, "t2", "done", 20, ", 'bytes': -1") < 0);
	assert_string_equal(serve_state__trace_state(serve_state__trace(&s, "t2")), "capturing");
	assert_int_equal(tell(-1, "{'event': 'gone', 'trace_id': 't1'}"), 0);
	assert_int_equal(tell(-1, "{'event': 'gone', 'trace_id': 't1'}"), 0);
	assert_int_equal(s.n_traces, 1);
	assert_null(serve_state__trace(&s, "t1"));
}

static void test_report(void **state)
{
	json_t *layer;

	assert_int_equal(
		tell(file_of(REPORT), TRACE, "t", "done", 20, ", 'enable_fragmentation': true"), 0);
	assert_non_null(last->summary);
	assert_int_equal(json_integer_value(json_object_get(last->summary, "total_events")), 12);
	assert_int_equal(json_integer_value(json_object_get(last->summary, "total_layers")), 1);
	assert_true(json_real_value(json_object_get(last->summary, "peak_allocated_mb")) == 2);
	assert_true(json_real_value(json_object_get(last->summary, "peak_reserved_mb")) == 4);
	assert_true(json_real_value(json_object_get(last->summary, "avg_fragmentation")) == 0.25);
	assert_true(json_real_value(json_object_get(last->summary, "tracing_time_ms")) == 2500);
	layer = json_object_get(json_object_get(last->summary, "layer_stats"), "a.b");
	assert_int_equal(json_integer_value(json_object_get(layer, "peak_allocated")), 7);
	assert_true(json_is_null(json_object_get(layer, "duration_ms")));
	assert_null(json_object_get(layer, "forward"));
	assert_int_equal(json_array_size(json_object_get(last->report, "rows")), 1);
	/* A repeated event without the field keeps it, and counts once. */
	assert_int_equal(tell(-1, TRACE, "t", "done", 20, ""), 0);
	assert_non_null(last->summary);
	assert_int_equal(s.captures_done, 1);
	assert_int_equal(s.events, 5);
	assert_int_equal(s.lost, 1);
	assert_int_equal(tell(file_of(REPORT), TRACE, "given", "done", 20, ", 'given': true"), 0);
	assert_int_equal(s.captures_done, 1);
	assert_int_equal(tell(file_of(REPORT), TRACE, "u", "done", 21,
			      ", 'enable_fragmentation': false"),
			 0);
	assert_true(json_is_null(json_object_get(last->summary, "avg_fragmentation")));
	layer = json_object_get(json_object_get(last->summary, "layer_stats"), "a.b");
	assert_true(json_is_null(json_object_get(layer, "avg_fragmentation")));
	/* A recording from before the server's start does not count as its capture. */
	assert_int_equal(tell(-1, "{'event': 'hello', 'version': '1', 'start': 30.5, 'can_trace': "
				  "true, 'limits': {}, 'formats': []}"),
			 0);
	assert_int_equal(tell(-1, TRACE, "v", "done", 30, ""), 0);
	assert_int_equal(tell(-1, TRACE, "w", "failed", 30, ""), 0);
	assert_int_equal(s.captures_done, 2);
	assert_int_equal(tell(-1, TRACE, "x", "done", 31, ""), 0);
	assert_int_equal(s.captures_done, 3);
	assert_int_equal(s.captures_failed, 0);
}

static double begun(const char *id)
{
	return json_number_value(json_object_get(serve_state__trace(&s, id)->facts, "begun"));
}

/* For given files, the report has the time and process of the recording, which determine its place
 * in the list. */
static void test_given_recordings_begin_when_they_were_made(void **state)
{
	static const char report[] = "{\"target\": {\"pid\": %s}, \"capture\": {\"start\": \"%s\", "
				     "\"events\": 1, \"duration\": 1}, \"devices\": []}";
	char text[256];

	assert_int_equal(tell(-1, TRACE, "first", "done", 2000, ""), 0);
	/* as written by the recorder */
	snprintf(text, sizeof(text), report, "4242", "1970-01-01T00:20:00.250Z");
	assert_int_equal(tell(file_of(text), TRACE, "old", "done", 9000, ", 'given': true"), 0);
	assert_true(begun("old") == 1200.25);
	assert_int_equal(json_integer_value(json_object_get(last->facts, "pid")), 4242);
	assert_int_equal(json_integer_value(json_object_get(last->summary, "pid")), 4242);
	assert_string_equal(s.traces[0]->id, "old");
	assert_int_equal(s.n_traces, 2);
	snprintf(text, sizeof(text), report, "4242", "1970-01-01T00:10:00Z");
	assert_int_equal(tell(file_of(text), TRACE, "older", "done", 9000, ", 'given': true"), 0);
	assert_true(begun("older") == 600);
	assert_string_equal(s.traces[0]->id, "older");
	/* Invalid reports change nothing. */
	for (int i = 0; i < 3; i++) {
		static const char *const pids[] = { "-1", "99999999999", "\"x\"" },
					 *const starts[] = { "yesterday", "2026-01-02T03:04:05Zx",
							     "" };

		snprintf(text, sizeof(text), report, pids[i], starts[i]);
		assert_int_equal(tell(file_of(text), TRACE, "bad", "done", 9000, ", 'given': true"),
				 0);
		assert_true(begun("bad") == 9000);
		assert_true(json_integer_value(json_object_get(last->facts, "pid")) <= 0 ||
			    json_is_null(json_object_get(last->facts, "pid")));
	}
	/* For captures of this server the broker's data stays. */
	snprintf(text, sizeof(text), report, "4242", "1970-01-01T00:20:00Z");
	assert_int_equal(tell(file_of(text), TRACE, "own", "done", 9000, ""), 0);
	assert_true(begun("own") == 9000);
}

static void test_bad_reports(void **state)
{
	static const char *const bad[] = { "",
					   "[]",
					   "{",
					   "{}",
					   "{\"capture\": {}, \"devices\": []}",
					   "{\"capture\": {\"events\": 1}, \"devices\": 3}",
					   NULL };
	int fd;

	for (size_t i = 0; bad[i]; i++) {
		assert_int_equal(tell(file_of(bad[i]), TRACE, "t", "done", 20, ""), 0);
		assert_null(last->summary);
	}
	/* A report without devices has null figures. */
	assert_int_equal(tell(file_of("{\"capture\": {\"events\": 1}, \"devices\": [3, {}], "
				      "\"layers\": [], \"rows\": {}}"),
			      TRACE, "t", "done", 20, ""),
			 0);
	assert_true(json_is_null(json_object_get(last->summary, "peak_allocated_mb")));
	/* A descriptor is closed in all cases. */
	fd = file_of("x");
	assert_true(tell(fd, "{'event': 'nothing'}") < 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = open("/dev", O_RDONLY);
	assert_int_equal(tell(fd, TRACE, "d", "done", 20, ""), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_many_traces(void **state)
{
	char id[20];

	for (int i = 0; i < STATE_TRACES + 5; i++) {
		snprintf(id, sizeof(id), "t%d", i);
		assert_int_equal(tell(i % 40 ? -1 : file_of(REPORT), TRACE, id, "done", i, ""), 0);
	}
	assert_int_equal(s.n_traces, STATE_TRACES);
	assert_null(serve_state__trace(&s, "t4"));
	assert_non_null(serve_state__trace(&s, "t5"));
	/* Layers are kept for the last recordings. */
	assert_non_null(json_object_get(serve_state__trace(&s, "t1000")->summary, "layer_stats"));
	assert_null(json_object_get(serve_state__trace(&s, "t40")->summary, "layer_stats"));
	assert_non_null(json_object_get(serve_state__trace(&s, "t40")->summary, "total_layers"));
}

static void test_push(void **state)
{
	assert_int_equal(
		tell(-1, "{'event': 'push', 'otlp': {'sent': 1, 'failed': 0, 'dropped': 2}}"), 0);
	assert_true(tell(-1, "{'event': 'push', 'otlp': {'sent': -1, 'failed': 0, 'dropped': 2}}") <
		    0);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(s.push, "otlp"), "dropped")), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hello, begin, end),
		cmocka_unit_test_setup_teardown(test_processes, begin, end),
		cmocka_unit_test_setup_teardown(test_too_many_processes, begin, end),
		cmocka_unit_test_setup_teardown(test_samples, begin, end),
		cmocka_unit_test_setup_teardown(test_steps, begin, end),
		cmocka_unit_test_setup_teardown(test_traces, begin, end),
		cmocka_unit_test_setup_teardown(test_report, begin, end),
		cmocka_unit_test_setup_teardown(test_bad_reports, begin, end),
		cmocka_unit_test_setup_teardown(test_given_recordings_begin_when_they_were_made,
						begin, end),
		cmocka_unit_test_setup_teardown(test_many_traces, begin, end),
		cmocka_unit_test_setup_teardown(test_push, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
