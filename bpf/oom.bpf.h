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

/* Reads the word at addr to walk->word. False: unreadable. */
static __always_inline bool get_word(struct scratch *walk, __u64 addr)
{
	return !read_user(&walk->word, sizeof(walk->word), addr, false);
}

/* True if walk->local.name is the name of TensorBase, which PyTorch 2.0 and older call _TensorBase.
 */
static __always_inline bool is_tensor_base(const struct scratch *walk)
{
	const __u64 *name = walk->local.name;

	if (name[0] != CHARS('t', 'o', 'r', 'c', 'h', '.', '_', 'C'))
		return false;
	return (name[1] == CHARS('.', 'T', 'e', 'n', 's', 'o', 'r', 'B') &&
		(name[2] & FIRST_CHARS(4)) == CHARS('a', 's', 'e', 0, 0, 0, 0, 0)) ||
	       (name[1] == CHARS('.', '_', 'T', 'e', 'n', 's', 'o', 'r') &&
		(name[2] & FIRST_CHARS(5)) == CHARS('B', 'a', 's', 'e', 0, 0, 0, 0));
}

/* True if walk->local.object, an object of class walk->local.type, is a tensor. Changes the
 * type. */
static __always_inline bool is_tensor(struct scratch *walk)
{
	__u32 i;

	for (i = 0; i < TYPE_BASES && walk->local.type; i++) {
		if (!get_word(walk, walk->local.type + py.tp_name))
			return false;
		if (!bpf_probe_read_user(walk->local.name, sizeof(walk->local.name),
					 (const void *)walk->word) &&
		    is_tensor_base(walk))
			return true;
		if (!get_word(walk, walk->local.type + py.tp_base))
			return false;
		walk->local.type = walk->word;
	}
	return false;
}

/* Replaces the object in walk->word by the content, if it is a cell. Sets walk->local.object and
 * its type. False: unreadable, or no object. */
static __always_inline bool find_object(struct scratch *walk)
{
	walk->local.object = walk->word & py.tag_mask;
	if (!walk->local.object || !get_word(walk, walk->local.object + py.ob_type))
		return false;
	walk->local.type = walk->word;
	if (!get_word(walk, walk->local.type + py.tp_name) || !get_word(walk, walk->word))
		return true; /* a class with a short name at the end of its page */
	if ((walk->word & FIRST_CHARS(5)) != CHARS('c', 'e', 'l', 'l', 0, 0, 0, 0))
		return true;
	if (!get_word(walk, walk->local.object + py.ob_type + sizeof(walk->word)))
		return false;
	walk->local.object = walk->word;
	if (!walk->local.object || !get_word(walk, walk->local.object + py.ob_type))
		return false;
	walk->local.type = walk->word;
	return true;
}

/* Copies the sizes of a tensor with more than INLINE_SIZES dimensions. Its TensorImpl has, after
 * the pointer to the Python object, the number of sizes and a pointer to them. */
#define INLINE_SIZES 5
static __always_inline void copy_sizes(struct mt_rec_tensor *record)
{
	__u32 at;

	__builtin_memset(record->sizes, 0, sizeof(record->sizes));
	/* In PyTorch 2.0 to 2.2 at 64, to 2.12 at 56, then at 48. */
	for (at = 48; at <= 64; at += 8) {
		const __u64 *word = (const __u64 *)(record->impl + at);

		if ((word[0] & ~3ULL) != record->object)
			continue;
		if (word[1] > INLINE_SIZES)
			bpf_probe_read_user(record->sizes, sizeof(record->sizes),
					    (const void *)word[2]);
		return;
	}
}

/* Sends the tensor walk->local.object. */
static __noinline int send_tensor(struct scratch *walk)
{
	struct mt_rec_tensor *record;

	if (!walk || bpf_probe_read_user(walk->local.head, sizeof(walk->local.head),
					 (const void *)(walk->local.object + py.ob_type + 8)))
		return 0;
	count(MT_CNT_HIT + MT_REC_TENSOR);
	record = reserve(MT_REC_TENSOR, sizeof(*record));
	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_TENSOR, walk->local.time, 0, false);
	record->epoch = walk->rec.epoch;
	record->code = walk->local.code;
	record->at = walk->local.at;
	record->depth = walk->local.frames - 1;
	record->number = walk->local.slot - 1;
	record->object = walk->local.object;
	record->impl_at = walk->local.head[0];
	if (!IS_POINTER(record->impl_at))
		record->impl_at = walk->local.head[1];
	/* Unreadable memory becomes zeros. */
	bpf_probe_read_user(record->impl, sizeof(record->impl), (const void *)record->impl_at);
	copy_sizes(record);
	record->storage_at = *(__u64 *)(record->impl + IMPL_STORAGE);
	if (!IS_POINTER(record->storage_at))
		record->storage_at = *(__u64 *)(record->impl + IMPL_STORAGE + 8);
	bpf_probe_read_user(record->storage, sizeof(record->storage),
			    (const void *)record->storage_at);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	walk->local.tensors++;
	return 0;
}

