/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* docs/FORMAT.md says what the writer does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <inttypes.h>
#include <sys/wait.h>

#include "mtr_util.h"

/* ---- the example of docs/FORMAT.md ---- */

static size_t example_bytes(uint8_t *dst, size_t room)
{
	FILE *doc = fopen("docs/FORMAT.md", "r");
	char line[256];
	bool inside = false;
	size_t n = 0;

	if (!doc)
		return 0;
	while (fgets(line, sizeof(line), doc)) {
		unsigned int byte;
		int used;

		if (!strncmp(line, "```", 3)) {
			inside = !strcmp(line, "```hex\n");
			continue;
		}
		/* "0010  01 02 03   what it says" */
		for (char *p = line + 6; inside && sscanf(p, "%2x%n", &byte, &used) == 1 && used == 2; p += 3) {
			assert_true(n < room);
			dst[n++] = (uint8_t)byte;
			if (p[2] != ' ' || p[3] == ' ')
				break;
		}
	}
	fclose(doc);
	return n;
}

static void test_example(void **state)
{
	struct world w = { .d = dict__new(), .f = facts__new() };
	const struct device gpu = { DEVICE_CUDA, 0 };
	uint32_t file = dict__string(w.d, "train.py", 8), func = dict__string(w.d, "main", 4);
	struct dict_frame frame = { dict__loc(w.d, (struct dict_loc){ file, func, 7 }), 0 };
	uint32_t stack = dict__stack(w.d, &frame, 1, MT_WALK_OK);
	uint32_t thread = dict__thread(w.d, (struct dict_thread){ 4242, dict__string(w.d, "python", 6) });
	struct events l = { 0 };
	struct event e = { .kind = EVENT_ALLOC, .device = gpu, .thread = thread, .stack = stack, .time = 1000000,
			   .addr = 0x7f3210000000, .size = 1024, .totals = true, .allocated = 1024, .reserved = 2097152 };
	uint8_t want[1024], *got;
	size_t n, len;
	int fd = memory_file();

	(void)state;
	facts__set(w.f, "comm", "python");
	events__add(&l, &e);
	e.time += 20000;
	e.kind = EVENT_FREE;
	e.stack = 0;
	e.allocated = 0;
	events__add(&l, &e);
	write_events(&w, fd, &l, 0);
	got = file_bytes(fd, &len);
	n = example_bytes(want, sizeof(want));
	if (n != len || memcmp(want, got, n)) {
		for (size_t i = 0; i < len; i++)
			print_message("%02x%s", got[i], i % 16 == 15 ? "\n" : " ");
		print_message("\n");
	}
	assert_int_equal(n, len);
	assert_memory_equal(got, want, n);
	free(got);
	events__free(&l);
	world__free(&w);
	close(fd);
}

/* ---- a reader that knows docs/FORMAT.md and nothing of this code ---- */

static void write_random(struct world *w, int fd, struct events *l)
{
	struct gen g = { .rng = 4242 };

	for (int i = 0; i < 5000; i++)
		add_random(w, &g, l);
	write_events(w, fd, l, 700);
}

static void test_other_reader(void **state)
{
	static const char *const kinds[] = { "", "alloc", "free", "oom", "step", "call", "lost" };
	char path[] = "/tmp/memtrace-test-XXXXXX", command[128], line[512], want[512];
	struct world w = world__new();
	struct events l = { 0 };
	int fd = mkstemp(path), status;
	FILE *out;

	(void)state;
	assert_true(fd >= 0);
	write_random(&w, fd, &l);
	close(fd);
	snprintf(command, sizeof(command), "python3 tests/e2e/mtr_reader.py %s", path);
	out = popen(command, "r");
	assert_non_null(out);
	for (size_t i = 0; fgets(line, sizeof(line), out) && line[0] != '#'; i++) {
		const struct event *e = &l.e[i];

		assert_true(i < l.n);
		snprintf(want, sizeof(want),
			 "%s %u %u %u %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
			 kinds[e->kind], e->walk, e->totals, e->device.type, e->device.index, e->thread, e->stack,
			 e->module, e->time, e->addr, e->size, e->allocated, e->reserved);
		assert_string_equal(line, want);
		l.e[i].kind = 0;
	}
	while (fgets(line, sizeof(line), out))
		;
	status = pclose(out);
	unlink(path);
	if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
		print_message("SKIP: needs python3 and libzstd\n");
		skip();
	}
	assert_int_equal(status, 0);
	for (size_t i = 0; i < l.n; i++)
		assert_int_equal(l.e[i].kind, 0); /* all came */
	events__free(&l);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_example),
		cmocka_unit_test(test_other_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
