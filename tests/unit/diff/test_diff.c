/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* diff and compare on generated recordings, byte by byte as text, JSON, CSV and Markdown. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <locale.h>
#include <stdbool.h>

#include "unit/report_tape.h"
#include "unit/scratch.h"

#define DOT "\xc2\xb7"

static char dir[] = "/tmp/test_diff.XXXXXX";
static char old[64], new[64], odd[64], lossy[64], cpu[64], late[64], told[64];

static const char *folder; /* of the tape's program */
static bool call_noted_outside;

static struct tape open_tape(const char *path, const char *in, const char *torch)
{
	struct tape t = tape__new(path);

	folder = in;
	call_noted_outside = false;
	facts__set(t.f, "torch", torch);
	facts__set(t.f, "cwd", in);
	facts__set(t.f, "attached_at", "start");
	return t;
}

/* file: relative to the program's folder, or an absolute path. */
static struct dict_frame at(struct tape *t, const char *file, const char *func, uint32_t line,
			    const char *module, const char *cls)
{
	char path[256];
	struct dict_loc loc = { 0, str(t, func), line };
	struct dict_module mod = { module ? str(t, module) : 0, str(t, cls ? cls : ""),
				   str(t, "Net") };

	snprintf(path, sizeof(path), "%s%s%s", *file == '/' ? "" : folder, *file == '/' ? "" : "/",
		 file);
	loc.file = str(t, path);
	return (struct dict_frame){ .loc = dict__loc(t->d, loc),
				    .module = module ? dict__module(t->d, mod) : 0 };
}

static void record(struct tape *t, struct event e)
{
	uint64_t total = t->total + (e.kind == EVENT_ALLOC ? e.size : 0);

	if (e.device.type == DEVICE_CUDA && total > t->reserved)
		t->reserved = total + 2 * MIB;
	put(t, e);
}

/*
 * Allocates in a layer's forward: net.py:line of Layer.forward, called by train.py:call. Recordings
 * differ in the frame that has the module entry.
 */
static void alloc_in(struct tape *t, uint64_t addr, uint64_t size, uint32_t line,
		     const char *module, uint32_t call)
{
	bool outer = call_noted_outside;
	struct dict_frame f[] = {
		at(t, "net.py", "Layer.forward", line, NULL, NULL),
		at(t, SP "nn/modules/module.py", "Module._call_impl", 1786, outer ? NULL : module,
		   "Layer"),
		at(t, SP "nn/modules/module.py", "Module._wrapped_call_impl", 1775,
		   outer ? module : NULL, "Layer"),
		at(t, "train.py", "<module>", call, NULL, NULL),
	};

	record(t, (struct event){ .kind = EVENT_ALLOC,
				  .device = CUDA,
				  .addr = addr,
				  .size = size,
				  .stack = dict__stack(t->d, f, 4, MT_WALK_OK) });
}

static void step(struct tape *t)
{
	record(t, (struct event){ .kind = EVENT_STEP, .device = CUDA });
}

/* Two layers; lines 10 and 12 of net.py. */
static void write_old(void)
{
	struct tape t = open_tape(old, "/home/u/one", "2.11.0");

	alloc_in(&t, 0x1000000, 8 * MIB, 10, "layers.0", 7);
	alloc_in(&t, 0x2000000, 4 * MIB, 12, "layers.0", 7);
	step(&t);
	alloc_in(&t, 0x3000000, 8 * MIB, 10, "layers.1", 7);
	alloc_in(&t, 0x4000000, 3 * MIB, 20, "head", 7);
	step(&t);
	record(&t,
	       (struct event){
		       .kind = EVENT_FREE, .device = CUDA, .addr = 0x1000000, .size = 8 * MIB });
	step(&t);
	tape__close(&t);
}

/* In another folder: two new lines above, a third layer, half the size at line 12, the head
 * allocates at another line. */
static void write_new(void)
{
	struct tape t = open_tape(new, "/home/u/two", "2.11.0");

	call_noted_outside = true;
	alloc_in(&t, 0x1000000, 8 * MIB, 12, "layers.0", 9);
	alloc_in(&t, 0x2000000, 2 * MIB, 14, "layers.0", 9);
	step(&t);
	alloc_in(&t, 0x3000000, 8 * MIB, 12, "layers.1", 9);
	alloc_in(&t, 0x5000000, 8 * MIB, 12, "layers.2", 9);
	step(&t);
	record(&t, (struct event){ .kind = EVENT_OOM, .device = CUDA, .size = 64 * MIB });
	tape__close(&t);
}

