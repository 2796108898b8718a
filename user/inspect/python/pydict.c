/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Layout of dicts. A dict's keys object has a header, a hash index and the entries. A "split" table
 * has its values in a separate array: instances of a class share the keys.
 *
 * to 3.10     header 40 bytes: slots of the index at 8, entries at 32 (numbers, 64 bits);
 *             entries {hash, key, value};
 *             values in the order of the keys
 * from 3.11   header 32 bytes: log2 of the index's slots at 8 and of its bytes at 9, kind at 10,
 *             number of entries at 24; entries {key, value}
 *             if all keys are str (kind 1) or the table is split (kind 2)
 * 3.11, 3.12  values[]; before it the order of insertion: byte [-1] is its size, [-2] used,
 *             [-3 - i] the i-th key
 * from 3.13   {capacity, size, embedded, valid}, values[] at 8, then the order of insertion
 */
#include "inspect/python/pydict.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"

#define TRIES 3
#define PAGE 4096u
/* Byte offsets in a keys object to 3.10, and from 3.11 on. */
#define OLD_SLOTS 8u
#define OLD_ENTRIES 32u
#define OLD_HEAD 40u
#define LOG2_SLOTS 8u
#define LOG2_INDEX 9u
#define KIND 10u
#define ENTRIES 24u
#define HEAD 32u
#define KIND_GENERAL 0 /* DICT_KEYS_GENERAL: not all keys are str */
#define KIND_LAST 2
#define WINDOW 1024	     /* bytes of a keys object read at once: about 40 entries */
#define SHARED_KEYS_MAX 30   /* keys of a split table, from 3.11 on */
#define VALUES_PREFIX_MAX 32 /* SHARED_KEYS_MAX + 2, in whole words */

/* Bits of tp_flags: Py_TPFLAGS_INLINE_VALUES, Py_TPFLAGS_MANAGED_DICT. */
#define FLAG_INLINE_VALUES (1ul << 2)
#define FLAG_MANAGED_DICT (1ul << 4)

void pyitems__fini(struct pyitems *it)
{
	free(it->v);
	free(it->raw);
	memset(it, 0, sizeof(*it));
}

int pydict__type_of(struct pymem *mem, uint64_t obj, uint64_t *type)
{
	uint64_t found_type;
	int err;

	if (!obj || obj % 8)
		return -EBADMSG;
	err = pymem__u64(mem, obj + mem->layout->ob_type, &found_type);
	if (err)
		return err;
	if (!found_type || found_type % 8)
		return -EBADMSG;
	*type = found_type;
	return 0;
}

int pydict__check_kind(struct pymem *mem, uint64_t obj, uint64_t bit)
{
	uint64_t type, flags;
	int err;

	err = pydict__type_of(mem, obj, &type)
		      ?: pymem__constant_u64(mem, type + mem->layout->tp_flags, &flags);
	if (err)
		return err;
	return flags & bit ? 0 : -EBADMSG;
}

int pydict__sequence(struct pymem *mem, uint64_t field, uint64_t bit, uint64_t *obj, uint64_t *n)
{
	int err = pymem__u64(mem, field, obj) ?: pydict__check_kind(mem, *obj, bit);

	return err ?: pymem__u64(mem, *obj + mem->layout->ob_size, n);
}

/* Parsed header of a keys object. */
struct keys {
	uint64_t entries; /* address of the entries */
	size_t n;
	uint8_t stride, key_at, value_at;
	uint8_t seen[WINDOW]; /* the first bytes, from the header on */
	size_t seen_len;
	size_t head; /* bytes from the header to the entries */
};

/* Parses a header to 3.10: {refcnt, size, lookup, usable, nentries}. *index_bytes: size of the
 * index. *slots: its slots. *n: number of entries. 0, -E2BIG, or -EAGAIN: implausible, so possibly
 * changing. */
static int parse_old_head(const uint8_t *head, uint64_t *index_bytes, uint64_t *slots, uint64_t *n)
{
	uint64_t size, width;

	memcpy(&size, head + OLD_SLOTS, 8);
	memcpy(n, head + OLD_ENTRIES, 8);
	if (!size || size & (size - 1))
		return -EAGAIN;
	if (size > 4ull * PYOBJ_MAX_DICT)
		return -E2BIG;
	/* Bytes of an index, as in CPython's new_keys_object(). */
	if (size <= 0xff)
		width = 1;
	else
		width = size <= 0xffff ? 2 : 4;
	*index_bytes = size * width;
	*slots = size;
	return 0;
}

