/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/code_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/pyobj.h"
#include "record/dict.h"
#include "record/files.h"

struct code_cache {
	struct dict *dict;
	const struct python *py;
	struct map64 *at;   /* address -> the youngest struct code *, which leads to older ones */
	struct map64 *gone; /* address -> epoch of its last end, until code_cache__passed() */
	uint64_t *fresh;    /* addresses read in this round */
	size_t n_fresh, cap_fresh;
	uint64_t floor;	     /* no reading is valid across this epoch */
	uint64_t read_until; /* epoch at the end of the last round's readings */
	uint64_t reads;	     /* code objects read so far */
};

struct code_cache *code_cache__new(struct dict *d, const struct python *py)
{
	struct code_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->dict = d;
	c->py = py;
	c->at = map64__new();
	c->gone = map64__new();
	if (!c->at || !c->gone) {
		code_cache__free(c);
		errno = ENOMEM;
		return NULL;
	}
	return c;
}

static struct code *youngest(const struct code_cache *c, uint64_t addr)
{
	uint64_t v;

	return map64__get(c->at, addr, &v) ? (struct code *)(uintptr_t)v : NULL;
}

/* Frees a reading and those before it. */
static void free_chain(struct code *code)
{
	while (code) {
		struct code *older = code->older;

		free(code->linetable);
		free(code);
		code = older;
	}
}

void code_cache__free(struct code_cache *c)
{
	uint64_t key, value;
	size_t pos = 0;

	if (!c)
		return;
	while (c->at && map64__next(c->at, &pos, &key, &value))
		free_chain((struct code *)(uintptr_t)value);
	map64__free(c->at);
	map64__free(c->gone);
	free(c->fresh);
	free(c);
}

/* Removes the youngest reading of an address. */
static void drop_youngest(struct code_cache *c, uint64_t addr)
{
	struct code *code = youngest(c, addr), *older;

	if (!code)
		return;
	older = code->older;
	code->older = NULL;
	free_chain(code);
	if (older)
		map64__set(c->at, addr, (uintptr_t)older); /* an existing key: needs no memory */
	else
		map64__del(c->at, addr, NULL);
}

/* Makes a reading invalid for stacks of this epoch and later ones. */
static void limit_validity(struct code *code, uint64_t epoch)
{
	if (code->until > epoch)
		code->until = epoch;
}

int code_cache__gone(struct code_cache *c, uint64_t addr, uint64_t epoch)
{
	struct code *code = youngest(c, addr);

	if (code && code->fresh && epoch <= c->read_until) {
		/* The object was freed before its reading ended, so that the reading may be of
		 * another object at the address. */
		drop_youngest(c, addr);
		code = youngest(c, addr);
	}
	if (code)
		limit_validity(code, epoch);
	return map64__set(c->gone, addr, epoch);
}

bool code_cache__known(const struct code_cache *c, uint64_t addr)
{
	return youngest(c, addr);
}

static int note_fresh(struct code_cache *c, uint64_t addr)
{
	if (array__grow(&c->fresh, &c->cap_fresh, c->n_fresh + 1, sizeof(*c->fresh)))
		return -ENOMEM;
	c->fresh[c->n_fresh++] = addr;
	return 0;
}

/* The dictionary's number of a string; 0 if the dictionary is full, see symbolizer__number().
 * UINT32_MAX: out of memory. */
static uint32_t string_number(struct code_cache *c, const char *s)
{
	uint32_t number = dict__string(c->dict, s, strlen(s));

	return number == UINT32_MAX && errno == ENOSPC ? 0 : number;
}

/* The number of a file's name in the dictionary, without the parts of it that differ from run to
 * run, such as the temporary path of a notebook's cell. UINT32_MAX: out of memory. */
static uint32_t file_name(struct code_cache *c, const char *path)
{
	char name[sizeof(((struct pycode *)0)->file)];
	const char *cell;
	uint64_t number;
	size_t len;

	cell = *path == '/' ? files__cell(path, &len) : NULL;
	if (cell && !pynames__cell(c->py, path, &number)) {
		snprintf(name, sizeof(name), "<cell %" PRIu64 ">", number);
		return string_number(c, name);
	}
	if (cell) {
		snprintf(name, sizeof(name), "<cell %.*s>", (int)len, cell);
		return string_number(c, name);
	}
	return string_number(c, files__stable(path, name, sizeof(name)) ? name : path);
}

