/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* report on generated recordings: byte by byte as text, parsed as JSON and CSV. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <math.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cmd/commands.h"
#include "memtrace.h"
#include "model/analysis.h"
#include "record/dict.h"
#include "record/host.h"
#include "record/mtr.h"
#include "record/oom.h"
#include "unit/golden.h"
#include "unit/report_tape.h"
#include "unit/scratch.h"

static char dir[] = "/tmp/test_report.XXXXXX";
static char from_start[64], segmented[64], recording[64], cpu_recording[64], drifting[64], odd[64],
	cut[64], damaged[64], named[64], blocks[64], read_once[64], window[64];

/* 100 MiB from before attach; at the peak 64 + 2 * 8 + 5 + 1 MiB recorded. */
static void write_recording(void)
{
	struct tape t = tape__new(recording);
	struct dict_frame fwd[] = {
		frame(&t, "/home/u/gemma/gemma/model.py", "Attention.forward", 336, NULL),
		frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775,
		      "layers.7.self_attn"),
		frame(&t, "/home/u/gemma/gemma/model.py", "Gemma.forward", 100, NULL),
		frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775, ""),
		frame(&t, "/home/u/gemma/train.py", "<module>", 12, NULL),
	};
	struct dict_frame opt[] = {
		frame(&t, SP "optim/adamw.py", "AdamW._init_group", 150, NULL),
		frame(&t, "/home/u/gemma/train.py", "<module>", 20, NULL),
	};
	uint32_t a = dict__stack(t.d, fwd, 5, MT_WALK_OK),
		 b = dict__stack(t.d, fwd + 2, 3, MT_WALK_OK);
	uint32_t c = dict__stack(t.d, opt, 2, MT_WALK_OK);

	t.total = 100 * MIB;
	t.reserved = 256 * MIB;
	alloc(&t, CUDA, 0x1000, 64 * MIB, a);
	alloc(&t, CUDA, 0x2000, 8 * MIB, b);
	put(&t, (struct event){ .kind = EVENT_STEP });
	alloc(&t, CUDA, 0x3000, 8 * MIB, b);
	alloc(&t, CUDA, 0x4000, 5 * MIB, c);
	put(&t, (struct event){ .kind = EVENT_ALLOC,
				.device = CUDA,
				.addr = 0x5000,
				.size = MIB,
				.walk = MT_WALK_NO_FRAME,
				.thread = t.native });
	put(&t,
	    (struct event){ .kind = EVENT_FREE, .device = CUDA, .addr = 0x99, .size = 10 * MIB });
	put(&t,
	    (struct event){ .kind = EVENT_FREE, .device = CUDA, .addr = 0x1000, .size = 64 * MIB });
	put(&t, (struct event){ .kind = EVENT_OOM, .device = CUDA, .size = 900 * MIB });
	put(&t, (struct event){ .kind = EVENT_STEP });
	tape__close(&t);
}

static void write_cpu(void)
{
	struct tape t = tape__new(cpu_recording);
	struct dict_frame f[] = { frame(&t, "/home/u/gemma/a, \"b\".py", "f", 1, NULL) };

	alloc(&t, CPU, 1, 3000, dict__stack(t.d, f, 1, MT_WALK_OK));
	put(&t, (struct event){ .kind = EVENT_FREE, .device = CPU, .addr = 2 });
	put(&t, (struct event){ .kind = EVENT_ALLOC,
				.device = CPU,
				.addr = 3,
				.size = 500,
				.walk = MT_WALK_NO_THREAD,
				.thread = t.native });
	tape__close(&t);
}

/* An allocation of 1 MiB is missing. */
static void write_drifting(void)
{
	struct tape t = tape__new(drifting);
	struct dict_frame f[] = { frame(&t, "/home/u/gemma/a.py", "f", 1, NULL) };
	uint32_t s = dict__stack(t.d, f, 1, MT_WALK_OK);

	alloc(&t, CUDA, 1, 2 * MIB, s);
	t.total += MIB;
	put(&t, (struct event){ .kind = EVENT_LOST, .size = 7 });
	put(&t, (struct event){ .kind = EVENT_LOST });
	alloc(&t, CUDA, 3, 2 * MIB, s);
	tape__close(&t);
}

/* Attached to a model of two layers: 10 MiB in blocks from before attach, 8 of them with names; 3
 * MiB more in no block. */
static void write_named(void)
{
	static const struct {
		enum category category;
		const char *name, *module;
	} what[] = {
		{ CATEGORY_PARAMETER, "layers.0.weight", "layers.0" },
		{ CATEGORY_PARAMETER, "layers.1.weight", "layers.1" },
		{ CATEGORY_OPTIMIZER_STATE, "AdamW exp_avg of layers.0.weight", "layers.0" },
		{ CATEGORY_UNKNOWN, "a list's", NULL },
	};
	struct tape t = tape__new(named);
	struct dict_frame f[] = { frame(&t, "/home/u/gemma/a.py", "f", 1, NULL) };
	uint32_t s = dict__stack(t.d, f, 1, MT_WALK_OK);

	t.reserved = 16 * MIB;
	for (int i = 0; i < 5; i++)
		put(&t, (struct event){ .kind = EVENT_BLOCK,
					.device = CUDA,
					.addr = 0x1000000 * (i + 1),
					.size = 2 * MIB });
	t.total = 13 * MIB;
	alloc(&t, CUDA, 1, MIB, s);
	for (int i = 0; i < 4; i++) {
		struct dict_module m = { what[i].module ? str(&t, what[i].module) : 0,
					 str(&t, "Linear"), str(&t, "Net") };

		put(&t, (struct event){ .kind = EVENT_TENSOR,
					.device = CUDA,
					.addr = 0x1000000 * (i + 1),
					.size = 2 * MIB,
					.category = what[i].category,
					.name = str(&t, what[i].name),
					.flags = CENSUS_FIRST,
					.module = what[i].module ? dict__module(t.d, m) : 0 });
	}
	put(&t,
	    (struct event){
		    .kind = EVENT_CENSUS, .device = CUDA, .size = 8 * MIB, .flags = CENSUS_FIRST });
	tape__close(&t);
}

/* A segment of 20 MiB with 5 in use, an empty one of 2, 8 MiB of other libraries; the driver
 * reports 40. */
static void write_segmented(void)
{
	struct tape t = tape__new(segmented);
	struct dict_frame f[] = { frame(&t, "/home/u/gemma/a.py", "f", 1, NULL) };
	uint32_t s = dict__stack(t.d, f, 1, MT_WALK_OK);
	struct event take = { .kind = EVENT_CUDA_ALLOC,
			      .how = MEM_DEVICE,
			      .device = CUDA,
			      .stack = s,
			      .flags = MEM_BY_ALLOCATOR };

	facts__set(t.f, "device.0.total", "1073741824");
	for (int i = 0; i < 3; i++) {
		static const uint64_t sizes[] = { 20, 2, 8 };

		take.time = t.time += 100 * MS;
		take.thread = t.thread;
		take.addr = (100 + 100 * i) * MIB;
		take.size = sizes[i] * MIB;
		take.flags = i < 2 ? MEM_BY_ALLOCATOR : 0;
		assert_int_equal(mtr_writer__event(t.w, &take), 0);
	}
	assert_int_equal(mtr_writer__event(t.w, &(struct event){ .kind = EVENT_USED,
								 .device = CUDA,
								 .size = 40 * MIB,
								 .time = t.time,
								 .thread = t.thread }),
			 0);
	t.reserved = 22 * MIB;
	alloc(&t, CUDA, 110 * MIB, 5 * MIB, s);
	put(&t,
	    (struct event){ .kind = EVENT_OOM, .device = CUDA, .size = 2000 * MIB, .stack = s });
	tape__close(&t);
}

/* Blocks 0 to 3 of a model run one line through torch's frames, and head runs another; block 9 is
 * larger. */
static void write_blocks(void)
{
	struct tape t = tape__new(blocks);
	static const int of[] = { 0, 1, 2, 3, 9 };

	for (int i = 0; i < 6; i++) {
		char name[16] = "head";

		if (i < 5)
			snprintf(name, sizeof(name), "blocks.%d", of[i]);
		struct dict_frame f[] = {
			frame(&t, "/home/u/gemma/net.py", i < 5 ? "Block.forward" : "Head.forward",
			      i < 5 ? 7 : 9, NULL),
			frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775,
			      name),
			frame(&t, "/home/u/gemma/net.py", "Net.forward", 12, NULL),
			frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775, ""),
			frame(&t, "/home/u/gemma/train.py", "<module>", 20, NULL),
		};

		alloc(&t, CPU, 0x1000 * (i + 1), (i == 4 ? 3 : 1) * MIB,
		      dict__stack(t.d, f, 5, MT_WALK_OK));
	}
	tape__close(&t);
}

/* Names that need escaping, wherever a target can put one. */
static void write_odd(void)
{
	struct tape t = tape__new(odd);
	struct dict_frame f[40];

	facts__set(t.f, "cmdline",
		   "[\"py\\u001b[2Jthon\", \"\\ud83d\\ude00\", \"\\ufffd\", \"x\"]");
	for (int i = 0; i < 40; i++) {
		char name[64], module[64];

		snprintf(name, sizeof(name), "/x/\x1b]0;%d\a\xe2\x80\xae\xff\n.py", i);
		snprintf(module, sizeof(module), "m.\x9b%d\n\"</script>", i);
		f[i] = frame(&t, name, "f\r\n\"g\"", i, module);
		alloc(&t, CUDA, i, 1000 + i, dict__stack(t.d, &f[i], 1, MT_WALK_OK));
	}
	tape__close(&t);
}

