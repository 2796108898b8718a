/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel side's walk over Python frames, in user space: on saved stacks of all CPythons,
 * and on simulated interpreters. With missing or damaged memory, a walk reported as complete is
 * complete, and all reported frames are right.
 */
#include "unit/cmocka.h"

#include <stdio.h>

#include "bpf_host.h"
#include "fake_python.h"
#include "walk_image.h"

static const char *const images[] = { "3.8",  "3.9",  "3.10",  "3.11", "3.12",
				      "3.13", "3.14", "3.14t", "3.15" };
#define NR_IMAGES (sizeof(images) / sizeof(images[0]))
#define MAX_FILE (1 << 16)

/* The expected stack: frames and modules as in records. */
struct truth {
	struct mt_frame f[MT_MAX_ENTRIES];
	size_t n;
	bool module;
};

static uint8_t file[MAX_FILE];

static size_t load(const char *version, struct truth *t)
{
	char path[64], line[256];
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/walk/python-%s", version);
	f = fopen(path, "r");
	assert_non_null(f);
	size = fread(file, 1, sizeof(file), f);
	fclose(f);
	assert_int_equal(image_load(file, size), size);
	memset(t, 0, sizeof(*t));
	snprintf(path, sizeof(path), "tests/data/walk-%s.txt", version);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct mt_frame *e = &t->f[t->n++];
		unsigned long addr;

		*e = (struct mt_frame){ .kind = MT_FRAME_CODE };
		if (sscanf(line, "self %lx", &addr) == 1) {
			e->kind = MT_FRAME_MODULE;
			t->module = true;
		} else {
			assert_int_equal(sscanf(line, "%lx %d", &addr, &e->at), 2);
		}
		e->addr = addr;
	}
	fclose(f);
	assert_true(t->n > 8 && t->module);
	return size;
}

/* An allocation. Returns its record; *stack: the record of the frames, NULL if none was sent. */
static struct mt_rec_mem hit(bool sleepable, const struct mt_rec_stack **stack)
{
	struct pt_regs regs = { .di = 0x1000, .si = 512, .dx = 512, .cx = 1024, .r8 = 1 };
	const struct mt_rec_mem *m;
	size_t n = host.records;

	*stack = NULL;
	host_run(sleepable ? report_s : report, &regs);
	assert_int_equal(host.open, 0);
	assert_true(host.records > n && host.records <= n + 2);
	if (host.records == n + 2) {
		const struct mt_rec_stack *s = host.record[n].data;

		assert_int_equal(s->h.type, MT_REC_STACK);
		assert_true(s->n && s->n <= MT_MAX_ENTRIES);
		assert_int_equal(host.record[n].len, sizeof(*s) + s->n * sizeof(struct mt_frame));
		*stack = s;
	}
	m = host.record[host.records - 1].data;
	assert_int_equal(m->h.type, MT_REC_REPORT);
	assert_true(m->addr == 0x1000 && m->size == 512);
	if (*stack)
		assert_true(m->stack == (*stack)->stack && m->h.walk == (*stack)->h.walk);
	return *m;
}

static const struct mt_frame *frames_of(const struct mt_rec_stack *s)
{
	return (const struct mt_frame *)(s + 1);
}

/* Number of leading entries, from the innermost on, that are as expected. */
static size_t agree(const struct mt_rec_stack *s, const struct truth *t)
{
	const struct mt_frame *f = frames_of(s);
	size_t i;

	for (i = 0; i < s->n && i < t->n; i++) {
		if (f[i].addr != t->f[i].addr || f[i].at != t->f[i].at || f[i].kind != t->f[i].kind)
			break;
	}
	return i;
}

/* All frames are there; modules are ignored. */
static bool frames_agree(const struct mt_rec_stack *s, const struct truth *t)
{
	const struct mt_frame *f = frames_of(s);
	size_t i = 0, k = 0;

	for (;; i++, k++) {
		while (i < s->n && f[i].kind == MT_FRAME_MODULE)
			i++;
		while (k < t->n && t->f[k].kind == MT_FRAME_MODULE)
			k++;
		if (i == s->n || k == t->n)
			return i == s->n && k == t->n;
		if (f[i].addr != t->f[k].addr || f[i].at != t->f[k].at)
			return false;
	}
}

static void check_whole(const struct mt_rec_stack *s, const struct truth *t)
{
	assert_non_null(s);
	assert_int_equal(s->h.walk, MT_WALK_OK);
	assert_int_equal(s->n, t->n);
	assert_int_equal(agree(s, t), t->n);
	assert_int_equal(!!(s->stack & MT_STACK_IN_MODULE), t->module);
}

