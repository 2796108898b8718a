/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/decoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map64.h"
#include "capture/cost/step_cost.h"
#include "capture/decode/autograd.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/modules.h"
#include "capture/decode/neighbours_stage.h"
#include "capture/decode/oom_tensors.h"
#include "capture/decode/phases.h"
#include "capture/decode/symbolizer.h"
#include "capture/decode/probed_scopes.h"
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
	struct decoder *decoder = calloc(1, sizeof(*decoder));

	if (!decoder)
		return NULL;
	decoder->opts = opts;
	decoder->target = target;
	decoder->probes = probes;
	decoder->dict = dict;
	decoder->facts = facts;
	decoder->names = symbolizer__new(dict, target->has_slot ? target->python : NULL);
	decoder->stacks = map64__new();
	decoder->outer = map64__new();
	decoder->old_stacks = map64__new();
	decoder->old_outer = map64__new();
	decoder->roots = map64__new();
	decoder->old_roots = map64__new();
	decoder->root_names = map64__new();
	decoder->threads = map64__new();
	decoder->phases = phases__new(decoder);
	decoder->probed = probed_scopes__new(decoder);
	if (decoder->names && decoder->stacks && decoder->outer && decoder->old_stacks &&
	    decoder->old_outer && decoder->roots && decoder->old_roots && decoder->root_names &&
	    decoder->threads && decoder->phases && decoder->probed)
		return decoder;
	decoder__free(decoder);
	return NULL;
}

void decoder__free(struct decoder *decoder)
{
	if (!decoder)
		return;
	cuda_calls__free(decoder->calls);
	autograd__free(decoder->autograd);
	modules__free(decoder->modules);
	native_stacks__free(decoder->native);
	oom_tensors__free(decoder->oom);
	neighbours_stage__free(decoder->neighbours);
	host_memory__free(decoder->host);
	phases__free(decoder->phases);
	probed_scopes__free(decoder->probed);
	symbolizer__free(decoder->names);
	map64__free(decoder->stacks);
	map64__free(decoder->outer);
	map64__free(decoder->old_stacks);
	map64__free(decoder->old_outer);
	map64__free(decoder->roots);
	map64__free(decoder->old_roots);
	map64__free(decoder->root_names);
	map64__free(decoder->threads);
	map64__free(decoder->changed);
	free(decoder->thread);
	free(decoder);
}

/*
 * True for the second record of a hit. While the sleepable programs take over, both sets run and
 * record each hit, one right after the other on its thread. The kernel calls a probe's programs
 * from the youngest to the oldest, so the sleepable program's record comes first. The other one is
 * dropped, unless the first was lost.
 */
static bool is_twin(struct decoder *decoder, struct thread *thread, const struct mt_rec_mem *record)
{
	bool same;

	if (record->h.time > probes__both_until(decoder->probes))
		return false;
	if (record->h.sleepable) {
		thread->first_twin = *record;
		thread->expects_twin = true;
		return false;
	}
	same = thread->expects_twin && thread->first_twin.h.type == record->h.type &&
	       thread->first_twin.addr == record->addr && thread->first_twin.size == record->size &&
	       thread->first_twin.allocated == record->allocated;
	thread->expects_twin = false;
	decoder->twins += same;
	return same;
}

/* Sets event->stack for an allocation that was left without a stack walk, to save time. function:
 * the stack's; *number: its number in the dictionary, 0: none yet. 0 or -ENOMEM. */
static int set_unsampled(struct decoder *decoder, const char *function, uint32_t *number,
			 struct event *event)
{
	if (!*number)
		*number = decoder__named_stack(decoder, DETAIL_FILE, function);
	event->walk = MT_WALK_OFF;
	event->stack = *number;
	return event->stack == UINT32_MAX ? -ENOMEM : 0;
}

