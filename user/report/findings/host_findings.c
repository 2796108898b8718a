/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings about growth of host memory: PyTorch's cache of pinned memory, and copies of pages that
 * processes share. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "model/trend.h"
#include "record/stream.h"
#include "report/findings/internal.h"
#include "report/leaks.h"

void host_findings__judge(struct judging *j)
{
	const struct leaks_opts o = { .min_confidence = GROWTH_SUMMARY_CONFIDENCE,
				      .min_growth = GROWTH_SUMMARY_LEAST };

	leaks_host__judge(j->source->model, &o, &j->host);
}

static bool is_same_line(const struct row *a, const struct row *b)
{
	return a->file && b->file && a->line == b->line && !strcmp(a->file, b->file);
}

bool host_findings__is_pinned(const struct judging *j, const struct growth_summary *s)
{
	const struct leaks_host *h = &j->host;

	/* A copy on a GPU that grows at the same line is a leak there. */
	if (text__starts(s->device, "cuda"))
		return false;
	if (h->taken.count && s->line && is_same_line(&s->line->row, &h->taken.line))
		return true;
	if (strcmp(s->device, "host") != 0 || !(h->pinned || h->pinned_before))
		return false;
	/* A quarter of the growth is enough: the last reading may be seconds before the end. */
	return h->pinned_all > h->pinned_first &&
	       h->pinned_all - h->pinned_first >= s->growth.allocated.trend.grown / 4;
}

int host_findings__add_pinned(struct judging *j, const struct growth_summary *s, const char *where)
{
	const struct leaks_host *host = &j->host;
	char text[GROWTH_SUMMARY_TEXT + 80], said[GROWTH_SUMMARY_TEXT], rate[40], all[24],
		cached[24], place[REPORT_TEXT], at[216] = "";
	struct finding finding = {
		.code = FINDING_PINNED_GROWS,
		.device = "host",
		.bytes = host->cached,
		.whole = host->pinned_all,
		.text = text,
		.where = (char *)where,
		.sure = "medium",
		.remedy = "pin tensors of one size, so that PyTorch can use its cached pinned "
			  "memory again",
	};

	if (host->taken.count) {
		finding.bytes = host->taken.bytes;
		finding.where = words__location(place, &host->taken.line,
						facts__get(j->source->facts, "cwd"),
						/*columns=*/60);
		snprintf(at, sizeof(at), " at %.200s", place);
	}
	if (s && !host->taken.count) {
		finding.rate = s->per_step;
		finding.rate_key = growth_summary__rate_key(s->clock);
		growth_summary__say(s, said);
	} else {
		finding.rate = host->pinned_rate;
		finding.rate_key = growth_summary__rate_key(GROWTH_TIME);
		snprintf(said, sizeof(said), "%s/s of pinned memory%s",
			 growth_summary__signed(rate, sizeof(rate), host->pinned_rate), at);
	}
	snprintf(text, sizeof(text), "%s: %s of %s pinned are cached", said,
		 text__bytes(cached, sizeof(cached), host->cached),
		 text__bytes(all, sizeof(all), host->pinned_all));
	j->pinned = true;
	return findings__add(j, &finding);
}

bool host_findings__tensors_grow(const struct judging *j, struct growth_summary *ret)
{
	const struct findings_source *source = j->source;
	int device = model__find_device(source->model, "cpu");

	if (device < 0 ||
	    growth_summary__of(source->model, source->facts, (size_t)device, source->duration, ret))
		return false;
	if (ret->verdict == GROWTH_VERDICT_GROWS)
		return true;
	growth_summary__free(ret);
	return false;
}

/* True if the line's growth is that of tensors on the CPU: it allocates them, or the object that
 * holds them holds its blocks. malloc charges all of a new arena to the line that needed it. */
static bool is_of_tensors(const struct growth_line *line, const struct growth_summary *tensors)
{
	for (size_t i = 0; i < tensors->growth.n; i++)
		if (is_same_line(&line->row, &tensors->growth.lines[i].row))
			return true;
	return tensors->holder && line->nnames &&
	       !strcmp(line->names[0].text, tensors->holder->text);
}

