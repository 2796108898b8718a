/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What blocks are for, as the program's own objects say it: read at attach, after the first
 * optimizer steps, now and then, and at the end. On a thread of its own, since what stacks mention
 * has to be read at once, and a reading takes a hundred times as long; it shares nothing with us
 * until it is over. All events up to its end are handed on before what was read.
 */
#include "capture/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/autograd.h"
#include "capture/cuda_calls.h"
#include "capture/decoder.h"
#include "capture/symbolizer.h"
#include "census/census.h"
#include "lib/map64.h"
#include "log/log.h"
#include "process/proc.h"
#include "record/dict.h"
#include "torch/pytensor.h"

#define FIRST_WITHIN 5000000000ULL /* ns that a reading may take, at attach, */
#define LAST_WITHIN 2000000000ULL  /* at the end, */
#define OTHER_WITHIN 1000000000ULL /* and in between */
#define EVERY 10000000000ULL	   /* ns between two */
#define SHARE 50		   /* of the time that reading may take: one in so many */
#define OPEN_EVERY 250000000ULL	   /* ns, while there is no torch, or no tensor yet */
#define STEPS_READ                                                                                 \
	2 /* a reading after each of the first steps: gradients, then the optimizer's state, are   \
	     new */
#define DRAINS 64 /* rounds until the ring was empty once */

#define FREED_MAX (1u << 20) /* blocks freed during one reading */

/*
 * Objects die and others take their place, in the same memory: the parameter that was read is there
 * as long as its memory was not freed.
 */
struct params {
	struct map64 *addrs;	/* of parameters' memory, as of the last reading */
	struct map64 *gone;	/* freed since that began: some of these, or any */
	struct map64 *during;	/* freed since the reading now under way began */
	bool lost, lost_during; /* or it may have been, and nobody saw it */
	bool too_many;		/* were freed during the reading */
};

/* What the thread has for itself until it is done. */
struct job {
	struct census *census;
	struct census_opts opts;
	struct census_state state;
	const char *why;
	int err;
	atomic_bool cancel, done;
};

struct session_census {
	struct census *census;
	struct job job;
	pthread_t thread;
	bool running, first;	  /* a reading; the one at attach */
	struct census_state last; /* what was read of parameters */
	struct params params;
	uint64_t next;	     /* ns since the start */
	uint64_t steps_read; /* optimizer steps that there were at the last reading */
	unsigned readings, torn;
	bool have_last;
	bool first_over;  /* the reading at attach was made, or there is nothing to be read by it */
	bool refused;	  /* this Python cannot be read, or the last reading was made */
	const char *said; /* why the last one failed, as it was logged */
};

static void *run(void *ctx)
{
	struct job *j = ctx;

	j->err = census__read(j->census, &j->opts, &j->state, &j->why);
	atomic_store(&j->done, true);
	return NULL;
}

static bool is_cancelled(void *ctx)
{
	struct job *j = ctx;

	return atomic_load(&j->cancel);
}

static void params__free(struct params *p)
{
	map64__free(p->addrs);
	map64__free(p->gone);
	map64__free(p->during);
	memset(p, 0, sizeof(*p));
}

/* A reading begins. */
static int params__begin(struct params *p)
{
	map64__free(p->during);
	p->during = map64__new();
	p->lost_during = p->too_many = false;
	return p->during ? 0 : -ENOMEM;
}

/* It failed. */
static void params__drop(struct params *p)
{
	map64__free(p->during);
	p->during = NULL;
}

/* What it has read counts from now on. 0 or -ENOMEM. */
static int params__take(struct params *p, const struct census_state *st)
{
	int err = 0;

	map64__free(p->addrs);
	map64__free(p->gone);
	p->gone = p->during;
	p->lost = p->lost_during;
	p->during = NULL;
	p->addrs = map64__new();
	if (!p->addrs)
		return -ENOMEM;
	for (size_t i = 0; !err && i < st->ntensors; i++)
		if (st->tensors[i].kind == CENSUS_PARAMETER)
			err = map64__set(p->addrs, st->tensors[i].addr, 1);
	return err;
}

