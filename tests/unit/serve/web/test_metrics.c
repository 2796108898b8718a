/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prometheus metrics of a generated state: exact lines, a limited number, names safely escaped. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server/state.h"
#include "serve/web/metrics.h"

static char *written(const struct state *s, const struct metrics *m, bool openmetrics)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	metrics__write(out, s, m, openmetrics);
	assert_int_equal(fclose(out), 0);
	return text;
}

/* True if `text` has this whole line. */
static bool has(const char *text, const char *line)
{
	size_t len = strlen(line);

	for (const char *p = text; (p = strstr(p, line)); p++)
		if ((p == text || p[-1] == '\n') && p[len] == '\n')
			return true;
	return false;
}

static void check_has(const char *text, const char *line)
{
	if (!has(text, line))
		fail_msg("no line %s in:\n%s", line, text);
}

static size_t count(const char *text, const char *part)
{
	size_t n = 0;

	for (const char *p = text; (p = strstr(p, part)); p++)
		n++;
	return n;
}

static struct state_process *add_process(struct state *s, pid_t pid, const char *target,
					 unsigned slot, int64_t rank)
{
	struct state_process *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->pid = pid;
	p->started = 1700000000.5;
	p->slot = slot;
	p->rank = rank;
	snprintf(p->target, sizeof(p->target), "%s", target);
	s->processes[s->n_processes++] = p;
	return p;
}

static void add_device(struct state_process *p, const char *name, unsigned has_figures)
{
	struct state_device *d = &p->devices[p->n_devices++];

	snprintf(d->name, sizeof(d->name), "%s", name);
	d->has = has_figures;
	for (int i = 0; i < FIG_NR; i++)
		d->figures[i] = (uint64_t)p->pid * 1000 + (uint64_t)i;
}

static void add_trace(struct state *s, const char *facts, const char *report)
{
	struct state_trace *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->facts = json_loads(facts, 0, NULL);
	t->report = report ? json_loads(report, 0, NULL) : NULL;
	assert_non_null(t->facts);
	assert_int_equal(!report, !t->report);
	s->traces[s->n_traces++] = t;
}

static void clear(struct state *s)
{
	for (size_t i = 0; i < s->n_processes; i++)
		free(s->processes[i]);
	for (size_t i = 0; i < s->n_traces; i++) {
		json_decref(s->traces[i]->facts);
		json_decref(s->traces[i]->report);
		free(s->traces[i]);
	}
	json_decref(s->hello);
	json_decref(s->targets);
	json_decref(s->push);
	json_decref(s->gpus);
	free(s);
}

static struct state *empty(void)
{
	struct state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	return s;
}

static void test_nothing_yet(void **unused)
{
	struct state *s = empty();
	struct metrics m = { .n_requests = 0 };
	char *text = written(s, &m, true);

	check_has(text, "memtrace_serve_can_trace 0");
	assert_int_equal(count(text, "memtrace_serve_start_time_seconds"), 0);
	check_has(text, "memtrace_build_info{version=\"" MEMTRACE_VERSION "\"} 1");
	assert_int_equal(count(text, "memtrace_serve_pushes"), 0);
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	free(text);
	clear(s);
}

