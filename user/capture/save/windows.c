/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/windows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/decode/step_clock.h"
#include "capture/save/output.h"
#include "capture/save/reserve.h"
#include "record/cond.h"
#include "record/dict.h"
#include "record/ending.h"
#include "record/flight.h"
#include "record/folder.h"

/* ---- the figures of conditions ---- */

#define DEVICES 64 /* devices at most; others have no figures */

/* The figures of a device, in bytes. */
struct level {
	struct device device;
	bool totals; /* the allocator reports totals */
	uint64_t allocated, reserved, peak, peak_reserved;
	uint64_t high; /* highest allocated bytes since the last judgement */
	bool used_known;
	uint64_t used;	     /* driver-reported use */
	struct map64 *sizes; /* address -> size of each block, if the allocator reports no totals */
};

struct values {
	const struct facts *facts;
	struct level levels[DEVICES];
	size_t n;
	uint64_t steps, last_step;	 /* ends of steps; time of the last one, ns */
	uint64_t step_time;		 /* length of the last whole step, ns; 0: none so far */
	uint64_t ooms, lost;		 /* out-of-memory errors; lost events */
	struct host_sheet host, reading; /* last reading of host memory; one that is not complete */
	bool host_known;
};

struct values *values__new(const struct facts *f)
{
	struct values *v = calloc(1, sizeof(*v));

	if (v)
		v->facts = f;
	return v;
}

void values__free(struct values *v)
{
	if (!v)
		return;
	for (size_t i = 0; i < v->n; i++)
		map64__free(v->levels[i].sizes);
	free(v);
}

/* The figures of a device, added if there are none. NULL: too many devices, or an unknown one. */
static struct level *get_level(struct values *v, struct device d)
{
	for (size_t i = 0; i < v->n; i++) {
		if (!memcmp(&v->levels[i].device, &d, sizeof(d)))
			return &v->levels[i];
	}
	if (v->n == DEVICES || d.index == DEVICE_UNKNOWN)
		return NULL;
	v->levels[v->n] = (struct level){ .device = d };
	return &v->levels[v->n++];
}

/* Counts a block for a device whose allocator reports no totals. 0 or -ENOMEM. */
static int count_block(struct level *l, const struct event *e)
{
	bool is_new = e->kind == EVENT_ALLOC || e->kind == EVENT_BLOCK, had_block = false;
	uint64_t old_size = 0;
	int err = 0;

	if (e->kind != EVENT_FREE && (!is_new || e->flags & BLOCK_PENDING))
		return 0;
	if (!l->sizes && !(l->sizes = map64__new()))
		return -ENOMEM;
	if (is_new)
		err = map64__swap(l->sizes, e->addr, e->size, &had_block, &old_size);
	else
		had_block = map64__del(l->sizes, e->addr, &old_size);
	if (err)
		return err;
	if (is_new)
		l->allocated += e->size;
	if (had_block)
		l->allocated -= old_size;
	return 0;
}

/* Updates the figures of the event's device. *news: allocated bytes rose. 0 or -ENOMEM. */
static int take_level(struct values *v, const struct event *e, bool *news)
{
	struct level *l = get_level(v, e->device);
	int err = 0;

	if (!l)
		return 0;
	if (e->totals) {
		if (l->sizes && !l->totals)
			map64__clear(l->sizes);
		l->totals = true;
		l->allocated = e->allocated;
		l->reserved = e->reserved;
	} else if (!l->totals && device__on_host(e->device)) {
		err = count_block(l, e);
	}
	if (e->kind == EVENT_USED) {
		l->used_known = true;
		l->used = e->size;
	}
	if (l->allocated > l->peak)
		l->peak = l->allocated;
	if (l->reserved > l->peak_reserved)
		l->peak_reserved = l->reserved;
	if (l->allocated > l->high) {
		l->high = l->allocated;
		*news = true;
	}
	return err;
}

int values__event(struct values *v, const struct event *e, bool *news)
{
	*news = false;
	switch (e->kind) {
	case EVENT_STEP:
		v->step_time = v->steps && e->time > v->last_step ? e->time - v->last_step : 0;
		v->last_step = e->time;
		v->steps++;
		*news = true;
		return 0;
	case EVENT_LOST:
		v->lost += e->size;
		*news = true;
		return 0;
	case EVENT_OOM:
		v->ooms++;
		*news = true;
		return take_level(v, e, news);
	case EVENT_HOST:
		if (host_sheet__take(&v->reading, e)) {
			v->host = v->reading;
			v->reading = (struct host_sheet){ 0 };
			*news = v->host_known = true;
		}
		return 0;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_BLOCK:
	case EVENT_STATE:
	case EVENT_USED:
		return take_level(v, e, news);
	}
	return 0;
}

/* Device total in bytes, from the facts; 0: not known. */
static uint64_t device_total(const struct values *v, const struct level *l)
{
	char key[40];
	uint64_t total;

	snprintf(key, sizeof(key), "device.%u.total", l->device.index);
	facts__number(v->facts, key, &total);
	return device__on_host(l->device) ? 0 : total;
}

