/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"

#define LEAST_PACE 1024 /* growth of fewer bytes per step or minute is shown as 0 */
/* Without steps, growth per minute is shown if it was measured for at least this time, ns. */
#define LEAST_INTERVAL UINT64_C(10000000000)
#define DEEPEST 64 /* deeper modules are shown at this depth */

/* State of a row from earlier refreshes. */
struct live_seen {
	uint64_t key;
	uint64_t step, base;	       /* bytes at the end and start of the growth interval */
	uint64_t count, bytes;	       /* all allocations ever, at the last refresh */
	uint64_t new_count, new_bytes; /* all allocations ever, at this refresh */
	uint64_t peak;		       /* bytes at the device's peak */
	uint32_t round;		       /* number of the last refresh that has this row */
	size_t row;		       /* index of the row in that refresh */
};

const char *const live_sort_names[] = {
	[SORT_LIVE] = "live",	[SORT_PEAK] = "peak",	  [SORT_GROWTH] = "growth",
	[SORT_CHURN] = "churn", [SORT_ALLOCS] = "allocs", [SORT_NR] = NULL
};
const char *const live_by_names[] = {
	[LIVE_LINE] = "line",	      [LIVE_FUNCTION] = "function", [LIVE_MODULE] = "module",
	[LIVE_CATEGORY] = "category", [LIVE_LAYER] = "layer",	    [LIVE_BY_NR] = NULL
};

/* A hash of h and a text; NULL and "" differ. */
static uint64_t mix(uint64_t h, const char *s)
{
	struct hash_seed seed = hash__seed();

	return s ? hash__u64(seed, h ^ hash__bytes(seed, s, strlen(s))) : hash__u64(seed, h + 1);
}

uint64_t live_rows__key(enum live_by by, const struct row *r)
{
	uint64_t key = 1 + (r->filtered ? 2 : 0); /* filtered rows have other keys */

	/* Filtered memory is one row, except in the module tree. */
	if (r->filtered && by != LIVE_LAYER)
		return mix(key, "filtered");
	if (r->before_attach)
		return mix(key, "before attach");
	switch (by) {
	case LIVE_LINE:
	case LIVE_FUNCTION:
		if (!r->file)
			return mix(key, r->source);
		key = mix(mix(key, r->file), r->func);
		return by == LIVE_LINE ? hash__u64(hash__seed(), key + r->line) : key;
	case LIVE_CATEGORY:
		return mix(key, r->category);
	default:
		return mix(mix(mix(key, r->module_root), r->module), r->module_class);
	}
}

/* Sets the options of model__rows() for the rows of this table at a moment. */
static void make_opts(const struct live_rows *r, enum row_when when, struct row_opts *ret)
{
	static const unsigned split[LIVE_BY_NR] = { [LIVE_LINE] = 1U << BY_LINE,
						    [LIVE_FUNCTION] = 1U << BY_LINE,
						    [LIVE_MODULE] = 1U << BY_MODULE,
						    [LIVE_CATEGORY] = 1U << BY_CATEGORY };

	*ret = (struct row_opts){ .by = BY_LAYER,
				  .split = split[r->by],
				  .when = when,
				  .which_line = r->which_line,
				  .hide = r->hide,
				  .keep = r->keep,
				  .ctx = r->ctx };
}

/* Index of the rows' device in the model, and *d; -ENOENT: the model does not know it. */
static int find_device(const struct live_rows *r, const struct model *m, struct model_device *d)
{
	for (size_t i = 0; i < model__devices(m); i++) {
		model__device(m, i, d);
		if (device__same(d->device, r->device))
			return (int)i;
	}
	return -ENOENT;
}

/* Finds or adds the state of the row with this key. NULL: no memory. */
static struct live_seen *find_seen(struct live_rows *r, uint64_t key)
{
	uint64_t at;

	if (!r->index && !(r->index = map64__new()))
		return NULL;
	if (map64__get(r->index, key, &at))
		return &r->seen[at];
	if (array__grow(&r->seen, &r->seen_room, r->nseen + 1, sizeof(*r->seen)) ||
	    map64__set(r->index, key, r->nseen))
		return NULL;
	r->seen[r->nseen] = (struct live_seen){ .key = key };
	return &r->seen[r->nseen++];
}

/* Stores the bytes of each row in the field at offset `field` of struct live_seen. Returns 0 or
 * -ENOMEM. */
