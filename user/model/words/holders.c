/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/holders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"

#define MOST_LEAVES 16 /* leaves, such as "weight", that are counted separately for a holder */
#define LEAVES 3       /* leaves that the name of a holder lists */
#define SEP '\x1f'     /* separates the parts of a key: no name has it */

struct item {
	const struct held *held;
	char *key; /* items with the same key have one holder */
	size_t at; /* index of held */
};

static const char *text_of(const char *s)
{
	return s ?: "";
}

/* Copies a name with "*" for its numbers: "[12]" becomes "[*]", ".12." becomes ".*." and "and 12
 * more" becomes "and * more". */
static void copy_pattern(char *dst, const char *src)
{
	for (char before = '.'; *src; before = *src, src++) {
		size_t digits = *src >= '0' && *src <= '9' ? strspn(src, "0123456789") : 0;
		char after = src[digits];

		if (digits && ((before == '[' && after == ']') || (before == ' ' && after == ' ') ||
			       (before == '.' && (after == '.' || !after || after == ' ')))) {
			*dst++ = '*';
			src += digits - 1;
		} else {
			*dst++ = *src;
		}
	}
	*dst = '\0';
}

/* True if the memory belongs to a module and has a role there. */
static bool held__is_of_module(const struct held *x)
{
	return x->category && strcmp(x->category, "unknown") != 0 &&
	       (*text_of(x->module) || *text_of(x->module_class));
}

/* Writes a key: the role, then 'm' and the module, or 'n' and the name. by_role: the key of a
 * module's memory is the role alone. Returns the number of bytes written, with '\0'. */
static size_t put_key(char *buf, const struct held *x, bool by_role)
{
	char *end = buf;

	end = stpcpy(end, text_of(x->category));
	*end++ = SEP;
	if (held__is_of_module(x)) {
		*end++ = 'm';
		if (!by_role) {
			end = stpcpy(end, text_of(x->module_root));
			*end++ = SEP;
			end = stpcpy(end, text_of(x->module_class));
			*end++ = SEP;
			copy_pattern(end, text_of(x->module));
			end += strlen(end);
		}
	} else {
		*end++ = 'n';
		copy_pattern(end, text_of(x->name));
		end += strlen(end);
	}
	*end = '\0';
	return end - buf + 1;
}

/* ---- modules whose names differ in more than numbers, such as adapters in a ModuleDict ---- */

#define MANY 16	       /* more siblings than this become one holder */
#define COMPONENTS 24u /* components of a module's name that are compared */

/* Returns the module's name within a key; NULL: it has none. */
static char *module_of_key(const char *key)
{
	const char *part = strchr(key, SEP);

	if (!part || part[1] != 'm')
		return NULL;
	for (int i = 0; part && i < 2; i++)
		part = strchr(part + 1, SEP);
	return part ? (char *)part + 1 : NULL;
}

/* Sets *ret to the hash of a key without this component of its module, which is equal for siblings.
 * Returns false if the module has no such component. */
static bool hash_without(struct hash_seed seed, const char *key, const char *module,
			 unsigned component, uint64_t *ret)
{
	const char *p = module;

	for (unsigned i = 0; i < component; i++) {
		p += strcspn(p, ".");
		if (!*p++)
			return false;
	}
	*ret = hash__u64(seed, hash__bytes(seed, key, p - key) + component) ^
	       hash__bytes(seed, p + strcspn(p, "."), strlen(p + strcspn(p, ".")));
	return true;
}

/* Replaces a component of a module's name with "*". */
static void put_star(char *module, unsigned component)
{
	char *part = module;
	size_t len;

	for (unsigned i = 0; i < component; i++)
		part += strcspn(part, ".") + 1;
	len = strcspn(part, ".");
	if (len) {
		*part = '*';
		memmove(part + 1, part + len, strlen(part + len) + 1);
	}
}

/* If more than MANY keys differ in one component of the module only, such as the key of a
 * ModuleDict, that component becomes "*". items are in order of their keys. Returns 0 or -ENOMEM. */