/* full: the value of 100 %; 0: not known. */
static void set_figure(struct cond_values *cv, enum cond_figure figure, uint64_t value,
		       uint64_t full)
{
	cv->v[figure] = (struct cond_value){ .known = true, .value = value, .whole = full };
}

static void set_figures(const struct values *v, const struct level *l, struct cond_values *cv)
{
	uint64_t total = device_total(v, l),
		 unused = l->reserved > l->allocated ? l->reserved - l->allocated : 0;

	set_figure(cv, COND_ALLOCATED, l->allocated, total);
	set_figure(cv, COND_PEAK, l->peak, total);
	set_figure(cv, COND_OOMS, v->ooms, 0);
	set_figure(cv, COND_LOST, v->lost, 0);
	if (v->step_time)
		set_figure(cv, COND_STEP_TIME, v->step_time, 0);
	else
		cv->why[COND_STEP_TIME] = "no whole step has passed";
	if (l->totals) {
		set_figure(cv, COND_RESERVED, l->reserved, total);
		set_figure(cv, COND_PEAK_RESERVED, l->peak_reserved, total);
		set_figure(cv, COND_UNUSED, unused, total);
		set_figure(cv, COND_FRAGMENTATION, unused, l->reserved);
	}
	if (l->used_known) {
		set_figure(cv, COND_USED, l->used, total);
		if (l->totals && l->used >= l->reserved)
			set_figure(cv, COND_OTHER, l->used - l->reserved, total);
	}
	host_figures__put(cv, v->host_known ? &v->host : NULL, 0,
			  "the host memory was not read yet");
	cv->has_steps = v->steps;
	cv->step = v->steps;
}

/* True if conditions are judged on this device. The CPU counts only if there is no other device, as
 * in reports; the host only if it is the sole device, since its memory contains the CPU's. */
static bool is_judged(const struct values *v, const struct level *l)
{
	bool others = false;
	size_t n = 0;

	if (l->device.type == DEVICE_MALLOC)
		return false;
	for (size_t i = 0; i < v->n; i++)
		n += v->levels[i].device.type != DEVICE_MALLOC;
	if (l->device.type == DEVICE_HOST)
		return n == 1;
	for (size_t i = 0; i < v->n; i++)
		others |= !device__on_host(v->levels[i].device);
	return !others || !device__on_host(l->device);
}

int values__judge(struct values *v, struct cond *c, uint64_t now, struct cond_result *ret)
{
	struct cond_result r = { .verdict = COND_UNKNOWN };
	bool any = false;

	*ret = r;
	for (size_t i = 0; i < v->n; i++) {
		struct cond_values cv = { .time = now, .series = (unsigned int)i };
		int err;

		if (!is_judged(v, &v->levels[i]))
			continue;
		set_figures(v, &v->levels[i], &cv);
		err = cond__eval(c, &cv, &r);
		if (err)
			return err;
		/* Returns the result of one device for which it holds, or the first known result. */
		if (!any || (r.verdict == COND_HOLDS && ret->verdict != COND_HOLDS))
			*ret = r;
		any = true;
	}
	return 0;
}

/* Call when all conditions are judged: a figure is news again when it rises above its present
 * value. */
static void reset_highs(struct values *v)
{
	for (size_t i = 0; i < v->n; i++)
		v->levels[i].high = v->levels[i].allocated;
}

/* ---- windows ---- */

struct windows {
	struct sink sink; /* first: the sink is cast to this struct */
	struct windows_opts opts;
	struct dict *dict;
	const struct facts *facts;
	struct flight *flight;	 /* keeps the events, and writes the files */
	struct cond *on, *until; /* conditions that begin and end a window; NULL: none */
	struct values *values;	 /* figures of conditions; NULL: no conditions */
	/* True if the condition `on` was true when it was last judged. A window begins when it
	 * becomes true. */
	bool on_was_true;
	struct step_clock clock;
	bool at_step;  /* the next whole step begins a window */
	uint64_t skip; /* ends of steps before that window */
	bool planned;  /* the first window is planned, or begun */
	uint64_t due;  /* time of the next window of --every, ns */
	uint64_t now;  /* time of the last tick, ns */
	/* The window of --at: its moment on the wall clock, ns since 1970 (0: none), that moment in
	 * the events' time as of the last tick, and time 0 of the events on the kernel's clock. */
	uint64_t appointed, appointed_time, zero;
	/* The open window. */
	uint64_t begun;	      /* begin, ns */
	uint64_t begun_steps; /* number of steps that ended before the window */
	bool whole;	      /* the window began with a step */
	struct outfile *file; /* file of the open window; NULL: none */
	/* The complete windows. */
	char *last; /* path of the last one */
	struct window_kept {
		char *name;	       /* file name in the folder */
		struct folder_gap gap; /* gap that remains when the window is dropped */
	} * kept;		       /* oldest first */
	unsigned int n_kept;
	char reason[32];      /* reason why the last one ended */
	unsigned int written; /* number of complete windows */
	int err;	      /* first error, negative, which ended the stream; 0: none */
	bool said;	      /* err was logged */
};

