/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings about growth of host memory: PyTorch's cache of pinned memory, and copies of pages that
 * processes share. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "record/stream.h"
#include "report/findings/internal.h"
#include "report/leaks.h"

void host_findings__judge(struct judging *j)
{
	const struct leaks_opts o = { .min_confidence = GROWTH_SUMMARY_CONFIDENCE,
				      .min_growth = GROWTH_SUMMARY_LEAST };

	leaks_host__judge(j->source->model, &o, &j->host);
}

bool host_findings__is_pinned(const struct judging *j, const struct growth_summary *s)
{
	const struct leaks_host *h = &j->host;
	const struct row *taken = &h->taken.line, *grows = s->line ? &s->line->row : NULL;

	/* A copy on a GPU that grows at the same line is a leak there. */
	if (text__starts(s->device, "cuda"))
		return false;
	if (h->taken.count && grows && grows->file && taken->file && grows->line == taken->line &&
	    !strcmp(grows->file, taken->file))
		return true;
	/* A quarter of the growth is enough: the last reading may be seconds before the end. */
	return !strcmp(s->device, "host") && (h->pinned || h->pinned_before) &&
	       h->pinned_all > h->pinned_first &&
	       h->pinned_all - h->pinned_first >= s->growth.allocated.trend.grown / 4;
}

int host_findings__add_pinned(struct judging *j, const struct growth_summary *s, const char *where)
{
	const struct leaks_host *h = &j->host;
	char text[GROWTH_SUMMARY_TEXT + 80], said[GROWTH_SUMMARY_TEXT], rate[40], all[24],
		cached[24], place[REPORT_TEXT], at[216] = "";
	struct finding f = {
		.code = FINDING_PINNED_GROWS,
		.device = "host",
		.bytes = h->cached,
		.whole = h->pinned_all,
		.text = text,
		.where = (char *)where,
		.sure = "medium",
		.remedy = "pin tensors of one size, so that PyTorch can use its cached pinned "
			  "memory again",
	};

	if (h->taken.count) {
		f.bytes = h->taken.bytes;
		f.where = words__location(place, &h->taken.line,
					  facts__get(j->source->facts, "cwd"), 60);
		snprintf(at, sizeof(at), " at %.200s", place);
	}
	if (s && !h->taken.count) {
		f.rate = s->per_step;
		f.rate_key = growth_summary__rate_key(s->clock);
		growth_summary__say(s, said);
	} else {
		f.rate = h->pinned_rate;
		f.rate_key = growth_summary__rate_key(GROWTH_TIME);
		snprintf(said, sizeof(said), "%s/s of pinned memory%s",
			 growth_summary__signed(rate, sizeof(rate), h->pinned_rate), at);
	}
	snprintf(text, sizeof(text), "%s: %s of %s pinned are cached", said,
		 text__bytes(cached, sizeof(cached), h->cached),
		 text__bytes(all, sizeof(all), h->pinned_all));
	j->pinned = true;
	return findings__add(j, &f);
}

static int add_copies(struct judging *j)
{
	const struct leaks_host *h = &j->host;
	char text[256], rate[40], from[24], to[24], all[80];
	struct finding f = {
		.code = FINDING_COPIES_GROW,
		.device = "host",
		.bytes = h->to - h->from,
		.whole = h->to,
		.text = text,
		.sure = "medium",
		.remedy = "keep data that workers read in arrays or tensors instead of lists of "
			  "Python objects: reading an object writes its reference count",
	};

	snprintf(all, sizeof(all), "from %s to %s of private memory",
		 text__bytes(from, sizeof(from), h->from), text__bytes(to, sizeof(to), h->to));
	if (h->copies)
		snprintf(all, sizeof(all), "%s/s of private memory",
			 growth_summary__signed(rate, sizeof(rate), h->copied));
	snprintf(text, sizeof(text),
		 "%s, resident memory is steady: pages shared with the parent process are copied",
		 all);
	return findings__add(j, &f);
}

/* True if private copies of shared pages grow. For a DataLoader's worker also if that growth has
 * ended: it reads the same objects in each epoch and copies each page at most once. Other forked
 * processes copy pages when they begin, which is no fault. */
static bool has_copies(const struct judging *j)
{
	const char *comm = facts__get(j->source->facts, "comm");

	if (j->host.copies)
		return true;
	return j->host.copied_before && comm && !strcmp(comm, "pt_data_worker");
}

int host_findings__add(struct judging *j)
{
	const struct leaks_host *h = &j->host;
	int err = 0;

	if (h->pinned && !j->pinned)
		err = host_findings__add_pinned(j, NULL, NULL);
	if (!err && has_copies(j) && h->to > h->from)
		err = add_copies(j);
	return err;
}