static int cover_siblings(struct item *items, size_t n)
{
	struct hash_seed seed = hash__seed();
	struct map64 *key_counts = map64__new(); /* hash_without() -> number of distinct keys */
	const char *last = "";
	uint64_t hash, keys;

	if (!key_counts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *module = strcmp(items[i].key, last) ? module_of_key(items[i].key)
								: NULL;

		last = items[i].key;
		for (unsigned component = 0; module && component < COMPONENTS; component++) {
			if (!hash_without(seed, items[i].key, module, component, &hash))
				break;
			keys = 0;
			map64__get(key_counts, hash, &keys);
			if (map64__set(key_counts, hash, keys + 1)) {
				map64__free(key_counts);
				return -ENOMEM;
			}
		}
	}
	for (size_t i = 0; i < n; i++) {
		char *module = module_of_key(items[i].key);
		uint64_t most = MANY;
		unsigned at = COMPONENTS; /* component that differs in most keys; COMPONENTS: none */

		for (unsigned component = 0; module && component < COMPONENTS; component++) {
			if (!hash_without(seed, items[i].key, module, component, &hash))
				break;
			if (map64__get(key_counts, hash, &keys) && keys > most) {
				most = keys;
				at = component;
			}
		}
		if (at < COMPONENTS)
			put_star(module, at);
	}
	map64__free(key_counts);
	return 0;
}

/* Returns the maximum number of bytes that put_key() writes. */
static size_t key_room(const struct held *x)
{
	return strlen(text_of(x->category)) + strlen(text_of(x->name)) +
	       strlen(text_of(x->module)) + strlen(text_of(x->module_class)) +
	       strlen(text_of(x->module_root)) + 16;
}

static int cmp_item(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	if (!order)
		order = strcmp(text_of(x->held->module), text_of(y->held->module));
	if (order)
		return order;
	return x->at < y->at ? -1 : 1;
}

/*
 * The parts of a name.  before      leaf     middle
 * "layers.0.weight"     ""          weight   NULL
 * "grad of 0.weight"    "grad of "  weight   NULL
 * "AdamW exp_avg of 0"  "AdamW "    exp_avg  " of "
 */
struct name_parts {
	const char *before, *leaf, *middle;
	size_t before_len, leaf_len;
	uint64_t bytes; /* sum over all tensors with this leaf */
};

/* Splits a name, as above. The leaf lacks the module's name. */
static struct name_parts split_name(const struct held *x)
{
	const char *name = text_of(x->name);
	const char *of = strstr(name, " of "), *space;
	size_t module_len = strlen(text_of(x->module));
	struct name_parts parts = { .before = "", .leaf = name, .leaf_len = strcspn(name, " ") };

	if (of && text__starts(name, "grad of ")) {
		parts.before = name;
		parts.before_len = 8;
		parts.leaf = name + 8;
		parts.leaf_len = strcspn(parts.leaf, " ");
	} else if (of) { /* "AdamW exp_avg of layers.0.weight" */
		space = memchr(name, ' ', of - name);
		parts.before = name;
		parts.before_len = space ? (size_t)(space - name) + 1 : 0;
		parts.leaf = name + parts.before_len;
		parts.leaf_len = of - parts.leaf;
		parts.middle = " of ";
		return parts;
	}
	if (module_len && parts.leaf_len > module_len &&
	    !strncmp(parts.leaf, x->module, module_len) && parts.leaf[module_len] == '.') {
		parts.leaf += module_len + 1;
		parts.leaf_len -= module_len + 1;
	}
	return parts;
}

static bool same_leaf(const struct name_parts *a, const struct name_parts *b)
{
	return a->leaf_len == b->leaf_len && !memcmp(a->leaf, b->leaf, a->leaf_len);
}

/* Orders leaves by bytes, largest first, then by text, so that the order of addresses does not
 * matter. */
static int cmp_leaf(const void *a, const void *b)
{
	const struct name_parts *x = a, *y = b;
	size_t len = x->leaf_len < y->leaf_len ? x->leaf_len : y->leaf_len;
	int order;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	order = memcmp(x->leaf, y->leaf, len);
	if (order)
		return order;
	return x->leaf_len < y->leaf_len ? -1 : x->leaf_len > y->leaf_len;
}

