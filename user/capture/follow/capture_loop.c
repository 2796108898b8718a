/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/capture_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/ending/hooks.h"
#include "capture/kernel.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"
#include "capture/session.h"
#include "inspect/proc.h"

#define FILES_WANTED 8192     /* open files for several processes: each takes about ten */
#define DRAIN_EVERY 10000000L /* ns between two drains of the rings */
#define DRAIN_QUIET 40000000L /* ns between two drains while the processes make few events */

enum { FD_SIGNAL, FD_TRACEES, FD_TIMER, FD_NR };

/* ---- messages ---- */

#define SILENCE 5000000000ULL /* ns without an event until a warning */
/* ns without an event until a warning about a command of `run`, which has to import and load first */
#define SILENCE_STARTED 60000000000ULL
#define CALL_EVERY 1000000000ULL /* ns between two calls of loop_command.waiting() */
#define LINE_EVERY 500000000ULL	 /* ns between two updates of the progress line */
/* First and longest pause between searches for child processes, ns: a search opens many files. */
#define FIRST_PAUSE 1000000000ULL
#define LAST_PAUSE 16000000000ULL

static bool line_shown; /* the progress line is on the terminal */

const char *capture_loop__until(struct capture_loop *loop)
{
	uint64_t steps = loop->args.session.steps;
	char duration_text[24] = "", steps_text[40] = "", *buf = loop->remarks.until;
	const char * or = loop->args.duration && steps ? " or " : "";

	if (loop->until)
		return loop->until;
	if (!loop->args.duration && !steps)
		return "it exits";
	if (loop->args.duration)
		text__time(duration_text, sizeof(duration_text), loop->args.duration);
	if (steps)
		text__counted(steps_text, sizeof(steps_text), steps, "step");
	snprintf(buf, sizeof(loop->remarks.until), "%s%s%s %s passed", duration_text, or,
		 steps_text, steps == 1 && !*duration_text ? "has" : "have");
	return buf;
}

/* ---- the beginning and the end ---- */

/* Logs that the capture waits for a process. prefix: begin of the message. */
static void say_waiting(const struct capture_loop *loop, const char *prefix)
{
	char title[512], clean[512];

	pick__title(loop->pick, title, sizeof(title));
	log_info("%swaiting for a %s (Ctrl-C to give up)", prefix,
		 text__clean(clean, sizeof(clean), title, strlen(title)));
}

/* Logs that no process matches. Returns the exit code. */
static int say_nobody(const struct capture_loop *loop)
{
	char title[512], near[768], clean[512];

	pick__title(loop->pick, title, sizeof(title));
	tracees__nearest(loop->tracees, near, sizeof(near));
	log_err("there is no %s%s; --follow waits for one",
		text__clean(clean, sizeof(clean), title, strlen(title)), near);
	return EXIT_UNUSABLE;
}

/* Logs that the capture of one process waits for PyTorch. tracees.c logs the attach. */
static void say_only(const struct capture_loop *loop)
{
	const struct session *session = tracees__only(loop->tracees);

	if (!session || session__attached(session) || loop->command)
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

/* Says how many processes the capture begins with. */
static void say_picked(struct capture_loop *loop)
{
	size_t traced = tracees__traced(loop->tracees);
	size_t hopeful = tracees__hopeful(loop->tracees);
	bool open_ended = pick__open_ended(loop->pick);
	const char *more = open_ended || !pick__only_pids(loop->pick) ? ", and each that comes"
								      : "";
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
			 capture_loop__until(loop));
	log_info("%zu process%s traced%s; %s", traced, traced > 1 ? "es are" : " is", more, until);
}

/* Logs which processes the capture begins with. Returns 0, or an exit code, logged: there is no
 * such process. */
static int say_begin(struct capture_loop *loop)
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

/* Returns 0, or an exit code, logged: all processes ended without PyTorch. */
static int say_end(const struct capture_loop *loop)
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

/* True if it is time to search for child processes: at once, after a second, then less and less
 * often. */
