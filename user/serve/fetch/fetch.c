/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/folder.h"
#include "record/mtr.h"
#include "record/stream.h"
#include "serve/fetch/http.h"

#define BATCH 256		    /* events that are read at a time */
#define POLL_EVERY (500 * FETCH_MS) /* time between two lists of a host's traces, ns */
#define ABSENT 3		    /* a trace that more lists in a row lack is lost */
#define STARTS 3		    /* most requests for the capture of a process */
#define FETCH_SECOND UINT64_C(1000000000)
#define FETCH_MS UINT64_C(1000000)
#define FETCH_ANSWER (1UL << 20)  /* largest JSON answer, in bytes */
#define FETCH_LIST (4UL << 20)	  /* largest list of traces, in bytes; a server has 1,024 traces */
#define FETCH_PARSED (64UL << 20) /* largest parsed answer, in bytes of memory */
#define FETCH_CHECKS 4		  /* recordings that are read at the same time */
#define FETCH_PROCESSES 1024	  /* most processes of a host */
#define FETCH_EXCHANGES 8	  /* how often a host's clock is read */

enum fetch_state {
	FETCH_WANTED,	/* no capture of the process was requested yet */
	FETCH_STARTED,	/* a request for its capture was sent */
	FETCH_CAPTURED, /* the recording is complete on its host */
	FETCH_ARRIVED,	/* the recording is downloaded, and not checked yet */
	FETCH_KEPT,	/* the recording is in the folder */
	FETCH_MISSING	/* there is no recording; `why` has the reason */
};

struct fetch_process {
	struct fetch_host *host;
	int64_t pid, rank; /* rank -1: not known */
	char stem[160];	   /* name of the recording in the folder, without ".mtr" */
	enum fetch_state state;
	char trace[32];		   /* ID of the process's trace on the host; "": not known */
	unsigned absent;	   /* number of lists in a row that lack the trace */
	uint64_t known;		   /* when the trace became known, clock__monotonic() */
	double start_at;	   /* begin of the capture on the host's clock, s since 1970 */
	unsigned started;	   /* number of requests for the capture */
	struct outfile *file;	   /* the recording until it is kept; NULL: none */
	struct folder_entry entry; /* entry in the index, of a kept recording */
	bool complete;		   /* the kept recording has its end */
	char why[HTTP_WHY];	   /* why the recording is missing */
};

struct fetch_host {
	struct fetch *f;
	const struct hosts_one *server;
	bool answered;	     /* the host has sent its list of processes */
	char why[HTTP_WHY];  /* why the host is missing; "": it is not */
	unsigned exchanges;  /* readings of its clock so far */
	unsigned busy;	     /* calls to the host in progress */
	int64_t offset;	     /* the host's clock minus ours, ns */
	uint64_t error;	     /* largest error of the offset, ns; UINT64_MAX: not known */
	bool polling;	     /* a request for the list of its traces is in progress */
	uint64_t list_asked; /* when that list was last requested, monotonic, ns */
	struct fetch_process *processes;
	size_t n; /* processes */
};

/* A thread that reads a recording. */
struct fetch_check {
	pthread_t thread;
	struct fetch_process *p; /* NULL: no thread */
	bool good;		 /* result: the recording may be kept */
	atomic_bool done;	 /* the thread has set `good` and ends */
};

struct fetch {
	const struct fetch_opts *o;
	struct http *http;
	struct folder *folder;
	struct fetch_host *hosts;
	size_t n, processes; /* number of hosts, and of processes of all hosts */
	uint64_t begin;	     /* when the captures begin: our CLOCK_REALTIME, ns */
	uint64_t begin_monotonic;
	uint64_t until; /* end of the present phase, clock__monotonic() */
	struct progress progress;
	sigset_t signals; /* blocked; is_interrupted() looks for them */
	bool interrupted, no_memory;
	struct fetch_check checks[FETCH_CHECKS];
	size_t arrived;	  /* recordings that are FETCH_ARRIVED */
	atomic_bool stop; /* threads are to end */
	uint64_t indexed; /* when the index was last written, clock__monotonic() */
	size_t n_indexed; /* kept recordings in the index */
};

/* ---- calls and states ---- */

/* Makes a call to a host, with the answer in memory. path: begins with "/". Returns false and sets
 * no_memory if there is no memory. */
static bool call_host(struct fetch_host *h, const char *method, const char *path, const char *body,
		      uint64_t after, void (*done)(void *ctx, const struct http_answer *a),
		      void *ctx)
{
	char url[512];
	bool once = !strcmp(method, "POST");
	struct http_call c = { .method = method,
			       .url = url,
			       .body = body,
			       .most = FETCH_ANSWER,
			       .fd = -1,
			       .after = after,
			       .attempts = &h->busy,
			       .until = h->f->until,
			       .once = once,
			       .done = done,
			       .ctx = ctx };

	if (once) /* a capture that starts later is of another window */
		c.until = h->f->begin_monotonic;
	if (!strcmp(path, "/api/trace/list"))
		c.most = FETCH_LIST;
	if (snprintf(url, sizeof(url), "%s%s", h->server->url, path) < (int)sizeof(url) &&
	    !http__call(h->f->http, &c))
		return true;
	h->f->no_memory = true;
	return false;
}

