/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Order of things in a pump. Records are in the ring in the order in which the allocator made them,
 * and are handed on in that order. A stack's names must be read while its code objects are alive,
 * so each round reads first and hands on later:
 *
 *   1. drain the ring, read the code objects that new stacks mention;
 *   2. make sure that the records about all code objects freed until then are in, draining again if
 * need be (see code_cache.h);
 *   3. hand on what the first drain brought; what the second brought waits for the next round.
 */
#include "capture/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture/autograd.h"
#include "capture/caps.h"
#include "capture/code_cache.h"
#include "capture/cuda_calls.h"
#include "capture/decoder.h"
#include "capture/inside_memory.h"
#include "capture/modules.h"
#include "capture/stages.h"
#include "capture/symbolizer.h"
#include "lib/clock.h"
#include "lib/failure.h"
#include "lib/text.h"
#include "log/log.h"
#include "process/proc.h"
#include "record/dict.h"

#define LOOK_PAUSE_MIN 50000000ULL /* ns, doubling, while torch.nn is not there to be read */
#define LOOK_PAUSE_MAX 100000000ULL
#define FACTS_EVERY 1000000000ULL /* ns */
#define SETTLE_TRIES 100
#define DRAINS 64		 /* rounds until the ring was empty once */
#define STRANGE_ENDS 16384	 /* a quarter of MT_SEEN_SLOTS */
#define RING_DEFAULT (16u << 20) /* bytes, as the kernel side has it */

static int no_memory(struct failure *f)
{
	return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
}

struct session *session__make(const struct session_opts *opts, struct failure *f)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s) {
		no_memory(f);
		return NULL;
	}
	/* Large buffers are few and come and go: they are to be the system's again at once. Set, it
	 * also stays so. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	s->opts = *opts;
	if (opts->steps_only)
		s->opts.no_autograd = s->opts.no_modules = s->opts.no_census = true;
	s->image = -1;
	s->dict = dict__new();
	s->facts = facts__new();
	if (!s->dict || !s->facts) {
		no_memory(f);
		session__free(s);
		return NULL;
	}
	return s;
}

struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *f)
{
	struct session *s = session__make(opts, f);

	if (!s)
		return NULL;
	if (target__open(pid, &s->target, f) ||
	    (!opts->started && !opts->late && target__look(&s->target, f)))
		goto fail;
	if (opts->inside)
		inside_memory__bind(opts->inside, pid);
	/* of our own program still, where the process was started */
	s->image = proc__image(s->target.proc);
	return s;
fail:
	session__free(s);
	return NULL;
}

void session__free(struct session *s)
{
	if (!s)
		return;
	session__let_go(s, false);
	if (s->opts.inside)
		inside_memory__close(s->opts.inside);
	session__leave(s);
	if (s->probes && s->opts.group) {
		probes__feed(s->probes, s->opts.number, NULL, NULL);
		probes__reset_counters(s->probes, s->opts.number);
		probes__leave_calls(s->probes, proc__pid(s->target.proc));
	}
	probes__free(s->probes);
	census_stage__free(s->census);
	attach_stage__free(s->attach);
	decoder__free(s->decoder);
	facts__free(s->facts);
	dict__free(s->dict);
	free(s->queue.buf);
	if (s->image >= 0)
		close(s->image);
	target__close(&s->target);
	free(s);
}

/* What can be found once torch is imported: where `self` of modules is to be had, where an
 * optimizer's step ends. */
static void look_into_torch(struct session *s, uint64_t now)
{
	if (s->have_codes || !s->target.python || !s->target.has_slot || now < s->next_look)
		return;
	s->look_pause = s->look_pause ? s->look_pause * 2 : LOOK_PAUSE_MIN;
	if (s->look_pause > LOOK_PAUSE_MAX)
		s->look_pause = LOOK_PAUSE_MAX;
	s->next_look = now + s->look_pause;
	session__renew(s);
	if (target__look_into_torch(&s->target))
		return;
	probes__set_module_codes(s->probes, s->opts.number, s->target.module_codes,
				 s->target.n_module_codes);
	s->have_codes = true;
	target__attach_optional(&s->target, s->probes, HOOK_SCOPE_END);
	if (s->decoder->modules)
		target__attach_optional(&s->target, s->probes, HOOK_MODULE_CALL);
}