/* True if windows end with an error or the end of the process, and nothing begins them. */
static inline bool windows__look_back(const struct windows_opts *o)
{
	return o->on_oom || o->on_kill;
}

/* ---- files, their entries in the folder, and messages about them ---- */

/* Writes the name of a window: label or process, and a number if there may be several. */
static void name_window(const struct windows *w, unsigned int number, char *buf, size_t size)
{
	const struct window_args *a = &w->opts.args;
	const char *rank = facts__get(w->facts, "rank");
	char process[48], count[16] = "", which[32] = "";

	if (windows__look_back(&w->opts)) {
		const char *name = w->opts.name ? w->opts.name : "";

		if (number > 1)
			snprintf(count, sizeof(count), "-%u", number);
		if (a->label)
			snprintf(buf, size, "%s-%s%s", a->label, name, count);
		else
			snprintf(buf, size, "%s%s", name, count);
		return;
	}
	snprintf(process, sizeof(process), "window-%d", (int)w->opts.pid);
	if (w->opts.of_many && a->label && rank)
		snprintf(which, sizeof(which), "-rank%.12s", rank);
	else if (w->opts.of_many && a->label)
		snprintf(which, sizeof(which), "-%d", (int)w->opts.pid);
	if (window_args__repeat(a) || a->wait)
		snprintf(count, sizeof(count), "-%03u", number);
	snprintf(buf, size, "%s%s%s", a->label ? a->label : process, which, count);
}

/* Callback of the flight recorder: opens the file of a window. Returns a descriptor or a negative
 * error, logged. */
static int windows__open_file(void *ctx, unsigned int number)
{
	struct windows *w = ctx;
	enum outfile_how how = windows__look_back(&w->opts) ? OUTFILE_RENAME : OUTFILE_DIRECT;
	char name[160], more[16], *path;
	int err;

	if (w->file) { /* opened before attaching */
		err = outfile__replace(w->file);
		if (err)
			log_err("%s: %s", outfile__name(w->file), outfile__why(err));
		w->said |= err;
		return err ? err : outfile__fd(w->file);
	}
	if (w->opts.reserve)
		reserve__release(w->opts.reserve);
	name_window(w, number, name, sizeof(name));
	snprintf(more, sizeof(more), number > 1 ? "-%u" : "", number);
	path = w->opts.folder ? folder__new_path(w->opts.folder, name, ".mtr")
			      : output__path_with(w->opts.path, more);
	err = path ? outfile__create(path, how, !w->opts.folder && w->opts.force, &w->file)
		   : -ENOMEM;
	if (err) {
		log_err("%s: %s", path ? path : "a window", outfile__why(err));
		w->said = true;
	}
	free(path);
	return err ? err : outfile__fd(w->file);
}

static void set_devices(const struct windows *w, struct folder_entry *e)
{
	struct flight_level l;

	for (size_t i = 0; flight__level(w->flight, i, &l) && e->n_devices < FOLDER_DEVICES; i++) {
		struct folder_device *d = &e->devices[e->n_devices];

		if (l.device.index == DEVICE_UNKNOWN || (!l.peak_allocated && !l.peak_reserved))
			continue;
		device__name(l.device, d->name, sizeof(d->name));
		d->peak_allocated = l.peak_allocated;
		d->peak_reserved = l.peak_reserved;
		d->allocated = l.allocated;
		d->reserved = l.reserved;
		e->n_devices++;
	}
}

/* Fills the entry of a window in the index of the folder. */
static void set_entry(const struct windows *w, const struct flight_report *r, const char *path,
		      struct folder_entry *e)
{
	const char *start = facts__get(w->facts, "start");
	const char *slash = strrchr(path, '/');
	/* A step that was under way when the window began is not in it. */
	uint64_t first_whole = w->begun_steps + !w->whole, start_ns;

	*e = (struct folder_entry){ .pid = w->opts.pid,
				    .from = r->from,
				    .to = r->to,
				    .first_step = -1,
				    .last_step = -1,
				    .events = r->events,
				    .bytes = r->bytes };
	snprintf(e->file, sizeof(e->file), "%s", slash ? slash + 1 : path);
	snprintf(e->kind, sizeof(e->kind), "window");
	name_window(w, r->number, e->name, sizeof(e->name));
	folder_entry__describe(e, w->facts);
	snprintf(e->began, sizeof(e->began), "%s", r->began);
	snprintf(e->ended, sizeof(e->ended), "%.*s", (int)sizeof(e->ended) - 1, r->ended);
	facts__number(w->facts, "lost", &e->lost);
	if (start && !text__parse_date(start, &start_ns)) {
		text__date(e->begin, sizeof(e->begin), start_ns + r->from);
		text__date(e->end, sizeof(e->end), start_ns + r->to);
	}
	if (w->clock.steps > first_whole) { /* as many steps end in the window as begin in it */
		e->first_step = (int64_t)first_whole;
		e->last_step = (int64_t)w->clock.steps - 1;
	}
	set_devices(w, e);
}

