/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a session tells of itself: the other files of a session and its owner ask. */
#include "capture/session/session_internal.h"

#include <unistd.h>

#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/session/stages.h"
#include "inspect/elf.h"
#include "inspect/proc.h"

bool session__attached(const struct session *s)
{
	return s->attached;
}

bool session__cuda_only(const struct session *s)
{
	return s->cuda_only;
}

bool session__has_python(const struct session *s)
{
	return s->target.has_python || s->target.torch.found || s->target.uses_cuda;
}

struct probes *session__probes(const struct session *s)
{
	return s->probes;
}

struct dict *session__dict(struct session *s)
{
	return s->dict;
}

struct facts *session__facts(struct session *s)
{
	return s->facts;
}

const struct proc *session__proc(const struct session *s)
{
	return s->target.proc;
}

uint64_t session__now(const struct session *s)
{
	return s->decoder ? decoder__now(s->decoder) : 0;
}

uint64_t session__start(const struct session *s)
{
	return s->decoder ? s->decoder->start : 0;
}

uint64_t session__events(const struct session *s)
{
	return s->attach ? attach_stage__events(s->attach) : 0;
}

uint64_t session__lost(const struct session *s)
{
	return s->losses.total;
}

uint64_t session__lost_with_room(const struct session *s)
{
	uint64_t n = s->losses.unseen + s->losses.skipped.events;

	if (s->opts.inside)
		return s->losses.total; /* threads wait while the ring is full */
	for (size_t i = 0; i < MT_REC_TYPES; i++)
		n += s->losses.unaccounted[i];
	return n < s->losses.total ? n : s->losses.total;
}

uint64_t session__steps(const struct session *s)
{
	return s->decoder ? decoder__steps(s->decoder) : 0;
}

bool session__replaced(const struct session *s)
{
	int now;
	bool runs;

	if (s->image < 0 || !proc__image_gone(s->image))
		return false;
	/* The image of an ending process is gone, too, but there is no new one. */
	now = proc__image(s->target.proc);
	runs = now >= 0 && !proc__image_gone(now);
	if (now >= 0)
		close(now);
	return runs;
}

const char *session__python_problem(const struct session *s)
{
	/* Compiled programs have none. */
	bool wanted = s->target.has_python || !s->cuda_only;

	return wanted && s->target.python_why[0] ? s->target.python_why : NULL;
}

bool session__lacks_number(const struct session *s)
{
	return s->wait.lacks_number;
}

bool session__found_torch(const struct session *s)
{
	return s->target.torch.found || s->cuda_only;
}

uint32_t session__number(const struct session *s)
{
	return s->opts.number;
}

bool session__is_forked(const struct session *s)
{
	return s->forked;
}

bool session__misses_forks(const struct session *s)
{
	for (int i = 0; i < HOOK_NR; i++) {
		if (s->target.hooks[i].found && elf__is_memory(s->target.hooks[i].elf))
			return true;
	}
	return s->decoder && s->decoder->calls && cuda_calls__by_pid(s->decoder->calls);
}
