/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pyobj.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/python.h"
#include "inspect/python/pydict.h"
#include "inspect/python/pystr.h"

/* Makes -EAGAIN (the object keeps changing), which pyobj.h does not have, -EBADMSG. */
static int map_error(int err)
{
	return err == -EAGAIN ? -EBADMSG : err;
}

int pyobj__str(const struct python *py, uint64_t obj, char *buf, size_t size)
{
	char tmp[PYOBJ_MAX_STRING + 1];
	struct pymem mem;
	int len;

	pymem__init(&mem, py, false);
	len = pystr__read(&mem, obj, tmp, size < sizeof(tmp) ? size : sizeof(tmp), /*cut=*/NULL);
	pymem__fini(&mem);
	if (len < 0)
		return len;
	memcpy(buf, tmp, len + 1);
	return 0;
}

int pyobj__type(const struct python *py, uint64_t obj, uint64_t *type)
{
	struct pymem mem;

	pymem__init(&mem, py, false);
	return pydict__type_of(&mem, obj, type);
}

int pyobj__type_name(const struct python *py, uint64_t type, char *buf, size_t size)
{
	char tmp[PYOBJ_MAX_STRING + 1];
	struct pymem mem;
	int err;

	pymem__init(&mem, py, false);
	err = pytype__name(&mem, type, tmp, size < sizeof(tmp) ? size : sizeof(tmp));
	if (!err)
		memcpy(buf, tmp, strlen(tmp) + 1);
	return err;
}

bool pyobj__is_a(const struct python *py, uint64_t type, const char *name, const char *module)
{
	struct pymem mem;
	int err;

	pymem__init(&mem, py, true);
	err = pytype__is_a(&mem, type, name, module);
	pymem__fini(&mem);
	return err == 1;
}

/* 0 if obj is an instance of the type that the interpreter exports under this symbol, or of a
 * subclass unless exact; otherwise -EBADMSG or the error of a read. */
static int check_type(struct pymem *mem, uint64_t obj, const char *symbol, bool exact)
{
	uint64_t want = python__symbol(mem->py, symbol), type, mro[PYTYPE_MRO_MAX];
	int err, n;

	if (!want)
		return -EBADMSG;
	err = pydict__type_of(mem, obj, &type);
	if (err)
		return err;
	if (type == want)
		return 0;
	if (exact)
		return -EBADMSG;
	n = pytype__mro(mem, type, mro, PYTYPE_MRO_MAX);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (mro[i] == want)
			return 0;
	return -EBADMSG;
}

/* Reads the str object that a code object's field at this offset points to. */
static int read_code_str(struct pymem *mem, uint64_t code, unsigned at, char *buf, size_t size)
{
	uint64_t obj;
	int err;

	err = pymem__u64(mem, code + at, &obj) ?: pystr__read(mem, obj, buf, size, /*cut=*/NULL);
	return err < 0 ? err : 0;
}

/* Sets ret->linetable, from malloc(). 0 or -errno. */
static int read_linetable(struct pymem *mem, uint64_t code, struct pycode *ret)
{
	uint64_t obj, len;
	uint8_t *table;
	int err;

	err = pydict__sequence(mem, code + mem->layout->co_linetable, PYTYPE_BYTES, &obj, &len);
	if (err)
		return err;
	if (len > PYOBJ_MAX_LINETABLE)
		return -E2BIG;
	table = malloc(len ? len : 1);
	if (!table)
		return -ENOMEM;
	err = pymem__read(mem, obj + mem->layout->bytes_val, table, len);
	if (err) {
		free(table);
		return err;
	}
	ret->linetable = table;
	ret->linetable_len = len;
	return 0;
}

