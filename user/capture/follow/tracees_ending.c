/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How traced processes end, and the memory that they have at that moment. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "capture/ending/oom_log.h"
#include "capture/ending/scene.h"
#include "capture/follow/tracees_internal.h"
#include "capture/hooks.h"
#include "capture/session.h"

static void on_signal(void *ctx, const struct mt_rec_ending *r)
{
	struct tracee *p = tracees__find(ctx, (pid_t)r->pid);

	if (p && p->scene)
		scene__read(p->scene, r);
}

void tracees__read_endings(struct tracees *r)
{
	if (r->opts.endings)
		ending_hooks__consume(r->opts.endings, on_signal, r);
}

void tracee__follow_ending(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;
	int err;

	/* A group's programs know the process already. */
	err = !o->endings || o->session.group ? 0 : ending_hooks__follow(o->endings, p->pid);
	if (err)
		log_warn("PID %d: the recording will not say how it ended: %s", (int)p->pid,
			 strerror(-err));
}

void tracee__watch_ending(struct tracee *p)
{
	if (p->all->opts.endings)
		p->scene = scene__new(p->pid);
}

void tracee__set_ending(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;
	struct oom_report report;
	struct mt_rec_ending r;
	bool known;
	int err;

	if (!o->endings)
		return;
	tracees__read_endings(p->all);
	known = ending_hooks__take(o->endings, p->pid, p->since, &r);
	/* The memory of others matters unless the process ended well. */
	if (p->scene && (!known || r.status))
		scene__read(p->scene, known ? &r : NULL);
	if (!p->scene)
		return;
	if (known && r.flags & MT_ENDING_VICTIM &&
	    ending_hooks__oom_report(o->endings, p->pid, &report))
		scene__take_report(p->scene, &report);
	err = scene__set_facts(p->scene, session__facts(p->session), known ? &r : NULL,
			       session__start(p->session));
	if (err)
		log_debug("PID %d: facts about its end: %s", (int)p->pid, strerror(-err));
}