static bool is_search_due(struct capture_remarks *remarks)
{
	uint64_t now = clock__monotonic();

	if (now < remarks->next_look)
		return false;
	if (remarks->next_look)
		remarks->pause = remarks->pause ? remarks->pause * 2 : FIRST_PAUSE;
	if (remarks->pause > LAST_PAUSE)
		remarks->pause = LAST_PAUSE;
	remarks->next_look = now + (remarks->pause ? remarks->pause : FIRST_PAUSE);
	return true;
}

static const char *have(size_t n)
{
	return n > 1 ? "have" : "has";
}

static const char *and_others(size_t n)
{
	return n > 1 ? " and others" : "";
}

/* Warns once if the process of -p waits for PyTorch while processes that it has started have it: it
 * is a launcher or a router. */
static void suggest_child(struct capture_loop *loop)
{
	struct capture_remarks *remarks = &loop->remarks;
	pid_t first;
	size_t n;

	if (remarks->suggested || loop->command || loop->args.children || !is_search_due(remarks))
		return;
	n = descendants__with_torch(loop->args.pid, &first, 1);
	if (!n)
		return;
	remarks->suggested = true;
	log_warn("PID %d has no PyTorch, but %zu of the processes that it has started %s: give "
		 "that PID instead (-p %d%s), or add --children",
		 (int)loop->args.pid, n, have(n), (int)first, and_others(n));
}

/* Warns if picked processes have started others with PyTorch that do not match. */
static void name_left_out(struct capture_loop *loop)
{
	struct capture_remarks *remarks = &loop->remarks;
	pid_t parent, first;
	size_t n;

	if (loop->args.children || !is_search_due(remarks))
		return;
	n = tracees__left_out(loop->tracees, &parent, &first);
	if (n <= remarks->untraced)
		return;
	if (!remarks->untraced)
		log_warn("PID %d matches, and %zu of the processes that it has started %s PyTorch "
			 "and no match (PID %d%s): not recorded; --children follows them",
			 (int)parent, n, have(n), (int)first, and_others(n));
	remarks->untraced = n;
}

/* Warns of the first child processes with PyTorch, and sets the fact "children". */
static void look_for_untraced(struct capture_loop *loop, struct facts *facts)
{
	struct capture_remarks *remarks = &loop->remarks;
	pid_t pid = loop->args.pid, first;
	size_t n;

	if (!is_search_due(remarks))
		return;
	n = descendants__with_torch(pid, &first, 1);
	if (n <= remarks->untraced)
		return;
	if (!remarks->untraced)
		log_warn("%zu of the processes that PID %d has started %s PyTorch in %s (PID "
			 "%d%s): not traced; --children follows them. Without it, forked children "
			 "still pay for the probes",
			 n, (int)pid, have(n), n > 1 ? "them" : "it", (int)first, and_others(n));
	remarks->untraced = n;
	facts__setf(facts, "children", "%zu", n);
}

