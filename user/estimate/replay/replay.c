/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/failure.h"
#include "base/text.h"
#include "capture/dryrun.h"
#include "capture/session.h"
#include "estimate/replay/internal.h"
#include "model/model.h"
#include "record/dict.h"
#include "record/mtr.h"

#define CONTEXT_DEFAULT (512ULL << 20) /* the dry run's default */
#define CONF_MAX 4096u
#define STEP (2ULL << 20)

uint64_t replay__context(const struct replay *r)
{
	uint64_t context = r->info.context_known ? r->info.context : CONTEXT_DEFAULT;

	return context < DRYRUN_VRAM_MAX / 2 ? context : DRYRUN_VRAM_MAX / 2;
}

static const char *own_conf(const struct replay *r)
{
	return r->about.alloc_conf ? r->about.alloc_conf : "";
}

static bool contains(const char *conf, const char *key)
{
	return strstr(conf, key) != NULL;
}

/* Sets t->why to the most important known reason for a difference. */
static void explain(const struct replay *r, struct replay_truth *t)
{
	const struct replay_plan_info *i = &r->info;

	if (i->lost)
		snprintf(t->why, sizeof(t->why), "the recording lost %" PRIu64 " records", i->lost);
	else if (i->async)
		snprintf(t->why, sizeof(t->why),
			 "the recorded allocator is not PyTorch's native one");
	else if (!t->events)
		snprintf(t->why, sizeof(t->why), "the recording has no totals to compare with");
	else if (i->unknown_frees || (!i->before_known && i->before))
		snprintf(t->why, sizeof(t->why),
			 "%" PRIu64 " blocks from before the recording are unknown",
			 i->unknown_frees);
	else if (i->before_known && !i->before_exact)
		snprintf(t->why, sizeof(t->why),
			 "memory from before the recording could not be read exactly");
	else if (strcmp(r->torch.version, r->about.torch))
		snprintf(t->why, sizeof(t->why), "recorded with PyTorch %.60s, replayed by %.60s",
			 *r->about.torch ? r->about.torch : "(not known)",
			 *r->torch.version ? r->torch.version : "(not known)");
	else if (i->pools_unknown)
		snprintf(t->why, sizeof(t->why), "the streams of %u segments are unknown",
			 i->pools_unknown);
	else if (!t->settings_known)
		snprintf(t->why, sizeof(t->why),
			 "the recording does not contain its allocator settings");
	else
		snprintf(t->why, sizeof(t->why),
			 "unknown; possible causes: blocks used by a second stream (record_stream) "
			 "become free later, or the program changed settings while it ran");
}

static int own_run(const struct replay *r, unsigned flags, struct replay_answer *a,
		   struct failure *f)
{
	struct replay_run_opts o = { .alloc_conf = own_conf(r),
				     .flags = REPLAY_AS_FOUND | REPLAY_COMPARE | flags };

	/* A device that was never full did not influence the allocator, so its size is
	 * irrelevant. */
	if (!(flags & REPLAY_REFUSE) && (r->info.ooms || r->info.retries))
		o.vram = r->about.vram <= DRYRUN_VRAM_MAX ? r->about.vram : 0;
	if (contains(o.alloc_conf, "expandable_segments:True"))
		o.flags |= REPLAY_EXPANDABLE;
	memset(a, 0, sizeof(*a));
	return replay_run__try(r, &o, a, f);
}

/* Replays under another assumption and keeps the result if more events match. */
static int keep_if_better(const struct replay *r, unsigned flags, bool *holds,
			  struct replay_answer *a, struct failure *f)
{
	struct replay_answer other;
	int err = own_run(r, flags, &other, f);

	if (err)
		return err;
	*holds = other.compared - other.differ > a->compared - a->differ;
	if (*holds)
		*a = other;
	return 0;
}

