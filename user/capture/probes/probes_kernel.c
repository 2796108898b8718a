/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Runs the programs in the kernel, by libbpf, links and maps: one of the two struct
 * probes_place. */
#include "capture/probes/probes_internal.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "capture/kernel.h"
#include "capture/kernel/holder.h"
#include "capture/kernel/programs.h"
#include "capture/kernel/site_program.h"
#include "capture/probes/proc_group.h"
#include "inspect/container.h"
#include "memtrace.h"
#include "memtrace.skel.h"
#include "memtrace_old.skel.h"

/* ---- the programs for host memory (bpf/host.bpf.h) ---- */

#define HOST_CALLS 6

struct host_programs {
	struct bpf_link *link[HOST_CALLS];
	bool raw; /* uses the tracepoint sys_exit, which every system call of the machine passes */
};

#ifdef __aarch64__
#define SYSCALL_PREFIX "__arm64_sys_"
#else
#define SYSCALL_PREFIX "__x64_sys_"
#endif

/* The programs for host memory, and the system calls at whose end they run. The first NEEDED ones
 * must be possible. */
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
	const char *call; /* the kernel's function of the system call */
};

/* Tries to load a program that does nothing, to run when this function of the kernel ends. 0 or
 * -errno: some kernels do not let programs run at the ends of functions at all. */
static int try_fexit(const char *call)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_FEXIT);
	int id = libbpf_find_vmlinux_btf_id(call, BPF_TRACE_FEXIT), fd;

	if (id < 0)
		return id;
	opts.attach_btf_id = (uint32_t)id;
	fd = features__load_empty(BPF_PROG_TYPE_TRACING, &opts);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Chooses which programs for host memory are loaded with skel. raw: use the tracepoint even if
 * programs can run at the ends of functions. */
static void host_programs__prepare(struct host_programs *programs, struct memtrace_bpf *skel,
				   bool raw)
{
	const struct host_program all[] = PROGRAMS(skel);
	int err, can = raw ? -EOPNOTSUPP : try_fexit(all[0].call);

	for (size_t i = 0; i < HOST_CALLS; i++) {
		bpf_program__set_expected_attach_type(all[i].prog, BPF_TRACE_FEXIT);
		err = can ?: bpf_program__set_attach_target(all[i].prog, 0, all[i].call);
		if (err && !raw)
			log_debug("%s: no program at the end of this function: %s", all[i].call,
				  strerror(-err));
		bpf_program__set_autoload(all[i].prog, !err);
		programs->raw |= err && i < NEEDED;
	}
	bpf_program__set_expected_attach_type(skel->progs.host_any, BPF_TRACE_RAW_TP);
	err = bpf_program__set_attach_target(skel->progs.host_any, 0, "sys_exit");
	bpf_program__set_autoload(skel->progs.host_any, !err);
}

/* Attaches program i. 0; -EOPNOTSUPP: it is not loaded; or -errno. */
static int attach_host_call(struct host_programs *programs, size_t i, struct bpf_program *prog)
{
	programs->link[i] = bpf_program__autoload(prog) ? bpf_program__attach_trace(prog) : NULL;
	if (programs->link[i])
		return 0;
	return bpf_program__autoload(prog) ? -errno : -EOPNOTSUPP;
}

/* Detaches the programs for host memory that are attached. */
static void host_programs__detach(struct host_programs *programs)
{
	for (size_t i = 0; i < HOST_CALLS; i++) {
		bpf_link__destroy(programs->link[i]);
		programs->link[i] = NULL;
	}
}

/* Attaches the programs of host memory; those from NEEDED on are optional. 0, or -errno: none is
 * attached. */
static int attach_host_calls(struct host_programs *programs, struct memtrace_bpf *skel)
{
	const struct host_program all[] = PROGRAMS(skel);
	int err = 0;

	for (size_t i = 0; i < HOST_CALLS && !err; i++) {
		err = attach_host_call(programs, i, all[i].prog);
		if (err && i >= NEEDED)
			err = 0;
	}
	if (err)
		host_programs__detach(programs);
	return err;
}

/* Attaches the programs for host memory. 0 or -errno. -EOPNOTSUPP: they can run neither at the
 * ends of system calls nor on the tracepoint. */
static int host_programs__attach(struct host_programs *programs, struct memtrace_bpf *skel)
{
	int err = programs->raw ? -EOPNOTSUPP : attach_host_calls(programs, skel);

	if (!err)
		return 0;
	log_debug("host memory: programs at the end of system calls: %s; using the tracepoint "
		  "sys_exit",
		  strerror(-err));
	programs->raw = true;
	return attach_host_call(programs, 0, skel->progs.host_any);
}

/* Sets fds to the descriptors of the programs for host memory, negative for those that are not
 * loaded. Returns their number. */
static size_t host_programs__fds(const struct memtrace_bpf *skel, int fds[HOST_CALLS + 1])
{
	const struct host_program all[] = PROGRAMS(skel);
	size_t n = 0;

	for (size_t i = 0; i < HOST_CALLS; i++)
		fds[n++] = bpf_program__fd(all[i].prog);
	fds[n++] = bpf_program__fd(skel->progs.host_any);
	return n;
}

/* uprobe.multi links (Linux 6.6) are younger than Debian 12's headers. These values are the
 * kernel's, include/uapi/linux/bpf.h. */
#define LINK_CREATE 28
#define TRACE_UPROBE_MULTI 48
#define TRACE_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN 1

#define OWN_TABLES 64 /* links whose descriptors each have a thread: holder.h */
/* Processes that have a probe for themselves at one place: each hit passes all of these probes. */
#define OWN_MAX 8
/* Instead of OWN_MAX, for a file that could not be opened: no other process hits its probes. */
#define OWN_MEMORY_MAX 32

struct link_create_uprobe_multi {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, uflags, pid, pad;
};
_Static_assert(sizeof(struct link_create_uprobe_multi) == 64, "layout of BPF_LINK_CREATE");

#define CALL_FILES_MAX 4096

/* A probe, or the probes on calls in one file. */
struct attachment {
	struct holder *link; /* holds the link's descriptor; NULL: it is not attached */
	pid_t pid;	     /* the process that the probe is for; 0: all processes */
	bool is_hook;	     /* in .listed: a hook of this process; false: calls */
	bool is_malloc;	     /* calls of malloc */
	enum hook_id id;     /* with is_hook */
	struct place place;  /* with is_hook: where the hook is attached */
};

struct kernel_probes {
	struct probes p;		/* first */
	struct memtrace_bpf *skel;	/* maps and variables; its programs are not loaded */
	struct programs *programs;	/* all programs but .twins */
	struct programs *twins;		/* the sleepable programs; NULL: not needed yet */
	bool atomic;			/* never use .twins */
	struct bpf_link *thread_gone;	/* for older kernels: its program runs when a thread ends */
	struct site_program_maps sites; /* with the same programs */
	struct attachment at[HOOK_NR][2]; /* by hook; [1]: attached with the program of .twins */
	struct attachment *listed;	  /* calls into CUDA, and hooks of single processes */
	size_t n_listed, cap_listed;
	/* With a group: the programs' group_counters, mapped. */
	uint64_t (*counters)[MT_CNT_NR];
	uint32_t stripes; /* copies of the counters for each process */
	int types;	  /* descriptor of the file of no_types(); -1: none */
	struct host_programs host;
};