/* Gives up the recording of a process, with the reason. */
static void set_process_missing(struct fetch_process *p, const char *fmt, ...)
{
	char text[HTTP_WHY]; /* fmt's arguments may be p->why */
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	memcpy(p->why, text, sizeof(p->why));
	p->state = FETCH_MISSING;
	outfile__discard(p->file);
	p->file = NULL;
}

/* Number of processes in a state. */
static size_t count_of(const struct fetch *f, enum fetch_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			n += f->hosts[i].processes[k].state == state;
	return n;
}

/* Whether a signal asks us to end. */
static bool is_interrupted(struct fetch *f)
{
	f->interrupted |= sigtimedwait(&f->signals, NULL, &(struct timespec){ 0 }) > 0;
	return f->interrupted;
}

/* Parses an answer. NULL: it is no JSON, or takes more than FETCH_PARSED. */
static json_t *parse_answer(const struct http_answer *a)
{
	return json__memory_of(a->data, a->size) > FETCH_PARSED
		       ? NULL
		       : json_loadb(a->data, a->size, 0, NULL);
}

/* ---- checks of downloaded recordings ---- */

/* Copies a fact without control characters; "" if it is missing. */
static void copy_text(char *to, size_t size, const struct facts *f, const char *key)
{
	const char *s = facts__get(f, key) ?: "";

	text__clean(to, size, s, strlen(s));
}

/* Sets the entry of the folder's index. last: time of the last event, ns since the recording's
 * clock zero. */
static void describe(struct fetch_process *p, const struct facts *f, uint64_t last)
{
	struct folder_entry *e = &p->entry;
	uint64_t zero, from, to;

	facts__number(f, "clock_zero_ns", &zero);
	facts__number(f, "window_start_ns", &from);
	folder_entry__describe(e, f);
	snprintf(e->kind, sizeof(e->kind), "process");
	snprintf(e->name, sizeof(e->name), "%.*s", (int)sizeof(e->name) - 1, p->stem);
	snprintf(e->host, sizeof(e->host), "%.*s", (int)sizeof(e->host) - 1, p->host->server->name);
	e->pid = p->pid;
	if (e->rank < 0)
		e->rank = p->rank;
	to = last > from ? last : from;
	/* Seconds in the index go to 1e9. */
	if (to / FETCH_SECOND < 1000000000) {
		e->from = from;
		e->to = to;
	}
	/* Dates by our clock, so that recordings of all hosts are in order. */
	if (zero && zero < (uint64_t)INT64_MAX / 2 && to < (uint64_t)INT64_MAX / 2) {
		uint64_t shift = p->host->error == UINT64_MAX ? 0 : (uint64_t)p->host->offset;

		text__date(e->begin, sizeof(e->begin), zero + from - shift);
		text__date(e->end, sizeof(e->end), zero + to - shift);
	} else {
		copy_text(e->begin, sizeof(e->begin), f, "start");
	}
	copy_text(e->began, sizeof(e->began), f, "window_began");
	copy_text(e->ended, sizeof(e->ended), f, "stop_reason");
	facts__number(f, "lost", &e->lost);
}

/* Sets why the recording is not kept. Returns false. */
static bool refuse_recording(struct fetch_process *p, const char *why)
{
	snprintf(p->why, sizeof(p->why), "the server's file is no good recording: %s", why);
	return false;
}

/* Why the check of a recording has to end; NULL: it goes on. begun: its begin, monotonic, ns. */
static const char *why_too_late(const struct fetch_process *p, uint64_t begun)
{
	const struct fetch *f = p->host->f;
	uint64_t most = f->o->timeout + (p->entry.bytes >> 20) * FETCH_SECOND;

	if (atomic_load(&f->stop))
		return "interrupted";
	return clock__monotonic() - begun > most
		       ? "reading it takes too long; a longer --timeout allows more"
		       : NULL;
}

/* Reads a downloaded recording from its begin to its end, before it gets its name, and sets its
 * entry. Returns false with p->why if it is damaged or of another process, or if the reading takes
 * longer than --timeout and 1 s for each MiB. Runs in any thread. */
static bool check_recording(struct fetch_process *p)
{
	struct folder_entry *e = &p->entry;
	const char *why = NULL, *late;
	struct event events[BATCH];
	struct mtr_reader *r;
	uint64_t offset, last = 0, steps = 0, pid;
	uint64_t begun = clock__monotonic();
	char path[64];
	int n = 0;
	bool ok;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", outfile__fd(p->file));
	/* A server records: a snapshot of PyTorch, which is read as a whole, is none of its files. */
	why = "not a memtrace-bpf recording";
	r = mtr_reader__is_recording(path) ? mtr_reader__open(path, &why) : NULL;
	if (!r)
		return refuse_recording(p, why ? why : strerror(errno));
	e->events = 0;
	while (!(late = why_too_late(p, begun)) && (n = mtr_reader__some(r, events, BATCH)) > 0) {
		for (int i = 0; i < n; i++) {
			folder_entry__event(e, &events[i]);
			steps += events[i].kind == EVENT_STEP;
			last = events[i].time > last ? events[i].time : last;
		}
		e->events += (uint64_t)n;
	}
	ok = !late && n == 0;
	if (!ok)
		refuse_recording(p, late ? late : strerror(-n));
	if (ok && mtr_reader__end(r, &offset, &why) == MTR_DAMAGED)
		ok = refuse_recording(p, why);
	p->complete = ok && mtr_reader__end(r, &offset, &why) == MTR_COMPLETE;
	if (ok && (!facts__number(mtr_reader__facts(r), "pid", &pid) || pid != (uint64_t)p->pid))
		ok = refuse_recording(p, "it is of another process");
	if (ok) {
		e->first_step = steps ? 0 : -1;
		e->last_step = (int64_t)steps - 1;
		describe(p, mtr_reader__facts(r), last);
	}
	mtr_reader__free(r);
	return ok;
}

