/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Getting into a process: waits for PyTorch, loads the programs and attaches them, if possible
 * before PyTorch allocates.
 *
 * After libc10 is mapped, the loader relocates PyTorch's libraries before any of their code runs.
 * That takes at least 40 ms with everything in the page cache (PyTorch 2.1 to 2.15). So we compare
 * the size of the address space every 2 ms (one small file of /proc, 5 us), and read the memory map
 * only when it changed. The slow work is done before: as soon as the interpreter runs, we find its
 * layout and load the BPF programs. A command of ours is held (arrival.h) during that, and
 * again once PyTorch's libraries are mapped.
 */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "capture/decode/autograd.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/modules.h"
#include "capture/decode/symbolizer.h"
#include "capture/kernel.h"
#include "capture/probes/probes_inside.h"
#include "capture/session/stages.h"
#include "inspect/arrival.h"
#include "inspect/elf.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "record/dict.h"

static int no_memory(struct failure *f)
{
	return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
}

/* ---- sessions of a group, whose processes share programs ---- */

/* From now on the programs s->probes record the hits of this process of a group. type_cell: as in
 * struct mt_py_layout. */
static void join_group(struct session *s, uint64_t type_cell)
{
	if (!s->opts.group || !s->probes)
		return;
	proc_group__member(s->opts.group, s->opts.number)->type_cell = type_cell;
	probes__feed(s->probes, s->opts.number, session__enqueue, s);
	/* If the process has ended, a later call says so. */
	proc_group__set_group(s->opts.group, proc__pid(s->target.proc), s->opts.number,
			      probes__group(s->probes));
}

/* Takes a number in the group, if the process needs one. False: no number is left, or the process
 * has ended. */
static bool take_number(struct session *s)
{
	int number = s->opts.group && !s->opts.number
			     ? proc_group__number(s->opts.group, proc__pid(s->target.proc))
			     : 0;

	if (number > 0)
		s->opts.number = number;
	s->wait.lacks_number = number == -ENOSPC;
	return number >= 0;
}

void session__give_number(struct session *s, uint32_t number)
{
	s->opts.number = number;
	s->wait.next = 0; /* the attach that waited for a number goes on */
}

/* Ends what join_group() began. Other processes may go on with the programs. */
static void leave_group(struct session *s)
{
	if (!s->opts.group || !s->probes)
		return;
	proc_group__set_group(s->opts.group, proc__pid(s->target.proc), s->opts.number, 0);
	probes__feed(s->probes, s->opts.number, NULL, NULL);
}

/* Loads the programs for s->layout. 0 or negative with *f. */
static int load_new_programs(struct session *s, struct failure *f)
{
	struct probes_opts opts = { .capture = s->opts,
				    .py = s->layout,
				    .pid = proc__pid(s->target.proc),
				    .modules = !s->opts.no_modules && s->target.has_slot };
	const char *why = "";

	probes__from_environment(&opts);
	s->probes = probes__load(&opts, &why);
	return s->probes ? 0
			 : failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why,
					strerror(errno));
}

/* Gets other programs if s->probes are attached at other places than this process has its hooks. 0
 * or negative with *f. */
static int fit_programs(struct session *s, struct failure *f)
{
	const struct hook *misfit = s->opts.group ? probes__misfit(s->probes, s->target.hooks)
						  : NULL;
	int err;

	if (!misfit)
		return 0;
	leave_group(s);
	probes__free(s->probes);
	s->queue.len = s->queue.floor = 0;
	s->wait.joined_early = false;
	s->probes = probes__share(s->opts.sets, &s->layout, s->target.hooks);
	log_debug("PID %d: %s is in another file than in the processes before: %s",
		  (int)proc__pid(s->target.proc), hook__name(misfit->id),
		  s->probes ? "shares the programs of others that have it there"
			    : "loads programs for it");
	err = s->probes ? 0 : load_new_programs(s, f);
	if (err)
		return err;
	join_group(s, proc_group__member(s->opts.group, s->opts.number)->type_cell);
	return 0;
}

/* Pauses of session__poll_ms(), in ms */
#define PAUSE 2		/* while the process maps files */
#define PAUSE_QUIET 10	/* if the process mapped nothing for QUIET */
#define PAUSE_OTHER 100 /* if the process also has no Python */
/* Time after which a Python process with CUDA, without PyTorch, is captured for CUDA alone, in ns */
#define CUDA_QUIET 1000000000ULL     /* if the process maps nothing more */
#define CUDA_ALONE 10000000000ULL    /* if the process maps more */
#define QUIET 1000000000ULL	     /* ns without new mappings */
#define RETRY 5000000ULL	     /* ns between attempts to read an interpreter that starts */
#define NUMBER 1000000000ULL	     /* ns between attempts to get a number in the group */
#define RING_WITH_MALLOC (64u << 20) /* bytes: room for a second's stacks of compiled code */
#define NICE_WAITING (-20)	     /* our nice value while time is short */
#define NO_PYTHON 1000000000ULL	     /* ns after an exec, by when Python would have started */
#define LAUNCHES 100000000ULL	     /* ns after an exec, by when a launcher has run its program */
#define TORCH_SIZE (64u << 20)	     /* bytes: PyTorch maps more than this, in one go */
#define NO_LINES 1000000000ULL	     /* ns until an interpreter counts as unreadable */
#define LOOK_PAUSE_MIN 50000000ULL   /* first pause between searches for torch.nn, ns; doubles */
#define LOOK_PAUSE_MAX 100000000ULL  /* longest pause between searches for torch.nn, ns */

