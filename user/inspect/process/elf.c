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
static int place_of(const struct elf *e, uint64_t off, size_t len, uint64_t *ret)
{
	size_t i;

	*ret = off;
	for (i = 0; i < e->n_pieces; i++) {
		const struct piece *p = &e->piece[i];

		if (off < p->off || off - p->off >= p->len || len > p->len - (off - p->off))
			continue;
		*ret = p->addr + (off - p->off);
		return 0;
	}
	return e->n_pieces ? -EIO : 0;
}

/* Reads the file's bytes at off. 0; -ERANGE: beyond the file; -EIO. */
static int read_file(const struct elf *e, uint64_t off, void *buf, size_t len)
{
	uint64_t end, at;

	if (__builtin_add_overflow(off, len, &end) || end > e->size)
		return -ERANGE;
	if (place_of(e, off, len, &at))
		return -EIO;
	/* proc__read() does not use /proc/PID/mem, which would hold the address space's lock until
	 * the server of the file system replies. Meanwhile the process could not fork, and no probe
	 * be attached. */
	if (e->process)
		return proc__read(e->process, at, buf, len) ? -EIO : 0;
	/* Fewer bytes mean an I/O error, or that the file was truncated meanwhile. */
	return io__pread(e->fd, buf, len, at) == (ssize_t)len ? 0 : -EIO;
}

/* Reads len bytes at offset `off` of a span. 0, -ERANGE beyond the file or the span, -EIO. */
static int read_span(const struct elf *e, const struct span *s, uint64_t off, void *buf, size_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end) || end > s->len)
		return -ERANGE;
	return read_file(e, s->off + off, buf, len);
}

/* The span, cut at the file's end. */
static struct span span_in_file(const struct elf *e, uint64_t off, uint64_t len)
{
	if (off >= e->size)
		return (struct span){ 0, 0 };
	return (struct span){ off, len < e->size - off ? len : e->size - off };
}

/* Sets *ret from vaddr to the end of its segment's bytes in the file. 0; -ERANGE: no segment has
 * vaddr in the file. */
static int span_at(const struct elf *e, uint64_t vaddr, struct span *ret)
{
	const Elf64_Phdr *ph;
	uint64_t within, off;
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		ph = &e->ph[i];
		if (ph->p_type != PT_LOAD || vaddr < ph->p_vaddr)
			continue;
		within = vaddr - ph->p_vaddr;
		if (within >= ph->p_filesz || __builtin_add_overflow(ph->p_offset, within, &off))
			continue;
		*ret = span_in_file(e, off, ph->p_filesz - within);
		return ret->len ? 0 : -ERANGE;
	}
	return -ERANGE;
}

static int load_phdrs(struct elf *e, const Elf64_Ehdr *eh)
{
	if (!eh->e_phnum)
		return 0;
	if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum > PHDR_MAX)
		return -ENOEXEC;
	e->ph = malloc(eh->e_phnum * sizeof(*e->ph));
	if (!e->ph)
		return -ENOMEM;
	if (read_file(e, eh->e_phoff, e->ph, eh->e_phnum * sizeof(*e->ph)))
		return -ENOEXEC;
	e->ph_n = eh->e_phnum;
	return 0;
}

/* Section headers are optional: unreadable ones are left out. Only ENOMEM is an error. */
static int load_shdrs(struct elf *e, const Elf64_Ehdr *eh)
{
	uint64_t n = eh->e_shnum;
	uint32_t strndx = eh->e_shstrndx;
	Elf64_Shdr first, *sh;

	if (!eh->e_shoff || eh->e_shentsize != sizeof(first) ||
	    read_file(e, eh->e_shoff, &first, sizeof(first)))
		return 0;
	if (!n)
		n = first.sh_size; /* above 65279 sections the number is here */
	if (strndx == SHN_XINDEX)
		strndx = first.sh_link;
	if (!n || n > SHDR_MAX)
		return 0;
	sh = malloc(n * sizeof(*sh));
	if (!sh)
		return -ENOMEM;
	if (read_file(e, eh->e_shoff, sh, n * sizeof(*sh))) {
		free(sh);
		return 0;
	}
	e->sh = sh;
	e->sh_n = (uint32_t)n;
	if (strndx < n && sh[strndx].sh_type == SHT_STRTAB)
		e->shstr = span_in_file(e, sh[strndx].sh_offset, sh[strndx].sh_size);
	return 0;
}

