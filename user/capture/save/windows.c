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

struct values *values__new(const struct facts *facts)
{
	struct values *values = calloc(1, sizeof(*values));

	if (values)
		values->facts = facts;
	return values;
}

void values__free(struct values *values)
{
	if (!values)
		return;
	for (size_t i = 0; i < values->n; i++)
		map64__free(values->levels[i].sizes);
	free(values);
}

/* The figures of a device, added if there are none. NULL: too many devices, or an unknown one. */
static struct level *get_level(struct values *values, struct device d)
{
	for (size_t i = 0; i < values->n; i++) {
		if (!memcmp(&values->levels[i].device, &d, sizeof(d)))
			return &values->levels[i];
	}
	if (values->n == DEVICES || d.index == DEVICE_UNKNOWN)
		return NULL;
	values->levels[values->n] = (struct level){ .device = d };
	return &values->levels[values->n++];
}

/* Counts a block for a device whose allocator reports no totals. 0 or -ENOMEM. */
static int count_block(struct level *level, const struct event *event)
{
	bool is_new = event->kind == EVENT_ALLOC || event->kind == EVENT_BLOCK, had_block = false;
	uint64_t old_size = 0;
	int err = 0;

	if (event->kind != EVENT_FREE && (!is_new || event->flags & BLOCK_PENDING))
		return 0;
	if (!level->sizes && !(level->sizes = map64__new()))
		return -ENOMEM;
	if (is_new)
		err = map64__swap(level->sizes, event->addr, event->size, &had_block, &old_size);
	else
		had_block = map64__del(level->sizes, event->addr, &old_size);
	if (err)
		return err;
	if (is_new)
		level->allocated += event->size;
	if (had_block)
		level->allocated -= old_size;
	return 0;
}

/* Updates the figures of the event's device. *news: allocated bytes rose. 0 or -ENOMEM. */
static int take_level(struct values *values, const struct event *event, bool *news)
{
	struct level *level = get_level(values, event->device);
	int err = 0;

	if (!level)
		return 0;
	if (event->totals) {
		if (level->sizes && !level->totals)
			map64__clear(level->sizes);
		level->totals = true;
		level->allocated = event->allocated;
		level->reserved = event->reserved;
	} else if (!level->totals && device__on_host(event->device)) {
		err = count_block(level, event);
	}
	if (event->kind == EVENT_USED) {
		level->used_known = true;
		level->used = event->size;
	}
	if (level->allocated > level->peak)
		level->peak = level->allocated;
	if (level->reserved > level->peak_reserved)
		level->peak_reserved = level->reserved;
	if (level->allocated > level->high) {
		level->high = level->allocated;
		*news = true;
	}
	return err;
}

int values__event(struct values *values, const struct event *event, bool *news)
{
	*news = false;
	switch (event->kind) {
	case EVENT_STEP:
		values->step_time = values->steps && event->time > values->last_step
					    ? event->time - values->last_step
					    : 0;
		values->last_step = event->time;
		values->steps++;
		*news = true;
		return 0;
	case EVENT_LOST:
		values->lost += event->size;
		*news = true;
		return 0;
	case EVENT_OOM:
		values->ooms++;
		*news = true;
		return take_level(values, event, news);
	case EVENT_HOST:
		if (host_sheet__take(&values->reading, event)) {
			values->host = values->reading;
			values->reading = (struct host_sheet){ 0 };
			*news = values->host_known = true;
		}
		return 0;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_BLOCK:
	case EVENT_STATE:
	case EVENT_USED:
		return take_level(values, event, news);
	}
	return 0;
}

/* Device total in bytes, from the facts; 0: not known. */
static uint64_t device_total(const struct values *values, const struct level *level)
{
	char key[40];
	uint64_t total;

	snprintf(key, sizeof(key), "device.%u.total", level->device.index);
	facts__number(values->facts, key, &total);
	return device__on_host(level->device) ? 0 : total;
}

/* full: the value of 100 %; 0: not known. */
static void set_figure(struct cond_values *cv, enum cond_figure figure, uint64_t value,
		       uint64_t full)
{
	cv->v[figure] = (struct cond_value){ .known = true, .value = value, .whole = full };
}

/* Sets the figures that conditions are judged by. level: the device's. */
static void set_figures(const struct values *values, const struct level *level,
			struct cond_values *figures)
{
	uint64_t total = device_total(values, level),
		 unused = level->reserved > level->allocated ? level->reserved - level->allocated
							     : 0;

