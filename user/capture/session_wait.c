/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waiting for PyTorch to come into the process, to be there before it allocates.
 *
 * Between the mapping of libc10 and the first of its code that runs lie all relocations of
 * PyTorch's libraries: some 40 ms at the least, with everything in the page cache, measured with
 * PyTorch 2.1 to 2.15. So the size of the address space is looked at every 2 ms (one small file of
 * /proc, 5 us), the memory map is read only when that has changed, and what takes long is done
 * before: the interpreter, which runs `import torch`, is understood and the BPF programs for it are
 * loaded as soon as it is up. A command of our own is held (ptrace_hold.h) while that goes on, and
 * again once PyTorch's libraries are mapped, so that only the look has to be in time.
 */
#include "capture/session_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "capture/inside_memory.h"
#include "lib/clock.h"
#include "lib/failure.h"
#include "log/log.h"
#include "process/arrival.h"
#include "process/proc.h"

#define PAUSE 2 /* ms */
#define PAUSE_QUIET                                                                                \
	10 /* ms, where nothing has been mapped for QUIET: import torch begins with other modules */
#define PAUSE_OTHER                                                                                \
	100 /* ms, where there is no Python either, and there is no reason to expect any */
#define QUIET 1000000000ULL  /* ns */
#define RETRY 5000000ULL     /* ns, while the interpreter is starting */
#define NUMBER 1000000000ULL /* ns, where no number was left */
#define IN_TIME                                                                                    \
	(-20) /* nice value while a command is waited for: a look that comes late is one in vain */
#define NO_PYTHON                                                                                  \
	1000000000ULL /* ns after an exec: a process that is not Python by then will not be */

/* Another program has the process: nothing of what was known holds. 0, -EAGAIN (it is ending), or
 * negative with *f. */
static int follow_exec(struct session *s, uint64_t now, struct failure *f)
{
	struct target t;
	int err;

	if (s->image < 0 || !proc__image_gone(s->image))
		return 0;
	err = target__open(proc__pid(s->target.proc), &t, f);
	if (err)
		return err == -ESRCH ? -EAGAIN : err;
	if (!proc__alive(s->target.proc)) { /* the PID may be another process's by now */
		target__close(&t);
		return -EAGAIN;
	}
	close(s->image);
	s->image = proc__image(t.proc);
	session__leave(s);
	probes__free(s->probes);
	s->probes = NULL;
	s->joined_early = false;
	s->queue.len = s->queue.floor = 0;
	target__close(&s->target);
	s->target = t;
	s->wait = (struct waiting){ .since = now };
	log_debug("PID %d runs %s now", (int)proc__pid(t.proc), proc__comm(t.proc));
	return 0;
}

int session__load(struct session *s, struct failure *f)
{
	const char *why = "";
	struct probes_opts po = { .ring_bytes = s->opts.ring_bytes,
				  .inside = s->opts.inside,
				  .py = target__layout(&s->target),
				  .group = s->opts.group,
				  .sets = s->opts.sets };
	uint64_t cell = po.py.type_cell;

	if (po.group)
		po.py.type_cell = 0; /* an address, and so each process's own */

	if (s->probes && !memcmp(&po.py, &s->layout, sizeof(po.py))) {
		if (po.group)
			proc_group__member(po.group, s->opts.number)->type_cell = cell;
		return 0;
	}
	session__leave(s);
	probes__free(s->probes);
	probes__from_environment(&po);
	po.pid = proc__pid(s->target.proc);
	po.modules = !s->opts.no_modules && s->target.has_slot;
	s->layout = po.py;
	s->probes = po.sets ? probes__share(po.sets, &po.py, s->target.hooks) : NULL;
	if (!s->probes)
		s->probes = probes__load(&po, &why);
	if (!s->probes)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why, strerror(errno));
	if (!po.group)
		probes__set_process(s->probes, proc__pidfd(s->target.proc));
	session__join(s, cell);
	return 0;
}

/* Where the privilege for it is not there, the look is as often in time as it can be. */
static void hasten(struct session *s)
{
	s->nice = getpriority(PRIO_PROCESS, 0);
	s->hastened = !setpriority(PRIO_PROCESS, 0, IN_TIME);
}

