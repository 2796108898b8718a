/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the kernel side tells of processes (capture/kin.h) is noted when it comes, which may be in the middle of a drain;
 * what follows from it is done in relatives__pump() and relatives__hurry(). A process that was forked by one that is traced
 * is traced from its first instruction on: its records wait until there is one that says that it allocates, and then it gets a
 * session. Others get one that waits for PyTorch.
 */
#include "relatives.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "capture/attach.h"
#include "capture/kin.h"
#include "capture/probes.h"
#include "capture/queue.h"
#include "lib/exit.h"
#include "lib/log.h"
#include "target/family.h"
#include "target/proc.h"

#define MAY_EXEC 5000000ULL	 /* ns: a process that was forked by one without PyTorch mostly does so at once */
#define LOOK_EVERY 1000000000ULL /* ns: whether a process has ended and nobody has told us */
#define FAMILY_MAX 256
#define SCANS 8

enum state {
	FORKED,	 /* by one that is traced, and has not done anything of interest */
	WATCHED, /* has nothing to be traced */
	WAITING, /* for PyTorch */
	TRACED,
	OVER, /* its bounds were met */
};

struct relative {
	struct relatives *all;
	pid_t pid, parent;
	uint32_t number;
	enum state state;
	unsigned int times; /* it was traced */
	struct session *session;
	struct session *forked_by;
	void *output;
	struct sink *sink;
	uint64_t forked;   /* CLOCK_MONOTONIC, ns */
	uint64_t diverged; /* from the process of forked_by, the same */
	uint64_t next;	 /* when to look at it */
	struct queue early;
	struct probes *early_from;
	bool has_events; /* in early, or some that found no room there */
	bool told_exec, told_end; /* by the kernel side */
	bool execed, ended;	  /* and all that was recorded before has come in */
};

struct relatives {
	struct relatives_opts opts;
	pid_t first_pid;
	uint32_t first_number;
	struct session *first;
	struct relative *at[MT_MEMBERS]; /* by number */
	int wake;
	size_t traced, ever;
	uint64_t begin; /* CLOCK_MONOTONIC, ns: of the first attach */
	uint64_t next_look, missed_said;
	bool scanned;
};

static uint64_t monotonic(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static struct kin *kin_of(const struct relatives *r)
{
	return r->opts.session.kin;
}

/* ---- what is told of ---- */

static int on_early(void *ctx, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;
	struct relative *p = ctx;

	p->has_events = p->has_events || h->type != MT_REC_CODE_GONE;
	return queue__push(&p->early, rec, len);
}

static struct session *session_of(const struct relatives *r, uint32_t number)
{
	if (number == r->first_number && r->first)
		return r->first;
	return number < MT_MEMBERS && r->at[number] && r->at[number]->state == TRACED ? r->at[number]->session : NULL;
}

static struct probes *set_of(const struct relatives *r, uint32_t group)
{
	const struct probes_sets *sets = r->opts.session.sets;
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (probes__group(sets->set[i]) == group)
			return sets->set[i];
	}
	return NULL;
}

static struct relative *add(struct relatives *r, pid_t pid, pid_t parent, uint32_t number)
{
	struct relative *p = calloc(1, sizeof(*p));

	if (!p) {
		kin__forget(kin_of(r), pid, number);
		kin__free_number(kin_of(r), number);
		return NULL;
	}
	p->all = r;
	p->pid = pid;
	p->parent = parent;
	p->number = number;
	p->state = WATCHED;
	r->at[number] = p;
	return p;
}

/* Forked by one that was forked and has not shown itself: by whoever that one was forked by. */
static struct session *nearest(const struct relatives *r, uint32_t number)
{
	struct session *s = session_of(r, number);

	return s || number >= MT_MEMBERS || !r->at[number] ? s : r->at[number]->forked_by;
}

static int on_fork(struct relatives *r, const struct mt_rec_kin *k)
{
	struct relative *p = add(r, k->pid, k->parent, k->number);

	if (!p)
		return 0;
	p->forked = p->diverged = k->time;
	if (!session_of(r, k->from) && r->at[k->from % MT_MEMBERS])
		p->diverged = r->at[k->from % MT_MEMBERS]->diverged;
	p->next = k->time + MAY_EXEC;
	p->early_from = k->group ? set_of(r, k->group) : NULL;
	p->forked_by = nearest(r, k->from);
	if (!p->early_from || !p->forked_by || session__probes(p->forked_by) != p->early_from) {
		p->early_from = NULL;
		p->forked_by = NULL;
		return 0;
	}
	p->state = FORKED;
	p->early_from = probes__share_set(p->early_from);
	probes__feed(p->early_from, p->number, on_early, p);
	return 0;
}

