/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Makes one ledger of a process's memory from the kernel's figures and the allocators' tables. */
#include "inspect/hostmem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

/* Bytes between two claims from which on their pages are read separately. */
#define CLAIMS_APART (16u << 20)

struct hostmem {
	const struct proc *proc;
	const struct python *python;
	struct host_places places;
};

struct hostmem *hostmem__new(const struct proc *p, const struct python *py)
{
	struct hostmem *h = calloc(1, sizeof(*h));

	if (h)
		*h = (struct hostmem){ .proc = p, .python = py };
	return h;
}

void hostmem__free(struct hostmem *h)
{
	free(h);
}

/* ---- parts ---- */

/* Whether a mapping is shared memory, without a file on a disk: tmpfs of /dev/shm, memfd, System V,
 * or anonymous. */
static bool is_shared_memory(const struct map *m)
{
	return !strncmp(m->path, "/dev/shm/", 9) || !strncmp(m->path, "/memfd:", 7) ||
	       !strncmp(m->path, "/SYSV", 5) || !strcmp(m->path, "/dev/zero") ||
	       (m->shared && !m->inode);
}

static uint8_t part_of_shared(const struct map *m)
{
	const char *name = map__base_name(m->path);

	/* Names of shared memory: "torch_PID_RANDOM_N" (torch/csrc/StorageSharing.cpp), "nccl-..."
	 * (NCCL's src/misc/shmutils.cc). */
	if (!strncmp(name, "torch_", 6))
		return HOST_SHARED_LOADER;
	return strncmp(name, "nccl-", 5) ? HOST_SHARED : HOST_SHARED_NCCL;
}

/* Whether mapping i or a mapping next to it maps the same file as code. */
static bool is_program(const struct maps *m, size_t i)
{
	for (size_t k = i; k < m->n && map__same_file(&m->v[k], &m->v[i]); k++)
		if (m->v[k].x)
			return true;
	for (size_t k = i; k-- > 0 && map__same_file(&m->v[k], &m->v[i]);)
		if (m->v[k].x)
			return true;
	return false;
}

/* Returns the part that gets the bytes of mapping i which no table claims. */
static uint8_t part_of(const struct host_reading *r, size_t i)
{
	const struct map *m = &r->maps.maps.v[i];

	if (is_shared_memory(m))
		return part_of_shared(m);
	if (m->inode)
		return is_program(&r->maps.maps, i) ? HOST_LIBRARIES : HOST_FILES;
	if (!strncmp(m->path, "[v", 2))
		return HOST_LIBRARIES; /* [vdso], [vvar] */
	if (!strcmp(m->path, "[stack]"))
		return HOST_STACKS;
	if ((!strcmp(m->path, "[heap]") && r->l->malloc.known) || host_glibc__is_heap(r, m))
		return HOST_MALLOC;
	return HOST_UNKNOWN;
}

/* ---- resident bytes ---- */

/* Adds the bytes that each part claims in [start, end) to by_part. */
static void add_claims(const struct host_spans *s, uint64_t start, uint64_t end, uint64_t *by_part)
{
	for (size_t i = host_spans__after(s, start); i < s->n && s->v[i].start < end; i++)
		by_part[s->v[i].part] += span__bytes_in(&s->v[i], start, end);
}

/* Resident bytes in a mapping. */
struct claimed {
	/* Bytes that each part claims, for its first and its second figure. */
	uint64_t first[HOST_PARTS_END], second[HOST_PARTS_END];
	uint64_t free[HOST_FREE_NR]; /* malloc's free chunks, by enum host_free */
	uint64_t trimmed;	     /* those that malloc_trim() would return */
};

static void add_range(const struct host_reading *r, uint64_t start, uint64_t end,
		      struct claimed *to)
{
	add_claims(&r->claims, start, end, to->first);
	add_claims(&r->second, start, end, to->second);
	add_claims(&r->free_chunks, start, end, to->free);
	add_claims(&r->trimmed, start, end, &to->trimmed);
}

