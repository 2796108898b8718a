/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/cost/hit_cost.h"

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define CALLS 65	  /* measured calls; the median counts */
#define CACHES (4u << 20) /* bytes written between two calls */
#define CACHE_LINE 64
#define HIT_MAX 1000000000 /* ns */

/* The kernel emulates the first instruction of cost_emulated, and steps over a copy of that of
 * cost_stepped. */
#ifdef __aarch64__
#define EMULATED "b 1f\n1: ret"
#define STEPPED "mov x0, x1\nret"
#else
#define EMULATED "push %rbp\npop %rbp\nret"
#define STEPPED "mov %rdi, %rax\nret"
#endif
#define FUNCTION(name, code)                                                                       \
	".p2align 6\n.globl " name "\n.hidden " name "\n.type " name ",%function\n" name           \
	":\n" code "\n.size " name ", .-" name "\n"
__asm__(".text\n" FUNCTION("cost_emulated", EMULATED) FUNCTION("cost_stepped", STEPPED));
void cost_emulated(void);
void cost_stepped(void);

struct search {
	uintptr_t addr;
	uint64_t offset;
};

/* For dl_iterate_phdr(): 1 if this file has the address in a segment. */
static int find(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct search *s = ctx;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD || s->addr < start || s->addr - start >= p->p_filesz)
			continue;
		s->offset = s->addr - start + p->p_offset;
		return 1;
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Median time of a call, ns. */
static uint64_t time_of(void (*function)(void), volatile char *caches)
{
	uint64_t took[CALLS];

	for (size_t i = 0; i < CALLS; i++) {
		for (size_t at = 0; at < CACHES; at += CACHE_LINE)
			caches[at]++;
		took[i] = clock__monotonic();
		function();
		took[i] = clock__monotonic() - took[i];
	}
	qsort(took, CALLS, sizeof(took[0]), compare);
	return took[CALLS / 2];
}

static int measure(hit_cost_probe probe, void (*function)(void), volatile char *caches,
		   uint32_t *ret)
{
	struct search s = { .addr = (uintptr_t)function };
	uint64_t without, with;
	int fd;

	if (!dl_iterate_phdr(find, &s))
		return -ENOENT;
	without = time_of(function, caches);
	fd = probe(s.offset);
	if (fd < 0)
		return fd;
	with = time_of(function, caches);
	close(fd);
	*ret = with <= without ? 0 : with - without < HIT_MAX ? with - without : HIT_MAX;
	return 0;
}

int hit_cost__measure(hit_cost_probe probe, struct hit_cost *ret)
{
	char *caches = malloc(CACHES);
	int err = caches ? 0 : -ENOMEM;

	if (!err) {
		memset(caches, 1, CACHES);
		err = measure(probe, cost_emulated, caches, &ret->emulated);
	}
	if (!err)
		err = measure(probe, cost_stepped, caches, &ret->stepped);
	free(caches);
	return err;
}
