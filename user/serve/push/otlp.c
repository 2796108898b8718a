/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "record/host.h"
#include "serve/push/push.h"

#define POINTS_MAX 4096 /* most data points of a request */

static const struct device_figure_names resident = {
	.family = { .type = "gauge", .help = "Resident memory of the process." },
	.otlp = "memtrace.resident",
	.otlp_unit = "By"
};

static const struct device_figure_names host_memory = {
	.family = { .type = "gauge",
		    .help = "Resident host memory (RSS) by part, of processes that are captured "
			    "now." },
	.otlp = "memtrace.host",
	.otlp_unit = "By"
};

/* True for a figure that only grows. */
static bool is_counter(const struct device_figure_names *f)
{
	return !strcmp(f->family.type, "counter");
}

/* OTLP's JSON form writes 64-bit numbers as strings. */
static json_t *number_json(uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	return json_string(text);
}

/* Converts seconds to nanoseconds. Whole seconds are exact, fractions have the precision of a
 * double. */
static json_t *nanoseconds_json(double t)
{
	uint64_t s = (uint64_t)t;

	return number_json(s * 1000000000 + (uint64_t)((t - (double)s) * 1e9));
}

/* Adds an attribute that is a text. */
static void add_text(json_t *attributes, const char *key, const char *value)
{
	json_array_append_new(attributes, json_pack("{s:s, s:{s:s}}", "key", key, "value",
						    "stringValue", value));
}

static void add_number(json_t *attributes, const char *key, uint64_t value)
{
	json_array_append_new(attributes, json_pack("{s:s, s:{s:o}}", "key", key, "value",
						    "intValue", number_json(value)));
}

