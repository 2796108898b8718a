/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/stream.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/stream/limits.h"

struct fact {
	char *key, *value;
};

struct facts {
	struct fact *facts;
	size_t n, room;
	size_t bytes;	     /* bytes of keys and values */
	struct map64 *index; /* hash of a key -> index in facts, of the first key with this hash */
	struct hash_seed seed;
};

struct facts *facts__new(void)
{
	struct facts *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->seed = hash__seed();
	f->index = map64__new();
	if (!f->index) {
		free(f);
		return NULL;
	}
	return f;
}

void facts__free(struct facts *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++) {
		free(f->facts[i].key);
		free(f->facts[i].value);
	}
	free(f->facts);
	map64__free(f->index);
	free(f);
}

/* Returns the fact with this key, or NULL. */
static struct fact *find_fact(const struct facts *f, const char *key)
{
	uint64_t i;

	if (!map64__get(f->index, hash__bytes(f->seed, key, strlen(key)), &i))
		return NULL;
	if (!strcmp(f->facts[i].key, key))
		return &f->facts[i];
	for (i = 0; i < f->n; i++) /* two keys have this hash: search all facts */
		if (!strcmp(f->facts[i].key, key))
			return &f->facts[i];
	return NULL;
}

/* True for a short key of visible ASCII characters. */
static bool is_good_key(const char *key)
{
	size_t len = strlen(key);

	if (!len || len > FACTS_MAX_KEY)
		return false;
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] > '~')
			return false;
	return true;
}

/* Returns a copy of value as valid UTF-8, or NULL with errno. */
static char *make_value(const char *value)
{
	size_t len = strnlen(value, FACTS_MAX_VALUE + 1), room = len * 3 + 1;
	char *copy, *fit;

	if (len > FACTS_MAX_VALUE) {
		errno = E2BIG;
		return NULL;
	}
	copy = malloc(room);
	if (!copy)
		return NULL;
	len = text__utf8(copy, room - 1, value, len);
	copy[len] = '\0';
	if (len > FACTS_MAX_VALUE) {
		free(copy);
		errno = E2BIG;
		return NULL;
	}
	fit = realloc(copy, len + 1);
	return fit ? fit : copy;
}

/* Adds a fact with a new key. On success the facts own value. Returns 0 or -errno. */
static int append_fact(struct facts *f, const char *key, char *value)
{
	uint64_t hash = hash__bytes(f->seed, key, strlen(key)), unused;
	char *copy;
	int err = 0;

	if (f->n == FACTS_MAX)
		return -E2BIG;
	if (array__grow(&f->facts, &f->room, f->n + 1, sizeof(*f->facts)))
		return -ENOMEM;
	copy = strdup(key);
	if (!copy)
		return -ENOMEM;
	if (!map64__get(f->index, hash, &unused))
		err = map64__set(f->index, hash, f->n);
	if (err) {
		free(copy);
		return err;
	}
	f->facts[f->n++] = (struct fact){ copy, value };
	return 0;
}

int facts__set(struct facts *f, const char *key, const char *value)
{
	struct fact *old;
	size_t bytes;
	char *copy;
	int err;

	if (!is_good_key(key))
		return -EINVAL;
	copy = make_value(value);
	if (!copy)
		return -errno;
	old = find_fact(f, key);
	bytes = f->bytes + strlen(copy) - (old ? strlen(old->value) : 0);
	if (!old)
		bytes += strlen(key);
	err = bytes > FACTS_MAX_BYTES ? -E2BIG : 0;
	if (!err && !old)
		err = append_fact(f, key, copy);
	if (err) {
		free(copy);
		return err;
	}
	if (old) {
		free(old->value);
		old->value = copy;
	}
	f->bytes = bytes;
	return 0;
}

