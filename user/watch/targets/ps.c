/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "watch/ps.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user.h"
#include "inspect/container.h"
#include "inspect/gpu_holders.h"
#include "inspect/nvml.h"
#include "inspect/proc.h"
#include "watch/watch.h"

#define REST_MOST 1024		       /* processes that are counted without being in the list */
#define FILES_MOST (8 * PS_MOST)       /* descriptors to open: a few for each process */
#define FIND_MOST UINT64_C(1000000000) /* time limit of ps__find(), in ns */
#define PAUSE_MS 50		       /* ms between two scans of ps__find() */

/* The last reading of a figure, for its growth. */
struct past {
	uint64_t time, bytes; /* time: CLOCK_MONOTONIC, ns; 0: no reading yet */
};

struct entry {
	struct ps_process p;
	struct watch_target *t;	  /* NULL: cannot be opened */
	uint64_t started;	  /* as in struct pick_process */
	struct past device, host; /* last readings of allocated and rss */
};

struct ps {
	struct watch_find *find;
	struct entry *v[PS_MOST];
	const struct ps_process *list[PS_MOST];
	size_t n;
	/* Processes for which v has no room. Some may have ended. */
	pid_t not_listed[REST_MOST];
	size_t n_not_listed;
	bool gpus_open; /* gpus__close() is due */
	struct subprocess_lost lost;
};

struct ps *ps__new(void)
{
	struct ps *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	io__raise_limit(FILES_MOST);
	s->find = watch_find__new_for_list();
	if (s->find)
		return s;
	ps__free(s);
	return NULL;
}

static void free_entry(struct entry *e)
{
	watch_target__free(e->t);
	free(e);
}

void ps__free(struct ps *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free_entry(s->v[i]);
	watch_find__free(s->find);
	if (s->gpus_open)
		gpus__close();
	free(s);
}

/* ---- finding ---- */

static void put_clean(char *buf, size_t size, const char *text)
{
	text__clean(buf, size, text, strlen(text));
}

/* Sets the user's name, if possible from another entry: a look-up may start a program. */
static void set_user(const struct ps *s, struct ps_process *p)
{
	struct user user;
	char id[16];

	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i]->p.uid != p->uid)
			continue;
		memcpy(p->user, s->v[i]->p.user, sizeof(p->user));
		return;
	}
	snprintf(id, sizeof(id), "%u", p->uid);
	put_clean(p->user, sizeof(p->user), user__named(&user, id) ? id : user.name);
}

static void set_why(struct ps_process *p, const char *why)
{
	put_clean(p->why, sizeof(p->why), why);
}

/* Marks the process as one that this user may not read. */
static void set_denied(struct ps_process *p)
{
	p->denied = true;
	set_why(p, "not permitted");
}

/* Counts a process for which the list has no room. Forgets some that have ended. */
static void add_not_listed(struct ps *s, pid_t pid)
{
	for (size_t i = s->n_not_listed; i-- > 0;) {
		if (s->not_listed[i] == pid)
			return;
		if (!descendants__exists(s->not_listed[i]))
			s->not_listed[i] = s->not_listed[--s->n_not_listed];
	}
	if (s->n_not_listed < REST_MOST)
		s->not_listed[s->n_not_listed++] = pid;
}

/* Removes a PID that has got a place in the list. */
static void forget_not_listed(struct ps *s, pid_t pid)
{
	for (size_t i = 0; i < s->n_not_listed; i++)
		if (s->not_listed[i] == pid)
			s->not_listed[i--] = s->not_listed[--s->n_not_listed];
}

