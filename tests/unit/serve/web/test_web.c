/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The HTTP process between a simulated broker and simulated clients. */
#include "unit/cmocka.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve/serve.h"
#include "serve/server/link.h"

#define REPORT                                                                                     \
	"{\"capture\": {\"events\": 12, \"duration\": 2.5}, \"device\": \"cpu\", \"devices\": "    \
	"[{\"device\": \"cpu\", \"peak_allocated\": 1048576}], "                                   \
	"\"rows\": [], \"layers\": {\"a\": {\"layer_name\": \"a\"}}}"

static struct link *broker;
static pid_t web;
static in_port_t port;
static json_t *asked; /* the web process's last question */

static void on_ask(void *ctx, json_t *msg, int fd)
{
	assert_int_equal(fd, -1);
	json_decref(asked);
	asked = json_incref(msg);
}

/* Waits at most 10 s for a new question. */
static void await_ask(const char *what)
{
	json_decref(asked);
	asked = NULL;
	for (int i = 0; i < 1000 && !asked; i++) {
		struct pollfd p = { .fd = link__fd(broker), .events = link__events(broker) };

		poll(&p, 1, 10);
		assert_int_equal(link__pump(broker, on_ask, NULL), 0);
	}
	assert_non_null(asked);
	assert_string_equal(json_string_value(json_object_get(asked, "do")), what);
}

