/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Order of things in a pump. Records are in the ring in the order in which the allocator made them,
 * and are handed on in that order. A stack's names must be read while its code objects are alive, so each
 * round reads first and hands on later:
 *
 *   1. drain the ring, read the code objects that new stacks mention;
 *   2. make sure that the records about all code objects freed until then are in, draining again if need be
 *      (see codes.h);
 *   3. hand on what the first drain brought; what the second brought waits for the next round.
 */
#include "capture/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "capture/attach.h"
#include "capture/codes.h"
#include "capture/names.h"
#include "capture/probes.h"
#include "capture/queue.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/map64.h"
#include "lib/text.h"
#include "record/dict.h"
#include "target/proc.h"

#define MAX_STACK_IDS (1u << 20)
#define MAX_THREADS (1u << 16) /* remembered at a time */
#define OPTIMIZER_EXIT (1ULL << 32)
#define LOOK_PAUSE_MIN 50000000ULL /* ns, doubling, while torch.nn is not there to be read */
#define LOOK_PAUSE_MAX 100000000ULL
#define FACTS_EVERY 1000000000ULL /* ns */
#define SETTLE_TRIES 100
#define QUEUE_MIN (64u << 20) /* bytes; twice the ring where that is more */

struct thread {
	uint32_t tid;
	uint32_t number; /* in the dict */
	uint64_t said;	   /* address of the New or Delete right before, to tell a report that repeats it */
	int64_t said_size; /* bytes, negative for Delete, whose bytes we are not told */
	struct mt_rec_mem first; /* the sleepable programs' record of a hit, while both sets run: see is_twin() */
	bool first_open;
};

struct session {
	struct session_opts opts;
	struct target target;
	struct probes *probes;
	struct dict *dict;
	struct facts *facts;
	struct names *names;
	struct queue queue;
	struct map64 *stacks;  /* stack id -> dict stack | OPTIMIZER_EXIT */
	struct map64 *roots;   /* module objects whose calls are reported */
	struct map64 *threads; /* tid -> index */
	struct thread *thread;
	size_t n_threads, cap_threads;
	int image;	    /* proc__image() as it was attached to, negative: could not be opened */
	uint64_t start;	    /* CLOCK_MONOTONIC, ns */
	/* Where the epochs come from: our own, records about freed code objects, such records lost. */
	uint64_t own_epochs, gone_seen, gone_lost;
	uint64_t gone_after, read_until; /* in a round: of gone_seen, those after the epoch at which all had been read */
	uint64_t sure_epoch;		 /* up to which all of them were accounted for */
	uint64_t last_facts, next_look, look_pause; /* ns */
	uint64_t events, steps, lost, lost_said, unknown_stacks, twins;
	uint64_t both_until; /* CLOCK_MONOTONIC, ns: when the sleepable programs were alone */
	bool attached, tried_sleepable, have_codes;
	bool blind; /* the end of code objects is not reported any more: none may be read */
	struct sink *const *sinks;
	size_t n_sinks;
};

static uint64_t monotonic(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

struct session *session__new(pid_t pid, const struct session_opts *opts, struct failure *f)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s) {
		failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
		return NULL;
	}
	s->opts = *opts;
	s->image = -1;
	s->dict = dict__new();
	s->facts = facts__new();
	s->stacks = map64__new();
	s->roots = map64__new();
	s->threads = map64__new();
	if (!s->dict || !s->facts || !s->stacks || !s->roots || !s->threads) {
		failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
		goto fail;
	}
	if (target__open(pid, &s->target, f) || target__look(&s->target, f))
		goto fail;
	return s;
fail:
	session__free(s);
	return NULL;
}

void session__free(struct session *s)
{
	if (!s)
		return;
	probes__free(s->probes);
	names__free(s->names);
	map64__free(s->stacks);
	map64__free(s->roots);
	map64__free(s->threads);
	facts__free(s->facts);
	dict__free(s->dict);
	free(s->thread);
	free(s->queue.buf);
	if (s->image >= 0)
		close(s->image);
	target__close(&s->target);
	free(s);
}

