/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording_windows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/folder.h"
#include "capture/session.h"
#include "lib/exit.h"
#include "lib/outfile.h"
#include "lib/text.h"
#include "log/log.h"
#include "save/recording.h"
#include "save/recording_control.h"
#include "save/windows.h"

bool recording_windows__wanted(const struct recording *r)
{
	return r->args.windows.given ||
	       (r->args.output && strcmp(r->args.output, "-") && folder__wanted(r->args.output));
}

static bool is_several(const struct recording *r)
{
	const struct window_args *a = &r->args.windows;

	return window_args__repeat(a) || a->wait || r->loop.args.children ||
	       capture_loop__many(&r->loop);
}

/* Where they go. 0 and a folder or a file in *o, or an exit code, logged. */
static int open_output(struct recording *r, struct windows_opts *o)
{
	const char *path = recording__path(r);
	size_t len = strlen(path);
	char name[80];
	int err;

	if (is_several(r) && !r->args.output) {
		snprintf(name, sizeof(name), "%.*s",
			 (int)(len > 4 && len < sizeof(name) ? len - 4 : len), path);
		path = name;
	} else if (!folder__wanted(path)) {
		if (is_several(r)) {
			log_err("%s: several windows need a folder: -o NAME/", path);
			return EXIT_USAGE;
		}
		err = outfile__create(path, OUTFILE_DIRECT, o->force, &o->file);
		o->path = path;
		if (err)
			log_err("%s: %s", path, outfile__why(err));
		return err ? EXIT_FAILED : EXIT_OK;
	}
	err = folder__create(path, o->force, &r->folder);
	if (err)
		log_err("%s: %s", path, folder__why(err));
	o->folder = r->folder;
	return err ? EXIT_FAILED : EXIT_OK;
}

static int check(const struct recording *r, const struct windows_opts *o)
{
	const struct window_args *a = &r->args.windows;

	if (r->args.oom.on) {
		log_err("--on-oom has windows of its own: not with others; --on 'ooms>0' --before "
			"30s goes with them");
		return EXIT_USAGE;
	}
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

static void add_end(char *buf, size_t size, const char *what, const char *does)
{
	size_t len = strlen(buf);

	snprintf(buf + len, size - len, "%s%s%s", len ? " or " : "", what, does);
}

/* When the capture ends by itself, which is with its last window; "" : only with the process. */
static void say_until(char *buf, size_t size, const struct windows_opts *o)
{
	const struct window_args *a = &o->args;
	char text[40];

	*buf = '\0';
	if (window_args__repeat(a)) {
		if (a->count)
			snprintf(buf, size, "%u windows are written", a->count);
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

static int new_windows(struct recording *r, struct windows_opts *o)
{
	o->pid = r->loop.args.pid;
	r->windows = windows__new(session__dict(r->loop.session), session__facts(r->loop.session),
				  o);
	return r->windows ? 0 : -ENOMEM;
}

/* Nothing will come by itself, or not at once: the person should know what is waited for. */
int recording_windows__attached(struct recording *r)
{
	const struct window_args *a = &r->args.windows;
	char text[40];
	bool said;

	if (a->wait)
		log_info("nothing is written until SIGUSR1 comes to PID %d, or `memtrace-bpf ctl "
			 "start`",
			 (int)getpid());
	else if (a->on)
		log_info("nothing is written until %s", a->on);
	else if (a->from_mark)
		log_info("nothing is written until the mark %s", a->from_mark);
	else if (a->skip)
		log_info("nothing is written until %s whole steps have passed",
			 text__count(text, sizeof(text), a->skip));
	if (!windows__attached(r->windows))
		return EXIT_OK;
	windows__err(r->windows, &said);
	if (!said)
		log_err("out of memory");
	return EXIT_FAILED;
}

int recording_windows__child(struct recording *first, struct recording *child)
{
	struct windows_opts o = first->window_opts;

	return new_windows(child, &o);
}

int recording_windows__end(struct recording *r, const char *reason, int err)
{
	bool said = false;
	int own;

	if (!r->windows)
		return err ? EXIT_FAILED : EXIT_OK;
	windows__finish(r->windows, reason);
	own = windows__err(r->windows, &said);
	if ((own || err) && !said)
		log_err("the capture broke off: %s", strerror(own ? -own : -err));
	return own || err ? EXIT_FAILED : EXIT_OK;
}

static void say_end(const struct recording *r)
{
	size_t n = 0;

	if (r->folder && !folder__read_again(r->folder))
		folder__entries(r->folder, &n);
	if (n)
		log_info("next: memtrace-bpf %s %s", n == 1 ? "report" : "compare",
			 folder__path(r->folder));
	else if (r->folder || (r->windows && !windows__written(r->windows)))
		log_info("no window began: nothing was written");
}

static int capture(struct recording *r, struct windows_opts *o)
{
	struct sink *sinks[1];
	int status = capture_loop__open(&r->loop);
	const char *reason;

	if (!status)
		status = open_output(r, o);
	r->window_opts = *o;
	if (!status && r->loop.session) {
		if (new_windows(r, o)) {
			log_err("out of memory");
			outfile__discard(o->file);
			return EXIT_FAILED;
		}
		sinks[0] = windows__sink(r->windows);
		r->loop.sinks = sinks;
		r->loop.n_sinks = 1;
	}
	if (status)
		return status;
	recording_control__open(r);
	status = capture_loop__run(&r->loop);
	recording_control__close(r);
	reason = r->loop.stop_reason ? r->loop.stop_reason : "signal";
	if (recording_windows__end(r, reason, r->loop.err) && !status)
		status = EXIT_FAILED;
	if (!status && r->some_failed)
		status = EXIT_FAILED;
	if (!status)
		say_end(r);
	return status;
}

int recording_windows__run(struct recording *r)
{
	struct windows_opts o = { .args = r->args.windows,
				  .duration = r->loop.args.duration,
				  .steps = r->loop.args.session.steps,
				  .bounds = r->args.bounds,
				  .force = r->args.force,
				  .of_many = r->loop.args.children ||
					     capture_loop__many(&r->loop) };
	int status = check(r, &o);

	if (status)
		return status;
	/* Of each window, and not of the capture. */
	r->loop.args.duration = 0;
	r->loop.args.session.steps = 0;
	r->loop.writes_later = true;
	say_until(r->until, sizeof(r->until), &o);
	r->loop.until = *r->until ? r->until : NULL;
	status = capture(r, &o);
	windows__free(r->windows);
	r->windows = NULL;
	folder__free(r->folder);
	r->folder = NULL;
	return status;
}
