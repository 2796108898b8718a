/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/heap/scopes.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "memtrace.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/device.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "record/dict.h"

/* ---- the functions ---- */

int model__add_scope(struct model *m, const char *function)
{
	struct scopes *s = &m->scopes;

	if (!facts__is_scope(function))
		return -EINVAL;
	for (uint32_t i = 0; i < s->nfunctions; i++)
		if (!strcmp(s->functions[i], function))
			return 0;
	if (s->nfunctions == STREAM_SCOPES)
		return -E2BIG;
	s->functions[s->nfunctions] = strdup(function);
	if (!s->functions[s->nfunctions])
		return -ENOMEM;
	s->nfunctions++;
	return 0;
}

/* Adds the functions that the recording names. Leaves out names that are no functions' names, and
 * those after the STREAM_SCOPES-th: the file is untrusted. Returns 0 or -ENOMEM. */
static int load_fact(struct model *m)
{
	const char *fact = facts__get(m->attribution->facts, "scopes");
	json_t *list = fact ? json_loads(fact, JSON_REJECT_DUPLICATES, NULL) : NULL, *name;
	size_t i;
	int err = 0;

	m->scopes.loaded = true;
	json_array_foreach(list, i, name) {
		if (json_is_string(name))
			err = model__add_scope(m, json_string_value(name));
		if (err == -ENOMEM || i == STREAM_SCOPES)
			break;
	}
	json_decref(list);
	return err == -ENOMEM ? err : 0;
}

const char *model__scope_function(const struct model *m, size_t i, bool *found)
{
	if (i >= m->scopes.nfunctions)
		return NULL;
	*found = m->scopes.found[i];
	return m->scopes.functions[i];
}

/* True if whole is text (of len bytes), or ends in separator and text. */
static bool is_end(const char *whole, const char *text, size_t len, char separator)
{
	size_t all = strlen(whole);

	return len <= all && !strncmp(whole + all - len, text, len) &&
	       (len == all || whole[all - len - 1] == separator);
}

static bool has_name(const char *asked, const char *file, const char *function)
{
	const char *colon = strrchr(asked, ':');
	const char *name = colon ? colon + 1 : asked;

	return is_end(function, name, strlen(name), '.') &&
	       (!colon || is_end(file, asked, (size_t)(colon - asked), '/'));
}

enum { LOC_OUTSIDE = 1, LOC_INSIDE }; /* in scope_cache.locs */

/* True if the function has the code location. */
static bool has_loc(const struct dict *dict, uint32_t id, const char *name,
		    struct scope_cache *cache)
{
	struct dict_loc loc;
	uint8_t is = id < cache->n ? cache->locs[id] : 0;

	if (is)
		return is == LOC_INSIDE;
	loc = dict__get_loc(dict, id);
	is = LOC_OUTSIDE;
	if (!dict__is_native(dict, id) &&
	    has_name(name, dict__str(dict, loc.file), dict__str(dict, loc.func)))
		is = LOC_INSIDE;
	/* Without memory for the cache, the next call examines the location again. */
	if (!array__grow_zero(&cache->locs, &cache->n, (size_t)id + 1, sizeof(*cache->locs)))
		cache->locs[id] = is;
	return is == LOC_INSIDE;
}

static bool stack_has(const struct dict *dict, uint32_t stack, const char *name,
		      struct scope_cache *cache)
{
	struct dict_stack s = dict__get_stack(dict, stack);

	for (uint32_t i = 0; i < s.n; i++)
		if (has_loc(dict, s.frames[i].loc, name, cache))
			return true;
	return false;
}

bool model__row_in_scope(const struct row *row, const char *name, struct scope_cache *cache)
{
	struct model_scope s;

	if (!row->of)
		return false;
	for (size_t no = row->scope_no; no; no = s.parent == SIZE_MAX ? 0 : s.parent + 1) {
		model__scope(row->of, no - 1, &s);
		if (s.source && !strcmp(s.name, name))
			return true;
	}
	if (cache->of != row->of && cache->n)
		memset(cache->locs, 0, cache->n);
	cache->of = row->of;
	return stack_has(row->of->dict, row->stack, name, cache);
}

#define LOC_KNOWN (1U << 15) /* in scopes.locs; bit i: the i-th function has the location */
_Static_assert(STREAM_SCOPES <= 15, "a location's functions fit below LOC_KNOWN");

/* Returns LOC_KNOWN, and a bit for each function of --scope that the location belongs to. Two names
 * may mean one function: "rollout" and "train.py:rollout". */
static uint16_t examine_loc(struct model *m, uint32_t id)
{
	struct scopes *s = &m->scopes;
	struct dict_loc loc = dict__get_loc(m->dict, id);
	uint16_t is = LOC_KNOWN;

	for (uint32_t i = 0; i < s->nfunctions && !dict__is_native(m->dict, id); i++)
		if (has_name(s->functions[i], dict__str(m->dict, loc.file),
			     dict__str(m->dict, loc.func))) {
			s->found[i] = true;
			is |= 1U << i;
		}
	return is;
}

