/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The BPF programs: loading, attaching to hooks, draining the ring, counters. They run in the
 * kernel, or in a child of ours that has them as a library. Does not know what records mean. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/cost/cost_control.h"
#include "capture/cost/measure.h"
#include "capture/probes/session_opts.h"
#include "inspect/torch.h"
#include "memtrace.h"

struct probes;

#define PROBES_SETS 32

/*
 * The loaded sets of programs, which processes with the same interpreter and the same files share.
 */
struct probes_sets {
	struct probes *set[PROBES_SETS];
	size_t n;
};

struct probes_opts {
	/* Programs that steps_only and no_autograd exclude are loaded when a hook needs them. */
	struct session_opts capture;
	struct mt_py_layout py; /* the interpreter's layout; all zero: no Python frames */
	bool empty;		/* count hits and do nothing else, to measure the cost of a probe */
	bool verify;	/* repeat every shortened walk in full and count those that differ */
	bool sleepable; /* begin with the programs that can wait for pages */
	bool modules;	/* record every call of a module and its end */
	bool all;	/* load all programs, to see whether the kernel accepts them */
	pid_t pid;	/* without group: the process to attach to; 0: none */
	bool filter;	/* the programs filter by process, even if the kernel can */
	bool seen;	/* begin with the marks of all code objects set, so that each end counts */
	bool atomic; /* without the programs that can wait for pages, even if the kernel has them */
	bool perf;   /* perf uprobes, even if the kernel has uprobe.multi links */
	bool returns;  /* return probes on malloc, even if the kernel has uprobe.session links */
	bool old;      /* the programs for older kernels, even if this one can run the others */
	bool host_raw; /* probes__attach_host() uses the tracepoint sys_exit, even if the kernel has
			  fexit */
};

/* Loads the programs, for uprobe.multi or, without it in the kernel, for perf uprobes. NULL with
 * errno; *why (static text) names what the kernel or the user lacks. */
struct probes *probes__load(const struct probes_opts *opts, const char **why);
/* Detaches the probes unless they are shared; accepts NULL. */
void probes__free(struct probes *probes);
/* A listed set for the same interpreter that is attached to no other hooks than these (HOOK_NR),
 * shared from now on; NULL: no such set. */
struct probes *probes__share(const struct probes_sets *sets, const struct mt_py_layout *py,
			     const struct hook *hooks);
struct probes *probes__share_set(struct probes *probes); /* shares this set */
/* Number of these programs in the group of processes (proc_group.h); 0: without a group. */
uint32_t probes__group(const struct probes *probes);
/* True if the probes use uprobe.multi links. */
bool probes__have_multi(const struct probes *probes);
bool probes__sleepable(const struct probes *probes); /* true if the programs can wait for pages */
/* True if these are the programs for kernels that lack a feature of features__missing(). */
bool probes__old(const struct probes *probes);
/* True if the probes are in every process that maps the files, and the programs drop other
 * processes' hits: with a group, and if the kernel's filter misses threads. */
bool probes__everywhere(const struct probes *probes);

/* Sets the options that MEMTRACE_BENCH asks for, for tests and measurements:
 * docs/internals/OVERHEAD.md. */
void probes__from_environment(struct probes_opts *opts);

/*
 * The process to attach to, by a pidfd of the caller's. The kernel takes PIDs, which may get to
 * another process meanwhile: then attaching fails with -ESRCH, the new probes are removed, and
 * nothing is recorded any more.
 */
void probes__set_process(struct probes *probes, int pidfd);
/*
 * Attaches the program of a hook, for the process or its whole group. A hook that a process can
 * choose (hook.fixed is false) is attached for that process alone, also in a group; then its
 * children do not have it. 0 or -errno. -EXDEV: links by PID miss threads here, so the probe would
 * be in other processes, too. -ENOSPC: too many processes have it by themselves
 * at that place.
 */
int probes__attach(struct probes *probes, pid_t pid, const struct hook *hook);
/* True if the hook is attached for this process. */
bool probes__attached(const struct probes *probes, pid_t pid, enum hook_id id);
/* The first of these hooks (HOOK_NR) that is attached at another place; NULL: a process with these
 * hooks can share the programs. */
