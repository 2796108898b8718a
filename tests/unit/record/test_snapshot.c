/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* PyTorch's memory snapshots as events, and pickles that are hostile or damaged. */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "record/dict.h"
#include "record/mtr.h"

#define BASE "139971360980992" /* 0x7f4d9f400000 */

/* Opens bytes as a file. NULL: *why has the reason, errno the error. */
static struct mtr_reader *open_bytes(const void *bytes, size_t len, const char **why)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);
	struct mtr_reader *r;
	char path[32];
	int err;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = mtr_reader__open(path, why);
	err = errno;
	close(fd);
	errno = err;
	return r;
}

static struct mtr_reader *open_text(const char *text)
{
	const char *why = "?";
	struct mtr_reader *r = open_bytes(text, strlen(text), &why);

	if (!r)
		print_message("%s\n", why);
	assert_non_null(r);
	return r;
}

#define MOST 64
struct all {
	struct event e[MOST];
	size_t n;
};

static struct all read_all(struct mtr_reader *r)
{
	struct all a = { .n = 0 };
	int n;

	while ((n = mtr_reader__next(r, &a.e[a.n])) == 1)
		assert_true(++a.n < MOST);
	assert_int_equal(n, 0);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_COMPLETE);
	return a;
}

/* The n-th event of the kind, from 0. */
static const struct event *event_of(const struct all *a, unsigned kind, size_t n)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->e[i].kind == kind && !n--)
			return &a->e[i];
	fail_msg("no event of kind %u", kind);
	return NULL;
}

#define FRAMES(line) "\"frames\":[{\"filename\":\"/w/train.py\",\"line\":" #line ",\"name\":\"f\"}]"
#define SEGMENT(blocks)                                                                            \
	"{\"device\":0,\"address\":" BASE ",\"total_size\":20971520,\"stream\":0,"                 \
	"\"segment_type\":\"large\",\"segment_pool_id\":[0,1],\"is_expandable\":false,"            \
	"\"blocks\":[" blocks "]}"

/* A block from before the trace, one that the trace frees, and one that it allocates, whose size is
 * that of the whole free range. */
static void trace_of_blocks(void **state)
{
	struct mtr_reader *r = open_text("{\"segments\":[" SEGMENT(
		"{\"size\":2097152,\"requested_size\":2097000,\"state\":"
		"\"active_allocated\"," FRAMES(
			7) "},"
			   "{\"size\":18874368,\"requested_size\":18000000,\"state\":"
			   "\"active_allocated\"," FRAMES(
				   8) "}") "],"
					   "\"device_traces\":[["
					   "{\"action\":\"free_requested\",\"addr\":"
					   "139971363078144,\"size\":18874368,"
					   "\"stream\":0,\"time_us\":1000000,\"frames\":[]},"
					   "{\"action\":\"free_completed\",\"addr\":"
					   "139971363078144,\"size\":18874368,"
					   "\"stream\":0,\"time_us\":1000001,\"frames\":[]},"
					   "{\"action\":\"alloc\",\"addr\":139971363078144,"
					   "\"size\":18000000,\"stream\":0,"
					   "\"time_us\":1000005," FRAMES(
						   8) "},"
						      "{\"action\":\"oom\",\"device_free\":4096,"
						      "\"size\":1099511627776,\"stream\":0,"
						      "\"time_us\":1000006," FRAMES(9) "}]]}");
	struct all a = read_all(r);
	const struct event *e = event_of(&a, EVENT_SEGMENT, 0);
	struct dict_stack s;

	assert_int_equal(e->size, 20971520);
	assert_int_equal(e->pool[1], 1);
	e = event_of(&a, EVENT_BLOCK, 0);
	assert_int_equal(e->size, 2097152);
	assert_int_equal(e->requested, 2097000);
	s = dict__get_stack(mtr_reader__dict(r), e->stack);
	assert_int_equal(s.n, 1);
	assert_int_equal(dict__get_loc(mtr_reader__dict(r), s.frames[0].loc).line, 7);
	/* nothing tells where the block came from that the trace only frees */
	e = event_of(&a, EVENT_BLOCK, 1);
	assert_int_equal(e->size, 18874368);
	assert_int_equal(e->stack, 0);
	e = event_of(&a, EVENT_STATE, 0);
	assert_int_equal(e->allocated, 20971520);
	assert_int_equal(e->reserved, 20971520);
	e = event_of(&a, EVENT_FREE, 0);
	assert_int_equal(e->allocated, 2097152);
	e = event_of(&a, EVENT_ALLOC, 0);
	assert_int_equal(e->time, 5000);
	assert_int_equal(e->size, 18874368);
	assert_int_equal(e->allocated, 20971520);
	e = event_of(&a, EVENT_REQUESTED, 0);
	assert_int_equal(e->requested, 18000000);
	assert_int_equal(event_of(&a, EVENT_LEFT, 0)->size, 4096);
	assert_int_equal(event_of(&a, EVENT_OOM, 0)->size, 1099511627776);
	assert_string_equal(facts__get(mtr_reader__facts(r), "source"), "snapshot");
	assert_string_equal(facts__get(mtr_reader__facts(r), "stop_reason"), "oom");
	mtr_reader__free(r);
}

