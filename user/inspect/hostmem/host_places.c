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
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

int host_spans__add(struct host_spans *s, uint64_t start, uint64_t size, uint8_t part)
{
	uint64_t end;

	if (!size)
		return 0;
	if (__builtin_add_overflow(start, size, &end))
		end = UINT64_MAX;
	if (array__grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v)))
		return -ENOMEM;
	s->v[s->n++] = (struct span){ start, end, part };
	return 0;
}

void host_spans__free(struct host_spans *s)
{
	free(s->v);
	*s = (struct host_spans){ 0 };
}

static int by_part(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->start < y->start ? -1 : x->start > y->start;
}

/* Adds to `to` the bytes of b that flat does not have. flat: sorted ranges of lower parts. *at:
 * index of the first of these that may end after b.start. */
static int add_rest(const struct host_spans *flat, size_t *at, struct span b, struct host_spans *to)
{
	while (b.start < b.end) {
		while (*at < flat->n && flat->v[*at].end <= b.start)
			(*at)++;
		const struct span *a = *at < flat->n ? &flat->v[*at] : NULL;
		uint64_t end = a && a->start < b.end ? a->start : b.end;

		if (end > b.start && host_spans__add(to, b.start, end - b.start, b.part))
			return -ENOMEM;
		b.start = a && a->start < b.end ? a->end : b.end;
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
		struct span b = v[i];

		b.start = b.start > done ? b.start : done;
		if (b.start >= b.end)
			continue;
		done = b.end;
		err = add_rest(flat, &at, b, &rest);
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
int host_spans__resolve(struct host_spans *s)
{
	struct host_spans flat = { 0 };
	int err = 0;

	if (!s->n)
		return 0;
	qsort(s->v, s->n, sizeof(*s->v), by_part);
	for (size_t i = 0, end; i < s->n && !err; i = end) {
		for (end = i; end < s->n && s->v[end].part == s->v[i].part; end++)
			;
		err = add_part(&flat, s->v + i, end - i);
	}
	if (err) {
		host_spans__free(&flat);
		return err;
	}
	host_spans__free(s);
	*s = flat;
	return 0;
}

ARRAY_UP_TO(spans_up_to, struct span, end)

size_t host_spans__after(const struct host_spans *s, uint64_t addr)
{
	return spans_up_to(s->v, s->n, addr);
}

struct host_allocator *host_reading__add_allocator(struct host_reading *r, const char *name,
						   size_t map)
{
	struct host_ledger *l = r->l;
	struct host_allocator *a;

	if (l->allocators == HOST_ALLOCATORS)
		return NULL;
	a = &l->allocator[l->allocators++];
	*a = (struct host_allocator){ 0 };
	snprintf(a->name, sizeof(a->name), "%s", name);
	snprintf(a->file, sizeof(a->file), "%s", map__base_name(r->maps.maps.v[map].path));
	return a;
}

#define STACK_MAX (64u << 20)  /* maximum bytes of a thread's stack */
#define STACK_USUAL (8u << 20) /* bytes of a thread's stack if the limit is not known */
#define MAX_PHDRS 64u
#define GUARD_MAX (64u << 10)	 /* maximum bytes of the guard below a stack */
#define HEAP_GROWTH (256u << 20) /* bytes that the heap may grow by during a reading */

bool host_places__is_anonymous(const struct map *m)
{
	/* "[anon:NAME]": named by prctl(PR_SET_VMA) */
	return m->r && m->w && !m->shared && !m->inode &&
	       (!*m->path || !strncmp(m->path, "[anon:", 6) || !strcmp(m->path, "[heap]") ||
		!strncmp(m->path, "[stack", 6));
}

ARRAY_UP_TO(maps_up_to, struct map, start)

/* The last mapping that begins at addr or below; NULL: none. */
static const struct map *at_or_below(const struct maps *m, uint64_t addr)
{
	size_t k = maps_up_to(m->v, m->n, addr);

	return k ? &m->v[k - 1] : NULL;
}

bool host_places__is_private_memory(const struct host_smaps *s, uint64_t addr, uint64_t size)
{
	const struct map *m = at_or_below(&s->maps, addr), *last = s->maps.v + s->maps.n;
	uint64_t end = m ? m->end : 0;

	/* The heap may have grown since the mappings were read. */
	if (m && addr + size > end && !strcmp(m->path, "[heap]")) {
		end += HEAP_GROWTH;
		end = m + 1 < last && m[1].start < end ? m[1].start : end;
	}
	return m && addr < end && host_places__is_anonymous(m) && size <= end - addr;
}

bool host_places__is_code(const struct host_smaps *s, uint64_t addr)
{
	const struct map *m = maps__find(&s->maps, addr);

	return m && m->x && m->inode;
}

/* Whether mapping i has no file and directly follows a file's writable data, so that it begins with
 * the file's zeroed data (.bss). Other memory may follow in the same mapping. */
static bool follows_data(const struct host_smaps *s, size_t i)
{
	const struct map *m = &s->maps.v[i], *before = i ? m - 1 : NULL;

	return before && host_places__is_anonymous(m) && !*m->path && before->end == m->start &&
	       before->inode && before->w && !before->shared;
}

/* The kernel holds the lock of the address space while it finds the pages of one read. */
#define READ_PIECE (256u << 10)

int host_places__read_resident(const struct host_reading *r, uint64_t addr, uint8_t *buf,
			       size_t len)
{
	uint64_t start = addr & ~(uint64_t)(HOST_PAGE - 1), end = addr + len;
	const struct resident_range *v;
	size_t n;
	int err;

	memset(buf, 0, len);
	end = (end + HOST_PAGE - 1) & ~(uint64_t)(HOST_PAGE - 1);
	err = host_resident__read(r->resident, start, end, &v, &n);
	for (size_t i = 0; i < n && !err; i++) {
		uint64_t from = v[i].start > addr ? v[i].start : addr;
		uint64_t to = v[i].end < addr + len ? v[i].end : addr + len, piece;

		for (; from < to && !err; from += piece) {
			piece = host_smaps__min(to - from, READ_PIECE);
			err = proc__read(r->proc, from, buf + (from - addr), piece);
		}
	}
	return err;
}

int host_places__read_data(const struct host_reading *r, size_t i, size_t max,
			   struct host_data *ret)
{
	const struct map *m = &r->maps.maps.v[i];
	uint64_t end = m->end;
	int err;

	if (i + 1 < r->maps.maps.n && follows_data(&r->maps, i + 1))
		end = r->maps.maps.v[i + 1].end;
	ret->addr = m->start;
	ret->len = end - m->start < max ? end - m->start : max;
	ret->v = malloc(ret->len);
	if (!ret->v)
		return -ENOMEM;
	err = host_places__read_resident(r, ret->addr, ret->v, ret->len);
	if (err) {
		free(ret->v);
		ret->v = NULL;
	}
	return err;
}

/* Reads the start of a mapped file: from memory if it is resident, otherwise from the file. */
static bool read_start(const struct host_reading *r, const struct map *m, uint8_t *buf, size_t len)
{
	const struct resident_range *v;
	ssize_t got;
	size_t n;
	int fd;

	if (!host_resident__read(r->resident, m->start, m->start + HOST_PAGE, &v, &n) && n &&
	    !proc__read(r->proc, m->start, buf, len))
		return true;
	fd = proc__open_map(r->proc, m);
	if (fd < 0)
		return false;
	got = io__pread(fd, buf, len, 0);
	close(fd);
	return got == (ssize_t)len;
}

/* Returns the end of the zeroed data of the file whose first mapping is m, by its program headers.
 * 0: not known. */
static uint64_t end_of_bss(const struct host_reading *r, const struct map *m)
{
	uint64_t bias = m->start, end = 0, n;
	uint8_t page[HOST_PAGE];
	Elf64_Phdr ph[MAX_PHDRS];
	bool first = true;
	Elf64_Ehdr eh;

	if (m->offset || !read_start(r, m, page, sizeof(page)))
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
			bias = m->start - (ph[i].p_vaddr & ~(uint64_t)(HOST_PAGE - 1));
		first = false;
		if (__builtin_add_overflow(ph[i].p_vaddr, ph[i].p_memsz, &n) ||
		    __builtin_add_overflow(n, bias, &n) || n > UINT64_MAX - HOST_PAGE)
			return 0;
		end = n > end ? n : end;
	}
	return (end + HOST_PAGE - 1) & ~(uint64_t)(HOST_PAGE - 1);
}

/* Claims the zeroed data of mapped files for HOST_LIBRARIES. */
static int find_bss(struct host_reading *r)
{
	int err = 0;

	for (size_t i = 1; i < r->maps.maps.n && !err; i++) {
		const struct map *m = &r->maps.maps.v[i], *first = m - 1;
		uint64_t end;

		if (!follows_data(&r->maps, i))
			continue;
		while (first > r->maps.maps.v && first->offset && map__same_file(first - 1, first))
			first--;
		end = end_of_bss(r, first);
		end = end < m->end ? end : m->end;
		if (end > m->start)
			err = host_spans__add(&r->claims, m->start, end - m->start, HOST_LIBRARIES);
	}
	return err;
}

/* Returns the size of thread stacks that the C library uses by default (RLIMIT_STACK), bytes. */
static uint64_t stack_limit(const struct proc *p)
{
	unsigned long long limit;
	const char *line;
	size_t len;
	char *text;

	if (proc__text(p, "limits", 16 << 10, &text, &len))
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
static int find_stacks(struct host_reading *r)
{
	uint64_t most = stack_limit(r->proc);
	int err = 0;

	for (size_t i = 1; i < r->maps.maps.n && !err; i++) {
		const struct map *m = &r->maps.maps.v[i], *guard = m - 1;
		uint64_t size = m->end - m->start;

		if (guard->end != m->start || guard->r || guard->w || guard->x || guard->inode ||
		    guard->end - guard->start > GUARD_MAX || !host_places__is_anonymous(m) || m->x)
			continue;
		err = host_spans__add(&r->claims, m->start, size < most ? size : most, HOST_STACKS);
	}
	return err;
}

int host_places__read(struct host_reading *r)
{
	return find_stacks(r) ?: find_bss(r);
}
