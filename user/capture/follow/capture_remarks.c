/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/follow/capture_remarks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_loop.h"
#include "capture/session.h"
#include "inspect/proc.h"

#define SILENCE 5000000000ULL /* ns without an event until a warning */
#define SILENCE_STARTED                                                                            \
	60000000000ULL /* the same for a command of `run`, which has to import and load first */
#define CALL_EVERY 1000000000ULL
#define LINE_EVERY 500000000ULL
#define FIRST_PAUSE 1000000000ULL /* ns between looks for child processes, doubling up to */
#define LAST_PAUSE 16000000000ULL /* ns; each look opens a file for each thread */

static bool line_shown; /* the progress line is on the terminal */

const char *capture_remarks__until(struct capture_loop *loop)
{
	uint64_t steps = loop->args.session.steps;
	char time[24] = "", count[32] = "", *buf = loop->remarks.until;

	if (loop->until)
		return loop->until;
	if (!loop->args.duration && !steps)
		return "it exits";
	if (loop->args.duration)
		text__time(time, sizeof(time), loop->args.duration);
	if (steps)
		text__count(count, sizeof(count), steps);
	snprintf(buf, sizeof(loop->remarks.until), "%s%s%s%s %s passed", time,
		 *time && steps ? " or " : "", count,
		 !steps	      ? ""
		 : steps == 1 ? " step"
			      : " steps",
		 steps == 1 && !*time ? "has" : "have");
	return buf;
}

/* ---- the beginning and the end ---- */

static void say_waiting(const struct capture_loop *loop, const char *now)
{
	char title[512], clean[512];

	pick__title(loop->pick, title, sizeof(title));
	log_info("%swaiting for a %s (Ctrl-C to give up)", now,
		 text__clean(clean, sizeof(clean), title, strlen(title)));
}

static int say_nobody(const struct capture_loop *loop)
{
	char title[512], near[768], clean[512];

	pick__title(loop->pick, title, sizeof(title));
	tracees__nearest(loop->tracees, near, sizeof(near));
	log_err("there is no %s%s; --follow waits for one",
		text__clean(clean, sizeof(clean), title, strlen(title)), near);
	return EXIT_UNUSABLE;
}

/* opts.only says itself that it is attached to. */
static void say_only(const struct capture_loop *loop)
{
	const struct session *s = tracees__only(loop->tracees);

	if (!s || session__attached(s) || loop->command)
		return;
	if (loop->args.children)
		log_info("PID %d has no PyTorch so far: waiting for it, and for those that it "
			 "starts (Ctrl-C to give up)",
			 (int)loop->args.pid);
	else
		log_info("PID %d is Python without PyTorch so far: waiting for `import torch` "
			 "(Ctrl-C to give up)",
			 (int)loop->args.pid);
}

static void say_picked(struct capture_loop *loop)
{
	size_t traced = tracees__traced(loop->tracees), hopeful = tracees__hopeful(loop->tracees);
	bool open_ended = pick__open_ended(loop->pick), only_pids = pick__only_pids(loop->pick);
	char until[160];

	if (!hopeful) {
		say_waiting(loop, "");
		return;
	}
	if (!traced) {
		log_info("%zu process%s without PyTorch so far: waiting for `import torch` (Ctrl-C "
			 "to give up)",
			 hopeful, hopeful > 1 ? "es are" : " is");
		return;
	}
	if (!loop->args.duration && !loop->args.session.steps && !loop->until)
		snprintf(until, sizeof(until), "%s",
			 open_ended ? "Ctrl-C ends it" : "until their end, Ctrl-C stops earlier");
	else
		snprintf(until, sizeof(until), "until %s, Ctrl-C stops earlier",
			 capture_remarks__until(loop));
	log_info("%zu process%s traced%s; %s", traced, traced > 1 ? "es are" : " is",
		 open_ended || !only_pids ? ", and each that comes" : "", until);
}

int capture_remarks__begin(struct capture_loop *loop)
{
	loop->remarks.busy = tracees__traced(loop->tracees) > 0;
	if (loop->args.pid) {
		say_only(loop);
		return EXIT_OK;
	}
	if (!tracees__hopeful(loop->tracees) && !pick__open_ended(loop->pick))
		return say_nobody(loop);
	say_picked(loop);
	return EXIT_OK;
}

int capture_remarks__end(const struct capture_loop *loop)
{
	if (tracees__ever(loop->tracees))
		return EXIT_OK;
	if (!strcmp(loop->stop_reason, "duration")) {
		log_err("PID %d has not imported torch within the duration: nothing was recorded",
			(int)loop->args.pid);
		return EXIT_UNUSABLE;
	}
	if (strcmp(loop->stop_reason, "target exited") != 0)
		return EXIT_OK;
	/* `run` says why: the command may not use PyTorch at all */
	if (!loop->args.pid)
		log_err("they ended without importing torch: nothing to trace");
	else if (!loop->command)
		log_err("PID %d ended without importing torch: nothing to trace",
			(int)loop->args.pid);
	return EXIT_UNUSABLE;
}

/* ---- one process ---- */

/* True if it is time to look for child processes: at once, after a second, then less and less
 * often. */
static bool is_time(struct capture_remarks *m)
{
	uint64_t now = clock__monotonic();

	if (now < m->next_look)
		return false;
	if (m->next_look)
		m->pause = m->pause ? m->pause * 2 : FIRST_PAUSE;
	if (m->pause > LAST_PAUSE)
		m->pause = LAST_PAUSE;
	m->next_look = now + (m->pause ? m->pause : FIRST_PAUSE);
	return true;
}

/* The process of -p waits for PyTorch, while those that it has started have it: a launcher or a
 * router. */
