/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/diff/match.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"

struct map64;

#define MATCH_THINGS 32 /* most actions and most details of a line that are compared */

struct match_line {
	uint32_t file, func, line; /* file, func: string numbers */
	uint32_t mate1;		   /* 1 + its partner; 0: none */
	size_t first[2];	   /* in things: first action, first detail */
	uint8_t n[2], side;
};

struct match_thing {
	uint64_t hash;
	uint32_t line;
	bool detail;
};

struct match {
	const char *cwd[MATCH_SIDES];
	struct hash_seed seed;
	struct map64 *strings;	/* hash -> string number */
	struct map64 *by_place; /* hash of side, file, function and line -> index in lines */
	struct map64 *known;	/* hashes of (line, action) that things already has */
	const char **text;	/* strings by number */
	size_t ntext, room_text;
	struct match_line *lines;
	size_t n, room;
	struct match_thing *things;
	size_t nthings, room_things;
	/* By string number: the old file that a new file is paired with, or the file itself. NULL:
	 * not settled. */
	uint32_t *file_of;
	struct match_files *renamed;
	size_t nrenamed, room_renamed;
};

static uint32_t settled_file(const struct match *m, const struct match_line *l)
{
	return l->side == MATCH_NEW ? m->file_of[l->file] : l->file;
}

/* ---- files whose paths differ between the versions ---- */

/* Old files times new files of one name. Above this, they stay unpaired. */
#define MAX_GROUP (UINT64_C(1) << 16)

struct place { /* a function of a file */
	uint32_t file, func;
	uint8_t side;
};

struct file {
	uint32_t file;
	uint8_t side;
	bool taken;
	uint64_t base; /* hash of the file name */
	const struct place *funcs;
	size_t nfuncs;
};

static int cmp_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->side != y->side)
		return x->side < y->side ? -1 : 1;
	return x->func < y->func ? -1 : x->func > y->func;
}

static int cmp_file(const void *pa, const void *pb, void *ctx)
{
	const struct file *a = pa, *b = pb;
	const struct match *m = ctx;

	if (a->base != b->base)
		return a->base < b->base ? -1 : 1;
	if (a->side != b->side)
		return a->side < b->side ? -1 : 1;
	return strcmp(m->text[a->file], m->text[b->file]);
}

static int cmp_renamed(const void *a, const void *b)
{
	const struct match_files *x = a, *y = b;

	return strcmp(x->old, y->old);
}

static uint64_t base_of(const struct match *m, uint32_t file)
{
	const char *path = m->text[file], *slash = strrchr(path, '/');

	return match__hash(m, slash ? slash + 1 : path, 0);
}

/* Number of common path components at the end. */
static uint64_t alike(const char *a, const char *b)
{
	const char *x = a + strlen(a), *y = b + strlen(b);
	uint64_t n = 0;

	while (x > a && y > b && x[-1] == y[-1]) {
		x--;
		y--;
		n += *x == '/';
	}
	return n + ((x == a || x[-1] == '/') && (y == b || y[-1] == '/') && *x != '/');
}

static const char *below(const char *path, const char *cwd)
{
	size_t len = cwd ? strlen(cwd) : 0;

	while (len && cwd[len - 1] == '/')
		len--;
	return len && !strncmp(path, cwd, len) && path[len] == '/' ? path + len + 1 : NULL;
}

/* Weight of a pair: the same path below the programs' folders, then common path components, then
 * common functions. 0: no common function. */
static uint64_t score(const struct match *m, const struct file *old, const struct file *new)
{
	const char *a = m->text[old->file], *b = m->text[new->file];
	const char *in_a = below(a, m->cwd[MATCH_OLD]), *in_b = below(b, m->cwd[MATCH_NEW]);
	uint64_t funcs = 0;

	for (size_t i = 0, k = 0; i < old->nfuncs && k < new->nfuncs;) {
		uint32_t x = old->funcs[i].func, y = new->funcs[k].func;

		funcs += x == y;
		i += x <= y;
		k += y <= x;
	}
	if (!funcs)
		return 0;
	return (uint64_t)(in_a && in_b && !strcmp(in_a, in_b)) << 40 | alike(a, b) << 20 |
	       (funcs < 0xfffff ? funcs : 0xfffff);
}

static int add_pair(struct match *m, struct file *old, struct file *new)
{
	int err = array__grow(&m->renamed, &m->room_renamed, m->nrenamed + 1, sizeof(*m->renamed));

	if (err)
		return err;
	old->taken = new->taken = true;
	m->file_of[new->file] = old->file;
	m->renamed[m->nrenamed++] = (struct match_files){ m->text[old->file], m->text[new->file] };
	return 0;
}