	set_figure(figures, COND_ALLOCATED, level->allocated, total);
	set_figure(figures, COND_PEAK, level->peak, total);
	set_figure(figures, COND_OOMS, values->ooms, 0);
	set_figure(figures, COND_LOST, values->lost, 0);
	if (values->step_time)
		set_figure(figures, COND_STEP_TIME, values->step_time, 0);
	else
		figures->why[COND_STEP_TIME] = "no whole step has passed";
	if (level->totals) {
		set_figure(figures, COND_RESERVED, level->reserved, total);
		set_figure(figures, COND_PEAK_RESERVED, level->peak_reserved, total);
		set_figure(figures, COND_UNUSED, unused, total);
		set_figure(figures, COND_FRAGMENTATION, unused, level->reserved);
	}
	if (level->used_known) {
		set_figure(figures, COND_USED, level->used, total);
		if (level->totals && level->used >= level->reserved)
			set_figure(figures, COND_OTHER, level->used - level->reserved, total);
	}
	host_figures__put(figures, values->host_known ? &values->host : NULL, 0,
			  "the host memory was not read yet");
	figures->has_steps = values->steps;
	figures->step = values->steps;
}

/* True if conditions are judged on this device. The CPU counts only if there is no other device, as
 * in reports; the host only if it is the sole device, since its memory contains the CPU's. */
static bool is_judged(const struct values *values, const struct level *level)
{
	bool others = false;
	size_t n = 0;

	if (level->device.type == DEVICE_MALLOC)
		return false;
	for (size_t i = 0; i < values->n; i++)
		n += values->levels[i].device.type != DEVICE_MALLOC;
	if (level->device.type == DEVICE_HOST)
		return n == 1;
	for (size_t i = 0; i < values->n; i++)
		others |= !device__on_host(values->levels[i].device);
	return !others || !device__on_host(level->device);
}

int values__judge(struct values *values, struct cond *c, uint64_t now, struct cond_result *ret)
{
	struct cond_result result = { .verdict = COND_UNKNOWN };
	bool any = false;

	*ret = result;
	for (size_t i = 0; i < values->n; i++) {
		struct cond_values figures = { .time = now, .series = (unsigned int)i };
		int err;

		if (!is_judged(values, &values->levels[i]))
			continue;
		set_figures(values, &values->levels[i], &figures);
		err = cond__eval(c, &figures, &result);
		if (err)
			return err;
		/* Returns the result of one device for which it holds, or the first known result. */
		if (!any || (result.verdict == COND_HOLDS && ret->verdict != COND_HOLDS))
			*ret = result;
		any = true;
	}
	return 0;
}

/* Call when all conditions are judged: a figure is news again when it rises above its present
 * value. */
