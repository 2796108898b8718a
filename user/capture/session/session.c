/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* An attached session: the regular work, and its end. */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "capture/decode/autograd.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/modules.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes/probes_inside.h"
#include "capture/session/stages.h"
#include "inspect/proc.h"
#include "record/detail.h"

/* ns since start after which the sleepable programs are loaded: after the first figures are shown */
#define LOAD_SLEEPABLE_AFTER 1000000000ULL

/* Once a walk met an absent page, replaces the programs by those that can wait for pages. c: the
 * programs' counters. */
static void maybe_go_sleepable(struct session *s, uint64_t now, const uint64_t counters[MT_CNT_NR])
{
	int err;

	/* Load the sleepable programs before they are needed: until they run, an absent page cuts a
	 * walk short. */
	if (now > LOAD_SLEEPABLE_AFTER && !s->opts.steps_only)
		probes__prepare_sleepable(s->probes);
	if (probes__sleepable(s->probes) || s->tried_sleepable ||
	    !(counters[MT_CNT_WALK + MT_WALK_FAULT_FRAME] +
	      counters[MT_CNT_WALK + MT_WALK_FAULT_THREAD] +
	      counters[MT_CNT_WALK + MT_WALK_FAULT_SELF]))
		return;
	err = probes__go_sleepable(s->probes, proc__pid(s->target.proc), s->target.hooks);
	if (err == -EINPROGRESS)
		return;
	s->tried_sleepable = true;
	if (err)
		log_warn("a page of the process is not in memory, and there are no programs here "
			 "that could wait for it (%s). memtrace-bpf reads such pages; stacks "
			 "before it has done so stay short",
			 strerror(-err));
	else
		log_debug("a page of the process was not in memory: using the sleepable programs");
}

#define PAGE 4096
#define CHUNK_PAGES 4 /* DATA_STACK_CHUNK_SIZE in CPython's Python/pystate.c, 16 KiB */

/* Reads the pages that walks missed, so that later walks find them in memory. */
static void bring_in_pages(struct session *s, uint64_t now)
{
	uint64_t addrs[MT_ABSENT], unused;
	size_t i, j, n;

	if (probes__sleepable(s->probes))
		return;
	n = probes__take_absent(s->probes, s->opts.number, addrs);
	if (n)
		s->busy = now; /* walks fail until the pages are there */
	for (i = 0; i < n; i++) {
		/* Outer frames are below, in the thread's chunk of memory. */
		for (j = 0; j < CHUNK_PAGES; j++)
			s->losses.brought_in += !proc__read(s->target.proc, addrs[i] - j * PAGE,
							    &unused, sizeof(unused));
	}
}

/* Counts reports of PyTorch's allocator that no probe saw as lost. Not after the BPF programs were
 * stopped: the process still reports, but nothing counts the hits. */
static void count_unseen(struct session *s)
{
	uint64_t n_unseen = s->stopped ? 0 : cuda_calls__unseen(s->decoder);

	if (n_unseen <= s->losses.unseen)
		return;
	if (!s->losses.unseen)
		log_warn("%" PRIu64
			 " reports of PyTorch's allocator were missed: does another tool "
			 "probe the same place?",
			 n_unseen);
	s->losses.early += n_unseen - s->losses.unseen;
	s->losses.unseen = n_unseen;
}

/* Counts each breakpoint that was gone as one lost event, since the number of its hits is unknown. */
static void count_removed(struct session *s)
{
	uint64_t n_removed = s->stopped ? 0 : probes__renew(s->probes);

	if (!n_removed)
		return;
	if (!s->losses.removed)
		log_warn("PID %d: another tool removed the breakpoints of this recording, for up "
			 "to a second. They are set again, and the recording counts at least one "
			 "lost event for each; do not probe a process that records itself",
			 (int)proc__pid(s->target.proc));
	s->losses.early += n_removed;
	s->losses.removed += n_removed;
}

/* The part of n above `before`; 0 if n is less. */
static uint64_t excess(uint64_t n, uint64_t before)
{
	return n > before ? n - before : 0;
}

