/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Captures after a rule has fired, one at a time. `dump` shows what is live now, without probes.
 * `record` then records for a while. `report`, and `leaks` for growth rules, read the recording for
 * the index and the responsible line. Each is a separate process, so that its memory is freed and
 * its failure does not end `watch`.
 */
#include "watch/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "record/folder.h"
#include "watch/targets/spawn.h"

/* time limit of dump, in ns; of record beyond its capture length */
#define DUMP_MOST UINT64_C(30000000000)
#define RECORD_MORE UINT64_C(60000000000)
/* time limit of a capture that is limited only by steps, in ns */
#define STEPS_MOST UINT64_C(1800000000000)
#define REPORT_MOST UINT64_C(600000000000)
#define KILL_AFTER UINT64_C(20000000000) /* delay between SIGINT and SIGKILL, in ns */
#define TOP "8"
#define NICE 10		     /* nice value of background work */
#define LABEL "watch-killed" /* begins the names of the recorder's files */
#define EXPECTED_MAX 64	     /* ended processes whose files are expected */
/* Time for the recorder to write a file, in ns. A process that ended well has none. */
#define WRITE_MOST UINT64_C(60000000000)
/* Delays before the recorder starts again, in ns: after it has ended by itself, and after a
 * failure. */
#define AGAIN_AFTER UINT64_C(5000000000)
#define AGAIN_AFTER_FAILURE UINT64_C(60000000000)
#define STOP_MOST 20000 /* time for the recorder to detach, in ms */

enum stage { IDLE, DUMPING, RECORDING, REPORTING, BLAMING };

struct expected {
	struct watch_shot shot;
	char started[40]; /* start of the process in RFC 3339 */
	uint64_t deadline;
};

/* The recorder of --on-kill. */
struct black_box {
	struct subprocess recorder;
	uint64_t next_start; /* CLOCK_MONOTONIC, ns */
	bool one_ended;	     /* a watched process has ended since the recorder started */
	struct expected expected[EXPECTED_MAX];
	size_t n;
};

struct watch_capture {
	struct watch *w;
	struct folder *folder;
	struct black_box *box; /* NULL: without --on-kill */
	struct watch_shot shot;
	enum stage stage;
	struct subprocess process; /* process of the current stage */
	uint64_t deadline;
	bool asked; /* SIGINT was sent */
	int out;    /* descriptor of the output of dump, report or leaks */
	struct outfile *dump;
	char stem[128];
	json_t *doc; /* parsed report */
};

struct watch_capture *watch_capture__new(struct watch *w)
{
	struct watch_capture *c = calloc(1, sizeof(*c));
	const char *output = w->args.output;
	int err = c ? folder__create(output, false, &c->folder) : -ENOMEM;
	char path[512];

	if (err) {
		log_err("%s: %s", text__clean(path, sizeof(path), output, strlen(output)),
			folder__why(err));
		free(c);
		return NULL;
	}
	c->w = w;
	c->out = -1;
	if (!w->args.on_kill)
		return c;
	c->box = calloc(1, sizeof(*c->box));
	if (c->box)
		return c;
	log_err("out of memory");
	watch_capture__free(c);
	return NULL;
}

void watch_shot__of(struct watch_shot *s, const struct watch_target *t, const char *rule)
{
	*s = (struct watch_shot){ .pid = t->pid, .rank = t->rank };
	snprintf(s->name, sizeof(s->name), "%s", t->name);
	snprintf(s->comm, sizeof(s->comm), "%s", t->comm);
	snprintf(s->rule, sizeof(s->rule), "%s", rule);
	snprintf(s->container, sizeof(s->container), "%s", t->cgroup.container);
	snprintf(s->pod, sizeof(s->pod), "%s", t->cgroup.pod);
	text__date(s->begin, sizeof(s->begin), clock__read(CLOCK_REALTIME));
}

bool watch_capture__busy(const struct watch_capture *c)
{
	return c->stage != IDLE || (c->box && c->box->n);
}