static void reset_highs(struct values *values)
{
	for (size_t i = 0; i < values->n; i++)
		values->levels[i].high = values->levels[i].allocated;
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
	/* The first window of --at or --align: its moment on the wall clock, ns since 1970 (0:
	 * neither option), that moment in the events' time as of the last tick, and time 0 of the
	 * events on the kernel's clock. */
	uint64_t appointed, appointed_time, zero;
	/* The open window. */
	uint64_t begun;	       /* begin, ns */
	uint64_t steps_before; /* number of steps that ended before the window */
	bool whole;	       /* the window began with a step */
	struct outfile *file;  /* file of the open window; NULL: none */
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
static inline bool windows__look_back(const struct windows_opts *opts)
{
	return opts->on_oom || opts->on_kill;
}

/* ---- files, their entries in the folder, and messages about them ---- */

/* Writes the name of a window: label or process, and a number if there may be several. */
static void name_window(const struct windows *windows, unsigned int number, char *buf, size_t size)
{
	const struct window_args *args = &windows->opts.args;
	const char *rank = facts__get(windows->facts, "rank");
	char process[48], count[16] = "", which[32] = "";

	if (windows__look_back(&windows->opts)) {
		const char *name = windows->opts.name ? windows->opts.name : "";

		if (number > 1)
			snprintf(count, sizeof(count), "-%u", number);
		if (args->label)
			snprintf(buf, size, "%s-%s%s", args->label, name, count);
		else
			snprintf(buf, size, "%s%s", name, count);
		return;
	}
	snprintf(process, sizeof(process), "window-%d", (int)windows->opts.pid);
	if (windows->opts.of_many && args->label && rank)
		snprintf(which, sizeof(which), "-rank%.12s", rank);
	else if (windows->opts.of_many && args->label)
		snprintf(which, sizeof(which), "-%d", (int)windows->opts.pid);
	if (window_args__repeat(args) || args->wait)
		snprintf(count, sizeof(count), "-%03u", number);
	snprintf(buf, size, "%s%s%s", args->label ? args->label : process, which, count);
}

/* Callback of the flight recorder: opens the file of a window. Returns a descriptor or a negative
 * error, logged. */
static int windows__open_file(void *ctx, unsigned int number)
{
	struct windows *windows = ctx;
	enum outfile_how how = windows__look_back(&windows->opts) ? OUTFILE_RENAME : OUTFILE_DIRECT;
	bool force = !windows->opts.folder && windows->opts.force;
	char name[160], more[16], *path;
	int err;

	if (windows->file) { /* opened before attaching */
		err = outfile__replace(windows->file);
		if (err)
			log_err("%s: %s", outfile__name(windows->file), outfile__why(err));
		windows->said |= err;
		return err ? err : outfile__fd(windows->file);
	}
	if (windows->opts.reserve)
		reserve__release(windows->opts.reserve);
	name_window(windows, number, name, sizeof(name));
	snprintf(more, sizeof(more), number > 1 ? "-%u" : "", number);
	path = windows->opts.folder ? folder__new_path(windows->opts.folder, name, ".mtr")
				    : output__path_with(windows->opts.path, more);
	err = path ? outfile__create(path, how, force, &windows->file) : -ENOMEM;
	if (err) {
		log_err("%s: %s", path ? path : "a window", outfile__why(err));
		windows->said = true;
	}
	free(path);
	return err ? err : outfile__fd(windows->file);
}

/* Adds the devices with their peaks to the entry. */
static void set_devices(const struct windows *windows, struct folder_entry *entry)
{
	struct flight_level level;

	for (size_t i = 0;
	     flight__level(windows->flight, i, &level) && entry->n_devices < FOLDER_DEVICES; i++) {
		struct folder_device *to = &entry->devices[entry->n_devices];

		if (level.device.index == DEVICE_UNKNOWN ||
		    (!level.peak_allocated && !level.peak_reserved))
			continue;
		device__name(level.device, to->name, sizeof(to->name));
		to->peak_allocated = level.peak_allocated;
		to->peak_reserved = level.peak_reserved;
		to->allocated = level.allocated;
		to->reserved = level.reserved;
		entry->n_devices++;
	}
}

/* Sets the first and the last step that are in the window from begin to end, if there are any. A
 * step that was under way when the window began is not in it. The last whole step is the one before
 * the current step. */
static void set_steps(const struct windows *windows, struct folder_entry *entry)
{
	uint64_t first = windows->steps_before + !windows->whole;

	if (windows->clock.steps <= first)
		return;
	entry->first_step = (int64_t)first;
	entry->last_step = (int64_t)windows->clock.steps - 1;
}

/* Fills the entry of a window in the index of the folder. path: of the window's file. */
static void set_entry(const struct windows *windows, const struct flight_report *report,
		      const char *path, struct folder_entry *entry)
{
	const char *start = facts__get(windows->facts, "start");
	const char *slash = strrchr(path, '/');
	uint64_t start_ns;

	*entry = (struct folder_entry){ .pid = windows->opts.pid,
					.from = report->from,
					.to = report->to,
					.first_step = -1,
					.last_step = -1,
					.events = report->events,
					.bytes = report->bytes };
	snprintf(entry->file, sizeof(entry->file), "%s", slash ? slash + 1 : path);
	snprintf(entry->kind, sizeof(entry->kind), "window");
	name_window(windows, report->number, entry->name, sizeof(entry->name));
	folder_entry__describe(entry, windows->facts);
	snprintf(entry->began, sizeof(entry->began), "%s", report->began);
	snprintf(entry->ended, sizeof(entry->ended), "%.*s", (int)sizeof(entry->ended) - 1,
		 report->ended);
	facts__number(windows->facts, "lost", &entry->lost);
	if (start && !text__parse_date(start, &start_ns)) {
		text__date(entry->begin, sizeof(entry->begin), start_ns + report->from);
		text__date(entry->end, sizeof(entry->end), start_ns + report->to);
	}
	set_steps(windows, entry);
	set_devices(windows, entry);
}

/* Logs a summary of a window. */
static void say_window(const struct windows *windows, const struct flight_report *report,
		       const struct folder_entry *entry, const char *path)
{
	const struct folder_device *largest = NULL;
	char events[32], size[24], peak[24], span[24], steps[64] = "", device[64] = "";

	for (size_t i = 0; i < entry->n_devices; i++) {
		if (!largest || (strcmp(entry->devices[i].name, "cpu") &&
				 (!strcmp(largest->name, "cpu") ||
				  entry->devices[i].peak_allocated > largest->peak_allocated)))
			largest = &entry->devices[i];
	}
	if (largest)
		snprintf(device, sizeof(device), ", peak %s on %s",
			 text__bytes(peak, sizeof(peak), largest->peak_allocated), largest->name);
	if (entry->first_step >= 0)
		snprintf(steps, sizeof(steps), ", %lld step%s",
			 (long long)(entry->last_step - entry->first_step + 1),
			 entry->last_step > entry->first_step ? "s" : "");
	log_event(LOG_INFO, "window",
		  LOG_FIELDS(LOG_STRING("path", path),
			     LOG_UINT("duration_ns", report->to - report->from),
			     LOG_UINT("events", report->events), LOG_UINT("lost", entry->lost),
			     LOG_UINT("bytes", report->bytes), LOG_STRING("from", report->began),
			     LOG_STRING("to", report->ended)),
		  "%s: %s%s%s, %s, %s (begun by: %s; ended by: %s)", path,
		  text__time(span, sizeof(span), report->to - report->from), steps, device,
		  text__counted(events, sizeof(events), report->events, "event"),
		  text__bytes(size, sizeof(size), report->bytes), report->began, report->ended);
	if (report->cut)
		log_warn("there was not enough memory for the whole time of --before");
	if (report->dropped)
		log_warn("--%s was reached: it lacks %s after that", report->reason,
			 text__counted(events, sizeof(events), report->dropped, "event"));
	if (entry->lost)
		log_warn("%s lost: blocks may be missing, or shown after they were freed. If the "
			 "buffer was full, --ring-size 64M helps",
			 text__counted(events, sizeof(events), entry->lost, "event"));
	if (!windows->opts.folder && strcmp(path, "standard output"))
		output__say_next("report", path);
}

/* Logs, after the message about a file, which events it lacks, and the command that reads it. */
static void say_after(const struct windows *windows, const struct flight_report *report,
		      const char *name, const char *command)
{
	char span[24];

	if (report->cut)
		log_warn("there was not enough memory for the whole %s before it: raise --max-size",
			 text__time(span, sizeof(span), windows->opts.args.before));
	if (!windows->opts.folder && strcmp(name, "standard output"))
		output__say_next(command, name);
}

/* Logs an out of memory and the window that was written for it. */
static void say_oom(const struct windows *windows, const struct flight_report *report,
		    const char *name)
{
	char when[24], asked[24], events[32], span[24], size[24], blocks[32], repeated[48] = "";
	uint64_t before = report->oom.time > report->from ? report->oom.time - report->from : 0;

	if (report->ooms > 1)
		snprintf(repeated, sizeof(repeated), ", and %s times more within a moment",
			 text__count(events, sizeof(events), report->ooms - 1));
	log_event(LOG_INFO, "oom",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("time_ns", report->oom.time),
			     LOG_UINT("asked_bytes", report->oom.size),
			     LOG_UINT("times", report->ooms)),
		  "out of memory at %s (%s asked for)%s",
		  text__time(when, sizeof(when), report->oom.time),
		  text__bytes(asked, sizeof(asked), report->oom.size), repeated);
	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("events", report->events),
			     LOG_UINT("blocks_before", report->blocks),
			     LOG_UINT("bytes", report->bytes)),
		  "%s: %s from %s before it on, %s that were live then, %s", name,
		  text__counted(events, sizeof(events), report->events, "event"),
		  text__time(span, sizeof(span), before),
		  text__counted(blocks, sizeof(blocks), report->blocks, "block"),
		  text__bytes(size, sizeof(size), report->bytes));
	say_after(windows, report, name, "report --at oom");
}

