/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf check: prints whether this host and a process can be traced, and what that depends
 * on. Attaches nothing to other processes. */
#include "cmd/commands.h"

#include <argp.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/kernel.h"
#include "capture/preload.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "cmd/gpu_look.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "inspect/arch.h"
#include "inspect/census.h"
#include "inspect/container.h"
#include "inspect/cuda.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "model/analysis.h"
#include "model/words.h"

#define NVML_WAIT 3000			  /* ms; a GPU that sleeps takes a moment to answer */
#define CENSUS_LIMIT UINT64_C(5000000000) /* time for reading the tensors, ns */

/* A fact, and what it means. */
struct check_line {
	bool ok;
	int status; /* exit code that the fact causes; 0: it only limits what works, or it is good */
	char what[24], text[1024];
};

struct check_lines {
	bool details; /* -v: also facts about the inside of PyTorch and Python */
	bool explain; /* --explain: each probe */
	struct check_line *lines;
	size_t n, cap;
	char why[2048]; /* first line that says NO, without its mark; or why there is no line */
	int status;	/* exit code of that line; 0: none says NO */
	const struct hit_site_cost *hits; /* HIT_SITES, measured; NULL: not measured */
};

/* Adds a line about a fact. ok: the fact is good. Otherwise status is the exit code that it
 * causes, or 0 for a fact that only limits what works. text may contain names of the target. */
static void add_line(struct check_lines *l, bool ok, const char *what, const char *text, int status)
{
	struct check_line *line;

	if (array__grow(&l->lines, &l->cap, l->n + 1, sizeof(*l->lines))) {
		l->status = l->status ?: EXIT_FAILED;
		return;
	}
	line = &l->lines[l->n++];
	*line = (struct check_line){ .ok = ok, .status = ok ? 0 : status };
	snprintf(line->what, sizeof(line->what), "%s", what);
	text__clean(line->text, sizeof(line->text), text, strlen(text));
	if (!line->status || l->status)
		return;
	l->status = status;
	snprintf(l->why, sizeof(l->why), "%s: %.900s", what, line->text);
}

/* ---- facts about this host ---- */

/* Reads the first line of a file. Returns buf; "" if it cannot be read. */
static char *first_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");

	buf[0] = '\0';
	if (f && !fgets(buf, (int)size, f))
		buf[0] = '\0';
	if (f)
		fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return buf;
}

/* Returns false in gVisor, where the lines about BPF would add nothing. */
static bool check_kernel(struct check_lines *l)
{
	struct utsname un;
	char text[256];
	bool known, gvisor;

	uname(&un);
	known = !strcmp(un.machine, ARCH_UNAME);
	gvisor = guest__in_gvisor(un.release, un.version);
	snprintf(text, sizeof(text), "%s %s (needs Linux %s or newer)", un.release, un.machine,
		 probes__oldest_kernel);
	add_line(l, known, "kernel", known ? text : "this program is for " ARCH_UNAME,
		 EXIT_NOT_PERMITTED);
	add_line(l, !gvisor, "gVisor",
		 gvisor ? "yes: its kernel has no BPF, and the host cannot see into it. "
			  "Run the job in a container of another runtime, such as runc"
			: "not used",
		 EXIT_NOT_PERMITTED);
	return !gvisor;
}

/* Adds a line on the kernel's lockdown, which can keep BPF programs from reading memory. */
static void check_lockdown(struct check_lines *l)
{
	char text[128];

	first_line("/sys/kernel/security/lockdown", text, sizeof(text));
	if (strstr(text, "[confidentiality]"))
		add_line(l, /*ok=*/false, "lockdown",
			 "confidentiality: the kernel keeps BPF programs from reading memory; boot "
			 "with lockdown=integrity or none",
			 0);
	else
		add_line(l, /*ok=*/true, "lockdown",
			 strstr(text, "[integrity]") ? "integrity: tracing works" : "none", 0);
}

