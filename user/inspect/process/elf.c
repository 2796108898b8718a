/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "inspect/proc.h"

#define PIECES_MAX 16

/* A table in the file: offset and length, bytes. It ends at or before the file's end. */
struct span {
	uint64_t off, len;
};

struct elf {
	unsigned int users; /* references besides the first */
	int fd;
	uint64_t size;
	/* If the file cannot be opened: fd only names it, or is -1, and these parts of the file are
	 * read from the process's memory. process is owned; NULL: the file is open. */
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

#define PHDR_MAX 1024u
#define SHDR_MAX 8192u
#define DYN_MAX 4096u
#define NOTES_MAX (64u << 10)

/* Offset in fd, or address in the process, of a part of the file. 0; -EIO: not completely mapped. */
static int place_of(const struct elf *elf, uint64_t off, size_t len, uint64_t *ret)
{
	size_t i;

	*ret = off;
	for (i = 0; i < elf->n_pieces; i++) {
		const struct piece *p = &elf->piece[i];

		if (off < p->off || off - p->off >= p->len || len > p->len - (off - p->off))
			continue;
		*ret = p->addr + (off - p->off);
		return 0;
	}
	return elf->n_pieces ? -EIO : 0;
}

/* Reads the file's bytes at off. 0; -ERANGE: beyond the file; -EIO. */
static int read_file(const struct elf *elf, uint64_t off, void *buf, size_t len)
{
	uint64_t end, at;

	if (__builtin_add_overflow(off, len, &end) || end > elf->size)
		return -ERANGE;
	if (place_of(elf, off, len, &at))
		return -EIO;
	/* proc__read() does not use /proc/PID/mem, which would hold the address space's lock until
	 * the server of the file system replies. Meanwhile the process could not fork, and no probe
	 * be attached. */
	if (elf->process)
		return proc__read(elf->process, at, buf, len) ? -EIO : 0;
	/* Fewer bytes mean an I/O error, or that the file was truncated meanwhile. */
	return io__pread(elf->fd, buf, len, at) == (ssize_t)len ? 0 : -EIO;
}

/* Reads len bytes at offset `off` of a span. 0, -ERANGE beyond the file or the span, -EIO. */
static int read_span(const struct elf *elf, const struct span *span, uint64_t off, void *buf,
		     size_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end) || end > span->len)
		return -ERANGE;
	return read_file(elf, span->off + off, buf, len);
}

/* The span, cut at the file's end. */
static struct span span_in_file(const struct elf *elf, uint64_t off, uint64_t len)
{
	if (off >= elf->size)
		return (struct span){ 0, 0 };
	return (struct span){ off, len < elf->size - off ? len : elf->size - off };
}

/* Sets *ret from vaddr to the end of its segment's bytes in the file. 0; -ERANGE: no segment has
 * vaddr in the file. */
static int span_at(const struct elf *elf, uint64_t vaddr, struct span *ret)
{
	const Elf64_Phdr *ph;
	uint64_t within, off;
	uint32_t i;

	for (i = 0; i < elf->ph_n; i++) {
		ph = &elf->ph[i];
		if (ph->p_type != PT_LOAD || vaddr < ph->p_vaddr)
			continue;
		within = vaddr - ph->p_vaddr;
		if (within >= ph->p_filesz || __builtin_add_overflow(ph->p_offset, within, &off))
			continue;
		*ret = span_in_file(elf, off, ph->p_filesz - within);
		return ret->len ? 0 : -ERANGE;
	}
	return -ERANGE;
}

/* Reads the program headers. Returns 0, -ENOEXEC or -ENOMEM. */
static int load_phdrs(struct elf *elf, const Elf64_Ehdr *header)
{
	if (!header->e_phnum)
		return 0;
	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > PHDR_MAX)
		return -ENOEXEC;
	elf->ph = malloc(header->e_phnum * sizeof(*elf->ph));
	if (!elf->ph)
		return -ENOMEM;
	if (read_file(elf, header->e_phoff, elf->ph, header->e_phnum * sizeof(*elf->ph)))
		return -ENOEXEC;
	elf->ph_n = header->e_phnum;
	return 0;
}

/* Section headers are optional: unreadable ones are left out. Only ENOMEM is an error. */
static int load_shdrs(struct elf *elf, const Elf64_Ehdr *header)
{
	uint64_t count = header->e_shnum;
	uint32_t strndx = header->e_shstrndx;
	Elf64_Shdr first, *sh;

	if (!header->e_shoff || header->e_shentsize != sizeof(first) ||
	    read_file(elf, header->e_shoff, &first, sizeof(first)))
		return 0;
	if (!count)
		count = first.sh_size; /* above 65279 sections the number is here */
	if (strndx == SHN_XINDEX)
		strndx = first.sh_link;
	if (!count || count > SHDR_MAX)
		return 0;
	sh = malloc(count * sizeof(*sh));
	if (!sh)
		return -ENOMEM;
	if (read_file(elf, header->e_shoff, sh, count * sizeof(*sh))) {
		free(sh);
		return 0;
	}
	elf->sh = sh;
	elf->sh_n = (uint32_t)count;
	if (strndx < count && sh[strndx].sh_type == SHT_STRTAB)
		elf->shstr = span_in_file(elf, sh[strndx].sh_offset, sh[strndx].sh_size);
	return 0;
}

