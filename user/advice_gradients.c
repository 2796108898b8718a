/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Gradients that are there when the next forward begins: zero_grad() comes after it, or sets them to zero instead of giving them
 * back. From the step to the forward there is nothing that needs them; with set_to_none=True each comes anew where backward makes it.
 */
#include "advice_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNSPLIT (UINT64_C(1) << 20) /* a block of more than this may have as much beyond what was asked for */

static bool as_large(uint64_t a, uint64_t b)
{
	return a == b || (a > UNSPLIT && b > UNSPLIT && (a > b ? a - b : b - a) <= UNSPLIT);
}

/* Places in a window; NEVER: there is none. */
struct places {
	uint32_t forward, backward; /* first allocation in that phase */
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
	uint64_t late, never, n; /* bytes given back late, bytes never given back; blocks */
	uint32_t stack;		 /* of a forward that they live into, 0: none */
};

/* Made in a backward before this step, and given back after its forward began. */
static bool is_late(const struct window *w, const struct ablock *b, const struct places *at)
{
	return !b->born && b->window && w->stepped && b->phase == PHASE_BACKWARD && b->gone != NEVER && b->gone > at->forward &&
	       b->category != CATEGORY_PARAMETER && b->category != CATEGORY_OPTIMIZER_STATE && b->category != CATEGORY_BUFFER;
}

/*
 * Where the gradient of a parameter would come anew: backward makes a block of its size in the parameter's module, adds it to what is
 * there, and gives it back; with nothing there it would stay. Each is taken once.
 */
static uint32_t comes_anew(const struct window *w, const struct ablock *g, uint32_t from, uint8_t *taken)
{
	for (uint32_t p = from; p <= w->n; p++) {
		uint32_t number = w->moves[p] >> 1;
		const struct ablock *b = &w->blocks[number];

		if (w->moves[p] & 1 || taken[number] || b->phase != PHASE_BACKWARD || !as_large(b->size, g->size) || b->module != (g->owner ? g->owner : g->module) ||
		    b->gone == NEVER)
			continue;
		taken[number] = 1;
		return b->gone + 1;
	}
	return from;
}

/*
 * Is a block that stays the gradient of a parameter? Where nothing names it: backward made it in the module of a parameter that is as large.
 */
static bool is_gradient(const struct advising *a, const struct ablock *b)
{
	const struct ablock *p;

	if (b->category)
		return b->category == CATEGORY_GRADIENT && !strstr(dict__str(a->d, b->name), " and ");
	if (!b->window || b->phase != PHASE_BACKWARD || !b->module)
		return false;
	for (uint32_t i = 0; (p = track__lasting(a->t, &i));)
		if (p->category == CATEGORY_PARAMETER && p->owner == b->module && as_large(p->size, b->size))
			return true;
	return false;
}

static int change_never(struct advising *a, const struct window *w, const struct places *at, struct changes *ch, struct found *f)
{
	uint8_t *taken = calloc((size_t)w->nblocks + 1, 1);
	const struct ablock *b;

	if (!taken)
		return -ENOMEM;
	for (uint32_t i = 0; (b = track__lasting(a->t, &i));) {
		uint32_t again;

		/* Several in one storage are given back all together, or not at all. */
		if (b->window >= w->number || !is_gradient(a, b))
			continue;
		again = comes_anew(w, b, at->backward, taken);
		changes__add(ch, 0, -(int64_t)b->size, false);
		changes__add(ch, again, (int64_t)b->size, false);
		f->never += b->size;
		f->n++;
	}
	free(taken);
	return 0;
}

static int change_window(struct advising *a, const struct window *w, struct changes *ch, struct found *f)
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

int advise_gradients(struct advising *a)
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
		char bytes[24];
		struct advice of = { .kind = ADVICE_GRADIENTS_LATE, .figure = most.never ? ADVICE_ESTIMATE : ADVICE_EXACT };

		of.text = advice__say("gradients away before forward: optimizer.zero_grad(set_to_none=True) right after optimizer.step()");
		of.where = advice__line(a, most.stack);
		of.basis = advice__say("%llu gradients with %s are there when the next forward begins%s", (unsigned long long)most.n,
				       advice__bytes(bytes, most.late + most.never),
				       most.never ? ", and are never given back" : "");
		err = remedy__advise(a, &r, &of);
	}
	remedy__free(&r);
	return err;
}
