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

static int no_memory(struct failure *failure)
{
	return failure__set(failure, EXIT_FAILED, -ENOMEM, "out of memory");
}

/* ---- sessions of a group, whose processes share programs ---- */

/* From now on the programs session->probes record the hits of this process of a group. type_cell:
 * as in struct mt_py_layout. */
static void join_group(struct session *session, uint64_t type_cell)
{
	if (!session->opts.group || !session->probes)
		return;
	proc_group__member(session->opts.group, session->opts.number)->type_cell = type_cell;
	probes__feed(session->probes, session->opts.number, session__enqueue, session);
	/* If the process has ended, a later call says so. */
	proc_group__set_group(session->opts.group, proc__pid(session->target.proc),
			      session->opts.number, probes__group(session->probes));
}

/* Takes a number in the group, if the process needs one. False: no number is left, or the process
 * has ended. */
static bool take_number(struct session *session)
{
	int number = session->opts.group && !session->opts.number
			     ? proc_group__number(session->opts.group,
						  proc__pid(session->target.proc))
			     : 0;

	if (number > 0)
		session->opts.number = number;
	session->wait.lacks_number = number == -ENOSPC;
	return number >= 0;
}

void session__give_number(struct session *session, uint32_t number)
{
	session->opts.number = number;
	session->wait.next = 0; /* the attach that waited for a number goes on */
}

/* Ends what join_group() began. Other processes may go on with the programs. */
static void leave_group(struct session *session)
{
	if (!session->opts.group || !session->probes)
		return;
	proc_group__set_group(session->opts.group, proc__pid(session->target.proc),
			      session->opts.number, 0);
	probes__feed(session->probes, session->opts.number, /*fn=*/NULL, NULL);
}

/* Loads the programs for session->layout. 0 or negative with *failure. */
static int load_new_programs(struct session *session, struct failure *failure)
{
	struct probes_opts opts = { .capture = session->opts,
				    .py = session->layout,
				    .pid = proc__pid(session->target.proc),
				    /* without has_slot, no frame is found */
				    .modules = !session->opts.no_modules &&
					       session->target.has_slot };
	const char *why = "";

	probes__from_environment(&opts);
	session->probes = probes__load(&opts, &why);
	return session->probes ? 0
			       : failure__set(failure, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why,
					      strerror(errno));
}

/* Gets other programs if session->probes are attached at other places than this process has its
 * hooks. 0 or negative with *failure. */
static int fit_programs(struct session *session, struct failure *failure)
{
	const struct hook *misfit = session->opts.group
					    ? probes__misfit(session->probes, session->target.hooks)
					    : NULL;
	int err;

	if (!misfit)
		return 0;
	leave_group(session);
	probes__free(session->probes);
	session->queue.len = session->queue.floor = 0;
	session->wait.joined_early = false;
	session->probes = probes__share(session->opts.sets, &session->layout,
					session->target.hooks);
	log_debug("PID %d: %s is in another file than in the processes before: %s",
		  (int)proc__pid(session->target.proc), hook__name(misfit->id),
		  session->probes ? "shares the programs of others that have it there"
				  : "loads programs for it");
	err = session->probes ? 0 : load_new_programs(session, failure);
	if (err)
		return err;
	join_group(session,
		   proc_group__member(session->opts.group, session->opts.number)->type_cell);
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
 * *failure. */
static int follow_exec(struct session *session, uint64_t now, struct failure *failure)
{
	struct target target;
	int err;

	if (session->image < 0 || !proc__image_gone(session->image))
		return 0;
	err = target__open(proc__pid(session->target.proc), &target, failure);
	if (err)
		return err == -ESRCH ? -EAGAIN : err;
	if (!proc__alive(session->target.proc)) { /* then the PID may be another process's */
		target__close(&target);
		return -EAGAIN;
	}
	close(session->image);
	session->image = proc__image(target.proc);
	leave_group(session);
	probes__free(session->probes);
	session->probes = NULL;
	session->wait.joined_early = false;
	session->queue.len = session->queue.floor = 0;
	target__close(&session->target);
	session->target = target;
	session->wait.since = now;
	session->wait.ran = true;
	session->wait.pages = session->wait.changed = session->wait.next = 0;
	log_debug("PID %d runs %s now", (int)proc__pid(target.proc), proc__comm(target.proc));
	return session__set_who(session) ? no_memory(failure) : 0;
}

/* Measures what a hit costs, if --cost needs it. */
static void measure_hit(struct session *session)
{
	struct hit_cost *hit = &session->cost.measure.hit;
	int err = session->opts.cost ? probes__hit_cost(HIT_SELDOM, hit) : 0;

	if (err)
		log_warn("cannot measure the cost of a probe on this host (%s): --cost is ignored",
			 strerror(-err));
	else if (session->opts.cost)
		log_debug("a probe's hit costs %" PRIu32 " ns on this host, %" PRIu32
			  " where the kernel steps over the instruction",
			  hit->emulated, hit->stepped);
	session->cost.control.limit = err ? 0 : session->opts.cost;
	step_cost__init(&session->cost.steps, session->cost.control.limit);
}

/* Loads the BPF programs for the interpreter, unless they are loaded. 0 or negative with
 * *failure. */
static int load_programs(struct session *session, struct failure *failure)
{
	struct mt_py_layout layout = target__layout(&session->target);
	uint64_t type_cell = layout.type_cell;
	int err;

	if (session->opts.group)
		layout.type_cell = 0; /* an address, which differs between processes */
	if (session->probes && !memcmp(&layout, &session->layout, sizeof(layout))) {
		if (session->opts.group)
			proc_group__member(session->opts.group, session->opts.number)
				->type_cell = type_cell;
		return 0;
	}
	leave_group(session);
	probes__free(session->probes);
	session->layout = layout;
	session->probes = session->opts.sets ? probes__share(session->opts.sets, &layout,
							     session->target.hooks)
					     : NULL;
	err = session->probes ? 0 : load_new_programs(session, failure);
	if (err)
		return err;
	if (!session->opts.group)
		probes__set_process(session->probes, proc__pidfd(session->target.proc));
	join_group(session, type_cell);
	measure_hit(session);
	return 0;
}

/* Takes the highest priority until release_command(): the linker relocates PyTorch in milliseconds.
 * A nice value counts only within a session or control group (sched(7), autogroup), so this also
 * asks for the least real-time priority. Looking each millisecond takes 1.3 % of a CPU (measured).
 * Optional: without the privilege some looks come late. Processes that we start meanwhile get the
 * usual priority. */
static void hasten(struct session *session)
{
	struct sched_param none = { 0 }, least = { .sched_priority = 1 };

	if (session->wait.hastened ||
	    sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none))
		return;
	session->wait.nice = getpriority(PRIO_PROCESS, 0);
	session->wait.hastened = !setpriority(PRIO_PROCESS, 0, NICE_WAITING);
	if (session->wait.hastened)
		sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &least);
}

