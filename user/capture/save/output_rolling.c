/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output_rolling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/recording.h"
#include "capture/save/output.h"
#include "capture/session.h"
#include "record/folder.h"
#include "record/mtr_rolling.h"

#define PARTS_MAX 256			/* parts at most, so that the index stays small */
#define ENTRY_BYTES (5u << 10)		/* bytes of the index per part, at most */
#define TOTALS_MAX (UINT64_C(64) << 20) /* bytes of the totals, at most */
/* The totals and the index are written again after 10 s, or later if they are large. */
#define TOTALS_EVERY UINT64_C(10000000000) /* ns */
#define TOTALS_RATE (UINT64_C(50) << 10)   /* bytes a second, at most */

struct rolling_store {
	struct ring_store_opts opts;
	const struct facts *facts;
	char *name; /* last part of the folder's path */
	struct folder *folder;
	struct mtr_rolling *ring;
	struct totals *totals;
	struct outfile *file;		    /* part that is being written */
	char file_name[32];		    /* name of that part in the folder */
	uint64_t totals_room;		    /* bytes reserved for the totals */
	uint64_t totals_bytes, index_bytes; /* bytes that totals and index take now */
	uint64_t most;			    /* bytes that the folder took at most */
	uint64_t next_totals;		    /* time to write the totals again, ns since the start */
	uint64_t dropped;		    /* parts that were dropped */
	uint64_t start;			    /* start of the capture, ns since 1970; 0: unknown */
	char why[160];
};

/* Gets the smallest and the largest size of a part, for a folder of `size` bytes. */
static void part_bounds(uint64_t size, uint64_t *min, uint64_t *max)
{
	*min = size / PARTS_MAX > MTR_RING_PART_MIN ? size / PARTS_MAX : MTR_RING_PART_MIN;
	*max = size / 4;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + MTR_RING_ROUND - 1) / MTR_RING_ROUND * MTR_RING_ROUND;
}

const char *rolling_store__why(const struct rolling_store *s, int err)
{
	if (s && *s->why)
		return s->why;
	switch (-err) {
	case EEXIST:
		return "it has recordings in it; name a folder that has none";
	case ENOENT:
		return "its parent folder does not exist";
	case EFBIG:
		return "the live blocks need more space than --rolling allows; use a larger SIZE. "
		       "The parts written before are readable";
	case EINVAL:
		return "an event that a recording cannot hold";
	default:
		return folder__why(err);
	}
}

const struct totals *rolling_store__totals(const struct rolling_store *s)
{
	return s->totals;
}

/* ---- index ---- */

/* The PID of the recorded process; -1: not known. */
static int64_t get_pid(const struct rolling_store *s)
{
	uint64_t pid;

	return facts__number(s->facts, "pid", &pid) ? (int64_t)pid : -1;
}

static void part_name(char buf[32], unsigned int number)
{
	snprintf(buf, 32, "segment-%06u.mtr", number);
}

/* Makes the part's entry in the index. */
static struct folder_entry make_entry(const struct rolling_store *s, const struct mtr_ring_part *g)
{
	struct folder_entry e = {
		.kind = "segment",
		.pid = get_pid(s),
		.from = g->span.from,
		.to = g->span.to,
		.first_step = (int64_t)g->span.first_step,
		.last_step = g->span.steps ? (int64_t)(g->span.first_step + g->span.steps - 1) : -1,
		.events = g->span.events,
		.lost = g->span.lost,
		.bytes = g->bytes
	};
	char file[32];
	size_t len;

	part_name(file, g->number);
	snprintf(e.file, sizeof(e.file), "%s", file);
	len = text__utf8(e.name, 100, s->name, strlen(s->name));
	snprintf(e.name + len, sizeof(e.name) - len, "#%u", g->number);
	folder_entry__describe(&e, s->facts);
	if (s->start) {
		text__date(e.begin, sizeof(e.begin), s->start + g->span.from);
		text__date(e.end, sizeof(e.end), s->start + g->span.to);
	}
	snprintf(e.began, sizeof(e.began), "%s", g->number == 1 ? "start" : "segment");
	if (g->closed)
		snprintf(e.ended, sizeof(e.ended), "segment");
	for (uint32_t i = 0; i < g->span.n_devices && i < FOLDER_DEVICES; i++) {
		const struct mtr_ring_device *d = &g->span.devices[i];
		struct folder_device *to = &e.devices[e.n_devices++];

		device__name(d->device, to->name, sizeof(to->name));
		to->peak_allocated = d->peak_allocated;
		to->peak_reserved = d->peak_reserved;
		to->allocated = d->allocated;
		to->reserved = d->reserved;
	}
	return e;
}