static void test_figures(void **unused)
{
	struct state *s = empty();
	struct metrics m = { .n_requests = 0 };
	struct state_process *p;
	char *text;

	s->hello = json_pack("{s:b, s:f}", "can_trace", 1, "start", 1700000000.5);
	s->targets = json_loads("[{\"name\": \"train\", \"kind\": \"pattern\", \"pids\": [1, 2]}]",
				0, NULL);
	p = add_process(s, 4242, "train", 0, 3);
	p->has_rss = true;
	p->rss = UINT64_MAX;
	p->time = 1700000100.25;
	snprintf(p->pod, sizeof(p->pod), "0b1c");
	snprintf(p->container_name, sizeof(p->container_name), "trainer");
	snprintf(p->pod_name, sizeof(p->pod_name), "train-0");
	snprintf(p->namespace, sizeof(p->namespace), "team");
	snprintf(p->hpc_job, sizeof(p->hpc_job), "991");
	add_device(p, "cuda:0", ~0U);
	snprintf(p->devices[0].uuid, sizeof(p->devices[0].uuid), "GPU-1a2b");
	p->devices[0].gpu = 5;
	add_device(p, "cuda:1", 1U << FIG_ALLOCATED);
	add_process(s, 4243, "train", 1, -1);
	text = written(s, &m, false);
	check_has(text, "memtrace_target_processes{target=\"train\",kind=\"pattern\"} 2");
	check_has(text, "memtrace_process_info{target=\"train\",process=\"0\",rank=\"3\",pid="
			"\"4242\",pod_uid=\"0b1c\",container=\"trainer\",pod=\"train-0\",namespace="
			"\"team\",hpc_job=\"991\"} 1");
	check_has(text, "memtrace_process_info{target=\"train\",process=\"1\",pid=\"4243\"} 1");
	check_has(text, "memtrace_allocated_bytes{target=\"train\",process=\"0\",rank=\"3\",device="
			"\"cuda:0\",UUID=\"GPU-1a2b\",gpu=\"5\"} 4242000");
	check_has(text, "memtrace_allocated_bytes{target=\"train\",process=\"0\",rank=\"3\",device="
			"\"cuda:1\"} 4242000");
	check_has(text, "memtrace_ooms_total{target=\"train\",process=\"0\",rank=\"3\",device="
			"\"cuda:0\",UUID=\"GPU-1a2b\",gpu=\"5\"} 4242005");
	check_has(text, "memtrace_resident_bytes{target=\"train\",process=\"0\",rank=\"3\"} "
			"18446744073709551615");
	check_has(text, "memtrace_sample_timestamp_seconds{target=\"train\",process=\"0\",rank="
			"\"3\"} 1700000100.250");
	check_has(text, "memtrace_serve_can_trace 1");
	check_has(text, "memtrace_serve_start_time_seconds 1700000000.500000");
	/* Unknown figures are absent. */
	assert_int_equal(count(text, "\nmemtrace_reserved_bytes{"), 1);
	assert_int_equal(count(text, "\nmemtrace_resident_bytes{"), 1);
	assert_int_equal(count(text, "\nmemtrace_sample_timestamp_seconds{"), 1);
	/* Only one series has the PID as a label. */
	assert_int_equal(count(text, "pid=\"4242\""), 1);
	/* The older format. */
	check_has(text, "# TYPE memtrace_ooms_total counter");
	check_has(text, "# TYPE memtrace_process_info gauge");
	assert_int_equal(count(text, "# UNIT"), 0);
	assert_int_equal(count(text, "# EOF"), 0);
	free(text);
	text = written(s, &m, true);
	check_has(text, "# TYPE memtrace_ooms counter");
	check_has(text, "# TYPE memtrace_process info");
	check_has(text, "# UNIT memtrace_allocated_bytes bytes");
	free(text);
	clear(s);
}

#define FACTS(id, name, state)                                                                     \
	"{\"trace_id\": \"" id "\", \"model_name\": \"" name "\", \"state\": \"" state             \
	"\", \"begun\": 1700000000.5, \"bytes\": 100}"

