// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * cuSOLVER: decompositions in the caller's memory do nothing. Their status in device memory stays
 * unchanged, 0 (success) in fresh memory. The real workspace sizes are not documented. The sizes
 * here are those of LAPACK's routines with blocks of 32, and the log says so.
 */
#include "lib.h"

#include <limits.h>
#include <stdlib.h>

#define BLOCK 32
#define SOLVER_MAGIC 0x534f4c56u /* "SOLV" */

struct solver {
	uint32_t magic;
	void *stream;
};

API(int, cusolverDnCreate, struct solver **handle)
{
	struct solver *s = handle ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return handle ? 2 : CUSOLVER_INVALID_VALUE; /* CUSOLVER_STATUS_ALLOC_FAILED */
	s->magic = SOLVER_MAGIC;
	*handle = s;
	return 0;
}

API(int, cusolverDnDestroy, struct solver *handle)
{
	if (!handle || handle->magic != SOLVER_MAGIC)
		return 1; /* CUSOLVER_STATUS_NOT_INITIALIZED */
	handle->magic = 0;
	free(handle);
	return 0;
}

API(int, cusolverDnSetStream, struct solver *handle, void *stream)
{
	if (!handle || handle->magic != SOLVER_MAGIC)
		return 1;
	handle->stream = stream;
	return 0;
}

API(int, cusolverDnGetStream, struct solver *handle, void **stream)
{
	if (!handle || handle->magic != SOLVER_MAGIC || !stream)
		return CUSOLVER_INVALID_VALUE;
	*stream = handle->stream;
	return 0;
}

/* Stores a workspace size in elements. The sizes come from the caller: products of three ints must
 * not overflow. */
static int give(int *to, double elements)
{
	if (!to || !(elements >= 0) || elements > INT_MAX)
		return CUSOLVER_INVALID_VALUE;
	dryrun__unmodelled("cuSOLVER: workspace");
	*to = (int)elements;
	return 0;
}

static int give_bytes(size_t *device, size_t *host, int type, double elements)
{
	if (!device || !host || !(elements >= 0) || elements > (double)(1ull << 50))
		return CUSOLVER_INVALID_VALUE;
	dryrun__unmodelled("cuSOLVER: workspace");
	*device = (size_t)elements * lib__data_size(type);
	*host = 0;
	return 0;
}

static double min(double a, double b)
{
	return a < b ? a : b;
}

static double max(double a, double b)
{
	return a > b ? a : b;
}

/* Workspace sizes of the routines, in elements of the matrix. */
static double blocked(double n)
{
	return max(n, 1) * BLOCK;
}

static double svd(double m, double n)
{
	return 3 * min(m, n) + max(m, n) + (m + n) * BLOCK;
}

static double jacobi_svd(double m, double n)
{
	return m * n + 2 * (m + n) + BLOCK;
}

static double eigen(double n)
{
	return 1 + 6 * n + 2 * n * n;
}

static double general_eigen(double n)
{
	return n * (4 + BLOCK) + n * n;
}

