/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records each device's allocations by step, keeps the steps with the largest peaks block by block,
 * and tries remedies on them. */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/growth.h"
#include "model/words.h"

#define TRACKS 64 /* devices, at most */
/* Steps of one kind differ by small blocks, such as a loss: up to this part of the peak. */
#define SAME_PEAK_PERCENT 1

static int new_track(struct device d, struct track **ret)
{
	struct track *t = calloc(1, sizeof(*t));

	if (t)
		t->at = map64__new();
	if (!t || !t->at) {
		free(t);
		return -ENOMEM;
	}
	t->device = d;
	t->after = PHASE_NR;
	t->number = t->now.number = 1;
	*ret = t;
	return 0;
}

static void free_window(struct window *w)
{
	free(w->moves);
	free(w->blocks);
}

static void free_track(struct track *t)
{
	if (!t)
		return;
	map64__free(t->at);
	free(t->old);
	free_window(&t->now);
	for (uint32_t i = 0; i < t->nkept; i++)
		free_window(&t->kept[i]);
	free(t);
}

/* ---- blocks ---- */

/* Adds a live block of the past window, or from before the first event, to t->old. Returns 0 or
 * -ENOMEM. */
static int put_old(struct track *t, struct ablock b)
{
	uint32_t entry = t->free_no ? t->free_no - 1 : t->nold;

	if (array__grow(&t->old, &t->capold, (size_t)entry + 1, sizeof(*t->old)))
		return -ENOMEM;
	if (t->free_no)
		t->free_no = t->old[entry].place;
	else
		t->nold++;
	b.born = 0;
	b.gone = NEVER;
	t->old[entry] = b;
	return map64__set(t->at, b.addr, (uint64_t)entry << 1);
}

/* Returns an entry of t->old and makes it unused. */
static struct ablock take_old(struct track *t, uint32_t entry)
{
	struct ablock b = t->old[entry];

	t->old[entry] = (struct ablock){ .gone = 0, .place = t->free_no };
	t->free_no = entry + 1;
	return b;
}

/* Returns the live block at an address; NULL: none is known. */
static struct ablock *block_at(const struct track *t, uint64_t addr)
{
	uint64_t i;

	if (!map64__get(t->at, addr, &i))
		return NULL;
	return i & 1 ? &t->now.blocks[i >> 1] : &t->old[i >> 1];
}

/* ---- windows ---- */

/* True if two windows probably have the same moves: as many, with equal hashes of the
 * allocations. */
static bool same_moves(const struct window *a, const struct window *b)
{
	return a->signature == b->signature && a->nblocks == b->nblocks && a->n == b->n;
}

static void swap_windows(struct window *a, struct window *b)
{
	struct window w = *a;

	*a = *b;
	*b = w;
}

/* Keeps the largest peak of the windows that are not kept. */
static void note_dropped(struct track *t, const struct window *w)
{
	if (w->peak > t->other_peak)
		t->other_peak = w->peak;
}

/* Moves the current window into t->kept, or drops it. Afterwards t->now is only memory to reuse. */
static void keep_or_drop(struct track *t)
{
	struct window *window = &t->now, *least = NULL;

	/* Ignore a window without allocations: its peak is at most the end of the window before. */
	if (!window->known || !window->signature)
		return;
	if (window->part) {
		t->too_long |= window->peak > t->other_peak;
		note_dropped(t, window);
		return;
	}
	for (uint32_t i = 0; i < t->nkept; i++) {
		struct window *kept = &t->kept[i];

		if (same_moves(kept, window)) {
			if (window->peak > kept->peak ||
			    (window->peak == kept->peak && !kept->stepped))
				swap_windows(kept, window);
			return;
		}
		if (!least || kept->peak < least->peak)
			least = kept;
	}
	if (t->nkept < WINDOWS_KEPT) {
		t->kept[t->nkept++] = *window;
		*window = (struct window){ 0 };
	} else if (window->peak > least->peak) {
		swap_windows(least, window);
		note_dropped(t, window);
	} else {
		note_dropped(t, window);
	}
}

/* Ends the current window. Its live blocks become old blocks of the next one. stepped: a step has
 * ended. part: the step is too long, and both windows are parts of it. Returns 0 or -ENOMEM. */
