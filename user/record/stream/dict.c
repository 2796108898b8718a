/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/dict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/stream/limits.h"

#define NONE UINT32_MAX /* returned instead of an entry's number on an error */
#define CHUNK_BYTES (256u << 10)
#define MIN_SLOTS 256	       /* of a hash table; a power of two */
#define NATIVE_LINE (1u << 31) /* a flag in struct dict_loc.line, as in recordings */

_Static_assert(DICT_MAX_STACK_FRAMES * sizeof(struct dict_frame) <= CHUNK_BYTES,
	       "a stack fits a chunk");
_Static_assert(DICT_MAX_STRING + 1 <= CHUNK_BYTES, "a string fits a chunk");

/* Memory that never moves, so that the results of look-ups stay valid while the dict grows. */
struct chunk {
	struct chunk *next;
	size_t used;
	_Alignas(8) char data[CHUNK_BYTES];
};

/* Entries of one kind: an array of fixed-size records and a hash table of their numbers. */
struct table {
	char *entries;
	size_t entry_size;
	uint32_t n, max;  /* number of entries, and its bound */
	size_t room;	  /* entries that fit the array */
	uint32_t *slots;  /* entry number + 1; 0: empty */
	uint32_t *hashes; /* hash of each slot's entry, so that most mismatches are found without
			     reading the entry */
	uint32_t mask;	  /* number of slots - 1; the number is a power of two */
};

struct string {
	const char *text;
	uint32_t len;
};

enum kind { STRINGS, LOCS, MODULES, STACKS, THREADS, NODES, KINDS };

struct dict {
	struct table tables[KINDS];
	struct chunk *chunks;
	struct hash_seed seed;
	uint64_t string_bytes, frames; /* sums over all strings and stacks, for the bounds */
	uint32_t phantom;	       /* location of frames that CPython hides; 0: none so far */
};

/* Makes an empty table for at most max entries. Returns 0 or -ENOMEM; call table__fini() also then.
 */
static int table__init(struct table *t, size_t entry_size, uint32_t max)
{
	t->entry_size = entry_size;
	t->max = max;
	t->slots = calloc(MIN_SLOTS, sizeof(*t->slots));
	t->hashes = calloc(MIN_SLOTS, sizeof(*t->hashes));
	t->mask = MIN_SLOTS - 1;
	return t->slots && t->hashes ? 0 : -ENOMEM;
}

static void table__fini(struct table *t)
{
	free(t->entries);
	free(t->slots);
	free(t->hashes);
}

/* Puts an entry into the first empty slot from that of its hash on. value: the entry number + 1.
 * slots, hashes: the table's values and, for a quick comparison, their hashes. */
static void put_slot(uint32_t *slots, uint32_t *hashes, uint32_t mask, uint32_t hash,
		     uint32_t value)
{
	uint32_t i = hash & mask;

	while (slots[i])
		i = (i + 1) & mask;
	slots[i] = value;
	hashes[i] = hash;
}

/* Makes room for one more entry in the array and in the hash table (at most 2/3 full). Returns 0,
 * -ENOSPC (bound) or -ENOMEM. */
static int table__reserve(struct table *t)
{
	if (t->n >= t->max)
		return -ENOSPC;
	if (array__grow(&t->entries, &t->room, t->n + 1, t->entry_size))
		return -ENOMEM;
	if (((uint64_t)t->n + 1) * 3 > ((uint64_t)t->mask + 1) * 2) {
		uint32_t mask = t->mask * 2 + 1;
		uint32_t *slots = calloc((size_t)mask + 1, sizeof(*slots));
		uint32_t *hashes = calloc((size_t)mask + 1, sizeof(*hashes));

		if (!slots || !hashes) {
			free(slots);
			free(hashes);
			return -ENOMEM;
		}
		for (uint32_t i = 0; i <= t->mask; i++) {
			if (t->slots[i])
				put_slot(slots, hashes, mask, t->hashes[i], t->slots[i]);
		}
		free(t->slots);
		free(t->hashes);
		t->slots = slots;
		t->hashes = hashes;
		t->mask = mask;
	}
	return 0;
}

