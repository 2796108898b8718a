/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A capture's control socket: clients get answers, and bad clients block nothing. */
#include "unit/cmocka.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "capture/control.h"

static char folder[64];

static int make(void **state)
{
	strcpy(folder, "/tmp/memtrace-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int drop(void **state)
{
	return rmdir(folder); /* rmdir fails if a socket is left */
}

struct seen {
	char word[64], argument[CONTROL_REQUEST];
	int n;
};

static int handle(void *ctx, const char *word, const char *argument, struct json *j)
{
	struct seen *s = ctx;

	s->n++;
	snprintf(s->word, sizeof(s->word), "%s", word);
	snprintf(s->argument, sizeof(s->argument), "%s", argument);
	if (!strcmp(word, "mark")) {
		json__string(j, "mark", argument);
		return 0;
	}
	if (!strcmp(word, "stop")) {
		json__string(j, "error", "nothing is being written");
		return -EALREADY;
	}
	if (!strcmp(word, "much")) {
		for (int i = 0; i < 2000; i++)
			json__string(
				j, "more",
				"................................................................");
		return 0;
	}
	return -ENOTSUP;
}

/* A client in a thread. */
struct asking {
	const struct control_place *place;
	const char *request;
	char *answer;
	int err;
	bool done;
};

static void *ask(void *ctx)
{
	struct asking *a = ctx;

	a->err = control__ask(folder, a->place, a->request, &a->answer);
	__atomic_store_n(&a->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static char *answer_to(struct control *c, const char *request, int want)
{
	const struct control_place p = { 4242, getpid() };
	struct asking a = { .place = &p, .request = request };
	struct pollfd fd = { .fd = control__fd(c), .events = POLLIN };
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, ask, &a), 0);
	while (!__atomic_load_n(&a.done, __ATOMIC_ACQUIRE)) {
		if (poll(&fd, 1, 20) > 0)
			control__pump(c);
	}
	pthread_join(t, NULL);
	assert_int_equal(a.err, want);
	return a.answer;
}

static void check(struct control *c, const char *request, const char *want)
{
	char *got = answer_to(c, request, 0);

	got[strcspn(got, "\n")] = '\0';
	assert_string_equal(got, want);
	free(got);
}

static void test_words(void **state)
{
	struct seen seen = { .n = 0 };
	struct control *c;
	char path[128], *long_one = malloc(CONTROL_REQUEST + 10);
	struct stat st;

	assert_int_equal(control__open(4242, folder, handle, &seen, &c), 0);
	snprintf(path, sizeof(path), "%s/4242.%d.sock", folder, (int)getpid());
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	check(c, "mark epoch 3", "{\"mark\":\"epoch 3\",\"ok\":true}");
	assert_string_equal(seen.word, "mark");
	check(c, "mark", "{\"mark\":\"\",\"ok\":true}");
	check(c, "mark caf\xc3\xa9\n", "{\"mark\":\"caf\xc3\xa9\",\"ok\":true}");
	check(c, "stop", "{\"error\":\"nothing is being written\",\"ok\":false}");
	check(c, "dance",
	      "{\"error\":\"the capture does not know this action; it may be of another version of "
	      "memtrace-bpf\",\"ok\":false}");
	seen.n = 0;
	check(c, "mark \x1b[2J", "{\"error\":\"the request is not text\",\"ok\":false}");
	check(c, "mark \xff", "{\"error\":\"the request is not text\",\"ok\":false}");
	check(c, " ", "{\"error\":\"the request is not text\",\"ok\":false}");
	memset(long_one, 'a', CONTROL_REQUEST + 5);
	long_one[CONTROL_REQUEST + 5] = '\0';
	check(c, long_one, "{\"error\":\"the request is too long\",\"ok\":false}");
	assert_int_equal(seen.n, 0);
	answer_to(c, "much", -ECONNRESET); /* longer than an answer may be */
	check(c, "mark on", "{\"mark\":\"on\",\"ok\":true}");
	control__close(c);
	assert_int_equal(stat(path, &st), -1);
	free(long_one);
}

static int connect_plainly(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/4242.%d.sock", folder, (int)getpid());
	return connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -1 : fd;
}

/* Clients that stay silent, send endlessly, read no answer, or disconnect in the middle. */
static void test_bad_clients(void **state)
{
	struct seen seen = { .n = 0 };
	struct control *c;
	int fds[40];

	assert_int_equal(control__open(4242, folder, handle, &seen, &c), 0);
	for (int i = 0; i < 40; i++) {
		fds[i] = connect_plainly();
		control__pump(c);
		assert_true(fds[i] >= 0);
	}
	check(c, "mark 1", "{\"mark\":\"1\",\"ok\":true}");
	for (int i = 35; i < 40; i++) {
		while (send(fds[i], "mark and never look at what is answered", 39, MSG_NOSIGNAL) >
		       0)
			;
		control__pump(c);
	}
	for (int i = 0; i < 100; i++)
		control__pump(c);
	check(c, "mark 2", "{\"mark\":\"2\",\"ok\":true}");
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	check(c, "mark 3", "{\"mark\":\"3\",\"ok\":true}");
	control__close(c);
}

static void test_find(void **state)
{
	struct seen seen = { .n = 0 };
	struct control_place *p;
	struct control *a, *b;
	int status;
	pid_t pid;

	assert_int_equal(control__open(4242, folder, handle, &seen, &a), 0);
	assert_int_equal(control__open(17, folder, handle, &seen, &b), 0);
	pid = fork();
	if (!pid) /* killed: its socket stays */
		_exit(control__open(18, folder, handle, &seen, &a) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(control__find(folder, 0, &p), 2);
	assert_int_equal(p[0].target, 17);
	assert_int_equal(p[1].target, 4242);
	assert_int_equal(p[1].capturer, getpid());
	free(p);
	assert_int_equal(control__find(folder, 4242, &p), 1);
	free(p);
	assert_int_equal(control__find(folder, getpid(), &p), 2);
	free(p);
	assert_int_equal(control__find(folder, 99, &p), 0);
	free(p);
	control__close(a);
	control__close(b);
	assert_int_equal(control__find(folder, 0, &p), 0);
	free(p);
	assert_int_equal(control__find("/nonexistent", 0, &p), -ENOENT);
}

/* The next capture removes the sockets of killed captures, and nothing else. */
static void test_left_behind(void **state)
{
	struct seen seen = { .n = 0 };
	struct control *a, *b;
	char path[128];
	int status;
	pid_t pid;

	assert_int_equal(control__open(4242, folder, handle, &seen, &a), 0);
	pid = fork();
	if (!pid)
		_exit(control__open(18, folder, handle, &seen, &b) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	snprintf(path, sizeof(path), "%s/18.%d.sock", folder, (int)pid);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(control__open(17, folder, handle, &seen, &b), 0);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/4242.%d.sock", folder, (int)getpid());
	assert_int_equal(access(path, F_OK), 0);
	control__close(a);
	control__close(b);
}

/* Other users can neither create sockets in the folder nor reach ours. */
static void test_folder(void **state)
{
	struct seen seen = { .n = 0 };
	struct control *c;
	char link[80];

	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(control__open(1, folder, handle, &seen, &c), -EPERM);
	assert_int_equal(chmod(folder, 0700), 0);
	snprintf(link, sizeof(link), "%s-link", folder);
	assert_int_equal(symlink(folder, link), 0);
	assert_int_equal(control__open(1, link, handle, &seen, &c), -EPERM);
	unlink(link);
}

#define MESSAGES 2000

/* Messages of 1000 bytes that begin with their numbers. */
static const char *message_after(void *ctx, uid_t uid, uint64_t *at)
{
	static char text[1001];
	const uint64_t *n = ctx;

	assert_int_equal(uid, geteuid());
	if (*at == *n)
		return NULL;
	memset(text, '.', 1000);
	snprintf(text, sizeof(text), "%lu", (unsigned long)++*at);
	text[strlen(text)] = '.';
	return text;
}

#define ALICE 4100
#define BOB 4200

static size_t n_users; /* the first ones of the feed's users */

static size_t some_users(void *ctx, const uid_t **ret)
{
	static const uid_t users[] = { ALICE, BOB };

	(void)ctx;
	*ret = users;
	return n_users;
}

static int connect_to_feed(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/4242.%d.sock", folder, (int)getpid());
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

/* Reads all waiting messages, whose numbers follow each other. last: number of the last message so
 * far; 0 before the first. Returns that of the last message now. */
static unsigned long read_feed(int fd, unsigned long last)
{
	char text[1100], hello[80];
	ssize_t len;

	while ((len = recv(fd, text, sizeof(text) - 1, 0)) > 0) {
		text[len] = '\0';
		if (*text == '{') {
			snprintf(hello, sizeof(hello),
				 "{\"kind\":\"hello\",\"capturer\":%d,\"you\":%d,", (int)getpid(),
				 (int)getpid());
			assert_int_equal(strncmp(text, hello, strlen(hello)), 0);
			assert_int_equal(last, 0);
			continue;
		}
		assert_int_equal(strtoul(text, NULL, 10), ++last);
	}
	return last;
}

/* A reader gets all messages in their order, also if it reads nothing for a while, what it sends
 * changes nothing, and it gets what is there when the recorder ends. */
static void test_feed(void **state)
{
	uint64_t n = 2;
	const struct control_feed feed = { some_users, message_after, &n };
	struct control *c;
	struct stat st;
	char path[128];
	unsigned long last;
	int fd, late, more[9];

	assert_int_equal(control__open_feed(4242, folder, &feed, &c), 0);
	snprintf(path, sizeof(path), "%s/4242.%d.sock", folder, (int)getpid());
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	fd = connect_to_feed();
	control__feed(c);
	last = read_feed(fd, 0);
	assert_int_equal(last, 2);
	assert_int_equal(send(fd, "stop", 4, MSG_NOSIGNAL), -1); /* nobody reads it */
	n = MESSAGES;
	control__feed(c); /* more than the socket takes */
	last = read_feed(fd, last);
	assert_in_range(last, 3, MESSAGES - 1);
	while (last < MESSAGES) {
		unsigned long before = last;

		control__feed(c);
		last = read_feed(fd, last);
		assert_true(last > before);
	}
	n++;
	late = connect_to_feed();
	control__feed(c);
	assert_in_range(read_feed(late, 0), 3, MESSAGES);
	control__feed(c);
	/* The ninth reader of a user takes the place of the oldest, and no other's. */
	for (int i = 0; i < 7; i++) {
		more[i] = connect_to_feed();
		control__feed(c);
	}
	control__close(c);
	assert_int_equal(read_feed(fd, last), MESSAGES + 1);
	for (int i = 0; i < 7; i++) {
		assert_true(read_feed(more[i], 0) > 2);
		close(more[i]);
	}
	close(late);
	close(fd);
	assert_int_equal(stat(path, &st), -1);
}

/* Only the users of processes can open the socket. */
static void test_users_of_a_feed(void **state)
{
	uint64_t n = 2;
	const struct control_feed feed = { some_users, message_after, &n };
	struct control *c;
	struct stat st;
	char path[128], acl[256];

	n_users = 0;
	assert_int_equal(control__open_feed(4242, folder, &feed, &c), 0);
	snprintf(path, sizeof(path), "%s/4242.%d.sock", folder, (int)getpid());
	for (n_users = 0; n_users <= 2; n_users++) {
		control__feed(c);
		assert_int_equal(stat(path, &st), 0);
		if (n_users && (st.st_mode & 0777) == 0666)
			skip(); /* the file system has no access control lists */
		assert_int_equal(st.st_mode & 0777, n_users ? 0660 : 0600);
		if (n_users)
			assert_int_equal(getxattr(path, "system.posix_acl_access", acl,
						  sizeof(acl)),
					 4 + 8 * (4 + n_users));
	}
	n_users = 0;
	control__close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_words, make, drop),
		cmocka_unit_test_setup_teardown(test_bad_clients, make, drop),
		cmocka_unit_test_setup_teardown(test_find, make, drop),
		cmocka_unit_test_setup_teardown(test_left_behind, make, drop),
		cmocka_unit_test_setup_teardown(test_folder, make, drop),
		cmocka_unit_test_setup_teardown(test_feed, make, drop),
		cmocka_unit_test_setup_teardown(test_users_of_a_feed, make, drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
