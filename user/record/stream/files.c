/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/files.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
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
	size_t len = strlen(path);
	size_t n = strlen(name);

	return len >= n && !strcmp(path + len - n, name) && (len == n || path[len - n - 1] == '/');
}

/* True for PyTorch's own files. A user's folder may be named torch, too, so a known part of PyTorch
 * must follow. */
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

/* True for files of the standard library: in the folder of the fact "stdlib", or in
 * ".../lib/python3.12/..." and its variants (lib64, python3.13t, python312.zip). */
static bool in_stdlib(const char *path, const struct facts *facts)
{
	static const char *const dirs[] = { "lib/python3", "lib64/python3" };
	const char *folder = facts ? facts__get(facts, "stdlib") : NULL;
	size_t len = folder ? strlen(folder) : 0;

	while (len && folder[len - 1] == '/')
		len--;
	if (len && !strncmp(path, folder, len) && path[len] == '/')
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

#define INDUCTOR_NAME 52 /* "c" and 51 digits */

/* True for code that Inductor generated, in any folder (torch/_inductor/codecache.py):
 * ".../tz/ctz....py". The name is "c" and 51 digits of base 32; the folder has the first two
 * digits. */
static bool is_inductor(const char *path)
{
	const char *name = strrchr(path, '/');

	/* the folder's name has two characters */
	if (!name || name - path < 3 || name[-3] != '/')
		return false;
	if (name[1] != 'c' || strncmp(name - 2, name + 2, 2) != 0)
		return false;
	return strspn(name + 1, "abcdefghijklmnopqrstuvwxyz234567") == INDUCTOR_NAME &&
	       !strcmp(name + 1 + INDUCTOR_NAME, ".py");
}

#define RANDOM_CHARS 8 /* in the name of a temporary file */

/* Returns the length of the name of a temporary file without its random characters (Python's
 * tempfile), or without the "*" in their place, and without ".py". 0: the name has none. */
static size_t length_before_random(const char *name)
{
	static const char random_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	size_t len = strlen(name);

	if (len < 4 || strcmp(name + len - 3, ".py") != 0)
		return 0;
	len -= 3;
	if (name[len - 1] == '*')
		return len - 1;
	if (len < RANDOM_CHARS || strspn(name + len - RANDOM_CHARS, random_chars) < RANDOM_CHARS)
		return 0;
	return len - RANDOM_CHARS;
}

/* The name of a file without its folders. */
static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* True for the code of a layer that torch_geometric's module_from_template() wrote:
 * ".../torch_geometric.nn.conv.sage_conv_SAGEConv_propagate_89gz6hgy.py". */
static bool is_layer_file(const char *path)
{
	static const char *const ends[] = { "_propagate_", "_edge_updater_" };
	const char *name = base_name(path);
	size_t len = length_before_random(name);

	for (size_t i = 0; len && i < sizeof(ends) / sizeof(*ends); i++) {
		size_t n = strlen(ends[i]);

		if (len > n && !memcmp(name + len - n, ends[i], n))
			return true;
	}
	return len && text__starts(name, "torch_geometric.");
}

/* True for a file that a program wrote in order to run it: "tmp89gz6hgy.py" (Python's tempfile), or
 * a name with a point that no import statement can name, "pkg.mod_89gz6hgy.py". */
static bool is_written(const char *path)
{
	const char *name = base_name(path);
	size_t len = length_before_random(name);

	if (text__starts(name, "__autograph_generated_file"))
		return true;
	if (!len)
		return false;
	if (len == strlen("tmp") && text__starts(name, "tmp"))
		return true;
	return name[len - 1] == '_' && memchr(name, '.', len);
}

const char *files__cell(const char *path, size_t *len)
{
	static const char *const typed[] = { "<cell ", "<ipython-input-" };
	static const char *const kernels[] = { "ipykernel_", "xpython_" };
	static const char digits[] = "0123456789";
	const char *rest, *cell;

	for (size_t i = 0; i < sizeof(typed) / sizeof(*typed); i++) {
		if (!text__starts(path, typed[i]))
			continue;
		cell = path + strlen(typed[i]);
		*len = strspn(cell, digits);
		return *len && (cell[*len] == '>' || cell[*len] == '-') ? cell : NULL;
	}
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
		rest = files__after_dir(path, kernels[i]);
		if (!rest || rest[strspn(rest, digits)] != '/')
			continue;
		cell = rest + strspn(rest, digits) + 1;
		*len = strspn(cell, digits);
		if (*len && !strcmp(cell + *len, ".py"))
			return cell;
	}
	return NULL;
}

bool files__stable(const char *path, char *buf, size_t size)
{
	const char *name = base_name(path);
	size_t len = (size_t)(name - path) + length_before_random(name);

	if (*path == '<' || !is_layer_file(path))
		return false;
	return snprintf(buf, size, "%.*s*.py", (int)len, path) < (int)size;
}

/* Finds the innermost part of a qualified name that is a plain name: "f" in
 * "Net.f.<locals>.<lambda>". Returns its length, or 0 if there is none. */
static size_t find_plain_name(const char *func, const char **ret)
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
	size_t len = find_plain_name(func, &name);

	/* The fact is a JSON array of the arguments. Those after a script's name are the script's. */
	while (at && (at = strstr(at, "\"-")) && (!script || at < script)) {
		/* Python's one-letter options; -c must be the last one before the text. */
		size_t flags = strspn(at += 2, "bBdEhiIOPqRsSuvVxc");

		if (!flags || at[flags - 1] != 'c' || at[flags] != '"')
			continue;
		return !len || memmem(at + flags, strlen(at + flags), name, len);
	}
	return false;
}

