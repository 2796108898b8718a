/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "target/pymem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/proc.h"
#include "target/python.h"

#define PAGE 4096u
#define NPAGES 256u
#define NO_PAGE UINT64_MAX /* not a page's address */

struct pypages {
	uint64_t tag[NPAGES];
	uint8_t data[NPAGES][PAGE];
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
	m->pages = NULL;
}

void pymem__forget(struct pymem *m)
{
	if (!m->pages)
		return;
	for (size_t i = 0; i < NPAGES; i++)
		m->pages->tag[i] = NO_PAGE;
}

int pymem__read(struct pymem *m, uint64_t addr, void *buf, size_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	return len ? proc__read(m->proc, addr, buf, len) : 0;
}

/* The page that holds addr, read at most once a walk; NULL with *err set. */
static const uint8_t *page(struct pymem *m, uint64_t addr, int *err)
{
	uint64_t base = addr & ~(uint64_t)(PAGE - 1);
	size_t slot = ((base * 0x9e3779b97f4a7c15ull) >> 32) % NPAGES;
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

int pymem__read_old(struct pymem *m, uint64_t addr, void *buf, size_t len)
{
	uint8_t *out = buf;
	uint64_t end;
	int err = 0;

	if (__builtin_add_overflow(addr, len, &end))
		return -EFAULT;
	if (m->paging && !m->pages) {
		m->pages = malloc(sizeof(*m->pages));
		pymem__forget(m);
	}
	/* Pages only save time: without memory for them, reading directly is as right. */
	if (!m->pages || len > PAGE)
		return proc__read(m->proc, addr, buf, len);
	while (len) {
		size_t off = addr % PAGE, n = PAGE - off < len ? PAGE - off : len;
		const uint8_t *p = page(m, addr, &err);

		if (!p)
			return err;
		memcpy(out, p + off, n);
		out += n;
		addr += n;
		len -= n;
	}
	return 0;
}

int pymem__u64(struct pymem *m, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read(m, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

int pymem__old_u64(struct pymem *m, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = pymem__read_old(m, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

int pymem__read_page(struct pymem *m, uint64_t addr, void *buf, size_t len)
{
	size_t rest = PAGE - addr % PAGE, n = rest < len ? rest : len;
	int err = pymem__read(m, addr, buf, n);

	return err ? err : (int)n;
}
