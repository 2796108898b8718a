/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Makes a whole recording from a few bytes. Each byte decides something and seeds a generator for
 * the rest. The program's writer encodes it, so dictionary, checksums and predictions are valid and
 * only the meaning is hostile. It reaches the model and the printers, while a changed file fails in
 * the decoder.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/dict.h"
#include "record/mtr.h"

#define TAPE_EVENTS 256u
#define TAPE_ENTRIES 24u

struct dice {
	const uint8_t *at, *end;
	uint64_t state;
};

static uint64_t roll(struct dice *d)
{
	d->state ^= d->state << 13;
	d->state ^= d->state >> 7;
	d->state ^= d->state << 17;
	return d->state;
}

/* A number below n (at most 256), from a byte of the input. */
static uint32_t pick(struct dice *d, uint32_t n)
{
	return (uint32_t)((d->at < d->end && n <= 256 ? *d->at++ : roll(d) >> 16) % n);
}

static bool seldom(struct dice *d)
{
	return pick(d, 16) == 0;
}

static uint64_t any_number(struct dice *d, uint64_t near)
{
	static const uint64_t odd[] = { 0,
					1,
					511,
					512,
					513,
					1 << 20,
					2 << 20,
					20 << 20,
					INT32_MAX,
					UINT32_MAX,
					UINT32_MAX + 1ULL,
					1ULL << 40,
					1ULL << 53,
					INT64_MAX,
					1ULL << 63,
					UINT64_MAX - 511,
					UINT64_MAX };

	switch (pick(d, 8)) {
	case 0:
		return odd[pick(d, sizeof(odd) / sizeof(*odd))];
	case 1:
		return roll(d) >> pick(d, 64);
	case 2:
		return near - pick(d, 256) * 512;
	default:
		return near + (pick(d, 256) + 1) * 512;
	}
}

static uint32_t any_string(struct dice *d, struct dict *dict)
{
	static const char *const words[] = {
		"",
		"python",
		"train.py",
		"/home/u/train.py",
		"/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py",
		"/usr/lib/python3.12/site-packages/torch/autograd/graph.py",
		"_engine_run_backward",
		"Tensor.backward",
		"torch/optim/adamw.py",
		"Adam.step",
		"Optimizer.profile_hook_step.<locals>.wrapper",
		"forward",
		"<module>",
		"<lambda>",
		"model.layers.0.attn",
		"layers.1",
		"layers.18446744073709551615",
		"0",
		"a.b",
		"....",
		";",
		"a;b",
		"Linear",
		"GPT",
		"AddmmBackward0",
		"AccumulateGrad",
		"AdamW exp_avg of layers.3.weight",
		"cross_entropy",
		"<script>alert(1)</script>",
		"</script><!--",
		"]]>",
		"\"'`&amp;",
		"=HYPERLINK(\"x\")",
		"@SUM(1)",
		"-1",
		"\x1b[2J\x1b]0;x\x07",
		"\r\n\t",
		"\xe2\x80\xae"
		"abc",
		"\xc2\x9b",
		"\xef\xbf\xbf",
		"\xff\xfe",
		"%s%n%d",
		"NaN",
		"\\u0000",
		"{\"a\":1}",
		"../../etc/passwd",
		"\xe6\xbc\xa2\xe5\xad\x97",
	};
	const char *word = words[pick(d, sizeof(words) / sizeof(*words))];
	char longer[2 * DICT_MAX_STRING];
	size_t n = 0, len = strlen(word);

	if (!seldom(d))
		return dict__string(dict, word, len);
	/* Names of the maximum length or longer; module names with many levels. */
	for (size_t times = 1 + roll(d) % 2000; times && n + len + 1 < sizeof(longer); times--) {
		memcpy(longer + n, word, len);
		n += len;
		longer[n++] = '.';
	}
	return dict__string(dict, longer, n);
}

