/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static int load(const struct bpf_insn *insns, size_t n)
{
	int fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "memtrace_ask", "GPL", insns, n, NULL);

	if (fd >= 0)
		close(fd);
	return fd;
}

/* Without a program that does nothing, the answers of others mean nothing. */
static int has_programs(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	return load(insns, sizeof(insns) / sizeof(insns[0])) >= 0;
}

/* An addition that returns the old value. Older kernels take it for one that does not, with a
 * reserved field set. */
static int has_atomics(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_STX | BPF_MEM | BPF_DW,
		  .dst_reg = BPF_REG_10,
		  .src_reg = BPF_REG_0,
		  .off = -8 },
		{ .code = BPF_STX | BPF_ATOMIC | BPF_DW,
		  .dst_reg = BPF_REG_10,
		  .src_reg = BPF_REG_0,
		  .off = -8,
		  .imm = BPF_ADD | BPF_FETCH },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};

	return load(insns, sizeof(insns) / sizeof(insns[0])) >= 0;
}

static int has_helper(enum bpf_func_id id)
{
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, id, NULL) == 1;
}

const char *features__missing(void)
{
	static const struct {
		enum bpf_func_id helper; /* 0: atomics */
		const char *name;
	} needed[] = {
		{ BPF_FUNC_loop, "bpf_loop (5.17)" },
		{ BPF_FUNC_get_attach_cookie, "attach cookies (5.15)" },
		{ BPF_FUNC_task_storage_get, "task storage (5.12)" },
		{ 0, "atomics (5.12)" },
		{ BPF_FUNC_get_current_task_btf, "typed tasks (5.11)" },
	};
	static char text[160];
	static int known;
	size_t i, len = 0;

	if (known || !has_programs())
		return text;
	for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (needed[i].helper ? !has_helper(needed[i].helper) : !has_atomics())
			len += snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
					needed[i].name);
	}
	known = 1;
	return text;
}
