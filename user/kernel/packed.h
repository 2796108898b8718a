/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The objects of BPF programs, which the program has in itself compressed:
 * tools/dev/pack_skeleton.py. */
#include <stddef.h>

/*
 * Unpacks n bytes of zlib's format that have `size` bytes unpacked. *kept: NULL before the first
 * call; keeps the result, which lives until the end of the program. Returns NULL with errno if
 * there is no memory.
 */
const void *packed__unpack(const void *packed, size_t n, size_t size, void **kept);
