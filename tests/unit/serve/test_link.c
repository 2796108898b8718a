/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The link between the processes of `serve`. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs the headers above */

#include "serve/server/link.h"

struct heard {
	int n, last, fds;
	char text[64]; /* content of the last descriptor */
};

static void on_message(void *ctx, json_t *msg, int fd)
{
	struct heard *h = ctx;

	h->n++;
	h->last = (int)json_integer_value(json_object_get(msg, "n"));
	if (fd < 0)
		return;
	h->fds++;
	memset(h->text, 0, sizeof(h->text));
	assert_true(pread(fd, h->text, sizeof(h->text) - 1, 0) >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static json_t *numbered(int n)
{
	return json_pack("{s:i}", "n", n);
}

static void pair(struct link *l[2])
{
	int fds[2];

	assert_int_equal(link__pair(fds), 0);
	for (int i = 0; i < 2; i++) {
		l[i] = link__new(fds[i]);
		assert_non_null(l[i]);
		assert_int_equal(link__fd(l[i]), fds[i]);
	}
}

static void test_says(void **state)
{
	struct link *l[2];
	struct heard h = { 0 };
	int fd = memfd_create("words", MFD_CLOEXEC);

	pair(l);
	assert_int_equal(write(fd, "words", 5), 5);
	assert_int_equal(link__send(l[0], numbered(7), fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed */
	assert_int_equal(link__pump(l[1], on_message, &h), 0);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.last, 7);
	assert_string_equal(h.text, "words");
	/* Messages pass in both directions. */
	assert_int_equal(link__send(l[1], numbered(8), -1), 0);
	assert_int_equal(link__pump(l[0], on_message, &h), 0);
	assert_int_equal(h.last, 8);
	assert_int_equal(h.fds, 1);
	link__free(l[0]);
	/* The peer disconnects. */
	assert_int_equal(link__pump(l[1], on_message, &h), -EPIPE);
	assert_int_equal(link__send(l[1], numbered(9), -1), -EPIPE);
	link__free(l[1]);
	link__free(NULL);
}

/* More than the kernel buffers: messages queue in order up to a limit, and sending never blocks. */
static void test_queue(void **state)
{
	struct link *l[2];
	struct heard h = { 0 };
	char big[3000];
	int n = 0, err;

	pair(l);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	do {
		err = link__send(l[0], json_pack("{s:i,s:s}", "n", n + 1, "big", big), -1);
		n += !err;
	} while (!err);
	assert_int_equal(err, -ENOBUFS);
	assert_true(n > LINK_QUEUE);
	assert_int_equal(link__events(l[0]), POLLIN | POLLOUT);
	assert_int_equal(link__offer(l[0], numbered(0)), -ENOBUFS);
	while (h.n < n) {
		int before = h.n;

		assert_int_equal(link__pump(l[1], on_message, &h), 0);
		assert_int_equal(link__pump(l[0], on_message, &h), 0);
		assert_int_equal(h.last, h.n);
		assert_true(h.n > before);
	}
	assert_int_equal(link__events(l[0]), POLLIN);
	assert_int_equal(link__offer(l[0], numbered(n + 1)), 0);
	assert_int_equal(link__pump(l[1], on_message, &h), 0);
	assert_int_equal(h.last, n + 1);
	link__free(l[0]);
	link__free(l[1]);
}

static void test_too_long(void **state)
{
	static char big[LINK_MESSAGE + 100];
	struct link *l[2];
	struct heard h = { 0 };
	int fd = memfd_create("words", MFD_CLOEXEC);

	pair(l);
	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(link__send(l[0], json_pack("{s:s}", "big", big), fd), -E2BIG);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	/* A message of the maximum length. */
	big[LINK_MESSAGE - 10] = '\0';
	assert_int_equal(link__send(l[0], json_pack("{s:s}", "big", big), -1), 0);
	assert_int_equal(link__pump(l[1], on_message, &h), 0);
	assert_int_equal(h.n, 1);
	/* A longer one from a peer that ignores the limit. */
	memset(big, ' ', sizeof(big));
	memcpy(big, "{}", 2);
	assert_true(send(link__fd(l[0]), big, LINK_MESSAGE + 50, 0) > 0);
	assert_int_equal(link__pump(l[1], on_message, &h), -EPROTO);
	link__free(l[0]);
	link__free(l[1]);
}

static void send_fds(int to, int n)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(16 * sizeof(int))];
	} control = { 0 };
	struct iovec io = { .iov_base = "{}", .iov_len = 2 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(&control.head) + (size_t)i * sizeof(int), &to, sizeof(int));
	assert_int_equal(sendmsg(to, &m, 0), 2);
}

static int next_fd(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* An invalid message ends the link and leaves no open descriptor. */
static void test_hostile(void **state)
{
	static const char *const texts[] = { "",
					     "[]",
					     "7",
					     "{",
					     "{\"a\":1,\"a\":2}",
					     "{} {}",
					     "\xff",
					     "{\"a\":\"\xff\"}",
					     "{\"n\":1e999}" };
	char deep[200] = "{\"a\":";
	struct heard h = { 0 };
	struct link *l[2];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		pair(l);
		assert_true(send(link__fd(l[0]), texts[i], strlen(texts[i]), 0) >= 0);
		assert_true(link__pump(l[1], on_message, &h) < 0);
		link__free(l[0]);
		link__free(l[1]);
	}
	memset(deep + 5, '[', 60);
	memset(deep + 65, ']', 60);
	memcpy(deep + 125, "}", 2);
	pair(l);
	assert_true(send(link__fd(l[0]), deep, strlen(deep), 0) > 0);
	assert_int_equal(link__pump(l[1], on_message, &h), -EPROTO);
	link__free(l[0]);
	link__free(l[1]);
	for (int n = 2; n <= 16; n += 7) {
		int before;

		pair(l);
		before = next_fd();
		send_fds(link__fd(l[0]), n);
		assert_int_equal(link__pump(l[1], on_message, &h), -EPROTO);
		assert_int_equal(next_fd(), before);
		link__free(l[0]);
		link__free(l[1]);
	}
	assert_int_equal(h.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_says),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
