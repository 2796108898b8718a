/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Authorization and rates: host names, origins, tokens, cookies, rates, and a peer table that
 * hostile addresses cannot reset. */
#include "unit/cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/web/auth.h"
#include "serve/web/route.h"
#include "terminal.h"

#define SECOND UINT64_C(1000000000)
#define TOKEN "0123456789abcdef0123456789abcdef"
#define START (1000 * SECOND)

static struct auth_peer inet(const char *text)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = 1234 };

	assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
	return auth__peer((struct sockaddr *)&in, -1);
}

static struct auth_peer inet6(const char *text)
{
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = 1234 };

	assert_int_equal(inet_pton(AF_INET6, text, &in.sin6_addr), 1);
	return auth__peer((struct sockaddr *)&in, -1);
}

static struct auth *make(struct auth_opts o)
{
	struct auth *g = auth__new(&o);

	assert_non_null(g);
	return g;
}

static struct guard_request get(uint64_t now)
{
	return (struct guard_request){
		.peer = inet("127.0.0.1"), .now = now, .method = "GET", .host = "127.0.0.1:8000"
	};
}

static int verdict(struct auth *g, struct guard_request r, struct guard_verdict *v)
{
	auth__check(g, &r, v);
	if (v->status) {
		assert_true(*v->why && terminal__harmless(v->why, strlen(v->why)));
		assert_false(v->costly);
	}
	assert_int_equal(!v->retry_after, v->status != 429);
	return v->status;
}

static int status(struct auth *g, struct guard_request r)
{
	struct guard_verdict v;

	verdict(g, r, &v);
	auth__done(g, &r.peer, &v);
	return v.status;
}

/* ---- Host ---- */

static void test_host(void **state)
{
	static const struct {
		const char *host;
		int status;
	} cases[] = {
		{ "127.0.0.1:8000", 0 },
		{ "127.0.0.1", 0 },
		{ "localhost:8000", 0 },
		{ "LOCALHOST", 0 },
		{ "localhost.:8000", 0 },
		{ "localhost:9999", 0 }, /* through a tunnel */
		{ "10.1.2.3:8000", 0 },
		{ "[::1]:8000", 0 },
		{ "[2001:db8::1]", 0 },
		{ "gpu.example", 0 },
		{ "GPU.Example:443", 0 },
		{ "evil.example:8000", 403 },
		{ "gpu.example.evil.example", 403 },
		{ "localhost.evil.example", 403 },
		{ "127.0.0.1.evil.example", 403 },
		{ "0.0.0.0:8000", 403 },
		{ "[::]:8000", 403 },
		{ "127.1", 403 },
		{ "2130706433", 403 },
		{ "0x7f.0.0.1", 403 },
		{ "", 400 },
		{ ":8000", 400 },
		{ "localhost:8000:8000", 400 },
		{ "localhost:80a", 400 },
		{ "localhost:8000000", 400 },
		{ "localhost\r\nX: y", 400 },
		{ "user@localhost", 400 },
		{ "localhost/", 400 },
		{ "localhost ", 400 },
		{ "[::1", 400 },
		{ "[::1]x", 400 },
		{ "[localhost]", 400 },
		{ "[1:2]", 403 },
		{ "\xff", 400 },
		{ NULL, 400 },
	};
	static const char *const hosts[] = { "gpu.example", NULL };
	struct auth *g = make((struct auth_opts){ .hosts = hosts, .local = true, .port = 8000 });
	struct guard_request r;
	char *much;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		r = get(START);
		r.host = cases[i].host;
		if (status(g, r) != cases[i].status)
			fail_msg("%s", cases[i].host);
	}
	much = malloc(100000);
	memset(much, 'a', 99999);
	much[99999] = '\0';
	r = get(START);
	r.host = much;
	assert_int_equal(status(g, r), 400);
	free(much);
	/* Over a Unix socket there are no web pages, and any Host is accepted. */
	r = get(START);
	r.peer.is_unix = true;
	r.host = "whatever";
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

