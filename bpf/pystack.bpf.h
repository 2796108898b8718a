/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef PYSTACK_BPF_H
#define PYSTACK_BPF_H
/*
 * The walk over the Python frames of the current thread. A probe runs synchronously on the
 * allocating thread, so its own frame chain cannot change meanwhile and every code object and
 * module on it is alive; afterwards they may be gone, so what identifies a frame is taken here.
 *
 * A stack is sent once per CPU: its id is a hash over (code object, instruction offset, module),
 * seeded with the code epoch. When a code object that a sent stack mentions is freed, the epoch
 * goes up: all ids change, all stacks are sent again, and an id can never come to mean other code.
 */

static __always_inline long read_user(void *dst, __u32 size, __u64 addr, const bool sleepable)
{
	long err = bpf_probe_read_user(dst, size, (const void *)addr);

	if (err && sleepable) {
		/* Not present in memory: bring it in. */
		count(MT_CNT_FAULT_RETRIED);
		err = bpf_copy_from_user(dst, size, (const void *)addr);
	}
	return err;
}

static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h ^= v;
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

static __always_inline __u32 seen_slot(__u64 code)
{
	return (__u32)((code >> 4) * 0x9e3779b1U >> 16) & (MT_SEEN_SLOTS - 1);
}

/*
 * The hash of a stack is made so that that of its outer part can be put to it and taken from it:
 * the sum of the entries' own, each times a power of STEP.
 */
#define STEP 0x9e3779b97f4a7c15ULL

/* 1 / odd, modulo 2^64: each turn makes twice as many bits right, of which the first five are. */
static __always_inline __u64 inverse(__u64 odd)
{
	__u64 x = (3 * odd) ^ 2;

	x *= 2 - odd * x;
	x *= 2 - odd * x;
	x *= 2 - odd * x;
	x *= 2 - odd * x;
	return x;
}

static __always_inline void put_frame(struct scratch *s, __u64 addr, __s32 at, __u32 kind)
{
	__u64 what = ((__u64)kind << 32) | (__u32)at;
	__u32 i = s->rec.n;

	/* Opaque to the compiler, which would drop the bound that the verifier wants to see. */
	asm volatile("" : "+r"(i));
	if (i >= MT_MAX_ENTRIES)
		return;
	s->entries[i].addr = addr;
	s->entries[i].at = at;
	s->entries[i].kind = kind;
	s->rec.n = i + 1;
	what = mix(addr * 0xff51afd7ed558ccdULL, what);
	s->hash += what * s->power;
	s->power *= STEP;
}

static __always_inline bool is_module_code(const struct scratch *s, __u64 code)
{
	if (group)
		return code == s->module_code[0] || code == s->module_code[1] ||
		       code == s->module_code[2] || code == s->module_code[3];
	return code == module_code[0] || code == module_code[1] || code == module_code[2] ||
	       code == module_code[3];
}

/*
 * From 3.11 on frames lie close together: those of plain calls one after the other in the thread's
 * own chunks of memory, later ones at higher addresses, and the shims, one for each time that C
 * called Python, on the C stack, later ones at lower addresses. Reading a page costs little more
 * than reading a frame, so the neighbours that come next are read along.
 */
#define ON_C_STACK                                                                                 \
	(256 * 1024) /* what lies so close above the stack pointer is taken to be on it */

static __always_inline bool in_window(const struct window *w, __u64 addr)
{
	return addr - w->at < w->ends;
}

static __always_inline __u8 *at_window(struct window *w, __u64 addr)
{
	__u64 off = addr - w->at;

	/* Opaque to the compiler, which knows what in_window() has asked, unlike the verifier. */
	asm volatile("" : "+r"(off));
	return w->bytes + (off & (WINDOW - 1));
}

/* Upwards, from the address on. */
static __always_inline bool read_up(struct window *w, __u64 addr)
{
	w->at = addr;
	w->ends = bpf_probe_read_user(w->bytes, WINDOW, (const void *)addr)
			  ? 0
			  : WINDOW - FRAME_READ + 1;
	return w->ends;
}

/* From the beginning of the page: what lies below need not be memory at all. */
static __always_inline bool read_down(struct window *w, __u64 addr)
{
	__u64 len = (addr & (WINDOW - 1)) + FRAME_READ;

	w->at = addr & ~(WINDOW - 1ULL);
	w->ends = 0;
	asm volatile("" : "+r"(len));
	if (len > sizeof(w->bytes))
		return false;
	if (!bpf_probe_read_user(w->bytes, len, (const void *)w->at))
		w->ends = (addr & (WINDOW - 1)) + 1;
	return w->ends;
}

