/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The broker's answers to any question: one answer each, which web can pass on, with no trust in
 * the question. */
#include "unit/cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
/* cmocka needs the headers above */

#include "base/clock.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"

static struct serve_args args = {
	.targets = { { .name = "job", .kind = TARGET_PATTERN, .text = "no-such-command-line" },
		     { .name = "gpt", .kind = TARGET_COMMAND, .text = "false" } },
	.n_targets = 2,
	.max_events = 1000,
	.max_traces = 3,
	.max_captures = 0, /* captures are refused: nothing is started here */
	.max_duration = UINT64_C(60000000000),
	.max_disk = UINT64_C(1) << 30,
	.max_workers = 1,
};
static char folder[] = "/tmp/test-broker-XXXXXX";
static struct broker *b;
static struct link *other; /* web's end */

static int set_up(void **state)
{
	char why[256];
	int fds[2];
	struct trace *t;

	b = calloc(1, sizeof(*b));
	if (!b || !mkdtemp(folder) || store__open(&b->store, folder, why) || link__pair(fds))
		return -1;
	b->args = &args;
	b->can_trace = true;
	for (int k = 0; k < PEER_NR; k++)
		b->peers[k] = (struct peer){ .b = b, .kind = k };
	b->peers[PEER_WEB].link = link__new(fds[0]);
	other = link__new(fds[1]);
	t = trace__new(b, "trace_1");
	if (!t || !b->peers[PEER_WEB].link || !other)
		return -1;
	t->state = TRACE_DONE;
	close(store__create(&b->store, t->file));
	return 0;
}

static int tear_down(void **state)
{
	jobs__free(b);
	while (b->traces.n)
		trace__delete(b, b->traces.v[0]);
	link__free(b->peers[PEER_WEB].link);
	link__free(other);
	store__close(&b->store);
	free(b);
	return rmdir(folder);
}

struct heard {
	int n;
	json_t *last;
};

static void hear(void *ctx, json_t *msg, int fd)
{
	struct heard *h = ctx;

	if (fd >= 0)
		close(fd);
	if (json_object_get(msg, "event"))
		return;
	h->n++;
	json_decref(h->last);
	h->last = json_incref(msg);
}

/* The answer; NULL: none yet. */
static json_t *ask(json_t *msg)
{
	struct heard h = { 0 };

	ask__handle(&b->peers[PEER_WEB], msg);
	assert_int_equal(link__pump(b->peers[PEER_WEB].link, hear, &h), 0);
	assert_int_equal(link__pump(other, hear, &h), 0);
	assert_true(h.n <= 1);
	return h.last;
}

static void refused(const char *text, int status, const char *field)
{
	json_t *msg = json_loads(text, 0, NULL), *a;

	assert_non_null(msg);
	a = ask(msg);
	if (!a)
		fail_msg("no answer to %s", text);
	if (json_integer_value(json_object_get(a, "status")) != status)
		fail_msg("%s: %s", text, json_dumps(a, 0));
	assert_true(json_is_false(json_object_get(a, "ok")));
	assert_int_equal(json_integer_value(json_object_get(a, "id")),
			 json_integer_value(json_object_get(msg, "id")));
	assert_true(strlen(json_string_value(json_object_get(a, "detail"))) > 5);
	if (field)
		assert_string_equal(json_string_value(json_object_get(a, "field")), field);
	else
		assert_null(json_object_get(a, "field"));
	json_decref(a);
	json_decref(msg);
}

