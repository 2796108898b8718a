/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Chrome trace events as JSON for ui.perfetto.dev, written as events arrive. Memory is shown as
 * counters, modules as spans of threads, scopes, steps and phases as spans of extra threads,
 * segments and out-of-memory as instants.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "export/export.h"
#include "export/formats/passing.h"
#include "export/formats/perfetto.h"
#include "export/formats/scope_lanes.h"
#include "export/formats/spans.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/json_items.h"
#include "record/stream.h"

/* ---- traces of torch.profiler (Kineto) ---- */

struct merge {
	struct json *j;
	bool has_base;
	int64_t base;  /* time 0 of the trace, ns since 1970 */
	int64_t shift; /* ns to add to the trace's times, to get times since the capture's start */
	uint64_t events; /* number of events of the trace that were written */
};

/* For json_items.member: takes the time that the trace counts from. Returns 0. */
static int take_member(void *ctx, const char *key, const json_t *value)
{
	struct merge *m = ctx;

	if (!strcmp(key, "baseTimeNanoseconds") && json_is_integer(value)) {
		m->base = json_integer_value(value);
		m->has_base = true;
	}
	return 0;
}

/* For json_items.item: writes an event of the trace with its time moved by m->shift. Leaves out
 * what is no event. Returns 0 or -ENOMEM. */
static int put_event(void *ctx, const char *array, json_t *event)
{
	struct merge *m = ctx;
	const json_t *ts = json_object_get(event, "ts");
	double at;
	char *text;

	(void)array;
	if (!json_is_object(event))
		return 0;
	if (ts) {
		/* In microseconds. Those since the base have 13 digits with the nanoseconds, so a
		 * double keeps them. */
		at = json_number_value(ts) + (double)(m->shift / 1000) +
		     (double)(m->shift % 1000) / 1e3;
		if (!json_is_number(ts) || !isfinite(at) ||
		    json_object_set_new(event, "ts", json_real(at)))
			return 0;
	}
	text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
	if (!text)
		return -ENOMEM;
	json__raw(m->j, text);
	free(text);
	m->events++;
	return 0;
}

/* Gets the time of the capture's start, ns since 1970. Returns false if it is unknown. */
static bool find_start(const struct facts *f, int64_t *ret)
{
	const char *start = facts__get(f, "start");
	uint64_t ns;

	if (facts__number(f, "clock_zero_ns", &ns)) {
		*ret = (int64_t)ns;
		return true;
	}
	/* Older recordings have milliseconds only. */
	if (!start || text__parse_date(start, &ns) || ns > INT64_MAX)
		return false;
	*ret = (int64_t)ns;
	return true;
}

int perfetto__merge(struct json *j, const char *path, const struct facts *f)
{
	static const char *const arrays[] = { "traceEvents", NULL };
	struct merge m = { .j = j };
	int64_t zero;
	int err;

	if (!find_start(f, &zero))
		return -ESTALE;
	err = json_items__read(
		path, &(struct json_items){ .arrays = arrays, .member = take_member, .ctx = &m });
	if (err)
		return err;
	if (!m.has_base || __builtin_sub_overflow(m.base, zero, &m.shift))
		return -EBADMSG;
	err = json_items__read(
		path, &(struct json_items){ .arrays = arrays, .item = put_event, .ctx = &m });
	if (err)
		return err;
	return m.events ? 0 : -EBADMSG;
}

/* ---- counters: the curves of a device, with few points ---- */

#define WINDOW 1000000 /* least length of a time window, ns */
#define WINDOWS 200000 /* most windows; a long recording has longer windows */

enum curve { ALLOCATED, RESERVED, USED, CURVE_NR };

struct point {
	uint64_t time, value;
};

struct counter {
	bool any;	/* the window has points that are not written yet */
	bool written;	/* a point was written, with the value last_value */
	uint64_t until; /* end of the window, ns */
	uint64_t last_value;
	struct point low, high, last; /* points of the current window */
};

struct series {
	struct device device;
	char name[16];
	struct counter counters[CURVE_NR];
};