static void known_stacks(void **state)
{
	const struct mt_rec_stack *s;
	struct mt_rec_mem first, again;
	struct truth t;

	for (size_t v = 0; v < NR_IMAGES; v++) {
		for (int sleepable = 0; sleepable <= 1; sleepable++) {
			load(images[v], &t);
			first = hit(sleepable, &s);
			check_whole(s, &t);
			again = hit(sleepable, &s);
			assert_null(s); /* a known stack is not sent again */
			assert_true(again.stack == first.stack && again.h.walk == MT_WALK_OK);
		}
	}
}

static void ids(void **state)
{
	const struct mt_rec_stack *s;
	struct mt_rec_mem a, b;
	struct truth t;

	for (size_t v = 0; v < NR_IMAGES; v++) {
		load(images[v], &t);
		a = hit(false, &s);
		host.task.pid = 4711; /* another thread with the same stack */
		b = hit(false, &s);
		assert_true(b.stack == a.stack && b.h.tid == 4711 && !s);
		code_epoch++;
		b = hit(false, &s);
		assert_true(b.stack != a.stack);
		check_whole(s, &t);
		assert_int_equal(s->epoch, 1);
		memset(module_code, 0, sizeof(module_code));
		b = hit(false, &s);
		assert_non_null(s);
		assert_true(!(b.stack & MT_STACK_IN_MODULE) && s->n == t.n - 2);
	}
}

/* When a code object of a sent stack is freed, all stacks are sent again. Other code objects have
 * no effect. */
static void code_goes(void **state)
{
	const struct mt_rec_stack *s;
	struct pt_regs regs = { 0 };
	struct mt_rec_mem a;
	struct truth t;
	size_t n;

	load("3.12", &t);
	a = hit(false, &s);
	regs.di = 0x123450;
	n = host.records;
	host_run(code_gone, &regs);
	assert_true(host.records == n && !code_epoch);
	regs.di = t.f[t.n - 1].addr;
	host_run(code_gone, &regs);
	assert_true(host.records == n + 1 && code_epoch == 1);
	assert_int_equal(((const struct mt_rec_gone *)host.record[n].data)->code, regs.di);
	assert_true(hit(false, &s).stack != a.stack && s);
}

/* True if a walk told user space an address in this region or, from a frame before it, up to it. */
static bool told_absent(size_t region)
{
	const struct host_region *r = &host.region[region];
	bool told = false;

	for (size_t i = 0; i < MT_ABSENT; i++) {
		told |= absent[i] && absent[i] + FRAME_READ > r->addr &&
			absent[i] < r->addr + r->size;
		absent[i] = 0;
	}
	return told;
}

/* Each page in turn is paged out: sleepable programs see all frames; others see the frames before
 * the page and say so. */
static void paged_out(void **state)
{
	const struct mt_rec_stack *s;
	struct truth t;
	size_t pages;

	for (size_t v = 0; v < NR_IMAGES; v++) {
		load(images[v], &t);
		pages = host.regions;
		for (size_t i = 0; i < pages; i++) {
			load(images[v], &t);
			host.region[i].absent = true;
			hit(true, &s);
			check_whole(s, &t);
		}
		for (size_t i = 0; i < pages; i++) {
			struct mt_rec_mem m;

			load(images[v], &t);
			host.region[i].absent = true;
			m = hit(false, &s);
			if (m.h.walk == MT_WALK_OK) {
				check_whole(s, &t);
			} else if (m.h.walk == MT_WALK_FAULT_SELF) {
				assert_true(s && frames_agree(s, &t));
			} else {
				assert_true(m.h.walk == MT_WALK_FAULT_FRAME ||
					    m.h.walk == MT_WALK_FAULT_THREAD);
				assert_true(!s || agree(s, &t) == s->n);
			}
			assert_true(m.h.walk == MT_WALK_OK || told_absent(i));
		}
	}
}

/* A frame points back to an earlier one: the walk ends. */
/* From 3.15 on the first of two variables is 0, as in a thread that may not run Python code. */
static struct mt_py_layout layout_of(const struct world *w)
{
	struct pyslot slot = { .first = 784 + 3 * 16 + 8 };

	if (w->l.rt_tss_key == PYLAYOUT_NONE)
		slot = (struct pyslot){ PYSLOT_EITHER, LOCAL_AT - 8, LOCAL_AT };
	return image_layout(&w->l, slot, 0);
}

static void circles(void **state)
{
	const struct mt_rec_stack *s;
	struct mt_rec_mem m;

	for (const struct build *b = builds; b < builds + NR_BUILDS; b++) {
		struct world w = make_build(b->minor, b->free_threaded);
		int minor = b->minor;
		struct mt_py_layout k = layout_of(&w);

		host_reset();
		host_add(addr(&w, 0), SIZE, w.m);
		memcpy((void *)&py, &k, sizeof(py));
		host.task.thread.fsbase = addr(&w, PTHREAD(0));
		put(&w, FRAME(2) + w.l.fr_prev, addr(&w, FRAME(0)));
		m = hit(false, &s);
		assert_int_equal(m.h.walk, MT_WALK_TRUNCATED);
		assert_int_equal(s->n, MT_MAX_FRAMES);
		assert_true(host.reads < 4 * MT_MAX_VISIT);
		if (minor >= 12) { /* frames in a cycle of shims only */
			for (size_t i = 0; i < NR_FRAMES; i++)
				w.m[FRAME(i) + w.l.fr_owner] = (uint8_t)w.l.shim_owner;
			m = hit(false, &s);
			assert_true(m.h.walk == MT_WALK_TRUNCATED && !m.stack);
		}
		drop(&w);
	}
}

