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

const char *rolling_store__why(const struct rolling_store *store, int err)
{
	if (store && *store->why)
		return store->why;
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

const struct totals *rolling_store__totals(const struct rolling_store *store)
{
	return store->totals;
}

/* ---- index ---- */

/* The PID of the recorded process; -1: not known. */
static int64_t get_pid(const struct rolling_store *store)
{
	uint64_t pid;

	return facts__number(store->facts, "pid", &pid) ? (int64_t)pid : -1;
}

static void part_name(char buf[32], unsigned int number)
{
	snprintf(buf, 32, "segment-%06u.mtr", number);
}

/* Makes the part's entry in the index. */
static struct folder_entry make_entry(const struct rolling_store *store,
				      const struct mtr_ring_part *part)
{
	struct folder_entry entry = { .kind = "segment",
				      .pid = get_pid(store),
				      .from = part->span.from,
				      .to = part->span.to,
				      .first_step = (int64_t)part->span.first_step,
				      .last_step = part->span.steps
							   ? (int64_t)(part->span.first_step +
								       part->span.steps - 1)
							   : -1,
				      .events = part->span.events,
				      .lost = part->span.lost,
				      .bytes = part->bytes };
	char file[32];
	size_t len;

	part_name(file, part->number);
	snprintf(entry.file, sizeof(entry.file), "%s", file);
	len = text__utf8(entry.name, 100, store->name, strlen(store->name));
	snprintf(entry.name + len, sizeof(entry.name) - len, "#%u", part->number);
	folder_entry__describe(&entry, store->facts);
	if (store->start) {
		text__date(entry.begin, sizeof(entry.begin), store->start + part->span.from);
		text__date(entry.end, sizeof(entry.end), store->start + part->span.to);
	}
	snprintf(entry.began, sizeof(entry.began), "%s", part->number == 1 ? "start" : "segment");
	if (part->closed)
		snprintf(entry.ended, sizeof(entry.ended), "segment");
	for (uint32_t i = 0; i < part->span.n_devices && i < FOLDER_DEVICES; i++) {
		const struct mtr_ring_device *device = &part->span.devices[i];
		struct folder_device *to = &entry.devices[entry.n_devices++];

		device__name(device->device, to->name, sizeof(to->name));
		to->peak_allocated = device->peak_allocated;
		to->peak_reserved = device->peak_reserved;
		to->allocated = device->allocated;
		to->reserved = device->reserved;
	}
	return entry;
}

/* Returns the bytes that a file of the folder takes; 0: no such file. */
static uint64_t file_bytes(const struct rolling_store *store, const char *name)
{
	struct stat st;
	uint64_t bytes = 0;
	char *path;

	if (asprintf(&path, "%s/%s", folder__path(store->folder), name) < 0)
		return 0;
	if (!stat(path, &st))
		bytes = round_up((uint64_t)st.st_size);
	free(path);
	return bytes;
}

/* Notes the new size of the index or the totals in *bytes, and the bytes that the folder took: both
 * the old and the new file existed until the new one took the name. */
static void note_rewritten(struct rolling_store *store, const char *name, uint64_t *bytes)
{
	uint64_t now = file_bytes(store, name);
	uint64_t all = mtr_rolling__used(store->ring) + store->totals_bytes + store->index_bytes +
		       now;

	*bytes = now;
	if (all > store->most)
		store->most = all;
}

/* Adds or replaces the part's entry in the index. ended: why it ended; NULL: as in part. 0 or
 * -errno. */
static int index_part(struct rolling_store *store, const struct mtr_ring_part *part,
		      const char *ended)
{
	struct folder_entry entry = make_entry(store, part);
	int err;

	if (ended)
		snprintf(entry.ended, sizeof(entry.ended), "%s", ended);
	err = folder__add(store->folder, &entry);
	note_rewritten(store, FOLDER_INDEX, &store->index_bytes);
	return err;
}

/* ---- callbacks of mtr_rolling.h ---- */

/* Creates the file of a part. Returns its descriptor or -errno. */
static int open_part(void *ctx, const struct mtr_ring_part *part)
{
	struct rolling_store *store = ctx;
	const char *start = facts__get(store->facts, "start");
	char *path;
	int err;

	if (!start || text__parse_date(start, &store->start))
		store->start = 0;
	part_name(store->file_name, part->number);
	if (asprintf(&path, "%s/%s", folder__path(store->folder), store->file_name) < 0)
		return -ENOMEM;
	err = outfile__create(path, OUTFILE_DIRECT, /*force=*/false, &store->file);
	free(path);
	return err ? err : outfile__fd(store->file);
}

/* The part has all blocks that were live at its begin: lists it from now on, so that it is found
 * if we are killed. Until then, the part before it is the newest that can be read. */
static int part_ready(void *ctx, const struct mtr_ring_part *part)
{
	return index_part(ctx, part, /*ended=*/NULL);
}

/* The part is complete, or failed with err. */
static int part_done(void *ctx, const struct mtr_ring_part *part, int err)
{
	struct rolling_store *store = ctx;
	const char *ended = facts__get(store->facts, "stop_reason") ?: "segment";
	int close_err = outfile__commit(store->file), index_err;

	store->file = NULL;
	err = err ?: close_err;
	index_err = index_part(store, part, err ? strerror(-err) : ended);
	return err ?: index_err;
}

/* Removes the oldest part. gap: the time that all removed parts covered. 0 or -errno. */
static int drop_part(void *ctx, const struct mtr_ring_part *part, const struct mtr_ring_span *gap)
{
	struct rolling_store *store = ctx;
	/* The gap ends where the next part begins, whatever the index rounds. */
	struct folder_gap note = { .from = gap->from,
				   .to = part->span.to,
				   .events = part->span.events,
				   .bytes = part->bytes };
	char name[32];
	int err;

	snprintf(note.why, sizeof(note.why), "the ring was full");
	part_name(name, part->number);
	err = folder__drop(store->folder, name, &note);
	note_rewritten(store, FOLDER_INDEX, &store->index_bytes);
	store->dropped++;
	return err;
}

/* ---- totals ---- */

/* Writes what is known of the dropped time: sums over the dropped parts. */
static void put_gap(struct json *json, const struct mtr_ring_span *gap, uint64_t parts)
{
	char name[DEVICE_NAME];

	json__open_object(json, "gap");
	json__uint(json, "from_ns", gap->from);
	json__uint(json, "to_ns", gap->to);
	json__uint(json, "segments", parts);
	json__uint(json, "events", gap->events);
	json__uint(json, "lost", gap->lost);
	json__uint(json, "steps", gap->steps);
	json__uint(json, "ooms", gap->ooms);
	json__open_array(json, "devices");
	for (uint32_t i = 0; i < gap->n_devices; i++) {
		const struct mtr_ring_device *device = &gap->devices[i];

		json__open_object(json, NULL);
		json__string(json, "device", device__name(device->device, name, sizeof(name)));
		json__uint(json, "peak_allocated", device->peak_allocated);
		json__uint(json, "peak_time_ns", device->peak_time);
		json__uint(json, "peak_reserved", device->peak_reserved);
		json__uint(json, "allocs", device->allocs);
		json__uint(json, "frees", device->frees);
		json__uint(json, "total_allocated", device->total_allocated);
		json__close_object(json);
	}
	json__close_array(json);
	json__close_object(json);
}

/* Writes the file with the totals of the whole capture. */
static int put_totals(FILE *out, const void *ctx)
{
	const struct rolling_store *store = ctx;
	const char *start = facts__get(store->facts, "start");
	const struct mtr_ring_span *gap = mtr_rolling__gap(store->ring);
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__int(j, "memtrace_totals", TOTALS_VERSION);
	json__string(j, "version", MEMTRACE_VERSION);
	json__string(j, "start", start);
	json__int(j, "pid", get_pid(store));
	json__uint(j, "ring_bytes", store->opts.size);
	if (gap)
		put_gap(j, gap, store->dropped);
	totals__json(store->totals, j);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int write_totals(struct rolling_store *store)
{
	int err = outfile__rewrite(folder__path(store->folder), TOTALS_FILE, put_totals, store);

	note_rewritten(store, TOTALS_FILE, &store->totals_bytes);
	return err;
}

/* ---- open and close ---- */

/* Reserves room for the totals. Returns the bytes for parts: the size without twice the index
 * and twice the totals, which exist twice while they are replaced. */
static uint64_t compute_space(struct rolling_store *store)
{
	uint64_t index = round_up((store->opts.size / store->opts.part_bytes + 4) * ENTRY_BYTES);

	store->totals_room = store->opts.size / 32 < TOTALS_MAX ? store->opts.size / 32
								: TOTALS_MAX;
	store->totals_room = store->totals_room / MTR_RING_ROUND * MTR_RING_ROUND;
	return store->opts.size - 2 * index - 2 * store->totals_room;
}

/* Makes the folder. -EEXIST: it has recordings already. */
static int open_folder(struct rolling_store *store, const char *path)
{
	size_t n = 0;
	int err = folder__create(path, /*force=*/false, &store->folder);

	if (err)
		return err;
	folder__entries(store->folder, &n);
	return n ? -EEXIST : 0;
}

int rolling_store__open(const char *path, const struct dict *dict, const struct facts *facts,
			const struct ring_store_opts *opts, struct rolling_store **ret)
{
	struct rolling_store *store = calloc(1, sizeof(*store));
	struct mtr_ring_opts ro = { .open = open_part,
				    .ready = part_ready,
				    .done = part_done,
				    .drop = drop_part,
				    .ctx = store };
	const char *slash;
	uint64_t min, max;
	int err;

	if (!store)
		return -ENOMEM;
	store->opts = *opts;
	store->facts = facts;
	part_bounds(opts->size, &min, &max);
	if (!store->opts.part_bytes)
		store->opts.part_bytes = opts->size / 16 < (256u << 20) ? opts->size / 16
									: 256u << 20;
	if (store->opts.part_bytes < min)
		store->opts.part_bytes = min;
	if (store->opts.part_bytes > max)
		store->opts.part_bytes = max;
	err = open_folder(store, path);
	if (err)
		goto fail;
	slash = strrchr(folder__path(store->folder), '/');
	store->name = strdup(slash ? slash + 1 : folder__path(store->folder));
	ro.space = compute_space(store);
	ro.part_bytes = store->opts.part_bytes;
	store->ring = mtr_rolling__new(dict, facts, &ro);
	if (!store->ring) {
		err = -errno;
		goto fail;
	}
	store->totals = totals__new(store->totals_room - MTR_RING_ROUND);
	if (store->name && store->totals) {
		*ret = store;
		return 0;
	}
	err = -ENOMEM;
fail:
	rolling_store__free(store, err != -EEXIST);
	return err;
}

void rolling_store__free(struct rolling_store *store, bool empty)
{
	char *index;

	if (!store)
		return;
	mtr_rolling__free(store->ring);
	totals__free(store->totals);
	if (store->file)
		(void)outfile__commit(store->file);
	if (empty && store->folder &&
	    asprintf(&index, "%s/%s", folder__path(store->folder), FOLDER_INDEX) >= 0) {
		/* rmdir() removes the folder only if nothing else is in it. */
		(void)unlink(index);
		(void)rmdir(folder__path(store->folder));
		free(index);
	}
	folder__free(store->folder);
	free(store->name);
	free(store);
}

int rolling_store__event(struct rolling_store *store, const struct event *event)
{
	uint64_t allocated, reserved;
	int err = mtr_rolling__event(store->ring, event);

	if (err)
		return err;
	mtr_rolling__level(store->ring, event->device, &allocated, &reserved);
	return totals__event(store->totals, event, allocated, reserved);
}

/* The newest part; NULL: there is none. */
static const struct mtr_ring_part *last_part(const struct rolling_store *store)
{
	const struct mtr_ring_part *part, *last = NULL;

	for (uint32_t i = 0; (part = mtr_rolling__part(store->ring, i)); i++)
		last = part;
	return last;
}

int rolling_store__tick(struct rolling_store *store, uint64_t now)
{
	const struct mtr_ring_part *last;
	uint64_t pause;
	int err = mtr_rolling__flush(store->ring);

	if (err || now < store->next_totals)
		return err;
	last = last_part(store);
	if (!last)
		return 0;
	err = write_totals(store);
	if (!err && !last->closed)
		err = index_part(store, last, /*ended=*/NULL);
	pause = (store->totals_bytes + store->index_bytes) * UINT64_C(1000000000) / TOTALS_RATE;
	store->next_totals = now + (pause > TOTALS_EVERY ? pause : TOTALS_EVERY);
	return err;
}

int rolling_store__finish(struct rolling_store *store)
{
	int err = mtr_rolling__finish(store->ring), totals_err = 0;

	if (last_part(store))
		totals_err = write_totals(store);
	return err ?: totals_err;
}

struct ring_store_sum rolling_store__sum(const struct rolling_store *store)
{
	const struct mtr_ring_span *gap = mtr_rolling__gap(store->ring);
	struct ring_store_sum sum = { .dropped = store->dropped,
				      .bytes = mtr_rolling__used(store->ring) +
					       store->totals_bytes + store->index_bytes };
	uint64_t most = mtr_rolling__most_used(store->ring) + store->totals_bytes +
			store->index_bytes;
	struct totals_whole whole;

	totals__whole(store->totals, &whole);
	sum.events = whole.events;
	sum.lost = whole.lost;
	sum.most_bytes = store->most > most ? store->most : most;
	while (mtr_rolling__part(store->ring, (uint32_t)sum.parts))
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
static void check_segment(const struct rolling_args *args, struct argp_state *state)
{
	char low[24], high[24];
	uint64_t min, max;

	if (args->part_bytes && !args->size)
		argp_error(state, "--segment needs --rolling");
	if (!args->part_bytes)
		return;
	part_bounds(args->size, &min, &max);
	if (args->part_bytes < min || args->part_bytes > max)
		argp_error(state, "--segment: with this --rolling, use a size from %s to %s",
			   text__bytes(low, sizeof(low), min),
			   text__bytes(high, sizeof(high), max));
}

/* Parses one option. A refused value ends the program with a message. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct rolling_args *args = state->input;

	switch (key) {
	case OPT_ROLLING:
		if (text__parse_size(arg, &args->size) || args->size < RING_SIZE_MIN ||
		    args->size > RING_SIZE_MAX)
			argp_error(state, "--rolling: '%s' is not a size of at least 1M; try 10G",
				   arg);
		break;
	case OPT_SEGMENT:
		if (text__parse_size(arg, &args->part_bytes) || !args->part_bytes)
			argp_error(state, "--segment: '%s' is not a size; try 64M", arg);
		break;
	case ARGP_KEY_END:
		check_segment(args, state);
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
	struct output output; /* first: the output is cast to this struct */
	struct rolling_store *store;
	uint64_t last_tick;	   /* time of the last flush, ns since the start */
	int err;		   /* negative error of the store */
	bool failed;		   /* an error was logged */
	struct folder_entry entry; /* entry in the index of o.r->folder, if there is one */
};

/* Returns the folder's path: a name within output.r->folder if there is one, otherwise -o,
 * otherwise the default name without ".mtr". The caller frees it. */
static char *folder_path(struct output_rolling *rolling)
{
	const struct output *output = &rolling->output;
	char *path;
	size_t len;

	if (output->recording->folder)
		return output_file__begin_entry(output, "rolling", "", &rolling->entry);
	if (output->recording->args.output)
		return strdup(output->recording->args.output);
	path = output__path(output);
	len = path ? strlen(path) : 0;
	if (len > 4) /* the path ends in ".mtr" */
		path[len - 4] = '\0';
	return path;
}

/* Opens the folder, and its entry in the folder of all outputs, if there is one. 0 or a negative
 * error, logged. */
static int open_store(struct output_rolling *rolling)
{
	const struct rolling_args *args = &rolling->output.recording->args.rolling;
	const struct ring_store_opts opts = { .size = args->size, .part_bytes = args->part_bytes };
	char *path = folder_path(rolling);
	int err = path ? rolling_store__open(path, session__dict(rolling->output.session),
					     session__facts(rolling->output.session), &opts,
					     &rolling->store)
		       : -ENOMEM;

	if (err)
		log_err("%s: %s", path ? path : "a recording", rolling_store__why(NULL, err));
	else if (rolling->output.recording->folder)
		err = output_file__add_entry(&rolling->output, &rolling->entry);
	rolling->failed = err;
	free(path);
	return err;
}

static void say_into(const struct output_rolling *rolling)
{
	char size[24];

	log_info("recording PID %d into %s (at most %s; removes the oldest part when full)",
		 (int)rolling->output.pid, folder__path(rolling->store->folder),
		 text__bytes(size, sizeof(size), rolling->output.recording->args.rolling.size));
}

/* struct output.event: the first event opens the folder. 0 or -errno. */
static int on_event(struct output *output, const struct event *event)
{
	struct output_rolling *rolling = (struct output_rolling *)output;

	if (!rolling->store) {
		rolling->err = open_store(rolling);
		if (rolling->err)
			return rolling->err;
		say_into(rolling);
	}
	if (rolling->output.recording->folder)
		folder_entry__event(&rolling->entry, event);
	rolling->err = rolling_store__event(rolling->store, event);
	return rolling->err;
}

static int on_tick(struct output *output, uint64_t now)
{
	struct output_rolling *rolling = (struct output_rolling *)output;

	if (!rolling->store || now - rolling->last_tick < TICK)
		return 0;
	rolling->last_tick = now;
	rolling->err = rolling_store__tick(rolling->store, now);
	return rolling->err;
}

static int on_attached(struct output *output)
{
	const struct output_rolling *rolling = (struct output_rolling *)output;

	if (rolling->store)
		say_into(rolling);
	return EXIT_OK;
}

/* Logs a summary of the folder. */
static void say_written(const struct output_rolling *rolling)
{
	struct ring_store_sum sum = rolling_store__sum(rolling->store);
	char counted[32], lost_text[32], size[24], parts[32], gap[32], to[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", folder__path(rolling->store->folder)),
			     LOG_UINT("events", sum.events), LOG_UINT("lost", sum.lost),
			     LOG_UINT("bytes", sum.bytes), LOG_UINT("segments", sum.parts),
			     LOG_UINT("dropped", sum.gap_events)),
		  "%s: %s, %s lost, %s in %s", folder__path(rolling->store->folder),
		  text__counted(counted, sizeof(counted), sum.events, "event"),
		  text__count(lost_text, sizeof(lost_text), sum.lost),
		  text__bytes(size, sizeof(size), sum.bytes),
		  text__counted(parts, sizeof(parts), sum.parts, "part"));
	if (sum.gap_to)
		log_info("removed the first %s (%s); their totals are in " TOTALS_FILE,
			 text__time(to, sizeof(to), sum.gap_to),
			 text__counted(gap, sizeof(gap), sum.gap_events, "event"));
	if (sum.lost)
		log_warn("%s lost. If the buffer to the kernel was full, --ring-size 64M helps",
			 text__counted(lost_text, sizeof(lost_text), sum.lost, "event"));
	output__say_next("report", folder__path(rolling->store->folder));
}

/* Completes the folder. Returns an exit code, logged. */
static int finish_folder(struct output_rolling *rolling, int err)
{
	int closed = session__now(rolling->output.session) ? rolling_store__finish(rolling->store)
							   : 0;

	if (!rolling->err)
		rolling->err = closed;
	if (rolling->err) {
		log_err("%s: cannot write: %s", folder__path(rolling->store->folder),
			rolling_store__why(rolling->store, rolling->err));
		return EXIT_FAILED;
	}
	if (err) {
		log_err("the capture broke off: %s", strerror(-err));
		return EXIT_FAILED;
	}
	if (rolling_store__sum(rolling->store).events) {
		rolling->output.recording->written++;
		say_written(rolling);
	} else if (session__now(rolling->output.session)) {
		log_warn("PyTorch allocated nothing while attached: nothing was written");
	}
	return EXIT_OK;
}

/* Completes the folder, or removes it if it has no event. Returns an exit code, logged. */
static int on_end(struct output *output, const char *reason, int err)
{
	struct output_rolling *rolling = (struct output_rolling *)output;
	int status = rolling->failed || err ? EXIT_FAILED : EXIT_OK;

	if (rolling->store) {
		status = rolling->failed ? EXIT_FAILED : finish_folder(rolling, err);
		rolling->entry.bytes = rolling_store__sum(rolling->store).bytes;
		if (output->recording->folder &&
		    output_file__finish_entry(output, &rolling->entry, reason))
			status = EXIT_FAILED;
		rolling_store__free(rolling->store, !rolling_store__sum(rolling->store).events);
	} else if (err && !rolling->failed) {
		log_err("the capture broke off: %s", strerror(-err));
	}
	free(rolling);
	return status;
}

struct output *output_rolling__new(const struct output *process)
{
	struct output_rolling *rolling = calloc(1, sizeof(*rolling));

	if (!rolling) {
		log_err("out of memory");
		return NULL;
	}
	rolling->output = *process;
	rolling->output.event = on_event;
	rolling->output.tick = on_tick;
	rolling->output.attached = on_attached;
	rolling->output.end = on_end;
	if (!rolling->output.times && !rolling->output.recording->folder && open_store(rolling)) {
		on_end(&rolling->output, NULL, 0);
		return NULL;
	}
	return &rolling->output;
}