struct counters {
	uint64_t window;
	counters_put *put;
	void *ctx;
	struct series *all;
	size_t n, room, recent;
};

struct counters *perfetto_counters__new(uint64_t duration, counters_put *put, void *ctx)
{
	struct counters *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->window = duration / WINDOWS > WINDOW ? duration / WINDOWS : WINDOW;
	c->put = put;
	c->ctx = ctx;
	return c;
}

void perfetto_counters__free(struct counters *c)
{
	if (!c)
		return;
	free(c->all);
	free(c);
}

/* Writes a point, if its value differs from the last one written. */
static void put_point(struct counters *c, struct series *s, enum curve curve, struct point p)
{
	static const char *const names[CURVE_NR] = { "allocated", "reserved", "in use (driver)" };
	struct counter *k = &s->counters[curve];

	if (k->written && k->last_value == p.value)
		return;
	k->written = true;
	k->last_value = p.value;
	c->put(c->ctx, s->name, names[curve], p.time, p.value);
}

/* Ends the window of a curve: writes its lowest and highest point, in the order of time, and its
 * last. */
static void put_window(struct counters *c, struct series *s, enum curve curve)
{
	struct counter *k = &s->counters[curve];
	bool low_first = k->low.time < k->high.time;

	if (!k->any)
		return;
	put_point(c, s, curve, low_first ? k->low : k->high);
	put_point(c, s, curve, low_first ? k->high : k->low);
	put_point(c, s, curve, k->last);
	k->any = false;
}

/* Adds a point to the window of a curve. Writes the window if the point is beyond it. */
static void add_point(struct counters *c, struct series *s, enum curve curve, struct point p)
{
	struct counter *k = &s->counters[curve];

	if (k->any && p.time >= k->until)
		put_window(c, s, curve);
	if (!k->any) {
		k->any = true;
		k->until = p.time < UINT64_MAX - c->window ? p.time + c->window : UINT64_MAX;
		k->low = k->high = k->last = p;
		return;
	}
	/* Times of different threads may differ by some microseconds. Points are put in the
	 * order of events, so times must not decrease. */
	if (p.time < k->last.time)
		p.time = k->last.time;
	if (p.value < k->low.value)
		k->low = p;
	if (p.value > k->high.value)
		k->high = p;
	k->last = p;
}

/* Sets *ret to the counters of a device, which it adds on first use. It stays valid until the next
 * call. Returns 0 or -ENOMEM. */
static int series_of(struct counters *c, const struct model_device *d, struct series **ret)
{
	for (size_t i = 0; i < c->n; i++) {
		size_t k = (c->recent + i) % c->n;

		if (device__same(c->all[k].device, d->device)) {
			c->recent = k;
			*ret = &c->all[k];
			return 0;
		}
	}
	if (array__grow(&c->all, &c->room, c->n + 1, sizeof(*c->all)))
		return -ENOMEM;
	c->all[c->n] = (struct series){ .device = d->device };
	memcpy(c->all[c->n].name, d->name, sizeof(d->name));
	*ret = &c->all[c->n++];
	return 0;
}

int perfetto_counters__device(struct counters *c, const struct model_device *d, uint64_t time)
{
	struct series *s;
	int err = series_of(c, d, &s);

	if (err)
		return err;
	add_point(c, s, ALLOCATED, (struct point){ time, d->allocated });
	if (d->has_totals)
		add_point(c, s, RESERVED, (struct point){ time, d->reserved });
	return 0;
}

int perfetto_counters__used(struct counters *c, const struct model_device *d, uint64_t time,
			    uint64_t used)
{
	struct series *s;
	int err = series_of(c, d, &s);

	if (!err)
		add_point(c, s, USED, (struct point){ time, used });
	return err;
}

void perfetto_counters__end(struct counters *c)
{
	for (size_t i = 0; i < c->n; i++)
		for (int what = 0; what < CURVE_NR; what++)
			put_window(c, &c->all[i], what);
}

/* Thread IDs that Linux does not assign: its PID_MAX_LIMIT is 4194304. */
#define TID_STEPS 4194305
#define TID_PHASES 4194306
/* With another trace, modules have threads of their own, because that trace's spans are on the
 * process's threads. */
