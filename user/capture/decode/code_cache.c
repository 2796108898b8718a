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

struct code_cache *code_cache__new(struct dict *dict, const struct python *py)
{
	struct code_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return NULL;
	cache->dict = dict;
	cache->py = py;
	cache->at = map64__new();
	cache->gone = map64__new();
	if (!cache->at || !cache->gone) {
		code_cache__free(cache);
		errno = ENOMEM;
		return NULL;
	}
	return cache;
}

/* The code object that was at the address last; NULL: unknown. */
static struct code *youngest(const struct code_cache *cache, uint64_t addr)
{
	uint64_t code;

	return map64__get(cache->at, addr, &code) ? (struct code *)(uintptr_t)code : NULL;
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

void code_cache__free(struct code_cache *cache)
{
	uint64_t key, value;
	size_t pos = 0;

	if (!cache)
		return;
	while (cache->at && map64__next(cache->at, &pos, &key, &value))
		free_chain((struct code *)(uintptr_t)value);
	map64__free(cache->at);
	map64__free(cache->gone);
	free(cache->fresh);
	free(cache);
}

/* Removes the youngest reading of an address. */
static void drop_youngest(struct code_cache *cache, uint64_t addr)
{
	struct code *code = youngest(cache, addr), *older;

	if (!code)
		return;
	older = code->older;
	code->older = NULL;
	free_chain(code);
	if (older)
		map64__set(cache->at, addr,
			   (uintptr_t)older); /* an existing key: needs no memory */
	else
		map64__del(cache->at, addr, /*old=*/NULL);
}

/* Makes a reading invalid for stacks of this epoch and later ones. */
static void limit_validity(struct code *code, uint64_t epoch)
{
	if (code->until > epoch)
		code->until = epoch;
}

int code_cache__gone(struct code_cache *cache, uint64_t addr, uint64_t epoch)
{
	struct code *code = youngest(cache, addr);

	if (code && code->fresh && epoch <= cache->read_until) {
		/* The object was freed before its reading ended, so that the reading may be of
		 * another object at the address. */
		drop_youngest(cache, addr);
		code = youngest(cache, addr);
	}
	if (code)
		limit_validity(code, epoch);
	return map64__set(cache->gone, addr, epoch);
}

bool code_cache__known(const struct code_cache *cache, uint64_t addr)
{
	return youngest(cache, addr);
}

/* Notes an address whose code object is read in this round. */
static int note_fresh(struct code_cache *cache, uint64_t addr)
{
	if (array__grow(&cache->fresh, &cache->cap_fresh, cache->n_fresh + 1,
			sizeof(*cache->fresh)))
		return -ENOMEM;
	cache->fresh[cache->n_fresh++] = addr;
	return 0;
}

/* The dictionary's number of a string; 0 if the dictionary is full, see symbolizer__number().
 * UINT32_MAX: out of memory. */
static uint32_t string_number(struct code_cache *cache, const char *s)
{
	uint32_t number = dict__string(cache->dict, s, strlen(s));

	return number == UINT32_MAX && errno == ENOSPC ? 0 : number;
}

/* The number of a file's name in the dictionary, without the parts of it that differ from run to
 * run, such as the temporary path of a notebook's cell. UINT32_MAX: out of memory. */
static uint32_t file_name(struct code_cache *cache, const char *path)
{
	char name[sizeof(((struct pycode *)0)->file)];
	const char *cell;
	uint64_t number;
	size_t len;

	cell = *path == '/' ? files__cell(path, &len) : NULL;
	if (cell && !pynames__cell(cache->py, path, &number)) {
		snprintf(name, sizeof(name), "<cell %" PRIu64 ">", number);
		return string_number(cache, name);
	}
	if (cell) {
		snprintf(name, sizeof(name), "<cell %.*s>", (int)len, cell);
		return string_number(cache, name);
	}
	return string_number(cache, files__stable(path, name, sizeof(name)) ? name : path);
}

/* Copies one of the parent's readings, with the numbers of this dictionary. 0 or -ENOMEM. */
static int inherit_one(struct code_cache *cache, uint64_t addr, const struct code_cache *from,
		       const struct code *code)
{
	struct code *copy = calloc(1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *code;
	copy->older = NULL;
	copy->linetable = code->linetable_len ? malloc(code->linetable_len) : NULL;
	copy->file = string_number(cache, dict__str(from->dict, code->file));
	copy->func = string_number(cache, dict__str(from->dict, code->func));
	if ((code->linetable_len && !copy->linetable) || copy->file == UINT32_MAX ||
	    copy->func == UINT32_MAX || map64__set(cache->at, addr, (uintptr_t)copy)) {
		free_chain(copy);
		return -ENOMEM;
	}
	if (code->linetable_len)
		memcpy(copy->linetable, code->linetable, code->linetable_len);
	return 0;
}

int code_cache__inherit(struct code_cache *cache, const struct code_cache *from, uint64_t forked)
{
	uint64_t addr, value;
	size_t pos = 0;
	int err = 0;

	while (!err && map64__next(from->at, &pos, &addr, &value)) {
		const struct code *code = (const struct code *)(uintptr_t)value;

		/* Only objects from before the fork: a later one may exist in one process only. A
		 * fresh reading may still turn out to be of another object. */
		if (!code->fresh && code->read_at < forked && (code->file || code->func))
			err = inherit_one(cache, addr, from, code);
	}
	return err;
}

/* Reads the code object at addr, for stacks of epoch valid_from and later. One that cannot be read
 * gets an entry without names. 0 or -ENOMEM. */
static int read_code(struct code_cache *cache, uint64_t addr, uint64_t valid_from)
{
	struct code *code = calloc(1, sizeof(*code));
	struct pycode pc;

	if (!code)
		return -ENOMEM;
	code->from = valid_from;
	code->until = UINT64_MAX;
	code->fresh = true;
	cache->reads++;
	if (cache->py && pyobj__code(cache->py, addr, &pc) == 0) {
		code->file = file_name(cache, pc.file);
		code->func = string_number(cache, pc.name);
		code->firstlineno = pc.firstlineno;
		code->linetable = pc.linetable;
		code->linetable_len = pc.linetable_len;
	}
	code->read_at = clock__kernel();
	code->older = youngest(cache, addr);
	if (code->file == UINT32_MAX || code->func == UINT32_MAX || note_fresh(cache, addr) ||
	    map64__set(cache->at, addr, (uintptr_t)code)) {
		code->older = NULL;
		free_chain(code);
		return -ENOMEM;
	}
	return 0;
}

int code_cache__need(struct code_cache *cache, uint64_t addr, uint64_t epoch)
{
	const struct code *known = youngest(cache, addr);
	uint64_t valid_from = 0;

	if (known && epoch < known->until)
		return 0; /* known, or already freed */
	map64__get(cache->gone, addr, &valid_from);
	if (valid_from < cache->floor)
		valid_from = cache->floor;
	return epoch < valid_from ? 0 : read_code(cache, addr, valid_from);
}

void code_cache__read_until(struct code_cache *cache, uint64_t epoch)
{
	cache->read_until = epoch;
}

void code_cache__confirm(struct code_cache *cache)
{
	while (cache->n_fresh) {
		struct code *code = youngest(cache, cache->fresh[--cache->n_fresh]);

		if (code)
			code->fresh = false;
	}
}

void code_cache__drop_new(struct code_cache *cache)
{
	while (cache->n_fresh) {
		uint64_t addr = cache->fresh[--cache->n_fresh];
		const struct code *code = youngest(cache, addr);

		if (code && code->fresh)
			drop_youngest(cache, addr);
	}
}

void code_cache__floor(struct code_cache *cache, uint64_t epoch)
{
	if (epoch > cache->floor)
		cache->floor = epoch;
}

void code_cache__lost(struct code_cache *cache, uint64_t sure, uint64_t now)
{
	uint64_t key, value;
	size_t pos = 0;

	while (map64__next(cache->at, &pos, &key, &value)) {
		struct code *code = (struct code *)(uintptr_t)value;

		limit_validity(code, sure + 1);
		/* Drop older readings: the ends that limit them may be lost. */
		free_chain(code->older);
		code->older = NULL;
	}
	cache->floor = now;
}

const struct code *code_cache__find(const struct code_cache *cache, uint64_t addr, uint64_t epoch)
{
	const struct code *code;

	for (code = youngest(cache, addr); code; code = code->older) {
		if (code->from <= epoch && epoch < code->until)
			return code;
	}
	return NULL;
}

void code_cache__passed(struct code_cache *cache, uint64_t addr, uint64_t epoch)
{
	struct code *code = youngest(cache, addr), **link = &code;
	uint64_t last;

	if (map64__get(cache->gone, addr, &last) && last <= epoch)
		map64__del(cache->gone, addr, /*old=*/NULL);
	/* Ends of one address come in order. So the first reading that ended by this epoch, and
	 * all older ones, are not needed any more. */
	while (*link && (*link)->until > epoch)
		link = &(*link)->older;
	if (!*link)
		return;
	free_chain(*link);
	*link = NULL;
	if (!code)
		map64__del(cache->at, addr, /*old=*/NULL);
}

uint64_t code_cache__reads(const struct code_cache *cache)
{
	return cache->reads;
}
