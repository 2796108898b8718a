/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/shared_gpus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "model/analysis.h"
#include "model/inputs.h"
#include "model/words.h"
#include "report/ranks/ranks.h"
#include "report/text.h"

#define TIME_MOST (UINT64_C(1) << 61) /* larger times of facts are damaged */

static const char *const states[] = {
	[GPU_READ] = "read",	     [GPU_NOT_BEGUN] = "not_begun",
	[GPU_ENDED] = "ended",	     [GPU_NOT_COVERED] = "not_recorded",
	[GPU_NO_CLOCK] = "no_clock", [GPU_NOT_AGAIN] = "not_read_again",
};

static const char *const reasons[] = {
	[GPU_NOT_BEGUN] = "its recording begins later",
	[GPU_ENDED] = "it had ended",
	[GPU_NOT_COVERED] = "its recording ended earlier",
	[GPU_NO_CLOCK] = "its recording has no clock",
	[GPU_NOT_AGAIN] = "its recording cannot be read again",
};

/* ---- noting recordings ---- */

static void free_use(struct gpu_use *u)
{
	free(u->uuid);
	free(u->host);
	free(u->name);
}

void shared_gpus__free(struct shared_gpus *c)
{
	for (size_t i = 0; i < c->n_uses; i++)
		free_use(&c->uses[i]);
	free(c->uses);
	free(c->all);
	*c = (struct shared_gpus){ 0 };
}

/* Reads the clock of a recording, and which times it covers. */
static void read_times(struct gpu_use *u, const struct analysis *a)
{
	const char *why = facts__get(a->facts, "stop_reason");
	int64_t moved = 0;

	u->has_clock = facts__number(a->facts, "clock_zero_ns", &u->zero) && u->zero < TIME_MOST;
	facts__signed(a->facts, "clock_moved_ns", &moved);
	u->moved = (uint64_t)(moved < 0 ? -moved : moved);
	facts__number(a->facts, "window_start_ns", &u->begin);
	u->end = a->duration < TIME_MOST ? a->duration : TIME_MOST;
	u->exited = a->complete && why && !strcmp(why, "target exited");
}

/* Returns 0 or -ENOMEM. */
static int describe_use(struct gpu_use *u, const struct analysis *a, const struct model_device *d,
			const char *uuid)
{
	const char *host = a->host ?: facts__get(a->facts, "hostname"), *name;
	char key[64];

	*u = (struct gpu_use){ .uuid = strdup(uuid),
			       .host = host ? strdup(host) : NULL,
			       .name = strdup(a->name),
			       .pid = words__fact_number(a->facts, "pid"),
			       .started = words__fact_number(a->facts, "process_started"),
			       .marked = d->marked,
			       .mark_time = d->mark_time,
			       .mark_event = d->mark_event,
			       .mark_allocated = d->mark_allocated };
	snprintf(u->device, sizeof(u->device), "%s", d->name);
	snprintf(key, sizeof(key), "device.%u.name", d->device.index);
	name = facts__get(a->facts, key);
	if (name)
		text__clean(u->gpu, sizeof(u->gpu), name, strlen(name));
	snprintf(key, sizeof(key), "device.%u.total", d->device.index);
	u->total = words__fact_number(a->facts, key);
	read_times(u, a);
	return u->uuid && u->name && (u->host || !host) ? 0 : -ENOMEM;
}

/* A report may read a recording twice. */
static bool is_noted(const struct shared_gpus *c, uint32_t path, const char *device)
{
	for (size_t i = c->n_uses; i > 0 && c->uses[i - 1].path >= path; i--)
		if (c->uses[i - 1].path == path && !strcmp(c->uses[i - 1].device, device))
			return true;
	return false;
}

