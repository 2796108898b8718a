/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/probed_scopes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "capture/decode/decoder.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "memtrace.h"
#include "record/stream.h"

_Static_assert((int)MT_SCOPE_RECORD_FUNCTION == (int)SCOPE_RECORD_FUNCTION &&
		       (int)MT_SCOPE_NVTX == (int)SCOPE_NVTX,
	       "sources in records and in events");

#define NAMES 4096 /* different names of a capture; further ones are OTHER_NAME */
#define OTHER_NAME "(further names)"
#define NO_NAME "(no name)"
#define PROFILER_STEP "ProfilerStep"

struct probed_scopes {
	struct decoder *decoder;
	struct map64 *names; /* hash of a name -> dict string */
	struct map64 *open;  /* key_of() a thread and a source -> its open scopes: see below */
	struct hash_seed seed;
	struct {
		unsigned n; /* NVTX ranges that began so far, at most 2 */
		uint32_t tid;
		uint64_t time; /* ns since start, of the first one */
		char name[MT_SCOPE_NAME + 1];
	} pushed;
	unsigned late_reads; /* calls of read_late() */
	bool off;	     /* the capture has dropped scopes, to cost less */
};

/*
 * The open scopes of a thread and a source, in one word: their number in the low 16 bits, then a
 * bit for each of the DEEPEST outermost ones, which is set if the scope is not in the stream. The
 * innermost one has the lowest bit. Deeper scopes are not in the stream.
 */
#define DEPTH_BITS 16
#define DEPTH_MAX ((1U << DEPTH_BITS) - 1)
#define DEPTH(open) ((open)&DEPTH_MAX)
#define DEEPEST 48

static uint64_t push(uint64_t open, bool hidden)
{
	if (DEPTH(open) >= DEEPEST)
		return open + (DEPTH(open) < DEPTH_MAX);
	return (DEPTH(open) + 1) | ((open >> DEPTH_BITS) << 1 | hidden) << DEPTH_BITS;
}

static uint64_t pop(uint64_t open)
{
	if (DEPTH(open) > DEEPEST)
		return open - 1;
	return (DEPTH(open) - 1) | (open >> (DEPTH_BITS + 1)) << DEPTH_BITS;
}

static bool innermost_hidden(uint64_t open)
{
	return DEPTH(open) > DEEPEST || (open >> DEPTH_BITS & 1);
}

static uint64_t key_of(uint32_t tid, uint8_t source)
{
	return (uint64_t)source << 32 | tid;
}

struct probed_scopes *probed_scopes__new(struct decoder *decoder)
{
	struct probed_scopes *probed = calloc(1, sizeof(*probed));

	if (!probed)
		return NULL;
	probed->decoder = decoder;
	probed->seed = hash__seed();
	probed->names = map64__new();
	probed->open = map64__new();
	if (probed->names && probed->open)
		return probed;
	probed_scopes__free(probed);
	return NULL;
}

void probed_scopes__free(struct probed_scopes *probed)
{
	if (!probed)
		return;
	map64__free(probed->names);
	map64__free(probed->open);
	free(probed);
}

uint32_t probed_scopes__name(struct probed_scopes *probed, const char *name)
{
	uint64_t number, key = hash__bytes(probed->seed, name, strlen(name));
	uint32_t string;

	if (map64__get(probed->names, key, &number))
		return (uint32_t)number;
	if (map64__count(probed->names) >= NAMES)
		return decoder__string(probed->decoder, OTHER_NAME);
	string = decoder__string(probed->decoder, name);
	if (string == UINT32_MAX || map64__set(probed->names, key, string))
		return UINT32_MAX;
	return string;
}

/* True for scopes that PyTorch itself opens in each step, where the stream has steps and phases. */
static bool is_hidden(uint8_t source, const char *name)
{
	return source == SCOPE_RECORD_FUNCTION && (text__starts(name, "Optimizer.step#") ||
						   text__starts(name, "Optimizer.zero_grad#") ||
						   text__starts(name, "enumerate(DataLoader)#"));
}

