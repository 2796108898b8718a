/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* report of processes on one GPU: one moment for all, and what is not known then. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <locale.h>

#include "base/exit.h"
#include "unit/report_tape.h"
#include "unit/scratch.h"

#define UUID "GPU-7c0ffee0-1111-2222-3333-444455556666"

static char dir[] = "/tmp/test_shared_gpus.XXXXXX";
static char trainer[64], engine[64];

/* The time of the trainer's peak, 164 MiB, is 1000.2 s since 1970. */
#define PEAK (UINT64_C(1000200) * MS)

static struct device device(int index)
{
	return (struct device){ .type = DEVICE_CUDA, .index = (uint16_t)index };
}

/* A recording of process `pid` whose time 0 is at zero (ms since 1970; 0: it does not have it) and
 * whose device `index` is the GPU. */
static struct tape begin(char *path, const char *name, int pid, unsigned long long zero, int index)
{
	char key[64];
	struct tape t;

	snprintf(path, 64, "%s/%s.mtr", dir, name);
	t = tape__new(path);
	facts__setf(t.f, "pid", "%d", pid);
	facts__setf(t.f, "process_started", "%d", 100 * pid);
	facts__set(t.f, "hostname", "one");
	if (zero)
		facts__setf(t.f, "clock_zero_ns", "%llu", zero * (unsigned long long)MS);
	snprintf(key, sizeof(key), "device.%d.uuid", index);
	facts__set(t.f, key, UUID);
	snprintf(key, sizeof(key), "device.%d.total", index);
	facts__setf(t.f, key, "%llu", 256ull * MIB);
	snprintf(key, sizeof(key), "device.%d.name", index);
	facts__set(t.f, key, "NVIDIA \x1b[2JH200");
	t.reserved = 200 * MIB;
	return t;
}

static void dealloc(struct tape *t, struct device d, uint64_t addr, uint64_t size)
{
	put(t, (struct event){ .kind = EVENT_FREE, .device = d, .addr = addr, .size = size });
}

/* 164 MiB at 0.2 s, then 64 MiB. The driver counts 216 MiB at the peak. */
static void write_trainer(void)
{
	struct tape t = begin(trainer, "trainer", 11, 1000000, 0);

	alloc(&t, CUDA, 0x1000, 64 * MIB, 0);
	t.time -= 50 * MS;
	put(&t, (struct event){ .kind = EVENT_USED, .device = CUDA, .size = 216 * MIB });
	t.time -= 50 * MS;
	alloc(&t, CUDA, 0x40000000, 100 * MIB, 0);
	dealloc(&t, CUDA, 0x40000000, 100 * MIB);
	tape__close(&t);
}

/* Begins a second earlier and sees the GPU as cuda:1: 120 MiB at the trainer's peak, its own peak
 * of 140 MiB later. */
static void write_engine(void)
{
	struct tape t = begin(engine, "engine", 12, 999000, 1);
	struct device d = device(1);

	t.reserved = 100 * MIB;
	alloc(&t, d, 0x1000, 80 * MIB, 0);
	put(&t, (struct event){ .kind = EVENT_USED, .device = d, .size = 110 * MIB });
	t.reserved = 150 * MIB;
	t.time = 1050 * MS;
	alloc(&t, d, 0x40000000, 40 * MIB, 0); /* 1.15 s: 0.05 s before the peak */
	dealloc(&t, d, 0x1000, 80 * MIB);      /* 1.25 s */
	alloc(&t, d, 0x80000000, 100 * MIB, 0);
	tape__close(&t);
}

static int setup(void **state)
{
	(void)state;
	setenv("COLUMNS", "200", 1);
	assert_non_null(mkdtemp(dir));
	write_trainer();
	write_engine();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return scratch__remove(dir);
}

static json_t *document(struct output *o)
{
	json_t *doc;

	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(doc);
	return doc;
}

/* Asserts that the document has one GPU. Returns its process with this PID; NULL: it has none. */
static json_t *process_of(json_t *doc, int pid)
{
	json_t *gpus = json_object_get(doc, "gpus"), *p, *found = NULL;
	size_t i;

	assert_int_equal(json_array_size(gpus), 1);
	json_array_foreach(json_object_get(json_array_get(gpus, 0), "processes"), i, p) {
		if (json_integer_value(json_object_get(p, "pid")) != pid)
			continue;
		assert_null(found);
		found = p;
	}
	return found;
}

