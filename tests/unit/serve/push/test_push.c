/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pushed documents byte by byte, and posts to failing servers. */
#include "unit/cmocka.h"

#include <errno.h>

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/push/push.h"

/* ---- documents ---- */

static struct state_process *a_process(void)
{
	struct state_process *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->pid = 4242;
	p->started = 1700000000.5;
	p->time = 1700000100.25;
	p->rank = 3;
	p->slot = 1;
	snprintf(p->target, sizeof(p->target), "train/a b");
	snprintf(p->container, sizeof(p->container), "c0ffee");
	p->has_rss = true;
	p->rss = 77;
	p->n_devices = 1;
	snprintf(p->devices[0].name, sizeof(p->devices[0].name), "cuda:0");
	p->devices[0].has = 1U << FIG_ALLOCATED | 1U << FIG_OOMS | 1U << FIG_TOTAL;
	p->devices[0].figures[FIG_ALLOCATED] = 5000000000;
	p->devices[0].figures[FIG_OOMS] = 2;
	p->devices[0].figures[FIG_TOTAL] = UINT64_MAX; /* a figure that OTLP cannot represent */
	return p;
}

/* A trace of a running capture with host memory. */
static struct state_trace *a_capture(const char *facts)
{
	struct state_trace *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->facts = json_loads(facts, 0, NULL);
	assert_non_null(t->facts);
	return t;
}

static void test_otlp(void **unused)
{
	static const char wanted[] =
		"{\"resourceMetrics\": [{\"resource\": {\"attributes\": ["
		"{\"key\": \"service.name\", \"value\": {\"stringValue\": \"train/a b\"}},"
		"{\"key\": \"service.instance.id\", \"value\": {\"stringValue\": "
		"\"node1/4242/1700000000\"}},"
		"{\"key\": \"host.name\", \"value\": {\"stringValue\": \"node1\"}},"
		"{\"key\": \"process.pid\", \"value\": {\"intValue\": \"4242\"}},"
		"{\"key\": \"process.creation.time\", \"value\": {\"stringValue\": "
		"\"2023-11-14T22:13:20Z\"}},"
		"{\"key\": \"container.id\", \"value\": {\"stringValue\": \"c0ffee\"}}]},"
		"\"scopeMetrics\": [{\"scope\": {\"name\": \"memtrace-bpf\", \"version\": "
		"\"" MEMTRACE_VERSION "\"}, \"metrics\": ["
		"{\"name\": \"memtrace.allocated\", \"unit\": \"By\", \"description\": \"Memory "
		"that tensors hold.\", \"gauge\": {\"dataPoints\": ["
		"{\"attributes\": [{\"key\": \"target\", \"value\": {\"stringValue\": \"train/a "
		"b\"}}, {\"key\": \"process\", \"value\":"
		"{\"stringValue\": \"1\"}}, {\"key\": \"rank\", \"value\": {\"stringValue\": "
		"\"3\"}}, {\"key\": \"device\", \"value\":"
		"{\"stringValue\": \"cuda:0\"}}], \"timeUnixNano\": \"1700000100250000000\", "
		"\"asInt\": \"5000000000\"}]}},"
		"{\"name\": \"memtrace.ooms\", \"unit\": \"{event}\", \"description\": "
		"\"Out-of-memory errors since the process started.\", \"sum\":"
		"{\"aggregationTemporality\": 2, \"isMonotonic\": true, \"dataPoints\": "
		"[{\"attributes\": [{\"key\": \"target\", \"value\":"
		"{\"stringValue\": \"train/a b\"}}, {\"key\": \"process\", \"value\": "
		"{\"stringValue\": \"1\"}}, {\"key\": \"rank\", \"value\":"
		"{\"stringValue\": \"3\"}}, {\"key\": \"device\", \"value\": {\"stringValue\": "
		"\"cuda:0\"}}], \"timeUnixNano\":"
		"\"1700000100250000000\", \"asInt\": \"2\", \"startTimeUnixNano\": "
		"\"1700000000500000000\"}]}},"
		"{\"name\": \"memtrace.resident\", \"unit\": \"By\", \"description\": \"Resident "
		"memory of the process.\", \"gauge\":"
		"{\"dataPoints\": [{\"attributes\": [{\"key\": \"target\", \"value\": "
		"{\"stringValue\": \"train/a b\"}}, {\"key\": \"process\","
		"\"value\": {\"stringValue\": \"1\"}}, {\"key\": \"rank\", \"value\": "
		"{\"stringValue\": \"3\"}}], \"timeUnixNano\":"
		"\"1700000100250000000\", \"asInt\": \"77\"}]}},"
		"{\"name\": \"memtrace.host\", \"unit\": \"By\", \"description\": \"Resident host "
		"memory (RSS) by part, of processes that are captured now.\", \"gauge\": "
		"{\"dataPoints\": [{\"attributes\": [{\"key\": \"target\", \"value\": "
		"{\"stringValue\": \"train/a b\"}}, {\"key\": \"process\", \"value\": "
		"{\"stringValue\": \"1\"}}, {\"key\": \"rank\", \"value\": {\"stringValue\": "
		"\"3\"}}, {\"key\": \"part\", \"value\": {\"stringValue\": \"malloc\"}}], "
		"\"timeUnixNano\": \"1700000100250000000\", \"asInt\": \"55\"}]}}]}]}]}";
	struct state *s = calloc(1, sizeof(*s));
	struct state_process *p = a_process();
	const uint64_t now = 1700000101000000000;
	json_t *doc, *want = json_loads(wanted, 0, NULL);

	assert_non_null(s);
	assert_non_null(want);
	assert_null(otlp__metrics(s, "node1", now));
	s->processes[s->n_processes++] = p;
	/* Only parts that add up, of this process, with possible sizes. */
	s->traces[s->n_traces++] = a_capture("{\"pid\": 4242, \"host_parts\": {\"malloc\": 55, "
					     "\"python\": -1, \"files\": \"x\", "
					     "\"pss\": 6, \"made up\": 7}}");
	s->traces[s->n_traces++] = a_capture("{\"pid\": 1, \"host_parts\": {\"python\": 1}}");
	doc = otlp__metrics(s, "node1", now);
	if (!json_equal(doc, want))
		fail_msg("%s", json_dumps(doc, JSON_INDENT(1)));
	json_decref(doc);
	json_decref(want);
	/* Invalid times must not give invalid data. */
	p->started = 1e300;
	assert_null(otlp__metrics(s, "node1", now));
	p->started = 1;
	p->time = 1e300;
	assert_null(otlp__metrics(s, "node1", now));
	p->time = 0;
	assert_null(otlp__metrics(s, "node1", now));
	for (size_t i = 0; i < s->n_traces; i++) {
		json_decref(s->traces[i]->facts);
		free(s->traces[i]);
	}
	free(p);
	free(s);
}

