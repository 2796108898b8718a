/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording_oom.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/session.h"
#include "follow/capture_args.h"
#include "follow/capture_loop.h"
#include "lib/exit.h"
#include "lib/outfile.h"
#include "lib/text.h"
#include "log/log.h"
#include "record/flight.h"
#include "save/recording.h"

#define FILES 3 /* unless told otherwise */

enum { OPT_ON_OOM = 0x3000, OPT_WINDOW, OPT_OOM_FILES };

static const struct argp_option options[] = {
	{ "on-oom", OPT_ON_OOM, NULL, 0,
	  "Write nothing until the target runs out of memory, then what led up to it; --max-size "
	  "and --max-events bound "
	  "what is kept in memory (default 64M)",
	  1 },
	{ "window", OPT_WINDOW, "TIME", 0, "With --on-oom: how much before it (default 30s)", 1 },
	{ "oom-files", OPT_OOM_FILES, "N", 0,
	  "With --on-oom: stop after N files (default 3): FILE, FILE-2, ...", 1 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct oom_args *a = state->input;
	uint64_t n;

	switch (key) {
	case OPT_ON_OOM:
		a->on = true;
		break;
	case OPT_WINDOW:
		if (text__parse_time(arg, &a->window) || !a->window)
			argp_error(state, "--window: '%s' is no time; try 30s or 5m", arg);
		break;
	case OPT_OOM_FILES:
		n = capture_args__parse_count(state, "--oom-files", arg, 1);
		a->files = n > 1000 ? 1000 : (unsigned int)n;
		break;
	case ARGP_KEY_END:
		if (!a->on && (a->window || a->files))
			argp_error(state, "--%s goes with --on-oom",
				   a->window ? "window" : "oom-files");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp oom_argp = { .options = options, .parser = parse };

struct oom_recording {
	struct sink sink; /* first: the sink is the recording */
	struct recording *r;
	struct flight *flight;
	struct outfile *file; /* that is being written */
	const char *path;     /* of the first */
	uint64_t window;
	unsigned int files; /* at most */
	int err;	    /* of memory, or of a file, negative */
	bool said;	    /* what went wrong */
};

/* The number-th name: "run.mtr", "run-2.mtr" ...; to be freed. */
static char *name_of(const struct oom_recording *o, unsigned int number)
{
	size_t len = strlen(o->path);
	bool mtr = len > 4 && !strcmp(o->path + len - 4, ".mtr");
	char *name;

	if (number == 1)
		return strdup(o->path);
	if (asprintf(&name, "%.*s-%u%s", (int)(mtr ? len - 4 : len), o->path, number,
		     mtr ? ".mtr" : "") < 0)
		return NULL;
	return name;
}

static int create(struct oom_recording *o, unsigned int number)
{
	char *name = name_of(o, number);
	int err = name ? outfile__create(name, OUTFILE_RENAME, o->r->args.force, &o->file)
		       : -ENOMEM;

	if (err)
		log_err("%s: %s", name ? name : o->path, outfile__why(err));
	free(name);
	return err;
}

/* Before attaching: a name that is taken must not come out when it is too late. */
static int try_names(struct oom_recording *o)
{
	for (unsigned int i = 1; i <= o->files; i++) {
		if (create(o, i))
			return EXIT_FAILED;
		outfile__discard(o->file);
		o->file = NULL;
	}
	return EXIT_OK;
}

static int open_file(void *ctx, unsigned int number)
{
	struct oom_recording *o = ctx;
	int err = create(o, number);

	o->said = err;
	return err ? err : outfile__fd(o->file);
}

static void say_file(const struct oom_recording *o, const struct flight_report *r, const char *name)
{
	char when[24], asked[24], events[32], span[24], size[24], blocks[32], more[48] = "";
	uint64_t before = r->oom.time > r->from ? r->oom.time - r->from : 0;
	bool named = strcmp(name, "standard output");

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
		  "%s: %s events from %s before it on, %s blocks that were there before, %s", name,
		  text__count(events, sizeof(events), r->events),
		  text__time(span, sizeof(span), before),
		  text__count(blocks, sizeof(blocks), r->blocks),
		  text__bytes(size, sizeof(size), r->bytes));
	if (r->cut)
		log_warn("there was no room in memory for all %s before it: --max-size gives more",
			 text__time(span, sizeof(span), o->window));
	if (named)
		log_info("next: memtrace-bpf report --at oom %s", name);
}

static int file_done(void *ctx, const struct flight_report *r, int err)
{
	struct oom_recording *o = ctx;
	char *name = strdup(outfile__name(o->file));
	int closed;

	if (err) {
		outfile__discard(o->file);
	} else {
		closed = outfile__commit(o->file);
		err = closed;
	}
	o->file = NULL;
	if (err)
		log_err("%s: cannot write: %s", name ? name : o->path, outfile__why(err));
	else
		say_file(o, r, name ? name : o->path);
	o->said = err;
	free(name);
	return err;
}

static int on_event(struct sink *s, const struct event *e)
{
	struct oom_recording *o = (struct oom_recording *)s;

	o->err = flight__event(o->flight, e);
	return o->err;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct oom_recording *o = (struct oom_recording *)s;

	o->err = flight__tick(o->flight, now);
	return o->err;
}

int recording_oom__attached(struct recording *r)
{
	const struct oom_recording *o = r->oom;
	char window[24];

	log_info("nothing is written until PID %d runs out of memory; then the %s before it, into "
		 "%s",
		 (int)r->loop.args.pid, text__time(window, sizeof(window), o->window), o->path);
	return EXIT_OK;
}

const char *recording_oom__drained(const struct recording *r)
{
	return flight__full(r->oom->flight) ? "oom" : NULL;
}

static int fly(struct oom_recording *o)
{
	struct capture_loop *loop = &o->r->loop;
	struct flight_opts opts = { .window = o->window,
				    .max_bytes = o->r->args.bounds.max_size,
				    .max_events = o->r->args.bounds.max_events,
				    .max_files = o->files,
				    .open = open_file,
				    .done = file_done,
				    .ctx = o };
	int status;

	o->flight = flight__new(session__dict(loop->session), session__facts(loop->session), &opts);
	if (!o->flight) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	status = capture_loop__run(loop);
	if (!o->err && !loop->err)
		o->err = flight__finish(o->flight);
	if (o->err && !o->said)
		log_err("the capture broke off: %s", strerror(-o->err));
	else if (loop->err && !o->err)
		log_err("the capture broke off: %s", strerror(-loop->err));
	if (o->err)
		return EXIT_FAILED;
	if (status)
		return status;
	if (!flight__files(o->flight))
		log_info("nothing ran out of memory: nothing was written");
	else if (flight__full(o->flight))
		log_info("%u file%s written: not waiting for more (--oom-files)", o->files,
			 o->files > 1 ? "s are" : " is");
	return EXIT_OK;
}

int recording_oom__run(struct recording *r)
{
	struct oom_recording o = { .sink = { .event = on_event, .tick = on_tick }, .r = r };
	struct sink *sinks[] = { &o.sink };
	int status;

	o.window = r->args.oom.window ? r->args.oom.window : FLIGHT_WINDOW;
	o.files = r->args.oom.files ? r->args.oom.files : FILES;
	o.path = recording__path(r);
	if (!strcmp(o.path, "-"))
		o.files = 1; /* one after the other would make no recording */
	r->loop.sinks = sinks;
	r->loop.n_sinks = 1;
	r->oom = &o;
	r->loop.writes_later = true;
	status = capture_loop__open(&r->loop);
	if (!status)
		status = try_names(&o);
	if (!status)
		status = fly(&o);
	flight__free(o.flight);
	r->oom = NULL;
	return status;
}
