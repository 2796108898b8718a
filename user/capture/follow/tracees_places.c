/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Chooses the followed and the recorded processes when there are more than places or numbers. The
 * owners of processes (pick.h) get equal shares of both. A process of --all that has no PyTorch
 * makes room for any that has.
 */
#include "capture/follow/tracees_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "capture/pick.h"
#include "capture/session.h"

/* Ranks of places. */
enum { WITHOUT_TORCH, FOLLOWED, KEPT };
/* Ranks of numbers. */
enum { IDLE, RECORDED, GIVEN };

struct table {
	struct place v[TRACEES_MAX];
	struct tracee *of[TRACEES_MAX];
	size_t n;
};

static void put(struct table *t, struct tracee *p, unsigned rank)
{
	t->v[t->n] = (struct place){ .owner = p->owner, .rank = rank, .came = p->came };
	t->of[t->n++] = p;
}

static unsigned rank_of_place(const struct tracee *p)
{
	if (p->given || p->state == TRACED || p->state == OVER)
		return KEPT;
	if (!pick__needs_torch(p->all->opts.pick) || p->state == FORKED ||
	    (p->session && session__found_torch(p->session)))
		return FOLLOWED;
	return WITHOUT_TORCH;
}

static void list_places(const struct tracees *r, struct table *t)
{
	t->n = 0;
	for (size_t i = 0; i < r->top; i++)
		if (r->at[i] && !r->at[i]->told_end)
			put(t, r->at[i], rank_of_place(r->at[i]));
}

static unsigned rank_of_number(const struct tracee *p)
{
	if (p->given)
		return GIVEN;
	return p->state == TRACED || (p->state == FORKED && p->has_events) ? RECORDED : IDLE;
}

static void list_numbers(const struct tracees *r, struct table *t)
{
	t->n = 0;
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (r->numbered[i] && !r->numbered[i]->told_end)
			put(t, r->numbered[i], rank_of_number(r->numbered[i]));
}

/* Says once for each owner that some of its processes are not followed. */
static void say_refused(const struct table *t, pid_t pid, struct owner *owner)
{
	const struct owner *most = shares__largest(t->v, t->n);

	if (owner->said || !most)
		return;
	owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed: %d processes are, the most at a "
		 "time, and %zu of them are of %s. Choose fewer: a longer --name, or --container",
		 (int)pid, owner->name, MT_WATCHED, most->places, most->name);
}

static void say_gone(const struct tracee *p, const struct owner *for_whom)
{
	if (p->owner->said)
		return;
	p->owner->said = true;
	log_warn("PID %d and maybe more of %s are not followed any longer: %d processes are, the "
		 "most at a time, and %s gets its share of them",
		 (int)p->pid, p->owner->name, MT_WATCHED, for_whom->name);
}

int tracees_places__make_room(struct tracees *r, struct owner *owner, const struct pick_process *q)
{
	struct table t;
	unsigned rank = pick__needs_torch(r->opts.pick) ? WITHOUT_TORCH : FOLLOWED;
	size_t i;

	list_places(r, &t);
	if (t.n < MT_WATCHED)
		return 0;
	i = shares__choose(t.v, t.n, owner, rank);
	if (i == SHARES_NONE && rank == WITHOUT_TORCH && tracees__torch(r, q) == TORCH_YES)
		i = shares__choose(t.v, t.n, owner, FOLLOWED);
	if (i == SHARES_NONE) {
		say_refused(&t, q->pid, owner);
		return -ENOSPC;
	}
	if (t.of[i]->owner != owner)
		say_gone(t.of[i], owner);
	tracee__remove(t.of[i], "");
	return 0;
}

void tracees_places__trim(struct tracees *r)
{
	struct owner newcomer = { 0 };
	struct table t;
	size_t i;

	for (;;) {
		list_places(r, &t);
		i = t.n > MT_WATCHED ? shares__choose(t.v, t.n, &newcomer, FOLLOWED) : SHARES_NONE;
		if (i == SHARES_NONE)
			return;
		say_refused(&t, t.of[i]->pid, t.of[i]->owner);
		tracee__remove(t.of[i], "");
	}
}

/* ---- numbers ---- */

static void end_recording(struct tracee *p, const struct owner *for_whom, size_t has)
{
	if (rank_of_number(p) == IDLE) {
		log_debug("PID %d: its number goes to %s", (int)p->pid, for_whom->name);
		tracee__finish(p, "", 0);
		return;
	}
	log_warn("PID %d: its recording ends here: %s has %zu of the %d recordings at a time, and "
		 "%s gets its share of them",
		 (int)p->pid, p->owner->name, has, MT_MEMBERS - 1, for_whom->name);
	tracee__finish(p, "share", 0);
	p->state = OVER;
}

static bool has_number_to_come(const struct tracees *r, const struct tracee *p)
{
	for (size_t i = 1; i < MT_MEMBERS; i++)
		if (r->heir[i] == p)
			return true;
	return false;
}

void tracees_places__make_number(struct tracee *p)
{
	struct tracees *r = p->all;
	unsigned rank = session__found_torch(p->session) ? RECORDED : IDLE;
	struct tracee *loser;
	struct table t;
	uint32_t number;
	size_t i;

	if (has_number_to_come(r, p))
		return;
	list_numbers(r, &t);
	if (t.n + r->n_retired < MT_MEMBERS - 1)
		return; /* one is free by now */
	i = shares__choose(t.v, t.n, p->owner, rank);
	if (i == SHARES_NONE) {
		if (!r->short_said)
			log_warn("%d processes are recorded, the most at a time: others wait until "
				 "one ends",
				 MT_MEMBERS - 1);
		r->short_said = true;
		return;
	}
	loser = t.of[i];
	number = loser->number;
	end_recording(loser, p->owner, shares__count(t.v, t.n, loser->owner));
	r->heir[number] = p;
}

bool tracees_places__inherit(struct tracees *r, uint32_t number)
{
	struct tracee *p = r->heir[number];

	r->heir[number] = NULL;
	if (!p || p->number || p->state != WAITING || !p->session ||
	    proc_group__hand_over(r->opts.session.group, number, p->pid))
		return false;
	session__give_number(p->session, number);
	tracees__numbered(p);
	p->next = 0;
	return true;
}
