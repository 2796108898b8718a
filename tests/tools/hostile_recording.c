/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Writes a recording whose names are all read from standard input: files, functions, modules,
 * classes, threads, nodes, tensors, facts. One name per line, in hex digits. For
 * tests/e2e/test_hostile.py.
 *
 *   hostile_recording FILE <names
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"
#include "record/stream.h"

#define NAMES 8192

static struct {
	char *v[NAMES];
	size_t len[NAMES];
	size_t n;
} names;

static struct dict *dict;
static struct mtr_writer *writer;
static size_t next;

static void read_names(void)
{
	static char line[1 << 20];

	while (names.n < NAMES && fgets(line, sizeof(line), stdin)) {
		size_t len = strcspn(line, "\n") / 2;
		char *s = calloc(1, len + 1);
		unsigned byte;

		for (size_t i = 0; s && i < len && sscanf(line + 2 * i, "%2x", &byte) == 1; i++)
			s[i] = (char)byte;
		names.v[names.n] = s;
		names.len[names.n++] = s ? len : 0;
	}
}

static uint32_t name(void)
{
	size_t i = next++ % names.n;

	return dict__string(dict, names.v[i], names.len[i]);
}

static uint32_t module(void)
{
	return dict__module(dict,
			    (struct dict_module){ .name = name(), .cls = name(), .root = name() });
}

static uint32_t stack(void)
{
	struct dict_frame f[3];

	for (size_t i = 0; i < 3; i++) {
		struct dict_loc loc = { .file = name(), .func = name(), .line = (uint32_t)i + 1 };

		f[i] = (struct dict_frame){ .loc = dict__loc(dict, loc),
					    .module = i == 1 ? module() : 0 };
	}
	return dict__stack(dict, f, 3, MT_WALK_OK);
}

static void send(struct event e)
{
	if (mtr_writer__event(writer, &e))
		abort();
}

static void block(uint64_t i)
{
	struct event e = {
		.kind = EVENT_ALLOC, .time = 1000 * i, .addr = 0x1000 * (i + 1), .size = 512
	};
	struct dict_thread thread = { .tid = 100 + (uint32_t)i, .name = name() };

	e.thread = dict__thread(dict, thread);
	e.stack = stack();
	if (i % 3 == 0) {
		struct dict_node node = {
			.cls = name(), .stack = stack(), .name = name(), .module = module()
		};

		e.node = dict__node(dict, node);
	}
	e.device.type = i % 2 ? DEVICE_CPU : DEVICE_CUDA;
	e.totals = !(i % 2);
	e.allocated = e.totals ? 512 * (i / 2 + 1) : 0;
	e.reserved = e.totals ? UINT64_C(1) << 30 : 0;
	send(e);
	e.kind = EVENT_ENTER;
	e.module = module();
	send(e);
	e = (struct event){ .kind = EVENT_TENSOR,
			    .time = 1000 * i + 1,
			    .addr = e.addr,
			    .size = 512,
			    .device = e.device,
			    .category = i % 7 + 1,
			    .name = name(),
			    .module = module() };
	send(e);
}

int main(int argc, char **argv)
{
	static const char *const facts_of_names[] = {
		"comm",		 "cmdline", "python",  "torch", "exe",	       "cuda_runtime",
		"device.0.name", "kernel",  "version", "start", "stop_reason", "census_problem"
	};
	struct facts *facts = facts__new();
	int fd = argc == 2 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	read_names();
	dict = dict__new();
	if (fd < 0 || !names.n || !facts || !dict)
		return 1;
	for (size_t i = 0; i < sizeof(facts_of_names) / sizeof(facts_of_names[0]); i++)
		facts__set(facts, facts_of_names[i], names.v[next++ % names.n]);
	writer = mtr_writer__new(fd, dict, facts, NULL);
	if (!writer)
		return 1;
	send((struct event){ .kind = EVENT_SEGMENT,
			     .device.type = DEVICE_CUDA,
			     .addr = 0x1000,
			     .size = UINT64_C(1) << 30 });
	send((struct event){ .kind = EVENT_STATE,
			     .device.type = DEVICE_CUDA,
			     .flags = STATE_SEGMENTS_EXACT,
			     .totals = true,
			     .reserved = UINT64_C(1) << 30 });
	for (uint64_t i = 0; i < names.n; i++)
		block(i);
	send((struct event){ .kind = EVENT_CUDA_ALLOC,
			     .how = MEM_DEVICE,
			     .time = UINT64_C(1) << 30,
			     .addr = UINT64_C(1) << 40,
			     .size = 4096,
			     .device.type = DEVICE_CUDA,
			     .stack = stack() });
	return mtr_writer__close(writer) ? 1 : 0;
}
