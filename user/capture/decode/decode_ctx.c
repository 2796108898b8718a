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
static int note_change(struct decoder *decoder, const struct event *event)
{
	if (!decoder->changed)
		return 0;
	if (event->kind == EVENT_LOST || map64__count(decoder->changed) >= CHANGED_MAX) {
		map64__free(decoder->changed);
		decoder->changed = NULL;
		return 0;
	}
	return event->kind == EVENT_ALLOC || event->kind == EVENT_FREE
		       ? map64__set(decoder->changed, event->addr, 1)
		       : 0;
}

int decoder__emit(struct decoder *decoder, const struct event *event)
{
	return decoder->cut ? note_change(decoder, event)
			    : decoder->next->event(decoder->next, event);
}

bool decoder__is_probed(const struct decoder *decoder, enum hook_id id)
{
	return probes__attached(decoder->probes, proc__pid(decoder->target->proc), id);
}

bool decoder__stayed(const struct decoder *decoder, uint64_t addr)
{
	uint64_t unused;

	return !decoder->cut || (decoder->changed && !map64__get(decoder->changed, addr, &unused));
}

uint64_t decoder__steps(const struct decoder *decoder)
{
	/* After an attach to a running process, the beginning of the first step was not seen: the
	 * step does not count. */
	if (decoder->clock.by_calls)
		return decoder->clock.steps;
	return decoder->steps - (decoder->steps && !decoder->from_start && !decoder->forked);
}

uint32_t decoder__string(struct decoder *decoder, const char *text)
{
	return *text ? symbolizer__number(decoder->names,
					  dict__string(decoder->dict, text, strlen(text)))
		     : 0;
}

/*
 * True if thread thread has ended and another one has its tid now. Asks the kernel only if thread
 * was seen to have ended, or had no record for REUSE_TIME: the kernel gives PIDs in turn, so a tid
 * is not reused earlier.
 */
static bool is_reused_tid(const struct decoder *decoder, struct thread *thread)
{
	bool was_silent = decoder->record_time > thread->seen &&
			  decoder->record_time - thread->seen > REUSE_TIME;
	uint64_t started;

	if (!thread->gone && !was_silent)
		return false;
	if (proc__thread_started(decoder->target->proc, thread->tid, &started)) {
		thread->gone = true;
		return false;
	}
	return started != thread->started;
}

void decoder__check_threads(struct decoder *decoder)
{
	uint64_t started;
	size_t i, checked = 0;

	for (i = 0; i < decoder->n_threads && checked < CHECKED_THREADS; i++) {
		struct thread
			*thread = &decoder->thread[decoder->next_thread++ % decoder->n_threads];

		if (thread->gone)
			continue;
		checked++;
		thread->gone = proc__thread_started(decoder->target->proc, thread->tid, &started) ||
			       started != thread->started;
	}
}

struct thread *decoder__thread(struct decoder *decoder, uint32_t tid)
{
	char name[32] = "";
	struct dict_thread entry = { .tid = tid };
	uint64_t i;

	if (map64__get(decoder->threads, tid, &i)) {
		if (!is_reused_tid(decoder, &decoder->thread[i])) {
			decoder->thread[i].seen = decoder->record_time;
			return &decoder->thread[i];
		}
		map64__del(decoder->threads, tid, /*old=*/NULL);
	}
	if (decoder->n_threads == MAX_THREADS) {
		/* Most of these threads have ended; the others are added again. */
		map64__clear(decoder->threads);
		decoder->n_threads = 0;
		decoder->threads_forgotten = true;
	}
	if (array__grow(&decoder->thread, &decoder->cap_threads, decoder->n_threads + 1,
			sizeof(*decoder->thread)))
		return NULL;
	if (proc__thread_comm(decoder->target->proc, tid, name, sizeof(name)))
		name[0] = '\0';
	entry.name = decoder__string(decoder, name);
	i = decoder->n_threads;
	decoder->thread[i] = (struct thread){ .tid = tid, .seen = decoder->record_time };
	if (proc__thread_started(decoder->target->proc, tid, &decoder->thread[i].started))
		decoder->thread[i].started = 0;
	if (decoder->from_start && !decoder->threads_forgotten)
		decoder->thread[i].cuda_device_no = 1; /* the CUDA runtime's default */
	if (entry.name != UINT32_MAX)
		decoder->thread[i].number = symbolizer__number(decoder->names,
							       dict__thread(decoder->dict, entry));
	if (entry.name == UINT32_MAX || decoder->thread[i].number == UINT32_MAX ||
	    map64__set(decoder->threads, tid, i))
		return NULL;
	decoder->n_threads++;
	return &decoder->thread[i];
}

uint32_t decoder__mark_stack(struct decoder *decoder, uint64_t id, uint8_t *walk, uint64_t *flags)
{
	uint64_t entry;

	if (flags)
		*flags = 0;
	if (!id)
		return 0;
	if (!map64__get(decoder->stacks, id, &entry) &&
	    !map64__get(decoder->old_stacks, id, &entry)) {
		decoder->unknown_stacks++;
		*walk = MT_WALK_LOST;
		return 0;
	}
	if (flags)
		*flags = entry & ~(uint64_t)UINT32_MAX;
	if (!(uint32_t)entry)
		*walk = MT_WALK_LOST; /* the dictionary is full */
	return (uint32_t)entry;
}

uint32_t decoder__stack(struct decoder *decoder, uint64_t id, uint8_t *walk)
{
	return decoder__mark_stack(decoder, id, walk, /*optimizer_exit=*/NULL);
}

uint32_t decoder__named_stack(struct decoder *decoder, const char *file, const char *function)
{
	struct dict_frame frame = { 0 };
	struct dict_loc loc = { 0 };

	loc.file = decoder__string(decoder, file);
	loc.func = decoder__string(decoder, function);
	if (loc.file == UINT32_MAX || loc.func == UINT32_MAX)
		return UINT32_MAX;
	frame.loc = symbolizer__number(decoder->names, dict__loc(decoder->dict, loc));
	if (frame.loc == UINT32_MAX)
		return UINT32_MAX;
	return symbolizer__number(decoder->names,
				  dict__stack(decoder->dict, &frame, 1, MT_WALK_OFF));
}

bool decoder__knows_stack(const struct decoder *decoder, uint64_t id)
{
	uint64_t entry;

	return map64__get(decoder->stacks, id, &entry) && entry & STACK_WHOLE;
}

uint64_t decoder__outer_module(const struct decoder *decoder, uint64_t id)
{
	uint64_t module = 0;

	if (id && !map64__get(decoder->outer, id, &module))
		map64__get(decoder->old_outer, id, &module);
	return module;
}

int decoder__join_native(struct decoder *decoder, uint32_t tid, uint64_t time, uint32_t *stack,
			 uint8_t *walk)
{
	int err = decoder->native ? native_stacks__join(decoder->native, tid, time, stack, walk)
				  : 0;

	if (!err || err == -ENOMEM)
		return err;
	if (!decoder->warned_native)
		log_warn("PID %d: stacks of compiled code could not be read: %s",
			 (int)proc__pid(decoder->target->proc), strerror(-err));
	decoder->warned_native = true;
	return 0;
}