/* The arguments as a JSON array, so that one fact holds them whole. */
static int set_cmdline(struct session *s)
{
	size_t len, used = 0, n;
	const char *args = proc__cmdline(s->target.proc, &len);
	char *text = NULL;
	size_t size;
	struct json *j;
	FILE *out = open_memstream(&text, &size);
	int err;

	if (!out)
		return -ENOMEM;
	j = json__new(out, false);
	if (!j) {
		fclose(out);
		free(text);
		return -ENOMEM;
	}
	json__open_array(j, NULL);
	while (used < len) {
		n = strnlen(args + used, len - used);
		char *arg = strndup(args + used, n);

		json__string(j, NULL, arg);
		free(arg);
		used += n + 1;
	}
	json__close_array(j);
	json__free(j);
	err = fclose(out) ? -errno : 0;
	if (!err) {
		text[strcspn(text, "\n")] = '\0';
		err = facts__set(s->facts, "cmdline", text);
	}
	free(text);
	return err;
}

static void set_link_fact(struct session *s, const char *key, const char *name)
{
	char path[64], buf[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)proc__pid(s->target.proc), name);
	n = readlink(path, buf, sizeof(buf) - 1);
	if (n > 0) {
		buf[n] = '\0';
		facts__set(s->facts, key, buf);
	}
}

/* What the stream says about target and capture, once all is known. */
static int set_facts(struct session *s)
{
	const struct target *t = &s->target;
	int major, minor, micro, err = 0;
	char stdlib[4096], when[40];
	struct utsname un;
	struct timespec ts;
	struct tm tm;

	err |= facts__setf(s->facts, "pid", "%d", (int)proc__pid(t->proc));
	err |= facts__set(s->facts, "comm", proc__comm(t->proc));
	err |= set_cmdline(s);
	set_link_fact(s, "exe", "exe");
	set_link_fact(s, "cwd", "cwd");
	if (t->python) {
		python__version(t->python, &major, &minor, &micro);
		if (micro >= 0)
			err |= facts__setf(s->facts, "python", "%d.%d.%d", major, minor, micro);
		else
			err |= facts__setf(s->facts, "python", "%d.%d", major, minor);
		if (python__stdlib(t->python, stdlib, sizeof(stdlib)) == 0)
			err |= facts__set(s->facts, "stdlib", stdlib);
	}
	if (t->python_why[0])
		err |= facts__set(s->facts, "python_problem", t->python_why);
	err |= facts__set(s->facts, "torch", t->torch.version);
	if (t->torch.cuda_runtime[0])
		err |= facts__set(s->facts, "cuda_runtime", t->torch.cuda_runtime);
	err |= facts__set(s->facts, "version", MEMTRACE_VERSION);
	err |= facts__set(s->facts, "attached_at", s->opts.attached_at_start ? "start" : "live");
	if (uname(&un) == 0)
		err |= facts__set(s->facts, "kernel", un.release);
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	err |= facts__setf(s->facts, "start", "%s.%03ldZ", when, ts.tv_nsec / 1000000);
	return err ? -ENOMEM : 0;
}

/* A hook that is worth having and not worth failing for. */
static void attach_optional(struct session *s, enum hook_id id)
{
	const struct hook *h = &s->target.hooks[id];
	int err;

	if (!h->found) {
		log_debug("%s: not probed: %s", hook__name(id), h->why_not);
		return;
	}
	err = probes__attach(s->probes, proc__pid(s->target.proc), h);
	if (err)
		log_debug("%s: the kernel refused the probe: %s", hook__name(id), strerror(-err));
}

/* What can be found once torch is imported: where `self` of modules is to be had, where an optimizer's step ends. */
static void look_into_torch(struct session *s, uint64_t now)
{
	if (s->have_codes || !s->target.python || !s->target.has_slot || now < s->next_look)
		return;
	s->look_pause = s->look_pause ? s->look_pause * 2 : LOOK_PAUSE_MIN;
	if (s->look_pause > LOOK_PAUSE_MAX)
		s->look_pause = LOOK_PAUSE_MAX;
	s->next_look = now + s->look_pause;
	if (target__look_into_torch(&s->target))
		return;
	probes__set_module_codes(s->probes, s->target.module_codes, s->target.n_module_codes);
	s->own_epochs++;
	s->have_codes = true;
	attach_optional(s, HOOK_SCOPE_END);
}

