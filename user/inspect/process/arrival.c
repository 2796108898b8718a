/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/arrival.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf.h"

#define FILES_OPENED 8
#define NR_C10 2 /* the first names in `libraries` are libc10's */

/* Libraries that one dlopen() maps together. libtorch_global_deps, which torch loads earlier, is
 * not one. */
static const char *const libraries[] = { "libc10.", "libc10-", "libtorch_cpu.", "libtorch_cpu-",
					 "libtorch_python." };

/* True if the file's name begins with one of the first n names in `libraries`. */
static bool is_library(const struct map *map, size_t n)
{
	const char *base = strrchr(map->path, '/');
	size_t i;

	if (!base || !map->inode)
		return false;
	for (i = 0; i < n; i++) {
		if (!strncmp(base + 1, libraries[i], strlen(libraries[i])))
			return true;
	}
	return false;
}

bool arrival__maps_torch(const struct maps *maps)
{
	size_t i;

	for (i = 0; i < maps->n; i++) {
		if (maps->v[i].x && is_library(&maps->v[i], NR_C10))
			return true;
	}
	return false;
}

bool arrival__is_cuda(const struct map *map)
{
	const char *name = map->x ? strrchr(map->path, '/') : NULL;

	return name && (text__starts(name, "/libcuda.so") || text__starts(name, "/libcudart"));
}

bool arrival__maps_cuda(const struct maps *maps)
{
	size_t i;

	for (i = 0; i < maps->n; i++)
		if (arrival__is_cuda(&maps->v[i]))
			return true;
	return false;
}

/* Functions of libc10 in every version from PyTorch 1.6 on. */
static const char *const c10_functions[] = { "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
					     "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
					     "_ZN3c1015GetCPUAllocatorEv" };

/* True if the mapped file defines one of the functions in c10, or is damaged. unreadable: the
 * answer for a file that cannot be opened. Does not read the file through the process's memory: a
 * page of it may have to wait for a file system that the process serves. */
static bool has_c10(const struct proc *proc, const struct map *map, bool unreadable)
{
	int fd = proc__open_map(proc, map);
	bool found = false;
	struct elf_sym sym;
	struct elf *elf;

	if (fd < 0)
		return unreadable;
	elf = elf__open_fd(fd);
	if (!elf)
		return errno != ENOEXEC; /* a file that is no ELF file is not PyTorch */
	for (size_t k = 0; !found && k < sizeof(c10_functions) / sizeof(c10_functions[0]); k++)
		found = !elf__dynsym(elf, c10_functions[k], &sym);
	elf__free(elf);
	return found;
}

bool arrival__maps_c10_functions(const struct proc *proc, const struct maps *maps, bool unreadable)
{
	int opened = 0;

	/* Opens few files: a process with thousands of such names is not PyTorch. */
	for (size_t i = 0; i < maps->n && opened < FILES_OPENED; i++) {
		if (!maps->v[i].x || !is_library(&maps->v[i], NR_C10))
			continue;
		if (has_c10(proc, &maps->v[i], unreadable))
			return true;
		opened++;
	}
	return false;
}

/* True if the dynamic linker has relocated a library, or if that is unknown: the first pointer in
 * its .init_array points into it. first: the library's lowest mapping. */
static bool is_relocated(const struct proc *proc, const struct maps *maps, const struct map *first)
{
	uint64_t bias, addr, size, init_func, end = first->end;
	const struct map *map;
	bool known = false;
	struct elf *elf;

	for (map = first; map < maps->v + maps->n; map++) {
		if (map->inode == first->inode && !strcmp(map->path, first->path))
			end = map->end;
	}
	elf = elf__open_map(proc, first);
	if (!elf)
		return true;
	known = !elf__bias(elf, first->start, first->offset, &bias) &&
		!elf__section(elf, ".init_array", &addr, &size) && size >= sizeof(init_func) &&
		!proc__read_u64(proc, bias + addr, &init_func);
	elf__free(elf);
	return !known || (init_func >= first->start && init_func < end);
}

bool arrival__no_torch_code_ran(const struct proc *proc, const struct maps *maps)
{
	const char *last = "";
	bool any = false;
	size_t i;

	for (i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];

		if (!is_library(map, sizeof(libraries) / sizeof(libraries[0])) ||
		    !strcmp(map->path, last))
			continue;
		last = map->path;
		any = true;
		if (!is_relocated(proc, maps, map))
			return true;
	}
	return !any;
}
