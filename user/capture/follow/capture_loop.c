/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/capture_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "capture/hooks.h"
#include "capture/kernel.h"
#include "capture/pick.h"
#include "capture/probes.h"
#include "capture/probes/proc_group.h"

#define FILES_WANTED 8192     /* each process takes about ten */
#define DRAIN_EVERY 10000000L /* ns */
#define DRAIN_QUIET 40000000L /* ns, while the processes make few events */

enum { FD_SIGNAL, FD_TRACEES, FD_TIMER, FD_NR };

/* True if there may be more processes than args.pid. */
static bool of_several(const struct capture_loop *loop)
{
	return !loop->args.pid || loop->args.children;
}

/* State that several processes share. A single process has programs for itself, which cost others
 * nothing. Returns 0 or negative with *f. */
static int open_group(struct capture_loop *loop, struct failure *f)
{
	const char *why = "out of memory";

	if (!of_several(loop))
		return 0;
	io__raise_limit(FILES_WANTED);
	loop->sets = calloc(1, sizeof(*loop->sets));
	if (loop->sets)
		loop->group = proc_group__new(
			loop->hooks ? ending_hooks__processes_fd(loop->hooks) : -1, &why);
	if (!loop->group)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why, strerror(errno));
	return 0;
}

/* Opened before the group, whose programs remove processes that end. */
static int open_endings(struct capture_loop *loop, struct failure *f)
{
	bool inside = loop->command && loop->command->inside;
	const char *why = "without the kernel, memtrace-bpf does not see how a process ends";

	if (loop->endings == LOOP_ENDINGS_NO ||
	    (inside && loop->endings == LOOP_ENDINGS_IF_POSSIBLE))
		return 0;
	errno = ENOTSUP;
	loop->hooks = inside ? NULL : ending_hooks__new(&why);
	if (!loop->hooks && loop->endings == LOOP_ENDINGS_NEEDED)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "--on-kill: %s (%s)", why,
				    strerror(errno));
	if (!loop->hooks)
		log_debug("the recording will not say how a process ended: %s (%s)", why,
			  strerror(errno));
	else if (*ending_hooks__missing(loop->hooks))
		log__print(loop->endings == LOOP_ENDINGS_NEEDED ? LOG_WARN : LOG_DEBUG,
			   "this kernel does not tell %s", ending_hooks__missing(loop->hooks));
	return 0;
}

static int open_tracees(struct capture_loop *loop, struct failure *f)
{
	struct tracees_opts o = { .session = loop->args.session,
				  .only = loop->args.pid,
				  .children = loop->args.children,
				  .endings = loop->hooks,
				  .output = loop->output,
				  .ctx = loop->ctx };

	if (loop->args.pid)
		loop->args.pick = (struct pick_args){ .pids = { loop->args.pid }, .n_pids = 1 };
	o.pick = loop->pick = pick__new(&loop->args.pick);
	o.session.group = loop->group;
	o.session.sets = loop->sets;
	o.session.started = loop->command;
	o.session.inside = loop->command ? loop->command->inside : NULL;
	o.caps = (loop->command ? CAPS_KILL : 0) |
		 (loop->writes_later || of_several(loop) ? CAPS_FILES : 0);
	o.until = capture_remarks__until(loop);
	loop->tracees = loop->pick ? tracees__new(&o) : NULL;
	return loop->tracees ? 0
			     : failure__set(f, EXIT_FAILED, -errno,
					    "processes cannot be followed: %s", strerror(errno));
}

int capture_loop__open(struct capture_loop *loop)
{
	const struct pick_args *a = &loop->args.pick;
	struct failure f;
	int err = open_endings(loop, &f);

	if (!err)
		err = open_group(loop, &f);
	if (!err)
		err = open_tracees(loop, &f);
	for (size_t i = 0; i < a->n_pids && !err; i++)
		err = tracees__take(loop->tracees, a->pids[i], &f);
	if (!err)
		return EXIT_OK;
	log_err("%s", f.text);
	return f.status;
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

/* A second Ctrl-C ends the program. SIGHUP does not: it comes when the process has died that would
 * restore the live view's terminal, so this one has to restore it. */
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

/* The duration ends in time, too. */
static bool may_rest(const struct capture_loop *loop)
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

/* True if a signal ends the capture. A command gets it as long as it is captured. */
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

static void drain(struct capture_loop *loop, struct pollfd *fds)
{
	uint64_t ticks;
	bool rests = false, may;

	while (!(loop->stop_reason = stop_reason(loop, fds))) {
		wait_for(loop, fds);
		if (fds[FD_TRACEES].revents)
			tracees__drain_new(loop->tracees);
		if (fds[FD_TIMER].revents && read(fds[FD_TIMER].fd, &ticks, sizeof(ticks)) < 0)
			log_debug("cannot read the timer: %s", strerror(errno));
		may = !fds[FD_TRACEES].revents && may_rest(loop);
		if (may != rests)
			set_timer(fds[FD_TIMER].fd, may ? DRAIN_QUIET : DRAIN_EVERY);
		rests = may;
		/* New names only: the regular work waits for the timer. */
		if (fds[FD_TRACEES].revents && !fds[FD_SIGNAL].revents && !fds[FD_TIMER].revents &&
		    tracees__poll_ms(loop->tracees))
			continue;
		tracees__pump(loop->tracees);
		capture_remarks__update(loop);
	}
}

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
	return capture_remarks__begin(loop);
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
	capture_remarks__clear();
	if (!loop->command && fds[FD_SIGNAL].fd >= 0)
		close_signals(fds[FD_SIGNAL].fd);
	failed = tracees__finish(loop->tracees, status ? "signal" : loop->stop_reason);
	if (fds[FD_TIMER].fd >= 0)
		close(fds[FD_TIMER].fd);
	if (status || failed)
		return status ? status : failed;
	return capture_remarks__end(loop);
}