/* Logs a summary of a window. */
static void say_window(const struct windows *w, const struct flight_report *r,
		       const struct folder_entry *e, const char *path)
{
	const struct folder_device *largest = NULL;
	char events[32], size[24], peak[24], span[24], steps[64] = "", device[64] = "";

	for (size_t i = 0; i < e->n_devices; i++) {
		if (!largest || (strcmp(e->devices[i].name, "cpu") &&
				 (!strcmp(largest->name, "cpu") ||
				  e->devices[i].peak_allocated > largest->peak_allocated)))
			largest = &e->devices[i];
	}
	if (largest)
		snprintf(device, sizeof(device), ", peak %s on %s",
			 text__bytes(peak, sizeof(peak), largest->peak_allocated), largest->name);
	if (e->first_step >= 0)
		snprintf(steps, sizeof(steps), ", %lld step%s",
			 (long long)(e->last_step - e->first_step + 1),
			 e->last_step > e->first_step ? "s" : "");
	log_event(LOG_INFO, "window",
		  LOG_FIELDS(LOG_STRING("path", path), LOG_UINT("duration_ns", r->to - r->from),
			     LOG_UINT("events", r->events), LOG_UINT("lost", e->lost),
			     LOG_UINT("bytes", r->bytes), LOG_STRING("from", r->began),
			     LOG_STRING("to", r->ended)),
		  "%s: %s%s%s, %s, %s (begun by: %s; ended by: %s)", path,
		  text__time(span, sizeof(span), r->to - r->from), steps, device,
		  text__counted(events, sizeof(events), r->events, "event"),
		  text__bytes(size, sizeof(size), r->bytes), r->began, r->ended);
	if (r->cut)
		log_warn("there was not enough memory for the whole time of --before");
	if (r->dropped)
		log_warn("--%s was reached: it lacks %s after that", r->reason,
			 text__counted(events, sizeof(events), r->dropped, "event"));
	if (e->lost)
		log_warn("%s lost: blocks may be missing, or shown after they were freed. If the "
			 "buffer was full, --ring-size 64M helps",
			 text__counted(events, sizeof(events), e->lost, "event"));
	if (!w->opts.folder && strcmp(path, "standard output"))
		output__say_next("report", path);
}

/* Logs, after the message about a file, which events it lacks, and the command that reads it. */
static void say_after(const struct windows *w, const struct flight_report *r, const char *name,
		      const char *command)
{
	char span[24];

	if (r->cut)
		log_warn("there was not enough memory for the whole %s before it: raise --max-size",
			 text__time(span, sizeof(span), w->opts.args.before));
	if (!w->opts.folder && strcmp(name, "standard output"))
		output__say_next(command, name);
}

static void say_oom(const struct windows *w, const struct flight_report *r, const char *name)
{
	char when[24], asked[24], events[32], span[24], size[24], blocks[32], repeated[48] = "";
	uint64_t before = r->oom.time > r->from ? r->oom.time - r->from : 0;

	if (r->ooms > 1)
		snprintf(repeated, sizeof(repeated), ", and %s times more within a moment",
			 text__count(events, sizeof(events), r->ooms - 1));
	log_event(LOG_INFO, "oom",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("time_ns", r->oom.time),
			     LOG_UINT("asked_bytes", r->oom.size), LOG_UINT("times", r->ooms)),
		  "out of memory at %s (%s asked for)%s",
		  text__time(when, sizeof(when), r->oom.time),
		  text__bytes(asked, sizeof(asked), r->oom.size), repeated);
	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("events", r->events),
			     LOG_UINT("blocks_before", r->blocks), LOG_UINT("bytes", r->bytes)),
		  "%s: %s from %s before it on, %s that were live then, %s", name,
		  text__counted(events, sizeof(events), r->events, "event"),
		  text__time(span, sizeof(span), before),
		  text__counted(blocks, sizeof(blocks), r->blocks, "block"),
		  text__bytes(size, sizeof(size), r->bytes));
	say_after(w, r, name, "report --at oom");
}

static void say_end(const struct windows *w, const struct flight_report *r, const char *name)
{
	char events[32], span[24], size[24], blocks[32];

	log_event(LOG_INFO, "killed",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_STRING("reason", r->ended),
			     LOG_UINT("events", r->events), LOG_UINT("blocks_before", r->blocks),
			     LOG_UINT("bytes", r->bytes)),
		  "PID %d: %s", (int)w->opts.pid, r->ended);
	log_info("%s: %s of the last %s, %s that were live before, %s", name,
		 text__counted(events, sizeof(events), r->events, "event"),
		 text__time(span, sizeof(span), r->to - r->from),
		 text__counted(blocks, sizeof(blocks), r->blocks, "block"),
		 text__bytes(size, sizeof(size), r->bytes));
	say_after(w, r, name, "report");
}