/* Reads a NUL-terminated string from the dynamic symbols' string table, cut to size. */
static void read_string(const struct elf *e, uint64_t off, char *buf, size_t size)
{
	size_t len;

	if (off >= e->strtab.len)
		return;
	len = e->strtab.len - off < size - 1 ? e->strtab.len - off : size - 1;
	if (read_span(e, &e->strtab, off, buf, len))
		len = 0;
	buf[len] = '\0';
}

/* Finds a table by its dynamic entry. In a process's memory the dynamic linker has mostly replaced
 * the virtual addresses in entries by addresses. */
static int table_at(const struct elf *e, uint64_t ptr, struct span *ret)
{
	uint64_t bias;

	if (!span_at(e, ptr, ret))
		return 0;
	if (!e->n_pieces || elf__bias(e, e->piece[0].addr, e->piece[0].off, &bias))
		return -ERANGE;
	return span_at(e, ptr - bias, ret);
}

/* Finds the tables that the dynamic segment names. Only ENOMEM is an error. */
static int read_dynamic(struct elf *e, const Elf64_Phdr *ph)
{
	uint64_t n = ph->p_filesz / sizeof(Elf64_Dyn), i;
	uint64_t by_tag[DT_NUM] = { [DT_SONAME] = UINT64_MAX }, gnu_hash = 0;
	Elf64_Dyn *dyn;

	if (n > DYN_MAX)
		n = DYN_MAX;
	dyn = malloc(n ? n * sizeof(*dyn) : 1);
	if (!dyn)
		return -ENOMEM;
	if (read_file(e, ph->p_offset, dyn, n * sizeof(*dyn)))
		n = 0;
	for (i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
		if (dyn[i].d_tag == DT_GNU_HASH)
			gnu_hash = dyn[i].d_un.d_ptr;
		else if ((uint64_t)dyn[i].d_tag < DT_NUM)
			by_tag[dyn[i].d_tag] = dyn[i].d_un.d_val;
	}
	free(dyn);
	if (by_tag[DT_RELA] && !table_at(e, by_tag[DT_RELA], &e->rela) &&
	    by_tag[DT_RELASZ] < e->rela.len)
		e->rela.len = by_tag[DT_RELASZ];
	if (!by_tag[DT_SYMTAB] || !by_tag[DT_STRTAB] ||
	    table_at(e, by_tag[DT_SYMTAB], &e->symtab) ||
	    table_at(e, by_tag[DT_STRTAB], &e->strtab)) {
		e->symtab = e->strtab = (struct span){ 0, 0 };
		return 0;
	}
	e->symtab_vaddr = by_tag[DT_SYMTAB];
	if (by_tag[DT_STRSZ] < e->strtab.len)
		e->strtab.len = by_tag[DT_STRSZ];
	/* Without a hash table, slower look-ups remain. */
	if (gnu_hash)
		(void)table_at(e, gnu_hash, &e->gnu_hash);
	if (by_tag[DT_HASH])
		(void)table_at(e, by_tag[DT_HASH], &e->sysv_hash);
	read_string(e, by_tag[DT_SONAME], e->soname, sizeof(e->soname));
	return 0;
}

/* Finds the symbol tables. The dynamic segment takes precedence, since the loader uses it and tools
 * keep it valid. Section headers add the exact number of symbols. */