int shared_gpus__add(struct shared_gpus *c, const struct analysis *a, uint32_t path,
		     uint32_t recording)
{
	for (size_t i = 0; i < model__devices(a->model); i++) {
		struct model_device d;
		const char *uuid;
		char key[64];

		model__device(a->model, i, &d);
		snprintf(key, sizeof(key), "device.%u.uuid", d.device.index);
		uuid = facts__get(a->facts, key);
		if (d.device.type != DEVICE_CUDA || !rank__uses(&d) || !uuid || !*uuid ||
		    is_noted(c, path, d.name))
			continue;
		if (array__grow(&c->uses, &c->room, c->n_uses + 1, sizeof(*c->uses)) ||
		    describe_use(&c->uses[c->n_uses++], a, &d, uuid))
			return -ENOMEM;
		c->uses[c->n_uses - 1].path = path;
		c->uses[c->n_uses - 1].recording = recording;
	}
	return 0;
}

/* Callback for log__divert(): the first reading printed what is wrong with the recording. */
static void drop_message(void *ctx, enum log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	(void)text;
}

int shared_gpus__add_unmarked(struct shared_gpus *c, const char *file, const char *host,
			      uint32_t path)
{
	const struct model_opts end = { .at = AT_END };
	size_t first = c->n_uses;
	struct analysis *a;
	int err = 0;

	if (!strcmp(file, "-"))
		return 0;
	log__divert(drop_message, NULL);
	if (!analysis__open(file, &end, &a)) {
		a->host = host;
		if (!analysis__run(a, NULL, NULL))
			err = shared_gpus__add(c, a, path, RECORDING_NONE);
		analysis__free(a);
	}
	log__divert(NULL, NULL);
	for (size_t i = first; i < c->n_uses; i++)
		c->uses[i].marked = false;
	return err;
}

/* ---- the moment of a GPU ---- */

static int compare_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

static int compare_gpu(const struct gpu_use *x, const struct gpu_use *y)
{
	int order = strcmp(x->uuid, y->uuid);

	return order ? order : compare_text(x->host, y->host);
}

static int compare_number(uint64_t x, uint64_t y)
{
	return x < y ? -1 : x > y;
}

/* Compares the processes of two uses of one GPU. Recordings that do not know their process are of
 * different ones. */
static int compare_process(const struct gpu_use *x, const struct gpu_use *y)
{
	int order = compare_number(x->pid, y->pid);

	if (order || !x->pid)
		return order ?: compare_number(x->path, y->path);
	return compare_number(x->started, y->started);
}

/* For qsort(): by GPU, then by process, then by path. */
static int by_process(const void *a, const void *b)
{
	const struct gpu_use *x = a, *y = b;
	int order = compare_gpu(x, y);

	if (order)
		return order;
	return compare_process(x, y) ?: compare_number(x->path, y->path);
}

/* For qsort(): what was read first, then the most allocated memory. */
static int by_size(const void *a, const void *b)
{
	const struct gpu_use *x = a, *y = b;

	if ((x->state == GPU_READ) != (y->state == GPU_READ))
		return x->state == GPU_READ ? -1 : 1;
	if (x->allocated != y->allocated)
		return x->allocated > y->allocated ? -1 : 1;
	return compare_number(x->path, y->path);
}

/* Chooses the GPU's moment from n uses. Returns the use whose moment it is; NULL: none is known. */
static const struct gpu_use *choose_leader(const struct gpu_use *uses, size_t n)
{
	const struct gpu_use *leader = NULL;

	for (size_t i = 0; i < n; i++)
		if (uses[i].has_clock && uses[i].marked &&
		    (!leader || uses[i].mark_allocated > leader->mark_allocated))
			leader = &uses[i];
	return leader;
}

/* Sets state and time of a use at a moment, ns since 1970. */
static void place_use(struct gpu_use *u, uint64_t moment)
{
	u->state = GPU_READ;
	u->time = moment >= u->zero ? moment - u->zero : 0;
	if (!u->has_clock)
		u->state = GPU_NO_CLOCK;
	else if (moment < u->zero + u->begin)
		u->state = GPU_NOT_BEGUN;
	else if (u->time > u->end)
		u->state = u->exited ? GPU_ENDED : GPU_NOT_COVERED;
}

/* Sets the figures of a use from its recording, which was run up to the moment. Returns 0 or
 * -errno. */
