/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Valid and invalid bodies and parameters, against a table of fields. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grammar.h"
#include "serve/web/validate.h"

static const char *const colours[] = { "red", "green", NULL };
static const struct field fields[] = {
	{ .name = "n", .type = FIELD_INTEGER, .min = 1, .max = 100 },
	{ .name = "x", .type = FIELD_NUMBER, .min = 0, .max = 1.5 },
	{ .name = "free", .type = FIELD_INTEGER },
	{ .name = "s", .type = FIELD_STRING, .shortest = 2, .longest = 4 },
	{ .name = "long", .type = FIELD_STRING },
	{ .name = "c", .type = FIELD_STRING, .choices = colours },
	{ .name = "p",
	  .type = FIELD_STRING,
	  .pattern = "^(peak|[0-9]{1,3})$",
	  .help = "peak or a number." },
	{ .name = "b", .type = FIELD_BOOLEAN },
	{ .name = "is", .type = FIELD_INTEGERS, .min = 1, .max = 9, .shortest = 1, .longest = 3 },
	{ .name = "ss", .type = FIELD_STRINGS, .longest = 2 },
	{ 0 },
};
static const struct field wants[] = { { .name = "must", .type = FIELD_STRING, .required = true },
				      { 0 } };

/* ret: the accepted result as compact text; NULL: rejected, with `field` and `part` in the
 * detail. */
