/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "record/dict.h"
#include "record/files.h"
#include "record/stream.h"
#include "report/recording/row_set.h"

const char *diff__status(enum diff_status s)
{
	static const char *const names[DIFF_NR] = {
		[DIFF_GREW] = "grew", [DIFF_SHRANK] = "shrank",	 [DIFF_NEW] = "new",
		[DIFF_GONE] = "gone", [DIFF_SAME] = "unchanged",
	};

	return names[s];
}

/* Returns the absolute difference. */
static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

char *diff__percent(char *buf, size_t size, uint64_t from, uint64_t to)
{
	double percent = from ? 100.0 * ((double)to - (double)from) / (double)from : 0;

	buf[0] = '\0';
	if (from && percent < 100000)
		snprintf(buf, size, "%+.1f %%", percent);
	return buf;
}

/* Hashes a module's name without its numbers ("blocks.*.mlp"), which shift when layers are
 * inserted. */
static uint64_t hash_name(const struct match *m, const char *name)
{
	char text[256];
	size_t n = 0;

	for (; *name && n < sizeof(text) - 1; name++) {
		bool digit = *name >= '0' && *name <= '9';

		if (!digit || !n || text[n - 1] != '*')
			text[n++] = digit ? '*' : *name;
	}
	text[n] = '\0';
	return match__hash(m, text, /*more=*/2);
}

/* True for frames of nn.Module itself. Their number depends on the PyTorch version. Recordings also
 * differ in the frame that carries the module. */
static bool is_machinery(const struct dict *d, struct dict_frame f)
{
	const char *rest;

	if (!f.loc)
		return false;
	rest = files__after_dir(dict__str(d, dict__get_loc(d, f.loc).file), "torch/nn/modules/");
	return rest && !strcmp(rest, "module.py");
}

/* Returns the file by which a line is paired. Versions of a program have a compiled function in
 * other libraries, so without a line number its name alone counts: "". */
static const char *paired_file(const char *file, const char *func, uint32_t line, bool native)
{
	return native && !line && *func && *func != '+' ? "" : file;
}

/* Adds the lines of a stack: each calls the next inner one, and the innermost one allocates. All
 * calls of modules go through one function, so class and name of the module distinguish them. For
 * a line of Python, compiled functions inside it are its own work: their names depend on the
 * PyTorch version. Returns 0 or -ENOMEM. */
static int add_stack(struct match *m, enum match_side side, const struct dict *d,
		     const struct row *r)
{
	struct dict_stack stack = dict__get_stack(d, r->stack);
	/* Action and detail of the next line, as in match__add(); native_does: if it is compiled. */
	uint64_t does = match__hash(m, "allocates", r->phase);
	uint64_t detail = match__hash(m, "size", r->median);
	uint64_t calls = match__hash(m, "calls a module", 0);
	uint64_t native_does = does;
	/* Of a compiled function without a line there is only one. */
	uint64_t whole = match__hash(m, "a function", 0);
	int err = 0;

	for (uint32_t i = 0; i < stack.n && !err; i++) {
		struct dict_loc loc = dict__get_loc(d, stack.frames[i].loc);
		struct dict_module mod = dict__get_module(d, stack.frames[i].module);
		bool machinery = is_machinery(d, stack.frames[i]);
		const char *file = dict__str(d, loc.file);
		const char *func = dict__str(d, loc.func);

		if (stack.frames[i].loc && dict__is_native(d, stack.frames[i].loc)) {
			err = match__add(m, side,
					 paired_file(file, func, loc.line, /*native=*/true), func,
					 loc.line, loc.line ? native_does : whole, detail);
			native_does = match__hash(m, func, 0);
			continue;
		}
		if (stack.frames[i].loc && machinery)
			err = match__add(m, side, file, func, loc.line, calls, 0);
		else if (stack.frames[i].loc)
			err = match__add(m, side, file, func, loc.line, does, detail);
		if (stack.frames[i].module) {
			does = match__hash(m, dict__str(d, mod.cls), /*more=*/1);
			detail = hash_name(m, dict__str(d, mod.name));
		} else if (!machinery) {
			does = match__hash(m, func, 0);
			detail = 0;
		}
		native_does = does;
	}
	return err;
}

/* Adds the lines of all allocations, not only of live blocks, because more lines give better
 * matches. Returns 0 or -errno. */
static int add_lines(struct match *m, enum match_side side, const struct diff_side *s)
{
	static const enum row_when when[] = { ROWS_TOTAL, ROWS_AT_MARK };
	int err = 0;

	for (size_t i = 0; i < 2 && !err; i++) {
		struct row_opts o = { .by = BY_STACK, .when = when[i] };
		struct row *rows = NULL;
		size_t n = 0;

		err = model__rows(s->a->model, s->number, &o, &rows, &n);
		for (size_t k = 0; k < n && !err; k++)
			if (!rows[k].before_attach)
				err = add_stack(m, side, s->a->dict, &rows[k]);
		free(rows);
	}
	return err;
}