/* A block keeps the rest of its range if that is at most a MiB. */
static void sizes_follow_from_ranges(void **state)
{
	struct mtr_reader *r = open_text(
		"{\"segments\":[],\"device_traces\":[["
		"{\"action\":\"segment_alloc\",\"addr\":" BASE ",\"size\":20971520,\"time_us\":1},"
		"{\"action\":\"alloc\",\"addr\":" BASE ",\"size\":2000000,\"time_us\":2},"
		"{\"action\":\"alloc\",\"addr\":139971362981376,\"size\":18500000,\"time_us\":3},"
		"{\"action\":\"free_completed\",\"addr\":" BASE ",\"size\":2000000,\"time_us\":4},"
		"{\"action\":\"free_completed\",\"addr\":139971362981376,\"size\":1,\"time_us\":5},"
		"{\"action\":\"alloc\",\"addr\":" BASE ",\"size\":20971520,\"time_us\":6}]]}");
	struct all a = read_all(r);

	assert_int_equal(event_of(&a, EVENT_ALLOC, 0)->size, 2000384);
	assert_int_equal(event_of(&a, EVENT_ALLOC, 1)->size, 18971136);
	assert_int_equal(event_of(&a, EVENT_ALLOC, 1)->allocated, 20971520);
	assert_int_equal(event_of(&a, EVENT_FREE, 1)->allocated, 0);
	assert_int_equal(event_of(&a, EVENT_ALLOC, 2)->allocated, 20971520);
	mtr_reader__free(r);
}

/* PyTorch 2.0 has the stack and the request of a block in its history, newest first, and no times. */
static void history_of_blocks(void **state)
{
	struct mtr_reader *r = open_text("{\"segments\":[" SEGMENT(
		"{\"size\":20971520,\"state\":\"active_allocated\",\"history\":["
		"{\"addr\":" BASE ",\"real_size\":20000000," FRAMES(
			3) "},"
			   "{\"addr\":" BASE ",\"real_size\":7," FRAMES(
				   4) "}]}") "],"
					     "\"device_traces\":[[{\"action\":\"snapshot\","
					     "\"addr\":0,\"size\":0}]]}");
	struct all a = read_all(r);
	const struct event *e = event_of(&a, EVENT_BLOCK, 0);
	struct dict_stack s = dict__get_stack(mtr_reader__dict(r), e->stack);

	assert_int_equal(e->requested, 20000000);
	assert_int_equal(dict__get_loc(mtr_reader__dict(r), s.frames[0].loc).line, 3);
	assert_null(facts__get(mtr_reader__facts(r), "start"));
	mtr_reader__free(r);
}