/* Adds a line on Yama, which limits who can read another process's memory. */
static void check_ptrace(struct check_lines *l)
{
	char text[16];
	int scope;

	first_line("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
	scope = text[0] ? text[0] - '0' : 0;
	if (scope >= 3)
		add_line(l, /*ok=*/false, "ptrace_scope",
			 "3: not even root can read processes; set kernel.yama.ptrace_scope below "
			 "3 and reboot",
			 EXIT_NOT_PERMITTED);
	else
		add_line(l, /*ok=*/true, "ptrace_scope",
			 scope ? "1 or 2: only root, or CAP_SYS_PTRACE, can read processes"
			       : "0: no restriction",
			 0);
}

/* Adds a line if the kernel was built without uprobes, as some for virtual machines are. */
static void check_uprobes(struct check_lines *l, const struct probes *p)
{
	if (!probes__have_multi(p) && access("/sys/bus/event_source/devices/uprobe/type", F_OK))
		add_line(l, /*ok=*/false, "uprobes",
			 "this kernel puts no probes on programs: it must be built with "
			 "CONFIG_UPROBE_EVENTS",
			 EXIT_NOT_PERMITTED);
}

/* Adds lines on what the kernel lacks for probes, and what replaces it. */
static void check_probes(struct check_lines *l, const struct probes *p)
{
	const char *filter = "only the captured process is probed";
	char text[256] = "programs for older kernels, as MEMTRACE_BENCH asks";

	if (!probes__old(p))
		strcpy(text, "all that the programs can use");
	else if (*features__missing())
		snprintf(text, sizeof(text),
			 "not in this kernel: %s. Programs for older kernels run instead: at most "
			 "1024 threads can run modules or backward at a time",
			 features__missing());
	add_line(l, !probes__old(p), "BPF features", text, 0);
	add_line(l, probes__have_multi(p), "uprobe.multi",
		 probes__have_multi(p) ? "attaches and detaches in milliseconds"
				       : "not in this kernel (6.6 and newer have it): perf uprobes "
					 "instead, which detach slower",
		 0);
	if (probes__everywhere(p))
		filter = probes__kernel_multi() == PROBES_MULTI_THREAD
				 ? "this kernel's filter misses threads (Linux 6.6 to 6.9): probes "
				   "are in every process that maps the same files, and cost others "
				   "about 1 microsecond a hit"
				 : "in the BPF programs, as MEMTRACE_BENCH asks";
	add_line(l, !probes__everywhere(p), "process filter", filter, 0);
	add_line(l, probes__kernel_sleepable(), "uprobe.s",
		 probes__kernel_sleepable()
			 ? "reads stack frames that are not in memory"
			 : "not in this kernel (6.0 and newer have it): stacks are cut "
			   "where a frame is not in memory",
		 0);
}

/* Writes why a kind of place has no cost. */
static void say_no_cost(char *buf, size_t size, enum hit_site site, int err)
{
	if (err == -ENOTSUP)
		snprintf(buf, size, "not on this machine");
	else if (err == -HIT_ENOTSUPP)
		snprintf(buf, size, "this kernel puts no probe on it");
	else if (err == -ECHILD)
		snprintf(buf, size, "not measured: the process with the %s ended early",
			 hit_site__name(site));
	else
		snprintf(buf, size, "not measured: %s", strerror(-err));
}

/* Adds a line on the cost of a hit on one kind of place. */
static void check_site(struct check_lines *l, enum hit_site site, const struct hit_site_cost *cost)
{
	const char *us = text__unicode() ? "\xc2\xb5s" : "us", *how = "";
	char what[32], text[160];

	snprintf(what, sizeof(what), "hit, %s", hit_site__name(site));
	if (cost->err) {
		say_no_cost(text, sizeof(text), site, cost->err);
		add_line(l, true, what, text, 0);
		return;
	}
	if (cost->call && hit_site__is_safe(cost))
		how = ", by a call instead of a trap";
	else if (cost->call && cost->fork_dies)
		how = ", by a call that ends forked children: never used";
	else if (cost->call)
		how = ", by a call that overwrites data: never used";
	snprintf(text, sizeof(text), "%.2f %s%s", cost->ns / 1e3, us, how);
	add_line(l, true, what, text, 0);
}

/* Adds lines on the time that a hit of a probe costs here, measured now. */
static void check_cost(struct check_lines *l)
{
	struct hit_cost hit;
	const char *us = text__unicode() ? "\xc2\xb5s" : "us";
	char text[160];
	int err = probes__hit_cost(HIT_SELDOM, &hit);

	if (err)
		snprintf(text, sizeof(text), "cannot be measured (%s): --cost has no effect",
			 strerror(-err));
	else
		snprintf(text, sizeof(text),
			 "%.1f %s and the program's time; %.1f %s at instructions that the "
			 "kernel cannot emulate. In a loop, by place:",
			 hit.emulated / 1e3, us, hit.stepped / 1e3, us);
	add_line(l, !err, "cost of a hit", text, 0);
	l->hits = err ? NULL : probes__site_costs();
	for (int i = 0; l->hits && i < HIT_SITES; i++)
		check_site(l, i, &l->hits[i]);
}

/* Adds a line on whether the ends of processes are seen, for recordings and --on-kill. */
static void check_endings(struct check_lines *l)
{
	char text[256];
	bool all = ending_hooks__try(text, sizeof(text));

	add_line(l, all, "process ends", text, 0);
}

/* Adds lines on all that the BPF programs need. Loads them, to see whether the kernel accepts
 * them. */
static void check_bpf(struct check_lines *l)
{
	const char *missing = caps__missing(), *why = "";
	bool btf = !access("/sys/kernel/btf/vmlinux", R_OK);
	struct probes_opts po = { .capture.ring_bytes = 1 << 16, .all = true };
	enum bpf_token_state token = bpf_token__state();
	struct probes *p;
	char text[256];

	snprintf(text, sizeof(text), *missing ? "%s missing; run it with sudo" : "%sall", missing);
	add_line(l, !*missing, "capabilities", text, EXIT_NOT_PERMITTED);
	if (token != BPF_TOKEN_NOT_NEEDED)
		add_line(l, token == BPF_TOKEN_HERE, "BPF token", bpf_token__text(token),
			 EXIT_NOT_PERMITTED);
	add_line(l, btf, "kernel BTF",
		 btf ? "/sys/kernel/btf/vmlinux"
		     : "no /sys/kernel/btf/vmlinux: the BPF programs find the kernel's "
		       "structures there. The kernel must be built with "
		       "CONFIG_DEBUG_INFO_BTF",
		 EXIT_NOT_PERMITTED);
	if (!btf)
		return;
	probes__from_environment(&po);
	p = probes__load(&po, &why);
	if (!p)
		snprintf(text, sizeof(text), "%s (%s)", why, strerror(errno));
	add_line(l, p, "BPF programs", p ? "the kernel accepts them" : text, EXIT_NOT_PERMITTED);
	if (p)
		check_uprobes(l, p);
	if (p)
		check_probes(l, p);
	if (p)
		check_cost(l);
	if (p)
		check_endings(l);
	probes__free(p);
}

/* Returns the version in a line such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module 550.54.15
 * Tue Mar ...", which it changes. */
static const char *driver_version(char *line)
{
	char *rest = line;

	for (char *word; (word = strsep(&rest, " "));)
		if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.'))
			return word;
	return "version not known";
}

/* Adds a line on a GPU: how much is free, and who holds the rest. */
static void check_gpu(struct check_lines *l, const struct gpu_look *g, unsigned gpu)
{
	const struct gpu_table *t = &g->table[gpu];
	size_t left_over = gpu_look__left_over(t), len;
	char text[1024], what[16], left[24], total[24], held[640];

	snprintf(what, sizeof(what), "GPU %u", gpu);
	if (!t->used_known) {
		snprintf(text, sizeof(text), "its free memory is not known: %s", t->why);
		add_line(l, /*ok=*/false, what, text, 0);
		return;
	}
	gpu_look__say_holders(t, GPUS_NO_SLICE, held, sizeof(held));
	len = (size_t)snprintf(text, sizeof(text), "%s of %s free%s%s",
			       text__bytes(left, sizeof(left), t->total - t->used),
			       text__bytes(total, sizeof(total), t->total), *held ? "; held: " : "",
			       held);
	if (*t->why)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "; %s", t->why);
	if (left_over && len < sizeof(text))
		snprintf(text + len, sizeof(text) - len,
			 "; %zu of them %s probably left over: see memtrace-bpf ps --device %u",
			 left_over, left_over == 1 ? "is" : "are", gpu);
	add_line(l, /*ok=*/true, what, text, 0);
}