/* Starts over if the process runs another program. 0, -EAGAIN (it is ending), or negative with
 * *f. */
static int follow_exec(struct session *s, uint64_t now, struct failure *f)
{
	struct target t;
	int err;

	if (s->image < 0 || !proc__image_gone(s->image))
		return 0;
	err = target__open(proc__pid(s->target.proc), &t, f);
	if (err)
		return err == -ESRCH ? -EAGAIN : err;
	if (!proc__alive(s->target.proc)) { /* then the PID may be another process's */
		target__close(&t);
		return -EAGAIN;
	}
	close(s->image);
	s->image = proc__image(t.proc);
	leave_group(s);
	probes__free(s->probes);
	s->probes = NULL;
	s->wait.joined_early = false;
	s->queue.len = s->queue.floor = 0;
	target__close(&s->target);
	s->target = t;
	s->wait.since = now;
	s->wait.ran = true;
	s->wait.pages = s->wait.changed = s->wait.next = 0;
	log_debug("PID %d runs %s now", (int)proc__pid(t.proc), proc__comm(t.proc));
	return session__set_who(s) ? no_memory(f) : 0;
}

/* Measures what a hit costs, if --cost needs it. */
static void measure_hit(struct session *s)
{
	struct hit_cost *hit = &s->cost.measure.hit;
	int err = s->opts.cost ? probes__hit_cost(HIT_SELDOM, hit) : 0;

	if (err)
		log_warn("cannot measure the cost of a probe on this host (%s): --cost is ignored",
			 strerror(-err));
	else if (s->opts.cost)
		log_debug("a probe's hit costs %" PRIu32 " ns on this host, %" PRIu32
			  " where the kernel steps over the instruction",
			  hit->emulated, hit->stepped);
	s->cost.control.limit = err ? 0 : s->opts.cost;
}

/* Loads the BPF programs for the interpreter, unless they are loaded. 0 or negative with *f. */
static int load_programs(struct session *s, struct failure *f)
{
	struct mt_py_layout layout = target__layout(&s->target);
	uint64_t type_cell = layout.type_cell;
	int err;

	if (s->opts.group)
		layout.type_cell = 0; /* an address, which differs between processes */
	if (s->probes && !memcmp(&layout, &s->layout, sizeof(layout))) {
		if (s->opts.group)
			proc_group__member(s->opts.group, s->opts.number)->type_cell = type_cell;
		return 0;
	}
	leave_group(s);
	probes__free(s->probes);
	s->layout = layout;
	s->probes = s->opts.sets ? probes__share(s->opts.sets, &layout, s->target.hooks) : NULL;
	err = s->probes ? 0 : load_new_programs(s, f);
	if (err)
		return err;
	if (!s->opts.group)
		probes__set_process(s->probes, proc__pidfd(s->target.proc));
	join_group(s, type_cell);
	measure_hit(s);
	return 0;
}

/* Takes the highest priority until release_command(): the linker relocates PyTorch in milliseconds.
 * A nice value counts only within a session or control group (sched(7), autogroup), so this also
 * asks for the least real-time priority. Looking each millisecond takes 1.3 % of a CPU (measured).
 * Optional: without the privilege some looks come late. Processes that we start meanwhile get the
 * usual priority. */
static void hasten(struct session *s)
{
	struct sched_param none = { 0 }, least = { .sched_priority = 1 };

	if (s->wait.hastened || sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none))
		return;
	s->wait.nice = getpriority(PRIO_PROCESS, 0);
	s->wait.hastened = !setpriority(PRIO_PROCESS, 0, NICE_WAITING);
	if (s->wait.hastened)
		sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &least);
}

/* Lets a held command run. waits_on: the session goes on waiting, so keep the lowered nice
 * value. */
static void release_command(struct session *s, bool waits_on)
{
	struct sched_param none = { 0 };

	ptrace_hold__release(&s->wait.hold);
	if (s->opts.inside && !waits_on)
		inside_memory__let_go(s->opts.inside);
	if (!s->wait.hastened || (waits_on && s->opts.started))
		return;
	sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none);
	setpriority(PRIO_PROCESS, 0, s->wait.nice);
	s->wait.hastened = false;
}

/* Stops our command until release_command(). */
static void hold_command(struct session *s)
{
	int err = s->opts.started && !s->opts.inside
			  ? ptrace_hold__take(&s->wait.hold, proc__pid(s->target.proc))
			  : 0;

	if (err)
		log_debug("cannot stop PID %d: %s", (int)proc__pid(s->target.proc), strerror(-err));
}

/* The hooks of every capture, in the order of attaching. First the ends of code objects, which
 * names depend on. */
static const enum hook_id first_hooks[] = { HOOK_CODE_GONE, MT_ALLOCATOR_HOOKS(HOOK_ID) };
#define FIRST_HOOKS (sizeof(first_hooks) / sizeof(first_hooks[0]))

/* True if a group's programs are attached to PyTorch's files already, and this process has not
 * mapped them yet: then no event of it is missed. */
static bool precedes_torch(struct session *s)
{
	struct maps maps;
	bool ret = s->opts.group && !proc__maps(s->target.proc, &maps);
	size_t i;

	if (!ret)
		return false;
	ret = !arrival__maps_torch(&maps);
	maps__free(&maps);
	for (i = 0; i < FIRST_HOOKS; i++)
		ret = ret &&
		      (first_hooks[i] == HOOK_OOM ||
		       probes__attached(s->probes, proc__pid(s->target.proc), first_hooks[i]));
	return ret;
}

