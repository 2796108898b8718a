/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last figures as Prometheus text, in a file for node_exporter's textfile collector. */
#include "watch/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/openmetrics.h"
#include "base/outfile.h"

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP memtrace_watch_%s %s\n# TYPE memtrace_watch_%s %s\n", name, help, name,
		type);
}

/* Opens the label list: {pid="1",name="python train.py",rank="0",device="cuda:0" */
static void open_labels(FILE *out, const char *name, const struct watch_target *t,
			const struct watch_device *d)
{
	char device[16];

	fprintf(out, "memtrace_watch_%s{pid=\"%d\"", name, (int)t->pid);
	openmetrics__label(out, "name", t->name, /*more=*/true);
	if (t->rank >= 0)
		fprintf(out, ",rank=\"%" PRId64 "\"", t->rank);
	if (*t->cgroup.container)
		fprintf(out, ",container=\"%.12s\"", t->cgroup.container);
	if (*t->cgroup.pod)
		fprintf(out, ",pod=\"%s\"", t->cgroup.pod);
	if (d)
		fprintf(out, ",device=\"%s\"", watch_device__name(t, d, device));
}

static void put_figure(FILE *out, const char *name, const struct watch_target *t,
		       const struct watch_device *d, uint64_t value)
{
	open_labels(out, name, t, d);
	fprintf(out, "} %" PRIu64 "\n", value);
}

static void put_devices(FILE *out, const struct watch *w)
{
	for (int i = 0; i < FIG_NR; i++) {
		const struct openmetrics_family *f = &device_figures[i].family;
		char name[40];

		snprintf(name, sizeof(name), "%s%s", f->name,
			 !strcmp(f->type, "counter") ? "_total" : "");
		put_head(out, name, f->type, f->help);
		for (size_t k = 0; k < w->n_targets; k++) {
			const struct watch_target *t = w->targets[k];
			uint64_t value;

			for (size_t d = 0; d < t->n_devices; d++)
				if (watch_device__figure(t, &t->devices[d], i, &value))
					put_figure(out, name, t, &t->devices[d], value);
		}
	}
}

static void put_host(FILE *out, const struct watch *w)
{
	put_head(out, "host_bytes", "gauge", "Resident host memory (RSS) by part.");
	for (size_t i = 0; i < w->n_targets; i++) {
		const struct watch_target *t = w->targets[i];

		for (unsigned k = 0; k < HOST_PARTS_END && t->host.known; k++) {
			if (!host_part__adds_up(k))
				continue;
			open_labels(out, "host_bytes", t, NULL);
			openmetrics__label(out, "part", host_part__name(k), /*more=*/true);
			fprintf(out, "} %" PRIu64 "\n", t->host.sheet.part[k].bytes);
		}
	}
}

/* A figure of the last whole reading of host memory. */
static void put_use(FILE *out, const struct watch *w, const char *name, const char *help,
		    uint64_t (*figure)(const struct host_use *u))
{
	put_head(out, name, "gauge", help);
	for (size_t i = 0; i < w->n_targets; i++)
		if (w->targets[i]->host.use.known)
			put_figure(out, name, w->targets[i], NULL,
				   figure(&w->targets[i]->host.use));
}

static uint64_t live_of(const struct host_use *u)
{
	return u->live;
}

static uint64_t free_of(const struct host_use *u)
{
	return u->free;
}

static void put_processes(FILE *out, const struct watch *w)
{
	put_head(out, "resident_bytes", "gauge", "Resident memory of the process.");
	for (size_t i = 0; i < w->n_targets; i++)
		put_figure(out, "resident_bytes", w->targets[i], NULL, w->targets[i]->rss);
	if (w->host_needs.parts)
		put_host(out, w);
	if (w->host) {
		put_use(out, w, "host_live_bytes", "Resident memory in use.", live_of);
		put_use(out, w, "host_free_bytes",
			"Resident memory that is free inside malloc and other allocators.",
			free_of);
	}
	if (!w->wants_steps)
		return;
	put_head(out, "steps_total", "counter", "Optimizer steps seen.");
	for (size_t i = 0; i < w->n_targets; i++)
		if (w->targets[i]->attached)
			put_figure(out, "steps_total", w->targets[i], NULL, w->targets[i]->steps);
	put_head(out, "step_seconds", "gauge", "Duration of the last step.");
	for (size_t i = 0; i < w->n_targets; i++) {
		if (!w->targets[i]->step_time)
			continue;
		open_labels(out, "step_seconds", w->targets[i], NULL);
		fprintf(out, "} %.9f\n", (double)w->targets[i]->step_time / 1e9);
	}
}

static void put_rules(FILE *out, const struct watch *w)
{
	put_head(out, "rule_firing", "gauge",
		 "Number of devices for which the rule fired and is not normal again.");
	for (size_t i = 0; i < w->n_rules; i++) {
		fputs("memtrace_watch_rule_firing{", out);
		openmetrics__label(out, "rule", cond__text(w->rules[i].cond), /*more=*/false);
		fprintf(out, "} %zu\n", w->rules[i].holding);
	}
	put_head(out, "rule_fired_total", "counter", "Number of times that the rule became true.");
	for (size_t i = 0; i < w->n_rules; i++) {
		fputs("memtrace_watch_rule_fired_total{", out);
		openmetrics__label(out, "rule", cond__text(w->rules[i].cond), /*more=*/false);
		fprintf(out, "} %" PRIu64 "\n", w->rules[i].fired);
	}
}

static void put_self(FILE *out, const struct watch *w)
{
	struct rusage u;

	put_head(out, "processes", "gauge", "Number of watched processes.");
	fprintf(out, "memtrace_watch_processes %zu\n", w->n_targets);
	put_head(out, "captures_total", "counter",
		 "Captures by result: made, failed, or skipped by a limit.");
	fprintf(out, "memtrace_watch_captures_total{result=\"made\"} %" PRIu64 "\n", w->captured);
	fprintf(out, "memtrace_watch_captures_total{result=\"failed\"} %" PRIu64 "\n", w->failed);
	fprintf(out, "memtrace_watch_captures_total{result=\"skipped\"} %" PRIu64 "\n", w->skipped);
	put_head(out, "cpu_seconds_total", "counter",
		 "CPU time used for watching, without captures.");
	if (!getrusage(RUSAGE_SELF, &u))
		fprintf(out, "memtrace_watch_cpu_seconds_total %.6f\n",
			(double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
				(double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6 +
				(double)w->host_cpu / 1e9);
}

static int write_file(const struct watch *w)
{
	struct outfile *o;
	FILE *out;
	int err = outfile__create(w->args.metrics, OUTFILE_RENAME, /*force=*/true, &o);

	if (err)
		return err;
	out = outfile__stream(o);
	/* Readable by the collector's user. The content is no more than ps shows to all users. */
	if (!out || fchmod(outfile__fd(o), 0644)) {
		outfile__discard(o);
		return -EIO;
	}
	put_devices(out, w);
	put_processes(out, w);
	put_rules(out, w);
	put_self(out, w);
	fputs("# EOF\n", out);
	return outfile__commit(o);
}

void watch_metrics__write(struct watch *w)
{
	int err = write_file(w);

	if (err && !w->metrics_failed)
		log_warn("%s: %s; tried again", w->args.metrics, outfile__why(err));
	w->metrics_failed = err;
}