static int attach_all(struct session *s, struct failure *f)
{
	/*
	 * First those that keep what is read sound, then the events; frees before allocations. Out
	 * of memory comes last: it carries totals, and what happens between it and the first event
	 * after it has to be known.
	 */
	static const enum hook_id order[] = { HOOK_CODE_GONE, HOOK_CPU_DELETE, HOOK_CPU_NEW,
					      HOOK_REPORT, HOOK_OOM };
	pid_t pid = proc__pid(s->target.proc);
	size_t i;
	int err;

	for (i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		const struct hook *h = &s->target.hooks[order[i]];

		/* Which frames are modules' is known before the first event comes. */
		if (i == 1)
			look_into_torch(s, 0);
		if (i && s->opts.steps_only)
			break;
		if (probes__attached(s->probes, order[i]))
			continue;
		if (!h->found) {
			log_debug("%s: not probed: %s", hook__name(order[i]), h->why_not);
			continue;
		}
		err = probes__attach(s->probes, pid, h);
		if (err && s->opts.inside)
			return failure__set(f, EXIT_NOT_PERMITTED, err,
					    "no breakpoint can be set on %s at %s+%#" PRIx64 ": %s",
					    hook__name(h->id), h->file, h->offset,
					    err == -EBUSY
						    ? "the kernel's probes are there, of a capture "
						      "of all processes (--all, --name, "
						      "--children, watch, serve): try again when "
						      "that has ended, or have it recorded so"
						    : strerror(-err));
		if (err == -EPERM || err == -EACCES)
			return failure__set(
				f, EXIT_NOT_PERMITTED, err,
				"not permitted to probe PID %d: %s needed; run it with sudo",
				(int)pid,
				*caps__missing() ? caps__missing()
				: probes__have_multi(s->probes)
					? "CAP_PERFMON"
					: "CAP_SYS_ADMIN (this kernel has no uprobe.multi)");
		if (err == -ESRCH)
			return failure__set(f, EXIT_UNUSABLE, err, "PID %d ended while attaching",
					    (int)pid);
		if (err)
			return failure__set(f, h->required ? EXIT_NOT_PERMITTED : EXIT_FAILED, err,
					    "the kernel refused the probe on %s at %s+%#" PRIx64
					    ": %s; `memtrace-bpf check -p %d` "
					    "shows what is there",
					    hook__name(h->id), h->file, h->offset, strerror(-err),
					    (int)pid);
	}
	return 0;
}

int session__open_decoder(struct session *s)
{
	s->decoder = decoder__new(&s->opts, &s->target, s->probes, s->dict, s->facts);
	return s->decoder ? 0 : -ENOMEM;
}

int session__open_attach_stage(struct session *s)
{
	s->attach = attach_stage__new(&s->target, s->facts, !s->opts.steps_only);
	if (!s->attach)
		return -ENOMEM;
	s->decoder->next = attach_stage__sink(s->attach);
	return 0;
}

int session__open_census_stage(struct session *s)
{
	if (s->opts.no_census)
		return 0;
	s->census = census_stage__new(s->decoder, s->decoder->next);
	if (!s->census)
		return -ENOMEM;
	s->decoder->next = census_stage__sink(s->census);
	return 0;
}

/* All that takes and adds events, before the probes bring any. 0 or -ENOMEM. */
static int open_stages(struct session *s)
{
	bool all = !s->opts.steps_only;
	int err = session__open_decoder(s);

	if (!err)
		err = session__catch_up(s);
	if (!err)
		err = session__set_facts(s);
	if (!err)
		err = session__open_attach_stage(s);
	if (!err && all)
		err = attach_stage__hint(s->attach);
	/* Segments before blocks: a block's total counts all segments taken until then. */
	if (!err && all)
		err = cuda_calls__attach(s->decoder);
	if (!err && !s->opts.no_autograd)
		err = autograd__attach(s->decoder);
	if (!err && !s->opts.no_modules && s->target.has_slot)
		err = modules__open(s->decoder);
	return err;
}