/* Adds lines on the GPUs that NVML reports, or why it reports none. */
static void check_gpus(struct check_lines *l, const struct gpu_look *g)
{
	char text[512], total[24];

	if (!g->by_driver) {
		snprintf(text, sizeof(text), "no driver-reported figures: %s", g->why);
		add_line(l, /*ok=*/false, "GPUs", text, 0);
		return;
	}
	snprintf(text, sizeof(text), "%u: %s, %s%s", g->n, gpus__get(0)->name,
		 text__bytes(total, sizeof(total), gpus__get(0)->total), g->n > 1 ? ", ..." : "");
	add_line(l, /*ok=*/true, "GPUs", text, 0);
	for (unsigned i = 0; i < g->n; i++)
		check_gpu(l, g, i);
}

/* Adds lines on NVIDIA's driver and the GPUs. WSL has NVML, and no driver of its own. */
static void check_driver(struct check_lines *l)
{
	struct gpu_look *g = gpu_look__new(/*torch=*/false);
	char text[512], version[256];
	int err;

	first_line("/proc/driver/nvidia/version", version, sizeof(version));
	if (version[0]) {
		snprintf(text, sizeof(text), "NVIDIA %s", driver_version(version));
		add_line(l, /*ok=*/true, "GPU driver", text, 0);
	}
	if (g)
		g->within = NVML_WAIT;
	err = g ? gpu_look__read(g) : -ENOMEM;
	snprintf(text, sizeof(text), "no driver-reported figures: %s", strerror(-err));
	if (err)
		add_line(l, /*ok=*/false, "GPUs", text, 0);
	else if (!version[0] && !g->by_driver && *gpus__why())
		add_line(l, /*ok=*/false, "GPU driver",
			 "no NVIDIA driver on this host: memory of the CPU, and dry runs", 0);
	else
		check_gpus(l, g);
	gpu_look__free(g);
}

