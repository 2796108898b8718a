/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/decoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/autograd.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/modules.h"
#include "capture/decode/neighbours_stage.h"
#include "capture/decode/oom_tensors.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/hostmem.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "record/detail.h"

#define MAX_STACK_IDS (1u << 19) /* entries of d->stacks; d->old_stacks has as many */

struct decoder *decoder__new(const struct session_opts *opts, struct target *target,
			     struct probes *probes, struct dict *dict, struct facts *facts)
{
	struct decoder *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->opts = opts;
	d->target = target;
	d->probes = probes;
	d->dict = dict;
	d->facts = facts;
	d->names = symbolizer__new(dict, target->has_slot ? target->python : NULL);
	d->stacks = map64__new();
	d->outer = map64__new();
	d->old_stacks = map64__new();
	d->old_outer = map64__new();
	d->roots = map64__new();
	d->old_roots = map64__new();
	d->root_names = map64__new();
	d->threads = map64__new();
	if (d->names && d->stacks && d->outer && d->old_stacks && d->old_outer && d->roots &&
	    d->old_roots && d->root_names && d->threads)
		return d;
	decoder__free(d);
	return NULL;
}

void decoder__free(struct decoder *d)
{
	if (!d)
		return;
	cuda_calls__free(d->calls);
	autograd__free(d->autograd);
	modules__free(d->modules);
	native_stacks__free(d->native);
	oom_tensors__free(d->oom);
	neighbours_stage__free(d->neighbours);
	host_memory__free(d->host);
	symbolizer__free(d->names);
	map64__free(d->stacks);
	map64__free(d->outer);
	map64__free(d->old_stacks);
	map64__free(d->old_outer);
	map64__free(d->roots);
	map64__free(d->old_roots);
	map64__free(d->root_names);
	map64__free(d->threads);
	map64__free(d->changed);
	free(d->thread);
	free(d);
}

/*
 * True for the second record of a hit. While the sleepable programs take over, both sets run and
 * record each hit, one right after the other on its thread. The kernel calls a probe's programs
 * from the youngest to the oldest, so the sleepable program's record comes first. The other one is
 * dropped, unless the first was lost.
 */
static bool is_twin(struct decoder *d, struct thread *t, const struct mt_rec_mem *r)
{
	bool same;

	if (r->h.time > probes__both_until(d->probes))
		return false;
	if (r->h.sleepable) {
		t->first_twin = *r;
		t->expects_twin = true;
		return false;
	}
	same = t->expects_twin && t->first_twin.h.type == r->h.type &&
	       t->first_twin.addr == r->addr && t->first_twin.size == r->size &&
	       t->first_twin.allocated == r->allocated;
	t->expects_twin = false;
	d->twins += same;
	return same;
}

/* The dictionary's stack for allocations that were left without a stack walk, to save time
 * (COST_SAMPLED). UINT32_MAX: out of memory. */
static uint32_t unsampled_stack(struct decoder *d)
{
	if (!d->not_sampled)
		d->not_sampled = decoder__named_stack(d, DETAIL_FILE, DETAIL_FUNCTION);
	return d->not_sampled;
}

/* Sets e->stack and e->walk from the event's record. 0 or -ENOMEM. */
static int set_stack(struct decoder *d, const struct mt_rec_mem *r, struct event *e)
{
	if (r->h.walk != MT_WALK_NOT_SAMPLED) {
		e->stack = decoder__stack(d, r->stack, &e->walk);
		return 0;
	}
	e->walk = MT_WALK_OFF;
	e->stack = unsampled_stack(d);
	return e->stack == UINT32_MAX ? -ENOMEM : 0;
}

/* True if r reports the CPU memory that the thread's last record was about. With its profiler on,
 * PyTorch reports CPU memory a second time, right after New and Delete. */
static bool is_second_cpu_report(struct thread *t, const struct mt_rec_mem *r)
{
	bool same = t->cpu_addr && t->cpu_addr == r->addr &&
		    (r->size == t->cpu_size || (r->size < 0 && t->cpu_size < 0));

	t->cpu_addr = 0;
	return same;
}

