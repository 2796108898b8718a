/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Allocations of one line are one symbol; where that says too little, those of one line and size.
 * A symbol is a candidate for the begin of a step if the allocations between its occurrences are
 * the same ones, in any order, most of the time. Sums of hashes compare them in O(1), so that all
 * symbols are judged in the time of one pass. Of several candidates the shortest period counts:
 * a line that comes each tenth step begins no step. But modules that are called in a row, such as
 * the layers of a model, have a period, too: see is_of_layers().
 */
#include "record/snapshot/period.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "record/dict.h"
#include "record/mtr.h"

#define STEPS_LEAST 4	    /* whole steps; fewer are no period */
#define STEPS_SURE 6	    /* for PERIOD_SURE */
#define ALLOCATIONS_LEAST 2 /* in a step */
#define SHORT 8		    /* allocations: of shorter steps, nearly all must be equal */
#define EVIDENCE_LEAST 16   /* allocations in all steps */
#define REPEATS_MOST 4	    /* occurrences in a step of the symbol that it begins with */
#define FEW_LINES 64
#define EACH_BYTES 32 /* memory for each allocation */
#define TRIES_MOST 16 /* periods whose frames are looked at */

struct symbols {
	const struct records *r;
	const struct value_list *trace;
	bool framed;  /* only allocations with a stack are looked at */
	size_t n;     /* allocations */
	uint32_t *at; /* index in the trace */
	uint32_t *symbol, *stack;
	uint32_t *by_stack; /* number of a stack's symbol, from 1 on; 0: none yet */
	uint64_t *sum;	    /* n + 1: hashes of the symbols before this one, added up */
	double *level;	    /* live bytes before it, from the begin of the trace on */
	size_t n_symbols;
	uint32_t *first; /* n_symbols + 1: index in order[] of the symbol's first occurrence */
	uint32_t *order; /* the allocations by symbol, each symbol's in order */
	size_t skipped;	 /* allocations that are left out before the first one */
};

/* Steps that begin with each `repeats`-th occurrence of a symbol. */
struct candidate {
	uint32_t symbol, repeats;
	uint64_t sum;	     /* of a step's symbols */
	uint32_t length;     /* allocations of a step */
	size_t from, number; /* first start, counted in starts from the last one; number of steps */
	size_t same;	     /* steps that are equal */
	uint64_t odd;	     /* allocations that the others have more or fewer */
	double level;	     /* mean of the live bytes at the starts */
};

/* ---- symbols ---- */

static void symbols__free(struct symbols *s)
{
	free(s->at);
	free(s->symbol);
	free(s->stack);
	free(s->by_stack);
	free(s->sum);
	free(s->level);
	free(s->first);
	free(s->order);
}

static const struct snapshot_entry *entry_at(const struct symbols *s, size_t i)
{
	value v = value_list__at(s->trace, i);

	return value__kind(v) == VALUE_ENTRY ? &s->r->entries[value__number(v)] : NULL;
}

static int make_room(struct symbols *s)
{
	size_t n = 0, with_stack = 0;
	int err;

	for (size_t i = 0; i < s->trace->n; i++) {
		const struct snapshot_entry *e = entry_at(s, i);

		n += e && e->action == ACTION_ALLOC;
		with_stack += e && e->action == ACTION_ALLOC && e->stack;
	}
	s->framed = with_stack > n / 2;
	n++;
	err = room__check_more(n * EACH_BYTES);
	if (err)
		return err;
	s->at = malloc(n * sizeof(*s->at));
	s->symbol = malloc(n * sizeof(*s->symbol));
	s->stack = malloc(n * sizeof(*s->stack));
	s->by_stack = calloc(s->r->n_nodes + 1, sizeof(*s->by_stack));
	s->sum = malloc(n * sizeof(*s->sum));
	s->level = malloc(n * sizeof(*s->level));
	s->order = malloc(n * sizeof(*s->order));
	return s->at && s->symbol && s->stack && s->by_stack && s->sum && s->level && s->order
		       ? 0
		       : -ENOMEM;
}

/* Sets *ret to the symbol's number, in order of the first occurrence. numbers: NULL: a stack is a
 * symbol. */
static int number_symbol(struct symbols *s, struct map64 *numbers, const struct snapshot_entry *e,
			 uint32_t *ret)
{
	uint64_t key = e->stack ^ hash__mix(e->size), number;

	if (!numbers) {
		if (!s->by_stack[e->stack])
			s->by_stack[e->stack] = ++s->n_symbols;
		*ret = s->by_stack[e->stack] - 1;
		return 0;
	}
	if (!map64__get(numbers, key, &number)) {
		number = s->n_symbols++;
		if (map64__set(numbers, key, number))
			return -ENOMEM;
	}
	*ret = (uint32_t)number;
	return 0;
}

