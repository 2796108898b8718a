/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel side's walk on a simulated thread that randomly calls Python from Python and from C,
 * calls modules, resumes generators, returns, unwinds, and allocates in between. Each reported
 * stack must be the current one, whatever the walk remembers and whatever old data is in memory.
 */
#include "unit/cmocka.h"
#include "bpf_host.h"
#include "last_python.h"
#include "walk_image.h"

#define C_STACK UINT64_C(0x7ffc00000000)
#define C_SIZE 0x20000u
#define DATA UINT64_C(0x7f1000000000)
#define DATA_SIZE 0x8000u
#define HEAP UINT64_C(0x7f2000000000) /* generators' frames, modules, the thread state */
#define HEAP_SIZE 0x8000u
#define TSTATE (HEAP + 0x100)
#define GENERATOR(i) (HEAP + 0x1000 + (uint64_t)(i)*0x200)
#define MODULE(i) (HEAP + 0x4000 + (uint64_t)(i)*0x40)
#define CODE(i) (UINT64_C(0x7f3000000000) + (uint64_t)(i)*0x400)
#define MODULE_CODE CODE(0)
#define GENERATORS 6
#define MODULES 5
#define CODES 7
#define DEPTH 56
#define STEPS 3000
#define IDS 8192

enum kind { PYTHON, GENERATOR_FRAME, EVAL, C_CALL };

/* An active call; the state to restore when it is left. */
struct act {
	enum kind kind;
	uint64_t frame, self; /* Python call: its frame; its module if it is a module call */
	uint64_t sp, top, current, cframe;
};

static struct {
	uint8_t c_stack[C_SIZE], data[DATA_SIZE], heap[HEAP_SIZE];
	struct act acts[DEPTH * 3];
	size_t n, frames;
	uint64_t sp, top, current, cframe; /* C, Python; the frame, its _PyCFrame (3.11, 3.12) */
	const struct pylayout *l;
	uint64_t seed;
	bool narrow; /* few places and sizes, so that addresses and stacks repeat */
} m;

static struct {
	uint64_t id;
	struct mt_frame f[MT_MAX_ENTRIES];
	size_t n;
} told[IDS];
static size_t n_told;

static uint64_t pick(uint64_t n)
{
	m.seed ^= m.seed << 13;
	m.seed ^= m.seed >> 7;
	m.seed ^= m.seed << 17;
	return (m.seed >> 11) % n;
}

static uint64_t some(uint64_t n)
{
	return pick(m.narrow ? 2 : n);
}

static void put(uint64_t addr, uint64_t v)
{
	uint8_t *p = addr - C_STACK < C_SIZE   ? m.c_stack + (addr - C_STACK)
		     : addr - DATA < DATA_SIZE ? m.data + (addr - DATA)
					       : m.heap + (addr - HEAP);

	memcpy(p, &v, sizeof(v));
}

static uint64_t get(uint64_t addr)
{
	uint64_t v;

	assert_int_equal(host_read(&v, sizeof(v), addr, true), 0);
	return v;
}

static void put_owner(uint64_t frame, uint8_t owner)
{
	uint64_t word = frame + m.l->fr_owner / 8 * 8, shift = m.l->fr_owner % 8 * 8;

	if (m.l->fr_owner != PYLAYOUT_NONE)
		put(word, (get(word) & ~(UINT64_C(0xff) << shift)) | (uint64_t)owner << shift);
}

static void set_current(uint64_t frame)
{
	m.current = frame;
	if (m.l->cframe_current == PYLAYOUT_NONE)
		put(TSTATE + m.l->ts_frame, frame);
	else if (m.cframe)
		put(m.cframe + m.l->cframe_current, frame);
}

/* The innermost frame advances to its next instruction. */
static void run_on(void)
{
	struct act *a = m.n ? &m.acts[m.n - 1] : NULL;

	if (a && (a->kind == PYTHON || a->kind == GENERATOR_FRAME))
		put(a->frame + m.l->fr_instr, (get(a->frame + m.l->fr_code) & m.l->tag_mask) +
						      m.l->co_code_adaptive + 2 * some(20));
}

