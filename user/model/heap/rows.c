/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of rows: a device's sites grouped by line, stack, module ... */
#include "model/heap/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "model/heap/attribution.h"
#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/device.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "model/heap/layers.h"
#include "record/dict.h"

/* ---- the line that a stack is charged to when the caller hides files ---- */

/* Look-ups of lines, with caches for row_opts.hide. */
struct hide {
	struct model *m;
	const struct row_opts *opts;
	uint8_t *files; /* FILE_HIDE_* flags by dict string */
	size_t nfiles;
	uint32_t *locs; /* by stack: location plus 1; 0: not looked up yet */
	size_t nlocs;
};

enum { FILE_HIDE_KNOWN = 1, FILE_HIDE_HIDDEN = 2 };

/* Returns the flags of a file. Calls the caller's hide() once for each file. */
static uint8_t hide__file(struct hide *s, uint32_t file)
{
	uint8_t flags = FILE_HIDE_KNOWN;

	if (file < s->nfiles && s->files[file])
		return s->files[file];
	if (s->opts->hide(s->opts->ctx, dict__str(s->m->dict, file)))
		flags |= FILE_HIDE_HIDDEN;
	/* Without memory for the cache, the next call asks again. */
	if (!array__grow_zero(&s->files, &s->nfiles, (size_t)file + 1, sizeof(*s->files)))
		s->files[file] = flags;
	return flags;
}

/* Returns the dict location of the frame that counts among those in files that are not hidden; 0:
 * none. only_native: no Python frame has a line, so that native ones count. */
static uint32_t hide__visible_loc(struct hide *s, uint32_t stack, bool only_native)
{
	struct dict_stack frames = dict__get_stack(s->m->dict, stack);
	struct frame_owners owners = { 0 };
	uint32_t inner = 0, user = 0;

	for (uint32_t i = frames.n; i-- > 0;) { /* the innermost one comes last */
		uint32_t loc = frames.frames[i].loc;
		bool is_user = attribution__is_user(s->m->attribution, &owners, frames, i);
		uint8_t file = loc ? hide__file(s, dict__get_loc(s->m->dict, loc).file)
				   : FILE_HIDE_HIDDEN;

		if (file & FILE_HIDE_HIDDEN || (dict__is_native(s->m->dict, loc) && !only_native &&
						s->opts->which_line != FRAMES_NATIVE))
			continue;
		inner = loc;
		if (is_user)
			user = loc;
	}
	/* FRAMES_USER is 0: the program's own line, if there is one */
	return s->opts->which_line || !user ? inner : user;
}

/* Returns the dict location that a stack is charged to; 0: it has no line, or all its files are
 * hidden. */
static uint32_t find_location(struct hide *s, uint32_t stack)
{
	struct stack_origin origin = attribution__stack(s->m->attribution, stack);
	uint32_t loc_no = 0;

	if (!origin.has_line)
		return 0;
	if (!s->opts->hide)
		return attribution__loc(&origin, s->opts->which_line);
	if (stack >= s->nlocs &&
	    array__grow_zero(&s->locs, &s->nlocs, (size_t)stack + 1, sizeof(*s->locs)))
		return hide__visible_loc(s, stack, origin.only_native);
	loc_no = s->locs[stack];
	if (!loc_no)
		s->locs[stack] = loc_no = hide__visible_loc(s, stack, origin.only_native) + 1;
	return loc_no - 1;
}

static void hide__free(struct hide *s)
{
	free(s->files);
	free(s->locs);
}

/* ---- rows ---- */

/* Properties that all blocks of a row share; 0 where the table does not split. Keys are compared as
 * bytes, so they have no padding. */
struct key {
	uint32_t file, func, line, stack, module, layer_no, thread, name, node, scope_no;
	uint8_t phase_no, category, has_line, native, walk, census, charged, filtered;
};

/* A row that is being added up. */
struct bucket {
	struct key key;
	struct row row;
	uint64_t largest;	  /* bytes of the largest part so far */
	size_t pattern_no;	  /* offset in table.patterns plus 1; 0: no pattern */
	uint64_t requested_count; /* number of blocks whose requested size is known */
	uint32_t name;		  /* dict string of the first block's name */
	uint8_t category;	  /* category of the first block */
	bool categories, names;	  /* the row has several categories, several names */
	bool unsized;		  /* the size of some blocks is not known */
	/* For estimates from samples, see record/detail.h. */
	bool not_sampled; /* some blocks have no stack, as only a sample of stacks was read */
	struct drawn drawn[SAMPLING_BOUNDS];
	struct pieces pieces; /* for the device "host" */
};

struct block_class {			   /* blocks of a site with equal properties */
	uint32_t site, label_no, category; /* the key */
	uint64_t count, requested, requested_count;
};

