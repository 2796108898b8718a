/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
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
#include "serve/fetch/internal.h"

/* ---- clocks and processes of the hosts ---- */

/* Asks each host for its clock and its processes. */

/* Takes the better of two measurements. The host read its clock after we asked and before its
 * answer was here. So its clock minus ours is between that reading minus the later of our times and
 * that reading minus the earlier one. The middle is wrong by at most half of the difference. */
static void take_exchange(struct fetch_host *h, uint64_t theirs, const struct http_answer *a)
{
	uint64_t error = (a->answered - a->asked + 1) / 2;

	if (a->answered < a->asked || error >= h->error)
		return; /* our clock was set, or the answer took longer than another */
	h->error = error;
	h->offset = (int64_t)(theirs - a->asked) - (int64_t)error;
}

static void on_clock(void *ctx, const struct http_answer *a);
static void on_targets(void *ctx, const struct http_answer *a);

static void ask_next(struct fetch_host *h)
{
	if (h->exchanges++ < FETCH_EXCHANGES)
		fetch__call(h, "GET", "/api/clock", NULL, 0, on_clock, h);
	else
		fetch__call(h, "GET", "/api/targets", NULL, 0, on_targets, h);
}

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
	o = fetch__parse(a);
	ns = json_integer_value(json_object_get(o, "time_ns"));
	json_decref(o);
	if (ns <= 0) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		return;
	}
	take_exchange(h, (uint64_t)ns, a);
	ask_next(h);
}

static bool is_of_pods(const struct hosts *h, const char *pod)
{
	for (size_t i = 0; i < h->n_pods && pod; i++)
		if (!strcmp(h->pods[i], pod))
			return true;
	return !h->n_pods;
}

static bool is_wanted(const struct fetch *f, const json_t *process)
{
	const char *target = json_string_value(json_object_get(process, "target"));

	return is_of_pods(f->o->hosts, json_string_value(json_object_get(process, "pod"))) &&
	       (!f->o->target || (target && !strcmp(target, f->o->target)));
}

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

static void on_targets(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *doc = NULL, *list = NULL, *o;
	size_t i, n;

	if (a->status != 200) {
		snprintf(h->why, sizeof(h->why), "%s", a->why);
		return;
	}
	doc = fetch__parse(a);
	list = json_object_get(doc, "processes");
	n = json_array_size(list);
	if (!json_is_array(list) || n > FETCH_PROCESSES) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		json_decref(doc);
		return;
	}
	h->processes = calloc(n + 1, sizeof(*h->processes));
	h->f->no_memory |= !h->processes;
	json_array_foreach(list, i, o)
	{
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

static int tick(void *ctx)
{
	return fetch__interrupted(ctx) ? -1 : 0;
}

/* Asks all hosts for their clock and processes, until f->until. */
static void ask_all(struct fetch *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];

		if (h->is->why)
			snprintf(h->why, sizeof(h->why), "%s", h->is->why);
		else
			ask_next(h);
	}
	http__run(f->http, tick, f);
}

/* ---- the result ---- */

/* Prints the recordings that came, and the missing ones. */

/* The clock with the largest offset, and the largest error of all. */
static const struct fetch_host *clocks(const struct fetch *f, uint64_t *error)
{
	const struct fetch_host *most = NULL;

	*error = 0;
	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (h->error == UINT64_MAX)
			continue;
		*error = h->error > *error ? h->error : *error;
		if (!most || llabs(h->offset) > llabs(most->offset))
			most = h;
	}
	return most;
}

static void print_missing(const struct fetch *f, FILE *out)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (*h->why)
			fprintf(out, "%s  %s: %s\n", n++ ? "" : "Missing:\n", h->is->name, h->why);
		for (size_t k = 0; k < h->n; k++) {
			const struct fetch_process *p = &h->processes[k];
			char rank[32] = "";

			if (p->rank >= 0)
				snprintf(rank, sizeof(rank), "rank %" PRId64 ", ", p->rank);
			if (p->state != FETCH_KEPT)
				fprintf(out, "%s  %s: %sPID %" PRId64 ": %s\n",
					n++ ? "" : "Missing:\n", h->is->name, rank, p->pid, p->why);
			else if (!p->complete)
				fprintf(out, "  %s: %sPID %" PRId64 ": its recording has no end\n",
					h->is->name, rank, p->pid);
		}
	}
}