/* ---- stored captures ---- */

/* Removes the entry's dump file. */
static void drop_dump(const struct watch_capture *c, const char *file)
{
	char path[4096];
	size_t len = strlen(file);

	if (len < 4 || strchr(file, '/'))
		return;
	if (snprintf(path, sizeof(path), "%s/%.*s.dump.json", folder__path(c->folder), (int)len - 4,
		     file) < (int)sizeof(path))
		unlink(path);
}

static bool is_mine(const struct folder_entry *e)
{
	return !strncmp(e->file, "watch-", 6);
}

/* Removes the oldest captures while their number or size is above the limit. */
static void drop_old(struct watch_capture *c)
{
	for (;;) {
		const struct folder_entry *v, *oldest = NULL;
		uint64_t bytes = 0;
		size_t n, mine = 0;
		char file[256];

		v = folder__entries(c->folder, &n);
		for (size_t i = 0; i < n; i++) {
			if (!is_mine(&v[i]))
				continue;
			oldest = oldest && strcmp(oldest->begin, v[i].begin) <= 0 ? oldest : &v[i];
			bytes += v[i].bytes;
			mine++;
		}
		if (mine <= 1 || (mine <= c->w->args.max_captures && bytes <= c->w->args.max_bytes))
			return;
		snprintf(file, sizeof(file), "%s", oldest->file);
		if (folder__drop(c->folder, file, NULL))
			return;
		drop_dump(c, file);
	}
}

/* ---- the stages ---- */

static void fail(struct watch_capture *c, const char *what)
{
	c->w->failed++;
	watch_say__shot(c->w, "failed", &c->shot, what);
}

static void end_stages(struct watch_capture *c)
{
	c->stage = IDLE;
	c->asked = false;
	if (c->out >= 0)
		close(c->out);
	c->out = -1;
}

static int begin_stage(struct watch_capture *c, enum stage stage, const char *const *argv, int out,
		       int nice_by, uint64_t most)
{
	int err = watch_spawn__self(argv, out, SUBPROCESS_INHERIT, nice_by, &c->process);

	if (err)
		return err;
	c->stage = stage;
	c->asked = false;
	c->deadline = clock__monotonic() + most;
	return 0;
}

static int begin_dump(struct watch_capture *c)
{
	char pid[16];
	const char *const argv[] = { "dump", "-p", pid, "--format", "json", "--top", "1000", NULL };
	int err = outfile__create(c->shot.snapshot, OUTFILE_RENAME, false, &c->dump);

	snprintf(pid, sizeof(pid), "%d", (int)c->shot.pid);
	if (!err)
		err = begin_stage(c, DUMPING, argv, outfile__fd(c->dump), 0, DUMP_MOST);
	if (err) {
		outfile__discard(c->dump);
		c->dump = NULL;
	}
	return err;
}

static int begin_record(struct watch_capture *c)
{
	char pid[16], time[32], steps[32], size[32];
	const char *argv[20] = { "record",     "-q",	     "-p", pid,	     "-o",
				 c->shot.file, "--max-size", size, "--cost", c->w->args.cost };
	size_t n = 10;

	snprintf(pid, sizeof(pid), "%d", (int)c->shot.pid);
	snprintf(size, sizeof(size), "%" PRIu64,
		 c->w->args.max_bytes < 65536 ? UINT64_C(65536) : c->w->args.max_bytes);
	if (c->w->args.capture) {
		snprintf(time, sizeof(time), "%" PRIu64 "ns", c->w->args.capture);
		argv[n++] = "-d";
		argv[n++] = time;
	}
	if (c->w->args.capture_steps) {
		snprintf(steps, sizeof(steps), "%" PRIu64, c->w->args.capture_steps);
		argv[n++] = "--steps";
		argv[n++] = steps;
	}
	return begin_stage(c, RECORDING, argv, -1, 0,
			   c->w->args.capture ? c->w->args.capture + RECORD_MORE : STEPS_MOST);
}