/* Logs the end of the process and the window that was written for it. */
static void say_end(const struct windows *windows, const struct flight_report *report,
		    const char *name)
{
	char events[32], span[24], size[24], blocks[32];

	log_event(LOG_INFO, "killed",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_STRING("reason", report->ended),
			     LOG_UINT("events", report->events),
			     LOG_UINT("blocks_before", report->blocks),
			     LOG_UINT("bytes", report->bytes)),
		  "PID %d: %s", (int)windows->opts.pid, report->ended);
	log_info("%s: %s of the last %s, %s that were live before, %s", name,
		 text__counted(events, sizeof(events), report->events, "event"),
		 text__time(span, sizeof(span), report->to - report->from),
		 text__counted(blocks, sizeof(blocks), report->blocks, "block"),
		 text__bytes(size, sizeof(size), report->bytes));
	say_after(windows, report, name, "report");
}

/* Adds the window to the folder, and drops the oldest one beyond --keep. 0 or a negative error. */
static int add_to_folder(struct windows *windows, const struct folder_entry *entry)
{
	struct window_kept *bigger;
	int err = folder__add(windows->opts.folder, entry);

	if (err || !windows->opts.args.keep)
		return err;
	bigger = reallocarray(windows->kept, windows->n_kept + 1, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	windows->kept = bigger;
	bigger[windows->n_kept].name = strdup(entry->file);
	if (!bigger[windows->n_kept].name)
		return -ENOMEM;
	bigger[windows->n_kept++].gap = (struct folder_gap){ .from = entry->from,
							     .to = entry->to,
							     .events = entry->events,
							     .bytes = entry->bytes,
							     .why = "keep" };
	if (windows->n_kept <= windows->opts.args.keep)
		return 0;
	err = folder__drop(windows->opts.folder, windows->kept[0].name, &windows->kept[0].gap);
	free(windows->kept[0].name);
	memmove(&windows->kept[0], &windows->kept[1], --windows->n_kept * sizeof(*windows->kept));
	return err;
}

/* Callback of the flight recorder: the file of a window is complete, or failed with err. Returns 0
 * or a negative error, logged. */
static int windows__file_done(void *ctx, const struct flight_report *report, int err)
{
	struct windows *windows = ctx;
	char *path = windows->file ? strdup(outfile__name(windows->file)) : NULL;
	/* After an error, keep what was written so far if it is readable. */
	bool keeps_file = !err ||
			  (windows->file && report->events && !windows__look_back(&windows->opts));
	struct folder_entry entry;
	int commit_err = 0;

	if (keeps_file)
		commit_err = outfile__commit(windows->file);
	else
		outfile__discard(windows->file);
	if (!err)
		err = path ? commit_err : -ENOMEM;
	windows->file = NULL;
	if (windows->opts.reserve)
		reserve__renew(windows->opts.reserve);
	if (err) {
		log_err("%s: cannot write: %s", path ? path : "a window", outfile__why(err));
		windows->said = true;
		free(path);
		return err;
	}
	windows->written++;
	snprintf(windows->reason, sizeof(windows->reason), "%s", report->reason);
	set_entry(windows, report, path, &entry);
	if (windows->opts.on_kill && windows->written >= windows->opts.args.count)
		flight__ignore_ooms(windows->flight);
	if (report->ooms)
		say_oom(windows, report, path);
	else if (windows->opts.on_kill)
		say_end(windows, report, path);
	else
		say_window(windows, report, &entry, path);
	free(windows->last);
	windows->last = path;
	err = windows->opts.folder ? add_to_folder(windows, &entry) : 0;
	if (err) {
		log_err("%s: %s", folder__path(windows->opts.folder), folder__why(err));
		windows->said = true;
	}
	return err;
}

/* Parses the conditions of the options. 0, -ENOMEM or -EINVAL. */
static int open_conditions(struct windows *windows)
{
	const struct window_args *args = &windows->opts.args;
	char *why = NULL, *why_until = NULL;
	int err = args->on ? cond__parse(args->on, &windows->on, &why) : 0;
	int err_until = args->until ? cond__parse(args->until, &windows->until, &why_until) : 0;

	free(why); /* not needed: the parser of the options has reported such errors */
	free(why_until);
	if (err || err_until)
		return err ? err : err_until;
	if (!windows->on && !windows->until)
		return 0;
	windows->values = values__new(windows->facts);
	return windows->values ? 0 : -ENOMEM;
}

void windows__free(struct windows *windows)
{
	if (!windows)
		return;
	flight__free(windows->flight);
	cond__free(windows->on);
	cond__free(windows->until);
	values__free(windows->values);
	outfile__discard(windows->file);
	for (unsigned int i = 0; i < windows->n_kept; i++)
		free(windows->kept[i].name);
	free(windows->kept);
	free(windows->last);
	free(windows);
}

struct sink *windows__sink(struct windows *windows)
{
	return &windows->sink;
}

/* ---- begin and end ---- */

/* Functions below that return an int return 0 or a negative error. */

static bool is_open(const struct windows *windows)
{
	return flight__writing(windows->flight, NULL);
}

/* True if as many windows are written as were wanted. */
static bool has_all(const struct windows *windows)
{
	const struct window_args *args = &windows->opts.args;

	if (windows->opts.on_kill)
		return false;
	if (args->count)
		return windows->written >= args->count;
	return windows->written && !window_args__repeat(args) && !args->wait;
}

/* Keeps the first error, which ends the stream. Returns err. */
static int keep_err(struct windows *windows, int err)
{
	if (err && !windows->err)
		windows->err = err;
	return err;
}

/* Begins a window. whole: with a step. why: for people. 0, -EBUSY (one is open, or all are
 * written), or a negative error. */
static int begin(struct windows *windows, uint64_t time, bool whole, const char *why)
{
	int err;

	if (is_open(windows) || has_all(windows))
		return -EBUSY;
	windows->at_step = false;
	windows->begun = time;
	windows->steps_before = windows->clock.steps;
	windows->whole = whole;
	/* The first step of a process includes all that happens before the training loop: the step
	 * is counted, but its time is not used. */
	err = flight__begin(windows->flight, windows->opts.args.before,
			    whole && windows->clock.steps, why);
	if (!err)
		log_debug("window %u begins: %s", windows->written + 1, why);
	return err;
}

/* Ends the open window. reason: as the fact stop_reason. why: for people. 0 or a negative error. */
static int end(struct windows *windows, const char *reason, const char *why)
{
	return flight__end(windows->flight, reason, why);
}

/* True with --steps and --skip: windows begin with a whole step. */
static bool counts_steps(const struct windows *windows)
{
	return windows->opts.steps || windows->opts.args.skip;
}

/* True if no option names an event that begins a window. */
static bool begins_at_once(const struct windows *windows)
{
	return !windows->opts.args.on && !windows->opts.args.from_mark &&
	       !windows->opts.args.wait && !windows__look_back(&windows->opts);
}

/* Converts the wall-clock time of --at into the events' time. Each tick does it, because the wall
 * clock may be set. */
static void update_appointed_time(struct windows *windows)
{
	uint64_t date = windows->appointed;
	uint64_t kernel, wall, now; /* the moment of this call, on each clock */

	windows->appointed_time = UINT64_MAX;
	if (!date)
		return;
	wall = clock__wall(&kernel);
	now = kernel > windows->zero ? kernel - windows->zero : 0;
	if (date >= wall)
		windows->appointed_time = now + (date - wall);
	else
		windows->appointed_time = now > wall - date ? now - (wall - date) : 0;
}

/* Sets the wall-clock time at which the first window of --at begins. Prefers the fact
 * clock_zero_ns, which is exact: windows->now is as old as the last drain. */
static void appoint(struct windows *windows)
{
	const struct window_args *args = &windows->opts.args;
	uint64_t kernel, wall, zero;

	wall = clock__wall(&kernel);
	windows->zero = kernel - windows->now;
	if (facts__number(windows->facts, "clock_zero_ns", &zero) && zero <= wall)
		windows->zero = kernel - (wall - zero);
	windows->appointed = args->at ? args->at : (wall / args->align + 1) * args->align;
	update_appointed_time(windows);
}

/* Plans the first window, or begins it. A step that was under way at attach does not count. A
 * process that is recorded from its start has no such step. */
static int plan_first(struct windows *windows)
{
	const char *at = facts__get(windows->facts, "attached_at");
	char why[64] = "the capture began"; /* of the window, for people */
	bool from_start;

	windows->planned = true;
	windows->due = windows->opts.args.every;
	if (windows->opts.args.at || windows->opts.args.align) {
		appoint(windows);
		return 0;
	}
	if (!begins_at_once(windows))
		return 0;
	from_start = at && !strcmp(at, "start");
	windows->skip = windows->opts.args.skip + !from_start; /* steps before the window */
	if (!counts_steps(windows) || !windows->skip)
		return begin(windows, 0, from_start, why);
	windows->at_step = true;
	return 0;
}

int windows__attached(struct windows *windows)
{
	return windows->planned ? 0 : keep_err(windows, plan_first(windows));
}

/* Begins or ends a window at the end of a step, which the flight recorder already has. */
static int apply_step(struct windows *windows, const struct event *event)
{
	const char *unit = windows->clock.by_calls ? "call" : "step";
	char why[96], n[40], step[40] = "a call";

	if (is_open(windows)) {
		if (!windows->opts.steps || windows->clock.steps - windows->steps_before <
						    windows->opts.steps + !windows->whole)
			return 0;
		snprintf(why, sizeof(why), "%s",
			 text__counted(n, sizeof(n), windows->opts.steps, unit));
		return end(windows, "steps", why);
	}
	if (!windows->at_step || windows->clock.steps < windows->skip)
		return 0;
	if (!windows->clock.by_calls)
		text__step(step, windows->clock.steps);
	if (windows->opts.args.skip && !windows->written)
		snprintf(why, sizeof(why), "%s began after %s that were skipped", step,
			 text__count(n, sizeof(n), windows->opts.args.skip));
	else
		snprintf(why, sizeof(why), "%s began", step);
	return begin(windows, event->time, /*whole=*/true, why);
}

/* Begins or ends a window at a call of the model, which counts as a step without an optimizer.
 * by_calls: an earlier call counted as a step, so that the user was told. */
static int apply_call(struct windows *windows, const struct event *event, bool by_calls)
{
	if (!by_calls && counts_steps(windows))
		log_info("PID %d: no optimizer: --steps and --skip count calls of the model",
			 (int)windows->opts.pid);
	return apply_step(windows, event);
}

/* True if the event is a mark of this name; name NULL: false. */
static bool is_named(const struct windows *windows, const struct event *event, const char *name)
{
	return name && event__mark_is(dict__str(windows->dict, event->name), name);
}

/* Begins a window when `on` becomes true. with_step: a step has just ended. 0 or a negative
 * error. */
static int judge_begin(struct windows *windows, uint64_t now, bool with_step)
{
	struct cond_result result;
	bool true_before = windows->on_was_true;
	int err = values__judge(windows->values, windows->on, now, &result);

	if (err)
		return err;
	windows->on_was_true = result.verdict == COND_HOLDS;
	if (!windows->on_was_true || true_before || is_open(windows) || has_all(windows))
		return 0;
	return begin(windows, now, with_step, result.text);
}

/* Ends the window if the condition of --until holds. */
static int judge_end(struct windows *windows, uint64_t now)
{
	struct cond_result result;
	char why[160];
	int err = values__judge(windows->values, windows->until, now, &result);

	if (err || result.verdict != COND_HOLDS)
		return err;
	snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, result.text);
	return end(windows, "condition", why);
}