/* Returns the functions that a location belongs to: a bit for each, and LOC_KNOWN. */
static uint16_t functions_of(struct model *m, uint32_t loc)
{
	struct scopes *s = &m->scopes;
	uint16_t is;

	if (loc < s->nlocs && s->locs[loc])
		return s->locs[loc];
	is = loc ? examine_loc(m, loc) : LOC_KNOWN;
	/* Without memory for the cache, the next call examines the location again. */
	if (!array__grow_zero(&s->locs, &s->nlocs, (size_t)loc + 1, sizeof(*s->locs)))
		s->locs[loc] = is;
	return is;
}

/* ---- the functions on a stack ---- */

#define CHAIN_BITS 4
#define CHAIN_MASK UINT64_C(15)
_Static_assert(STREAM_SCOPES < 15 && STREAM_SCOPES * CHAIN_BITS + CHAIN_BITS <= 64,
	       "a chain of all functions fits into 64 bits");

/* Returns the number of functions in a chain: see scopes__chain(). */
static uint32_t chain__length(uint64_t chain)
{
	return (uint32_t)(chain & CHAIN_MASK) - 1;
}

static uint32_t chain__at(uint64_t chain, uint32_t i)
{
	return (uint32_t)(chain >> CHAIN_BITS * (i + 1) & CHAIN_MASK);
}

static bool chain__has(uint64_t chain, uint32_t function)
{
	for (uint32_t i = 0; i < chain__length(chain); i++)
		if (chain__at(chain, i) == function)
			return true;
	return false;
}

/* Adds the functions of a frame that are not in the chain yet. */
static uint64_t add_functions(uint64_t chain, uint16_t functions)
{
	for (uint32_t i = 0; i < STREAM_SCOPES; i++) {
		if (!(functions >> i & 1) || chain__has(chain, i))
			continue;
		chain |= (uint64_t)i << CHAIN_BITS * (chain__length(chain) + 1);
		chain++;
	}
	return chain;
}

/* Returns the functions on a stack, each once, the outermost first. The lowest 4 bits are the
 * number of functions plus 1. Each function is in the next 4 bits. */
static uint64_t scopes__chain(struct model *m, uint32_t stack)
{
	struct scopes *s = &m->scopes;
	struct dict_stack st;
	uint64_t chain = 1;

	if (stack < s->nchains && s->chains[stack])
		return s->chains[stack];
	st = dict__get_stack(m->dict, stack);
	for (uint32_t i = st.n; i-- > 0;)
		chain = add_functions(chain, functions_of(m, st.frames[i].loc));
	if (!array__grow_zero(&s->chains, &s->nchains, (size_t)stack + 1, sizeof(*s->chains)))
		s->chains[stack] = chain;
	return chain;
}

/* ---- runs ---- */

struct open_scope {
	uint32_t path, scope, thread, tid; /* scope: as scope_path.scope */
	uint32_t run_no;		   /* index in scopes.runs plus 1; 0: not kept */
	uint64_t number, begin, last, first_event;
	/* The event that began a named scope. Its kind is 0 in a run of a function. */
	struct event told;
	uint64_t around; /* number of the nearest scope with one that it is or is in; 0: none */
	bool suspended;
	bool earlier, kept_unknown; /* as in struct scope_level */
	uint64_t suspended_at;	    /* ns, while suspended */
	uint64_t paused;	    /* ns that it was suspended, until the last RESUME */
	/* Readings of host memory: as of the thread's last event, and since, as in open_level. */
	struct model_scope_host host, since;
	struct open_level {
		struct scope_level done; /* as of the thread's last event */
		/* The highest levels since then. They count if another event of the thread shows
		 * that the run went on. */
		uint64_t peak, peak_time, peak_event, reserved;
		uint64_t live; /* bytes that the thread allocated in the run, live now */
	} levels[SCOPE_DEVICES];
};

/* Returns the thread's ID. A thread that changes its name gets a new number but keeps its ID.
 * Threads of a snapshot have no ID. */
static uint32_t tid_of(const struct model *m, uint32_t thread)
{
	uint32_t tid = dict__get_thread(m->dict, thread).tid;

	return tid ? tid : UINT32_MAX - thread;
}

static uint64_t level_of(const struct dev *dev)
{
	return dev->pub.allocated - dev->late;
}

static uint32_t count_levels(const struct model *m)
{
	return m->ndevs < SCOPE_DEVICES ? m->ndevs : SCOPE_DEVICES;
}

static void level__restart(struct model *m, struct open_level *l, const struct dev *dev,
			   uint64_t time)
{
	l->peak = level_of(dev);
	l->reserved = dev->pub.has_totals ? dev->pub.reserved : 0;
	l->peak_time = time;
	l->peak_event = m->seq;
}

/* The figures of a run on a device begin: all are those of this moment. */
static void level__begin(struct model *m, struct open_level *l, const struct dev *dev,
			 uint64_t time)
{
	level__restart(m, l, dev, time);
	l->done = (struct scope_level){ .known = true, /* earlier, kept_unknown: scopes__end() */
					.start = l->peak,
					.peak = l->peak,
					.peak_time = time,
					.peak_event = m->seq,
					.reserved = l->reserved,
					.end = l->peak };
}

/* Adds readings of host memory to those of a run, or of all runs of a path: the highest one counts,
 * with what comes with it. */
static void host__add(struct model_scope_host *to, const struct model_scope_host *more)
{
	uint64_t readings = to->readings + more->readings;

	if (more->readings && (!to->readings || more->peak.rss > to->peak.rss))
		*to = *more;
	to->readings = readings;
}

