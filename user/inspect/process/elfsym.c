/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Dynamic symbols. Large libraries export 100,000 of them, so a name is looked up in the hash
 * table, as the loader does, with few small reads. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/process/elf_file.h"

/* A sparse file costs its owner nothing, so these are near what libraries have: libtorch_cpu has
 * 97,000 symbols, 6 MiB of names and chains of 13. */
#define STRTAB_MAX (64u << 20)
#define SYM_MAX (2u << 20)
/* Without a hash table, which every linker writes. */
#define PLAIN_STRTAB_MAX (4u << 20)
#define PLAIN_SYM_MAX 100000u
#define NAME_MAX_LEN (16u << 10) /* maximum length of a name to look up */
#define CHAIN_MAX 1024u		 /* maximum steps along a hash chain */
#define CHUNK 1024u		 /* entries per read */

static bool sym_defined(const Elf64_Sym *s)
{
	return s->st_shndx != SHN_UNDEF && s->st_shndx != SHN_ABS && s->st_shndx != SHN_COMMON &&
	       ELF64_ST_BIND(s->st_info) != STB_LOCAL;
}

static void sym_fill(const Elf64_Sym *s, struct elf_sym *ret)
{
	ret->value = s->st_value;
	ret->size = s->st_size;
	ret->type = ELF64_ST_TYPE(s->st_info);
}

/* Whether the symbol at index is defined and has this name; len includes the NUL. */
static bool sym_matches(const struct elf *e, uint64_t index, const char *name, size_t len,
			Elf64_Sym *s)
{
	char buf[512];
	size_t pos, part;

	if (elf_file__pread_in(e, &e->symtab, index * sizeof(*s), s, sizeof(*s)) || !sym_defined(s))
		return false;
	for (pos = 0; pos < len; pos += part) {
		part = len - pos < sizeof(buf) ? len - pos : sizeof(buf);
		if (elf_file__pread_in(e, &e->strtab, s->st_name + (uint64_t)pos, buf, part) ||
		    memcmp(buf, name + pos, part))
			return false;
	}
	return true;
}

struct gnu_hash {
	uint32_t buckets, first, bloom_words, bloom_shift;
};

/* Offsets in the table, after its header was checked. */
static uint64_t gnu_bucket(const struct gnu_hash *h, uint64_t i)
{
	return sizeof(*h) + 8ull * h->bloom_words + 4 * i;
}

static uint64_t gnu_chain(const struct gnu_hash *h, uint64_t index)
{
	return gnu_bucket(h, h->buckets) + 4 * (index - h->first);
}

static int gnu_header(const struct elf *e, struct gnu_hash *h)
{
	if (elf_file__pread_in(e, &e->gnu_hash, 0, h, sizeof(*h)))
		return -ENOENT;
	if (!h->buckets || !h->bloom_words || gnu_bucket(h, h->buckets) > e->gnu_hash.len)
		return -ENOENT;
	return 0;
}

static int lookup_gnu(const struct elf *e, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t hash = 5381, index, chain[64], i, left = CHAIN_MAX, n;
	struct gnu_hash h;
	uint64_t word, pos;
	size_t k;

	for (k = 0; k + 1 < len; k++)
		hash = hash * 33 + (uint8_t)name[k];
	if (gnu_header(e, &h) ||
	    elf_file__pread_in(e, &e->gnu_hash, sizeof(h) + 8ull * (hash / 64 % h.bloom_words),
			       &word, sizeof(word)))
		return -ENOENT;
	if (!(word >> (hash % 64) & 1) || !(word >> ((hash >> (h.bloom_shift & 31)) % 64) & 1))
		return -ENOENT;
	if (elf_file__pread_in(e, &e->gnu_hash, gnu_bucket(&h, hash % h.buckets), &index,
			       sizeof(index)) ||
	    index < h.first)
		return -ENOENT;
	while (left) {
		pos = gnu_chain(&h, index);
		if (pos >= e->gnu_hash.len)
			return -ENOENT;
		n = (e->gnu_hash.len - pos) / 4 < 64 ? (uint32_t)((e->gnu_hash.len - pos) / 4) : 64;
		if (!n || elf_file__pread_in(e, &e->gnu_hash, pos, chain, n * sizeof(chain[0])))
			return -ENOENT;
		for (i = 0; i < n; i++, index++, left--) {
			if ((chain[i] | 1) == (hash | 1) && sym_matches(e, index, name, len, ret))
				return 0;
			if (chain[i] & 1 || index == UINT32_MAX || left == 1)
				return -ENOENT;
		}
	}
	return -ENOENT;
}

static int lookup_sysv(const struct elf *e, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t head[2], hash = 0, top, index, left = CHAIN_MAX;
	size_t k;

	for (k = 0; k + 1 < len; k++) {
		hash = (hash << 4) + (uint8_t)name[k];
		top = hash & 0xf0000000;
		hash = (hash ^ top >> 24) & ~top;
	}
	if (elf_file__pread_in(e, &e->sysv_hash, 0, head, sizeof(head)) || !head[0] ||
	    elf_file__pread_in(e, &e->sysv_hash, 8 + 4ull * (hash % head[0]), &index,
			       sizeof(index)))
		return -ENOENT;
	for (; index && left; left--) {
		if (sym_matches(e, index, name, len, ret))
			return 0;
		if (index >= head[1] ||
		    elf_file__pread_in(e, &e->sysv_hash, 8 + 4ull * head[0] + 4ull * index, &index,
				       sizeof(index)))
			return -ENOENT;
	}
	return -ENOENT;
}