/* The struct that probes begins. */
static struct kernel_probes *kernel_of(const struct probes *probes)
{
	return (struct kernel_probes *)probes;
}

/* Makes a uprobe.multi link. attach_type 0: the usual one. Returns its descriptor or -errno. */
static long link_create(struct link_create_uprobe_multi *attr)
{
	long fd;

	attr->attach_type = attr->attach_type ?: TRACE_UPROBE_MULTI;
	fd = syscall(__NR_bpf, LINK_CREATE, attr, sizeof(*attr));
	return fd < 0 ? -errno : fd;
}

/* Makes a uprobe.multi link for one place in a file, by path. pid 0: for all processes. */
static long link_create_multi(int prog_fd, const char *path, uint64_t offset, uint64_t cookie,
			      pid_t pid)
{
	struct link_create_uprobe_multi attr = {
		.prog_fd = prog_fd,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)&offset,
		.cookies = (uintptr_t)&cookie,
		.cnt = 1,
		.pid = pid,
	};

	return link_create(&attr);
}

/* Tries to make a uprobe.multi link that cannot work. Returns the kernel's error, which tells what
 * it supports. */
static long try_multi(int prog_fd, pid_t pid)
{
	long fd = link_create_multi(prog_fd, "/", 0, 0, pid);

	if (fd >= 0)
		close(fd);
	return fd;
}

/*
 * Programs loaded for uprobe.multi cannot be attached through perf, so find this out before
 * loading. "/" is not a regular file: a kernel with these links answers EBADF, one without them
 * EINVAL. Kernels whose links filter by process check the PID first: they answer EINVAL to -1.
 */
enum probes_multi probes__kernel_multi(void)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = TRACE_UPROBE_MULTI);
	static enum probes_multi known;
	int fd;

	if (known)
		return known;
	fd = features__load_empty(BPF_PROG_TYPE_KPROBE, &opts);
	if (fd < 0)
		return PROBES_MULTI_NONE;
	known = PROBES_MULTI_NONE;
	if (try_multi(fd, 0) == -EBADF)
		known = try_multi(fd, -1) == -EINVAL ? PROBES_MULTI_PROCESS : PROBES_MULTI_THREAD;
	close(fd);
	return known;
}

/* A hit_cost_probe of capture/cost/hit_cost.h. */
static int probe_self(const struct hit_place *at)
{
	const struct uprobe_place place = { .path = "/proc/self/exe",
					    .offset = at->offset,
					    .ref_ctr = at->ref_ctr,
					    .returns = at->returns };
	struct link_create_uprobe_multi attr = { .path = (uintptr_t)place.path,
						 .offsets = (uintptr_t)&place.offset,
						 .cnt = 1,
						 .pid = getpid() };
	bool multi = !probes__kernel_perf();
	LIBBPF_OPTS(bpf_prog_load_opts, opts,
		    .expected_attach_type = multi ? TRACE_UPROBE_MULTI : 0);
	int program = features__load_empty(BPF_PROG_TYPE_KPROBE, &opts), fd;

	if (program < 0)
		return program;
	attr.prog_fd = program;
	if (at->ref_ctr)
		attr.ref_ctr_offsets = (uintptr_t)&place.ref_ctr;
	if (at->returns)
		attr.uflags = UPROBE_MULTI_RETURN;
	fd = multi ? (int)link_create(&attr) : site_program__probe(program, 0, &place);
	close(program);
	return fd;
}

int probes__hit_cost(enum hit_pace pace, struct hit_cost *ret)
{
	static struct hit_cost all[2];
	struct hit_cost *known = &all[pace == HIT_OFTEN];
	int err = known->emulated ? 0 : hit_cost__measure(probe_self, pace, known);

	if (!err)
		*ret = *known;
	return err;
}

const struct hit_site_cost *probes__site_costs(void)
{
	static struct hit_site_cost costs[HIT_SITES];
	static bool known;

	if (!known && hit_cost__sites(probe_self, costs))
		return NULL;
	known = true;
	return costs;
}

bool probes__nop_is_call(void)
{
	const struct hit_site_cost *costs = probes__site_costs();

	return costs && costs[HIT_NOP10].call && hit_site__is_safe(&costs[HIT_NOP10]);
}

/* True if this kernel has uprobe.session links (Linux 6.13). Found out once. */
static bool kernel_has_sessions(void)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = TRACE_UPROBE_SESSION);
	static int known = -1;
	int fd;

	if (known >= 0)
		return known;
	fd = features__load_empty(BPF_PROG_TYPE_KPROBE, &opts);
	known = fd >= 0;
	if (fd >= 0)
		close(fd);
	return known;
}

static bool needs_old(const struct probes_opts *opts)
{
	return opts->old || *features__missing();
}

/* True if perf's uprobes are better than uprobe.multi links: for one process, on a kernel where
 * these links miss threads, and with the right to use perf's, which filter by process as they
 * should. Without that right, links are in every process that maps the file. */
static bool prefers_perf(const struct probes_opts *opts)
{
	return !opts->capture.group && !opts->filter &&
	       probes__kernel_multi() == PROBES_MULTI_THREAD && caps__sys_admin();
}

bool probes__kernel_perf(void)
{
	struct probes_opts opts = { 0 };

	probes__from_environment(&opts);
	return needs_old(&opts) || opts.perf || probes__kernel_multi() == PROBES_MULTI_NONE ||
	       prefers_perf(&opts);
}

bool probes__kernel_sleepable(void)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .prog_flags = BPF_F_SLEEPABLE);
	static int known = -1;
	int fd;

	if (known >= 0)
		return known;
	fd = features__load_empty(BPF_PROG_TYPE_KPROBE, &opts);
	if (fd >= 0)
		close(fd);
	else if (fd != -EINVAL)
		return false; /* no program can be loaded */
	known = fd >= 0;
	return known;
}

/* The name of a hook's program, or of its sleepable twin; NULL: it has no twin, since it reads no
 * memory of the target. */