static int params__see(struct params *p, const struct event *e)
{
	uint64_t one;
	int err = 0;

	if (e->kind == EVENT_LOST)
		p->lost = p->lost_during = true;
	if (e->kind != EVENT_FREE)
		return 0;
	if (p->during && map64__count(p->during) >= FREED_MAX)
		p->lost_during = p->too_many = true;
	else if (p->during)
		err = map64__set(p->during, e->addr, 1);
	if (!err && p->addrs && p->gone && map64__get(p->addrs, e->addr, &one))
		err = map64__set(p->gone, e->addr, 1);
	return err;
}

/*
 * Of what the reading has found: it was there all along, and still is. Where events were lost its
 * end may be among them, as that of any other block.
 */
static bool params__stayed(const struct params *p, uint64_t addr)
{
	uint64_t one;

	return p->during && !p->too_many && !map64__get(p->during, addr, &one);
}

static bool params__holds(const struct params *p, const struct census_tensor *t)
{
	uint64_t one;

	return t->allocated && p->gone && !p->lost && !map64__get(p->gone, t->addr, &one);
}

int session__census_sees(struct session *s, const struct event *e)
{
	return s->census ? params__see(&s->census->params, e) : 0;
}

void session__close_census(struct session *s)
{
	struct session_census *c = s->census;

	if (!c)
		return;
	if (c->running) {
		atomic_store(&c->job.cancel, true);
		pthread_join(c->thread, NULL);
		if (!c->job.err)
			census_state__free(&c->job.state);
	}
	census_state__free(&c->last);
	params__free(&c->params);
	census__free(c->census);
	free(c);
	s->census = NULL;
}

int session__open_census(struct session *s)
{
	if (s->opts.no_census)
		return 0;
	s->census = calloc(1, sizeof(*s->census));
	if (!s->census)
		return -ENOMEM;
	/* From the start on nothing was there before, and nothing is there for a while. */
	s->census->first_over = s->decoder->from_start || s->decoder->forked;
	/* Of what it was forked with its parent's recording tells, and most that are forked are
	 * workers that do not last. */
	if (s->decoder->forked)
		s->census->next = EVERY;
	if (s->decoder->autograd)
		autograd__set_parameters(s->decoder, session__parameter, s);
	return 0;
}

static enum category category_of(enum census_kind k)
{
	switch (k) {
	case CENSUS_PARAMETER:
		return CATEGORY_PARAMETER;
	case CENSUS_BUFFER:
		return CATEGORY_BUFFER;
	case CENSUS_GRADIENT:
		return CATEGORY_GRADIENT;
	case CENSUS_OPTIMIZER:
		return CATEGORY_OPTIMIZER_STATE;
	case CENSUS_ACTIVATION:
		return CATEGORY_ACTIVATION;
	default:
		return CATEGORY_UNKNOWN;
	}
}

static uint32_t number(struct session *s, const char *text)
{
	return *text ? symbolizer__number(s->decoder->names,
					  dict__string(s->dict, text, strlen(text)))
		     : 0;
}

/* Name and module in the dict. 0 or -ENOMEM. */
static int intern(struct session *s, const struct census_tensor *t, uint32_t *name,
		  uint32_t *module)
{
	struct dict_module m;

	*module = 0;
	*name = number(s, t->name);
	if (*name == UINT32_MAX)
		return -ENOMEM;
	if (!*t->cls)
		return 0;
	m.name = symbolizer__number(s->decoder->names,
				    dict__string(s->dict, t->module, strlen(t->module)));
	m.cls = symbolizer__number(s->decoder->names,
				   dict__string(s->dict, t->cls, strlen(t->cls)));
	m.root = symbolizer__number(s->decoder->names,
				    dict__string(s->dict, t->root, strlen(t->root)));
	if (m.name == UINT32_MAX || m.cls == UINT32_MAX || m.root == UINT32_MAX)
		return -ENOMEM;
	*module = symbolizer__number(s->decoder->names, dict__module(s->dict, m));
	return *module == UINT32_MAX ? -ENOMEM : 0;
}

static bool is_traced(uint8_t device_type)
{
	return device_type == DEVICE_CPU || device_type == DEVICE_CUDA;
}

/*
 * In the reading at attach, what no event has told of was there before. But a block that came after
 * attaching may have been read and be gone by now, and then nothing is known of it any more either.
 */
