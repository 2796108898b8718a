/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The processes of a capture besides the first, or all if they are picked. The capture lasts until
 * the last of them ends or, with --all and --follow, until it is stopped.
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

/* Returns the static reason to stop, or NULL. */
static const char *stop_reason(struct capture_loop *loop, const struct pollfd *fds)
{
	if (fds[FD_SIGNAL].revents) {
		(void)capture_loop__signalled(loop);
		return "signal";
	}
	if (loop->quit)
		return "signal";
	if (capture_loop__time_is_over(loop))
		return "duration";
	if (!loop->pick)
		return tracees__traced(loop->tracees) ? NULL : "target exited";
	return pick__open_ended(loop->pick) || tracees__hopeful(loop->tracees) ? NULL
									       : "target exited";
}

int capture_many__drain(struct capture_loop *loop, struct pollfd *fds, const char **reason)
{
	bool busy = tracees__traced(loop->tracees) > 0, was_busy = busy;
	uint64_t ticks;

	fds[FD_SIGNAL].revents = 0;
	while (!(*reason = stop_reason(loop, fds))) {
		capture_loop__wait_for(loop, fds, FD_NR, capture_loop__poll_ms(loop, -1));
		if (fds[FD_TIMER].revents && read(fds[FD_TIMER].fd, &ticks, sizeof(ticks)) < 0 &&
		    errno != EAGAIN) {
			*reason = "signal";
			return -errno;
		}
		capture_loop__pump_tracees(loop, fds);
		busy = tracees__traced(loop->tracees) > 0;
		if (loop->pick && was_busy && !busy && !tracees__hopeful(loop->tracees) &&
		    pick__open_ended(loop->pick))
			say_waiting(loop, "none is left: ");
		was_busy = busy;
	}
	return 0;
}

int capture_many__begin(struct capture_loop *loop)
{
	/* Later processes need these capabilities. */
	capture_loop__limit_caps(CAPS_FILES |
				 (probes__kernel_multi() != PROBES_MULTI_NONE ? 0 : CAPS_PERF));
	tracees__pump(loop->tracees);
	if (!tracees__hopeful(loop->tracees) && !pick__open_ended(loop->pick))
		return say_nobody(loop);
	say_begun(loop);
	return EXIT_OK;
}

int capture_many__end(const struct capture_loop *loop)
{
	if (tracees__ever(loop->tracees) || strcmp(loop->stop_reason, "target exited"))
		return EXIT_OK;
	log_err("they ended without importing torch: nothing to trace");
	return EXIT_UNUSABLE;
}
