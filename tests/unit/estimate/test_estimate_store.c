/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The store that stands in for the other ranks: its protocol byte by byte, values that other ranks
 * would set, timeouts, limits. */
#include "unit/cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "estimate/store/tcp_store.h"

enum {
	VALIDATE,
	SET,
	COMPARE_SET,
	GET,
	ADD,
	CHECK,
	WAIT,
	NUM_KEYS,
	DELETE,
	APPEND,
	MULTI_GET,
	MULTI_SET,
	CANCEL,
	PING,
	PUSH,
	POP,
	LEN,
	LIST,
	BARRIER
};

static char heard[1 << 16];
static size_t n_heard;
static char given_up[512];

static int on_send(void *ctx, void *connection, const void *bytes, size_t n)
{
	assert_non_null(connection);
	assert_true(n_heard + n <= sizeof(heard));
	memcpy(heard + n_heard, bytes, n);
	n_heard += n;
	return 0;
}

static void on_gave_up(void *ctx, const char *key)
{
	strncpy(given_up, key, sizeof(given_up) - 1);
}

static const struct tcp_store_opts opts = { .wait_limit_ms = 1000,
					    .send = on_send,
					    .gave_up = on_gave_up };

/* A request as a client makes it. */
struct request {
	char bytes[4096];
	size_t n;
};

static void put(struct request *r, const void *data, size_t n)
{
	assert_true(r->n + n <= sizeof(r->bytes));
	memcpy(r->bytes + r->n, data, n);
	r->n += n;
}

static void put_u64(struct request *r, uint64_t n)
{
	put(r, &n, sizeof(n));
}

static void put_text(struct request *r, const char *text)
{
	put_u64(r, strlen(text));
	put(r, text, strlen(text));
}

static void begin(struct request *r, uint8_t type)
{
	put(r, &type, 1);
}

static void opening(struct request *r)
{
	begin(r, VALIDATE);
	put(r, "\xce\xf7\x85\x3c", 4);
}

/* Adds a type and texts, each with its length. */
static void add(struct request *r, uint8_t type, const char *a, const char *b, const char *c)
{
	begin(r, type);
	if (a)
		put_text(r, a);
	if (b)
		put_text(r, b);
	if (c)
		put_text(r, c);
}

static void list(struct request *r, uint8_t type, const char *a, const char *b)
{
	begin(r, type);
	put_u64(r, 1 + (b != NULL));
	put_text(r, a);
	if (b)
		put_text(r, b);
}

static void expect(const void *bytes, size_t n)
{
	assert_int_equal(n_heard, n);
	assert_memory_equal(heard, bytes, n);
	n_heard = 0;
}

static void expect_u64(uint64_t n)
{
	expect(&n, sizeof(n));
}

static void expect_text(const char *text)
{
	struct request r = { .n = 0 };

	put_text(&r, text);
	expect(r.bytes, r.n);
}

static struct tcp_store *store;
static struct tcp_store_client *client;

static int open_it(void **state)
{
	struct request r = { .n = 0 };

	store = tcp_store__new(&opts);
	client = tcp_store__connect(store, heard);
	n_heard = 0;
	given_up[0] = '\0';
	opening(&r);
	return tcp_store__feed(store, client, r.bytes, r.n, 0);
}

static int close_it(void **state)
{
	tcp_store__free(store);
	return 0;
}

static void tell(struct request *r)
{
	assert_int_equal(tcp_store__feed(store, client, r->bytes, r->n, 0), 0);
	r->n = 0;
}

static void test_values(void **state)
{
	struct request r = { .n = 0 };

	add(&r, SET, "a", "one", NULL);
	add(&r, GET, "a", NULL, NULL);
	tell(&r);
	expect_text("one");
	add(&r, APPEND, "a", "!", NULL);
	add(&r, GET, "a", NULL, NULL);
	tell(&r);
	expect_text("one!");
	add(&r, COMPARE_SET, "a", "other", "new"); /* another value is stored */
	tell(&r);
	expect_text("one!");
	add(&r, COMPARE_SET, "a", "one!", "new");
	tell(&r);
	expect_text("new");
	add(&r, COMPARE_SET, "nobody", "x", "y"); /* missing key: returns the expected value */
	tell(&r);
	expect_text("x");
	add(&r, COMPARE_SET, "b", "", "first");
	tell(&r);
	expect_text("first");
	add(&r, ADD, "n", NULL, NULL);
	put_u64(&r, 5);
	tell(&r);
	expect_u64(5);
	add(&r, ADD, "n", NULL, NULL);
	put_u64(&r, (uint64_t)-7);
	tell(&r);
	expect_u64((uint64_t)-2);
	add(&r, GET, "n", NULL, NULL);
	tell(&r);
	expect_text("-2");
	begin(&r, NUM_KEYS);
	tell(&r);
	expect_u64(3);
	add(&r, DELETE, "n", NULL, NULL);
	tell(&r);
	expect_u64(1);
	add(&r, DELETE, "n", NULL, NULL);
	tell(&r);
	expect_u64(0);
	list(&r, CHECK, "a", "b");
	tell(&r);
	expect("\0", 1);
	list(&r, CHECK, "a", "n");
	tell(&r);
	expect("\1", 1);
}