/* Adds an entry and returns its number; call table__reserve() before. */
static uint32_t table__append(struct table *t, uint32_t hash, const void *entry)
{
	memcpy(t->entries + t->n * t->entry_size, entry, t->entry_size);
	put_slot(t->slots, t->hashes, t->mask, hash, t->n + 1);
	return t->n++;
}

/* The entry with this number; that of 0 for a number that is out of range. */
static const void *table__at(const struct table *t, uint32_t id)
{
	return t->entries + (id < t->n ? id : 0) * t->entry_size;
}

/* Sets errno to -err and returns NONE. */
static uint32_t fail_with(int err)
{
	errno = -err;
	return NONE;
}

/* Returns the number of the entry with these bytes, which must contain no padding; adds it on first
 * use. NONE with errno on failure. */
static uint32_t intern_plain(struct dict *d, enum kind kind, const void *entry)
{
	struct table *t = &d->tables[kind];
	uint32_t hash = (uint32_t)hash__bytes(d->seed, entry, t->entry_size);
	int err;

	for (uint32_t i = hash & t->mask; t->slots[i]; i = (i + 1) & t->mask) {
		uint32_t id = t->slots[i] - 1;

		if (t->hashes[i] == hash && !memcmp(table__at(t, id), entry, t->entry_size))
			return id;
	}
	err = table__reserve(t);
	return err ? fail_with(err) : table__append(t, hash, entry);
}

/* Returns a copy of the bytes that never moves; NULL: no memory. */
static void *store_bytes(struct dict *d, const void *data, size_t len)
{
	size_t padded = (len + 7) & ~(size_t)7; /* aligned as chunk.data */
	struct chunk *c = d->chunks;
	void *p;

	if (!c || CHUNK_BYTES - c->used < padded) {
		c = malloc(sizeof(*c));
		if (!c)
			return NULL;
		c->next = d->chunks;
		c->used = 0;
		d->chunks = c;
	}
	p = c->data + c->used;
	memcpy(p, data, len);
	c->used += padded;
	return p;
}

/* Makes the tables of all kinds. Returns 0 or -ENOMEM. */
static int init_tables(struct dict *d)
{
	static const struct {
		size_t entry_size;
		uint32_t max;
	} kinds[KINDS] = {
		[STRINGS] = { sizeof(struct string), DICT_MAX_STRINGS },
		[LOCS] = { sizeof(struct dict_loc), DICT_MAX_LOCS },
		[MODULES] = { sizeof(struct dict_module), DICT_MAX_MODULES },
		[STACKS] = { sizeof(struct dict_stack), DICT_MAX_STACKS },
		[THREADS] = { sizeof(struct dict_thread), DICT_MAX_THREADS },
		[NODES] = { sizeof(struct dict_node), DICT_MAX_NODES },
	};

	for (int i = 0; i < KINDS; i++)
		if (table__init(&d->tables[i], kinds[i].entry_size, kinds[i].max))
			return -ENOMEM;
	return 0;
}

/* Adds the empty entry of each kind, whose number must be 0. Returns true without memory. */
static bool lacks_first_entries(struct dict *d)
{
	return dict__string(d, "", 0) || dict__loc(d, (struct dict_loc){ 0 }) ||
	       dict__module(d, (struct dict_module){ 0 }) ||
	       dict__stack(d, /*frames=*/NULL, 0, MT_WALK_OK) ||
	       dict__thread(d, (struct dict_thread){ 0 }) || dict__node(d, (struct dict_node){ 0 });
}

struct dict *dict__new(void)
{
	struct dict *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->seed = hash__seed();
	if (init_tables(d) || lacks_first_entries(d)) {
		dict__free(d);
		errno = ENOMEM;
		return NULL;
	}
	return d;
}

void dict__free(struct dict *d)
{
	if (!d)
		return;
	for (int i = 0; i < KINDS; i++)
		table__fini(&d->tables[i]);
	while (d->chunks) {
		struct chunk *next = d->chunks->next;

		free(d->chunks);
		d->chunks = next;
	}
	free(d);
}

/* Converts a string to valid UTF-8 and cuts it to DICT_MAX_STRING bytes. A NUL becomes the
 * character for invalid bytes. Returns the new length. */