int facts__setf(struct facts *f, const char *key, const char *fmt, ...)
{
	va_list args;
	char *value;
	int n;

	va_start(args, fmt);
	n = vasprintf(&value, fmt, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	n = facts__set(f, key, value);
	free(value);
	return n;
}

const char *facts__get(const struct facts *f, const char *key)
{
	const struct fact *fact = find_fact(f, key);

	return fact ? fact->value : NULL;
}

bool facts__digits(const char **at, uint64_t *ret)
{
	const char *p = *at;

	*ret = 0;
	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		*ret = *ret > STREAM_MOST / 10 ? STREAM_MOST : *ret * 10 + (uint64_t)(*p - '0');
	*ret = *ret < STREAM_MOST ? *ret : STREAM_MOST;
	*at = p;
	return true;
}

bool facts__number(const struct facts *f, const char *key, uint64_t *ret)
{
	const char *at = facts__get(f, key);

	*ret = 0;
	if (at && facts__digits(&at, ret) && !*at)
		return true;
	*ret = 0;
	return false;
}

bool facts__signed(const struct facts *f, const char *key, int64_t *ret)
{
	const char *at = facts__get(f, key);
	bool negative = at && *at == '-';
	uint64_t size;

	*ret = 0;
	if (!at)
		return false;
	at += negative;
	if (!facts__digits(&at, &size) || *at)
		return false;
	*ret = negative ? -(int64_t)size : (int64_t)size;
	return true;
}

size_t facts__count(const struct facts *f)
{
	return f->n;
}

void facts__at(const struct facts *f, size_t i, const char **key, const char **value)
{
	*key = f->facts[i].key;
	*value = f->facts[i].value;
}

bool facts__is_scope(const char *name)
{
	const char *colon = strrchr(name, ':');
	const char *function = colon ? colon + 1 : name;

	return colon != name && *function && strlen(name) < STREAM_SCOPE &&
	       function[strlen(function) - 1] != '.' && !strpbrk(name, "\n\r\t");
}

const char *device__name(struct device d, char *buf, size_t size)
{
	static const char *const types[UINT8_MAX + 1] = {
		[DEVICE_CPU] = "cpu",	    [DEVICE_HOST] = "host",
		[DEVICE_MALLOC] = "malloc", [DEVICE_CUDA] = "cuda",
		[DEVICE_HIP] = "hip",	    [DEVICE_XPU] = "xpu",
		[DEVICE_META] = "meta",	    [DEVICE_PRIVATE] = "privateuseone",
	};
	const char *type = types[d.type];

	if (device__on_host(d) || d.type == DEVICE_META)
		snprintf(buf, size, "%s", type);
	else if (type && d.index == DEVICE_UNKNOWN)
		snprintf(buf, size, "%.11s:?", type);
	else if (type)
		snprintf(buf, size, "%.11s:%u", type, d.index);
	else
		snprintf(buf, size, "type%u:%u", d.type, d.index);
	return buf;
}

const char *facts__walk_name(unsigned walk)
{
	static const char *const names[] = {
		[MT_WALK_OK] = "ok",
		[MT_WALK_OFF] = "off",
		[MT_WALK_NO_THREAD] = "no_thread",
		[MT_WALK_NO_FRAME] = "no_frame",
		[MT_WALK_TRUNCATED] = "truncated",
		[MT_WALK_FAULT_THREAD] = "fault_thread",
		[MT_WALK_FAULT_FRAME] = "fault_frame",
		[MT_WALK_FAULT_SELF] = "fault_self",
		[MT_WALK_BUSY] = "busy",
		[MT_WALK_LOST] = "lost",
	};

	_Static_assert(sizeof(names) / sizeof(*names) == MT_WALK_NR, "a name for every outcome");
	return walk < MT_WALK_NR ? names[walk] : "unknown";
}

const char *facts__how_name(unsigned how)
{
	static const char *const names[MEM_HOW_NR] = {
		[0] = "unknown",
		[MEM_DEVICE] = "cudaMalloc",
		[MEM_ASYNC] = "cudaMallocAsync",
		[MEM_MANAGED] = "cudaMallocManaged",
		[MEM_HOST] = "cudaHostAlloc",
		[MEM_REGISTERED] = "cudaHostRegister",
		[MEM_PHYSICAL] = "cuMemCreate",
		[MEM_MAPPED] = "cuMemMap",
		[MEM_RESERVED] = "cuMemAddressReserve",
	};

	return how < MEM_HOW_NR ? names[how] : names[0];
}

const char *scope_source__name(unsigned source)
{
	switch (source) {
	case 0:
		return "function";
	case SCOPE_PHASE:
		return "phase";
	case SCOPE_RECORD_FUNCTION:
		return "record_function";
	case SCOPE_NVTX:
		return "nvtx";
	case SCOPE_USDT ... SCOPE_USDT_LAST:
		return "usdt";
	default:
		return "unknown";
	}
}

const char *scope_flag__name(unsigned flags)
{
	static const char *const names[SCOPE_WHAT + 1] = {
		[SCOPE_BEGIN] = "begin",
		[SCOPE_END] = "end",
		[SCOPE_SUSPEND] = "suspend",
		[SCOPE_RESUME] = "resume",
	};

	return names[flags & SCOPE_WHAT] ?: "unknown";
}

bool event__mark_is(const char *name, const char *asked)
{
	return !strcmp(name, asked) || !fnmatch(asked, name, FNM_NOESCAPE);
}
