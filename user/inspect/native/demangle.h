/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stddef.h>

/* Writes a symbol's name as people read it: C++ and Rust names demangled, without parameters,
 * return type and the compiler's suffixes (".isra.0"). Other names stay. Returns buf. */
char *demangle__name(const char *symbol, char *buf, size_t size);
