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
#include "capture/decode/phases.h"
#include "capture/decode/symbolizer.h"
#include "capture/decode/probed_scopes.h"
#include "capture/probes/probes_inside.h"
#include "capture/session/stages.h"
#include "inspect/proc.h"
#include "record/detail.h"

/* ns since start after which the sleepable programs are loaded: after the first figures are shown */
#define LOAD_SLEEPABLE_AFTER 1000000000ULL

/* Once a walk met an absent page, replaces the programs by those that can wait for pages. counters:
 * the programs'. */
static void maybe_go_sleepable(struct session *session, uint64_t now,
			       const uint64_t counters[MT_CNT_NR])
{
	int err;

	/* Load the sleepable programs before they are needed: until they run, an absent page cuts a
	 * walk short. */
	if (now > LOAD_SLEEPABLE_AFTER && !session->opts.steps_only)
		probes__prepare_sleepable(session->probes);
	if (probes__sleepable(session->probes) || session->tried_sleepable ||
	    !(counters[MT_CNT_WALK + MT_WALK_FAULT_FRAME] +
	      counters[MT_CNT_WALK + MT_WALK_FAULT_THREAD] +
	      counters[MT_CNT_WALK + MT_WALK_FAULT_SELF]))
		return;
	err = probes__go_sleepable(session->probes, proc__pid(session->target.proc),
				   session->target.hooks);
	if (err == -EINPROGRESS)
		return;
	session->tried_sleepable = true;
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
static void bring_in_pages(struct session *session, uint64_t now)
{
	uint64_t addrs[MT_ABSENT], unused;
	size_t i, j, n;

	if (probes__sleepable(session->probes))
		return;
	n = probes__take_absent(session->probes, session->opts.number, addrs);
	if (n)
		session->busy = now; /* walks fail until the pages are there */
	for (i = 0; i < n; i++) {
		/* Outer frames are below, in the thread's chunk of memory. */
		for (j = 0; j < CHUNK_PAGES; j++)
			session->losses.brought_in += !proc__read(
				session->target.proc, addrs[i] - j * PAGE, &unused, sizeof(unused));
	}
}

/* Counts reports of PyTorch's allocator that no probe saw as lost. Not after the BPF programs were
 * stopped: the process still reports, but nothing counts the hits. */
static void count_unseen(struct session *session)
{
	uint64_t n_unseen = session->stopped ? 0 : cuda_calls__unseen(session->decoder);

	if (n_unseen <= session->losses.unseen)
		return;
	if (!session->losses.unseen)
		log_warn("%" PRIu64
			 " reports of PyTorch's allocator were missed: does another tool "
			 "probe the same place?",
			 n_unseen);
	session->losses.early += n_unseen - session->losses.unseen;
	session->losses.unseen = n_unseen;
}

/* Counts each breakpoint that was gone as one lost event, since the number of its hits is unknown. */
static void count_removed(struct session *session)
{
	uint64_t n_removed = session->stopped ? 0 : probes__renew(session->probes);

	if (!n_removed)
		return;
	if (!session->losses.removed)
		log_warn("PID %d: another tool removed the breakpoints of this recording, for up "
			 "to a second. They are set again, and the recording counts at least one "
			 "lost event for each; do not probe a process that records itself",
			 (int)proc__pid(session->target.proc));
	session->losses.early += n_removed;
	session->losses.removed += n_removed;
}

/* The part of n above `before`; 0 if n is less. */
static uint64_t excess(uint64_t n, uint64_t before)
{
	return n > before ? n - before : 0;
}

/* Counts hits that the kernel skipped as lost events. Skipped calls that change the address space
 * are only reported in a fact: they are no events of tensors, and the next reading of host memory
 * finds what they did. */
static void count_skipped(struct session *session)
{
	struct probes_skipped now = probes__skipped(session->probes),
			      *counted = &session->losses.skipped;

	if (!session->losses.skipped_known && session->opts.group)
		session->losses.skipped_before = now; /* other processes used the programs before */
	session->losses.skipped_known = true;
	now.events = excess(now.events, session->losses.skipped_before.events);
	now.host = excess(now.host, session->losses.skipped_before.host);
	if (now.events > counted->events) {
		if (!counted->events)
			log_warn("PID %d: the kernel skipped probes in preempted threads: each hit "
				 "counts as a lost event",
				 (int)proc__pid(session->target.proc));
		session->losses.early += now.events - counted->events;
		counted->events = now.events;
	}
	counted->host = now.host > counted->host ? now.host : counted->host;
}

/* The work of each round apart from records: losses, page-ins, searches, and once a second the
 * facts. Emits no event but losses. 0, -ENOMEM or the sink's error. */
static int housekeeping(struct session *session, uint64_t now)
{
	const uint64_t *counters = session->losses.counters;
	int err = session__end_losses(session, now);

	if (err)
		return err;
	maybe_go_sleepable(session, now, counters);
	bring_in_pages(session, now);
	session__renew_marks(session);
	session__look_into_torch(session, now);
	cuda_calls__look(session->decoder, now);
	if (!session->blind && autograd__is_due(session->decoder, now)) {
		session->begins = now;
		session__renew(session);
		autograd__look(session->decoder, now);
	}
	if (symbolizer__recheck(session->decoder->names, now))
		decoder__forget_roots(session->decoder);
	if (now - session->last_facts >= SESSION_FACTS_EVERY || !session->last_facts) {
		session->last_facts = now;
		decoder__check_threads(session->decoder);
		count_unseen(session);
		count_removed(session);
		count_skipped(session);
		facts__setf(session->facts, "duration_ns", "%" PRIu64, now);
		facts__setf(session->facts, "events", "%" PRIu64, session__events(session));
		facts__setf(session->facts, "lost", "%" PRIu64, session->losses.total);
		session__set_counters(session, counters);
		if (counters[MT_CNT_RING_LOST + MT_REC_SCOPE_END] &&
		    !session->losses.steps_warned) {
			log_warn("ends of steps were lost: steps and figures per step are not "
				 "exact");
			if (session->census)
				census_stage__lost_steps(session->census);
			session->losses.steps_warned = true;
		}
		if (counters[MT_CNT_RING_LOST + MT_REC_SCOPE] && !session->losses.scopes_warned) {
			log_warn("begins and ends of scopes were lost: figures of record_function, "
				 "NVTX and USDT scopes are not exact");
			session->losses.scopes_warned = true;
		}
		err = probed_scopes__end_gone(session->decoder->probed);
		if (err)
			return err;
		if (session->opts.group)
			session__set_rank(session);
	}
	return 0;
}

/* ---- the capture's cost ---- */

/* Notes which types of records come from a probe that the kernel single-steps, which costs more. */
static void find_stepped(struct session *session)
{
#define RECORD(id, program, twin, record, off, name) [HOOK_##id] = record,
	static const enum mt_rec_type types[HOOK_NR] = { MT_HOOKS(RECORD) };
#undef RECORD

	/* Take the first of the hooks with records of one type: the others may have no probe. */
	for (int i = HOOK_NR - 1; i >= 0; i--)
		session->cost.measure.stepped[types[i]] = session->target.hooks[i].site.cls ==
							  SITE_STEPPED;
}

/* Notes a change of the recorded detail in the facts and, as a mark, in the stream. now: after the
 * change. share: measured before it. 0 or -ENOMEM. */
static int note_detail(struct session *session, uint64_t now, double share)
{
	struct cost_detail detail = probes__detail(session->probes);
	struct detail_change change = { .time = now,
					.below = detail.below,
					.off = detail.off,
					.share = (uint32_t)(share * 1e6) };
	struct event mark = { .kind = EVENT_MARK };
	char words[160];
	int err;

	err = probed_scopes__set_off(session->decoder->probed, detail.off & MT_OFF_SCOPES);
	if (err)
		return err;
	if (session->cost.level == COST_BETWEEN) /* for a while: the events say so themselves */
		return 0;
	if (detail.off == session->cost.noted.off && detail.below == session->cost.noted.below)
		return 0;
	session->cost.noted = detail;
	detail__words(words, sizeof(words), detail.off, detail.below);
	log_info("tracing takes %.1f %% of the target's time, %.1f %% are allowed: %s%s",
		 share * 100, session->cost.control.limit * 100,
		 *words ? "no longer recorded: " : "all detail is recorded again", words);
	err = detail__add(session->facts, &change);
	if (err == -ENOMEM || !session->sink)
		return err == -ENOMEM ? err : 0;
	detail__mark(words, sizeof(words), detail.off, detail.below);
	mark.time = change.time;
	mark.name = decoder__string(session->decoder, words);
	return mark.name == UINT32_MAX ? -ENOMEM : decoder__emit(session->decoder, &mark);
}

/* Logs what a change of mode means, once steps were measured. */
static void say_mode(struct session *session)
{
	const struct step_cost *steps = &session->cost.steps;
	struct step_longer longer;

	if (steps->mode == session->cost.said || steps->mode == STEP_COST_TRY ||
	    !step_cost__longer_with_all(steps, &longer))
		return;
	session->cost.said = steps->mode;
	log_info("with all detail a step takes %.1f %% longer (%.1f to %.1f), %.1f %% are allowed: "
		 "%s",
		 longer.longer * 100, longer.low * 100, longer.high * 100, steps->limit * 100,
		 steps->mode == STEP_COST_SAMPLE ? "lines are recorded in some whole steps only"
						 : "all detail is recorded");
}

/* Sets the facts about the cost. */
static void set_cost_facts(struct session *session, uint64_t now)
{
	const struct spending *cost = &session->cost;
	const struct step_cost *steps = &cost->steps;
	struct step_longer longer;

	facts__setf(session->facts, "cost.limit", "%g", cost->control.limit);
	facts__setf(session->facts, "cost.share", "%.6f", measure__share(&cost->measure));
	if (steps->whole < steps->all)
		facts__setf(session->facts, "cost.steps", "%" PRIu64 ":%" PRIu64, steps->whole,
			    steps->all);
	if (step_cost__longer(steps, now, &longer))
		facts__setf(session->facts, "cost.step", "%.6f:%.6f:%.6f", longer.low,
			    longer.longer, longer.high);
}

/* Decides about the level of detail: by steps, or where there are none by the share of the target's
 * time. In a group, programs serve several processes, whose steps end at different times. */
static unsigned choose_level(struct session *session, uint64_t now)
{
	struct spending *cost = &session->cost;
	struct step_cost *steps = &cost->steps;

	/* Those that all detail was kept for stay: later ones are of other times than the steps. */
	for (int i = 0; i < 2 && steps->mode != STEP_COST_KEEP; i++)
		steps->shares[i] = measure__lately(&cost->measure, !i);
	if (!session->opts.group && step_cost__look(steps, now, cost->last)) {
		cost->control.level = COST_ALL;
		return steps->wanted ? COST_ALL : COST_BETWEEN;
	}
	/* now may be 0, which is no time for cost_control__look() */
	cost_control__look(&cost->control, now + 1, cost->last, measure__walks(&cost->measure));
	return cost->control.level;
}

/* Every COST_EVERY, and when a window of steps begins or ends, measures what the capture adds to
 * the target. Records less detail if that is above the limit, and more once it is below. 0 or
 * -ENOMEM. */
static int pump_cost(struct session *session, uint64_t now)
{
	struct spending *cost = &session->cost;
	struct step_cost *steps = &cost->steps;
	uint64_t counters[MT_CNT_NR], cpu;

	if (!cost->control.limit || session->stopped ||
	    (now < cost->next && steps->wanted == steps->on))
		return 0;
	cost->next = now + COST_EVERY;
	if (probes__counters(session->probes, session->opts.number, counters) ||
	    proc__cpu_time(session->target.proc, &cpu))
		return 0;
	find_stepped(session);
	cost->last = measure__look(&cost->measure, counters, probes__timed(session->probes), now,
				   cpu);
	cost->level = choose_level(session, now);
	/* Without an optimizer, calls of modules show the steps. */
	probes__want_level(session->probes, session->opts.number, cost->level,
			   !decoder__steps(session->decoder), proc__pid(session->target.proc),
			   session->target.hooks);
	if (steps->wanted != steps->on)
		step_cost__switched(steps, session__now(session));
	cost->measure.reduced = !steps->on;
	say_mode(session);
	set_cost_facts(session, now);
	return note_detail(session, session__now(session), cost->last);
}

/* Takes a reading of the allocator's tables. read: result of attach_stage__read(). Returns 0 or a
 * negative error, as all functions below that return an int. */
static int take_tables(struct session *session, int read)
{
	uint64_t written;
	int err;

	if (read <= 0)
		return read;
	written = probes__written(session->probes);
	err = session__round(session);
	return err ? err
		   : attach_stage__take(session->attach, session->taken >= written,
					session__now(session));
}

/* Takes a census reading, once the ring is empty. ended: result of census_stage__end(). */
static int take_census(struct session *session, int ended)
{
	int err = 0;

	if (ended <= 0)
		return ended;
	for (int i = 0; i < DRAINS && !err; i++) {
		err = session__round(session);
		if (!err && !session->behind)
			return census_stage__take(session->census, !session__replaced(session));
	}
	census_stage__take(session->census, /*whole=*/false);
	return err;
}

/* Takes a census that has ended, and begins the next one when it is due. 0, -ENOMEM or the sink's
 * error. */
static int pump_census(struct session *session, uint64_t now)
{
	int ended, err;

	if (!session->census)
		return 0;
	ended = census_stage__end(session->census);
	if (ended)
		return take_census(session, ended);
	err = session->stopped ? 0 : census_stage__look(session->census, now);
	if (err)
		return err;
	if (attach_stage__settled(session->attach))
		census_stage__begin(session->census, now);
	return 0;
}

/* Waits for a census reading under way, and drains the ring meanwhile. */
static int wait_for_census(struct session *session)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int err = 0;

	while (!err && census_stage__reads(session->census)) {
		err = session__round(session);
		nanosleep(&pause, NULL);
	}
	return err ? err : take_census(session, census_stage__end(session->census));
}

