// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts reads of a kernel's results by operation and line of Python. Finding the operation is slow
 * and programs read in every step, so it is found once per calling code and line. Reads for
 * checkpoints and printing are left out: no result depends on them.
 */
#include "depends.h"
#include "core.h"
#include "truth.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024u
#define MAX_PLACES 8192u
#define MANY_READS 1000u /* of one truth value: the program may wait for another one */
#define MAX_HINTS 3u

struct entry { /* an operation and a line */
	struct entry *next;
	uint64_t count;
	bool shape;
	char operation[OPERATION_NAME];
	struct place place;
};

struct key {
	struct key *next;
	const void *caller;
	uint64_t hash; /* hash of the lines and of the class of the read's size */
	uint64_t count;
	struct entry *entry; /* NULL: the read is left out */
	struct truth truth;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries[BUCKETS];
static struct key *keys[BUCKETS];
static unsigned int n_places;

void depends__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void depends__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void depends__forget(void)
{
	for (unsigned int b = 0; b < BUCKETS; b++)
		for (struct entry *e = entries[b]; e; e = e->next)
			e->count = 0;
}

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *at = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x100000001b3ull;
	return hash;
}

static uint64_t mix_place(uint64_t hash, const struct place *place)
{
	hash = mix(hash, place->file, strlen(place->file) + 1);
	hash = mix(hash, place->function, strlen(place->function) + 1);
	return mix(hash, &place->line, sizeof(place->line));
}

/* Replaces control characters: fields of a log line are separated by tabs. */
static const char *field(char *text)
{
	for (char *p = text; *p; p++)
		if (iscntrl((unsigned char)*p))
			*p = '?';
	return *text ? text : "?";
}

static void write_line(const struct entry *e)
{
	struct place place = e->place;
	char operation[OPERATION_NAME];

	memcpy(operation, e->operation, sizeof(operation));
	dryrun__log("depends\t%s\t%s\t%llu\t%s\t%d\t%s", e->shape ? "shape" : "value",
		    field(operation), (unsigned long long)e->count, field(place.file), place.line,
		    field(place.function));
}

/* NULL: no host memory, or too many entries. Lock held. */
static struct entry *make_entry(const struct operation *op, const struct place *place)
{
	uint64_t hash = mix_place(mix(0xcbf29ce484222325ull, op->name, strlen(op->name)), place);
	struct entry **at = &entries[hash % BUCKETS], *e;

	for (e = *at; e; e = e->next)
		if (e->shape == op->shape && !strcmp(e->operation, op->name) &&
		    e->place.line == place->line && !strcmp(e->place.file, place->file) &&
		    !strcmp(e->place.function, place->function))
			return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->shape = op->shape;
	memcpy(e->operation, op->name, sizeof(e->operation));
	e->place = *place;
	e->next = *at;
	*at = e;
	return e;
}

static struct key *find(const void *caller, uint64_t hash)
{
	struct key *k = keys[hash % BUCKETS];

	while (k && (k->hash != hash || k->caller != caller))
		k = k->next;
	return k;
}

/* False for reads that decide nothing: large ones and copies of whole tensors are for
 * checkpoints. */
static bool matters(const struct python_read *read, const struct operation *op, size_t size)
{
	return read->purpose == READ_FOR_USE && (!op->copy || size <= DRYRUN_SMALL_COPY);
}

/* The slow part: finds the operation of a new place. NULL: no memory. */
static struct key *learn(const void *caller, uint64_t hash, const struct python_read *read,
			 size_t size)
{
	struct operation op;
	struct truth truth;
	struct key *k;

	operation__now(&op);
	truth__of(&truth, &op, read, size);
	depends__lock();
	k = find(caller, hash);
	if (!k && n_places < MAX_PLACES && (k = calloc(1, sizeof(*k)))) {
		k->caller = caller;
		k->hash = hash;
		k->truth = truth;
		k->entry = matters(read, &op, size) ? make_entry(&op, &read->user) : NULL;
		k->next = keys[hash % BUCKETS];
		keys[hash % BUCKETS] = k;
		n_places++;
	}
	depends__unlock();
	return k;
}

/* Says on stderr that a truth value may never come. */
static void hint(const struct place *place)
{
	static unsigned int said;
	char file[PLACE_FILE];

	if (!*place->file || __atomic_fetch_add(&said, 1, __ATOMIC_RELAXED) >= MAX_HINTS)
		return;
	memcpy(file, place->file, sizeof(file));
	fprintf(stderr,
		"memtrace-bpf: dry run: %s:%d has read a truth value of the device %u times, and "
		"it "
		"was false each time: a dry run computes nothing. If the program waits there for "
		"true, "
		"stop it and set MEMTRACE_DRYRUN_VALUES=%s:%d=true@64* (true at every 64th read)\n",
		field(file), place->line, MANY_READS, field(file), place->line);
}

void depends__read(void *to, size_t size, const void *caller)
{
	bool large = size > DRYRUN_SMALL_COPY, say = false;
	struct python_read read;
	struct entry copy;
	uint64_t hash, count;
	struct key *k;

	if (truth__take_next(to, size) || (!dryrun__config()->log && !truth__wanted(size)))
		return;
	python__where(operation__torch(caller), &read);
	hash = mix_place(mix_place(mix(0xcbf29ce484222325ull, &caller, sizeof(caller)),
				   &read.inner),
			 &read.user);
	hash = mix(mix(hash, &large, sizeof(large)), size <= 8 ? &size : &(size_t){ 0 },
		   sizeof(size));
	depends__lock();
	k = find(caller, hash);
	depends__unlock();
	if (!k)
		k = learn(caller, hash, &read, size);
	if (!k) {
		dryrun__unmodelled("places that read results, beyond 8192");
		return;
	}
	count = __atomic_add_fetch(&k->count, 1, __ATOMIC_RELAXED);
	truth__put(&k->truth, count, to, size);
	if (!k->entry)
		return;
	if (count == MANY_READS && size == 1 && !k->truth.size && !k->truth.generation)
		hint(&k->entry->place);
	depends__lock();
	k->entry->count++;
	if (!(k->entry->count & (k->entry->count - 1))) {
		copy = *k->entry;
		say = true;
	}
	depends__unlock();
	if (say)
		write_line(&copy);
}

__attribute__((destructor)) static void write_all(void)
{
	/* At exit, a thread that is already gone may hold the lock. */
	if (!dryrun__config()->log || pthread_mutex_trylock(&mutex))
		return;
	for (unsigned int b = 0; b < BUCKETS; b++)
		for (const struct entry *e = entries[b]; e; e = e->next)
			if (e->count & (e->count - 1))
				write_line(e);
	depends__unlock();
}
