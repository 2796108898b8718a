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

#define MATCH_THINGS 32 /* most actions and most details of a line that are compared */

struct match_line {
	uint32_t file, func, line; /* file, func: indices in match.text */
	uint32_t partner_no;	   /* line on the other side: index in match.lines + 1; 0: none */
	/* [false]: of the actions, [true]: of the details */
	size_t first[2];    /* index of the first one in match.things */
	uint8_t n[2], side; /* n: their number; side: enum match_side */
};

/* An action of a line, or a detail: see match__add(). */
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
	/* [new file]: the old file that it is paired with, or itself; indices in text. NULL before
	 * match__settle(). */
	uint32_t *file_of;
	struct match_files *renamed;
	size_t nrenamed, room_renamed;
};

/* Returns the line's file; for the new side the old file that it is paired with. */
static uint32_t settled_file(const struct match *m, const struct match_line *l)
{
	return l->side == MATCH_NEW ? m->file_of[l->file] : l->file;
}

/* ---- files whose paths differ between the versions ---- */

/* Most pairs of old and new files of one name. If there are more, these files stay unpaired. */
#define MAX_GROUP (UINT64_C(1) << 16)

struct place { /* a function of a file */
	uint32_t file, func;
	uint8_t side;
};

struct file {
	uint32_t file; /* index of the path in match.text */
	uint8_t side;
	bool taken;
	uint64_t base;		   /* hash of the file name */
	const struct place *funcs; /* its functions */
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

/* Orders by file name, then old files before new ones, then by path. */
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

	return strcmp(x->path[MATCH_OLD], y->path[MATCH_OLD]);
}

static uint64_t hash_base(const struct match *m, uint32_t file)
{
	const char *path = m->text[file];
	const char *slash = strrchr(path, '/');

	return match__hash(m, slash ? slash + 1 : path, 0);
}

/* Returns the number of equal path components at the end of two paths. */
static uint64_t count_common(const char *a, const char *b)
{
	const char *end_a = a + strlen(a);
	const char *end_b = b + strlen(b);
	uint64_t n = 0;

	while (end_a > a && end_b > b && end_a[-1] == end_b[-1]) {
		end_a--;
		end_b--;
		n += *end_a == '/';
	}
	if (*end_a == '/') /* counted already */
		return n;
	return n + ((end_a == a || end_a[-1] == '/') && (end_b == b || end_b[-1] == '/'));
}

/* Returns the path relative to cwd; NULL: it is not below cwd. */
static const char *path_below(const char *path, const char *cwd)
{
	size_t len = cwd ? strlen(cwd) : 0;

	while (len && cwd[len - 1] == '/')
		len--;
	return len && !strncmp(path, cwd, len) && path[len] == '/' ? path + len + 1 : NULL;
}

/* Returns the weight of a pair of files: first equal paths below the programs' folders, then the
 * number of common path components, then of common functions. 0: no common function. */
static uint64_t weigh_files(const struct match *m, const struct file *a, const struct file *b)
{
	const char *old_path = m->text[a->file], *new_path = m->text[b->file];
	const char *old_inside = path_below(old_path, m->cwd[MATCH_OLD]);
	const char *new_inside = path_below(new_path, m->cwd[MATCH_NEW]);
	bool same = old_inside && new_inside && !strcmp(old_inside, new_inside);
	uint64_t funcs = 0;

	for (size_t i = 0, k = 0; i < a->nfuncs && k < b->nfuncs;) {
		uint32_t x = a->funcs[i].func, y = b->funcs[k].func;

		funcs += x == y;
		i += x <= y;
		k += y <= x;
	}
	if (!funcs)
		return 0;
	return (uint64_t)same << 40 | count_common(old_path, new_path) << 20 |
	       (funcs < 0xfffff ? funcs : 0xfffff);
}

/* Pairs two files with different paths. Returns 0 or -ENOMEM. */
static int add_pair(struct match *m, struct file *old_file, struct file *new_file)
{
	int err = array__grow(&m->renamed, &m->room_renamed, m->nrenamed + 1, sizeof(*m->renamed));

	if (err)
		return err;
	old_file->taken = new_file->taken = true;
	m->file_of[new_file->file] = old_file->file;
	m->renamed[m->nrenamed++] = (struct match_files){ { m->text[old_file->file],
							    m->text[new_file->file] } };
	return 0;
}

/* Returns the index of the best partner among the n files `of`; SIZE_MAX: none, or two are equally
 * good. scores: their weights, each `step` entries after the one before. */
