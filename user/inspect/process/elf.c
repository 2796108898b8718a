/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/process/elf_file.h"
#include "base/io.h"
#include "inspect/proc.h"

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

static int read_file(const struct elf *e, uint64_t off, void *buf, size_t len)
{
	uint64_t end, at;

	if (__builtin_add_overflow(off, len, &end) || end > e->size)
		return -ERANGE;
	if (place_of(e, off, len, &at))
		return -EIO;
	/* Not through /proc/PID/mem, which would hold the lock of the address space until the
	 * file's server answers: nobody could attach a probe to a file of this process, or fork,
	 * until then. */
	if (e->process)
		return proc__read(e->process, at, buf, len) ? -EIO : 0;
	/* Fewer bytes: truncated meanwhile, or an I/O error. */
	return io__pread(e->fd, buf, len, at) == (ssize_t)len ? 0 : -EIO;
}

int elf_file__pread_in(const struct elf *e, const struct span *s, uint64_t off, void *buf,
		       size_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end) || end > s->len)
		return -ERANGE;
	return read_file(e, s->off + off, buf, len);
}

static struct span span_in_file(const struct elf *e, uint64_t off, uint64_t len)
{
	if (off >= e->size)
		return (struct span){ 0, 0 };
	return (struct span){ off, len < e->size - off ? len : e->size - off };
}

/* Span from vaddr to the end of the segment's bytes in the file. */
static int span_at(const struct elf *e, uint64_t vaddr, struct span *ret)
{
	const Elf64_Phdr *ph;
	uint64_t in, off;
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		ph = &e->ph[i];
		if (ph->p_type != PT_LOAD || vaddr < ph->p_vaddr)
			continue;
		in = vaddr - ph->p_vaddr;
		if (in >= ph->p_filesz || __builtin_add_overflow(ph->p_offset, in, &off))
			continue;
		*ret = span_in_file(e, off, ph->p_filesz - in);
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
	if (elf_file__pread_in(e, &e->strtab, off, buf, len))
		len = 0;
	buf[len] = '\0';
}

/* Finds a table by its dynamic entry. In memory the dynamic linker has mostly replaced entries by
 * addresses. */
static int table_at(const struct elf *e, uint64_t ptr, struct span *ret)
{
	uint64_t bias;

	if (!span_at(e, ptr, ret))
		return 0;
	if (!e->n_pieces || elf__bias(e, e->piece[0].addr, e->piece[0].off, &bias))
		return -ERANGE;
	return span_at(e, ptr - bias, ret);
}

static int read_dynamic(struct elf *e, const Elf64_Phdr *ph)
{
	uint64_t n = ph->p_filesz / sizeof(Elf64_Dyn), i;
	uint64_t strsz = 0, soname = UINT64_MAX;
	uint64_t symtab = 0, strtab = 0, gnu = 0, sysv = 0, rela = 0, relasz = 0;
	Elf64_Dyn *dyn;

	if (n > DYN_MAX)
		n = DYN_MAX;
	dyn = malloc(n ? n * sizeof(*dyn) : 1);
	if (!dyn)
		return -ENOMEM;
	if (read_file(e, ph->p_offset, dyn, n * sizeof(*dyn)))
		n = 0;
	for (i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
		switch (dyn[i].d_tag) {
		case DT_SYMTAB:
			symtab = dyn[i].d_un.d_ptr;
			break;
		case DT_STRTAB:
			strtab = dyn[i].d_un.d_ptr;
			break;
		case DT_STRSZ:
			strsz = dyn[i].d_un.d_val;
			break;
		case DT_GNU_HASH:
			gnu = dyn[i].d_un.d_ptr;
			break;
		case DT_HASH:
			sysv = dyn[i].d_un.d_ptr;
			break;
		case DT_RELA:
			rela = dyn[i].d_un.d_ptr;
			break;
		case DT_RELASZ:
			relasz = dyn[i].d_un.d_val;
			break;
		case DT_SONAME:
			soname = dyn[i].d_un.d_val;
			break;
		default:
			break;
		}
	}
	free(dyn);
	if (rela && !table_at(e, rela, &e->rela) && relasz < e->rela.len)
		e->rela.len = relasz;
	if (!symtab || !strtab || table_at(e, symtab, &e->symtab) ||
	    table_at(e, strtab, &e->strtab)) {
		e->symtab = e->strtab = (struct span){ 0, 0 };
		return 0;
	}
	e->symtab_vaddr = symtab;
	if (strsz < e->strtab.len)
		e->strtab.len = strsz;
	if (gnu)
		(void)table_at(e, gnu,
			       &e->gnu_hash); /* without a hash table, slower look-ups remain */
	if (sysv)
		(void)table_at(e, sysv, &e->sysv_hash);
	read_string(e, soname, e->soname, sizeof(e->soname));
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
			continue;
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

static int open_file(struct elf *e)
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
	err = load_phdrs(e, &eh);
	if (!err)
		err = load_shdrs(e, &eh);
	return err ? err : find_tables(e);
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

static struct elf *opened(struct elf *e)
{
	int err = open_file(e);

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

	/* Who may not open a process's memory lacks a right for more than this file. */
	if (image < 0) {
		errno = -image;
		return NULL;
	}
	close(image);
	e = new_elf(proc__pin_map(p, map));
	if (!e)
		return NULL;
	e->process = proc__open(proc__pid(p));
	err = !e->process ? -errno : !proc__alive(p) ? -ESRCH : proc__maps(p, &maps);
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
		return opened(e);
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
	return e ? opened(e) : NULL;
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

static const Elf64_Shdr *section(const struct elf *e, const char *name)
{
	size_t len = strlen(name) + 1;
	char buf[64];
	uint32_t i;

	if (len > sizeof(buf))
		return NULL;
	for (i = 0; i < e->sh_n; i++)
		if (e->sh[i].sh_type != SHT_NULL &&
		    !elf_file__pread_in(e, &e->shstr, e->sh[i].sh_name, buf, len) &&
		    !memcmp(buf, name, len))
			return &e->sh[i];
	return NULL;
}

int elf__section(const struct elf *e, const char *name, uint64_t *addr, uint64_t *size)
{
	const Elf64_Shdr *sh = section(e, name);

	if (!sh)
		return -ENOENT;
	*addr = sh->sh_addr;
	*size = sh->sh_size;
	return 0;
}

int elf__section_bytes(const struct elf *e, const char *name, size_t max, uint8_t **ret,
		       size_t *len)
{
	const Elf64_Shdr *sh = section(e, name);
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

/* Segments are mapped in whole pages, so two segments may share a page of the file. The segment
 * that begins at the mapping's start is preferred to one that contains it. */
int elf__bias(const struct elf *e, uint64_t map_start, uint64_t map_offset, uint64_t *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), mask = ~(page - 1), first, end;
	const Elf64_Phdr *ph, *found = NULL;
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		ph = &e->ph[i];
		if (ph->p_type != PT_LOAD || !ph->p_filesz ||
		    ((ph->p_offset ^ ph->p_vaddr) & ~mask))
			continue;
		first = ph->p_offset & mask;
		if (first == map_offset) {
			found = ph;
			break;
		}
		if (!found && map_offset > first &&
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
	return err ? err : elf_file__pread_in(e, &s, 0, buf, len);
}