/* Counts the levels since the thread's last event as part of the run. */
static void run__goes_on(struct model *m, struct open_scope *o, uint64_t time)
{
	if (o->since.readings) {
		host__add(&o->host, &o->since);
		o->host.end = o->since.end;
		o->since = (struct model_scope_host){ 0 };
	}
	for (uint32_t d = 0; d < count_levels(m); d++) {
		struct open_level *l = &o->levels[d];

		if (!l->done.known)
			continue;
		if (l->peak > l->done.peak) {
			l->done.peak = l->peak;
			l->done.peak_time = l->peak_time;
			l->done.peak_event = l->peak_event;
		}
		if (l->reserved > l->done.reserved)
			l->done.reserved = l->reserved;
		l->done.end = level_of(m->devs[d]);
		l->done.kept = l->live;
		level__restart(m, l, m->devs[d], time);
	}
}

/* Returns the name of a scope, as scope_path.scope. */
static const char *name_of(const struct model *m, uint32_t scope)
{
	const struct scopes *s = &m->scopes;

	return scope < STREAM_SCOPES
		       ? s->functions[scope]
		       : dict__str(m->dict, s->names[scope - STREAM_SCOPES].key.string);
}

#define SEPARATOR " > "

/* Returns the names of a path, the outermost first, for free(); NULL on ENOMEM. A long text begins
 * with the innermost names that fit. */
static char *path_text(const struct model *m, uint32_t parent_no, uint32_t scope)
{
	const char *around = parent_no ? m->scopes.paths[parent_no - 1].text : "";
	char *text;

	if (strlen(around) > STREAM_SCOPE)
		around = "...";
	if (asprintf(&text, "%s%s%s", around, parent_no ? SEPARATOR : "", name_of(m, scope)) < 0)
		return NULL;
	return text;
}

/* Finds or adds a path. Returns 0, -ENOSPC or -ENOMEM. */
static int scopes__path(struct model *m, uint32_t parent_no, uint32_t scope, uint32_t *ret)
{
	struct scopes *s = &m->scopes;
	uint32_t key[2] = { parent_no, scope };
	uint32_t hash = hash__bytes(m->seed, key, sizeof(key)), pos = hash;

	while ((*ret = hash_index__next(&s->index, hash, &pos)) != UINT32_MAX)
		if (s->paths[*ret].parent_no == parent_no && s->paths[*ret].scope == scope)
			return 0;
	if (s->npaths == SCOPE_PATHS)
		return -ENOSPC;
	if (array__grow_zero(&s->paths, &s->cappaths, (size_t)s->npaths + 1, sizeof(*s->paths)) ||
	    hash_index__add(&s->index, hash, s->npaths))
		return -ENOMEM;
	*ret = s->npaths++;
	s->paths[*ret] = (struct scope_path){ .parent_no = parent_no, .scope = scope };
	if (parent_no)
		s->paths[*ret].depth = s->paths[parent_no - 1].depth + 1;
	s->paths[*ret].text = path_text(m, parent_no, scope);
	s->paths[*ret].highest = calloc(SCOPE_DEVICES, sizeof(struct scope_level));
	s->paths[*ret].recent = calloc(SCOPE_DEVICES, sizeof(struct scope_level));
	if (!s->paths[*ret].recent)
		return -ENOMEM;
	return s->paths[*ret].text && s->paths[*ret].highest ? 0 : -ENOMEM;
}

/* Keeps the run if it is one of the first SCOPE_RUNS. Returns 0 or -ENOMEM. */
static int keep_run(struct model *m, struct open_scope *o)
{
	struct scopes *s = &m->scopes;

	if (s->nruns == SCOPE_RUNS)
		return 0;
	if (array__grow_zero(&s->runs, &s->capruns, (size_t)s->nruns + 1, sizeof(*s->runs)))
		return -ENOMEM;
	s->runs[s->nruns] = (struct scope_run){ .path = o->path,
						.thread = o->thread,
						.number = o->number,
						.begin = o->begin,
						.earlier = o->earlier };
	memcpy(s->runs[s->nruns].steps, m->steps.n, sizeof(m->steps.n));
	o->run_no = ++s->nruns;
	return 0;
}

static bool is_named(const struct open_scope *o)
{
	return o->told.kind == EVENT_SCOPE;
}

/* True if a run that e begins may be inside an open run of its thread. Tasks of an event loop share
 * a thread: a scope with a number says which one is around it. */
static bool may_contain(const struct open_scope *o, const struct event *e)
{
	if (o->suspended)
		return false;
	return e->kind != EVENT_SCOPE || !e->addr || o->around == e->size;
}

/* Returns the last reading of host memory, if there was one. */
static struct model_reading last_reading(const struct model *m)
{
	const struct host_point *last = &m->host.pub.last;
	const struct host_figure *rss = &last->sheet.part[HOST_TOTAL];

	return (struct model_reading){ .known = m->host.pub.readings && rss->known,
				       .time = last->time,
				       .rss = rss->bytes };
}

static uint64_t *begun_of(struct scopes *s, uint32_t scope)
{
	return scope < STREAM_SCOPES ? &s->begun[scope] : &s->names[scope - STREAM_SCOPES].begun;
}