static int note_rows(struct live_rows *r, const struct row *rows, size_t n, size_t field)
{
	for (size_t i = 0; i < r->nseen; i++)
		*(uint64_t *)((char *)&r->seen[i] + field) = 0;
	for (size_t i = 0; i < n; i++) {
		struct live_seen *s = find_seen(r, live_rows__key(r->by, &rows[i]));

		if (!s)
			return -ENOMEM;
		*(uint64_t *)((char *)s + field) += rows[i].bytes;
	}
	return 0;
}

/* Like note_rows(), for the rows at a noted moment. Returns 0 or a negative error. */
static int note_moment(struct live_rows *r, const struct model *m, size_t device,
		       enum row_when when, size_t field)
{
	struct row_opts o;
	struct row *rows;
	size_t n;
	int err;

	make_opts(r, when, &o);
	err = model__rows(m, device, &o, &rows, &n);
	if (err)
		return err;
	err = note_rows(r, rows, n, field);
	free(rows);
	return err;
}

/* Makes the live rows: the model's rows with the same key become one. *ret: their number. 0 or
 * -ENOMEM. */
static int take_rows(struct live_rows *r, struct row *rows, size_t n, struct live_row *all,
		     size_t *ret)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t key = live_rows__key(r->by, &rows[i]);
		struct live_seen *s = find_seen(r, key);

		if (!s)
			return -ENOMEM;
		if (s->round == r->round) {
			struct row *to = &all[s->row].row;

			row__add(to, &rows[i]);
			to->modules = to->modules > rows[i].modules ? to->modules : rows[i].modules;
			continue;
		}
		s->round = r->round;
		s->row = k;
		all[k++] = (struct live_row){ .row = rows[i], .key = key };
	}
	*ret = k;
	return 0;
}

/* Adds an empty row for memory that was freed, if no row has its key. all, *nall: the rows. */
static void add_empty_row(const struct live_rows *r, struct live_seen *s, const struct row *row,
			  struct live_row *all, size_t *nall)
{
	struct row *to;

	if (s->round == r->round)
		return;
	s->round = r->round;
	s->row = (*nall)++;
	all[s->row] = (struct live_row){ .row = *row, .key = s->key };
	to = &all[s->row].row;
	to->bytes = to->count = to->requested = to->median = 0;
}

/* Adds empty rows for rows that had memory when growth began, and have none now. 0 or -ENOMEM. all,
 * *nall: the rows. */
static int take_gone(struct live_rows *r, const struct row *rows, size_t n, struct live_row *all,
		     size_t *nall)
{
	for (size_t i = 0; i < n; i++) {
		struct live_seen *s = find_seen(r, live_rows__key(r->by, &rows[i]));

		if (!s)
			return -ENOMEM;
		add_empty_row(r, s, &rows[i], all, nall);
	}
	return 0;
}

/* Computes rates from the allocations since the last refresh. Adds empty rows for memory that was
 * allocated and freed. 0 or -ENOMEM. all, *nall: the rows. */
static int take_totals(struct live_rows *r, struct row *rows, size_t n, struct live_row *all,
		       size_t *nall)
{
	double seconds = (double)(r->now - r->time) / 1e9;
	bool known = r->begun && seconds > 0;

	for (size_t i = 0; i < r->nseen; i++)
		r->seen[i].new_count = r->seen[i].new_bytes = 0;
	for (size_t i = 0; i < n; i++) {
		struct live_seen *s = find_seen(r, live_rows__key(r->by, &rows[i]));

		if (!s)
			return -ENOMEM;
		s->new_count += rows[i].count;
		s->new_bytes += rows[i].bytes;
		add_empty_row(r, s, &rows[i], all, nall);
	}
	for (size_t i = 0; i < r->nseen; i++) {
		struct live_seen *s = &r->seen[i];

		if (known && s->round == r->round) {
			all[s->row].rates_known = true;
			all[s->row].allocs = (double)(s->new_count - s->count) / seconds;
			all[s->row].churn = (double)(s->new_bytes - s->bytes) / seconds;
		}
		s->count = s->new_count;
		s->bytes = s->new_bytes;
	}
	return 0;
}

/* Updates the rows' bytes at the peak if the device has a new peak. Returns 0 or a negative error. */
static int take_peak(struct live_rows *r, const struct model *m, size_t device,
		     const struct model_device *d)
{
	int err;

	if (!d->marked || (r->has_peak && r->peak_event == d->mark_event))
		return 0;
	err = note_moment(r, m, device, ROWS_AT_MARK, offsetof(struct live_seen, peak));
	if (err)
		return err == -ENOENT ? 0 : err;
	r->has_peak = true;
	r->peak_event = d->mark_event;
	return 0;
}

