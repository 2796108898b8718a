/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/openmetrics.h"
#include "record/host.h"
#include "serve/server/state.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct metrics_writer {
	FILE *out;
	const struct state *state;
	bool openmetrics;
	/* Devices and captures that are not shown because of the limits in metrics.h. */
	uint64_t devices_left_out, captures_left_out;
};

/* Writes the head of a family. */
static inline void put_head(struct metrics_writer *w, const struct openmetrics_family *f)
{
	openmetrics__head(w->out, f, w->openmetrics);
}

/* ---- results of captures ---- */

/* Results of each target's last finished capture: peaks per device and the composition of the
 * largest peak. */

/* The last finished capture of a target. */
struct last_capture {
	const char *target;
	const struct state_trace *trace;
};

struct last_captures {
	struct last_capture all[METRICS_CAPTURES];
	size_t n;
};

/* A text of an object; "" if it is missing. */
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

/* True if a capture of the target is in the list. */
static bool has_target(const struct last_captures *l, const char *target)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->all[i].target, target))
			return true;
	return false;
}

/* Finds each target's newest finished trace. Skips temporary traces made for a profile. */
static void find_last_captures(struct metrics_writer *w, struct last_captures *l)
{
	for (size_t i = w->state->n_traces; i-- > 0;) {
		const struct state_trace *t = w->state->traces[i];
		const char *target;

		bool is_temporary = json_is_false(json_object_get(t->facts, "keep"));

		if (!t->report || is_temporary || strcmp(text_of(t->facts, "state"), "done") != 0)
			continue;
		target = target_of(w->state, t);
		if (has_target(l, target))
			continue;
		if (l->n == METRICS_CAPTURES)
			w->captures_left_out++;
		else
			l->all[l->n++] = (struct last_capture){ target, t };
	}
}

/* Begins a sample; the caller adds more labels and closes the list. device NULL: no such label. */
static void open_labels(struct metrics_writer *w, const struct openmetrics_family *f,
			const struct last_capture *l, const char *device)
{
	openmetrics__name(w->out, f);
	fputc('{', w->out);
	openmetrics__label(w->out, "target", l->target, /*more=*/false);
	if (device)
		openmetrics__label(w->out, "device", device, /*more=*/true);
}

/* Closes the labels and prints the sample's value. Integers (bytes) keep all digits. */
static void end_sample(struct metrics_writer *w, const json_t *number)
{
	if (json_is_integer(number))
		fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(number));
	else
		fprintf(w->out, "} %.6f\n", json_number_value(number));
}

/* The put_ functions write a family with a sample for each capture that has the figure. */
static void put_devices_of_capture(struct metrics_writer *w, const struct last_captures *l)
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
		put_head(w, &figures[i].family);
		for (size_t k = 0; k < l->n; k++) {
			const json_t *device, *number;
			size_t d;

			json_array_foreach(json_object_get(l->all[k].trace->report, "devices"), d,
					   device) {
				number = json_object_get(device, figures[i].key);
				if (d == STATE_DEVICES || !json_is_number(number))
					continue;
				open_labels(w, &figures[i].family, &l->all[k],
					    text_of(device, "device"));
				end_sample(w, number);
			}
		}
	}
}

static void put_time_and_fragmentation(struct metrics_writer *w, const struct last_captures *l)
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

	put_head(w, &when);
	for (size_t k = 0; k < l->n; k++) {
		open_labels(w, &when, &l->all[k], /*device=*/NULL);
		fprintf(w->out, "} %.3f\n",
			json_number_value(json_object_get(l->all[k].trace->facts, "begun")));
	}
	put_head(w, &fragmentation);
	for (size_t k = 0; k < l->n; k++) {
		number = json_object_get(l->all[k].trace->report, "fragmentation");
		if (!json_is_number(number))
			continue;
		open_labels(w, &fragmentation, &l->all[k],
			    text_of(l->all[k].trace->report, "device"));
		end_sample(w, number);
	}
}

