/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

int features__load_empty(int type, struct bpf_prog_load_opts *opts)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd;

	if (opts)
		bpf_token__use(opts);
	fd = bpf_prog_load(type, "memtrace_ask", "GPL", insns, 2, opts);
	return fd < 0 ? -errno : fd;
}

/* True if the kernel accepted a program, by the result of loading it. Closes the program's
 * descriptor. */
static bool was_loaded(int fd)
{
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* True if programs can use atomic additions that return the old value. An older kernel takes one
 * for an addition that does not return it, with a reserved field set. */
static bool has_atomics(void)
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

	return was_loaded(bpf_prog_load(BPF_PROG_TYPE_KPROBE, "memtrace_ask", "GPL", insns,
					sizeof(insns) / sizeof(insns[0]), NULL));
}

static bool has_helper(enum bpf_func_id id)
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

	/* If no program at all can be loaded, the tests of single features mean nothing. */
	if (known || !was_loaded(features__load_empty(BPF_PROG_TYPE_KPROBE, NULL)))
		return text;
	for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		bool has = needed[i].helper ? has_helper(needed[i].helper) : has_atomics();

		if (!has)
			len += snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
					needed[i].name);
	}
	known = 1;
	return text;
}
