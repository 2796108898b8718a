// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cuBLAS and cuBLASLt. PyTorch allocates the workspace itself, so matrix products do nothing.
 * Memory that the real libraries allocate internally is not counted.
 */
#include "lib.h"

#include <stdlib.h>
#include <string.h>

#define BLAS_MAGIC 0x424c4153u /* "BLAS" */

struct blas {
	uint32_t magic;
	int math, pointers, atomics, sm_count, emulation;
	void *stream;
};

static struct blas *handle(void *h)
{
	struct blas *b = h;

	return b && b->magic == BLAS_MAGIC ? b : NULL;
}

API(int, cublasCreate_v2, void **h)
{
	struct blas *b;

	if (!h)
		return CUBLAS_INVALID_VALUE;
	b = calloc(1, sizeof(*b));
	if (!b)
		return 3; /* CUBLAS_STATUS_ALLOC_FAILED */
	b->magic = BLAS_MAGIC;
	*h = b;
	return 0;
}

API(int, cublasDestroy_v2, void *h)
{
	struct blas *b = handle(h);

	if (!b)
		return CUBLAS_NOT_INITIALIZED;
	b->magic = 0;
	free(b);
	return 0;
}

/* Defines a setter and a getter for a member of the handle. */
#define SETTING(setter, getter, type, member)                                                      \
	API(int, setter, void *h, type value)                                                      \
	{                                                                                          \
		struct blas *b = handle(h);                                                        \
                                                                                                   \
		if (!b)                                                                            \
			return CUBLAS_NOT_INITIALIZED;                                             \
		b->member = value;                                                                 \
		return 0;                                                                          \
	}                                                                                          \
	API(int, getter, void *h, type *value)                                                     \
	{                                                                                          \
		struct blas *b = handle(h);                                                        \
                                                                                                   \
		if (!b || !value)                                                                  \
			return b ? CUBLAS_INVALID_VALUE : CUBLAS_NOT_INITIALIZED;                  \
		*value = b->member;                                                                \
		return 0;                                                                          \
	}

SETTING(cublasSetStream_v2, cublasGetStream_v2, void *, stream)
SETTING(cublasSetMathMode, cublasGetMathMode, int, math)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, int, pointers)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, int, atomics)
SETTING(cublasSetSmCountTarget, cublasGetSmCountTarget, int, sm_count)
SETTING(cublasSetEmulationStrategy, cublasGetEmulationStrategy, int, emulation)

NO_EFFECT(cublasSetWorkspace_v2)

#define FOUR(stem, tail)                                                                           \
	NO_EFFECT(cublasS##stem##tail)                                                             \
	NO_EFFECT(cublasD##stem##tail)                                                             \
	NO_EFFECT(cublasC##stem##tail)                                                             \
	NO_EFFECT(cublasZ##stem##tail)

FOUR(gemm, _v2)
FOUR(gemmBatched, )
FOUR(gemmStridedBatched, )
FOUR(gemv, _v2)
FOUR(axpy, _v2)
FOUR(scal, _v2)
FOUR(copy, _v2)
FOUR(swap, _v2)
FOUR(trsm, _v2)
FOUR(trsmBatched, )
FOUR(trmm, _v2)
FOUR(syrk, _v2)
NO_EFFECT(cublasHgemm)
NO_EFFECT(cublasHgemmBatched)
NO_EFFECT(cublasHgemmStridedBatched)
NO_EFFECT(cublasSgemmEx)
NO_EFFECT(cublasCgemmEx)
NO_EFFECT(cublasCgemm3m)
NO_EFFECT(cublasZgemm3m)
NO_EFFECT(cublasGemmEx)
NO_EFFECT(cublasGemmBatchedEx)
NO_EFFECT(cublasGemmStridedBatchedEx)
NO_EFFECT(cublasGemmGroupedBatchedEx)
NO_EFFECT(cublasSgemmGroupedBatched)
NO_EFFECT(cublasDgemmGroupedBatched)
NO_EFFECT(cublasSger_v2)
NO_EFFECT(cublasDger_v2)

/* ---- cuBLASLt ---- */

/* cublasLtMatmulHeuristicResult_t of cuBLASLt 12 and 13 (cublasLt.h); its algorithm is opaque. */
struct heuristic {
	uint64_t algorithm[8];
	size_t workspace;
	int status;
	float waves;
	int reserved[4];
};
_Static_assert(sizeof(struct heuristic) == 96, "cublasLtMatmulHeuristicResult_t");

/* Returns one algorithm that needs no workspace. The caller guarantees the size of the array. */
API(int, cublasLtMatmulAlgoGetHeuristic, void *h, void *operation, void *a, void *b, void *c,
    void *d, void *preference, int requested, struct heuristic *results, int *n)
{
	if (!results || !n || requested < 1)
		return CUBLAS_INVALID_VALUE;
	memset(results, 0, sizeof(*results));
	*n = 1;
	return 0;
}

/* Accepts any algorithm chosen by the caller, without a workspace. */
API(int, cublasLtMatmulAlgoCheck, void *h, void *operation, void *a, void *b, void *c, void *d,
    void *algorithm, struct heuristic *result)
{
	if (!result)
		return CUBLAS_INVALID_VALUE;
	memset(result, 0, sizeof(*result));
	return 0;
}

GIVEN(cublasLtCreate, CUBLAS_INVALID_VALUE)
GIVEN(cublasLtMatmulDescCreate, CUBLAS_INVALID_VALUE)
GIVEN(cublasLtMatrixLayoutCreate, CUBLAS_INVALID_VALUE)
GIVEN(cublasLtMatmulPreferenceCreate, CUBLAS_INVALID_VALUE)
NO_EFFECT(cublasLtDestroy)
NO_EFFECT(cublasLtMatmulDescDestroy)
NO_EFFECT(cublasLtMatmulDescSetAttribute)
NO_EFFECT(cublasLtMatrixLayoutDestroy)
NO_EFFECT(cublasLtMatrixLayoutSetAttribute)
NO_EFFECT(cublasLtMatmulPreferenceDestroy)
NO_EFFECT(cublasLtMatmulPreferenceSetAttribute)
NO_EFFECT(cublasLtMatmul)
