/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The files of windows, their entries in the folder, and messages about them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/save/output.h"
#include "capture/save/reserve.h"
#include "capture/save/windows_internal.h"

/* Writes the name of a window: label or process, and a number if there may be several. */
static void name_of(const struct windows *w, unsigned int number, char *buf, size_t size)
{
	const struct window_args *a = &w->opts.args;
	const char *rank = facts__get(w->facts, "rank");
	char process[48], count[16] = "", which[32] = "";

	if (windows__look_back(&w->opts)) {
		if (number > 1)
			snprintf(count, sizeof(count), "-%u", number);
		snprintf(buf, size, "%s%s%s%s", a->label ? a->label : "", a->label ? "-" : "",
			 w->opts.name ? w->opts.name : "", count);
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

int windows__open_file(void *ctx, unsigned int number)
{
	struct windows *w = ctx;
	char name[160], more[16], *path = NULL;
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
	name_of(w, number, name, sizeof(name));
	snprintf(more, sizeof(more), number > 1 ? "-%u" : "", number);
	path = w->opts.folder ? folder__new_path(w->opts.folder, name, ".mtr")
			      : output__path_with(w->opts.path, more);
	err = path ? outfile__create(path,
				     windows__look_back(&w->opts) ? OUTFILE_RENAME : OUTFILE_DIRECT,
				     !w->opts.folder && w->opts.force, &w->file)
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

static void set_entry(const struct windows *w, const struct flight_report *r, const char *path,
		      struct folder_entry *e)
{
	const char *start = facts__get(w->facts, "start"), *slash = strrchr(path, '/');
	uint64_t first = w->begun_steps + !w->whole, ns;

	*e = (struct folder_entry){ .pid = w->opts.pid,
				    .from = r->from,
				    .to = r->to,
				    .first_step = -1,
				    .last_step = -1,
				    .events = r->events,
				    .bytes = r->bytes };
	snprintf(e->file, sizeof(e->file), "%s", slash ? slash + 1 : path);
	snprintf(e->kind, sizeof(e->kind), "window");
	name_of(w, r->number, e->name, sizeof(e->name));
	folder_entry__describe(e, w->facts);
	snprintf(e->began, sizeof(e->began), "%s", r->began);
	snprintf(e->ended, sizeof(e->ended), "%.*s", (int)sizeof(e->ended) - 1, r->ended);
	facts__number(w->facts, "lost", &e->lost);
	if (start && !text__parse_date(start, &ns)) {
		text__date(e->begin, sizeof(e->begin), ns + r->from);
		text__date(e->end, sizeof(e->end), ns + r->to);
	}
	if (w->clock.steps > first) { /* as many steps end in the window as begin in it */
		e->first_step = (int64_t)first;
		e->last_step = (int64_t)w->clock.steps - 1;
	}
	set_devices(w, e);
}

static void say(const struct windows *w, const struct flight_report *r,
		const struct folder_entry *e, const char *path)
{
	const struct folder_device *most = NULL;
	char events[32], size[24], peak[24], span[24], steps[64] = "", device[64] = "";

	for (size_t i = 0; i < e->n_devices; i++) {
		if (!most || (strcmp(e->devices[i].name, "cpu") &&
			      (!strcmp(most->name, "cpu") ||
			       e->devices[i].peak_allocated > most->peak_allocated)))
			most = &e->devices[i];
	}
	if (most)
		snprintf(device, sizeof(device), ", peak %s on %s",
			 text__bytes(peak, sizeof(peak), most->peak_allocated), most->name);
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

static void say_oom(const struct windows *w, const struct flight_report *r, const char *name)
{
	char when[24], asked[24], events[32], span[24], size[24], blocks[32], more[48] = "";
	uint64_t before = r->oom.time > r->from ? r->oom.time - r->from : 0;

	if (r->ooms > 1)
		snprintf(more, sizeof(more), ", and %s times more within a moment",
			 text__count(events, sizeof(events), r->ooms - 1));
	log_event(LOG_INFO, "oom",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("time_ns", r->oom.time),
			     LOG_UINT("asked_bytes", r->oom.size), LOG_UINT("times", r->ooms)),
		  "out of memory at %s (%s asked for)%s",
		  text__time(when, sizeof(when), r->oom.time),
		  text__bytes(asked, sizeof(asked), r->oom.size), more);
	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("events", r->events),
			     LOG_UINT("blocks_before", r->blocks), LOG_UINT("bytes", r->bytes)),
		  "%s: %s from %s before it on, %s that were live then, %s", name,
		  text__counted(events, sizeof(events), r->events, "event"),
		  text__time(span, sizeof(span), before),
		  text__counted(blocks, sizeof(blocks), r->blocks, "block"),
		  text__bytes(size, sizeof(size), r->bytes));
	if (r->cut)
		log_warn("there was not enough memory for the whole %s before it: raise --max-size",
			 text__time(span, sizeof(span), w->opts.args.before));
	if (!w->opts.folder && strcmp(name, "standard output"))
		output__say_next("report --at oom", name);
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
	if (r->cut)
		log_warn("there was not enough memory for the whole %s before it: raise --max-size",
			 text__time(span, sizeof(span), w->opts.args.before));
	if (!w->opts.folder && strcmp(name, "standard output"))
		output__say_next("report", name);
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

int windows__file_done(void *ctx, const struct flight_report *r, int err)
{
	struct windows *w = ctx;
	char *path = w->file ? strdup(outfile__name(w->file)) : NULL;
	struct folder_entry e;
	int closed;

	if (err) {
		/* Keep what was written so far if it is readable. */
		closed = w->file && r->events && !windows__look_back(&w->opts)
				 ? outfile__commit(w->file)
				 : (outfile__discard(w->file), 0);
	} else {
		closed = outfile__commit(w->file);
		err = path ? closed : -ENOMEM;
	}
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
		say(w, r, &e, path);
	free(w->last);
	w->last = path;
	err = w->opts.folder ? add_to_folder(w, &e) : 0;
	if (err) {
		log_err("%s: %s", folder__path(w->opts.folder), folder__why(err));
		w->said = true;
	}
	return err;
}
