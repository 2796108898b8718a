/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/text.h"
#include "capture/hooks.h"
#include "capture/kernel.h"
#include "capture/preload.h"
#include "capture/probes.h"
#include "cmd/check_lines.h"
#include "inspect/arch.h"
#include "inspect/gpus.h"
#include "inspect/guest.h"
#include "inspect/proc.h"

#define NVML_WAIT UINT64_C(3000000000) /* ns; a GPU that sleeps needs a moment */

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
	check_lines__add(l, known, "kernel", known ? text : "this program is for " ARCH_UNAME,
			 EXIT_NOT_PERMITTED);
	check_lines__add(l, !gvisor, "gVisor",
			 gvisor ? "yes: its kernel has no BPF, and the host cannot see into it. "
				  "Run the job in a container of another runtime, such as runc"
				: "not used",
			 EXIT_NOT_PERMITTED);
	return !gvisor;
}

static void check_lockdown(struct check_lines *l)
{
	char text[128];
	bool strict;

	first_line("/sys/kernel/security/lockdown", text, sizeof(text));
	strict = strstr(text, "[confidentiality]");
	check_lines__add(l, !strict, "lockdown",
			 strict ? "confidentiality: the kernel keeps BPF programs from reading "
				  "memory; boot with lockdown=integrity or none"
			 : strstr(text, "[integrity]") ? "integrity: tracing works"
						       : "none",
			 0);
}

