/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "follow/capture_loop_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "capture/caps.h"
#include "capture/probes.h"
#include "capture/proc_group.h"
#include "capture/session.h"
#include "follow/tracees.h"
#include "lib/clock.h"
#include "lib/exit.h"
#include "lib/failure.h"
#include "lib/text.h"
#include "log/log.h"
#include "log/progress.h"
#include "process/proc.h"
#include "process/rlimit.h"

#define FILES_WANTED 8192 /* each process takes about ten */
#define EXIT_NONE                                                                                  \
	(-2) /* from attach(): the first process ended without PyTorch, but others were traced */
#define DRAIN_EVERY 10000000L /* ns */
#define SILENCE 5000000000ULL /* ns without an event until a warning */
#define SILENCE_STARTED                                                                            \
	60000000000ULL /* the same for a command of `run`, which has to import and load first */
#define TELL_EVERY 1000000000ULL
#define PROGRESS_EVERY 500000000ULL

static int open_tracees(struct capture_loop *loop, struct session_opts *so, struct failure *f)
{
	struct tracees_opts ro = { .children = loop->args.children,
				   .output = loop->output,
				   .ctx = loop->ctx };
	const char *why = "out of memory";

	rlimit__raise_files(FILES_WANTED);
	loop->sets = calloc(1, sizeof(*loop->sets));
	loop->group = loop->sets ? proc_group__new(&why) : NULL;
	if (!loop->group)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why, strerror(errno));
	so->group = loop->group;
	so->sets = loop->sets;
	so->late = !loop->started; /* a launcher may never have PyTorch itself */
	ro.session = *so;
	ro.pick = loop->pick;
	loop->tracees = tracees__new(loop->args.pid, &ro, &so->number, f);
	return loop->tracees ? 0 : -ESRCH;
}

bool capture_loop__many(const struct capture_loop *loop)
{
	return pick_args__many(&loop->args.pick);
}

/* Opens a capture of picked processes. Those with a given PID must exist. */
static int open_many(struct capture_loop *loop, struct session_opts *so, struct failure *f)
{
	const struct pick_args *a = &loop->args.pick;
	size_t i;
	int err;

	loop->pick = pick__new(a);
	if (!loop->pick)
		return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
	err = open_tracees(loop, so, f);
	for (i = 0; i < a->n_pids && !err; i++)
		err = tracees__take(loop->tracees, a->pids[i], f);
	return err;
}

int capture_loop__open(struct capture_loop *loop)
{
	struct session_opts so = loop->args.session;
	struct failure f;

	so.started = loop->started;
	so.inside = loop->inside;
	if (capture_loop__many(loop)) {
		if (!open_many(loop, &so, &f))
			return 0;
	} else if (!loop->args.children || !open_tracees(loop, &so, &f)) {
		loop->session = session__new(loop->args.pid, &so, &f);
		if (loop->session)
			return 0;
	}
	log_err("%s", f.text);
	return f.status;
}

void capture_loop__close(struct capture_loop *loop)
{
	tracees__free(loop->tracees);
	session__free(loop->session);
	proc_group__free(loop->group);
	free(loop->sets);
	pick__free(loop->pick);
	loop->pick = NULL;
	loop->session = NULL;
	loop->tracees = NULL;
	loop->group = NULL;
	loop->sets = NULL;
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int open_timer(void)
{
	struct itimerspec it = { .it_interval.tv_nsec = DRAIN_EVERY,
				 .it_value.tv_nsec = DRAIN_EVERY };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd >= 0)
		timerfd_settime(fd, 0, &it, NULL);
	return fd;
}

void capture_loop__wait_for(struct capture_loop *loop, struct pollfd *fds, size_t n, int ms)
{
	struct loop_source *sources = loop->sources, ready[LOOP_SOURCES];
	struct pollfd all[FD_NR + LOOP_SOURCES];
	size_t i, n_sources = loop->n_sources, n_ready = 0;

	memcpy(all, fds, n * sizeof(*fds));
	for (i = 0; i < n_sources; i++)
		all[n + i] = (struct pollfd){ .fd = sources[i].fd, .events = POLLIN };
	if (poll(all, n + n_sources, ms) < 0)
		return;
	memcpy(fds, all, n * sizeof(*fds));
	for (i = 0; i < n_sources; i++) {
		if (all[n + i].revents)
			ready[n_ready++] = sources[i];
	}
	for (i = 0; i < n_ready; i++)
		ready[i].ready(ready[i].ctx);
}

