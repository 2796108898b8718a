/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Unwinding by libdw, in the helper. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/native/wire.h"

struct unwind;

/* fd: socket for requests of files. NULL: out of memory. */
struct unwind *unwind__new(int fd);
/* Sets the mapped files. Files at the same place stay loaded. */
void unwind__modules(struct unwind *u, const struct wire_module *v, uint32_t n);
/* Fills *ret. */
void unwind__stack(struct unwind *u, const struct native_regs *r, const uint8_t *stack, size_t size,
		   struct wire_frames *ret);