/* The profiler numbers its steps: makes the name of all of them one. */
static void cut_number(char *name)
{
	const char *at = name + strlen(PROFILER_STEP);

	if (!text__starts(name, PROFILER_STEP "#") || !isdigit((unsigned char)at[1]))
		return;
	name[strlen(PROFILER_STEP)] = '\0';
}

static int emit(struct probed_scopes *probed, uint8_t source, uint32_t tid, struct event *event)
{
	const struct thread *thread = decoder__thread(probed->decoder, tid);

	if (!thread)
		return -ENOMEM;
	event->kind = EVENT_SCOPE;
	event->how = source;
	event->thread = thread->number;
	return decoder__emit(probed->decoder, event);
}

/* Longest time between the two hits of the first call, ns. */
#define FIRST_CALL 1000000

/* True for the second hit of the program's first call of nvtxRangePushA() in libnvToolsExt, up to
 * PyTorch 2.4: that call initializes the library, which then calls the function again. */
static bool is_first_again(struct probed_scopes *probed, uint32_t tid, const char *name,
			   uint64_t depth, uint64_t time)
{
	const struct hook *hook = &probed->decoder->target->hooks[HOOK_RANGE_PUSH];

	if (probed->pushed.n == 2 || !strstr(hook->file, "libnvToolsExt"))
		return false;
	if (probed->pushed.n++)
		return probed->pushed.tid == tid && depth == 1 &&
		       !strcmp(probed->pushed.name, name) &&
		       time - probed->pushed.time < FIRST_CALL;
	probed->pushed.tid = tid;
	probed->pushed.time = time;
	strcpy(probed->pushed.name, name);
	return false;
}

/* ---- names of USDT probes ---- */

#define LATE_READS 256 /* in a capture, since each reads the map of the process */

/*
 * Reads a name that the program found absent: text of a library, in a page that the process has not
 * touched yet. Reading brings it in. name: MT_SCOPE_NAME bytes and a NUL. It stays empty if the
 * text may have changed since, as it can be written to.
 */
static void read_late(struct probed_scopes *probed, uint64_t addr, char name[MT_SCOPE_NAME + 1])
{
	const struct proc *proc = probed->decoder->target->proc;
	uint64_t len = MT_SCOPE_NAME;
	const struct map *map;
	struct maps maps;

	if (!addr || probed->late_reads++ >= LATE_READS || proc__maps(proc, &maps))
		return;
	map = maps__find(&maps, addr);
	if (map && map->r && !map->w && map->inode && !text__starts(map->path, "/dev/")) {
		len = map->end - addr < len ? map->end - addr : len;
		if (proc__read(proc, addr, name, len))
			len = 0;
		name[len] = '\0';
	}
	maps__free(&maps);
}

/* True if a name is text: valid UTF-8 without control characters. The limit may have cut its last
 * character. */
static bool is_text(const char *name)
{
	size_t left = strlen(name), size;
	bool is_cut = left == MT_SCOPE_NAME;
	uint32_t c;

	for (; left; name += size, left -= size) {
		size = utf8__decode(name, left, &c);
		if (!size)
			return is_cut && left < 4;
		if (text__acts(c))
			return false;
	}
	return true;
}

/* Sets the name of a scope of USDT probes: the text that the begin's first argument points to, and
 * otherwise PROVIDER:BEGIN. */
static void name_usdt(struct probed_scopes *probed, const struct mt_rec_scope *record,
		      char name[MT_SCOPE_NAME + 1])
{
	const struct usdt_scope *scope;

	if (record->source < SCOPE_USDT || record->source >= SCOPE_USDT + MT_SCOPE_PAIRS)
		return;
	if (!*name)
		read_late(probed, record->name_at, name);
	scope = &probed->decoder->opts->usdt[record->source - SCOPE_USDT];
	if (!*name || !is_text(name))
		snprintf(name, MT_SCOPE_NAME + 1, "%s:%s", scope->provider, scope->begin);
}