/* Returns the next claim by address, of the first figures from index *i on and of the second
 * figures from *k on, and advances its index. NULL: none begins below `end`. */
static const struct span *next_claim(const struct host_reading *r, size_t *i, size_t *k,
				     uint64_t end)
{
	const struct span *a = *i < r->claims.n ? &r->claims.v[*i] : NULL;
	const struct span *b = *k < r->second.n ? &r->second.v[*k] : NULL;
	bool first = a && (!b || a->start <= b->start);
	const struct span *s = first ? a : b;

	if (!s || s->start >= end)
		return NULL;
	*(first ? i : k) += 1;
	return s;
}

struct claims_of {
	const struct host_reading *r;
	struct claimed *to;
};

static int add_resident(void *ctx, uint64_t start, uint64_t end)
{
	const struct claims_of *c = ctx;

	add_range(c->r, start, end, c->to);
	return 0;
}

/* Adds up the claims on the resident bytes of mapping i. Reads only the pages of claims, at once
 * for neighbouring claims, because a mapping may have TiB of addresses without a claim. */
static int read_claims(const struct host_reading *r, size_t i, struct claimed *to)
{
	const struct map *m = &r->maps.maps.v[i];
	size_t first = host_spans__after(&r->claims, m->start);
	size_t second = host_spans__after(&r->second, m->start);
	const struct span *s = next_claim(r, &first, &second, m->end);
	struct claims_of c = { r, to };
	int err = 0;

	while (s && !err) {
		uint64_t from = s->start > m->start ? s->start : m->start, end = s->end;

		while ((s = next_claim(r, &first, &second, m->end)) &&
		       s->start < end + CLAIMS_APART)
			end = s->end > end ? s->end : end;
		end = end < m->end ? end : m->end;
		if (r->maps.v[i].rss == m->end - m->start)
			add_range(r, from, end, to);
		else
			err = host_resident__walk(r->resident, from, end, add_resident, &c);
	}
	return err;
}

/* Returns the process's share of resident bytes in a mapping: all, or as much as of its PSS. */
static uint64_t share_of(const struct host_reading *r, const struct smaps_figures *f,
			 uint64_t bytes)
{
	if (!r->o->proportional || f->pss >= f->rss)
		return bytes;
	return (uint64_t)((unsigned __int128)bytes * f->pss / f->rss);
}

/*
 * Divides the resident bytes of mapping i among the parts. Only claims of parts before the
 * mapping's own part count: a tensor in shared memory is shared memory. The claims were read a
 * moment after the mapping's resident bytes, so these limit their sum. The second figure of shared
 * parts is the bytes in tensors, of libraries and files the private bytes.
 */
static void divide_mapping(struct host_reading *r, size_t i, const struct claimed *c)
{
	const struct smaps_figures *f = &r->maps.v[i];
	struct host_figure *part = r->l->sheet.part;
	uint8_t own = part_of(r, i);
	uint64_t left = r->o->proportional ? f->pss : f->rss, n; /* left: in no part yet */

	for (uint8_t k = 1; k < own; k++) {
		n = share_of(r, f, c->first[k]);
		r->l->adjusted += n > left ? n - left : 0;
		n = host_smaps__min(n, left);
		part[k].bytes += n;
		left -= n;
	}
	part[own].bytes += left;
	if (own <= HOST_SHARED && own != HOST_PINNED)
		part[own].second += host_smaps__min(share_of(r, f, c->first[HOST_TENSORS]), left);
	else if (own == HOST_LIBRARIES || own == HOST_FILES)
		part[own].second += share_of(r, f, host_smaps__min(f->anonymous, f->rss));
	for (uint8_t k = 1; k < HOST_PARTS_END; k++)
		part[k].second += share_of(r, f, c->second[k]);
	part[HOST_MALLOC_TRIM].bytes += share_of(r, f, c->trimmed);
	for (unsigned k = HOST_FREE_OTHER; k < HOST_FREE_NR; k++)
		part[HOST_MALLOC_ARENAS].bytes += share_of(r, f, c->free[k]);
	n = share_of(r, f, c->free[HOST_FREE_END | HOST_FREE_OTHER]);
	part[HOST_MALLOC_ENDS].bytes += share_of(r, f, c->free[HOST_FREE_END]) + n;
	part[HOST_MALLOC_ENDS].second += n;
}