static int attach_all(struct session *s, struct failure *f)
{
	/* First those that keep what is read sound, then the events; frees before allocations. */
	static const enum hook_id order[] = { HOOK_CODE_GONE, HOOK_CPU_DELETE, HOOK_CPU_NEW, HOOK_OOM,
					      HOOK_REPORT };
	pid_t pid = proc__pid(s->target.proc);
	size_t i;
	int err;

	for (i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		const struct hook *h = &s->target.hooks[order[i]];

		if (!h->found) {
			log_debug("%s: not probed: %s", hook__name(order[i]), h->why_not);
			continue;
		}
		err = probes__attach(s->probes, pid, h);
		if (err == -EPERM || err == -EACCES)
			return failure__set(f, EXIT_NOT_PERMITTED, err,
					    "not permitted to probe PID %d: CAP_PERFMON is needed; run it with sudo",
					    (int)pid);
		if (err == -ESRCH)
			return failure__set(f, EXIT_UNUSABLE, err, "PID %d ended while attaching", (int)pid);
		if (err)
			return failure__set(f, h->required ? EXIT_NOT_PERMITTED : EXIT_FAILED, err,
					    "the kernel refused the probe on %s at %s+%#" PRIx64 ": %s; `memtrace-bpf check -p %d` "
					    "shows what is there",
					    hook__name(h->id), h->file, h->offset, strerror(-err), (int)pid);
	}
	return 0;
}

int session__attach(struct session *s, struct failure *f)
{
	const char *why = "", *bench = getenv("MEMTRACE_BENCH");
	struct probes_opts po = { .ring_bytes = s->opts.ring_bytes };
	int err;

	if (!s->target.torch.found || s->target.hooks_err) {
		err = target__look(&s->target, f);
		if (err)
			return err;
		if (!s->target.torch.found)
			return -EAGAIN;
	}
	if (s->target.hooks_err) {
		const struct hook *h = s->target.hooks;
		int i;

		for (i = 0; i < HOOK_NR - 1 && !(h[i].required && !h[i].found); i++)
			;
		if (*caps__missing())
			return failure__set(f, EXIT_NOT_PERMITTED, -EPERM, "%s: %s needed; run it with sudo",
					    h[i].why_not ? h[i].why_not : "torch's library cannot be looked into",
					    caps__missing());
		return failure__set(f, EXIT_UNUSABLE, s->target.hooks_err,
				    "this PyTorch (%s) does not export %s: %s; versions 1.13 and newer do",
				    s->target.torch.version[0] ? s->target.torch.version : "version unknown", h[i].symbol,
				    h[i].why_not ? h[i].why_not : "not found");
	}
	target__look_into_torch(&s->target); /* what is there already */
	po.py = target__layout(&s->target);
	po.empty = bench && !strcmp(bench, "empty");
	po.sleepable = bench && !strcmp(bench, "sleepable");
	s->probes = probes__load(&po, &why);
	if (!s->probes)
		return failure__set(f, EXIT_NOT_PERMITTED, -errno, "%s (%s)", why, strerror(errno));
	s->names = names__new(s->dict, s->target.has_slot ? s->target.python : NULL);
	if (!s->names || set_facts(s))
		return failure__set(f, EXIT_FAILED, -ENOMEM, "out of memory");
	s->image = proc__image(s->target.proc);
	err = attach_all(s, f);
	if (err)
		return err;
	look_into_torch(s, 0);
	s->start = monotonic();
	s->attached = true;
	if (caps__limit())
		log_debug("capabilities could not be given up: %s", strerror(errno));
	return 0;
}

bool session__attached(const struct session *s)
{
	return s->attached;
}

static int hand_on(struct session *s, const struct event *e)
{
	size_t i;
	int err;

	s->events++;
	for (i = 0; i < s->n_sinks; i++) {
		err = s->sinks[i]->event(s->sinks[i], e);
		if (err)
			return err;
	}
	return 0;
}

static struct thread *thread_of(struct session *s, uint32_t tid)
{
	char name[32] = "";
	struct dict_thread t = { .tid = tid };
	uint64_t i;