static json_int_t number(json_t *o, const char *key)
{
	json_t *value = json_object_get(o, key);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void assert_state(json_t *doc, int pid, const char *state)
{
	static const char *const figures[] = { "time",	   "allocated", "allocated_is",
					       "reserved", "asleep",	"driver_used" };
	json_t *p = process_of(doc, pid);

	assert_non_null(p);
	assert_string_equal(json_string_value(json_object_get(p, "state")), state);
	for (size_t i = 0; i < sizeof(figures) / sizeof(*figures) && strcmp(state, "read") != 0;
	     i++)
		assert_true(json_is_null(json_object_get(p, figures[i])));
}

static void test_one_moment(void **state)
{
	json_t *doc = document(report("--together", "--format", "json", engine, trainer, NULL));
	json_t *gpu = json_array_get(json_object_get(doc, "gpus"), 0), *p;

	(void)state;
	assert_string_equal(json_string_value(json_object_get(gpu, "uuid")), UUID);
	assert_string_equal(json_string_value(json_object_get(gpu, "host")), "one");
	assert_int_equal(number(gpu, "total"), 256 * MIB);
	assert_int_equal(number(gpu, "moment_ns"), PEAK);
	assert_int_equal(number(gpu, "moment_of"), 1);
	assert_int_equal(number(gpu, "clock_moved_ns"), 0);
	p = process_of(doc, 11);
	assert_ptr_equal(p, json_array_get(json_object_get(gpu, "processes"), 0));
	assert_int_equal(number(p, "recording"), 1);
	assert_int_equal(number(p, "allocated"), 164 * MIB);
	assert_int_equal(number(p, "reserved"), 200 * MIB);
	assert_int_equal(number(p, "driver_used"), 216 * MIB);
	p = process_of(doc, 12);
	assert_string_equal(json_string_value(json_object_get(p, "device")), "cuda:1");
	assert_true(json_real_value(json_object_get(p, "time")) == 1.2);
	assert_int_equal(number(p, "allocated"), 120 * MIB);
	assert_int_equal(number(p, "reserved"), 150 * MIB);
	assert_int_equal(number(p, "asleep"), 0);
	assert_true(json_is_null(json_object_get(p, "driver_used")));
	json_decref(doc);
}

static void test_text(void **state)
{
	struct output *o = report("--bars", trainer, engine, NULL);
	const char *at = strstr(o->out, "2 processes on one GPU");

	(void)state;
	assert_int_equal(o->status, 0);
	assert_non_null(at);
	assert_non_null(strstr(at, " at the highest peak, 0.20 s of trainer: NVIDIA "));
	assert_null(strchr(at, '\x1b'));
	assert_non_null(strstr(at, "256.00 MiB, " UUID));
	assert_non_null(strstr(at, "trainer, PID 11\n"));
	assert_non_null(strstr(at, "engine, PID 12\n"));
	assert_non_null(strstr(at, "120.00 MiB"));
	assert_non_null(strstr(at, "nothing is added up"));
	assert_null(strstr(at, "284.00 MiB")); /* the sum */
	o = report("--device", "cuda:7", trainer, engine, NULL);
	assert_null(strstr(o->out, "one GPU"));
	o = report("--format", "csv", "--together", trainer, engine, NULL);
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->out, "GPU"));
}

/* The sum of the allocators says that it counts processes on one GPU. */
static void test_sum(void **state)
{
	struct output *o = report("--together", trainer, engine, NULL);

	(void)state;
	assert_non_null(strstr(o->out, "Together: 304.00 MiB, each at its own peak\n"
				       "it counts 2 processes on one GPU at different times: the "
				       "bars show each GPU at one moment\n"));
	o = report("--together", "--at", "end", trainer, engine, NULL);
	assert_non_null(strstr(o->out, "it counts 2 processes on one GPU: the bars show each GPU"));
	o = report("--together", "--at", "end", trainer, NULL);
	assert_null(strstr(o->out, "it counts"));
}

/* Processes without a figure at the moment say why. The same GPU on another host is another one. */
static void test_unknown(void **state)
{
	static const struct {
		const char *name, *why, *state;
		int pid;
		unsigned long long zero;
	} cases[] = {
		{ "later", NULL, "not_begun", 21, 1000201 },
		{ "ended", "target exited", "ended", 22, 968000 },
		{ "stopped", NULL, "not_recorded", 23, 968000 },
		{ "clockless", NULL, "no_clock", 24, 0 },
		{ "whole", NULL, "read", 25, 999000 },
	};
	char path[5][64], far[64];
	struct output *o;
	struct tape t;
	json_t *doc;

	(void)state;
	for (int i = 0; i < 5; i++) {
		t = begin(path[i], cases[i].name, cases[i].pid, cases[i].zero, 0);
		alloc(&t, CUDA, 0x1000, 8 * MIB, 0);
		tape__close_as(&t, cases[i].why ?: "signal");
	}
	t = begin(far, "far", 26, 999000, 0);
	facts__set(t.f, "hostname", "two");
	alloc(&t, CUDA, 0x1000, 8 * MIB, 0);
	tape__close(&t);
	doc = document(report("--together", "--format", "json", trainer, path[0], path[1], path[2],
			      path[3], path[4], far, NULL));
	for (int i = 0; i < 5; i++)
		assert_state(doc, cases[i].pid, cases[i].state);
	assert_null(process_of(doc, 26));
	json_decref(doc);
	o = report(trainer, path[0], path[1], path[2], path[3], NULL);
	assert_non_null(strstr(o->out, "later, PID 21: not known, its recording begins later\n"));
	assert_non_null(strstr(o->out, "ended, PID 22: not known, it had ended\n"));
	assert_non_null(
		strstr(o->out, "stopped, PID 23: not known, its recording ended earlier\n"));
	assert_non_null(
		strstr(o->out, "clockless, PID 24: not known, its recording has no clock\n"));
	/* Without any clock there is no moment. */
	doc = document(report("--together", "--format", "json", path[3], engine, NULL));
	assert_state(doc, 24, "no_clock");
	assert_state(doc, 12, "read");
	json_decref(doc);
}