/* Writes "blocks.*.mlp.weight, .bias" or "AdamW exp_avg, exp_avg_sq of blocks.*". */
static void put_module_name(FILE *out, const struct item *items, size_t n, const char *module)
{
	struct name_parts leaves[MOST_LEAVES], first = { .before = "" };
	size_t n_leaves = 0;

	for (size_t i = 0; i < n; i++) {
		struct name_parts parts = split_name(items[i].held);
		size_t seen = 0;

		if (!parts.leaf_len)
			continue;
		while (seen < n_leaves && !same_leaf(&leaves[seen], &parts))
			seen++;
		if (seen == MOST_LEAVES)
			continue;
		if (seen == n_leaves)
			leaves[n_leaves++] = parts;
		leaves[seen].bytes += items[i].held->bytes;
	}
	qsort(leaves, n_leaves, sizeof(*leaves), cmp_leaf);
	if (n_leaves)
		first = leaves[0];
	fprintf(out, "%.*s", (int)first.before_len, first.before);
	if (!first.middle)
		fputs(module, out);
	for (size_t i = 0; i < n_leaves && i < LEAVES; i++) {
		if (i)
			fputs(", ", out);
		if (!first.middle && (i || *module))
			fputc('.', out);
		fwrite(leaves[i].leaf, 1, leaves[i].leaf_len, out);
	}
	if (n_leaves > LEAVES)
		fputs(", ...", out);
	if (first.middle && *module)
		fprintf(out, "%s%s", first.middle, module);
}

/* Returns the pattern of the name in the key of memory that belongs to no module. */
static const char *name_of_key(const char *key)
{
	return strchr(key, SEP) + strlen("_n");
}

/* Writes a name for n items of one key, and '\0': the name that they share, or a pattern. */
static void put_name(FILE *out, const struct item *items, size_t n, const char *module)
{
	const char *name = text_of(items->held->name);
	bool same = true;

	for (size_t i = 1; i < n && same; i++)
		same = !strcmp(text_of(items[i].held->name), name);
	if (same)
		fputs(name, out);
	else if (held__is_of_module(items->held))
		put_module_name(out, items, n, module);
	else
		fputs(name_of_key(items->key), out);
	fputc('\0', out);
}

/* Returns a pattern that covers the modules of n items, which the caller frees; NULL: no memory.
 * *modules: number of distinct modules. */
static char *cover_modules(const struct item *items, size_t n, uint32_t *modules)
{
	const struct held *last = NULL;
	size_t len = 0;
	char *pattern;

	for (size_t i = 0; i < n; i++)
		len += strlen(text_of(items[i].held->module)) + 2;
	pattern = calloc(1, len + 2);
	*modules = 0;
	for (size_t i = 0; pattern && i < n; i++) {
		const struct held *held = items[i].held;
		const char *module = text_of(held->module);

		if (!*module && !*text_of(held->module_class))
			continue;
		if (!last)
			strcpy(pattern, module);
		else if (strcmp(module, text_of(last->module)) != 0)
			pattern__cover(pattern, module);
		*modules += !last || strcmp(module, text_of(last->module)) != 0;
		last = held;
	}
	return pattern;
}