#define TID_MODULES 4194307
#define TID_SCOPES 0x40000000 /* and a number for each lane of scopes */

struct stretch {  /* a period in which the main device's allocations are all of one phase */
	bool any; /* there is one */
	enum phase phase;
	uint64_t begin, last; /* times of its first and last event, ns */
};

struct perfetto {
	struct json *j;
	const struct dict *dict;
	struct passing wait;
	struct spans *spans;
	struct counters *counters;
	uint64_t pid; /* process ID in the document; 0: the head is not written yet */
	bool *named;  /* by thread number: the thread's name was written */
	size_t nnamed;
	bool *modules; /* by thread number: the name of its thread for modules (TID_MODULES) was
			  written */
	size_t nmodules;
	size_t steps;
	struct stretch stretch;
	bool merges; /* another trace is merged into the document */
	int err;
};

/* Writes a time, ns, in the microseconds of the format. */
static void put_time(struct perfetto *p, const char *key, uint64_t ns)
{
	json__double(p->j, key, (double)ns / 1e3, /*decimals=*/3);
}

/* Opens an event of the format. ph: its phase, i.e. kind: "B" begin, "E" end, "X" complete, "C"
 * counter, "i" instant. time: ns. */
static void open_event(struct perfetto *p, const char *ph, const char *name, uint64_t time)
{
	json__open_object(p->j, NULL);
	json__string(p->j, "ph", ph);
	json__string(p->j, "name", name);
	json__uint(p->j, "pid", p->pid);
	put_time(p, "ts", time);
}

/* Writes a metadata event: the name of a process or thread. what: "process_name" or "thread_name".
 * more: follows the name; NULL: nothing. */
static void put_name(struct perfetto *p, const char *what, uint64_t tid, const char *name,
		     const char *more)
{
	char *text = NULL;

	if (more && asprintf(&text, "%s %s", name, more) < 0) {
		p->err = -ENOMEM;
		return;
	}
	json__open_object(p->j, NULL);
	json__string(p->j, "ph", "M");
	json__string(p->j, "name", what);
	json__uint(p->j, "pid", p->pid);
	json__uint(p->j, "tid", tid);
	json__open_object(p->j, "args");
	json__string(p->j, "name", text ? text : name);
	json__close_object(p->j);
	json__close_object(p->j);
	free(text);
}

/* Returns the thread's ID in the document. Writes the thread's name on first use. */
static uint64_t tid_of(struct perfetto *p, uint32_t thread)
{
	struct dict_thread t = dict__get_thread(p->dict, thread);
	uint32_t need = dict__counts(p->dict).threads;
	const char *name = dict__str(p->dict, t.name);

	if (thread >= need)
		thread = 0;
	if (array__grow_zero(&p->named, &p->nnamed, (size_t)thread + 1, sizeof(*p->named))) {
		p->err = -ENOMEM;
		return t.tid;
	}
	if (!p->named[thread] && *name)
		put_name(p, "thread_name", t.tid, name, /*more=*/NULL);
	p->named[thread] = true;
	return t.tid;
}

/* Returns the ID of the extra thread that shows the modules of a thread. Writes its name on first
 * use. */
static uint64_t modules_tid(struct perfetto *p, uint32_t thread)
{
	uint64_t tid = TID_MODULES + thread;
	char name[48];

	if (array__grow_zero(&p->modules, &p->nmodules, (size_t)thread + 1, sizeof(*p->modules)))
		p->err = -ENOMEM;
	else if (!p->modules[thread]) {
		p->modules[thread] = true;
		snprintf(name, sizeof(name), "modules of %" PRIu32,
			 dict__get_thread(p->dict, thread).tid);
		put_name(p, "thread_name", tid, name, /*more=*/NULL);
	}
	return tid;
}