#define LAST_ROUNDS 32		     /* looks at the optimizers' counts at the end, at most */
#define LEDGER_WITHIN 20000000000ULL /* ns that a capture's end waits for the last ledger */

/* Reads the optimizers' counts a few more times in a brief capture, at different moments of a
 * step. */
static int take_last_looks(struct session *session)
{
	static const struct timespec pause = { .tv_nsec = 1700000 };
	int err = 0;

	for (int i = 0; i < LAST_ROUNDS && !err && census_stage__look_last(session->census); i++) {
		nanosleep(&pause, NULL);
		err = session__round(session);
	}
	if (!err)
		err = session__round(session);
	if (err || session->behind)
		return err;
	return census_stage__end_looks(session->census);
}

/* Takes the last reading of tensors, before the probes are removed. */
static int take_last_census(struct session *session)
{
	int err;

	if (!session->census)
		return 0;
	err = wait_for_census(session);
	if (err || !attach_stage__settled(session->attach))
		return err;
	if (!session__replaced(session))
		census_stage__begin_last(session->census);
	err = wait_for_census(session);
	return err ? err : take_last_looks(session);
}

/* Takes the ledger of the last reading, as of `end` (ns since start). Until it is there, drains the
 * ring: other processes of the capture go on. Gives up after LEDGER_WITHIN. */