/* Returns a summary's rate in bytes per minute, or per step if no minute is known. */
static double in_minutes(const struct growth_summary *s, double rate)
{
	return s->per_minute > 0 && s->per_step > 0 ? rate * s->per_minute / s->per_step : rate;
}

/* Returns the line of host memory that grows most and whose growth is not that of the tensors.
 * NULL: the tensors explain the growth of host memory. Without theirs, less is left of it than half
 * of that line's, or than a quarter of theirs. */
static const struct growth_line *find_beside(const struct growth_summary *s,
					     const struct growth_summary *tensors)
{
	double tensors_grow = in_minutes(tensors, tensors->lines_per_step > tensors->per_step
							  ? tensors->lines_per_step
							  : tensors->per_step);
	double rest = in_minutes(s, s->lines_per_step) - tensors_grow;

	for (size_t i = 0; i < s->growth.n; i++) {
		const struct growth_line *line = &s->growth.lines[i];

		if (!trend__is_sure(&line->trend, s->clock == GROWTH_STEPS) ||
		    is_of_tensors(line, tensors))
			continue;
		if (rest < in_minutes(s, line->per_step) / 2 || rest < tensors_grow / 4)
			return NULL;
		return line;
	}
	return NULL;
}

int host_findings__add_beside(struct judging *j, const struct model_device *d,
			      const struct growth_summary *s, const struct growth_summary *tensors)
{
	const struct growth_line *line = find_beside(s, tensors);
	struct growth_summary beside = *s; /* of this line alone; s owns its parts */
	char said[GROWTH_SUMMARY_TEXT], where[REPORT_TEXT], holder[400] = "", remedy[512];
	struct finding finding = {
		.code = FINDING_LEAK,
		.device = "host",
		.whole = d->peak_allocated,
		.rate_key = growth_summary__rate_key(s->clock),
		.text = said,
		.where = where,
		.held_by = holder,
		.remedy = remedy,
	};

	if (!line)
		return 0;
	beside.part = GROWTH_OF_LINE;
	beside.line = line;
	beside.lines = 1;
	beside.per_minute = in_minutes(s, line->per_step) * (s->per_minute > 0);
	beside.per_step = beside.lines_per_step = line->per_step;
	beside.confidence = line->trend.confidence;
	beside.holder = line->nnames ? &line->names[0] : NULL;
	beside.full_known = false;
	growth_summary__say(&beside, said);
	words__location(where, &line->row, s->cwd, /*columns=*/60);
	strcpy(remedy, "stop the leak: what this line allocates is never freed");
	if (beside.holder)
		text__clean(holder, sizeof(holder), beside.holder->text,
			    strlen(beside.holder->text));
	if (beside.holder && growth_summary__is_holder(beside.holder))
		snprintf(remedy, sizeof(remedy),
			 "stop the leak: %.200s holds more each %s; bound its size, or empty it",
			 holder, growth_summary__unit(&s->growth));
	finding.bytes = line->trend.grown;
	finding.rate = line->per_step;
	finding.sure = (char *)trend__confidence(line->trend.confidence);
	return findings__add(j, &finding);
}

/* Adds a finding about private copies of shared pages. Returns 0 or -ENOMEM. */
static int add_copies(struct judging *j)
{
	const struct leaks_host *host = &j->host;
	char text[256], rate[40], from[24], to[24], grown[80];
	struct finding finding = {
		.code = FINDING_COPIES_GROW,
		.device = "host",
		.bytes = host->to - host->from,
		.whole = host->to,
		.text = text,
		.sure = "medium",
		.remedy = "keep data that workers read in arrays or tensors instead of lists of "
			  "Python objects: reading an object writes its reference count",
	};

	snprintf(grown, sizeof(grown), "from %s to %s of private memory",
		 text__bytes(from, sizeof(from), host->from),
		 text__bytes(to, sizeof(to), host->to));
	if (host->copies)
		snprintf(grown, sizeof(grown), "%s/s of private memory",
			 growth_summary__signed(rate, sizeof(rate), host->copied));
	snprintf(text, sizeof(text),
		 "%s, resident memory is steady: pages shared with the parent process are copied",
		 grown);
	return findings__add(j, &finding);
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
		err = host_findings__add_pinned(j, NULL, /*where=*/NULL);
	if (!err && has_copies(j) && h->to > h->from)
		err = add_copies(j);
	return err;
}