static void test_captures(void **unused)
{
	static const char report[] =
		"{\"device\": \"cuda:0\", \"allocated\": 1000, \"fragmentation\": 0.25, "
		"\"categories\": {\"parameter\": 600,"
		"\"activation\": 400, \"made up\": 1}, \"devices\": [{\"device\": \"cuda:0\", "
		"\"peak_allocated\": 1000, \"peak_reserved\": 2097152,"
		"\"drift\": null}], \"rows\": [{\"bytes\": 600, \"file\": \"train.py\", \"line\": "
		"7, \"function\": \"step\","
		"\"module\": \"head\", \"category\": \"parameter\"},"
		"{\"bytes\": 300, \"source\": \"untraced\"}]}";
	struct state *s = empty();
	struct metrics m = { .n_requests = 0 };
	char *text;

	add_trace(s, FACTS("trace_1", "train", "done"),
		  "{\"device\": \"cuda:0\", \"allocated\": 7, \"devices\": []}");
	add_trace(s, FACTS("trace_2", "train", "done"), report);
	add_trace(s, FACTS("trace_3", "train", "capturing"), NULL);
	add_trace(s, "{\"trace_id\": \"trace_4\", \"pid\": 77, \"state\": \"done\", \"begun\": 1}",
		  report);
	add_trace(s,
		  "{\"trace_id\": \"trace_5\", \"model_name\": \"train\", \"state\": \"done\", "
		  "\"begun\": 2, \"keep\": false}",
		  "{\"device\": \"cuda:0\", \"allocated\": 8, \"devices\": []}");
	add_process(s, 77, "other", 0, -1);
	s->captures_done = 3;
	s->lost = 2;
	s->gpu_looks_failed = 4;
	s->push = json_loads("{\"otlp\": {\"sent\": 5, \"failed\": 1}}", 0, NULL);
	text = written(s, &m, false);
	check_has(text, "memtrace_capture_timestamp_seconds{target=\"train\"} 1700000000.500");
	check_has(text,
		  "memtrace_capture_peak_allocated_bytes{target=\"train\",device=\"cuda:0\"} 1000");
	check_has(text,
		  "memtrace_capture_peak_allocated_bytes{target=\"other\",device=\"cuda:0\"} 1000");
	check_has(text, "memtrace_capture_fragmentation_ratio{target=\"train\",device=\"cuda:0\"} "
			"0.250000");
	check_has(text, "memtrace_capture_category_bytes{target=\"train\",device=\"cuda:0\","
			"category=\"activation\"} 400");
#define LINE "memtrace_capture_line_bytes{target=\"train\",device=\"cuda:0\","
	check_has(text, LINE "top=\"1\",file=\"train.py\",line=\"7\",function=\"step\",module="
			     "\"head\",category=\"parameter\"} 600");
	check_has(text, LINE "top=\"2\",file=\"untraced\",line=\"\",function=\"\",module=\"\","
			     "category=\"\"} 300");
	check_has(text, LINE
		  "top=\"rest\",file=\"\",line=\"\",function=\"\",module=\"\",category=\"\"} 100");
	check_has(text, "memtrace_serve_traces{state=\"done\"} 4");
	check_has(text, "memtrace_serve_traces{state=\"capturing\"} 1");
	check_has(text, "memtrace_serve_recordings_bytes 300");
	check_has(text, "memtrace_serve_captures_total{result=\"done\"} 3");
	check_has(text, "memtrace_serve_lost_events_total 2");
	check_has(text, "memtrace_serve_gpu_looks_total{result=\"failed\"} 4");
	check_has(text, "memtrace_serve_pushes_total{to=\"otlp\",result=\"sent\"} 5");
	assert_int_equal(count(text, "made up"), 0);
	assert_int_equal(count(text, "memtrace_capture_drift_bytes{"), 0);
	free(text);
	clear(s);
}

/* Host memory by part: a series for each process that is captured now, and those of the last
 * capture of a target. Parts are of a fixed list. */
static void test_host(void **unused)
{
	static const char *const running[] = {
		"{\"pid\": 42, \"state\": \"capturing\", \"host_parts\": {\"malloc\": 1}}",
		"{\"pid\": 42, \"state\": \"capturing\", \"host_parts\": {\"malloc\": 2, "
		"\"python\": 3, \"pss\": 4, \"rss\": 5, \"made up\": 6, \"files\": \"x\"}, "
		"\"host_use\": {\"live\": 12, \"free\": 13}}",
		"{\"pid\": 42, \"state\": \"capturing\"}",
		"{\"pid\": 7, \"state\": \"capturing\", \"host_parts\": {\"malloc\": 8}}",
	};
	struct state *s = empty();
	struct metrics m = { .n_requests = 0 };
	char *text;

	for (size_t i = 0; i < sizeof(running) / sizeof(*running); i++)
		add_trace(s, running[i], NULL);
	add_trace(s, FACTS("trace_1", "train", "done"),
		  "{\"host_parts\": {\"stacks\": 9, \"uss\": 1}}");
	add_process(s, 42, "train", 0, 3);
	add_process(s, 43, "train", 1, -1);
	text = written(s, &m, true);
	check_has(text, "# UNIT memtrace_host_bytes bytes");
	check_has(
		text,
		"memtrace_host_bytes{target=\"train\",process=\"0\",rank=\"3\",part=\"malloc\"} 2");
	check_has(
		text,
		"memtrace_host_bytes{target=\"train\",process=\"0\",rank=\"3\",part=\"python\"} 3");
	check_has(text, "memtrace_host_live_bytes{target=\"train\",process=\"0\",rank=\"3\"} 12");
	check_has(text, "memtrace_host_free_bytes{target=\"train\",process=\"0\",rank=\"3\"} 13");
	check_has(text, "memtrace_capture_host_bytes{target=\"train\",part=\"stacks\"} 9");
	assert_int_equal(count(text, "\nmemtrace_host_bytes{"), 2);
	assert_int_equal(count(text, "\nmemtrace_capture_host_bytes{"), 1);
	free(text);
	clear(s);
}