/* Names that need escaping, wherever a target can put one, in a dry run. */
static void write_odd(void)
{
	struct tape t = open_tape(odd, "/x/\x1b[2J|*\xe2\x80\xae", "9.9\x1b|<b>");
	struct dict_frame f = at(&t, "</script>|\r\n.py", "\x1b]0;f\a\"`*", 3, "m|\x9b\n\"",
				 "C<b>");

	facts__set(t.f, "dry_run", "1");
	record(&t, (struct event){ .kind = EVENT_ALLOC,
				   .device = CUDA,
				   .addr = 1,
				   .size = 1000,
				   .stack = dict__stack(t.d, &f, 1, MT_WALK_OK) });
	tape__close(&t);
}

/* One allocation of 1 MiB is missing. */
static void write_lossy(void)
{
	struct tape t = open_tape(lossy, "/home/u/one", "2.11.0");

	alloc_in(&t, 0x1000000, 8 * MIB, 10, "layers.0", 7);
	t.total += MIB;
	record(&t, (struct event){ .kind = EVENT_LOST, .size = 7 });
	record(&t, (struct event){ .kind = EVENT_LOST });
	alloc_in(&t, 0x2000000, 4 * MIB, 12, "layers.0", 7);
	tape__close(&t);
}

static void write_cpu(void)
{
	struct tape t = open_tape(cpu, "/home/u/one", "2.11.0");
	struct dict_frame f = at(&t, "data.py", "load", 3, NULL, NULL);

	record(&t, (struct event){ .kind = EVENT_ALLOC,
				   .addr = 1,
				   .size = MIB,
				   .stack = dict__stack(t.d, &f, 1, MT_WALK_OK) });
	tape__close(&t);
}

/* Attached when 10 MiB were allocated. */
static void write_late(void)
{
	struct tape t = open_tape(late, "/home/u/one", "2.11.0");

	facts__set(t.f, "attached_at", "live");
	t.total = 10 * MIB;
	alloc_in(&t, 0x1000000, 8 * MIB, 10, "layers.0", 7);
	tape__close(&t);
}

/* The old recording plus a census: the program's objects name one block. */
static void write_named(void)
{
	struct tape t = open_tape(told, "/home/u/one", "2.11.0");
	struct dict_module m = { str(&t, "layers.0"), str(&t, "Layer"), str(&t, "Net") };

	alloc_in(&t, 0x1000000, 8 * MIB, 10, "layers.0", 7);
	record(&t, (struct event){ .kind = EVENT_TENSOR,
				   .device = CUDA,
				   .addr = 0x1000000,
				   .size = 8 * MIB,
				   .category = CATEGORY_PARAMETER,
				   .name = str(&t, "layers.0.weight"),
				   .module = dict__module(t.d, m) });
	record(&t, (struct event){ .kind = EVENT_CENSUS, .device = CUDA, .size = 8 * MIB });
	alloc_in(&t, 0x2000000, 4 * MIB, 12, "layers.0", 7);
	step(&t);
	alloc_in(&t, 0x3000000, 8 * MIB, 10, "layers.1", 7);
	alloc_in(&t, 0x4000000, 3 * MIB, 20, "head", 7);
	tape__close(&t);
}

static int setup(void **state)
{
	setenv("COLUMNS", "80", 1);
	assert_non_null(mkdtemp(dir));
	snprintf(old, sizeof(old), "%s/old.mtr", dir);
	snprintf(new, sizeof(new), "%s/new.mtr", dir);
	snprintf(odd, sizeof(odd), "%s/odd.mtr", dir);
	snprintf(lossy, sizeof(lossy), "%s/lossy.mtr", dir);
	snprintf(cpu, sizeof(cpu), "%s/cpu.mtr", dir);
	snprintf(late, sizeof(late), "%s/late.mtr", dir);
	write_late();
	snprintf(told, sizeof(told), "%s/told.mtr", dir);
	write_named();
	write_old();
	write_new();
	write_odd();
	write_lossy();
	write_cpu();
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(dir);
}

static struct output *run(int (*command)(int argc, char **argv), const char *first, ...)
{
	struct output *o;
	va_list ap;