/* The module of a call is named by the class of its forward; our own exports have its name. */
static void modules_of_stacks(void **state)
{
#define CALL "{\"filename\":\"/v/torch/nn/modules/module.py\",\"line\":9,\"name\":\"_call_impl\"}"
#define FORWARD(file, name) "{\"filename\":\"" file "\",\"line\":7,\"name\":\"" name "\"},"
	struct mtr_reader *r = open_text(
		"{\"segments\":[],\"device_traces\":[[{\"action\":\"alloc\",\"addr\":4096,"
		"\"size\":512,\"time_us\":1,\"frames\":[" FORWARD("/w/train.py", "Mlp.forward") CALL
		"," FORWARD("/w/net.py", "forward") CALL
		"]},"
		"{\"action\":\"alloc\",\"addr\":8192,\"size\":512,\"time_us\":2,\"frames\":["
		"{\"filename\":\"/v/torch/nn/modules/module.py\",\"line\":1,"
		"\"name\":\"Module._wrapped_call_impl [blocks.0 (Block)]\"}]},"
		"{\"action\":\"alloc\",\"addr\":16384,\"size\":512,\"time_us\":3,\"frames\":"
		"[" FORWARD("/w/sdpa.py", "attend") FORWARD("/w/llama.py", "forward")
			FORWARD("/w/deprecation.py", "wrapped") FORWARD("/w/capture.py", "wrapper")
				CALL "," FORWARD("/w/hook.py", "hook") CALL "]}]]}");
	struct all a = read_all(r);
	const struct dict *d = mtr_reader__dict(r);
	struct dict_stack s = dict__get_stack(d, event_of(&a, EVENT_ALLOC, 0)->stack);
	struct dict_module m = dict__get_module(d, s.frames[1].module);

	assert_string_equal(dict__str(d, m.name), "Mlp");
	assert_string_equal(dict__str(d, m.root), "net");
	s = dict__get_stack(d, event_of(&a, EVENT_ALLOC, 1)->stack);
	m = dict__get_module(d, s.frames[0].module);
	assert_string_equal(dict__str(d, m.name), "blocks.0");
	assert_string_equal(dict__str(d, m.cls), "Block");
	assert_string_equal(dict__str(d, dict__get_loc(d, s.frames[0].loc).func),
			    "Module._wrapped_call_impl");
	/* Decorators are between the call and the forward; a hook has no forward. */
	s = dict__get_stack(d, event_of(&a, EVENT_ALLOC, 2)->stack);
	m = dict__get_module(d, s.frames[4].module);
	assert_string_equal(dict__str(d, m.cls), "llama");
	assert_int_equal(s.frames[6].module, 0);
	mtr_reader__free(r);
}

/* ---- pickles ---- */

/* {"segments": [{"device": 0, "total_size": 512, "address": 4096, "blocks": []}]} in each protocol.
 */
#define FRAME(file, at, name) "{\"filename\":\"" file "\",\"line\":" #at ",\"name\":\"" name "\"}"
#define STACK_OF(address, frames)                                                                  \
	"{\"action\":\"alloc\",\"addr\":" address ",\"size\":512,\"stream\":0,\"time_us\":1,"      \
	"\"frames\":[" frames "]}"

static void assert_frame(struct mtr_reader *r, const struct event *e, uint32_t i, const char *file,
			 const char *func, uint32_t line)
{
	const struct dict *d = mtr_reader__dict(r);
	struct dict_loc loc = dict__get_loc(d, dict__get_stack(d, e->stack).frames[i].loc);

	assert_string_equal(dict__str(d, loc.file), file);
	assert_string_equal(dict__str(d, loc.func), func);
	assert_int_equal(loc.line, line);
}

/* PyTorch 2.15 names binaries in place of sources, and older ones the files of libtorch without
 * their folder. */