static void test_bounds(void **unused)
{
	static struct metrics m;
	struct state *s = empty();
	static char routes[METRICS_COUNTS + 5];
	char *text, facts[200];

	for (int i = 0; i < STATE_PROCESSES; i++) {
		struct state_process *p = add_process(s, 1 + i, "train", (unsigned)i, -1);

		for (int d = 0; d < STATE_DEVICES; d++)
			add_device(p, "cuda:0", ~0U);
	}
	for (int i = 0; i < METRICS_CAPTURES + 7; i++) {
		snprintf(facts, sizeof(facts),
			 "{\"model_name\": \"target %d\", \"state\": \"done\", \"begun\": 1}", i);
		add_trace(s, facts, "{\"device\": \"cuda:0\", \"allocated\": 7}");
	}
	for (int i = 0; i < METRICS_COUNTS + 5; i++)
		metrics__count(&m, "GET", &routes[i], 200);
	metrics__count(&m, "GET", &routes[0], 200);
	text = written(s, &m, true);
	assert_int_equal(count(text, "\nmemtrace_allocated_bytes{"), METRICS_DEVICES);
	check_has(text, "memtrace_serve_left_out{what=\"devices\"} 3072");
	assert_int_equal(count(text, "\nmemtrace_capture_timestamp_seconds{"), METRICS_CAPTURES);
	check_has(text, "memtrace_serve_left_out{what=\"captures\"} 7");
	check_has(text, "memtrace_serve_requests_total{method=\"other\",route=\"other\",status="
			"\"other\"} 5");
	check_has(text,
		  "memtrace_serve_requests_total{method=\"GET\",route=\"\",status=\"200\"} 2");
	free(text);
	clear(s);
}

/* Hostile names end neither a label nor a line. */
static void test_hostile(void **unused)
{
	struct state *s = empty();
	struct metrics m = { .n_requests = 0 };
	struct state_process *p = add_process(s, 1, "a\"} 1\nmemtrace_x 1\n\\", 0, -1);
	json_t *row, *report;
	char *text, longest[4000];

	snprintf(p->container, sizeof(p->container), "\xff\xfe\"");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	memcpy(longest + sizeof(longest) - 5, "\".py", 4);
	row = json_pack("{s:i,s:s,s:s,s:i}", "bytes", 5, "file", longest, "function",
			"f\n\xe2\x80\xae", "line", -1);
	report = json_pack("{s:s,s:i,s:[o]}", "device", "cuda:0\n", "allocated", 5, "rows", row);
	add_trace(s, FACTS("trace_1", "train", "done"), NULL);
	s->traces[0]->report = report;
	add_trace(s, FACTS("trace_2", "odd", "done"),
		  "{\"device\": 3, \"allocated\": 9223372036854775807, \"devices\": {}, "
		  "\"categories\": [],"
		  "\"rows\": [3, {\"bytes\": -9223372036854775807}, {\"bytes\": \"x\", \"line\": "
		  "1e300}]}");
	text = written(s, &m, false);
	assert_int_equal(count(text, "\nmemtrace_x"), 0);
	check_has(text,
		  "memtrace_process_info{target=\"a\\\"} 1\\\\x0amemtrace_x "
		  "1\\\\x0a\\\\\",process=\"0\",pid=\"1\",container_id=\"\\\\xff\\\\xfe\\\"\"} 1");
	assert_null(strstr(text, "\xe2\x80\xae"));
	assert_non_null(strstr(text, "x\\\".py\",line=\"-1\""));
	for (const char *line = text, *end; *line; line = end + 1) {
		end = strchr(line, '\n');
		assert_non_null(end);
		assert_true(end - line < 700);
	}
	free(text);
	clear(s);
}

#define GPU_HEAD                                                                                   \
	"{\"devices\": [{\"device\": 0, \"uuid\": \"GPU-1\", \"total\": 1000, \"used\": 900, "     \
	"\"free\": 100, "                                                                          \
	"\"reserved_by_driver\": 10, \"hidden\": 20, \"not_explained\": -5, \"slices\": ["         \
	"{\"slice\": 3, \"uuid\": \"MIG-1\", \"total\": 500, \"used\": 7}, "                       \
	"{\"slice\": 3, \"uuid\": \"MIG-2\", \"total\": 500, \"used\": 7}], \"holders\": ["