static void check_otlp_url(const char *base, const char *want)
{
	char *url = otlp__url(base, OTLP_METRICS);

	assert_string_equal(url, want);
	free(url);
}

/* The resource of an exported profile becomes that of the process; the rest stays. A file that is
 * cut or damaged is refused. */
static void test_otlp_profile(void **unused)
{
	static const char file[] = "\x0a\x09\x0a\x03old\x12\x02"
				   "ab"
				   "\x12\x01z";
	static const char rest[] = "\x12\x02"
				   "ab"
				   "\x12\x01z";
	const char *damaged[] = { "\x12\x01z",
				  "\x0a",
				  "\x0a\x09\x0a\x08old\x12\x02"
				  "ab",
				  "\x0a\xff\xff\xff\xff\xff\x01",
				  "\x0a\x02\x12\x02",
				  "\x0a\x02\x0a\xff" };
	struct profile_of of = { .process = a_process(), .host = "node" };
	char *body;
	size_t size;

	assert_int_equal(otlp__profile(file, sizeof(file) - 1, &of, &body, &size), 0);
	assert_null(memmem(body, size, "old", 3));
	assert_non_null(memmem(body, size, "\x0a\x0cservice.name\x12\x0b\x0a\x09train/a b", 27));
	assert_non_null(memmem(body, size, "\x0a\x0bprocess.pid\x12\x03\x18", 16));
	assert_memory_equal(body + size - (sizeof(rest) - 1), rest, sizeof(rest) - 1);
	/* the length of the first field: all but the last field and its own head of three bytes */
	assert_int_equal(body[0], 0x0a);
	assert_int_equal((unsigned char)body[1] - 128 + 128 * body[2], size - 3 - 3);
	free(body);
	for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++)
		assert_int_equal(otlp__profile(damaged[i], strlen(damaged[i]), &of, &body, &size),
				 -EBADMSG);
	for (size_t cut = 0; cut < 11; cut++)
		assert_int_equal(otlp__profile(file, cut, &of, &body, &size), -EBADMSG);
	free((void *)of.process);
}