/* Reads a NUL-terminated string from the dynamic symbols' string table, cut to size. */
static void read_string(const struct elf *elf, uint64_t off, char *buf, size_t size)
{
	size_t len;

	if (off >= elf->strtab.len)
		return;
	len = elf->strtab.len - off < size - 1 ? elf->strtab.len - off : size - 1;
	if (read_span(elf, &elf->strtab, off, buf, len))
		len = 0;
	buf[len] = '\0';
}

/* Finds a table by its dynamic entry. In a process's memory the dynamic linker has mostly replaced
 * the virtual addresses in entries by addresses. */
static int table_at(const struct elf *elf, uint64_t ptr, struct span *ret)
{
	uint64_t bias;

	if (!span_at(elf, ptr, ret))
		return 0;
	if (!elf->n_pieces || elf__bias(elf, elf->piece[0].addr, elf->piece[0].off, &bias))
		return -ERANGE;
	return span_at(elf, ptr - bias, ret);
}

/* Finds the tables that the dynamic segment names. Only ENOMEM is an error. */
static int read_dynamic(struct elf *elf, const Elf64_Phdr *segment)
{
	uint64_t count = segment->p_filesz / sizeof(Elf64_Dyn), i;
	uint64_t by_tag[DT_NUM] = { [DT_SONAME] = UINT64_MAX }, gnu_hash = 0;
	Elf64_Dyn *dyn;

	if (count > DYN_MAX)
		count = DYN_MAX;
	dyn = malloc(count ? count * sizeof(*dyn) : 1);
	if (!dyn)
		return -ENOMEM;
	if (read_file(elf, segment->p_offset, dyn, count * sizeof(*dyn)))
		count = 0;
	for (i = 0; i < count && dyn[i].d_tag != DT_NULL; i++) {
		if (dyn[i].d_tag == DT_GNU_HASH)
			gnu_hash = dyn[i].d_un.d_ptr;
		else if ((uint64_t)dyn[i].d_tag < DT_NUM)
			by_tag[dyn[i].d_tag] = dyn[i].d_un.d_val;
	}
	free(dyn);
	if (by_tag[DT_RELA] && !table_at(elf, by_tag[DT_RELA], &elf->rela) &&
	    by_tag[DT_RELASZ] < elf->rela.len)
		elf->rela.len = by_tag[DT_RELASZ];
	if (!by_tag[DT_SYMTAB] || !by_tag[DT_STRTAB] ||
	    table_at(elf, by_tag[DT_SYMTAB], &elf->symtab) ||
	    table_at(elf, by_tag[DT_STRTAB], &elf->strtab)) {
		elf->symtab = elf->strtab = (struct span){ 0, 0 };
		return 0;
	}
	elf->symtab_vaddr = by_tag[DT_SYMTAB];
	if (by_tag[DT_STRSZ] < elf->strtab.len)
		elf->strtab.len = by_tag[DT_STRSZ];
	/* Without a hash table, slower look-ups remain. */
	if (gnu_hash)
		(void)table_at(elf, gnu_hash, &elf->gnu_hash);
	if (by_tag[DT_HASH])
		(void)table_at(elf, by_tag[DT_HASH], &elf->sysv_hash);
	read_string(elf, by_tag[DT_SONAME], elf->soname, sizeof(elf->soname));
	return 0;
}

/* Finds the symbol tables. The dynamic segment takes precedence, since the loader uses it and tools
 * keep it valid. Section headers add the exact number of symbols. */
static int find_tables(struct elf *elf)
{
	uint32_t i;
	int err;

	for (i = 0; i < elf->ph_n; i++) {
		if (elf->ph[i].p_type != PT_DYNAMIC)
			continue;
		err = read_dynamic(elf, &elf->ph[i]);
		if (err)
			return err;
		break;
	}
	for (i = 0; i < elf->sh_n; i++) {
		const Elf64_Shdr *sh = &elf->sh[i];

		if (sh->sh_type != SHT_DYNSYM || sh->sh_link >= elf->sh_n)
			continue;
		if (elf->symtab.len && sh->sh_addr != elf->symtab_vaddr)
			continue; /* not the dynamic segment's table */
		if (!elf->symtab.len)
			elf->strtab = span_in_file(elf, elf->sh[sh->sh_link].sh_offset,
						   elf->sh[sh->sh_link].sh_size);
		if (!elf->symtab.len || sh->sh_size < elf->symtab.len)
			elf->symtab = span_in_file(
				elf, elf->symtab.len ? elf->symtab.off : sh->sh_offset,
				sh->sh_size);
		elf->sym_n = sh->sh_size / sizeof(Elf64_Sym);
		break;
	}
	return 0;
}

/* Reads the headers and finds the tables. elf->fd or the mapped pieces are set. Returns 0 or a
 * negative errno. */
static int read_headers(struct elf *elf)
{
	Elf64_Ehdr header;
	struct stat st;
	int err;

	if (!elf->n_pieces) {
		if (fstat(elf->fd, &st))
			return -EIO;
		if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(header))
			return -ENOEXEC;
		elf->size = (uint64_t)st.st_size;
	}
	err = read_file(elf, 0, &header, sizeof(header));
	if (err)
		return -EIO;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_ident[EI_VERSION] != EV_CURRENT ||
	    (header.e_type != ET_DYN && header.e_type != ET_EXEC))
		return -ENOEXEC;
	elf->machine = header.e_machine;
	err = load_phdrs(elf, &header) ?: load_shdrs(elf, &header);
	return err ?: find_tables(elf);
}

