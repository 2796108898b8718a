/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the processes of a capture. The kernel reports each exec of a process at once, before it
 * can import PyTorch. A scan of /proc, once a second, finds processes that are older than the
 * capture, that changed their name, or that have PyTorch without looking like Python.
 */
#include "capture/follow/tracees_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/exit.h"
#include "base/failure.h"
#include "base/log.h"
#include "capture/pick.h"
#include "capture/torch_scan.h"
#include "inspect/descendants.h"

#define DESCENDANTS_MAX MT_WATCHED
#define SCANS 8
#define SCAN_EVERY 1000000000ULL /* ns */
#define LATER 1			 /* pages of no process: to be asked again */
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

static void look_at(struct tracees *r, struct seen *s, const struct seen *before, bool anew)
{
	if (tracees__find(r, s->pid))
		return;
	if (!before || (anew && !before->pages))
		look_at_new(r, s);
	else if (before->pages)
		look_again(r, s, before->pages);
}

static void scan(struct tracees *r)
{
	bool anew = !(r->scans++ % FULL_SCAN_EVERY) || r->too_many_strangers;
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
			anew);
		n++;
	}
	if (dir)
		closedir(dir);
	free(r->seen);
	r->seen = seen;
	r->n_seen = n;
	r->too_many_strangers = false;
}

void tracees_find__others(struct tracees *r, uint64_t now)
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
