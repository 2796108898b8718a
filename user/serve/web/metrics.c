/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/metrics.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#include "record/host.h"
#include "serve/web/metrics_internal.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void metrics__count(struct metrics *m, const char *method, const char *route, int status)
{
	for (size_t i = 0; i < m->n_requests; i++) {
		struct metrics_count *c = &m->requests[i];

		if (c->method == method && c->route == route && c->status == status) {
			c->n++;
			return;
		}
	}
	if (m->n_requests == METRICS_COUNTS) {
		m->others++;
		return;
	}
	m->requests[m->n_requests++] = (struct metrics_count){ method, route, status, 1 };
}

/* Write a family with one sample and no labels. */
static void put_one(struct metrics_writer *w, const struct openmetrics_family *f, uint64_t value)
{
	metrics__head(w, f);
	openmetrics__name(w->out, f);
	fprintf(w->out, " %" PRIu64 "\n", value);
}

static void put_one_real(struct metrics_writer *w, const struct openmetrics_family *f, double value)
{
	metrics__head(w, f);
	openmetrics__name(w->out, f);
	fprintf(w->out, " %.6f\n", value);
}

/* ---- targets and their processes ---- */

/* Opens the label list: {target="train",process="0",rank="3" */
static void process_labels(struct metrics_writer *w, const struct openmetrics_family *f,
			   const struct state_process *p)
{
	char number[24];

	openmetrics__name(w->out, f);
	fputc('{', w->out);
	openmetrics__label(w->out, "target", p->target, false);
	snprintf(number, sizeof(number), "%u", p->slot);
	openmetrics__label(w->out, "process", number, true);
	if (p->rank >= 0) {
		snprintf(number, sizeof(number), "%" PRId64, p->rank);
		openmetrics__label(w->out, "rank", number, true);
	}
}

static void put_targets(struct metrics_writer *w)
{
	static const struct openmetrics_family f = {
		"target_processes", "gauge", NULL,
		"Processes that the targets of the command line match now."
	};
	const json_t *target;
	size_t i;

	metrics__head(w, &f);
	json_array_foreach(w->state->targets, i, target)
	{
		const char *name = json_string_value(json_object_get(target, "name"));
		const char *kind = json_string_value(json_object_get(target, "kind"));

		openmetrics__name(w->out, &f);
		fputc('{', w->out);
		openmetrics__label(w->out, "target", name ? name : "", false);
		openmetrics__label(w->out, "kind", kind ? kind : "", true);
		fprintf(w->out, "} %zu\n", json_array_size(json_object_get(target, "pids")));
	}
}

/* The only series whose labels change when a job restarts. */
static void put_infos(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "process", "info", NULL,
						     "Identity of the process." };
	char pid[24];

	metrics__head(w, &f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];

		process_labels(w, &f, p);
		snprintf(pid, sizeof(pid), "%d", (int)p->pid);
		openmetrics__label(w->out, "pid", pid, true);
		if (*p->container)
			openmetrics__label(w->out, "container_id", p->container, true);
		if (*p->pod)
			openmetrics__label(w->out, "pod_uid", p->pod, true);
		fputs("} 1\n", w->out);
	}
}

static void put_processes(struct metrics_writer *w)
{
	static const struct openmetrics_family rss = { "resident_bytes", "gauge", "bytes",
						       "Resident memory of the process." };
	static const struct openmetrics_family start = { "process_start_time_seconds", "gauge",
							 "seconds",
							 "Start time of the process, since 1970." };
	static const struct openmetrics_family when = {
		"sample_timestamp_seconds", "gauge", "seconds",
		"Time when the figures of the process were read, since 1970."
	};

	put_infos(w);
	metrics__head(w, &start);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		process_labels(w, &start, w->state->processes[i]);
		fprintf(w->out, "} %.3f\n", w->state->processes[i]->started);
	}
	metrics__head(w, &when);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		if (w->state->processes[i]->time <= 0)
			continue;
		process_labels(w, &when, w->state->processes[i]);
		fprintf(w->out, "} %.3f\n", w->state->processes[i]->time);
	}
	metrics__head(w, &rss);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		if (!w->state->processes[i]->has_rss)
			continue;
		process_labels(w, &rss, w->state->processes[i]);
		fprintf(w->out, "} %" PRIu64 "\n", w->state->processes[i]->rss);
	}
}

