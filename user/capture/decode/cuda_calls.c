/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/cuda_calls_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map64.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/cuda.h"
#include "inspect/cudaalloc.h"
#include "inspect/proc.h"

#define BYPASS_CALLS                                                                               \
	10 /* calls of the runtime that took memory without a probed call of the driver, before we \
	      warn */

/* Updates the backend, which a program may choose until its first use. */
static void before_take(struct decoder *d, bool own)
{
	struct cuda_calls *c = d->calls;

	if (c->backend_fixed || !c->n_own)
		return;
	c->backend = target__backend(d->target, d->facts, decoder__now(d));
	c->backend_fixed = own || c->backend == ALLOC_PLUGGABLE;
}

static int open_calls(struct decoder *d)
{
	struct cuda_calls *c = calloc(1, sizeof(*c));
	int i;

	if (!c)
		return -ENOMEM;
	d->calls = c;
	c->first_free = NO_INDEX;
	c->status = proc__open_own(d->target->proc, "status");
	c->done = calloc(cuda__functions(), sizeof(*c->done));
	c->failed = calloc(cuda__functions(), sizeof(*c->failed));
	for (i = 0; i < SPACE_NR; i++)
		c->at[i] = map64__new();
	c->files = map64__new();
	for (i = 0; i < SPACE_NR; i++)
		if (!c->at[i])
			return -ENOMEM;
	return c->files && c->done && c->failed ? 0 : -ENOMEM;
}

int cuda_calls__attach(struct decoder *d)
{
	int err = open_calls(d);

	if (!err)
		cuda_files__scan(d);
	return err;
}

bool cuda_calls__by_pid(const struct cuda_calls *c)
{
	return c->by_pid;
}

int cuda_calls__fork(struct decoder *d, const struct cuda_calls *parent)
{
	int err = open_calls(d);
	struct cuda_calls *c = d->calls;
	uint64_t key, value;
	size_t pos = 0;

	if (err || !parent)
		return err;
	c->backend = parent->backend;
	c->backend_fixed = parent->backend_fixed;
	c->devices = parent->devices;
	c->by_pid = parent->by_pid;
	if (probes__calls_each(d->probes, NULL) || c->by_pid)
		return 0; /* the parent's probes do not hit here: scan as in a new process */
	memcpy(c->own, parent->own, parent->n_own * sizeof(*c->own));
	memcpy(c->runtime, parent->runtime, parent->n_runtime * sizeof(*c->runtime));
	while (map64__next(parent->files, &pos, &key, &value))
		if (map64__set(c->files, key, value))
			return -ENOMEM;
	c->n_own = parent->n_own;
	c->n_runtime = parent->n_runtime;
	c->driver_since = parent->driver_since;
	c->lib_kib = parent->lib_kib;
	c->dry_run = parent->dry_run;
	c->sites = parent->sites;
	c->asked = parent->asked;
	return 0;
}

void cuda_calls__free(struct cuda_calls *c)
{
	int i;

	if (!c)
		return;
	for (i = 0; i < SPACE_NR; i++)
		map64__free(c->at[i]);
	map64__free(c->files);
	nvml__free(c->smi);
	if (c->status >= 0)
		close(c->status);
	free(c->taken);
	free(c->done);
	free(c->failed);
	free(c);
}