static __always_inline bool read_one(struct window *w, __u64 addr, const bool sleepable)
{
	w->at = addr;
	w->ends = !read_user(w->bytes, FRAME_READ, addr, sleepable);
	return w->ends;
}

/* The fields of a frame; NULL: they cannot be read. */
static __always_inline __u8 *frame_bytes(struct scratch *s, __u64 of, const bool sleepable)
{
	__u64 addr = of + py.frame_base;

	if (py.lasti_scale) /* objects of their own */
		return read_one(&s->data, addr, sleepable) ? s->data.bytes : 0;
	if (in_window(&s->data, addr))
		return at_window(&s->data, addr);
	if (in_window(&s->stack, addr))
		return at_window(&s->stack, addr);
	if (addr - s->sp < ON_C_STACK) {
		if (read_up(&s->stack, addr) || read_one(&s->stack, addr, sleepable))
			return s->stack.bytes;
		return 0;
	}
	if (read_down(&s->data, addr))
		return at_window(&s->data, addr);
	return read_one(&s->data, addr, sleepable) ? s->data.bytes : 0;
}

static __always_inline __u64 cell_type(const struct scratch *s)
{
	return group ? s->type_cell : py.type_cell;
}

/* local 0 of a module's call: the module, or a cell that holds it when a closure captured `self`. */
static __always_inline void put_self(struct scratch *s, const __u8 *frame, __u64 at,
				     const bool sleepable)
{
	s->word = 0;
	if (py.frame_local0 + 8 <= py.frame_base + FRAME_READ)
		s->word = *(__u64 *)(frame + (py.frame_local0 - py.frame_base));
	else if (read_user(&s->word, sizeof(s->word), at + py.frame_local0, sleepable))
		s->faulted_self = 1;
	s->word &= py.tag_mask;
	if (s->word && cell_type(s)) {
		if (read_user(&s->type, sizeof(s->type), s->word + 8, sleepable))
			s->faulted_self = 1;
		else if (s->type == cell_type(s) &&
			 read_user(&s->word, sizeof(s->word), s->word + 16, sleepable))
			s->faulted_self = 1;
	}
	if (s->word) {
		put_frame(s, s->word, 0, MT_FRAME_MODULE);
		s->modules++;
	}
}

/*
 * A module that is called suspends the frames that called it until it is left. Which these are
 * shows on the C stack: the call's return address lies between the shim where the module's own
 * Python begins, at a lower address, and all shims of the suspended frames. So a walk that comes to
 * that shim knows the rest, if it has been there before in the same call. That this is the same
 * call, and that it is still under way, is told three ways: its return address is in its place
 * (modules.bpf.h), the shim is at the same address, and the caller's frame is at the same
 * instruction.
 */
static __always_inline __u64 was_at(__u64 instr, __u64 prev)
{
	return mix(instr * 0xff51afd7ed558ccdULL, prev);
}

static __always_inline bool is_suspended(struct scratch *s, const struct suspended *p,
					 const bool sleepable)
{
	const __u8 *frame = frame_bytes(s, p->frame, sleepable);

	return frame && was_at(*(__u64 *)(frame + py.frame_instr),
			       *(__u64 *)(frame + py.frame_prev)) == p->was;
}

/* The walk ends there, with what is known, if it is still so. */
static __always_inline bool ends_at(struct scratch *s, const struct suspended *p,
				    const bool sleepable)
{
	if (!is_suspended(s, p, sleepable))
		return false;
	s->hash += s->power * p->hash;
	s->frames += p->frames;
	s->modules += p->in_module;
	s->shortened = s->level;
	s->frame = 0;
	return true;
}

#define LEVELS_A_SHIM 4