static size_t clean_string(char dst[DICT_MAX_STRING + 1], const char *s, size_t len)
{
	static const char mark[] = "...";
	/* Room for one extra character, which shows that the text is too long. */
	char clean[DICT_MAX_STRING + 4];
	size_t out = 0, i = 0;

	while (i < len && out < sizeof(clean) - 4) {
		size_t run = strnlen(s + i, len - i);

		if (!run) {
			out += text__utf8(clean + out, sizeof(clean) - out, "\xff", 1);
			i++;
			continue;
		}
		out += text__utf8(clean + out, sizeof(clean) - out, s + i, run);
		i += run;
	}
	if (out > DICT_MAX_STRING || i < len) {
		out = text__utf8(dst, DICT_MAX_STRING - (sizeof(mark) - 1), clean, out);
		memcpy(dst + out, mark, sizeof(mark) - 1);
		out += sizeof(mark) - 1;
	} else {
		memcpy(dst, clean, out);
	}
	dst[out] = '\0';
	return out;
}

uint32_t dict__string(struct dict *d, const char *s, size_t len)
{
	struct table *t = &d->tables[STRINGS];
	char fit[DICT_MAX_STRING + 1];
	struct string entry;
	uint32_t hash;
	int err;

	entry.len = (uint32_t)clean_string(fit, s, len);
	hash = (uint32_t)hash__bytes(d->seed, fit, entry.len);
	for (uint32_t i = hash & t->mask; t->slots[i]; i = (i + 1) & t->mask) {
		const struct string *o = table__at(t, t->slots[i] - 1);

		if (t->hashes[i] == hash && o->len == entry.len && !memcmp(o->text, fit, entry.len))
			return t->slots[i] - 1;
	}
	err = table__reserve(t);
	if (!err && d->string_bytes + entry.len + 1 > DICT_MAX_STRING_BYTES)
		err = -ENOSPC;
	if (err)
		return fail_with(err);
	entry.text = store_bytes(d, fit, entry.len + 1);
	if (!entry.text)
		return fail_with(-ENOMEM);
	d->string_bytes += entry.len + 1;
	return table__append(t, hash, &entry);
}

/* True for the frame that CPython 3.13 and later have around a class's __init__: _Py_InitCleanup
 * (Python/specialize.c). Its code is in no file, and tracebacks leave it out. */
static bool is_phantom(const struct dict *d, struct dict_loc loc)
{
	return !loc.line && loc.file == loc.func && !strcmp(dict__str(d, loc.file), "__init__");
}

uint32_t dict__loc(struct dict *d, struct dict_loc loc)
{
	uint32_t id;

	loc.line &= NATIVE_LINE - 1;
	id = intern_plain(d, LOCS, &loc);
	if (id != NONE && is_phantom(d, loc))
		d->phantom = id;
	return id;
}

uint32_t dict__native_loc(struct dict *d, struct dict_loc loc)
{
	loc.line |= NATIVE_LINE;
	return intern_plain(d, LOCS, &loc);
}

uint32_t dict__module(struct dict *d, struct dict_module m)
{
	return intern_plain(d, MODULES, &m);
}

uint32_t dict__thread(struct dict *d, struct dict_thread t)
{
	return intern_plain(d, THREADS, &t);
}

uint32_t dict__node(struct dict *d, struct dict_node n)
{
	return intern_plain(d, NODES, &n);
}

/* Returns the number of the entry with this stack; adds it on first use. Frames beyond
 * DICT_MAX_STACK_FRAMES are cut off. NONE with errno, ENOSPC (bound) or ENOMEM. */