/* True while Python runs the code of `import torch`: its ModuleSpec says so (importlib._bootstrap,
 * _load_unlocked()). CUDA's libraries are mapped first, and on a busy machine or from a slow disk
 * PyTorch's come seconds later. */
static bool imports_torch(const struct session *s)
{
	const struct python *py = s->target.python;
	uint64_t module, spec, initializing;

	return py && !pyobj__module(py, "torch", &module) &&
	       !pyobj__module_attr(py, module, "__spec__", &spec) &&
	       !pyobj__attr(py, spec, "_initializing", &initializing) &&
	       initializing == python__symbol(py, "_Py_TrueStruct");
}

/* True if the process has no PyTorch, and its host memory is to be recorded at once. A launcher
 * that we started gets time to run the program proper. */
static bool is_host_only(struct session *s, uint64_t now, struct failure *f)
{
	/* The process has run its program for long. */
	const bool settled = !s->opts.started && !s->opts.late;
	const uint64_t since = now - s->wait.since;
	bool ready;

	if (!session_opts__any_process(&s->opts) || (s->opts.started && !s->wait.ran))
		return false;
	if (s->target.has_python)
		ready = s->target.has_slot || since > NO_LINES;
	else
		ready = settled || since > (s->opts.started ? LAUNCHES : NO_PYTHON);
	if (!ready || target__look(&s->target, f) || s->target.torch.found || imports_torch(s))
		return false;
	if (s->target.uses_cuda && !s->opts.host)
		return false;
	s->opts.host = true;
	return true;
}

/*
 * True if only calls into CUDA are to be recorded: the process uses CUDA, and PyTorch does not
 * come. A process with Python must have had CUDA for CUDA_QUIET without new mappings, or for
 * CUDA_ALONE. Looks at the process again; if that finds PyTorch or an error, the wait begins again.
 */
static bool is_cuda_only(struct session *s, uint64_t now, struct failure *f)
{
	struct waiting *w = &s->wait;
	bool alone;

	if (s->opts.steps_only)
		return false;
	if (s->target.has_python &&
	    (!w->cuda_since || now - w->cuda_since < CUDA_QUIET ||
	     (now - w->changed < CUDA_QUIET && now - w->cuda_since < CUDA_ALONE)))
		return false;
	if (!s->target.has_python && !w->cuda_since && (s->opts.started || !s->target.uses_cuda))
		return false;
	alone = !target__look(&s->target, f) && s->target.uses_cuda && !s->target.torch.found &&
		!imports_torch(s);
	/* If CUDA alone was not confirmed, wait for the whole time again. */
	w->cuda_since = alone || !w->cuda_since ? w->cuda_since : now;
	return alone;
}

/* Notes that CUDA is mapped and PyTorch is not. Our command is held, as it may use CUDA at once. */
static void note_cuda(struct session *s, uint64_t now)
{
	if (!s->target.has_python && !target__uses_cuda(&s->target, &s->target.maps))
		return;
	if (!s->wait.cuda_since && !s->target.has_python)
		hold_command(s);
	s->wait.cuda_since = s->wait.cuda_since ?: now;
}

/* Finds the interpreter and loads the programs before PyTorch is mapped. Owns maps. 0 or negative
 * with *f. */
static int prepare_programs(struct session *s, struct maps *maps, uint64_t now, struct failure *f)
{
	int err;

	target__look_for_python(&s->target, maps);
	/* A starting interpreter can be read once a thread runs in it. */
	s->wait.next = s->target.has_python && !s->target.has_slot ? now + RETRY : UINT64_MAX;
	if (!s->target.has_slot) {
		if (s->target.has_python && !s->wait.said_why)
			log_debug("PID %d: no frames of Python so far: %s",
				  (int)proc__pid(s->target.proc), s->target.python_why);
		s->wait.said_why = s->target.has_python;
		return 0;
	}
	if (!take_number(s)) {
		s->wait.next = now + NUMBER;
		return 0;
	}
	/* The kernel takes half a second to verify the programs; `import torch` may be faster. */
	hold_command(s);
	err = load_programs(s, f);
	if (err)
		return err;
	target__attach_optional(&s->target, s->probes, HOOK_CODE_GONE);
	s->wait.joined_early = precedes_torch(s);
	log_debug("PID %d: Python is understood, the programs are loaded",
		  (int)proc__pid(s->target.proc));
	return 0;
}

/* PyTorch is not mapped yet: prepares what can be done before. Owns maps. -EAGAIN, or other
 * negative with *f. */
static int prepare_for_torch(struct session *s, struct maps *maps, uint64_t now, struct failure *f)
{
	bool cuda = arrival__maps_cuda(maps);
	int err = 0;

	if (s->probes)
		maps__free(maps);
	else
		err = prepare_programs(s, maps, now, f);
	if (err)
		return err;
	if (cuda && !s->no_torch)
		note_cuda(s, now);
	return -EAGAIN;
}

/* 0: PyTorch is in the process; -EAGAIN: not yet; other negative with *f. */
static int look_for_torch(struct session *s, struct failure *f)
{
	int err = s->no_torch ? target__look_for_torch(&s->target, f) : target__look(&s->target, f);

	if (err)
		return err;
	return s->target.torch.found ? 0 : -EAGAIN;
}

