/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Logging: levels of parts, the environment variable's syntax, JSON lines, the log file.
 * tests/e2e/test_log.py covers the commands. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/log/internal.h"
#include "base/outfile.h"

static char folder[] = "/tmp/memtrace-log-XXXXXX", path[64];

static void test_parts(void **state)
{
	char part[LOG_PART];

	assert_string_equal(log__part(part, "user/capture/session/session.c"), "capture");
	assert_string_equal(log__part(part, "user/cmd/run.c"), "cmd");
	assert_string_equal(log__part(part, "user/serve/web/sse.c"), "serve");
	assert_string_equal(log__part(part, "user/main.c"), "main");
	assert_string_equal(log__part(part, "/home/user/build/user/live/view.c"), "live");
	assert_string_equal(log__part(part, "user/a_folder_whose_name_is_longer_than_that/x.c"),
			    "a_folder_whose_name_is_");
}

static void test_text(void **state)
{
	struct log_config c = LOG_CONFIG_INIT;
	char why[128], text[256];

	assert_int_equal(log_config__parse(&c, "error,,file=/tmp/a b.log,format=json,warn", false,
					   why, sizeof(why)),
			 0);
	assert_int_equal(c.level, LOG_WARN);
	assert_string_equal(c.file, "/tmp/a b.log");
	assert_true(c.json);
	assert_true(log_config__text(&c, 7, text, sizeof(text)));
	assert_string_equal(text, "format=json,warn,fd=7");
	assert_false(log_config__text(&c, 7, text, 15));
	/* An invalid text changes nothing. */
	assert_int_equal(log_config__parse(&c, "error,file=/x,format=loud", false, why,
					   sizeof(why)),
			 -EINVAL);
	assert_string_equal(why, "'format=loud' is not a format; use text or json");
	assert_int_equal(c.level, LOG_WARN);
	assert_string_equal(c.file, "/tmp/a b.log");
	free(c.file);
	c = (struct log_config)LOG_CONFIG_INIT;
	/* the text is longer than the limit */
	assert_int_equal(log_config__parse(&c, text, false, why, sizeof(why)), -EINVAL);
	assert_null(c.file);
}

