/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/session.h"
#include "follow/capture_args.h"
#include "follow/tracees.h"
#include "lib/exit.h"
#include "lib/outfile.h"
#include "lib/text.h"
#include "log/log.h"
#include "save/recording_control.h"
#include "save/recording_folder.h"
#include "save/recording_windows.h"
#include "save/status_pipe.h"

#define FLUSH_EVERY 1000000000ULL /* ns */

enum { OPT_MAX_SIZE = 0x2000, OPT_MAX_EVENTS, OPT_TELL };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0,
	  "Where to (default memtrace-PID-TIME.mtr; \"-\" is standard output)", 0 },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", 0 },
	{ "max-size", OPT_MAX_SIZE, "SIZE", 0, "Stop when FILE has grown to SIZE (512M, 2G)", 0 },
	{ "max-events", OPT_MAX_EVENTS, "N", 0, "Stop after N events", 0 },
	{ "tell", OPT_TELL, "FD", OPTION_HIDDEN, NULL, 0 }, /* for serve: status_pipe.h */
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recording_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->oom;
		state->child_inputs[1] = &a->ring;
		state->child_inputs[2] = &a->windows;
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_MAX_SIZE:
		if (text__parse_size(arg, &a->bounds.max_size) || a->bounds.max_size < 65536)
			argp_error(state, "--max-size: '%s' is no size of at least 64K", arg);
		break;
	case OPT_MAX_EVENTS:
		a->bounds.max_events = capture_args__parse_count(state, "--max-events", arg, 1);
		break;
	case OPT_TELL:
		a->tell = (int)capture_args__parse_count(state, "--tell", arg, 3);
		/* Ours alone: what a command of `run` said there would be believed. */
		if (fcntl(a->tell, F_SETFD, FD_CLOEXEC))
			argp_error(state, "--tell: %s: %s", arg, strerror(errno));
		break;
	case ARGP_KEY_END:
		if (a->ring.size && (a->oom.on || a->bounds.max_size || a->bounds.max_events))
			argp_error(state, "--rolling goes on for ever: not with %s",
				   a->oom.on		? "--on-oom"
				   : a->bounds.max_size ? "--max-size"
							: "--max-events");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = { { &oom_argp, 0, NULL, 0 },
					      { &ring_argp, 0, NULL, 0 },
					      { &window_argp, 0,
						"Windows, of which each is a recording:", 2 },
					      { 0 } };
const struct argp recording_argp = { .options = options, .parser = parse, .children = children };

static int on_event(struct sink *s, const struct event *e)
{
	struct recording *r = (struct recording *)s;

	if (r->keep && !r->keep(r->keep_ctx, e))
		return 0;
	r->write_err = mtr_writer__event(r->writer, e);
	if (r->entry)
		recording_folder__event(r, e);
	return r->write_err;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct recording *r = (struct recording *)s;

	if (now - r->last_flush < FLUSH_EVERY)
		return 0;
	r->last_flush = now;
	r->write_err = mtr_writer__flush(r->writer);
	return r->write_err;
}

static const char *drained(void *ctx)
{
	struct recording *r = ctx;
	const char *reason;

	status_pipe__drained(r);
	if (r->oom)
		return recording_oom__drained(r);
	if (r->windows)
		return windows__over(r->windows);
	if (r->ring || !r->writer)
		return NULL;
	return mtr_writer__full(r->writer, &reason) ? reason : NULL;
}

const char *recording__path(struct recording *r)
{
	time_t now = time(NULL);
	char when[32];
	struct tm tm;

	if (r->child_path)
		return r->child_path;
	if (r->args.output)
		return r->args.output;
	if (!r->path[0]) {
		localtime_r(&now, &tm);
		strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm);
		snprintf(r->path, sizeof(r->path), "memtrace-%d-%s.mtr", (int)r->loop.args.pid,
			 when);
	}
	return r->path;
}