static void frames_of_compiled_code(void **state)
{
	struct mtr_reader *r = open_text("{\"segments\":[],\"device_traces\":[[" STACK_OF(
		"4096", FRAME("/t/lib/libtorch_cpu.so", 108146796, "torch::unwind::unwind()") "," FRAME("/t/lib/libtorch_cuda.so", 68989582, "??") "," FRAME("/t/lib/libtorch_cpu.so", 25971484, "at::_ops::to::call(int)") "," FRAME(
				"/p/lib/libpython3.13.so.1.0", 583178,
				"??") "," FRAME("/w/a.py", 7,
						"f") "," FRAME("/b/Python-3.12.1/Python/"
							       "bltinmodule.c",
							       1510,
							       "builtin_next_impl") "," FRAME("/lib"
											      "/lib"
											      "c."
											      "so."
											      "6",
											      160329,
											      "??") "," FRAME("/p/bin/python3.13",
													      4224,
													      "_start") "," FRAME("/w/train",
																  9,
																  "<module>")) "," STACK_OF("8192",
																			    FRAME("memory_snapshot.cpp", 0, "torch::cuda::(anonymous namespace)::gather()") "," FRAME("", 0, "at::Tensor at::empty<int>(int)") "," FRAME(
																				    "my_kernel.cpp",
																				    0,
																				    "launch(int)")) "," STACK_OF("12288",
																								 FRAME("/opt/plugin.so",
																								       77,
																								       "??")) "]]}");
	struct all a = read_all(r);
	const struct event *e = event_of(&a, EVENT_ALLOC, 0);

	assert_int_equal(dict__get_stack(mtr_reader__dict(r), e->stack).n, 3);
	assert_frame(r, e, 0, "/t/lib/libtorch_cpu.so", "at::_ops::to::call(int)", 0);
	assert_frame(r, e, 1, "/w/a.py", "f", 7);
	assert_frame(r, e, 2, "/w/train", "<module>", 9);
	e = event_of(&a, EVENT_ALLOC, 1);
	assert_int_equal(dict__get_stack(mtr_reader__dict(r), e->stack).n, 2);
	assert_frame(r, e, 0, "libtorch.so", "at::Tensor at::empty<int>(int)", 0);
	assert_frame(r, e, 1, "my_kernel.cpp", "launch(int)", 0);
	/* without another frame, the library is what is known */
	assert_frame(r, event_of(&a, EVENT_ALLOC, 2), 0, "/opt/plugin.so", "??", 0);
	mtr_reader__free(r);
}

#define ENTRY(action, addr, size) "{\"action\":\"" action "\",\"addr\":" addr ",\"size\":" size

/* Host memory from before the history is what the trace only returns, and what it does not have. */
static void pinned_memory(void **state)
{
	struct mtr_reader *r = open_text("{\"segments\":[" SEGMENT(
		"") "],\"device_traces\":[[]],\"host_segments\":["
		    "{\"device\":-1,\"address\":12288,\"total_size\":4096,\"blocks\":[]},"
		    "{\"device\":-1,\"address\":20480,\"total_size\":8192,\"blocks\":[]}],"
		    "\"host_traces\":[" ENTRY("segment_free", "4096", "4096") "}," ENTRY(
			    "segment_alloc", "20480",
			    "8192") "," FRAMES(5) "}," ENTRY("alloc", "20480",
							     "8192") "}," ENTRY("segment_alloc",
										"4096",
										"512") "}," ENTRY("segment_free",
												  "4096",
												  "512") "}]}");
	static const struct {
		uint8_t kind;
		uint64_t addr, size;
	} want[] = {
		{ EVENT_CUDA_ALLOC, 4096, 4096 }, { EVENT_CUDA_ALLOC, 12288, 4096 },
		{ EVENT_CUDA_FREE, 4096, 4096 },  { EVENT_CUDA_ALLOC, 20480, 8192 },
		{ EVENT_CUDA_ALLOC, 4096, 512 },  { EVENT_CUDA_FREE, 4096, 512 },
	};
	struct all a = read_all(r);
	size_t n = 0;

	for (size_t i = 0; i < a.n; i++) {
		const struct event *e = &a.e[i];

		if (e->kind != EVENT_CUDA_ALLOC && e->kind != EVENT_CUDA_FREE)
			continue;
		assert_true(n < sizeof(want) / sizeof(*want));
		assert_int_equal(e->kind, want[n].kind);
		assert_int_equal(e->addr, want[n].addr);
		assert_int_equal(e->size, want[n].size);
		assert_int_equal(e->how, MEM_HOST);
		assert_int_equal(e->device.index, DEVICE_UNKNOWN);
		assert_int_equal(!!e->stack, e->addr == 20480);
		n++;
	}
	assert_int_equal(n, sizeof(want) / sizeof(*want));
	mtr_reader__free(r);
}