static void test_addresses(void **unused)
{
	struct profile_of of = { .host = "node,1",
				 .from = 1700000000999999999,
				 .until = 1700000010000000000 };
	struct state_process *p = a_process();
	char *url;

	check_otlp_url("http://c:4318", "http://c:4318/v1/metrics");
	check_otlp_url("http://c:4318//", "http://c:4318/v1/metrics");
	check_otlp_url("https://c/otlp/v1/metrics", "https://c/otlp/v1/metrics");
	url = otlp__url("https://c:4318/", OTLP_PROFILES);
	assert_string_equal(url, "https://c:4318/v1development/profiles");
	free(url);
	of.process = p;
	assert_int_equal(profiles__url("http://p:4040/", &of, &url), 0);
	assert_string_equal(url,
			    "http://p:4040/"
			    "ingest?name=train_a_b%7Bprocess%3D1%2Crank%3D3%2Chostname%3Dnode_1%"
			    "2Ccontainer_id%3Dc0ffee%7D"
			    "&from=1700000000&until=1700000010&format=pprof&spyName=memtrace-bpf");
	free(url);
	/* Names are escaped in the URL. */
	snprintf(p->target, sizeof(p->target), "a&from=1{x=y}#%%20\n\xff");
	p->rank = -1;
	*p->container = '\0';
	of.host = NULL;
	assert_int_equal(profiles__url("http://p", &of, &url), 0);
	assert_string_equal(url, "http://p/"
				 "ingest?name=a_from_1_x_y___20__%7Bprocess%3D1%7D&from=1700000000&"
				 "until=1700000010&format=pprof"
				 "&spyName=memtrace-bpf");
	free(url);
	free(p);
}

static void test_form(void **unused)
{
	static const char profile[] = "\x1f\x8b\0--\r\n";
	char *body, *found, boundary[128];
	const char *type = strstr(pyroscope_type, "boundary=");
	size_t size;

	assert_non_null(type);
	snprintf(boundary, sizeof(boundary), "--%s", type + strlen("boundary="));
	assert_int_equal(profiles__body(profile, sizeof(profile), &body, &size), 0);
	assert_memory_equal(body, boundary, strlen(boundary));
	found = strstr(body, "\r\n\r\n");
	assert_non_null(found);
	assert_memory_equal(found + 4, profile, sizeof(profile));
	assert_memory_equal(found + 4 + sizeof(profile), "\r\n--", 4);
	assert_memory_equal(body + size - 4, "--\r\n", 4);
	free(body);
}

/* ---- sending ---- */

struct server {
	pid_t pid;
	int told; /* write end of a pipe: one byte per request, 'T' if the token was right */
	char url[64];
};

/* Reads a request with its body; false: no request. */
static bool take_request(int fd, char *told)
{
	char text[4096];
	size_t at = 0, want = 0;

	while (!want || at < want) {
		ssize_t n = read(fd, text + at, sizeof(text) - 1 - at);
		char *end, *length;

		if (n <= 0)
			return false;
		at += (size_t)n;
		text[at] = '\0';
		end = strstr(text, "\r\n\r\n");
		length = strstr(text, "Content-Length: ");
		if (end && length)
			want = (size_t)(end - text) + 4 + strtoul(length + 16, NULL, 10);
	}
	*told = strstr(text, "\r\nAuthorization: Bearer secret-secret-1\r\n") &&
				strstr(text, "\r\n\r\nbody")
			? 'T'
			: 't';
	return true;
}

/* Answers each request with the next of these, then repeats the last. */
static void serve(int fd, int told, const char *const *answers)
{
	for (;;) {
		int c = accept(fd, NULL, NULL);
		char is;

		if (c < 0)
			_exit(1);
		if (take_request(c, &is)) {
			if (write(told, &is, 1) != 1 || write(c, *answers, strlen(*answers)) < 0)
				_exit(1);
			if (answers[1])
				answers++;
		}
		close(c);
	}
}