/* Adds a line on whether the libraries of dry runs are there. */
static void check_dryrun(struct check_lines *l)
{
	char dir[2 * PATH_MAX];
	int err = dryrun__find(dir, sizeof(dir));
	const char *text = "available";

	if (err == -ENOENT)
		text = "its libraries are not installed: no estimate, no run --dry-run-cuda";
	else if (err)
		text = "its folder has a name that cannot be preloaded";
	add_line(l, !err, "dry run", text, 0);
}

/* Adds the facts about this host. */
static void check_host(struct check_lines *l)
{
	if (check_kernel(l)) {
		check_bpf(l);
		check_lockdown(l);
		check_ptrace(l);
	}
	add_line(l, !proc__pid_namespace(), "PIDs",
		 proc__pid_namespace()
			 ? "a PID namespace (a container?): processes outside are not "
			   "visible, and driver-reported figures are not available"
			 : "those of the host",
		 0);
	check_driver(l);
	check_dryrun(l);
}

/* ---- facts about a process ---- */

/* Adds lines on whether frames of threads can be read: where the thread state is, and how many
 * threads have frames. Without -v only what is missing. */
static void check_threads(struct check_lines *l, struct target *t)
{
	struct pythread *threads = NULL;
	struct pyframe frames[MT_MAX_FRAMES];
	size_t n_threads = 0, i;
	int with_frames = 0;
	char text[512];

	if (t->has_slot && t->slot.kind == PYSLOT_EITHER)
		snprintf(text, sizeof(text), "thread pointer %+" PRId64 " or %+" PRId64,
			 t->slot.first, t->slot.second);
	else if (t->has_slot)
		snprintf(text, sizeof(text), "thread pointer %+" PRId64 "%s", t->slot.first,
			 t->slot.kind == PYSLOT_INDIRECT ? ", one link" : "");
	if (l->details || !t->has_slot)
		add_line(l, t->has_slot, "thread state", t->has_slot ? text : t->python_why, 0);
	if (python__threads(t->python, &threads, &n_threads) == 0) {
		for (i = 0; i < n_threads; i++)
			with_frames += python__stack(t->python, &threads[i], frames,
						     MT_MAX_FRAMES) > 0;
		free(threads);
	}
	snprintf(text, sizeof(text), "%zu, %d of them with frames now", n_threads, with_frames);
	if (l->details || !n_threads)
		add_line(l, n_threads > 0, "Python threads", text, 0);
}