/* Decodes an allocation, a free (its size is negative) or an out of memory. */
static int on_mem(struct decoder *d, const struct mt_rec_mem *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .walk = r->h.walk, .addr = r->addr };
	int err;

	if (!t)
		return -ENOMEM;
	if (is_twin(d, t, r))
		return 0;
	if (!r->size && r->h.type != MT_REC_OOM)
		return 0; /* an empty tensor has no memory */
	d->has_memory = true;
	if (r->h.type != MT_REC_CPU_NEW)
		e.device = (struct device){ .type = r->device & 0xff, .index = r->device >> 8 };
	if (e.device.type == DEVICE_CPU) {
		e.device.index = 0;
		if (r->h.type == MT_REC_REPORT && is_second_cpu_report(t, r))
			return 0;
		if (r->h.type == MT_REC_CPU_NEW) {
			t->cpu_addr = r->addr;
			t->cpu_size = r->size;
		}
	}
	if (e.device.type == DEVICE_CUDA && r->h.type == MT_REC_REPORT && r->size > 0 &&
	    e.device.index < DEVICE_UNKNOWN)
		/* PyTorch allocates on the thread's current device. */
		t->cuda_device_no = e.device.index + 1;
	e.kind = r->size < 0 ? EVENT_FREE : EVENT_ALLOC;
	if (r->h.type == MT_REC_OOM) {
		e.kind = EVENT_OOM;
		t->refused = 0; /* the allocator gave up */
	}
	e.size = e.kind == EVENT_FREE ? -(uint64_t)r->size : (uint64_t)r->size;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	if (e.device.type != DEVICE_CPU) {
		e.totals = true;
		e.allocated = r->allocated;
		e.reserved = r->reserved;
	}
	if (e.reserved)
		cuda_calls__in_use(d, e.device.index);
	if (e.kind != EVENT_FREE) {
		if (set_stack(d, r, &e) || autograd__node(d, t, &r->h, &e.node))
			return -ENOMEM;
		err = decoder__join_native(d, r->h.tid, r->h.time, &e.stack, &e.walk);
		if (err)
			return err;
		err = modules__seen(d, &r->h, r->stack);
		if (err)
			return err;
	}
	if (e.kind == EVENT_OOM) {
		cuda_calls__used_soon(d);
		/* The facts first: a window's file is written at the event. */
		if (oom_tensors__failed(d, &r->h, e.time) ||
		    neighbours_stage__failed(d, e.device, e.time))
			return -ENOMEM;
	}
	return decoder__emit(d, &e);
}

static int on_cpu_delete(struct decoder *d, const struct mt_rec_free *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_FREE, .addr = r->addr };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	t->cpu_addr = r->addr;
	t->cpu_size = -1;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	return decoder__emit(d, &e);
}

/* A block of malloc's sample stands for all bytes of its size: on average for `every` bytes. Its
 * error follows as its requested bytes, in the form of sampling__pieces(). */
static int on_malloc(struct decoder *d, const struct mt_rec_malloc *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_ALLOC,
			   .device = { .type = DEVICE_MALLOC },
			   .walk = r->h.walk,
			   .addr = r->addr,
			   .size = r->size > r->every ? r->size : r->every };
	int err;

	if (!t)
		return -ENOMEM;
	if (!r->addr || r->size > MT_MALLOC_MAX || decoder__since(d, r->h.time) > d->same_until)
		return 0;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.stack = decoder__stack(d, r->stack, &e.walk);
	err = decoder__join_native(d, r->h.tid, r->entered, &e.stack, &e.walk);
	if (err)
		return err;
	err = decoder__emit(d, &e);
	if (err || r->size >= r->every)
		return err;
	e = (struct event){ .kind = EVENT_REQUESTED,
			    .device = e.device,
			    .thread = e.thread,
			    .time = e.time,
			    .addr = r->addr,
			    .requested = r->every - r->size };
	return decoder__emit(d, &e);
}

