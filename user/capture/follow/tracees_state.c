/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The states of a process. A process that a traced one forks is traced from its first instruction
 * on. Its records are queued until the first allocation, when it gets a session. Other processes
 * get a session that waits for PyTorch.
 */
#include "capture/follow/tracees_internal.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "capture/decode/queue.h"
#include "capture/ending/oom_log.h"
#include "capture/ending/scene.h"
#include "capture/hooks.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "record/stream.h"

/*
 * The processes that started a recorded one, so that a report can show which process of a service
 * started which. Most of them have no PyTorch and no recording. They end at any time, so each
 * recording has the names of its own ancestors, as of its attach.
 */

#define ANCESTORS_MAX 8
#define TITLE 256

static bool same_program(pid_t a, pid_t b)
{
	char path[48], exe[2][PATH_MAX];
	ssize_t n[2];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/exe", (int)(i ? b : a));
		n[i] = readlink(path, exe[i], sizeof(exe[i]));
	}
	return n[0] > 0 && n[0] == n[1] && !memcmp(exe[0], exe[1], (size_t)n[0]);
}

/* True if the parent belongs to the program: it is in the capture, or has the same interpreter and
 * session. Shells, terminals and supervisors do not. */
static bool belongs(const struct tracees *r, const struct pick_process *child,
		    const struct pick_process *parent)
{
	return tracees__find(r, parent->pid) ||
	       (getsid(parent->pid) == getsid(child->pid) && getsid(child->pid) > 0 &&
		same_program(parent->pid, child->pid));
}

static void put(struct json *j, const struct pick_process *q)
{
	char title[TITLE];

	json__open_object(j, NULL);
	json__uint(j, "pid", (uint64_t)q->pid);
	json__uint(j, "started", q->started);
	json__string(j, "title", pick_process__title(q, title, sizeof(title)));
	json__close_object(j);
}

/* Writes the ancestors, nearest first. Returns their number. */
static size_t put_all(struct json *j, const struct tracee *p)
{
	struct pick_process child, parent;
	size_t n = 0;

	if (pick_process__read(p->pid, &child))
		return 0;
	/* A process whose parent has ended has another one now. */
	if (p->is_child && p->parent > 0)
		child.parent = p->parent;
	while (n < ANCESTORS_MAX && child.parent > 1 &&
	       !pick_process__read(child.parent, &parent)) {
		/* A younger process has the number of the parent, which has ended. */
		if (parent.started > child.started || !belongs(p->all, &child, &parent)) {
			pick_process__free(&parent);
			break;
		}
		put(j, &parent);
		n++;
		pick_process__free(&child);
		child = parent;
	}
	pick_process__free(&child);
	return n;
}

void tracee__set_ancestors(const struct tracee *p)
{
	char *text = NULL;
	size_t size, n = 0;
	FILE *out = open_memstream(&text, &size);
	struct json *j = out ? json__new(out, false) : NULL;

	if (j) {
		json__open_array(j, NULL);
		n = put_all(j, p);
		json__close_array(j);
	}
	json__free(j);
	if (out && !fclose(out) && n) {
		text[strcspn(text, "\n")] = '\0';
		facts__set(session__facts(p->session), "ancestors", text);
	}
	free(text);
}

/* How traced processes end, and the memory that they have at that moment. */

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

/* Begins to watch the memory of a process that is traced from now on. */
static void tracee__watch_ending(struct tracee *p)
{
	if (p->all->opts.endings)
		p->scene = scene__new(p->pid);
}

/* Sets the facts about the end of a process that has ended. */
static void tracee__set_ending(struct tracee *p)
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

int tracee__on_early(void *tracee, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;
	struct tracee *p = tracee;

	p->has_events = p->has_events || h->type != MT_REC_CODE_GONE;
	return queue__push_early(&p->early, rec, len, QUEUE_EARLY);
}

static void drop_early(struct tracee *p)
{
	if (p->early_from) {
		probes__feed(p->early_from, p->number, NULL, NULL);
		probes__reset_counters(p->early_from, p->number);
		probes__free(p->early_from);
	}
	p->early_from = NULL;
	p->forked_by = NULL;
	free(p->early.buf);
	p->early = (struct queue){ 0 };
	p->has_events = false;
}

/* Drops the queues that refer to a session before it is freed. Counts processes that lose records
 * by this. */
static void orphan_forked_by(struct tracees *r, const struct session *s)
{
	size_t i;

	for (i = 0; i < r->top && s; i++) {
		if (!r->at[i] || r->at[i]->forked_by != s)
			continue;
		r->unrecorded += r->at[i]->has_events;
		drop_early(r->at[i]);
		r->at[i]->state = WATCHED;
	}
}

