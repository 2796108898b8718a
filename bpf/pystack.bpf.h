/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The walk over the current thread's Python frames. A probe runs synchronously on the allocating
 * thread, so the frames cannot change and all code objects and modules on them are alive. Later
 * they may be gone, so the walk records their addresses and instructions.
 * A stack is sent once. A stack's id is a hash over (code object, instruction offset,
 * module), seeded with the code epoch. When a code object of a sent stack is freed, the epoch goes
 * up: all ids change and all stacks are sent again. So an id never comes to mean other code.
 * A node's stack is not that of the allocation before it: the same frame at the same instruction
 * may have been left and entered again. The running node is not PyTorch's thread-local
 * (get_current_node()): that is unset while the engine adds up gradients between two nodes.
 * From CPython 3.12 on a thread's state is that of the subinterpreter that it runs. Before, the
 * innermost frame is the one that runs the subinterpreter.
 */

static __always_inline long read_user(void *dst, __u32 size, __u64 addr, const bool sleepable)
{
	/* Sleepable programs are rare, and have no stack to spare. */
	long err = size == sizeof(__u64) && !sleepable
			   ? read_word(dst, addr)
			   : bpf_probe_read_user(dst, size, (const void *)addr);

	if (err && sleepable) {
		/* The page is absent: bring it in. */
		count(MT_CNT_FAULT_RETRIED);
		err = bpf_copy_from_user(dst, size, (const void *)addr);
	}
	return err;
}

