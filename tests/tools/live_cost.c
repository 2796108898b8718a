/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures the processor time of a live view refresh by the number of live blocks, and the refresh
 * rate that uses 1 % of a core: live_cost [BLOCKS ...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "live/rows/state.h"
#include "record/dict.h"
#include "record/stream.h"

#define LINES 2000 /* allocating lines, each in two of a hundred modules */
#define ROUNDS 3

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static uint32_t str(struct dict *d, const char *s)
{
	return dict__string(d, s, strlen(s));
}

static uint32_t stack_of(struct dict *d, unsigned line)
{
	char file[64], module[64];
	struct dict_frame f[8] = { 0 };

	snprintf(file, sizeof(file), "/job/net%u.py", line % 20);
	snprintf(module, sizeof(module), "blocks.%u.mlp", line % 100);
	for (unsigned i = 0; i < 8; i++)
		f[i].loc = dict__loc(d, (struct dict_loc){ str(d, file), str(d, "forward"),
							   10 + (i ? i : line) });
	f[1].module = dict__module(d, (struct dict_module){ str(d, module), str(d, "Mlp"),
							    str(d, "Net") });
	return dict__stack(d, f, 8, 0);
}

static void fill(struct live_proc *p, struct dict *d, uint64_t blocks)
{
	uint32_t stacks[LINES],
		thread = dict__thread(d,
				      (struct dict_thread){ .tid = 1, .name = str(d, "python") });
	uint64_t total = 0;

	for (unsigned i = 0; i < LINES; i++)
		stacks[i] = stack_of(d, i);
	for (uint64_t i = 0; i < blocks; i++) {
		struct event e = { .kind = EVENT_ALLOC,
				   .device = { DEVICE_CUDA, 0 },
				   .thread = thread,
				   .stack = stacks[i % LINES],
				   .addr = 0x7f0000000000 + i * 512,
				   .size = 512 << i % 4,
				   .time = i * 1000,
				   .totals = true };

		e.allocated = total += e.size;
		e.reserved = total * 2;
		if (p->sink.event(&p->sink, &e))
			abort();
	}
	p->now = blocks * 1000;
}

static double measure(struct live_state *s, enum live_view view, bool detail)
{
	double best = 0;

	live_state__choose_view(s, view);
	for (int i = 0; i < ROUNDS; i++) {
		double begin = cpu_ms(), ms;

		live_state__proc(s)->findings_due = 0;
		if (live_state__refresh(s))
			abort();
		if (detail && !i && live_state__row(s)) {
			s->selected_key = live_state__row(s)->key;
			s->detail = true;
			continue;
		}
		ms = cpu_ms() - begin;
		best = !best || ms < best ? ms : best;
	}
	s->detail = false;
	return best;
}

int main(int argc, char **argv)
{
	static const uint64_t usual[] = { 1000, 10000, 100000, 1000000 };
	int n = argc > 1 ? argc - 1 : 4;

	printf("%9s %12s %12s %12s %12s %12s %14s %12s\n", "blocks", "lines", "modules",
	       "categories", "tree", "a detail", "lines every", "findings");
	for (int i = 0; i < n; i++) {
		uint64_t blocks = argc > 1 ? strtoull(argv[i + 1], NULL, 10) : usual[i];
		struct dict *d = dict__new();
		struct facts *f = facts__new();
		struct live_state s = { .view = VIEW_LINES };
		struct live_proc *p = live_proc__new(1, d, f);
		double lines;

		if (!p || live_proc__watch_findings(p) || live_state__add(&s, p))
			abort();
		fill(p, d, blocks);
		lines = measure(&s, VIEW_LINES, false);
		printf("%9llu %9.1f ms %9.1f ms", (unsigned long long)blocks, lines,
		       measure(&s, VIEW_MODULES, false));
		printf(" %9.1f ms %9.1f ms", measure(&s, VIEW_CATEGORIES, false),
		       measure(&s, VIEW_TREE, false));
		printf(" %9.1f ms %12.1f s", measure(&s, VIEW_LINES, true),
		       lines / 10 > 1 ? lines / 10 : 1.0);
		printf(" %9.1f ms\n", measure(&s, VIEW_FINDINGS, false));
		live_state__release(&s);
		dict__free(d);
		facts__free(f);
	}
	return 0;
}
