/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Copies of the tensors that are local variables of the frames of a failed allocation. The thread
 * is in the probe, so they are what the failed call works on. Later they may change, or end and
 * leave their addresses to other tensors.
 * A tensor is an object of a class derived from torch._C.TensorBase, which tp_base leads to. Before
 * CPython 3.11, variables that inner functions share are left out.
 */

#define TYPE_BASES 8 /* classes from an object's to TensorBase, at most */
/* A Python tensor has the pointer to its TensorImpl first, in PyTorch 2.0 to 2.9 after a flag. A
 * TensorImpl has the pointer to its StorageImpl first, in PyTorch 2.0 to 2.2 after a count. */
#define IS_POINTER(word) ((word) >= 4096)
#define IMPL_STORAGE 16

/* Eight characters as they are in memory. */
#define CHARS(a, b, c, d, e, f, g, h)                                                              \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)
#define FIRST_CHARS(n) ((1ULL << 8 * (n)) - 1)

/* Reads the word at addr to s->word. False: unreadable. */
static __always_inline bool get_word(struct scratch *s, __u64 addr)
{
	return !read_user(&s->word, sizeof(s->word), addr, false);
}

/* True if s->local.name is the name of TensorBase, which PyTorch 2.0 and older call _TensorBase. */
static __always_inline bool is_tensor_base(const struct scratch *s)
{
	const __u64 *name = s->local.name;

	if (name[0] != CHARS('t', 'o', 'r', 'c', 'h', '.', '_', 'C'))
		return false;
	return (name[1] == CHARS('.', 'T', 'e', 'n', 's', 'o', 'r', 'B') &&
		(name[2] & FIRST_CHARS(4)) == CHARS('a', 's', 'e', 0, 0, 0, 0, 0)) ||
	       (name[1] == CHARS('.', '_', 'T', 'e', 'n', 's', 'o', 'r') &&
		(name[2] & FIRST_CHARS(5)) == CHARS('B', 'a', 's', 'e', 0, 0, 0, 0));
}

/* True if s->local.object is a tensor. */
static __always_inline bool is_tensor(struct scratch *s)
{
	__u32 i;

	for (i = 0; i < TYPE_BASES && s->local.type; i++) {
		if (!get_word(s, s->local.type + py.tp_name))
			return false;
		if (!bpf_probe_read_user(s->local.name, sizeof(s->local.name),
					 (const void *)s->word) &&
		    is_tensor_base(s))
			return true;
		if (!get_word(s, s->local.type + py.tp_base))
			return false;
		s->local.type = s->word;
	}
	return false;
}

/* Replaces the object in s->word by the content, if it is a cell. Sets s->local.object and its
 * type. False: unreadable, or no object. */
static __always_inline bool find_object(struct scratch *s)
{
	s->local.object = s->word & py.tag_mask;
	if (!s->local.object || !get_word(s, s->local.object + py.ob_type))
		return false;
	s->local.type = s->word;
	if (!get_word(s, s->local.type + py.tp_name) || !get_word(s, s->word))
		return true; /* a class with a short name at the end of its page */
	if ((s->word & FIRST_CHARS(5)) != CHARS('c', 'e', 'l', 'l', 0, 0, 0, 0))
		return true;
	if (!get_word(s, s->local.object + py.ob_type + sizeof(s->word)))
		return false;
	s->local.object = s->word;
	if (!s->local.object || !get_word(s, s->local.object + py.ob_type))
		return false;
	s->local.type = s->word;
	return true;
}

/* Copies the sizes of a tensor with more than INLINE_SIZES dimensions. Its TensorImpl has, after
 * the pointer to the Python object, the number of sizes and a pointer to them. */
#define INLINE_SIZES 5
static __always_inline void copy_sizes(struct mt_rec_tensor *r)
{
	__u32 at;

	__builtin_memset(r->sizes, 0, sizeof(r->sizes));
	/* In PyTorch 2.0 to 2.2 at 64, to 2.12 at 56, then at 48. */
	for (at = 48; at <= 64; at += 8) {
		const __u64 *word = (const __u64 *)(r->impl + at);

		if ((word[0] & ~3ULL) != r->object)
			continue;
		if (word[1] > INLINE_SIZES)
			bpf_probe_read_user(r->sizes, sizeof(r->sizes), (const void *)word[2]);
		return;
	}
}