static bool was_before(const struct session *s, const struct census_tensor *t, bool first)
{
	/* Memory that no allocator of ours handed out was not there "before attach": its end is not
	 * seen. */
	return first && t->allocated && params__stayed(&s->census->params, t->addr);
}

/* TENSOR_ITEM */
static uint8_t item_of(uint8_t dtype)
{
	unsigned bits = pytensor__dtype_bits(dtype);

	for (uint8_t i = 1; i <= 5; i++)
		if (bits == 8U << (i - 1))
			return i;
	return 0;
}

static int tell_tensor(struct session *s, const struct census_tensor *t, uint64_t begin, bool first)
{
	struct event e = {
		.kind = EVENT_TENSOR,
		.device = { t->device_type, t->device_index },
		.time = begin,
		.addr = t->addr,
		.size = t->size,
		.category = category_of(t->kind),
		.flags = was_before(s, t, first) ? CENSUS_FIRST : 0,
	};
	int err;

	/* Says nothing: there is a tensor. */
	if (!*t->name && t->kind == CENSUS_OTHER && !e.flags)
		return 0;
	e.flags |= item_of(t->dtype);
	err = intern(s, t, &e.name, &e.module);
	return err ? err : session__dispatch(s, &e);
}

static int tell(struct session *s, const struct census_state *st, bool first)
{
	/* Before the start of the capture there is no time. */
	uint64_t begin = st->begin > s->decoder->start ? st->begin - s->decoder->start : 0,
		 end = session__now(s);
	int err = 0;

	for (size_t i = 0; !err && i < st->ntensors; i++)
		if (is_traced(st->tensors[i].device_type))
			err = tell_tensor(s, &st->tensors[i], begin, first);
	for (size_t i = 0; !err && i < st->ndevices; i++) {
		const struct census_device *d = &st->devices[i];
		struct event e = {
			.kind = EVENT_CENSUS,
			.device = { d->type, d->index },
			.time = end,
			.flags = (first ? CENSUS_FIRST : 0) |
				 (st->torn || st->torn_lists ? CENSUS_TORN : 0),
		};

		for (size_t k = 0; k < CENSUS_KINDS; k++)
			e.size += d->bytes[k];
		if (d->type == DEVICE_CUDA && !st->torn && !st->torn_lists && !st->unreadable)
			cuda_calls__tensors(s->decoder, d->index, e.size);
		if (is_traced(d->type))
			err = session__dispatch(s, &e);
	}
	return err;
}

/* Hands on all that had happened when this was called. -EAGAIN: there is too much of it. */
static int drain(struct session *s)
{
	int err = 0;

	for (int i = 0; !err && i < DRAINS; i++) {
		err = session__round(s);
		if (!err && !s->behind)
			return 0;
	}
	return err ? err : -EAGAIN;
}

static void say_failed(struct session *s, int err, const char *why)
{
	struct session_census *c = s->census;

	if (c->said == why)
		return;
	c->said = why;
	log_debug("what blocks are for was not read: %s (%s)", why, strerror(-err));
}

static void start(struct session *s, bool all, bool first, uint64_t limit)
{
	struct session_census *c = s->census;
	sigset_t every, old;
	int err;

	memset(&c->job, 0, sizeof(c->job));
	c->job.census = c->census;
	c->job.opts = (struct census_opts){
		.named_only = !all, .limit_ns = limit, .cancelled = is_cancelled, .ctx = &c->job
	};
	c->job.why = "";
	c->first = first;
	c->steps_read = s->decoder->steps;
	/* Signals are for the thread that waits for them. */
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	err = -params__begin(&c->params);
	if (!err)
		err = pthread_create(&c->thread, NULL, run, &c->job);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	c->running = !err;
	if (err) {
		params__drop(&c->params);
		say_failed(s, -err, "there is no thread to be had");
		c->next = session__now(s) + EVERY;
	}
}

