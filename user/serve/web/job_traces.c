/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/job_traces.h"

#include <stdlib.h>
#include <string.h>

struct done {
	const struct state_trace *trace;
	const char *job;
	json_int_t rank; /* -1: not known */
	double begun, ended;
};

static const char *job_of(const json_t *facts)
{
	const char *name = json_string_value(json_object_get(facts, "model_name"));

	if (!name || !*name)
		name = json_string_value(json_object_get(facts, "folder"));
	return name ? name : "";
}

static double seconds_of(const struct state_trace *t)
{
	double of_report = json_number_value(json_object_get(t->summary, "tracing_time_ms")) / 1000;

	return of_report > 0 ? of_report : json_number_value(json_object_get(t->facts, "seconds"));
}

static struct done read_trace(const struct state_trace *t)
{
	const json_t *rank = json_object_get(json_object_get(t->report, "target"), "rank");
	struct done d = { .trace = t,
			  .job = job_of(t->facts),
			  .rank = json_is_integer(rank) ? json_integer_value(rank) : -1,
			  .begun = json_number_value(json_object_get(t->facts, "begun")) };

	d.ended = d.begun + seconds_of(t);
	return d;
}

/* True if a later trace shows the same rank again. Traces of one rank at the same time are of its
 * process and its workers. */
static bool is_superseded(const struct done *all, size_t n, size_t i)
{
	for (size_t k = i + 1; k < n && all[i].rank >= 0; k++)
		if (all[k].rank == all[i].rank && all[k].begun >= all[i].ended &&
		    !strcmp(all[k].job, all[i].job))
			return true;
	return false;
}

json_t *job_traces__last(const struct state *s, const char *job)
{
	struct done *all = calloc(s->n_traces + 1, sizeof(*all));
	json_t *ids = all ? json_array() : NULL;
	size_t n = 0;

	for (size_t i = 0; i < s->n_traces && ids; i++) {
		if (strcmp(serve_state__trace_state(s->traces[i]), "done") ||
		    json_is_false(json_object_get(s->traces[i]->facts, "keep")))
			continue;
		all[n] = read_trace(s->traces[i]);
		n += !job || !strcmp(all[n].job, job);
	}
	for (size_t i = 0; i < n && ids; i++)
		if (!is_superseded(all, n, i))
			json_array_append_new(ids, json_string(all[i].trace->id));
	free(all);
	return ids;
}
