/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: bytes on a connection to the web process, in a thread with the HTTP library and
 * all routes. The broker refuses or returns a document. Responses must be valid. The test skips
 * bodies by their length, so that data sent cannot look like a response.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/serve.h"
#include "serve/server/link.h"

#define RESPONSE_TIMEOUT 3 /* ms to wait for the next byte of a response */
#define ANSWERS (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct serve_args args = {
	.max_events = 1000000, .max_traces = 100, .max_captures = 4, .max_duration = 60000000000
};
static struct sockaddr_un at = { .sun_family = AF_UNIX };
static socklen_t at_len;
static struct link *to_web;
static int link_end, listening;

static void *serve(void *ctx)
{
	web__run(&args, link_end, &listening, 1);
	abort(); /* the server ended without a request to stop */
}

/* A document as a worker writes it. */
static int document(void)
{
	static const char text[] = "{\"memtrace\":{},\"devices\":[],\"rows\":[]}";
	int fd = memfd_create("document", MFD_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	return fd;
}

static void answer(void *ctx, json_t *msg, int fd)
{
	const char *what = json_string_value(json_object_get(msg, "do"));
	json_t *id = json_object_get(msg, "id");

	if (fd >= 0 || !what || !json_is_integer(id))
		abort();
	if (!strcmp(what, "capture") || !strcmp(what, "stop"))
		link__send(to_web,
			   json_pack("{s:O,s:b,s:i,s:s,s:s}", "id", id, "ok", 0, "status", 503,
				     "detail", "not here", "field", "pid"),
			   -1);
	else if (!strcmp(what, "export"))
		link__send(to_web,
			   json_pack("{s:O,s:b,s:s,s:i,s:s}", "id", id, "ok", 1, "file",
				     "trace_1_page.html", "size", 3, "type", "text/html"),
			   -1);
	else if (!strcmp(what, "delete"))
		link__send(to_web, json_pack("{s:O,s:b,s:i}", "id", id, "ok", 1, "remaining", 1),
			   -1);
	else
		link__send(to_web,
			   json_pack("{s:O,s:b,s:i,s:s}", "id", id, "ok", 1, "size", 3, "type",
				     "application/json"),
			   document());
}

static void tell(const char *text)
{
	json_t *msg = json_loads(text, 0, NULL);

	if (!msg || link__send(to_web, msg, -1))
		abort();
}

static void set_up(void)
{
	struct sockaddr_un none = { .sun_family = AF_UNIX };
	pthread_t t;
	int fds[2];

	if (to_web)
		return;
	log__set_level(LOG_ERROR);
	at_len = sizeof(at);
	listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* An abstract socket name from the kernel: no file is left. */
	if (listening < 0 || bind(listening, (struct sockaddr *)&none, sizeof(none.sun_family)) ||
	    listen(listening, 16) || getsockname(listening, (struct sockaddr *)&at, &at_len) ||
	    link__pair(fds) || !(to_web = link__new(fds[0])))
		abort();
	link_end = fds[1];
	if (pthread_create(&t, NULL, serve, NULL))
		abort();
	tell("{\"event\":\"hello\",\"version\":\"0\",\"start\":1.5,\"can_trace\":true,\"limits\":{}"
	     ",\"formats\":[],\"interval\":1.0}");
	tell("{\"event\":\"targets\",\"targets\":[{\"name\":\"job\",\"kind\":\"pid\",\"pids\":[42]}"
	     "]}");
	tell("{\"event\":\"process\",\"pid\":42,\"started\":1.5,\"target\":\"job\",\"name\":"
	     "\"python\"}");
	tell("{\"event\":\"sample\",\"pid\":42,\"time\":2.5,\"rss\":1,\"devices\":[{\"device\":"
	     "\"cuda:0\",\"allocated\":1}]}");
	tell("{\"event\":\"trace\",\"trace\":{\"trace_id\":\"trace_1\",\"model_name\":\"job\","
	     "\"process\":\"x\",\"state\":\"done\",\"begun\":1.5,\"file\":\"trace_1.mtr\"}}");
}

/* Checks the responses in order. A stream has no length, and its last part may be incomplete. */
static void check_answers(char *text, size_t len)
{
	static const int known[] = { 100, 200, 204, 206, 400, 401, 403, 404, 405, 409, 411,
				     413, 414, 415, 417, 422, 429, 431, 501, 503, 505 };
	bool first = true;

	while (len) {
		char *end = memmem(text, len, "\r\n\r\n", 4), *field;
		unsigned long body = 0;
		int status = 0;
		bool ok = false;

		if (!end)
			return;
		*end = '\0';
		if (sscanf(text, "HTTP/1.%*1[01] %d ", &status) != 1) {
			if (first)
				abort();
			return; /* after the library's own error response, which repeats headers */
		}
		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
			ok |= known[i] == status;
		if (!ok)
			abort();
		field = strcasestr(text, "\r\nContent-Length: ");
		if (field)
			body = strtoul(field + 18, NULL, 10);
		else if (status != 100 && status != 204)
			return;
		len -= (size_t)(end + 4 - text);
		text = end + 4;
		if (body > len)
			return; /* HEAD, or an incomplete response */
		if (status == 400 || status == 413 || status == 414 || status == 431)
			return;
		text += body;
		len -= body;
		first = false;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char answers[ANSWERS];
	bool head = memmem(data, size, "HEAD", 4);
	size_t sent = 0, got = 0;
	int fd;

	set_up();
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		abort();
	/* The fuzzer's timer interrupts connect() while the server is slow to accept. */
	while (connect(fd, (struct sockaddr *)&at, at_len)) {
		if (errno != EINTR) {
			perror("connect");
			abort();
		}
	}
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = fd, .events = POLLIN | (sent < size ? POLLOUT : 0) },
			{ .fd = link__fd(to_web), .events = link__events(to_web) }
		};
		ssize_t n;

		if (poll(fds, 2, RESPONSE_TIMEOUT) <= 0 || got == ANSWERS)
			break;
		if (fds[1].revents && link__pump(to_web, answer, NULL))
			abort();
		if (fds[0].revents & POLLOUT) {
			n = send(fd, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
			sent = n > 0 ? sent + (size_t)n : size;
		}
		if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
			n = recv(fd, answers + got, ANSWERS - got, MSG_DONTWAIT);
			if (n <= 0)
				break;
			got += (size_t)n;
		}
	}
	close(fd);
	if (!head) /* a response to HEAD has a length but no body */
		check_answers(answers, got);
	return 0;
}