static int take_last_ledger(struct session *session, uint64_t end)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t until = session__now(session) + LEDGER_WITHIN;
	int err = 0;

	while (!err && census_stage__reads_ledger(session->census)) {
		if (session__now(session) > until) {
			log_warn("the last reading of host memory took longer than %u s and was "
				 "given up: the report shows the one before. `dump --device host` "
				 "has no such limit",
				 (unsigned)(LEDGER_WITHIN / 1000000000));
			census_stage__give_up(session->census);
			until = UINT64_MAX; /* give up only once */
		}
		err = session__round(session);
		nanosleep(&pause, NULL);
	}
	return err ? err
		   : census_stage__take_ledger(session->census, !session__replaced(session), end);
}

static void set_sink(struct session *session, struct sink *sink)
{
	session->sink = sink;
	sleep_stage__send_to(session->sleep, sink);
}

#define QUIET 500000000ULL /* ns without much to drain, after which a session is quiet */
#define MUCH 64		   /* 1/64 of the ring, written since the last pump, is much to drain */
/* No session is quiet for so many ns after attach, and after the last search for a part of PyTorch */
#define BEGINS 3000000000ULL

bool session__quiet(const struct session *session)
{
	uint64_t now = session__now(session);

	if (session->no_torch && session->target.has_python && !session->torch_refused)
		return false; /* the process may import PyTorch, whose code runs soon after */
	return session->attached && now > session->begins + BEGINS && now - session->busy > QUIET &&
	       attach_stage__settled(session->attach) &&
	       !(session->census && census_stage__reads(session->census));
}