/* The steps or minutes of the growth interval; 0: it is too short for a rate. */
static double growth_interval(const struct live_rows *r)
{
	double minutes = (double)(r->now - r->since) / 60e9;

	if (!r->growth_known)
		return 0;
	if (r->by_steps)
		return (double)r->steps;
	return r->now - r->since >= LEAST_INTERVAL ? minutes : 0;
}

/* The growth that is shown, bytes per step or minute. Less than LEAST_PACE counts as 0: a block was
 * replaced by one of another size. */
static int64_t pace_of(double bytes)
{
	return bytes > -LEAST_PACE && bytes < LEAST_PACE ? 0 : (int64_t)bytes;
}

/* Sets what is known of each row from this and earlier refreshes: peak, growth, pace and holders. */
static void finish_rows(struct live_rows *r, struct live_row *all, size_t n)
{
	double interval = growth_interval(r);

	for (size_t i = 0; i < n; i++) {
		uint64_t at;
		struct live_seen *s = map64__get(r->index, all[i].key, &at) ? &r->seen[at] : NULL;

		if (!s)
			continue;
		all[i].at_peak = s->peak;
		all[i].holders = all[i].row.before_attach ? r->holders : NULL;
		if (all[i].holders && r->by == LIVE_LINE) /* they name the modules themselves */
			all[i].row.module = all[i].row.module_class = "";
		all[i].growth_known = r->growth_known;
		all[i].growth = (int64_t)(s->step - s->base);
		all[i].pace_known = interval > 0;
		if (interval > 0)
			all[i].pace = pace_of((double)all[i].growth / interval);
	}
}

/* The model's rows that one refresh reads, and the live rows that it makes. */
struct fetched {
	/* Rows live now, allocated ever, and live at ROWS_AT_BASE. They must outlive the shown
	 * rows, which use their strings. */
	struct row *now, *ever, *base;
	size_t n_now, n_ever, n_base;
	struct live_row *all;
	size_t n;
};

static void fetched__free(struct fetched *f)
{
	free(f->now);
	free(f->ever);
	free(f->base);
	free(f->all);
}

/* Reads the model's rows at a moment. The caller frees *rows. Returns 0 or a negative error. *n:
 * their number. */
static int fetch_rows(const struct live_rows *r, const struct model *m, size_t device,
		      enum row_when when, struct row **rows, size_t *n)
{
	struct row_opts o;

	make_opts(r, when, &o);
	return model__rows(m, device, &o, rows, n);
}

/* Reads each row's bytes at the start and at the end of the growth interval: from ends of steps if
 * there are steps, otherwise now. Returns 0 or a negative error. */
static int take_growth(struct live_rows *r, const struct model *m, size_t device,
		       const struct fetched *f)
{
	uint64_t until = r->now;
	bool by_steps = r->by_steps = model__noted(m, ROWS_AT_STEP, &until);
	int err = note_rows(r, f->base, f->n_base, offsetof(struct live_seen, base));

	if (err)
		return err;
	if (by_steps)
		err = note_moment(r, m, device, ROWS_AT_STEP, offsetof(struct live_seen, step));
	else
		err = note_rows(r, f->now, f->n_now, offsetof(struct live_seen, step));
	r->growth_known = model__noted(m, ROWS_AT_BASE, &r->since) &&
			  (by_steps ? until : r->now) > r->since;
	return err;
}

/* Reads the rows of this refresh into *f, for fetched__free(), also after an error. Returns 0 or a
 * negative error. */
static int fetch(struct live_rows *r, const struct model *m, size_t device,
		 const struct model_device *d, struct fetched *f)
{
	int err = fetch_rows(r, m, device, ROWS_NOW, &f->now, &f->n_now);

	if (!err && r->by != LIVE_CATEGORY) /* the category of freed memory is not known */
		err = fetch_rows(r, m, device, ROWS_TOTAL, &f->ever, &f->n_ever);
	if (err)
		return err;
	if (model__noted(m, ROWS_AT_BASE, /*time=*/NULL)) {
		err = fetch_rows(r, m, device, ROWS_AT_BASE, &f->base, &f->n_base);
		if (err)
			return err;
	}
	f->all = calloc(f->n_now + f->n_ever + f->n_base + 1, sizeof(*f->all));
	if (!f->all)
		return -ENOMEM;
	r->round++;
	err = take_rows(r, f->now, f->n_now, f->all, &f->n);
	if (!err && r->by != LIVE_CATEGORY)
		err = take_totals(r, f->ever, f->n_ever, f->all, &f->n);
	if (err)
		return err;
	err = take_gone(r, f->base, f->n_base, f->all, &f->n) ?: take_growth(r, m, device, f);
	return err ?: take_peak(r, m, device, d);
}

