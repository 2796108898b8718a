/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_ELF_H
#define MT_PROCESS_ELF_H
/*
 * A bounded reader of 64-bit little-endian ELF files over pread: program headers and dynamic
 * symbols, which is all that probes need (stripped files keep both). The file is hostile: every
 * offset and count is checked against the file's size and against caps.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf;
struct map;
struct proc;

/* Takes ownership of fd, also on failure. NULL with errno: ENOEXEC not such an ELF file, EIO,
 * ENOMEM. */
struct elf *elf__open_fd(int fd);
/*
 * The file behind a mapping, whatever became of its path. Where it may not be opened, though the
 * process may be read, what is mapped of it, with no sections. NULL with errno: as above, and that
 * of proc__open_map(). */
struct elf *elf__open_map(const struct proc *p, const struct map *map);
struct elf *elf__share(struct elf *e); /* freed by each who has it */
void elf__free(struct elf *e);	       /* NULL is fine */

enum elf_machine { ELF_X86_64 = 62, ELF_AARCH64 = 183 };
uint16_t elf__machine(const struct elf *e);
/* Lower-case hex of the GNU build id, "" where there is none. Owned by e. */
const char *elf__build_id(const struct elf *e);
const char *elf__soname(const struct elf *e); /* DT_SONAME or "" */

struct elf_sym {
	uint64_t value; /* virtual address in the file */
	uint64_t size;	/* bytes; 0 where the file does not say */
	uint8_t type;	/* STT_* */
};
/* A defined dynamic symbol by exact name, its version aside. 0 or -ENOENT. */
int elf__dynsym(const struct elf *e, const char *name, struct elf_sym *ret);
/* Calls fn for each defined dynamic symbol until it returns non-zero, which is returned; -ENOMEM,
 * -EIO, -EFBIG. */
int elf__each_dynsym(const struct elf *e,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx);
/* The same for each symbol that the file imports; sym->value and size mean nothing. */
int elf__each_import(const struct elf *e,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx);

/*
 * The piece of code that holds an address, as the unwind table has it: stripped files have one,
 * with an entry for each function, static ones too. 0, -ENOENT when none is known there or the
 * table is bad.
 */
int elf__function(const struct elf *e, uint64_t vaddr, uint64_t *start, uint64_t *size);

/* Section by name (".PyRuntime"): its virtual address and size. 0 or -ENOENT. */
int elf__section(const struct elf *e, const char *name, uint64_t *addr, uint64_t *size);
/* A section's bytes in the file, also of one that is not loaded, for free(). 0, -ENOENT, -EFBIG:
 * over max, -ENOMEM, -errno. */
int elf__section_bytes(const struct elf *e, const char *name, size_t max, uint8_t **ret,
		       size_t *len);

/* Virtual address to file offset through PT_LOAD. 0 or -ERANGE. */
int elf__vaddr_to_offset(const struct elf *e, uint64_t vaddr, uint64_t *ret);
/*
 * Load bias of a mapping of this file: what to add to a virtual address of the file to get the
 * target's. map_start/map_offset: any mapping of the file, the lowest where there is a choice (two
 * segments may begin in the same page of the file). 0 or -ERANGE.
 */
int elf__bias(const struct elf *e, uint64_t map_start, uint64_t map_offset, uint64_t *ret);
/* Reads len bytes at a virtual address from the file (not from the process). 0 or -errno. */
int elf__read(const struct elf *e, uint64_t vaddr, void *buf, size_t len);

#endif
