/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/arrival.h"

#include <errno.h>
#include <string.h>

#include "inspect/elf.h"

#define FILES_OPENED 8
#define NR_C10 2 /* the first names in `libraries` are libc10's */

/* Libraries that one dlopen() maps together. libtorch_global_deps, which torch loads earlier, is
 * not one. */
static const char *const libraries[] = { "libc10.", "libc10-", "libtorch_cpu.", "libtorch_cpu-",
					 "libtorch_python." };

/* True if the file's name begins with one of the first n names in `libraries`. */
static bool is_library(const struct map *m, size_t n)
{
	const char *base = strrchr(m->path, '/');
	size_t i;

	if (!base || !m->inode)
		return false;
	for (i = 0; i < n; i++) {
		if (!strncmp(base + 1, libraries[i], strlen(libraries[i])))
			return true;
	}
	return false;
}

bool arrival__maps_torch(const struct maps *m)
{
	size_t i;

	for (i = 0; i < m->n; i++) {
		if (m->v[i].x && is_library(&m->v[i], NR_C10))
			return true;
	}
	return false;
}

bool arrival__is_cuda(const struct map *m)
{
	const char *name = m->x ? strrchr(m->path, '/') : NULL;

	return name && (!strncmp(name, "/libcuda.so", 11) || !strncmp(name, "/libcudart", 10));
}

bool arrival__maps_cuda(const struct maps *m)
{
	size_t i;

	for (i = 0; i < m->n; i++)
		if (arrival__is_cuda(&m->v[i]))
			return true;
	return false;
}

/* Functions of libc10 in every version from PyTorch 1.6 on. */
static const char *const c10_functions[] = { "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
					     "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
					     "_ZN3c1015GetCPUAllocatorEv" };

/* Whether the file of m defines one of the functions in c10. Does not read the file through the
 * process's memory: a page of it may have to wait for a file system that the process serves. */
static bool has_c10(const struct proc *p, const struct map *m, bool unreadable)
{
	int fd = proc__open_map(p, m);
	struct elf *e = fd < 0 ? NULL : elf__open_fd(fd);
	/* A file that is no ELF file (ENOEXEC) is not PyTorch. */
	bool ret = !e && (fd < 0 ? unreadable : errno != ENOEXEC);
	struct elf_sym sym;

	for (size_t i = 0; e && !ret && i < sizeof(c10_functions) / sizeof(c10_functions[0]); i++)
		ret = !elf__dynsym(e, c10_functions[i], &sym);
	elf__free(e);
	return ret;
}

bool arrival__maps_c10_functions(const struct proc *p, const struct maps *m, bool unreadable)
{
	int opened = 0;

	/* Opens few files: a process with thousands of such names is not PyTorch. */
	for (size_t i = 0; i < m->n && opened < FILES_OPENED; i++) {
		if (!m->v[i].x || !is_library(&m->v[i], NR_C10))
			continue;
		if (has_c10(p, &m->v[i], unreadable))
			return true;
		opened++;
	}
	return false;
}

/* Whether the dynamic linker has relocated a library: the first pointer in its .init_array points
 * into it. first: the library's lowest mapping. */
static bool is_relocated(const struct proc *p, const struct maps *m, const struct map *first)
{
	uint64_t bias, addr, size, init_func, end = first->end;
	const struct map *map;
	bool known = false;
	struct elf *e;

	for (map = first; map < m->v + m->n; map++) {
		if (map->inode == first->inode && !strcmp(map->path, first->path))
			end = map->end;
	}
	e = elf__open_map(p, first);
	if (!e)
		return true;
	known = !elf__bias(e, first->start, first->offset, &bias) &&
		!elf__section(e, ".init_array", &addr, &size) && size >= sizeof(init_func) &&
		!proc__read_u64(p, bias + addr, &init_func);
	elf__free(e);
	/* Without proof that it is not relocated, assume that it is. */
	return !known || (init_func >= first->start && init_func < end);
}

bool arrival__no_torch_code_ran(const struct proc *p, const struct maps *m)
{
	const char *last = "";
	bool any = false;
	size_t i;

	for (i = 0; i < m->n; i++) {
		const struct map *map = &m->v[i];

		if (!is_library(map, sizeof(libraries) / sizeof(libraries[0])) ||
		    !strcmp(map->path, last))
			continue;
		last = map->path;
		any = true;
		if (!is_relocated(p, m, map))
			return true;
	}
	return !any;
}
