/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Mappings of a process by address, the data of its libraries, and the stacks of its threads. */

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int host_spans__add(struct host_spans *spans, uint64_t start, uint64_t size, uint8_t part)
{
	uint64_t end;

	if (!size)
		return 0;
	if (__builtin_add_overflow(start, size, &end))
		end = UINT64_MAX;
	if (array__grow(&spans->v, &spans->cap, spans->n + 1, sizeof(*spans->v)))
		return -ENOMEM;
	spans->v[spans->n++] = (struct span){ start, end, part };
	return 0;
}

void host_spans__free(struct host_spans *spans)
{
	free(spans->v);
	*spans = (struct host_spans){ 0 };
}

static int by_part(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

/* Adds to `to` the bytes of span that flat does not have. flat: sorted ranges of lower parts. *at:
 * index of the first of these that may end after span.start. */
static int add_rest(const struct host_spans *flat, size_t *at, struct span span,
		    struct host_spans *to)
{
	while (span.start < span.end) {
		while (*at < flat->n && flat->v[*at].end <= span.start)
			(*at)++;
		const struct span *a = *at < flat->n ? &flat->v[*at] : NULL;
		uint64_t end = a && a->start < span.end ? a->start : span.end;

		if (end > span.start &&
		    host_spans__add(to, span.start, end - span.start, span.part))
			return -ENOMEM;
		span.start = a && a->start < span.end ? a->end : span.end;
	}
	return 0;
}

/* Merges two sorted lists without common bytes. */
static int merge_spans(const struct host_spans *a, const struct host_spans *b,
		       struct host_spans *to)
{
	size_t i = 0, k = 0;

	if (array__grow(&to->v, &to->cap, a->n + b->n + 1, sizeof(*to->v)))
		return -ENOMEM;
	while (i < a->n || k < b->n) {
		bool first = k == b->n || (i < a->n && a->v[i].start < b->v[k].start);

		to->v[to->n++] = first ? a->v[i++] : b->v[k++];
	}
	return 0;
}

/* Adds the bytes of n ranges of one part that *flat does not have. v is sorted by start. */
static int add_part(struct host_spans *flat, const struct span *v, size_t n)
{
	struct host_spans rest = { 0 }, merged = { 0 };
	uint64_t done = 0;
	size_t at = 0;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		struct span span = v[i];

		span.start = span.start > done ? span.start : done;
		if (span.start >= span.end)
			continue;
		done = span.end;
		err = add_rest(flat, &at, span, &rest);
	}
	if (!err)
		err = merge_spans(flat, &rest, &merged);
	host_spans__free(&rest);
	if (err) {
		host_spans__free(&merged);
		return err;
	}
	host_spans__free(flat);
	*flat = merged;
	return 0;
}

/* Adds the ranges of each part, in order, without the bytes that earlier parts have. */
int host_spans__resolve(struct host_spans *spans)
{
	struct host_spans flat = { 0 };
	int err = 0;

	if (!spans->n)
		return 0;
	qsort(spans->v, spans->n, sizeof(*spans->v), by_part);
	for (size_t i = 0, end; i < spans->n && !err; i = end) {
		for (end = i; end < spans->n && spans->v[end].part == spans->v[i].part; end++)
			;
		err = add_part(&flat, spans->v + i, end - i);
	}
	if (err) {
		host_spans__free(&flat);
		return err;
	}
	host_spans__free(spans);
	*spans = flat;
	return 0;
}

ARRAY_UP_TO(spans_up_to, struct span, end)

size_t host_spans__after(const struct host_spans *spans, uint64_t addr)
{
	return spans_up_to(spans->v, spans->n, addr);
}

struct host_allocator *host_reading__add_allocator(struct host_reading *reading, const char *name,
						   size_t map)
{
	struct host_ledger *ledger = reading->ledger;
	struct host_allocator *allocator;

	if (ledger->allocators == HOST_ALLOCATORS)
		return NULL;
	allocator = &ledger->allocator[ledger->allocators++];
	*allocator = (struct host_allocator){ 0 };
	snprintf(allocator->name, sizeof(allocator->name), "%s", name);
	snprintf(allocator->file, sizeof(allocator->file), "%s",
		 map__base_name(reading->maps.maps.v[map].path));
	return allocator;
}

