/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Captures after a rule has fired, one at a time. `dump` shows what is live now, without probes.
 * `record` then records for a while. `report`, `leaks` for growth rules, and `diagnose` read the
 * recording for the index, the responsible line and the codes of the findings. Each is a separate
 * process, so that its memory is freed and its failure does not end `watch`.
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
#include "record/detail.h"
#include "record/folder.h"
#include "watch/targets/spawn.h"

#define DUMP_MOST UINT64_C(30000000000) /* time limit of `dump`, in ns */
/* Time that `record` gets to attach, detach and write, in addition to the capture's length, in ns */
#define RECORD_MORE UINT64_C(60000000000)
/* time limit of a capture that is limited only by steps, in ns */
#define STEPS_MOST UINT64_C(1800000000000)
#define REPORT_MOST UINT64_C(600000000000) /* time limit of a command that reads, in ns */
#define KILL_AFTER UINT64_C(20000000000)   /* delay between SIGINT and SIGKILL, in ns */
#define TOP "8"				   /* rows of the report that are read */
#define RECORDING_SUFFIX ".mtr"
#define DUMP_SUFFIX ".dump.json" /* in place of RECORDING_SUFFIX, for the dump before a recording */
#define MAX_SIZE_LEAST UINT64_C(65536) /* smallest --max-size that `record` accepts, in bytes */
#define NICE 10			       /* nice value of background work */
#define LABEL "watch-killed"	       /* prefix of the recorder's file names, with --on-kill */
#define EXPECTED_MAX 64		       /* ended processes whose recordings are awaited at a time */
/* How long a recording of an ended process is awaited, in ns: one that ended well has none. */
#define WRITE_MOST UINT64_C(60000000000)
/* Delays before the recorder of --on-kill starts again, in ns: after it has ended by itself, and
 * after a failure. */
#define AGAIN_AFTER UINT64_C(5000000000)
#define AGAIN_AFTER_FAILURE UINT64_C(60000000000)
#define STOP_MOST 20000 /* time for the recorder to detach, in ms */

/* The program of a capture that runs now: dump, record, report, leaks or diagnose. */
enum stage { IDLE, DUMPING, RECORDING, REPORTING, BLAMING, DIAGNOSING };

/* A watched process that has ended. The recorder of --on-kill may still write its recording. */
struct expected {
	struct watch_shot shot;
	char started[40];  /* start of the process in RFC 3339 */
	uint64_t deadline; /* CLOCK_MONOTONIC, ns: expect no recording after that */
};

/* The recorder of --on-kill. */
struct black_box {
	struct subprocess recorder;
	uint64_t next_start; /* CLOCK_MONOTONIC, ns */
	bool one_ended;	     /* a watched process has ended since the recorder started */
	struct expected expected[EXPECTED_MAX];
	size_t n; /* entries of expected */
};

struct watch_capture {
	struct watch *w;
	struct folder *folder;
	struct black_box *box; /* NULL: without --on-kill */
	struct watch_shot shot;
	enum stage stage;
	struct subprocess process; /* process of the current stage */
	uint64_t deadline;	   /* end of the stage, CLOCK_MONOTONIC, ns */
	bool sigint_sent;	   /* to the process of the stage, because its time was over */
	int out;		   /* memfd with the output of a command that reads; -1: none */
	struct outfile *dump;	   /* file that dump writes; NULL: none */
	char stem[128];		   /* file name of the recording, without ".mtr" */
	json_t *doc;		   /* output of report; NULL: none, or unreadable */
};

