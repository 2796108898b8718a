/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A round: the records in the ring go through the decoder, in the allocator's order. The names of a
 * stack must be read while its code objects are alive, so a round reads first and decodes later:
 *
 *   1. drain the ring into the queue, and read the code objects that new stacks mention;
 *   2. drain again until the records about all code objects freed by then are in (code_cache.h);
 *   3. decode what the first drain brought. The rest waits for the next round.
 */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/cuda_calls.h"
#include "capture/decode/decoder.h"
#include "capture/decode/phases.h"
#include "capture/decode/symbolizer.h"
#include "capture/decode/probed_scopes.h"
#include "inspect/proc.h"

#define SETTLE_TRIES 100	 /* drains in step 2, at most */
#define UNMARKED_MAX 16384	 /* for session__renew_marks(): a quarter of MT_SEEN_SLOTS */
#define RING_DEFAULT (16u << 20) /* bytes; the BPF programs' default, too */

static struct code_cache *codes(const struct session *session)
{
	return symbolizer__codes(session->decoder->names);
}

size_t session__ring_size(const struct session *session)
{
	return session->opts.ring_bytes ? session->opts.ring_bytes : RING_DEFAULT;
}

/* Bytes at which the queue counts as full: a full ring, and records that come while it is
 * drained. */
static size_t queue_max(const struct session *session)
{
	return session__ring_size(session) + session__ring_size(session) / 4 + (1u << 20);
}

int session__enqueue(void *ctx, const void *rec, size_t len)
{
	const struct mt_rec_gone *gone = rec;
	struct session *session = ctx;
	int err;

	if (!decoder__is_record(rec, len))
		return -EBADMSG;
	/* Before attach, keep what fits, so that the group's other processes need not wait. */
	if (!session->decoder) {
		if (session->queue.len <= QUEUE_EARLY || gone->h.type == MT_REC_CODE_GONE)
			return queue__push_early(&session->queue, rec, len, QUEUE_EARLY);
		session->losses.early++;
		return 0;
	}
	err = queue__push(&session->queue, rec, len);
	if (err)
		return err;
	if (gone->h.type == MT_REC_CODE_GONE) {
		session->ends.after += gone->epoch >
				       session->ends.read_until; /* see confirm_names() */
		session->ends.unmarked += gone->h.member == session->opts.number &&
					  !code_cache__known(codes(session), gone->code);
		err = code_cache__gone(codes(session), gone->code, gone->epoch);
		if (err)
			return err;
	}
	return session->queue.len > queue_max(session) ? -EAGAIN : 0;
}

int session__catch_up(struct session *session)
{
	const struct mt_rec_gone *gone;
	uint64_t lost = 0;
	size_t pos = 0, len;
	int err = 0;

	/* The queue dropped older records of freed code objects. A forked process has its parent's
	 * code objects, so no reading from before that epoch is valid. */
	code_cache__floor(codes(session), session->queue.floor);
	while (!err && (gone = queue__at(&session->queue, &pos, session->queue.len, &len))) {
		if (gone->h.type == MT_REC_CODE_GONE)
			err = code_cache__gone(codes(session), gone->code, gone->epoch);
	}
	session->ends.forgotten = probes__times_forgotten(session->probes);
	/* If ends were lost, which may be of this process, no stack from before now gets names. */
	if (!err && session->opts.group && !probes__lost_ends(session->probes, &lost) && lost) {
		code_cache__lost(codes(session), 0, probes__epoch(session->probes));
		session->ends.lost = lost;
	}
	return err;
}

/* Drains the ring until the queue is full; then sets session->behind. The queue must not grow if a
 * target fills the ring faster than we decode: what does not fit into the ring is lost there and
 * counted. 0 or -errno. */
static int consume(struct session *session)
{
	int err = probes__consume(session->probes, session__enqueue, session);

	session->behind = err == -EAGAIN;
	return session->behind ? 0 : err;
}

/* Reads the code objects of new stacks in the queue. 0 or -ENOMEM. */
static int read_new_codes(struct session *session)
{
	const struct mt_hdr *header;
	size_t pos = 0, len;
	int err;

	while ((header = queue__at(&session->queue, &pos, session->queue.len, &len))) {
		if (header->type != MT_REC_STACK)
			continue;
		if (decoder__knows_stack(session->decoder,
					 ((const struct mt_rec_stack *)header)->stack))
			continue;
		err = symbolizer__prefetch(session->decoder->names,
					   (const struct mt_rec_stack *)header);
		if (err)
			return err;
	}
	return 0;
}

void session__renew_marks(struct session *session)
{
	if (session->ends.unmarked < UNMARKED_MAX)
		return;
	log_debug("%" PRIu32 " ends of code objects that no stack had: marks are cleared",
		  session->ends.unmarked);
	session->ends.unmarked = 0;
	probes__forget_seen(session->probes);
}