static void put_host(struct metrics_writer *w)
{
	static const struct openmetrics_family f = {
		"host_bytes", "gauge", "bytes",
		"Resident host memory (RSS) by part, of processes that are captured now."
	};

	metrics__head(w, &f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];
		const json_t *parts = serve_state__host_parts(w->state, p->pid);

		for (unsigned k = 0; parts && k < HOST_PARTS_END; k++) {
			const json_t *v = json_object_get(parts, host_part__name(k));

			if (!host_part__adds_up(k) || !json_is_integer(v))
				continue;
			process_labels(w, &f, p);
			openmetrics__label(w->out, "part", host_part__name(k), true);
			fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(v));
		}
	}
}

static void put_figure(struct metrics_writer *w, const struct openmetrics_family *f,
		       enum device_figure figure)
{
	size_t seen = 0;

	metrics__head(w, f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];

		for (size_t d = 0; d < p->n_devices && seen < METRICS_DEVICES; d++, seen++) {
			if (!(p->devices[d].has & 1U << figure))
				continue;
			process_labels(w, f, p);
			openmetrics__label(w->out, "device", p->devices[d].name, true);
			fprintf(w->out, "} %" PRIu64 "\n", p->devices[d].figures[figure]);
		}
	}
}

static void put_devices(struct metrics_writer *w)
{
	size_t n = 0;

	for (int i = 0; i < FIG_NR; i++)
		put_figure(w, &device_figures[i].family, i);
	for (size_t i = 0; i < w->state->n_processes; i++)
		n += w->state->processes[i]->n_devices;
	w->devices_left_out = n > METRICS_DEVICES ? n - METRICS_DEVICES : 0;
}

/* ---- the server itself ---- */

static void put_build(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "build", "info", NULL,
						     "The version of memtrace-bpf serve." };

	metrics__head(w, &f);
	openmetrics__name(w->out, &f);
	fputc('{', w->out);
	openmetrics__label(w->out, "version", MEMTRACE_VERSION, false);
	fputs("} 1\n", w->out);
}

static void put_requests(struct metrics_writer *w, const struct metrics *m)
{
	static const struct openmetrics_family f = { "serve_requests", "counter", NULL,
						     "Answered requests, by call and status." };
	char status[16];

	metrics__head(w, &f);
	for (size_t i = 0; i < m->n_requests; i++) {
		const struct metrics_count *c = &m->requests[i];

		openmetrics__name(w->out, &f);
		fputc('{', w->out);
		openmetrics__label(w->out, "method", c->method ? c->method : "other", false);
		openmetrics__label(w->out, "route", c->route ? c->route : "none", true);
		snprintf(status, sizeof(status), "%d", c->status);
		openmetrics__label(w->out, "status", status, true);
		fprintf(w->out, "} %" PRIu64 "\n", c->n);
	}
	if (m->others) {
		openmetrics__name(w->out, &f);
		fprintf(w->out, "{method=\"other\",route=\"other\",status=\"other\"} %" PRIu64 "\n",
			m->others);
	}
}

static void put_traces(struct metrics_writer *w)
{
	static const struct openmetrics_family traces = { "serve_traces", "gauge", NULL,
							  "Stored traces, by state." };
	static const struct openmetrics_family size = { "serve_recordings_bytes", "gauge", "bytes",
							"Size of the recordings of the traces." };
	static const char *const states[] = { "starting", "capturing", "finishing", "done",
					      "failed" };
	size_t n[COUNT(states)] = { 0 };
	uint64_t bytes = 0;

	for (size_t i = 0; i < w->state->n_traces; i++) {
		const json_t *facts = w->state->traces[i]->facts;
		const char *is = json_string_value(json_object_get(facts, "state"));
		json_int_t b = json_integer_value(json_object_get(facts, "bytes"));

		bytes += b > 0 ? (uint64_t)b : 0;
		for (size_t k = 0; is && k < COUNT(states); k++)
			n[k] += !strcmp(is, states[k]);
	}
	metrics__head(w, &traces);
	for (size_t k = 0; k < COUNT(states); k++) {
		openmetrics__name(w->out, &traces);
		fprintf(w->out, "{state=\"%s\"} %zu\n", states[k], n[k]);
	}
	put_one(w, &size, bytes);
}