/* Half of a recording, and one with a changed bit in the middle. */
static void spoil(void)
{
	char *data = malloc(1 << 20);
	int in = open(recording, O_RDONLY), out;
	ssize_t n = read(in, data, 1 << 20);

	assert_true(n > 200 && n < 1 << 20);
	out = open(cut, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(out, data, n - 20), n - 20);
	close(out);
	data[n / 2] ^= 0x10;
	out = open(damaged, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(out, data, n), n);
	close(out);
	close(in);
	free(data);
}

static int setup(void **state)
{
	setenv("COLUMNS", "80", 1);
	assert_non_null(mkdtemp(dir));
	snprintf(recording, sizeof(recording), "%s/run.mtr", dir);
	snprintf(cpu_recording, sizeof(cpu_recording), "%s/cpu.mtr", dir);
	snprintf(from_start, sizeof(from_start), "%s/start.mtr", dir);
	snprintf(drifting, sizeof(drifting), "%s/drift.mtr", dir);
	snprintf(segmented, sizeof(segmented), "%s/seg.mtr", dir);
	snprintf(odd, sizeof(odd), "%s/odd.mtr", dir);
	snprintf(window, sizeof(window), "%s/window.mtr", dir);
	snprintf(cut, sizeof(cut), "%s/cut.mtr", dir);
	snprintf(damaged, sizeof(damaged), "%s/damaged.mtr", dir);
	write_recording();
	write_cpu();
	write_drifting();
	snprintf(named, sizeof(named), "%s/named.mtr", dir);
	write_named();
	snprintf(blocks, sizeof(blocks), "%s/blocks.mtr", dir);
	snprintf(read_once, sizeof(read_once), "%s/read_once.mtr", dir);
	write_blocks();
	write_odd();
	write_segmented();
	spoil();
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(dir);
}

static void test_text(void **state)
{
	struct output *o;

	setenv("COLUMNS", "140", 1);
	o = report("--no-overview", recording, NULL);
	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	expect_golden(o->out, "report-no-overview.txt");
	o = report(recording, NULL);
	setenv("COLUMNS", "80", 1);
	expect_golden(o->out, "report-overview.txt");
}

static void test_text_is_80_columns(void **state)
{
	static const char *const by[] = { "line",     "stack",
					  "module",   "layer",
					  "phase",    "thread",
					  "category", "line,module,category,phase,thread" };

	for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++)
		for (int columns = 40; columns <= 200; columns += 20) {
			char number[16], *line;
			struct output *o;

			snprintf(number, sizeof(number), "%d", columns);
			setenv("COLUMNS", number, 1);
			o = report("--by", by[i], "--top", "3",
				   columns % 40 ? "--bars" : "--no-bars", odd, NULL);
			setenv("COLUMNS", "80", 1);
			assert_int_equal(o->status, 0);
			assert_null(strpbrk(o->out, "\x1b\a\r"));
			assert_null(strstr(o->out, "\xe2\x80\xae"));
			for (line = strtok(o->out, "\n"); line; line = strtok(NULL, "\n"))
				if (strncmp(line, "    ", 4) != 0) /* stacks are not shortened */
					if (text__width(line) > (size_t)columns)
						fail_msg("%d columns, by %s: '%s'", columns, by[i],
							 line);
		}
	assert_non_null(strstr(report(recording, NULL)->out,
			       "\n 64.00 MiB   34  activation     layers.7.self_attn  "
			       "gemma/model.py:336 (forward)\n"));
}

static void test_top(void **state)
{
	struct output *o = report("--top", "2", recording, NULL);

	assert_non_null(strstr(o->out, "+ 3 more rows\n"));
	assert_non_null(strstr(o->out, "\n 22.00 MiB   12"));
	o = report("--top", "4", recording, NULL);
	assert_non_null(strstr(o->out, "+ 1 more row\n"));
	o = report("--top", "0", recording, NULL);
	assert_null(strstr(o->out, "more row"));
}

static void test_cpu_text(void **state)
{
	struct output *o = report(cpu_recording, NULL);

	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "cpu  peak 3.4 KiB allocated at 0.30 s (backward)\n"
				       "  memory from before attach not known\n"));
	assert_null(strstr(o->out, "fragmentation"));
	assert_non_null(strstr(o->out, "native (no Python thread)\n"));
}

static int put_host(void *tape, const struct event *e)
{
	return mtr_writer__event(((struct tape *)tape)->w, e);
}

/* Writes a recording of 31.4 s with the last reading of host memory at this time. */
static void write_read_at(uint64_t last)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);

	alloc(&t, CPU, 1, 3000, 0);
	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = s.part[HOST_TENSORS].bytes = 64 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	s.part[HOST_TOTAL].bytes = s.part[HOST_TENSORS].bytes = 48 * MIB;
	assert_int_equal(host_sheet__emit(&s, last, put_host, &t), 0);
	tape__close(&t);
}

/* A reading of host memory long before the end is not the end's. */
static void test_age_of_host_memory(void **state)
{
	struct output *o;

	write_read_at(23300 * MS);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 64.00 MiB RSS at 0.20 s - last read 48.00 MiB, "
				       "8.10 s before the end\n"));
	write_read_at(30500 * MS);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 64.00 MiB RSS at 0.20 s - end 48.00 MiB"));
}

/* Host memory has one line, with as many of the largest parts as it has room for. */
static void test_line_of_host_memory(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	alloc(&t, CPU, 1, 3000, 0);
	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TENSORS].bytes = 48 * MIB;
	s.part[HOST_MALLOC].bytes = 32 * MIB;
	s.part[HOST_LIBRARIES].bytes = 16 * MIB;
	s.part[HOST_TOTAL].bytes = 96 * MIB;
	assert_int_equal(host_sheet__emit(&s, 31000 * MS, put_host, &t), 0);
	tape__close(&t);
	setenv("COLUMNS", "100", 1);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out,
			       "host  peak 96.00 MiB RSS at 31.0 s - end 96.00 MiB - CPU tensors "
			       "48.00 MiB - (--device host)\n"));
	setenv("COLUMNS", "60", 1);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 96.00 MiB RSS at 31.0 s - end 96.00 MiB"));
	assert_null(strstr(o->out, "CPU tensors 48"));
	unsetenv("COLUMNS");
}

/* The device "host" has the peak: its line and that of the readings do not both say "peak". */
static void test_readings_beside_device(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = s.part[HOST_TENSORS].bytes = 64 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	alloc(&t, CPU, 1, 3000, 0);
	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 66 * MIB, 0);
	tape__close(&t);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 66.00 MiB resident"));
	assert_non_null(strstr(o->out, "host  highest reading 64.00 MiB RSS at 0.20 s - CPU "));
}

/* Host memory is all that was recorded: the verdict, and no column or list that says nothing. */
static void test_only_host(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = s.part[HOST_UNKNOWN].bytes = 64 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 64 * MIB, 0);
	tape__close(&t);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 64.00 MiB resident at "));
	assert_non_null(strstr(o->out,
			       "\nnot known: 64.00 MiB resident, of it 64.00 MiB whose use is "
			       "not known\n"));
	assert_null(strstr(o->out, "highest reading"));
	assert_null(strstr(o->out, "phase"));
	assert_null(strstr(o->out, "Phase"));
	assert_null(strstr(o->out, "role"));
	assert_null(strstr(o->out, "allocated"));
}

/* The reading is old, and the process has grown since: its verdict is not the end's. */
static void test_only_host_later(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = s.part[HOST_UNKNOWN].bytes = 8 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 64 * MIB, 0);
	tape__close(&t);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "host  peak 64.00 MiB resident at "));
	assert_null(strstr(o->out, "not known: 8.00 MiB"));
	o = report("--device", "host", read_once, NULL);
	assert_non_null(strstr(o->out, "not known: 8.00 MiB"));
}

/* What changed from reading to reading is said of parts that both have: memory of a part that was
 * not read counts for others. */
static void test_parts_of_both_readings(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	alloc(&t, CPU, 1, 3000, 0);
	s.part[HOST_MALLOC].bytes = 32 * MIB;
	s.part[HOST_TOTAL].bytes = 32 * MIB;
	assert_int_equal(host_sheet__emit(&s, 100 * MS, put_host, &t), 0);
	s.part[HOST_MALLOC] = (struct host_figure){ 0 };
	s.part[HOST_UNKNOWN].bytes = 32 * MIB;
	s.part[HOST_STACKS].bytes = 8 * MIB;
	s.part[HOST_TOTAL].bytes = 40 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	tape__close(&t);
	o = report("--device", "host", read_once, NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "from 0.10 s to 0.20 s: stacks +8.00 MiB\n"));
}

/* Memory that no table explains may be free or live. */
static void test_fail_if_live(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	s.part[HOST_TOTAL].bytes = 64 * MIB;
	s.part[HOST_MALLOC] = (struct host_figure){ 30 * MIB, 10 * MIB, true, true, false };
	s.part[HOST_UNKNOWN].bytes = 34 * MIB;
	s.part[HOST_PYTHON].has_second = s.part[HOST_PINNED].has_second = true;
	alloc(&t, CPU, 1, 3000, 0);
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	tape__close(&t);
	o = report("--fail-if", "host_live>60M", read_once, NULL);
	assert_int_equal(o->status, 0);
	o = report("--fail-if", "host_live>10M", read_once, NULL);
	assert_int_equal(o->status, EXIT_HELD);
	o = report("--fail-if", "host_live>40M", read_once, NULL);
	assert_int_equal(o->status, EXIT_FAILED);
	assert_non_null(strstr(o->err, "the use of some memory is not known, so live is at least "
				       "that: host live 20.00 MiB"));
}

