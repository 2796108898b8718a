/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The states of a process. A process that a traced one forks is traced from its first instruction
 * on. Its records are queued until the first allocation, when it gets a session. Other processes
 * get a session that waits for PyTorch.
 */
#include "capture/follow/tracees_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/exit.h"
#include "base/failure.h"
#include "base/log.h"
#include "capture/decode/queue.h"
#include "capture/ending/scene.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"

#define NO_PYTHON                                                                                  \
	1000000000ULL /* ns: a picked process without Python by then gives its number back */
#define NO_TORCH 10000000000ULL /* ns: the same for Python without PyTorch, if numbers are short */
#define NUMBER_AGAIN 100000000ULL /* ns between two looks for a number */
#define NUMBERS_SHORT (MT_MEMBERS * 3 / 4)

static struct proc_group *group_of(const struct tracees *r)
{
	return r->opts.session.group;
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

/* Keeps the exit code of the first failure. */
static void fail(struct tracees *r, int status)
{
	if (!r->status)
		r->status = status;
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
		fail(p->all, p->all->opts.output->end(p->output, reason, err));
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
	tracees_find__gone(p);
	tracees_places__forget(p);
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

/* Begins to trace an attached or forked process. False: its output failed. */
static bool begin(struct tracee *p)
{
	struct tracees *r = p->all;
	int status;

	if (p->is_child)
		session__set_parent(p->session, p->parent);
	session__set_process(p->session);
	tracee__set_ancestors(p);
	tracees_find__traced(p);
	status = p->output ? EXIT_OK : tracee__begin_output(p);
	if (!status && r->opts.output->attached)
		status = r->opts.output->attached(p->output);
	if (status) {
		fail(r, status);
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
		r->begin = tracees__clock();
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
	if (begin(p))
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_INT("parent", p->parent),
				     LOG_BOOL("forked", true)),
			  "following PID %d, forked by PID %d%s", (int)p->pid, (int)p->parent,
			  p->lacks_probes ? "; PyTorch may have allocated before" : "");
	p->lacks_probes = false;
}

int tracee__await(struct tracee *p, struct failure *f)
{
	struct session_opts opts = p->all->opts.session;
	bool first = p == p->all->only && !p->times;

	opts.number = p->number;
	opts.started = opts.started && first;
	/* A launcher may never have PyTorch itself. */
	opts.late = !opts.started && (opts.group || !first);
	tracee__follow_ending(p);
	p->since = tracees__clock();
	p->session = session__new(p->pid, &opts, f);
	p->state = p->session ? WAITING : WATCHED;
	p->next = p->session ? 0 : UINT64_MAX;
	return p->session ? 0 : -ESRCH;
}

/* The same for a process that is no reason to fail. */
static void await(struct tracee *p)
{
	struct failure f;

	if (tracee__await(p, &f))
		log_debug("%s", f.text);
}

/* True if a picked process will hardly import PyTorch: its number is given back. */
static bool is_hopeless(const struct tracee *p, uint64_t now)
{
	const struct tracees *r = p->all;
	size_t i, n = 0;

	if (r->opts.only || r->opts.children || !p->picked || now <= p->since)
		return false;
	if (!session__has_python(p->session))
		return now - p->since > NO_PYTHON;
	for (i = 1; i < MT_MEMBERS; i++)
		n += r->numbered[i] != NULL;
	return n >= NUMBERS_SHORT && !pick__only_pids(r->opts.pick) && now - p->since > NO_TORCH;
}

static void give_up(struct tracee *p)
{
	if (session__has_python(p->session))
		log_debug("PID %d has no PyTorch so far: checking it from time to time",
			  (int)p->pid);
	else if (pick__only_pids(p->all->opts.pick))
		log_warn("PID %d has no Python interpreter, PyTorch or CUDA in it: not traced "
			 "(--children follows what it starts)",
			 (int)p->pid);
	tracee__remove(p, "");
}

static void say_only_traced(const struct tracee *p, bool start)
{
	const char *problem = session__python_problem(p->session);

	if (session__cuda_only(p->session))
		log_info("PID %d uses CUDA without PyTorch: recording its calls into CUDA",
			 (int)p->pid);
	if (problem)
		log_warn("no Python lines: %s", problem);
	if (p->all->opts.session.started)
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_BOOL("from_start", start)),
			  "recording PID %d%s", (int)p->pid,
			  start				   ? " from PyTorch's first allocation on"
			  : session__cuda_only(p->session) ? "; it may have taken memory before"
							   : "; PyTorch may have allocated before");
	else
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_BOOL("from_start", false)),
			  "attached to PID %d; until %s, Ctrl-C stops earlier", (int)p->pid,
			  p->all->opts.until);
}

