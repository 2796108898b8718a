/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/cuda.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf.h"
#include "inspect/site.h"

#define STT_FUNC 2

/* c10::cuda::CUDACachingAllocator::allocator, a pointer to the current allocator */
#define ALLOCATOR "_ZN3c104cuda20CUDACachingAllocator9allocatorE"

/* Symbol of the library that stands in for a GPU (tools/dryrun). */
#define DRYRUN_USAGE "memtrace_dryrun_usage"

#define TAKES(name, how, size, device, flags)                                                      \
	{                                                                                          \
		name, CUDA_TAKE, how, CUDA_SIZE_##size, CUDA_DEVICE_##device,                      \
			MT_CALL_WALK | (flags)                                                     \
	}
#define GIVES(name, how)                                                                           \
	{                                                                                          \
		name, CUDA_GIVE, how, CUDA_SIZE_NONE, CUDA_DEVICE_NONE, 0                          \
	}
#define GIVES_SIZE(name, how)                                                                      \
	{                                                                                          \
		name, CUDA_GIVE, how, CUDA_SIZE_ARG1, CUDA_DEVICE_NONE, 0                          \
	}
#define OTHER(name, op, device, flags)                                                             \
	{                                                                                          \
		name, CUDA_##op, 0, CUDA_SIZE_NONE, CUDA_DEVICE_##device, flags                    \
	}
#define OUT MT_CALL_OUT

/* Signatures: cuda_runtime_api.h and cuda.h. Programs compiled with a default stream per thread
 * call the _ptsz forms. */