struct part { /* blocks of one size and module in a group */
	uint64_t size, count;
	uint32_t group, module;
};

struct table {
	struct model *m;
	const struct row_opts *opts;
	struct hide sel;
	unsigned split; /* bits 1 << BY_* of what rows are split by */
	bool by_name;	/* memory from before attach is split by name */
	struct block_class *classes;
	uint32_t nclasses;
	size_t capclasses;
	struct hash_index class_index;
	uint32_t *class_no_of_site; /* the class of the site's last block */
	struct bucket *groups;
	uint32_t n;
	size_t cap;
	struct part *parts;
	uint32_t nparts;
	size_t capparts;
	struct hash_index index;
	uint64_t not_sampled[SAMPLING_BOUNDS]; /* bytes of blocks without a sampled stack */
	bool host;	 /* device__in_pieces(): requested sizes are of pieces */
	bool sample;	 /* with host: the pieces are a sample, whose sum is not that of all */
	uint64_t pieces; /* bytes of all pieces */
	char *patterns;	 /* module patterns one after another, by offset */
	size_t npatterns, cappatterns;
};

/* Returns where a row's line comes from, as in row.source. */
static const char *source_of(uint8_t walk, const struct stack_origin *origin)
{
	if (origin->only_native)
		return "native";
	/* The line of MT_WALK_OFF is no frame: it says that the stack was not in the sample. */
	if (origin->has_line && walk != MT_WALK_OFF)
		return "frame";
	return walk == MT_WALK_NO_THREAD ? "native" : "untraced";
}

/* Sets the row's line, if the stack has one. */
static void row__set_line(const struct model *m, enum frame_choice which_line, uint32_t stack,
			  struct row *r)
{
	struct row_frame frame;

	if (model__stack_line(m, stack, which_line, &frame)) {
		r->file = frame.file;
		r->func = frame.func;
		r->line = frame.line;
	}
}

/* Returns the stack that has the line to charge, see attribution__line_stack(). */
static uint32_t line_stack(const struct model *m, enum frame_choice which_line, uint32_t stack,
			   uint32_t node)
{
	return which_line == FRAMES_USER ? attribution__line_stack(m->attribution, stack, node)
					 : stack;
}

/* Sets the row's line, if it has one. Returns false if the row has a line, but it is hidden. */
static bool table__set_line(struct table *t, const struct site *s, struct row *r)
{
	uint32_t stack = line_stack(t->m, t->opts->which_line, s->stack, s->node);
	uint32_t id = find_location(&t->sel, stack);
	struct dict_loc loc = dict__get_loc(t->m->dict, id);

	if (!id)
		return !attribution__stack(t->m->attribution, stack).has_line;
	if (stack != s->stack)
		r->source = "autograd";
	r->file = dict__str(t->m->dict, loc.file);
	r->func = dict__str(t->m->dict, loc.func);
	r->line = loc.line;
	return true;
}

static void row__set_module(const struct model *m, uint32_t module, struct row *r)
{
	struct dict_module names = dict__get_module(m->dict, module);

	r->module = dict__str(m->dict, names.name);
	r->module_class = dict__str(m->dict, names.cls);
	r->module_root = dict__str(m->dict, names.root);
}

static void row__set_before_attach(const struct model *m, struct row *r)
{
	r->history = attribution__is_snapshot(m->attribution);
	r->before_attach = true;
	r->module = r->module_class = r->module_root = "";
	r->phase = PHASE_OTHER;
	r->source = "census";
}

static void row__set_node(const struct model *m, uint32_t stack, uint32_t node, struct row *r)
{
	const char *cls = node ? dict__str(m->dict, dict__get_node(m->dict, node).cls) : "";

	r->node_class = *cls ? cls : NULL;
	r->charged = attribution__charged(m->attribution, stack, node);
	if (r->charged)
		r->source = "autograd";
}

void rows__line(const struct model *m, enum frame_choice which_line, uint32_t stack, uint32_t node,
		uint32_t thread, uint8_t walk, struct row *r)
{
	struct stack_origin origin;

	*r = (struct row){ .stack = stack, .category = category__name(CATEGORY_UNKNOWN) };
	if (walk == WALK_CENSUS) {
		row__set_before_attach(m, r);
		return;
	}
	origin = attribution__stack(m->attribution, stack);
	r->phase = attribution__node_phase(m->attribution, stack, node, thread, walk);
	r->source = source_of(walk, &origin);
	row__set_node(m, stack, node, r);
	row__set_line(m, which_line, line_stack(m, which_line, stack, node), r);
	row__set_module(m, origin.module, r);
	r->modules = origin.module != 0;
}

