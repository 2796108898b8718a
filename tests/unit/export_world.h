/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the tests of exports: runs events through a model into a format, in memory. */
#include "unit/cmocka.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "unit/synthetic.h"

struct world {
	struct sink sink;
	struct dict *d;
	struct facts *f;
	struct model *m;
	struct model_opts opts;
	struct export_ctx ctx;
	const struct export_format *format;
	void *state;
	char *text;
	size_t size;
	uint64_t last;
	struct model *ahead; /* NULL: none */
	struct dict *ahead_dict;
	struct facts *ahead_facts;
};

static inline int on_event(struct sink *s, const struct event *e)
{
	struct world *w = (struct world *)s;
	int err = 0;

	if (w->format->event)
		err = w->format->event(&w->ctx, w->state, e);
	w->last = e->time;
	return err ? err : model__event(w->m, e);
}

static inline void world__prepare(struct world *w, const char *format, enum moment at,
				  const char *moment)
{
	w->sink.event = on_event;
	w->opts.at = at;
	w->d = dict__new();
	w->f = facts__new();
	w->m = model__new(w->d, w->f, &w->opts);
	w->format = export__find(format);
	assert_non_null(w->d);
	assert_non_null(w->f);
	assert_non_null(w->m);
	assert_non_null(w->format);
	w->ctx = (struct export_ctx){
		.out = open_memstream(&w->text, &w->size),
		.dict = w->d,
		.facts = w->f,
		.model = w->m,
		.device = -1,
		.name = "run",
		.moment = moment,
	};
	w->ctx.ahead = w->ahead;
	if (w->format->begin)
		assert_int_equal(w->format->begin(&w->ctx, &w->state), 0);
}

static inline void world__open(struct world *w, const char *format, enum moment at,
			       const char *moment)
{
	memset(w, 0, sizeof(*w));
	world__prepare(w, format, at, moment);
}

/* Finishes the model and writes the document into w->text. Returns the result of end(). */
static inline int world__end(struct world *w)
{
	int err;

	w->ctx.duration = w->last;
	model__finish(w->m, w->last);
	err = w->format->end(&w->ctx, w->state);
	fflush(w->ctx.out);
	return err;
}

static inline void world__close(struct world *w)
{
	if (w->format->release)
		w->format->release(w->state);
	fclose(w->ctx.out);
	free(w->text);
	model__free(w->m);
	model__free(w->ahead);
	facts__free(w->f);
	facts__free(w->ahead_facts);
	dict__free(w->d);
	dict__free(w->ahead_dict);
}

static inline void world__run(struct world *w, struct synthetic_opts opts)
{
	uint64_t duration;

	assert_int_equal(synthetic__run(w->d, w->f, &w->sink, opts, &duration), 0);
}

struct feed {
	struct sink sink;
	struct model *m;
};

static inline int feed_event(struct sink *s, const struct event *e)
{
	return model__event(((struct feed *)s)->m, e);
}

/* Opens a world with a model that has already seen the whole synthetic capture. */
static inline void world__open_ahead(struct world *w, const char *format, enum moment at,
				     const char *moment, struct synthetic_opts opts)
{
	struct feed feed = { .sink = { .event = feed_event } };
	uint64_t duration;

	memset(w, 0, sizeof(*w));
	w->ahead_dict = dict__new();
	w->ahead_facts = facts__new();
	w->opts.at = at;
	feed.m = w->ahead = model__new(w->ahead_dict, w->ahead_facts, &w->opts);
	assert_non_null(w->ahead);
	assert_int_equal(synthetic__run(w->ahead_dict, w->ahead_facts, &feed.sink, opts, &duration),
			 0);
	model__finish(w->ahead, duration);
	world__prepare(w, format, at, moment);
	w->ctx.ahead_duration = duration;
}

static const struct synthetic_opts small = { .layers = 2, .steps = 3, .cpu = true };

static inline json_t *parse(const char *text, size_t size)
{
	json_error_t error;
	json_t *j = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);

	if (!j)
		print_error("line %d column %d: %s\n", error.line, error.column, error.text);
	assert_non_null(j);
	return j;
}

static inline void send(struct world *w, struct event e)
{
	static uint64_t now;

	e.time = now += 1000;
	assert_int_equal(w->sink.event(&w->sink, &e), 0);
}

static inline struct event alloc_of(uint32_t stack, uint8_t walk, uint64_t addr, uint64_t size)
{
	return (struct event){
		.kind = EVENT_ALLOC, .walk = walk, .stack = stack, .addr = addr, .size = size
	};
}