static void open_all_forked_by(struct tracees *r, const struct session *s)
{
	size_t i;

	for (i = 0; i < r->top; i++) {
		if (!r->at[i] || r->at[i]->state != FORKED || r->at[i]->forked_by != s)
			continue;
		tracee__open_forked(r->at[i]);
		/* That drains the ring, and may add a process at any index. */
		i = (size_t)-1;
	}
}

static void say_stopped(const struct tracee *p, const char *reason, int err)
{
	const struct session *s = p->session;

	log_event(LOG_DEBUG, "stopped",
		  LOG_FIELDS(LOG_INT("target", p->pid), LOG_STRING("reason", reason),
			     LOG_UINT("events", session__events(s)),
			     LOG_UINT("lost", session__lost(s)),
			     LOG_UINT("steps", session__steps(s)), LOG_INT("error", err)),
		  "PID %d: stopped: %s", (int)p->pid, err ? strerror(-err) : reason);
	/* `run` logs the end of its command. */
	if (err || p != p->all->only || p->all->opts.session.started)
		return;
	if (!strcmp(reason, "target exited"))
		log_event(LOG_INFO, "ended", LOG_FIELDS(LOG_INT("target", p->pid)),
			  "PID %d has ended", (int)p->pid);
	else if (!strcmp(reason, "exec") && !group_of(p->all))
		log_event(LOG_INFO, "exec", LOG_FIELDS(LOG_INT("target", p->pid)),
			  "PID %d runs another program now (exec): attach again to trace that",
			  (int)p->pid);
}

void tracee__finish(struct tracee *p, const char *reason, int err)
{
	int ret;

	if (p->state == TRACED) {
		open_all_forked_by(p->all, p->session);
		if (!strcmp(reason, "target exited"))
			tracee__set_ending(p);
		ret = session__finish(p->session, p->sink, reason);
		/* The last drain may have brought more of them. */
		open_all_forked_by(p->all, p->session);
		err = err ? err : ret;
		say_stopped(p, reason, err);
		p->all->traced--;
	}
	if (p->output)
		tracees__fail(p->all, p->all->opts.output->end(p->output, reason, err));
	p->state = WATCHED;
	orphan_forked_by(p->all, p->session);
	session__free(p->session);
	scene__free(p->scene);
	p->session = NULL;
	p->scene = NULL;
	p->output = NULL;
	drop_early(p);
	tracees__retire(p);
}

void tracee__remove(struct tracee *p, const char *reason)
{
	struct tracees *r = p->all;

	tracee__finish(p, reason, 0);
	tracee__tell_gone(p);
	tracees__disinherit(p);
	if (group_of(r) && !p->told_end) /* otherwise the PID may belong to another process */
		proc_group__forget(group_of(r), p->pid, p->number);
	r->at[p->slot] = NULL;
	while (r->top && !r->at[r->top - 1])
		r->top--;
	if (r->only == p)
		r->only = NULL;
	owner__drop(p->owner);
	free(p);
}

int tracee__begin_output(struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;

	p->output = o->output->begin(o->ctx, p->session, p->pid, p->times++, &p->sink);
	return p->output ? EXIT_OK : EXIT_FAILED;
}

bool tracee__begin(struct tracee *p)
{
	struct tracees *r = p->all;
	int status;

	if (p->is_child)
		session__set_parent(p->session, p->parent);
	session__set_process(p->session);
	tracee__set_ancestors(p);
	tracee__remember(p);
	status = p->output ? EXIT_OK : tracee__begin_output(p);
	if (!status && r->opts.output->attached)
		status = r->opts.output->attached(p->output);
	if (status) {
		tracees__fail(r, status);
		tracee__finish(p, "signal", 0);
		p->state = OVER;
		return false;
	}
	p->state = TRACED;
	tracee__watch_ending(p);
	if (pick__open_ended(r->opts.pick)) {
		probes__free(r->kept);
		r->kept = probes__share_set(session__probes(p->session));
	}
	r->traced++;
	r->ever++;
	if (!r->begin)
		r->begin = clock__kernel();
	return true;
}

void tracee__open_forked(struct tracee *p)
{
	struct session *by = p->forked_by;
	struct failure f;

	p->session = session__new_forked(by, p->pid, p->number, p->forked, p->diverged, &p->early,
					 &f);
	if (!p->session) {
		log_warn("%s", f.text);
		tracee__finish(p, "", 0);
		return;
	}
	probes__free(p->early_from);
	p->early_from = NULL;
	p->forked_by = NULL;
	if (tracee__begin(p))
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_INT("parent", p->parent),
				     LOG_BOOL("forked", true)),
			  "following PID %d, forked by PID %d%s", (int)p->pid, (int)p->parent,
			  p->lacks_probes ? "; PyTorch may have allocated before" : "");
	p->lacks_probes = false;
}