#define STACK_MAX (64u << 20)  /* maximum bytes of a thread's stack */
#define STACK_USUAL (8u << 20) /* bytes of a thread's stack if the limit is not known */
#define MAX_PHDRS 64u
#define GUARD_MAX (64u << 10)	 /* maximum bytes of the guard below a stack */
#define HEAP_GROWTH (256u << 20) /* bytes that the heap may grow by during a reading */

bool host_places__is_anonymous(const struct map *map)
{
	/* "[anon:NAME]": named by prctl(PR_SET_VMA) */
	return map->r && map->w && !map->shared && !map->inode &&
	       (!*map->path || text__starts(map->path, "[anon:") || !strcmp(map->path, "[heap]") ||
		text__starts(map->path, "[stack"));
}

ARRAY_UP_TO(maps_up_to, struct map, start)

/* The last mapping that begins at addr or below; NULL: none. */
static const struct map *at_or_below(const struct maps *maps, uint64_t addr)
{
	size_t k = maps_up_to(maps->v, maps->n, addr);

	return k ? &maps->v[k - 1] : NULL;
}

bool host_places__is_private_memory(const struct host_smaps *smaps, uint64_t addr, uint64_t size)
{
	const struct map *map = at_or_below(&smaps->maps, addr),
			 *last = smaps->maps.v + smaps->maps.n;
	uint64_t end = map ? map->end : 0;

	/* The heap may have grown since the mappings were read. */
	if (map && addr + size > end && !strcmp(map->path, "[heap]")) {
		end += HEAP_GROWTH;
		end = map + 1 < last && map[1].start < end ? map[1].start : end;
	}
	return map && addr < end && host_places__is_anonymous(map) && size <= end - addr;
}

bool host_places__is_code(const struct host_smaps *smaps, uint64_t addr)
{
	const struct map *map = maps__find(&smaps->maps, addr);

	return map && map->x && map->inode;
}

/* True if mapping i has no file and directly follows a file's writable data, so that it begins with
 * the file's zeroed data (.bss). Other memory may follow in the same mapping. */
static bool follows_data(const struct host_smaps *smaps, size_t i)
{
	const struct map *map = &smaps->maps.v[i], *before = i ? map - 1 : NULL;

	return before && host_places__is_anonymous(map) && !*map->path &&
	       before->end == map->start && before->inode && before->w && !before->shared;
}

/* The kernel holds the lock of the address space while it finds the pages of one read. */
#define READ_PIECE (256u << 10)

int host_places__read_resident(const struct host_reading *reading, uint64_t addr, uint8_t *buf,
			       size_t len)
{
	uint64_t start = addr & ~(uint64_t)(HOST_PAGE - 1), end = addr + len;
	const struct resident_range *ranges;
	size_t n;
	int err;

	memset(buf, 0, len);
	end = (end + HOST_PAGE - 1) & ~(uint64_t)(HOST_PAGE - 1);
	err = host_resident__read(reading->resident, start, end, &ranges, &n);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t from = ranges[i].start > addr ? ranges[i].start : addr;
		uint64_t to = ranges[i].end < addr + len ? ranges[i].end : addr + len, piece;

		for (; from < to && !err; from += piece) {
			piece = host_smaps__min(to - from, READ_PIECE);
			err = proc__read(reading->proc, from, buf + (from - addr), piece);
		}
	}
	return err;
}

int host_places__read_data(const struct host_reading *reading, size_t i, size_t max,
			   struct host_data *ret)
{
	const struct map *map = &reading->maps.maps.v[i];
	uint64_t end = map->end;
	int err;

	if (i + 1 < reading->maps.maps.n && follows_data(&reading->maps, i + 1))
		end = reading->maps.maps.v[i + 1].end;
	ret->addr = map->start;
	ret->len = end - map->start < max ? end - map->start : max;
	ret->v = malloc(ret->len);
	if (!ret->v)
		return -ENOMEM;
	err = host_places__read_resident(reading, ret->addr, ret->v, ret->len);
	if (err) {
		free(ret->v);
		ret->v = NULL;
	}
	return err;
}