/* All texts of a block are its name, also those that come later. A block at the same address has
 * its own. */
static void texts_of_blocks(void **state)
{
	struct mtr_reader *r = open_text(
		"{\"segments\":[" SEGMENT("") "],\"device_traces\":[[" ENTRY("alloc", BASE, "512") ",\"user_metadata\":\"a\",\"compile_context\":\"N/A\"}," ENTRY(
			"annotate", BASE,
			"512") ",\"user_metadata\":\"b\"}," ENTRY("annotate", BASE,
								  "512") ",\"user_metadata\":\"\"}"
									 "," ENTRY(
										 "free_requested",
										 BASE,
										 "512") "}"
											"," ENTRY("free_completed", BASE, "512") "}," ENTRY(
												"al"
												"lo"
												"c",
												BASE,
												"51"
												"2") ",\"user_metadata\":\"\",\"internal_metadata\":\"c\","
												     "\"compile_context\":\"Region: 0/0\"}]]}");
	static const char *const names[] = { "a", "a, b", "c, Region: 0/0" };
	struct all a = read_all(r);
	size_t n = 0;

	for (size_t i = 0; i < a.n; i++) {
		if (a.e[i].kind != EVENT_TENSOR)
			continue;
		assert_true(n < sizeof(names) / sizeof(*names));
		assert_string_equal(dict__str(mtr_reader__dict(r), a.e[i].name), names[n++]);
	}
	assert_int_equal(n, sizeof(names) / sizeof(*names));
	mtr_reader__free(r);
}

/* The search for steps keeps to the limit on memory: 32 bytes for each of a million allocations. */
static void steps_within_limit(void **state)
{
	static const char begin[] = "\200\2}(X\15\0\0\0device_traces](]}(X\6\0\0\0actionX\5\0\0\0"
				    "allocX\4\0\0\0addrM\0\20X\4\0\0\0sizeM\0\2uq\0a";
	const size_t batches = 1000, batch = 1000;
	const char *why = NULL;
	struct mtr_reader *r;
	char *bytes = NULL;
	size_t size;
	FILE *f = open_memstream(&bytes, &size);

	assert_non_null(f);
	fwrite(begin, sizeof(begin) - 1, 1, f);
	for (size_t i = 0; i < batches; i++) {
		fputc('(', f);
		for (size_t k = 0; k < batch; k++)
			fwrite("h", 2, 1, f);
		fputc('e', f);
	}
	fputs("eu.", f);
	assert_int_equal(fclose(f), 0);
	r = open_bytes(bytes, size, &why);
	assert_non_null(r);
	mtr_reader__free(r);
	room__set(memory__own() + (28u << 20));
	r = open_bytes(bytes, size, &why);
	assert_null(r);
	assert_int_equal(errno, ENOBUFS);
	room__set(0);
	free(bytes);
}

/* Two texts that are too long together: the second one is the name. */
static void long_texts(void **state)
{
	char text[2000], text_of_600[601];
	struct mtr_reader *r;
	struct all a;

	memset(text_of_600, 'a', 600);
	text_of_600[600] = '\0';
	snprintf(text, sizeof(text),
		 "{\"segments\":[" SEGMENT("") "],\"device_traces\":[[" ENTRY(
			 "alloc", BASE,
			 "512") ",\"user_metadata\":\"%s\",\"internal_metadata\":\"c\"}]]}",
		 text_of_600);
	r = open_text(text);
	a = read_all(r);
	assert_string_equal(dict__str(mtr_reader__dict(r), event_of(&a, EVENT_TENSOR, 0)->name),
			    "c");
	mtr_reader__free(r);
}