/* The probes are in place: events begin now. 0 or -ENOMEM. */
static int begin_events(struct session *s)
{
	int err;

	s->decoder->start = decoder__clock(s->decoder);
	err = session__set_start(s); /* at once: events count their time from here */
	if (err)
		return err;
	s->decoder->from_start = s->joined_early || session__before_torch(s);
	err = facts__set(s->facts, "attached_at", s->decoder->from_start ? "start" : "live");
	if (err)
		return -ENOMEM;
	s->attached = true;
	if (!s->opts.steps_only)
		err = attach_stage__begin(s->attach);
	return err ? err : session__open_census_stage(s);
}

static int attach(struct session *s, struct failure *f)
{
	int err;

	if (s->target.hooks_err) {
		const struct hook *h = s->target.hooks;
		int i;

		for (i = 0; i < HOOK_NR - 1 && !(h[i].required && !h[i].found); i++)
			;
		if (*caps__missing())
			return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
					    "%s: %s needed; run it with sudo",
					    h[i].why_not ? h[i].why_not
							 : "torch's library cannot be looked into",
					    caps__missing());
		if (s->target.hooks_err != -ENOENT && !caps__reach_replaced())
			return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
					    "%s; where its file was replaced on disk, "
					    "CAP_CHECKPOINT_RESTORE is needed too; run it "
					    "with sudo",
					    h[i].why_not ? h[i].why_not
							 : "torch's library cannot be looked into");
		if (s->target.hooks_err == -EPERM)
			return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
					    "%s. Run memtrace-bpf as the user who mounted it, or "
					    "mount it with -o allow_other",
					    h[i].why_not ? h[i].why_not
							 : "torch's library cannot be opened");
		return failure__set(
			f, EXIT_UNUSABLE, s->target.hooks_err,
			"this PyTorch (%s) does not export %s: %s; versions 1.13 and newer do",
			s->target.torch.version[0] ? s->target.torch.version : "version unknown",
			h[i].symbol, h[i].why_not ? h[i].why_not : "not found");
	}
	target__look_into_torch(&s->target); /* what is there already */
	err = session__load(s, f);
	if (!err)
		err = session__fit(s, f);
	if (err)
		return err;
	if (open_stages(s))
		return no_memory(f);
	err = attach_all(s, f);
	if (err)
		return err;
	return begin_events(s) ? no_memory(f) : 0;
}

int session__attach(struct session *s, struct failure *f)
{
	int err = session__await(s, f);

	if (!err)
		err = session__take_number(s) ? attach(s, f) : -EAGAIN;
	session__let_go(s, err == -EAGAIN);
	return err;
}

bool session__attached(const struct session *s)
{
	return s->attached;
}

bool session__has_python(const struct session *s)
{
	return s->target.has_python || s->target.torch.found;
}

bool session__has_multi(const struct session *s)
{
	return s->probes && probes__have_multi(s->probes);
}

static size_t ring_size(const struct session *s)
{
	return s->opts.ring_bytes ? s->opts.ring_bytes : RING_DEFAULT;
}

/* What fits into the ring fits here, and what comes in while that is taken. */
static size_t queue_max(const struct session *s)
{
	return ring_size(s) + ring_size(s) / 4 + (1u << 20);
}

int session__enqueue(void *ctx, const void *rec, size_t len)
{
	const struct mt_rec_gone *gone = rec;
	struct session *s = ctx;
	int err;

	/* Nobody takes them out yet, and others are not to wait for that. */
	if (!s->decoder) {
		if (s->queue.len <= QUEUE_EARLY || gone->h.type == MT_REC_CODE_GONE)
			return queue__push_early(&s->queue, rec, len, QUEUE_EARLY);
		s->early_lost++;
		return 0;
	}
	err = queue__push(&s->queue, rec, len);
	if (!err && gone->h.type == MT_REC_CODE_GONE) {
		s->gone_after += gone->epoch > s->read_until;
		s->strange_ends += gone->h.member == s->opts.number &&
				   !code_cache__known(symbolizer__codes(s->decoder->names),
						      gone->code);
		err = code_cache__gone(symbolizer__codes(s->decoder->names), gone->code,
				       gone->epoch);
	}
	if (!err && s->queue.len > queue_max(s))
		return -EAGAIN;
	return err;
}