/* ---- the index ---- */

/* Fills an entry of the index for a missing recording or host. */
static void set_missing(struct folder_missing *m, const struct fetch_host *h, int64_t pid,
			int64_t rank, const char *why)
{
	*m = (struct folder_missing){ .pid = pid, .rank = rank };
	snprintf(m->host, sizeof(m->host), "%.*s", (int)sizeof(m->host) - 1, h->server->name);
	snprintf(m->why, sizeof(m->why), "%.*s", (int)sizeof(m->why) - 1, why);
}

/* Writes the index with the recordings kept so far, at most once a second. */
static void update_index(struct fetch *f)
{
	size_t kept = count_of(f, FETCH_KEPT), n = 0;
	struct folder_entry *e;

	if (kept == f->n_indexed || clock__monotonic() < f->indexed + FETCH_SECOND)
		return;
	e = calloc(kept, sizeof(*e));
	for (size_t i = 0; e && i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state == FETCH_KEPT)
				e[n++] = f->hosts[i].processes[k].entry;
	/* write_index() meets the same error, and logs it. */
	if (e)
		folder__add_all(f->folder, e, n, /*missing=*/NULL, 0);
	free(e);
	f->n_indexed = kept;
	f->indexed = clock__monotonic();
}

/* Writes the index, with the missing recordings. Returns 0 or -errno, logged. */
static int write_index(struct fetch *f)
{
	size_t n = 0, m = 0; /* numbers of entries, and of missing ones */
	struct folder_entry *e = calloc(f->processes + 1, sizeof(*e));
	struct folder_missing *missing = calloc(f->processes + f->n + 1, sizeof(*missing));
	int err = e && missing ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->n && !err; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (*h->why)
			set_missing(&missing[m++], h, -1, -1, h->why);
		for (size_t k = 0; k < h->n; k++) {
			const struct fetch_process *p = &h->processes[k];

			if (p->state == FETCH_KEPT)
				e[n++] = p->entry;
			else
				set_missing(&missing[m++], h, p->pid, p->rank, p->why);
		}
	}
	if (!err)
		err = folder__add_all(f->folder, e, n, missing, m);
	free(e);
	free(missing);
	if (err)
		log_err("%s: %s", folder__path(f->folder), folder__why(err));
	return err;
}

/* ---- start of the captures ---- */

/* The answer to a deletion is not needed. */
static void on_gone(void *ctx, const struct http_answer *a)
{
	(void)ctx;
	(void)a;
}

/* Asks the host to delete a trace that was downloaded, or is not wanted. */
static void delete_trace(struct fetch_process *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/api/trace/%s", p->trace);
	call_host(p->host, "DELETE", path, /*body=*/NULL, 0, on_gone, p);
}

static void on_started(void *ctx, const struct http_answer *a);

#define ID_PREFIX "trace_"
#define ID_DIGITS 20 /* digits of the largest 64-bit number */

/* True for an ID as a server makes it: no other text of the server goes into later URLs. */
static bool is_trace(const char *id)
{
	const char *number = id && !strncmp(id, ID_PREFIX, strlen(ID_PREFIX))
				     ? id + strlen(ID_PREFIX)
				     : "";
	size_t digits = strspn(number, "0123456789");

	return digits && digits <= ID_DIGITS && !number[digits];
}

/* Keeps the ID of the process's trace. False: the server's answer has no valid ID. */
static bool keep_trace_id(struct fetch_process *p, const json_t *trace)
{
	const char *id = json_string_value(json_object_get(trace, "trace_id"));

	if (!is_trace(id))
		return false;
	snprintf(p->trace, sizeof(p->trace), "%s", id);
	p->known = clock__monotonic();
	return true;
}

/* Asks the host to capture the process. */
static void request_capture(struct fetch_process *p)
{
	const struct fetch_host *h = p->host;
	const struct fetch_opts *o = h->f->o;
	json_t *body = json_pack("{s:I, s:b, s:f}", "pid", (json_int_t)p->pid, "wait", 0,
				 "start_at", p->start_at);
	char *text;

	p->started++;
	if (o->duration)
		json_object_set_new(body, "duration_s", json_real((double)o->duration / 1e9));
	if (o->steps)
		json_object_set_new(body, "steps", json_integer((json_int_t)o->steps));
	if (o->max_events)
		json_object_set_new(body, "max_events", json_integer((json_int_t)o->max_events));
	if (o->host)
		json_object_set_new(body, "host", json_true());
	json_object_set_new(body, "clock_offset_ns", json_integer(h->offset));
	json_object_set_new(body, "clock_offset_error_ns", json_integer((json_int_t)h->error));
	text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (!text)
		h->f->no_memory = true;
	else if (call_host(p->host, "POST", "/api/trace/memory", text, 0, on_started, p))
		p->state = FETCH_STARTED;
	free(text);
	json_decref(body);
}

