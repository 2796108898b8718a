/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/json.h"

static char *text;
static size_t text_len;

static FILE *begin(void)
{
	FILE *out = open_memstream(&text, &text_len);

	assert_non_null(out);
	return out;
}

static void check(FILE *out, struct json *j, const char *want)
{
	json_error_t error;
	json_t *doc;

	json__free(j);
	assert_int_equal(ferror(out), 0);
	fclose(out);
	assert_string_equal(text, want);
	/* Parsed by jansson, an independent reader. */
	doc = json_loadb(text, text_len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	assert_non_null(doc);
	json_decref(doc);
	free(text);
}

static void fill(struct json *j)
{
	json__open_object(j, NULL);
	json__string(j, "a", "x");
	json__open_array(j, "b");
	json__uint(j, NULL, UINT64_MAX);
	json__int(j, NULL, INT64_MIN);
	json__open_object(j, NULL);
	json__close_object(j);
	json__open_array(j, NULL);
	json__close_array(j);
	json__close_array(j);
	json__bool(j, "c", true);
	json__bool(j, "d", false);
	json__null(j, "e");
	json__string(j, "f", NULL);
	json__close_object(j);
}

static void test_compact(void **state)
{
	FILE *out = begin();
	struct json *j = json__new(out, false);

	fill(j);
	/* jansson has no numbers above 2^63: this one is compared as text. */
	json__free(j);
	fclose(out);
	assert_string_equal(
		text,
		"{\"a\":\"x\",\"b\":[18446744073709551615,-9223372036854775808,{},[]],\"c\":true,"
		"\"d\":false,\"e\":null,\"f\":null}\n");
	free(text);
}

static void test_pretty(void **state)
{
	FILE *out = begin();
	struct json *j = json__new(out, true);

	json__open_object(j, NULL);
	json__open_array(j, "rows");
	json__open_object(j, NULL);
	json__uint(j, "bytes", 1);
	json__string(j, "file", "t.py");
	json__close_object(j);
	json__close_array(j);
	json__open_array(j, "none");
	json__close_array(j);
	json__close_object(j);
	check(out, j,
	      "{\n \"rows\": [\n  {\n   \"bytes\": 1,\n   \"file\": \"t.py\"\n  }\n ],\n \"none\": "
	      "[]\n}\n");
}

static void check_string(const char *value, const char *want)
{
	FILE *out = begin();
	struct json *j = json__new(out, false);

	json__string(j, NULL, value);
	check(out, j, want);
}

static void test_strings(void **state)
{
	char c[2] = "";

	check_string("", "\"\"\n");
	check_string("a\"b\\c/d", "\"a\\\"b\\\\c/d\"\n");
	check_string("\b\f\n\r\t\x01\x1f\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"\n");
	check_string("</script><!--", "\"<\\/script>\\u003c!--\"\n");
	check_string("<", "\"<\"\n");
	check_string("\xe6\xbc\xa2\xf0\x9f\x98\x80", "\"\xe6\xbc\xa2\xf0\x9f\x98\x80\"\n");
	check_string(
		"\xff\xc0\xaf|\xed\xa0\x80",
		"\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"\n");
	check_string("\xe2\x80\xa8", "\"\\u2028\"\n");
	check_string("\xc2\x9b"
		     "2J\xe2\x80\xae",
		     "\"\\u009b2J\\u202e\"\n");
	for (int i = 1; i < 256; i++) { /* any byte must give JSON that parses to it */
		FILE *out = begin();
		struct json *j = json__new(out, false);
		json_t *doc;

		c[0] = (char)i;
		json__open_object(j, NULL);
		json__int(j, c, i);
		json__close_object(j);
		json__free(j);
		fclose(out);
		doc = json_loadb(text, text_len, 0, NULL);
		assert_non_null(doc);
		assert_int_equal(
			json_integer_value(json_object_get(doc, i < 128 ? c : "\xef\xbf\xbd")), i);
		json_decref(doc);
		free(text);
	}
}

static void check_double(double value, int decimals, const char *want)
{
	FILE *out = begin();
	struct json *j = json__new(out, false);

	json__double(j, NULL, value, decimals);
	check(out, j, want);
}

static void test_doubles(void **state)
{
	FILE *out;
	struct json *j;

	check_double(1.5, 2, "1.50\n");
	check_double(-0.25, 1, "-0.2\n");
	check_double(3, 0, "3\n");
	check_double(3, -5, "3\n");
	check_double(NAN, 2, "null\n");
	check_double(-INFINITY, 2, "null\n");
	/* Strings of the maximum length. */
	out = begin();
	j = json__new(out, false);
	json__double(j, NULL, -1.7976931348623157e308, 99);
	json__free(j);
	fclose(out);
	assert_int_equal(text_len, 1 + 309 + 1 + 17 + 1);
	free(text);
	/* A locale's decimal comma must not appear in JSON. */
	if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
		check_double(1.5, 2, "1.50\n");
		setlocale(LC_NUMERIC, "C");
	} else {
		print_message("SKIP: no locale with a decimal comma\n");
	}
}

static void misuse_key(struct json *j)
{
	json__open_object(j, NULL);
	json__null(j, NULL);
}

static void misuse_no_key(struct json *j)
{
	json__open_array(j, NULL);
	json__null(j, "key");
}

static void misuse_close(struct json *j)
{
	json__open_array(j, NULL);
	json__close_object(j);
}

static void misuse_close_top(struct json *j)
{
	json__close_array(j);
}

static void misuse_two(struct json *j)
{
	json__null(j, NULL);
	json__null(j, NULL);
}

static void misuse_deep(struct json *j)
{
	for (int i = 0; i < 1000; i++)
		json__open_array(j, NULL);
}

static void test_misuse_aborts(void **state)
{
	static void (*const misuses[])(struct json *) = { misuse_key,	misuse_no_key,
							  misuse_close, misuse_close_top,
							  misuse_two,	misuse_deep };

	for (size_t i = 0; i < sizeof(misuses) / sizeof(misuses[0]); i++) {
		int status;
		pid_t child = fork();

		assert_true(child >= 0);
		if (!child) {
			signal(SIGABRT, SIG_DFL);
			misuses[i](json__new(fopen("/dev/null", "w"), false));
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compact),	      cmocka_unit_test(test_pretty),
		cmocka_unit_test(test_strings),	      cmocka_unit_test(test_doubles),
		cmocka_unit_test(test_misuse_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