int session__catch_up(struct session *s)
{
	const struct mt_rec_gone *gone;
	uint64_t lost = 0;
	size_t pos = 0, len;
	int err = 0;

	/* What a forked process has from its parent was closed by these ends there. */
	code_cache__floor(symbolizer__codes(s->decoder->names), s->queue.floor);
	while (!err && (gone = queue__at(&s->queue, &pos, s->queue.len, &len))) {
		if (gone->h.type == MT_REC_CODE_GONE)
			err = code_cache__gone(symbolizer__codes(s->decoder->names), gone->code,
					       gone->epoch);
	}
	s->forgotten = probes__times_forgotten(s->probes);
	/* Which of them came before we were there cannot be told: nothing is said of stacks from
	 * before now. */
	if (!err && s->opts.group && !probes__lost_ends(s->probes, &lost) && lost) {
		code_cache__lost(symbolizer__codes(s->decoder->names), 0, probes__epoch(s->probes));
		s->gone_lost = lost;
	}
	return err;
}

/*
 * A target that fills the ring faster than it is drained must not keep us draining, nor our memory
 * growing: what is not taken stays in the ring, where losses are counted.
 */
static int consume(struct session *s)
{
	int err = probes__consume(s->probes, session__enqueue, s);

	s->behind = err == -EAGAIN;
	return s->behind ? 0 : err;
}

static int prefetch(struct session *s)
{
	const struct mt_hdr *h;
	size_t pos = 0, len;
	int err;

	while ((h = queue__at(&s->queue, &pos, s->queue.len, &len))) {
		if (h->type != MT_REC_STACK)
			continue;
		if (((const struct mt_rec_stack *)h)->n > MT_MAX_ENTRIES)
			return -EBADMSG;
		if (decoder__knows_stack(s->decoder, ((const struct mt_rec_stack *)h)->stack))
			continue;
		err = symbolizer__prefetch(s->decoder->names, (const struct mt_rec_stack *)h);
		if (err)
			return err;
	}
	return 0;
}

/*
 * The programs mark code objects by hash and never take a mark back. After very many of them nearly
 * every end of a code object looks as if some stack had it, and makes all stacks be sent again.
 */
static void renew_marks(struct session *s)
{
	if (s->strange_ends < STRANGE_ENDS)
		return;
	log_debug("%" PRIu32 " ends of code objects that no stack had: marks are made anew",
		  s->strange_ends);
	s->strange_ends = 0;
	probes__forget_seen(s->probes);
}

/* This session's programs, which others may share, have forgotten marks: what was read before
 * stands for no stack from then on. */
static void look_for_forgotten(struct session *s)
{
	uint64_t n = probes__times_forgotten(s->probes);

	if (n == s->forgotten)
		return;
	s->gone_lost += (n - s->forgotten) * PROBES_FORGOTTEN_ENDS;
	s->forgotten = n;
	code_cache__lost(symbolizer__codes(s->decoder->names), s->sure_epoch,
			 probes__epoch(s->probes));
}

/* Have records about freed code objects been lost? Then nothing is sure from the last sure epoch up
 * to now. */
static int look_for_losses(struct session *s, bool *lost)
{
	uint64_t n;
	int err = probes__lost_ends(s->probes, &n);

	if (err)
		return err;
	*lost = n != s->gone_lost;
	if (!*lost)
		return 0;
	s->gone_lost = n;
	code_cache__drop_new(symbolizer__codes(s->decoder->names));
	code_cache__lost(symbolizer__codes(s->decoder->names), s->sure_epoch,
			 probes__epoch(s->probes));
	return 0;
}

/*
 * Does what was read in this round stand? Yes if every code object that was freed before the reading
 * ended has been told of. One that is being freed at this very moment takes microseconds to be.
 */
static int settle(struct session *s)
{
	struct code_cache *codes = symbolizer__codes(s->decoder->names);
	bool lost = false;
	int tries, err;

	s->gone_after = 0;
	s->read_until = probes__epoch(s->probes);
	code_cache__read_until(codes, s->read_until);
	for (tries = 0; tries < SETTLE_TRIES && !lost; tries++) {
		if (probes__bumps(s->probes) + probes__ends(s->probes) - s->gone_after +
			    s->gone_lost >=
		    s->read_until) {
			s->sure_epoch = s->read_until;
			code_cache__confirm(codes);
			return 0;
		}
		err = consume(s);
		if (err >= 0)
			err = look_for_losses(s, &lost);
		if (err < 0)
			return err;
	}
	code_cache__drop_new(codes);
	return 0;
}