/* Takes fd, also on failure. NULL: errno is set. */
static struct elf *new_elf(int fd)
{
	struct elf *elf = calloc(1, sizeof(*elf));

	if (!elf) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	elf->fd = fd;
	return elf;
}

/* Reads the headers. Frees elf and returns NULL if that fails; errno is set. */
static struct elf *finish_open(struct elf *elf)
{
	int err = read_headers(elf);

	if (err) {
		elf__free(elf);
		errno = -err;
		return NULL;
	}
	return elf;
}

/* Opens the mapped parts of a file. They include headers, symbols and code, and mostly no section
 * headers. */
static struct elf *open_memory(const struct proc *proc, const struct map *map)
{
	int image = proc__image(proc), err;
	struct maps maps;
	struct elf *elf;
	size_t i;

	/* If not even the process's memory can be opened, report that error. */
	if (image < 0) {
		errno = -image;
		return NULL;
	}
	close(image);
	elf = new_elf(proc__pin_map(proc, map));
	if (!elf)
		return NULL;
	elf->process = proc__open(proc__pid(proc));
	if (!elf->process)
		err = -errno;
	else
		err = proc__alive(proc) ? proc__maps(proc, &maps) : -ESRCH;
	if (err) {
		elf__free(elf);
		errno = -err;
		return NULL;
	}
	for (i = 0; i < maps.n && elf->n_pieces < PIECES_MAX; i++) {
		const struct map *m = &maps.v[i];

		if (m->inode != map->inode || m->dev_major != map->dev_major ||
		    m->dev_minor != map->dev_minor || m->offset > UINT64_MAX - (m->end - m->start))
			continue;
		elf->piece[elf->n_pieces++] = (struct piece){ m->start, m->offset,
							      m->end - m->start };
		if (m->offset + (m->end - m->start) > elf->size)
			elf->size = m->offset + (m->end - m->start);
	}
	maps__free(&maps);
	if (elf->n_pieces)
		return finish_open(elf);
	elf__free(elf);
	errno = ENOENT;
	return NULL;
}

struct elf *elf__open_map(const struct proc *proc, const struct map *map)
{
	int fd = proc__open_map(proc, map);
	struct elf *elf;

	if (fd >= 0)
		return elf__open_fd(fd);
	/* root cannot open files on another user's FUSE mount */
	elf = (fd == -EACCES || fd == -EPERM) && !proc__files_only(proc) ? open_memory(proc, map)
									 : NULL;
	if (!elf)
		errno = -fd;
	return elf;
}

struct elf *elf__open_fd(int fd)
{
	struct elf *elf;

	if (fd < 0) {
		errno = EIO;
		return NULL;
	}
	elf = new_elf(fd);
	return elf ? finish_open(elf) : NULL;
}

struct elf *elf__share(struct elf *elf)
{
	elf->users++;
	return elf;
}

void elf__free(struct elf *elf)
{
	if (!elf || elf->users--)
		return;
	if (elf->fd >= 0)
		close(elf->fd);
	proc__free(elf->process);
	free(elf->ph);
	free(elf->sh);
	free(elf);
}

bool elf__is_memory(const struct elf *elf)
{
	return elf->process;
}

char *elf__name(const struct elf *elf, char buf[ELF_NAME])
{
	if (elf->fd < 0)
		return NULL;
	snprintf(buf, ELF_NAME, "/proc/self/fd/%d", elf->fd);
	return buf;
}

uint16_t elf__machine(const struct elf *elf)
{
	return elf->machine;
}

const char *elf__soname(const struct elf *elf)
{
	return elf->soname;
}

/* ---- addresses ---- */

/* NULL: there is none with this name. */
static const Elf64_Shdr *find_section(const struct elf *elf, const char *name)
{
	size_t len = strlen(name) + 1;
	char buf[64];
	uint32_t i;

	if (len > sizeof(buf))
		return NULL;
	for (i = 0; i < elf->sh_n; i++)
		if (elf->sh[i].sh_type != SHT_NULL &&
		    !read_span(elf, &elf->shstr, elf->sh[i].sh_name, buf, len) &&
		    !memcmp(buf, name, len))
			return &elf->sh[i];
	return NULL;
}

int elf__section(const struct elf *elf, const char *name, uint64_t *addr, uint64_t *size)
{
	const Elf64_Shdr *sh = find_section(elf, name);

	if (!sh)
		return -ENOENT;
	*addr = sh->sh_addr;
	*size = sh->sh_size;
	return 0;
}

int elf__section_bytes(const struct elf *elf, const char *name, size_t max, uint8_t **ret,
		       size_t *len)
{
	const Elf64_Shdr *sh = find_section(elf, name);
	uint8_t *buf;
	int err;

	if (!sh || sh->sh_type == SHT_NOBITS || !sh->sh_size)
		return -ENOENT;
	if (sh->sh_size > max)
		return -EFBIG;
	buf = malloc(sh->sh_size);
	if (!buf)
		return -ENOMEM;
	err = read_file(elf, sh->sh_offset, buf, sh->sh_size);
	if (err) {
		free(buf);
		return err;
	}
	*ret = buf;
	*len = sh->sh_size;
	return 0;
}

int elf__vaddr_to_offset(const struct elf *elf, uint64_t vaddr, uint64_t *ret)
{
	struct span span;

	if (span_at(elf, vaddr, &span))
		return -ERANGE;
	*ret = span.off;
	return 0;
}