/* Notes whether much was written to the ring since the last pump. */
static void note_written(struct session *session, uint64_t now)
{
	uint64_t written = probes__written(session->probes);

	if (written - session->written > session__ring_size(session) / MUCH)
		session->busy = now;
	session->written = written;
}

int session__pump(struct session *session, struct sink *sink)
{
	uint64_t now = session__now(session);
	int err;

	set_sink(session, sink);
	note_written(session, now);
	err = session__round(session);
	if (err)
		return err;
	err = session->blind ? 0 : modules__pump(session->decoder, now);
	if (err)
		return err;
	err = take_tables(session, attach_stage__read(session->attach, now));
	if (err)
		return err;
	err = pump_census(session, now);
	if (err)
		return err;
	err = session__pump_host(session);
	if (err)
		return err;
	err = pump_cost(session, now);
	if (err)
		return err;
	err = session__pump_malloc(session, now);
	if (err)
		return err;
	/* Events held or in the ring may belong to a transition. */
	if (!session->behind && attach_stage__settled(session->attach)) {
		err = sleep_stage__pump(session->sleep, now);
		if (err)
			return err;
	}
	err = housekeeping(session, now);
	if (!err)
		err = session__meet_torch(session);
	if (err)
		return err;
	return sink && sink->tick ? sink->tick(sink, now) : 0;
}