static void add_figures(struct host_ledger *l, const struct smaps_figures *f, bool proportional)
{
	l->sheet.part[HOST_TOTAL].bytes += proportional ? f->pss : f->rss;
	l->sheet.part[HOST_PSS].bytes += f->pss;
	l->sheet.part[HOST_USS].bytes += f->own;
	l->sheet.part[HOST_HUGETLB].bytes += f->hugetlb;
}

static int divide_all(struct host_reading *r)
{
	int err = 0;

	for (size_t i = 0; i < r->maps.maps.n && !err; i++) {
		struct claimed c = { 0 };

		add_figures(r->l, &r->maps.v[i], r->o->proportional);
		if (!r->maps.v[i].rss)
			continue;
		err = read_claims(r, i, &c);
		if (!err)
			divide_mapping(r, i, &c);
	}
	return err;
}

/* ---- a reading ---- */

static int add_storages(struct host_reading *r)
{
	int err = 0;

	for (size_t i = 0; i < r->o->n && !err; i++) {
		const struct host_storage *x = &r->o->storages[i];

		err = host_spans__add(&r->claims, x->addr, x->size, HOST_TENSORS);
	}
	return err;
}

static void take_status(struct host_reading *r)
{
	const struct host_status *s = host_resident__status(r->resident);

	r->l->status_rss = s->rss;
	r->swap = s->swap;
	r->l->sheet.part[HOST_PAGE_TABLES] = (struct host_figure){ .bytes = s->page_tables,
								   .known = s->page_tables_known };
}

static struct host_allocator *find_allocator(struct host_ledger *l, const char *name,
					     const char *file)
{
	for (size_t i = 0; i < l->allocators; i++)
		if (!strcmp(l->allocator[i].name, name) && !strcmp(l->allocator[i].file, file))
			return &l->allocator[i];
	return NULL;
}

/* Adds the allocators that a file's name tells and that no reader has added. */
static int name_allocators(struct host_reading *r)
{
	static const char *const names[] = { "jemalloc", "tcmalloc", "mimalloc" };

	for (size_t i = 0; i < r->maps.maps.n; i++) {
		const char *base = map__base_name(r->maps.maps.v[i].path);

		for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
			if (!strncmp(base, "lib", 3) &&
			    !strncmp(base + 3, names[k], strlen(names[k])) &&
			    !find_allocator(r->l, names[k], base))
				host_reading__add_allocator(r, names[k], i);
	}
	return 0;
}

/* Adds free blocks that have no ranges to the free memory in the part malloc. */
static void add_free_blocks(const struct host_reading *r)
{
	struct host_figure *part = &r->l->sheet.part[HOST_MALLOC];

	part->second = host_smaps__min(part->second + r->free_blocks, part->bytes);
}

/* The part malloc is known if a table of any allocator was read, and its free memory if that of
 * each allocator that was read is. */
static void set_malloc_known(struct host_ledger *l)
{
	struct host_figure *part = &l->sheet.part[HOST_MALLOC];

	part->known = l->malloc.known;
	part->has_second = !l->malloc.known || l->malloc.free_known;
	for (size_t i = 0; i < l->allocators; i++) {
		part->known = part->known || l->allocator[i].known;
		part->has_second = part->has_second &&
				   (!l->allocator[i].known || l->allocator[i].free_known);
	}
	part->has_second = part->has_second && part->known;
}

/* Sets the figures of the remedies, which return free memory: for glibc's malloc from its lists,
 * for other allocators from their tables. An allocator's part has its name; allocators of the same
 * name, such as two copies of jemalloc, add up. */