static bool same_text(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

/* Adds an item to its holder. What differs from item to item becomes unknown. */
static void holder__add(struct holder *h, const struct held *held)
{
	h->bytes += held->bytes;
	h->count += held->count;
	if (h->size != held->size)
		h->size = 0;
	if (!same_text(h->detail, held->detail))
		h->detail = NULL;
	if (!same_text(h->module_class, held->module_class))
		h->module_class = "";
	if (!same_text(h->module_root, held->module_root))
		h->module_root = "";
}

/* Makes the holder of n items, without name and module, which are written to out. Returns 0 or
 * -ENOMEM. */
static int make_holder(FILE *out, const struct item *items, size_t n, struct holder *h)
{
	const struct held *first = items->held;
	char *module = cover_modules(items, n, &h->modules);

	if (!module)
		return -ENOMEM;
	*h = (struct holder){ .category = first->category,
			      .module_class = text_of(first->module_class),
			      .module_root = text_of(first->module_root),
			      .detail = first->detail,
			      .size = first->size,
			      .modules = h->modules };
	for (size_t i = 0; i < n; i++)
		holder__add(h, items[i].held);
	put_name(out, items, n, module);
	fputs(module, out);
	fputc('\0', out);
	free(module);
	return 0;
}

static int cmp_holder(const void *a, const void *b)
{
	const struct holder *x = *(const struct holder *const *)a,
			    *y = *(const struct holder *const *)b;
	int order;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	order = strcmp(text_of(x->category), text_of(y->category));
	if (!order)
		order = strcmp(x->name, y->name);
	if (order)
		return order;
	return x < y ? -1 : x > y;
}

/* Sorts the holders by bytes, and renumbers the n entries of holder_of. Returns 0 or -ENOMEM. */
static int holders__sort(struct holders *h, size_t n)
{
	struct holder **order = malloc((h->n + 1) * sizeof(*order));
	struct holder *sorted = malloc((h->n + 1) * sizeof(*sorted));
	uint32_t *place = malloc((h->n + 1) * sizeof(*place)); /* index after the sorting */

	if (!order || !sorted || !place) {
		free(order);
		free(sorted);
		free(place);
		return -ENOMEM;
	}
	for (size_t i = 0; i < h->n; i++)
		order[i] = &h->all[i];
	if (h->n)
		qsort(order, h->n, sizeof(*order), cmp_holder);
	for (size_t i = 0; i < h->n; i++) {
		sorted[i] = *order[i];
		place[order[i] - h->all] = i;
	}
	for (size_t i = 0; i < n; i++)
		h->holder_of[i] = place[h->holder_of[i]];
	free(h->all);
	free(order);
	free(place);
	h->all = sorted;
	return 0;
}

/* Makes one holder for each run of items with the same key. Returns 0 or -ENOMEM. */
static int make_holders(const struct item *items, size_t n, struct holders *h)
{
	size_t size;
	FILE *out = open_memstream(&h->text, &size);
	const char *text;
	int err = 0;

	if (!out)
		return -ENOMEM;
	for (size_t i = 0, end; i < n && !err; i = end) {
		for (end = i; end < n && !strcmp(items[end].key, items[i].key); end++)
			h->holder_of[items[end].at] = h->n;
		err = make_holder(out, &items[i], end - i, &h->all[h->n++]);
	}
	if (fclose(out) || err)
		return -ENOMEM;
	text = h->text; /* make_holder() wrote name and module of each, one after another */
	for (size_t i = 0; i < h->n; i++) {
		h->all[i].name = text;
		h->all[i].module = text += strlen(text) + 1;
		text += strlen(text) + 1;
	}
	return holders__sort(h, n);
}

/* As holders__group(). holder_of_room: entries to allocate for holder_of, at least n. */
static int group_held(const struct held *held, size_t n, size_t holder_of_room, bool by_role,
		      struct holders *ret)
{
	struct holders holders = { .all = calloc(n + 1, sizeof(*holders.all)),
				   .holder_of = calloc(holder_of_room + 1,
						       sizeof(*holders.holder_of)) };
	struct item *items = calloc(n + 1, sizeof(*items));
	size_t room = 1;
	char *keys, *key;
	int err = -ENOMEM;

	for (size_t i = 0; i < n; i++)
		room += key_room(&held[i]);
	keys = key = malloc(room);
	if (!holders.all || !holders.holder_of || !items || !keys)
		goto out;
	for (size_t i = 0; i < n; i++) {
		items[i] = (struct item){ .held = &held[i], .key = key, .at = i };
		key += put_key(key, &held[i], by_role);
	}
	qsort(items, n, sizeof(*items), cmp_item);
	if (!by_role && n > MANY) {
		err = cover_siblings(items, n);
		if (err)
			goto out;
		qsort(items, n, sizeof(*items), cmp_item);
	}
	err = make_holders(items, n, &holders);
out:
	free(items);
	free(keys);
	if (err)
		holders__free(&holders);
	else
		*ret = holders;
	return err;
}

int holders__group(const struct held *v, size_t n, bool by_role, struct holders *ret)
{
	return group_held(v, n, n, by_role, ret);
}

void holders__free(struct holders *h)
{
	free(h->all);
	free(h->holder_of);
	free(h->text);
	*h = (struct holders){ 0 };
}

/* Returns the blocks of a row; size: that of one block, if all have the same. */
static struct held held_of_row(const struct row *r)
{
	return (struct held){ .name = r->name,
			      .category = r->category,
			      .module = r->module,
			      .module_class = r->module_class,
			      .module_root = r->module_root,
			      .bytes = r->bytes,
			      .count = r->count,
			      .size = r->count * r->median == r->bytes ? r->median : 0 };
}

int holders__of_rows(const struct row *rows, size_t n, bool by_role, struct holders *ret)
{
	struct held *held = calloc(n + 1, sizeof(*held));
	size_t n_held = 0;
	int err = -ENOMEM;

	for (size_t i = 0; held && i < n; i++)
		if (rows[i].before_attach)
			held[n_held++] = held_of_row(&rows[i]);
	if (held)
		err = group_held(held, n_held, n, by_role, ret);
	free(held);
	/* holder_of has the grouped rows one after another: spread them to the indexes of rows. */
	for (size_t i = n; !err && i-- > 0;)
		ret->holder_of[i] = rows[i].before_attach ? ret->holder_of[--n_held] : HOLDERS_NONE;
	return err;
}

static struct row row_of_holder(const struct holder *h)
{
	return (struct row){ .bytes = h->bytes,
			     .count = h->count,
			     .median = h->size,
			     .module = h->module,
			     .module_class = h->module_class,
			     .module_root = h->module_root,
			     .modules = h->modules,
			     .category = h->category,
			     .name = *h->name ? h->name : NULL,
			     .phase = PHASE_OTHER,
			     .source = "census",
			     .before_attach = true };
}

/* Replaces the rows of memory from before attach with rows of holders; filtered rows stay. named: n
 * rows of the same memory by name, those that the filter keeps first. Returns 0 or -ENOMEM. */
static int put_holders(struct holder_rows *r, const struct row *named, size_t n)
{
	size_t kept = 0, n_rows;
	struct row *rows;

	while (kept < n && !named[kept].filtered)
		kept++;
	if (holders__of_rows(named, kept, /*by_role=*/true, &r->holders))
		return -ENOMEM;
	rows = calloc(r->n + r->holders.n + 1, sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	for (n_rows = 0; n_rows < r->holders.n; n_rows++)
		rows[n_rows] = row_of_holder(&r->holders.all[n_rows]);
	for (size_t i = 0; i < kept; i++)
		if (named[i].before_attach) {
			rows[r->holders.holder_of[i]].anonymous += named[i].anonymous;
			rows[r->holders.holder_of[i]].history = named[i].history;
		}
	for (size_t i = 0; i < r->n; i++)
		if (!r->all[i].before_attach || r->all[i].filtered)
			rows[n_rows++] = r->all[i];
	r->all = rows; /* of_model stays: it owns patterns of modules */
	r->n = n_rows;
	row__sort(rows, n_rows);
	return 0;
}

int holder_rows__of(const struct model *m, size_t device, const struct row_opts *opts, bool names,
		    struct holder_rows *ret)
{
	struct row_opts by_name = *opts;
	struct holder_rows rows = { .n = 0 };
	struct row *named = NULL;
	size_t n;
	int err = model__rows(m, device, opts, &rows.of_model, &rows.n);

	if (err)
		return err;
	rows.all = rows.of_model;
	if (names) {
		by_name.by = BY_LINE;
		by_name.split = 0;
		by_name.any_module = by_name.any_phase = by_name.any_category = false;
		err = model__rows(m, device, &by_name, &named, &n);
		if (err)
			goto failed;
		err = put_holders(&rows, named, n);
		free(named);
		if (err)
			goto failed;
	}
	*ret = rows;
	return 0;
failed:
	holder_rows__free(&rows);
	return err;
}

void holder_rows__free(struct holder_rows *r)
{
	if (r->all != r->of_model)
		free(r->all);
	free(r->of_model);
	holders__free(&r->holders);
	*r = (struct holder_rows){ 0 };
}