/* Before attaching, so that a full disk or a file that is there costs nothing. */
static int open_output(struct recording *r)
{
	const char *path = recording__path(r);
	int err;

	err = outfile__create(path, OUTFILE_DIRECT, r->args.force, &r->file);
	if (err) {
		log_err("%s: %s", path, outfile__why(err));
		return EXIT_FAILED;
	}
	r->writer = mtr_writer__new(outfile__fd(r->file), session__dict(r->loop.session),
				    session__facts(r->loop.session), &r->args.bounds);
	if (!r->writer) {
		log_err("%s: cannot write: %s", outfile__name(r->file), outfile__why(-errno));
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

/* Of a process that is attached to. */
static int open_in_folder(struct recording *r)
{
	if (recording_folder__begin(r) || open_output(r) || recording_folder__note(r))
		return EXIT_FAILED;
	return EXIT_OK;
}

/* Only now does the file that -f is to replace go: a capture that never began must not cost it. */
static int on_attached(void *ctx)
{
	struct recording *r = ctx;
	int err;

	status_pipe__attached(r);
	if (r->oom)
		return recording_oom__attached(r);
	if (r->ring)
		return recording_rolling__attached(r);
	if (r->windows)
		return recording_windows__attached(r);
	if (r->folder)
		return EXIT_OK;
	err = outfile__replace(r->file);
	if (err)
		log_err("%s: %s", outfile__name(r->file), outfile__why(err));
	return err ? EXIT_FAILED : EXIT_OK;
}

/* The last words: how much, how whole, where, and what to do with it. */
static void say_written(const struct recording *r, uint64_t bytes, uint64_t dropped)
{
	uint64_t events = session__events(r->loop.session), lost = session__lost(r->loop.session);
	char n[32], l[32], size[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", outfile__name(r->file)),
			     LOG_INT("target", r->loop.args.pid), LOG_UINT("events", events),
			     LOG_UINT("lost", lost), LOG_UINT("bytes", bytes),
			     LOG_UINT("dropped", dropped),
			     LOG_UINT("steps", session__steps(r->loop.session)),
			     LOG_STRING("reason", r->loop.stop_reason)),
		  "%s: %s events, %s lost, %s (%.1f bytes an event)", outfile__name(r->file),
		  text__count(n, sizeof(n), events), text__count(l, sizeof(l), lost),
		  text__bytes(size, sizeof(size), bytes), events ? (double)bytes / events : 0.0);
	if (lost)
		log_warn("%s events were lost because the ring was full: blocks may be missing, or "
			 "shown though they are freed "
			 "(a GPU's totals are exact all the same); --ring-size 64M gives more room",
			 l);
	if (dropped)
		log_warn("--%s was reached: %s events after that are not in the file",
			 r->loop.stop_reason, text__count(n, sizeof(n), dropped));
	if (!events)
		log_warn("nothing was allocated while attached");
	else if (!r->entry && strcmp(outfile__name(r->file), "standard output"))
		log_info("next: memtrace-bpf report %s", outfile__name(r->file));
}

/* The file is whole, or is not there where nothing was ever recorded. What the exit code is now. */
static int close_output(struct recording *r, int status)
{
	bool attached = r->loop.session && session__now(r->loop.session);
	uint64_t bytes = 0, dropped;
	int err;

	if (r->writer) {
		dropped = mtr_writer__dropped(r->writer);
		err = r->write_err ? 0 : mtr_writer__flush(r->writer);
		bytes = mtr_writer__bytes(r->writer);
		if (!err && !r->write_err)
			err = mtr_writer__close(r->writer);
		else
			mtr_writer__close(r->writer);
		if (err) {
			log_err("%s: cannot write: %s", outfile__name(r->file), outfile__why(err));
			status = EXIT_FAILED;
		}
		if (!attached) {
			/* Nothing was ever recorded: leave no empty file behind. */
			outfile__discard(r->file);
			return status;
		}
		if (!status)
			say_written(r, bytes, dropped);
	}
	if (r->file) {
		err = r->writer ? outfile__commit(r->file) : (outfile__discard(r->file), 0);
		if (err && !status) {
			log_err("%s: cannot write: %s", recording__path(r), outfile__why(err));
			status = EXIT_FAILED;
		}
	}
	if (r->writer && r->entry && recording_folder__end(r, bytes) && !status)
		status = EXIT_FAILED;
	return status;
}

static void say_failed(const struct recording *r, int err)
{
	if (r->write_err)
		log_err("%s: cannot write: %s. What was written before is readable",
			outfile__name(r->file), outfile__why(r->write_err));
	else if (err)
		log_err("the capture broke off: %s", strerror(-err));
}

/* With the first event: many processes live and end without any. */
static int on_late_event(struct sink *s, const struct event *e)
{
	struct recording *r = (struct recording *)s;
	bool in_folder = r->of ? r->of->folder : r->folder;
	int err = 0;

	if (!r->writer) {
		err = (in_folder ? open_in_folder(r) : open_output(r)) ? -EIO : 0;
		if (!err && !in_folder)
			err = outfile__replace(r->file);
		r->said = err;
	}
	return err ? err : on_event(s, e);
}

static int on_late_tick(struct sink *s, uint64_t now)
{
	return ((struct recording *)s)->writer ? on_tick(s, now) : 0;
}

static int run_many(struct recording *r)
{
	int status = capture_loop__open(&r->loop);

	if (!status) {
		recording_control__open(r);
		status = capture_loop__run(&r->loop);
		recording_control__close(r);
	}
	say_failed(r, r->loop.err);
	return status ? status : r->some_failed ? EXIT_FAILED : EXIT_OK;
}

static int run(struct recording *r)
{
	bool many = capture_loop__many(&r->loop), in_folder;
	struct sink *sinks[] = { &r->sink };
	int status;

	if ((r->loop.args.children || many) && (r->args.oom.on || r->args.ring.size ||
						(r->args.output && !strcmp(r->args.output, "-")))) {
		log_err("%s write%s a file for each process: not with %s",
			many ? "several processes" : "--children", many ? "" : "s",
			r->args.oom.on	    ? "--on-oom"
			: r->args.ring.size ? "--rolling"
					    : "-o -");
		return EXIT_USAGE;
	}
	if (r->args.ring.size && r->args.windows.given) {
		log_err("--rolling keeps all of the last time: not with windows");
		return EXIT_USAGE;
	}
	in_folder = recording_folder__wanted(r);
	r->window_mode = !in_folder && !r->args.ring.size && recording_windows__wanted(r);
	if (r->window_mode)
		return recording_windows__run(r);
	if (in_folder) {
		status = recording_folder__open(r);
		if (status)
			return status;
		r->sink = (struct sink){ .event = on_late_event, .tick = on_late_tick };
	}
	if (many)
		return run_many(r);
	if (r->args.ring.size)
		return recording_rolling__run(r);
	if (r->args.oom.on)
		return recording_oom__run(r);
	r->loop.sinks = sinks;
	r->loop.n_sinks = 1;
	status = capture_loop__open(&r->loop);
	if (!status && !r->folder)
		status = open_output(r);
	if (!status) {
		status_pipe__opened(r);
		recording_control__open(r);
		status = capture_loop__run(&r->loop);
		recording_control__close(r);
		if (!r->said)
			say_failed(r, r->loop.err);
	}
	status_pipe__ended(r);
	return close_output(r, status);
}

int recording__run(struct recording *r)
{
	int status = run(r);

	recording_folder__close(r, status);
	return status;
}

/* ---- the other processes of --children, or all, where there is no first ---- */

/* "run.mtr" -> "run.PID.mtr", and a second one of that process "run.PID-2.mtr"; to be freed. */
static char *child_path(struct recording *r, unsigned int number)
{
	bool named = r->of->args.output || !capture_loop__many(&r->of->loop);
	const char *path = recording__path(named ? r->of : r);
	size_t len = strlen(path);
	bool mtr = len > 4 && !strcmp(path + len - 4, ".mtr");
	char again[16] = "", pid[16] = "", *name;

	if (named)
		snprintf(pid, sizeof(pid), ".%d", (int)r->loop.args.pid);
	if (number > 1)
		snprintf(again, sizeof(again), "-%u", number);
	if (asprintf(&name, "%.*s%s%s%s", (int)(mtr ? len - 4 : len), path, pid, again,
		     mtr ? ".mtr" : "") < 0)
		return NULL;
	return name;
}

static void *child_begin(void *ctx, struct session *s, pid_t pid, unsigned int number,
			 struct sink **sink)
{
	struct recording *first = ctx, *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->of = first;
	r->args = first->args;
	r->loop.args = first->loop.args;
	r->loop.args.pid = pid;
	r->loop.session = s;
	if (!first->window_mode)
		r->child_path = first->folder ? strdup(first->args.output) : child_path(r, number);
	if (first->window_mode ? recording_windows__child(first, r) : !r->child_path) {
		free(r);
		return NULL;
	}
	r->sink = (struct sink){ .event = on_late_event, .tick = on_late_tick };
	*sink = r->windows ? windows__sink(r->windows) : &r->sink;
	r->next = first->members;
	first->members = r;
	return r;
}

static void leave(struct recording *r)
{
	struct recording **at = &r->of->members;

	while (*at && *at != r)
		at = &(*at)->next;
	if (*at)
		*at = r->next;
}

static const char *child_full(void *output)
{
	const struct recording *r = output;
	const char *reason;

	if (r->windows)
		return windows__over(r->windows);
	return r->writer && mtr_writer__full(r->writer, &reason) ? reason : NULL;
}

static void child_end(void *output, const char *reason, int err)
{
	struct recording *r = output;

	r->loop.stop_reason = reason;
	leave(r);
	if (r->windows ? recording_windows__end(r, reason, err) : false)
		r->of->some_failed = true;
	windows__free(r->windows);
	if (!r->said && !r->of->window_mode)
		say_failed(r, err);
	if (((r->writer || r->file) && close_output(r, err ? EXIT_FAILED : EXIT_OK)) || err)
		r->of->some_failed = true;
	recording_folder__close(r, EXIT_OK);
	free(r->child_path);
	free(r);
}

static const struct tracees_output children_output = { child_begin, child_full, child_end };

void recording__init(struct recording *r)
{
	r->sink = (struct sink){ .event = on_event, .tick = on_tick };
	r->loop.attached = on_attached;
	r->loop.drained = drained;
	r->loop.output = &children_output;
	r->loop.ctx = r;
}
