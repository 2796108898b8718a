/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A bounded reader of 64-bit little-endian ELF files: program headers, dynamic symbols, which
 * stripped files keep, and static probes (usdt). The file is hostile: every offset and count is
 * checked against the file's size and fixed limits.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct elf;
struct map;
struct proc;

/* Opens an ELF file and takes ownership of fd, also on failure. NULL with errno: ENOEXEC not such a
 * file, EIO, ENOMEM. */
struct elf *elf__open_fd(int fd);
/*
 * Opens the file behind a mapping, even if its path changed. If the file cannot be opened, reads
 * its mapped parts from the process's memory: then there are no sections, and elf__is_memory() is
 * true. It does not read them after proc__set_files_only(). NULL with errno: as elf__open_fd(), or
 * that of proc__open_map().
 */
struct elf *elf__open_map(const struct proc *proc, const struct map *map);
struct elf *elf__share(struct elf *elf); /* another reference; each owner calls elf__free() */
void elf__free(struct elf *elf);	 /* accepts NULL */

#define ELF_NAME 32
/*
 * Writes a path of this very file, for the kernel: /proc/self/fd/N of its descriptor. The path is
 * valid until elf__free(), in all threads that share this process's descriptors. Returns buf; NULL:
 * the file can neither be opened nor named.
 */
char *elf__name(const struct elf *elf, char buf[ELF_NAME]);
/* True if the file could not be opened. Then its content comes from a process's memory, which the
 * process can change, and elf__name() is the path of whatever was mapped there. */
bool elf__is_memory(const struct elf *elf);

enum elf_machine { ELF_X86_64 = 62, ELF_AARCH64 = 183 };
uint16_t elf__machine(const struct elf *elf);
const char *elf__soname(const struct elf *elf); /* DT_SONAME or "" */

struct elf_sym {
	uint64_t value; /* virtual address in the file */
	uint64_t size;	/* bytes; 0: not known */
	uint8_t type;	/* STT_* */
};
/* A defined dynamic symbol by exact name; its version is ignored. 0 or -ENOENT. */
int elf__dynsym(const struct elf *elf, const char *name, struct elf_sym *ret);
/* Calls fn for each defined dynamic symbol until it returns non-zero, and returns that value;
 * -ENOMEM, -EIO, -EFBIG. */
int elf__each_dynsym(const struct elf *elf,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx);
/* As elf__each_dynsym(), for imported symbols; sym->value and size are not set. */
int elf__each_import(const struct elf *elf,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx);

/* The function that contains an address, from the unwind table. Stripped files have that table,
 * with an entry for each function, also for static ones. 0; -ENOENT: no entry, or a bad table. */
int elf__function(const struct elf *elf, uint64_t vaddr, uint64_t *start, uint64_t *size);

/*
 * Reads the pointer at vaddr in the file's data: the value that the loader writes there, minus the
 * load bias. 0; -ENOENT: it refers to another file's symbol or to thread-local storage; -ERANGE:
 * vaddr is not in the file; -ENOTSUP: elf__is_memory().
 */
int elf__pointer(const struct elf *elf, uint64_t vaddr, uint64_t *ret);
/* Stores the virtual addresses where the file's data have the pointer `value`, at most max; an
 * address may be stored twice. Returns their number. */
size_t elf__pointers_to(const struct elf *elf, uint64_t value, uint64_t *at, size_t max);

/* Section by name (".PyRuntime"): its virtual address and size. 0 or -ENOENT. */
int elf__section(const struct elf *elf, const char *name, uint64_t *addr, uint64_t *size);
/* A section's bytes, also of one that is not loaded; the caller frees *ret. 0, -ENOENT, -EFBIG:
 * above max, -ENOMEM, -errno. */
int elf__section_bytes(const struct elf *elf, const char *name, size_t max, uint8_t **ret,
		       size_t *len);

/* Translates a virtual address to a file offset through PT_LOAD. 0 or -ERANGE. */
int elf__vaddr_to_offset(const struct elf *elf, uint64_t vaddr, uint64_t *ret);
/*
 * Load bias of a mapping of this file: target address minus the file's virtual address. map_start,
 * map_offset: any mapping of the file. Prefer the lowest, since two segments may begin in one page.
 * 0 or -ERANGE.
 */
int elf__bias(const struct elf *elf, uint64_t map_start, uint64_t map_offset, uint64_t *ret);
/* Reads len bytes at a virtual address, from the file. 0 or -errno. */
int elf__read(const struct elf *elf, uint64_t vaddr, void *buf, size_t len);

/* Static probes (SystemTap notes): their addresses in a file, their arguments, and the semaphore
 * that enables them. The notes are hostile. */

struct usdt {
	/* Virtual addresses in the file. */
	uint64_t pc;	    /* the probe */
	uint64_t base;	    /* .stapsdt.base when the file was linked */
	uint64_t semaphore; /* 0: none */
	char args[256];	    /* text in the note: "-8@%rax -1@%dl" */
};

/* Finds the probes of this name in a .note.stapsdt section and stores the first max of them in v.
 * Returns the number stored. Stops at a malformed note. */
size_t usdt__notes(const uint8_t *notes, size_t len, const char *provider, const char *name,
		   struct usdt *v, size_t max);

/* Parses the first n arguments, for x86-64: registers, and memory at a register with optional
 * offset. 0; -EINVAL: fewer, or another form. */
int usdt__args(const char *text, struct mt_usdt_arg *v, size_t n);

/* File offsets; 0: none. At least one of the first two is not 0. */
struct usdt_site {
	uint64_t offset;   /* an instruction that every kernel can probe */
	uint64_t long_nop; /* a 10-byte nop, for kernels that replace it with a call */
	uint64_t semaphore;
	bool nop; /* the instruction at .offset is a one-byte nop, as systemtap's macros write it */
};

#define USDT_SITES_MAX 64 /* sites of a probe in a file */

struct usdt_sites {
	size_t n;
	struct usdt_site site[USDT_SITES_MAX];
	struct mt_usdt_args args[USDT_SITES_MAX];
};

/*
 * Finds the sites of a probe with n arguments in a file. 0, or -errno. -ENOENT: no such
 * probe. -ENOTSUP: a site is a 5-byte nop, which no kernel makes a safe call of (site.h). -EINVAL:
 * unknown form of arguments, an instruction that cannot be probed, or more than USDT_SITES_MAX
 * sites.
 */
int usdt__find(const struct elf *elf, const char *provider, const char *name, size_t n,
	       struct usdt_sites *ret);
