/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef PYSTACK_BPF_H
#define PYSTACK_BPF_H
/*
 * The walk over the Python frames of the current thread. A probe runs synchronously on the
 * allocating thread, so its own frame chain cannot change meanwhile and every code object and module
 * on it is alive; afterwards they may be gone, so what identifies a frame is taken here.
 *
 * A stack is sent once per CPU: its id is a hash over (code object, instruction offset, module), seeded
 * with the code epoch. When a code object that a sent stack mentions is freed, the epoch goes up: all
 * ids change, all stacks are sent again, and an id can never come to mean other code.
 */

#define FRAME_READ 96 /* covers all fields of a frame in every supported version, local 0 from 3.11 on */

struct walk {
	struct scratch *s;
	__u64 frame;
	__u64 hash;
	__u32 n;      /* entries in s->frames */
	__u32 frames; /* code entries among them */
	__u32 outcome;
	__u32 faulted_self;
};

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

static __always_inline void put_frame(struct walk *w, __u64 addr, __s32 at, __u32 kind)
{
	__u32 i = w->n;

	/* Opaque to the compiler, which would drop the bound that the verifier wants to see. */
	asm volatile("" : "+r"(i));
	if (i >= MT_MAX_ENTRIES)
		return;
	w->s->frames[i].addr = addr;
	w->s->frames[i].at = at;
	w->s->frames[i].kind = kind;
	w->n = i + 1;
	w->hash = mix(mix(w->hash, addr), ((__u64)kind << 32) | (__u32)at);
}

static __always_inline bool is_module_code(__u64 code)
{
	return code == module_code[0] || code == module_code[1] || code == module_code[2] ||
	       code == module_code[3];
}

/* local 0 of a module's call: the module, or a cell that holds it when a closure captured `self`. */
static __always_inline void put_self(struct walk *w, const __u8 *buf, const bool sleepable)
{
	__u64 self = 0, type = 0;

	if (py.frame_local0 + 8 <= py.frame_base + FRAME_READ)
		self = *(__u64 *)(buf + (py.frame_local0 - py.frame_base));
	else if (read_user(&self, sizeof(self), w->frame + py.frame_local0, sleepable))
		w->faulted_self = 1;
	self &= py.tag_mask;
	if (self && py.type_cell) {
		if (read_user(&type, sizeof(type), self + 8, sleepable))
			w->faulted_self = 1;
		else if (type == py.type_cell && read_user(&self, sizeof(self), self + 16, sleepable))
			w->faulted_self = 1;
	}
	if (self)
		put_frame(w, self, 0, MT_FRAME_MODULE);
}

static __always_inline long walk_frame(struct walk *w, const bool sleepable)
{
	__u8 buf[FRAME_READ] __attribute__((aligned(8)));
	__u64 code, prev, instr;
	__s32 at;

	if (!w->frame)
		return 1;
	if (read_user(buf, sizeof(buf), w->frame + py.frame_base, sleepable)) {
		w->outcome = MT_WALK_FAULT_FRAME;
		return 1;
	}
	prev = *(__u64 *)(buf + py.frame_prev);
	if (py.frame_owner != 0xffffffff && buf[py.frame_owner] >= py.owner_shim) {
		w->frame = prev;
		return 0;
	}
	if (w->frames >= MT_MAX_FRAMES) {
		w->outcome = MT_WALK_TRUNCATED;
		return 1;
	}
	code = *(__u64 *)(buf + py.frame_code) & py.tag_mask;
	if (py.lasti_scale) {
		at = *(__s32 *)(buf + py.frame_instr);
		if (at >= 0)
			at *= py.lasti_scale;
	} else {
		instr = *(__u64 *)(buf + py.frame_instr);
		at = (__s32)(instr - (code + py.code_adaptive));
	}
	put_frame(w, code, at, MT_FRAME_CODE);
	w->frames++;
	if (is_module_code(code))
		put_self(w, buf, sleepable);
	w->frame = prev;
	return 0;
}

/* bpf_loop wants a function; a sleepable helper may not even be reachable from the other programs. */
static long walk_frame_atomic(__u32 i, void *ctx)
{
	return walk_frame(ctx, false);
}

static long walk_frame_sleepable(__u32 i, void *ctx)
{
	return walk_frame(ctx, true);
}

static long mark_seen(__u32 i, void *ctx)
{
	struct scratch *s = ((struct walk *)ctx)->s;

	asm volatile("" : "+r"(i));
	if (i >= MT_MAX_ENTRIES)
		return 1;
	if (s->frames[i].kind == MT_FRAME_CODE)
		seen_code[seen_slot(s->frames[i].addr)] = 1;
	return 0;
}