/* The server may have started the capture though its answer was lost: looks for its trace in the
 * list, and otherwise asks again. */
static void on_list_for_start(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;
	json_t *doc = a->status == 200 ? parse_answer(a) : NULL, *t;
	const json_t *list = json_object_get(doc, "traces");
	size_t i;

	json_array_foreach(list, i, t) {
		double at = json_number_value(json_object_get(t, "start_at"));

		bool is_ours = json_integer_value(json_object_get(t, "pid")) == p->pid &&
			       fabs(at - p->start_at) <
				       1e-3; /* to the millisecond, as the API has it */

		if (is_ours && keep_trace_id(p, t))
			break;
	}
	json_decref(doc);
	if (a->status != 200)
		set_process_missing(p, "%s", a->why);
	else if (!*p->trace)
		request_capture(p);
}

/* The host has answered the request for a capture, or its answer was lost. */
static void on_started(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;
	json_t *o;

	if (!a->status && a->sent && p->started < STARTS) {
		call_host(p->host, "GET", "/api/trace/list", /*body=*/NULL,
			  clock__monotonic() + POLL_EVERY, on_list_for_start, p);
		return;
	}
	if (a->status != 200) {
		set_process_missing(p, "%s", a->why);
		return;
	}
	o = parse_answer(a);
	if (!keep_trace_id(p, o))
		set_process_missing(p, "the server's answer has no trace");
	json_decref(o);
}

/* ---- waiting for the ends of the captures ---- */

static void download(struct fetch_process *p);

/* If this trace of the list is the process's: downloads its recording when done. Gives it up when
 * the capture failed, or lacks the host memory that was asked for. */
static void check_trace(struct fetch_process *p, const json_t *t)
{
	const char *state = json_string_value(json_object_get(t, "state"));
	const char *error = json_string_value(json_object_get(t, "error"));
	char text[HTTP_WHY - 32];

	if (!state || json_integer_value(json_object_get(t, "pid")) != p->pid)
		return;
	if (p->host->f->o->host && !json_is_true(json_object_get(t, "host"))) {
		/* A server that does not know a member ignores it. */
		delete_trace(p);
		set_process_missing(p, "the server is too old for --host-memory");
	} else if (!strcmp(state, "done")) {
		p->state = FETCH_CAPTURED;
		download(p);
	} else if (!strcmp(state, "failed")) {
		error = error ? error : "its capture failed";
		set_process_missing(p, "%s", text__clean(text, sizeof(text), error, strlen(error)));
	}
}

/* The host has listed its traces: goes on with each process whose capture runs. */
static void on_list(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *doc = a->status == 200 ? parse_answer(a) : NULL, *t;
	const json_t *list = json_object_get(doc, "traces");

	h->polling = false;
	for (size_t i = 0; i < h->n; i++) {
		struct fetch_process *p = &h->processes[i];
		size_t k;
		bool is_listed = false;

		if (p->state != FETCH_STARTED || !*p->trace)
			continue;
		json_array_foreach(list, k, t) {
			const char *id = json_string_value(json_object_get(t, "trace_id"));

			if (is_listed || !id || strcmp(id, p->trace) != 0)
				continue;
			is_listed = true;
			check_trace(p, t);
		}
		/* A server that has just started may not have read its traces yet, and a list may
		 * be older than the trace. */
		p->absent = is_listed || p->known >= h->list_asked ? 0 : p->absent + 1;
		if (a->status != 200)
			set_process_missing(p, "%s", a->why);
		else if (p->absent > ABSENT)
			set_process_missing(
				p, "its host has lost the recording, such as by a restart");
	}
	json_decref(doc);
}

/* ---- download ---- */

/* The download has ended: has the recording checked, or gives it up. */
static void on_recording(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;

	if (a->status != 200) {
		set_process_missing(p, "%s", a->why);
		return;
	}
	p->entry.bytes = a->size;
	p->state = FETCH_ARRIVED;
	p->host->f->arrived++;
}

/* The check of a recording has ended: keeps the recording if it is good. */
static void finish_recording(struct fetch_process *p, bool good)
{
	struct fetch *f = p->host->f;
	int err;

	if (!good) {
		set_process_missing(p, "%s", p->why);
		return;
	}
	err = outfile__commit(p->file);
	p->file = NULL;
	if (err) {
		set_process_missing(p, "cannot write it: %s", outfile__why(err));
		return;
	}
	p->state = FETCH_KEPT;
	delete_trace(p);
	progress__at(&f->progress, count_of(f, FETCH_KEPT), count_of(f, FETCH_KEPT));
}

