/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A session for a forked process: what it has of its parent's session. */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <string.h>

#include "base/exit.h"
#include "capture/decode/autograd.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/modules.h"
#include "capture/decode/symbolizer.h"
#include "capture/session/stages.h"
#include "inspect/elf.h"
#include "inspect/proc.h"

/* Opens a forked process. An ending one has a directory in /proc, but no command line: then only
 * its PID is known. */
static struct proc *open_proc(pid_t pid, const struct proc *like)
{
	struct proc *p = proc__open(pid);
	size_t len;

	if (p && *proc__cmdline(p, &len) && len)
		return p;
	proc__free(p);
	return proc__ended(pid, like);
}

/* Copies the parent's target: a forked process has the same at the same addresses. */
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

static int take_queue(struct session *s, struct queue *early)
{
	s->queue = *early;
	*early = (struct queue){ 0 };
	probes__feed(s->probes, s->opts.number, session__enqueue, s);
	return session__catch_up(s);
}

/* Sets the facts. Facts that an ended process no longer gives are its parent's. */
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
	const char *value;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]) && !err; i++) {
		value = facts__get(s->facts, keys[i]) ? NULL : facts__get(parent->facts, keys[i]);
		err = value ? facts__set(s->facts, keys[i], value) : 0;
	}
	return err ? err
		   : facts__set(s->facts, "attached_at",
				session__misses_forks(parent) ? "live" : "fork");
}

/* Hooks that the parent has by itself: see probes__attach(). In the order of attaching. */
static int attach_own(const struct session *s, pid_t parent)
{
	static const enum hook_id ids[] = { HOOK_CODE_GONE,  HOOK_SCOPE_END, HOOK_MODULE_CALL,
					    HOOK_CPU_DELETE, HOOK_CPU_NEW,   HOOK_REPORT,
					    HOOK_OOM };
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

static int begin(struct session *s, struct session *parent, uint64_t time)
{
	int err = take_facts(s, parent);

	s->decoder->start = time;
	if (!err)
		err = session__open_attach_stage(s);
	if (!err)
		err = cuda_calls__fork(s->decoder, parent->decoder->calls);
	if (!err && !s->opts.no_autograd)
		err = autograd__attach(s->decoder);
	if (!err && !s->opts.no_modules && s->target.has_slot)
		err = modules__open(s->decoder);
	s->attached = true;
	if (!err)
		err = attach_own(s, proc__pid(parent->target.proc));
	if (!err)
		err = session__begin_host(s, true);
	if (!err)
		err = attach_stage__begin_forked(s->attach, &parent->target);
	return err ? err : session__open_census_stage(s);
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
	s = session__make(&opts, f);
	if (!s)
		return NULL;
	err = take_target(s, parent, pid);
	if (!err) {
		s->layout = parent->layout;
		s->have_codes = parent->have_codes;
		s->probes = probes__share_set(parent->probes);
		err = session__open_decoder(s);
	}
	if (!err) {
		s->cuda_only = parent->cuda_only;
		err = session__open_native_stacks(s);
	}
	if (!err) {
		s->forked = true;
		s->decoder->forked = !session__misses_forks(parent);
		err = symbolizer__inherit(s->decoder->names, parent->decoder->names, diverged);
	}
	if (!err)
		err = take_queue(s, early);
	if (!err)
		err = begin(s, parent, time);
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
