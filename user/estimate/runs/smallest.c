/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the smallest memory that a script runs with. Each try runs the script; the first size is a
 * guess. */
#include "estimate/estimate.h"

#include <inttypes.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/session.h"
#include "estimate/replay.h"

#define TRIES 16

struct search {
	struct estimate *e;
	uint64_t fails, fits; /* granules: largest size known or assumed to fail, smallest known or
				 assumed to fit */
	bool fails_run, fits_run;
	const char *why;
};

/* Runs the script. Returns 0 or an exit code, logged. *fits: it ended normally without a refused
 * request. */
static int try(struct search *s, uint64_t granules, bool *fits)
{
	struct estimate_smallest *r = &s->e->smallest;
	uint64_t vram = granules * ESTIMATE_GRANULE;
	struct estimate_run run;
	char size[24];
	int status;

	log_info("trying %s", text__bytes(size, sizeof(size), vram));
	status = estimate__try(s->e, "try.mtr", vram, true, &run);
	if (status)
		return status;
	r->runs++;
	*fits = run.attached && !run.ooms && estimate__whole(&run);
	if (!*fits && !run.ooms)
		s->why = run.end == RUN_INTERRUPTED ? "it was interrupted"
			 : estimate__failed(&run)
				 ? "the script failed in a run with less memory, but not because "
				   "memory ran out"
				 : "a run with less memory was stopped before it ended";
	if (*fits) {
		s->fits = granules;
		s->fits_run = true;
	} else if (run.ooms) {
		s->fails = granules;
		s->fails_run = true;
	}
	return EXIT_OK;
}

/* Searches outwards from a guess until one size fails and one fits. */
static int search_around(struct search *s, uint64_t guess_by_replay)
{
	uint64_t step = 1, at = guess_by_replay;
	bool fits, up;
	int status;

	if (guess_by_replay <= s->fails || guess_by_replay > s->fits)
		return EXIT_OK;
	status = try(s, at, &fits);
	up = !fits;
	while (!status && !s->why && s->fails + 1 < s->fits && s->e->smallest.runs < TRIES) {
		at = up			      ? guess_by_replay + step
		     : guess_by_replay > step ? guess_by_replay - step
					      : 0;
		step *= 4;
		if (at <= s->fails || at >= s->fits)
			break;
		status = try(s, at, &fits);
		if (fits == up)
			break;
	}
	return status;
}

static int bisect(struct search *s)
{
	int status = EXIT_OK;
	bool fits;

	while (!status && !s->why && s->fails + 1 < s->fits && s->e->smallest.runs < TRIES)
		status = try(s, s->fails + (s->fits - s->fails) / 2, &fits);
	/* Run the assumed bounds, too. */
	if (!status && !s->why && !s->fits_run)
		status = try(s, s->fits, &fits);
	if (!status && !s->why && s->fits_run && !s->fails_run && s->fits > 1)
		status = try(s, s->fits - 1, &fits);
	return status;
}

/* Guesses the smallest size by a replay through PyTorch's allocator, in milliseconds instead of
 * seconds. The script may behave differently with less memory. 0: no guess. */
static uint64_t guess_by_replay(const struct estimate *e)
{
	struct replay_opts o = { .path = e->full->path,
				 .alloc_conf = e->args->run.dryrun.alloc_conf,
				 .own = true };
	struct user user;
	struct replay_result result;
	struct model_device d;
	struct replay *r;
	struct failure f;
	uint64_t vram = 0;

	model__device(e->full->model, (size_t)e->device, &d);
	o.device = d.device.index;
	o.user = estimate__other_user(e, &user) ? &user : NULL;
	r = replay__open(&o, &f);
	if (!r || replay__smallest(r, &o, &vram, &result, &f)) {
		log_debug("no guess by a replay: %s", f.text);
		vram = 0;
	}
	replay__close(r);
	return vram;
}

int estimate_smallest__find(struct estimate *e)
{
	struct estimate_smallest *r = &e->smallest;
	struct search s = { .e = e };
	int status;

	if (!e->full_is_whole || e->full_run.ooms) {
		r->why = "no run ended without a refused allocation";
		return EXIT_OK;
	}
	/* The peak of reserved bytes always fits; less than the peak of allocated bytes
	 * never does. */
	s.fits = granule__up(e->parts.needs) / ESTIMATE_GRANULE;
	s.fails = granule__down(e->parts.allocated + e->parts.bytes[PART_OUTSIDE] +
				e->parts.bytes[PART_CONTEXT]) /
		  ESTIMATE_GRANULE;
	s.fails -= s.fails != 0;
	if (s.fails < DRYRUN_VRAM_MIN / ESTIMATE_GRANULE)
		s.fails = DRYRUN_VRAM_MIN / ESTIMATE_GRANULE - 1;
	if (s.fits <= s.fails)
		s.fits = s.fails + 1;
	r->guess = guess_by_replay(e);
	status = r->guess ? search_around(&s, r->guess / ESTIMATE_GRANULE) : EXIT_OK;
	if (!status && !s.why)
		status = bisect(&s);
	if (status)
		return status;
	r->found = !s.why && s.fits_run;
	r->vram = s.fits * ESTIMATE_GRANULE;
	r->less_refused = s.fails_run && s.fails + 1 == s.fits;
	r->why = s.why ? s.why : "no run with less memory than the unlimited run ended";
	return EXIT_OK;
}