static void put_host_of_capture(struct metrics_writer *w, const struct last_captures *l)
{
	static const struct openmetrics_family f = {
		"capture_host_bytes", "gauge", "bytes",
		"Resident host memory (RSS) by part, at the highest reading of the last capture."
	};

	put_head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *parts = json_object_get(l->all[k].trace->report, "host_parts");

		for (unsigned i = 0; i < HOST_PARTS_END; i++) {
			const json_t *number = json_object_get(parts, host_part__name(i));

			if (!json_is_integer(number))
				continue;
			open_labels(w, &f, &l->all[k], /*device=*/NULL);
			openmetrics__label(w->out, "part", host_part__name(i), /*more=*/true);
			end_sample(w, number);
		}
	}
}

static void put_categories(struct metrics_writer *w, const struct last_captures *l)
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

	put_head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *report = l->all[k].trace->report,
			     *categories = json_object_get(report, "categories");

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			const json_t *number = json_object_get(categories, names[i]);

			if (!json_is_integer(number))
				continue;
			open_labels(w, &f, &l->all[k], text_of(report, "device"));
			openmetrics__label(w->out, "category", names[i], /*more=*/true);
			end_sample(w, number);
		}
	}
}

/* The last METRICS_PATH bytes of a long path: they identify it better than the first ones. */
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

/* Writes a sample of a row of the report. top: its rank, from 1. */
static void put_line(struct metrics_writer *w, const struct openmetrics_family *f,
		     const struct last_capture *l, const json_t *row, size_t top)
{
	const char *file = text_of(row, "file");
	const char *function = text_of(row, "function");
	char number[24];

	open_labels(w, f, l, text_of(l->trace->report, "device"));
	snprintf(number, sizeof(number), "%zu", top);
	openmetrics__label(w->out, "top", number, /*more=*/true);
	openmetrics__label(w->out, "file", *file ? tail(file) : text_of(row, "source"),
			   /*more=*/true);
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(row, "line")));
	openmetrics__label(w->out, "line", *file ? number : "", /*more=*/true);
	openmetrics__label(w->out, "function", tail(function), /*more=*/true);
	openmetrics__label(w->out, "module", tail(text_of(row, "module")), /*more=*/true);
	openmetrics__label(w->out, "category", text_of(row, "category"), /*more=*/true);
	end_sample(w, json_object_get(row, "bytes"));
}

static void put_lines(struct metrics_writer *w, const struct last_captures *l)
{
	static const struct openmetrics_family f = {
		"capture_line_bytes", "gauge", "bytes",
		"The largest rows of the report at that peak (a line in a module), and the rest."
	};

	put_head(w, &f);
	for (size_t k = 0; k < l->n; k++) {
		const json_t *report = l->all[k].trace->report,
			     *rows = json_object_get(report, "rows"), *row;
		json_int_t rest = json_integer_value(json_object_get(report, "allocated"));
		size_t i;

		json_array_foreach(rows, i, row) {
			if (i == METRICS_LINES)
				break;
			put_line(w, &f, &l->all[k], row, i + 1);
			if (__builtin_sub_overflow(
				    rest, json_integer_value(json_object_get(row, "bytes")), &rest))
				rest = 0;
		}
		if (!rows || rest <= 0)
			continue;
		open_labels(w, &f, &l->all[k], text_of(report, "device"));
		fprintf(w->out,
			",top=\"rest\",file=\"\",line=\"\",function=\"\",module=\"\",category=\"\"}"
			" %" JSON_INTEGER_FORMAT "\n",
			rest);
	}
}

/* Writes the results of each target's last finished capture. */
static void write_captures(struct metrics_writer *w)
{
	struct last_captures l = { .n = 0 };

	find_last_captures(w, &l);
	put_time_and_fragmentation(w, &l);
	put_devices_of_capture(w, &l);
	put_host_of_capture(w, &l);
	put_categories(w, &l);
	put_lines(w, &l);
}

/* ---- the server ---- */

/* Compares pointers, because the texts are those of the route table. */
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

/* Writes a family with one sample and no labels. */
static void put_one(struct metrics_writer *w, const struct openmetrics_family *f, uint64_t value)
{
	put_head(w, f);
	openmetrics__name(w->out, f);
	fprintf(w->out, " %" PRIu64 "\n", value);
}

/* As put_one(), for a number with a fraction. */
static void put_one_real(struct metrics_writer *w, const struct openmetrics_family *f, double value)
{
	put_head(w, f);
	openmetrics__name(w->out, f);
	fprintf(w->out, " %.6f\n", value);
}

/* ---- targets and their processes ---- */