static int file_of(const char *text)
{
	int fd = memfd_create("answer", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static void tell(json_t *msg, int fd)
{
	assert_non_null(msg);
	assert_int_equal(link__send(broker, msg, fd), 0);
}

static void tell_trace(const char *id, const char *state, int fd)
{
	tell(json_pack("{s:s, s:{s:s, s:s, s:s, s:i, s:s}}", "event", "trace", "trace", "trace_id",
		       id, "model_name", "m", "state", state, "begun", 5, "file", "one.mtr"),
	     fd);
}

static int begin(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fds[2], fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof(a);

	assert_int_equal(link__pair(fds), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	port = a.sin_port;
	fflush(NULL);
	web = fork();
	if (!web) {
		struct serve_args args = { .n_listen = 1 };

		close(fds[0]);
		exit(web__run(&args, fds[1], &fd, 1));
	}
	close(fds[1]);
	close(fd);
	broker = link__new(fds[0]);
	tell(json_pack("{s:s, s:s, s:i, s:b, s:{s:i}, s:[]}", "event", "hello", "version", "1",
		       "start", 1, "can_trace", 1, "limits", "max_events", 1000, "formats"),
	     -1);
	return 0;
}

/* The web process ends when the broker does. */
static int end(void **state)
{
	int status;

	link__free(broker);
	json_decref(asked);
	asked = NULL;
	assert_int_equal(waitpid(web, &status, 0), web);
	assert_int_equal(status, 0);
	return 0;
}

static int client(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = port };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

__attribute__((format(printf, 3, 4))) static void ask(int fd, const char *body, const char *fmt,
						      ...)
{
	char head[300], text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	if (body)
		snprintf(text, sizeof(text),
			 "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
			 "application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 head, strlen(body), body);
	else
		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: localhost\r\n\r\n", head);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until the text has `until`, at most 10 s. */
static char *hear(int fd, const char *until)
{
	static char text[1 << 16];
	size_t n = 0;

	text[0] = '\0';
	for (int i = 0; i < 1000 && !strstr(text, until); i++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&p, 1, 10) <= 0)
			continue;
		got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
		if (got <= 0)
			break;
		n += (size_t)got;
		text[n] = '\0';
	}
	if (!strstr(text, until))
		fail_msg("no %s in: %.2000s", until, text);
	return text;
}

static int status_of(const char *text)
{
	return atoi(text + 9);
}

static void answer(json_t *more, int fd)
{
	json_object_set(more, "id", json_object_get(asked, "id"));
	tell(more, fd);
}

static void test_answers(void **state)
{
	static const struct {
		int told, comes;
	} codes[] = { { 404, 404 }, { 409, 409 }, { 422, 422 }, { 429, 429 },
		      { 503, 503 }, { 500, 503 }, { 200, 503 }, { 0, 503 } };
	int fd = client();

	tell_trace("one", "done", -1);
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		ask(fd, NULL, "GET /api/trace/one?top=3");
		await_ask("report");
		assert_int_equal(json_integer_value(json_object_get(asked, "top")), 3);
		answer(json_pack("{s:b, s:i, s:s}", "ok", 0, "status", codes[i].told, "detail",
				 "so \"it\" is\n"),
		       -1);
		assert_int_equal(status_of(hear(fd, "so \\\"it\\\" is")), codes[i].comes);
	}
	ask(fd, NULL, "GET /api/trace/one");
	await_ask("report");
	answer(json_pack("{s:b}", "ok", 1), file_of("{\"rows\": []}"));
	assert_int_equal(status_of(hear(fd, "{\"rows\": []}")), 200);
	/* Answers that lack their descriptor. */
	ask(fd, NULL, "GET /api/trace/one");
	await_ask("report");
	answer(json_pack("{s:b}", "ok", 1), -1);
	assert_int_equal(status_of(hear(fd, "detail")), 503);
	close(fd);
}

static void test_late_and_wrong(void **state)
{
	int fd = client();

	tell_trace("one", "done", -1);
	ask(fd, NULL, "GET /api/trace/one");
	await_ask("report");
	close(fd);
	/* A client that has disconnected, an unknown id, invalid messages. */
	tell(json_pack("{s:i, s:b}", "id", 77777, "ok", 1), file_of("x"));
	tell(json_pack("{s:s, s:b}", "id", "x", "ok", 1), file_of("x"));
	tell(json_pack("{s:s}", "event", "nothing"), file_of("x"));
	tell(json_pack("{s:s, s:s}", "event", "trace", "trace", "x"), file_of("x"));
	tell(json_pack("{}"), -1);
	answer(json_pack("{s:b}", "ok", 1), file_of("{}"));
	fd = client();
	ask(fd, NULL, "GET /api/health");
	assert_int_equal(status_of(hear(fd, "\"traces\":1")), 200);
	close(fd);
}

static void capture(int fd, const char *id)
{
	ask(fd, "{\"model_name\": \"m\", \"max_events\": 5, \"other\": [1]}",
	    "POST /api/trace/memory");
	await_ask("capture");
	assert_string_equal(json_string_value(json_object_get(asked, "model_name")), "m");
	assert_int_equal(json_integer_value(json_object_get(asked, "max_events")), 5);
	assert_null(json_object_get(asked, "other"));
	answer(json_pack("{s:b, s:{s:s, s:s, s:s, s:i}}", "ok", 1, "trace", "trace_id", id,
			 "model_name", "m", "state", "starting", "begun", 5),
	       -1);
}

static void test_capture(void **state)
{
	int fd = client(), other = client();
	struct pollfd p = { .fd = fd, .events = POLLIN };

	capture(fd, "one");
	tell_trace("one", "capturing", -1);
	/* One client waits for the end; others are served meanwhile. */
	ask(other, NULL, "GET /api/trace/list");
	assert_int_equal(status_of(hear(other, "capturing")), 200);
	assert_int_equal(poll(&p, 1, 50), 0);
	tell_trace("one", "done", file_of(REPORT));
	assert_int_equal(status_of(hear(fd, "\"layer_stats\":{\"a\":")), 200);
	/* Done without a report: the web process asks for it. */
	capture(fd, "two");
	tell_trace("two", "done", -1);
	await_ask("report");
	answer(json_pack("{s:b}", "ok", 1), file_of(REPORT));
	assert_int_equal(status_of(hear(fd, "\"peak_allocated_mb\":1.0")), 200);
	capture(fd, "three");
	tell(json_pack("{s:s, s:{s:s, s:s, s:s, s:i, s:s, s:i}}", "event", "trace", "trace",
		       "trace_id", "three", "model_name", "m", "state", "failed", "begun", 5,
		       "error", "it went away", "status", 404),
	     -1);
	assert_int_equal(status_of(hear(fd, "it went away")), 404);
	capture(fd, "four");
	tell(json_pack("{s:s, s:s}", "event", "gone", "trace_id", "four"), -1);
	assert_int_equal(status_of(hear(fd, "Trace four not found")), 404);
	ask(fd, "{\"model_name\": \"m\", \"wait\": false}", "POST /api/trace/memory");
	await_ask("capture");
	assert_null(json_object_get(asked, "wait"));
	answer(json_pack("{s:b, s:{s:s, s:s, s:s, s:i}}", "ok", 1, "trace", "trace_id", "five",
			 "model_name", "m", "state", "starting", "begun", 5),
	       -1);
	assert_int_equal(status_of(hear(fd, "\"state\":\"starting\"")), 200);
	close(fd);
	close(other);
}

static void test_files(void **state)
{
	int fd = client();
	char *text;

	tell_trace("one", "done", -1);
	ask(fd, NULL, "GET /api/trace/download/one_x.json");
	await_ask("open");
	answer(json_pack("{s:b, s:s}", "ok", 1, "type", "application/json"), file_of("0123456789"));
	text = hear(fd, "0123456789");
	assert_non_null(
		strstr(text, "Content-Disposition: attachment; filename=\"one_x.json\"\r\n"));
	assert_non_null(strstr(text, "Content-Type: application/json\r\n"));
	ask(fd, NULL, "GET /api/trace/download/one_x.json HTTP/1.1\r\nRange: bytes=2-4\r\nX:");
	await_ask("open");
	answer(json_pack("{s:b, s:s}", "ok", 1, "type", "application/json"), file_of("0123456789"));
	text = hear(fd, "\r\n\r\n234");
	assert_int_equal(status_of(text), 206);
	assert_non_null(strstr(text, "Content-Range: bytes 2-4/10\r\n"));
	/* Invalid names never reach the broker. */
	ask(fd, NULL, "GET /api/trace/download/..%%2f..%%2fetc%%2fpasswd");
	assert_int_equal(status_of(hear(fd, "detail")), 404);
	ask(fd, NULL, "GET /api/trace/download/.hidden");
	assert_int_equal(status_of(hear(fd, "detail")), 404);
	ask(fd, NULL, "GET /api/trace/one/page");
	await_ask("export");
	answer(json_pack("{s:b, s:s}", "ok", 1, "file", "one_page.html"), -1);
	await_ask("open");
	assert_string_equal(json_string_value(json_object_get(asked, "file")), "one_page.html");
	answer(json_pack("{s:b, s:s}", "ok", 1, "type", "text/html"), file_of("<p>"));
	assert_non_null(strstr(hear(fd, "<p>"), "sandbox allow-scripts"));
	close(fd);
}

static void tell_step(const char *trace, int step)
{
	tell(json_pack("{s:s, s:s, s:i, s:i, s:[]}", "event", "step", "trace_id", trace, "pid", 7,
		       "step", step, "devices"),
	     -1);
}

static void test_stream(void **state)
{
	int fd = client(), of_one = client();
	char *text;

	tell_trace("one", "capturing", -1);
	ask(of_one, NULL, "GET /api/health");
	hear(of_one, "\"traces\":1");
	ask(fd, NULL, "GET /api/stream");
	text = hear(fd, "\"one\"");
	assert_non_null(strstr(text, "event: hello\n"));
	ask(of_one, NULL, "GET /api/trace/one/stream");
	hear(of_one, "\"capturing\"");
	tell_trace("two", "starting", -1);
	hear(fd, "\"two\"");
	tell_step("two", 1);
	tell_step("one", 2);
	text = hear(fd, "\"step\":2");
	assert_non_null(strstr(text, "event: step\ndata: {\"trace_id\":\"two\",\"pid\":7,"));
	tell_trace("one", "done", file_of(REPORT));
	/* The answers may arrive together. */
	text = hear(of_one, "\r\n0\r\n\r\n");
	assert_non_null(strstr(text, "event: end\n"));
	assert_non_null(strstr(text, "event: step\ndata: {\"trace_id\":\"one\""));
	assert_null(strstr(text, "\"two\""));
	tell(json_pack("{s:s, s:s}", "event", "gone", "trace_id", "one"), -1);
	hear(fd, "event: gone\n");
	close(fd);
	close(of_one);
}

static int slow_client(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), least = 4096;
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = port };

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ask(fd, NULL, "GET /api/stream");
	hear(fd, "event: hello\n");
	return fd;
}