static int begin_report(struct watch_capture *c)
{
	const char *const argv[] = { "report", "--format", "json",	 "--at", "end",
				     "--top",  TOP,	   c->shot.file, NULL };

	c->out = memfd_create("report", MFD_CLOEXEC);
	if (c->out < 0)
		return -errno;
	return begin_stage(c, REPORTING, argv, c->out, NICE, REPORT_MOST);
}

/* For growth: finds the growing line, if the recording is long enough. */
static int begin_leaks(struct watch_capture *c)
{
	const char *const argv[] = { "leaks", "--format", "json", "--top", "1", c->shot.file, NULL };

	c->out = memfd_create("leaks", MFD_CLOEXEC);
	if (c->out < 0)
		return -errno;
	return begin_stage(c, BLAMING, argv, c->out, NICE, REPORT_MOST);
}

/* Makes file names from time and process. */
static void make_paths(struct watch_capture *c)
{
	struct watch_shot *s = &c->shot;
	char when[40], *path;

	snprintf(when, sizeof(when), "%s", s->begin);
	for (char *p = when; *p; p++)
		if (*p == ':' || *p == '.')
			*p = '-';
	snprintf(c->stem, sizeof(c->stem), "watch-%s-%d", when, (int)s->pid);
	path = folder__new_path(c->folder, c->stem, ".mtr");
	snprintf(s->file, sizeof(s->file), "%s",
		 path && strlen(path) < sizeof(s->file) - 16 ? path : "");
	free(path);
	if (*s->file)
		snprintf(s->snapshot, sizeof(s->snapshot), "%.*s.dump.json",
			 (int)strlen(s->file) - 4, s->file);
}

int watch_capture__begin(struct watch_capture *c, const struct watch_shot *shot)
{
	if (c->stage != IDLE)
		return -EBUSY;
	c->shot = *shot;
	make_paths(c);
	if (!*c->shot.file) {
		fail(c, "the path of the folder is too long for a recording; choose a shorter one");
		return 0;
	}
	if (!begin_dump(c))
		return 0;
	*c->shot.snapshot = '\0';
	if (begin_record(c)) {
		fail(c, "cannot start the recorder");
		end_stages(c);
	}
	return 0;
}

/* Reads a recording that is in the folder already and reports it. Returns 0; -EBUSY if a capture is
 * running. */
static int take_recording(struct watch_capture *c, const struct watch_shot *shot,
			  const struct folder_entry *e)
{
	struct watch_shot *s = &c->shot;

	if (c->stage != IDLE)
		return -EBUSY;
	*s = *shot;
	s->events = e->events;
	s->lost = e->lost;
	s->bytes = e->bytes;
	snprintf(s->text, sizeof(s->text), "%s", e->ended);
	snprintf(c->stem, sizeof(c->stem), "%s", e->name);
	if (snprintf(s->file, sizeof(s->file), "%s/%s", folder__path(c->folder), e->file) >=
	    (int)sizeof(s->file)) {
		*s->file = '\0';
		fail(c, "the path of the folder is too long; choose a shorter one");
	} else if (begin_report(c)) {
		fail(c, "the recording cannot be read");
		end_stages(c);
	}
	return 0;
}

/* ---- results of the stages ---- */

static void end_dump(struct watch_capture *c, bool ok)
{
	struct outfile *dump = c->dump;
	struct stat st;
	int err;

	c->dump = NULL;
	if (!ok || fstat(outfile__fd(dump), &st) || !st.st_size) {
		outfile__discard(dump);
		*c->shot.snapshot = '\0';
		fail(c, "cannot read the live blocks from outside");
		return;
	}
	err = outfile__commit(dump);
	if (err) {
		*c->shot.snapshot = '\0';
		fail(c, strerror(-err));
		return;
	}
	watch_say__shot(c->w, "snapshot", &c->shot, "wrote the live blocks");
}

static uint64_t number_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v) && json_integer_value(v) > 0)
		return (uint64_t)json_integer_value(v);
	return 0;
}