/* A scope that ran before a device's first event: the device has its memory of that time, 0. */
static void test_fail_if_scope_before(void **state)
{
	struct tape t = tape__new(read_once);
	struct dict_frame load[] = { frame(&t, "/home/u/gemma/train.py", "load", 3, NULL) };
	struct dict_frame train[] = { frame(&t, "/home/u/gemma/train.py", "train", 9, NULL) };
	struct output *o;

	(void)state;
	alloc(&t, CPU, 1, 3000, dict__stack(t.d, load, 1, MT_WALK_OK));
	alloc(&t, CUDA, 0x1000, 8 * MIB, dict__stack(t.d, train, 1, MT_WALK_OK));
	tape__close(&t);
	o = report("--fail-if", "scope:load peak>1M", read_once, NULL);
	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	o = report("--fail-if", "scope:load peak<1M", read_once, NULL);
	assert_int_equal(o->status, EXIT_HELD);
	assert_null(strstr(o->err, "choose another"));
	o = report("--fail-if", "scope:nobody peak>1M", read_once, NULL);
	assert_int_equal(o->status, EXIT_FAILED);
	assert_non_null(strstr(o->err, "no allocation has this function on its stack"));
}

static void put_scope(struct tape *t, uint8_t flags, const char *name)
{
	put(t,
	    (struct event){
		    .kind = EVENT_SCOPE, .flags = flags, .how = SCOPE_NVTX, .name = str(t, name) });
}

/* A job that allocated nothing: the table has the runs and times of its scopes. */
static void test_scopes_without_memory(void **state)
{
	struct tape t = tape__new(read_once);
	struct output *o;

	(void)state;
	put_scope(&t, SCOPE_BEGIN, "load"); /* 0.1 s */
	put_scope(&t, SCOPE_BEGIN, "parse");
	put_scope(&t, SCOPE_END, "");
	put_scope(&t, SCOPE_END, "");
	put_scope(&t, SCOPE_BEGIN, "load");
	put_scope(&t, SCOPE_END, "");
	tape__close(&t);
	o = report("--scopes", read_once, NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\nRuns     Time  Scope\n"
				       "   2   0.40 s  load\n"
				       "   1   0.10 s    parse\n"));
	assert_non_null(strstr(o->out, "No memory event was seen: only runs and times are known."));
	assert_null(strstr(o->out, "Peak"));
	o = report("--by", "scope", read_once, NULL);
	assert_non_null(strstr(o->out, "0.40 s  load\n"));
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "2 named scopes, 3 runs: --scopes has the time of each\n"));
}

/* A scope without a reading in it has no known host memory, which is said. */
static void test_host_of_scopes(void **state)
{
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct output *o;

	(void)state;
	s.part[HOST_TOTAL] = (struct host_figure){ .bytes = 64 * MIB, .known = true };
	put_scope(&t, SCOPE_BEGIN, "load");
	assert_int_equal(host_sheet__emit(&s, 150 * MS, put_host, &t), 0);
	put_scope(&t, SCOPE_END, "");
	put_scope(&t, SCOPE_BEGIN, "train");
	put_scope(&t, SCOPE_END, "");
	tape__close(&t);
	o = report("--scopes", read_once, NULL);
	assert_non_null(strstr(o->out, "\nRuns     Time         RSS  Scope\n"
				       "   1   0.10 s   64.00 MiB  load\n"
				       "   1   0.10 s     unknown  train\n"));
	assert_non_null(strstr(o->out, "in a run, of 1 reading in all.\n"));
	o = report("--json", read_once, NULL);
	assert_non_null(strstr(o->out, "\"readings\": 1"));
	assert_non_null(strstr(o->out, "\"rss\": 67108864"));
	t = tape__new(read_once);
	put_scope(&t, SCOPE_BEGIN, "train");
	put_scope(&t, SCOPE_END, "");
	assert_int_equal(host_sheet__emit(&s, 400 * MS, put_host, &t), 0);
	tape__close(&t);
	o = report("--scopes", read_once, NULL);
	assert_non_null(strstr(o->out, "Host memory in scopes is unknown: none of the 1 reading"));
	assert_null(strstr(o->out, "RSS  Scope"));
}

/* Stacks of native code that were not copied have no line. */
static void test_stacks_not_copied(void **state)
{
	struct tape t = tape__new(read_once);
	struct output *o;

	alloc(&t, (struct device){ .type = DEVICE_HOST }, 0x1000, 64 * MIB, 0);
	facts__set(t.f, "counter.native.not_copied", "4000");
	tape__close(&t);
	o = report(read_once, NULL);
	assert_non_null(strstr(o->out, "4,000 stacks of native code were not copied, because too "
				       "many came in a second"));
}

/* The kernel's OOM killer ended it after the last reading: one figure for the host, and its table. */
static void test_killed_for_host_memory(void **state)
{
	struct device host = { .type = DEVICE_HOST };
	struct host_sheet s = { 0 };
	struct tape t = tape__new(read_once);
	struct dict_frame f[] = { frame(&t, "/home/u/gemma/train.py", "next", 15, NULL) };
	struct output *o;

	for (unsigned int i = 0; i < HOST_PARTS_END; i++)
		s.part[i].known = true;
	alloc(&t, CPU, 1, 3000, 0);
	s.part[HOST_TOTAL].bytes = s.part[HOST_TENSORS].bytes = 64 * MIB;
	assert_int_equal(host_sheet__emit(&s, 200 * MS, put_host, &t), 0);
	alloc(&t, host, 0x1000, 512 * MIB, dict__stack(t.d, f, 1, MT_WALK_OK));
	facts__set(t.f, "end_reason", "oom killer");
	facts__set(t.f, "end_signal", "9");
	facts__setf(t.f, "host_worked_out", "%u", 400U << 20);
	tape__close(&t);
	o = report(read_once, NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "host  peak 512.00 MiB"));
	assert_null(strstr(o->out, "RSS at"));
	assert_non_null(strstr(o->out, "512.00 MiB"));
	assert_non_null(strstr(o->out, "train.py:15 (next)"));
	o = report("--device", "cpu", read_once, NULL);
	assert_null(strstr(o->out, "train.py:15 (next)"));
}

static void test_rows_that_do_not_add_up(void **state)
{
	struct output *o = report(drifting, NULL);

	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "These rows add up to 4.00 MiB, not to the 5.00 MiB of the "
				       "allocator: 1.00 MiB are missing because"));
	assert_non_null(strstr(o->out, "sizes differ from the allocator's totals by up to 1.00 "
				       "MiB (at 1 event)"));
	assert_non_null(strstr(o->out, "7 lost"));
	assert_non_null(strstr(o->out, "peak at least 5.00 MiB allocated"));
	assert_non_null(strstr(o->out, "\n7 events lost - peaks are lower bounds"));
	o = report(drifting, "--at", "end", NULL);
	/* confirmed by the allocator since */
	assert_non_null(strstr(o->out, "At the end: 5.00 MiB\n"));
}

static json_t *parse(const char *text)
{
	json_error_t e;
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);

	if (!j)
		fail_msg("line %d: %s", e.line, e.text);
	return j;
}

static json_int_t integer(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (!json_is_integer(v))
		fail_msg("%s is no integer", key);
	return json_integer_value(v);
}

static json_int_t rows_sum(json_t *doc)
{
	json_t *row, *rows = json_object_get(doc, "rows");
	json_int_t sum = 0;
	size_t i;

	json_array_foreach(rows, i, row) {
		sum += integer(row, "bytes");
		assert_int_equal(integer(row, "cumulative"), sum);
		integer(row, "count");
		integer(row, "median");
		assert_true(json_is_string(json_object_get(row, "source")));
	}
	return sum;
}

static json_int_t filtered(const char *expr, json_int_t *out)
{
	json_t *doc, *rest;
	json_int_t sum;
	struct output *o = report("--format", "json", "--filter", expr, recording, NULL);

	assert_int_equal(o->status, 0);
	doc = parse(o->out);
	rest = json_object_get(doc, "rows_filtered_out");
	sum = rows_sum(doc);
	assert_int_equal(sum + integer(rest, "bytes"), 186 * MIB);
	assert_string_equal(json_string_value(json_object_get(doc, "filter")), expr);
	*out = integer(rest, "rows");
	json_decref(doc);
	return sum;
}

/* The recording's 186 MiB are 100 from before attach, 64 and 16 of activations, 5 of the optimizer,
 * 1 of backward. */