/* Starts the download of a recording to a new file. */
static void download(struct fetch_process *p)
{
	struct fetch *f = p->host->f;
	char *path = folder__new_path(f->folder, p->stem, ".mtr"), url[512];
	int err = path ? outfile__create(path, OUTFILE_RENAME, /*force=*/false, &p->file) : -ENOMEM;

	if (err) {
		set_process_missing(p, "cannot write it: %s", outfile__why(err));
		free(path);
		return;
	}
	snprintf(p->entry.file, sizeof(p->entry.file), "%s", strrchr(path, '/') + 1);
	free(path);
	snprintf(url, sizeof(url), "%s/api/trace/%s/recording", p->host->server->url, p->trace);
	f->no_memory |= http__call(f->http, &(struct http_call){ .method = "GET",
								 .url = url,
								 .most = f->o->max_size,
								 .fd = outfile__fd(p->file),
								 .until = f->until,
								 .attempts = &p->host->busy,
								 .done = on_recording,
								 .ctx = p });
}

/* ---- checks in threads: a recording that is slow to read must not delay other hosts ---- */

/* The main function of a thread. */
static void *run_check(void *arg)
{
	struct fetch_check *c = arg;

	c->good = check_recording(c->p);
	atomic_store(&c->done, true);
	http__wake(c->p->host->f->http);
	return NULL;
}

/* True if a thread checks a recording of this host. Each host has one check at a time, so that none
 * of them takes all threads. */
static bool host_is_checked(const struct fetch *f, const struct fetch_host *h)
{
	for (size_t i = 0; i < FETCH_CHECKS; i++)
		if (f->checks[i].p && f->checks[i].p->host == h)
			return true;
	return false;
}

/* The next recording to check, of a host without a check that runs; NULL: none. */
static struct fetch_process *next_arrived(struct fetch *f)
{
	for (size_t i = 0; i < f->n && f->arrived; i++) {
		struct fetch_host *h = &f->hosts[i];

		for (size_t k = 0; k < h->n && !host_is_checked(f, h); k++)
			if (h->processes[k].state == FETCH_ARRIVED)
				return &h->processes[k];
	}
	return NULL;
}

/* Starts the check of the next recording, if there is one. Without a thread, gives the recording
 * up. */
static void start_check(struct fetch *f, struct fetch_check *c)
{
	c->p = next_arrived(f);
	if (!c->p)
		return;
	atomic_store(&c->done, false);
	if (!pthread_create(&c->thread, NULL, run_check, c))
		return;
	f->arrived--;
	snprintf(c->p->why, sizeof(c->p->why), "no thread to read it");
	finish_recording(c->p, /*good=*/false);
	c->p = NULL;
}

/* Takes the result of a check whose thread ends. */
static void end_check(struct fetch *f, struct fetch_check *c)
{
	struct fetch_process *p = c->p;

	pthread_join(c->thread, NULL);
	c->p = NULL;
	f->arrived--;
	finish_recording(p, c->good);
}

/* Takes results of checks and starts further ones. Returns whether a recording is unchecked. */
static bool run_checks(struct fetch *f)
{
	if (f->arrived)
		room__check(); /* finds the bound, which threads then only read */
	for (size_t i = 0; i < FETCH_CHECKS; i++) {
		struct fetch_check *c = &f->checks[i];

		if (c->p && atomic_load(&c->done))
			end_check(f, c);
		if (!c->p && f->arrived)
			start_check(f, c);
	}
	return f->arrived;
}

/* Ends all threads; their recordings count as not read. */
static void stop_checks(struct fetch *f)
{
	atomic_store(&f->stop, true);
	for (size_t i = 0; i < FETCH_CHECKS; i++)
		if (f->checks[i].p)
			end_check(f, &f->checks[i]);
}

/* ---- the captures of all hosts ---- */

/* True if a capture of the host has not ended, as far as we know. */
static bool has_running_captures(const struct fetch_host *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].state == FETCH_STARTED && *h->processes[i].trace)
			return true;
	return false;
}

/* Gives up the captures of a host that still run. */
static void miss_running(struct fetch_host *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].state == FETCH_STARTED)
			set_process_missing(&h->processes[i], "its capture has not ended in time");
}

/* For http__run(): lists the traces of hosts whose captures should have ended. Returns 0 if there
 * is nothing more to do, 1 if there is, or -1: interrupted, or memory is short. */
static int tick_of_captures(void *ctx)
{
	struct fetch *f = ctx;
	uint64_t now = clock__monotonic(),
		 first = f->begin_monotonic + (f->o->steps ? 0 : f->o->duration);
	bool more = false;

	if (is_interrupted(f))
		return -1;
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];

		if (!has_running_captures(h))
			continue;
		if (now >= f->until) {
			miss_running(h);
			continue;
		}
		more = true;
		if (h->polling || now < first || now < h->list_asked + POLL_EVERY)
			continue;
		h->list_asked = now;
		h->polling = call_host(h, "GET", "/api/trace/list", /*body=*/NULL, 0, on_list, h);
	}
	more |= run_checks(f);
	update_index(f);
	return f->no_memory ? -1 : more;
}

/* Deletes traces on the hosts whose recordings are not kept. */
static void delete_missing(struct fetch *f)
{
	f->until = clock__monotonic() + 2 * FETCH_SECOND;
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++) {
			struct fetch_process *p = &f->hosts[i].processes[k];

			if (p->state != FETCH_KEPT && *p->trace)
				delete_trace(p);
		}
	http__run(f->http, NULL, NULL);
}