/* Begins a sample, such as NAME{target="train",process="0",rank="3". */
static void open_process_labels(struct metrics_writer *w, const struct openmetrics_family *f,
				const struct state_process *p)
{
	char number[24];

	openmetrics__name(w->out, f);
	fputc('{', w->out);
	openmetrics__label(w->out, "target", p->target, /*more=*/false);
	snprintf(number, sizeof(number), "%u", p->slot);
	openmetrics__label(w->out, "process", number, /*more=*/true);
	if (p->rank >= 0) {
		snprintf(number, sizeof(number), "%" PRId64, p->rank);
		openmetrics__label(w->out, "rank", number, /*more=*/true);
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

	put_head(w, &f);
	json_array_foreach(w->state->targets, i, target) {
		const char *name = json_string_value(json_object_get(target, "name"));
		const char *kind = json_string_value(json_object_get(target, "kind"));

		openmetrics__name(w->out, &f);
		fputc('{', w->out);
		openmetrics__label(w->out, "target", name ? name : "", /*more=*/false);
		openmetrics__label(w->out, "kind", kind ? kind : "", /*more=*/true);
		fprintf(w->out, "} %zu\n", json_array_size(json_object_get(target, "pids")));
	}
}

/* Adds the names of container, pod and job, as dcgm-exporter calls them. */
static void put_owner_labels(struct metrics_writer *w, const struct state_process *p)
{
	const struct {
		const char *label, *value;
	} owners[] = {
		{ "container", p->container_name },
		{ "pod", p->pod_name },
		{ "namespace", p->namespace },
		{ "hpc_job", p->hpc_job },
	};

	for (size_t i = 0; i < COUNT(owners); i++)
		if (*owners[i].value)
			openmetrics__label(w->out, owners[i].label, owners[i].value, /*more=*/true);
}

/* Writes the PIDs and containers: the only series whose labels change when a job restarts. */
static void put_infos(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "process", "info", NULL,
						     "Identity of the process." };
	char pid[24];

	put_head(w, &f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];

		open_process_labels(w, &f, p);
		snprintf(pid, sizeof(pid), "%d", (int)p->pid);
		openmetrics__label(w->out, "pid", pid, /*more=*/true);
		if (*p->container)
			openmetrics__label(w->out, "container_id", p->container, /*more=*/true);
		if (*p->pod)
			openmetrics__label(w->out, "pod_uid", p->pod, /*more=*/true);
		put_owner_labels(w, p);
		fputs("} 1\n", w->out);
	}
}

/* The functions below write the families that their names say, with a sample for each process that
 * has the figure. */
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
	put_head(w, &start);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		open_process_labels(w, &start, w->state->processes[i]);
		fprintf(w->out, "} %.3f\n", w->state->processes[i]->started);
	}
	put_head(w, &when);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		if (w->state->processes[i]->time <= 0)
			continue;
		open_process_labels(w, &when, w->state->processes[i]);
		fprintf(w->out, "} %.3f\n", w->state->processes[i]->time);
	}
	put_head(w, &rss);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		if (!w->state->processes[i]->has_rss)
			continue;
		open_process_labels(w, &rss, w->state->processes[i]);
		fprintf(w->out, "} %" PRIu64 "\n", w->state->processes[i]->rss);
	}
}

static void put_host(struct metrics_writer *w)
{
	static const struct openmetrics_family f = {
		"host_bytes", "gauge", "bytes",
		"Resident host memory (RSS) by part, of processes that are captured now."
	};

	put_head(w, &f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];
		const json_t *parts = serve_state__host(w->state, p->pid, "host_parts");

		for (unsigned k = 0; parts && k < HOST_PARTS_END; k++) {
			const json_t *v = json_object_get(parts, host_part__name(k));

			if (!host_part__adds_up(k) || !json_is_integer(v))
				continue;
			open_process_labels(w, &f, p);
			openmetrics__label(w->out, "part", host_part__name(k), /*more=*/true);
			fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(v));
		}
	}
}

/* Writes a family with a member of "host_use" of each process. */
static void put_host_use(struct metrics_writer *w, const struct openmetrics_family *f,
			 const char *member)
{
	put_head(w, f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];
		const json_t *use = serve_state__host(w->state, p->pid, "host_use");
		const json_t *v = json_object_get(use, member);

		if (!json_is_integer(v))
			continue;
		open_process_labels(w, f, p);
		fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(v));
	}
}

