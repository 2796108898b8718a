/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Makes one ledger of a process's memory from the kernel's figures and the allocators' tables. */
#include "inspect/hostmem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

/* Bytes between two claims from which on their pages are read separately. */
#define CLAIMS_APART (16u << 20)

struct hostmem {
	const struct proc *proc;
	const struct python *python;
	struct host_places places;
};

struct hostmem *hostmem__new(const struct proc *proc, const struct python *py)
{
	struct hostmem *hostmem = calloc(1, sizeof(*hostmem));

	if (hostmem)
		*hostmem = (struct hostmem){ .proc = proc, .python = py };
	return hostmem;
}

void hostmem__free(struct hostmem *hostmem)
{
	free(hostmem);
}

/* ---- parts ---- */

/* True if a mapping is shared memory, without a file on a disk: tmpfs of /dev/shm, memfd, System V,
 * or anonymous. */
static bool is_shared_memory(const struct map *map)
{
	return text__starts(map->path, "/dev/shm/") || text__starts(map->path, "/memfd:") ||
	       text__starts(map->path, "/SYSV") || !strcmp(map->path, "/dev/zero") ||
	       (map->shared && !map->inode);
}

static uint8_t part_of_shared(const struct map *map)
{
	const char *name = map__base_name(map->path);

	/* Names of shared memory: "torch_PID_RANDOM_N" (torch/csrc/StorageSharing.cpp), "nccl-..."
	 * (NCCL's src/misc/shmutils.cc). */
	if (text__starts(name, "torch_"))
		return HOST_SHARED_LOADER;
	return !text__starts(name, "nccl-") ? HOST_SHARED : HOST_SHARED_NCCL;
}

/* True if mapping i or a mapping next to it maps the same file as code. */
static bool is_program(const struct maps *maps, size_t i)
{
	for (size_t k = i; k < maps->n && map__same_file(&maps->v[k], &maps->v[i]); k++)
		if (maps->v[k].x)
			return true;
	for (size_t k = i; k-- > 0 && map__same_file(&maps->v[k], &maps->v[i]);)
		if (maps->v[k].x)
			return true;
	return false;
}

/* Returns the part that gets the bytes of mapping i which no table claims. */
static uint8_t part_of(const struct host_reading *reading, size_t i)
{
	const struct map *map = &reading->maps.maps.v[i];

	if (is_shared_memory(map))
		return part_of_shared(map);
	if (map->inode)
		return is_program(&reading->maps.maps, i) ? HOST_LIBRARIES : HOST_FILES;
	if (text__starts(map->path, "[v"))
		return HOST_LIBRARIES; /* [vdso], [vvar] */
	if (!strcmp(map->path, "[stack]"))
		return HOST_STACKS;
	if ((!strcmp(map->path, "[heap]") && reading->ledger->malloc.known) ||
	    host_glibc__is_heap(reading, map))
		return HOST_MALLOC;
	return HOST_UNKNOWN;
}

/* ---- resident bytes ---- */

/* Adds the bytes that each part claims in [start, end) to by_part. */
static void add_claims(const struct host_spans *spans, uint64_t start, uint64_t end,
		       uint64_t *by_part)
{
	for (size_t i = host_spans__after(spans, start); i < spans->n && spans->v[i].start < end;
	     i++)
		by_part[spans->v[i].part] += span__bytes_in(&spans->v[i], start, end);
}

/* Resident bytes in a mapping. */
struct claimed {
	/* Bytes that each part claims, for its first and its second figure. */
	uint64_t first[HOST_PARTS_END], second[HOST_PARTS_END];
	uint64_t free[HOST_FREE_NR]; /* malloc's free chunks, by enum host_free */
	uint64_t trimmed;	     /* those that malloc_trim() would return */
};

/* Adds up the claims on a range that is resident. */
static void add_range(const struct host_reading *reading, uint64_t start, uint64_t end,
		      struct claimed *to)
{
	add_claims(&reading->claims, start, end, to->first);
	add_claims(&reading->second, start, end, to->second);
	add_claims(&reading->free_chunks, start, end, to->free);
	add_claims(&reading->trimmed, start, end, &to->trimmed);
}

