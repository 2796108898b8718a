/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Calls of CUDA's runtime that do not look a name up in the preloaded library: the runtime is linked
 * into the program or a library (nvcc's default, libcudart_static.a), or a program asks a library's
 * handle for a function (ctypes, dlsym()). docs/internals/DRYRUN.md, "How calls get here".
 */
#include <stdbool.h>

/* A function that this library exports; NULL: none of that name. Takes no lock of the loader. */
void *linked__own(const char *name);

/*
 * Redirects the runtime's functions in objects that were loaded since the last call. Cheap if there
 * are none. Takes no lock other than dl_iterate_phdr()'s.
 */
void linked__scan(void);

/* True if the code is in an object whose runtime is redirected. */
bool linked__redirected(const void *code);

/* CUDART_VERSION of the newest static runtime; 0: none. */
int linked__version(void);