static void put_uses_of_host(struct metrics_writer *w)
{
	static const struct openmetrics_family live = {
		"host_live_bytes", "gauge", "bytes",
		"Resident host memory in use, of processes that are captured now."
	};
	static const struct openmetrics_family free = {
		"host_free_bytes", "gauge", "bytes",
		"Resident host memory that is free inside malloc and other allocators, of "
		"processes that are captured now."
	};

	put_host_use(w, &live, "live");
	put_host_use(w, &free, "free");
}

/* Adds the name of a device in its process, and its GPU as dcgm-exporter names it. */
static void put_device_labels(struct metrics_writer *w, const struct state_device *d)
{
	char number[24];

	openmetrics__label(w->out, "device", d->name, /*more=*/true);
	if (!*d->uuid)
		return;
	openmetrics__label(w->out, "UUID", d->uuid, /*more=*/true);
	snprintf(number, sizeof(number), "%u", d->gpu);
	openmetrics__label(w->out, "gpu", number, /*more=*/true);
}

/* Writes a figure of all devices, of which at most METRICS_DEVICES are shown. */
static void put_figure(struct metrics_writer *w, const struct openmetrics_family *f,
		       enum device_figure figure)
{
	size_t n_devices = 0;

	put_head(w, f);
	for (size_t i = 0; i < w->state->n_processes; i++) {
		const struct state_process *p = w->state->processes[i];

		for (size_t d = 0; d < p->n_devices && n_devices < METRICS_DEVICES;
		     d++, n_devices++) {
			if (!(p->devices[d].has & 1U << figure))
				continue;
			open_process_labels(w, f, p);
			put_device_labels(w, &p->devices[d]);
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

/* ---- the machine's GPUs ---- */

/* Begins a sample of a GPU. The labels of the device have the names of NVIDIA's dcgm-exporter, so
 * that its metrics can be joined. */
static void open_gpu_labels(struct metrics_writer *w, const struct openmetrics_family *f,
			    const json_t *gpu)
{
	char number[24];

	openmetrics__name(w->out, f);
	fputc('{', w->out);
	openmetrics__label(w->out, "UUID", text_of(gpu, "uuid"), /*more=*/false);
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(gpu, "device")));
	openmetrics__label(w->out, "gpu", number, /*more=*/true);
}

/* Adds the number of a GPU instance, if the object has one. */
static void put_slice_label(struct metrics_writer *w, const json_t *object)
{
	const json_t *slice = json_object_get(object, "slice");
	char number[24];

	if (!json_is_integer(slice))
		return;
	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(slice));
	openmetrics__label(w->out, "GPU_I_ID", number, /*more=*/true);
}

static void put_gpu_figures(struct metrics_writer *w, const json_t *gpus)
{
	static const struct {
		struct openmetrics_family family;
		const char *key;
	} figures[] = {
		{ { "gpu_memory_bytes", "gauge", "bytes", "Memory of the GPU." }, "total" },
		{ { "gpu_used_bytes", "gauge", "bytes",
		    "All memory of the GPU that is not free, the driver's reserve included." },
		  "used" },
		{ { "gpu_free_bytes", "gauge", "bytes", "Free memory of the GPU." }, "free" },
		{ { "gpu_driver_reserved_bytes", "gauge", "bytes",
		    "Memory of the GPU that its driver keeps for itself." },
		  "reserved_by_driver" },
		{ { "gpu_hidden_bytes", "gauge", "bytes",
		    "Memory of processes that the driver lists and this host does not show." },
		  "hidden" },
		{ { "gpu_not_explained_bytes", "gauge", "bytes",
		    "Used memory that is in no other figure. Negative: memory counts twice." },
		  "not_explained" },
	};
	const json_t *gpu, *number;
	size_t k;

	for (size_t i = 0; i < COUNT(figures); i++) {
		put_head(w, &figures[i].family);
		json_array_foreach(gpus, k, gpu) {
			number = json_object_get(gpu, figures[i].key);
			if (!json_is_integer(number))
				continue;
			open_gpu_labels(w, &figures[i].family, gpu);
			end_sample(w, number);
		}
	}
}

