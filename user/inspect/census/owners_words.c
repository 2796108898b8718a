/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Searches objects of classes in C word by word, such as iterators, futures and contexts. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "inspect/census/owners.h"
#include "inspect/python/pystr.h"

#define ITEMS_MAX 1024u /* pointers at the end of an object */

void census_owners__word(struct census_owners *l, uint64_t key, const char *before,
			 const char *after, char *word, size_t size)
{
	char text[64];
	bool is_text;

	pymem__begin_unchecked(&l->r->m); /* a str does not change */
	is_text = !pydict__check_kind(&l->r->m, key, PYTYPE_STR) &&
		  pystr__read(&l->r->m, key, text, sizeof(text), NULL) >= 0 && *text;
	pymem__end_unchecked(&l->r->m);
	if (!is_text)
		snprintf(word, size, "[*]");
	else
		snprintf(word, size, "%s%s%s", before, text, after);
}

/* Adds what a word of an object points to, if it may be an object. */
static int add_pointer(struct census_owners *l, const struct node *of, uint64_t word,
		       const char *after)
{
	struct child c = { .of = of };
	enum shape shape;
	uint64_t type;
	int err;

	if (word % 8 || word < LOWEST || word > HIGHEST || word == of->obj)
		return 0;
	err = census_owners__shape_of(l, word, &type, &shape);
	if (err || shape == SHAPE_NONE)
		return err;
	strcpy(c.word, shape == SHAPE_TRACEBACK ? "'s traceback" : after);
	return census_owners__add_found(l, &c, word);
}

/* The values of a context are in a tree: a variable and its value follow each other. */
static int add_variable(struct census_owners *l, const struct node *of, uint64_t var,
			uint64_t value)
{
	char word[72];
	uint64_t name;
	int err = pymem__u64(&l->r->m, var + l->r->m.l->ob_type + 8, &name);

	if (err)
		return err;
	census_owners__word(l, name, " ", "", word, sizeof(word));
	return add_pointer(l, of, value, word);
}

static int add_words(struct census_owners *l, const struct node *of, const uint64_t *w, uint64_t n,
		     unsigned skip)
{
	enum shape shape;
	uint64_t type;
	int err = 0;

	for (uint64_t i = 0; !err && i < n; i++) {
		if (i == skip || w[i] % 8 || w[i] < LOWEST || w[i] > HIGHEST)
			continue;
		err = census_owners__shape_of(l, w[i], &type, &shape);
		if (!err && shape == SHAPE_CONTEXT_VAR && i + 1 < n)
			err = add_variable(l, of, w[i], w[i + 1]), i++;
		else if (!err)
			err = add_pointer(l, of, w[i], of->shape == SHAPE_TENSOR ? "'s hooks" : "");
	}
	return err;
}

int census_owners__in_words(struct census_owners *l, const struct node *of,
			    const struct owner_type *t)
{
	uint64_t w[OWNER_WORDS_MAX + ITEMS_MAX], n = t->words, more = 0;
	int err = 0;

	pymem__begin_unchecked(&l->r->m);
	if (t->items && pymem__u64(&l->r->m, of->obj + l->r->m.l->ob_size, &more))
		more = 0;
	if (more < ITEMS_MAX)
		n += more;
	if (n)
		err = pymem__read(&l->r->m, census_owners__field(l, of, 0), w, n * sizeof(*w));
	pymem__end_unchecked(&l->r->m);
	return err || !n ? err : add_words(l, of, w, n, t->dict ? t->dict / 8 - 2 : UINT_MAX);
}