/* Begins a run inside the innermost open run of its thread that may contain it. Returns 0 or
 * -ENOMEM. */
static int scopes__begin(struct model *m, const struct event *e, uint32_t tid, uint32_t scope)
{
	struct scopes *s = &m->scopes;
	const struct open_scope *parent = NULL;
	uint32_t path;
	struct open_scope *o;
	int err;

	for (uint32_t i = 0; i < s->nopen; i++)
		if (s->open[i]->tid == tid && may_contain(s->open[i], e))
			parent = s->open[i];
	err = -ENOSPC;
	if (s->nopen < SCOPE_OPEN)
		err = scopes__path(m, parent ? parent->path + 1 : 0, scope, &path);
	if (err == -ENOSPC) {
		s->left_out++;
		return 0;
	}
	o = err ? NULL : calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->path = path;
	o->scope = scope;
	o->thread = e->thread;
	o->tid = tid;
	s->paths[path].begun++;
	o->number = ++*begun_of(s, scope);
	o->begin = o->last = e->time;
	o->first_event = m->seq + 1;
	o->around = parent ? parent->around : 0;
	if (e->kind == EVENT_SCOPE) {
		o->told = *e;
		o->around = e->addr ?: o->around;
		s->paths[path].earlier += !!(e->flags & SCOPE_EARLIER);
		o->earlier = e->flags & SCOPE_EARLIER;
		o->kept_unknown = o->earlier || !e->thread;
	}
	for (uint32_t d = 0; d < count_levels(m); d++)
		if (m->devs[d]->any)
			level__begin(m, &o->levels[d], m->devs[d], e->time);
	if (!o->earlier)
		o->host.start = last_reading(m);
	err = keep_run(m, o);
	if (err) {
		free(o);
		return err;
	}
	s->open[s->nopen++] = o;
	s->nnamed += is_named(o);
	return 0;
}

/* Adds an ended run to the sums of its path. nlevels: devices with figures. */
static void add_to_path(struct scope_path *p, const struct open_scope *o, uint32_t nlevels)
{
	uint64_t took = o->last - o->begin - o->paused;

	p->time += took;
	if (took > p->longest)
		p->longest = took;
	host__add(&p->host, &o->host);
	for (uint32_t d = 0; d < nlevels; d++) {
		const struct scope_level *l = &o->levels[d].done;

		if (!l->known)
			continue;
		if (l->reserved > p->reserved[d])
			p->reserved[d] = l->reserved;
		if (!p->highest[d].known || l->peak > p->highest[d].peak) {
			p->highest[d] = *l;
			p->highest[d].run = o->number;
		}
	}
}

/* Adds a run that has ended to the recent ones of its path: the last one's figures, with the
 * highest peaks of all. Without recent ones all of p->recent is 0. */
static void add_to_recent(struct scope_path *p, const struct open_scope *o, uint32_t nlevels)
{
	for (uint32_t d = 0; d < nlevels; d++) {
		const struct scope_level *l = &o->levels[d].done;
		struct scope_level before = p->recent[d], *recent = &p->recent[d];

		if (!l->known)
			continue;
		*recent = *l;
		recent->run = o->number;
		if (before.peak > recent->peak)
			recent->peak = before.peak;
		if (before.reserved > recent->reserved)
			recent->reserved = before.reserved;
	}
	p->nrecent++;
}

/* Remembers an ended run among the last ones. Without memory there are none. */
static void remember_late(struct scopes *s, const struct open_scope *o)
{
	if (!s->late)
		s->late = calloc(SCOPE_LATE, sizeof(*s->late));
	if (!s->late)
		return;
	s->late[s->nlate++ % SCOPE_LATE] = (struct scope_late){
		.path = o->path,
		.thread = o->thread,
		.number = o->number,
		.begin = o->begin,
		.end = o->last,
	};
}

/* Ends the i-th open run. ended: false if its end is not known. Returns 0 or -ENOMEM. */
static int scopes__end(struct model *m, uint32_t i, bool ended)
{
	struct scopes *s = &m->scopes;
	struct open_scope *o = s->open[i];
	struct scope_run *r = o->run_no ? &s->runs[o->run_no - 1] : NULL;
	uint32_t n = count_levels(m);

	memmove(s->open + i, s->open + i + 1, (--s->nopen - i) * sizeof(struct open_scope *));
	s->nnamed -= is_named(o);
	o->host.run = o->number;
	for (uint32_t d = 0; d < n; d++) {
		o->levels[d].done.earlier = o->earlier;
		o->levels[d].done.kept_unknown = o->kept_unknown;
	}
	add_to_path(&s->paths[o->path], o, n);
	remember_late(s, o);
	if (ended) /* otherwise its figures are incomplete */
		add_to_recent(&s->paths[o->path], o, n);
	s->paths[o->path].ended += ended;
	if (r) {
		r->end = o->last;
		r->took = o->last - o->begin - o->paused;
		r->ended = ended;
		r->levels = calloc((size_t)n + 1, sizeof(*r->levels));
		for (uint32_t d = 0; d < n && r->levels; d++) {
			r->levels[d] = o->levels[d].done;
			r->levels[d].run = o->number;
		}
		r->nlevels = r->levels ? n : 0;
	}
	free(o);
	return r && !r->levels ? -ENOMEM : 0;
}