static const char *string_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Writes "train.py:36 (forward)". */
static void write_line(const json_t *row, char *buf, size_t size)
{
	const char *path = string_of(row, "file");
	const char *func = string_of(row, "function");
	const char *base = strrchr(path, '/');
	char file[160], name[64];

	base = base ? base + 1 : path;
	snprintf(buf, size, "%s:%" PRIu64 " (%s)",
		 text__clean(file, sizeof(file), base, strlen(base)), number_of(row, "line"),
		 text__clean(name, sizeof(name), func, strlen(func)));
}

/* Takes the first row with a known line. Memory from before attach has none. */
static void read_blame(struct watch_shot *s, const json_t *rows)
{
	char line[216], bytes[24];
	size_t i;
	json_t *r;

	json_array_foreach(rows, i, r) {
		if (!*string_of(r, "file"))
			continue;
		write_line(r, line, sizeof(line));
		snprintf(s->blame, sizeof(s->blame), "%s %s", line,
			 text__bytes(bytes, sizeof(bytes), number_of(r, "bytes")));
		return;
	}
}

static void read_leaks(struct watch_shot *s, const json_t *doc)
{
	const json_t *d, *first;
	char line[216], bytes[24];
	double a_step;
	size_t i;

	json_array_foreach(json_object_get(doc, "devices"), i, d) {
		if (*s->device && strcmp(string_of(d, "device"), s->device))
			continue;
		first = json_array_get(json_object_get(d, "leaks"), 0);
		a_step = json_number_value(json_object_get(first, "bytes_per_step"));
		if (!*string_of(first, "file") || a_step < 1 || a_step > 1e18)
			continue;
		write_line(first, line, sizeof(line));
		snprintf(s->blame, sizeof(s->blame), "%s +%s a %s", line,
			 text__bytes(bytes, sizeof(bytes), (uint64_t)a_step),
			 strcmp(string_of(d, "clock"), "time") ? "step" : "second");
		return;
	}
}

static void read_devices(struct folder_entry *e, const json_t *devices)
{
	size_t i;
	json_t *d;

	json_array_foreach(devices, i, d) {
		struct folder_device *to = &e->devices[e->n_devices];

		if (e->n_devices == FOLDER_DEVICES)
			return;
		e->n_devices++;
		snprintf(to->name, sizeof(to->name), "%s", string_of(d, "device"));
		to->allocated = number_of(d, "allocated");
		to->reserved = number_of(d, "reserved");
		to->peak_allocated = number_of(d, "peak_allocated");
		to->peak_reserved = number_of(d, "peak_reserved");
	}
}

static void put_entry(struct watch_capture *c, const json_t *doc)
{
	const json_t *capture = json_object_get(doc, "capture");
	struct watch_shot *s = &c->shot;
	const char *base = strrchr(s->file, '/');
	struct folder_entry e = {
		.kind = "window", .pid = s->pid, .rank = s->rank, .first_step = -1, .last_step = -1
	};
	struct stat st;
	int err;

	snprintf(e.file, sizeof(e.file), "%.255s", base ? base + 1 : s->file);
	snprintf(e.name, sizeof(e.name), "%s", c->stem);
	snprintf(e.comm, sizeof(e.comm), "%s", s->comm);
	snprintf(e.container, sizeof(e.container), "%s", s->container);
	snprintf(e.pod, sizeof(e.pod), "%s", s->pod);
	snprintf(e.begin, sizeof(e.begin), "%s", s->begin);
	text__date(e.end, sizeof(e.end), clock__read(CLOCK_REALTIME));
	snprintf(e.began, sizeof(e.began), "rule %.60s: %.80s", s->rule, s->text);
	snprintf(e.ended, sizeof(e.ended), "%s",
		 *string_of(capture, "stop_reason") ? string_of(capture, "stop_reason")
						    : "the recorder ended");
	e.to = (uint64_t)(json_number_value(json_object_get(capture, "duration")) * 1e9);
	s->events = e.events = number_of(capture, "events");
	s->lost = e.lost = number_of(capture, "lost");
	snprintf(s->detail, sizeof(s->detail), "%s",
		 string_of(json_object_get(capture, "detail"), "text"));
	s->bytes = e.bytes = stat(s->file, &st) ? 0 : (uint64_t)st.st_size;
	read_devices(&e, json_object_get(doc, "devices"));
	if (!*s->blame)
		read_blame(s, json_object_get(doc, "rows"));
	err = folder__add(c->folder, &e);
	if (err)
		log_warn("%s: the index cannot be written: %s", folder__path(c->folder),
			 folder__why(err));
	drop_old(c);
}

