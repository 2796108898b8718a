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

/* Reads the target's memory. sleepable: brings in a page that is absent. Returns 0 or a negative
 * errno. */
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
static __always_inline long read_walked(struct scratch *walk, void *dst, __u32 size, __u64 addr,
					const bool sleepable)
{
	long err = read_user(dst, size, addr, sleepable);

	if (err && !sleepable)
		walk->absent = addr;
	return err;
}

/* Returns a hash of a hash and a value. */
static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h ^= v;
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/* Index of a code object in seen_code. */
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

/* Adds an entry to the stack and to its hash. Without room it adds nothing. */
static __always_inline void put_frame(struct scratch *walk, __u64 addr, __s32 at, __u32 kind)
{
	__u64 place = ((__u64)kind << 32) | (__u32)at, hash;
	__u32 index = walk->rec.n;

	/* Hide `index` from the compiler: it would remove the check that the verifier needs. */
	asm volatile("" : "+r"(index));
	if (index >= MT_MAX_ENTRIES)
		return;
	walk->entries[index].addr = addr;
	walk->entries[index].at = at;
	walk->entries[index].kind = kind;
	walk->rec.n = index + 1;
	hash = mix(addr * 0xff51afd7ed558ccdULL, place);
	walk->hash += hash * walk->power;
	walk->power *= STEP;
}

