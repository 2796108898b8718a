/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pyobj.h"

#include <errno.h>
#include <string.h>

#include "inspect/python/pydict.h"
#include "inspect/python/pystr.h"

#define NAME_MAX_BYTES 1024

/* Reads up to the next multiple of 64 at a time, since the next page may not be mapped. */
int pytype__text(struct pymem *mem, uint64_t addr, char *buf, size_t size)
{
	size_t at = 0;
	int err;

	if (!addr)
		return -EBADMSG;
	while (at < size - 1) {
		size_t part = size - 1 - at, rest = 64 - (addr + at) % 64;
		const char *end;

		part = part < rest ? part : rest;
		if (addr > UINT64_MAX - size)
			return -EFAULT;
		err = pymem__read_constant(mem, addr + at, buf + at, part);
		if (err)
			return err;
		end = memchr(buf + at, '\0', part);
		if (end)
			return 0;
		at += part;
	}
	/* Cut before an incomplete character, whose later bytes are 10xxxxxx. */
	while (at && (buf[at - 1] & 0xc0) == 0x80)
		at--;
	if (at && (buf[at - 1] & 0xc0) == 0xc0)
		at--;
	buf[at] = '\0';
	return 0;
}

int pytype__name(struct pymem *mem, uint64_t type, char *buf, size_t size)
{
	uint64_t name;
	int err;

	if (!size)
		return -EINVAL;
	err = pydict__check_kind(mem, type, PYTYPE_TYPE)
		      ?: pymem__constant_u64(mem, type + mem->layout->tp_name, &name);
	return err ?: pytype__text(mem, name, buf, size);
}

int pytype__attr(struct pymem *mem, uint64_t type, const char *name, uint64_t *value)
{
	struct pyitems it = { 0 };
	uint64_t dict;
	int err;

	err = pydict__check_kind(mem, type, PYTYPE_TYPE)
		      ?: pymem__u64(mem, type + mem->layout->tp_dict, &dict);
	if (err)
		return err;
	if (!dict)
		return -ENOENT;
	err = pydict__items(mem, dict, &it) ?: pystr__find(mem, &it, name, /*known=*/NULL, value);
	pyitems__fini(&it);
	return err;
}

int pytype__mro(struct pymem *mem, uint64_t type, uint64_t *ret, size_t max)
{
	uint64_t mro, n;
	int err;

	err = pydict__check_kind(mem, type, PYTYPE_TYPE)
		      ?: pydict__sequence(mem, type + mem->layout->tp_mro, PYTYPE_TUPLE, &mro, &n);
	if (err)
		return err;
	if (!n || n > max)
		return n ? -E2BIG : -EBADMSG;
	return pymem__read(mem, mro + mem->layout->tuple_item, ret, n * sizeof(*ret)) ?: (int)n;
}

/* 1: the type has this name and __module__ (NULL: any); 0: another one; or -errno. */
static int is_named(struct pymem *mem, uint64_t type, const char *name, const char *module)
{
	char buf[NAME_MAX_BYTES];
	uint64_t value;
	int err;

	err = pytype__name(mem, type, buf, sizeof(buf));
	if (err)
		return err;
	if (strcmp(buf, name))
		return 0;
	if (!module)
		return 1;
	err = pytype__attr(mem, type, "__module__", &value);
	if (err)
		return err == -ENOENT ? 0 : err;
	return pystr__equal(mem, value, module);
}

int pytype__is_a(struct pymem *mem, uint64_t type, const char *name, const char *module)
{
	uint64_t mro[PYTYPE_MRO_MAX];
	int n, err;

	n = pytype__mro(mem, type, mro, PYTYPE_MRO_MAX);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		err = is_named(mem, mro[i], name, module);
		if (err)
			return err;
	}
	return 0;
}