static void test_others(void **state)
{
	struct request r = { .n = 0 };

	list(&r, WAIT, "default_pg/0//cuda//0", NULL);
	tell(&r);
	expect("\0", 1);
	add(&r, GET, "default_pg/0//cuda//0", NULL, NULL);
	tell(&r);
	assert_int_equal(n_heard, 8 + 128);
	n_heard = 0;
	list(&r, WAIT, "default_pg/0//2//cuda//3:4", "x/nccl_storekey_12");
	list(&r, WAIT, "store_based_barrier_key:1:last_worker", NULL);
	tell(&r);
	expect("\0\0", 2);
	add(&r, BARRIER, "b", NULL, NULL);
	put_u64(&r, 64);
	tell(&r);
	expect("\0", 1);
	/* Waiting for other keys gets no answer. */
	list(&r, WAIT, "0", NULL);
	tell(&r);
	list(&r, WAIT, "cuda//", NULL);
	tell(&r);
	list(&r, WAIT, "cuda//0/x", NULL);
	tell(&r);
	expect("", 0);
}

static void test_waits(void **state)
{
	struct tcp_store_client *other = tcp_store__connect(store, given_up);
	struct request r = { .n = 0 };

	list(&r, WAIT, "p", "q");
	tell(&r);
	assert_int_equal(tcp_store__tick(store, 400), 600);
	add(&r, SET, "q", "1", NULL); /* protocol before 2.2: all type numbers are one less */
	r.bytes[0]--;
	assert_int_equal(tcp_store__feed(store, other, r.bytes, r.n, 0), 0);
	r.n = 0;
	expect("", 0);
	add(&r, SET, "p", "1", NULL);
	r.bytes[0]--;
	assert_int_equal(tcp_store__feed(store, other, r.bytes, r.n, 0), 0);
	r.n = 0;
	expect("\0", 1);
	assert_int_equal(tcp_store__tick(store, 5000), -1);
	list(&r, WAIT, "for\033ever", NULL);
	tell(&r);
	begin(&r, CANCEL);
	tell(&r);
	expect("\1", 1);
	list(&r, WAIT, "for\033ever", NULL);
	tell(&r);
	assert_int_equal(tcp_store__tick(store, 999), 1);
	assert_int_equal(tcp_store__tick(store, 1000), -1);
	expect("\1", 1);
	assert_string_equal(given_up, "for\\x1bever");
	/* A client that disconnects stops waiting. */
	list(&r, WAIT, "z", NULL);
	assert_int_equal(tcp_store__feed(store, other, "\x05", 1, 0), 0);
	assert_int_equal(tcp_store__feed(store, other, r.bytes + 1, r.n - 1, 0), 0);
	tcp_store__disconnect(store, other);
	assert_int_equal(tcp_store__tick(store, 99999), -1);
}

static void test_queues(void **state)
{
	struct request r = { .n = 0 };

	list(&r, WAIT, "Q", NULL);
	tell(&r);
	add(&r, PUSH, "Q", "1", NULL);
	tell(&r);
	expect("\0", 1);
	add(&r, PUSH, "Q", "22", NULL);
	add(&r, LEN, "Q", NULL, NULL);
	tell(&r);
	expect_u64(2);
	add(&r, POP, "Q", NULL, NULL);
	tell(&r);
	expect("\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
	       "1",
	       17);
	add(&r, POP, "Q", NULL, NULL);
	tell(&r);
	expect("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
	       "22",
	       18);
	add(&r, POP, "Q", NULL, NULL);
	tell(&r);
	expect_u64(0);
	begin(&r, PING);
	put(&r, "nonc", 4);
	tell(&r);
	expect("nonc", 4);
}

/* Answers do not depend on how requests are divided. */
static void test_pieces(void **state)
{
	static char first[sizeof(heard)];
	struct request r = { .n = 0 };
	size_t n_first = 0;

	begin(&r, MULTI_SET);
	put_u64(&r, 2);
	put_text(&r, "a");
	put_text(&r, "1");
	put_text(&r, "b");
	put_text(&r, "");
	list(&r, MULTI_GET, "b", "a");
	list(&r, CHECK, "a", "c");
	begin(&r, LIST);
	for (size_t piece = r.n; piece; piece--) {
		n_heard = 0;
		for (size_t at = 0; at < r.n; at += piece)
			assert_int_equal(tcp_store__feed(store, client, r.bytes + at,
							 r.n - at < piece ? r.n - at : piece, 0),
					 0);
		if (piece == r.n)
			memcpy(first, heard, n_first = n_heard);
		assert_int_equal(n_heard, n_first);
		assert_memory_equal(heard, first, n_first);
	}
	assert_int_equal(n_first, 8 + 8 + 1 + 1 + 8 + 2 * (8 + 1));
	tcp_store__clear(store);
	r.n = n_heard = 0;
	begin(&r, NUM_KEYS);
	tell(&r);
	expect_u64(0);
}