static int read_figures(struct gpu_use *u, const struct analysis *a)
{
	int device = model__find_device(a->model, u->device), err;
	struct model_segments s;
	struct model_device d;
	uint64_t taken;

	if (device < 0)
		return -ENOENT;
	model__device(a->model, (size_t)device, &d);
	if (!d.marked)
		return -ENOENT;
	u->allocated = d.mark_allocated;
	u->is = d.mark_is;
	u->has_reserved = d.has_totals;
	u->reserved = d.has_totals ? d.mark_reserved : 0;
	err = model__segments(a->model, (size_t)device, ROWS_AT_MARK, FRAMES_USER, &s);
	if (err)
		return err;
	u->asleep = s.unmapped < u->reserved ? s.unmapped : u->reserved;
	taken = (d.has_totals ? u->reserved : u->allocated) - u->asleep;
	/* The driver answers now and then: an older figure is not of this moment. */
	u->driver_known = s.used_known && s.used_below == taken;
	u->driver = u->driver_known ? s.used : 0;
	model__free_segments(&s);
	return 0;
}

/* Runs a recording to the moment of opts and sets state and figures of a use. Returns 0 or -ENOMEM.
 */
static int read_recording(struct gpu_use *u, const char *path, const struct model_opts *opts)
{
	struct analysis *a;
	int err;

	if (analysis__open(path, opts, &a))
		return 0;
	if (analysis__run(a, NULL, NULL)) {
		analysis__free(a);
		return 0;
	}
	read_times(u, a); /* of another part, in a folder of --rolling */
	place_use(u, u->zero + u->time);
	err = u->state == GPU_READ ? read_figures(u, a) : 0;
	analysis__free(a);
	if (err)
		u->state = GPU_NOT_AGAIN;
	return err == -ENOMEM ? err : 0;
}

/* Reads path, a recording or a folder of --rolling, at u->time. leads: the moment is the use's own.
 * Returns 0 or -ENOMEM. */
static int read_use(struct gpu_use *u, const char *path, bool leads)
{
	struct model_opts opts = { .at = AT_TIME,
				   .at_time = u->time,
				   .at_event = leads ? u->mark_event : 0 };
	struct rolling_view *view;
	const char *part;
	int err = 0;

	u->state = GPU_NOT_AGAIN;
	if (!strcmp(path, "-"))
		return 0;
	if (!rolling_view__is(path))
		return read_recording(u, path, &opts);
	if (rolling_view__open(path, &view))
		return 0;
	opts.at_event = 0; /* it counts the events of one part */
	if (!rolling_view__segment(view, &opts, u->device, &part))
		err = read_recording(u, part, &opts);
	rolling_view__free(view);
	return err;
}

/* Moves the uses that count to the front: of each process the recording that covers the moment.
 * leader: path of the recording whose moment it is. Returns their number. */
static size_t keep_processes(struct gpu_use *uses, size_t n, uint32_t leader)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct gpu_use *last = kept ? &uses[kept - 1] : NULL, swap;

		if (last && !compare_process(last, &uses[i])) {
			if (last->path == leader)
				continue;
			if (uses[i].path != leader &&
			    (last->state == GPU_READ || uses[i].state != GPU_READ))
				continue;
			kept--;
		}
		swap = uses[kept];
		uses[kept++] = uses[i];
		uses[i] = swap;
	}
	return kept;
}

static size_t count_processes(const struct gpu_use *uses, size_t n)
{
	size_t count = n != 0;

	for (size_t i = 1; i < n; i++)
		count += compare_process(&uses[i - 1], &uses[i]) != 0;
	return count;
}

/* Reads the uses at the GPU's moment. leader: path of the recording whose moment it is. Returns 0
 * or -ENOMEM. */
static int read_uses(struct gpu_use *uses, size_t n, char *const *paths, uint32_t leader)
{
	int err = 0;

	log__hush(LOG_ERROR); /* the first reading printed the warnings */
	for (size_t i = 0; i < n && !err; i++)
		if (uses[i].state == GPU_READ)
			err = read_use(&uses[i], paths[uses[i].path], uses[i].path == leader);
	log__hush(LOG_DEBUG);
	return err;
}