static void body(const char *text, const char *ret, const char *field, const char *part)
{
	struct complaint c = { .field = "", .detail = "" };
	json_t *got = validate__body(fields, text, strlen(text), &c);
	char *made = got ? json_dumps(got, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

	if (!ret != !got || (ret && strcmp(ret, made)))
		fail_msg("%s: %s (%s)", text, made ? made : "refused", c.detail);
	if (!got && (strcmp(c.field, field) || !strstr(c.detail, part)))
		fail_msg("%s: \"%s\" \"%s\"", text, c.field, c.detail);
	free(made);
	json_decref(got);
}

static void test_good(void **state)
{
	body("{}", "{}", NULL, NULL);
	body(" {\"n\": 1, \"other\": [{\"n\": -5}], \"s\": \"ab\"}\n", "{\"n\":1,\"s\":\"ab\"}",
	     NULL, NULL);
	body("{\"n\": 100.0, \"free\": -7e2}", "{\"n\":100,\"free\":-700}", NULL, NULL);
	body("{\"x\": 1, \"b\": false}", "{\"x\":1,\"b\":false}", NULL, NULL);
	body("{\"s\": \"\\u00e9\\u00e9\\u00e9\\ud83d\\ude00\"}",
	     "{\"s\":\"\u00e9\u00e9\u00e9\U0001f600\"}", NULL, NULL);
	body("{\"c\": \"green\", \"p\": \"peak\"}", "{\"c\":\"green\",\"p\":\"peak\"}", NULL, NULL);
	body("{\"is\": [1, 9, 3.0]}", "{\"is\":[1,9,3]}", NULL, NULL);
	body("{\"ss\": []}", "{\"ss\":[]}", NULL, NULL);
	/* Unknown fields may have any value. */
	body("{\"other\": 123456789012345678901234567890, \"n\": 3}", "{\"n\":3}", NULL, NULL);
	body("{\"other\": \"a\\u0000b\"}", "{}", NULL, NULL);
	body("{\"a\\u0000\": {\"\\u0000\": 1}, \"n\": 1}", "{\"n\":1}", NULL, NULL);
	body("{\"a\\u0000\": 123456789012345678901234567890, \"n\": 1}", "{\"n\":1}", NULL, NULL);
	body("{\"s\": \"\\\\u00\", \"a\\u0000\": 1}", "{\"s\":\"\\\\u00\"}", NULL, NULL);
}

static void test_bad_fields(void **state)
{
	body("{\"n\": 0}", NULL, "n", "n: must be at least 1, not 0");
	body("{\"n\": 101}", NULL, "n", "at most 100");
	body("{\"n\": 123456789012345678901234567890}", NULL, "n", "at most 100");
	body("{\"n\": 1.5}", NULL, "n", "whole");
	body("{\"n\": true}", NULL, "n", "not a boolean");
	body("{\"n\": \"5\"}", NULL, "n", "not a string");
	body("{\"n\": null}", NULL, "n", "not null");
	body("{\"free\": 1e300}", NULL, "free", "too large");
	body("{\"x\": 1.6}", NULL, "x", "at most 1.5");
	body("{\"x\": \"NaN\"}", NULL, "x", "a number");
	body("{\"s\": \"a\"}", NULL, "s", "at least 2");
	body("{\"s\": \"\"}", NULL, "s", "is empty");
	body("{\"s\": \"abcde\"}", NULL, "s", "at most 4");
	body("{\"s\": \"a\\u0000b\"}", NULL, "s", "NUL");
	body("{\"s\": \"a\\u0000b\", \"a\\u0000\": 1}", NULL, "s", "control");
	body("{\"s\": [\"ab\"]}", NULL, "s", "an array");
	body("{\"c\": \"blue\"}", NULL, "c", "one of red, green");
	body("{\"p\": \"peak\\n\"}", NULL, "p", "not a valid value. peak or a number.");
	body("{\"p\": \"1234\"}", NULL, "p", "not a valid value. peak or a number.");
	body("{\"b\": 1}", NULL, "b", "true or false");
	body("{\"is\": []}", NULL, "is", "at least 1 member");
	body("{\"is\": [1,1,1,1]}", NULL, "is", "at most 3");
	body("{\"is\": [1, 10]}", NULL, "is", "is[1]");
	body("{\"is\": [1, \"2\"]}", NULL, "is", "is[1]");
	body("{\"is\": 3}", NULL, "is", "an array");
	body("{\"ss\": [\"a\", 1]}", NULL, "ss", "ss[1]");
}

static void test_bad_bodies(void **state)
{
	static const char *const bad[] = { "",
					   " ",
					   "[]",
					   "null",
					   "3",
					   "\"a\"",
					   "{",
					   "{\"n\":1,}",
					   "{n:1}",
					   "NaN",
					   "{\"n\": NaN}",
					   "{\"n\": 1e400}",
					   "{\"n\":1} {}",
					   "{\"n\":1,\"n\":2}",
					   "{\"s\": \"\\ud800\"}",
					   "\xff\xfe",
					   "{\"s\":\"\xff\"}",
					   "{\"o\":\"\xc0\xaf\"}",
					   NULL };
	struct complaint c;
	char deep[5000];

	for (size_t i = 0; bad[i]; i++) {
		memset(&c, 0, sizeof(c));
		if (validate__body(fields, bad[i], strlen(bad[i]), &c))
			fail_msg("%s is taken", bad[i]);
		assert_true(*c.detail);
		assert_string_equal(c.field, "");
	}
	memset(deep, '[', sizeof(deep));
	assert_null(validate__body(fields, deep, sizeof(deep), &c));
	assert_null(validate__body(wants, "{}", 2, &c));
	assert_string_equal(c.detail, "must: must be given");
	assert_string_equal(c.field, "must");
}

static void test_long_strings(void **state)
{
	char text[2000];
	struct complaint c;
	json_t *got;

	for (int n = VALIDATE_STRING; n <= VALIDATE_STRING + 1; n++) {
		memset(text, 'a', sizeof(text));
		memcpy(text, "{\"long\": \"", 10);
		memcpy(text + 10 + n, "\"}", 3);
		got = validate__body(fields, text, strlen(text), &c);
		assert_true(!got == (n > VALIDATE_STRING));
		json_decref(got);
	}
}

static int text(const char *name, const char *value, size_t size)
{
	struct complaint c;

	return validate__text(validate__field(fields, name), value, size, &c);
}

static void test_texts(void **state)
{
	assert_null(validate__field(fields, "nothing"));
	assert_int_equal(text("n", "5", 1), 0);
	assert_int_equal(text("n", "1e1", 3), 0);
	assert_true(text("n", "0x5", 3) < 0);
	assert_true(text("n", " 5", 2) < 0);
	assert_true(text("n", "", 0) < 0);
	assert_true(text("n", "5.5", 3) < 0);
	assert_true(text("n", "inf", 3) < 0);
	assert_true(text("n", "5\0", 2) < 0);
	assert_true(text("n", "101", 3) < 0);
	assert_int_equal(text("x", "0.25", 4), 0);
	assert_true(text("x", "nan", 3) < 0);
	assert_int_equal(text("b", "true", 4), 0);
	assert_true(text("b", "yes", 3) < 0);
	assert_int_equal(text("c", "red", 3), 0);
	assert_true(text("c", "re", 2) < 0);
	assert_int_equal(text("s", "ab", 2), 0);
	assert_true(text("s", "a\0c", 3) < 0);
	assert_true(text("s", "a\x1b", 2) < 0);
	assert_int_equal(text("ss", "a", 1), 0);
	assert_int_equal(text("ss", "a,b", 3), 0);
	assert_true(text("ss", "a,b,c", 5) < 0);
	assert_true(text("ss", "", 0) < 0);
	assert_true(text("ss", "a,", 2) < 0);
}

static void moment(const struct field *f, const char *value, bool good)
{
	struct complaint c;

	if (!validate__text(f, value, strlen(value), &c) != good)
		fail_msg("%s: %s", value, c.detail);
}

/* Values that the shared grammar accepts, and values that it does not. */
static void test_grammar(void **state)
{
	static const struct field
		at = { .name = "at", .type = FIELD_STRING, .pattern = PATTERN_AT, .help = HELP_AT },
		pair = { .name = "at",
			 .type = FIELD_STRING,
			 .longest = 512,
			 .pattern = PATTERN_AT_PAIR,
			 .help = HELP_AT_PAIR },
		by = { .name = "by", .type = FIELD_STRING, .pattern = PATTERN_GROUPS, .help = "" },
		ranks = { .name = "by",
			  .type = FIELD_STRING,
			  .pattern = PATTERN_GROUPS_TOGETHER,
			  .help = "" };
	static const char *const moments[] = { "peak", "12.8", "900ms", "mark:epoch 3",
					       "mark:*\u00e9?" };
	char mark[300] = "mark:", both[600];

	memset(mark + 5, 'a', 127);
	for (size_t i = 0; i < 5; i++) {
		moment(&at, moments[i], true);
		moment(&pair, moments[i], true);
	}
	moment(&at, mark, true);
	moment(&at, "mark:a,b", true);
	snprintf(both, sizeof(both), "%s,%s", mark, mark);
	moment(&pair, both, true);
	moment(&pair, "0,end", true);
	mark[132] = 'a';
	moment(&at, mark, false);
	moment(&at, "mark:", false);
	moment(&at, "mark:a\nb", false);
	moment(&at, "mark:a\x7f", false);
	moment(&at, "mark", false);
	moment(&at, "12.8x", false);
	moment(&at, "0,end", false);
	moment(&pair, "0,", false);
	moment(&pair, ",end", false);
	moment(&pair, "0,end,oom", false);
	moment(&pair, "mark:a,b", false);
	moment(&by, "segment", true);
	moment(&by, "module,category", true);
	moment(&by, "module,stack", false);
	moment(&by, "module,", false);
	moment(&ranks, "layer", true);
	moment(&ranks, "line", true);
	moment(&ranks, "line,phase,thread", true);
	moment(&ranks, "stack", false);
	moment(&ranks, "segment", false);
	moment(&ranks, "line,layer", false);
}

static void unescaped(const char *from, const char *to)
{
	char copy[64];
	size_t size = strlen(from);

	snprintf(copy, sizeof(copy), "%s", from);
	if (validate__unescape(copy, &size) != !!to)
		fail_msg("%s", from);
	if (to)
		assert_string_equal(copy, to);
}

static void test_unescape(void **state)
{
	char nul[] = "a%00b";
	size_t size = 5;

	unescaped("", "");
	unescaped("plain", "plain");
	unescaped("%41%62", "Ab");
	unescaped("%2e%2E%2f", "../");
	unescaped("%c3%a9", "\u00e9");
	unescaped("%25%34%31", "%41");
	unescaped("%", NULL);
	unescaped("%4", NULL);
	unescaped("%4x", NULL);
	unescaped("%ff", NULL);
	unescaped("%c0%af", NULL);
	unescaped("%ed%a0%80", NULL);
	assert_true(validate__unescape(nul, &size));
	assert_int_equal(size, 3);
}

static void test_types(void **state)
{
	assert_true(validate__is_json_type("application/json"));
	assert_true(validate__is_json_type("Application/JSON; charset=UTF-8"));
	assert_true(validate__is_json_type("application/vnd.x+json"));
	assert_false(validate__is_json_type("text/plain"));
	assert_false(validate__is_json_type("application/jsonx"));
	assert_false(validate__is_json_type("application/x-www-form-urlencoded"));
	assert_false(validate__is_json_type("application/json; charset=utf-16"));
	assert_false(validate__is_json_type(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	   cmocka_unit_test(test_bad_fields),
		cmocka_unit_test(test_bad_bodies), cmocka_unit_test(test_long_strings),
		cmocka_unit_test(test_texts),	   cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_unescape),   cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
