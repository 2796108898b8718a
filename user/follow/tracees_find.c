/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who is in. Where processes are picked, one that runs another program is told of by the kernel
 * side the moment it does, long before it can have PyTorch. A look at all of /proc, once a second,
 * finds who was there before us, who changed what it is called, and who has PyTorch without being a
 * Python program by its looks.
 */
#include "follow/tracees_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/target.h"
#include "follow/pick.h"
#include "log/log.h"
#include "process/descendants.h"

#define FAMILY_MAX MT_WATCHED
#define SCANS 8
#define SCAN_EVERY 1000000000ULL /* ns */
#define NEAREST 3		 /* of those that it nearly was are named */
#define SCAN_ANEW 10		 /* of so many looks one is at everybody as if they were new */

static struct proc_group *group_of(const struct tracees *r)
{
	return r->opts.session.group;
}

/* NULL: it is in already, or cannot be. */
static struct tracee *take(struct tracees *r, pid_t pid, pid_t parent)
{
	int err = proc_group__add(group_of(r), pid);

	if (err == -ENOSPC && !r->full_said) {
		r->full_said = true;
		log_warn("PID %d is not followed: no more than %d processes are at a time",
			 (int)pid, MT_WATCHED);
	}
	return err ? NULL : tracees__add(r, pid, parent, 0);
}

/* Those that are forked meanwhile by one that is in already are told of. */
void tracees_find__descendants(struct tracees *r, pid_t pid)
{
	pid_t pids[FAMILY_MAX], parents[FAMILY_MAX];
	size_t i, n, found = 1;
	struct tracee *p;
	int tries;

	for (tries = 0; found && tries < SCANS; tries++) {
		n = descendants__descendants(pid, pids, parents, FAMILY_MAX);
		for (found = 0, i = 0; i < n; i++) {
			p = take(r, pids[i], parents[i]);
			found += p != NULL;
			if (p)
				p->is_child = true;
		}
	}
}

static void pick(struct tracees *r, const struct pick_process *q)
{
	struct tracee *p = take(r, q->pid, q->parent);

	if (!p)
		return;
	p->picked = true;
	pick__remember(r->opts.pick, q);
	tracee__await(p);
	if (r->opts.children)
		tracees_find__descendants(r, q->pid);
}

int tracees__take(struct tracees *r, pid_t pid, struct failure *f)
{
	struct pick_process q;
	struct target t;
	int err = target__open(pid, &t, f); /* has the words where that is not possible */

	if (err)
		return err;
	target__close(&t);
	if (tracees__find(r, pid) || pick_process__read(pid, &q))
		return 0; /* named twice, or it has ended this very moment */
	pick(r, &q);
	pick_process__free(&q);
	return 0;
}

/* What PyTorch comes into, mostly. Others are found when it is there. */
static bool looks_like_python(const struct pick_process *q)
{
	char name[48], exe[PATH_MAX], *base;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%d/exe", (int)q->pid);
	n = readlink(name, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	base = basename(exe);
	return !strncmp(base, "python", 6) || !strncmp(base, "pypy", 4) ||
	       !strncmp(q->comm, "python", 6);
}

static bool is_meant(struct tracees *r, const struct pick_process *q)
{
	enum pick_is is = pick__is(r->opts.pick, q);

	return is == PICK_YES ||
	       (is == PICK_IF_TORCH && (looks_like_python(q) || descendants__has_torch(q->pid)));
}

bool tracees_find__keeps_forked(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	bool ret;

	if (!r->opts.pick || r->opts.children)
		return true;
	if (pick_process__read(pid, &q))
		return true; /* it has ended already, which is told of next */
	ret = is_meant(r, &q);
	pick_process__free(&q);
	return ret;
}

bool tracees_find__keeps_execed(struct tracee *p)
{
	struct tracees *r = p->all;
	struct pick_process q;
	bool ret;

	if (!r->opts.pick || r->opts.children)
		return true;
	if (pick_process__read(p->pid, &q))
		return true;
	ret = is_meant(r, &q);
	pick_process__free(&q);
	return ret;
}

void tracees_find__traced(const struct tracee *p)
{
	struct pick_process q;

	if (!p->all->opts.pick || !p->picked || pick_process__read(p->pid, &q))
		return;
	pick__remember(p->all->opts.pick, &q);
	pick_process__free(&q);
}

void tracees_find__gone(const struct tracee *p)
{
	if (p->all->opts.pick && p->ended)
		pick__ended(p->all->opts.pick, p->pid, p->end);
}

static void mark_untracked(struct tracees *r, pid_t pid)
{
	struct pick_process q;

	if (tracees__find(r, pid) || pick_process__read(pid, &q))
		return;
	if (is_meant(r, &q))
		pick(r, &q);
	pick_process__free(&q);
}

/* ---- all of /proc ---- */

static void look_at_new(struct tracees *r, struct seen *s)
{
	struct pick_process q;

	if (pick_process__read(s->pid, &q))
		return;
	if (is_meant(r, &q))
		pick(r, &q);
	else if (pick__is(r->opts.pick, &q) == PICK_IF_TORCH)
		s->pages = descendants__pages(s->pid);
	pick_process__free(&q);
}

/* It could have PyTorch, and had not: only where more has been mapped is there a reason to look
 * again. */
static void look_again(struct tracees *r, struct seen *s, uint64_t pages_before)
{
	s->pages = descendants__pages(s->pid);
	if (s->pages && s->pages != pages_before && descendants__has_torch(s->pid))
		mark_untracked(r, s->pid);
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
	bool anew = !(r->scans++ % SCAN_ANEW) || r->too_many_strangers;
	DIR *dir = opendir("/proc");
	size_t n = 0, cap = 0, old = 0;
	struct seen *seen = NULL, *bigger;
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		if (n == cap) {
			cap = cap ? cap * 2 : 256;
			bigger = realloc(seen, cap * sizeof(*seen));
			if (!bigger)
				break;
			seen = bigger;
		}
		seen[n] = (struct seen){ .pid = atoi(d->d_name) };
		/* Both in the order of their numbers, as the kernel lists them. */
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
	uint64_t untold = proc_group__untold(group_of(r));
	size_t i, n = r->n_strangers;

	r->n_strangers = 0;
	for (i = 0; i < n; i++)
		mark_untracked(r, r->stranger[i]);
	if (pick__only_pids(r->opts.pick) && !pick__open_ended(r->opts.pick))
		return;
	if (untold != r->untold)
		r->too_many_strangers = true;
	r->untold = untold;
	if (now < r->next_scan && !r->too_many_strangers)
		return;
	r->next_scan = now + SCAN_EVERY;
	scan(r);
}

/* ---- for people ---- */

/* "; PID 12 (bash train.sh) is no Python program", or who has PyTorch and is not meant. */
void tracees__nearest(const struct tracees *r, char *buf, size_t size)
{
	const struct tracee *near[RELATIVES_MAX];
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
		if (!descendants__has_torch(r->seen[i].pid) ||
		    pick_process__read(r->seen[i].pid, &q))
			continue;
		len += snprintf(buf + len, size - len, "%s PID %d (%s)",
				said++ ? "," : "; PyTorch is in", (int)q.pid,
				pick_process__title(&q, title, sizeof(title)));
		pick_process__free(&q);
	}
}