/* If the programs forgot their marks since, the code objects that were read before are valid for no
 * later stack. */
static void note_forgotten(struct session *session)
{
	uint64_t times_forgotten = probes__times_forgotten(session->probes);

	if (times_forgotten == session->ends.forgotten)
		return;
	session->ends.lost += (times_forgotten - session->ends.forgotten) * PROBES_FORGOTTEN_ENDS;
	session->ends.forgotten = times_forgotten;
	code_cache__lost(codes(session), session->ends.sure_epoch, probes__epoch(session->probes));
}

/* If records about freed code objects were lost, sets *lost: names are unsure from the last sure
 * epoch on. 0 or -errno. */
static int note_lost_ends(struct session *session, bool *lost)
{
	uint64_t n_lost;
	int err = probes__lost_ends(session->probes, &n_lost);

	if (err)
		return err;
	*lost = n_lost != session->ends.lost;
	if (!*lost)
		return 0;
	session->ends.lost = n_lost;
	code_cache__drop_new(codes(session));
	code_cache__lost(codes(session), session->ends.sure_epoch, probes__epoch(session->probes));
	return 0;
}

/* Keeps the code objects that this round read if the records about all those freed before the
 * reading's end are in, and drops them otherwise. A record follows its object's end within
 * microseconds. 0 or -errno. */
static int confirm_names(struct session *session)
{
	bool lost = false;
	int tries, err;

	session->ends.after = 0;
	session->ends.read_until = probes__epoch(session->probes);
	code_cache__read_until(codes(session), session->ends.read_until);
	for (tries = 0; tries < SETTLE_TRIES && !lost; tries++) {
		/* Each end raises the epoch once. The reading is confirmed if as many ends have
		 * come in, or are known to be lost, as the epoch says. */
		uint64_t came = probes__bumps(session->probes) + probes__ends(session->probes) -
				session->ends.after; /* without ends after the reading */

		if (came + session->ends.lost >= session->ends.read_until) {
			session->ends.sure_epoch = session->ends.read_until;
			code_cache__confirm(codes(session));
			return 0;
		}
		err = consume(session);
		if (err >= 0)
			err = note_lost_ends(session, &lost);
		if (err < 0)
			return err;
	}
	code_cache__drop_new(codes(session));
	return 0;
}

/* Types of records whose loss counts as lost events: those about memory, and those about owners of
 * memory and steps. Not ends of modules: the next record repeats a lost one. */
static const unsigned memory_types[] = { MT_REC_REPORT,	    MT_REC_OOM,	      MT_REC_CPU_NEW,
					 MT_REC_CPU_DELETE, MT_REC_CUDA_CALL, MT_REC_REQUESTED,
					 MT_REC_SET_DEVICE };
static const unsigned name_types[] = { MT_REC_SCOPE_END, MT_REC_SCOPE, MT_REC_MODULE_CALL,
				       MT_REC_EDGE, MT_REC_NODE };
static const unsigned scope_types[] = { MT_REC_SCOPE_END, MT_REC_SCOPE };

/* Lost records of these types. */
static uint64_t sum_lost(const struct losses *losses, const unsigned *types, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += losses->counters[MT_CNT_RING_LOST + types[i]] +
		       losses->unaccounted[types[i]];
	return sum;
}

/* If more events were lost, emits EVENT_LOST with their number before the first event that may have
 * come after the loss. The queue may hold older events, too: session__end_losses() emits the end of
 * the loss. 0, -errno or the sink's error. */
static int begin_losses(struct session *session)
{
	struct event event = { .kind = EVENT_LOST, .time = session__now(session) };
	const struct mt_hdr *first;
	uint64_t notices = probes__notices(session->probes);
	size_t pos = 0, len;
	uint64_t events;
	int err;

	/* Read the counters if something may have been lost, otherwise once a second. */
	if (notices != session->losses.notices || session->blind || !session->last_facts ||
	    session__now(session) - session->last_facts >= SESSION_FACTS_EVERY) {
		err = probes__counters(session->probes, session->opts.number,
				       session->losses.counters);
		if (err)
			return err;
		session->losses.notices = notices;
	}
	events = session->losses.early + sum_lost(&session->losses, memory_types,
						  sizeof(memory_types) / sizeof(memory_types[0]));
	session->losses.total = events + sum_lost(&session->losses, name_types,
						  sizeof(name_types) / sizeof(name_types[0]));
	if (events == session->losses.reported)
		return 0;
	first = queue__at(&session->queue, &pos, session->queue.len, &len);
	if (first)
		event.time = decoder__since(session->decoder, first->time);
	event.size = events - session->losses.reported;
	session->losses.reported = events;
	session->losses.open = true;
	session->losses.in_round = event.size; /* the size of this round's loss */
	return decoder__emit(session->decoder, &event);
}