static bool is_open(const struct scopes *s, uint32_t tid, uint32_t function)
{
	for (uint32_t i = 0; i < s->nopen; i++)
		if (s->open[i]->tid == tid && s->open[i]->scope == function)
			return true;
	return false;
}

/* Returns the number of a thread's open runs that go on, because their functions are on its stack.
 * *at: index in scopes.open after the last of them. partial: the outermost frames may be missing on
 * the stack. */
static uint32_t count_same(const struct model *m, uint32_t tid, uint64_t chain, bool partial,
			   uint32_t *at)
{
	const struct scopes *s = &m->scopes;
	uint32_t same = 0;

	*at = 0;
	for (uint32_t i = 0; i < s->nopen; i++) {
		if (s->open[i]->tid != tid || is_named(s->open[i]))
			continue;
		if (same < chain__length(chain) && s->open[i]->scope == chain__at(chain, same))
			same++;
		else if (!partial)
			break;
		*at = i + 1;
	}
	return same;
}

/* Ends and begins runs of the thread, so that its open runs are the functions on its stack. chain:
 * those functions, the outermost first. partial: the outermost frames may be missing. Returns 0 or
 * -ENOMEM. */
static int follow_stack(struct model *m, const struct event *e, uint64_t chain, bool partial)
{
	struct scopes *s = &m->scopes;
	uint32_t tid = tid_of(m, e->thread), same, at;
	int err = 0;

	/* the first `same` functions go on; `at` is the index after their last run */
	same = count_same(m, tid, chain, partial, &at);
	for (uint32_t i = s->nopen; i-- > at && !err;)
		if (s->open[i]->tid == tid && !is_named(s->open[i]) && !partial)
			err = scopes__end(m, i, /*ended=*/true);
	for (uint32_t i = same; i < chain__length(chain) && !err; i++) {
		uint32_t function = chain__at(chain, i);

		/* The frame of its outer call may be among the missing ones. */
		if (!partial || !is_open(s, tid, function))
			err = scopes__begin(m, e, tid, function);
	}
	for (uint32_t i = 0; i < s->nopen; i++)
		if (s->open[i]->tid == tid && !is_named(s->open[i]) && e->time > s->open[i]->last)
			s->open[i]->last = e->time;
	return err;
}

/* ---- named scopes ---- */

/* Begins a run of a named scope. Returns 0 or -ENOMEM. */
static int begin_named(struct model *m, const struct event *e)
{
	struct scopes *s = &m->scopes;
	struct scope_name_key key = { .string = e->name, .source = e->how };
	uint32_t tid = tid_of(m, e->thread), name;
	int err;

	if (s->nnames == SCOPE_NAMES) {
		s->left_out++;
		return 0;
	}
	err = hash_index__entry(&s->name_index, m->seed, &key, sizeof(key), &s->names, &s->nnames,
				&s->capnames, sizeof(*s->names), &name);
	return err < 0 ? err : scopes__begin(m, e, tid, STREAM_SCOPES + name);
}

/* Returns the index of the open run that an event is about, plus 1; 0: none. */
static uint32_t find_named(const struct model *m, const struct event *e)
{
	const struct scopes *s = &m->scopes;
	uint32_t tid = tid_of(m, e->thread);

	for (uint32_t i = s->nopen; i-- > 0;) {
		struct event told = s->open[i]->told;

		/* A thread that changed its name has another number. */
		if (s->open[i]->tid == tid)
			told.thread = e->thread;
		if (is_named(s->open[i]) && event__same_scope(&told, e))
			return i + 1;
	}
	return 0;
}

/* Counts what came until now as part of the run: at its end, and before it is suspended. */
static void count_until(struct model *m, struct open_scope *o, uint64_t time)
{
	if (o->suspended)
		return;
	run__goes_on(m, o, time);
	o->last = time > o->last ? time : o->last;
}

static void suspend_run(struct model *m, struct open_scope *o, uint64_t time)
{
	count_until(m, o, time);
	o->suspended = o->kept_unknown = true;
	o->suspended_at = o->last;
}

/* A run goes on after a pause: its peaks begin again at the present level, as other code ran
 * meanwhile. */
static void resume_run(struct model *m, struct open_scope *o, uint64_t time)
{
	if (!o->suspended)
		return;
	o->suspended = false;
	if (time > o->last)
		o->last = time;
	o->paused += o->last - o->suspended_at;
	for (uint32_t d = 0; d < count_levels(m); d++)
		if (o->levels[d].done.known)
			level__restart(m, &o->levels[d], m->devs[d], time);
}

/* Handles EVENT_SCOPE. Returns 0 or -ENOMEM. */
static int follow_named(struct model *m, const struct event *e)
{
	struct scopes *s = &m->scopes;
	uint8_t what = e->flags & SCOPE_WHAT;
	uint32_t open_no = what == SCOPE_BEGIN ? 0 : find_named(m, e);

	if (what == SCOPE_BEGIN)
		return begin_named(m, e);
	if (!open_no) {
		s->left_out += what == SCOPE_END;
		return 0;
	}
	switch (what) {
	case SCOPE_END:
		count_until(m, s->open[open_no - 1], e->time);
		return scopes__end(m, open_no - 1, /*ended=*/true);
	case SCOPE_SUSPEND:
		suspend_run(m, s->open[open_no - 1], e->time);
		return 0;
	case SCOPE_RESUME:
		resume_run(m, s->open[open_no - 1], e->time);
		return 0;
	default:
		return 0;
	}
}

