// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Functions without a model: one for each line of gen/calls.def. All are weak: a definition
 * elsewhere in this library replaces them.
 */
#include "dryrun.h"
#include "lib.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/*
 * On x86-64 and AArch64, integers and pointers use the same registers whatever their types, and
 * floating-point numbers use others. So a function may declare more arguments than callers pass, if
 * it reads only those passed.
 */
#define ONE(n) long a##n
#define ARGUMENTS                                                                                  \
	ONE(1), ONE(2), ONE(3), ONE(4), ONE(5), ONE(6), ONE(7), ONE(8), ONE(9), ONE(10), ONE(11),  \
		ONE(12), ONE(13), ONE(14), ONE(15), ONE(16), ONE(17), ONE(18), ONE(19), ONE(20),   \
		ONE(21), ONE(22), ONE(23), ONE(24), ONE(25), ONE(26), ONE(27), ONE(28), ONE(29),   \
		ONE(30), ONE(31), ONE(32)

#define WEAK __attribute__((weak))

#define OUT(n, size) zero((void *)a##n, size);
#define GIVE(n) lib__give((void **)a##n);

#define ANSWER_done(library) 0
#define ANSWER_zero(library) 0
#define ANSWER_failed(library) -1
#define ANSWER_unknown(library) unknown(library)

#define CALL(library, name, answer, ...)                                                           \
	EXPORT long name(ARGUMENTS);                                                               \
	EXPORT WEAK long name(ARGUMENTS)                                                           \
	{                                                                                          \
		static atomic_bool told;                                                           \
                                                                                                   \
		tell(&told, #name);                                                                \
		__VA_ARGS__                                                                        \
		return ANSWER_##answer(LIB_##library);                                             \
	}

/* Each library's result for "not supported". */
static const int not_supported[] = {
	[LIB_cudart] = CUDA_NOT_SUPPORTED,	   [LIB_driver] = CUDA_NOT_SUPPORTED,
	[LIB_cublas] = CUBLAS_NOT_SUPPORTED,	   [LIB_cublaslt] = CUBLAS_NOT_SUPPORTED,
	[LIB_cufft] = CUFFT_NOT_SUPPORTED,	   [LIB_curand] = CURAND_INTERNAL_ERROR,
	[LIB_cusolver] = CUSOLVER_NOT_SUPPORTED,   [LIB_cusparse] = CUSPARSE_NOT_SUPPORTED,
	[LIB_cusparselt] = CUSPARSE_NOT_SUPPORTED, [LIB_nccl] = NCCL_INVALID_USAGE,
	[LIB_cupti] = CUPTI_NOT_SUPPORTED,	   [LIB_cufile] = CUFILE_NOT_SUPPORTED,
};

static void tell(atomic_bool *told, const char *name)
{
	if (!atomic_load_explicit(told, memory_order_relaxed) && !atomic_exchange(told, true))
		dryrun__unmodelled(name);
}

/* Clears a result in host memory. Results in device memory are not written, as by a kernel. */
static void zero(void *to, size_t size)
{
	if (to && !dryrun__is_device(to))
		memset(to, 0, size);
}

static long unknown(enum library library)
{
	if (library == LIB_cudnn)
		return lib__cudnn_not_supported();
	return library == LIB_cudart ? dryrun__result(CUDA_NOT_SUPPORTED) : not_supported[library];
}

#include "gen/calls.def"

void lib__give(void **handle)
{
	/* handles are not canonical addresses, so access faults */
	static atomic_uintptr_t last = 0x4d54000000000000;

	if (handle)
		*handle = (void *)(atomic_fetch_add(&last, 16) + 16);
}

int lib__version(const char *library, const char *get_property, int times)
{
	int part[3] = { 0 }; /* libraryPropertyType: major, minor, patch */

	for (int major = 10; major < 20; major++) {
		char name[64];
		void *handle;
		int (*ask)(int, int *);

		snprintf(name, sizeof(name), "%s.so.%d", library, major);
		handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
		if (!handle)
			continue;
		ask = (int (*)(int, int *))(uintptr_t)dlsym(handle, get_property);
		dlclose(handle);
		if (!ask || ask(0, &part[0]) || ask(1, &part[1]) || ask(2, &part[2]))
			return 0;
		return part[0] * times + part[1] * 100 + part[2];
	}
	return 0;
}

unsigned int lib__data_size(int type)
{
	/* library_types.h: a real and its complex type in turns, in the order 32F 64F 16F 8I, and
	 * so on. */
	static const unsigned char sizes[] = {
		[0] = 4,  [4] = 8,  [1] = 8,  [5] = 16, [2] = 2,  [6] = 4,  [3] = 1,  [7] = 2,
		[8] = 1,  [9] = 2,  [10] = 4, [11] = 8, [12] = 4, [13] = 8, [14] = 2, [15] = 4,
		[20] = 2, [22] = 2, [24] = 8, [26] = 8, [28] = 1, [29] = 1,
	};

	return type >= 0 && (size_t)type < sizeof(sizes) && sizes[type] ? sizes[type] : 16;
}
