/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pyobj.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/proc.h"
#include "inspect/python.h"

#define PAGE 4096u
#define NPAGES 1024u
#define MAX_NOTES (1u << 20)
#define NO_PAGE UINT64_MAX /* not the address of a page */

struct pypages {
	uint64_t tag[NPAGES];
	uint8_t data[NPAGES][PAGE];
};

/* Data that was read in a snapshot, to be compared at its end. */
struct pynote {
	uint64_t addr;
	uint32_t len, hash;
};

void pymem__init(struct pymem *mem, const struct python *py, bool paging)
{
	memset(mem, 0, sizeof(*mem));
	mem->py = py;
	mem->proc = python__proc(py);
	mem->layout = python__layout(py);
	mem->paging = paging;
}

void pymem__fini(struct pymem *mem)
{
	free(mem->pages);
	free(mem->notes);
	mem->pages = NULL;
	mem->notes = NULL;
}

static void forget_pages(struct pymem *mem)
{
	for (size_t i = 0; mem->pages && i < NPAGES; i++)
		mem->pages->tag[i] = NO_PAGE;
}

void pymem__forget(struct pymem *mem)
{
	mem->snapshot = mem->unchecked = mem->overflow = false;
	mem->nnotes = 0;
	forget_pages(mem);
}

/* The cached page that contains addr; reads it if it is not cached. NULL with *err set. */
static const uint8_t *cached_page(struct pymem *mem, uint64_t addr, int *err)
{
	uint64_t base = addr & ~(uint64_t)(PAGE - 1);
	size_t slot = base / PAGE % NPAGES;
	struct pypages *pages = mem->pages;

	if (pages->tag[slot] == base)
		return pages->data[slot];
	pages->tag[slot] = NO_PAGE;
	*err = proc__read(mem->proc, base, pages->data[slot], PAGE);
	if (*err)
		return NULL;
	pages->tag[slot] = base;
	return pages->data[slot];
}

int pymem__read_constant(struct pymem *mem, uint64_t addr, void *buf, size_t len)
{
	uint8_t *out = buf;
	uint64_t end;
	int err = 0;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	if (mem->paging && !mem->pages) {
		mem->pages = malloc(sizeof(*mem->pages));
		forget_pages(mem);
	}
	/* Pages only save time; without memory for them, read directly. */
	if (!mem->pages || len > PAGE)
		return proc__read(mem->proc, addr, buf, len);
	while (len) {
		size_t off = addr % PAGE, part = PAGE - off < len ? PAGE - off : len;
		const uint8_t *page = cached_page(mem, addr, &err);

		if (!page)
			return err;
		memcpy(out, page + off, part);
		out += part;
		addr += part;
		len -= part;
	}
	return 0;
}

/* A hash to compare two readings by. */
static uint32_t hash_bytes(const uint8_t *bytes, size_t len)
{
	uint64_t hash = len, word;

	for (; len >= 8; len -= 8, bytes += 8) {
		memcpy(&word, bytes, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	word = 0;
	memcpy(&word, bytes, len);
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash >> 32;
}

/* Notes data of a snapshot for pymem__holds(). */
static void note_read(struct pymem *mem, uint64_t addr, const void *buf, size_t len)
{
	if (mem->nnotes == MAX_NOTES ||
	    array__grow(&mem->notes, &mem->notes_cap, mem->nnotes + 1, sizeof(*mem->notes))) {
		mem->overflow = true;
		return;
	}
	mem->notes[mem->nnotes++] = (struct pynote){ addr, len, hash_bytes(buf, len) };
}

int pymem__read(struct pymem *mem, uint64_t addr, void *buf, size_t len)
{
	uint64_t end;
	int err;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	if (!len)
		return 0;
	if (!mem->snapshot)
		return proc__read(mem->proc, addr, buf, len);
	err = pymem__read_constant(mem, addr, buf, len);
	if (!err && !mem->unchecked && len <= UINT32_MAX)
		note_read(mem, addr, buf, len);
	return err;
}

void pymem__begin_snapshot(struct pymem *mem)
{
	pymem__forget(mem);
	mem->snapshot = mem->paging;
}

/* Reads all noted data again and compares the hashes. */
bool pymem__holds(struct pymem *mem)
{
	size_t n = mem->nnotes, cap = 0, i;
	uint8_t *buf = NULL, *bigger;
	bool comparable = mem->snapshot && !mem->overflow;

	pymem__forget(mem);
	for (i = 0; comparable && i < n; i++) {
		const struct pynote *note = &mem->notes[i];

		if (note->len > cap) {
			bigger = realloc(buf, note->len);
			if (!bigger)
				break;
			buf = bigger;
			cap = note->len;
		}
		if (pymem__read_constant(mem, note->addr, buf, note->len) ||
		    hash_bytes(buf, note->len) != note->hash)
			break;
	}
	free(buf);
	return comparable && i == n;
}

int pymem__u64(struct pymem *mem, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read(mem, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

int pymem__constant_u64(struct pymem *mem, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read_constant(mem, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}
