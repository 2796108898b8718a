/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sessions of a group, whose processes share programs. */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "inspect/proc.h"

void session__join(struct session *s, uint64_t type_cell)
{
	if (!s->opts.group || !s->probes)
		return;
	proc_group__member(s->opts.group, s->opts.number)->type_cell = type_cell;
	probes__feed(s->probes, s->opts.number, session__enqueue, s);
	/* If the process has ended, a later call says so. */
	proc_group__set_group(s->opts.group, proc__pid(s->target.proc), s->opts.number,
			      probes__group(s->probes));
}

bool session__take_number(struct session *s)
{
	int number = s->opts.group && !s->opts.number
			     ? proc_group__number(s->opts.group, proc__pid(s->target.proc))
			     : 0;

	if (number > 0)
		s->opts.number = number;
	s->wait.lacks_number = number == -ENOSPC;
	return number >= 0;
}

void session__give_number(struct session *s, uint32_t number)
{
	s->opts.number = number;
	s->wait.next = 0; /* what waited for it goes on */
}

void session__leave(struct session *s)
{
	if (s->opts.group && s->probes)
		proc_group__set_group(s->opts.group, proc__pid(s->target.proc), s->opts.number, 0);
}

int session__fit(struct session *s, struct failure *f)
{
	struct probes_opts po = { .ring_bytes = s->opts.ring_bytes,
				  .py = s->layout,
				  .group = s->opts.group,
				  .sets = s->opts.sets,
				  .no_autograd = s->opts.no_autograd,
				  .steps_only = s->opts.steps_only,
				  .host = s->opts.host,
				  .modules = !s->opts.no_modules && s->target.has_slot };
	const struct hook *misfit = s->opts.group ? probes__misfit(s->probes, s->target.hooks)
						  : NULL;
	const char *why = "";

	if (!misfit)
		return 0;
	session__leave(s);
	probes__feed(s->probes, s->opts.number, NULL, NULL);
	probes__free(s->probes);
	s->queue.len = s->queue.floor = 0;
	s->wait.joined_early = false;
	s->probes = probes__share(po.sets, &po.py, s->target.hooks);
	log_debug("PID %d: %s is in another file than in the processes before: %s",
		  (int)proc__pid(s->target.proc), hook__name(misfit->id),
		  s->probes ? "shares the programs of others that have it there"
			    : "loads programs for it");
	if (!s->probes)
		s->probes = probes__load(&po, &why);
	if (!s->probes)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why, strerror(errno));
	session__join(s, proc_group__member(s->opts.group, s->opts.number)->type_cell);
	return 0;
}
