/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/summary.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

#define MIB 1048576.0

json_t *summary__read(int fd)
{
	json_error_t e;
	size_t size;
	char *text = io__load(fd, SUMMARY_REPORT, &size);
	json_t *doc;

	if (!text)
		return NULL;
	doc = json_loadb(text, size, 0, &e);
	free(text);
	if (!json_is_object(doc)) {
		json_decref(doc);
		errno = EPROTO;
		return NULL;
	}
	return doc;
}

/* The member of "devices" that the report's rows are about; NULL: none. */
static const json_t *find_main_device(const json_t *report)
{
	const json_t *devices = json_object_get(report, "devices"), *d;
	const char *name = json_string_value(json_object_get(report, "device"));
	size_t i;

	json_array_foreach(devices, i, d) {
		const char *this = json_string_value(json_object_get(d, "device"));

		if (name && this && !strcmp(name, this))
			return d;
	}
	return NULL;
}

/* A new number, the product of v and scale. An integer stays one if scale is 1. */
static json_t *number_or_null(const json_t *v, double scale)
{
	if (!json_is_number(v))
		return json_null();
	return scale == 1 && json_is_integer(v) ? json_integer(json_integer_value(v))
						: json_real(json_number_value(v) * scale);
}

/* A new reference to a member; null if it is missing, an object or an array. */
static json_t *copy_scalar(const json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);

	return v && !json_is_object(v) && !json_is_array(v) ? json_incref(v) : json_null();
}

/* Copies the fields documented in the API for each layer, and its class and calls. */
static json_t *layer_stats(const json_t *layers, bool fragmentation)
{
	static const char *const keys[] = {
		"layer_name",	     "peak_allocated",	    "peak_reserved",
		"total_allocations", "total_deallocations", "avg_fragmentation",
		"duration_ms",	     "layer_class",	    "calls"
	};
	json_t *ret = json_object();
	const char *name;
	json_t *l;

	json_object_foreach((json_t *)layers, name, l) {
		json_t *stats = json_object();

		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			json_object_set_new(stats, keys[i], copy_scalar(l, keys[i]));
		if (!fragmentation)
			json_object_set_new(stats, "avg_fragmentation", json_null());
		json_object_set_new(ret, name, stats);
	}
	return ret;
}

/* True if growth a is faster than b: by the first rate that both have. "bytes_per_step" is by
 * optimizer step or by call of the model, as "clock" says. Without a rate in common: false. */
static bool grows_faster(const json_t *a, const json_t *b)
{
	static const char *const keys[] = { "bytes_per_minute", "bytes_per_step",
					    "bytes_per_second" };
	bool same_clock = json_equal(json_object_get(a, "clock"), json_object_get(b, "clock")) ||
			  (!json_object_get(a, "clock") && !json_object_get(b, "clock"));

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const json_t *rate_a = json_object_get(a, keys[i]);
		const json_t *rate_b = json_object_get(b, keys[i]);

		if (json_is_number(rate_a) && json_is_number(rate_b) && (!i || same_clock))
			return json_number_value(rate_a) > json_number_value(rate_b);
	}
	return false;
}

/* The growth of the device that grows fastest, with the device's name; the first of those whose
 * rates have different units. If no device grows: that of main_device. null: not known. A new
 * reference. */
static json_t *growth_of(const json_t *report, const json_t *main_device)
{
	const json_t *devices = json_object_get(report, "devices"), *device;
	const json_t *best = NULL, *best_device = main_device;
	json_t *ret;
	size_t i;

	json_array_foreach(devices, i, device) {
		const json_t *growth = json_object_get(device, "growth");
		const char *verdict = json_string_value(json_object_get(growth, "verdict"));

		if (!verdict || strcmp(verdict, "grows") != 0)
			continue;
		if (best && !grows_faster(growth, best))
			continue;
		best = growth;
		best_device = device;
	}
	if (!best)
		best = json_object_get(main_device, "growth");
	if (!json_is_string(json_object_get(best, "text")))
		return json_null();
	ret = json_copy((json_t *)best);
	json_object_set_new(ret, "device", copy_scalar(best_device, "device"));
	return ret;
}

