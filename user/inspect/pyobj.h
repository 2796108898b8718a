/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Python objects, read from outside. Pointers and lengths are hostile, loops are bounded, and
 * inconsistent data is an error. Functions return 0 or -errno: -EFAULT unmapped, -EBADMSG not such
 * an object, -E2BIG above a limit, -ENOENT no such key.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct python;

#define PYOBJ_MAX_STRING 4096 /* bytes of UTF-8; longer strings are cut */
#define PYOBJ_MAX_LINETABLE (1 << 20)
#define PYOBJ_MAX_DICT (1 << 20) /* entries */

/* A str object as UTF-8 (all kinds), NUL-terminated, cut at a whole character. */
int pyobj__str(const struct python *py, uint64_t obj, char *buf, size_t size);
int pyobj__type(const struct python *py, uint64_t obj, uint64_t *type);
/* tp_name of a type object: "Linear"; static types have the module in front. */
int pyobj__type_name(const struct python *py, uint64_t type, char *buf, size_t size);
/* Whether a type in type's __mro__ has this tp_name and __module__ (NULL: any). The tp_base chain
 * would miss the second base of class A(Mixin, Module), and of classes made by fully_shard. */
bool pyobj__is_a(const struct python *py, uint64_t type, const char *name, const char *module);

struct pycode {
	char name[256];	 /* co_qualname, before 3.11 co_name */
	char file[1024]; /* co_filename */
	uint32_t firstlineno;
	uint8_t *linetable; /* the caller frees it */
	size_t linetable_len;
};
/* Reads a code object; checks that its type is PyCode_Type. */
int pyobj__code(const struct python *py, uint64_t code, struct pycode *ret);
void pycode__free(struct pycode *c); /* frees the table, not c */

/* Calls fn(key, value) for the entries of a dict (or a subclass) in order, until it returns
 * non-zero; returns that value. */
int pyobj__dict_each(const struct python *py, uint64_t dict,
		     int (*fn)(uint64_t key, uint64_t value, void *ctx), void *ctx);
/* Value under a str key. */
int pyobj__dict_get(const struct python *py, uint64_t dict, const char *key, uint64_t *value);
/* An attribute in an instance's own dictionary, materialized or inline (all versions). */
int pyobj__attr(const struct python *py, uint64_t obj, const char *name, uint64_t *value);
/* A module in sys.modules by name, and an attribute of a module. */
int pyobj__module(const struct python *py, const char *name, uint64_t *module);
int pyobj__module_attr(const struct python *py, uint64_t module, const char *name, uint64_t *value);
/* An attribute in a type's own tp_dict, and the code object of a function. */
int pyobj__type_attr(const struct python *py, uint64_t type, const char *name, uint64_t *value);
int pyobj__func_code(const struct python *py, uint64_t func, uint64_t *code);