/* Parses a header from 3.11 on: {refcnt, log2_size, log2_index_bytes, kind, version, usable,
 * nentries}, with one byte for each of the second to fourth. Returns as parse_old_head(). */
static int parse_new_head(const uint8_t *head, uint64_t *index_bytes, uint64_t *slots, uint64_t *n)
{
	memcpy(n, head + ENTRIES, 8);
	if (head[LOG2_SLOTS] > 40 || head[LOG2_INDEX] > 43 || head[LOG2_INDEX] < head[LOG2_SLOTS] ||
	    head[KIND] > KIND_LAST)
		return -EAGAIN;
	if (1ull << head[LOG2_SLOTS] > 4ull * PYOBJ_MAX_DICT)
		return -E2BIG;
	*index_bytes = 1ull << head[LOG2_INDEX];
	*slots = 1ull << head[LOG2_SLOTS];
	return 0;
}

/* Reads the header, and with it the entries of a small dict. In a snapshot, only the needed fields:
 * reference count and version may change. */
static int read_keys_head(struct pymem *mem, uint64_t addr, struct keys *keys, bool to_3_10,
			  size_t head_len)
{
	size_t len = PAGE - addr % PAGE; /* the next page may not be mapped */
	int err;

	if (mem->snapshot) {
		size_t size_len = to_3_10 ? 8 : 4; /* of what begins at OLD_SLOTS or LOG2_SLOTS */
		size_t n_at = to_3_10 ? OLD_ENTRIES : ENTRIES;

		memset(keys->seen, 0, head_len);
		keys->seen_len = head_len;
		return pymem__read(mem, addr + OLD_SLOTS, keys->seen + OLD_SLOTS, size_len)
			       ?: pymem__read(mem, addr + n_at, keys->seen + n_at, 8);
	}
	len = len < sizeof(keys->seen) ? len : sizeof(keys->seen);
	err = proc__read(mem->proc, addr, keys->seen, len);
	if (!err && len < head_len) {
		len = head_len;
		err = proc__read(mem->proc, addr, keys->seen, len);
	}
	keys->seen_len = err ? 0 : len;
	return err;
}

/* Reads and parses the header. -EAGAIN: implausible, so possibly changing. */
static int read_keys(struct pymem *mem, uint64_t addr, struct keys *keys)
{
	bool to_3_10 = mem->layout->minor <= 10;
	size_t head_len = to_3_10 ? OLD_HEAD : HEAD;
	uint64_t index_bytes, slots, n;
	bool wide; /* entries have the hash, too */
	int err;

	if (!addr || addr % 8 || addr > UINT64_MAX - WINDOW)
		return -EAGAIN;
	err = read_keys_head(mem, addr, keys, to_3_10, head_len);
	if (err)
		return err;
	err = to_3_10 ? parse_old_head(keys->seen, &index_bytes, &slots, &n)
		      : parse_new_head(keys->seen, &index_bytes, &slots, &n);
	if (err)
		return err;
	if (n > slots)
		return -EAGAIN;
	if (n > PYOBJ_MAX_DICT)
		return -E2BIG;
	wide = to_3_10 || keys->seen[KIND] == KIND_GENERAL;
	keys->stride = wide ? 24 : 16;
	keys->key_at = wide ? 8 : 0;
	keys->value_at = keys->key_at + 8;
	keys->n = n;
	keys->head = head_len + index_bytes;
	return __builtin_add_overflow(addr, keys->head, &keys->entries) ? -EAGAIN : 0;
}

/* Sets *ret to the raw keys->n entries: the bytes read with the header, or read here into it->raw. */
static int read_entries(struct pymem *mem, const struct keys *keys, struct pyitems *it,
			const uint8_t **ret)
{
	size_t len = keys->n * keys->stride;
	int err;

	if (keys->head + len <= keys->seen_len) {
		*ret = keys->seen + keys->head;
		return 0;
	}
	err = array__grow(&it->raw, &it->raw_cap, len, 1);
	if (err)
		return err;
	*ret = it->raw;
	return pymem__read(mem, keys->entries, it->raw, len);
}

/* Entries of a table that is not split. used: the dict's count. */
static int read_combined(struct pymem *mem, const struct keys *keys, uint64_t used,
			 struct pyitems *it)
{
	const uint8_t *entry;
	int err;