/* Reports the recording of a killed process. The recorder has made its entry. */
static void end_killed(struct watch_capture *c)
{
	struct watch_shot *s = &c->shot;
	const char *why = string_of(json_object_get(c->doc, "end"), "text");
	char text[2 * WATCH_TEXT];

	read_blame(s, json_object_get(c->doc, "rows"));
	if (*why)
		snprintf(s->text, sizeof(s->text), "%s", why);
	json_decref(c->doc);
	c->doc = NULL;
	c->w->captured++;
	drop_old(c);
	snprintf(text, sizeof(text), "%s%s%s", s->text, *s->blame ? "; most memory: " : "",
		 s->blame);
	watch_say__shot(c->w, "killed", s, text);
	watch_exec__run(c->w, "killed", s);
	end_stages(c);
}

static void end_capture(struct watch_capture *c)
{
	struct watch_shot *s = &c->shot;
	char text[2 * WATCH_TEXT], events[32], size[24];
	/* Before put_entry(), which blames another line if none grew. */
	const char *what = *s->blame ? "; grows: " : "; grew most since: ";
	int len;

	put_entry(c, c->doc);
	json_decref(c->doc);
	c->doc = NULL;
	c->w->captured++;
	len = snprintf(text, sizeof(text), "%s, %" PRIu64 " lost, %s%s%s",
		       text__counted(events, sizeof(events), s->events, "event"), s->lost,
		       text__bytes(size, sizeof(size), s->bytes), *s->blame ? what : "", s->blame);
	if (*s->detail)
		snprintf(text + len, sizeof(text) - (size_t)len, "; reduced detail: %s", s->detail);
	watch_say__shot(c->w, "captured", s, text);
	watch_exec__run(c->w, "captured", s);
	end_stages(c);
}

static void end_report(struct watch_capture *c)
{
	c->doc = watch_spawn__document(c->out);
	close(c->out);
	c->out = -1;
	if (!c->doc)
		fail(c, "the recording cannot be read");
	if (c->shot.killed)
		end_killed(c);
	else if (!c->doc || !c->shot.growth || begin_leaks(c))
		end_capture(c);
}

static void end_leaks(struct watch_capture *c)
{
	json_t *leaks = watch_spawn__document(c->out);

	read_leaks(&c->shot, leaks);
	json_decref(leaks);
	end_capture(c);
}

static void end_record(struct watch_capture *c)
{
	struct stat st;

	if (stat(c->shot.file, &st) || !st.st_size) {
		fail(c, "nothing was recorded: the process ended or cannot be traced; the "
			"recorder's messages are on standard error");
		*c->shot.file = '\0';
		watch_exec__run(c->w, "failed", &c->shot);
		end_stages(c);
		return;
	}
	if (begin_report(c)) {
		fail(c, "the recording cannot be read");
		end_stages(c);
	}
}

static void end_stage(struct watch_capture *c, int status)
{
	switch (c->stage) {
	case DUMPING:
		end_dump(c, !status);
		if (begin_record(c)) {
			fail(c, "cannot start the recorder");
			end_stages(c);
		}
		break;
	case RECORDING:
		end_record(c);
		break;
	case REPORTING:
		end_report(c);
		break;
	case BLAMING:
		end_leaks(c);
		break;
	case IDLE:
		break;
	}
}

