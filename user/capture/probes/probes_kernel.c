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
static void host_programs__prepare(struct host_programs *h, struct memtrace_bpf *skel, bool raw)
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
		h->raw |= err && i < NEEDED;
	}
	bpf_program__set_expected_attach_type(skel->progs.host_any, BPF_TRACE_RAW_TP);
	err = bpf_program__set_attach_target(skel->progs.host_any, 0, "sys_exit");
	bpf_program__set_autoload(skel->progs.host_any, !err);
}

/* Attaches program i. 0; -EOPNOTSUPP: it is not loaded; or -errno. */
static int attach_host_call(struct host_programs *h, size_t i, struct bpf_program *prog)
{
	h->link[i] = bpf_program__autoload(prog) ? bpf_program__attach_trace(prog) : NULL;
	if (h->link[i])
		return 0;
	return bpf_program__autoload(prog) ? -errno : -EOPNOTSUPP;
}

/* Detaches the programs for host memory that are attached. */
static void host_programs__detach(struct host_programs *h)
{
	for (size_t i = 0; i < HOST_CALLS; i++) {
		bpf_link__destroy(h->link[i]);
		h->link[i] = NULL;
	}
}

/* Attaches the programs of host memory; those from NEEDED on are optional. 0, or -errno: none is
 * attached. */
static int attach_host_calls(struct host_programs *h, struct memtrace_bpf *skel)
{
	const struct host_program all[] = PROGRAMS(skel);
	int err = 0;

	for (size_t i = 0; i < HOST_CALLS && !err; i++) {
		err = attach_host_call(h, i, all[i].prog);
		if (err && i >= NEEDED)
			err = 0;
	}
	if (err)
		host_programs__detach(h);
	return err;
}

/* Attaches the programs for host memory. 0 or -errno. -EOPNOTSUPP: they can run neither at the
 * ends of system calls nor on the tracepoint. */
