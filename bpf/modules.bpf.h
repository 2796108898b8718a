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

/* Whether a class's objects are modules: enum mt_module_type; 0: unknown. */
static __always_inline __u8 module_type_of(__u64 type)
{
	__u64 key = own_key(type);
	__u64 word = *(volatile __u64 *)&known_types[MT_KNOWN_PLACE(key)];
	__u8 *known;

	if (MT_KNOWN_KEY(word) == key)
		return MT_KNOWN_IS(word);
	known = bpf_map_lookup_elem(&module_types, &key);
	return known ? *known : 0;
}

static __always_inline __u32 current_node(struct thread_slot *thread, __u64 sp,
					  __u64 time); /* see autograd.bpf.h */

/* Removes the innermost call if it has returned. 1: stop. */
static __always_inline long leave_module(struct module_slot *slot, __u64 sp)
{
	struct module_entry *entry;

	if (!slot->n)
		return 1;
	entry = &slot->at[(slot->n - 1) & (MT_MODULE_DEPTH - 1)];
	/* If the stack cannot be read now, keep the call: a later event reads it. */
	if (state_of(&entry->call, sp, &slot->read) != CALL_LEFT)
		return 1;
	slot->n--;
	return 0;
}

#if MT_OLD

#define LEAVE_AT_ONCE 4
GLOBAL int leave_at_once(__u64 sp)
{
	struct thread_slot *thread = thread_again();
	int i;

	for (i = 0; i < LEAVE_AT_ONCE && thread; i++) {
		if (leave_module(&thread->modules, sp))
			return 1;
	}
	return 0;
}

static __always_inline void leave_all(struct module_slot *slot, __u64 sp)
{
	__u32 i;

	for (i = 0; i < MT_MODULE_DEPTH / LEAVE_AT_ONCE; i++) {
		if (leave_at_once(sp))
			break;
	}
}

#else

struct leave_ctx {
	struct module_slot *slot;
	__u64 sp;
};

static long leave_module_of(__u32 i, void *ctx)
{
	return leave_module(((struct leave_ctx *)ctx)->slot, ((struct leave_ctx *)ctx)->sp);
}

static __always_inline void leave_all(struct module_slot *slot, __u64 sp)
{
	struct leave_ctx ctx = { slot, sp };

	/* bpf_loop() is verified once, a loop in this function for every turn. */
	bpf_loop(MT_MODULE_DEPTH, leave_module_of, &ctx, 0);
}

#endif

/* leave_modules() for a thread that is in modules. */
static __noinline int leave_returned(struct module_slot *slot, __u64 sp)
{
	if (!slot)
		return 0;
	leave_all(slot, sp);
	if (slot->same > slot->n)
		slot->same = slot->n;
	return 0;
}

/* Removes calls that have returned, from the innermost on, as of the stack pointer `sp`. */
static __always_inline void leave_modules(struct module_slot *slot, __u64 sp)
{
	if (slot->n)
		leave_returned(slot, sp);
}