/* Sets event->stack and event->walk from the event's record. 0 or -ENOMEM. */
static int set_stack(struct decoder *decoder, const struct mt_rec_mem *record, struct event *event)
{
	if (record->h.walk == MT_WALK_NOT_SAMPLED)
		return set_unsampled(decoder, DETAIL_FUNCTION, &decoder->not_sampled, event);
	event->stack = decoder__stack(decoder, record->stack, &event->walk);
	return 0;
}

/* True if the allocation belongs to a step without detail (step_cost.h). Then it has no stack, even
 * if the programs, which change in the middle of a step, have read one: lines and their growth are
 * of whole steps. */
static bool is_between(const struct decoder *decoder, const struct mt_rec_mem *record)
{
	const struct step_cost *s = decoder->step_cost;

	if (!s || s->mode == STEP_COST_ALL || record->h.type == MT_REC_OOM)
		return false;
	return !s->detailed || record->h.walk == MT_WALK_NOT_SAMPLED;
}

/* True if record reports the CPU memory that the thread's last record was about. With its profiler
 * on, PyTorch reports CPU memory a second time, right after New and Delete. */
static bool is_second_cpu_report(struct thread *thread, const struct mt_rec_mem *record)
{
	bool same = thread->cpu_addr && thread->cpu_addr == record->addr &&
		    (record->size == thread->cpu_size ||
		     (record->size < 0 && thread->cpu_size < 0));

	thread->cpu_addr = 0;
	return same;
}

/* Decodes an allocation, a free (its size is negative) or an out of memory. */
static int on_mem(struct decoder *decoder, const struct mt_rec_mem *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .walk = record->h.walk, .addr = record->addr };
	int err;

	if (!thread)
		return -ENOMEM;
	if (is_twin(decoder, thread, record))
		return 0; /* the hit has been recorded already */
	if (!record->size && record->h.type != MT_REC_OOM)
		return 0; /* an empty tensor has no memory */
	decoder->has_memory = true;
	/* c10::Device: the low byte is its type, the high byte its index */
	if (record->h.type != MT_REC_CPU_NEW)
		event.device = (struct device){ .type = record->device & 0xff,
						.index = record->device >> 8 };
	if (event.device.type == DEVICE_CPU) {
		event.device.index = 0;
		if (record->h.type == MT_REC_REPORT && is_second_cpu_report(thread, record))
			return 0;
		if (record->h.type == MT_REC_CPU_NEW) {
			thread->cpu_addr = record->addr;
			thread->cpu_size = record->size;
		}
	}
	if (event.device.type == DEVICE_CUDA && record->h.type == MT_REC_REPORT &&
	    record->size > 0 && event.device.index < DEVICE_UNKNOWN)
		/* PyTorch allocates on the thread's current device. */
		thread->cuda_device_no = event.device.index + 1;
	event.kind = record->size < 0 ? EVENT_FREE : EVENT_ALLOC;
	if (record->h.type == MT_REC_OOM) {
		event.kind = EVENT_OOM;
		thread->refused = 0; /* the allocator gave up */
	}
	event.size = event.kind == EVENT_FREE ? -(uint64_t)record->size : (uint64_t)record->size;
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	if (event.device.type != DEVICE_CPU) {
		event.totals = true;
		event.allocated = record->allocated;
		event.reserved = record->reserved;
	}
	if (event.reserved)
		cuda_calls__in_use(decoder, event.device.index);
	if (event.kind != EVENT_FREE) {
		if (set_stack(decoder, record, &event) ||
		    autograd__node(decoder, thread, &record->h, &event.node))
			return -ENOMEM;
		err = decoder__join_native(decoder, record->h.tid, record->h.time, &event.stack,
					   &event.walk);
		if (err)
			return err;
		err = modules__seen(decoder, &record->h, record->stack);
		if (err)
			return err;
	}
	if (event.kind == EVENT_ALLOC && is_between(decoder, record)) {
		event.node = 0;
		if (set_unsampled(decoder, DETAIL_BETWEEN, &decoder->between_steps, &event))
			return -ENOMEM;
	}
	if (event.kind == EVENT_OOM) {
		cuda_calls__used_soon(decoder);
		/* The facts first: a window's file is written at the event. */
		if (oom_tensors__failed(decoder, &record->h, event.time) ||
		    neighbours_stage__failed(decoder, event.device, event.time))
			return -ENOMEM;
	}
	return decoder__emit(decoder, &event);
}

