/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Advice about gradients that are live when the next forward starts, because zero_grad() comes
 * later or fills them with zeros. No code needs them between step and forward. With
 * set_to_none=True backward allocates each one again.
 */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define LOOK 256 /* most blocks of a module to examine per block */

/* Places in a window; NEVER: none. */
struct places {
	uint32_t forward, backward; /* places of the first allocation in forward and in backward */
};

static struct places places_of(const struct window *w)
{
	struct places r = { NEVER, NEVER };

	for (uint32_t p = 1; p <= w->n && (r.forward == NEVER || r.backward == NEVER); p++) {
		const struct ablock *b = &w->blocks[w->moves[p] >> 1];

		if (w->moves[p] & 1)
			continue;
		if (b->phase == PHASE_FORWARD && r.forward == NEVER)
			r.forward = p;
		if (b->phase == PHASE_BACKWARD && r.forward != NEVER && r.backward == NEVER)
			r.backward = p;
	}
	return r;
}

struct found {
	uint64_t late, never, n; /* bytes freed late, bytes never freed; number of blocks */
	uint32_t stack;		 /* stack of a forward that such gradients live into; 0: none */
};

/* True for a block from a backward before this step, freed after its forward began. */
static bool is_late(const struct window *w, const struct ablock *b, const struct places *at)
{
	return !b->born && b->window && w->stepped && b->phase == PHASE_BACKWARD &&
	       b->gone != NEVER && b->gone > at->forward && b->category != CATEGORY_PARAMETER &&
	       b->category != CATEGORY_OPTIMIZER_STATE && b->category != CATEGORY_BUFFER;
}

/* Blocks by module. */
struct by_module {
	struct entry {
		uint32_t module, number;
	} * all;
	size_t n;
};

static int cmp_entry(const void *x, const void *y)
{
	const struct entry *a = x, *b = y;

	if (a->module != b->module)
		return a->module < b->module ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

/* Returns the index of a module's first entry, or where it would be. */
static size_t first_of(const struct by_module *m, uint32_t module)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->all[mid].module < module)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Indexes the parameters among t->lasting. */
static int index_parameters(const struct track *t, struct by_module *ret)
{
	ret->all = malloc(((size_t)t->nlasting + 1) * sizeof(*ret->all));
	if (!ret->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->nlasting; i++)
		if (t->lasting[i].category == CATEGORY_PARAMETER)
			ret->all[ret->n++] = (struct entry){ t->lasting[i].owner, i };
	qsort(ret->all, ret->n, sizeof(*ret->all), cmp_entry);
	return 0;
}

/* Indexes the blocks that backward allocates and frees in a window, in the order of allocation. */
static int index_passing(const struct window *w, uint32_t from, struct by_module *ret)
{
	ret->all = malloc(((size_t)w->nblocks + 1) * sizeof(*ret->all));
	if (!ret->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		if (b->born >= from && b->phase == PHASE_BACKWARD && b->gone != NEVER)
			ret->all[ret->n++] = (struct entry){ b->module, i };
	}
	qsort(ret->all, ret->n, sizeof(*ret->all), cmp_entry);
	return 0;
}

/*
 * Returns the place where a parameter's gradient would be allocated again. Backward allocates a
 * block of its size for its module, adds it to the existing gradient and frees it. Without that
 * gradient the block would stay. Each block counts once.
 */
static uint32_t reallocation_place(const struct window *w, const struct ablock *g,
				   const struct by_module *passing, uint8_t *used, uint32_t from)
{
	uint32_t module = g->owner ? g->owner : g->module;
	size_t first = first_of(passing, module);

	for (size_t i = first;
	     i < passing->n && i < first + LOOK && passing->all[i].module == module; i++) {
		uint32_t number = passing->all[i].number;

		if (used[number] || !block__same_size(w->blocks[number].size, g->size))
			continue;
		used[number] = 1;
		return w->blocks[number].gone + 1;
	}
	return from;
}

/*
 * True if a lasting block is the gradient of a parameter. A block without a name counts if backward
 * allocated it for a module with a parameter of that size. Gradients that share a storage do not
 * count, because they are only freed together.
 */
static bool is_gradient(const struct advising *a, const struct ablock *b,
			const struct by_module *parameters)
{
	size_t first = first_of(parameters, b->module);

	if (b->category)
		return b->category == CATEGORY_GRADIENT &&
		       !strstr(dict__str(a->d, b->name), " and ");
	if (!b->window || b->phase != PHASE_BACKWARD || !b->module)
		return false;
	for (size_t i = first;
	     i < parameters->n && i < first + LOOK && parameters->all[i].module == b->module; i++)
		if (block__same_size(a->t->lasting[parameters->all[i].number].size, b->size))
			return true;
	return false;
}

static int change_never(struct advising *a, const struct window *w, const struct places *at,
			struct changes *ch, struct found *f)
{
	struct by_module parameters = { 0 }, passing = { 0 };
	uint8_t *used = calloc((size_t)w->nblocks + 1, 1);
	int err = used ? index_parameters(a->t, &parameters) : -ENOMEM;
	const struct ablock *b;

	if (!err)
		err = index_passing(w, at->backward, &passing);
	for (uint32_t i = 0; !err && (b = track__lasting(a->t, &i));) {
		if (b->window >= w->number || !is_gradient(a, b, &parameters))
			continue;
		changes__add(ch, 0, changes__less(b->size), false);
		changes__add(ch, reallocation_place(w, b, &passing, used, at->backward),
			     (int64_t)b->size, false);
		f->never += b->size;
		f->n++;
	}
	free(used);
	free(parameters.all);
	free(passing.all);
	return err;
}

static int change_window(struct advising *a, const struct window *w, struct changes *ch,
			 struct found *f)
{
	struct places at = places_of(w);

	if (at.forward == NEVER || at.backward == NEVER || !w->stepped)
		return 0;
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		if (b->phase == PHASE_FORWARD && b->born == at.forward)
			f->stack = b->stack;
		if (!is_late(w, b, &at))
			continue;
		changes__absent(ch, b, 0, b->gone);
		f->late += b->size;
		f->n++;
	}
	return change_never(a, w, &at, ch, f);
}

int advice_gradients(struct advising *a)
{
	struct remedy r = { 0 };
	struct found most = { 0 };
	int err = 0;

	for (uint32_t i = 0; i < a->t->nkept && !err; i++) {
		struct found f = { 0 };

		err = change_window(a, &a->t->kept[i], &r.c[i], &f);
		if (f.late + f.never > most.late + most.never)
			most = f;
	}
	if (!err && most.n) {
		const char *plural = most.n == 1 ? "" : "s";
		char bytes[24];
		struct advice of = { .kind = ADVICE_GRADIENTS_LATE,
				     .figure = most.never ? ADVICE_ESTIMATE : ADVICE_EXACT };

		of.text = advice__format(
			"free gradients before forward: call optimizer.zero_grad(set_to_none=True) "
			"right after optimizer.step()");
		of.where = advice__line(a, most.stack);
		of.basis = advice__format(
			"%llu gradient%s with %s still live when the next forward begins%s",
			(unsigned long long)most.n, plural,
			text__bytes(bytes, 24, most.late + most.never),
			most.never ? ", and never freed" : "");
		err = remedy__advise(a, &r, &of);
	}
	remedy__free(&r);
	return err;
}
