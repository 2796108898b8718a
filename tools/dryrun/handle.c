// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * dlsym(): a program that opens one of CUDA's libraries and asks its handle for a function (ctypes,
 * loaders as JAX's and CuPy's) gets the dry run's function, as programs that are linked with the
 * library do. All other calls go on to the C library's dlsym(), by a jump: it sees its caller, on
 * which RTLD_NEXT depends.
 */
#include "dryrun.h"
#include "linked.h"

#include <dlfcn.h>
#include <string.h>

#if defined(__x86_64__)
#define OLDEST_DLSYM "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDEST_DLSYM "GLIBC_2.17"
#endif

typedef void *dlsym_t(void *handle, const char *name);

/* Used by the code below. */
__attribute__((visibility("hidden"))) dlsym_t *handle__real;
__attribute__((visibility("hidden"))) void *handle__answer(void *handle, const char *name);

/* Libraries whose functions are answered here. Copies in a wheel have a number in their name:
 * libcudart.faf08d9a.so.13, libcudart-c64a25f3.so.12. */
static bool is_cuda(const char *path)
{
	static const char *const names[] = { "libcudart", "libcuda.", "libcuda-",    "libcublas",
					     "libcudnn",  "libcufft", "libcusolver", "libcusparse",
					     "libnccl.",  "libnccl-", "libcupti",    "libcufile" };
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return false;
}

/* The dry run's function for this call; NULL: the C library answers. */
void *handle__answer(void *handle, const char *name)
{
	Dl_info from, here;
	void *own, *found;

	if (!handle__real)
		handle__real = (dlsym_t *)(uintptr_t)dlvsym(RTLD_NEXT, "dlsym", OLDEST_DLSYM);
	linked__scan();
	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name ||
	    (strncmp(name, "cu", 2) && strncmp(name, "nccl", 4)))
		return NULL;
	own = linked__own(name);
	found = own ? handle__real(handle, name) : NULL;
	if (!found || !dladdr(found, &from) || !dladdr(own, &here) ||
	    from.dli_fbase == here.dli_fbase || !from.dli_fname || !is_cuda(from.dli_fname))
		return NULL;
	return own;
}

#if defined(__x86_64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	".cfi_startproc\n"
	"	push %rdi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	sub $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call handle__answer\n"
	"	add $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	test %rax, %rax\n"
	"	jne 1f\n"
	"	jmp *handle__real(%rip)\n"
	"1:	ret\n"
	".cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	".cfi_startproc\n"
	"	stp x29, x30, [sp, #-32]!\n"
	".cfi_def_cfa_offset 32\n"
	".cfi_offset x29, -32\n"
	".cfi_offset x30, -24\n"
	"	stp x0, x1, [sp, #16]\n"
	"	bl handle__answer\n"
	"	cbnz x0, 1f\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	adrp x16, handle__real\n"
	"	ldr x16, [x16, #:lo12:handle__real]\n"
	"	br x16\n"
	"1:	ldp x29, x30, [sp], #32\n"
	"	ret\n"
	".cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#endif