/* ---- the scope of a block ---- */

/* Sets s->scope_no to the functions on the stack. Returns 0 or -ENOMEM. */
static int take_path_of_stack(struct model *m, uint32_t stack)
{
	struct scopes *s = &m->scopes;
	uint64_t chain = scopes__chain(m, stack);
	uint32_t path;
	int err = 0;

	for (uint32_t i = 0; i < chain__length(chain) && !err; i++) {
		err = scopes__path(m, s->scope_no, chain__at(chain, i), &path);
		if (!err)
			s->scope_no = path + 1;
	}
	return err == -ENOMEM ? err : 0;
}

/* Returns the path of the thread's innermost open run, plus 1; 0: it has none. */
static uint32_t innermost(const struct scopes *s, uint32_t tid)
{
	for (uint32_t i = s->nopen; i-- > 0;)
		if (s->open[i]->tid == tid && !s->open[i]->suspended)
			return s->open[i]->path + 1;
	return 0;
}

/*
 * Sets s->scope_no to the innermost run of the event's thread. On a GPU, a thread of autograd's own
 * runs backward, without a Python frame, while the thread that called it waits: then it is that
 * thread's run. The calling thread is the last one that allocated in backward, as for the gradient
 * of the loss.
 */
static void take_path_of_thread(struct model *m, const struct event *e, uint32_t stack,
				uint8_t walk)
{
	struct scopes *s = &m->scopes;
	uint32_t tid = tid_of(m, e->thread);
	bool backward = attribution__node_phase(m->attribution, stack, e->node, e->thread, walk) ==
			PHASE_BACKWARD;

	if (stack && (backward || !s->backward))
		s->backward = tid;
	if (stack && tid == s->backward)
		s->in_backward = backward;
	s->scope_no = innermost(s, tid);
	if (s->scope_no || stack || !backward)
		return;
	s->scope_no = innermost(s, s->backward);
	s->launcher = s->scope_no ? s->backward : 0;
}

int scopes__before(struct model *m, const struct event *e, uint32_t stack, uint8_t walk)
{
	struct scopes *s = &m->scopes;
	bool known = stack || walk == MT_WALK_NO_FRAME; /* the functions that run */
	int err = s->loaded ? 0 : load_fact(m);

	s->scope_no = s->launcher = 0;
	if (!err && e->kind == EVENT_SCOPE)
		return follow_named(m, e);
	if (err || (!s->nfunctions && !s->nnamed))
		return err;
	/* These come some time after the allocation. */
	if (e->kind == EVENT_BLOCK || (e->kind == EVENT_ALLOC && device__in_pieces(e->device)))
		return take_path_of_stack(m, stack);
	if (e->kind != EVENT_ALLOC && e->kind != EVENT_OOM)
		return 0;
	if (!e->thread && !attribution__is_snapshot(m->attribution))
		return 0; /* unknown thread */
	if (known &&
	    s->nfunctions) /* A dict cuts a deep stack after the walk, which may have been whole. */
		err = follow_stack(m, e, scopes__chain(m, stack),
				   stack && (walk != MT_WALK_OK ||
					     dict__get_stack(m->dict, stack).walk != MT_WALK_OK));
	take_path_of_thread(m, e, stack, walk);
	return err;
}

/* Takes the device's bytes after an event into the figures of a run that is open. */
static void note_level(struct model *m, struct open_level *l, const struct dev *dev,
		       const struct event *e)
{
	if (!l->done.known) {
		level__begin(m, l, dev, e->time);
		l->done.start = dev->first_allocated;
	}
	if (level_of(dev) > l->peak) {
		l->peak = level_of(dev);
		l->peak_time = e->time;
		l->peak_event = m->seq;
	}
	if (dev->pub.has_totals && dev->pub.reserved > l->reserved)
		l->reserved = dev->pub.reserved;
}

void scopes__after(struct model *m, const struct dev *dev, const struct event *e)
{
	struct scopes *s = &m->scopes;
	/* While a thread of autograd runs backward: the thread that called it. */
	uint32_t tid = s->launcher ?: tid_of(m, e->thread);
	/* Without an allocation of its own in backward, the thread may have left the function. */
	bool goes_on = !s->launcher || s->in_backward;

	for (uint32_t i = 0; i < s->nopen; i++) {
		struct open_scope *o = s->open[i];
		struct open_level *l = NULL;

		if (o->suspended)
			continue;
		if (dev->number < SCOPE_DEVICES)
			l = &o->levels[dev->number];
		if (l)
			note_level(m, l, dev, e);
		if (o->tid != tid)
			continue;
		if (l && e->kind == EVENT_ALLOC)
			l->live += e->size;
		if (goes_on && !is_named(o))
			run__goes_on(m, o, e->time);
	}
}

void scopes__after_reading(struct model *m)
{
	struct model_reading reading = last_reading(m);

	for (uint32_t i = 0; i < m->scopes.nopen && reading.known; i++) {
		struct open_scope *o = m->scopes.open[i];

		if (o->suspended)
			continue;
		host__add(&o->since, &(struct model_scope_host){ .readings = 1,
								 .start = o->host.start,
								 .peak = reading });
		o->since.end = reading;
	}
}