static void print_text(const struct fetch *f, FILE *out)
{
	size_t kept = fetch__count(f, FETCH_KEPT), hosts = 0;
	uint64_t error, bytes = 0;
	const struct fetch_host *most = clocks(f, &error);
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
	if (most)
		fprintf(out, "Clocks differ by up to %s (%s), measured to within %s\n",
			text__time(a, sizeof(a), (uint64_t)llabs(most->offset)), most->is->name,
			text__time(c, sizeof(c), error));
	print_missing(f, out);
	if (kept)
		fprintf(out, "Next: memtrace-bpf report %s\n",
			text__shell(word, sizeof(word), folder__path(f->folder))
				?: folder__path(f->folder));
}

static void put_host(struct json *j, const struct fetch_host *h)
{
	bool known = h->error != UINT64_MAX;

	json__open_object(j, NULL);
	json__string(j, "host", h->is->name);
	json__string(j, "url", h->is->url);
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

static void print_json(const struct fetch *f, FILE *out)
{
	struct json *j = json__new(out, true);
	char date[40];

	if (!j)
		return;
	json__open_object(j, NULL);
	json__string(j, "folder", folder__path(f->folder));
	json__uint(j, "processes", f->processes);
	json__uint(j, "kept", fetch__count(f, FETCH_KEPT));
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

/* ---- the fetch ---- */

/* ---- names ---- */

static int by_rank(const void *a, const void *b)
{
	const struct fetch_process *x = *(struct fetch_process *const *)a,
				   *y = *(struct fetch_process *const *)b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Names recordings after their ranks, and those whose rank is not known, or not theirs alone, after
 * host and PID. The ranks are the hosts' word until the recordings are here. */
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
		bool alone = all[i]->rank >= 0 && (!i || all[i - 1]->rank != all[i]->rank) &&
			     (i + 1 == n || all[i + 1]->rank != all[i]->rank);

		if (alone)
			snprintf(all[i]->stem, sizeof(all[i]->stem), "rank-%" PRId64, all[i]->rank);
		else
			snprintf(all[i]->stem, sizeof(all[i]->stem), "%s-%" PRId64,
				 all[i]->host->is->name, all[i]->pid);
	}
	free(all);
	return 0;
}

/* ---- phases ---- */

static int set_up(struct fetch *f)
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
						   .is = &f->o->hosts->all[i],
						   .error = UINT64_MAX };
	return 0;
}

/* The moment of all windows. */
static void appoint(struct fetch *f)
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

static int work(struct fetch *f)
{
	f->until = clock__monotonic() + f->o->timeout;
	f->progress = progress__begin("asking hosts", f->n, "processes");
	ask_all(f);
	progress__end(&f->progress);
	if (f->no_memory || name_all(f))
		return -ENOMEM;
	if (f->processes && !f->interrupted) {
		appoint(f);
		f->progress = progress__begin("fetching", f->processes, "recordings");
		fetch_take__all(f);
		progress__end(&f->progress);
	}
	for (size_t i = 0; i < f->n; i++)
		if (!f->hosts[i].answered && !*f->hosts[i].why)
			snprintf(f->hosts[i].why, sizeof(f->hosts[i].why), "interrupted");
	return f->no_memory ? -ENOMEM : fetch_take__index(f);
}

static int status_of(const struct fetch *f)
{
	size_t kept = fetch__count(f, FETCH_KEPT);
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
	err = set_up(&f);
	if (!err)
		err = work(&f);
	if (err == -ENOMEM)
		log_err("out of memory");
	if (!err) {
		print_result(&f, out);
		status = status_of(&f);
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