/* Decodes a free of CPU memory. */
static int on_cpu_delete(struct decoder *decoder, const struct mt_rec_free *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_FREE, .addr = record->addr };

	if (!thread)
		return -ENOMEM;
	if (!record->addr)
		return 0;
	thread->cpu_addr = record->addr;
	thread->cpu_size = -1;
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	return decoder__emit(decoder, &event);
}

/* A block of malloc's sample stands for all bytes of its size: on average for `every` bytes. Its
 * error follows as its requested bytes, in the form of sampling__pieces(). */
static int on_malloc(struct decoder *decoder, const struct mt_rec_malloc *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_ALLOC,
			       .device = { .type = DEVICE_MALLOC },
			       .walk = record->h.walk,
			       .addr = record->addr,
			       .size = record->size > record->every ? record->size
								    : record->every };
	int err;

	if (!thread)
		return -ENOMEM;
	if (!record->addr || record->size > MT_MALLOC_MAX ||
	    decoder__since(decoder, record->h.time) > decoder->same_until)
		return 0;
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	event.stack = decoder__stack(decoder, record->stack, &event.walk);
	err = decoder__join_native(decoder, record->h.tid, record->entered, &event.stack,
				   &event.walk);
	if (err)
		return err;
	err = decoder__emit(decoder, &event);
	if (err || record->size >= record->every)
		return err;
	event = (struct event){ .kind = EVENT_REQUESTED,
				.device = event.device,
				.thread = event.thread,
				.time = event.time,
				.addr = record->addr,
				.requested = record->every - record->size };
	return decoder__emit(decoder, &event);
}

/* Decodes the end of a block of malloc's sample. */
static int on_malloc_free(struct decoder *decoder, const struct mt_rec_free *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_FREE,
			       .device = { .type = DEVICE_MALLOC },
			       .addr = record->addr };

	if (!thread)
		return -ENOMEM;
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	return event.time > decoder->same_until ? 0 : decoder__emit(decoder, &event);
}

/*
 * True as long as the probes on allocations are not attached: probes are attached one after the
 * other. Steps of that time are not recorded, since their allocations were not seen.
 */
static bool is_before_alloc_probes(const struct decoder *decoder, const struct mt_hdr *header)
{
	return header->time < decoder->start && !decoder->has_memory;
}

/* If as many steps as the user requested are complete, sets decoder->cut, so that later events are
 * dropped. 0 or -ENOMEM. */
static int end_if_complete(struct decoder *decoder, uint64_t time)
{
	if (!decoder->opts->steps || decoder__steps(decoder) < decoder->opts->steps)
		return 0;
	decoder->changed = map64__new();
	decoder->cut = time + !time; /* 0 would mean that the steps are not complete */
	return decoder->changed ? 0 : -ENOMEM;
}

