/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/recording.h"
#include "capture/save/reserve.h"
#include "capture/save/windows.h"
#include "capture/session.h"
#include "record/flight.h"
#include "record/folder.h"

#define OOM_FILES 3			   /* files of --on-oom, by default */
#define KILL_WINDOW UINT64_C(300000000000) /* ns before the end with --on-kill, by default */

struct output_windows {
	struct output o; /* first: the output is cast to this struct */
	char *path;	 /* path of the file if there is no folder; owned */
	char name[128];	 /* name in the folder, with --on-oom or --on-kill */
};

/* ---- options ---- */

/* Refuses windows without an end. Returns EXIT_OK or an exit code, logged. */
static int check_ends(const struct window_args *a, const struct windows_opts *o)
{
	if (a->every && !o->duration && !o->steps && !a->until && !a->to_mark) {
		log_err("--every: how long is each window? -d TIME, --steps N, --until CONDITION "
			"or --to-mark NAME");
		return EXIT_USAGE;
	}
	if ((a->on || a->from_mark) && window_args__repeat(a) && !o->duration && !o->steps &&
	    !a->until && !a->to_mark) {
		log_err("--%s: when does a window end? -d TIME, --steps N, --until CONDITION, "
			"--to-mark NAME; with --windows 1 at the end",
			a->on ? "on" : "from-mark");
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

/* Appends a condition that ends the capture: "60 steps" and " have passed". */
static void add_end(char *buf, size_t size, const char *what, const char *does)
{
	size_t len = strlen(buf);

	snprintf(buf + len, size - len, "%s%s%s", len ? " or " : "", what, does);
}

/* Describes when the last window ends the capture; "": it ends with the process alone. */
static void say_until(char *buf, size_t size, const struct windows_opts *o)
{
	const struct window_args *a = &o->args;
	char text[40];

	*buf = '\0';
	if (window_args__repeat(a)) {
		if (a->count)
			snprintf(buf, size,
				 a->count == 1 ? "%u window is written" : "%u windows are written",
				 a->count);
		return;
	}
	if (o->duration)
		add_end(buf, size, text__time(text, sizeof(text), o->duration), " have passed");
	if (o->steps)
		add_end(buf, size, text__count(text, sizeof(text), o->steps),
			o->steps == 1 ? " step has passed" : " steps have passed");
	if (a->until)
		add_end(buf, size, a->until, " holds");
	if (a->to_mark)
		add_end(buf, size, "the mark ", a->to_mark);
}

/* Sets the options of windows for --on-oom and --on-kill, which end with the error or the
 * process. */
static void prepare_look_back(struct recording *r)
{
	const struct oom_args *a = &r->args.oom;
	const char *output = r->args.output;
	struct window_args *window = &r->window_opts.args;

	r->window_opts.on_oom = a->on;
	r->window_opts.on_kill = a->kill;
	window->before = a->window;
	if (!window->before)
		window->before = a->kill ? KILL_WINDOW : FLIGHT_WINDOW;
	window->count = a->files;
	if (!window->count)
		window->count = a->on ? OOM_FILES : 1;
	if (output && !strcmp(output, "-"))
		window->count = 1; /* several recordings in one stream would be unreadable */
}

int output_windows__prepare(struct recording *r, bool of_several)
{
	struct windows_opts *o = &r->window_opts;
	int status;

	*o = (struct windows_opts){ .args = r->args.windows,
				    .bounds = r->args.bounds,
				    .force = r->args.force,
				    .of_many = of_several };
	if (r->args.oom.on || r->args.oom.kill) {
		prepare_look_back(r);
		return EXIT_OK;
	}
	o->duration = r->loop.args.duration;
	o->steps = r->loop.args.session.steps;
	status = check_ends(&o->args, o);
	r->loop.args.duration = 0;
	r->loop.args.session.steps = 0;
	say_until(r->until, sizeof(r->until), o);
	r->loop.until = *r->until ? r->until : NULL;
	return status;
}

/* ---- the output ---- */

static int on_event(struct output *o, const struct event *e)
{
	struct sink *to = windows__sink(o->windows);

	return to->event(to, e);
}

static int on_tick(struct output *o, uint64_t now)
{
	struct sink *to = windows__sink(o->windows);

	return to->tick(to, now);
}

/* Describes what --on-oom and --on-kill wait for. */
static const char *end_awaited(const struct windows_opts *o)
{
	if (!o->on_kill)
		return "runs out of memory";
	return o->on_oom ? "runs out of memory, is killed or fails" : "is killed or fails";
}

/* Logs when writing begins, because that may take long. */
static void say_waits(const struct output_windows *ow)
{
	const struct windows_opts *o = &ow->o.r->window_opts;
	const struct window_args *a = &o->args;
	char text[40];

	if (o->on_oom || o->on_kill)
		log_info("nothing is written until PID %d %s; then the %s before it, into %s",
			 (int)ow->o.pid, end_awaited(o), text__time(text, sizeof(text), a->before),
			 ow->path ? ow->path : folder__path(ow->o.r->folder));
	else if (a->wait)
		log_info("nothing is written until SIGUSR1 comes to PID %d, or `memtrace-bpf ctl "
			 "start`",
			 (int)getpid());
	else if (a->on)
		log_info("nothing is written until %s", a->on);
	else if (a->from_mark)
		log_info("nothing is written until the mark %s", a->from_mark);
	else if (a->at)
		log_info("nothing is written until %s", text__date(text, sizeof(text), a->at));
	else if (a->align)
		log_info("nothing is written until the next multiple of %s",
			 text__time(text, sizeof(text), a->align));
	else if (a->skip)
		log_info("nothing is written before the end of %s",
			 text__counted(text, sizeof(text), a->skip, "whole step"));
}

/* A recorder in the process's cgroup takes from the memory that is left to it. */
static void warn_same_cgroup(pid_t pid)
{
	char path[256], clean[512];

	if (!reserve__shares_limit(pid, path, sizeof(path)))
		return;
	log_warn("memtrace-bpf is in the memory cgroup of PID %d, %s: its own memory counts "
		 "towards the limit; run it outside",
		 (int)pid, text__clean(clean, sizeof(clean), path, strlen(path)));
}

/* Begins the first window, if the options begin one at once. */
static int on_attached(struct output *o)
{
	struct output_windows *ow = (struct output_windows *)o;
	bool said;

	output__stem(o, ow->name, sizeof(ow->name)); /* the rank is known now */
	say_waits(ow);
	if (o->r->args.oom.kill)
		warn_same_cgroup(o->pid);
	if (!windows__attached(o->windows))
		return EXIT_OK;
	windows__err(o->windows, &said);
	if (!said)
		log_err("out of memory");
	return EXIT_FAILED;
}

/* Returns the stop reason when all windows are written; NULL: more may come. */
static const char *is_full(struct output *o)
{
	return windows__over(o->windows);
}

/* Ends the windows of a process. Returns an exit code, logged. */
static int on_end(struct output *o, const char *reason, int err)
{
	struct output_windows *ow = (struct output_windows *)o;
	const struct windows_opts *opts = &o->r->window_opts;
	unsigned int written;
	bool is_logged = false;
	int first_err;

	windows__finish(o->windows, reason);
	first_err = windows__err(o->windows, &is_logged);
	first_err = first_err ? first_err : err;
	if (first_err && !is_logged)
		log_err("the capture broke off: %s", strerror(-first_err));
	written = windows__written(o->windows);
	o->r->written += written;
	if (!first_err && opts->on_oom && windows__over(o->windows))
		log_info("%u file%s written: not waiting for more (--oom-files)", written,
			 written > 1 ? "s are" : " is");
	windows__free(o->windows);
	free(ow->path);
	free(ow);
	return first_err ? EXIT_FAILED : EXIT_OK;
}

/* Creates and removes each file, so that a name that is taken is known before attaching. 0 or a
 * negative error, logged. */
static int try_names(const struct output_windows *ow, const struct windows_opts *o)
{
	struct outfile *file;
	char suffix[16] = "", *path;
	int err = 0;
	unsigned int n_files = o->args.count + (o->on_oom && o->on_kill);

	for (unsigned int i = 1; i <= n_files && !err; i++) {
		if (i > 1)
			snprintf(suffix, sizeof(suffix), "-%u", i);
		path = output__path_with(ow->path, suffix);
		err = path ? outfile__create(path, OUTFILE_RENAME, o->force, &file) : -ENOMEM;
		if (err)
			log_err("%s: %s", path ? path : ow->path, outfile__why(err));
		else
			outfile__discard(file);
		free(path);
	}
	return err;
}

/* Sets o->folder or o->path, and opens the only file for the process's first capture (times is the
 * number of captures before). Returns 0 or a negative error, logged. */
static int open_place(struct output_windows *ow, struct windows_opts *o)
{
	int err;

	o->folder = ow->o.r->folder;
	if (o->folder) {
		output__stem(&ow->o, ow->name, sizeof(ow->name));
		o->name = ow->name;
		return 0;
	}
	o->path = ow->path = output__path(&ow->o);
	if (!ow->path) {
		log_err("out of memory");
		return -ENOMEM;
	}
	if (ow->o.times)
		return 0;
	if (o->on_oom || o->on_kill)
		return try_names(ow, o);
	err = outfile__create(ow->path, OUTFILE_DIRECT, o->force, &o->file);
	if (err)
		log_err("%s: %s", ow->path, outfile__why(err));
	return err;
}

struct output *output_windows__new(const struct output *process)
{
	struct output_windows *ow = calloc(1, sizeof(*ow));
	struct windows_opts o = process->r->window_opts;

	if (!ow)
		goto no_memory;
	ow->o = *process;
	ow->o.event = on_event;
	ow->o.tick = on_tick;
	ow->o.attached = on_attached;
	ow->o.full = is_full;
	ow->o.end = on_end;
	o.pid = process->pid;
	if (open_place(ow, &o))
		goto failed;
	ow->o.windows = windows__new(session__dict(process->session),
				     session__facts(process->session), &o);
	if (ow->o.windows)
		return &ow->o;
	outfile__discard(o.file);
no_memory:
	log_err("out of memory");
failed:
	free(ow ? ow->path : NULL);
	free(ow);
	return NULL;
}