/* Goes on to the variables of the next frame. False: there is none, or it is unreadable. */
static __always_inline bool next_frame(struct scratch *walk)
{
	const __u8 *frame;

	walk->local.slot = walk->local.slots = 0;
	if (!walk->frame || walk->local.frames >= MT_LOCAL_FRAMES)
		return false;
	frame = frame_bytes(walk, walk->frame, false);
	if (!frame)
		return false;
	walk->local.frame = walk->frame;
	walk->frame = *(__u64 *)(frame + py.frame_prev);
	if (py.frame_owner != MT_NO_OFFSET && frame[py.frame_owner] >= py.owner_shim)
		return true;
	walk->local.code = *(__u64 *)(frame + py.frame_code) & py.tag_mask;
	if (!find_instruction(walk, frame, walk->local.code, &walk->local.at, false))
		return false;
	walk->local.frames++;
	if (get_word(walk, walk->local.code + py.code_names) &&
	    get_word(walk, walk->word + py.ob_size))
		walk->local.slots = walk->word < MT_LOCAL_SLOTS ? (__u32)walk->word
								: MT_LOCAL_SLOTS;
	return true;
}

/* Looks at the next variable, or goes on to the next frame. 1: the search has ended. */
static __always_inline long look_at_local(struct scratch *walk)
{
	if (walk->local.slot >= walk->local.slots)
		return !next_frame(walk);
	if (!get_word(walk, walk->local.frame + py.frame_local0 + 8ULL * walk->local.slot++)) {
		walk->local.slots = 0;
		return 0;
	}
	if (find_object(walk) && is_tensor(walk))
		send_tensor(walk);
	return walk->local.tensors >= MT_LOCAL_TENSORS;
}

#if MT_OLD

#define LOOKS_AT_ONCE 2
GLOBAL int look_at_some(__u32 number)
{
	struct scratch *walk;
	int i;

	walk = bpf_map_lookup_elem(&scratch, &number);
	if (!walk)
		return 1;
	for (i = 0; i < LOOKS_AT_ONCE; i++) {
		if (look_at_local(walk))
			return 1;
	}
	return 0;
}

static __always_inline void look_at_locals(struct scratch *walk)
{
	__u32 number = walk->number, i;

	for (i = 0; i < MT_LOCAL_LOOKS / LOOKS_AT_ONCE; i++) {
		if (look_at_some(number))
			break;
	}
}

#else

static long look_at_one(__u32 i, void *ctx)
{
	return look_at_local(((struct loop_ctx *)ctx)->walk);
}

static __always_inline void look_at_locals(struct scratch *walk)
{
	struct loop_ctx ctx = { walk, 0 };

	bpf_loop(MT_LOCAL_LOOKS, look_at_one, &ctx, 0);
}

#endif

/* Sends the tensors of the thread's frames, for a record with this time. sp: its stack pointer.
 * Without a free scratch slot, all of them count as one lost record: nothing tells their number. */
static __noinline int copy_tensors(__u64 sp, __u64 time)
{
	struct scratch *walk;

	if (!py.code_names || py.tls_kind == MT_TLS_NONE)
		return 0;
	walk = scratch_claim();
	if (!walk) {
		count_lost_hit(MT_REC_TENSOR);
		return 0;
	}
	walk->sp = sp;
	walk->level = 0;
	walk->data.ends = walk->stack.ends = 0;
	walk->rec.epoch = *(volatile __u64 *)&code_epoch;
	walk->local.time = time;
	walk->local.frames = walk->local.slot = walk->local.slots = walk->local.tensors = 0;
	first_frame_atomic(walk, 0);
	if (walk->frame)
		look_at_locals(walk);
	release_word(&walk->busy);
	return 0;
}