	va_start(ap, first);
	o = run_command(command, "memtrace-bpf", first, ap);
	va_end(ap);
	return o;
}

/* The last line of each command's text names the other one. */
#define OTHER_OF_DIFF "\nPeaks and step times: memtrace-bpf compare OLD NEW\n"
#define OTHER_OF_COMPARE "\nLines that changed: memtrace-bpf diff OLD NEW\n"

static void expect(const struct output *o, const char *text)
{
	if (o->status || strcmp(o->out, text) != 0)
		print_error("status %d, \"%s\", said %s\n", o->status, o->out, o->err);
	assert_int_equal(o->status, 0);
	assert_string_equal(o->out, text);
}

/* The lines moved by two, the folder has another name, a layer is new, and the head's line is
 * gone. */
static void test_text(void **state)
{
	expect(run(command_diff.run, old, new, NULL),
	       "old  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "new  new: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 7 events, 0 lost\n"
	       "     cuda:0  peak 26.00 MiB at 0.50 s (step 2, forward)\n"
	       "\n"
	       "Peak: 23.00 MiB -> 26.00 MiB, +3.00 MiB (+13.0 %)\n"
	       "1 grew +8.00 MiB, 1 shrank -2.00 MiB, 1 gone -3.00 MiB\n"
	       "Files in /home/u/one are matched with those in /home/u/two.\n"
	       "\n"
	       "   Change        Old        New  Location\n"
	       "+8.00 MiB  16.00 MiB  24.00 MiB  net.py:12 (Layer.forward), moved from :10\n"
	       "-3.00 MiB   3.00 MiB          -  net.py:20 (Layer.forward)\n"
	       "-2.00 MiB   4.00 MiB   2.00 MiB  net.py:14 (Layer.forward), moved from "
	       ":12\n" OTHER_OF_DIFF);
}

static void test_modules(void **state)
{
	expect(run(command_diff.run, old, new, "--by", "module", "--top", "2", NULL),
	       "old  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "new  new: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 7 events, 0 lost\n"
	       "     cuda:0  peak 26.00 MiB at 0.50 s (step 2, forward)\n"
	       "\n"
	       "Peak: 23.00 MiB -> 26.00 MiB, +3.00 MiB (+13.0 %)\n"
	       "1 shrank -2.00 MiB, 1 new +8.00 MiB, 1 gone -3.00 MiB, 1 unchanged\n"
	       "Files in /home/u/one are matched with those in /home/u/two.\n"
	       "\n"
	       "   Change       Old       New  How   Module\n"
	       "+8.00 MiB         -  8.00 MiB  new   layers.2 (Layer)\n"
	       "-3.00 MiB  3.00 MiB         -  gone  head (Layer)\n"
	       "+ 1 more row: -2.00 MiB\n" OTHER_OF_DIFF);
}

/* A line shared by several modules on one side is not named after the module left on the other
 * side. */
static void test_shared_lines(void **state)
{
	const struct output *o;

	setenv("COLUMNS", "160", 1);
	o = run(command_diff.run, old, lossy, NULL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "layers.* (2 -> 1)  net.py:10"));
	assert_non_null(strstr(o->out, "head               net.py:20"));
	o = run(command_diff.run, new, old, NULL);
	assert_non_null(strstr(o->out, "layers.* (3 -> 2)  net.py:10"));
	assert_non_null(strstr(o->out, "layers.0           net.py:12"));
	setenv("COLUMNS", "80", 1);
}

/* In reverse order all differences are reversed. */
static void test_back(void **state)
{
	expect(run(command_diff.run, new, old, "--top", "0", NULL),
	       "old  new: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 7 events, 0 lost\n"
	       "     cuda:0  peak 26.00 MiB at 0.50 s (step 2, forward)\n"
	       "new  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "\n"
	       "Peak: 26.00 MiB -> 23.00 MiB, -3.00 MiB (-11.5 %)\n"
	       "1 grew +2.00 MiB, 1 shrank -8.00 MiB, 1 new +3.00 MiB\n"
	       "Files in /home/u/two are matched with those in /home/u/one.\n"
	       "\n"
	       "   Change        Old        New  Location\n"
	       "-8.00 MiB  24.00 MiB  16.00 MiB  net.py:10 (Layer.forward), moved from :12\n"
	       "+3.00 MiB          -   3.00 MiB  net.py:20 (Layer.forward)\n"
	       "+2.00 MiB   2.00 MiB   4.00 MiB  net.py:12 (Layer.forward), moved from "
	       ":14\n" OTHER_OF_DIFF);
}

