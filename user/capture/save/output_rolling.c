/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/recording.h"
#include "capture/save/rolling_store.h"
#include "capture/session.h"
#include "record/folder.h"
#include "record/mtr_rolling.h"

#define TICK UINT64_C(1000000000) /* ns between two flushes */

enum { OPT_ROLLING = 0x3100, OPT_SEGMENT };

static const struct argp_option options[] = {
	{ "rolling", OPT_ROLLING, "SIZE", 0, "Record for days into the folder -o, of at most SIZE",
	  OPTIONS_RECORD },
	{ "segment", OPT_SEGMENT, "SIZE", OPTION_RARE,
	  "With --rolling: size of a part (default: a sixteenth, at most 256M)", OPTIONS_RECORD },
	{ 0 },
};

static void check(const struct rolling_args *a, struct argp_state *state)
{
	char low[24], high[24];
	uint64_t min, max;

	if (a->segment && !a->size)
		argp_error(state, "--segment needs --rolling");
	if (!a->segment)
		return;
	rolling_store__segments(a->size, &min, &max);
	if (a->segment < min || a->segment > max)
		argp_error(state, "--segment: with this --rolling, use a size from %s to %s",
			   text__bytes(low, sizeof(low), min),
			   text__bytes(high, sizeof(high), max));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct rolling_args *a = state->input;

	switch (key) {
	case OPT_ROLLING:
		if (text__parse_size(arg, &a->size) || a->size < RING_SIZE_MIN ||
		    a->size > RING_SIZE_MAX)
			argp_error(state, "--rolling: '%s' is not a size of at least 1M; try 10G",
				   arg);
		break;
	case OPT_SEGMENT:
		if (text__parse_size(arg, &a->segment) || !a->segment)
			argp_error(state, "--segment: '%s' is not a size; try 64M", arg);
		break;
	case ARGP_KEY_END:
		check(a, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp rolling_argp = { .options = options, .parser = parse };

struct output_rolling {
	struct output o; /* first: the output is cast to this struct */
	struct rolling_store *store;
	uint64_t last_tick;	   /* time of the last flush, ns since the start */
	int err;		   /* negative error of the store */
	bool failed;		   /* an error was logged */
	struct folder_entry entry; /* entry in the index of o.r->folder, if there is one */
};

/* Returns the folder's path: a name within o.r->folder if there is one, otherwise -o, otherwise the
 * default name without ".mtr". The caller frees it. */
static char *folder_path(struct output_rolling *g)
{
	const struct output *o = &g->o;
	char *path;
	size_t len;

	if (o->r->folder)
		return output_file__begin_entry(o, "rolling", "", &g->entry);
	if (o->r->args.output)
		return strdup(o->r->args.output);
	path = output__path(o);
	len = path ? strlen(path) : 0;
	if (len > 4)
		path[len - 4] = '\0';
	return path;
}

static int open_store(struct output_rolling *g)
{
	const struct rolling_args *a = &g->o.r->args.rolling;
	const struct ring_store_opts opts = { .size = a->size, .segment = a->segment };
	char *path = folder_path(g);
	int err = path ? rolling_store__open(path, session__dict(g->o.session),
					     session__facts(g->o.session), &opts, &g->store)
		       : -ENOMEM;

	if (err)
		log_err("%s: %s", path ? path : "a recording", rolling_store__why(NULL, err));
	else if (g->o.r->folder)
		err = output_file__add_entry(&g->o, &g->entry);
	g->failed = err;
	free(path);
	return err;
}

static void say_into(const struct output_rolling *g)
{
	char size[24];

	log_info("recording PID %d into %s (at most %s; removes the oldest part when full)",
		 (int)g->o.pid, rolling_store__path(g->store),
		 text__bytes(size, sizeof(size), g->o.r->args.rolling.size));
}

static int on_event(struct sink *s, const struct event *e)
{
	struct output_rolling *g = (struct output_rolling *)s;

	if (!g->store) {
		g->err = open_store(g);
		if (g->err)
			return g->err;
		say_into(g);
	}
	if (g->o.r->folder)
		folder_entry__event(&g->entry, e);
	g->err = rolling_store__event(g->store, e);
	return g->err;
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct output_rolling *g = (struct output_rolling *)s;

	if (!g->store || now - g->last_tick < TICK)
		return 0;
	g->last_tick = now;
	g->err = rolling_store__tick(g->store, now);
	return g->err;
}

static int on_attached(struct output *o)
{
	const struct output_rolling *g = (struct output_rolling *)o;

	if (g->store)
		say_into(g);
	return EXIT_OK;
}

static void say_written(const struct output_rolling *g)
{
	struct ring_store_sum s = rolling_store__sum(g->store);
	char n[32], l[32], size[24], gap[32], to[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", rolling_store__path(g->store)),
			     LOG_UINT("events", s.events), LOG_UINT("lost", s.lost),
			     LOG_UINT("bytes", s.bytes), LOG_UINT("segments", s.segments),
			     LOG_UINT("dropped", s.gap_events)),
		  "%s: %s, %s lost, %s in %u segment%s", rolling_store__path(g->store),
		  text__counted(n, sizeof(n), s.events, "event"), text__count(l, sizeof(l), s.lost),
		  text__bytes(size, sizeof(size), s.bytes), (unsigned int)s.segments,
		  s.segments == 1 ? "" : "s");
	if (s.gap_to)
		log_info("removed the first %s (%s); their totals are in " TOTALS_FILE,
			 text__time(to, sizeof(to), s.gap_to),
			 text__counted(gap, sizeof(gap), s.gap_events, "event"));
	if (s.lost)
		log_warn("%s lost. If the buffer to the kernel was full, --ring-size 64M helps",
			 text__counted(l, sizeof(l), s.lost, "event"));
	output__say_next("report", rolling_store__path(g->store));
}

/* Completes the folder. Returns an exit code, logged. */
static int finish(struct output_rolling *g, int err)
{
	int closed = session__now(g->o.session) ? rolling_store__finish(g->store) : 0;

	if (!g->err)
		g->err = closed;
	if (g->err) {
		log_err("%s: cannot write: %s", rolling_store__path(g->store),
			rolling_store__why(g->store, g->err));
		return EXIT_FAILED;
	}
	if (err) {
		log_err("the capture broke off: %s", strerror(-err));
		return EXIT_FAILED;
	}
	if (rolling_store__sum(g->store).events) {
		g->o.r->written++;
		say_written(g);
	} else if (session__now(g->o.session)) {
		log_warn("PyTorch allocated nothing while attached: nothing was written");
	}
	return EXIT_OK;
}

static int on_end(struct output *o, const char *reason, int err)
{
	struct output_rolling *g = (struct output_rolling *)o;
	int status = g->failed || err ? EXIT_FAILED : EXIT_OK;

	if (g->store) {
		status = g->failed ? EXIT_FAILED : finish(g, err);
		g->entry.bytes = rolling_store__sum(g->store).bytes;
		if (o->r->folder && output_file__finish_entry(o, &g->entry, reason))
			status = EXIT_FAILED;
		rolling_store__free(g->store, !rolling_store__sum(g->store).events);
	} else if (err && !g->failed) {
		log_err("the capture broke off: %s", strerror(-err));
	}
	free(g);
	return status;
}

struct output *output_rolling__new(const struct output *process)
{
	struct output_rolling *g = calloc(1, sizeof(*g));

	if (!g) {
		log_err("out of memory");
		return NULL;
	}
	g->o = *process;
	g->o.sink = (struct sink){ .event = on_event, .tick = on_tick };
	g->o.attached = on_attached;
	g->o.end = on_end;
	if (!g->o.times && !g->o.r->folder && open_store(g)) {
		on_end(&g->o, NULL, 0);
		return NULL;
	}
	return &g->o;
}
