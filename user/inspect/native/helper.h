/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process that parses files of the target: see native.h. */
#include <stddef.h>

/* Main function of the helper, for base/subprocess.h. fd: its end of the socket. Returns when the
 * other end is closed. Exit code 0, or 2: it could not be confined. */
int helper__run(int fd);

/*
 * Confines this process for good: no capability, no privilege through exec, no core file, and only
 * system calls for memory and for descriptors that it has. Other calls fail with EPERM. It cannot
 * open a file or a socket, signal, trace or start a process. 0, or -errno: the process must exit.
 */
int helper__confine(void);

/* Writes a symbol's name as people read it: C++ and Rust names demangled, without parameters,
 * return type and the compiler's suffixes (".isra.0"). Other names stay. Returns buf. */
char *helper__demangle(const char *symbol, char *buf, size_t size);