/* Judges the conditions. with_step: a step has just ended. */
static int judge(struct windows *windows, uint64_t now, bool with_step)
{
	int err = windows->on ? judge_begin(windows, now, with_step) : 0;

	if (err)
		return err;
	if (windows->until && is_open(windows)) {
		err = judge_end(windows, now);
		if (err)
			return err;
	}
	reset_highs(windows->values);
	return 0;
}

/* Ends a window of -d whose time has passed, before later events go in. */
static int end_if_due(struct windows *windows, uint64_t now)
{
	char why[48], time[24];

	if (!windows->opts.duration || !is_open(windows) ||
	    now < windows->begun + windows->opts.duration)
		return 0;
	snprintf(why, sizeof(why), "%s passed",
		 text__time(time, sizeof(time), windows->opts.duration));
	return end(windows, "duration", why);
}

/* Begins a window whose time has come, unless one is open. If its length is in steps, it begins
 * with the next step. */
static int begin_due(struct windows *windows, uint64_t time, const char *why)
{
	if (is_open(windows) || has_all(windows))
		return 0;
	if (!counts_steps(windows))
		return begin(windows, time, /*whole=*/false, why);
	windows->at_step = true;
	windows->skip = 0;
	return 0;
}

/* Begins the window of --at, before later events go in, and appoints the next one of --every. */
static int begin_at_wall_time(struct windows *windows, uint64_t now)
{
	uint64_t due = windows->appointed_time, every = windows->opts.args.every;
	char why[64], date[40];

	if (!windows->appointed || now < due)
		return 0;
	snprintf(why, sizeof(why), "at %s", text__date(date, sizeof(date), windows->appointed));
	windows->appointed = every ? windows->appointed + (1 + (now - due) / every) * every : 0;
	update_appointed_time(windows);
	return begin_due(windows, due, why);
}