/* Reads the start of a mapped file: from memory if it is resident, otherwise from the file. */
static bool read_start(const struct host_reading *reading, const struct map *map, uint8_t *buf,
		       size_t len)
{
	const struct resident_range *ranges;
	ssize_t got;
	size_t n;
	int fd;

	if (!host_resident__read(reading->resident, map->start, map->start + HOST_PAGE, &ranges,
				 &n) &&
	    n && !proc__read(reading->proc, map->start, buf, len))
		return true;
	fd = proc__open_map(reading->proc, map);
	if (fd < 0)
		return false;
	got = io__pread(fd, buf, len, 0);
	close(fd);
	return got == (ssize_t)len;
}

/* Returns the end of the zeroed data of the file whose first mapping is map, by its program
 * headers. 0: not known. */
static uint64_t end_of_bss(const struct host_reading *reading, const struct map *map)
{
	uint64_t bias = map->start, end = 0, n;
	uint8_t page[HOST_PAGE];
	Elf64_Phdr ph[MAX_PHDRS];
	bool first = true;
	Elf64_Ehdr eh;

	if (map->offset || !read_start(reading, map, page, sizeof(page)))
		return 0;
	memcpy(&eh, page, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_phentsize != sizeof(*ph) || !eh.e_phnum ||
	    eh.e_phnum > MAX_PHDRS || eh.e_phoff > sizeof(page) - eh.e_phnum * sizeof(*ph))
		return 0;
	memcpy(ph, page + eh.e_phoff, eh.e_phnum * sizeof(*ph));
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		if (ph[i].p_type != PT_LOAD)
			continue;
		if (first)
			bias = map->start - (ph[i].p_vaddr & ~(uint64_t)(HOST_PAGE - 1));
		first = false;
		if (__builtin_add_overflow(ph[i].p_vaddr, ph[i].p_memsz, &n) ||
		    __builtin_add_overflow(n, bias, &n) || n > UINT64_MAX - HOST_PAGE)
			return 0;
		end = n > end ? n : end;
	}
	return (end + HOST_PAGE - 1) & ~(uint64_t)(HOST_PAGE - 1);
}

/* Claims the zeroed data of mapped files for HOST_LIBRARIES. */
static int find_bss(struct host_reading *reading)
{
	int err = 0;

	for (size_t i = 1; i < reading->maps.maps.n && !err; i++) {
		const struct map *map = &reading->maps.maps.v[i], *first = map - 1;
		uint64_t end;

		if (!follows_data(&reading->maps, i))
			continue;
		while (first > reading->maps.maps.v && first->offset &&
		       map__same_file(first - 1, first))
			first--;
		end = end_of_bss(reading, first);
		end = end < map->end ? end : map->end;
		if (end > map->start)
			err = host_spans__add(&reading->claims, map->start, end - map->start,
					      HOST_LIBRARIES);
	}
	return err;
}

/* Returns the size of thread stacks that the C library uses by default (RLIMIT_STACK), bytes. */
static uint64_t stack_limit(const struct proc *proc)
{
	unsigned long long limit;
	const char *line;
	size_t len;
	char *text;

	if (proc__text(proc, "limits", 16 << 10, &text, &len))
		return STACK_USUAL;
	line = strstr(text, "Max stack size");
	if (!line || sscanf(line + 14, "%llu", &limit) != 1 || limit < HOST_PAGE)
		limit = STACK_USUAL;
	free(text);
	return limit < STACK_MAX ? limit : STACK_MAX;
}

/*
 * Claims the stacks of threads, also those of ended threads, which the C library keeps for reuse. A
 * stack lies above a guard of a few pages that cannot be accessed. The kernel can join a later
 * mapping to a stack's upper end, so only the default size counts.
 */
static int find_stacks(struct host_reading *reading)
{
	uint64_t most = stack_limit(reading->proc);
	int err = 0;

	for (size_t i = 1; i < reading->maps.maps.n && !err; i++) {
		const struct map *map = &reading->maps.maps.v[i], *guard = map - 1;
		uint64_t size = map->end - map->start;

		if (guard->end != map->start || guard->r || guard->w || guard->x || guard->inode ||
		    guard->end - guard->start > GUARD_MAX || !host_places__is_anonymous(map) ||
		    map->x)
			continue;
		err = host_spans__add(&reading->claims, map->start, size < most ? size : most,
				      HOST_STACKS);
	}
	return err;
}

int host_places__read(struct host_reading *reading)
{
	return find_stacks(reading) ?: find_bss(reading);
}