/* Adds lines on the interpreter of the process. */
static void check_python(struct check_lines *l, struct target *t)
{
	char version[32], text[512];

	if (!t->python) {
		add_line(l, /*ok=*/false, "Python", t->python_why, 0);
		return;
	}
	snprintf(text, sizeof(text), "%s in %s",
		 python__version_text(t->python, version, sizeof(version)),
		 python__file(t->python));
	add_line(l, /*ok=*/true, "Python", text, 0);
	check_threads(l, t);
}

/* Adds a line on whether calls of nn.Module can be named. */
static void check_modules(struct check_lines *l, struct target *t)
{
	bool modules = t->python && !target__look_into_torch(t);

	if (t->python)
		add_line(l, modules, "nn.Module",
			 modules ? "names of modules and steps are recorded"
				 : "torch.nn is not imported yet: no names of modules, no "
				   "steps",
			 0);
}

/* Writes a probe's file, offset, instruction, the way that the kernel runs it, and the offset in
 * its function. */
static void explain_site(char *buf, size_t size, const char *file, uint64_t offset,
			 const struct site *s, const char *what)
{
	const char *how = s->cls == SITE_STEPPED ? "single-stepped" : "emulated";

	snprintf(buf, size, "%s+%#" PRIx64 ": %s (%s), %s+%u", file, offset, s->text, how, what,
		 s->offset);
}

/* Writes how the kernel runs the instruction of a probe, and the cost of a hit if it is known. */
static void say_how(char *buf, size_t size, const struct check_lines *l, const struct site *site)
{
	enum hit_site kind = site->cls == SITE_STEPPED ? HIT_STEPPED : HIT_PUSH;
	const char *us = text__unicode() ? "\xc2\xb5s" : "us";
	const char *how = kind == HIT_STEPPED ? "single-stepped" : "emulated by the kernel";

	if (l->hits && !l->hits[kind].err)
		snprintf(buf, size, "%s: %.2f %s a hit", how, l->hits[kind].ns / 1e3, us);
	else
		snprintf(buf, size, "%s", how);
}

/* Adds a line for a probe. */
static void check_hook(struct check_lines *l, const struct hook *h, int id)
{
	char text[1024];

	if (h->found && l->explain)
		explain_site(text, sizeof(text), h->file, h->offset, &h->site, h->symbol);
	else if (h->found)
		say_how(text, sizeof(text), l, &h->site);
	else
		snprintf(text, sizeof(text), "%s", h->why_not ? h->why_not : "not found");
	add_line(l, h->found, hook__name(id), text, h->required ? EXIT_UNUSABLE : 0);
}

/* Adds a line for all probes, and one for each that is missing. */
static void check_all_hooks(struct check_lines *l, const struct target *t)
{
	int found = 0, slow = 0;
	char text[256];

	for (int i = 0; i < HOOK_NR; i++) {
		const struct hook *h = &t->hooks[i];

		found += h->found;
		slow += h->found && h->site.cls == SITE_STEPPED;
		if (!h->found || l->details || l->explain)
			check_hook(l, h, i);
	}
	snprintf(text, sizeof(text), "%d of %d can be placed%s", found, HOOK_NR,
		 slow ? "; some must be single-stepped, which is slower" : "");
	add_line(l, found > 0, "probes", text, 0);
}