#define FOR_TYPE(t, orgqr, ormqr, syevd, syevj, syevj_batched)                                     \
	API(int, cusolverDn##t##getrf_bufferSize, void *h, int m, int n, void *a, int lda,         \
	    int *size)                                                                             \
	{                                                                                          \
		return give(size, blocked(max(m, n)));                                             \
	}                                                                                          \
	API(int, cusolverDn##t##potrf_bufferSize, void *h, int uplo, int n, void *a, int lda,      \
	    int *size)                                                                             \
	{                                                                                          \
		return give(size, blocked(n));                                                     \
	}                                                                                          \
	API(int, cusolverDn##t##potri_bufferSize, void *h, int uplo, int n, void *a, int lda,      \
	    int *size)                                                                             \
	{                                                                                          \
		return give(size, blocked(n));                                                     \
	}                                                                                          \
	API(int, cusolverDn##t##geqrf_bufferSize, void *h, int m, int n, void *a, int lda,         \
	    int *size)                                                                             \
	{                                                                                          \
		return give(size, blocked(n));                                                     \
	}                                                                                          \
	API(int, cusolverDn##t##sytrf_bufferSize, void *h, int n, void *a, int lda, int *size)     \
	{                                                                                          \
		return give(size, blocked(n));                                                     \
	}                                                                                          \
	API(int, cusolverDn##t##orgqr##_bufferSize, void *h, int m, int n, int k, void *a,         \
	    int lda, void *tau, int *size)                                                         \
	{                                                                                          \
		return give(size, blocked(n));                                                     \
	}                                                                                          \
	API(int, cusolverDn##t##ormqr##_bufferSize, void *h, int side, int trans, int m, int n,    \
	    int k, void *a, int lda, void *tau, void *c, int ldc, int *size)                       \
	{                                                                                          \
		return give(size, blocked(max(m, n)));                                             \
	}                                                                                          \
	API(int, cusolverDn##t##gesvd_bufferSize, void *h, int m, int n, int *size)                \
	{                                                                                          \
		return give(size, svd(m, n));                                                      \
	}                                                                                          \
	API(int, cusolverDn##t##gesvdj_bufferSize, void *h, int jobz, int econ, int m, int n,      \
	    void *a, int lda, void *s, void *u, int ldu, void *v, int ldv, int *size,              \
	    void *params)                                                                          \
	{                                                                                          \
		return give(size, jacobi_svd(m, n));                                               \
	}                                                                                          \
	API(int, cusolverDn##t##gesvdjBatched_bufferSize, void *h, int jobz, int m, int n,         \
	    void *a, int lda, void *s, void *u, int ldu, void *v, int ldv, int *size,              \
	    void *params, int batch)                                                               \
	{                                                                                          \
		return give(size, jacobi_svd(m, n) * max(batch, 1));                               \
	}                                                                                          \
	API(int, cusolverDn##t##gesvdaStridedBatched_bufferSize, void *h, int jobz, int rank,      \
	    int m, int n, void *a, int lda, long long sa, void *s, long long ss, void *u, int ldu, \
	    long long su, void *v, int ldv, long long sv, int *size, int batch)                    \
	{                                                                                          \
		return give(size, jacobi_svd(m, n) * max(batch, 1));                               \
	}                                                                                          \
	API(int, cusolverDn##t##syevd##_bufferSize, void *h, int jobz, int uplo, int n, void *a,   \
	    int lda, void *w, int *size)                                                           \
	{                                                                                          \
		return give(size, eigen(n));                                                       \
	}                                                                                          \
	API(int, cusolverDn##t##syevj##_bufferSize, void *h, int jobz, int uplo, int n, void *a,   \
	    int lda, void *w, int *size, void *params)                                             \
	{                                                                                          \
		return give(size, eigen(n));                                                       \
	}                                                                                          \
	API(int, cusolverDn##t##syevj_batched##_bufferSize, void *h, int jobz, int uplo, int n,    \
	    void *a, int lda, void *w, int *size, void *params, int batch)                         \
	{                                                                                          \
		return give(size, eigen(n) * max(batch, 1));                                       \
	}

#define FOUR(routine)                                                                              \
	NO_EFFECT(cusolverDnS##routine)                                                            \
	NO_EFFECT(cusolverDnD##routine)                                                            \
	NO_EFFECT(cusolverDnC##routine)                                                            \
	NO_EFFECT(cusolverDnZ##routine)
#define REAL_OR_COMPLEX(real, complex)                                                             \
	NO_EFFECT(cusolverDnS##real)                                                               \
	NO_EFFECT(cusolverDnD##real)                                                               \
	NO_EFFECT(cusolverDnC##complex)                                                            \
	NO_EFFECT(cusolverDnZ##complex)

FOUR(getrf)
FOUR(getrs)
FOUR(potrf)
FOUR(potri)
FOUR(potrs)
FOUR(potrfBatched)
FOUR(potrsBatched)
FOUR(geqrf)
FOUR(sytrf)
FOUR(gesvd)
FOUR(gesvdj)
FOUR(gesvdjBatched)
FOUR(gesvdaStridedBatched)
REAL_OR_COMPLEX(orgqr, ungqr)
REAL_OR_COMPLEX(ormqr, unmqr)
REAL_OR_COMPLEX(syevd, heevd)
REAL_OR_COMPLEX(syevj, heevj)
REAL_OR_COMPLEX(syevjBatched, heevjBatched)
NO_EFFECT(cusolverDnXgetrf)
NO_EFFECT(cusolverDnXgetrs)
NO_EFFECT(cusolverDnXpotrf)
NO_EFFECT(cusolverDnXpotrs)
NO_EFFECT(cusolverDnXgeqrf)
NO_EFFECT(cusolverDnXsyevd)
NO_EFFECT(cusolverDnXsyevBatched)
NO_EFFECT(cusolverDnXsytrs)
NO_EFFECT(cusolverDnXgeev)

GIVEN(cusolverDnCreateParams, CUSOLVER_INVALID_VALUE)
GIVEN(cusolverDnCreateGesvdjInfo, CUSOLVER_INVALID_VALUE)
GIVEN(cusolverDnCreateSyevjInfo, CUSOLVER_INVALID_VALUE)
NO_EFFECT(cusolverDnDestroyParams)
NO_EFFECT(cusolverDnDestroyGesvdjInfo)
NO_EFFECT(cusolverDnDestroySyevjInfo)
NO_EFFECT(cusolverDnXgesvdjSetTolerance)
NO_EFFECT(cusolverDnXgesvdjSetMaxSweeps)
NO_EFFECT(cusolverDnXgesvdjSetSortEig)
NO_EFFECT(cusolverDnXsyevjSetTolerance)
NO_EFFECT(cusolverDnXsyevjSetMaxSweeps)
NO_EFFECT(cusolverDnXsyevjSetSortEig)

FOR_TYPE(S, orgqr, ormqr, syevd, syevj, syevjBatched)
FOR_TYPE(D, orgqr, ormqr, syevd, syevj, syevjBatched)
FOR_TYPE(C, ungqr, unmqr, heevd, heevj, heevjBatched)
FOR_TYPE(Z, ungqr, unmqr, heevd, heevj, heevjBatched)

/* ---- the 64-bit API: sizes in bytes, for device and host ---- */

API(int, cusolverDnXgetrf_bufferSize, void *h, void *params, int64_t m, int64_t n, int type,
    void *a, int64_t lda, int compute, size_t *device, size_t *host)
{
	return give_bytes(device, host, type, blocked(max(m, n)));
}

API(int, cusolverDnXgeqrf_bufferSize, void *h, void *params, int64_t m, int64_t n, int type,
    void *a, int64_t lda, int tau_type, void *tau, int compute, size_t *device, size_t *host)
{
	return give_bytes(device, host, type, blocked(n));
}

API(int, cusolverDnXpotrf_bufferSize, void *h, void *params, int uplo, int64_t n, int type, void *a,
    int64_t lda, int compute, size_t *device, size_t *host)
{
	return give_bytes(device, host, type, blocked(n));
}

API(int, cusolverDnXsyevd_bufferSize, void *h, void *params, int jobz, int uplo, int64_t n,
    int type, void *a, int64_t lda, int w_type, void *w, int compute, size_t *device, size_t *host)
{
	return give_bytes(device, host, type, eigen(n));
}

API(int, cusolverDnXsyevBatched_bufferSize, void *h, void *params, int jobz, int uplo, int64_t n,
    int type, void *a, int64_t lda, int w_type, void *w, int compute, size_t *device, size_t *host,
    int64_t batch)
{
	return give_bytes(device, host, type, eigen(n) * max(batch, 1));
}

API(int, cusolverDnXsytrs_bufferSize, void *h, int uplo, int64_t n, int64_t columns, int type,
    void *a, int64_t lda, void *pivots, int b_type, void *b, int64_t ldb, size_t *device,
    size_t *host)
{
	return give_bytes(device, host, type, n * max(columns, 1));
}

API(int, cusolverDnXgeev_bufferSize, void *h, void *params, int left, int right, int64_t n,
    int type, void *a, int64_t lda, int w_type, void *w, int vl_type, void *vl, int64_t ldvl,
    int vr_type, void *vr, int64_t ldvr, int compute, size_t *device, size_t *host)
{
	return give_bytes(device, host, type, general_eigen(n));
}