/* Lets a held command run. waits_on: the session goes on waiting, so keep the lowered nice
 * value. */
static void release_command(struct session *session, bool waits_on)
{
	struct sched_param none = { 0 };

	ptrace_hold__release(&session->wait.hold);
	if (session->opts.inside && !waits_on)
		inside_memory__let_go(session->opts.inside);
	if (!session->wait.hastened || (waits_on && session->opts.started))
		return;
	sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none);
	setpriority(PRIO_PROCESS, 0, session->wait.nice);
	session->wait.hastened = false;
}

/* Stops our command until release_command(). */
static void hold_command(struct session *session)
{
	int err = session->opts.started && !session->opts.inside
			  ? ptrace_hold__take(&session->wait.hold, proc__pid(session->target.proc))
			  : 0;

	if (err)
		log_debug("cannot stop PID %d: %s", (int)proc__pid(session->target.proc),
			  strerror(-err));
}

/* The hooks of every capture, in the order of attaching. First the ends of code objects, which
 * names depend on. */
static const enum hook_id first_hooks[] = { HOOK_CODE_GONE, MT_ALLOCATOR_HOOKS(HOOK_ID) };
#define FIRST_HOOKS (sizeof(first_hooks) / sizeof(first_hooks[0]))

/* True if a group's programs are attached to PyTorch's files already, and this process has not
 * mapped them yet: then no event of it is missed. PyTorch before 1.13 has nothing for HOOK_OOM. */
static bool precedes_torch(struct session *session)
{
	struct maps maps;
	bool ret = session->opts.group && !proc__maps(session->target.proc, &maps);
	size_t i;

	if (!ret)
		return false;
	ret = !arrival__maps_torch(&maps);
	maps__free(&maps);
	for (i = 0; i < FIRST_HOOKS; i++)
		ret = ret && (first_hooks[i] == HOOK_OOM ||
			      probes__attached(session->probes, proc__pid(session->target.proc),
					       first_hooks[i]));
	return ret;
}

/* True while Python runs the code of `import torch`: its ModuleSpec says so (importlib._bootstrap,
 * _load_unlocked()). CUDA's libraries are mapped first, and on a busy machine or from a slow disk
 * PyTorch's come seconds later. */
static bool imports_torch(const struct session *session)
{
	const struct python *py = session->target.python;
	uint64_t module, spec, initializing;

	return py && !pyobj__module(py, "torch", &module) &&
	       !pyobj__module_attr(py, module, "__spec__", &spec) &&
	       !pyobj__attr(py, spec, "_initializing", &initializing) &&
	       initializing == python__symbol(py, "_Py_TrueStruct");
}

/* True if the process has no PyTorch, and its host memory is to be recorded at once. A launcher
 * that we started gets time to run the program proper. */
static bool is_host_only(struct session *session, uint64_t now, struct failure *failure)
{
	/* The process has run its program for long. */
	const bool settled = !session->opts.started && !session->opts.late;
	const uint64_t since = now - session->wait.since;
	bool ready;

	if (!session_opts__any_process(&session->opts) ||
	    (session->opts.started && !session->wait.ran))
		return false;
	/* Without the slot of its thread state, an interpreter cannot be read (yet). */
	if (session->target.has_python)
		ready = session->target.has_slot || since > NO_LINES;
	else
		ready = settled || since > (session->opts.started ? LAUNCHES : NO_PYTHON);
	if (!ready || target__look(&session->target, failure) || session->target.torch.found ||
	    imports_torch(session))
		return false;
	if (session->target.uses_cuda && !session->opts.host)
		return false;
	session->opts.host = true;
	return true;
}

/*
 * True if only calls into CUDA are to be recorded: the process uses CUDA, and PyTorch does not
 * come. A process with Python must have had CUDA for CUDA_QUIET without new mappings, or for
 * CUDA_ALONE. Looks at the process again; if that finds PyTorch or an error, the wait begins again.
 */
