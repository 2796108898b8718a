/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_PROBES_H
#define MT_CAPTURE_PROBES_H
/*
 * The BPF programs: loading, attaching to hooks, draining the ring, counters. They run in the
 * kernel, or in a process of ours that has taken a library for it. Knows nothing of what the
 * records mean.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "torch/torch.h"

struct inside_memory;
struct proc_group;
struct probes;

#define PROBES_SETS 32

/* Those that are loaded at this time, to be shared by processes with the same interpreter and the
 * same files. */
struct probes_sets {
	struct probes *set[PROBES_SETS];
	size_t n;
};

struct probes_opts {
	struct proc_group *group; /* whose members' hits are recorded, each under its number; NULL:
				   those of the one process attached to */
	struct probes_sets
		*sets; /* with group: it is listed here as long as it is there; NULL: nowhere */
	struct mt_py_layout py;	      /* all zero: no Python frames */
	size_t ring_bytes;	      /* power of two; 0: the default of 16 MiB */
	struct inside_memory *inside; /* of the process, which runs the programs itself, in the
					 kernel's place; NULL: the kernel does */
	bool empty;		      /* count hits and do nothing else, to measure a bare probe */
	bool verify; /* make every shortened walk once more in full, and count those that differ */
	bool sleepable; /* begin with the sleepable programs */
	bool modules;	/* tell of every call of a module, and of when it is left */
	pid_t pid;	/* without group: the process that will be attached to; 0: none will be */
	bool filter;	/* the programs tell the process from others, even where the kernel can */
	bool seen;	/* begin as after very many code objects: the end of each counts */
	bool atomic;	/* no sleepable programs, even where the kernel has them */
};

/*
 * Loads the programs; finds out first whether the kernel has uprobe.multi, else they are loaded for
 * perf uprobes. NULL with errno; *why (static text) names what the kernel or the user lacks.
 */
struct probes *probes__load(const struct probes_opts *opts, const char **why);
void probes__free(struct probes *p); /* detaches; NULL is fine. Of a shared one the last does */
/* One that is loaded for such an interpreter and is attached nowhere but to these hooks (HOOK_NR),
 * shared from now on; NULL: there is none. */
struct probes *probes__share(const struct probes_sets *sets, const struct mt_py_layout *py,
			     const struct hook *hooks);
struct probes *probes__share_set(struct probes *p); /* this one */
uint32_t probes__group(const struct probes *p);	    /* of proc_group.h; 0: nobody is followed */
bool probes__have_multi(const struct probes *p);
bool probes__sleepable(const struct probes *p);
/*
 * The probes are in every process that maps the files, and the programs drop the hits of others.
 * With a group, and where the kernel's own filter misses threads.
 */
bool probes__everywhere(const struct probes *p);

/* What MEMTRACE_BENCH asks for, for tests and measurements: docs/OVERHEAD.md. */
void probes__from_environment(struct probes_opts *opts);

/*
 * The process that is attached to, as a pidfd of the caller's: the kernel takes numbers, which may
 * be another process's by then. What was attached to nobody knows whom is taken off again, with
 * -ESRCH, and nothing is recorded any more.
 */
void probes__set_process(struct probes *p, int pidfd);
/* Attaches the program of a hook, for this process only, or for all of its group. 0 or -errno. */
int probes__attach(struct probes *p, pid_t pid, const struct hook *h);
bool probes__attached(const struct probes *p, enum hook_id id);
/* The first of these hooks (HOOK_NR) that it is attached to at another place; NULL: it can be
 * shared by processes that have them. */
const struct hook *probes__misfit(const struct probes *p, const struct hook *hooks);
/* Calls in this file have not been attached to so far; from now on they have. Always, where calls
 * are attached for one process. */
bool probes__new_file(struct probes *p, uint32_t dev_major, uint32_t dev_minor, uint64_t inode);
/*
 * Puts the sleepable programs in the place of the others, without a gap: for some milliseconds both
 * run and every hit is recorded twice (mt_hdr.sleepable tells which); the caller drops the twins. 0
 * or -errno.
 */
int probes__go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks);
/* CLOCK_MONOTONIC, ns: until when both ran. 0: they never did. */
uint64_t probes__both_until(const struct probes *p);
/* Where a program goes in a file: offset in bytes and what the program is told about the site. */
struct probe_site {
	uint64_t offset, cookie;
	uint64_t ref_ctr; /* file offset of a USDT's semaphore; 0: none */
};

/* The programs of calls into CUDA, which have any number of sites in any number of files: see
 * calls.bpf.h */
enum call_probe {
	CALL_RETURN, /* cookie: MT_CALL_COOKIE; before CALL_ENTER, so that no entry is kept that
			will not come back */
	CALL_ENTER,
	CALL_SET_DEVICE, /* cookie: number of the function */
	CALL_ASKED,	 /* cookie: index in what probes__set_asked() was given */
};

/* Attaches to all sites of one file (path: as proc__map_path() gives it), for this process or the
 * whole group. 0 or -errno, then to none. */