/* Counts hits that the kernel skipped as lost events. Skipped calls that change the address space
 * are only reported in a fact: they are no events of tensors, and the next reading of host memory
 * finds what they did. */
static void count_skipped(struct session *s)
{
	struct probes_skipped now = probes__skipped(s->probes), *counted = &s->losses.skipped;

	if (!s->losses.skipped_known && s->opts.group)
		s->losses.skipped_before = now; /* other processes used the programs before */
	s->losses.skipped_known = true;
	now.events = excess(now.events, s->losses.skipped_before.events);
	now.host = excess(now.host, s->losses.skipped_before.host);
	if (now.events > counted->events) {
		if (!counted->events)
			log_warn("PID %d: the kernel skipped probes in preempted threads: each hit "
				 "counts as a lost event",
				 (int)proc__pid(s->target.proc));
		s->losses.early += now.events - counted->events;
		counted->events = now.events;
	}
	counted->host = now.host > counted->host ? now.host : counted->host;
}

/* The work of each round apart from records: losses, page-ins, searches, and once a second the
 * facts. Emits no event but losses. 0, -ENOMEM or the sink's error. */
static int housekeeping(struct session *s, uint64_t now)
{
	const uint64_t *counters = s->losses.counters;
	int err = session__end_losses(s, now);

	if (err)
		return err;
	maybe_go_sleepable(s, now, counters);
	bring_in_pages(s, now);
	session__renew_marks(s);
	session__look_into_torch(s, now);
	cuda_calls__look(s->decoder, now);
	if (!s->blind && autograd__is_due(s->decoder, now)) {
		s->begins = now;
		session__renew(s);
		autograd__look(s->decoder, now);
	}
	if (symbolizer__recheck(s->decoder->names, now))
		decoder__forget_roots(s->decoder);
	if (now - s->last_facts >= SESSION_FACTS_EVERY || !s->last_facts) {
		s->last_facts = now;
		decoder__check_threads(s->decoder);
		count_unseen(s);
		count_removed(s);
		count_skipped(s);
		facts__setf(s->facts, "duration_ns", "%" PRIu64, now);
		facts__setf(s->facts, "events", "%" PRIu64, session__events(s));
		facts__setf(s->facts, "lost", "%" PRIu64, s->losses.total);
		session__set_counters(s, counters);
		if (counters[MT_CNT_RING_LOST + MT_REC_SCOPE_END] && !s->losses.steps_warned) {
			log_warn("ends of steps were lost: steps and figures per step are not "
				 "exact");
			if (s->census)
				census_stage__lost_steps(s->census);
			s->losses.steps_warned = true;
		}
		if (s->opts.group)
			session__set_rank(s);
	}
	return 0;
}

/* ---- the capture's cost ---- */

/* Notes which types of records come from a probe that the kernel single-steps, which costs more. */
static void find_stepped(struct session *s)
{
#define RECORD(id, program, twin, record, off, name) [HOOK_##id] = record,
	static const enum mt_rec_type types[HOOK_NR] = { MT_HOOKS(RECORD) };
#undef RECORD

	/* Take the first of the hooks with records of one type: the others may have no probe. */
	for (int i = HOOK_NR - 1; i >= 0; i--)
		s->cost.measure.stepped[types[i]] = s->target.hooks[i].site.cls == SITE_STEPPED;
}

/* Notes a change of the recorded detail in the facts and, as a mark, in the stream. now: after the
 * change. share: measured before it. 0 or -ENOMEM. */