/* The same for a walk, which keeps the address for user space if it stays unreadable. */
static __always_inline long read_walked(struct scratch *s, void *dst, __u32 size, __u64 addr,
					const bool sleepable)
{
	long err = read_user(dst, size, addr, sleepable);

	if (err && !sleepable)
		s->absent = addr;
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
 * A stack's hash is the sum of its entries' hashes, each times a power of STEP. So the hash of the
 * outer part of a stack can be added and subtracted.
 */
#define STEP 0x9e3779b97f4a7c15ULL

/*
 * 1 / odd modulo 2^64, by Newton's method: the first five bits are right, each turn doubles them.
 */
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

	/* Hide `i` from the compiler: it would remove the check that the verifier needs. */
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
 * From 3.11 on frames are close together. Frames of plain calls follow each other in the thread's
 * chunks of memory, later frames at higher addresses. Shims, one for each call from C into Python,
 * are on the C stack, later shims at lower addresses. Reading a page costs little more than reading
 * a frame, so the walk reads the neighbours too.
 */
#define ON_C_STACK                                                                                 \
	(256 * 1024) /* addresses up to this far above the stack pointer count as C stack */

static __always_inline bool in_window(const struct window *w, __u64 addr)
{
	return addr - w->at < w->ends;
}

static __always_inline __u8 *at_window(struct window *w, __u64 addr)
{
	__u64 off = addr - w->at;

	/* Hide `off` from the compiler: it knows the result of in_window(), but the verifier does
	 * not. */
	asm volatile("" : "+r"(off));
	return w->bytes + (off & (WINDOW - 1));
}

/*
 * Reads to the end of the address's page: memory above may not be mapped, and a read that fails
 * takes longer than the rest of a walk. The outermost shim of a main thread can be in the stack's
 * last page, but not in the last NEVER_LAST bytes, where the program's arguments are.
 */
#define NEVER_LAST 1024
static __always_inline bool read_up(struct window *w, __u64 addr)
{
	__u64 len = WINDOW - (addr & (WINDOW - 1));

	if (len < NEVER_LAST)
		len = WINDOW;
	w->at = addr;
	w->ends = 0;
	asm volatile("" : "+r"(len));
	if (len < FRAME_READ || len > WINDOW)
		return false;
	SHOW_LIMIT(len, WINDOW);
	if (!bpf_probe_read_user(w->bytes, len, (const void *)addr))
		w->ends = len - FRAME_READ + 1;
	return w->ends;
}

/* Reads from the beginning of the address's page: memory below may not be mapped. */
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

static __always_inline bool read_one(struct scratch *s, struct window *w, __u64 addr,
				     const bool sleepable)
{
	w->at = addr;
	w->ends = !read_walked(s, w->bytes, FRAME_READ, addr, sleepable);
	return w->ends;
}

/* A frame's fields, at py.frame_base. NULL: unreadable. */
static __always_inline __u8 *frame_bytes(struct scratch *s, __u64 of, const bool sleepable)
{
	__u64 addr = of + py.frame_base;

	if (py.lasti_scale) /* frames are separate objects */
		return read_one(s, &s->data, addr, sleepable) ? s->data.bytes : 0;
	if (in_window(&s->data, addr))
		return at_window(&s->data, addr);
	if (in_window(&s->stack, addr))
		return at_window(&s->stack, addr);
	if (addr - s->sp < ON_C_STACK) {
		if (read_up(&s->stack, addr) || read_one(s, &s->stack, addr, sleepable))
			return s->stack.bytes;
		return 0;
	}
	if (read_down(&s->data, addr))
		return at_window(&s->data, addr);
	return read_one(s, &s->data, addr, sleepable) ? s->data.bytes : 0;
}

static __always_inline __u64 cell_type(const struct scratch *s)
{
	return group ? s->type_cell : py.type_cell;
}

/* True if the object is the one that the innermost module call called, so it is alive. */
static __always_inline bool is_called(const struct thread_slot *t, __u64 object)
{
	return t && t->modules.n && t->modules.self_of == t->modules.n && t->modules.self == object;
}

/* Adds the module of a module call's frame: local 0, or the content of a cell there if a closure
 * captured `self`. */
static __always_inline void put_self(struct scratch *s, const struct thread_slot *t,
				     const __u8 *frame, __u64 at, const bool sleepable)
{
	s->word = 0;
	if (py.frame_local0 + 8 <= py.frame_base + FRAME_READ)
		s->word = *(__u64 *)(frame + (py.frame_local0 - py.frame_base));
	else if (read_walked(s, &s->word, sizeof(s->word), at + py.frame_local0, sleepable))
		s->faulted_self = 1;
	s->word &= py.tag_mask;
	if (s->word && cell_type(s) && !is_called(t, s->word)) {
		if (read_walked(s, &s->cell, sizeof(s->cell), s->word + py.ob_type, sleepable))
			s->faulted_self = 1;
		else if (s->cell.type == cell_type(s))
			s->word = s->cell.ref;
	}
	if (s->word) {
		put_frame(s, s->word, 0, MT_FRAME_MODULE);
		s->modules++;
	}
}

/*
 * A module call suspends the frames that called it. The module's return address on the C stack
 * separates the two parts: the shim of the module's own Python is at a lower address, and the shims
 * of all suspended frames are at higher addresses. A walk that reaches the module's shim can reuse
 * the suspended frames of an earlier walk in the same call. Three checks prove that it is the same
 * call: the return address is in its place (modules.bpf.h), the shim has the same address, and the
 * caller's frame is at the same instruction.
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

/* Ends the walk with the known suspended frames. False: they have changed. */
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

/* Handles a shim; s->frame is the frame after it. True: the frames from there on are known and the
 * walk is complete. */
static __always_inline bool pass_shim(struct scratch *s, struct thread_slot *t, __u64 shim,
				      const bool sleepable)
{
	struct module_entry *e;
	int i;

	for (i = 0; i < LEVELS_A_SHIM && s->level && entry_of(t, s->level)->call.sp <= shim; i++)
		s->level--;
	if (!s->level)
		return false;
	e = entry_of(t, s->level);
	if (e->call.sp <= shim) {
		s->level = 0; /* no recorded call can shorten this walk */
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

/*
 * Free-threaded builds from 3.14 on: each thread runs its own copy of a code object's bytecode. The
 * first copy is in the code object itself. Sets s->word to the address of the thread's copy.
 */
static __always_inline bool find_bytecode(struct scratch *s, const __u8 *frame, __u64 code,
					  const bool sleepable)
{
	__u32 number;

	s->word = code + py.code_adaptive;
	if (py.frame_tlbc == MT_NO_OFFSET)
		return true;
	number = *(__u32 *)(frame + py.frame_tlbc);
	return !number ||
	       (!read_user(&s->word, sizeof(s->word), code + py.code_tlbc, sleepable) &&
		!read_user(&s->word, sizeof(s->word), s->word + 8 + 8 * (__u64)number, sleepable));
}

/* Sets *at to the byte offset of a frame's instruction. False: unreadable. */
static __always_inline bool find_instruction(struct scratch *s, const __u8 *frame, __u64 code,
					     __s32 *at, const bool sleepable)
{
	if (py.lasti_scale) {
		*at = *(__s32 *)(frame + py.frame_instr);
		if (*at >= 0)
			*at *= py.lasti_scale;
		return true;
	}
	if (!find_bytecode(s, frame, code, sleepable))
		return false;
	*at = (__s32)(*(__u64 *)(frame + py.frame_instr) - s->word);
	return true;
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
	if (py.frame_owner != MT_NO_OFFSET && frame[py.frame_owner] >= py.owner_shim) {
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
	if (!find_instruction(s, frame, code, &at, sleepable)) {
		s->outcome = MT_WALK_FAULT_FRAME;
		return 1;
	}
	put_frame(s, code, at, MT_FRAME_CODE);
	s->frames++;
	if (is_module_code(s, code))
		put_self(s, t, frame, s->frame, sleepable);
	s->frame = *(__u64 *)(frame + py.frame_prev);
	return 0;
}

static __always_inline long mark_entry(struct scratch *s, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= MT_MAX_ENTRIES)
		return 1;
	if (s->entries[i].kind == MT_FRAME_CODE)
		seen_code[seen_slot(s->entries[i].addr)] = 1;
	return 0;
}

struct loop_ctx {
	struct scratch *s;
	struct thread_slot *t;
};

#if MT_OLD

/*
 * The verifier checks a global function once, wherever it is called, but checks a loop turn by
 * turn. So the loops are in two parts. A global function's arguments are numbers, as pointers need
 * Linux 5.12: it looks the walk's state up again.
 */
#define WALK_AT_ONCE 4
GLOBAL int walk_some(__u32 number)
{
	struct thread_slot *t;
	struct scratch *s;
	int i;

	s = bpf_map_lookup_elem(&scratch, &number);
	if (!s)
		return 1;
	t = s->level ? thread_again() : 0;
	/* Two loops: in one, clang 19 computes addresses in `t` before it is compared with 0. */
	if (!t) {
		for (i = 0; i < WALK_AT_ONCE; i++) {
			if (walk_frame(s, 0, false))
				return 1;
		}
		return 0;
	}
	for (i = 0; i < WALK_AT_ONCE; i++) {
		if (walk_frame(s, t, false))
			return 1;
	}
	return 0;
}

static __always_inline void walk_frames(struct loop_ctx *ctx, const bool sleepable)
{
	__u32 number = ctx->s->number, i;

	for (i = 0; i < MT_MAX_VISIT / WALK_AT_ONCE; i++) {
		if (walk_some(number))
			break;
	}
}

#define MARK_AT_ONCE 16
GLOBAL int mark_some(__u32 number, __u32 first)
{
	struct scratch *s;
	__u32 i;

	s = bpf_map_lookup_elem(&scratch, &number);
	if (!s)
		return 1;
	for (i = 0; i < MARK_AT_ONCE && first + i < s->rec.n; i++)
		mark_entry(s, first + i);
	return 0;
}

static __always_inline void mark_all(struct loop_ctx *ctx, __u32 n)
{
	__u32 number = ctx->s->number, i;

	for (i = 0; i < MT_MAX_ENTRIES && i < n; i += MARK_AT_ONCE)
		mark_some(number, i);
}

#else

/* Two functions: non-sleepable programs must not contain a call of a sleepable helper. */
static long walk_frame_atomic(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->s, ((struct loop_ctx *)ctx)->t, false);
}

static long walk_frame_sleepable(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->s, ((struct loop_ctx *)ctx)->t, true);
}

static __always_inline void walk_frames(struct loop_ctx *ctx, const bool sleepable)
{
	if (sleepable)
		bpf_loop(MT_MAX_VISIT, walk_frame_sleepable, ctx, 0);
	else
		bpf_loop(MT_MAX_VISIT, walk_frame_atomic, ctx, 0);
}

static long mark_seen(__u32 i, void *ctx)
{
	return mark_entry(((struct loop_ctx *)ctx)->s, i);
}

static __always_inline void mark_all(struct loop_ctx *ctx, __u32 n)
{
	bpf_loop(n, mark_seen, ctx, 0);
}

#endif

/*
 * Replaces s->word, the address of a _PyCFrame, by the frame that it points to. A _PyCFrame is on
 * the C stack next to the innermost shim: both are variables of one function.
 */
#define CFRAME_BELOW (2 * FRAME_READ)
static __always_inline bool read_cframe(struct scratch *s, const bool sleepable)
{
	if (!s->level && s->word - s->sp < ON_C_STACK &&
	    read_up(&s->stack, s->word - CFRAME_BELOW) && s->stack.ends > CFRAME_BELOW) {
		s->word = *(__u64 *)(s->stack.bytes + CFRAME_BELOW + py.cframe_frame);
		return true;
	}
	return !read_walked(s, &s->word, sizeof(s->word), s->word + py.cframe_frame, sleepable);
}

/* Sets s->word to the current thread's state; 0: the thread has none. False: unreadable. */
static __always_inline bool thread_state(struct scratch *s, const bool sleepable)
{
	__u64 tp = pointer_of_thread();

	if (read_walked(s, &s->word, sizeof(s->word), tp + py.tls_first, sleepable))
		return false;
	if (py.tls_kind == MT_TLS_EITHER && !s->word)
		return !read_walked(s, &s->word, sizeof(s->word), tp + py.tls_second, sleepable);
	return py.tls_kind != MT_TLS_INDIRECT || !s->word ||
	       !read_walked(s, &s->word, sizeof(s->word), s->word + py.tls_second, sleepable);
}

/* Sets s->frame to the thread's innermost frame. 0: there is none; s->outcome says why. */
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
	if (read_walked(s, &s->word, sizeof(s->word), s->word + py.tstate_frame, sleepable))
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
 * Does the same as first_frame() with fewer reads, if the module of the thread's last event is
 * still active: then the thread state is known, and one read of the C stack covers the return
 * address and the innermost frame. False: use first_frame().
 */
static __noinline bool quick_frame(struct scratch *s, struct thread_slot *t)
{
	struct module_entry *e;
	__u64 len;

	if (!s || !t || !MT_RETURN_ON_STACK)
		return false;
	e = entry_of(t, t->modules.n);
	if (!e->tstate || !e->call.ret || e->call.sp <= s->sp ||
	    read_word(&s->frame, e->tstate + py.tstate_frame))
		return false;
	/* Read from the frame, or from the shim if known, up to the return address. */
	s->stack.at = py.tstate_cframe ? s->frame : e->call.sp;
	if (e->below.shim && shim_of(e) < s->stack.at)
		s->stack.at = shim_of(e);
	len = e->call.sp + sizeof(s->word) - s->stack.at;
	asm volatile("" : "+r"(len));
	if ((py.tstate_cframe &&
	     s->frame >= e->call.sp) || /* the module's own Python has ended or has not begun */
	    s->stack.at <= s->sp ||
	    len < sizeof(s->word) || len > QUICK_READ)
		return false;
	SHOW_LIMIT(len, QUICK_READ);
	if (bpf_probe_read_user(s->stack.bytes, len, (const void *)s->stack.at))
		return false;
	s->stack.ends = len < FRAME_READ ? 0 : len - FRAME_READ + 1;
	s->word = *(__u64 *)(s->stack.bytes + ((len - sizeof(s->word)) & (QUICK_READ - 1)));
	if (py.tstate_cframe)
		s->frame = *(__u64 *)(at_window(&s->stack, s->frame) + py.cframe_frame);
	s->outcome = MT_WALK_OK;
	if (s->word != e->call.ret || !s->frame)
		return false;
	/* Read the module's own frames and the first frame that called it. */
	len = s->frame + FRAME_READ - e->below.frame;
	asm volatile("" : "+r"(len));
	if (py.lasti_scale || !e->below.shim || len < FRAME_READ || len > QUICK_READ)
		return true;
	SHOW_LIMIT(len, QUICK_READ);
	s->data.at = e->below.frame + py.frame_base;
	if (!bpf_probe_read_user(s->data.bytes, len, (const void *)s->data.at))
		s->data.ends = len - FRAME_READ + 1;
	return true;
}

/* Few for older verifiers, which follow each turn. Their kernels have no programs that sleep. */
#define CLAIM_TRIES (MT_OLD ? 8 : MT_SCRATCH_SLOTS)

static __always_inline bool claim(struct scratch *s)
{
	return s && claim_word(&s->busy);
}

static __always_inline struct scratch *scratch_claim(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), key, i;
	struct scratch *s;

	key = bpf_get_smp_processor_id() % MT_SCRATCH_SLOTS;
	s = bpf_map_lookup_elem(&scratch, &key);
	for (i = 0; !claim(s); i++) {
		/* Any number of tasks can be preempted or wait for pages in a walk. */
		if (i == CLAIM_TRIES)
			return 0;
		key = (tid + i) % MT_SCRATCH_SLOTS;
		s = bpf_map_lookup_elem(&scratch, &key);
	}
	s->number = key;
	return s;
}