/* Ends the window if its file has reached --max-size or --max-events. */
static int end_at_bounds(struct windows *windows)
{
	const char *reason;

	return flight__bounded(windows->flight, &reason) ? end(windows, reason, reason) : 0;
}

/* Begins and ends windows by the time, before later events go in. */
static int apply_times(struct windows *windows, uint64_t now)
{
	int err = windows__attached(windows);

	if (err)
		return err;
	err = end_if_due(windows, now);
	return err ? err : begin_at_wall_time(windows, now);
}

/* Begins a window at the mark of --from-mark. */
static int begin_at_mark(struct windows *windows, const struct event *event)
{
	char why[160];

	if (event->kind != EVENT_MARK || !is_named(windows, event, windows->opts.args.from_mark) ||
	    is_open(windows) || has_all(windows))
		return 0;
	snprintf(why, sizeof(why), "mark %s", windows->opts.args.from_mark);
	return begin(windows, event->time, /*whole=*/false, why);
}

/* Ends the window at the mark of --to-mark, unless it has just begun. */
static int end_at_mark(struct windows *windows, const struct event *event)
{
	char why[160];

	if (event->kind != EVENT_MARK || !is_named(windows, event, windows->opts.args.to_mark) ||
	    !is_open(windows) || windows->begun >= event->time)
		return 0;
	snprintf(why, sizeof(why), "mark %s", windows->opts.args.to_mark);
	return end(windows, "mark", why);
}