/* Annotations out of order, before and after an entry: no event goes back in time. */
static void notes_out_of_order(void **state)
{
	struct mtr_reader *r = open_text("{\"segments\":[" SEGMENT(
		"") "],\"device_traces\":[["
		    "{\"action\":\"alloc\",\"addr\":" BASE ",\"size\":512,\"time_us\":1000000},"
		    "{\"action\":\"free_requested\",\"addr\":" BASE ",\"size\":512,"
		    "\"time_us\":1000010}]],\"external_annotations\":["
		    "{\"name\":\"a\",\"stage\":\"START\",\"time_us\":1000009,\"device\":0},"
		    "{\"name\":\"b\",\"stage\":\"START\",\"time_us\":1000002,\"device\":0},"
		    "{\"name\":\"c\",\"stage\":\"START\",\"time_us\":1000020,\"device\":0},"
		    "{\"name\":\"d\",\"stage\":\"START\",\"time_us\":1000001,\"device\":0}]}");
	static const uint64_t us[] = { 9, 9, 20, 20 };
	struct all a = read_all(r);

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(event_of(&a, EVENT_MARK, i)->time, us[i] * 1000);
	for (size_t i = 1; i < a.n; i++)
		assert_true(a.e[i].time >= a.e[i - 1].time);
	mtr_reader__free(r);
}

/* Our own exports have roles. Those that an earlier reader inferred are not the program's. */
static void roles(void **state)
{
	static const struct {
		const char *inferred, *from;
		unsigned flags;
	} cases[] = {
		{ "true", "frames", TENSOR_INFERRED },
		{ "false", "objects", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[1024];
		struct mtr_reader *r;
		struct all a;

		snprintf(text, sizeof(text),
			 "{\"segments\":[" SEGMENT(
				 "{\"size\":512,\"state\":\"active_allocated\",\"frames\":[],"
				 "\"role\":\"gradient\",\"role_inferred\":%s}") "],"
										"\"device_traces\":"
										"[]}",
			 cases[i].inferred);
		r = open_text(text);
		assert_string_equal(facts__get(mtr_reader__facts(r), "roles_from"), cases[i].from);
		a = read_all(r);
		assert_int_equal(event_of(&a, EVENT_TENSOR, 0)->category, CATEGORY_GRADIENT);
		assert_int_equal(event_of(&a, EVENT_TENSOR, 0)->flags, cases[i].flags);
		mtr_reader__free(r);
	}
}

/* Our own exports name the autograd node, and say whose the frames are. */
static void autograd_nodes(void **state)
{
	struct mtr_reader *r = open_text(
		"{\"segments\":[" SEGMENT("") "],\"device_traces\":[[" ENTRY("alloc", BASE, "512") ",\"frames\":[" FRAME(
			"autograd", 0,
			"MulBackward0") "," FRAME("/w/a.py", 7,
						  "f") "],\"autograd_node\":"
						       "\"MulBackward0\","
						       "\"autograd_forward\":true}"
						       "," ENTRY("alloc", "139971360981504", "512") ",\"frames\":[" FRAME(
							       "/w/a.py", 7, "f") "],\"autograd_"
										  "node\":"
										  "\"OwnBackward\","
										  "\"autograd_"
										  "forward\":false}"
										  "]]}");
	const struct dict *d = mtr_reader__dict(r);
	struct all a = read_all(r);
	const struct event *e = event_of(&a, EVENT_ALLOC, 0);

	assert_int_equal(dict__get_stack(d, e->stack).n, 1);
	assert_frame(r, e, 0, "/w/a.py", "f", 7);
	assert_string_equal(dict__str(d, dict__get_node(d, e->node).cls), "MulBackward0");
	assert_int_equal(dict__get_node(d, e->node).stack, e->stack);
	e = event_of(&a, EVENT_ALLOC, 1);
	assert_string_equal(dict__str(d, dict__get_node(d, e->node).cls), "OwnBackward");
	assert_int_equal(dict__get_node(d, e->node).stack, 0);
	mtr_reader__free(r);
}

static void each_protocol(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} pickles[] = {
#define PICKLE(s) { s, sizeof(s) - 1 }
		PICKLE("(dp0\nVsegments\np1\n(lp2\n(dp3\nVdevice\np4\nI0\nsVtotal_size\np5\nI512\n"
		       "sVaddress\np6\nL4096L\nsVblocks\np7\n(lp8\nsas."),
		PICKLE("}q\0X\10\0\0\0segmentsq\1]q\2}q\3(X\6\0\0\0deviceq\4K\0X\12\0\0\0total_"
		       "sizeq\5"
		       "M\0\2X\7\0\0\0addressq\6M\0\20X\6\0\0\0blocksq\7]q\10uas."),
		PICKLE("\200\2}q\0X\10\0\0\0segmentsq\1]q\2}q\3(X\6\0\0\0deviceq\4K\0X\12\0\0\0"
		       "total_sizeq\5M\0\2X\7\0\0\0addressq\6\212\2\0\20X\6\0\0\0blocksq\7]"
		       "q\10uas."),
		PICKLE("\200\4\225\77\0\0\0\0\0\0\0}\224\214\10segments\224]\224}\224(\214\6device"
		       "\224K\0\214\12total_size\224M\0\2\214\7address\224M\0\20\214\6blocks\224]"
		       "\224uas."),
		PICKLE("\200\5}(\214\10segments](}(\214\6deviceK\0\214\12total_size"
		       "M\0\2\214\7addressM\0\20ueu."),
	};

	for (size_t i = 0; i < sizeof(pickles) / sizeof(*pickles); i++) {
		const char *why = "?";
		struct mtr_reader *r = open_bytes(pickles[i].bytes, pickles[i].len, &why);
		struct all a;

		if (!r)
			print_message("pickle %zu: %s\n", i, why);
		assert_non_null(r);
		a = read_all(r);
		assert_int_equal(event_of(&a, EVENT_SEGMENT, 0)->addr, 4096);
		assert_int_equal(event_of(&a, EVENT_SEGMENT, 0)->size, 512);
		mtr_reader__free(r);
	}
}