struct watch_capture *watch_capture__new(struct watch *w)
{
	struct watch_capture *c = calloc(1, sizeof(*c));
	const char *output = w->args.output;
	int err = c ? folder__create(output, /*force=*/false, &c->folder) : -ENOMEM;
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

void watch_shot__fill(struct watch_shot *s, const struct watch_target *t, const char *rule)
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

/* Removes the dump next to a recording: STEM.dump.json next to STEM.mtr. file: the name in the
 * index, which others may have written. */
static void drop_dump(const struct watch_capture *c, const char *file)
{
	char path[4096];
	const size_t suffix = strlen(RECORDING_SUFFIX);
	size_t len = strlen(file);

	if (len < suffix || strchr(file, '/'))
		return;
	if (snprintf(path, sizeof(path), "%s/%.*s" DUMP_SUFFIX, folder__path(c->folder),
		     (int)(len - suffix), file) < (int)sizeof(path))
		unlink(path);
}

/* True if `watch` made the recording: others may write into the same folder. */
static bool is_of_watch(const struct folder_entry *e)
{
	return text__starts(e->file, "watch-");
}

/* Removes the oldest captures while their number or size is above the limit, but never all. */
static void drop_old(struct watch_capture *c)
{
	for (;;) {
		const struct folder_entry *v, *oldest = NULL;
		uint64_t bytes = 0;
		size_t n, n_captures = 0;
		char file[256];

		v = folder__entries(c->folder, &n);
		for (size_t i = 0; i < n; i++) {
			if (!is_of_watch(&v[i]))
				continue;
			oldest = oldest && strcmp(oldest->begin, v[i].begin) <= 0 ? oldest : &v[i];
			bytes += v[i].bytes;
			n_captures++;
		}
		if (n_captures <= 1 ||
		    (n_captures <= c->w->args.max_captures && bytes <= c->w->args.max_bytes))
			return;
		snprintf(file, sizeof(file), "%s", oldest->file);
		if (folder__drop(c->folder, file, /*gap=*/NULL))
			return;
		drop_dump(c, file);
	}
}

/* ---- the stages ---- */

/* Counts a failure and reports it. what: the step that failed, and why. */
static void say_failed(struct watch_capture *c, const char *what)
{
	c->w->failed++;
	watch_say__shot(c->w, "failed", &c->shot, what);
}

static void go_idle(struct watch_capture *c)
{
	c->stage = IDLE;
	c->sigint_sent = false;
	if (c->out >= 0)
		close(c->out);
	c->out = -1;
}

/* Starts the program of a stage. argv: without the program's name. out: its standard output; -1:
 * our standard error. time_limit: ns. Returns 0 or -errno. */
static int begin_stage(struct watch_capture *c, enum stage stage, const char *const *argv, int out,
		       int nice_by, uint64_t time_limit)
{
	int err = watch_spawn__self(argv, out, SUBPROCESS_INHERIT, nice_by, &c->process);

	if (err)
		return err;
	c->stage = stage;
	c->sigint_sent = false;
	c->deadline = clock__monotonic() + time_limit;
	return 0;
}

/* Starts `dump` of the process into the file of c->shot.snapshot. Returns 0 or -errno. */
static int begin_dump(struct watch_capture *c)
{
	char pid[16];
	const char *const of_tensors[] = { "dump", "-p",    pid,    "--format",
					   "json", "--top", "1000", NULL };
	const char *const of_host[] = { "dump", "-p",	    pid,    "--device",
					"host", "--format", "json", NULL };
	const char *const *argv = c->shot.host ? of_host : of_tensors;
	int err = outfile__create(c->shot.snapshot, OUTFILE_RENAME, /*force=*/false, &c->dump);

	snprintf(pid, sizeof(pid), "%d", (int)c->shot.pid);
	if (!err)
		err = begin_stage(c, DUMPING, argv, outfile__fd(c->dump), 0, DUMP_MOST);
	if (err) {
		outfile__discard(c->dump);
		c->dump = NULL;
	}
	return err;
}

/* Starts `record` of the process into c->shot.file, with the limits of the command line. Returns 0
 * or -errno. */
static int begin_record(struct watch_capture *c)
{
	char pid[16], duration[32], steps[32], size[32];
	const char *argv[20] = { "record",     "-q",	     "-p", pid,	     "-o",
				 c->shot.file, "--max-size", size, "--cost", c->w->args.cost };
	size_t n_args = 10; /* so far */

	snprintf(pid, sizeof(pid), "%d", (int)c->shot.pid);
	snprintf(size, sizeof(size), "%" PRIu64,
		 c->w->args.max_bytes < MAX_SIZE_LEAST ? MAX_SIZE_LEAST : c->w->args.max_bytes);
	if (c->w->args.capture) {
		snprintf(duration, sizeof(duration), "%" PRIu64 "ns", c->w->args.capture);
		argv[n_args++] = "-d";
		argv[n_args++] = duration;
	}
	if (c->w->args.capture_steps) {
		snprintf(steps, sizeof(steps), "%" PRIu64, c->w->args.capture_steps);
		argv[n_args++] = "--steps";
		argv[n_args++] = steps;
	}
	if (c->shot.host)
		argv[n_args++] = "--host";
	return begin_stage(c, RECORDING, argv, /*out=*/-1, 0,
			   c->w->args.capture ? c->w->args.capture + RECORD_MORE : STEPS_MOST);
}

/* Starts a command that reads the recording. Its output goes into c->out. Returns 0 or -errno. */
static int begin_reading(struct watch_capture *c, enum stage stage, const char *const *argv)
{
	int err;

	c->out = memfd_create(argv[0], MFD_CLOEXEC);
	if (c->out < 0)
		return -errno;
	err = begin_stage(c, stage, argv, c->out, NICE, REPORT_MOST);
	if (err) {
		close(c->out);
		c->out = -1;
	}
	return err;
}

/* Starts `report`, for the figures of the recording. Returns 0 or -errno. */
static int begin_report(struct watch_capture *c)
{
	const char *const argv[] = { "report", "--format", "json",	 "--at", "end",
				     "--top",  TOP,	   c->shot.file, NULL };

	return begin_reading(c, REPORTING, argv);
}

/* For a growth rule: starts `leaks`, which finds the line whose memory grows if the recording is
 * long enough. Returns 0 or -errno. */
static int begin_leaks(struct watch_capture *c)
{
	const char *const argv[] = { "leaks", "--format", "json", "--top", "1", c->shot.file, NULL };

	return begin_reading(c, BLAMING, argv);
}

/* Starts `diagnose`, for shot.findings. Returns 0 or -errno. */
static int begin_diagnose(struct watch_capture *c)
{
	const char *const argv[] = { "diagnose", "--format", "json", c->shot.file, NULL };

	return begin_reading(c, DIAGNOSING, argv);
}

/* Makes the paths of recording and dump from time and PID; "" if one is too long. */
static void make_paths(struct watch_capture *c)
{
	struct watch_shot *s = &c->shot;
	char when[40], *path;
	bool fits; /* the paths of recording and dump fit */

	snprintf(when, sizeof(when), "%s", s->begin);
	for (char *p = when; *p; p++)
		if (*p == ':' || *p == '.')
			*p = '-';
	snprintf(c->stem, sizeof(c->stem), "watch-%s-%d", when, (int)s->pid);
	path = folder__new_path(c->folder, c->stem, RECORDING_SUFFIX);
	fits = path && strlen(path) + strlen(DUMP_SUFFIX) < sizeof(s->file);
	snprintf(s->file, sizeof(s->file), "%s", fits ? path : "");
	free(path);
	if (*s->file)
		snprintf(s->snapshot, sizeof(s->snapshot), "%.*s" DUMP_SUFFIX,
			 (int)(strlen(s->file) - strlen(RECORDING_SUFFIX)), s->file);
}

/* dump runs first. If it cannot start, the capture goes on without a dump. */
int watch_capture__begin(struct watch_capture *c, const struct watch_shot *shot)
{
	if (c->stage != IDLE)
		return -EBUSY;
	c->shot = *shot;
	make_paths(c);
	if (!*c->shot.file) {
		say_failed(c, "the path of the folder is too long for a recording; "
			      "choose a shorter one");
		return 0;
	}
	if (!begin_dump(c))
		return 0;
	*c->shot.snapshot = '\0';
	if (begin_record(c)) {
		say_failed(c, "cannot start the recorder");
		go_idle(c);
	}
	return 0;
}

/* Begins to read a finished recording of --on-kill. Returns 0, or -EBUSY if a capture is
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
		say_failed(c, "the path of the folder is too long; choose a shorter one");
	} else if (begin_report(c)) {
		say_failed(c, "the recording cannot be read");
		go_idle(c);
	}
	return 0;
}

/* ---- results of the stages ---- */

/* Keeps the dump if `dump` succeeded (ok) and wrote something. Otherwise removes it and reports
 * that. */
static void end_dump(struct watch_capture *c, bool ok)
{
	struct outfile *dump = c->dump;
	struct stat st;
	int err;

	c->dump = NULL;
	if (!ok || fstat(outfile__fd(dump), &st) || !st.st_size) {
		outfile__discard(dump);
		*c->shot.snapshot = '\0';
		say_failed(c, "cannot read the live blocks from outside");
		return;
	}
	err = outfile__commit(dump);
	if (err) {
		*c->shot.snapshot = '\0';
		say_failed(c, strerror(-err));
		return;
	}
	watch_say__shot(c->w, "snapshot", &c->shot,
			c->shot.host ? "wrote the parts of the host memory"
				     : "wrote the live blocks");
}

/* The positive integer with this key; 0 if there is none. */
static uint64_t number_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v) && json_integer_value(v) > 0)
		return (uint64_t)json_integer_value(v);
	return 0;
}