static int host_programs__attach(struct host_programs *h, struct memtrace_bpf *skel)
{
	int err = h->raw ? -EOPNOTSUPP : attach_host_calls(h, skel);

	if (!err)
		return 0;
	log_debug("host memory: programs at the end of system calls: %s; using the tracepoint "
		  "sys_exit",
		  strerror(-err));
	h->raw = true;
	return attach_host_call(h, 0, skel->progs.host_any);
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

#define OWN_TABLES 64	   /* links whose descriptors each have a thread: holder.h */
#define CALL_SITES_MAX 128 /* probed sites in one file */
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

/* The struct that p begins. */
static struct kernel_probes *kernel(const struct probes *p)
{
	return (struct kernel_probes *)p;
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

/* Puts an empty program on an offset of our own executable file: a hit_cost_probe of
 * capture/cost/measure.h. */
static int probe_self(uint64_t offset)
{
	const struct uprobe_place at = { .path = "/proc/self/exe", .offset = offset };
	bool multi = !probes__kernel_perf();
	LIBBPF_OPTS(bpf_prog_load_opts, opts,
		    .expected_attach_type = multi ? TRACE_UPROBE_MULTI : 0);
	int program = features__load_empty(BPF_PROG_TYPE_KPROBE, &opts), fd;

	if (program < 0)
		return program;
	fd = multi ? (int)link_create_multi(program, "/proc/self/exe", offset, 0, getpid())
		   : site_program__probe(program, 0, &at);
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
		[CALL_RETURN] = "call_return",	      [CALL_ENTER] = "call_enter",
		[CALL_SET_DEVICE] = "set_device",     [CALL_ASKED] = "asked",
		[CALL_MALLOC] = PROGRAMS_SESSION,     [CALL_MALLOC_RETURN] = "malloc_return",
		[CALL_MALLOC_ENTER] = "malloc_enter", [CALL_MALLOC_FREE] = "malloc_free"
	};

	return names[which];
}

/* Sets names to the names of all sleepable twins. Returns their number. */
static size_t twin_names(const char *names[HOOK_NR])
{
	size_t n = 0;

	for (int i = 0; i < HOOK_NR; i++) {
		names[n] = program_name(i, true);
		n += names[n] != NULL;
	}
	return n;
}

#define FIRST_MAX (HOOK_NR + 5)

/* Sets names to the names of the programs that nearly every capture needs, those first whose
 * verification takes longest. old: of the programs for older kernels. Returns their number. */
static size_t first_names(const struct probes_opts *opts, bool old, const char *names[FIRST_MAX])
{
	/* In reverse: */
	static const enum hook_id all[] = { HOOK_MODULE_CALL, HOOK_SCOPE_END, HOOK_CODE_GONE,
					    MT_ALLOCATOR_HOOKS(HOOK_ID) };
	static const enum hook_id steps[] = { HOOK_SCOPE_END, HOOK_MODULE_CALL, HOOK_CODE_GONE };
	size_t n = 0;

	if (opts->capture.steps_only) {
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			names[n++] = program_name(steps[i], false);
	} else {
		if (!opts->capture.no_autograd) {
			names[n++] = program_name(HOOK_EDGE, false);
			names[n++] = program_name(HOOK_EVALUATE, false);
		}
		for (size_t i = sizeof(all) / sizeof(all[0]); i > 0; i--)
			names[n++] = program_name(all[i - 1], false);
	}
	if (!opts->capture.steps_only || old) {
		names[n++] = call_name(CALL_ENTER);
		names[n++] = call_name(CALL_RETURN);
		names[n++] = call_name(CALL_SET_DEVICE);
	}
	if (old || opts->all) {
		names[n++] = call_name(CALL_ASKED);
		names[n++] = program_name(HOOK_MODULE_BOUND, false);
	}
	if (old)
		names[n++] = "thread_gone";
	return n;
}

/* The descriptor of the program with this name, which is loaded if it is not loaded yet; or
 * -errno. */
static int program_fd(const struct probes *p, const char *name)
{
	struct programs *programs = kernel(p)->programs;
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

/* Makes p->wake, which is readable when a program wakes us. The ring itself is readable while it
 * has any record, which is nearly always. */
static int open_wake(struct probes *p)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	p->wake = epoll_create1(EPOLL_CLOEXEC);
	if (p->wake < 0 ||
	    epoll_ctl(p->wake, EPOLL_CTL_ADD, bpf_map__fd(kernel(p)->skel->maps.ring), &ev))
		return -errno;
	return 0;
}

/* Makes room for copies of the counters: for each process one per CPU, at most
 * MT_COUNTER_STRIPES. */
static int set_group_counters(struct kernel_probes *k)
{
	int cpus = libbpf_num_possible_cpus();

	if (cpus < 0)
		return cpus;
	for (k->stripes = 1; k->stripes < MT_COUNTER_STRIPES && k->stripes < (uint32_t)cpus;)
		k->stripes *= 2;
	k->skel->rodata->counter_stripes = k->stripes;
	return bpf_map__set_max_entries(k->skel->maps.group_counters, MT_MEMBERS * k->stripes);
}

/* Makes the programs use the group's maps, or, without a group, the smallest possible ones. 0 or
 * -errno. */
static int set_group(struct probes *p, const struct probes_opts *opts)
{
	const __typeof__(kernel(p)->skel->maps) *maps = &kernel(p)->skel->maps;
	int err;

	p->users = 1;
	if (!opts->capture.group) {
		bpf_map__set_max_entries(maps->processes, 1);
		return bpf_map__set_max_entries(maps->members, 1);
	}
	p->group = opts->capture.group;
	p->group_id = proc_group__new_group(opts->capture.group);
	kernel(p)->skel->rodata->group = p->group_id;
	if (opts->capture.sets && opts->capture.sets->n < PROBES_SETS) {
		p->sets = opts->capture.sets;
		p->sets->set[p->sets->n++] = p;
	}
	p->files = calloc(CALL_FILES_MAX, sizeof(*p->files));
	if (!p->files)
		return -ENOMEM;
	err = bpf_map__reuse_fd(maps->processes, proc_group__processes_fd(p->group));
	if (err)
		return err;
	err = bpf_map__reuse_fd(maps->members, proc_group__members_fd(p->group));
	return err ? err : set_group_counters(kernel(p));
}

static const struct probes_place in_kernel;

/* Sets p->vars to the programs' variables, which are mapped into our memory. */
static void find_variables(struct probes *p)
{
	struct memtrace_bpf *skel = kernel(p)->skel;

	p->vars.stopped = &skel->bss->stopped;
	p->vars.notices = (uint64_t *)&skel->bss->notices;
	p->vars.absent = (uint64_t *)skel->bss->absent;
	p->vars.seen_code = skel->bss->seen_code;
	p->vars.code_epoch = (uint64_t *)&skel->bss->code_epoch;
	p->vars.module_code = (uint64_t *)skel->bss->module_code;
	p->vars.known_types = (uint64_t *)skel->bss->known_types;
	p->vars.asked_args = skel->bss->asked_args;
	p->vars.native_own = (uint64_t *)skel->bss->native_own;
	p->vars.native_most = &skel->bss->native_most;
	p->vars.native_from = (uint64_t *)&skel->bss->native_from;
	p->vars.malloc_every = (uint64_t *)&skel->bss->malloc_every;
	p->vars.malloc_own = (uint64_t(*)[2])skel->bss->malloc_own;
	p->vars.node_layout = &skel->bss->node_layout;
	p->vars.detail = &skel->bss->detail;
	p->vars.timed = skel->bss->timed;
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

static size_t group_counters_size(const struct kernel_probes *k)
{
	return sizeof(*k->counters) * MT_MEMBERS * k->stripes;
}

/* Maps the counters of all process numbers. 0 or -errno. */
static int map_group_counters(struct kernel_probes *k)
{
	void *at = mmap(NULL, group_counters_size(k), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(k->skel->maps.group_counters), 0);

	if (at == MAP_FAILED)
		return -errno;
	k->counters = at;
	return 0;
}

/* The bytes of the object file with the programs, and their number in *size. */
static const void *elf_bytes(const struct kernel_probes *k, size_t *size)
{
	return k->p.old ? memtrace_old_bpf__elf_bytes(size) : memtrace_bpf__elf_bytes(size);
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
	int again = -1;

	*fd = raw ? memfd_create("memtrace-bpf-types", MFD_CLOEXEC) : -1;
	if (*fd >= 0 && io__write(*fd, raw, size)) {
		close(*fd);
		*fd = -1;
	}
	btf__free(empty);
	snprintf(path, 32, "/proc/self/fd/%d", *fd);
	if (*fd >= 0)
		again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return NULL;
	close(again);
	return path;
}

/* Opens the object with the maps, k->skel. some: this object loads some of its programs, so it
 * needs the kernel's types. All other programs are loaded by struct programs. */
static int open_maps(struct kernel_probes *k, bool some)
{
	struct memtrace_bpf *skel = calloc(1, sizeof(*skel));
	char path[32];
	LIBBPF_OPTS(bpf_object_open_opts, opts,
		    .btf_custom_path = some ? NULL : no_types(&k->types, path));
	struct bpf_program *prog;
	size_t size;
	int err;

	if (!skel)
		return -ENOMEM;
	err = memtrace_bpf__create_skeleton(skel);
	if (!err) {
		skel->skeleton->data = (void *)elf_bytes(k, &size);
		skel->skeleton->data_sz = size;
		err = bpf_object__open_skeleton(skel->skeleton, &opts);
	}
	if (err) {
		memtrace_bpf__destroy(skel);
		return err;
	}
	bpf_object__for_each_program(prog, skel->obj) bpf_program__set_autoload(prog, false);
	k->skel = skel;
	return 0;
}

static struct programs *new_programs(const struct kernel_probes *k)
{
	size_t size;
	const void *elf = elf_bytes(k, &size);

	return programs__new(k->skel->obj, elf, size, k->p.multi);
}

/* Loads the programs that the capture begins with. 0 or -errno. */
static int load_programs(struct kernel_probes *k, const struct probes_opts *opts)
{
	const char *names[FIRST_MAX], *twins[HOOK_NR];
	int err;

	k->programs = new_programs(k);
	if (!k->programs)
		return -ENOMEM;
	err = programs__load(k->programs, names, first_names(opts, k->p.old, names));
	if (err || !(k->p.sleepable || (opts->all && !k->atomic)))
		return err;
	k->twins = new_programs(k);
	return k->twins ? programs__load(k->twins, twins, twin_names(twins)) : -ENOMEM;
}

/* Starts what only the programs for older kernels have: the programs of sites, and the one that
 * runs when a thread ends. 0 or -errno. */
static int start_old(struct kernel_probes *k, bool with_malloc)
{
	static const enum call_probe calls[] = { CALL_ENTER, CALL_SET_DEVICE, CALL_ASKED,
						 CALL_MALLOC_ENTER, CALL_MALLOC_FREE };
	size_t n = sizeof(calls) / sizeof(calls[0]) - (with_malloc ? 0 : 2), i;

	k->sites.cookies = bpf_object__find_map_fd_by_name(k->skel->obj, "site_cookies");
	k->sites.programs = bpf_object__find_map_fd_by_name(k->skel->obj, "site_programs");
	for (i = 0; i < n; i++) {
		uint32_t index = calls[i];
		int fd = program_fd(&k->p, call_name(calls[i]));

		if (fd < 0)
			return fd;
		if (bpf_map_update_elem(k->sites.programs, &index, &fd, BPF_ANY))
			return -errno;
	}
	k->thread_gone = bpf_program__attach(programs__get(k->programs, "thread_gone"));
	return k->thread_gone ? 0 : -errno;
}

/* Sets the programs' constants. Call it before they are loaded. */
static void set_constants(struct kernel_probes *k, const struct probes_opts *opts)
{
	memcpy((void *)&k->skel->rodata->py, &opts->py, sizeof(opts->py));
	k->skel->rodata->pid_ns = proc__pid_namespace();
	k->skel->rodata->bench_empty = opts->empty;
	k->skel->rodata->bench_verify = opts->verify;
	k->skel->rodata->modules = opts->modules;
	k->skel->rodata->host_pid = opts->pid > 0 ? (uint32_t)opts->pid : UINT32_MAX;
	if (!k->p.filter)
		return;
	/* no process has UINT32_MAX: without a PID, drop all hits */
	k->skel->rodata->only = opts->pid > 0 ? (uint32_t)opts->pid : UINT32_MAX;
	log_debug("probes are in every process that maps the same files: the programs tell "
		  "PID %d from others",
		  (int)opts->pid);
}

/* Loads the programs and opens the ring. 0 or -errno. */
static int load(struct kernel_probes *k, const struct probes_opts *opts)
{
	struct probes *p = &k->p;
	int err = open_maps(k, opts->capture.host);

	if (err)
		return err;
	err = set_group(p, opts);
	if (err)
		return err;
	if (opts->capture.ring_bytes)
		bpf_map__set_max_entries(k->skel->maps.ring, opts->capture.ring_bytes);
	set_constants(k, opts);
	if (opts->capture.malloc_probes) {
		k->skel->rodata->malloc_sets = MT_MALLOC_SETS_MAX;
		bpf_map__set_max_entries(k->skel->maps.malloc_blocks, MT_MALLOC_SETS_MAX);
	}
	if (opts->capture.host)
		host_programs__prepare(&k->host, k->skel, opts->host_raw);
	err = memtrace_bpf__load(k->skel);
	if (k->types >= 0)
		close(k->types);
	k->types = -1;
	if (err)
		return err;
	err = load_programs(k, opts);
	if (err)
		return err;
	err = p->old ? start_old(k, opts->capture.malloc_probes) : 0;
	if (err)
		return err;
	p->ring = bpf_ring__new(bpf_map__fd(k->skel->maps.ring),
				bpf_map__max_entries(k->skel->maps.ring));
	if (!p->ring)
		return -errno;
	err = open_wake(p);
	return err || !p->group ? err : map_group_counters(k);
}

/* Chooses the programs and the links, by what this kernel can do. */
static void choose_programs(struct kernel_probes *k, const struct probes_opts *opts)
{
	struct probes *p = &k->p;

	/* A kernel that lacks a feature gets other programs, without uprobe.multi and sleeping. */
	p->old = needs_old(opts);
	/* Tells keep_user_reads() whether programs read the kernel's memory: the old ones do, and
	 * in a PID namespace all, to find the PID there. */
	reads_kernel = p->old || proc__pid_namespace();
	p->multi = !p->old && !opts->perf && probes__kernel_multi() != PROBES_MULTI_NONE &&
		   !prefers_perf(opts);
	p->sessions = p->multi && !opts->returns && kernel_has_sessions();
	/* Links by PID would miss threads, so the links are for all processes, and the programs
	 * compare the PID. With a group, they look the process up instead. */
	p->filter = !opts->capture.group &&
		    (opts->filter || (p->multi && probes__kernel_multi() == PROBES_MULTI_THREAD));
	/* Each program that reads the target's memory has a twin that can wait for pages. With
	 * k->atomic the twins are never used; with p->sleepable they are used from the start. */
	k->atomic = opts->atomic || p->old || !probes__kernel_sleepable();
	p->sleepable = opts->sleepable && !k->atomic;
}

/* Loads the programs into the kernel. NULL with errno and *why. */
static struct probes *load_in_kernel(const struct probes_opts *opts, const char **why)
{
	struct kernel_probes *k = calloc(1, sizeof(*k));
	struct probes *p = &k->p;
	int err;

	if (!k) {
		*why = "out of memory";
		return NULL;
	}
	p->in = &in_kernel;
	p->wake = p->pidfd = k->types = -1;
	p->py = opts->py;
	libbpf_log__quiet();
	choose_programs(k, opts);
	register_sections();
	err = load(k, opts);
	if (!err) {
		find_variables(p);
		return p;
	}
	*why = load_why(err);
	probes__free(p);
	errno = -err;
	return NULL;
}

static void detach_one(struct attachment *a)
{
	holder__close(a->link);
	a->link = NULL;
}

/* Puts a new link into an attachment; owns fd. The target may have ended before the link was made,
 * and another process may have its PID: then stops recording and removes the link. 0 or -errno. */
static int keep_link(struct probes *p, struct attachment *a, int fd)
{
	struct pollfd gone = { .fd = p->pidfd, .events = POLLIN };

	if (p->pidfd >= 0 && poll(&gone, 1, 0) > 0) {
		probes__stop(p);
		close(fd);
		return -ESRCH;
	}
	a->link = holder__new(fd, kernel(p)->n_listed < OWN_TABLES);
	return a->link ? 0 : -ENOMEM;
}

/* The attachments in one sequence: first k->at, then k->listed. */
static struct attachment *attachment_at(struct kernel_probes *k, size_t i)
{
	return i < HOOK_NR * 2 ? &k->at[0][0] + i : &k->listed[i - HOOK_NR * 2];
}

/* True if an attachment is in place for this process; pid 0: for any process, or for all. */
static bool is_attached_for(const struct attachment *a, pid_t pid)
{
	return a->link && (!pid || a->pid == pid);
}

/* Begins to detach a process's probes, all at the same time. pid 0: of all processes. */
static void begin_close(struct kernel_probes *k, pid_t pid)
{
	for (size_t i = 0; i < HOOK_NR * 2 + k->n_listed; i++) {
		if (is_attached_for(attachment_at(k, i), pid))
			holder__begin_close(attachment_at(k, i)->link);
	}
}

static void begin_detach(struct probes *p)
{
	begin_close(kernel(p), 0);
}

static void detach(struct probes *p, pid_t pid)
{
	struct kernel_probes *k = kernel(p);
	size_t i, n = HOOK_NR * 2 + k->n_listed, kept = 0;

	begin_close(k, pid);
	if (!pid)
		host_programs__detach(&k->host);
	for (i = 0; i < n; i++) {
		if (is_attached_for(attachment_at(k, i), pid))
			detach_one(attachment_at(k, i));
	}
	for (i = 0; i < k->n_listed; i++) {
		if (k->listed[i].link)
			k->listed[kept++] = k->listed[i];
	}
	k->n_listed = kept;
}

static void free_all(struct probes *p)
{
	if (p->wake >= 0)
		close(p->wake);
	if (kernel(p)->types >= 0)
		close(kernel(p)->types);
	bpf_ring__free(p->ring);
	if (kernel(p)->counters)
		munmap(kernel(p)->counters, group_counters_size(kernel(p)));
	bpf_link__destroy(kernel(p)->thread_gone);
	programs__free(kernel(p)->programs);
	programs__free(kernel(p)->twins);
	memtrace_bpf__destroy(kernel(p)->skel);
	free(kernel(p)->listed);
	free(p->files);
	free(p);
}

/* Attaches a hook's program for process `pid`; 0: for every process that maps the file. Puts the
 * link into *to. 0 or -errno. */
static int attach_to(struct probes *p, pid_t pid, const struct hook *h, bool sleepable,
		     struct attachment *to)
{
	char path[ELF_NAME];
	const struct uprobe_place at = { .path = h->elf ? elf__name(h->elf, path) : NULL,
					 .offset = h->offset };
	const char *name = program_name(h->id, sleepable);
	long fd;
	int prog = sleepable ? bpf_program__fd(programs__get(kernel(p)->twins, name))
			     : program_fd(p, name);

	if (prog < 0)
		return prog;
	if (!at.path)
		return -ENOENT; /* another process of the group has this function */
	if (p->multi)
		fd = link_create_multi(prog, at.path, h->offset, h->id, pid);
	else
		fd = site_program__probe(prog, pid ?: -1, &at);
	return fd < 0 ? fd : keep_link(p, to, fd);
}

/* Attaches a hook's program, or its sleepable twin, for the process or its whole group. */
static int attach_one(struct probes *p, pid_t pid, const struct hook *h, bool sleepable)
{
	return attach_to(p, probes__everywhere(p) ? 0 : pid, h, sleepable,
			 &kernel(p)->at[h->id][sleepable]);
}

static int attach(struct probes *p, pid_t pid, const struct hook *h)
{
	bool sleepable = p->sleepable && program_name(h->id, true);

	return attach_one(p, pid, h, sleepable);
}

/* Returns how many processes have a hook that is attached for them alone. pid not 0: counts only
 * that process. */
static size_t count_owners(const struct probes *p, pid_t pid, enum hook_id id)
{
	const struct kernel_probes *k = kernel(p);
	size_t n = 0;

	for (size_t i = 0; i < k->n_listed; i++)
		n += k->listed[i].is_hook && k->listed[i].id == id &&
		     is_attached_for(&k->listed[i], pid);
	return n;
}

static bool attached(const struct probes *p, pid_t pid, enum hook_id id)
{
	const struct attachment *a = kernel(p)->at[id];

	if (pid == PROBES_ONE)
		return count_owners(p, 0, id);
	return a[0].link || a[1].link || (pid && count_owners(p, pid, id));
}

/* Adds an attachment to k->listed. NULL: out of memory. Valid until the next call. */
static struct attachment *add_listed(struct probes *p, struct attachment entry)
{
	if (array__grow(&kernel(p)->listed, &kernel(p)->cap_listed, kernel(p)->n_listed + 1,
			sizeof(*kernel(p)->listed)))
		return NULL;
	kernel(p)->listed[kernel(p)->n_listed] = entry;
	return &kernel(p)->listed[kernel(p)->n_listed++];
}

/* True if links by PID miss all threads but the main one. */
static bool misses_threads(const struct probes *p)
{
	return p->filter || (p->multi && probes__kernel_multi() == PROBES_MULTI_THREAD);
}

/* Returns how many processes have a hook at a place that is attached for them alone. */
static size_t count_owners_at(const struct probes *p, const struct place *at)
{
	const struct kernel_probes *k = kernel(p);
	size_t n = 0;

	for (size_t i = 0; i < k->n_listed; i++)
		n += k->listed[i].is_hook && place__same(&k->listed[i].place, at);
	return n;
}

/* Attaches a hook for one process of a group, in k->listed. Its children do not have it. */
static int attach_own(struct probes *p, pid_t pid, const struct hook *h)
{
	const struct attachment own = {
		.pid = pid, .is_hook = true, .id = h->id, .place = place__of(h)
	};
	struct attachment *a;
	int err;

	if (misses_threads(p))
		return -EXDEV;
	if (count_owners_at(p, &own.place) >= (elf__is_memory(h->elf) ? OWN_MEMORY_MAX : OWN_MAX))
		return -ENOSPC;
	a = add_listed(p, own);
	if (!a)
		return -ENOMEM;
	err = attach_to(p, pid, h, p->sleepable && program_name(h->id, true), a);
	if (err)
		kernel(p)->n_listed--;
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
static int attach_calls_multi(struct probes *p, pid_t pid, enum call_probe which, int prog,
			      const struct call_file *file, const struct probe_site *sites,
			      size_t n)
{
	char name[ELF_NAME];
	uint64_t offsets[CALL_SITES_MAX], cookies[CALL_SITES_MAX], ref_ctrs[CALL_SITES_MAX];
	struct link_create_uprobe_multi attr = {
		.prog_fd = prog,
		.path = (uintptr_t)elf__name(file->elf, name),
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.ref_ctr_offsets = (uintptr_t)ref_ctrs,
		.attach_type = link_type(which),
		.cnt = n,
		.uflags = is_return(which) ? UPROBE_MULTI_RETURN : 0,
		.pid = probes__calls_pid(p, pid, file),
	};
	struct attachment *a = add_listed(
		p, (struct attachment){ .pid = attr.pid, .is_malloc = which >= CALL_MALLOC });
	long fd;
	size_t i;

	if (!a)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		offsets[i] = sites[i].offset;
		cookies[i] = sites[i].cookie;
		ref_ctrs[i] = sites[i].ref_ctr;
	}
	fd = link_create(&attr);
	if (fd >= 0)
		fd = keep_link(p, a, fd);
	if (fd < 0)
		kernel(p)->n_listed--;
	return fd;
}

/* Attaches the program of a call to one site of a file. 0 or -errno. */
static int attach_call_perf(struct probes *p, pid_t pid, enum call_probe which, int prog,
			    const struct call_file *file, const struct probe_site *site)
{
	char name[ELF_NAME];
	const struct uprobe_place at = { .path = elf__name(file->elf, name),
					 .offset = site->offset,
					 .ref_ctr = site->ref_ctr,
					 .cookie = p->old && is_return(which) ? 0 : site->cookie,
					 .returns = is_return(which) };
	pid_t target = probes__calls_pid(p, pid, file) ?: -1;
	struct attachment *a = add_listed(p,
					  (struct attachment){ .pid = target == -1 ? 0 : target,
							       .is_malloc = which >= CALL_MALLOC });
	int fd;

	if (!a)
		return -ENOMEM;
	fd = p->old && !is_return(which)
		     ? site_program__attach(&kernel(p)->sites, which, target, &at)
		     : site_program__probe(prog, target, &at);
	if (fd >= 0)
		fd = keep_link(p, a, fd);
	if (fd < 0)
		kernel(p)->n_listed--;
	return fd;
}

/* Attaches the program of a call to n sites of a file, to all or none: one link, or one perf event
 * for each site. */
static int attach_calls(struct probes *p, pid_t pid, enum call_probe which,
			const struct call_file *file, const struct probe_site *sites, size_t n)
{
	size_t before = kernel(p)->n_listed, i;
	char name[ELF_NAME];
	int err = 0, prog;

	if (!elf__name(file->elf, name))
		return -ESTALE;
	if (misses_threads(p) && elf__is_memory(file->elf))
		return -EXDEV;
	if (n > CALL_SITES_MAX)
		return -E2BIG;
	prog = program_fd(p, call_name(which));
	if (prog < 0)
		return prog;
	if (p->multi)
		return attach_calls_multi(p, pid, which, prog, file, sites, n);
	for (i = 0; i < n && !err; i++)
		err = attach_call_perf(p, pid, which, prog, file, &sites[i]);
	while (err && kernel(p)->n_listed > before)
		detach_one(&kernel(p)->listed[--kernel(p)->n_listed]);
	return err;
}

/* Loads the sleepable twins in a thread, since the ring must be drained meanwhile. 0 when they are
 * loaded, -EINPROGRESS, or -errno. */
static int load_twins(struct kernel_probes *k)
{
	const char *names[HOOK_NR];
	int err;

	if (k->twins)
		return programs__poll(k->twins);
	k->twins = new_programs(k);
	if (!k->twins)
		return -ENOMEM;
	err = programs__begin(k->twins, names, twin_names(names));
	return err ?: -EINPROGRESS;
}

static void prepare_sleepable(struct probes *p)
{
	if (!kernel(p)->atomic && !kernel(p)->twins)
		load_twins(kernel(p));
}

/* True if any process has the allocator's hooks for itself: those links cannot change to the
 * twins. */
static bool is_attached_singly(const struct probes *p)
{
	return attached(p, PROBES_ONE, HOOK_REPORT) || attached(p, PROBES_ONE, HOOK_CPU_NEW);
}

/* Attaches the twins of all attached programs, then removes these: hits in between run both. After
 * an error only the old programs are attached. */
static int go_sleepable(struct probes *p, pid_t pid, const struct hook *hooks)
{
	struct kernel_probes *k = kernel(p);
	int i, err = k->atomic || is_attached_singly(p) ? -EOPNOTSUPP : load_twins(k);

	if (err)
		return err;
	for (i = 0; i < HOOK_NR; i++) {
		if (!program_name(i, true) || !attached(p, 0, i))
			continue;
		err = attach_one(p, pid, &hooks[i], true);
		if (err)
			goto undo;
	}
	/* All twins run. Remove the other programs, all at the same time. */
	for (i = 0; i < HOOK_NR; i++) {
		if (k->at[i][1].link && k->at[i][0].link)
			holder__begin_close(k->at[i][0].link);
	}
	for (i = 0; i < HOOK_NR; i++) {
		if (k->at[i][1].link)
			detach_one(&k->at[i][0]);
	}
	p->sleepable = true;
	p->both_until = clock__kernel();
	return 0;
undo:
	for (i = 0; i < HOOK_NR; i++)
		detach_one(&k->at[i][1]);
	return err;
}

/* Detaches a hook for all processes. Does not wait for that. */
static void detach_hook(struct probes *p, enum hook_id id)
{
	struct kernel_probes *k = kernel(p);

	for (int i = 0; i < 2; i++) {
		holder__drop(k->at[id][i].link);
		k->at[id][i].link = NULL;
	}
	for (size_t i = k->n_listed; i-- > 0;) {
		if (!k->listed[i].is_hook || k->listed[i].id != id)
			continue;
		holder__drop(k->listed[i].link);
		k->listed[i] = k->listed[--k->n_listed];
	}
}

/* Detaches the probes of malloc. Does not wait for that. */
static void detach_malloc(struct probes *p)
{
	struct kernel_probes *k = kernel(p);

	for (size_t i = k->n_listed; i-- > 0;) {
		if (!k->listed[i].is_malloc)
			continue;
		holder__drop(k->listed[i].link);
		k->listed[i] = k->listed[--k->n_listed];
	}
}

/* Takes the event from p->wake, so that it is not readable until the next one. */
static void forget_wake(struct probes *p)
{
	struct epoll_event ev;

	epoll_wait(p->wake, &ev, 1, 0);
}

/* Returns the counters of a process: its number in the group, and which of k->stripes copies. */
static uint64_t *counter_copy(const struct kernel_probes *k, uint32_t number, uint32_t copy)
{
	return k->counters[(number & (MT_MEMBERS - 1)) * k->stripes + copy];
}

/* Sets c to the sums over a number's copies of its counters. */
static void read_group_counters(const struct kernel_probes *k, uint32_t number,
				uint64_t c[MT_CNT_NR])
{
	uint32_t i, j;

	memset(c, 0, MT_CNT_NR * sizeof(*c));
	for (i = 0; i < k->stripes; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			c[j] += __atomic_load_n(&counter_copy(k, number, i)[j], __ATOMIC_RELAXED);
	}
}

/* Sets c to the sums over all CPUs. 0 or -errno. */
static int read_counters(const struct probes *p, uint32_t number, uint64_t c[MT_CNT_NR])
{
	int cpus, err, i, j;
	uint64_t *v;

	if (p->group) {
		read_group_counters(kernel(p), number, c);
		return 0;
	}
	cpus = libbpf_num_possible_cpus();
	if (cpus < 0)
		return cpus;
	v = calloc(cpus, MT_CNT_NR * sizeof(*v));
	if (!v)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(kernel(p)->skel->maps.counters), &number, v);
	if (err) {
		err = -errno;
		goto out;
	}
	memset(c, 0, MT_CNT_NR * sizeof(*c));
	for (i = 0; i < cpus; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			c[j] += v[i * MT_CNT_NR + j];
	}
out:
	free(v);
	return err;
}

static void zero_counters(struct probes *p, uint32_t number)
{
	uint32_t i, j;

	for (i = 0; i < kernel(p)->stripes; i++) {
		for (j = 0; j < MT_CNT_NR; j++)
			__atomic_store_n(&counter_copy(kernel(p), number, i)[j], 0,
					 __ATOMIC_RELAXED);
	}
}

static int add_root(struct probes *p, uint64_t key)
{
	uint8_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(kernel(p)->skel->maps.root_modules), &key, &one,
				   BPF_ANY)
		       ? -errno
		       : 0;
}