static void check_wrong(const char *text, bool levels_only, const char *expected)
{
	struct log_config c = LOG_CONFIG_INIT;
	char why[128] = "";

	assert_int_equal(log_config__parse(&c, text, levels_only, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, expected);
	assert_int_equal(c.level, -1);
	assert_null(c.file);
}

static void test_wrong_text(void **state)
{
	check_wrong("INFO", false, "'INFO' is not a level; use error, warn, info or debug");
	check_wrong("", true, "'' is not a level; use error, warn, info or debug");
	check_wrong("info,", true, "'' is not a level; use error, warn, info or debug");
	/* the file has its own option */
	check_wrong("file=/x", true, "'file=/x' is not a level; use error, warn, info or debug");
	check_wrong("file=", false, "'file=' names no file");
	check_wrong("format=xml", false, "'format=xml' is not a format; use text or json");
	check_wrong("=info", false,
		    "'=info' is no setting of the log; use a level, file=PATH or format=json");
	check_wrong("capture=debug", true,
		    "'capture=debug' is not a level; use error, warn, info or debug");
	check_wrong("fd=2", false, "'fd=2' names no descriptor");
	check_wrong("fd=99999999999", false, "'fd=99999999999' names no descriptor");
	check_wrong("\x1b[2J", false, "'\\x1b[2J' is not a level; use error, warn, info or debug");
}

static void test_json_line(void **state)
{
	const struct log_line l = {
		.time = { .tv_sec = 1767312245, .tv_nsec = 678901234 },
		.level = LOG_WARN,
		.pid = 5,
		.command = "record",
		.part = "capture",
		.event = "odd",
		.fields = LOG_FIELDS(
			LOG_STRING("path", "a\"b\\\n\x1b[31m\xff\xe2\x80\xae</script>"),
			LOG_UINT("events", UINT64_MAX), LOG_INT("error", -2), LOG_BOOL("yes", true),
			LOG_DOUBLE("seconds", 0.5), LOG_STRING("none", NULL)),
		.text = "first\nsecond \"\\x1b\"",
	};
	size_t len;
	char *line = log_line__write(&l, true, &len);

	assert_non_null(line);
	assert_string_equal(
		line,
		"{\"time\":\"2026-01-02T00:04:05.678901Z\",\"level\":\"warn\",\"command\":"
		"\"record\",\"pid\":5,\"part\":\"capture\",\"event\":\"odd\","
		"\"message\":\"first\\nsecond \\\"\\\\x1b\\\"\","
		"\"path\":\"a\\\"b\\\\\\\\x0a\\\\x1b[31m\\\\xff\\\\xe2\\\\x80\\\\xae<\\/script>\","
		"\"events\":18446744073709551615,\"error\":-2,\"yes\":true,\"seconds\":0.500000,"
		"\"none\":null}\n");
	assert_int_equal(len, strlen(line));
	free(line);
	/* As text, no continuation line looks like the start of a message. */
	line = log_line__write(&l, false, &len);
	assert_string_equal(line, "2026-01-02T00:04:05.678901Z warn  record[5] capture: first\n    "
				  "second \"\\x1b\"\n");
	free(line);
}

static char *read_all(void)
{
	static char text[4 << 20];
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = '\0';
	return text;
}

static void append(const char *line, const char *expected)
{
	const char *why;

	log_file__append(line, strlen(line), &why);
	if (expected)
		assert_string_equal(why, expected);
	else
		assert_null(why);
}

static void test_file(void **state)
{
	char other[80];
	struct stat st;

	assert_int_equal(log_file__open(path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	append("one\n", NULL);
	assert_int_equal(log_file__open(path), 0); /* opening again appends */
	append("two\n", NULL);
	assert_string_equal(read_all(), "one\ntwo\n");
	log__close();
	/* Links, hard links and special files are refused. */
	snprintf(other, sizeof(other), "%s.link", path);
	assert_int_equal(symlink(path, other), 0);
	assert_int_equal(log_file__open(other), -ELOOP);
	unlink(other);
	assert_int_equal(link(path, other), 0);
	assert_int_equal(log_file__open(other), -EACCES);
	unlink(other);
	assert_int_equal(mkfifo(other, 0600), 0);
	assert_int_equal(log_file__open(other), -ENOTSUP);
	unlink(other);
	assert_int_equal(log_file__open(folder), -EISDIR);
	if (!geteuid()) {
		assert_int_equal(chown(path, 12345, 12345), 0);
		assert_int_equal(log_file__open(path), -EACCES);
	}
	assert_int_equal(log_file__fd(), -1);
	unlink(path);
}

/* Neither a size limit nor a full disk ends the program. Lost lines are counted and reported when
 * possible. */
static void test_file_full(void **state)
{
	struct rlimit before, small = { 8, 0 };

	getrlimit(RLIMIT_FSIZE, &before);
	small.rlim_max = before.rlim_max;
	assert_int_equal(log_file__open(path), 0);
	setrlimit(RLIMIT_FSIZE, &small);
	append("12345\n", NULL);
	append("12345\n", outfile__why(-EFBIG));
	append("12345\n", NULL); /* writing reports the number of lost lines */
	assert_int_equal(log_file__missed(), 0);
	setrlimit(RLIMIT_FSIZE, &before);
	append("end\n", NULL);
	assert_int_equal(log_file__missed(), 2);
	assert_int_equal(log_file__missed(), 0);
	assert_string_equal(read_all(), "12345\nend\n");
	log__close();
	unlink(path);
	assert_int_equal(log_file__open("/dev/full"), 0);
	append("one\n", outfile__why(-ENOSPC));
	log__close();
}

/* Messages of a process without a log file reach the process with the file, marked with what that
 * process knows of the sender. */
static void test_relayed(void **state)
{
	json_t *said;
	char *text;

	assert_int_equal(log__option_file(path, (char[64]){ "" }, 64), 0);
	assert_int_equal(log__option_format("json", (char[64]){ "" }, 64), 0);
	log__open();
	said = json_pack("{s:s,s:s,s:s,s:s,s:i,s:s,s:[i],s:s,s:b}", "level", "warn", "part",
			 "se\nrve", "message", "a\n\x1b[2J", "event", "odd\"", "pid", 1, "process",
			 "broker", "list", 1, "path", "/x\n", "ok", 1);
	log__relayed(77, "web", said);
	json_decref(said);
	said = json_pack("{s:s,s:s,s:s}", "level", "loud", "part", "serve", "message",
			 "no such level");
	log__relayed(77, "web", said);
	json_decref(said);
	said = json_pack("{s:s,s:s,s:s}", "level", "debug", "part", "serve", "message",
			 "more than is wanted");
	log__relayed(77, "web", said);
	json_decref(said);
	text = read_all();
	assert_non_null(strstr(
		text, "\"level\":\"warn\",\"command\":\"memtrace-bpf\",\"process\":\"web\",\"pid\":"
		      "77,\"part\":\"se\\\\x0arve\",\"event\":\"odd\\\"\","
		      "\"message\":\"a\\n\\\\x1b[2J\",\"path\":\"/x\\\\x0a\",\"ok\":true}\n"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	log__close();
	unlink(path);
}

static size_t count_of(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

/* A process that logs endlessly neither fills the disk nor displaces others' messages. */
static void test_relayed_without_end(void **state)
{
	json_t *said = json_pack("{s:s,s:s,s:s}", "level", "warn", "part", "serve", "message",
				 "again");
	struct timespec begin, now;
	char *text, big[60000];
	size_t from_web, lines;

	assert_int_equal(log__option_file(path, (char[64]){ "" }, 64), 0);
	log__open();
	clock_gettime(CLOCK_REALTIME, &begin);
	for (int i = 0; i < 20000; i++)
		log__relayed(77, "web", said);
	log__relayed(78, "push", said);
	clock_gettime(CLOCK_REALTIME, &now);
	text = read_all();
	from_web = count_of(text, "again") - 1;
	assert_true(from_web >= 150 && from_web <= 200 * (size_t)(now.tv_sec - begin.tv_sec + 1));
	/* The next line written says how many were dropped. */
	do
		clock_gettime(CLOCK_REALTIME, &begin);
	while (begin.tv_sec == now.tv_sec);
	log__relayed(77, "web", said);
	assert_true(count_of(read_all(), "web: ") >= 1 &&
		    count_of(read_all(), "lines were left out") >= 1);
	/* Long lines count by their length. */
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	json_object_set_new(said, "message", json_string(big));
	lines = count_of(read_all(), "\n");
	for (int i = 0; i < 100; i++)
		log__relayed(79, "look", said);
	lines = count_of(read_all(), "\n") - lines;
	assert_true(lines >= 17 && lines <= 2 * 17 + 1); /* two intervals at most */
	json_decref(said);
	log__close();
	unlink(path);
}

/* Messages go over a socket; a message that cannot be sent at once is dropped. */
static void test_relay(void **state)
{
	char got[4096];
	int fds[2];
	ssize_t n;
	json_t *o;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	log__open();
	log__set_level(LOG_ERROR);
	log__relay_to(fds[0], "push");
	log_event(LOG_INFO, "sent", LOG_FIELDS(LOG_INT("target", 5)), "hello %s", "\"you\"");
	n = recv(fds[1], got, sizeof(got), 0);
	assert_true(n > 0);
	o = json_loadb(got, (size_t)n, 0, NULL);
	assert_non_null(o);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(o, "log"), "message")),
		"hello \"you\"");
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(o, "log"), "process")), "push");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "log"), "target")),
			 5);
	json_decref(o);
	for (int i = 0; i < 5000; i++)
		log_info("more than fits");
	close(fds[1]);
	log_info("to nobody");
	close(fds[0]);
	unlink(path);
}

static int make_folder(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/log", folder);
	return 0;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),	   cmocka_unit_test(test_text),
		cmocka_unit_test(test_wrong_text), cmocka_unit_test(test_json_line),
		cmocka_unit_test(test_file),	   cmocka_unit_test(test_file_full),
		cmocka_unit_test(test_relayed),	   cmocka_unit_test(test_relayed_without_end),
		cmocka_unit_test(test_relay),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