static void put_captures(struct metrics_writer *w)
{
	static const struct openmetrics_family captures = { "serve_captures", "counter", NULL,
							    "Ended captures, by result." };
	static const struct openmetrics_family events = { "serve_captured_events", "counter", NULL,
							  "Events recorded by ended captures." };
	static const struct openmetrics_family lost = { "serve_lost_events", "counter", NULL,
							"Events lost by ended captures." };
	const struct state *s = w->state;

	metrics__head(w, &captures);
	openmetrics__name(w->out, &captures);
	fprintf(w->out, "{result=\"done\"} %" PRIu64 "\n", s->captures_done);
	openmetrics__name(w->out, &captures);
	fprintf(w->out, "{result=\"failed\"} %" PRIu64 "\n", s->captures_failed);
	put_one(w, &events, s->events);
	put_one(w, &lost, s->lost);
}

/* Writes no series if pushing is off. */
static void put_pushes(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "serve_pushes", "counter", NULL,
						     "Pushes to other servers, by result." };
	static const char *const to[] = { "pyroscope", "otlp" };
	static const char *const results[] = { "sent", "failed", "dropped" };

	if (!w->state->push)
		return;
	metrics__head(w, &f);
	for (size_t i = 0; i < COUNT(to); i++) {
		const json_t *counts = json_object_get(w->state->push, to[i]);

		for (size_t k = 0; counts && k < COUNT(results); k++) {
			json_int_t n = json_integer_value(json_object_get(counts, results[k]));

			openmetrics__name(w->out, &f);
			fprintf(w->out, "{to=\"%s\",result=\"%s\"} %" PRIu64 "\n", to[i],
				results[k], n > 0 ? (uint64_t)n : 0);
		}
	}
}

static void put_self(struct metrics_writer *w, const struct metrics *m)
{
	static const struct openmetrics_family start = { "serve_start_time_seconds", "gauge",
							 "seconds",
							 "Start time of the server, since 1970." };
	static const struct openmetrics_family can = {
		"serve_can_trace", "gauge", NULL,
		"1 if the server can capture, 0 if it only shows recordings."
	};
	static const struct openmetrics_family samples = { "serve_samples", "counter", NULL,
							   "Readings of a process's figures." };
	static const struct openmetrics_family cpu = {
		"serve_cpu_seconds", "counter", "seconds",
		"CPU time of the process that answers requests."
	};
	static const struct openmetrics_family rss = {
		"serve_resident_max_bytes", "gauge", "bytes",
		"Maximum resident memory of the process that answers requests."
	};
	static const struct openmetrics_family scan = {
		"serve_scan_age_seconds", "gauge", "seconds",
		"Time since the last search of processes. Samples are as old."
	};
	double age = serve_state__scan_age(w->state);
	struct rusage u;

	put_build(w);
	if (age >= 0)
		put_one_real(w, &scan, age);
	if (w->state->hello)
		put_one_real(w, &start,
			     json_number_value(json_object_get(w->state->hello, "start")));
	put_one(w, &can, json_is_true(json_object_get(w->state->hello, "can_trace")));
	put_one(w, &samples, w->state->samples);
	put_traces(w);
	put_captures(w);
	put_pushes(w);
	put_requests(w, m);
	if (getrusage(RUSAGE_SELF, &u))
		return;
	put_one_real(w, &cpu,
		     (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
			     (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
	put_one(w, &rss, (uint64_t)u.ru_maxrss * 1024);
}

static void put_left_out(struct metrics_writer *w)
{
	static const struct openmetrics_family f = {
		"serve_left_out", "gauge", NULL,
		"Items left out of these metrics because there are too many."
	};

	metrics__head(w, &f);
	openmetrics__name(w->out, &f);
	fprintf(w->out, "{what=\"devices\"} %" PRIu64 "\n", w->devices_left_out);
	openmetrics__name(w->out, &f);
	fprintf(w->out, "{what=\"captures\"} %" PRIu64 "\n", w->captures_left_out);
	openmetrics__name(w->out, &f);
	fprintf(w->out, "{what=\"processes\"} %" PRIu64 "\n", w->state->processes_left_out);
}

void metrics__write(FILE *out, const struct state *s, const struct metrics *m, bool openmetrics)
{
	struct metrics_writer w = { .out = out, .state = s, .openmetrics = openmetrics };

	put_targets(&w);
	put_processes(&w);
	put_host(&w);
	put_devices(&w);
	metrics__captures(&w);
	put_self(&w, m);
	put_left_out(&w);
	if (openmetrics)
		fputs("# EOF\n", out);
}
