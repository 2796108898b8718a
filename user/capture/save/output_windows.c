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
	struct output output; /* first: the output is cast to this struct */
	char *path;	      /* path of the file if there is no folder; owned */
	char name[128];	      /* name in the folder, with --on-oom or --on-kill */
};

/* ---- options ---- */

/* Refuses windows without an end. Returns EXIT_OK or an exit code, logged. */
static int check_ends(const struct window_args *args, const struct windows_opts *opts)
{
	if (args->every && !opts->duration && !opts->steps && !args->until && !args->to_mark) {
		log_err("--every: how long is each window? -d TIME, --steps N, --until CONDITION "
			"or --to-mark NAME");
		return EXIT_USAGE;
	}
	if ((args->on || args->from_mark) && window_args__repeat(args) && !opts->duration &&
	    !opts->steps && !args->until && !args->to_mark) {
		log_err("--%s: when does a window end? -d TIME, --steps N, --until CONDITION, "
			"--to-mark NAME; with --windows 1 at the end",
			args->on ? "on" : "from-mark");
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
static void say_until(char *buf, size_t size, const struct windows_opts *opts)
{
	const struct window_args *args = &opts->args;
	char text[40];

	*buf = '\0';
	if (window_args__repeat(args)) {
		if (args->count)
			snprintf(buf, size,
				 args->count == 1 ? "%u window is written"
						  : "%u windows are written",
				 args->count);
		return;
	}
	if (opts->duration)
		add_end(buf, size, text__time(text, sizeof(text), opts->duration), " have passed");
	if (opts->steps)
		add_end(buf, size, text__count(text, sizeof(text), opts->steps),
			opts->steps == 1 ? " step has passed" : " steps have passed");
	if (args->until)
		add_end(buf, size, args->until, " holds");
	if (args->to_mark)
		add_end(buf, size, "the mark ", args->to_mark);
}

/* Sets the options of windows for --on-oom and --on-kill, which end with the error or the
 * process. */
static void prepare_look_back(struct recording *recording)
{
	const struct oom_args *args = &recording->args.oom;
	const char *output = recording->args.output;
	struct window_args *window = &recording->window_opts.args;

	recording->window_opts.on_oom = args->on;
	recording->window_opts.on_kill = args->kill;
	window->before = args->window;
	if (!window->before)
		window->before = args->kill ? KILL_WINDOW : FLIGHT_WINDOW;
	window->count = args->files;
	if (!window->count)
		window->count = args->on ? OOM_FILES : 1;
	if (output && !strcmp(output, "-"))
		window->count = 1; /* several recordings in one stream would be unreadable */
}

int output_windows__prepare(struct recording *recording, bool of_several)
{
	struct windows_opts *opts = &recording->window_opts;
	int status;

	*opts = (struct windows_opts){ .args = recording->args.windows,
				       .bounds = recording->args.bounds,
				       .force = recording->args.force,
				       .of_many = of_several };
	if (recording->args.oom.on || recording->args.oom.kill) {
		prepare_look_back(recording);
		return EXIT_OK;
	}
	opts->duration = recording->loop.args.duration;
	opts->steps = recording->loop.args.session.steps;
	status = check_ends(&opts->args, opts);
	recording->loop.args.duration = 0;
	recording->loop.args.session.steps = 0;
	say_until(recording->until, sizeof(recording->until), opts);
	recording->loop.until = *recording->until ? recording->until : NULL;
	return status;
}

/* ---- the output ---- */

static int on_event(struct output *output, const struct event *event)
{
	struct sink *to = windows__sink(output->windows);

	return to->event(to, event);
}

static int on_tick(struct output *output, uint64_t now)
{
	struct sink *to = windows__sink(output->windows);

	return to->tick(to, now);
}

/* Describes what --on-oom and --on-kill wait for. */
static const char *end_awaited(const struct windows_opts *opts)
{
	if (!opts->on_kill)
		return "runs out of memory";
	return opts->on_oom ? "runs out of memory, is killed or fails" : "is killed or fails";
}

/* Logs when writing begins, because that may take long. */
static void say_waits(const struct output_windows *ow)
{
	const struct windows_opts *opts = &ow->output.recording->window_opts;
	const struct window_args *args = &opts->args;
	char text[40];

	if (opts->on_oom || opts->on_kill)
		log_info("nothing is written until PID %d %s; then the %s before it, into %s",
			 (int)ow->output.pid, end_awaited(opts),
			 text__time(text, sizeof(text), args->before),
			 ow->path ? ow->path : folder__path(ow->output.recording->folder));
	else if (args->wait)
		log_info("nothing is written until SIGUSR1 comes to PID %d, or `memtrace-bpf ctl "
			 "start`",
			 (int)getpid());
	else if (args->on)
		log_info("nothing is written until %s", args->on);
	else if (args->from_mark)
		log_info("nothing is written until the mark %s", args->from_mark);
	else if (args->at)
		log_info("nothing is written until %s", text__date(text, sizeof(text), args->at));
	else if (args->align)
		log_info("nothing is written until the next multiple of %s",
			 text__time(text, sizeof(text), args->align));
	else if (args->skip)
		log_info("nothing is written before the end of %s",
			 text__counted(text, sizeof(text), args->skip, "whole step"));
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
static int on_attached(struct output *output)
{
	struct output_windows *ow = (struct output_windows *)output;
	bool said;

	output__stem(output, ow->name, sizeof(ow->name)); /* the rank is known now */
	say_waits(ow);
	if (output->recording->args.oom.kill)
		warn_same_cgroup(output->pid);
	if (!windows__attached(output->windows))
		return EXIT_OK;
	windows__err(output->windows, &said);
	if (!said)
		log_err("out of memory");
	return EXIT_FAILED;
}

/* Returns the stop reason when all windows are written; NULL: more may come. */
static const char *is_full(struct output *output)
{
	return windows__over(output->windows);
}

/* Ends the windows of a process. Returns an exit code, logged. */
static int on_end(struct output *output, const char *reason, int err)
{
	struct output_windows *ow = (struct output_windows *)output;
	const struct windows_opts *opts = &output->recording->window_opts;
	unsigned int written;
	bool is_logged = false;
	int first_err;

	windows__finish(output->windows, reason);
	first_err = windows__err(output->windows, &is_logged);
	first_err = first_err ? first_err : err;
	if (first_err && !is_logged)
		log_err("the capture broke off: %s", strerror(-first_err));
	written = windows__written(output->windows);
	output->recording->written += written;
	if (!first_err && opts->on_oom && windows__over(output->windows))
		log_info("%u file%s written: not waiting for more (--oom-files)", written,
			 written > 1 ? "s are" : " is");
	windows__free(output->windows);
	free(ow->path);
	free(ow);
	return first_err ? EXIT_FAILED : EXIT_OK;
}

/* Creates and removes each file, so that a name that is taken is known before attaching. Returns 0
 * or a negative error, logged. */
static int try_names(const struct output_windows *ow, const struct windows_opts *opts)
{
	struct outfile *file;
	char suffix[16] = "", *path;
	int err = 0;
	unsigned int n_files = opts->args.count + (opts->on_oom && opts->on_kill);

	for (unsigned int i = 1; i <= n_files && !err; i++) {
		if (i > 1)
			snprintf(suffix, sizeof(suffix), "-%u", i);
		path = output__path_with(ow->path, suffix);
		err = path ? outfile__create(path, OUTFILE_RENAME, opts->force, &file) : -ENOMEM;
		if (err)
			log_err("%s: %s", path ? path : ow->path, outfile__why(err));
		else
			outfile__discard(file);
		free(path);
	}
	return err;
}

/*
 * Sets opts->folder, or opts->path without a folder. With a path, the process's first capture also
 * creates the file and opens it into opts->file. With on_oom or on_kill there may be several files,
 * or none, so it only tries their names. A later capture (output.times is the number of captures
 * before) opens nothing here: windows.c creates a file when it writes a window. Returns 0 or a
 * negative error, logged.
 */
static int open_place(struct output_windows *ow, struct windows_opts *opts)
{
	int err;

	opts->folder = ow->output.recording->folder;
	if (opts->folder) {
		output__stem(&ow->output, ow->name, sizeof(ow->name));
		opts->name = ow->name;
		return 0;
	}
	opts->path = ow->path = output__path(&ow->output);
	if (!ow->path) {
		log_err("out of memory");
		return -ENOMEM;
	}
	if (ow->output.times)
		return 0;
	if (opts->on_oom || opts->on_kill)
		return try_names(ow, opts);
	err = outfile__create(ow->path, OUTFILE_DIRECT, opts->force, &opts->file);
	if (err)
		log_err("%s: %s", ow->path, outfile__why(err));
	return err;
}

struct output *output_windows__new(const struct output *process)
{
	struct output_windows *ow = calloc(1, sizeof(*ow));
	struct windows_opts opts = process->recording->window_opts;

	if (!ow)
		goto no_memory;
	ow->output = *process;
	ow->output.event = on_event;
	ow->output.tick = on_tick;
	ow->output.attached = on_attached;
	ow->output.full = is_full;
	ow->output.end = on_end;
	opts.pid = process->pid;
	if (open_place(ow, &opts))
		goto failed;
	ow->output.windows = windows__new(session__dict(process->session),
					  session__facts(process->session), &opts);
	if (ow->output.windows)
		return &ow->output;
	outfile__discard(opts.file);
no_memory:
	log_err("out of memory");
failed:
	free(ow ? ow->path : NULL);
	free(ow);
	return NULL;
}