	err = array__grow(&it->v, &it->cap, keys->n, sizeof(*it->v))
		      ?: read_entries(mem, keys, it, &entry);
	if (err)
		return err;
	it->n = 0;
	for (size_t i = 0; i < keys->n; i++, entry += keys->stride) {
		struct pyitem item = { proc__word(entry + keys->key_at),
				       proc__word(entry + keys->value_at) };

		/* A deleted entry has no value. */
		if (!item.value)
			continue;
		if (!item.key)
			return -EAGAIN;
		it->v[it->n++] = item;
	}
	return it->n == used ? 0 : -EAGAIN;
}

/* Entries of a split table to 3.10. A dict stays split only if it was filled in the order of the
 * keys, so values[i] belongs to the i-th key. */
static int read_split_3_10(struct pymem *mem, const struct keys *keys, uint64_t values, size_t used,
			   struct pyitems *it)
{
	const uint8_t *entry;
	int err;

	if (used > keys->n || !values || values % 8)
		return -EAGAIN;
	err = array__grow(&it->v, &it->cap, used, sizeof(*it->v))
		      ?: read_entries(mem, keys, it, &entry);
	if (err)
		return err;
	for (size_t i = 0; i < used; i++)
		it->v[i].key = proc__word(entry + i * keys->stride + keys->key_at);
	err = array__grow(&it->raw, &it->raw_cap, used * sizeof(uint64_t), 1)
		      ?: pymem__read(mem, values, it->raw, used * sizeof(uint64_t));
	if (err)
		return err;
	for (size_t i = 0; i < used; i++) {
		it->v[i].value = proc__word(it->raw + i * sizeof(uint64_t));
		if (!it->v[i].key || !it->v[i].value)
			return -EAGAIN;
	}
	it->n = used;
	return 0;
}

/* Values of a split table from 3.11 on: the i-th inserted value has key order[i]. */
struct values {
	uint64_t v[SHARED_KEYS_MAX];
	uint8_t order[SHARED_KEYS_MAX];
	size_t n, cap;
};

/* Reads the values of a split table of 3.11 or 3.12; the file's header has the layout. */
static int read_values_3_12(struct pymem *mem, uint64_t addr, size_t nkeys, struct values *values)
{
	uint8_t raw[VALUES_PREFIX_MAX + 8 * SHARED_KEYS_MAX], tail[2];
	size_t prefix;
	int err;

	if (addr < VALUES_PREFIX_MAX || nkeys > SHARED_KEYS_MAX)
		return -EAGAIN;
	/* The byte before the values tells how many bytes of order precede them. */
	err = pymem__read(mem, addr - 2, tail, sizeof(tail));
	if (err)
		return err;
	prefix = tail[1];
	if (prefix < 8 || prefix > VALUES_PREFIX_MAX || nkeys > prefix - 2)
		return -EAGAIN;
	err = pymem__read(mem, addr - prefix, raw, prefix + 8 * nkeys);
	if (err)
		return err;
	values->n = raw[prefix - 2];
	values->cap = nkeys;
	if (raw[prefix - 1] != prefix || values->n > nkeys || values->n > prefix - 2)
		return -EAGAIN;
	for (size_t i = 0; i < values->n; i++)
		values->order[i] = raw[prefix - 3 - i];
	memcpy(values->v, raw + prefix, 8 * nkeys);
	return 0;
}

/* Reads the values of a split table from 3.13 on, {capacity, size, embedded, valid}: the file's
 * header has the layout. */
static int read_values_3_13(struct pymem *mem, uint64_t addr, struct values *values)
{
	uint8_t raw[8 + 9 * SHARED_KEYS_MAX]; /* each key has a value and a byte of order */
	int err;

	err = pymem__read(mem, addr, raw, 8);
	if (err)
		return err;
	values->cap = raw[0];
	if (values->cap > SHARED_KEYS_MAX)
		return -EAGAIN;
	err = pymem__read(mem, addr, raw, 8 + 9 * values->cap);
	if (err)
		return err;
	if (raw[0] != values->cap || raw[1] > values->cap || raw[2] > 1)
		return -EAGAIN;
	/* Embedded values are invalid if the attributes moved to a dict or were all removed.
	 * CPython does not maintain this byte for other values. */
	values->n = raw[2] && !raw[3] ? 0 : raw[1];
	memcpy(values->v, raw + 8, 8 * values->cap);
	memcpy(values->order, raw + 8 + 8 * values->cap, values->cap);
	return 0;
}

/* Reads the items of a dict whose values are apart from its keys. used: the dict's count; SIZE_MAX:
 * inline values, which have no count. */