/* Warns once if no event came for a while. now: ns since the attach, as in the functions below. */
static void warn_silence(struct capture_loop *loop, const struct session *session, uint64_t now)
{
	const uint64_t silence = loop->command ? SILENCE_STARTED : SILENCE;

	if (loop->remarks.silent || now <= silence || session__events(session))
		return;
	loop->remarks.silent = true;
	if (session__no_torch(session) && session__uses_cuda(session)) {
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

/* Warns once if --steps is given and no step has ended. */
static void warn_no_steps(struct capture_loop *loop, const struct session *session, uint64_t now)
{
	if (!loop->args.session.steps || loop->remarks.stepless || now <= 2 * SILENCE ||
	    !session__events(session) || session__steps(session))
		return;
	if (loop->args.duration) /* the capture ends anyway */
		return;
	loop->remarks.stepless = true;
	log_warn("--steps: no optimizer step has ended in 10 s. Calls of the model count after 10 "
		 "s of "
		 "them, if the process has no optimizer. Otherwise press Ctrl-C, and use -d 30s");
}

/* Removes the progress line. */
static void clear_line(void)
{
	if (!line_shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	line_shown = false;
}

/* Draws the line of progress on a terminal, every LINE_EVERY. */
static void draw_line(struct capture_loop *loop, const struct session *session, uint64_t now)
{
	char events[32], lost[32], time[24];

	if (now < loop->remarks.last_line + LINE_EVERY || loop->command || loop->prints ||
	    log__level() != LOG_INFO || !progress__visible())
		return;
	loop->remarks.last_line = now;
	fprintf(stderr, "\r\033[K%s  %s events, %s lost, %" PRIu64 " steps ",
		text__time(time, sizeof(time), now),
		text__count(events, sizeof(events), session__events(session)),
		text__count(lost, sizeof(lost), session__lost(session)), session__steps(session));
	fflush(stderr);
	line_shown = true;
	log__before_line(clear_line);
}

/* Calls loop_command.waiting() once a second, from a second after the first call on. */
static void call_waiting(struct capture_loop *loop)
{
	uint64_t now = clock__monotonic(), *next = &loop->remarks.next_call;

	if (!loop->command || loop->args.children || now < *next)
		return;
	if (*next)
		loop->command->waiting(loop->ctx);
	*next = now + CALL_EVERY;
}

/* Logs messages about the one process of the capture. */
static void update_only(struct capture_loop *loop, struct session *session)
{
	uint64_t now = session__now(session);

	if (!session__attached(session)) {
		call_waiting(loop);
		suggest_child(loop);
		return;
	}
	if (!loop->args.children) {
		look_for_untraced(loop, session__facts(session));
		warn_silence(loop, session, now);
	}
	warn_no_steps(loop, session, now);
	draw_line(loop, session, now);
}

/* Logs the messages that are due, and redraws the progress line on a terminal. */
static void update_remarks(struct capture_loop *loop)
{
	struct session *session = tracees__only(loop->tracees);
	bool busy = tracees__traced(loop->tracees) > 0;

	if (session)
		update_only(loop, session);
	else if (!loop->args.pid)
		name_left_out(loop);
	if (loop->remarks.busy && !busy && pick__open_ended(loop->pick) &&
	    !tracees__hopeful(loop->tracees))
		say_waiting(loop, "none is left: ");
	loop->remarks.busy = busy;
}

/* ---- opening and closing ---- */

/* Opens the state that several processes share. A single process has programs of its own, which
 * cost others nothing. Returns 0 or negative with *failure. */
static int open_group(struct capture_loop *loop, struct failure *failure)
{
	const char *why = "out of memory";

	if (!capture_loop__of_several(loop))
		return 0;
	io__raise_limit(FILES_WANTED);
	loop->sets = calloc(1, sizeof(*loop->sets));
	if (loop->sets)
		loop->group = proc_group__new(
			loop->hooks ? ending_hooks__processes_fd(loop->hooks) : -1, &why);
	if (!loop->group)
		return failure__set(failure, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why,
				    strerror(errno));
	return 0;
}

/* Opens the programs that see how processes end. Call it before open_group(), whose programs remove
 * processes that end. Returns 0 or negative with *failure. */
static int open_endings(struct capture_loop *loop, struct failure *failure)
{
	bool inside = loop->command && loop->command->inside;
	const char *why = "without the kernel, memtrace-bpf does not see how a process ends";

	if (loop->endings == LOOP_ENDINGS_NO ||
	    (inside && loop->endings == LOOP_ENDINGS_IF_POSSIBLE))
		return 0;
	errno = ENOTSUP;
	loop->hooks = inside ? NULL : ending_hooks__new(&why);
	if (!loop->hooks && loop->endings == LOOP_ENDINGS_NEEDED)
		return failure__set(failure, EXIT_NOT_PERMITTED, -errno, "--on-kill: %s (%s)", why,
				    strerror(errno));
	if (!loop->hooks)
		log_debug("the recording will not say how a process ended: %s (%s)", why,
			  strerror(errno));
	else if (*ending_hooks__missing(loop->hooks))
		log__print(loop->endings == LOOP_ENDINGS_NEEDED ? LOG_WARN : LOG_DEBUG,
			   "this kernel does not tell %s", ending_hooks__missing(loop->hooks));
	return 0;
}

/* Sets up the processes to follow. 0, or negative with *failure. */
static int open_tracees(struct capture_loop *loop, struct failure *failure)
{
	struct tracees_opts opts = { .session = loop->args.session,
				     .only = loop->args.pid,
				     .children = loop->args.children,
				     .endings = loop->hooks,
				     .output = loop->output,
				     .ctx = loop->ctx };

	if (loop->args.pid)
		loop->args.pick = (struct pick_args){ .pids = { loop->args.pid }, .n_pids = 1 };
	opts.pick = loop->pick = pick__new(&loop->args.pick);
	opts.session.group = loop->group;
	opts.session.sets = loop->sets;
	opts.session.started = loop->command;
	opts.session.inside = loop->command ? loop->command->inside : NULL;
	if (loop->command)
		opts.caps |= CAPS_KILL;
	if (loop->writes_later || capture_loop__of_several(loop))
		opts.caps |= CAPS_FILES;
	opts.until = capture_loop__until(loop);
	loop->tracees = loop->pick ? tracees__new(&opts) : NULL;
	return loop->tracees ? 0
			     : failure__set(failure, EXIT_FAILED, -errno,
					    "processes cannot be followed: %s", strerror(errno));
}

/* Opens the hooks of endings, the group and the processes that were given. 0, or negative with
 * *failure. */
static int open_all(struct capture_loop *loop, struct failure *failure)
{
	const struct pick_args *args = &loop->args.pick;
	int err = open_endings(loop, failure);

	if (err)
		return err;
	err = open_group(loop, failure);
	if (err)
		return err;
	err = open_tracees(loop, failure);
	for (size_t i = 0; i < args->n_pids && !err; i++)
		err = tracees__take(loop->tracees, args->pids[i], failure);
	return err;
}

int capture_loop__open(struct capture_loop *loop)
{
	struct failure failure;

	if (!open_all(loop, &failure))
		return EXIT_OK;
	log_err("%s", failure.text);
	return failure.status;
}

void capture_loop__close(struct capture_loop *loop)
{
	tracees__free(loop->tracees);
	proc_group__free(loop->group);
	ending_hooks__free(loop->hooks);
	free(loop->sets);
	pick__free(loop->pick);
	loop->pick = NULL;
	loop->tracees = NULL;
	loop->group = NULL;
	loop->hooks = NULL;
	loop->sets = NULL;
}

/* The signals that end a capture. */
static sigset_t ending_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	return set;
}

static int open_signals(void)
{
	sigset_t set = ending_signals();

	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Gives up the signalfd, so that a second Ctrl-C ends the program. SIGHUP stays blocked: it comes
 * when the process has died that would restore the live view's terminal, so this one has to restore
 * it. */
static void close_signals(int fd)
{
	sigset_t set = ending_signals();
	struct signalfd_siginfo si;

	while (read(fd, &si, sizeof(si)) > 0)
		;
	close(fd);
	sigdelset(&set, SIGHUP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void set_timer(int fd, long every)
{
	struct itimerspec it = { .it_interval.tv_nsec = every, .it_value.tv_nsec = every };

	timerfd_settime(fd, 0, &it, NULL);
}

static int open_timer(void)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd >= 0)
		set_timer(fd, DRAIN_EVERY);
	return fd;
}

/* True if the rings need draining only every DRAIN_QUIET ns, and the duration does not end
 * before. */
static bool may_drain_rarely(const struct capture_loop *loop)
{
	uint64_t until = loop->args.duration;

	return tracees__quiet(loop->tracees) &&
	       (!until || tracees__now(loop->tracees) + DRAIN_QUIET < until);
}

/* Calls poll() on fds and on the sources, and calls ready() of the sources. */
static void wait_for(struct capture_loop *loop, struct pollfd fds[FD_NR])
{
	struct loop_source *sources = loop->sources, ready[LOOP_SOURCES];
	struct pollfd all[FD_NR + LOOP_SOURCES];
	size_t i, n_sources = loop->n_sources, n_ready = 0;

	memcpy(all, fds, FD_NR * sizeof(*fds));
	for (i = 0; i < n_sources; i++)
		all[FD_NR + i] = (struct pollfd){ .fd = sources[i].fd, .events = POLLIN };
	if (poll(all, FD_NR + n_sources, tracees__poll_ms(loop->tracees)) < 0)
		n_sources = 0;
	memcpy(fds, all, FD_NR * sizeof(*fds));
	for (i = 0; i < n_sources; i++) {
		if (all[FD_NR + i].revents)
			ready[n_ready++] = sources[i];
	}
	for (i = 0; i < n_ready; i++)
		ready[i].ready(ready[i].ctx);
}

/* True if the signal that came ends the capture. A command gets it as long as it is captured. */
static bool ends_by_signal(struct capture_loop *loop)
{
	if (!loop->command)
		return true;
	return loop->command->signalled(loop->ctx) && !tracees__only(loop->tracees);
}

/* Time that --duration limits, ns. The wait for one process counts, as it may never use PyTorch. */
static uint64_t elapsed(const struct capture_loop *loop)
{
	if (loop->args.pid && !loop->command && !tracees__ever(loop->tracees))
		return clock__monotonic() - loop->began;
	return tracees__now(loop->tracees);
}

/* Returns the static reason to stop, or NULL. */
static const char *stop_reason(struct capture_loop *loop, const struct pollfd *fds)
{
	if ((fds[FD_SIGNAL].revents && ends_by_signal(loop)) || loop->quit)
		return "signal";
	if (loop->args.duration && elapsed(loop) >= loop->args.duration)
		return "duration";
	return pick__open_ended(loop->pick) || tracees__hopeful(loop->tracees) ? NULL
									       : "target exited";
}

/* The loop: drains and logs until there is a reason to stop. */
static void drain(struct capture_loop *loop, struct pollfd *fds)
{
	uint64_t ticks;
	bool was_quiet = false, quiet;

	while (!(loop->stop_reason = stop_reason(loop, fds))) {
		wait_for(loop, fds);
		if (fds[FD_TRACEES].revents)
			tracees__drain_new(loop->tracees);
		if (fds[FD_TIMER].revents && read(fds[FD_TIMER].fd, &ticks, sizeof(ticks)) < 0)
			log_debug("cannot read the timer: %s", strerror(errno));
		quiet = !fds[FD_TRACEES].revents && may_drain_rarely(loop);
		if (quiet != was_quiet)
			set_timer(fds[FD_TIMER].fd, quiet ? DRAIN_QUIET : DRAIN_EVERY);
		was_quiet = quiet;
		/* If only new stacks came, leave the regular work to the timer. */
		if (fds[FD_TRACEES].revents && !fds[FD_SIGNAL].revents && !fds[FD_TIMER].revents &&
		    tracees__poll_ms(loop->tracees))
			continue;
		tracees__pump(loop->tracees);
		update_remarks(loop);
	}
}

/* Begins the output and the first round. Returns EXIT_OK or an exit code, logged. */
static int begin(struct capture_loop *loop)
{
	int status = tracees__begin_output(loop->tracees);

	if (!status && loop->command)
		status = loop->command->ready(loop->ctx);
	if (status)
		return status;
	if (!loop->args.pid)
		tracees__limit_caps(loop->tracees);
	tracees__pump(loop->tracees);
	return say_begin(loop);
}

int capture_loop__run(struct capture_loop *loop)
{
	struct pollfd fds[FD_NR] = {
		[FD_SIGNAL] = { .fd = loop->command ? loop->command->signals : open_signals(),
				.events = POLLIN },
		[FD_TRACEES] = { .fd = tracees__wake_fd(loop->tracees), .events = POLLIN },
		[FD_TIMER] = { .fd = open_timer(), .events = POLLIN },
	};
	int status = EXIT_FAILED, failed;

	loop->began = clock__monotonic();
	if (fds[FD_SIGNAL].fd < 0 || fds[FD_TIMER].fd < 0)
		log_err("cannot make a timer: %s", strerror(errno));
	else
		status = begin(loop);
	if (!status)
		drain(loop, fds);
	clear_line();
	if (!loop->command && fds[FD_SIGNAL].fd >= 0)
		close_signals(fds[FD_SIGNAL].fd);
	failed = tracees__finish(loop->tracees, status ? "signal" : loop->stop_reason);
	if (fds[FD_TIMER].fd >= 0)
		close(fds[FD_TIMER].fd);
	if (status || failed)
		return status ? status : failed;
	return say_end(loop);
}