static void refused(const struct request *r)
{
	struct tcp_store_client *c = tcp_store__connect(store, heard);
	struct request o = { .n = 0 };

	opening(&o);
	assert_int_equal(tcp_store__feed(store, c, o.bytes, o.n, 0), 0);
	assert_int_equal(tcp_store__feed(store, c, r->bytes, r->n, 0), -EPROTO);
	tcp_store__disconnect(store, c);
}

static void test_hostile(void **state)
{
	static char big[1 << 16];
	struct request r = { .n = 0 };
	int err = 0;

	begin(&r, 19);
	refused(&r);
	r.n = 0;
	begin(&r, VALIDATE);
	refused(&r);
	r.n = 0;
	begin(&r, GET);
	put_u64(&r, STORE_KEY_MAX + 1);
	refused(&r);
	r.n = 0;
	add(&r, SET, "k", NULL, NULL);
	put_u64(&r, UINT64_MAX);
	refused(&r);
	r.n = 0;
	begin(&r, WAIT);
	put_u64(&r, STORE_KEYS_MAX + 1);
	refused(&r);
	/* Keys may contain NULs and may be empty. */
	r.n = 0;
	begin(&r, SET);
	put_u64(&r, 3);
	put(&r, "a\0b", 3);
	put_text(&r, "v");
	add(&r, GET, "a", NULL, NULL);
	add(&r, SET, "", "e", NULL);
	add(&r, GET, "", NULL, NULL);
	n_heard = 0;
	tell(&r);
	expect("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
	       "e",
	       17);
	/* Stored data is limited. */
	for (unsigned i = 0; i < 5000 && !err; i++) {
		r.n = 0;
		add(&r, APPEND, "k", NULL, NULL);
		put_u64(&r, sizeof(big));
		err = tcp_store__feed(store, client, r.bytes, r.n, 0);
		if (!err)
			err = tcp_store__feed(store, client, big, sizeof(big), 0);
	}
	assert_int_equal(err, -ENOMEM);
}

/* Unfinished requests on many connections. */
static void test_buffers_have_a_bound(void **state)
{
	static char piece[1 << 20];
	struct tcp_store_client *c[16];
	struct request r = { .n = 0 };
	uint64_t key = 8184;
	size_t total = 0, n = 0;
	int err = 0;

	for (size_t at = 0; at < sizeof(piece); at += 8192)
		memcpy(piece + at, &key, sizeof(key));
	begin(&r, WAIT);
	put_u64(&r, STORE_KEYS_MAX);
	for (; n < 16 && !err; n++) {
		struct request o = { .n = 0 };

		c[n] = tcp_store__connect(store, heard);
		assert_non_null(c[n]);
		opening(&o);
		assert_int_equal(tcp_store__feed(store, c[n], o.bytes, o.n, 0), 0);
		err = tcp_store__feed(store, c[n], r.bytes, r.n, 0);
		for (unsigned i = 0; i < 30 && !err; i++) {
			err = tcp_store__feed(store, c[n], piece, sizeof(piece), 0);
			total += err ? 0 : sizeof(piece);
		}
	}
	assert_int_equal(err, -ENOMEM);
	assert_true(total <= STORE_BUFFERS_MAX);
	assert_true(total > STORE_BUFFERS_MAX / 4);
	/* Closed connections free their share. */
	while (n)
		tcp_store__disconnect(store, c[--n]);
	n_heard = 0;
	r.n = 0;
	add(&r, SET, "k", "v", NULL);
	add(&r, GET, "k", NULL, NULL);
	tell(&r);
	expect("\1\0\0\0\0\0\0\0v", 9);
}

static int ask_as(uid_t uid, uint16_t port)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct sockaddr_in at = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					  .sin_port = htons(port) };
		struct request r = { .n = 0 };
		char c[8];
		int fd;

		opening(&r);
		begin(&r, NUM_KEYS);
		if (uid && setresuid(uid, uid, uid))
			_exit(8);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
			_exit(9);
		/* The store may close the connection first. */
		_exit(send(fd, r.bytes, r.n, MSG_NOSIGNAL) == (ssize_t)r.n &&
		      recv(fd, c, sizeof(c), 0) == sizeof(c));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_other_users_are_refused(void **state)
{
	struct tcp_store_server *s;

	signal(SIGPIPE, SIG_IGN);
	s = tcp_store_server__start(NULL);
	assert_non_null(s);
	assert_int_equal(ask_as(0, tcp_store_server__port(s)), 1);
	if (!geteuid())
		assert_int_equal(ask_as(65534, tcp_store_server__port(s)), 0);
	assert_int_equal(ask_as(0, tcp_store_server__port(s)), 1);
	tcp_store_server__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_values, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_others, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_waits, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_queues, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_pieces, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_hostile, open_it, close_it),
		cmocka_unit_test_setup_teardown(test_buffers_have_a_bound, open_it, close_it),
		cmocka_unit_test(test_other_users_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
