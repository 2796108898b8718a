/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The records of a process group (capture/probes/proc_group.h) arrive at any time, also during a
 * drain. They are noted then, and acted on in tracees__pump() and tracees__drain_new(). A process
 * that a traced one forks is traced from its first instruction on. Its records are queued until the
 * first allocation, when it gets a session. Other processes get a session that waits for PyTorch.
 */
#include "capture/capture_loop.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "capture/ending/scene.h"
#include "capture/follow/tracees_internal.h"
#include "capture/hooks.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "inspect/proc.h"

/*
 * Finds the processes of a capture. The kernel reports each exec of a process at once, before it
 * can import PyTorch. A scan of /proc, once a second, finds processes that are older than the
 * capture, that changed their name, or that have PyTorch without looking like Python.
 */

#define DESCENDANTS_MAX MT_WATCHED
#define SCANS 8
#define SCAN_EVERY 1000000000ULL /* ns */
#define LATER 1			 /* in place of a number of pages: look at the process again */
#define NEAREST 3		 /* near matches in a message */
#define FULL_SCAN_EVERY 10	 /* every tenth scan looks at all processes again */

/* Adds a process. Returns 0 or negative; -EEXIST: it was added before; -ENOSPC: it has no place. */
static int add(struct tracees *r, const struct pick_process *q, struct tracee **ret)
{
	struct owner *owner = owners__of(&r->owners, q);
	int err = owner ? 0 : -ENOMEM;

	*ret = NULL;
	if (!err)
		err = tracees_places__make_room(r, owner, q);
	if (!err && group_of(r))
		err = proc_group__add(group_of(r), q->pid);
	if (err) {
		owner__drop(owner);
		return err;
	}
	*ret = tracees__add(r, q->pid, q->parent, 0, owner);
	return *ret ? 0 : -ENOMEM;
}

/* The same by PID; parent: if the process has ended meanwhile. */
static int add_pid(struct tracees *r, pid_t pid, pid_t parent, struct tracee **ret)
{
	struct pick_process q;
	int err;

	if (pick_process__read(pid, &q))
		q = (struct pick_process){ .pid = pid };
	q.parent = parent;
	err = add(r, &q, ret);
	pick_process__free(&q);
	return err;
}

/* Adds the existing child processes. Children that are forked meanwhile are reported by the
 * kernel. */
static void add_descendants(struct tracees *r, pid_t pid)
{
	pid_t pids[DESCENDANTS_MAX], parents[DESCENDANTS_MAX];
	size_t i, n, found = 1;
	struct tracee *p;
	int tries;

	for (tries = 0; found && tries < SCANS; tries++) {
		n = descendants__descendants(pid, pids, parents, DESCENDANTS_MAX);
		for (found = 0, i = 0; i < n; i++) {
			if (add_pid(r, pids[i], parents[i], &p))
				continue;
			p->is_child = true;
			found++;
		}
	}
}

/* Returns 0, or negative with *f: the process cannot be waited for. */
static int pick(struct tracees *r, const struct pick_process *q, struct failure *f)
{
	bool only = q->pid == r->opts.only, given = pick__is_given(r->opts.pick, q);
	struct tracee *p;
	int err = add(r, q, &p);

	if (err)
		return only ? failure__set(f, EXIT_FAILED, err, "PID %d cannot be followed: %s",
					   (int)q->pid, strerror(-err))
			    : 0;
	p->picked = true;
	p->given = given;
	if (only) {
		r->only = p;
		p->times = 0;
	}
	if (q->cmdline)
		pick__remember(r->opts.pick, q);
	err = tracee__await(p, f);
	if (r->opts.children)
		add_descendants(r, q->pid);
	return err;
}

int tracees__take(struct tracees *r, pid_t pid, struct failure *f)
{
	struct pick_process q;
	int err;

	if (tracees__find(r, pid))
		return 0; /* given twice */
	if (pick_process__read(pid, &q))
		q = (struct pick_process){ .pid = pid };
	err = pick(r, &q, f);
	pick_process__free(&q);
	return err;
}

static void pick_found(struct tracees *r, const struct pick_process *q)
{
	struct failure f;

	if (pick(r, q, &f))
		log_debug("%s", f.text);
}

static void mark_untracked(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	bool later;

	if (tracees__find(r, pid) || pick_process__read(pid, &q))
		return;
	if (tracees__picks(r, &q, &later))
		pick_found(r, &q);
	pick_process__free(&q);
}