/* For spans__new(): writes the begin (enter) or end of a module call. */
static void put_span(void *ctx, uint64_t time, bool enter, uint32_t module, uint32_t thread)
{
	struct perfetto *p = ctx;
	uint64_t tid = tid_of(p, thread);
	const char *name = spans__name(p->dict, module) ?: "(a module without a name)";

	if (p->merges)
		tid = modules_tid(p, thread);
	open_event(p, enter ? "B" : "E", name, time);
	json__uint(p->j, "tid", tid);
	if (enter) {
		json__string(p->j, "cat", "module");
		json__open_object(p->j, "args");
		json__string(p->j, "class",
			     dict__str(p->dict, dict__get_module(p->dict, module).cls));
		json__close_object(p->j);
	}
	json__close_object(p->j);
}

/* For perfetto_counters__new(): writes a point of a curve. */
static void put_counter(void *ctx, const char *device, const char *what, uint64_t time,
			uint64_t value)
{
	struct perfetto *p = ctx;
	char name[64];

	/* One event per counter: allocated is part of reserved, but some readers stack the
	 * values of one event. */
	snprintf(name, sizeof(name), "%s %s", device, what);
	open_event(p, "C", name, time);
	json__open_object(p->j, "args");
	json__uint(p->j, "bytes", value);
	json__close_object(p->j);
	json__close_object(p->j);
}

/* Opens the event of a span with known begin and end (ns); the caller adds arguments and closes it.
 */
static void open_span(struct perfetto *p, const char *name, uint64_t tid, uint64_t begin,
		      uint64_t end)
{
	open_event(p, "X", name, begin);
	json__uint(p->j, "tid", tid);
	put_time(p, "dur", end > begin ? end - begin : 0);
}

/* Scopes of the format: how far the line of an instant event is drawn. */
#define SCOPE_GLOBAL "g"
#define SCOPE_PROCESS "p"
#define SCOPE_THREAD "t"

/* Opens an instant event, and its "args". scope: SCOPE_*. */
static void open_instant(struct perfetto *p, const struct event *e, const char *name,
			 const char *scope)
{
	uint64_t tid = tid_of(p, e->thread);

	open_event(p, "i", name, e->time);
	json__uint(p->j, "tid", tid);
	json__string(p->j, "s", scope);
	json__open_object(p->j, "args");
}

/* Closes the "args" and the event. */
static void close_instant(struct perfetto *p)
{
	json__close_object(p->j);
	json__close_object(p->j);
}

/* Writes the Python line of an event into its "args", if it is known. */
static void put_line(struct export_ctx *c, struct perfetto *p, const struct event *e)
{
	struct row_frame f;
	char *line;

	if (!model__event_line(c->model, e, &f))
		return;
	if (asprintf(&line, "%s:%" PRIu32 " (%s)", f.file, f.line, f.func) < 0) {
		p->err = -ENOMEM;
		return;
	}
	json__string(p->j, "line", line);
	free(line);
}

static void put_address(struct perfetto *p, uint64_t addr)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, addr);
	json__string(p->j, "address", text);
}

static void put_oom(struct export_ctx *c, struct perfetto *p, const struct event *e,
		    const struct model_device *d)
{
	char name[80], size[24];

	snprintf(name, sizeof(name), "out of memory: %s asked on %s",
		 text__bytes(size, sizeof(size), e->size), d->name);
	open_instant(p, e, name, SCOPE_GLOBAL);
	json__uint(p->j, "asked", e->size);
	json__uint(p->j, "allocated", d->allocated);
	json__uint(p->j, "reserved", d->reserved);
	json__string(p->j, "phase", phase__name(passing__phase(c, e)));
	put_line(c, p, e);
	close_instant(p);
}

/* True for calls that take memory of the device. Memory of the virtual-memory calls is in the
 * trace twice: when created (MEM_PHYSICAL) and when mapped (MEM_MAPPED). */
static bool is_segment(const struct event *e)
{
	switch (e->how) {
	case MEM_DEVICE:
	case MEM_ASYNC:
	case MEM_MANAGED:
	case MEM_MAPPED:
	case MEM_PHYSICAL:
		return true;
	default:
		return false;
	}
}