/* Adds the window to the folder, and drops the oldest one beyond --keep. */
static int add_to_folder(struct windows *w, const struct folder_entry *e)
{
	struct window_kept *bigger;
	int err = folder__add(w->opts.folder, e);

	if (err || !w->opts.args.keep)
		return err;
	bigger = reallocarray(w->kept, w->n_kept + 1, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	w->kept = bigger;
	bigger[w->n_kept].name = strdup(e->file);
	if (!bigger[w->n_kept].name)
		return -ENOMEM;
	bigger[w->n_kept++].gap = (struct folder_gap){
		.from = e->from, .to = e->to, .events = e->events, .bytes = e->bytes, .why = "keep"
	};
	if (w->n_kept <= w->opts.args.keep)
		return 0;
	err = folder__drop(w->opts.folder, w->kept[0].name, &w->kept[0].gap);
	free(w->kept[0].name);
	memmove(&w->kept[0], &w->kept[1], --w->n_kept * sizeof(*w->kept));
	return err;
}

/* Callback of the flight recorder: the file of a window is complete, or failed with err. Returns 0
 * or a negative error, logged. */
static int windows__file_done(void *ctx, const struct flight_report *r, int err)
{
	struct windows *w = ctx;
	char *path = w->file ? strdup(outfile__name(w->file)) : NULL;
	/* After an error, keep what was written so far if it is readable. */
	bool keeps_file = !err || (w->file && r->events && !windows__look_back(&w->opts));
	struct folder_entry e;
	int commit_err = 0;

	if (keeps_file)
		commit_err = outfile__commit(w->file);
	else
		outfile__discard(w->file);
	if (!err)
		err = path ? commit_err : -ENOMEM;
	w->file = NULL;
	if (w->opts.reserve)
		reserve__renew(w->opts.reserve);
	if (err) {
		log_err("%s: cannot write: %s", path ? path : "a window", outfile__why(err));
		w->said = true;
		free(path);
		return err;
	}
	w->written++;
	snprintf(w->reason, sizeof(w->reason), "%s", r->reason);
	set_entry(w, r, path, &e);
	if (w->opts.on_kill && w->written >= w->opts.args.count)
		flight__ignore_ooms(w->flight);
	if (r->ooms)
		say_oom(w, r, path);
	else if (w->opts.on_kill)
		say_end(w, r, path);
	else
		say_window(w, r, &e, path);
	free(w->last);
	w->last = path;
	err = w->opts.folder ? add_to_folder(w, &e) : 0;
	if (err) {
		log_err("%s: %s", folder__path(w->opts.folder), folder__why(err));
		w->said = true;
	}
	return err;
}

static int open_conditions(struct windows *w)
{
	const struct window_args *a = &w->opts.args;
	char *why = NULL, *why_until = NULL;
	int err = a->on ? cond__parse(a->on, &w->on, &why) : 0;
	int err_until = a->until ? cond__parse(a->until, &w->until, &why_until) : 0;

	free(why); /* not needed: the parser of the options has reported such errors */
	free(why_until);
	if (err || err_until)
		return err ? err : err_until;
	if (!w->on && !w->until)
		return 0;
	w->values = values__new(w->facts);
	return w->values ? 0 : -ENOMEM;
}

void windows__free(struct windows *w)
{
	if (!w)
		return;
	flight__free(w->flight);
	cond__free(w->on);
	cond__free(w->until);
	values__free(w->values);
	outfile__discard(w->file);
	for (unsigned int i = 0; i < w->n_kept; i++)
		free(w->kept[i].name);
	free(w->kept);
	free(w->last);
	free(w);
}

struct sink *windows__sink(struct windows *w)
{
	return &w->sink;
}

/* ---- begin and end ---- */

static bool is_open(const struct windows *w)
{
	return flight__writing(w->flight, NULL);
}

/* True if as many windows are written as were wanted. */
static bool has_all(const struct windows *w)
{
	const struct window_args *a = &w->opts.args;

	if (w->opts.on_kill)
		return false;
	if (a->count)
		return w->written >= a->count;
	return w->written && !window_args__repeat(a) && !a->wait;
}

/* Keeps the first error, which ends the stream. Returns err. */
static int keep_err(struct windows *w, int err)
{
	if (err && !w->err)
		w->err = err;
	return err;
}

/* Begins a window. whole: with a step. why: for people. 0, -EBUSY (one is open, or all are
 * written), or a negative error. */
static int begin(struct windows *w, uint64_t time, bool whole, const char *why)
{
	int err;

	if (is_open(w) || has_all(w))
		return -EBUSY;
	w->at_step = false;
	w->begun = time;
	w->begun_steps = w->clock.steps;
	w->whole = whole;
	/* The first step of a process includes all that happens before the training loop: the step
	 * is counted, but its time is not used. */
	err = flight__begin(w->flight, w->opts.args.before, whole && w->clock.steps, why);
	if (!err)
		log_debug("window %u begins: %s", w->written + 1, why);
	return err;
}

/* Ends the open window. reason: as the fact stop_reason. why: for people. 0 or a negative error. */
static int end(struct windows *w, const char *reason, const char *why)
{
	return flight__end(w->flight, reason, why);
}

/* True with --steps and --skip: windows begin with a whole step. */
static bool counts_steps(const struct windows *w)
{
	return w->opts.steps || w->opts.args.skip;
}

/* True if no option names an event that begins a window. */
static bool begins_at_once(const struct windows *w)
{
	return !w->opts.args.on && !w->opts.args.from_mark && !w->opts.args.wait &&
	       !windows__look_back(&w->opts);
}

/* Converts the wall-clock time of --at into the events' time. Each tick does it, because the wall
 * clock may be set. */
static void update_appointed_time(struct windows *w)
{
	uint64_t now, wall = clock__wall(&now), date = w->appointed,
		      events_now = now > w->zero ? now - w->zero : 0;

	if (!date)
		w->appointed_time = UINT64_MAX;
	else if (date >= wall)
		w->appointed_time = events_now + (date - wall);
	else
		w->appointed_time = events_now > wall - date ? events_now - (wall - date) : 0;
}

/* Sets the wall-clock time at which the first window of --at begins. Prefers the fact
 * clock_zero_ns, which is exact: w->now is as old as the last drain. */
static void appoint(struct windows *w)
{
	const struct window_args *a = &w->opts.args;
	uint64_t now, wall = clock__wall(&now), zero;

	w->zero = now - w->now;
	if (facts__number(w->facts, "clock_zero_ns", &zero) && zero <= wall)
		w->zero = now - (wall - zero);
	w->appointed = a->at ? a->at : (wall / a->align + 1) * a->align;
	update_appointed_time(w);
}

/* Plans the first window, or begins it. A step that was under way at attach does not count. A
 * process that is recorded from its start has no such step. */
static int plan_first(struct windows *w)
{
	const char *at = facts__get(w->facts, "attached_at");
	char why[64] = "the capture began";
	bool from_start;

	w->planned = true;
	w->due = w->opts.args.every;
	if (w->opts.args.at || w->opts.args.align) {
		appoint(w);
		return 0;
	}
	if (!begins_at_once(w))
		return 0;
	from_start = at && !strcmp(at, "start");
	w->skip = w->opts.args.skip + !from_start;
	if (!counts_steps(w) || !w->skip)
		return begin(w, 0, from_start, why);
	w->at_step = true;
	return 0;
}

int windows__attached(struct windows *w)
{
	return w->planned ? 0 : keep_err(w, plan_first(w));
}

/* Begins or ends a window at the end of a step, which the flight recorder already has. */
static int apply_step(struct windows *w, const struct event *e)
{
	const char *unit = w->clock.by_calls ? "call" : "step";
	char why[96], n[40], step[40] = "a call";

	if (is_open(w)) {
		if (!w->opts.steps || w->clock.steps - w->begun_steps < w->opts.steps + !w->whole)
			return 0;
		snprintf(why, sizeof(why), "%s", text__counted(n, sizeof(n), w->opts.steps, unit));
		return end(w, "steps", why);
	}
	if (!w->at_step || w->clock.steps < w->skip)
		return 0;
	if (!w->clock.by_calls)
		text__step(step, w->clock.steps);
	if (w->opts.args.skip && !w->written)
		snprintf(why, sizeof(why), "%s began after %s that were skipped", step,
			 text__count(n, sizeof(n), w->opts.args.skip));
	else
		snprintf(why, sizeof(why), "%s began", step);
	return begin(w, e->time, true, why);
}

/* Begins or ends a window at a call of the model, which counts as a step without an optimizer.
 * by_calls: calls counted before this one, too. */
static int apply_call(struct windows *w, const struct event *e, bool by_calls)
{
	if (!by_calls && counts_steps(w))
		log_info("PID %d: no optimizer: --steps and --skip count calls of the model",
			 (int)w->opts.pid);
	return apply_step(w, e);
}

/* True if the event is a mark of this name; name NULL: false. */
static bool is_named(const struct windows *w, const struct event *e, const char *name)
{
	return name && event__mark_is(dict__str(w->dict, e->name), name);
}

/* Begins a window when `on` becomes true. with_step: a step has just ended. 0 or a negative
 * error. */
static int judge_begin(struct windows *w, uint64_t now, bool with_step)
{
	struct cond_result result;
	bool true_before = w->on_was_true;
	int err = values__judge(w->values, w->on, now, &result);

	if (err)
		return err;
	w->on_was_true = result.verdict == COND_HOLDS;
	if (!w->on_was_true || true_before || is_open(w) || has_all(w))
		return 0;
	return begin(w, now, with_step, result.text);
}

static int judge_end(struct windows *w, uint64_t now)
{
	struct cond_result result;
	char why[160];
	int err = values__judge(w->values, w->until, now, &result);

	if (err || result.verdict != COND_HOLDS)
		return err;
	snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, result.text);
	return end(w, "condition", why);
}