/* Finds the segment of the mapping. Segments are mapped in whole pages, so two may share a page of
 * the file: a segment that begins at the mapping's first page is preferred to one that contains it.
 */
int elf__bias(const struct elf *elf, uint64_t map_start, uint64_t map_offset, uint64_t *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), mask = ~(page - 1), first_page, end;
	const Elf64_Phdr *ph, *found = NULL;
	uint32_t i;

	for (i = 0; i < elf->ph_n; i++) {
		ph = &elf->ph[i];
		if (ph->p_type != PT_LOAD || !ph->p_filesz ||
		    ((ph->p_offset ^ ph->p_vaddr) & ~mask))
			continue;
		first_page = ph->p_offset & mask;
		if (first_page == map_offset) {
			found = ph;
			break;
		}
		if (!found && map_offset > first_page &&
		    !__builtin_add_overflow(ph->p_offset, ph->p_filesz, &end) && map_offset < end)
			found = ph;
	}
	if (!found || (map_start & ~mask) || (map_offset & ~mask))
		return -ERANGE;
	*ret = map_start - ((found->p_vaddr & mask) + (map_offset - (found->p_offset & mask)));
	return 0;
}

int elf__read(const struct elf *elf, uint64_t vaddr, void *buf, size_t len)
{
	struct span span;
	int err;

	err = span_at(elf, vaddr, &span);
	return err ?: read_span(elf, &span, 0, buf, len);
}

/* Pointers in a file's data, as they are once the file is loaded and before its code has run: a
 * relocation's value, or without one the bytes in the file (DT_RELR, programs at fixed addresses).
 */

#define RELA_MAX (256u << 10) /* relocations: libtorch_python has 40,000 */
#define DATA_MAX (16u << 20)  /* bytes of data */
#define DATA_CHUNK 1024u

/* Relocation types of the two machines (elf.h). */
#define R_RELATIVE(machine) ((machine) == ELF_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE)
#define R_SYMBOL(machine) ((machine) == ELF_AARCH64 ? R_AARCH64_ABS64 : R_X86_64_64)

/* The symbol that was read last. Linkers put the relocations of a symbol one after another. */
struct last_symbol {
	uint64_t index;
	bool known;
	Elf64_Sym sym;
};

/* Sets *ret to the value that a relocation writes, without the load bias. False: it is not an
 * address in this file. */
static bool relocated_value(const struct elf *elf, const Elf64_Rela *r, struct last_symbol *last,
			    uint64_t *ret)
{
	uint64_t type = ELF64_R_TYPE(r->r_info), index = ELF64_R_SYM(r->r_info);

	*ret = (uint64_t)r->r_addend;
	if (type == R_RELATIVE(elf->machine))
		return true;
	if (type != R_SYMBOL(elf->machine))
		return false;
	if (!last->known || last->index != index) {
		last->index = index;
		last->known = !read_span(elf, &elf->symtab, index * sizeof(last->sym), &last->sym,
					 sizeof(last->sym));
	}
	if (!last->known || last->sym.st_shndx == SHN_UNDEF)
		return false;
	*ret += last->sym.st_value;
	return true;
}

