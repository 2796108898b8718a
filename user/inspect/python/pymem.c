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

void pymem__init(struct pymem *m, const struct python *py, bool paging)
{
	memset(m, 0, sizeof(*m));
	m->py = py;
	m->proc = python__proc(py);
	m->l = python__layout(py);
	m->paging = paging;
}

void pymem__fini(struct pymem *m)
{
	free(m->pages);
	free(m->notes);
	m->pages = NULL;
	m->notes = NULL;
}

static void forget_pages(struct pymem *m)
{
	for (size_t i = 0; m->pages && i < NPAGES; i++)
		m->pages->tag[i] = NO_PAGE;
}

void pymem__forget(struct pymem *m)
{
	m->snapshot = m->unchecked = m->overflow = false;
	m->nnotes = 0;
	forget_pages(m);
}

/* The cached page that contains addr; reads it if it is not cached. NULL with *err set. */
static const uint8_t *cached_page(struct pymem *m, uint64_t addr, int *err)
{
	uint64_t base = addr & ~(uint64_t)(PAGE - 1);
	size_t slot = base / PAGE % NPAGES;
	struct pypages *p = m->pages;

	if (p->tag[slot] == base)
		return p->data[slot];
	p->tag[slot] = NO_PAGE;
	*err = proc__read(m->proc, base, p->data[slot], PAGE);
	if (*err)
		return NULL;
	p->tag[slot] = base;
	return p->data[slot];
}

int pymem__read_constant(struct pymem *m, uint64_t addr, void *buf, size_t len)
{
	uint8_t *out = buf;
	uint64_t end;
	int err = 0;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	if (m->paging && !m->pages) {
		m->pages = malloc(sizeof(*m->pages));
		forget_pages(m);
	}
	/* Pages only save time; without memory for them, read directly. */
	if (!m->pages || len > PAGE)
		return proc__read(m->proc, addr, buf, len);
	while (len) {
		size_t off = addr % PAGE, n = PAGE - off < len ? PAGE - off : len;
		const uint8_t *p = cached_page(m, addr, &err);

		if (!p)
			return err;
		memcpy(out, p + off, n);
		out += n;
		addr += n;
		len -= n;
	}
	return 0;
}

static uint32_t hash_bytes(const uint8_t *p, size_t len)
{
	uint64_t h = len, w;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	w = 0;
	memcpy(&w, p, len);
	h = (h ^ w) * 0x9e3779b97f4a7c15ull;
	return h >> 32;
}

/* Notes data of a snapshot for pymem__holds(). */
static void note_read(struct pymem *m, uint64_t addr, const void *buf, size_t len)
{
	if (m->nnotes == MAX_NOTES ||
	    array__grow(&m->notes, &m->notes_cap, m->nnotes + 1, sizeof(*m->notes))) {
		m->overflow = true;
		return;
	}
	m->notes[m->nnotes++] = (struct pynote){ addr, len, hash_bytes(buf, len) };
}

int pymem__read(struct pymem *m, uint64_t addr, void *buf, size_t len)
{
	uint64_t end;
	int err;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	if (!len)
		return 0;
	if (!m->snapshot)
		return proc__read(m->proc, addr, buf, len);
	err = pymem__read_constant(m, addr, buf, len);
	if (!err && !m->unchecked && len <= UINT32_MAX)
		note_read(m, addr, buf, len);
	return err;
}

void pymem__begin_snapshot(struct pymem *m)
{
	pymem__forget(m);
	m->snapshot = m->paging;
}

/* Reads all noted data again and compares the hashes. */
bool pymem__holds(struct pymem *m)
{
	size_t n = m->nnotes, cap = 0, i;
	uint8_t *buf = NULL, *bigger;
	bool comparable = m->snapshot && !m->overflow;

	pymem__forget(m);
	for (i = 0; comparable && i < n; i++) {
		const struct pynote *o = &m->notes[i];

		if (o->len > cap) {
			bigger = realloc(buf, o->len);
			if (!bigger)
				break;
			buf = bigger;
			cap = o->len;
		}
		if (pymem__read_constant(m, o->addr, buf, o->len) ||
		    hash_bytes(buf, o->len) != o->hash)
			break;
	}
	free(buf);
	return comparable && i == n;
}

int pymem__u64(struct pymem *m, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read(m, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

int pymem__constant_u64(struct pymem *m, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read_constant(m, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}