/* Looks once whether PyTorch is in the process, and prepares what can be done before. 0: PyTorch is
 * there, and s->target has its facts; -EAGAIN: not yet; other negative with *f. */
static int look_for_arrival(struct session *s, uint64_t now, struct failure *f)
{
	uint64_t pages;
	struct maps maps;
	bool grew, untouched, all_mapped, arrived;
	int maps_err;

	if (proc__pages(s->target.proc, &pages))
		return -EAGAIN; /* it is ending */
	if (s->opts.inside)
		inside_memory__meet(s->opts.inside);
	arrived = s->opts.inside && inside_memory__arrived(s->opts.inside);
	if (pages == s->wait.pages && now < s->wait.next && !arrived)
		return -EAGAIN;
	grew = pages != s->wait.pages;
	if (grew)
		s->wait.changed = now;
	s->wait.pages = pages;
	maps_err = proc__maps(s->target.proc, &maps);
	if (maps_err == -ESRCH)
		return -EAGAIN;
	if (!maps_err && !arrival__maps_torch(&maps))
		return prepare_for_torch(s, &maps, now, f);
	hasten(s); /* also for processes that we did not start: PyTorch is mapped now */
	if (!maps_err) {
		/* Libraries are mapped one by one and then relocated, which maps nothing. */
		untouched = (s->opts.started || s->opts.late || s->no_torch) &&
			    arrival__no_torch_code_ran(s->target.proc, &maps);
		all_mapped = !grew || !untouched || arrived;
		if (untouched && all_mapped)
			hold_command(s);
		maps__free(&maps);
		if (!all_mapped) {
			s->wait.next = now;
			return -EAGAIN;
		}
	}
	return look_for_torch(s, f); /* also sets *f if the maps cannot be read */
}

/* Looks for PyTorch. Returns 0 once it is found, or once the process is to be recorded without it;
 * otherwise as look_for_arrival(). */
static int await_torch(struct session *s, struct failure *f)
{
	uint64_t now = clock__monotonic();
	int err;

	if (s->no_torch || (s->target.torch.found && !s->target.hooks_err))
		return 0;
	err = follow_exec(s, now, f);
	if (err)
		return err;
	s->wait.since = s->wait.since ?: now;
	s->no_torch = is_host_only(s, now, f) || is_cuda_only(s, now, f);
	if (s->no_torch)
		return 0;
	if (s->opts.started)
		hasten(s);
	if (!s->opts.started && !s->opts.late && !s->target.has_python &&
	    now - s->wait.since > NO_PYTHON)
		return look_for_torch(s, f);
	return look_for_arrival(s, now, f);
}

void session__look_into_torch(struct session *s, uint64_t now)
{
	if (s->have_codes || !s->target.python || !s->target.has_slot || now < s->wait.next_look)
		return;
	s->wait.look_pause = s->wait.look_pause ? s->wait.look_pause * 2 : LOOK_PAUSE_MIN;
	if (s->wait.look_pause > LOOK_PAUSE_MAX)
		s->wait.look_pause = LOOK_PAUSE_MAX;
	s->wait.next_look = now + s->wait.look_pause;
	/* Calls before torch.nn is found have no names of modules, so look again soon. */
	s->begins = now;
	session__renew(s);
	if (target__look_into_torch(&s->target))
		return;
	probes__set_module_codes(s->probes, s->opts.number, s->target.module_codes,
				 s->target.n_module_codes);
	s->have_codes = true;
	target__attach_optional(&s->target, s->probes, HOOK_SCOPE_END);
	if (s->decoder->modules)
		target__attach_optional(&s->target, s->probes, HOOK_MODULE_CALL);
}

/* Sets *f for a probe that the process would need for itself alone, since it chose the place.
 * Returns err. */
static int refuse_own(const struct session *s, struct failure *f, const struct hook *h, int err)
{
	int pid = proc__pid(s->target.proc);
	bool group = s->opts.group;
	char next[64] = "Run memtrace-bpf as root";
	const char *why = "its file cannot be opened";
	const char *why_none = err == -ENOSPC ? "as many processes as may have them do: each call "
						"passes the probes of all"
					      : "this kernel's probes for one process miss threads";

	if (group)
		snprintf(next, sizeof(next), "Record it by itself: record -p %d", pid);
	if (!elf__is_memory(h->elf))
		why = "the file does not say where the function is that Python frees code with";
	else if (group)
		why = "root may not open its file, which is on a FUSE or NFS mount of another user";
	return failure__set(
		f, EXIT_NOT_PERMITTED, err,
		"PID %d is not recorded%s: %s (%s), so it needs probes of its own, and %s. %s", pid,
		group ? " together with others" : "", why, h->file, why_none, next);
}

/* Names the capability that is missing for a probe. */
static const char *missing_right(const struct probes *p)
{
	if (*caps__missing())
		return caps__missing();
	return probes__have_multi(p) ? "CAP_PERFMON"
				     : "CAP_SYS_ADMIN (this kernel has no uprobe.multi)";
}

