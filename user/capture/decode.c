/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the kernel side's records mean: events for the sinks, stacks, ends of code objects. */
#include "capture/session_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "capture/autograd.h"
#include "capture/code_cache.h"
#include "capture/cuda_calls.h"
#include "capture/modules.h"
#include "capture/symbolizer.h"
#include "lib/map64.h"
#include "process/proc.h"
#include "record/dict.h"

#define MAX_STACK_IDS (1u << 19) /* and as many older ones */
#define MAX_THREADS (1u << 16)	 /* remembered at a time */
#define LOOKED_AT 64		 /* threads, each second */
#define OPTIMIZER_EXIT (1ULL << 32)
#define WHOLE (1ULL << 33) /* all frames and modules of it are named */

int session__emit(struct session *s, const struct event *e)
{
	int err = session__census_sees(s, e);

	return err || s->cut ? err : session__through_state(s, e);
}

int session__dispatch(struct session *s, const struct event *e)
{
	size_t i;
	int err;

	s->events += event__counts(e);
	for (i = 0; i < s->n_sinks; i++) {
		err = s->sinks[i]->event(s->sinks[i], e);
		if (err)
			return err;
	}
	return 0;
}

/* Has a thread that ended left its number to another one? */
static bool is_another(const struct session *s, const struct thread *t)
{
	uint64_t started;

	return t->gone && !proc__thread_started(s->target.proc, t->tid, &started) &&
	       started != t->started;
}

void session__look_at_threads(struct session *s)
{
	uint64_t started;
	size_t i;

	for (i = 0; i < s->n_threads && i < LOOKED_AT; i++) {
		struct thread *t = &s->thread[s->next_thread++ % s->n_threads];

		if (!t->gone)
			t->gone = proc__thread_started(s->target.proc, t->tid, &started) ||
				  started != t->started;
	}
}

struct thread *session__thread(struct session *s, uint32_t tid)
{
	char name[32] = "";
	struct dict_thread t = { .tid = tid };
	uint64_t i;

	if (map64__get(s->threads, tid, &i)) {
		if (!is_another(s, &s->thread[i]))
			return &s->thread[i];
		map64__del(s->threads, tid, NULL);
	}
	if (s->n_threads == MAX_THREADS) {
		/* Most of them have ended; who has not is asked for the name again. */
		map64__clear(s->threads);
		s->n_threads = 0;
		s->threads_forgotten = true;
	}
	if (s->n_threads == s->cap_threads) {
		size_t cap = s->cap_threads ? s->cap_threads * 2 : 64;
		struct thread *v = realloc(s->thread, cap * sizeof(*v));

		if (!v)
			return NULL;
		s->thread = v;
		s->cap_threads = cap;
	}
	if (proc__thread_comm(s->target.proc, tid, name, sizeof(name)))
		name[0] = '\0';
	t.name = symbolizer__number(s->names, dict__string(s->dict, name, strlen(name)));
	i = s->n_threads;
	s->thread[i] = (struct thread){ .tid = tid };
	if (proc__thread_started(s->target.proc, tid, &s->thread[i].started))
		s->thread[i].started = 0;
	if (s->from_start && !s->threads_forgotten)
		s->thread[i].cuda_device = 1; /* every thread begins with device 0 */
	if (t.name != UINT32_MAX)
		s->thread[i].number = symbolizer__number(s->names, dict__thread(s->dict, t));
	if (t.name == UINT32_MAX || s->thread[i].number == UINT32_MAX ||
	    map64__set(s->threads, tid, i))
		return NULL;
	s->n_threads++;
	return &s->thread[i];
}

uint64_t session__since(const struct session *s, uint64_t t)
{
	return t > s->start ? t - s->start : 0;
}

/*
 * While the sleepable programs take over, both sets run and a hit is recorded twice in a row on its
 * thread. Theirs comes first: the kernel calls a probe's programs from the youngest to the oldest.
 * So what an older program says right after the sleepable one on the same thread, of the same
 * thing, is dropped; where the first of the two was lost for want of room it is not.
 */
static bool is_twin(struct session *s, struct thread *t, const struct mt_rec_mem *r)
{
	bool same;

	if (r->h.time > probes__both_until(s->probes))
		return false;
	if (r->h.sleepable) {
		t->first = *r;
		t->first_open = true;
		return false;
	}
	same = t->first_open && t->first.h.type == r->h.type && t->first.addr == r->addr &&
	       t->first.size == r->size && t->first.allocated == r->allocated;
	t->first_open = false;
	s->twins += same;
	return same;
}

/* The dict's stack for an event; takes the walk's outcome along when the frames never came. */
static uint32_t event_stack(struct session *s, uint64_t id, uint8_t *walk, bool *optimizer_exit)
{
	uint64_t v;

	if (optimizer_exit)
		*optimizer_exit = false;
	if (!id)
		return 0;
	if (!map64__get(s->stacks, id, &v) && !map64__get(s->old_stacks, id, &v)) {
		s->unknown_stacks++;
		*walk = MT_WALK_LOST;
		return 0;
	}
	if (optimizer_exit)
		*optimizer_exit = v & OPTIMIZER_EXIT;
	if (!(uint32_t)v)
		*walk = MT_WALK_LOST; /* the dict has no room for it */
	return (uint32_t)v;
}