static void test_own_name(void **state)
{
	struct auth *local = make((struct auth_opts){ .local = true }),
		    *wide = make((struct auth_opts){ .local = false, .token = TOKEN });
	struct guard_request r = get(START);
	char name[128] = "";

	assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
	r.host = name;
	r.authorization = "Bearer " TOKEN;
	assert_int_equal(status(wide, r), 0);
	assert_int_equal(status(local, r), strcmp(name, "localhost") ? 403 : 0);
	auth__free(local);
	auth__free(wide);
}

/* ---- Origin, Sec-Fetch-Site ---- */

static void test_origin(void **state)
{
	static const struct {
		const char *origin;
		int plain, tls;
	} cases[] = {
		{ NULL, 0, 0 },
		{ "http://127.0.0.1:8000", 0, 403 },
		{ "https://127.0.0.1:8000", 0, 0 },
		{ "HTTPS://127.0.0.1:8000", 0, 0 },
		{ "http://127.0.0.1:8001", 403, 403 },
		{ "http://127.0.0.1", 403, 403 },
		{ "http://localhost:8000", 403, 403 },
		{ "http://evil.example", 403, 403 },
		{ "http://127.0.0.1:8000.evil.example", 403, 403 },
		{ "http://127.0.0.1:8000/", 403, 403 },
		{ "null", 403, 403 },
		{ "", 403, 403 },
		{ "file://", 403, 403 },
		{ "//127.0.0.1:8000", 403, 403 },
	};
	static const char *const methods[] = { "GET", "POST", "DELETE", "OPTIONS" };
	struct auth *plain = make((struct auth_opts){ .local = true }),
		    *tls = make((struct auth_opts){ .local = true, .tls = true });

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t k = 0; k < 4; k++) {
			struct guard_request r = get(START);

			r.method = methods[k];
			r.flags = k == 1 || k == 2 ? ROUTE_CHANGES : 0;
			r.origin = cases[i].origin;
			if (status(plain, r) != cases[i].plain || status(tls, r) != cases[i].tls)
				fail_msg("%s %s", methods[k], cases[i].origin);
		}
	}
	auth__free(plain);
	auth__free(tls);
}

static void test_fetch_site(void **state)
{
	static const struct {
		const char *site, *mode, *dest, *method;
		unsigned flags;
		int status;
	} cases[] = {
		{ "same-origin", "cors", "empty", "POST", ROUTE_CHANGES, 0 },
		{ "none", "navigate", "document", "GET", 0, 0 },
		{ "cross-site", "navigate", "document", "GET", 0, 0 }, /* a link to the dashboard */
		{ "cross-site", "navigate", "iframe", "GET", 0, 403 },
		{ "cross-site", "navigate", "document", "GET", ROUTE_COSTLY,
		  403 }, /* a link that starts work */
		{ "cross-site", "navigate", "document", "POST", ROUTE_CHANGES, 403 },
		{ "cross-site", "no-cors", "image", "GET", 0, 403 },
		{ "same-site", "no-cors", "script", "GET", 0,
		  403 }, /* another port is another origin */
		{ "cross-site", NULL, NULL, "GET", 0, 403 },
		{ "other", "cors", "empty", "GET", 0, 403 },
		{ "", "cors", "empty", "GET", 0, 403 },
	};
	struct auth *g = make((struct auth_opts){ .local = true });

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct guard_request r = get(START);

		r.fetch_site = cases[i].site;
		r.fetch_mode = cases[i].mode;
		r.fetch_dest = cases[i].dest;
		r.method = cases[i].method;
		r.flags = cases[i].flags;
		if (status(g, r) != cases[i].status)
			fail_msg("case %zu", i);
	}
	auth__free(g);
}

/* ---- the token ---- */