/* Collects the allocations. numbers: as in number_symbol(). */
static int collect(struct symbols *s, struct map64 *numbers)
{
	double level = 0; /* sums of hostile sizes have no bound */

	s->n = s->n_symbols = s->skipped = 0;
	s->sum[0] = 0;
	for (size_t i = 0; i < s->trace->n; i++) {
		const struct snapshot_entry *e = entry_at(s, i);
		double size = e && e->size < UINT64_C(1) << 40 ? (double)e->size : 0;

		if (e && e->action == ACTION_FREE_REQUESTED)
			level -= size;
		if (!e || e->action != ACTION_ALLOC)
			continue;
		if (!s->framed || e->stack) {
			s->at[s->n] = (uint32_t)i;
			s->stack[s->n] = e->stack;
			s->level[s->n] = level;
			if (number_symbol(s, numbers, e, &s->symbol[s->n]))
				return -ENOMEM;
			s->sum[s->n + 1] = s->sum[s->n] + hash__mix(s->symbol[s->n] + UINT64_C(1));
			s->n++;
		} else if (!s->n) {
			s->skipped++;
		}
		level += size;
	}
	return 0;
}

static int sort_by_symbol(struct symbols *s)
{
	free(s->first);
	s->first = calloc(s->n_symbols + 2, sizeof(*s->first));
	if (!s->first)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++)
		s->first[s->symbol[i] + 2]++;
	for (size_t i = 2; i < s->n_symbols + 2; i++)
		s->first[i] += s->first[i - 1];
	/* first[k + 1] goes from the first place of symbol k to that of symbol k + 1. */
	for (size_t i = 0; i < s->n; i++)
		s->order[s->first[s->symbol[i] + 1]++] = (uint32_t)i;
	return 0;
}

static int read_symbols(struct symbols *s, bool sized)
{
	struct map64 *numbers = sized ? map64__new() : NULL;
	int err = sized && !numbers ? -ENOMEM : collect(s, numbers);

	map64__free(numbers);
	return err ? err : sort_by_symbol(s);
}

/* ---- candidates ---- */

/* Number of starts of a candidate, and the i-th one from the last, as an index of an allocation. */
static size_t count_starts(const struct symbols *s, const struct candidate *c)
{
	size_t n = s->first[c->symbol + 1] - s->first[c->symbol];

	return n ? (n - 1) / c->repeats + 1 : 0;
}

/* Index among the allocations of the candidate's start number `back`, counted from the last one. */
static uint32_t start_at(const struct symbols *s, const struct candidate *c, size_t back)
{
	return s->order[s->first[c->symbol + 1] - 1 - back * c->repeats];
}

/* Returns the step from the candidate's start number `back`, counted from the last one, to the next
 * start: the sum of its symbols' hashes, and *length, its allocations. */
static uint64_t step_at(const struct symbols *s, const struct candidate *c, size_t back,
			uint32_t *length)
{
	uint32_t from = start_at(s, c, back);
	uint32_t to = start_at(s, c, back - 1);

	*length = to - from;
	return s->sum[to] - s->sum[from];
}

/* Finds the step that more than half of them are equal to, if there is one. */
static void find_majority(const struct symbols *s, struct candidate *c, size_t starts)
{
	size_t votes = 0;
	uint32_t length;

	for (size_t i = starts - 1; i > 0; i--) {
		uint64_t sum = step_at(s, c, i, &length);

		if (!votes) {
			c->sum = sum;
			c->length = length;
		}
		votes += sum == c->sum ? 1 : -(size_t)1;
	}
}

/* Finds the first and the last of the equal steps, and judges all from the first to the last. */
static void judge_steps(const struct symbols *s, struct candidate *c, size_t starts)
{
	size_t last = 0;
	uint32_t length;

	c->from = c->same = c->odd = 0;
	for (size_t i = starts - 1; i > 0; i--) {
		if (step_at(s, c, i, &length) != c->sum)
			continue;
		c->from = c->from ? c->from : i;
		last = i;
		c->same++;
	}
	c->number = c->from ? c->from - last + 1 : 0;
	for (size_t i = c->from; c->from && i >= last; i--) {
		step_at(s, c, i, &length);
		c->odd += length > c->length ? length - c->length : c->length - length;
		c->level += s->level[start_at(s, c, i)] / (double)c->number;
	}
}

static bool is_regular(const struct candidate *c)
{
	return c->number && c->same * 2 > c->number &&
	       c->odd * 20 <= (uint64_t)c->number * c->length;
}

