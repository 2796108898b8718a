// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Driver functions by name and version. A name with several forms means the newest form that exists
 * in the requested version; gen/entries.def has each form's first version. The macros in cuda.h
 * choose the same way, except for a few names (cuCtxGetDevice in CUDA 13), whose form here accepts
 * both argument lists.
 */
#include "dryrun.h"
#include "linked.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FORMS 4
#define MAX_NAME 120

struct entry {
	const char *name;
	unsigned short since[MAX_FORMS]; /* 1000 * major + 10 * minor */
};

#define ENTRY(name, ...) { #name, { __VA_ARGS__ } },

static const struct entry entries[] = {
#include "gen/entries.def"
};

/* CUdriverProcAddressQueryResult */
enum { FOUND, NO_SYMBOL, VERSION_TOO_OLD };

static int compare(const void *name, const void *entry)
{
	return strcmp(name, ((const struct entry *)entry)->name);
}

/* A function exported by this library. dlsym() also searches the libraries that it needs. */
static void *own_symbol(const char *name)
{
	void *own = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *found;
	Dl_info here, there;

	if (!own)
		return NULL;
	found = dlsym(own, name);
	if (found && (!dladdr(found, &there) || !dladdr(&memtrace_dryrun_usage, &here) ||
		      here.dli_fbase != there.dli_fbase))
		found = NULL;
	dlclose(own);
	return found;
}

/*
 * With MEMTRACE_DRYRUN_BYPASS: an internal function with the exported one's effect, as in real
 * drivers. Tests use it to show that probes on exported functions miss such calls.
 */
static void *internal_function(const char *name)
{
	for (size_t i = 0; dryrun__config()->bypass && driver__hidden[i].name; i++)
		if (!strcmp(driver__hidden[i].name, name))
			return driver__hidden[i].function;
	return NULL;
}

/* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: prefer the per-thread form. */
#define PER_THREAD 2u

static void *of_stream(const char *name, uint64_t flags)
{
	void *found = internal_function(name);
	char own[MAX_NAME + 16];

	if (!found && flags & PER_THREAD) {
		snprintf(own, sizeof(own), "%s_ptsz", name);
		found = own_symbol(own);
	}
	return found ? found : own_symbol(name);
}

static void *find(const char *name, int version, uint64_t flags, int *status)
{
	const struct entry *entry;
	char full[MAX_NAME + 8];
	void *found;
	int form = 0;

	*status = NO_SYMBOL;
	if (strncmp(name, "cu", 2) || name[2] < 'A' || name[2] > 'Z' || strlen(name) > MAX_NAME)
		return NULL;
	entry = bsearch(name, entries, sizeof(entries) / sizeof(*entries), sizeof(*entries),
			compare);
	if (!entry) {
		/* a form's own name, or a function newer than the table */
		found = of_stream(name, flags);
		*status = found ? FOUND : NO_SYMBOL;
		return found;
	}
	while (form < MAX_FORMS && entry->since[form] && entry->since[form] <= version)
		form++;
	if (!form) {
		*status = VERSION_TOO_OLD;
		return NULL;
	}
	snprintf(full, sizeof(full), form > 1 ? "%s_v%d" : "%s", name, form);
	found = of_stream(full, flags);
	/* Since 12.0 the headers use this name for cuGraphInstantiateWithFlags; its own later form
	 * is obsolete. */
	if (version >= 12000 && !strcmp(name, "cuGraphInstantiate"))
		found = own_symbol("cuGraphInstantiateWithFlags");
	*status = found ? FOUND : NO_SYMBOL;
	return found;
}

API(int, cuGetProcAddress_v2, const char *name, void **function, int version, uint64_t flags,
    int *status)
{
	int state;

	if (!name || !function)
		return CUDA_INVALID_VALUE;
	*function = find(name, version, flags, &state);
	if (status)
		*status = state;
	return *function ? CUDA_OK : CUDA_NOT_FOUND;
}

/* The form of CUDA 11, whose runtime gives up at the first function that is missing. */
API(int, cuGetProcAddress, const char *name, void **function, int version, uint64_t flags)
{
	int err = cuGetProcAddress_v2(name, function, version, flags, NULL);
	static bool said;

	if (err == CUDA_NOT_FOUND && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		fprintf(stderr, "memtrace-bpf: dry run: this program is built for CUDA 11; a dry "
				"run needs a PyTorch for CUDA 12 or newer\n");
	return err;
}

/* Entry in PyTorch's table for functions that are not implemented here. */
static int not_supported(void)
{
	dryrun__unmodelled("a driver function that the dry run does not have");
	return CUDA_NOT_SUPPORTED;
}

/* PyTorch asserts that no entry of its table is NULL. */
static int entry_point(const char *name, void **function, int version, uint64_t flags, int *status)
{
	int state;

	if (!name || !function)
		return CUDA_INVALID_VALUE;
	*function = find(name, version, flags, &state);
	if (!*function)
		*function = (void *)(uintptr_t)not_supported;
	if (status)
		*status = FOUND;
	return CUDA_OK;
}

/* Calls without a version get that of the loaded runtime. */
static int runtime_version(void)
{
	int (*ask)(int *) = (int (*)(int *))(uintptr_t)dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
	int version = 0;

	if (ask && !ask(&version) && version > 0)
		return version;
	return linked__version() ?: dryrun__runtime_major() * 1000;
}

API(int, cudaGetDriverEntryPoint, const char *name, void **function, unsigned long long flags,
    int *status)
{
	return dryrun__result(entry_point(name, function, runtime_version(), flags, status));
}

API(int, cudaGetDriverEntryPointByVersion, const char *name, void **function, unsigned int version,
    unsigned long long flags, int *status)
{
	return dryrun__result(entry_point(
		name, function, version > INT32_MAX ? INT32_MAX : (int)version, flags, status));
}