/* Returns the next claim by address, of the first figures from index *i on and of the second
 * figures from *k on, and advances its index. NULL: none begins below `end`. */
static const struct span *next_claim(const struct host_reading *reading, size_t *i, size_t *k,
				     uint64_t end)
{
	const struct span *a = *i < reading->claims.n ? &reading->claims.v[*i] : NULL;
	const struct span *b = *k < reading->second.n ? &reading->second.v[*k] : NULL;
	bool first = a && (!b || a->start <= b->start);
	const struct span *span = first ? a : b;

	if (!span || span->start >= end)
		return NULL;
	*(first ? i : k) += 1;
	return span;
}

struct claims_of {
	const struct host_reading *reading;
	struct claimed *to;
};

static int add_resident(void *ctx, uint64_t start, uint64_t end)
{
	const struct claims_of *c = ctx;

	add_range(c->reading, start, end, c->to);
	return 0;
}

/* Adds up the claims on the resident bytes of mapping i. Reads only the pages of claims, at once
 * for neighbouring claims, because a mapping may have TiB of addresses without a claim. */
static int read_claims(const struct host_reading *reading, size_t i, struct claimed *to)
{
	const struct map *map = &reading->maps.maps.v[i];
	size_t first = host_spans__after(&reading->claims, map->start);
	size_t second = host_spans__after(&reading->second, map->start);
	const struct span *span = next_claim(reading, &first, &second, map->end);
	struct claims_of claims = { reading, to };
	int err = 0;

	while (span && !err) {
		uint64_t from = span->start > map->start ? span->start : map->start,
			 end = span->end;

		while ((span = next_claim(reading, &first, &second, map->end)) &&
		       span->start < end + CLAIMS_APART)
			end = span->end > end ? span->end : end;
		end = end < map->end ? end : map->end;
		if (reading->maps.v[i].rss == map->end - map->start)
			add_range(reading, from, end, to);
		else
			err = host_resident__walk(reading->resident, from, end, add_resident,
						  &claims);
	}
	return err;
}

/* Returns the process's share of resident bytes in a mapping: all, or as much as of its PSS. */
static uint64_t share_of(const struct host_reading *reading, const struct smaps_figures *figures,
			 uint64_t bytes)
{
	if (!reading->opts->proportional || figures->pss >= figures->rss)
		return bytes;
	return (uint64_t)((unsigned __int128)bytes * figures->pss / figures->rss);
}

/*
 * Divides the resident bytes of mapping i among the parts. Only claims of parts before the
 * mapping's own part count: a tensor in shared memory is shared memory. The claims were read a
 * moment after the mapping's resident bytes, so these limit their sum. The second figure of shared
 * parts is the bytes in tensors, of libraries and files the private bytes.
 */
static void divide_mapping(struct host_reading *reading, size_t i, const struct claimed *claimed)
{
	const struct smaps_figures *figures = &reading->maps.v[i];
	struct host_figure *part = reading->ledger->sheet.part;
	uint8_t own = part_of(reading, i);
	uint64_t left = reading->opts->proportional ? figures->pss : figures->rss,
		 n; /* left: in no part yet */

	for (uint8_t k = 1; k < own; k++) {
		n = share_of(reading, figures, claimed->first[k]);
		reading->ledger->adjusted += n > left ? n - left : 0;
		n = host_smaps__min(n, left);
		part[k].bytes += n;
		left -= n;
	}
	part[own].bytes += left;
	if (own <= HOST_SHARED && own != HOST_PINNED)
		part[own].second += host_smaps__min(
			share_of(reading, figures, claimed->first[HOST_TENSORS]), left);
	else if (own == HOST_LIBRARIES || own == HOST_FILES)
		part[own].second += share_of(reading, figures,
					     host_smaps__min(figures->anonymous, figures->rss));
	for (uint8_t k = 1; k < HOST_PARTS_END; k++)
		part[k].second += share_of(reading, figures, claimed->second[k]);
	part[HOST_MALLOC_TRIM].bytes += share_of(reading, figures, claimed->trimmed);
	for (unsigned k = HOST_FREE_OTHER; k < HOST_FREE_NR; k++)
		part[HOST_MALLOC_ARENAS].bytes += share_of(reading, figures, claimed->free[k]);
	n = share_of(reading, figures, claimed->free[HOST_FREE_END | HOST_FREE_OTHER]);
	part[HOST_MALLOC_ENDS].bytes += share_of(reading, figures, claimed->free[HOST_FREE_END]) +
					n;
	part[HOST_MALLOC_ENDS].second += n;
}

