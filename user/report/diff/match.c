/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/diff/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "report/diff/match_internal.h"

/* Old lines times new lines of a function. Above this, lines pair by number alone. */
#define MAX_PAIRS (UINT64_C(1) << 20)
#define MAX_WORK (UINT64_C(1) << 24) /* the same limit over all functions */

struct match *match__new(const char *old_cwd, const char *new_cwd)
{
	struct match *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->cwd[MATCH_OLD] = old_cwd;
	m->cwd[MATCH_NEW] = new_cwd;
	m->seed = hash__seed();
	m->strings = map64__new();
	m->by_place = map64__new();
	m->known = map64__new();
	if (!m->strings || !m->by_place || !m->known) {
		match__free(m);
		errno = ENOMEM;
		return NULL;
	}
	return m;
}

void match__free(struct match *m)
{
	if (!m)
		return;
	map64__free(m->strings);
	map64__free(m->by_place);
	map64__free(m->known);
	free(m->text);
	free(m->lines);
	free(m->things);
	free(m->file_of);
	free(m->renamed);
	free(m);
}

uint64_t match__hash(const struct match *m, const char *s, uint64_t more)
{
	return hash__u64(m->seed, hash__bytes(m->seed, s ? s : "", s ? strlen(s) : 0) ^
					  more * UINT64_C(0x9e3779b97f4a7c15));
}

/* Number of a string; equal strings of both sides have the same number. */
static int intern(struct match *m, const char *s, uint32_t *ret)
{
	uint64_t key = hash__bytes(m->seed, s, strlen(s)), found;
	int err;

	if (map64__get(m->strings, key, &found)) {
		*ret = (uint32_t)found;
		return 0;
	}
	err = array__grow(&m->text, &m->room_text, m->ntext + 1, sizeof(*m->text));
	if (!err)
		err = map64__set(m->strings, key, m->ntext);
	if (err)
		return err;
	m->text[m->ntext] = s;
	*ret = (uint32_t)m->ntext++;
	return 0;
}

static uint64_t place(const struct match *m, enum match_side side, uint32_t file, uint32_t func,
		      uint32_t line)
{
	uint32_t key[4] = { side, file, func, line };

	return hash__bytes(m->seed, key, sizeof(key));
}

static int add_line(struct match *m, enum match_side side, uint32_t file, uint32_t func,
		    uint32_t line, uint32_t *ret)
{
	uint64_t key = place(m, side, file, func, line), found;
	int err;

	if (map64__get(m->by_place, key, &found)) {
		*ret = (uint32_t)found;
		return 0;
	}
	err = m->n >= UINT32_MAX - 1
		      ? -ENOMEM
		      : array__grow(&m->lines, &m->room, m->n + 1, sizeof(*m->lines));
	if (!err)
		err = map64__set(m->by_place, key, m->n);
	if (err)
		return err;
	m->lines[m->n] = (struct match_line){
		.side = side, .file = file, .func = func, .line = line
	};
	*ret = (uint32_t)m->n++;
	return 0;
}

/* Adds an action of a line once. */
static int add_thing(struct match *m, uint32_t line, uint64_t hash, bool detail)
{
	uint64_t key = hash__u64(m->seed, hash ^ (uint64_t)line << 1 ^ detail), old;
	bool had;
	int err = map64__swap(m->known, key, 1, &had, &old);

	if (err || had)
		return err;
	err = array__grow(&m->things, &m->room_things, m->nthings + 1, sizeof(*m->things));
	if (!err)
		m->things[m->nthings++] = (struct match_thing){ .hash = hash,
								.line = line,
								.detail = detail };
	return err;
}

int match__add(struct match *m, enum match_side side, const char *file, const char *func,
	       uint32_t line, uint64_t does, uint64_t detail)
{
	uint32_t file_id, func_id, id;
	int err = intern(m, file ? file : "", &file_id);

	if (!err)
		err = intern(m, func ? func : "", &func_id);
	if (!err)
		err = add_line(m, side, file_id, func_id, line, &id);
	if (!err)
		err = add_thing(m, id, does, false);
	if (!err && detail)
		err = add_thing(m, id, detail, true);
	return err;
}