/* ---- scan of /proc ---- */

static void look_at_new(struct tracees *r, struct seen *s)
{
	struct pick_process q;
	bool later;

	if (pick_process__read(s->pid, &q))
		return;
	if (tracees__picks(r, &q, &later))
		pick_found(r, &q);
	else if (pick__is(r->opts.pick, &q) == PICK_IF_TORCH)
		s->pages = later ? LATER : descendants__pages(s->pid);
	pick_process__free(&q);
}

/* Only a process that has mapped more memory since the last scan can have PyTorch now. */
static void look_again(struct tracees *r, struct seen *s, uint64_t pages_before)
{
	s->pages = descendants__pages(s->pid);
	if (s->pages && s->pages != pages_before)
		look_at_new(r, s);
}

/* before: what the last scan saw of the process; NULL: it is new. all: also looks at processes that
 * were not wanted then. */
static void look_at(struct tracees *r, struct seen *s, const struct seen *before, bool all)
{
	if (tracees__find(r, s->pid))
		return;
	if (!before || (all && !before->pages))
		look_at_new(r, s);
	else if (before->pages)
		look_again(r, s, before->pages);
}

static void scan(struct tracees *r)
{
	bool all = !(r->scans++ % FULL_SCAN_EVERY) || r->too_many_strangers;
	DIR *dir = opendir("/proc");
	size_t n = 0, cap = 0, old = 0;
	struct seen *seen = NULL;
	struct dirent *d;

	if (r->torch)
		torch_scan__begin(r->torch);
	while (dir && (d = readdir(dir))) {
		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		if (array__grow(&seen, &cap, n + 1, sizeof(*seen)))
			break;
		seen[n] = (struct seen){ .pid = atoi(d->d_name) };
		/* Both lists are in order of PIDs, as the kernel lists them. */
		while (old < r->n_seen && r->seen[old].pid < seen[n].pid)
			old++;
		look_at(r, &seen[n],
			old < r->n_seen && r->seen[old].pid == seen[n].pid ? &r->seen[old] : NULL,
			all);
		n++;
	}
	if (dir)
		closedir(dir);
	free(r->seen);
	r->seen = seen;
	r->n_seen = n;
	r->too_many_strangers = false;
}

/* Looks for further processes, at most once a second. */
static void tracees_find__others(struct tracees *r, uint64_t now)
{
	size_t i, n = r->n_strangers;
	uint64_t untold;

	r->n_strangers = 0;
	for (i = 0; i < n; i++)
		mark_untracked(r, r->stranger[i]);
	if (pick__only_pids(r->opts.pick) && !pick__open_ended(r->opts.pick))
		return;
	untold = proc_group__untold(group_of(r));
	if (untold != r->untold)
		r->too_many_strangers = true;
	r->untold = untold;
	if (now < r->next_scan && !r->too_many_strangers)
		return;
	r->next_scan = now + SCAN_EVERY;
	scan(r);
}

/* ---- messages ---- */
/* Writes "; PID 12 (bash train.sh) is no Python program", or names a process with PyTorch that does
 * not match. */
void tracees__nearest(struct tracees *r, char *buf, size_t size)
{
	const struct tracee *near[TRACEES_MAX];
	struct pick_process q;
	size_t i, n = 0, len = 0, said = 0;
	char title[96];

	buf[0] = '\0';
	for (i = 0; i < r->top; i++) {
		if (r->at[i])
			near[n++] = r->at[i];
	}
	for (i = 0; i < n && said < NEAREST && len < size; i++) {
		if (pick_process__read(near[i]->pid, &q))
			continue;
		len += snprintf(buf + len, size - len, "%s PID %d (%s)", said++ ? "," : ";",
				(int)q.pid, pick_process__title(&q, title, sizeof(title)));
		pick_process__free(&q);
	}
	if (said) {
		if (len < size)
			snprintf(buf + len, size - len, " match%s, but %s no Python",
				 said > 1 ? "" : "es", said > 1 ? "are" : "is");
		return;
	}
	for (i = 0; i < r->n_seen && said < NEAREST && len < size; i++) {
		if (pick_process__read(r->seen[i].pid, &q))
			continue;
		if (tracees__torch(r, &q) == TORCH_YES)
			len += snprintf(buf + len, size - len, "%s PID %d (%s)",
					said++ ? "," : "; PyTorch is in", (int)q.pid,
					pick_process__title(&q, title, sizeof(title)));
		pick_process__free(&q);
	}
}