static int end_window(struct track *t, bool stepped, bool part)
{
	struct window *window = &t->now;

	window->part |= part;
	window->end = stepped ? window->n + 1 : NEVER;
	for (uint32_t i = 0; i < window->nblocks; i++)
		if (window->blocks[i].gone == NEVER && put_old(t, window->blocks[i]))
			return -ENOMEM;
	keep_or_drop(t);
	window->n = window->nblocks = window->oom = 0;
	window->signature = window->peak = 0;
	window->known = false;
	window->part = part;
	window->stepped = stepped;
	window->number = ++t->number;
	return 0;
}

/* ---- lasting blocks ---- */

const struct ablock *track__lasting(const struct track *t, uint32_t *i)
{
	return *i < t->nlasting ? &t->lasting[(*i)++] : NULL;
}

/* Returns the key of a block in t->lasting_at. */
static uint64_t lasting_key(const struct ablock *b)
{
	return b->window << 32 | b->place;
}

bool track__lasts(const struct track *t, const struct ablock *b)
{
	uint64_t i;

	return b->window && map64__get(t->lasting_at, lasting_key(b), &i);
}

static int add_lasting(struct track *t, const struct ablock *b)
{
	t->lasting[t->nlasting++] = *b;
	return b->window ? map64__set(t->lasting_at, lasting_key(b), t->nlasting - 1) : 0;
}

/* Fills t->lasting and t->lasting_at. Returns 0 or -ENOMEM; the caller frees both in any case. */
static int list_lasting(struct track *t)
{
	const struct window *w = &t->now;

	t->lasting_at = map64__new();
	t->lasting = malloc(((size_t)t->nold + w->nblocks + 1) * sizeof(*t->lasting));
	if (!t->lasting || !t->lasting_at)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->nold; i++)
		if (t->old[i].gone == NEVER && add_lasting(t, &t->old[i]))
			return -ENOMEM;
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		/* A block that was allocated and freed after the last step counts only if the
		 * program's objects name it. */
		if (b->born && b->gone != NEVER && !b->category)
			continue;
		if (add_lasting(t, b))
			return -ENOMEM;
	}
	return 0;
}

/* Leaves out the window that a late capture began with, if a whole step has as high a peak: nothing
 * is known about the older blocks of that window. */
static void leave_out_first(struct track *t)
{
	uint64_t whole_step_peak = 0;
	uint32_t first = NEVER;

	for (uint32_t i = 0; i < t->nkept; i++) {
		if (t->kept[i].number == 1)
			first = i;
		else if (t->kept[i].stepped && t->kept[i].peak > whole_step_peak)
			whole_step_peak = t->kept[i].peak;
	}
	if (!t->began_late || first == NEVER ||
	    t->kept[first].peak > whole_step_peak + whole_step_peak / 100 * SAME_PEAK_PERCENT)
		return;
	t->nkept--;
	swap_windows(&t->kept[first], &t->kept[t->nkept]);
}

int track__end(const struct track *t, struct track *ret)
{
	int err;

	*ret = *t;
	err = list_lasting(ret);
	if (err) {
		track__release_end(ret);
		return err;
	}
	ret->now.end = NEVER;
	keep_or_drop(ret); /* as at each end of a window */
	leave_out_first(ret);
	return 0;
}

void track__release_end(struct track *t)
{
	map64__free(t->lasting_at);
	free(t->lasting);
}

/* ---- events ---- */

/* Adds a move of a block: its index in w->blocks. Returns 0 or -ENOMEM. */
static int add_move(struct window *w, uint32_t block, bool is_free)
{
	if (array__grow(&w->moves, &w->capmoves, (size_t)w->n + 2, sizeof(*w->moves)))
		return -ENOMEM;
	w->moves[++w->n] = block << 1 | is_free;
	return 0;
}

static int add_block(struct window *w, const struct ablock *b)
{
	if (array__grow(&w->blocks, &w->capblocks, (size_t)w->nblocks + 1, sizeof(*w->blocks)))
		return -ENOMEM;
	w->blocks[w->nblocks++] = *b;
	return 0;
}

/* Sets base and peak before the first move of a window. */
static void begin_window(struct track *t)
{
	struct window *w = &t->now;

	if (w->known)
		return;
	w->known = true;
	w->base = w->peak = t->total;
}

static void count_freed(struct track *t, uint64_t size)
{
	t->total -= size < t->total ? size : t->total;
}

/* Counts a block that was there when the window began, and was not known. The next event corrects
 * the total, if the allocator reports totals. */