static int find_tables(struct elf *e)
{
	uint32_t i;
	int err;

	for (i = 0; i < e->ph_n; i++) {
		if (e->ph[i].p_type != PT_DYNAMIC)
			continue;
		err = read_dynamic(e, &e->ph[i]);
		if (err)
			return err;
		break;
	}
	for (i = 0; i < e->sh_n; i++) {
		const Elf64_Shdr *sh = &e->sh[i];

		if (sh->sh_type != SHT_DYNSYM || sh->sh_link >= e->sh_n)
			continue;
		if (e->symtab.len && sh->sh_addr != e->symtab_vaddr)
			continue; /* not the dynamic segment's table */
		if (!e->symtab.len)
			e->strtab = span_in_file(e, e->sh[sh->sh_link].sh_offset,
						 e->sh[sh->sh_link].sh_size);
		if (!e->symtab.len || sh->sh_size < e->symtab.len)
			e->symtab = span_in_file(e, e->symtab.len ? e->symtab.off : sh->sh_offset,
						 sh->sh_size);
		e->sym_n = sh->sh_size / sizeof(Elf64_Sym);
		break;
	}
	return 0;
}

static int read_headers(struct elf *e)
{
	Elf64_Ehdr eh;
	struct stat st;
	int err;

	if (!e->n_pieces) {
		if (fstat(e->fd, &st))
			return -EIO;
		if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(eh))
			return -ENOEXEC;
		e->size = (uint64_t)st.st_size;
	}
	err = read_file(e, 0, &eh, sizeof(eh));
	if (err)
		return -EIO;
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_ident[EI_VERSION] != EV_CURRENT ||
	    (eh.e_type != ET_DYN && eh.e_type != ET_EXEC))
		return -ENOEXEC;
	e->machine = eh.e_machine;
	err = load_phdrs(e, &eh) ?: load_shdrs(e, &eh);
	return err ?: find_tables(e);
}

static struct elf *new_elf(int fd)
{
	struct elf *e = calloc(1, sizeof(*e));

	if (!e) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	e->fd = fd;
	return e;
}

static struct elf *finish_open(struct elf *e)
{
	int err = read_headers(e);

	if (err) {
		elf__free(e);
		errno = -err;
		return NULL;
	}
	return e;
}

/* Opens the mapped parts of a file. They include headers, symbols and code, and mostly no section
 * headers. */
static struct elf *open_memory(const struct proc *p, const struct map *map)
{
	int image = proc__image(p), err;
	struct maps maps;
	struct elf *e;
	size_t i;

	/* If not even the process's memory can be opened, report that error. */
	if (image < 0) {
		errno = -image;
		return NULL;
	}
	close(image);
	e = new_elf(proc__pin_map(p, map));
	if (!e)
		return NULL;
	e->process = proc__open(proc__pid(p));
	if (!e->process)
		err = -errno;
	else
		err = proc__alive(p) ? proc__maps(p, &maps) : -ESRCH;
	if (err) {
		elf__free(e);
		errno = -err;
		return NULL;
	}
	for (i = 0; i < maps.n && e->n_pieces < PIECES_MAX; i++) {
		const struct map *m = &maps.v[i];

		if (m->inode != map->inode || m->dev_major != map->dev_major ||
		    m->dev_minor != map->dev_minor || m->offset > UINT64_MAX - (m->end - m->start))
			continue;
		e->piece[e->n_pieces++] = (struct piece){ m->start, m->offset, m->end - m->start };
		if (m->offset + (m->end - m->start) > e->size)
			e->size = m->offset + (m->end - m->start);
	}
	maps__free(&maps);
	if (e->n_pieces)
		return finish_open(e);
	elf__free(e);
	errno = ENOENT;
	return NULL;
}

struct elf *elf__open_map(const struct proc *p, const struct map *map)
{
	int fd = proc__open_map(p, map);
	struct elf *e;

	if (fd >= 0)
		return elf__open_fd(fd);
	/* root cannot open files on another user's FUSE mount */
	e = (fd == -EACCES || fd == -EPERM) && !proc__files_only(p) ? open_memory(p, map) : NULL;
	if (!e)
		errno = -fd;
	return e;
}

struct elf *elf__open_fd(int fd)
{
	struct elf *e;

	if (fd < 0) {
		errno = EIO;
		return NULL;
	}
	e = new_elf(fd);
	return e ? finish_open(e) : NULL;
}

struct elf *elf__share(struct elf *e)
{
	e->users++;
	return e;
}