static bool is_cuda_only(struct session *session, uint64_t now, struct failure *failure)
{
	struct waiting *waiting = &session->wait;
	bool alone;

	if (session->opts.steps_only)
		return false;
	if (session->target.has_python &&
	    (!waiting->cuda_since || now - waiting->cuda_since < CUDA_QUIET ||
	     (now - waiting->changed < CUDA_QUIET && now - waiting->cuda_since < CUDA_ALONE)))
		return false;
	if (!session->target.has_python && !waiting->cuda_since &&
	    (session->opts.started || !session->target.uses_cuda))
		return false;
	alone = !target__look(&session->target, failure) && session->target.uses_cuda &&
		!session->target.torch.found && !imports_torch(session);
	/* If CUDA alone was not confirmed, wait for the whole time again. */
	waiting->cuda_since = alone || !waiting->cuda_since ? waiting->cuda_since : now;
	return alone;
}

/* Notes that CUDA is mapped and PyTorch is not. Our command is held, as it may use CUDA at once. */
static void note_cuda(struct session *session, uint64_t now)
{
	if (!session->target.has_python &&
	    !target__uses_cuda(&session->target, &session->target.maps))
		return;
	if (!session->wait.cuda_since && !session->target.has_python)
		hold_command(session);
	session->wait.cuda_since = session->wait.cuda_since ?: now;
}

/* Finds the interpreter and loads the programs before PyTorch is mapped. Owns maps. 0 or negative
 * with *failure. */
static int prepare_programs(struct session *session, struct maps *maps, uint64_t now,
			    struct failure *failure)
{
	int err;

	target__look_for_python(&session->target, maps);
	/* A starting interpreter can be read once a thread runs in it. */
	session->wait.next = session->target.has_python && !session->target.has_slot ? now + RETRY
										     : UINT64_MAX;
	if (!session->target.has_slot) {
		if (session->target.has_python && !session->wait.said_why)
			log_debug("PID %d: no frames of Python so far: %s",
				  (int)proc__pid(session->target.proc), session->target.python_why);
		session->wait.said_why = session->target.has_python;
		return 0;
	}
	if (!take_number(session)) {
		session->wait.next = now + NUMBER;
		return 0;
	}
	/* The kernel takes half a second to verify the programs; `import torch` may be faster. */
	hold_command(session);
	err = load_programs(session, failure);
	if (err)
		return err;
	target__attach_optional(&session->target, session->probes, HOOK_CODE_GONE);
	session->wait.joined_early = precedes_torch(session);
	log_debug("PID %d: Python is understood, the programs are loaded",
		  (int)proc__pid(session->target.proc));
	return 0;
}

/* PyTorch is not mapped yet: prepares what can be done before. Owns maps. -EAGAIN, or other
 * negative with *failure. */
static int prepare_for_torch(struct session *session, struct maps *maps, uint64_t now,
			     struct failure *failure)
{
	bool cuda = arrival__maps_cuda(maps);
	int err = 0;

	if (session->probes)
		maps__free(maps);
	else
		err = prepare_programs(session, maps, now, failure);
	if (err)
		return err;
	if (cuda && !session->no_torch)
		note_cuda(session, now);
	return -EAGAIN;
}

/* Looks for PyTorch among the process's mappings; if it is recorded without PyTorch, only for that.
 * 0: PyTorch is in the process; -EAGAIN: not yet; other negative with *failure. */
static int look_for_torch(struct session *session, struct failure *failure)
{
	int err = session->no_torch ? target__look_for_torch(&session->target, failure)
				    : target__look(&session->target, failure);

	if (err)
		return err;
	return session->target.torch.found ? 0 : -EAGAIN;
}

/* Looks once whether PyTorch is in the process, and prepares what can be done before. 0: PyTorch is
 * there, and session->target has its facts; -EAGAIN: not yet; other negative with *failure. */
static int look_for_arrival(struct session *session, uint64_t now, struct failure *failure)
{
	uint64_t pages;
	struct maps maps;
	bool grew, untouched, all_mapped, arrived;
	int maps_err;

	if (proc__pages(session->target.proc, &pages))
		return -EAGAIN; /* it is ending */
	if (session->opts.inside)
		inside_memory__meet(session->opts.inside);
	arrived = session->opts.inside && inside_memory__arrived(session->opts.inside);
	if (pages == session->wait.pages && now < session->wait.next && !arrived)
		return -EAGAIN;
	grew = pages != session->wait.pages;
	if (grew)
		session->wait.changed = now;
	session->wait.pages = pages;
	maps_err = proc__maps(session->target.proc, &maps);
	if (maps_err == -ESRCH)
		return -EAGAIN;
	if (!maps_err && !arrival__maps_torch(&maps))
		return prepare_for_torch(session, &maps, now, failure);
	hasten(session); /* also for processes that we did not start: PyTorch is mapped now */
	if (!maps_err) {
		/* Libraries are mapped one by one and then relocated, which maps nothing. */
		untouched = (session->opts.started || session->opts.late || session->no_torch) &&
			    arrival__no_torch_code_ran(session->target.proc, &maps);
		all_mapped = !grew || !untouched || arrived;
		if (untouched && all_mapped)
			hold_command(session);
		maps__free(&maps);
		if (!all_mapped) {
			session->wait.next = now;
			return -EAGAIN;
		}
	}
	return look_for_torch(session, failure); /* also sets *failure if the maps cannot be read */
}

