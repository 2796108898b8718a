/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/job_spans.h"

#include <errno.h>
#include <stdlib.h>

#include "model/model.h"
#include "model/outliers.h"

static size_t kept_steps(const struct model *m)
{
	struct model_step s;
	size_t n = 0;

	while (model__step(m, n, &s))
		n++;
	return n;
}

int job_spans__of(const struct model *m, struct job_spans *ret)
{
	size_t kept = kept_steps(m), all = model__steps(m);
	size_t skip = kept == all && !model__first_step_whole(m);
	struct model_step s;

	*ret = (struct job_spans){ 0 };
	if (kept <= skip || !model__job_step(m, &ret->first))
		return 0;
	ret->ns = calloc(kept - skip, sizeof(*ret->ns));
	if (!ret->ns)
		return -ENOMEM;
	ret->first += all - kept + skip;
	for (size_t i = skip; i < kept && model__step(m, i, &s); i++)
		ret->ns[ret->n++] = s.end - s.start;
	return 0;
}

void job_spans__free(struct job_spans *s)
{
	free(s->ns);
	*s = (struct job_spans){ 0 };
}

bool job_spans__narrow(const struct job_spans *s, uint64_t *first, uint64_t *last)
{
	if (!s->n)
		return false;
	*first = s->first > *first ? s->first : *first;
	*last = s->first + s->n - 1 < *last ? s->first + s->n - 1 : *last;
	return *first <= *last;
}

uint64_t job_spans__median(struct job_spans *s, uint64_t first, uint64_t last)
{
	uint64_t *from = s->ns + (first - s->first);
	size_t n = last - first + 1;

	outliers__sort(from, n);
	return outliers__median(from, n);
}