/* Sends the tensor s->local.object. */
static __noinline int send_tensor(struct scratch *s)
{
	struct mt_rec_tensor *r;

	if (!s || bpf_probe_read_user(s->local.head, sizeof(s->local.head),
				      (const void *)(s->local.object + py.ob_type + 8)))
		return 0;
	count(MT_CNT_HIT + MT_REC_TENSOR);
	r = reserve(MT_REC_TENSOR, sizeof(*r));
	if (!r)
		return 0;
	fill(&r->h, MT_REC_TENSOR, s->local.time, 0, false);
	r->epoch = s->rec.epoch;
	r->code = s->local.code;
	r->at = s->local.at;
	r->depth = s->local.frames - 1;
	r->number = s->local.slot - 1;
	r->object = s->local.object;
	r->impl_at = s->local.head[0];
	if (!IS_POINTER(r->impl_at))
		r->impl_at = s->local.head[1];
	/* Unreadable memory becomes zeros. */
	bpf_probe_read_user(r->impl, sizeof(r->impl), (const void *)r->impl_at);
	copy_sizes(r);
	r->storage_at = *(__u64 *)(r->impl + IMPL_STORAGE);
	if (!IS_POINTER(r->storage_at))
		r->storage_at = *(__u64 *)(r->impl + IMPL_STORAGE + 8);
	bpf_probe_read_user(r->storage, sizeof(r->storage), (const void *)r->storage_at);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	s->local.tensors++;
	return 0;
}

/* Goes on to the variables of the next frame. False: there is none, or it is unreadable. */
static __always_inline bool next_frame(struct scratch *s)
{
	const __u8 *frame;

	s->local.slot = s->local.slots = 0;
	if (!s->frame || s->local.frames >= MT_LOCAL_FRAMES)
		return false;
	frame = frame_bytes(s, s->frame, false);
	if (!frame)
		return false;
	s->local.frame = s->frame;
	s->frame = *(__u64 *)(frame + py.frame_prev);
	if (py.frame_owner != MT_NO_OFFSET && frame[py.frame_owner] >= py.owner_shim)
		return true;
	s->local.code = *(__u64 *)(frame + py.frame_code) & py.tag_mask;
	if (!find_instruction(s, frame, s->local.code, &s->local.at, false))
		return false;
	s->local.frames++;
	if (get_word(s, s->local.code + py.code_names) && get_word(s, s->word + py.ob_size))
		s->local.slots = s->word < MT_LOCAL_SLOTS ? (__u32)s->word : MT_LOCAL_SLOTS;
	return true;
}

/* Looks at the next variable, or goes on to the next frame. 1: that was the last one. */
static __always_inline long look_at_local(struct scratch *s)
{
	if (s->local.slot >= s->local.slots)
		return !next_frame(s);
	if (!get_word(s, s->local.frame + py.frame_local0 + 8ULL * s->local.slot++)) {
		s->local.slots = 0;
		return 0;
	}
	if (find_object(s) && is_tensor(s))
		send_tensor(s);
	return s->local.tensors >= MT_LOCAL_TENSORS;
}

#if MT_OLD

#define LOOKS_AT_ONCE 2
GLOBAL int look_at_some(__u32 number)
{
	struct scratch *s;
	int i;

	s = bpf_map_lookup_elem(&scratch, &number);
	if (!s)
		return 1;
	for (i = 0; i < LOOKS_AT_ONCE; i++) {
		if (look_at_local(s))
			return 1;
	}
	return 0;
}

static __always_inline void look_at_locals(struct scratch *s)
{
	__u32 number = s->number, i;

	for (i = 0; i < MT_LOCAL_LOOKS / LOOKS_AT_ONCE; i++) {
		if (look_at_some(number))
			break;
	}
}

#else

static long look_at_one(__u32 i, void *ctx)
{
	return look_at_local(((struct loop_ctx *)ctx)->s);
}

static __always_inline void look_at_locals(struct scratch *s)
{
	struct loop_ctx ctx = { s, 0 };

	bpf_loop(MT_LOCAL_LOOKS, look_at_one, &ctx, 0);
}

#endif

/* Sends the tensors of the thread's frames, for a record with this time. sp: its stack pointer. */
static __noinline int copy_tensors(__u64 sp, __u64 time)
{
	struct scratch *s;

	if (!py.code_names || py.tls_kind == MT_TLS_NONE)
		return 0;
	s = scratch_claim();
	if (!s)
		return 0;
	s->sp = sp;
	s->level = 0;
	s->data.ends = s->stack.ends = 0;
	s->rec.epoch = *(volatile __u64 *)&code_epoch;
	s->local.time = time;
	s->local.frames = s->local.slot = s->local.slots = s->local.tensors = 0;
	first_frame_atomic(s, 0);
	if (s->frame)
		look_at_locals(s);
	release_word(&s->busy);
	return 0;
}