/* Sets *f for a probe that could not be attached. Returns err, or -ESRCH if the process ended. */
static int refuse_probe(const struct session *s, struct failure *f, const struct hook *h, int err)
{
	int pid = proc__pid(s->target.proc);

	if (s->opts.inside)
		return failure__set(f, EXIT_NOT_PERMITTED, err,
				    "no breakpoint can be set on %s at %s+%#" PRIx64 ": %s",
				    hook__name(h->id), h->file, h->offset,
				    err == -EBUSY ? "another capture of several processes (--all, "
						    "--name, --children, watch, serve) has probes "
						    "there: try again when it has ended"
						  : strerror(-err));
	if (err == -EPERM || err == -EACCES)
		return failure__set(f, EXIT_NOT_PERMITTED, err,
				    "not permitted to probe PID %d: %s needed; run it with sudo",
				    pid, missing_right(s->probes));
	if (err == -EXDEV || err == -ENOSPC)
		return refuse_own(s, f, h, err);
	/* The kernel also returns errors other than -ESRCH for a process that is ending. */
	if (err == -ESRCH || !proc__alive(s->target.proc))
		return failure__set(f, EXIT_UNUSABLE, -ESRCH, "PID %d ended while attaching", pid);
	return failure__set(f, h->required ? EXIT_NOT_PERMITTED : EXIT_FAILED, err,
			    "the kernel refused the probe on %s at %s+%#" PRIx64
			    ": %s; `memtrace-bpf check -p %d` shows the details",
			    hook__name(h->id), h->file, h->offset, strerror(-err), pid);
}

/* Attaches the hooks of the allocator; with steps_only, those of code objects and steps. 0 or
 * negative with *f. */
static int attach_all(struct session *s, struct failure *f)
{
	pid_t pid = proc__pid(s->target.proc);
	size_t i;
	int err;

	for (i = 0; i < FIRST_HOOKS; i++) {
		const struct hook *h = &s->target.hooks[first_hooks[i]];

		/* After the first hook: the programs must know calls of modules before the first
		 * event. */
		if (i == 1)
			session__look_into_torch(s, 0);
		if (i && (s->opts.steps_only || s->no_torch))
			break; /* steps and host memory need no hook of the allocator */
		if (probes__attached(s->probes, pid, first_hooks[i]))
			continue;
		if (!h->found) {
			log_debug("%s: not probed: %s", hook__name(first_hooks[i]), h->why_not);
			continue;
		}
		err = probes__attach(s->probes, pid, h);
		if (err)
			return refuse_probe(s, f, h, err);
	}
	return 0;
}

/* The functions below open the decoder and the stages (stages.h). They return 0 or -ENOMEM. */

static int open_decoder(struct session *s)
{
	s->decoder = decoder__new(&s->opts, &s->target, s->probes, s->dict, s->facts);
	return s->decoder ? 0 : -ENOMEM;
}

/* Opens the stages behind the decoder: the state at attach, and behind it the transitions to
 * sleep. */
static int open_attach_stage(struct session *s)
{
	s->attach = attach_stage__new(&s->target, s->facts, !s->opts.steps_only);
	s->sleep = sleep_stage__new(s->decoder);
	if (!s->attach || !s->sleep)
		return -ENOMEM;
	attach_stage__send_to(s->attach, sleep_stage__sink(s->sleep));
	s->decoder->next = attach_stage__sink(s->attach);
	return 0;
}

/* Opens the stage that names tensors, unless nothing is to be named. 0 or -ENOMEM. */
static int open_census_stage(struct session *s)
{
	if (s->opts.no_census || (s->no_torch && !s->opts.host))
		return 0;
	s->census = census_stage__new(s->decoder, s->decoder->next);
	if (!s->census)
		return -ENOMEM;
	s->decoder->next = census_stage__sink(s->census);
	return 0;
}

/* Records stacks of compiled code, if the options and the process want them. */
static int open_native_stacks(struct session *s)
{
	uint32_t most = s->no_torch || s->opts.native || s->opts.malloc_probes
				? NATIVE_STACKS_A_SECOND
				: NATIVE_STACKS_OF_HOST;

	s->decoder->no_torch = s->no_torch;
	if (s->opts.steps_only || (!s->no_torch && !s->opts.native && !s->opts.host))
		return 0;
	s->decoder->native = native_stacks__new(s->target.proc, s->dict, s->facts);
	if (!s->decoder->native) {
		if (errno == ENOMEM)
			return -ENOMEM;
		log_warn("stacks of compiled code are not recorded: %s", strerror(errno));
		return 0;
	}
	probes__copy_stacks(s->probes, most);
	if (s->opts.native)
		probes__copy_stacks_from(s->probes, NATIVE_STACKS_FROM);
	return 0;
}

/* Opens all that takes and adds events, before the probes bring any. 0 or -ENOMEM. */
static int open_stages(struct session *s)
{
	if (open_decoder(s) || open_native_stacks(s) || session__catch_up(s) ||
	    session__set_facts(s) || open_attach_stage(s))
		return -ENOMEM;
	/* Segments before blocks: a block's total counts all segments taken until then. */
	if (!s->opts.steps_only &&
	    (attach_stage__hint(s->attach) || cuda_calls__attach(s->decoder)))
		return -ENOMEM;
	if (s->no_torch)
		return 0;
	if (!s->opts.no_autograd && autograd__attach(s->decoder))
		return -ENOMEM;
	return !s->opts.no_modules && s->target.has_slot ? modules__open(s->decoder) : 0;
}

/* True if none of PyTorch's code can have run before now. */
static bool is_before_torch(const struct session *s)
{
	struct maps maps;
	bool ret;

	if (proc__maps(s->target.proc, &maps))
		return false;
	ret = arrival__no_torch_code_ran(s->target.proc, &maps);
	maps__free(&maps);
	return ret;
}