static int on_malloc_free(struct decoder *d, const struct mt_rec_free *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_FREE,
			   .device = { .type = DEVICE_MALLOC },
			   .addr = r->addr };

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	return e.time > d->same_until ? 0 : decoder__emit(d, &e);
}

/*
 * True as long as the probes on allocations are not attached: probes are attached one after the
 * other. Steps of that time are not recorded, since their allocations were not seen.
 */
static bool is_before_alloc_probes(const struct decoder *d, const struct mt_hdr *h)
{
	return h->time < d->start && !d->has_memory;
}

/* If as many steps as the user requested are complete, sets d->cut, so that later events are
 * dropped. 0 or -ENOMEM. */
static int end_if_complete(struct decoder *d, uint64_t time)
{
	if (!d->opts->steps || decoder__steps(d) < d->opts->steps)
		return 0;
	d->changed = map64__new();
	d->cut = time + !time; /* 0 would mean that the steps are not complete */
	return d->changed ? 0 : -ENOMEM;
}

static int on_mark(struct decoder *d, const struct mt_rec_mark *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .time = decoder__since(d, r->h.time), .walk = r->h.walk };
	/* compared by is_twin() without the stack, which the two programs may have read
	 * differently */
	struct mt_rec_mem as_mem = { .h = r->h };
	bool ends_step;
	int err;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	if (is_twin(d, t, &as_mem))
		return 0;
	e.stack = decoder__mark_stack(d, r->stack, &e.walk, &ends_step);
	if (!ends_step || is_before_alloc_probes(d, &r->h))
		return 0;
	if (d->on_step)
		d->on_step(d->on_step_ctx, e.time);
	if (d->cut)
		return 0;
	e.kind = EVENT_STEP;
	d->steps++;
	step_clock__ended(&d->clock, d->facts, &e);
	err = decoder__emit(d, &e);
	return err ?: end_if_complete(d, e.time);
}

/* Emits the call of a root module. Steps may be counted by calls: then a step ends when the next
 * call begins, and the call that ends the last requested step is not emitted. */
static int emit_call(struct decoder *d, const struct event *e)
{
	bool by_calls = d->clock.by_calls;
	int err = 0;

	if (step_clock__ended(&d->clock, d->facts, e) && d->opts->steps && !d->cut) {
		if (!by_calls)
			log_info("PID %d: no optimizer: --steps counts calls of the model",
				 (int)proc__pid(d->target->proc));
		err = end_if_complete(d, e->time);
	}
	return err ?: decoder__emit(d, e);
}

enum root_kind { ROOT_UNKNOWN, ROOT_MODEL, ROOT_NO_TENSORS };

/* Whether a root module has tensors. Reads that from the process, unless it is known to be a
 * model. */
static enum root_kind root_kind(struct decoder *d, uint64_t self)
{
	uint64_t kind = ROOT_UNKNOWN;
	int tensors;

	map64__get(d->roots, self, &kind);
	/* Read other kinds again: another module may have the address now. */
	if (kind == ROOT_MODEL)
		return kind;
	tensors = symbolizer__has_tensors(d->names, self);
	if (tensors >= 0)
		kind = tensors ? ROOT_MODEL : ROOT_NO_TENSORS;
	d->tensor_root |= kind == ROOT_MODEL;
	map64__set(d->roots, self, kind);
	return kind;
}

/* Emits the call of a root module. If there is a model, a root without tensors is a loss or a
 * metric, and its calls do not count. */
static int emit_call_of_root(struct decoder *d, const struct mt_hdr *h, const struct event *e,
			     uint64_t self)
{
	struct thread *t;

	if (is_before_alloc_probes(d, h) ||
	    (root_kind(d, self) == ROOT_NO_TENSORS && d->tensor_root))
		return 0;
	t = decoder__thread(d, h->tid);
	if (!t)
		return -ENOMEM;
	autograd__called(d, t, self);
	return emit_call(d, e);
}

/* Handles a call of the function that bound methods of modules run. Its stack tells whether a root
 * module is called: then it begins with the call of its only module. Other callers of the
 * function, and modules within a root's call, are ignored. */