/* Frees the model's rows of the last refresh, whose strings the shown rows use. */
static void free_strings(struct live_rows *r)
{
	for (size_t i = 0; i < sizeof(r->strings) / sizeof(*r->strings); i++) {
		free(r->strings[i]);
		r->strings[i] = NULL;
	}
}

int live_rows__refresh(struct live_rows *r, const struct model *m, uint64_t now)
{
	struct fetched f = { 0 };
	struct model_device d;
	int device = find_device(r, m, &d), err;

	if (device < 0)
		return device;
	r->now = now;
	err = fetch(r, m, device, &d, &f);
	if (err) {
		fetched__free(&f);
		return err;
	}
	finish_rows(r, f.all, f.n);
	free(r->all);
	free_strings(r);
	r->all = f.all;
	r->n = r->shown = f.n;
	r->strings[0] = f.now;
	r->strings[1] = f.ever;
	r->strings[2] = f.base;
	r->total = d.allocated;
	r->time = now;
	r->begun = true;
	return 0;
}

void live_rows__release(struct live_rows *r)
{
	free(r->all);
	free_strings(r);
	free(r->seen);
	map64__free(r->index);
	r->all = NULL;
	r->seen = NULL;
	r->index = NULL;
	r->n = r->shown = r->nseen = r->seen_room = 0;
}

void live_rows__forget(struct live_rows *r)
{
	live_rows__release(r);
	r->asked = r->begun = r->has_peak = r->growth_known = false;
	r->round = 0;
}

/* The number that the row is sorted by, largest first. */
static double sort_value(const struct live_row *x, enum live_sort sort)
{
	switch (sort) {
	case SORT_PEAK:
		return (double)x->at_peak;
	case SORT_GROWTH:
		return (double)x->growth;
	case SORT_CHURN:
		return x->churn;
	case SORT_ALLOCS:
		return x->allocs;
	default:
		return (double)x->row.bytes;
	}
}

/* For sorting: filtered rows last, then by the sort's value, largest first. */
static int compare_rows(const struct live_row *x, const struct live_row *y, enum live_sort sort)
{
	double vx = sort_value(x, sort);
	double vy = sort_value(y, sort);

	if (x->row.filtered != y->row.filtered)
		return x->row.filtered ? 1 : -1;
	if (vx != vy)
		return vx > vy ? -1 : 1;
	/* After the end of a process, all rows may hold nothing. */
	if (x->row.bytes == y->row.bytes && x->at_peak != y->at_peak)
		return x->at_peak > y->at_peak ? -1 : 1;
	return row__compare(&x->row, &y->row);
}

static int compare(const void *a, const void *b, void *sort)
{
	return compare_rows(a, b, *(enum live_sort *)sort);
}

void live_rows__sort(struct live_rows *r, enum live_sort sort)
{
	if (r->n)
		qsort_r(r->all, r->n, sizeof(*r->all), compare, &sort);
	r->shown = r->n;
}

/* ---- modules as a tree ---- */

struct node {
	size_t row;	    /* index of its row in live_rows.all */
	size_t parent;	    /* index of the parent's node in tree.all; SIZE_MAX: none */
	size_t first, next; /* first child and next sibling: index in tree.all + 1; 0: none */
	unsigned depth;	    /* number of ancestors */
};

struct tree {
	struct live_rows *r;
	struct node *all;
	size_t n;
	bool (*is_open)(void *ctx, uint64_t key, unsigned depth);
	void *ctx;
};

/* The root that the row's module is in; "": none. */
static const char *root_of(const struct row *r)
{
	return r->module_root ? r->module_root : "";
}

/* True if module b is inside module a. The root "" contains all other modules of its class. */
static bool contains(const struct row *a, const struct row *b)
{
	size_t len = strlen(a->module);

	if (a->before_attach || b->before_attach || a->filtered != b->filtered ||
	    strcmp(root_of(a), root_of(b)) != 0)
		return false;
	if (!len)
		return *b->module && *root_of(a);
	return !strncmp(a->module, b->module, len) && b->module[len] == '.';
}