static size_t find_best(const uint64_t *scores, size_t n, size_t step, const struct file *of)
{
	size_t found = SIZE_MAX;
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t score = of[i].taken ? 0 : scores[i * step];

		if (score && score == most)
			found = SIZE_MAX;
		if (score > most) {
			most = score;
			found = i;
		}
	}
	return found;
}

/* Pairs files of one name that are each other's best partner, then repeats with the rest. Returns 0
 * or -ENOMEM. */
static int pair_group(struct match *m, struct file *old_files, size_t nold, struct file *new_files,
		      size_t nnew)
{
	bool more = true;
	uint64_t *scores;
	int err = 0;

	if (!nold || !nnew || (uint64_t)nold * nnew > MAX_GROUP)
		return 0;
	scores = malloc(nold * nnew * sizeof(*scores));
	if (!scores)
		return -ENOMEM;
	/* a row for each old file, a column for each new one */
	for (size_t i = 0; i < nold * nnew; i++)
		scores[i] = weigh_files(m, &old_files[i / nnew], &new_files[i % nnew]);
	while (more && !err) {
		more = false;
		for (size_t i = 0; i < nold && !err; i++) {
			size_t best;

			if (old_files[i].taken)
				continue;
			best = find_best(scores + i * nnew, nnew, /*step=*/1, new_files);
			if (best == SIZE_MAX ||
			    find_best(scores + best, nold, nnew, old_files) != i)
				continue;
			err = add_pair(m, &old_files[i], &new_files[best]);
			more = true;
		}
	}
	free(scores);
	return err;
}

/* Lists the files that only one side has. places: n functions, sorted. Returns their number. */
static size_t list_unpaired(const struct match *m, const struct place *places, size_t n,
			    struct file *files)
{
	size_t nfiles = 0;

	for (size_t i = 0; i < n;) {
		size_t end = i + 1;

		while (end < n && places[end].file == places[i].file)
			end++;
		if (places[i].side == places[end - 1].side)
			files[nfiles++] = (struct file){ .file = places[i].file,
							 .side = places[i].side,
							 .base = hash_base(m, places[i].file),
							 .funcs = places + i,
							 .nfuncs = end - i };
		i = end;
	}
	return nfiles;
}

/* Lists the functions of all lines, sorted, each once. Returns their number. */
static size_t unique_places(const struct match *m, struct place *places)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		places[i] = (struct place){ m->lines[i].file, m->lines[i].func, m->lines[i].side };
	if (m->n)
		qsort(places, m->n, sizeof(*places), cmp_place);
	for (size_t i = 0; i < m->n; i++)
		if (!n || cmp_place(&places[n - 1], &places[i]))
			places[n++] = places[i];
	return n;
}

/* Pairs files with different paths: sets m->file_of and m->renamed. Returns 0 or -ENOMEM. */
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
	n = list_unpaired(m, places, unique_places(m, places), files);
	qsort_r(files, n, sizeof(*files), cmp_file, m);
	for (size_t first = 0, end; first < n && !err; first = end) { /* files of one name */
		size_t first_new = first;

		while (first_new < n && files[first_new].base == files[first].base &&
		       files[first_new].side == MATCH_OLD)
			first_new++;
		for (end = first_new; end < n && files[end].base == files[first].base;)
			end++;
		err = pair_group(m, files + first, first_new - first, files + first_new,
				 end - first_new);
	}
	if (m->nrenamed)
		qsort(m->renamed, m->nrenamed, sizeof(*m->renamed), cmp_renamed);
out:
	free(places);
	free(files);
	return err;
}

/* ---- lines ---- */

/* Most pairs of old and new lines, of one function and of all. Beyond, lines pair by number
 * alone. */
#define MAX_PAIRS (UINT64_C(1) << 20)
#define MAX_WORK (UINT64_C(1) << 24)

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

/* Finds or adds a string; equal strings of both sides have the same number. NULL counts as "".
 * Returns 0 or -ENOMEM. */
static int intern_text(struct match *m, const char *s, uint32_t *ret)
{
	uint64_t key, found;

	s = s ? s : "";
	key = hash__bytes(m->seed, s, strlen(s));
	if (map64__get(m->strings, key, &found)) {
		*ret = (uint32_t)found;
		return 0;
	}
	if (array__grow(&m->text, &m->room_text, m->ntext + 1, sizeof(*m->text)) ||
	    map64__set(m->strings, key, m->ntext))
		return -ENOMEM;
	m->text[m->ntext] = s;
	*ret = (uint32_t)m->ntext++;
	return 0;
}