static uint32_t intern_stack(struct dict *d, const struct dict_frame *frames, uint32_t n,
			     uint8_t walk)
{
	struct table *t = &d->tables[STACKS];
	struct dict_stack entry = { .n = n, .walk = walk };
	size_t bytes;
	uint32_t hash;
	int err;

	if (n > DICT_MAX_STACK_FRAMES) {
		entry.n = DICT_MAX_STACK_FRAMES;
		if (walk == MT_WALK_OK)
			entry.walk = MT_WALK_TRUNCATED;
	}
	bytes = entry.n * sizeof(*frames);
	hash = (uint32_t)(hash__bytes(d->seed, frames, bytes) + entry.walk);
	for (uint32_t i = hash & t->mask; t->slots[i]; i = (i + 1) & t->mask) {
		const struct dict_stack *o = table__at(t, t->slots[i] - 1);

		if (t->hashes[i] == hash && o->n == entry.n && o->walk == entry.walk &&
		    (!bytes || !memcmp(o->frames, frames, bytes)))
			return t->slots[i] - 1;
	}
	err = table__reserve(t);
	if (!err && d->frames + entry.n > DICT_MAX_FRAMES)
		err = -ENOSPC;
	if (err)
		return fail_with(err);
	if (bytes) {
		entry.frames = store_bytes(d, frames, bytes);
		if (!entry.frames)
			return fail_with(-ENOMEM);
	}
	d->frames += entry.n;
	return table__append(t, hash, &entry);
}

/* Copies frames to dst without those of _Py_InitCleanup, and returns the number of copies. The bound
 * DICT_MAX_STACK_FRAMES + 1 keeps a stack recognizable that is too long. dst may be frames. */
static uint32_t copy_without_phantoms(const struct dict *d, struct dict_frame *dst,
				      const struct dict_frame *frames, uint32_t n)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n && kept <= DICT_MAX_STACK_FRAMES; i++)
		if (frames[i].loc != d->phantom)
			dst[kept++] = frames[i];
	return kept;
}

uint32_t dict__stack(struct dict *d, const struct dict_frame *frames, uint32_t n, uint8_t walk)
{
	struct dict_frame kept[DICT_MAX_STACK_FRAMES + 1];

	if (!d->phantom)
		return intern_stack(d, frames, n, walk);
	n = copy_without_phantoms(d, kept, frames, n);
	return intern_stack(d, kept, n, walk);
}

uint32_t dict__recorded_stack(struct dict *d, const struct dict_frame *frames, uint32_t n,
			      uint8_t walk)
{
	struct table *t = &d->tables[STACKS];
	uint32_t before = t->n, id = intern_stack(d, frames, n, walk);
	struct dict_stack *s;

	if (id != before || !d->phantom)
		return id;
	/* A new entry: remove its hidden frames in place. The hash stays that of the whole stack. */
	s = (struct dict_stack *)(t->entries + id * t->entry_size);
	s->n = copy_without_phantoms(d, (struct dict_frame *)(uintptr_t)s->frames, s->frames, s->n);
	return id;
}

const char *dict__str(const struct dict *d, uint32_t id)
{
	return ((const struct string *)table__at(&d->tables[STRINGS], id))->text;
}

struct dict_loc dict__get_loc(const struct dict *d, uint32_t id)
{
	struct dict_loc loc = *(const struct dict_loc *)table__at(&d->tables[LOCS], id);

	loc.line &= NATIVE_LINE - 1;
	return loc;
}

bool dict__is_native(const struct dict *d, uint32_t id)
{
	return ((const struct dict_loc *)table__at(&d->tables[LOCS], id))->line & NATIVE_LINE;
}

struct dict_module dict__get_module(const struct dict *d, uint32_t id)
{
	return *(const struct dict_module *)table__at(&d->tables[MODULES], id);
}

struct dict_stack dict__get_stack(const struct dict *d, uint32_t id)
{
	return *(const struct dict_stack *)table__at(&d->tables[STACKS], id);
}

struct dict_thread dict__get_thread(const struct dict *d, uint32_t id)
{
	return *(const struct dict_thread *)table__at(&d->tables[THREADS], id);
}

struct dict_node dict__get_node(const struct dict *d, uint32_t id)
{
	return *(const struct dict_node *)table__at(&d->tables[NODES], id);
}

struct dict_counts dict__counts(const struct dict *d)
{
	return (struct dict_counts){
		.strings = d->tables[STRINGS].n,
		.locs = d->tables[LOCS].n,
		.modules = d->tables[MODULES].n,
		.stacks = d->tables[STACKS].n,
		.threads = d->tables[THREADS].n,
		.nodes = d->tables[NODES].n,
	};
}