static int on_kin(void *ctx, const struct mt_rec_kin *k)
{
	struct relatives *r = ctx;
	struct relative *p = k->number < MT_MEMBERS ? r->at[k->number] : NULL;

	if (k->what == MT_KIN_FORK && !p && k->number && k->number < MT_MEMBERS)
		return on_fork(r, k);
	if (!p || p->pid != (pid_t)k->pid)
		return 0;
	p->told_exec = p->told_exec || k->what == MT_KIN_EXEC;
	p->told_end = p->told_end || k->what == MT_KIN_END;
	return 0;
}

static void listen_to_kin(void *ctx)
{
	struct relatives *r = ctx;

	kin__consume(kin_of(r), on_kin, r);
}

/* Sets of programs come with sessions. */
static void know_sets(struct relatives *r)
{
	struct probes_sets *sets = r->opts.session.sets;
	struct epoll_event ev = { .events = EPOLLIN };
	size_t i;

	for (i = 0; i < sets->n; i++) {
		probes__on_unknown(sets->set[i], listen_to_kin, r);
		epoll_ctl(r->wake, EPOLL_CTL_ADD, probes__wake_fd(sets->set[i]), &ev);
	}
}

/* What has happened to processes counts when all that they did before has come in. */
static void take_in(struct relatives *r)
{
	const struct probes_sets *sets = r->opts.session.sets;
	bool exec[MT_MEMBERS] = { 0 }, end[MT_MEMBERS] = { 0 };
	size_t i;

	listen_to_kin(r);
	for (i = 1; i < MT_MEMBERS; i++) {
		exec[i] = r->at[i] && r->at[i]->told_exec;
		end[i] = r->at[i] && r->at[i]->told_end;
	}
	for (i = 0; i < sets->n; i++) {
		if (probes__consume(sets->set[i], NULL, NULL) < 0)
			return; /* there is more than can be taken now: the next time */
	}
	for (i = 1; i < MT_MEMBERS; i++) {
		if (exec[i])
			r->at[i]->told_exec = false;
		if (r->at[i]) {
			r->at[i]->execed |= exec[i];
			r->at[i]->ended |= end[i];
		}
	}
}

/* ---- a process's states ---- */

static void drop_early(struct relative *p)
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

/* Those that it has forked and that are not looked at yet begin with what it knows. */
static void open_all_forked_by(struct relatives *r, const struct session *s);

static void finish(struct relative *p, const char *reason, int err)
{
	int ret;

	if (p->state == TRACED) {
		open_all_forked_by(p->all, p->session);
		ret = session__finish(p->session, &p->sink, 1, reason);
		p->all->opts.output->end(p->output, reason, err ? err : ret);
		p->all->traced--;
	}
	session__free(p->session);
	p->session = NULL;
	p->output = NULL;
	drop_early(p);
	p->state = WATCHED;
}

static void remove_relative(struct relative *p, const char *reason)
{
	struct relatives *r = p->all;

	finish(p, reason, 0);
	kin__forget(kin_of(r), p->pid, p->number);
	r->at[p->number] = NULL;
	kin__free_number(kin_of(r), p->number);
	free(p);
}

static void is_traced(struct relative *p)
{
	struct relatives *r = p->all;

	session__set_parent(p->session, p->parent);
	p->output = r->opts.output->begin(r->opts.ctx, p->session, p->pid, ++p->times, &p->sink);
	if (!p->output) {
		log_err("out of memory: PID %d is not followed", (int)p->pid);
		finish(p, "signal", -ENOMEM);
		p->state = OVER;
		return;
	}
	p->state = TRACED;
	r->traced++;
	r->ever++;
	if (!r->begin)
		r->begin = monotonic();
}