/* Adds a mapping's figures to the sums of the process. */
static void add_figures(struct host_ledger *ledger, const struct smaps_figures *figures,
			bool proportional)
{
	ledger->sheet.part[HOST_TOTAL].bytes += proportional ? figures->pss : figures->rss;
	ledger->sheet.part[HOST_PSS].bytes += figures->pss;
	ledger->sheet.part[HOST_USS].bytes += figures->own;
	ledger->sheet.part[HOST_HUGETLB].bytes += figures->hugetlb;
}

/* Adds up the mappings' figures and divides the resident bytes among the parts. */
static int divide_all(struct host_reading *reading)
{
	int err = 0;

	for (size_t i = 0; i < reading->maps.maps.n && !err; i++) {
		struct claimed claimed = { 0 };

		add_figures(reading->ledger, &reading->maps.v[i], reading->opts->proportional);
		if (!reading->maps.v[i].rss)
			continue;
		err = read_claims(reading, i, &claimed);
		if (!err)
			divide_mapping(reading, i, &claimed);
	}
	return err;
}

/* ---- a reading ---- */

/* Claims the memory of tensors. */
static int add_storages(struct host_reading *reading)
{
	int err = 0;

	for (size_t i = 0; i < reading->opts->n && !err; i++) {
		const struct host_storage *x = &reading->opts->storages[i];

		err = host_spans__add(&reading->claims, x->addr, x->size, HOST_TENSORS);
	}
	return err;
}

/* Takes the figures of /proc/PID/status. */
static void take_status(struct host_reading *reading)
{
	const struct host_status *status = host_resident__status(reading->resident);

	reading->ledger->status_rss = status->rss;
	reading->swap = status->swap;
	reading->ledger->sheet.part[HOST_PAGE_TABLES] = (struct host_figure){
		.bytes = status->page_tables, .known = status->page_tables_known
	};
}

static struct host_allocator *find_allocator(struct host_ledger *ledger, const char *name,
					     const char *file)
{
	for (size_t i = 0; i < ledger->allocators; i++)
		if (!strcmp(ledger->allocator[i].name, name) &&
		    !strcmp(ledger->allocator[i].file, file))
			return &ledger->allocator[i];
	return NULL;
}

/* Adds the allocators that a file's name tells and that no reader has added. */
static int name_allocators(struct host_reading *reading)
{
	static const char *const names[] = { "jemalloc", "tcmalloc", "mimalloc" };

	for (size_t i = 0; i < reading->maps.maps.n; i++) {
		const char *base = map__base_name(reading->maps.maps.v[i].path);

		for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
			if (text__starts(base, "lib") &&
			    !strncmp(base + 3, names[k], strlen(names[k])) &&
			    !find_allocator(reading->ledger, names[k], base))
				host_reading__add_allocator(reading, names[k], i);
	}
	return 0;
}

/* Adds free blocks that have no ranges to the free memory in the part malloc. */
static void add_free_blocks(const struct host_reading *reading)
{
	struct host_figure *part = &reading->ledger->sheet.part[HOST_MALLOC];

	part->second = host_smaps__min(part->second + reading->free_blocks, part->bytes);
}

/* The part malloc is known if a table of any allocator was read, and its free memory if that of
 * each allocator that was read is. */
static void set_malloc_known(struct host_ledger *ledger)
{
	struct host_figure *part = &ledger->sheet.part[HOST_MALLOC];

	part->known = ledger->malloc.known;
	part->has_second = !ledger->malloc.known || ledger->malloc.free_known;
	for (size_t i = 0; i < ledger->allocators; i++) {
		part->known = part->known || ledger->allocator[i].known;
		part->has_second = part->has_second &&
				   (!ledger->allocator[i].known || ledger->allocator[i].free_known);
	}
	part->has_second = part->has_second && part->known;
}