/* When a stage exceeds its time: sends SIGINT, so that it saves its data, and later SIGKILL. */
static void enforce_deadline(struct watch_capture *c, uint64_t now)
{
	if (now < c->deadline)
		return;
	subprocess__signal(&c->process, c->asked ? SIGKILL : SIGINT);
	c->asked = true;
	c->deadline = now + KILL_AFTER;
}

static void look_at_stage(struct watch_capture *c, uint64_t now)
{
	int status;

	if (c->stage == IDLE || !c->process.pid)
		return;
	if (subprocess__ended(&c->process, &status))
		end_stage(c, status);
	else
		enforce_deadline(c, now);
}

/* ---- recordings of killed processes ---- */

static bool is_watched(const struct watch *w, pid_t pid)
{
	for (size_t i = 0; i < w->n_targets; i++)
		if (w->targets[i]->pid == pid && proc__alive(w->targets[i]->proc))
			return true;
	return false;
}

static bool all_alive(const struct watch *w)
{
	for (size_t i = 0; i < w->n_targets; i++)
		if (!proc__alive(w->targets[i]->proc))
			return false;
	return true;
}

static size_t add_all(const char **argv, size_t n, const char *option, const char *const *v,
		      size_t n_v)
{
	for (size_t i = 0; i < n_v; i++) {
		argv[n++] = option;
		argv[n++] = v[i];
	}
	return n;
}

/* Adds the options that choose the processes. Returns the number of arguments; 0: there is nothing
 * to record. */
static size_t add_processes(const struct watch *w, const char **argv, size_t n,
			    char pids[PICK_MAX][16])
{
	const struct pick_args *p = &w->args.pick;
	size_t chosen = p->n_names + p->all;

	for (size_t i = 0; i < p->n_pids; i++) {
		if (!p->follow && !is_watched(w, p->pids[i]))
			continue;
		snprintf(pids[i], sizeof(pids[i]), "%d", (int)p->pids[i]);
		argv[n++] = "-p";
		argv[n++] = pids[i];
		chosen++;
	}
	n = add_all(argv, n, "--name", p->names, p->n_names);
	n = add_all(argv, n, "--container", p->containers, p->n_containers);
	n = add_all(argv, n, "--pod", p->pods, p->n_pods);
	if (p->all)
		argv[n++] = "--all";
	if (p->follow)
		argv[n++] = "--follow";
	return chosen ? n : 0;
}

static void start_recorder(struct watch_capture *c, uint64_t now)
{
	const struct watch_args *a = &c->w->args;
	struct black_box *b = c->box;
	const char *argv[16 + 8 * PICK_MAX] = { "record", "-q",	    "--on-kill", "--label",
						LABEL,	  "--cost", a->cost,	 "-o" };
	char pids[PICK_MAX][16], folder[4096];
	size_t n = 8;
	int err;

	/* The "/" says that it is a folder, whoever owns it. */
	snprintf(folder, sizeof(folder), "%s/", a->output);
	argv[n++] = folder;
	b->next_start = now + AGAIN_AFTER;
	b->one_ended = false;
	if (!add_processes(c->w, argv, n, pids))
		return;
	err = watch_spawn__self(argv, -1, SUBPROCESS_INHERIT, 0, &b->recorder);
	if (!err)
		return;
	b->next_start = now + AGAIN_AFTER_FAILURE;
	log_warn("--on-kill: cannot start the recorder: %s; tried again in 1m", strerror(-err));
}