static void bucket__set_thread(const struct table *t, struct row *r, uint32_t thread)
{
	struct dict_thread names = dict__get_thread(t->m->dict, thread);

	r->thread = dict__str(t->m->dict, names.name);
	r->tid = names.tid;
}

/* Names the module of a row by its layer, an index in layers.all. */
static void bucket__set_layer(const struct table *t, struct row *r, uint32_t layer)
{
	const struct layer *names;

	if (layer == UINT32_MAX) /* outside all modules */
		return;
	names = &t->m->layers.all[layer];
	r->module = names->name;
	r->module_class = dict__str(t->m->dict, names->cls);
	r->module_root = dict__str(t->m->dict, names->root);
}

void model__stack_row(const struct model *m, uint32_t stack, uint32_t node, uint32_t thread,
		      uint8_t walk, struct row *ret)
{
	rows__line(m, FRAMES_USER, stack, node, thread, walk, ret);
}

#define SPLIT(by) (1U << (by))
/* Properties of a block's origin, which memory from before attach does not have. */
#define SPLIT_ORIGIN                                                                               \
	(SPLIT(BY_LINE) | SPLIT(BY_STACK) | SPLIT(BY_PHASE) | SPLIT(BY_THREAD) | SPLIT(BY_SCOPE))

/* Returns what rows are split by, bits 1 << BY_*. */
static unsigned split_of(const struct row_opts *o)
{
	unsigned split;

	if (o->split)
		return o->split;
	split = SPLIT(o->by);
	if (o->by == BY_STACK || (o->by == BY_LINE && !o->any_phase))
		split |= SPLIT(BY_PHASE);
	if (o->by == BY_LINE && !o->any_module)
		split |= SPLIT(BY_MODULE);
	if (o->by == BY_LINE && !o->any_category)
		split |= SPLIT(BY_CATEGORY);
	return split;
}

/* Returns the module that owns the block, from the program's objects; otherwise the one that
 * allocated it. */
static uint32_t block_class__module(const struct table *t, const struct block_class *k)
{
	uint32_t module = k->label_no ? t->m->labels.all[k->label_no - 1].module : 0;

	return module ? module : t->m->sites.all[k->site].module;
}

static uint32_t block_class__name(const struct table *t, const struct block_class *k)
{
	return k->label_no ? t->m->labels.all[k->label_no - 1].name : 0;
}

/* True if the blocks go to the row before_attach. Memory from before attach does, unless the table
 * shows its category or its module. */
static bool goes_before_attach(const struct table *t, const struct block_class *k)
{
	bool module = t->split != SPLIT(BY_CATEGORY) && block_class__module(t, k);

	return t->m->sites.all[k->site].walk == WALK_CENSUS &&
	       ((t->split & SPLIT_ORIGIN) || (!k->category && !module));
}

/* Fills a row from the block class, which is the group's largest part. */
static void bucket__describe(struct table *t, struct row *r, const struct block_class *k,
			     uint32_t layer_no)
{
	const struct site *site = &t->m->sites.all[k->site];
	struct stack_origin origin = attribution__stack(t->m->attribution, site->stack);
	bool lines = t->split & (SPLIT(BY_LINE) | SPLIT(BY_STACK));

	r->stack = site->stack;
	r->module = r->module_class = r->module_root = "";
	if (goes_before_attach(t, k)) {
		row__set_before_attach(t->m, r);
	} else {
		r->phase = site->phase;
		r->source = site->walk == WALK_CENSUS ? "census" : source_of(site->walk, &origin);
		row__set_node(t->m, site->stack, site->node, r);
		if (lines && !table__set_line(t, site, r))
			r->source = "hidden";
		if (t->split & (SPLIT(BY_THREAD) | SPLIT(BY_STACK)))
			bucket__set_thread(t, r, site->thread);
		if (t->split & SPLIT(BY_SCOPE))
			r->scope = scopes__text(&t->m->scopes, site->scope_no);
	}
	if (t->split & SPLIT(BY_LAYER))
		bucket__set_layer(t, r, layer_no - 1);
	else if (lines || (t->split & SPLIT(BY_MODULE)))
		row__set_module(t->m, block_class__module(t, k), r);
}

/* Returns the key of the group that a class of blocks is in, with only the properties of t->split
 * set. */
static struct key block_class__key(struct table *t, const struct block_class *k, uint32_t layer_no)
{
	const struct site *site = &t->m->sites.all[k->site];
	struct attribution *w = t->m->attribution;
	struct stack_origin origin = attribution__stack(w, site->stack);
	struct key key = { .layer_no = layer_no };
	bool charged = attribution__charged(w, site->stack, site->node);

