/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel/site_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RETPROBE 1	 /* /sys/bus/event_source/devices/uprobe/format/retprobe */
#define REF_CTR_SHIFT 32 /* /sys/bus/event_source/devices/uprobe/format/ref_ctr_offset */

/* Instructions. LOAD64 takes two: it loads a 64-bit constant, or, with src BPF_PSEUDO_MAP_FD, the
 * map with descriptor value. */
#define LOAD64(dst, src, value)                                                                    \
	{ BPF_LD | BPF_DW | BPF_IMM, dst, src, 0, (int32_t)(value) },                              \
	{                                                                                          \
		0, 0, 0, 0, (int32_t)((uint64_t)(value) >> 32)                                     \
	}
#define COPY(dst, src)                                                                             \
	{                                                                                          \
		BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0                                        \
	}
#define SET(dst, value)                                                                            \
	{                                                                                          \
		BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, (int32_t)(value)                           \
	}
#define CALL(helper)                                                                               \
	{                                                                                          \
		BPF_JMP | BPF_CALL, 0, 0, 0, helper                                                \
	}

/* Loads a program that stores its cookie and continues with programs[index]. Kernels that need
 * these programs have no cookies for probes. Returns its descriptor or -errno. */
static int load_program(const struct site_program_maps *maps, uint32_t index, uint64_t cookie)
{
	const struct bpf_insn insns[] = {
		COPY(BPF_REG_6, BPF_REG_1),
		/* *cookies[0] = cookie */
		{ BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 0 },
		LOAD64(BPF_REG_1, BPF_PSEUDO_MAP_FD, maps->cookies),
		COPY(BPF_REG_2, BPF_REG_10),
		{ BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4 },
		CALL(BPF_FUNC_map_lookup_elem),
		{ BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 8, 0 }, /* NULL: to the last SET */
		LOAD64(BPF_REG_1, 0, cookie),
		{ BPF_STX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_1, 0, 0 },
		/* tail_call(ctx, programs, index) */
		COPY(BPF_REG_1, BPF_REG_6),
		LOAD64(BPF_REG_2, BPF_PSEUDO_MAP_FD, maps->programs),
		SET(BPF_REG_3, index),
		CALL(BPF_FUNC_tail_call),
		SET(BPF_REG_0, 0),
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "memtrace_site", "Dual BSD/GPL", insns,
			       sizeof(insns) / sizeof(insns[0]), NULL);

	return fd < 0 ? -errno : fd;
}

/* The type of perf events for uprobes on this kernel. -ENOENT: it has none. */
static int uprobe_type(void)
{
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type = -ENOENT;

	if (file && fscanf(file, "%d", &type) != 1)
		type = -ENOENT;
	if (file)
		fclose(file);
	return type;
}

/* Opens a perf event for hits of a place, by one process or all (pid -1). Returns its descriptor or
 * -errno. */
static int open_uprobe(pid_t pid, const struct uprobe_place *at)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.config = at->ref_ctr << REF_CTR_SHIFT | (at->returns ? RETPROBE : 0),
		.config1 = (uintptr_t)at->path,
		.config2 = at->offset,
	};
	int type = uprobe_type(), fd;

	if (type < 0)
		return type;
	if (at->ref_ctr >> (64 - REF_CTR_SHIFT))
		return -ERANGE;
	attr.type = type;
	/* Without a process the kernel wants a CPU; the probe fires on all of them. */
	fd = syscall(SYS_perf_event_open, &attr, pid, pid == -1 ? 0 : -1, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Attaches a program to a perf event and enables the event. Returns a descriptor that keeps both,
 * or -errno. Owns event. */
static int attach_program(int event, int program, uint64_t cookie)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = cookie);
	int link = -1, err;

	if (cookie) {
		link = bpf_link_create(program, event, BPF_PERF_EVENT, &opts);
		if (link < 0)
			goto failed;
	} else if (ioctl(event, PERF_EVENT_IOC_SET_BPF, program)) {
		goto failed;
	}
	if (ioctl(event, PERF_EVENT_IOC_ENABLE, 0))
		goto failed;
	if (!cookie)
		return event;
	close(event); /* the link keeps it */
	return link;
failed:
	err = -errno;
	close(event);
	if (link >= 0)
		close(link);
	return err;
}

int site_program__probe(int program, pid_t pid, const struct uprobe_place *at)
{
	int fd = open_uprobe(pid, at);

	return fd < 0 ? fd : attach_program(fd, program, at->cookie);
}

int site_program__attach(const struct site_program_maps *maps, uint32_t index, pid_t pid,
			 const struct uprobe_place *at)
{
	struct uprobe_place place = *at;
	int program = load_program(maps, index, at->cookie), fd;

	if (program < 0)
		return program;
	place.cookie = 0;
	fd = site_program__probe(program, pid, &place);
	close(program); /* the event keeps it */
	return fd;
}