static void test_token(void **state)
{
	static const struct {
		const char *authorization;
		int status;
	} cases[] = {
		{ "Bearer " TOKEN, 0 },	      { "bearer   " TOKEN, 0 },
		{ "Bearer " TOKEN "x", 401 }, { "Bearer 0123456789abcdef0123456789abcde", 401 },
		{ "Bearer ", 401 },	      { "Bearer", 401 },
		{ "Basic " TOKEN, 401 },      { TOKEN, 401 },
		{ "Bearer " TOKEN " ", 401 }, { "", 401 },
	};
	struct auth *g = make((struct auth_opts){ .token = TOKEN, .local = true });
	struct guard_request r = get(START);
	uint64_t now = START;

	assert_true(auth__wants_token(g));
	assert_int_equal(status(g, r), 401);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		r = get(now += 10 * SECOND);
		r.authorization = cases[i].authorization;
		if (status(g, r) != cases[i].status)
			fail_msg("%s", cases[i].authorization);
	}
	r = get(now);
	r.flags = ROUTE_OPEN;
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

static void test_token_lengths(void **state)
{
	char text[SECRET_TOKEN_MAX + 2], header[SECRET_TOKEN_MAX + 16];
	struct auth_opts o = { .token = text, .local = true };
	struct guard_request r = get(START);
	struct auth *g;

	memset(text, 'x', sizeof(text));
	text[SECRET_TOKEN_MIN - 1] = '\0';
	assert_null(auth__new(&o));
	assert_int_equal(errno, EINVAL);
	text[SECRET_TOKEN_MIN - 1] = 'x';
	text[SECRET_TOKEN_MAX + 1] = '\0';
	assert_null(auth__new(&o));
	text[SECRET_TOKEN_MAX] = '\0';
	g = make(o);
	snprintf(header, sizeof(header), "Bearer %s", text);
	r.authorization = header;
	assert_int_equal(status(g, r), 0);
	header[strlen(header) - 1] = '\0';
	assert_int_equal(status(g, r), 401);
	strcat(header, "xx");
	assert_int_equal(status(g, r), 401);
	auth__free(g);
}

/* Wrong tokens are counted. After too many, even the right one is ignored; sessions and other peers
 * are not affected. */