/* A slow reader misses samples and gets the later ones. */
static void test_slow_samples(void **state)
{
	int slow = slow_client(), quick = client();
	char until[32], text[4096];
	const json_int_t most = INT64_MAX;
	size_t got = 0, all = 0;
	ssize_t n;

	ask(quick, NULL, "GET /api/stream");
	tell(json_pack("{s:s, s:i, s:i, s:s}", "event", "process", "pid", 7, "started", 1, "name",
		       "python"),
	     -1);
	hear(quick, "event: process\n");
	for (int i = 0; i < 6000; i++) {
		json_t *devices = json_array();

		for (int k = 0; k < 16; k++)
			json_array_append_new(
				devices, json_pack("{s:s, s:I, s:I, s:I, s:I}", "device", "cuda:0",
						   "allocated", most, "reserved", most,
						   "peak_allocated", most, "used", most));
		tell(json_pack("{s:s, s:i, s:i, s:o}", "event", "sample", "pid", 7, "time",
			       100000 + i, "devices", devices),
		     -1);
		snprintf(until, sizeof(until), "\"time\":%d", 100000 + i);
		all += strlen(hear(quick, until));
	}
	tell(json_pack("{s:s, s:i, s:b}", "event", "process", "pid", 7, "gone", 1), -1);
	hear(quick, "\"gone\":true");
	text[0] = '\0';
	while (!strstr(text, "\"gone\":true") && (n = recv(slow, text, sizeof(text) - 1, 0)) > 0) {
		text[n] = '\0';
		got += (size_t)n;
	}
	assert_non_null(strstr(text, "\"gone\":true"));
	assert_true(got < all - all / 4);
	close(slow);
	close(quick);
}