static void test_refused(void **state)
{
	refused("{\"id\": 1, \"do\": \"nothing\"}", 422, "do");
	refused("{\"id\": 2, \"do\": \"capture\"}", 422, "model_name");
	refused("{\"id\": 3, \"do\": \"capture\", \"model_name\": 7}", 422, "model_name");
	refused("{\"id\": 4, \"do\": \"capture\", \"model_name\": \"a\\tb\"}", 422, "model_name");
	refused("{\"id\": 5, \"do\": \"capture\", \"model_name\": \"other\"}", 404, "model_name");
	refused("{\"id\": 6, \"do\": \"capture\", \"model_name\": \"job\"}", 404, "model_name");
	refused("{\"id\": 7, \"do\": \"capture\", \"pid\": 1}", 404, "pid");
	refused("{\"id\": 8, \"do\": \"capture\", \"pid\": \"1\"}", 422, "pid");
	refused("{\"id\": 9, \"do\": \"capture\", \"pid\": -1}", 422, "pid");
	refused("{\"id\": 10, \"do\": \"capture\", \"model_name\": \"gpt\", \"max_events\": 1001}",
		422, "max_events");
	refused("{\"id\": 11, \"do\": \"capture\", \"model_name\": \"gpt\", \"duration_s\": 61}",
		422, "duration_s");
	refused("{\"id\": 12, \"do\": \"capture\", \"model_name\": \"gpt\", \"steps\": 0.5}", 422,
		"steps");
	refused("{\"id\": 13, \"do\": \"capture\", \"model_name\": \"gpt\", \"input_shape\": [1, "
		"\"2\"]}",
		422, "input_shape");
	refused("{\"id\": 14, \"do\": \"capture\", \"model_name\": \"gpt\", \"input_shape\": []}",
		422, "input_shape");
	refused("{\"id\": 15, \"do\": \"capture\", \"model_name\": \"gpt\", \"keep\": 1}", 422,
		"keep");
	refused("{\"id\": 16, \"do\": \"capture\", \"model_name\": \"gpt\"}", 429, NULL);
	refused("{\"id\": 17, \"do\": \"stop\", \"trace_id\": \"trace_1\"}", 409, "trace_id");
	refused("{\"id\": 18, \"do\": \"stop\"}", 422, "trace_id");
	refused("{\"id\": 19, \"do\": \"delete\", \"trace_id\": \"../trace_1\"}", 404, "trace_id");
	refused("{\"id\": 20, \"do\": \"open\", \"file\": \"../../etc/passwd\"}", 404, "file");
	refused("{\"id\": 21, \"do\": \"open\", \"file\": \"/etc/passwd\"}", 404, "file");
	refused("{\"id\": 22, \"do\": \"open\"}", 422, "file");
	refused("{\"id\": 23, \"do\": \"export\", \"trace_id\": \"trace_1\", \"format\": \"docx\"}",
		422, "format");
	refused("{\"id\": 24, \"do\": \"export\", \"trace_id\": \"trace_2\", \"format\": \"csv\"}",
		404, "trace_id");
	refused("{\"id\": 25, \"do\": \"report\", \"trace_id\": \"trace_1\", \"top\": -1}", 422,
		"top");
	refused("{\"id\": 26, \"do\": \"report\", \"trace_id\": \"trace_1\", \"at\": \"a\\nb\"}",
		422, "at");
	refused("{\"id\": 27, \"do\": \"diff\", \"old\": \"trace_1\", \"new\": \"trace_9\"}", 404,
		"new");
	refused("{\"id\": 28, \"do\": \"compare\", \"traces\": [\"trace_1\"]}", 422, "traces");
	refused("{\"id\": 29, \"do\": \"compare\", \"traces\": [\"trace_1\", 7]}", 404, "traces");
	refused("{\"id\": 30, \"do\": \"dump\", \"pid\": 1}", 404, "pid");
	refused("{\"id\": 31, \"do\": \"dump\", \"model_name\": \"gpt\"}", 422, "model_name");
	refused("{\"id\": 32, \"do\": \"ranks\", \"traces\": []}", 422, "traces");
	refused("{\"id\": 33, \"do\": \"ranks\", \"traces\": [\"trace_9\"]}", 404, "traces");
	assert_null(b->jobs);
	assert_false(b->peers[PEER_WEB].broken);
}

static void test_opens(void **state)
{
	json_t *msg = json_loads("{\"id\": 1, \"do\": \"open\", \"file\": \"trace_1.mtr\"}", 0,
				 NULL),
	       *a = ask(msg);

	assert_true(json_is_true(json_object_get(a, "ok")));
	assert_int_equal(json_integer_value(json_object_get(a, "size")), 0);
	json_decref(a);
	json_decref(msg);
}

/* A file not yet checked to be a recording may be another file put there. */
static void test_opens_no_unchecked(void **state)
{
	b->traces.v[0]->state = TRACE_FINISHING;
	refused("{\"id\": 1, \"do\": \"open\", \"file\": \"trace_1.mtr\"}", 404, "file");
	b->traces.v[0]->state = TRACE_DONE;
}

/* Bytes of the facts file; 0: no file. */
static uint64_t facts_size(void)
{
	uint64_t size = 0;
	int fd = store__open_file(&b->store, "trace_1.json", &size);

	if (fd >= 0)
		close(fd);
	return size;
}