static const char *program_name(enum hook_id id, bool sleepable)
{
#define NAMES(id, program, twin, record, off, name)                                                \
	[HOOK_##id] = { #program, twin ? #program "_s" : NULL },
	static const char *const names[HOOK_NR][2] = { MT_HOOKS(NAMES) };
#undef NAMES

	return names[id][sleepable];
}

/* Name of the program of a call. */
static const char *call_name(enum call_probe which)
{
	static const char *const names[] = {
		[CALL_RETURN] = "call_return",		[CALL_ENTER] = "call_enter",
		[CALL_SET_DEVICE] = "set_device",	[CALL_ASKED] = "asked",
		[CALL_USDT_SCOPE] = "usdt_scope",	[CALL_MALLOC] = PROGRAMS_SESSION,
		[CALL_MALLOC_RETURN] = "malloc_return", [CALL_MALLOC_ENTER] = "malloc_enter",
		[CALL_MALLOC_FREE] = "malloc_free"
	};

	return names[which];
}

/* Sets names to the names of all sleepable twins. Returns their number. */
static size_t twin_names(const char *names[HOOK_NR])
{
	size_t n = 0;

	for (int i = 0; i < HOOK_NR; i++) {
		names[n] = program_name(i, /*sleepable=*/true);
		n += names[n] != NULL;
	}
	return n;
}

#define FIRST_MAX (HOOK_NR + 6)

/* Puts the programs whose verification takes longest (9 to 40 ms, others below 4) before the
 * others, the longest first. programs__load() deals them out to threads in turn, so that the
 * threads end at about the same time. */
static void put_longest_first(const char **names, size_t n)
{
	const char *const longest[] = {
		program_name(HOOK_MODULE_CALL, /*sleepable=*/false),
		program_name(HOOK_REPORT, /*sleepable=*/false),
		program_name(HOOK_OOM, /*sleepable=*/false),
		program_name(HOOK_EDGE, /*sleepable=*/false),
		program_name(HOOK_CPU_NEW, /*sleepable=*/false),
		call_name(CALL_ENTER),
		program_name(HOOK_SCOPE_END, /*sleepable=*/false),
	};
	size_t n_first = 0;

	for (size_t i = 0; i < sizeof(longest) / sizeof(longest[0]); i++) {
		for (size_t k = n_first; k < n; k++) {
			const char *name = names[k];

			if (strcmp(name, longest[i]))
				continue;
			memmove(&names[n_first + 1], &names[n_first],
				(k - n_first) * sizeof(*names));
			names[n_first++] = name;
			break;
		}
	}
}

/* Sets names to the names of the programs that nearly every capture needs, those first whose
 * verification takes longest. old: of the programs for older kernels. Returns their number. */
static size_t first_names(const struct probes_opts *opts, bool old, const char *names[FIRST_MAX])
{
	static const enum hook_id all[] = {
		HOOK_MODULE_CALL, HOOK_SCOPE_END, HOOK_SCOPE_BEGIN,	      HOOK_RANGE_POP,
		HOOK_RANGE_PUSH,  HOOK_CODE_GONE, MT_ALLOCATOR_HOOKS(HOOK_ID)
	};
	static const enum hook_id steps[] = { HOOK_SCOPE_END, HOOK_MODULE_CALL, HOOK_CODE_GONE };
	size_t n = 0;

	if (opts->capture.steps_only) {
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			names[n++] = program_name(steps[i], /*sleepable=*/false);
	} else {
		if (!opts->capture.no_autograd) {
			names[n++] = program_name(HOOK_EDGE, /*sleepable=*/false);
			names[n++] = program_name(HOOK_EVALUATE, /*sleepable=*/false);
		}
		for (size_t i = sizeof(all) / sizeof(all[0]); i > 0; i--)
			names[n++] = program_name(all[i - 1], /*sleepable=*/false);
	}
	if (!opts->capture.steps_only || old) {
		names[n++] = call_name(CALL_ENTER);
		names[n++] = call_name(CALL_RETURN);
		names[n++] = call_name(CALL_SET_DEVICE);
	}
	if (old || opts->all) {
		names[n++] = call_name(CALL_ASKED);
		names[n++] = call_name(CALL_USDT_SCOPE);
		names[n++] = program_name(HOOK_MODULE_BOUND, /*sleepable=*/false);
	}
	if (old)
		names[n++] = "thread_gone";
	put_longest_first(names, n);
	return n;
}

/* The descriptor of the program with this name, which is loaded if it is not loaded yet; or
 * -errno. */
static int program_fd(const struct probes *probes, const char *name)
{
	struct programs *programs = kernel_of(probes)->programs;
	int err = programs__get(programs, name) ? 0 : programs__load(programs, &name, 1);

	return err ?: bpf_program__fd(programs__get(programs, name));
}

const char probes__oldest_kernel[] = "5.10";

static bool reads_kernel; /* the programs that are being loaded read the kernel's memory */
static bool locked_down;  /* the kernel is locked down, which is why loading failed */

/* True if the kernel is older than the oldest that is supported. */
static bool too_old(void)
{
	int major = 0, minor = 0, oldest_major = 0, oldest_minor = 0;
	struct utsname un;

	if (uname(&un) || sscanf(un.release, "%d.%d", &major, &minor) != 2 ||
	    sscanf(probes__oldest_kernel, "%d.%d", &oldest_major, &oldest_minor) != 2)
		return false;
	return major < oldest_major || (major == oldest_major && minor < oldest_minor);
}

/* Why loading the programs failed with err, as static text for the user. */
static const char *load_why(int err)
{
	static char text[160];

	if (locked_down && *features__missing())
		return "this kernel is locked down (lockdown=confidentiality), and the BPF "
		       "programs for kernels of its age must read its memory; boot with "
		       "lockdown=integrity or none";
	if (locked_down)
		return "this kernel is locked down (lockdown=confidentiality), so inside a "
		       "container the BPF programs cannot tell processes apart; run memtrace-bpf "
		       "on the host";
	if ((err == -EPERM || err == -EACCES) && bpf_token__state() >= BPF_TOKEN_NOT_DELEGATED)
		return bpf_token__text(bpf_token__state());
	/* With all capabilities, EACCES comes from the verifier. */
	if (err == -EPERM || (err == -EACCES && *caps__missing())) {
		snprintf(text, sizeof(text),
			 "loading BPF programs is not permitted: %s needed; run it with sudo",
			 *caps__missing() ? caps__missing() : "CAP_BPF and CAP_PERFMON");
		return text;
	}
	if (err == -ENOENT || err == -ESRCH)
		return "the kernel shows no BTF (/sys/kernel/btf/vmlinux): it must be built with "
		       "CONFIG_DEBUG_INFO_BTF";
	if (too_old()) {
		snprintf(text, sizeof(text),
			 "this kernel is too old for the BPF programs: Linux %s or newer is needed",
			 probes__oldest_kernel);
		return text;
	}
	return "the kernel refused the BPF programs; -v shows the kernel's message";
}

/* Makes probes->wake, which is readable when a program wakes us. The ring itself is readable while
 * it has any record, which is nearly always. */
static int open_wake(struct probes *probes)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	probes->wake = epoll_create1(EPOLL_CLOEXEC);
	if (probes->wake < 0 || epoll_ctl(probes->wake, EPOLL_CTL_ADD,
					  bpf_map__fd(kernel_of(probes)->skel->maps.ring), &ev))
		return -errno;
	return 0;
}

/* Makes room for copies of the counters: for each process one per CPU, at most
 * MT_COUNTER_STRIPES. */
static int set_group_counters(struct kernel_probes *kernel)
{
	int cpus = libbpf_num_possible_cpus();

	if (cpus < 0)
		return cpus;
	for (kernel->stripes = 1;
	     kernel->stripes < MT_COUNTER_STRIPES && kernel->stripes < (uint32_t)cpus;)
		kernel->stripes *= 2;
	kernel->skel->rodata->counter_stripes = kernel->stripes;
	return bpf_map__set_max_entries(kernel->skel->maps.group_counters,
					MT_MEMBERS * kernel->stripes);
}

/* Makes the programs use the group's maps, or, without a group, the smallest possible ones. 0 or
 * -errno. */