int cuda_calls__record(struct decoder *d, const struct mt_rec_call *r)
{
	const struct cuda_function *fn = cuda__function(r->fn);
	struct thread *t = decoder__thread(d, r->h.tid);
	struct cuda_calls *c = d->calls;
	struct event e = { 0 };

	if (!fn || !c)
		return -EBADMSG;
	if (!t)
		return -ENOMEM;
	if (r->result) {
		c->failed[r->fn]++;
		return 0;
	}
	c->done[r->fn]++;
	if (!c->smi) /* the first use of CUDA in a forked process */
		c->smi = nvml__open(d->target->proc, c->dry_run);
	c->moved = c->moved || (fn->how && on_device(fn->how));
	c->changes += !fn->how || on_device(fn->how);
	cuda_figures__count_devices(c);
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.flags = in_ranges(c->own, c->n_own, r->caller) ? MEM_BY_ALLOCATOR : 0;
	if (fn->op == CUDA_TAKE && r->flags & MT_CALL_RUNTIME && c->driver_since &&
	    r->entered > c->driver_since)
		c->runtime_took++;
	switch (fn->op) {
	case CUDA_TAKE:
		before_take(d, e.flags & MEM_BY_ALLOCATOR);
		return cuda_taken__take(d, fn, r, t, e);
	case CUDA_GIVE:
		return cuda_taken__give(d, fn, r, e);
	case CUDA_RETAIN:
		cuda_taken__retain(c, r->out);
		return 0;
	case CUDA_IMPORT:
		cuda_taken__import(c, r);
		return 0;
	case CUDA_POOL:
		cuda_taken__pool(c, r);
		return 0;
	}
	return cuda_contexts__record(d, fn, r, t, e);
}

int cuda_calls__set_device(struct decoder *d, const struct mt_rec_call *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	uint32_t device = (uint32_t)r->arg[0]; /* an int: the register's upper half is undefined */

	if (!t)
		return -ENOMEM;
	/* The runtime refuses a device that the process does not have. */
	if (device >= DEVICE_UNKNOWN ||
	    (d->calls && d->calls->devices && device >= d->calls->devices))
		return 0;
	t->cuda_device = (uint8_t)device + 1;
	t->cuda_context = 0;
	return 0;
}

int cuda_calls__asked(struct decoder *d, const struct mt_rec_asked *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_REQUESTED, .device = { DEVICE_CUDA, DEVICE_UNKNOWN } };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	if (r->device < DEVICE_UNKNOWN)
		e.device.index = r->device;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.addr = r->addr;
	e.requested = r->requested;
	e.cuda_stream = r->stream;
	return decoder__emit(d, &e);
}

static void set_counter(struct decoder *d, const char *what, const char *of, uint64_t n)
{
	char key[96];

	if (!n)
		return;
	snprintf(key, sizeof(key), "counter.%s%s", what, of);
	facts__setf(d->facts, key, "%" PRIu64, n);
}

/* Warns if the runtime takes memory without a call of a probed driver function. Then the driver
 * gave it functions that it does not export. */
static void look_for_bypass(struct cuda_calls *calls, const uint64_t c[MT_CNT_NR])
{
	if (calls->bypassed || calls->runtime_took < BYPASS_CALLS || c[MT_CNT_CALL_DRIVER])
		return;
	calls->bypassed = true;
	log_warn("calls into CUDA's driver bypass the probes: memory of libraries (cuBLAS, NCCL) "
		 "and expandable segments is not recorded. PyTorch's tensors are. Please report "
		 "the driver's version");
}

void cuda_calls__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR])
{
	struct cuda_calls *calls = d->calls;
	uint32_t i;

	if (!calls)
		return;
	look_for_bypass(calls, c);
	for (i = 0; i < cuda__functions(); i++) {
		set_counter(d, "calls.", cuda__function(i)->name, calls->done[i]);
		set_counter(d, "calls_failed.", cuda__function(i)->name, calls->failed[i]);
	}
	if (calls->bypassed)
		facts__set(d->facts, "driver_bypassed", "1");
	set_counter(d, "calls_", "inner", c[MT_CNT_CALL_INNER]);
	set_counter(d, "calls_", "stale", c[MT_CNT_CALL_STALE]);
	set_counter(d, "calls_", "faults", c[MT_CNT_CALL_FAULT]);
	set_counter(d, "calls_", "unreadable", calls->unreadable);
	set_counter(d, "calls_", "forgotten", calls->forgotten);
	set_counter(d, "calls_", "replaced", calls->replaced);
	set_counter(d, "asked_", "faults", c[MT_CNT_ASKED_FAULT]);
}