/* A client that does not read delays no other client: it is disconnected, and no memory is kept for
 * it. */
static void test_slow_reader(void **state)
{
	int slow = slow_client(), quick;
	char filler[4000], until[32];
	size_t got = 0;
	ssize_t n;

	quick = client();
	ask(quick, NULL, "GET /api/stream");
	hear(quick, "event: hello\n");
	memset(filler, 'x', sizeof(filler) - 1);
	filler[sizeof(filler) - 1] = '\0';
	for (int i = 0; i < 2000; i++) {
		json_t *targets = json_pack("{s:s, s:[{s:s, s:s, s:s, s:[i]}]}", "event", "targets",
					    "targets", "name", "t", "kind", "pattern", "pattern",
					    filler, "pids", i);

		tell(targets, -1);
		snprintf(until, sizeof(until), "\"pids\":[%d]}]}", i);
		hear(quick, until);
	}
	while ((n = recv(slow, filler, sizeof(filler), 0)) > 0)
		got += (size_t)n;
	assert_true(got < 6000000);
	close(slow);
	close(quick);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_answers, begin, end),
		cmocka_unit_test_setup_teardown(test_late_and_wrong, begin, end),
		cmocka_unit_test_setup_teardown(test_capture, begin, end),
		cmocka_unit_test_setup_teardown(test_files, begin, end),
		cmocka_unit_test_setup_teardown(test_stream, begin, end),
		cmocka_unit_test_setup_teardown(test_slow_reader, begin, end),
		cmocka_unit_test_setup_teardown(test_slow_samples, begin, end),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