static struct act *enter(enum kind kind)
{
	struct act *a = &m.acts[m.n++];

	*a = (struct act){
		.kind = kind, .sp = m.sp, .top = m.top, .current = m.current, .cframe = m.cframe
	};
	return a;
}

static void leave_one(void)
{
	struct act *a = &m.acts[--m.n];

	m.frames -= a->kind == PYTHON || a->kind == GENERATOR_FRAME;
	m.sp = a->sp;
	m.top = a->top;
	if (a->kind == EVAL && m.l->cframe_current != PYLAYOUT_NONE) {
		m.cframe = a->cframe;
		put(TSTATE + m.l->ts_frame, m.cframe);
	}
	set_current(a->current);
}

static void python(uint64_t frame, enum kind kind, uint64_t code, uint64_t self)
{
	struct act *a = enter(kind);

	a->frame = frame;
	a->self = self;
	put(frame + m.l->fr_code, code);
	put(frame + m.l->fr_prev, m.current);
	put(frame + m.l->fr_instr, code + m.l->co_code_adaptive + 2 * some(20));
	put(frame + m.l->fr_local0, self ? self : pick(1000));
	put_owner(frame, kind == GENERATOR_FRAME);
	set_current(frame);
	m.frames++;
}

static void function(uint64_t code, uint64_t self)
{
	uint64_t frame = m.top;

	m.top += (m.l->fr_local0 + 8 + 8 * some(12) + 7) / 8 * 8;
	python(frame, PYTHON, code, self);
	m.acts[m.n - 1].top = frame;
}

/* C calls Python: the interpreter's variables are on the C stack. */
static void eval(void)
{
	enter(EVAL);
	m.sp -= 8 * (40 + some(60));
	for (uint64_t at = m.sp; at < m.acts[m.n - 1].sp && m.seed & 64; at += 8)
		put(at, pick(1000)); /* otherwise the stack keeps old data */
	if (m.l->cframe_current != PYLAYOUT_NONE) {
		m.cframe = m.sp + 8 * some(4);
		put(TSTATE + m.l->ts_frame, m.cframe);
	}
	if (m.l->shim_owner) {
		uint64_t shim = m.sp + 0x80;

		put(shim + m.l->fr_prev, m.current);
		put_owner(shim, m.l->shim_owner);
		m.current = shim;
	}
	set_current(m.current);
}

static void call_module(void)
{
	struct pt_regs regs = { .di = MODULE(some(MODULES)) };

	enter(C_CALL);
	m.sp -= 8 * (4 + some(30));
	put(m.sp, UINT64_C(0x7f4000000000) + 16 * some(3)); /* few call sites */
	regs.sp = m.sp;
	host_run(module_call, &regs);
	eval();
	function(MODULE_CODE, regs.di);
}

static void resume(void)
{
	size_t which = pick(GENERATORS);

	for (size_t i = 0; i < m.n; i++) {
		if (m.acts[i].frame == GENERATOR(which))
			return;
	}
	if (pick(2))
		eval();
	python(GENERATOR(which), GENERATOR_FRAME, CODE(1 + which), 0);
}

/* The current stack, innermost frame first. */
static size_t truth(struct mt_frame *f)
{
	size_t n = 0;

	for (size_t i = m.n; i-- > 0;) {
		const struct act *a = &m.acts[i];

		if (a->kind != PYTHON && a->kind != GENERATOR_FRAME)
			continue;
		f[n].addr = get(a->frame + m.l->fr_code);
		f[n].at = (int32_t)(get(a->frame + m.l->fr_instr) - f[n].addr -
				    m.l->co_code_adaptive);
		f[n++].kind = MT_FRAME_CODE;
		if (a->self)
			f[n++] = (struct mt_frame){ .addr = a->self, .kind = MT_FRAME_MODULE };
	}
	return n;
}

static void note_stacks(void)
{
	for (size_t i = 0; i < host.records; i++) {
		const struct mt_rec_stack *s = host.record[i].data;

		if (s->h.type != MT_REC_STACK)
			continue;
		assert_true(n_told < IDS);
		told[n_told].id = s->stack;
		told[n_told].n = s->n;
		memcpy(told[n_told++].f, s + 1, s->n * sizeof(struct mt_frame));
	}
}