int probes__attach_calls(struct probes *p, pid_t pid, enum call_probe which, const char *path,
			 const struct probe_site *sites, size_t n);
/*
 * Calls are attached for each process on its own, even where the other probes are everywhere, since
 * return probes would end bystanders that have a seccomp filter. probes__leave_calls() takes out
 * those of one process, before its PID can be another's.
 */
bool probes__calls_each(const struct probes *p);
void probes__leave_calls(struct probes *p, pid_t pid);
/* Where pytorch:malloc's arguments are, by site; before attaching to any. n <= MT_ASKED_SITES. */
void probes__set_asked(struct probes *p, const struct mt_usdt_args *args, size_t n);
/* What else is read of autograd nodes, from now on. number, here and below: of the process, see
 * proc_group.h; 0 where nobody is followed. */
void probes__set_node_layout(struct probes *p, uint32_t number,
			     const struct mt_node_layout *layout);
/* No event is recorded from now on; that code objects are freed still is. */
void probes__stop(struct probes *p);
/* Takes the probes out (some 50 ms). */
void probes__detach(struct probes *p);

/*
 * Calls fn for each record there is, in ring order. fn returns 0 or -errno, which stops. Returns
 * records or -errno. With a group each process's records go to its own feed instead, and those
 * about freed code objects to all.
 */
typedef int (*probes_fn)(void *ctx, const void *rec, size_t len);
int probes__consume(struct probes *p, probes_fn fn, void *ctx);
/* As in bpf_ring.h. */
uint64_t probes__written(const struct probes *p);
uint64_t probes__taken(const struct probes *p);
/* Whose records these are; fn NULL: nobody's any more, they are dropped. */
void probes__feed(struct probes *p, uint32_t number, probes_fn fn, void *ctx);
/* Is called where a record comes for a number that has no feed, which may then be there. */
void probes__on_unknown(struct probes *p, void (*fn)(void *ctx), void *ctx);
/* Readable when a stack has come in that was not known: owned by p. Until the next
 * probes__consume(). */
int probes__wake_fd(const struct probes *p);
/*
 * Goes up after each counter of a lost record, and of a walk that met an absent page, of any
 * process: what the sums below are to be read for at once. They take some microseconds a CPU, so
 * read them when this has changed and about once a second.
 */
uint64_t probes__notices(const struct probes *p);
/* Sums of the per-CPU counters (MT_CNT_*). 0 or -errno. */
int probes__counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR]);
/* Records that have come out of the ring so far, of this type (enum mt_rec_type). */
uint64_t probes__records(const struct probes *p, uint32_t number, unsigned int type);
/* Records about freed code objects that have come in, whoever's. */
uint64_t probes__ends(const struct probes *p);
/* And that were lost. 0 or -errno. */
int probes__lost_ends(struct probes *p, uint64_t *ret);
/* A number begins to stand for another process. */
void probes__reset_counters(struct probes *p, uint32_t number);

/* Code objects whose local 0 is a module. All stacks are sent again: a bump of the epoch, too. */
void probes__set_module_codes(struct probes *p, uint32_t number, const uint64_t *codes, size_t n);
/* Makes all stack ids new, as if a code object had been freed. */
void probes__bump_epoch(struct probes *p);
/*
 * Forgets which code objects are on sent stacks, and makes all stacks be sent again. It is as if
 * PROBES_FORGOTTEN_ENDS records about freed code objects had been lost each time:
 * probes__lost_ends() has them.
 */
#define PROBES_FORGOTTEN_ENDS 2
void probes__forget_seen(struct probes *p);
uint64_t probes__times_forgotten(const struct probes *p);
uint64_t probes__epoch(const struct probes *p); /* as it is at this moment */
uint64_t probes__bumps(const struct probes *p); /* by the two above, so far */
/* Report calls of this module object. 0 or -errno (-E2BIG: enough of them). */
int probes__add_root(struct probes *p, uint32_t number, uint64_t self);
/* Report calls of none any more. */
void probes__clear_roots(struct probes *p, uint32_t number);
/* What a class is, from now on; 0: not known any more. 0 or -errno (-E2BIG: enough of them). */
int probes__set_module_type(struct probes *p, uint32_t number, uint64_t type,
			    enum mt_module_type is);

/* uprobe.multi links of this kernel. Needs CAP_BPF; asked once. */
enum probes_multi {
	PROBES_MULTI_NONE = 1, /* before Linux 6.6 */
	PROBES_MULTI_THREAD,   /* given a PID they run for its main thread alone: 6.6
				  to 6.6.34, 6.7, 6.8, 6.9 to 6.9.4 */
	PROBES_MULTI_PROCESS,
};
enum probes_multi probes__kernel_multi(void);
/* Does it have programs that can wait for pages (uprobe.s, Linux 6.0)? Likewise. */
bool probes__kernel_sleepable(void);
/* The oldest kernel that has all that the programs need, as people write it: "5.17". */
extern const char probes__oldest_kernel[];

#endif
