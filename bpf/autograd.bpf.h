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

static __always_inline struct running_node *innermost(struct node_slot *s)
{
	return &s->at[s->top & (MT_NODE_DEPTH - 1)];
}

static __always_inline void leave(struct node_slot *s)
{
	s->top--;
	s->n--;
}

/* Removes calls that have ended, from the innermost on, as of the stack pointer `sp`. The result
 * says whether a node is left. */
static __noinline __u32 find_running(struct node_slot *s, __u64 sp)
{
	struct running_node *r;
	enum call_state is;
	int i;

	if (!s)
		return MT_NODE_NONE;
	for (i = 0; i < MT_NODE_DEPTH && s->n; i++) {
		r = innermost(s);
		is = state_of(&r->call, sp, &s->read);
		if (is != CALL_LEFT)
			return is == CALL_ACTIVE ? MT_NODE_CURRENT : MT_NODE_UNKNOWN;
		leave(s);
	}
	return MT_NODE_NONE;
}

static __always_inline bool read_node(void *dst, __u32 size, __u64 addr)
{
	if (!(size == sizeof(__u64) ? read_word(dst, addr)
				    : bpf_probe_read_user(dst, size, (const void *)addr)))
		return true;
	count(MT_CNT_NODE_FAULT);
	return false;
}

static __always_inline const struct mt_node_layout *current_layout(void)
{
	const struct mt_member *m;
	__u32 number;

	if (!group)
		return &node_layout;
	number = member_of_current();
	m = bpf_map_lookup_elem(&members, &number);
	return m ? &m->node : &node_layout;
}

/* Reads the additional word for nodes of this class, see struct mt_node_layout. */
static __always_inline void read_extra(struct mt_rec_node *r)
{
	const struct mt_node_layout *l = current_layout();

	r->extra = 0;
	if (r->head[0] == l->object_vptr) {
		if (!read_node(&r->extra, sizeof(r->extra), r->node + l->object) || !r->extra ||
		    !read_node(&r->extra, sizeof(r->extra), r->extra + l->object_type))
			r->extra = 0;
	} else if (l->extra && r->head[l->sequence & 3] == ~0ULL) {
		if (!read_node(&r->extra, sizeof(r->extra), r->node + l->extra))
			r->extra = 0;
	}
}

/* Sends the running node before the first record that belongs to it. A running node is alive and
 * unchanged, so its memory is read only then. False: the ring was full. */
static __noinline bool send_running(struct node_slot *s, __u64 time)
{
	struct running_node *n;
	struct mt_rec_node *r;

	if (!s)
		return false;
	n = innermost(s);
	if (n->number == s->reported)
		return true;
	count(MT_CNT_HIT + MT_REC_NODE);
	r = reserve(MT_REC_NODE, sizeof(*r));
	if (!r)
		return false;
	fill(&r->h, MT_REC_NODE, time, 0, false);
	r->node = n->node;
	r->stack = 0;
	if (read_node(r->head, sizeof(r->head), r->node)) {
		read_extra(r);
	} else {
		r->extra = 0;
		__builtin_memset(r->head, 0, sizeof(r->head));
	}
	s->reported = n->number;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return true;
}

/*
 * The running node of an allocation at this stack pointer, after sending its record. If the record
 * is lost, the result is MT_NODE_UNKNOWN: the thread's previous node would be wrong.
 */
static __noinline __u32 node_at(struct node_slot *s, __u64 sp, __u64 time)
{
	__u32 is;

	is = find_running(s, sp);
	if (is == MT_NODE_CURRENT && !send_running(s, time))
		return MT_NODE_UNKNOWN;
	return is;
}

/* The outermost running node of threads whose task storage could not be allocated. */
static struct {
	__u64 tid; /* the entries are hashed by it */
	struct kept_call call;
	struct stack_read read;
} unkept[MT_UNKEPT_NODES] = {};
static __u8 any_unkept = 0;

/* True if such a node runs on this thread, as of this stack pointer. */
static __noinline bool unkept_runs(__u64 sp)
{
	__u64 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 i = tid & (MT_UNKEPT_NODES - 1);

	return unkept[i].tid == tid && state_of(&unkept[i].call, sp, &unkept[i].read) != CALL_LEFT;
}

/* Keeps the call of a node on a thread without task storage, unless one that is still running is
 * kept: only the outermost one matters. */
static __noinline int enter_unkept(struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx);
	__u64 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 i = tid & (MT_UNKEPT_NODES - 1);

	count(MT_CNT_NODE_FAULT);
	begin_read(&unkept[i].read, ctx);
	if (unkept_runs(sp))
		return 0;
	unkept[i].tid = tid;
	keep_call(&unkept[i].call, &unkept[i].read, sp);
	any_unkept = 1;
	return 0;
}