	if (map64__get(s->threads, tid, &i))
		return &s->thread[i];
	if (s->n_threads == MAX_THREADS) {
		/* Most of them have ended; who has not is asked for the name again. */
		map64__clear(s->threads);
		s->n_threads = 0;
	}
	if (s->n_threads == s->cap_threads) {
		size_t cap = s->cap_threads ? s->cap_threads * 2 : 64;
		struct thread *v = realloc(s->thread, cap * sizeof(*v));

		if (!v)
			return NULL;
		s->thread = v;
		s->cap_threads = cap;
	}
	if (proc__thread_comm(s->target.proc, tid, name, sizeof(name)))
		name[0] = '\0';
	t.name = names__number(s->names, dict__string(s->dict, name, strlen(name)));
	i = s->n_threads;
	s->thread[i] = (struct thread){ .tid = tid };
	if (t.name != UINT32_MAX)
		s->thread[i].number = names__number(s->names, dict__thread(s->dict, t));
	if (t.name == UINT32_MAX || s->thread[i].number == UINT32_MAX || map64__set(s->threads, tid, i))
		return NULL;
	s->n_threads++;
	return &s->thread[i];
}

static uint64_t since_start(const struct session *s, uint64_t t)
{
	return t > s->start ? t - s->start : 0;
}

/*
 * While the sleepable programs take over, both sets run and a hit is recorded twice in a row on its thread. Theirs
 * comes first: the kernel calls a probe's programs from the youngest to the oldest. So what an older program
 * says right after the sleepable one on the same thread, of the same thing, is dropped; where the first
 * of the two was lost for want of room it is not.
 */
static bool is_twin(struct session *s, struct thread *t, const struct mt_rec_mem *r)
{
	bool same;

	if (r->h.time > s->both_until)
		return false;
	if (r->h.sleepable) {
		t->first = *r;
		t->first_open = true;
		return false;
	}
	same = t->first_open && t->first.h.type == r->h.type && t->first.addr == r->addr && t->first.size == r->size &&
	       t->first.allocated == r->allocated;
	t->first_open = false;
	s->twins += same;
	return same;
}

/* The dict's stack for an event; takes the walk's outcome along when the frames never came. */
static uint32_t event_stack(struct session *s, uint64_t id, uint8_t *walk, bool *optimizer_exit)
{
	uint64_t v;

	if (optimizer_exit)
		*optimizer_exit = false;
	if (!id)
		return 0;
	if (!map64__get(s->stacks, id, &v)) {
		s->unknown_stacks++;
		*walk = MT_WALK_LOST;
		return 0;
	}
	if (optimizer_exit)
		*optimizer_exit = v & OPTIMIZER_EXIT;
	if (!(uint32_t)v)
		*walk = MT_WALK_LOST; /* the dict has no room for it */
	return (uint32_t)v;
}

/* With its profiler on, PyTorch reports CPU memory a second time, right after New and Delete. */
static bool repeats_cpu(struct thread *t, const struct mt_rec_mem *r)
{
	bool same = t->said && t->said == r->addr && (r->size == t->said_size || (r->size < 0 && t->said_size < 0));

	t->said = 0;
	return same;
}

static int on_mem(struct session *s, const struct mt_rec_mem *r)
{
	struct thread *t = thread_of(s, r->h.tid);
	struct event e = { .walk = r->h.walk, .addr = r->addr };

	if (!t)
		return -ENOMEM;
	if (is_twin(s, t, r))
		return 0;
	if (!r->size && r->h.type != MT_REC_OOM)
		return 0; /* an empty tensor: no memory */
	if (r->h.type != MT_REC_CPU_NEW)
		e.device = (struct device){ .type = r->device & 0xff, .index = r->device >> 8 };
	if (e.device.type == DEVICE_CPU) {
		e.device.index = 0;
		if (r->h.type == MT_REC_REPORT && repeats_cpu(t, r))
			return 0;
		if (r->h.type == MT_REC_CPU_NEW) {
			t->said = r->addr;
			t->said_size = r->size;
		}
	}
	e.totals = e.device.type != DEVICE_CPU;
	e.kind = r->h.type == MT_REC_OOM ? EVENT_OOM : r->size < 0 ? EVENT_FREE : EVENT_ALLOC;
	e.size = r->size < 0 && e.kind == EVENT_FREE ? -(uint64_t)r->size : (uint64_t)r->size;
	e.thread = t->number;
	e.time = since_start(s, r->h.time);
	e.allocated = e.totals ? r->allocated : 0;
	e.reserved = e.totals ? r->reserved : 0;
	if (e.kind != EVENT_FREE)
		e.stack = event_stack(s, r->stack, &e.walk, NULL);
	return hand_on(s, &e);
}

