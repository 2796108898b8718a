/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A capture of several processes that are picked: there is no first one. It lasts as long as one of
 * them does, or, where more may come (--all, --follow), until it is told to stop.
 */
#include "follow/capture_loop_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capture/caps.h"
#include "capture/probes.h"
#include "follow/tracees.h"
#include "lib/exit.h"
#include "lib/text.h"
#include "log/log.h"

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

static void say_begun(const struct capture_loop *loop)
{
	size_t traced = tracees__traced(loop->tracees), hopeful = tracees__hopeful(loop->tracees);
	char until[160], passed[96];

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
			 pick__open_ended(loop->pick) ? "Ctrl-C ends it"
						      : "until their end, Ctrl-C stops earlier");
	else
		snprintf(until, sizeof(until), "until %s, Ctrl-C stops earlier",
			 capture_loop__say_until(passed, sizeof(passed), loop));
	log_info("%zu process%s traced%s; %s", traced, traced > 1 ? "es are" : " is",
		 pick__open_ended(loop->pick) || !pick__only_pids(loop->pick)
			 ? ", and each that comes"
			 : "",
		 until);
}

/* NULL: it goes on. */
static const char *stop_reason(const struct capture_loop *loop, const struct pollfd *fds)
{
	if (loop->quit || fds[FD_SIGNAL].revents)
		return "signal";
	if (capture_loop__is_enough(loop))
		return "duration";
	if (!pick__open_ended(loop->pick) && !tracees__hopeful(loop->tracees))
		return "target exited";
	return NULL;
}

static int drain(struct capture_loop *loop, struct pollfd *fds)
{
	bool busy = tracees__traced(loop->tracees) > 0, was_busy = busy;
	uint64_t ticks;

	for (;;) {
		loop->stop_reason = stop_reason(loop, fds);
		if (loop->stop_reason)
			return 0;
		capture_loop__wait_for(loop, fds, FD_HURRY, capture_loop__poll_ms(loop, -1));
		if (fds[FD_TIMER].revents && read(fds[FD_TIMER].fd, &ticks, sizeof(ticks)) < 0 &&
		    errno != EAGAIN)
			return -errno;
		capture_loop__pump_relatives(loop, fds);
		busy = tracees__traced(loop->tracees) > 0;
		if (was_busy && !busy && !tracees__hopeful(loop->tracees) &&
		    pick__open_ended(loop->pick))
			say_waiting(loop, "none is left: ");
		was_busy = busy;
	}
}

/* Those of the command may have been in another's folder; what is needed for the processes that
 * come is kept. */
static void limit_caps(void)
{
	int err = caps__limit(CAPS_FILES |
			      (probes__kernel_multi() != PROBES_MULTI_NONE ? 0 : CAPS_PERF));

	if (err)
		log_debug("capabilities could not be given up: %s", strerror(-err));
}

int capture_many__run(struct capture_loop *loop)
{
	struct pollfd fds[FD_NR] = {
		[FD_SIGNAL] = { .fd = capture_loop__open_signals(), .events = POLLIN },
		[FD_TARGET] = { .fd = -1 },
		[FD_RELATIVES] = { .fd = tracees__wake_fd(loop->tracees), .events = POLLIN },
		[FD_TIMER] = { .fd = capture_loop__open_timer(), .events = POLLIN },
		[FD_HURRY] = { .fd = -1 },
	};
	int err;

	if (fds[FD_SIGNAL].fd < 0 || fds[FD_TIMER].fd < 0) {
		log_err("cannot make a timer: %s", strerror(errno));
		return EXIT_FAILED;
	}
	limit_caps();
	tracees__pump(loop->tracees);
	if (!tracees__hopeful(loop->tracees) && !pick__open_ended(loop->pick))
		return say_nobody(loop);
	say_begun(loop);
	err = drain(loop, fds);
	loop->err = err;
	capture_loop__default_signals(fds[FD_SIGNAL].fd);
	tracees__finish(loop->tracees, loop->stop_reason ? loop->stop_reason : "signal");
	close(fds[FD_SIGNAL].fd);
	close(fds[FD_TIMER].fd);
	if (err)
		return EXIT_FAILED;
	if (tracees__ever(loop->tracees) || strcmp(loop->stop_reason, "target exited"))
		return EXIT_OK;
	log_err("they ended without importing torch: nothing to trace");
	return EXIT_UNUSABLE;
}
