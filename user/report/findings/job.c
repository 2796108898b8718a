/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The findings of several recordings: each finding once, with the ranks that have it, and ranks
 * that differ. */
#include "report/findings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "report/findings/internal.h"
#include "report/ranks/ranks.h"

struct findings_job {
	struct ranks_opts opts;
	struct ranks *ranks;
	struct findings *all; /* by recording, in the order of findings_job__add() */
	size_t n, cap;
	/* After findings_job__finish(). */
	struct shared {
		/* the shared finding, from the rank with the most bytes */
		const struct finding *largest;
		struct finding *owned; /* the same if it is about the ranks; NULL: it is in all */
		bool *has;	       /* has[rank]: the rank has the finding */
		size_t n;	       /* number of ranks that have it */
	} * list;
	size_t nlist, cap_list, faults;
};

struct findings_job *findings_job__new(void)
{
	struct findings_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->opts = (struct ranks_opts){ .by = BY_LINE, .words = true };
	job->ranks = ranks__new(&job->opts);
	if (job->ranks)
		return job;
	free(job);
	return NULL;
}

static void free_shared(struct shared *s)
{
	if (s->owned)
		findings__free_texts(s->owned);
	free(s->owned);
	free(s->has);
}

void findings_job__free(struct findings_job *job)
{
	if (!job)
		return;
	for (size_t i = 0; i < job->nlist; i++)
		free_shared(&job->list[i]);
	for (size_t i = 0; i < job->n; i++)
		findings__free(&job->all[i]);
	free(job->list);
	free(job->all);
	ranks__free(job->ranks);
	free(job);
}

int findings_job__add(struct findings_job *job, const struct analysis *a,
		      const struct findings_source *source)
{
	int err = array__grow(&job->all, &job->cap, job->n + 1, sizeof(*job->all));

	if (err)
		return err;
	err = ranks__add(job->ranks, a, /*device=*/-1);
	if (err) /* -ENODATA: a recording without memory is no rank */
		return err == -ENODATA ? 0 : err;
	err = findings__judge(source, &job->all[job->n]);
	if (!err)
		job->n++;
	return err;
}

/* True if two recordings have the same finding. The indices of their devices may differ. */
static bool is_same(const struct finding *a, const struct finding *b)
{
	size_t len = strcspn(a->device, ":");

	return a->code == b->code && len == strcspn(b->device, ":") &&
	       !strncmp(a->device, b->device, len) && !strcmp(a->where, b->where) &&
	       !strcmp(a->held_by, b->held_by);
}

/* Adds an entry for a finding, which must outlive the entry. NULL: memory is short. */
static struct shared *add_entry(struct findings_job *job, const struct finding *f)
{
	struct shared *entry;

	if (array__grow(&job->list, &job->cap_list, job->nlist + 1, sizeof(*job->list)))
		return NULL;
	entry = &job->list[job->nlist];
	*entry = (struct shared){ .largest = f, .has = calloc(job->n, sizeof(*entry->has)) };
	if (!entry->has)
		return NULL;
	job->nlist++;
	return entry;
}

/* Finds or adds the entry of a finding. NULL: memory is short. */
static struct shared *find_entry(struct findings_job *job, const struct finding *f)
{
	for (size_t i = 0; i < job->nlist; i++)
		if (is_same(job->list[i].largest, f))
			return &job->list[i];
	return add_entry(job, f);
}

/* Adds a finding about the ranks, with copies of its text and remedy. Returns the entry; NULL:
 * memory is short. */
static struct shared *add_of_ranks(struct findings_job *job, enum finding_code code,
				   const char *text, const char *remedy)
{
	struct finding *finding = calloc(1, sizeof(*finding));
	struct shared *entry = NULL;

	if (!finding)
		return NULL;
	*finding = (struct finding){ .code = code,
				     .text = strdup(text),
				     .where = strdup(""),
				     .held_by = strdup(""),
				     .sure = strdup("exact"),
				     .remedy = strdup(remedy) };
	if (findings__is_whole(finding))
		entry = add_entry(job, finding);
	if (!entry) {
		findings__free_texts(finding);
		free(finding);
		return NULL;
	}
	entry->owned = finding;
	return entry;
}

/* Adds a finding for each device that several ranks use. Returns 0 or -ENOMEM. */
static int add_shared_devices(struct findings_job *job)
{
	const struct ranks *ranks = job->ranks;
	char *text = malloc(REPORT_TEXT);
	int err = text ? 0 : -ENOMEM;

	for (size_t i = 0; i < ranks->shared.n && !err; i++) {
		const struct shared_device *d = &ranks->shared.all[i];
		uint64_t bytes;
		struct shared *entry;

		ranks__say_shared(ranks, i, text, &bytes);
		entry = add_of_ranks(job, FINDING_DEVICE_SHARED, text, ranks_shared_remedy);
		if (!entry) {
			err = -ENOMEM;
			break;
		}
		entry->owned->bytes = bytes;
		for (uint32_t use = d->first; use < d->first + d->n; use++)
			entry->has[ranks->shared.uses[use].recording] = true;
		entry->n = d->n;
	}
	free(text);
	return err;
}

