/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel/host_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "capture/bpf_token.h"
#include "memtrace.h"
#include "memtrace.skel.h"

#ifdef __aarch64__
#define SYSCALL_PREFIX "__arm64_sys_"
#else
#define SYSCALL_PREFIX "__x64_sys_"
#endif

/* The programs and the calls at whose end they run. The first three are needed. */
#define PROGRAMS(skel)                                                                             \
	{                                                                                          \
		{ (skel)->progs.host_mmap, SYSCALL_PREFIX "mmap" },                                \
			{ (skel)->progs.host_munmap, SYSCALL_PREFIX "munmap" },                    \
			{ (skel)->progs.host_brk, SYSCALL_PREFIX "brk" },                          \
			{ (skel)->progs.host_mremap, SYSCALL_PREFIX "mremap" },                    \
			{ (skel)->progs.host_mprotect, SYSCALL_PREFIX "mprotect" },                \
			{ (skel)->progs.host_shmat, SYSCALL_PREFIX "shmat" },                      \
	}
#define NEEDED 3

struct host_program {
	struct bpf_program *prog;
	const char *call;
};

/* Loads a program that does nothing for the end of a call. 0 or -errno: some kernels do not let
 * programs run at the ends of functions at all. */
static int try_end(const char *call)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_FEXIT);
	int id = libbpf_find_vmlinux_btf_id(call, BPF_TRACE_FEXIT), fd;

	if (id < 0)
		return id;
	opts.attach_btf_id = (uint32_t)id;
	bpf_token__use(&opts);
	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "memtrace_ask", "GPL", insns, 2, &opts);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

void host_programs__prepare(struct host_programs *h, struct memtrace_bpf *skel, bool raw)
{
	const struct host_program all[] = PROGRAMS(skel);
	int err, can = raw ? -EOPNOTSUPP : try_end(all[0].call);

	for (size_t i = 0; i < HOST_CALLS; i++) {
		bpf_program__set_expected_attach_type(all[i].prog, BPF_TRACE_FEXIT);
		err = can ?: bpf_program__set_attach_target(all[i].prog, 0, all[i].call);
		if (err && !raw)
			log_debug("%s: no program at the end of this function: %s", all[i].call,
				  strerror(-err));
		bpf_program__set_autoload(all[i].prog, !err);
		h->raw |= err && i < NEEDED;
	}
	bpf_program__set_expected_attach_type(skel->progs.host_any, BPF_TRACE_RAW_TP);
	err = bpf_program__set_attach_target(skel->progs.host_any, 0, "sys_exit");
	bpf_program__set_autoload(skel->progs.host_any, !err);
}

static int attach_one(struct host_programs *h, size_t i, struct bpf_program *prog)
{
	h->link[i] = bpf_program__autoload(prog) ? bpf_program__attach_trace(prog) : NULL;
	if (h->link[i])
		return 0;
	return bpf_program__autoload(prog) ? -errno : -EOPNOTSUPP;
}

static int attach_calls(struct host_programs *h, struct memtrace_bpf *skel)
{
	const struct host_program all[] = PROGRAMS(skel);
	int err = 0;

	for (size_t i = 0; i < HOST_CALLS && !err; i++) {
		err = attach_one(h, i, all[i].prog);
		if (err && i >= NEEDED)
			err = 0;
	}
	if (err)
		host_programs__detach(h);
	return err;
}

int host_programs__attach(struct host_programs *h, struct memtrace_bpf *skel)
{
	int err = h->raw ? -EOPNOTSUPP : attach_calls(h, skel);

	if (!err)
		return 0;
	log_debug("host memory: programs at the end of system calls: %s; using the tracepoint "
		  "sys_exit",
		  strerror(-err));
	h->raw = true;
	return attach_one(h, 0, skel->progs.host_any);
}

void host_programs__detach(struct host_programs *h)
{
	for (size_t i = 0; i < HOST_CALLS; i++) {
		bpf_link__destroy(h->link[i]);
		h->link[i] = NULL;
	}
}

size_t host_programs__fds(const struct memtrace_bpf *skel, int fds[HOST_CALLS + 1])
{
	const struct host_program all[] = PROGRAMS(skel);
	size_t n = 0;

	for (size_t i = 0; i < HOST_CALLS; i++)
		fds[n++] = bpf_program__fd(all[i].prog);
	fds[n++] = bpf_program__fd(skel->progs.host_any);
	return n;
}