static void test_filter(void **state)
{
	static const struct {
		const char *expr;
		json_int_t mib, rows;
	} cases[] = {
		{ "category:activation", 80, 3 },
		{ "-category:activation", 106, 2 },
		{ "category:activation|gradient", 81, 2 },
		{ "module:layers.7", 64, 4 },
		{ "module:layers.*.self_attn", 64, 4 },
		{ "module:self_attn", 64, 4 },
		{ "module:layer", 0, 5 },
		{ "module:attn", 0, 5 },
		{ "module:\"\"", 122, 1 },
		{ "line:model.py", 80, 3 },
		{ "line:MODEL.py:336", 64, 4 },
		{ "line:model.py:33", 0, 5 },
		{ "model.py:336", 64, 4 },
		{ "model.py:33", 0, 5 },
		{ "line:\"\"", 101, 3 },
		{ "phase:backward", 1, 4 },
		{ "size:>5M", 80, 3 },
		{ "size:>=5M", 85, 2 },
		{ "size:<5M", 1, 4 },
		{ "size:8M", 16, 4 },
		{ "category:activation !size:8M", 64, 4 },
		{ "before", 100, 4 },
		{ "\"before attach\"", 100, 4 },
		{ "source:census", 100, 4 },
		{ "class:attention", 64, 4 },
		{ "thread:pt_autograd", 1, 4 },
		{ "func:Gemma.forward", 16, 4 },
		{ "text:optimizer", 5, 4 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		json_int_t rows, mib = filtered(cases[i].expr, &rows);

		if (mib != cases[i].mib * (json_int_t)MIB || rows != cases[i].rows)
			fail_msg("%s: %lld bytes, %lld rows out", cases[i].expr, mib, rows);
	}
}

static void test_filter_in_text_and_csv(void **state)
{
	static const char *const by[] = { "line",   "module", "category",     "phase",
					  "thread", "stack",  "line,category" };
	struct output *o = report("--filter", "category:activation", recording, NULL);
	char *last;

	assert_non_null(strstr(
		o->out,
		"      Size    %  Role        Module              Location\n"
		" 64.00 MiB   34  activation  layers.7.self_attn  gemma/model.py:336 (forward)\n"
		" 16.00 MiB    9  activation  Gemma (model)       gemma/model.py:100 (forward)\n"
		"106.00 MiB   57                                  + 3 filtered rows\n"));
	assert_null(strstr(o->out, "add up"));
	for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++) {
		o = report("--by", by[i], "--filter", "size:>1000G", recording, NULL);
		assert_non_null(strstr(o->out, " filtered rows\n"));
		assert_non_null(strstr(o->out, "\n186.00 MiB  100 "));
	}
	o = report("--filter", "category:activation", "--top", "1", recording, NULL);
	assert_non_null(strstr(
		o->out, " 16.00 MiB    9                                  + 1 more row\n"
			"106.00 MiB   57                                  + 3 filtered rows\n"));
	o = report("--tree", "--filter", "module:7", recording, NULL);
	assert_non_null(strstr(o->out, " 64.00 MiB   34         0 B          1  Gemma (model)\n"));
	assert_non_null(strstr(o->out, "122.00 MiB   66                      4  (filtered out)\n"));
	o = report("--format", "csv", "--filter", "category:activation", recording, NULL);
	last = strstr(o->out, "\r\n111149056,2,0,195035136,run,cuda:0,,,,,,,,filtered,,,,,,\r\n");
	assert_true(
		last &&
		!last[strlen("\r\n111149056,2,0,195035136,run,cuda:0,,,,,,,,filtered,,,,,,\r\n")]);
	o = report("--format", "csv", "--filter", "size:<1T|>=1T before|-before", recording, NULL);
	assert_non_null(strstr(o->out, "filtered"));
}

/* The message has the words of texts, quoted as a filter takes them. */
static void test_unknown_role(void **state)
{
	struct output *o = report("--filter", "role:optimizer state", recording, NULL);

	assert_non_null(strstr(o->err, "role:optimizer is none of \"no role found\", parameter, "));
	assert_non_null(strstr(o->err, ", \"optimizer state\", "));
	assert_int_equal(report("--filter", "role:\"no role found\"", recording, NULL)->status,
			 EXIT_OK);
}

static void test_filter_errors(void **state)
{
	static const char *const wrong[] = { "",
					     "  ",
					     "-",
					     "size:big",
					     "size:=>1M",
					     "size:>",
					     "category:weights",
					     "phase:",
					     "phase:fwd",
					     "colour:red",
					     "line:\"x",
					     "line:\"x\"y",
					     "source:here",
					     "a||b",
					     "\x1b"
					     "category:x" };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong) - 1; i++) {
		struct output *o = report("--filter", wrong[i], recording, NULL);

		if (o->status != EXIT_USAGE || !strstr(o->err, "--filter: "))
			fail_msg("'%s': %d %s", wrong[i], o->status, o->err);
		assert_string_equal(o->out, "");
	}
	assert_int_equal(report("--filter", "x", "--by", "segment", recording, NULL)->status,
			 EXIT_USAGE);
	assert_int_equal(report("--hide", "", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--hide", "//", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--color", "red", recording, NULL)->status, EXIT_USAGE);
}

static void test_hide(void **state)
{
	static const struct {
		const char *pattern, *row;
	} cases[] = {
		{ "model.py", "\n 80.00 MiB   43       3  activation     (2 modules)  "
			      "train.py:12 (<module>)\n" },
		{ "gemma/gemma", "\n 80.00 MiB   43       3  activation     (2 modules)  "
				 "train.py:12 (<module>)\n" },
		{ "gemma/", "\n 80.00 MiB   43       3  activation     (2 modules)  "
			    "module.py:1775\n" },
		{ "gemma/*.py", "\n  5.00 MiB    3       1  no role found  (no module)  "
				"adamw.py:150 (_init_group)\n" },
		{ "*", "\n 80.00 MiB   43       3  activation     (2 modules)  (hidden)\n"
		       "  5.00 MiB    3       1  no role found  (no module)  (hidden)\n" },
		{ "ain.py", "  train.py:20 (<module>)\n" },
		{ "/home/u/gemma/train.py", "adamw.py:150 (_init_group)\n" },
	};
	json_t *doc;
	struct output *o;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		o = report("--hide", cases[i].pattern, recording, NULL);
		if (!strstr(o->out, cases[i].row))
			fail_msg("--hide %s: no '%s' in\n%s", cases[i].pattern, cases[i].row,
				 o->out);
		doc = parse(report("--format", "json", "--hide", cases[i].pattern, recording, NULL)
				    ->out);
		assert_int_equal(rows_sum(doc), 186 * MIB);
		assert_true(json_is_null(json_object_get(doc, "filter")));
		assert_int_equal(json_array_size(json_object_get(doc, "hide")), 1);
		json_decref(doc);
	}
	o = report("--hide", "model.py", "--hide", "train.py", "--frames", "all", recording, NULL);
	assert_non_null(strstr(o->out, "  module.py:1775"));
	o = report("--format", "csv", "--hide", "*", "--filter", "source:hidden", recording, NULL);
	assert_non_null(strstr(o->out, ",hidden,"));
}

static void test_bars_and_colour(void **state)
{
	struct output *o = report("--bars", "--no-overview", recording, NULL);

	for (const char *c = o->out; *c; c++)
		/* the output is ASCII in this locale, also bars and separators */
		assert_true(*c > 0);
	assert_non_null(strstr(
		o->out,
		"      Size    %              Role           Location\n"
		"100.00 MiB   54  ##########  no role found  before attach\n"
		" 64.00 MiB   34  ######      activation     gemma/model.py:336 (forward)\n"
		" 16.00 MiB    9  #           activation     gemma/model.py:100 (forward)\n"));
	assert_null(strchr(o->out, '\033'));
	o = report("--color=always", "--bars", recording, NULL);
	assert_non_null(strstr(o->out, "\033[36m######    \033[0m"));
	assert_non_null(strstr(o->out, "\033[1mBy role\033[0m"));
	o = report("--tree", "--bars", recording, NULL);
	assert_non_null(strstr(o->out, " 64.00 MiB   34  ###          64.00 MiB          1        "
				       "self_attn (Attention)\n"));
}

static void has_keys(json_t *o, ...)
{
	va_list ap;

	va_start(ap, o);
	for (const char *k = va_arg(ap, const char *); k; k = va_arg(ap, const char *))
		if (!json_object_get(o, k))
			fail_msg("no key %s", k);
	va_end(ap);
}

static void test_json(void **state)
{
	struct output *o = report("--format", "json", recording, NULL);
	json_t *doc = parse(o->out), *dev = json_array_get(json_object_get(doc, "devices"), 0),
	       *row;

	assert_int_equal(o->status, 0);
	has_keys(doc, "memtrace", "target", "capture", "devices", "device", "at", "time", "rows",
		 "layers", "phases", NULL);
	has_keys(json_object_get(doc, "memtrace"), "version", "recording_format", NULL);
	has_keys(json_object_get(doc, "target"), "pid", "cmdline", "python", "torch", NULL);
	has_keys(json_object_get(doc, "capture"), "start", "duration", "events", "lost", "stacks",
		 "complete", NULL);
	has_keys(dev, "device", "allocated", "reserved", "peak_allocated", "peak_reserved",
		 "peak_time", "fragmentation", "before_attach", "total_allocated", "allocs",
		 "frees", "drift", NULL);
	assert_int_equal(rows_sum(doc), 186 * MIB);
	assert_int_equal(integer(dev, "peak_allocated"), 186 * MIB);
	assert_int_equal(integer(dev, "allocated"), 112 * MIB);
	assert_int_equal(integer(dev, "before_attach"), 100 * MIB);
	assert_int_equal(integer(dev, "before_attach_left"), 90 * MIB);
	assert_int_equal(integer(dev, "drift"), 0);
	assert_int_equal(integer(dev, "ooms"), 1);
	/* 164, 172, 180, 185, 186, 176 and 112 of 256 MiB; the out-of-memory event does not
	 * count. */
	assert_true(fabs(json_real_value(json_object_get(dev, "avg_fragmentation")) -
			 617.0 / 256 / 7) < 1e-6);
	/* Two steps ended. The first was active at attach. */
	assert_int_equal(integer(json_object_get(doc, "capture"), "steps"), 1);
	assert_string_equal(json_string_value(json_object_get(doc, "at")), "peak");
	assert_true(json_real_value(json_object_get(doc, "time")) == 0.6);
	row = json_array_get(json_object_get(doc, "rows"), 1);
	assert_string_equal(json_string_value(json_object_get(row, "file")),
			    "/home/u/gemma/gemma/model.py");
	assert_int_equal(integer(row, "line"), 336);
	assert_string_equal(json_string_value(json_object_get(row, "function")),
			    "Attention.forward");
	assert_string_equal(json_string_value(json_object_get(row, "module")),
			    "layers.7.self_attn");
	assert_string_equal(json_string_value(json_object_get(row, "module_class")), "Attention");
	assert_string_equal(json_string_value(json_object_get(row, "phase")), "forward");
	assert_int_equal(
		integer(json_object_get(json_object_get(doc, "layers"), "layers.7.self_attn"),
			"peak_allocated"),
		64 * MIB);
	assert_int_equal(
		integer(json_object_get(json_object_get(doc, "phases"), "forward"), "count"), 2);
	json_decref(doc);
}