uint32_t session__stack(struct session *s, uint64_t id, uint8_t *walk)
{
	return event_stack(s, id, walk, NULL);
}

/* With its profiler on, PyTorch reports CPU memory a second time, right after New and Delete. */
static bool repeats_cpu(struct thread *t, const struct mt_rec_mem *r)
{
	bool same = t->said && t->said == r->addr &&
		    (r->size == t->said_size || (r->size < 0 && t->said_size < 0));

	t->said = 0;
	return same;
}

static int on_mem(struct session *s, const struct mt_rec_mem *r)
{
	struct thread *t = session__thread(s, r->h.tid);
	struct event e = { .walk = r->h.walk, .addr = r->addr };

	if (!t)
		return -ENOMEM;
	if (is_twin(s, t, r))
		return 0;
	if (!r->size && r->h.type != MT_REC_OOM)
		return 0; /* an empty tensor: no memory */
	if (r->h.type != MT_REC_CPU_NEW)
		e.device = (struct device){ .type = r->device & 0xff, .index = r->device >> 8 };
	if (e.device.type == DEVICE_CPU) {
		e.device.index = 0;
		if (r->h.type == MT_REC_REPORT && repeats_cpu(t, r))
			return 0;
		if (r->h.type == MT_REC_CPU_NEW) {
			t->said = r->addr;
			t->said_size = r->size;
		}
	}
	if (e.device.type == DEVICE_CUDA && r->h.type == MT_REC_REPORT && r->size > 0 &&
	    e.device.index < DEVICE_UNKNOWN)
		/* allocations are made on the current device */
		t->cuda_device = e.device.index + 1;
	e.totals = e.device.type != DEVICE_CPU;
	e.kind = r->h.type == MT_REC_OOM ? EVENT_OOM : r->size < 0 ? EVENT_FREE : EVENT_ALLOC;
	e.size = r->size < 0 && e.kind == EVENT_FREE ? -(uint64_t)r->size : (uint64_t)r->size;
	e.thread = t->number;
	e.time = session__since(s, r->h.time);
	e.allocated = e.totals ? r->allocated : 0;
	e.reserved = e.totals ? r->reserved : 0;
	if (e.reserved)
		cuda_calls__in_use(s, e.device.index);
	if (e.kind != EVENT_FREE) {
		e.stack = event_stack(s, r->stack, &e.walk, NULL);
		if (autograd__node(s, t, &r->h, &e.node))
			return -ENOMEM;
	}
	if (e.kind == EVENT_OOM)
		cuda_calls__used_soon(s);
	return session__emit(s, &e);
}

static int on_cpu_delete(struct session *s, const struct mt_rec_free *r)
{
	struct thread *t = session__thread(s, r->h.tid);
	struct event e = { .kind = EVENT_FREE, .addr = r->addr };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	t->said = r->addr;
	t->said_size = -1;
	e.thread = t->number;
	e.time = session__since(s, r->h.time);
	return session__emit(s, &e);
}

static int on_mark(struct session *s, const struct mt_rec_mark *r)
{
	struct thread *t = session__thread(s, r->h.tid);
	struct event e = { .time = session__since(s, r->h.time), .walk = r->h.walk };
	/* not the stack: the older program may not have got all of it */
	struct mt_rec_mem as_mem = { .h = r->h };
	bool step;
	int err;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	if (is_twin(s, t, &as_mem))
		return 0;
	e.stack = event_stack(s, r->stack, &e.walk, &step);
	if (!step)
		return 0;
	if (s->cut)
		return 0;
	e.kind = EVENT_STEP;
	s->steps++;
	err = session__emit(s, &e);
	if (s->opts.steps && session__steps(s) >= s->opts.steps)
		s->cut = e.time + !e.time;
	return err;
}

/* A module is called: where steps are counted by it, and where somebody asks for all of them. */
static int on_call(struct session *s, const struct mt_rec_enter *r)
{
	struct thread *t = session__thread(s, r->h.tid);
	struct event e = { .kind = EVENT_CALL, .time = session__since(s, r->h.time) };
	uint64_t v;
	int err;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	err = modules__left(s, &r->h, r->keep);
	if (!err && map64__get(s->roots, r->self, &v)) {
		e.module = symbolizer__root(s->names, r->self);
		err = session__emit(s, &e);
	}
	return err ?: modules__entered(s, r);
}

/* Those in use come back with their stacks, which are all sent again. */
void session__forget_roots(struct session *s)
{
	probes__clear_roots(s->probes, s->opts.number);
	map64__clear(s->roots);
	modules__forget(s);
	probes__bump_epoch(s->probes);
}