static void default_signals(int fd)
{
	struct signalfd_siginfo si;
	sigset_t set;

	while (read(fd, &si, sizeof(si)) > 0)
		;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

bool capture_loop__signalled(struct capture_loop *loop)
{
	if (loop->started)
		loop->signalled(loop->ctx);
	return !loop->started;
}

int capture_loop__poll_ms(const struct capture_loop *loop, int ms)
{
	int theirs = loop->tracees ? tracees__poll_ms(loop->tracees) : -1;

	return theirs >= 0 && (ms < 0 || theirs < ms) ? theirs : ms;
}

void capture_loop__pump_tracees(struct capture_loop *loop, const struct pollfd *fds)
{
	if (!loop->tracees)
		return;
	if (fds[FD_TRACEES].revents)
		tracees__drain_new(loop->tracees);
	tracees__pump(loop->tracees);
}

bool capture_loop__time_is_over(const struct capture_loop *loop)
{
	return loop->tracees && loop->args.duration &&
	       tracees__now(loop->tracees) >= loop->args.duration;
}

void capture_loop__limit_caps(unsigned int keep)
{
	int err = caps__limit(keep);

	if (err)
		log_debug("capabilities could not be given up: %s", strerror(-err));
}

/* Waits for PyTorch and attaches. Returns 0; > 0: exit code; < 0: stopped while waiting, or
 * EXIT_NONE. */
static int attach(struct capture_loop *loop, struct pollfd *fds)
{
	struct failure f;
	uint64_t told = 0, now;
	bool said = loop->started;
	int err;

	while ((err = session__attach(loop->session, &f)) == -EAGAIN) {
		if (!said && loop->tracees)
			log_info("PID %d has no PyTorch so far: waiting for it, and for those that "
				 "it starts (Ctrl-C to give up)",
				 (int)loop->args.pid);
		else if (!said)
			log_info("PID %d is Python without PyTorch so far: waiting for `import "
				 "torch` (Ctrl-C to give up)",
				 (int)loop->args.pid);
		said = true;
		fds[FD_TARGET].fd = proc__pidfd(session__proc(loop->session));
		capture_loop__wait_for(loop, fds, FD_TIMER,
				       capture_loop__poll_ms(loop,
							     session__poll_ms(loop->session)));
		capture_loop__pump_tracees(loop, fds);
		if (loop->quit || (fds[FD_SIGNAL].revents && capture_loop__signalled(loop)))
			return -1;
		if (capture_loop__time_is_over(loop))
			return -1;
		now = clock__monotonic();
		if (loop->started && !loop->tracees && now - told > TELL_EVERY) {
			if (told)
				loop->waiting(loop->ctx);
			told = now;
		}
		if (fds[FD_TARGET].revents && loop->tracees && tracees__ever(loop->tracees))
			return EXIT_NONE;
		if (fds[FD_TARGET].revents && loop->started)
			/* `run` logs why: the command may not use PyTorch at all */
			return EXIT_UNUSABLE;
		if (fds[FD_TARGET].revents) {
			log_err("PID %d ended without importing torch: nothing to trace",
				(int)loop->args.pid);
			return EXIT_UNUSABLE;
		}
	}
	if (err) {
		log_err("%s", f.text);
		return f.status;
	}
	return 0;
}

const char *capture_loop__say_until(char *buf, size_t size, const struct capture_loop *loop)
{
	uint64_t steps = loop->args.session.steps ? loop->args.session.steps : loop->drained_steps;
	char time[24] = "", count[32] = "";

	if (loop->until)
		return loop->until;
	if (!loop->args.duration && !steps)
		return "it exits";
	if (loop->args.duration)
		text__time(time, sizeof(time), loop->args.duration);
	if (steps)
		text__count(count, sizeof(count), steps);
	snprintf(buf, size, "%s%s%s%s %s passed", time, *time && steps ? " or " : "", count,
		 !steps	      ? ""
		 : steps == 1 ? " step"
			      : " steps",
		 steps == 1 && !*time ? "has" : "have");
	return buf;
}

static void say_attached(const struct capture_loop *loop)
{
	const char *problem = session__python_problem(loop->session);
	char until[96];

	if (problem)
		log_warn("no Python lines: %s", problem);
	if (loop->started) {
		const char *at = facts__get(session__facts(loop->session), "attached_at");
		bool start = at && !strcmp(at, "start");

		log_event(LOG_INFO, "attached",
			  LOG_FIELDS(LOG_INT("target", loop->args.pid),
				     LOG_BOOL("from_start", start)),
			  "recording PID %d%s", (int)loop->args.pid,
			  start ? " from PyTorch's first allocation on"
				: "; PyTorch may have allocated before");
		return;
	}
	log_event(LOG_INFO, "attached",
		  LOG_FIELDS(LOG_INT("target", loop->args.pid), LOG_BOOL("from_start", false)),
		  "attached to PID %d; until %s, Ctrl-C stops earlier", (int)loop->args.pid,
		  capture_loop__say_until(until, sizeof(until), loop));
}

/* Redraws the progress line on a terminal. */
static void progress(const struct capture_loop *loop, uint64_t now, bool erase)
{
	char events[32], lost[32], time[24];

	if (loop->started || loop->prints || log__level() != LOG_INFO || !progress__visible())
		return;
	if (erase) {
		fprintf(stderr, "\r\033[K");
		return;
	}
	fprintf(stderr, "\r\033[K%s  %s events, %s lost, %" PRIu64 " steps ",
		text__time(time, sizeof(time), now),
		text__count(events, sizeof(events), session__events(loop->session)),
		text__count(lost, sizeof(lost), session__lost(loop->session)),
		session__steps(loop->session));
	fflush(stderr);
}

static const char *stop_reason(struct capture_loop *loop, const struct pollfd *fds, uint64_t now)
{
	if (loop->quit || (fds[FD_SIGNAL].revents && capture_loop__signalled(loop)))
		return "signal";
	if (fds[FD_TARGET].revents)
		return "target exited";
	if (session__replaced(loop->session))
		return "exec";
	if (loop->args.duration && now >= loop->args.duration)
		return "duration";
	if (loop->args.session.steps && session__steps(loop->session) >= loop->args.session.steps)
		return "steps";
	return loop->drained ? loop->drained(loop->ctx) : NULL;
}

static int drain(struct capture_loop *loop, struct pollfd *fds)
{
	const uint64_t silence = loop->started ? SILENCE_STARTED : SILENCE;
	uint64_t now, ticks, last_progress = 0;
	bool silent = false, stepless = false;
	int err;

	for (;;) {
		capture_loop__wait_for(loop, fds, FD_NR, capture_loop__poll_ms(loop, -1));
		if (fds[FD_TRACEES].revents) {
			/* Also drains events whose names the first process's session has to read. */
			tracees__drain_new(loop->tracees);
			fds[FD_WAKE].revents = POLLIN;
		}
		if (fds[FD_WAKE].revents && !fds[FD_SIGNAL].revents && !fds[FD_TARGET].revents &&
		    !fds[FD_TIMER].revents) {
			err = session__drain_new(loop->session, loop->sink);
			if (err)
				return err;
			continue;
		}
		if (fds[FD_TIMER].revents && read(fds[FD_TIMER].fd, &ticks, sizeof(ticks)) < 0 &&
		    errno != EAGAIN)
			return -errno;
		err = session__pump(loop->session, loop->sink);
		if (err)
			return err;
		if (loop->tracees)
			tracees__pump(loop->tracees);
		now = session__now(loop->session);
		if (!loop->tracees)
			warn_children__look(&loop->untraced, loop->args.pid,
					    session__facts(loop->session), now);
		loop->stop_reason = stop_reason(loop, fds, now);
		if (loop->stop_reason)
			return 0;
		if (!silent && !loop->tracees && now > silence && !session__events(loop->session)) {
			log_warn("no event for %d s: attached, and waiting for PID %d to allocate "
				 "a tensor (is it blocked, or "
				 "are its workers the ones that do?)",
				 (int)(silence / 1000000000), (int)loop->args.pid);
			if (loop->started)
				loop->waiting(loop->ctx);
			silent = true;
		}
		if (loop->args.session.steps && !stepless && now > 2 * SILENCE &&
		    session__events(loop->session) && !session__steps(loop->session)) {
			log_warn("--steps: no optimizer step has ended in 10 s");
			stepless = true;
		}
		if (now - last_progress > PROGRESS_EVERY) {
			progress(loop, now, false);
			last_progress = now;
		}
	}
}

static int finish(struct capture_loop *loop)
{
	if (loop->tracees)
		tracees__first(loop->tracees, NULL);
	return session__finish(loop->session, loop->sink, loop->stop_reason);
}

static void say_stopped(const struct capture_loop *loop, int err)
{
	log_event(LOG_DEBUG, "stopped",
		  LOG_FIELDS(LOG_INT("target", loop->args.pid),
			     LOG_STRING("reason", loop->stop_reason),
			     LOG_UINT("events", session__events(loop->session)),
			     LOG_UINT("lost", session__lost(loop->session)),
			     LOG_UINT("steps", session__steps(loop->session)),
			     LOG_INT("error", err)),
		  "PID %d: stopped: %s", (int)loop->args.pid,
		  err ? strerror(-err) : loop->stop_reason);
	if (err || loop->started) /* `run` logs the end of its command */
		return;
	if (!strcmp(loop->stop_reason, "target exited"))
		log_event(LOG_INFO, "ended", LOG_FIELDS(LOG_INT("target", loop->args.pid)),
			  "PID %d has ended", (int)loop->args.pid);
	else if (!strcmp(loop->stop_reason, "exec"))
		log_event(LOG_INFO, "exec", LOG_FIELDS(LOG_INT("target", loop->args.pid)),
			  "PID %d runs another program now (exec): attach again to trace that",
			  (int)loop->args.pid);
}

/* Captures the first process from attaching to its end. Returns 0, an exit code, logged, or
 * negative as attach() does. */
static int run_first(struct capture_loop *loop, struct pollfd *fds)
{
	int status = loop->started ? loop->ready(loop->ctx) : 0, err;

	if (!status)
		status = attach(loop, fds);
	if (!status && loop->attached)
		status = loop->attached(loop->ctx);
	if (status)
		return status;
	if (loop->tracees)
		tracees__first(loop->tracees, loop->session);
	/* Opening the output may have needed the capability to write into another user's folder. */
	capture_loop__limit_caps((loop->started ? CAPS_KILL : 0) |
				 (loop->writes_later || loop->tracees ? CAPS_FILES : 0) |
				 (session__has_multi(loop->session) ? 0 : CAPS_PERF));
	say_attached(loop);
	fds[FD_WAKE].fd = session__wake_fd(loop->session);
	err = drain(loop, fds);
	progress(loop, 0, true);
	if (!loop->started && !loop->tracees)
		default_signals(fds[FD_SIGNAL].fd);
	if (!err)
		err = finish(loop);
	loop->err = err;
	say_stopped(loop, err);
	return err ? EXIT_FAILED : EXIT_OK;
}

/* Captures all other processes to their end. Returns 0 or an exit code. */
static int run_others(struct capture_loop *loop, struct pollfd *fds)
{
	const char *reason = loop->stop_reason;
	int err = 0;

	fds[FD_TARGET].fd = fds[FD_WAKE].fd = -1;
	if (reason && !strcmp(reason, "exec"))
		tracees__take_first(loop->tracees);
	if (reason && strcmp(reason, "signal") != 0 && strcmp(reason, "duration") != 0)
		reason = NULL;
	if (!reason && loop->session)
		tracees__pump(loop->tracees);
	if (!reason)
		err = capture_many__drain(loop, fds, &reason);
	if (!loop->started)
		default_signals(fds[FD_SIGNAL].fd);
	tracees__finish(loop->tracees, reason);
	if (!loop->session)
		loop->stop_reason = reason;
	if (err && !loop->err)
		loop->err = err;
	return err ? EXIT_FAILED : EXIT_OK;
}

int capture_loop__run(struct capture_loop *loop)
{
	struct pollfd fds[FD_NR] = {
		[FD_SIGNAL] = { .fd = loop->started ? loop->signals : open_signals(),
				.events = POLLIN },
		[FD_TARGET] = { .fd = loop->session ? proc__pidfd(session__proc(loop->session))
						    : -1,
				.events = POLLIN },
		[FD_TRACEES] = { .fd = loop->tracees ? tracees__wake_fd(loop->tracees) : -1,
				 .events = POLLIN },
		[FD_TIMER] = { .fd = open_timer(), .events = POLLIN },
		[FD_WAKE] = { .fd = -1, .events = POLLIN },
	};
	int status, others;

	if (fds[FD_SIGNAL].fd < 0 || fds[FD_TIMER].fd < 0) {
		log_err("cannot make a timer: %s", strerror(errno));
		return EXIT_FAILED;
	}
	status = loop->session ? run_first(loop, fds) : capture_many__begin(loop);
	if (status < 0) {
		loop->stop_reason = status == EXIT_NONE ? "target exited" : "signal";
		status = EXIT_OK;
	}
	others = loop->tracees ? run_others(loop, fds) : EXIT_OK;
	if (!loop->started)
		close(fds[FD_SIGNAL].fd);
	close(fds[FD_TIMER].fd);
	if (status || others)
		return status ? status : others;
	return loop->session ? EXIT_OK : capture_many__end(loop);
}
