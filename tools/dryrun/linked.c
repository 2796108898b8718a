// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A runtime from libcudart_static.a is part of a program or library. Its functions are local, so no
 * preloaded library can replace them by name. It also refuses to work with a driver that is not
 * NVIDIA's. While an object's symbol table (.symtab) is there, its functions are known: a jump to
 * the exported function of the same name goes to their start.
 *
 * Observers put probes on exported functions only, so no probe is where such a jump is.
 */
#include "linked.h"
#include "dryrun.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OBJECTS 8192
#define MAX_NAME 96
#define OLDEST 12000 /* CUDART_VERSION: layouts of CUDA 12 and 13 are known */

#if defined(__x86_64__)
/* mov r11, target; jmp r11 */
static const unsigned char jump[] = { 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3 };
#define TARGET_AT 2
#elif defined(__aarch64__)
/* bti c; ldr x16, #8; br x16; target. The first is a hint that other processors skip. */
static const unsigned char jump[] = { 0x5f, 0x24, 0x03, 0xd5, 0x50, 0x00, 0x00, 0x58, 0x00, 0x02,
				      0x1f, 0xd6, 0,	0,    0,    0,	  0,	0,    0,    0 };
#define TARGET_AT 12
#else
#error "a jump for this processor"
#endif

/* An object's file in memory, read as far as the header says. */
struct image {
	const unsigned char *at;
	size_t size;
	uintptr_t bias; /* of the loaded object */
	const Elf64_Sym *syms;
	size_t n_syms;
	const char *names;
	size_t names_size;
};

/* Objects of the last scan. */
static struct object {
	const void *dyn;
	const char *name;
	unsigned int scan;
	bool redirected;
} objects[MAX_OBJECTS];
static unsigned int n_objects, scan;
static unsigned long long adds; /* dlpi_adds at the last scan */
static int version;

/* ---- this library's own functions ---- */

static struct {
	uintptr_t bias;
	const Elf64_Sym *syms;
	const char *names;
	const uint32_t *hash; /* DT_GNU_HASH */
} own;

void *linked__own(const char *name)
{
	const uint32_t *buckets, *chain;
	uint32_t h = 5381, i;

	if (!own.hash || !own.syms || !own.names)
		return NULL;
	for (const char *c = name; *c; c++)
		h = h * 33 + (unsigned char)*c;
	/* number of buckets, first hashed symbol, words of 8 bytes of the filter, shift */
	buckets = own.hash + 4 + 2 * own.hash[2];
	chain = buckets + own.hash[0];
	i = buckets[h % own.hash[0]];
	if (i < own.hash[1])
		return NULL;
	for (;; i++) {
		uint32_t other = chain[i - own.hash[1]];

		if ((other | 1) == (h | 1) && !strcmp(own.names + own.syms[i].st_name, name))
			return own.syms[i].st_shndx ? (void *)(own.bias + own.syms[i].st_value)
						    : NULL;
		if (other & 1)
			return NULL;
	}
}

/* ---- a symbol table of a file ---- */

static bool within(const struct image *image, uint64_t at, uint64_t size)
{
	return at <= image->size && size <= image->size - at;
}

static bool find_symbols(struct image *image)
{
	const Elf64_Ehdr *eh = (const void *)image->at;
	const Elf64_Shdr *sh, *link;

	if (!within(image, 0, sizeof(*eh)) || memcmp(eh->e_ident, ELFMAG, SELFMAG) ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_shentsize != sizeof(*sh) ||
	    eh->e_shoff % 8 || !within(image, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*sh)))
		return false;
	sh = (const void *)(image->at + eh->e_shoff);
	for (unsigned int i = 0; i < eh->e_shnum; i++) {
		if (sh[i].sh_type != SHT_SYMTAB || sh[i].sh_link >= eh->e_shnum)
			continue;
		link = &sh[sh[i].sh_link];
		if (sh[i].sh_offset % 8 || !within(image, sh[i].sh_offset, sh[i].sh_size) ||
		    !within(image, link->sh_offset, link->sh_size) || !link->sh_size ||
		    image->at[link->sh_offset + link->sh_size - 1])
			return false;
		image->syms = (const void *)(image->at + sh[i].sh_offset);
		image->n_syms = sh[i].sh_size / sizeof(Elf64_Sym);
		image->names = (const char *)image->at + link->sh_offset;
		image->names_size = link->sh_size;
		return true;
	}
	return false;
}