/* Orders a module before its children: "." sorts before all other characters of a name. */
static int compare_names(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	if (*a == *b)
		return 0;
	if (!*a || !*b)
		return *a ? 1 : -1;
	if (*a == '.' || *b == '.')
		return *a == '.' ? -1 : 1;
	return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

/* For qsort(), before link_parents(): each module before those inside it; memory from before attach
 * and filtered rows last. */
static int by_place(const void *x, const void *y)
{
	const struct row *a = &((const struct live_row *)x)->row;
	const struct row *b = &((const struct live_row *)y)->row;
	int c = strcmp(root_of(a), root_of(b));

	if (a->filtered != b->filtered)
		return a->filtered ? 1 : -1;
	if (a->before_attach != b->before_attach)
		return a->before_attach ? 1 : -1;
	return c ? c : compare_names(a->module, b->module);
}

/* Finds the parents of rows that are sorted by by_place(): a row's parent is the row before it, or
 * an ancestor of that. */
static void link_parents(struct tree *t)
{
	size_t above = SIZE_MAX; /* the row before, then its ancestors */

	for (size_t i = 0; i < t->n; i++) {
		struct node *x = &t->all[i];

		while (above != SIZE_MAX && !contains(&t->r->all[above].row, &t->r->all[i].row))
			above = t->all[above].parent;
		*x = (struct node){ .row = i,
				    .parent = above,
				    .depth = above == SIZE_MAX ? 0 : t->all[above].depth + 1 };
		if (x->depth < DEEPEST)
			above = i;
	}
}

/* Builds the lists of children, in the order of the row indexes `order`. Goes from the last row to
 * the first, since it prepends. *roots: the first row without a parent, as index + 1. */
static void link_children(struct tree *t, const size_t *order, size_t *roots)
{
	for (size_t i = t->n; i-- > 0;) {
		struct node *x = &t->all[order[i]];
		size_t *head = x->parent == SIZE_MAX ? roots : &t->all[x->parent].first;

		x->next = *head;
		*head = order[i] + 1;
	}
}

/* Copies the visible rows to `to` in display order, then the hidden ones. roots: as from
 * link_children(). */
static void lay_out(struct tree *t, size_t roots, struct live_row *to)
{
	size_t shown = 0, hidden = t->n, id = roots;

	while (id) {
		struct node *x = &t->all[id - 1];
		struct live_row *row = &t->r->all[x->row];
		bool open = x->first && t->is_open(t->ctx, row->key, x->depth);
		struct node *up;

		row->depth = x->depth;
		row->has_inside = x->first;
		row->open = open;
		row->under = x->parent == SIZE_MAX ? NULL
						   : t->r->all[t->all[x->parent].row].row.module;
		to[shown++] = *row;
		row->taken = true;
		if (open) {
			id = x->first;
			continue;
		}
		/* After the last child, go on with the next sibling of an ancestor. */
		for (up = x; !up->next && up->parent != SIZE_MAX;)
			up = &t->all[up->parent];
		id = up->next;
	}
	t->r->shown = shown;
	for (size_t i = 0; i < t->n; i++)
		if (!t->r->all[i].taken)
			to[--hidden] = t->r->all[i];
	for (size_t i = 0; i < t->n; i++)
		to[i].taken = false;
}

struct sorting {
	const struct live_rows *r;
	enum live_sort sort;
};

/* For qsort_r(): compares rows by their indexes. */
static int by_sort(const void *a, const void *b, void *ctx)
{
	const struct sorting *s = ctx;

	return compare_rows(&s->r->all[*(const size_t *)a], &s->r->all[*(const size_t *)b],
			    s->sort);
}

int live_rows__tree(struct live_rows *r, enum live_sort sort,
		    bool (*is_open)(void *ctx, uint64_t key, unsigned depth), void *ctx)
{
	struct tree t = { .r = r, .n = r->n, .is_open = is_open, .ctx = ctx };
	struct live_row *to = calloc(r->n + 1, sizeof(*to));
	size_t *order = calloc(r->n + 1, sizeof(*order)), roots = 0;
	struct sorting sorting = { r, sort };

	t.all = calloc(r->n + 1, sizeof(*t.all));
	if (!to || !order || !t.all) {
		free(to);
		free(order);
		free(t.all);
		return -ENOMEM;
	}
	if (r->n)
		qsort(r->all, r->n, sizeof(*r->all), by_place);
	link_parents(&t);
	for (size_t i = 0; i < r->n; i++)
		order[i] = i;
	if (r->n)
		qsort_r(order, r->n, sizeof(*order), by_sort, &sorting);
	link_children(&t, order, &roots);
	lay_out(&t, roots, to);
	free(r->all);
	r->all = to;
	free(order);
	free(t.all);
	return 0;
}