/*
 * Wakes user space for a new stack, whose names must be read before its objects are freed. At most
 * once per MT_WAKE_PAUSE: in a loop with exec() every stack is new.
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

/* True if the stack's record is in the ring, in front of all records that are reserved from now on.
 */
static __always_inline bool is_sent(__u64 id)
{
	const volatile struct mt_sent *known = sent_set(id);

	return known && (known->id[0] == id || known->id[1] == id || known->id[2] == id ||
			 known->id[3] == id);
}

/*
 * Call this after the record was submitted, which orders it for other CPUs. They may do the same at
 * this moment: an id can be lost or be there twice, and its stack is sent again. Each word is
 * always the id of a stack that was sent.
 */
static __always_inline void is_sent_now(__u64 id)
{
	volatile struct mt_sent *known = sent_set(id);

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
	/* Mark the code objects before the frames are visible: from now on their end is reported. */
	mark_all(&ctx, n);
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

static __always_inline void read_frames(struct scratch *s, struct thread_slot *t, __u64 time,
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
	/* Before 3.12 there are no shims, and every walk is a full one. */
	s->level = 0;
	s->hash = 0;
	s->power = 1;
	if (!t || !t->modules.n || py.frame_owner == MT_NO_OFFSET || !quick_frame(s, t)) {
		s->stack.ends = 0;
		if (t)
			settle(t, s->sp, time);
		s->level = t && py.frame_owner != MT_NO_OFFSET ? (__u32)t->modules.n : 0;
		if (sleepable)
			first_frame_sleepable(s, t);
		else
			first_frame_atomic(s, t);
	}
	if (!s->frame)
		return;
	if (t && py.frame_owner != MT_NO_OFFSET)
		s->level = t->modules.n;
	walk_frames(&ctx, sleepable);
	if (s->outcome == MT_WALK_OK && (s->frame || s->frames > MT_MAX_FRAMES))
		s->outcome = MT_WALK_TRUNCATED; /* also: more links than MT_MAX_VISIT */
	if (s->outcome == MT_WALK_OK && !s->frames)
		s->outcome = MT_WALK_NO_FRAME; /* only the interpreter's sentinel frame */
	if (s->outcome == MT_WALK_OK && s->faulted_self)
		s->outcome = MT_WALK_FAULT_SELF;
}

#if MT_OLD

GLOBAL int read_stack_once(__u32 number, __u64 time, __u32 with_state)
{
	struct scratch *s;

	s = bpf_map_lookup_elem(&scratch, &number);
	if (s)
		read_frames(s, with_state ? thread_again() : 0, time, false);
	return 0;
}

#endif

static __always_inline void read_stack(struct scratch *s, struct thread_slot *t, __u64 time,
				       const bool sleepable)
{
#if MT_OLD
	read_stack_once(s->number, time, !!t);
#else
	read_frames(s, t, time, sleepable);
#endif
}

/* Keeps the frames suspended by the innermost module, for later walks. The walk has passed the end
 * of the module's own frames. */
static __noinline int learn(struct scratch *s, struct thread_slot *t)
{
	struct module_entry *e;
	struct suspended *p;
	__u64 shim;

	if (!s || !t)
		return 0;
	if (s->outcome != MT_WALK_OK || !t->modules.n || s->shortened == (__u32)t->modules.n)
		return 0;
	e = entry_of(t, t->modules.n);
	p = &e->below;
	shim = e->call.sp - s->end.shim;
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
	id = mix(group ? mix(s->rec.epoch * MT_MEMBERS, s->member) : s->rec.epoch, s->hash);
	id = (id & ~(MT_STACK_WALKS - 1ULL) & ~MT_STACK_IN_MODULE) |
	     (s->outcome & (MT_STACK_WALKS - 1));
	if (s->modules)
		id |= MT_STACK_IN_MODULE;
	return id < MT_STACK_WALKS ? id + MT_STACK_WALKS : id;
}

/*
 * Loads the current process's state. Ids differ between processes even if all addresses are equal.
 */
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

/* Walks in a claimed slot. Returns the stack's id, see walk_stack(). */
static __always_inline __u64 walk_in(struct scratch *s, struct thread_slot *t, __u64 sp, __u64 time,
				     const bool sleepable)
{
	__u64 id;

	s->sp = sp;
	/* Read the epoch before the frames: if a code object is freed later, new ids differ from
	 * this one. */
	s->rec.epoch = *(volatile __u64 *)&code_epoch;
	if (group)
		begin_in_member(s);
	read_stack(s, t, time, sleepable);
	id = id_of(s);
	if (t && s->end.shim && s->end.instr)
		learn(s, t);
	if (s->shortened) {
		if (is_sent(id) && !bench_verify)
			return id;
		/* The stack is new: walk again in full to send all frames. */
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

/* True if a sleepable program could have read more. */
static __always_inline bool is_fault(__u32 outcome)
{
	return outcome == MT_WALK_FAULT_FRAME || outcome == MT_WALK_FAULT_THREAD ||
	       outcome == MT_WALK_FAULT_SELF;
}

static __always_inline void tell_absent(__u64 addr)
{
	absent[addr / WINDOW & (MT_ABSENT - 1)] = own_key(addr & ~(0xffffULL << 48));
	__sync_fetch_and_add(&notices, 1);
}

/*
 * Walks, and sends a new stack. Returns the stack's id, whose lowest bits are the outcome; without
 * frames the outcome alone. t: state of the thread as of this stack pointer, or NULL for a full
 * walk.
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
			if (!sleepable && is_fault(id & (MT_STACK_WALKS - 1)))
				tell_absent(s->absent);
			release_word(&s->busy);
		}
	}
	count(MT_CNT_WALK + (id & (MT_STACK_WALKS - 1)));
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