/* Looks for PyTorch. Returns 0 once it is found, or once the process is to be recorded without it;
 * otherwise as look_for_arrival(). */
static int await_torch(struct session *session, struct failure *failure)
{
	uint64_t now = clock__monotonic();
	int err;

	if (session->no_torch || (session->target.torch.found && !session->target.hooks_err))
		return 0;
	err = follow_exec(session, now, failure);
	if (err)
		return err;
	session->wait.since = session->wait.since ?: now;
	session->no_torch = is_host_only(session, now, failure) ||
			    is_cuda_only(session, now, failure);
	if (session->no_torch)
		return 0;
	if (session->opts.started)
		hasten(session);
	if (!session->opts.started && !session->opts.late && !session->target.has_python &&
	    now - session->wait.since > NO_PYTHON)
		return look_for_torch(session, failure);
	return look_for_arrival(session, now, failure);
}

/* Attaches the probes of scopes, the end first: a scope without an end would stay open. */
static void attach_scopes(const struct session *session)
{
	static const enum hook_id pairs[][2] = { { HOOK_SCOPE_END, HOOK_SCOPE_BEGIN },
						 { HOOK_RANGE_POP, HOOK_RANGE_PUSH } };
	const struct target *target = &session->target;

	target__attach_optional(target, session->probes, HOOK_SCOPE_END); /* for steps, too */
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]) && !session->opts.steps_only; i++) {
		target__attach_optional(target, session->probes, pairs[i][0]);
		if (probes__attached(session->probes, proc__pid(target->proc), pairs[i][0]))
			target__attach_optional(target, session->probes, pairs[i][1]);
	}
}

void session__look_into_torch(struct session *session, uint64_t now)
{
	if (session->have_codes || !session->target.python || !session->target.has_slot ||
	    now < session->wait.next_look)
		return;
	session->wait.look_pause = session->wait.look_pause ? session->wait.look_pause * 2
							    : LOOK_PAUSE_MIN;
	if (session->wait.look_pause > LOOK_PAUSE_MAX)
		session->wait.look_pause = LOOK_PAUSE_MAX;
	session->wait.next_look = now + session->wait.look_pause;
	/* Calls before torch.nn is found have no names of modules, so look again soon. */
	session->begins = now;
	session__renew(session);
	if (target__look_into_torch(&session->target))
		return;
	probes__set_module_codes(session->probes, session->opts.number,
				 session->target.module_codes, session->target.n_module_codes);
	session->have_codes = true;
	attach_scopes(session);
	if (session->decoder->modules)
		target__attach_optional(&session->target, session->probes, HOOK_MODULE_CALL);
}

/* Sets *failure for a probe that the process would need for itself alone, since it chose the place.
 * Returns err. */
static int refuse_own(const struct session *session, struct failure *failure,
		      const struct hook *hook, int err)
{
	int pid = proc__pid(session->target.proc);
	bool group = session->opts.group;
	char next[64] = "Run memtrace-bpf as root";
	const char *why = "its file cannot be opened";
	const char *why_none = err == -ENOSPC ? "as many processes as may have them do: each call "
						"passes the probes of all"
					      : "this kernel's probes for one process miss threads";

	if (group)
		snprintf(next, sizeof(next), "Record it by itself: record -p %d", pid);
	if (!elf__is_memory(hook->elf))
		why = "the file does not say where the function is that Python frees code with";
	else if (group)
		why = "root may not open its file, which is on a FUSE or NFS mount of another user";
	return failure__set(
		failure, EXIT_NOT_PERMITTED, err,
		"PID %d is not recorded%s: %s (%s), so it needs probes of its own, and %s. %s", pid,
		group ? " together with others" : "", why, hook->file, why_none, next);
}

/* Names the capability that is missing for a probe. */
static const char *missing_right(const struct probes *probes)
{
	if (*caps__missing())
		return caps__missing();
	return probes__have_multi(probes) ? "CAP_PERFMON"
					  : "CAP_SYS_ADMIN (this kernel has no uprobe.multi)";
}

/* Sets *failure for a probe that could not be attached. Returns err, or -ESRCH if the process
 * ended. */
static int refuse_probe(const struct session *session, struct failure *failure,
			const struct hook *hook, int err)
{
	int pid = proc__pid(session->target.proc);

	if (session->opts.inside)
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "no breakpoint can be set on %s at %s+%#" PRIx64 ": %s",
				    hook__name(hook->id), hook->file, hook->offset,
				    err == -EBUSY ? "another capture of several processes (--all, "
						    "--name, --children, watch, serve) has probes "
						    "there: try again when it has ended"
						  : strerror(-err));
	if (err == -EPERM || err == -EACCES)
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "not permitted to probe PID %d: %s needed; run it with sudo",
				    pid, missing_right(session->probes));
	if (err == -EXDEV || err == -ENOSPC)
		return refuse_own(session, failure, hook, err);
	/* The kernel also returns errors other than -ESRCH for a process that is ending. */
	if (err == -ESRCH || !proc__alive(session->target.proc))
		return failure__set(failure, EXIT_UNUSABLE, -ESRCH, "PID %d ended while attaching",
				    pid);
	return failure__set(failure, hook->required ? EXIT_NOT_PERMITTED : EXIT_FAILED, err,
			    "the kernel refused the probe on %s at %s+%#" PRIx64
			    ": %s; `memtrace-bpf check -p %d` shows the details",
			    hook__name(hook->id), hook->file, hook->offset, strerror(-err), pid);
}