/* Sets the figures of the remedies, which return free memory: for glibc's malloc from its lists,
 * for other allocators from their tables. An allocator's part has its name; allocators of the same
 * name, such as two copies of jemalloc, add up. */
static void set_remedies_known(struct host_ledger *ledger)
{
	struct host_figure *part = ledger->sheet.part;

	for (unsigned k = HOST_MALLOC_TRIM; k <= HOST_MALLOC_ENDS; k++)
		part[k].known = ledger->malloc.free_known;
	part[HOST_MALLOC_ARENAS].second = ledger->malloc.arenas;
	part[HOST_MALLOC_ARENAS].has_second = ledger->malloc.free_known;
	part[HOST_MALLOC_ENDS].has_second = ledger->malloc.free_known;
	for (size_t i = 0; i < ledger->allocators; i++) {
		const struct host_allocator *allocator = &ledger->allocator[i];
		struct host_figure *f = &part[HOST_JEMALLOC];

		while (f < &part[HOST_PART_NR] &&
		       strcmp(allocator->name, host_part__name(f - part)))
			f++;
		if (f == &part[HOST_PART_NR] || !allocator->known)
			continue;
		f->known = true;
		f->bytes += allocator->purgeable + allocator->muzzy;
		f->second += allocator->purgeable + allocator->muzzy + allocator->free_blocks;
		f->has_second = allocator->free_known;
	}
}

/* Sets which figures of the ledger are known. */
static void set_known(struct host_reading *reading)
{
	struct host_figure *part = reading->ledger->sheet.part;

	for (unsigned k = 0; k < HOST_PARTS_END; k++)
		part[k].known = true;
	part[HOST_PSS].known = reading->maps.pss_known;
	part[HOST_USS].known = !reading->maps.brief;
	part[HOST_HUGETLB].known = true;
	part[HOST_SWAP] = (struct host_figure){ .bytes = reading->swap, .known = true };
	part[HOST_TENSORS].known = part[HOST_TENSORS].known && reading->opts->storages_known;
	part[HOST_PINNED].known = reading->pinned_known;
	part[HOST_PINNED].has_second = part[HOST_PINNED].known;
	for (unsigned k = HOST_SHARED_LOADER; k <= HOST_SHARED; k++)
		part[k].has_second = reading->opts->storages_known;
	part[HOST_LIBRARIES].has_second = part[HOST_FILES].has_second = !reading->maps.brief;
	part[HOST_PYTHON].known = reading->ledger->python.known;
	part[HOST_PYTHON].has_second = reading->ledger->python.used_known;
	if (part[HOST_PYTHON].bytes > reading->ledger->python.used)
		part[HOST_PYTHON].second = part[HOST_PYTHON].bytes - reading->ledger->python.used;
	add_free_blocks(reading);
	set_malloc_known(reading->ledger);
	set_remedies_known(reading->ledger);
}

/* Reads the control group that limits the process. Without one, *ret stays zeroed. */
static void read_group(const struct proc *proc, struct host_group *ret)
{
	struct memcg own, limiting;
	const struct memcg *m = &own;

	/* alive: the PID was this process's when its cgroup was read */
	if (memcg__find(proc__pid(proc), &own) || !proc__alive(proc))
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

/* Sets the figures of the control group. */
static void set_group(struct host_ledger *ledger)
{
	struct host_figure *part = ledger->sheet.part;

	if (!ledger->group.version)
		return;
	part[HOST_GROUP] = (struct host_figure){ .bytes = ledger->group.figures.usage,
						 .second = ledger->group.figures.limit,
						 .known = true,
						 .has_second = ledger->group.figures.limit !=
							       MEMCG_NONE };
	if (ledger->group.kernel != MEMCG_NONE)
		part[HOST_GROUP_KERNEL] = (struct host_figure){ .bytes = ledger->group.kernel,
								.known = true };
}

/* Reads the mappings, claims memory by all tables, and divides it. The lowest part keeps bytes
 * that several claim. */
static int read_all(struct host_reading *reading)
{
	static int (*const readers[])(struct host_reading * reading) = {
		add_storages,	   host_pinned__read,	    host_pymalloc__read,
		host_glibc__read,  host_jemalloc__read,	    host_tcmalloc__read,
		host_jeprof__read, host_mimalloc__read,	    host_musl__read,
		host_places__read, host_glibc__find_mapped, name_allocators,
	};
	int err;

	reading->resident = host_resident__open(reading->proc);
	if (!reading->resident)
		return -errno;
	host_resident__cancel_by(reading->resident, reading->opts->cancelled, reading->opts->ctx);
	take_status(reading);
	err = host_smaps__read(reading->proc, reading->resident, reading->opts->proportional,
			       &reading->maps);
	if (err)
		return err;
	reading->ledger->mappings = reading->maps.maps.n;
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
		err = readers[i](reading);
		if (err)
			return err;
	}
	err = host_spans__resolve(&reading->claims) ?: host_spans__resolve(&reading->second);
	return err ?: divide_all(reading);
}