static void test_json_moments(void **state)
{
	static const struct {
		const char *at;
		json_int_t bytes;
	} cases[] = { { "end", 112 * MIB },
		      { "oom", 112 * MIB },
		      { "0.25", 172 * MIB },
		      { "700ms", 176 * MIB } };
	static const char *const by[] = { "line", "stack", "module", "phase", "thread" };

	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 5; k++) {
			json_t *doc = parse(report("--format", "json", "--at", cases[i].at, "--by",
						   by[k], recording, NULL)
						    ->out);

			assert_int_equal(rows_sum(doc), cases[i].bytes);
			assert_int_equal(integer(doc, "allocated"), cases[i].bytes);
			json_decref(doc);
		}
}

static void test_json_stack(void **state)
{
	json_t *doc = parse(report("--format=json", "--by=stack", recording, NULL)->out);
	json_t *stack = json_object_get(json_array_get(json_object_get(doc, "rows"), 1), "stack");

	assert_int_equal(json_array_size(stack), 5);
	assert_string_equal(json_string_value(json_array_get(stack, 0)),
			    "<module> (/home/u/gemma/train.py:12)");
	assert_string_equal(json_string_value(json_array_get(stack, 4)),
			    "Attention.forward (/home/u/gemma/gemma/model.py:336)");
	json_decref(doc);
}

/* Stacks that differ in hidden frames only are one row, and each of their modules counts once. */
static void test_modules_of_stacks(void **state)
{
	static const char *const layers[] = { "layers.0", "layers.1" };
	struct tape t = tape__new(window);

	for (int i = 0; i < 6; i++) {
		struct dict_frame f[] = {
			frame(&t, SP "nn/functional.py", "linear", 100 + i % 3, NULL),
			frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775,
			      layers[i / 3]),
			frame(&t, "/home/u/gemma/train.py", "<module>", 12, NULL),
		};

		alloc(&t, CUDA, 0x1000 + i, MIB, dict__stack(t.d, f, 3, MT_WALK_OK));
	}
	tape__close(&t);
	assert_non_null(strstr(report("--by", "stack", window, NULL)->out, "layers.* (2)"));
	assert_non_null(strstr(report("--by", "line", window, NULL)->out, "layers.* (2)"));
}

static void assert_window(json_t *capture)
{
	assert_true(json_real_value(json_object_get(capture, "window_start")) == 31.0);
	assert_true(json_real_value(json_object_get(capture, "duration")) == 31.4);
}

/* Texts state the length of a window, and where it begins. Times count from the capture's start. */
static void test_window(void **state)
{
	for (int part = 0; part < 2; part++) {
		const char *begins = part ? "part from 31.0 s on" : "window from 31.0 s on";
		struct tape t = tape__new(window);
		json_t *doc;
		struct output *o;

		facts__set(t.f, "window_start_ns", "31000000000");
		if (part)
			facts__set(t.f, "segment", "12");
		t.time = 31000 * MS;
		alloc(&t, CPU, 1, 3000, 0);
		put(&t, (struct event){ .kind = EVENT_FREE, .device = CPU, .addr = 1 });
		tape__close(&t);
		o = report(window, NULL);
		assert_non_null(strstr(o->out, " 0.40 s"));
		assert_non_null(strstr(o->out, begins));
		assert_non_null(strstr(o->out, "2.9 KiB allocated and freed in 0.40 s"));
		o = leaks(window, NULL);
		assert_non_null(strstr(o->out, " 0.40 s"));
		assert_non_null(strstr(o->out, begins));
		assert_non_null(strstr(o->out, "growth not known in 0.40 s: record a minute"));
		doc = parse(report("--format", "json", window, NULL)->out);
		assert_window(json_object_get(doc, "capture"));
		json_decref(doc);
		doc = parse(leaks("--format", "json", window, NULL)->out);
		assert_window(doc);
		json_decref(doc);
	}
}

static void test_json_cpu(void **state)
{
	static const char *const unknown[] = { "reserved", "peak_reserved", "fragmentation",
					       "avg_fragmentation" };
	json_t *doc = parse(report("--format", "json", cpu_recording, NULL)->out);
	json_t *dev = json_array_get(json_object_get(doc, "devices"), 0), *of;
	int phases = 0;
	const char *key;

	assert_true(json_is_null(json_object_get(dev, "drift")));
	assert_true(json_is_null(json_object_get(dev, "before_attach")));
	assert_null(json_object_get(json_object_get(doc, "capture"), "window_start"));
	assert_int_equal(rows_sum(doc), 3500);
	/* The CPU allocator does not report reserved memory: 0 would be wrong. */
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		assert_true(json_is_null(json_object_get(dev, unknown[i])));
	assert_true(json_is_null(json_object_get(doc, "reserved")));
	assert_true(json_is_null(json_object_get(doc, "fragmentation")));
	json_object_foreach(json_object_get(doc, "phases"), key, of) {
		assert_true(json_is_null(json_object_get(of, "peak_reserved")));
		phases++;
	}
	assert_true(phases);
	json_decref(doc);
}

/* A line shared by several modules is one line, in the report and in the blame. */
static void test_fail_if_blames_lines(void **state)
{
	struct tape t = tape__new(from_start);
	struct dict_frame shared[2][2], own[] = { frame(&t, "/home/u/gemma/b.py", "g", 9, NULL) };
	struct output *o;

	for (int i = 0; i < 2; i++) {
		shared[i][0] = frame(&t, "/home/u/gemma/a.py", "f", 7, NULL);
		shared[i][1] = frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl",
				     1775, i ? "layers.1" : "layers.0");
		alloc(&t, CUDA, 16 + i, 2 * MIB, dict__stack(t.d, shared[i], 2, MT_WALK_OK));
	}
	alloc(&t, CUDA, 64, 3 * MIB, dict__stack(t.d, own, 1, MT_WALK_OK));
	tape__close(&t);
	o = report("--fail-if", "allocated>5M", from_start, NULL);
	assert_int_equal(o->status, EXIT_HELD);
	assert_non_null(strstr(o->err, "largest at the peak:\n    4.00 MiB  "));
	assert_non_null(strstr(o->err, "a.py:7 (f) [layers.*]\n    3.00 MiB  "));
}

/* Memory from before attach found later was there all along: finding it is no growth, freeing it no
 * shrinking. */
static void test_fail_if_growth_leaves_out_what_was_there_before(void **state)
{
	struct tape t = tape__new(from_start);
	uint32_t stack;
	struct output *o;

	stack = dict__stack(t.d,
			    (struct dict_frame[]){ frame(&t, "/home/u/gemma/a.py", "f", 7, NULL) },
			    1, MT_WALK_OK);
	for (uint64_t i = 0; i < 60; i++) {
		put(&t, (struct event){ .kind = EVENT_ALLOC,
					.device = CPU,
					.addr = 0x1000 + i,
					.size = 16384,
					.stack = stack,
					.walk = MT_WALK_OK });
		if (i == 20)
			put(&t, (struct event){ .kind = EVENT_TENSOR,
						.device = CPU,
						.addr = 0x900000,
						.size = 8 * MIB,
						.flags = CENSUS_FIRST,
						.category = CATEGORY_PARAMETER });
		if (i == 40)
			put(&t, (struct event){ .kind = EVENT_FREE,
						.device = CPU,
						.addr = 0x900000,
						.size = 8 * MIB });
		put(&t, (struct event){ .kind = EVENT_STEP });
	}
	tape__close(&t);
	o = report("--fail-if", "growth>160K/10steps", from_start, NULL);
	assert_int_equal(o->status, 0);
	assert_string_equal(o->err, "");
	o = report("--fail-if", "growth>100K/10steps", from_start, NULL);
	assert_int_equal(o->status, EXIT_HELD);
	assert_non_null(strstr(o->err, "growth 160.0 KiB > 100.0 KiB in 10 steps"));
	assert_non_null(strstr(o->err, "   160.0 KiB"));
}