void elf__free(struct elf *e)
{
	if (!e || e->users--)
		return;
	if (e->fd >= 0)
		close(e->fd);
	proc__free(e->process);
	free(e->ph);
	free(e->sh);
	free(e);
}

bool elf__is_memory(const struct elf *e)
{
	return e->process;
}

char *elf__name(const struct elf *e, char buf[ELF_NAME])
{
	if (e->fd < 0)
		return NULL;
	snprintf(buf, ELF_NAME, "/proc/self/fd/%d", e->fd);
	return buf;
}

uint16_t elf__machine(const struct elf *e)
{
	return e->machine;
}

const char *elf__soname(const struct elf *e)
{
	return e->soname;
}

/* ---- addresses ---- */

static const Elf64_Shdr *find_section(const struct elf *e, const char *name)
{
	size_t len = strlen(name) + 1;
	char buf[64];
	uint32_t i;

	if (len > sizeof(buf))
		return NULL;
	for (i = 0; i < e->sh_n; i++)
		if (e->sh[i].sh_type != SHT_NULL &&
		    !read_span(e, &e->shstr, e->sh[i].sh_name, buf, len) && !memcmp(buf, name, len))
			return &e->sh[i];
	return NULL;
}

int elf__section(const struct elf *e, const char *name, uint64_t *addr, uint64_t *size)
{
	const Elf64_Shdr *sh = find_section(e, name);

	if (!sh)
		return -ENOENT;
	*addr = sh->sh_addr;
	*size = sh->sh_size;
	return 0;
}

int elf__section_bytes(const struct elf *e, const char *name, size_t max, uint8_t **ret,
		       size_t *len)
{
	const Elf64_Shdr *sh = find_section(e, name);
	uint8_t *buf;
	int err;

	if (!sh || sh->sh_type == SHT_NOBITS || !sh->sh_size)
		return -ENOENT;
	if (sh->sh_size > max)
		return -EFBIG;
	buf = malloc(sh->sh_size);
	if (!buf)
		return -ENOMEM;
	err = read_file(e, sh->sh_offset, buf, sh->sh_size);
	if (err) {
		free(buf);
		return err;
	}
	*ret = buf;
	*len = sh->sh_size;
	return 0;
}

int elf__vaddr_to_offset(const struct elf *e, uint64_t vaddr, uint64_t *ret)
{
	struct span s;

	if (span_at(e, vaddr, &s))
		return -ERANGE;
	*ret = s.off;
	return 0;
}

/* Finds the segment of the mapping. Segments are mapped in whole pages, so two may share a page of
 * the file: a segment that begins at the mapping's first page is preferred to one that contains it.
 */
int elf__bias(const struct elf *e, uint64_t map_start, uint64_t map_offset, uint64_t *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), mask = ~(page - 1), first_page, end;
	const Elf64_Phdr *ph, *found = NULL;
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		ph = &e->ph[i];
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