/* Takes an event: begins and ends windows by time, marks, calls, steps and conditions, and gives
 * the event to the flight recorder. 0 or a negative error. */
static int take(struct windows *windows, const struct event *event)
{
	bool is_step = event->kind == EVENT_STEP;
	bool news = false, ended;
	bool by_calls = windows->clock.by_calls; /* before this event */
	int err = apply_times(windows, event->time);

	if (err)
		return err;
	err = begin_at_mark(windows, event);
	if (err)
		return err;
	ended = step_clock__ended(&windows->clock, windows->facts, event);
	/* A call ends when the next one begins, which is not in its window. */
	if (ended && event->kind == EVENT_CALL) {
		err = apply_call(windows, event, by_calls);
		if (err)
			return err;
	}
	err = flight__event(windows->flight, event);
	if (err)
		return err;
	err = windows->values ? values__event(windows->values, event, &news) : 0;
	if (err)
		return err;
	if (ended && is_step) {
		err = apply_step(windows, event);
		if (err)
			return err;
	}
	err = news ? judge(windows, event->time, is_step) : 0;
	if (err)
		return err;
	err = end_at_mark(windows, event);
	return err ? err : end_at_bounds(windows);
}

static int on_event(struct sink *s, const struct event *event)
{
	struct windows *windows = (struct windows *)s;

	return windows->err ? windows->err : keep_err(windows, take(windows, event));
}

/* Begins the next window of --every, or skips it if the previous one is still open. */
static int begin_every(struct windows *windows, uint64_t now)
{
	char why[48], time[24];

	if (!windows->opts.args.every || windows->opts.args.at || windows->opts.args.align ||
	    now < windows->due)
		return 0;
	windows->due += (1 + (now - windows->due) / windows->opts.args.every) *
			windows->opts.args.every;
	snprintf(why, sizeof(why), "every %s",
		 text__time(time, sizeof(time), windows->opts.args.every));
	return begin_due(windows, now, why);
}

