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

/* Lists the float32 parameters that the program's objects name, for find_cast(). */
static int list_parameters(const struct track *t, struct casts *s)
{
	const struct ablock *b;

	for (uint32_t i = 0; (b = track__lasting(t, &i));) {
		if (b->category != CATEGORY_PARAMETER || b->item != 4 || !b->owner)
			continue;
		if (array__grow(&s->all, &s->cap, s->n + 1, sizeof(*s->all)))
			return -ENOMEM;
		s->all[s->n++] = (struct cast){ .module = b->owner,
						.name = b->name,
						.size = b->size / 2 };
	}
	if (s->n)
		qsort(s->all, s->n, sizeof(*s->all), cmp_cast);
	return 0;
}

/* Returns the parameter that a block may be a cast of; NULL: none. */
static struct cast *find_cast(struct casts *s, const struct ablock *b)
{
	struct cast key = { .module = b->module, .size = b->size };

	if (!b->born || !b->module || b->phase != PHASE_FORWARD || !s->n)
		return NULL;
	return bsearch(&key, s->all, s->n, sizeof(*s->all), cmp_cast);
}

/* Updates max_alive of each parameter for a window, and adds changes that remove all casts but the
 * first. Returns the number of removed casts. */
static uint64_t measure_casts(const struct window *w, struct casts *s, struct changes *c)
{
	uint64_t dropped = 0;

	for (size_t i = 0; i < s->n; i++)
		s->all[i].first_gone = s->all[i].extra = 0;
	for (uint32_t k = 0; k < w->nblocks; k++) {
		const struct ablock *b = &w->blocks[k];
		struct cast *cast = find_cast(s, b);

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
		changes__absent(c, b, b->born, NEVER);
		dropped++;
	}
	return dropped;
}

int advice_casts(struct advising *a)
{
	struct casts s = { 0 };
	struct remedy remedy = { 0 };
	const struct cast *worst = NULL;
	uint64_t dropped = 0;
	int err = list_parameters(a->t, &s);

	for (uint32_t i = 0; i < a->t->nkept && !err && s.n; i++)
		dropped += measure_casts(&a->t->kept[i], &s, &remedy.c[i]);
	for (size_t i = 0; i < s.n && !err; i++)
		if (!worst || s.all[i].max_alive > worst->max_alive)
			worst = &s.all[i];
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
	free(s.all);
	return err;
}