/* The text with this key; "" if there is none. */
static const char *string_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Writes "train.py:36 (forward)"; without a line "[heap] (before attach)". */
static void write_line(const json_t *row, char *buf, size_t size)
{
	const char *path = string_of(row, "file");
	const char *func = string_of(row, "function");
	const char *base = strrchr(path, '/');
	char file[160], name[64], line[24] = "";

	base = base ? base + 1 : path;
	if (number_of(row, "line"))
		snprintf(line, sizeof(line), ":%" PRIu64, number_of(row, "line"));
	snprintf(buf, size, "%s%s (%s)", text__clean(file, sizeof(file), base, strlen(base)), line,
		 text__clean(name, sizeof(name), func, strlen(func)));
}

/* Memory from before attach has no line, and blocks whose stacks a limit on the cost left out are
 * of many lines. */
static bool is_known_line(const json_t *row)
{
	return *string_of(row, "file") && strcmp(string_of(row, "file"), DETAIL_FILE) != 0;
}

/* Takes the first row with a known line. */
static void read_blame(struct watch_shot *s, const json_t *rows)
{
	char line[216], bytes[24];
	size_t i;
	json_t *r;

	json_array_foreach(rows, i, r) {
		if (!is_known_line(r))
			continue;
		write_line(r, line, sizeof(line));
		snprintf(s->blame, sizeof(s->blame), "%s %s", line,
			 text__bytes(bytes, sizeof(bytes), number_of(r, "bytes")));
		return;
	}
}