static int note_detail(struct session *s, uint64_t now, double share)
{
	struct cost_detail detail = probes__detail(s->probes);
	struct detail_change change = { .time = now,
					.below = detail.below,
					.off = detail.off,
					.share = (uint32_t)(share * 1e6) };
	struct event mark = { .kind = EVENT_MARK };
	char words[160];
	int err;

	if (detail.off == s->cost.noted.off && detail.below == s->cost.noted.below)
		return 0;
	s->cost.noted = detail;
	detail__words(words, sizeof(words), detail.off, detail.below);
	log_info("tracing takes %.1f %% of the target's time, %.1f %% are allowed: %s%s",
		 share * 100, s->cost.control.limit * 100,
		 *words ? "no longer recorded: " : "all detail is recorded again", words);
	err = detail__add(s->facts, &change);
	if (err == -ENOMEM || !s->sink)
		return err == -ENOMEM ? err : 0;
	detail__mark(words, sizeof(words), detail.off, detail.below);
	mark.time = change.time;
	mark.name = decoder__string(s->decoder, words);
	return mark.name == UINT32_MAX ? -ENOMEM : decoder__emit(s->decoder, &mark);
}

/* Every COST_EVERY, measures what the capture adds to the target. Records less detail if that is
 * above the limit, and more once it stays far below. 0 or -ENOMEM. */
static int pump_cost(struct session *s, uint64_t now)
{
	struct spending *cost = &s->cost;
	uint64_t counters[MT_CNT_NR], cpu;

	if (!cost->control.limit || s->stopped || now < cost->next)
		return 0;
	cost->next = now + COST_EVERY;
	if (probes__counters(s->probes, s->opts.number, counters) ||
	    proc__cpu_time(s->target.proc, &cpu))
		return 0;
	find_stepped(s);
	cost->last = measure__look(&cost->measure, counters, probes__timed(s->probes), now, cpu);
	/* now may be 0, which is no time for cost_control__look() */
	cost_control__look(&cost->control, now + 1, cost->last, measure__walks(&cost->measure));
	/* Without an optimizer, calls of modules show the steps. */
	probes__want_level(s->probes, s->opts.number, cost->control.level,
			   !decoder__steps(s->decoder), proc__pid(s->target.proc), s->target.hooks);
	facts__setf(s->facts, "cost.limit", "%g", cost->control.limit);
	facts__setf(s->facts, "cost.share", "%.6f", measure__share(&cost->measure));
	return note_detail(s, session__now(s), cost->last);
}

/* Takes a reading of the allocator's tables. read: result of attach_stage__read(). Returns 0 or a
 * negative error, as all functions below that return an int. */
static int take_tables(struct session *s, int read)
{
	uint64_t written;
	int err;

	if (read <= 0)
		return read;
	written = probes__written(s->probes);
	err = session__round(s);
	return err ? err : attach_stage__take(s->attach, s->taken >= written, session__now(s));
}

/* Takes a census reading, once the ring is empty. ended: result of census_stage__end(). */
static int take_census(struct session *s, int ended)
{
	int err = 0;

	if (ended <= 0)
		return ended;
	for (int i = 0; i < DRAINS && !err; i++) {
		err = session__round(s);
		if (!err && !s->behind)
			return census_stage__take(s->census, !session__replaced(s));
	}
	census_stage__take(s->census, false);
	return err;
}

static int pump_census(struct session *s, uint64_t now)
{
	int ended, err;

	if (!s->census)
		return 0;
	ended = census_stage__end(s->census);
	if (ended)
		return take_census(s, ended);
	err = s->stopped ? 0 : census_stage__look(s->census, now);
	if (err)
		return err;
	if (attach_stage__settled(s->attach))
		census_stage__begin(s->census, now);
	return 0;
}

/* Waits for a census reading under way, and drains the ring meanwhile. */
static int wait_for_census(struct session *s)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int err = 0;

	while (!err && census_stage__reads(s->census)) {
		err = session__round(s);
		nanosleep(&pause, NULL);
	}
	return err ? err : take_census(s, census_stage__end(s->census));
}

#define LAST_ROUNDS 32		     /* looks at the optimizers' counts at the end, at most */
#define LEDGER_WITHIN 20000000000ULL /* ns that a capture's end waits for the last ledger */

/* Reads the optimizers' counts a few more times in a brief capture, at different moments of a
 * step. */
static int take_last_looks(struct session *s)
{
	static const struct timespec pause = { .tv_nsec = 1700000 };
	int err = 0;

	for (int i = 0; i < LAST_ROUNDS && !err && census_stage__look_last(s->census); i++) {
		nanosleep(&pause, NULL);
		err = session__round(s);
	}
	if (!err)
		err = session__round(s);
	return err || s->behind ? err : census_stage__end_looks(s->census);
}

