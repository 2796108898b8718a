/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The modules that a thread is in. Every call of an object whose class has __call__ passes
 * slot_tp_call, and user space says which classes are modules. No probe sees a module return.
 * Instead, each event of the thread checks the stack, as for autograd's nodes. A record then
 * reports the modules that were left.
 * A call of a bound method, `f = model.__call__; f()`, runs its Python without slot_tp_call. All
 * calls of modules pass one more function, the first that Module._call_impl calls. If no call is
 * active there, the call had no slot_tp_call.
 */
/* Classes of called objects, written by user space. An unknown class counts as a module's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MT_MODULE_TYPES);
	__type(key, __u64);
	__type(value, __u8); /* enum mt_module_type */
} module_types SEC(".maps");

/* Most of these classes again, where one load finds them: a look into the map takes longer than
 * all else here but the reads. Only user space writes it. */
__u64 known_types[MT_KNOWN_TYPES] = {};

/* enum mt_module_type; 0: unknown. */
static __always_inline __u8 type_is(__u64 type)
{
	__u64 key = own_key(type);
	__u64 word = *(volatile __u64 *)&known_types[MT_KNOWN_PLACE(key)];
	__u8 *known;

	if (MT_KNOWN_KEY(word) == key)
		return MT_KNOWN_IS(word);
	known = bpf_map_lookup_elem(&module_types, &key);
	return known ? *known : 0;
}

static __always_inline __u32 current_node(struct thread_slot *t, __u64 sp,
					  __u64 time); /* see autograd.bpf.h */

/* Removes the innermost call if it has returned. 1: stop. */
static __always_inline long leave_module(struct module_slot *s, __u64 sp)
{
	struct module_entry *e;

	if (!s->n)
		return 1;
	e = &s->at[(s->n - 1) & (MT_MODULE_DEPTH - 1)];
	/* If the stack cannot be read now, keep the call: a later event reads it. */
	if (state_of(&e->call, sp, &s->read) != CALL_LEFT)
		return 1;
	s->n--;
	return 0;
}

#if MT_OLD

#define LEAVE_AT_ONCE 4
GLOBAL int leave_at_once(__u64 sp)
{
	struct thread_slot *t = thread_again();
	int i;

	for (i = 0; i < LEAVE_AT_ONCE && t; i++) {
		if (leave_module(&t->modules, sp))
			return 1;
	}
	return 0;
}

static __always_inline void leave_all(struct module_slot *s, __u64 sp)
{
	__u32 i;

	for (i = 0; i < MT_MODULE_DEPTH / LEAVE_AT_ONCE; i++) {
		if (leave_at_once(sp))
			break;
	}
}

#else

struct leave_ctx {
	struct module_slot *s;
	__u64 sp;
};

static long leave_module_of(__u32 i, void *ctx)
{
	return leave_module(((struct leave_ctx *)ctx)->s, ((struct leave_ctx *)ctx)->sp);
}

static __always_inline void leave_all(struct module_slot *s, __u64 sp)
{
	struct leave_ctx ctx = { s, sp };

	/* bpf_loop() is verified once, a loop in this function for every turn. */
	bpf_loop(MT_MODULE_DEPTH, leave_module_of, &ctx, 0);
}

#endif

static __noinline int leave_some(struct module_slot *s, __u64 sp)
{
	if (!s)
		return 0;
	leave_all(s, sp);
	if (s->same > s->n)
		s->same = s->n;
	return 0;
}

/* Removes calls that have returned, from the innermost on, as of the stack pointer `sp`. */
static __always_inline void leave_modules(struct module_slot *s, __u64 sp)
{
	if (s->n)
		leave_some(s, sp);
}