static void add_older(struct track *t, uint64_t size)
{
	t->total += size;
	if (t->now.known && !t->totals) {
		t->now.base += size;
		t->now.peak += size;
	}
}

/* Adds the free of a block that the window allocated, by its index in blocks. Returns 0 or -ENOMEM.
 */
static int free_own(struct track *t, uint32_t i)
{
	struct window *w = &t->now;

	w->blocks[i].gone = w->n + 1;
	thrown_graphs__freed(t, &w->blocks[i]);
	count_freed(t, w->blocks[i].size);
	return add_move(w, i, /*is_free=*/true);
}

/* Adds the free of a block. size: bytes, used if the block is not known. Returns 0 or -ENOMEM. */
static int free_block(struct track *t, uint64_t addr, uint64_t size)
{
	struct window *window = &t->now;
	struct ablock block = {
		.addr = addr, .size = size, .phase = PHASE_OTHER, .after = PHASE_NR
	};
	uint64_t entry; /* as in t->at */
	bool known = map64__del(t->at, addr, &entry);

	if (known && entry & 1)
		return free_own(t, (uint32_t)(entry >> 1));
	if (known) {
		block = take_old(t, (uint32_t)(entry >> 1));
		thrown_graphs__freed(t, &block);
	} else if (!t->totals) {
		add_older(t, size);
	}
	block.gone = window->n + 1;
	count_freed(t, block.size);
	if (add_block(window, &block))
		return -ENOMEM;
	return add_move(window, window->nblocks - 1, /*is_free=*/true);
}

/* Keeps the latest phase, and counts the beginnings of forward. */
static void note_phase(struct track *t, enum phase phase)
{
	if (phase != PHASE_FORWARD && phase != PHASE_BACKWARD && phase != PHASE_OPTIMIZER)
		return;
	t->epoch += phase == PHASE_FORWARD && t->after != PHASE_FORWARD;
	t->after = phase;
}

/* Adds an allocation. One of an autograd node is charged to the stack of the node's forward, but
 * keeps module and phase of backward. Returns 0 or -ENOMEM. */
static int alloc_block(struct track *t, const struct model *m, const struct event *event)
{
	struct window *window = &t->now;
	struct event charged = *event;
	struct ablock block = { .addr = charged.addr, .size = charged.size, .gone = NEVER };
	uint32_t number = window->nblocks;

	block.module = model__module(m, charged.stack, charged.node, charged.walk);
	block.phase = charged.node
			      ? PHASE_BACKWARD
			      : model__stack_phase(m, charged.stack, charged.thread, charged.walk);
	if (charged.node)
		model__charge(m, &charged);
	block.after = t->after;
	note_phase(t, block.phase);
	block.epoch = t->epoch;
	block.stack = charged.stack;
	block.window = window->number;
	block.born = block.place = window->n + 1;
	thrown_graphs__took(t, &block);
	window->signature += hash__u64(hash__seed(), (uint64_t)charged.stack << 32 ^ charged.node ^
							     charged.size << 7);
	if (add_block(window, &block) || add_move(window, number, /*is_free=*/false) ||
	    map64__set(t->at, charged.addr, (uint64_t)number << 1 | 1))
		return -ENOMEM;
	t->total += charged.size;
	if (t->total > window->peak)
		window->peak = t->total;
	return 0;
}

/* Adds a block that is older than the first event, unless it is known. A pending block (freed, but
 * a stream still uses it) does not count as allocated. Returns 0 or -ENOMEM. */
static int add_known(struct track *t, const struct event *e)
{
	struct ablock b = {
		.addr = e->addr, .size = e->size, .phase = PHASE_OTHER, .after = PHASE_NR
	};
	struct ablock *known = block_at(t, e->addr);

	if (known || (e->flags & BLOCK_PENDING && e->kind == EVENT_BLOCK))
		return 0;
	t->began_late |= t->number == 1 && !t->now.known;
	add_older(t, e->size);
	return put_old(t, b);
}

/* Keeps what the program's objects say about a block: name, owner, category and size. The reading
 * at attach also adds blocks that are not known yet. Returns 0 or -ENOMEM. */
