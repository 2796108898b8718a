/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "watch/targets/black_box.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "record/folder.h"
#include "watch/targets/spawn.h"
#include "watch/watch.h"

#define LABEL "watch-killed" /* begins the names of the recorder's files */
#define EXPECTED_MAX 64	     /* ended processes whose files are expected */
/* Time for the recorder to write a file, in ns. A process that ended well has none. */
#define WRITE_MOST UINT64_C(60000000000)
/* Delays before the recorder starts again, in ns: after it has ended by itself, and after a
 * failure. */
#define AGAIN_AFTER UINT64_C(5000000000)
#define AGAIN_AFTER_FAILURE UINT64_C(60000000000)
#define STOP_MOST 20000 /* time for the recorder to detach, in ms */

struct expected {
	struct watch_shot shot;
	char started[40]; /* start of the process in RFC 3339 */
	uint64_t deadline;
};

struct black_box {
	struct watch *w;
	struct subprocess recorder;
	uint64_t next_start; /* CLOCK_MONOTONIC, ns */
	bool one_ended;	     /* a watched process has ended since the recorder started */
	struct expected expected[EXPECTED_MAX];
	size_t n;
};

struct black_box *black_box__new(struct watch *w)
{
	struct black_box *b = calloc(1, sizeof(*b));

	if (b)
		b->w = w;
	return b;
}

void black_box__free(struct black_box *b)
{
	int status;

	if (!b)
		return;
	subprocess__signal(&b->recorder, SIGINT);
	if (b->recorder.pid && !subprocess__wait(&b->recorder, STOP_MOST, &status))
		subprocess__kill(&b->recorder);
	free(b);
}

bool black_box__busy(const struct black_box *b)
{
	return b->n;
}

/* ---- the recorder ---- */

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

static void start_recorder(struct black_box *b, uint64_t now)
{
	const struct watch_args *a = &b->w->args;
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
	if (!add_processes(b->w, argv, n, pids))
		return;
	err = watch_spawn__self(argv, -1, SUBPROCESS_INHERIT, 0, &b->recorder);
	if (!err)
		return;
	b->next_start = now + AGAIN_AFTER_FAILURE;
	log_warn("--on-kill: cannot start the recorder: %s; tried again in 1m", strerror(-err));
}

static void look_at_recorder(struct black_box *b, uint64_t now)
{
	char text[WATCH_TEXT], result[24];
	int status;

	if (!b->recorder.pid) {
		if (now >= b->next_start)
			start_recorder(b, now);
		return;
	}
	if (!subprocess__ended(&b->recorder, &status))
		return;
	b->next_start = now + AGAIN_AFTER;
	if (!status || !b->w->n_targets)
		return;
	/* A recorder refuses PIDs that have ended before it attached: start one for the others. */
	if (b->one_ended || !all_alive(b->w)) {
		b->next_start = now;
		return;
	}
	b->next_start = now + AGAIN_AFTER_FAILURE;
	snprintf(text, sizeof(text),
		 "no recording if a process is killed: the recorder ended with %s; its messages "
		 "are on standard error; it starts again in 1m",
		 watch_spawn__result(status, result));
	b->w->failed++;
	watch_say__target(b->w, "failed", NULL, text);
}

/* ---- its files ---- */

void black_box__expect(struct black_box *b, const struct watch_target *t)
{
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

/* recorded: the recorder has ended, so there will be no more files. */
static void look_at_files(struct black_box *b, bool recorded, uint64_t now)
{
	struct watch_capture *c = b->w->captures;
	struct folder *f = watch_capture__folder(c);

	if (!b->n || watch_capture__busy(c) || folder__read_again(f))
		return;
	for (size_t i = 0; i < b->n;) {
		const struct folder_entry *e = find_entry(f, &b->expected[i]);

		if (e && watch_capture__take(c, &b->expected[i].shot, e))
			return; /* one at a time */
		if (e || recorded || now >= b->expected[i].deadline)
			memmove(&b->expected[i], &b->expected[i + 1],
				(--b->n - i) * sizeof(*b->expected));
		else
			i++;
	}
}

void black_box__pump(struct black_box *b, uint64_t now)
{
	look_at_recorder(b, now);
	look_at_files(b, !b->recorder.pid, now);
}
