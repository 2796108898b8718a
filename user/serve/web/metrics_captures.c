/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Results of each target's last finished capture: peaks per device and the composition of the
 * largest peak. */
#include <string.h>

#include "serve/web/metrics.h"
#include "serve/web/metrics_internal.h"
#include "record/host.h"

/* A capture and the name of its target. */
struct last {
	const char *target;
	const struct state_trace *trace;
};

struct lasts {
	struct last of[METRICS_CAPTURES];
	size_t n;
};

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The target of a trace. For a capture by PID: the target of that process, while the process is
 * alive. */
static const char *target_of(const struct state *s, const struct state_trace *t)
{
	const char *name = text_of(t->facts, "model_name");
	json_int_t pid = json_integer_value(json_object_get(t->facts, "pid"));

	for (size_t i = 0; !*name && i < s->n_processes; i++)
		if (s->processes[i]->pid == pid)
			return s->processes[i]->target;
	return name;
}

static bool has(const struct lasts *l, const char *target)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->of[i].target, target))
			return true;
	return false;
}

/* Finds each target's newest finished trace. Skips temporary traces made for a profile. */
static void find(struct metrics_writer *w, struct lasts *l)
{
	for (size_t i = w->state->n_traces; i-- > 0;) {
		const struct state_trace *t = w->state->traces[i];
		const char *target;

		if (!t->report || strcmp(text_of(t->facts, "state"), "done") ||
		    json_is_false(json_object_get(t->facts, "keep")))
			continue;
		target = target_of(w->state, t);
		if (has(l, target))
			continue;
		if (l->n == METRICS_CAPTURES)
			w->captures_left_out++;
		else
			l->of[l->n++] = (struct last){ target, t };
	}
}

static void open_labels(struct metrics_writer *w, const struct openmetrics_family *f,
			const struct last *l, const char *device)
{
	openmetrics__name(w->out, f);
	fputc('{', w->out);
	openmetrics__label(w->out, "target", l->target, false);
	if (device)
		openmetrics__label(w->out, "device", device, true);
}

/* Prints a JSON number. Integers (bytes) keep all digits. */
static void put_number(struct metrics_writer *w, const json_t *number)
{
	if (json_is_integer(number))
		fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(number));
	else
		fprintf(w->out, "} %.6f\n", json_number_value(number));
}

static void put_devices_of_capture(struct metrics_writer *w, const struct lasts *l)
{
	static const struct {
		struct openmetrics_family family;
		const char *key;
	} figures[] = {
		{ { "capture_peak_allocated_bytes", "gauge", "bytes",
		    "Peak of allocated memory in the last capture of the target." },
		  "peak_allocated" },
		{ { "capture_peak_reserved_bytes", "gauge", "bytes",
		    "Peak of reserved memory in the last capture of the target." },
		  "peak_reserved" },
		{ { "capture_allocation_bytes", "gauge", "bytes",
		    "Sum of all allocations in the last capture of the target." },
		  "total_allocated" },
		{ { "capture_drift_bytes", "gauge", "bytes",
		    "Largest difference from the allocator's own total in the last capture." },
		  "drift" },
	};

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		metrics__head(w, &figures[i].family);
		for (size_t k = 0; k < l->n; k++) {
			const json_t *device, *number;
			size_t d;

			json_array_foreach(json_object_get(l->of[k].trace->report, "devices"), d,
					   device)
			{
				number = json_object_get(device, figures[i].key);
				if (d == STATE_DEVICES || !json_is_number(number))
					continue;
				open_labels(w, &figures[i].family, &l->of[k],
					    text_of(device, "device"));
				put_number(w, number);
			}
		}
	}
}

static void put_whole(struct metrics_writer *w, const struct lasts *l)
{
	static const struct openmetrics_family when = {
		"capture_timestamp_seconds", "gauge", "seconds",
		"Start time of the last capture of the target, since 1970."
	};
	static const struct openmetrics_family fragmentation = {
		"capture_fragmentation_ratio", "gauge", "ratio",
		"(reserved - allocated) / reserved at that peak."
	};
	const json_t *number;

	metrics__head(w, &when);
	for (size_t k = 0; k < l->n; k++) {
		open_labels(w, &when, &l->of[k], NULL);
		fprintf(w->out, "} %.3f\n",
			json_number_value(json_object_get(l->of[k].trace->facts, "begun")));
	}
	metrics__head(w, &fragmentation);
	for (size_t k = 0; k < l->n; k++) {
		number = json_object_get(l->of[k].trace->report, "fragmentation");
		if (!json_is_number(number))
			continue;
		open_labels(w, &fragmentation, &l->of[k],
			    text_of(l->of[k].trace->report, "device"));
		put_number(w, number);
	}
}

