/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From the first look at a process to its end: waits for PyTorch, attaches, drains, and handles
 * execs. A picked process that will hardly import PyTorch gives its number back.
 */
#include "capture/follow/tracees_internal.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "capture/kernel.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/session.h"
#include "record/stream.h"

#define NO_PYTHON                                                                                  \
	1000000000ULL /* ns: a picked process without Python by then gives its number back */
#define NO_TORCH 10000000000ULL /* ns: the same for Python without PyTorch, if numbers are short */
#define NUMBER_AGAIN 100000000ULL /* ns between two looks for a number */
#define NUMBERS_SHORT (MT_MEMBERS * 3 / 4)
#define NICE_DRAINING (-20)

/* With many threads of the target for each CPU, an ordinary thread gets too little time for the few
 * percent of a core that draining takes. Optional: needs CAP_SYS_NICE. What we start later gets the
 * usual priority. */
static void hurry(struct tracees *r)
{
	struct sched_param param = { 0 };

	if (r->hurries)
		return;
	r->nice = getpriority(PRIO_PROCESS, 0);
	r->hurries = !sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param) &&
		     !setpriority(PRIO_PROCESS, 0, NICE_DRAINING);
	if (!r->hurries)
		log_debug("the priority is as before: %s", strerror(errno));
}

void tracees__limit_caps(struct tracees *r)
{
	bool perf = !r->opts.session.inside && probes__kernel_perf();
	int err;

	hurry(r);
	err = caps__limit(r->opts.caps | (perf ? CAPS_PERF : 0));
	if (err)
		log_debug("cannot give up capabilities: %s", strerror(-err));
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
	p->since = clock__kernel();
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
		tracees__fail(p->all, f->status);
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
	const uint64_t before = clock__kernel();
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
	if (!tracee__begin(p))
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
		tracee__find_owner(p);
	if (!p->ended && !tracees__keeps(p->all, p->pid)) {
		tracee__remove(p, "exec");
		return false;
	}
	if (p->state == WAITING) /* the session notices an exec itself */
		p->since = clock__kernel();
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