static struct server begin_server(const char *const *answers)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pipes[2];
	struct server s;

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(pipe(pipes), 0);
	s.pid = fork();
	assert_true(s.pid >= 0);
	if (!s.pid)
		serve(fd, pipes[1], answers);
	close(fd);
	close(pipes[1]);
	s.told = pipes[0];
	snprintf(s.url, sizeof(s.url), "http://127.0.0.1:%d/x", ntohs(a.sin_port));
	return s;
}

/* Number of requests; all must have the right token and body. */
static size_t end_server(struct server *s)
{
	char text[256];
	ssize_t n;

	kill(s->pid, SIGKILL);
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
	n = read(s->told, text, sizeof(text));
	close(s->told);
	for (ssize_t i = 0; i < n; i++)
		assert_int_equal(text[i], 'T');
	return n > 0 ? (size_t)n : 0;
}

static uint64_t monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void run_out(struct sender *s)
{
	uint64_t last = monotonic() + 20000000000;

	while (sender__waiting(s) && monotonic() < last)
		sender__turn(s, NULL, 0, sender__sleep(s, monotonic()));
	assert_int_equal(sender__waiting(s), 0);
}

static struct sender *a_sender(void)
{
	const struct sender_opts o = {
		.token = "secret-secret-1", .timeout = 5, .backoff = 10, .attempts = 4
	};
	struct sender *s = sender__new(&o);

	assert_non_null(s);
	return s;
}

static struct push_counts posted(struct sender *s, const char *url)
{
	sender__post(s, PUSH_OTLP, url, "text/plain", strdup("body"), 4);
	run_out(s);
	return sender__counts(s, PUSH_OTLP);
}

#define ANSWER(status) "HTTP/1.1 " status "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

static void test_sent(void **unused)
{
	struct server at = begin_server((const char *const[]){
		ANSWER("503 Busy"), ANSWER("429 Slower"), ANSWER("200 OK"), NULL });
	struct sender *s = a_sender();
	struct push_counts c = posted(s, at.url);

	assert_int_equal(c.sent, 1);
	assert_int_equal(c.failed, 0);
	assert_int_equal(end_server(&at), 3);
	sender__free(s);
}

/* Rejected posts are not repeated, and posts without success are dropped in the end. */
static void test_given_up(void **unused)
{
	struct server at = begin_server((const char *const[]){
		ANSWER("400 Bad"), ANSWER("302 Found"), ANSWER("500 Oh"), NULL });
	struct sender *s = a_sender();
	struct push_counts c = posted(s, at.url);

	assert_int_equal(c.failed, 1);
	c = posted(s, at.url);
	assert_int_equal(c.failed, 2);
	c = posted(s, at.url);
	assert_int_equal(c.failed, 3);
	assert_int_equal(end_server(&at), 1 + 1 + 4);
	/* No server listens; unsupported protocols. */
	c = posted(s, at.url);
	assert_int_equal(c.failed, 4);
	c = posted(s, "file:///etc/passwd");
	assert_int_equal(c.failed, 5);
	assert_int_equal(c.sent, 0);
	sender__free(s);
}

static void test_bounded(void **unused)
{
	struct sender *s = a_sender();
	struct push_counts c;

	for (int i = 0; i < 100; i++)
		sender__post(s, PUSH_PYROSCOPE, "http://127.0.0.1:9/", "text/plain",
			     calloc(1, 1 << 20), 1 << 20);
	c = sender__counts(s, PUSH_PYROSCOPE);
	assert_int_equal(c.dropped, 100 - 64);
	assert_int_equal(sender__waiting(s), 64);
	sender__post(s, PUSH_PYROSCOPE, "http://127.0.0.1:9/", "text/plain", malloc(1), 63 << 20);
	assert_int_equal(sender__waiting(s), 2);
	sender__free(s);
}

static int begin(void **unused)
{
	log__set_level(LOG_ERROR);
	signal(SIGPIPE, SIG_IGN);
	unsetenv("http_proxy");
	return curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int end(void **unused)
{
	curl_global_cleanup();
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_otlp),	     cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_otlp_profile), cmocka_unit_test(test_form),
		cmocka_unit_test(test_sent),	     cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
