/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The table of functions, files and lines that each program of Go has, also without symbols and
 * debug information: .gopclntab, of Go 1.18 and later. Source: debug/gosym/pclntab.go of Go. For
 * the helper, because the table is hostile.
 */
#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct go_table {
	const uint8_t *v; /* belongs to the ELF file */
	size_t size;
	uint64_t text; /* address of the first function, as in the file */
	uint64_t functions;
	size_t names, units, files, pcs, data; /* offsets of parts of the table */
	unsigned quantum;		       /* bytes of the smallest instruction */
};

/* A place in the code. Texts belong to the ELF file. */
struct go_place {
	const char *function;
	const char *file; /* NULL: not known */
	int line;	  /* 0: not known */
};

/* Finds the table of a file. False: it has none, or one of another version. */
bool go_table__open(Elf *elf, struct go_table *ret);
/* Reads the header of a table of `size` bytes, which stay the caller's. first_code: address of the
 * code, for a table that does not say it. False: another version. */
bool go_table__read(const uint8_t *bytes, size_t size, uint64_t first_code, struct go_table *ret);
/* Finds the function, file and line of an address of the file. Calls that the compiler inlined have
 * their own line and the name of the function around them. False: not found. */
bool go_table__find(const struct go_table *table, uint64_t address, struct go_place *ret);