static int take_result(struct session *s, const struct census_state *st)
{
	struct session_census *c = s->census;
	int err;

	log_debug("%zu storages named in %.1f ms, %" PRIu64 " objects%s%s", st->ntensors,
		  (double)(st->end - st->begin) / 1e6, st->objects,
		  st->torn_lists ? ", parts kept changing" : "", c->first ? ", at attach" : "");
	c->readings++;
	c->torn += st->torn || st->torn_lists;
	census_state__free(&c->last);
	c->last = *st;
	c->have_last = c->first_over = true;
	facts__setf(s->facts, "census", "%u", c->readings);
	facts__setf(s->facts, "counter.census.torn", "%u", c->torn);
	err = params__take(&c->params, &c->last);
	census_state__keep_params(&c->last);
	return err;
}

/* A reading is over. 0, also where nothing could be read; -ENOMEM, or the error of a sink. */
static int finish(struct session *s)
{
	struct session_census *c = s->census;
	struct census_state *st = &c->job.state;
	uint64_t took, pause;
	int err;

	pthread_join(c->thread, NULL);
	c->running = false;
	if (c->job.err) {
		params__drop(&c->params);
		say_failed(s, c->job.err, c->job.why);
		pause = c->job.err == -EAGAIN ? EVERY / 5 : EVERY;
		c->next = session__now(s) + pause;
		/* Only what concerns ourselves ends the capture; the ring and the sinks say the
		 * rest by themselves. */
		return c->job.err == -ENOMEM ? -ENOMEM : 0;
	}
	took = st->end - st->begin;
	c->next = session__now(s) + (took * SHARE > EVERY ? took * SHARE : EVERY);
	err = drain(s);
	/* After the steps that were asked for nothing is handed on: what is told now would be of
	 * blocks that came since. */
	if (!err && !s->decoder->cut)
		err = tell(s, st, c->first);
	if (!err && !s->decoder->cut)
		return take_result(s, st);
	params__drop(&c->params);
	census_state__free(st);
	return err == -EAGAIN ? 0 : err;
}

/* Is there something that can be read? */
static bool ready(struct session *s, uint64_t now)
{
	struct session_census *c = s->census;
	const char *why = "";

	if (!c || c->refused || !s->target.python)
		return false;
	if (c->census)
		return true;
	if (now < c->next)
		return false;
	c->census = census__open(s->target.python, &why);
	if (c->census)
		return true;
	c->next = now + OPEN_EVERY;
	/* torch is on its way. */
	if (errno == ENOENT)
		return false;
	c->refused = errno == ENOTSUP;
	say_failed(s, -errno, why);
	if (c->refused)
		facts__set(s->facts, "census_problem", why);
	return false;
}

int session__pump_census(struct session *s, uint64_t now)
{
	struct session_census *c = s->census;
	bool first;

	if (c && c->running)
		return atomic_load(&c->job.done) ? finish(s) : 0;
	if (!session__state_known(s) || s->decoder->cut || !ready(s, now))
		return 0;
	if (now < c->next && (s->decoder->steps == c->steps_read || c->steps_read >= STEPS_READ))
		return 0;
	first = !c->first_over;
	start(s, first, first, first ? FIRST_WITHIN : OTHER_WITHIN);
	return 0;
}

/* Waits for the reading under way; the ring is drained meanwhile. */
static int await(struct session *s)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	int err = 0;

	while (!err && !atomic_load(&s->census->job.done)) {
		err = session__round(s);
		nanosleep(&pause, NULL);
	}
	return err ? err : finish(s);
}

int session__last_census(struct session *s)
{
	struct session_census *c = s->census;
	int err = 0;

	if (c && c->running)
		err = await(s);
	if (c && s->decoder->forked && !c->have_last)
		return err; /* see session__open_census() */
	if (err || !session__state_known(s) || s->decoder->cut || !proc__alive(s->target.proc) ||
	    !ready(s, UINT64_MAX))
		return err;
	start(s, true, !c->first_over, LAST_WITHIN);
	c->refused = true;
	return c->running ? await(s) : 0;
}

bool session__parameter(void *ctx, uint64_t tensor, uint32_t *name, uint32_t *module)
{
	struct session *s = ctx;
	const struct census_tensor *t;

	if (!s->census || !s->census->have_last)
		return false;
	t = census__param(&s->census->last, s->target.proc, tensor);
	if (!t || t->kind != CENSUS_PARAMETER || !*t->name || !params__holds(&s->census->params, t))
		return false;
	return intern(s, t, name, module) == 0 && *name;
}