/* Index of the best partner. SIZE_MAX: none, or two are equally good. */
static size_t best(const uint64_t *scores, size_t n, size_t step, const struct file *of)
{
	size_t found = SIZE_MAX;
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t s = of[i].taken ? 0 : scores[i * step];

		if (s && s == most)
			found = SIZE_MAX;
		if (s > most) {
			most = s;
			found = i;
		}
	}
	return found;
}

/* Pairs files of one name that are each other's best partner, then repeats with the rest. */
static int pair_group(struct match *m, struct file *old, size_t nold, struct file *new, size_t nnew)
{
	bool more = nold && nnew && (uint64_t)nold * nnew <= MAX_GROUP;
	uint64_t *scores = more ? malloc(nold * nnew * sizeof(*scores)) : NULL;
	int err = more && !scores ? -ENOMEM : 0;

	if (!scores)
		return err;
	for (size_t i = 0; i < nold * nnew; i++)
		scores[i] = score(m, &old[i / nnew], &new[i % nnew]);
	while (more && !err) {
		more = false;
		for (size_t i = 0; i < nold && !err; i++) {
			size_t k = old[i].taken ? SIZE_MAX : best(scores + i * nnew, nnew, 1, new);

			if (k == SIZE_MAX || best(scores + k, nold, nnew, old) != i)
				continue;
			err = add_pair(m, &old[i], &new[k]);
			more = true;
		}
	}
	free(scores);
	return err;
}

/* The files that only one side has. places must be sorted. */
static size_t unpaired_files(const struct match *m, const struct place *p, size_t n,
			     struct file *files)
{
	size_t nfiles = 0;

	for (size_t i = 0; i < n;) {
		size_t end = i + 1;

		while (end < n && p[end].file == p[i].file)
			end++;
		if (p[i].side == p[end - 1].side)
			files[nfiles++] = (struct file){ .file = p[i].file,
							 .side = p[i].side,
							 .base = base_of(m, p[i].file),
							 .funcs = p + i,
							 .nfuncs = end - i };
		i = end;
	}
	return nfiles;
}

static size_t unique_places(const struct match *m, struct place *p)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		p[i] = (struct place){ m->lines[i].file, m->lines[i].func, m->lines[i].side };
	if (m->n)
		qsort(p, m->n, sizeof(*p), cmp_place);
	for (size_t i = 0; i < m->n; i++)
		if (!n || cmp_place(&p[n - 1], &p[i]))
			p[n++] = p[i];
	return n;
}

/* Sets file_of and renamed. 0 or -ENOMEM. */
static int pair_files(struct match *m)
{
	struct place *places = malloc((m->n + 1) * sizeof(*places));
	struct file *files = malloc((m->n + 1) * sizeof(*files));
	int err = 0;
	size_t n;

	m->file_of = malloc((m->ntext + 1) * sizeof(*m->file_of));
	if (!places || !files || !m->file_of) {
		err = -ENOMEM;
		goto out;
	}
	for (size_t i = 0; i < m->ntext; i++)
		m->file_of[i] = (uint32_t)i;
	n = unpaired_files(m, places, unique_places(m, places), files);
	qsort_r(files, n, sizeof(*files), cmp_file, m);
	for (size_t i = 0; i < n && !err;) {
		size_t new = i, end;

		while (new < n && files[new].base == files[i].base &&files[new].side == MATCH_OLD)
			new ++;
		for (end = new; end < n &&files[end].base == files[i].base;)
			end++;
		err = pair_group(m, files + i, new - i, files + new, end - new);
		i = end;
	}
	if (m->nrenamed)
		qsort(m->renamed, m->nrenamed, sizeof(*m->renamed), cmp_renamed);
out:
	free(places);
	free(files);
	return err;
}

/* ---- lines ---- */

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
	s = s ? s : "";
	return hash__u64(m->seed,
			 hash__bytes(m->seed, s, strlen(s)) ^ more * UINT64_C(0x9e3779b97f4a7c15));
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
	if (!n)
		return 0;
	return n * WEIGHT / (a > b ? a : b);
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
	uint32_t fa = settled_file(m, a), fb = settled_file(m, b);

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

		if (settled_file(a->m, l) != settled_file(a->m, first) || l->func != first->func)
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
	int err = order ? pair_files(m) : -ENOMEM;

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