static uint64_t sum_of_lost(const uint64_t c[MT_CNT_NR], const unsigned *what, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += c[MT_CNT_RING_LOST + what[i]];
	return sum;
}

static uint64_t sum_lost(const uint64_t c[MT_CNT_NR])
{
	static const unsigned what[] = { MT_REC_REPORT,	    MT_REC_OOM,	      MT_REC_CPU_NEW,
					 MT_REC_CPU_DELETE, MT_REC_CUDA_CALL, MT_REC_REQUESTED,
					 MT_REC_SET_DEVICE };

	return sum_of_lost(c, what, sizeof(what) / sizeof(what[0]));
}

/*
 * Records that say nothing of how much memory there is, but of whose it is and of steps. An end of
 * modules is told again by the next record.
 */
static uint64_t sum_lost_words(const uint64_t c[MT_CNT_NR])
{
	static const unsigned what[] = { MT_REC_SCOPE_END, MT_REC_MODULE_CALL, MT_REC_EDGE,
					 MT_REC_NODE };

	return sum_of_lost(c, what, sizeof(what) / sizeof(what[0]));
}

/*
 * Losses are told of before anything is handed on that may have come after them, should we end any
 * moment. What was drained with it may be older than they are, its totals say nothing of them: see
 * end_losses().
 */
static int tell_losses(struct session *s)
{
	struct event e = { .kind = EVENT_LOST, .time = session__now(s) };
	const struct mt_hdr *first;
	uint64_t notices = probes__notices(s->probes);
	size_t pos = 0, len;
	uint64_t events;
	int err;

	if (notices != s->notices || s->blind || !s->last_facts ||
	    session__now(s) - s->last_facts >= FACTS_EVERY) {
		err = probes__counters(s->probes, s->opts.number, s->counters);
		if (err)
			return err;
		s->notices = notices;
	}
	events = sum_lost(s->counters) + s->early_lost;
	s->lost = events + sum_lost_words(s->counters);
	if (events == s->lost_said)
		return 0;
	first = queue__at(&s->queue, &pos, s->queue.len, &len);
	if (first)
		e.time = decoder__since(s->decoder, first->time);
	e.size = events - s->lost_said;
	s->lost_said = events;
	s->loss_open = true;
	s->lost_at = e.size; /* of this round */
	return decoder__emit(s->decoder, &e);
}

/* All that was in the ring when the last loss was counted has been handed on, and nothing was lost
 * since. */
static int end_losses(struct session *s, uint64_t now)
{
	struct event e = { .kind = EVENT_LOST, .time = now };

	if (!s->loss_open || s->behind || s->lost_at)
		return 0;
	s->loss_open = false;
	return decoder__emit(s->decoder, &e);
}

/*
 * One round: see the top of this file. In a hurry, of which there are many a second, it is not
 * asked what was lost where little was in the ring: nothing was.
 */
static int go_round(struct session *s, bool hurry)
{
	size_t end, pos = 0, len;
	uint64_t taken;
	const void *rec;
	int err;

	s->read_until = UINT64_MAX;
	look_for_forgotten(s);
	err = consume(s);
	taken = probes__taken(s->probes);
	cuda_calls__after_drain(s->decoder, err >= 0 && !s->behind);
	s->lost_at = 0;
	if (err >= 0 && (!hurry || s->queue.len > ring_size(s) / 2))
		err = tell_losses(s);
	if (err >= 0 && !s->blind)
		err = prefetch(s);
	end = s->queue.len;
	if (err >= 0 && !s->blind)
		err = settle(s);
	while (err >= 0 && (rec = queue__at(&s->queue, &pos, end, &len)))
		err = decoder__record(s->decoder, rec, len);
	queue__drop(&s->queue, pos);
	s->taken = taken;
	if (err >= 0)
		err = cuda_calls__used(s->decoder, false);
	return err < 0 ? err : 0;
}

/* Drains the ring once and hands on what was in it. 0 or negative, as session__pump(). */
static int run_round(struct session *s)
{
	cuda_calls__before_drain(s->decoder);
	return go_round(s, false);
}