/* Figures of the machine's GPUs, with the labels of dcgm-exporter. */
static void test_gpus(void **unused)
{
	struct metrics m = { .n_requests = 0 };
	struct state *s = empty();
	char *text;

	(void)unused;
	s->gpus = json_loads(GPU_HEAD
			     "{\"pid\": 7, \"bytes\": 300, \"user\": \"a\\\"b\", \"container\": "
			     "\"c\", \"pod\": null, "
			     "\"slice\": 3, \"command\": \"python secret.py\"}, {\"pid\": 8, "
			     "\"bytes\": null}]}, "
			     "{\"device\": 1, \"uuid\": null, \"total\": null, \"holders\": []}]}",
			     0, NULL);
	assert_non_null(s->gpus);
	s->gpus_time = 1700000000.25;
	text = written(s, &m, false);
	check_has(text, "memtrace_gpu_sample_timestamp_seconds 1700000000.250000");
	check_has(text, "memtrace_gpu_memory_bytes{UUID=\"GPU-1\",gpu=\"0\"} 1000");
	check_has(text, "memtrace_gpu_used_bytes{UUID=\"GPU-1\",gpu=\"0\"} 900");
	check_has(text, "memtrace_gpu_free_bytes{UUID=\"GPU-1\",gpu=\"0\"} 100");
	check_has(text, "memtrace_gpu_driver_reserved_bytes{UUID=\"GPU-1\",gpu=\"0\"} 10");
	check_has(text, "memtrace_gpu_hidden_bytes{UUID=\"GPU-1\",gpu=\"0\"} 20");
	check_has(text, "memtrace_gpu_not_explained_bytes{UUID=\"GPU-1\",gpu=\"0\"} -5");
	check_has(text,
		  "memtrace_gpu_slice_memory_bytes{UUID=\"GPU-1\",gpu=\"0\",GPU_I_ID=\"3\"} 500");
	check_has(text, "memtrace_gpu_slice_used_bytes{UUID=\"GPU-1\",gpu=\"0\",GPU_I_ID=\"3\"} 7");
	check_has(text,
		  "memtrace_gpu_process_bytes{UUID=\"GPU-1\",gpu=\"0\",GPU_I_ID=\"3\",pid=\"7\","
		  "user=\"a\\\"b\",container=\"c\"} 300");
	/* Two compute instances of a GPU instance are one series. */
	assert_int_equal(count(text, "memtrace_gpu_slice_memory_bytes{"), 1);
	assert_int_equal(count(text, "memtrace_gpu_slice_used_bytes{"), 1);
	/* No figure, no sample; and no command line. */
	assert_int_equal(count(text, "memtrace_gpu_process_bytes{"), 1);
	assert_int_equal(count(text, "gpu=\"1\""), 0);
	assert_int_equal(count(text, "secret"), 0);
	free(text);
	clear(s);
}

/* Of many processes the largest are shown, and the sum of the others. */
static void test_many_holders(void **unused)
{
	static const unsigned order[] = { 3, 19, 1, 7,	20, 2,	18, 11, 5,  13,
					  4, 17, 6, 16, 8,  15, 9,  14, 10, 12 };
	struct metrics m = { .n_requests = 0 };
	struct state *s = empty();
	char *text, line[128];
	json_t *holders;

	(void)unused;
	s->gpus = json_loads(GPU_HEAD "]}]}", 0, NULL);
	assert_non_null(s->gpus);
	holders = json_object_get(json_array_get(json_object_get(s->gpus, "devices"), 0),
				  "holders");
	for (size_t i = 0; i < 20; i++)
		json_array_append_new(holders, json_pack("{s:i,s:i}", "pid", (int)order[i], "bytes",
							 (int)order[i] * 100));
	text = written(s, &m, true);
	assert_int_equal(count(text, "memtrace_gpu_process_bytes{"), METRICS_HOLDERS + 1);
	for (int i = 5; i <= 20; i++) {
		snprintf(line, sizeof(line),
			 "memtrace_gpu_process_bytes{UUID=\"GPU-1\",gpu=\"0\",pid=\"%d\"} %d", i,
			 i * 100);
		check_has(text, line);
	}
	check_has(text, "memtrace_gpu_process_bytes{UUID=\"GPU-1\",gpu=\"0\",pid=\"rest\"} 1000");
	free(text);
	clear(s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpus),	    cmocka_unit_test(test_many_holders),
		cmocka_unit_test(test_nothing_yet), cmocka_unit_test(test_figures),
		cmocka_unit_test(test_captures),    cmocka_unit_test(test_host),
		cmocka_unit_test(test_bounds),	    cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