/* Reports the modules that the thread has left, before the record of its current event. */
static __noinline int left_modules(struct module_slot *s, __u64 sp, __u64 time)
{
	struct mt_rec_leave *r;

	if (!s)
		return 0;
	leave_modules(s, sp);
	if (s->known <= s->same)
		return 0;
	count(MT_CNT_HIT + MT_REC_MODULE_LEAVE);
	r = reserve(MT_REC_MODULE_LEAVE, sizeof(*r));
	if (!r)
		return 0; /* the thread's next event reports it */
	fill(&r->h, MT_REC_MODULE_LEAVE, time, 0, false);
	r->keep = s->same;
	r->pad = 0;
	s->known = s->same;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void settle(struct thread_slot *t, __u64 sp, __u64 time)
{
	if (!t->modules.n && !t->modules.known)
		return;
	if (modules)
		left_modules(&t->modules, sp, time);
	else
		leave_modules(&t->modules, sp);
}

static __noinline bool push_module(struct module_slot *s, __u64 sp)
{
	struct module_entry *e;

	if (!s)
		return false;
	leave_modules(s, sp);
	if (s->n >= MT_MODULE_DEPTH) {
		count(MT_CNT_MODULE_DEEP);
		return false;
	}
	e = &s->at[s->n & (MT_MODULE_DEPTH - 1)];
	keep_call(&e->call, &s->read, sp);
	e->below.shim = 0;
	/* same thread state as the call around it */
	e->tstate = s->n ? s->at[(s->n - 1) & (MT_MODULE_DEPTH - 1)].tstate : 0;
	s->self_of = ++s->n;
	return true;
}

/* Modules entered before attach are visible on the Python stack only. Walks it at each outermost
 * call until it has no such module. The caller's stack; 0: not walked. */
static __always_inline __u64 outer_modules(struct thread_slot *t, __u64 sp, __u64 time)
{
	struct module_slot *s = &t->modules;
	__u64 stack;

	if (s->whole || s->n != 1)
		return 0;
	stack = walk_stack_atomic(0, sp, time);
	s->whole = (stack & (MT_STACK_WALKS - 1)) == MT_WALK_OK && !(stack & MT_STACK_IN_MODULE);
	return stack;
}

static __noinline int send_entry(struct module_slot *s, __u64 time, __u64 stack, __u64 node,
				 __u64 wake)
{
	const struct module_entry *e;
	struct mt_rec_enter *r;

	if (!s)
		return 0;
	r = reserve(MT_REC_MODULE_CALL, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_MODULE_CALL, time, stack, false);
	r->h.node = node;
	r->self = s->self;
	r->type = s->type;
	r->stack = stack_id(stack);
	e = &s->at[(s->n - 1) & (MT_MODULE_DEPTH - 1)];
	r->sp = e->call.sp;
	r->ret = e->call.ret;
	r->depth = s->n - 1;
	r->keep = s->same;
	s->known = s->same = s->n;
	bpf_ringbuf_submit(r, wake);
	return 0;
}

/* A bit by hash of the object: it was called before. */
static __u64 seen_module[MT_SEEN_MODULES / 64] = {};

static __always_inline bool seen_before(__u64 self)
{
	__u32 i = (__u32)(((self >> 4) + member_of_current() * 0x3779fb9U) * 0x9e3779b1U >> 16) &
		  (MT_SEEN_MODULES - 1);
	__u64 bit = 1ULL << (i % 64);
	__u64 *word = &seen_module[i / 64];
	bool seen = *word & bit;

	/* Another CPU may drop the bit at this moment: then the object wakes user space again. */
	if (!seen)
		*word |= bit;
	return seen;
}

static __noinline int enter_module(struct pt_regs *ctx)
{
	__u64 self = PT_REGS_PARM1(ctx), sp = PT_REGS_SP(ctx);
	__u64 time = bpf_ktime_get_ns(), type = 0, stack, wake = BPF_RB_NO_WAKEUP;
	struct thread_slot *t;
	__u8 known;

	if (read_word(&type, self + py.ob_type))
		return filtered(MT_REC_MODULE_CALL);
	known = type_is(type);
	if (known == MT_TYPE_OTHER)
		return filtered(MT_REC_MODULE_CALL);
	if (modules && !(known && seen_before(self)))
		wake = wakeup(time); /* the module's name must be read while it lives */
	t = begin_thread(ctx);
	if (!t) {
		count(MT_CNT_MODULE_FAULT);
		return filtered(MT_REC_MODULE_CALL);
	}
	t->modules.self = self;
	t->modules.type = type;
	t->modules.self_of = 0;
	if (!push_module(&t->modules, sp))
		return filtered(MT_REC_MODULE_CALL);
	stack = outer_modules(t, sp, time);
	send_entry(&t->modules, time, stack, current_node(t, sp, time), wake);
	took(MT_REC_MODULE_CALL, time);
	return 0;
}

/* Reports a call that has not passed slot_tp_call, unless it is within one that has. */
static __noinline int enter_bound(struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx), time = bpf_ktime_get_ns(), stack;
	struct mt_rec_enter *r;
	struct thread_slot *t;

	t = begin_thread(ctx);
	if (!t)
		return filtered(MT_REC_MODULE_CALL);
	settle(t, sp, time);
	if (t->modules.n)
		return filtered(MT_REC_MODULE_CALL);
	/* The next outermost call is within this one: its walk must see that. */
	t->modules.whole = 0;
	stack = walk_stack_atomic(0, sp, time);
	if (!(stack & MT_STACK_IN_MODULE))
		return filtered(MT_REC_MODULE_CALL);
	r = reserve(MT_REC_MODULE_CALL, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_MODULE_CALL, time, stack, false);
	r->self = r->type = r->sp = r->ret = 0;
	r->stack = stack_id(stack);
	r->depth = MT_DEPTH_BOUND;
	r->keep = t->modules.same;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}