static void test_facts_survive_a_full_disk(void **state)
{
	struct rlimit before, none;
	uint64_t size;

	snprintf(b->traces.v[0]->model, sizeof(b->traces.v[0]->model), "resnet50");
	trace__note(b, b->traces.v[0]);
	size = facts_size();
	assert_true(size > 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ .rlim_cur = 20, .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	trace__note(b, b->traces.v[0]);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(facts_size(), size);
	trace__forget_note(b, b->traces.v[0]);
	assert_int_equal(facts_size(), 0);
}

/* An export leaves the space reserved for a running capture. */
static void test_exports_leave_captures_their_share(void **state)
{
	json_t *msg = json_loads(
		"{\"id\": 1, \"do\": \"export\", \"trace_id\": \"trace_1\", \"format\": \"csv\"}",
		0, NULL);
	struct trace *t = trace__new(b, "trace_2");
	struct heard h = { 0 };

	assert_non_null(t);
	t->run.process.pid = getpid();
	t->reserved = args.max_disk;
	assert_null(ask(msg));
	jobs__pump(b, clock__monotonic());
	assert_null(b->jobs);
	assert_int_equal(link__pump(b->peers[PEER_WEB].link, hear, &h), 0);
	assert_int_equal(link__pump(other, hear, &h), 0);
	assert_int_equal(json_integer_value(json_object_get(h.last, "status")), 429);
	t->run.process.pid = 0;
	trace__delete(b, t);
	json_decref(h.last);
	json_decref(msg);
}

/* A long text reaches the worker whole. */
static void test_long_texts(void **state)
{
	char filter[1000] = "";
	json_t *msg;

	memset(filter, 'x', sizeof(filter) - 1);
	msg = json_pack("{s:i,s:s,s:s,s:s}", "id", 1, "do", "report", "trace_id", "trace_1",
			"filter", filter);
	assert_null(ask(msg));
	assert_non_null(b->jobs);
	assert_string_equal(b->jobs->argv[2] + strlen("--filter="), filter);
	jobs__free(b);
	json_decref(msg);
}

/* ---- random questions ---- */

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static json_t *any(uint32_t *seed, unsigned depth)
{
	static const char *const texts[] = { "job",  "gpt",   "trace_1", "trace_1.mtr", "csv",
					     "peak", "",      "-",	 "--at=end",	"\xc3\xa9",
					     "a\tb", "../..", "line" };
	json_t *v;

	switch (next_random(seed) % (depth > 2 ? 6 : 8)) {
	case 0:
		return json_null();
	case 1:
		return json_boolean(next_random(seed) & 1);
	case 2:
		return json_integer((json_int_t)next_random(seed) % 5 - 1);
	case 3:
		return json_integer(next_random(seed) & 1 ? INT64_MAX : INT64_MIN);
	case 4:
		return json_real(1e300 * next_random(seed));
	case 5:
		return json_string(texts[next_random(seed) % (sizeof(texts) / sizeof(*texts))]);
	case 6:
		v = json_array();
		for (uint32_t n = next_random(seed) % 20; n; n--)
			json_array_append_new(v, any(seed, depth + 1));
		return v;
	default:
		v = json_object();
		json_object_set_new(v, "x", any(seed, depth + 1));
		return v;
	}
}

static size_t jobs(void)
{
	struct pollfd fds[1];

	/* None of the jobs runs: nothing starts them here. */
	assert_int_equal(jobs__poll(b, fds, 1), 0);
	return b->jobs != NULL;
}

static void test_anything(void **state)
{
	static const char *const dos[] = { "capture", "stop",	"report", "leaks", "diff",
					   "compare", "export", "open",	  "dump",  "pushed",
					   "cancel",  "ranks",	"devices" };
	static const char *const keys[] = { "asked",	   "pid",
					    "model_name",  "duration_s",
					    "steps",	   "max_events",
					    "input_shape", "batch_size",
					    "keep",	   "trace_id",
					    "at",	   "by",
					    "device",	   "top",
					    "filter",	   "frames",
					    "old",	   "new",
					    "traces",	   "format",
					    "file",	   "enable_fragmentation",
					    "host" };
	static const int statuses[] = { 404, 409, 422, 429, 503 };
	uint32_t seed = 1;

	for (int i = 1; i < 20000; i++) {
		json_t *msg = json_pack("{s:i,s:s}", "id", i, "do",
					dos[next_random(&seed) % (sizeof(dos) / sizeof(*dos))]),
		       *a;
		bool known = false;

		for (uint32_t n = next_random(&seed) % 6; n; n--)
			json_object_set_new(
				msg, keys[next_random(&seed) % (sizeof(keys) / sizeof(*keys))],
				any(&seed, 0));
		a = ask(msg);
		if (a) {
			assert_int_equal(json_integer_value(json_object_get(a, "id")), i);
			known = json_is_true(json_object_get(a, "ok"));
			for (size_t k = 0; k < sizeof(statuses) / sizeof(*statuses); k++)
				known |= json_integer_value(json_object_get(a, "status")) ==
					 statuses[k];
		} else {
			known = jobs(); /* the job waits for a free worker */
			jobs__free(b);
		}
		if (!known)
			fail_msg("%s: %s", json_dumps(msg, 0), a ? json_dumps(a, 0) : "no answer");
		json_decref(a);
		json_decref(msg);
	}
	assert_false(b->peers[PEER_WEB].broken);
	assert_int_equal(b->traces.n, 1);
}

/* Too many jobs, and jobs whose files disappear. */
static void test_waiting(void **state)
{
	int n = 0;

	for (int i = 1; i <= BROKER_WAITING + 3; i++) {
		json_t *msg = json_pack("{s:i,s:s,s:s}", "id", i, "do", "report", "trace_id",
					"trace_1"),
		       *a = ask(msg);

		n += a && json_integer_value(json_object_get(a, "status")) == 429;
		json_decref(a);
		json_decref(msg);
	}
	assert_int_equal(n, 3);
	jobs__forget_peer(b, &b->peers[PEER_WEB]);
	assert_null(b->jobs);
}

/* A client has disconnected: its place is free at once. Other clients' questions and unknown ids
 * are not affected. */
static void test_cancelled(void **state)
{
	json_t *msg, *a;

	for (int i = 1; i <= BROKER_WAITING; i++) {
		msg = json_pack("{s:i,s:s,s:s,s:s}", "id", i, "do", i % 2 ? "report" : "export",
				"trace_id", "trace_1", "format", "csv");
		assert_null(ask(msg));
		json_decref(msg);
	}
	msg = json_loads("{\"id\": 100, \"do\": \"report\", \"trace_id\": \"trace_1\"}", 0, NULL);
	a = ask(msg);
	assert_int_equal(json_integer_value(json_object_get(a, "status")), 429);
	json_decref(a);
	for (int i = 0; i <= BROKER_WAITING + 1; i++) {
		json_t *cancel = json_pack("{s:i,s:s,s:i}", "id", 200 + i, "do", "cancel", "asked",
					   i == 0 ? 77 : i);

		if (i == 1) { /* 77 was never asked */
			a = ask(msg);
			assert_int_equal(json_integer_value(json_object_get(a, "status")), 429);
			json_decref(a);
		}
		a = ask(cancel);
		assert_true(json_is_true(json_object_get(a, "ok")));
		json_decref(a);
		json_decref(cancel);
	}
	assert_null(b->jobs);
	assert_null(ask(msg));
	jobs__forget_peer(b, &b->peers[PEER_WEB]);
	json_decref(msg);
	refused("{\"id\": 300, \"do\": \"cancel\"}", 422, "asked");
	refused("{\"id\": 301, \"do\": \"cancel\", \"asked\": -1}", 422, "asked");
}

static size_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void count_answers(void *ctx, json_t *msg, int fd)
{
	int *n = ctx;

	n[json_is_true(json_object_get(msg, "ok"))]++;
	assert_int_equal(json_is_true(json_object_get(msg, "ok")), fd >= 0);
	close(fd);
}

/* A client that does not read has a limited number of open answers. */
static void test_descriptors_of_answers_nobody_reads(void **state)
{
	size_t before = descriptors();
	int n[2] = { 0 };

	for (int i = 1; i <= 3000; i++) {
		json_t *msg = json_pack("{s:i,s:s,s:s}", "id", i, "do", "open", "file",
					"trace_1.mtr");

		ask__handle(&b->peers[PEER_WEB], msg);
		json_decref(msg);
	}
	assert_true(descriptors() <= before + LINK_FDS);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(link__pump(other, count_answers, n), 0);
		assert_int_equal(link__pump(b->peers[PEER_WEB].link, count_answers, n), 0);
	}
	assert_int_equal(n[0] + n[1], 3000);
	assert_true(n[0] > 0 && n[1] > LINK_FDS);
	assert_int_equal(descriptors(), before);
	assert_false(b->peers[PEER_WEB].broken);
}

/* An invalid message ends the connection. */
static void test_no_question(void **state)
{
	static const char *const texts[] = { "{}", "{\"id\": 1}", "{\"id\": 0, \"do\": \"report\"}",
					     "{\"do\": \"report\"}", "{\"id\": 1, \"do\": 7}" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		json_t *msg = json_loads(texts[i], 0, NULL);

		b->peers[PEER_WEB].broken = false;
		ask__handle(&b->peers[PEER_WEB], msg);
		assert_true(b->peers[PEER_WEB].broken);
		json_decref(msg);
	}
	b->peers[PEER_WEB].broken = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_opens),
		cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_anything),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_no_question),
		cmocka_unit_test(test_opens_no_unchecked),
		cmocka_unit_test(test_descriptors_of_answers_nobody_reads),
		cmocka_unit_test(test_facts_survive_a_full_disk),
		cmocka_unit_test(test_exports_leave_captures_their_share),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