/* The walk comes to a shim; s->frame is what lies behind it. True: that is known. */
static __always_inline bool pass_shim(struct scratch *s, struct thread_slot *t, __u64 shim,
				      const bool sleepable)
{
	struct module_entry *e;
	int i;

	for (i = 0; i < LEVELS_A_SHIM && s->level && entry_of(t, s->level)->sp <= shim; i++)
		s->level--;
	if (!s->level)
		return false;
	e = entry_of(t, s->level);
	if (e->sp <= shim) {
		s->level = 0; /* of no use any more */
		return false;
	}
	if (shim_of(e) == shim && e->below.frame == s->frame && ends_at(s, &e->below, sleepable))
		return true;
	if (s->level != (__u32)t->modules.n)
		return false;
	s->end.shim = shim;
	s->end.frame = s->frame;
	s->end.instr = 0;
	s->end.frames = s->frames;
	s->end.in_module = s->modules;
	s->end_hash = s->hash;
	s->end_power = s->power;
	return false;
}

static __always_inline long walk_frame(struct scratch *s, struct thread_slot *t,
				       const bool sleepable)
{
	const __u8 *frame;
	__u64 code;
	__s32 at;

	if (!s->frame)
		return 1;
	frame = frame_bytes(s, s->frame, sleepable);
	if (!frame) {
		s->outcome = MT_WALK_FAULT_FRAME;
		return 1;
	}
	if (py.frame_owner != 0xffffffff && frame[py.frame_owner] >= py.owner_shim) {
		code = s->frame;
		s->frame = *(__u64 *)(frame + py.frame_prev);
		return t && s->level && pass_shim(s, t, code, sleepable);
	}
	if (s->frames >= MT_MAX_FRAMES) {
		s->outcome = MT_WALK_TRUNCATED;
		return 1;
	}
	if (s->frame == s->end.frame) {
		s->end.instr = *(__u64 *)(frame + py.frame_instr);
		s->end.prev = *(__u64 *)(frame + py.frame_prev);
	}
	code = *(__u64 *)(frame + py.frame_code) & py.tag_mask;
	if (py.lasti_scale) {
		at = *(__s32 *)(frame + py.frame_instr);
		if (at >= 0)
			at *= py.lasti_scale;
	} else {
		at = (__s32)(*(__u64 *)(frame + py.frame_instr) - (code + py.code_adaptive));
	}
	put_frame(s, code, at, MT_FRAME_CODE);
	s->frames++;
	if (is_module_code(s, code))
		put_self(s, frame, s->frame, sleepable);
	s->frame = *(__u64 *)(frame + py.frame_prev);
	return 0;
}

/* bpf_loop wants functions, and a pointer into the stack to give them. */
struct loop_ctx {
	struct scratch *s;
	struct thread_slot *t;
};

/* A sleepable helper may not even be reachable from the other programs. */
static long walk_frame_atomic(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->s, ((struct loop_ctx *)ctx)->t, false);
}

static long walk_frame_sleepable(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->s, ((struct loop_ctx *)ctx)->t, true);
}

static long mark_seen(__u32 i, void *ctx)
{
	struct scratch *s = ((struct loop_ctx *)ctx)->s;

	asm volatile("" : "+r"(i));
	if (i >= MT_MAX_ENTRIES)
		return 1;
	if (s->entries[i].kind == MT_FRAME_CODE)
		seen_code[seen_slot(s->entries[i].addr)] = 1;
	return 0;
}

/*
 * s->word, the address of a _PyCFrame, becomes the frame in it. It lies on the C stack, next to the
 * innermost shim: the same function's variables.
 */
#define CFRAME_BELOW (2 * FRAME_READ)
static __always_inline bool read_cframe(struct scratch *s, const bool sleepable)
{
	if (!s->level && s->word - s->sp < ON_C_STACK &&
	    read_up(&s->stack, s->word - CFRAME_BELOW)) {
		s->word = *(__u64 *)(s->stack.bytes + CFRAME_BELOW + py.cframe_frame);
		return true;
	}
	return !read_user(&s->word, sizeof(s->word), s->word + py.cframe_frame, sleepable);
}

/* The current thread's state in s->word; 0 there: it has none. False: it cannot be read. */
static __always_inline bool thread_state(struct scratch *s, const bool sleepable)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 tp = task->thread.fsbase;

	if (read_user(&s->word, sizeof(s->word), tp + py.tls_off1, sleepable))
		return false;
	return py.tls_kind != MT_TLS_INDIRECT || !s->word ||
	       !read_user(&s->word, sizeof(s->word), s->word + py.tls_off2, sleepable);
}

