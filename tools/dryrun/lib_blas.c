// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cuBLAS and cuBLASLt. PyTorch allocates the workspace itself, so matrix products do nothing but
 * take virtual time (clock.h). Memory that the real libraries allocate internally is not counted.
 */
#include "clock.h"
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

FOUR(gemmBatched, )
FOUR(gemv, _v2)
FOUR(axpy, _v2)
FOUR(scal, _v2)
FOUR(copy, _v2)
FOUR(swap, _v2)
FOUR(trsm, _v2)
FOUR(trsmBatched, )
FOUR(trmm, _v2)
FOUR(syrk, _v2)
NO_EFFECT(cublasHgemmBatched)
NO_EFFECT(cublasCgemmEx)
NO_EFFECT(cublasCgemm3m)
NO_EFFECT(cublasZgemm3m)
NO_EFFECT(cublasGemmBatchedEx)
NO_EFFECT(cublasGemmGroupedBatchedEx)
NO_EFFECT(cublasSgemmGroupedBatched)
NO_EFFECT(cublasDgemmGroupedBatched)
NO_EFFECT(cublasSger_v2)
NO_EFFECT(cublasDger_v2)

/* Products with a virtual time; element: bytes of an element of the matrices. */
static int product(void *h, int m, int n, int k, int batch, unsigned int element)
{
	struct blas *b = clock__on() ? handle(h) : NULL;

	if (b && m > 0 && n > 0 && k > 0 && batch > 0)
		dryrun__stream_run(b->stream,
				   clock__product_ns((uint64_t)m, (uint64_t)n, (uint64_t)k,
						     (uint64_t)batch, element));
	return 0;
}

#define SIZES void *h, int ta, int tb, int m, int n, int k

#define GEMM(name, element)                                                                        \
	API(int, name, SIZES)                                                                      \
	{                                                                                          \
		return product(h, m, n, k, 1, element);                                            \
	}
#define GEMM_STRIDED(name, element)                                                                \
	API(int, name, SIZES, const void *alpha, const void *a, int lda, long long sa,             \
	    const void *b, int ldb, long long sb, const void *beta, void *c, int ldc,              \
	    long long sc, int batch)                                                               \
	{                                                                                          \
		return product(h, m, n, k, batch, element);                                        \
	}
/* The type of the first matrix stands for all. */
#define GEMM_EX(name)                                                                              \
	API(int, name, SIZES, const void *alpha, const void *a, int type)                          \
	{                                                                                          \
		return product(h, m, n, k, 1, lib__data_size(type));                               \
	}

GEMM(cublasHgemm, 2)
GEMM(cublasSgemm_v2, 4)
GEMM(cublasDgemm_v2, 8)
GEMM(cublasCgemm_v2, 8)
GEMM(cublasZgemm_v2, 16)
GEMM_STRIDED(cublasHgemmStridedBatched, 2)
GEMM_STRIDED(cublasSgemmStridedBatched, 4)
GEMM_STRIDED(cublasDgemmStridedBatched, 8)
GEMM_STRIDED(cublasCgemmStridedBatched, 8)
GEMM_STRIDED(cublasZgemmStridedBatched, 16)
GEMM_EX(cublasSgemmEx)
GEMM_EX(cublasGemmEx)

API(int, cublasGemmStridedBatchedEx, SIZES, const void *alpha, const void *a, int a_type, int lda,
    long long sa, const void *b, int b_type, int ldb, long long sb, const void *beta, void *c,
    int c_type, int ldc, long long sc, int batch)
{
	return product(h, m, n, k, batch, lib__data_size(a_type));
}

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
GIVEN(cublasLtMatmulPreferenceCreate, CUBLAS_INVALID_VALUE)
NO_EFFECT(cublasLtDestroy)
NO_EFFECT(cublasLtMatmulDescDestroy)
NO_EFFECT(cublasLtMatmulDescSetAttribute)
NO_EFFECT(cublasLtMatmulPreferenceDestroy)
NO_EFFECT(cublasLtMatmulPreferenceSetAttribute)

#define LAYOUT_MAGIC 0x4c41594fu /* "LAYO" */
#define LAYOUT_BATCH_COUNT 5	 /* cublasLtMatrixLayoutAttribute_t */

/* A matrix's sizes, with the virtual clock; otherwise a layout is a bare handle. */
struct layout {
	uint32_t magic;
	int type, batch;
	uint64_t rows, columns;
};

static struct layout *layout(void *handle)
{
	struct layout *l = clock__on() ? handle : NULL;

	return l && l->magic == LAYOUT_MAGIC ? l : NULL;
}

API(int, cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows, uint64_t columns,
    int64_t ld)
{
	struct layout *l;

	if (!out)
		return CUBLAS_INVALID_VALUE;
	if (!clock__on()) {
		lib__give(out);
		return 0;
	}
	l = malloc(sizeof(*l));
	if (!l)
		return 3; /* CUBLAS_STATUS_ALLOC_FAILED */
	*l = (struct layout){ LAYOUT_MAGIC, type, 1, rows, columns };
	*out = l;
	return 0;
}

API(int, cublasLtMatrixLayoutDestroy, void *handle)
{
	struct layout *l = layout(handle);

	if (l)
		l->magic = 0;
	free(l);
	return 0;
}

API(int, cublasLtMatrixLayoutSetAttribute, void *handle, int attribute, const void *value,
    size_t size)
{
	struct layout *l = layout(handle);

	if (l && attribute == LAYOUT_BATCH_COUNT && value && size >= sizeof(l->batch))
		memcpy(&l->batch, value, sizeof(l->batch));
	return 0;
}

API(int, cublasLtMatmul, void *h, void *operation, const void *alpha, const void *a, void *a_layout,
    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
    void *d_layout, const void *algorithm, void *workspace, size_t workspace_size, void *stream)
{
	struct layout *from = layout(a_layout), *to = layout(d_layout);

	/* The inner size: the first matrix may be transposed, which its layout does not say. */
	if (from && to && to->rows && from->batch > 0)
		dryrun__stream_run(stream, clock__product_ns(to->rows, to->columns,
							     from->rows * from->columns / to->rows,
							     (uint64_t)from->batch,
							     lib__data_size(from->type)));
	return 0;
}

/* As CUBLAS_VERSION of cuBLAS, since CUDA 12. The handle may be NULL. */
API(int, cublasGetVersion_v2, void *h, int *version)
{
	if (!version)
		return CUBLAS_INVALID_VALUE;
	*version = lib__version("libcublas", "cublasGetProperty", 10000);
	return *version ? 0 : CUBLAS_NOT_SUPPORTED;
}