	if (t->split & SPLIT(BY_CATEGORY))
		key.category = k->category;
	if (t->split & SPLIT(BY_MODULE))
		key.module = block_class__module(t, k);
	if (goes_before_attach(t, k)) {
		key.census = 1;
		key.name = t->by_name ? block_class__name(t, k) : 0;
		return key;
	}
	if (t->split & SPLIT(BY_LINE)) {
		uint32_t charged_stack = line_stack(t->m, t->opts->which_line, site->stack,
						    site->node);
		uint32_t id = find_location(&t->sel, charged_stack);
		struct dict_loc loc = dict__get_loc(t->m->dict, id);

		key.file = loc.file;
		key.func = loc.func;
		key.line = loc.line;
		if (origin.has_line)
			key.has_line = id ? 1 : 2; /* 2: hidden */
		key.native = !origin.has_line && site->walk == MT_WALK_NO_THREAD;
		charged = charged || charged_stack != site->stack;
	}
	if (t->split & SPLIT(BY_STACK)) {
		key.stack = site->stack;
		key.walk = site->stack ? 0 : site->walk;
		key.node = attribution__charged(w, site->stack, site->node) || !site->stack
				   ? site->node
				   : 0;
	}
	if (t->split & SPLIT(BY_PHASE)) {
		key.phase_no = site->phase + 1;
		key.charged = t->split & SPLIT(BY_LINE) && charged;
	}
	if (t->split & SPLIT(BY_THREAD))
		key.thread = site->thread;
	if (t->split & SPLIT(BY_SCOPE))
		key.scope_no = site->scope_no;
	return key;
}

/* Finds or adds the group with this key. Returns 0 or -ENOMEM. */
static int table__group(struct table *t, const struct key *key, uint32_t *ret)
{
	int err = hash_index__entry(&t->index, t->m->seed, key, sizeof(*key), &t->groups, &t->n,
				    &t->cap, sizeof(*t->groups), ret);

	return err < 0 ? err : 0;
}

/* True if row_opts.keep accepts the block class. */
static bool block_class__kept(struct table *t, const struct block_class *k)
{
	const struct site *site = &t->m->sites.all[k->site];
	struct stack_origin origin = attribution__stack(t->m->attribution, site->stack);
	uint32_t name = block_class__name(t, k);
	/* The fields that keep() may look at. */
	struct row row = { .bytes = site__bytes(site, k->count),
			   .count = k->count,
			   .median = site->varied ? 0 : site->size,
			   .stack = site->stack,
			   .category = category__name(k->category) };

	if (!t->opts->keep)
		return true;
	if (name)
		row.name = dict__str(t->m->dict, name);
	row.module = row.module_class = row.module_root = "";
	if (site->walk == WALK_CENSUS) {
		row__set_before_attach(t->m, &row);
	} else {
		row.of = t->m;
		row.scope_no = site->scope_no;
		row.phase = site->phase;
		row.source = source_of(site->walk, &origin);
		row__set_node(t->m, site->stack, site->node, &row);
		if (!table__set_line(t, site, &row))
			row.source = "hidden";
		bucket__set_thread(t, &row, site->thread);
	}
	row__set_module(t->m, block_class__module(t, k), &row);
	return t->opts->keep(t->opts->ctx, &row);
}

/* True if the site's blocks have no stack, because only a sample of stacks was read. */
static bool site__not_sampled(const struct site *s)
{
	return s->drawn && s->walk == MT_WALK_OFF;
}

/* For table__estimate(): adds `count` blocks of a site to its group's sampled ones (stack read), by
 * the site's sampling bound, or notes that the group has blocks without a sampled stack. */
static void bucket__count_drawn(struct bucket *g, const struct site *s, uint64_t count)
{
	struct drawn *drawn = s->drawn ? &g->drawn[s->drawn - 1] : NULL;

	g->not_sampled |= site__not_sampled(s);
	if (!drawn || site__not_sampled(s))
		return;
	drawn->count += count;
	drawn->bytes += site__bytes(s, count);
}

/* Adds the blocks to their group: that of a layer (layer_no) with BY_LAYER. kept: the filter keeps
 * them. Returns 0 or -ENOMEM. */
