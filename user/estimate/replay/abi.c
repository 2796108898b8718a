/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay/abi.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/failure.h"
#include "base/io.h"
#include "capture/session.h"
#include "estimate/replay/trust.h"
#include "estimate/replay/wire.h"
#include "inspect/elf.h"

#define CLASS "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
#define TABLE "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
#define TABLE_MAX 4096u /* bytes; version 2.15 has 470 */
#define RELA_MAX (1ULL << 28)
#define CHUNK 4096u /* relocations per read */
#define NONE (~0u)

/* Forms of each function in PyTorch 2.1 to 2.15. Each version has only one form; the call is the
 * same. */
static const struct wanted {
	const char *what;
	const char *names[3];
	size_t where; /* offset in struct replay_torch */
} wanted[] = {
	{ "raw_alloc_with_stream",
	  { CLASS "21raw_alloc_with_streamEmP11CUstream_st" },
	  offsetof(struct replay_torch, raw_alloc) },
	{ "raw_delete", { CLASS "10raw_deleteEPv" }, offsetof(struct replay_torch, raw_delete) },
	{ "init", { CLASS "4initEi" }, offsetof(struct replay_torch, init) },
	{ "emptyCache",
	  { CLASS "10emptyCacheESt4pairIyyE", CLASS "10emptyCacheEv" },
	  offsetof(struct replay_torch, empty_cache) },
	{ "setMemoryFraction",
	  { CLASS "17setMemoryFractionEda", CLASS "17setMemoryFractionEdi" },
	  offsetof(struct replay_torch, set_fraction) },
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))

struct table {
	uint64_t addr, size;
	uint64_t function[N_WANTED]; /* addresses of the functions in the file; 0: missing */
	unsigned slot[N_WANTED];
	uint64_t dynsym, n_dynsym;
};

static void find_functions(const struct elf *e, struct table *t)
{
	for (size_t i = 0; i < N_WANTED; i++) {
		t->slot[i] = NONE;
		for (size_t j = 0; j < 3 && wanted[i].names[j] && !t->function[i]; j++) {
			struct elf_sym sym;

			if (!elf__dynsym(e, wanted[i].names[j], &sym))
				t->function[i] = sym.value;
		}
	}
}

/* Returns the address that a relocation writes, if it is a function of this file; otherwise 0. */
static uint64_t target_of(const struct elf *e, const struct table *t, const Elf64_Rela *r)
{
	uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
	uint64_t index = ELF64_R_SYM(r->r_info);
	bool arm = elf__machine(e) == ELF_AARCH64;
	Elf64_Sym sym;

	if (type == (arm ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE))
		return (uint64_t)r->r_addend;
	if (type != (arm ? R_AARCH64_ABS64 : R_X86_64_64) || index >= t->n_dynsym ||
	    elf__read(e, t->dynsym + index * sizeof(sym), &sym, sizeof(sym)))
		return 0;
	return sym.st_shndx == SHN_UNDEF ? 0 : sym.st_value;
}

static void match_relocation(const struct elf *e, struct table *t, const Elf64_Rela *r)
{
	uint64_t to, in = r->r_offset - t->addr;

	/* Skip two words before the first function: an offset and the class's type. */
	if (in >= t->size || in < 16 || in % 8)
		return;
	to = target_of(e, t, r);
	for (size_t i = 0; i < N_WANTED && to; i++)
		if (t->function[i] == to)
			t->slot[i] = (unsigned)(in / 8 - 2);
}

/* Fills t->slot. False: the file has no such table. */
static bool read_table(const struct elf *e, struct table *t)
{
	Elf64_Rela *r = NULL;
	uint64_t rela, size, dynsym_size;
	struct elf_sym sym;
	bool ok = true;

	if (elf__dynsym(e, TABLE, &sym) || sym.size > TABLE_MAX ||
	    elf__section(e, ".rela.dyn", &rela, &size) || size > RELA_MAX ||
	    elf__section(e, ".dynsym", &t->dynsym, &dynsym_size))
		return false;
	t->addr = sym.value;
	t->size = sym.size;
	t->n_dynsym = dynsym_size / sizeof(Elf64_Sym);
	find_functions(e, t);
	r = malloc(CHUNK * sizeof(*r));
	for (uint64_t at = 0; r && ok && at + sizeof(*r) <= size; at += CHUNK * sizeof(*r)) {
		size_t bytes = size - at < CHUNK * sizeof(*r)
				       ? (size_t)(size - at) / sizeof(*r) * sizeof(*r)
				       : CHUNK * sizeof(*r);

		ok = !elf__read(e, rela + at, r, bytes);
		for (size_t i = 0; ok && i < bytes / sizeof(*r); i++)
			match_relocation(e, t, &r[i]);
	}
	ok = ok && r;
	free(r);
	return ok;
}

static int find_slots(struct replay_torch *ret, const char *dir, struct failure *f)
{
	static const char *const files[] = { "libtorch_cuda.so", "libtorch_python.so" };

	for (size_t i = 0; i < 2; i++) {
		struct table t = { 0 };
		struct elf *e;
		int fd;
		bool there;

		fd = io__open_regular(ret->dir, files[i], LINKS_FOLLOW, NULL);
		e = fd < 0 ? NULL : elf__open_fd(fd);
		there = e && read_table(e, &t);
		elf__free(e);
		if (!there)
			continue;
		for (size_t j = 0; j < N_WANTED; j++) {
			if (t.slot[j] == NONE)
				return failure__set(f, EXIT_UNUSABLE, -ENOTSUP,
						    "%s/%s: cannot call this PyTorch's allocator: "
						    "its %s is unknown",
						    dir, files[i], wanted[j].what);
			*(unsigned *)((char *)ret + wanted[j].where) = t.slot[j];
		}
		return 0;
	}
	return failure__set(f, EXIT_UNUSABLE, -ENOTSUP,
			    "%s: not PyTorch 2.1 or later with CUDA: cannot call its allocator",
			    dir);
}

/* Parses a line such as: __version__ = '2.11.0+cu130' */
static void read_version(struct replay_torch *ret)
{
	char text[4096], *at, *end, quote;

	io__text_at(ret->dir, "../version.py", text, sizeof(text));
	at = strstr(text, "__version__ =");
	at = at ? strpbrk(at, "'\"") : NULL;
	if (!at)
		return;
	quote = *at++;
	end = strchr(at, quote);
	if (end && (size_t)(end - at) < sizeof(ret->version))
		memcpy(ret->version, at, (size_t)(end - at));
}

int replay_torch__find(const struct replay_opts *opts, const struct facts *facts,
		       struct replay_torch *ret, struct failure *f)
{
	char dir[PATH_MAX];
	int high;

	memset(ret, 0, sizeof(*ret));
	ret->dir = replay_trust__find(opts, facts, dir, sizeof(dir), f);
	if (ret->dir < 0)
		return ret->dir;
	/* Move the descriptor above the numbers that the replayer uses. */
	high = fcntl(ret->dir, F_DUPFD_CLOEXEC, 16);
	if (high < 0)
		return failure__set(f, EXIT_FAILED, -errno, "%s: %s", dir, strerror(errno));
	close(ret->dir);
	ret->dir = high;
	if ((size_t)snprintf(ret->lib, sizeof(ret->lib), "%s/" REPLAY_LIBRARY, dir) >=
	    sizeof(ret->lib))
		return failure__set(f, EXIT_UNUSABLE, -ENAMETOOLONG, "%s: too long a name", dir);
	read_version(ret);
	return find_slots(ret, dir, f);
}