static int read_split(struct pymem *mem, const struct keys *keys, uint64_t values, size_t used,
		      struct pyitems *items)
{
	struct values values_read;
	const uint8_t *entry;
	int err;

	if (mem->layout->minor <= 10)
		return read_split_3_10(mem, keys, values, used, items);
	if (!values || values % 8)
		return -EAGAIN;
	if (mem->layout->minor <= 12)
		err = read_values_3_12(mem, values, keys->n, &values_read);
	else
		err = read_values_3_13(mem, values, &values_read);
	if (err)
		return err;
	err = array__grow(&items->v, &items->cap, values_read.n, sizeof(*items->v))
		      ?: read_entries(mem, keys, items, &entry);
	if (err)
		return err;
	for (size_t i = 0; i < values_read.n; i++) {
		size_t ix = values_read.order[i];

		if (ix >= keys->n || ix >= values_read.cap || !values_read.v[ix])
			return -EAGAIN;
		items->v[i].key = proc__word(entry + ix * keys->stride + keys->key_at);
		items->v[i].value = values_read.v[ix];
		if (!items->v[i].key)
			return -EAGAIN;
	}
	items->n = values_read.n;
	return used == SIZE_MAX || items->n == used ? 0 : -EAGAIN;
}

struct dict_head {
	uint64_t used, keys, values;
};

/* Reads a dict's count and the addresses of its keys and values; values 0: the table is not split. */
static int read_head(struct pymem *mem, uint64_t dict, struct dict_head *h)
{
	uint8_t raw[64];
	unsigned first = mem->layout->ma_used, len = mem->layout->ma_values + 8u - first;
	int err;

	if (mem->layout->ma_values < first || len > sizeof(raw) || mem->layout->ma_keys < first ||
	    mem->layout->ma_keys > mem->layout->ma_values)
		return -EBADMSG;
	err = pymem__read(mem, dict + first, raw, len);
	if (err)
		return err;
	h->used = proc__word(raw);
	h->keys = proc__word(raw + mem->layout->ma_keys - first);
	h->values = proc__word(raw + mem->layout->ma_values - first);
	return 0;
}

/* Reads a dict's entries once. -EAGAIN: the dict changed meanwhile. */
static int items_once(struct pymem *mem, uint64_t dict, struct pyitems *items)
{
	struct dict_head before, after;
	struct keys keys;
	int err;

	err = read_head(mem, dict, &before);
	if (err)
		return err;
	if (before.used > PYOBJ_MAX_DICT)
		return -E2BIG;
	err = read_keys(mem, before.keys, &keys);
	if (!err)
		err = before.values ? read_split(mem, &keys, before.values, before.used, items)
				    : read_combined(mem, &keys, before.used, items);
	if (mem->snapshot) /* pymem__holds() checks it */
		return err;
	/* Keys freed during the reading may contain anything, or be unmapped. */
	if (read_head(mem, dict, &after))
		return -EFAULT;
	if (before.used != after.used || before.keys != after.keys || before.values != after.values)
		return -EAGAIN;
	return err;
}

int pydict__items(struct pymem *mem, uint64_t dict, struct pyitems *ret)
{
	int err;

	ret->n = 0;
	err = pydict__check_kind(mem, dict, PYTYPE_DICT);
	if (err)
		return err;
	for (int i = 0; i < TRIES; i++) {
		err = items_once(mem, dict, ret);
		if (err != -EAGAIN)
			break;
	}
	if (err)
		ret->n = 0;
	return err;
}

struct type_head {
	uint64_t flags, basicsize, itemsize;
	int64_t dictoffset;
};

/* Reads what a type tells about its objects. -EBADMSG: implausible sizes. */
static int read_type(struct pymem *mem, uint64_t type, struct type_head *head)
{
	uint64_t dictoffset;
	int err;

	err = pymem__constant_u64(mem, type + mem->layout->tp_flags, &head->flags)
		      ?: pymem__constant_u64(mem, type + mem->layout->tp_dictoffset, &dictoffset);
	if (err)
		return err;
	/* tp_itemsize follows tp_basicsize. */
	err = pymem__constant_u64(mem, type + mem->layout->tp_basicsize, &head->basicsize)
		      ?: pymem__constant_u64(mem, type + mem->layout->tp_basicsize + 8,
					     &head->itemsize);
	if (err)
		return err;
	head->dictoffset = (int64_t)dictoffset;
	if (head->basicsize < 16 || head->basicsize > 1u << 20 || head->itemsize > 1u << 20)
		return -EBADMSG;
	return 0;
}

