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

#define SEARCH_MAX 256 /* most blocks of a module that one search examines */

/* Places of a window's first allocation in forward, and of the first in backward after it; NEVER:
 * none. */
struct places {
	uint32_t forward, backward;
};

/* Finds the first allocation of forward, and the first one of backward after it. */
static struct places places_of(const struct window *w)
{
	struct places places = { NEVER, NEVER };

	for (uint32_t place = 1;
	     place <= w->n && (places.forward == NEVER || places.backward == NEVER); place++) {
		const struct ablock *b = &w->blocks[window__block_no(w, place)];

		if (window__is_free(w, place))
			continue;
		if (b->phase == PHASE_FORWARD && places.forward == NEVER)
			places.forward = place;
		if (b->phase == PHASE_BACKWARD && places.forward != NEVER &&
		    places.backward == NEVER)
			places.backward = place;
	}
	return places;
}

/* Gradients that are live when a forward begins. */
struct found {
	uint64_t late;	/* bytes freed after the forward began */
	uint64_t never; /* bytes never freed */
	uint64_t n;	/* number of these gradients */
	uint32_t stack; /* stack of the forward's first allocation; 0: none */
};

/* True for a block that backward allocated before this window, and that is freed after the window's
 * forward began. */
static bool is_late(const struct window *w, const struct ablock *b, const struct places *at)
{
	return !b->born && b->window && w->stepped && b->phase == PHASE_BACKWARD &&
	       b->gone != NEVER && b->gone > at->forward && b->category != CATEGORY_PARAMETER &&
	       b->category != CATEGORY_OPTIMIZER_STATE && b->category != CATEGORY_BUFFER;
}

/* Blocks sorted by module, then by number. */
struct by_module {
	struct entry {
		uint32_t module, number; /* number: index of the block */
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

/* Returns the index of a module's first entry, or the index where it would be. */
static size_t find_first(const struct by_module *index, uint32_t module)
{
	size_t low = 0, high = index->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (index->all[mid].module < module)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Indexes the parameters among t->lasting. Returns 0 or -ENOMEM. */
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

/* Indexes the temporaries of backward: blocks that backward allocates at place `from` or later and
 * that are freed within the window. Returns 0 or -ENOMEM. */
static int index_temporaries(const struct window *w, uint32_t from, struct by_module *ret)
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
 * Returns the place where a parameter's gradient would be allocated again if it had been freed.
 * Backward allocates a temporary of its size for its module, adds it to the existing gradient and
 * frees it. Without that gradient, the temporary would stay. used: temporaries that were returned
 * before. from: the result if there is no such temporary.
 */
static uint32_t reallocation_place(const struct window *w, const struct ablock *gradient,
				   const struct by_module *temporaries, uint8_t *used,
				   uint32_t from)
{
	uint32_t module = gradient->owner ? gradient->owner : gradient->module;
	size_t first = find_first(temporaries, module);

	for (size_t i = first;
	     i < temporaries->n && i < first + SEARCH_MAX && temporaries->all[i].module == module;
	     i++) {
		uint32_t number = temporaries->all[i].number;

		if (used[number] || !block__same_size(w->blocks[number].size, gradient->size))
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
	size_t first = find_first(parameters, b->module);

	if (b->category)
		return b->category == CATEGORY_GRADIENT && /* "grad of w and 3 more" */
		       !strstr(dict__str(a->d, b->name), " and ");
	if (!b->window || b->phase != PHASE_BACKWARD || !b->module)
		return false;
	for (size_t i = first;
	     i < parameters->n && i < first + SEARCH_MAX && parameters->all[i].module == b->module;
	     i++)
		if (block__same_size(a->t->lasting[parameters->all[i].number].size, b->size))
			return true;
	return false;
}

/* Adds changes for the gradients that are never freed: each is absent from the start of the step
 * until backward allocates it again. Adds their bytes and number to *found. Returns 0 or -ENOMEM. */
static int change_never_freed(struct advising *a, const struct window *w, const struct places *at,
			      struct changes *changes, struct found *found)
{
	struct by_module parameters = { 0 }, temporaries = { 0 };
	uint8_t *used = calloc((size_t)w->nblocks + 1, 1);
	int err = used ? index_parameters(a->t, &parameters) : -ENOMEM;
	const struct ablock *block;

	if (!err)
		err = index_temporaries(w, at->backward, &temporaries);
	for (uint32_t i = 0; !err && (block = track__lasting(a->t, &i));) {
		/* A gradient that this window or a later one allocated is not live at its start.
		 * The last window frees gradients of the one before: is_late() has seen these. */
		if (block->window >= w->number ||
		    (block->gone != NEVER && w->number == a->t->number) ||
		    !is_gradient(a, block, &parameters))
			continue;
		changes__add(changes, START_OF_STEP, changes__less(block->size), /*once=*/false);
		changes__add(changes,
			     reallocation_place(w, block, &temporaries, used, at->backward),
			     (int64_t)block->size, /*once=*/false);
		found->never += block->size;
		found->n++;
	}
	free(used);
	free(parameters.all);
	free(temporaries.all);
	return err;
}

/* Adds the changes to a window if all gradients are freed before forward. *found: these gradients.
 * Returns 0 or -ENOMEM. */
static int change_window(struct advising *a, const struct window *w, struct changes *changes,
			 struct found *found)
{
	struct places at = places_of(w);

	if (at.forward == NEVER || at.backward == NEVER || !w->stepped)
		return 0;
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		if (b->phase == PHASE_FORWARD && b->born == at.forward)
			found->stack = b->stack;
		if (!is_late(w, b, &at))
			continue;
		changes__absent(changes, b, START_OF_STEP, b->gone);
		found->late += b->size;
		found->n++;
	}
	return change_never_freed(a, w, &at, changes, found);
}

int advice_gradients(struct advising *a)
{
	struct remedy remedy = { 0 };
	struct found most = { 0 };
	int err = 0;

	for (uint32_t i = 0; i < a->t->nkept && !err; i++) {
		struct found found = { 0 };

		err = change_window(a, &a->t->kept[i], &remedy.c[i], &found);
		if (found.late + found.never > most.late + most.never)
			most = found;
	}
	if (!err && most.n) {
		const char *plural = most.n == 1 ? "" : "s";
		char bytes[24];
		struct advice entry = { .kind = ADVICE_GRADIENTS_LATE,
					.figure = most.never ? ADVICE_ESTIMATE : ADVICE_EXACT };

		entry.text = advice__format(
			"free gradients before forward: call optimizer.zero_grad(set_to_none=True) "
			"right after optimizer.step()");
		entry.where = advice__line(a, most.stack);
		entry.basis = advice__format(
			"%llu gradient%s with %s still live when the next forward begins%s",
			(unsigned long long)most.n, plural,
			text__bytes(bytes, 24, most.late + most.never),
			most.never ? ", and never freed" : "");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	return err;
}