static int find_truth(struct replay *r, struct failure *f)
{
	struct replay_truth *t = &r->about.truth;
	struct replay_answer a;
	int err = own_run(r, 0, &a, f);

	if (err)
		return err;
	/* The allocator collects garbage only after set_per_process_memory_fraction(), a call that
	 * a recording lacks. */
	if (a.differ && contains(own_conf(r), "garbage_collection_threshold"))
		err = keep_if_better(r, REPLAY_FRACTION, &r->fraction, &a, f);
	/* set_per_process_memory_fraction() may also have set a limit below the device's size. */
	if (!err && (a.differ || a.events != r->info.events) && r->info.ooms)
		err = keep_if_better(r, REPLAY_REFUSE | (r->fraction ? REPLAY_FRACTION : 0),
				     &r->refuse, &a, f);
	if (err)
		return err;
	t->settings_known = r->about.alloc_conf != NULL;
	t->events = a.compared;
	t->equal = a.compared && !a.differ && a.events == r->info.events;
	t->first = a.differ ? a.first : REPLAY_NOWHERE;
	t->first_time = a.first_time;
	t->first_recorded = a.first_recorded;
	t->first_replayed = a.first_replayed;
	t->largest = a.largest;
	t->at_peak = (int64_t)(a.peak_reserved - r->info.peak_reserved);
	if (!t->equal)
		explain(r, t);
	/* The replay ran out of memory before any difference. */
	if (a.oom && !a.differ && a.events != r->info.events) {
		t->first = a.oom_event;
		t->first_time = a.oom_time;
		t->first_recorded = r->info.peak_reserved;
		t->first_replayed = a.oom_reserved;
		snprintf(t->why, sizeof(t->why),
			 "the replay runs out of memory where the recording did not: other "
			 "programs may have used less of the device than assumed");
	}
	return 0;
}

static void fill_about(struct replay *r)
{
	const struct facts *facts = mtr_reader__facts(r->reader);
	struct replay_about *a = &r->about;
	const char *torch = facts__get(facts, "torch");

	a->torch = torch ? torch : "";
	a->alloc_conf = facts__get(facts, "alloc_conf");
	if (a->alloc_conf && strlen(a->alloc_conf) > CONF_MAX)
		a->alloc_conf = NULL;
	a->lib = r->torch.lib;
	a->lib_torch = r->torch.version;
	a->events = r->info.events;
	a->peak_allocated = r->info.peak_allocated;
	a->peak_reserved = r->info.peak_reserved;
	a->before = r->info.before;
	a->lost = r->info.lost;
	a->requested = r->info.asked && r->info.asked * 100 >= r->info.allocs * 99;
	a->pools = r->info.pools;
	a->ooms = r->info.ooms;
}

struct replay *replay__open(const struct replay_opts *opts, struct failure *f)
{
	struct replay *r = calloc(1, sizeof(*r));
	int err;

	if (!r) {
		failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
		return NULL;
	}
	r->spool = r->plan = r->torch.dir = -1;
	r->own = opts->own;
	r->user = opts->user;
	err = replay_run__find(r, f);
	if (!err)
		err = replay_read__plan(r, opts, f);
	if (!err)
		err = replay_torch__find(opts, mtr_reader__facts(r->reader), &r->torch, f);
	if (!err) {
		fill_about(r);
		err = find_truth(r, f);
	}
	if (!err)
		return r;
	replay__close(r);
	return NULL;
}

void replay__close(struct replay *r)
{
	if (!r)
		return;
	model__free(r->resolver);
	mtr_reader__free(r->reader);
	if (r->spool >= 0)
		close(r->spool);
	if (r->plan >= 0)
		close(r->plan);
	if (r->torch.dir >= 0)
		close(r->torch.dir);
	free(r);
}

const struct replay_about *replay__about(const struct replay *r)
{
	return &r->about;
}

static void set_where(const struct replay *r, const struct replay_answer *a, struct replay_oom *oom)
{
	const struct dict *d = mtr_reader__dict(r->reader);
	uint32_t stack = a->oom_stack <= UINT32_MAX ? (uint32_t)a->oom_stack : 0;
	uint32_t node = a->oom_node <= UINT32_MAX ? (uint32_t)a->oom_node : 0;
	char line[2 * DICT_MAX_STRING + 32];
	struct row_frame frame;
	const char *module;

	if (model__stack_line(r->resolver, stack, false, &frame)) {
		snprintf(line, sizeof(line), "%s:%u (%s)", frame.file, frame.line, frame.func);
		text__clean(oom->where, sizeof(oom->where), line, strlen(line));
	}
	module = dict__str(d, dict__get_module(d, model__module(r->resolver, stack, node, 0)).name);
	text__clean(oom->module, sizeof(oom->module), module, strlen(module));
}