/* Adds lines on the CUDA functions of a file. They get return probes, so they must be plain C
 * functions, which no exception leaves. */
static void add_calls(struct check_lines *l, const struct cuda_file *f, const struct map *map)
{
	char text[1024], what[1024 + PATH_MAX];
	size_t i;

	if (f->throws) {
		snprintf(text, sizeof(text),
			 "%s: not probed: C++ exceptions may leave its functions", map->path);
		add_line(l, /*ok=*/false, "CUDA calls", text, 0);
		return;
	}
	if (f->newer[0]) {
		snprintf(text, sizeof(text),
			 "%s: %s is newer than this memtrace-bpf, and is not probed", map->path,
			 f->newer);
		add_line(l, /*ok=*/false, "CUDA calls", text, 0);
	}
	if (!l->explain) {
		snprintf(text, sizeof(text), "%zu functions%s in %s", f->n,
			 f->refused ? ", some cannot be probed," : "", map->path);
		add_line(l, /*ok=*/true, "CUDA calls", text, 0);
		return;
	}
	for (i = 0; i < f->n; i++) {
		const struct cuda_function *fn = cuda__function(f->site[i].fn);

		snprintf(text, sizeof(text),
			 fn->op == CUDA_SET_DEVICE ? "entry, %s" : "entry and return, %s",
			 fn->name);
		explain_site(what, sizeof(what), map->path, f->site[i].offset, &f->site[i].site,
			     text);
		add_line(l, /*ok=*/true, "CUDA call", what, 0);
	}
}

/* True if mapping i is a file's first executable one. */
static bool is_first_of_file(const struct maps *m, size_t i)
{
	const struct map *map = &m->v[i];

	if (!map->x || !map->inode || map->path[0] != '/')
		return false;
	for (size_t k = 0; k < i; k++) {
		const struct map *before = &m->v[k];
		bool same = before->inode == map->inode && before->dev_major == map->dev_major &&
			    before->dev_minor == map->dev_minor;

		if (same && before->x)
			return false;
	}
	return true;
}

/* Looks for CUDA functions in all mapped files, in each once: at its first executable mapping. */
static void check_calls(struct check_lines *l, const struct target *t)
{
	const struct maps *m = &t->maps;
	struct cuda_file f;

	for (size_t i = 0; i < m->n; i++) {
		if (!is_first_of_file(m, i) || cuda__look(t->proc, m, &m->v[i], &f))
			continue;
		if (f.n || f.throws)
			add_calls(l, &f, &m->v[i]);
		elf__free(f.elf);
	}
}

/* The ending of a regular noun after this number. */
static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Checks whether tensors can be named: reads all of them once, as a capture and `dump` do. */
static void check_census(struct check_lines *l, const struct target *t)
{
	const struct census_opts o = { .limit_ns = CENSUS_LIMIT };
	struct census_state s;
	const char *why = "";
	char text[256], n[48];
	struct census *c;
	int err = -ENOENT;

	if (!t->python)
		return;
	c = census__open(t->python, /*need_torch=*/true, CENSUS_WITHIN_NS, &why);
	if (c)
		err = census__read(c, &o, &s, &why);
	if (!err) {
		snprintf(text, sizeof(text),
			 "%s, %" PRIu64 " module%s and %" PRIu64 " optimizer%s read in %.0f ms%s",
			 text__counted(n, sizeof(n), s.ntensors, "storage"), s.modules,
			 plural(s.modules), s.optimizers, plural(s.optimizers),
			 (double)(s.end - s.begin) / 1e6,
			 s.know_grad ? "" : "; no gradient seen yet");
		census_state__free(&s);
	} else {
		snprintf(text, sizeof(text), "%s: memory gets no names so far",
			 *why ? why : "they cannot be read");
	}
	add_line(l, !err, "tensors", text, 0);
	census__free(c);
}