static int on_cpu_delete(struct session *s, const struct mt_rec_free *r)
{
	struct thread *t = thread_of(s, r->h.tid);
	struct event e = { .kind = EVENT_FREE, .addr = r->addr };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	t->said = r->addr;
	t->said_size = -1;
	e.thread = t->number;
	e.time = since_start(s, r->h.time);
	return hand_on(s, &e);
}

static int on_mark(struct session *s, const struct mt_rec_mark *r)
{
	struct thread *t = thread_of(s, r->h.tid);
	struct event e = { .time = since_start(s, r->h.time), .walk = r->h.walk };
	struct mt_rec_mem as_mem = { .h = r->h }; /* not the stack: the older program may not have got all of it */
	uint64_t module;
	bool step;

	if (!t)
		return -ENOMEM;
	e.thread = t->number;
	if (r->h.type == MT_REC_MODULE_CALL) {
		if (!map64__get(s->roots, r->self, &module))
			return 0;
		e.kind = EVENT_CALL;
		e.module = names__root(s->names, r->self);
		return hand_on(s, &e);
	}
	if (is_twin(s, t, &as_mem))
		return 0;
	e.stack = event_stack(s, r->stack, &e.walk, &step);
	if (!step)
		return 0;
	e.kind = EVENT_STEP;
	s->steps++;
	return hand_on(s, &e);
}

/* Those in use come back with their stacks, which are all sent again. */
static void forget_roots(struct session *s)
{
	probes__clear_roots(s->probes);
	map64__clear(s->roots);
	probes__bump_epoch(s->probes);
	s->own_epochs++;
}

/* A root module was seen: from now on its calls are reported. */
static void add_root(struct session *s, uint64_t self)
{
	uint64_t v;

	if (map64__get(s->roots, self, &v))
		return;
	if (probes__add_root(s->probes, self)) {
		/* No room: most are of models that are gone. */
		forget_roots(s);
		if (probes__add_root(s->probes, self))
			return;
	}
	map64__set(s->roots, self, 1);
	if (!probes__attached(s->probes, HOOK_MODULE_CALL))
		attach_optional(s, HOOK_MODULE_CALL);
}

static int on_stack(struct session *s, const struct mt_rec_stack *r, size_t len)
{
	struct named_stack ns;
	int err;

	if (r->n > MT_MAX_ENTRIES || len < sizeof(*r) + r->n * sizeof(struct mt_frame))
		return -EBADMSG;
	err = names__stack(s->names, r, &ns);
	if (err)
		return err;
	if (map64__count(s->stacks) >= MAX_STACK_IDS) {
		/* Ids of past epochs have piled up. Everything that is still in use is sent again. */
		map64__clear(s->stacks);
		probes__bump_epoch(s->probes);
		s->own_epochs++;
	}
	if (ns.root)
		add_root(s, ns.root);
	return map64__set(s->stacks, r->stack, ns.stack | (ns.optimizer_exit ? OPTIMIZER_EXIT : 0));
}

static int on_gone(struct session *s, const struct mt_rec_gone *r)
{
	codes__passed(names__codes(s->names), r->code, r->epoch);
	return 0;
}

static int on_record(struct session *s, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;

	switch (h->type) {
	case MT_REC_REPORT:
	case MT_REC_OOM:
	case MT_REC_CPU_NEW:
		return on_mem(s, rec);
	case MT_REC_CPU_DELETE:
		return on_cpu_delete(s, rec);
	case MT_REC_STACK:
		return on_stack(s, rec, len);
	case MT_REC_CODE_GONE:
		return on_gone(s, rec);
	case MT_REC_SCOPE_END:
	case MT_REC_MODULE_CALL:
		return on_mark(s, rec);
	}
	return -EBADMSG;
}

static int enqueue(void *ctx, const void *rec, size_t len)
{
	const struct mt_rec_gone *gone = rec;
	struct session *s = ctx;
	int err = queue__push(&s->queue, rec, len);

	if (!err && gone->h.type == MT_REC_CODE_GONE) {
		s->gone_seen++;
		s->gone_after += gone->epoch > s->read_until;
		err = codes__gone(names__codes(s->names), gone->code, gone->epoch);
	}
	if (!err && s->queue.len > QUEUE_MIN && s->queue.len / 2 > s->opts.ring_bytes)
		return -EAGAIN;
	return err;
}

/*
 * A target that fills the ring faster than it is drained must not keep us draining, nor our memory growing: what is not
 * taken stays in the ring, where losses are counted.
 */