static int set_group(struct probes *probes, const struct probes_opts *opts)
{
	const __typeof__(kernel_of(probes)->skel->maps) *maps = &kernel_of(probes)->skel->maps;
	int err;

	probes->users = 1;
	if (!opts->capture.group) {
		bpf_map__set_max_entries(maps->processes, 1);
		return bpf_map__set_max_entries(maps->members, 1);
	}
	probes->group = opts->capture.group;
	probes->group_id = proc_group__new_group(opts->capture.group);
	kernel_of(probes)->skel->rodata->group = probes->group_id;
	if (opts->capture.sets && opts->capture.sets->n < PROBES_SETS) {
		probes->sets = opts->capture.sets;
		probes->sets->set[probes->sets->n++] = probes;
	}
	probes->files = calloc(CALL_FILES_MAX, sizeof(*probes->files));
	if (!probes->files)
		return -ENOMEM;
	err = bpf_map__reuse_fd(maps->processes, proc_group__processes_fd(probes->group));
	if (err)
		return err;
	err = bpf_map__reuse_fd(maps->members, proc_group__members_fd(probes->group));
	return err ? err : set_group_counters(kernel_of(probes));
}

static const struct probes_place in_kernel;

/* Sets probes->vars to the programs' variables, which are mapped into our memory. */
static void find_variables(struct probes *probes)
{
	struct memtrace_bpf *skel = kernel_of(probes)->skel;

	probes->vars.stopped = &skel->bss->stopped;
	probes->vars.notices = (uint64_t *)&skel->bss->notices;
	probes->vars.absent = (uint64_t *)skel->bss->absent;
	probes->vars.seen_code = skel->bss->seen_code;
	probes->vars.code_epoch = (uint64_t *)&skel->bss->code_epoch;
	probes->vars.module_code = (uint64_t *)skel->bss->module_code;
	probes->vars.known_types = (uint64_t *)skel->bss->known_types;
	probes->vars.asked_args = skel->bss->asked_args;
	probes->vars.native_own = (uint64_t *)skel->bss->native_own;
	probes->vars.native_most = &skel->bss->native_most;
	probes->vars.native_from = (uint64_t *)&skel->bss->native_from;
	probes->vars.malloc_every = (uint64_t *)&skel->bss->malloc_every;
	probes->vars.malloc_own = (uint64_t(*)[2])skel->bss->malloc_own;
	probes->vars.node_layout = &skel->bss->node_layout;
	probes->vars.detail = &skel->bss->detail;
	probes->vars.timed = skel->bss->timed;
}

/*
 * libbpf calls this before it loads a program. A kernel with lockdown=confidentiality refuses
 * bpf_probe_read_kernel(). libbpf takes it for an older kernel that has no bpf_probe_read_user()
 * either, and replaces both by bpf_probe_read(), which is refused, too. Puts bpf_probe_read_user()
 * back.
 */
static int keep_user_reads(struct bpf_program *prog, struct bpf_prog_load_opts *opts,
			   long sleepable)
{
	struct bpf_insn *insns = (struct bpf_insn *)bpf_program__insns(prog);
	size_t n = bpf_program__insn_cnt(prog), i;

	for (i = 0; i < n; i++) {
		if (insns[i].code != (BPF_JMP | BPF_CALL) || insns[i].src_reg ||
		    insns[i].imm != BPF_FUNC_probe_read)
			continue;
		if (reads_kernel) {
			locked_down = true;
			return -EPERM;
		}
		insns[i].imm = BPF_FUNC_probe_read_user;
	}
	if (sleepable)
		opts->prog_flags |= BPF_F_SLEEPABLE;
	return 0;
}

/* Makes libbpf call keep_user_reads() for the programs of these ELF sections. */
static void register_sections(void)
{
	static const char *const sections[] = { "uprobe", "uretprobe", "uprobe.s" };
	LIBBPF_OPTS(libbpf_prog_handler_opts, host, .prog_prepare_load_fn = keep_user_reads);
	static bool done;

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && !done; i++) {
		LIBBPF_OPTS(libbpf_prog_handler_opts, opts,
			    .cookie = !strcmp(sections[i], "uprobe.s"),
			    .prog_prepare_load_fn = keep_user_reads);

		libbpf_register_prog_handler(sections[i], BPF_PROG_TYPE_KPROBE, 0, &opts);
	}
	if (!done) {
		libbpf_register_prog_handler("mt_host", BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT,
					     &host);
		libbpf_register_prog_handler("mt_host_raw", BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP,
					     &host);
	}
	done = true;
}

/* The skeleton of memtrace.bpf.c is also used for the programs for older kernels. Maps, programs
 * and variables have the same names there. These variables must have the same places. */
