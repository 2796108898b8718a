/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parts of the JSON of a recording: layers, host memory, and a device's memory below its blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/words.h"
#include "record/dict.h"
#include "report/doc.h"
#include "report/recording/pools.h"

/* ---- a layer (calls of a module): the same keys in report, page and timeline ---- */

static void put_layer_sums(struct json *j, const struct model_layer_sums *l, bool calls,
			   bool reserved)
{
	json__uint(j, "peak_allocated", l->peak_allocated);
	json__uint_or_null(j, "peak_reserved", reserved, l->peak_reserved);
	json__uint(j, "total_allocations", l->allocs);
	json__uint(j, "total_deallocations", l->frees);
	if (reserved)
		json__double(j, "avg_fragmentation", l->avg_fragmentation, 6);
	else
		json__null(j, "avg_fragmentation");
	json__double(j, "duration_ms", (double)l->duration / 1e6, 6);
	json__uint_or_null(j, "calls", calls, l->calls);
}

void report_json__layer(struct json *j, const struct model_layer *l, bool reserved)
{
	put_layer_sums(j, &l->all, l->calls_known, reserved);
	json__open_object(j, "forward");
	put_layer_sums(j, &l->forward, l->calls_known, reserved);
	json__close_object(j);
	json__open_object(j, "backward");
	put_layer_sums(j, &l->backward, l->calls_known, reserved);
	json__close_object(j);
}

/* ---- host memory ---- */

static void point_json(struct json *j, const char *key, const struct host_point *p)
{
	json__open_object(j, key);
	json__seconds(j, "time", p->time, 9);
	json__uint(j, "rss", p->sheet.part[HOST_TOTAL].bytes);
	host_words__json(j, &p->sheet);
	json__close_object(j);
}

void report_json__host(struct json *j, const struct model *m)
{
	const struct model_host *h = model__host(m);

	if (!h) {
		json__null(j, "host");
		return;
	}
	json__open_object(j, "host");
	json__uint(j, "readings", h->readings);
	point_json(j, "moment", &h->at_moment);
	point_json(j, "first", &h->first);
	point_json(j, "highest", &h->highest);
	point_json(j, "last", &h->last);
	json__close_object(j);
}

/* ---- memory below a device's blocks ---- */

static void put_hex(struct json *j, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, v);
	json__string(j, key, text);
}

void report_json__line(struct json *j, const struct row *r)
{
	json__string(j, "file", r->file);
	json__uint_or_null(j, "line", r->file && r->line, r->line);
	json__string(j, "function", r->func);
	json__string(j, "module", r->module);
	json__string(j, "module_class", r->module_class);
	if (!r->before_attach)
		json__string(j, "phase", phase__name(r->phase));
	json__string(j, "source", r->source);
	if (r->before_attach)
		json__bool(j, "before_attach", true);
}

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
		json__seconds(j, "time", s->time, 9);
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

int report_json__segments(struct json *j, const struct report_doc *doc)
{
	uint64_t sum = 0, left = 0;
	struct model_segments s;
	size_t shown = 0;
	int err = doc->device < 0 ? -EINVAL
				  : model__segments(doc->model, doc->device, ROWS_AT_MARK,
						    doc->which_line, &s);

	json__open_array(j, "rows");
	if (err) {
		json__close_array(j);
		return err == -EINVAL ? 0 : err; /* the CPU has no segments */
	}
	shown = doc->top && doc->top < s.n ? doc->top : s.n;
	for (size_t i = 0; i < s.n; i++) {
		sum += s.all[i].allocated;
		if (i < shown)
			put_segment(j, &s.all[i], sum);
		else
			left += s.all[i].allocated;
	}
	if (sum < s.allocated)
		put_rest(j, s.allocated - sum, s.outside_blocks, s.allocated);
	json__close_array(j);
	if (shown < s.n) {
		json__open_object(j, "rows_left_out");
		json__uint(j, "rows", s.n - shown);
		json__uint(j, "bytes", left);
		json__close_object(j);
	}
	model__free_segments(&s);
	return 0;
}