const struct hook *probes__misfit(const struct probes *probes, const struct hook *hooks);
/* Begins to load the programs for probes__go_sleepable(), so that it is quick. */
void probes__prepare_sleepable(struct probes *probes);
/*
 * Replaces the programs by those that can wait for pages, without a gap. For some milliseconds both
 * run and every hit is recorded twice (mt_hdr.sleepable tells which); the caller drops the second
 * records. 0, -errno, or -EINPROGRESS: the programs are being loaded, call it again. -EOPNOTSUPP:
 * there are no such programs, or links that serve all processes would move to a place that this
 * process chooses (hook.fixed is false).
 */
int probes__go_sleepable(struct probes *probes, pid_t pid, const struct hook *hooks);
/* Time until which the programs and their sleepable twins ran both, CLOCK_MONOTONIC, ns. 0: never. */
uint64_t probes__both_until(const struct probes *probes);
/* A place for a probe in a file: offset in bytes, and a cookie for the program. */
struct probe_site {
	uint64_t offset, cookie;
	uint64_t ref_ctr; /* file offset of a USDT's semaphore; 0: none */
	struct site_second second;
};

#define PROBES_SITES_MAX 128 /* sites of probes__attach_calls() */

/* The programs of calls into CUDA, for any number of sites in any number of files: calls.bpf.h. */
enum call_probe {
	CALL_RETURN, /* cookie: MT_CALL_COOKIE; attach it before CALL_ENTER, so that each entry has
			a return */
	CALL_ENTER,
	CALL_SET_DEVICE, /* a function that sets the current device; cookie: the function's number */
	CALL_ASKED,	 /* pytorch:malloc; cookie: index in the arguments of probes__set_asked() */
	CALL_USDT_SCOPE, /* USDT probes that begin and end scopes; cookie: MT_SCOPE_COOKIE */
	/* Functions of malloc (malloc.bpf.h); cookie: enum mt_malloc_how. Those that give blocks
	 * have CALL_MALLOC if probes__has_sessions(), otherwise CALL_MALLOC_RETURN and
	 * CALL_MALLOC_ENTER. */
	CALL_MALLOC,
	CALL_MALLOC_RETURN,
	CALL_MALLOC_ENTER,
	CALL_MALLOC_FREE,
};

/* A mapped file with calls. */
struct call_file {
	const struct elf *elf; /* borrowed */
	uint64_t inode;	       /* as mapped */
	uint32_t dev_major, dev_minor;
};

/* Attaches to all sites of a file, for the process or its whole group. 0, or -errno: attached to
 * none. -EXDEV: as for probes__attach(). */
int probes__attach_calls(struct probes *probes, pid_t pid, enum call_probe which,
			 const struct call_file *file, const struct probe_site *sites, size_t n);
/* True if calls into a file are attached for each process by itself, even with a group: return
 * probes would end other processes that have a seccomp filter, or the file could not be opened.
 * file NULL: calls into all files are. */
bool probes__calls_each(const struct probes *probes, const struct call_file *file);
/* True for the first call with this file, so that the caller attaches to its calls, or to its USDT
 * probes of scopes. Always true if probes__calls_each() is. */
bool probes__new_file(struct probes *probes, const struct call_file *file, bool scopes);
/* Removes the probes that a group's process has for itself. Call it before its PID can be reused. */
void probes__leave(struct probes *probes, pid_t pid);
/*
 * Sets where pytorch:malloc's arguments are, by site, before attaching to it. n <= MT_ASKED_SITES.
 */
void probes__set_asked(struct probes *probes, const struct mt_usdt_args *args, size_t n);
/* True if one link probes the entry of a function and the returns that its program asks for, so
 * that other calls pay no return probe: Linux 6.13 and newer. */
bool probes__has_sessions(const struct probes *probes);
/* Makes the probes on malloc choose one byte in `every` (at most 2^31); 0: they only count calls.
 * Needs session_opts.malloc_probes. */
void probes__sample_malloc(struct probes *probes, uint64_t every);
/* Adds the code of a function of malloc at these addresses, whose calls are parts of another. No
 * effect when there are MT_MALLOC_RANGES. */