static void look_at_recorder(struct watch_capture *c, uint64_t now)
{
	struct black_box *b = c->box;
	char text[WATCH_TEXT], result[24];
	int status;

	if (!b->recorder.pid) {
		if (now >= b->next_start)
			start_recorder(c, now);
		return;
	}
	if (!subprocess__ended(&b->recorder, &status))
		return;
	b->next_start = now + AGAIN_AFTER;
	if (!status || !c->w->n_targets)
		return;
	/* A recorder refuses PIDs that have ended before it attached: start one for the others. */
	if (b->one_ended || !all_alive(c->w)) {
		b->next_start = now;
		return;
	}
	b->next_start = now + AGAIN_AFTER_FAILURE;
	snprintf(text, sizeof(text),
		 "no recording if a process is killed: the recorder ended with %s; its messages "
		 "are on standard error; it starts again in 1m",
		 watch_spawn__result(status, result));
	c->w->failed++;
	watch_say__target(c->w, "failed", NULL, text);
}

/* ---- the files of the recorder ---- */

void watch_capture__expect(struct watch_capture *c, const struct watch_target *t)
{
	struct black_box *b = c->box;
	struct expected *x = &b->expected[b->n];
	uint64_t boot = clock__read(CLOCK_REALTIME) - clock__read(CLOCK_BOOTTIME);

	b->one_ended = true;
	if (b->n == EXPECTED_MAX) {
		log_warn("PID %d: too many processes ended at once: its recording, if there is "
			 "one, is in the folder and is not read",
			 (int)t->pid);
		return;
	}
	memset(x, 0, sizeof(*x));
	watch_shot__of(&x->shot, t, "--on-kill");
	x->shot.killed = true;
	text__date(x->started, sizeof(x->started), boot + t->started);
	x->deadline = clock__monotonic() + WRITE_MOST;
	b->n++;
}

/* The PID may have had another process before: its file ended before this one began. */
static const struct folder_entry *find_entry(const struct folder *f, const struct expected *x)
{
	const struct folder_entry *v;
	size_t n;

	v = folder__entries(f, &n);
	for (size_t i = n; i-- > 0;)
		if (v[i].pid == x->shot.pid && !strncmp(v[i].file, LABEL "-", sizeof(LABEL)) &&
		    strcmp(v[i].end, x->started) >= 0)
			return &v[i];
	return NULL;
}

static void look_at_files(struct watch_capture *c, uint64_t now)
{
	struct black_box *b = c->box;
	struct folder *f = c->folder;
	bool recorded = !b->recorder.pid; /* there will be no more files */

	if (!b->n || c->stage != IDLE || folder__read_again(f))
		return;
	for (size_t i = 0; i < b->n;) {
		const struct folder_entry *e = find_entry(f, &b->expected[i]);

		if (e && take_recording(c, &b->expected[i].shot, e))
			return; /* one at a time */
		if (e || recorded || now >= b->expected[i].deadline)
			memmove(&b->expected[i], &b->expected[i + 1],
				(--b->n - i) * sizeof(*b->expected));
		else
			i++;
	}
}

void watch_capture__pump(struct watch_capture *c, uint64_t now)
{
	look_at_stage(c, now);
	if (!c->box)
		return;
	look_at_recorder(c, now);
	look_at_files(c, now);
}

/* Nothing is written for processes that live on. */
static void free_recorder(struct black_box *b)
{
	int status;

	if (!b)
		return;
	subprocess__signal(&b->recorder, SIGINT);
	if (b->recorder.pid && !subprocess__wait(&b->recorder, STOP_MOST, &status))
		subprocess__kill(&b->recorder);
	free(b);
}

void watch_capture__free(struct watch_capture *c)
{
	int status;

	if (!c)
		return;
	free_recorder(c->box);
	/* Let a running recording finish, so that it is in the index. */
	if (c->stage != IDLE && c->process.pid)
		c->deadline = 0;
	while (c->stage != IDLE && c->process.pid) {
		enforce_deadline(c, clock__monotonic());
		if (subprocess__wait(&c->process, KILL_AFTER / 1000000, &status))
			end_stage(c, status);
		if (c->stage == RECORDING)
			c->deadline = 0;
	}
	outfile__discard(c->dump);
	json_decref(c->doc);
	if (c->out >= 0)
		close(c->out);
	folder__free(c->folder);
	free(c);
}