/* Its innermost frame in s->frame; 0 there where there is none, and why in s->outcome. */
static __always_inline void first_frame(struct scratch *s, struct thread_slot *t,
					const bool sleepable)
{
	s->frame = 0;
	s->outcome = MT_WALK_FAULT_THREAD;
	if (!thread_state(s, sleepable))
		return;
	if (!s->word) {
		s->outcome = MT_WALK_NO_THREAD;
		return;
	}
	if (t && s->level)
		entry_of(t, s->level)->tstate = s->word;
	if (read_user(&s->word, sizeof(s->word), s->word + py.tstate_frame, sleepable))
		return;
	if (py.tstate_cframe && s->word && !read_cframe(s, sleepable))
		return;
	s->frame = s->word;
	s->outcome = s->frame ? MT_WALK_OK : MT_WALK_NO_FRAME;
}

static __noinline int first_frame_atomic(struct scratch *s, struct thread_slot *t)
{
	if (s)
		first_frame(s, t, false);
	return 0;
}

static __noinline int first_frame_sleepable(struct scratch *s, struct thread_slot *t)
{
	if (s)
		first_frame(s, t, true);
	return 0;
}

#define QUICK_READ 2048

/*
 * The same within the module of the thread's last event, with fewer reads: as long as its call is
 * under way the thread has the state that it had, and what tells that it is lies above the
 * innermost frame's on the C stack. False: look more closely.
 */
static __noinline bool quick_frame(struct scratch *s, struct thread_slot *t)
{
	struct module_entry *e;
	__u64 len;

	if (!s || !t)
		return false;
	e = entry_of(t, t->modules.n);
	if (!e->tstate || !e->ret || e->sp <= s->sp ||
	    bpf_probe_read_user(&s->frame, sizeof(s->frame),
				(const void *)(e->tstate + py.tstate_frame)))
		return false;
	/* From the frame's place, and the shim if that is known, up to the return address. */
	s->stack.at = py.tstate_cframe ? s->frame : e->sp;
	if (e->below.shim && shim_of(e) < s->stack.at)
		s->stack.at = shim_of(e);
	len = e->sp + sizeof(e->ret) - s->stack.at;
	asm volatile("" : "+r"(len));
	if ((py.tstate_cframe &&
	     s->frame >= e->sp) || /* the module's own Python has ended, or has not begun */
	    s->stack.at <= s->sp ||
	    len < sizeof(e->ret) || len > QUICK_READ ||
	    bpf_probe_read_user(s->stack.bytes, len, (const void *)s->stack.at))
		return false;
	s->stack.ends = len < FRAME_READ ? 0 : len - FRAME_READ + 1;
	s->word = *(__u64 *)(s->stack.bytes + ((len - sizeof(e->ret)) & (QUICK_READ - 1)));
	if (py.tstate_cframe)
		s->frame = *(__u64 *)(at_window(&s->stack, s->frame) + py.cframe_frame);
	s->outcome = MT_WALK_OK;
	if (s->word != e->ret || !s->frame)
		return false;
	/* All that there is to see of the module's own frames, and the first of those that called
	 * it. */
	len = s->frame + FRAME_READ - e->below.frame;
	asm volatile("" : "+r"(len));
	if (py.lasti_scale || !e->below.shim || len < FRAME_READ || len > QUICK_READ)
		return true;
	s->data.at = e->below.frame + py.frame_base;
	if (!bpf_probe_read_user(s->data.bytes, len, (const void *)s->data.at))
		s->data.ends = len - FRAME_READ + 1;
	return true;
}

static __always_inline bool claim(struct scratch *s)
{
	return s && __sync_val_compare_and_swap(&s->busy, 0, 1) == 0;
}

static __always_inline struct scratch *scratch_claim(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), key, i;
	struct scratch *s;

	for (i = 0; i < MT_SCRATCH_SLOTS; i++) {
		key = i;
		s = bpf_map_lookup_elem(&scratch, &key);
		if (claim(s))
			return s;
	}
	/* Any number of tasks of one CPU can be waiting for pages. */
	for (i = 0; i < MT_SHARED_SLOTS; i++) {
		key = (tid + i) % MT_SHARED_SLOTS;
		s = bpf_map_lookup_elem(&shared_scratch, &key);
		if (claim(s))
			return s;
	}
	return 0;
}

/*
 * What a new stack names is read by user space, and has to be there still: it is woken at once. Not
 * for each of many in a row: where code comes and goes all the time, as with exec in a loop, every
 * stack is new.
 */
