/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Host memory (inspect/hostmem.h) in a session. */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "capture/decode/decoder.h"
#include "inspect/hostmem.h"
#include "inspect/proc.h"

/* ---- callbacks of struct host_capture; ctx is the decoder ---- */

static uint64_t now(void *decoder)
{
	return decoder__now(decoder);
}

static uint64_t since(void *decoder, uint64_t time)
{
	return decoder__since(decoder, time);
}

static int emit(void *decoder, const struct event *event)
{
	return decoder__emit(decoder, event);
}

static uint32_t thread(void *decoder, uint32_t tid)
{
	const struct thread *t = decoder__thread(decoder, tid);

	return t ? t->number : UINT32_MAX;
}

static uint32_t stack(void *decoder, uint64_t id, uint8_t *walk)
{
	return decoder__stack(decoder, id, walk);
}

static int native(void *decoder, const struct mt_rec_host *record, uint32_t *stack, uint8_t *walk)
{
	return decoder__join_native(decoder, record->h.tid, record->h.time, stack, walk);
}

static uint32_t named(void *decoder, const char *file, const char *function)
{
	return decoder__named_stack(decoder, file, function);
}

/* Makes session->decoder->host, which turns calls and readings of host memory into events.
 * inherited: the process was forked, with a copy of its parent's memory. 0 or -ENOMEM. */
static int open_host(struct session *session, bool inherited)
{
	const struct host_capture capture = { .proc = session->target.proc,
					      .ctx = session->decoder,
					      .now = now,
					      .since = since,
					      .emit = emit,
					      .thread = thread,
					      .stack = stack,
					      .native = native,
					      .named = named };

	session->decoder->host = host_memory__new(&capture, inherited);
	return session->decoder->host ? 0 : -ENOMEM;
}

static const char *why_no_lines(const struct session *session, int err)
{
	if (session->opts.inside)
		return "a process that records itself cannot see its system calls";
	return err == -EOPNOTSUPP ? "this kernel lets no BPF program see system calls"
				  : strerror(-err);
}

int session__begin_host(struct session *session, bool inherited)
{
	const char *way = "";
	int err;

	if (!session->opts.host)
		return 0;
	err = probes__attach_host(session->probes, &way);
	if (err)
		log_warn("host memory has no lines: %s", why_no_lines(session, err));
	if (facts__set(session->facts, "host", err ? "no lines" : way))
		return -ENOMEM;
	return open_host(session, inherited);
}

/* Takes a reading of host memory, once the ring is empty. ended: result of
 * host_memory__join_reading(). */
static int take_host(struct session *session, int ended)
{
	bool drained = false;
	int err = 0;

	if (ended <= 0)
		return ended;
	for (int i = 0; i < DRAINS && !drained && !err; i++) {
		err = session__round(session);
		drained = !err && !session->behind;
	}
	err = host_memory__take(session->decoder->host, drained && !session__replaced(session))
		      ?: err;
	/* The file of a window may end before the session sets its facts again. */
	host_memory__set_facts(session->decoder->host, session->facts);
	return err;
}

int session__pump_host(struct session *session)
{
	/* 1: a reading has ended */
	int ended = host_memory__join_reading(session->decoder->host);
	int err;

	if (!session->decoder->host)
		return 0;
	/* cut: the requested steps are complete, so no other reading is wanted. */
	if (!ended && !session->decoder->cut && !session__replaced(session))
		host_memory__begin(session->decoder->host, /*last=*/false);
	err = take_host(session, ended);
	/* A ring that is not drained to its end may have calls that explain the growth. */
	if (err || ended || session->behind)
		return err;
	return host_memory__check_growth(session->decoder->host);
}

/* Waits for a reading under way, and drains the ring meanwhile. */
static int wait_for_host(struct session *session)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int err = 0;

	while (!err && host_memory__is_reading(session->decoder->host)) {
		err = session__round(session);
		nanosleep(&pause, NULL);
	}
	return err ? err : take_host(session, host_memory__join_reading(session->decoder->host));
}

/* Brings in all that was recorded until now. */
static int drain_all(struct session *session)
{
	int err = 0;

	session->behind = true;
	for (int i = 0; i < DRAINS && session->behind && !err; i++)
		err = session__round(session);
	return err;
}

/* Charges the growth up to the process's end, when it cannot be read any more: it has ended, or
 * runs another program. The kernel's figure is the fact end_rss; without it, nothing has grown. */
static int take_kernels_rss(struct session *session)
{
	int err = drain_all(session);
	uint64_t rss;

	facts__number(session->facts, "end_rss", &rss);
	if (err || session->behind)
		return err;
	return host_memory__charge_growth(session->decoder->host, rss);
}

int session__last_host(struct session *session)
{
	int err = wait_for_host(session);

	if (err || session->decoder->cut)
		return err;
	if (!proc__alive(session->target.proc) || session__replaced(session))
		return session->decoder->host ? take_kernels_rss(session) : 0;
	if (session->decoder->host)
		err = drain_all(session);
	if (err)
		return err;
	host_memory__begin(session->decoder->host, /*last=*/true);
	return wait_for_host(session);
}
