/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/text.h"
#include "capture/session.h"

/* Smallest gain worth a recommendation: one segment for small allocations of the large pool. */
#define LEAST_GAIN (20ULL << 20)

#define EXPANDABLE                                                                                 \
	"cudaIpcGetMemHandle() does not support such memory: code that shares it with other "      \
	"processes needs a newer method; segments are mapped in units of 2 or 20 MiB, which "      \
	"takes time"
#define SPLIT                                                                                      \
	"blocks above that size are not split: cached ones serve only requests of "                \
	"about their size"
#define ROUNDUP "each block is rounded up, so that it can be reused for blocks of about its size"
#define COLLECT                                                                                    \
	"works only if the program calls torch.cuda.set_per_process_memory_fraction(); freeing "   \
	"memory and allocating it again costs time"

static const struct candidate {
	const char *conf, *costs;
	bool limited; /* true: useful only with limited memory */
} candidates[] = {
	{ "", "", false },
	{ "expandable_segments:True", EXPANDABLE, false },
	{ "max_split_size_mb:64", SPLIT, false },
	{ "max_split_size_mb:128", SPLIT, false },
	{ "max_split_size_mb:256", SPLIT, false },
	{ "max_split_size_mb:512", SPLIT, false },
	{ "roundup_power2_divisions:4", ROUNDUP, false },
	{ "roundup_power2_divisions:8", ROUNDUP, false },
	{ "roundup_power2_divisions:16", ROUNDUP, false },
	{ "expandable_segments:True,roundup_power2_divisions:8", EXPANDABLE, false },
	{ "max_split_size_mb:128,roundup_power2_divisions:8", SPLIT, false },
	{ "garbage_collection_threshold:0.8", COLLECT, true },
	{ "garbage_collection_threshold:0.8,max_split_size_mb:128", COLLECT, true },
};
#define N_CANDIDATES (sizeof(candidates) / sizeof(*candidates))

/* Replays under the settings of t. afresh: without the layout from before the first event. Returns
 * 0, or negative and *f. */
static int try_settings(struct replay *r, const struct replay_opts *opts, struct replay_tried *t,
			bool afresh, struct failure *f)
{
	struct replay_opts o = { .device = opts->device,
				 .vram = opts->vram,
				 .alloc_conf = t->own ? NULL : t->alloc_conf,
				 .afresh = afresh };
	int err = replay__try(r, &o, &t->result, f);

	/* This PyTorch may not have one of the settings, and can still try the others. */
	if (err && !t->own && f->status == EXIT_FAILED) {
		t->failed = true;
		text__clean(t->why, sizeof(t->why), f->text, strlen(f->text));
		return 0;
	}
	return err;
}

/* True if a is better: it fits, or gets further if none fits; if both fit, it reserves less. */
static bool is_better(const struct replay_tried *a, const struct replay_tried *b)
{
	if (a->result.oom.there != b->result.oom.there)
		return b->result.oom.there;
	if (a->result.oom.there)
		return a->result.oom.event > b->result.oom.event;
	return a->result.peak_reserved < b->result.peak_reserved;
}

/* Chooses the settings to recommend, and says why: found->best and verdict. Gains below 1 %,
 * LEAST_GAIN or twice the replay's error do not count. */
static void choose_best(struct replay_found *found)
{
	const struct replay_tried *own = &found->v[0], *best = own;
	const struct replay_truth *truth = &found->about->truth;
	uint64_t least = own->result.peak_reserved / 100, gain;
	char a[24], b[24];

	for (size_t i = 1; i < found->n; i++)
		if (!found->v[i].failed && is_better(&found->v[i], best))
			best = &found->v[i];
	if (least < LEAST_GAIN)
		least = LEAST_GAIN;
	if (least < 2 * truth->largest)
		least = 2 * truth->largest;
	if (best == own) {
		snprintf(found->verdict, sizeof(found->verdict),
			 "none; the recording's own settings are best");
		return;
	}
	if (own->result.oom.there) {
		if (best->result.oom.there) {
			snprintf(found->verdict, sizeof(found->verdict),
				 "none; it fits under no settings");
			return;
		}
		found->best = best;
		snprintf(found->verdict, sizeof(found->verdict),
			 "fits; it runs out of memory under its own settings");
		return;
	}
	gain = own->result.peak_reserved - best->result.peak_reserved;
	if (gain < least) {
		snprintf(found->verdict, sizeof(found->verdict),
			 "none; the best settings would save %s, and less than %s does not count "
			 "as a gain%s",
			 text__bytes(a, sizeof(a), gain), text__bytes(b, sizeof(b), least),
			 truth->largest ? " (this replay is off by up to half of that)" : "");
		return;
	}
	found->best = best;
	snprintf(found->verdict, sizeof(found->verdict), "saves %s of reserved memory, %.1f %%",
		 text__bytes(a, sizeof(a), gain),
		 100.0 * (double)gain / (double)own->result.peak_reserved);
}

int replay__search(struct replay *r, const struct replay_opts *opts, struct replay_tried **ret,
		   struct replay_found *found, struct failure *f)
{
	const struct replay_about *about = replay__about(r);
	const char *own = about->alloc_conf ? about->alloc_conf : "";
	struct replay_tried *v = calloc(N_CANDIDATES + 1, sizeof(*v));
	size_t n = 0;
	int err = v ? 0 : failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");

	for (size_t i = 0; i <= N_CANDIDATES && !err; i++) {
		/* The recording's own settings come first. */
		const struct candidate *c = i ? &candidates[i - 1]
					      : &(struct candidate){ own, "", false };

		if (i && (!strcmp(c->conf, own) || (c->limited && !opts->vram)))
			continue;
		v[n] = (struct replay_tried){ .alloc_conf = c->conf, .own = !i, .costs = c->costs };
		/* Other settings cannot restore the layout from before the first event. For a fair
		 * comparison no try restores it. */
		err = try_settings(r, opts, &v[n++], about->before != 0, f);
	}
	if (err) {
		free(v);
		return err;
	}
	found->v = v;
	found->n = n;
	found->searched = true;
	choose_best(found);
	*ret = v;
	return 0;
}
