/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The growth in the summary of a trace: that of the device that grows most. The figures that are
 * kept of its report. */
#include "unit/cmocka.h"

#include "serve/server/summary.h"

#define NO_GROWTH "{'verdict': 'no_growth', 'text': 'no growth in 120 steps'}"
#define GROWS(rate)                                                                                \
	"{'verdict': 'grows', 'text': '+" rate "', 'bytes_per_step': 1, 'bytes_per_minute': " rate \
	"}"
/* As in a dry run: there is no rate by the minute. */
#define GROWS_BY(clock, unit, rate)                                                                \
	"{'verdict': 'grows', 'text': '+" rate "', 'clock': '" clock "', "                         \
	"'bytes_per_" unit "': " rate ", 'bytes_per_minute': null}"
#define UNKNOWN "{'verdict': 'unknown', 'why': 'too_few_steps'}"

/* The summary's growth with these growths of cuda:0, whose peak is the largest, and cuda:1. */
static json_t *growth_of(const char *first, const char *second)
{
	json_t *facts = json_object(), *report, *summary, *ret;
	char text[1024];

	snprintf(text, sizeof(text),
		 "{'capture': {'events': 1}, 'device': 'cuda:0', 'devices': ["
		 "{'device': 'cuda:0', 'growth': %s}, {'device': 'cuda:1', 'growth': %s}]}",
		 first, second);
	for (char *c = text; *c; c++)
		if (*c == '\'')
			*c = '"';
	report = json_loads(text, 0, NULL);
	assert_non_null(report);
	summary = summary__make(facts, report);
	assert_non_null(summary);
	ret = json_incref(json_object_get(summary, "growth"));
	assert_non_null(ret);
	json_decref(summary);
	json_decref(report);
	json_decref(facts);
	return ret;
}

static void check_growth(const char *first, const char *second, const char *device,
			 const char *text)
{
	json_t *growth = growth_of(first, second);

	assert_string_equal(json_string_value(json_object_get(growth, "device")), device);
	assert_string_equal(json_string_value(json_object_get(growth, "text")), text);
	json_decref(growth);
}

static void test_growth(void **state)
{
	json_t *growth;

	check_growth(NO_GROWTH, NO_GROWTH, "cuda:0", "no growth in 120 steps");
	check_growth(NO_GROWTH, GROWS("5"), "cuda:1", "+5");
	check_growth(UNKNOWN, GROWS("5"), "cuda:1", "+5");
	check_growth(GROWS("4"), GROWS("5"), "cuda:1", "+5");
	check_growth(GROWS("6"), GROWS("5"), "cuda:0", "+6");
	/* Only rates of one unit are compared. */
	check_growth(GROWS_BY("steps", "step", "4"), GROWS_BY("steps", "step", "5"), "cuda:1",
		     "+5");
	check_growth(GROWS_BY("steps", "step", "4"), GROWS_BY("time", "second", "5"), "cuda:0",
		     "+4");
	check_growth(GROWS_BY("steps", "step", "4"), GROWS_BY("calls", "step", "5"), "cuda:0",
		     "+4");
	check_growth(GROWS_BY("time", "second", "4"), GROWS("5"), "cuda:0", "+4");
	growth = growth_of(UNKNOWN, NO_GROWTH);
	assert_true(json_is_null(growth));
	json_decref(growth);
}

/* A summary says what its capture did not record. */
static void test_detail(void **state)
{
	json_t *facts = json_object(), *report, *summary;

	report = json_loads("{\"capture\": {\"events\": 1, \"detail\": {\"text\": \"tracing "
			    "took 14 %\"}}, \"devices\": []}",
			    0, NULL);
	summary = summary__make(facts, report);
	assert_string_equal(json_string_value(json_object_get(summary, "detail")),
			    "tracing took 14 %");
	json_decref(summary);
	json_object_del(json_object_get(report, "capture"), "detail");
	summary = summary__make(facts, report);
	assert_true(json_is_null(json_object_get(summary, "detail")));
	json_decref(summary);
	json_decref(report);
	json_decref(facts);
}

/* The figures for metrics have the parts of RSS at its highest reading that are known. */
static void test_host(void **state)
{
	static const char text[] =
		"{\"host\": {\"last\": {\"parts\": {\"stacks\": {\"of_rss\": true, \"known\": "
		"true, "
		"\"bytes\": 1}}}, \"highest\": {\"parts\": {"
		"\"malloc\": {\"of_rss\": true, \"known\": true, \"bytes\": 7}, "
		"\"python\": {\"of_rss\": true, \"known\": false, \"bytes\": 0}, "
		"\"pss\": {\"of_rss\": false, \"known\": true, \"bytes\": 3}, "
		"\"files\": {\"of_rss\": true, \"known\": true, \"bytes\": \"many\"}}}}}";
	json_t *report = json_loads(text, 0, NULL), *figures = summary__figures(report);
	json_int_t bytes = 0;

	assert_int_equal(
		json_unpack(json_object_get(figures, "host_parts"), "{s:I!}", "malloc", &bytes), 0);
	assert_int_equal(bytes, 7);
	json_decref(figures);
	json_object_set_new(report, "host", json_null());
	figures = summary__figures(report);
	assert_null(json_object_get(figures, "host_parts"));
	json_decref(figures);
	json_decref(report);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_growth),
					    cmocka_unit_test(test_detail),
					    cmocka_unit_test(test_host) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