/* Attaches the hooks of the allocator; with steps_only, those of code objects and steps. 0 or
 * negative with *failure. */
static int attach_all(struct session *session, struct failure *failure)
{
	pid_t pid = proc__pid(session->target.proc);
	size_t i;
	int err;

	for (i = 0; i < FIRST_HOOKS; i++) {
		const struct hook *hook = &session->target.hooks[first_hooks[i]];

		/* After the first hook: the programs must know calls of modules before the first
		 * event. */
		if (i == 1)
			session__look_into_torch(session, 0);
		if (i && (session->opts.steps_only || session->no_torch))
			break; /* steps and host memory need no hook of the allocator */
		if (probes__attached(session->probes, pid, first_hooks[i]))
			continue;
		if (!hook->found) {
			log_debug("%s: not probed: %s", hook__name(first_hooks[i]), hook->why_not);
			continue;
		}
		err = probes__attach(session->probes, pid, hook);
		if (err)
			return refuse_probe(session, failure, hook, err);
	}
	return 0;
}

/* The functions below open the decoder and the stages (stages.h). They return 0 or -ENOMEM. */

static int open_decoder(struct session *session)
{
	session->decoder = decoder__new(&session->opts, &session->target, session->probes,
					session->dict, session->facts);
	if (!session->decoder)
		return -ENOMEM;
	if (session->cost.control.limit && !session->opts.group)
		session->decoder->step_cost = &session->cost.steps;
	return 0;
}

/* Opens the stages behind the decoder: the state at attach, and behind it the transitions to
 * sleep. */
static int open_attach_stage(struct session *session)
{
	session->attach = attach_stage__new(&session->target, session->facts,
					    !session->opts.steps_only);
	session->sleep = sleep_stage__new(session->decoder);
	if (!session->attach || !session->sleep)
		return -ENOMEM;
	attach_stage__send_to(session->attach, sleep_stage__sink(session->sleep));
	session->decoder->next = attach_stage__sink(session->attach);
	return 0;
}

/* Opens the stage that names tensors, unless nothing is to be named. 0 or -ENOMEM. */
static int open_census_stage(struct session *session)
{
	if (session->opts.no_census || (session->no_torch && !session->opts.host))
		return 0;
	session->census = census_stage__new(session->decoder, session->decoder->next);
	if (!session->census)
		return -ENOMEM;
	session->decoder->next = census_stage__sink(session->census);
	return 0;
}

/* Records stacks of compiled code, if the options and the process want them. */
static int open_native_stacks(struct session *session)
{
	uint32_t most = session->no_torch || session->opts.native || session->opts.malloc_probes
				? NATIVE_STACKS_A_SECOND
				: NATIVE_STACKS_OF_HOST;

	session->decoder->no_torch = session->no_torch;
	if (session->opts.steps_only ||
	    (!session->no_torch && !session->opts.native && !session->opts.host))
		return 0;
	session->decoder->native = native_stacks__new(session->target.proc, session->dict,
						      session->facts);
	if (!session->decoder->native) {
		if (errno == ENOMEM)
			return -ENOMEM;
		log_warn("stacks of compiled code are not recorded: %s", strerror(errno));
		return 0;
	}
	probes__copy_stacks(session->probes, most);
	if (session->opts.native)
		probes__copy_stacks_from(session->probes, NATIVE_STACKS_FROM);
	return 0;
}

/* Opens all that takes and adds events, before the probes bring any. 0 or -ENOMEM. */
static int open_stages(struct session *session)
{
	if (open_decoder(session) || open_native_stacks(session) || session__catch_up(session) ||
	    session__set_facts(session) || open_attach_stage(session))
		return -ENOMEM;
	/* Segments before blocks: a block's total counts all segments taken until then. */
	if (!session->opts.steps_only &&
	    (attach_stage__hint(session->attach) || cuda_calls__attach(session->decoder)))
		return -ENOMEM;
	if (session->no_torch)
		return 0;
	if (!session->opts.no_autograd && autograd__attach(session->decoder))
		return -ENOMEM;
	return !session->opts.no_modules && session->target.has_slot
		       ? modules__open(session->decoder)
		       : 0;
}

/* True if none of PyTorch's code can have run before now. False also if the map is unreadable. */
static bool is_before_torch(const struct session *session)
{
	struct maps maps;
	bool ret;

	if (proc__maps(session->target.proc, &maps))
		return false;
	ret = arrival__no_torch_code_ran(session->target.proc, &maps);
	maps__free(&maps);
	return ret;
}

/* Notes from_start: the recording has all memory from the start. 0 or -ENOMEM. */
static int set_from_start(struct session *session, bool from_start)
{
	session->decoder->from_start = from_start;
	return facts__set(session->facts, "attached_at", from_start ? "start" : "live");
}

/* True if events that begin now have all memory that the session records. */
static bool began_with_all_memory(const struct session *session)
{
	if (session->wait.joined_early)
		return true;
	if (session->no_torch)
		return session->opts.started && session->opts.host;
	return is_before_torch(session);
}