static void no_frames(void **state)
{
	const struct mt_rec_stack *s;
	struct truth t;

	for (size_t v = 0; v < NR_IMAGES; v++) {
		load(images[v], &t);
		host.task.thread.fsbase = 0x1000;
		assert_int_equal(hit(true, &s).h.walk, MT_WALK_FAULT_THREAD);
		assert_null(s);
		host.task.thread.fsbase = UINT64_MAX - 8;
		assert_int_equal(hit(true, &s).h.walk, MT_WALK_FAULT_THREAD);
		py.tls_kind = MT_TLS_NONE;
		assert_int_equal(hit(true, &s).h.walk, MT_WALK_OFF);
	}
}

static void made_by_hand(void **state)
{
	const struct mt_rec_stack *s;

	for (const struct build *b = builds; b < builds + NR_BUILDS; b++) {
		struct world w = make_build(b->minor, b->free_threaded);
		int minor = b->minor;
		struct pythread thread = { .tstate = addr(&w, TSTATE(0)) };
		struct mt_py_layout k = layout_of(&w);
		struct pyframe f[8];
		int n;

		assert_int_equal(look(&w), 0);
		n = python__stack(w.py, &thread, f, 8);
		assert_int_equal(n, minor >= 12 ? 2 : 3);
		host_reset();
		host_add(addr(&w, 0), SIZE, w.m);
		memcpy((void *)&py, &k, sizeof(py));
		host.task.thread.fsbase = addr(&w, PTHREAD(0));
		hit(false, &s);
		assert_non_null(s);
		assert_int_equal(s->n, n);
		for (int i = 0; i < n; i++) {
			assert_true(frames_of(s)[i].addr == f[i].code);
			assert_true(frames_of(s)[i].at == f[i].at ||
				    (f[i].at == -1 && frames_of(s)[i].at == -2));
		}
		/* a Python thread that runs nothing */
		host.task.thread.fsbase = addr(&w, PTHREAD(1));
		assert_int_equal(hit(false, &s).h.walk, MT_WALK_NO_FRAME);
		host.task.thread.fsbase = addr(&w, KEYS(0)); /* a native thread */
		assert_int_equal(hit(false, &s).h.walk, MT_WALK_NO_THREAD);
		drop(&w);
	}
}

/* Frames that did not fit into the ring are sent again. */
static void full_ring(void **state)
{
	const struct mt_rec_stack *s;
	struct pt_regs regs = { .si = 8 };
	struct truth t;
	uint32_t zero = 0;

	load("3.12", &t);
	host.room = 0;
	host_run(report, &regs);
	assert_int_equal(host.records, 0);
	assert_int_equal(bpf_map_lookup_elem(&counters, &zero)->c[MT_CNT_RING_LOST + MT_REC_STACK],
			 1);
	assert_int_equal(bpf_map_lookup_elem(&counters, &zero)->c[MT_CNT_RING_LOST + MT_REC_REPORT],
			 1);
	assert_int_equal(bpf_map_lookup_elem(&counters, &zero)->c[MT_CNT_WALK + MT_WALK_LOST], 1);
	host.room = 16;
	hit(false, &s);
	check_whole(s, &t);
}

/* A job with a thousand repeated stacks sends each once, except for a few collisions in a set. */
static void many_live_stacks(void **state)
{
	uint64_t id[1000], x = 88172645463325252ULL;
	size_t i, round, sent[10] = { 0 };
	struct truth t;

	load("3.13", &t); /* load() empties the maps */
	for (i = 0; i < 1000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		id[i] = x;
	}
	for (round = 0; round < 10; round++) {
		for (i = 0; i < 1000; i++) {
			if (is_sent(id[i]))
				continue;
			mark_sent(id[i]);
			assert_true(is_sent(id[i]));
			sent[round]++;
		}
	}
	assert_int_equal(sent[0], 1000);
	for (round = 1; round < 10; round++)
		assert_in_range(sent[round], 0, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_stacks),	    cmocka_unit_test(ids),
		cmocka_unit_test(code_goes),	    cmocka_unit_test(paged_out),
		cmocka_unit_test(circles),	    cmocka_unit_test(no_frames),
		cmocka_unit_test(made_by_hand),	    cmocka_unit_test(full_ring),
		cmocka_unit_test(many_live_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