static int consume(struct session *s)
{
	int err = probes__consume(s->probes, enqueue, s);

	return err == -EAGAIN ? 0 : err;
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
		err = names__prefetch(s->names, (const struct mt_rec_stack *)h);
		if (err)
			return err;
	}
	return 0;
}

/* Have records about freed code objects been lost? Then nothing is sure from the last sure epoch up to now. */
static int look_for_losses(struct session *s, bool *lost)
{
	uint64_t c[MT_CNT_NR];
	int err = probes__counters(s->probes, c);

	if (err)
		return err;
	*lost = c[MT_CNT_RING_LOST + MT_REC_CODE_GONE] != s->gone_lost;
	if (!*lost)
		return 0;
	s->gone_lost = c[MT_CNT_RING_LOST + MT_REC_CODE_GONE];
	codes__drop_new(names__codes(s->names));
	codes__lost(names__codes(s->names), s->sure_epoch, probes__epoch(s->probes));
	return 0;
}

/*
 * Does what was read in this round stand? Yes if every code object that was freed before the reading ended has
 * been told of. One that is being freed at this very moment takes microseconds to be.
 */
static int settle(struct session *s)
{
	struct codes *codes = names__codes(s->names);
	bool lost = false;
	int tries, err;

	s->gone_after = 0;
	s->read_until = probes__epoch(s->probes);
	codes__read_until(codes, s->read_until);
	for (tries = 0; tries < SETTLE_TRIES && !lost; tries++) {
		if (s->own_epochs + s->gone_seen - s->gone_after + s->gone_lost >= s->read_until) {
			s->sure_epoch = s->read_until;
			codes__confirm(codes);
			return 0;
		}
		err = consume(s);
		if (err >= 0)
			err = look_for_losses(s, &lost);
		if (err < 0)
			return err;
	}
	codes__drop_new(codes);
	return 0;
}

/* One round: see the top of this file. */
static int one_round(struct session *s)
{
	size_t end, pos = 0, len;
	const void *rec;
	int err;

	s->read_until = UINT64_MAX;
	err = consume(s);
	if (err >= 0 && !s->blind)
		err = prefetch(s);
	end = s->queue.len;
	if (err >= 0 && !s->blind)
		err = settle(s);
	while (err >= 0 && (rec = queue__at(&s->queue, &pos, end, &len)))
		err = on_record(s, rec, len);
	queue__drop(&s->queue, pos);
	return err < 0 ? err : 0;
}

static uint64_t sum_lost(const uint64_t c[MT_CNT_NR])
{
	static const unsigned what[] = { MT_REC_REPORT, MT_REC_OOM, MT_REC_CPU_NEW, MT_REC_CPU_DELETE };
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		n += c[MT_CNT_RING_LOST + what[i]];
	return n;
}

static void set_counter_facts(struct session *s, const uint64_t c[MT_CNT_NR])
{
	static const char *const types[] = { [MT_REC_REPORT] = "report",	   [MT_REC_OOM] = "oom",
					     [MT_REC_CPU_NEW] = "cpu_new",	   [MT_REC_CPU_DELETE] = "cpu_delete",
					     [MT_REC_STACK] = "stack",		   [MT_REC_CODE_GONE] = "code_gone",
					     [MT_REC_SCOPE_END] = "scope_end",	   [MT_REC_MODULE_CALL] = "module_call" };
	static const char *const walks[] = { "ok",	    "off",	   "no_thread",	  "no_frame", "truncated",
					     "fault_thread", "fault_frame", "fault_self", "busy",     "lost" };
	struct names_stats ns = names__stats(s->names);
	char key[64];
	size_t i;

	_Static_assert(sizeof(walks) / sizeof(walks[0]) == MT_WALK_NR, "a name for every outcome");
	for (i = 1; i < sizeof(types) / sizeof(types[0]); i++) {
		snprintf(key, sizeof(key), "counter.hits.%s", types[i]);
		if (c[MT_CNT_HIT + i])
			facts__setf(s->facts, key, "%" PRIu64, c[MT_CNT_HIT + i]);
		snprintf(key, sizeof(key), "counter.lost.%s", types[i]);
		if (c[MT_CNT_RING_LOST + i])
			facts__setf(s->facts, key, "%" PRIu64, c[MT_CNT_RING_LOST + i]);
	}
	for (i = 0; i < MT_WALK_NR; i++) {
		snprintf(key, sizeof(key), "counter.walks.%s", walks[i]);
		if (c[MT_CNT_WALK + i])
			facts__setf(s->facts, key, "%" PRIu64, c[MT_CNT_WALK + i]);
	}
	if (s->twins)
		facts__setf(s->facts, "counter.twins", "%" PRIu64, s->twins);
	if (c[MT_CNT_FAULT_RETRIED])
		facts__setf(s->facts, "counter.faults_retried", "%" PRIu64, c[MT_CNT_FAULT_RETRIED]);
	facts__setf(s->facts, "counter.frames", "%" PRIu64, ns.frames);
	facts__setf(s->facts, "counter.frames_unreadable", "%" PRIu64, ns.unreadable);
	facts__setf(s->facts, "counter.frames_gone", "%" PRIu64, ns.gone);
	facts__setf(s->facts, "counter.modules_unnamed", "%" PRIu64, ns.unnamed_modules);
	facts__setf(s->facts, "counter.code_objects", "%" PRIu64, ns.codes);
	if (ns.no_room)
		facts__setf(s->facts, "counter.names_no_room", "%" PRIu64, ns.no_room);
	facts__setf(s->facts, "counter.stacks_unknown", "%" PRIu64, s->unknown_stacks);
	facts__setf(s->facts, "sleepable", "%d", probes__sleepable(s->probes));
}