static void test_guessing(void **state)
{
	struct auth *g = make(
		(struct auth_opts){ .token = TOKEN, .local = true, .per_minute = 60000 });
	struct guard_request r = get(START), in = get(START), other = get(START);
	struct guard_verdict v;
	char cookie[200];

	r.peer = in.peer = inet("10.0.0.1");
	assert_int_equal(auth__log_in(g, &in, TOKEN, cookie, &v), 0);
	cookie[strcspn(cookie, ";")] = '\0';
	in.cookie = cookie;
	r.authorization = "Bearer wrong";
	for (int i = 0; i < 10; i++)
		assert_int_equal(status(g, r), 401);
	assert_int_equal(status(g, r), 429);
	r.authorization = "Bearer " TOKEN;
	assert_int_equal(verdict(g, r, &v), 429);
	assert_true(v.retry_after >= 5 && v.retry_after <= 7);
	assert_int_equal(auth__log_in(g, &r, TOKEN, cookie + 100, &v), 429);
	assert_int_equal(status(g, in), 0);
	other.peer = inet("10.0.0.2");
	other.authorization = r.authorization;
	assert_int_equal(status(g, other), 0);
	r.authorization = NULL; /* a missing token is no guess */
	assert_int_equal(status(g, r), 401);
	r.authorization = "Bearer " TOKEN;
	r.now += 7 * SECOND;
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

/* Any local user has all loopback addresses: one user's wrong tokens must not lock out others. */
static void test_loopback_is_one_peer(void **state)
{
	static const char *const addresses[] = { "127.0.0.2", "127.255.255.254", "127.0.0.1" };
	struct auth *g = make(
		(struct auth_opts){ .token = TOKEN, .local = true, .per_minute = 60000 });
	struct guard_request r = get(START);
	struct auth_peer six = inet6("::1"), far = inet("128.0.0.1");
	struct guard_verdict v;
	char cookie[200];
	int n = 0;

	assert_memory_equal(six.key, r.peer.key, sizeof(six.key));
	assert_memory_not_equal(far.key, r.peer.key, sizeof(far.key));
	r.authorization = "Bearer wrong";
	for (int i = 0; i < 100; i++) {
		r.peer = inet(addresses[i % 3]);
		n += status(g, r) == 401;
	}
	assert_int_equal(n, 10);
	/* The right token is accepted once a second among any number of wrong ones. */
	for (int i = 0; i < 3; i++) {
		r.authorization = "Bearer " TOKEN;
		assert_int_equal(status(g, r), 0);
		assert_int_equal(status(g, r), 429);
		assert_int_equal(auth__log_in(g, &r, TOKEN, cookie, &v), 429);
		r.authorization = "Bearer wrong";
		r.now += SECOND;
		assert_int_equal(status(g, r), 429);
	}
	assert_int_equal(auth__log_in(g, &r, TOKEN, cookie, &v), 0);
	auth__free(g);
}

/* ---- sessions ---- */

static void test_session(void **state)
{
	struct auth *g = make((struct auth_opts){ .token = TOKEN, .local = true, .port = 8000 });
	struct guard_request r = get(START);
	struct guard_verdict v;
	char cookie[200], header[600], gone[200], second[200];

	assert_int_equal(auth__log_in(g, &r, "no such token, surely", cookie, &v), 401);
	assert_string_equal(cookie, "");
	assert_int_equal(auth__log_in(g, &r, NULL, cookie, &v), 401);
	assert_int_equal(auth__log_in(g, &r, TOKEN, cookie, &v), 0);
	assert_memory_equal(cookie, "memtrace_session_8000=", 22);
	assert_string_equal(cookie + 22 + 32, "; Path=/; HttpOnly; SameSite=Strict");
	assert_int_equal(auth__log_in(g, &r, TOKEN, second, &v), 0);
	assert_string_not_equal(cookie, second);
	cookie[22 + 32] = '\0';
	snprintf(header, sizeof(header),
		 "a=b; memtrace_session_8000=short; memtrace_session_800=%s; %s; c=d", cookie + 22,
		 cookie);
	r.cookie = header;
	assert_int_equal(status(g, r), 0);
	r.origin = "null"; /* Origin of a sandboxed page */
	assert_int_equal(status(g, r), 403);
	r.origin = NULL;
	header[strlen("a=b; memtrace_session_8000=short; memtrace_session_800=") + 32 + 2 + 22] ^= 1;
	assert_int_equal(status(g, r), 401);
	r.cookie = "memtrace_session_8000=00000000000000000000000000000000";
	assert_int_equal(status(g, r), 401);
	r.cookie = cookie;
	r.now += UINT64_C(11) * 3600 * SECOND;
	assert_int_equal(status(g, r), 0); /* a session in use stays valid */
	r.now += UINT64_C(11) * 3600 * SECOND;
	assert_int_equal(status(g, r), 0);
	auth__log_out(g, &r, gone);
	assert_string_equal(gone,
			    "memtrace_session_8000=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
	assert_int_equal(status(g, r), 401);
	second[22 + 32] = '\0';
	r.cookie = second; /* expired without use */
	assert_int_equal(status(g, r), 401);
	auth__free(g);
}

static void test_sessions_end(void **state)
{
	struct auth *g = make(
		(struct auth_opts){ .token = TOKEN, .local = true, .tls = true, .port = 443 });
	struct guard_request r = get(START);
	struct guard_verdict v;
	char first[200], cookie[200];

	assert_int_equal(auth__log_in(g, &r, TOKEN, first, &v), 0);
	assert_memory_equal(first, "__Host-memtrace_session_443=", 28);
	assert_string_equal(first + 28 + 32, "; Path=/; HttpOnly; SameSite=Strict; Secure");
	first[28 + 32] = '\0';
	r.cookie = first;
	for (int i = 0; i < 20; i++) { /* a session in use for days */
		r.now += UINT64_C(11) * 3600 * SECOND;
		assert_int_equal(status(g, r), i < 15 ? 0 : 401);
	}
	/* Too many sessions: the oldest are dropped. */
	assert_int_equal(auth__log_in(g, &r, TOKEN, first, &v), 0);
	first[28 + 32] = '\0';
	assert_int_equal(status(g, r), 0);
	for (int i = 0; i < 64; i++) {
		r.now++;
		assert_int_equal(auth__log_in(g, &r, TOKEN, cookie, &v), 0);
	}
	assert_int_equal(status(g, r), 401);
	cookie[28 + 32] = '\0';
	r.cookie = cookie;
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

static void test_no_token(void **state)
{
	struct auth *g = make((struct auth_opts){ .local = true });
	struct guard_request r = get(START);
	struct guard_verdict v;
	char cookie[200];

	assert_false(auth__wants_token(g));
	assert_int_equal(auth__log_in(g, &r, "anything at all", cookie, &v), 0);
	assert_string_equal(cookie, "");
	r.authorization = "Bearer anything";
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

/* ---- rates ---- */

static int until_429(struct auth *g, struct guard_request r, int most)
{
	int n = 0;

	while (n < most && status(g, r) != 429)
		n++;
	return n;
}

static void test_rate(void **state)
{
	struct auth *g = make((struct auth_opts){ .local = true, .per_minute = 120 });
	struct guard_request r = get(START), other = get(START);
	struct guard_verdict v;

	other.peer = inet6("2001:db8::1");
	assert_int_equal(until_429(g, r, 1000), 30);
	assert_int_equal(verdict(g, r, &v), 429);
	assert_int_equal(v.retry_after, 1);
	assert_int_equal(status(g, other), 0);
	r.now += 10 * SECOND;
	assert_int_equal(until_429(g, r, 1000), 20);
	r.now += 3600 * SECOND; /* a long wait gives at most the initial budget */
	assert_int_equal(until_429(g, r, 1000), 30);
	r.now -= 3600 * SECOND; /* a clock that goes back adds nothing */
	assert_int_equal(status(g, r), 429);
	/* All addresses of an IPv6 /64 are one peer. */
	assert_int_equal(until_429(g, other, 1000), 29);
	other.peer = inet6("2001:db8::ffff:1:2:3");
	assert_int_equal(status(g, other), 429);
	other.peer = inet6("2001:db8:0:1::1");
	assert_int_equal(status(g, other), 0);
	auth__free(g);
	g = make((struct auth_opts){ .local = true, .per_minute = 0 });
	assert_int_equal(until_429(g, r, 100000), 100000);
	auth__free(g);
	g = make((struct auth_opts){ .local = true, .per_minute = 5 });
	assert_int_equal(until_429(g, r, 1000), 5);
	auth__free(g);
}

static void test_costly(void **state)
{
	struct auth *g = make((struct auth_opts){ .local = true, .per_minute = 6000 });
	struct guard_request r = get(START), other = get(START);
	struct guard_verdict v[17];
	int n;

	r.flags = other.flags = ROUTE_COSTLY;
	other.peer = inet("10.0.0.9");
	/* Concurrent requests. */
	for (n = 0; n < 17 && !verdict(g, r, &v[n]); n++)
		assert_true(v[n].costly);
	assert_int_equal(n, 16);
	assert_int_equal(v[16].status, 429);
	assert_int_equal(status(g, other), 0);
	r.flags = 0;
	assert_int_equal(status(g, r), 0);
	r.flags = ROUTE_COSTLY;
	auth__done(g, &r.peer, &v[0]);
	assert_int_equal(status(g, r), 0);
	for (int i = 1; i < 16; i++)
		auth__done(g, &r.peer, &v[i]);
	auth__done(g, &r.peer, &v[16]); /* the refused request does not count */
	/* Sequential requests: a burst of 150, 17 of them used. */
	assert_int_equal(until_429(g, r, 1000), 150 - 17);
	r.flags = 0;
	assert_int_equal(status(g, r), 0);
	auth__free(g);
}

static void test_connections(void **state)
{
	struct auth *g = make((struct auth_opts){ .local = true });
	struct auth_peer one = inet("10.0.0.1"), two = inet("10.0.0.2"), three = inet("10.0.0.3");
	int n;

	for (n = 0; auth__connect(g, &one, START) == AUTH_ROOM; n++)
		;
	assert_int_equal(n, AUTH_CONNECTIONS / 2);
	assert_int_equal(auth__connect(g, &one, START), AUTH_PEER_FULL);
	for (n = 0; auth__connect(g, &two, START) == AUTH_ROOM; n++)
		;
	assert_int_equal(n, AUTH_CONNECTIONS / 2);
	assert_int_equal(auth__connect(g, &three, START), AUTH_FULL);
	auth__disconnect(g, &one);
	assert_int_equal(auth__connect(g, &three, START), AUTH_ROOM);
	assert_int_equal(auth__connect(g, &three, START), AUTH_FULL);
	assert_true(auth__same_peer(g, &one, &one) && !auth__same_peer(g, &one, &two));
	auth__free(g);
}

/* More addresses than entries: peers that spent their budget stay limited, and memory does not
 * grow. */
static void test_many_peers(void **state)
{
	struct auth *g = make((struct auth_opts){ .local = true, .per_minute = 100 });
	struct guard_request r = get(START), flood = get(START);
	unsigned char *key = flood.peer.key;
	int refused = 0, came = 0;

	assert_int_equal(until_429(g, r, 1000), 25);
	flood.peer = inet6("2001:db8::");
	for (uint32_t i = 0; i < 100000; i++) {
		memcpy(key + 8, &i, sizeof(i));
		refused += status(g, flood) == 429;
		if (i % 1000 == 0)
			assert_int_equal(status(g, r), 429);
	}
	assert_true(refused > 90000);
	for (uint32_t i = 0; i < 100000; i++) {
		memcpy(key + 8, &i, sizeof(i));
		came += auth__connect(g, &flood.peer, START) == AUTH_ROOM;
	}
	assert_int_equal(came, AUTH_CONNECTIONS);
	for (uint32_t i = 0; i < 100000 && came; i++) {
		memcpy(key + 8, &i, sizeof(i));
		auth__disconnect(g, &flood.peer);
		came--;
	}
	/* After a long quiet time all budgets are full. */
	r.now += 3600 * SECOND;
	assert_int_equal(until_429(g, r, 1000), 25);
	assert_int_equal(auth__connect(g, &r.peer, r.now), AUTH_ROOM);
	auth__free(g);
}

static void test_unix_peer(void **state)
{
	struct auth_peer a, b;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	a = auth__peer(NULL, fds[0]);
	b = auth__peer(&(struct sockaddr){ .sa_family = AF_UNIX }, fds[1]);
	assert_true(a.is_unix && b.is_unix);
	assert_memory_equal(a.key, b.key, sizeof(a.key));
	close(fds[0]);
	close(fds[1]);
	assert_false(auth__peer(NULL, -1).is_unix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),	   cmocka_unit_test(test_own_name),
		cmocka_unit_test(test_origin),	   cmocka_unit_test(test_fetch_site),
		cmocka_unit_test(test_token),	   cmocka_unit_test(test_token_lengths),
		cmocka_unit_test(test_guessing),   cmocka_unit_test(test_loopback_is_one_peer),
		cmocka_unit_test(test_session),	   cmocka_unit_test(test_sessions_end),
		cmocka_unit_test(test_no_token),   cmocka_unit_test(test_rate),
		cmocka_unit_test(test_costly),	   cmocka_unit_test(test_connections),
		cmocka_unit_test(test_many_peers), cmocka_unit_test(test_unix_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