/* A root module was seen: from now on its calls are reported. */
static void add_root(struct session *s, uint64_t self)
{
	uint64_t v;

	if (map64__get(s->roots, self, &v))
		return;
	if (probes__add_root(s->probes, s->opts.number, self)) {
		/* No room: most are of models that are gone. */
		session__forget_roots(s);
		if (probes__add_root(s->probes, s->opts.number, self))
			return;
	}
	map64__set(s->roots, self, 1);
	if (!probes__attached(s->probes, HOOK_MODULE_CALL))
		session__attach_optional(s, HOOK_MODULE_CALL);
}

static void swap(struct map64 **a, struct map64 **b)
{
	struct map64 *was = *a;

	*a = *b;
	*b = was;
}

bool session__knows_stack(const struct session *s, uint64_t id)
{
	uint64_t v;

	return map64__get(s->stacks, id, &v) && v & WHOLE;
}

static int on_stack(struct session *s, const struct mt_rec_stack *r, size_t len)
{
	struct named_stack ns;
	int err;

	if (r->n > MT_MAX_ENTRIES || len < sizeof(*r) + r->n * sizeof(struct mt_frame))
		return -EBADMSG;
	if (session__knows_stack(s, r->stack)) {
		s->stacks_again++;
		return 0;
	}
	err = symbolizer__stack(s->names, r, &ns);
	if (err)
		return err;
	if (map64__count(s->stacks) >= MAX_STACK_IDS) {
		/* Ids of past epochs have piled up. Everything that is still in use is sent again. */
		swap(&s->stacks, &s->old_stacks);
		swap(&s->outer, &s->old_outer);
		map64__clear(s->stacks);
		map64__clear(s->outer);
		probes__bump_epoch(s->probes);
	}
	if (ns.root) {
		add_root(s, ns.root);
		if (map64__set(s->outer, r->stack, ns.root))
			return -ENOMEM;
	}
	return map64__set(s->stacks, r->stack,
			  ns.stack | (ns.optimizer_exit ? OPTIMIZER_EXIT : 0) |
				  (ns.whole ? WHOLE : 0));
}

static int on_gone(struct session *s, const struct mt_rec_gone *r)
{
	code_cache__passed(symbolizer__codes(s->names), r->code, r->epoch);
	return 0;
}

/* The least that a record of each type has; 0: no such type. */
static size_t size_of(uint8_t type)
{
	static const size_t sizes[] = {
		[MT_REC_REPORT] = sizeof(struct mt_rec_mem),
		[MT_REC_OOM] = sizeof(struct mt_rec_mem),
		[MT_REC_CPU_NEW] = sizeof(struct mt_rec_mem),
		[MT_REC_CPU_DELETE] = sizeof(struct mt_rec_free),
		[MT_REC_STACK] = sizeof(struct mt_rec_stack),
		[MT_REC_CODE_GONE] = sizeof(struct mt_rec_gone),
		[MT_REC_SCOPE_END] = sizeof(struct mt_rec_mark),
		[MT_REC_MODULE_CALL] = sizeof(struct mt_rec_enter),
		[MT_REC_MODULE_LEAVE] = sizeof(struct mt_rec_leave),
		[MT_REC_CUDA_CALL] = sizeof(struct mt_rec_call),
		[MT_REC_SET_DEVICE] = sizeof(struct mt_rec_call),
		[MT_REC_REQUESTED] = sizeof(struct mt_rec_asked),
		[MT_REC_EDGE] = sizeof(struct mt_rec_node),
		[MT_REC_NODE] = sizeof(struct mt_rec_node),
	};

	return type < sizeof(sizes) / sizeof(*sizes) ? sizes[type] : 0;
}

int session__record(struct session *s, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;

	if (len < sizeof(*h) || !size_of(h->type) || len < size_of(h->type))
		return -EBADMSG;
	switch (h->type) {
	case MT_REC_REPORT:
	case MT_REC_OOM:
	case MT_REC_CPU_NEW:
		return on_mem(s, rec);
	case MT_REC_CPU_DELETE:
		return on_cpu_delete(s, rec);
	case MT_REC_STACK:
		return on_stack(s, rec, len);
	case MT_REC_CODE_GONE:
		return on_gone(s, rec);
	case MT_REC_SCOPE_END:
		return on_mark(s, rec);
	case MT_REC_MODULE_CALL:
		return on_call(s, rec);
	case MT_REC_MODULE_LEAVE:
		return modules__left(s, rec, ((const struct mt_rec_leave *)rec)->keep);
	case MT_REC_CUDA_CALL:
		return cuda_calls__record(s, rec);
	case MT_REC_SET_DEVICE:
		return cuda_calls__set_device(s, rec);
	case MT_REC_REQUESTED:
		return cuda_calls__asked(s, rec);
	case MT_REC_EDGE:
		return autograd__made(s, rec);
	case MT_REC_NODE:
		return autograd__runs(s, rec);
	}
	return -EBADMSG;
}