static void say_traced(const struct tracee *p)
{
	const char *at = facts__get(session__facts(p->session), "attached_at");
	bool start = at && !strcmp(at, "start");
	const char *how = start ? ", from PyTorch's first allocation on"
				: "; PyTorch may have allocated before";
	struct pick_process q;
	char title[96];

	if (p == p->all->only && p->times == 1) {
		say_only_traced(p, start);
		return;
	}
	if (p->is_child || pick_process__read(p->pid, &q)) {
		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", p->pid), LOG_INT("parent", p->parent),
				     LOG_BOOL("from_start", start)),
			  "following PID %d, started by PID %d%s", (int)p->pid, (int)p->parent,
			  how);
		return;
	}
	pick_process__title(&q, title, sizeof(title));
	log_event(LOG_INFO, "attached",
		  LOG_FIELDS(LOG_INT("target", p->pid), LOG_STRING("title", title),
			     LOG_BOOL("from_start", start)),
		  "attached to PID %d (%s)%s", (int)p->pid, title, how);
	pick_process__free(&q);
}

static void cannot_attach(struct tracee *p, const struct failure *f)
{
	if (p == p->all->only) {
		log_err("%s", f->text);
		fail(p->all, f->status);
	} else {
		log__print(p->picked ? LOG_WARN : LOG_DEBUG, "PID %d is not traced: %s",
			   (int)p->pid, f->text);
	}
	tracee__finish(p, "", 0);
	p->next = UINT64_MAX;
}

/* Without a group the process's own programs wake the loop. */
static void add_wake(const struct tracee *p)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!group_of(p->all))
		epoll_ctl(p->all->wake, EPOLL_CTL_ADD, session__wake_fd(p->session), &ev);
}

static void try_to_attach(struct tracee *p, uint64_t now)
{
	const uint64_t before = tracees__clock();
	struct failure f;
	int err = session__attach(p->session, &f);

	tracees__numbered(p);
	if (err == -EAGAIN) {
		p->next = now + session__poll_ms(p->session) * 1000000ULL;
		if (session__lacks_number(p->session)) {
			p->next = now + NUMBER_AGAIN;
			tracees_places__make_number(p);
		}
		return;
	}
	tracees__know_sets(p->all);
	if (err) {
		cannot_attach(p, &f);
		return;
	}
	p->since = before;
	add_wake(p);
	if (!begin(p))
		return;
	if (p == p->all->only)
		tracees__limit_caps(p->all);
	say_traced(p);
}

bool tracee__after_exec(struct tracee *p)
{
	p->execed = false;
	if (p->state == FORKED && p->has_events)
		tracee__open_forked(p);
	/* A session that was attached after the exec has the new program already. */
	if ((p->state == TRACED && p->exec >= p->since) || p->state == FORKED)
		tracee__finish(p, "exec", 0);
	if (!p->ended)
		tracees_find__owner(p);
	if (!p->ended && !tracees_find__keeps(p->all, p->pid)) {
		tracee__remove(p, "exec");
		return false;
	}
	if (p->state == WAITING) /* the session notices an exec itself */
		p->since = tracees__clock();
	else if (p->state != TRACED && !p->ended)
		await(p);
	return true;
}

void tracee__pump(struct tracee *p, uint64_t now)
{
	const struct tracees_opts *o = &p->all->opts;
	const char *reason = NULL;
	int err;

	if (p->execed && !tracee__after_exec(p))
		return;
	if (p->state == FORKED &&
	    (p->has_events || (p->lacks_probes && !p->ended && now >= p->next)))
		tracee__open_forked(p);
	if (p->ended) {
		tracee__remove(p, "target exited");
		return;
	}
	if (p->state == WATCHED && now >= p->next)
		await(p);
	if (p->state == WAITING && now >= p->next)
		try_to_attach(p, now);
	if (p->state == WAITING && is_hopeless(p, now)) {
		give_up(p);
		return;
	}
	if (p->state != TRACED)
		return;
	err = session__pump(p->session, p->sink);
	if (!err && o->session.steps && session__steps(p->session) >= o->session.steps)
		reason = "steps";
	else if (!err && o->output->full)
		reason = o->output->full(p->output);
	if (!reason && !err)
		return;
	tracee__finish(p, reason ? reason : "signal", err);
	p->state = OVER;
}