static void set_remedies_known(struct host_ledger *l)
{
	struct host_figure *part = l->sheet.part;

	for (unsigned k = HOST_MALLOC_TRIM; k <= HOST_MALLOC_ENDS; k++)
		part[k].known = l->malloc.free_known;
	part[HOST_MALLOC_ARENAS].second = l->malloc.arenas;
	part[HOST_MALLOC_ARENAS].has_second = l->malloc.free_known;
	part[HOST_MALLOC_ENDS].has_second = l->malloc.free_known;
	for (size_t i = 0; i < l->allocators; i++) {
		const struct host_allocator *a = &l->allocator[i];
		struct host_figure *f = &part[HOST_JEMALLOC];

		while (f < &part[HOST_PART_NR] && strcmp(a->name, host_part__name(f - part)))
			f++;
		if (f == &part[HOST_PART_NR] || !a->known)
			continue;
		f->known = true;
		f->bytes += a->purgeable + a->muzzy;
		f->second += a->purgeable + a->muzzy + a->free_blocks;
		f->has_second = a->free_known;
	}
}

/* Sets which figures of the ledger are known. */
static void set_known(struct host_reading *r)
{
	struct host_figure *part = r->l->sheet.part;

	for (unsigned k = 0; k < HOST_PARTS_END; k++)
		part[k].known = true;
	part[HOST_PSS].known = r->maps.pss_known;
	part[HOST_USS].known = !r->maps.brief;
	part[HOST_HUGETLB].known = true;
	part[HOST_SWAP] = (struct host_figure){ .bytes = r->swap, .known = true };
	part[HOST_TENSORS].known = part[HOST_TENSORS].known && r->o->storages_known;
	part[HOST_PINNED].known = r->pinned_known;
	part[HOST_PINNED].has_second = part[HOST_PINNED].known;
	for (unsigned k = HOST_SHARED_LOADER; k <= HOST_SHARED; k++)
		part[k].has_second = r->o->storages_known;
	part[HOST_LIBRARIES].has_second = part[HOST_FILES].has_second = !r->maps.brief;
	part[HOST_PYTHON].known = r->l->python.known;
	part[HOST_PYTHON].has_second = r->l->python.used_known;
	if (part[HOST_PYTHON].bytes > r->l->python.used)
		part[HOST_PYTHON].second = part[HOST_PYTHON].bytes - r->l->python.used;
	add_free_blocks(r);
	set_malloc_known(r->l);
	set_remedies_known(r->l);
}

/* Reads the control group that limits the process. Without one, *ret stays zeroed. */
static void read_group(const struct proc *p, struct host_group *ret)
{
	struct memcg own, limiting;
	const struct memcg *m = &own;

	/* alive: the PID was this process's when its cgroup was read */
	if (memcg__find(proc__pid(p), &own) || !proc__alive(p))
		return;
	if (memcg__limiting(&own, &limiting))
		m = &limiting;
	memcg__read(m, &ret->figures);
	if (ret->figures.usage == MEMCG_NONE)
		return; /* the cgroup was removed meanwhile, or is the root of the hierarchy */
	ret->version = m->v2 ? 2 : 1;
	snprintf(ret->path, sizeof(ret->path), "%s", memcg__path(m));
	ret->kernel = ret->figures.kernel;
	if (ret->kernel != MEMCG_NONE && ret->figures.sock != MEMCG_NONE)
		ret->kernel += ret->figures.sock;
}

static void set_group(struct host_ledger *l)
{
	struct host_figure *part = l->sheet.part;

	if (!l->group.version)
		return;
	part[HOST_GROUP] = (struct host_figure){ .bytes = l->group.figures.usage,
						 .second = l->group.figures.limit,
						 .known = true,
						 .has_second = l->group.figures.limit !=
							       MEMCG_NONE };
	if (l->group.kernel != MEMCG_NONE)
		part[HOST_GROUP_KERNEL] = (struct host_figure){ .bytes = l->group.kernel,
								.known = true };
}

