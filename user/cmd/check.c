/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf check: prints what works on this machine and for a process, one fact a line.
 * Attaches nothing. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "capture/caps.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "census/census.h"
#include "cmd/commands.h"
#include "cmd/log_args.h"
#include "cmd/usage.h"
#include "follow/option_groups.h"
#include "follow/capture_args.h"
#include "launch/dryrun.h"
#include "lib/exit.h"
#include "lib/failure.h"
#include "lib/text.h"
#include "log/log.h"
#include "process/proc.h"
#include "torch/cuda.h"

struct check_args {
	pid_t pid;
	bool explain;
};

enum { OPT_EXPLAIN = 0x3000 };

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Also check this process", OPTIONS_PROCESS },
	{ "explain", OPT_EXPLAIN, NULL, 0,
	  "With -p: print the file, offset and instruction of each probe", OPTIONS_OUTPUT },
	{ "verbose", 'v', NULL, 0, "Also print details and the kernel's messages", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check_args *a = state->input;

	switch (key) {
	case 'p':
		a->pid = capture_args__parse_pid(state, arg);
		break;
	case OPT_EXPLAIN:
		a->explain = true;
		break;
	case 'v':
		log__set_level(LOG_DEBUG);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': check takes no argument; -p PID looks at a process, too",
			   arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Prints a line and returns its status. text may contain names of the target. */
static int line(bool ok, const char *what, const char *text, int status)
{
	char clean[1024];

	text__clean(clean, sizeof(clean), text, strlen(text));
	printf("%-4s %-16s %s\n", ok ? "ok" : status ? "NO" : "-", what, clean);
	return ok ? EXIT_OK : status;
}

static void check_probes(const struct probes *p)
{
	const char *filter = "the kernel's: a capture of one process probes that process alone";

	line(probes__have_multi(p), "uprobe.multi",
	     probes__have_multi(p) ? "attach and detach in milliseconds"
				   : "not in this kernel (6.6 and newer have it): perf uprobes, "
				     "which detach slower",
	     0);
	if (probes__everywhere(p))
		filter = probes__kernel_multi() == PROBES_MULTI_THREAD
				 ? "the programs': this kernel's misses threads (Linux 6.6 to "
				   "6.9), so probes are in every process that "
				   "maps the same files, and cost others about 1 us a hit"
				 : "the programs', as MEMTRACE_BENCH asks for";
	line(!probes__everywhere(p), "process filter", filter, 0);
	line(probes__kernel_sleepable(), "uprobe.s",
	     probes__kernel_sleepable() ? "reads frames that are not in memory"
					: "not in this kernel (6.0 and newer have it): stacks are "
					  "cut where a frame is not in memory",
	     0);
}

static int check_machine(void)
{
	const char *missing = caps__missing(), *why = "";
	struct probes_opts po = { .ring_bytes = 1 << 16 };
	struct probes *p;
	struct utsname un;
	char text[256], dir[2 * PATH_MAX];
	int status, err;

	uname(&un);
	snprintf(text, sizeof(text), "%s %s; Linux %s or newer is needed", un.release, un.machine,
		 probes__oldest_kernel);
	status = line(!strcmp(un.machine, "x86_64"), "machine",
		      strcmp(un.machine, "x86_64") ? "only x86_64 is known to this version" : text,
		      EXIT_NOT_PERMITTED);
	snprintf(text, sizeof(text),
		 *missing ? "missing: %s; run it with sudo" : "%sall that is needed", missing);
	status = line(!*missing, "capabilities", text, EXIT_NOT_PERMITTED) ?: status;
	status = line(access("/sys/kernel/btf/vmlinux", R_OK) == 0, "kernel BTF",
		      "/sys/kernel/btf/vmlinux", EXIT_NOT_PERMITTED)
			 ?: status;
	probes__from_environment(&po);
	p = probes__load(&po, &why);
	if (!p)
		snprintf(text, sizeof(text), "%s (%s)", why, strerror(errno));
	status = line(p, "BPF programs", p ? "the kernel takes them" : text, EXIT_NOT_PERMITTED)
			 ?: status;
	if (p)
		check_probes(p);
	probes__free(p);
	line(!proc__pid_namespace(), "PIDs",
	     proc__pid_namespace() ? "of a PID namespace of its own (a container?): processes "
				     "outside are not seen, and the GPU driver's "
				     "figures, which are by the machine's PIDs, are not asked for"
				   : "the machine's own",
	     0);
	err = dryrun__find(dir, sizeof(dir));
	snprintf(text, sizeof(text),
		 err == -ENOENT
			 ? "its libraries are not built or not installed: no run --dry-run-cuda"
		 : err ? "the folder of its libraries has a name that cannot be preloaded"
		       : "run --dry-run-cuda has its libraries");
	line(!err, "dry run", text, 0);
	return status;
}

static void check_python(struct target *t)
{
	int major, minor, micro, with_frames = 0, n;
	struct pythread *threads = NULL;
	struct pyframe frames[MT_MAX_FRAMES];
	size_t n_threads = 0, i;
	char text[512];
	bool modules;

	if (!t->python) {
		line(false, "Python", t->python_why, 0);
		return;
	}
	python__version(t->python, &major, &minor, &micro);
	snprintf(text, sizeof(text), "%d.%d.%d in %s", major, minor, micro < 0 ? 0 : micro,
		 python__file(t->python));
	line(true, "Python", text, 0);
	if (t->has_slot)
		snprintf(text, sizeof(text), "thread pointer %+" PRId64 "%s", t->slot.off1,
			 t->slot.indirect ? ", one link" : "");
	line(t->has_slot, "thread state", t->has_slot ? text : t->python_why, 0);
	if (python__threads(t->python, &threads, &n_threads) == 0) {
		for (i = 0; i < n_threads; i++) {
			n = python__stack(t->python, &threads[i], frames, MT_MAX_FRAMES);
			with_frames += n > 0;
		}
		free(threads);
	}
	snprintf(text, sizeof(text), "%zu, %d of them with frames just now", n_threads,
		 with_frames);
	line(n_threads > 0, "Python threads", text, 0);
	if (!t->torch.found)
		return;
	modules = target__look_into_torch(t) == 0;
	line(modules, "nn.Module",
	     modules ? "modules are known by the code object of their calls"
		     : "torch.nn is not imported (yet): no names of modules, no steps",
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

static int check_hooks(const struct target *t, bool explain)
{
	int status = EXIT_OK, i;
	char text[1024];

	for (i = 0; i < HOOK_NR; i++) {
		const struct hook *h = &t->hooks[i];

		if (h->found && explain)
			explain_site(text, sizeof(text), h->file, h->offset, &h->site, h->symbol);
		else if (h->found)
			snprintf(text, sizeof(text), "%s",
				 h->site.cls == SITE_STEPPED ? "must be single-stepped: some 9 us "
							       "a hit on a virtual machine"
							     : "on an instruction that the kernel "
							       "emulates: some 0.5 us a hit");
		else
			snprintf(text, sizeof(text), "%s", h->why_not ? h->why_not : "not found");
		status = line(h->found, hook__name(i), text, h->required ? EXIT_UNUSABLE : 0)
				 ?: status;
	}
	return status;
}

/* Prints return probes. Only plain C functions have them, which no exception leaves. */
static void print_calls(const struct cuda_file *f, const struct map *map, bool explain)
{
	char text[1024], what[1024 + PATH_MAX];
	size_t i;

	if (f->throws) {
		snprintf(text, sizeof(text),
			 "%s: not probed: C++ exceptions may leave its functions", map->path);
		line(false, "CUDA calls", text, 0);
		return;
	}
	if (f->newer[0]) {
		snprintf(text, sizeof(text),
			 "%s: %s is newer than this memtrace-bpf, and is not probed", map->path,
			 f->newer);
		line(false, "CUDA calls", text, 0);
	}
	if (!explain) {
		snprintf(text, sizeof(text), "%s: %zu functions%s", map->path, f->n,
			 f->refused ? ", some cannot be probed" : "");
		line(true, "CUDA calls", text, 0);
		return;
	}
	for (i = 0; i < f->n; i++) {
		const struct cuda_function *fn = cuda__function(f->site[i].fn);

		snprintf(text, sizeof(text),
			 fn->op == CUDA_SET_DEVICE ? "entry, %s" : "entry and return, %s",
			 fn->name);
		explain_site(what, sizeof(what), map->path, f->site[i].offset, &f->site[i].site,
			     text);
		line(true, "CUDA call", what, 0);
	}
}

/* Checks each file once, at its first executable mapping. */
static void check_calls(const struct target *t, bool explain)
{
	const struct maps *m = &t->maps;
	struct cuda_file f;
	size_t i, k;

	for (i = 0; i < m->n; i++) {
		if (!m->v[i].x || !m->v[i].inode || m->v[i].path[0] != '/')
			continue;
		for (k = 0; k < i && !(m->v[k].x && m->v[k].inode == m->v[i].inode &&
				       m->v[k].dev_major == m->v[i].dev_major &&
				       m->v[k].dev_minor == m->v[i].dev_minor);
		     k++)
			;
		if (k == i && !cuda__look(t->proc, m, &m->v[i], &f) && (f.n || f.throws))
			print_calls(&f, &m->v[i], explain);
	}
}

/* Checks whether tensors can be named: reads all of them once, as a capture and `dump` do. */
static void check_census(const struct target *t)
{
	const struct census_opts o = { .limit_ns = 5000000000ull };
	struct census_state s;
	const char *why = "";
	char text[256], n[32];
	struct census *c;
	int err = -ENOENT;

	if (!t->python)
		return;
	c = census__open(t->python, &why);
	if (c)
		err = census__read(c, &o, &s, &why);
	if (!err) {
		snprintf(text, sizeof(text),
			 "%s storages of %" PRIu64 " modules and %" PRIu64
			 " optimizers and others, read in %.0f ms%s",
			 text__count(n, sizeof(n), s.ntensors), s.modules, s.optimizers,
			 (double)(s.end - s.begin) / 1e6,
			 s.know_grad ? "" : "; gradients: none seen yet");
		census_state__free(&s);
	} else {
		snprintf(text, sizeof(text), "%s: no names for them",
			 *why ? why : "they cannot be read");
	}
	line(!err, "tensors", text, 0);
	census__free(c);
}

static int check_target(const struct check_args *a)
{
	struct failure f;
	struct target t;
	char text[256];
	int status;

	if (target__open(a->pid, &t, &f))
		goto fail;
	if (target__look(&t, &f)) {
		target__close(&t);
		goto fail;
	}
	line(true, "process", proc__comm(t.proc), 0);
	check_python(&t);
	if (!t.torch.found) {
		line(false, "PyTorch", "not imported (yet): a capture would wait for it", 0);
		target__close(&t);
		return EXIT_OK;
	}
	snprintf(text, sizeof(text), "%s%s%s",
		 t.torch.version[0] ? t.torch.version : "version unknown",
		 t.torch.cuda_runtime[0] ? ", " : "", t.torch.cuda_runtime);
	line(true, "PyTorch", text, 0);
	check_census(&t);
	status = check_hooks(&t, a->explain);
	check_calls(&t, a->explain);
	target__close(&t);
	return status;
fail:
	log_err("%s", f.text);
	return f.status;
}

static const struct argp_child children[] = { LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[-p PID]",
	.doc = "Print whether this host and a process can be traced, and what is missing. Attaches "
	       "nothing.",
	.children = children,
};

static int cmd_check(int argc, char **argv)
{
	struct check_args a = { 0 };
	int status;

	usage__parse(&command_check, argc, argv, 0, &a);
	status = check_machine();
	if (a.pid)
		status = check_target(&a) ?: status;
	return status;
}

const struct command command_check = {
	.name = "check",
	.summary = "print whether this host and a process can be traced",
	.argp = &argp,
	.examples = "sudo memtrace-bpf check\n"
		    "sudo memtrace-bpf check -p 4242",
	.status = "0 it works, 2 process not usable, 3 not permitted or kernel too old",
	.run = cmd_check,
};
