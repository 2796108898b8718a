/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_TORCH_H
#define MT_TORCH_TORCH_H
/* PyTorch inside a process: its libraries, version, and the functions that are probed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/proc.h"
#include "process/site.h"

enum hook_id {
	HOOK_REPORT,  /* c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device),
			 libc10 */
	HOOK_OOM,     /* c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device), libc10,
			 torch >= 1.13 */
	HOOK_CPU_NEW, /* c10::ProfiledCPUMemoryReporter::New(void*, size_t), libc10 */
	HOOK_CPU_DELETE, /* c10::ProfiledCPUMemoryReporter::Delete(void*), libc10 */
	HOOK_EDGE, /* torch::autograd::impl::set_gradient_edge(const Variable&, Edge), libtorch_cpu */
	HOOK_EVALUATE,	/* torch::autograd::Engine::evaluate_function(shared_ptr<GraphTask>&, Node*,
			   ...), libtorch_cpu */
	HOOK_SCOPE_END, /* the end of a record_function scope, libtorch_python: see torchpy.h */
	HOOK_CODE_GONE, /* PyCode_Type.tp_dealloc, in the interpreter */
	HOOK_MODULE_CALL, /* slot_tp_call, in the interpreter */
	HOOK_NR
};

struct hook {
	enum hook_id id;
	bool found;
	bool required;	/* without it there is nothing to trace */
	char path[512]; /* "/proc/PID/map_files/..." or /proc/PID/root/...: what the kernel is given
			 */
	uint64_t inode; /* which file that is */
	uint32_t dev_major, dev_minor;
	char file[256];	  /* the file's own path, for people: hostile text, its beginning cut when
			     long */
	char symbol[128]; /* mangled name, or "PyCode_Type.tp_dealloc" */
	uint64_t offset;  /* of the probed instruction in the file, bytes */
	unsigned others; /* further mapped files that export the symbol: calls there are not seen */
	struct site site;    /* which instruction and why */
	const char *why_not; /* static text where not found */
};

struct torch_info {
	bool found;	  /* libc10 is mapped */
	bool cuda;	  /* libc10_cuda is mapped */
	char version[64]; /* "2.11.0+cu130" from torch/version.py, "" unknown (or replaced since) */
	char cuda_runtime[64]; /* "libcudart.so.13" as mapped, "" none: hostile text */
};

/* Looks through the maps; reads torch/version.py beside libtorch, of several beside the one of the
 * lowest rank. 0 or -errno. */
int torch__info(const struct proc *p, const struct maps *m, struct torch_info *ret);
/*
 * A process may have two PyTorchs: Python's, and one that a C++ library brings along. How likely a
 * mapped file is part of the one that is recorded: 0 beside the libtorch_python in use, 1 named as
 * PyTorch's libraries, 2 any other.
 */
int torch__rank(const struct maps *m, const char *path);
/* Named as PyTorch's, and not beside the libtorch_python in use: what it allocates is not recorded.
 */
bool torch__is_other(const struct maps *m, const char *path);
/* "HOOK_REPORT" -> "report", for messages. */
const char *hook__name(enum hook_id id);
/*
 * Finds the hooks that live in torch's libraries (all but the interpreter's), by .dynsym in every
 * mapped file that exports them, and picks each one's site. hooks: HOOK_NR entries, zeroed here.
 * 0; when a required one is missing (its why_not says) -ENOENT, or -EPERM, -ESTALE where a file
 * could not be opened; -errno.
 */
int torch__hooks(const struct proc *p, const struct maps *m, struct hook *hooks);
/*
 * Fills a hook from a function's address in the target (for those found by data): all but id,
 * required and symbol, which are the caller's. 0 or -errno with why_not set. torch__hooks zeroes
 * the whole array, so it comes first.
 */
int hook__at_address(const struct proc *p, const struct maps *m, uint64_t addr, unsigned args,
		     struct hook *h);

#endif