/* The probes are in place: events begin now. 0 or -ENOMEM. */
static int begin_events(struct session *session)
{
	bool from_start = began_with_all_memory(session);
	int err;

	session->decoder->start = decoder__clock(session->decoder);
	err = session__set_start(session); /* at once: events count their time from here */
	if (err)
		return err;
	if (session->no_torch) {
		err = facts__set(session->facts, "allocator", "none");
		if (err)
			return err;
	}
	err = set_from_start(session, from_start);
	if (err)
		return err;
	session->attached = true;
	err = session__begin_host(session, /*inherited=*/false);
	if (err)
		return err;
	err = session__begin_malloc(session);
	if (err)
		return err;
	if (!session->opts.steps_only) {
		err = attach_stage__begin(session->attach);
		if (err)
			return err;
	}
	return open_census_stage(session);
}

/* Sets *failure: PyTorch lacks a function that is needed, or its file cannot be read. Returns the
 * error. */
static int refuse_torch(const struct session *session, struct failure *failure)
{
	int err = session->target.hooks_err, i;
	const char *version = session->target.torch.version[0] ? session->target.torch.version
							       : "version unknown";
	const struct hook *hook = session->target.hooks;
	const char *why;

	/* the first hook that is required and was not found */
	for (i = 0; i < HOOK_NR - 1 && !(hook->required && !hook->found); i++)
		hook++;
	why = hook->why_not ? hook->why_not : "torch's library cannot be looked into";
	if (*caps__missing())
		return failure__set(failure, EXIT_NOT_PERMITTED, -EPERM,
				    "%s: %s needed; run it with sudo", why, caps__missing());
	if (err != -ENOENT && !caps__reach_replaced())
		return failure__set(failure, EXIT_NOT_PERMITTED, -EPERM,
				    "%s; where its file was replaced on disk, "
				    "CAP_CHECKPOINT_RESTORE is needed too; run it with sudo",
				    why);
	if (err == -EPERM)
		return failure__set(failure, EXIT_NOT_PERMITTED, -EPERM,
				    "%s. Run memtrace-bpf as the user who mounted it, or mount it "
				    "with -o allow_other",
				    hook->why_not ? hook->why_not
						  : "torch's library cannot be opened");
	return failure__set(failure, EXIT_UNUSABLE, err,
			    "this PyTorch (%s) does not export %s: %s; versions 1.13 and newer do",
			    version, hook->symbol, hook->why_not ? hook->why_not : "not found");
}

/* PyTorch, or CUDA alone, was found: loads and attaches all programs. 0 or negative with
 * *failure. */
static int attach(struct session *session, struct failure *failure)
{
	int err;

	if (session->target.hooks_err && !session->no_torch)
		return refuse_torch(session, failure);
	target__look_into_torch(&session->target); /* torch.nn may be imported already */
	err = load_programs(session, failure);
	if (!err)
		err = fit_programs(session, failure);
	if (err)
		return err;
	if (open_stages(session))
		return no_memory(failure);
	err = session__attach_malloc(session, failure);
	if (err)
		return err;
	err = attach_all(session, failure);
	if (err)
		return err;
	return begin_events(session) ? no_memory(failure) : 0;
}

/* Opens what open_stages() left out without PyTorch. 0 or -ENOMEM. */
static int open_torch_stages(struct session *session)
{
	if (facts__set(session->facts, "allocator", "") || session__set_torch_facts(session))
		return -ENOMEM;
	if (!session->opts.no_autograd && autograd__attach(session->decoder))
		return -ENOMEM;
	if (!session->opts.no_modules && session->target.has_slot &&
	    modules__open(session->decoder))
		return -ENOMEM;
	if (session->census)
		census_stage__name_parameters(session->census);
	if (session->target.torch.cuda)
		target__open_allocator(&session->target, &session->target.maps);
	return 0;
}

/* Records tensors, too, if PyTorch has come into a process whose host memory is recorded. Clears
 * no_torch as soon as nothing speaks against it. 0; -EAGAIN: it has not come; or other negative
 * with *failure. */
static int add_torch(struct session *session, struct failure *failure)
{
	struct mt_py_layout layout;
	int err = look_for_arrival(session, clock__monotonic(), failure);

	if (err)
		return err;
	if (session->target.hooks_err)
		return refuse_torch(session, failure);
	target__look_into_torch(&session->target);
	layout = target__layout(&session->target);
	layout.type_cell = session->layout.type_cell = 0; /* an address, see load_programs() */
	if (memcmp(&layout, &session->layout, sizeof(layout)) != 0 ||
	    (session->opts.group && probes__misfit(session->probes, session->target.hooks)))
		return failure__set(failure, EXIT_UNUSABLE, -EBUSY, "it needs other BPF programs");
	if (cuda_calls__any(session->decoder->calls) || !is_before_torch(session))
		return failure__set(failure, EXIT_UNUSABLE, -EBUSY,
				    "it has begun to use memory before");
	session->no_torch = session->decoder->no_torch = false;
	if (open_torch_stages(session))
		return no_memory(failure);
	err = attach_all(session, failure);
	if (err)
		return err;
	if (set_from_start(session, is_before_torch(session)) ||
	    attach_stage__begin(session->attach))
		return no_memory(failure);
	return 0;
}

/* True while the process may be mapping PyTorch. Its map is not read more often than that: a
 * reading keeps threads waiting that map memory. */