/* Adds the GPU of n uses from `first` on. Returns 0 or -ENOMEM. */
static int add_gpu(struct shared_gpus *c, size_t first, size_t n, char *const *paths)
{
	struct gpu_use *uses = &c->uses[first];
	const struct gpu_use *leader = choose_leader(uses, n);
	struct shared_gpu *gpu = &c->all[c->n];
	uint32_t path = leader ? leader->path : 0;
	int err;

	*gpu = (struct shared_gpu){ .first = (uint32_t)first, .has_moment = leader != NULL };
	if (leader)
		gpu->moment = leader->zero + leader->mark_time;
	for (size_t i = 0; i < n; i++) {
		place_use(&uses[i], gpu->moment);
		if (!leader)
			uses[i].state = GPU_NO_CLOCK;
		else if (uses[i].has_clock && rolling_view__is(paths[uses[i].path]))
			uses[i].state = GPU_READ; /* another part may cover the moment */
	}
	gpu->n = (uint32_t)keep_processes(uses, n, path);
	err = read_uses(uses, gpu->n, paths, path);
	if (err)
		return err;
	qsort(uses, gpu->n, sizeof(*uses), by_size);
	for (uint32_t i = 0; i < gpu->n; i++) {
		if (leader && uses[i].path == path)
			gpu->leader = gpu->first + i;
		if (uses[i].state == GPU_READ && uses[i].moved > gpu->moved)
			gpu->moved = uses[i].moved;
	}
	c->n++;
	return 0;
}

static bool has_name(const struct gpu_use *uses, size_t n, const char *device)
{
	for (size_t i = 0; i < n && device; i++)
		if (!strcmp(uses[i].device, device))
			return true;
	return !device;
}

int shared_gpus__finish(struct shared_gpus *c, char *const *paths, const char *device)
{
	size_t end;
	int err = 0;

	if (!c->n_uses)
		return 0;
	qsort(c->uses, c->n_uses, sizeof(*c->uses), by_process);
	c->all = calloc(c->n_uses, sizeof(*c->all));
	if (!c->all)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_uses && !err; i = end) {
		for (end = i + 1; end < c->n_uses && !compare_gpu(&c->uses[i], &c->uses[end]);)
			end++;
		if (count_processes(&c->uses[i], end - i) > 1 &&
		    has_name(&c->uses[i], end - i, device))
			err = add_gpu(c, i, end - i, paths);
	}
	return err;
}

/* ---- text ---- */

#define MOST_GPUS 8
#define MOST_PROCESSES 8
#define NAME_MIN 10
#define CLOCK_NOTED 1000000 /* ns; the text names a clock that moved further */

enum { HEAD_DRIVER, HEAD_RESERVED, HEAD_ALLOCATED, HEAD_BAR, HEAD_TIME, HEAD_DEVICE, HEAD_PROCESS };

/* Returns the bytes that the process has on the GPU, as far as they are known. */
static uint64_t held_bytes(const struct gpu_use *u)
{
	if (u->driver_known)
		return u->driver;
	return u->has_reserved ? u->reserved - u->asleep : u->allocated;
}

static void put_use(struct grid *t, const struct gpu_use *u, uint64_t total, bool colour)
{
	char text[TEXT_BAR];

	grid__row(t);
	grid__put(t, HEAD_DEVICE, u->device, NULL);
	if (u->state != GPU_READ)
		return;
	grid__put(t, HEAD_DRIVER, u->driver_known ? text__bytes(text, 24, u->driver) : "-", NULL);
	grid__put(t, HEAD_RESERVED, u->has_reserved ? text__bytes(text, 24, u->reserved) : "-",
		  NULL);
	grid__put(t, HEAD_ALLOCATED, text__bytes(text, 24, u->allocated), NULL);
	if (total)
		grid__put(t, HEAD_BAR,
			  text__bar(text, held_bytes(u), total, 2 * REPORT_BAR, text__unicode(),
				    /*fill=*/true),
			  colour ? "\033[36m" : NULL);
	grid__put(t, HEAD_TIME, text__time(text, 24, u->time), NULL);
}