static void open_forked(struct relative *p)
{
	struct session *by = p->forked_by;
	struct failure f;

	p->session = session__new_forked(by, p->pid, p->number, p->forked, p->diverged, &p->early, &f);
	if (p->session) {
		probes__free(p->early_from);
		p->early_from = NULL;
		p->forked_by = NULL;
		log_info("following PID %d, forked by PID %d", (int)p->pid, (int)p->parent);
		is_traced(p);
		return;
	}
	log_warn("%s", f.text);
	kin__set_group(kin_of(p->all), p->pid, p->number, 0);
	finish(p, "", 0);
}

static void open_all_forked_by(struct relatives *r, const struct session *s)
{
	size_t i;

	for (i = 1; i < MT_MEMBERS; i++) {
		if (r->at[i] && r->at[i]->state == FORKED && r->at[i]->forked_by == s)
			open_forked(r->at[i]);
	}
}

/* From now on it is looked at whether PyTorch comes. */
static void await(struct relative *p)
{
	struct session_opts opts = p->all->opts.session;
	struct failure f;

	opts.number = p->number;
	opts.started = false;
	opts.late = true;
	p->session = session__new(p->pid, &opts, &f);
	p->next = 0;
	p->state = p->session ? WAITING : WATCHED;
	if (!p->session) {
		p->next = UINT64_MAX;
		log_debug("%s", f.text);
	}
}

static void try_to_attach(struct relative *p, uint64_t now)
{
	struct failure f;
	const char *at;
	int err = session__attach(p->session, &f);

	if (err == -EAGAIN) {
		p->next = now + session__patience(p->session) * 1000000ULL;
		return;
	}
	know_sets(p->all);
	if (err) {
		log_debug("PID %d is not traced: %s", (int)p->pid, f.text);
		finish(p, "", 0);
		p->next = UINT64_MAX;
		return;
	}
	at = facts__get(session__facts(p->session), "attached_at");
	log_info("following PID %d, started by PID %d%s", (int)p->pid, (int)p->parent,
		 at && !strcmp(at, "start") ? ", from PyTorch's first allocation on" : "; PyTorch may have allocated before");
	is_traced(p);
}

static void after_exec(struct relative *p)
{
	p->execed = false;
	if (p->state == FORKED && p->has_events)
		open_forked(p);
	if (p->state == TRACED || p->state == FORKED)
		finish(p, "exec", 0);
	if (p->state == WAITING || p->ended)
		return; /* it notices by itself */
	await(p);
}

static void pump_one(struct relative *p, uint64_t now)
{
	const char *reason = NULL;
	int err;

	if (p->execed)
		after_exec(p);
	if (p->state == FORKED && p->has_events)
		open_forked(p);
	if (p->ended) {
		remove_relative(p, "target exited");
		return;
	}
	if (p->state == WATCHED && now >= p->next)
		await(p);
	if (p->state == WAITING && now >= p->next)
		try_to_attach(p, now);
	if (p->state != TRACED)
		return;
	err = session__pump(p->session, &p->sink, 1);
	if (p->all->opts.session.steps && session__steps(p->session) > p->all->opts.session.steps)
		reason = "steps";
	if (!reason && !err)
		reason = p->all->opts.output->full(p->output);
	if (!reason && !err)
		return;
	finish(p, reason ? reason : "signal", err);
	kin__forget(kin_of(p->all), p->pid, p->number);
	p->state = OVER;
}

/* ---- the family ---- */

static void say_missed(struct relatives *r)
{
	uint64_t missed = kin__missed(kin_of(r));

	if (missed == r->missed_said)
		return;
	log_warn("%" PRIu64 " processes are not followed: no more than %d are at a time", missed - r->missed_said, MT_MEMBERS - 1);
	r->missed_said = missed;
}

/* Who was there before us. Those that are forked meanwhile by one that is followed already are told of. */
static void scan(struct relatives *r)
{
	pid_t pids[FAMILY_MAX], parents[FAMILY_MAX];
	size_t i, n, found = 1;
	int number, tries;

	r->scanned = true;
	for (tries = 0; found && tries < SCANS; tries++) {
		n = family__descendants(r->first_pid, pids, parents, FAMILY_MAX);
		for (found = 0, i = 0; i < n; i++) {
			number = kin__add(kin_of(r), pids[i]);
			if (number > 0 && add(r, pids[i], parents[i], number))
				found++;
		}
	}
}