/* The fastest growing line of a device that is known; NULL: none. `leaks` lists the fastest first.
 */
static const json_t *fastest_line(const json_t *device)
{
	size_t i;
	json_t *l;

	json_array_foreach(json_object_get(device, "leaks"), i, l) {
		double bytes = json_number_value(json_object_get(l, "bytes_per_step"));

		if (is_known_line(l) && bytes >= 1 && bytes <= 1e18)
			return l;
	}
	return NULL;
}

/* Sets s->blame to the fastest growing line on the device of the rule, and to its largest holder;
 * on any device if the rule has none. Rates are per second if the clock is "time". */
static void read_leaks(struct watch_shot *s, const json_t *doc)
{
	char line[216], bytes[24], holder[128];
	const char *name, *per;
	const json_t *l;
	double rate;
	size_t i;
	json_t *d;

	json_array_foreach(json_object_get(doc, "devices"), i, d) {
		l = fastest_line(d);
		if (!l || (*s->device && strcmp(string_of(d, "device"), s->device)))
			continue;
		write_line(l, line, sizeof(line));
		rate = json_number_value(json_object_get(l, "bytes_per_step"));
		per = strcmp(string_of(d, "clock"), "time") ? "step" : "second";
		name = string_of(json_array_get(json_object_get(l, "held_by"), 0), "name");
		text__clean(holder, sizeof(holder), name, strlen(name));
		snprintf(s->blame, sizeof(s->blame), "%s +%s a %s%s%s", line,
			 text__bytes(bytes, sizeof(bytes), (uint64_t)rate), per,
			 *holder ? ", held by " : "", holder);
		return;
	}
}

