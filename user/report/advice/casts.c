/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about parameters that autocast casts in each call of a module, while backward keeps all
 * casts. */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/text.h"

#define LEAST_EXTRA 3 /* least number of casts that live next to the first one */

/* A parameter of four bytes an element, and its casts to two bytes an element. */
struct cast {
	uint32_t module, name; /* numbers of the parameter's module and name in the dictionary */
	uint64_t size;	       /* size of one cast, bytes */
	uint32_t first_gone;   /* place where the first cast is freed; 0: no cast yet */
	uint32_t extra;	       /* number of casts since that live next to the first one */
	uint32_t stack;	       /* stack of the cast that made max_alive the largest */
	uint32_t max_alive;    /* largest value of extra in all windows */
};

struct casts {
	struct cast *all;
	size_t n, cap;
};

static int cmp_cast(const void *a, const void *b)
{
	const struct cast *x = a, *y = b;

	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->size < y->size ? -1 : x->size > y->size;
}

/* Lists the float32 parameters that the program's objects name, sorted for find_cast(). Returns 0
 * or -ENOMEM. */
static int list_parameters(const struct track *t, struct casts *casts)
{
	const struct ablock *block;

	for (uint32_t i = 0; (block = track__lasting(t, &i));) {
		if (block->category != CATEGORY_PARAMETER || block->item != sizeof(float) ||
		    !block->owner)
			continue;
		if (array__grow(&casts->all, &casts->cap, casts->n + 1, sizeof(*casts->all)))
			return -ENOMEM;
		casts->all[casts->n++] = (struct cast){ .module = block->owner,
							.name = block->name,
							.size = block->size / 2 }; /* in 16 bits */
	}
	if (casts->n)
		qsort(casts->all, casts->n, sizeof(*casts->all), cmp_cast);
	return 0;
}

/* Returns the parameter that a block may be a cast of: one of its module with twice its size. NULL:
 * none. */
static struct cast *find_cast(struct casts *casts, const struct ablock *b)
{
	struct cast key = { .module = b->module, .size = b->size };

	if (!b->born || !b->module || b->phase != PHASE_FORWARD || !casts->n)
		return NULL;
	return bsearch(&key, casts->all, casts->n, sizeof(*casts->all), cmp_cast);
}

/* Updates max_alive of each parameter for a window, and adds changes that remove all casts but the
 * first. Returns the number of removed casts. */
static uint64_t measure_casts(const struct window *w, struct casts *casts, struct changes *changes)
{
	uint64_t dropped = 0;

	for (size_t i = 0; i < casts->n; i++)
		casts->all[i].first_gone = casts->all[i].extra = 0;
	for (uint32_t i_block = 0; i_block < w->nblocks; i_block++) {
		const struct ablock *b = &w->blocks[i_block];
		struct cast *cast = find_cast(casts, b);

		if (!cast)
			continue;
		/* A cast after the end of the first one becomes the first one. */
		if (b->born > cast->first_gone) {
			cast->first_gone = b->gone;
			cast->extra = 0;
			continue;
		}
		if (++cast->extra > cast->max_alive) {
			cast->max_alive = cast->extra;
			cast->stack = b->stack;
		}
		changes__absent(changes, b, b->born, NEVER);
		dropped++;
	}
	return dropped;
}

int advice_casts(struct advising *a)
{
	struct casts casts = { 0 };
	struct remedy remedy = { 0 };
	const struct cast *worst = NULL;
	uint64_t dropped = 0;
	int err = list_parameters(a->t, &casts);

	for (uint32_t i = 0; i < a->t->nkept && !err && casts.n; i++)
		dropped += measure_casts(&a->t->kept[i], &casts, &remedy.c[i]);
	for (size_t i = 0; i < casts.n && !err; i++)
		if (!worst || casts.all[i].max_alive > worst->max_alive)
			worst = &casts.all[i];
	if (!err && dropped && worst->max_alive >= LEAST_EXTRA) {
		struct advice entry = { .kind = ADVICE_CASTS, .figure = ADVICE_UP_TO };
		char each[24];

		entry.text = advice__format("let autocast keep its casts (cache_enabled=True, the "
					    "default): parameters are cast again in each call, and "
					    "backward keeps all casts");
		entry.where = advice__line(a, worst->stack);
		entry.basis = advice__format(
			"%u blocks of %s at once, the size of %s in two bytes an "
			"element",
			worst->max_alive + 1, text__bytes(each, 24, worst->size),
			dict__str(a->d, worst->name));
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	free(casts.all);
	return err;
}