static int name_block(struct track *t, const struct event *e)
{
	struct ablock *block = block_at(t, e->addr);
	uint8_t item = e->flags & TENSOR_ITEM;
	int err;

	if (!block && !(e->flags & CENSUS_FIRST))
		return 0;
	if (!block) {
		err = add_known(t, e);
		block = err ? NULL : block_at(t, e->addr);
		if (!block)
			return err;
	}
	block->name = e->name;
	block->owner = e->module;
	block->category = e->category;
	block->tensor_size = e->size;
	block->item = item ? (uint8_t)(1U << (item - 1)) : 0;
	return 0;
}

/* Adds an event of the device to its track. Returns 0 or -ENOMEM. */
static int add_event(const struct advisor *v, struct track *t, const struct event *e)
{
	struct window *window = &t->now;
	int err;

	switch (e->kind) {
	case EVENT_BLOCK:
		return add_known(t, e);
	case EVENT_TENSOR:
		return name_block(t, e);
	case EVENT_OOM:
		window->oom = window->oom ? window->oom : window->n;
		return 0;
	case EVENT_ALLOC:
	case EVENT_FREE:
		break;
	default:
		return 0;
	}
	if (window->n + 2 >= v->window_moves) {
		err = end_window(t, /*stepped=*/false, /*part=*/true);
		if (err)
			return err;
	}
	/* Use the allocator's own total, because it includes unseen blocks. */
	t->totals |= e->totals;
	if (e->totals && e->kind == EVENT_FREE)
		t->total = e->allocated + e->size;
	else if (e->totals)
		t->total = e->allocated > e->size ? e->allocated - e->size : 0;
	begin_window(t);
	if (e->kind == EVENT_FREE)
		return free_block(t, e->addr, e->size);
	if (block_at(t, e->addr)) { /* the event of its free was lost */
		err = free_block(t, e->addr, 0);
		if (err)
			return err;
	}
	return alloc_block(t, v->model, e);
}

/* ---- the advisor ---- */

struct advisor *advisor__new(struct model *m, const struct dict *d, const struct facts *f)
{
	struct advisor *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	*v = (struct advisor){ .model = m, .dict = d, .facts = f, .window_moves = WINDOW_MOVES };
	if (growth__watch(m, BY_LINE)) {
		free(v);
		return NULL;
	}
	return v;
}

void advisor__limit_steps(struct advisor *v, uint32_t moves)
{
	v->window_moves = moves;
}

void advisor__free(struct advisor *v)
{
	if (!v)
		return;
	for (uint32_t i = 0; i < v->ntracks; i++)
		free_track(v->tracks[i]);
	free(v->tracks);
	free(v);
}

/* Finds or adds the track of a device. *ret NULL: there are too many. Returns 0 or -ENOMEM. */
static int find_track(struct advisor *v, struct device d, struct track **ret)
{
	struct track **more;
	int err;

	*ret = NULL;
	for (uint32_t i = 0; i < v->ntracks; i++)
		if (device__same(v->tracks[i]->device, d)) {
			*ret = v->tracks[i];
			return 0;
		}
	if (v->ntracks == TRACKS)
		return 0;
	more = realloc(v->tracks, (v->ntracks + 1) * sizeof(struct track *));
	if (!more)
		return -ENOMEM;
	v->tracks = more;
	err = new_track(d, ret);
	if (err)
		return err;
	(*ret)->call = v->calls;
	v->tracks[v->ntracks++] = *ret;
	return 0;
}

int advisor__event(void *advisor, const struct event *e)
{
	struct advisor *v = advisor;
	struct track *track;
	int err = 0;

	switch (e->kind) {
	case EVENT_CALL:
		v->calls++;
		for (uint32_t i = 0; i < v->ntracks; i++)
			v->tracks[i]->call = v->calls;
		return 0;
	case EVENT_STEP:
		for (uint32_t i = 0; i < v->ntracks && !err; i++)
			err = end_window(v->tracks[i], /*stepped=*/true, /*part=*/false);
		return err;
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_OOM:
	case EVENT_BLOCK:
	case EVENT_TENSOR:
		err = find_track(v, e->device, &track);
		if (err || !track)
			return err;
		return add_event(v, track, e);
	}
	return 0;
}

/* ---- replaying with changes ---- */

void changes__add(struct changes *c, uint32_t at, int64_t bytes, bool once)
{
	if (!bytes || c->err)
		return;
	c->err = array__grow(&c->all, &c->cap, c->n + 1, sizeof(*c->all));
	if (!c->err)
		c->all[c->n++] = (struct change){ .at = at, .once = once, .bytes = bytes };
}

