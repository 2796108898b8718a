/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The writer follows docs/reference/mtr.md. */
#include "unit/cmocka.h"

#include <inttypes.h>
#include <sys/wait.h>

#include "mtr_util.h"

/* ---- the example of docs/reference/mtr.md ---- */

static size_t example_bytes(uint8_t *dst, size_t room)
{
	FILE *doc = fopen("docs/reference/mtr.md", "r");
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
		/* "0010  01 02 03   comment" */
		for (char *p = line + 6;
		     inside && sscanf(p, "%2x%n", &byte, &used) == 1 && used == 2; p += 3) {
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
	uint32_t thread = dict__thread(w.d, (struct dict_thread){ 4242,
								  dict__string(w.d, "python", 6) });
	struct events l = { 0 };
	struct event e = { .kind = EVENT_ALLOC,
			   .device = gpu,
			   .thread = thread,
			   .stack = stack,
			   .time = 1000000,
			   .addr = 0x7f3210000000,
			   .size = 1024,
			   .totals = true,
			   .allocated = 1024,
			   .reserved = 2097152 };
	uint8_t want[1024], *got;
	size_t n, len;
	int fd = memory_file();

	facts__set(w.f, "comm", "python");
	events__add(&l, &e);
	events__add(&l, &(struct event){ .kind = EVENT_REQUESTED,
					 .device = gpu,
					 .thread = thread,
					 .time = e.time + 1000,
					 .addr = e.addr,
					 .requested = 1000 });
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

/* ---- a reader written from docs/reference/mtr.md, independent of user/record ---- */

static void write_random(struct world *w, int fd, struct events *l)
{
	struct gen g = { .rng = 4242 };

	for (int i = 0; i < 5000; i++)
		add_random(w, &g, l);
	write_events(w, fd, l, 700);
}

static void test_other_reader(void **state)
{
	static const char *const kinds[] = { "",       "alloc", "free",	 "oom",	 "step",
					     "call",   "lost",	"take",	 "give", "segment",
					     "block",  "state", "asked", "used", "tensor",
					     "census", "enter", "leave", "mark", "left",
					     "host",   "scope" };
	char path[] = "/tmp/memtrace-test-XXXXXX", command[128], line[512], want[512];
	struct world w = world__new();
	struct events l = { 0 };
	int fd = mkstemp(path), status;
	FILE *out;

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
			 "%s %u %u %u %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
			 " %" PRIu64 " %u %u %" PRIu64 " %" PRIu64 " %u %u %u %" PRIu64 " %" PRIu64
			 "\n",
			 kinds[e->kind], e->walk, e->totals, e->device.type, e->device.index,
			 e->thread, e->stack, e->module, e->time, e->addr, e->size, e->allocated,
			 e->reserved, e->how, e->flags, e->requested, e->cuda_stream, e->node,
			 e->name, e->category, e->pool[0], e->pool[1]);
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
		assert_int_equal(l.e[i].kind, 0); /* all events were read */
	events__free(&l);
	world__free(&w);
}

/* ---- older versions ---- */

static const char *const old_kinds[] = { "",	  "alloc", "free",   "oom",	"step",	 "call",
					 "lost",  "take",  "give",   "segment", "block", "state",
					 "asked", "used",  "tensor", "census",	"enter", "leave",
					 "mark",  "left",  "host" };

/*
 * tests/data/recording-v<version>.bin is from the time of that version; the text is the output of
 * an independent reader.
 */
static void check_old(unsigned int version, int events)
{
	char path[64];
	FILE *text;
	struct mtr_reader *r;
	char line[512], want[512], later[48] = "";
	struct event e;
	int n = 0;

	snprintf(path, sizeof(path), "tests/data/recording-v%u.txt", version);
	text = fopen(path, "r");
	snprintf(path, sizeof(path), "tests/data/recording-v%u.bin", version);
	r = mtr_reader__open(path, NULL);
	assert_non_null(text);
	assert_non_null(r);
	assert_int_equal(mtr_reader__version(r), version);
	while (mtr_reader__next(r, &e) == 1) {
		assert_non_null(fgets(want, sizeof(want), text));
		assert_in_range(e.kind, EVENT_ALLOC,
				version == 1   ? EVENT_LOST
				: version == 2 ? EVENT_USED
				: version == 3 ? EVENT_LEAVE
				: version == 5 ? EVENT_LEFT
					       : EVENT_HOST);
		if (version >= 3)
			snprintf(later, sizeof(later), " %u %u %u", e.node, e.name, e.category);
		snprintf(line, sizeof(line),
			 "%s %u %u %u %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
			 " %" PRIu64 " %u %u %" PRIu64 " %" PRIu64 "%s %" PRIu64 " %" PRIu64,
			 old_kinds[e.kind], e.walk, e.totals, e.device.type, e.device.index,
			 e.thread, e.stack, e.module, e.time, e.addr, e.size, e.allocated,
			 e.reserved, e.how, e.flags, e.requested, e.cuda_stream, later, e.pool[0],
			 e.pool[1]);
		want[strcspn(want, "\n")] = '\0';
		if (version == 1) /* fields that did not exist are 0 */
			strcat(want, " 0 0 0 0 0 0");
		assert_string_equal(line, want);
		assert_true(version >= 3 || (!e.node && !e.name && !e.category));
		n++;
	}
	assert_int_equal(n, events);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	assert_non_null(fgets(want, sizeof(want), text));
	assert_string_equal(want, "# comm python\n");
	assert_string_equal(facts__get(mtr_reader__facts(r), "comm"), "python");
	mtr_reader__free(r);
	fclose(text);
}

static void test_old_versions(void **state)
{
	check_old(1, 140);
	check_old(2, 200);
	check_old(3, 220);
	check_old(5, 240);
	check_old(6, 240);
}

/* Later additions are damage in a file of an older version. */
static void test_old_versions_have_less(void **state)
{
	const struct {
		struct event e;
		char since;
	} list[] = {
		{ { .kind = EVENT_CUDA_ALLOC }, 2 }, { { .kind = EVENT_REQUESTED }, 2 },
		{ { .kind = EVENT_STATE }, 2 },	     { { .kind = EVENT_FREE, .how = 1 }, 2 },
		{ { .kind = EVENT_FREE }, 1 },	     { { .kind = EVENT_TENSOR }, 3 },
		{ { .kind = EVENT_CENSUS }, 3 },     { { .kind = EVENT_ENTER }, 3 },
		{ { .kind = EVENT_LEAVE }, 3 },	     { { .kind = EVENT_ALLOC, .node = 1 }, 3 },
		{ { .kind = EVENT_MARK }, 4 },	     { { .kind = EVENT_LEFT }, 5 },
		{ { .kind = EVENT_HOST }, 6 },	     { { .kind = EVENT_SCOPE }, 7 },
	};

	for (size_t i = 0; i < 6 * sizeof(list) / sizeof(list[0]); i++) {
		const struct event *e = &list[i / 6].e;
		char version = (char)(1 + i % 6);
		bool good = version >= list[i / 6].since;
		struct events l = { 0 }, got = { 0 };
		struct world w = e->node ? world__new()
					 : (struct world){ .d = dict__new(), .f = facts__new() };
		int fd = memory_file();
		struct mtr_reader *r;

		events__add(&l, e);
		write_events(&w, fd, &l, 0);
		assert_int_equal(pwrite(fd, &version, 1, 8), 1);
		r = read_all(fd, &got);
		assert_int_equal(mtr_reader__end(r, NULL, NULL), good ? MTR_COMPLETE : MTR_DAMAGED);
		assert_int_equal(got.n, good);
		mtr_reader__free(r);
		events__free(&l);
		events__free(&got);
		world__free(&w);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_example),
		cmocka_unit_test(test_other_reader),
		cmocka_unit_test(test_old_versions),
		cmocka_unit_test(test_old_versions_have_less),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
