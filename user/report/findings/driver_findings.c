/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Findings about a device that is full, as CUDA's driver shows it. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "record/oom.h"
#include "report/findings/internal.h"

/* Percent of the device's memory: */
#define OTHERS_PERCENT 10 /* least memory of other processes that is a finding */
#define SCARCE_PERCENT 10 /* with more memory left, other processes are no finding */

/* Adds a finding if CUDA refused calls until the allocator gave back its cache. Returns 0 or
 * -ENOMEM. */
static int add_retries(struct judging *j, const struct model_device *d)
{
	char where[REPORT_TEXT], text[REPORT_TEXT], size[24], times[32];
	struct finding finding = {
		.code = FINDING_RETRIES,
		.bytes = d->retry_size,
		.whole = words__device_total(j->source->facts, d),
		.text = text,
		.where = where,
		.sure = "exact",
		.remedy = "lower the peak, so that the cache can stay (`memtrace-bpf report "
			  "--advice`), or let it fit: PYTORCH_CUDA_ALLOC_CONF="
			  "expandable_segments:True",
	};
	size_t len;

	if (!d->retries)
		return 0;
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	findings__place(j->source, d->retry_stack, where);
	len = findings__at(text, where);
	snprintf(text + len, sizeof(text) - len,
		 "CUDA refused %s until PyTorch gave back cached memory; %s in all",
		 text__bytes(size, sizeof(size), d->retry_size),
		 text__counted(times, sizeof(times), d->retries, "time"));
	return findings__add(j, &finding);
}

/* Adds the largest other process to a finding's text, if it is known. */
static void name_largest(const struct judging *j, size_t device, char text[REPORT_TEXT])
{
	size_t len = strlen(text);
	char name[WORDS_NEIGHBOUR];
	struct neighbours neighbours;

	if (words__neighbours_of(j->source->model, j->source->facts, device, &neighbours) &&
	    neighbours.n)
		snprintf(text + len, REPORT_TEXT - len, "; the largest is %s",
			 words__neighbour(name, &neighbours.v[0]));
	neighbours__free(&neighbours);
}

/* Adds a finding about other processes, if the job lacks the memory that they have: it ran out, or
 * little is left. Returns 0 or -ENOMEM. */
static int add_others(struct judging *j, size_t device, const struct model_device *d)
{
	uint64_t total = words__device_total(j->source->facts, d), others;
	char text[REPORT_TEXT], theirs[24], own[24], left[24];
	struct finding finding = {
		.code = FINDING_OTHER_PROCESSES,
		.whole = total,
		.text = text,
		.sure = "exact",
		.remedy = "`memtrace-bpf ps --device` lists them: end those that are not needed, "
			  "or use another GPU",
	};

	if (!words__other_processes(j->source->facts, d, &others) ||
	    others < total / 100 * OTHERS_PERCENT)
		return 0;
	if (!d->ooms && !d->retries && d->driver_left > total / 100 * SCARCE_PERCENT)
		return 0;
	finding.bytes = others;
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	snprintf(text, sizeof(text), "other processes have %s, this process has %s; %s are left",
		 text__bytes(theirs, sizeof(theirs), others),
		 text__bytes(own, sizeof(own), d->driver_used),
		 text__bytes(left, sizeof(left), d->driver_left));
	name_largest(j, device, text);
	return findings__add(j, &finding);
}

int driver_findings__add(struct judging *j, size_t device, const struct model_device *d)
{
	int err = add_retries(j, d);

	return err ? err : add_others(j, device, d);
}
