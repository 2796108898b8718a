/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "follow/warn_children.h"

#include <inttypes.h>

#include "log/log.h"
#include "process/descendants.h"
#include "record/stream.h"

#define FIRST_PAUSE 1000000000ULL /* ns */
#define LAST_PAUSE 16000000000ULL /* ns; each look opens a file for each thread */

void warn_children__look(struct warn_children *u, pid_t pid, struct facts *facts, uint64_t now)
{
	pid_t first;
	size_t n;

	if (now < u->next)
		return;
	if (u->next)
		u->pause = u->pause ? u->pause * 2 : FIRST_PAUSE;
	if (u->pause > LAST_PAUSE)
		u->pause = LAST_PAUSE;
	u->next = now + (u->pause ? u->pause : FIRST_PAUSE);
	n = descendants__with_torch(pid, &first, 1);
	if (n <= u->most)
		return;
	if (!u->most)
		log_warn("%zu of the processes that PID %d has started %s PyTorch in %s (PID "
			 "%d%s): not traced; --children follows them. "
			 "Without it those that it forks pay for the probes all the same",
			 n, (int)pid, n > 1 ? "have" : "has", n > 1 ? "them" : "it", (int)first,
			 n > 1 ? " and others" : "");
	u->most = n;
	facts__setf(facts, "children", "%zu", n);
}
