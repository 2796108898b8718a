/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording_rolling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "capture/session.h"
#include "follow/capture_loop.h"
#include "lib/exit.h"
#include "lib/text.h"
#include "log/log.h"
#include "record/totals.h"
#include "save/recording.h"
#include "save/rolling_store.h"

#define TICK UINT64_C(1000000000) /* ns */

enum { OPT_ROLLING = 0x3100, OPT_SEGMENT };

static const struct argp_option options[] = {
	{ "rolling", OPT_ROLLING, "SIZE", 0,
	  "Record for any length of time into a folder (-o FOLDER/) that never takes more than "
	  "SIZE (10G): the oldest goes, its totals "
	  "stay",
	  2 },
	{ "segment", OPT_SEGMENT, "SIZE", 0,
	  "With --rolling: what goes at a time, a recording of its own (default: a sixteenth of "
	  "it, at most 256M)",
	  2 },
	{ 0 },
};

static void check(const struct ring_args *a, struct argp_state *state)
{
	char low[24], high[24];
	uint64_t min, max;

	if (a->segment && !a->size)
		argp_error(state, "--segment goes with --rolling");
	if (!a->segment)
		return;
	rolling_store__segments(a->size, &min, &max);
	if (a->segment < min || a->segment > max)
		argp_error(state, "--segment: with this --rolling from %s to %s",
			   text__bytes(low, sizeof(low), min),
			   text__bytes(high, sizeof(high), max));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ring_args *a = state->input;

	switch (key) {
	case OPT_ROLLING:
		if (text__parse_size(arg, &a->size) || a->size < RING_SIZE_MIN ||
		    a->size > RING_SIZE_MAX)
			argp_error(state, "--rolling: '%s' is no size of at least 1M; try 10G",
				   arg);
		break;
	case OPT_SEGMENT:
		if (text__parse_size(arg, &a->segment) || !a->segment)
			argp_error(state, "--segment: '%s' is no size; try 64M", arg);
		break;
	case ARGP_KEY_END:
		check(a, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp ring_argp = { .options = options, .parser = parse };

struct ring_recording {
	struct sink sink; /* first: the sink is the recording */
	struct recording *r;
	struct rolling_store *store;
	uint64_t last_tick;
	int err;
};

static int on_event(struct sink *s, const struct event *e)
{
	struct ring_recording *g = (struct ring_recording *)s;

	g->err = rolling_store__event(g->store, e);
	return g->err;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct ring_recording *g = (struct ring_recording *)s;

	if (now - g->last_tick < TICK)
		return 0;
	g->last_tick = now;
	g->err = rolling_store__tick(g->store, now);
	return g->err;
}

/* The folder's name: what -o says, else as a file would be called. */
static char *folder_path(struct recording *r)
{
	const char *path = recording__path(r);
	size_t len = strlen(path);
	bool mtr = !r->args.output && len > 4 && !strcmp(path + len - 4, ".mtr");

	return strndup(path, mtr ? len - 4 : len);
}

int recording_rolling__attached(struct recording *r)
{
	char size[24];

	log_info("recording PID %d into %s, at most %s: the oldest goes when it is full",
		 (int)r->loop.args.pid, rolling_store__path(r->ring->store),
		 text__bytes(size, sizeof(size), r->args.ring.size));
	return EXIT_OK;
}

static void say_written(const struct ring_recording *g)
{
	struct ring_store_sum s = rolling_store__sum(g->store);
	char n[32], l[32], size[24], gap[32], to[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", rolling_store__path(g->store)),
			     LOG_UINT("events", s.events), LOG_UINT("lost", s.lost),
			     LOG_UINT("bytes", s.bytes), LOG_UINT("segments", s.segments),
			     LOG_UINT("dropped", s.gap_events)),
		  "%s: %s events, %s lost, %s in %u segment%s", rolling_store__path(g->store),
		  text__count(n, sizeof(n), s.events), text__count(l, sizeof(l), s.lost),
		  text__bytes(size, sizeof(size), s.bytes), (unsigned int)s.segments,
		  s.segments == 1 ? "" : "s");
	if (s.gap_to)
		log_info("the first %s are dropped (%s events); their totals are in " TOTALS_FILE,
			 text__time(to, sizeof(to), s.gap_to),
			 text__count(gap, sizeof(gap), s.gap_events));
	if (s.lost)
		log_warn("%s events were lost because the ring to the kernel was full; --ring-size "
			 "64M gives more room",
			 l);
	log_info("next: memtrace-bpf report %s", rolling_store__path(g->store));
}

static int roll(struct ring_recording *g)
{
	struct capture_loop *loop = &g->r->loop;
	int status = capture_loop__run(loop), err;
	bool attached = session__now(loop->session);

	err = attached ? rolling_store__finish(g->store) : 0;
	g->err = g->err ?: err;
	if (g->err) {
		log_err("%s: cannot write: %s", rolling_store__path(g->store),
			rolling_store__why(g->store, g->err));
		return EXIT_FAILED;
	}
	if (loop->err)
		log_err("the capture broke off: %s", strerror(-loop->err));
	if (!status && !rolling_store__sum(g->store).events)
		log_warn("nothing was allocated while attached: nothing was written");
	else if (!status)
		say_written(g);
	return status;
}

int recording_rolling__run(struct recording *r)
{
	struct ring_recording g = { .sink = { .event = on_event, .tick = on_tick }, .r = r };
	struct ring_store_opts opts = { .size = r->args.ring.size,
					.segment = r->args.ring.segment };
	struct sink *sinks[] = { &g.sink };
	char *path = folder_path(r);
	int status, err;

	if (!path || !strcmp(path, "-")) {
		log_err(path ? "--rolling writes a folder: not with -o -" : "out of memory");
		free(path);
		return path ? EXIT_USAGE : EXIT_FAILED;
	}
	r->loop.sinks = sinks;
	r->loop.n_sinks = 1;
	r->loop.writes_later = true;
	r->ring = &g;
	status = capture_loop__open(&r->loop);
	if (!status) {
		err = rolling_store__open(path, session__dict(r->loop.session),
					  session__facts(r->loop.session), &opts, &g.store);
		if (err)
			log_err("%s: %s", path, rolling_store__why(NULL, err));
		status = err ? EXIT_FAILED : EXIT_OK;
	}
	if (g.store) {
		status = roll(&g);
		rolling_store__free(g.store, !rolling_store__sum(g.store).events);
	}
	r->ring = NULL;
	free(path);
	return status;
}