/* Pages that are not present: the programs that can wait for them take over. */
static void maybe_go_sleepable(struct session *s, const uint64_t c[MT_CNT_NR])
{
	int err;

	if (probes__sleepable(s->probes) || s->tried_sleepable ||
	    !(c[MT_CNT_WALK + MT_WALK_FAULT_FRAME] + c[MT_CNT_WALK + MT_WALK_FAULT_THREAD] +
	      c[MT_CNT_WALK + MT_WALK_FAULT_SELF]))
		return;
	s->tried_sleepable = true;
	err = probes__go_sleepable(s->probes, proc__pid(s->target.proc), s->target.hooks);
	if (err)
		log_warn("a page of the target is not in memory, and the programs that could wait "
			 "for it were "
			 "refused (%s): some stacks stay short",
			 strerror(-err));
	else
		log_debug(
			"a page of the target was not in memory: the sleepable programs take over");
}

static void look_for_unseen(struct session *s)
{
	uint64_t n = cuda_calls__unseen(s->decoder);

	if (n <= s->unseen)
		return;
	if (!s->unseen)
		log_warn("%" PRIu64 " of what PyTorch's allocator told of were not seen: are there "
			 "other probes in the same place?",
			 n);
	s->early_lost += n - s->unseen;
	s->unseen = n;
}

static int housekeeping(struct session *s, uint64_t now)
{
	const uint64_t *c = s->counters;
	int err = end_losses(s, now);

	if (err)
		return err;
	maybe_go_sleepable(s, c);
	renew_marks(s);
	look_into_torch(s, now);
	cuda_calls__look(s->decoder, now);
	if (!s->blind && autograd__is_due(s->decoder, now)) {
		session__renew(s);
		autograd__look(s->decoder, now);
	}
	if (symbolizer__recheck(s->decoder->names, now))
		decoder__forget_roots(s->decoder);
	if (now - s->last_facts >= FACTS_EVERY || !s->last_facts) {
		s->last_facts = now;
		decoder__check_threads(s->decoder);
		if (!s->blind)
			look_for_unseen(s);
		facts__setf(s->facts, "duration_ns", "%" PRIu64, now);
		facts__setf(s->facts, "events", "%" PRIu64, session__events(s));
		facts__setf(s->facts, "lost", "%" PRIu64, s->lost);
		session__set_counters(s, c);
		if (c[MT_CNT_RING_LOST + MT_REC_SCOPE_END] && !s->lost_steps_said) {
			log_warn("ends of steps were lost: steps, and figures per step, are not "
				 "exact");
			s->lost_steps_said = true;
		}
		if (s->opts.group)
			session__set_rank(s);
	}
	return 0;
}

/* Takes a reading of the allocator's tables. read: what attach_stage__read() returned. */
static int take_tables(struct session *s, int read)
{
	uint64_t written;
	int err;

	if (read <= 0)
		return read;
	written = probes__written(s->probes);
	err = run_round(s);
	return err ? err : attach_stage__take(s->attach, s->taken >= written, session__now(s));
}

/* Takes a census reading. ended: what census_stage__end() returned. */
static int take_census(struct session *s, int ended)
{
	int err = 0;

	if (ended <= 0)
		return ended;
	for (int i = 0; i < DRAINS && !err; i++) {
		err = run_round(s);
		if (!err && !s->behind)
			return census_stage__take(s->census, true);
	}
	census_stage__take(s->census, false);
	return err;
}

static int pump_census(struct session *s, uint64_t now)
{
	int ended = s->census ? census_stage__end(s->census) : 0;

	if (s->census && !ended && attach_stage__settled(s->attach))
		census_stage__begin(s->census, now);
	return take_census(s, ended);
}

/* Waits for a census reading under way, and drains the ring meanwhile. */
static int await_census(struct session *s)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int err = 0;

	while (!err && census_stage__reads(s->census)) {
		err = run_round(s);
		nanosleep(&pause, NULL);
	}
	return err ? err : take_census(s, census_stage__end(s->census));
}

static int last_census(struct session *s)
{
	int err;

	if (!s->census)
		return 0;
	err = await_census(s);
	if (err || !attach_stage__settled(s->attach))
		return err;
	census_stage__begin_last(s->census);
	return await_census(s);
}