/* Decodes the end of a record_function scope: of a step, if an optimizer's step ends it. */
static int on_mark(struct decoder *decoder, const struct mt_rec_mark *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .time = decoder__since(decoder, record->h.time),
			       .walk = record->h.walk };
	/* compared by is_twin() without the stack, which the two programs may have read
	 * differently */
	struct mt_rec_mem as_mem = { .h = record->h };
	uint64_t flags;
	int err = 0;

	if (!thread)
		return -ENOMEM;
	event.thread = thread->number;
	if (is_twin(decoder, thread, &as_mem))
		return 0;
	event.stack = decoder__mark_stack(decoder, record->stack, &event.walk, &flags);
	if (flags & STACK_SCOPE_EXIT)
		err = probed_scopes__exit(decoder->probed, record->h.tid, event.time);
	if (err || !(flags & STACK_OPTIMIZER_EXIT) || is_before_alloc_probes(decoder, &record->h))
		return err;
	if (decoder->on_step)
		decoder->on_step(decoder->on_step_ctx, event.time);
	if (decoder->cut)
		return 0;
	event.kind = EVENT_STEP;
	decoder->steps++;
	step_clock__ended(&decoder->clock, decoder->facts, &event);
	err = decoder__emit(decoder, &event);
	if (decoder->step_cost)
		step_cost__ended(decoder->step_cost, event.time);
	return err ?: end_if_complete(decoder, event.time);
}

/* Emits the call of a root module. Steps may be counted by calls: then a step ends when the next
 * call begins, and the call that ends the last requested step is not emitted. */
static int emit_call(struct decoder *decoder, const struct event *event)
{
	bool by_calls = decoder->clock.by_calls,
	     ended = step_clock__ended(&decoder->clock, decoder->facts, event);
	int err = 0;

	if (ended && decoder->step_cost)
		step_cost__ended(decoder->step_cost, event->time);
	if (ended && decoder->opts->steps && !decoder->cut) {
		if (!by_calls)
			log_info("PID %d: no optimizer: --steps counts calls of the model",
				 (int)proc__pid(decoder->target->proc));
		err = end_if_complete(decoder, event->time);
	}
	return err ?: decoder__emit(decoder, event);
}

enum root_kind { ROOT_UNKNOWN, ROOT_MODEL, ROOT_NO_TENSORS };

/* Whether a root module has tensors. Reads that from the process, unless it is known to be a
 * model. */
static enum root_kind root_kind(struct decoder *decoder, uint64_t self)
{
	uint64_t kind = ROOT_UNKNOWN;
	int tensors;

	map64__get(decoder->roots, self, &kind);
	/* Read other kinds again: another module may have the address now. */
	if (kind == ROOT_MODEL)
		return kind;
	tensors = symbolizer__has_tensors(decoder->names, self);
	if (tensors >= 0)
		kind = tensors ? ROOT_MODEL : ROOT_NO_TENSORS;
	decoder->tensor_root |= kind == ROOT_MODEL;
	map64__set(decoder->roots, self, kind);
	return kind;
}

/* Emits the call of a root module. If there is a model, a root without tensors is a loss or a
 * metric, and its calls do not count. */
static int emit_call_of_root(struct decoder *decoder, const struct mt_hdr *header,
			     const struct event *event, uint64_t self)
{
	struct thread *thread;

	if (is_before_alloc_probes(decoder, header) ||
	    (root_kind(decoder, self) == ROOT_NO_TENSORS && decoder->tensor_root))
		return 0;
	thread = decoder__thread(decoder, header->tid);
	if (!thread)
		return -ENOMEM;
	autograd__called(decoder, thread, self);
	return emit_call(decoder, event);
}

/* Handles a call of the function that bound methods of modules run. Its stack tells whether a root
 * module is called: then it begins with the call of its only module. Other callers of the
 * function, and modules within a root's call, are ignored. */
static int on_bound_call(struct decoder *decoder, const struct mt_rec_enter *record,
			 struct event event)
{
	uint64_t stack_entry, self = decoder__outer_module(decoder, record->stack);
	int err;

	if (!self || !map64__get(decoder->stacks, record->stack, &stack_entry) ||
	    !(stack_entry & STACK_BEGINS))
		return 0;
	event.module = symbolizer__root(decoder->names, self);
	err = emit_call_of_root(decoder, &record->h, &event, self);
	return err ?: modules__bound(decoder, record, self, event.module);
}

/*
 * Emits EVENT_CALL for root modules, which steps may be counted by; then the modules' own events.
 */