static void put_others(struct json *j, const struct model_segments *s)
{
	json__open_object(j, "others");
	json__uint(j, "bytes", s->others_bytes);
	json__open_array(j, "rows");
	for (size_t i = 0; i < s->nothers; i++) {
		json__open_object(j, NULL);
		json__string(j, "how", words__how(s->others[i].how));
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
	json__seconds(j, "time", s->unmapped_time, 9);
	json__close_object(j);
}

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

/* Private pools. Returns 0 or -ENOMEM. */
static int put_pools(struct json *j, const struct model_segments *s)
{
	struct report_pool *all;
	size_t n;
	int err = report_pools__of(s, &all, &n);
	char id[48];

	json__open_array(j, "pools");
	for (size_t i = 0; i < n; i++) {
		const struct segment *g = all[i].first;

		json__open_object(j, NULL);
		snprintf(id, sizeof(id), "%" PRIu64 ",%" PRIu64, all[i].id[0], all[i].id[1]);
		json__string(j, "pool", id);
		json__string(j, "kind", all[i].kind == PRIVATE_GRAPH ? "graph" : "mempool");
		json__uint(j, "size", all[i].size);
		json__uint(j, "allocated", all[i].allocated);
		json__uint(j, "free", all[i].free);
		json__uint(j, "empty", all[i].empty);
		json__uint(j, "segments", all[i].segments);
		json__open_object(j, "first_taken_by");
		if (g->seen)
			json__seconds(j, "time", g->time, 9);
		report_json__line(j, &g->taken);
		json__close_object(j);
		json__close_object(j);
	}
	json__close_array(j);
	if (!err)
		free(all);
	return err;
}

int report_json__below(struct json *j, const struct report_doc *doc, size_t device)
{
	struct model_segments s;
	struct report_below b;
	struct model_device d;
	bool asked;
	int err = model__segments(doc->model, device, ROWS_AT_MARK, doc->which_line, &s);

	if (err) {
		json__null(j, "reconciliation");
		return err == -ENOMEM ? err : 0;
	}
	model__device(doc->model, device, &d);
	b = words__below(&s);
	asked = s.requested && s.requested <= s.allocated;
	json__uint_or_null(j, "segments", s.n, s.n);
	json__open_object(j, "reconciliation");
	json__seconds(j, "time", doc->at == AT_TIME ? doc->at_time : d.mark_time, 9);
	json__uint_or_null(j, "used", s.used_known, s.used);
	if (s.used_known) {
		json__seconds(j, "used_time", s.used_time, 9);
		json__uint(j, s.has_totals ? "used_reserved" : "used_allocated", s.used_below);
		json__uint(j, "used_others", s.used_others);
		json__int(j, "not_seen", b.not_seen);
	} else {
		json__null(j, "not_seen");
	}
	put_others(j, &s);
	json__uint(j, "managed", s.managed);
	json__uint_or_null(j, "reserved", s.has_totals, s.reserved);
	json__uint(j, "allocated", s.allocated);
	json__uint_or_null(j, "cached", s.has_totals,
			   s.reserved > s.allocated ? s.reserved - s.allocated : 0);
	json__uint_or_null(j, "requested", asked, s.requested);
	json__uint_or_null(j, "rounding", asked, s.allocated - s.requested);
	put_sums(j, &s, &b);
	err = put_pools(j, &s);
	json__uint(j, "pinned_host", s.host);
	json__uint(j, "registered_host", s.registered);
	json__uint(j, "unknown_device", s.unknown_device);
	json__bool(j, "adds_up", b.adds_up);
	json__close_object(j);
	model__free_segments(&s);
	return err;
}

void report_json__ooms(struct json *j, const struct report_doc *doc, size_t device)
{
	struct row_frame line;
	struct model_device d;
	struct model_oom o;
	uint64_t all;

	model__device(doc->model, device, &d);
	all = words__device_total(doc->facts, &d);
	json__open_array(j, "out_of_memory");
	for (size_t i = 0; model__oom(doc->model, device, i, &o); i++) {
		json__open_object(j, NULL);
		json__uint(j, "number", o.number);
		json__seconds(j, "time", o.time, 9);
		json__uint(j, "asked", o.size);
		json__uint(j, "allocated", o.allocated);
		json__uint_or_null(j, "reserved", o.has_totals, o.reserved);
		json__uint_or_null(j, "largest_gap", o.gap_known, o.largest_gap);
		json__uint_or_null(j, "driver_used", o.used_known, o.used);
		json__uint_or_null(j, "driver_total", all, all);
		json__uint_or_null(j, "driver_free",
				   o.left_known || (all && o.used_known && o.used <= all),
				   o.left_known ? o.left : all - o.used);
		json__bool(j, "driver_free_counts_others", o.left_known);
		json__uint(j, "kept", o.kept);
		json__string(j, "phase", phase__name(o.phase));
		if (model__stack_line(doc->model, o.stack, doc->which_line, &line)) {
			json__string(j, "file", line.file);
			json__uint_or_null(j, "line", line.line, line.line);
			json__string(j, "function", line.func);
		}
		json__uint(j, "tid", dict__get_thread(doc->dict, o.thread).tid);
		json__close_object(j);
	}
	json__close_array(j);
}