#define SAME_PLACE(section, variable)                                                              \
	_Static_assert(offsetof(struct memtrace_bpf__##section, variable) ==                       \
			       offsetof(struct memtrace_old_bpf__##section, variable),             \
		       #variable " has another place in the programs for older kernels")
SAME_PLACE(rodata, py);
SAME_PLACE(rodata, modules);
SAME_PLACE(rodata, bench_verify);
SAME_PLACE(rodata, bench_empty);
SAME_PLACE(rodata, counter_stripes);
SAME_PLACE(rodata, group);
SAME_PLACE(rodata, only);
SAME_PLACE(rodata, pid_ns);
SAME_PLACE(rodata, malloc_sets);
SAME_PLACE(bss, stopped);
SAME_PLACE(bss, notices);
SAME_PLACE(bss, absent);
SAME_PLACE(bss, seen_code);
SAME_PLACE(bss, code_epoch);
SAME_PLACE(bss, module_code);
SAME_PLACE(bss, known_types);
SAME_PLACE(bss, asked_args);
SAME_PLACE(bss, native_own);
SAME_PLACE(bss, native_most);
SAME_PLACE(bss, native_from);
SAME_PLACE(bss, malloc_every);
SAME_PLACE(bss, malloc_own);
SAME_PLACE(bss, node_layout);
SAME_PLACE(bss, detail);
SAME_PLACE(bss, timed);

static size_t group_counters_size(const struct kernel_probes *kernel)
{
	return sizeof(*kernel->counters) * MT_MEMBERS * kernel->stripes;
}

/* Maps the counters of all process numbers. 0 or -errno. */
static int map_group_counters(struct kernel_probes *kernel)
{
	void *at = mmap(NULL, group_counters_size(kernel), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(kernel->skel->maps.group_counters), 0);

	if (at == MAP_FAILED)
		return -errno;
	kernel->counters = at;
	return 0;
}

/* The bytes of the object file with the programs, and their number in *size. */
static const void *elf_bytes(const struct kernel_probes *kernel, size_t *size)
{
	return kernel->p.old ? memtrace_old_bpf__elf_bytes(size) : memtrace_bpf__elf_bytes(size);
}

/*
 * libbpf reads the kernel's types for each object, which takes about 30 ms, also if the object
 * loads no program. An empty file of types avoids that. Sets *fd to such a file in memory, and
 * path to its name. Returns path; NULL: that is not possible.
 */
static const char *no_types(int *fd, char path[32])
{
	struct btf *empty = btf__new_empty();
	uint32_t size;
	const void *raw = empty ? btf__raw_data(empty, &size) : NULL;
	int again;

	*fd = raw ? memfd_create("memtrace-bpf-types", MFD_CLOEXEC) : -1;
	if (*fd >= 0 && io__write(*fd, raw, size)) {
		close(*fd);
		*fd = -1;
	}
	btf__free(empty);
	if (*fd < 0)
		return NULL;
	/* libbpf opens the file by its name: try whether that works, as without /proc it does not. */
	snprintf(path, 32, "/proc/self/fd/%d", *fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return NULL;
	close(again);
	return path;
}

/* Opens the object with the maps, kernel->skel. some: this object loads some of its programs, so it
 * needs the kernel's types. All other programs are loaded by struct programs. */
static int open_maps(struct kernel_probes *kernel, bool some)
{
	struct memtrace_bpf *skel = calloc(1, sizeof(*skel));
	char path[32];
	LIBBPF_OPTS(bpf_object_open_opts, opts,
		    .btf_custom_path = some ? NULL : no_types(&kernel->types, path));
	struct bpf_program *prog;
	size_t size;
	int err;

	if (!skel)
		return -ENOMEM;
	err = memtrace_bpf__create_skeleton(skel);
	if (!err) {
		skel->skeleton->data = (void *)elf_bytes(kernel, &size);
		skel->skeleton->data_sz = size;
		err = bpf_object__open_skeleton(skel->skeleton, &opts);
	}
	if (err) {
		memtrace_bpf__destroy(skel);
		return err;
	}
	bpf_object__for_each_program(prog, skel->obj) bpf_program__set_autoload(prog, false);
	kernel->skel = skel;
	return 0;
}

static struct programs *new_programs(const struct kernel_probes *kernel)
{
	size_t size;
	const void *elf = elf_bytes(kernel, &size);

	return programs__new(kernel->skel->obj, elf, size, kernel->p.multi);
}

/* Loads the programs that the capture begins with, and if they may be sleepable, the twins that
 * replace them later. 0 or -errno. */
static int load_programs(struct kernel_probes *kernel, const struct probes_opts *opts)
{
	const char *names[FIRST_MAX], *twins[HOOK_NR];
	int err;

	kernel->programs = new_programs(kernel);
	if (!kernel->programs)
		return -ENOMEM;
	err = programs__load(kernel->programs, names, first_names(opts, kernel->p.old, names));
	if (err || !(kernel->p.sleepable || (opts->all && !kernel->atomic)))
		return err;
	kernel->twins = new_programs(kernel);
	return kernel->twins ? programs__load(kernel->twins, twins, twin_names(twins)) : -ENOMEM;
}

/* Starts what only the programs for older kernels have: the programs of sites, and the one that
 * runs when a thread ends. 0 or -errno. */
static int start_old(struct kernel_probes *kernel, bool with_malloc)
{
	static const enum call_probe calls[] = { CALL_ENTER,	    CALL_SET_DEVICE,
						 CALL_ASKED,	    CALL_USDT_SCOPE,
						 CALL_MALLOC_ENTER, CALL_MALLOC_FREE };
	size_t n = sizeof(calls) / sizeof(calls[0]) - (with_malloc ? 0 : 2), i;

	kernel->sites.cookies = bpf_object__find_map_fd_by_name(kernel->skel->obj, "site_cookies");
	kernel->sites.programs = bpf_object__find_map_fd_by_name(kernel->skel->obj,
								 "site_programs");
	for (i = 0; i < n; i++) {
		uint32_t index = calls[i];
		int fd = program_fd(&kernel->p, call_name(calls[i]));

		if (fd < 0)
			return fd;
		if (bpf_map_update_elem(kernel->sites.programs, &index, &fd, BPF_ANY))
			return -errno;
	}
	kernel->thread_gone = bpf_program__attach(programs__get(kernel->programs, "thread_gone"));
	return kernel->thread_gone ? 0 : -errno;
}

/* Sets the programs' constants. Call it before they are loaded. */
static void set_constants(struct kernel_probes *kernel, const struct probes_opts *opts)
{
	memcpy((void *)&kernel->skel->rodata->py, &opts->py, sizeof(opts->py));
	kernel->skel->rodata->pid_ns = proc__pid_namespace();
	kernel->skel->rodata->bench_empty = opts->empty;
	kernel->skel->rodata->bench_verify = opts->verify;
	kernel->skel->rodata->modules = opts->modules;
	kernel->skel->rodata->host_pid = opts->pid > 0 ? (uint32_t)opts->pid : UINT32_MAX;
	if (!kernel->p.filter)
		return;
	/* no process has UINT32_MAX: without a PID, drop all hits */
	kernel->skel->rodata->only = opts->pid > 0 ? (uint32_t)opts->pid : UINT32_MAX;
	log_debug("probes are in every process that maps the same files: the programs tell "
		  "PID %d from others",
		  (int)opts->pid);
}

/* Loads the programs and opens the ring. 0 or -errno. */
static int load(struct kernel_probes *kernel, const struct probes_opts *opts)
{
	struct probes *probes = &kernel->p;
	int err = open_maps(kernel, opts->capture.host);

	if (err)
		return err;
	err = set_group(probes, opts);
	if (err)
		return err;
	if (opts->capture.ring_bytes)
		bpf_map__set_max_entries(kernel->skel->maps.ring, opts->capture.ring_bytes);
	set_constants(kernel, opts);
	if (opts->capture.malloc_probes) {
		kernel->skel->rodata->malloc_sets = MT_MALLOC_SETS_MAX;
		bpf_map__set_max_entries(kernel->skel->maps.malloc_blocks, MT_MALLOC_SETS_MAX);
	}
	if (opts->capture.host)
		host_programs__prepare(&kernel->host, kernel->skel, opts->host_raw);
	err = memtrace_bpf__load(kernel->skel);
	if (kernel->types >= 0)
		close(kernel->types);
	kernel->types = -1;
	if (err)
		return err;
	err = load_programs(kernel, opts);
	if (err)
		return err;
	err = probes->old ? start_old(kernel, opts->capture.malloc_probes) : 0;
	if (err)
		return err;
	probes->ring = bpf_ring__new(bpf_map__fd(kernel->skel->maps.ring),
				     bpf_map__max_entries(kernel->skel->maps.ring));
	if (!probes->ring)
		return -errno;
	err = open_wake(probes);
	if (err || !probes->group)
		return err;
	return map_group_counters(kernel);
}

/* Chooses the programs and the links, by what this kernel can do. */
static void choose_programs(struct kernel_probes *kernel, const struct probes_opts *opts)
{
	struct probes *probes = &kernel->p;

	/* A kernel that lacks a feature gets other programs, without uprobe.multi and sleeping. */
	probes->old = needs_old(opts);
	/* Tells keep_user_reads() whether programs read the kernel's memory: the old ones do, and
	 * in a PID namespace all, to find the PID there. */
	reads_kernel = probes->old || proc__pid_namespace();
	probes->multi = !probes->old && !opts->perf &&
			probes__kernel_multi() != PROBES_MULTI_NONE && !prefers_perf(opts);
	probes->sessions = probes->multi && !opts->returns && kernel_has_sessions();
	/* Links by PID would miss threads, so the links are for all processes, and the programs
	 * compare the PID. With a group, they look the process up instead. */
	probes->filter = !opts->capture.group &&
			 (opts->filter ||
			  (probes->multi && probes__kernel_multi() == PROBES_MULTI_THREAD));
	/* Each program that reads the target's memory has a twin that can wait for pages. With
	 * kernel->atomic the twins are never used; with probes->sleepable they are used from the
	 * start. */
	kernel->atomic = opts->atomic || probes->old || !probes__kernel_sleepable();
	probes->sleepable = opts->sleepable && !kernel->atomic;
}

/* Loads the programs into the kernel. NULL with errno and *why. */
static struct probes *load_in_kernel(const struct probes_opts *opts, const char **why)
{
	struct kernel_probes *kernel = calloc(1, sizeof(*kernel));
	struct probes *probes = &kernel->p;
	int err;

	if (!kernel) {
		*why = "out of memory";
		return NULL;
	}
	probes->in = &in_kernel;
	probes->wake = probes->pidfd = kernel->types = -1;
	probes->py = opts->py;
	libbpf_log__quiet();
	choose_programs(kernel, opts);
	register_sections();
	err = load(kernel, opts);
	if (!err) {
		find_variables(probes);
		return probes;
	}
	*why = load_why(err);
	probes__free(probes);
	errno = -err;
	return NULL;
}

static void detach_one(struct attachment *attachment)
{
	holder__close(attachment->link);
	attachment->link = NULL;
}

/* Puts a new link into an attachment; owns fd. The target may have ended before the link was made,
 * and another process may have its PID: then stops recording and removes the link. 0 or -errno. */
static int keep_link(struct probes *probes, struct attachment *attachment, int fd)
{
	struct pollfd gone = { .fd = probes->pidfd, .events = POLLIN };

	if (probes->pidfd >= 0 && poll(&gone, 1, 0) > 0) {
		probes__stop(probes);
		close(fd);
		return -ESRCH;
	}
	/* Each table of its own costs a thread: only the first OWN_TABLES links get one. */
	attachment->link = holder__new(fd, /*own_table=*/kernel_of(probes)->n_listed < OWN_TABLES);
	return attachment->link ? 0 : -ENOMEM;
}

/* The attachments in one sequence: first kernel->at, then kernel->listed. */
static struct attachment *attachment_at(struct kernel_probes *kernel, size_t i)
{
	return i < HOOK_NR * 2 ? &kernel->at[0][0] + i : &kernel->listed[i - HOOK_NR * 2];
}

/* True if an attachment is in place for this process; pid 0: for any process, or for all. */
static bool is_attached_for(const struct attachment *attachment, pid_t pid)
{
	return attachment->link && (!pid || attachment->pid == pid);
}

/* Begins to detach a process's probes, all at the same time. pid 0: of all processes. */
static void begin_close(struct kernel_probes *kernel, pid_t pid)
{
	for (size_t i = 0; i < HOOK_NR * 2 + kernel->n_listed; i++) {
		if (is_attached_for(attachment_at(kernel, i), pid))
			holder__begin_close(attachment_at(kernel, i)->link);
	}
}

static void begin_detach(struct probes *probes)
{
	begin_close(kernel_of(probes), 0);
}

static void detach(struct probes *probes, pid_t pid)
{
	struct kernel_probes *kernel = kernel_of(probes);
	size_t i, n = HOOK_NR * 2 + kernel->n_listed, kept = 0;

	begin_close(kernel, pid);
	if (!pid)
		host_programs__detach(&kernel->host);
	for (i = 0; i < n; i++) {
		if (is_attached_for(attachment_at(kernel, i), pid))
			detach_one(attachment_at(kernel, i));
	}
	for (i = 0; i < kernel->n_listed; i++) {
		if (kernel->listed[i].link)
			kernel->listed[kept++] = kernel->listed[i];
	}
	kernel->n_listed = kept;
}

static void free_all(struct probes *probes)
{
	struct kernel_probes *kernel = kernel_of(probes);

	if (probes->wake >= 0)
		close(probes->wake);
	if (kernel->types >= 0)
		close(kernel->types);
	bpf_ring__free(probes->ring);
	if (kernel->counters)
		munmap(kernel->counters, group_counters_size(kernel));
	bpf_link__destroy(kernel->thread_gone);
	programs__free(kernel->programs);
	programs__free(kernel->twins);
	memtrace_bpf__destroy(kernel->skel);
	free(kernel->listed);
	free(probes->files);
	free(probes);
}

/* Attaches a hook's program for process `pid`; 0: for every process that maps the file. Puts the
 * link into *to. Returns 0; -ENOENT: this process maps no file with the function; or -errno. */
static int attach_to(struct probes *probes, pid_t pid, const struct hook *hook, bool sleepable,
		     struct attachment *to)
{
	char path[ELF_NAME];
	const struct uprobe_place at = { .path = hook->elf ? elf__name(hook->elf, path) : NULL,
					 .offset = hook->offset };
	const char *name = program_name(hook->id, sleepable);
	long fd;
	int prog = sleepable ? bpf_program__fd(programs__get(kernel_of(probes)->twins, name))
			     : program_fd(probes, name);

	if (prog < 0)
		return prog;
	if (!at.path)
		return -ENOENT; /* only another process of the group maps such a file */
	if (probes->multi)
		fd = link_create_multi(prog, at.path, hook->offset, hook->id, pid);
	else
		fd = site_program__probe(prog, pid ?: -1, &at);
	return fd < 0 ? fd : keep_link(probes, to, fd);
}

/* Attaches a hook's program, or its sleepable twin, for the process or its whole group. Returns 0
 * or -errno. */
static int attach_one(struct probes *probes, pid_t pid, const struct hook *hook, bool sleepable)
{
	return attach_to(probes, probes__everywhere(probes) ? 0 : pid, hook, sleepable,
			 &kernel_of(probes)->at[hook->id][sleepable]);
}

/* True if this capture uses the sleepable twins from its start, and the hook has one. */
static bool uses_twin(const struct probes *probes, enum hook_id id)
{
	return probes->sleepable && program_name(id, /*sleepable=*/true);
}

/* As attach_one(), with the sleepable twin if the capture uses it. */
static int attach(struct probes *probes, pid_t pid, const struct hook *hook)
{
	return attach_one(probes, pid, hook, uses_twin(probes, hook->id));
}

/* Returns how many processes have a hook that is attached for them alone. pid: counts only that
 * process; 0: counts all. */
static size_t count_owners(const struct probes *probes, pid_t pid, enum hook_id id)
{
	const struct kernel_probes *kernel = kernel_of(probes);
	size_t n = 0;

	for (size_t i = 0; i < kernel->n_listed; i++)
		n += kernel->listed[i].is_hook && kernel->listed[i].id == id &&
		     is_attached_for(&kernel->listed[i], pid);
	return n;
}

/* True if the hook is attached. pid 0: for the whole group. A PID: for the group, or for this
 * process alone. PROBES_ONE: for any process alone. */
static bool attached(const struct probes *probes, pid_t pid, enum hook_id id)
{
	/* The links of the group or of its only process: program and sleepable twin. */
	const struct attachment *twins = kernel_of(probes)->at[id];

	if (pid == PROBES_ONE)
		return count_owners(probes, 0, id);
	return twins[0].link || twins[1].link || (pid && count_owners(probes, pid, id));
}

/* Adds an attachment to kernel->listed. NULL: out of memory. Valid until the next call. */
static struct attachment *add_listed(struct probes *probes, struct attachment entry)
{
	struct kernel_probes *kernel = kernel_of(probes);

	if (array__grow(&kernel->listed, &kernel->cap_listed, kernel->n_listed + 1,
			sizeof(*kernel->listed)))
		return NULL;
	kernel->listed[kernel->n_listed] = entry;
	return &kernel->listed[kernel->n_listed++];
}

/* True if links by PID miss all threads but the main one. */
static bool misses_threads(const struct probes *probes)
{
	return probes->filter || (probes->multi && probes__kernel_multi() == PROBES_MULTI_THREAD);
}

/* Returns how many processes have a hook at a place that is attached for them alone. */
static size_t count_owners_at(const struct probes *probes, const struct place *at)
{
	const struct kernel_probes *kernel = kernel_of(probes);
	size_t n = 0;

	for (size_t i = 0; i < kernel->n_listed; i++)
		n += kernel->listed[i].is_hook && place__same(&kernel->listed[i].place, at);
	return n;
}

/* Attaches a hook for one process of a group, in kernel->listed. Its children do not have it.
 * Returns 0; -EXDEV: links by PID miss threads; -ENOSPC: too many at this place; or -errno. */
static int attach_own(struct probes *probes, pid_t pid, const struct hook *hook)
{
	const struct attachment own = {
		.pid = pid, .is_hook = true, .id = hook->id, .place = place__of(hook)
	};
	size_t most = elf__is_memory(hook->elf) ? OWN_MEMORY_MAX : OWN_MAX;
	struct attachment *attachment;
	int err;

	if (misses_threads(probes))
		return -EXDEV;
	if (count_owners_at(probes, &own.place) >= most)
		return -ENOSPC;
	attachment = add_listed(probes, own);
	if (!attachment)
		return -ENOMEM;
	err = attach_to(probes, pid, hook, uses_twin(probes, hook->id), attachment);
	if (err)
		kernel_of(probes)->n_listed--; /* removes what add_listed() added last */
	return err;
}

static bool is_return(enum call_probe which)
{
	return which == CALL_RETURN || which == CALL_MALLOC_RETURN;
}

/* How the program of a call is attached by a uprobe.multi link. */
static uint32_t link_type(enum call_probe which)
{
	return which == CALL_MALLOC ? TRACE_UPROBE_SESSION : TRACE_UPROBE_MULTI;
}

/* Attaches the program of a call to n sites of a file, by one link. 0 or -errno. */
static int attach_calls_multi(struct probes *probes, pid_t pid, enum call_probe which, int prog,
			      const struct call_file *file, const struct probe_site *sites,
			      size_t n)
{
	char name[ELF_NAME];
	uint64_t offsets[PROBES_SITES_MAX], cookies[PROBES_SITES_MAX], ref_ctrs[PROBES_SITES_MAX];
	struct link_create_uprobe_multi attr = {
		.prog_fd = prog,
		.path = (uintptr_t)elf__name(file->elf, name),
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.ref_ctr_offsets = (uintptr_t)ref_ctrs,
		.attach_type = link_type(which),
		.cnt = n,
		.uflags = is_return(which) ? UPROBE_MULTI_RETURN : 0,
		.pid = probes__calls_pid(probes, pid, file),
	};
	struct attachment *attachment = add_listed(
		probes, (struct attachment){ .pid = attr.pid, .is_malloc = which >= CALL_MALLOC });
	long fd;
	size_t i;

	if (!attachment)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		offsets[i] = sites[i].offset;
		cookies[i] = sites[i].cookie;
		ref_ctrs[i] = sites[i].ref_ctr;
	}
	fd = link_create(&attr);
	if (fd >= 0)
		fd = keep_link(probes, attachment, fd);
	if (fd < 0)
		kernel_of(probes)->n_listed--;
	return fd;
}

/* Attaches the program of a call to one site of a file. 0 or -errno. */
static int attach_call_perf(struct probes *probes, pid_t pid, enum call_probe which, int prog,
			    const struct call_file *file, const struct probe_site *site)
{
	char name[ELF_NAME];
	const struct uprobe_place at = { .path = elf__name(file->elf, name),
					 .offset = site->offset,
					 .ref_ctr = site->ref_ctr,
					 .cookie = probes->old && is_return(which) ? 0
										   : site->cookie,
					 .returns = is_return(which) };
	pid_t target = probes__calls_pid(probes, pid, file) ?: -1;
	struct attachment *attachment = add_listed(
		probes, (struct attachment){ .pid = target == -1 ? 0 : target,
					     .is_malloc = which >= CALL_MALLOC });
	int fd;

	if (!attachment)
		return -ENOMEM;
	fd = probes->old && !is_return(which)
		     ? site_program__attach(&kernel_of(probes)->sites, which, target, &at)
		     : site_program__probe(prog, target, &at);
	if (fd >= 0)
		fd = keep_link(probes, attachment, fd);
	if (fd < 0)
		kernel_of(probes)->n_listed--;
	return fd;
}

/* Attaches the program of a call to n sites of a file, to all or none: one link, or one perf event
 * for each site. */
static int attach_calls(struct probes *probes, pid_t pid, enum call_probe which,
			const struct call_file *file, const struct probe_site *sites, size_t n)
{
	size_t before = kernel_of(probes)->n_listed, i;
	char name[ELF_NAME];
	int err = 0, prog;

	if (!elf__name(file->elf, name))
		return -ESTALE;
	if (misses_threads(probes) && elf__is_memory(file->elf))
		return -EXDEV;
	if (n > PROBES_SITES_MAX)
		return -E2BIG;
	prog = program_fd(probes, call_name(which));
	if (prog < 0)
		return prog;
	if (probes->multi)
		return attach_calls_multi(probes, pid, which, prog, file, sites, n);
	for (i = 0; i < n && !err; i++)
		err = attach_call_perf(probes, pid, which, prog, file, &sites[i]);
	while (err && kernel_of(probes)->n_listed > before)
		detach_one(&kernel_of(probes)->listed[--kernel_of(probes)->n_listed]);
	return err;
}

/* Loads the sleepable twins in a thread, since the ring must be drained meanwhile. 0 when they are
 * loaded, -EINPROGRESS, or -errno. */
static int load_twins(struct kernel_probes *kernel)
{
	const char *names[HOOK_NR];
	int err;

	if (kernel->twins)
		return programs__poll(kernel->twins);
	kernel->twins = new_programs(kernel);
	if (!kernel->twins)
		return -ENOMEM;
	err = programs__begin(kernel->twins, names, twin_names(names));
	return err ?: -EINPROGRESS;
}

static void prepare_sleepable(struct probes *probes)
{
	if (!kernel_of(probes)->atomic && !kernel_of(probes)->twins)
		load_twins(kernel_of(probes));
}

/* True if any process has the allocator's hooks for itself: those links cannot change to the
 * twins. */
static bool is_attached_singly(const struct probes *probes)
{
	return attached(probes, PROBES_ONE, HOOK_REPORT) ||
	       attached(probes, PROBES_ONE, HOOK_CPU_NEW);
}

/* Attaches the twins of all attached programs, then removes these: hits in between run both. After
 * an error only the old programs are attached. */
static int go_sleepable(struct probes *probes, pid_t pid, const struct hook *hooks)
{
	struct kernel_probes *kernel = kernel_of(probes);
	int i, err = kernel->atomic || is_attached_singly(probes) ? -EOPNOTSUPP
								  : load_twins(kernel);

	if (err)
		return err;
	for (i = 0; i < HOOK_NR; i++) {
		if (!program_name(i, /*sleepable=*/true) || !attached(probes, 0, i))
			continue;
		err = attach_one(probes, pid, &hooks[i], /*sleepable=*/true);
		if (err)
			goto undo;
	}
	/* All twins run. Remove the other programs, all at the same time. */
	for (i = 0; i < HOOK_NR; i++) {
		if (kernel->at[i][1].link && kernel->at[i][0].link)
			holder__begin_close(kernel->at[i][0].link);
	}
	for (i = 0; i < HOOK_NR; i++) {
		if (kernel->at[i][1].link)
			detach_one(&kernel->at[i][0]);
	}
	probes->sleepable = true;
	probes->both_until = clock__kernel();
	return 0;
undo:
	for (i = 0; i < HOOK_NR; i++)
		detach_one(&kernel->at[i][1]);
	return err;
}

/* Detaches a hook for all processes. Does not wait for that. */
static void detach_hook(struct probes *probes, enum hook_id id)
{
	struct kernel_probes *kernel = kernel_of(probes);

	for (int i = 0; i < 2; i++) {
		holder__drop(kernel->at[id][i].link);
		kernel->at[id][i].link = NULL;
	}
	for (size_t i = kernel->n_listed; i-- > 0;) {
		if (!kernel->listed[i].is_hook || kernel->listed[i].id != id)
			continue;
		holder__drop(kernel->listed[i].link);
		kernel->listed[i] = kernel->listed[--kernel->n_listed];
	}
}

/* Detaches the probes of malloc. Does not wait for that. */
static void detach_malloc(struct probes *probes)
{
	struct kernel_probes *kernel = kernel_of(probes);

	for (size_t i = kernel->n_listed; i-- > 0;) {
		if (!kernel->listed[i].is_malloc)
			continue;
		holder__drop(kernel->listed[i].link);
		kernel->listed[i] = kernel->listed[--kernel->n_listed];
	}
}

/* Takes the event from probes->wake, so that it is not readable until the next one. */
static void forget_wake(struct probes *probes)
{
	struct epoll_event ev;

	epoll_wait(probes->wake, &ev, 1, 0);
}

/* Returns the counters of a process: its number in the group, and which of kernel->stripes
 * copies. */
static uint64_t *counter_copy(const struct kernel_probes *kernel, uint32_t number, uint32_t copy)
{
	return kernel->counters[(number & (MT_MEMBERS - 1)) * kernel->stripes + copy];
}

/* Sets counters to the sums over a number's copies of its counters. */
static void read_group_counters(const struct kernel_probes *kernel, uint32_t number,
				uint64_t counters[MT_CNT_NR])
{
	uint32_t i, j;

	memset(counters, 0, MT_CNT_NR * sizeof(*counters));
	for (i = 0; i < kernel->stripes; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			counters[j] += __atomic_load_n(&counter_copy(kernel, number, i)[j],
						       __ATOMIC_RELAXED);
	}
}

/* Sets counters to the sums over all CPUs. 0 or -errno. */
static int read_counters(const struct probes *probes, uint32_t number, uint64_t counters[MT_CNT_NR])
{
	int cpus, err, i, j;
	uint64_t *all;

	if (probes->group) {
		read_group_counters(kernel_of(probes), number, counters);
		return 0;
	}
	cpus = libbpf_num_possible_cpus();
	if (cpus < 0)
		return cpus;
	all = calloc(cpus, MT_CNT_NR * sizeof(*all));
	if (!all)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(kernel_of(probes)->skel->maps.counters), &number,
				  all);
	if (err) {
		err = -errno;
		goto out;
	}
	memset(counters, 0, MT_CNT_NR * sizeof(*counters));
	for (i = 0; i < cpus; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			counters[j] += all[i * MT_CNT_NR + j];
	}
out:
	free(all);
	return err;
}

static void zero_counters(struct probes *probes, uint32_t number)
{
	uint32_t i, j;

	for (i = 0; i < kernel_of(probes)->stripes; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			__atomic_store_n(&counter_copy(kernel_of(probes), number, i)[j], 0,
					 __ATOMIC_RELAXED);
	}
}

static int add_root(struct probes *probes, uint64_t key)
{
	uint8_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(kernel_of(probes)->skel->maps.root_modules), &key,
				   &one, BPF_ANY)
		       ? -errno
		       : 0;
}

/* Removes a number's roots. */
static void clear_roots(struct probes *probes, uint32_t number)
{
	int fd = bpf_map__fd(kernel_of(probes)->skel->maps.root_modules);
	uint64_t key, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	/* Get the next key before this one is deleted: a deleted key has no next one. */
	while (more) {
		key = next;
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (key >> 48 == number)
			bpf_map_delete_elem(fd, &key);
	}
}

static int attach_host(struct probes *probes, const char **way)
{
	struct host_programs *programs = &kernel_of(probes)->host;
	int err = programs->link[0] ? 0 : host_programs__attach(programs, kernel_of(probes)->skel);

	*way = programs->raw ? "sys_exit" : "fexit";
	return err;
}

static void skipped(const struct probes *probes, struct probes_skipped *ret)
{
	const struct kernel_probes *kernel = kernel_of(probes);
	int fds[HOST_CALLS + 1];

	ret->events = programs__skipped(kernel->programs) + programs__skipped(kernel->twins);
	ret->host = programs__skipped_of(fds, host_programs__fds(kernel->skel, fds),
					 bpf_obj_get_info_by_fd);
}

/* key: own_key() of the class. is: 0 removes the class. 0 or -errno. */
static int set_module_type(struct probes *probes, uint64_t key, enum mt_module_type is)
{
	int fd = bpf_map__fd(kernel_of(probes)->skel->maps.module_types);
	uint8_t v = is;

	if (!is)
		return bpf_map_delete_elem(fd, &key) && errno != ENOENT ? -errno : 0;
	return bpf_map_update_elem(fd, &key, &v, BPF_ANY) ? -errno : 0;
}

static const struct probes_place in_kernel = {
	.free = free_all,
	.attach = attach,
	.attach_own = attach_own,
	.attached = attached,
	.attach_calls = attach_calls,
	.begin_detach = begin_detach,
	.detach = detach,
	.detach_hook = detach_hook,
	.prepare_sleepable = prepare_sleepable,
	.go_sleepable = go_sleepable,
	.forget_wake = forget_wake,
	.counters = read_counters,
	.zero_counters = zero_counters,
	.add_root = add_root,
	.clear_roots = clear_roots,
	.set_module_type = set_module_type,
	.detach_malloc = detach_malloc,
	.attach_host = attach_host,
	.skipped = skipped,
};

/* ---- the programs in the kernel, or in the process itself ---- */

struct probes *probes__load(const struct probes_opts *opts, const char **why)
{
	struct probes *probes = opts->capture.inside ? probes_inside__load(opts, why)
						     : load_in_kernel(opts, why);
	struct probes_opts without_host = *opts;

	if (!probes && opts->capture.host) {
		without_host.capture.host = false;
		probes = probes__load(&without_host, why);
		if (probes)
			log_debug("the kernel refused the programs for host memory");
		return probes;
	}
	if (!probes)
		return NULL;
	if (opts->seen)
		memset(probes->vars.seen_code, 1, MT_SEEN_SLOTS);
	probes->empty = opts->empty;
	probes->calls_each = probes__everywhere(probes) && seccomp__filters_returns();
	return probes;
}
