/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/decode_ctx.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "record/dict.h"

#define MAX_THREADS (1u << 16)	/* threads kept */
#define CHANGED_MAX (1u << 20)	/* addresses kept after the requested steps */
#define CHECKED_THREADS 64	/* threads that one decoder__check_threads() checks */
#define REUSE_TIME 250000000ULL /* ns; a tid is not reused sooner */

/* Takes an event after the requested steps, which is not passed on. Notes its address: the
 * readings at the end need to know which blocks have changed. 0 or -ENOMEM. */
static int note_change(struct decoder *d, const struct event *e)
{
	if (!d->changed)
		return 0;
	if (e->kind == EVENT_LOST || map64__count(d->changed) >= CHANGED_MAX) {
		map64__free(d->changed);
		d->changed = NULL;
		return 0;
	}
	return e->kind == EVENT_ALLOC || e->kind == EVENT_FREE ? map64__set(d->changed, e->addr, 1)
							       : 0;
}

int decoder__emit(struct decoder *d, const struct event *e)
{
	return d->cut ? note_change(d, e) : d->next->event(d->next, e);
}

bool decoder__is_probed(const struct decoder *d, enum hook_id id)
{
	return probes__attached(d->probes, proc__pid(d->target->proc), id);
}

bool decoder__stayed(const struct decoder *d, uint64_t addr)
{
	uint64_t unused;

	return !d->cut || (d->changed && !map64__get(d->changed, addr, &unused));
}

uint64_t decoder__steps(const struct decoder *d)
{
	/* After an attach to a running process, the beginning of the first step was not seen: the
	 * step does not count. */
	if (d->clock.by_calls)
		return d->clock.steps;
	return d->steps - (d->steps && !d->from_start && !d->forked);
}

uint32_t decoder__string(struct decoder *d, const char *text)
{
	return *text ? symbolizer__number(d->names, dict__string(d->dict, text, strlen(text))) : 0;
}

/*
 * True if thread t has ended and another one has its tid now. Asks the kernel only if t was seen
 * to have ended, or had no record for REUSE_TIME: the kernel gives PIDs in turn, so a tid is not
 * reused earlier.
 */
static bool is_reused_tid(const struct decoder *d, struct thread *t)
{
	bool was_silent = d->record_time > t->seen && d->record_time - t->seen > REUSE_TIME;
	uint64_t started;

	if (!t->gone && !was_silent)
		return false;
	if (proc__thread_started(d->target->proc, t->tid, &started)) {
		t->gone = true;
		return false;
	}
	return started != t->started;
}

void decoder__check_threads(struct decoder *d)
{
	uint64_t started;
	size_t i, checked = 0;

	for (i = 0; i < d->n_threads && checked < CHECKED_THREADS; i++) {
		struct thread *t = &d->thread[d->next_thread++ % d->n_threads];

		if (t->gone)
			continue;
		checked++;
		t->gone = proc__thread_started(d->target->proc, t->tid, &started) ||
			  started != t->started;
	}
}

struct thread *decoder__thread(struct decoder *d, uint32_t tid)
{
	char name[32] = "";
	struct dict_thread entry = { .tid = tid };
	uint64_t i;

	if (map64__get(d->threads, tid, &i)) {
		if (!is_reused_tid(d, &d->thread[i])) {
			d->thread[i].seen = d->record_time;
			return &d->thread[i];
		}
		map64__del(d->threads, tid, NULL);
	}
	if (d->n_threads == MAX_THREADS) {
		/* Most of these threads have ended; the others are added again. */
		map64__clear(d->threads);
		d->n_threads = 0;
		d->threads_forgotten = true;
	}
	if (array__grow(&d->thread, &d->cap_threads, d->n_threads + 1, sizeof(*d->thread)))
		return NULL;
	if (proc__thread_comm(d->target->proc, tid, name, sizeof(name)))
		name[0] = '\0';
	entry.name = decoder__string(d, name);
	i = d->n_threads;
	d->thread[i] = (struct thread){ .tid = tid, .seen = d->record_time };
	if (proc__thread_started(d->target->proc, tid, &d->thread[i].started))
		d->thread[i].started = 0;
	if (d->from_start && !d->threads_forgotten)
		d->thread[i].cuda_device_no = 1; /* the CUDA runtime's default */
	if (entry.name != UINT32_MAX)
		d->thread[i].number = symbolizer__number(d->names, dict__thread(d->dict, entry));
	if (entry.name == UINT32_MAX || d->thread[i].number == UINT32_MAX ||
	    map64__set(d->threads, tid, i))
		return NULL;
	d->n_threads++;
	return &d->thread[i];
}

uint32_t decoder__mark_stack(struct decoder *d, uint64_t id, uint8_t *walk, bool *optimizer_exit)
{
	uint64_t entry;

	if (optimizer_exit)
		*optimizer_exit = false;
	if (!id)
		return 0;
	if (!map64__get(d->stacks, id, &entry) && !map64__get(d->old_stacks, id, &entry)) {
		d->unknown_stacks++;
		*walk = MT_WALK_LOST;
		return 0;
	}
	if (optimizer_exit)
		*optimizer_exit = entry & STACK_OPTIMIZER_EXIT;
	if (!(uint32_t)entry)
		*walk = MT_WALK_LOST; /* the dictionary is full */
	return (uint32_t)entry;
}

uint32_t decoder__stack(struct decoder *d, uint64_t id, uint8_t *walk)
{
	return decoder__mark_stack(d, id, walk, NULL);
}

uint32_t decoder__named_stack(struct decoder *d, const char *file, const char *function)
{
	struct dict_frame frame = { 0 };
	struct dict_loc loc = { 0 };

	loc.file = decoder__string(d, file);
	loc.func = decoder__string(d, function);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX)
		return UINT32_MAX;
	frame.loc = symbolizer__number(d->names, dict__loc(d->dict, loc));
	if (frame.loc == UINT32_MAX)
		return UINT32_MAX;
	return symbolizer__number(d->names, dict__stack(d->dict, &frame, 1, MT_WALK_OFF));
}

bool decoder__knows_stack(const struct decoder *d, uint64_t id)
{
	uint64_t entry;

	return map64__get(d->stacks, id, &entry) && entry & STACK_WHOLE;
}

uint64_t decoder__outer_module(const struct decoder *d, uint64_t id)
{
	uint64_t module = 0;

	if (id && !map64__get(d->outer, id, &module))
		map64__get(d->old_outer, id, &module);
	return module;
}

int decoder__join_native(struct decoder *d, uint32_t tid, uint64_t time, uint32_t *stack,
			 uint8_t *walk)
{
	int err = d->native ? native_stacks__join(d->native, tid, time, stack, walk) : 0;

	if (!err || err == -ENOMEM)
		return err;
	if (!d->warned_native)
		log_warn("PID %d: stacks of compiled code could not be read: %s",
			 (int)proc__pid(d->target->proc), strerror(-err));
	d->warned_native = true;
	return 0;
}