/* The current thread's innermost frame; 0 with an outcome when there is none. */
static __always_inline __u64 first_frame(__u32 *outcome, const bool sleepable)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 tp = task->thread.fsbase;
	__u64 tstate = 0, frame = 0;

	*outcome = MT_WALK_FAULT_THREAD;
	if (read_user(&tstate, sizeof(tstate), tp + py.tls_off1, sleepable))
		return 0;
	if (py.tls_kind == MT_TLS_INDIRECT && tstate &&
	    read_user(&tstate, sizeof(tstate), tstate + py.tls_off2, sleepable))
		return 0;
	if (!tstate) {
		*outcome = MT_WALK_NO_THREAD;
		return 0;
	}
	if (read_user(&frame, sizeof(frame), tstate + py.tstate_frame, sleepable))
		return 0;
	if (py.tstate_cframe && frame &&
	    read_user(&frame, sizeof(frame), frame + py.cframe_frame, sleepable))
		return 0;
	*outcome = frame ? MT_WALK_OK : MT_WALK_NO_FRAME;
	return frame;
}

static __always_inline struct scratch *scratch_claim(void)
{
	struct scratch *s;
	__u32 i;

	for (i = 0; i < MT_SCRATCH_SLOTS; i++) {
		__u32 key = i;

		s = bpf_map_lookup_elem(&scratch, &key);
		if (s && __sync_val_compare_and_swap(&s->busy, 0, 1) == 0)
			return s;
	}
	return 0;
}

/* Sends the frames unless this CPU has sent them before. False: the ring was full. */
static __always_inline bool send_stack(struct walk *w, const struct mt_hdr *h, __u64 id, __u64 epoch)
{
	__u32 slot = (__u32)id & (MT_SENT_SLOTS - 1), n = w->n;
	__u64 *known = bpf_map_lookup_elem(&sent_stacks, &slot);
	struct scratch *s = w->s;

	if (known && *known == id)
		return true;
	asm volatile("" : "+r"(n));
	if (n > MT_MAX_ENTRIES)
		return false;
	/* Before the frames can be seen by anyone: a code object freed from now on is noticed. */
	bpf_loop(n, mark_seen, w, 0);
	s->rec.h = *h;
	s->rec.h.type = MT_REC_STACK;
	s->rec.stack = id;
	s->rec.epoch = epoch;
	s->rec.n = n;
	s->rec.pad = 0;
	if (bpf_ringbuf_output(&ring, &s->rec, sizeof(s->rec) + n * sizeof(struct mt_frame),
			       BPF_RB_NO_WAKEUP)) {
		count(MT_CNT_RING_LOST + MT_REC_STACK);
		return false;
	}
	if (known)
		*known = id;
	return true;
}

/* Walks, sends the stack if it is new, sets h->walk. Returns the stack's id, 0: none. */
static __always_inline __u64 walk_stack(struct mt_hdr *h, const bool sleepable)
{
	struct walk w = {};
	__u64 epoch = *(volatile __u64 *)&code_epoch, id = 0;

	w.outcome = MT_WALK_OFF;
	if (py.tls_kind == MT_TLS_NONE)
		goto out;
	w.frame = first_frame(&w.outcome, sleepable);
	if (!w.frame)
		goto out;
	w.s = scratch_claim();
	if (!w.s) {
		w.outcome = MT_WALK_BUSY;
		goto out;
	}
	w.hash = epoch;
	if (sleepable)
		bpf_loop(MT_MAX_VISIT, walk_frame_sleepable, &w, 0);
	else
		bpf_loop(MT_MAX_VISIT, walk_frame_atomic, &w, 0);
	if (w.outcome == MT_WALK_OK && w.frame)
		w.outcome = MT_WALK_TRUNCATED; /* MT_MAX_VISIT links, most of them shims */
	if (w.outcome == MT_WALK_OK && !w.n)
		w.outcome = MT_WALK_NO_FRAME; /* nothing but the interpreter's own sentinel */
	if (w.outcome == MT_WALK_OK && w.faulted_self)
		w.outcome = MT_WALK_FAULT_SELF;
	if (w.n) {
		id = mix(w.hash, w.outcome);
		if (!id)
			id = 1;
		h->walk = w.outcome;
		if (!send_stack(&w, h, id, epoch)) {
			w.outcome = MT_WALK_LOST;
			id = 0;
		}
	}
	*(volatile __u64 *)&w.s->busy = 0;
out:
	h->walk = w.outcome;
	count(MT_CNT_WALK + w.outcome);
	return id;
}

#endif
