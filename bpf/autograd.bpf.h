/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Finds the line of forward that made an autograd node, and the node that runs when memory is
 * allocated.
 * A node that begins to run is kept with the task, without a record. No probe sees its end: a C++
 * exception can leave the engine's function, and exceptions must not pass a return probe. Instead,
 * the next allocation checks the stack (arch.bpf.h). Calls that have ended are removed then, so an
 * allocation outside of backward costs one lookup.
 */
struct mt_node_layout node_layout = {};

static __always_inline struct running_node *innermost(struct node_slot *slot)
{
	return &slot->at[slot->top & (MT_NODE_DEPTH - 1)];
}

static __always_inline void drop_innermost(struct node_slot *slot)
{
	slot->top--;
	slot->n--;
}

/* Removes calls that have ended, from the innermost on, as of the stack pointer `sp`. Returns
 * enum mt_node: whether one is left. */
static __noinline __u32 find_running(struct node_slot *slot, __u64 sp)
{
	struct running_node *running;
	enum call_state state;
	int i;

	if (!slot)
		return MT_NODE_NONE;
	for (i = 0; i < MT_NODE_DEPTH && slot->n; i++) {
		running = innermost(slot);
		state = state_of(&running->call, sp, &slot->read);
		if (state != CALL_LEFT)
			return state == CALL_ACTIVE ? MT_NODE_CURRENT : MT_NODE_UNKNOWN;
		drop_innermost(slot);
	}
	return MT_NODE_NONE;
}

/* Reads memory of a node. False: unreadable, which is counted. */
static __always_inline bool read_node(void *dst, __u32 size, __u64 addr)
{
	if (!(size == sizeof(__u64) ? read_word(dst, addr)
				    : bpf_probe_read_user(dst, size, (const void *)addr)))
		return true;
	count(MT_CNT_NODE_FAULT);
	return false;
}

/* The layout of nodes in the current process. */
static __always_inline const struct mt_node_layout *current_layout(void)
{
	const struct mt_member *member;
	__u32 number;

	if (!group)
		return &node_layout;
	number = member_of_current();
	member = bpf_map_lookup_elem(&members, &number);
	return member ? &member->node : &node_layout;
}

/* Reads the additional word for nodes of this class, see struct mt_node_layout. */
static __always_inline void read_extra(struct mt_rec_node *record)
{
	const struct mt_node_layout *layout = current_layout();

	record->extra = 0;
	if (record->head[0] == layout->object_vptr) {
		if (!read_node(&record->extra, sizeof(record->extra),
			       record->node + layout->object) ||
		    !record->extra ||
		    !read_node(&record->extra, sizeof(record->extra),
			       record->extra + layout->object_type))
			record->extra = 0;
	} else if (layout->extra && record->head[layout->sequence & 3] == ~0ULL) {
		if (!read_node(&record->extra, sizeof(record->extra), record->node + layout->extra))
			record->extra = 0;
	}
}

/* Sends the running node before the first record that belongs to it. A running node is alive and
 * unchanged, so its memory is read only then. False: the ring was full. */
static __noinline bool send_running(struct node_slot *slot, __u64 time)
{
	struct running_node *running;
	struct mt_rec_node *record;

	if (!slot)
		return false;
	running = innermost(slot);
	if (running->number == slot->reported)
		return true;
	count(MT_CNT_HIT + MT_REC_NODE);
	record = reserve(MT_REC_NODE, sizeof(*record));
	if (!record)
		return false;
	fill_header(&record->h, MT_REC_NODE, time, 0, false);
	record->node = running->node;
	record->stack = 0;
	if (read_node(record->head, sizeof(record->head), record->node)) {
		read_extra(record);
	} else {
		record->extra = 0;
		__builtin_memset(record->head, 0, sizeof(record->head));
	}
	slot->reported = running->number;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * The running node of an allocation at this stack pointer, after sending its record. If the record
 * is lost, the result is MT_NODE_UNKNOWN: the thread's previous node would be wrong.
 */
static __noinline __u32 node_at(struct node_slot *slot, __u64 sp, __u64 time)
{
	__u32 state;

	state = find_running(slot, sp);
	if (state == MT_NODE_CURRENT && !send_running(slot, time))
		return MT_NODE_UNKNOWN;
	return state;
}

/* The outermost running node of threads whose task storage could not be allocated. */
static struct {
	__u64 tid; /* the entries are hashed by it */
	struct kept_call call;
	struct stack_read read;
} unkept[MT_UNKEPT_NODES] = {};
static __u8 any_unkept = 0;

/* True if a node in `unkept` runs on this thread, as of this stack pointer. */
static __noinline bool unkept_runs(__u64 sp)
{
	__u64 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 index = tid & (MT_UNKEPT_NODES - 1);

	return unkept[index].tid == tid &&
	       state_of(&unkept[index].call, sp, &unkept[index].read) != CALL_LEFT;
}

/* Keeps the call of a node on a thread without task storage, unless one that is still running is
 * kept: only the outermost one matters. */
static __noinline int enter_unkept(struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx);
	__u64 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 index = tid & (MT_UNKEPT_NODES - 1);

	count(MT_CNT_NODE_FAULT);
	begin_read(&unkept[index].read, ctx);
	if (unkept_runs(sp))
		return 0;
	unkept[index].tid = tid;
	keep_call(&unkept[index].call, &unkept[index].read, sp);
	any_unkept = 1;
	return 0;
}