int session__end_losses(struct session *session, uint64_t now)
{
	struct event event = { .kind = EVENT_LOST, .time = now };

	if (!session->losses.open || session->behind || session->losses.in_round)
		return 0;
	session->losses.open = false;
	return decoder__emit(session->decoder, &event);
}

#define ACCOUNT_TRIES 100 /* times that session__account() waits 1 ms for programs that still run */

/* Finds the hits of each type that are in no other count by now, and their sum. 0 or -errno. */
static int find_unaccounted(struct session *session, uint64_t ret[MT_REC_TYPES], uint64_t *sum)
{
	uint64_t *counters = session->losses.counters, known;
	int err = probes__counters(session->probes, session->opts.number, counters);

	*sum = 0;
	memset(ret, 0, MT_REC_TYPES * sizeof(*ret));
	for (unsigned i = 1; i < MT_REC_TYPES && !err && !probes__empty(session->probes); i++) {
		if (!session__has_hits(session, i))
			continue;
		known = probes__records(session->probes, session->opts.number, i) +
			counters[MT_CNT_FILTERED + i] + counters[MT_CNT_RING_LOST + i];
		ret[i] = counters[MT_CNT_HIT + i] > known ? counters[MT_CNT_HIT + i] - known : 0;
		*sum += ret[i];
	}
	return err;
}

int session__account(struct session *session)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t missing[MT_REC_TYPES], n_missing, written = probes__written(session->probes);
	int err, tries = 0;

	while (!(err = session__round(session) ?: find_unaccounted(session, missing, &n_missing)) &&
	       n_missing && tries < ACCOUNT_TRIES) {
		/* While a queue is full, a drain may take a single record: drain again at once. */
		if (session->behind && session->taken < written)
			continue;
		nanosleep(&pause, NULL);
		tries++;
	}
	if (err || !n_missing)
		return err;
	memcpy(session->losses.unaccounted, missing, sizeof(missing));
	log_warn("PID %d: %" PRIu64 " hits of probes left no record: they count as lost. The "
		 "process was ended in a probe, or this is a fault of memtrace-bpf; `report "
		 "--format json` has the counters",
		 (int)proc__pid(session->target.proc), n_missing);
	return 0;
}

/* After a drain: notes that all its records are of the same program. If the process becomes another
 * program, its system calls are recorded, too, and the time of that is not known. */
static void note_same_program(struct session *session)
{
	struct decoder *decoder = session->decoder;

	if (decoder->host && !session__replaced(session))
		decoder->same_until = session__now(session);
}

/* Decodes the records up to `end` of the queue, with the phases between them. Returns 0, -errno or
 * the sink's error. */
static int decode_queue(struct session *session, size_t end)
{
	struct phases *phases = session->decoder->phases;
	size_t at = 0, pos = 0, len;
	const void *rec;
	int err = phases__read(phases, &session->queue, end);

	while (!err && (rec = queue__at(&session->queue, &pos, end, &len))) {
		err = phases__before_record(phases, at, rec);
		err = err ?: decoder__record(session->decoder, rec, len);
		at = pos;
	}
	err = err ?: phases__after_drain(phases, !session->behind);
	queue__drop(&session->queue, pos);
	return err;
}

/* After a loss of begins or ends, it is not known which scopes are open. Returns 0 or the error of
 * ending them. */
static int note_lost_scopes(struct session *session)
{
	uint64_t lost = sum_lost(&session->losses, scope_types,
				 sizeof(scope_types) / sizeof(scope_types[0]));

	if (lost == session->losses.scopes)
		return 0;
	session->losses.scopes = lost;
	return probed_scopes__end_all(session->decoder->probed);
}

int session__drain_ring(struct session *session, bool only_names)
{
	uint64_t taken;
	size_t end;
	int err;

	session->ends.read_until = UINT64_MAX;
	note_forgotten(session);
	phases__before_drain(session->decoder->phases);
	err = consume(session);
	/* What the next three calls note about the drain is true after an error, too. */
	taken = probes__taken(session->probes);
	note_same_program(session);
	cuda_calls__after_drain(session->decoder, err >= 0 && !session->behind);
	session->losses.in_round = 0;
	if (err < 0)
		return err;
	if (!only_names || session->queue.len > session__ring_size(session) / 2) {
		err = begin_losses(session);
		if (err)
			return err;
	}
	end = session->queue.len; /* later drains of this round are decoded by the next one */
	if (!session->blind) {
		err = read_new_codes(session);
		if (err)
			return err;
		err = confirm_names(session);
		if (err)
			return err;
	}
	err = decode_queue(session, end);
	err = err ?: note_lost_scopes(session);
	session->taken = taken;
	return err ? err : cuda_calls__used(session->decoder, /*last=*/false);
}

int session__round(struct session *session)
{
	cuda_calls__before_drain(session->decoder);
	return session__drain_ring(session, /*only_names=*/false);
}