/* State of pairing the rows of both sides. */
struct joiner {
	const struct diff *d;
	struct hash_seed seed;
	/* (side, location) -> number of the line; caches frequent look-ups. */
	struct map64 *numbers;
};

/* Mixes a value into the hash *h. */
static void mix(uint64_t *h, struct hash_seed seed, uint64_t value)
{
	*h = hash__u64(seed, *h ^ value) + value;
}

static void mix_text(uint64_t *h, struct hash_seed seed, const char *s)
{
	mix(h, seed, s ? hash__bytes(seed, s, strlen(s)) : 1);
}

/* Returns the line's number in *ret, which is the same for the two lines of a pair. Returns 0 or
 * -ENOMEM. */
static int find_number(struct joiner *j, enum match_side side, uint32_t loc, uint64_t *ret)
{
	const struct dict *d = j->d->side[side].a->dict;
	uint64_t key = (uint64_t)side << 32 | loc;
	struct dict_loc place;

	if (map64__get(j->numbers, key, ret))
		return 0;
	place = dict__get_loc(d, loc);
	*ret = match__number(j->d->match, side,
			     paired_file(dict__str(d, place.file), dict__str(d, place.func),
					 place.line, dict__is_native(d, loc)),
			     dict__str(d, place.func), place.line);
	return map64__set(j->numbers, key, *ret);
}

/* Mixes a stack into the hash *h: the paired numbers of its lines, and its modules. Returns 0 or
 * -ENOMEM. */
static int mix_stack(struct joiner *j, enum match_side side, const struct row *r, uint64_t *h)
{
	const struct dict *dict = j->d->side[side].a->dict;
	struct dict_stack stack = dict__get_stack(dict, r->stack);
	uint64_t number;
	int err = 0;

	mix(h, j->seed, stack.walk);
	for (uint32_t i = 0; i < stack.n && !err; i++) {
		struct dict_module module = dict__get_module(dict, stack.frames[i].module);

		if (stack.frames[i].module) {
			mix_text(h, j->seed, dict__str(dict, module.name));
			mix_text(h, j->seed, dict__str(dict, module.cls));
		}
		if (is_machinery(dict, stack.frames[i]))
			continue;
		err = find_number(j, side, stack.frames[i].loc, &number);
		mix(h, j->seed, err ? 0 : number);
	}
	if (row__has_leaf(r))
		mix_text(h, j->seed, r->node_class);
	return err;
}

/* Computes a row's identity, which is equal for rows to pair: a hash with a random seed, so that
 * collisions cannot be crafted. category: include the category. Returns 0 or -ENOMEM. */
static int key_of(struct joiner *j, enum match_side side, const struct row *r, bool category,
		  uint64_t *ret)
{
	const struct diff_opts *opts = &j->d->opts;
	bool by_place = opts->by == BY_LINE || opts->by == BY_STACK;
	uint64_t hash = 0;
	int err = 0;

	mix(&hash, j->seed, r->before_attach);
	if (by_place && r->file)
		mix(&hash, j->seed,
		    match__number(j->d->match, side,
				  paired_file(r->file, r->func, r->line,
					      !strcmp(r->source, "native")),
				  r->func, r->line));
	else if (by_place)
		mix_text(&hash, j->seed, r->source);
	if (by_place && !opts->any_phase && !r->before_attach)
		mix(&hash, j->seed, r->charged);
	if (opts->by == BY_STACK && !r->before_attach)
		err = mix_stack(j, side, r, &hash);
	if (opts->by == BY_MODULE || opts->by == BY_LAYER ||
	    (opts->by == BY_LINE && !opts->any_module)) {
		mix_text(&hash, j->seed, r->module);
		mix_text(&hash, j->seed, r->module_class);
		mix_text(&hash, j->seed, r->module_root);
	}
	if (opts->by == BY_PHASE || (by_place && !opts->any_phase))
		mix(&hash, j->seed, r->before_attach ? 99 : r->phase);
	if (category && (opts->by == BY_CATEGORY || (opts->by == BY_LINE && !opts->any_category)))
		mix_text(&hash, j->seed, r->category);
	if (opts->by == BY_LINE && r->before_attach)
		mix_text(&hash, j->seed, r->name);
	if (opts->by == BY_THREAD)
		mix_text(&hash, j->seed, r->thread);
	if (opts->by == BY_SCOPE)
		mix_text(&hash, j->seed, r->scope);
	*ret = hash;
	return err;
}