static void assert_refused(const char *bytes, size_t len, const char *reason)
{
	const char *why = NULL;
	struct mtr_reader *r = open_bytes(bytes, len, &why);

	assert_null(r);
	assert_int_equal(errno, EBADMSG);
	if (!strstr(why, reason))
		fail_msg("'%s' instead of '%s'", why, reason);
}
#define REFUSED(s, reason) assert_refused(s, sizeof(s) - 1, reason)

static void code_is_refused(void **state)
{
	REFUSED("\200\2cos\nsystem\n(S'id'\ntR.", "GLOBAL");
	REFUSED("\200\4\214\2os\214\6system\223.", "STACK_GLOBAL");
	REFUSED("\200\2(S'id'\ntR.", "REDUCE");
	REFUSED("(lios\nsystem\n.", "INST");
	REFUSED("\200\2(]o.", "OBJ");
	REFUSED("\200\2}}b.", "BUILD");
	REFUSED("\200\2])\201.", "NEWOBJ");
	REFUSED("\200\4])}\222.", "NEWOBJ");
	REFUSED("\200\2\202\1.", "EXT");
	REFUSED("\200\2P1\n.", "PERSID");
	REFUSED("\200\2]Q.", "PERSID");
	REFUSED("\200\5\227.", "NEXT_BUFFER");
}

static void damage_is_refused(void **state)
{
	char *deep = malloc(4096);

	REFUSED("\200\2", "cut off");
	REFUSED("\200\2}", "cut off");
	REFUSED("\200\2X\377\377\377\377a.", "cut off");
	REFUSED("\200\2e.", "no list");
	REFUSED("\200\2]a.", "no list");
	REFUSED("\200\2a.", "no list");
	REFUSED("\200\2s.", "no list");
	REFUSED("\200\2u.", "no list");
	REFUSED("\200\2t.", "no begin");
	REFUSED("\200\2\207.", "no items");
	REFUSED("\200\2d.", "no begin");
	REFUSED("\200\2q\0.", "not there");
	REFUSED("\200\2h\0.", "does not have");
	REFUSED("\200\2]r\377\377\377\177.", "gaps");
	REFUSED("\200\2]q\0h\0a.", "no list"); /* a list within itself */
	REFUSED("\200\2]q\0(h\0e.", "within itself");
	REFUSED("\200\2]].", "within a value");
	REFUSED("\200\2].", "no memory snapshot");
	REFUSED("\200\2}.", "no memory snapshot");
	REFUSED("\200\2\200\6.", "protocol");
	REFUSED("\200\2I1x\n.", "number");
	REFUSED("\200\2\213\377\377\377\177.", "too long");
	memset(deep, '(', 4096);
	memcpy(deep, "\200\2", 2);
	assert_refused(deep, 4096, "too deep");
	memset(deep, '[', 4096);
	assert_refused(deep, 4096, "too deep");
	free(deep);
	REFUSED("{\"a\":", "cut off");
	REFUSED("{\"a\" 1}", "no JSON");
	REFUSED("{1:2}", "no text");
	REFUSED("[\"\\ud800x\"]", "half a character");
	REFUSED("\37\213\10\0\0\0\0\0\0\3garbage", "gzip");
	REFUSED("\50\265\57\375garbage, and more of it", "zstd");
}