int pyobj__code(const struct python *py, uint64_t code, struct pycode *ret)
{
	struct pycode read = { 0 };
	struct pymem mem;
	unsigned name;
	int err;

	pymem__init(&mem, py, false);
	name = mem.layout->co_qualname != PYLAYOUT_NONE ? mem.layout->co_qualname
							: mem.layout->co_name;
	err = check_type(&mem, code, "PyCode_Type", /*exact=*/true)
		      ?: read_code_str(&mem, code, name, read.name, sizeof(read.name));
	if (err)
		return err;
	err = read_code_str(&mem, code, mem.layout->co_filename, read.file, sizeof(read.file))
		      ?: pymem__read(&mem, code + mem.layout->co_firstlineno, &read.firstlineno,
				     sizeof(read.firstlineno));
	if (err)
		return err;
	/* Check it again: it may have been freed and its memory reused meanwhile. */
	err = read_linetable(&mem, code, &read)
		      ?: check_type(&mem, code, "PyCode_Type", /*exact=*/true);
	if (err) {
		pycode__free(&read);
		return err;
	}
	*ret = read;
	return 0;
}

void pycode__free(struct pycode *c)
{
	free(c->linetable);
	c->linetable = NULL;
	c->linetable_len = 0;
}

int pyobj__dict_each(const struct python *py, uint64_t dict,
		     int (*fn)(uint64_t key, uint64_t value, void *ctx), void *ctx)
{
	struct pyitems it = { 0 };
	struct pymem mem;
	int err;

	pymem__init(&mem, py, false);
	err = map_error(pydict__items(&mem, dict, &it));
	for (size_t i = 0; !err && i < it.n; i++)
		err = fn(it.v[i].key, it.v[i].value, ctx);
	pyitems__fini(&it);
	return err;
}

/* Sets *value to the value of a str key. -ENOENT: there is none. */
static int dict_get(struct pymem *mem, uint64_t dict, const char *key, uint64_t *value)
{
	struct pyitems it = { 0 };
	int err = pydict__items(mem, dict, &it)
			  ?: pystr__find(mem, &it, key, /*known=*/NULL, value);

	pyitems__fini(&it);
	return err;
}

int pyobj__dict_get(const struct python *py, uint64_t dict, const char *key, uint64_t *value)
{
	struct pymem mem;
	int err;

	pymem__init(&mem, py, true);
	err = dict_get(&mem, dict, key, value);
	pymem__fini(&mem);
	return map_error(err);
}

int pyobj__attr(const struct python *py, uint64_t obj, const char *name, uint64_t *value)
{
	struct pyitems it = { 0 };
	struct pymem mem;
	uint64_t type;
	int err;

	pymem__init(&mem, py, true);
	err = pydict__type_of(&mem, obj, &type) ?: pydict__check_kind(&mem, type, PYTYPE_TYPE);
	if (err)
		goto out;
	err = pydict__attrs(&mem, obj, type, &it)
		      ?: pystr__find(&mem, &it, name, /*known=*/NULL, value);
out:
	pyitems__fini(&it);
	pymem__fini(&mem);
	return map_error(err);
}

int pyobj__module(const struct python *py, const char *name, uint64_t *module)
{
	uint64_t modules = python__modules(py);

	return modules ? pyobj__dict_get(py, modules, name, module) : -ENOENT;
}

int pyobj__module_attr(const struct python *py, uint64_t module, const char *name, uint64_t *value)
{
	struct pymem mem;
	uint64_t dict;
	int err;

	pymem__init(&mem, py, true);
	err = check_type(&mem, module, "PyModule_Type", /*exact=*/false)
		      ?: pymem__u64(&mem, module + mem.layout->md_dict, &dict);
	if (!err)
		err = dict_get(&mem, dict, name, value);
	pymem__fini(&mem);
	return map_error(err);
}

int pyobj__type_attr(const struct python *py, uint64_t type, const char *name, uint64_t *value)
{
	struct pymem mem;
	int err;

	pymem__init(&mem, py, true);
	err = pytype__attr(&mem, type, name, value);
	pymem__fini(&mem);
	return map_error(err);
}

int pyobj__func_code(const struct python *py, uint64_t func, uint64_t *code)
{
	struct pymem mem;
	uint64_t found;
	int err;

	pymem__init(&mem, py, false);
	err = check_type(&mem, func, "PyFunction_Type", /*exact=*/true)
		      ?: pymem__u64(&mem, func + mem.layout->func_code, &found);
	if (err)
		return err;
	err = check_type(&mem, found, "PyCode_Type", /*exact=*/true);
	if (!err)
		*code = found;
	return err;
}