/* Asks for all captures, waits for them, and keeps the recordings. */
static void fetch_all(struct fetch *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];
		double offset = h->error == UINT64_MAX ? 0 : (double)h->offset / 1e9;

		for (size_t k = 0; k < h->n; k++) {
			h->processes[k].start_at = round(((double)f->begin / 1e9 + offset) * 1e3) /
						   1e3;
			request_capture(&h->processes[k]);
		}
	}
	http__run(f->http, tick_of_captures, f);
	stop_checks(f);
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state < FETCH_KEPT)
				set_process_missing(&f->hosts[i].processes[k], "%s",
						    f->interrupted ? "interrupted"
								   : "out of memory");
	delete_missing(f);
}

/* ---- clocks and processes of the hosts ---- */

/*
 * Uses a reading of the host's clock (theirs, ns) if its error is smaller than that of earlier
 * ones. The host read its clock after we asked and before its answer came. So its clock minus ours
 * is between `theirs` minus a->answered and `theirs` minus a->asked. The middle of these two is
 * wrong by at most half of their difference.
 */
static void use_clock_reading(struct fetch_host *h, uint64_t theirs, const struct http_answer *a)
{
	uint64_t error = (a->answered - a->asked + 1) / 2;

	if (a->answered < a->asked || error >= h->error)
		return; /* our clock was set, or the answer took longer than another */
	h->error = error;
	h->offset = (int64_t)(theirs - a->asked) - (int64_t)error;
}

static void on_clock(void *ctx, const struct http_answer *a);
static void on_targets(void *ctx, const struct http_answer *a);

/* Asks the host for its clock again or, after enough readings, for its processes. */
static void ask_next(struct fetch_host *h)
{
	if (h->exchanges++ < FETCH_EXCHANGES)
		call_host(h, "GET", "/api/clock", /*body=*/NULL, 0, on_clock, h);
	else
		call_host(h, "GET", "/api/targets", /*body=*/NULL, 0, on_targets, h);
}

/* The host has told the time: uses it and asks on. */
static void on_clock(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *o;
	json_int_t ns;

	if (a->status == 404) {
		snprintf(h->why, sizeof(h->why),
			 "its serve is too old: it has no /api/clock; use this version there");
		return;
	}
	if (a->status != 200) {
		snprintf(h->why, sizeof(h->why), "%s", a->why);
		return;
	}
	o = parse_answer(a);
	ns = json_integer_value(json_object_get(o, "time_ns"));
	json_decref(o);
	if (ns <= 0) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		return;
	}
	use_clock_reading(h, (uint64_t)ns, a);
	ask_next(h);
}

/* True if the process runs in one of the job's pods, or no pods are given. */
static bool is_of_pods(const struct hosts *h, const char *pod)
{
	for (size_t i = 0; i < h->n_pods && pod; i++)
		if (!strcmp(h->pods[i], pod))
			return true;
	return !h->n_pods;
}

/* True for a process of the job's pods and of the chosen target. */
static bool is_wanted(const struct fetch *f, const json_t *process)
{
	const char *target = json_string_value(json_object_get(process, "target"));

	if (f->o->target && (!target || strcmp(target, f->o->target) != 0))
		return false;
	return is_of_pods(f->o->hosts, json_string_value(json_object_get(process, "pod")));
}

/* Adds a process of the host's answer. False: the answer is not valid. */
static bool take_process(struct fetch_host *h, const json_t *o)
{
	const json_t *rank = json_object_get(o, "rank");
	json_int_t pid = json_integer_value(json_object_get(o, "pid"));
	struct fetch_process *p = &h->processes[h->n];

	if (!json_is_object(o) || pid <= 0 || pid > INT32_MAX)
		return false;
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].pid == pid)
			return false;
	*p = (struct fetch_process){ .host = h, .pid = pid, .rank = -1 };
	if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
	    json_integer_value(rank) <= INT32_MAX)
		p->rank = json_integer_value(rank);
	h->n++;
	h->f->processes++;
	return true;
}

/* The host has listed its processes: takes those that are wanted. */
static void on_targets(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *doc = NULL, *list = NULL, *o;
	size_t i, n;

	if (a->status != 200) {
		snprintf(h->why, sizeof(h->why), "%s", a->why);
		return;
	}
	doc = parse_answer(a);
	list = json_object_get(doc, "processes");
	n = json_array_size(list);
	if (!json_is_array(list) || n > FETCH_PROCESSES) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		json_decref(doc);
		return;
	}
	h->processes = calloc(n + 1, sizeof(*h->processes));
	h->f->no_memory |= !h->processes;
	json_array_foreach(list, i, o) {
		if (!h->processes || !is_wanted(h->f, o) || take_process(h, o))
			continue;
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		h->f->processes -= h->n;
		h->n = 0;
		json_decref(doc);
		return;
	}
	json_decref(doc);
	h->answered = true;
	if (!h->n && h->f->o->target)
		snprintf(h->why, sizeof(h->why), "it has no process of the target %s",
			 h->f->o->target);
	else if (!h->n)
		snprintf(h->why, sizeof(h->why), "it has no process that can be traced");
	progress__at(&h->f->progress, (uint64_t)(h - h->f->hosts) + 1, h->f->processes);
}