/* True for code that a person typed into an interpreter, a notebook or a debugger, and for the
 * user's code in a torch.package archive. */
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

/* True if s ends with `end`. */
static bool ends_in(const char *s, const char *end)
{
	size_t len = strlen(s);
	size_t n = strlen(end);

	return len >= n && !strcmp(s + len - n, end);
}

/* Whether a path after GOROOT/src/ is of Go's standard library: the first folder is a package that
 * it has. */
static bool is_go_package(const char *path)
{
	static const char *const packages[] = {
		"archive",  "bufio",	"bytes",   "cmp",     "compress", "container", "context",
		"crypto",   "database", "debug",   "embed",   "encoding", "errors",    "expvar",
		"flag",	    "fmt",	"go",	   "hash",    "html",	  "image",     "index",
		"internal", "io",	"iter",	   "log",     "maps",	  "math",      "mime",
		"net",	    "os",	"path",	   "plugin",  "reflect",  "regexp",    "runtime",
		"slices",   "sort",	"strconv", "strings", "structs",  "sync",      "syscall",
		"testing",  "text",	"time",	   "unicode", "unique",	  "unsafe",    "vendor",
		"weak"
	};
	size_t len = strcspn(path, "/");

	for (size_t i = 0; path[len] && i < sizeof(packages) / sizeof(*packages); i++)
		if (len == strlen(packages[i]) && !strncmp(path, packages[i], len))
			return true;
	return false;
}

/* Whether a file of Go is of its standard library, or of a module that was downloaded:
 * ".../go/pkg/mod/github.com/x/y@v1.2.3/z.go". Programs that were built with -trimpath have
 * "PROGRAM/runtime/malloc.go". */
static bool is_go_library(const char *path)
{
	const char *src = path, *slash = strchr(path, '/');

	if (!ends_in(path, ".go") && !ends_in(path, ".s"))
		return false;
	if (strstr(path, "@v") || strstr(path, "/vendor/"))
		return true;
	if (*path != '/')
		return slash && is_go_package(slash + 1);
	/* GOROOT is "/usr/local/go", "/usr/lib/go-1.19", "/opt/go/1.26.0/x64". */
	while ((src = files__after_dir(src, "src/")))
		if (memmem(path, (size_t)(src - path), "go", 2) && is_go_package(src))
			return true;
	return false;
}

/* Whether a file is of Rust's standard library, or of a crate that was downloaded. Other files of
 * "/rustc/" are in the list of files__origin(). */
static bool is_rust_library(const char *path)
{
	static const char *const folders[] = { "/.cargo/registry/",   "/.cargo/git/",
					       "/rust/deps/",	      "/rustlib/src/rust/",
					       "/library/alloc/src/", "/library/core/src/",
					       "/library/std/src/" };

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strstr(path, folders[i]) && ends_in(path, ".rs"))
			return true;
	return false;
}

enum file_origin files__kind(const char *path, const struct facts *facts)
{
	enum file_origin origin = files__origin(path, facts);

	if (origin != FILE_USER)
		return origin;
	if (*path == '<' && strchr(path, '>') ? !is_typed(path) : is_written(path))
		return FILE_GENERATED;
	return FILE_USER;
}

enum file_origin files__origin(const char *path, const struct facts *facts)
{
	/* Names of generated code that is in no file. Other such names count as the user's:
	 * "<stdin>", "<string>", notebook cells. */
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
		{ "<makefun-gen-", FILE_PACKAGE },
		{ "<boltons.funcutils.FunctionBuilder-", FILE_PACKAGE },
	};
	/* Compiled code counts as a package if its file is a system header, or below a library of
	 * which only the name is known: "libnccl.so.2", "libc.so.6/malloc/malloc.c". */
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
	if ((library && (!slash || library < slash)) || is_rust_library(path) ||
	    is_go_library(path))
		return FILE_PACKAGE;
	/* A package can be in a folder of another one; the innermost package decides. */
	for (size_t i = 0; i < sizeof(packages) / sizeof(*packages); i++)
		for (const char *p = path; (p = strstr(p, packages[i]));) {
			p += strlen(packages[i]);
			found = text__starts(p, "torch/") ? FILE_TORCH : FILE_PACKAGE;
		}
	if (found != FILE_USER)
		return found;
	if (strstr(path, "/torchinductor_") || is_inductor(path))
		return FILE_TORCH;
	if (strstr(path, "/.triton/cache/") || is_layer_file(path))
		return FILE_PACKAGE;
	if (in_stdlib(path, facts))
		return FILE_STDLIB;
	return in_torch(path) ? FILE_TORCH : FILE_USER;
}

bool files__has_engine(const char *path)
{
	return files__is(path, "torch/autograd/graph.py") ||
	       files__is(path, "torch/autograd/__init__.py") || files__is(path, "torch/_tensor.py");
}

bool files__starts_engine(const char *path, const char *func)
{
	const char *dot = strrchr(func, '.');

	if (!files__has_engine(path))
		return false;
	if (dot)
		func = dot + 1;
	if (files__is(path, "torch/autograd/graph.py"))
		return !strcmp(func, "_engine_run_backward");
	if (!strcmp(func, "backward"))
		return true;
	return !strcmp(func, "grad") && files__is(path, "torch/autograd/__init__.py");
}