/* Adds the facts about a process that target__look() looked at. */
static void check_process(struct check_lines *l, struct target *t)
{
	char text[256], command[1024];
	const char *cmdline;
	size_t len;

	cmdline = proc__cmdline(t->proc, &len);
	words__arguments(command, sizeof(command), cmdline, len);
	add_line(l, /*ok=*/true, "process", *command ? command : proc__comm(t->proc), 0);
	check_python(l, t);
	if (!t->torch.found) {
		add_line(l, /*ok=*/false, "PyTorch", "not imported yet: a capture waits for it", 0);
		return;
	}
	check_modules(l, t);
	len = (size_t)snprintf(text, sizeof(text), "%s",
			       t->torch.version[0] ? t->torch.version : "version unknown");
	if (t->torch.cuda_runtime[0])
		snprintf(text + len, sizeof(text) - len, ", %s", t->torch.cuda_runtime);
	add_line(l, /*ok=*/true, "PyTorch", text, 0);
	check_census(l, t);
	check_all_hooks(l, t);
	check_calls(l, t);
}

/* ---- the command ---- */

struct check_args {
	pid_t pid;
	bool explain, verbose, json;
};

enum { OPT_EXPLAIN = 0x3000 };

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Also check this process", OPTIONS_PROCESS },
	{ "explain", OPT_EXPLAIN, NULL, 0,
	  "With -p: print the file, offset and instruction of each probe", OPTIONS_OUTPUT },
	{ "verbose", 'v', NULL, 0, "Also print details and the kernel's messages", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check_args *a = state->input;

	switch (key) {
	case 'p':
		capture_args__parse_only_pid(state, arg, "", &a->pid);
		break;
	case OPT_EXPLAIN:
		a->explain = true;
		break;
	case 'v':
		a->verbose = true;
		log__set_level(LOG_DEBUG);
		break;
	case OPT_FORMAT:
		a->json = report_args__choose(state, "--format", arg, report_args_formats);
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg, "to check a process: -p PID");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Prints the verdict on this host. The verdict on a process follows on the same line. */
static void host_verdict(const struct check_lines *l)
{
	if (l->status)
		printf("This host cannot trace: %s.\n", l->why);
	else
		fputs("This host can trace.", stdout);
}

/* Adds the lines of a process. Returns its exit code. Sets *torch if it has PyTorch. */
static int check_target(struct check_lines *l, pid_t pid, bool *torch)
{
	struct failure f;
	struct target t;

	if (target__open(pid, &t, &f))
		goto failed;
	if (target__look(&t, &f)) {
		target__close(&t);
		goto failed;
	}
	check_process(l, &t);
	*torch = t.torch.found;
	target__close(&t);
	return l->status;
failed:
	snprintf(l->why, sizeof(l->why), "%s", f.text);
	l->status = f.status;
	return f.status;
}

static void process_verdict(const struct check_lines *l, pid_t pid, bool torch)
{
	if (l->status && !l->n)
		printf(" PID %d cannot be attached.\n", (int)pid);
	else if (l->status)
		printf(" PID %d cannot be attached: %s.\n", (int)pid, l->why);
	else if (!torch)
		printf(" PID %d can be attached: it has no PyTorch, but host memory.\n", (int)pid);
	else
		printf(" PID %d can be attached.\n", (int)pid);
	if (l->status && !l->n)
		log_err("%s", l->why);
}

static void print_lines(const struct check_lines *l)
{
	size_t width = text__one_line(text__columns(stdout));
	char first[64];

	for (size_t i = 0; i < l->n; i++) {
		const struct check_line *line = &l->lines[i];
		const char *limits = line->status ? "NO" : "-";

		snprintf(first, sizeof(first), "%-4s %-16s ", line->ok ? "ok" : limits, line->what);
		text__paragraph(stdout, width, first, "                      ", "%s", line->text);
	}
}

/* Writes the lines of the host or of a process as members of the open object. */
static void put_lines(struct json *j, const struct check_lines *l)
{
	json__bool(j, "usable", !l->status);
	json__string(j, "why", l->status ? l->why : NULL);
	json__open_array(j, "checks");
	for (size_t i = 0; i < l->n; i++) {
		const char *limits = l->lines[i].status ? "no" : "limited";

		json__open_object(j, NULL);
		json__string(j, "what", l->lines[i].what);
		json__string(j, "result", l->lines[i].ok ? "ok" : limits);
		json__string(j, "text", l->lines[i].text);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_hits(struct json *j, const struct hit_site_cost *hits)
{
	char why[160];

	json__open_array(j, "hits");
	for (int i = 0; hits && i < HIT_SITES; i++) {
		const struct hit_site_cost *cost = &hits[i];

		json__open_object(j, NULL);
		json__string(j, "place", hit_site__name(i));
		json__uint_or_null(j, "ns", !cost->err, cost->ns);
		if (cost->err) {
			json__null(j, "by_call");
			json__null(j, "fork_dies");
			json__null(j, "overwrites");
			say_no_cost(why, sizeof(why), i, cost->err);
		} else {
			json__bool(j, "by_call", cost->call);
			json__bool(j, "fork_dies", cost->fork_dies);
			json__bool(j, "overwrites", cost->overwrites);
		}
		json__string(j, "why", cost->err ? why : NULL);
		json__close_object(j);
	}
	json__close_array(j);
}

/* of_process: NULL: no process was checked. Returns 0 or -ENOMEM. */
static int print_json(const struct check_lines *l, const struct check_lines *of_process, pid_t pid)
{
	struct json *j = json__new(stdout, true);
	char date[40];

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__string(j, "time", text__date(date, sizeof(date), clock__read(CLOCK_REALTIME)));
	json__open_object(j, "host");
	put_lines(j, l);
	json__close_object(j);
	if (of_process) {
		json__open_object(j, "process");
		json__int(j, "pid", pid);
		put_lines(j, of_process);
		json__close_object(j);
	} else {
		json__null(j, "process");
	}
	put_hits(j, l->hits);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* Prints the verdict first, and then the lines. */
static void print_text(const struct check_lines *l, const struct check_lines *of_process, pid_t pid,
		       bool torch)
{
	host_verdict(l);
	if (of_process)
		process_verdict(of_process, pid, torch);
	else if (!l->status)
		putchar('\n');
	putchar('\n');
	print_lines(l);
	if (of_process)
		print_lines(of_process);
}

static int cmd_check(int argc, char **argv)
{
	struct check_args a = { 0 };
	struct check_lines l = { 0 }, of_process = { 0 };
	bool torch = false;
	int status, err;

	usage__parse(&command_check, argc, argv, 0, &a);
	of_process.details = l.details = a.verbose;
	of_process.explain = l.explain = a.explain;
	check_host(&l);
	status = l.status;
	of_process.hits = l.hits;
	if (a.pid)
		status = check_target(&of_process, a.pid, &torch) ?: status;
	if (a.json && print_json(&l, a.pid ? &of_process : NULL, a.pid)) {
		log_err("out of memory");
		status = EXIT_FAILED;
	} else if (!a.json) {
		print_text(&l, a.pid ? &of_process : NULL, a.pid, torch);
	}
	free(l.lines);
	free(of_process.lines);
	err = analysis__check_output(stdout, "standard output");
	return status ?: err;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[-p PID]",
	.doc = "Print whether this host and a process can be traced, and name missing parts. "
	       "Attaches nothing to other processes.",
	.children = children,
};

const struct command command_check = {
	.name = "check",
	.summary = "print whether this host and a process can be traced",
	.group = COMMANDS_MORE,
	.argp = &argp,
	.examples = "sudo memtrace-bpf check\n"
		    "sudo memtrace-bpf check -p 4242",
	.status = "0 it works, 2 process not usable, 3 not permitted or old kernel",
	.run = cmd_check,
};
