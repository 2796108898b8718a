/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Walks within a module call stop at the call's caller if three checks hold, and give the same
 * stack id as full walks. Runs the kernel side in user space on a simulated thread: main() calls
 * run(), which calls a module.
 */
#include "unit/cmocka.h"

#include "bpf_host.h"
#include "last_python.h"
#include "walk_image.h"

#define FIRST_MINOR 12 /* older ones have no shims */
#define AREA 0x4000
#define HEAP 0x500000000000ULL	/* thread state, objects */
#define CHUNK 0x600000000000ULL /* the interpreter's stack */
#define STACK 0x7f0000000000ULL
#define TP (HEAP + 0x100)
#define TSTATE (HEAP + 0x1000)
#define MODULE (HEAP + 0x2000)
#define TYPE (HEAP + 0x2800)
#define CODE(i) (HEAP + 0x3000 + 0x100 * (i))
#define FRAME(i) (CHUNK + 0x1000 + 0x100 * (i)) /* main, run, call, forward */
#define OUTER (STACK + 0x3f00)			/* the shim below main */
#define SLOT (STACK + 0x3800)			/* address of the module call's return address */
#define SHIM (STACK + 0x3600)			/* shim where the module's Python begins */
#define SHIM_2 (STACK + 0x3400)
#define CFRAME (STACK + 0x3580)
#define EVENT (STACK + 0x2000) /* stack pointer of the allocation */
#define RETURN 0x4711000ULL

static struct pylayout l;
static uint8_t heap[AREA], chunk[AREA], stack[AREA];

static uint8_t *at(uint64_t addr)
{
	return addr >= STACK   ? stack + (addr - STACK)
	       : addr >= CHUNK ? chunk + (addr - CHUNK)
			       : heap + (addr - HEAP);
}

static void put(uint64_t addr, uint64_t v)
{
	memcpy(at(addr), &v, sizeof(v));
}

/* Writes a frame at an instruction of its code; without code: a shim. */
static void put_at(uint64_t frame, uint64_t code, unsigned int instr, uint64_t prev)
{
	put(frame + l.fr_code, code);
	put(frame + l.fr_instr, code + l.co_code_adaptive + instr);
	put(frame + l.fr_prev, prev);
	*at(frame + l.fr_owner) = code ? 0 : l.shim_owner;
}

static void runs(uint64_t frame)
{
	put(l.cframe_current != PYLAYOUT_NONE ? CFRAME + l.cframe_current : TSTATE + l.ts_frame,
	    frame);
}

static void call_module(void)
{
	struct pt_regs regs = { .di = MODULE, .sp = SLOT };

	runs(FRAME(1));
	put(SLOT, RETURN);
	host_run(module_call, &regs);
	runs(FRAME(3));
}

static void make(int minor)
{
	const struct pylayout *found = pylayout__find(3, minor, false);
	struct mt_py_layout k;

	assert_non_null(found);
	l = *found;
	host_reset();
	memset(heap, 0, sizeof(heap));
	memset(chunk, 0, sizeof(chunk));
	memset(stack, 0, sizeof(stack));
	host_add(HEAP, AREA, heap);
	host_add(CHUNK, AREA, chunk);
	host_add(STACK, AREA, stack);
	k = image_layout(&l, (struct pyslot){ .first = 0x40 }, 0);
	memcpy((void *)&py, &k, sizeof(py));
	modules = 1;
	bench_verify = 0;
	host.task.thread.fsbase = TP;
	put(TP + 0x40, TSTATE);
	if (l.cframe_current != PYLAYOUT_NONE)
		put(TSTATE + l.ts_frame, CFRAME);
	put(MODULE + l.ob_type, TYPE);
	put_at(OUTER, 0, 0, 0);
	put_at(FRAME(0), CODE(0), 10, OUTER);
	put_at(FRAME(1), CODE(1), 20, FRAME(0));
	put_at(SHIM, 0, 0, FRAME(1));
	put_at(FRAME(2), CODE(2), 30, SHIM);
	put(FRAME(2) + l.fr_local0, MODULE);
	put_at(FRAME(3), CODE(3), 40, FRAME(2));
	module_code[0] = CODE(2);
	call_module();
}

static uint64_t counted(uint32_t which)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&counters, &zero)->c[which];
}

/* Allocates. Returns the stack's id; sets the record of its frames or NULL, and the number of
 * reads. */
static uint64_t allocate(const struct mt_rec_stack **frames, size_t *reads)
{
	struct pt_regs regs = { .di = 0x1000, .si = 512, .r8 = 1, .sp = EVENT };
	const struct mt_rec_mem *m = NULL;
	size_t n = host.records, before = host.reads;

	*frames = NULL;
	host_run(report, &regs);
	*reads = host.reads - before;
	for (; n < host.records; n++) {
		const struct mt_hdr *h = host.record[n].data;

		if (h->type == MT_REC_STACK)
			*frames = host.record[n].data;
		if (h->type == MT_REC_REPORT)
			m = host.record[n].data;
	}
	assert_non_null(m);
	assert_int_equal(m->h.walk, MT_WALK_OK);
	return m->stack;
}

static const struct mt_frame *entry(const struct mt_rec_stack *s, size_t i)
{
	return (const struct mt_frame *)(s + 1) + i;
}

static void check_frames(const struct mt_rec_stack *s, int run_at)
{
	static const int instr[] = { 40, 30, 0, 0, 10 };

	assert_non_null(s);
	assert_int_equal(s->n, 5);
	for (size_t i = 0, code = 3; i < 5; i++) {
		if (i == 2) {
			assert_true(entry(s, i)->kind == MT_FRAME_MODULE &&
				    entry(s, i)->addr == MODULE);
			continue;
		}
		assert_true(entry(s, i)->addr == CODE(code));
		assert_int_equal(entry(s, i)->at, i == 3 ? run_at : instr[i]);
		code--;
	}
}