static int on_call(struct decoder *decoder, const struct mt_rec_enter *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_CALL,
			       .time = decoder__since(decoder, record->h.time) };
	uint64_t unused;
	int err;

	if (!thread)
		return -ENOMEM;
	event.thread = thread->number;
	err = modules__left(decoder, &record->h, record->keep);
	if (err)
		return err;
	if (record->depth == MT_DEPTH_BOUND)
		return on_bound_call(decoder, record, event);
	if (map64__get(decoder->roots, record->self, &unused)) {
		event.module = symbolizer__root(decoder->names, record->self);
		err = emit_call_of_root(decoder, &record->h, &event, record->self);
		if (err)
			return err;
	}
	return modules__entered(decoder, record);
}

static void swap_maps(struct map64 **a, struct map64 **b)
{
	struct map64 *old_a = *a;

	*a = *b;
	*b = old_a;
}

/* Modules that are still called become roots again when their stacks are sent again. */
void decoder__forget_roots(struct decoder *decoder)
{
	probes__clear_roots(decoder->probes, decoder->opts->number);
	swap_maps(&decoder->roots, &decoder->old_roots);
	map64__clear(decoder->roots);
	modules__forget(decoder);
	probes__bump_epoch(decoder->probes);
}

/* Emits the call that made a module a root, if it counts: no record reported that call, only its
 * stack. It counts if the module is another one of the same name as an earlier root, since the
 * program may make a model for each request. The first root of a name may have been called before
 * the attach. */
static int emit_first_call(struct decoder *decoder, const struct mt_rec_stack *record,
			   uint64_t self)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_CALL,
			       .time = decoder__since(decoder, record->h.time) };
	uint64_t unused;

	if (!thread)
		return -ENOMEM;
	event.thread = thread->number;
	event.module = symbolizer__root(decoder->names, self);
	if (!event.module || symbolizer__is_part(decoder->names, self) ||
	    map64__get(decoder->old_roots, self, &unused))
		return 0;
	if (map64__get(decoder->root_names, event.module, &unused))
		return emit_call_of_root(decoder, &record->h, &event, self);
	return map64__set(decoder->root_names, event.module, 1);
}

/* Makes the programs report the calls of a module, the outermost one of stack record. Without room
 * for it, does nothing. 0, -ENOMEM or the sink's error. */
static int add_root(struct decoder *decoder, const struct mt_rec_stack *record, uint64_t self)
{
	uint64_t unused;

	if (map64__get(decoder->roots, self, &unused))
		return 0;
	if (probes__add_root(decoder->probes, decoder->opts->number, self)) {
		/* Empty the table, which is full, mostly of modules that are gone. */
		decoder__forget_roots(decoder);
		if (probes__add_root(decoder->probes, decoder->opts->number, self))
			return 0;
	}
	root_kind(decoder, self);
	if (!decoder__is_probed(decoder, HOOK_MODULE_CALL))
		target__attach_optional(decoder->target, decoder->probes, HOOK_MODULE_CALL);
	return emit_first_call(decoder, record, self);
}

/* True if the stack has one module and ends in the code that begins its call: _call_impl, and in
 * PyTorch 2.1 and later _wrapped_call_impl around it. */
static bool begins_call(const struct decoder *decoder, const struct named_stack *ns)
{
	return ns->modules == 1 && ns->root_at == (decoder->target->module_self_in_cell ? 1 : 2);
}