static const struct cuda_function functions[] = {
	TAKES("cudaMalloc", MEM_DEVICE, ARG1, CURRENT, OUT),
	TAKES("cudaMallocPitch", MEM_DEVICE, PITCH, CURRENT, OUT | MT_CALL_PITCH),
	TAKES("cudaMalloc3D", MEM_DEVICE, EXTENT, CURRENT, OUT | MT_CALL_EXTENT),
	GIVES("cudaFree", MEM_DEVICE),
	TAKES("cudaMallocAsync", MEM_ASYNC, ARG1, CURRENT, OUT),
	TAKES("cudaMallocAsync_ptsz", MEM_ASYNC, ARG1, CURRENT, OUT),
	TAKES("cudaMallocFromPoolAsync", MEM_ASYNC, ARG1, POOL, OUT),
	TAKES("cudaMallocFromPoolAsync_ptsz", MEM_ASYNC, ARG1, POOL, OUT),
	GIVES("cudaFreeAsync", MEM_ASYNC),
	GIVES("cudaFreeAsync_ptsz", MEM_ASYNC),
	TAKES("cudaMallocManaged", MEM_MANAGED, ARG1, CURRENT, OUT),
	TAKES("cudaHostAlloc", MEM_HOST, ARG1, NONE, OUT),
	TAKES("cudaMallocHost", MEM_HOST, ARG1, NONE, OUT),
	GIVES("cudaFreeHost", MEM_HOST),
	TAKES("cudaHostRegister", MEM_REGISTERED, ARG1, NONE, 0),
	GIVES("cudaHostUnregister", MEM_REGISTERED),
	OTHER("cudaSetDevice", SET_DEVICE, NONE, 0),
	OTHER("cudaMemPoolCreate", POOL, NONE, OUT | MT_CALL_POOL),
	OTHER("cudaDeviceReset", RESET, CURRENT, 0),
	TAKES("cuMemAlloc_v2", MEM_DEVICE, ARG1, CURRENT, OUT),
	TAKES("cuMemAllocPitch_v2", MEM_DEVICE, PITCH, CURRENT, OUT | MT_CALL_PITCH),
	GIVES("cuMemFree_v2", MEM_DEVICE),
	TAKES("cuMemAllocAsync", MEM_ASYNC, ARG1, CURRENT, OUT),
	TAKES("cuMemAllocAsync_ptsz", MEM_ASYNC, ARG1, CURRENT, OUT),
	TAKES("cuMemAllocFromPoolAsync", MEM_ASYNC, ARG1, POOL, OUT),
	TAKES("cuMemAllocFromPoolAsync_ptsz", MEM_ASYNC, ARG1, POOL, OUT),
	GIVES("cuMemFreeAsync", MEM_ASYNC),
	GIVES("cuMemFreeAsync_ptsz", MEM_ASYNC),
	TAKES("cuMemAllocManaged", MEM_MANAGED, ARG1, CURRENT, OUT),
	TAKES("cuMemAllocHost_v2", MEM_HOST, ARG1, NONE, OUT),
	TAKES("cuMemHostAlloc", MEM_HOST, ARG1, NONE, OUT),
	GIVES("cuMemFreeHost", MEM_HOST),
	TAKES("cuMemHostRegister_v2", MEM_REGISTERED, ARG1, NONE, 0),
	GIVES("cuMemHostUnregister", MEM_REGISTERED),
	TAKES("cuMemAddressReserve", MEM_RESERVED, ARG1, NONE, OUT),
	GIVES_SIZE("cuMemAddressFree", MEM_RESERVED),
	TAKES("cuMemCreate", MEM_PHYSICAL, ARG1, PROP, OUT | MT_CALL_PROP),
	{ "cuMemRetainAllocationHandle", CUDA_RETAIN, MEM_PHYSICAL, CUDA_SIZE_NONE,
	  CUDA_DEVICE_NONE, OUT },
	GIVES("cuMemRelease", MEM_PHYSICAL),
	TAKES("cuMemMap", MEM_MAPPED, ARG1, HANDLE, 0),
	GIVES_SIZE("cuMemUnmap", MEM_MAPPED),
	OTHER("cuMemImportFromShareableHandle", IMPORT, NONE, OUT),
	OTHER("cuMemPoolCreate", POOL, NONE, OUT | MT_CALL_POOL),
	OTHER("cuDevicePrimaryCtxReset", RESET, ARG0, 0),
	OTHER("cuDevicePrimaryCtxReset_v2", RESET, ARG0, 0),
	OTHER("cuDevicePrimaryCtxRetain", CTX_RETAIN, ARG1, OUT),
	OTHER("cuCtxCreate_v2", CTX_CREATE, ARG2, OUT),
	OTHER("cuCtxCreate_v3", CTX_CREATE, NONE, OUT), /* the device is the fifth argument */
	OTHER("cuCtxCreate_v4", CTX_CREATE, ARG3, OUT),
	OTHER("cuCtxDestroy_v2", CTX_DESTROY, NONE, 0),
	OTHER("cuCtxSetCurrent", CTX_SET, NONE, 0),
	OTHER("cuCtxPushCurrent_v2", CTX_PUSH, NONE, 0),
	OTHER("cuCtxPopCurrent_v2", CTX_POP, NONE, 0),
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))
_Static_assert(FUNCTIONS <= CUDA_SITES_MAX, "room for a file that has all of them");

uint32_t cuda__functions(void)
{
	return FUNCTIONS;
}

const struct cuda_function *cuda__function(uint32_t fn)
{
	return fn < FUNCTIONS ? &functions[fn] : NULL;
}

/* True if the file's sites have one at this offset. */
static bool has_site_at(const struct cuda_file *file, uint64_t offset)
{
	size_t i;

	for (i = 0; i < file->n; i++)
		if (file->site[i].offset == offset)
			return true; /* another name of the same function */
	return false;
}

struct search {
	const struct elf *elf;
	const struct maps *maps;
	const struct map *map;
	struct cuda_file *file;
	unsigned args; /* for site__pick() */
};

/* Adds the site of a function to the file's, or counts the function as refused. */
static void add_site(const struct search *search, uint32_t fn, const struct elf_sym *sym)
{
	struct cuda_file *file = search->file;
	uint64_t offset;
	struct site in;

	if (sym->type != STT_FUNC || file->n == CUDA_SITES_MAX ||
	    elf__vaddr_to_offset(search->elf, sym->value, &offset) ||
	    !maps__find_code(search->maps, search->map, offset))
		return;
	/* A return probe cannot be where a function only jumps on. */
	if (site__of_symbol(search->elf, sym, functions[fn].op != CUDA_SET_DEVICE, search->args,
			    &in)) {
		file->refused++;
		if (functions[fn].op == CUDA_TAKE)
			file->refused_take = functions[fn].name;
	} else if (!has_site_at(file, offset + in.offset)) {
		file->site[file->n++] = (struct cuda_site){ fn, offset + in.offset, in };
	}
}