int hostmem__read(struct hostmem *hostmem, const struct host_opts *opts, struct host_ledger *ret)
{
	struct host_ledger ledger = { .processes = 1, .begin = clock__monotonic() };
	struct host_reading reading = { .proc = hostmem->proc,
					.python = hostmem->python,
					.opts = opts,
					.places = &hostmem->places,
					.ledger = &ledger };
	int err;

	err = read_all(&reading);
	set_known(&reading);
	host_smaps__free(&reading.maps);
	host_resident__close(reading.resident);
	host_spans__free(&reading.claims);
	host_spans__free(&reading.second);
	host_spans__free(&reading.free_chunks);
	host_spans__free(&reading.trimmed);
	host_spans__free(&reading.pinned);
	if (err)
		return err;
	if (opts->samples)
		host_samples__merge(opts->samples);
	read_group(hostmem->proc, &ledger.group);
	set_group(&ledger);
	ledger.end = clock__monotonic();
	*ret = ledger;
	return 0;
}

/* Adds a process's figure to a sum, which is known if all are. first: the sum is empty. */
static void add_figure(struct host_figure *sum, const struct host_figure *f, bool first)
{
	sum->bytes += f->bytes;
	sum->second += f->second;
	sum->known = f->known && (first || sum->known);
	sum->has_second = f->has_second && (first || sum->has_second);
}

/* Adds an allocator of one process of a tree. Those of one name and file count together. */
static void add_allocator(struct host_ledger *sum, const struct host_allocator *allocator)
{
	struct host_allocator *to = find_allocator(sum, allocator->name, allocator->file);

	if (!to && sum->allocators < HOST_ALLOCATORS) {
		sum->allocator[sum->allocators++] = *allocator;
		return;
	}
	if (!to)
		return;
	to->known = to->known && allocator->known;
	to->free_known = to->free_known && allocator->free_known;
	to->arenas += allocator->arenas;
	to->live += allocator->live;
	to->free_blocks += allocator->free_blocks;
	to->purgeable += allocator->purgeable;
	to->muzzy += allocator->muzzy;
	to->retained += allocator->retained;
	to->tables += allocator->tables;
}

void host_ledger__add(struct host_ledger *sum, const struct host_ledger *ledger)
{
	bool first = !sum->processes;

	for (unsigned i = 0; i < HOST_PART_NR; i++)
		if (i != HOST_GROUP && i != HOST_GROUP_KERNEL)
			add_figure(&sum->sheet.part[i], &ledger->sheet.part[i], first);
	if (first) { /* the group is that of the tree's first process */
		sum->sheet.part[HOST_GROUP] = ledger->sheet.part[HOST_GROUP];
		sum->sheet.part[HOST_GROUP_KERNEL] = ledger->sheet.part[HOST_GROUP_KERNEL];
		sum->group = ledger->group;
		sum->begin = ledger->begin;
	}
	for (size_t i = 0; i < ledger->allocators; i++)
		add_allocator(sum, &ledger->allocator[i]);
	sum->status_rss += ledger->status_rss;
	sum->mappings += ledger->mappings;
	sum->adjusted += ledger->adjusted;
	sum->processes += ledger->processes;
	sum->end = ledger->end;
}