/* Two recordings of one process are one process: that which covers the moment counts. */
static void test_two_recordings_of_one(void **state)
{
	char path[64];
	struct tape t = begin(path, "window", 12, 1000300, 1);
	json_t *doc;

	(void)state;
	alloc(&t, device(1), 0x1000, 30 * MIB, 0);
	tape__close(&t);
	doc = document(report("--together", "--format", "json", path, engine, trainer, NULL));
	assert_int_equal(number(process_of(doc, 12), "allocated"), 120 * MIB);
	json_decref(doc);
	/* One process alone is no GPU of several. */
	doc = document(report("--together", "--format", "json", path, engine, NULL));
	assert_null(json_object_get(doc, "gpus"));
	json_decref(doc);
}

/* Returns the document of a report whose moment the engine does not have. */
static json_t *document_without(const char *at, const char *path)
{
	struct output *o = report("--together", "--format", "json", "--at", at, path, engine, NULL);
	json_t *doc = json_loads(o->out, JSON_REJECT_DUPLICATES, NULL), *p;

	assert_int_equal(o->status, EXIT_UNUSABLE);
	assert_non_null(strstr(o->err, "engine.mtr: no "));
	assert_null(strchr(o->err, '\n')[1] ? o->err : NULL); /* one line */
	p = process_of(doc, 12);
	assert_true(json_is_null(json_object_get(p, "recording")));
	assert_string_equal(json_string_value(json_object_get(p, "name")), "engine");
	assert_int_equal(number(p, "allocated"), 120 * MIB);
	return doc;
}

/* At a moment of one process, the others do not have that moment: an error, a mark. */
static void test_moment_of_one(void **state)
{
	static const char *const moments[] = { "oom", "mark:sync" };
	char path[64];
	struct tape t = begin(path, "refused", 31, 1000000, 0);

	(void)state;
	alloc(&t, CUDA, 0x1000, 10 * MIB, 0);
	put(&t, (struct event){ .kind = EVENT_MARK, .name = str(&t, "sync") });
	t.time -= 100 * MS;
	put(&t, (struct event){ .kind = EVENT_OOM, .device = CUDA, .size = 90 * MIB });
	alloc(&t, CUDA, 0x40000000, 90 * MIB, 0);
	tape__close(&t);
	for (size_t i = 0; i < sizeof(moments) / sizeof(*moments); i++) {
		json_t *doc = document_without(moments[i], path);

		assert_int_equal(number(process_of(doc, 31), "allocated"), 10 * MIB);
		assert_int_equal(number(process_of(doc, 31), "recording"), 0);
		json_decref(doc);
	}
}

static void below(struct tape *t, uint8_t kind, uint8_t how)
{
	put(t, (struct event){ .kind = kind,
			       .how = how,
			       .device = CUDA,
			       .addr = how == MEM_PHYSICAL ? 77 : 0x40000000,
			       .size = 64 * MIB });
}

/* Memory of a server that sleeps is reserved and not on the GPU. */
static void test_asleep(void **state)
{
	char path[64];
	struct tape t = begin(path, "server", 41, 999000, 0);
	struct output *o;
	json_t *doc;

	(void)state;
	t.reserved = 64 * MIB;
	below(&t, EVENT_CUDA_ALLOC, MEM_RESERVED);
	below(&t, EVENT_CUDA_ALLOC, MEM_PHYSICAL);
	below(&t, EVENT_CUDA_ALLOC, MEM_MAPPED);
	alloc(&t, CUDA, 0x40000000, 60 * MIB, 0);
	put(&t, (struct event){ .kind = EVENT_SEGMENT,
				.device = CUDA,
				.addr = 0x40000000,
				.size = 64 * MIB,
				.pool = { 0, 1 } });
	below(&t, EVENT_CUDA_FREE, MEM_MAPPED);
	below(&t, EVENT_CUDA_FREE, MEM_PHYSICAL);
	tape__close(&t);
	doc = document(report("--together", "--format", "json", path, trainer, NULL));
	assert_int_equal(number(process_of(doc, 41), "allocated"), 60 * MIB);
	assert_int_equal(number(process_of(doc, 41), "reserved"), 64 * MIB);
	assert_int_equal(number(process_of(doc, 41), "asleep"), 64 * MIB);
	json_decref(doc);
	o = report(path, trainer, NULL);
	assert_non_null(strstr(o->out, "server: 64.00 MiB of its reserved memory is not on the GPU "
				       "(sleep mode)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_moment),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_sum),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_two_recordings_of_one),
		cmocka_unit_test(test_moment_of_one),
		cmocka_unit_test(test_asleep),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, setup, teardown);
}