static void test_unlike_moments(void **state)
{
	expect(run(command_diff.run, old, old, "--at", "0.15,end", "--by", "phase", NULL),
	       "old  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "new  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "\n"
	       "At 0.15 s, then at the end: 8.00 MiB -> 15.00 MiB, +7.00 MiB (+87.5 %)\n"
	       "1 grew +7.00 MiB\n"
	       "\n"
	       "   Change       Old        New  How   Phase\n"
	       "+7.00 MiB  8.00 MiB  15.00 MiB  grew  forward\n" OTHER_OF_DIFF);
}

/* Missing bytes are reported with their amount. */
static void test_lossy(void **state)
{
	expect(run(command_diff.run, old, lossy, NULL),
	       "old  old: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 8 events, 0 lost\n"
	       "     cuda:0  peak 23.00 MiB at 0.50 s (step 2, forward)\n"
	       "new  lossy: python train.py\n"
	       "     torch 2.11.0 " DOT " 31.4 s " DOT " 2 events, 7 lost\n"
	       "     cuda:0  peak at least 13.00 MiB at 0.40 s (forward)\n"
	       "\n"
	       "Peak: 23.00 MiB -> at least 13.00 MiB, -10.00 MiB (-43.5 %)\n"
	       "1 shrank -8.00 MiB, 1 gone -3.00 MiB, 1 unchanged\n"
	       "\n"
	       "   Change        Old       New  How     Phase    Location\n"
	       "-8.00 MiB  16.00 MiB  8.00 MiB  shrank  forward  net.py:10 (Layer.forward)\n"
	       "-3.00 MiB   3.00 MiB         -  gone    forward  net.py:20 (Layer.forward)\n"
	       "\n"
	       "The changes add up to -11.00 MiB, not to the difference in memory of -10.00 MiB:\n"
	       "1.00 MiB are in no row because events were lost.\n" OTHER_OF_DIFF);
}

static void test_csv(void **state)
{
	expect(run(command_diff.run, old, new, "--format", "csv", NULL),
	       "status,change,old_bytes,new_bytes,old_count,new_count,device,old_file,old_line,old_"
	       "function,new_file,new_line,new_function,module,module_class,phase,category,source,"
	       "thread,name,stack,scope\r\n"
	       "new,8388608,0,8388608,0,1,cuda:0,,,,/home/u/two/"
	       "net.py,12,Layer.forward,layers.2,Layer,forward,unknown,frame,,,,\r\n"
	       "gone,-3145728,3145728,0,1,0,cuda:0,/home/u/one/"
	       "net.py,20,Layer.forward,,,,head,Layer,forward,unknown,frame,,,,\r\n"
	       "shrank,-2097152,4194304,2097152,1,1,cuda:0,/home/u/one/net.py,12,Layer.forward,/"
	       "home/u/two/net.py,14,Layer.forward,layers.0,Layer,forward,unknown,frame,,,,\r\n"
	       "unchanged,0,8388608,8388608,1,1,cuda:0,/home/u/one/net.py,10,Layer.forward,/home/u/"
	       "two/net.py,12,Layer.forward,layers.0,Layer,forward,unknown,frame,,,,\r\n"
	       "unchanged,0,8388608,8388608,1,1,cuda:0,/home/u/one/net.py,10,Layer.forward,/home/u/"
	       "two/net.py,12,Layer.forward,layers.1,Layer,forward,unknown,frame,,,,\r\n");
}