static void any_names(struct dice *d, struct dict *dict)
{
	struct dict_frame frames[1100];

	for (uint32_t i = pick(d, TAPE_ENTRIES); i; i--)
		dict__loc(dict, (struct dict_loc){ any_string(d, dict), any_string(d, dict),
						   (uint32_t)any_number(d, 7) });
	for (uint32_t i = pick(d, TAPE_ENTRIES); i; i--)
		dict__module(dict, (struct dict_module){ any_string(d, dict), any_string(d, dict),
							 any_string(d, dict) });
	for (uint32_t i = pick(d, TAPE_ENTRIES); i; i--) {
		struct dict_counts n = dict__counts(dict);
		uint32_t depth = seldom(d) ? pick(d, 1100) : pick(d, 12);

		for (uint32_t k = 0; k < depth; k++)
			frames[k] = (struct dict_frame){ pick(d, n.locs),
							 pick(d, 4) ? 0 : pick(d, n.modules) };
		dict__stack(dict, frames, depth, (uint8_t)(pick(d, 4) ? 0 : pick(d, 10)));
	}
	for (uint32_t i = pick(d, 8); i; i--)
		dict__thread(dict, (struct dict_thread){ (uint32_t)any_number(d, 4242),
							 any_string(d, dict) });
	for (uint32_t i = pick(d, TAPE_ENTRIES); i; i--) {
		struct dict_counts n = dict__counts(dict);

		dict__node(dict, (struct dict_node){ any_string(d, dict), pick(d, n.stacks),
						     pick(d, 2) ? any_string(d, dict) : 0,
						     pick(d, n.modules) });
	}
}

static void any_facts(struct dice *d, struct facts *f, struct dict *dict)
{
	static const char *const keys[] = { "pid",
					    "parent",
					    "rank",
					    "local_rank",
					    "world_size",
					    "comm",
					    "cmdline",
					    "python",
					    "torch",
					    "exe",
					    "allocator",
					    "alloc_conf",
					    "torch_lib",
					    "device.0.name",
					    "device.0.total",
					    "device.255.total",
					    "duration_ns",
					    "events",
					    "lost",
					    "start",
					    "stop_reason",
					    "counter.hits",
					    "counter.walks.ok",
					    "census",
					    "window_start_ns",
					    "window_first_step",
					    "job_step",
					    "job_step_unknown",
					    "segment",
					    "dropped_events",
					    "children",
					    "attached_at",
					    "container.name",
					    "pod",
					    "version",
					    "counter.names_no_room",
					    "dry_run",
					    "kernel" };
	static const char *const values[] = { "",
					      "0",
					      "1",
					      "-1",
					      "18446744073709551615",
					      "18446744073709551616",
					      "1e309",
					      "0x10",
					      "live",
					      "fork",
					      "start",
					      "exec",
					      "2026-01-02T03:04:05.678Z",
					      "9999999999-01-01T00:00:00Z",
					      "[\"python\",\"train.py\"]",
					      "[",
					      "[1,{}]",
					      "expandable_segments:True",
					      "2.11.0+cu130",
					      "3.12.1",
					      "native",
					      "cudaMallocAsync",
					      "80000000000" };

	for (uint32_t i = pick(d, 24); i; i--) {
		const char *value = pick(d, 3) ? values[pick(d, sizeof(values) / sizeof(*values))]
					       : dict__str(dict, any_string(d, dict));

		facts__set(f, keys[pick(d, sizeof(keys) / sizeof(*keys))], value);
	}
}

static struct device any_device(struct dice *d)
{
	static const uint8_t types[] = { DEVICE_CPU, DEVICE_CUDA, DEVICE_HIP, DEVICE_XPU,
					 DEVICE_PRIVATE };

	if (!seldom(d))
		return (struct device){ .type = pick(d, 4) ? DEVICE_CUDA : DEVICE_CPU };
	return (struct device){ types[pick(d, 5)], (uint8_t)pick(d, 256) };
}