/* Judges the conditions. with_step: a step has just ended. */
static int judge(struct windows *w, uint64_t now, bool with_step)
{
	int err = w->on ? judge_begin(w, now, with_step) : 0;

	if (err)
		return err;
	if (w->until && is_open(w)) {
		err = judge_end(w, now);
		if (err)
			return err;
	}
	reset_highs(w->values);
	return 0;
}

/* Ends a window of -d whose time has passed, before later events go in. */
static int end_if_due(struct windows *w, uint64_t now)
{
	char why[48], time[24];

	if (!w->opts.duration || !is_open(w) || now < w->begun + w->opts.duration)
		return 0;
	snprintf(why, sizeof(why), "%s passed", text__time(time, sizeof(time), w->opts.duration));
	return end(w, "duration", why);
}

/* Begins a window whose time has come, unless one is open. If its length is in steps, it begins
 * with the next step. */
static int begin_due(struct windows *w, uint64_t time, const char *why)
{
	if (is_open(w) || has_all(w))
		return 0;
	if (!counts_steps(w))
		return begin(w, time, false, why);
	w->at_step = true;
	w->skip = 0;
	return 0;
}

/* Begins the window of --at, before later events go in, and appoints the next one of --every. */
static int begin_at_wall_time(struct windows *w, uint64_t now)
{
	uint64_t due = w->appointed_time, every = w->opts.args.every;
	char why[64], date[40];

	if (!w->appointed || now < due)
		return 0;
	snprintf(why, sizeof(why), "at %s", text__date(date, sizeof(date), w->appointed));
	w->appointed = every ? w->appointed + (1 + (now - due) / every) * every : 0;
	update_appointed_time(w);
	return begin_due(w, due, why);
}