void scopes__block_freed(struct model *m, const struct site *site, const struct rec *rec)
{
	struct scopes *s = &m->scopes;
	uint32_t tid = site->launcher ?: tid_of(m, site->thread);

	/* Take it from the thread's open runs that allocated it. */
	if (rec->older || site->dev >= SCOPE_DEVICES)
		return;
	for (uint32_t i = 0; i < s->nopen; i++)
		if (s->open[i]->tid == tid && rec->born >= s->open[i]->first_event)
			s->open[i]->levels[site->dev].live -= site->size;
}

int scopes__end_thread(struct model *m, uint32_t thread)
{
	uint32_t tid = tid_of(m, thread);
	int err = 0;

	for (uint32_t i = m->scopes.nopen; i-- > 0 && !err;)
		if (m->scopes.open[i]->tid == tid && !is_named(m->scopes.open[i]))
			err = scopes__end(m, i, /*ended=*/true);
	return err;
}

int scopes__finish(struct model *m, uint64_t now)
{
	int err = 0;

	for (uint32_t i = m->scopes.nopen; i-- > 0 && !err;) {
		if (is_named(m->scopes.open[i]))
			count_until(m, m->scopes.open[i], now);
		err = scopes__end(m, i, /*ended=*/false);
	}
	return err;
}

void scopes__free(struct scopes *s)
{
	for (uint32_t i = 0; i < s->nfunctions; i++)
		free(s->functions[i]);
	for (uint32_t i = 0; i < s->npaths; i++) {
		free(s->paths[i].text);
		free(s->paths[i].highest);
		free(s->paths[i].recent);
	}
	for (uint32_t i = 0; i < s->nruns; i++)
		free(s->runs[i].levels);
	for (uint32_t i = 0; i < s->nopen; i++)
		free(s->open[i]);
	free(s->locs);
	free(s->chains);
	free(s->late);
	free(s->paths);
	free(s->index.slots);
	free(s->names);
	free(s->name_index.slots);
	free(s->runs);
}

/* ---- results ---- */

size_t model__scopes(const struct model *m)
{
	return m->scopes.npaths;
}

uint64_t model__scopes_left_out(const struct model *m)
{
	return m->scopes.left_out;
}

/* Sorts n values and returns the middle one, of two the larger one; 0 for none. */
static uint64_t middle(uint64_t *values, size_t n)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), array__compare_u64);
	return values[n / 2];
}

void model__scope(const struct model *m, size_t i, struct model_scope *ret)
{
	const struct scopes *s = &m->scopes;
	const struct scope_path *p = &s->paths[i];

	*ret = (struct model_scope){
		.name = name_of(m, p->scope),
		.path = p->text,
		.parent = p->parent_no ? p->parent_no - 1 : SIZE_MAX,
		.runs = p->begun,
		.depth = p->depth,
		.open = p->begun - p->ended,
		.earlier = p->earlier,
		.time = p->time,
		.longest = p->longest,
	};
	if (p->scope >= STREAM_SCOPES)
		ret->source = (uint8_t)s->names[p->scope - STREAM_SCOPES].key.source;
}

bool model__scope_is(const struct model *m, const struct model_scope *scope, const char *name)
{
	const struct scopes *s = &m->scopes;

	if (strcmp(scope->name, name) != 0)
		return false;
	for (uint32_t i = 0; i < s->nnames && !scope->source; i++)
		if (!strcmp(dict__str(m->dict, s->names[i].key.string), name))
			return false;
	return true;
}

bool model__scope_per_step(const struct model *m, size_t i, double *runs, double *time)
{
	const struct scopes *s = &m->scopes;
	enum step_kind kind = model__steps_are_calls(m) ? STEP_CALL : STEP_OPT;
	uint64_t end = model__steps(m), sum = 0, n = 0, first;

	first = end - model__whole_steps(m);
	/* Later steps have runs that are not kept. */
	if (s->nruns == SCOPE_RUNS && s->runs[s->nruns - 1].steps[kind] < end)
		end = s->runs[s->nruns - 1].steps[kind];
	if (end <= first)
		return false;
	for (uint32_t r = 0; r < s->nruns; r++) {
		const struct scope_run *run = &s->runs[r];

		if (run->path == i && run->earlier)
			return false; /* it is in the first steps, too */
		if (run->path != i || run->steps[kind] < first || run->steps[kind] >= end)
			continue;
		sum += run->took;
		n++;
	}
	*runs = (double)n / (double)(end - first);
	*time = (double)sum / (double)(end - first);
	return true;
}

uint64_t model__scope_median_time(const struct model *m, size_t i)
{
	const struct scopes *s = &m->scopes;
	uint64_t *took = calloc((size_t)s->nruns + 1, sizeof(*took)), median;
	size_t n = 0;

	for (uint32_t r = 0; r < s->nruns && took; r++)
		if (s->runs[r].path == i)
			took[n++] = s->runs[r].took;
	median = middle(took, n);
	free(took);
	return median;
}

/* Sets *ret to a level of the device with this number. False: it is not known. */
static bool read_level(const struct model *m, const struct scope_level *l, uint32_t device,
		       struct model_scope_level *ret)
{
	uint64_t late = m->devs[device]->late;