/* A recording from the first allocation on: nothing from before attach, and that is known. */
static void test_recorded_from_the_start(void **state)
{
	struct tape t = tape__new(from_start);
	struct dict_frame in[] = { frame(&t, "/home/u/gemma/a.py", "f", 7, NULL),
				   frame(&t, SP "nn/modules/module.py", "Module._wrapped_call_impl",
					 1775, "layers.0") };
	struct output *o;
	json_t *doc, *dev, *layer;

	facts__set(t.f, "attached_at", "start");
	put(&t, (struct event){ .kind = EVENT_ALLOC,
				.device = CPU,
				.addr = 1,
				.size = 1000,
				.stack = dict__stack(t.d, in, 2, MT_WALK_OK) });
	tape__close(&t);
	o = report(from_start, NULL);
	assert_non_null(strstr(o->out, "recorded from the start"));
	assert_null(strstr(o->out, "before attach"));
	doc = parse(report("--format", "json", from_start, NULL)->out);
	dev = json_array_get(json_object_get(doc, "devices"), 0);
	assert_int_equal(integer(dev, "before_attach"), 0);
	assert_true(json_is_true(json_object_get(dev, "before_attach_known")));
	assert_int_equal(integer(doc, "before_attach"), 0);
	/* A layer's reserved memory is unknown on the CPU. */
	layer = json_object_get(json_object_get(doc, "layers"), "layers.0");
	assert_int_equal(integer(layer, "peak_allocated"), 1000);
	assert_true(json_is_null(json_object_get(layer, "peak_reserved")));
	assert_true(json_is_null(json_object_get(layer, "avg_fragmentation")));
	assert_true(
		json_is_null(json_object_get(json_object_get(layer, "forward"), "peak_reserved")));
	json_decref(doc);
}

static void test_json_of_several(void **state)
{
	struct output *o = report("--format", "json", recording, cpu_recording, NULL);
	json_t *docs = parse(o->out);

	assert_true(json_is_array(docs));
	assert_int_equal(json_array_size(docs), 2);
	json_decref(docs);
	o = report("--format", "json", recording, "/nonexistent", NULL);
	assert_int_equal(o->status, EXIT_UNUSABLE);
	docs = parse(o->out);
	assert_int_equal(json_array_size(docs), 1);
	json_decref(docs);
}

static void test_json_odd(void **state)
{
	json_t *doc = parse(report("--format", "json", odd, NULL)->out);
	json_t *argv = json_object_get(json_object_get(doc, "target"), "cmdline");

	assert_int_equal(json_array_size(argv), 4);
	assert_string_equal(json_string_value(json_array_get(argv, 0)), "py\x1b[2Jthon");
	assert_string_equal(json_string_value(json_array_get(argv, 1)), "\xf0\x9f\x98\x80");
	assert_string_equal(json_string_value(json_array_get(argv, 2)), "\xef\xbf\xbd");
	assert_int_equal(json_array_size(json_object_get(doc, "rows")), 40);
	json_decref(doc);
	doc = parse(report("--format", "json", "--top", "10", odd, NULL)->out);
	assert_int_equal(json_array_size(json_object_get(doc, "rows")), 10);
	assert_int_equal(rows_sum(doc) + integer(json_object_get(doc, "rows_left_out"), "bytes"),
			 integer(doc, "allocated"));
	json_decref(doc);
}

static void test_combinations(void **state)
{
	struct output *o;
	json_t *doc;

	setenv("COLUMNS", "100", 1);
	o = report("--by", "module,category", recording, NULL);
	assert_non_null(strstr(
		o->out, "      Size    %  Blocks  Role           Module\n"
			"100.00 MiB   54       -  no role found  before attach\n"
			" 64.00 MiB   34       1  activation     layers.7.self_attn (Attention)\n"
			" 16.00 MiB    9       2  activation     Gemma (model)\n"
			"  5.00 MiB    3       1  no role found  (no module)\n"
			"  1.00 MiB   <1       1  gradient       (no module)\n"));
	o = report("--by", "category", recording, NULL);
	assert_non_null(strstr(o->out, " 80.00 MiB   43       3  activation\n"));
	o = report("--by", "thread,phase", recording, NULL);
	assert_non_null(strstr(o->out, " Phase          Thread\n"));
	assert_non_null(strstr(o->out, " backward       pt_autograd_0 (4300)\n"));
	o = report("--tree", recording, NULL);
	assert_non_null(strstr(
		o->out, "      Size    %      Itself     Blocks  Module\n"
			" 80.00 MiB   43   16.00 MiB          3  Gemma (model)\n"
			" 64.00 MiB   34         0 B          1    layers\n"
			" 64.00 MiB   34         0 B          1      7\n"
			" 64.00 MiB   34   64.00 MiB          1        self_attn (Attention)\n"
			"100.00 MiB   54                      -  before attach\n"
			"  6.00 MiB    3                      2  (no module)\n"));
	o = report("--tree", "--top", "2", recording, NULL);
	assert_non_null(strstr(o->out, "  + 2 more rows\n"));
	setenv("COLUMNS", "80", 1);
	doc = parse(report("--format", "json", "--by", "phase,category", recording, NULL)->out);
	assert_string_equal(json_string_value(json_object_get(doc, "by")), "phase,category");
	assert_int_equal(integer(json_object_get(doc, "categories"), "activation"), 80 * MIB);
	assert_int_equal(integer(json_object_get(doc, "categories"), "unknown"), 5 * MIB);
	assert_int_equal(integer(json_object_get(doc, "categories"), "before_attach"), 100 * MIB);
	assert_int_equal(rows_sum(doc), 186 * MIB);
	assert_null(json_object_get(json_array_get(json_object_get(doc, "rows"), 1), "file"));
	json_decref(doc);
}

static void check_holders(json_t *holders)
{
	static const struct {
		const char *name, *category, *module;
		json_int_t mib, count, modules;
	} want[] = {
		{ NULL, "unknown", "", 5, 1, 0 },
		{ "layers.*.weight", "parameter", "layers.*", 4, 2, 2 },
		{ "AdamW exp_avg of layers.0.weight", "optimizer_state", "layers.0", 2, 1, 1 },
		{ "a list's", "unknown", "", 2, 1, 0 },
	};
	json_t *h;
	size_t i;

	json_array_foreach(holders, i, h) {
		const char *name = json_string_value(json_object_get(h, "holder"));

		assert_true(i < 4);
		assert_true(want[i].name ? name && !strcmp(name, want[i].name) : !name);
		assert_string_equal(json_string_value(json_object_get(h, "category")),
				    want[i].category);
		assert_string_equal(json_string_value(json_object_get(h, "module")),
				    want[i].module);
		assert_int_equal(integer(h, "bytes"), want[i].mib * MIB);
		assert_int_equal(integer(h, "count"), want[i].count);
		assert_int_equal(integer(h, "modules"), want[i].modules);
	}
	assert_int_equal(i, 4);
}

/* Memory from before attach with names. */
static void test_named(void **state)
{
	struct output *o;
	json_t *doc, *row;
	size_t i, names = 0;

	setenv("COLUMNS", "100", 1);
	o = report(named, NULL);
	expect_golden(o->out, "report-before-attach.txt");
	setenv("COLUMNS", "50", 1);
	o = report(named, NULL);
	assert_non_null(strstr(o->out, "\n  4.00 MiB   29  parameter        layers.*.weight\n"));
	setenv("COLUMNS", "80", 1);
	o = report("--by", "category", named, NULL);
	assert_non_null(strstr(o->out, "\n  4.00 MiB   29       2  parameter\n"));
	o = report("--tree", named, NULL);
	assert_non_null(strstr(o->out, "  6.00 MiB   43         0 B          3  Net (model)\n"
				       "  6.00 MiB   43         0 B          3    layers\n"
				       "  4.00 MiB   29    4.00 MiB          2      0 (Linear)\n"
				       "  2.00 MiB   14    2.00 MiB          1      1 (Linear)\n"
				       "  7.00 MiB   50                      2  before attach\n"
				       "  1.00 MiB    7                      1  (no module)\n"));
	setenv("COLUMNS", "80", 1);
	doc = parse(report("--format", "json", named, NULL)->out);
	json_array_foreach(json_object_get(doc, "rows"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));

		names += name != NULL;
		if (!name || strcmp(name, "AdamW exp_avg of layers.0.weight") != 0)
			continue;
		assert_string_equal(json_string_value(json_object_get(row, "category")),
				    "optimizer_state");
		assert_string_equal(json_string_value(json_object_get(row, "module")), "layers.0");
		assert_string_equal(json_string_value(json_object_get(row, "module_class")),
				    "Linear");
		assert_string_equal(json_string_value(json_object_get(row, "source")), "census");
		assert_true(json_is_true(json_object_get(row, "before_attach")));
		assert_int_equal(integer(row, "anonymous"), 0);
		assert_null(json_object_get(row, "phase"));
	}
	assert_int_equal(i, 6);
	assert_int_equal(names, 4);
	assert_int_equal(rows_sum(doc), 14 * MIB);
	assert_int_equal(integer(json_object_get(doc, "categories"), "unknown"), 1 * MIB);
	assert_int_equal(integer(json_object_get(doc, "categories"), "before_attach"), 7 * MIB);
	check_holders(json_object_get(doc, "before_attach_holders"));
	json_decref(doc);
	o = report("--together", named, recording, NULL);
	assert_non_null(strstr(o->out, "  layers.*.weight\n"));
	assert_non_null(strstr(o->out, "  before attach\n"));
	o = report("--fail-if", "allocated>1M", named, NULL);
	assert_non_null(strstr(o->err,
			       "\n    4.00 MiB  parameter        layers.*.weight [layers.*]\n"
			       "    2.00 MiB  no role found    a list's\n"));
	o = report("--format", "csv", named, NULL);
	assert_non_null(strstr(o->out, ",layers.1.weight,,layers.*.weight,\r\n"));
	assert_non_null(strstr(o->out, ",a list's,,a list's,\r\n"));
}