/* Writes that the process took or gave back memory of the device. */
static void put_segment(struct export_ctx *c, struct perfetto *p, const struct event *e,
			const char *device)
{
	const char *what = e->flags & MEM_BY_ALLOCATOR ? "segment" : "memory of others";
	bool take = e->kind == EVENT_CUDA_ALLOC;
	char name[80];

	snprintf(name, sizeof(name), "%s %s %s", device, what, take ? "taken" : "given back");
	open_instant(p, e, name, SCOPE_PROCESS);
	if (e->size)
		json__uint(p->j, "bytes", e->size);
	put_address(p, e->addr);
	if (take)
		put_line(c, p, e);
	close_instant(p);
}

/* Writes a single allocation or free, so that queries can assign it to the spans of the merged
 * trace. */
static void put_block(struct export_ctx *c, struct perfetto *p, const struct event *e,
		      const char *device)
{
	open_instant(p, e, e->kind == EVENT_ALLOC ? "alloc" : "free", SCOPE_THREAD);
	json__string(p->j, "device", device);
	if (e->size)
		json__uint(p->j, "bytes", e->size);
	put_address(p, e->addr);
	if (e->kind == EVENT_ALLOC)
		put_line(c, p, e);
	json__close_object(p->j);
	json__string(p->j, "cat", "memory");
	json__close_object(p->j);
}

static void put_lost(struct perfetto *p, const struct event *e)
{
	open_instant(p, e, "records lost", SCOPE_GLOBAL);
	json__uint(p->j, "records", e->size);
	close_instant(p);
}

static void put_mark(struct perfetto *p, const struct event *e)
{
	open_instant(p, e, dict__str(p->dict, e->name), SCOPE_GLOBAL);
	close_instant(p);
}

/* Writes the present stretch, if there is one, as a span of the phases. */
static void close_stretch(struct perfetto *p)
{
	struct stretch *s = &p->stretch;

	if (s->any) {
		open_span(p, phase__name(s->phase), TID_PHASES, s->begin, s->last);
		json__string(p->j, "cat", "phase");
		json__close_object(p->j);
	}
	s->any = false;
}

/* Phases as in the model: from the first allocation in a phase to the last event before the next
 * phase. */
static void put_phase(struct export_ctx *c, struct perfetto *p, const struct event *e)
{
	struct stretch *s = &p->stretch;
	struct model_device main;

	if (!passing__main(c, &main) || !device__same(main.device, e->device))
		return;
	if (e->kind == EVENT_ALLOC) {
		enum phase phase = passing__phase(c, e);

		if (!s->any || s->phase != phase) {
			close_stretch(p);
			*s = (struct stretch){
				.any = true, .phase = phase, .begin = e->time, .last = e->time
			};
		}
	}
	if (e->time > s->last)
		s->last = e->time;
}

/* Writes the steps that ended since the last call, as far as the model still has them. */
static void put_steps(struct export_ctx *c, struct perfetto *p)
{
	size_t steps = passing__steps(c), kept = 0;
	size_t added; /* number of steps to write */
	size_t first; /* of those that the model has kept */
	struct model_step step;
	char name[40];

	/* From a pipe, optimizer steps replace the calls counted so far. */
	if (steps < p->steps)
		p->steps = steps;
	/* A pipe from an older recorder brings the facts, and with them the start of the first
	 * step, after the events. */
	if (steps == p->steps || (!c->duration && !facts__count(c->facts)))
		return;
	while (model__step(c->model, kept, &step)) /* at most a few thousand steps are kept */
		kept++;
	added = steps - p->steps;
	first = added < kept ? kept - added : 0;
	for (size_t i = first; i < kept; i++) {
		model__step(c->model, i, &step);
		open_span(p, text__step(name, steps - kept + i), TID_STEPS, step.start, step.end);
		json__string(p->j, "cat", "step");
		json__open_object(p->j, "args");
		json__uint(p->j, "peak_allocated", step.peak);
		json__uint(p->j, "end_allocated", step.end_allocated);
		json__close_object(p->j);
		json__close_object(p->j);
	}
	p->steps = steps;
}