json_t *summary__make(const json_t *facts, const json_t *report)
{
	const json_t *capture = json_object_get(report, "capture");
	const json_t *layers = json_object_get(report, "layers");
	const json_t *d = find_main_device(report);
	bool fragmentation = !json_is_false(json_object_get(facts, "enable_fragmentation"));
	json_t *ret;

	if (!json_is_object(capture) || !json_is_array(json_object_get(report, "devices")) ||
	    !json_is_integer(json_object_get(capture, "events")))
		return NULL;
	ret = json_object();
	json_object_set_new(ret, "trace_id", copy_scalar(facts, "trace_id"));
	json_object_set_new(ret, "model_name", copy_scalar(facts, "model_name"));
	json_object_set_new(ret, "total_events", copy_scalar(capture, "events"));
	json_object_set_new(ret, "total_layers",
			    json_integer((json_int_t)json_object_size(layers)));
	json_object_set_new(ret, "peak_allocated_mb",
			    number_or_null(json_object_get(d, "peak_allocated"), 1 / MIB));
	json_object_set_new(ret, "peak_reserved_mb",
			    number_or_null(json_object_get(d, "peak_reserved"), 1 / MIB));
	json_object_set_new(ret, "avg_fragmentation",
			    fragmentation ? copy_scalar(d, "avg_fragmentation") : json_null());
	json_object_set_new(ret, "tracing_time_ms",
			    number_or_null(json_object_get(capture, "duration"), /*scale=*/1000));
	json_object_set_new(ret, "pid", copy_scalar(facts, "pid"));
	json_object_set_new(ret, "device", copy_scalar(d, "device"));
	json_object_set_new(ret, "peak_allocated", copy_scalar(d, "peak_allocated"));
	json_object_set_new(ret, "peak_reserved", copy_scalar(d, "peak_reserved"));
	json_object_set_new(ret, "peak_time", copy_scalar(d, "peak_time"));
	json_object_set_new(ret, "before_attach", copy_scalar(d, "before_attach"));
	json_object_set_new(ret, "drift", copy_scalar(d, "drift"));
	json_object_set_new(ret, "ooms", copy_scalar(d, "ooms"));
	json_object_set_new(ret, "growth", growth_of(report, d));
	json_object_set_new(ret, "lost", copy_scalar(capture, "lost"));
	json_object_set_new(ret, "detail", copy_scalar(json_object_get(capture, "detail"), "text"));
	json_object_set_new(ret, "steps", copy_scalar(capture, "steps"));
	json_object_set_new(ret, "complete", copy_scalar(capture, "complete"));
	json_object_set_new(ret, "stop_reason", copy_scalar(capture, "stop_reason"));
	json_object_set_new(ret, "layer_stats", layer_stats(layers, fragmentation));
	return ret;
}

/* Bytes of each known part of RSS, at the highest reading. The names are the report's, unchecked:
 * readers look up the names that they know. */
static json_t *host_parts(const json_t *host)
{
	json_t *all = json_object_get(json_object_get(host, "highest"), "parts"), *part;
	json_t *ret = json_object();
	const char *name;

	json_object_foreach(all, name, part) {
		json_t *bytes = json_object_get(part, "bytes");

		bool counts = json_is_true(json_object_get(part, "of_rss")) &&
			      json_is_true(json_object_get(part, "known")) &&
			      json_is_integer(bytes);

		if (counts && json_object_size(ret) < SUMMARY_PARTS)
			json_object_set(ret, name, bytes);
	}
	return ret;
}

json_t *summary__figures(const json_t *report)
{
	static const char *const keys[] = { "target",	     "capture",	   "devices",	"all",
					    "device",	     "time",	   "allocated", "reserved",
					    "fragmentation", "categories", "phases" };
	json_t *ret = json_object();
	json_t *rows = json_array(), *row;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		json_t *v = json_object_get(report, keys[i]);

		if (v)
			json_object_set(ret, keys[i], v);
	}
	if (json_is_object(json_object_get(report, "host")))
		json_object_set_new(ret, "host_parts", host_parts(json_object_get(report, "host")));
	json_array_foreach(json_object_get(report, "rows"), i, row) {
		if (i >= SUMMARY_ROWS)
			break;
		json_array_append(rows, row);
	}
	json_object_set_new(ret, "rows", rows);
	return ret;
}

json_t *summary__short(const json_t *summary)
{
	json_t *ret = json_copy((json_t *)summary);

	json_object_del(ret, "layer_stats");
	return ret;
}
