/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pinned memory, from the tables of PyTorch's host allocator (CachingHostAllocator in ATen,
 * PyTorch 2.4 and later). No symbol leads to them. The allocator is a static object of
 * libtorch_cuda, which its type information names; it points to its implementation, which has a
 * hash table from addresses to HostBlocks. A HostBlock has its size, its address and whether it is
 * in use, next to each other. All entries of the table must verify.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

#define DATA_MAX (64u << 20)	/* bytes of libtorch_cuda's data that are searched */
#define IMPL_WINDOW (32u << 10) /* bytes of the implementation that are searched for the table */
#define POINTERS 16u	 /* words of the static object that may point to the implementation */
#define BLOCK_BYTES 128u /* bytes of a HostBlock that are read */
#define MAX_PINNED (1u << 20)
/* An entry of the table: {distance, address, HostBlock *}. */
#define ENTRY 24u
#define ENTRY_ADDRESS 8u
#define ENTRY_BLOCK 16u

/* A walk over the entries of PyTorch's table of pinned blocks. */
struct pinned {
	struct host_reading *reading;
	uint64_t n; /* entries so far */
	int at;	    /* offset of the address in a HostBlock; -1: not known yet */
	bool bad;
	int err;
};

static bool is_torch_cuda(const struct map *map)
{
	const char *base = strrchr(map->path, '/');

	return map->w && !map->shared && base &&
	       (text__starts(base, "/libtorch_cuda") || text__starts(base, "/libtorch.so"));
}

/* A word of a resident page; 0: not resident, or not readable. */
static uint64_t resident_word(const struct host_reading *reading, uint64_t addr)
{
	uint8_t words[8];

	return addr % 8 || host_places__read_resident(reading, addr, words, sizeof(words))
		       ? 0
		       : proc__word(words);
}

/* Reads constant text of a mapped file from the file itself: reading it in memory would make its
 * page resident. False: it cannot be read. */
