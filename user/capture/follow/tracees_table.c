/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The processes of a capture: their table, and what tells whether a process belongs in it. */
#include "capture/follow/tracees_internal.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "inspect/proc.h"

struct tracee *tracees__find(const struct tracees *r, pid_t pid)
{
	size_t i;

	for (i = 0; i < r->top; i++) {
		if (r->at[i] && r->at[i]->pid == pid && !r->at[i]->told_end)
			return r->at[i];
	}
	return NULL;
}

struct tracee *tracees__add(struct tracees *r, pid_t pid, pid_t parent, uint32_t number,
			    struct owner *owner)
{
	struct tracee *p = NULL;
	size_t slot;

	for (slot = 0; slot < TRACEES_MAX && r->at[slot]; slot++)
		;
	if (slot < TRACEES_MAX && owner)
		p = calloc(1, sizeof(*p));
	if (!p) {
		if (group_of(r))
			proc_group__forget(group_of(r), pid, number);
		if (number)
			proc_group__free_number(group_of(r), number);
		owner__drop(owner);
		return NULL;
	}
	p->all = r;
	p->pid = pid;
	p->parent = parent;
	p->owner = owner;
	p->came = ++r->came;
	p->number = number;
	p->state = WATCHED;
	p->times = 1;
	p->slot = slot;
	r->at[slot] = p;
	if (slot >= r->top)
		r->top = slot + 1;
	if (number)
		r->numbered[number % MT_MEMBERS] = p;
	return p;
}

void tracees__numbered(struct tracee *p)
{
	uint32_t number = session__number(p->session);

	if (number == p->number)
		return;
	p->number = number;
	p->lacks_number = false;
	p->all->numbered[number % MT_MEMBERS] = p;
}

void tracees__retire(struct tracee *p)
{
	struct tracees *r = p->all;

	if (!p->number)
		return;
	proc_group__give_back(group_of(r), p->pid, p->number);
	r->numbered[p->number] = NULL;
	r->retired[r->n_retired++] = p->number;
	p->number = 0;
}

void tracees__know_sets(struct tracees *r)
{
	struct probes_sets *sets = r->opts.session.sets;
	struct epoll_event ev = { .events = EPOLLIN };
	size_t i;

	for (i = 0; sets && i < sets->n; i++) {
		probes__on_unknown(sets->set[i], r->read_records, r);
		epoll_ctl(r->wake, EPOLL_CTL_ADD, probes__wake_fd(sets->set[i]), &ev);
	}
}

void tracees__disinherit(struct tracee *p)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (p->all->heir[i] == p)
			p->all->heir[i] = NULL;
}

/* ---- which processes ---- */

/* True for programs that may import PyTorch. Scans find PyTorch in all others. */
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

enum torch_scan_is tracees__torch(struct tracees *r, const struct pick_process *q)
{
	r->torch = r->torch ?: torch_scan__new(descendants__has_torch);
	return r->torch ? torch_scan__ask(r->torch, q) : TORCH_NO;
}

bool tracees__picks(struct tracees *r, const struct pick_process *q, bool *later)
{
	enum pick_is is = pick__is(r->opts.pick, q);
	enum torch_scan_is torch;

	*later = false;
	if (is != PICK_IF_TORCH || looks_like_python(q))
		return is != PICK_NO;
	torch = tracees__torch(r, q);
	*later = torch == TORCH_LATER;
	return torch == TORCH_YES;
}

struct owner *tracees__owner_of(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	struct owner *ret;

	if (pick_process__read(pid, &q))
		return owners__named(&r->owners, "a user that is not known");
	ret = owners__of(&r->owners, &q);
	pick_process__free(&q);
	return ret;
}

void tracee__find_owner(struct tracee *p)
{
	struct owner *owner = tracees__owner_of(p->all, p->pid);

	if (!owner)
		return;
	owner__drop(p->owner);
	p->owner = owner;
}

bool tracees__keeps(struct tracees *r, pid_t pid)
{
	struct pick_process q;
	bool ret, later;

	if (r->opts.children || !group_of(r))
		return r->opts.children;
	if (pick_process__read(pid, &q))
		return true; /* it has ended, and its record follows */
	ret = tracees__picks(r, &q, &later);
	pick_process__free(&q);
	return ret;
}

void tracee__remember(const struct tracee *p)
{
	struct pick_process q;

	if (!p->picked || pick_process__read(p->pid, &q))
		return;
	pick__remember(p->all->opts.pick, &q);
	pick_process__free(&q);
}