/* Takes the last reading of tensors, before the probes are removed. */
static int take_last_census(struct session *s)
{
	int err;

	if (!s->census)
		return 0;
	err = wait_for_census(s);
	if (err || !attach_stage__settled(s->attach))
		return err;
	if (!session__replaced(s))
		census_stage__begin_last(s->census);
	err = wait_for_census(s);
	return err ? err : take_last_looks(s);
}

/* Takes the ledger of the last reading, as of `end` (ns since start). Until it is there, drains the
 * ring: other processes of the capture go on. Gives up after LEDGER_WITHIN. */
static int take_last_ledger(struct session *s, uint64_t end)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t until = session__now(s) + LEDGER_WITHIN;
	int err = 0;

	while (!err && census_stage__reads_ledger(s->census)) {
		if (session__now(s) > until) {
			log_warn("the last reading of host memory took longer than %u s and was "
				 "given up: the report shows the one before. `dump --device host` "
				 "has no such limit",
				 (unsigned)(LEDGER_WITHIN / 1000000000));
			census_stage__give_up(s->census);
			until = UINT64_MAX; /* give up only once */
		}
		err = session__round(s);
		nanosleep(&pause, NULL);
	}
	return err ? err : census_stage__take_ledger(s->census, !session__replaced(s), end);
}

static void set_sink(struct session *s, struct sink *sink)
{
	s->sink = sink;
	sleep_stage__send_to(s->sleep, sink);
}

#define QUIET 500000000ULL /* ns without much to drain, after which a session is quiet */
#define MUCH 64		   /* 1/64 of the ring, written since the last pump, is much to drain */
/* No session is quiet for so many ns after attach, and after the last search for a part of PyTorch */
#define BEGINS 3000000000ULL

bool session__quiet(const struct session *s)
{
	uint64_t now = session__now(s);

	if (s->no_torch && s->target.has_python && !s->torch_came)
		return false; /* the process may import PyTorch, whose code runs soon after */
	return s->attached && now > s->begins + BEGINS && now - s->busy > QUIET &&
	       attach_stage__settled(s->attach) && !(s->census && census_stage__reads(s->census));
}

/* Notes whether much was written to the ring since the last pump. */
static void note_written(struct session *s, uint64_t now)
{
	uint64_t written = probes__written(s->probes);

	if (written - s->written > session__ring_size(s) / MUCH)
		s->busy = now;
	s->written = written;
}

int session__pump(struct session *s, struct sink *sink)
{
	uint64_t now = session__now(s);
	int err;

	set_sink(s, sink);
	note_written(s, now);
	err = session__round(s);
	if (err)
		return err;
	err = s->blind ? 0 : modules__pump(s->decoder, now);
	if (err)
		return err;
	err = take_tables(s, attach_stage__read(s->attach, now));
	if (err)
		return err;
	err = pump_census(s, now);
	if (err)
		return err;
	err = session__pump_host(s);
	if (err)
		return err;
	err = pump_cost(s, now);
	if (err)
		return err;
	err = session__pump_malloc(s, now);
	if (err)
		return err;
	/* Events held or in the ring may belong to a transition. */
	if (!s->behind && attach_stage__settled(s->attach)) {
		err = sleep_stage__pump(s->sleep, now);
		if (err)
			return err;
	}
	err = housekeeping(s, now);
	if (!err)
		err = session__meet_torch(s);
	if (err)
		return err;
	return sink && sink->tick ? sink->tick(sink, now) : 0;
}

int session__wake_fd(const struct session *s)
{
	return probes__wake_fd(s->probes);
}

/* Does not ask the driver for its figure: that may take longer than the new code objects live. */
int session__drain_new(struct session *s, struct sink *sink)
{
	set_sink(s, sink);
	s->busy = session__now(s);
	return session__drain_ring(s, true);
}

