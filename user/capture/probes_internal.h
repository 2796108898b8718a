/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_PROBES_INTERNAL_H
#define MT_CAPTURE_PROBES_INTERNAL_H
/*
 * What probes.c has of the two places where the programs can run: the kernel (probes_kernel.c), and
 * the process itself (probes_inside.c). Functions return as those of probes.h that are called the
 * same.
 */
#include "capture/demux.h"
#include "capture/probes.h"
#include "capture/bpf_ring.h"

#define RECORD_TYPES 32 /* more than there are */

struct probes_place {
	void (*free)(struct probes *p); /* all of it; it has been detached */
	int (*attach)(struct probes *p, pid_t pid, const struct hook *h);
	bool (*attached)(const struct probes *p, enum hook_id id);
	int (*attach_calls)(struct probes *p, pid_t pid, enum call_probe which, const char *path,
			    const struct probe_site *sites, size_t n);
	void (*detach)(struct probes *p, pid_t pid); /* 0: all; otherwise the calls that were
							attached for this process alone */
	int (*go_sleepable)(struct probes *p, pid_t pid, const struct hook *hooks);
	void (*forget_wake)(struct probes *p); /* what comes in from now on wakes us again */
	void (*consumed)(struct probes *p);    /* there is room in the ring again; may be NULL */
	int (*counters)(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR]);
	void (*zero_counters)(struct probes *p, uint32_t number);
	/* Keys as own_key() of the programs makes them. */
	int (*add_root)(struct probes *p, uint64_t key);
	void (*clear_roots)(struct probes *p, uint32_t number);
	int (*set_module_type)(struct probes *p, uint64_t key, enum mt_module_type is);
};

struct file_id {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

struct place {
	struct file_id file;
	uint64_t offset;
};

struct probes {
	const struct probes_place *in;
	struct bpf_ring *ring;
	int pidfd; /* of the target, the caller's; -1: not told */
	int wake;  /* becomes readable when a program wakes us */
	bool multi, sleepable;
	bool filter; /* without a group: links know no process, the programs do */
	/* The programs' variables that are read and written while they run. */
	struct {
		uint8_t *stopped, *seen_code;
		uint64_t *notices, *code_epoch, *module_code;
		struct mt_usdt_args *asked_args;
		struct mt_node_layout *node_layout;
	} vars;
	probes_fn fn;
	void *ctx;
	struct mt_py_layout py;
	uint64_t bumps, ends, both_until, forgotten;
	struct place at_place[HOOK_NR];
	unsigned int users;
	/* With a group: */
	struct proc_group *group;
	uint32_t group_id; /* as proc_group__new_group() gave it; 0: there is no group */
	struct probes_sets *sets;
	struct file_id *files; /* whose calls are attached to */
	size_t n_files;
	bool calls_each; /* return probes harm processes with a seccomp filter: calls are attached
			    to one process at a time */
	struct demux feeds;
	uint64_t lost_ends; /* of numbers that others have by now */
	/* What probes__lost_ends() counted, and the programs' word before that. */
	uint64_t ends_sum, ends_notices;
	bool ends_known;
	uint64_t records[MT_MEMBERS][RECORD_TYPES]; /* by process and type */
};

/*
 * The process that probes on calls into CUDA go into; 0: every one that has the file mapped. All of
 * them or none at an address: on Linux 6.11 to 6.13 a return probe fires wherever any probe is,
 * whatever process it was attached for.
 */
static inline pid_t probes__calls_pid(const struct probes *p, pid_t pid)
{
	return probes__everywhere(p) && !p->calls_each ? 0 : pid;
}

/* Loads the programs there. p: their struct, the rest of which is set here. NULL with errno and
 * *why. */
struct probes *probes_kernel__load(const struct probes_opts *opts, const char **why);
struct probes *probes_inside__load(const struct probes_opts *opts, const char **why);

#endif