static void ends_early(void **state)
{
	const struct mt_rec_stack *s;
	size_t full, early;
	uint64_t id;

	for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
		make(minor);
		id = allocate(&s, &full);
		check_frames(s, 20);
		assert_true(allocate(&s, &early) == id && !s);
		assert_int_equal(early, 3);
		assert_true(early < full);
		bench_verify = 1;
		assert_true(allocate(&s, &early) == id && !s);
		assert_int_equal(counted(MT_CNT_AGAIN), 1);
		assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
	}
}

/* Another instruction in the module: a new stack, sent with all frames. */
static void other_line_within(void **state)
{
	const struct mt_rec_stack *s;
	size_t reads;
	uint64_t id;

	for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
		make(minor);
		id = allocate(&s, &reads);
		put_at(FRAME(3), CODE(3), 44, FRAME(2));
		assert_true(allocate(&s, &reads) != id);
		assert_int_equal(s->n, 5);
		assert_int_equal(entry(s, 0)->at, 44);
		assert_int_equal(entry(s, 4)->at, 10);
		assert_int_equal(counted(MT_CNT_AGAIN), 1);
		assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
	}
}

/* Each failed check alone makes the walk a full one. */
static void does_not(void **state)
{
	const struct mt_rec_stack *s;
	size_t reads;
	uint64_t id;

	for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
		make(minor);
		id = allocate(&s, &reads);

		/* The caller is at another instruction, with the return address in place. */
		put_at(FRAME(1), CODE(1), 24, FRAME(0));
		assert_true(allocate(&s, &reads) != id);
		check_frames(s, 24);
		put_at(FRAME(1), CODE(1), 20, FRAME(0));
		assert_true(allocate(&s, &reads) == id);

		/* Another return address: the module returned. */
		put(SLOT, RETURN + 8);
		assert_true(allocate(&s, &reads) == id && reads > 3);
		assert_int_equal(counted(MT_CNT_HIT + MT_REC_MODULE_LEAVE), 1);
		call_module();
		assert_true(allocate(&s, &reads) == id);

		/* The module's Python began at another place on the stack. */
		put_at(SHIM_2, 0, 0, FRAME(1));
		put_at(FRAME(2), CODE(2), 30, SHIM_2);
		assert_true(allocate(&s, &reads) == id && reads >= 3);

		/* Another frame called the module. */
		put_at(FRAME(1) + 0x1000, CODE(1), 28, FRAME(0));
		put_at(SHIM_2, 0, 0, FRAME(1) + 0x1000);
		assert_true(allocate(&s, &reads) != id);
		check_frames(s, 28);
		assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
	}
}

/* The call is active but its Python has ended: C code allocates on the caller's behalf. */
static void on_the_way_out(void **state)
{
	const struct mt_rec_stack *s;
	size_t reads;
	uint64_t id, out;

	for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
		make(minor);
		id = allocate(&s, &reads);
		if (l.cframe_current != PYLAYOUT_NONE) {
			put(TSTATE + l.ts_frame, SLOT + 0x100);
			put(SLOT + 0x100 + l.cframe_current, FRAME(1));
		} else {
			runs(FRAME(1));
		}
		/* The stack of the module's call is known from before. */
		out = allocate(&s, &reads);
		assert_true(out != id && !s);
		for (size_t i = 0; i < host.records; i++) {
			const struct mt_rec_enter *e = host.record[i].data;

			if (e->h.type == MT_REC_MODULE_CALL)
				assert_true(out == e->stack);
		}
		assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
	}
}

/* A module within a module: the inner walk reuses the outer call's frames, also after the inner one
 * returns. */
static void within_one_another(void **state)
{
	const struct mt_rec_stack *s;
	struct pt_regs inner = { .di = MODULE, .sp = SLOT - 0x600 };
	size_t full, reads;
	uint64_t id, inside;

	for (int minor = FIRST_MINOR; minor <= LAST_MINOR; minor++) {
		make(minor);
		id = allocate(&s, &full);
		put(SLOT - 0x600, RETURN + 0x40);
		host_run(module_call, &inner);
		put_at(SHIM - 0x600, 0, 0, FRAME(3));
		put_at(FRAME(4), CODE(2), 30, SHIM - 0x600);
		put(FRAME(4) + l.fr_local0, MODULE);
		if (l.cframe_current != PYLAYOUT_NONE)
			put(TSTATE + l.ts_frame, CFRAME - 0x600);
		put(l.cframe_current != PYLAYOUT_NONE ? CFRAME - 0x600 + l.cframe_current
						      : TSTATE + l.ts_frame,
		    FRAME(4));
		inside = allocate(&s, &reads);
		assert_true(inside != id && s && s->n == 7);
		assert_true(allocate(&s, &reads) == inside && reads == 3 && !s);
		bench_verify = 1;
		assert_true(allocate(&s, &reads) == inside);
		bench_verify = 0;
		put(SLOT - 0x600, 0);
		if (l.cframe_current != PYLAYOUT_NONE)
			put(TSTATE + l.ts_frame, CFRAME);
		runs(FRAME(3));
		assert_true(allocate(&s, &reads) == id && !s);
		assert_true(allocate(&s, &reads) == id && reads == 3);
		assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
		assert_true(counted(MT_CNT_AGAIN) >= 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_early),	      cmocka_unit_test(other_line_within),
		cmocka_unit_test(does_not),	      cmocka_unit_test(on_the_way_out),
		cmocka_unit_test(within_one_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