static void test_csv(void **state)
{
	struct output *o = report("--format", "csv", cpu_recording, NULL);

	assert_string_equal(o->out,
			    "bytes,count,median,cumulative,recording,device,file,line,"
			    "function,module,module_class,phase,category,source,"
			    "thread,stack,name,node_class,holder,scope\r\n"
			    "3000,1,3000,3000,cpu,cpu,\"/home/u/gemma/a, "
			    "\"\"b\"\".py\",1,f,,,other,unknown,frame,,,,,,\r\n"
			    "500,1,500,3500,cpu,cpu,,,,,,backward,unknown,native,,,,,,\r\n");
}

static void test_segments(void **state)
{
	struct output *o = report("--by", "segment", segmented, NULL);
	json_t *doc, *dev, *rec, *row;

	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out,
			       "Reserved: 22.00 MiB in 2 segments\n"
			       "  allocated 5.00 MiB\n"
			       "  cached    17.00 MiB\n"
			       "    2.00 MiB can be returned to CUDA (1 empty segment)\n"
			       "    15.00 MiB cannot be returned: its segments have blocks in use\n"
			       "    largest gap 10.00 MiB\n"));
	assert_null(strstr(o->out, "record_stream")); /* nothing was freed */
	assert_non_null(strstr(o->out, "15.00 MiB  20.00 MiB   5.00 MiB    10.00 MiB"));
	assert_non_null(strstr(o->out, "   40.00 MiB  used by the process"));
	assert_non_null(
		strstr(o->out, "    8.00 MiB  taken by other code (cudaMalloc, a.py:1 (f))\n"));
	assert_non_null(strstr(
		o->out, "the driver had at most 984.00 MiB left of 1.00 GiB (other processes not"));
	doc = parse(report("--by", "segment", "--format", "json", segmented, NULL)->out);
	dev = json_array_get(json_object_get(doc, "devices"), 0);
	rec = json_object_get(dev, "reconciliation");
	row = json_array_get(json_object_get(doc, "rows"), 0);
	assert_int_equal(rows_sum(doc), 5 * MIB);
	assert_int_equal(integer(row, "stuck"), 15 * MIB);
	assert_int_equal(json_array_size(json_object_get(row, "pins")), 1);
	assert_int_equal(integer(json_object_get(rec, "segments"), "not_known"), 0);
	assert_int_equal(integer(json_object_get(rec, "others"), "bytes"), 8 * MIB);
	assert_int_equal(integer(rec, "used"), 40 * MIB);
	/* No total had arrived yet: sums are of recorded allocations. */
	assert_int_equal(integer(rec, "used_reserved") + integer(rec, "used_others") +
				 integer(rec, "not_seen"),
			 40 * MIB);
	assert_int_equal(integer(rec, "not_seen"), 10 * MIB);
	assert_int_equal(integer(json_array_get(json_object_get(dev, "out_of_memory"), 0),
				 "largest_gap"),
			 10 * MIB);
	json_decref(doc);
	o = report("--by", "segment", "--format", "csv", segmented, NULL);
	assert_non_null(strstr(
		o->out, "\r\n0x6400000,20971520,5242880,15728640,15728640,10485760,1,seg,cuda:0,,,"
			"large,false,false,"
			"0.100000000,/home/u/gemma/a.py,1,f,/home/u/gemma/a.py,1,f,5242880,1\r\n"));
}

/* PyTorch's allocator takes its first segment. */
static void add_segment(struct tape *t, uint64_t addr, uint64_t size)
{
	put(t, (struct event){ .kind = EVENT_CUDA_ALLOC,
			       .how = MEM_DEVICE,
			       .device = CUDA,
			       .addr = addr,
			       .size = size,
			       .flags = MEM_BY_ALLOCATOR });
	t->reserved = size;
}

/* Memory of other code by 12 lines, and managed memory, which has a line of its own. */
static void test_memory_of_others(void **state)
{
	char path[96];
	struct output *o;
	struct tape t;

	snprintf(path, sizeof(path), "%s/others.mtr", dir);
	t = tape__new(path);
	for (int i = 0; i < 13; i++) {
		struct dict_frame f = frame(&t, "/home/u/gemma/a.py", "f", 1 + i, NULL);

		put(&t, (struct event){ .kind = EVENT_CUDA_ALLOC,
					.how = i == 12 ? MEM_MANAGED : MEM_DEVICE,
					.device = CUDA,
					.addr = (100 + 100 * i) * MIB,
					.size = (20 - i) * MIB,
					.stack = dict__stack(t.d, &f, 1, MT_WALK_OK) });
	}
	add_segment(&t, 10 * MIB, 2 * MIB);
	alloc(&t, CUDA, 10 * MIB, MIB, 0);
	tape__close(&t);
	o = report("--by", "segment", path, NULL);
	assert_non_null(strstr(o->out, "  174.00 MiB  taken by other code (cudaMalloc, "
				       "a.py:1 (f), 11 more)\n"));
	assert_non_null(strstr(o->out, "    8.00 MiB  managed, on the device or on the host\n"));
	o = report("--by", "segment", "--frames", "native", path, NULL);
	assert_non_null(strstr(o->out, "   19.00 MiB  taken by other code: + 2 more\n"));
}

/* The cached memory would do for the request, but each of its pieces is too small. */
static void test_fragmentation(void **state)
{
	static const char said[] = "fragmentation: 17.00 MiB are cached in pieces that are too "
				   "small";
	char path[96];
	struct output *o;
	struct tape t;

	for (uint64_t asked = 8; asked <= 24; asked += 4) {
		snprintf(path, sizeof(path), "%s/oom%d.mtr", dir, (int)asked);
		t = tape__new(path);
		add_segment(&t, 100 * MIB, 22 * MIB);
		alloc(&t, CUDA, 110 * MIB, 5 * MIB, 0);
		put(&t, (struct event){ .kind = EVENT_OOM, .device = CUDA, .size = asked * MIB });
		tape__close(&t);
		o = report("--at", "oom", path, NULL);
		assert_int_equal(o->status, 0);
		/* Pieces of 10 and 7 MiB. */
		assert_int_equal(!strstr(o->out, said), asked <= 10 || asked > 17);
	}
}

/* Tensors of the failed call: of the frames up to the line that the report shows, each one once. */
static void test_tensors_of_failed_call(void **state)
{
	static const char said[] =
		"\n  tensors there: x float32 [2, 3] 24 B, view of 48 B, on cpu - "
		"big float32 [2, 3] 24 B\n  flag bool [] 1 B\n";
	struct oom_tensor v[] = {
		{ .impl = 1,
		  .bytes = 1,
		  .dtype = "bool",
		  .name = "flag",
		  .line = 134,
		  .sized = true },
		{ .impl = 2, .bytes = 24, .dtype = "float32", .name = "input", .line = 134 },
		{ .impl = 3,
		  .bytes = 24,
		  .storage = 48,
		  .dtype = "float32",
		  .name = "x",
		  .line = 12 },
		{ .impl = 2, .bytes = 24, .dtype = "float32", .name = "big", .line = 12 },
		{ .impl = 4, .bytes = 99, .dtype = "float32", .name = "other", .line = 13 },
		{ .impl = 5, .bytes = 99, .dtype = "float32", .name = "outer", .line = 20 },
	};
	struct output *o;
	json_t *doc, *failed, *t0;
	char path[96];
	struct tape t;

	snprintf(path, sizeof(path), "%s/failed.mtr", dir);
	t = tape__new(path);
	struct dict_frame f[] = {
		frame(&t, SP "nn/modules/linear.py", "Linear.forward", 134, NULL),
		frame(&t, "/home/u/gemma/net.py", "Net.forward", 12, NULL),
		frame(&t, "/home/u/gemma/train.py", "<module>", 20, NULL),
	};

	alloc(&t, CUDA, 110 * MIB, 5 * MIB, 0);
	put(&t, (struct event){ .kind = EVENT_OOM,
				.device = CUDA,
				.size = 9 * MIB,
				.stack = dict__stack(t.d, f, 3, MT_WALK_OK) });
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		v[i].depth = v[i].line == 134 ? 0 : 1;
		v[i].file = v[i].depth ? "/home/u/gemma/net.py" : SP "nn/modules/linear.py";
		v[i].func = v[i].depth ? "Net.forward" : "Linear.forward";
		v[i].device = v[i].impl == 3 ? CPU : CUDA;
		if (v[i].impl != 1) {
			v[i].sized = true;
			v[i].ndim = 2;
			v[i].shape[0] = 2;
			v[i].shape[1] = 3;
		}
	}
	assert_int_equal(oom__add(t.f, 0, t.time, v, sizeof(v) / sizeof(v[0])), 0);
	tape__close(&t);
	setenv("COLUMNS", "100", 1);
	o = report("--at", "oom", path, NULL);
	setenv("COLUMNS", "80", 1);
	assert_int_equal(o->status, 0);
	if (!strstr(o->out, said))
		fail_msg("%s", o->out);
	doc = parse(report("--format", "json", path, NULL)->out);
	failed = json_array_get(json_object_get(json_array_get(json_object_get(doc, "devices"), 0),
						"out_of_memory"),
				0);
	assert_int_equal(json_array_size(json_object_get(failed, "tensors")), 3);
	t0 = json_array_get(json_object_get(failed, "tensors"), 0);
	assert_string_equal(json_string_value(json_object_get(t0, "name")), "x");
	assert_string_equal(json_string_value(json_object_get(t0, "function")), "Net.forward");
	assert_int_equal(json_array_size(json_object_get(t0, "shape")), 2);
	json_decref(doc);
}