/* Notes whether the recording has all memory from the start. 0 or -ENOMEM. */
static int set_from_start(struct session *s, bool from_start)
{
	s->decoder->from_start = from_start;
	return facts__set(s->facts, "attached_at", from_start ? "start" : "live");
}

/* The probes are in place: events begin now. 0 or -ENOMEM. */
static int begin_events(struct session *s)
{
	bool from_start = s->no_torch ? s->opts.started && s->opts.host : is_before_torch(s);
	int err;

	s->decoder->start = decoder__clock(s->decoder);
	err = session__set_start(s); /* at once: events count their time from here */
	if (err)
		return err;
	if (s->no_torch)
		err = facts__set(s->facts, "allocator", "none");
	if (err)
		return -ENOMEM;
	err = set_from_start(s, from_start || s->wait.joined_early);
	if (err)
		return -ENOMEM;
	s->attached = true;
	err = session__begin_host(s, false);
	if (err)
		return err;
	err = session__begin_malloc(s);
	if (!err && !s->opts.steps_only)
		err = attach_stage__begin(s->attach);
	return err ? err : open_census_stage(s);
}

/* Sets *f: PyTorch lacks a function that is needed, or its file cannot be read. Returns the
 * error. */
static int refuse_torch(const struct session *s, struct failure *f)
{
	int err = s->target.hooks_err, i;
	const char *version = s->target.torch.version[0] ? s->target.torch.version
							 : "version unknown";
	const struct hook *h = s->target.hooks;
	const char *why;

	/* the first hook that is required and was not found */
	for (i = 0; i < HOOK_NR - 1 && !(h->required && !h->found); i++)
		h++;
	why = h->why_not ? h->why_not : "torch's library cannot be looked into";
	if (*caps__missing())
		return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
				    "%s: %s needed; run it with sudo", why, caps__missing());
	if (err != -ENOENT && !caps__reach_replaced())
		return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
				    "%s; where its file was replaced on disk, "
				    "CAP_CHECKPOINT_RESTORE is needed too; run it with sudo",
				    why);
	if (err == -EPERM)
		return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
				    "%s. Run memtrace-bpf as the user who mounted it, or mount it "
				    "with -o allow_other",
				    h->why_not ? h->why_not : "torch's library cannot be opened");
	return failure__set(f, EXIT_UNUSABLE, err,
			    "this PyTorch (%s) does not export %s: %s; versions 1.13 and newer do",
			    version, h->symbol, h->why_not ? h->why_not : "not found");
}

/* PyTorch, or CUDA alone, was found: loads and attaches all programs. 0 or negative with *f. */
static int attach(struct session *s, struct failure *f)
{
	int err;

	if (s->target.hooks_err && !s->no_torch)
		return refuse_torch(s, f);
	target__look_into_torch(&s->target); /* torch.nn may be imported already */
	err = load_programs(s, f);
	if (!err)
		err = fit_programs(s, f);
	if (err)
		return err;
	if (open_stages(s))
		return no_memory(f);
	err = session__attach_malloc(s, f);
	if (err)
		return err;
	err = attach_all(s, f);
	if (err)
		return err;
	return begin_events(s) ? no_memory(f) : 0;
}

/* From now on the session has PyTorch: opens what open_stages() left out. 0 or -ENOMEM. */
static int open_torch_stages(struct session *s)
{
	s->no_torch = s->decoder->no_torch = false;
	if (facts__set(s->facts, "allocator", "") || session__set_torch_facts(s))
		return -ENOMEM;
	if (!s->opts.no_autograd && autograd__attach(s->decoder))
		return -ENOMEM;
	if (!s->opts.no_modules && s->target.has_slot && modules__open(s->decoder))
		return -ENOMEM;
	if (s->census)
		census_stage__name_parameters(s->census);
	if (s->target.torch.cuda)
		target__open_allocator(&s->target, &s->target.maps);
	return 0;
}

/* Records tensors, too, if PyTorch has come into a process whose host memory is recorded. 0;
 * -EAGAIN: it has not; or other negative with *f. */
static int add_torch(struct session *s, struct failure *f)
{
	struct mt_py_layout layout;
	int err = look_for_arrival(s, clock__monotonic(), f);

	if (err)
		return err;
	if (s->target.hooks_err)
		return refuse_torch(s, f);
	target__look_into_torch(&s->target);
	layout = target__layout(&s->target);
	layout.type_cell = s->layout.type_cell = 0; /* an address, see load_programs() */
	if (memcmp(&layout, &s->layout, sizeof(layout)) != 0 ||
	    (s->opts.group && probes__misfit(s->probes, s->target.hooks)))
		return failure__set(f, EXIT_UNUSABLE, -EBUSY, "it needs other BPF programs");
	if (cuda_calls__any(s->decoder->calls) || !is_before_torch(s))
		return failure__set(f, EXIT_UNUSABLE, -EBUSY, "it has begun to use memory before");
	if (open_torch_stages(s))
		return no_memory(f);
	err = attach_all(s, f);
	if (err)
		return err;
	if (set_from_start(s, is_before_torch(s)) || attach_stage__begin(s->attach))
		return no_memory(f);
	return 0;
}

/* True while the process may be mapping PyTorch. Its map is not read more often than that: a
 * reading keeps threads waiting that map memory. */
