// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cuSPARSE and cuSPARSELt. Products of a sparse and a dense matrix do nothing. The size of a
 * product of two sparse matrices depends on their values, so it is not supported (gen/calls.def).
 */
#include "lib.h"

#include <stdlib.h>
#include <string.h>

/* ---- sparse matrices ---- */

struct matrix {
	int64_t rows, columns, elements;
};

static int create(struct matrix **to, int64_t rows, int64_t columns, int64_t elements)
{
	struct matrix *m = to ? calloc(1, sizeof(*m)) : NULL;

	if (!m)
		return to ? CUSPARSE_ALLOC_FAILED : CUSPARSE_INVALID_VALUE;
	*m = (struct matrix){ rows, columns, elements };
	*to = m;
	return 0;
}

/* Ignores the arguments after these (pointers, types): no later call needs them. */
#define MATRIX(name)                                                                               \
	API(int, name, struct matrix **to, int64_t rows, int64_t columns, int64_t elements)        \
	{                                                                                          \
		return create(to, rows, columns, elements);                                        \
	}

MATRIX(cusparseCreateCsr)
MATRIX(cusparseCreateCsc)
MATRIX(cusparseCreateCoo)
MATRIX(cusparseCreateConstCsr)
MATRIX(cusparseCreateConstCsc)
MATRIX(cusparseCreateConstCoo)

/* Blocked: elements are blocks; the block size follows their number. */
API(int, cusparseCreateBsr, struct matrix **to, int64_t rows, int64_t columns, int64_t blocks,
    int64_t height, int64_t width)
{
	int64_t elements, each;

	if (__builtin_mul_overflow(height, width, &each) ||
	    __builtin_mul_overflow(blocks, each, &elements) ||
	    __builtin_mul_overflow(rows, height, &rows) ||
	    __builtin_mul_overflow(columns, width, &columns))
		return CUSPARSE_INVALID_VALUE;
	return create(to, rows, columns, elements);
}

API(int, cusparseDestroySpMat, struct matrix *m)
{
	free(m);
	return 0;
}

API(int, cusparseSpMatGetSize, const struct matrix *m, int64_t *rows, int64_t *columns,
    int64_t *elements)
{
	if (!m || !rows || !columns || !elements)
		return CUSPARSE_INVALID_VALUE;
	*rows = m->rows;
	*columns = m->columns;
	*elements = m->elements;
	return 0;
}