static void test_json(void **state)
{
	expect(run(command_diff.run, old, new, "--format", "json", "--by", "stack", "--top", "1",
		   NULL),
	       "{\n"
	       " \"memtrace\": {\n"
	       "  \"version\": \"" MEMTRACE_VERSION "\"\n"
	       " },\n"
	       " \"old\": {\n"
	       "  \"recording\": \"old\",\n"
	       "  \"cwd\": \"/home/u/one\",\n"
	       "  \"torch\": \"2.11.0\",\n"
	       "  \"python\": \"3.12.1\",\n"
	       "  \"attached_at\": \"start\",\n"
	       "  \"duration\": 31.400000000,\n"
	       "  \"events\": 8,\n"
	       "  \"lost\": 0,\n"
	       "  \"steps\": 3,\n"
	       "  \"complete\": true,\n"
	       "  \"device\": \"cuda:0\",\n"
	       "  \"at\": \"peak\",\n"
	       "  \"time\": 0.500000000,\n"
	       "  \"allocated\": 24117248,\n"
	       "  \"allocated_is\": \"exact\",\n"
	       "  \"peak_allocated\": 24117248,\n"
	       "  \"rows\": 4,\n"
	       "  \"rows_bytes\": 24117248\n"
	       " },\n"
	       " \"new\": {\n"
	       "  \"recording\": \"new\",\n"
	       "  \"cwd\": \"/home/u/two\",\n"
	       "  \"torch\": \"2.11.0\",\n"
	       "  \"python\": \"3.12.1\",\n"
	       "  \"attached_at\": \"start\",\n"
	       "  \"duration\": 31.400000000,\n"
	       "  \"events\": 7,\n"
	       "  \"lost\": 0,\n"
	       "  \"steps\": 2,\n"
	       "  \"complete\": true,\n"
	       "  \"device\": \"cuda:0\",\n"
	       "  \"at\": \"peak\",\n"
	       "  \"time\": 0.500000000,\n"
	       "  \"allocated\": 27262976,\n"
	       "  \"allocated_is\": \"exact\",\n"
	       "  \"peak_allocated\": 27262976,\n"
	       "  \"rows\": 4,\n"
	       "  \"rows_bytes\": 27262976\n"
	       " },\n"
	       " \"device\": \"cuda:0\",\n"
	       " \"by\": \"stack\",\n"
	       " \"change\": 3145728,\n"
	       " \"adds_up\": true,\n"
	       " \"missing\": 0,\n"
	       " \"summary\": {\n"
	       "  \"grew\": {\n"
	       "   \"rows\": 0,\n"
	       "   \"bytes\": 0\n"
	       "  },\n"
	       "  \"shrank\": {\n"
	       "   \"rows\": 1,\n"
	       "   \"bytes\": 2097152\n"
	       "  },\n"
	       "  \"new\": {\n"
	       "   \"rows\": 1,\n"
	       "   \"bytes\": 8388608\n"
	       "  },\n"
	       "  \"gone\": {\n"
	       "   \"rows\": 1,\n"
	       "   \"bytes\": 3145728\n"
	       "  },\n"
	       "  \"unchanged\": {\n"
	       "   \"rows\": 2,\n"
	       "   \"bytes\": 0\n"
	       "  }\n"
	       " },\n"
	       " \"renamed_files\": [\n"
	       "  {\n"
	       "   \"old\": \"/home/u/one/net.py\",\n"
	       "   \"new\": \"/home/u/two/net.py\"\n"
	       "  },\n"
	       "  {\n"
	       "   \"old\": \"/home/u/one/train.py\",\n"
	       "   \"new\": \"/home/u/two/train.py\"\n"
	       "  }\n"
	       " ],\n"
	       " \"rows\": [\n"
	       "  {\n"
	       "   \"status\": \"new\",\n"
	       "   \"change\": 8388608,\n"
	       "   \"old_bytes\": 0,\n"
	       "   \"new_bytes\": 8388608,\n"
	       "   \"old_count\": 0,\n"
	       "   \"new_count\": 1,\n"
	       "   \"old\": null,\n"
	       "   \"new\": {\n"
	       "    \"file\": \"/home/u/two/net.py\",\n"
	       "    \"line\": 12,\n"
	       "    \"function\": \"Layer.forward\",\n"
	       "    \"stack\": [\n"
	       "     \"<module> (/home/u/two/train.py:9)\",\n"
	       "     \"Module._wrapped_call_impl "
	       "(/usr/lib/python3.12/site-packages/torch/nn/modules/module.py:1775)\",\n"
	       "     \"Module._call_impl "
	       "(/usr/lib/python3.12/site-packages/torch/nn/modules/module.py:1786)\",\n"
	       "     \"Layer.forward (/home/u/two/net.py:12)\"\n"
	       "    ]\n"
	       "   },\n"
	       "   \"moved\": false,\n"
	       "   \"module\": \"layers.2\",\n"
	       "   \"module_class\": \"Layer\",\n"
	       "   \"module_root\": \"Net\",\n"
	       "   \"phase\": \"forward\",\n"
	       "   \"category\": \"unknown\",\n"
	       "   \"source\": \"frame\"\n"
	       "  }\n"
	       " ],\n"
	       " \"rows_left_out\": 4\n"
	       "}\n");
}