/* Returns the bytes that a file of the folder takes; 0: no such file. */
static uint64_t file_bytes(const struct rolling_store *s, const char *name)
{
	struct stat st;
	uint64_t bytes = 0;
	char *path;

	if (asprintf(&path, "%s/%s", folder__path(s->folder), name) < 0)
		return 0;
	if (!stat(path, &st))
		bytes = round_up((uint64_t)st.st_size);
	free(path);
	return bytes;
}

/* Notes the new size of the index or the totals in *bytes, and the bytes that the folder took: both
 * the old and the new file existed until the new one took the name. */
static void note_rewritten(struct rolling_store *s, const char *name, uint64_t *bytes)
{
	uint64_t now = file_bytes(s, name);
	uint64_t all = mtr_rolling__used(s->ring) + s->totals_bytes + s->index_bytes + now;

	*bytes = now;
	if (all > s->most)
		s->most = all;
}

/* Adds or replaces the part's entry in the index. ended: why it ended; NULL: as in g. 0 or
 * -errno. */
static int index_part(struct rolling_store *s, const struct mtr_ring_part *g, const char *ended)
{
	struct folder_entry e = make_entry(s, g);
	int err;

	if (ended)
		snprintf(e.ended, sizeof(e.ended), "%s", ended);
	err = folder__add(s->folder, &e);
	note_rewritten(s, FOLDER_INDEX, &s->index_bytes);
	return err;
}

/* ---- callbacks of mtr_rolling.h ---- */

/* Creates the file of a part. Returns its descriptor or -errno. */
static int open_part(void *ctx, const struct mtr_ring_part *g)
{
	struct rolling_store *s = ctx;
	const char *start = facts__get(s->facts, "start");
	char *path;
	int err;

	if (!start || text__parse_date(start, &s->start))
		s->start = 0;
	part_name(s->file_name, g->number);
	if (asprintf(&path, "%s/%s", folder__path(s->folder), s->file_name) < 0)
		return -ENOMEM;
	err = outfile__create(path, OUTFILE_DIRECT, false, &s->file);
	free(path);
	return err ? err : outfile__fd(s->file);
}

/* The part has all blocks that were live at its begin: lists it from now on, so that it is found
 * if we are killed. Until then, the part before it is the newest that can be read. */
static int part_ready(void *ctx, const struct mtr_ring_part *g)
{
	return index_part(ctx, g, NULL);
}

/* The part is complete, or failed with err. */
static int part_done(void *ctx, const struct mtr_ring_part *g, int err)
{
	struct rolling_store *s = ctx;
	const char *ended = facts__get(s->facts, "stop_reason") ?: "segment";
	int close_err = outfile__commit(s->file), index_err;

	s->file = NULL;
	err = err ?: close_err;
	index_err = index_part(s, g, err ? strerror(-err) : ended);
	return err ?: index_err;
}

/* Removes the oldest part. gap: the time that all removed parts covered. 0 or -errno. */
static int drop_part(void *ctx, const struct mtr_ring_part *g, const struct mtr_ring_span *gap)
{
	struct rolling_store *s = ctx;
	/* The gap ends where the next part begins, whatever the index rounds. */
	struct folder_gap note = {
		.from = gap->from, .to = g->span.to, .events = g->span.events, .bytes = g->bytes
	};
	char name[32];
	int err;

	snprintf(note.why, sizeof(note.why), "the ring was full");
	part_name(name, g->number);
	err = folder__drop(s->folder, name, &note);
	note_rewritten(s, FOLDER_INDEX, &s->index_bytes);
	s->dropped++;
	return err;
}

