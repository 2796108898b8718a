/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The programs for host memory in the kernel (bpf/host.bpf.h). Only probes_kernel.c uses them. */
#include <stdbool.h>
#include <stddef.h>

#define HOST_CALLS 6

struct bpf_link;
struct memtrace_bpf;

struct host_programs {
	struct bpf_link *link[HOST_CALLS];
	bool raw; /* the tracepoint sys_exit, which every system call of the machine passes */
};

/* Before loading. raw: use the tracepoint even if the kernel has better. */
void host_programs__prepare(struct host_programs *h, struct memtrace_bpf *skel, bool raw);
/* 0 or -errno. -EOPNOTSUPP: the kernel has neither. */
int host_programs__attach(struct host_programs *h, struct memtrace_bpf *skel);
void host_programs__detach(struct host_programs *h); /* also if it is not attached */
/* Descriptors of the loaded programs; returns their number. */
size_t host_programs__fds(const struct memtrace_bpf *skel, int fds[HOST_CALLS + 1]);