/* The name of a function that the object does not export; NULL: not such a function. */
static const char *local_function(const struct image *image, const Elf64_Sym *sym)
{
	int shown = ELF64_ST_VISIBILITY(sym->st_other);

	if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC || !sym->st_shndx || !sym->st_value ||
	    sym->st_name >= image->names_size ||
	    (ELF64_ST_BIND(sym->st_info) != STB_LOCAL && shown != STV_HIDDEN &&
	     shown != STV_INTERNAL))
		return NULL;
	return image->names + sym->st_name;
}

/* CUDART_VERSION of the runtime in an object; 0: there is none. The runtime's own symbols tell it
 * from functions that a program calls so. */
static int runtime_in(const struct image *image)
{
	static const char mark[] = "libcudart_static_";
	int (*ask)(int *) = NULL;
	bool marked = false;
	int found = 0;

	for (size_t i = 0; i < image->n_syms && !(ask && marked); i++) {
		const Elf64_Sym *sym = &image->syms[i];
		const char *name = local_function(image, sym);

		if (name && *name == 'c' && !strcmp(name, "cudaRuntimeGetVersion"))
			ask = (int (*)(int *))(image->bias + sym->st_value);
		else if (sym->st_name < image->names_size)
			marked |= !strncmp(image->names + sym->st_name, mark, sizeof(mark) - 1);
	}
	return ask && marked && !ask(&found) ? found : 0;
}

/* ---- jumps ---- */

/* This library's function for a runtime's; its forms for a default stream per thread are the same
 * here. */
static void *answer(const char *name)
{
	char plain[MAX_NAME];
	size_t n = strlen(name);
	void *found = linked__own(name);

	if (found || n < 6 || n >= sizeof(plain) ||
	    (strcmp(name + n - 5, "_ptsz") && strcmp(name + n - 5, "_ptds")))
		return found;
	memcpy(plain, name, n - 5);
	plain[n - 5] = '\0';
	return linked__own(plain);
}

/* False: the system does not let code be written. */
static bool write_jump(uintptr_t at, const void *target)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = at & -page;
	size_t size = at + sizeof(jump) - first;
	unsigned char code[sizeof(jump)];

	memcpy(code, jump, sizeof(code));
	memcpy(code + TARGET_AT, &target, sizeof(target));
	if (mprotect((void *)first, size, PROT_READ | PROT_WRITE | PROT_EXEC))
		return false;
	memcpy((void *)at, code, sizeof(code));
	__builtin___clear_cache((char *)at, (char *)at + sizeof(code));
	return !mprotect((void *)first, size, PROT_READ | PROT_EXEC);
}

static bool redirect(const struct image *image, const char *path)
{
	for (size_t i = 0; i < image->n_syms; i++) {
		const Elf64_Sym *sym = &image->syms[i];
		const char *name = local_function(image, sym);
		void *target;

		if (!name || (strncmp(name, "cuda", 4) && strncmp(name, "__cuda", 6)) ||
		    sym->st_size < sizeof(jump))
			continue;
		target = answer(name);
		if (target && !write_jump(image->bias + sym->st_value, target)) {
			fprintf(stderr,
				"memtrace-bpf: dry run: cannot redirect the CUDA runtime that is "
				"linked into %s: the system refuses changes of code\n",
				path);
			return false;
		}
	}
	return true;
}

/* ---- objects ---- */

/* True if a runtime is in the object, and its functions are redirected. */
static bool look_into(const char *path, uintptr_t bias)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), found;
	struct image image = { .bias = bias };
	bool done = false;
	struct stat st;
	void *at;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr)) {
		close(fd);
		return false;
	}
	image.size = (size_t)st.st_size;
	at = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return false;
	image.at = at;
	found = find_symbols(&image) ? runtime_in(&image) : 0;
	if (found >= OLDEST && redirect(&image, path)) {
		done = true;
		if (found > version)
			__atomic_store_n(&version, found, __ATOMIC_RELEASE);
		memtrace_dryrun_usage.linked = (uint32_t)version;
	}
	munmap(at, image.size);
	return done;
}