/* ---- totals ---- */

/* Writes what is known of the dropped time: sums over the dropped parts. */
static void put_gap(struct json *j, const struct mtr_ring_span *g, uint64_t parts)
{
	char name[DEVICE_NAME];

	json__open_object(j, "gap");
	json__uint(j, "from_ns", g->from);
	json__uint(j, "to_ns", g->to);
	json__uint(j, "segments", parts);
	json__uint(j, "events", g->events);
	json__uint(j, "lost", g->lost);
	json__uint(j, "steps", g->steps);
	json__uint(j, "ooms", g->ooms);
	json__open_array(j, "devices");
	for (uint32_t i = 0; i < g->n_devices; i++) {
		const struct mtr_ring_device *d = &g->devices[i];

		json__open_object(j, NULL);
		json__string(j, "device", device__name(d->device, name, sizeof(name)));
		json__uint(j, "peak_allocated", d->peak_allocated);
		json__uint(j, "peak_time_ns", d->peak_time);
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "allocs", d->allocs);
		json__uint(j, "frees", d->frees);
		json__uint(j, "total_allocated", d->total_allocated);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Writes the file with the totals of the whole capture. */
static int put_totals(FILE *out, const void *ctx)
{
	const struct rolling_store *s = ctx;
	const char *start = facts__get(s->facts, "start");
	const struct mtr_ring_span *gap = mtr_rolling__gap(s->ring);
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__int(j, "memtrace_totals", TOTALS_VERSION);
	json__string(j, "version", MEMTRACE_VERSION);
	json__string(j, "start", start);
	json__int(j, "pid", get_pid(s));
	json__uint(j, "ring_bytes", s->opts.size);
	if (gap)
		put_gap(j, gap, s->dropped);
	totals__json(s->totals, j);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int write_totals(struct rolling_store *s)
{
	int err = outfile__rewrite(folder__path(s->folder), TOTALS_FILE, put_totals, s);

	note_rewritten(s, TOTALS_FILE, &s->totals_bytes);
	return err;
}

/* ---- open and close ---- */

/* Reserves room for the totals. Returns the bytes for parts: the size without twice the index
 * and twice the totals, which exist twice while they are replaced. */
static uint64_t compute_space(struct rolling_store *s)
{
	uint64_t index = round_up((s->opts.size / s->opts.part_bytes + 4) * ENTRY_BYTES);

	s->totals_room = s->opts.size / 32 < TOTALS_MAX ? s->opts.size / 32 : TOTALS_MAX;
	s->totals_room = s->totals_room / MTR_RING_ROUND * MTR_RING_ROUND;
	return s->opts.size - 2 * index - 2 * s->totals_room;
}

/* Makes the folder. -EEXIST: it has recordings already. */
static int open_folder(struct rolling_store *s, const char *path)
{
	size_t n = 0;
	int err = folder__create(path, false, &s->folder);

	if (err)
		return err;
	folder__entries(s->folder, &n);
	return n ? -EEXIST : 0;
}

int rolling_store__open(const char *path, const struct dict *d, const struct facts *f,
			const struct ring_store_opts *opts, struct rolling_store **ret)
{
	struct rolling_store *s = calloc(1, sizeof(*s));
	struct mtr_ring_opts ro = { .open = open_part,
				    .ready = part_ready,
				    .done = part_done,
				    .drop = drop_part,
				    .ctx = s };
	const char *slash;
	uint64_t min, max;
	int err;

	if (!s)
		return -ENOMEM;
	s->opts = *opts;
	s->facts = f;
	part_bounds(opts->size, &min, &max);
	if (!s->opts.part_bytes)
		s->opts.part_bytes = opts->size / 16 < (256u << 20) ? opts->size / 16 : 256u << 20;
	if (s->opts.part_bytes < min)
		s->opts.part_bytes = min;
	if (s->opts.part_bytes > max)
		s->opts.part_bytes = max;
	err = open_folder(s, path);
	if (err)
		goto fail;
	slash = strrchr(folder__path(s->folder), '/');
	s->name = strdup(slash ? slash + 1 : folder__path(s->folder));
	ro.space = compute_space(s);
	ro.part_bytes = s->opts.part_bytes;
	s->ring = mtr_rolling__new(d, f, &ro);
	if (!s->ring) {
		err = -errno;
		goto fail;
	}
	s->totals = totals__new(s->totals_room - MTR_RING_ROUND);
	if (s->name && s->totals) {
		*ret = s;
		return 0;
	}
	err = -ENOMEM;
fail:
	rolling_store__free(s, err != -EEXIST);
	return err;
}

void rolling_store__free(struct rolling_store *s, bool empty)
{
	char *index;

	if (!s)
		return;
	mtr_rolling__free(s->ring);
	totals__free(s->totals);
	if (s->file)
		(void)outfile__commit(s->file);
	if (empty && s->folder &&
	    asprintf(&index, "%s/%s", folder__path(s->folder), FOLDER_INDEX) >= 0) {
		/* rmdir() removes the folder only if nothing else is in it. */
		(void)unlink(index);
		(void)rmdir(folder__path(s->folder));
		free(index);
	}
	folder__free(s->folder);
	free(s->name);
	free(s);
}

int rolling_store__event(struct rolling_store *s, const struct event *e)
{
	uint64_t allocated, reserved;
	int err = mtr_rolling__event(s->ring, e);

	if (err)
		return err;
	mtr_rolling__level(s->ring, e->device, &allocated, &reserved);
	return totals__event(s->totals, e, allocated, reserved);
}

/* The newest part; NULL: there is none. */
static const struct mtr_ring_part *last_part(const struct rolling_store *s)
{
	const struct mtr_ring_part *g, *last = NULL;

	for (uint32_t i = 0; (g = mtr_rolling__part(s->ring, i)); i++)
		last = g;
	return last;
}

int rolling_store__tick(struct rolling_store *s, uint64_t now)
{
	const struct mtr_ring_part *last;
	uint64_t pause;
	int err = mtr_rolling__flush(s->ring);

	if (err || now < s->next_totals)
		return err;
	last = last_part(s);
	if (!last)
		return 0;
	err = write_totals(s);
	if (!err && !last->closed)
		err = index_part(s, last, NULL);
	pause = (s->totals_bytes + s->index_bytes) * UINT64_C(1000000000) / TOTALS_RATE;
	s->next_totals = now + (pause > TOTALS_EVERY ? pause : TOTALS_EVERY);
	return err;
}

int rolling_store__finish(struct rolling_store *s)
{
	int err = mtr_rolling__finish(s->ring), totals_err = 0;

	if (last_part(s))
		totals_err = write_totals(s);
	return err ?: totals_err;
}

struct ring_store_sum rolling_store__sum(const struct rolling_store *s)
{
	const struct mtr_ring_span *gap = mtr_rolling__gap(s->ring);
	struct ring_store_sum sum = { .dropped = s->dropped,
				      .bytes = mtr_rolling__used(s->ring) + s->totals_bytes +
					       s->index_bytes };
	uint64_t most = mtr_rolling__most_used(s->ring) + s->totals_bytes + s->index_bytes;
	struct totals_whole whole;

	totals__whole(s->totals, &whole);
	sum.events = whole.events;
	sum.lost = whole.lost;
	sum.most_bytes = s->most > most ? s->most : most;
	while (mtr_rolling__part(s->ring, (uint32_t)sum.parts))
		sum.parts++;
	if (gap) {
		sum.gap_events = gap->events;
		sum.gap_to = gap->to;
	}
	return sum;
}

/* ---- options ---- */

enum { OPT_ROLLING = 0x3100, OPT_SEGMENT };

static const struct argp_option options[] = {
	{ "rolling", OPT_ROLLING, "SIZE", 0, "Record for days into the folder -o, of at most SIZE",
	  OPTIONS_RECORD },
	{ "segment", OPT_SEGMENT, "SIZE", OPTION_RARE,
	  "With --rolling: size of a part (default: a sixteenth, at most 256M)", OPTIONS_RECORD },
	{ 0 },
};

/* Refuses a size of parts that does not go with the size of the ring. */
static void check_segment(const struct rolling_args *a, struct argp_state *state)
{
	char low[24], high[24];
	uint64_t min, max;

	if (a->part_bytes && !a->size)
		argp_error(state, "--segment needs --rolling");
	if (!a->part_bytes)
		return;
	part_bounds(a->size, &min, &max);
	if (a->part_bytes < min || a->part_bytes > max)
		argp_error(state, "--segment: with this --rolling, use a size from %s to %s",
			   text__bytes(low, sizeof(low), min),
			   text__bytes(high, sizeof(high), max));
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
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
		if (text__parse_size(arg, &a->part_bytes) || !a->part_bytes)
			argp_error(state, "--segment: '%s' is not a size; try 64M", arg);
		break;
	case ARGP_KEY_END:
		check_segment(a, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

const struct argp rolling_argp = { .options = options, .parser = parse_option };

/* ---- the output ---- */

#define TICK UINT64_C(1000000000) /* ns between two calls of rolling_store__tick() */

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
	if (len > 4) /* the path ends in ".mtr" */
		path[len - 4] = '\0';
	return path;
}

/* Opens the folder, and its entry in the folder of all outputs, if there is one. 0 or a negative
 * error, logged. */
static int open_store(struct output_rolling *g)
{
	const struct rolling_args *a = &g->o.r->args.rolling;
	const struct ring_store_opts opts = { .size = a->size, .part_bytes = a->part_bytes };
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
		 (int)g->o.pid, folder__path(g->store->folder),
		 text__bytes(size, sizeof(size), g->o.r->args.rolling.size));
}

static int on_event(struct output *o, const struct event *e)
{
	struct output_rolling *g = (struct output_rolling *)o;

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

static int on_tick(struct output *o, uint64_t now)
{
	struct output_rolling *g = (struct output_rolling *)o;

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

/* Logs a summary of the folder. */
static void say_written(const struct output_rolling *g)
{
	struct ring_store_sum s = rolling_store__sum(g->store);
	char n[32], l[32], size[24], parts[32], gap[32], to[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", folder__path(g->store->folder)),
			     LOG_UINT("events", s.events), LOG_UINT("lost", s.lost),
			     LOG_UINT("bytes", s.bytes), LOG_UINT("segments", s.parts),
			     LOG_UINT("dropped", s.gap_events)),
		  "%s: %s, %s lost, %s in %s", folder__path(g->store->folder),
		  text__counted(n, sizeof(n), s.events, "event"), text__count(l, sizeof(l), s.lost),
		  text__bytes(size, sizeof(size), s.bytes),
		  text__counted(parts, sizeof(parts), s.parts, "part"));
	if (s.gap_to)
		log_info("removed the first %s (%s); their totals are in " TOTALS_FILE,
			 text__time(to, sizeof(to), s.gap_to),
			 text__counted(gap, sizeof(gap), s.gap_events, "event"));
	if (s.lost)
		log_warn("%s lost. If the buffer to the kernel was full, --ring-size 64M helps",
			 text__counted(l, sizeof(l), s.lost, "event"));
	output__say_next("report", folder__path(g->store->folder));
}

/* Completes the folder. Returns an exit code, logged. */
static int finish_folder(struct output_rolling *g, int err)
{
	int closed = session__now(g->o.session) ? rolling_store__finish(g->store) : 0;

	if (!g->err)
		g->err = closed;
	if (g->err) {
		log_err("%s: cannot write: %s", folder__path(g->store->folder),
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

/* Completes the folder, or removes it if it has no event. Returns an exit code, logged. */
static int on_end(struct output *o, const char *reason, int err)
{
	struct output_rolling *g = (struct output_rolling *)o;
	int status = g->failed || err ? EXIT_FAILED : EXIT_OK;

	if (g->store) {
		status = g->failed ? EXIT_FAILED : finish_folder(g, err);
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
	g->o.event = on_event;
	g->o.tick = on_tick;
	g->o.attached = on_attached;
	g->o.end = on_end;
	if (!g->o.times && !g->o.r->folder && open_store(g)) {
		on_end(&g->o, NULL, 0);
		return NULL;
	}
	return &g->o;
}
