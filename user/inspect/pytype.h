/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Type objects. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/pymem.h"

/* A C string of a type, such as the name of a member: at most size - 1 bytes, cut at a whole
 * character. 0, -EBADMSG: NULL, -EFAULT. */
int pytype__text(struct pymem *m, uint64_t addr, char *buf, size_t size);
/* tp_name, cut at a whole character. 0, -EBADMSG not a type, -EFAULT. */
int pytype__name(struct pymem *m, uint64_t type, char *buf, size_t size);
/* An attribute in the type's own tp_dict. -ENOENT also for built-in types, which keep it elsewhere
 * from 3.12 on. */
int pytype__attr(struct pymem *m, uint64_t type, const char *name, uint64_t *value);
/* The type's __mro__: itself and its bases in order of look-up. Number of types in ret, or
 * -errno. */
int pytype__mro(struct pymem *m, uint64_t type, uint64_t *ret, size_t max);
/* Whether a type in the __mro__ has this name and __module__ (NULL: any): 1, 0, or -errno. */
int pytype__is_a(struct pymem *m, uint64_t type, const char *name, const char *module);

#define PYTYPE_MRO_MAX 128
