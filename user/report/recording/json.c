/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The report as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "memtrace.h"
#include "model/analysis.h"
#include "model/fields.h"
#include "model/growth_summary.h"
#include "model/holders.h"
#include "model/inputs.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/ending.h"
#include "record/oom.h"
#include "report/advice.h"
#include "report/doc.h"
#include "report/files.h"
#include "report/filter.h"
#include "report/recording/pools.h"

/* ---- memory below a device's blocks ---- */

static void put_hex(struct json *j, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, v);
	json__string(j, key, text);
}

/* Writes the lines with most bytes in a segment, which keep it from being returned to CUDA. */
static void put_pins(struct json *j, const struct segment *s)
{
	json__open_array(j, "pins");
	for (size_t i = 0; i < s->npins; i++) {
		json__open_object(j, NULL);
		json__uint(j, "bytes", s->pins[i].bytes);
		json__uint(j, "count", s->pins[i].count);
		report_json__line(j, &s->pins[i]);
		json__close_object(j);
	}
	json__close_array(j);
	if (s->more_pins) {
		json__open_object(j, "pins_left_out");
		json__uint(j, "lines", s->more_pins);
		json__uint(j, "bytes", s->more_pinned);
		json__close_object(j);
	}
}

/* Writes the segment's stream, pool and kind. */
static void put_pool(struct json *j, const struct segment *s)
{
	char text[48];

	if (s->stream_known)
		put_hex(j, "stream", s->cuda_stream);
	else
		json__null(j, "stream");
	snprintf(text, sizeof(text), "%" PRIu64 ",%" PRIu64, s->pool[0], s->pool[1]);
	json__string(j, "pool", s->pool_known ? text : NULL);
	json__string(j, "kind", s->kind == SEGMENT_ANY ? NULL : words__segment_kind(s));
	json__bool(j, "expandable", s->expandable);
	json__bool(j, "foreign", s->foreign);
}

/* Writes a row of --by segment. cumulative: allocated bytes of it and of the rows before it. */
static void put_segment(struct json *j, const struct segment *s, uint64_t cumulative)
{
	json__open_object(j, NULL);
	json__uint(j, "bytes", s->allocated);
	json__uint(j, "count", s->blocks);
	json__uint(j, "median", s->median);
	json__uint(j, "cumulative", cumulative);
	if (s->requested)
		json__uint(j, "requested", s->requested);
	put_hex(j, "address", s->addr);
	json__uint(j, "size", s->size);
	json__uint(j, "free", s->free);
	json__uint(j, "gaps", s->gaps);
	json__uint(j, "largest_gap", s->largest_gap);
	json__uint(j, "releasable", s->releasable);
	json__uint(j, "stuck", s->stuck);
	if (s->pending)
		json__uint(j, "pending", s->pending);
	put_pool(j, s);
	json__open_object(j, "taken_by");
	if (s->seen)
		json__seconds(j, "time", s->time, /*decimals=*/9);
	report_json__line(j, &s->taken);
	json__close_object(j);
	put_pins(j, s);
	json__string(j, "source", s->seen ? s->taken.source : "census");
	json__close_object(j);
}

/* Writes a row for blocks outside known segments, or for allocated bytes outside known blocks. */
static void put_rest(struct json *j, uint64_t bytes, uint64_t count, uint64_t cumulative)
{
	json__open_object(j, NULL);
	json__uint(j, "bytes", bytes);
	json__uint(j, "count", count);
	json__uint(j, "median", 0);
	json__uint(j, "cumulative", cumulative);
	json__null(j, "address");
	json__string(j, "source", "untraced");
	json__close_object(j);
}

/* Writes the rows of --by segment. Returns 0 or -ENOMEM. */
static int put_segments(struct json *j, const struct report_doc *doc)
{
	uint64_t cumulative = 0, left_bytes = 0;
	struct model_segments segments;
	size_t shown = 0;
	int err = -EINVAL;

	json__open_array(j, "rows");
	if (doc->device >= 0)
		err = model__segments(doc->model, doc->device, ROWS_AT_MARK, doc->which_line,
				      &segments);
	if (err) {
		json__close_array(j);
		return err == -EINVAL ? 0 : err; /* the CPU has no segments */
	}
	shown = doc->top && doc->top < segments.n ? doc->top : segments.n;
	for (size_t i = 0; i < segments.n; i++) {
		cumulative += segments.all[i].allocated;
		if (i < shown)
			put_segment(j, &segments.all[i], cumulative);
		else
			left_bytes += segments.all[i].allocated;
	}
	if (cumulative < segments.allocated)
		put_rest(j, segments.allocated - cumulative, segments.outside_blocks,
			 segments.allocated);
	json__close_array(j);
	if (shown < segments.n) {
		json__open_object(j, "rows_left_out");
		json__uint(j, "rows", segments.n - shown);
		json__uint(j, "bytes", left_bytes);
		json__close_object(j);
	}
	model__free_segments(&segments);
	return 0;
}

