/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by elf.c (opening, addresses), elfsym.c (symbols), elfdata.c and elfunwind.c. */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/elf.h"

#define PIECES_MAX 16

/* File offset and bytes of a table; len ends at the file's end. */
struct span {
	uint64_t off, len;
};

struct elf {
	unsigned int users;
	int fd;
	uint64_t size;
	/* If the file cannot be opened: fd only names it, or is -1, and these parts of the file are
	 * in the process's memory. Owned. */
	struct proc *process;
	struct piece {
		uint64_t addr, off, len;
	} piece[PIECES_MAX];
	size_t n_pieces;
	uint16_t machine;
	Elf64_Phdr *ph;
	uint32_t ph_n;
	Elf64_Shdr *sh; /* none if stripped or unreadable; optional */
	uint32_t sh_n;
	struct span shstr;
	struct span symtab; /* up to the end of its segment, or the section's size */
	uint64_t sym_n;	    /* from the section header; 0: not known */
	struct span strtab;
	struct span gnu_hash;
	struct span sysv_hash;
	struct span rela; /* relocations of data */
	uint64_t symtab_vaddr;
	char soname[256];
};

/* All reads of the file use these. 0, -ERANGE beyond the file or the span, -EIO. */
int elf_file__pread_in(const struct elf *e, const struct span *s, uint64_t off, void *buf,
		       size_t len);