static int table__add_to_group(struct table *t, const struct block_class *k, uint32_t layer_no,
			       bool kept)
{
	const struct site *site = &t->m->sites.all[k->site];
	struct key key = block_class__key(t, k, layer_no);
	uint32_t id, name = block_class__name(t, k);
	uint64_t bytes = site__bytes(site, k->count);
	struct bucket *group;

	key.filtered = !kept;
	if (table__group(t, &key, &id) ||
	    array__grow_zero(&t->parts, &t->capparts, (size_t)t->nparts + 1, sizeof(*t->parts)))
		return -ENOMEM;
	group = &t->groups[id];
	if (!group->row.count) {
		group->category = k->category;
		group->name = name;
	}
	group->unsized |= site->varied;
	group->categories |= group->category != k->category;
	group->names |= group->name != name;
	if (!group->row.count || bytes > group->largest) {
		bucket__describe(t, &group->row, k, layer_no);
		group->largest = bytes;
	}
	bucket__count_drawn(group, site, k->count);
	group->row.bytes += bytes;
	group->row.count += k->count;
	if (t->host) {
		group->pieces.bytes += site->size * k->requested_count;
		group->pieces.squares += (double)site->size * (double)k->requested;
	} else {
		group->row.requested += k->requested;
		group->requested_count += k->requested_count;
	}
	t->parts[t->nparts++] = (struct part){ .size = site->size,
					       .count = k->count,
					       .group = id,
					       .module = block_class__module(t, k) };
	return 0;
}

/* Adds the blocks to their group; with BY_LAYER to the groups of all layers around their module.
 * Returns 0 or -ENOMEM. */
static int table__add_class(struct table *t, const struct block_class *k)
{
	const struct site *site = &t->m->sites.all[k->site];
	bool kept = block_class__kept(t, k);
	struct chain chain;
	int err;

	if (t->host)
		t->pieces += site->size * k->requested_count;
	if (site__not_sampled(site))
		t->not_sampled[site->drawn - 1] += site__bytes(site, k->count);
	if (!(t->split & SPLIT(BY_LAYER)) || goes_before_attach(t, k))
		return table__add_to_group(t, k, 0, kept);
	err = layers__chain(t->m, block_class__module(t, k), &chain);
	if (!err && !chain.n)
		err = table__add_to_group(t, k, 0, kept);
	for (uint32_t i = 0; i < chain.n && !err; i++)
		err = table__add_to_group(t, k, t->m->layers.pool[chain.off + i] + 1, kept);
	return err;
}

/* Adds a block to its class. Returns 0 or -ENOMEM. */
static int table__count_block(struct table *t, const struct block *b)
{
	uint32_t key[3] = { b->site, b->label_no, b->category }, id;
	uint32_t *class_no = &t->class_no_of_site[b->site];
	const struct block_class *last = *class_no ? &t->classes[*class_no - 1] : NULL;

	if (last && last->label_no == b->label_no && last->category == b->category)
		id = *class_no - 1;
	else if (hash_index__entry(&t->class_index, t->m->seed, key, sizeof(key), &t->classes,
				   &t->nclasses, &t->capclasses, sizeof(*t->classes), &id) < 0)
		return -ENOMEM;
	*class_no = id + 1;
	t->classes[id].count++;
	if (b->request_no) {
		t->classes[id].requested += t->m->requests.all[b->request_no - 1].requested;
		t->classes[id].requested_count++;
	}
	return 0;
}

static int cmp_class(const void *a, const void *b)
{
	const struct block_class *x = a, *y = b;

	if (x->site != y->site)
		return x->site < y->site ? -1 : 1;
	if (x->label_no != y->label_no)
		return x->label_no < y->label_no ? -1 : 1;
	return x->category < y->category ? -1 : x->category > y->category;
}

void rows__forget(struct model *m)
{
	for (uint32_t i = 0; i < m->kept.n; i++)
		free(m->kept.set[i].all);
	m->kept.n = 0;
}