/* Yama limits who can read another process's memory. */
static void check_ptrace(struct check_lines *l)
{
	char text[16];
	int scope;

	first_line("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
	scope = text[0] ? text[0] - '0' : 0;
	check_lines__add(l, scope < 3, "ptrace_scope",
			 scope >= 3 ? "3: not even root can read processes; set "
				      "kernel.yama.ptrace_scope below 3 and reboot"
			 : scope    ? "1 or 2: only root, or CAP_SYS_PTRACE, can read processes"
				    : "0: no restriction",
			 EXIT_NOT_PERMITTED);
}

/* Kernels of virtual machines may be built without uprobes. */
static void check_uprobes(struct check_lines *l, const struct probes *p)
{
	if (!probes__have_multi(p) && access("/sys/bus/event_source/devices/uprobe/type", F_OK))
		check_lines__add(l, false, "uprobes",
				 "this kernel puts no probes on programs: it must be built with "
				 "CONFIG_UPROBE_EVENTS",
				 EXIT_NOT_PERMITTED);
}

static void check_probes(struct check_lines *l, const struct probes *p)
{
	const char *filter = "only the captured process is probed", *missing = features__missing();
	char text[256];

	snprintf(text, sizeof(text),
		 "not in this kernel: %s. Programs for older kernels run instead: at most 1024 "
		 "threads can run modules or backward at a time",
		 missing);
	check_lines__add(l, !probes__old(p), "BPF features",
			 !probes__old(p) ? "all that the programs can use"
			 : *missing	 ? text
					 : "programs for older kernels, as MEMTRACE_BENCH asks",
			 0);
	check_lines__add(l, probes__have_multi(p), "uprobe.multi",
			 probes__have_multi(p)
				 ? "attaches and detaches in milliseconds"
				 : "not in this kernel (6.6 and newer have it): perf uprobes "
				   "instead, which detach slower",
			 0);
	if (probes__everywhere(p))
		filter = probes__kernel_multi() == PROBES_MULTI_THREAD
				 ? "this kernel's filter misses threads (Linux 6.6 to 6.9): probes "
				   "are in every process that maps the same files, and cost others "
				   "about 1 us a hit"
				 : "in the BPF programs, as MEMTRACE_BENCH asks";
	check_lines__add(l, !probes__everywhere(p), "process filter", filter, 0);
	check_lines__add(l, probes__kernel_sleepable(), "uprobe.s",
			 probes__kernel_sleepable()
				 ? "reads stack frames that are not in memory"
				 : "not in this kernel (6.0 and newer have it): stacks are cut "
				   "where a frame is not in memory",
			 0);
}

static void check_cost(struct check_lines *l)
{
	struct hit_cost hit;
	char text[160];
	int err = probes__hit_cost(&hit);

	if (err)
		snprintf(text, sizeof(text), "cannot be measured (%s): --cost has no effect",
			 strerror(-err));
	else
		snprintf(text, sizeof(text),
			 "%.1f us and the program's time; %.1f us at instructions that the "
			 "kernel cannot emulate",
			 hit.emulated / 1e3, hit.stepped / 1e3);
	check_lines__add(l, !err, "cost of a hit", text, 0);
}

/* How processes end, for recordings and --on-kill. */
static void check_endings(struct check_lines *l)
{
	const char *why = "", *missing;
	struct ending_hooks *h = ending_hooks__new(&why);
	char text[256];

	missing = h ? ending_hooks__missing(h) : "";
	if (!h)
		snprintf(text, sizeof(text), "not seen, and no --on-kill: %s (%s)", why,
			 strerror(errno));
	else if (*missing)
		snprintf(text, sizeof(text), "this kernel does not tell %s", missing);
	else
		snprintf(text, sizeof(text), "signals, the OOM killer and exit statuses are seen");
	check_lines__add(l, h && !*missing, "process ends", text, 0);
	ending_hooks__free(h);
}

static void check_bpf(struct check_lines *l)
{
	const char *missing = caps__missing(), *why = "";
	bool btf = !access("/sys/kernel/btf/vmlinux", R_OK);
	struct probes_opts po = { .ring_bytes = 1 << 16, .all = true };
	enum bpf_token_state token = bpf_token__state();
	struct probes *p;
	char text[256];

	snprintf(text, sizeof(text), *missing ? "%s missing; run it with sudo" : "%sall", missing);
	check_lines__add(l, !*missing, "capabilities", text, EXIT_NOT_PERMITTED);
	if (token != BPF_TOKEN_NOT_NEEDED)
		check_lines__add(l, token == BPF_TOKEN_HERE, "BPF token", bpf_token__text(token),
				 EXIT_NOT_PERMITTED);
	check_lines__add(l, btf, "kernel BTF",
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
	check_lines__add(l, p, "BPF programs", p ? "the kernel accepts them" : text,
			 EXIT_NOT_PERMITTED);
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

/* Shortens "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ..." to the number. */
static const char *driver_version(char *line)
{
	char *rest = line;

	for (char *word; (word = strsep(&rest, " "));)
		if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.'))
			return word;
	return "version not known";
}

/* Waits until NVML has answered. Returns the number of GPUs; 0: no answer. */
static unsigned ask_nvml(void)
{
	uint64_t end = clock__monotonic() + NVML_WAIT;

	while (!gpus__count() && clock__monotonic() < end)
		usleep(20000);
	return gpus__count();
}

static void check_driver(struct check_lines *l)
{
	char text[512], version[256], total[24];
	unsigned n;

	first_line("/proc/driver/nvidia/version", version, sizeof(version));
	if (!version[0]) {
		check_lines__add(l, false, "GPU driver",
				 "no NVIDIA driver on this host: memory of the CPU, and dry runs",
				 0);
		return;
	}
	snprintf(text, sizeof(text), "NVIDIA %s", driver_version(version));
	check_lines__add(l, true, "GPU driver", text, 0);
	gpus__open();
	n = ask_nvml();
	if (n)
		snprintf(text, sizeof(text), "%u: %s, %s%s", n, gpus__get(0)->name,
			 text__bytes(total, sizeof(total), gpus__get(0)->total),
			 n > 1 ? ", ..." : "");
	else
		snprintf(text, sizeof(text),
			 "libnvidia-ml.so.1 gives no answer: no driver-reported figures");
	check_lines__add(l, n > 0, "GPUs", text, 0);
	gpus__close();
}

static void check_dryrun(struct check_lines *l)
{
	char dir[2 * PATH_MAX];
	int err = dryrun__find(dir, sizeof(dir));

	check_lines__add(l, !err, "dry run",
			 err == -ENOENT ? "its libraries are not installed: no estimate, no "
					  "run --dry-run-cuda"
			 : err		? "its folder has a name that cannot be preloaded"
					: "available",
			 0);
}

void check_lines__host(struct check_lines *l)
{
	if (check_kernel(l)) {
		check_bpf(l);
		check_lockdown(l);
		check_ptrace(l);
	}
	check_lines__add(l, !proc__pid_namespace(), "PIDs",
			 proc__pid_namespace()
				 ? "a PID namespace (a container?): processes outside are not "
				   "visible, and driver-reported figures are not available"
				 : "those of the host",
			 0);
	check_driver(l);
	check_dryrun(l);
}