static int read_all(struct host_reading *r)
{
	static int (*const readers[])(struct host_reading * r) = {
		add_storages,	   host_pinned__read,	    host_pymalloc__read,
		host_glibc__read,  host_jemalloc__read,	    host_tcmalloc__read,
		host_jeprof__read, host_mimalloc__read,	    host_musl__read,
		host_places__read, host_glibc__find_mapped, name_allocators,
	};
	int err;

	r->resident = host_resident__open(r->proc);
	if (!r->resident)
		return -errno;
	host_resident__cancel_by(r->resident, r->o->cancelled, r->o->ctx);
	take_status(r);
	err = host_smaps__read(r->proc, r->resident, r->o->proportional, &r->maps);
	if (err)
		return err;
	r->l->mappings = r->maps.maps.n;
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
		err = readers[i](r);
		if (err)
			return err;
	}
	err = host_spans__resolve(&r->claims) ?: host_spans__resolve(&r->second);
	return err ?: divide_all(r);
}

int hostmem__read(struct hostmem *h, const struct host_opts *o, struct host_ledger *ret)
{
	struct host_ledger l = { .processes = 1, .begin = clock__monotonic() };
	struct host_reading r = {
		.proc = h->proc, .python = h->python, .o = o, .places = &h->places, .l = &l
	};
	int err;

	err = read_all(&r);
	set_known(&r);
	host_smaps__free(&r.maps);
	host_resident__close(r.resident);
	host_spans__free(&r.claims);
	host_spans__free(&r.second);
	host_spans__free(&r.free_chunks);
	host_spans__free(&r.trimmed);
	host_spans__free(&r.pinned);
	if (err)
		return err;
	if (o->samples)
		host_samples__merge(o->samples);
	read_group(h->proc, &l.group);
	set_group(&l);
	l.end = clock__monotonic();
	*ret = l;
	return 0;
}

static void add_figure(struct host_figure *sum, const struct host_figure *f, bool first)
{
	sum->bytes += f->bytes;
	sum->second += f->second;
	sum->known = f->known && (first || sum->known);
	sum->has_second = f->has_second && (first || sum->has_second);
}

/* Adds an allocator of one process of a tree. Those of one name and file count together. */
static void add_allocator(struct host_ledger *sum, const struct host_allocator *a)
{
	struct host_allocator *to = find_allocator(sum, a->name, a->file);

	if (!to && sum->allocators < HOST_ALLOCATORS) {
		sum->allocator[sum->allocators++] = *a;
		return;
	}
	if (!to)
		return;
	to->known = to->known && a->known;
	to->free_known = to->free_known && a->free_known;
	to->arenas += a->arenas;
	to->live += a->live;
	to->free_blocks += a->free_blocks;
	to->purgeable += a->purgeable;
	to->muzzy += a->muzzy;
	to->retained += a->retained;
	to->tables += a->tables;
}

void host_ledger__add(struct host_ledger *sum, const struct host_ledger *l)
{
	bool first = !sum->processes;

	for (unsigned i = 0; i < HOST_PART_NR; i++)
		if (i != HOST_GROUP && i != HOST_GROUP_KERNEL)
			add_figure(&sum->sheet.part[i], &l->sheet.part[i], first);
	if (first) { /* the group is that of the tree's first process */
		sum->sheet.part[HOST_GROUP] = l->sheet.part[HOST_GROUP];
		sum->sheet.part[HOST_GROUP_KERNEL] = l->sheet.part[HOST_GROUP_KERNEL];
		sum->group = l->group;
		sum->begin = l->begin;
	}
	for (size_t i = 0; i < l->allocators; i++)
		add_allocator(sum, &l->allocator[i]);
	sum->status_rss += l->status_rss;
	sum->mappings += l->mappings;
	sum->adjusted += l->adjusted;
	sum->processes += l->processes;
	sum->end = l->end;
}