static __always_inline __u32 current_node(struct thread_slot *t, __u64 sp, __u64 time)
{
	__u32 is = t && t->nodes.n ? node_at(&t->nodes, sp, time) : MT_NODE_NONE;

	return is == MT_NODE_NONE && any_unkept && unkept_runs(sp) ? MT_NODE_UNKNOWN : is;
}

#define CALLER_CALLS 16 /* nodes that a frame runs until its return address is read again */

/*
 * Keeps the call of a node. The engine's loop calls evaluate_function() at one place, so the return
 * address of a frame's calls stays the same, and reading it takes as long as the rest of the
 * program. A difference counts as a bug.
 */
static __always_inline void keep_node(struct node_slot *s, struct kept_call *call,
				      struct pt_regs *ctx, __u64 sp)
{
	bool again = s->caller_ret && is_caller(&s->caller, ctx, sp);

	if (again && s->caller_calls < CALLER_CALLS && !bench_verify) {
		s->caller_calls++;
		call->sp = sp;
		call->ret = s->caller_ret;
		return;
	}
	if (!keep_call(call, &s->read, sp))
		count(MT_CNT_NODE_FAULT);
	if (call->ret && call->ret != return_trampoline()) {
		if (again && call->ret != s->caller_ret)
			count(MT_CNT_AGAIN_OTHER);
		set_caller(&s->caller, ctx, sp);
		s->caller_ret = call->ret;
	} else {
		s->caller_ret = 0;
	}
	s->caller_calls = 0;
}

static __always_inline void enter_node(struct node_slot *s, struct pt_regs *ctx)
{
	__u64 sp = PT_REGS_SP(ctx);
	struct running_node *r;
	int i;

	for (i = 0; i < MT_NODE_DEPTH && s->n && innermost(s)->call.sp <= sp; i++)
		leave(s);
	s->top++;
	if (s->n < MT_NODE_DEPTH)
		s->n++;
	else
		count(MT_CNT_NODE_DEEP); /* drops the outermost node */
	r = innermost(s);
	r->node = PT_REGS_PARM3(ctx);
	r->number = ++s->calls;
	keep_node(s, &r->call, ctx, sp);
}

/* void torch::autograd::Engine::evaluate_function(shared_ptr<GraphTask> &, Node *func, ...):
 * parameter 1 is `this` */
SEC("uprobe")
int evaluate(struct pt_regs *ctx)
{
	struct thread_slot *t;
	__u64 time;

	if (is_over())
		return 0;
	count(MT_CNT_NODE_RUN);
	if (bench_empty || is_off(MT_OFF_NODES))
		return 0;
	t = begin_thread(ctx);
	if (!t)
		return enter_unkept(ctx);
	/* Other programs need the time in any case. */
	time = t->nodes.calls & (MT_TIMED_EVERY - 1) ? 0 : bpf_ktime_get_ns();
	if (t->modules.n || t->modules.known)
		settle(t, PT_REGS_SP(ctx), bpf_ktime_get_ns());
	enter_node(&t->nodes, ctx);
	if (time)
		add_time(MT_REC_NODE, time);
	return 0;
}

/* void torch::autograd::impl::set_gradient_edge(const Variable &, Edge): the Edge is in memory, its
 * first word is the node */
static __always_inline int do_edge(struct pt_regs *ctx, const bool sleepable)
{
	struct thread_slot *t;
	struct mt_rec_node *r;
	__u64 time, stack;
	__u32 within;

	if (!begin(MT_REC_EDGE))
		return 0;
	if (is_off(MT_OFF_NODES))
		return filtered(MT_REC_EDGE);
	time = bpf_ktime_get_ns();
	t = this_thread(ctx);
	stack = walk(t, PT_REGS_SP(ctx), time, sleepable);
	within = current_node(t, PT_REGS_SP(ctx), time);
	r = reserve(MT_REC_EDGE, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_EDGE, time, stack, sleepable);
	r->h.node = within;
	r->stack = stack_id(stack);
	r->extra = 0;
	/* Both were written a moment ago. Do not wait for an absent page: the reserved record would
	 * block the ring. */
	if (!read_node(&r->node, sizeof(r->node), ARG(ctx, 2)) ||
	    !read_node(r->head, sizeof(r->head), r->node)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return filtered(MT_REC_EDGE);
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	took(MT_REC_EDGE, time);
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