static void put_host_of_capture(struct metrics_writer *w, const struct lasts *l)
{
	static const struct openmetrics_family f = {
		"capture_host_bytes", "gauge", "bytes",
		"Resident host memory (RSS) by part, at the highest reading of the last capture."
	};

	metrics__head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *parts = json_object_get(l->of[k].trace->report, "host_parts");

		for (unsigned i = 0; i < HOST_PARTS_END; i++) {
			const json_t *number = json_object_get(parts, host_part__name(i));

			if (!json_is_integer(number))
				continue;
			open_labels(w, &f, &l->of[k], NULL);
			openmetrics__label(w->out, "part", host_part__name(i), true);
			put_number(w, number);
		}
	}
}

static void put_categories(struct metrics_writer *w, const struct lasts *l)
{
	static const struct openmetrics_family f = {
		"capture_category_bytes", "gauge", "bytes",
		"Memory at the peak by role, on the device with the largest peak."
	};
	/* All category names of a report; the label has no other values. */
	static const char *const names[] = { "parameter",	"buffer",	"gradient",
					     "optimizer_state", "activation",	"input",
					     "temporary",	"kv_cache",	"workspace",
					     "ddp_bucket",	"private_pool", "unknown",
					     "before_attach" };

	metrics__head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *report = l->of[k].trace->report,
			     *categories = json_object_get(report, "categories");

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			const json_t *number = json_object_get(categories, names[i]);

			if (!json_is_integer(number))
				continue;
			open_labels(w, &f, &l->of[k], text_of(report, "device"));
			openmetrics__label(w->out, "category", names[i], true);
			put_number(w, number);
		}
	}
}

/* The end of a long path, which identifies the file better than its beginning. */
static const char *tail(const char *path)
{
	size_t len = strlen(path);

	if (len <= METRICS_PATH)
		return path;
	path += len - METRICS_PATH;
	while ((*path & 0xc0) == 0x80) /* do not start in the middle of a UTF-8 character */
		path++;
	return path;
}

static void put_line(struct metrics_writer *w, const struct openmetrics_family *f,
		     const struct last *l, const json_t *row, size_t top)
{
	const char *file = text_of(row, "file"), *function = text_of(row, "function");
	char number[24];

	open_labels(w, f, l, text_of(l->trace->report, "device"));
	snprintf(number, sizeof(number), "%zu", top);
	openmetrics__label(w->out, "top", number, true);
	openmetrics__label(w->out, "file", *file ? tail(file) : text_of(row, "source"), true);
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(row, "line")));
	openmetrics__label(w->out, "line", *file ? number : "", true);
	openmetrics__label(w->out, "function", tail(function), true);
	openmetrics__label(w->out, "module", tail(text_of(row, "module")), true);
	openmetrics__label(w->out, "category", text_of(row, "category"), true);
	put_number(w, json_object_get(row, "bytes"));
}

static void put_lines(struct metrics_writer *w, const struct lasts *l)
{
	static const struct openmetrics_family f = {
		"capture_line_bytes", "gauge", "bytes",
		"The largest rows of the report at that peak (a line in a module), and the rest."
	};

	metrics__head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *report = l->of[k].trace->report,
			     *rows = json_object_get(report, "rows"), *row;
		json_int_t rest = json_integer_value(json_object_get(report, "allocated"));
		size_t i;

		json_array_foreach(rows, i, row)
		{
			if (i == METRICS_LINES)
				break;
			put_line(w, &f, &l->of[k], row, i + 1);
			if (__builtin_sub_overflow(
				    rest, json_integer_value(json_object_get(row, "bytes")), &rest))
				rest = 0;
		}
		if (!rows || rest <= 0)
			continue;
		open_labels(w, &f, &l->of[k], text_of(report, "device"));
		fprintf(w->out,
			",top=\"rest\",file=\"\",line=\"\",function=\"\",module=\"\",category=\"\"}"
			" %" JSON_INTEGER_FORMAT "\n",
			rest);
	}
}

void metrics__captures(struct metrics_writer *w)
{
	struct lasts l = { .n = 0 };

	find(w, &l);
	put_whole(w, &l);
	put_devices_of_capture(w, &l);
	put_host_of_capture(w, &l);
	put_categories(w, &l);
	put_lines(w, &l);
}