void changes__absent(struct changes *c, const struct ablock *b, uint32_t from, uint32_t to)
{
	if (from >= to)
		return;
	changes__add(c, from, changes__less(b->size), /*once=*/false);
	if (to == NEVER && b->gone == NEVER)
		return;
	/* The replay subtracts the size at the block's free, although the block is absent. So a
	 * free before `to` needs the bytes added after it. */
	changes__add(c, to >= b->gone ? b->gone + 1 : to, (int64_t)b->size, /*once=*/false);
}

/* Orders by place, then changes that stay before those that exist once. */
static int cmp_change(const void *x, const void *y)
{
	const struct change *a = x, *b = y;

	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if (a->once != b->once)
		return a->once - b->once;
	return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Adds modulo 2^64, because a recording may contain any size. */
static int64_t add_wrapping(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Sorts the changes, and returns the window's peak with them. */
static uint64_t find_peak(const struct window *w, struct changes *c)
{
	int64_t total = (int64_t)w->base, most = 0;
	size_t i_change = 0;

	if (c->n)
		qsort(c->all, c->n, sizeof(*c->all), cmp_change);
	for (uint32_t place = 0; place <= w->n; place++) {
		for (; i_change < c->n && c->all[i_change].at <= place; i_change++) {
			const struct change *change = &c->all[i_change];
			int64_t with_change = add_wrapping(total, change->bytes);

			if (!change->once)
				total = with_change;
			else if (with_change > most)
				most = with_change;
		}
		if (place && total > most) /* with the changes before this move */
			most = total;
		if (place) {
			uint64_t size = w->blocks[window__block_no(w, place)].size;

			total = add_wrapping(total, window__is_free(w, place) ? changes__less(size)
									      : (int64_t)size);
		}
		if (total > most)
			most = total;
	}
	return (uint64_t)most;
}

/* ---- remedies, entries of the list and their texts ---- */

char *advice__format(const char *fmt, ...)
{
	char *raw = NULL, *clean;
	size_t len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&raw, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	len = strlen(raw);
	clean = malloc(4 * len + 1); /* room for \xNN per byte */
	if (clean)
		text__clean(clean, 4 * len + 1, raw, len);
	free(raw);
	return clean;
}

char *advice__location(const struct advising *a, const struct row *r)
{
	char buf[REPORT_TEXT];

	return strdup(words__location(buf, r, facts__get(a->f, "cwd"), /*columns=*/60));
}

char *advice__line(const struct advising *a, uint32_t stack)
{
	struct row_frame frame;
	struct row row = { .source = "frame" };

	if (!model__stack_line(a->m, stack, false, &frame))
		return strdup("");
	row.file = frame.file;
	row.func = frame.func;
	row.line = frame.line;
	return advice__location(a, &row);
}

int remedy__peak(const struct advising *a, struct remedy *r, uint64_t *after, bool *sure)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < a->t->nkept; i++) {
		uint64_t peak;

		if (r->c[i].err)
			return r->c[i].err;
		peak = find_peak(&a->t->kept[i], &r->c[i]);
		most = peak > most ? peak : most;
	}
	*sure = a->t->other_peak <= most;
	*after = most < a->peak ? most : a->peak;
	return 0;
}

void remedy__free(struct remedy *r)
{
	for (uint32_t i = 0; i < WINDOWS_KEPT; i++)
		free(r->c[i].all);
}

void advice__free_texts(const struct advice *a)
{
	free(a->text);
	free(a->where);
	free(a->basis);
	free(a->costs);
}

int advising__add(struct advising *a, const struct advice *entry)
{
	struct advice_list *list = a->list;

	if (!entry->text || !entry->where || !entry->basis ||
	    array__grow(&list->all, &a->cap, list->n + 1, sizeof(*list->all))) {
		advice__free_texts(entry);
		return -ENOMEM;
	}
	list->all[list->n++] = *entry;
	return 0;
}

int remedy__advise(struct advising *a, struct remedy *r, struct advice *entry)
{
	bool sure = true;
	int err = remedy__peak(a, r, &entry->after, &sure);

	entry->saves = a->peak - entry->after;
	if (!sure && entry->figure == ADVICE_EXACT)
		entry->figure = ADVICE_UP_TO;
	if (err || entry->saves < a->peak / 100 * ADVICE_LEAST_PERCENT || !entry->saves) {
		advice__free_texts(entry);
		return err;
	}
	return advising__add(a, entry);
}