/* Calls fn for each relocation until it returns true. */
static void each_rela(const struct elf *elf, bool (*fn)(const Elf64_Rela *r, void *ctx), void *ctx)
{
	uint64_t total = elf->rela.len / sizeof(Elf64_Rela), done, chunk;
	Elf64_Rela buf[DATA_CHUNK];

	if (total > RELA_MAX)
		total = RELA_MAX;
	for (done = 0; done < total; done += chunk) {
		chunk = total - done < DATA_CHUNK ? total - done : DATA_CHUNK;
		if (read_span(elf, &elf->rela, done * sizeof(*buf), buf, chunk * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < chunk; i++) {
			if (fn(&buf[i], ctx))
				return;
		}
	}
}

/* Search for the relocation at vaddr. */
struct at_place {
	const struct elf *elf;
	uint64_t vaddr, value;
	bool found, known; /* found: there is one; known: value is what it writes */
};

/* For each_rela(): stops at the relocation of struct at_place. */
static bool match_place(const Elf64_Rela *r, void *ctx)
{
	struct last_symbol last = { 0 };
	struct at_place *a = ctx;

	if (r->r_offset != a->vaddr)
		return false;
	a->found = true;
	a->known = relocated_value(a->elf, r, &last, &a->value);
	return true;
}

/* A relocation at vaddr decides; without one, the bytes in the file are the value. */
int elf__pointer(const struct elf *elf, uint64_t vaddr, uint64_t *ret)
{
	struct at_place place = { .elf = elf, .vaddr = vaddr };
	int err = 0;

	if (elf__is_memory(elf))
		return -ENOTSUP;
	each_rela(elf, match_place, &place);
	if (place.found && !place.known)
		return -ENOENT;
	if (!place.found)
		err = elf__read(elf, vaddr, &place.value, sizeof(place.value));
	if (!err)
		*ret = place.value;
	return err;
}

/* Search for pointers with this value: their addresses, at most max. */
struct places {
	const struct elf *elf;
	uint64_t value, *at;
	size_t n, max;
	struct last_symbol last;
};

static void add_place(struct places *p, uint64_t vaddr)
{
	if (p->n < p->max)
		p->at[p->n++] = vaddr;
}

/* For each_rela(): adds the places that get the value of struct places. True: there is no more
 * room. */
static bool match_value(const Elf64_Rela *r, void *ctx)
{
	struct places *p = ctx;
	uint64_t value;

	/* Most relocations are relative and have another addend: compare that first. */
	if ((ELF64_R_TYPE(r->r_info) != R_RELATIVE(p->elf->machine) ||
	     (uint64_t)r->r_addend == p->value) &&
	    relocated_value(p->elf, r, &p->last, &value) && value == p->value)
		add_place(p, r->r_offset);
	return p->n == p->max;
}

/* Adds the aligned 8-byte words of one data segment in the file that have the value. */
static void search_data(struct places *places, const Elf64_Phdr *ph)
{
	uint64_t len = ph->p_filesz < DATA_MAX ? ph->p_filesz : DATA_MAX, buf[DATA_CHUNK], done,
		 chunk;
	uint64_t start = (ph->p_vaddr + 7) & ~UINT64_C(7);

	if (len < start - ph->p_vaddr)
		return;
	len -= start - ph->p_vaddr;
	for (done = 0; len - done >= sizeof(*buf); done += chunk * sizeof(*buf)) {
		chunk = (len - done) / sizeof(*buf) < DATA_CHUNK ? (len - done) / sizeof(*buf)
								 : DATA_CHUNK;
		if (elf__read(places->elf, start + done, buf, chunk * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < chunk; i++) {
			if (buf[i] == places->value)
				add_place(places, start + done + i * sizeof(*buf));
		}
	}
}

size_t elf__pointers_to(const struct elf *elf, uint64_t value, uint64_t *at, size_t max)
{
	struct places p = { .elf = elf, .value = value, .at = at, .max = max };

	if (elf__is_memory(elf) || !value)
		return 0;
	each_rela(elf, match_value, &p);
	for (uint32_t i = 0; i < elf->ph_n; i++) {
		if (elf->ph[i].p_type == PT_LOAD && elf->ph[i].p_flags & PF_W)
			search_data(&p, &elf->ph[i]);
	}
	return p.n;
}

/* Dynamic symbols. Large libraries export 100,000 of them, so a name is looked up in the hash
 * table, as the loader does, with few small reads. */

/* Limits for hostile files: a sparse file of any size costs its owner nothing. They are 10 to 80
 * times what the largest known library has: libtorch_cpu with 97,000 symbols, 6 MiB of names and
 * hash chains of up to 13. */
#define STRTAB_MAX (64u << 20)
#define SYM_MAX (2u << 20)
/* Limits without a hash table; every linker writes one. */
#define PLAIN_STRTAB_MAX (4u << 20)
#define PLAIN_SYM_MAX 100000u
#define NAME_MAX_LEN (16u << 10) /* maximum length of a name to look up */
#define CHAIN_MAX 1024u		 /* maximum steps along a hash chain */
#define CHUNK 1024u		 /* entries per read */

/* True for a symbol of this file that other files can use. */
static bool sym_defined(const Elf64_Sym *sym)
{
	return sym->st_shndx != SHN_UNDEF && sym->st_shndx != SHN_ABS &&
	       sym->st_shndx != SHN_COMMON && ELF64_ST_BIND(sym->st_info) != STB_LOCAL;
}

static void sym_fill(const Elf64_Sym *s, struct elf_sym *ret)
{
	ret->value = s->st_value;
	ret->size = s->st_size;
	ret->type = ELF64_ST_TYPE(s->st_info);
}

/* True if the symbol at index is defined and has this name; len includes the NUL. */
static bool sym_matches(const struct elf *elf, uint64_t index, const char *name, size_t len,
			Elf64_Sym *s)
{
	char buf[512];
	size_t pos, part;

	if (read_span(elf, &elf->symtab, index * sizeof(*s), s, sizeof(*s)) || !sym_defined(s))
		return false;
	for (pos = 0; pos < len; pos += part) {
		part = len - pos < sizeof(buf) ? len - pos : sizeof(buf);
		if (read_span(elf, &elf->strtab, s->st_name + (uint64_t)pos, buf, part) ||
		    memcmp(buf, name + pos, part))
			return false;
	}
	return true;
}

struct gnu_hash { /* header of a DT_GNU_HASH table; the Bloom filter, buckets and chains follow */
	uint32_t buckets, first, bloom_words, bloom_shift;
};

/* Offset of bucket i in a DT_GNU_HASH table, behind the header and the words of the Bloom filter.
 * Bucket number h->buckets: the end of all buckets, where the chains begin. */
static uint64_t gnu_bucket(const struct gnu_hash *h, uint64_t i)
{
	return sizeof(*h) + 8ull * h->bloom_words + 4 * i;
}

/* Offset in the hash table of a symbol's word in the chains. */
static uint64_t gnu_chain(const struct gnu_hash *h, uint64_t index)
{
	return gnu_bucket(h, h->buckets) + 4 * (index - h->first);
}

/* Reads the header of the DT_GNU_HASH table. -ENOENT: malformed. */
static int gnu_header(const struct elf *elf, struct gnu_hash *h)
{
	if (read_span(elf, &elf->gnu_hash, 0, h, sizeof(*h)))
		return -ENOENT;
	if (!h->buckets || !h->bloom_words) /* lookups divide by them */
		return -ENOENT;
	if (gnu_bucket(h, h->buckets) > elf->gnu_hash.len) /* the last bucket's end */
		return -ENOENT;
	return 0;
}

/* Looks a name up by the DT_GNU_HASH table: Bloom filter, bucket, chain. len includes the NUL. The
 * lowest bit of a chain's word marks the chain's end; the others are of the symbol's hash. */
static int lookup_gnu(const struct elf *elf, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t hash = 5381, index, chain[64], i, steps_left = CHAIN_MAX, words;
	struct gnu_hash header;
	uint64_t bloom, pos;
	size_t k;

	/* the format's hash function */
	for (k = 0; k + 1 < len; k++)
		hash = hash * 33 + (uint8_t)name[k];
	if (gnu_header(elf, &header) ||
	    read_span(elf, &elf->gnu_hash, sizeof(header) + 8ull * (hash / 64 % header.bloom_words),
		      &bloom, sizeof(bloom)))
		return -ENOENT;
	if (!(bloom >> (hash % 64) & 1) ||
	    !(bloom >> ((hash >> (header.bloom_shift & 31)) % 64) & 1))
		return -ENOENT;
	if (read_span(elf, &elf->gnu_hash, gnu_bucket(&header, hash % header.buckets), &index,
		      sizeof(index)) ||
	    index < header.first)
		return -ENOENT;
	while (steps_left) {
		pos = gnu_chain(&header, index);
		if (pos >= elf->gnu_hash.len)
			return -ENOENT;
		words = (elf->gnu_hash.len - pos) / 4 < 64
				? (uint32_t)((elf->gnu_hash.len - pos) / 4)
				: 64;
		if (!words || read_span(elf, &elf->gnu_hash, pos, chain, words * sizeof(chain[0])))
			return -ENOENT;
		for (i = 0; i < words; i++, index++, steps_left--) {
			if ((chain[i] | 1) == (hash | 1) && sym_matches(elf, index, name, len, ret))
				return 0;
			if (chain[i] & 1 || index == UINT32_MAX || steps_left == 1)
				return -ENOENT;
		}
	}
	return -ENOENT;
}

/* As lookup_gnu(), by the DT_HASH table {buckets, chains, bucket[], chain[]}. */
static int lookup_sysv(const struct elf *elf, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t head[2], hash = 0, top_bits, index, steps_left = CHAIN_MAX;
	size_t k;

	for (k = 0; k + 1 < len; k++) {
		hash = (hash << 4) + (uint8_t)name[k];
		top_bits = hash & 0xf0000000;
		hash = (hash ^ top_bits >> 24) & ~top_bits;
	}
	if (read_span(elf, &elf->sysv_hash, 0, head, sizeof(head)) || !head[0] ||
	    read_span(elf, &elf->sysv_hash, 8 + 4ull * (hash % head[0]), &index, sizeof(index)))
		return -ENOENT;
	for (; index && steps_left; steps_left--) {
		if (sym_matches(elf, index, name, len, ret))
			return 0;
		if (index >= head[1] ||
		    read_span(elf, &elf->sysv_hash, 8 + 4ull * head[0] + 4ull * index, &index,
			      sizeof(index)))
			return -ENOENT;
	}
	return -ENOENT;
}

/* Number of symbols: one past the last that a hash chain reaches. The chain that starts at the
 * highest index has the last one. */
static uint64_t gnu_count(const struct elf *elf)
{
	uint32_t buf[CHUNK], last = 0, words, i, words_left = SYM_MAX;
	struct gnu_hash header;
	uint64_t bucket, pos;

	if (gnu_header(elf, &header))
		return 0;
	if (header.buckets > SYM_MAX)
		return header.buckets; /* more than callers accept */
	for (bucket = 0; bucket < header.buckets; bucket += words) {
		words = header.buckets - bucket < CHUNK ? (uint32_t)(header.buckets - bucket)
							: CHUNK;
		if (read_span(elf, &elf->gnu_hash, gnu_bucket(&header, bucket), buf,
			      words * sizeof(buf[0])))
			return 0;
		for (i = 0; i < words; i++)
			if (buf[i] > last)
				last = buf[i];
	}
	if (last < header.first)
		return header.first;
	for (; words_left; words_left -= words < words_left ? words : words_left) {
		pos = gnu_chain(&header, last);
		if (pos >= elf->gnu_hash.len)
			return last;
		words = (elf->gnu_hash.len - pos) / 4 < CHUNK
				? (uint32_t)((elf->gnu_hash.len - pos) / 4)
				: CHUNK;
		if (!words || read_span(elf, &elf->gnu_hash, pos, buf, words * sizeof(buf[0])))
			return last;
		for (i = 0; i < words; i++, last++)
			if (buf[i] & 1 || last >= SYM_MAX)
				return (uint64_t)last + 1;
	}
	return last;
}

/* Number of dynamic symbols: by the section header, otherwise by a hash table; at most what fits. */
static uint64_t sym_count(const struct elf *elf)
{
	uint64_t fits = elf->symtab.len / sizeof(Elf64_Sym), n = elf->sym_n;
	uint32_t head[2];

	if (!n && elf->sysv_hash.len && !read_span(elf, &elf->sysv_hash, 0, head, sizeof(head)))
		n = head[1];
	if (!n && elf->gnu_hash.len)
		n = gnu_count(elf);
	return n < fits ? n : fits;
}

/* Calls fn for each dynamic symbol with a name that is defined, or if imports is true, undefined,
 * until fn returns other than 0. names: the whole string table, with a NUL added at the end.
 * Returns the last result of fn, -ENOMEM or -EIO. */
static int each_symbol(const struct elf *elf, const char *names, bool imports,
		       int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	uint64_t total = sym_count(elf), done, chunk, i;
	struct elf_sym sym;
	Elf64_Sym *buf;
	int ret = 0;

	buf = malloc(CHUNK * sizeof(*buf));
	if (!buf)
		return -ENOMEM;
	for (done = 0; done < total && !ret; done += chunk) {
		chunk = total - done < CHUNK ? total - done : CHUNK;
		if (read_span(elf, &elf->symtab, done * sizeof(*buf), buf, chunk * sizeof(*buf))) {
			ret = -EIO;
			break;
		}
		for (i = 0; i < chunk && !ret; i++) {
			if (!(imports ? buf[i].st_shndx == SHN_UNDEF : sym_defined(&buf[i])) ||
			    buf[i].st_name >= elf->strtab.len || !names[buf[i].st_name])
				continue;
			sym_fill(&buf[i], &sym);
			ret = fn(names + buf[i].st_name, &sym, ctx);
		}
	}
	free(buf);
	return ret;
}

/* Calls fn for the defined symbols, or the imported ones, of a file within the limits. */
static int each_named(const struct elf *elf, bool imports,
		      int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	bool hashed = elf->gnu_hash.len || elf->sysv_hash.len;
	uint64_t strtab_max = hashed ? STRTAB_MAX : PLAIN_STRTAB_MAX;
	uint64_t sym_max = hashed ? SYM_MAX : PLAIN_SYM_MAX;
	char *names;
	int ret;

	if (!elf->symtab.len || !elf->strtab.len)
		return 0;
	if (elf->strtab.len > strtab_max || sym_count(elf) > sym_max)
		return -EFBIG;
	names = malloc(elf->strtab.len + 1);
	if (!names)
		return -ENOMEM;
	ret = read_span(elf, &elf->strtab, 0, names, elf->strtab.len);
	if (!ret) {
		names[elf->strtab.len] = '\0';
		ret = each_symbol(elf, names, imports, fn, ctx);
	}
	free(names);
	return ret;
}

int elf__each_dynsym(const struct elf *elf,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	return each_named(elf, /*imports=*/false, fn, ctx);
}

int elf__each_import(const struct elf *elf,
		     int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	return each_named(elf, /*imports=*/true, fn, ctx);
}

struct by_name {
	const char *name;
	struct elf_sym *ret;
};

/* Callback of elf__each_dynsym(): takes the symbol with the wanted name. */
static int match_name(const char *name, const struct elf_sym *sym, void *ctx)
{
	struct by_name *want = ctx;

	if (strcmp(name, want->name))
		return 0;
	*want->ret = *sym;
	return 1;
}

/* Looks the name up in a hash table, if the file has one, otherwise among all symbols. */
int elf__dynsym(const struct elf *elf, const char *name, struct elf_sym *ret)
{
	struct by_name want = { .name = name, .ret = ret };
	size_t len = strlen(name) + 1;
	Elf64_Sym sym;
	int err;

	if (len < 2 || len > NAME_MAX_LEN || !elf->symtab.len)
		return -ENOENT;
	if (elf->gnu_hash.len)
		err = lookup_gnu(elf, name, len, &sym);
	else if (elf->sysv_hash.len)
		err = lookup_sysv(elf, name, len, &sym);
	else
		return elf__each_dynsym(elf, match_name, &want) == 1 ? 0 : -ENOENT;
	if (!err)
		sym_fill(&sym, ret);
	return err;
}

/* Sizes of functions from .eh_frame, through the sorted table of .eh_frame_hdr. Only the encodings
 * that 64-bit linkers and compilers write are supported; others mean "not known". */

#define PE_FORMAT 0x0f
#define PE_ABSPTR 0x00
#define PE_UDATA4 0x03
#define PE_UDATA8 0x04
#define PE_SDATA4 0x0b
#define PE_SDATA8 0x0c
#define PE_PCREL 0x10
#define PE_TABLE 0x3b /* relative to the header, signed 32 bits: the searchable form */
#define ENTRIES_MAX (64u << 20)
/* Bytes of a CIE read, which contain its augmentation. A CIE that begins closer to the end of its
 * segment is not found. */
#define CIE_MAX 64

struct hdr { /* beginning of .eh_frame_hdr */
	uint8_t version, frame_enc, count_enc, table_enc;
	int32_t frame;
	uint32_t count;
};

struct entry {
	int32_t start, fde; /* relative to the header */
};

/* Finds .eh_frame_hdr, at *vaddr, and reads its beginning. -ENOENT: none, or of another form. */
static int find_unwind_table(const struct elf *elf, uint64_t *vaddr, struct hdr *h)
{
	uint32_t i;

	for (i = 0; i < elf->ph_n; i++) {
		if (elf->ph[i].p_type != PT_GNU_EH_FRAME)
			continue;
		*vaddr = elf->ph[i].p_vaddr;
		if (elf__read(elf, *vaddr, h, sizeof(*h)) || h->version != 1)
			return -ENOENT;
		if (h->count_enc != PE_UDATA4 || h->table_enc != PE_TABLE ||
		    h->count > ENTRIES_MAX ||
		    ((h->frame_enc & PE_FORMAT) != PE_SDATA4 &&
		     (h->frame_enc & PE_FORMAT) != PE_UDATA4))
			return -ENOENT;
		return h->count ? 0 : -ENOENT;
	}
	return -ENOENT;
}

/* Finds the last entry with start <= vaddr in the search table of .eh_frame_hdr. base: address of
 * that section, to which starts are relative. */
static int find_entry(const struct elf *elf, uint64_t table, uint32_t count, uint64_t base,
		      uint64_t vaddr, struct entry *ret)
{
	uint32_t lo = 0, hi = count, mid;
	struct entry en;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (elf__read(elf, table + sizeof(en) * mid, &en, sizeof(en)))
			return -ENOENT;
		if (base + (uint64_t)(int64_t)en.start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || elf__read(elf, table + sizeof(en) * (lo - 1), ret, sizeof(*ret)))
		return -ENOENT;
	return 0;
}

/* Bytes of a pointer with this encoding; 0: not supported. */
static size_t encoded_size(uint8_t enc)
{
	switch (enc & PE_FORMAT) {
	case PE_UDATA4:
	case PE_SDATA4:
		return 4;
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return 8;
	default:
		return 0;
	}
}

/* Position after the LEB128 number at pos. */
static size_t skip_leb(const uint8_t *b, size_t pos, size_t len)
{
	while (pos < len && b[pos] & 0x80)
		pos++;
	return pos + 1;
}

/*
 * Finds the encoding of addresses in the entries of a CIE: the data byte of 'R' in its
 * augmentation. A CIE is {u32 length, u32 id (0), u8 version, char augmentation[], ...}.
 */
static int pointer_encoding(const struct elf *elf, uint64_t cie, uint8_t *ret)
{
	uint8_t bytes[CIE_MAX];
	size_t letter = 9, pos, aug_len; /* letter: index of a character of the augmentation */
	uint32_t id;

	if (elf__read(elf, cie, bytes, sizeof(bytes)))
		return -ENOENT;
	memcpy(&id, bytes + 4, sizeof(id));
	if (id || (bytes[8] != 1 && bytes[8] != 3))
		return -ENOENT;
	aug_len = strnlen((const char *)bytes + letter, 8);
	if (aug_len == 8 || bytes[letter] != 'z')
		return -ENOENT;
	pos = skip_leb(bytes, letter + aug_len + 1, sizeof(bytes)); /* code alignment */
	pos = skip_leb(bytes, pos, sizeof(bytes));		    /* data alignment */
	pos = bytes[8] == 1 ? pos + 1
			    : skip_leb(bytes, pos, sizeof(bytes)); /* return address register */
	pos = skip_leb(bytes, pos, sizeof(bytes)); /* length of the augmentation data */
	for (letter++; bytes[letter] && pos < sizeof(bytes); letter++) {
		if (bytes[letter] == 'R') {
			*ret = bytes[pos];
			return 0;
		}
		if (bytes[letter] == 'P') {
			if (!encoded_size(bytes[pos]))
				return -ENOENT;
			pos += 1 + encoded_size(bytes[pos]);
		} else if (bytes[letter] == 'L') {
			pos++;
		} else if (bytes[letter] != 'S' && bytes[letter] != 'B') {
			return -ENOENT;
		}
	}
	return -ENOENT;
}

/* Value of an encoded pointer. at: the address where its bytes are. */
static uint64_t decode_pointer(const uint8_t *bytes, uint8_t encoding, uint64_t at)
{
	uint64_t value = 0;
	int32_t value32;

	if (encoded_size(encoding) == 4) {
		memcpy(&value32, bytes, sizeof(value32));
		value = (encoding & PE_FORMAT) == PE_SDATA4 ? (uint64_t)(int64_t)value32
							    : (uint32_t)value32;
	} else {
		memcpy(&value, bytes, sizeof(value));
	}
	return encoding & PE_PCREL ? value + at : value;
}

/* Reads the range of a function from {u32 length, u32 distance to the CIE, start, size}. */
static int read_fde(const struct elf *elf, uint64_t fde, uint64_t *start, uint64_t *size)
{
	uint32_t head[2];
	uint8_t encoding, range[16];
	size_t width;

	if (elf__read(elf, fde, head, sizeof(head)) || !head[0] || head[0] == UINT32_MAX ||
	    !head[1])
		return -ENOENT;
	/* absolute, or relative to the field's own address */
	if (pointer_encoding(elf, fde + 4 - head[1], &encoding) || (encoding & 0xf0 & ~PE_PCREL))
		return -ENOENT;
	width = encoded_size(encoding);
	if (!width || head[0] < 4 + 2 * width || elf__read(elf, fde + 8, range, 2 * width))
		return -ENOENT;
	*start = decode_pointer(range, encoding, fde + 8);
	/* a length is unsigned: without the bit of the signed formats */
	*size = decode_pointer(range + width, encoding & PE_FORMAT & ~0x08, 0);
	return *size ? 0 : -ENOENT;
}

int elf__function(const struct elf *elf, uint64_t vaddr, uint64_t *start, uint64_t *size)
{
	uint64_t base, fde_start, fde_size;
	struct entry en;
	struct hdr h;

	if (find_unwind_table(elf, &base, &h) ||
	    find_entry(elf, base + sizeof(h), h.count, base, vaddr, &en))
		return -ENOENT;
	if (read_fde(elf, base + (uint64_t)(int64_t)en.fde, &fde_start, &fde_size))
		return -ENOENT;
	/* table and entry must agree, and the function must contain the address */
	if (fde_start != base + (uint64_t)(int64_t)en.start || vaddr < fde_start ||
	    vaddr - fde_start >= fde_size)
		return -ENOENT;
	*start = fde_start;
	*size = fde_size;
	return 0;
}