/* Values used before, to be used again: live blocks to free, segments to divide. */
struct memory {
	struct {
		uint64_t addr, size;
	} of[16];
	uint64_t time, addr, total;
};

static struct event any_event(struct dice *d, const struct dict *dict, struct memory *m)
{
	struct dict_counts n = dict__counts(dict);
	uint32_t slot = pick(d, 16), kind = pick(d, 32);
	struct event e = { .kind = (uint8_t)(kind < EVENT_KINDS ? kind
					     : kind % 3		? EVENT_ALLOC
								: EVENT_FREE),
			   .device = any_device(d) };

	if (e.kind == EVENT_FREE || !pick(d, 4)) {
		e.addr = m->of[slot].addr;
		e.size = m->of[slot].size;
	} else {
		e.addr = any_number(d, m->addr);
		e.size = any_number(d, 0);
		m->of[slot].addr = m->addr = e.addr;
		m->of[slot].size = e.size;
	}
	m->time = seldom(d) ? any_number(d, m->time) : m->time + pick(d, 256) * 1000;
	e.time = m->time;
	m->total += e.kind == EVENT_ALLOC ? e.size : e.kind == EVENT_FREE ? 0 - e.size : 0;
	e.totals = pick(d, 4) != 0;
	e.allocated = seldom(d) ? any_number(d, m->total) : m->total;
	e.reserved = seldom(d) ? any_number(d, m->total) : m->total + (2 << 20);
	e.requested = pick(d, 3) ? 0 : any_number(d, e.size);
	e.thread = pick(d, n.threads);
	e.stack = pick(d, n.stacks);
	e.walk = (uint8_t)(pick(d, 4) ? 0 : pick(d, 10));
	e.module = pick(d, n.modules);
	e.node = pick(d, 3) ? 0 : pick(d, n.nodes);
	e.name = pick(d, n.strings);
	e.category = (uint8_t)pick(d, CATEGORY_NR);
	e.how = (uint8_t)(pick(d, 3) ? MEM_DEVICE : pick(d, MEM_HOW_NR));
	e.flags = (uint8_t)pick(d, 256);
	e.cuda_stream = pick(d, 4) ? 0 : any_number(d, 0);
	e.pool[0] = pick(d, 8) ? 0 : any_number(d, 0);
	e.pool[1] = pick(d, 8) ? 0 : any_number(d, 0);
	return e;
}

/* Writes the recording into an empty file. */
static void put_tape(int fd, const uint8_t *data, size_t size)
{
	struct dice d = { .at = data, .end = data + size, .state = 0x9e3779b97f4a7c15 };
	struct dict *dict = dict__new();
	struct facts *facts = facts__new();
	struct mtr_writer *w = dict && facts ? mtr_writer__new(fd, dict, facts,
							       &(struct mtr_writer_opts){ 0 })
					     : NULL;
	struct memory m = { .addr = 0x7f0000000000 };
	off_t end;

	if (!w)
		abort();
	for (size_t i = 0; i < size; i++)
		d.state = (d.state ^ data[i]) * 0x100000001b3;
	d.state |= 1;
	any_facts(&d, facts, dict);
	any_names(&d, dict);
	for (uint32_t i = pick(&d, TAPE_EVENTS); i; i--) {
		struct event e = any_event(&d, dict, &m);
		int err = mtr_writer__event(w, &e);

		if (err && err != -EINVAL)
			abort();
		if (seldom(&d))
			any_names(&d, dict);
		if (seldom(&d) && mtr_writer__flush(w))
			abort();
	}
	any_facts(&d, facts, dict);
	if (mtr_writer__close(w))
		abort();
	/* Sometimes cut off the end. */
	end = lseek(fd, 0, SEEK_END);
	if (seldom(&d) && ftruncate(fd, end - (off_t)(roll(&d) % 100) % (end + 1)))
		abort();
	facts__free(facts);
	dict__free(dict);
}
