/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pointers in a file's data, as they are once the file is loaded and before its code has run: a
 * relocation's value, or without one the bytes in the file (DT_RELR, programs at fixed addresses).
 */
#include <errno.h>
#include <string.h>

#include "inspect/process/elf_file.h"

#define RELA_MAX (256u << 10) /* relocations: libtorch_python has 40,000 */
#define DATA_MAX (16u << 20)  /* bytes of data */
#define CHUNK 1024u

/* Relocation types of the two machines (elf.h). */
#define R_RELATIVE(machine) ((machine) == ELF_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE)
#define R_SYMBOL(machine) ((machine) == ELF_AARCH64 ? R_AARCH64_ABS64 : R_X86_64_64)

/* The value that a relocation writes, without the load bias. False: not an address in this file. */
static bool value_of(const struct elf *e, const Elf64_Rela *r, uint64_t *ret)
{
	uint64_t type = ELF64_R_TYPE(r->r_info), at = ELF64_R_SYM(r->r_info) * sizeof(Elf64_Sym);
	Elf64_Sym sym;

	*ret = (uint64_t)r->r_addend;
	if (type == R_RELATIVE(e->machine))
		return true;
	if (type != R_SYMBOL(e->machine) ||
	    elf_file__pread_in(e, &e->symtab, at, &sym, sizeof(sym)) || sym.st_shndx == SHN_UNDEF)
		return false;
	*ret += sym.st_value;
	return true;
}

/* Calls fn for each relocation until it returns true. */
static void each_rela(const struct elf *e, bool (*fn)(const Elf64_Rela *r, void *ctx), void *ctx)
{
	uint64_t total = e->rela.len / sizeof(Elf64_Rela), done, n;
	Elf64_Rela buf[CHUNK];

	if (total > RELA_MAX)
		total = RELA_MAX;
	for (done = 0; done < total; done += n) {
		n = total - done < CHUNK ? total - done : CHUNK;
		if (elf_file__pread_in(e, &e->rela, done * sizeof(*buf), buf, n * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < n; i++) {
			if (fn(&buf[i], ctx))
				return;
		}
	}
}

struct at_place {
	const struct elf *e;
	uint64_t vaddr, value;
	bool found, known; /* a relocation is there; it gives a value */
};

static bool is_at(const Elf64_Rela *r, void *ctx)
{
	struct at_place *a = ctx;

	if (r->r_offset != a->vaddr)
		return false;
	a->found = true;
	a->known = value_of(a->e, r, &a->value);
	return true;
}

int elf__pointer(const struct elf *e, uint64_t vaddr, uint64_t *ret)
{
	struct at_place a = { .e = e, .vaddr = vaddr };
	int err = 0;

	if (elf__is_memory(e))
		return -ENOTSUP;
	each_rela(e, is_at, &a);
	if (a.found && !a.known)
		return -ENOENT;
	if (!a.found)
		err = elf__read(e, vaddr, &a.value, sizeof(a.value));
	if (!err)
		*ret = a.value;
	return err;
}

struct places {
	const struct elf *e;
	uint64_t value, *at;
	size_t n, max;
};

static void add(struct places *p, uint64_t vaddr)
{
	if (p->n < p->max)
		p->at[p->n++] = vaddr;
}

static bool has_value(const Elf64_Rela *r, void *ctx)
{
	struct places *p = ctx;
	uint64_t value;

	/* Most relocations have another addend: look no symbols up for them. */
	if ((ELF64_R_TYPE(r->r_info) != R_RELATIVE(p->e->machine) ||
	     (uint64_t)r->r_addend == p->value) &&
	    value_of(p->e, r, &value) && value == p->value)
		add(p, r->r_offset);
	return p->n == p->max;
}

/* Searches the bytes of one segment of data. */
static void search_data(struct places *p, const Elf64_Phdr *ph)
{
	uint64_t len = ph->p_filesz < DATA_MAX ? ph->p_filesz : DATA_MAX, buf[CHUNK], done, n;
	uint64_t from = (ph->p_vaddr + 7) & ~UINT64_C(7);

	if (len < from - ph->p_vaddr)
		return;
	len -= from - ph->p_vaddr;
	for (done = 0; len - done >= sizeof(*buf); done += n * sizeof(*buf)) {
		n = (len - done) / sizeof(*buf) < CHUNK ? (len - done) / sizeof(*buf) : CHUNK;
		if (elf__read(p->e, from + done, buf, n * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < n; i++) {
			if (buf[i] == p->value)
				add(p, from + done + i * sizeof(*buf));
		}
	}
}

size_t elf__pointers_to(const struct elf *e, uint64_t value, uint64_t *at, size_t max)
{
	struct places p = { .e = e, .value = value, .at = at, .max = max };

	if (elf__is_memory(e) || !value)
		return 0;
	each_rela(e, has_value, &p);
	for (uint32_t i = 0; i < e->ph_n; i++) {
		if (e->ph[i].p_type == PT_LOAD && e->ph[i].p_flags & PF_W)
			search_data(&p, &e->ph[i]);
	}
	return p.n;
}