static uint64_t hash_place(const struct match *m, enum match_side side, uint32_t file,
			   uint32_t func, uint32_t line)
{
	uint32_t key[4] = { side, file, func, line };

	return hash__bytes(m->seed, key, sizeof(key));
}

/* Finds or adds a line. *ret: its index in m->lines. Returns 0 or -ENOMEM. */
static int add_line(struct match *m, enum match_side side, uint32_t file, uint32_t func,
		    uint32_t line, uint32_t *ret)
{
	uint64_t key = hash_place(m, side, file, func, line), found;

	if (map64__get(m->by_place, key, &found)) {
		*ret = (uint32_t)found;
		return 0;
	}
	if (m->n >= UINT32_MAX - 1 ||
	    array__grow(&m->lines, &m->room, m->n + 1, sizeof(*m->lines)) ||
	    map64__set(m->by_place, key, m->n))
		return -ENOMEM;
	m->lines[m->n] = (struct match_line){
		.side = side, .file = file, .func = func, .line = line
	};
	*ret = (uint32_t)m->n++;
	return 0;
}

/* Adds an action or a detail to a line, unless the line has it. Returns 0 or -ENOMEM. */
static int add_thing(struct match *m, uint32_t line, uint64_t hash, bool detail)
{
	uint64_t key = hash__u64(m->seed, hash ^ (uint64_t)line << 1 ^ detail), old;
	bool is_known;
	int err = map64__swap(m->known, key, 1, &is_known, &old);

	if (err || is_known)
		return err;
	err = array__grow(&m->things, &m->room_things, m->nthings + 1, sizeof(*m->things));
	if (err)
		return err;
	m->things[m->nthings++] = (struct match_thing){ hash, line, detail };
	return 0;
}