/* Adds a code to s->findings, unless it is there already or has no room. */
static void add_code(struct watch_shot *s, const char *code)
{
	char listed[sizeof(s->findings) + 2], wanted[sizeof(s->findings) + 2];
	size_t len = strlen(s->findings);

	snprintf(listed, sizeof(listed), ",%s,", s->findings);
	snprintf(wanted, sizeof(wanted), ",%s,", code);
	if (!strstr(listed, wanted) && len + 1 + strlen(code) < sizeof(s->findings))
		snprintf(s->findings + len, sizeof(s->findings) - len, "%s%s", len ? "," : "",
			 code);
}

/* Sets s->findings to the codes of the faults, the worst first, each once. */
static void read_findings(struct watch_shot *s, const json_t *doc)
{
	const json_t *f;
	size_t i;

	json_array_foreach(json_object_get(doc, "findings"), i, f)
		if (json_is_true(json_object_get(f, "fault")))
			add_code(s, string_of(f, "code"));
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

/* Adds the recording to the index, and removes the oldest captures. doc: the report, or NULL. */
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
	go_idle(c);
}

/* Puts the recording into the index, reports it and runs --exec. A missing report (c->doc) leaves
 * its figures 0. */
static void end_capture(struct watch_capture *c)
{
	struct watch_shot *s = &c->shot;
	char text[2 * WATCH_TEXT], events[32], size[24];
	/* leaks has set blame, if anything. Otherwise put_entry() sets it to the top line. */
	const char *blame_label = *s->blame ? "; grows: " : "; grew most since: ";
	int len;

	put_entry(c, c->doc);
	json_decref(c->doc);
	c->doc = NULL;
	c->w->captured++;
	len = snprintf(text, sizeof(text), "%s, %" PRIu64 " lost, %s%s%s",
		       text__counted(events, sizeof(events), s->events, "event"), s->lost,
		       text__bytes(size, sizeof(size), s->bytes), *s->blame ? blame_label : "",
		       s->blame);
	if (*s->detail)
		snprintf(text + len, sizeof(text) - (size_t)len, "; reduced detail: %s", s->detail);
	watch_say__shot(c->w, "captured", s, text);
	watch_exec__run(c->w, "captured", s);
	go_idle(c);
}

/* Ends a capture after the commands that read its recording. */
static void end_readings(struct watch_capture *c)
{
	const struct watch_shot *s = &c->shot;
	char path[512];

	/* Without a report, an error was printed already. */
	if (c->doc && !s->diagnosed)
		log_warn("%s: diagnose failed; the findings are not known",
			 text__clean(path, sizeof(path), s->file, strlen(s->file)));
	if (c->shot.killed)
		end_killed(c);
	else
		end_capture(c);
}

/* Takes the output of a command that reads; NULL: it is not valid JSON. */
static json_t *take_document(struct watch_capture *c)
{
	json_t *doc = watch_spawn__document(c->out);

	close(c->out);
	c->out = -1;
	return doc;
}

/* Takes the document of `report`, and starts the next command that reads the recording. Ends the
 * capture if the document is not valid or no command starts. */
static void end_report(struct watch_capture *c)
{
	c->doc = take_document(c);
	if (!c->doc) {
		say_failed(c, "the recording cannot be read");
		end_readings(c);
		return;
	}
	/* After a growth rule, `leaks` reads the recording before `diagnose`. */
	if (c->shot.growth && !c->shot.killed && !begin_leaks(c))
		return;
	if (begin_diagnose(c))
		end_readings(c);
}

/* Takes the document of `leaks` into shot.blame, and starts `diagnose`. Ends the capture if that
 * does not start. */
static void end_leaks(struct watch_capture *c)
{
	json_t *leaks = take_document(c);

	read_leaks(&c->shot, leaks);
	json_decref(leaks);
	if (begin_diagnose(c))
		end_readings(c);
}

/* Takes the document of `diagnose` into shot.findings, and ends the capture. */
static void end_diagnose(struct watch_capture *c)
{
	json_t *doc = take_document(c);

	c->shot.diagnosed = doc != NULL;
	read_findings(&c->shot, doc);
	json_decref(doc);
	end_readings(c);
}