static int end_at_bounds(struct windows *w)
{
	const char *reason;

	return flight__bounded(w->flight, &reason) ? end(w, reason, reason) : 0;
}

/* Begins and ends windows by the time, before later events go in. */
static int apply_times(struct windows *w, uint64_t now)
{
	int err = windows__attached(w);

	if (err)
		return err;
	err = end_if_due(w, now);
	return err ? err : begin_at_wall_time(w, now);
}

static int begin_at_mark(struct windows *w, const struct event *e)
{
	char why[160];

	if (e->kind != EVENT_MARK || !is_named(w, e, w->opts.args.from_mark) || is_open(w) ||
	    has_all(w))
		return 0;
	snprintf(why, sizeof(why), "mark %s", w->opts.args.from_mark);
	return begin(w, e->time, false, why);
}

static int end_at_mark(struct windows *w, const struct event *e)
{
	char why[160];

	if (e->kind != EVENT_MARK || !is_named(w, e, w->opts.args.to_mark) || !is_open(w) ||
	    w->begun >= e->time)
		return 0;
	snprintf(why, sizeof(why), "mark %s", w->opts.args.to_mark);
	return end(w, "mark", why);
}

/* Takes an event: begins and ends windows by time, marks, calls, steps and conditions, and gives
 * the event to the flight recorder. 0 or a negative error. */
static int take(struct windows *w, const struct event *e)
{
	bool news = false, ended, by_calls = w->clock.by_calls;
	int err = apply_times(w, e->time);

	if (err)
		return err;
	err = begin_at_mark(w, e);
	if (err)
		return err;
	ended = step_clock__ended(&w->clock, w->facts, e);
	/* A call ends when the next one begins, which is not in its window. */
	if (ended && e->kind == EVENT_CALL) {
		err = apply_call(w, e, by_calls);
		if (err)
			return err;
	}
	err = flight__event(w->flight, e);
	if (err)
		return err;
	err = w->values ? values__event(w->values, e, &news) : 0;
	if (err)
		return err;
	if (ended && e->kind == EVENT_STEP) {
		err = apply_step(w, e);
		if (err)
			return err;
	}
	err = news ? judge(w, e->time, e->kind == EVENT_STEP) : 0;
	if (err)
		return err;
	err = end_at_mark(w, e);
	return err ? err : end_at_bounds(w);
}

static int on_event(struct sink *s, const struct event *e)
{
	struct windows *w = (struct windows *)s;

	return w->err ? w->err : keep_err(w, take(w, e));
}

