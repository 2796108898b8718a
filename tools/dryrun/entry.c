// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Driver functions by name and version. A name that has several forms means the newest one that the
 * version asked for has: gen/entries.def knows since when each is there. That is also what cuda.h's
 * macros choose for its own version, but for the few names that they keep behind (cuCtxGetDevice in
 * CUDA 13), where the form below takes either's arguments.
 */
#include "dryrun.h"

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

/* A function that this library exports; dlsym looks into what it needs as well. */
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
 * With MEMTRACE_DRYRUN_BYPASS: the function behind the exported one, as a driver might have it. So
 * are the calls of programs that ask for addresses missed by who looks at the exported functions
 * only.
 */
static void *behind(const char *name)
{
	for (size_t i = 0; dryrun__config()->bypass && driver__hidden[i].name; i++)
		if (!strcmp(driver__hidden[i].name, name))
			return driver__hidden[i].function;
	return NULL;
}

/* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: the form for it, where there is one. */
#define PER_THREAD 2u

static void *of_stream(const char *name, uint64_t flags)
{
	void *found = behind(name);
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
		/* one of a form's own name, or of a CUDA that the table does not know */
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
	/* Since 12.0 the headers' name for another function: its own later form takes what nobody
	 * passes any more. */
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

API(int, cuGetProcAddress, const char *name, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* What PyTorch's table of entry points holds for a name that nothing here answers. */
static int not_supported(void)
{
	dryrun__unmodelled("a driver function that the dry run does not have");
	return CUDA_NOT_SUPPORTED;
}

/* PyTorch asserts that no entry is NULL, used or not. */
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

/* Without a version it is that of the runtime that the program has loaded, which is asked. */
static int runtime_version(void)
{
	int (*ask)(int *) = (int (*)(int *))(uintptr_t)dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
	int version = 0;

	return ask && !ask(&version) && version > 0 ? version : dryrun__runtime_major() * 1000;
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