static int begin(struct probed_scopes *probed, const struct mt_rec_scope *record)
{
	uint64_t key = key_of(record->h.tid, record->source), open = 0;
	struct event event = { .time = decoder__since(probed->decoder, record->h.time),
			       .flags = SCOPE_BEGIN };
	char name[MT_SCOPE_NAME + 1];
	bool hidden;
	int err;

	snprintf(name, sizeof(name), "%.*s", MT_SCOPE_NAME, record->name);
	name_usdt(probed, record, name);
	cut_number(name);
	map64__get(probed->open, key, &open);
	if (record->source == SCOPE_NVTX &&
	    is_first_again(probed, record->h.tid, name, DEPTH(open), event.time))
		return 0;
	hidden = is_hidden(record->source, name) || DEPTH(open) >= DEEPEST;
	err = map64__set(probed->open, key, push(open, hidden));
	if (err || hidden)
		return err;
	if (record->h.time < probed->decoder->start)
		event.flags |= SCOPE_EARLIER;
	event.name = probed_scopes__name(probed, *name ? name : NO_NAME);
	return event.name == UINT32_MAX ? -ENOMEM
					: emit(probed, record->source, record->h.tid, &event);
}

/* Ends the innermost scope of a thread and a source. */
static int end(struct probed_scopes *probed, uint32_t tid, uint8_t source, uint64_t time)
{
	uint64_t key = key_of(tid, source), open = 0;
	struct event event = { .time = time, .flags = SCOPE_END };
	int err;

	if (!map64__get(probed->open, key, &open))
		return 0;
	if (DEPTH(open) == 1) {
		map64__del(probed->open, key, NULL);
	} else {
		err = map64__set(probed->open, key, pop(open));
		if (err)
			return err;
	}
	return innermost_hidden(open) ? 0 : emit(probed, source, tid, &event);
}

int probed_scopes__record(struct probed_scopes *probed, const struct mt_rec_scope *record)
{
	if (probed->off)
		return 0; /* from before the change of detail */
	return record->ends ? end(probed, record->h.tid, record->source,
				  decoder__since(probed->decoder, record->h.time))
			    : begin(probed, record);
}

int probed_scopes__exit(struct probed_scopes *probed, uint32_t tid, uint64_t time)
{
	return end(probed, tid, SCOPE_RECORD_FUNCTION, time);
}

/* Emits the ends of a thread's open scopes of a source. The caller removes them from the map.
 * Returns 0, -ENOMEM or the sink's error. */
static int end_each(struct probed_scopes *probed, uint64_t key, uint64_t open)
{
	uint64_t now = decoder__now(probed->decoder);
	int err = 0;

	if (DEPTH(open) > DEEPEST) /* the deeper ones are not in the stream */
		open -= DEPTH(open) - DEEPEST;
	for (; DEPTH(open) && !err; open = pop(open)) {
		struct event event = { .time = now, .flags = SCOPE_END };

		if (!innermost_hidden(open))
			err = emit(probed, (uint8_t)(key >> 32), (uint32_t)key, &event);
	}
	return err;
}

int probed_scopes__end_all(struct probed_scopes *probed)
{
	uint64_t key, open;
	size_t pos = 0;
	int err = 0;

	while (!err && map64__next(probed->open, &pos, &key, &open))
		err = end_each(probed, key, open);
	map64__clear(probed->open);
	return err;
}

int probed_scopes__set_off(struct probed_scopes *probed, bool off)
{
	probed->off = off;
	return off ? probed_scopes__end_all(probed) : 0;
}

int probed_scopes__end_gone(struct probed_scopes *probed)
{
	const struct decoder *decoder = probed->decoder;
	uint64_t key, open, i, *gone = NULL;
	size_t pos = 0, n = 0, room = 0;
	int err = 0;

	/* The map must not change while it is read. */
	while (!err && map64__next(probed->open, &pos, &key, &open)) {
		if (map64__get(decoder->threads, (uint32_t)key, &i) && !decoder->thread[i].gone)
			continue;
		err = array__grow(&gone, &room, n + 1, sizeof(*gone));
		if (err)
			break;
		gone[n++] = key;
		err = end_each(probed, key, open);
	}
	while (n)
		map64__del(probed->open, gone[--n], NULL);
	free(gone);
	return err;
}