/* Writes "trainer, PID 4242", and why there are no figures. */
static const char *say_process(char *buf, size_t size, const struct gpu_use *u, size_t columns)
{
	char name[256], pid[32] = "";

	if (u->pid)
		snprintf(pid, sizeof(pid), ", PID %" PRIu64, u->pid);
	text__clean(name, sizeof(name), u->name, strlen(u->name));
	if (u->state == GPU_READ)
		snprintf(buf, size, "%s%s", name, pid);
	else
		snprintf(buf, size, "%s%s: not known, %s", name, pid, reasons[u->state]);
	return words__cut(buf, columns);
}

/* Prints what the figures do not say. */
static void print_limits(FILE *out, const struct gpu_use *uses, const struct shared_gpu *gpu,
			 size_t width)
{
	char bytes[24], name[256];
	size_t no_driver = 0;

	for (uint32_t i = 0; i < gpu->n; i++) {
		const struct gpu_use *u = &uses[i];

		no_driver += u->state == GPU_READ && !u->driver_known;
		if (u->state != GPU_READ || !u->asleep)
			continue;
		text__clean(name, sizeof(name), u->name, strlen(u->name));
		text__paragraph(out, width, "  ", "  ",
				"%s: %s of its reserved memory is not on the GPU (sleep mode)",
				name, text__bytes(bytes, sizeof(bytes), u->asleep));
	}
	if (no_driver)
		text__paragraph(out, width, "  ", "  ",
				"bars without the driver's figure are of the allocator's memory "
				"on the GPU; the process has more there, such as its CUDA context");
	if (gpu->moved > CLOCK_NOTED)
		text__paragraph(out, width, "  ", "  ",
				"the host's clock was moved by %s: the moments may differ by that",
				text__time(bytes, sizeof(bytes), gpu->moved));
	text__paragraph(out, width, "  ", "  ",
			"nothing is added up: how much of it they share (CUDA IPC) is not "
			"recorded");
}

/* Writes "2 processes on one GPU at the highest peak, 1.75 s of trainer: NVIDIA H200, 139.72 GiB,
 * GPU-...". */
static void say_gpu(char *buf, size_t size, const struct gpu_use *leader,
		    const struct shared_gpu *gpu, enum moment at)
{
	char time[24], name[256], total[40] = "", uuid[128], moment[320] = "";

	if (gpu->has_moment)
		snprintf(moment, sizeof(moment), " at %s%s of %s",
			 at == AT_PEAK ? "the highest peak, " : "",
			 text__time(time, sizeof(time), leader->mark_time),
			 text__clean(name, sizeof(name), leader->name, strlen(leader->name)));
	if (leader->total)
		snprintf(total, sizeof(total), "%s, ",
			 text__bytes(time, sizeof(time), leader->total));
	snprintf(buf, size, "%u processes on one GPU%s: %s%s%s%s", gpu->n, moment, leader->gpu,
		 *leader->gpu ? ", " : "", total,
		 text__clean(uuid, sizeof(uuid), leader->uuid, strlen(leader->uuid)));
}