/* Blocks without a line cannot be matched: the output says so, and totals stay right. */
static void test_before_attach(void **state)
{
	const char *text;

	text = run(command_diff.run, late, old, NULL)->out;
	assert_non_null(strstr(text, "10.00 MiB of the old recording were there before "
				     "attach and have no line.\nRows that are new may"));
	assert_null(strstr(text, "add up"));
	assert_non_null(strstr(run(command_diff.run, old, late, NULL)->out,
			       "10.00 MiB of the new recording were there"));
	assert_null(strstr(run(command_diff.run, late, late, NULL)->out, "have no line"));
	text = run(command_compare.run, old, late, NULL)->out;
	assert_non_null(strstr(text, "late: 10.00 MiB were there before attach\n"));
	assert_non_null(
		strstr(text, "late: it was recorded while it ran, the first from its start\n"));
}

/* ASCII locale: no middle dots. */
static void test_plain_locale(void **state)
{
	setlocale(LC_ALL, "C");
	for (const char *c = run(command_diff.run, old, told, NULL)->out; *c; c++)
		assert_true(*c > 0);
	for (const char *c = run(command_compare.run, old, told, NULL)->out; *c; c++)
		assert_true(*c > 0);
	setlocale(LC_ALL, "C.UTF-8");
}

/* Rows do not differ in a category that only one side knows. */
static void test_unknown_category(void **state)
{
	json_t *j = json_loads(run(command_diff.run, old, told, "--format", "json", NULL)->out, 0,
			       NULL),
	       *rows, *row;
	bool seen = false;
	size_t i;

	assert_non_null(j);
	rows = json_object_get(j, "rows");
	assert_int_equal(json_array_size(rows), 4);
	json_array_foreach(rows, i, row) {
		const char *was = json_string_value(json_object_get(row, "old_category"));

		assert_string_equal(json_string_value(json_object_get(row, "status")), "unchanged");
		if (strcmp(json_string_value(json_object_get(row, "category")), "parameter") != 0)
			continue;
		assert_string_equal(was, "unknown");
		seen = true;
	}
	assert_true(seen);
	json_decref(j);
}

static void test_odd_names(void **state)
{
	static const char *const formats[] = { "text", "json", "csv", "flamegraph" };
	const struct output *o;

	for (size_t i = 0; i < 4; i++) {
		o = run(command_diff.run, odd, odd, "--format", formats[i], "--top", "0", "-o", "-",
			NULL);
		assert_int_equal(o->status, 0);
		for (const char *p = o->out; *p; p++)
			assert_true((unsigned char)*p >= ' ' || *p == '\n' ||
				    (*p == '\r' && p[1] == '\n') || (*p == '\t' && i == 3));
		assert_null(strstr(o->out, "\xe2\x80\xae"));
		if (i == 1)
			json_decref(json_loads(o->out, JSON_REJECT_DUPLICATES, NULL));
		if (i == 3) /* the page has no scripts besides the template's */
			assert_null(strstr(strstr(strstr(o->out, "id=\"data\""), "</script>") + 1,
					   "</script>|"));
	}
	assert_null(strstr(run(command_compare.run, odd, NULL)->out, "\x1b"));
}

static void test_devices(void **state)
{
	struct output *o;

	o = run(command_diff.run, old, cpu, NULL);
	assert_int_equal(o->status, 2);
	assert_non_null(strstr(o->err, "no device 'cuda:0' in it; there is cpu"));
	assert_int_equal(run(command_diff.run, cpu, cpu, NULL)->status, 0);
	o = run(command_diff.run, old, new, "--at", "oom", NULL);
	assert_int_equal(o->status, 2);
	assert_non_null(strstr(o->err, "no out-of-memory event of cuda:0"));
	assert_int_equal(run(command_diff.run, new, new, "--at", "oom", NULL)->status, 0);
}

