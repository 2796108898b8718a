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

void cuda_figures__count_devices(struct cuda_calls *c)
{
	if (c->devices || !c->smi)
		return;
	nvml__refresh(c->smi);
	c->devices = nvml__devices(c->smi);
}

void cuda_figures__open(struct decoder *d)
{
	struct cuda_calls *c = d->calls;

	if (!c->smi && c->sites)
		c->smi = nvml__open(d->target->proc, c->dry_run);
	cuda_figures__count_devices(c);
}

static int emit_figure(struct decoder *d, uint8_t kind, unsigned device, uint64_t bytes)
{
	struct event e = { .kind = kind, .device = { DEVICE_CUDA, device }, .size = bytes };

	e.time = decoder__now(d);
	return decoder__emit(d, &e);
}

static int emit_used(void *decoder, unsigned device, uint64_t used)
{
	return emit_figure(decoder, EVENT_USED, device, used);
}

static int emit_left(void *decoder, unsigned device, uint64_t left)
{
	return emit_figure(decoder, EVENT_LEFT, device, left);
}

static void set_device_facts(struct decoder *d)
{
	const char *name;
	char key[64];
	uint64_t total;
	unsigned i;

	for (i = 0; i < NVML_DEVICES_MAX && nvml__device(d->calls->smi, i, &name, &total); i++) {
		snprintf(key, sizeof(key), "device.%u.name", i);
		if (*name)
			facts__set(d->facts, key, name);
		snprintf(key, sizeof(key), "device.%u.total", i);
		if (total)
			facts__setf(d->facts, key, "%" PRIu64, total);
	}
}

/* Takes newer figures. Returns true if they equal the older ones and the ring was drained to its
 * end: then they belong to this place in the stream, and are emitted. Otherwise they are to be
 * read again soon, and are emitted only if overdue. */
static bool take_figures(struct cuda_calls *c, const struct nvml_figures *after, bool whole,
			 bool overdue)
{
	bool steady = whole && after->n == c->figures.n;
	unsigned i;

	for (i = 0; i < after->n; i++)
		steady = steady && after->known[i] == c->figures.known[i] &&
			 after->used[i] == c->figures.used[i];
	c->figures = *after;
	c->to_tell = steady || overdue;
	return steady;
}

void cuda_calls__before_drain(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	uint64_t now = decoder__now(d);

	if (!c || !c->smi)
		return;
	c->asking = nvml__is_dry_run(c->smi) && now >= c->next_used &&
		    (c->moved || now >= c->next_regular);
	if (c->asking)
		nvml__read(c->smi, &c->figures);
}

/* For a dry run: compares the figures with those from before the drain, and decides when to read
 * again. */
void cuda_calls__after_drain(struct decoder *d, bool whole)
{
	struct cuda_calls *c = d->calls;
	struct nvml_figures after;
	uint64_t began, now, pause;

	if (c)
		c->whole = whole;
	if (!c || !c->asking)
		return;
	c->asking = false;
	began = decoder__now(d);
	nvml__read(c->smi, &after);
	now = decoder__now(d);
	pause = USED_AGAIN;
	if (take_figures(c, &after, whole, now >= c->next_regular + USED_EVERY)) {
		c->moved = false;
		pause = USED_PAUSE;
	}
	if (c->to_tell)
		c->next_regular = now + USED_EVERY;
	c->next_used = now +
		       (pause > (now - began) * USED_SHARE ? pause : (now - began) * USED_SHARE);
}

/* Asks NVML for the figures, or takes its answer to the last question. All records that were
 * drained before are decoded. A call that comes before the answer may change the figures. */
static void ask_driver(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	uint64_t now = decoder__now(d);
	struct nvml_figures after;
	bool steady;

	if (c->asked_at && nvml__answered(c->smi, c->asked_at, &after)) {
		steady = take_figures(c, &after, c->asked_whole && c->changes == c->changes_at_ask,
				      now >= c->next_regular + USED_EVERY);
		c->moved = c->moved && !steady;
		c->next_used = now + (steady ? USED_PAUSE : USED_AGAIN);
		if (c->to_tell)
			c->next_regular = now + USED_EVERY;
		c->asked_at = 0;
	}
	/* Ask again even without an answer: NVML may not have known the GPUs when it was asked. */
	if (now < c->next_used || !(c->moved || now >= c->next_regular))
		return;
	c->next_used = now + USED_EVERY;
	c->asked_whole = c->whole;
	c->changes_at_ask = c->changes;
	nvml__set_process(c->smi, target__cuda_devices(d->target), c->in_use);
	c->asked_at = nvml__ask(c->smi);
}

void cuda_calls__in_use(struct decoder *d, unsigned device)
{
	if (d->calls && device < NVML_DEVICES_MAX)
		d->calls->in_use |= UINT64_C(1) << device;
}

/* Asks NVML if it is time, and emits the figures if they are to be emitted or are the last ones. */
int cuda_calls__used(struct decoder *d, bool last)
{
	struct cuda_calls *c = d->calls;
	int err;

	if (c && last && d->opts->requested && !c->asked)
		log_warn("--requested: the process has no PyTorch with CUDA");
	if (!c || !c->smi)
		return 0;
	err = last ? neighbours_stage__last(d) : neighbours_stage__tick(d);
	if (err)
		return err;
	if (!last && !nvml__is_dry_run(c->smi))
		ask_driver(d);
	if (last) {
		nvml__read_last(c->smi, &c->figures);
		c->next_used = UINT64_MAX;
	} else if (!c->to_tell) {
		return 0;
	}
	c->to_tell = false;
	set_device_facts(d);
	err = nvml__report_used(c->smi, &c->figures, emit_used, d);
	return err ? err : nvml__report_free(c->smi, &c->figures, emit_left, d);
}

uint64_t cuda_calls__unseen(const struct decoder *d)
{
	uint64_t c[MT_CNT_NR], reports, hits;

	/* Read the library's count first: each later report hit a probe already or is on its way,
	 * at most one per thread. */
	if (!d->calls || !d->calls->smi || !d->from_start || d->opts->group ||
	    d->opts->steps_only || !nvml__count_reports(d->calls->smi, &reports) ||
	    probes__counters(d->probes, d->opts->number, c))
		return 0;
	hits = c[MT_CNT_HIT + MT_REC_REPORT];
	return reports > hits + THREADS_BETWEEN ? reports - hits : 0;
}

void cuda_calls__used_soon(struct decoder *d)
{
	struct cuda_calls *c = d->calls;

	if (!c || !c->smi || c->next_used == UINT64_MAX)
		return;
	c->moved = true;
	if (nvml__is_dry_run(c->smi))
		c->next_used = 0;
}