/* Names a stack and keeps its number for later records, which have only its id. */
static int on_stack(struct decoder *decoder, const struct mt_rec_stack *record)
{
	struct named_stack named;
	uint64_t entry;
	int err;

	if (decoder__knows_stack(decoder, record->stack)) {
		decoder->stacks_again++;
		return 0;
	}
	err = symbolizer__stack(decoder->names, record, &named);
	if (err)
		return err;
	if (map64__count(decoder->stacks) >= MAX_STACK_IDS) {
		/* Most of these are of past epochs; stacks in use are sent again. */
		swap_maps(&decoder->stacks, &decoder->old_stacks);
		swap_maps(&decoder->outer, &decoder->old_outer);
		map64__clear(decoder->stacks);
		map64__clear(decoder->outer);
		probes__bump_epoch(decoder->probes);
	}
	if (named.root) {
		err = add_root(decoder, record, named.root);
		if (err)
			return err;
		if (map64__set(decoder->outer, record->stack, named.root))
			return -ENOMEM;
	}
	entry = named.stack;
	if (named.optimizer_exit)
		entry |= STACK_OPTIMIZER_EXIT;
	if (named.scope_exit)
		entry |= STACK_SCOPE_EXIT;
	if (named.whole)
		entry |= STACK_WHOLE;
	if (begins_call(decoder, &named))
		entry |= STACK_BEGINS;
	return map64__set(decoder->stacks, record->stack, entry);
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
		[MT_REC_SCOPE] = sizeof(struct mt_rec_scope),
	};

	return type < sizeof(sizes) / sizeof(*sizes) ? sizes[type] : 0;
}

bool decoder__is_record(const void *rec, size_t len)
{
	const struct mt_rec_stack *record = rec;

	if (len < sizeof(record->h) || !min_record_size(record->h.type) ||
	    len < min_record_size(record->h.type))
		return false;
	return record->h.type != MT_REC_STACK ||
	       (record->n <= MT_MAX_ENTRIES &&
		len >= sizeof(*record) + record->n * sizeof(struct mt_frame));
}

/* Calls the function for the type of record. */
int decoder__record(struct decoder *decoder, const void *rec, size_t len)
{
	const struct mt_hdr *header = rec;
	const struct mt_rec_gone *gone;

	if (!decoder__is_record(rec, len))
		return -EBADMSG;
	decoder->record_time = header->time;
	switch (header->type) {
	case MT_REC_REPORT:
	case MT_REC_OOM:
	case MT_REC_CPU_NEW:
		return on_mem(decoder, rec);
	case MT_REC_CPU_DELETE:
		return on_cpu_delete(decoder, rec);
	case MT_REC_STACK:
		return on_stack(decoder, rec);
	case MT_REC_CODE_GONE:
		gone = rec;
		code_cache__passed(symbolizer__codes(decoder->names), gone->code, gone->epoch);
		return 0;
	case MT_REC_SCOPE_END:
		return on_mark(decoder, rec);
	case MT_REC_SCOPE:
		return probed_scopes__record(decoder->probed, rec);
	case MT_REC_MODULE_CALL:
		return on_call(decoder, rec);
	case MT_REC_MODULE_LEAVE:
		return modules__left(decoder, rec, ((const struct mt_rec_leave *)rec)->keep);
	case MT_REC_CUDA_CALL:
		return cuda_calls__record(decoder, rec);
	case MT_REC_SET_DEVICE:
		return cuda_calls__set_device(decoder, rec);
	case MT_REC_REQUESTED:
		return cuda_calls__asked(decoder, rec);
	case MT_REC_EDGE:
		return autograd__made(decoder, rec);
	case MT_REC_NODE:
		return autograd__runs(decoder, rec);
	case MT_REC_NATIVE:
		return decoder->native ? native_stacks__record(decoder->native, rec, len) : 0;
	case MT_REC_TENSOR:
		return oom_tensors__record(decoder, rec);
	case MT_REC_MALLOC:
		return on_malloc(decoder, rec);
	case MT_REC_MALLOC_FREE:
		return on_malloc_free(decoder, rec);
	case MT_REC_HOST:
		return decoder__since(decoder, header->time) > decoder->same_until
			       ? 0
			       : host_memory__record(decoder->host, rec);
	}
	return -EBADMSG;
}