static void test_usage(void **state)
{
	assert_int_equal(run(command_diff.run, old, NULL)->status, 64);
	assert_int_equal(run(command_diff.run, old, new, old, NULL)->status, 64);
	assert_int_equal(run(command_diff.run, old, new, "--by", "line,phase", NULL)->status, 64);
	assert_int_equal(run(command_diff.run, old, new, "--top", "-1", NULL)->status, 64);
	assert_int_equal(run(command_compare.run, NULL)->status, 64);
	assert_int_equal(run(command_compare.run, old, new, "--name", "a", NULL)->status, 64);
	assert_int_equal(run(command_compare.run, old, "/nonexistent.mtr", NULL)->status, 2);
}

static void test_compare(void **state)
{
	expect(run(command_compare.run, old, new, lossy, odd, cpu, NULL),
	       "Configuration          Peak             Reserved   Cached    Step\n"
	       "old               23.00 MiB            25.00 MiB    8.0 %  0.25 s\n"
	       "new               26.00 MiB   +13.0 %  28.00 MiB    7.1 %  0.30 s  +20.0 %\n"
	       "lossy          >= 13.00 MiB   -43.5 %  15.00 MiB   13.3 %       -\n"
	       "odd                  1000 B  -100.0 %   2.00 MiB  100.0 %       -\n"
	       "cpu                1.00 MiB   -95.7 %          -        -       -\n"
	       "\n"
	       "new: it ran out of memory, 1 time\n"
	       "new: it has 2 steps, the first has 3\n"
	       "lossy: 7 events lost, so its figures are lower bounds\n"
	       "lossy: blocks and the allocator's totals differ by up to 1.00 MiB\n"
	       "lossy: it has 0 steps, the first has 3\n"
	       "odd: it is a dry run, unlike the first\n"
	       "odd: its PyTorch is 9.9\\x1b|<b>, that of the first 2.11.0\n"
	       "odd: it has 0 steps, the first has 3\n"
	       "cpu: its device is cpu, that of the first cuda:0\n"
	       "cpu: it has 0 steps, the first has 3\n"
	       "Dry run: memory is what PyTorch's allocator does, to the byte; kernels computed\n"
	       "nothing, so that the time of a step is the host's alone.\n" OTHER_OF_COMPARE);
}

/* Similar names stay distinguishable, and line numbers are never cut off. */
static void test_compare_names(void **state)
{
	static const char *const names[] = { "memtrace-320-20261122T191516",
					     "memtrace-321-20261122T191516",
					     "memtrace-320-20261122T191600" };
	char path[3][256], all[96];
	const struct output *o;

	for (int i = 0; i < 3; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%s.mtr", dir, names[i]);
		assert_int_equal(link(old, path[i]), 0);
	}
	for (int width = 60; width <= 200; width += 10) {
		snprintf(all, sizeof(all), "%d", width);
		setenv("COLUMNS", all, 1);
		o = run(command_compare.run, path[0], path[1], path[2], NULL);
		assert_int_equal(o->status, 0);
		for (int i = 0; i < 3; i++)
			assert_non_null(strstr(o->out, names[i]));
		assert_true(!strstr(o->out, "net.py") || strstr(o->out, "net.py:20\n") ||
			    strstr(o->out, "net.py:20, ") || strstr(o->out, "net.py:20 ("));
	}
	/* A unique name is cut in its middle if space is short. */
	setenv("COLUMNS", "80", 1);
	o = run(command_compare.run, path[0], old, NULL);
	assert_non_null(strstr(o->out, "memtrace...261122T191516  "));
	setenv("COLUMNS", "200", 1);
	o = run(command_compare.run, path[0], old, NULL);
	assert_non_null(strstr(o->out, "memtrace-320-20261122T191516  "));
	setenv("COLUMNS", "80", 1);
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
}

static void test_markdown(void **state)
{
	expect(run(command_compare.run, old, new, odd, "--format", "markdown", NULL),
	       "| Configuration | Peak memory | | Reserved | Cached | Most cached | Step time | | "
	       "Steps | Where it peaks |\n"
	       "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"
	       "| old | 23.00 MiB |  | 25.00 MiB | 8.0 % | 40.0 % | 0.25 s |  | 3 | "
	       "net.py:20 (Layer.forward), forward |\n"
	       "| new | 26.00 MiB | +13.0 % | 28.00 MiB | 7.1 % | 20.0 % | 0.30 s | "
	       "+20.0 % | 2 | net.py:12 (Layer.forward), forward |\n"
	       "| odd | 1000 B | -100.0 % | 2.00 MiB | 100.0 % | 100.0 % | - |  | 0 | "
	       "\\</script\\>\\|\\\\x0d\\\\x0a.py:3 (\\\\x1b\\]0;f\\\\x07\"\\`\\*), forward |\n"
	       "\n"
	       "* new: it ran out of memory, 1 time\n"
	       "* new: it has 2 steps, the first has 3\n"
	       "* odd: it is a dry run, unlike the first\n"
	       "* odd: its PyTorch is 9.9\\\\x1b\\|\\<b\\>, that of the first 2.11.0\n"
	       "* odd: it has 0 steps, the first has 3\n"
	       "* Dry run: memory is what PyTorch's allocator does, to the byte; kernels computed\n"
	       "  nothing, so that the time of a step is the host's alone.\n");
}