/* Reports the modules that the thread has left, before the record of its current event. */
static __noinline int report_left_modules(struct module_slot *slot, __u64 sp, __u64 time)
{
	struct mt_rec_leave *record;

	if (!slot)
		return 0;
	leave_modules(slot, sp);
	if (slot->known <= slot->same)
		return 0;
	count(MT_CNT_HIT + MT_REC_MODULE_LEAVE);
	record = reserve(MT_REC_MODULE_LEAVE, sizeof(*record));
	if (!record)
		return 0; /* the thread's next event reports it */
	fill_header(&record->h, MT_REC_MODULE_LEAVE, time, 0, false);
	record->keep = slot->same;
	record->pad = 0;
	slot->known = slot->same;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void settle(struct thread_slot *thread, __u64 sp, __u64 time)
{
	if (!thread->modules.n && !thread->modules.known)
		return;
	if (modules)
		report_left_modules(&thread->modules, sp, time);
	else
		leave_modules(&thread->modules, sp);
}

/* Adds the call that begins at the stack pointer `sp`. False: too many are nested, which is
 * counted. */
static __noinline bool push_module(struct module_slot *slot, __u64 sp)
{
	struct module_entry *entry;

	if (!slot)
		return false;
	leave_modules(slot, sp);
	if (slot->n >= MT_MODULE_DEPTH) {
		count(MT_CNT_MODULE_DEEP);
		return false;
	}
	entry = &slot->at[slot->n & (MT_MODULE_DEPTH - 1)];
	keep_call(&entry->call, &slot->read, sp);
	entry->below.shim = 0;
	/* same thread state as the call around it */
	entry->tstate = slot->n ? slot->at[(slot->n - 1) & (MT_MODULE_DEPTH - 1)].tstate : 0;
	slot->self_of = ++slot->n;
	return true;
}

/* Modules entered before attach are visible on the Python stack only. Walks it at each outermost
 * call until it has no such module. Returns the caller's stack id; 0: not walked. */
static __always_inline __u64 outer_modules(struct thread_slot *thread, __u64 sp, __u64 time)
{
	struct module_slot *slot = &thread->modules;
	__u64 stack;

	if (slot->whole || slot->n != 1)
		return 0;
	stack = walk_stack_atomic(0, sp, time);
	slot->whole = (stack & (MT_STACK_WALKS - 1)) == MT_WALK_OK && !(stack & MT_STACK_IN_MODULE);
	return stack;
}

/* Sends the innermost call. stack: result of walk_stack(), or 0. node: enum mt_node. wake: the
 * flags of bpf_ringbuf_submit(). */
static __noinline int send_entry(struct module_slot *slot, __u64 time, __u64 stack, __u64 node,
				 __u64 wake)
{
	const struct module_entry *entry;
	struct mt_rec_enter *record;

	if (!slot)
		return 0;
	record = reserve(MT_REC_MODULE_CALL, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_MODULE_CALL, time, stack, false);
	record->h.node = node;
	record->self = slot->self;
	record->type = slot->type;
	record->stack = stack_id(stack);
	entry = &slot->at[(slot->n - 1) & (MT_MODULE_DEPTH - 1)];
	record->sp = entry->call.sp;
	record->ret = entry->call.ret;
	record->depth = slot->n - 1;
	record->keep = slot->same;
	slot->known = slot->same = slot->n;
	bpf_ringbuf_submit(record, wake);
	return 0;
}

/* A bit by hash of the object: it was called before. */
static __u64 seen_module[MT_SEEN_MODULES / 64] = {};

/* Returns whether the object was called before, and notes this call. Other objects may have its
 * bit. */
static __always_inline bool seen_before(__u64 self)
{
	__u32 index = (__u32)(((self >> 4) + member_of_current() * 0x3779fb9U) * 0x9e3779b1U >>
			      16) &
		      (MT_SEEN_MODULES - 1);
	__u64 bit = 1ULL << (index % 64);
	__u64 *word = &seen_module[index / 64];
	bool seen = *word & bit;

	/* Another CPU may drop the bit at this moment: then the object wakes user space again. */
	if (!seen)
		*word |= bit;
	return seen;
}

/* Records a call of the object in the first argument, unless its class is known to be no module. */
static __noinline int enter_module(struct pt_regs *ctx)
{
	__u64 self = PT_REGS_PARM1(ctx), sp = PT_REGS_SP(ctx);
	__u64 time = bpf_ktime_get_ns(), type = 0, stack, wake = BPF_RB_NO_WAKEUP;
	struct thread_slot *thread;
	__u8 known;

	if (read_word(&type, self + py.ob_type))
		return filtered(MT_REC_MODULE_CALL);
	known = module_type_of(type);
	if (known == MT_TYPE_OTHER)
		return filtered(MT_REC_MODULE_CALL);
	if (modules && !(known && seen_before(self)))
		wake = wakeup(time); /* the module's name must be read while it lives */
	thread = begin_thread(ctx);
	if (!thread) {
		count(MT_CNT_MODULE_FAULT);
		return filtered(MT_REC_MODULE_CALL);
	}
	thread->modules.self = self;
	thread->modules.type = type;
	thread->modules.self_of = 0;
	if (!push_module(&thread->modules, sp))
		return filtered(MT_REC_MODULE_CALL);
	stack = outer_modules(thread, sp, time);
	send_entry(&thread->modules, time, stack, current_node(thread, sp, time), wake);
	sample_time(MT_REC_MODULE_CALL, time);
	return 0;
}

/* Reports a call that has not passed slot_tp_call, unless it is within one that has. */
static __noinline int enter_bound(struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx), time = bpf_ktime_get_ns(), stack;
	struct mt_rec_enter *record;
	struct thread_slot *thread;

	thread = begin_thread(ctx);
	if (!thread)
		return filtered(MT_REC_MODULE_CALL);
	settle(thread, sp, time);
	if (thread->modules.n)
		return filtered(MT_REC_MODULE_CALL);
	/* The next outermost call is within this one: its walk must see that. */
	thread->modules.whole = 0;
	stack = walk_stack_atomic(0, sp, time);
	if (!(stack & MT_STACK_IN_MODULE))
		return filtered(MT_REC_MODULE_CALL);
	record = reserve(MT_REC_MODULE_CALL, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_MODULE_CALL, time, stack, false);
	record->self = record->type = record->sp = record->ret = 0;
	record->stack = stack_id(stack);
	record->depth = MT_DEPTH_BOUND;
	record->keep = thread->modules.same;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}