static int tell_losses(struct session *s, uint64_t now)
{
	struct event e = { .kind = EVENT_LOST, .time = now };

	if (s->lost == s->lost_said)
		return 0;
	e.size = s->lost - s->lost_said;
	s->lost_said = s->lost;
	return hand_on(s, &e);
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
	s->both_until = monotonic();
	if (err)
		log_warn("a page of the target is not in memory, and the programs that could wait for it were "
			 "refused (%s): some stacks stay short",
			 strerror(-err));
	else
		log_debug("a page of the target was not in memory: the sleepable programs take over");
}

static int housekeeping(struct session *s, uint64_t now)
{
	uint64_t c[MT_CNT_NR];
	int err = probes__counters(s->probes, c);

	if (err)
		return err;
	s->lost = sum_lost(c);
	err = tell_losses(s, now);
	if (err)
		return err;
	maybe_go_sleepable(s, c);
	look_into_torch(s, now);
	if (names__recheck(s->names, now))
		forget_roots(s);
	if (now - s->last_facts >= FACTS_EVERY || !s->last_facts) {
		s->last_facts = now;
		facts__setf(s->facts, "duration_ns", "%" PRIu64, now);
		facts__setf(s->facts, "events", "%" PRIu64, s->events);
		facts__setf(s->facts, "lost", "%" PRIu64, s->lost);
		set_counter_facts(s, c);
	}
	return 0;
}

int session__pump(struct session *s, struct sink *const *sinks, size_t n_sinks)
{
	uint64_t now = session__now(s);
	size_t i;
	int err;

	s->sinks = sinks;
	s->n_sinks = n_sinks;
	err = one_round(s);
	if (!err)
		err = housekeeping(s, now);
	for (i = 0; i < n_sinks && !err; i++)
		err = sinks[i]->tick ? sinks[i]->tick(sinks[i], now) : 0;
	return err;
}

int session__finish(struct session *s, struct sink *const *sinks, size_t n_sinks, const char *stop_reason)
{
	uint64_t now = session__now(s);
	int err = 0, rounds = 0;

	if (!s->attached)
		return 0;
	probes__stop(s->probes);
	err = session__pump(s, sinks, n_sinks);
	probes__detach(s->probes);
	log_debug("detached after %.1f ms", (session__now(s) - now) / 1e6);
	s->blind = true;
	s->last_facts = 0;
	facts__set(s->facts, "stop_reason", stop_reason);
	do {
		err = err ? err : session__pump(s, sinks, n_sinks);
	} while (!err && (s->queue.len || rounds++ < 1));
	facts__setf(s->facts, "duration_ns", "%" PRIu64, now);
	facts__setf(s->facts, "events", "%" PRIu64, s->events);
	s->attached = false;
	return err;
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
	return s->start ? monotonic() - s->start : 0;
}

uint64_t session__events(const struct session *s)
{
	return s->events;
}

uint64_t session__lost(const struct session *s)
{
	return s->lost;
}

uint64_t session__steps(const struct session *s)
{
	return s->steps;
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