static bool may_map_torch(struct session *session)
{
	const uint64_t least = TORCH_SIZE / (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t now = clock__monotonic(), pages;

	if (proc__pages(session->target.proc, &pages))
		return false;
	if (pages < session->wait.pages)
		session->wait.pages = pages;
	if (pages - session->wait.pages >= least)
		session->wait.jumped = now;
	return session->wait.jumped && now - session->wait.jumped < QUIET;
}

int session__meet_torch(struct session *session)
{
	struct failure failure;
	bool waits_on;
	int err;

	if (!session->no_torch || session->torch_refused || session->blind || session->stopped ||
	    !may_map_torch(session))
		return 0;
	err = add_torch(session, &failure);
	waits_on = err == -EAGAIN;
	release_command(session, waits_on);
	if (waits_on)
		return 0;
	if (err == -ENOMEM)
		return err;
	if (!err) { /* no_torch is false now */
		log_info("PID %d has imported PyTorch: recording its tensors, too",
			 (int)proc__pid(session->target.proc));
		return 0;
	}
	session->torch_refused = true;
	facts__set(session->facts, "torch_came", "1");
	log_warn(
		"PID %d has imported PyTorch, and this capture goes on without its tensors: %s. To "
		"record them, end it and begin another",
		(int)proc__pid(session->target.proc), failure.text);
	return 0;
}

int session__attach(struct session *session, struct failure *failure)
{
	int err = await_torch(session, failure);
	bool waits_on;

	if (!err)
		/* without a number in the group, wait for one */
		err = take_number(session) ? attach(session, failure) : -EAGAIN;
	waits_on = err == -EAGAIN;
	release_command(session, waits_on);
	return err;
}

/* A process that is quiet maps no files, as it would to import PyTorch. opts.late: others may wait
 * at the same time, and most of them are no Python programs. */
int session__poll_ms(const struct session *session)
{
	bool quiet = clock__monotonic() - session->wait.changed > QUIET;

	if (quiet && session->opts.late && !session->target.has_python)
		return PAUSE_OTHER;
	return quiet ? PAUSE_QUIET : PAUSE;
}

void session__renew(struct session *session)
{
	uint64_t pages;

	if (proc__pages(session->target.proc, &pages) || pages == session->wait.pages)
		return;
	session->wait.pages = pages;
	if (!target__renew(&session->target))
		session__set_torch_facts(session);
}

/* ---- the beginning and the end of a session ---- */

/* Makes a session without a process. NULL and *failure on failure. */
static struct session *make_session(const struct session_opts *opts, struct failure *failure)
{
	struct session *session = calloc(1, sizeof(*session));

	/* Return large buffers to the system as soon as they are freed; a fixed threshold does. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	if (session) {
		session->opts = *opts;
		if (opts->steps_only)
			session->opts.no_autograd = session->opts.no_modules =
				session->opts.no_census = true;
		session->opts.host |= session->opts.malloc_probes;
		if (session->opts.malloc_probes && !session->opts.ring_bytes)
			session->opts.ring_bytes = RING_WITH_MALLOC;
		session->image = -1;
		session->dict = dict__new();
		session->facts = facts__new();
	}
	if (session && session->dict && session->facts)
		return session;
	no_memory(failure);
	session__free(session);
	return NULL;
}

struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *failure)
{
	struct session *session = make_session(opts, failure);

	if (!session)
		return NULL;
	if (target__open(pid, &session->target, failure))
		goto fail;
	if (!opts->started && !opts->late &&
	    (target__look(&session->target, failure) ||
	     (!session_opts__any_process(opts) && target__check_tensors(&session->target, failure))))
		goto fail;
	if (opts->inside)
		inside_memory__bind(opts->inside, pid);
	/* The image is our own program if we started the process and it has not run exec yet. */
	session->image = proc__image(session->target.proc);
	/* A command's name and arguments are ours until it runs its program: follow_exec(). */
	if (opts->started ? !facts__setf(session->facts, "pid", "%d", (int)pid)
			  : !session__set_who(session))
		return session;
	no_memory(failure);
fail:
	session__free(session);
	return NULL;
}

void session__free(struct session *session)
{
	if (!session)
		return;
	release_command(session, /*waits_on=*/false);
	if (session->opts.inside)
		inside_memory__close(session->opts.inside);
	leave_group(session);
	if (session->probes && session->opts.group) {
		probes__want_level(session->probes, session->opts.number, 0, /*keep_modules=*/false,
				   0, session->target.hooks);
		probes__reset_counters(session->probes, session->opts.number);
		probes__leave(session->probes, proc__pid(session->target.proc));
	}
	probes__free(session->probes);
	census_stage__free(session->census);
	attach_stage__free(session->attach);
	sleep_stage__free(session->sleep);
	decoder__free(session->decoder);
	facts__free(session->facts);
	dict__free(session->dict);
	free(session->queue.buf);
	if (session->image >= 0)
		close(session->image);
	target__close(&session->target);
	free(session);
}

/* ---- a session for a forked process, which takes over much of its parent's session ---- */

/* Opens a forked process. One that is ending has a directory in /proc, but no command line: then
 * only its PID is known, and the rest is as in `like`. */
static struct proc *open_proc(pid_t pid, const struct proc *like)
{
	struct proc *proc = proc__open(pid);
	size_t len;

	if (proc && *proc__cmdline(proc, &len) && len)
		return proc;
	proc__free(proc);
	return proc__ended(pid, like);
}

/* Copies the parent's target: a forked process has the same at the same addresses. All that a target
 * owns is copied or shared; `alloc` stays NULL. 0 or -ENOMEM; the caller frees the target. */
static int take_target(struct session *session, const struct session *parent, pid_t pid)
{
	const struct target *from = &parent->target;
	struct target *target = &session->target;
	size_t i;

	*target = *from;
	target->python = NULL;
	target->alloc = NULL;
	target->proc = NULL;
	target->maps = (struct maps){ 0 };
	for (i = 0; i < HOOK_NR; i++) {
		if (target->hooks[i].elf)
			elf__share(target->hooks[i].elf);
	}
	if (maps__copy(&target->maps, &from->maps))
		return -ENOMEM;
	target->proc = open_proc(pid, from->proc);
	if (!target->proc)
		return -ENOMEM;
	session->image = proc__image(target->proc);
	target->python = from->python ? python__forked(from->python, target->proc) : NULL;
	return from->python && !target->python ? -ENOMEM : 0;
}

/* Takes over the records that came before the session. 0 or -ENOMEM. */
static int take_queue(struct session *session, struct queue *early)
{
	session->queue = *early;
	*early = (struct queue){ 0 };
	probes__feed(session->probes, session->opts.number, session__enqueue, session);
	return session__catch_up(session);
}

/* Sets the facts. Facts that cannot be read, for example because the process has ended, are those
 * of its parent. 0 or -ENOMEM. */
static int take_facts(struct session *session, const struct session *parent)
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
	int err = session__set_facts(session);

	if (err)
		return err;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *value = facts__get(parent->facts, keys[i]);

		if (!value || facts__get(session->facts, keys[i]))
			continue;
		err = facts__set(session->facts, keys[i], value);
		if (err)
			return err;
	}
	return facts__set(session->facts, "attached_at",
			  session__misses_forks(parent) ? "live" : "fork");
}

