/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Figures of a recording as OpenMetrics text. Has few labels: only the largest lines are shown
 * separately, to limit the number of series. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "export/export.h"
#include "model/fields.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "base/openmetrics.h"
#include "record/detail.h"
#include "record/host.h"
#include "base/text.h"

#define LINES 10 /* source lines that have a series of their own; the others are summed up */

/* Writes a metric family with one sample. */
static void put_count(FILE *out, const struct openmetrics_family *f, uint64_t n)
{
	openmetrics__head(out, f, /*openmetrics=*/true);
	openmetrics__name(out, f);
	fprintf(out, " %" PRIu64 "\n", n);
}

/* Writes a metric family with one sample, a time in seconds. ns: the time in nanoseconds. */
static void put_seconds(FILE *out, const struct openmetrics_family *f, uint64_t ns)
{
	openmetrics__head(out, f, /*openmetrics=*/true);
	openmetrics__name(out, f);
	fprintf(out, " %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000, ns % 1000000000);
}

/* Writes the metrics of the whole recording. Those whose figures are unknown are left out. */
static void put_recording(struct export_ctx *c)
{
	static const char *const facts[] = { "pid",	     "comm",	  "python",  "torch",
					     "cuda_runtime", "allocator", "version", "attached_at" };
	static const struct openmetrics_family info = { "recording", "info", NULL,
							"The recorded program." };
	static const struct openmetrics_family start = { "start_timestamp_seconds", "gauge",
							 "seconds",
							 "Start time of the capture, since 1970." };
	static const struct openmetrics_family length = { "duration_seconds", "gauge", "seconds",
							  "Time from the start of the capture to "
							  "the end of the recording." };
	static const struct openmetrics_family window = { "window_start_seconds", "gauge",
							  "seconds",
							  "Time from the start of the capture to "
							  "the start of its window." };
	static const struct openmetrics_family events = { "events", "counter", NULL,
							  "Events recorded." };
	static const struct openmetrics_family lost = { "lost_records", "counter", NULL,
							"Lost records." };
	static const struct openmetrics_family steps = { "steps", "counter", NULL,
							 "Steps that ended." };
	static const struct openmetrics_family step = { "step_seconds", "gauge", "seconds",
							"Median duration of a step." };
	const char *from = facts__get(c->facts, "start");
	char detail[DETAIL_TEXT];
	uint64_t ns;

	openmetrics__head(c->out, &info, /*openmetrics=*/true);
	fputs("memtrace_recording_info{", c->out);
	openmetrics__label(c->out, "name", c->name, /*more=*/false);
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (facts__get(c->facts, facts[i]))
			openmetrics__label(c->out, facts[i], facts__get(c->facts, facts[i]),
					   /*more=*/true);
	if (*detail__reduced(detail, sizeof(detail), c->facts))
		openmetrics__label(c->out, "reduced_detail", detail, /*more=*/true);
	fputs("} 1\n", c->out);
	if (from && !text__parse_date(from, &ns))
		put_seconds(c->out, &start, ns);
	put_seconds(c->out, &length, c->duration);
	if (model__window(c->model, &ns))
		put_seconds(c->out, &window, ns);
	put_count(c->out, &events, model__events(c->model));
	put_count(c->out, &lost, words__lost(c->model, c->facts));
	put_count(c->out, &steps, model__whole_steps(c->model));
	if (model__step_time(c->model))
		put_seconds(c->out, &step, model__step_time(c->model));
}

/* True if device i is the chosen one, or all are. */
static bool is_shown(const struct export_ctx *c, size_t i)
{
	return c->device < 0 || (size_t)c->device == i;
}

/* Writes a figure of each device that has it. */
static void put_value(struct export_ctx *c, const struct device_value *v)
{
	struct model_device d;
	uint64_t value;

	openmetrics__head(c->out, &v->family, /*openmetrics=*/true);
	for (size_t i = 0; i < model__devices(c->model); i++) {
		if (!is_shown(c, i))
			continue;
		model__device(c->model, i, &d);
		if (!device_value__get(v, &d, &value))
			continue;
		openmetrics__name(c->out, &v->family);
		fprintf(c->out, "{device=\"%s\"} %" PRIu64 "\n", d.name, value);
	}
}

/* Parts of host memory whose second figure is the memory that they hold but do not use. */
static bool has_spare(unsigned part)
{
	return part == HOST_PINNED || part == HOST_PYTHON || part == HOST_MALLOC;
}

/* Writes the parts of the process's resident host memory, and the bytes that allocators have free
 * in their parts. */
static void put_host(struct export_ctx *c)
{
	static const struct openmetrics_family bytes = {
		"host_bytes", "gauge", "bytes",
		"Resident host memory (RSS) by part, at the chosen moment."
	};
	static const struct openmetrics_family spare = {
		"host_free_bytes", "gauge", "bytes",
		"Resident memory of a part that is free inside the allocator or cached."
	};
	const struct model_host *h = model__host(c->model);

	if (!h)
		return;
	openmetrics__head(c->out, &bytes, /*openmetrics=*/true);
	for (unsigned i = 1; i < HOST_PARTS_END; i++) /* 0: no part */
		fprintf(c->out, "memtrace_host_bytes{part=\"%s\"} %" PRIu64 "\n",
			host_part__name(i), h->at_moment.sheet.part[i].bytes);
	openmetrics__head(c->out, &spare, /*openmetrics=*/true);
	for (unsigned i = 1; i < HOST_PARTS_END; i++) {
		const struct host_figure *f = &h->at_moment.sheet.part[i];

		if (f->has_second && has_spare(i))
			fprintf(c->out, "memtrace_host_free_bytes{part=\"%s\"} %" PRIu64 "\n",
				host_part__name(i), f->second);
	}
}

/* Writes the share of reserved memory that no block uses, of each device where it is known. */
static void put_fragmentation(struct export_ctx *c)
{
	static const struct openmetrics_family f = {
		"device_fragmentation_ratio", "gauge", "ratio",
		"(reserved - allocated) / reserved at the chosen moment."
	};
	struct model_device d;
	bool known;

	openmetrics__head(c->out, &f, /*openmetrics=*/true);
	for (size_t i = 0; i < model__devices(c->model); i++) {
		if (!is_shown(c, i))
			continue;
		model__device(c->model, i, &d);
		known = d.has_totals && d.marked;
		if (known && d.mark_reserved)
			fprintf(c->out, "memtrace_%s{device=\"%s\"} %.6f\n", f.name, d.name,
				words__fragmentation(d.mark_allocated, d.mark_reserved));
	}
}

/* The three functions get a figure of growth. They return false if it is unknown. */
static bool rate_per_step(const struct growth_summary *s, double *ret)
{
	*ret = s->verdict == GROWTH_VERDICT_GROWS ? s->per_step : 0;
	return growth_summary__is_known(s) && s->clock != GROWTH_TIME;
}

static bool rate_per_minute(const struct growth_summary *s, double *ret)
{
	*ret = s->verdict == GROWTH_VERDICT_GROWS ? s->per_minute : 0;
	return s->verdict == GROWTH_VERDICT_NONE || *ret > 0;
}

static bool seconds_until_full(const struct growth_summary *s, double *ret)
{
	*ret = s->seconds_left;
	return s->verdict == GROWTH_VERDICT_GROWS && s->full_known && s->seconds_left > 0;
}

/* Writes how fast memory grows. A device whose growth is unknown has no sample. Returns 0 or
 * -ENOMEM. */
static int put_growth(struct export_ctx *c)
{
	static const struct {
		struct openmetrics_family family;
		bool (*get)(const struct growth_summary *s, double *ret);
	} figures[] = {
		{ { "growth_bytes_per_step", "gauge", NULL,
		    "Largest growth per step; 0: no growth." },
		  rate_per_step },
		{ { "growth_bytes_per_minute", "gauge", NULL,
		    "Largest growth per minute; 0: no growth." },
		  rate_per_minute },
		{ { "growth_full_seconds", "gauge", "seconds",
		    "Time from the end of the recording until the device is full." },
		  seconds_until_full },
	};
	struct growth_summary s;
	double value;
	int err = 0;

	for (size_t k = 0; !err && k < sizeof(figures) / sizeof(figures[0]); k++) {
		openmetrics__head(c->out, &figures[k].family, /*openmetrics=*/true);
		for (size_t i = 0; !err && i < model__devices(c->model); i++) {
			if (!is_shown(c, i))
				continue;
			err = growth_summary__of(c->model, c->facts, i, c->duration, &s);
			if (err)
				break;
			if (figures[k].get(&s, &value)) {
				openmetrics__name(c->out, &figures[k].family);
				fprintf(c->out, "{device=\"%s\"} %.3f\n", s.device, value);
			}
			growth_summary__free(&s);
		}
	}
	return err;
}

/* Writes one sample. top: rank of the line, from 1, which keeps lines with equal labels distinct;
 * 0: the sum of the remaining lines. */
static void put_row(FILE *out, const char *family, const char *device, enum group by,
		    const struct row *r, size_t top)
{
	char number[24];

	fprintf(out, "memtrace_%s{device=\"%s\"", family, device);
	if (by == BY_CATEGORY)
		openmetrics__label(out, "category",
				   r->before_attach || !r->category ? words__before(r->history)
								    : r->category,
				   /*more=*/true);
	if (by == BY_PHASE)
		openmetrics__label(out, "phase",
				   r->before_attach ? words__before(r->history)
						    : phase__name(r->phase),
				   /*more=*/true);
	if (by == BY_LINE) {
		snprintf(number, sizeof(number), "%zu", top);
		openmetrics__label(out, "top", top ? number : "rest", /*more=*/true);
		openmetrics__label(out, "file", r->file ? r->file : "", /*more=*/true);
		snprintf(number, sizeof(number), "%" PRIu32, r->line);
		openmetrics__label(out, "line", r->line ? number : "", /*more=*/true);
		openmetrics__label(out, "function", r->func ? r->func : "", /*more=*/true);
		openmetrics__label(out, "source", r->source ? r->source : "", /*more=*/true);
	}
	fprintf(out, "} %" PRIu64 "\n", r->bytes);
}

/* Writes the rows of a device at the marked moment, if it has that. Lines beyond the limit are
 * combined. Returns 0 or -ENOMEM. */
static int put_rows(struct export_ctx *c, const struct openmetrics_family *f, enum group by,
		    size_t device)
{
	const struct row_opts opts = { .split = 1U << by, .when = ROWS_AT_MARK };
	struct row *rows, rest = { 0 };
	struct model_device d;
	size_t n;
	int err = model__rows(c->model, device, &opts, &rows, &n);

	if (err)
		return err == -ENOENT ? 0 : err;
	model__device(c->model, device, &d);
	for (size_t i = 0; i < n; i++) {
		if (by == BY_LINE && i >= LINES)
			rest.bytes += rows[i].bytes;
		else
			put_row(c->out, f->name, d.name, by, &rows[i], i + 1);
	}
	if (rest.bytes)
		put_row(c->out, f->name, d.name, by, &rest, 0);
	free(rows);
	return 0;
}

/* Writes the memory at the marked moment in the three groupings. Returns 0 or -ENOMEM. */
static int put_groups(struct export_ctx *c)
{
	static const struct {
		struct openmetrics_family family;
		enum group by;
	} groups[] = {
		{ { "moment_category_bytes", "gauge", "bytes",
		    "Memory by role, at the chosen moment." },
		  BY_CATEGORY },
		{ { "moment_phase_bytes", "gauge", "bytes",
		    "Memory by phase of its allocation, at the chosen moment." },
		  BY_PHASE },
		{ { "moment_line_bytes", "gauge", "bytes",
		    "The lines that hold most memory at the chosen moment, and the rest." },
		  BY_LINE },
	};
	int err = 0;

	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]) && !err; g++) {
		openmetrics__head(c->out, &groups[g].family, /*openmetrics=*/true);
		for (size_t i = 0; i < model__devices(c->model) && !err; i++)
			if (is_shown(c, i))
				err = put_rows(c, &groups[g].family, groups[g].by, i);
	}
	return err;
}

static int openmetrics_begin(struct export_ctx *c, void **state)
{
	*state = NULL;
	return growth__watch(c->model, BY_LINE);
}

/* Returns 0, -ENODATA (no devices), -ENOENT (no device has the marked moment) or -ENOMEM. */
static int openmetrics_end(struct export_ctx *c, void *state)
{
	size_t n = model__devices(c->model);
	struct model_device d;
	bool marked = false;
	int err;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		model__device(c->model, i, &d);
		marked |= is_shown(c, i) && d.marked;
	}
	if (!marked)
		return n ? -ENOENT : -ENODATA;
	put_recording(c);
	for (size_t i = 0; i < device_values_n; i++)
		if (device_values[i].family.name)
			put_value(c, &device_values[i]);
	put_fragmentation(c);
	put_host(c);
	err = put_growth(c);
	if (!err)
		err = put_groups(c);
	fputs("# EOF\n", c->out);
	return err;
}

const struct export_format export_openmetrics = {
	.name = "openmetrics",
	.suffix = ".om.txt",
	.help = "figures as text, for Prometheus",
	.next = "Prometheus scrapes it from any HTTP server",
	.begin = openmetrics_begin,
	.end = openmetrics_end,
};