static void suggest_child(struct capture_loop *loop)
{
	struct capture_remarks *m = &loop->remarks;
	pid_t first;
	size_t n;

	if (m->suggested || loop->command || loop->args.children || !is_time(m))
		return;
	n = descendants__with_torch(loop->args.pid, &first, 1);
	if (!n)
		return;
	m->suggested = true;
	log_warn("PID %d has no PyTorch, but %zu of the processes that it has started %s: give "
		 "that PID instead (-p %d%s), or add --children",
		 (int)loop->args.pid, n, n > 1 ? "have" : "has", (int)first,
		 n > 1 ? " and others" : "");
}

/* Picked processes have started others with PyTorch, which do not match. */
static void name_left_out(struct capture_loop *loop)
{
	struct capture_remarks *m = &loop->remarks;
	pid_t parent, first;
	size_t n;

	if (loop->args.children || !is_time(m))
		return;
	n = tracees__left_out(loop->tracees, &parent, &first);
	if (n <= m->untraced)
		return;
	if (!m->untraced)
		log_warn("PID %d matches, and %zu of the processes that it has started %s PyTorch "
			 "and no match (PID %d%s): not recorded; --children follows them",
			 (int)parent, n, n > 1 ? "have" : "has", (int)first,
			 n > 1 ? " and others" : "");
	m->untraced = n;
}

/* Warns of the first child processes with PyTorch, and sets the fact "children". */
static void look_for_untraced(struct capture_loop *loop, struct facts *facts)
{
	struct capture_remarks *m = &loop->remarks;
	pid_t pid = loop->args.pid, first;
	size_t n;

	if (!is_time(m))
		return;
	n = descendants__with_torch(pid, &first, 1);
	if (n <= m->untraced)
		return;
	if (!m->untraced)
		log_warn("%zu of the processes that PID %d has started %s PyTorch in %s (PID "
			 "%d%s): not traced; --children follows them. Without it, forked children "
			 "still pay for the probes",
			 n, (int)pid, n > 1 ? "have" : "has", n > 1 ? "them" : "it", (int)first,
			 n > 1 ? " and others" : "");
	m->untraced = n;
	facts__setf(facts, "children", "%zu", n);
}

static void warn_silence(struct capture_loop *loop, const struct session *s, uint64_t now)
{
	const uint64_t silence = loop->command ? SILENCE_STARTED : SILENCE;

	if (loop->remarks.silent || now <= silence || session__events(s))
		return;
	loop->remarks.silent = true;
	if (session__cuda_only(s)) {
		log_warn("no event for %d s: attached, and waiting for PID %d to take memory from "
			 "CUDA. What it took before is in the driver's figure",
			 (int)(silence / 1000000000), (int)loop->args.pid);
		return;
	}
	log_warn("no event for %d s: attached, and waiting for PID %d to allocate a tensor (is it "
		 "blocked, or are its workers the ones that do?)",
		 (int)(silence / 1000000000), (int)loop->args.pid);
	if (loop->command)
		loop->command->waiting(loop->ctx);
}

static void warn_no_steps(struct capture_loop *loop, const struct session *s, uint64_t now)
{
	if (!loop->args.session.steps || loop->remarks.stepless || now <= 2 * SILENCE ||
	    !session__events(s) || session__steps(s))
		return;
	if (loop->args.duration) /* the capture ends anyway */
		return;
	loop->remarks.stepless = true;
	log_warn("--steps: no optimizer step has ended in 10 s. Calls of the model count after 10 "
		 "s of "
		 "them, if the process has no optimizer. Otherwise press Ctrl-C, and use -d 30s");
}

void capture_remarks__clear(void)
{
	if (!line_shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	line_shown = false;
}

static void draw_line(struct capture_loop *loop, const struct session *s, uint64_t now)
{
	char events[32], lost[32], time[24];

	if (now < loop->remarks.last_line + LINE_EVERY || loop->command || loop->prints ||
	    log__level() != LOG_INFO || !progress__visible())
		return;
	loop->remarks.last_line = now;
	fprintf(stderr, "\r\033[K%s  %s events, %s lost, %" PRIu64 " steps ",
		text__time(time, sizeof(time), now),
		text__count(events, sizeof(events), session__events(s)),
		text__count(lost, sizeof(lost), session__lost(s)), session__steps(s));
	fflush(stderr);
	line_shown = true;
	log__before_line(capture_remarks__clear);
}

static void call_waiting(struct capture_loop *loop)
{
	uint64_t now = clock__monotonic(), *next = &loop->remarks.next_call;

	if (!loop->command || loop->args.children || now < *next)
		return;
	if (*next)
		loop->command->waiting(loop->ctx);
	*next = now + CALL_EVERY;
}

static void update_only(struct capture_loop *loop, struct session *s)
{
	uint64_t now = session__now(s);

	if (!session__attached(s)) {
		call_waiting(loop);
		suggest_child(loop);
		return;
	}
	if (!loop->args.children) {
		look_for_untraced(loop, session__facts(s));
		warn_silence(loop, s, now);
	}
	warn_no_steps(loop, s, now);
	draw_line(loop, s, now);
}

void capture_remarks__update(struct capture_loop *loop)
{
	struct session *s = tracees__only(loop->tracees);
	bool busy = tracees__traced(loop->tracees) > 0;

	if (s)
		update_only(loop, s);
	else if (!loop->args.pid)
		name_left_out(loop);
	if (loop->remarks.busy && !busy && pick__open_ended(loop->pick) &&
	    !tracees__hopeful(loop->tracees))
		say_waiting(loop, "none is left: ");
	loop->remarks.busy = busy;
}