/* Attaches the hooks that the parent has by itself (see probes__attach()), in the order of
 * attach_all(). 0 or -errno. */
static int attach_own_hooks(const struct session *session, pid_t parent)
{
	static const enum hook_id ids[] = { HOOK_CODE_GONE,   HOOK_SCOPE_END,
					    HOOK_RANGE_POP,   HOOK_RANGE_PUSH,
					    HOOK_MODULE_CALL, MT_ALLOCATOR_HOOKS(HOOK_ID) };
	pid_t pid = proc__pid(session->target.proc);
	int err;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct hook *hook = &session->target.hooks[ids[i]];

		if (!hook->found || hook->fixed ||
		    !probes__attached(session->probes, parent, ids[i]) ||
		    probes__attached(session->probes, pid, ids[i]))
			continue;
		err = probes__attach(session->probes, pid, hook);
		if (err && hook->required && proc__alive(session->target.proc))
			return err;
	}
	return 0;
}

/* Opens the stages and begins the events of a forked process. time: of the fork. 0 or -errno. */
static int begin_forked_events(struct session *session, struct session *parent, uint64_t time)
{
	int err = take_facts(session, parent);

	session->decoder->start = time;
	if (err)
		return err;
	err = open_attach_stage(session);
	if (err)
		return err;
	err = cuda_calls__fork(session->decoder, parent->decoder->calls);
	if (err)
		return err;
	err = session->opts.no_autograd ? 0 : autograd__attach(session->decoder);
	if (err)
		return err;
	if (!session->opts.no_modules && session->target.has_slot) {
		err = modules__open(session->decoder);
		if (err)
			return err;
	}
	session->attached = true;
	err = attach_own_hooks(session, proc__pid(parent->target.proc));
	if (err)
		return err;
	err = session__begin_host(session, /*inherited=*/true);
	if (err)
		return err;
	err = attach_stage__begin_forked(session->attach, &parent->target);
	return err ? err : open_census_stage(session);
}

/* session__new_forked() with a session that has no process yet. 0 or -errno. */
static int begin_forked(struct session *session, struct session *parent, pid_t pid, uint64_t time,
			uint64_t diverged, struct queue *early)
{
	int err = take_target(session, parent, pid);

	if (err)
		return err;
	session->layout = parent->layout;
	session->have_codes = parent->have_codes;
	session->probes = probes__share_set(parent->probes);
	err = open_decoder(session);
	if (err)
		return err;
	session->no_torch = parent->no_torch;
	err = open_native_stacks(session);
	if (err)
		return err;
	session->forked = true;
	session->decoder->forked = !session__misses_forks(parent);
	err = symbolizer__inherit(session->decoder->names, parent->decoder->names, diverged);
	if (err)
		return err;
	err = take_queue(session, early);
	return err ? err : begin_forked_events(session, parent, time);
}

struct session *session__new_forked(struct session *parent, pid_t pid, uint32_t number,
				    uint64_t time, uint64_t diverged, struct queue *early,
				    struct failure *failure)
{
	struct session_opts opts = parent->opts;
	struct session *session;
	int err;

	opts.number = number;
	opts.started = false;
	opts.late = true;
	session = make_session(&opts, failure);
	if (!session)
		return NULL;
	err = begin_forked(session, parent, pid, time, diverged, early);
	if (!err)
		return session;
	failure__set(failure, EXIT_FAILED, err, "PID %d cannot be followed: %s", (int)pid,
		     err == -ENOSPC
			     ? "its files cannot be opened, so it needs probes of its own, and "
			       "as many processes as may have them do; record fewer, or this "
			       "one with -p"
			     : strerror(-err));
	session__free(session);
	return NULL;
}