int session__wake_fd(const struct session *session)
{
	return probes__wake_fd(session->probes);
}

/* Does not ask the driver for its figure: that may take longer than the new code objects live. */
int session__drain_new(struct session *session, struct sink *sink)
{
	set_sink(session, sink);
	session->busy = session__now(session); /* there is a new stack */
	return session__drain_ring(session, /*only_names=*/true);
}

int session__drain(struct session *session)
{
	int err = 0;

	/* The second round decodes what the first one drained to confirm names. */
	for (int i = 0; i < 2 && !err && session->attached && session->sink; i++)
		err = session__round(session);
	return err;
}

int session__mark(struct session *session, const char *name)
{
	struct event event = { .kind = EVENT_MARK };
	int err = session__drain(session);

	if (err || !session->attached || !session->sink)
		return err;
	event.time = session__now(session);
	event.name = decoder__string(session->decoder, name);
	return event.name == UINT32_MAX ? -ENOMEM : decoder__emit(session->decoder, &event);
}

/* From now on the programs record no events of this process. */
static void stop_programs(struct session *session)
{
	session->stopped = true;
	phases__stop(session->decoder->phases);
	if (session->opts.group)
		proc_group__stop(session->opts.group, proc__pid(session->target.proc),
				 session->opts.number);
	else
		probes__stop(session->probes);
}