static int copy_classes(const struct block_class *from, uint32_t n, struct block_class **ret)
{
	*ret = malloc(((size_t)n + 1) * sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	if (n)
		memcpy(*ret, from, n * sizeof(**ret));
	return 0;
}

/* Takes the classes that the model has kept. 0; -ENOENT: it has none; -ENOMEM. */
static int table__recall(struct table *t, uint32_t number)
{
	const struct kept_classes *kept = &t->m->kept;

	for (uint32_t i = 0; i < kept->n; i++) {
		if (kept->set[i].dev != number || kept->set[i].when != t->opts->when)
			continue;
		t->nclasses = kept->set[i].n;
		return copy_classes(kept->set[i].all, t->nclasses, &t->classes);
	}
	return -ENOENT;
}

/* Keeps the classes for the next rows, if the model will not change. Without memory they are made
 * again. */
static void table__keep(const struct table *t, uint32_t number)
{
	struct kept_classes *kept = &t->m->kept;
	struct block_class *all;

	if (!t->m->finished || kept->n == KEPT_CLASSES ||
	    copy_classes(t->classes, t->nclasses, &all))
		return;
	kept->set[kept->n].dev = number;
	kept->set[kept->n].when = t->opts->when;
	kept->set[kept->n].n = t->nclasses;
	kept->set[kept->n++].all = all;
}

/* Collects the block classes: from live blocks, or for ROWS_TOTAL from sites, without labels.
 * Returns 0 or -ENOMEM. */
static int table__gather(struct table *t, const struct dev *dev, uint32_t number)
{
	struct block *blocks = NULL;
	size_t n = 0;
	int err = 0;

	if (t->opts->when != ROWS_TOTAL) {
		err = table__recall(t, number);
		if (err != -ENOENT)
			return err;
		t->class_no_of_site = calloc(t->m->sites.n + 1, sizeof(*t->class_no_of_site));
		if (!t->class_no_of_site)
			return -ENOMEM;
		err = blocks__all(t->m, dev, t->opts->when, &blocks, &n);
		for (size_t i = 0; i < n && !err; i++)
			err = table__count_block(t, &blocks[i]);
		free(blocks);
		/* Blocks come in the order of a seeded hash table, and rows must not depend on it. */
		if (t->nclasses)
			qsort(t->classes, t->nclasses, sizeof(*t->classes), cmp_class);
		if (!err)
			table__keep(t, number);
		return err;
	}
	for (uint32_t i = 0; i < t->m->sites.n && !err; i++) {
		if (t->m->sites.all[i].dev != number || !t->m->sites.all[i].total)
			continue;
		err = array__grow_zero(&t->classes, &t->capclasses, (size_t)t->nclasses + 1,
				       sizeof(*t->classes));
		if (!err)
			t->classes[t->nclasses++] = (struct block_class){
				.site = i, .count = t->m->sites.all[i].total
			};
	}
	return err;
}

static int cmp_part(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->size < y->size ? -1 : x->size > y->size;
}

/* Sets each group's median block size: the size at which half of the blocks are passed. */
static void table__medians(struct table *t)
{
	uint64_t seen = 0; /* blocks of the group that are smaller */

	if (t->nparts)
		qsort(t->parts, t->nparts, sizeof(*t->parts), cmp_part);
	for (uint32_t i = 0; i < t->nparts; i++) {
		const struct part *p = &t->parts[i];
		struct row *r = &t->groups[p->group].row;

		if (!i || p[-1].group != p->group)
			seen = 0;
		if (!t->groups[p->group].unsized && seen <= r->count / 2 &&
		    r->count / 2 < seen + p->count)
			r->median = p->size;
		seen += p->count;
	}
}

static int cmp_module(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->module < y->module ? -1 : x->module > y->module;
}

/* Counts the modules of each group and builds their common pattern. Returns 0 or -ENOMEM. */
static int table__modules(struct table *t)
{
	if (t->nparts)
		qsort(t->parts, t->nparts, sizeof(*t->parts), cmp_module);
	for (uint32_t i = 0; i < t->nparts; i++) {
		const struct part *p = &t->parts[i];
		struct bucket *group = &t->groups[p->group];
		const char *name = dict__str(t->m->dict,
					     dict__get_module(t->m->dict, p->module).name);
		/* a component may become "*", and the pattern may gain ".*" */
		size_t len = strlen(name) + sizeof("*.*");

		if (i && p[-1].group == p->group && p[-1].module == p->module)
			continue;
		group->row.modules += p->module != 0;
		if (group->row.modules == 1 && p->module) {
			if (array__grow(&t->patterns, &t->cappatterns, t->npatterns + len, 1))
				return -ENOMEM;
			memcpy(t->patterns + t->npatterns, name, strlen(name) + 1);
			group->pattern_no = t->npatterns + 1;
			t->npatterns += len;
		} else if (p->module) {
			pattern__cover(t->patterns + group->pattern_no - 1, name);
		}
	}
	return 0;
}

static int cmp_text(const char *a, const char *b)
{
	/* NULL counts as "". */
	if (!a || !b)
		return (a && *a) - (b && *b);
	return strcmp(a, b);
}

int row__compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order;

	if (x->filtered != y->filtered)
		return x->filtered ? 1 : -1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	order = cmp_text(x->file, y->file);
	if (!order && x->line != y->line)
		order = x->line < y->line ? -1 : 1;
	if (!order)
		order = cmp_text(x->func, y->func);
	if (!order)
		order = cmp_text(x->module, y->module);
	if (!order)
		order = cmp_text(x->module_class, y->module_class);
	if (!order)
		order = cmp_text(x->thread, y->thread);
	if (!order)
		order = cmp_text(x->scope, y->scope);
	if (!order)
		order = (int)x->phase - (int)y->phase;
	if (!order)
		order = cmp_text(x->category, y->category);
	if (!order)
		order = cmp_text(x->name, y->name);
	if (!order && x->stack != y->stack)
		order = x->stack < y->stack ? -1 : 1;
	return order;
}