/* Equal sequences that keep most of their memory make something, such as a model's parameters. */
static bool keeps_memory(const struct symbols *s, const struct candidate *c)
{
	uint32_t from = start_at(s, c, c->from);
	uint32_t to = start_at(s, c, c->from - c->number);
	double grown = s->level[to] - s->level[from];
	double bytes = 0;

	for (uint32_t i = from; i < to; i++) {
		const struct snapshot_entry *e = entry_at(s, s->at[i]);

		bytes += e->size < UINT64_C(1) << 40 ? (double)e->size : 0;
	}
	return grown > bytes * 0.6;
}

/* True if a step can be what the candidate says. */
static bool is_step(const struct symbols *s, const struct candidate *c)
{

	if (!is_regular(c) || c->number < STEPS_LEAST || c->length < ALLOCATIONS_LEAST ||
	    (uint64_t)c->number * c->length < EVIDENCE_LEAST)
		return false;
	/* Sizes alone are weak evidence, and so are a few allocations: of such steps all, or 95 %,
	 * must be equal. */
	if (!s->framed && c->same != c->number)
		return false;
	if (c->length < SHORT)
		return c->same * 20 >= c->number * 19;
	return true;
}

/* Judges the symbol, and sets *c if steps may begin with it, or with each k-th of its
 * occurrences. */
static bool judge_symbol(const struct symbols *s, uint32_t symbol, struct candidate *c)
{
	for (uint32_t k = 1; k <= REPEATS_MOST; k++) {
		size_t starts;

		*c = (struct candidate){ .symbol = symbol, .repeats = k };
		starts = count_starts(s, c);
		if (starts < STEPS_LEAST + 1)
			return false;
		find_majority(s, c, starts);
		judge_steps(s, c, starts);
		/* Two periods in a row are not a longer period. */
		if (is_regular(c))
			return is_step(s, c);
	}
	return false;
}

/* By period; then the begin where least memory is live. */
static int shorter(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	if (x->sum != y->sum)
		return x->sum < y->sum ? -1 : 1;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	return x->symbol < y->symbol ? -1 : x->symbol > y->symbol;
}

/* Judges each symbol, and lists those that steps may begin with; *n: their number. */
static int find_candidates(const struct symbols *s, struct candidate **ret, size_t *n)
{
	struct candidate c;
	size_t cap = 0;

	*ret = NULL;
	*n = 0;
	for (uint32_t i = 0; i < s->n_symbols; i++) {
		if (!judge_symbol(s, i, &c))
			continue;
		if (array__grow(ret, &cap, *n + 1, sizeof(**ret)))
			return -ENOMEM;
		(*ret)[(*n)++] = c;
	}
	if (*n)
		qsort(*ret, *n, sizeof(**ret), shorter);
	return 0;
}

/* ---- frames ---- */

/* The i-th frame of a stack, outermost first. */
static struct dict_frame frame_of(const struct dict_stack *s, uint32_t i)
{
	return s->frames[s->n - 1 - i];
}

/* Number of outermost frames that two stacks have in common. */
static uint32_t count_common(const struct dict_stack *a, const struct dict_stack *b, uint32_t most)
{
	uint32_t n = 0;

	while (n < most && n < a->n && n < b->n && frame_of(a, n).loc == frame_of(b, n).loc)
		n++;
	return n;
}

/* Finds the frames that all allocations of a step have in common, *depth in number. mine: the
 * symbols in it. */
static struct dict_stack common_stack(const struct symbols *s, const struct candidate *c,
				      bool *mine, uint32_t *depth)
{
	uint32_t from = start_at(s, c, c->from);
	struct dict_stack all = dict__get_stack(s->r->dict, s->stack[from]);

	*depth = all.n;
	for (uint32_t i = from; i < from + c->length && i < s->n; i++) {
		struct dict_stack one = dict__get_stack(s->r->dict, s->stack[i]);

		if (mine[s->symbol[i]])
			continue;
		mine[s->symbol[i]] = true;
		*depth = count_common(&all, &one, *depth);
	}
	return all;
}

/* Number of outermost frames up to the first call of a module, 0: none. The frame after it is the
 * module's forward, and has to be common, too. */
static uint32_t first_module(const struct dict_stack *s, uint32_t depth)
{
	for (uint32_t i = 1; i < depth; i++)
		if (frame_of(s, i - 1).module)
			return i;
	return 0;
}

/* True if all steps are within one call of a module that calls something else as well, as a model
 * calls its embedding and then its layers. A data-parallel wrapper calls one module only. mine:
 * scratch, a flag for each symbol. */
static bool is_of_layers(const struct symbols *s, const struct candidate *c, bool *mine)
{
	struct dict_stack all;
	uint32_t depth, inside;

	if (!s->framed)
		return false;
	memset(mine, 0, s->n_symbols);
	all = common_stack(s, c, mine, &depth);
	inside = first_module(&all, depth);
	for (size_t i = 0; inside && i < s->n_symbols; i++) {
		struct dict_stack other = dict__get_stack(s->r->dict,
							  s->stack[s->order[s->first[i]]]);

		if (!mine[i] && count_common(&all, &other, inside) == inside)
			return true;
	}
	return false;
}

