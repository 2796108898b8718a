/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/hostmem.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/site.h"

#define TABLE_MAX (64u << 20) /* bytes of an executable's table of symbols */
#define BODY_MAX 8192	      /* bytes of a function that are searched for jumps */

#define HOW(size, count) ((size) | (count) << MT_MALLOC_COUNT_AT)

/* Functions that give or free blocks. reallocarray() calls realloc(). */
static const struct function {
	const char *name;
	uint32_t how; /* as in struct malloc_site */
} functions[] = {
	{ "malloc", HOW(1, 0) },
	{ "free", 0 },
	{ "calloc", HOW(1, 2) },
	{ "realloc", HOW(2, 0) | MT_MALLOC_OLD },
	{ "memalign", HOW(2, 0) },
	{ "aligned_alloc", HOW(2, 0) },
	{ "posix_memalign", HOW(3, 0) | MT_MALLOC_OUT },
	{ "valloc", HOW(1, 0) },
	{ "pvalloc", HOW(1, 0) },
	{ "cfree", 0 },
	{ "free_sized", 0 },
	{ "free_aligned_sized", 0 },
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))
#define NEEDED 2 /* the first ones: without them the file has no malloc */
_Static_assert(FUNCTIONS <= MALLOCS_SITES_MAX, "room for all");

/* Symbols of the functions; .type STT_NOTYPE: the file does not have it. */
struct found {
	struct elf_sym sym[FUNCTIONS];
};

/* True if the file defines all functions that a malloc has. */
static bool is_whole(const struct found *found)
{
	for (size_t i = 0; i < NEEDED; i++)
		if (found->sym[i].type != STT_FUNC)
			return false;
	return true;
}

/* Finds the functions among the symbols that other files can use. */
static void find_dynamic(const struct elf *elf, struct found *found)
{
	for (size_t i = 0; i < FUNCTIONS; i++)
		if (elf__dynsym(elf, functions[i].name, &found->sym[i]) ||
		    found->sym[i].type != STT_FUNC)
			found->sym[i] = (struct elf_sym){ 0 };
}

static bool is_global_code(const Elf64_Sym *s)
{
	unsigned bind = ELF64_ST_BIND(s->st_info);

	return s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
	       (bind == STB_GLOBAL || bind == STB_WEAK);
}

/* As find_dynamic(), in the table that a linker leaves in a program: it is not loaded, and hostile
 * as all of the file. */
static void find_static(const struct elf *elf, struct found *found)
{
	uint8_t *symbols = NULL, *names = NULL;
	size_t len, names_len;
	Elf64_Sym s;

	if (elf__section_bytes(elf, ".symtab", TABLE_MAX, &symbols, &len) ||
	    elf__section_bytes(elf, ".strtab", TABLE_MAX, &names, &names_len))
		goto out;
	for (size_t at = 0; len - at >= sizeof(s); at += sizeof(s)) {
		memcpy(&s, symbols + at, sizeof(s));
		if (!is_global_code(&s) || s.st_name >= names_len)
			continue;
		for (size_t i = 0; i < FUNCTIONS; i++) {
			size_t n = strlen(functions[i].name) + 1;

			if (names_len - s.st_name >= n &&
			    !memcmp(names + s.st_name, functions[i].name, n))
				found->sym[i] = (struct elf_sym){ .value = s.st_value,
								  .size = s.st_size,
								  .type = STT_FUNC };
		}
	}
out:
	free(symbols);
	free(names);
}

/* The target of the jump to another function at code; 0: no such jump. at: its address. */
static uint64_t jump_target(uint16_t machine, const uint8_t *code, size_t n, uint64_t at)
{
	uint32_t word;
	int32_t by;

	if (machine == ELF_AARCH64) {
		memcpy(&word, code, sizeof(word)); /* b: 26 bits, in words */
		by = (int32_t)(word << 6) >> 4;
		return at % 4 || word >> 26 != 5 ? 0 : at + (uint64_t)(int64_t)by;
	}
	if (n >= 5 && code[0] == 0xe9) { /* jmp */
		memcpy(&by, code + 1, sizeof(by));
		return at + 5 + (uint64_t)(int64_t)by;
	}
	if (n >= 6 && code[0] == 0x0f && code[1] >> 4 == 8) { /* jcc */
		memcpy(&by, code + 2, sizeof(by));
		return at + 6 + (uint64_t)(int64_t)by;
	}
	return 0;
}

/* True if a function may end by jumping to another one that gives blocks. Looks at each byte, since
 * instructions have no fixed length: data that looks like such a jump is most unlikely. */