void probes__add_malloc_code(struct probes *probes, uint64_t begin, uint64_t end);
/* Removes the probes on malloc. */
void probes__detach_malloc(struct probes *probes);
/* Sets how many native stacks (struct mt_rec_native) are copied in a second, over all processes of
 * these programs. 0: none. Without effect for programs that run in the process itself. */
void probes__copy_stacks(struct probes *probes, uint32_t most);
/* Also copies the native stack of each allocation of PyTorch of at least `bytes`, not 0. */
void probes__copy_stacks_from(struct probes *probes, uint64_t bytes);
/* Copies no stacks of calls from the code at these addresses. Without effect with a group. */
void probes__copy_no_stacks_of(struct probes *probes, uint64_t begin, uint64_t end);
/*
 * Records the system calls that change the address space, of the process or its whole group. Needs
 * session_opts.host. *way: "fexit" (at the end of these calls) or "sys_exit" (the tracepoint that
 * every system call passes). 0 or -errno; -EOPNOTSUPP: not possible here.
 */
int probes__attach_host(struct probes *probes, const char **way);
/* Sets which words of autograd nodes are read from now on. number, here and below: the number of
 * the process in its group (proc_group.h); 0: without group. */
void probes__set_node_layout(struct probes *probes, uint32_t number,
			     const struct mt_node_layout *layout);
/* Stops recording events. Ends of code objects are still recorded. */
void probes__stop(struct probes *probes);
/* Begins to remove the probes. Only probes__detach() may follow, and probes__free(). */
void probes__begin_detach(struct probes *probes);
/* Removes the probes (about 80 ms). */
void probes__detach(struct probes *probes);

/*
 * Calls fn for each record, in the order of the ring. fn returns 0, or -errno to stop. Returns the
 * number of records, or -errno. With a group, each process's records go to its own feed instead,
 * and ends of code objects to all feeds.
 */
typedef int (*probes_fn)(void *ctx, const void *rec, size_t len);
int probes__consume(struct probes *probes, probes_fn fn, void *ctx);
/* Bytes that the programs have written to the ring, and that probes__consume() has read from it,
 * since the beginning. */
uint64_t probes__written(const struct probes *probes);
uint64_t probes__taken(const struct probes *probes);
/* Sets the function that gets the records of a process; fn NULL: they are dropped. */
void probes__feed(struct probes *probes, uint32_t number, probes_fn fn, void *ctx);
/* Sets a function to call when a record has a number without a feed; it may add the feed. */
void probes__on_unknown(struct probes *probes, void (*fn)(void *ctx), void *ctx);
/* A descriptor that is readable after a new stack came, until the next probes__consume(). Owned by
 * probes. */
int probes__wake_fd(const struct probes *probes);
/*
 * A number that changes after a record got lost or a walk met an absent page, in any process. Read
 * the counters, which takes some microseconds for each CPU, when it has changed and about once a
 * second.
 */
uint64_t probes__notices(const struct probes *probes);
/* Moves the addresses that walks of this process could not read since the last call to addrs.
 * Returns their number. */
size_t probes__take_absent(struct probes *probes, uint32_t number, uint64_t addrs[MT_ABSENT]);
/* Sums of the per-CPU counters (MT_CNT_*). 0 or -errno. */
int probes__counters(const struct probes *probes, uint32_t number, uint64_t counters[MT_CNT_NR]);
/* Hits for which the kernel ran no program, programs__skipped(), of all processes of these
 * programs: of probes, and of system calls that change the address space. */
struct probes_skipped {
	uint64_t events, host;
};
struct probes_skipped probes__skipped(const struct probes *probes);
/* True if the programs count hits and write no records: see struct probes_opts. */
bool probes__empty(const struct probes *probes);
/* In the process itself: sets breakpoints again that other tools have removed. Returns how many;
 * their hits since the last look are not known. */
size_t probes__renew(struct probes *probes);
/* Records of this type (enum mt_rec_type) drained so far. */
uint64_t probes__records(const struct probes *probes, uint32_t number, unsigned int type);
/* Records about freed code objects drained so far, of all processes. */
uint64_t probes__ends(const struct probes *probes);
/* Such records that got lost. 0 or -errno. */
int probes__lost_ends(struct probes *probes, uint64_t *ret);
/* Clears a number's counters, before it stands for another process. */
void probes__reset_counters(struct probes *probes, uint32_t number);