static bool may_map_torch(struct session *s)
{
	const uint64_t least = TORCH_SIZE / (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t now = clock__monotonic(), pages;

	if (proc__pages(s->target.proc, &pages))
		return false;
	if (pages < s->wait.pages)
		s->wait.pages = pages;
	if (pages - s->wait.pages >= least)
		s->wait.jumped = now;
	return s->wait.jumped && now - s->wait.jumped < QUIET;
}

int session__meet_torch(struct session *s)
{
	struct failure f;
	int err;

	if (!s->no_torch || s->torch_came || s->blind || s->stopped || !may_map_torch(s))
		return 0;
	err = add_torch(s, &f);
	release_command(s, err == -EAGAIN);
	if (err == -EAGAIN)
		return 0;
	if (err == -ENOMEM)
		return err;
	if (!err) {
		log_info("PID %d has imported PyTorch: recording its tensors, too",
			 (int)proc__pid(s->target.proc));
		return 0;
	}
	s->torch_came = true;
	facts__set(s->facts, "torch_came", "1");
	log_warn(
		"PID %d has imported PyTorch, and this capture goes on without its tensors: %s. To "
		"record them, end it and begin another",
		(int)proc__pid(s->target.proc), f.text);
	return 0;
}

int session__attach(struct session *s, struct failure *f)
{
	int err = await_torch(s, f);

	if (!err)
		err = take_number(s) ? attach(s, f) : -EAGAIN;
	release_command(s, err == -EAGAIN);
	return err;
}

int session__poll_ms(const struct session *s)
{
	bool quiet = clock__monotonic() - s->wait.changed > QUIET;

	if (quiet && s->opts.late && !s->target.has_python)
		return PAUSE_OTHER;
	return quiet ? PAUSE_QUIET : PAUSE;
}

void session__renew(struct session *s)
{
	uint64_t pages;

	if (proc__pages(s->target.proc, &pages) || pages == s->wait.pages)
		return;
	s->wait.pages = pages;
	if (!target__renew(&s->target))
		session__set_torch_facts(s);
}

/* ---- the beginning and the end of a session ---- */

/* Makes a session without a process. NULL and *f on failure. */
static struct session *make_session(const struct session_opts *opts, struct failure *f)
{
	struct session *s = calloc(1, sizeof(*s));

	/* Return large buffers to the system as soon as they are freed; a fixed threshold does. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	if (s) {
		s->opts = *opts;
		if (opts->steps_only)
			s->opts.no_autograd = s->opts.no_modules = s->opts.no_census = true;
		s->opts.host |= s->opts.malloc_probes;
		if (s->opts.malloc_probes && !s->opts.ring_bytes)
			s->opts.ring_bytes = RING_WITH_MALLOC;
		s->image = -1;
		s->dict = dict__new();
		s->facts = facts__new();
	}
	if (s && s->dict && s->facts)
		return s;
	no_memory(f);
	session__free(s);
	return NULL;
}

struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *f)
{
	struct session *s = make_session(opts, f);

	if (!s)
		return NULL;
	if (target__open(pid, &s->target, f))
		goto fail;
	if (!opts->started && !opts->late &&
	    (target__look(&s->target, f) ||
	     (!session_opts__any_process(opts) && target__check_tensors(&s->target, f))))
		goto fail;
	if (opts->inside)
		inside_memory__bind(opts->inside, pid);
	/* The image is our own program if we started the process and it has not run exec yet. */
	s->image = proc__image(s->target.proc);
	/* A command's name and arguments are ours until it runs its program: follow_exec(). */
	if (opts->started ? !facts__setf(s->facts, "pid", "%d", (int)pid) : !session__set_who(s))
		return s;
	no_memory(f);
fail:
	session__free(s);
	return NULL;
}

void session__free(struct session *s)
{
	if (!s)
		return;
	release_command(s, false);
	if (s->opts.inside)
		inside_memory__close(s->opts.inside);
	leave_group(s);
	if (s->probes && s->opts.group) {
		probes__want_level(s->probes, s->opts.number, 0, false, 0, s->target.hooks);
		probes__reset_counters(s->probes, s->opts.number);
		probes__leave(s->probes, proc__pid(s->target.proc));
	}
	probes__free(s->probes);
	census_stage__free(s->census);
	attach_stage__free(s->attach);
	sleep_stage__free(s->sleep);
	decoder__free(s->decoder);
	facts__free(s->facts);
	dict__free(s->dict);
	free(s->queue.buf);
	if (s->image >= 0)
		close(s->image);
	target__close(&s->target);
	free(s);
}

/* ---- a session for a forked process, which takes over much of its parent's session ---- */

/* Opens a forked process. One that is ending has a directory in /proc, but no command line: then
 * only its PID is known, and the rest is as in `like`. */
static struct proc *open_proc(pid_t pid, const struct proc *like)
{
	struct proc *p = proc__open(pid);
	size_t len;

	if (p && *proc__cmdline(p, &len) && len)
		return p;
	proc__free(p);
	return proc__ended(pid, like);
}

/* Copies the parent's target: a forked process has the same at the same addresses. All that a target
 * owns is copied or shared; `alloc` stays NULL. 0 or -ENOMEM; the caller frees the target. */
static int take_target(struct session *s, const struct session *parent, pid_t pid)
{
	const struct target *from = &parent->target;
	struct target *t = &s->target;
	size_t i;

	*t = *from;
	t->python = NULL;
	t->alloc = NULL;
	t->proc = NULL;
	t->maps = (struct maps){ 0 };
	for (i = 0; i < HOOK_NR; i++) {
		if (t->hooks[i].elf)
			elf__share(t->hooks[i].elf);
	}
	if (maps__copy(&t->maps, &from->maps))
		return -ENOMEM;
	t->proc = open_proc(pid, from->proc);
	if (!t->proc)
		return -ENOMEM;
	s->image = proc__image(t->proc);
	t->python = from->python ? python__forked(from->python, t->proc) : NULL;
	return from->python && !t->python ? -ENOMEM : 0;
}

/* Takes over the records that came before the session. 0 or -ENOMEM. */
static int take_queue(struct session *s, struct queue *early)
{
	s->queue = *early;
	*early = (struct queue){ 0 };
	probes__feed(s->probes, s->opts.number, session__enqueue, s);
	return session__catch_up(s);
}

/* Sets the facts. Facts that cannot be read, for example because the process has ended, are those
 * of its parent. 0 or -ENOMEM. */
static int take_facts(struct session *s, const struct session *parent)
{
	static const char *const keys[] = { "exe",
					    "cwd",
					    "python",
					    "stdlib",
					    "cgroup",
					    "container",
					    "container.runtime",
					    "container.name",
					    "container.name_from",
					    "pod",
					    "pod.uid",
					    "pod.namespace",
					    "pod.name_from",
					    "rank",
					    "local_rank",
					    "world_size",
					    "allocator" };
	int err = session__set_facts(s);

	if (err)
		return err;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *value = facts__get(parent->facts, keys[i]);

		if (!value || facts__get(s->facts, keys[i]))
			continue;
		err = facts__set(s->facts, keys[i], value);
		if (err)
			return err;
	}
	return facts__set(s->facts, "attached_at", session__misses_forks(parent) ? "live" : "fork");
}