void row__add(struct row *to, const struct row *r)
{
	to->bytes += r->bytes;
	to->count += r->count;
	to->sampled.bytes += r->sampled.bytes;
	to->sampled.low += r->sampled.low;
	to->sampled.high += r->sampled.high;
	to->anonymous += r->anonymous;
	to->requested = to->requested && r->requested ? to->requested + r->requested : 0;
	if (to->median != r->median)
		to->median = 0;
	if (to->category && (!r->category || strcmp(to->category, r->category) != 0))
		to->category = NULL;
	if (r->several_names || cmp_text(to->name, r->name) != 0)
		to->several_names = true;
	if (to->several_names)
		to->name = NULL;
}

void row__sort(struct row *rows, size_t n)
{
	uint64_t sum = 0;

	if (n)
		qsort(rows, n, sizeof(*rows), row__compare);
	for (size_t i = 0; i < n; i++)
		rows[i].cumulative = sum += rows[i].bytes;
}

/* True if the group has the known blocks from before attach without category, module or name.
 * filtered: those that the filter removes, otherwise those that it keeps. */
static bool is_anonymous(const struct bucket *g, bool filtered)
{
	return g->key.census && !g->key.category && !g->key.module && !g->key.name &&
	       g->key.filtered == filtered;
}

/* Returns a row of bytes from before attach that lie in no known block. */
static struct row before_row(const struct model *m, uint64_t bytes)
{
	struct row r = { .bytes = bytes,
			 .anonymous = bytes,
			 .category = category__name(CATEGORY_UNKNOWN) };

	row__set_before_attach(m, &r);
	return r;
}

/* Sets the estimates of a group's row. Rows of memory from before attach, and of blocks without a
 * sampled stack, are exact. */
static void table__estimate(const struct table *t, const struct bucket *g, struct row *r)
{
	struct drawn drawn[SAMPLING_BOUNDS];

	r->sampled = (struct sampled){ r->bytes, r->bytes, r->bytes };
	if (g->not_sampled || r->before_attach)
		return;
	if (t->host) {
		struct pieces pieces = g->pieces;

		/* Others' pieces may be a row's in part. A sample does not tell the sum. */
		pieces.others = t->sample ? INT64_MAX : t->pieces - pieces.bytes;
		r->sampled = sampling__pieces(r->bytes, &pieces);
		return;
	}
	memcpy(drawn, g->drawn, sizeof(drawn));
	for (size_t i = 0; i < SAMPLING_BOUNDS; i++)
		drawn[i].others = t->not_sampled[i];
	r->sampled = sampling__estimate(r->bytes, drawn);
}

/* Makes the row of a group. text: table.patterns. before: memory from before attach in no known
 * block. The row of anonymous blocks gets its bytes, which become 0 in *before. */
static void table__row(const struct table *t, const struct bucket *g, char *text,
		       struct row *before, struct row *r)
{
	*r = g->row;
	r->filtered = g->key.filtered;
	if (r->modules > 1 &&
	    !(t->split & (SPLIT(BY_MODULE) | SPLIT(BY_LAYER) | SPLIT(BY_STACK))) &&
	    (t->split & SPLIT(BY_LINE)))
		r->module = text + g->pattern_no - 1;
	r->category = g->categories ? NULL : category__name(g->category);
	r->several_names = g->names;
	r->name = g->names || !g->name ? NULL : dict__str(t->m->dict, g->name);
	if (is_anonymous(g, before->filtered)) {
		r->requested = before->bytes ? 0 : r->requested;
		r->anonymous = before->bytes;
		r->bytes += before->bytes;
		before->bytes = 0;
	}
	if (g->requested_count != r->count)
		r->requested = 0;
	table__estimate(t, g, r);
}

/* Makes the rows in order, with their cumulative sums. outside: bytes in no known block. Returns 0
 * or -ENOMEM. */
static int table__rows(struct table *t, uint64_t outside, struct row **ret, size_t *n)
{
	struct row *rows = calloc(1, ((size_t)t->n + 1) * sizeof(*rows) + t->npatterns);
	struct row before = before_row(t->m, outside);
	size_t n_rows = 0;
	char *text;

	if (!rows)
		return -ENOMEM;
	before.filtered = t->opts->keep && !t->opts->keep(t->opts->ctx, &before);
	text = (char *)(rows + t->n + 1); /* one allocation, so that one free() releases all */
	if (t->npatterns)
		memcpy(text, t->patterns, t->npatterns);
	for (uint32_t i = 0; i < t->n; i++)
		table__row(t, &t->groups[i], text, &before, &rows[n_rows++]);
	before.sampled = (struct sampled){ before.bytes, before.bytes, before.bytes };
	if (before.bytes)
		rows[n_rows++] = before;
	row__sort(rows, n_rows);
	*ret = rows;
	*n = n_rows;
	return 0;
}