/* Writes the memory that other code than the allocator took from CUDA, by line. */
static void put_others(struct json *j, const struct model_segments *s)
{
	json__open_object(j, "others");
	json__uint(j, "bytes", s->others_bytes);
	json__open_array(j, "rows");
	for (size_t i = 0; i < s->nothers; i++) {
		json__open_object(j, NULL);
		json__string(j, "how", facts__how_name(s->others[i].how));
		json__uint(j, "bytes", s->others[i].row.bytes);
		json__uint(j, "count", s->others[i].row.count);
		report_json__line(j, &s->others[i].row);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Writes the memory that other code unmapped below blocks. */
static void put_unmapped(struct json *j, const struct model_segments *s)
{
	if (!s->unmapped) {
		json__null(j, "unmapped");
		return;
	}
	json__open_object(j, "unmapped");
	json__uint(j, "bytes", s->unmapped);
	json__uint(j, "blocks_bytes", s->unmapped_inside);
	json__uint(j, "blocks", s->unmapped_blocks);
	json__seconds(j, "time", s->unmapped_time, /*decimals=*/9);
	json__close_object(j);
}

/* Writes the sums over all segments. */
static void put_sums(struct json *j, const struct model_segments *s, const struct report_below *b)
{
	json__open_object(j, "segments");
	json__uint(j, "count", s->n);
	json__uint(j, "bytes", s->known);
	if (s->has_totals)
		json__int(j, "not_known", b->missing);
	else
		json__null(j, "not_known");
	json__uint(j, "empty", s->empty);
	json__uint(j, "empty_count", s->empties);
	json__uint(j, "releasable", s->releasable);
	json__uint(j, "stuck", s->stuck);
	json__uint(j, "private", s->private[PRIVATE_GRAPH].free + s->private[PRIVATE_MEMPOOL].free);
	json__uint(j, "pending", s->pending);
	put_unmapped(j, s);
	json__bool(j, "pending_known", s->pending_known);
	json__uint(j, "largest_gap", s->largest_gap);
	json__uint(j, "blocks", s->inside);
	json__uint(j, "blocks_outside", s->outside);
	json__int(j, "blocks_not_known", b->nameless);
	json__close_object(j);
}

/* Writes the private pools: those of CUDA graphs and of torch.cuda.MemPool. Returns 0 or -ENOMEM.
 */
static int put_pools(struct json *j, const struct model_segments *s)
{
	struct report_pool *pools;
	size_t n;
	int err = report_pools__of(s, &pools, &n);
	char id[48];

	if (err)
		return err;
	json__open_array(j, "pools");
	for (size_t i = 0; i < n; i++) {
		const struct segment *first = pools[i].first;

		json__open_object(j, NULL);
		snprintf(id, sizeof(id), "%" PRIu64 ",%" PRIu64, pools[i].id[0], pools[i].id[1]);
		json__string(j, "pool", id);
		json__string(j, "kind", pools[i].kind == PRIVATE_GRAPH ? "graph" : "mempool");
		json__uint(j, "size", pools[i].size);
		json__uint(j, "allocated", pools[i].allocated);
		json__uint(j, "free", pools[i].free);
		json__uint(j, "empty", pools[i].empty);
		json__uint(j, "segments", pools[i].segments);
		json__open_object(j, "first_taken_by");
		if (first->seen)
			json__seconds(j, "time", first->time, /*decimals=*/9);
		report_json__line(j, &first->taken);
		json__close_object(j);
		json__close_object(j);
	}
	json__close_array(j);
	free(pools);
	return 0;
}

/* Writes a device's memory below its blocks. Returns 0 or -ENOMEM. */
static int put_below(struct json *j, const struct report_doc *doc, size_t device)
{
	struct model_segments segments;
	struct report_below below;
	struct model_device dev;
	bool requested_known;
	int err = model__segments(doc->model, device, ROWS_AT_MARK, doc->which_line, &segments);

	if (err) {
		json__null(j, "reconciliation");
		return err == -ENOMEM ? err : 0;
	}
	model__device(doc->model, device, &dev);
	below = words__below(&segments);
	requested_known = segments.requested && segments.requested <= segments.allocated;
	json__uint_or_null(j, "segments", segments.n, segments.n);
	json__open_object(j, "reconciliation");
	json__seconds(j, "time", doc->at == AT_TIME ? doc->at_time : dev.mark_time, /*decimals=*/9);
	json__uint_or_null(j, "used", segments.used_known, segments.used);
	if (segments.used_known) {
		json__seconds(j, "used_time", segments.used_time, /*decimals=*/9);
		json__uint(j, segments.has_totals ? "used_reserved" : "used_allocated",
			   segments.used_below);
		json__uint(j, "used_others", segments.used_others);
		json__int(j, "not_seen", below.not_seen);
	} else {
		json__null(j, "not_seen");
	}
	put_others(j, &segments);
	json__uint(j, "managed", segments.managed);
	json__uint_or_null(j, "reserved", segments.has_totals, segments.reserved);
	json__uint(j, "allocated", segments.allocated);
	json__uint_or_null(j, "cached", segments.has_totals,
			   segments.reserved > segments.allocated
				   ? segments.reserved - segments.allocated
				   : 0);
	json__uint_or_null(j, "requested", requested_known, segments.requested);
	json__uint_or_null(j, "rounding", requested_known, segments.allocated - segments.requested);
	put_sums(j, &segments, &below);
	err = put_pools(j, &segments);
	json__uint(j, "pinned_host", segments.host);
	json__uint(j, "registered_host", segments.registered);
	json__uint(j, "unknown_device", segments.unknown_device);
	json__bool(j, "adds_up", below.adds_up);
	json__close_object(j);
	model__free_segments(&segments);
	return err;
}

/* Writes why the request found no place, and the memory by pool and stream. */
static void put_oom_pools(struct json *j, const struct model_oom *o)
{
	char text[WORDS_OOM];

	json__string(j, "why", o->npools ? words__oom_why(text, o) : NULL);
	json__open_array(j, "pools");
	for (size_t i = 0; i < o->npools; i++) {
		const struct model_oom_pool *p = &o->pools[i];

		json__open_object(j, NULL);
		json__string(j, "label", words__oom_pool(text, p));
		snprintf(text, sizeof(text), "%" PRIu64 ",%" PRIu64, p->pool[0], p->pool[1]);
		json__string(j, "pool", p->rest ? NULL : text);
		snprintf(text, sizeof(text), "0x%" PRIx64, p->cuda_stream);
		json__string(j, "stream", p->stream_known && !p->rest ? text : NULL);
		json__bool(j, "small", p->small);
		json__uint(j, "segments", p->segments);
		json__uint(j, "size", p->size);
		json__uint(j, "allocated", p->allocated);
		json__uint(j, "pending", p->pending);
		json__uint(j, "free", p->free);
		json__uint(j, "gaps", p->gaps);
		json__uint(j, "largest_gap", p->largest_gap);
		json__close_object(j);
	}
	json__close_array(j);
	json__bool(j, "pending_known", o->pending_known);
}

/* Writes the tensors that the failing call had in its variables; without memory for them, none. */
static void put_oom_tensors(struct json *j, const struct report_doc *doc, const struct model_oom *o)
{
	struct oom_tensors tensors;
	char device[DEVICE_NAME];

	words__oom_tensors(doc->model, doc->facts, o, doc->which_line, &tensors);
	json__open_array(j, "tensors");
	for (size_t i = 0; i < tensors.n; i++) {
		const struct oom_tensor *tensor = &tensors.v[i];

		json__open_object(j, NULL);
		json__string(j, "name", tensor->name);
		json__string(j, "dtype", tensor->dtype);
		if (tensor->sized) {
			json__open_array(j, "shape");
			for (size_t k = 0; k < tensor->ndim && k < OOM_DIMS; k++)
				json__uint(j, NULL, tensor->shape[k]);
			json__close_array(j);
		} else {
			json__null(j, "shape");
		}
		json__uint(j, "dimensions", tensor->ndim);
		json__uint_or_null(j, "bytes", tensor->bytes, tensor->bytes);
		json__uint_or_null(j, "storage_bytes", tensor->storage, tensor->storage);
		json__string(j, "device", device__name(tensor->device, device, sizeof(device)));
		json__string(j, "file", tensor->file);
		json__uint_or_null(j, "line", tensor->line, tensor->line);
		json__string(j, "function", tensor->func);
		json__close_object(j);
	}
	json__close_array(j);
	oom__free(&tensors);
}

/* Writes the other processes on a device; known: they are recorded. */
static void put_neighbours(struct json *j, const char *key, bool known, const struct neighbours *n)
{
	if (!known) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	json__seconds(j, "read", n->read, /*decimals=*/9);
	json__uint(j, "count", n->all);
	json__open_array(j, "largest");
	for (size_t i = 0; i < n->n; i++) {
		const struct neighbour *process = &n->v[i];

		json__open_object(j, NULL);
		json__uint(j, "pid", process->pid);
		json__uint_or_null(j, "bytes", process->bytes_known, process->bytes);
		json__uint_or_null(j, "uid", process->uid_known, process->uid);
		json__string(j, "user", *process->user ? process->user : NULL);
		json__string(j, "command", *process->command ? process->command : NULL);
		json__string(j, "container", *process->container ? process->container : NULL);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Writes the requests on the device that were refused. */
static void put_ooms(struct json *j, const struct report_doc *doc, size_t device)
{
	struct row_frame line;
	struct model_device dev;
	struct neighbours neighbours;
	struct model_oom oom;
	uint64_t total;
	bool known, can_subtract;

	model__device(doc->model, device, &dev);
	total = words__device_total(doc->facts, &dev);
	json__open_array(j, "out_of_memory");
	for (size_t i = 0; model__oom(doc->model, device, i, &oom); i++) {
		can_subtract = total && oom.used_known && oom.used <= total;
		json__open_object(j, NULL);
		json__uint(j, "number", oom.number);
		json__seconds(j, "time", oom.time, /*decimals=*/9);
		json__uint(j, "asked", oom.size);
		json__uint(j, "allocated", oom.allocated);
		json__uint_or_null(j, "reserved", oom.has_totals, oom.reserved);
		json__uint_or_null(j, "largest_gap", oom.gap_known, oom.largest_gap);
		json__uint_or_null(j, "driver_used", oom.used_known, oom.used);
		json__uint_or_null(j, "driver_total", total, total);
		json__uint_or_null(j, "driver_free", oom.left_known || can_subtract,
				   oom.left_known ? oom.left : total - oom.used);
		json__bool(j, "driver_free_counts_others", oom.left_known);
		put_oom_pools(j, &oom);
		json__uint(j, "kept", oom.kept);
		json__string(j, "phase", phase__name(oom.phase));
		if (model__stack_line(doc->model, oom.stack, doc->which_line, &line)) {
			json__string(j, "file", line.file);
			json__uint_or_null(j, "line", line.line, line.line);
			json__string(j, "function", line.func);
		}
		json__uint(j, "tid", dict__get_thread(doc->dict, oom.thread).tid);
		put_oom_tensors(j, doc, &oom);
		known = neighbours__read(doc->facts, oom.time, dev.device, &neighbours);
		put_neighbours(j, "other_processes", known, &neighbours);
		neighbours__free(&neighbours);
		json__close_object(j);
	}
	json__close_array(j);
}

/* Writes the other processes at a bad end of the process, or no key if they are not known. */
static void put_end_neighbours(struct json *j, const struct report_doc *doc, size_t device)
{
	struct model_device d;
	struct neighbours neighbours;

	model__device(doc->model, device, &d);
	if (neighbours__read_end(doc->facts, d.device, &neighbours))
		put_neighbours(j, "other_processes_at_end", /*known=*/true, &neighbours);
	neighbours__free(&neighbours);
}

/* ---- the recording ---- */

/* Writes a fact as text; null if it is missing or empty. */
static void put_fact(struct json *j, const char *key, const struct facts *f, const char *name)
{
	const char *value = facts__get(f, name);

	json__string(j, key, value && *value ? value : NULL);
}

/* Writes a fact, or no key if the recording has no such fact. */
static void put_fact_if(struct json *j, const struct facts *f, const char *name)
{
	if (facts__get(f, name))
		put_fact(j, name, f, name);
}

/* Writes a fact under another key. */
static void put_fact_as(struct json *j, const char *key, const struct facts *f, const char *name)
{
	if (facts__get(f, name))
		put_fact(j, key, f, name);
}

/* Writes a fact that is a number, or no key if the recording has no such number. */
static void put_uint_if(struct json *j, const struct facts *f, const char *key)
{
	uint64_t number;

	if (facts__number(f, key, &number))
		json__uint(j, key, number);
}

static void put_uint_or_null(struct json *j, const struct facts *f, const char *key)
{
	uint64_t number;
	bool known = facts__number(f, key, &number);

	json__uint_or_null(j, key, known, number);
}

void report_json__target(struct json *j, const struct report_doc *doc)
{
	char **argv = words__cmdline(doc->facts);
	const struct facts *facts = doc->facts;

	json__open_object(j, "target");
	put_uint_or_null(j, facts, "pid");
	put_uint_if(j, facts, "parent");
	put_uint_if(j, facts, "rank");
	put_uint_if(j, facts, "local_rank");
	put_uint_if(j, facts, "world_size");
	put_fact_if(j, facts, "comm");
	json__open_array(j, "cmdline");
	for (char **a = argv; a && *a; a++)
		json__string(j, NULL, *a);
	json__close_array(j);
	put_fact(j, "python", facts, "python");
	put_fact(j, "torch", facts, "torch");
	put_fact_if(j, facts, "cuda_runtime");
	put_fact_if(j, facts, "allocator");
	put_fact_if(j, facts, "exe");
	put_fact_if(j, facts, "cwd");
	put_fact_as(j, "cgroup", facts, "cgroup");
	put_fact_as(j, "container", facts, "container");
	put_fact_as(j, "container_name", facts, "container.name");
	put_fact_as(j, "container_runtime", facts, "container.runtime");
	put_fact_as(j, "pod", facts, "pod");
	put_fact_as(j, "pod_uid", facts, "pod.uid");
	put_fact_as(j, "pod_namespace", facts, "pod.namespace");
	json__close_object(j);
	words__free_cmdline(argv);
}

/* Writes how many events have a full, a cut and no stack, and why walks failed. */
static void put_stacks(struct json *j, const struct model *m)
{
	struct report_stacks s;

	words__stacks(m, &s);
	json__open_object(j, "stacks");
	json__uint(j, "full", s.full);
	json__uint(j, "truncated", s.truncated);
	json__uint(j, "none", s.none);
	json__open_object(j, "failed");
	for (unsigned i = 0; i < MT_WALK_NR; i++)
		if (words__walk_failed(i) && model__walks(m, i))
			json__uint(j, facts__walk_name(i), model__walks(m, i));
	json__close_object(j);
	json__close_object(j);
}

/* Writes the marks that users set, up to MODEL_MARKS. */
static void put_marks(struct json *j, const struct model *m)
{
	size_t n = model__marks(m);
	uint64_t time;

	if (!n)
		return;
	json__open_array(j, "marks");
	for (size_t i = 0; i < n && i < MODEL_MARKS; i++) {
		const char *name = model__mark(m, i, &time);

		json__open_object(j, NULL);
		json__seconds(j, "time", time, /*decimals=*/9);
		json__string(j, "name", name);
		json__close_object(j);
	}
	json__close_array(j);
	if (n > MODEL_MARKS)
		json__uint(j, "marks_left_out", n - MODEL_MARKS);
}

/* Writes what is known about the probes on malloc (--malloc-probes). */
static void put_malloc(struct json *j, const struct facts *f)
{
	uint64_t removed = words__fact_number(f, "malloc.removed_ns");
	const char *share = facts__get(f, "malloc.share");

	json__open_object(j, "malloc");
	json__string(j, "files", facts__get(f, "malloc.files"));
	json__uint(j, "every", words__fact_number(f, "malloc.every"));
	json__uint(j, "lost",
		   words__fact_number(f, "counter.malloc.no_room") +
			   words__fact_number(f, "counter.lost.malloc"));
	json__uint(j, "lost_frees", words__fact_number(f, "counter.lost.malloc_free"));
	if (share)
		json__double(j, "cost", strtod(share, NULL), /*decimals=*/6);
	else
		json__null(j, "cost");
	if (removed)
		json__seconds(j, "removed", removed, /*decimals=*/9);
	else
		json__null(j, "removed");
	json__close_object(j);
}

void report_json__capture(struct json *j, const struct report_doc *doc)
{
	const struct facts *facts = doc->facts;
	uint64_t first = 0;
	bool known = model__job_step(doc->model, &first);
	char models[WORDS_MODELS];

	json__open_object(j, "capture");
	put_fact(j, "start", facts, "start");
	json__seconds(j, "duration", doc->duration, /*decimals=*/9);
	words__put_window(j, doc->model);
	json__uint(j, "events", model__events(doc->model));
	json__uint(j, "lost", words__lost(doc->model, facts));
	json__uint(j, "steps", model__whole_steps(doc->model));
	if (model__step_time(doc->model))
		json__seconds(j, "step_time", model__step_time(doc->model), /*decimals=*/9);
	put_fact_if(j, facts, "steps_from");
	put_fact_if(j, facts, "roles_from");
	json__uint_or_null(j, "first_job_step", known, first);
	if (!known && facts__get(facts, "job_step_unknown"))
		put_fact(j, "first_job_step_unknown", facts, "job_step_unknown");
	put_fact(j, "attached_at", facts, "attached_at");
	if (facts__get(facts, "host")) {
		put_fact(j, "host", facts, "host");
		put_uint_or_null(j, facts, "host_rss");
		put_uint_if(j, facts, "host_worked_out");
	}
	if (facts__get(facts, "malloc.every"))
		put_malloc(j, facts);
	json__uint(j, "children", words__fact_number(facts, "children"));
	put_stacks(j, doc->model);
	json__bool(j, "complete", doc->complete);
	put_fact_if(j, facts, "stop_reason");
	put_uint_if(j, facts, "dropped_events");
	if (facts__get(facts, "driver_bypassed"))
		json__bool(j, "driver_bypassed", true);
	if (facts__get(facts, "torch_came"))
		json__bool(j, "torch_came", true);
	detail__put(j, facts);
	put_marks(j, doc->model);
	put_fact_if(j, facts, "census_problem");
	if (*words__models(models, sizeof(models), facts))
		json__string(j, "models", models);
	put_uint_if(j, facts, "allocator_block");
	put_uint_if(j, facts, "allocator_tensors");
	put_fact_if(j, facts, "kernel");
	put_fact_if(j, facts, "hostname");
	json__open_object(j, "counters");
	for (size_t i = 0; i < facts__count(facts); i++) {
		const char *key, *value;
		uint64_t number;

		facts__at(facts, i, &key, &value);
		if (text__starts(key, "counter.") && facts__number(facts, key, &number))
			json__uint(j, key + 8, number);
	}
	json__close_object(j);
	json__close_object(j);
}

/* Writes a share of reserved memory; null if that is not known. */
static void put_share(struct json *j, const char *key, const struct model_device *d, double share)
{
	if (d->has_totals)
		json__double(j, key, share, /*decimals=*/6);
	else
		json__null(j, key);
}

/* allocated, reserved and fragmentation are those of the end. The document has those of the
 * moment. */
void report_json__figures(struct json *j, const struct model_device *d)
{
	uint64_t value;

	json__string(j, "device", d->name);
	json__string(j, "state", device__on_host(d->device) ? NULL : state__name(d->state));
	for (size_t i = 0; i < device_values_n; i++) {
		const struct device_value *v = &device_values[i];

		if (!v->key)
			continue;
		if (device_value__get(v, d, &value))
			json__uint(j, v->key, value);
		else if (!(v->flags & VALUE_LEFT_OUT))
			json__null(j, v->key);
	}
	json__string(j, "allocated_is", figure__name(d->allocated_is));
	json__string(j, "peak_is", figure__name(d->peak_is));
	json__seconds(j, "peak_time", d->peak_time, /*decimals=*/9);
	json__string(j, "peak_phase", phase__name(d->peak_phase));
	put_share(j, "fragmentation", d, words__fragmentation(d->allocated, d->reserved));
	put_share(j, "avg_fragmentation", d, d->avg_fragmentation);
	json__bool(j, "before_attach_known", d->before_known);
}

/* Writes the figures of all devices together. */
static void put_all(struct json *j, const struct model *m)
{
	struct model_all all;

	model__all(m, &all);
	json__open_object(j, "all");
	json__uint(j, "devices", all.devices);
	json__uint(j, "peak_allocated", all.peak_allocated);
	json__seconds(j, "peak_allocated_time", all.peak_allocated_time, /*decimals=*/9);
	json__uint(j, "peak_reserved", all.peak_reserved);
	json__seconds(j, "peak_reserved_time", all.peak_reserved_time, /*decimals=*/9);
	json__close_object(j);
}

int report_json__device(struct json *j, const struct report_doc *doc, size_t device)
{
	struct model_device d;
	int err;

	model__device(doc->model, device, &d);
	report_json__figures(j, &d);
	if (d.ooms)
		put_ooms(j, doc, device);
	put_end_neighbours(j, doc, device);
	err = growth_summary__device_json(j, doc->model, doc->facts, device, doc->duration);
	if (err || device__on_host(d.device))
		return err;
	return put_below(j, doc, device);
}

/* Writes all devices. Returns 0 or -ENOMEM. */
static int put_devices(struct json *j, const struct report_doc *doc)
{
	int err = 0;

	json__open_array(j, "devices");
	for (size_t i = 0; i < model__devices(doc->model) && !err; i++) {
		json__open_object(j, NULL);
		err = report_json__device(j, doc, i);
		json__close_object(j);
	}
	json__close_array(j);
	put_all(j, doc->model);
	return err;
}

void report_json__select(struct json *j, const struct report_select *s)
{
	if (!s || (!s->filter && !s->nhide))
		return;
	json__string(j, "filter", s->expr);
	json__open_array(j, "hide");
	for (size_t i = 0; i < s->nhide; i++)
		json__string(j, NULL, s->hide[i]);
	json__close_array(j);
}

/* Writes the moment and the device that the rows are about, with the device's sums. */
static void put_moment(struct json *j, const struct report_doc *doc)
{
	struct model_device device;
	char by[64];

	model__device(doc->model, doc->device < 0 ? SIZE_MAX : (size_t)doc->device, &device);
	json__string(j, "device", doc->device < 0 ? NULL : device.name);
	json__string(j, "at", moment_names[doc->at]);
	json__seconds(j, "time", doc->at == AT_TIME ? doc->at_time : device.mark_time,
		      /*decimals=*/9);
	json__string(j, "by", doc->segments ? "segment" : words__groups(by, doc->by, doc->split));
	report_json__select(j, doc->select);
	json__uint(j, "allocated", device.mark_allocated);
	json__string(j, "allocated_is", figure__name(device.mark_is));
	json__uint_or_null(j, "reserved", device.has_totals, device.mark_reserved);
	put_share(j, "fragmentation", &device,
		  words__fragmentation(device.mark_allocated, device.mark_reserved));
	json__uint_or_null(j, "before_attach", device.before_known, device.mark_before_attach);
}

struct report_doc report_doc__of(const struct analysis *a, int device)
{
	return (struct report_doc){
		.model = a->model,
		.dict = a->dict,
		.facts = a->facts,
		.name = a->name,
		.format = mtr_reader__version(a->reader),
		.duration = a->duration,
		.complete = a->complete,
		.device = device,
	};
}

void report_json__stack(struct json *j, const struct dict *d, const struct row *r)
{
	struct dict_stack s = dict__get_stack(d, r->stack);
	char buf[REPORT_TEXT];

	json__open_array(j, "stack");
	for (uint32_t i = s.n; i-- > 0;)
		json__string(j, NULL, words__frame(buf, d, s.frames[i]));
	if (row__has_leaf(r))
		json__string(j, NULL, r->node_class);
	json__close_array(j);
}

/* Writes a field of the row if it applies to rows of these groups (bits 1 << BY_*). */
static void put_field(struct json *j, enum row_field field, const struct row *r, unsigned groups)
{
	struct row_value value = row_field__get(field, r, groups);

	if (!value.applies || (value.optional && !value.known))
		return;
	if (value.known && !value.text)
		json__uint(j, row_field__name(field), value.number);
	else
		json__string(j, row_field__name(field), value.text);
}

/* Writes the row's share of all bytes, and the range of its bytes if they are sampled. */
static void put_row_share(struct json *j, const struct row *r, uint64_t all)
{
	json__double(j, "share", all ? (double)r->bytes / (double)all : 0, /*decimals=*/6);
	if (r->sampled.high == r->bytes && r->sampled.low == r->bytes)
		return;
	json__open_object(j, "sampled");
	json__uint(j, "estimate", r->sampled.bytes);
	json__uint(j, "low", r->sampled.low);
	json__uint(j, "high", r->sampled.high);
	json__close_object(j);
}

/* Writes a row. all: allocated bytes of the device. */
static void put_row(struct json *j, const struct report_doc *doc, const struct row *r, uint64_t all)
{
	unsigned groups = words__row_properties(doc->by, doc->split);

	json__open_object(j, NULL);
	for (enum row_field f = 0; f < ROW_FIELDS; f++) {
		put_field(j, f, r, groups);
		if (f == ROW_REQUESTED)
			put_row_share(j, r, all);
		if (f == ROW_FUNCTION && (groups & 1U << BY_STACK))
			report_json__stack(j, doc->dict, r);
	}
	if (r->before_attach) {
		json__bool(j, "before_attach", true);
		json__uint(j, "anonymous", r->anonymous);
	}
	json__close_object(j);
}

/* Writes the sum of rows that are not shown. Rows of layers overlap, so their bytes have no sum. */
static void put_left_out(struct json *j, const struct report_doc *doc, const char *key, size_t rows,
			 uint64_t bytes)
{
	json__open_object(j, key);
	json__uint(j, "rows", rows);
	if (doc->split || doc->by != BY_LAYER)
		json__uint(j, "bytes", bytes);
	json__close_object(j);
}

int report_json__rows(struct json *j, const struct report_doc *doc)
{
	struct row_opts opts = { .by = doc->by,
				 .split = doc->split,
				 .when = ROWS_AT_MARK,
				 .which_line = doc->which_line };
	size_t n = 0, kept, shown;
	struct row *rows = NULL;
	struct model_device device;
	uint64_t left_bytes = 0, filtered_bytes, filtered_count;
	int err = 0;

	report_select__apply(doc->select, &opts);
	if (doc->device >= 0) {
		model__device(doc->model, doc->device, &device);
		err = model__rows(doc->model, doc->device, &opts, &rows, &n);
	}
	kept = report_select__kept(rows, n, &filtered_bytes, &filtered_count);
	shown = doc->top && doc->top < kept ? doc->top : kept;
	json__open_array(j, "rows");
	for (size_t i = 0; i < shown; i++)
		put_row(j, doc, &rows[i], device.mark_allocated);
	json__close_array(j);
	for (size_t i = shown; i < kept; i++)
		left_bytes += rows[i].bytes;
	if (shown < kept)
		put_left_out(j, doc, "rows_left_out", kept - shown, left_bytes);
	if (doc->select && doc->select->filter)
		put_left_out(j, doc, "rows_filtered_out", n - kept, filtered_bytes);
	free(rows);
	return err;
}

static void put_holder(struct json *j, const struct holder *h)
{
	json__open_object(j, NULL);
	json__string(j, "holder", *h->name ? h->name : NULL);
	json__uint(j, "bytes", h->bytes);
	json__uint(j, "count", h->count);
	json__uint_or_null(j, "size", h->size, h->size);
	json__string(j, "category", h->category);
	json__string(j, "module", h->module);
	json__string(j, "module_class", h->module_class);
	json__string(j, "module_root", h->module_root);
	json__uint(j, "modules", h->modules);
	json__close_object(j);
}

/* Writes the moment's memory from before attach by what holds it. Returns 0 or -ENOMEM. */
static int put_holders(struct json *j, const struct report_doc *doc)
{
	struct row_opts o = { .by = BY_LINE, .when = ROWS_AT_MARK };
	struct holders holders = { 0 };
	struct row *rows = NULL;
	size_t n = 0;
	int err = doc->device < 0 ? 0 : model__rows(doc->model, doc->device, &o, &rows, &n);

	if (!err)
		err = holders__of_rows(rows, n, /*by_role=*/false, &holders);
	json__open_array(j, "before_attach_holders");
	for (size_t i = 0; i < holders.n; i++)
		put_holder(j, &holders.all[i]);
	json__close_array(j);
	holders__free(&holders);
	free(rows);
	return err;
}

/* Writes the moment's bytes by category, also 0. Returns 0 or -ENOMEM. */
static int put_categories(struct json *j, const struct report_doc *doc)
{
	struct row_opts o = { .by = BY_CATEGORY, .when = ROWS_AT_MARK };
	uint64_t bytes[CATEGORY_NR] = { 0 }, before = 0;
	struct row *rows = NULL;
	size_t n = 0;
	int err = doc->device < 0 ? 0 : model__rows(doc->model, doc->device, &o, &rows, &n);

	if (err)
		return err;
	json__open_object(j, "categories");
	for (size_t i = 0; i < n; i++) {
		if (rows[i].before_attach) {
			before = rows[i].bytes;
			continue;
		}
		for (int c = 0; c < CATEGORY_NR; c++)
			if (!strcmp(rows[i].category, category__name(c)))
				bytes[c] = rows[i].bytes;
	}
	for (int c = 0; c < CATEGORY_NR; c++)
		json__uint(j, category__name(c), bytes[c]);
	/* memory from before attach without a known category */
	json__uint(j, "before_attach", before);
	json__close_object(j);
	free(rows);
	return 0;
}

struct named_layer {
	struct model_layer l;
	/* true if another model has this name; the key then begins with the root's class */
	bool twice;
};

static int cmp_layer(const void *a, const void *b)
{
	const struct named_layer *x = a, *y = b;
	int c = strcmp(x->l.name, y->l.name);

	return c ? c : strcmp(x->l.root, y->l.root);
}

/* Puts a layer. Its key is its name, or "ROOT_CLASS:NAME" if another model has that name too. */
static void put_layer(struct json *j, const struct named_layer *n, bool reserved)
{
	const struct model_layer *l = &n->l;
	char key[2 * REPORT_TEXT];

	snprintf(key, sizeof(key), "%s:%s", l->root, l->name);
	json__open_object(j, n->twice ? key : l->name);
	json__string(j, "layer_name", l->name);
	json__string(j, "layer_class", l->cls);
	json__string(j, "root_class", l->root);
	report_json__layer(j, l, reserved);
	json__close_object(j);
}

/* Writes all layers in the order of their names. Returns 0 or -ENOMEM. */
static int put_layers(struct json *j, const struct model *m)
{
	size_t n = model__layers(m);
	struct named_layer *all = calloc(n + 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		model__layer(m, i, &all[i].l);
	qsort(all, n, sizeof(*all), cmp_layer);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(all[i - 1].l.name, all[i].l.name))
			all[i - 1].twice = all[i].twice = true;
	json__open_object(j, "layers");
	for (size_t i = 0; i < n; i++)
		put_layer(j, &all[i], model__reserves(m));
	json__close_object(j);
	free(all);
	return 0;
}

/* Writes the phases that the recording has. */
static void put_phases(struct json *j, const struct model *m)
{
	json__open_object(j, "phases");
	for (int phase = 0; phase < PHASE_NR; phase++) {
		struct model_phase sums;

		model__phase(m, phase, &sums);
		if (!sums.count)
			continue;
		json__open_object(j, phase__name(phase));
		json__uint(j, "peak_allocated", sums.peak_allocated);
		json__seconds(j, "peak_time", sums.peak_time, /*decimals=*/9);
		json__uint_or_null(j, "peak_reserved", model__reserves(m), sums.peak_reserved);
		json__int(j, "allocated_delta", sums.allocated_delta);
		json__double(j, "duration_ms", (double)sums.duration / 1e6, /*decimals=*/6);
		json__uint(j, "count", sums.count);
		json__close_object(j);
	}
	json__close_object(j);
}

int report_json__document(struct json *j, const char *key, const struct report_doc *doc)
{
	json__open_object(j, key);
	json__open_object(j, "memtrace");
	put_fact(j, "version", doc->facts, "version");
	json__uint(j, "recording_format", doc->format);
	json__string(j, "recording", doc->name);
	json__close_object(j);
	report_json__target(j, doc);
	report_json__capture(j, doc);
	ending__json(j, doc->facts);
	if (put_devices(j, doc) || report_json__host(j, doc->model, doc->facts, doc->duration))
		return -ENOMEM;
	put_moment(j, doc);
	if (put_categories(j, doc) || put_holders(j, doc))
		return -ENOMEM;
	if (doc->segments ? put_segments(j, doc) : report_json__rows(j, doc))
		return -ENOMEM;
	if (put_layers(j, doc->model))
		return -ENOMEM;
	put_phases(j, doc->model);
	report_scopes__json(j, doc);
	if (doc->advice)
		advice__json(j, doc->advice);
	if (doc->fail)
		report_fail__json(j, doc->fail, doc->fail_from);
	if (doc->rolling)
		rolling_view__json(doc->rolling, j);
	json__close_object(j);
	return 0;
}