static void allocate(void)
{
	struct pt_regs regs = { .di = 0x1000, .si = 512, .sp = m.sp - 8 * (1 + pick(20)) };
	struct mt_frame f[MT_MAX_ENTRIES];
	const struct mt_rec_mem *r;
	size_t n = truth(f), i = 0;

	host_run(pick(4) ? report : report_s, &regs);
	note_stacks();
	r = host.record[host.records - 1].data;
	assert_int_equal(r->h.type, MT_REC_REPORT);
	assert_int_equal(r->h.walk, n ? MT_WALK_OK : MT_WALK_NO_FRAME);
	assert_int_equal(host.open, 0);
	if (n) {
		while (i < n_told && told[i].id != r->stack)
			i++;
		assert_true(i < n_told);
		if (told[i].n != n || memcmp(told[i].f, f, n * sizeof(f[0])))
			fail_msg("3.%d: another stack, of %zu entries, not %zu", m.l->minor,
				 told[i].n, n);
		assert_int_equal(!!(r->stack & MT_STACK_IN_MODULE), n && told[i].n > m.frames);
	}
	host_drop_records();
	host.room = HOST_RECORDS;
}

static void begin_thread_of(int minor, uint64_t seed, bool narrow)
{
	struct mt_py_layout k;

	host_reset();
	memset(&m, 0, sizeof(m));
	n_told = 0;
	m.seed = seed * 0x9e3779b97f4a7c15ULL;
	m.narrow = narrow;
	m.l = pylayout__find(3, minor, false);
	m.sp = C_STACK + C_SIZE - 64;
	m.top = DATA + 64;
	host_add(C_STACK, C_SIZE, m.c_stack);
	host_add(DATA, DATA_SIZE, m.data);
	host_add(HEAP, HEAP_SIZE, m.heap);
	k = image_layout(m.l, (struct pyslot){ .first = 16 }, 0);
	memcpy((void *)&py, &k, sizeof(py));
	host.task.thread.fsbase = HEAP;
	put(HEAP + 16, TSTATE);
	for (size_t i = 0; i < MODULES; i++)
		put(MODULE(i) + m.l->ob_type, HEAP + 0x80 + 8 * (i % 2));
	module_code[0] = MODULE_CODE;
	modules = 1;
	eval();
}

static void step(void)
{
	uint64_t what = pick(16);
	size_t most = m.narrow ? 14 : DEPTH - 4;

	run_on();
	if (m.frames > most || m.n > DEPTH * 3 - 8 || m.sp < C_STACK + 0x4000 ||
	    m.top > DATA + DATA_SIZE - 0x400)
		what = 15;
	if (what < 5) {
		allocate();
	} else if (what < 7) {
		function(CODE(1 + some(CODES)), 0);
	} else if (what == 7) {
		eval();
		function(CODE(1 + some(CODES)), 0);
	} else if (what < 11) {
		call_module();
	} else if (what == 11) {
		resume();
	} else if (what < 15) {
		if (m.n > 1)
			leave_one();
	} else {
		for (uint64_t many = pick(m.n); many; many--)
			leave_one(); /* an exception that no frame catches */
	}
}

/* In versions with shims, some walks were shortened. */
static void check_used(void)
{
	uint32_t zero = 0;
	const __u64 *c = bpf_map_lookup_elem(&counters, &zero)->c;

	assert_true(c[MT_CNT_WALK] > STEPS / 5);
	if (m.l->shim_owner)
		assert_true(c[MT_CNT_AGAIN] > STEPS / 100);
	assert_int_equal(c[MT_CNT_AGAIN_OTHER], 0);
}

static void moves(void **state)
{
	for (int minor = 11; minor <= LAST_MINOR; minor++) {
		for (uint64_t seed = 1; seed <= 16; seed++) {
			begin_thread_of(minor, seed, seed % 2);
			for (int i = 0; i < STEPS; i++)
				step();
			check_used();
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