/* Returns the bytes of the device's total at that moment that lie in no known block. */
static uint64_t bytes_outside(const struct dev *dev, enum row_when when)
{
	uint64_t bytes = dev->outside;

	if (when == ROWS_AT_MARK)
		return dev->mark_outside;
	if (when == ROWS_TOTAL)
		return 0;
	if (when != ROWS_NOW)
		bytes = dev->noted[when - ROWS_AT_BASE].outside;
	return (int64_t)bytes > 0 ? bytes : 0;
}

int model__rows(const struct model *m, size_t device, const struct row_opts *opts, struct row **ret,
		size_t *n)
{
	/* only caches change */
	struct table t = { .m = (struct model *)(uintptr_t)m, .opts = opts };
	const struct dev *dev;
	uint32_t number;
	int err;

	if (device >= m->ndevs)
		return -ENOENT;
	number = m->order[device];
	dev = m->devs[number];
	t.host = device__in_pieces(dev->pub.device);
	t.sample = dev->pub.device.type == DEVICE_MALLOC;
	if (opts->when < ROWS_MOMENTS &&
	    !(opts->when == ROWS_AT_MARK ? dev->pub.marked
					 : m->noted[opts->when - ROWS_AT_BASE].set))
		return -ENOENT;
	t.sel = (struct hide){ .m = t.m, .opts = opts };
	t.split = split_of(opts);
	t.by_name = !opts->split && opts->by == BY_LINE && !opts->any_module && !opts->any_category;
	err = table__gather(&t, dev, number);
	for (uint32_t i = 0; i < t.nclasses && !err; i++)
		err = table__add_class(&t, &t.classes[i]);
	if (err)
		goto out;
	table__medians(&t);
	err = table__modules(&t);
	if (err)
		goto out;
	err = table__rows(&t, bytes_outside(dev, opts->when), ret, n);
out:
	free(t.classes);
	free(t.class_index.slots);
	free(t.class_no_of_site);
	free(t.groups);
	free(t.parts);
	free(t.patterns);
	free(t.index.slots);
	hide__free(&t.sel);
	return err;
}

uint64_t model__block_class(const struct model *m, uint32_t class, struct row *ret)
{
	const struct watch_class *watched = &m->watch.classes[class];
	const struct site *site = &m->sites.all[watched->site];
	const struct label *label = watched->label_no ? &m->labels.all[watched->label_no - 1]
						      : NULL;
	struct dict_module module = dict__get_module(
		m->dict, label && label->module ? label->module : site->module);
	struct dict_thread thread = dict__get_thread(m->dict, site->thread);

	rows__line(m, FRAMES_USER, site->stack, site->node, site->thread, site->walk, ret);
	ret->module = dict__str(m->dict, module.name);
	ret->module_class = dict__str(m->dict, module.cls);
	ret->module_root = dict__str(m->dict, module.root);
	ret->category = category__name(category__decide(site, watched->category));
	ret->name = label && label->name ? dict__str(m->dict, label->name) : NULL;
	ret->scope = scopes__text(&m->scopes, site->scope_no);
	if (site->walk != WALK_CENSUS) {
		ret->thread = dict__str(m->dict, thread.name);
		ret->tid = thread.tid;
	}
	return site->size;
}

bool model__stack_line(const struct model *m, uint32_t stack, enum frame_choice which_line,
		       struct row_frame *ret)
{
	struct stack_origin origin = attribution__stack(m->attribution, stack);
	struct dict_loc loc;

	if (!origin.has_line)
		return false;
	loc = dict__get_loc(m->dict, attribution__loc(&origin, which_line));
	*ret = (struct row_frame){
		.func = dict__str(m->dict, loc.func),
		.file = dict__str(m->dict, loc.file),
		.line = loc.line,
	};
	return true;
}

bool model__stack_leads(const struct model *m, uint32_t stack, enum frame_choice which_line,
			const struct row_frame *place)
{
	struct stack_origin origin = attribution__stack(m->attribution, stack);
	struct dict_stack frames = dict__get_stack(m->dict, stack);
	struct dict_loc loc;

	for (uint32_t i = 0; origin.has_line && i < frames.n; i++) {
		loc = dict__get_loc(m->dict, frames.frames[i].loc);
		if (loc.line == place->line && !strcmp(dict__str(m->dict, loc.func), place->func) &&
		    !strcmp(dict__str(m->dict, loc.file), place->file))
			return true;
		if (frames.frames[i].loc == attribution__loc(&origin, which_line))
			break;
	}
	return false;
}

bool model__event_line(const struct model *m, const struct event *e, struct row_frame *ret)
{
	struct event charged = *e;

	attribution__charge(m->attribution, &charged);
	return model__stack_line(m, line_stack(m, FRAMES_USER, charged.stack, charged.node),
				 FRAMES_USER, ret);
}