/* True if frames of this code are module calls: their local 0 is an nn.Module. */
static __always_inline bool is_module_code(const struct scratch *walk, __u64 code)
{
	if (group)
		return code == walk->module_code[0] || code == walk->module_code[1] ||
		       code == walk->module_code[2] || code == walk->module_code[3];
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

static __always_inline bool in_window(const struct window *window, __u64 addr)
{
	return addr - window->at < window->ends;
}

/* The window's bytes at an address that is in it. */
static __always_inline __u8 *at_window(struct window *window, __u64 addr)
{
	__u64 off = addr - window->at;

	/* Hide `off` from the compiler: it knows the result of in_window(), but the verifier does
	 * not. */
	asm volatile("" : "+r"(off));
	return window->bytes + (off & (WINDOW - 1));
}

/*
 * Reads to the end of the address's page: memory above may not be mapped, and a read that fails
 * takes longer than the rest of a walk. The outermost shim of a main thread can be in the stack's
 * last page, but not in the last NEVER_LAST bytes, where the program's arguments are.
 */
#define NEVER_LAST 1024
static __always_inline bool read_up(struct window *window, __u64 addr)
{
	__u64 len = WINDOW - (addr & (WINDOW - 1));

	if (len < NEVER_LAST)
		len = WINDOW;
	window->at = addr;
	window->ends = 0;
	asm volatile("" : "+r"(len));
	if (len < FRAME_READ || len > WINDOW)
		return false;
	SHOW_LIMIT(len, WINDOW);
	if (!bpf_probe_read_user(window->bytes, len, (const void *)addr))
		window->ends = len - FRAME_READ + 1;
	return window->ends;
}

/* Reads from the beginning of the address's page: memory below may not be mapped. */
static __always_inline bool read_down(struct window *window, __u64 addr)
{
	__u64 len = (addr & (WINDOW - 1)) + FRAME_READ;

	window->at = addr & ~(WINDOW - 1ULL);
	window->ends = 0;
	asm volatile("" : "+r"(len));
	if (len > sizeof(window->bytes))
		return false;
	if (!bpf_probe_read_user(window->bytes, len, (const void *)window->at))
		window->ends = (addr & (WINDOW - 1)) + 1;
	return window->ends;
}

/* Reads the fields of one frame only. False: unreadable. */
static __always_inline bool read_one_frame(struct scratch *walk, struct window *window, __u64 addr,
					   const bool sleepable)
{
	window->at = addr;
	window->ends = !read_walked(walk, window->bytes, FRAME_READ, addr, sleepable);
	return window->ends;
}

/* A frame's fields, at py.frame_base. NULL: unreadable. */
static __always_inline __u8 *frame_bytes(struct scratch *walk, __u64 start, const bool sleepable)
{
	__u64 addr = start + py.frame_base;

	if (py.lasti_scale) /* frames are separate objects */
		return read_one_frame(walk, &walk->data, addr, sleepable) ? walk->data.bytes : 0;
	if (in_window(&walk->data, addr))
		return at_window(&walk->data, addr);
	if (in_window(&walk->stack, addr))
		return at_window(&walk->stack, addr);
	if (addr - walk->sp < ON_C_STACK) {
		if (read_up(&walk->stack, addr) ||
		    read_one_frame(walk, &walk->stack, addr, sleepable))
			return walk->stack.bytes;
		return 0;
	}
	if (read_down(&walk->data, addr))
		return at_window(&walk->data, addr);
	return read_one_frame(walk, &walk->data, addr, sleepable) ? walk->data.bytes : 0;
}

/* Address of PyCell_Type in the current process; 0: unknown. */
static __always_inline __u64 cell_type(const struct scratch *walk)
{
	return group ? walk->type_cell : py.type_cell;
}

/* True if the object is the one that the innermost module call called, so it is alive. */
static __always_inline bool is_called(const struct thread_slot *thread, __u64 object)
{
	return thread && thread->modules.n && thread->modules.self_of == thread->modules.n &&
	       thread->modules.self == object;
}

/* Adds the module of a module call's frame: local 0, or the content of a cell there if a closure
 * captured `self`. */
static __always_inline void put_self(struct scratch *walk, const struct thread_slot *thread,
				     const __u8 *frame, __u64 start, const bool sleepable)
{
	walk->word = 0;
	if (py.frame_local0 + 8 <= py.frame_base + FRAME_READ)
		walk->word = *(__u64 *)(frame + (py.frame_local0 - py.frame_base));
	else if (read_walked(walk, &walk->word, sizeof(walk->word), start + py.frame_local0,
			     sleepable))
		walk->faulted_self = 1;
	walk->word &= py.tag_mask;
	if (walk->word && cell_type(walk) && !is_called(thread, walk->word)) {
		if (read_walked(walk, &walk->cell, sizeof(walk->cell), walk->word + py.ob_type,
				sleepable))
			walk->faulted_self = 1;
		else if (walk->cell.type == cell_type(walk))
			walk->word = walk->cell.ref;
	}
	if (walk->word) {
		put_frame(walk, walk->word, 0, MT_FRAME_MODULE);
		walk->modules++;
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
static __always_inline __u64 position_hash(__u64 instr, __u64 prev)
{
	return mix(instr * 0xff51afd7ed558ccdULL, prev);
}

/* True if the frame is at the same instruction as when the earlier walk read it. */
static __always_inline bool is_suspended(struct scratch *walk, const struct suspended *known,
					 const bool sleepable)
{
	const __u8 *frame = frame_bytes(walk, known->frame, sleepable);

	return frame && position_hash(*(__u64 *)(frame + py.frame_instr),
				      *(__u64 *)(frame + py.frame_prev)) == known->position;
}

/* Ends the walk with the known suspended frames. False: they have changed. */
static __always_inline bool end_walk_at(struct scratch *walk, const struct suspended *known,
					const bool sleepable)
{
	if (!is_suspended(walk, known, sleepable))
		return false;
	walk->hash += walk->power * known->hash;
	walk->frames += known->frames;
	walk->modules += known->in_module;
	walk->shortened = walk->level;
	walk->frame = 0;
	return true;
}

#define LEVELS_A_SHIM 4

/* Handles a shim; walk->frame is the frame after it. True: the frames from there on are known and
 * the walk is complete. */
static __always_inline bool pass_shim(struct scratch *walk, struct thread_slot *thread, __u64 shim,
				      const bool sleepable)
{
	struct module_entry *entry;
	int i;

	for (i = 0;
	     i < LEVELS_A_SHIM && walk->level && entry_of(thread, walk->level)->call.sp <= shim;
	     i++)
		walk->level--;
	if (!walk->level)
		return false;
	entry = entry_of(thread, walk->level);
	if (entry->call.sp <= shim) {
		walk->level = 0; /* no recorded call can shorten this walk */
		return false;
	}
	if (shim_of(entry) == shim && entry->below.frame == walk->frame &&
	    end_walk_at(walk, &entry->below, sleepable))
		return true;
	if (walk->level != (__u32)thread->modules.n)
		return false;
	walk->end.shim = shim;
	walk->end.frame = walk->frame;
	walk->end.instr = 0;
	walk->end.frames = walk->frames;
	walk->end.in_module = walk->modules;
	walk->end_hash = walk->hash;
	walk->end_power = walk->power;
	return false;
}

/*
 * Free-threaded builds from 3.14 on: each thread runs its own copy of a code object's bytecode. The
 * first copy is in the code object itself. Sets walk->word to the address of the thread's copy.
 */
static __always_inline bool find_bytecode(struct scratch *walk, const __u8 *frame, __u64 code,
					  const bool sleepable)
{
	__u32 number;

	walk->word = code + py.code_adaptive;
	if (py.frame_tlbc == MT_NO_OFFSET)
		return true;
	number = *(__u32 *)(frame + py.frame_tlbc);
	return !number ||
	       (!read_user(&walk->word, sizeof(walk->word), code + py.code_tlbc, sleepable) &&
		!read_user(&walk->word, sizeof(walk->word), walk->word + 8 + 8 * (__u64)number,
			   sleepable));
}

/* Sets *at to the byte offset of a frame's instruction. False: unreadable. */
static __always_inline bool find_instruction(struct scratch *walk, const __u8 *frame, __u64 code,
					     __s32 *at, const bool sleepable)
{
	if (py.lasti_scale) {
		*at = *(__s32 *)(frame + py.frame_instr);
		if (*at >= 0)
			*at *= py.lasti_scale;
		return true;
	}
	if (!find_bytecode(walk, frame, code, sleepable))
		return false;
	*at = (__s32)(*(__u64 *)(frame + py.frame_instr) - walk->word);
	return true;
}

/* Adds the frame walk->frame to the stack and goes on to its caller. 1: the walk has ended;
 * walk->outcome says how. */
static __always_inline long walk_frame(struct scratch *walk, struct thread_slot *thread,
				       const bool sleepable)
{
	const __u8 *frame;
	__u64 code;
	__s32 at;

	if (!walk->frame)
		return 1;
	frame = frame_bytes(walk, walk->frame, sleepable);
	if (!frame) {
		walk->outcome = MT_WALK_FAULT_FRAME;
		return 1;
	}
	if (py.frame_owner != MT_NO_OFFSET && frame[py.frame_owner] >= py.owner_shim) {
		code = walk->frame;
		walk->frame = *(__u64 *)(frame + py.frame_prev);
		return thread && walk->level && pass_shim(walk, thread, code, sleepable);
	}
	if (walk->frames >= MT_MAX_FRAMES) {
		walk->outcome = MT_WALK_TRUNCATED;
		return 1;
	}
	if (walk->frame == walk->end.frame) {
		walk->end.instr = *(__u64 *)(frame + py.frame_instr);
		walk->end.prev = *(__u64 *)(frame + py.frame_prev);
	}
	code = *(__u64 *)(frame + py.frame_code) & py.tag_mask;
	if (!find_instruction(walk, frame, code, &at, sleepable)) {
		walk->outcome = MT_WALK_FAULT_FRAME;
		return 1;
	}
	put_frame(walk, code, at, MT_FRAME_CODE);
	walk->frames++;
	if (is_module_code(walk, code))
		put_self(walk, thread, frame, walk->frame, sleepable);
	walk->frame = *(__u64 *)(frame + py.frame_prev);
	return 0;
}

/* Marks an entry's code object in seen_code. 1: no such entry. */
static __always_inline long mark_entry(struct scratch *walk, __u32 index)
{
	asm volatile("" : "+r"(index));
	if (index >= MT_MAX_ENTRIES)
		return 1;
	if (walk->entries[index].kind == MT_FRAME_CODE)
		seen_code[seen_slot(walk->entries[index].addr)] = 1;
	return 0;
}

struct loop_ctx {
	struct scratch *walk;
	struct thread_slot *thread;
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
	struct thread_slot *thread;
	struct scratch *walk;
	int i;

	walk = bpf_map_lookup_elem(&scratch, &number);
	if (!walk)
		return 1;
	thread = walk->level ? thread_again() : 0;
	/* Two loops: in one, clang 19 computes addresses in `thread` before it is compared with 0. */
	if (!thread) {
		for (i = 0; i < WALK_AT_ONCE; i++) {
			if (walk_frame(walk, 0, false))
				return 1;
		}
		return 0;
	}
	for (i = 0; i < WALK_AT_ONCE; i++) {
		if (walk_frame(walk, thread, false))
			return 1;
	}
	return 0;
}

static __always_inline void walk_frames(struct loop_ctx *ctx, const bool sleepable)
{
	__u32 number = ctx->walk->number, i;

	for (i = 0; i < MT_MAX_VISIT / WALK_AT_ONCE; i++) {
		if (walk_some(number))
			break;
	}
}

#define MARK_AT_ONCE 16
GLOBAL int mark_some(__u32 number, __u32 first)
{
	struct scratch *walk;
	__u32 i;

	walk = bpf_map_lookup_elem(&scratch, &number);
	if (!walk)
		return 1;
	for (i = 0; i < MARK_AT_ONCE && first + i < walk->rec.n; i++)
		mark_entry(walk, first + i);
	return 0;
}

static __always_inline void mark_all(struct loop_ctx *ctx, __u32 n)
{
	__u32 number = ctx->walk->number, i;

	for (i = 0; i < MT_MAX_ENTRIES && i < n; i += MARK_AT_ONCE)
		mark_some(number, i);
}

#else

/* Two functions: non-sleepable programs must not contain a call of a sleepable helper. */
static long walk_frame_atomic(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->walk, ((struct loop_ctx *)ctx)->thread, false);
}

static long walk_frame_sleepable(__u32 i, void *ctx)
{
	return walk_frame(((struct loop_ctx *)ctx)->walk, ((struct loop_ctx *)ctx)->thread, true);
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
	return mark_entry(((struct loop_ctx *)ctx)->walk, i);
}

static __always_inline void mark_all(struct loop_ctx *ctx, __u32 n)
{
	bpf_loop(n, mark_seen, ctx, 0);
}

#endif

/*
 * Replaces walk->word, the address of a _PyCFrame, by the frame that it points to. A _PyCFrame is
 * on the C stack next to the innermost shim: both are variables of one function.
 */
#define CFRAME_BELOW (2 * FRAME_READ)
static __always_inline bool read_cframe(struct scratch *walk, const bool sleepable)
{
	if (!walk->level && walk->word - walk->sp < ON_C_STACK &&
	    read_up(&walk->stack, walk->word - CFRAME_BELOW) && walk->stack.ends > CFRAME_BELOW) {
		walk->word = *(__u64 *)(walk->stack.bytes + CFRAME_BELOW + py.cframe_frame);
		return true;
	}
	return !read_walked(walk, &walk->word, sizeof(walk->word), walk->word + py.cframe_frame,
			    sleepable);
}

/* Sets walk->word to the current thread's state; 0: the thread has none. False: unreadable. */
static __always_inline bool thread_state(struct scratch *walk, const bool sleepable)
{
	__u64 tp = pointer_of_thread();

	if (read_walked(walk, &walk->word, sizeof(walk->word), tp + py.tls_first, sleepable))
		return false;
	if (py.tls_kind == MT_TLS_EITHER && !walk->word)
		return !read_walked(walk, &walk->word, sizeof(walk->word), tp + py.tls_second,
				    sleepable);
	return py.tls_kind != MT_TLS_INDIRECT || !walk->word ||
	       !read_walked(walk, &walk->word, sizeof(walk->word), walk->word + py.tls_second,
			    sleepable);
}

/* Sets walk->frame to the thread's innermost frame; 0: there is none. walk->outcome says why. */
static __always_inline void first_frame(struct scratch *walk, struct thread_slot *thread,
					const bool sleepable)
{
	walk->frame = 0;
	walk->outcome = MT_WALK_FAULT_THREAD;
	if (!thread_state(walk, sleepable))
		return;
	if (!walk->word) {
		walk->outcome = MT_WALK_NO_THREAD;
		return;
	}
	if (thread && walk->level)
		entry_of(thread, walk->level)->tstate = walk->word;
	if (read_walked(walk, &walk->word, sizeof(walk->word), walk->word + py.tstate_frame,
			sleepable))
		return;
	if (py.tstate_cframe && walk->word && !read_cframe(walk, sleepable))
		return;
	walk->frame = walk->word;
	walk->outcome = walk->frame ? MT_WALK_OK : MT_WALK_NO_FRAME;
}

static __noinline int first_frame_atomic(struct scratch *walk, struct thread_slot *thread)
{
	if (walk)
		first_frame(walk, thread, false);
	return 0;
}

static __noinline int first_frame_sleepable(struct scratch *walk, struct thread_slot *thread)
{
	if (walk)
		first_frame(walk, thread, true);
	return 0;
}

#define QUICK_READ 4096

/* Reads the frames from walk->frame to the first one that called the module, if they are close. */
static __always_inline void read_own_frames(struct scratch *walk, const struct module_entry *entry)
{
	__u64 len = walk->frame + FRAME_READ - entry->below.frame;

	asm volatile("" : "+r"(len));
	if (py.lasti_scale || !entry->below.shim || len < FRAME_READ || len > QUICK_READ)
		return;
	SHOW_LIMIT(len, QUICK_READ);
	walk->data.at = entry->below.frame + py.frame_base;
	if (!bpf_probe_read_user(walk->data.bytes, len, (const void *)walk->data.at))
		walk->data.ends = len - FRAME_READ + 1;
}

/*
 * Does the same as first_frame() with fewer reads, if the module of the thread's last event is
 * still active: then the thread state is known, and one read of the C stack covers the return
 * address and the innermost frame. False: use first_frame().
 */
static __noinline bool quick_frame(struct scratch *walk, struct thread_slot *thread)
{
	struct module_entry *entry;
	__u64 len;

	if (!walk || !thread || !MT_RETURN_ON_STACK)
		return false;
	entry = entry_of(thread, thread->modules.n);
	if (!entry->tstate || !entry->call.ret || entry->call.sp <= walk->sp ||
	    read_word(&walk->frame, entry->tstate + py.tstate_frame))
		return false;
	/* Read from the frame, or from the shim if known, up to the return address. */
	walk->stack.at = py.tstate_cframe ? walk->frame : entry->call.sp;
	if (entry->below.shim && shim_of(entry) < walk->stack.at)
		walk->stack.at = shim_of(entry);
	len = entry->call.sp + sizeof(walk->word) - walk->stack.at;
	asm volatile("" : "+r"(len));
	/* A frame above the call: the module's own Python has ended or has not begun. */
	if ((py.tstate_cframe && walk->frame >= entry->call.sp) || walk->stack.at <= walk->sp ||
	    len < sizeof(walk->word) || len > QUICK_READ)
		return false;
	SHOW_LIMIT(len, QUICK_READ);
	if (bpf_probe_read_user(walk->stack.bytes, len, (const void *)walk->stack.at))
		return false;
	walk->stack.ends = len < FRAME_READ ? 0 : len - FRAME_READ + 1;
	walk->word = *(__u64 *)(walk->stack.bytes +
				((len - sizeof(walk->word)) & (QUICK_READ - 1)));
	if (py.tstate_cframe)
		walk->frame = *(__u64 *)(at_window(&walk->stack, walk->frame) + py.cframe_frame);
	walk->outcome = MT_WALK_OK;
	if (walk->word != entry->call.ret || !walk->frame)
		return false;
	read_own_frames(walk, entry);
	return true;
}

/* Few for older verifiers, which follow each turn. Their kernels have no programs that sleep. */
#define CLAIM_TRIES (MT_OLD ? 8 : MT_SCRATCH_SLOTS)

static __always_inline bool claim(struct scratch *walk)
{
	return walk && claim_word(&walk->busy);
}

/* Claims a slot for a walk; release_word() of its `busy` gives it back. NULL: all are in use. */
static __always_inline struct scratch *scratch_claim(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), key, i;
	struct scratch *walk;

	key = bpf_get_smp_processor_id() % MT_SCRATCH_SLOTS;
	walk = bpf_map_lookup_elem(&scratch, &key);
	for (i = 0; !claim(walk); i++) {
		/* Any number of tasks can be preempted or wait for pages in a walk. */
		if (i == CLAIM_TRIES)
			return 0;
		key = (tid + i) % MT_SCRATCH_SLOTS;
		walk = bpf_map_lookup_elem(&scratch, &key);
	}
	walk->number = key;
	return walk;
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
 * Call this after the record was submitted, which orders it for other CPUs. They may do the
 * same at this moment: an id can be lost or be there twice, and its stack is sent again. Each word
 * is always the id of a stack that was sent.
 */
static __always_inline void mark_sent(__u64 id)
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
static __noinline bool send_stack(struct scratch *walk, __u64 id)
{
	struct loop_ctx ctx = { walk, 0 };
	__u32 n;

	if (!walk)
		return false;
	n = walk->rec.n;
	asm volatile("" : "+r"(n));
	if (n > MT_MAX_ENTRIES)
		return false;
	/* Mark the code objects before the frames are visible: from now on their end is reported. */
	mark_all(&ctx, n);
	walk->rec.h.type = MT_REC_STACK;
	walk->rec.h.walk = walk->outcome;
	walk->rec.h.node = 0;
	walk->rec.h.member = member_of_current();
	walk->rec.h.tid = current_thread();
	walk->rec.stack = id;
	walk->rec.pad = 0;
	if (bpf_ringbuf_output(&ring, &walk->rec, sizeof(walk->rec) + n * sizeof(struct mt_frame),
			       wakeup(walk->rec.h.time))) {
		count_and_notify(MT_CNT_RING_LOST + MT_REC_STACK);
		return false;
	}
	mark_sent(id);
	return true;
}

/* True if the thread is in a module whose frames a walk can tell from those around it. */
static __always_inline bool in_known_module(const struct thread_slot *thread)
{
	return thread && thread->modules.n && py.frame_owner != MT_NO_OFFSET;
}

/* first_frame(), for a thread whose state is settled. */
static __always_inline void slow_frame(struct scratch *walk, struct thread_slot *thread,
				       const bool sleepable)
{
	walk->stack.ends = 0;
	walk->level = in_known_module(thread) ? (__u32)thread->modules.n : 0;
	if (sleepable)
		first_frame_sleepable(walk, thread);
	else
		first_frame_atomic(walk, thread);
}

/* Walks from the innermost frame on. Sets the entries, their hash and the outcome. */
static __always_inline void read_frames(struct scratch *walk, struct thread_slot *thread,
					__u64 time, const bool sleepable)
{
	struct loop_ctx ctx = { walk, thread };

	walk->rec.n = 0;
	walk->frames = 0;
	walk->modules = 0;
	walk->faulted_self = 0;
	walk->shortened = 0;
	walk->data.ends = walk->stack.ends = 0;
	walk->end.shim = walk->end.frame = 0;
	/* Before 3.12 there are no shims, and every walk is a full one. */
	walk->level = 0;
	walk->hash = 0;
	walk->power = 1;
	if (!in_known_module(thread) || !quick_frame(walk, thread)) {
		walk->level = thread ? (__u32)thread->modules.n : 0;
		if (thread)
			settle(thread, walk->sp, time);
		/* If the module has returned, the one around it may do. */
		if (!in_known_module(thread) || walk->level == (__u32)thread->modules.n ||
		    !quick_frame(walk, thread))
			slow_frame(walk, thread, sleepable);
	}
	if (!walk->frame)
		return;
	if (thread && py.frame_owner != MT_NO_OFFSET)
		walk->level = thread->modules.n;
	walk_frames(&ctx, sleepable);
	if (walk->outcome == MT_WALK_OK && (walk->frame || walk->frames > MT_MAX_FRAMES))
		walk->outcome = MT_WALK_TRUNCATED; /* also: more links than MT_MAX_VISIT */
	if (walk->outcome == MT_WALK_OK && !walk->frames)
		walk->outcome = MT_WALK_NO_FRAME; /* only the interpreter's sentinel frame */
	if (walk->outcome == MT_WALK_OK && walk->faulted_self)
		walk->outcome = MT_WALK_FAULT_SELF;
}

#if MT_OLD

GLOBAL int read_stack_once(__u32 number, __u64 time, __u32 with_state)
{
	struct scratch *walk;

	walk = bpf_map_lookup_elem(&scratch, &number);
	if (walk)
		read_frames(walk, with_state ? thread_again() : 0, time, false);
	return 0;
}

#endif

/* read_frames(). For older kernels through a global function, which the verifier checks once. */
static __always_inline void read_stack(struct scratch *walk, struct thread_slot *thread, __u64 time,
				       const bool sleepable)
{
#if MT_OLD
	read_stack_once(walk->number, time, !!thread);
#else
	read_frames(walk, thread, time, sleepable);
#endif
}

/* Keeps the frames suspended by the innermost module, for later walks. The walk has passed the end
 * of the module's own frames. */
static __noinline int keep_suspended(struct scratch *walk, struct thread_slot *thread)
{
	struct module_entry *entry;
	struct suspended *below;
	__u64 shim;

	if (!walk || !thread)
		return 0;
	if (walk->outcome != MT_WALK_OK || !thread->modules.n ||
	    walk->shortened == (__u32)thread->modules.n)
		return 0;
	entry = entry_of(thread, thread->modules.n);
	below = &entry->below;
	shim = entry->call.sp - walk->end.shim;
	if (shim > 0xffffffffULL)
		return 0;
	below->shim = shim;
	below->frame = walk->end.frame;
	below->position = position_hash(walk->end.instr, walk->end.prev);
	below->hash = (walk->hash - walk->end_hash) * inverse(walk->end_power);
	below->frames = walk->frames - walk->end.frames;
	below->in_module = walk->modules - walk->end.in_module;
	return 0;
}

/* The stack's id. Without frames, the outcome alone. */
static __always_inline __u64 id_of(const struct scratch *walk)
{
	__u64 id;

	if (!walk->frames)
		return walk->outcome;
	id = mix(group ? mix(walk->rec.epoch * MT_MEMBERS, walk->member) : walk->rec.epoch,
		 walk->hash);
	id = (id & ~(MT_STACK_WALKS - 1ULL) & ~MT_STACK_IN_MODULE) |
	     (walk->outcome & (MT_STACK_WALKS - 1));
	if (walk->modules)
		id |= MT_STACK_IN_MODULE;
	return id < MT_STACK_WALKS ? id + MT_STACK_WALKS : id;
}

/*
 * Loads the current process's state. Ids differ between processes even if all addresses are equal.
 */
static __always_inline void begin_in_member(struct scratch *walk)
{
	const struct mt_member *member;

	walk->member = member_of_current();
	__builtin_memset(walk->module_code, 0, sizeof(walk->module_code));
	walk->type_cell = 0;
	member = bpf_map_lookup_elem(&members, &walk->member);
	if (!member)
		return;
	__builtin_memcpy(walk->module_code, (void *)member->module_code, sizeof(walk->module_code));
	walk->type_cell = member->type_cell;
}

/* Walks in a claimed slot. Returns the stack's id, see walk_stack(). */
static __always_inline __u64 walk_in(struct scratch *walk, struct thread_slot *thread, __u64 sp,
				     __u64 time, const bool sleepable)
{
	__u64 id;

	walk->sp = sp;
	/* Read the epoch before the frames: if a code object is freed later, new ids differ from
	 * this one. */
	walk->rec.epoch = *(volatile __u64 *)&code_epoch;
	if (group)
		begin_in_member(walk);
	read_stack(walk, thread, time, sleepable);
	id = id_of(walk);
	if (thread && walk->end.shim && walk->end.instr)
		keep_suspended(walk, thread);
	if (walk->shortened) {
		if (is_sent(id) && !bench_verify)
			return id;
		/* The stack is new: walk again in full to send all frames. */
		walk->early_hash = walk->hash;
		read_stack(walk, 0, time, sleepable);
		count(MT_CNT_AGAIN);
		if (walk->early_hash != walk->hash)
			count(MT_CNT_AGAIN_OTHER);
		id = id_of(walk);
	}
	if (id < MT_STACK_WALKS || is_sent(id))
		return id;
	walk->rec.h.time = time;
	walk->rec.h.sleepable = sleepable;
	return send_stack(walk, id) ? id : MT_WALK_LOST;
}

/* True if a sleepable program could have read more. */
static __always_inline bool is_fault(__u32 outcome)
{
	return outcome == MT_WALK_FAULT_FRAME || outcome == MT_WALK_FAULT_THREAD ||
	       outcome == MT_WALK_FAULT_SELF;
}

/* Lets user space bring in the page of an address that could not be read. */
static __always_inline void report_absent(__u64 addr)
{
	absent[addr / WINDOW & (MT_ABSENT - 1)] = own_key(addr & ~(0xffffULL << 48));
	__sync_fetch_and_add(&notices, 1);
}

/*
 * Walks, and sends a new stack. Returns the stack's id, whose lowest bits are the outcome; without
 * frames the outcome alone. thread: state of the thread as of this stack pointer, or NULL for a
 * full walk.
 */
static __always_inline __u64 walk_stack(struct thread_slot *thread, __u64 sp, __u64 time,
					const bool sleepable)
{
	__u64 id = MT_WALK_OFF;
	struct scratch *walk;

	if (py.tls_kind != MT_TLS_NONE) {
		walk = scratch_claim();
		id = MT_WALK_BUSY;
		if (walk) {
			id = walk_in(walk, thread, sp, time, sleepable);
			if (!sleepable && is_fault(id & (MT_STACK_WALKS - 1)))
				report_absent(walk->absent);
			release_word(&walk->busy);
		}
	}
	count(MT_CNT_WALK + (id & (MT_STACK_WALKS - 1)));
	return id;
}

static __noinline __u64 walk_stack_atomic(struct thread_slot *thread, __u64 sp, __u64 time)
{
	return walk_stack(thread, sp, time, false);
}

static __noinline __u64 walk_stack_sleepable(struct thread_slot *thread, __u64 sp, __u64 time)
{
	return walk_stack(thread, sp, time, true);
}