/* The OTLP resource of a process. host NULL: not known. */
static json_t *resource_of(const struct state_process *p, const char *host)
{
	json_t *attributes = json_array();
	time_t began = (time_t)p->started;
	char text[200];
	struct tm tm;

	add_text(attributes, "service.name", *p->target ? p->target : "pytorch");
	snprintf(text, sizeof(text), "%s/%d/%.0f", host ? host : "", (int)p->pid, p->started);
	add_text(attributes, "service.instance.id", text);
	if (host)
		add_text(attributes, "host.name", host);
	add_number(attributes, "process.pid", (uint64_t)p->pid);
	if (gmtime_r(&began, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
		add_text(attributes, "process.creation.time", text);
	if (*p->container)
		add_text(attributes, "container.id", p->container);
	if (*p->pod)
		add_text(attributes, "k8s.pod.uid", p->pod);
	if (*p->pod_name)
		add_text(attributes, "k8s.pod.name", p->pod_name);
	if (*p->namespace)
		add_text(attributes, "k8s.namespace.name", p->namespace);
	if (*p->container_name)
		add_text(attributes, "container.name", p->container_name);
	if (*p->hpc_job)
		add_text(attributes, "hpc_job", p->hpc_job);
	return json_pack("{s:o}", "attributes", attributes);
}

/* The attributes of a point: the labels of /metrics, and key=value (key NULL: none). */
static json_t *attributes_of(const struct state_process *p, const char *key, const char *value)
{
	json_t *attributes = json_array();
	char text[24];

	add_text(attributes, "target", p->target);
	snprintf(text, sizeof(text), "%u", p->slot);
	add_text(attributes, "process", text);
	if (p->rank >= 0) {
		snprintf(text, sizeof(text), "%" PRId64, p->rank);
		add_text(attributes, "rank", text);
	}
	if (key)
		add_text(attributes, key, value);
	return attributes;
}

/* Adds a point with these attributes, which it takes over. */
static void add_point(json_t *points, const struct state_process *p, json_t *attributes,
		      bool counter, uint64_t value)
{
	json_t *point = json_pack("{s:o, s:o, s:o}", "attributes", attributes, "timeUnixNano",
				  nanoseconds_json(p->time), "asInt", number_json(value));

	if (counter)
		json_object_set_new(point, "startTimeUnixNano", nanoseconds_json(p->started));
	json_array_append_new(points, point);
}

/* Adds a metric and takes over points. Without points, adds nothing. */
static void add_metric(json_t *metrics, const struct device_figure_names *f, json_t *points)
{
	json_t *metric;

	if (!json_array_size(points)) {
		json_decref(points);
		return;
	}
	metric = json_pack("{s:s, s:s, s:s}", "name", f->otlp, "unit", f->otlp_unit, "description",
			   f->family.help);
	if (is_counter(f)) /* aggregation temporality 2: cumulative */
		json_object_set_new(metric, "sum",
				    json_pack("{s:i, s:b, s:o}", "aggregationTemporality", 2,
					      "isMonotonic", 1, "dataPoints", points));
	else
		json_object_set_new(metric, "gauge", json_pack("{s:o}", "dataPoints", points));
	json_array_append_new(metrics, metric);
}

/* True if the figure is known and fits OTLP's signed 64 bits. */
static bool is_known(const struct state_device *d, int figure)
{
	return d->has & 1U << figure && d->figures[figure] <= INT64_MAX;
}

/* A point for each device whose figure is known. *room: points that the request may still have. */
static json_t *device_points(const struct state_process *p, int figure, size_t *room)
{
	json_t *points = json_array(), *attributes;
	char gpu[24];

	for (size_t i = 0; i < p->n_devices && *room; i++) {
		const struct state_device *d = &p->devices[i];

		if (!is_known(d, figure))
			continue;
		attributes = attributes_of(p, "device", d->name);
		if (*d->uuid) {
			add_text(attributes, "UUID", d->uuid);
			snprintf(gpu, sizeof(gpu), "%u", d->gpu);
			add_text(attributes, "gpu", gpu);
		}
		add_point(points, p, attributes, is_counter(&device_figures[figure]),
			  d->figures[figure]);
		(*room)--;
	}
	return points;
}

/* A point for each known part of the process's host memory. *room: as for device_points(). */
static json_t *host_points(const struct state *s, const struct state_process *p, size_t *room)
{
	const json_t *parts = serve_state__host(s, p->pid, "host_parts");
	json_t *points = json_array();

	for (unsigned i = 0; parts && i < HOST_PARTS_END && *room; i++) {
		const json_t *v = json_object_get(parts, host_part__name(i));

		if (!host_part__adds_up(i) || !json_is_integer(v) || json_integer_value(v) < 0)
			continue;
		add_point(points, p, attributes_of(p, "part", host_part__name(i)),
			  /*counter=*/false, (uint64_t)json_integer_value(v));
		(*room)--;
	}
	return points;
}

/* All metrics of a process. *room: as for device_points(). */
static json_t *metrics_of(const struct state *s, const struct state_process *p, size_t *room)
{
	json_t *metrics = json_array(), *points;

	for (int i = 0; i < FIG_NR; i++)
		add_metric(metrics, &device_figures[i], device_points(p, i, room));
	points = json_array();
	if (p->has_rss && p->rss <= INT64_MAX && *room) {
		add_point(points, p, attributes_of(p, NULL, /*value=*/NULL), /*counter=*/false,
			  p->rss);
		(*room)--;
	}
	add_metric(metrics, &resident, points);
	add_metric(metrics, &host_memory, host_points(s, p, room));
	return metrics;
}

#define CLOCKS_DIFFER 3600 /* s by which a time may be in the future */

/* False for a process whose times make no sense, as after a clock was set. now: ns since 1970. */
static bool has_possible_times(const struct state_process *p, uint64_t now)
{
	if (!(p->time > 0) || !(p->started > 0))
		return false;
	return p->started < p->time + CLOCKS_DIFFER && p->time < (double)now / 1e9 + CLOCKS_DIFFER;
}

json_t *otlp__metrics(const struct state *s, const char *host, uint64_t now)
{
	json_t *resources = json_array();
	size_t room = POINTS_MAX;

	for (size_t i = 0; i < s->n_processes && room; i++) {
		const struct state_process *p = s->processes[i];
		json_t *metrics;

		if (!has_possible_times(p, now))
			continue;
		metrics = metrics_of(s, p, &room);
		if (!json_array_size(metrics)) {
			json_decref(metrics);
			continue;
		}
		json_array_append_new(resources,
				      json_pack("{s:o, s:[{s:{s:s, s:s}, s:o}]}", "resource",
						resource_of(p, host), "scopeMetrics", "scope",
						"name", "memtrace-bpf", "version", MEMTRACE_VERSION,
						"metrics", metrics));
	}
	if (!json_array_size(resources)) {
		json_decref(resources);
		return NULL;
	}
	return json_pack("{s:o}", "resourceMetrics", resources);
}

/* ---- profiles: Protocol Buffers ---- */

#define VARINT_BITS 0x7f /* bits of the number in a byte of a varint */
#define VARINT_MORE 0x80 /* another byte follows */
/* Key of a field of protobuf: its number and type (wire type). */
#define KEY_VARINT(number) ((number) << 3)
#define KEY_BYTES(number) ((number) << 3 | 2)

static void put_varint(FILE *out, uint64_t v)
{
	for (; v > VARINT_BITS; v >>= 7)
		fputc((int)(v & VARINT_BITS) | VARINT_MORE, out);
	fputc((int)v, out);
}

/* Writes a field with a message or a text. */
static void put_field(FILE *out, unsigned number, const void *data, size_t size)
{
	put_varint(out, KEY_BYTES(number));
	put_varint(out, size);
	fwrite(data, 1, size, out);
}

/* Opens a message that is written to *text. NULL: no memory. */
static FILE *open_message(char **text, size_t *size)
{
	*text = NULL;
	return open_memstream(text, size);
}

/* Closes the message and adds it to out as a field. Returns 0 or -ENOMEM. */
static int close_message(FILE *message, FILE *out, unsigned number, char **text, const size_t *size)
{
	int err = fclose(message) ? -ENOMEM : 0;

	if (!err)
		put_field(out, number, *text, *size);
	free(*text);
	return err;
}

/* Adds an attribute of a resource: KeyValue, with an AnyValue that is a text or a number. */
static int put_attribute(FILE *out, const json_t *attribute)
{
	const char *key = json_string_value(json_object_get(attribute, "key"));
	const json_t *value = json_object_get(attribute, "value");
	const char *text = json_string_value(json_object_get(value, "stringValue"));
	const char *number = json_string_value(json_object_get(value, "intValue"));
	char *kept, *kept_value;
	size_t size, value_size;
	FILE *pair = open_message(&kept, &size), *any;
	int err;

	if (!pair)
		return -ENOMEM;
	put_field(pair, 1, key, strlen(key));
	any = open_message(&kept_value, &value_size);
	if (!any) {
		fclose(pair);
		free(kept);
		return -ENOMEM;
	}
	if (text) {
		put_field(any, 1, text, strlen(text));
	} else {
		put_varint(any, KEY_VARINT(3)); /* AnyValue.int_value */
		put_varint(any, strtoull(number, NULL, 10));
	}
	err = close_message(any, pair, /*number=*/2, &kept_value, &value_size);
	return close_message(pair, out, /*number=*/1, &kept, &size) ?: err;
}

/* Writes the resource of a process as a field with the number 1. Returns 0 or -ENOMEM. */
static int put_resource(FILE *out, const struct profile_of *of)
{
	json_t *resource = resource_of(of->process, of->host);
	const json_t *attribute;
	char *kept;
	size_t size, i;
	FILE *message = open_message(&kept, &size);
	int err = 0;

	if (!message) {
		json_decref(resource);
		return -ENOMEM;
	}
	json_array_foreach(json_object_get(resource, "attributes"), i, attribute)
		err = err ? err : put_attribute(message, attribute);
	json_decref(resource);
	return close_message(message, out, /*number=*/1, &kept, &size) ?: err;
}

/* Finds the message in a field with the number 1 that a message begins with: *at and *size are
 * those of the message, and become those of the field's. Sets *end to the end of the field. Returns
 * 0 or -EBADMSG. */
static int enter_first(const unsigned char **at, size_t *size, const unsigned char **end)
{
	const unsigned char *p = *at, *limit = *at + *size;
	uint64_t len = 0;
	unsigned shift = 0;

	if (!*size || *p++ != KEY_BYTES(1))
		return -EBADMSG;
	do {
		if (p == limit || shift > 28)
			return -EBADMSG;
		len |= (uint64_t)(*p & VARINT_BITS) << shift;
		shift += 7;
	} while (*p++ & VARINT_MORE);
	if (len > (uint64_t)(limit - p))
		return -EBADMSG;
	*at = p;
	*size = (size_t)len;
	*end = p + len;
	return 0;
}

/* Copies the profile, with another resource in place of its first field. */
int otlp__profile(const void *profile, size_t size, const struct profile_of *of, char **body,
		  size_t *body_size)
{
	const unsigned char *at = profile, *limit = at + size, *profiles_end, *resource_end;
	size_t left = size, kept_size;
	FILE *out, *profiles;
	char *kept;
	int err;

	/* ProfilesData begins with ResourceProfiles, and that with its resource. The rest of both
	 * is kept. */
	err = enter_first(&at, &left, &profiles_end) ?: enter_first(&at, &left, &resource_end);
	if (err)
		return err;
	out = open_message(body, body_size);
	profiles = out ? open_message(&kept, &kept_size) : NULL;
	if (!profiles) {
		err = -ENOMEM;
		goto fail;
	}
	err = put_resource(profiles, of);
	fwrite(resource_end, 1, (size_t)(profiles_end - resource_end), profiles);
	err = close_message(profiles, out, /*number=*/1, &kept, &kept_size) ?: err;
	fwrite(profiles_end, 1, (size_t)(limit - profiles_end), out);
fail:
	if (out && fclose(out))
		err = -ENOMEM;
	if (err && out)
		free(*body);
	return err;
}

char *otlp__url(const char *base, const char *path)
{
	size_t path_len = strlen(path);
	size_t len = strlen(base);
	char *url;

	while (len && base[len - 1] == '/')
		len--;
	if (len >= path_len && !strncmp(base + len - path_len, path, path_len))
		len -= path_len;
	return asprintf(&url, "%.*s%s", (int)len, base, path) < 0 ? NULL : url;
}