/* For http__run(): ends it when the user wants that. Returns 0 (no work of its own) or -1. */
static int tick_of_asking(void *ctx)
{
	return is_interrupted(ctx) ? -1 : 0;
}

/* Asks all hosts for their clock and processes, until f->until. */
static void ask_all(struct fetch *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];

		if (h->server->why)
			snprintf(h->why, sizeof(h->why), "%s", h->server->why);
		else
			ask_next(h);
	}
	http__run(f->http, tick_of_asking, f);
}

/* ---- the result: the recordings that came, and the missing ones ---- */

/* The host whose clock differs most from ours; NULL: no clock is known. *error: the largest error
 * of all clocks, ns. */
static const struct fetch_host *find_worst_clock(const struct fetch *f, uint64_t *error)
{
	const struct fetch_host *worst = NULL;

	*error = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (h->error == UINT64_MAX)
			continue;
		*error = h->error > *error ? h->error : *error;
		if (!worst || llabs(h->offset) > llabs(worst->offset))
			worst = h;
	}
	return worst;
}

/* Prints the hosts and processes without a recording, and recordings without an end. */
static void print_missing(const struct fetch *f, FILE *out)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (*h->why)
			fprintf(out, "%s  %s: %s\n", n++ ? "" : "Missing:\n", h->server->name,
				h->why);
		for (size_t k = 0; k < h->n; k++) {
			const struct fetch_process *p = &h->processes[k];
			char rank[32] = "";

			if (p->rank >= 0)
				snprintf(rank, sizeof(rank), "rank %" PRId64 ", ", p->rank);
			if (p->state != FETCH_KEPT)
				fprintf(out, "%s  %s: %sPID %" PRId64 ": %s\n",
					n++ ? "" : "Missing:\n", h->server->name, rank, p->pid,
					p->why);
			else if (!p->complete)
				fprintf(out, "  %s: %sPID %" PRId64 ": its recording has no end\n",
					h->server->name, rank, p->pid);
		}
	}
}

/* Prints the result for people. */
static void print_text(const struct fetch *f, FILE *out)
{
	size_t kept = count_of(f, FETCH_KEPT), hosts = 0;
	uint64_t error, bytes = 0;
	const struct fetch_host *worst = find_worst_clock(f, &error);
	char a[32], b[32], c[24], word[PATH_MAX];

	for (size_t i = 0; i < f->n; i++) {
		bool any = false;

		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state == FETCH_KEPT) {
				bytes += f->hosts[i].processes[k].entry.bytes;
				any = true;
			}
		hosts += any;
	}
	fprintf(out, "%s: %s of %s recordings, from %zu of %zu hosts, %s\n",
		folder__path(f->folder), text__count(a, sizeof(a), kept),
		text__count(b, sizeof(b), f->processes), hosts, f->n,
		text__bytes(c, sizeof(c), bytes));
	if (worst)
		fprintf(out, "Clocks differ by up to %s (%s), measured to within %s\n",
			text__time(a, sizeof(a), (uint64_t)llabs(worst->offset)),
			worst->server->name, text__time(c, sizeof(c), error));
	print_missing(f, out);
	if (kept)
		fprintf(out, "Next: memtrace-bpf report %s\n",
			text__shell(word, sizeof(word), folder__path(f->folder))
				?: folder__path(f->folder));
}