#define LEFT_OUT_MAX 64		 /* descendants of a process that are looked at */
#define MAY_EXEC 5000000ULL	 /* ns after a fork until the child has usually called exec */
#define LOOK_EVERY 1000000000ULL /* ns between two checks for ended processes */

/* ---- records of the group ---- */

static struct session *find_session(const struct tracees *r, uint32_t number)
{
	return number < MT_MEMBERS && r->numbered[number] && r->numbered[number]->state == TRACED
		       ? r->numbered[number]->session
		       : NULL;
}

static struct probes *set_of(const struct tracees *r, uint32_t group)
{
	const struct probes_sets *sets = r->opts.session.sets;
	size_t i;

	for (i = 0; i < sets->n; i++) {
		if (probes__group(sets->set[i]) == group)
			return sets->set[i];
	}
	return NULL;
}

/* Returns the session with number, or that of the nearest traced ancestor. */
static struct session *nearest(const struct tracees *r, uint32_t number)
{
	struct session *s = find_session(r, number);

	return s || number >= MT_MEMBERS || !r->numbered[number] ? s
								 : r->numbered[number]->forked_by;
}

static void ended(struct tracee *p, uint64_t when)
{
	if (!p->told_end)
		p->end = when;
	p->all->unrecorded += p->lacks_number && !p->told_end;
	p->all->unprobed += p->lacks_probes && p->state != TRACED && !p->told_end;
	p->told_end = true;
}

static void execed(struct tracee *p, uint64_t when)
{
	p->exec = when;
	p->told_exec = true;
	p->lacks_probes = false; /* another program */
}

static int on_fork(struct tracees *r, const struct mt_rec_group *k)
{
	struct tracee *parent = tracees__find(r, (pid_t)k->parent), *p;

	p = tracees__add(r, k->pid, k->parent, k->number,
			 parent ? owner__share(parent->owner) : tracees__owner_of(r, k->pid));
	if (!p) {
		r->unplaced++;
		return 0;
	}
	p->is_child = true;
	if (!tracees__keeps(r, p->pid)) {
		tracee__remove(p, "");
		return 0;
	}
	p->lacks_number = !k->number && nearest(r, k->from);
	p->forked = p->diverged = k->time;
	if (!find_session(r, k->from) && r->numbered[k->from % MT_MEMBERS])
		p->diverged = r->numbered[k->from % MT_MEMBERS]->diverged;
	p->next = k->time + MAY_EXEC;
	p->early_from = k->group ? set_of(r, k->group) : NULL;
	p->forked_by = nearest(r, k->from);
	p->lacks_probes = p->forked_by && session__misses_forks(p->forked_by);
	if (!p->early_from || !p->forked_by || session__probes(p->forked_by) != p->early_from) {
		p->early_from = NULL;
		p->forked_by = NULL;
		return 0;
	}
	p->state = FORKED;
	p->early_from = probes__share_set(p->early_from);
	probes__feed(p->early_from, p->number, tracee__on_early, p);
	return 0;
}

static int on_group_record(void *ctx, const struct mt_rec_group *k)
{
	struct tracees *r = ctx;
	struct tracee *p = k->what == MT_GROUP_STRANGER ? NULL : tracees__find(r, k->pid);

	if (k->what == MT_GROUP_FORK && k->number < MT_MEMBERS && !r->numbered[k->number]) {
		if (p)
			ended(p, k->time); /* the record of its end was lost */
		return on_fork(r, k);
	}
	/* Looked at later, because this may be during a drain. */
	if (k->what == MT_GROUP_STRANGER || (k->what == MT_GROUP_EXEC && !p)) {
		if (r->n_strangers < STRANGERS_MAX)
			r->stranger[r->n_strangers++] = k->pid;
		else
			r->too_many_strangers = true;
		return 0;
	}
	if (!p)
		return 0;
	if (k->what == MT_GROUP_EXEC)
		execed(p, k->time);
	if (k->what == MT_GROUP_END)
		ended(p, k->time);
	return 0;
}

static void read_group_records(void *ctx)
{
	struct tracees *r = ctx;

	if (group_of(r))
		proc_group__consume(group_of(r), on_group_record, r);
}