static void test_cut_and_damaged(void **state)
{
	struct output *o = report("--format", "json", cut, NULL);
	json_t *doc = parse(o->out);

	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "without an end"));
	assert_true(json_is_false(json_object_get(json_object_get(doc, "capture"), "complete")));
	json_decref(doc);
	o = report(cut, NULL);
	assert_non_null(strstr(o->out, "recording not complete: "));
	o = report(damaged, NULL);
	assert_non_null(strstr(o->err, "damaged at byte"));
	assert_true(o->status == 0 ||
		    (o->status == EXIT_UNUSABLE && strstr(o->err, "no event can be read")));
}

static void test_exit_codes(void **state)
{
	assert_int_equal(report(NULL, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "colour", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--at", "noon", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--top", "-1", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--format", "xml", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--frames", "some", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "category,colour", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "category,", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "stack,category", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "segment,category", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--tree", "--by", "phase", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--tree", "--format", "json", recording, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--by", "segment", recording, NULL)->status, EXIT_UNUSABLE);
	assert_int_equal(report("--device", "cuda:7", recording, NULL)->status, EXIT_UNUSABLE);
	assert_non_null(
		strstr(report("--device", "cuda:7", recording, NULL)->err, "there is cuda:0"));
	assert_int_equal(report("--at", "oom", cpu_recording, NULL)->status, EXIT_UNUSABLE);
	assert_int_equal(report("/nonexistent", NULL)->status, EXIT_UNUSABLE);
	assert_int_equal(report("/dev/null", NULL)->status, EXIT_UNUSABLE);
	assert_int_equal(report(dir, NULL)->status, EXIT_UNUSABLE);
	assert_int_equal(report("tests/unit/report/test_report.c", NULL)->status, EXIT_UNUSABLE);
	assert_string_equal(report("/nonexistent", NULL)->out, "");
}

static void test_full_disk(void **state)
{
	char name[] = "memtrace-bpf report", *argv[] = { name, recording, NULL };
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(open("/dev/full", O_WRONLY), 1);
		dup2(open("/dev/null", O_WRONLY), 2);
		_exit(command_report.run(2, argv));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), EXIT_FAILED);
}

/* Frames of PyTorch and modules that are alike are folded. */
static void test_folded(void **state)
{
	struct output *o = report("--by", "stack", "--no-overview", blocks, NULL);

	assert_non_null(strstr(o->out, "  7.00 MiB   88       5  forward  blocks.* (5)  net.py:7 "
				       "(Block.forward)\n"
				       "    train.py:20 (<module>)\n"
				       "      net.py:12 (Net.forward)\n"
				       "        net.py:7 (Block.forward)\n"
				       "\n"
				       "  1.00 MiB   13       1  forward  head          net.py:9 "
				       "(Head.forward)\n"));
	o = report("--by", "stack", "--frames", "all", "--no-overview", blocks, NULL);
	assert_non_null(strstr(o->out, "torch/nn/modules/module.py:1775 (Module._wrapped_call"));
	assert_non_null(strstr(o->out, "  3.00 MiB   38       1  forward  blocks.9  "));
	o = report("--tree", blocks, NULL);
	assert_non_null(strstr(o->out,
			       "  8.00 MiB  100         0 B          6  Gemma (model)\n"
			       "  7.00 MiB   88         0 B          5    blocks\n"
			       "  3.00 MiB   38    3.00 MiB          1      9 (Attention)\n"
			       "  4.00 MiB   50    4.00 MiB          4      0-3 (Attention) x4\n"
			       "  1.00 MiB   13    1.00 MiB          1    head (Attention)\n"));
	o = report(blocks, NULL);
	assert_non_null(strstr(o->out, "  blocks.* (5)       7.00 MiB   88 %"));
}

static void test_columns(void **state)
{
	struct output *o;

	o = report("--columns", "size,median,cumulative", "--no-overview", blocks, NULL);
	assert_non_null(strstr(o->out,
			       "\n      Size  Cumulative    Median  Location\n"
			       "  7.00 MiB    7.00 MiB  1.00 MiB  net.py:7 (Block.forward)\n"
			       "  1.00 MiB    8.00 MiB  1.00 MiB  net.py:9 (Head.forward)\n"));
	o = report("--columns", "+median,requested", "--no-overview", blocks, NULL);
	assert_non_null(strstr(o->out, "\n      Size    %  Blocks    Median  Requested  Role "));
	o = report("--columns", "blocks,percent", "--format", "csv", blocks, NULL);
	assert_string_equal(o->out, "bytes,count\r\n3145728,1\r\n1048576,1\r\n1048576,1\r\n"
				    "1048576,1\r\n1048576,1\r\n1048576,1\r\n");
	o = report("--columns", "bytes,module,line", "--format", "csv", "--top", "1", blocks, NULL);
	assert_string_equal(o->out, "bytes,line,module,module_class\r\n"
				    "3145728,7,blocks.9,Attention\r\n");
	o = report("--columns", "size,colour", blocks, NULL);
	assert_int_equal(o->status, EXIT_USAGE);
	assert_non_null(strstr(o->err, "--columns: unknown column 'colour'; use size, percent,"));
	/* Columns that this form does not have. */
	o = report("--columns", "size,module,requested", "--format", "csv", blocks, NULL);
	assert_int_equal(o->status, EXIT_USAGE);
	assert_non_null(strstr(o->err, "--columns: this report has no column 'requested'; use "
				       "bytes, count, median, cumulative, recording,"));
	o = report("--columns", "+module,phase", "--by", "category", blocks, NULL);
	assert_int_equal(o->status, EXIT_USAGE);
	assert_string_equal(o->out, "");
	assert_non_null(strstr(o->err, "no column 'module'; use size, percent, blocks, cumulative, "
				       "median, requested, role\n"));
	o = report("--columns", "size,phase,thread", "--by", "phase", blocks, NULL);
	assert_non_null(strstr(o->err, "no column 'thread'; use size, percent, blocks, cumulative, "
				       "median, requested, phase\n"));
	o = report("--by", "layer", "--columns", "size,module,cumulative", blocks, NULL);
	assert_non_null(strstr(o->err, "no column 'cumulative'; use size, percent, blocks, median, "
				       "requested, module\n"));
	o = report("--columns", "size,file", blocks, NULL);
	assert_non_null(strstr(o->err, "no column 'file'; use size, percent,"));
	o = report("--columns", "size,phase", "--by", "phase", "--no-overview", blocks, NULL);
	assert_non_null(strstr(o->out, "\n      Size  Phase\n  8.00 MiB  forward\n"));
	o = report("--columns", "role,thread", "--by", "category,thread", blocks, NULL);
	assert_int_equal(o->status, EXIT_OK);
	assert_int_equal(report("--columns", "", blocks, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--columns", "size,", blocks, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--columns", "size", "--tree", blocks, NULL)->status, EXIT_USAGE);
	assert_int_equal(report("--columns", "size", "--format", "json", blocks, NULL)->status,
			 EXIT_USAGE);
	assert_int_equal(report("--columns", "size", "--together", blocks, NULL)->status,
			 EXIT_USAGE);
}

/* Functions have their class in all rows of a table, or in none. */
static void test_names_are_alike(void **state)
{
	for (int columns = 50; columns <= 150; columns++) {
		char number[16], *with, *without;
		struct output *o;

		snprintf(number, sizeof(number), "%d", columns);
		setenv("COLUMNS", number, 1);
		o = report("--no-overview", recording, NULL);
		with = strstr(o->out, "(Attention.forward)");
		without = strstr(o->out, "(forward)");
		if ((with && without) || !strstr(o->out, "model.py:336"))
			fail_msg("%d columns: status %d, %s\n%s", columns, o->status, o->err,
				 o->out);
	}
	setenv("COLUMNS", "80", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_text_is_80_columns),
		cmocka_unit_test(test_combinations),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_folded),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_names_are_alike),
		cmocka_unit_test(test_top),
		cmocka_unit_test(test_filter),
		cmocka_unit_test(test_filter_in_text_and_csv),
		cmocka_unit_test(test_filter_errors),
		cmocka_unit_test(test_unknown_role),
		cmocka_unit_test(test_hide),
		cmocka_unit_test(test_bars_and_colour),
		cmocka_unit_test(test_cpu_text),
		cmocka_unit_test(test_age_of_host_memory),
		cmocka_unit_test(test_line_of_host_memory),
		cmocka_unit_test(test_readings_beside_device),
		cmocka_unit_test(test_only_host),
		cmocka_unit_test(test_only_host_later),
		cmocka_unit_test(test_parts_of_both_readings),
		cmocka_unit_test(test_fail_if_live),
		cmocka_unit_test(test_fail_if_scope_before),
		cmocka_unit_test(test_scopes_without_memory),
		cmocka_unit_test(test_host_of_scopes),
		cmocka_unit_test(test_stacks_not_copied),
		cmocka_unit_test(test_killed_for_host_memory),
		cmocka_unit_test(test_rows_that_do_not_add_up),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_moments),
		cmocka_unit_test(test_json_stack),
		cmocka_unit_test(test_json_cpu),
		cmocka_unit_test(test_modules_of_stacks),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_recorded_from_the_start),
		cmocka_unit_test(test_fail_if_blames_lines),
		cmocka_unit_test(test_fail_if_growth_leaves_out_what_was_there_before),
		cmocka_unit_test(test_json_of_several),
		cmocka_unit_test(test_json_odd),
		cmocka_unit_test(test_csv),
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_memory_of_others),
		cmocka_unit_test(test_fragmentation),
		cmocka_unit_test(test_tensors_of_failed_call),
		cmocka_unit_test(test_cut_and_damaged),
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
