// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds the PyTorch operation that a thread runs. Each operation has a function
 * at::_ops::NAME_OVERLOAD::call, exported by libtorch_cpu. Exception tables allow unwinding the
 * stack to it.
 */
#include "depends.h"

#include <ctype.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 96
#define OPS "_ZN2at4_ops" /* at::_ops::, followed by the length of a name and the name */

/* Operations whose result or temporaries have sizes that depend on values. */
static const char *const shapes[] = {
	"nonzero",
	"nonzero_numpy",
	"argwhere",
	"masked_select",
	"_unique",
	"_unique2",
	"unique_dim",
	"unique_consecutive",
	"unique_dim_consecutive",
	"repeat_interleave",
	"bincount",
	"one_hot",
	"coalesce",
	"_coalesce",
	"to_sparse",
	"_to_sparse",
	"to_sparse_csr",
	"to_sparse_csc",
	"to_sparse_bsr",
	"to_sparse_bsc",
	"_ctc_loss",
	"combinations",
	"to_padded_tensor",
	"_nested_tensor_from_mask",
	"_padded_dense_to_jagged_forward",
	"tensor_split",
};

/* Suffixes of overload names. Rare suffixes that also end operations' names are left out. */
static const char *const overloads[] = {
	"_self_Tensor", "_dtype_layout", "_Tensor", "_tensor_indices_or_sections",
	"_device",	"_dtype",	 "_other",  "_ScalarSelf",
	"_self",
};

static const char *const copies[] = { "copy_", "_to_copy",	 "to",	      "contiguous",
				      "clone", "_foreach_copy_", "_copy_from" };

/* Operations that check their arguments by one truth value. */
static const char *const checked[] = { "repeat_interleave" };

#define HAS(list, name) has(list, sizeof(list) / sizeof(*(list)), name)

static bool has(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], name))
			return true;
	return false;
}

/* Extracts the operation's name from a mangled symbol. False: not an operation. */
static bool read_name(const char *symbol, char name[OPERATION_NAME])
{
	unsigned long length;
	char *at;

	if (strncmp(symbol, OPS, strlen(OPS)) || !isdigit((unsigned char)symbol[strlen(OPS)]))
		return false;
	length = strtoul(symbol + strlen(OPS), &at, 10);
	if (!length || length >= OPERATION_NAME || strlen(at) < length)
		return false;
	memcpy(name, at, length);
	name[length] = '\0';
	for (size_t i = 0; i < sizeof(overloads) / sizeof(*overloads); i++) {
		size_t n = strlen(overloads[i]);

		if (length > n && !strcmp(name + length - n, overloads[i])) {
			name[length - n] = '\0';
			break;
		}
	}
	return true;
}

static const char *base(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path ?: "";
}

/* True for the interpreter's code: frames above it belong to an outer line of Python. */
static bool is_python(const Dl_info *at)
{
	const char *library = base(at->dli_fname), *symbol = at->dli_sname ?: "";

	return !strncmp(symbol, "_PyEval", 7) || !strncmp(symbol, "PyEval", 6) ||
	       !strncmp(library, "libpython", 9) || !strncmp(library, "python", 6);
}

/* For a function of an extension that is not an operation: its name without arguments. */
static void name_function(const Dl_info *at, char name[OPERATION_NAME])
{
	static char *(*demangle)(const char *, char *, size_t *, int *);
	void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
	char *plain = NULL;

	if (library) {
		demangle = (char *(*)(const char *, char *, size_t *, int *))(
			uintptr_t)dlsym(library, "__cxa_demangle");
		plain = demangle ? demangle(at->dli_sname, NULL, NULL, NULL) : NULL;
		dlclose(library);
	}
	snprintf(name, OPERATION_NAME, "%s", plain ?: at->dli_sname);
	free(plain);
	for (char *p = name; *p; p++)
		if (*p == '(' && p > name && strncmp(p, "(anonymous", 10)) {
			*p = '\0';
			break;
		}
}

void operation__now(struct operation *op)
{
	void *stack[MAX_DEPTH];
	int n = backtrace(stack, MAX_DEPTH);
	bool only_copies = true;
	char name[OPERATION_NAME], other[OPERATION_NAME] = "";
	Dl_info own, at;

	*op = (struct operation){ 0 };
	if (!dladdr((void *)(uintptr_t)operation__now, &own))
		return;
	for (int i = 0; i < n; i++) {
		if (!dladdr((char *)stack[i] - 1, &at) || at.dli_fbase == own.dli_fbase)
			continue;
		if (is_python(&at))
			break;
		if (at.dli_sname && read_name(at.dli_sname, name)) {
			op->shape |= HAS(shapes, name);
			op->checks |= HAS(checked, name);
			only_copies &= HAS(copies, name);
			memcpy(op->name, name, sizeof(name));
		} else if (!other[0] && at.dli_sname && !strstr(base(at.dli_fname), "torch_cuda")) {
			name_function(&at, other);
		}
	}
	op->copy = op->name[0] && only_copies;
	if (!op->name[0])
		memcpy(op->name, other[0] ? other : "?", sizeof(other));
	if (!op->shape && strstr(other, "nms"))
		op->shape = true; /* torchvision operations that select boxes by score */
}

const char *operation__torch(const void *code)
{
	static const char *known;
	const char *text = __atomic_load_n(&known, __ATOMIC_ACQUIRE), *at;
	Dl_info info;
	char *copy;

	if (text)
		return text;
	if (!dladdr(code, &info) || !info.dli_fname ||
	    !(at = strstr(info.dli_fname, "/torch/lib/")))
		return "";
	copy = strndup(info.dli_fname, (size_t)(at - info.dli_fname) + strlen("/torch/"));
	if (!copy)
		return "";
	/* If two threads store a copy at once, one copy leaks. */
	__atomic_store_n(&known, copy, __ATOMIC_RELEASE);
	return copy;
}
