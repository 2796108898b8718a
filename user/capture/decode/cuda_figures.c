/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The driver's figures: how much memory the process has on each device. */
#include "capture/decode/cuda_calls_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "capture/decode/neighbours_stage.h"
#include "capture/probes.h"
#include "capture/target.h"

#define USED_EVERY 1000000000ULL /* ns between two readings of the driver's figures */
#define USED_PAUSE 50000000ULL	 /* ns between two readings while memory is taken or given back */
/* ns until the next reading if a figure has changed since the last one */
#define USED_AGAIN 10000000ULL
#define USED_SHARE 20 /* reading the figures takes at most one part in this many of the time */
/* threads that may have reported to the dry-run library and not hit the probe yet */
#define THREADS_BETWEEN 64

void cuda_figures__count_devices(struct cuda_calls *calls)
{
	if (calls->devices || !calls->smi)
		return;
	nvml__refresh(calls->smi);
	calls->devices = nvml__devices(calls->smi);
}

void cuda_figures__open(struct decoder *decoder)
{
	struct cuda_calls *calls = decoder->calls;

	if (!calls->smi && calls->sites)
		calls->smi = nvml__open(decoder->target->proc, calls->dry_run);
	cuda_figures__count_devices(calls);
}

static int emit_figure(struct decoder *decoder, uint8_t kind, unsigned device, uint64_t bytes)
{
	struct event e = { .kind = kind, .device = { DEVICE_CUDA, device }, .size = bytes };

	e.time = decoder__now(decoder);
	return decoder__emit(decoder, &e);
}

static int emit_used(void *decoder, unsigned device, uint64_t used)
{
	return emit_figure(decoder, EVENT_USED, device, used);
}

static int emit_left(void *decoder, unsigned device, uint64_t left)
{
	return emit_figure(decoder, EVENT_LEFT, device, left);
}

/* Sets the facts about the names, sizes and UUIDs of GPUs. */
static void set_device_facts(struct decoder *decoder)
{
	char key[64], uuid[NVML_UUID];
	const char *name;
	uint64_t total;
	unsigned i;

	for (i = 0; i < NVML_DEVICES_MAX && nvml__device(decoder->calls->smi, i, &name, &total);
	     i++) {
		snprintf(key, sizeof(key), "device.%u.name", i);
		if (*name)
			facts__set(decoder->facts, key, name);
		snprintf(key, sizeof(key), "device.%u.total", i);
		if (total)
			facts__setf(decoder->facts, key, "%" PRIu64, total);
		snprintf(key, sizeof(key), "device.%u.uuid", i);
		if (*nvml__uuid(decoder->calls->smi, i, uuid))
			facts__set(decoder->facts, key, uuid);
	}
}

/* Takes newer figures. Returns true if they equal the older ones and the ring was drained to its
 * end: then they belong to this place in the stream, and are emitted. Otherwise they are to be
 * read again soon, and are emitted only if overdue. */
static bool take_figures(struct cuda_calls *calls, const struct nvml_figures *after, bool whole,
			 bool overdue)
{
	bool steady = whole && after->n == calls->figures.n;
	unsigned i;

	for (i = 0; i < after->n; i++)
		steady = steady && after->known[i] == calls->figures.known[i] &&
			 after->used[i] == calls->figures.used[i];
	calls->figures = *after;
	calls->to_emit = steady || overdue;
	return steady;
}

void cuda_calls__before_drain(struct decoder *decoder)
{
	struct cuda_calls *calls = decoder->calls;
	uint64_t now = decoder__now(decoder);

	if (!calls || !calls->smi)
		return;
	calls->asking = nvml__is_dry_run(calls->smi) && now >= calls->next_used &&
			(calls->moved || now >= calls->next_regular);
	if (calls->asking)
		nvml__read(calls->smi, &calls->figures);
}

/* For a dry run: compares the figures with those from before the drain, and decides when to read
 * again. */