static void test_compare_json(void **state)
{
	expect(run(command_compare.run, old, "--name", "only", "--format", "json", NULL),
	       "{\n"
	       " \"memtrace\": {\n"
	       "  \"version\": \"" MEMTRACE_VERSION "\"\n"
	       " },\n"
	       " \"captures\": [\n"
	       "  {\n"
	       "   \"name\": \"only\",\n"
	       "   \"recording\": \"old\",\n"
	       "   \"device\": \"cuda:0\",\n"
	       "   \"peak_allocated\": 24117248,\n"
	       "   \"peak_is\": \"exact\",\n"
	       "   \"peak_time\": 0.500000000,\n"
	       "   \"peak_step\": 1,\n"
	       "   \"peak_step_number\": 2,\n"
	       "   \"peak_phase\": \"forward\",\n"
	       "   \"peak_reserved\": 26214400,\n"
	       "   \"reserved_at_peak\": 26214400,\n"
	       "   \"fragmentation_at_peak\": 0.080000,\n"
	       "   \"fragmentation_at_most\": 0.400000,\n"
	       "   \"most_unused\": 10485760,\n"
	       "   \"most_unused_reserved\": 26214400,\n"
	       "   \"before_attach\": 0,\n"
	       "   \"drift\": 0,\n"
	       "   \"total_allocated\": 24117248,\n"
	       "   \"ooms\": 0,\n"
	       "   \"peak_file\": \"/home/u/one/net.py\",\n"
	       "   \"peak_line\": 20,\n"
	       "   \"peak_function\": \"Layer.forward\",\n"
	       "   \"peak_module\": \"head\",\n"
	       "   \"steps\": 3,\n"
	       "   \"steps_timed\": 2,\n"
	       "   \"step_time\": 0.250000000,\n"
	       "   \"duration\": 31.400000000,\n"
	       "   \"events\": 8,\n"
	       "   \"lost\": 0,\n"
	       "   \"complete\": true,\n"
	       "   \"dry_run\": false,\n"
	       "   \"torch\": \"2.11.0\",\n"
	       "   \"device_name\": null,\n"
	       "   \"against_first\": {\n"
	       "    \"peak_allocated\": 1.000000,\n"
	       "    \"peak_reserved\": 1.000000,\n"
	       "    \"step_time\": 1.000000\n"
	       "   },\n"
	       "   \"warnings\": []\n"
	       "  }\n"
	       " ]\n"
	       "}\n");
}

/* The first step is not timed. */
static void test_steps(void **state)
{
	json_t *j = json_loads(run(command_compare.run, old, "--skip", "1", "--steps", "5",
				   "--format", "json", NULL)
				       ->out,
			       0, NULL);
	json_t *c = json_array_get(json_object_get(j, "captures"), 0);

	assert_int_equal(json_integer_value(json_object_get(c, "steps")), 3);
	assert_int_equal(json_integer_value(json_object_get(c, "steps_timed")), 1);
	assert_true(json_real_value(json_object_get(c, "step_time")) == 0.2);
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_modules),
		cmocka_unit_test(test_shared_lines),
		cmocka_unit_test(test_back),
		cmocka_unit_test(test_unlike_moments),
		cmocka_unit_test(test_lossy),
		cmocka_unit_test(test_csv),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_odd_names),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_compare),
		cmocka_unit_test(test_compare_names),
		cmocka_unit_test(test_markdown),
		cmocka_unit_test(test_before_attach),
		cmocka_unit_test(test_unknown_category),
		cmocka_unit_test(test_plain_locale),
		cmocka_unit_test(test_compare_json),
		cmocka_unit_test(test_steps),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, setup, teardown);
}