/* Begins the next window of --every, or skips it if the previous one is still open. */
static int begin_every(struct windows *w, uint64_t now)
{
	char why[48], time[24];

	if (!w->opts.args.every || w->opts.args.at || w->opts.args.align || now < w->due)
		return 0;
	w->due += (1 + (now - w->due) / w->opts.args.every) * w->opts.args.every;
	snprintf(why, sizeof(why), "every %s", text__time(time, sizeof(time), w->opts.args.every));
	return begin_due(w, now, why);
}

static int tick(struct windows *w, uint64_t now)
{
	int err = apply_times(w, now);

	if (err)
		return err;
	err = flight__tick(w->flight, now);
	if (err)
		return err;
	err = begin_every(w, now);
	if (err)
		return err;
	return w->values ? judge(w, now, false) : 0;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct windows *w = (struct windows *)s;

	if (w->err)
		return w->err;
	w->now = now;
	if (w->appointed)
		update_appointed_time(w);
	return keep_err(w, tick(w, now));
}

struct windows *windows__new(struct dict *d, const struct facts *f, const struct windows_opts *o)
{
	struct windows *w = calloc(1, sizeof(*w));
	struct flight_opts flight_opts = { .window = o->args.before,
					   .no_oom = true,
					   .bounds = o->bounds,
					   .open = windows__open_file,
					   .done = windows__file_done,
					   .ctx = w };

	if (windows__look_back(o)) {
		flight_opts.no_oom = !o->on_oom;
		flight_opts.bounds = (struct mtr_writer_opts){ 0 };
		flight_opts.max_bytes = o->bounds.max_size;
		flight_opts.max_events = o->bounds.max_events;
		flight_opts.max_files = o->on_kill ? 0 : o->args.count;
	}
	if (!w)
		return NULL;
	w->sink = (struct sink){ .event = on_event, .tick = on_tick };
	w->opts = *o;
	w->file = o->file;
	w->dict = d;
	w->facts = f;
	w->flight = flight__new(d, f, &flight_opts);
	if (w->flight && !open_conditions(w))
		return w;
	w->file = NULL; /* still owned by the caller */
	windows__free(w);
	errno = ENOMEM;
	return NULL;
}

/* ---- actions of ctl and signals ---- */

int windows__start(struct windows *w, const char *who)
{
	if (w->err)
		return w->err;
	if (is_open(w) || has_all(w))
		return -EBUSY;
	return keep_err(w, begin(w, w->now, false, who));
}

int windows__stop(struct windows *w, const char *who)
{
	return !is_open(w) ? -EALREADY : keep_err(w, end(w, who, who));
}

int windows__save(struct windows *w, const char *who)
{
	if (is_open(w))
		return -EBUSY;
	return w->err ? w->err : keep_err(w, flight__save(w->flight, who));
}

void windows__tell(const struct windows *w, struct json *j)
{
	struct flight_report r = { 0 };
	bool writing = flight__writing(w->flight, &r);
	struct flight_level l;
	char name[20];

	json__int(j, "pid", w->opts.pid);
	json__bool(j, "writing", writing);
	if (writing) {
		json__string(j, "began", r.began);
		json__uint(j, "events", r.events);
	}
	json__uint(j, "windows", w->written);
	json__uint(j, "steps", w->clock.steps);
	json__seconds(j, "time", w->now, 3);
	json__open_array(j, "devices");
	for (size_t i = 0; flight__level(w->flight, i, &l); i++) {
		if (l.device.index == DEVICE_UNKNOWN)
			continue;
		json__open_object(j, NULL);
		json__string(j, "device", device__name(l.device, name, sizeof(name)));
		json__uint(j, "allocated", l.allocated);
		json__uint(j, "reserved", l.reserved);
		json__close_object(j);
	}
	json__close_array(j);
}

const char *windows__last(const struct windows *w)
{
	return w->last ? w->last : "";
}

const char *windows__over(const struct windows *w)
{
	return has_all(w) && !is_open(w) ? w->reason : NULL;
}

/* Writes the last moments of a process that did not end well. */
static int write_end(struct windows *w)
{
	enum ending_reason how = ending__reason(w->facts);
	char text[512];

	if (how == ENDING_GOOD)
		return 0;
	if (how == ENDING_UNKNOWN)
		return flight__last(w->flight, "failed",
				    "the process has ended; the reason is not known");
	return flight__last(w->flight, ending__killed(w->facts) ? "killed" : "failed",
			    ending__text(text, sizeof(text), w->facts));
}

int windows__finish(struct windows *w, const char *reason)
{
	if (w->err)
		return w->err;
	if (is_open(w) && keep_err(w, end(w, reason, reason)))
		return w->err;
	if (w->opts.on_oom && keep_err(w, flight__finish(w->flight)))
		return w->err;
	if (!w->opts.on_kill || strcmp(reason, "target exited") != 0)
		return 0;
	return keep_err(w, write_end(w));
}

unsigned int windows__written(const struct windows *w)
{
	return w->written;
}

int windows__err(const struct windows *w, bool *said)
{
	*said = w->said;
	return w->err;
}