/* Applies noted execs and ends once all earlier records were drained. */
static void apply_records(struct tracees *r)
{
	const struct probes_sets *sets = r->opts.session.sets;
	bool exec[TRACEES_MAX] = { 0 }, end[TRACEES_MAX] = { 0 };
	size_t i, retired = r->n_retired;

	read_group_records(r);
	for (i = 0; i < r->top; i++) {
		exec[i] = r->at[i] && r->at[i]->told_exec;
		end[i] = r->at[i] && r->at[i]->told_end;
	}
	for (i = 0; sets && i < sets->n; i++) {
		if (probes__consume(sets->set[i], NULL, NULL) < 0)
			return; /* the queue is full: try again later */
	}
	for (i = 0; i < r->top; i++) {
		if (exec[i])
			r->at[i]->told_exec = false;
		if (r->at[i]) {
			r->at[i]->execed |= exec[i];
			r->at[i]->ended |= end[i];
		}
	}
	for (i = 0; i < retired; i++)
		if (!tracees_places__inherit(r, r->retired[i]))
			proc_group__free_number(group_of(r), r->retired[i]);
	r->n_retired -= retired;
	memmove(r->retired, r->retired + retired, r->n_retired * sizeof(*r->retired));
}

/* ---- all processes ---- */

static void say_missed(struct tracees *r)
{
	struct proc_group *group = group_of(r);
	uint64_t missed = (group ? proc_group__missed(group) : 0) + r->unplaced;

	if (r->unrecorded)
		log_warn("%" PRIu64 " forked processes ended before one of %d places was free: "
			 "they are not recorded",
			 r->unrecorded, MT_MEMBERS - 1);
	r->unrecorded = 0;
	if (r->unprobed)
		log_warn("%" PRIu64 " forked processes ended before they were attached to: they "
			 "are not recorded (root may not open their PyTorch, so probes do not pass "
			 "on to children)",
			 r->unprobed);
	r->unprobed = 0;
	if (missed == r->missed_said)
		return;
	log_warn("%" PRIu64 " processes are not followed: no more than %d are at a time",
		 missed - r->missed_said, MT_WATCHED);
	r->missed_said = missed;
}

/* Does not wait: a process without a group is checked on each call. */
static bool has_ended(const struct session *s)
{
	struct pollfd fd = { .fd = proc__pidfd(session__proc(s)), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* Finds the ends and execs that no record tells of: without a group all, otherwise lost ones. */
static void look_for_ends(struct tracees *r, uint64_t now)
{
	size_t i;

	if (group_of(r) && now < r->next_look)
		return;
	r->next_look = now + LOOK_EVERY;
	for (i = 0; i < r->top; i++) {
		struct tracee *p = r->at[i];

		if (p && (p->session ? has_ended(p->session) : !descendants__exists(p->pid)))
			ended(p, now - LOOK_EVERY);
		else if (p && p->state == TRACED && session__replaced(p->session))
			execed(p, now);
	}
}

struct tracees *tracees__new(const struct tracees_opts *opts)
{
	struct tracees *r = calloc(1, sizeof(*r));
	struct epoll_event ev = { .events = EPOLLIN };
	bool only_pids = pick__only_pids(opts->pick);

	if (!r)
		return NULL;
	r->opts = *opts;
	r->read_records = read_group_records;
	r->wake = epoll_create1(EPOLL_CLOEXEC);
	if (r->wake < 0 ||
	    (group_of(r) &&
	     epoll_ctl(r->wake, EPOLL_CTL_ADD, proc_group__wake_fd(group_of(r)), &ev)) ||
	    (opts->endings &&
	     epoll_ctl(r->wake, EPOLL_CTL_ADD, ending_hooks__wake_fd(opts->endings), &ev))) {
		tracees__free(r);
		return NULL;
	}
	if (group_of(r) && only_pids && !opts->children)
		proc_group__alone(group_of(r));
	if (group_of(r) && (!only_pids || pick__open_ended(opts->pick)))
		proc_group__tell_untracked(group_of(r));
	return r;
}

void tracees__free(struct tracees *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < r->top; i++) {
		if (r->at[i])
			tracee__remove(r->at[i], "");
	}
	probes__free(r->kept);
	if (r->wake >= 0)
		close(r->wake);
	free(r->seen);
	torch_scan__free(r->torch);
	owners__free(&r->owners);
	free(r);
}

int tracees__begin_output(struct tracees *r)
{
	return r->only ? tracee__begin_output(r->only) : EXIT_OK;
}

void tracees__pump(struct tracees *r)
{
	uint64_t now = clock__kernel();
	size_t i;

	tracees__read_endings(r);
	tracees__know_sets(r);
	look_for_ends(r, now);
	apply_records(r);
	tracees_find__others(r, now);
	tracees_places__trim(r);
	for (i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->scene)
			scene__tick(r->at[i]->scene, now);
		if (r->at[i])
			tracee__pump(r->at[i], now);
	}
	say_missed(r);
}