/* Told of ends and execs may have found no room. */
static void look_for_ends(struct relatives *r, uint64_t now)
{
	size_t i;

	if (now < r->next_look)
		return;
	r->next_look = now + LOOK_EVERY;
	for (i = 1; i < MT_MEMBERS; i++) {
		struct relative *p = r->at[i];

		if (p && p->session && !proc__alive(session__proc(p->session)))
			p->told_end = true;
		else if (p && !p->session && !family__exists(p->pid))
			p->told_end = true;
		else if (p && p->state == TRACED && session__replaced(p->session))
			p->told_exec = true;
	}
}

struct relatives *relatives__new(pid_t pid, const struct relatives_opts *opts, uint32_t *number, struct failure *f)
{
	struct relatives *r = calloc(1, sizeof(*r));
	struct epoll_event ev = { .events = EPOLLIN };
	int err = r ? 0 : -ENOMEM;

	if (r) {
		r->opts = *opts;
		r->first_pid = pid;
		r->wake = epoll_create1(EPOLL_CLOEXEC);
		if (r->wake < 0 || epoll_ctl(r->wake, EPOLL_CTL_ADD, kin__wake_fd(kin_of(r)), &ev))
			err = -errno;
	}
	if (!err)
		err = kin__add(kin_of(r), pid);
	if (err > 0) {
		*number = r->first_number = err;
		return r;
	}
	failure__set(f, EXIT_FAILED, err, "PID %d cannot be followed: %s", (int)pid, strerror(-err));
	relatives__free(r);
	return NULL;
}

void relatives__free(struct relatives *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 1; i < MT_MEMBERS; i++) {
		if (r->at[i])
			remove_relative(r->at[i], "");
	}
	if (r->wake >= 0)
		close(r->wake);
	free(r);
}

void relatives__first(struct relatives *r, struct session *s)
{
	if (!s && r->first)
		open_all_forked_by(r, r->first);
	r->first = s;
	if (s && !r->begin)
		r->begin = monotonic();
	know_sets(r);
}

void relatives__take_first(struct relatives *r)
{
	struct relative *p = add(r, r->first_pid, 0, r->first_number);

	if (p)
		await(p);
}

void relatives__pump(struct relatives *r)
{
	uint64_t now = monotonic();
	size_t i;

	if (!r->scanned)
		scan(r);
	know_sets(r);
	take_in(r);
	look_for_ends(r, now);
	for (i = 1; i < MT_MEMBERS; i++) {
		if (r->at[i])
			pump_one(r->at[i], now);
	}
	say_missed(r);
}

void relatives__hurry(struct relatives *r)
{
	struct relative *p;
	size_t i;
	int err;

	take_in(r);
	for (i = 1; i < MT_MEMBERS; i++) {
		p = r->at[i];
		if (p && p->state == FORKED && p->has_events)
			open_forked(p);
		if (p && p->execed)
			after_exec(p);
		if (!p || p->state != TRACED)
			continue;
		err = session__hurry(p->session, &p->sink, 1);
		if (err) {
			finish(p, "signal", err);
			p->state = OVER;
		}
	}
}

int relatives__patience(const struct relatives *r)
{
	int ms = -1;
	size_t i;

	for (i = 1; i < MT_MEMBERS; i++) {
		if (r->at[i] && r->at[i]->state == WAITING && (ms < 0 || session__patience(r->at[i]->session) < ms))
			ms = session__patience(r->at[i]->session);
	}
	return ms;
}

int relatives__wake_fd(const struct relatives *r)
{
	return r->wake;
}

size_t relatives__traced(const struct relatives *r)
{
	return r->traced;
}

size_t relatives__ever(const struct relatives *r)
{
	return r->ever;
}

uint64_t relatives__now(const struct relatives *r)
{
	return r->begin ? monotonic() - r->begin : 0;
}

void relatives__finish(struct relatives *r, const char *reason)
{
	size_t i;

	take_in(r);
	for (i = 1; i < MT_MEMBERS; i++) {
		struct relative *p = r->at[i];

		if (p && p->state == FORKED && p->has_events)
			open_forked(p);
	}
	for (i = 1; i < MT_MEMBERS; i++) {
		if (r->at[i])
			remove_relative(r->at[i], r->at[i]->ended ? "target exited" : reason);
	}
}