/* True if an earlier entry has the same number: each compute instance has an entry, with the memory
 * of its GPU instance. */
static bool is_repeated(const json_t *slices, size_t at)
{
	const json_t *number = json_object_get(json_array_get(slices, at), "slice");

	for (size_t i = 0; i < at; i++)
		if (json_equal(json_object_get(json_array_get(slices, i), "slice"), number))
			return true;
	return false;
}

static void put_slices(struct metrics_writer *w, const json_t *gpus)
{
	static const struct {
		struct openmetrics_family family;
		const char *key;
	} figures[] = {
		{ { "gpu_slice_memory_bytes", "gauge", "bytes", "Memory of the GPU instance." },
		  "total" },
		{ { "gpu_slice_used_bytes", "gauge", "bytes",
		    "All memory of the GPU instance that is not free." },
		  "used" },
	};
	const json_t *gpu, *slices, *slice, *number;
	size_t k, n;

	for (size_t i = 0; i < COUNT(figures); i++) {
		put_head(w, &figures[i].family);
		json_array_foreach(gpus, k, gpu) {
			slices = json_object_get(gpu, "slices");
			json_array_foreach(slices, n, slice) {
				number = json_object_get(slice, figures[i].key);
				if (!json_is_integer(number) || is_repeated(slices, n))
					continue;
				open_gpu_labels(w, &figures[i].family, gpu);
				put_slice_label(w, slice);
				end_sample(w, number);
			}
		}
	}
}

/* Adds the bytes of a holder to a sum. */
static void add_bytes(json_int_t *sum, const json_t *holder)
{
	if (__builtin_add_overflow(*sum, json_integer_value(json_object_get(holder, "bytes")), sum))
		*sum = INT64_MAX;
}

/* Sets v to the largest holders of a GPU, the largest first. Returns their number; *rest: bytes of
 * the others. */
static size_t largest_holders(const json_t *gpu, const json_t *v[METRICS_HOLDERS], json_int_t *rest)
{
	const json_t *h;
	size_t n = 0, i;

	*rest = 0;
	json_array_foreach(json_object_get(gpu, "holders"), i, h) {
		json_int_t bytes = json_integer_value(json_object_get(h, "bytes"));
		size_t at = n;

		if (bytes <= 0)
			continue;
		while (at && json_integer_value(json_object_get(v[at - 1], "bytes")) < bytes)
			at--;
		if (n == METRICS_HOLDERS)
			add_bytes(rest, at == n ? h : v[n - 1]);
		if (at == METRICS_HOLDERS)
			continue;
		n += n < METRICS_HOLDERS;
		memmove(v + at + 1, v + at, (n - at - 1) * sizeof(*v));
		v[at] = h;
	}
	return n;
}

/* Adds a label, if the object has a text for it. */
static void put_text_label(struct metrics_writer *w, const json_t *object, const char *key)
{
	if (*text_of(object, key))
		openmetrics__label(w->out, key, tail(text_of(object, key)), /*more=*/true);
}

static void put_holders(struct metrics_writer *w, const json_t *gpus)
{
	static const struct openmetrics_family f = {
		"gpu_process_bytes", "gauge", "bytes",
		"Memory of the GPU that a process holds: the largest ones, and the rest."
	};
	const json_t *gpu, *v[METRICS_HOLDERS];
	json_int_t rest;
	char pid[24];
	size_t i, n;

	put_head(w, &f);
	json_array_foreach(gpus, i, gpu) {
		n = largest_holders(gpu, v, &rest);
		for (size_t k = 0; k < n; k++) {
			snprintf(pid, sizeof(pid), "%" JSON_INTEGER_FORMAT,
				 json_integer_value(json_object_get(v[k], "pid")));
			open_gpu_labels(w, &f, gpu);
			put_slice_label(w, v[k]);
			openmetrics__label(w->out, "pid", pid, /*more=*/true);
			put_text_label(w, v[k], "user");
			put_text_label(w, v[k], "container");
			put_text_label(w, v[k], "pod");
			end_sample(w, json_object_get(v[k], "bytes"));
		}
		if (!rest)
			continue;
		open_gpu_labels(w, &f, gpu);
		openmetrics__label(w->out, "pid", "rest", /*more=*/true);
		fprintf(w->out, "} %" JSON_INTEGER_FORMAT "\n", rest);
	}
}