static bool read_text(const struct host_reading *reading, uint64_t addr, char *buf, size_t size)
{
	const struct map *map = maps__find(&reading->maps.maps, addr);
	ssize_t got;
	int fd;

	if (!map || map->w || !map->inode)
		return false;
	fd = proc__open_map(reading->proc, map);
	if (fd < 0)
		return false;
	got = io__pread(fd, buf, size - 1, map->offset + (addr - map->start));
	close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* True if the name of an object's type contains `part`. vtable: the object's, which follows a
 * pointer to its type information. */
static bool is_of_type(const struct host_reading *reading, uint64_t vtable, const char *part)
{
	uint64_t type_info = pointer_like(vtable) ? resident_word(reading, vtable - 8) : 0;
	uint64_t name = pointer_like(type_info) && maps__find(&reading->maps.maps, type_info)
				? resident_word(reading, type_info + 8)
				: 0;
	char text[256];

	return name && read_text(reading, name, text, sizeof(text)) && strstr(text, part);
}

/* True if v is an address in a read-only mapping of the file of mapping i, as a vtable's is. */
static bool is_vtable(const struct host_reading *reading, size_t i, uint64_t v)
{
	const struct map *map = pointer_like(v) ? maps__find(&reading->maps.maps, v) : NULL,
			 *data = &reading->maps.maps.v[i];

	return map && !map->w && map->inode == data->inode && map->dev_major == data->dev_major &&
	       map->dev_minor == data->dev_minor;
}

/* Finds the offset of the address in a HostBlock: the size is before it, and a flag after it tells
 * whether the block is in use. -1: not found. */
static int find_offset(const uint8_t *block, uint64_t addr)
{
	for (int at = 8; at + 16 <= (int)BLOCK_BYTES; at += 8)
		if (proc__word(block + at) == addr && proc__word(block + at - 8) &&
		    block[at + 8] <= 1)
			return at;
	return -1;
}

/* Claims the block of an entry of the table. 0; 1: the entry does not verify; or -ENOMEM. */
static int on_entry(void *ctx, const uint8_t *entry)
{
	struct pinned *pinned = ctx;
	uint64_t addr = proc__word(entry + ENTRY_ADDRESS);
	uint64_t host_block = proc__word(entry + ENTRY_BLOCK), size;
	uint8_t block[BLOCK_BYTES];
	struct host_spans *blocks;
	bool in_use;
	int offset;

	if (++pinned->n > MAX_PINNED)
		return 1;
	if (!addr || addr % HOST_PAGE || !maps__find(&pinned->reading->maps.maps, addr))
		return 1;
	if (!pointer_like(host_block) ||
	    proc__read(pinned->reading->proc, host_block, block, sizeof(block)))
		return 1;
	offset = find_offset(block, addr);
	if (offset < 0 || (pinned->at >= 0 && offset != pinned->at)) /* the same in all blocks */
		return 1;
	pinned->at = offset;
	size = proc__word(block + offset - 8);
	if (size > UINT64_MAX - addr)
		return 1;
	in_use = block[offset + 8];
	blocks = in_use ? &pinned->reading->pinned : &pinned->reading->second;
	pinned->err = host_spans__add(&pinned->reading->claims, addr, size, HOST_PINNED)
			      ?: host_spans__add(blocks, addr, size, HOST_PINNED);
	return pinned->err;
}

/* Claims the blocks in the first table of the implementation at addr that verifies. 0 also if there
 * are only empty tables. -ENOENT: there is no table that verifies. */
static int read_blocks(struct host_reading *reading, uint64_t addr)
{
	size_t claims = reading->claims.n, second = reading->second.n, pinned = reading->pinned.n;
	uint8_t *window = malloc(IMPL_WINDOW);
	bool empty = false;
	struct table table;
	uint64_t seen;
	long len;
	int err = -ENOENT;

	if (!window)
		return -ENOMEM;
	len = cudaalloc_mem__read_window(reading->proc, addr, window, IMPL_WINDOW);
	for (long offset = 0; offset + (long)TABLE_HEADER <= len && err == -ENOENT; offset += 8) {
		struct pinned p = { .reading = reading, .at = -1 };

		if (!table__parse(window + offset, &table))
			continue;
		empty |= !table.count;
		if (!table.count)
			continue;
		err = table__each(reading->proc, &table, ENTRY, on_entry, &p, &seen);
		if (p.err || err == -ENOMEM || err == -ESRCH)
			break;
		if (!err && seen == table.count)
			break;
		reading->claims.n = claims;
		reading->second.n = second;
		reading->pinned.n = pinned;
		err = -ENOENT;
	}
	free(window);
	return err == -ENOENT && empty ? 0 : err;
}

/* Looks for the allocator among the static objects in data, the data of mapping i's file, and
 * claims its blocks. -ENOENT: not found. */
static int find_allocator(struct host_reading *reading, size_t i, const struct host_data *data)
{
	struct map64 *seen = map64__new();
	int err = seen ? -ENOENT : -ENOMEM;

	for (size_t at = 0; at + 16 <= data->len && err == -ENOENT; at += 8) {
		uint64_t vtable = proc__word(data->v + at), known;

		if (!is_vtable(reading, i, vtable))
			continue;
		if (!map64__get(seen, vtable, &known)) {
			known = is_of_type(reading, vtable, "CachingHostAllocator");
			if (map64__set(seen, vtable, known))
				err = -ENOMEM;
		}
		for (size_t k = 1;
		     known && k < POINTERS && at + 8 * k + 8 <= data->len && err == -ENOENT; k++) {
			uint64_t impl = proc__word(data->v + at + 8 * k), type;

			if (!pointer_like(impl) ||
			    !host_places__is_private_memory(&reading->maps, impl, 64) ||
			    proc__read_u64(reading->proc, impl, &type) ||
			    !is_of_type(reading, type, "CachingHostAllocatorImpl"))
				continue;
			err = read_blocks(reading, impl);
			if (!err)
				reading->places->pinned = impl;
		}
	}
	map64__free(seen);
	return err;
}

/* True if CUDA's driver is in the process. Without it there is no pinned memory. */
static bool has_driver(const struct host_reading *reading)
{
	for (size_t i = 0; i < reading->maps.maps.n; i++) {
		const char *base = strrchr(reading->maps.maps.v[i].path, '/');

		if (base && text__starts(base, "/libcuda.so"))
			return true;
	}
	return false;
}

/* Claims all blocks of the host allocator, at the place of earlier readings or by a search. */
static int find_blocks(struct host_reading *reading)
{
	int err = -ENOENT;

	reading->has_driver = has_driver(reading);
	if (!reading->has_driver) {
		reading->pinned_known = true;
		return 0;
	}
	if (reading->places->pinned)
		err = read_blocks(reading, reading->places->pinned);
	for (size_t i = 0; i < reading->maps.maps.n && err == -ENOENT; i++) {
		struct host_data data;

		if (!is_torch_cuda(&reading->maps.maps.v[i]))
			continue;
		err = host_places__read_data(reading, i, DATA_MAX, &data);
		if (!err) {
			err = find_allocator(reading, i, &data);
			free(data.v);
		} else if (host_places__is_local(err)) {
			err = -ENOENT;
		}
	}
	reading->pinned_known = !err;
	return host_places__is_local(err) ? 0 : err;
}

/* ---- use of the blocks ---- */

/* Sums up the bytes of tensors' storages in [start, end). */
static uint64_t sum_requested(const struct host_spans *storages, uint64_t start, uint64_t end)
{
	uint64_t sum = 0;

	for (size_t i = host_spans__after(storages, start);
	     i < storages->n && storages->v[i].start < end; i++)
		sum += span__bytes_in(&storages->v[i], start, end);
	return sum;
}

static void set_known(struct host_figure *f, bool known)
{
	f->known = known;
	f->bytes = known ? f->bytes : 0;
}

/* Sets the figures of the blocks. 0 or -ENOMEM. */
static int add_up(struct host_reading *reading)
{
	bool known = reading->pinned_known && reading->has_driver,
	     tensors = known && reading->opts->storages_known;
	struct host_figure *part = reading->ledger->sheet.part;
	struct host_spans storages = { 0 };
	int err = 0;

	for (size_t i = 0; i < reading->opts->n && reading->pinned.n && !err; i++)
		err = host_spans__add(&storages, reading->opts->storages[i].addr,
				      reading->opts->storages[i].size, HOST_TENSORS);
	err = err ?: host_spans__resolve(&storages);
	for (size_t i = 0; i < reading->pinned.n && !err; i++) {
		const struct span *span = &reading->pinned.v[i];
		uint64_t bytes = sum_requested(&storages, span->start, span->end),
			 all = span->end - span->start;

		part[HOST_PINNED_REQUESTED].bytes += bytes;
		part[bytes ? HOST_PINNED_ROUNDING : HOST_PINNED_OTHER].bytes += all - bytes;
	}
	for (size_t i = 0; i < reading->second.n; i++)
		if (reading->second.v[i].part == HOST_PINNED)
			part[HOST_PINNED_CACHED].bytes += reading->second.v[i].end -
							  reading->second.v[i].start;
	set_known(&part[HOST_PINNED_REQUESTED], tensors);
	set_known(&part[HOST_PINNED_ROUNDING], tensors);
	set_known(&part[HOST_PINNED_OTHER], tensors);
	set_known(&part[HOST_PINNED_CACHED], known);
	host_spans__free(&storages);
	return err;
}

int host_pinned__read(struct host_reading *reading)
{
	return find_blocks(reading) ?: add_up(reading);
}