int session__drain(struct session *s)
{
	int err = 0;

	/* The second round decodes what the first one drained to confirm names. */
	for (int i = 0; i < 2 && !err && s->attached && s->sink; i++)
		err = session__round(s);
	return err;
}

int session__mark(struct session *s, const char *name)
{
	struct event e = { .kind = EVENT_MARK };
	int err = session__drain(s);

	if (err || !s->attached || !s->sink)
		return err;
	e.time = session__now(s);
	e.name = decoder__string(s->decoder, name);
	return e.name == UINT32_MAX ? -ENOMEM : decoder__emit(s->decoder, &e);
}

/* From now on the programs record no events of this process. */
static void stop_programs(struct session *s)
{
	s->stopped = true;
	if (s->opts.group)
		proc_group__stop(s->opts.group, proc__pid(s->target.proc), s->opts.number);
	else
		probes__stop(s->probes);
}

static void remove_probes(struct session *s, const char *stop_reason)
{
	if (!s->opts.group)
		probes__detach(s->probes);
	else if (strcmp(stop_reason, "exec")) /* after exec, the group follows the PID further */
		proc_group__forget(s->opts.group, proc__pid(s->target.proc), s->opts.number);
	if (s->opts.inside)
		inside_memory__close(s->opts.inside);
}

/* Takes the readings that need the probes. */
static int take_last_readings(struct session *s)
{
	int err = take_last_census(s);

	if (err)
		return err;
	err = session__last_host(s);
	if (err)
		return err;
	return take_tables(s, attach_stage__read_last(s->attach, session__now(s)));
}

/* Emits what was recorded until the programs were stopped. Accounts for all records of a process in
 * a group, which the group forgets next; for other processes finish_stages() does. Returns as
 * session__account(). */
static int drain_last(struct session *s, struct sink *sink)
{
	int err = session__pump(s, sink);

	if (err)
		return err;
	/* Begin to remove the probes: that goes on while the driver answers. */
	if (!s->opts.group)
		probes__begin_detach(s->probes);
	err = cuda_calls__used(s->decoder, true);
	return err || !s->opts.group ? err : session__account(s);
}

/* Passes on all that is left, once the probes are removed. end: the stop, ns since start. Returns
 * as session__account(). */
static int finish_stages(struct session *s, struct sink *sink, uint64_t end)
{
	int err = s->opts.group ? 0 : session__account(s), rounds = 0;

	if (err)
		return err;
	do {
		err = session__pump(s, sink);
		if (err)
			return err;
	} while (s->queue.len || rounds++ < 1); /* at least two rounds */
	session__set_counters(s, s->losses.counters);
	facts__setf(s->facts, "lost", "%" PRIu64, s->losses.total);
	err = s->census ? take_last_ledger(s, end) : 0;
	if (err)
		return err;
	err = attach_stage__finish(s->attach);
	return err ? err : sleep_stage__finish(s->sleep);
}

int session__finish(struct session *s, struct sink *sink, const char *stop_reason)
{
	uint64_t end;
	int err;

	if (!s->attached)
		return 0;
	set_sink(s, sink);
	err = take_last_readings(s);
	end = session__now(s);
	session__set_clock_end(s);
	count_unseen(s);
	count_removed(s);
	count_skipped(s);
	stop_programs(s);
	if (!err)
		err = drain_last(s, sink);
	remove_probes(s, stop_reason);
	log_debug("detached after %.1f ms", (session__now(s) - end) / 1e6);
	s->blind = true;
	s->last_facts = 0;
	facts__set(s->facts, "stop_reason", stop_reason);
	if (!err)
		err = finish_stages(s, sink, end);
	facts__setf(s->facts, "duration_ns", "%" PRIu64, s->decoder->cut ? s->decoder->cut : end);
	facts__setf(s->facts, "events", "%" PRIu64, session__events(s));
	s->attached = false;
	return err;
}

void session__give_words(struct session *s, struct dict **dict, struct facts **facts)
{
	*dict = s->dict;
	*facts = s->facts;
	s->dict = NULL;
	s->facts = NULL;
}
