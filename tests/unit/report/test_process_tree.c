/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* report of the processes of one program: which started which, sums, names, hostile facts. */
#include "unit/cmocka.h"

#include <jansson.h>

#include "report/dump/process_tree.h"
#include "unit/golden.h"
#include "unit/report_tape.h"
#include "unit/scratch.h"

#define SEC UINT64_C(1000000000)
#define SPAWN "python -c from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=7)"
#define SERVER "python -c from multiprocessing.forkserver import main; main(12, 13, [])"
#define ROUTER                                                                                     \
	"{\"pid\": 10, \"started\": 1000000000, \"title\": \"python -u /srv/router.py --port 1\"}"
#define ENGINE "{\"pid\": 20, \"started\": 2000000000, \"title\": \"" SPAWN "\"}"
#define FORKER "{\"pid\": 30, \"started\": 3000000000, \"title\": \"" SERVER "\"}"

static char dir[] = "/tmp/test_process_tree.XXXXXX";
static char files[5][64];

static void write_process(int i, const char *pid, const char *started, const char *name,
			  const char *ancestors, uint64_t mib)
{
	struct tape t = tape__new(files[i]);
	struct dict_frame own[] = { frame(&t, "/srv/engine.py", "load", 3, NULL) };
	struct dict_frame map[] = { frame(&t, SP "multiprocessing/reductions.py",
					  "rebuild_storage_fd", 545, NULL) };

	facts__set(t.f, "pid", pid);
	if (started)
		facts__set(t.f, "process_started", started);
	if (name)
		facts__set(t.f, "process_name", name);
	if (ancestors)
		facts__set(t.f, "ancestors", ancestors);
	alloc(&t, CPU, 0x1000, mib * MIB, dict__stack(t.d, own, 1, MT_WALK_OK));
	if (i == 2)
		alloc(&t, CPU, 0x2000, 8 * MIB, dict__stack(t.d, map, 1, MT_WALK_OK));
	tape__close(&t);
}

static int setup(void **state)
{
	setenv("COLUMNS", "100", 1);
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < 5; i++)
		snprintf(files[i], sizeof(files[i]), "%s/p%d.mtr", dir, i);
	write_process(0, "20", "2000000000", "EngineCore", "[" ROUTER "]", 64);
	write_process(1, "42", "5000000000", "Worker_1", "[" FORKER "," ENGINE "," ROUTER "]", 24);
	write_process(2, "41", "4000000000", "Worker_0", "[" FORKER "," ENGINE "," ROUTER "]", 24);
	write_process(3, "50", "2500000000", NULL, NULL, 1);
	write_process(4, "20", NULL, "EngineCore", "[" ROUTER "]", 1);
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(dir);
}

static void test_text(void **state)
{
	struct output *o = report(files[1], files[0], files[2], NULL);

	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	expect_golden(o->out, "report-processes.txt");
}

static void test_when(void **state)
{
	const char *tree = "recordings of one process tree";

	assert_null(strstr(report("--apart", files[0], files[1], NULL)->out, tree));
	/* Another program; a recording that does not say when its process started. */
	assert_null(strstr(report(files[0], files[1], files[3], NULL)->out, tree));
	assert_null(strstr(report(files[4], files[1], NULL)->out, tree));
	assert_non_null(strstr(report(files[2], files[1], NULL)->out, tree));
}

static json_int_t integer(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_null(v) ? -1 : json_integer_value(v);
}

static void test_json(void **state)
{
	static const struct {
		int pid, parent, recording;
		const char *name;
		int own, all; /* MiB; -1: none */
	} want[] = {
		{ 10, -1, -1, "router.py", -1, 120 }, { 20, 0, 1, "EngineCore", 64, 120 },
		{ 30, 1, -1, "fork server", -1, 56 }, { 41, 2, 2, "Worker_0", 32, 32 },
		{ 42, 2, 0, "Worker_1", 24, 24 },
	};
	struct output *o = report("--together", "--format", "json", files[1], files[0], files[2],
				  NULL);
	json_t *doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL);
	const json_t *list = json_object_get(doc, "processes"), *all;

	assert_true(json_is_true(json_object_get(doc, "one_tree")));
	assert_false(json_is_true(json_object_get(doc, "one_job")));
	assert_int_equal(json_array_size(list), 5);
	for (size_t i = 0; i < 5; i++) {
		const json_t *p = json_array_get(list, i);
		json_int_t own = integer(p, "allocated");

		assert_int_equal(integer(p, "pid"), want[i].pid);
		assert_int_equal(integer(p, "parent"), want[i].parent);
		assert_int_equal(integer(p, "recording"), want[i].recording);
		assert_string_equal(json_string_value(json_object_get(p, "name")), want[i].name);
		assert_int_equal(own < 0 ? own : own / (json_int_t)MIB, want[i].own);
		assert_int_equal(integer(p, "allocated_with_children") / (json_int_t)MIB,
				 want[i].all);
	}
	all = json_object_get(doc, "recordings");
	assert_int_equal(integer(json_array_get(all, 0), "shared"), 0);
	assert_int_equal(integer(json_array_get(all, 2), "shared"), 8 * MIB);
	json_decref(doc);
}

