/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Scopes that the target's code names itself: record_function, NVTX, and pairs of USDT probes. The
 * end of a record_function scope is do_scope_end().
 * The thread has just made the name, so its page is there: a twin that brings in pages is not
 * needed.
 */
/* Reads the text at addr. It stays empty if it is not readable. */
static __always_inline void read_name(char name[MT_SCOPE_NAME], __u64 addr)
{
	__u64 len = WINDOW - (addr & (WINDOW - 1)); /* to the end of the page */

	if (!addr || !bpf_probe_read_user(name, MT_SCOPE_NAME, (const void *)addr))
		return;
	/* The name may end before an absent page. */
	asm volatile("" : "+r"(len));
	if (len < MT_SCOPE_NAME)
		bpf_probe_read_user(name, len, (const void *)addr);
}

/* name: address of the text that names the scope that begins; ends: the innermost one ends. */
static __always_inline int tell_scope(__u8 source, bool ends, __u64 name, __u64 time)
{
	struct mt_rec_scope *record = reserve(MT_REC_SCOPE, sizeof(*record));

	if (!record)
		return 0;
	fill_header(&record->h, MT_REC_SCOPE, time, 0, false);
	record->source = source;
	record->ends = ends;
	__builtin_memset(record->pad, 0, sizeof(record->pad));
	record->name_at = ends ? 0 : name;
	__builtin_memset(record->name, 0, sizeof(record->name));
	if (!ends)
		read_name(record->name, name);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	sample_time(MT_REC_SCOPE, time);
	return 0;
}

/* The result is an object, whose address is the first argument on x86-64, and has a register of its
 * own on aarch64. */
#ifdef __TARGET_ARCH_arm64
#define FIRST_OF_OBJECT(ctx) PT_REGS_PARM1(ctx)
#else
#define FIRST_OF_OBJECT(ctx) PT_REGS_PARM2(ctx)
#endif

/* intrusive_ptr<PythonRecordFunction> record_function_enter_new(const std::string &name,
 * const std::optional<std::string> &args). A std::string begins with the address of its text, also
 * in the old ABI. */
SEC("uprobe")
int scope_begin(struct pt_regs *ctx)
{
	__u64 name = 0, time = bpf_ktime_get_ns();

	if (!begin(MT_REC_SCOPE))
		return 0;
	if (is_off(MT_OFF_SCOPES))
		return filtered(MT_REC_SCOPE);
	if (read_word(&name, FIRST_OF_OBJECT(ctx)))
		name = 0;
	return tell_scope(MT_SCOPE_RECORD_FUNCTION, false, name, time);
}

/* int nvtxRangePushA(const char *message) */
SEC("uprobe")
int range_push(struct pt_regs *ctx)
{
	__u64 time = bpf_ktime_get_ns();

	if (!begin(MT_REC_SCOPE))
		return 0;
	if (is_off(MT_OFF_SCOPES))
		return filtered(MT_REC_SCOPE);
	return tell_scope(MT_SCOPE_NVTX, false, PT_REGS_PARM1(ctx), time);
}

/* int nvtxRangePop() */
SEC("uprobe")
int range_pop(struct pt_regs *ctx)
{
	__u64 time = bpf_ktime_get_ns();

	if (!begin(MT_REC_SCOPE))
		return 0;
	if (is_off(MT_OFF_SCOPES))
		return filtered(MT_REC_SCOPE);
	return tell_scope(MT_SCOPE_NVTX, true, 0, time);
}

/* USDT probes that the user names as begin and end of a scope. The cookie is MT_SCOPE_COOKIE. */
SEC("uprobe")
int usdt_scope(struct pt_regs *ctx)
{
	__u64 time = bpf_ktime_get_ns(), cookie = site_cookie(ctx), name = 0;
	__u32 flags = cookie >> 40 & 0xff;

	if (!begin(MT_REC_SCOPE))
		return 0;
	if (is_off(MT_OFF_SCOPES))
		return filtered(MT_REC_SCOPE);
	if (flags & MT_SCOPE_NAMED && !read_register(ctx, cookie >> 32 & 0xff, &name))
		name = 0;
	if (flags & MT_SCOPE_MEMORY && read_word(&name, name + (__s32)cookie))
		name = 0;
	return tell_scope(cookie >> 48, flags & MT_SCOPE_ENDS, name, time);
}