/* Rare formats, whose creation fails: later calls would need sizes that are not kept here. */
#define NOT_MADE(name)                                                                             \
	API(int, name, void **to)                                                                  \
	{                                                                                          \
		if (to)                                                                            \
			*to = NULL;                                                                \
		dryrun__unmodelled(#name);                                                         \
		return CUSPARSE_NOT_SUPPORTED;                                                     \
	}

NOT_MADE(cusparseCreateBlockedEll)
NOT_MADE(cusparseCreateConstBlockedEll)
NOT_MADE(cusparseCreateSlicedEll)
NOT_MADE(cusparseCreateConstSlicedEll)
NOT_MADE(cusparseCreateConstBsr)

GIVEN(cusparseCreate, CUSPARSE_INVALID_VALUE)
GIVEN(cusparseCreateMatDescr, CUSPARSE_INVALID_VALUE)
GIVEN(cusparseCreateDnVec, CUSPARSE_INVALID_VALUE)
GIVEN(cusparseCreateDnMat, CUSPARSE_INVALID_VALUE)
NO_EFFECT(cusparseDestroy)
NO_EFFECT(cusparseDestroyMatDescr)
NO_EFFECT(cusparseDestroyDnVec)
NO_EFFECT(cusparseDestroyDnMat)
NO_EFFECT(cusparseSetStream)
NO_EFFECT(cusparseSetPointerMode)
NO_EFFECT(cusparseCsrSetPointers)
NO_EFFECT(cusparseCsrSetStridedBatch)
NO_EFFECT(cusparseDnMatSetStridedBatch)
NO_EFFECT(cusparseSpMatSetAttribute)
NO_EFFECT(cusparseSetMatType)
NO_EFFECT(cusparseSetMatFillMode)
NO_EFFECT(cusparseSetMatDiagType)
NO_EFFECT(cusparseSetMatIndexBase)

/* ---- workspaces: the dry run needs none, but reports the size that the real library is assumed to
 * need ---- */

static int guess(size_t *to, size_t size)
{
	if (!to)
		return CUSPARSE_INVALID_VALUE;
	dryrun__unmodelled("cuSPARSE: workspace");
	*to = size;
	return 0;
}

#define SIZE_10(name)                                                                              \
	API(int, name, void *h, int op, void *alpha, void *a, void *x, void *beta, void *y,        \
	    int type, int algorithm, size_t *size)                                                 \
	{                                                                                          \
		return guess(size, 0);                                                             \
	}
#define SIZE_11(name)                                                                              \
	API(int, name, void *h, int op_a, int op_b, void *alpha, void *a, void *b, void *beta,     \
	    void *c, int type, int algorithm, size_t *size)                                        \
	{                                                                                          \
		return guess(size, 0);                                                             \
	}

SIZE_10(cusparseSpMV_bufferSize)
SIZE_11(cusparseSpMM_bufferSize)
SIZE_11(cusparseSDDMM_bufferSize)

API(int, cusparseSpSV_bufferSize, void *h, int op, void *alpha, void *a, void *x, void *y, int type,
    int algorithm, void *d, size_t *size)
{
	return guess(size, 0);
}

API(int, cusparseSpSM_bufferSize, void *h, int op_a, int op_b, void *alpha, void *a, void *b,
    void *c, int type, int algorithm, void *d, size_t *size)
{
	return guess(size, 0);
}

/* A sort needs a second buffer for keys and values of 32 bits. */
static int sort_size(int elements, size_t *size)
{
	return elements < 0 ? CUSPARSE_INVALID_VALUE : guess(size, (size_t)elements * 8);
}

API(int, cusparseXcoosort_bufferSizeExt, void *h, int m, int n, int elements, void *rows,
    void *columns, size_t *size)
{
	return sort_size(elements, size);
}

API(int, cusparseXcsrsort_bufferSizeExt, void *h, int m, int n, int elements, void *rows,
    void *columns, size_t *size)
{
	return sort_size(elements, size);
}

/* For functions whose size is an int. */
static int guess_narrow(int *size)
{
	size_t wide;
	int err = guess(&wide, 0);

	if (!size)
		return CUSPARSE_INVALID_VALUE;
	*size = (int)wide;
	return err;
}

#define FOR_TYPE(t)                                                                                \
	API(int, cusparse##t##bsrsv2_bufferSize, void *h, int direction, int op, int blocks,       \
	    int elements, void *d, void *values, void *rows, void *columns, int size_of_block,     \
	    void *info, int *size)                                                                 \
	{                                                                                          \
		return guess_narrow(size);                                                         \
	}                                                                                          \
	API(int, cusparse##t##bsrsm2_bufferSize, void *h, int direction, int op, int op_x,         \
	    int blocks, int columns_x, int elements, void *d, void *values, void *rows,            \
	    void *columns, int size_of_block, void *info, int *size)                               \
	{                                                                                          \
		return guess_narrow(size);                                                         \
	}

FOR_TYPE(S)
FOR_TYPE(D)
FOR_TYPE(C)
FOR_TYPE(Z)

/* Reports that no pivot is zero. */
#define PIVOT(name)                                                                                \
	API(int, name, void *h, void *info, int *position)                                         \
	{                                                                                          \
		if (!position)                                                                     \
			return CUSPARSE_INVALID_VALUE;                                             \
		if (!dryrun__is_device(position))                                                  \
			*position = -1;                                                            \
		return 0;                                                                          \
	}

PIVOT(cusparseXbsrsv2_zeroPivot)
PIVOT(cusparseXbsrsm2_zeroPivot)

NO_EFFECT(cusparseSpMV)
NO_EFFECT(cusparseSpMM)
NO_EFFECT(cusparseSDDMM)
NO_EFFECT(cusparseSDDMM_preprocess)
NO_EFFECT(cusparseSpSV_solve)
NO_EFFECT(cusparseSpSM_solve)

/* ---- cuSPARSELt: 2:4 sparsity. Its objects are 512 bytes or more of the caller's memory ---- */

struct structured {
	int64_t rows, columns;
	int type;
};

API(int, cusparseLtStructuredDescriptorInit, void *h, void *descriptor, int64_t rows,
    int64_t columns, int64_t ld, unsigned int alignment, int type, int order, int sparsity)
{
	struct structured s = { rows, columns, type };

	if (!descriptor || rows < 0 || columns < 0)
		return CUSPARSE_INVALID_VALUE;
	memcpy(descriptor, &s, sizeof(s));
	return 0;
}

/* Half of the elements, and one eighth of a byte of metadata per original element. */
API(int, cusparseLtSpMMACompressedSize2, void *h, const void *descriptor, size_t *size,
    size_t *buffer)
{
	struct structured s;
	uint64_t elements;

	if (!descriptor || !size || !buffer)
		return CUSPARSE_INVALID_VALUE;
	memcpy(&s, descriptor, sizeof(s));
	if (__builtin_mul_overflow((uint64_t)s.rows, (uint64_t)s.columns, &elements) ||
	    elements > 1ull << 48)
		return CUSPARSE_INVALID_VALUE;
	dryrun__unmodelled("cuSPARSELt: workspace");
	*size = elements / 2 * lib__data_size(s.type) + elements / 8;
	*buffer = 0;
	return 0;
}

API(int, cusparseLtMatmulGetWorkspace, void *h, void *plan, size_t *size)
{
	if (!size)
		return CUSPARSE_INVALID_VALUE;
	dryrun__unmodelled("cuSPARSELt: workspace");
	*size = 0;
	return 0;
}

NO_EFFECT(cusparseLtInit)
NO_EFFECT(cusparseLtDestroy)
NO_EFFECT(cusparseLtDenseDescriptorInit)
NO_EFFECT(cusparseLtMatDescriptorDestroy)
NO_EFFECT(cusparseLtMatmulDescriptorInit)
NO_EFFECT(cusparseLtMatmulDescSetAttribute)
NO_EFFECT(cusparseLtMatmulAlgSelectionInit)
NO_EFFECT(cusparseLtMatmulAlgSetAttribute)
NO_EFFECT(cusparseLtMatmulPlanInit)
NO_EFFECT(cusparseLtMatmulPlanDestroy)
NO_EFFECT(cusparseLtMatmul)
NO_EFFECT(cusparseLtSpMMACompress2)

/* As CUSPARSE_VERSION of cuSPARSE. The handle may be NULL. */
API(int, cusparseGetVersion, void *h, int *version)
{
	if (!version)
		return CUSPARSE_INVALID_VALUE;
	*version = lib__version("libcusparse", "cusparseGetProperty", 1000);
	return *version ? 0 : CUSPARSE_NOT_SUPPORTED;
}