static __always_inline __u64 wakeup(__u64 time)
{
	if (time - *(volatile __u64 *)&woken < MT_WAKE_PAUSE)
		return BPF_RB_NO_WAKEUP;
	*(volatile __u64 *)&woken = time;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline struct mt_sent *sent_set(__u64 id)
{
	__u32 set = (__u32)(id / MT_STACK_WALKS) & (MT_SENT_SETS - 1);

	return bpf_map_lookup_elem(&sent_stacks, &set);
}

/* This CPU has sent its frames. */
static __always_inline bool is_sent(__u64 id)
{
	const struct mt_sent *known = sent_set(id);

	return known && (known->id[0] == id || known->id[1] == id || known->id[2] == id ||
			 known->id[3] == id);
}

/* Another task may do so on this CPU at the same time: an id may get lost, and its stack is sent
 * once more. */
static __always_inline void is_sent_now(__u64 id)
{
	struct mt_sent *known = sent_set(id);

	if (!known)
		return;
	known->id[3] = known->id[2];
	known->id[2] = known->id[1];
	known->id[1] = known->id[0];
	known->id[0] = id;
}

/* False: the ring was full. */
static __noinline bool send_stack(struct scratch *s, __u64 id)
{
	struct loop_ctx ctx = { s, 0 };
	__u32 n;

	if (!s)
		return false;
	n = s->rec.n;
	asm volatile("" : "+r"(n));
	if (n > MT_MAX_ENTRIES)
		return false;
	/* Before the frames can be seen by anyone: a code object freed from now on is noticed. */
	bpf_loop(n, mark_seen, &ctx, 0);
	s->rec.h.type = MT_REC_STACK;
	s->rec.h.walk = s->outcome;
	s->rec.h.node = 0;
	s->rec.h.member = member_of_current();
	s->rec.h.tid = current_thread();
	s->rec.stack = id;
	s->rec.pad = 0;
	if (bpf_ringbuf_output(&ring, &s->rec, sizeof(s->rec) + n * sizeof(struct mt_frame),
			       wakeup(s->rec.h.time))) {
		count_and_tell(MT_CNT_RING_LOST + MT_REC_STACK);
		return false;
	}
	is_sent_now(id);
	return true;
}

static __always_inline void read_stack(struct scratch *s, struct thread_slot *t, __u64 time,
				       const bool sleepable)
{
	struct loop_ctx ctx = { s, t };

	s->rec.n = 0;
	s->frames = 0;
	s->modules = 0;
	s->faulted_self = 0;
	s->shortened = 0;
	s->data.ends = s->stack.ends = 0;
	s->end.shim = s->end.frame = 0;
	/* Before 3.12 there are no shims to tell by. */
	s->level = 0;
	s->hash = 0;
	s->power = 1;
	if (!t || !t->modules.n || py.frame_owner == 0xffffffff || !quick_frame(s, t)) {
		s->stack.ends = 0;
		if (t)
			settle(t, s->sp, time);
		s->level = t && py.frame_owner != 0xffffffff ? (__u32)t->modules.n : 0;
		if (sleepable)
			first_frame_sleepable(s, t);
		else
			first_frame_atomic(s, t);
	}
	if (!s->frame)
		return;
	if (t && py.frame_owner != 0xffffffff)
		s->level = t->modules.n;
	if (sleepable)
		bpf_loop(MT_MAX_VISIT, walk_frame_sleepable, &ctx, 0);
	else
		bpf_loop(MT_MAX_VISIT, walk_frame_atomic, &ctx, 0);
	if (s->outcome == MT_WALK_OK && (s->frame || s->frames > MT_MAX_FRAMES))
		s->outcome = MT_WALK_TRUNCATED; /* or MT_MAX_VISIT links, most of them shims */
	if (s->outcome == MT_WALK_OK && !s->frames)
		s->outcome = MT_WALK_NO_FRAME; /* nothing but the interpreter's own sentinel */
	if (s->outcome == MT_WALK_OK && s->faulted_self)
		s->outcome = MT_WALK_FAULT_SELF;
}

/* What lies below the innermost module is known from now on. */
static __noinline int learn(struct scratch *s, struct thread_slot *t)
{
	struct module_entry *e;
	struct suspended *p;
	__u64 shim;

	if (!s || !t)
		return 0;
	if (s->outcome != MT_WALK_OK || !s->end.shim || !s->end.instr || !t->modules.n ||
	    s->shortened == (__u32)t->modules.n)
		return 0;
	e = entry_of(t, t->modules.n);
	p = &e->below;
	shim = e->sp - s->end.shim;
	if (shim > 0xffffffffULL)
		return 0;
	p->shim = shim;
	p->frame = s->end.frame;
	p->was = was_at(s->end.instr, s->end.prev);
	p->hash = (s->hash - s->end_hash) * inverse(s->end_power);
	p->frames = s->frames - s->end.frames;
	p->in_module = s->modules - s->end.in_module;
	return 0;
}

static __always_inline __u64 id_of(const struct scratch *s)
{
	__u64 id;

	if (!s->frames)
		return s->outcome;
	id = mix(group ? mix(s->rec.epoch, s->member) : s->rec.epoch, s->hash);
	id = (id & ~(MT_STACK_WALKS - 1ULL) & ~MT_STACK_IN_MODULE) |
	     (s->outcome & (MT_STACK_WALKS - 1));
	if (s->modules)
		id |= MT_STACK_IN_MODULE;
	return id < MT_STACK_WALKS ? id + MT_STACK_WALKS : id;
}

/* What is this process's own. Its stacks have ids of their own, even where all addresses are those
 * of another one's. */
static __always_inline void begin_in_member(struct scratch *s)
{
	const struct mt_member *m;

	s->member = member_of_current();
	__builtin_memset(s->module_code, 0, sizeof(s->module_code));
	s->type_cell = 0;
	m = bpf_map_lookup_elem(&members, &s->member);
	if (!m)
		return;
	__builtin_memcpy(s->module_code, (void *)m->module_code, sizeof(s->module_code));
	s->type_cell = m->type_cell;
}

/* The walk itself, in a slot that is ours. */
static __always_inline __u64 walk_in(struct scratch *s, struct thread_slot *t, __u64 sp, __u64 time,
				     const bool sleepable)
{
	__u64 id;

	s->sp = sp;
	/* Read before the frames are: a code object that is freed later makes ids newer than this
	 * one. */
	s->rec.epoch = *(volatile __u64 *)&code_epoch;
	if (group)
		begin_in_member(s);
	read_stack(s, t, time, sleepable);
	id = id_of(s);
	if (t)
		learn(s, t);
	if (s->shortened) {
		if (is_sent(id) && !bench_verify)
			return id;
		/* Its frames are wanted: all of them. */
		s->early_hash = s->hash;
		read_stack(s, 0, time, sleepable);
		count(MT_CNT_AGAIN);
		if (s->early_hash != s->hash)
			count(MT_CNT_AGAIN_OTHER);
		id = id_of(s);
	}
	if (id < MT_STACK_WALKS || is_sent(id))
		return id;
	s->rec.h.time = time;
	s->rec.h.sleepable = sleepable;
	return send_stack(s, id) ? id : MT_WALK_LOST;
}

/* The sleepable programs would have had more. */
static __always_inline bool is_fault(__u32 outcome)
{
	return outcome == MT_WALK_FAULT_FRAME || outcome == MT_WALK_FAULT_THREAD ||
	       outcome == MT_WALK_FAULT_SELF;
}

/*
 * Walks, and sends the stack if it is new. The stack's id, whose lowest bits are the outcome;
 * without a stack those alone. t: what is known of the thread, as of this stack pointer; NULL:
 * nothing. Not inlined: see struct scratch.
 */
static __always_inline __u64 walk_stack(struct thread_slot *t, __u64 sp, __u64 time,
					const bool sleepable)
{
	__u64 id = MT_WALK_OFF;
	struct scratch *s;

	if (py.tls_kind != MT_TLS_NONE) {
		s = scratch_claim();
		id = MT_WALK_BUSY;
		if (s) {
			id = walk_in(s, t, sp, time, sleepable);
			*(volatile __u64 *)&s->busy = 0;
		}
	}
	count(MT_CNT_WALK + (id & (MT_STACK_WALKS - 1)));
	if (!sleepable && is_fault(id & (MT_STACK_WALKS - 1)))
		__sync_fetch_and_add(&notices, 1);
	return id;
}

static __noinline __u64 walk_stack_atomic(struct thread_slot *t, __u64 sp, __u64 time)
{
	return walk_stack(t, sp, time, false);
}

static __noinline __u64 walk_stack_sleepable(struct thread_slot *t, __u64 sp, __u64 time)
{
	return walk_stack(t, sp, time, true);
}

#endif
