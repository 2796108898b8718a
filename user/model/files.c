/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/files.h"

#include <stddef.h>
#include <string.h>

#include "lib/text.h"
#include "record/stream.h"

const char *files__after_dir(const char *path, const char *dir)
{
	const char *p = path;

	while ((p = strstr(p, dir))) {
		if (p == path || p[-1] == '/')
			return p + strlen(dir);
		p++;
	}
	return NULL;
}

bool files__is(const char *path, const char *name)
{
	size_t len = strlen(path), n = strlen(name);

	return len >= n && !strcmp(path + len - n, name) && (len == n || path[len - n - 1] == '/');
}

/* A user's own folder may be named torch, so a known part of PyTorch must follow. */
static bool in_torch(const char *path)
{
	static const char *const parts[] = {
		"nn/",
		"optim/",
		"autograd/",
		"utils/",
		"cuda/",
		"distributed/",
		"jit/",
		"fx/",
		"amp/",
		"ao/",
		"cpu/",
		"backends/",
		"distributions/",
		"export/",
		"fft/",
		"func/",
		"futures/",
		"linalg/",
		"masked/",
		"mps/",
		"multiprocessing/",
		"nested/",
		"onnx/",
		"package/",
		"profiler/",
		"quantization/",
		"sparse/",
		"special/",
		"testing/",
		"xpu/",
		"mtia/",
		"accelerator/",
		"compiler/",
		"_",
		"functional.py",
		"library.py",
		"overrides.py",
		"random.py",
		"serialization.py",
		"storage.py",
		"types.py",
		"hub.py",
		"quasirandom.py",
		"return_types.py",
	};
	const char *rest = files__after_dir(path, "torch/");

	while (rest) {
		for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
			if (text__starts(rest, parts[i]))
				return true;
		rest = files__after_dir(rest, "torch/");
	}
	return false;
}

/* ".../lib/python3.12/..." and variants (lib64, python3.13t, python312.zip). */
static bool in_stdlib(const char *path, const struct facts *facts)
{
	static const char *const dirs[] = { "lib/python3", "lib64/python3" };
	const char *std = facts ? facts__get(facts, "stdlib") : NULL;
	size_t len = std ? strlen(std) : 0;

	while (len && std[len - 1] == '/')
		len--;
	if (len && !strncmp(path, std, len) && path[len] == '/')
		return true;
	for (size_t i = 0; i < 2; i++) {
		const char *p = files__after_dir(path, dirs[i]);

		if (!p)
			continue;
		if (*p == '.')
			p++;
		p += strspn(p, "0123456789");
		if (*p == 't')
			p++;
		if (*p == '/' || text__starts(p, ".zip/"))
			return true;
	}
	return false;
}

/* Code that Inductor generated, wherever its cache is (torch/_inductor/codecache.py):
 * ".../tz/ctz....py", the name being "c" and 51 digits of base 32. */
static bool is_inductor(const char *path)
{
	const char *name = strrchr(path, '/');

	if (!name || name - path < 3 || name[-3] != '/' || name[1] != 'c' ||
	    strncmp(name - 2, name + 2, 2) != 0)
		return false;
	return strspn(name + 1, "abcdefghijklmnopqrstuvwxyz234567") == 52 &&
	       !strcmp(name + 53, ".py");
}

/* Of "Net.f.<locals>.<lambda>" the innermost name, "f". Returns its length, 0: none. */
static size_t named_part(const char *func, const char **ret)
{
	size_t end = strlen(func), from;

	for (; end; end = from ? from - 1 : 0) {
		for (from = end; from && func[from - 1] != '.'; from--)
			;
		*ret = func + from;
		if (end > from && func[from] != '<')
			return end - from;
	}
	return 0;
}

bool files__in_command(const struct facts *facts, const char *func)
{
	const char *at = facts ? facts__get(facts, "cmdline") : NULL, *name;
	const char *script = at ? strstr(at, ".py\"") : NULL;
	size_t len = named_part(func, &name);

	/* The fact is a JSON array of the arguments. A script has arguments of its own. */
	while (at && (at = strstr(at, "\"-")) && (!script || at < script)) {
		size_t flags = strspn(at += 2, "bBdEhiIOPqRsSuvVxc");

		if (!flags || at[flags - 1] != 'c' || at[flags] != '"')
			continue;
		return !len || memmem(at + flags, strlen(at + flags), name, len);
	}
	return false;
}

/* Code that a person gave to an interpreter, a notebook or a debugger. torch.package keeps the
 * user's code. */
static bool is_typed(const char *path)
{
	static const char *const names[] = {
		"<stdin",	  "<input",	  "<console>", "<cell",		  "<ipython",
		"<python-input-", "<command-",	  "<doctest",  "<pyshell#",	  "<bpython-input",
		"<magic-",	  "<timeit-src>", "<debugger", "<torch_package_",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (text__starts(path, names[i]))
			return true;
	return false;
}

enum file_origin files__kind(const char *path, const struct facts *facts)
{
	enum file_origin origin = files__origin(path, facts);

	return origin == FILE_USER && *path == '<' && strchr(path, '>') && !is_typed(path)
		       ? FILE_GENERATED
		       : origin;
}

enum file_origin files__origin(const char *path, const struct facts *facts)
{
	/* Names of generated code that is in no file. "<stdin>", "<string>" and notebook cells are
	 * user code. */
	static const struct {
		const char *name;
		enum file_origin origin;
	} generated[] = {
		{ "<frozen ", FILE_STDLIB },
		{ "<eval_with_key>", FILE_TORCH },
		{ "<__array_function__ internals>", FILE_PACKAGE },
		{ "<attrs generated ", FILE_PACKAGE },
		{ "<decorator-gen-", FILE_PACKAGE },
		{ "<lambdifygenerated-", FILE_PACKAGE },
	};
	/* Headers of compiled code, and libraries of which only the name is known:
	 * "libnccl.so.2", "libc.so.6/malloc/malloc.c". */
	static const char *const headers[] = { "/usr/include/", "/usr/local/include/",
					       "/usr/local/cuda", "/rustc/" };
	const char *slash = strchr(path, '/');
	const char *library = strstr(path, ".so");
	static const char *const packages[] = { "/site-packages/", "/dist-packages/" };
	enum file_origin found = FILE_USER;

	for (size_t i = 0; i < sizeof(generated) / sizeof(*generated); i++)
		if (text__starts(path, generated[i].name))
			return generated[i].origin;
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
		if (text__starts(path, headers[i]))
			return FILE_PACKAGE;
	if ((library && (!slash || library < slash)) || strstr(path, "/.cargo/registry/"))
		return FILE_PACKAGE;
	/* Packages may be nested; the innermost decides. */
	for (size_t i = 0; i < sizeof(packages) / sizeof(*packages); i++)
		for (const char *p = path; (p = strstr(p, packages[i]));) {
			p += strlen(packages[i]);
			found = text__starts(p, "torch/") ? FILE_TORCH : FILE_PACKAGE;
		}
	if (found != FILE_USER)
		return found;
	if (strstr(path, "/torchinductor_") || is_inductor(path))
		return FILE_TORCH;
	if (strstr(path, "/.triton/cache/"))
		return FILE_PACKAGE;
	if (in_stdlib(path, facts))
		return FILE_STDLIB;
	return in_torch(path) ? FILE_TORCH : FILE_USER;
}