/* Copies one of the parent's readings, with the numbers of this dictionary. 0 or -ENOMEM. */
static int inherit_one(struct code_cache *c, uint64_t addr, const struct code_cache *from,
		       const struct code *code)
{
	struct code *copy = calloc(1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *code;
	copy->older = NULL;
	copy->linetable = code->linetable_len ? malloc(code->linetable_len) : NULL;
	copy->file = string_number(c, dict__str(from->dict, code->file));
	copy->func = string_number(c, dict__str(from->dict, code->func));
	if ((code->linetable_len && !copy->linetable) || copy->file == UINT32_MAX ||
	    copy->func == UINT32_MAX || map64__set(c->at, addr, (uintptr_t)copy)) {
		free_chain(copy);
		return -ENOMEM;
	}
	if (code->linetable_len)
		memcpy(copy->linetable, code->linetable, code->linetable_len);
	return 0;
}

int code_cache__inherit(struct code_cache *c, const struct code_cache *from, uint64_t forked)
{
	uint64_t addr, value;
	size_t pos = 0;
	int err = 0;

	while (!err && map64__next(from->at, &pos, &addr, &value)) {
		const struct code *code = (const struct code *)(uintptr_t)value;

		/* Only objects from before the fork: a later one may exist in one process only. */
		if (!code->fresh && code->read_at < forked && (code->file || code->func))
			err = inherit_one(c, addr, from, code);
	}
	return err;
}

/* Reads the code object at addr, for stacks of epoch valid_from and later. One that cannot be read
 * gets an entry without names. 0 or -ENOMEM. */
static int read_code(struct code_cache *c, uint64_t addr, uint64_t valid_from)
{
	struct code *code = calloc(1, sizeof(*code));
	struct pycode pc;

	if (!code)
		return -ENOMEM;
	code->from = valid_from;
	code->until = UINT64_MAX;
	code->fresh = true;
	c->reads++;
	if (c->py && pyobj__code(c->py, addr, &pc) == 0) {
		code->file = file_name(c, pc.file);
		code->func = string_number(c, pc.name);
		code->firstlineno = pc.firstlineno;
		code->linetable = pc.linetable;
		code->linetable_len = pc.linetable_len;
	}
	code->read_at = clock__kernel();
	code->older = youngest(c, addr);
	if (code->file == UINT32_MAX || code->func == UINT32_MAX || note_fresh(c, addr) ||
	    map64__set(c->at, addr, (uintptr_t)code)) {
		code->older = NULL;
		free_chain(code);
		return -ENOMEM;
	}
	return 0;
}

int code_cache__need(struct code_cache *c, uint64_t addr, uint64_t epoch)
{
	const struct code *known = youngest(c, addr);
	uint64_t valid_from = 0;

	if (known && epoch < known->until)
		return 0; /* known, or already freed */
	map64__get(c->gone, addr, &valid_from);
	if (valid_from < c->floor)
		valid_from = c->floor;
	return epoch < valid_from ? 0 : read_code(c, addr, valid_from);
}

void code_cache__read_until(struct code_cache *c, uint64_t epoch)
{
	c->read_until = epoch;
}

void code_cache__confirm(struct code_cache *c)
{
	while (c->n_fresh) {
		struct code *code = youngest(c, c->fresh[--c->n_fresh]);

		if (code)
			code->fresh = false;
	}
}

void code_cache__drop_new(struct code_cache *c)
{
	while (c->n_fresh) {
		uint64_t addr = c->fresh[--c->n_fresh];
		const struct code *code = youngest(c, addr);

		if (code && code->fresh)
			drop_youngest(c, addr);
	}
}

void code_cache__floor(struct code_cache *c, uint64_t epoch)
{
	if (epoch > c->floor)
		c->floor = epoch;
}

void code_cache__lost(struct code_cache *c, uint64_t sure, uint64_t now)
{
	uint64_t key, value;
	size_t pos = 0;

	while (map64__next(c->at, &pos, &key, &value)) {
		struct code *code = (struct code *)(uintptr_t)value;

		limit_validity(code, sure + 1);
		/* Drop older readings: the ends that limit them may be lost. */
		free_chain(code->older);
		code->older = NULL;
	}
	c->floor = now;
}

const struct code *code_cache__find(const struct code_cache *c, uint64_t addr, uint64_t epoch)
{
	const struct code *code;

	for (code = youngest(c, addr); code; code = code->older) {
		if (code->from <= epoch && epoch < code->until)
			return code;
	}
	return NULL;
}

void code_cache__passed(struct code_cache *c, uint64_t addr, uint64_t epoch)
{
	struct code *code = youngest(c, addr), **link = &code;
	uint64_t last;

	if (map64__get(c->gone, addr, &last) && last <= epoch)
		map64__del(c->gone, addr, NULL);
	/* Ends of one address come in order. So the first reading that ended by this epoch, and
	 * all older ones, are not needed any more. */
	while (*link && (*link)->until > epoch)
		link = &(*link)->older;
	if (!*link)
		return;
	free_chain(*link);
	*link = NULL;
	if (!code)
		map64__del(c->at, addr, NULL);
}

uint64_t code_cache__reads(const struct code_cache *c)
{
	return c->reads;
}