/* Writes an event of a device: what happened, and the points of its curves. */
static void put_on_device(struct export_ctx *c, struct perfetto *p, const struct event *e)
{
	const bool of_block = e->kind == EVENT_ALLOC || e->kind == EVENT_FREE;
	const bool of_cuda = e->kind == EVENT_CUDA_ALLOC || e->kind == EVENT_CUDA_FREE;
	struct model_device d;

	if (!passing__device(c, &p->wait, e->device, &d) || !passing__is_selected(c, d.name))
		return;
	switch (e->kind) {
	case EVENT_ALLOC:
		p->err = spans__alloc(p->spans, e);
		break;
	case EVENT_OOM:
		put_oom(c, p, e, &d);
		break;
	case EVENT_CUDA_ALLOC:
	case EVENT_CUDA_FREE:
		if (is_segment(e))
			put_segment(c, p, e, d.name);
		break;
	}
	if (!p->err && (of_block || of_cuda))
		p->err = perfetto_counters__device(p->counters, &d, e->time);
	if (!p->err && e->kind == EVENT_USED)
		p->err = perfetto_counters__used(p->counters, &d, e->time, e->size);
	if (of_block)
		put_phase(c, p, e);
	if (p->merges && of_block)
		put_block(c, p, e, d.name);
}

/* Writes the head of the document, once. Call after the first event, because the recording's facts
 * come with it. */
static void put_head(struct export_ctx *c, struct perfetto *p)
{
	const char *comm = facts__get(c->facts, "comm");
	uint64_t pid;

	if (p->pid)
		return;
	/* Some readers do not accept process 0. */
	p->pid = facts__number(c->facts, "pid", &pid) && pid && pid <= INT32_MAX ? (int)pid : 1;
	json__open_object(p->j, NULL);
	json__string(p->j, "displayTimeUnit", "ns");
	json__open_array(p->j, "traceEvents");
	put_name(p, "process_name", 0, comm ? comm : "python", c->name);
	put_name(p, "thread_name", TID_STEPS, "steps", /*more=*/NULL);
	put_name(p, "thread_name", TID_PHASES, "phases", c->ahead ? NULL : "(as far as known)");
}

/* Writes the waiting event, if there is one. The model must have processed it, but no later event.
 * Returns 0 or -errno. */
static int flush(struct export_ctx *c, struct perfetto *p)
{
	const struct event *e = &p->wait.event;

	if (!p->wait.any)
		return 0;
	p->wait.any = false;
	if (e->kind == EVENT_ENTER || e->kind == EVENT_LEAVE)
		p->err = spans__call(p->spans, e);
	else if (e->kind == EVENT_LOST && e->size)
		put_lost(p, e);
	else if (e->kind == EVENT_MARK)
		put_mark(p, e);
	else if (e->kind != EVENT_HOST && e->kind != EVENT_SCOPE)
		put_on_device(c, p, e);
	put_steps(c, p);
	return p->err;
}

/* Writes the event before e, and holds e back until the model has processed it. Returns 0 or
 * -errno. */
static int perfetto_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct perfetto *p = state;
	int err;

	put_head(c, p);
	err = flush(c, p);
	passing__hold(c, &p->wait, e);
	return err;
}

static void perfetto_release(void *state)
{
	struct perfetto *p = state;

	if (!p)
		return;
	json__free(p->j);
	spans__free(p->spans);
	perfetto_counters__free(p->counters);
	free(p->named);
	free(p->modules);
	free(p);
}

static int perfetto_begin(struct export_ctx *c, void **state)
{
	struct perfetto *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->dict = c->dict;
	p->merges = c->with;
	p->j = json__new(c->out, false);
	p->spans = spans__new(c->dict, c->ahead && model__sees_calls(c->ahead), put_span, p);
	p->counters = perfetto_counters__new(c->ahead_duration, put_counter, p);
	if (!p->j || !p->spans || !p->counters) {
		perfetto_release(p);
		return -ENOMEM;
	}
	*state = p;
	return 0;
}