static void send_to(struct session *s, struct sink *sink)
{
	s->sink = sink;
	attach_stage__send_to(s->attach, sink);
}

int session__pump(struct session *s, struct sink *sink)
{
	uint64_t now = session__now(s);
	int err;

	send_to(s, sink);
	err = run_round(s);
	if (!err && !s->blind)
		err = modules__pump(s->decoder, now);
	if (!err)
		err = take_tables(s, attach_stage__read(s->attach, now));
	if (!err)
		err = pump_census(s, now);
	if (!err)
		err = housekeeping(s, now);
	if (!err && sink && sink->tick)
		err = sink->tick(sink, now);
	return err;
}

int session__wake_fd(const struct session *s)
{
	return probes__wake_fd(s->probes);
}

int session__drain_new(struct session *s, struct sink *sink)
{
	send_to(s, sink);
	/* The driver is not asked: that may take longer than what is to be read is there. */
	return go_round(s, true);
}

int session__drain(struct session *s)
{
	int err = 0;

	/* What the first round drains while it makes sure of names waits for the next one. */
	for (int i = 0; i < 2 && !err && s->attached && s->sink; i++)
		err = run_round(s);
	return err;
}

int session__mark(struct session *s, const char *name)
{
	struct event e = { .kind = EVENT_MARK };
	int err = session__drain(s);

	if (err || !s->attached || !s->sink)
		return err;
	e.time = session__now(s);
	e.name = dict__string(s->dict, name, strlen(name));
	return decoder__emit(s->decoder, &e);
}

static void stop(struct session *s)
{
	if (s->opts.group)
		proc_group__stop(s->opts.group, proc__pid(s->target.proc), s->opts.number);
	else
		probes__stop(s->probes);
}

static void remove_probes(struct session *s, const char *stop_reason)
{
	if (!s->opts.group)
		probes__detach(s->probes);
	else if (strcmp(stop_reason, "exec"))
		proc_group__forget(s->opts.group, proc__pid(s->target.proc), s->opts.number);
	if (s->opts.inside)
		inside_memory__close(s->opts.inside);
}

int session__finish(struct session *s, struct sink *sink, const char *stop_reason)
{
	uint64_t end;
	int err, rounds = 0;

	if (!s->attached)
		return 0;
	send_to(s, sink);
	err = last_census(s);
	if (!err)
		err = take_tables(s, attach_stage__read_last(s->attach, session__now(s)));
	end = session__now(s);
	look_for_unseen(s);
	stop(s);
	if (!err)
		err = session__pump(s, sink);
	if (!err)
		err = cuda_calls__used(s->decoder, true);
	remove_probes(s, stop_reason);
	log_debug("detached after %.1f ms", (session__now(s) - end) / 1e6);
	s->blind = true;
	s->last_facts = 0;
	facts__set(s->facts, "stop_reason", stop_reason);
	if (err)
		goto out;
	do {
		err = session__pump(s, sink);
		if (err)
			goto out;
	} while (s->queue.len || rounds++ < 1);
	err = attach_stage__finish(s->attach);
out:
	facts__setf(s->facts, "duration_ns", "%" PRIu64, s->decoder->cut ? s->decoder->cut : end);
	facts__setf(s->facts, "events", "%" PRIu64, session__events(s));
	s->attached = false;
	return err;
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

void session__give_words(struct session *s, struct dict **dict, struct facts **facts)
{
	*dict = s->dict;
	*facts = s->facts;
	s->dict = NULL;
	s->facts = NULL;
}

const struct proc *session__proc(const struct session *s)
{
	return s->target.proc;
}

uint64_t session__now(const struct session *s)
{
	return s->decoder ? decoder__now(s->decoder) : 0;
}

uint64_t session__events(const struct session *s)
{
	return s->attach ? attach_stage__events(s->attach) : 0;
}

uint64_t session__lost(const struct session *s)
{
	return s->lost;
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
	/* A process that is about to end has let go of its memory, too, and has no other. */
	now = proc__image(s->target.proc);
	runs = now >= 0 && !proc__image_gone(now);
	if (now >= 0)
		close(now);
	return runs;
}

const char *session__python_problem(const struct session *s)
{
	return s->target.python_why[0] ? s->target.python_why : NULL;
}