int elf__read(const struct elf *e, uint64_t vaddr, void *buf, size_t len)
{
	struct span s;
	int err;

	err = span_at(e, vaddr, &s);
	return err ?: read_span(e, &s, 0, buf, len);
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

/* Sets *ret to the value that a relocation writes, without the load bias. False: it is not an
 * address in this file. */
static bool relocated_value(const struct elf *e, const Elf64_Rela *r, uint64_t *ret)
{
	uint64_t type = ELF64_R_TYPE(r->r_info),
		 sym_at = ELF64_R_SYM(r->r_info) * sizeof(Elf64_Sym);
	Elf64_Sym sym;

	*ret = (uint64_t)r->r_addend;
	if (type == R_RELATIVE(e->machine))
		return true;
	if (type != R_SYMBOL(e->machine) || read_span(e, &e->symtab, sym_at, &sym, sizeof(sym)) ||
	    sym.st_shndx == SHN_UNDEF)
		return false;
	*ret += sym.st_value;
	return true;
}

/* Calls fn for each relocation until it returns true. */
static void each_rela(const struct elf *e, bool (*fn)(const Elf64_Rela *r, void *ctx), void *ctx)
{
	uint64_t total = e->rela.len / sizeof(Elf64_Rela), done, n;
	Elf64_Rela buf[DATA_CHUNK];

	if (total > RELA_MAX)
		total = RELA_MAX;
	for (done = 0; done < total; done += n) {
		n = total - done < DATA_CHUNK ? total - done : DATA_CHUNK;
		if (read_span(e, &e->rela, done * sizeof(*buf), buf, n * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < n; i++) {
			if (fn(&buf[i], ctx))
				return;
		}
	}
}

/* Search for the relocation at vaddr. */
struct at_place {
	const struct elf *e;
	uint64_t vaddr, value;
	bool found, known; /* found: there is one; known: value is what it writes */
};

/* For each_rela(): stops at the relocation of struct at_place. */
static bool match_place(const Elf64_Rela *r, void *ctx)
{
	struct at_place *a = ctx;

	if (r->r_offset != a->vaddr)
		return false;
	a->found = true;
	a->known = relocated_value(a->e, r, &a->value);
	return true;
}

/* A relocation at vaddr decides; without one, the bytes in the file are the value. */
int elf__pointer(const struct elf *e, uint64_t vaddr, uint64_t *ret)
{
	struct at_place a = { .e = e, .vaddr = vaddr };
	int err = 0;

	if (elf__is_memory(e))
		return -ENOTSUP;
	each_rela(e, match_place, &a);
	if (a.found && !a.known)
		return -ENOENT;
	if (!a.found)
		err = elf__read(e, vaddr, &a.value, sizeof(a.value));
	if (!err)
		*ret = a.value;
	return err;
}

/* Search for pointers with this value: their addresses, at most max. */
struct places {
	const struct elf *e;
	uint64_t value, *at;
	size_t n, max;
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
	if ((ELF64_R_TYPE(r->r_info) != R_RELATIVE(p->e->machine) ||
	     (uint64_t)r->r_addend == p->value) &&
	    relocated_value(p->e, r, &value) && value == p->value)
		add_place(p, r->r_offset);
	return p->n == p->max;
}

/* Searches the 8-byte words of one data segment in the file. */
static void search_data(struct places *p, const Elf64_Phdr *ph)
{
	uint64_t len = ph->p_filesz < DATA_MAX ? ph->p_filesz : DATA_MAX, buf[DATA_CHUNK], done, n;
	uint64_t start = (ph->p_vaddr + 7) & ~UINT64_C(7);

	if (len < start - ph->p_vaddr)
		return;
	len -= start - ph->p_vaddr;
	for (done = 0; len - done >= sizeof(*buf); done += n * sizeof(*buf)) {
		n = (len - done) / sizeof(*buf) < DATA_CHUNK ? (len - done) / sizeof(*buf)
							     : DATA_CHUNK;
		if (elf__read(p->e, start + done, buf, n * sizeof(*buf)))
			return;
		for (uint64_t i = 0; i < n; i++) {
			if (buf[i] == p->value)
				add_place(p, start + done + i * sizeof(*buf));
		}
	}
}

size_t elf__pointers_to(const struct elf *e, uint64_t value, uint64_t *at, size_t max)
{
	struct places p = { .e = e, .value = value, .at = at, .max = max };

	if (elf__is_memory(e) || !value)
		return 0;
	each_rela(e, match_value, &p);
	for (uint32_t i = 0; i < e->ph_n; i++) {
		if (e->ph[i].p_type == PT_LOAD && e->ph[i].p_flags & PF_W)
			search_data(&p, &e->ph[i]);
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

	if (read_span(e, &e->symtab, index * sizeof(*s), s, sizeof(*s)) || !sym_defined(s))
		return false;
	for (pos = 0; pos < len; pos += part) {
		part = len - pos < sizeof(buf) ? len - pos : sizeof(buf);
		if (read_span(e, &e->strtab, s->st_name + (uint64_t)pos, buf, part) ||
		    memcmp(buf, name + pos, part))
			return false;
	}
	return true;
}

struct gnu_hash { /* header of a DT_GNU_HASH table; the Bloom filter, buckets and chains follow */
	uint32_t buckets, first, bloom_words, bloom_shift;
};

/* Offset of bucket i in a DT_GNU_HASH table; below: of a symbol's word in the chains. */
static uint64_t gnu_bucket(const struct gnu_hash *h, uint64_t i)
{
	return sizeof(*h) + 8ull * h->bloom_words + 4 * i;
}

static uint64_t gnu_chain(const struct gnu_hash *h, uint64_t index)
{
	return gnu_bucket(h, h->buckets) + 4 * (index - h->first);
}

/* Reads the header of the DT_GNU_HASH table. -ENOENT: malformed. */
static int gnu_header(const struct elf *e, struct gnu_hash *h)
{
	if (read_span(e, &e->gnu_hash, 0, h, sizeof(*h)))
		return -ENOENT;
	if (!h->buckets || !h->bloom_words || gnu_bucket(h, h->buckets) > e->gnu_hash.len)
		return -ENOENT;
	return 0;
}

/* Looks a name up by the DT_GNU_HASH table: Bloom filter, bucket, chain. len includes the NUL. The
 * lowest bit of a chain's word marks the chain's end; the others are of the symbol's hash. */
static int lookup_gnu(const struct elf *e, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t hash = 5381, index, chain[64], i, steps_left = CHAIN_MAX, n;
	struct gnu_hash h;
	uint64_t bloom, pos;
	size_t k;

	for (k = 0; k + 1 < len; k++)
		hash = hash * 33 + (uint8_t)name[k];
	if (gnu_header(e, &h) ||
	    read_span(e, &e->gnu_hash, sizeof(h) + 8ull * (hash / 64 % h.bloom_words), &bloom,
		      sizeof(bloom)))
		return -ENOENT;
	if (!(bloom >> (hash % 64) & 1) || !(bloom >> ((hash >> (h.bloom_shift & 31)) % 64) & 1))
		return -ENOENT;
	if (read_span(e, &e->gnu_hash, gnu_bucket(&h, hash % h.buckets), &index, sizeof(index)) ||
	    index < h.first)
		return -ENOENT;
	while (steps_left) {
		pos = gnu_chain(&h, index);
		if (pos >= e->gnu_hash.len)
			return -ENOENT;
		n = (e->gnu_hash.len - pos) / 4 < 64 ? (uint32_t)((e->gnu_hash.len - pos) / 4) : 64;
		if (!n || read_span(e, &e->gnu_hash, pos, chain, n * sizeof(chain[0])))
			return -ENOENT;
		for (i = 0; i < n; i++, index++, steps_left--) {
			if ((chain[i] | 1) == (hash | 1) && sym_matches(e, index, name, len, ret))
				return 0;
			if (chain[i] & 1 || index == UINT32_MAX || steps_left == 1)
				return -ENOENT;
		}
	}
	return -ENOENT;
}

/* As lookup_gnu(), by the DT_HASH table {buckets, chains, bucket[], chain[]}. */
static int lookup_sysv(const struct elf *e, const char *name, size_t len, Elf64_Sym *ret)
{
	uint32_t head[2], hash = 0, top_bits, index, steps_left = CHAIN_MAX;
	size_t k;

	for (k = 0; k + 1 < len; k++) {
		hash = (hash << 4) + (uint8_t)name[k];
		top_bits = hash & 0xf0000000;
		hash = (hash ^ top_bits >> 24) & ~top_bits;
	}
	if (read_span(e, &e->sysv_hash, 0, head, sizeof(head)) || !head[0] ||
	    read_span(e, &e->sysv_hash, 8 + 4ull * (hash % head[0]), &index, sizeof(index)))
		return -ENOENT;
	for (; index && steps_left; steps_left--) {
		if (sym_matches(e, index, name, len, ret))
			return 0;
		if (index >= head[1] ||
		    read_span(e, &e->sysv_hash, 8 + 4ull * head[0] + 4ull * index, &index,
			      sizeof(index)))
			return -ENOENT;
	}
	return -ENOENT;
}

/* Number of symbols: one past the last that a hash chain reaches. The chain that starts at the
 * highest index has the last one. */
static uint64_t gnu_count(const struct elf *e)
{
	uint32_t buf[CHUNK], last = 0, n, i, words_left = SYM_MAX;
	struct gnu_hash h;
	uint64_t bucket, pos;

	if (gnu_header(e, &h))
		return 0;
	if (h.buckets > SYM_MAX)
		return h.buckets; /* more than callers accept */
	for (bucket = 0; bucket < h.buckets; bucket += n) {
		n = h.buckets - bucket < CHUNK ? (uint32_t)(h.buckets - bucket) : CHUNK;
		if (read_span(e, &e->gnu_hash, gnu_bucket(&h, bucket), buf, n * sizeof(buf[0])))
			return 0;
		for (i = 0; i < n; i++)
			if (buf[i] > last)
				last = buf[i];
	}
	if (last < h.first)
		return h.first;
	for (; words_left; words_left -= n < words_left ? n : words_left) {
		pos = gnu_chain(&h, last);
		if (pos >= e->gnu_hash.len)
			return last;
		n = (e->gnu_hash.len - pos) / 4 < CHUNK ? (uint32_t)((e->gnu_hash.len - pos) / 4)
							: CHUNK;
		if (!n || read_span(e, &e->gnu_hash, pos, buf, n * sizeof(buf[0])))
			return last;
		for (i = 0; i < n; i++, last++)
			if (buf[i] & 1 || last >= SYM_MAX)
				return (uint64_t)last + 1;
	}
	return last;
}

/* Number of dynamic symbols: by the section header, otherwise by a hash table; at most what fits. */
static uint64_t sym_count(const struct elf *e)
{
	uint64_t fits = e->symtab.len / sizeof(Elf64_Sym), n = e->sym_n;
	uint32_t head[2];

	if (!n && e->sysv_hash.len && !read_span(e, &e->sysv_hash, 0, head, sizeof(head)))
		n = head[1];
	if (!n && e->gnu_hash.len)
		n = gnu_count(e);
	return n < fits ? n : fits;
}

/* Calls fn for each dynamic symbol with a name that is defined, or if imports is true, undefined,
 * until fn returns other than 0. names: the whole string table, with a NUL added at the end.
 * Returns the last result of fn, -ENOMEM or -EIO. */
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
		if (read_span(e, &e->symtab, done * sizeof(*buf), buf, n * sizeof(*buf))) {
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

/* Calls fn for the defined symbols, or the imported ones, of a file within the limits. */
static int each_named(const struct elf *e, bool imports,
		      int (*fn)(const char *name, const struct elf_sym *sym, void *ctx), void *ctx)
{
	bool plain = !e->gnu_hash.len && !e->sysv_hash.len;
	uint64_t strtab_max = plain ? PLAIN_STRTAB_MAX : STRTAB_MAX;
	uint64_t sym_max = plain ? PLAIN_SYM_MAX : SYM_MAX;
	char *names;
	int ret;

	if (!e->symtab.len || !e->strtab.len)
		return 0;
	if (e->strtab.len > strtab_max || sym_count(e) > sym_max)
		return -EFBIG;
	names = malloc(e->strtab.len + 1);
	if (!names)
		return -ENOMEM;
	ret = read_span(e, &e->strtab, 0, names, e->strtab.len);
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

/* Looks the name up in a hash table, if the file has one, otherwise among all symbols. */
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

/* Finds .eh_frame_hdr and reads its beginning. -ENOENT: none, or of another form. */
static int find_unwind_table(const struct elf *e, uint64_t *vaddr, struct hdr *h)
{
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		if (e->ph[i].p_type != PT_GNU_EH_FRAME)
			continue;
		*vaddr = e->ph[i].p_vaddr;
		if (elf__read(e, *vaddr, h, sizeof(*h)) || h->version != 1)
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

/* Finds the table's last entry with start <= vaddr. */
static int find_entry(const struct elf *e, uint64_t table, uint32_t count, uint64_t base,
		      uint64_t vaddr, struct entry *ret)
{
	uint32_t lo = 0, hi = count, mid;
	struct entry en;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (elf__read(e, table + 8ull * mid, &en, sizeof(en)))
			return -ENOENT;
		if (base + (uint64_t)(int64_t)en.start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || elf__read(e, table + 8ull * (lo - 1), ret, sizeof(*ret)))
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
static int pointer_encoding(const struct elf *e, uint64_t cie, uint8_t *ret)
{
	uint8_t b[CIE_MAX];
	size_t aug = 9, pos, n; /* b + aug: first character of the augmentation */
	uint32_t id;

	if (elf__read(e, cie, b, sizeof(b)))
		return -ENOENT;
	memcpy(&id, b + 4, sizeof(id));
	if (id || (b[8] != 1 && b[8] != 3))
		return -ENOENT;
	n = strnlen((const char *)b + aug, 8);
	if (n == 8 || b[aug] != 'z')
		return -ENOENT;
	pos = skip_leb(b, aug + n + 1, sizeof(b));		 /* code alignment */
	pos = skip_leb(b, pos, sizeof(b));			 /* data alignment */
	pos = b[8] == 1 ? pos + 1 : skip_leb(b, pos, sizeof(b)); /* return address register */
	pos = skip_leb(b, pos, sizeof(b)); /* length of the augmentation data */
	for (aug++; b[aug] && pos < sizeof(b); aug++) {
		if (b[aug] == 'R') {
			*ret = b[pos];
			return 0;
		}
		if (b[aug] == 'P') {
			if (!encoded_size(b[pos]))
				return -ENOENT;
			pos += 1 + encoded_size(b[pos]);
		} else if (b[aug] == 'L') {
			pos++;
		} else if (b[aug] != 'S' && b[aug] != 'B') {
			return -ENOENT;
		}
	}
	return -ENOENT;
}

/* Value of the encoded pointer in b, which was read from the address `at`. */
static uint64_t decode_pointer(const uint8_t *b, uint8_t enc, uint64_t at)
{
	uint64_t v = 0;
	int32_t v32;

	if (encoded_size(enc) == 4) {
		memcpy(&v32, b, sizeof(v32));
		v = (enc & PE_FORMAT) == PE_SDATA4 ? (uint64_t)(int64_t)v32 : (uint32_t)v32;
	} else {
		memcpy(&v, b, sizeof(v));
	}
	return enc & PE_PCREL ? v + at : v;
}

/* Reads the range of a function from {u32 length, u32 distance to the CIE, start, size}. */
static int read_fde(const struct elf *e, uint64_t fde, uint64_t *start, uint64_t *size)
{
	uint32_t head[2];
	uint8_t enc, b[16];
	size_t width;

	if (elf__read(e, fde, head, sizeof(head)) || !head[0] || head[0] == UINT32_MAX || !head[1])
		return -ENOENT;
	if (pointer_encoding(e, fde + 4 - head[1], &enc) || (enc & 0xf0 & ~PE_PCREL))
		return -ENOENT;
	width = encoded_size(enc);
	if (!width || head[0] < 4 + 2 * width || elf__read(e, fde + 8, b, 2 * width))
		return -ENOENT;
	*start = decode_pointer(b, enc, fde + 8);
	*size = decode_pointer(b + width, enc & PE_FORMAT & ~0x08, 0); /* lengths are unsigned */
	return *size ? 0 : -ENOENT;
}

int elf__function(const struct elf *e, uint64_t vaddr, uint64_t *start, uint64_t *size)
{
	uint64_t base, fde_start, fde_size;
	struct entry en;
	struct hdr h;

	if (find_unwind_table(e, &base, &h) ||
	    find_entry(e, base + sizeof(h), h.count, base, vaddr, &en))
		return -ENOENT;
	if (read_fde(e, base + (uint64_t)(int64_t)en.fde, &fde_start, &fde_size))
		return -ENOENT;
	/* table and entry must agree, and the function must contain the address */
	if (fde_start != base + (uint64_t)(int64_t)en.start || vaddr < fde_start ||
	    vaddr - fde_start >= fde_size)
		return -ENOENT;
	*start = fde_start;
	*size = fde_size;
	return 0;
}