static void set_status(struct diff_row *r)
{
	const struct row *old_row = r->row[MATCH_OLD], *new_row = r->row[MATCH_NEW];

	if (!old_row || !new_row)
		r->status = old_row ? DIFF_GONE : DIFF_NEW;
	else if (old_row->bytes == new_row->bytes)
		r->status = DIFF_SAME;
	else
		r->status = old_row->bytes < new_row->bytes ? DIFF_GREW : DIFF_SHRANK;
	r->moved = old_row && new_row && old_row->file && new_row->file &&
		   old_row->line != new_row->line;
}

static bool has_unknown_role(const struct row *r)
{
	return r->category && !strcmp(r->category, category__name(CATEGORY_UNKNOWN));
}

/* Finds an unpaired old row that may equal r, from this key on; SIZE_MAX: none. category: as in
 * pair_rows(). */
static size_t find_old(const struct diff *d, const struct map64 *by_key, uint64_t key,
		       const struct row *r, bool category)
{
	uint64_t i;

	for (; map64__get(by_key, key, &i); key++)
		if (!d->rows[i].row[MATCH_NEW] && (category || has_unknown_role(r) ||
						   has_unknown_role(d->rows[i].row[MATCH_OLD])))
			return i;
	return SIZE_MAX;
}

/* Maps the keys of unpaired old rows to their indices. If the key is taken, uses the next free key:
 * find_old() tries the following keys, too. Returns 0 or -ENOMEM. */