/* Sets the code objects whose local 0 is a module. Bumps the epoch, so that all stacks are sent
 * again. */
void probes__set_module_codes(struct probes *probes, uint32_t process_number, const uint64_t *codes,
			      size_t n);
/* Raises the epoch as if a code object had been freed, so that all stacks are sent again. */
void probes__bump_epoch(struct probes *probes);
/* Forgets which code objects are on sent stacks, and raises the epoch. probes__lost_ends() counts
 * that as PROBES_FORGOTTEN_ENDS lost records each time. */
#define PROBES_FORGOTTEN_ENDS 2
void probes__forget_seen(struct probes *probes);
uint64_t probes__times_forgotten(const struct probes *probes);
uint64_t probes__epoch(const struct probes *probes); /* the current epoch */
uint64_t probes__bumps(const struct probes *probes); /* raised by the functions above so far */
/* Reports calls of the module object `self` of this process from now on. Returns 0 or -errno
 * (-E2BIG: the table is full). */
int probes__add_root(struct probes *probes, uint32_t process_number, uint64_t self);
/* Reports calls of no module object of this process any more. */
void probes__clear_roots(struct probes *probes, uint32_t process_number);
/* Sets what a class is from now on; 0: unknown. 0 or -errno (-E2BIG: the table is full). */
int probes__set_module_type(struct probes *probes, uint32_t process_number, uint64_t type,
			    enum mt_module_type is);

/* Makes the programs forget the nodes and modules that threads are in, since some were entered
 * unseen. They find them on the stack again. */
void probes__forget_calls(struct probes *probes);
/*
 * Asks for a level of detail (capture/cost/cost_control.h) for the process. Programs that several
 * processes share take the highest. keep_modules: calls of modules stay, since steps are counted by
 * them. hooks: the process's, to probe again what comes back. Without effect for programs that run
 * in the process itself.
 */
void probes__want_level(struct probes *probes, uint32_t number, unsigned int level,
			bool keep_modules, pid_t pid, const struct hook *hooks);
/* True if the hook is not probed because of the level. */
bool probes__is_off(const struct probes *probes, enum hook_id id);
/* Returns the detail that the programs leave out now. */
struct cost_detail probes__detail(const struct probes *probes);
/* Time in the programs by enum mt_rec_type, of some of the hits of all processes; NULL: unknown. */
const struct mt_timed *probes__timed(const struct probes *probes);
/* The cost of a hit on this host. Needs CAP_BPF and CAP_PERFMON; found out once for each pace, in
 * about 60 ms. 0 or -errno. */
int probes__hit_cost(enum hit_pace pace, struct hit_cost *ret);
/* The costs of all kinds of places (HIT_SITES), measured once, in about 0.1 s. Needs the same
 * capabilities, and one thread. NULL: they cannot be measured. */
const struct hit_site_cost *probes__site_costs(void);
/* True if the kernel replaces a probed 10-byte nop with a call, and a probe on one of ours showed
 * that this does no harm. Measures as probes__site_costs() does. */
bool probes__nop_is_call(void);

/* Support of this kernel for uprobe.multi links to one PID. */
enum probes_multi {
	PROBES_MULTI_NONE = 1, /* before Linux 6.6 */
	PROBES_MULTI_THREAD,   /* only hits of the PID's main thread: 6.6 to 6.6.34, 6.7, 6.8, 6.9
				  to 6.9.4 */
	PROBES_MULTI_PROCESS,
};
enum probes_multi probes__kernel_multi(void);
/* True if probes are perf uprobes, which need CAP_SYS_ADMIN: this kernel has no uprobe.multi links,
 * or those for one process miss threads and this process has CAP_SYS_ADMIN, or it needs the
 * programs for older kernels. Needs CAP_BPF. */
bool probes__kernel_perf(void);
/* True if this kernel has programs that can wait for pages (uprobe.s, Linux 6.0). Needs CAP_BPF;
 * found out once. */
bool probes__kernel_sleepable(void);
/* The oldest kernel that can run the programs, as text: "5.10". */
extern const char probes__oldest_kernel[];