/* Adds a finding about the largest difference between ranks. Returns 0 or -ENOMEM. */
static int add_difference(struct findings_job *job)
{
	const struct ranks *r = job->ranks;
	const struct outlier *outlier = r->outliers.all;
	struct shared *entry;
	char *text;

	if (!r->outliers.n || !ranks__one_job(r))
		return 0;
	text = malloc(REPORT_TEXT);
	if (!text)
		return -ENOMEM;
	entry = add_of_ranks(
		job, FINDING_RANKS_DIFFER, ranks__say_outlier(r, outlier, text),
		"see which lines differ: `memtrace-bpf report` with the same recordings");
	free(text);
	if (!entry)
		return -ENOMEM;
	entry->owned->bytes = outlier__distance(outlier);
	entry->owned->whole = outlier->bytes > outlier->others ? outlier->bytes : outlier->others;
	entry->has[outlier->recording] = true;
	entry->n = 1;
	return 0;
}

static int worst_first(const void *x, const void *y)
{
	const struct shared *a = x, *b = y;

	return findings__compare(a->largest, b->largest);
}

/* Merges the findings of the ranks, in the order of ranks, then adds those about the ranks. */
int findings_job__finish(struct findings_job *job)
{
	int err = ranks__finish(job->ranks);

	if (err)
		return err;
	for (size_t rank = 0; rank < job->ranks->n; rank++) {
		const struct findings *findings = &job->all[job->ranks->all[rank].added];

		for (size_t i = 0; i < findings->n; i++) {
			struct shared *entry = find_entry(job, &findings->all[i]);

			if (!entry)
				return -ENOMEM;
			if (findings->all[i].bytes > entry->largest->bytes)
				entry->largest = &findings->all[i];
			entry->n += !entry->has[rank];
			entry->has[rank] = true;
		}
	}
	err = add_shared_devices(job);
	if (err)
		return err;
	err = add_difference(job);
	if (err)
		return err;
	if (job->nlist)
		qsort(job->list, job->nlist, sizeof(*job->list), worst_first);
	for (size_t i = 0; i < job->nlist; i++)
		job->faults += finding__is_fault(job->list[i].largest->code);
	return 0;
}

size_t findings_job__faults(const struct findings_job *job)
{
	return job->faults;
}

/* Writes "rank 2 of 4", "all 4 recordings" or "ranks 0-2 of 4". */
static char *say_ranks(const struct findings_job *job, const struct shared *s, char *buf,
		       size_t size)
{
	char names[256];

	if (s->n == job->ranks->n) {
		snprintf(buf, size, "all %zu recordings", s->n);
		return buf;
	}
	ranks__list(job->ranks, s->has, names, sizeof(names));
	if (ranks__one_job(job->ranks))
		snprintf(buf, size, "%s of %zu", names, job->ranks->n);
	else
		snprintf(buf, size, "%s", names);
	return buf;
}

int findings_job__text(FILE *out, const struct findings_job *job, size_t width)
{
	struct findings_page page = { .out = out, .width = width };
	char ranks[320];

	findings_page__begin(&page);
	if (page.broken)
		return -ENOMEM;
	ranks__print_title(page.mem, width, job->ranks);
	if (!job->faults)
		text__paragraph(page.mem, width, "", "  ",
				"Nothing wrong was seen in %zu recordings.", job->ranks->n);
	findings_page__end_head(&page, job->faults);
	for (size_t i = 0; i < job->nlist; i++)
		findings_page__add(&page, job->list[i].largest,
				   say_ranks(job, &job->list[i], ranks, sizeof(ranks)));
	return findings_page__end(&page, "memtrace-bpf leaks, or report, with the same recordings");
}

void findings_job__json(struct json *j, const struct findings_job *job)
{
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__bool(j, "together", true);
	json__bool(j, "one_job", ranks__one_job(job->ranks));
	json__uint(j, "faults", job->faults);
	json__open_array(j, "recordings");
	for (size_t i = 0; i < job->ranks->n; i++) {
		const struct rank *rank = &job->ranks->all[i];

		json__open_object(j, NULL);
		json__string(j, "recording", rank->name);
		json__uint_or_null(j, "rank", rank->has_number, rank->number);
		json__uint(j, "events", rank->events);
		json__uint(j, "lost", rank->lost);
		json__bool(j, "complete", rank->complete);
		json__uint(j, "steps", rank->steps);
		json__bool(j, "growth_known", job->all[rank->added].judged);
		json__string(j, "growth", job->all[rank->added].growth);
		json__close_object(j);
	}
	json__close_array(j);
	json__open_array(j, "findings");
	for (size_t i = 0; i < job->nlist; i++) {
		json__open_object(j, NULL);
		findings__put(j, job->list[i].largest);
		json__open_array(j, "recordings");
		for (size_t rank = 0; rank < job->ranks->n; rank++)
			if (job->list[i].has[rank])
				json__uint(j, NULL, rank);
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}