/* Writes a host with its processes. */
static void put_host(struct json *j, const struct fetch_host *h)
{
	bool known = h->error != UINT64_MAX;

	json__open_object(j, NULL);
	json__string(j, "host", h->server->name);
	json__string(j, "url", h->server->url);
	json__bool(j, "answered", h->answered);
	if (*h->why)
		json__string(j, "why", h->why);
	if (known) {
		json__int(j, "clock_offset_ns", h->offset);
		json__uint(j, "clock_offset_error_ns", h->error);
	}
	json__open_array(j, "processes");
	for (size_t k = 0; k < h->n; k++) {
		const struct fetch_process *p = &h->processes[k];
		bool kept = p->state == FETCH_KEPT;

		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__uint_or_null(j, "rank", p->rank >= 0, (uint64_t)p->rank);
		json__string(j, "file", kept ? p->entry.file : NULL);
		if (kept) {
			json__bool(j, "complete", p->complete);
			json__uint(j, "bytes", p->entry.bytes);
			json__uint(j, "events", p->entry.events);
		} else {
			json__string(j, "why", p->why);
		}
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

/* Prints the result as JSON. */
static void print_json(const struct fetch *f, FILE *out)
{
	struct json *j = json__new(out, true);
	char date[40];

	if (!j)
		return;
	json__open_object(j, NULL);
	json__string(j, "folder", folder__path(f->folder));
	json__uint(j, "processes", f->processes);
	json__uint(j, "kept", count_of(f, FETCH_KEPT));
	json__string(j, "begin", f->begin ? text__date(date, sizeof(date), f->begin) : NULL);
	json__open_array(j, "hosts");
	for (size_t i = 0; i < f->n; i++)
		put_host(j, &f->hosts[i]);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
}

static void print_result(const struct fetch *f, FILE *out)
{
	if (f->o->as_json)
		print_json(f, out);
	else
		print_text(f, out);
}

/* ---- names ---- */

/* Comparison for qsort(): by rank; unknown ones (-1) first. */
static int by_rank(const void *a, const void *b)
{
	const struct fetch_process *x = *(struct fetch_process *const *)a,
				   *y = *(struct fetch_process *const *)b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Names each recording after its rank or, if the rank is not known or several processes have it,
 * after host and PID. The ranks are those that the hosts report: no recording is here yet. Returns
 * 0 or -ENOMEM. */
static int name_all(struct fetch *f)
{
	struct fetch_process **all = calloc(f->processes + 1, sizeof(*all));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			all[n++] = &f->hosts[i].processes[k];
	qsort(all, n, sizeof(*all), by_rank);
	for (size_t i = 0; i < n; i++) {
		bool like_last = i && all[i - 1]->rank == all[i]->rank;
		bool like_next = i + 1 < n && all[i + 1]->rank == all[i]->rank;
		bool is_unique = all[i]->rank >= 0 && !like_last && !like_next;

		if (is_unique)
			snprintf(all[i]->stem, sizeof(all[i]->stem), "rank-%" PRId64, all[i]->rank);
		else
			snprintf(all[i]->stem, sizeof(all[i]->stem), "%s-%" PRId64,
				 all[i]->host->server->name, all[i]->pid);
	}
	free(all);
	return 0;
}

/* ---- phases ---- */

/* Blocks the signals that end the command, and makes the hosts. Returns 0 or -ENOMEM. */
static int set_up_fetch(struct fetch *f)
{
	const struct http_opts http = { .token = f->o->token,
					.ca = f->o->ca,
					.parallel = f->o->parallel,
					.patience = f->o->timeout };

	sigemptyset(&f->signals);
	sigaddset(&f->signals, SIGINT);
	sigaddset(&f->signals, SIGTERM);
	sigaddset(&f->signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &f->signals, NULL);
	f->n = f->o->hosts->n;
	f->hosts = calloc(f->n + 1, sizeof(*f->hosts));
	f->http = http__new(&http);
	if (!f->hosts || !f->http)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++)
		f->hosts[i] = (struct fetch_host){ .f = f,
						   .server = &f->o->hosts->all[i],
						   .error = UINT64_MAX };
	return 0;
}

/* Chooses the moment at which all captures begin. */
static void choose_begin(struct fetch *f)
{
	uint64_t now = clock__read(CLOCK_REALTIME), begin = now + f->o->lead;
	char date[40], time[24];

	if (f->o->align)
		begin = (begin / f->o->align + 1) * f->o->align;
	/* To the millisecond, as the API has it. */
	f->begin = begin / FETCH_MS * FETCH_MS;
	f->begin_monotonic = clock__monotonic() + (f->begin - now);
	f->until = f->begin_monotonic + f->o->duration + f->o->timeout + 10 * FETCH_SECOND;
	log_info("%zu processes on %zu hosts; the window of %s%s begins at %s", f->processes, f->n,
		 f->o->steps ? "at most " : "", text__time(time, sizeof(time), f->o->duration),
		 text__date(date, sizeof(date), f->begin));
}

/* Asks all hosts, fetches the recordings and writes the index. Returns 0 or -errno. */
static int run_phases(struct fetch *f)
{
	f->until = clock__monotonic() + f->o->timeout;
	f->progress = progress__begin("asking hosts", f->n, "processes");
	ask_all(f);
	progress__end(&f->progress);
	if (f->no_memory || name_all(f))
		return -ENOMEM;
	if (f->processes && !f->interrupted) {
		choose_begin(f);
		f->progress = progress__begin("fetching", f->processes, "recordings");
		fetch_all(f);
		progress__end(&f->progress);
	}
	for (size_t i = 0; i < f->n; i++)
		if (!f->hosts[i].answered && !*f->hosts[i].why)
			snprintf(f->hosts[i].why, sizeof(f->hosts[i].why), "interrupted");
	return f->no_memory ? -ENOMEM : write_index(f);
}

/* The exit code: EXIT_UNUSABLE if a recording or a host is missing. */
static int status_of(const struct fetch *f)
{
	size_t kept = count_of(f, FETCH_KEPT);
	bool missing = kept < f->processes;

	for (size_t i = 0; i < f->n; i++)
		missing |= *f->hosts[i].why != '\0';
	return missing ? EXIT_UNUSABLE : EXIT_OK;
}

int fetch__run(const struct fetch_opts *o, FILE *out)
{
	struct fetch f = { .o = o };
	int err = folder__create(o->folder, o->force, &f.folder), status = EXIT_FAILED;

	if (err) {
		log_err("%s: %s", o->folder, folder__why(err));
		return EXIT_FAILED;
	}
	err = set_up_fetch(&f) ?: run_phases(&f);
	if (!err) {
		print_result(&f, out);
		status = status_of(&f);
	} else if (err == -ENOMEM) {
		log_err("out of memory");
	}
	http__free(f.http);
	for (size_t i = 0; f.hosts && i < f.n; i++) {
		for (size_t k = 0; k < f.hosts[i].n; k++)
			outfile__discard(f.hosts[i].processes[k].file);
		free(f.hosts[i].processes);
	}
	free(f.hosts);
	folder__free(f.folder);
	return status;
}
