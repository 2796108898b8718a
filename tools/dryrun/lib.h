/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What the answers of CUDA's mathematics and communication libraries share. Their handles are ours:
 * none may reach the real library. A function that only puts work onto a stream, in memory that its
 * caller gave, is modelled by doing nothing; what the dry run cannot know is written into its log.
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

/* Results, as each library's header numbers them. 0 is success everywhere. */
enum {
	CUBLAS_NOT_INITIALIZED = 1,
	CUBLAS_INVALID_VALUE = 7,
	CUBLAS_NOT_SUPPORTED = 15,
	CUFFT_INVALID_VALUE = 4,
	CUFFT_NOT_SUPPORTED = 16,
	CURAND_INTERNAL_ERROR = 999, /* there is no "not supported" */
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

/* cudaDataType, as cuBLAS, cuFFT, cuSOLVER and cuSPARSE share it: bytes of an element; 16, the
 * most, if unknown. */
unsigned int lib__data_size(int type);

/* Stores a handle: not NULL, given once, never an address of anything. handle may be NULL. */
void lib__give(void **handle);

/* CUDNN_STATUS_NOT_SUPPORTED and _BAD_PARAM of the cuDNN that the program has loaded: renumbered
 * in 9. */
int lib__cudnn_not_supported(void);
int lib__cudnn_bad_param(void);

/* A function that has no effect on memory: its arguments need no look. */
#define NO_EFFECT(name)                                                                            \
	API(int, name, void)                                                                       \
	{                                                                                          \
		return 0;                                                                          \
	}