void tracees__drain_new(struct tracees *r)
{
	struct tracee *p;
	size_t i;
	int err;

	tracees__read_endings(r);
	apply_records(r);
	for (i = 0; i < r->top; i++) {
		p = r->at[i];
		if (p && p->state == FORKED && p->has_events)
			tracee__open_forked(p);
		if (!p || (p->execed && !tracee__after_exec(p)) || p->state != TRACED)
			continue;
		err = session__drain_new(p->session, p->sink);
		if (err) {
			tracee__finish(p, "signal", err);
			p->state = OVER;
		}
	}
}

int tracees__poll_ms(const struct tracees *r)
{
	uint64_t now = clock__kernel(), next = r->n_strangers ? now : UINT64_MAX;
	size_t i;

	for (i = 0; i < r->top; i++) {
		const struct tracee *p = r->at[i];

		if (p && p->next < next &&
		    (p->state == WAITING || (p->state == FORKED && p->lacks_probes)))
			next = p->next;
	}
	if (next == UINT64_MAX)
		return -1;
	return next > now ? (int)((next - now + 999999) / 1000000) : 0;
}

bool tracees__quiet(const struct tracees *r)
{
	for (size_t i = 0; i < r->top; i++) {
		const struct tracee *p = r->at[i];

		if (p && (p->state != TRACED || !session__quiet(p->session)))
			return false;
	}
	return true;
}

int tracees__wake_fd(const struct tracees *r)
{
	return r->wake;
}

struct session *tracees__only(const struct tracees *r)
{
	return r->only ? r->only->session : NULL;
}

static bool is_hopeful(const struct tracee *p)
{
	const struct tracees_opts *o = &p->all->opts;

	if (p->state != WAITING || o->only)
		return p->state == TRACED || (p->state == WAITING && p == p->all->only);
	return o->children || session__has_python(p->session);
}

size_t tracees__hopeful(const struct tracees *r)
{
	size_t i, n = 0;

	for (i = 0; i < r->top; i++)
		n += r->at[i] && is_hopeful(r->at[i]);
	return n;
}

size_t tracees__traced(const struct tracees *r)
{
	return r->traced;
}

size_t tracees__ever(const struct tracees *r)
{
	return r->ever;
}

static bool is_in(const struct tracees *r, pid_t pid)
{
	for (size_t i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->pid == pid)
			return true;
	}
	return false;
}

size_t tracees__left_out(const struct tracees *r, pid_t *parent, pid_t *first)
{
	pid_t v[LEFT_OUT_MAX];
	size_t n = 0;

	for (size_t i = 0; i < r->top; i++) {
		const struct tracee *t = r->at[i];
		size_t k, of = 0, all;
		pid_t child = 0;

		if (!t || !t->picked || t->state == OVER)
			continue;
		all = descendants__with_torch(t->pid, v, LEFT_OUT_MAX);
		for (k = 0; k < all && k < LEFT_OUT_MAX; k++) {
			if (is_in(r, v[k]))
				continue;
			child = of++ ? child : v[k];
		}
		if (of > n) {
			*parent = t->pid;
			*first = child;
			n = of;
		}
	}
	return n;
}

uint64_t tracees__now(const struct tracees *r)
{
	return r->begin ? clock__kernel() - r->begin : 0;
}

int tracees__finish(struct tracees *r, const char *reason)
{
	size_t i;

	apply_records(r);
	/* The end of a traced process begins the recordings of those that it forked, which may be
	 * anywhere in the list. Numbers are not freed meanwhile, so only so many can begin. */
	while (r->top) {
		for (i = 0; i < r->top; i++) {
			if (r->at[i] && r->at[i]->state != FORKED)
				tracee__remove(r->at[i],
					       r->at[i]->ended ? "target exited" : reason);
		}
	}
	say_missed(r);
	if (r->hurries)
		setpriority(PRIO_PROCESS, 0, r->nice);
	r->hurries = false;
	return r->status;
}