	if (!l->known)
		return false;
	*ret = (struct model_scope_level){
		.start = l->start + late,
		.peak = l->peak + late,
		.peak_time = l->peak_time,
		.peak_event = l->peak_event,
		.peak_reserved = l->reserved,
		.end = l->end + late,
		.kept = l->kept,
		.start_known = !l->earlier,
		.kept_known = !l->kept_unknown,
		.run = l->run,
	};
	return true;
}

bool model__scope_highest(const struct model *m, size_t i, size_t device,
			  struct model_scope_level *ret)
{
	uint32_t d = m->order[device];
	const struct scope_path *p = &m->scopes.paths[i];

	if (d >= SCOPE_DEVICES || !read_level(m, &p->highest[d], d, ret))
		return false;
	ret->peak_reserved = p->reserved[d];
	return true;
}

uint64_t model__scope_recent_runs(const struct model *m, size_t i)
{
	return m->scopes.paths[i].nrecent;
}

bool model__scope_recent(const struct model *m, size_t i, size_t device,
			 struct model_scope_level *ret)
{
	uint32_t d = m->order[device];

	return d < SCOPE_DEVICES && read_level(m, &m->scopes.paths[i].recent[d], d, ret);
}

void model__scope_forget_recent(struct model *m, size_t i)
{
	struct scope_path *p = &m->scopes.paths[i];

	memset(p->recent, 0, SCOPE_DEVICES * sizeof(*p->recent));
	p->nrecent = 0;
}

bool model__scope_idle(const struct model *m, size_t i, size_t device,
		       struct model_scope_level *ret)
{
	uint32_t d = m->order[device];
	const struct dev *dev = m->devs[d];
	uint64_t bytes = dev->first_allocated + dev->late;

	if (d >= SCOPE_DEVICES || !m->scopes.paths[i].begun || m->scopes.paths[i].highest[d].known)
		return false;
	*ret = (struct model_scope_level){
		.start = bytes, .peak = bytes, .end = bytes, .start_known = true, .kept_known = true
	};
	ret->peak_reserved = dev->pub.has_totals ? dev->first_reserved : 0;
	return true;
}

void model__scope_medians(const struct model *m, size_t i, size_t device,
			  struct model_scope_medians *ret)
{
	const struct scopes *s = &m->scopes;
	uint64_t *values = calloc((size_t)s->nruns * 2 + 1, sizeof(*values));
	/* Added to signed values, so that they sort as unsigned ones. */
	const uint64_t zero = UINT64_C(1) << 63;
	struct model_scope_level l;
	size_t nchange = 0, nkept = 0;

	for (uint32_t r = 0; r < s->nruns && values; r++) {
		if (s->runs[r].path != i || !s->runs[r].ended ||
		    !model__scope_run_level(m, r, device, &l))
			continue;
		if (l.start_known)
			values[nchange++] = l.end - l.start + zero;
		if (l.kept_known)
			values[s->nruns + nkept++] = l.kept;
	}
	*ret = (struct model_scope_medians){ .change_known = nchange, .kept_known = nkept };
	if (nchange)
		ret->change = (int64_t)(middle(values, nchange) - zero);
	if (nkept)
		ret->kept = middle(values + s->nruns, nkept);
	free(values);
}

bool model__scope_host(const struct model *m, size_t i, struct model_scope_host *ret)
{
	*ret = m->scopes.paths[i].host;
	return m->host.pub.readings;
}

size_t model__scope_runs(const struct model *m)
{
	return m->scopes.nruns;
}

void model__scope_run(const struct model *m, size_t run, struct model_scope_run *ret)
{
	const struct scope_run *r = &m->scopes.runs[run];

	*ret = (struct model_scope_run){
		.scope = r->path,
		.number = r->number,
		.thread = r->thread,
		.ended = r->ended,
		.earlier = r->earlier,
		.begin = r->begin,
		.end = r->end,
		.step = r->steps[model__steps_are_calls(m) ? STEP_CALL : STEP_OPT]
	};
}

bool model__scope_late(const struct model *m, size_t i, struct model_scope_run *ret,
		       uint64_t *known_from)
{
	const struct scopes *s = &m->scopes;
	uint64_t kept = s->nlate < SCOPE_LATE ? s->nlate : SCOPE_LATE;
	const struct scope_late *l;

	if (i < s->nopen) {
		const struct open_scope *o = s->open[i];

		*ret = (struct model_scope_run){ .scope = o->path,
						 .number = o->number,
						 .thread = o->thread,
						 .begin = o->begin,
						 .end = UINT64_MAX };
		return true;
	}
	i -= s->nopen;
	if (i >= kept)
		return false;
	l = &s->late[(s->nlate - 1 - i) % SCOPE_LATE];
	*ret = (struct model_scope_run){ .scope = l->path,
					 .number = l->number,
					 .thread = l->thread,
					 .ended = true,
					 .begin = l->begin,
					 .end = l->end };
	*known_from = i + 1 == kept && s->nlate > SCOPE_LATE ? l->begin : *known_from;
	return true;
}

bool model__scope_run_level(const struct model *m, size_t run, size_t device,
			    struct model_scope_level *ret)
{
	const struct scope_run *r = &m->scopes.runs[run];
	uint32_t d = m->order[device];

	return d < r->nlevels && read_level(m, &r->levels[d], d, ret);
}