static int on_bound_call(struct decoder *d, const struct mt_rec_enter *r, struct event e)
{
	uint64_t stack_entry, self = decoder__outer_module(d, r->stack);
	int err;

	if (!self || !map64__get(d->stacks, r->stack, &stack_entry) ||
	    !(stack_entry & STACK_BEGINS))
		return 0;
	e.module = symbolizer__root(d->names, self);
	err = emit_call_of_root(d, &r->h, &e, self);
	return err ?: modules__bound(d, r, self, e.module);
}

/*
 * Emits EVENT_CALL for root modules, which steps may be counted by; then the modules' own events.
 */
static int on_call(struct decoder *d, const struct mt_rec_enter *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_CALL, .time = decoder__since(d, r->h.time) };
	uint64_t unused;
	int err;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	err = modules__left(d, &r->h, r->keep);
	if (err)
		return err;
	if (r->depth == MT_DEPTH_BOUND)
		return on_bound_call(d, r, e);
	if (map64__get(d->roots, r->self, &unused)) {
		e.module = symbolizer__root(d->names, r->self);
		err = emit_call_of_root(d, &r->h, &e, r->self);
		if (err)
			return err;
	}
	return modules__entered(d, r);
}

static void swap_maps(struct map64 **a, struct map64 **b)
{
	struct map64 *old_a = *a;

	*a = *b;
	*b = old_a;
}

/* Modules that are still called become roots again when their stacks are sent again. */
void decoder__forget_roots(struct decoder *d)
{
	probes__clear_roots(d->probes, d->opts->number);
	swap_maps(&d->roots, &d->old_roots);
	map64__clear(d->roots);
	modules__forget(d);
	probes__bump_epoch(d->probes);
}

/* Emits the call that made a module a root, if it counts: no record reported that call, only its
 * stack. It counts if the module is another one of the same name as an earlier root, since the
 * program may make a model for each request. The first root of a name may have been called before
 * the attach. */
static int emit_first_call(struct decoder *d, const struct mt_rec_stack *r, uint64_t self)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_CALL, .time = decoder__since(d, r->h.time) };
	uint64_t unused;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	e.module = symbolizer__root(d->names, self);
	if (!e.module || symbolizer__is_part(d->names, self) ||
	    map64__get(d->old_roots, self, &unused))
		return 0;
	if (map64__get(d->root_names, e.module, &unused))
		return emit_call_of_root(d, &r->h, &e, self);
	return map64__set(d->root_names, e.module, 1);
}

/* Makes the programs report the calls of a module, the outermost one of stack r. Without room for
 * it, does nothing. 0, -ENOMEM or the sink's error. */
static int add_root(struct decoder *d, const struct mt_rec_stack *r, uint64_t self)
{
	uint64_t unused;

	if (map64__get(d->roots, self, &unused))
		return 0;
	if (probes__add_root(d->probes, d->opts->number, self)) {
		/* Empty the table, which is full, mostly of modules that are gone. */
		decoder__forget_roots(d);
		if (probes__add_root(d->probes, d->opts->number, self))
			return 0;
	}
	root_kind(d, self);
	if (!decoder__is_probed(d, HOOK_MODULE_CALL))
		target__attach_optional(d->target, d->probes, HOOK_MODULE_CALL);
	return emit_first_call(d, r, self);
}

/* True if the stack has one module and ends in the code that begins its call: _call_impl, and in
 * PyTorch 2.1 and later _wrapped_call_impl around it. */
static bool begins_call(const struct decoder *d, const struct named_stack *ns)
{
	return ns->modules == 1 && ns->root_at == (d->target->module_self_in_cell ? 1 : 2);
}