/* A table of a loaded object. glibc adds the load address to the entries, except in the vDSO's. */
static const void *table(const struct dl_phdr_info *info, uint64_t value)
{
	return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

/* Large symbol tables, and no CUDA in them. */
static bool is_large(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return !strcmp(base, "libtorch_cpu.so") || !strcmp(base, "libtriton.so");
}

/* A static runtime opens the driver with dlopen() and needs no libcudart. */
static bool may_have_runtime(const struct dl_phdr_info *info, const Elf64_Dyn *dyn)
{
	const char *names = NULL;
	size_t size = 0;

	for (const Elf64_Dyn *d = dyn; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_STRTAB)
			names = table(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRSZ)
			size = d->d_un.d_val;
	}
	for (const Elf64_Dyn *d = dyn; names && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED && d->d_un.d_val < size &&
		    !strncmp(names + d->d_un.d_val, "libcudart.so", 12))
			return false;
	return names && memmem(names, size, "dlsym", sizeof("dlsym")) &&
	       memmem(names, size, "dlopen", sizeof("dlopen"));
}

static void begin(void)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < n_objects; i++)
		if (objects[i].scan == scan)
			objects[kept++] = objects[i];
	n_objects = kept;
	scan++;
}

/* An object that is new; NULL: it is known, or there are too many. */
static struct object *note(const void *dyn, const char *name)
{
	for (unsigned int i = 0; i < n_objects; i++)
		if (objects[i].dyn == dyn && objects[i].name == name) {
			objects[i].scan = scan;
			return NULL;
		}
	if (n_objects == MAX_OBJECTS)
		return NULL;
	objects[n_objects] = (struct object){ .dyn = dyn, .name = name, .scan = scan };
	return &objects[n_objects++];
}

/* Runs with the loader's lock of its list, so one thread at a time. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	const Elf64_Dyn *dyn = NULL;
	struct object *object;
	bool first = !*(bool *)arg;

	if (first && info->dlpi_adds == adds)
		return 1;
	if (first)
		begin();
	*(bool *)arg = true;
	adds = info->dlpi_adds;
	for (unsigned int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	object = dyn ? note(dyn, info->dlpi_name) : NULL;
	if (object && info->dlpi_addr != own.bias && !is_large(info->dlpi_name) &&
	    may_have_runtime(info, dyn))
		object->redirected = look_into(first ? "/proc/self/exe" : info->dlpi_name,
					       info->dlpi_addr);
	return 0;
}

void linked__scan(void)
{
	bool began = false;

	if (own.hash)
		dl_iterate_phdr(look_at, &began);
}

int linked__version(void)
{
	return __atomic_load_n(&version, __ATOMIC_ACQUIRE);
}

struct question {
	uintptr_t code;
	bool answer;
};

static int is_redirected(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct question *q = arg;
	bool here = false;

	for (unsigned int i = 0; i < info->dlpi_phnum; i++)
		here |= info->dlpi_phdr[i].p_type == PT_LOAD &&
			q->code - info->dlpi_addr - info->dlpi_phdr[i].p_vaddr <
				info->dlpi_phdr[i].p_memsz;
	for (unsigned int i = 0; here && i < n_objects; i++)
		q->answer |= objects[i].name == info->dlpi_name && objects[i].redirected;
	return here;
}

bool linked__redirected(const void *code)
{
	struct question q = { .code = (uintptr_t)code };

	dl_iterate_phdr(is_redirected, &q);
	return q.answer;
}

static int find_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct link_map *map = arg;

	if (info->dlpi_addr != map->l_addr)
		return 0;
	for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			own.syms = table(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			own.names = table(info, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			own.hash = table(info, d->d_un.d_ptr);
	}
	own.bias = info->dlpi_addr;
	return 1;
}

/* The program and what it needs; libraries that it opens later come in dlsym(). */
__attribute__((constructor)) static void start(void)
{
	struct link_map *map;
	Dl_info info;

	if (dladdr1(&memtrace_dryrun_usage, &info, (void **)&map, RTLD_DL_LINKMAP))
		dl_iterate_phdr(find_own, map);
	linked__scan();
}