static void end_record(struct watch_capture *c)
{
	struct stat st;

	if (stat(c->shot.file, &st) || !st.st_size) {
		say_failed(c, "nothing was recorded: the process ended or cannot be traced; the "
			      "recorder's messages are on standard error");
		*c->shot.file = '\0';
		watch_exec__run(c->w, "failed", &c->shot);
		go_idle(c);
		return;
	}
	if (begin_report(c)) {
		say_failed(c, "the recording cannot be read");
		go_idle(c);
	}
}

/* Takes the result of the stage, whose program ended with this wait status, and begins the next. */
static void end_stage(struct watch_capture *c, int status)
{
	switch (c->stage) {
	case DUMPING:
		end_dump(c, !status);
		if (begin_record(c)) {
			say_failed(c, "cannot start the recorder");
			go_idle(c);
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
	case DIAGNOSING:
		end_diagnose(c);
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
	subprocess__signal(&c->process, c->sigint_sent ? SIGKILL : SIGINT);
	c->sigint_sent = true;
	c->deadline = now + KILL_AFTER;
}

/* Goes on to the next stage if the program of this one has ended. Otherwise enforces its time
 * limit. */
static void check_stage(struct watch_capture *c, uint64_t now)
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

/* False if a watched process has ended and is still in the table. */
static bool targets_are_alive(const struct watch *w)
{
	for (size_t i = 0; i < w->n_targets; i++)
		if (!proc__alive(w->targets[i]->proc))
			return false;
	return true;
}

/* Adds "OPTION VALUE" for each value. Returns the new number of arguments. */
static size_t add_each(const char **argv, size_t n, const char *option, const char *const *values,
		       size_t n_values)
{
	for (size_t i = 0; i < n_values; i++) {
		argv[n++] = option;
		argv[n++] = values[i];
	}
	return n;
}

/* Adds the options that choose the processes. Returns the number of arguments; 0: there is nothing
 * to record. */
static size_t add_processes(const struct watch *w, const char **argv, size_t n,
			    char pids[PICK_MAX][16])
{
	const struct pick_args *pick = &w->args.pick;
	size_t chosen = pick->n_names + pick->all;

	for (size_t i = 0; i < pick->n_pids; i++) {
		if (!pick->follow && !is_watched(w, pick->pids[i]))
			continue;
		snprintf(pids[i], sizeof(pids[i]), "%d", (int)pick->pids[i]);
		argv[n++] = "-p";
		argv[n++] = pids[i];
		chosen++;
	}
	n = add_each(argv, n, "--name", pick->names, pick->n_names);
	n = add_each(argv, n, "--container", pick->containers, pick->n_containers);
	n = add_each(argv, n, "--pod", pick->pods, pick->n_pods);
	if (pick->all)
		argv[n++] = "--all";
	if (pick->follow)
		argv[n++] = "--follow";
	return chosen ? n : 0;
}

/* Starts `record --on-kill` for all watched processes, unless all have ended. */
static void start_recorder(struct watch_capture *c, uint64_t now)
{
	const struct watch_args *args = &c->w->args;
	struct black_box *box = c->box;
	const char *argv[16 + 8 * PICK_MAX] = { "record", "-q",	    "--on-kill", "--label",
						LABEL,	  "--cost", args->cost,	 "-o" };
	char pids[PICK_MAX][16], folder[4096];
	size_t n_args = 8; /* so far */
	int err;

	/* The "/" says that the path is a folder, whoever owns it. */
	snprintf(folder, sizeof(folder), "%s/", args->output);
	argv[n_args++] = folder;
	box->next_start = now + AGAIN_AFTER;
	box->one_ended = false;
	if (!add_processes(c->w, argv, n_args, pids))
		return;
	err = watch_spawn__self(argv, /*out=*/-1, SUBPROCESS_INHERIT, 0, &box->recorder);
	if (!err)
		return;
	box->next_start = now + AGAIN_AFTER_FAILURE;
	log_warn("--on-kill: cannot start the recorder: %s; tried again in 1m", strerror(-err));
}

/* Starts the recorder of --on-kill if it is due. If it has ended, sets when it starts again. */
static void check_recorder(struct watch_capture *c, uint64_t now)
{
	struct black_box *box = c->box;
	char text[WATCH_TEXT], result[24];
	int status;

	if (!box->recorder.pid) {
		if (now >= box->next_start)
			start_recorder(c, now);
		return;
	}
	if (!subprocess__ended(&box->recorder, &status))
		return;
	box->next_start = now + AGAIN_AFTER;
	if (!status || !c->w->n_targets)
		return; /* no failure: it has no processes left */
	/* A recorder fails if a PID has ended before it attached: start one for the others. */
	if (box->one_ended || !targets_are_alive(c->w)) {
		box->next_start = now;
		return;
	}
	box->next_start = now + AGAIN_AFTER_FAILURE;
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
	struct black_box *box = c->box;
	struct expected *expected = &box->expected[box->n];
	uint64_t boot_time = clock__read(CLOCK_REALTIME) - clock__read(CLOCK_BOOTTIME);

	box->one_ended = true;
	if (box->n == EXPECTED_MAX) {
		log_warn("PID %d: too many processes ended at once: its recording, if there is "
			 "one, is in the folder and is not read",
			 (int)t->pid);
		return;
	}
	memset(expected, 0, sizeof(*expected));
	watch_shot__fill(&expected->shot, t, "--on-kill");
	expected->shot.killed = true;
	text__date(expected->started, sizeof(expected->started), boot_time + t->started);
	expected->deadline = clock__monotonic() + WRITE_MOST;
	box->n++;
}

/* The newest recording of an ended process. An earlier process with the same PID ended before this
 * one started; dates compare as text. */
static const struct folder_entry *find_entry(const struct folder *f,
					     const struct expected *expected)
{
	const struct folder_entry *v;
	size_t n;

	v = folder__entries(f, &n);
	for (size_t i = n; i-- > 0;)
		if (v[i].pid == expected->shot.pid && text__starts(v[i].file, LABEL "-") &&
		    strcmp(v[i].end, expected->started) >= 0)
			return &v[i];
	return NULL;
}

/* Takes the next recording of an ended process, and forgets those that can have none. */
static void check_files(struct watch_capture *c, uint64_t now)
{
	struct black_box *box = c->box;
	struct folder *folder = c->folder;
	bool recorder_ended = !box->recorder.pid; /* it writes no more files */

	if (!box->n || c->stage != IDLE || folder__read_again(folder))
		return;
	for (size_t i = 0; i < box->n;) {
		const struct folder_entry *recording = find_entry(folder, &box->expected[i]);

		if (recording && take_recording(c, &box->expected[i].shot, recording))
			return; /* one at a time */
		if (recording || recorder_ended || now >= box->expected[i].deadline)
			memmove(&box->expected[i], &box->expected[i + 1],
				(--box->n - i) * sizeof(*box->expected));
		else
			i++;
	}
}

void watch_capture__pump(struct watch_capture *c, uint64_t now)
{
	check_stage(c, now);
	if (!c->box)
		return;
	check_recorder(c, now);
	check_files(c, now);
}

/* Stops the recorder. It writes nothing for processes that are still running. */
static void free_recorder(struct black_box *box)
{
	int status;

	if (!box)
		return;
	subprocess__signal(&box->recorder, SIGINT);
	if (box->recorder.pid && !subprocess__wait(&box->recorder, STOP_MOST, &status))
		subprocess__kill(&box->recorder);
	free(box);
}

void watch_capture__free(struct watch_capture *c)
{
	int status;

	if (!c)
		return;
	free_recorder(c->box);
	/* A deadline of 0 sends SIGINT at once: a running recording is saved, and in the index. */
	if (c->stage != IDLE && c->process.pid)
		c->deadline = 0;
	while (c->stage != IDLE && c->process.pid) {
		enforce_deadline(c, clock__monotonic());
		if (subprocess__wait(&c->process, KILL_AFTER / 1000000, &status))
			end_stage(c, status);
		/* It was begun when the dump ended just now, or it is not over yet. */
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