/* enum mt_node of an event at this stack pointer. Sends the node's record first if that is
 * needed. */
static __always_inline __u32 current_node(struct thread_slot *thread, __u64 sp, __u64 time)
{
	__u32 state = thread && thread->nodes.n ? node_at(&thread->nodes, sp, time) : MT_NODE_NONE;

	return state == MT_NODE_NONE && any_unkept && unkept_runs(sp) ? MT_NODE_UNKNOWN : state;
}

#define CALLER_CALLS 16 /* nodes that a frame runs until its return address is read again */

/*
 * Keeps the call of a node. The engine's loop calls evaluate_function() at one place, so the return
 * address of a frame's calls stays the same, and reading it takes as long as the rest of the
 * program. A difference counts as a bug.
 */
static __always_inline void keep_node(struct node_slot *slot, struct kept_call *call,
				      struct pt_regs *ctx, __u64 sp)
{
	bool again = slot->caller_ret && is_caller(&slot->caller, ctx, sp);

	if (again && slot->caller_calls < CALLER_CALLS && !bench_verify) {
		slot->caller_calls++;
		call->sp = sp;
		call->ret = slot->caller_ret;
		return;
	}
	if (!keep_call(call, &slot->read, sp))
		count(MT_CNT_NODE_FAULT);
	if (call->ret && call->ret != return_trampoline()) {
		if (again && call->ret != slot->caller_ret)
			count(MT_CNT_AGAIN_OTHER);
		set_caller(&slot->caller, ctx, sp);
		slot->caller_ret = call->ret;
	} else {
		slot->caller_ret = 0;
	}
	slot->caller_calls = 0;
}

/* Adds the node that begins to run, after dropping those that have been left. */
static __always_inline void enter_node(struct node_slot *slot, struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx);
	struct running_node *running;
	int i;

	for (i = 0; i < MT_NODE_DEPTH && slot->n && innermost(slot)->call.sp <= sp; i++)
		drop_innermost(slot);
	slot->top++;
	if (slot->n < MT_NODE_DEPTH)
		slot->n++;
	else
		count(MT_CNT_NODE_DEEP); /* drops the outermost node */
	running = innermost(slot);
	running->node = PT_REGS_PARM3(ctx);
	running->number = ++slot->calls;
	keep_node(slot, &running->call, ctx, sp);
}

/* void torch::autograd::Engine::evaluate_function(shared_ptr<GraphTask> &, Node *func, ...):
 * parameter 1 is `this` */
SEC("uprobe")
int evaluate(struct pt_regs *ctx)
{
	struct thread_slot *thread;
	__u64 time;

	if (is_ignored())
		return 0;
	count(MT_CNT_NODE_RUN);
	if (bench_empty || is_off(MT_OFF_NODES))
		return 0;
	thread = begin_thread(ctx);
	if (!thread)
		return enter_unkept(ctx);
	/* Other programs need the time in any case. */
	time = thread->nodes.calls & (MT_TIMED_EVERY - 1) ? 0 : bpf_ktime_get_ns();
	if (thread->modules.n || thread->modules.known)
		settle(thread, PT_REGS_SP(ctx), bpf_ktime_get_ns());
	enter_node(&thread->nodes, ctx);
	if (time)
		add_time(MT_REC_NODE, time);
	return 0;
}

/* void torch::autograd::impl::set_gradient_edge(const Variable &, Edge): the Edge is in memory, its
 * first word is the node */
static __always_inline int do_edge(struct pt_regs *ctx, const bool sleepable)
{
	struct thread_slot *thread;
	struct mt_rec_node *record;
	__u64 time, stack;
	__u32 within;

	if (!begin(MT_REC_EDGE))
		return 0;
	if (is_off(MT_OFF_NODES))
		return filtered(MT_REC_EDGE);
	time = bpf_ktime_get_ns();
	thread = this_thread(ctx);
	stack = walk(thread, PT_REGS_SP(ctx), time, sleepable);
	within = current_node(thread, PT_REGS_SP(ctx), time);
	record = reserve(MT_REC_EDGE, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_EDGE, time, stack, sleepable);
	record->h.node = within;
	record->stack = stack_id(stack);
	record->extra = 0;
	/* Both were written a moment ago. Do not wait for an absent page: the reserved record would
	 * block the ring. */
	if (!read_node(&record->node, sizeof(record->node), ARG(ctx, 2)) ||
	    !read_node(record->head, sizeof(record->head), record->node)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return filtered(MT_REC_EDGE);
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	sample_time(MT_REC_EDGE, time);
	return 0;
}

SEC("uprobe")
int edge(struct pt_regs *ctx)
{
	return do_edge(ctx, false);
}

SEC("uprobe.s")
int edge_s(struct pt_regs *ctx)
{
	return do_edge(ctx, true);
}