/* Splits "cuMemAlloc_v2_ptsz". Returns the length of "cuMemAlloc". *form: 2 (1 if not named).
 * *form_len: length without "_ptsz". */
static size_t split_name(const char *name, size_t *form_len, unsigned long *form)
{
	size_t len = strlen(name), base;

	if (len > 5 && (!strcmp(name + len - 5, "_ptsz") || !strcmp(name + len - 5, "_ptds")))
		len -= 5;
	*form_len = len;
	*form = 1;
	for (base = len; base && isdigit((unsigned char)name[base - 1]); base--)
		;
	if (base == len || base < 3 || name[base - 1] != 'v' || name[base - 2] != '_')
		return len;
	*form = strtoul(name + base, NULL, 10);
	return base - 2;
}

/* Adds the site of a function that is a known one with another suffix (_ptsz). Notes a form of a
 * known function that is newer than those in the table. Returns 0, to continue. */
static int on_symbol(const char *name, const struct elf_sym *sym, void *ctx)
{
	unsigned long form, known, newest = 0;
	const struct search *search = ctx;
	size_t base, len, known_len;
	uint32_t fn, same_form = FUNCTIONS;

	if (!text__starts(name, "cu"))
		return 0;
	base = split_name(name, &len, &form);
	for (fn = 0; fn < FUNCTIONS; fn++) {
		if (!strcmp(functions[fn].name, name))
			return 0;
		if (split_name(functions[fn].name, &known_len, &known) != base ||
		    strncmp(functions[fn].name, name, base))
			continue;
		if (known == form)
			same_form = fn;
		newest = known > newest ? known : newest;
	}
	if (same_form < FUNCTIONS)
		add_site(search, same_form, sym);
	else if (newest && form > newest)
		snprintf(search->file->newer, sizeof(search->file->newer), "%s", name);
	return 0;
}

/* Stops at an import of code that throws C++ exceptions or passes them on. */
static int on_import(const char *name, const struct elf_sym *sym, void *ctx)
{
	(void)sym;
	(void)ctx;
	return !strcmp(name, "__cxa_throw") || !strcmp(name, "_Unwind_Resume");
}

/* True if exceptions may leave functions of the file: they must not pass a return probe. CUDA's own
 * libraries never throw to callers, whatever they import. */
static bool may_throw(const struct elf *elf)
{
	const char *soname = elf__soname(elf);

	return !text__starts(soname, "libcuda.so") && !text__starts(soname, "libcudart.so") &&
	       elf__each_import(elf, on_import, NULL) != 0;
}

/* Fills *file, except file->elf. */
static void find_functions(const struct proc *proc, const struct elf *elf, const struct maps *maps,
			   const struct map *map, struct cuda_file *file)
{
	struct search search = { elf, maps, map, file,
				 1 | (proc__shadow_stack(proc) ? SITE_NO_CALLS : 0) };
	struct elf_sym sym;
	uint64_t offset;
	uint32_t fn;

	if (elf__dynsym(elf, DRYRUN_USAGE, &sym) == 0 &&
	    elf__bias(elf, map->start, map->offset, &offset) == 0)
		file->usage = sym.value + offset;
	file->allocator = elf__dynsym(elf, ALLOCATOR, &sym) == 0;
	if (!site__is_native(elf__machine(elf)))
		return;
	for (fn = 0; fn < FUNCTIONS; fn++)
		if (elf__dynsym(elf, functions[fn].name, &sym) == 0)
			add_site(&search, fn, &sym);
	if (!file->n)
		return;
	file->throws = may_throw(elf);
	if (file->throws)
		file->n = 0;
	else
		elf__each_dynsym(elf, on_symbol, &search);
}

int cuda__look(const struct proc *proc, const struct maps *maps, const struct map *map,
	       struct cuda_file *ret)
{
	struct cuda_file file = { .n = 0 };
	struct elf *elf;

	elf = elf__open_map(proc, map);
	if (!elf)
		return -errno;
	find_functions(proc, elf, maps, map, &file);
	if (file.n || file.allocator)
		file.elf = elf;
	else
		elf__free(elf);
	*ret = file;
	return 0;
}