int match__add(struct match *m, enum match_side side, const char *file, const char *func,
	       uint32_t line, uint64_t does, uint64_t detail)
{
	uint32_t file_id, func_id, line_id;

	if (intern_text(m, file, &file_id) || intern_text(m, func, &func_id) ||
	    add_line(m, side, file_id, func_id, line, &line_id) ||
	    add_thing(m, line_id, does, /*detail=*/false))
		return -ENOMEM;
	return detail ? add_thing(m, line_id, detail, /*detail=*/true) : 0;
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

/* Sets each line's range of actions and of details. If it has more than MATCH_THINGS, those with
 * the smallest hashes count: these are the same on both sides. */
static void assign_things(struct match *m)
{
	if (m->nthings)
		qsort(m->things, m->nthings, sizeof(*m->things), cmp_thing);
	for (size_t i = 0; i < m->nthings; i++) {
		struct match_line *line = &m->lines[m->things[i].line];
		bool detail = m->things[i].detail;

		if (!line->n[detail])
			line->first[detail] = i;
		if (line->n[detail] < MATCH_THINGS)
			line->n[detail]++;
	}
}

/* Counts the actions that two lines share, or the details. */
static unsigned count_shared(const struct match *m, const struct match_line *a,
			     const struct match_line *b, bool detail)
{
	const struct match_thing *things_a = m->things + a->first[detail],
				 *things_b = m->things + b->first[detail];
	unsigned n = 0;

	/* Both are sorted. */
	for (unsigned i = 0, k = 0; i < a->n[detail] && k < b->n[detail];) {
		if (things_a[i].hash < things_b[k].hash) {
			i++;
		} else if (things_a[i].hash > things_b[k].hash) {
			k++;
		} else {
			n++;
			i++;
			k++;
		}
	}
	return n;
}

/* The weight of a pair of lines is WEIGHT_PAIR, plus WEIGHT times the share of common actions, plus
 * WEIGHT_DETAIL times that of common details, plus WEIGHT_UNMOVED for an equal line number, plus
 * WEIGHT_FOLLOWS for the same shift as the previous pair, minus the shift (at most FAR). */
#define WEIGHT INT64_C(4096)
#define WEIGHT_PAIR (2 * WEIGHT)
#define WEIGHT_DETAIL 4
#define WEIGHT_FOLLOWS (1 * WEIGHT)
#define WEIGHT_UNMOVED (1 * WEIGHT)
#define FAR 1000

/* Returns WEIGHT times the share that the shared things are of the larger of a and b. */
static int64_t weigh_part(unsigned shared, unsigned a, unsigned b)
{
	if (!shared)
		return 0;
	return shared * WEIGHT / (a > b ? a : b);
}

/* Returns the weight of a pair of lines; 0: they share no action. */
static int64_t weigh_lines(const struct match *m, const struct match_line *a,
			   const struct match_line *b)
{
	unsigned actions = count_shared(m, a, b, /*detail=*/false);
	unsigned details = count_shared(m, a, b, /*detail=*/true);
	int64_t shift = (int64_t)b->line - (int64_t)a->line;
	int64_t weight = WEIGHT_PAIR, far = shift < 0 ? -shift : shift;

	if (!actions)
		return 0;
	weight += weigh_part(actions, a->n[false], b->n[false]);
	weight += WEIGHT_DETAIL * weigh_part(details, a->n[true], b->n[true]);
	if (!shift)
		weight += WEIGHT_UNMOVED;
	return weight - (far < FAR ? far : FAR);
}

struct span { /* lines of a function, as index ranges in order[] */
	size_t old_from, old_end, new_from, new_end;
};

struct candidate { /* a pair, and the best sequence of pairs that ends with it */
	uint32_t old_at, new_at;
	uint32_t before_no; /* previous pair of the sequence: index in the candidates + 1; 0: none */
	int64_t sum;	    /* sum of the weights in the sequence */
};

struct aligner {
	struct match *m;
	const uint32_t *order;
	uint64_t work;	     /* pairs of lines weighed so far */
	struct candidate *c; /* candidates in the current function */
	size_t n, room;
};

static struct match_line *line_at(const struct aligner *a, size_t i)
{
	return &a->m->lines[a->order[i]];
}

/* Makes two lines a pair. old_at, new_at: indices in order[]. */
static void pair_lines(struct aligner *a, size_t old_at, size_t new_at)
{
	line_at(a, old_at)->partner_no = a->order[new_at] + 1;
	line_at(a, new_at)->partner_no = a->order[old_at] + 1;
}

/* Pairs lines of equal numbers that share an action. */
static void pair_unmoved(struct aligner *a, struct span s)
{
	while (s.old_from < s.old_end && s.new_from < s.new_end) {
		const struct match_line *old_line = line_at(a, s.old_from);
		const struct match_line *new_line = line_at(a, s.new_from);

		if (old_line->line == new_line->line && weigh_lines(a->m, old_line, new_line))
			pair_lines(a, s.old_from, s.new_from);
		s.old_from += old_line->line <= new_line->line;
		s.new_from += new_line->line <= old_line->line;
	}
}

/* Returns the sum of the sequence that ends with a candidate; 0 for no candidate. */
static int64_t sum_of(const struct aligner *a, uint32_t candidate_no)
{
	return candidate_no ? a->c[candidate_no - 1].sum : 0;
}

/* Adds a pair with the best sequence that ends with it. The pair follows the sequence best_no, or
 * the best sequence that ends with a pair of the same shift (by_shift). Returns 0 or -ENOMEM. */
static int add_candidate(struct aligner *a, struct map64 *by_shift, size_t old_at, size_t new_at,
			 int64_t weight, uint32_t best_no)
{
	int64_t shift = (int64_t)line_at(a, new_at)->line - (int64_t)line_at(a, old_at)->line;
	struct candidate candidate = { .old_at = (uint32_t)old_at,
				       .new_at = (uint32_t)new_at,
				       .before_no = best_no,
				       .sum = sum_of(a, best_no) + weight };
	uint64_t last_no = 0;
	int64_t last_sum;
	int err = array__grow(&a->c, &a->room, a->n + 1, sizeof(*a->c));

	if (err)
		return err;
	map64__get(by_shift, (uint64_t)shift, &last_no);
	last_sum = sum_of(a, (uint32_t)last_no);
	if (last_no && last_sum + WEIGHT_FOLLOWS > sum_of(a, best_no)) {
		candidate.before_no = (uint32_t)last_no;
		candidate.sum = last_sum + WEIGHT_FOLLOWS + weight;
	}
	a->c[a->n++] = candidate;
	if (last_no && last_sum >= candidate.sum)
		return 0;
	return map64__set(by_shift, (uint64_t)shift, a->n);
}

/*
 * Fills a table by dynamic programming, a row for each old line. best_no[k] is the candidate that
 * ends the best sequence of pairs over the old lines so far and the first k new ones. It is the
 * best of three: the row above, the new line before (left), and this pair after the best sequence
 * above and left of it. Returns 0 or -ENOMEM.
 */
static int find_sequences(struct aligner *a, struct span s, struct map64 *by_shift,
			  uint32_t *best_no)
{
	for (size_t old_at = s.old_from; old_at < s.old_end; old_at++) {
		uint32_t above_left_no = 0;

		for (size_t k = 1; k <= s.new_end - s.new_from; k++) {
			uint32_t above_no = best_no[k], left_no = best_no[k - 1];
			size_t new_at = s.new_from + k - 1;
			int64_t weight = weigh_lines(a->m, line_at(a, old_at), line_at(a, new_at));
			int err;

			if (weight) {
				err = add_candidate(a, by_shift, old_at, new_at, weight,
						    above_left_no);
				if (err)
					return err;
				if (a->c[a->n - 1].sum > sum_of(a, above_no))
					best_no[k] = (uint32_t)a->n;
			}
			if (sum_of(a, left_no) > sum_of(a, best_no[k]))
				best_no[k] = left_no;
			above_left_no = above_no;
		}
	}
	return 0;
}

/* Pairs the lines of one function, in order, with the largest sum of weights. Returns 0 or -ENOMEM.
 */
static int align_lines(struct aligner *a, struct span s)
{
	size_t nold = s.old_end - s.old_from, nnew = s.new_end - s.new_from;
	uint64_t pairs = (uint64_t)nold * nnew;
	struct map64 *by_shift;
	uint32_t *best_no;
	int err = -ENOMEM;

	if (!pairs)
		return 0;
	if (pairs > MAX_PAIRS || a->work + pairs > MAX_WORK) {
		pair_unmoved(a, s);
		return 0;
	}
	a->work += pairs;
	a->n = 0;
	best_no = calloc(nnew + 1, sizeof(*best_no));
	by_shift = map64__new();
	if (!best_no || !by_shift)
		goto out;
	err = find_sequences(a, s, by_shift, best_no);
	if (err)
		goto out;
	for (uint32_t no = best_no[nnew]; no; no = a->c[no - 1].before_no)
		pair_lines(a, a->c[no - 1].old_at, a->c[no - 1].new_at);
out:
	map64__free(by_shift);
	free(best_no);
	return err;
}

/* Orders places in m->lines by file (as paired between the versions), function, side and line. */
static int cmp_order(const void *pa, const void *pb, void *ctx)
{
	const struct match *m = ctx;
	const struct match_line *a = &m->lines[*(const uint32_t *)pa],
				*b = &m->lines[*(const uint32_t *)pb];
	uint32_t file = settled_file(m, a);
	uint32_t other = settled_file(m, b);

	if (file != other)
		return file < other ? -1 : 1;
	if (a->func != b->func)
		return a->func < b->func ? -1 : 1;
	if (a->side != b->side)
		return a->side < b->side ? -1 : 1;
	return a->line < b->line ? -1 : a->line > b->line;
}

/* Returns the lines of the function that starts at order[at], of both sides. The next function
 * starts at new_end. */
static struct span function_at(const struct aligner *a, size_t at)
{
	const struct match_line *first = line_at(a, at);
	struct span span = { at, at, at, at };

	for (size_t i = at; i < a->m->n; i++) {
		const struct match_line *line = line_at(a, i);

		if (settled_file(a->m, line) != settled_file(a->m, first) ||
		    line->func != first->func)
			break;
		if (line->side == MATCH_OLD)
			span.old_end = span.new_from = i + 1;
		span.new_end = i + 1;
	}
	return span;
}

int match__settle(struct match *m)
{
	uint32_t *order = malloc((m->n + 1) * sizeof(*order));
	struct aligner aligner = { .m = m, .order = order };
	int err;

	if (!order)
		return -ENOMEM;
	err = pair_files(m);
	if (err)
		goto out;
	assign_things(m);
	for (size_t i = 0; i < m->n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, m->n, sizeof(*order), cmp_order, m);
	for (size_t i = 0; i < m->n && !err;) {
		struct span s = function_at(&aligner, i);

		err = align_lines(&aligner, s);
		i = s.new_end;
	}
out:
	free(aligner.c);
	free(order);
	return err;
}

uint32_t match__number(const struct match *m, enum match_side side, const char *file,
		       const char *func, uint32_t line)
{
	uint64_t file_id, func_id, found;
	const struct match_line *match_line;

	file = file ? file : "";
	func = func ? func : "";
	if (!map64__get(m->strings, hash__bytes(m->seed, file, strlen(file)), &file_id) ||
	    !map64__get(m->strings, hash__bytes(m->seed, func, strlen(func)), &func_id) ||
	    !map64__get(m->by_place,
			hash_place(m, side, (uint32_t)file_id, (uint32_t)func_id, line), &found))
		return 0;
	match_line = &m->lines[found];
	return match_line->side == MATCH_NEW && match_line->partner_no ? match_line->partner_no
								       : (uint32_t)found + 1;
}

size_t match__renamed(const struct match *m, const struct match_files **ret)
{
	*ret = m->renamed;
	return m->nrenamed;
}