/* Names a stack and keeps its number for later records, which have only its id. */
static int on_stack(struct decoder *d, const struct mt_rec_stack *r)
{
	struct named_stack ns;
	uint64_t entry;
	int err;

	if (decoder__knows_stack(d, r->stack)) {
		d->stacks_again++;
		return 0;
	}
	err = symbolizer__stack(d->names, r, &ns);
	if (err)
		return err;
	if (map64__count(d->stacks) >= MAX_STACK_IDS) {
		/* Most of these are of past epochs; stacks in use are sent again. */
		swap_maps(&d->stacks, &d->old_stacks);
		swap_maps(&d->outer, &d->old_outer);
		map64__clear(d->stacks);
		map64__clear(d->outer);
		probes__bump_epoch(d->probes);
	}
	if (ns.root) {
		err = add_root(d, r, ns.root);
		if (err)
			return err;
		if (map64__set(d->outer, r->stack, ns.root))
			return -ENOMEM;
	}
	entry = ns.stack;
	if (ns.optimizer_exit)
		entry |= STACK_OPTIMIZER_EXIT;
	if (ns.whole)
		entry |= STACK_WHOLE;
	if (begins_call(d, &ns))
		entry |= STACK_BEGINS;
	return map64__set(d->stacks, r->stack, entry);
}

/* The smallest size of a record of this type in bytes; 0: no such type. */
static size_t min_record_size(uint8_t type)
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
		[MT_REC_HOST] = sizeof(struct mt_rec_host),
		[MT_REC_NATIVE] = sizeof(struct mt_rec_native),
		[MT_REC_MALLOC] = sizeof(struct mt_rec_malloc),
		[MT_REC_MALLOC_FREE] = sizeof(struct mt_rec_free),
		[MT_REC_TENSOR] = sizeof(struct mt_rec_tensor),
	};

	return type < sizeof(sizes) / sizeof(*sizes) ? sizes[type] : 0;
}

bool decoder__is_record(const void *rec, size_t len)
{
	const struct mt_rec_stack *r = rec;

	if (len < sizeof(r->h) || !min_record_size(r->h.type) || len < min_record_size(r->h.type))
		return false;
	return r->h.type != MT_REC_STACK ||
	       (r->n <= MT_MAX_ENTRIES && len >= sizeof(*r) + r->n * sizeof(struct mt_frame));
}

/* Calls the function for the type of record. */
int decoder__record(struct decoder *d, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;
	const struct mt_rec_gone *gone;

	if (!decoder__is_record(rec, len))
		return -EBADMSG;
	d->record_time = h->time;
	switch (h->type) {
	case MT_REC_REPORT:
	case MT_REC_OOM:
	case MT_REC_CPU_NEW:
		return on_mem(d, rec);
	case MT_REC_CPU_DELETE:
		return on_cpu_delete(d, rec);
	case MT_REC_STACK:
		return on_stack(d, rec);
	case MT_REC_CODE_GONE:
		gone = rec;
		code_cache__passed(symbolizer__codes(d->names), gone->code, gone->epoch);
		return 0;
	case MT_REC_SCOPE_END:
		return on_mark(d, rec);
	case MT_REC_MODULE_CALL:
		return on_call(d, rec);
	case MT_REC_MODULE_LEAVE:
		return modules__left(d, rec, ((const struct mt_rec_leave *)rec)->keep);
	case MT_REC_CUDA_CALL:
		return cuda_calls__record(d, rec);
	case MT_REC_SET_DEVICE:
		return cuda_calls__set_device(d, rec);
	case MT_REC_REQUESTED:
		return cuda_calls__asked(d, rec);
	case MT_REC_EDGE:
		return autograd__made(d, rec);
	case MT_REC_NODE:
		return autograd__runs(d, rec);
	case MT_REC_NATIVE:
		return d->native ? native_stacks__record(d->native, rec, len) : 0;
	case MT_REC_TENSOR:
		return oom_tensors__record(d, rec);
	case MT_REC_MALLOC:
		return on_malloc(d, rec);
	case MT_REC_MALLOC_FREE:
		return on_malloc_free(d, rec);
	case MT_REC_HOST:
		return decoder__since(d, h->time) > d->same_until
			       ? 0
			       : host_memory__record(d->host, rec);
	}
	return -EBADMSG;
}