static struct process_facts of(const char *pid, const char *started, const char *ancestors)
{
	struct facts *f = facts__new();
	struct process_facts ret;

	facts__set(f, "pid", pid);
	facts__set(f, "process_started", started);
	facts__set(f, "ancestors", ancestors);
	facts__set(f, "process_name", "a\x1b[2J\xe2\x80\xae");
	process_facts__read(&ret, f, "python");
	facts__free(f);
	return ret;
}

static void test_hostile(void **state)
{
	static const char *const bad[] = {
		"",
		"{",
		"{}",
		"[1, null]",
		"[{\"pid\": -1, \"started\": 1}]",
		"null",
		"[[]]",
		"[{\"pid\": 7}]",
		"[{\"pid\": 1e99, \"started\": \"x\"}]",
	};
	struct process_tree t = { 0 };
	struct process_facts f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		f = of("1", "1", bad[i]);
		assert_int_equal(f.n_ancestors, 0);
	}
	assert_null(strchr(f.name, '\x1b'));
	f = of("1", "1",
	       "[{\"pid\":2,\"started\":1,\"title\":\"\\u001b[2J\"},"
	       "{\"pid\":3,\"started\":1},{\"pid\":4,\"started\":1},"
	       "{\"pid\":5,\"started\":1},{\"pid\":6,\"started\":1},"
	       "{\"pid\":7,\"started\":1},{\"pid\":8,\"started\":1},"
	       "{\"pid\":9,\"started\":1},{\"pid\":10,\"started\":1}]");
	assert_int_equal(f.n_ancestors, PROCESS_ANCESTORS);
	assert_null(strchr(f.ancestors[0].title, '\x1b'));

	/* A circle, and a process that is its own ancestor. */
	f = of("1", "1", "[{\"pid\":2,\"started\":2}]");
	assert_int_equal(process_tree__add(&t, &f, 0, 5), 0);
	f = of("2", "2", "[{\"pid\":3,\"started\":3},{\"pid\":1,\"started\":1}]");
	assert_int_equal(process_tree__add(&t, &f, 1, 7), 0);
	f = of("4", "4", "[{\"pid\":4,\"started\":4}]");
	assert_int_equal(process_tree__add(&t, &f, 2, 1), 0);
	assert_int_equal(process_tree__finish(&t), 0);
	assert_int_equal(t.n, 4);
	assert_int_equal(t.roots, 2);
	assert_int_equal(t.all[0].id.pid, 3);
	assert_int_equal(t.all[0].all, 12);
	assert_int_equal(t.all[2].depth, 2);
	process_tree__free(&t);
}

static void test_names(void **state)
{
	static const char *const names[][2] = {
		{ "python -u /srv/a/app.py --x", "app.py" },
		{ "python3.12 -m uvicorn app:main", "python3.12 -m uvicorn app:main" },
		{ "python", "python" },
		{ "VLLM::EngineCore    ", "VLLM::EngineCore" },
		{ SPAWN, "spawned process" },
		{ SERVER, "fork server" },
		{ "", "process" },
	};
	struct process_id id = { .pid = 1 };
	char buf[PROCESS_NAME];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(id.title, sizeof(id.title), "%s", names[i][0]);
		assert_string_equal(process_id__name(&id, "", buf), names[i][1]);
		assert_string_equal(process_id__name(&id, "own", buf), "own");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),  cmocka_unit_test(test_when),
		cmocka_unit_test(test_json),  cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