void session__let_go(struct session *s, bool again)
{
	ptrace_hold__release(&s->hold);
	if (s->opts.inside && !again)
		inside_memory__let_go(s->opts.inside);
	if (again || !s->hastened)
		return;
	setpriority(PRIO_PROCESS, 0, s->nice);
	s->hastened = false;
}

/* Until session__let_go(). */
static void hold_command(struct session *s)
{
	int err = s->opts.started && !s->opts.inside
			  ? ptrace_hold__take(&s->hold, proc__pid(s->target.proc))
			  : 0;

	if (err)
		log_debug("PID %d cannot be held: %s", (int)proc__pid(s->target.proc),
			  strerror(-err));
}

/* With its interpreter's programs shared, and those attached already to PyTorch as others have it,
 * nothing is missing. */
static bool is_early(struct session *s)
{
	static const enum hook_id all[] = { HOOK_CODE_GONE, HOOK_CPU_DELETE, HOOK_CPU_NEW,
					    HOOK_REPORT };
	struct maps maps;
	bool ret = s->opts.group && !proc__maps(s->target.proc, &maps);
	size_t i;

	if (!ret)
		return false;
	ret = !arrival__torch(&maps);
	maps__free(&maps);
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ret = ret && probes__attached(s->probes, all[i]);
	return ret;
}

/* All that can be done before PyTorch is there. Takes the maps. 0 or negative with *f. */
static int prepare(struct session *s, struct maps *maps, uint64_t now, struct failure *f)
{
	int err;

	target__look_for_python(&s->target, maps);
	/* It may be on its way: understood as soon as a thread of its runs. */
	s->wait.next = s->target.has_python && !s->target.has_slot ? now + RETRY : UINT64_MAX;
	if (!s->target.has_slot)
		return 0;
	if (!session__take_number(s)) {
		s->wait.next = now + NUMBER;
		return 0;
	}
	/* the kernel takes half a second to verify the programs, and `import torch` may come sooner
	 */
	hold_command(s);
	err = session__load(s, f);
	if (err)
		return err;
	target__attach_optional(&s->target, s->probes, HOOK_CODE_GONE);
	s->joined_early = is_early(s);
	log_debug("PID %d: Python is understood, the programs are loaded",
		  (int)proc__pid(s->target.proc));
	return 0;
}

int session__await(struct session *s, struct failure *f)
{
	uint64_t now = clock__monotonic(), pages;
	struct maps maps;
	bool grew, untouched, whole, arrived;
	int err;

	if (s->target.torch.found && !s->target.hooks_err)
		return 0;
	err = follow_exec(s, now, f);
	if (err)
		return err;
	if (!s->wait.since) {
		s->wait.since = now;
		if (s->opts.started)
			hasten(s);
	}
	if (!s->opts.started && !s->opts.late && !s->target.has_python &&
	    now - s->wait.since > NO_PYTHON)
		return target__look(&s->target, f) ?: s->target.torch.found ? 0 : -EAGAIN;
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
	err = proc__maps(s->target.proc, &maps);
	if (err == -ESRCH)
		return -EAGAIN;
	if (!err && !arrival__torch(&maps)) {
		if (!s->probes)
			return prepare(s, &maps, now, f) ?: -EAGAIN;
		maps__free(&maps);
		return -EAGAIN;
	}
	if (!err) {
		/* The libraries are mapped one by one, and then relocated, which does not change
		 * the address space's size. */
		untouched = (s->opts.started || s->opts.late) &&
			    arrival__untouched(s->target.proc, &maps);
		whole = !grew || !untouched || arrived; /* or it waits, with all of them mapped */
		if (untouched && whole)
			hold_command(s);
		maps__free(&maps);
		if (!whole) {
			s->wait.next = now;
			return -EAGAIN;
		}
	}
	err = target__look(&s->target, f); /* has the words where the maps cannot be read */
	return err ?: s->target.torch.found ? 0 : -EAGAIN;
}

int session__poll_ms(const struct session *s)
{
	bool quiet = clock__monotonic() - s->wait.changed > QUIET;

	if (quiet && s->opts.late && !s->target.has_python)
		return PAUSE_OTHER;
	return quiet ? PAUSE_QUIET : PAUSE;
}

bool session__before_torch(const struct session *s)
{
	struct maps maps;
	bool ret;

	if (proc__maps(s->target.proc, &maps))
		return false;
	ret = arrival__untouched(s->target.proc, &maps);
	maps__free(&maps);
	return ret;
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