static int cmp_thing(const void *a, const void *b)
{
	const struct match_thing *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	if (x->detail != y->detail)
		return x->detail ? 1 : -1;
	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* A line with very many actions keeps those with the smallest hashes, which are the same on both
 * sides. */
static void give_things(struct match *m)
{
	if (m->nthings)
		qsort(m->things, m->nthings, sizeof(*m->things), cmp_thing);
	for (size_t i = 0; i < m->nthings; i++) {
		struct match_line *l = &m->lines[m->things[i].line];
		bool detail = m->things[i].detail;

		if (!l->n[detail])
			l->first[detail] = i;
		if (l->n[detail] < MATCH_THINGS)
			l->n[detail]++;
	}
}

static unsigned shared(const struct match *m, const struct match_line *a,
		       const struct match_line *b, bool detail)
{
	const struct match_thing *x = m->things + a->first[detail],
				 *y = m->things + b->first[detail];
	unsigned n = 0;

	for (unsigned i = 0, k = 0; i < a->n[detail] && k < b->n[detail];) {
		n += x[i].hash == y[k].hash;
		if (x[i].hash < y[k].hash)
			i++;
		else if (x[i].hash > y[k].hash)
			k++;
		else
			i++, k++;
	}
	return n;
}

/* Weights of a pair of lines: a common action, its share of all actions, the share of details, the
 * same shift as the previous pair, and no shift. Among equals the nearer line wins. */
#define WEIGHT INT64_C(4096)
#define WEIGHT_PAIR (2 * WEIGHT)
#define WEIGHT_DETAIL 4
#define WEIGHT_FOLLOWS (1 * WEIGHT)
#define WEIGHT_UNMOVED (1 * WEIGHT)
#define FAR 1000

static int64_t part(unsigned n, unsigned a, unsigned b)
{
	return n ? n * WEIGHT / (a > b ? a : b) : 0;
}

static int64_t weigh(const struct match *m, const struct match_line *old,
		     const struct match_line *new)
{
	unsigned n = shared(m, old, new, false);
	int64_t shift = (int64_t) new->line - (int64_t)old->line, far = shift < 0 ? -shift : shift;

	if (!n)
		return 0;
	return WEIGHT_PAIR + part(n, old->n[0], new->n[0]) +
	       WEIGHT_DETAIL * part(shared(m, old, new, true), old->n[1], new->n[1]) +
	       (shift ? 0 : WEIGHT_UNMOVED) - (far < FAR ? far : FAR);
}

struct span { /* lines of a function, as index ranges in order[] */
	size_t old, old_end, new, new_end;
};

struct candidate { /* a pair, and the best sequence of pairs that ends with it */
	uint32_t old, new;
	uint32_t before1; /* 1 + the previous pair; 0: none */
	int64_t sum;
};

struct aligner {
	struct match *m;
	const uint32_t *order;
	uint64_t work;
	struct candidate *c;
	size_t n, room;
};

static struct match_line *line_at(const struct aligner *a, size_t i)
{
	return &a->m->lines[a->order[i]];
}

static void pair(struct aligner *a, size_t old, size_t new)
{
	line_at(a, old)->mate1 = a->order[new] + 1;
	line_at(a, new)->mate1 = a->order[old] + 1;
}

static void pair_unmoved(struct aligner *a, struct span s)
{
	while (s.old < s.old_end && s.new < s.new_end) {
		const struct match_line *old = line_at(a, s.old), *new = line_at(a, s.new);

		if (old->line == new->line && weigh(a->m, old, new))
			pair(a, s.old, s.new);
		s.old += old->line <= new->line;
		s.new += new->line <= old->line;
	}
}

static int64_t sum_of(const struct aligner *a, uint32_t c1)
{
	return c1 ? a->c[c1 - 1].sum : 0;
}

/* Adds a pair with the best sequence that ends with it. It follows the best sequence so far, or the
 * last pair with the same shift. */
static int add_candidate(struct aligner *a, struct map64 *by_shift, size_t old, size_t new,
			 int64_t weight, uint32_t best1)
{
	uint64_t shift = (uint64_t)((int64_t)line_at(a, new)->line -
				    (int64_t)line_at(a, old)->line),
		 last1 = 0;
	struct candidate c = { .old = (uint32_t)old,
			       .new = (uint32_t) new,
			       .before1 = best1,
			       .sum = sum_of(a, best1) + weight };
	int err = array__grow(&a->c, &a->room, a->n + 1, sizeof(*a->c));

	if (err)
		return err;
	if (map64__get(by_shift, shift, &last1) &&
	    sum_of(a, (uint32_t)last1) + WEIGHT_FOLLOWS > sum_of(a, best1)) {
		c.before1 = (uint32_t)last1;
		c.sum = sum_of(a, (uint32_t)last1) + WEIGHT_FOLLOWS + weight;
	}
	a->c[a->n++] = c;
	return !last1 || sum_of(a, (uint32_t)last1) < c.sum ? map64__set(by_shift, shift, a->n) : 0;
}

/* best[k]: the best sequence of pairs over the old lines so far and the first k new ones. */
static int fill(struct aligner *a, struct span s, struct map64 *by_shift, uint32_t *best)
{
	int err = 0;

	for (size_t i = s.old; i < s.old_end; i++) {
		/* Previous line, up to the previous new line; this line. */
		uint32_t above1 = 0, left1 = 0;

		for (size_t k = s.new; k < s.new_end; k++) {
			uint32_t *here = &best[k - s.new + 1];
			int64_t w = weigh(a->m, line_at(a, i), line_at(a, k));

			err = w ? add_candidate(a, by_shift, i, k, w, above1) : 0;
			if (err)
				return err;
			above1 = *here;
			if (w && sum_of(a, (uint32_t)a->n) > sum_of(a, *here))
				*here = (uint32_t)a->n;
			if (sum_of(a, left1) > sum_of(a, *here))
				*here = left1;
			left1 = *here;
		}
	}
	return 0;
}

/* Pairs the lines of one function, in order, with the largest sum of weights. */
static int align(struct aligner *a, struct span s)
{
	uint64_t pairs = (uint64_t)(s.old_end - s.old) * (s.new_end - s.new);
	size_t n = s.new_end - s.new;
	struct map64 *by_shift;
	uint32_t *best;
	int err;

	if (!pairs)
		return 0;
	if (pairs > MAX_PAIRS || a->work + pairs > MAX_WORK) {
		pair_unmoved(a, s);
		return 0;
	}
	a->work += pairs;
	a->n = 0;
	best = calloc(n + 1, sizeof(*best));
	by_shift = map64__new();
	err = best && by_shift ? fill(a, s, by_shift, best) : -ENOMEM;
	for (uint32_t c1 = err ? 0 : best[n]; c1; c1 = a->c[c1 - 1].before1)
		pair(a, a->c[c1 - 1].old, a->c[c1 - 1].new);
	map64__free(by_shift);
	free(best);
	return err;
}

static int cmp_order(const void *pa, const void *pb, void *ctx)
{
	const struct match *m = ctx;
	const struct match_line *a = &m->lines[*(const uint32_t *)pa],
				*b = &m->lines[*(const uint32_t *)pb];
	uint32_t fa = match__file(m, a), fb = match__file(m, b);

	if (fa != fb)
		return fa < fb ? -1 : 1;
	if (a->func != b->func)
		return a->func < b->func ? -1 : 1;
	if (a->side != b->side)
		return a->side < b->side ? -1 : 1;
	return a->line < b->line ? -1 : a->line > b->line;
}

/* Lines of one function name in paired files, from order[at] on. new_end is where the next function
 * starts. */
static struct span function_at(const struct aligner *a, size_t at)
{
	const struct match_line *first = line_at(a, at);
	struct span s = { at, at, at, at };

	for (size_t i = at; i < a->m->n; i++) {
		const struct match_line *l = line_at(a, i);

		if (match__file(a->m, l) != match__file(a->m, first) || l->func != first->func)
			break;
		if (l->side == MATCH_OLD)
			s.old_end = s.new = i + 1;
		s.new_end = i + 1;
	}
	return s;
}

int match__settle(struct match *m)
{
	uint32_t *order = malloc((m->n + 1) * sizeof(*order));
	struct aligner a = { .m = m, .order = order };
	int err = order ? match__pair_files(m) : -ENOMEM;

	for (size_t i = 0; i < m->n && !err; i++)
		order[i] = (uint32_t)i;
	if (!err) {
		give_things(m);
		qsort_r(order, m->n, sizeof(*order), cmp_order, m);
	}
	for (size_t i = 0; i < m->n && !err;) {
		struct span s = function_at(&a, i);

		err = align(&a, s);
		i = s.new_end;
	}
	free(a.c);
	free(order);
	return err;
}

uint32_t match__number(const struct match *m, enum match_side side, const char *file,
		       const char *func, uint32_t line)
{
	uint64_t file_id, func_id, found;
	const struct match_line *l;

	file = file ? file : "";
	func = func ? func : "";
	if (!map64__get(m->strings, hash__bytes(m->seed, file, strlen(file)), &file_id) ||
	    !map64__get(m->strings, hash__bytes(m->seed, func, strlen(func)), &func_id) ||
	    !map64__get(m->by_place, place(m, side, (uint32_t)file_id, (uint32_t)func_id, line),
			&found))
		return 0;
	l = &m->lines[found];
	return l->side == MATCH_NEW && l->mate1 ? l->mate1 : (uint32_t)found + 1;
}

size_t match__renamed(const struct match *m, const struct match_files **ret)
{
	*ret = m->renamed;
	return m->nrenamed;
}
