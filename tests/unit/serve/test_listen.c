/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Addresses as typed, and Unix sockets: ownership, which files are replaced, which files stay. */
#include "unit/cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/server/listen.h"

static char folder[64], path[96], text[112];

static void test_words(void **state)
{
	static const struct {
		const char *text;
		bool ok, local;
	} cases[] = {
		{ "127.0.0.1:8000", true, true },
		{ "127.0.0.1", true, true },
		{ "127.8.9.10:1", true, true },
		{ "localhost:8000", true, true },
		{ "localhost", true, true },
		{ "[::1]:8000", true, true },
		{ "[::1]", true, true },
		{ "0.0.0.0:8000", true, false },
		{ "[::]:8000", true, false },
		{ "10.1.2.3:65535", true, false },
		{ "[2001:db8::1]:443", true, false },
		{ "[::ffff:127.0.0.1]:80", true, false }, /* not loopback for the kernel */
		{ "unix:/run/x.sock", true, true },
		{ "", false, false },
		{ ":8000", false, false },
		{ "8000", false, false },
		{ "*:8000", false, false },
		{ "example.com:8000", false, false },
		{ "::1:8000", false, false },
		{ "::1", false, false },
		{ "[::1", false, false },
		{ "[::1]8000", false, false },
		{ "[]:8000", false, false },
		{ "127.0.0.1:", false, false },
		{ "127.0.0.1:65536", false, false },
		{ "127.0.0.1:99999999999999999999", false, false },
		{ "127.0.0.1:-1", false, false },
		{ "127.0.0.1:+1", false, false },
		{ "127.0.0.1: 1", false, false },
		{ "127.0.0.1:http", false, false },
		{ "127.0.0.1:80:80", false, false },
		{ "http://127.0.0.1:80", false, false },
		{ "unix:", false, false },
		{ "unix:run/x.sock", false, false },
		{ "unix:/"
		  "12345678901234567890123456789012345678901234567890123456789012345678901234567890"
		  "123456789012345678901234567890",
		  false, false },
		{ "127.0.0.1\033[2J:80", false, false },
	};
	char why[LISTEN_WHY];
	bool local;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int err = listen__is_local(cases[i].text, &local, why);

		if (err != (cases[i].ok ? 0 : -EINVAL) || (!err && local != cases[i].local))
			fail_msg("%s: %d", cases[i].text, err);
		if (err)
			assert_true(strstr(why, "unix:/") || strstr(why, "Unix socket"));
	}
}

static void try_port(const char *at, const char *scheme, bool tls)
{
	struct listen_at first, second, told;
	char why[LISTEN_WHY], again[160];
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int err = listen__open(at, tls, NULL, &first, why), fd;

	if (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL)
		return; /* no IPv6 on this machine */
	assert_int_equal(err, 0);
	assert_true(first.local && !first.is_unix && first.port);
	snprintf(again, sizeof(again), "%s%.*s:%d", scheme, (int)(strrchr(at, ':') - at), at,
		 first.port);
	assert_string_equal(first.url, again);
	assert_int_equal(fcntl(first.fd, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(first.fd, F_GETFL) & O_NONBLOCK);
	/* The socket accepts connections. */
	assert_int_equal(getsockname(first.fd, (struct sockaddr *)&sa, &len), 0);
	fd = socket(sa.ss_family, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, len), 0);
	close(fd);
	/* A second socket cannot use the address. */
	assert_int_equal(listen__open(again + strlen(scheme), tls, NULL, &second, why),
			 -EADDRINUSE);
	assert_non_null(strstr(why, "another port"));
	assert_int_equal(listen__describe(first.fd, tls, &told), 0);
	assert_string_equal(told.url, first.url);
	assert_string_equal(told.host, first.host);
	assert_true(told.local && told.port == first.port);
	listen__close(&first);
	assert_int_equal(listen__open(again + strlen(scheme), tls, NULL, &second, why), 0);
	listen__close(&second);
}

static void test_ports(void **state)
{
	try_port("127.0.0.1:0", "http://", false);
	try_port("[::1]:0", "https://", true);
}

static void test_not_here(void **state)
{
	struct listen_at at;
	char why[LISTEN_WHY];

	assert_int_equal(listen__open("192.0.2.1:0", false, NULL, &at, why), -EADDRNOTAVAIL);
	assert_non_null(strstr(why, "no such address"));
}

static int knock(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), err;

	strcpy(sa.sun_path, path);
	err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
	close(fd);
	return err;
}

static void test_unix(void **state)
{
	const struct listen_opts opts = { geteuid() ? (uid_t)-1 : 65534,
					  geteuid() ? getegid() : 65534 };
	struct listen_at at, other, told;
	char why[LISTEN_WHY], url[128];
	struct stat st;

	assert_int_equal(listen__open(text, false, NULL, &at, why), 0);
	assert_true(at.local && at.is_unix && !at.port && !*at.host);
	snprintf(url, sizeof(url), "unix:%s", path);
	assert_string_equal(at.url, url);
	assert_int_equal(listen__describe(at.fd, false, &told), 0);
	assert_string_equal(told.url, url);
	assert_string_equal(told.path, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(knock(), 0);
	/* The socket is in use. */
	assert_int_equal(listen__open(text, false, NULL, &other, why), -EADDRINUSE);
	assert_int_equal(knock(), 0);
	/* The socket's owner has closed it. */
	close(at.fd);
	assert_int_equal(knock(), -ECONNREFUSED);
	assert_int_equal(listen__open(text, false, &opts, &other, why), 0);
	assert_int_equal(knock(), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	assert_int_equal(st.st_gid, opts.gid);
	if (!geteuid())
		assert_int_equal(st.st_uid, opts.uid);
	/* Closing the first socket does not remove the second one's file. */
	at.fd = -1;
	listen__close(&at);
	assert_int_equal(knock(), 0);
	listen__close(&other);
	assert_int_equal(knock(), -ENOENT);
}

static void test_in_the_way(void **state)
{
	struct listen_at at;
	char why[LISTEN_WHY], target[128];
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(listen__open(text, false, NULL, &at, why), -EEXIST);
	assert_non_null(strstr(why, "not a socket"));
	assert_int_equal(unlink(path), 0);
	/* A link is not followed: its target stays. */
	snprintf(target, sizeof(target), "%s/target", folder);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(listen__open(text, false, NULL, &at, why), -EEXIST);
	assert_int_equal(unlink(path), 0);
	/* A folder where anyone could replace the socket. */
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(listen__open(text, false, NULL, &at, why), -EPERM);
	assert_int_equal(chmod(folder, 01777), 0);
	assert_int_equal(listen__open(text, false, NULL, &at, why), 0);
	listen__close(&at);
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(listen__open("unix:/nowhere/at/all.sock", false, NULL, &at, why), -ENOENT);
}

static int set_up(void **state)
{
	strcpy(folder, "/tmp/memtrace-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/a.sock", folder);
	snprintf(text, sizeof(text), "unix:%s", path);
	return 0;
}

static int tear_down(void **state)
{
	return rmdir(folder); /* rmdir fails if a file is left */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),	   cmocka_unit_test(test_ports),
		cmocka_unit_test(test_not_here),   cmocka_unit_test(test_unix),
		cmocka_unit_test(test_in_the_way),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