static int map_old_rows(struct joiner *j, const struct diff *d, struct map64 *by_key, bool category)
{
	uint64_t key, found;
	int err;

	for (size_t i = 0; i < d->side[MATCH_OLD].n; i++) {
		if (d->rows[i].row[MATCH_NEW])
			continue;
		err = key_of(j, MATCH_OLD, d->rows[i].row[MATCH_OLD], category, &key);
		if (err)
			return err;
		while (map64__get(by_key, key, &found))
			key++;
		err = map64__set(by_key, key, i);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Pairs rows that have no partner yet. Rows with the same key (such as threads of one name) pair in
 * order of size. category true: their categories must be equal. Otherwise one of them may be
 * unknown, because a short recording recognizes fewer roles. paired[i]: new row i has a partner.
 * Returns 0 or -ENOMEM.
 */
static int pair_rows(struct joiner *j, struct diff *d, bool *paired, bool category)
{
	struct map64 *by_key = map64__new();
	uint64_t key;
	int err;

	if (!by_key)
		return -ENOMEM;
	err = map_old_rows(j, d, by_key, category);
	for (size_t i = 0; i < d->side[MATCH_NEW].n && !err; i++) {
		const struct row *r = &d->side[MATCH_NEW].rows[i];
		size_t old;

		if (paired[i])
			continue;
		err = key_of(j, MATCH_NEW, r, category, &key);
		if (err)
			break;
		old = find_old(d, by_key, key, r, category);
		if (old == SIZE_MAX)
			continue;
		d->rows[old].row[MATCH_NEW] = r;
		paired[i] = true;
	}
	map64__free(by_key);
	return err;
}

/* Fills d->rows: the old rows with their partners, then the new rows without one. Returns 0 or
 * -ENOMEM. */
static int join_rows(struct diff *d)
{
	size_t nold = d->side[MATCH_OLD].n, nnew = d->side[MATCH_NEW].n;
	struct joiner joiner = { .d = d, .seed = hash__seed() };
	bool *paired = calloc(nnew + 1, sizeof(*paired));
	int err = -ENOMEM;

	joiner.numbers = map64__new();
	d->rows = calloc(nold + nnew + 1, sizeof(*d->rows));
	if (!paired || !joiner.numbers || !d->rows)
		goto out;
	for (size_t i = 0; i < nold; i++)
		d->rows[d->n++].row[MATCH_OLD] = &d->side[MATCH_OLD].rows[i];
	err = pair_rows(&joiner, d, paired, /*category=*/true);
	if (err)
		goto out;
	/* Then rows of the same line whose categories may differ. */
	if (d->opts.by == BY_LINE && !d->opts.any_category)
		err = pair_rows(&joiner, d, paired, /*category=*/false);
	for (size_t i = 0; i < nnew; i++)
		if (!paired[i])
			d->rows[d->n++].row[MATCH_NEW] = &d->side[MATCH_NEW].rows[i];
out:
	map64__free(joiner.numbers);
	free(paired);
	return err;
}

static uint64_t change_of(const struct diff_row *r)
{
	return distance(diff__bytes(r, MATCH_OLD), diff__bytes(r, MATCH_NEW));
}

/* Orders by change, then by size, then by text, so that the order is stable. */
static int cmp_row(const void *pa, const void *pb)
{
	const struct diff_row *a = pa, *b = pb;
	const struct row *x = diff__shown(a);
	const struct row *y = diff__shown(b);
	int order;

	if (change_of(a) != change_of(b))
		return change_of(a) > change_of(b) ? -1 : 1;
	if (a->status != b->status)
		return a->status < b->status ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	order = row_set__compare(x->file, y->file);
	if (!order && x->line != y->line)
		order = x->line < y->line ? -1 : 1;
	order = order ? order : row_set__compare(x->func, y->func);
	order = order ? order : row_set__compare(x->module, y->module);
	order = order ? order : row_set__compare(x->thread, y->thread);
	order = order ? order : row_set__compare(x->scope, y->scope);
	order = order ? order : (int)x->phase - (int)y->phase;
	order = order ? order : row_set__compare(x->category, y->category);
	order = order ? order : row_set__compare(x->name, y->name);
	return order ? order : (x->cumulative > y->cumulative) - (x->cumulative < y->cumulative);
}

/* Sets the status of each row, the sums by status, and whether the rows explain the whole
 * change. */
static void sum_up(struct diff *d)
{
	uint64_t rows_change = d->side[MATCH_NEW].sum - d->side[MATCH_OLD].sum;
	uint64_t device_change = d->side[MATCH_NEW].device.mark_allocated -
				 d->side[MATCH_OLD].device.mark_allocated;

	memset(d->sums, 0, sizeof(d->sums));
	for (size_t i = 0; i < d->n; i++) {
		struct diff_sum *sum;

		set_status(&d->rows[i]);
		sum = &d->sums[d->rows[i].status];
		sum->rows++;
		sum->bytes += change_of(&d->rows[i]);
	}
	d->overlap = d->opts.by == BY_LAYER;
	d->missing = (int64_t)(device_change - rows_change);
	d->adds_up = !d->overlap && !d->missing;
}

static void drop_rows(struct diff *d)
{
	for (int side = 0; side < MATCH_SIDES; side++) {
		free(d->side[side].rows);
		d->side[side].rows = NULL;
		d->side[side].n = 0;
		d->side[side].sum = 0;
	}
	free(d->rows);
	d->rows = NULL;
	d->n = 0;
}

int diff__again(struct diff *d, const struct diff_opts *opts)
{
	struct row_opts o = { .by = opts->by,
			      .when = ROWS_AT_MARK,
			      .any_module = opts->any_module,
			      .any_phase = opts->any_phase,
			      .any_category = opts->any_category };
	int err = 0;

	drop_rows(d);
	d->opts = *opts;
	for (int k = 0; k < MATCH_SIDES && !err; k++) {
		struct diff_side *s = &d->side[k];

		err = model__rows(s->a->model, s->number, &o, &s->rows, &s->n);
		for (size_t i = 0; i < s->n && !err; i++)
			s->sum += s->rows[i].bytes;
	}
	if (!err)
		err = join_rows(d);
	if (err) {
		drop_rows(d);
		return err;
	}
	sum_up(d);
	qsort(d->rows, d->n, sizeof(*d->rows), cmp_row);
	return 0;
}

int diff__new(struct analysis *const a[MATCH_SIDES], const size_t device[MATCH_SIDES],
	      const struct diff_opts *opts, struct diff **ret)
{
	struct diff *diff = calloc(1, sizeof(*diff));
	int err = -ENOMEM;

	if (!diff)
		return -ENOMEM;
	diff->match = match__new(facts__get(a[MATCH_OLD]->facts, "cwd"),
				 facts__get(a[MATCH_NEW]->facts, "cwd"));
	if (scope_set__init(&diff->scopes) || !diff->match)
		goto fail;
	for (int k = 0; k < MATCH_SIDES; k++) {
		diff->side[k].a = a[k];
		diff->side[k].number = device[k];
		model__device(a[k]->model, device[k], &diff->side[k].device);
		err = add_lines(diff->match, k, &diff->side[k]);
		if (!err)
			err = scope_set__add(&diff->scopes, k, a[k]->model, device[k]);
		if (err)
			goto fail;
	}
	scope_set__sort(&diff->scopes);
	err = match__settle(diff->match);
	if (err)
		goto fail;
	err = diff__again(diff, opts);
	if (err)
		goto fail;
	*ret = diff;
	return 0;
fail:
	diff__free(diff);
	return err;
}

void diff__free(struct diff *d)
{
	if (!d)
		return;
	drop_rows(d);
	match__free(d->match);
	scope_set__drop(&d->scopes);
	free(d);
}