static bool jumps_to_another(const struct elf *elf, const struct found *found, size_t which)
{
	const struct elf_sym *sym = &found->sym[which];
	uint8_t code[BODY_MAX];
	size_t n = sym->size < sizeof(code) ? sym->size : sizeof(code);

	if (elf__read(elf, sym->value, code, n))
		return false;
	for (size_t at = 0; at + 4 <= n; at++) {
		uint64_t to = jump_target(elf__machine(elf), code + at, n - at, sym->value + at);

		for (size_t i = 0; to && i < FUNCTIONS; i++)
			if (functions[i].how && found->sym[i].type && found->sym[i].value == to &&
			    to != sym->value)
				return true;
	}
	return false;
}

struct search {
	const struct elf *elf;
	const struct maps *maps;
	const struct map *map;
	uint64_t bias;
	unsigned args; /* for site__pick() */
	bool whole;    /* all code of the file is an allocator's */
	struct malloc_file *ret;
};

static bool has_site_at(const struct malloc_file *file, uint64_t offset)
{
	for (size_t i = 0; i < file->n; i++)
		if (file->site[i].offset == offset)
			return true; /* another name of the same function */
	return false;
}

/* Notes a function's code, in the process's addresses: calls from there are parts of other
 * calls. */
static void add_own(const struct search *search, const struct elf_sym *sym)
{
	struct malloc_file *ret = search->ret;

	ret->own[ret->n_own][0] = search->bias + sym->value;
	ret->own[ret->n_own++][1] = search->bias + sym->value + sym->size;
}

/* Adds the probe of function i, if the file defines it. Notes a function that cannot be probed. */
static void add_site(const struct search *search, const struct found *found, size_t i)
{
	const struct elf_sym *sym = &found->sym[i];
	struct malloc_file *ret = search->ret;
	uint32_t how = functions[i].how;
	uint64_t offset;
	struct site in;

	if (sym->type != STT_FUNC || elf__vaddr_to_offset(search->elf, sym->value, &offset) ||
	    !maps__find_code(search->maps, search->map, offset))
		return;
	if (how && jumps_to_another(search->elf, found, i)) {
		if (!(how & MT_MALLOC_OLD))
			return; /* the other function has a probe */
		how |= MT_MALLOC_FORWARDS;
	}
	if (site__of_symbol(search->elf, sym, how != 0, search->args, &in)) {
		if (!ret->misses_ends)
			ret->refused = functions[i].name;
		ret->misses_ends |= !how || how & MT_MALLOC_OLD;
		return;
	}
	if (has_site_at(ret, offset + in.offset))
		return;
	ret->site[ret->n++] = (struct malloc_site){ functions[i].name, offset + in.offset, how,
						    in.cls == SITE_STEPPED };
	if (how && !search->whole)
		add_own(search, sym);
}

/* True if the mapping is of the process's program. */
static bool is_executable(const struct proc *proc, const struct map *map)
{
	char exe[4096];

	return !strcmp(proc__exe(proc, exe, sizeof(exe)), map->path);
}

/* True if the file is a C library or a program, which has other code than malloc's, too. */
static bool has_other_code(const struct proc *proc, const struct map *map)
{
	static const char *const names[] = { "libc.so", "libc-", "libc.musl", "ld-musl" };
	const char *base = map__base_name(map->path);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return is_executable(proc, map);
}

/* The dynamic linker of glibc: older ones have a malloc for the time before the C library's. */
static bool is_linker(const struct map *map)
{
	const char *base = map__base_name(map->path);

	return text__starts(base, "ld-linux") || text__starts(base, "ld-2.");
}

int mallocs__look(const struct proc *proc, const struct maps *maps, const struct map *map,
		  struct malloc_file *ret)
{
	struct malloc_file f = { 0 };
	struct found found = { 0 };
	struct elf_sym sym;
	struct search search = { .maps = maps,
				 .map = map,
				 .args = 1 | (proc__shadow_stack(proc) ? SITE_NO_CALLS : 0),
				 .whole = !has_other_code(proc, map),
				 .ret = &f };
	struct elf *elf = elf__open_map(proc, map);

	if (!elf)
		return -errno;
	search.elf = elf;
	find_dynamic(elf, &found);
	if (!is_whole(&found) && is_executable(proc, map))
		find_static(elf, &found);
	if (!is_whole(&found) || is_linker(map) || !site__is_native(elf__machine(elf)) ||
	    elf__bias(elf, map->start, map->offset, &search.bias)) {
		elf__free(elf);
		*ret = f;
		return 0;
	}
	for (size_t i = 0; i < FUNCTIONS; i++)
		add_site(&search, &found, i);
	if (search.whole) {
		f.own[0][0] = map->start;
		f.own[0][1] = map->end;
		f.n_own = 1;
	}
	f.has_new = !elf__dynsym(elf, "_Znwm", &sym);
	f.elf = elf;
	*ret = f;
	return 0;
}