/* Writes the figures of a run into its "args". */
static void put_scope_args(struct export_ctx *c, struct perfetto *p, size_t run, uint64_t number)
{
	struct model_scope_level l;
	struct model_device d;
	char key[40];

	json__open_object(p->j, "args");
	json__uint(p->j, "run", number);
	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		if (!passing__is_selected(c, d.name) ||
		    !model__scope_run_level(c->model, run, i, &l))
			continue;
		snprintf(key, sizeof(key), "%s start", d.name);
		if (l.start_known)
			json__uint(p->j, key, l.start);
		snprintf(key, sizeof(key), "%s peak", d.name);
		json__uint(p->j, key, l.peak);
		snprintf(key, sizeof(key), "%s kept", d.name);
		if (l.kept_known)
			json__uint(p->j, key, l.kept);
	}
	json__close_object(p->j);
}

/* Writes the kept runs of scopes as spans of extra threads. Modules have other bounds: a function
 * lasts from its first to its last allocation. Returns 0 or -ENOMEM. */
static int put_scopes(struct export_ctx *c, struct perfetto *p)
{
	struct scope_lanes lanes;
	struct model_scope_run r;
	struct model_scope s;
	char name[64];
	int err = scope_lanes__of(c->model, c->dict, &lanes);

	for (size_t i = 0; i < lanes.n && !err; i++) {
		uint32_t nth = lanes.all[i].nth + 1;

		snprintf(name, sizeof(name), nth > 1 ? "scopes of %u (%u)" : "scopes of %u",
			 lanes.all[i].tid, nth);
		put_name(p, "thread_name", TID_SCOPES + i, name, /*more=*/NULL);
	}
	for (size_t i = 0; i < model__scope_runs(c->model) && !err; i++) {
		model__scope_run(c->model, i, &r);
		model__scope(c->model, r.scope, &s);
		open_span(p, s.name, TID_SCOPES + lanes.lane_of[i], r.begin, r.end);
		json__string(p->j, "cat", "scope");
		put_scope_args(c, p, i, r.number);
		json__close_object(p->j);
	}
	scope_lanes__drop(&lanes);
	return err;
}

/* Writes the facts of the recording as "otherData", which the format leaves to its writers. */
static void put_facts(struct export_ctx *c, struct perfetto *p)
{
	static const char *const keys[] = { "version", "start",	      "cmdline",    "python",
					    "torch",   "attached_at", "stop_reason" };
	char detail[DETAIL_TEXT];

	json__open_object(p->j, "otherData");
	json__string(p->j, "recording", c->name);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (facts__get(c->facts, keys[i]))
			json__string(p->j, keys[i], facts__get(c->facts, keys[i]));
	json__uint(p->j, "events", model__events(c->model));
	json__uint(p->j, "lost", words__lost(c->model, c->facts));
	if (*detail__reduced(detail, sizeof(detail), c->facts))
		json__string(p->j, "reduced_detail", detail);
	json__close_object(p->j);
}

static int perfetto_end(struct export_ctx *c, void *state)
{
	struct perfetto *p = state;
	uint64_t last = p->wait.event.time;
	int err;

	put_head(c, p);
	err = flush(c, p);
	if (err)
		return err;
	spans__close(p->spans, c->duration > last ? c->duration : last);
	close_stretch(p);
	perfetto_counters__end(p->counters);
	err = put_scopes(c, p);
	if (err)
		return err;
	err = c->with ? perfetto__merge(p->j, c->with, c->facts) : 0;
	c->with_failed = err;
	if (err)
		return err;
	json__close_array(p->j);
	put_facts(c, p);
	json__close_object(p->j);
	json__free(p->j); /* writes the final line end, while the stream is still open */
	p->j = NULL;
	return p->err;
}

const struct export_format export_perfetto = {
	.name = "perfetto",
	.suffix = ".perfetto.json",
	.whole = true,
	.looks_ahead = true,
	.help = "a trace of counters, modules and steps, for ui.perfetto.dev",
	.next = "\"Open trace file\" on https://ui.perfetto.dev shows it, and keeps it on your "
		"machine",
	.begin = perfetto_begin,
	.event = perfetto_event,
	.end = perfetto_end,
	.release = perfetto_release,
};