/* Returns 0 or -ENOMEM. */
static int print_gpu(FILE *out, const struct shared_gpus *c, const struct shared_gpu *gpu,
		     const struct report_text_opts *o)
{
	static const struct column columns[] = {
		[HEAD_DRIVER] = { "Driver", true, 2, 10 },
		[HEAD_RESERVED] = { "Reserved", true, 0, 10 },
		[HEAD_ALLOCATED] = { "Allocated", true, 3, 10 },
		[HEAD_BAR] = { "", false, 5 },
		[HEAD_TIME] = { "At", true, 1, 9 },
		[HEAD_DEVICE] = { "Device", false, 1, 6 },
	};
	const struct gpu_use *uses = &c->uses[gpu->first];
	const struct gpu_use *leader = gpu->has_moment ? &c->uses[gpu->leader] : uses;
	size_t most = gpu->n < MOST_PROCESSES || !o->top ? gpu->n : MOST_PROCESSES, room;
	size_t width = report_text__width(out, o);
	struct grid *t = grid__new(columns, HEAD_PROCESS);
	bool colour = report_text__colour(out, o);
	char text[1024];
	int err;

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < most; i++)
		put_use(t, &uses[i], leader->total, colour);
	err = grid__error(t);
	grid__show(t, HEAD_BAR, report_text__bars(out, o, leader->total && gpu->has_moment));
	room = grid__fit(t, width, 3 * NAME_MIN, /*goes=*/5);
	say_gpu(text, sizeof(text), leader, gpu, o->at);
	fputc('\n', out);
	text__paragraph(out, width, "", "  ", "%s", text);
	grid__print_titles(t, out, colour, "Process");
	for (size_t i = 0; i < most && !err; i++)
		grid__print(t, out, i, say_process(text, sizeof(text), &uses[i], room));
	if (most < gpu->n)
		fprintf(out, "+ %zu more processes (--top 0)\n", gpu->n - most);
	print_limits(out, uses, gpu, width);
	grid__free(t);
	return err;
}

int shared_gpus__text(FILE *out, const struct shared_gpus *c, const struct report_text_opts *o)
{
	size_t most = c->n < MOST_GPUS || !o->top ? c->n : MOST_GPUS;
	int err = 0;

	for (size_t i = 0; i < most && !err; i++)
		err = print_gpu(out, c, &c->all[i], o);
	if (most < c->n)
		fprintf(out, "+ %zu more GPUs (--top 0)\n", c->n - most);
	return err;
}

/* ---- JSON ---- */

/* Returns the index of the recording in the report. */
static size_t index_of(const struct ranks *r, uint32_t added)
{
	size_t i = 0;

	while (i < r->n && r->all[i].added != added)
		i++;
	return i;
}

static void write_use(struct json *j, const struct gpu_use *u, const struct ranks *r)
{
	bool read = u->state == GPU_READ;

	json__open_object(j, NULL);
	json__uint_or_null(j, "recording", u->recording != RECORDING_NONE,
			   index_of(r, u->recording));
	json__string(j, "name", u->name);
	json__uint_or_null(j, "pid", u->pid, u->pid);
	json__string(j, "device", u->device);
	json__string(j, "state", states[u->state]);
	if (read)
		json__seconds(j, "time", u->time, /*decimals=*/9);
	else
		json__null(j, "time");
	json__uint_or_null(j, "allocated", read, u->allocated);
	json__string(j, "allocated_is", read ? figure__name(u->is) : NULL);
	json__uint_or_null(j, "reserved", read && u->has_reserved, u->reserved);
	json__uint_or_null(j, "asleep", read && u->has_reserved, u->asleep);
	json__uint_or_null(j, "driver_used", read && u->driver_known, u->driver);
	json__close_object(j);
}

void shared_gpus__json(struct json *j, const struct shared_gpus *c, const struct ranks *r)
{
	if (!c->n)
		return;
	json__open_array(j, "gpus");
	for (size_t i = 0; i < c->n; i++) {
		const struct shared_gpu *gpu = &c->all[i];
		const struct gpu_use *uses = &c->uses[gpu->first];
		const struct gpu_use *leader = gpu->has_moment ? &c->uses[gpu->leader] : uses;

		json__open_object(j, NULL);
		json__string(j, "uuid", uses->uuid);
		json__string(j, "host", uses->host);
		json__string(j, "name", *leader->gpu ? leader->gpu : NULL);
		json__uint_or_null(j, "total", leader->total, leader->total);
		json__uint_or_null(j, "moment_ns", gpu->has_moment, gpu->moment);
		json__uint_or_null(j, "moment_of", gpu->has_moment, index_of(r, leader->recording));
		json__uint(j, "clock_moved_ns", gpu->moved);
		json__open_array(j, "processes");
		for (uint32_t k = 0; k < gpu->n; k++)
			write_use(j, &uses[k], r);
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
}
