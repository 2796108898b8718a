/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the models of CUDA's math and communication libraries. Their handles are defined here
 * and must not reach the real libraries. Functions that only enqueue work in the caller's memory do
 * nothing. Results that the dry run cannot know are noted in its log.
 */
#include "dryrun.h"

enum library {
	LIB_cudart,
	LIB_driver,
	LIB_cublas,
	LIB_cublaslt,
	LIB_cudnn,
	LIB_cufft,
	LIB_curand,
	LIB_cusolver,
	LIB_cusparse,
	LIB_cusparselt,
	LIB_nccl,
	LIB_cufile,
	LIB_cupti,
};

/* Results as numbered by each library's header. 0 is success everywhere. */
enum {
	CUBLAS_NOT_INITIALIZED = 1,
	CUBLAS_INVALID_VALUE = 7,
	CUBLAS_NOT_SUPPORTED = 15,
	CUFFT_INVALID_VALUE = 4,
	CUFFT_NOT_SUPPORTED = 16,
	CURAND_INTERNAL_ERROR = 999, /* the library has no "not supported" */
	CUSOLVER_INVALID_VALUE = 3,
	CUSOLVER_NOT_SUPPORTED = 9,
	CUSPARSE_ALLOC_FAILED = 2,
	CUSPARSE_INVALID_VALUE = 3,
	CUSPARSE_NOT_SUPPORTED = 10,
	NCCL_OK = 0,
	NCCL_UNHANDLED_CUDA = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	CUPTI_NOT_SUPPORTED = 27,
	CUFILE_NOT_SUPPORTED = 5007, /* GPUDirect Storage not supported on current platform */
};

/* Bytes per element of a cudaDataType, shared by cuBLAS, cuFFT, cuSOLVER and cuSPARSE; 16, the
 * largest, if unknown. */
unsigned int lib__data_size(int type);

/*
 * The version of a loaded library of CUDA, such as "libcublas", by its own GetProperty function,
 * which needs no device: major * times + minor * 100 + patch. 0: it is not loaded.
 */
int lib__version(const char *library, const char *get_property, int times);

/* Stores a new handle: unique, not NULL, not an address. handle may be NULL. */
void lib__give(void **handle);

/* CUDNN_STATUS_NOT_SUPPORTED and _BAD_PARAM of the loaded cuDNN: version 9 renumbered them. */
int lib__cudnn_not_supported(void);
int lib__cudnn_bad_param(void);

/* Defines a function that makes an object of which no later call needs anything. */
#define GIVEN(name, invalid_value)                                                                 \
	API(int, name, void **object)                                                              \
	{                                                                                          \
		if (!object)                                                                       \
			return invalid_value;                                                      \
		lib__give(object);                                                                 \
		return 0;                                                                          \
	}