/* Removes a number's roots. */
static void clear_roots(struct probes *p, uint32_t number)
{
	int fd = bpf_map__fd(kernel(p)->skel->maps.root_modules);
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

static int attach_host(struct probes *p, const char **way)
{
	struct host_programs *h = &kernel(p)->host;
	int err = h->link[0] ? 0 : host_programs__attach(h, kernel(p)->skel);

	*way = h->raw ? "sys_exit" : "fexit";
	return err;
}

static void skipped(const struct probes *p, struct probes_skipped *ret)
{
	const struct kernel_probes *k = kernel(p);
	int fds[HOST_CALLS + 1];

	ret->events = programs__skipped(k->programs) + programs__skipped(k->twins);
	ret->host = programs__skipped_of(fds, host_programs__fds(k->skel, fds),
					 bpf_obj_get_info_by_fd);
}

/* key: own_key() of the class. is: 0 removes the class. 0 or -errno. */
static int set_module_type(struct probes *p, uint64_t key, enum mt_module_type is)
{
	int fd = bpf_map__fd(kernel(p)->skel->maps.module_types);
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
	struct probes *p = opts->capture.inside ? probes_inside__load(opts, why)
						: load_in_kernel(opts, why);
	struct probes_opts without_host = *opts;

	if (!p && opts->capture.host) {
		without_host.capture.host = false;
		p = probes__load(&without_host, why);
		if (p)
			log_debug("the kernel refused the programs for host memory");
		return p;
	}
	if (!p)
		return NULL;
	if (opts->seen)
		memset(p->vars.seen_code, 1, MT_SEEN_SLOTS);
	p->empty = opts->empty;
	p->calls_each = probes__everywhere(p) && seccomp__filters_returns();
	return p;
}