/* True if what comes after the last step also comes in steps. mine: scratch, a flag for each
 * symbol. */
static bool known_rest(const struct symbols *s, const struct candidate *c, bool *mine)
{
	uint32_t from = start_at(s, c, c->from);
	uint32_t to = start_at(s, c, c->from - c->number);

	memset(mine, 0, s->n_symbols);
	for (uint32_t i = from; i < to; i++)
		mine[s->symbol[i]] = true;
	for (size_t i = to; i < s->n; i++)
		if (!mine[s->symbol[i]])
			return false;
	return true;
}

/* ---- the choice ---- */

/* True if the steps are most of the trace, or go on until its end. Without frames, layers that a
 * model calls before something else must not be taken for steps. mine: scratch, a flag for each
 * symbol. */
static bool is_most(const struct symbols *s, const struct candidate *c, bool *mine)
{
	uint32_t from = start_at(s, c, c->from);
	uint32_t to = start_at(s, c, c->from - c->number);

	if (s->framed && (to - from) * (uint64_t)2 > s->n)
		return true;
	return known_rest(s, c, mine);
}

static bool same_period(const struct candidate *a, const struct candidate *b)
{
	return a->length == b->length && a->sum == b->sum;
}

/* Chooses among candidates in order of their periods. Returns NULL if none is one of steps. mine:
 * scratch, a flag for each symbol. */
static const struct candidate *choose(const struct symbols *s, const struct candidate *all,
				      size_t n, bool *mine)
{
	unsigned tries = 0;

	for (size_t i = 0; i < n && tries < TRIES_MOST; i++) {
		/* Without frames, the longest period: layers have a shorter one. */
		const struct candidate *c = &all[s->framed ? i : n - 1 - i];

		if (i && same_period(c, &all[s->framed ? i - 1 : n - i]))
			continue;
		/* The first one of the period has the least live memory. */
		if (!s->framed)
			while (c > all && same_period(c, c - 1))
				c--;
		tries++;
		if (is_most(s, c, mine) && !keeps_memory(s, c) && !is_of_layers(s, c, mine))
			return c;
	}
	return NULL;
}

/* Lists the starts of the candidate's steps, from its first one on, with the end of the last step.
 * Returns 0 or -ENOMEM. */
static int list_starts(const struct symbols *s, const struct candidate *c, struct period *ret)
{
	uint32_t first = start_at(s, c, c->from);
	uint32_t last = start_at(s, c, c->from - c->number); /* end of the last step */
	bool sure = s->framed && c->number >= STEPS_SURE && c->same * 10 >= c->number * 9;

	ret->starts = malloc((c->number + 1) * sizeof(*ret->starts));
	if (!ret->starts)
		return -ENOMEM;
	for (size_t i = 0; i <= c->number; i++)
		ret->starts[ret->n++] = s->at[start_at(s, c, c->from - i)];
	ret->confidence = sure ? PERIOD_SURE : PERIOD_LIKELY;
	ret->begins = !first && !s->skipped;
	/* Something else may come after the last step. */
	ret->ends = s->n - last >= c->length && s->n - last < 2 * (size_t)c->length;
	return 0;
}

static int find(struct symbols *s, bool sized, struct period *ret)
{
	const struct candidate *best = NULL;
	struct candidate *all = NULL;
	bool *mine = NULL;
	size_t n;
	int err = read_symbols(s, sized);

	if (err)
		return err;
	err = find_candidates(s, &all, &n);
	mine = err ? NULL : malloc(s->n_symbols + 1);
	if (mine)
		best = choose(s, all, n, mine);
	else
		err = -ENOMEM;
	if (best)
		err = list_starts(s, best, ret);
	free(mine);
	free(all);
	return err;
}

static int find_any(struct symbols *s, struct period *ret)
{
	int err = s->framed ? find(s, /*sized=*/false, ret) : 0;

	/* Sizes tell more where there are few lines. */
	if (err || ret->n || (s->framed && s->n_symbols >= FEW_LINES))
		return err;
	return find(s, /*sized=*/true, ret);
}

int period__find(const struct records *r, const struct value_list *trace, struct period *ret)
{
	struct symbols s = { .r = r, .trace = trace };
	int err;

	*ret = (struct period){ .confidence = PERIOD_UNKNOWN };
	if (trace->n >= UINT32_MAX)
		return 0;
	err = make_room(&s) ?: find_any(&s, ret);
	symbols__free(&s);
	return err;
}

void period__free(struct period *p)
{
	free(p->starts);
	*p = (struct period){ .confidence = PERIOD_UNKNOWN };
}