void cuda_calls__after_drain(struct decoder *decoder, bool whole)
{
	struct cuda_calls *calls = decoder->calls;
	struct nvml_figures after;
	uint64_t began, now, pause;

	if (calls)
		calls->whole = whole;
	if (!calls || !calls->asking)
		return;
	calls->asking = false;
	began = decoder__now(decoder);
	nvml__read(calls->smi, &after);
	now = decoder__now(decoder);
	pause = USED_AGAIN;
	if (take_figures(calls, &after, whole, now >= calls->next_regular + USED_EVERY)) {
		calls->moved = false;
		pause = USED_PAUSE;
	}
	if (calls->to_emit)
		calls->next_regular = now + USED_EVERY;
	calls->next_used = now + (pause > (now - began) * USED_SHARE ? pause
								     : (now - began) * USED_SHARE);
}

/* Asks NVML for the figures, or takes its answer to the last question. All records that were
 * drained before are decoded. A call that comes before the answer may change the figures. */
static void ask_driver(struct decoder *decoder)
{
	struct cuda_calls *calls = decoder->calls;
	uint64_t now = decoder__now(decoder);
	struct nvml_figures after;
	bool steady;

	if (calls->asked_at && nvml__answered(calls->smi, calls->asked_at, &after)) {
		steady = take_figures(calls, &after,
				      calls->asked_whole && calls->changes == calls->changes_at_ask,
				      now >= calls->next_regular + USED_EVERY);
		calls->moved = calls->moved && !steady;
		calls->next_used = now + (steady ? USED_PAUSE : USED_AGAIN);
		if (calls->to_emit)
			calls->next_regular = now + USED_EVERY;
		calls->asked_at = 0;
	}
	/* Ask again even without an answer: NVML may not have known the GPUs when it was asked. */
	if (now < calls->next_used || !(calls->moved || now >= calls->next_regular))
		return;
	calls->next_used = now + USED_EVERY;
	calls->asked_whole = calls->whole;
	calls->changes_at_ask = calls->changes;
	nvml__set_process(calls->smi, target__cuda_devices(decoder->target), calls->in_use);
	calls->asked_at = nvml__ask(calls->smi);
}

void cuda_calls__in_use(struct decoder *decoder, unsigned device)
{
	if (decoder->calls && device < NVML_DEVICES_MAX)
		decoder->calls->in_use |= UINT64_C(1) << device;
}

/* Asks NVML if it is time, and emits the figures if they are to be emitted or are the last ones. */
int cuda_calls__used(struct decoder *decoder, bool last)
{
	struct cuda_calls *calls = decoder->calls;
	int err;

	if (calls && last && decoder->opts->requested && !calls->asked)
		log_warn("--requested: the process has no PyTorch with CUDA");
	if (!calls || !calls->smi)
		return 0;
	err = last ? neighbours_stage__last(decoder) : neighbours_stage__tick(decoder);
	if (err)
		return err;
	if (!last && !nvml__is_dry_run(calls->smi))
		ask_driver(decoder);
	if (last) {
		nvml__read_last(calls->smi, &calls->figures);
		calls->next_used = UINT64_MAX;
	} else if (!calls->to_emit) {
		return 0;
	}
	calls->to_emit = false;
	set_device_facts(decoder);
	err = nvml__report_used(calls->smi, &calls->figures, emit_used, decoder);
	return err ? err : nvml__report_free(calls->smi, &calls->figures, emit_left, decoder);
}

uint64_t cuda_calls__unseen(const struct decoder *decoder)
{
	uint64_t counters[MT_CNT_NR], reports, hits;

	/* Read the library's count first: each later report hit a probe already or is on its way,
	 * at most one per thread. */
	if (!decoder->calls || !decoder->calls->smi || !decoder->from_start ||
	    decoder->opts->group || decoder->opts->steps_only ||
	    !nvml__count_reports(decoder->calls->smi, &reports) ||
	    probes__counters(decoder->probes, decoder->opts->number, counters))
		return 0;
	hits = counters[MT_CNT_HIT + MT_REC_REPORT];
	return reports > hits + THREADS_BETWEEN ? reports - hits : 0;
}

void cuda_calls__used_soon(struct decoder *decoder)
{
	struct cuda_calls *calls = decoder->calls;

	if (!calls || !calls->smi || calls->next_used == UINT64_MAX)
		return;
	calls->moved = true;
	if (nvml__is_dry_run(calls->smi))
		calls->next_used = 0;
}
