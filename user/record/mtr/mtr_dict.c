/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/mtr_dict.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr_format.h"
#include "record/stream.h"
#include "record/stream/limits.h"
#include "record/varint.h"

struct cursor {
	const uint8_t *at, *end;
};

static bool get32(struct cursor *c, uint32_t *v)
{
	return varint__get32(&c->at, c->end, v);
}

/* Reads UTF-8 text without NUL, length first. *s points into the payload. */
static bool get_text(struct cursor *c, size_t max, const char **s, size_t *len)
{
	uint64_t n;

	if (!varint__get(&c->at, c->end, &n) || n > max || n > (uint64_t)(c->end - c->at))
		return false;
	*s = (const char *)c->at;
	*len = (size_t)n;
	c->at += n;
	for (size_t i = 0, step; i < n; i += step) {
		uint32_t cp;

		step = utf8__decode(*s + i, n - i, &cp);
		if (!step || !cp)
			return false;
	}
	return true;
}

/* Reads one entry and adds it to d. *id: its number, or UINT32_MAX with errno if the dict refused
 * it. Returns false if the entry is bad. */
typedef bool (*read_entry)(struct dict *d, struct cursor *c, const struct dict_counts *have,
			   uint32_t *id);

static bool read_string(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	const char *s;
	size_t len;

	(void)have;
	if (!get_text(c, DICT_MAX_STRING, &s, &len))
		return false;
	*id = dict__string(d, s, len);
	return true;
}

static bool read_loc(struct dict *d, struct cursor *c, const struct dict_counts *have, uint32_t *id)
{
	struct dict_loc l;

	if (!get32(c, &l.file) || !get32(c, &l.func) || !get32(c, &l.line))
		return false;
	if (l.file >= have->strings || l.func >= have->strings)
		return false;
	*id = l.line >> 31 ? dict__native_loc(d, l) : dict__loc(d, l);
	return true;
}

static bool read_module(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	struct dict_module m;

	if (!get32(c, &m.name) || !get32(c, &m.cls) || !get32(c, &m.root))
		return false;
	if (m.name >= have->strings || m.cls >= have->strings || m.root >= have->strings)
		return false;
	*id = dict__module(d, m);
	return true;
}

static bool read_stack(struct dict *d, struct cursor *c, const struct dict_counts *have,
		       uint32_t *id)
{
	struct dict_frame frames[DICT_MAX_STACK_FRAMES];
	uint32_t walk, n;

	if (!get32(c, &walk) || walk >= MT_WALK_NR || !get32(c, &n) || n > DICT_MAX_STACK_FRAMES)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (!get32(c, &frames[i].loc) || !get32(c, &frames[i].module))
			return false;
		if (frames[i].loc >= have->locs || frames[i].module >= have->modules)
			return false;
	}
	*id = dict__recorded_stack(d, frames, n, (uint8_t)walk);
	return true;
}

static bool read_thread(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	struct dict_thread t;

	if (!get32(c, &t.tid) || !get32(c, &t.name) || t.name >= have->strings)
		return false;
	*id = dict__thread(d, t);
	return true;
}

static bool read_node(struct dict *d, struct cursor *c, const struct dict_counts *have,
		      uint32_t *id)
{
	struct dict_node n;

	if (!get32(c, &n.cls) || !get32(c, &n.stack) || !get32(c, &n.name) || !get32(c, &n.module))
		return false;
	if (n.cls >= have->strings || n.stack >= have->stacks || n.name >= have->strings ||
	    n.module >= have->modules)
		return false;
	*id = dict__node(d, n);
	return true;
}

static uint32_t count_of(const struct dict_counts *have, enum mtr_section kind)
{
	switch (kind) {
	case MTR_STRINGS:
		return have->strings;
	case MTR_LOCS:
		return have->locs;
	case MTR_MODULES:
		return have->modules;
	case MTR_STACKS:
		return have->stacks;
	case MTR_THREADS:
		return have->threads;
	case MTR_NODES:
		return have->nodes;
	}
	return 0;
}

static int read_section(struct dict *d, uint32_t version, struct cursor *c, const char **why)
{
	static const read_entry readers[] = {
		[MTR_STRINGS] = read_string, [MTR_LOCS] = read_loc,
		[MTR_MODULES] = read_module, [MTR_STACKS] = read_stack,
		[MTR_THREADS] = read_thread, [MTR_NODES] = read_node,
	};
	/* Entries refer only to earlier sections, never to their own kind. */
	struct dict_counts have = dict__counts(d);
	uint32_t kind, first, n, id, last = version < 3 ? MTR_THREADS : MTR_NODES;

	if (!get32(c, &kind) || kind < MTR_STRINGS || kind > last || !get32(c, &first) ||
	    !get32(c, &n))
		return -EBADMSG;
	if (first != count_of(&have, kind)) {
		*why = "a dictionary block that does not follow on the one before";
		return -EBADMSG;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!readers[kind](d, c, &have, &id))
			return -EBADMSG;
		if (id == UINT32_MAX && errno == ENOMEM)
			return -ENOMEM;
		/* An entry that the dict already had is an error, too, because later numbers would
		 * shift. */
		if (id != first + i)
			return -EBADMSG;
	}
	return 0;
}

int mtr_dict__read(struct dict *d, uint32_t version, const uint8_t *data, size_t len,
		   const char **why)
{
	struct cursor c = { data, data + len };
	int err = 0;

	*why = "a bad entry in a dictionary block";
	while (c.at < c.end && !err)
		err = read_section(d, version, &c, why);
	return err;
}

static int set_fact(struct facts *f, const char *key, size_t klen, const char *value, size_t vlen)
{
	char *copy = malloc(klen + vlen + 2);
	int err;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, key, klen);
	copy[klen] = '\0';
	memcpy(copy + klen + 1, value, vlen);
	copy[klen + 1 + vlen] = '\0';
	err = facts__set(f, copy, copy + klen + 1);
	free(copy);
	return err == -ENOMEM ? err : err ? -EBADMSG : 0;
}

int mtr_dict__read_facts(struct facts *f, const uint8_t *data, size_t len, const char **why)
{
	struct cursor c = { data, data + len };
	uint32_t n;

	*why = "a bad facts block";
	if (!get32(&c, &n))
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		const char *key, *value;
		size_t klen, vlen;
		int err;

		if (!get_text(&c, FACTS_MAX_KEY, &key, &klen) ||
		    !get_text(&c, FACTS_MAX_VALUE, &value, &vlen))
			return -EBADMSG;
		err = set_fact(f, key, klen, value, vlen);
		if (err)
			return err;
	}
	return c.at == c.end ? 0 : -EBADMSG;
}