static void fill_result(const struct replay *r, const struct replay_answer *a,
			struct replay_result *ret)
{
	*ret = (struct replay_result){
		.events = a->events,
		.peak_allocated = a->peak_allocated,
		.peak_reserved = a->peak_reserved,
		.peak_requested = r->about.requested ? a->peak_requested : 0,
		.reserved_event = a->reserved_event,
		.reserved_time = a->reserved_time,
		.end_allocated = a->end_allocated,
		.end_reserved = a->end_reserved,
		.segments = a->segments,
		.takes = a->takes,
		.retries = a->retries,
		.outside = a->outside,
	};
	if (a->peak_reserved > a->peak_allocated)
		ret->fragmentation = (double)(a->peak_reserved - a->peak_allocated) /
				     (double)a->peak_reserved;
	if (!a->oom)
		return;
	ret->oom = (struct replay_oom){
		.there = true,
		.event = a->oom_event,
		.time = a->oom_time,
		.asked = a->oom_asked,
		.allocated = a->oom_allocated,
		.reserved = a->oom_reserved,
	};
	set_where(r, a, &ret->oom);
}

int replay__try(struct replay *r, const struct replay_opts *opts, struct replay_result *ret,
		struct failure *f)
{
	struct replay_run_opts o = { .alloc_conf = opts->alloc_conf,
				     .vram = opts->vram,
				     .curve = opts->curve,
				     .ctx = opts->ctx };
	struct replay_answer a = { 0 };
	bool own;
	int err;

	if (!o.alloc_conf)
		o.alloc_conf = own_conf(r);
	if (strlen(o.alloc_conf) > CONF_MAX)
		return failure__set(f, EXIT_USAGE, -EINVAL,
				    "allocator settings longer than %u characters", CONF_MAX);
	if (o.vram && (o.vram < DRYRUN_VRAM_MIN || o.vram > DRYRUN_VRAM_MAX ||
		       o.vram <= replay__context(r))) {
		char b[24];

		return failure__set(f, EXIT_USAGE, -EINVAL,
				    "a device size must be 16M to 4T and larger than the memory "
				    "used by code other than PyTorch, here %s",
				    text__bytes(b, sizeof(b), replay__context(r)));
	}
	own = !strcmp(o.alloc_conf, own_conf(r));
	if (own && !opts->afresh)
		o.flags |= REPLAY_AS_FOUND;
	if (own ? r->fraction : contains(o.alloc_conf, "garbage_collection_threshold"))
		o.flags |= REPLAY_FRACTION;
	if (contains(o.alloc_conf, "expandable_segments:True"))
		o.flags |= REPLAY_EXPANDABLE;
	if (o.curve)
		o.flags |= REPLAY_CURVE;
	if (!o.vram && r->refuse)
		o.flags |= REPLAY_REFUSE;
	err = replay_run__try(r, &o, &a, f);
	if (!err)
		fill_result(r, &a, ret);
	return err;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + STEP - 1) & ~(STEP - 1);
}

int replay__smallest(struct replay *r, const struct replay_opts *opts, uint64_t *vram,
		     struct replay_result *ret, struct failure *f)
{
	struct replay_opts o = *opts;
	struct replay_result result;
	uint64_t low, high;
	int err;

	o.curve = NULL;
	o.vram = 0;
	err = replay__try(r, &o, &result, f);
	if (err)
		return err;
	low = round_up(result.peak_allocated + replay__context(r));
	low = low > DRYRUN_VRAM_MIN ? low - STEP : DRYRUN_VRAM_MIN;
	/* This size suffices without pressure. Memory of other code may peak at another time, so
	 * try larger ones. */
	for (high = round_up(result.peak_reserved + result.outside); high <= DRYRUN_VRAM_MAX;
	     high += high / 8 / STEP * STEP + STEP) {
		o.vram = high;
		err = replay__try(r, &o, ret, f);
		if (err)
			return err;
		if (!ret->oom.there)
			break;
		low = high;
	}
	if (high > DRYRUN_VRAM_MAX)
		return failure__set(f, EXIT_FAILED, -ERANGE, "it fits on no device");
	while (high - low > STEP) {
		o.vram = low + (high - low) / 2 / STEP * STEP;
		err = o.vram > replay__context(r) ? replay__try(r, &o, &result, f) : 0;
		if (err)
			return err;
		if (o.vram <= replay__context(r) || result.oom.there) {
			low = o.vram;
		} else {
			high = o.vram;
			*ret = result;
		}
	}
	*vram = high;
	return 0;
}