/* Writes all that the last look at the GPUs has. */
static void put_gpus(struct metrics_writer *w)
{
	static const struct openmetrics_family when = {
		"gpu_sample_timestamp_seconds", "gauge", "seconds",
		"Time of the look at the GPUs, since 1970."
	};
	const json_t *gpus = json_object_get(w->state->gpus, "devices");

	if (!json_array_size(gpus))
		return;
	put_one_real(w, &when, w->state->gpus_time);
	put_gpu_figures(w, gpus);
	put_slices(w, gpus);
	put_holders(w, gpus);
}

/* ---- the server itself ---- */

static void put_build(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "build", "info", NULL,
						     "The version of memtrace-bpf serve." };

	put_head(w, &f);
	openmetrics__name(w->out, &f);
	fputc('{', w->out);
	openmetrics__label(w->out, "version", MEMTRACE_VERSION, /*more=*/false);
	fputs("} 1\n", w->out);
}

static void put_requests(struct metrics_writer *w, const struct metrics *m)
{
	static const struct openmetrics_family f = { "serve_requests", "counter", NULL,
						     "Answered requests, by call and status." };
	char status[16];

	put_head(w, &f);
	for (size_t i = 0; i < m->n_requests; i++) {
		const struct metrics_count *c = &m->requests[i];

		openmetrics__name(w->out, &f);
		fputc('{', w->out);
		openmetrics__label(w->out, "method", c->method ? c->method : "other",
				   /*more=*/false);
		openmetrics__label(w->out, "route", c->route ? c->route : "none", /*more=*/true);
		snprintf(status, sizeof(status), "%d", c->status);
		openmetrics__label(w->out, "status", status, /*more=*/true);
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
		const char *state = json_string_value(json_object_get(facts, "state"));
		json_int_t b = json_integer_value(json_object_get(facts, "bytes"));

		bytes += b > 0 ? (uint64_t)b : 0;
		for (size_t k = 0; state && k < COUNT(states); k++)
			n[k] += !strcmp(state, states[k]);
	}
	put_head(w, &traces);
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

	put_head(w, &captures);
	openmetrics__name(w->out, &captures);
	fprintf(w->out, "{result=\"done\"} %" PRIu64 "\n", s->captures_done);
	openmetrics__name(w->out, &captures);
	fprintf(w->out, "{result=\"failed\"} %" PRIu64 "\n", s->captures_failed);
	put_one(w, &events, s->events);
	put_one(w, &lost, s->lost);
}

static void put_looks(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "serve_gpu_looks", "counter", NULL,
						     "Looks at the GPUs, by result." };

	put_head(w, &f);
	openmetrics__name(w->out, &f);
	fprintf(w->out, "{result=\"done\"} %" PRIu64 "\n", w->state->gpu_looks_done);
	openmetrics__name(w->out, &f);
	fprintf(w->out, "{result=\"failed\"} %" PRIu64 "\n", w->state->gpu_looks_failed);
}

/* Writes no series if pushing is off. */
static void put_pushes(struct metrics_writer *w)
{
	static const struct openmetrics_family f = { "serve_pushes", "counter", NULL,
						     "Pushes to other servers, by result." };
	static const char *const to[] = { "pyroscope", "otlp", "otlp_profiles" };
	static const char *const results[] = { "sent", "failed", "dropped" };

	if (!w->state->push)
		return;
	put_head(w, &f);
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

/* Writes the families about the server itself. */
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
	put_looks(w);
	put_pushes(w);
	put_requests(w, m);
	if (getrusage(RUSAGE_SELF, &u))
		return;
	put_one_real(w, &cpu,
		     (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
			     (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
	put_one(w, &rss, (uint64_t)u.ru_maxrss * 1024); /* ru_maxrss is in KiB */
}

static void put_left_out(struct metrics_writer *w)
{
	static const struct openmetrics_family f = {
		"serve_left_out", "gauge", NULL,
		"Items left out of these metrics because there are too many."
	};

	put_head(w, &f);
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
	put_uses_of_host(&w);
	put_devices(&w);
	put_gpus(&w);
	write_captures(&w);
	put_self(&w, m);
	put_left_out(&w);
	if (openmetrics)
		fputs("# EOF\n", out);
}
