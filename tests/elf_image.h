/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Builds a small shared library for tests that need every byte of a file: tables in the first page,
 * code in the second, at a virtual address that differs from the file offset.
 */
#include <assert.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IMAGE_CODE_OFF 0x1000u
#define IMAGE_CODE_VADDR 0x5000u
#define IMAGE_SLOT 64u /* bytes of code per function */
#define IMAGE_SIZE 0x2000u
#define IMAGE_FUNCS_MAX 16u

enum image_hash { IMAGE_NO_HASH, IMAGE_SYSV_HASH, IMAGE_GNU_HASH };

struct image_func {
	const char *name;
	const uint8_t *code; /* at most IMAGE_SLOT bytes; int3 fills the rest */
	uint32_t size;
};

struct image {
	uint8_t bytes[IMAGE_SIZE];
	uint32_t symtab, strtab, hash, dynamic; /* file offsets, equal to virtual addresses */
};

static inline uint32_t image_gnu_hash(const char *s)
{
	uint32_t h = 5381;

	for (; *s; s++)
		h = h * 33 + (uint8_t)*s;
	return h;
}

static inline void image_headers(struct image *im, uint32_t code_size)
{
	Elf64_Ehdr eh = { .e_type = ET_DYN,
			  .e_machine = EM_X86_64,
			  .e_version = EV_CURRENT,
			  .e_phoff = sizeof(eh),
			  .e_ehsize = sizeof(eh),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = 4 };
	Elf64_Phdr ph[4] = {
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R,
		  .p_filesz = IMAGE_CODE_OFF,
		  .p_memsz = IMAGE_CODE_OFF,
		  .p_align = 4096 },
		{ .p_type = PT_LOAD,
		  .p_flags = PF_R | PF_X,
		  .p_offset = IMAGE_CODE_OFF,
		  .p_vaddr = IMAGE_CODE_VADDR,
		  .p_filesz = code_size,
		  .p_memsz = code_size,
		  .p_align = 4096 },
		{ .p_type = PT_DYNAMIC,
		  .p_offset = im->dynamic,
		  .p_vaddr = im->dynamic,
		  .p_filesz = 7 * sizeof(Elf64_Dyn),
		  .p_memsz = 7 * sizeof(Elf64_Dyn) },
		{ .p_type = PT_NOTE,
		  .p_offset = 0xf80,
		  .p_vaddr = 0xf80,
		  .p_filesz = 20,
		  .p_memsz = 20,
		  .p_align = 4 },
	};
	static const uint8_t note[20] = { 4, 0, 0,   0,	  4,   0, 0,	0,    3,    0,
					  0, 0, 'G', 'N', 'U', 0, 0xde, 0xad, 0xbe, 0xef };

	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	eh.e_ident[EI_VERSION] = EV_CURRENT;
	memcpy(im->bytes, &eh, sizeof(eh));
	memcpy(im->bytes + sizeof(eh), ph, sizeof(ph));
	memcpy(im->bytes + 0xf80, note, sizeof(note));
}

/* Symbols 1..n: the functions; n + 1: undefined ("wanted"); n + 2: absolute ("version"). */
static inline void image_hash_table(struct image *im, const struct image_func *f, uint32_t n,
				    enum image_hash hash)
{
	uint32_t *t = (uint32_t *)(void *)(im->bytes + im->hash), i;

	if (hash == IMAGE_SYSV_HASH) {
		t[0] = 1; /* a hash table of one bucket */
		t[1] = n + 3;
		t[2] = 1;
		for (i = 1; i < n + 2; i++)
			t[3 + i] = i + 1;
	} else if (hash == IMAGE_GNU_HASH) {
		t[0] = 1;
		t[1] = 1; /* first hashed symbol */
		t[2] = 1;
		t[3] = 6;
		t[4] = t[5] = UINT32_MAX; /* the Bloom filter accepts all symbols */
		t[6] = 1;
		for (i = 0; i < n; i++)
			t[7 + i] = image_gnu_hash(f[i].name) & ~1u;
		t[7 + n - 1] |= 1;
	}
}

static inline void image_build(struct image *im, const struct image_func *f, uint32_t n,
			       enum image_hash hash)
{
	Elf64_Sym sym = { 0 };
	uint32_t str = 1, i, len;

	assert(n && n <= IMAGE_FUNCS_MAX);
	memset(im, 0, sizeof(*im));
	im->symtab = 0x200;
	im->hash = 0x400;
	im->dynamic = 0x500;
	im->strtab = 0x600;
	memset(im->bytes + IMAGE_CODE_OFF, 0xcc, IMAGE_SIZE - IMAGE_CODE_OFF);
	for (i = 0; i < n + 2; i++) {
		const char *name = i < n ? f[i].name : i == n ? "wanted" : "version";

		len = (uint32_t)strlen(name) + 1;
		assert(im->strtab + str + len < 0xf00);
		memcpy(im->bytes + im->strtab + str, name, len);
		sym = (Elf64_Sym){ .st_name = str, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC) };
		if (i < n) {
			sym.st_shndx = 1;
			sym.st_value = IMAGE_CODE_VADDR + i * IMAGE_SLOT;
			sym.st_size = f[i].size;
			memcpy(im->bytes + IMAGE_CODE_OFF + i * IMAGE_SLOT, f[i].code, f[i].size);
		} else if (i == n + 1) {
			sym.st_shndx = SHN_ABS;
		}
		memcpy(im->bytes + im->symtab + (i + 1) * sizeof(sym), &sym, sizeof(sym));
		str += len;
	}
	memcpy(im->bytes + im->strtab + str, "libimage.so.1", 14);
	image_headers(im, IMAGE_SIZE - IMAGE_CODE_OFF);
	image_hash_table(im, f, n, hash);
	Elf64_Dyn dyn[7] = { { DT_SYMTAB, { im->symtab } },
			     { DT_STRTAB, { im->strtab } },
			     { DT_STRSZ, { str + 14 } },
			     { DT_SONAME, { str } },
			     { hash == IMAGE_GNU_HASH	 ? DT_GNU_HASH
			       : hash == IMAGE_SYSV_HASH ? DT_HASH
							 : DT_DEBUG,
			       { im->hash } } };
	memcpy(im->bytes + im->dynamic, dyn, sizeof(dyn));
}

/* A memory file with these bytes. */
static inline int image_fd(const void *bytes, size_t len)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	assert(fd >= 0);
	assert(pwrite(fd, bytes, len, 0) == (ssize_t)len);
	return fd;
}