/* Begins and ends windows by time, also without events. 0 or a negative error. */
static int tick(struct windows *windows, uint64_t now)
{
	int err = apply_times(windows, now);

	if (err)
		return err;
	err = flight__tick(windows->flight, now);
	if (err)
		return err;
	err = begin_every(windows, now);
	if (err)
		return err;
	return windows->values ? judge(windows, now, /*with_step=*/false) : 0;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct windows *windows = (struct windows *)s;

	if (windows->err)
		return windows->err;
	windows->now = now;
	if (windows->appointed)
		update_appointed_time(windows);
	return keep_err(windows, tick(windows, now));
}

struct windows *windows__new(struct dict *dict, const struct facts *facts,
			     const struct windows_opts *opts)
{
	struct windows *windows = calloc(1, sizeof(*windows));
	struct flight_opts flight_opts = { .window = opts->args.before,
					   .no_oom = true,
					   .bounds = opts->bounds,
					   .open = windows__open_file,
					   .done = windows__file_done,
					   .ctx = windows };

	if (windows__look_back(opts)) {
		flight_opts.no_oom = !opts->on_oom;
		flight_opts.bounds = (struct mtr_writer_opts){ 0 };
		flight_opts.max_bytes = opts->bounds.max_size;
		flight_opts.max_events = opts->bounds.max_events;
		flight_opts.max_files = opts->on_kill ? 0 : opts->args.count;
	}
	if (!windows)
		return NULL;
	windows->sink = (struct sink){ .event = on_event, .tick = on_tick };
	windows->opts = *opts;
	windows->file = opts->file;
	windows->dict = dict;
	windows->facts = facts;
	windows->flight = flight__new(dict, facts, &flight_opts);
	if (windows->flight && !open_conditions(windows))
		return windows;
	windows->file = NULL; /* still owned by the caller */
	windows__free(windows);
	errno = ENOMEM;
	return NULL;
}

/* ---- actions of ctl and signals ---- */

int windows__start(struct windows *windows, const char *who)
{
	if (windows->err)
		return windows->err;
	if (is_open(windows) || has_all(windows))
		return -EBUSY;
	return keep_err(windows, begin(windows, windows->now, /*whole=*/false, who));
}

int windows__stop(struct windows *windows, const char *who)
{
	return !is_open(windows) ? -EALREADY : keep_err(windows, end(windows, who, who));
}

int windows__save(struct windows *windows, const char *who)
{
	if (is_open(windows))
		return -EBUSY;
	return windows->err ? windows->err : keep_err(windows, flight__save(windows->flight, who));
}

void windows__tell(const struct windows *windows, struct json *json)
{
	struct flight_report report = { 0 };
	bool writing = flight__writing(windows->flight, &report);
	struct flight_level level;
	char name[20];

	json__int(json, "pid", windows->opts.pid);
	json__bool(json, "writing", writing);
	if (writing) {
		json__string(json, "began", report.began);
		json__uint(json, "events", report.events);
	}
	json__uint(json, "windows", windows->written);
	json__uint(json, "steps", windows->clock.steps);
	json__seconds(json, "time", windows->now, /*decimals=*/3);
	json__open_array(json, "devices");
	for (size_t i = 0; flight__level(windows->flight, i, &level); i++) {
		if (level.device.index == DEVICE_UNKNOWN)
			continue;
		json__open_object(json, NULL);
		json__string(json, "device", device__name(level.device, name, sizeof(name)));
		json__uint(json, "allocated", level.allocated);
		json__uint(json, "reserved", level.reserved);
		json__close_object(json);
	}
	json__close_array(json);
}

const char *windows__last(const struct windows *windows)
{
	return windows->last ? windows->last : "";
}

const char *windows__over(const struct windows *windows)
{
	return has_all(windows) && !is_open(windows) ? windows->reason : NULL;
}

/* Writes the last moments of a process that did not end well. */
static int write_end(struct windows *windows)
{
	enum ending_reason how = ending__reason(windows->facts);
	char text[512];

	if (how == ENDING_GOOD)
		return 0;
	if (how == ENDING_UNKNOWN)
		return flight__last(windows->flight, "failed",
				    "the process has ended; the reason is not known");
	return flight__last(windows->flight, ending__killed(windows->facts) ? "killed" : "failed",
			    ending__text(text, sizeof(text), windows->facts));
}

int windows__finish(struct windows *windows, const char *reason)
{
	if (windows->err)
		return windows->err;
	if (is_open(windows) && keep_err(windows, end(windows, reason, /*why=*/reason)))
		return windows->err;
	if (windows->opts.on_oom && keep_err(windows, flight__finish(windows->flight)))
		return windows->err;
	if (!windows->opts.on_kill || strcmp(reason, "target exited") != 0)
		return 0;
	return keep_err(windows, write_end(windows));
}

unsigned int windows__written(const struct windows *windows)
{
	return windows->written;
}

int windows__err(const struct windows *windows, bool *said)
{
	*said = windows->said;
	return windows->err;
}