/* A gzip file of 1 GB of zeros is a bomb. */
static void bombs_are_refused(void **state)
{
	size_t size = 1 << 20, room = 4 << 20;
	uint8_t *packed = malloc(room), *zeros = calloc(1, size);
	z_stream z = { .next_out = packed, .avail_out = (uInt)room };

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY),
			 Z_OK);
	/* a bytes object of 1 GB */
	z.next_in = (uint8_t *)"\200\4\216\0\0\0\100\0\0\0\0";
	z.avail_in = 11;
	deflate(&z, Z_NO_FLUSH);
	for (int i = 0; i < 1024; i++) {
		z.next_in = zeros;
		z.avail_in = (uInt)size;
		deflate(&z, Z_NO_FLUSH);
	}
	z.avail_in = 0;
	deflate(&z, Z_FINISH);
	assert_refused((char *)packed, room - z.avail_out, "to exhaust memory");
	deflateEnd(&z);
	free(packed);
	free(zeros);
}

/* Flags of the last EVENT_STATE of a snapshot with so many segments, and allocations at an address
 * that is in none of them. */
static unsigned last_state(unsigned n_segments, unsigned n_odd)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	const char *why = NULL;
	struct mtr_reader *r;
	struct event e;
	unsigned flags = 0;

	assert_non_null(f);
	fputs("{\"segments\":[", f);
	for (unsigned i = 0; i < n_segments; i++)
		fprintf(f,
			"%s{\"device\":0,\"stream\":0,\"address\":%u,\"total_size\":512,\"blocks\":"
			"[]}",
			i ? "," : "", (i + 1) * 1024);
	fputs("],\"device_traces\":[[", f);
	for (unsigned i = 0; i < n_odd; i++)
		fprintf(f,
			"%s{\"action\":\"alloc\",\"addr\":%" PRIu64 ",\"size\":512,\"time_us\":%u}",
			i ? "," : "", (UINT64_C(1) << 40) + (uint64_t)i * 1024, i + 1);
	fputs("]]}", f);
	assert_int_equal(fclose(f), 0);
	r = open_bytes(text, len, &why);
	assert_non_null(r);
	while (mtr_reader__next(r, &e) == 1)
		if (e.kind == EVENT_STATE)
			flags = e.flags;
	mtr_reader__free(r);
	free(text);
	return flags;
}

/* Searches have a bound. Beyond it, sizes are guesses, and the state is not called exact. */
static void guesses_are_not_exact(void **state)
{
	assert_int_equal(last_state(1000, 10), STATE_EXACT);
	assert_int_equal(last_state(48000, 1500), STATE_SEGMENTS_EXACT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(history_of_blocks),  cmocka_unit_test(modules_of_stacks),
		cmocka_unit_test(trace_of_blocks),    cmocka_unit_test(sizes_follow_from_ranges),
		cmocka_unit_test(each_protocol),      cmocka_unit_test(frames_of_compiled_code),
		cmocka_unit_test(code_is_refused),    cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(bombs_are_refused),  cmocka_unit_test(guesses_are_not_exact),
		cmocka_unit_test(pinned_memory),      cmocka_unit_test(texts_of_blocks),
		cmocka_unit_test(notes_out_of_order), cmocka_unit_test(long_texts),
		cmocka_unit_test(steps_within_limit), cmocka_unit_test(roles),
		cmocka_unit_test(autograd_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