/* Address of an object's dict pointer, by tp_dictoffset; negative offsets count from the object's
 * end. 0: none. */
static int dict_slot(struct pymem *mem, uint64_t obj, const struct type_head *head, uint64_t *ret)
{
	uint64_t items_size, items, object_size = head->basicsize;
	int err;

	*ret = 0;
	if (!head->dictoffset)
		return 0;
	if (head->dictoffset > 0) {
		if (head->dictoffset > 1 << 20)
			return -EBADMSG;
		*ret = obj + head->dictoffset;
		return 0;
	}
	if (head->dictoffset < -(1 << 20))
		return -EBADMSG;
	err = pymem__u64(mem, obj + mem->layout->ob_size, &items);
	if (err)
		return err;
	if ((int64_t)items < 0) /* the sign of an int is in its ob_size */
		items = -items;
	if (__builtin_mul_overflow(items, head->itemsize, &items_size) ||
	    __builtin_add_overflow(object_size, items_size, &object_size) ||
	    object_size > UINT64_MAX / 2)
		return -EBADMSG;
	object_size = (object_size + 7) & ~7ull;
	if (object_size < (uint64_t)-head->dictoffset)
		return -EBADMSG;
	*ret = obj + object_size + head->dictoffset;
	return 0;
}

/* Finds an object's attributes: a dict object, inline values, or neither. */
static int find_attrs(struct pymem *mem, uint64_t obj, const struct type_head *head, uint64_t *dict,
		      uint64_t *values)
{
	uint64_t values_and_dict[2], slot, managed;
	int err;

	*dict = *values = 0;
	if (mem->layout->minor <= 10 || !(head->flags & FLAG_MANAGED_DICT)) {
		err = dict_slot(mem, obj, head, &slot);
		if (err || !slot)
			return err;
		return pymem__u64(mem, slot, dict);
	}
	/* 3.11 has two words before PyGC_Head: the values, and the dict if there are no values. */
	if (obj < 32)
		return -EFAULT;
	if (mem->layout->minor == 11) {
		err = pymem__read(mem, obj - 32, values_and_dict, sizeof(values_and_dict));
		if (err)
			return err;
		*values = values_and_dict[0];
		*dict = values_and_dict[0] ? 0 : values_and_dict[1];
		return 0;
	}
	/* From 3.12 on, a word before the object has the address of the dict or of the values: at
	 * -24, before PyGC_Head, or at -8 in free-threaded builds. 3.12 stores values minus 1. */
	err = pymem__u64(mem, obj - (mem->layout->free_threaded ? 8 : 24), &managed);
	if (err)
		return err;
	if (mem->layout->minor == 12 && managed & 1)
		*values = managed + 1;
	else if (mem->layout->minor > 12 && !managed && head->flags & FLAG_INLINE_VALUES)
		*values = obj + head->basicsize;
	else
		*dict = managed;
	return 0;
}

/* Inline values, whose keys are the type's. */
static int read_inline(struct pymem *mem, uint64_t type, uint64_t values, struct pyitems *it)
{
	uint64_t keys;
	struct keys k;
	int err = pymem__u64(mem, type + mem->layout->ht_cached_keys, &keys)
			  ?: read_keys(mem, keys, &k);

	return err ?: read_split(mem, &k, values, /*used=*/SIZE_MAX, it);
}

/* Reads the attributes once. -EAGAIN: they moved to another dict meanwhile. */
static int attrs_once(struct pymem *mem, uint64_t obj, uint64_t type, struct pyitems *items)
{
	uint64_t dict, values, dict_after, values_after;
	struct type_head head;
	int err;

	err = read_type(mem, type, &head) ?: find_attrs(mem, obj, &head, &dict, &values);
	if (err)
		return err;
	if (!dict && !values)
		return 0;
	err = dict ? pydict__items(mem, dict, items) : read_inline(mem, type, values, items);
	if (mem->snapshot)
		return err;
	if (find_attrs(mem, obj, &head, &dict_after, &values_after))
		return -EFAULT;
	return dict != dict_after || values != values_after ? -EAGAIN : err;
}

int pydict__attrs(struct pymem *mem, uint64_t obj, uint64_t type, struct pyitems *ret)
{
	int err = 0;

	if (!obj || obj % 8)
		return -EBADMSG;
	for (int i = 0; i < TRIES; i++) {
		ret->n = 0;
		err = attrs_once(mem, obj, type, ret);
		if (err != -EAGAIN)
			break;
	}
	if (err)
		ret->n = 0;
	return err;
}