/* Number of symbols: one past the last that a hash chain reaches. */
static uint64_t gnu_count(const struct elf *e)
{
	uint32_t buf[CHUNK], max = 0, n, i, left = SYM_MAX;
	struct gnu_hash h;
	uint64_t b, pos;

	if (gnu_header(e, &h))
		return 0;
	if (h.buckets > SYM_MAX)
		return h.buckets;
	for (b = 0; b < h.buckets; b += n) {
		n = h.buckets - b < CHUNK ? (uint32_t)(h.buckets - b) : CHUNK;
		if (elf_file__pread_in(e, &e->gnu_hash, gnu_bucket(&h, b), buf, n * sizeof(buf[0])))
			return 0;
		for (i = 0; i < n; i++)
			if (buf[i] > max)
				max = buf[i];
	}
	if (max < h.first)
		return h.first;
	for (; left; left -= n < left ? n : left) {
		pos = gnu_chain(&h, max);
		if (pos >= e->gnu_hash.len)
			return max;
		n = (e->gnu_hash.len - pos) / 4 < CHUNK ? (uint32_t)((e->gnu_hash.len - pos) / 4)
							: CHUNK;
		if (!n || elf_file__pread_in(e, &e->gnu_hash, pos, buf, n * sizeof(buf[0])))
			return max;
		for (i = 0; i < n; i++, max++)
			if (buf[i] & 1 || max >= SYM_MAX)
				return (uint64_t)max + 1;
	}
	return max;
}

static uint64_t sym_count(const struct elf *e)
{
	uint64_t fits = e->symtab.len / sizeof(Elf64_Sym), n = e->sym_n;
	uint32_t head[2];

	if (!n && e->sysv_hash.len && !elf_file__pread_in(e, &e->sysv_hash, 0, head, sizeof(head)))
		n = head[1];
	if (!n && e->gnu_hash.len)
		n = gnu_count(e);
	return n < fits ? n : fits;
}

/* names: the whole string table, with a NUL added at the end. */
static int each_symbol(const struct elf *e, const char *names, bool imports,
		       int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	uint64_t total = sym_count(e), done, n, i;
	struct elf_sym sym;
	Elf64_Sym *buf;
	int ret = 0;

	buf = malloc(CHUNK * sizeof(*buf));
	if (!buf)
		return -ENOMEM;
	for (done = 0; done < total && !ret; done += n) {
		n = total - done < CHUNK ? total - done : CHUNK;
		if (elf_file__pread_in(e, &e->symtab, done * sizeof(*buf), buf, n * sizeof(*buf))) {
			ret = -EIO;
			break;
		}
		for (i = 0; i < n && !ret; i++) {
			if (!(imports ? buf[i].st_shndx == SHN_UNDEF : sym_defined(&buf[i])) ||
			    buf[i].st_name >= e->strtab.len || !names[buf[i].st_name])
				continue;
			sym_fill(&buf[i], &sym);
			ret = fn(names + buf[i].st_name, &sym, ctx);
		}
	}
	free(buf);
	return ret;
}

static int each_named(const struct elf *e, bool imports,
		      int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	bool plain = !e->gnu_hash.len && !e->sysv_hash.len;
	char *names;
	int ret;

	if (!e->symtab.len || !e->strtab.len)
		return 0;
	if (e->strtab.len > (plain ? PLAIN_STRTAB_MAX : STRTAB_MAX) ||
	    sym_count(e) > (plain ? PLAIN_SYM_MAX : SYM_MAX))
		return -EFBIG;
	names = malloc(e->strtab.len + 1);
	if (!names)
		return -ENOMEM;
	ret = elf_file__pread_in(e, &e->strtab, 0, names, e->strtab.len);
	if (!ret) {
		names[e->strtab.len] = '\0';
		ret = each_symbol(e, names, imports, fn, ctx);
	}
	free(names);
	return ret;
}

int elf__each_dynsym(const struct elf *e,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	return each_named(e, false, fn, ctx);
}

int elf__each_import(const struct elf *e,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	return each_named(e, true, fn, ctx);
}

struct by_name {
	const char *name;
	struct elf_sym *ret;
};

static int match_name(const char *name, const struct elf_sym *sym, void *ctx)
{
	struct by_name *want = ctx;

	if (strcmp(name, want->name))
		return 0;
	*want->ret = *sym;
	return 1;
}

int elf__dynsym(const struct elf *e, const char *name, struct elf_sym *ret)
{
	struct by_name want = { .name = name, .ret = ret };
	size_t len = strlen(name) + 1;
	Elf64_Sym s;
	int err;

	if (len < 2 || len > NAME_MAX_LEN || !e->symtab.len)
		return -ENOENT;
	if (e->gnu_hash.len)
		err = lookup_gnu(e, name, len, &s);
	else if (e->sysv_hash.len)
		err = lookup_sysv(e, name, len, &s);
	else
		return elf__each_dynsym(e, match_name, &want) == 1 ? 0 : -ENOENT;
	if (!err)
		sym_fill(&s, ret);
	return err;
}