/* Attaches the hooks that the parent has by itself (see probes__attach()), in the order of
 * attach_all(). 0 or -errno. */
static int attach_own_hooks(const struct session *s, pid_t parent)
{
	static const enum hook_id ids[] = { HOOK_CODE_GONE, HOOK_SCOPE_END, HOOK_MODULE_CALL,
					    MT_ALLOCATOR_HOOKS(HOOK_ID) };
	pid_t pid = proc__pid(s->target.proc);
	int err;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct hook *h = &s->target.hooks[ids[i]];

		if (!h->found || h->fixed || !probes__attached(s->probes, parent, ids[i]) ||
		    probes__attached(s->probes, pid, ids[i]))
			continue;
		err = probes__attach(s->probes, pid, h);
		if (err && h->required && proc__alive(s->target.proc))
			return err;
	}
	return 0;
}

/* Opens the stages and begins the events of a forked process. time: of the fork. 0 or -errno. */
static int begin_forked_events(struct session *s, struct session *parent, uint64_t time)
{
	int err = take_facts(s, parent);

	s->decoder->start = time;
	if (err)
		return err;
	err = open_attach_stage(s);
	if (err)
		return err;
	err = cuda_calls__fork(s->decoder, parent->decoder->calls);
	if (err)
		return err;
	err = s->opts.no_autograd ? 0 : autograd__attach(s->decoder);
	if (err)
		return err;
	if (!s->opts.no_modules && s->target.has_slot) {
		err = modules__open(s->decoder);
		if (err)
			return err;
	}
	s->attached = true;
	err = attach_own_hooks(s, proc__pid(parent->target.proc));
	if (err)
		return err;
	err = session__begin_host(s, true);
	if (err)
		return err;
	err = attach_stage__begin_forked(s->attach, &parent->target);
	return err ? err : open_census_stage(s);
}

/* session__new_forked() with a session that has no process yet. 0 or -errno. */
static int begin_forked(struct session *s, struct session *parent, pid_t pid, uint64_t time,
			uint64_t diverged, struct queue *early)
{
	int err = take_target(s, parent, pid);

	if (err)
		return err;
	s->layout = parent->layout;
	s->have_codes = parent->have_codes;
	s->probes = probes__share_set(parent->probes);
	err = open_decoder(s);
	if (err)
		return err;
	s->no_torch = parent->no_torch;
	err = open_native_stacks(s);
	if (err)
		return err;
	s->forked = true;
	s->decoder->forked = !session__misses_forks(parent);
	err = symbolizer__inherit(s->decoder->names, parent->decoder->names, diverged);
	if (err)
		return err;
	err = take_queue(s, early);
	return err ? err : begin_forked_events(s, parent, time);
}

struct session *session__new_forked(struct session *parent, pid_t pid, uint32_t number,
				    uint64_t time, uint64_t diverged, struct queue *early,
				    struct failure *f)
{
	struct session_opts opts = parent->opts;
	struct session *s;
	int err;

	opts.number = number;
	opts.started = false;
	opts.late = true;
	s = make_session(&opts, f);
	if (!s)
		return NULL;
	err = begin_forked(s, parent, pid, time, diverged, early);
	if (!err)
		return s;
	failure__set(f, EXIT_FAILED, err, "PID %d cannot be followed: %s", (int)pid,
		     err == -ENOSPC
			     ? "its files cannot be opened, so it needs probes of its own, and "
			       "as many processes as may have them do; record fewer, or this "
			       "one with -p"
			     : strerror(-err));
	session__free(s);
	return NULL;
}