/* Detaches the probes; in a group, leaves them for the other processes. */
static void remove_probes(struct session *session, const char *stop_reason)
{
	if (!session->opts.group)
		probes__detach(session->probes);
	else if (strcmp(stop_reason, "exec")) /* after exec, the group follows the PID further */
		proc_group__forget(session->opts.group, proc__pid(session->target.proc),
				   session->opts.number);
	if (session->opts.inside)
		inside_memory__close(session->opts.inside);
}

/* Takes the readings that need the probes. */
static int take_last_readings(struct session *session)
{
	int err = take_last_census(session);

	if (err)
		return err;
	err = session__last_host(session);
	if (err)
		return err;
	return take_tables(session,
			   attach_stage__read_last(session->attach, session__now(session)));
}

/* Emits what was recorded until the programs were stopped. Accounts for all records of a process in
 * a group, which the group forgets next; for other processes finish_stages() does. 0,
 * -ENOMEM or the sink's error. */
static int drain_last(struct session *session, struct sink *sink)
{
	int err = session__pump(session, sink);

	if (err)
		return err;
	/* Begin to remove the probes: that goes on while the driver answers. */
	if (!session->opts.group)
		probes__begin_detach(session->probes);
	err = cuda_calls__used(session->decoder, /*last=*/true);
	if (err || !session->opts.group)
		return err;
	return session__account(session);
}

/* Passes on all that is left, once the probes are removed. end: the stop, ns since start. 0,
 * -ENOMEM or the sink's error. */
static int finish_stages(struct session *session, struct sink *sink, uint64_t end)
{
	int err = session->opts.group ? 0 : session__account(session), rounds = 0;

	if (err)
		return err;
	do {
		err = session__pump(session, sink);
		if (err)
			return err;
	} while (session->queue.len || rounds++ < 1); /* at least two rounds */
	session__set_counters(session, session->losses.counters);
	facts__setf(session->facts, "lost", "%" PRIu64, session->losses.total);
	err = session->census ? take_last_ledger(session, end) : 0;
	if (err)
		return err;
	err = attach_stage__finish(session->attach);
	return err ? err : sleep_stage__finish(session->sleep);
}

int session__finish(struct session *session, struct sink *sink, const char *stop_reason)
{
	uint64_t end;
	int err;

	if (!session->attached)
		return 0;
	set_sink(session, sink);
	err = take_last_readings(session);
	end = session__now(session);
	session__set_clock_end(session);
	count_unseen(session);
	count_removed(session);
	count_skipped(session);
	stop_programs(session);
	if (!err)
		err = drain_last(session, sink);
	remove_probes(session, stop_reason);
	log_debug("detached after %.1f ms", (session__now(session) - end) / 1e6);
	session->blind = true;
	session->last_facts = 0;
	facts__set(session->facts, "stop_reason", stop_reason);
	cuda_calls__warn_missing(session->decoder);
	if (!err)
		err = finish_stages(session, sink, end);
	facts__setf(session->facts, "duration_ns", "%" PRIu64,
		    session->decoder->cut ? session->decoder->cut : end);
	facts__setf(session->facts, "events", "%" PRIu64, session__events(session));
	session->attached = false;
	return err;
}

void session__give_words(struct session *session, struct dict **dict, struct facts **facts)
{
	*dict = session->dict;
	*facts = session->facts;
	session->dict = NULL;
	session->facts = NULL;
}