/* For watch_find__scan(). Returns true if the process is in the list now. */
static bool add_process(void *ctx, const struct pick_process *found)
{
	struct container_names names;
	struct ps *s = ctx;
	struct entry *e;
	int err;

	if (s->n == PS_MOST) {
		add_not_listed(s, found->pid);
		return false;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return false;
	e->p = (struct ps_process){ .pid = found->pid, .uid = found->uid, .rank = -1 };
	e->started = found->started;
	e->t = watch_target__new(found, /*files_only=*/true, &err);
	if (!e->t && err != -EACCES && err != -EPERM) {
		free(e);
		return false;
	}
	if (e->t)
		e->p.rank = e->t->rank;
	else
		set_denied(&e->p);
	pick_process__script(found, e->p.command, sizeof(e->p.command));
	container__names_in_time(e->p.pid, &found->cgroup, &names, &s->lost);
	container__show(&found->cgroup, &names, e->p.container, e->p.pod);
	set_user(s, &e->p);
	s->v[s->n++] = e;
	forget_not_listed(s, found->pid);
	return true;
}

/* Looks at all processes until none is left whose file system has not answered yet. */
void ps__find(struct ps *s)
{
	uint64_t end = clock__monotonic() + FIND_MOST;

	do
		watch_find__scan(s->find, add_process, s);
	while (watch_find__unanswered(s->find) && clock__monotonic() < end &&
	       !poll(NULL, 0, PAUSE_MS));
}

size_t ps__left_out(const struct ps *s)
{
	size_t n = watch_find__unanswered(s->find);

	for (size_t i = 0; i < s->n_not_listed; i++)
		n += descendants__exists(s->not_listed[i]);
	return n;
}

/* ---- figures ---- */

/* Sets *ret to the bytes per second since the last reading. False: this is the first. */
static bool set_growth(struct past *last, uint64_t bytes, uint64_t now, double *ret)
{
	bool known = last->time && now > last->time;

	if (known)
		*ret = ((double)bytes - (double)last->bytes) * 1e9 / (double)(now - last->time);
	*last = (struct past){ now, bytes };
	return known;
}

/* Takes the sums of all devices from the last look at the process, and their growth since the look
 * before. */
static void read_devices(struct entry *e, uint64_t now)
{
	const struct watch_target *t = e->t;
	struct ps_process *p = &e->p;

	p->allocated = p->reserved = p->used = 0;
	p->has_allocator = t->alloc && cudaalloc__calibrated(t->alloc) && !t->alloc_why[0];
	p->used_known = false;
	for (size_t i = 0; i < t->n_devices; i++) {
		const struct watch_device *d = &t->devices[i];

		p->allocated += d->now.allocated;
		p->reserved += d->now.reserved;
		p->used += d->used;
		p->used_known |= d->used_known;
	}
	p->growth_known = p->has_allocator && set_growth(&e->device, p->allocated, now, &p->growth);
	if (!p->has_allocator)
		e->device.time = 0;
	set_why(p, t->alloc_why);
}

/* True if the allocator's figures are missing because this user may not read the process. */
static bool is_denied(const struct watch_target *t)
{
	struct maps m;
	int err;

	if (!t->alloc_why[0])
		return false;
	err = proc__maps(t->proc, &m);
	if (!err)
		maps__free(&m);
	return err == -EACCES || err == -EPERM;
}

static void set_rss(struct entry *e, uint64_t rss, uint64_t now)
{
	e->p.rss_known = true;
	e->p.rss = rss;
	e->p.rss_growth_known = set_growth(&e->host, rss, now, &e->p.rss_growth);
}

/* Adds up the driver's figures of a process on all GPUs. */
static void set_used(struct ps_process *p, const struct gpus_answer *a)
{
	for (uint32_t i = 0; i < a->n; i++) {
		const struct gpus_process *g = &a->process[i];

		if (g->pid != (uint32_t)p->pid || g->used == UINT64_MAX)
			continue;
		p->used += g->used;
		p->used_known = true;
	}
}

/* The driver's figures of processes without a PyTorch allocator that can be read. */
static void read_gpus(struct ps *s)
{
	const struct gpus_answer *a;
	unsigned n;
	uint64_t all; /* bits of all n GPUs */

	if (proc__pid_namespace())
		return; /* NVML has the PIDs of the initial namespace */
	if (!s->gpus_open)
		gpus__open();
	s->gpus_open = true;
	n = gpus__count();
	if (!n)
		return;
	all = UINT64_MAX >> (GPUS_MAX - n);
	if (!gpus__wait(all, clock__monotonic()))
		return;

	a = gpus__answer();
	for (size_t i = 0; a && i < s->n; i++)
		if (!s->v[i]->p.has_allocator && !s->v[i]->p.used_known)
			set_used(&s->v[i]->p, a);
}

/* Returns 0, or -ESRCH if the process ended or runs another program. */
static int read_process(struct entry *e, uint64_t now)
{
	if (watch_target__look(e->t, now, /*steps=*/false, /*used=*/true))
		return -ESRCH;
	read_devices(e, now);
	set_rss(e, e->t->rss, now);
	e->p.denied = is_denied(e->t);
	if (e->p.denied)
		set_denied(&e->p);
	return 0;
}

/* For a process that cannot be opened: anybody may read its RSS. 0, or -ESRCH: it ended. */
static int read_rss_only(struct entry *e, uint64_t now)
{
	unsigned long long resident;
	struct pick_process q;
	char text[64];

	if (pick_process__read(e->p.pid, &q))
		return -ESRCH;
	pick_process__free(&q);
	if (q.started != e->started)
		return -ESRCH;
	e->p.used = 0;
	e->p.used_known = false;
	io__text_of_process(e->p.pid, "statm", text, sizeof(text));
	if (sscanf(text, "%*u %llu", &resident) == 1)
		set_rss(e, resident * (uint64_t)sysconf(_SC_PAGESIZE), now);
	return 0;
}

/* Removes entry i, whose process has ended. */
static void drop_entry(struct ps *s, size_t i)
{
	watch_find__ended(s->find, s->v[i]->p.pid, clock__monotonic());
	free_entry(s->v[i]);
	s->v[i] = s->v[--s->n];
}

void ps__look(struct ps *s)
{
	for (size_t i = s->n; i-- > 0;) {
		struct entry *e = s->v[i];
		uint64_t now = clock__monotonic();
		int err = e->t ? read_process(e, now) : read_rss_only(e, now);

		if (err)
			drop_entry(s, i);
	}
	read_gpus(s);
}

size_t ps__on_gpus(const struct ps *s, struct holder_torch *v, size_t most)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct watch_target *t = s->v[i]->t;

		for (size_t d = 0; s->v[i]->p.has_allocator && d < t->n_devices; d++) {
			int gpu = t->smi ? nvml__gpu(t->smi, (unsigned)d) : -1;

			if (gpu < 0 || n == most)
				continue;
			v[n++] = (struct holder_torch){ t->pid, (uint32_t)gpu,
							t->devices[d].now.allocated,
							t->devices[d].now.reserved };
		}
	}
	return n;
}

uint64_t ps_process__device(const struct ps_process *p)
{
	return p->used_known ? p->used : p->reserved;
}

/* For qsort(): device memory, then RSS, both largest first, then the PID. */
static int by_memory(const void *a, const void *b)
{
	const struct ps_process *x = *(const struct ps_process *const *)a;
	const struct ps_process *y = *(const struct ps_process *const *)b;

	if (ps_process__device(x) != ps_process__device(y))
		return ps_process__device(x) < ps_process__device(y) ? 1 : -1;
	if (x->rss != y->rss)
		return x->rss < y->rss ? 1 : -1;
	return x->pid < y->pid ? -1 : 1;
}

const struct ps_process *const *ps__list(struct ps *s, size_t *n)
{
	for (size_t i = 0; i < s->n; i++)
		s->list[i] = &s->v[i]->p;
	qsort(s->list, s->n, sizeof(*s->list), by_memory);
	*n = s->n;
	return s->list;
}
